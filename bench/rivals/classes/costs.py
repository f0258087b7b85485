"""The three cost matrices of the benchmark, made of the classes and their training counts alone."""

import numpy as np
from numpy.typing import NDArray

from crcen import CostMatrix

__all__ = ["DEAR", "cost_matrices"]

# What a mistake on the rarest class costs where one class is dear; others cost 1.
DEAR = 20.0


def cost_matrices(counts: NDArray[np.int64]) -> dict[str, CostMatrix]:
    """Costs by name, rows the truth and columns decisions.

    Parameters
    ----------
    counts : array of shape (K,)
        Training rows of each class, in the order that the costs by distance go by.

    Returns
    -------
    dict of CostMatrix
        ``inverse``: a mistake on a class costs n / (K · its count). ``ordinal``: the distance of both classes in their
        order. ``dear``: 20 for a mistake on the rarest class, 1 for others.
    """
    n_classes = len(counts)
    wrong, place = 1.0 - np.eye(n_classes), np.arange(n_classes)
    dear = np.where(place == int(np.argmin(counts)), DEAR, 1.0)
    return {
        "inverse": CostMatrix((counts.sum() / (n_classes * counts))[:, None] * wrong),
        "ordinal": CostMatrix(np.abs(place[:, None] - place).astype(np.float64)),
        "dear": CostMatrix(dear[:, None] * wrong),
    }
