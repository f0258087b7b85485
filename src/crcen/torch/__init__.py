"""The law for any PyTorch network: a loss that trains at the stated weight, a balanced bias, natural logits."""

from crcen.torch.balance import balance_
from crcen.torch.loss import ClassWeightedLoss
from crcen.torch.natural import NaturalLogits
from crcen.torch.stationarity import Cause, Stationarity, stationarity

__all__ = ["Cause", "ClassWeightedLoss", "NaturalLogits", "Stationarity", "balance_", "stationarity"]
