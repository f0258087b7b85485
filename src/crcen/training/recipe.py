"""Recipe: how networks are trained. The one home of training parameters: each is declared, checked and explained here.

Estimators build a recipe from their parameters, a search makes others of it by `dataclasses.replace`, and jobs, streams
and workers carry it. What is left to the data (``"auto"``, ``None``) is settled once the rows are known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from crcen.exceptions import InvalidParameter
from crcen.training.encoding import ENCODINGS, MISSING
from crcen.training.names import ACTIVATIONS, CLASS_LOSSES
from crcen.training.parameters import Checked, choice, flag, layer_sizes, number
from crcen.training.schedule import n_batches
from crcen.training.solvers.kinds import ADAM, LBFGS, SOLVERS, SolverKind

__all__ = ["Inputs", "Recipe", "Schedule"]

_BATCH_SIZE = 128
# From so many rows on, batches that nobody named are twice as large: steps on twice the rows take less than 1.5 times
# as long, and held-out rows are predicted as well where the rate grows by the root.
_MANY_ROWS, _TIMES = 17_000, 2
# Adam needs steps rather than passes: many rows get fewer of the default passes, down to five.
_ENOUGH_STEPS, _FEWEST_EPOCHS = 4000, 5


@dataclass(frozen=True, kw_only=True, repr=False)
class Schedule(Checked):
    """By which steps networks are trained: ``CRCENClassifier(schedule=Schedule(learning_rate=0.02))``.

    Parameters
    ----------
    solver : {"auto", "adam", "lbfgs"}, default="auto"
        Mini-batch Adam with a one-cycle rate in float32, or full-batch L-BFGS in float64. ``"auto"`` is L-BFGS where
        there is no hidden layer, since a convex objective has one optimum and L-BFGS finds it, else Adam.
    batch_size : int, default=None
        Rows of a mini-batch; ``None`` is 128, from 17,000 rows on 256, and 1,024 where rows come in a stream.
    learning_rate : float, default=0.01
        Peak of the one-cycle rate; times √2 where ``batch_size=None`` is 256.
    tol : float, default=1e-5
        L-BFGS stops when no gradient component is larger.
    early_stopping : bool, default=False
        Hold out a share of the rows and keep each network's best epoch on them.
    validation_fraction : float, default=0.1
        That share.
    """

    solver: str = "auto"
    batch_size: int | None = None
    learning_rate: float = 0.01
    tol: float = 1e-5
    early_stopping: bool = False
    validation_fraction: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        size = self.batch_size
        self._set(
            solver=choice("solver", self.solver, ("auto", *SOLVERS)),
            batch_size=None if size is None else number("batch_size", size, low=1, integer=True),
            learning_rate=number("learning_rate", self.learning_rate, low=0, high=1e30, open_low=True),
            tol=number("tol", self.tol, low=0),
            early_stopping=flag("early_stopping", self.early_stopping),
            validation_fraction=number("validation_fraction", self.validation_fraction, low=0, high=0.9, open_low=True),
        )

    @property
    def needs_all_rows(self) -> bool:
        """Whether a solver was asked for that reads all rows at each step."""
        return self.solver in SOLVERS and not SOLVERS[self.solver].draws_batches

    def in_batches(self) -> Self:
        """The same by mini-batches, for rows that come in parts and for networks that only they can train."""
        return replace(self, solver=ADAM.name)


@dataclass(frozen=True, kw_only=True, repr=False)
class Inputs(Checked):
    """What is made of columns before the first layer, beside their encoding: ``inputs=Inputs(missing="indicator")``.

    Parameters
    ----------
    bins : int, default=12
        The largest number of bins a column.
    missing : {"error", "indicator"}, default="error"
        What becomes of NaN: it is refused, or learned from. With ``"indicator"`` a missing cell is 0 in every encoded
        column made of it (the mean of the cells that are there; for ``"robust"`` and ``"quantile"`` their middle; the
        number 0 with ``standardize=False``), and for each column of the training table that lacks cells there is a
        further one that says where, of zeros and ones, standardised as any other. New rows may lack any cell.
    column_scales : "auto", bool or None, default=None
        Give every encoded column a learnable scale, penalised as weights are, by which its weights are multiplied. At
        an optimum that is a penalty l2·Σ‖W_j‖ on the columns' weights W_j, a group lasso, instead of ½·l2·‖W‖² on the
        first layer, so that columns of no use are left out. It needs Adam and wants a searched ``l2``. ``"auto"`` is
        for ``"steps"`` trained by Adam. ``None`` is ``"auto"`` in `CRCENClassifier` and the search,
        else False.
    standardize : bool, default=True
        ``False`` takes inputs as they are, whatever the encoding.
    """

    bins: int = 12
    missing: str = "error"
    column_scales: bool | str | None = None
    standardize: bool = True

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        self._set(
            bins=number("bins", self.bins, low=2, integer=True),
            missing=choice("missing", self.missing, MISSING),
            column_scales=choice("column_scales", self.column_scales, ("auto", True, False, None)),
            standardize=flag("standardize", self.standardize),
        )


@dataclass(frozen=True, kw_only=True)
class Recipe(Schedule, Inputs):
    """How a network is trained, but for its rows, the weight of the classes and the seed.

    Parameters
    ----------
    hidden, activation
        The network: hidden layer sizes and their activation.
    loss, l2
        The objective: what a row's error is (see `crcen.training.losses`), and the penalty on weights.
    max_epochs
        Passes over the rows; ``None`` is 30 for Adam (fewer from 17,000 rows on, where 4,000 steps are enough, but at
        least 5) and 500 (iterations) for L-BFGS.
    encoding
        The input layer (see `crcen.training.encoding`); ``"auto"`` is ``"steps"`` with a hidden layer, else
        ``"standard"``.
    balance
        Whether the output bias is solved for after training.
    solver, batch_size, learning_rate, tol, early_stopping, validation_fraction
        As in `Schedule`.
    bins, missing, column_scales, standardize
        As in `Inputs`.
    """

    hidden: tuple[int, ...] = (32,)
    activation: str = "relu"
    loss: str = "cross_entropy"
    l2: float = 1e-4
    max_epochs: int | None = None
    encoding: str = "auto"
    balance: bool = True

    @classmethod
    def of(cls, schedule: Schedule, inputs: Inputs, **own: Any) -> Recipe:
        """A recipe with the parameters of both groups; ``own`` are the others."""
        return cls(**_fields_of(schedule), **_fields_of(inputs), **own)

    def __post_init__(self) -> None:
        """Refuse what has no meaning, here and in both groups."""
        Schedule.__post_init__(self)
        Inputs.__post_init__(self)
        epochs = self.max_epochs
        self._set(
            hidden=layer_sizes("hidden", self.hidden),
            activation=choice("activation", self.activation, ACTIVATIONS),
            loss=choice("loss", self.loss, CLASS_LOSSES),
            l2=number("l2", self.l2, low=0),
            max_epochs=None if epochs is None else number("max_epochs", epochs, low=1, integer=True),
            encoding=choice("encoding", self.encoding, ("auto", *ENCODINGS)),
            balance=flag("balance", self.balance),
        )

    @property
    def batch_rows(self) -> int:
        """Rows of a mini-batch, also where none were named."""
        return self.batch_size or _BATCH_SIZE

    @property
    def draws_batches(self) -> bool:
        """Whether training goes by mini-batches: it then has a rate, can stop and go on, and may learn scales."""
        return self.solver_kind.draws_batches

    @property
    def solver_kind(self) -> SolverKind:
        """What is known of the solver, also where none was named."""
        return SOLVERS.get(self.solver) or (ADAM if self.hidden else LBFGS)

    def settled(self, n_rows: int) -> Recipe:
        """The same with everything decided that was left to the data."""
        solver = self.solver_kind
        encoding = self.encoding
        if encoding == "auto":
            encoding = "steps" if self.hidden else "standard"
        scales = self.column_scales or False
        if scales == "auto":  # steps are many columns, most of them of little use
            scales = self.standardize and encoding == "steps" and self.draws_batches
        if scales and not self.draws_batches:
            raise InvalidParameter("column_scales needs Adam: use solver='adam', or column_scales='auto'.")
        epochs = self.max_epochs
        if epochs is None:
            epochs = solver.default_epochs
            if solver.draws_batches:
                enough = _ENOUGH_STEPS // n_batches(n_rows, self.batch_rows)
                epochs = min(epochs, max(enough, _FEWEST_EPOCHS))
        times = _TIMES if self.batch_size is None and solver.draws_batches and n_rows >= _MANY_ROWS else 1
        return replace(
            self,
            solver=solver.name,
            encoding=encoding,
            column_scales=scales,
            batch_size=times * self.batch_rows,
            learning_rate=math.sqrt(times) * self.learning_rate,
            max_epochs=epochs,
        )

    def on_fewer_rows(self, times: float) -> Recipe:
        """The same for so many times fewer rows, by steps as small as few rows have.

        A penalty stands for a number of rows, so it is as many times larger.
        """
        batch = min(self.batch_rows, _BATCH_SIZE)
        rate = self.learning_rate * math.sqrt(batch / self.batch_rows)
        return replace(self, l2=self.l2 * times, batch_size=batch, learning_rate=rate)

    def settings(self) -> dict[str, Any]:
        """The parameters by name, those of a recipe alone."""
        return {field.name: getattr(self, field.name) for field in fields(Recipe)}


def _fields_of(value: Schedule | Inputs) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
