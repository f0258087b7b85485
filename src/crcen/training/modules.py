"""User-supplied PyTorch modules: training by autograd, and fitted modules as members of a model."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.balance import class_shifts, solve_shift
from crcen.theory.rows import Array, Index
from crcen.training.device import find_device
from crcen.training.jobs import Status, TrainingJob, TrainingResult
from crcen.training.recipe import n_batches, one_cycle
from crcen.training.threads import THREADS

# Rows at a time in prediction: the same rows in the same order then give the same bits.
_ROWS = 256
_PATIENCE = 10

Progress = Callable[[float], None]


def built(module: object) -> nn.Module:
    """A module from a factory, or a copy of a module."""
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    if not callable(module):
        raise InvalidParameter(f"module must be an nn.Module or a factory: got {type(module).__name__}.")
    made = module()
    if not isinstance(made, nn.Module):
        raise InvalidParameter(f"module() must return an nn.Module: got {type(made).__name__}.")
    return made


def as_tensor(X: NDArray[np.generic]) -> Tensor:
    """Rows as input of a module: real numbers in float32, integers as int64."""
    if X.dtype.kind in "iu":
        return torch.from_numpy(np.ascontiguousarray(X, dtype=np.int64))
    return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))


def logits_of(module: nn.Module, inputs: Tensor, n_outputs: int) -> Tensor:
    """Logits (n, C) of a module; two logits for two classes become their difference."""
    out = module(inputs)
    logits = getattr(out, "logits", out)
    if isinstance(logits, Tensor) and logits.ndim == 1:
        logits = logits[:, None]
    if isinstance(logits, Tensor) and logits.ndim == 2 and logits.shape[1] == 2 and n_outputs == 1:
        logits = logits[:, 1:] - logits[:, :1]
    if not isinstance(logits, Tensor) or logits.shape != (len(inputs), n_outputs):
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        allowed = "(rows,), (rows, 1) or (rows, 2)" if n_outputs == 1 else f"(rows, {n_outputs})"
        raise InvalidInput(f"the module must return logits of shape {allowed} for {len(inputs)} rows: got {got}.")
    return logits


@dataclass(frozen=True, eq=False)
class FittedModule:
    """One trained module: its state as arrays, and the shift of the balance solve."""

    state: dict[str, NDArray[np.generic]]  # the ``state_dict``
    n_outputs: int  # 1 for two classes, otherwise their number
    shift: Array  # added to the logits, in float64

    @classmethod
    def of(cls, module: nn.Module, n_outputs: int) -> "FittedModule":
        """A copy of a module with its current parameters."""
        own = copy.deepcopy(module).cpu().eval()
        state = {name: np.asarray(value.detach().numpy()).copy() for name, value in own.state_dict().items()}
        return cls(state, n_outputs, np.zeros(n_outputs)).around(own)

    def around(self, module: nn.Module) -> "FittedModule":
        """The same with the module that the state belongs to."""
        found = FittedModule(self.state, self.n_outputs, self.shift)
        object.__setattr__(found, "_module", module)
        return found

    def filled(self, module: object) -> "FittedModule":
        """The same with a module given by the caller, into which the state is loaded."""
        own = built(module)
        try:
            own.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in self.state.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise InvalidParameter(f"the module does not fit the stored arrays: {reason[:200]}") from error
        return self.around(own.cpu().eval())

    def without_code(self) -> "FittedModule":
        """The same without its module."""
        return FittedModule(self.state, self.n_outputs, self.shift)

    def shifted(self, shift: Array) -> "FittedModule":
        """The same with a shift added to its logits."""
        return FittedModule(self.state, self.n_outputs, self.shift + shift).around(self._own())

    def _own(self) -> nn.Module:
        module = vars(self).get("_module")
        if module is None:
            raise InvalidParameter(
                "this model was loaded without its module: files hold arrays, not code; give the factory it was made "
                "with, crcen.load(path, module=...)."
            )
        return module

    def logits(self, X: NDArray[np.generic]) -> Array:
        """Weighted logits of rows, float64 (n,), or (n, C) for C classes, on one torch thread."""
        module, inputs = self._own(), as_tensor(X)
        with torch.no_grad(), THREADS.set(1):  # a forked process would wait forever for a thread pool
            parts = [logits_of(module, part, self.n_outputs).double().numpy() for part in torch.split(inputs, _ROWS)]
        found = np.concatenate(parts) + self.shift
        return found[:, 0] if self.n_outputs == 1 else found


@dataclass(frozen=True, eq=False)
class ModuleGroup:
    """Fitted modules whose logits are averaged."""

    modules: tuple[FittedModule, ...]

    def __len__(self) -> int:
        return len(self.modules)

    def logits(self, X: NDArray[np.generic]) -> Array:
        """Mean logits, (n, 1) or (n, C)."""
        mean = np.mean([module.logits(X) for module in self.modules], axis=0)
        return np.asarray(mean[:, None] if mean.ndim == 1 else mean)

    def arrays(self) -> dict[str, Any]:
        """The state of every module."""
        return {"modules": [{"state": one.state, "shift": one.shift} for one in self.modules]}

    def without_code(self) -> "ModuleGroup":
        """The same without the modules."""
        return ModuleGroup(tuple(one.without_code() for one in self.modules))

    def filled(self, module: object) -> "ModuleGroup":
        """The same with modules given by the caller."""
        return ModuleGroup(tuple(one.filled(module) for one in self.modules))


# -- training ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ModuleRows:
    """Rows of a job on its device: inputs of any shape, class numbers, weights with Σ w = 1."""

    inputs: Tensor
    target: Tensor
    weights: Tensor

    @classmethod
    def of(
        cls,
        X: NDArray[np.generic],
        y: NDArray[np.generic],
        sizes: Array,
        rows: Index,
        job: TrainingJob,
        device: torch.device,
    ) -> "ModuleRows":
        """Some rows, weighted as in the job's loss."""
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


def _row_weights(job: TrainingJob, y: NDArray[np.generic], sizes: Array) -> Array:
    return np.asarray(np.array(job.class_weights)[y.astype(np.int64)] * sizes)


class AutogradEpochs:
    """Epochs of mini-batches on one module, a `crcen.training.solvers.Solver`.

    The optimizer's learning rates are the peaks of one cycle. Parameters with two or more dimensions are penalised by
    ½·l2·‖W‖²; biases and norms are not.
    """

    def __init__(self, module: nn.Module, rows: ModuleRows, job: TrainingJob, optimizer: object) -> None:
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
                own = torch.from_numpy(part).to(self.rows.target.device)
                loss = self.count * self.rows.loss(self.module, own, self.job.n_outputs)
                penalty = self._penalty()
                torch.autograd.backward(loss + penalty)
            self.optimizer.step()
            self.steps += 1
            total += float(loss.detach() + penalty.detach() if isinstance(penalty, Tensor) else loss.detach())
        return torch.full((1, 1), total / self.count, dtype=torch.float64)

    def converged(self) -> Tensor:
        """Never: the whole schedule is run."""
        return torch.zeros((1, 1), dtype=torch.bool)

    def state(self) -> tuple[Tensor, ...]:
        """The parameters as one vector."""
        return (nn.utils.parameters_to_vector(self.module.parameters()).detach().clone(),)

    def restore(self, state: Sequence[Tensor]) -> None:
        """Resume from such a vector."""
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


def _optimizer(given: object, module: nn.Module, job: TrainingJob) -> torch.optim.Optimizer:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise InvalidParameter("the module has no parameter that can be trained.")
    if given is None:
        return torch.optim.Adam(parameters, lr=job.learning_rate)
    if not callable(given):
        raise InvalidParameter(
            f"optimizer must be a class such as torch.optim.SGD, or a function of the parameters: got {given!r}."
        )
    made = given(parameters, lr=job.learning_rate) if isinstance(given, type) else given(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise InvalidParameter(f"optimizer must return a torch.optim.Optimizer: got {type(made).__name__}.")
    return made


def train_modules(
    X: NDArray[np.generic],
    y: NDArray[np.generic],
    jobs: Sequence[TrainingJob],
    module: object,
    optimizer: object = None,
    *,
    sample_weight: Array,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[TrainingResult]:
    """`crcen.training.engine.train` for user-supplied modules, one after the other."""
    where = find_device(device)
    results = []
    for number, job in enumerate(jobs):
        devices = [where] if where.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(job.seed & (2**63 - 1))
            results.append(_trained(X, y, sample_weight, job, module, optimizer, where, number, len(jobs), progress))
    return results


def _trained(
    X: NDArray[np.generic],
    y: NDArray[np.generic],
    sizes: Array,
    job: TrainingJob,
    module: object,
    optimizer: object,
    device: torch.device,
    number: int,
    n_jobs: int,
    progress: Progress | None,
) -> TrainingResult:
    net = built(module).to(device)
    own = job.trained(len(y))
    rows = ModuleRows.of(X, y, sizes, own, job, device)
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in net.parameters()):
        with torch.no_grad():
            net.eval()(rows.inputs[:2])  # lazy layers take their shapes from rows
    watched = None if job.watched is None else ModuleRows.of(X, y, sizes, job.watched, job, device)
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
        balanced_on = job.balanced(len(y))
        shift = _solved(fitted, X[balanced_on], y[balanced_on], sizes[balanced_on], job)
    network: Any = fitted.shifted(shift)  # has the methods of a Network
    return TrainingResult(network, status, len(losses), np.array(losses), np.array(val_losses), shift=shift)


@torch.no_grad()
def _mean_loss(net: nn.Module, rows: ModuleRows, n_outputs: int) -> float:
    net.eval()
    parts = torch.split(torch.arange(len(rows.target), device=rows.target.device), 1024)
    return float(sum(float(rows.loss(net, part, n_outputs)) for part in parts))


def _solved(
    fitted: FittedModule, X: NDArray[np.generic], y: NDArray[np.generic], sizes: Array, job: TrainingJob
) -> Array:
    logits = fitted.logits(X)
    if job.n_outputs == 1:
        return np.array([solve_shift(y == 1, logits, _row_weights(job, y, sizes))])
    return class_shifts(y.astype(np.int64), logits, np.array(job.class_weights), sizes)
