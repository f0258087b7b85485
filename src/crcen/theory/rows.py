"""Rows as the theory takes them: a 0/1 target, weights that are not negative, probabilities in [0, 1]."""

import numbers as number_types
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.tensors import as_numpy

__all__ = [
    "check_binary_target",
    "check_class_numbers",
    "check_not_negative",
    "check_probabilities",
    "check_row_weights",
    "class_totals",
    "effective_rows",
    "effective_totals",
]


def _as_array(values: ArrayLike, name: str) -> NDArray[np.generic]:
    """Return `values` as a rectangular array of numbers or truth values."""
    try:
        array = np.asarray(as_numpy(values))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be a rectangular array of numbers, got one that is not: {error}") from error
    if array.dtype.kind == "O":
        odd = [value for value in array.ravel() if not isinstance(value, number_types.Real | np.bool_)]
        if odd:
            raise InvalidInput(f"{name} must hold numbers, got values such as {odd[0]!r}")
        return array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        example = f" such as {array.ravel()[0].item()!r}" if array.size else ""
        raise InvalidInput(f"{name} must hold numbers, got values{example} of dtype {array.dtype}")
    return array


def check_binary_target(y: ArrayLike, name: str = "y", ndims: Sequence[int] = (1,)) -> NDArray[np.bool_]:
    """Check labels and return where they are positive.

    Parameters
    ----------
    y : array of shape (n,)
        0/1 or bool, 1 (True) is the positive class.
    name : str
        What the labels are called in the error message.
    ndims : sequence of int
        The numbers of dimensions allowed.

    Returns
    -------
    bool array of the same shape
        True for the positive rows.

    Raises
    ------
    InvalidInput
        If the labels are anything else.
    """
    array = _as_array(y, name)
    if array.ndim not in ndims:
        shapes = " or ".join(f"{ndim}-D" for ndim in ndims)
        raise InvalidInput(f"{name} must be {shapes}, got an array of shape {array.shape}")
    if array.size == 0:
        raise InvalidInput(f"{name} must have at least one row, got an array of shape {array.shape}")
    if array.dtype.kind == "b":
        return array.astype(np.bool_)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise InvalidInput(f"{name} must be 0/1 or bool with 1 = positive, got {int(np.isnan(array).sum())} NaN")
    positive: NDArray[np.bool_] = array == 1
    if not (positive | (array == 0)).all():
        labels = np.unique(array)
        listed = ", ".join(f"{label:g}" for label in labels[:5]) + (", ..." if labels.size > 5 else "")
        raise InvalidInput(
            f"{name} must be 0/1 or bool with 1 = positive, got the labels {listed}; "
            f"pass {name} == the label of the positive class"
        )
    return positive


def check_class_numbers(y: ArrayLike, n_classes: int) -> NDArray[np.int64]:
    """Class numbers 0 … K−1 of rows."""
    numbers = np.asarray(as_numpy(y))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iub":
        raise InvalidInput(f"y must hold class numbers, one a row: got {numbers.dtype} of shape {numbers.shape}.")
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < n_classes):
        raise InvalidInput(
            f"y must hold class numbers from 0 to {n_classes - 1}: got {numbers.min()} to {numbers.max()}."
        )
    return numbers.astype(np.int64)


def check_not_negative(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Check weights, counts or variances.

    Parameters
    ----------
    values : array of any shape
        Finite numbers, none below 0.
    name : str
        What they are called in the error message.

    Returns
    -------
    float64 array of the same shape
        A copy of the same numbers.

    Raises
    ------
    InvalidInput
        If one is negative, NaN or infinite.
    """
    numbers_given = _as_array(values, name).astype(np.float64)
    fine = np.isfinite(numbers_given) & (numbers_given >= 0.0)
    if not fine.all():
        raise InvalidInput(f"{name} must be finite and not negative, got {numbers_given[~fine].ravel()[0]:g}")
    return numbers_given


def check_row_weights(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float64]:
    """Check sample weights; None is a weight of 1 for each row.

    Parameters
    ----------
    sample_weight : array of shape (n,) or None
        Finite and not negative.
    n : int
        How many rows there are.

    Returns
    -------
    float64 array of shape (n,)
        The weights.

    Raises
    ------
    InvalidInput
        If their number differs or one of them is negative or not finite.
    """
    if sample_weight is None:
        return np.ones(n, dtype=np.float64)
    weights = check_not_negative(sample_weight, "sample_weight")
    if weights.shape != (n,):
        raise InvalidInput(f"sample_weight must have one weight for each of the {n} rows, got shape {weights.shape}")
    return weights


def effective_rows(weights: NDArray[np.float64]) -> float:
    """As many rows of equal weight as tell as much as these (Kish 1965), whatever the unit of weights, not all 0."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def effective_totals(positive: NDArray[np.bool_], weights: NDArray[np.float64]) -> tuple[float, float]:
    """As many positive and negative rows of equal weight as tell as much as these (Kish 1965), in the same shares.

    Parameters
    ----------
    positive : bool array of shape (n,)
        True for the positive rows.
    weights : float64 array of shape (n,)
        Checked sample weights, not all 0.
    """
    n_rows = effective_rows(weights)
    n_pos = n_rows * float(weights[positive].sum() / weights.sum())
    return n_pos, n_rows - n_pos


def class_totals(positive: NDArray[np.bool_], weights: NDArray[np.float64]) -> tuple[float, float]:
    """Sum the weights of each class, both of which must be there.

    Parameters
    ----------
    positive : bool array of shape (n,)
        True for the positive rows.
    weights : float64 array of shape (n,)
        Checked sample weights.

    Returns
    -------
    n_pos, n_neg : float
        Weighted class counts, both above 0.

    Raises
    ------
    InvalidInput
        If a class has no row, or only rows of weight 0.
    """
    totals = []
    for name, mine in (("positive", positive), ("negative", ~positive)):
        with np.errstate(over="ignore"):  # a sum that overflows is refused below, in words
            total = float(weights[mine].sum())
        if not np.isfinite(total):
            raise InvalidInput(f"the weights of the {name} rows must have a finite sum, got {total}")
        if total <= 0.0:
            got = f"{int(mine.sum())} {name} rows, all of weight 0" if mine.any() else f"no {name} row"
            raise InvalidInput(f"both classes must have rows of positive weight, got {got}")
        totals.append(total)
    return totals[0], totals[1]


def check_probabilities(q: ArrayLike, name: str = "q") -> NDArray[np.float64]:
    """Check that all values are probabilities.

    Parameters
    ----------
    q : array of any shape
        Numbers in [0, 1].
    name : str
        What they are called in the error message.

    Returns
    -------
    float64 array of the same shape
        The same numbers.

    Raises
    ------
    InvalidInput
        If one is NaN or outside [0, 1].
    """
    values = _as_array(q, name).astype(np.float64)
    if np.isnan(values).any():
        raise InvalidInput(f"{name} must lie in [0, 1], got {int(np.isnan(values).sum())} NaN")
    if ((values < 0.0) | (values > 1.0)).any():
        low, high = values.min(), values.max()
        raise InvalidInput(f"{name} must lie in [0, 1], got values from {low:g} to {high:g}: are these logits?")
    return values
