"""The estimators as the paper trains them: at the price, balanced there, without a map. For tests of that."""

from functools import partial

import crcen

__all__ = ["PAPER", "CRCENClassifier", "CRCENClassifierCV"]

PAPER = {"training_weighting": "price", "balance": True, "probability": "shift"}

CRCENClassifier = partial(crcen.CRCENClassifier, l2=1e-2, inputs=crcen.Inputs(column_scales=False), **PAPER)
# A search solves for the bias out of fold.
CRCENClassifierCV = partial(crcen.CRCENClassifierCV, **PAPER | {"balance": "oof"})
