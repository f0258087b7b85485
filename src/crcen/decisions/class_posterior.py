"""What `PosteriorCorrection` does for more than two classes."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import check_cv

from crcen.decisions.applied_weighting import final_step, samplers_of, weight_argument, why_no_shift
from crcen.decisions.class_correction import class_factors, divide_columns
from crcen.decisions.recorded_sampling import unwatch_samplers, watch_samplers
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.classes.probability import apply_class_map, fit_class_map
from crcen.models.private_scikit_learn import take_rows
from crcen.theory.decision import softmax
from crcen.theory.labels import Labels
from crcen.theory.price import Price

__all__ = ["ClassPosterior"]

Array = NDArray[np.float64]

_LEAST = 1e-12  # a probability of 0, as votes give, has no logarithm
# Ensembles that draw equal numbers of every class by default.
_BALANCED_ENSEMBLES = ("BalancedRandomForestClassifier", "BalancedBaggingClassifier")


class ClassPosterior:
    """Fit and answers for K classes; the parameters are those of `PosteriorCorrection`."""

    def _fit_classes(self: Any, X: Any, y: NDArray[Any], weights: Array, given: Array | None) -> None:
        if self.pos_label is not None:
            raise InvalidParameter(f"pos_label is for two classes, and there are {len(self.classes_)}: leave it None.")
        if self.method == "isotonic":
            raise InvalidParameter("Only binary classification is supported by method='isotonic': use 'temperature'.")
        labels = Labels(self.classes_)
        counts = labels.counts(labels.encode(y), weights)
        self.estimator_, self.class_factors_ = self._fit_one_of_classes(X, y, given)
        price = self.price
        if isinstance(price, str) and price == "training":
            own = getattr(final_step(self.estimator_), "weighting_", None)
            price = own if isinstance(own, Price) else Price(self.class_factors_, counts)
        found = labels.resolve(price, counts)
        self.price_, self.costs_ = found, found.costs
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        self.probability_map_ = None
        doubt = why_no_shift(self.estimator_, samplers_of(self.estimator_))
        if self.method != "shift":
            self._calibrate_classes(X, y, given, labels)
        elif doubt:
            warnings.warn(
                f"a prior shift cannot be exact here: {doubt}; method='temperature' calibrates on out-of-fold rows "
                f"instead.",
                UserWarning,
                stacklevel=4,
            )

    def _fit_one_of_classes(self: Any, X: Any, y: NDArray[Any], weights: Array | None) -> tuple[Any, Array]:
        """A clone fitted on rows, and what its training did to the odds of each class."""
        estimator, labels = clone(self._given_estimator()), Labels(self.classes_)
        sampler = clone(self.sampling) if hasattr(self.sampling, "fit_resample") else None
        if weights is not None and (sampler is not None or samplers_of(estimator)):
            raise InvalidInput("sample_weight cannot follow rows through a sampler; resample or weigh, not both.")
        natural, totals = self._counts(y), self._counts(y, weights)
        if sampler is not None:
            X, y = sampler.fit_resample(X, y)
        watch_samplers(estimator)
        estimator.fit(X, y, **weight_argument(estimator, weights))
        recorded = unwatch_samplers(estimator)
        seen = self._seen_of_classes(estimator, self._counts(np.asarray(y)), recorded)
        if not (seen > 0).all():
            raise InvalidInput(f"the classifier was trained without a class: got {seen.tolist()} rows a class.")
        of_loss = seen if weights is None else totals
        return estimator, class_factors(self.weighting, estimator, labels, natural, seen, of_loss)

    def _seen_of_classes(self: Any, estimator: Any, given: Array, recorded: list[dict[Any, int]]) -> Array:
        """Rows of each class that the classifier itself was trained on."""
        if self.sampling is None or hasattr(self.sampling, "fit_resample"):
            return given
        if not isinstance(self.sampling, str):
            shares = np.asarray(self.sampling, dtype=np.float64)
            if shares.shape != given.shape or not (shares > 0.0).all():
                raise InvalidParameter(f"sampling must be the shares of {len(given)} classes: got {self.sampling!r}.")
            return np.asarray(shares / shares.sum() * given.sum())
        if samplers_of(estimator)[len(recorded) :]:
            raise InvalidParameter(
                "what a sampler did inside the estimator cannot be read off; give sampling= the shares of the classes "
                "among the rows trained on."
            )
        if recorded:
            given = np.array([recorded[-1].get(label, 0) for label in self.classes_.tolist()], dtype=np.float64)
        last = final_step(estimator)
        if type(last).__name__ in _BALANCED_ENSEMBLES:
            if last.sampling_strategy not in ("auto", "all", "not minority"):
                raise InvalidParameter(
                    f"the sampling of {type(last).__name__} cannot be read off "
                    f"sampling_strategy={last.sampling_strategy!r}; give sampling= the shares of the classes."
                )
            return np.full(len(given), given.min())
        return given

    def _calibrate_classes(self: Any, X: Any, y: NDArray[Any], weights: Array | None, labels: Labels) -> None:
        """Fit the map of ``method`` on the natural logits of rows that their estimator did not see."""
        try:
            folds = list(check_cv(self.cv, y, classifier=True).split(X, y))
        except ValueError as error:
            raise InvalidInput(f"cross-validation by {self.cv!r} cannot split these rows: {error}") from error
        logits = np.full((len(y), labels.n_classes), np.nan)
        for own, held_out in folds:
            fitted, factors = self._fit_one_of_classes(
                take_rows(X, own), y[own], None if weights is None else weights[own]
            )
            logits[held_out] = _logits(divide_columns(fitted.predict_proba(take_rows(X, held_out)), factors))
        seen = np.isfinite(logits).all(axis=1)
        rows = np.ones(len(y)) if weights is None else weights
        self.probability_map_ = fit_class_map(self.method, labels.encode(y)[seen], logits[seen], rows[seen])

    def _class_proba(self: Any, X: Any) -> Array:
        """Natural probabilities, (n, K)."""
        p = divide_columns(self.estimator_.predict_proba(X), self.class_factors_)
        return p if self.probability_map_ is None else softmax(apply_class_map(self.probability_map_, _logits(p)))

    def _class_decisions(self: Any, X: Any) -> NDArray[Any]:
        p = self._class_proba(X)
        if self.costs_ is not None:
            return np.asarray(self.costs_.decide(p))
        return np.asarray(self.classes_[self.price_.decide(p)])


def _logits(p: Array) -> Array:
    return np.asarray(np.log(np.clip(p, _LEAST, 1.0)))
