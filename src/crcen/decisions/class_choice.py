"""From recalls that classes must have to the least class weights that give them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.labels import Labels
from crcen.theory.metrics import DecisionCounts, decision_counts
from crcen.theory.rows import check_row_weights

__all__ = ["ChosenClassWeights", "choose_class_weights"]

Array = NDArray[np.float64]

_SWEEPS = 1000
_LARGEST = 60.0  # of log weights: beyond that nothing is left of the other classes


@dataclass(frozen=True, eq=False)
class ChosenClassWeights:
    """The least class weights with which every asked recall is reached.

    Parameters
    ----------
    weighting : dict of label to float
        To fit at, or as the price of decisions; a class that nothing was asked of weighs 1.
    recalls : dict of label to float
        What was asked for.
    counts : DecisionCounts
        Decisions at these weights, on the rows given; in the order of the model's classes.
    """

    weighting: dict[Any, float]
    recalls: dict[Any, float]
    counts: DecisionCounts

    def __str__(self) -> str:
        weights = ", ".join(f"{label}: {weight:.6g}" for label, weight in self.weighting.items())
        asked = ", ".join(f"{label} {recall:g}" for label, recall in self.recalls.items())
        return "\n".join([f"recall of {asked}: weights {weights}", self.counts.table_of(list(self.weighting))])


def choose_class_weights(
    source: Any, recalls: Mapping[Any, float], X: Any, y: Any, sample_weight: Any = None
) -> ChosenClassWeights:
    """`crcen.choose_weighting` with a recall for each of some classes.

    Each class's weight is raised from 1 until its recall is reached, again and again, since the others' rise takes rows
    from it. What a class needs only grows with the others' weights, so that this ends at the least weights that serve,
    or shows that there are none.
    """
    classes = Labels(np.asarray(getattr(source, "classes_", ())))
    if not hasattr(source, "predict_proba") or classes.n_classes < 2:
        raise InvalidParameter(f"choose_weighting takes a fitted classifier: got a {type(source).__name__}.")
    if X is None or y is None:
        raise InvalidParameter(f"{type(source).__name__} needs X and y, rows that it did not see.")
    known = classes.classes.tolist()
    for label, recall in recalls.items():
        if label not in known:
            raise InvalidParameter(f"recalls must be of the classes {known}: got {label!r}.")
        if not isinstance(recall, int | float) or not 0.0 < recall <= 1.0:
            raise InvalidParameter(f"a recall must lie above 0 and be at most 1: got {recall!r} for {label}.")
    target = classes.encode(y)
    weights = check_row_weights(sample_weight, target.size)
    classes.counts(target, weights)
    p = np.asarray(source.predict_proba(X), dtype=np.float64)
    if p.shape != (len(target), classes.n_classes):
        raise InvalidInput(f"predict_proba must give {classes.n_classes} columns a row: got shape {p.shape}.")
    floors = {known.index(label): float(recall) for label, recall in recalls.items()}
    log_weights = _least_weights(p, target, weights, floors)
    if log_weights is None:
        raise InvalidParameter(
            "these recalls cannot be had together on these rows, whatever the weights: ask for less of a class."
        )
    with np.errstate(divide="ignore"):
        chosen = (np.log(p) + log_weights).argmax(axis=1)
    weighting = dict(zip(known, np.exp(log_weights).tolist(), strict=True))
    return ChosenClassWeights(weighting, dict(recalls), decision_counts(target, chosen, classes.n_classes, weights))


def _least_weights(p: Array, target: NDArray[np.int64], weights: Array, floors: dict[int, float]) -> Array | None:
    """Logarithms of the least weights from 1 on with these recalls; None where there are none."""
    log_weights = np.zeros(p.shape[1])
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    own = {k: np.flatnonzero((target == k) & (weights > 0.0)) for k in floors}
    for _ in range(_SWEEPS):
        before = log_weights.copy()
        for k, floor in floors.items():
            others = (log_p[own[k]] + log_weights).copy()
            others[:, k] = -np.inf
            needed = others.max(axis=1) - log_p[own[k], k]
            order = np.argsort(needed)
            reached = np.cumsum(weights[own[k]][order]) >= floor * weights[own[k]].sum() * (1.0 - 1e-12)
            least = float(needed[order][np.argmax(reached)])
            # A hair more, so that it is no tie.
            log_weights[k] = max(log_weights[k], least + 1e-9 * max(1.0, abs(least)))
            if not log_weights[k] <= _LARGEST:
                return None
        if np.abs(log_weights - before).max() <= 1e-8:
            return log_weights
    return None
