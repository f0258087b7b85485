"""Losses for imbalanced classes from other papers, as PyTorch modules of (logits, target).

Each docstring states what the outputs estimate. Losses whose population minimiser determines the posterior have
``natural_logits``, the exact inverse. Notation: z are the logits, q = softmax(z), y is the true class, π the class
shares, n_k the class counts, p the posterior.
"""

from itertools import permutations
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, one_hot, softplus

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.torch.balance import logit_columns


class _ClassLoss(nn.Module):
    """A loss of logits (B,), (B, 1) or (B, K) and class numbers (B,) or (B, 1)."""

    n_classes: int | None = None  # None for any number
    weights: Tensor | None  # of the classes, where a loss has them

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean over the rows of a batch; weights do not change the divisor."""
        columns = logit_columns(logits, self.n_classes)
        flat = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
        numbers = flat.long()
        if flat.shape != columns.shape[:1]:
            shape = tuple(target.shape)
            raise InvalidInput(f"target must hold a class number for each of {len(columns)} rows: got shape {shape}.")
        if not bool(((numbers == flat) & (numbers >= 0) & (numbers < columns.shape[1])).all()):
            raise InvalidInput(f"target must hold class numbers from 0 to {columns.shape[1] - 1}.")
        return self._mean(columns, numbers)

    def _mean(self, columns: Tensor, numbers: Tensor) -> Tensor:
        raise NotImplementedError

    def _keep(self, name: str, values: ArrayLike | Tensor | None) -> None:
        self.register_buffer(name, None if values is None else torch.as_tensor(values).to(torch.get_default_dtype()))

    def _unweighted(self, logits: Tensor) -> Tensor:
        return logits if self.weights is None else logits - torch.log(self.weights.to(logits.dtype))


def _checked_counts(counts: ArrayLike) -> Tensor:
    found = torch.as_tensor(counts, dtype=torch.float64)
    if found.ndim != 1 or len(found) < 2 or not bool(((found > 0) & found.isfinite()).all()):
        raise InvalidParameter(f"counts must hold the training rows of class 0, 1, …, all above 0: got {counts!r}.")
    return found


class LogitAdjustedLoss(_ClassLoss):
    """Cross entropy of z_k + τ log π_k, with ``counts`` the training rows of each class.

    z + τ log π are natural logits (`natural_logits`, exact). z alone are logits of p_k / π_k^τ, so the largest z is the
    decision at the costs 1/π_k^τ. With τ = 1 this is the balanced softmax of Ren et al. (2020).

    Menon, Jayasumana, Rawat, Jain, Veit, Kumar, "Long-tail learning via logit adjustment", ICLR 2021.
    """

    offsets: Tensor

    def __init__(self, counts: ArrayLike, tau: float = 1.0) -> None:
        super().__init__()
        shares = _checked_counts(counts)
        self.n_classes, self.tau = len(shares), float(tau)
        self._keep("offsets", self.tau * torch.log(shares / shares.sum()))

    def natural_logits(self, logits: Tensor) -> Tensor:
        """Logits of the natural posterior, (B, K)."""
        return logit_columns(logits, self.n_classes) + self.offsets.to(logits.dtype)

    def _mean(self, columns: Tensor, numbers: Tensor) -> Tensor:
        return cross_entropy(self.natural_logits(columns), numbers)


class LDAMLoss(_ClassLoss):
    """Label-distribution-aware margins: cross entropy of s(z − Δ_y e_y) with Δ_k = C / n_k^¼.

    The rarest class gets the largest margin. The authors normalise features and weights of the last layer, so that z
    are cosines; with plain logits ``scale=1`` keeps the size of the gradient.

    The outputs are no posterior, but they determine it. Let Q_yk = softmax(s(z − Δ_y e_y))_k. The expected loss has
    the gradient s·(Σ_y p_y Q_yk − p_k), so p is the stationary distribution of the Markov chain Q. For two classes with
    o = z₁ − z₀ this is log p/(1−p) = softplus(s(o − Δ₁)) − softplus(−s(o + Δ₀)). `natural_logits` computes it.

    ``counts`` are the training rows of class 0, 1, …; ``max_margin`` is Δ of the rarest class, which fixes C; ``scale``
    is s, for which the authors use 30 with cosines; ``weights`` are class weights (their deferred re-weighting).

    Cao, Wei, Gaidon, Arechiga, Ma, "Learning imbalanced datasets with label-distribution-aware margin loss", 2019.
    """

    margins: Tensor

    def __init__(
        self, counts: ArrayLike, *, max_margin: float = 0.5, scale: float = 1.0, weights: ArrayLike | None = None
    ) -> None:
        super().__init__()
        if not max_margin >= 0 or not scale > 0:
            raise InvalidParameter(f"max_margin must be at least 0 and scale above 0: got {max_margin!r}, {scale!r}.")
        inverse = _checked_counts(counts) ** -0.25
        self.n_classes, self.scale = len(inverse), float(scale)
        self._keep("margins", inverse * (max_margin / inverse.max()))
        self._keep("weights", weights)

    def _mean(self, columns: Tensor, numbers: Tensor) -> Tensor:
        own, weights = one_hot(numbers, self.n_classes or -1).to(columns.dtype), self.weights
        moved = self.scale * (columns - own * self.margins.to(columns.dtype))
        weights = None if weights is None else weights.to(columns.dtype)
        return cross_entropy(moved, numbers, weight=weights, reduction="sum") / max(len(numbers), 1)

    def natural_logits(self, logits: Tensor) -> Tensor:
        """Logits of the posterior for which these outputs minimise the expected loss, (B, K)."""
        columns = logit_columns(logits, self.n_classes)
        moved = self.scale * (columns[:, None, :] - torch.diag(self.margins.to(columns.dtype)))
        return self._unweighted(_log_stationary(log_softmax(moved, dim=2)))


def _log_stationary(log_chain: Tensor) -> Tensor:
    """Log of the stationary distribution of (B, K, K) chains, up to a constant per row.

    Elimination of states by Grassmann, Taksar and Heyman: it needs no subtraction, so small probabilities stay exact.
    """
    log_q = log_chain.clone()
    n_states = log_q.shape[1]
    for n in range(n_states - 1, 0, -1):
        log_q[:, :n, n] -= torch.logsumexp(log_q[:, n, :n], dim=1, keepdim=True)
        log_q[:, :n, :n] = torch.logaddexp(log_q[:, :n, :n], log_q[:, :n, n, None] + log_q[:, n, None, :n])
    found = torch.zeros_like(log_q[:, 0])
    for n in range(1, n_states):
        found[:, n] = torch.logsumexp(found[:, :n] + log_q[:, :n, n], dim=1)
    return found


class FocalLoss(_ClassLoss):
    """−a_y (1 − q_y)^γ log q_y: rows that are already right count less. γ = 0 is cross entropy.

    q is not the posterior but a monotone map of it: p_k ∝ q_k / (a_k h(q_k)) with
    h(q) = (1 − q)^γ − γ q (1 − q)^(γ−1) log q (Charoenphakdee et al. 2021). `natural_logits` computes it. For two
    classes this is p/(1−p) = −ℓ₀′(o)/ℓ₁′(o), with ℓ_y′ the derivative of the loss of a row of class y.

    ``gamma`` is γ, at least 0; ``weights`` are a_k per class: Lin et al. use (¾, ¼) for (negative, positive) at γ = 2.

    Lin, Goyal, Girshick, He, Dollár, "Focal loss for dense object detection", ICCV 2017.
    """

    def __init__(self, gamma: float = 2.0, *, weights: ArrayLike | None = None) -> None:
        super().__init__()
        if not gamma >= 0:
            raise InvalidParameter(f"gamma must be at least 0: got {gamma!r}.")
        self.gamma = float(gamma)
        self._keep("weights", weights)
        self.n_classes = None if self.weights is None else len(self.weights)

    def _mean(self, columns: Tensor, numbers: Tensor) -> Tensor:
        log_q = log_softmax(columns, dim=1)
        own = log_q.gather(1, numbers[:, None])[:, 0]
        # 1 − q_y as the sum of the others: exact near q_y = 1, and its power has a gradient there.
        others = log_q.masked_fill(one_hot(numbers, columns.shape[1]).bool(), -torch.inf)
        rows = -torch.exp(self.gamma * torch.logsumexp(others, dim=1)) * own
        if self.weights is not None:
            rows = rows * self.weights.to(columns.dtype)[numbers]
        return rows.mean()

    def natural_logits(self, logits: Tensor) -> Tensor:
        """Logits of the posterior for which these outputs minimise the expected loss, (B, K)."""
        columns = logit_columns(logits, self.n_classes)
        log_q = log_softmax(columns, dim=1)
        is_own = torch.eye(columns.shape[1], dtype=torch.bool, device=columns.device)
        log_rest = torch.logsumexp(log_q[:, None, :].masked_fill(is_own, -torch.inf), dim=2)  # log(1 − q)
        rest = torch.exp(log_rest)
        minus_log_q = torch.where(rest < 0.5, -torch.log1p(-rest.clamp(max=0.5)), -log_q)
        ratio = torch.where(rest > 0, minus_log_q / rest.clamp(min=torch.finfo(rest.dtype).tiny), 1.0)
        # log h = γ log(1 − q) + log(1 + γ q r) with r = −log q / (1 − q), which is 1 at q = 1.
        log_h = self.gamma * log_rest + torch.log1p(self.gamma * torch.exp(log_q) * ratio)
        return self._unweighted(log_q - log_h)


def effective_number_weights(counts: ArrayLike, beta: float = 0.9999) -> NDArray[np.float64]:
    """Class weights (1 − β) / (1 − β^n_k) with mean 1: the class-balanced loss of Cui et al. (2019).

    They range from 1 (β = 0, no weighting) to 1/n_k (β → 1, balanced). Train with `ClassWeightedLoss`; dividing the
    weights out again gives natural probabilities.

    ``counts`` are the training rows of class 0, 1, …; β lies from 0 to below 1.
    """
    if not 0.0 <= beta < 1.0:
        raise InvalidParameter(f"beta must lie from 0 to below 1: got {beta!r}.")
    n = _checked_counts(counts).numpy()
    weights = np.ones_like(n) if beta == 0.0 else -(1.0 - beta) / np.expm1(n * np.log(beta))
    return cast(NDArray[np.float64], weights / weights.mean())


class OneSidedRegressionLoss(nn.Module):
    """Σ_a ln(1 + e^{s_a (r_a − c_a)}): outputs r are one-sided estimates of costs; the least is decided.

    c_a is the cost of action a for the row. s_a is +1 for the row's cheapest action and −1 otherwise: the cheapest
    action must not be overestimated, the others must not be underestimated. The sum bounds the cost of the decision.

    ``costs`` (K, A) has the cost of action a for a row of class k, as the values of a `CostMatrix`.

    Chung, Lin, Yang, "Cost-aware pre-training for multiclass cost-sensitive deep learning", IJCAI 2016.
    """

    costs: Tensor

    def __init__(self, costs: ArrayLike) -> None:
        super().__init__()
        values = torch.as_tensor(costs, dtype=torch.get_default_dtype())
        if values.ndim != 2 or not bool(values.isfinite().all()):
            raise InvalidParameter(f"costs must be a finite matrix with a row per class: got {tuple(values.shape)}.")
        self.register_buffer("costs", values)

    def forward(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Mean over the rows of a batch; ``predicted`` is (B, A)."""
        if predicted.ndim != 2 or predicted.shape[1] != self.costs.shape[1]:
            needed, got = self.costs.shape[1], tuple(predicted.shape)
            raise InvalidInput(f"the network must return a cost for each of {needed} actions: got the shape {got}.")
        costs = self.costs.to(predicted.dtype)[target.long()]
        sign = torch.where(costs == costs.min(dim=1, keepdim=True).values, 1.0, -1.0)
        return softplus(sign * (predicted - costs)).sum(dim=1).mean()


class LearnedCostLoss(_ClassLoss):
    """CoSen: cross entropy of ξ_yk e^{z_k} / Σ_j ξ_yj e^{z_j} with a row of costs ξ per true class y.

    The costs act in training only. They start at 1 (plain cross entropy) and `move_costs` moves them towards
    `target_costs`. With every row of ξ at the class shares this is `LogitAdjustedLoss`. The outputs are a posterior
    only if all rows of ξ are proportional; otherwise calibrate them.

    ``costs`` is the initial ξ of shape (K, K).

    Khan, Hayat, Bennamoun, Sohel, Togneri, "Cost-sensitive learning of deep feature representations from imbalanced
    data", IEEE TNNLS 2018.
    """

    costs: Tensor

    def __init__(self, n_classes: int, costs: ArrayLike | Tensor | None = None) -> None:
        super().__init__()
        self.n_classes = n_classes
        self._keep("costs", torch.ones(n_classes, n_classes) if costs is None else costs)
        if self.costs.shape != (n_classes, n_classes) or not bool((self.costs > 0).all()):
            raise InvalidParameter(f"costs must be a {n_classes} × {n_classes} matrix of numbers above 0.")

    def _mean(self, columns: Tensor, numbers: Tensor) -> Tensor:
        return cross_entropy(columns + torch.log(self.costs.to(columns.dtype))[numbers], numbers)

    def move_costs(self, target: Tensor, rate: float) -> None:
        """One step of gradient descent on ½‖T − ξ‖²."""
        self.costs += rate * (target.to(self.costs) - self.costs)


def target_costs(counts: ArrayLike, separability: Tensor, confusion: Tensor) -> Tensor:
    """T = H ∘ exp(−½S²) ∘ exp(−½R²), (K, K) float64.

    H_kj is the larger share of the classes k and j, S their separability (`class_separability`), R the share of class k
    predicted as j. The paper shifts and scales S and R by values from cross-validation; here they are not moved, so
    that a separable, unconfused pair keeps its cost H.
    """
    shares = _checked_counts(counts)
    shares = shares / shares.sum()
    sizes = torch.maximum(shares[:, None], shares[None, :])
    return sizes * torch.exp(-0.5 * (separability.to(sizes) ** 2 + confusion.to(sizes) ** 2))


def class_separability(features: Tensor, target: Tensor, n_classes: int) -> Tensor:
    """S_kj: mean over rows of class k of (distance to the nearest of k) / (distance to the nearest of j); diagonal 0.

    Near 0 the classes are separated, near 1 they are mixed.
    """
    if features.ndim != 2 or len(features) != len(target):
        raise InvalidInput(f"features must be one row of numbers per target: got the shape {tuple(features.shape)}.")
    distances = torch.cdist(features.double(), features.double()).fill_diagonal_(torch.inf)
    # Nearest distance of every row to every class; infinite for a class without rows.
    nearest = torch.stack([distances.where(target == k, torch.inf).amin(dim=1) for k in range(n_classes)], dim=1)
    found = torch.zeros(n_classes, n_classes, dtype=torch.float64)
    for k, j in permutations(range(n_classes), 2):
        rows = nearest[target == k]
        ratio = rows[:, k] / rows[:, j].clamp(min=torch.finfo(torch.float64).tiny)
        known = ratio[ratio.isfinite()]
        if len(known):
            found[k, j] = known.mean()
    return found


class ClassRectificationLoss(_ClassLoss):
    """CRL: (1 − a)·cross entropy + a·hard triplets of the classes that are rare in the batch.

    For a rare class k: hard positives are the κ rows of k with the lowest q_k, hard negatives the κ other rows with the
    highest q_k. Each row of k is an anchor, and a triplet costs
    max(0, m + |q_k(anchor) − q_k(positive)| − (q_k(anchor) − q_k(negative))). Rare are the smallest classes that
    together hold at most half of the batch. a is the share of rows missing for a uniform class distribution (the
    authors' η = .01 with imbalance in per cent).

    This is the paper's class-level comparison. The outputs are no posterior: calibrate them.

    ``counts`` are the training rows of class 0, 1, …; ``margin`` and ``hardest`` are m and κ.

    Dong, Gong, Zhu, "Class rectification hard mining for imbalanced deep learning", ICCV 2017.
    """

    def __init__(self, counts: ArrayLike, *, margin: float = 0.5, hardest: int = 3) -> None:
        super().__init__()
        sizes = _checked_counts(counts)
        if hardest < 1 or margin < 0:
            raise InvalidParameter(f"hardest must be at least 1 and margin at least 0: got {hardest!r}, {margin!r}.")
        self.n_classes, self.margin, self.hardest = len(sizes), float(margin), int(hardest)
        self.share = float((1.0 / len(sizes) - sizes / sizes.sum()).clamp(min=0).sum())

    def _mean(self, columns: Tensor, numbers: Tensor) -> Tensor:
        """Cross entropy alone if the batch has no triplet."""
        plain = cross_entropy(columns, numbers)
        triplets = self.triplets(columns.softmax(dim=1), numbers)
        return (1.0 - self.share) * plain + self.share * triplets.mean() if len(triplets) else plain

    def triplets(self, probabilities: Tensor, numbers: Tensor) -> Tensor:
        """Cost of every triplet of the batch."""
        costs = [probabilities[:0, 0]]
        sizes, n_rows = torch.bincount(numbers, minlength=probabilities.shape[1]).tolist(), 0
        for k in sorted(range(len(sizes)), key=lambda k: sizes[k]):
            n_rows += sizes[k]
            if 2 * n_rows > len(numbers):  # the other classes are not rare
                break
            q = probabilities[:, k]
            own, others = q[numbers == k], q[numbers != k]
            lowest = torch.argsort(own)[: self.hardest]
            highest = others.sort(descending=True).values[: self.hardest]
            to_positive = (own[:, None] - own[lowest][None, :]).abs()
            to_negative = own[:, None] - highest[None, :]
            cost = (self.margin + to_positive[:, :, None] - to_negative[:, None, :]).clamp(min=0)
            is_other = torch.arange(len(own), device=q.device)[:, None] != lowest[None, :]
            costs.append(cost[is_other].flatten())
        return torch.cat(costs)


class QuintupletLoss(nn.Module):
    """LMLE: hinges on squared distances D from an anchor, D(p⁺) < D(p⁻) < D(p⁻⁻) < D(n), each with a margin.

    p⁺ is the farthest row of the anchor's cluster, p⁻ the nearest and p⁻⁻ the farthest row of its class in other
    clusters, n the nearest row of another class. Missing rows are skipped: without other clusters of the class, D(p⁺)
    must stay below D(n). Embeddings are scaled to length 1 and decided by neighbours; they have no posterior.

    ``margins`` are those between p⁺ and p⁻, p⁻ and p⁻⁻, and the last of the class and n.

    Huang, Li, Loy, Tang, "Learning deep representation for imbalanced classification", CVPR 2016.
    """

    def __init__(self, margins: tuple[float, float, float] = (0.05, 0.05, 0.2)) -> None:
        super().__init__()
        if len(margins) != 3 or min(margins) < 0:
            raise InvalidParameter(f"margins must be three numbers of at least 0: got {margins!r}.")
        self.margins = tuple(float(m) for m in margins)

    def forward(self, embedding: Tensor, target: Tensor, cluster: Tensor) -> Tensor:
        """Mean over the anchors of a batch; cluster numbers are unique across classes."""
        z = nn.functional.normalize(embedding, dim=1)
        distances = (2.0 - 2.0 * z @ z.T).clamp(min=0.0)
        is_self = torch.eye(len(z), dtype=torch.bool, device=z.device)
        in_class = target[:, None] == target[None, :]
        in_cluster = in_class & (cluster[:, None] == cluster[None, :])
        is_own, is_other = in_cluster & ~is_self, in_class & ~in_cluster
        has_own, has_other, has_rival = (mask.any(dim=1) for mask in (is_own, is_other, ~in_class))

        def extreme(mask: Tensor, fill: float) -> Tensor:
            """The least (fill ∞) or largest (fill −∞) distance of every row in a mask; 0 where there is none."""
            values = distances.where(mask, fill)
            return torch.where(mask.any(dim=1), (values.min(dim=1) if fill > 0 else values.max(dim=1)).values, 0.0)

        far_in_cluster, other_class = extreme(is_own, -torch.inf), extreme(~in_class, torch.inf)
        near_in_class, far_in_class = extreme(is_other, torch.inf), extreme(is_other, -torch.inf)
        first, second, third = self.margins
        last = torch.where(has_other, far_in_class, far_in_cluster)
        hinges = (
            (first + far_in_cluster - near_in_class, has_own & has_other),
            (second + near_in_class - far_in_class, has_other),
            (third + last - other_class, has_rival & (has_own | has_other)),
        )
        terms = [torch.where(counts, values.clamp(min=0), 0.0) for values, counts in hinges]
        return (terms[0] + terms[1] + terms[2]).mean()
