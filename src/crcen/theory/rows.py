"""Rows as the theory takes them: targets, weights and probabilities, checked; tensors as arrays; results as text."""

import numbers as number_types
from collections.abc import Sequence
from html import escape
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput

Array: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = NDArray[np.int64]
Clusters: TypeAlias = NDArray[np.generic]
# Objects of optional libraries, used by duck typing.
Estimator: TypeAlias = Any
Rows: TypeAlias = Any  # as an estimator takes them: an array, a sparse matrix or a data frame
Splitter: TypeAlias = Any
DataFrame: TypeAlias = Any
Axes: TypeAlias = Any
FloatOrArray: TypeAlias = float | Array
LabelArray: TypeAlias = NDArray[Any]  # labels of rows or classes, of any type

_LONGEST_LINE, _LONGEST_NAME = 160, 20
# Rounding of types that NumPy does not have: half the distance of two neighbours at 1.
_ROUNDING = {"torch.bfloat16": 2.0**-8, "torch.float16": 2.0**-11}


def as_numpy(values: Any) -> Any:
    """A tensor of any device as an array, without importing its library; anything else as it is."""
    if not (hasattr(values, "detach") and hasattr(values, "cpu")):
        return values
    found = values.detach().cpu()
    if str(getattr(found, "dtype", "")) == "torch.bfloat16":
        found = found.float()
    return np.asarray(found)


class Shown:
    """A result that a notebook shows as `print` does."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def in_one_line(result: object) -> str:
    """The type of a result and its first line: ``__repr__`` of results that hold arrays or models."""
    first = next((line.strip() for line in str(result).splitlines() if line.strip()), "")
    first = first if len(first) <= _LONGEST_LINE else f"{first[: _LONGEST_LINE - 1]}…"
    return f"<{type(result).__name__}: {first}>"


class ShownInOneLine(Shown):
    """The same, with a representation of one line."""

    def __repr__(self) -> str:
        return in_one_line(self)


def plain(value: float) -> float | None:
    """A number for JSON: None if it is not finite."""
    return float(value) if np.isfinite(value) else None


def p_text(p_value: float, digits: int = 2) -> str:
    """A p-value for people; below 1e-15 its digits mean nothing."""
    return f"{p_value:.{digits}g}" if p_value >= 1e-15 else "below 1e-15"


def decision_table(names: Sequence[object], table: Array, shares: Array | None = None) -> str:
    """Numbers by true class and decision as text; ``names`` are those of the columns, the classes first."""
    texts = [str(name) for name in names]
    width = max(10, *map(len, texts)) + 2
    ends = [""] * len(table) if shares is None else [f"{share:>10.3f}" for share in shares]
    head = " " * width + "".join(f"{text:>{width}}" for text in texts) + ("" if shares is None else f"{'recall':>10}")
    rows = [
        f"{text:<{width}}" + "".join(f"{value:>{width}.6g}" for value in row) + end
        for text, row, end in zip(texts, table.tolist(), ends, strict=False)
    ]
    return "\n".join(["true ↓ decided →", head, *rows])


def short(name: object) -> str:
    """A label for a column of a table, cut after 20 characters."""
    text = " ".join(str(name).split())
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def _as_array(values: ArrayLike, name: str) -> NDArray[np.generic]:
    """`values` as a rectangular array of numbers or truth values."""
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
    """Where 0/1 or bool labels are positive; other labels and other numbers of dimensions are refused."""
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


def effective_rows(weights: Array) -> float:
    """Number of equally weighted rows that carry as much information as these (Kish 1965); weights are not all 0."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def class_totals(positive: NDArray[np.bool_], weights: Array) -> tuple[float, float]:
    """Weight of the positive and of the negative rows; both must be above 0 and finite."""
    totals = []
    for name, mine in (("positive", positive), ("negative", ~positive)):
        with np.errstate(over="ignore"):  # an infinite sum is refused below
            total = float(weights[mine].sum())
        if not np.isfinite(total):
            raise InvalidInput(f"the weights of the {name} rows must have a finite sum, got {total}")
        if total <= 0.0:
            got = f"{int(mine.sum())} {name} rows, all of weight 0" if mine.any() else f"no {name} row"
            raise InvalidInput(f"both classes must have rows of positive weight, got {got}")
        totals.append(total)
    return totals[0], totals[1]
