"""PosteriorCorrection: any classifier that was weighted or resampled, with natural probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import check_cv
from sklearn.utils import get_tags, indexable
from sklearn.utils.validation import check_is_fitted

from crcen.decisions.applied_weighting import (
    balancing_counts,
    final_step,
    samplers_of,
    weight_argument,
    weight_ratio,
    why_no_shift,
)
from crcen.decisions.class_posterior import ClassPosterior
from crcen.decisions.correction import check_columns, divide_odds
from crcen.decisions.recorded_sampling import unwatch_samplers, watch_samplers
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.atomic import all_or_nothing
from crcen.models.private_scikit_learn import check_y, take_rows
from crcen.models.probability import PROBABILITIES, apply_map, fit_map
from crcen.models.validation import check_choice, check_classes, check_weights
from crcen.theory.decision import sigmoid
from crcen.theory.labels import Labels, is_for_classes
from crcen.theory.price import CostRatio, is_price_of_two, positive_number, resolve
from crcen.theory.rows import as_numpy

__all__ = ["PosteriorCorrection"]

Array = NDArray[np.float64]


class PosteriorCorrection(ClassPosterior, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Natural probabilities from a classifier that is trained under class weights or on resampled rows.

    Class weights and random sampling within a class multiply the odds that a right classifier learns by a known
    number; ``predict_proba`` divides it out again (Elkan 2001; King and Zeng 2001; Saerens et al. 2002; for
    under-sampling Dal Pozzolo et al. 2015). See `crcen.correct_proba` for the algebra.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``, default=None
        Cloned and fitted; ``None`` is a `sklearn.linear_model.LogisticRegression`.
    weighting : "auto", None, float, Lam, Alpha, CostRatio, Budget, "balanced", dict, default="auto"
        The class weighting that the estimator applies itself. ``"auto"`` reads it off the estimator's settings:
        ``class_weight`` of scikit-learn's linear models and histogram boosting and of LightGBM, ``scale_pos_weight``
        and ``is_unbalance`` of LightGBM, XGBoost and CatBoost, the last one's ``class_weights`` too. Where the settings
        do not say for certain it raises. ``None`` is no weighting; a spec weighs the positive class, a dict labels.
    sampling : "auto", None, float, or a sampler with ``fit_resample``, default="auto"
        Resampling of the training rows. ``"auto"`` counts what the samplers of an imbalanced-learn pipeline hand on,
        and knows its balanced ensembles; a number is the share of positives among the rows trained on; a sampler is
        applied here before the fit. ``None`` is no resampling.
    method : {"shift", "balance", "temperature", "isotonic"}, default="shift"
        ``"shift"`` is the exact algebra alone. The others also calibrate on out-of-fold rows (see docs/probabilities):
        use them where a prior shift cannot be right, as for boosted votes (EasyEnsemble, RUSBoost), synthetic rows
        (SMOTE, ADASYN) and class-weighted trees; ``fit`` warns of these.
    price : "training", None, float, Lam, Alpha, CostRatio, Budget, "balanced", default="training"
        What a miss is worth in the decision of ``predict``, resolved on the natural counts: positive where the natural
        probability is above 1 − λ. ``"training"`` is the weight that was undone (``odds_factor_``), so that
        ``predict`` decides as the weighted classifier did; for a classifier of this library it is the price that it
        was given. Where training had no weight at all, ``fit`` warns that ``predict`` decides at ½. ``None`` is λ = ½
        on purpose.
    cv : int, splitter or iterable, default=5
        Out-of-fold rows of the calibrating methods.
    pos_label : default=None
        The positive class of ``weighting``, ``sampling`` and ``price``; ``None`` is the rarer one.

    Attributes
    ----------
    classes_, pos_label_
        Sorted labels and the positive one.
    estimator_ : classifier
        Fitted on all rows.
    odds_factor_ : float
        What the training multiplied the odds of the positive class by: taken out again. Of more than two classes
        ``class_factors_``, an array.
    price_ : Price
        The price of `predict`; ``price_.threshold`` is its threshold. ``costs_`` is a `CostMatrix` where it is one.
    probability_map_ : ndarray
        The map of ``method`` (see `crcen.models.probability`), identity for ``"shift"``.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from crcen import PosteriorCorrection
    >>> X, y = make_classification(2000, weights=[0.95], random_state=0)
    >>> model = PosteriorCorrection(LogisticRegression(class_weight="balanced")).fit(X, y)
    >>> bool(abs(model.predict_proba(X)[:, 1].mean() - y.mean()) < 0.01)
    True
    """

    price_: Any
    probability_map_: Any

    def __init__(
        self,
        estimator: Any = None,
        *,
        weighting: Any = "auto",
        sampling: Any = "auto",
        method: str = "shift",
        price: Any = "training",
        cv: Any = 5,
        pos_label: Any = None,
    ) -> None:
        self.estimator = estimator
        self.weighting = weighting
        self.sampling = sampling
        self.method = method
        self.price = price
        self.cv = cv
        self.pos_label = pos_label

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PosteriorCorrection:
        """Fit the estimator and find what its training did to the odds.

        Parameters
        ----------
        X : rows as the estimator takes them
        y : array of shape (n,)
            Two classes or more.
        sample_weight : array of shape (n,), optional
            Passed on to the estimator (to the last step of a pipeline); refused where rows are resampled.
        """
        with all_or_nothing(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        X, y, sample_weight = indexable(as_numpy(X), as_numpy(y), as_numpy(sample_weight))
        labels = check_y(y, estimator=self)
        self.classes_ = check_classes(labels)
        weights = check_weights(sample_weight, labels[:, None])
        for name in ("pos_label_", "odds_factor_", "class_factors_"):
            self.__dict__.pop(name, None)
        if is_for_classes(self.price, self.classes_):
            self._check_parameters_of_both()
            self._fit_classes(X, labels, weights, None if sample_weight is None else weights)
            return
        self.pos_label_ = Labels.from_rows(self.classes_, labels, weights, self.pos_label).positive
        self._check_parameters()
        both = self._labels()
        given = None if sample_weight is None else weights
        fitted = self._fit_one(X, labels, given)
        self.estimator_ = fitted.estimator
        self.odds_factor_ = float(both.odds(fitted.factor))
        price = self._price_of_training() if _is_training(self.price) else self.price
        self.price_ = both.resolve(price, self._counts(labels, weights))
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted.estimator, name):
                setattr(self, name, getattr(fitted.estimator, name))
        self.probability_map_, self._limit = np.array([1.0, 0.0]), np.inf
        if self.method != "shift":
            self._calibrate(X, labels, given)
        elif fitted.doubt:
            warnings.warn(
                f"a prior shift cannot be exact here: {fitted.doubt}; method='isotonic' or 'temperature' calibrates "
                f"on out-of-fold rows instead.",
                UserWarning,
                stacklevel=3,
            )

    def predict_proba(self, X: Any) -> Array:
        """Natural probabilities, (n, K) in the order of ``classes_``."""
        check_is_fitted(self)
        X = as_numpy(X)
        if hasattr(self, "class_factors_"):
            return self._class_proba(X)
        fitted = _Fitted(self.estimator_, self._labels().odds(self.odds_factor_))
        if np.isinf(self._limit):
            return divide_odds(fitted.weighted(X), fitted.factor)
        logits = apply_map(self.probability_map_, fitted.natural_logits(X, self._limit))
        return np.column_stack([sigmoid(-logits), sigmoid(logits)])

    def predict(self, X: Any) -> NDArray[Any]:
        """Decide at ``price``: the positive class where its natural probability is above ``price_.threshold``.

        Of more classes the one with the largest weight times probability, or the cheapest action of a `CostMatrix`.
        """
        check_is_fitted(self)
        if hasattr(self, "class_factors_"):
            return self._class_decisions(X)
        labels = self._labels()
        return labels.decode(self.predict_proba(X)[:, labels.column] > self.price_.threshold)

    def __sklearn_tags__(self) -> Any:
        """Those of the estimator; of more than two classes where the parameters are not of two."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self._given_estimator())
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.input_tags.sparse, inner.input_tags.allow_nan
        tags.input_tags.pairwise, tags.non_deterministic = inner.input_tags.pairwise, inner.non_deterministic
        of_two = any(map(is_price_of_two, (self.weighting, self.price))) or isinstance(self.sampling, int | float)
        of_two = of_two or self.method == "isotonic"
        tags.classifier_tags.multi_class = inner.classifier_tags.multi_class and not of_two
        return tags

    # -- fitting -------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Refuse what has no meaning before anything is fitted."""
        if not _is_training(self.price):
            resolve(self.price, 1.0, 1.0)
        self._check_parameters_of_both()
        if isinstance(self.sampling, str) and self.sampling != "auto":
            raise InvalidParameter(
                f"sampling must be 'auto', None, a share of positives or a sampler: got {self.sampling!r}."
            )
        if not isinstance(self.sampling, str | None) and not hasattr(self.sampling, "fit_resample"):
            self._stated_share()
        if not isinstance(self.weighting, Mapping):
            if not (isinstance(self.weighting, str) and self.weighting == "auto"):
                resolve(self.weighting, 1.0, 1.0)
        elif set(self.weighting) != set(self.classes_.tolist()):
            listed = ", ".join(repr(c) for c in self.classes_.tolist())
            raise InvalidParameter(
                f"a weighting dict needs one weight for each of {listed}: got {dict(self.weighting)!r}."
            )

    def _check_parameters_of_both(self) -> None:
        """Those that mean the same for any number of classes."""
        check_choice(self, "method", PROBABILITIES)
        if not hasattr(self._given_estimator(), "predict_proba"):
            raise InvalidParameter(f"estimator must have predict_proba: got {type(self.estimator).__name__}.")

    def _price_of_training(self) -> CostRatio:
        """The price at which the fitted classifier decides by itself."""
        own = getattr(final_step(self.estimator_), "weighting_", None)
        if own is not None:  # ours: natural probabilities, decided at the price it was given
            same = final_step(self.estimator_).pos_label_ == self.pos_label_
            return CostRatio(own.cost_ratio if same else 1.0 / own.cost_ratio)
        if self.odds_factor_ == 1.0:
            warnings.warn(
                "no price was given and the estimator was trained without a weight, so predict decides at ½, where a "
                "rare class is seldom found; give price=, such as Budget(10), or price=None for ½ on purpose.",
                UserWarning,
                stacklevel=4,
            )
        return CostRatio(self.odds_factor_)

    def _given_estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _labels(self) -> Labels:
        return Labels(self.classes_, self.pos_label_)

    def _fit_one(self, X: Any, y: NDArray[Any], weights: Array | None) -> _Fitted:
        """A clone fitted on rows, and what its training did to the odds of the last class."""
        estimator = clone(self._given_estimator())
        own_sampler = clone(self.sampling) if hasattr(self.sampling, "fit_resample") else None
        if weights is not None and (own_sampler is not None or samplers_of(estimator)):
            raise InvalidInput("sample_weight cannot follow rows through a sampler; resample or weigh, not both.")
        natural, totals = self._counts(y), self._counts(y, weights)
        if own_sampler is not None:
            X, y = own_sampler.fit_resample(X, y)
        watch_samplers(estimator)
        estimator.fit(X, y, **weight_argument(estimator, weights))
        recorded = unwatch_samplers(estimator)
        seen = self._seen(estimator, self._counts(y), recorded) if self.sampling is not None else natural
        if not (seen > 0).all():
            raise InvalidInput(f"the classifier was trained on one class only: got {seen.tolist()} rows a class.")
        ratio = self._ratio(estimator, seen, seen if weights is None else totals)
        samplers = samplers_of(estimator) + ([] if own_sampler is None else [own_sampler])
        factor = float(seen[1] / seen[0] * natural[0] / natural[1]) * ratio
        return _Fitted(estimator, factor, why_no_shift(estimator, samplers))

    def _counts(self, y: NDArray[Any], weights: Array | None = None) -> Array:
        rows = np.ones(len(y)) if weights is None else weights
        return np.array([rows[y == label].sum() for label in self.classes_])

    def _seen(self, estimator: Any, given: Array, recorded: list[dict[Any, int]]) -> Array:
        """Rows a class that the classifier itself was trained on."""
        if not isinstance(self.sampling, str) and not hasattr(self.sampling, "fit_resample"):
            return self._stated_share() * given.sum()
        inside = samplers_of(estimator)[len(recorded) :]
        if inside:
            raise InvalidParameter(
                f"what {type(inside[0]).__name__} did inside {type(estimator).__name__} cannot be read off; give "
                f"sampling= the share of positives among the rows trained on."
            )
        if recorded:
            given = np.array([recorded[-1].get(label, 0) for label in self.classes_.tolist()], dtype=np.float64)
        return balancing_counts(estimator, self.classes_, given)

    def _stated_share(self) -> Array:
        share = positive_number(self.sampling, "sampling")
        if share >= 1.0:
            raise InvalidParameter(f"sampling must be a share of positives strictly between 0 and 1: got {share:g}.")
        return np.array(self._labels().pair([1.0 - share, share])[::-1])

    def _ratio(self, estimator: Any, rows: Array, totals: Array) -> float:
        """The weight of the last class over that of the first."""
        if isinstance(self.weighting, str) and self.weighting == "auto":
            return weight_ratio(estimator, self.classes_, rows, totals)
        if isinstance(self.weighting, Mapping):
            first, last = (
                positive_number(self.weighting[c], f"the weight of class {c}") for c in self.classes_.tolist()
            )
            return last / first
        labels = self._labels()
        return labels.odds(resolve(self.weighting, *labels.pair(totals)).cost_ratio)

    def _calibrate(self, X: Any, y: NDArray[Any], weights: Array | None) -> None:
        """Fit the map of ``method`` on the natural logits of rows that their estimator did not see."""
        try:
            folds = list(check_cv(self.cv, y, classifier=True).split(X, y))
        except ValueError as error:
            raise InvalidInput(f"cross-validation by {self.cv!r} cannot split these rows: {error}") from error
        logits, shift = np.full(len(y), np.nan), np.zeros(len(y))
        for train_rows, held_out in folds:
            own = None if weights is None else weights[train_rows]
            fitted = self._fit_one(take_rows(X, train_rows), y[train_rows], own)
            logits[held_out] = fitted.weighted_logits(take_rows(X, held_out))
            shift[held_out] = np.log(fitted.factor)
        seen = ~np.isnan(logits)
        logits, finite = logits[seen], np.isfinite(logits[seen])
        # A probability of 0 or 1, as votes give, is taken as half a row of all that were seen.
        self._limit = float(max(np.log(2.0 * len(logits)), np.abs(logits[finite]).max(initial=0.0)))
        natural = np.clip(logits, -self._limit, self._limit) - shift[seen]
        rows = np.ones(len(y)) if weights is None else weights
        self.probability_map_ = fit_map(self.method, y[seen] == self.classes_[1], natural, rows[seen])


@dataclass(frozen=True)
class _Fitted:
    """A fitted classifier and the factor that its training put on the odds of the last class."""

    estimator: Any
    factor: float
    doubt: str = ""

    def weighted(self, X: Any) -> Array:
        """Its own probabilities in float64."""
        return check_columns(self.estimator.predict_proba(X))

    def weighted_logits(self, X: Any) -> Array:
        q = self.weighted(X)
        with np.errstate(divide="ignore"):
            return np.log(q[:, 1]) - np.log(q[:, 0])

    def natural_logits(self, X: Any, limit: float) -> Array:
        return np.clip(self.weighted_logits(X), -limit, limit) - np.log(self.factor)


def _is_training(price: Any) -> bool:
    return isinstance(price, str) and price == "training"
