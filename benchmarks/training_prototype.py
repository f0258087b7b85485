"""Networks in plain PyTorch in which every ingredient of training is a switch, for `training_choices.py`.

Many networks are trained at once: groups of rows (folds, splits) × penalties × members, by batched products. Gradients
come from autograd, so an ingredient costs a few lines here, where the library's own stack would want its derivative.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, dropout, logsigmoid

from crcen.training.adam import one_cycle

_SMALL = 3000


@dataclass(frozen=True)
class Choice:
    """How networks are trained; as it stands, what the library does."""

    hidden: tuple[tuple[int, ...], ...] = ((64,), (64, 32))
    l2: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)
    members: int = 4
    epochs: int = 30
    rate: float = 0.01
    schedule: str = "one cycle"
    beta2: float = 0.999
    batch: int = 128
    small_batch: int = 0  # the batch where there are fewer than `_SMALL` rows
    least_steps: int = 0  # an epoch has at least so many steps, with batches down to 8
    enough_steps: int = 0  # so many epochs that there are at least these steps in all
    is_spread: bool = True  # the classes are spread evenly over the batches
    dropout: float = 0.0
    column_dropout: float = 0.0  # of encoded columns
    feature_dropout: float = 0.0  # of features, with all their columns
    is_shared: bool = False  # members are one network with scales of their own (TabM)
    bagging: str = ""  # "poisson" or "exponential" weights of rows for each member
    scales: str = ""  # learnable scale of each encoded column: "free", or "penalised" as the weights are
    scale_speed: float = 6.0  # rate of the scales over that of the weights; six is RealMLP's
    is_decoupled: bool = False  # weight decay in AdamW's manner
    chosen_by: str = "one"  # penalty, shape and epochs by the loss of the first member, or of "all" averaged
    average: str = "logits"  # of the members, or "probabilities"

    def batch_size(self, n_rows: int) -> int:
        """Rows of a batch, at most."""
        size = self.small_batch if self.small_batch and n_rows < _SMALL else self.batch
        return max(8, min(size, n_rows // self.least_steps)) if self.least_steps else min(size, n_rows)

    def n_epochs(self, batches: int) -> int:
        """Length of the schedule."""
        return max(self.epochs, -(-self.enough_steps // batches))

    def share_of_rate(self, progress: float) -> float:
        """Share of the peak rate at a share of the schedule."""
        if self.schedule == "one cycle":
            return one_cycle(progress)
        if self.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * progress))
        if self.schedule == "four cycles":  # RealMLP's
            return 0.5 * (1 - math.cos(2 * math.pi * math.log2(1 + 15 * progress)))
        return 1.0


@dataclass(frozen=True, eq=False)
class Rows:
    """Groups of rows that are trained side by side, a fold or a whole split each.

    Shape
    -----
    x (G, n, E); y (G, n); feature (G, E), the feature of each column, from 1, or 0 for none; train G arrays.
    """

    x: Tensor
    y: Tensor
    feature: np.ndarray
    train: list[np.ndarray]
    seeds: list[int]

    @property
    def n_train(self) -> int:
        """Training rows of the largest group."""
        return max(map(len, self.train))

    def is_train(self) -> Tensor:
        """(G, n, 1) float, one at training rows."""
        mask = torch.zeros_like(self.y)
        for own, rows in zip(mask, self.train, strict=True):
            own[torch.from_numpy(rows).to(mask.device)] = 1.0
        return mask[..., None]


def order_of(y: np.ndarray, seed: Sequence[int], is_spread: bool) -> np.ndarray:
    """A random order of rows, the classes spread evenly over it unless told otherwise."""
    rng = np.random.default_rng(seed)
    if not is_spread:
        return rng.permutation(len(y))
    keys = np.empty(len(y))
    for label in (0, 1):
        at = y == label
        keys[at] = (rng.permutation(at.sum()) + rng.random()) / max(at.sum(), 1)
    return np.argsort(keys, kind="stable")


# -- networks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Parameter:
    """A tensor to be trained: where it starts, and its own penalty (None for none)."""

    start: Tensor
    l2: Tensor | None = None


class Networks:
    """Networks of one shape: in each of G groups P penalties × K members, the members last; M = P·K.

    Weights are (G, in, P, K, out) in the first layer and (G, P, K, in, out) in others; biases (G, P, K, out).
    """

    def __init__(self, choice: Choice, rows: Rows, hidden: tuple[int, ...], l2: np.ndarray) -> None:
        self.choice, self.hidden = choice, hidden
        self.groups, self.penalties, self.members = len(rows.seeds), l2.shape[1], choice.members
        self.models, self.inputs, self.device = self.penalties * self.members, rows.x.shape[2], rows.x.device
        self.feature, self.n_features = torch.from_numpy(rows.feature).to(self.device), int(rows.feature.max()) + 1
        own = torch.from_numpy(l2.astype(np.float32)).to(self.device)
        self.l2_first, self.l2_later = own.view(self.groups, 1, -1, 1, 1), own.view(self.groups, -1, 1, 1, 1)
        found = self._parameters(rows)
        cuts = list(pairwise(np.cumsum([0, *(one.start.numel() for one in found)])))
        self.flat = torch.cat([one.start.reshape(-1) for one in found])
        self.penalty = torch.zeros_like(self.flat)
        self.leaves = []
        for (a, b), one in zip(cuts, found, strict=True):
            self.leaves.append(self.flat[a:b].view(one.start.shape).detach().requires_grad_())
            if one.l2 is not None:
                self.penalty[a:b].view(one.start.shape).copy_(one.l2)
        # Scales, which have a rate of their own, come last.
        self.n_usual = int(cuts[-1][0]) if choice.scales else len(self.flat)
        self.faster = choice.scale_speed

    def _parameters(self, rows: Rows) -> list[Parameter]:
        """In the order in which `_layers` takes them.

        Folds and penalties of a split start alike, as in the library: uniform by Glorot, the output at the prior.
        """
        generators = [[torch.Generator().manual_seed(1000 * seed + k) for k in range(self.members)]
                      for seed in rows.seeds]  # fmt: skip

        def draw(shape: tuple[int, ...], bound: float, is_shared: bool = False) -> Tensor:
            own = [[2 * bound * torch.rand(shape, generator=g) - bound for g in row[: 1 if is_shared else None]]
                   for row in generators]  # fmt: skip
            drawn = torch.stack([torch.stack(row) for row in own])[:, None].to(self.device)
            return drawn.expand(-1, self.penalties, *drawn.shape[2:])  # (G, P, K or 1, …)

        found = []
        for layer, (h_in, h_out) in enumerate(pairwise((self.inputs, *self.hidden, 1))):
            bound, is_last = math.sqrt(6 / (h_in + h_out)), layer == len(self.hidden)
            is_shared = self.choice.is_shared and not is_last
            weight, bias = draw((h_in, h_out), bound, is_shared), draw((h_out,), 0.0 if is_last else bound)
            if is_last:
                is_train = rows.is_train()[..., 0]
                prior = (is_train * rows.y).sum(1) / is_train.sum(1)
                bias = bias + torch.logit(prior)[:, None, None, None]
            if layer == 0:
                weight = weight.permute(0, 3, 1, 2, 4)
            l2 = None if self._is_adapted(layer) else self.l2_later if layer else self.l2_first
            found += [Parameter(weight, l2), Parameter(bias)]
            if is_shared:
                found += self._adapters(generators, layer, h_in, h_out)
        if self.choice.scales:
            ones = self._ones(self.groups, self.inputs, self.penalties, self.members, 1)
            found.append(Parameter(ones, self.l2_first if self.choice.scales == "penalised" else None))
        return found

    def _is_adapted(self, layer: int) -> bool:
        """Whether a layer's weights are penalised as they take effect rather than as they are stored."""
        if self.choice.is_decoupled:
            return False
        return (self.choice.is_shared and layer < len(self.hidden)) or (self.choice.scales == "free" and layer == 0)

    def _adapters(self, generators: list, layer: int, h_in: int, h_out: int) -> list[Parameter]:
        """Scales of inputs and outputs of a shared layer; those of the first inputs are normal, one a feature."""
        lead = (self.penalties, self.members)
        if layer:
            return [Parameter(self._ones(self.groups, *lead, h_in, 1)),
                    Parameter(self._ones(self.groups, *lead, 1, h_out))]  # fmt: skip
        own = [[torch.randn(self.n_features, generator=g) for g in row] for row in generators]
        numbers = torch.stack([torch.stack(row) for row in own]).to(self.device)
        numbers = numbers.gather(2, self.feature[:, None].expand(-1, self.members, -1))
        numbers = numbers.transpose(1, 2)[:, :, None, :, None].expand(-1, -1, self.penalties, -1, -1)
        return [Parameter(numbers), Parameter(self._ones(self.groups, 1, *lead, h_out))]

    def _ones(self, *shape: int) -> Tensor:
        return torch.ones(shape, device=self.device)

    def _layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer as they take effect."""
        leaves = iter(self.leaves)
        for layer in range(len(self.hidden) + 1):
            weight, bias = next(leaves), next(leaves)
            if self.choice.is_shared and layer < len(self.hidden):
                weight = weight * next(leaves) * next(leaves)
            if self.choice.scales and layer == 0:
                weight = weight * self.leaves[-1]
            yield weight, bias

    def forward(self, x: Tensor, is_training: bool) -> tuple[Tensor, Tensor | float]:
        """Logits (G, B, P, K) of rows (G, B, E), and the penalty of weights that are penalised as they take effect."""
        choice, (groups, rows, _), stacked = self.choice, x.shape, self.groups * self.models
        if is_training and choice.column_dropout:
            x = dropout(x, choice.column_dropout)
        if is_training and choice.feature_dropout:
            mask = dropout(torch.ones(groups, rows, self.n_features, device=x.device), choice.feature_dropout)
            x = x * mask.gather(2, self.feature[:, None].expand(-1, rows, -1))
        penalty: Tensor | float = 0.0
        h = x
        for layer, (weight, bias) in enumerate(self._layers()):
            if is_training and self._is_adapted(layer):
                l2 = self.l2_later if layer else self.l2_first
                penalty = penalty + 0.5 * (l2 * weight.square()).sum()
            if layer == 0:
                h = torch.baddbmm(bias.reshape(groups, 1, -1), h, weight.reshape(groups, self.inputs, -1))
                if len(self.hidden) > 1:
                    h = h.view(groups, rows, self.models, -1).transpose(1, 2).reshape(stacked, rows, -1)
            elif layer == len(self.hidden) == 1:
                units = h.view(groups, rows, self.models, -1)
                h = (units * weight.reshape(groups, 1, self.models, -1)).sum(-1) + bias.reshape(groups, 1, -1)
            else:
                h = torch.baddbmm(bias.reshape(stacked, 1, -1), h, weight.reshape(stacked, *weight.shape[-2:]))
            if layer < len(self.hidden):
                h = torch.relu(h)
                if is_training and choice.dropout:
                    h = dropout(h, choice.dropout)
        if len(self.hidden) > 1:
            h = h.view(groups, self.models, rows).transpose(1, 2)
        return h.reshape(groups, rows, self.penalties, self.members), penalty

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """Logits (G, n, P, K) of any number of rows."""
        at_once = max(64, 2**26 // (self.groups * max(self.hidden) * self.models))
        return torch.cat([self.forward(chunk, False)[0] for chunk in x.split(at_once, dim=1)], dim=1)


# -- training --------------------------------------------------------------------------------------------------------


class Training:
    """Adam over the batches of all groups; the step takes nothing from the host, so a GPU can replay it."""

    def __init__(self, networks: Networks, rows: Rows, *, graphs: bool, epochs: int | None = None) -> None:
        self.networks, self.rows, self.graphs = networks, rows, graphs
        choice, device = networks.choice, rows.x.device
        self.batches = -(-rows.n_train // choice.batch_size(rows.n_train))
        self.size = -(-rows.n_train // self.batches)
        self.epochs = epochs or choice.n_epochs(self.batches)
        total = self.epochs * self.batches
        rates = [choice.rate * choice.share_of_rate((step + 1) / (total + 1)) for step in range(total)]
        self.rates = torch.tensor(rates, dtype=torch.float32).to(device)
        groups = len(rows.seeds)
        self.index = torch.zeros(groups, self.batches, self.size, dtype=torch.int64, device=device)
        self.weight = torch.zeros(groups, self.batches, self.size, device=device)
        self.taken = torch.zeros(1, dtype=torch.int64, device=device)
        self.x, self.y = rows.x.reshape(-1, rows.x.shape[2]), rows.y.reshape(-1)
        self.member_weight = self._bags().to(device) if choice.bagging else None
        self.grad = torch.zeros_like(networks.flat)
        self.optimizer = self._optimizer()
        self.labels = [y.cpu().numpy()[train] for y, train in zip(rows.y, rows.train, strict=True)]
        self.graph: torch.cuda.CUDAGraph | None = None

    def _optimizer(self) -> torch.optim.Adam:
        """Adam with the rate as a tensor; parameters with a faster rate come last."""
        flat, cut, is_cuda = self.networks.flat, self.networks.n_usual, self.x.is_cuda
        groups = []
        for part, speed in ((slice(cut), 1.0), (slice(cut, None), self.networks.faster)):
            if len(flat[part]):
                own = flat[part]
                own.grad = self.grad[part]
                groups.append({"params": [own], "lr": torch.zeros((), device=flat.device), "speed": speed})
        return torch.optim.Adam(groups, betas=(0.9, self.networks.choice.beta2), fused=True, capturable=is_cuda)

    def _bags(self) -> Tensor:
        """Weights of rows for each member, mean one over the training rows: (G·n, K)."""
        rows, choice = self.rows, self.networks.choice
        bags = np.zeros((*rows.y.shape, choice.members), dtype=np.float32)
        for own, train, seed in zip(bags, rows.train, rows.seeds, strict=True):
            rng = np.random.default_rng([seed, 3])
            drawn = getattr(rng, choice.bagging)(size=(rows.y.shape[1], choice.members))[train]
            own[train] = drawn / drawn.mean(axis=0)
        return torch.from_numpy(bags.reshape(-1, choice.members))

    def _deal(self, epoch: int) -> None:
        """Deal the rows of an epoch into batches of even size; rows that only fill up weigh nothing."""
        index = np.zeros((len(self.labels), self.batches * self.size), dtype=np.int64)
        weight = np.zeros(index.shape, dtype=np.float32)
        for g, (y, train, seed) in enumerate(zip(self.labels, self.rows.train, self.rows.seeds, strict=True)):
            order = train[order_of(y, [seed, 2, epoch], self.networks.choice.is_spread)]
            index[g] = g * self.rows.y.shape[1] + np.pad(order, (0, index.shape[1] - len(order)), mode="edge")
            weight[g, : len(order)] = self.batches / len(order)
        self.index.copy_(torch.from_numpy(index).view_as(self.index))
        self.weight.copy_(torch.from_numpy(weight).view_as(self.weight))

    def _step(self) -> None:
        networks, choice = self.networks, self.networks.choice
        groups, batch = len(self.labels), self.taken % self.batches
        at = self.index.index_select(1, batch).view(-1)
        weight = self.weight.index_select(1, batch).view(groups, -1, 1, 1)
        if self.member_weight is not None:
            weight = weight * self.member_weight.index_select(0, at).view(groups, -1, 1, choice.members)
        z, penalty = networks.forward(self.x.index_select(0, at).view(groups, -1, networks.inputs), True)
        y = self.y.index_select(0, at).view(groups, -1, 1, 1).expand_as(z)
        loss = binary_cross_entropy_with_logits(z, y, weight, reduction="sum") + penalty
        torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, networks.leaves)], out=self.grad)
        rate = self.rates.index_select(0, self.taken)[0]
        if choice.is_decoupled:
            networks.flat.sub_(networks.penalty * networks.flat * rate)
        else:
            self.grad.addcmul_(networks.penalty, networks.flat)
        for group in self.optimizer.param_groups:
            group["lr"].copy_(rate * group["speed"])
        self.optimizer.step()
        self.taken.add_(1)

    def _capture(self) -> None:
        """Make the step a graph, and put back what trying it out has changed."""
        before = self.networks.flat.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
                self.taken.zero_()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()
        self.networks.flat.copy_(before)
        for tensor in (self.taken, *(t for state in self.optimizer.state.values() for t in state.values())):
            tensor.zero_()

    def run(self, epochs: int | None = None) -> Iterator[int]:
        """Train, and give the number of each epoch when it is over."""
        for epoch in range(epochs or self.epochs):
            self._deal(epoch)
            if self.graphs and self.x.is_cuda and self.graph is None:
                self._capture()
            for _ in range(self.batches):
                if self.graph is not None:
                    self.graph.replay()
                else:
                    self._step()
            yield epoch + 1


def balancing_shift(z: Tensor, y: Tensor, is_used: Tensor) -> Tensor:
    """What to add to logits (G, n, P, K) for the used rows' probabilities to sum to their positives: (G, 1, P, K)."""
    y = y[..., None, None]
    used = is_used[..., None]
    shift = torch.zeros_like(z[:, :1])
    for _ in range(8):
        p = torch.sigmoid(z + shift)
        slope = (used * p * (1 - p)).sum(1, keepdim=True).clamp(min=1e-3)
        shift += ((used * (y - p)).sum(1, keepdim=True) / slope).clamp(-1, 1)
    return shift


def pooled(z: Tensor, choice: Choice) -> Tensor:
    """The members' logits as one: their mean, or the logit of the mean probability."""
    if choice.average == "logits":
        return z.mean(-1)
    log_p, log_q = (torch.logsumexp(logsigmoid(sign * z), -1) for sign in (1, -1))
    return log_p - log_q
