"""Checks of what callers pass as rows: targets, weights and probabilities."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.rows import Array, Clusters, as_numpy

# Rounding of types that NumPy does not have: half the distance of two neighbours at 1.
_ROUNDING = {"torch.bfloat16": 2.0**-8, "torch.float16": 2.0**-11}


def _as_array(values: ArrayLike, name: str, hint: str = "") -> NDArray[np.generic]:
    try:
        array = np.asarray(as_numpy(values))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be a rectangular array of numbers, got one that is not: {error}") from error
    if array.dtype.kind in "biuf":
        return array
    odd = [value for value in array.ravel().tolist() if not isinstance(value, numbers.Real | np.bool_)]
    if odd or array.dtype.kind != "O":
        found = f"values such as {odd[0]!r}" if odd else array.dtype
        raise InvalidInput(f"{name} must hold numbers, got {found}{hint}")
    return array.astype(np.float64)


def check_binary_target(y: ArrayLike, name: str = "y", ndims: Sequence[int] = (1,)) -> NDArray[np.bool_]:
    """Where 0/1 or bool labels are positive; other labels and other numbers of dimensions are refused."""
    array = _as_array(y, name, hint := f"; pass {name} == the positive label")
    if array.ndim not in ndims or array.size == 0:
        shapes = " or ".join(f"{ndim}-D" for ndim in ndims)
        raise InvalidInput(f"{name} must be {shapes} with at least one row, got an array of shape {array.shape}")
    if array.dtype.kind == "f" and (n_unknown := int(np.isnan(array).sum())):
        raise InvalidInput(f"{name} must be 0/1 or bool in every row, got {n_unknown} NaN")
    positive: NDArray[np.bool_] = array == 1
    if not (positive | (array == 0)).all():
        labels = np.unique(array)
        listed = ", ".join(f"{label:g}" for label in labels[:5]) + (", ..." if labels.size > 5 else "")
        raise InvalidInput(f"{name} must be 0/1 or bool, got the labels {listed}{hint}")
    return positive


def check_class_numbers(y: ArrayLike, n_classes: int) -> NDArray[np.int64]:
    """Class numbers 0 … K−1 of rows."""
    numbers = np.asarray(as_numpy(y))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iub":
        raise InvalidInput(f"y must be a 1-D array of class numbers: got {numbers.dtype} of shape {numbers.shape}.")
    if not ((numbers >= 0) & (numbers < n_classes)).all():
        span = f"{numbers.min()} to {numbers.max()}"
        raise InvalidInput(f"y must hold class numbers from 0 to {n_classes - 1}: got {span}.")
    return numbers.astype(np.int64)


def check_not_negative(values: ArrayLike, name: str) -> Array:
    """A float64 copy of finite numbers, none below 0."""
    found = _as_array(values, name).astype(np.float64)
    fine = np.isfinite(found) & (found >= 0.0)
    if not fine.all():
        raise InvalidInput(f"{name} must be finite and not negative, got {found[~fine].ravel()[0]:g}")
    return found


def check_row_weights(sample_weight: ArrayLike | None, n: int) -> Array:
    """Sample weights of n rows, finite and not negative; None is a weight of 1 for each row."""
    if sample_weight is None:
        return np.ones(n, dtype=np.float64)
    weights = check_not_negative(sample_weight, "sample_weight")
    if weights.shape != (n,):
        raise InvalidInput(f"sample_weight must have one weight for each of the {n} rows, got shape {weights.shape}")
    return weights


def in_units(weights: Array, unit: float) -> Array:
    """Weights over a unit, in 30 binary digits: the same digits for any scale of the weights."""
    part, power = np.frexp(weights / unit)
    return np.asarray(np.ldexp(np.round(part * 2.0**30), power - 30))


def check_probabilities(q: ArrayLike, name: str = "q") -> Array:
    """Numbers in [0, 1] of any shape, as float64."""
    values = _as_array(q, name).astype(np.float64)
    if np.isnan(values).any():
        raise InvalidInput(f"{name} must lie in [0, 1], got {int(np.isnan(values).sum())} NaN")
    if ((values < 0.0) | (values > 1.0)).any():
        low, high = values.min(), values.max()
        raise InvalidInput(f"{name} must lie in [0, 1], got values from {low:g} to {high:g}: are these logits?")
    return values


def check_class_probabilities(q: ArrayLike, n_rows: int, n_classes: int | None = None, name: str = "q") -> Array:
    """Probabilities (n, K) whose rows sum to 1, up to the rounding of their type."""
    values = np.asarray(as_numpy(q), dtype=np.float64)
    width = n_classes or (values.shape[1] if values.ndim == 2 else 0)
    if width < 2 or values.shape != (n_rows, width):
        raise InvalidInput(f"{name} must have {n_rows} rows and a column for each class, got shape {values.shape}")
    rounding = width * _ROUNDING.get(str(getattr(q, "dtype", "")), 0.0)
    sums, off = values.sum(axis=1), max(1e-6, rounding)
    if not (np.isfinite(values).all() and (values >= 0.0).all() and np.abs(sums - 1.0).max(initial=0.0) <= off):
        raise InvalidInput(f"{name} must hold probabilities in [0, 1], each row with the sum 1")
    return values if rounding <= 1e-6 else values / sums[:, None]


def class_totals(positive: NDArray[np.bool_], weights: Array) -> tuple[float, float]:
    """Weight of the positive and of the negative rows; both must be above 0 and finite."""
    with np.errstate(over="ignore"):  # an infinite sum is refused below
        pos, neg = float(weights[positive].sum()), float(weights[~positive].sum())
    for name, mine, total in (("positive", positive, pos), ("negative", ~positive, neg)):
        if not 0.0 < total < np.inf:
            got = f"{int(mine.sum())} {name} rows of weight {total:g}" if mine.any() else f"no {name} row"
            raise InvalidInput(f"both classes must have rows of positive and finite weight, got {got}")
    return pos, neg


def check_binary_rows(y: ArrayLike, p: ArrayLike, name: str = "q") -> tuple[NDArray[np.bool_], Array]:
    """0/1 or bool labels, and probabilities of the positive class, one for each of them."""
    positive, chances = check_binary_target(y), check_probabilities(p, name)
    if chances.shape != positive.shape:
        raise InvalidInput(f"{name} must have one value for each of the {positive.size} rows, got {chances.shape}")
    return positive, chances


def check_clusters(clusters: ArrayLike | None, n: int, name: str = "clusters") -> Clusters | None:
    """The cluster of each of n rows; None without clusters."""
    found = None if clusters is None else np.asarray(as_numpy(clusters))
    if found is not None and found.shape != (n,):
        raise InvalidInput(f"{name} must have one value for each of the {n} rows, got {found.shape}", parameter=name)
    if found is not None and any(one is None or (isinstance(one, float) and one != one) for one in found.tolist()):
        raise InvalidInput(f"{name} must be known for every row: a value is missing", parameter=name)
    return found


def check_whole_number(value: Any, name: str, least: int, most: float = np.inf) -> int:
    """A whole number within limits."""
    is_whole = isinstance(value, numbers.Integral) or (isinstance(value, numbers.Real) and float(value).is_integer())
    if isinstance(value, bool) or not is_whole or not least <= value <= most:
        within = f"of at least {least}" if most == np.inf else f"from {least} to {most}"
        raise InvalidParameter(f"{name} must be a whole number {within}, got {value!r}", parameter=name)
    return int(value)  # a float would be inexact above 2**53
