"""A fingerprint of the training rows: recognises a file of them, but proves nothing about a single row.

Rows are hashed as the model reads them. So the file format, the order of columns and the spelling of numbers (1, 1.0 or
1e0) do not matter. A hash is truncated to the number of a bucket, and the fingerprint states which buckets are
occupied: one in four, so that a row that was not in training matches with probability 1/4 (`FALSE_MATCH_RATE`). Rows
may repeat in honest data; how often a new row has a twin in training is known from how often a training row has one.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.text import listed
from crcen.tables.columns import Column, as_text
from crcen.tables.rare_counts import chance_of_more

__all__ = ["FALSE_MATCH_RATE", "Fingerprint", "Recognition", "duplicated_class", "fingerprint_of", "row_hashes"]

# pandas is optional, and no type checker sees it.
DataFrame = Any

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Hashes = NDArray[np.uint64]
Index = NDArray[np.int64]

FALSE_MATCH_RATE = 0.25
# Of more different rows, those with the smallest hashes are kept; new rows are compared if their hashes are as small.
MOST_HASHES = 65_536
# Digits that a number keeps: those that a float32 and its spelling in a text file share.
_DIGITS = 6
# If nearly every new row has a twin in training, training rows cannot be recognised.
_MOST_TWINS = 0.9
# A class is among the commonest ones if it has at most so many times the rows of another one.
_MOST_COMMON = 1.2
_FEWEST_ROWS, _FEWEST_SEEN, _SMALLEST_EXCESS, _Z = 20, 5, 0.02, 4.5


@dataclass(frozen=True)
class Recognition:
    """How many rows of a table were training rows.

    Parameters
    ----------
    n_rows : int
        Rows compared.
    n_seen : int
        Those that are also among the training rows, estimated: false matches are subtracted.
    n_expected : float
        How many would be among them by chance, since rows repeat: as often as training rows have a twin.
    status : {"seen", "new", "unknown"}
        Whether these are more than chance allows; "unknown" if rows repeat too often, or too few were compared.
    shares : dict of label to float
        If labels are known and duplication depends on them: the estimated share of training rows in each class.
    is_new : bool array of shape (n,) or None
        Rows that were certainly not in training.
    """

    n_rows: int
    n_seen: int
    n_expected: float
    status: str
    shares: dict[Any, float] = field(default_factory=dict)
    is_new: Bools | None = field(default=None, compare=False, repr=False)

    @property
    def measured(self) -> str:
        """What was found, in words."""
        repeats = f"; {self.n_expected:,.0f} by chance, since rows repeat" if self.n_expected >= 0.5 else ""
        if self.status == "unknown":
            why = "too few to tell" if self.n_rows < _FEWEST_ROWS else "but they repeat too often to tell"
            return f"{self.n_rows:,} rows can be compared with the training rows, {why}{repeats}"
        if self.status == "new":
            return f"{self.n_rows:,} rows compared, no more training rows among them than chance explains{repeats}"
        found = f"about {self.n_seen:,} of {self.n_rows:,} rows compared are training rows"
        if self.shares:
            shares = listed(f"{share:.0%} of {label}" for label, share in self.shares.items())
            return f"{found} ({shares}): rows were duplicated, depending on their label, before the split"
        return f"{found}{repeats}"

    @property
    def notes(self) -> list[str]:
        """A sentence if rows were seen in training."""
        if self.status != "seen":
            return []
        return [f"{self.measured}: results on training rows are no evidence; use rows kept apart"]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "status": self.status,
            "rows_compared": self.n_rows,
            "rows_seen": self.n_seen,
            "rows_expected": self.n_expected,
            "shares": {str(label): share for label, share in self.shares.items()},
        }


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Occupied buckets of row hashes.

    Someone who has the file and all values of a row learns only whether its bucket is occupied: always if the row was
    in training, and in a quarter of cases if it was not.

    Parameters
    ----------
    salt : int
        Derived from the rows, so that fingerprints of different tables cannot be compared.
    buckets : uint8 array
        One bit for each bucket, packed.
    n_buckets : int
        How many.
    limit : int
        Rows with hashes up to this one are kept.
    rows, twins : int64 arrays of shape (K,)
        Training rows of each class that are kept, and those that another row of the same class equals.
    n_twins : int
        Training rows that another row of any class equals.
    """

    salt: int
    buckets: NDArray[np.uint8]
    n_buckets: int
    limit: int
    rows: Index
    twins: Index
    n_twins: int

    def __post_init__(self) -> None:
        """Reject values that no rows give: files can be forged."""
        if self.buckets.dtype != np.uint8 or self.buckets.shape != (-(-self.n_buckets // 8),) or self.n_buckets < 1:
            raise ValueError("the fingerprint of the training rows has invalid buckets")
        if not 0 <= self.salt < 2**64 or not 0 <= self.limit < 2**64 or not 0 <= self.n_twins <= self.rows.sum() > 0:
            raise ValueError("the fingerprint of the training rows has impossible counts")
        if self.rows.shape != self.twins.shape or not ((self.twins >= 0) & (self.twins <= self.rows)).all():
            raise ValueError("the fingerprint of the training rows has impossible counts by class")

    @classmethod
    def of_hashes(cls, salt: int, hashes: Hashes, counts: Index, limit: int) -> "Fingerprint":
        """The fingerprint of different salted hashes, with the rows of each by class: (hashes, K)."""
        n_buckets = max(8, math.ceil(-len(hashes) / math.log1p(-FALSE_MATCH_RATE)))
        occupied = np.zeros(n_buckets, dtype=bool)
        occupied[_bucket(hashes, n_buckets)] = True
        twins = np.where(counts > 1, counts, 0).sum(axis=0)
        total = counts.sum(axis=1)
        n_twins = int(total[total > 1].sum())
        return cls(salt, np.packbits(occupied), n_buckets, limit, counts.sum(axis=0), twins, n_twins)

    @property
    def false_match_rate(self) -> float:
        """Share of occupied buckets: how often a row matches that was not in training."""
        return float(np.unpackbits(self.buckets)[: self.n_buckets].mean())

    def compare(self, hashes: Hashes) -> tuple[Bools, Bools]:
        """Which rows can be compared, and which of them match; (n,) each."""
        occupied = np.unpackbits(self.buckets)[: self.n_buckets].astype(bool)
        can = hashes <= np.uint64(self.limit)
        return can, can & occupied[_bucket(hashes, self.n_buckets)]

    def judge(
        self, can: Bools, matches: Bools, numbers: Index | None = None, labels: Sequence[Any] = ()
    ) -> Recognition:
        """What these matches mean; ``numbers`` are the classes of the rows, by place in ``labels``."""
        n, n_matches, n_train = int(can.sum()), int(matches.sum()), int(self.rows.sum())
        rate = min(self.false_match_rate, 1.0 - 1e-9)
        seen = max(0, round((n_matches - rate * n) / (1.0 - rate)))
        shares = {} if numbers is None else self._shares(can, matches, numbers, labels)
        twins = (self.n_twins + 1.0) / (n_train + 2.0)
        by_chance = twins + (1.0 - twins) * rate
        error = math.sqrt(by_chance * (1.0 - by_chance) / max(n, 1) + twins * (1.0 - twins) / n_train)
        excess = n_matches / max(n, 1) - by_chance
        is_seen = seen >= _FEWEST_SEEN and excess > max(_Z * error, _SMALLEST_EXCESS * (1.0 - by_chance))
        status = "seen" if is_seen or shares else "new"
        if n < _FEWEST_ROWS or (twins > _MOST_TWINS and not shares):
            status = "unknown"
        return Recognition(n, seen, n * self.n_twins / n_train, status, shares, can & ~matches)

    def _shares(self, can: Bools, matches: Bools, numbers: Index, labels: Sequence[Any]) -> dict[Any, float]:
        """Estimated shares of training rows by class, if duplication of the training rows depends on the label."""
        if len(labels) != len(self.rows) or duplicated_class(self.rows, self.twins) is None:
            return {}
        rate, n_classes = min(self.false_match_rate, 1.0 - 1e-9), len(labels)
        rows = np.bincount(numbers[can], minlength=n_classes)
        found = np.bincount(numbers[can], matches[can], minlength=n_classes)
        shares = np.clip((found / np.maximum(rows, 1) - rate) / (1.0 - rate), 0.0, 1.0)
        seen = np.rint(shares * rows).astype(np.int64)
        if duplicated_class(rows, seen) is None:
            return {}
        return {label: float(share) for label, share, n in zip(labels, shares, rows, strict=True) if n}


def duplicated_class(rows: Index, twins: Index) -> int | None:
    """The class that was duplicated more than the others, given the rows of each and those with a twin of the same one.

    A class counts as duplicated if at least three in ten of its rows have a twin, five times the share of the other
    classes, more than chance explains (Fisher's exact test, p < 1e-6). The commonest class is left out unless others
    are nearly as common: oversampling duplicates rare classes, and frequent rows are of the commonest one.
    """
    total, n_twins = int(rows.sum()), int(twins.sum())
    for k in np.argsort(-twins / np.maximum(rows, 1)):
        n, found, others = int(rows[k]), int(twins[k]), total - int(rows[k])
        if not others or n > _MOST_COMMON * np.delete(rows, k).max():
            continue
        share, rest = found / max(n, 1), (n_twins - found) / others
        if share >= 0.3 and share >= 5.0 * rest and chance_of_more(found, n, n_twins - found, others) < 1e-6:
            return int(k)
    return None


def fingerprint_of(columns: list[Column], frame: DataFrame, X: Array, numbers: Index, n_classes: int) -> Fingerprint:
    """The fingerprint of training rows.

    Parameters
    ----------
    columns : list of Column
        How each used column is encoded.
    frame : DataFrame
        The rows.
    X : float64 array of shape (n, encoded columns)
        The same rows encoded.
    numbers : int64 array of shape (n,)
        Their classes.
    n_classes : int
        How many classes there are.
    """
    unsalted = row_hashes(columns, frame, X, 0)
    salt = int.from_bytes(hashlib.blake2b(np.sort(unsalted).tobytes(), digest_size=8).digest(), "big") or 1
    found, at = np.unique(_mixed(unsalted ^ np.uint64(salt)), return_inverse=True)
    limit = int(found[MOST_HASHES - 1]) if len(found) > MOST_HASHES else 2**64 - 1
    counts = np.bincount(at * n_classes + numbers, minlength=len(found) * n_classes).reshape(-1, n_classes)
    return Fingerprint.of_hashes(salt, found[:MOST_HASHES], counts[:MOST_HASHES], limit)


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


def _bucket(hashes: Hashes, n_buckets: int) -> Index:
    """The bucket of each hash; mixed once more, since small hashes are kept."""
    return (_mixed(hashes) % np.uint64(n_buckets)).astype(np.int64)


def _parts(column: Column, frame: DataFrame, encoded: Array) -> list[Hashes]:
    """What a row holds in a column, as integers."""
    if column.kind == "text":
        # Of the text itself: its components hold only what occurs in several rows.
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
