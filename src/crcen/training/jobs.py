"""What the engine is asked for and what it gives back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter
from crcen.training.names import ONE_AGAINST_ALL
from crcen.training.network import Network
from crcen.training.recipe import Recipe
from crcen.training.row_sets import RowSets
from crcen.training.solvers.kinds import ADAM, SOLVERS

__all__ = ["Status", "TrainingJob", "TrainingResult", "TrainingState"]


class Status(Enum):
    """How a network's training ended; the value is the sentence a person reads."""

    CONVERGED = "the gradient or the loss no longer changes"
    COMPLETED = "the full learning-rate schedule was run"
    EARLY_STOPPED = "the loss on the validation rows no longer fell; the best epoch was kept"
    MAX_EPOCHS = "the limit of iterations was reached before the gradient was small; raise max_epochs or l2"
    DIVERGED = "the loss became infinite or NaN; lower learning_rate or raise l2"

    @property
    def is_finite(self) -> bool:
        """Whether the network can be used."""
        return self is not Status.DIVERGED


@dataclass(frozen=True, eq=False)
class TrainingState:
    """Where Adam left a network: after which epoch, and its parameters and both moments, (3, parameters)."""

    epoch: int
    values: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TrainingJob(Recipe):
    """One network to train on the rows it owns, by a recipe in which nothing is left to the data.

    Parameters
    ----------
    lam
        The weight λ of the positive class; 1−λ is the negative class's.
    class_weights
        A weight for each class, for networks with as many outputs, instead of ``lam``; ``None`` for one output.
    rows
        Which rows it trains on, draws batches from, watches and is balanced on; by default all rows of the table.
    seed, shuffle_seed
        Initial parameters and batch order. Both belong to the job, so its result depends on no other job.
    stop_epoch
        Cut the schedule of ``max_epochs`` off after this epoch.
    record_every
        Instead of stopping early, hand out the logits of the validation rows every so many epochs, and at the last.
    start
        Go on from where an earlier job with the same settings was left, as if it had not stopped; for Adam.
    leaves_state
        Hand out where training ended instead of the network, so that a later job can go on; for Adam.
    hidden, activation, loss, l2, solver, max_epochs, batch_size, learning_rate, tol, encoding, bins, missing,
    column_scales, standardize, balance
        As in `crcen.training.recipe.Recipe`; whether it stops early is said by ``rows.watched`` and ``record_every``.
    """

    lam: float
    _: KW_ONLY
    class_weights: tuple[float, ...] | None = None
    rows: RowSets = RowSets()  # noqa: RUF009  -- frozen
    solver: str = ADAM.name
    max_epochs: int = 30
    batch_size: int = 128
    tol: float = 1e-6
    encoding: str = "standard"
    column_scales: bool = False
    seed: int = 0
    shuffle_seed: int = 0
    stop_epoch: int | None = None
    record_every: int = 0
    start: TrainingState | None = None
    leaves_state: bool = False

    def __post_init__(self) -> None:
        """Refuse what has no meaning, by name."""
        super().__post_init__()
        open_ends = (self.max_epochs, self.batch_size, self.column_scales)
        if self.solver not in SOLVERS or None in open_ends or "auto" in (self.encoding, self.column_scales):
            raise InvalidParameter("a training job leaves nothing to the data: settle its recipe first.")
        if not 0.0 < self.lam < 1.0:
            raise InvalidParameter(f"lam must lie strictly between 0 and 1: got {self.lam!r}.")
        weights = self.class_weights
        if weights is not None and (len(weights) < 2 or not all(0.0 < w < np.inf for w in weights)):
            raise InvalidParameter(f"class_weights must be two or more numbers above 0: got {weights!r}.")
        if weights is None and self.loss == ONE_AGAINST_ALL:
            raise InvalidParameter(f"loss={self.loss!r} needs an output for each class: give class_weights.")
        if not isinstance(self.rows, RowSets):
            raise InvalidParameter(f"rows must be RowSets(own=…, pool=…): got {type(self.rows).__name__}.")
        if not self.draws_batches and (self.start is not None or self.leaves_state):
            raise InvalidParameter(f"only solver={ADAM.name!r} can stop and go on: got {self.solver!r}.")
        if not self.draws_batches and self.column_scales:
            raise InvalidParameter("column_scales needs Adam: use solver='adam', or column_scales='auto'.")
        if self.stops_early and (self.leaves_state or self.start is not None):
            raise InvalidParameter("a job that stops and goes on cannot stop early; use record_every.")
        if self.start is not None and not 0 < self.start.epoch < self.last_epoch:
            raise InvalidParameter(f"start must be before the last epoch, {self.last_epoch}: got {self.start.epoch}.")

    @classmethod
    def by(cls, recipe: Recipe, *, lam: float, **own: Any) -> TrainingJob:
        """A job by a settled recipe; ``own`` are its rows, seeds and the rest that a recipe does not say."""
        return cls(lam=lam, **recipe.settings(), **own)

    @classmethod
    def of_classes(cls, recipe: Recipe, class_weights: Iterable[float], **own: Any) -> TrainingJob:
        """The same for a network with an output for each class."""
        return cls(lam=0.5, class_weights=tuple(map(float, class_weights)), **recipe.settings(), **own)

    @property
    def n_outputs(self) -> int:
        """Of the network."""
        return 1 if self.class_weights is None else len(self.class_weights)

    @property
    def stops_early(self) -> bool:
        """Whether the best epoch on the watched rows is kept; else they are recorded, or there are none."""
        return self.rows.watched is not None and not self.record_every

    @property
    def last_epoch(self) -> int:
        """The epoch that the schedule is cut off after."""
        return min(self.max_epochs, self.stop_epoch or self.max_epochs)

    # Two jobs are never the same one, also where their recipes are.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def has_affine_inputs(self) -> bool:
        """Whether the input encoding will be affine, so that all such jobs can share one copy of the rows."""
        return self.missing == "error" and (self.encoding == "standard" or not self.standardize)


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A fitted network and how it came about.

    ``residual`` is |Σ w (y − q)| / Σ w over the job's balance rows, in float64, after the solve (NaN without one), the
    largest of those of several classes; ``shift`` is what the solve added to the output bias, an array where there are
    several. ``val_logits`` (records, validation rows[, classes]) are those of ``recorded_epochs``, before the solve.
    ``network`` is None where it diverged, and where the job asked for its ``state`` instead. ``n_iter`` counts the
    epochs of this job, without those before its ``start``.
    """

    network: Network | None
    status: Status
    n_iter: int
    loss_curve: NDArray[np.float64]
    val_loss_curve: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    shift: float | NDArray[np.float64] = 0.0
    residual: float = float("nan")
    recorded_epochs: tuple[int, ...] = ()
    val_logits: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    state: TrainingState | None = None
