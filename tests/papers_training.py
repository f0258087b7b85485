"""The estimators as the paper trains them: at the price, balanced there, without a map. For tests of that."""

import crcen
from grouped_settings import calibrated

__all__ = ["PAPER", "CRCENClassifier", "CRCENClassifierCV"]

PAPER = {"training_weighting": "price", "balance": True, "probability": "shift"}


def CRCENClassifier(weighting="balanced", **settings):
    """The classifier with ``calibration="paper"``, but for the parts that are given."""
    own = {"l2": 1e-2, "encoding": crcen.Inputs(column_scales=False)} | calibrated(settings, **PAPER)
    if "encoding" in settings and isinstance(own["encoding"], str):
        own["encoding"] = crcen.Inputs(encoding=own["encoding"], column_scales=False)
    return crcen.CRCENClassifier(weighting, **own)


def CRCENClassifierCV(weighting="balanced", **settings):
    """The search; it solves for the bias out of fold."""
    return crcen.CRCENClassifierCV(weighting, **calibrated(settings, **PAPER | {"balance": "oof"}))
