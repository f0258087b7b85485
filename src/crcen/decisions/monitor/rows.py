"""What a monitor reads from a model and from rows: labels, weighted probabilities, segments, and sums over them."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.decision import sigmoid
from crcen.theory.labels import Labels
from crcen.theory.residual_test import ResidualSums, residual_sums
from crcen.theory.rows import check_binary_target, check_row_weights
from crcen.theory.specs import Lam
from crcen.theory.tensors import as_numpy
from crcen.theory.weighting import WeightingLike, cost_ratio_of

__all__ = [
    "has_weighting",
    "lam_of",
    "out_of_fold_outputs",
    "outputs_of",
    "positive_rows",
    "reference_sums",
    "row_segments",
    "segment_names",
    "sums_by_segment",
]


def has_weighting(model: Any) -> bool:
    """Whether a model gives weighted probabilities and says what they were trained under, as ours do."""
    return hasattr(model, "weighted_proba") and hasattr(model, "weighting_")


def lam_of(model: Any, weighting: WeightingLike) -> float:
    """λ of the probabilities that the monitor will see."""
    if has_weighting(model):
        if weighting is not None:
            raise InvalidParameter(f"weighting={weighting!r} must not be given: the model's own weighting_ is used")
        return float(model.weighting_.lam)
    cost = cost_ratio_of(weighting)
    return Lam(weighting).value if isinstance(weighting, float) else cost / (1.0 + cost)


def positive_rows(model: Any, y: ArrayLike) -> NDArray[np.bool_]:
    """Where labels are positive; without a model they must be 0/1."""
    if model is None:
        return check_binary_target(y)
    labels = np.asarray(as_numpy(y))
    if labels.ndim != 1 or labels.size == 0:
        raise InvalidInput(f"y must be 1-D with at least one row, got an array of shape {labels.shape}")
    return Labels.of_model(model).checked(labels)


def outputs_of(model: Any, X: Any) -> NDArray[np.float64]:
    """Weighted probabilities of the positive class by the model, natural ones where it has no weighting."""
    if model is None:
        raise InvalidInput("this monitor has no model: pass q, or give it one with KeyEquationMonitor(model, ...)")
    column = Labels.of_model(model).column
    answer = model.weighted_proba(X) if has_weighting(model) else model.predict_proba(X)
    return np.asarray(answer)[:, column]


def out_of_fold_outputs(
    model: Any, positive: NDArray[np.bool_], sample_weight: ArrayLike | None
) -> NDArray[np.float64]:
    """Out-of-fold q of the training rows of a `CRCENClassifierCV`, whose labels and weights these must be."""
    logits = getattr(model, "oof_decision_function_", None)
    if logits is None:
        raise InvalidInput(
            "y_reference needs q_reference, the model's weighted probabilities of rows that it was not fitted on; "
            "only a CRCENClassifierCV has out-of-fold probabilities of its own"
        )
    if len(logits) != positive.size:
        raise InvalidInput(
            f"y_reference must be the {len(logits)} training labels in the order of fit, got {positive.size}: pass "
            "q_reference for other rows"
        )
    if not np.isfinite(logits).all():
        raise InvalidInput(
            f"{int((~np.isfinite(logits)).sum())} training rows were in no test fold: pass y_reference and q_reference "
            "of those that were"
        )
    total = float(check_row_weights(sample_weight, positive.size)[positive].sum())
    if not math.isclose(total, model.weighting_.n_pos, rel_tol=1e-6):
        raise InvalidInput(
            f"y_reference and sample_weight_reference must be those of fit, which had {model.weighting_.n_pos:g} "
            f"positives, got {total:g}"
        )
    return sigmoid(Labels.of_model(model).signed(logits))


def segment_names(segments: Any) -> list[str]:
    """Distinct names, as text."""
    if isinstance(segments, str):
        raise InvalidParameter(f"segments must be a sequence of names, got the text {segments!r}: did you mean a list?")
    names = [str(name) for name in segments]
    if len(set(names)) != len(names):
        raise InvalidParameter(f"segments must be distinct, got {names}")
    return names


def row_segments(segment: Any, n: int) -> NDArray[np.object_]:
    """The segment of each row as text; one name stands for all rows."""
    values = np.asarray(segment, dtype=object)
    if values.ndim == 0:
        values = np.full(n, values)
    if values.shape != (n,):
        raise InvalidInput(f"segment must have one name for each of the {n} rows, got shape {values.shape}")
    if any(value is None or value != value for value in values.tolist()):
        raise InvalidInput("segment must be known for every row, got None or NaN: name such rows 'unknown'")
    # Objects: an array of strings would be as wide as the longest name, for every row.
    return np.array([str(value) for value in values.tolist()], dtype=object)


def sums_by_segment(
    positive: NDArray[np.bool_],
    q: ArrayLike,
    lam: float,
    sample_weight: ArrayLike | None,
    segments: NDArray[np.object_] | None,
    rows: NDArray[np.bool_] | None = None,
) -> dict[str | None, ResidualSums]:
    """Sums over all rows (or those given), under None, and over the rows of each segment."""
    outputs, weights = np.asarray(as_numpy(q)), sample_weight
    if rows is not None:
        if outputs.shape != positive.shape:
            raise InvalidInput(f"q must have one value for each of the {positive.size} rows, got shape {outputs.shape}")
        weights = check_row_weights(sample_weight, positive.size)[rows]
        positive, outputs, segments = positive[rows], outputs[rows], None if segments is None else segments[rows]
    found: dict[str | None, ResidualSums] = {None: residual_sums(positive, outputs, Lam(lam), weights)}
    if segments is None:
        return found
    sizes = check_row_weights(weights, positive.size)
    for name in sorted(set(segments.tolist())):
        mine = segments == name
        found[name] = residual_sums(positive[mine], outputs[mine], Lam(lam), sizes[mine])
    return found


def reference_sums(
    model: Any, lam: float, y: ArrayLike | None, q: ArrayLike | None, segment: Any, sample_weight: ArrayLike | None
) -> dict[str | None, ResidualSums]:
    """Sums of the reference rows: all of them, and each segment's."""
    if y is None:
        for name, given in (("q", q), ("segment", segment), ("sample_weight", sample_weight)):
            if given is not None:
                raise InvalidInput(f"{name}_reference needs the labels y_reference of the same rows")
        return {None: ResidualSums()}
    positive = positive_rows(model, y)
    outputs = out_of_fold_outputs(model, positive, sample_weight) if q is None else q
    names = None if segment is None else row_segments(segment, positive.size)
    n_pos = int(positive.sum())
    if not 0 < n_pos < positive.size:
        raise InvalidInput(f"y_reference must have both classes, got {n_pos} positives of {positive.size} rows")
    return sums_by_segment(positive, outputs, lam, sample_weight, names)
