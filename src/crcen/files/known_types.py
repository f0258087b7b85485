"""What a model file may hold: a list of types, and what their attributes may be.

A file names a type and gives the state of an object. Nothing else can be made from a file, and no code of it runs. A
type that could reach beyond the model by one of its settings, as a vectorizer can open files, is held to the values
below. To let a new type into files, add it to `TYPES`; give it a line in `RULES` if it has such settings.
"""

import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

__all__ = ["PLAIN_TYPES", "TYPES", "Unfit", "check_state", "find_type", "is_known", "made"]

# Module → classes. Names are unique: files say the name alone, so that a class may move.
TYPES: dict[str, tuple[str, ...]] = {
    "crcen.models.committee.classifier": ("CommitteeClassifier",),
    "crcen.models.committee.leaderboard": ("MemberScore",),
    "crcen.models.classes.ensemble": ("ClassEnsemble",),
    "crcen.models.classifier": ("CRCENClassifier",),
    "crcen.models.ensemble": ("Ensemble",),
    "crcen.models.module_classifier": ("ModuleClassifier",),
    "crcen.models.search.classifier_cv": ("CRCENClassifierCV",),
    "crcen.models.search.options": ("Search",),
    "crcen.models.search.time_split": ("TimeSplit",),
    "crcen.models.trees.boosted_trees": ("BoostedTrees",),
    "crcen.models.trees.class_trees": ("ClassTrees",),
    "crcen.models.trees.setting": ("TreeSetting",),
    "crcen.paper.methods.csmlp": ("CSMLPClassifier",),
    "crcen.paper.methods.threshold": ("MovedThresholdClassifier",),
    "crcen.decisions.posterior_correction": ("PosteriorCorrection",),
    "crcen.tables.priced": ("PricedClassifier",),
    "crcen.tables.classifier": ("TableClassifier",),
    "crcen.tables.column_kinds": ("DroppedColumn",),
    "crcen.tables.columns": ("BooleanColumn", "CategoryColumn", "DateColumn", "NumberColumn", "TextColumn"),
    "crcen.tables.fingerprint": ("Fingerprint",),
    "crcen.tables.profile": ("ColumnProfile", "TrainingProfile"),
    "crcen.theory.classes.class_labels": ("ClassLabels",),
    "crcen.theory.classes.class_weights": ("ClassWeights",),
    "crcen.theory.classes.cost_matrix": ("CostMatrix",),
    "crcen.theory.classes.key_equations": ("ClassKeyEquations", "JointTest"),
    "crcen.theory.expense": ("ExpenseStep", "ExpenseTable"),
    "crcen.theory.key_equation": ("KeyEquation",),
    "crcen.theory.labels": ("Labels",),
    "crcen.theory.metrics": ("ConfusionCounts",),
    "crcen.theory.classes.class_training_error": ("ClassTrainingError",),
    "crcen.theory.classes.residual_sums": ("ClassResidualSums",),
    "crcen.theory.residual_test": ("ResidualSums", "TrainingError"),
    "crcen.theory.specs": ("Alpha", "Budget", "CostRatio", "Lam"),
    "crcen.theory.wishes": ("Capacity", "PrecisionAtLeast", "RecallAtLeast"),
    "crcen.theory.weighting": ("ClassWeighting",),
    "crcen.training.encoding": ("InputEncoding",),
    "crcen.training.members": ("NetworkGroup",),
    "crcen.training.module_member": ("FittedModule", "ModuleGroup"),
    "crcen.training.recipe": ("Inputs", "Recipe", "Schedule"),
    "sklearn.compose": ("ColumnTransformer",),
    "sklearn.decomposition": ("TruncatedSVD",),
    "sklearn.feature_extraction.text": ("TfidfTransformer", "TfidfVectorizer"),
    "sklearn.impute": ("MissingIndicator", "SimpleImputer"),
    "sklearn.linear_model": ("LogisticRegression",),
    "sklearn.model_selection": (
        *("GroupKFold", "KFold", "StratifiedGroupKFold", "StratifiedKFold", "StratifiedShuffleSplit"),
        *("RepeatedStratifiedKFold", "ShuffleSplit", "TimeSeriesSplit"),
    ),
    "sklearn.pipeline": ("Pipeline",),
    "sklearn.preprocessing": (
        *("FunctionTransformer", "MinMaxScaler", "OneHotEncoder", "OrdinalEncoder", "RobustScaler", "StandardScaler"),
    ),
    "skrub": ("StringEncoder",),
    "skrub._to_str": ("ToStr",),
}

# Types as values, such as the `dtype` of a vectorizer or the splitter that a repeated one repeats.
PLAIN_TYPES: dict[str, Any] = {
    **{one.__name__: one for one in (str, int, float, bool)},
    **{name: getattr(np, name) for name in ("float32", "float64", "int32", "int64")},
}

_TEXT_LIMIT = 200
_WIDTH_LIMIT = 10_000_000
_DEPTH_LIMIT = 255  # of boosted trees: every row takes as many steps


class Unfit(ValueError):
    """A state that no object of its type has; the message says which attribute and why."""


Check = Callable[[Any], bool]


def _one_of(*allowed: Any) -> Check:
    return lambda value: any(type(value) is type(one) and value == one for one in allowed)


def _whole(low: int, high: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _a(name: str) -> Check:
    return lambda value: type(value).__name__ == name and is_known(type(value))


def _short_text(value: Any) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= _TEXT_LIMIT)


def _n_grams(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(map(_whole(1, 20), value)) and value[0] <= value[1]


def _numbered_words(value: Any) -> bool:
    """Words with a column each; another number would point outside the matrix that is made of them."""
    return (
        isinstance(value, dict)
        and all(isinstance(word, str) for word in value)
        and all(isinstance(number, int | np.integer) for number in value.values())
        and sorted(value.values()) == list(range(len(value)))
    )


def _is_row_shape(value: Any) -> bool:
    """A shape of rows that a few can be made of."""
    return isinstance(value, tuple) and all(map(_whole(1, _WIDTH_LIMIT), value)) and math.prod(value) <= _WIDTH_LIMIT


def _is_float(value: Any) -> bool:
    return value in (np.float32, np.float64)


def _named_parts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, tuple) and isinstance(one[0], str) for one in value)


def _has_its_categories(state: Mapping[str, Any]) -> bool:
    """Whether the numbers of columns are those of the categories; others would point outside the matrix."""
    if "categories_" not in state:
        return True
    categories = state["categories_"]
    dropped = [None] * len(categories) if state["drop_idx_"] is None else list(state["drop_idx_"])
    again = state["_drop_idx_after_grouping"]
    return (
        ([None] * len(categories) if again is None else list(again)) == dropped
        and all(one is None or 0 <= one < len(found) for one, found in zip(dropped, categories, strict=True))
        and list(state["_n_features_outs"])
        == [len(found) - (one is not None) for one, found in zip(dropped, categories, strict=True)]
    )


def _are_trees(state: Mapping[str, Any]) -> bool:
    """Whether arrays are trees: each node a leaf, or with two later nodes of its own; other arrays could loop."""
    nodes = ("feature", "left", "right", "threshold", "value", "missing_left")
    n, n_features, depth = state["value"].size, state["n_features"], state["depth"]
    kinds = (np.int32, np.int32, np.int32, np.float64, np.float64, np.bool_)
    if any(state[name].dtype != kind or state[name].shape != (n,) for name, kind in zip(nodes, kinds, strict=True)):
        return False
    left, right, feature, own = state["left"], state["right"], state["feature"], np.arange(n)
    roots, is_leaf = state["roots"], left == own
    is_root = np.zeros(n, dtype=bool)
    if roots.dtype != np.int32 or roots.ndim != 1 or not n or not len(roots) or roots[0] != 0 or roots[-1] >= n:
        return False
    is_root[roots] = True
    inner = ~is_leaf
    children = np.concatenate([left[inner], right[inner]])
    is_sound = (
        bool((np.diff(roots) > 0).all())
        and bool((is_leaf == (right == own)).all() and (left >= own).all() and (right >= own).all())
        and np.array_equal(np.sort(children), own[~is_root])
        and _whole(1, _WIDTH_LIMIT)(n_features)
        and bool((feature >= 0).all() and (feature < n_features).all())
        and bool(np.isfinite(state["value"]).all() and not np.isnan(state["threshold"]).any())
        and math.isfinite(state["baseline"])
        and _whole(0, _DEPTH_LIMIT)(depth)
    )
    if not is_sound:
        return False
    for _ in range(depth):  # every node is met once
        roots = roots[inner[roots]]
        roots = np.concatenate([left[roots], right[roots]])
    return not inner[roots].any()


_ANALYZER = _one_of("char", "char_wb", "word")
_STOP_WORDS = _one_of(None, "english")

# Type → attribute → what it may be. Attributes that are not named are free, as far as `check_state` goes.
RULES: dict[str, Mapping[str, Check]] = {
    "ModuleClassifier": {"module": _one_of(None), "optimizer": _one_of(None), "row_shape_": _is_row_shape},
    "TfidfVectorizer": {
        "input": _one_of("content"),  # "filename" would open files that the rows name
        "encoding": _one_of("utf-8"),
        "decode_error": _one_of("strict", "ignore", "replace"),
        "strip_accents": _one_of(None, "ascii", "unicode"),
        "preprocessor": _one_of(None),
        "tokenizer": _one_of(None),
        "analyzer": _ANALYZER,
        "token_pattern": _one_of(r"(?u)\b\w\w+\b"),  # another could take for ever
        "stop_words": _STOP_WORDS,
        "ngram_range": _n_grams,
        "norm": _one_of("l1", "l2", None),
        "dtype": _is_float,
        "vocabulary_": _numbered_words,
        "_tfidf": _a("TfidfTransformer"),
    },
    "StringEncoder": {
        "vectorizer": _one_of("tfidf"),
        "analyzer": _ANALYZER,
        "stop_words": _STOP_WORDS,
        "ngram_range": _n_grams,
        "n_components": _whole(1, 10_000),
        "n_components_": _whole(1, 10_000),
        "to_str": _a("ToStr"),
        "vectorizer_": _a("TfidfVectorizer"),
        "tsvd_": _a("TruncatedSVD"),
    },
    "Pipeline": {"memory": _one_of(None), "steps": _named_parts},  # a memory would be a folder to write to
    "ColumnTransformer": {"n_jobs": _one_of(None, 1), "transformers": _named_parts},
    "FunctionTransformer": {"func": _one_of(None), "inverse_func": _one_of(None)},
    "OneHotEncoder": {
        "_infrequent_enabled": _one_of(False),
        "dtype": _is_float,
        "feature_name_combiner": _one_of("concat"),
    },
    "OrdinalEncoder": {"_infrequent_enabled": _one_of(False), "dtype": _is_float},
    "TextColumn": {"encoder": _a("StringEncoder"), "n_parts": _whole(1, 10_000)},
    "DateColumn": {"date_format": _short_text},
    "TableClassifier": {
        "columns_": lambda value: isinstance(value, list) and all(_is_column(one) for one in value),
        "profile_": _a("TrainingProfile"),
        "held_out_sums_": lambda value: _a("ResidualSums")(value) or _a("ClassResidualSums")(value),
        "background_": lambda value: isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == 2,
        "fingerprint_": _a("Fingerprint"),
        "training_error_": lambda value: _a("TrainingError")(value) or _a("ClassTrainingError")(value),
    },
}


# Type → what its attributes must have in common.
WHOLE_RULES: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "BoostedTrees": _are_trees,
    "OneHotEncoder": _has_its_categories,
}


def _is_column(value: Any) -> bool:
    return type(value).__module__ == "crcen.tables.columns"


@cache
def _homes() -> dict[str, str]:
    homes = {name: module for module, names in TYPES.items() for name in names}
    assert len(homes) == sum(map(len, TYPES.values()))
    return homes


def find_type(name: Any) -> type | None:
    """The listed type of this name, or None; a module is imported only for a name on the list."""
    home = _homes().get(name) if isinstance(name, str) else None
    return None if home is None else getattr(import_module(home), name)


def is_known(kind: type) -> bool:
    """Whether files may hold objects of exactly this type."""
    name = kind.__name__
    if name not in _homes() or kind.__module__.partition(".")[0] != _homes()[name].partition(".")[0]:
        return False
    return find_type(name) is kind


def state_of(value: Any) -> dict[str, Any]:
    """The attributes that make an object of a listed type."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(vars(value))


def made(kind: type, state: dict[str, Any]) -> Any:
    """An object with this state, which `check_state` has found fit; frozen values check themselves once more."""
    if is_dataclass(kind):
        return kind(**state)
    found: Any = object.__new__(kind)
    vars(found).update(_later_parameters(kind), **state)
    return found


@cache
def _later_parameters(kind: type) -> dict[str, Any]:
    """Parameters of an estimator that have a default: a file from before they came leaves them out."""
    if not hasattr(kind, "_get_param_names"):
        return {}
    given = inspect.signature(kind).parameters
    return {
        name: given[name].default
        for name in kind._get_param_names()
        if given[name].default is not inspect.Parameter.empty
    }


def check_state(kind: type, state: Mapping[str, Any]) -> None:
    """Refuse attributes that objects of a type do not have, and values that they must not have."""
    if is_dataclass(kind):
        _check_fields(kind, state)
    else:
        _check_attributes(kind, state)
    for name, is_fit in RULES.get(kind.__name__, {}).items():
        if name in state and not is_fit(state[name]):
            raise Unfit(f"{kind.__name__} with {name} = {str(state[name])[:40]!r}")
    if not WHOLE_RULES.get(kind.__name__, _anything)(state):
        raise Unfit(f"{kind.__name__} with parts that contradict each other")
    width = state.get("n_features_in_", 1)
    if not _whole(0, _WIDTH_LIMIT)(width):
        raise Unfit(f"{kind.__name__} with n_features_in_ = {str(width)[:40]!r}")


def _anything(state: Mapping[str, Any]) -> bool:
    return True


def _check_fields(kind: type, state: Mapping[str, Any]) -> None:
    wanted = {field.name for field in fields(kind)}
    # A part that has a default may have come later than the file.
    needed = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    if not needed <= set(state) <= wanted:
        raise Unfit(f"{kind.__name__} with other parts than {', '.join(sorted(wanted))}")
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # a name that only a type checker sees
        return
    for name in state:
        if not _fits(state[name], hints.get(name, Any)):
            raise Unfit(f"{kind.__name__} with a {type(state[name]).__name__} as {name}")


def _check_attributes(kind: type, state: Mapping[str, Any]) -> None:
    parameters = set(kind._get_param_names()) if hasattr(kind, "_get_param_names") else set()
    for name in state:
        if not re.fullmatch(r"_?[A-Za-z][A-Za-z0-9_]*", name) or name.endswith("__"):
            raise Unfit(f"{kind.__name__} with an attribute {name[:40]!r}")
        own = inspect.getattr_static(kind, name, None)
        if name not in parameters and (callable(own) or hasattr(own, "__get__")):  # it would hide a method
            raise Unfit(f"{kind.__name__} with an attribute in the place of {name[:40]}")
    lacking = sorted(parameters - set(state) - set(_later_parameters(kind)))
    if lacking:
        raise Unfit(f"{kind.__name__} without {', '.join(lacking[:3])}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, as far as that is plain to see."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return isinstance(value, tuple) and all(_fits(one, arguments[0]) for one in value)
    if origin is list:
        return isinstance(value, list) and all(_fits(one, arguments[0]) for one in value)
    kind = origin if isinstance(origin, type) else hint
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    return isinstance(value, kind)
