"""Training jobs: what to train, on which rows, and the results."""

import hashlib
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, fields
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter
from crcen.theory.rows import Index
from crcen.training.network import Network
from crcen.training.recipe import ADAM, SOLVERS, Recipe


def digest(rows: Index | None) -> bytes:
    """A hash of a list of rows."""
    return b"all" if rows is None else hashlib.blake2b(np.ascontiguousarray(rows).data, digest_size=16).digest()


class Status(Enum):
    """How training ended; the value is a message for users."""

    CONVERGED = "the gradient or the loss no longer changes"
    COMPLETED = "the full learning-rate schedule was run"
    EARLY_STOPPED = "the validation loss no longer decreased; the best epoch was kept"
    MAX_EPOCHS = "the iteration limit was reached before the gradient was small; raise max_epochs or l2"
    DIVERGED = "the loss became infinite or NaN; lower learning_rate or raise l2"


@dataclass(frozen=True, eq=False)
class TrainingState:
    """The state of Adam after an epoch: parameters and both moments, (3, parameters)."""

    epoch: int
    values: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TrainingJob(Recipe):
    """One network to train: a settled recipe, class weights, rows and seeds."""

    class_weights: tuple[float, ...]  # A weight for each of K ≥ 2 classes; for two classes (1 − λ, λ)
    _: KW_ONLY
    rows: Index | None = None  # numbers of the training rows; ``None`` for all rows of the table
    validation: Index | None = None  # validation rows for early stopping or recording; ``None`` for none
    solver: str = ADAM.name
    max_epochs: int = 30
    batch_size: int = 128
    tol: float = 1e-6
    encoding: str = "standard"
    column_scales: bool = False
    seed: int = 0  # initial parameters and batch order. The result of a job does not depend on other jobs
    shuffle_seed: int = 0
    outputs: int | None = None  # outputs of the network; ``None`` for one with two classes, otherwise K
    stop_epoch: int | None = None  # stop the schedule of ``max_epochs`` after this epoch
    # record the validation logits every so many epochs, and at the last, instead of stopping early
    record_every: int = 0
    start: TrainingState | None = None  # resume from the state of an earlier job with the same settings (Adam only)
    leaves_state: bool = False  # return the state instead of the network, so that a later job can resume (Adam only)

    def __post_init__(self) -> None:
        """Validate."""
        super().__post_init__()
        self._check()

    def _check(self) -> None:
        """Validate everything that is not part of the recipe."""
        open_ends = (self.max_epochs, self.batch_size, self.column_scales)
        if self.solver not in SOLVERS or None in open_ends or "auto" in (self.encoding, self.column_scales):
            raise InvalidParameter("a training job needs a recipe without open parameters: use Recipe.settled first.")
        weights = tuple(float(weight) for weight in self.class_weights)
        object.__setattr__(self, "class_weights", weights)
        if len(weights) < 2 or not all(0.0 < weight < np.inf for weight in weights):
            raise InvalidParameter(f"class_weights must be two or more positive numbers: got {weights!r}.")
        if (self.start or self.leaves_state) and (not self.draws_batches or self.stops_early):
            raise InvalidParameter("only a job of Adam that does not stop early can be resumed; use record_every.")
        if self.start is not None and not 0 < self.start.epoch < self.last_epoch:
            raise InvalidParameter(f"start must be before the last epoch, {self.last_epoch}: got {self.start.epoch}.")

    @classmethod
    def by(cls, recipe: Recipe, class_weights: Iterable[float], **own: Any) -> "TrainingJob":
        """A job from a settled recipe, which is not validated again, with its rows, seeds and so on."""
        job = object.__new__(cls)
        job.__dict__.update(_JOB_DEFAULTS, **recipe.settings(), class_weights=tuple(class_weights), **own)
        job._check()
        return job

    @property
    def n_outputs(self) -> int:
        """Outputs of the network: by default one for two classes."""
        return self.outputs or (1 if len(self.class_weights) == 2 else len(self.class_weights))

    @property
    def stops_early(self) -> bool:
        """Whether the best epoch on the validation rows is kept."""
        return self.validation is not None and not self.record_every

    def trained(self, n_rows: int) -> Index:
        """Training rows of a table with ``n_rows`` rows."""
        return np.arange(n_rows) if self.rows is None else self.rows

    def n_trained(self, n_rows: int) -> int:
        """Number of training rows."""
        return n_rows if self.rows is None else len(self.rows)

    def balanced(self, n_rows: int) -> Index:
        """Rows on which the balance solve makes the key equation exact: also those of early stopping."""
        own = self.trained(n_rows)
        return np.concatenate([own, self.validation]) if self.stops_early and self.validation is not None else own

    @property
    def first_epoch(self) -> int:
        """Epochs of earlier jobs."""
        return self.start.epoch if self.start else 0

    @property
    def last_epoch(self) -> int:
        """The epoch after which training stops."""
        return min(self.max_epochs, self.stop_epoch or self.max_epochs)

    # Two jobs are different even if all their values are equal.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


_JOB_DEFAULTS = {one.name: one.default for one in fields(TrainingJob) if one.name != "class_weights"}


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A trained network and how training ended.

    ``network`` is None if training diverged or the job requested its ``state``. ``n_iter`` counts the epochs of this
    job. ``shift`` was added to the output biases by the balance solve. ``val_logits`` (records, validation rows[,
    classes]) belong to ``recorded_epochs``, before the solve.
    """

    network: Network | None
    status: Status
    n_iter: int
    loss_curve: NDArray[np.float64]
    val_loss_curve: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    shift: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    recorded_epochs: tuple[int, ...] = ()
    val_logits: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    state: TrainingState | None = None
