"""Class weights by the effective number of rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter
from crcen.paper.losses.columns import checked_counts

__all__ = ["effective_number_weights"]


def effective_number_weights(counts: Any, beta: float = 0.9999) -> NDArray[np.float64]:
    """Weights (1 − β) / (1 − β^n_k), scaled to the mean 1: the class-balanced loss of Cui and others (2019).

    They are class weights like any others, from 1 (β = 0, no weighting) to 1/n_k (β → 1, balanced), so that
    `ClassWeightedLoss` trains by them and natural probabilities are had by dividing them out.

    Parameters
    ----------
    counts : sequence of int
        Rows of class 0, 1, … of the training set.
    beta : float, default=0.9999
        From 0 to below 1.
    """
    if not 0.0 <= beta < 1.0:
        raise InvalidParameter(f"beta must lie from 0 to below 1: got {beta!r}.")
    n = checked_counts(counts).numpy()
    weights = np.ones_like(n) if beta == 0.0 else -(1.0 - beta) / np.expm1(n * np.log(beta))
    return weights / weights.mean()
