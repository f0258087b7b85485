"""Parameter groups of the estimators, their validation, and hints for parameters under another name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cache, wraps
from inspect import get_annotations, signature, unwrap
from typing import Any, ParamSpec, Self, get_args

import numpy as np
from sklearn.base import BaseEstimator

from crcen.exceptions import InvalidParameter
from crcen.models.probability import PROBABILITIES
from crcen.theory.price import WeightingLike
from crcen.theory.rows import Estimator
from crcen.training.engines import ENGINES
from crcen.training.parameters import Checked, choice, flag, number
from crcen.training.recipe import Inputs

# Of `training_weighting`: the loss is weighted as decisions are. Of `balance`: the bias is solved for out of fold.
AT_PRICE, OUT_OF_FOLD = "price", "oof"
# Of `balance` and `probability`: out of fold by a temperature if there are folds, otherwise as in the paper.
AUTO = "auto"


@dataclass(frozen=True, kw_only=True, repr=False)
class Calibration(Checked):
    """How probabilities and decisions come from trained networks: ``calibration=Calibration(probability="isotonic")``.

    ``"out_of_fold"`` is ``Calibration()``. ``"paper"`` is ``Calibration(balance=True, probability="shift",
    training_weighting="price")``. ``None`` is the same with ``balance=False``.

    Parameters
    ----------
    balance : {"auto", "oof", True, False}, default="auto"
        Rows on which the output bias is solved for: out-of-fold rows (``"oof"``), the training rows (True), or no
        solve. ``"auto"`` is ``"oof"``, or True if a class has fewer than three rows. If folds over time
        leave rows out, the shift is shrunk by how far folds disagree beyond sampling.
    probability : {"auto", "shift", "balance", "temperature", "isotonic"}, default="auto"
        Map from natural logits to probabilities, fitted on out-of-fold logits: none, an intercept, slope and intercept,
        or an increasing function (binary problems only). ``"auto"`` is ``"temperature"`` if the bias is solved for on
        out-of-fold logits of all rows, otherwise ``"shift"``.
    training_weighting : None, "price", float, Lam, Alpha, CostRatio, Budget, dict, default=None
        Class weights of the loss: none, the price itself, or others. Decisions are at the price in any case.
    """

    balance: bool | str = AUTO
    probability: str = AUTO
    training_weighting: WeightingLike = None

    def __post_init__(self) -> None:
        """Validate."""
        balance = bool(self.balance) if isinstance(self.balance, np.bool_) else self.balance
        self._set(
            balance=choice("balance", balance, (AUTO, OUT_OF_FOLD, True, False)),
            probability=choice("probability", self.probability, (AUTO, *PROBABILITIES)),
        )

    @classmethod
    def of(cls, value: object) -> Calibration:
        """The settings of a parameter ``calibration``."""
        if isinstance(value, cls):
            return value
        if value is None or (isinstance(value, str) and value == "paper"):
            return cls(balance=value is not None, probability="shift", training_weighting=AT_PRICE)
        if isinstance(value, str) and value == "out_of_fold":
            return cls()
        raise InvalidParameter(
            f"calibration must be 'out_of_fold', 'paper', None or a Calibration: got {value!r}.",
            parameter="calibration",
        )

    @property
    def is_at_price(self) -> bool:
        """Whether the loss is weighted as decisions are."""
        return isinstance(self.training_weighting, str) and self.training_weighting == AT_PRICE

    @property
    def is_open(self) -> bool:
        """Whether the data decide if there are folds."""
        return self.balance == AUTO and self.probability in (AUTO, "shift")

    def settled(self, *, has_folds: bool = True) -> tuple[bool | str, str]:
        """``balance`` and ``probability`` with ``"auto"`` decided.

        A map is fitted if the bias is solved for out of fold as well: with ``balance=True`` the key equation is exact
        on the training rows, and a map would change that.
        """
        balance, probability = self.balance, self.probability
        if balance == AUTO:
            balance = OUT_OF_FOLD if has_folds else True
        if probability == AUTO:
            probability = "temperature" if isinstance(balance, str) and has_folds else "shift"
        return balance, probability


@dataclass(frozen=True, kw_only=True, repr=False)
class Search(Checked):
    """How a search treats its settings: ``CRCENClassifierCV(search=Search(halving=False))``.

    Parameters
    ----------
    scoring : str, callable or None, default=None
        ``None``: ``"neg_weighted_log_loss"``, or ``"neg_log_loss"`` of natural probabilities with several weightings or
        a training weight apart from the price. Also ``"f1"``, ``"g_mean"``, ``"average_precision"``, any scorer of
        scikit-learn, or a callable ``(estimator, X, y)``.
    n_settings : int, default=1
        Number of best settings that are kept and averaged, each with ``n_members`` networks.
    one_standard_error : bool, default=False
        Choose the simplest setting (fewest hidden units, then largest l2) within one standard error of the best.
    halving : bool, default=True
        Stop settings that are far behind at four points of the schedule, from eight settings per weighting (four on
        10,000 rows or more). From 10,000 rows, eight or more settings are first compared on a subsample of at least
        5,000 rows, and the best quarter is trained on all rows. Not with ``one_standard_error``, nor where
        ``memory_bytes`` is too small.
    widen : {"auto", True, False}, default="auto"
        If the best setting is at a border of the grid, try the next ``l2`` and a schedule of twice the length, up to
        three steps that gain half a percent each. ``"auto"``: only parameters left at their default.
    engine : {"local", "ray"}, default="local"
        Train in this process or as tasks of a Ray cluster; the result is the same.
    memory_bytes : int, default=None
        Memory bound apart from the rows; ``None`` is half of the free memory.
    """

    scoring: Any = None
    n_settings: int = 1
    one_standard_error: bool = False
    halving: bool = True
    widen: bool | str = "auto"
    engine: str = "local"
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        bound = self.memory_bytes
        self._set(
            n_settings=number("n_settings", self.n_settings, low=1, integer=True),
            one_standard_error=flag("one_standard_error", self.one_standard_error),
            halving=flag("halving", self.halving),
            widen=choice("widen", self.widen, ("auto", True, False)),
            engine=choice("engine", self.engine, tuple(ENGINES)),
            memory_bytes=None if bound is None else number("memory_bytes", bound, low=1, integer=True),
        )

    @property
    def drops_settings(self) -> bool:
        """Whether settings may end early."""
        return self.halving and not self.one_standard_error


# -- groups in set_params, and hints -----------------------------------------------------------------------------------


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


class GroupedParameters(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
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

    def set_params(self, **params: object) -> Self:
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
        own: dict[str, object] = {}
        nested: dict[str, dict[str, object]] = {}
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


def _reject(estimator: Estimator, given: Iterable[str]) -> None:
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
        if isinstance(kind, type) and issubclass(kind, Checked)
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
