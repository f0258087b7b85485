"""Effect of a classifier's settings and samplers on the odds of its training rows, where it is certain."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import has_fit_parameter

from crcen.exceptions import InvalidParameter
from crcen.theory.rows import Array, Estimator, Rows

LabelArray = NDArray[np.generic]

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
_UNBALANCED = ("is_unbalance", "unbalance", "unbalanced_sets")
_WEIGHING = ("class_weight", "class_weights", "auto_class_weights", "scale_pos_weight", "priors", *_UNBALANCED)
# Losses of boosted trees under which class weights multiply the odds.
_LOG_LOSSES: dict[str, dict[str, tuple[str, ...]]] = {
    "lightgbm": {"objective": ("binary", "multiclass", "softmax")},
    "xgboost": {"objective": ("binary:logistic", "multi:softprob", "multi:softmax")},
    "catboost": {"loss_function": ("Logloss", "MultiClass")},
}


def final_step(estimator: Estimator) -> Estimator:
    """The classifier at the end of a pipeline, through search objects as well."""
    inner = _inner(estimator)
    return estimator if inner is None else final_step(inner)


def samplers_of(estimator: Estimator) -> list[Estimator]:
    """The samplers of a pipeline in order, and then those of pipelines inside it."""
    own = [step for _, step in getattr(estimator, "steps", []) if hasattr(step, "fit_resample")]
    inner = _inner(estimator)
    return own if inner is None else own + samplers_of(inner)


def _inner(estimator: Estimator) -> Estimator | None:
    """What a search found best, the end of a pipeline, or None."""
    if hasattr(estimator, "best_estimator_"):
        return estimator.best_estimator_
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else None


def why_no_shift(estimator: Estimator, samplers: list[Estimator]) -> str:
    """Why a prior shift cannot be exact for this classifier and the samplers of its training rows, or nothing."""
    last = final_step(estimator)
    name = type(last).__name__
    if name == "BalancedBaggingClassifier" and last.sampler is not None:
        samplers = [*samplers, last.sampler]
    if name in _BOOSTED_VOTES:
        return f"{name} averages boosted votes, which are no probabilities under any prior"
    own = getattr(last, "_why_no_posterior", "")  # the methods of crcen.paper.methods say so themselves
    if own:
        return f"{name} {own}"
    for sampler in samplers:
        kind = type(sampler).__name__
        if kind not in _RANDOM_SAMPLERS:
            return f"{kind} makes or picks rows by where they lie, not at random within a class"
        if getattr(sampler, "shrinkage", None) is not None:
            return f"{kind} with shrinkage makes rows of its own"
    if name == "ResampledClassifier":
        return f"{name} makes rows of its own ({last.sampler})"
    if name in _TREES and last.get_params(deep=False)["class_weight"] is not None:
        return f"class weights move the odds in a leaf of {name} only as far as it holds both classes"
    return ""


def balancing_counts(estimator: Estimator, classes: LabelArray, counts: Array) -> Array:
    """Expected class counts of the members of a balanced ensemble; any other classifier leaves the counts unchanged."""
    last = final_step(estimator)
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
    raise InvalidParameter(
        f"the sampling of {name} cannot be read off sampling_strategy={strategy!r}; give sampling= the share of "
        f"positives, or the shares of the classes, among the rows its members see."
    )


def training_class_weights(estimator: Estimator, classes: LabelArray, rows: Array, totals: Array) -> Array:
    """Weight of each class in the loss of a fitted classifier, up to a common factor; an error if it is uncertain."""
    last = final_step(estimator)
    name, library = type(last).__name__, type(last).__module__.partition(".")[0]
    none = np.ones(len(classes))
    if library not in _KNOWN_LIBRARIES:
        raise _unreadable(name, "it comes from a library that is not known here")
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
        f"the class weighting of {name} cannot be read off: {why}; give weighting= (None where there is none)."
    )


def _class_weight(name: str, given: object, classes: LabelArray, rows: Array, totals: Array) -> Array:
    """scikit-learn's class_weight, (K,)."""
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
    kind = type(loss).__name__
    if kind == "ClassWeightedLoss":
        return np.array([float(weight) for weight in loss.class_weights])
    if kind == "BCEWithLogitsLoss" and loss.weight is None:
        if loss.pos_weight is None:
            return none
        if loss.pos_weight.numel() == 1:
            return np.array([1.0, float(loss.pos_weight)])
    if kind in ("CrossEntropyLoss", "NLLLoss") and loss.weight is None:
        return none
    why = f"what {kind} does to its probabilities is not certain"
    if kind in ("CrossEntropyLoss", "NLLLoss", "ClassWeightedLoss"):
        why = (
            f"{kind} divides by each batch's weights, so it trains at another weight; use crcen.torch.ClassWeightedLoss"
        )
    raise _unreadable(name, why)


def weight_argument(estimator: Estimator, weights: Array | None) -> dict[str, Array]:
    """Sample weights under the name that the estimator, or the last step of a pipeline, takes them by."""
    if weights is None:
        return {}
    last, prefix = (
        (estimator.steps[-1][1], f"{estimator.steps[-1][0]}__") if hasattr(estimator, "steps") else (estimator, "")
    )
    if not has_fit_parameter(last, "sample_weight"):
        raise InvalidParameter(f"{type(last).__name__} takes no sample_weight: fit without it.")
    return {f"{prefix}sample_weight": weights}


class _WatchedSampler(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A sampler that also counts the labels it leaves; an estimator, since a pipeline with a cache clones its steps."""

    def __init__(self, sampler: Estimator) -> None:
        self.sampler = sampler

    def fit_resample(self, X: Rows, y: ArrayLike, **params: object) -> tuple[Rows, ...]:
        """The sampler's own."""
        resampled: tuple[Rows, ...] = self.sampler.fit_resample(X, y, **params)
        labels, counts = np.unique(np.asarray(resampled[1]), return_counts=True)
        self.counts_ = dict(zip(labels.tolist(), counts.tolist(), strict=True))
        return resampled


@contextmanager
def recorded_samples(pipeline: Estimator) -> Iterator[list[dict[object, int]]]:
    """Rows by label after each sampler of a pipeline that is fitted inside; other estimators have no samplers."""
    recorded: list[dict[object, int]] = []
    steps = getattr(pipeline, "steps", None)
    if steps is None:
        yield recorded
        return
    pipeline.steps = [(name, _WatchedSampler(step) if hasattr(step, "fit_resample") else step) for name, step in steps]
    yield recorded
    for i, (name, step) in enumerate(pipeline.steps):
        if isinstance(step, _WatchedSampler):
            recorded.append(step.counts_)
            pipeline.steps[i] = (name, step.sampler)
