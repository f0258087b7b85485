"""What a classifier's own settings did to the odds of its training rows, read off where that is certain.

And by which name it takes sample weights.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import has_fit_parameter

from crcen.exceptions import InvalidParameter

__all__ = [
    "balancing_counts",
    "class_weight_factors",
    "final_step",
    "samplers_of",
    "weight_argument",
    "weight_ratio",
    "why_no_shift",
]

Array = NDArray[np.float64]

# Each fits a weighted log loss, so that its class weights multiply the odds.
_WEIGHTED_LOG_LOSS = {"LogisticRegression", "LogisticRegressionCV", "SGDClassifier", "HistGradientBoostingClassifier"}
_TREES = {
    *("DecisionTreeClassifier", "ExtraTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier"),
    "BalancedRandomForestClassifier",
}
_BALANCED_ENSEMBLES = {
    *("BalancedRandomForestClassifier", "BalancedBaggingClassifier", "EasyEnsembleClassifier", "RUSBoostClassifier"),
}
_BOOSTED_VOTES = {"AdaBoostClassifier", "EasyEnsembleClassifier", "RUSBoostClassifier"}
_RANDOM_SAMPLERS = {"RandomUnderSampler", "RandomOverSampler"}
_KNOWN_LIBRARIES = {"sklearn", "imblearn", "lightgbm", "xgboost", "catboost", "skorch", "crcen"}
# Parameters that weigh classes.
_WEIGHING = ("class_weight", "class_weights", "auto_class_weights", "scale_pos_weight", "is_unbalance", "priors")


def final_step(estimator: Any) -> Any:
    """The classifier at the end of a pipeline, through search objects as well."""
    inner = _inner(estimator)
    return estimator if inner is None else final_step(inner)


def samplers_of(estimator: Any) -> list[Any]:
    """The samplers of a pipeline in order, and then those of pipelines inside it."""
    own = [step for _, step in getattr(estimator, "steps", []) if hasattr(step, "fit_resample")]
    inner = _inner(estimator)
    return own if inner is None else own + samplers_of(inner)


def _inner(estimator: Any) -> Any:
    """What a search found best, the end of a pipeline, or None."""
    if hasattr(estimator, "best_estimator_"):
        return estimator.best_estimator_
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else None


def why_no_shift(estimator: Any, samplers: list[Any]) -> str:
    """Why a prior shift cannot be right for this classifier, or nothing.

    Parameters
    ----------
    estimator
        Fitted or not.
    samplers
        Every sampler that its training rows pass on their way to it.
    """
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
    if name in _TREES and _setting(last, "class_weight") is not None:
        return f"class weights move the odds in a leaf of {name} only as far as it holds both classes"
    return ""


def balancing_counts(estimator: Any, classes: NDArray[Any], counts: Array) -> Array:
    """Class counts that the members of a balanced ensemble were trained on, given those of its rows (expected ones).

    Parameters
    ----------
    estimator
        Fitted; any other classifier leaves the counts alone.
    classes, counts
        Two labels and their rows.
    """
    last = final_step(estimator)
    name = type(last).__name__
    if name == "ResampledClassifier":
        return np.full(2, counts.max())
    if name in ("BalanceCascadeClassifier", "EUSBoostClassifier"):  # the latter nearly, as its fitness asks
        return np.full(2, counts.min())
    if name == "GranularSVMClassifier":
        is_pos = classes == last.pos_label_
        return np.where(is_pos, counts, last.machine_.shape_fit_[0] - counts[is_pos].sum())
    if name not in _BALANCED_ENSEMBLES:
        return counts
    strategy, sampler = last.sampling_strategy, getattr(last, "sampler", None)
    kind = "under-sampling" if sampler is None else getattr(sampler, "_sampling_type", "unknown")
    equal = {"under-sampling": ("majority", "not minority"), "over-sampling": ("minority", "not majority")}.get(kind)
    if equal is not None and strategy in ("auto", "all", *equal):
        return np.full(2, counts.min())
    if equal is not None and isinstance(strategy, dict):
        return np.array([strategy.get(label, n) for label, n in zip(classes.tolist(), counts, strict=True)], float)
    if equal is not None and isinstance(strategy, float):  # minority over majority after sampling
        return np.where(counts == counts.min(), counts, counts.min() / strategy)
    raise InvalidParameter(
        f"the sampling of {name} cannot be read off sampling_strategy={strategy!r}; give sampling= the share of "
        f"positives among the rows its members see."
    )


def weight_ratio(estimator: Any, classes: NDArray[Any], rows: Array, totals: Array) -> float:
    """The weight of the second class over that of the first, as the classifier's settings say.

    Parameters
    ----------
    estimator
        Fitted.
    classes, rows, totals
        Two labels, and the rows and the sample weight of each that the classifier was trained on.

    Raises
    ------
    InvalidParameter
        Where the settings do not say for certain.
    """
    last = final_step(estimator)
    name, library = type(last).__name__, type(last).__module__.partition(".")[0]
    if library not in _KNOWN_LIBRARIES:
        raise _unreadable(name, "it comes from a library that is not known here")
    if library == "crcen" or name == "CalibratedClassifierCV":
        return 1.0  # natural already: by our own contract, or calibrated on rows as they are
    if name == "BalancedBaggingClassifier":
        return weight_ratio(last.estimators_[0].steps[-1][1], classes, rows, totals)
    readable = {"lightgbm": _lightgbm, "xgboost": _xgboost, "catboost": _catboost, "skorch": _skorch}.get(library)
    if readable is not None:
        return readable(last, classes, rows, totals)
    own = {key: value for key, value in last.get_params().items() if _says_something(key, value)}
    if not own:
        return 1.0
    if set(own) == {"class_weight"} and name in _WEIGHTED_LOG_LOSS | _TREES:
        return _class_weight(name, own["class_weight"], classes, rows, totals)
    raise _unreadable(name, f"what {', '.join(sorted(own))} does to its probabilities is not certain")


def class_weight_factors(estimator: Any, classes: NDArray[Any], rows: Array, totals: Array) -> Array:
    """The weight of each of K classes, as the classifier's settings say; up to a common factor.

    Parameters
    ----------
    estimator
        Fitted.
    classes, rows, totals
        Labels, and the rows and the sample weight of each that the classifier was trained on.

    Raises
    ------
    InvalidParameter
        Where the settings do not say for certain.
    """
    last = final_step(estimator)
    name, library = type(last).__name__, type(last).__module__.partition(".")[0]
    none = np.ones(len(classes))
    if library not in _KNOWN_LIBRARIES:
        raise _unreadable(name, "it comes from a library that is not known here")
    if library == "crcen" or name == "CalibratedClassifierCV":
        return none
    if name == "BalancedBaggingClassifier":
        return class_weight_factors(last.estimators_[0].steps[-1][1], classes, rows, totals)
    own = {key: value for key, value in last.get_params().items() if _says_something(key, value)}
    own = {key: value for key, value in own.items() if key != "scale_pos_weight"}  # of two classes alone
    if not own:
        return none
    if library == "catboost" and set(own) == {"class_weights"}:
        return np.asarray(own["class_weights"], dtype=np.float64)
    if library == "catboost" and set(own) == {"auto_class_weights"}:
        power = {"Balanced": 1.0, "SqrtBalanced": 0.5}.get(own["auto_class_weights"], 0.0)
        return np.asarray((totals.max() / totals) ** power)
    if set(own) == {"class_weight"} and (name in _WEIGHTED_LOG_LOSS | _TREES or library == "lightgbm"):
        given = own["class_weight"]
        if isinstance(given, dict):
            return np.array([float(given.get(label, 1.0)) for label in classes.tolist()])
        if not np.allclose(rows / rows.sum(), totals / totals.sum(), rtol=1e-9, atol=0.0):
            raise _unreadable(
                name, f"some libraries count rows and some sum weights for {given!r}, which differ; a dict is clear"
            )
        return np.asarray(rows.sum() / rows)
    raise _unreadable(name, f"what {', '.join(sorted(own))} does to its probabilities is not certain")


def _says_something(key: str, value: Any) -> bool:
    """Whether a parameter, perhaps of an estimator inside, weighs classes or resamples rows."""
    if key.rpartition("__")[2] in _WEIGHING:
        return value is not None and value is not False
    return hasattr(value, "fit_resample")


def _setting(estimator: Any, key: str) -> Any:
    return estimator.get_params(deep=False).get(key)


def _unreadable(name: str, why: str) -> InvalidParameter:
    return InvalidParameter(
        f"the class weighting of {name} cannot be read off: {why}; give weighting= (None where there is none)."
    )


def _class_weight(name: str, given: Any, classes: NDArray[Any], rows: Array, totals: Array) -> float:
    """scikit-learn's class_weight, as a ratio."""
    if isinstance(given, dict):
        first, second = (float(given.get(label, 1.0)) for label in classes.tolist())
        return second / first
    if not np.isclose(rows[0] * totals[1], rows[1] * totals[0], rtol=1e-9, atol=0.0):
        raise _unreadable(
            name, f"some libraries count rows and some sum weights for {given!r}, which differ here; a dict is clear"
        )
    return float(rows[0] / rows[1])


def _lightgbm(last: Any, classes: NDArray[Any], rows: Array, totals: Array) -> float:
    settings = last.get_params()
    name = type(last).__name__
    if settings.get("objective") not in (None, "binary"):
        raise _unreadable(name, f"objective={settings['objective']!r} need not be a log loss")
    ratio = float(settings.get("scale_pos_weight") or 1.0)
    if any(settings.get(key) for key in ("is_unbalance", "unbalance", "unbalanced_sets")):
        ratio *= float(rows[0] / rows[1])
    if settings.get("class_weight") is not None:
        ratio *= _class_weight(name, settings["class_weight"], classes, rows, totals)
    return ratio


def _xgboost(last: Any, classes: NDArray[Any], rows: Array, totals: Array) -> float:
    settings = last.get_params()
    if settings.get("objective") not in (None, "binary:logistic"):
        raise _unreadable(type(last).__name__, f"objective={settings['objective']!r} need not be a log loss")
    return float(settings.get("scale_pos_weight") or 1.0)


def _catboost(last: Any, classes: NDArray[Any], rows: Array, totals: Array) -> float:
    settings = last.get_params()
    name = type(last).__name__
    loss = settings.get("loss_function")
    if loss not in (None, "Logloss"):
        raise _unreadable(name, f"loss_function={loss!r} need not be a log loss")
    given, automatic = settings.get("class_weights"), settings.get("auto_class_weights")
    if given is not None:  # a tuple: scikit-learn cannot clone the model with a list or a dict
        return float(given[1]) / float(given[0])
    if automatic in ("Balanced", "SqrtBalanced"):
        return float(totals[0] / totals[1]) ** (1.0 if automatic == "Balanced" else 0.5)
    return float(settings.get("scale_pos_weight") or 1.0)


def _skorch(last: Any, classes: NDArray[Any], rows: Array, totals: Array) -> float:
    """The criterion of a fitted net; class 1 is the second label, since nets are given class numbers."""
    name, loss = type(last).__name__, last.criterion_
    if getattr(last, "iterator_train__sampler", None) is not None:
        raise _unreadable(name, "its iterator draws rows by a sampler")
    if type(getattr(last, "predict_nonlinearity", None)).__name__ == "_Natural":
        return 1.0  # crcen.torch.skorch.natural_probabilities has taken the weights out
    kind = type(loss).__name__
    if kind == "ClassWeightedLoss" and loss.divide_by == "rows":
        first, second = (float(weight) for weight in loss.class_weights)
        return second / first
    if (
        kind == "BCEWithLogitsLoss"
        and loss.weight is None
        and (loss.pos_weight is None or loss.pos_weight.numel() == 1)
    ):
        return 1.0 if loss.pos_weight is None else float(loss.pos_weight)
    if kind in ("CrossEntropyLoss", "NLLLoss") and loss.weight is None:
        return 1.0
    why = f"what {kind} does to its probabilities is not certain"
    if kind in ("CrossEntropyLoss", "NLLLoss", "ClassWeightedLoss"):
        why = (
            f"{kind} divides by each batch's weights, so it trains at another weight; use crcen.torch.ClassWeightedLoss"
        )
    raise _unreadable(name, why)


def weight_argument(estimator: Any, weights: Array | None) -> dict[str, Array]:
    """Sample weights under the name that the estimator, or the last step of a pipeline, takes them by."""
    if weights is None:
        return {}
    last, prefix = (
        (estimator.steps[-1][1], f"{estimator.steps[-1][0]}__") if hasattr(estimator, "steps") else (estimator, "")
    )
    if not has_fit_parameter(last, "sample_weight"):
        raise InvalidParameter(f"{type(last).__name__} takes no sample_weight: fit without it.")
    return {f"{prefix}sample_weight": weights}
