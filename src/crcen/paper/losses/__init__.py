"""Losses for imbalanced classes that others have proposed, as modules of (logits, target).

Some methods of `crcen.paper.methods` train with them. Each docstring states what the outputs estimate and whether
natural probabilities can be computed from them.
"""

from crcen.paper.losses.adjusted import LDAMLoss, LogitAdjustedLoss
from crcen.paper.losses.effective_number import effective_number_weights
from crcen.paper.losses.focal import FocalLoss
from crcen.paper.losses.learned_costs import LearnedCostLoss, class_separability, target_costs
from crcen.paper.losses.one_sided import OneSidedRegressionLoss
from crcen.paper.losses.quintuplets import QuintupletLoss
from crcen.paper.losses.rectification import ClassRectificationLoss

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
