"""Networks with a loss of their own, trained in stacks: an epoch by autograd moves all of them."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crcen.training.engine import find_device
from crcen.training.jobs import TrainingJob
from crcen.training.module_training import AutogradEpochs
from crcen.training.parameters import group, layer_sizes
from crcen.training.recipe import Inputs, Recipe, Schedule

__all__ = ["StackedNetwork", "train_stack"]


class StackedNetwork(Protocol):
    """What a stack asks of each network: its settings, its loss, and what it learns between epochs."""

    hidden: Any
    l2: float
    max_epochs: int | None
    schedule: Any
    device: str
    counts_: NDArray[np.float64]
    module_: nn.Module
    loss_curve_: NDArray[np.float64]
    _loss_is_of_rows: bool
    _after_epoch: Any  # a method of (net, loss, inputs, target), or None

    def _n_outputs(self) -> int: ...

    def _loss(self, counts: NDArray[np.float64]) -> Any: ...


def train_stack(
    models: Sequence[StackedNetwork], X: NDArray[np.float32], target: NDArray[np.int64], seeds: Sequence[int]
) -> None:
    """Train networks of one shape on the same rows, and write each one's ``module_`` and ``loss_curve_``.

    The curve is the mean over the stack.
    """
    first = models[0]
    schedule = group("schedule", first.schedule, Schedule, "learning_rate=0.02")
    recipes = [
        Recipe.of(
            schedule.in_batches(),
            Inputs(standardize=False),
            hidden=(),
            l2=model.l2,
            max_epochs=model.max_epochs,
            encoding="standard",
            balance=False,
        )
        for model in models
    ]
    job = TrainingJob.by(recipes[0].settled(len(X)), lam=0.5, seed=seeds[0], shuffle_seed=seeds[0])
    device = find_device(first.device)
    nets, losses = [], []
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for model, seed in zip(models, seeds, strict=True):
            torch.manual_seed(seed)
            nets.append(_network(X.shape[1], layer_sizes("hidden", model.hidden), model._n_outputs()).to(device))
            losses.append(model._loss(model.counts_).to(device))
        torch.manual_seed(seeds[0])
        stack = _Stack(nets, [recipe.l2 for recipe in recipes]).to(device)
        rows = _StackRows(
            torch.from_numpy(X).to(device), torch.from_numpy(target).to(device), losses, first._loss_is_of_rows
        )
        solver = _StackEpochs(stack, rows, job, None)  # type: ignore[arg-type]  # rows with losses of their own
        curve = np.empty(job.max_epochs)
        for epoch in range(job.max_epochs):
            curve[epoch] = float(solver.step()) / len(models)
            if first._after_epoch is not None:
                stack.hand_back(nets)
                for model, net, loss in zip(models, nets, losses, strict=True):
                    with torch.no_grad():
                        model._after_epoch(net.eval(), loss, rows.inputs, rows.target)
    stack.hand_back(nets)
    for model, net in zip(models, nets, strict=True):
        model.module_, model.loss_curve_ = net.cpu().eval(), curve


class _Stack(nn.Module):
    """Networks of one shape as a few tensors; their outputs are (network, row, output)."""

    l2: Tensor

    def __init__(self, nets: Sequence[nn.Module], penalties: Sequence[float]) -> None:
        super().__init__()
        layers = [_linear_layers(net) for net in nets]
        self.weights = nn.ParameterList(
            torch.stack([layer.weight.detach().T for layer in same]) for same in zip(*layers, strict=True)
        )
        self.biases = nn.ParameterList(
            torch.stack([layer.bias.detach()[None] for layer in same]) for same in zip(*layers, strict=True)
        )
        self.register_buffer("l2", torch.tensor(penalties, dtype=torch.float32))

    def forward(self, rows: Tensor) -> Tensor:
        hidden = rows.expand(len(self.l2), *rows.shape)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias, hidden.relu() if number else hidden, weight)
        return hidden

    def penalty(self) -> Tensor:
        """Σ ½·l2·‖W‖² over the networks."""
        squares = torch.stack([weight.square().sum(dim=(1, 2)) for weight in self.weights]).sum(dim=0)
        return 0.5 * (self.l2 * squares).sum()

    @torch.no_grad()
    def hand_back(self, nets: Sequence[nn.Module]) -> None:
        """Write every network's parameters into the module it came from."""
        for number, net in enumerate(nets):
            for layer, weight, bias in zip(_linear_layers(net), self.weights, self.biases, strict=True):
                layer.weight.copy_(weight[number].T)
                layer.bias.copy_(bias[number, 0])


class _StackEpochs(AutogradEpochs):
    """Epochs of a stack, whose networks have a penalty each."""

    def _penalty(self) -> Tensor:
        return self.module.penalty()  # type: ignore[operator]


class _StackRows:
    """Rows that all networks of a stack see, and a loss for each, as `AutogradEpochs` asks for them."""

    def __init__(self, inputs: Tensor, target: Tensor, losses: Sequence[nn.Module], of_rows: bool) -> None:
        self.inputs, self.target, self._losses, self._of_rows = inputs, target, losses, of_rows

    def loss(self, stack: nn.Module, part: Tensor, _: int) -> Tensor:
        """What a batch adds to the epoch's loss, summed over the networks."""
        outputs, target = stack(self.inputs[part]), self.target[part]
        if self._of_rows:
            total = len(outputs) * self._losses[0](outputs.flatten(0, 1), target.repeat(len(outputs)))
        else:
            total = sum(loss(own, target) for loss, own in zip(self._losses, outputs, strict=True))
        return total * (len(part) / len(self.target))


def _linear_layers(net: nn.Module) -> list[nn.Linear]:
    return [layer for layer in net.modules() if isinstance(layer, nn.Linear)]


def _network(n_inputs: int, hidden: tuple[int, ...], n_outputs: int) -> nn.Module:
    """A body of relu layers, and a linear head as the last module."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(n_inputs, size), nn.ReLU()]
        n_inputs = size
    return nn.Sequential(nn.Sequential(*layers), nn.Linear(n_inputs, n_outputs))
