"""LMLE: quintuplets over clusters, a loss on embeddings."""

import torch
from torch import Tensor, nn

from crcen.exceptions import InvalidParameter

__all__ = ["QuintupletLoss"]


class QuintupletLoss(nn.Module):
    """Three hinges on squared distances D from an anchor: D(p⁺) < D(p⁻) < D(p⁻⁻) < D(n), each by its margin.

    p⁺ is the farthest row of the anchor's cluster, p⁻ the nearest and p⁻⁻ the farthest row of its class in other
    clusters, n the nearest row of another class. Where the batch lacks one of them, the inequality goes to the next
    that is there: without other clusters of the class D(p⁺) must stay below D(n).

    Embeddings are scaled to length 1. They are decided by neighbours, not by a bias; there is no posterior to correct.

    Parameters
    ----------
    margins : three float, default=(0.05, 0.05, 0.2)
        Between p⁺ and p⁻, p⁻ and p⁻⁻, and the last of the class and n.

    References
    ----------
    Huang, Li, Loy, Tang, "Learning deep representation for imbalanced classification", CVPR 2016.
    """

    def __init__(self, margins: tuple[float, float, float] = (0.05, 0.05, 0.2)) -> None:
        super().__init__()
        if len(margins) != 3 or min(margins) < 0:
            raise InvalidParameter(f"margins must be three numbers of at least 0: got {margins!r}.")
        self.margins = tuple(float(m) for m in margins)

    def forward(self, embedding: Tensor, target: Tensor, cluster: Tensor) -> Tensor:
        """Mean over the anchors of a batch; clusters are numbered across classes, so that each is of one class."""
        z = nn.functional.normalize(embedding, dim=1)
        distances = (2.0 - 2.0 * z @ z.T).clamp(min=0.0)  # of vectors of length 1
        is_self = torch.eye(len(z), dtype=torch.bool, device=z.device)
        in_class = target[:, None] == target[None, :]
        in_cluster = in_class & (cluster[:, None] == cluster[None, :])
        far_in_cluster, has_own = _extreme(distances, in_cluster & ~is_self, farthest=True)
        near_in_class, has_other = _extreme(distances, in_class & ~in_cluster, farthest=False)
        far_in_class, _ = _extreme(distances, in_class & ~in_cluster, farthest=True)
        other_class, has_rival = _extreme(distances, ~in_class, farthest=False)
        first, second, third = self.margins
        last = torch.where(has_other, far_in_class, far_in_cluster)
        terms = (
            _hinge(first + far_in_cluster - near_in_class, has_own & has_other)
            + _hinge(second + near_in_class - far_in_class, has_other)
            + _hinge(third + last - other_class, has_rival & (has_own | has_other))
        )
        return terms.mean()


def _extreme(distances: Tensor, mask: Tensor, *, farthest: bool) -> tuple[Tensor, Tensor]:
    """The largest or smallest distance of every row where the mask holds, and whether there is any."""
    there = mask.any(dim=1)
    masked = distances.masked_fill(~mask, -torch.inf if farthest else torch.inf)
    values = masked.max(dim=1).values if farthest else masked.min(dim=1).values
    return torch.where(there, values, torch.zeros_like(values)), there


def _hinge(values: Tensor, counts: Tensor) -> Tensor:
    return torch.where(counts, values.clamp(min=0), torch.zeros_like(values))
