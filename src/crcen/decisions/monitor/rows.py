"""What a monitor reads from rows of either kind: segments, sums over them, those of reference rows."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.rows import as_numpy, check_row_weights

__all__ = [
    "check_out_of_fold",
    "cluster_sizes",
    "has_weighting",
    "not_a_model",
    "reference_sums",
    "row_segments",
    "segment_names",
    "sums_by_segment",
]


def has_weighting(model: Any) -> bool:
    """Whether a model gives weighted probabilities and says what they were trained under, as ours do."""
    return hasattr(model, "weighted_proba") and hasattr(model, "weighting_")


def not_a_model() -> InvalidInput:
    """What to say where rows come to a monitor without a model."""
    return InvalidInput("this monitor has no model: pass q, or give it one with KeyEquationMonitor(model, ...)")


def check_out_of_fold(model: Any, n_rows: int, name: str) -> NDArray[np.float64]:
    """Out-of-fold answers of this name of all training rows of a `CRCENClassifierCV`, which must be so many."""
    logits = getattr(model, name, None)
    if logits is None:
        raise InvalidInput(
            "y_reference needs q_reference, the model's weighted probabilities of rows that it was not fitted on; "
            "only a CRCENClassifierCV has out-of-fold probabilities of its own"
        )
    if len(logits) != n_rows:
        raise InvalidInput(
            f"y_reference must be the {len(logits)} training labels in the order of fit, got {n_rows}: pass "
            "q_reference for other rows"
        )
    known = np.isfinite(logits).reshape(n_rows, -1).all(axis=1)
    if not known.all():
        raise InvalidInput(
            f"{int((~known).sum())} training rows were in no test fold: pass y_reference and q_reference of those that "
            "were"
        )
    return np.asarray(logits)


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
    kind: Any,
    encoded: NDArray[Any],
    q: ArrayLike,
    sample_weight: ArrayLike | None,
    segments: NDArray[np.object_] | None,
    rows: NDArray[np.bool_] | None = None,
    clusters: ArrayLike | None = None,
) -> dict[str | None, Any]:
    """Sums over all rows (or those given), under None, and over the rows of each segment.

    Parameters
    ----------
    kind : TwoClasses or SeveralClasses
        What sums them.
    encoded : array of shape (n,)
        Labels as ``kind.encode`` gives them.
    q, sample_weight, segments
        Of the rows.
    rows : array of bool of shape (n,), optional
        Rows to take.
    clusters : array of shape (n,), optional
        Rows of the same cluster count as one arrival.
    """
    outputs, weights = as_numpy(q), sample_weight
    kind.check_outputs(np.asarray(outputs), encoded.size)
    groups = None if clusters is None else np.asarray(as_numpy(clusters))
    if groups is not None and groups.shape != encoded.shape:
        raise InvalidInput(f"clusters must have one value for each of the {encoded.size} rows, got {groups.shape}")
    if rows is not None:
        weights = check_row_weights(sample_weight, encoded.size)[rows]
        encoded, outputs = encoded[rows], np.asarray(outputs)[rows]
        segments = None if segments is None else segments[rows]
        groups = None if groups is None else groups[rows]
    found: dict[str | None, Any] = {None: kind.sums(encoded, outputs, weights, groups)}
    if segments is None:
        return found
    sizes = check_row_weights(weights, encoded.size)
    for name in sorted(set(segments.tolist())):
        mine = segments == name
        own = None if groups is None else groups[mine]
        found[name] = kind.sums(encoded[mine], np.asarray(outputs)[mine], sizes[mine], own)
    return found


def cluster_sizes(clusters: NDArray[Any] | None, n_rows: int) -> NDArray[np.float64]:
    """The number of rows in each row's cluster; ones without clusters."""
    if clusters is None:
        return np.ones(n_rows)
    _, which, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    return np.asarray(counts[which.ravel()], dtype=np.float64)


def reference_sums(
    kind: Any,
    y: ArrayLike | None,
    q: ArrayLike | None,
    segment: Any,
    sample_weight: ArrayLike | None,
    clusters: ArrayLike | None,
) -> dict[str | None, Any]:
    """Sums of the reference rows: all of them, and each segment's."""
    if y is None:
        given_rows = (("q", q), ("segment", segment), ("sample_weight", sample_weight), ("clusters", clusters))
        for name, given in given_rows:
            if given is not None:
                raise InvalidInput(f"{name}_reference needs the labels y_reference of the same rows")
        return {None: kind.no_sums()}
    encoded = kind.encode(y)
    outputs = kind.out_of_fold(encoded, sample_weight) if q is None else q
    names = None if segment is None else row_segments(segment, encoded.size)
    kind.check_reference(encoded)
    return sums_by_segment(kind, encoded, outputs, sample_weight, names, clusters=clusters)
