"""Recipe: how networks are trained. Every training parameter is declared, validated and documented here."""

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self, TypeVar

import numpy as np

from crcen.exceptions import InvalidParameter
from crcen.training.network import ACTIVATIONS, ENCODINGS, MISSING

# One against all needs one output per class.
ONE_AGAINST_ALL = "one_against_all"
LOSSES = ("cross_entropy", "squared_error", ONE_AGAINST_ALL)

_BATCH_SIZE = 128
# From this many rows the default batch size is doubled: a step on twice the rows takes less than 1.5 times as long, and
# held-out rows are predicted as well if the learning rate is multiplied by √2.
_MANY_ROWS, _TIMES = 17_000, 2
# Adam needs a number of steps rather than of passes: large tables get fewer of the default passes, at least five.
_ENOUGH_STEPS, _FEWEST_EPOCHS = 4000, 5
_WARM_UP = 0.2
_Value = TypeVar("_Value")


def option(default: object, check: Callable[..., object], **limits: object) -> Any:
    """A field of a `Checked` class: its check gets its name, its value and the limits; a default of None passes."""
    return field(default=default, metadata={"check": (check, limits, default is None)})


@cache
def _checks(kind: type) -> dict[str, tuple[Callable[..., object], dict[str, object], bool]]:
    """The checks of a class's fields; a subclass may change a default without repeating the check."""
    declared: list[Any] = [getattr(base, "__dataclass_fields__", {}) for base in reversed(kind.__mro__)]
    return {one.name: one.metadata["check"] for own in declared for one in own.values() if one.metadata}


class Checked:
    """Base of frozen dataclasses that validate their fields in the constructor; the repr lists non-default values."""

    def __post_init__(self) -> None:
        """Validate."""
        kind: Any = type(self)
        for name, (check, limits, is_optional) in _checks(kind).items():
            value = getattr(self, name)
            if value is not None or not is_optional:
                object.__setattr__(self, name, check(name, value, **limits))

    @classmethod
    def of(cls, value: object) -> Self:
        """The group that is the value of a parameter; ``None`` means its defaults."""
        if value is None:
            return cls()
        if type(value) is not cls:
            name = cls.__name__
            raise InvalidParameter(f"{name.lower()} must be None or a {name}, as {name}(…): got {value!r}.")
        return value

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed and no validation, for values that the library computes itself."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, **changes)
        return new

    def __repr__(self) -> str:
        own: Any = self
        values = [(field.name, getattr(self, field.name), field.default) for field in fields(own)]
        shown = ", ".join(f"{name}={value!r}" for name, value, default in values if value != default)
        return f"{type(self).__name__}({shown})"


def number(
    name: str, value: Any, *, low: float, high: float = np.inf, integer: bool = False, open_low: bool = False
) -> float:
    """A finite number in [low, high], or in (low, high] if ``open_low``, as int or float."""
    kind = numbers.Integral if integer else numbers.Real
    valid = isinstance(value, kind) and not isinstance(value, bool | np.bool_) and _is_finite(value)
    if valid and (value > low if open_low else value >= low) and value <= high:
        return int(value) if integer else float(value)
    what = "a whole number" if integer else "a number"
    start = f"above {low:g}" if open_low else f"at least {low:g}"
    end = "" if np.isinf(high) else f" and at most {high:g}"
    raise InvalidParameter(f"{name} must be {what} {start}{end}: got {value!r}.")


def choice(name: str, value: _Value, allowed: Iterable[object]) -> _Value:
    """One of a few values, of the same type."""
    value = bool(value) if isinstance(value, np.bool_) else value  # type: ignore[assignment]
    for one in allowed:
        if value is one or (type(value) is type(one) and value == one):
            return value
    raise InvalidParameter(f"{name} must be one of {', '.join(map(repr, allowed))}: got {value!r}.")


def flag(name: str, value: object) -> bool:
    """A bool."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidParameter(f"{name} must be True or False: got {value!r}.")
    return bool(value)


def layer_sizes(name: str, value: object) -> tuple[int, ...]:
    """Hidden layer sizes as a tuple; a single number is one layer."""
    layers = tuple(value) if isinstance(value, tuple | list | np.ndarray) else (value,)
    sizes = [int(h) for h in layers if isinstance(h, numbers.Integral) and not isinstance(h, bool) and int(h) > 0]
    if len(sizes) == len(layers):
        return tuple(sizes)
    allowed = "a tuple of layer sizes such as (32,) or (64, 32), or () for none; a search takes a list of such tuples"
    raise InvalidParameter(f"{name} must be {allowed}: got {value!r}.")


def _is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except OverflowError:
        return False


@dataclass(frozen=True)
class SolverKind:
    """Properties of a solver that planning needs before one is created."""

    name: str  # value of the parameter ``solver``
    # whether a step is an epoch of mini-batches with a learning rate and a seeded order, which can be interrupted and
    # resumed. Otherwise a step is an iteration over all rows, and training ends at a tolerance
    draws_batches: bool
    default_epochs: int  # default number of steps
    itemsize: int  # bytes per number: 4 for float32, 8 for float64
    copies: int  # vectors of all parameters that training holds at the same time
    cut_operations: float  # operations per step above which half of a stack is worth a thread of its own


# Parameters, gradient, two moments, penalties and scratch space; results in float64 count twice.
ADAM = SolverKind("adam", True, 30, 4, copies=10, cut_operations=2e6)
# The same plus history, points and directions; its operations are called from Python.
LBFGS = SolverKind("lbfgs", False, 500, 8, copies=36, cut_operations=1e7)

SOLVERS = {kind.name: kind for kind in (ADAM, LBFGS)}


def n_batches(n_rows: int, batch_size: int) -> int:
    """Number of batches in an epoch."""
    return -(-n_rows // min(batch_size, n_rows))


def one_cycle(progress: float) -> float:
    """Learning rate relative to its peak, given the completed share of the schedule: linear warm-up, cosine decay."""
    if progress < _WARM_UP:
        return progress / _WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (progress - _WARM_UP) / (1 - _WARM_UP)))


@dataclass(frozen=True, kw_only=True, repr=False)
class Schedule(Checked):
    """Training parameters: ``CRCENClassifier(schedule=Schedule(learning_rate=0.02))``.

    Parameters
    ----------
    solver : {"auto", "adam", "lbfgs"}, default="auto"
        Mini-batch Adam with a one-cycle learning rate in float32, or full-batch L-BFGS in float64. ``"auto"`` uses
        L-BFGS without hidden layers (the objective is convex) and Adam otherwise.
    batch_size : int, default=None
        Rows of a mini-batch. ``None``: 128, from 17,000 rows 256, and 1,024 for streams.
    learning_rate : float, default=0.01
        Peak of the one-cycle learning rate; multiplied by √2 where ``batch_size=None`` is 256.
    tol : float, default=1e-5
        L-BFGS stops when no gradient component is larger.
    early_stopping : bool, default=False
        Hold out a share of the rows and keep each network's best epoch on them.
    validation_fraction : float, default=0.1
        Share of the rows held out for early stopping.
    activation : {"relu", "tanh", "sigmoid", "gelu", "silu"}, default="relu"
        Activation of the hidden layers.
    loss : {"cross_entropy", "one_against_all"}, default="cross_entropy"
        For more than two classes: one softmax, or a sigmoid for each class against all others. The sigmoids of a
        network then satisfy the key equation of every class separately, at the training weights; probabilities are
        natural, from the sigmoids over their sum.
    """

    solver: str = option("auto", choice, allowed=("auto", *SOLVERS))
    batch_size: int | None = option(None, number, low=1, integer=True)
    learning_rate: float = option(0.01, number, low=0, high=1e30, open_low=True)
    tol: float = option(1e-5, number, low=0)
    early_stopping: bool = option(False, flag)
    validation_fraction: float = option(0.1, number, low=0, high=0.9, open_low=True)
    activation: str = option("relu", choice, allowed=ACTIVATIONS)
    loss: str = option("cross_entropy", choice, allowed=LOSSES)

    @property
    def needs_all_rows(self) -> bool:
        """Whether the named solver reads all rows at each step."""
        return self.solver in SOLVERS and not SOLVERS[self.solver].draws_batches

    def in_batches(self) -> Self:
        """The same schedule with mini-batches, for rows that arrive in parts."""
        return self.replace(solver=ADAM.name)


def _encodings(name: str, value: Any) -> str | tuple[str, ...]:
    if isinstance(value, list | tuple):
        return tuple(choice(name, one, ("auto", *ENCODINGS)) for one in value)
    return choice(name, value, ("auto", *ENCODINGS))


@dataclass(frozen=True, kw_only=True, repr=False)
class Inputs(Checked):
    """The input encoding with its details: ``encoding=Inputs(missing="indicator")``.

    Parameters
    ----------
    encoding : str, or tuple of str, default="auto"
        As ``encoding`` of the estimator; several are searched. ``"auto"`` is the default of the estimator.
    bins : int, default=12
        Maximum number of bins per column.
    missing : {"error", "indicator"}, default="error"
        Treatment of NaN. ``"indicator"``: a missing cell is 0 in every encoded column derived from it (the mean of the
        observed cells; their median for ``"robust"`` and ``"quantile"``; the number 0 with ``standardize=False``), and
        every column with missing cells in the training table gets a standardised indicator column. New rows may lack
        any cell.
    column_scales : "auto", bool or None, default=None
        Learn a scale for every encoded column, penalised as weights are. At an optimum this replaces ½·l2·‖W‖² on the
        first layer by a group lasso, l2·Σ‖W_j‖ over the columns' weights W_j, which removes useless columns. It needs
        Adam, and ``l2`` should be searched. ``"auto"``: on for the encoding ``"steps"`` trained by Adam. ``None``:
        ``"auto"`` in `CRCENClassifier` and the search, otherwise False.
    standardize : bool, default=True
        ``False`` uses the inputs unchanged, with any encoding.
    """

    encoding: str | Sequence[str] = option("auto", _encodings)
    bins: int = option(12, number, low=2, integer=True)
    missing: str = option("error", choice, allowed=MISSING)
    column_scales: bool | str | None = option(None, choice, allowed=("auto", True, False, None))
    standardize: bool = option(True, flag)

    @classmethod
    def of(cls, value: object) -> Self:
        """The group that is the value of a parameter ``encoding``, which may be a name."""
        return value if isinstance(value, cls) else cls(encoding=value)  # type: ignore[arg-type]  # checked


@dataclass(frozen=True, kw_only=True)
class Recipe(Schedule, Inputs):
    """All training parameters of a network except its rows, class weights and seed."""

    hidden: tuple[int, ...] = option((32,), layer_sizes)
    l2: float = option(1e-4, number, low=0)  # the penalty on weights
    max_epochs: int | None = option(
        None, number, low=1, integer=True
    )  # passes over the rows; `settled` has the default
    encoding: str = option("auto", choice, allowed=("auto", *ENCODINGS))  # one, where `Inputs` may hold several
    balance: bool = option(True, flag)  # whether the output bias is solved for after training

    @classmethod
    def combined(cls, schedule: Schedule, inputs: Inputs, **own: Any) -> "Recipe":
        """A recipe from both groups of parameters and the remaining ones."""
        return cls(**{**_values(Schedule, schedule), **_values(Inputs, inputs), **own})

    @property
    def batch_rows(self) -> int:
        """Rows of a mini-batch, with the default applied."""
        return self.batch_size or _BATCH_SIZE

    @property
    def draws_batches(self) -> bool:
        """Whether training uses mini-batches: it can then be resumed and may learn column scales."""
        return self.solver_kind.draws_batches

    @property
    def solver_kind(self) -> SolverKind:
        """The solver, with the default applied."""
        return SOLVERS.get(self.solver) or (ADAM if self.hidden else LBFGS)

    def settled(self, n_rows: int) -> "Recipe":
        """The same recipe with every value set that was left to the data."""
        solver = self.solver_kind
        default = "steps" if self.hidden else "standard"
        encoding = default if self.encoding == "auto" else self.encoding
        scales = self.column_scales or False
        if scales == "auto":  # steps are many columns, most of them of little use
            scales = self.standardize and encoding == "steps" and self.draws_batches
        if scales and not self.draws_batches:
            raise InvalidParameter("column_scales needs Adam: use solver='adam', or column_scales='auto'.")
        enough = max(_ENOUGH_STEPS // n_batches(n_rows, self.batch_rows), _FEWEST_EPOCHS)
        epochs = min(solver.default_epochs, enough) if solver.draws_batches else solver.default_epochs
        times = _TIMES if self.batch_size is None and solver.draws_batches and n_rows >= _MANY_ROWS else 1
        return self.replace(
            solver=solver.name,
            encoding=encoding,
            column_scales=scales,
            batch_size=times * self.batch_rows,
            learning_rate=math.sqrt(times) * self.learning_rate,
            max_epochs=self.max_epochs or epochs,
        )

    def on_fewer_rows(self, times: float) -> "Recipe":
        """The equivalent recipe for a subsample: an L2 penalty acts like a number of rows, so it grows accordingly."""
        batch = min(self.batch_rows, _BATCH_SIZE)
        rate = self.learning_rate * math.sqrt(batch / self.batch_rows)
        return self.replace(l2=self.l2 * times, batch_size=batch, learning_rate=rate)

    def settings(self) -> dict[str, Any]:
        """The fields of a recipe by name."""
        return _values(Recipe, self)


def _values(kind: type[Schedule | Inputs], value: object) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(kind)}
