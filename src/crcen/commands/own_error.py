"""How far off a fitted table model may be by the chance of its rows, measured once and kept with the model."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import (
    CommitteeClassifier,
    CRCENClassifierCV,
    InvalidInput,
    InvalidParameter,
    TableClassifier,
    training_error,
)
from crcen._support.progress import busy
from crcen.exceptions import TrainingFailed
from crcen.theory.residual_test import TrainingError

__all__ = ["measure_own_error"]

# With fewer positives, or rows of the rarest class, halves of the rows say nothing that an evaluation could use.
_FEWEST_POSITIVES = 10
_MOST_ROWS = 5_000  # of a refit


def measure_own_error(
    model: TableClassifier,
    encoded: NDArray[np.float64],
    labels: NDArray[Any],
    weights: NDArray[np.float64] | None,
    n_refits: int,
    seed: int,
    verbose: int,
    until: float | None = None,
) -> TrainingError | TrainingError | None:
    """Measure the error of a fitted model's mean log-odds from refits, and keep it as ``training_error_``.

    Parameters
    ----------
    model : TableClassifier
        Fitted on these rows. Of searches and committees, at the settings that they chose.
    encoded, labels, weights
        Training rows as it encodes them, their labels, and their weights, if they have any.
    n_refits : int
        Refits on random parts of the rows; 0 for none.
    seed : int
        Of these parts.
    verbose : int
        1 says what takes the time.
    until : float, optional
        Seconds of `time.perf_counter` by which all refits must be done; one is timed first.

    Returns
    -------
    TrainingError, TrainingError or None
        None where it was not measured: evaluations then allow for what models of this kind have.
    """
    if isinstance(n_refits, bool) or not isinstance(n_refits, int) or n_refits < 0 or n_refits in (1, 2):
        raise InvalidParameter(f"n_refits must be 0, or a whole number of at least 3: got {n_refits!r}.")
    price = model.weighting_
    is_searched = isinstance(model.estimator_, CRCENClassifierCV | CommitteeClassifier)
    if not n_refits or not is_searched:
        return None
    fewest = float(price.counts.min() if price.positive is None else price.n_pos)
    if fewest < _FEWEST_POSITIVES:
        return None
    with busy("measuring the model's own error", visible=bool(verbose)):
        try:
            if until is not None and not _is_in_time(model.estimator_, encoded, labels, n_refits, until):
                return None
            found = training_error(
                model.estimator_,
                encoded,
                labels,
                sample_weight=weights,
                n_fits=n_refits,
                random_state=seed,
            )
        except (InvalidInput, TrainingFailed):  # a part of the rows lacks one class, or leaves no network
            return None
    model.training_error_ = found
    return found


def _is_in_time(estimator: Any, X: NDArray[np.float64], y: NDArray[Any], n_refits: int, until: float) -> bool:
    """Whether refits can be done by a time, by one on as many rows as each of them has."""
    start = time.perf_counter()
    if start > until:
        return False
    rows = np.random.default_rng(0).permutation(len(y))[: min(len(y) // 2, _MOST_ROWS)]
    if hasattr(estimator, "refit_on"):
        estimator.refit_on(X[rows], y[rows])
    now = time.perf_counter()
    return now + n_refits * (now - start) <= until
