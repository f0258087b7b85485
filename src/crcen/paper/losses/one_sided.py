"""Smooth one-sided regression of costs."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from crcen.exceptions import InvalidInput, InvalidParameter

__all__ = ["OneSidedRegressionLoss"]


class OneSidedRegressionLoss(nn.Module):
    """Σ_a ln(1 + e^{z_a (r_a − c_a)}): outputs r estimate costs, from one side each; decide the least.

    c_a is what action a costs the row. z_a is +1 where that is the row's least cost, else −1: the cheapest action must
    not be thought dearer than it is, the others not cheaper. The sum bounds the cost of the decision from above.

    Parameters
    ----------
    costs : array of shape (K, A)
        What action a costs a row of class k: the values of a `CostMatrix`.

    References
    ----------
    Chung, Lin, Yang, "Cost-aware pre-training for multiclass cost-sensitive deep learning", IJCAI 2016.
    """

    costs: Tensor

    def __init__(self, costs: Any) -> None:
        super().__init__()
        values = torch.as_tensor(costs, dtype=torch.get_default_dtype())
        if values.ndim != 2 or not bool(values.isfinite().all()):
            raise InvalidParameter(
                f"costs must be a finite matrix, a row a class: got the shape {tuple(values.shape)}."
            )
        self.register_buffer("costs", values)

    def forward(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Mean over the rows of a batch; ``predicted`` is (B, A)."""
        if predicted.ndim != 2 or predicted.shape[1] != self.costs.shape[1]:
            raise InvalidInput(
                f"the network must answer a cost for each of {self.costs.shape[1]} actions: "
                f"got the shape {tuple(predicted.shape)}."
            )
        costs = self.costs.to(predicted.dtype)[target.long()]
        sign = torch.where(costs == costs.min(dim=1, keepdim=True).values, 1.0, -1.0)
        return softplus(sign * (predicted - costs)).sum(dim=1).mean()
