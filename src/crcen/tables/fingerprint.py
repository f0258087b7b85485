"""A fingerprint of training rows: enough to know them again, without a value of theirs.

Rows are hashed as the model reads them, so that it does not matter whether they come from CSV or Parquet, in which
order the columns stand, or whether a number is written 1, 1.0 or 1e0. Of many rows those with the smallest hashes are
kept, and new rows are compared among the same part of all possible hashes. Rows may repeat in honest data; how often a
fresh row has a twin in training is known from how often a training row has one.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.tables.columns import Column, as_text

__all__ = ["Fingerprint", "Recognition", "fingerprint_of", "row_hashes"]

# pandas is optional, and no type checker sees it.
DataFrame = Any

Array = NDArray[np.float64]
Hashes = NDArray[np.uint64]

MOST_HASHES = 16_384
# Digits that a number keeps: those that a float32 and its spelling in a text file share.
_DIGITS = 6
# Where nearly every fresh row has a twin in training, a training row cannot be told from it.
_MOST_TWINS = 0.9
_FEWEST_SEEN, _SMALLEST_EXCESS, _Z = 5, 0.02, 5.0


@dataclass(frozen=True)
class Recognition:
    """How many rows of a table were training rows.

    Parameters
    ----------
    n_rows : int
        Rows looked at; of many, those that can be compared.
    n_seen : int
        Those of them that are also among the training rows.
    n_expected : float
        How many of them would be by chance, since rows repeat: as often as training rows have a twin there.
    status : {"seen", "new", "unknown"}
        Whether these are more than chance allows; "unknown" where rows repeat too often to tell, or too few were
        compared.
    """

    n_rows: int
    n_seen: int
    n_expected: float
    status: str

    @property
    def measured(self) -> str:
        """What was found, in words."""
        if not self.n_rows:
            return "no row can be compared with the fingerprint of the training rows"
        chance = f"; {self.n_expected:,.0f} by chance, since rows repeat" if self.n_expected >= 0.5 else ""
        return f"{self.n_seen:,} of {self.n_rows:,} rows compared are rows of training{chance}"

    @property
    def notes(self) -> list[str]:
        """A sentence where rows were seen in training."""
        if self.status != "seen":
            return []
        return [f"{self.measured}: figures on rows that a model has learnt from are no evidence; use rows kept apart"]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "status": self.status,
            "rows_compared": self.n_rows,
            "rows_seen": self.n_seen,
            "rows_expected": self.n_expected,
        }


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Hashes of training rows.

    Whoever has the file and all the values of a row can find out whether that row was in training, and nothing else.

    Parameters
    ----------
    salt : int
        Drawn from the rows, so that hashes of one table say nothing about another.
    hashes : uint64 array of shape (k,)
        Sorted, different: the smallest of all.
    limit : int
        Hashes up to this one are kept.
    n_rows, n_twins : int
        Training rows with such a hash, and those of them that another training row equals.
    """

    salt: int
    hashes: Hashes
    limit: int
    n_rows: int
    n_twins: int

    def __post_init__(self) -> None:
        """Refuse what no rows give: files are made by people."""
        if self.hashes.dtype != np.uint64 or self.hashes.ndim != 1 or not self.hashes.size:
            raise ValueError("the fingerprint of training rows is none")
        if not 0 <= self.salt < 2**64 or not 0 <= self.limit < 2**64 or not 0 <= self.n_twins <= self.n_rows > 0:
            raise ValueError("the fingerprint of training rows has impossible counts")

    def compare(self, hashes: Hashes) -> tuple[int, int]:
        """Rows that can be compared, and those of them that were seen in training; sums over chunks."""
        own = hashes[hashes <= np.uint64(self.limit)]
        place = np.minimum(np.searchsorted(self.hashes, own), len(self.hashes) - 1)
        return len(own), int((self.hashes[place] == own).sum())

    def judge(self, n_rows: int, n_seen: int) -> Recognition:
        """What these counts mean."""
        by_chance = (self.n_twins + 1.0) / (self.n_rows + 2.0)
        expected = n_rows * self.n_twins / self.n_rows
        if by_chance > _MOST_TWINS or n_rows < _FEWEST_SEEN:
            return Recognition(n_rows, n_seen, expected, "unknown")
        error = math.sqrt(by_chance * (1.0 - by_chance) * (1.0 / n_rows + 1.0 / self.n_rows))
        excess = n_seen / n_rows - by_chance
        is_seen = n_seen >= _FEWEST_SEEN and excess > max(_Z * error, _SMALLEST_EXCESS * (1.0 - by_chance))
        return Recognition(n_rows, n_seen, expected, "seen" if is_seen else "new")


def fingerprint_of(columns: list[Column], frame: DataFrame, X: Array) -> Fingerprint:
    """The fingerprint of training rows.

    Parameters
    ----------
    columns : list of Column
        How each used column is encoded.
    frame : DataFrame
        The rows.
    X : float64 array of shape (n, encoded columns)
        The same rows encoded.
    """
    unsalted = row_hashes(columns, frame, X, 0)
    salt = int.from_bytes(hashlib.blake2b(np.sort(unsalted).tobytes(), digest_size=8).digest(), "big")
    found, counts = np.unique(_mixed(unsalted ^ np.uint64(salt)), return_counts=True)
    limit = int(found[MOST_HASHES - 1]) if len(found) > MOST_HASHES else 2**64 - 1
    kept, counts = found[:MOST_HASHES], counts[:MOST_HASHES]
    return Fingerprint(salt, kept, limit, int(counts.sum()), int(counts[counts > 1].sum()))


def row_hashes(columns: list[Column], frame: DataFrame, X: Array, salt: int) -> Hashes:
    """One hash a row; ``salt`` is 0, or that of a fingerprint."""
    hashes = np.zeros(len(X), dtype=np.uint64)
    start = 0
    for column in columns:
        width = len(column.encoded_names)
        for number, part in enumerate(_parts(column, frame, X[:, start : start + width])):
            hashes = _mixed(hashes ^ _mixed(part + _key(f"{column.name}/{number}")))
        start += width
    return _mixed(hashes ^ np.uint64(salt)) if salt else hashes


def _parts(column: Column, frame: DataFrame, encoded: Array) -> list[Hashes]:
    """What a row holds in a column, as integers."""
    if column.kind == "text":
        # Components of texts depend on the rows they are computed with, in their last digits: the text does not.
        return [_of_text(frame[column.name])]
    if column.kind == "category":
        return [np.where(encoded.any(axis=1), encoded.argmax(axis=1), -1).astype(np.int64).view(np.uint64)]
    return [_of_numbers(values) for values in encoded.T]


def _key(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big"))


def _mixed(values: Hashes) -> Hashes:
    """Splitmix64: every bit of the result depends on every bit of the value."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def _of_numbers(values: Array) -> Hashes:
    """Numbers with `_DIGITS` significant digits as integers: digits and exponent."""
    size = np.abs(values)
    with np.errstate(divide="ignore"):
        exponent = np.where(size > 0, np.floor(np.log10(size)), 0.0)
    # In two steps, since the power of ten of a tiny number is none that a float holds.
    half = np.trunc((_DIGITS - 1 - exponent) / 2)
    digits = np.rint(values * 10.0**half * 10.0 ** (_DIGITS - 1 - exponent - half))
    is_next = np.abs(digits) >= 10.0**_DIGITS  # 9.999999 is 10.0000
    digits, exponent = np.where(is_next, digits / 10.0, digits), np.where(is_next, exponent + 1, exponent)
    return (digits.astype(np.int64) * 1024 + exponent.astype(np.int64)).view(np.uint64)


def _of_text(cells: Any) -> Hashes:
    import pandas as pd

    return pd.util.hash_array(as_text(cells).fillna("\0").to_numpy(dtype=object), categorize=True)
