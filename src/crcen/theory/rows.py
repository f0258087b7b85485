"""Types of rows and results, tensors as arrays, and results as text."""

from collections.abc import Sequence
from html import escape
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = NDArray[np.int64]
Hashes: TypeAlias = NDArray[np.uint64]
Clusters: TypeAlias = NDArray[np.generic]
# Objects of optional libraries, used by duck typing.
Estimator: TypeAlias = Any
Rows: TypeAlias = Any  # as an estimator takes them: an array, a sparse matrix or a data frame
Splitter: TypeAlias = Any
# Objects of pandas, PyArrow, fsspec and databases, which are optional; no type checker sees them.
DataFrame: TypeAlias = Any
Series: TypeAlias = Any
ArrowArray: TypeAlias = Any
ArrowTable: TypeAlias = Any
RecordBatch: TypeAlias = Any
Schema: TypeAlias = Any
Field: TypeAlias = Any
Dataset: TypeAlias = Any
Fragment: TypeAlias = Any
ParquetFile: TypeAlias = Any
FileSystem: TypeAlias = Any
Connection: TypeAlias = Any
Cell: TypeAlias = Any  # a single value of a table
TableLike: TypeAlias = Any  # a data frame of any library, an array, a dict or a list of dicts
Axes: TypeAlias = Any
FloatOrArray: TypeAlias = float | Array
LabelArray: TypeAlias = NDArray[Any]  # labels of rows or classes, of any type


def as_numpy(values: Any) -> Any:
    """A tensor of any device as an array, without importing its library; anything else as it is."""
    if not (hasattr(values, "detach") and hasattr(values, "cpu")):
        return values
    found = values.detach().cpu()
    if str(getattr(found, "dtype", "")) == "torch.bfloat16":
        found = found.float()
    return np.asarray(found)


class EqualByArrays:
    """A dataclass with arrays, which is equal to another one with equal values."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(map(np.array_equal, vars(self).values(), vars(other).values()))


class AddsUp:
    """A dataclass of sums over rows: sums of parts of the rows add up, field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def to_list(self) -> list[float]:
        """All numbers, as one list for JSON."""
        return [number for one in vars(self).values() for number in np.ravel(one).tolist()]

    def from_list(self, numbers: Sequence[float]) -> Self:
        """The inverse of `to_list`, with the shapes and types of these sums."""
        parts = [np.asarray(one) for one in vars(self).values()]
        pieces = np.split(np.asarray(numbers), np.cumsum([part.size for part in parts])[:-1])
        found = [piece.astype(part.dtype).reshape(part.shape) for part, piece in zip(parts, pieces, strict=True)]
        return type(self)(*(one if one.ndim else one.item() for one in found))


class Shown:
    """A result that a notebook shows as `print` does."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class ShownInOneLine(Shown):
    """The same; its representation is its type and first line, for results that hold arrays or models."""

    def __repr__(self) -> str:
        first = next((line for line in str(self).splitlines() if line.strip()), "").strip()
        return f"<{type(self).__name__}: {short(first, 160)}>"


def scalar(values: Array) -> FloatOrArray:
    """An array without dimensions as a number; any other as it is."""
    return float(values) if values.ndim == 0 else values


def normalised(values: Array) -> Array:
    """Rows (n, K) divided by their sums."""
    return np.asarray(values / values.sum(axis=1, keepdims=True))


def p_text(p_value: float, digits: int = 2) -> str:
    """A p-value for people; below 1e-15 its digits mean nothing."""
    return f"{p_value:.{digits}g}" if p_value >= 1e-15 else "below 1e-15"


def four_digits(number: float) -> str:
    """A number with four significant digits, such as 359.8, or all digits before the point, such as 10,149."""
    return f"{number:,.0f}" if 9999.5 <= abs(number) < 1e15 else f"{number:.4g}"


def share_text(share: float, digits: int = 6) -> str:
    """A probability for people; one below 1 is not rounded to 1."""
    text = f"{share:.{digits}g}"
    return f"1 − {1.0 - share:.2g}" if text == "1" and share < 1.0 else text


def short(name: object, most: int = 20) -> str:
    """A name or value in one line of at most this number of characters."""
    text = " ".join(str(name).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def divided(above: ArrayLike, below: ArrayLike, empty: float = np.nan) -> Array:
    """Quotients, elementwise; ``empty`` where the divisor is not above 0."""
    top, bottom = np.broadcast_arrays(np.asarray(above, np.float64), np.asarray(below, np.float64))
    return np.divide(top, bottom, out=np.full(bottom.shape, empty), where=bottom > 0.0)


def alarms_above(p: Array, threshold: FloatOrArray) -> Bools:
    """Rows with an alarm: those above the threshold, not those at it."""
    return np.asarray(p > threshold)


def effective_rows(weights: Array) -> float:
    """Kish's effective sample size (Σw)²/Σw²; 0 if all weights are 0."""
    if not weights.any():
        return 0.0
    unit = weights / weights.max()
    return float(unit.sum() ** 2 / (unit**2).sum())
