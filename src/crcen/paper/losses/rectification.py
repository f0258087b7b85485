"""CRL: hard triplets of the rare classes of a batch, added to cross entropy."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from crcen.exceptions import InvalidParameter
from crcen.paper.losses.columns import checked_counts, logit_columns, true_column

__all__ = ["ClassRectificationLoss"]

# The authors' η, with the imbalance in per cent.
_A_PERCENT = 0.01


class ClassRectificationLoss(nn.Module):
    """(1 − a)·cross entropy + a·triplets, with hard rows of the classes that are rare in the batch.

    For a rare class k, by the probability p_k that the network gives it: hard positives are the κ rows of k with the
    lowest p_k, hard negatives the κ rows of other classes with the highest. Every row of k is an anchor, and a triplet
    costs max(0, m + |p_k(anchor) − p_k(positive)| − (p_k(anchor) − p_k(negative))), averaged. Rare are the smallest
    classes of the batch that together hold at most half of its rows. a is η = .01 times the imbalance of the training
    set: the rows, in per cent, that would have to be added to the small classes at an even distribution.

    This is the paper's comparison at the level of classes, which needs scores alone; that at the level of instances
    wants the features of a vision network. The outputs are no posterior: calibrate them.

    Parameters
    ----------
    counts : sequence of int
        Rows of class 0, 1, … of the training set.
    margin : float, default=0.5
        m.
    hardest : int, default=3
        κ.

    References
    ----------
    Dong, Gong, Zhu, "Class rectification hard mining for imbalanced deep learning", ICCV 2017.
    """

    def __init__(self, counts: Any, *, margin: float = 0.5, hardest: int = 3) -> None:
        super().__init__()
        sizes = checked_counts(counts)
        if hardest < 1 or margin < 0:
            raise InvalidParameter(f"hardest must be at least 1 and margin at least 0: got {hardest!r}, {margin!r}.")
        self.n_classes, self.margin, self.hardest = len(sizes), float(margin), int(hardest)
        lacking = (1.0 / len(sizes) - sizes / sizes.sum()).clamp(min=0).sum()
        self.share = float(_A_PERCENT * 100 * lacking)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of a batch; cross entropy alone where it has no triplet."""
        columns = logit_columns(logits, self.n_classes)
        numbers = true_column(target, columns)
        plain = cross_entropy(columns, numbers)
        triplets = self.triplets(columns.softmax(dim=1), numbers)
        if not len(triplets):
            return plain
        return (1.0 - self.share) * plain + self.share * triplets.mean()

    def triplets(self, probabilities: Tensor, numbers: Tensor) -> Tensor:
        """What every triplet of the batch costs."""
        costs = [probabilities[:0, 0]]
        for k in self._rare_classes(numbers):
            p = probabilities[:, k]
            own, others = p[numbers == k], p[numbers != k]
            lowest = own.sort().values[: self.hardest]
            highest = others.sort(descending=True).values[: self.hardest]
            to_positive = (own[:, None] - lowest[None, :]).abs()
            to_negative = own[:, None] - highest[None, :]
            cost = (self.margin + to_positive[:, :, None] - to_negative[:, None, :]).clamp(min=0)
            # A row is no triplet with itself as its positive.
            position = torch.argsort(own)[: self.hardest]
            is_other = torch.arange(len(own), device=p.device)[:, None] != position[None, :]
            costs.append(cost[is_other].flatten())
        return torch.cat(costs)

    def _rare_classes(self, numbers: Tensor) -> list[int]:
        sizes = torch.bincount(numbers, minlength=self.n_classes).tolist()
        rare, rows = [], 0
        for k in sorted(range(self.n_classes), key=lambda k: sizes[k]):
            rows += sizes[k]
            if 2 * rows > len(numbers):
                break
            if sizes[k] > 0:
                rare.append(k)
        return rare
