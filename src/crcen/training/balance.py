"""The balance solve, for callers that may never fit: torch is loaded with the first solve."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.price import WeightingLike, resolve
from crcen.theory.rows import check_binary_target, check_row_weights, class_totals

__all__ = ["balance_shift", "solve_shifts"]


def balance_shift(
    y: ArrayLike, logits: ArrayLike, weighting: WeightingLike, sample_weight: ArrayLike | None = None
) -> float:
    """The number to add to any network's output bias so that the key equation holds on these rows.

    Parameters
    ----------
    y
        0/1 or bool, 1 = positive; both classes must be present.
    logits
        The network's output before the sigmoid, one a row.
    weighting
        Any weighting: a spec is resolved on these rows, a resolved one is taken as it is.
    sample_weight
        Row weights, or ``None``.

    Returns
    -------
    float
        The shift d with Σ w (y − σ(logits + d)) = 0.

    Examples
    --------
    >>> import numpy as np
    >>> y, logits = np.array([1, 0, 0, 0]), np.array([40.0, 41.0, 42.0, 43.0])
    >>> d = balance_shift(y, logits, "balanced")
    >>> q = 1 / (1 + np.exp(-(logits + d)))
    >>> float(abs(3 * (1 - q[0]) - q[1:].sum())) < 1e-12
    True
    """
    target = check_binary_target(y)
    values = np.asarray(logits, dtype=np.float64)
    if values.shape != target.shape:
        raise InvalidInput(f"logits must have one value a row: got shape {values.shape} for {target.size} rows.")
    if not np.isfinite(values).all():
        raise InvalidInput("logits must be finite: got NaN or infinity; check the network that made them.")
    rows = check_row_weights(sample_weight, target.size)
    weights = resolve(weighting, *class_totals(target, rows)).row_weights(target, rows)
    return float(solve_shifts(target, values[None], weights[None])[0])


def solve_shifts(
    y: NDArray[np.bool_], logits: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Shifts of M networks at once, each from its own logits and weights; see `crcen.training.balance_solve`.

    Shape
    -----
    y (n,); logits (M, n); weights (M, n) or (1, n); result (M,).
    """
    from crcen.training.balance_solve import solve_shifts as solve

    return solve(y, logits, weights)
