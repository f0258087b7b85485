"""Training jobs on PyTorch modules of the caller's own: an epoch by autograd, behind the protocol of every solver."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from crcen.exceptions import InvalidParameter
from crcen.theory.balance import class_shifts, solve_shift
from crcen.training.engine import find_device
from crcen.training.jobs import Status, TrainingJob, TrainingResult
from crcen.training.module_member import FittedModule, as_tensor, built, logits_of
from crcen.training.schedule import n_batches, one_cycle

__all__ = ["AutogradEpochs", "ModuleRows", "train_modules"]

_PATIENCE = 10

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class ModuleRows:
    """Rows of a job on its device: inputs of any shape, targets (0/1 or class numbers), weights with Σ w = 1."""

    inputs: Tensor
    target: Tensor
    weights: Tensor

    @classmethod
    def of(
        cls, X: NDArray[Any], y: NDArray[Any], sizes: Array, rows: Index, job: TrainingJob, device: torch.device
    ) -> "ModuleRows":
        """Some rows, weighed as the job's loss does."""
        weights = _row_weights(job, y[rows], sizes[rows])
        return cls(
            as_tensor(X[rows]).to(device),
            torch.from_numpy(y[rows].astype(np.int64)).to(device),
            torch.from_numpy(weights / weights.sum()).to(device, torch.float32),
        )

    def loss(self, module: nn.Module, part: Tensor, n_outputs: int) -> Tensor:
        """Σ w ℓ of some of these rows."""
        logits = logits_of(module, self.inputs[part], n_outputs).float()
        y = self.target[part]
        if n_outputs == 1:
            margin = torch.where(y == 1, logits[:, 0], -logits[:, 0])
            return (self.weights[part] * softplus(-margin)).sum()
        return (self.weights[part] * cross_entropy(logits, y, reduction="none")).sum()


def _row_weights(job: TrainingJob, y: NDArray[Any], sizes: Array) -> Array:
    if job.class_weights is None:
        return np.asarray(np.where(y == 1, job.lam, 1.0 - job.lam) * sizes)
    return np.asarray(np.array(job.class_weights)[y.astype(np.int64)] * sizes)


class AutogradEpochs:
    """Epochs of mini-batches on one module: what the loop asks of a `crcen.training.solvers.objective.Solver`.

    The optimizer's own rates are the peaks of one cycle. Weights, which have two dimensions or more, are penalised by
    ½·l2·‖W‖²; biases and norms are not.
    """

    def __init__(self, module: nn.Module, rows: ModuleRows, job: TrainingJob, optimizer: Any) -> None:
        self.module, self.rows, self.job = module, rows, job
        self.optimizer = _optimizer(optimizer, module, job)
        self.peaks = [group["lr"] for group in self.optimizer.param_groups]
        self.generator = np.random.default_rng(np.random.SeedSequence([job.shuffle_seed, job.seed]))
        self.count = n_batches(len(rows.target), job.batch_size)
        self.steps = 0

    def step(self) -> Tensor:
        """One epoch; the mean objective of its batches, (1, 1)."""
        self.module.train()
        total = 0.0
        order = self.generator.permutation(len(self.rows.target))
        for part in np.array_split(order, self.count):
            self._rate()
            self.optimizer.zero_grad()
            with torch.enable_grad():
                loss = self.count * self.rows.loss(
                    self.module, torch.from_numpy(part).to(self.rows.target.device), self.job.n_outputs
                )
                penalty = self._penalty()
                torch.autograd.backward(loss + penalty)
            self.optimizer.step()
            self.steps += 1
            total += float(loss.detach() + penalty.detach() if isinstance(penalty, Tensor) else loss.detach())
        return torch.full((1, 1), total / self.count, dtype=torch.float64)

    def converged(self) -> Tensor:
        """Never before the schedule is run."""
        return torch.zeros((1, 1), dtype=torch.bool)

    def state(self) -> tuple[Tensor, ...]:
        """The parameters as one vector."""
        return (nn.utils.parameters_to_vector(self.module.parameters()).detach().clone(),)

    def restore(self, state: Sequence[Tensor]) -> None:
        """Put such a vector back."""
        nn.utils.vector_to_parameters(state[0], self.module.parameters())

    def _rate(self) -> None:
        share = one_cycle((self.steps + 1) / (self.count * self.job.max_epochs))
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * share

    def _penalty(self) -> Tensor | float:
        if not self.job.l2:
            return 0.0
        squares = [(p**2).sum() for p in self.module.parameters() if p.ndim > 1 and p.requires_grad]
        return 0.5 * self.job.l2 * torch.stack(squares).sum() if squares else 0.0


def _optimizer(given: Any, module: nn.Module, job: TrainingJob) -> torch.optim.Optimizer:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise InvalidParameter("the module has no parameter that can be trained.")
    if given is None:
        return torch.optim.Adam(parameters, lr=job.learning_rate)
    if not callable(given):
        raise InvalidParameter(
            f"optimizer must be a class such as torch.optim.SGD, or what makes one from parameters: got {given!r}."
        )
    made = given(parameters, lr=job.learning_rate) if isinstance(given, type) else given(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise InvalidParameter(f"optimizer must give a torch.optim.Optimizer: got {type(made).__name__}.")
    return made


def train_modules(
    X: NDArray[Any],
    y: NDArray[Any],
    jobs: Sequence[TrainingJob],
    *,
    module: Any,
    optimizer: Any = None,
    sample_weight: Array,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[TrainingResult]:
    """`crcen.training.engine.train` for modules of the caller's own, one after the other.

    Parameters
    ----------
    X, y, sample_weight
        All rows: inputs of any shape; 0/1 or class numbers; row weights.
    jobs
        What to train. Hidden layers, activation, encoding and solver of their recipes do not count.
    module
        An ``nn.Module``, which is copied as it is, or what makes one: then each job's seed makes its own.
    optimizer
        A class of ``torch.optim``, or what makes one from parameters; Adam without.
    device, progress
        As in `train`.
    """
    where = find_device(device)
    results = []
    for number, job in enumerate(jobs):
        devices = [where] if where.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(job.seed & (2**63 - 1))
            results.append(_trained(X, y, sample_weight, job, module, optimizer, where, number, len(jobs), progress))
    return results


def _trained(
    X: NDArray[Any],
    y: NDArray[Any],
    sizes: Array,
    job: TrainingJob,
    module: Any,
    optimizer: Any,
    device: torch.device,
    number: int,
    n_jobs: int,
    progress: Progress | None,
) -> TrainingResult:
    net = built(module).to(device)
    own = job.rows.trained(len(y))
    rows = ModuleRows.of(X, y, sizes, own, job, device)
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in net.parameters()):
        with torch.no_grad():
            net.eval()(rows.inputs[:2])  # lazy layers take their shapes from rows
    watched = None if job.rows.watched is None else ModuleRows.of(X, y, sizes, job.rows.watched, job, device)
    solver = AutogradEpochs(net, rows, job, optimizer)
    losses: list[float] = []
    val_losses: list[float] = []
    best, best_epoch = copy.deepcopy(net.state_dict()), 0
    status = Status.COMPLETED
    for epoch in range(job.max_epochs):
        losses.append(float(solver.step()))
        if progress is not None:
            progress((number + (epoch + 1) / job.max_epochs) / n_jobs)
        if not np.isfinite(losses[-1]):
            return TrainingResult(None, Status.DIVERGED, len(losses), np.array(losses), np.array(val_losses))
        if watched is None:
            continue
        val_losses.append(_mean_loss(net, watched, job.n_outputs))
        if val_losses[-1] <= min(val_losses):
            best, best_epoch = copy.deepcopy(net.state_dict()), epoch
        elif epoch - best_epoch >= _PATIENCE:
            status = Status.EARLY_STOPPED
            break
    if watched is not None:
        net.load_state_dict(best)
        if best_epoch + 1 < len(losses):
            status = Status.EARLY_STOPPED
    fitted = FittedModule.of(net, job.n_outputs)
    if not all(np.isfinite(value).all() for value in fitted.state.values()):
        return TrainingResult(None, Status.DIVERGED, len(losses), np.array(losses), np.array(val_losses))
    shift = np.zeros(job.n_outputs)
    if job.balance:
        balanced_on = job.rows.solved(len(y), stops_early=job.stops_early)
        shift = _solved(fitted, X[balanced_on], y[balanced_on], sizes[balanced_on], job)
    return TrainingResult(
        fitted.shifted(shift),  # type: ignore[arg-type]  # answers as a Network does
        status,
        len(losses),
        np.array(losses),
        np.array(val_losses),
        shift=float(shift[-1]),
    )


@torch.no_grad()
def _mean_loss(net: nn.Module, rows: ModuleRows, n_outputs: int) -> float:
    net.eval()
    parts = torch.split(torch.arange(len(rows.target), device=rows.target.device), 1024)
    return float(sum(float(rows.loss(net, part, n_outputs)) for part in parts))


def _solved(fitted: FittedModule, X: NDArray[Any], y: NDArray[Any], sizes: Array, job: TrainingJob) -> Array:
    logits = fitted.logits(X)
    if job.class_weights is None:
        return np.array([solve_shift(y == 1, logits, _row_weights(job, y, sizes))])
    return class_shifts(y.astype(np.int64), logits, np.array(job.class_weights), sizes)
