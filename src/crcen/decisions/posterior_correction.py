"""Natural probabilities of classifiers that were weighted or resampled: correct_proba and PosteriorCorrection."""

import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags, indexable
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.ensemble import PROBABILITIES, apply_map, fit_map
from crcen.models.fitted import transactional_fit
from crcen.models.search.folds import split_rows
from crcen.models.validation import check_choice, check_classes, check_weights, check_y, take_rows
from crcen.theory.checks import check_clusters, check_probabilities
from crcen.theory.price import Alpha, Labels, Price, WeightingLike, is_price_of_two, positive_number, resolve
from crcen.theory.rows import Array, Clusters, Estimator, LabelArray, Rows, Splitter, as_numpy


@dataclass(eq=False, repr=False, kw_only=True)
class PosteriorCorrection(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # no types
    """Natural probabilities from a classifier that is trained under class weights or on resampled rows.

    Class weights and random sampling within a class multiply the odds by known factors; ``predict_proba`` divides them
    out again. See `crcen.correct_proba` for the algebra.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``, default=None
        Cloned and fitted; ``None`` is a `sklearn.linear_model.LogisticRegression`.
    weighting : "auto", None, float, Lam, Alpha, CostRatio, Budget, "balanced", dict, default="auto"
        The class weighting that the estimator applies itself. ``"auto"`` reads it from the settings of estimators of
        scikit-learn, LightGBM, XGBoost and CatBoost; uncertain settings raise an error. ``None`` is no weighting.
    sampling : "auto", None, float, array of shape (K,), or a sampler with ``fit_resample``, default="auto"
        ``"auto"`` counts the rows that samplers of an imbalanced-learn pipeline return, and supports its balanced
        ensembles; otherwise the share of positives, or of all classes, trained on, or a sampler to apply first.
    method : {"shift", "balance", "temperature", "isotonic"}, default="shift"
        ``"shift"`` is the exact algebra alone. The others also calibrate on out-of-fold rows (see docs/probabilities),
        for boosted votes, synthetic rows and class-weighted trees, about which ``fit`` warns.
    price : "training", None, float, Lam, Alpha, CostRatio, Budget, "balanced", dict, CostMatrix, default="training"
        The price of ``predict``, resolved with the natural counts. ``"training"`` is the removed weighting (for
        a classifier of this library its own price), so that decisions do not change. ``None`` is λ = ½.
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
    class_factors_ : ndarray of shape (K,)
        Factors of the classes that training applied, up to a common one; ``predict_proba`` divides by them.
    price_ : Price
        The price of `predict`.
    probability_map_ : ndarray or None
        The map of ``method`` (see `crcen.models.ensemble`), None for ``"shift"``.
    """

    estimator: Estimator = field(default=None, kw_only=False)
    weighting: WeightingLike = "auto"
    sampling: ArrayLike | Estimator = "auto"
    method: str = "shift"
    price: WeightingLike = "training"
    cv: Splitter = 5
    pos_label: object = None

    def fit(
        self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> "PosteriorCorrection":
        """Fit the estimator and find the effect of its training on the odds.

        ``sample_weight`` is passed on to the estimator (to the last step of a pipeline); rejected with a sampler.
        Rows of the same ``groups`` stay together in the folds of ``method``, and in those of an estimator whose ``fit``
        takes groups; rejected if neither has folds. They do not follow rows through a sampler.
        """
        with transactional_fit(self):
            try:
                X, y, sample_weight, groups = indexable(*map(as_numpy, (X, y, sample_weight, groups)))
                labels = check_y(y, estimator=self)
            except (TypeError, ValueError) as error:
                raise InvalidInput(f"y must hold a label for each row of X, other arrays a value: {error}") from error
            self.classes_ = check_classes(labels)
            weights = check_weights(sample_weight, labels[:, None])
            given = None if sample_weight is None else weights
            own = Labels.from_rows(self.classes_, labels, weights, self.pos_label)
            self.pos_label_ = own.positive
            self._check_parameters(own)
            groups = check_clusters(groups, len(labels), "groups")
            self.estimator_, self.class_factors_, doubt = self._fit_one(X, labels, given, groups)
            price = self._price_of_training(own) if _is(self.price, "training") else self.price
            self.price_ = own.resolve(price, own.counts(own.encode(labels), weights))
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self.estimator_, name):
                    setattr(self, name, getattr(self.estimator_, name))
            self.probability_map_: Array | None = None
            self._limit = np.inf
            if self.method != "shift":
                self._calibrate(X, labels, given, groups)
            elif doubt:
                methods = "'isotonic' or 'temperature'" if own.n_classes == 2 else "'temperature'"
                instead = f"method={methods} calibrates on out-of-fold rows instead"
                warnings.warn(f"a prior shift cannot be exact here: {doubt}; {instead}.", UserWarning, stacklevel=2)
        return self

    @property
    def odds_factor_(self) -> float:
        """For two classes: the factor that training applied to the odds of the positive class."""
        pos, neg = self._labels().pair(self.class_factors_)
        return pos / neg

    def predict_proba(self, X: Rows) -> Array:
        """Natural probabilities, (n, K) in the order of ``classes_``."""
        check_is_fitted(self)
        q = check_columns(self.estimator_.predict_proba(as_numpy(X)))
        if self.probability_map_ is None:
            return Price(self.class_factors_, np.ones(len(self.classes_))).posterior(q)
        mapped = apply_map(self.probability_map_, _engine(_logits(q, self._limit) - np.log(self.class_factors_)))
        logits = mapped if mapped.ndim == 2 else np.column_stack([np.zeros(len(mapped)), mapped])
        return np.asarray(softmax(logits, axis=1))

    def predict(self, X: Rows) -> LabelArray:
        """Decide at ``price_``: by its threshold, the largest weight times probability, or the cheapest action."""
        p = self.predict_proba(X)
        if self.price_.costs is not None:
            return self.price_.costs.decide(p)
        return np.asarray(self.classes_[self.price_.decide(p)])

    def __sklearn_tags__(self) -> object:
        """Those of the estimator; multiclass unless a parameter is for two classes."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self._given_estimator())
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.input_tags.sparse, inner.input_tags.allow_nan
        tags.input_tags.pairwise, tags.non_deterministic = inner.input_tags.pairwise, inner.non_deterministic
        of_two = any(map(is_price_of_two, (self.weighting, self.price))) or isinstance(self.sampling, int | float)
        of_two = of_two or self.method == "isotonic"
        tags.classifier_tags.multi_class = inner.classifier_tags.multi_class and not of_two
        return tags

    # -- fitting -------------------------------------------------------------------------------------------------

    def _check_parameters(self, labels: Labels) -> None:
        check_choice(self, "method", PROBABILITIES)
        if labels.n_classes > 2 and self.method == "isotonic":
            raise InvalidParameter("Only binary classification is supported by method='isotonic': use 'temperature'.")
        if not hasattr(self._given_estimator(), "predict_proba"):
            raise InvalidParameter(f"estimator must have predict_proba: got {type(self.estimator).__name__}.")
        for setting, default in ((self.price, "training"), (self.weighting, "auto")):
            if not _is(setting, default):
                labels.resolve(setting, np.ones(labels.n_classes))
        if self.sampling is not None and not _is(self.sampling, "auto") and not hasattr(self.sampling, "fit_resample"):
            self._stated_shares(labels)

    def _price_of_training(self, labels: Labels) -> Price:
        own = getattr(_nested(self.estimator_)[-1], "weighting_", None)
        if isinstance(own, Price):  # ours: natural probabilities, decided at the price it was given
            return Price(own.weights, own.counts, own.costs)  # by class, whichever is positive
        if labels.n_classes == 2 and self.odds_factor_ == 1.0:
            half = "no price was given and the estimator was trained without a weight, so predict decides at ½"
            advice = "give price=, such as Budget(10), or price=None for ½ on purpose"
            warnings.warn(f"{half}, where a rare class is seldom found; {advice}.", UserWarning, stacklevel=3)
        return Price(self.class_factors_, np.ones(labels.n_classes))

    def _given_estimator(self) -> Estimator:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _labels(self) -> Labels:
        return Labels(self.classes_, self.pos_label_)

    def _fit_one(
        self, X: Rows, y: LabelArray, weights: Array | None, groups: Clusters | None
    ) -> tuple[Estimator, Array, str]:
        """A clone fitted on rows, the factors of its training, and why they may not be exact."""
        estimator = clone(self._given_estimator())
        own_sampler = clone(self.sampling) if hasattr(self.sampling, "fit_resample") else None
        has_sampler = own_sampler is not None or bool(samplers_of(estimator))
        if weights is not None and has_sampler:
            raise InvalidInput("sample_weight cannot follow rows through a sampler; resample or weight, not both.")
        natural, totals = self._counts(y), self._counts(y, weights)
        if own_sampler is not None:
            X, y = own_sampler.fit_resample(X, y)
        for place, (name, step) in enumerate(getattr(estimator, "steps", [])):
            if hasattr(step, "fit_resample"):
                estimator.steps[place] = (name, _RecordingSampler(step))
        arguments = fit_arguments(estimator, weights, None if has_sampler else groups)
        if groups is not None and self.method == "shift" and not any(key.endswith("groups") for key in arguments):
            raise InvalidParameter("groups must go with a method or an estimator that has folds: got method='shift'.")
        try:
            estimator.fit(X, y, **arguments)
        except InvalidParameter as error:
            if self.method == "shift" or "groups" not in error.parameters:
                raise
            estimator.fit(X, y, **fit_arguments(estimator, weights, None))  # it holds no rows out
        recorded = []
        for place, (name, step) in enumerate(getattr(estimator, "steps", [])):  # a pipeline replaces its list
            if isinstance(step, _RecordingSampler):
                recorded.append(self._counts(step.y_))
                estimator.steps[place] = (name, step.sampler)
        seen = self._seen(estimator, self._counts(np.asarray(y)), recorded) if self.sampling is not None else natural
        if not (seen > 0).all():
            raise InvalidInput(f"the classifier was trained without a class: got {seen.tolist()} rows of the classes.")
        of_loss = seen if weights is None else totals
        if _is(self.weighting, "auto"):
            of_classes = training_class_weights(estimator, self.classes_, seen, of_loss)
        else:
            of_classes = self._labels().resolve(self.weighting, of_loss).weights
        samplers = samplers_of(estimator) + ([] if own_sampler is None else [own_sampler])
        return estimator, of_classes * seen / natural, why_no_shift(estimator, samplers)

    def _counts(self, y: LabelArray, weights: Array | None = None) -> Array:
        rows = np.ones(len(y)) if weights is None else weights
        return np.array([rows[y == label].sum() for label in self.classes_])

    def _seen(self, estimator: Estimator, given: Array, recorded: list[Array]) -> Array:
        """Rows of each class that the classifier itself was trained on."""
        if not _is(self.sampling, "auto") and not hasattr(self.sampling, "fit_resample"):
            return self._stated_shares(self._labels()) * given.sum()
        inside = samplers_of(estimator)[len(recorded) :]
        if inside:
            message = f"what {type(inside[0]).__name__} did inside {type(estimator).__name__} cannot be determined"
            raise InvalidParameter(f"{message}; pass sampling= {_SHARES} trained on.")
        return balancing_counts(estimator, self.classes_, recorded[-1] if recorded else given)

    def _stated_shares(self, labels: Labels) -> Array:
        if isinstance(self.sampling, str):
            allowed = "'auto', None, a share of positives, shares of the classes or a sampler"
            raise InvalidParameter(f"sampling must be {allowed}: got {self.sampling!r}.")
        shares = class_shares(self.sampling, labels.n_classes, "sampling")
        return labels.by_class(shares[1], shares[0]) if np.ndim(self.sampling) == 0 else shares

    def _calibrate(self, X: Rows, y: LabelArray, weights: Array | None, groups: Clusters | None) -> None:
        """Fit the map of ``method`` on the natural logits of rows that their estimator did not see."""
        n_classes = len(self.classes_)
        q, shift = np.full((len(y), n_classes), np.nan), np.zeros((len(y), n_classes))
        for train_rows, held_out in split_rows(self.cv, X, y, groups):
            own = None if weights is None else weights[train_rows]
            related = None if groups is None else groups[train_rows]
            fitted, factors, _ = self._fit_one(take_rows(X, train_rows), y[train_rows], own, related)
            q[held_out] = check_columns(fitted.predict_proba(take_rows(X, held_out)))
            shift[held_out] = np.log(factors)
        seen = ~np.isnan(q).any(axis=1)
        # A probability of 0 or 1, as votes give, is taken as half a row of all that were seen.
        gaps = np.ptp(_logits(q[seen], np.inf), axis=1)
        self._limit = float(max(np.log(2.0 * seen.sum()), gaps[np.isfinite(gaps)].max(initial=0.0)))
        natural = _logits(q[seen], self._limit) - shift[seen]
        rows = (np.ones(len(y)) if weights is None else weights)[seen]
        numbers = self._labels().encode(y[seen])
        target = numbers if n_classes > 2 else numbers == 1
        self.probability_map_ = fit_map(self.method, target, _engine(natural), rows)


def _logits(q: Array, limit: float) -> Array:
    """Logarithms of probabilities (n, K), not more than the limit below the largest of their row."""
    with np.errstate(divide="ignore"):
        logits = np.log(q)
    return np.maximum(logits, logits.max(axis=1, keepdims=True) - limit)


def _engine(logits: Array) -> Array:
    """Log-odds of the second of two classes, (n,); the logits of more, (n, K)."""
    return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits


def _is(setting: object, word: str) -> bool:
    return isinstance(setting, str) and setting == word


# Each fits a weighted log loss, so that its class weights multiply the odds.
_WEIGHTED_LOG_LOSS = {"LogisticRegression", "LogisticRegressionCV", "SGDClassifier", "HistGradientBoostingClassifier"}
_TREES = {
    *("DecisionTreeClassifier", "ExtraTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier"),
    "BalancedRandomForestClassifier",
}
_BALANCED_ENSEMBLES = {
    *("BalancedRandomForestClassifier", "BalancedBaggingClassifier", "EasyEnsembleClassifier", "RUSBoostClassifier")
}
_BOOSTED_VOTES = {"AdaBoostClassifier", "EasyEnsembleClassifier", "RUSBoostClassifier"}
_RANDOM_SAMPLERS = {"RandomUnderSampler", "RandomOverSampler"}
_KNOWN_LIBRARIES = {"sklearn", "imblearn", "lightgbm", "xgboost", "catboost", "skorch", "crcen"}
# Parameters that weigh classes.
_SHARES = "the share of positives, or the shares of the classes, among the rows"
_UNBALANCED = ("is_unbalance", "unbalance", "unbalanced_sets")
_WEIGHING = ("class_weight", "class_weights", "auto_class_weights", "scale_pos_weight", "priors", *_UNBALANCED)
# Losses of boosted trees under which class weights multiply the odds.
_LOG_LOSSES: dict[str, dict[str, tuple[str, ...]]] = {
    "lightgbm": {"objective": ("binary", "multiclass", "softmax")},
    "xgboost": {"objective": ("binary:logistic", "multi:softprob", "multi:softmax")},
    "catboost": {"loss_function": ("Logloss", "MultiClass")},
}


def _nested(estimator: Estimator) -> list[Estimator]:
    """The estimator, what a search found best, the end of a pipeline, and so on, down to the classifier itself."""
    found = [estimator]
    while hasattr(found[-1], "best_estimator_") or hasattr(found[-1], "steps"):
        last = found[-1]
        found.append(last.best_estimator_ if hasattr(last, "best_estimator_") else last.steps[-1][1])
    return found


def samplers_of(estimator: Estimator) -> list[Estimator]:
    """The samplers of a pipeline in order, and then those of pipelines inside it."""
    steps = [step for one in _nested(estimator) for _, step in getattr(one, "steps", [])]
    return [step for step in steps if hasattr(step, "fit_resample")]


def why_no_shift(estimator: Estimator, samplers: list[Estimator]) -> str:
    """Why a prior shift cannot be exact for this classifier and the samplers of its training rows, or nothing."""
    last = _nested(estimator)[-1]
    name = type(last).__name__
    if name == "BalancedBaggingClassifier" and last.sampler is not None:
        samplers = [*samplers, last.sampler]
    if name in _BOOSTED_VOTES:
        return f"{name} averages boosted votes, which are not probabilities at any class ratio"
    own = getattr(last, "_why_no_posterior", "")  # the methods of crcen.paper.methods state it
    if own:
        return f"{name} {own}"
    for sampler in samplers:
        kind = type(sampler).__name__
        if kind not in _RANDOM_SAMPLERS:
            return f"{kind} creates or selects rows by their position, not at random within a class"
        if getattr(sampler, "shrinkage", None) is not None:
            return f"{kind} with shrinkage creates new rows"
    if name == "ResampledClassifier":
        return f"{name} creates new rows ({last.sampler})"
    if name in _TREES and last.get_params(deep=False)["class_weight"] is not None:
        return f"class weights move the odds in a leaf of {name} only as far as it holds both classes"
    return ""


def balancing_counts(estimator: Estimator, classes: LabelArray, counts: Array) -> Array:
    """Expected class counts of the members of a balanced ensemble; any other classifier leaves the counts unchanged."""
    last = _nested(estimator)[-1]
    name = type(last).__name__
    if name == "ResampledClassifier":
        return np.full(len(counts), counts.max())
    if name in ("BalanceCascadeClassifier", "EUSBoostClassifier"):  # the latter nearly, as its fitness asks
        return np.full(len(counts), counts.min())
    if name == "GranularSVMClassifier":
        is_pos = classes == last.pos_label_
        return np.where(is_pos, counts, last.machine_.shape_fit_[0] - counts[is_pos].sum())
    if name not in _BALANCED_ENSEMBLES:
        return counts
    strategy, sampler = last.sampling_strategy, getattr(last, "sampler", None)
    kind = "under-sampling" if sampler is None else getattr(sampler, "_sampling_type", "unknown")
    equal = {"under-sampling": ["not minority", "majority"], "over-sampling": ["not majority", "minority"]}.get(kind)
    if equal is not None and strategy in ("auto", "all", *equal[: 1 if len(counts) > 2 else 2]):
        return np.full(len(counts), counts.min())
    if equal is not None and isinstance(strategy, dict):
        return np.array([strategy.get(label, n) for label, n in zip(classes.tolist(), counts, strict=True)], float)
    if equal is not None and isinstance(strategy, float):  # minority over majority after sampling, of two classes
        return np.where(counts == counts.min(), counts, counts.min() / strategy)
    message = f"the sampling of {name} cannot be determined from sampling_strategy={strategy!r}"
    raise InvalidParameter(f"{message}; pass sampling= {_SHARES} its members see.")


def training_class_weights(estimator: Estimator, classes: LabelArray, rows: Array, totals: Array) -> Array:
    """Weight of each class in the loss of a fitted classifier, up to a common factor; an error if it is uncertain."""
    last = _nested(estimator)[-1]
    name, library = type(last).__name__, type(last).__module__.partition(".")[0]
    none = np.ones(len(classes))
    if library not in _KNOWN_LIBRARIES:
        raise _unreadable(name, "it comes from an unknown library")
    if library == "crcen" or name == "CalibratedClassifierCV":
        return none  # natural already: by our own contract, or calibrated on rows as they are
    if name == "BalancedBaggingClassifier":
        return training_class_weights(last.estimators_[0].steps[-1][1], classes, rows, totals)
    if library == "skorch":
        return _skorch(last, none)
    settings = last.get_params()
    for key, log_losses in _LOG_LOSSES.get(library, {}).items():
        if settings.get(key) is not None and settings[key] not in log_losses:
            raise _unreadable(name, f"{key}={settings[key]!r} need not be a log loss")
    own = {key: value for key, value in settings.items() if _weighs_classes(key, value)}
    ratio = np.array([1.0, float(own.pop("scale_pos_weight", None) or 1.0)])  # ignored for more than two classes
    weights = ratio if len(classes) == 2 else none
    if library == "lightgbm" and len(classes) == 2 and any([own.pop(key, False) for key in _UNBALANCED]):
        weights = weights * [1.0, rows[0] / rows[1]]
    if library == "catboost" and len(own) == 1 and "class_weights" in own:
        return np.asarray(own["class_weights"], dtype=np.float64)  # a tuple: a list or a dict cannot be cloned
    if library == "catboost" and len(own) == 1 and "auto_class_weights" in own:
        power = {"Balanced": 1.0, "SqrtBalanced": 0.5}.get(own["auto_class_weights"], 0.0)
        return np.asarray((totals.max() / totals) ** power)
    if set(own) == {"class_weight"} and (name in _WEIGHTED_LOG_LOSS | _TREES or library == "lightgbm"):
        return weights * _class_weight(name, own["class_weight"], classes, rows, totals)
    if own:
        raise _unreadable(name, f"what {', '.join(sorted(own))} does to its probabilities is not certain")
    return weights


def _weighs_classes(key: str, value: object) -> bool:
    """Whether a parameter, perhaps of an estimator inside, weighs classes or resamples rows."""
    if key.rpartition("__")[2] in _WEIGHING:
        return value is not None and value is not False
    return hasattr(value, "fit_resample")


def _unreadable(name: str, why: str) -> InvalidParameter:
    return InvalidParameter(
        f"the class weighting of {name} cannot be determined: {why}; pass weighting= (None for no weights)."
    )


def _class_weight(name: str, given: object, classes: LabelArray, rows: Array, totals: Array) -> Array:
    if isinstance(given, dict):
        return np.array([float(given.get(label, 1.0)) for label in classes.tolist()])
    if not np.allclose(rows / rows.sum(), totals / totals.sum(), rtol=1e-9, atol=0.0):
        raise _unreadable(
            name, f"some libraries count rows and some sum weights for {given!r}, which differ here; a dict is clear"
        )
    return np.asarray(rows.sum() / rows)


def _skorch(last: Estimator, none: Array) -> Array:
    """The criterion of a fitted net; class 1 is the second label, since nets are given class numbers."""
    name, loss = type(last).__name__, last.criterion_
    if getattr(last, "iterator_train__sampler", None) is not None:
        raise _unreadable(name, "its iterator draws rows by a sampler")
    natural = getattr(last, "predict_nonlinearity", None)
    if getattr(getattr(natural, "func", None), "__module__", None) == "crcen.torch.skorch":
        return none  # natural_probabilities has taken the weights out
    kind, weight = type(loss).__name__, getattr(loss, "weight", None)
    if kind == "ClassWeightedLoss":
        return np.array([float(weight) for weight in loss.class_weights])
    if kind in ("CrossEntropyLoss", "NLLLoss"):
        if weight is None:
            return none
        trap = f"{kind} divides by each batch's weights, so it trains at another weight"
        raise _unreadable(name, f"{trap}; use crcen.torch.ClassWeightedLoss")
    if kind == "BCEWithLogitsLoss" and weight is None and (loss.pos_weight is None or loss.pos_weight.numel() == 1):
        return np.array([1.0, 1.0 if loss.pos_weight is None else float(loss.pos_weight)])
    raise _unreadable(name, f"what {kind} does to its probabilities is not certain")


def fit_arguments(estimator: Estimator, weights: Array | None, groups: Clusters | None) -> dict[str, Rows]:
    """Sample weights, and groups if it takes them, as the estimator or the last step of a pipeline names them."""
    name, last = estimator.steps[-1] if hasattr(estimator, "steps") else ("", estimator)
    if weights is not None and not has_fit_parameter(last, "sample_weight"):
        raise InvalidParameter(f"{type(last).__name__} takes no sample_weight: fit without it.")
    given = {"sample_weight": weights, "groups": groups if has_fit_parameter(last, "groups") else None}
    return {f"{name}__{key}" if name else key: value for key, value in given.items() if value is not None}


class _RecordingSampler(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A sampler that also keeps the labels it leaves; an estimator, since a pipeline with a cache clones its steps."""

    def __init__(self, sampler: Estimator) -> None:
        self.sampler = sampler

    def fit_resample(self, X: Rows, y: ArrayLike, **params: object) -> tuple[Rows, ...]:
        """The sampler's own."""
        resampled: tuple[Rows, ...] = self.sampler.fit_resample(X, y, **params)
        self.y_ = np.asarray(resampled[1])
        return resampled


_SUMS_TO_ONE = 1e-4  # float32 probabilities, and those rounded to a few digits


def correct_proba(
    q: ArrayLike,
    *,
    weighting: WeightingLike = None,
    sampled_prior: ArrayLike | None = None,
    natural_prior: ArrayLike | None = None,
) -> Array:
    """Natural probabilities from those of a classifier that was trained under class weights or on resampled rows.

    A weight w_k, and a sample with the class share π'_k instead of π_k, multiply what a correct classifier learns for
    the class by w_k and π'_k / π_k. This divides them out again (Elkan 2001; Saerens, Latinne and Decaestecker 2002;
    King and Zeng 2001; Dal Pozzolo et al. 2015).

    Parameters
    ----------
    q : array of shape (n,), (n, 2) or (n, K)
        Probabilities of the positive class, of (negative, positive), or of K classes.
    weighting : Price, Lam, CostRatio, Budget, Alpha, float, array, dict by class numbers, "balanced" or None
        The weighting of the training loss. ``"balanced"`` and ``Alpha`` need the class shares that they were resolved
        on: give ``natural_prior`` (``sampled_prior`` if the rows were resampled first), or a model's ``weighting_``.
    sampled_prior, natural_prior : float or array of shape (K,), optional
        Share of positives, or of all classes, in the training rows and in the population; the first needs both.

    Examples
    --------
    >>> import numpy as np
    >>> from crcen import CostRatio, correct_proba
    >>> correct_proba([0.5], weighting=CostRatio(9))
    array([0.1])
    >>> correct_proba([[0.5, 0.5]], sampled_prior=0.5, natural_prior=0.1)
    array([[0.9, 0.1]])
    """
    if weighting is None and sampled_prior is None:
        raise InvalidParameter("nothing to correct: pass weighting=, or sampled_prior= with natural_prior=.")
    values = check_columns(q)
    n_classes = values.shape[1]
    priors = {"sampled_prior": sampled_prior, "natural_prior": natural_prior}
    shares = {name: class_shares(value, n_classes, name) for name, value in priors.items() if value is not None}
    if "sampled_prior" in shares and "natural_prior" not in shares:
        raise InvalidParameter("sampled_prior needs natural_prior, the shares of classes before sampling: got none.")
    factors = shares["sampled_prior"] / shares["natural_prior"] if "sampled_prior" in shares else np.ones(n_classes)
    resolved_on = shares.get("sampled_prior", shares.get("natural_prior"))
    stated = resolve(weighting, counts=np.ones(n_classes) if resolved_on is None else resolved_on)
    if resolved_on is None and isinstance(weighting, str | Alpha):
        raise InvalidParameter(f"{weighting!r} needs the class shares that it was resolved on: give natural_prior=.")
    if stated.n_classes != n_classes:
        raise InvalidInput(f"q must have a column for each of {stated.n_classes} classes, got {n_classes}")
    factors = factors * (stated.weights if stated.positive is None else np.array([1.0, stated.cost_ratio]))
    return Price(factors, np.ones(n_classes)).posterior(values)[..., 1 if np.ndim(q) == 1 else slice(None)]


def check_columns(q: ArrayLike) -> Array:
    """Probabilities (n, K) with rows that sum to 1; (n,) is the positive one of two classes."""
    values = check_probabilities(q)
    if values.ndim == 1:
        return np.column_stack([1.0 - values, values])
    if values.ndim != 2 or values.shape[1] < 2:
        raise InvalidInput(f"q must have shape (n,) or (n, K) with K from 2, got shape {values.shape}")
    off = np.abs(values.sum(axis=1) - 1.0)
    if off.max(initial=0.0) > _SUMS_TO_ONE:
        worst = int(np.argmax(off))
        raise InvalidInput(f"the columns of q must sum to 1, got {values[worst].sum():g} in row {worst}")
    return values


def class_shares(given: ArrayLike, n_classes: int, name: str) -> Array:
    """Shares of all classes; for two classes one number is that of the positive class."""
    if np.ndim(given) == 0 and n_classes == 2:
        share = positive_number(given, name)
        if share < 1.0:
            return np.array([1.0 - share, share])
        raise InvalidParameter(f"{name} must be a share strictly between 0 and 1: got {share:g}.")
    values = np.asarray([] if isinstance(given, str) else given, dtype=np.float64)
    if values.shape != (n_classes,) or not (values > 0.0).all() or not np.isfinite(values).all():
        raise InvalidParameter(f"{name} must be {n_classes} shares above 0: got {given!r}.")
    return np.asarray(values / values.sum())
