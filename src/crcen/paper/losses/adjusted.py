"""Logits moved by the sizes of the classes inside the loss: logit adjustment, balanced softmax, LDAM."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from crcen.exceptions import InvalidParameter
from crcen.paper.losses.columns import checked_counts, logit_columns, true_column

__all__ = ["LDAMLoss", "LogitAdjustedLoss"]


class LogitAdjustedLoss(nn.Module):
    """Cross entropy of z_k + τ log π_k, with π the shares of the classes.

    Trained so, z + τ log π are natural logits, and z alone are logits of p_k / π_k^τ: at τ = 1 of balanced classes.
    Nothing is weighted: the natural posterior is `natural_logits`, exactly, and deciding by the largest z is deciding
    at the costs 1/π_k^τ. With τ = 1 this is the balanced softmax of Ren and others (2020), and the network of Khan and
    others (2018) with costs fixed at the classes' frequencies.

    Parameters
    ----------
    counts : sequence of int
        Rows of class 0, 1, … of the training set.
    tau : float, default=1
        How far the adjustment goes.

    References
    ----------
    Menon, Jayasumana, Rawat, Jain, Veit, Kumar, "Long-tail learning via logit adjustment", ICLR 2021.
    """

    offsets: Tensor

    def __init__(self, counts: Any, tau: float = 1.0) -> None:
        super().__init__()
        shares = checked_counts(counts)
        self.tau = float(tau)
        self.register_buffer("offsets", (self.tau * torch.log(shares / shares.sum())).to(torch.get_default_dtype()))

    def natural_logits(self, logits: Tensor) -> Tensor:
        """Logits of the natural posterior, (B, K), from what the network answers."""
        return logit_columns(logits, len(self.offsets)) + self.offsets.to(logits.dtype)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean over the rows of a batch."""
        natural = self.natural_logits(logits)
        return cross_entropy(natural, true_column(target, natural))


class LDAMLoss(nn.Module):
    """Label-distribution-aware margins: cross entropy of s(z − Δ_y e_y) with Δ_k = C / n_k^¼.

    The rare class gets the widest margin. The outputs are no posterior and no known map makes them one: calibrate out
    of fold. The authors normalise features and weights of the last layer, so that z are cosines; on plain logits
    ``scale=1`` keeps the gradient's size.

    Parameters
    ----------
    counts : sequence of int
        Rows of class 0, 1, … of the training set.
    max_margin : float, default=0.5
        Δ of the rarest class, which fixes C.
    scale : float, default=1
        s; the authors take 30 for cosines.
    weights : sequence of float, optional
        Class weights, the authors' deferred re-weighting.

    References
    ----------
    Cao, Wei, Gaidon, Arechiga, Ma, "Learning imbalanced datasets with label-distribution-aware margin loss", 2019.
    """

    margins: Tensor
    weights: Tensor | None

    def __init__(self, counts: Any, *, max_margin: float = 0.5, scale: float = 1.0, weights: Any = None) -> None:
        super().__init__()
        if not max_margin >= 0 or not scale > 0:
            raise InvalidParameter(f"max_margin must be at least 0 and scale above 0: got {max_margin!r}, {scale!r}.")
        inverse = checked_counts(counts) ** -0.25
        kind = torch.get_default_dtype()
        self.scale = float(scale)
        self.register_buffer("margins", (inverse * (max_margin / inverse.max())).to(kind))
        self.register_buffer("weights", None if weights is None else torch.as_tensor(weights, dtype=kind))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean over the rows of a batch; with weights their weighted sum over the number of rows."""
        columns = logit_columns(logits, len(self.margins))
        numbers = true_column(target, columns)
        own = torch.nn.functional.one_hot(numbers, len(self.margins)).to(columns.dtype)
        moved = self.scale * (columns - own * self.margins.to(columns.dtype))
        weights = None if self.weights is None else self.weights.to(columns.dtype)
        return cross_entropy(moved, numbers, weight=weights, reduction="sum") / max(len(numbers), 1)
