"""Parameter groups in ``set_params``, and hints for parameters under another name or in another place."""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import cache, wraps
from inspect import get_annotations, signature, unwrap
from typing import Any, ParamSpec, get_args

from sklearn.base import BaseEstimator

from crcen.exceptions import InvalidParameter
from crcen.models.options import Calibration
from crcen.training.recipe import Inputs

__all__ = ["HINTS", "GroupedParameters", "reject_foreign_parameters"]

_Given = ParamSpec("_Given")

# Name of scikit-learn's networks, or of an earlier version, and what to write instead.
HINTS = {
    "alpha": "l2; MLPClassifier's alpha = l2 * batch_size is the same penalty",
    "class_weight": "weighting, as 'balanced', Budget(5) or {label: weight}",
    "hidden_layer_sizes": "hidden",
    "inputs": "encoding=Inputs(missing='indicator')",
    "learning_rate_init": "schedule=Schedule(learning_rate=…)",
    "max_iter": "max_epochs",
    "n_iter_no_change": "schedule=Schedule(early_stopping=True), which keeps the best epoch",
    "n_jobs": "nothing: one fit trains its networks together; see Notes",
    "warm_start": "partial_fit",
}


def reject_foreign_parameters(initialise: Callable[_Given, None]) -> Callable[_Given, None]:
    """Make an ``__init__`` reject names of other libraries, and parameters of a group; its signature stays."""

    @wraps(initialise)
    def checked(*args: _Given.args, **kwargs: _Given.kwargs) -> None:
        _reject(args[0], kwargs)
        initialise(*args, **kwargs)

    return checked


class GroupedParameters(BaseEstimator):
    """``set_params`` and ``get_params`` that reach into groups, as ``schedule__learning_rate``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of this estimator by name; ``deep`` adds those of its groups, as ``schedule__learning_rate``."""
        found: dict[str, Any] = super().get_params(deep=deep)
        if deep:
            for name, kind in _groups(unwrap(type(self).__init__)):
                try:
                    group = _as_group(found[name], kind)
                except InvalidParameter:  # `fit` rejects it
                    continue
                found |= {f"{name}__{field.name}": getattr(group, field.name) for field in fields(kind)}
        return found

    def set_params(self, **params: Any) -> Any:
        """Set parameters of this estimator, as in scikit-learn.

        Parameters
        ----------
        **params
            Parameters by name; those of a group as ``schedule=Schedule(learning_rate=0.02)`` or
            ``schedule__learning_rate=0.02``.

        Returns
        -------
        self
        """
        _reject(self, params)
        kinds = dict(_groups(unwrap(type(self).__init__)))
        own: dict[str, Any] = {}
        nested: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, _, field = key.partition("__")
            if field and name in kinds:
                nested.setdefault(name, {})[field] = value
            else:
                own[key] = value
        super().set_params(**own)
        for name, values in nested.items():
            kind = kinds[name]
            unknown = sorted(set(values) - {field.name for field in fields(kind)})
            if unknown:
                allowed = ", ".join(field.name for field in fields(kind))
                raise ValueError(f"{kind.__name__} has no parameter {unknown[0]!r}: use one of {allowed}.")
            setattr(self, name, replace(_as_group(getattr(self, name), kind), **values))
        return self


def _as_group(value: Any, kind: Any) -> Any:
    """The group of a parameter's value, which may be a plain value."""
    if isinstance(value, kind):
        return value
    if kind is Calibration:
        return kind.of(value)
    return kind(encoding=value) if kind is Inputs else kind()


def _reject(estimator: Any, given: Iterable[str]) -> None:
    own = signature(type(estimator).__init__).parameters
    for name in given:
        instead = None if name in own else _places(unwrap(type(estimator).__init__)).get(name)
        if instead:
            raise TypeError(f"{type(estimator).__name__} has no parameter {name!r}: use {instead}.")


@cache
def _groups(initialise: Callable[..., None]) -> tuple[tuple[str, Any], ...]:
    """Parameters of a constructor that take a group, with its class."""
    return tuple(
        (name, kind)
        for name, annotation in _annotations(initialise).items()
        for kind in get_args(annotation)
        if is_dataclass(kind)
    )


@cache
def _places(initialise: Callable[..., None]) -> dict[str, str]:
    """What to write instead of a name: the group among a constructor's parameters that holds it, or a hint."""
    held = {
        field.name: f"{name}={kind.__name__}({field.name}=…)"
        for name, kind in _groups(initialise)
        for field in fields(kind)
    }
    return HINTS | held


def _annotations(initialise: Callable[..., None]) -> dict[str, Any]:
    """Annotations as types, also if a module keeps them as text; none if a subclass names types it lacks."""
    try:
        return get_annotations(initialise, eval_str=True)
    except NameError:
        return {}
