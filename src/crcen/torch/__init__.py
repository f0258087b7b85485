"""The theory for any PyTorch network: weighted loss, balanced output bias, natural logits, stationarity.

The losses of other papers (`crcen.paper.losses`) are available here by name and are imported on first use.
"""

from importlib import import_module

from crcen.torch.balance import ClassWeightedLoss, NaturalLogits, balance_
from crcen.torch.stationarity import Cause, Stationarity, stationarity

_MODULE = "crcen.paper.losses"  # re-exported on first use, as `crcen` re-exports the other names of the paper
_LOSSES = (
    *("ClassRectificationLoss", "FocalLoss", "LDAMLoss", "LearnedCostLoss", "LogitAdjustedLoss"),
    *("OneSidedRegressionLoss", "QuintupletLoss", "effective_number_weights"),
)

__all__ = ["Cause", "ClassWeightedLoss", "NaturalLogits", "Stationarity", "balance_", "stationarity"]
__all__ += _LOSSES


def __getattr__(name: str) -> object:
    if name not in _LOSSES:
        raise AttributeError(f"module 'crcen.torch' has no attribute {name!r}")
    return getattr(import_module(_MODULE), name)


def __dir__() -> list[str]:
    return sorted(__all__)
