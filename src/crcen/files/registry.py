"""Types and attributes that a model file may hold.

A file names a type and gives the state of an object. No other objects can be created from a file, and loading runs no
code of the file. To store a new type, add it to `TYPES` with its fitted attributes; operating goals are listed by
`GOALS`. Dataclasses need no list: their fields are the state. Types whose settings could reach beyond the model are
restricted by `RULES`.
"""

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module

import numpy as np

from crcen.theory.goals import GOALS

_FITTED = "ensemble_ key_equation_ recipe_ n_iter_ loss_curve_ status_ n_features_in_ feature_names_in_ _partial"
_SEARCHED = (
    f"{_FITTED} best_epochs_ best_index_ best_params_ best_score_ best_settings_ cv_results_ n_splits_ oof_counts_ "
    "oof_decision_function_ oof_key_equation_ oof_proba_ oof_shift_ scorer_ search_notes_ search_time_"
)
_INPUTS = "n_features_in_ feature_names_in_"
_COLUMNS = ("BooleanColumn", "CategoryColumn", "DateColumn", "NumberColumn", "TextColumn")
_SPLITTER = "n_splits shuffle random_state"
_SHUFFLE = "n_splits test_size train_size random_state _default_test_size"

# Module -> class -> fitted attributes. A file holds the class name alone, so names are unique.
TYPES: dict[str, dict[str, str]] = {
    "crcen.models.committee": {
        "CommitteeClassifier": f"{_SEARCHED} chosen_settings_ fit_time_ leaderboard_ member_weights_ notes_",
        "MemberScore": "",
    },
    "crcen.models.ensemble": {"Ensemble": ""},
    "crcen.models.members.lightgbm_trees": {"TreeSetting": ""},
    "crcen.models.members.tree_arrays": {"TreeEnsemble": ""},
    "crcen.models.classifier": {
        "CRCENClassifier": _FITTED,
        "ModuleClassifier": f"{_FITTED} row_shape_ has_whole_rows_",
    },
    "crcen.models.search.classifier_cv": {"CRCENClassifierCV": _SEARCHED},
    "crcen.models.options": dict.fromkeys(("Calibration", "Search"), ""),
    "crcen.models.search.folds": {"TimeSplit": "n_splits"},
    "crcen.paper.estimators": {"CSMLPClassifier": _FITTED, "MovedThresholdClassifier": _FITTED},
    "crcen.decisions.posterior_correction": {
        "PosteriorCorrection": f"{_INPUTS} classes_ pos_label_ estimator_ class_factors_ price_ probability_map_ _limit"
    },
    "crcen.tables.classifier": {
        "PricedClassifier": "classes_ pos_label_ weighting_ estimator_ key_equation_",
        "TableClassifier": f"{_INPUTS} background_ classes_ clusters_name_ columns_ costs_ dropped_ estimator_ "
        "fingerprint_ held_out_sums_ key_equation_ leaks_ pos_label_ read_ profile_ target_name_ training_error_ "
        "weight_name_ weighting_",
    },
    "crcen.tables.columns": dict.fromkeys((*_COLUMNS, "DroppedColumn"), ""),
    "crcen.tables.fingerprint": {"Fingerprint": ""},
    "crcen.tables.profile": dict.fromkeys(("ColumnProfile", "TrainingProfile"), ""),
    "crcen.theory.cost_matrix": {"CostMatrix": ""},
    "crcen.theory.key_equation": {"KeyEquation": ""},
    "crcen.theory.metrics": {"ConfusionCounts": ""},
    "crcen.theory.price": dict.fromkeys(("Alpha", "Budget", "CostRatio", "Labels", "Lam", "Price"), ""),
    "crcen.theory.residual_test": dict.fromkeys(("JointResidualSums", "JointTest", "TrainingError"), ""),
    "crcen.theory.sequential": {"StreamSums": ""},
    "crcen.training.network": dict.fromkeys(("InputEncoding", "NetworkGroup"), ""),
    "crcen.training.modules": {"FittedModule": ""},
    "crcen.training.recipe": dict.fromkeys(("Inputs", "Recipe", "Schedule"), ""),
    "sklearn.compose": {
        "ColumnTransformer": f"{_INPUTS} _columns _remainder _transformer_to_input_indices output_indices_ "
        "sparse_output_ transformers_ _n_features _name_to_fitted_passthrough force_int_remainder_cols"
    },
    "sklearn.impute": {
        "MissingIndicator": f"{_INPUTS} _n_features _precomputed features_",
        "SimpleImputer": f"{_INPUTS} _fill_dtype _fit_dtype indicator_ statistics_",
    },
    "sklearn.linear_model": {"LogisticRegression": f"{_INPUTS} classes_ coef_ intercept_ n_iter_"},
    "sklearn.model_selection": {
        **dict.fromkeys(("GroupKFold", "KFold", "StratifiedGroupKFold", "StratifiedKFold"), _SPLITTER),
        **dict.fromkeys(("ShuffleSplit", "StratifiedShuffleSplit"), _SHUFFLE),
        "RepeatedStratifiedKFold": "cv n_repeats random_state cvargs",
        "TimeSeriesSplit": f"{_SPLITTER} gap max_train_size test_size",
    },
    "sklearn.pipeline": {"Pipeline": ""},
    "sklearn.preprocessing": {
        "FunctionTransformer": f"{_INPUTS} _sklearn_output_config",
        "MinMaxScaler": f"{_INPUTS} data_max_ data_min_ data_range_ min_ n_samples_seen_ scale_",
        "OneHotEncoder": f"{_INPUTS} _drop_idx_after_grouping _infrequent_enabled _n_features_outs categories_ "
        "drop_idx_",
        "OrdinalEncoder": f"{_INPUTS} _infrequent_enabled _missing_indices categories_",
        "RobustScaler": f"{_INPUTS} center_ scale_",
        "StandardScaler": f"{_INPUTS} mean_ n_samples_seen_ scale_ var_",
    },
}

# Types as values, such as the `dtype` of an encoder or the splitter that a repeated one repeats.
PLAIN_TYPES: dict[str, type] = {
    **{one.__name__: one for one in (str, int, float, bool)},
    **{one.__name__: one for one in (np.float32, np.float64, np.int32, np.int64)},
}

_TEXT_LIMIT = 200
_WIDTH_LIMIT = 10_000_000
_DEPTH_LIMIT = 255  # of boosted trees: every row takes as many steps


class InvalidState(ValueError):
    """A state that no object of its type has; the message names the attribute."""


Check = Callable[[typing.Any], bool]
State = Mapping[str, typing.Any]


def _one_of(*allowed: object) -> Check:
    return lambda value: any(type(value) is type(one) and value == one for one in allowed)


def _integer(low: int, high: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _instance(*names: str) -> Check:
    return lambda value: type(value).__name__ in names and is_known(type(value))


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_row_shape(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_integer(1, _WIDTH_LIMIT), value)) and math.prod(value) <= _WIDTH_LIMIT


def _categories_match(state: State) -> bool:
    """Whether column numbers belong to the categories; others would point outside the matrix."""
    if "categories_" not in state:
        return True
    categories, given = state["categories_"], (state["drop_idx_"], state["_drop_idx_after_grouping"])
    dropped, again = ([None] * len(categories) if one is None else list(one) for one in given)
    pairs = list(zip(dropped, categories, strict=True))
    return (
        again == dropped
        and all(one is None or 0 <= one < len(found) for one, found in pairs)
        and list(state["_n_features_outs"]) == [len(found) - (one is not None) for one, found in pairs]
    )


def _are_trees(state: State) -> bool:
    """Whether arrays are trees: each node is a leaf or has two later nodes of its own. Other arrays could loop."""
    left, right, feature, roots, output = (state[name] for name in ("left", "right", "feature", "roots", "output"))
    value, baseline, n_features, depth = (state[name] for name in ("value", "baseline", "n_features", "depth"))
    n, kinds = len(left), {"left": "i4", "right": "i4", "feature": "i4", "threshold": "f8", "missing_left": "?"}
    if not n or any(state[name].dtype != kind or state[name].shape != (n,) for name, kind in kinds.items()):
        return False
    if value.dtype != np.float64 or value.ndim != 2 or len(value) != n or baseline.ndim != 1:
        return False
    if any(one.dtype != np.int32 or one.ndim != 1 for one in (roots, output)) or not 0 < len(roots) == len(output):
        return False
    own = np.arange(n)
    inner = left != own
    is_valid = (
        roots[0] == 0
        and bool((np.diff(roots) > 0).all())
        and bool((inner == (right != own)).all() and (left >= own).all() and (right >= own).all())
        and np.array_equal(np.sort(np.concatenate([roots, left[inner], right[inner]])), own)
        and _integer(1, _WIDTH_LIMIT)(n_features)
        and bool((feature >= 0).all() and (feature < n_features).all())
        and bool(np.isfinite(value).all() and np.isfinite(baseline).all() and not np.isnan(state["threshold"]).any())
        and bool((output >= 0).all() and (output + value.shape[1] <= len(baseline)).all())
        and _integer(0, _DEPTH_LIMIT)(depth)
        and (state["has_shares"] is False or bool((value >= 0.0).all() and (baseline > 0.0).all()))
    )
    for _ in range(depth if is_valid else 0):  # visits every node once
        roots = roots[inner[roots]]
        roots = np.concatenate([left[roots], right[roots]])
    return is_valid and not inner[roots].any()


_FLOAT_TYPE = _one_of(np.float32, np.float64)
_NAMED_STEPS = _list_of(lambda one: isinstance(one, tuple) and isinstance(one[0], str))
# Type -> attribute -> allowed values.
RULES: dict[str, dict[str, Check]] = {
    "ModuleClassifier": {"module": _one_of(None), "optimizer": _one_of(None), "row_shape_": _is_row_shape},
    "Pipeline": {"memory": _one_of(None), "steps": _NAMED_STEPS},  # a memory is a folder to write to
    "ColumnTransformer": {"n_jobs": _one_of(None, 1), "transformers": _NAMED_STEPS},
    "FunctionTransformer": {"func": _one_of(None), "inverse_func": _one_of(None)},
    "OneHotEncoder": {
        "_infrequent_enabled": _one_of(False),
        "dtype": _FLOAT_TYPE,
        "feature_name_combiner": _one_of("concat"),
    },
    "OrdinalEncoder": {"_infrequent_enabled": _one_of(False), "dtype": _FLOAT_TYPE},
    "DateColumn": {"date_format": lambda text: text is None or (isinstance(text, str) and len(text) <= _TEXT_LIMIT)},
    "TableClassifier": {
        "columns_": _list_of(_instance(*_COLUMNS)),
        "profile_": _instance("TrainingProfile"),
        "held_out_sums_": _instance("StreamSums"),
        "background_": lambda value: isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == 2,
        "fingerprint_": _instance("Fingerprint"),
        "leaks_": _list_of(lambda one: isinstance(one, str)),
        "training_error_": _instance("TrainingError"),
    },
}

# Type -> a check of all attributes together.
STATE_RULES: dict[str, Callable[[State], bool]] = {"TreeEnsemble": _are_trees, "OneHotEncoder": _categories_match}


_MODULES = {name: module for module, names in TYPES.items() for name in names}


def find_type(name: object) -> type | None:
    """The listed type of this name, or None. Only modules of listed names are imported."""
    module = _MODULES.get(name) if isinstance(name, str) else None
    goals = {goal.__name__: goal for goal in GOALS.values()}
    return goals.get(str(name)) if module is None else typing.cast(type, getattr(import_module(module), str(name)))


def is_known(kind: type) -> bool:
    """Whether files may hold objects of exactly this type."""
    return find_type(kind.__name__) is kind


def _is_record(kind: type) -> bool:
    """Whether the fields of a dataclass are all of its state: not of an estimator, which has fitted attributes."""
    return is_dataclass(kind) and not hasattr(kind, "get_params")


def state_of(value: object) -> dict[str, object]:
    """The attributes that define an object of a listed type."""
    kind: typing.Any = type(value)
    return {name: getattr(value, name) for name in _stored_fields(kind)} if _is_record(kind) else dict(vars(value))


def create(kind: type, state: State) -> object:
    """An object with this state, which passed `check_state`."""
    if _is_record(kind):
        return kind(**state)
    found: object = object.__new__(kind)
    vars(found).update(state)
    return found


def check_state(kind: type, state: State) -> None:
    """Reject attributes that objects of a type do not have, and values that are not allowed, by `InvalidState`."""
    name = kind.__name__
    hints: dict[str, object] = {}
    if _is_record(kind):
        needed = allowed = set(_stored_fields(kind))
        hints = _hints(kind)
    else:
        needed = set(getattr(kind, "_get_param_names", list)())
        allowed = needed | set(TYPES[_MODULES[name]][name].split())
    for attribute in [*sorted(needed - set(state)), *sorted(set(state) - allowed)]:
        is_missing = attribute in needed
        raise InvalidState(f"{name} with{'out' if is_missing else ' an unknown attribute'} {attribute[:40]!r}")
    for attribute, value in state.items():
        if not fits(value, hints.get(attribute, typing.Any)):
            raise InvalidState(f"{name} with a {type(value).__name__} as {attribute}")
        if attribute in RULES.get(name, {}) and not RULES[name][attribute](value):
            raise InvalidState(f"{name} with {attribute} = {str(value)[:40]!r}")
    if name in STATE_RULES and not STATE_RULES[name](state):
        raise InvalidState(f"{name} with parts that contradict each other")


@cache
def _stored_fields(kind: type) -> tuple[str, ...]:
    """Fields of a dataclass; those whose metadata say ``is_stored=False`` take their defaults in a loaded object."""
    return tuple(field.name for field in fields(kind) if field.metadata.get("is_stored", True))


@cache
def _hints(kind: type) -> dict[str, object]:
    try:
        return dict(typing.get_type_hints(kind))
    except NameError:  # a name that only a type checker sees
        return {}


def fits(value: object, hint: object) -> bool:
    """Whether a value has an annotated type, as far as that can be checked."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any or isinstance(hint, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if hint is None or hint is type(None):
        return value is None
    if hint in (float, int):
        whole = int | np.integer
        return isinstance(value, whole if hint is int else whole | float | np.floating) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if origin is list or (origin is tuple and arguments[1:] == (Ellipsis,)):
        return isinstance(value, origin) and all(fits(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(key, arguments[0]) and fits(one, arguments[1]) for key, one in value.items()
        )
    kind = origin if isinstance(origin, type) else hint
    return not isinstance(kind, type) or getattr(kind, "_is_protocol", False) is True or isinstance(value, kind)
