"""Focal loss."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from crcen.exceptions import InvalidParameter
from crcen.paper.losses.columns import logit_columns, true_column

__all__ = ["FocalLoss"]


class FocalLoss(nn.Module):
    """−a_y (1 − q_y)^γ log q_y: rows that are right already count less.

    Its minimiser is not the posterior but a monotone map of it (Charoenphakdee and others, 2021), for two classes the
    same order of rows; probabilities come out too close to ½ and want calibration. At γ = 0 it is cross entropy.

    Parameters
    ----------
    gamma : float, default=2
        γ, at least 0.
    weights : sequence of float, optional
        a_k, one for each class; Lin and others take (¾, ¼) for (negative, positive) at γ = 2.

    References
    ----------
    Lin, Goyal, Girshick, He, Dollár, "Focal loss for dense object detection", ICCV 2017.
    """

    weights: Tensor | None

    def __init__(self, gamma: float = 2.0, *, weights: Any = None) -> None:
        super().__init__()
        if not gamma >= 0:
            raise InvalidParameter(f"gamma must be at least 0: got {gamma!r}.")
        self.gamma = float(gamma)
        kind = torch.get_default_dtype()
        self.register_buffer("weights", None if weights is None else torch.as_tensor(weights, dtype=kind))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean over the rows of a batch."""
        columns = logit_columns(logits, None if self.weights is None else len(self.weights))
        numbers = true_column(target, columns)
        log_q = log_softmax(columns, dim=1)
        own = log_q.gather(1, numbers[:, None])[:, 0]
        # 1 − q_y as the sum of the others: exact where q_y is near 1, and its power has a gradient there.
        others = log_q.masked_fill(torch.nn.functional.one_hot(numbers, columns.shape[1]).bool(), -torch.inf)
        rows = -torch.exp(self.gamma * torch.logsumexp(others, dim=1)) * own
        if self.weights is not None:
            rows = rows * self.weights.to(columns.dtype)[numbers]
        return rows.mean()
