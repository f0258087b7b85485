"""The law for any PyTorch network: a loss that trains at the stated weight, a balanced bias, natural logits."""

from crcen.torch.balance import balance_
from crcen.torch.loss import ClassWeightedLoss
from crcen.torch.natural import NaturalLogits

__all__ = ["ClassWeightedLoss", "NaturalLogits", "balance_"]
