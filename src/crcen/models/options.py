"""Parameter groups of the estimators, their validation, and hints for parameters under another name."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import signature
from typing import Any, Self, TypeVar, dataclass_transform

from sklearn.base import BaseEstimator

from crcen.exceptions import InvalidParameter
from crcen.models.ensemble import PROBABILITIES
from crcen.theory.price import WeightingLike
from crcen.theory.rows import Estimator
from crcen.training.engines import ENGINES
from crcen.training.recipe import Checked, Inputs, Schedule, choice, flag, number, option

# Values of `training_weighting` (the loss is weighted by the price) and `balance` (the bias is solved out of fold).
AT_PRICE, OUT_OF_FOLD = "price", "oof"
# Value of `balance` and `probability`: out of fold with a temperature if there are folds, otherwise as in the paper.
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

    balance: bool | str = option(AUTO, choice, allowed=(AUTO, OUT_OF_FOLD, True, False))
    probability: str = option(AUTO, choice, allowed=(AUTO, *PROBABILITIES))
    training_weighting: WeightingLike = None

    @classmethod
    def of(cls, value: object) -> "Calibration":
        """The settings of a parameter ``calibration``."""
        if isinstance(value, cls):
            return value
        if value is None or (isinstance(value, str) and value == "paper"):
            return cls(balance=value is not None, probability="shift", training_weighting=AT_PRICE)
        if isinstance(value, str) and value == "out_of_fold":
            return cls()
        message = f"calibration must be 'out_of_fold', 'paper', None or a Calibration: got {value!r}."
        raise InvalidParameter(message, parameter="calibration")

    @property
    def is_at_price(self) -> bool:
        """Whether the loss is weighted as decisions are."""
        return isinstance(self.training_weighting, str) and self.training_weighting == AT_PRICE

    @property
    def is_open(self) -> bool:
        """Whether the data decide if there are folds."""
        return self.balance == AUTO and self.probability in (AUTO, "shift")

    def settled(self, *, has_folds: bool = True) -> tuple[bool | str, str]:
        """``balance`` and ``probability`` with ``"auto"`` decided."""
        balance, probability = self.balance, self.probability
        if balance == AUTO:
            balance = OUT_OF_FOLD if has_folds else True
        if probability == AUTO:  # a map would change the key equation, which balance=True makes exact
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
    halving : bool, default=True
        Stop settings that are far behind at four points of the schedule, from eight settings per weighting (four on
        10,000 rows or more). From 6,000 rows, eight or more settings are first compared on at least 3,000 rows, about
        equally many of each class and weighted back, and the best quarter is trained on all rows. Not where
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
    n_settings: int = option(1, number, low=1, integer=True)
    halving: bool = option(True, flag)
    widen: bool | str = option("auto", choice, allowed=("auto", True, False))
    engine: str = option("local", choice, allowed=tuple(ENGINES))
    memory_bytes: int | None = option(None, number, low=1, integer=True)


_Kind = TypeVar("_Kind", bound=type)

# Name of scikit-learn's networks, or of an earlier version, and what to write instead.
HINTS = {
    "alpha": "l2; MLPClassifier's alpha = l2 * batch_size is the same penalty",
    "class_weight": "weighting, as 'balanced', Budget(5) or {label: weight}",
    "hidden_layer_sizes": "hidden",
    "inputs": "encoding=Inputs(missing='indicator')",
    "learning_rate_init": "schedule=Schedule(learning_rate=…)",
    "max_iter": "max_epochs",
    "n_iter_no_change": "schedule=Schedule(early_stopping=True), which keeps the best epoch",
    "n_jobs": "the defaults: one fit trains its networks together; see Notes",
    "warm_start": "partial_fit",
}


@dataclass_transform(kw_only_default=True)
def estimator(kind: _Kind) -> _Kind:
    """Make a class an estimator: its annotated parameters form ``__init__``, which rejects names of other libraries."""
    made: Any = kind if "__init__" in vars(kind) else dataclass(eq=False, repr=False, kw_only=True)(kind)
    initialise = made.__init__

    @wraps(initialise)
    def checked(self: Estimator, *args: object, **kwargs: object) -> None:
        _reject(self, kwargs)
        initialise(self, *args, **kwargs)

    made.__init__ = checked
    return kind


class GroupedParameters(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """``set_params`` and ``get_params`` that reach into groups, as ``schedule__learning_rate``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of this estimator by name; ``deep`` adds those of its groups, as ``schedule__learning_rate``."""
        found: dict[str, Any] = super().get_params(deep=deep)
        if deep:
            for name, kind in _groups(type(self)).items():
                try:
                    group = kind.of(found[name])
                except InvalidParameter:  # `fit` rejects it
                    continue
                found |= {f"{name}__{field.name}": getattr(group, field.name) for field in fields(kind)}
        return found

    def set_params(self, **params: object) -> Self:
        """Set parameters by name, as in scikit-learn; those of a group also as ``schedule__learning_rate=0.02``."""
        _reject(self, params)
        kinds, nested = _groups(type(self)), dict[str, dict[str, object]]()
        for key in [key for key in params if "__" in key and key.partition("__")[0] in kinds]:
            name, _, field = key.partition("__")
            nested.setdefault(name, {})[field] = params.pop(key)
        super().set_params(**params)
        for name, values in nested.items():
            allowed = [field.name for field in fields(kinds[name])]
            for field in sorted(set(values).difference(allowed)):
                raise ValueError(f"{kinds[name].__name__} has no parameter {field!r}: use one of {', '.join(allowed)}.")
            setattr(self, name, replace(kinds[name].of(getattr(self, name)), **values))
        return self


def _reject(estimator: Estimator, given: Iterable[str]) -> None:
    """Raise an error for names of other libraries and parameters of a group; it says what to write instead."""
    kind: Any = type(estimator)
    for foreign in [name for name in given if name not in signature(kind.__init__).parameters]:
        held = [(field.name, name, group) for name, group in _groups(kind).items() for field in fields(group)]
        instead = HINTS | {field: f"{name}={group.__name__}({field}=…)" for field, name, group in held}
        if foreign in instead:
            raise TypeError(f"{kind.__name__} has no parameter {foreign!r}: use {instead[foreign]}.")


def _groups(kind: Any) -> dict[str, Any]:
    """Parameters of an estimator class that take a group, with the class of the group."""
    groups = {"schedule": Schedule, "encoding": Inputs, "calibration": Calibration, "search": Search}
    return {name: groups[name] for name in signature(kind.__init__).parameters if name in groups}
