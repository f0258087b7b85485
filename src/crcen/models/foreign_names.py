"""Parameters under another name or in another place than ours: refused with a sentence that says what to write."""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import get_annotations, signature, unwrap
from typing import Any, ParamSpec, get_args

from sklearn.base import BaseEstimator

__all__ = ["OURS", "OurNames", "says_our_names"]

_Given = ParamSpec("_Given")

# Name of scikit-learn's networks → what to write instead.
OURS = {
    "alpha": "l2; MLPClassifier's alpha = l2 * batch_size is the same penalty",
    "class_weight": "weighting, as 'balanced', Budget(5) or {label: weight}",
    "hidden_layer_sizes": "hidden",
    "learning_rate_init": "schedule=Schedule(learning_rate=…)",
    "max_iter": "max_epochs",
    "n_iter_no_change": "schedule=Schedule(early_stopping=True), which keeps the best epoch",
    "n_jobs": "nothing: one fit trains its networks together; see Notes",
    "warm_start": "partial_fit",
}


def says_our_names(initialise: Callable[_Given, None]) -> Callable[_Given, None]:
    """Make an ``__init__`` refuse names of other libraries, and parameters of a group; its signature stays."""

    @wraps(initialise)
    def told(*args: _Given.args, **kwargs: _Given.kwargs) -> None:
        _refuse_others(args[0], kwargs)
        initialise(*args, **kwargs)

    return told


class OurNames(BaseEstimator):
    """``set_params`` that refuses what the constructor refuses, in the same words."""

    def set_params(self, **params: Any) -> Any:
        """Set parameters of this estimator, as in scikit-learn.

        Parameters
        ----------
        **params
            Parameters by name; those of a group are given as one value, as ``schedule=Schedule(learning_rate=0.02)``.

        Returns
        -------
        self
        """
        _refuse_others(self, params)
        return super().set_params(**params)


def _refuse_others(estimator: Any, given: Iterable[str]) -> None:
    own = signature(type(estimator).__init__).parameters
    for name in given:
        instead = None if name in own else _places(type(estimator).__init__).get(name)
        if instead:
            raise TypeError(f"{type(estimator).__name__} has no parameter {name!r}: use {instead}.")


def _places(initialise: Callable[..., None]) -> dict[str, str]:
    """What to write instead of a name: ours, or the group among a constructor's parameters that holds it."""
    groups: list[tuple[str, Any]] = [
        (name, kind)
        for name, annotation in _annotations(initialise).items()
        for kind in get_args(annotation)
        if is_dataclass(kind)
    ]
    held = {field.name: f"{name}={kind.__name__}({field.name}=…)" for name, kind in groups for field in fields(kind)}
    return OURS | held


def _annotations(initialise: Callable[..., None]) -> dict[str, Any]:
    """Annotations as types, also where a module keeps them as text; none where a subclass names types it lacks."""
    try:
        return get_annotations(unwrap(initialise), eval_str=True)
    except NameError:
        return {}
