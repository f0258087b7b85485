"""Networks trained by the losses of others: SOSR, CoSen, CRL, and those that people ask about."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter
from crcen.paper.methods.loss_network import LossNetwork
from crcen.theory.classes.cost_matrix import CostMatrix
from crcen.theory.weighting import resolve
from crcen.training.recipe import Schedule

__all__ = [
    "ClassBalancedClassifier",
    "ClassRectificationClassifier",
    "FocalClassifier",
    "LDAMClassifier",
    "LearnedCostClassifier",
    "LogitAdjustedClassifier",
    "OneSidedRegressionClassifier",
]

Array = NDArray[np.float64]
_MOST_ROWS_COMPARED = 1000


class OneSidedRegressionClassifier(LossNetwork):
    """SOSR: the network answers what each decision would cost; the cheapest is taken.

    The loss is `crcen.paper.losses.OneSidedRegressionLoss`. A row pulls at an output with a slope of 1 at most,
    whatever it costs, so that costs move decisions far less than weights do: expect few alarms where positives are
    rare. Its outputs estimate costs from one side each and are
    no posterior: ``predict_proba`` is the softmax of their negatives, an order of rows; calibrate it for more.

    Parameters
    ----------
    weighting : CostMatrix, price or "balanced", default="balanced"
        What wrong decisions cost. Of two classes a price, for the rarer one; ``"balanced"`` charges a row of a class
        the inverse of its share. Costs are divided by their mean over the rows, which changes no decision.
    hidden, l2, max_epochs, schedule, device, random_state
        As in `LossNetwork`.
    """

    _why_no_posterior = "answers costs, each estimated from one side, which are no probabilities"

    def __init__(
        self,
        weighting: Any = "balanced",
        *,
        hidden: Any = (32,),
        l2: float = 1e-4,
        max_epochs: int | None = None,
        schedule: Schedule | None = None,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        super().__init__(
            hidden=hidden, l2=l2, max_epochs=max_epochs, schedule=schedule, device=device, random_state=random_state
        )
        self.weighting = weighting

    def _costs(self) -> Array:
        counts, n_classes = self.counts_, len(self.classes_)
        if isinstance(self.weighting, CostMatrix):
            if self.weighting.actions or self.weighting.n_rows is not None:
                raise InvalidParameter("these networks decide for classes: give a CostMatrix of classes alone.")
            costs = self.weighting.for_classes(self.classes_.tolist()).costs
        elif isinstance(self.weighting, str) and self.weighting == "balanced":
            costs = (counts.sum() / (n_classes * counts))[:, None] * (1.0 - np.eye(n_classes))
        elif n_classes > 2:
            raise InvalidParameter('a price is for two classes: give weighting="balanced" or a CostMatrix.')
        else:
            rare = int(counts[1] <= counts[0])
            price = resolve(self.weighting, counts[rare], counts[1 - rare])
            costs = np.zeros((2, 2))
            costs[rare, 1 - rare], costs[1 - rare, rare] = price.lam, 1.0 - price.lam
        return costs * (counts.sum() / (counts @ costs.mean(axis=1)))

    def _n_outputs(self) -> int:
        self.costs_ = self._costs()
        return int(self.costs_.shape[1])

    def _loss(self, counts: Array) -> Any:
        from crcen.paper.losses import OneSidedRegressionLoss

        return OneSidedRegressionLoss(self.costs_)

    def _scores(self, outputs: Array) -> Array:
        return -outputs

    def _decides_at(self) -> Array | None:
        is_of_classes = len(self.classes_) > 2 and isinstance(self.weighting, CostMatrix)
        return None if is_of_classes else self.costs_.sum(axis=1)


class LearnedCostClassifier(LossNetwork):
    """CoSen: costs inside the softmax, learned beside the network and dropped in prediction.

    After every epoch the costs ξ go a step towards T, which is made of the sizes of the classes, how separable they are
    among the last hidden units, and how the network confuses them (`crcen.paper.losses.target_costs`). The step
    is cut to a hundredth for good when the error on the rows grows, as in the paper; which measures it on rows of its
    own. With ``learn=False`` ξ is fixed at the classes' frequencies: logit adjustment.

    Fixed, ``predict_proba`` is natural. Learned, it is the softmax of the outputs and no posterior: calibrate it.

    Left open by the paper and chosen here: μ = 0 and σ = 1 of both factors of T, a step of .1, and at most 1,000 rows
    for separability.

    Parameters
    ----------
    learn : bool, default=True
        Whether the costs are learned.
    hidden, l2, max_epochs, schedule, device, random_state
        As in `LossNetwork`.

    Attributes
    ----------
    costs_ : array of shape (K, K)
        ξ at the end.
    """

    def __init__(
        self,
        learn: bool = True,
        *,
        hidden: Any = (32,),
        l2: float = 1e-4,
        max_epochs: int | None = None,
        schedule: Schedule | None = None,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        super().__init__(
            hidden=hidden, l2=l2, max_epochs=max_epochs, schedule=schedule, device=device, random_state=random_state
        )
        self.learn = learn

    _loss_is_of_rows = False  # each network learns costs of its own

    @property
    def _why_no_posterior(self) -> str:
        return "learns costs inside its softmax, which no known map takes out" if self.learn else ""

    def _decides_at(self) -> Array | None:
        return None if self.learn else 1.0 / self.counts_

    def _loss(self, counts: Array) -> Any:
        from crcen.paper.losses import LearnedCostLoss

        self._rate, self._error = 0.1, np.inf
        n_classes = len(counts)
        fixed = np.tile(counts / counts.sum(), (n_classes, 1))
        loss = LearnedCostLoss(n_classes, None if self.learn else fixed)
        self.costs_ = loss.costs.double().numpy()
        return loss

    def _after_epoch(self, net: Any, loss: Any, inputs: Any, target: Any) -> None:
        if not self.learn:
            return
        import torch

        from crcen.paper.losses import class_separability, target_costs

        n_classes = len(self.counts_)
        decided = net(inputs).argmax(dim=1)
        confusion = torch.zeros(n_classes, n_classes, dtype=torch.float64)
        for k in range(n_classes):
            confusion[k] = torch.bincount(decided[target == k], minlength=n_classes).cpu().double() / self.counts_[k]
        some = torch.from_numpy(self._rng.permutation(len(target))[:_MOST_ROWS_COMPARED].astype(np.int64))
        some = some.to(target.device)
        separability = class_separability(net[0](inputs[some]).cpu(), target[some].cpu(), n_classes)
        error = float((decided != target).double().mean())
        if error > self._error:
            self._rate *= 0.01
        self._error = error
        loss.move_costs(target_costs(self.counts_, separability, confusion).to(loss.costs.device), self._rate)
        self.costs_ = loss.costs.double().cpu().numpy()

    def _logits(self, outputs: Array) -> Array:
        return outputs if self.learn else outputs + np.log(self.counts_ / self.counts_.sum())


class ClassRectificationClassifier(LossNetwork):
    """CRL: cross entropy and hard triplets of the rare classes of each batch.

    See `crcen.paper.losses.ClassRectificationLoss`. The outputs are no posterior: calibrate them.
    """

    _loss_is_of_rows = False  # triplets are of one network
    _why_no_posterior = "adds triplets to cross entropy, which no known map takes out"

    def _loss(self, counts: Array) -> Any:
        from crcen.paper.losses import ClassRectificationLoss

        return ClassRectificationLoss(counts)


class LogitAdjustedClassifier(LossNetwork):
    """Logit adjustment, at τ = 1 the balanced softmax: decided by the largest output, which is at the costs 1/π_k.

    ``predict_proba`` adds log π and is natural.
    """

    def _decides_at(self) -> Array:
        return 1.0 / self.counts_

    def _loss(self, counts: Array) -> Any:
        from crcen.paper.losses import LogitAdjustedLoss

        return LogitAdjustedLoss(counts)

    def _logits(self, outputs: Array) -> Array:
        return outputs + np.log(self.counts_ / self.counts_.sum())


class LDAMClassifier(LossNetwork):
    """Margins by the fourth root of the classes' sizes; see `crcen.paper.losses.LDAMLoss`. Calibrate it."""

    _why_no_posterior = "trains with margins, which no known map takes out"

    def _loss(self, counts: Array) -> Any:
        from crcen.paper.losses import LDAMLoss

        return LDAMLoss(counts)


class FocalClassifier(LossNetwork):
    """Focal loss at γ = 2 without weights; see `crcen.paper.losses.FocalLoss`. Calibrate it."""

    _why_no_posterior = "is trained by focal loss, whose probabilities lie too close to ½"

    def _loss(self, counts: Array) -> Any:
        from crcen.paper.losses import FocalLoss

        return FocalLoss()


class ClassBalancedClassifier(LossNetwork):
    """Class weights by the effective number of rows; decided at them, and ``predict_proba`` has them taken out."""

    def _weights(self) -> Array:
        from crcen.paper.losses import effective_number_weights

        return effective_number_weights(self.counts_)

    def _decides_at(self) -> Array:
        return self._weights()

    def _loss(self, counts: Array) -> Any:
        from crcen.torch import ClassWeightedLoss

        return ClassWeightedLoss(self._weights())

    def _logits(self, outputs: Array) -> Array:
        return outputs - np.log(self._weights())
