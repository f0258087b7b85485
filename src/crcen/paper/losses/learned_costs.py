"""CoSen: costs inside the softmax, learned with the network."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.paper.losses.columns import checked_counts, logit_columns, true_column

__all__ = ["LearnedCostLoss", "class_separability", "target_costs"]


class LearnedCostLoss(nn.Module):
    """Cross entropy of ξ_yk e^{z_k} / Σ_j ξ_yj e^{z_j}, with a row of costs ξ for each true class y.

    The costs act in training alone and are dropped at test. They start at 1, which is plain cross entropy, and
    `move_costs` takes them towards a target made of the sizes of the classes, how separable they are and how they are
    confused (`target_costs`). With every row of ξ at the classes' frequencies it is `LogitAdjustedLoss`.

    The outputs are a posterior only where all rows of ξ are proportional to each other; calibrate them else.

    Parameters
    ----------
    n_classes : int
        K.
    costs : array of shape (K, K), optional
        Where ξ starts.

    References
    ----------
    Khan, Hayat, Bennamoun, Sohel, Togneri, "Cost-sensitive learning of deep feature representations from imbalanced
    data", IEEE TNNLS 2018.
    """

    costs: Tensor

    def __init__(self, n_classes: int, costs: Any = None) -> None:
        super().__init__()
        values = torch.ones(n_classes, n_classes) if costs is None else torch.as_tensor(costs)
        values = values.to(torch.get_default_dtype())
        if values.shape != (n_classes, n_classes) or not bool((values > 0).all()):
            raise InvalidParameter(f"costs must be a {n_classes} × {n_classes} matrix of numbers above 0.")
        self.register_buffer("costs", values)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean over the rows of a batch."""
        columns = logit_columns(logits, len(self.costs))
        numbers = true_column(target, columns)
        return cross_entropy(columns + torch.log(self.costs.to(columns.dtype))[numbers], numbers)

    def move_costs(self, target: Tensor, rate: float) -> None:
        """One step of gradient descent on ½‖T − ξ‖²."""
        self.costs += rate * (target.to(self.costs) - self.costs)


def target_costs(
    counts: Any,
    separability: Tensor,
    confusion: Tensor,
    *,
    middles: tuple[float, float] = (0.0, 0.0),
    widths: tuple[float, float] = (1.0, 1.0),
) -> Tensor:
    """T = H ∘ exp(−(S − μ₁)² / 2σ₁²) ∘ exp(−(R − μ₂)² / 2σ₂²), all (K, K), in float64.

    H_kj is the larger of the shares of the classes k and j (on the diagonal the class's own), S how separable they are,
    R the share of the rows of class k taken for j. The paper leaves μ and σ to cross-validation; here μ = 0 and σ = 1,
    so that a pair that is neither mixed nor confused keeps its cost H.

    Parameters
    ----------
    counts : sequence of int
        Rows of class 0, 1, … of the training set.
    separability, confusion : tensors of shape (K, K)
        S from `class_separability`, and R.
    middles, widths : pairs of float
        (μ₁, μ₂) and (σ₁, σ₂).
    """
    shares = checked_counts(counts)
    shares = shares / shares.sum()
    if min(widths) <= 0:
        raise InvalidParameter(f"widths must be above 0: got {widths!r}.")
    sizes = torch.maximum(shares[:, None], shares[None, :])
    s, r = separability.to(sizes), confusion.to(sizes)
    exponent = (s - middles[0]) ** 2 / (2 * widths[0] ** 2) + (r - middles[1]) ** 2 / (2 * widths[1] ** 2)
    return sizes * torch.exp(-exponent)


def class_separability(features: Tensor, target: Tensor, n_classes: int) -> Tensor:
    """S_kj: over the rows of class k, the mean of the distance to the next of k over that to the next of j.

    Near 0 the classes lie apart, near 1 they are mixed. The diagonal is 0: a class is not to be told from itself.
    """
    if features.ndim != 2 or len(features) != len(target):
        raise InvalidInput(f"features must be rows of numbers, one a target: got the shape {tuple(features.shape)}.")
    distances = torch.cdist(features.double(), features.double())
    distances.fill_diagonal_(torch.inf)
    found = torch.zeros(n_classes, n_classes, dtype=torch.float64)
    nearest = torch.stack(
        [
            distances[:, target == k].min(dim=1).values
            if bool((target == k).any())
            else torch.full((len(target),), torch.inf, dtype=torch.float64)
            for k in range(n_classes)
        ],
        dim=1,
    )
    for k in range(n_classes):
        rows = nearest[target == k]
        for j in range(n_classes):
            ratio = rows[:, k] / rows[:, j].clamp(min=torch.finfo(torch.float64).tiny)
            known = ratio[ratio.isfinite()]
            if j != k and len(known):
                found[k, j] = known.mean()
    return found
