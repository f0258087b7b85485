"""Training on batches that are never in memory together.

A batch of b rows contributes Σ w ℓ / (b · w̄), where w̄ is the mean of w over all training rows, known beforehand: its
gradient is an unbiased estimate of that of all rows. Several workers add up one vector per step (gradient, losses and
row count) and stay bit-identical; a worker without rows adds zeros.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.theory.rows import Array
from crcen.training.network import InputEncoding, NetworkGroup
from crcen.training.recipe import Recipe, n_batches, one_cycle
from crcen.training.solvers import STEPS_TO_FLUSH, AdamState, adam_factors, flush_denormals, take_step
from crcen.training.stack import Stack, row_weights

# Without a known end the learning rate decreases as 1/√(1 + rows / (batch size × this)).
_STEPS_AT_PEAK = 1000
# Encoded numbers processed at a time.
_NUMBERS_AT_ONCE = 2**18

# Adds up a tensor over all workers, in place, like `torch.distributed.all_reduce`.
AllReduce: TypeAlias = Callable[[Tensor], object]


@dataclass(frozen=True)
class Batch:
    """Encoded rows with ones in the last column (B, F+1), class numbers (B,) and sample weights (B,), of one dtype."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, rows: slice) -> "Batch":
        return Batch(self.x[rows], self.y[rows], self.weight[rows])

    def to(self, device: torch.device) -> "Batch":
        """The same rows on a device."""
        return Batch(self.x.to(device), self.y.to(device), self.weight.to(device))


@dataclass(frozen=True)
class StreamShape:
    """Everything about a streamed fit except the data."""

    n_inputs: int  # encoded columns, without the column of ones
    # networks, objective and schedule. The batch size is that of all workers together and only affects the learning
    # rate of an endless schedule here
    recipe: Recipe
    seeds: tuple[int, ...]  # one per member; a member starts from the same numbers as a `TrainingJob` with that seed
    total_rows: int  # rows of the whole schedule (epochs × training rows); 0 for an endless one
    n_outputs: int = 1  # 1 for two classes, otherwise one per class

    def rate(self, rows_seen: int, n_rows: int) -> float:
        """The learning rate of a step of ``n_rows`` rows after ``rows_seen``."""
        peak = self.recipe.learning_rate
        if self.total_rows:
            return peak * one_cycle((rows_seen + n_rows) / (self.total_rows + n_rows))
        return peak / (1.0 + rows_seen / (self.recipe.batch_rows * _STEPS_AT_PEAK)) ** 0.5


class StreamTrainer:
    """A stack of networks of one shape that learns from successive batches with Adam, in float32."""

    def __init__(self, shape: StreamShape, device: torch.device | str = "cpu", all_reduce: AllReduce | None = None):
        self.shape, self.device, self._all_reduce = shape, torch.device(device), all_reduce
        recipe, n_members = shape.recipe, len(shape.seeds)
        network = (recipe.hidden, recipe.activation, recipe.loss, torch.float32, self.device)
        self._stack = Stack(1, n_members, shape.n_inputs, *network, n_outputs=shape.n_outputs)
        penalty = self._stack.penalties(torch.full((1, n_members), recipe.l2, device=self.device))
        self._adam = AdamState.start(self._stack.flat, self._stack.grad, penalty)
        self._class_weights = torch.zeros(max(2, shape.n_outputs), device=self.device)
        self._loss = torch.zeros(n_members, dtype=torch.float64, device=self.device)
        self._loss_rows = 0
        self.rows_seen = self.n_steps = 0

    def initialise(self, output_bias: float | Array) -> None:
        """Random weights from the members' seeds, and output biases: ideally the log-odds of the weighted classes."""
        seeds = torch.tensor([[seed & (2**63 - 1) for seed in self.shape.seeds]], device=self.device)
        biases = torch.tensor(output_bias, dtype=torch.float32, device=self.device)
        self._stack.initialise(seeds, biases.expand(*seeds.shape, self.shape.n_outputs))

    def start_from(self, group: NetworkGroup) -> None:
        """Use the parameters of fitted networks."""
        self._stack.set_networks(group.weights, group.biases)

    def weigh(self, class_weights: Array, mean_weight: float) -> None:
        """Set the class weights, for two classes (1 − λ, λ), and the mean row weight w̄ over all training rows."""
        self._class_weights = torch.from_numpy(class_weights / mean_weight).to(self.device, torch.float32)

    @torch.no_grad()
    def step(self, batch: Batch | None) -> int:
        """Learn from one batch of each worker, ``None`` for a worker without rows; return the rows of all of them."""
        stack, members = self._stack, len(self.shape.seeds)
        stack.grad.zero_()
        losses, rows = torch.zeros(members, device=self.device), 0
        if batch is not None and len(batch):
            losses = stack.loss_and_gradient(*self._with_axes(batch))[0]
            rows = len(batch)
        if self._all_reduce is not None:
            shared = torch.cat([stack.grad, losses, losses.new_tensor([rows])])
            self._all_reduce(shared)
            stack.grad.copy_(shared[: len(stack.grad)])
            losses, rows = shared[len(stack.grad) : -1], int(shared[-1])
        if rows:
            self._loss += losses
            stack.grad.div_(rows)
            take_step(self._adam, adam_factors(self.shape.rate(self.rows_seen, rows), self.n_steps))
            self._loss_rows += rows
            self.rows_seen += rows
            self.n_steps += 1
            if self.n_steps % STEPS_TO_FLUSH == 0:
                flush_denormals(self._adam)
        return rows

    def _with_axes(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Rows (1, B, F+1), class numbers (1, B, 1) and weights (1, B, M)."""
        y = batch.y[None, :, None]
        weight = row_weights(self._class_weights[None, :, None], y, batch.weight[None, :, None])
        return batch.x[None], y, weight.expand(-1, -1, len(self.shape.seeds))

    @torch.no_grad()
    def losses(self, batches: Iterable[Batch]) -> Array:
        """Weighted loss Σ w ℓ / Σ w of every member on the rows of all workers, without the penalty, (M,)."""
        total = torch.zeros(len(self.shape.seeds) + 1, dtype=torch.float64, device=self.device)
        for batch in batches:
            x, y, weight = self._with_axes(batch)
            total[:-1] += (weight * self._stack.row_loss(self._stack.logits(x), y))[0].sum(0)
            total[-1] += weight[0, :, 0].sum()
        if self._all_reduce is not None:
            self._all_reduce(total)
        return (total[:-1] / total[-1]).cpu().numpy()

    def take_objective(self) -> float:
        """The members' mean objective since the last call: mean loss plus the current penalty."""
        penalty = 0.5 * self._stack.per_model(self._adam.penalty * self._stack.flat**2)[0].double()
        value = float((self._loss / max(self._loss_rows, 1) + penalty).mean())
        self._loss.zero_()
        self._loss_rows = 0
        return value

    @property
    def is_finite(self) -> bool:
        """Whether all parameters are finite."""
        return bool(torch.isfinite(self._stack.flat).all())

    def parameters(self) -> tuple[list[Array], list[Array]]:
        """Weights (M, in, out) and biases (M, out) of each layer, float64 on the host."""
        weights, biases = self._stack.arrays(self._stack.flat)
        return [w[0] for w in weights], [b[0] for b in biases]

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "parameters": self._stack.flat,
            "first_moment": self._adam.first_moment,
            "second_moment": self._adam.second_moment,
            "class_weights": self._class_weights,
            "loss": self._loss,
        }

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Everything needed to resume, as plain arrays (copies)."""
        counts = np.array([self.rows_seen, self.n_steps, self._loss_rows], dtype=np.int64)
        return {name: tensor.cpu().numpy().copy() for name, tensor in self._tensors().items()} | {"counts": counts}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Resume from a `state`."""
        for name, tensor in self._tensors().items():
            tensor.copy_(torch.from_numpy(np.array(state[name])))
        self.rows_seen, self.n_steps, self._loss_rows = (int(count) for count in state["counts"])


def encoded_rows(encoding: InputEncoding, X: Array) -> NDArray[np.float32]:
    """Rows for a `Batch`: encoded in float64, then rounded, with a last column of ones."""
    rows = np.empty((len(X), encoding.size + 1), dtype=np.float32)
    encode_into(rows, encoding, X)
    return rows


def encode_into(rows: NDArray[np.float32], encoding: InputEncoding, X: Array) -> None:
    """`encoded_rows` into existing memory, some rows at a time, to stay in the cache."""
    at_once = max(64, _NUMBERS_AT_ONCE // encoding.size)
    for start in range(0, len(X), at_once):
        rows[start : start + at_once, :-1] = encoding(X[start : start + at_once])
    rows[:, -1] = 1.0


def spread_order(y: NDArray[np.bool_] | NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A random order of rows in which each class is spread evenly."""
    keys = np.empty(len(y))
    for label in np.unique(y):
        own = np.flatnonzero(y == label)
        keys[own] = (rng.permutation(len(own)) + rng.random()) / len(own)
    return np.argsort(keys, kind="stable")


def cut_evenly(n_rows: int, batch_size: int) -> list[slice]:
    """Split rows into batches of one size, at most ``batch_size``; the last one may lack a few rows."""
    if not n_rows:
        return []
    size = -(-n_rows // n_batches(n_rows, batch_size))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
