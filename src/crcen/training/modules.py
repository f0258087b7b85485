"""User-supplied PyTorch modules: training by autograd, and fitted modules as members of a model."""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.balance import class_shifts, solve_shift
from crcen.theory.rows import Array, Index
from crcen.training.device import THREADS, find_device
from crcen.training.jobs import Status, TrainingJob, TrainingResult
from crcen.training.recipe import n_batches, one_cycle

# Rows at a time in prediction: the same rows in the same order then give the same bits.
_ROWS = 256
_PATIENCE = 10

Progress = Callable[[float], None]


def built(module: object) -> nn.Module:
    """A module from a factory, or a copy of a module."""
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    made = module() if callable(module) else module
    if not isinstance(made, nn.Module):
        raise InvalidParameter(f"module must be an nn.Module or a factory of one: got {type(made).__name__}.")
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
    """One trained module as a member of a model: its state as arrays, and the shift of the balance solve."""

    state: dict[str, NDArray[np.generic]]  # the ``state_dict``
    n_outputs: int  # 1 for two classes, otherwise their number
    shift: Array  # added to the logits, in float64
    module: nn.Module | None = None  # the module with this state; not part of files

    @classmethod
    def of(cls, module: nn.Module, n_outputs: int) -> "FittedModule":
        """A copy of a module with its current parameters."""
        own = copy.deepcopy(module).cpu().eval()
        state = {name: np.asarray(value.detach().numpy()).copy() for name, value in own.state_dict().items()}
        return cls(state, n_outputs, np.zeros(n_outputs), own)

    def filled(self, module: object) -> "FittedModule":
        """The same with a module given by the caller, into which the state is loaded."""
        own = built(module)
        try:
            own.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in self.state.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise InvalidParameter(f"the module does not fit the stored arrays: {reason[:200]}") from error
        return replace(self, module=own.cpu().eval())

    def logits(self, X: NDArray[np.generic]) -> Array:
        """Weighted logits of rows, float64 (n, C), with one column for two classes, on one torch thread."""
        module, inputs = self.module, as_tensor(X)
        if module is None:
            message = "this model was loaded without its module: files hold arrays, not code"
            raise InvalidParameter(f"{message}; give the factory it was made with, crcen.load(path, module=...).")
        with torch.no_grad(), THREADS.set(1):  # a forked process would wait forever for a thread pool
            parts = [logits_of(module, part, self.n_outputs).double().numpy() for part in torch.split(inputs, _ROWS)]
        return np.asarray(np.concatenate(parts) + self.shift)

    def arrays(self) -> dict[str, Any]:
        """State and shift."""
        return {"state": self.state, "shift": self.shift}


@dataclass(frozen=True, eq=False)
class ModuleRows:
    """Rows of a job on its device: inputs of any shape, class numbers, weights with Σ w = 1."""

    inputs: Tensor
    target: Tensor
    weights: Tensor

    def loss(self, module: nn.Module, part: Tensor, n_outputs: int) -> Tensor:
        """Σ w ℓ of some of these rows."""
        logits = logits_of(module, self.inputs[part], n_outputs).float()
        y = self.target[part]
        if n_outputs == 1:
            return (self.weights[part] * softplus(torch.where(y == 1, -logits[:, 0], logits[:, 0]))).sum()
        return (self.weights[part] * cross_entropy(logits, y, reduction="none")).sum()

    @torch.no_grad()
    def mean_loss(self, module: nn.Module, n_outputs: int) -> float:
        """Σ w ℓ of all rows, some at a time."""
        module.eval()
        parts = torch.split(torch.arange(len(self.target), device=self.target.device), 1024)
        return float(sum(float(self.loss(module, part, n_outputs)) for part in parts))


def _optimizer(given: object, module: nn.Module, job: TrainingJob) -> torch.optim.Optimizer:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise InvalidParameter("the module has no parameter that can be trained.")
    if given is None:
        return torch.optim.Adam(parameters, lr=job.learning_rate)
    made = None  # an optimizer itself has the parameters of another module
    if callable(given):
        made = given(parameters, lr=job.learning_rate) if isinstance(given, type) else given(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        allowed = "a class such as torch.optim.SGD, or a function from parameters to an optimizer"
        raise InvalidParameter(f"optimizer must be {allowed}: got {given if made is None else made!r}.")
    return made


def epochs(net: nn.Module, rows: ModuleRows, job: TrainingJob, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    """Run epochs of mini-batches; yield the mean objective of each.

    The optimizer's learning rates are the peaks of one cycle. Parameters with two or more dimensions are penalised by
    ½·l2·‖W‖²; biases and norms are not.
    """
    peaks = [group["lr"] for group in optimizer.param_groups]
    generator = np.random.default_rng(np.random.SeedSequence([job.shuffle_seed, job.seed]))
    count = n_batches(len(rows.target), job.batch_size)
    for epoch in range(job.max_epochs):
        net.train()
        total = 0.0
        for i, part in enumerate(np.array_split(generator.permutation(len(rows.target)), count)):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * one_cycle((epoch * count + i + 1) / (count * job.max_epochs))
            optimizer.zero_grad()
            with torch.enable_grad():
                objective = count * rows.loss(net, torch.from_numpy(part).to(rows.target.device), job.n_outputs)
                squares = [(p**2).sum() for p in net.parameters() if p.ndim > 1 and p.requires_grad] if job.l2 else []
                if squares:
                    objective = objective + 0.5 * job.l2 * torch.stack(squares).sum()
                torch.autograd.backward(objective)
            optimizer.step()
            total += float(objective.detach())
        yield total / count


def train_modules(
    X: NDArray[np.generic],
    y: NDArray[np.generic],
    module: object,
    optimizer: object,
    jobs: Sequence[TrainingJob],
    *,
    sample_weight: Array,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[TrainingResult]:
    """Train copies of a user-supplied module, one after the other."""
    where, numbers = find_device(device), y.astype(np.int64)
    results = []
    for i, job in enumerate(jobs):

        def report(share: float, done: int = i) -> None:
            if progress is not None:
                progress((done + share) / len(jobs))

        weights = np.array(job.class_weights)[numbers] * sample_weight

        def on_device(own: Index, weights: Array = weights) -> ModuleRows:
            shares = torch.from_numpy(weights[own] / weights[own].sum()).to(where, torch.float32)
            return ModuleRows(as_tensor(X[own]).to(where), torch.from_numpy(numbers[own]).to(where), shares)

        with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
            torch.manual_seed(job.seed & (2**63 - 1))
            net = built(module).to(where)
            if isinstance(net, nn.Sequential) and isinstance(last := [*net.modules()][-1], nn.Softmax | nn.Sigmoid):
                message = f"the module ends in {type(last).__name__}, but must return logits: leave it out."
                warnings.warn(message, UserWarning, stacklevel=2)
            validation = None if job.validation is None else on_device(job.validation)
            result = _trained(on_device(job.trained(len(y))), validation, job, net, optimizer, report)
            if result.network is not None and job.balance:
                result = _balanced(result, X, numbers, weights, sample_weight, job)
        results.append(result)
    return results


def _trained(
    rows: ModuleRows, validation: ModuleRows | None, job: TrainingJob, net: nn.Module, optimizer: object, show: Progress
) -> TrainingResult:
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in net.parameters()):
        with torch.no_grad():
            net.eval()(rows.inputs[:2])  # lazy layers take their shapes from rows
    losses: list[float] = []
    val_losses: list[float] = []
    best, best_epoch = copy.deepcopy(net.state_dict()), 0

    def result(network: Any, status: Status) -> TrainingResult:
        return TrainingResult(network, status, len(losses), np.array(losses), np.array(val_losses))

    for epoch, loss in enumerate(epochs(net, rows, job, _optimizer(optimizer, net, job))):
        losses.append(loss)
        show((epoch + 1) / job.max_epochs)
        if not np.isfinite(loss):
            return result(None, Status.DIVERGED)
        if validation is None:
            continue
        val_losses.append(validation.mean_loss(net, job.n_outputs))
        if val_losses[-1] <= min(val_losses):
            best, best_epoch = copy.deepcopy(net.state_dict()), epoch
        elif epoch - best_epoch >= _PATIENCE:
            break
    if validation is not None:
        net.load_state_dict(best)
    fitted = FittedModule.of(net, job.n_outputs)
    if not all(np.isfinite(value).all() for value in fitted.state.values()):
        return result(None, Status.DIVERGED)
    is_whole = validation is None or best_epoch + 1 == len(losses)
    return result(fitted, Status.COMPLETED if is_whole else Status.EARLY_STOPPED)


def _balanced(
    result: TrainingResult, X: NDArray[np.generic], y: Index, weights: Array, sizes: Array, job: TrainingJob
) -> TrainingResult:
    """The result with the shift that makes the key equation exact."""
    fitted: Any = result.network  # has the methods of a Network
    own = job.balanced(len(y))
    logits = fitted.logits(X[own])
    if job.n_outputs == 1:
        shift = np.array([solve_shift(y[own] == 1, logits[:, 0], weights[own])])
    else:
        shift = class_shifts(y[own], logits, np.array(job.class_weights), sizes[own])
    return replace(result, network=replace(fitted, shift=fitted.shift + shift), shift=shift)
