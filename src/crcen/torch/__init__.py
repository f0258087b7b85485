"""The law for any PyTorch network: a loss that trains at the stated weight, the balance of an output bias."""

from crcen.torch.loss import ClassWeightedLoss

__all__ = ["ClassWeightedLoss"]
