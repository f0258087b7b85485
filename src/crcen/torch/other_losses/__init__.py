"""Losses for imbalanced classes that others have proposed, as modules of (logits, target).

They answer the questions people come with ("why not focal loss?") and are what some of the systems of
`crcen.baselines` train by. Each says what its outputs estimate, and whether natural probabilities can be had from them.
"""

from crcen.torch.other_losses.adjusted import LDAMLoss, LogitAdjustedLoss
from crcen.torch.other_losses.effective_number import effective_number_weights
from crcen.torch.other_losses.focal import FocalLoss
from crcen.torch.other_losses.learned_costs import LearnedCostLoss, class_separability, target_costs
from crcen.torch.other_losses.one_sided import OneSidedRegressionLoss
from crcen.torch.other_losses.quintuplets import QuintupletLoss
from crcen.torch.other_losses.rectification import ClassRectificationLoss

__all__ = [
    "ClassRectificationLoss",
    "FocalLoss",
    "LDAMLoss",
    "LearnedCostLoss",
    "LogitAdjustedLoss",
    "OneSidedRegressionLoss",
    "QuintupletLoss",
    "class_separability",
    "effective_number_weights",
    "target_costs",
]
