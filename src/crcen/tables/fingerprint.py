"""Hashes of rows: a fingerprint that recognises training rows, and a digest that identifies a table.

A fingerprint hashes rows as the model reads them, so formats do not matter. It states which buckets of hashes are
occupied: one in four, so a row that was not in training matches with probability 1/4 (`FALSE_MATCH_RATE`).
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crcen._support.lazy import pd, special
from crcen._support.text import attributes, listed
from crcen.tables.cells import TableCells
from crcen.tables.columns import Column, blocks_of
from crcen.theory.rows import Array, Bools, DataFrame, Hashes, Index, LabelArray, Series
from crcen.theory.selective import mixed_bits

FALSE_MATCH_RATE = 0.25
# Of more different rows, those with the smallest hashes are kept; new rows are compared if their hashes are as small.
MOST_HASHES = 65_536
# Digits that a number keeps: those that a float32 and its spelling in a text file share.
_DIGITS = 6
# Numbers as text; 007 is a code and stays what it is.
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?")
_FIRST_OF_NUMBER = frozenset("+-0123456789")
_MIDNIGHT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]00:00:00(?:\.0+)?")
# If nearly every new row has a twin in training, training rows cannot be recognised.
_MOST_TWINS, _MOST_REPEATED = 0.9, 0.1
# A class is among the most frequent ones if no other has more rows by this factor.
_MOST_COMMON = 1.2
# Rows are copies if such a share of those with a twin have values of their own, such a share of copies is left after a
# shuffle of these values, and a row occurs at most so often on average unless there are so many different rows.
_ALONE, _BY_CHANCE, _MOST_REPEATS, _MANY_DIFFERENT = 0.7, 0.5, 5.0, 100
# A table was written several times if such a share of so many different rows occurs a multiple of that number of times.
_REPEATED, _FEWEST_REPEATED = 0.95, 20
# Too many rows occur exactly twice if their number is so many standard deviations above what chance explains.
_PAIRS_Z = 4.0
_FEWEST_ROWS, _FEWEST_SEEN, _SMALLEST_EXCESS, _Z = 20, 5, 0.02, 4.5


@dataclass(frozen=True)
class Recognition:
    """How many rows were training rows: "seen" if more than chance allows, "new", or "unknown".

    ``n_seen`` is estimated, ``n_expected`` expected as rows repeat; ``shares`` by class, if duplication depends on it.
    """

    n_rows: int
    n_seen: int
    n_expected: float
    status: str
    shares: dict[object, float] = field(default_factory=dict)
    is_new: Bools | None = field(default=None, compare=False, repr=False)

    @property
    def measured(self) -> str:
        """What was found, in words."""
        repeats = f"; {self.n_expected:,.0f} expected by chance, since rows repeat" if self.n_expected >= 0.5 else ""
        if self.status == "unknown":
            why = "too few to decide" if self.n_rows < _FEWEST_ROWS else "but they repeat too often to decide"
            return f"{self.n_rows:,} rows can be compared with the training rows, {why}{repeats}"
        if self.status == "new":
            return f"{self.n_rows:,} rows compared, no more training rows among them than expected by chance{repeats}"
        if self.shares:
            shares = listed(f"{share:.0%} of {label}" for label, share in self.shares.items())
            repeats = f" ({shares}): rows were duplicated, depending on their label, before the split"
        # Of the others, how many match by chance varies; 95 % of estimates are within twice their standard error.
        margin = 2.0 * math.sqrt((self.n_rows - self.n_seen) * FALSE_MATCH_RATE / (1.0 - FALSE_MATCH_RATE))
        within = f" (± {margin:,.0f})" if margin else ""
        return f"about {self.n_seen:,}{within} of {self.n_rows:,} rows compared are training rows{repeats}"

    @property
    def notes(self) -> list[str]:
        """A sentence if rows were seen in training."""
        note = f"{self.measured}: results on training rows are no evidence; use rows kept apart"
        return [note] if self.status == "seen" else []

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return attributes(self, "status rows_compared=n_rows rows_seen=n_seen rows_expected=n_expected shares")


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Occupied buckets of row hashes, one bit each; rows with hashes up to ``limit`` are kept.

    ``salt`` makes fingerprints of different tables incomparable; ``twins`` are rows with an equal one
    by class, ``n_twins`` those that are equal by chance: see `are_coarse`.
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
        has_buckets = self.buckets.dtype == np.uint8 and self.buckets.shape == (-(-self.n_buckets // 8),)
        is_possible = 0 <= self.salt < 2**64 and 0 <= self.limit < 2**64 and 0 <= self.n_twins <= self.rows.sum() > 0
        is_matched = self.rows.shape == self.twins.shape and ((self.twins >= 0) & (self.twins <= self.rows)).all()
        if not (has_buckets and self.n_buckets > 0 and is_possible and is_matched):
            raise ValueError("the fingerprint of the training rows has invalid buckets or counts")

    @classmethod
    def of_hashes(cls, salt: int, hashes: Hashes, counts: Index, limit: int, *, is_coarse: bool) -> "Fingerprint":
        """The fingerprint of different salted hashes, with the rows of each by class: (hashes, K)."""
        n_buckets = max(8, math.ceil(-len(hashes) / math.log1p(-FALSE_MATCH_RATE)))
        occupied = np.zeros(n_buckets, dtype=bool)
        occupied[_bucket(hashes, n_buckets)] = True
        twins = np.where(counts > 1, counts, 0).sum(axis=0)
        total = counts.sum(axis=1)
        n_twins = int(total[total > 1].sum()) - 2 * copied_pairs(counts) if is_coarse else 0
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
        self, can: Bools, matches: Bools, numbers: Index | None = None, labels: Sequence[object] = ()
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

    def copies(self, hashes: Hashes) -> list[str]:
        """A note if rows have an equal one among these rows, far more of them than in training by chance."""
        counts, n, n_train = np.unique(hashes, return_counts=True)[1], len(hashes), int(self.rows.sum())
        # Two twins more: without any in training, up to three pairs were likely (95 %).
        repeated, by_chance = int(counts[counts > 1].sum()), n * max(1.0, n / n_train) * (self.n_twins + 2) / n_train
        said = f"{repeated:,} of {n:,} rows have an equal one among these rows"
        note = f"{said}, but intervals and tests treat rows as independent: remove copies"
        return [note] * (repeated > max(_FEWEST_ROWS, _MOST_REPEATED * n, 3.0 * by_chance))

    def _shares(self, can: Bools, matches: Bools, numbers: Index, labels: Sequence[object]) -> dict[object, float]:
        """Estimated shares of training rows by class, if duplication of the training rows depends on the label."""
        # Rows share a bucket by chance: as many different ones as leave so many buckets empty.
        rate, n_classes = min(self.false_match_rate, 1.0 - 1e-9), len(labels)
        own = duplicated_class(self.rows, self.twins, -self.n_buckets * math.log1p(-rate))
        if len(labels) != len(self.rows) or own is None:
            return {}
        rows = np.bincount(numbers[can], minlength=n_classes)
        found = np.bincount(numbers[can], matches[can], minlength=n_classes)
        shares = np.clip((found / np.maximum(rows, 1) - rate) / (1.0 - rate), 0.0, 1.0)
        if duplicated_class(rows, np.rint(shares * rows).astype(np.int64)) != own:
            return {}
        return {label: float(share) for label, share, n in zip(labels, shares, rows, strict=True) if n}


def duplicated_class(rows: Index, twins: Index, n_distinct: float | None = None) -> int | None:
    """The class that was duplicated more than the others, from the rows of each class and those with a twin.

    At least .3 of its rows, and five times the share elsewhere, have a twin; Fisher's exact test has p < 1e-6. Rows of
    the commonest class are equal more often by chance. With ``n_distinct``, the number of different rows, that class
    also needs a few copies of each row, not one heap, and a share elsewhere far below that of classes of equal density.
    """
    total, n_twins = int(rows.sum()), int(twins.sum())
    for k in np.argsort(-twins / np.maximum(rows, 1)):
        n, found, others = int(rows[k]), int(twins[k]), total - int(rows[k])
        if not others:
            continue
        share, rest = found / max(n, 1), (n_twins - found) / others
        if n_distinct is not None and n > _MOST_COMMON * np.delete(rows, k).max():
            by_chance = 1.0 - (1.0 - min(share, 0.99)) ** (others / n)
            n_copied = n_distinct - (total - n_twins)  # different rows that have copies
            drawn = -math.log1p(-min(share, 0.9999))  # mean draws of a row; a copied one has fewer than 2 + that
            if n_twins > (3.0 + drawn) * n_copied or 5.0 * rest > by_chance or by_chance * others < _FEWEST_ROWS:
                continue
        if share >= 0.3 and share >= 5.0 * rest and chance_of_more(found, n, n_twins - found, others) < 1e-6:
            return int(k)
    return None


def fingerprint_of(columns: list[Column], table: TableCells, X: Array, numbers: Index, n_classes: int) -> Fingerprint:
    """The fingerprint of training rows, of the same rows encoded (``X``), with their class numbers."""
    unsalted = row_hashes(columns, table, X, 0)
    salt = int.from_bytes(hashlib.blake2b(np.sort(unsalted).tobytes(), digest_size=8).digest(), "big") or 1
    found, at = np.unique(mixed_bits(unsalted ^ np.uint64(salt)), return_inverse=True)
    limit = int(found[MOST_HASHES - 1]) if len(found) > MOST_HASHES else 2**64 - 1
    counts = np.bincount(at * n_classes + numbers, minlength=len(found) * n_classes).reshape(-1, n_classes)
    counts = -(-counts // times_written(counts))
    is_coarse = encoded_are_coarse(columns, table, [X[:, block] for block in blocks_of(columns)])
    return Fingerprint.of_hashes(salt, found[:MOST_HASHES], counts[:MOST_HASHES], limit, is_coarse=is_coarse)


def encoded_are_coarse(columns: Sequence[Column], table: TableCells, parts: Sequence[LabelArray]) -> bool:
    """`are_coarse` for the columns of a model; ``parts`` are encoded rows by column."""
    by_name = {column.name: (column, part) for column, part in zip(columns, parts, strict=True)}

    def codes_of(names: Sequence[str]) -> Hashes:
        return row_hashes([by_name[name][0] for name in names], table, [by_name[name][1] for name in names], 0)

    return are_coarse(list(by_name), codes_of)


def are_coarse(names: Sequence[str], codes_of: Callable[[Sequence[str]], Hashes]) -> bool:
    """Whether chance explains equal rows, if any: columns do not tell different rows apart. Else equal rows are copies.

    One column does, or each half of the columns (at random, as one half may repeat another), if most rows with a twin
    share its values with no other row, and shuffling them separates most twins. ``codes_of`` hashes rows by columns.
    """
    rows, different = pd.factorize(codes_of(names))
    counts, n_copies = np.bincount(rows)[rows], len(rows) - len(different)
    is_repetitive = len(rows) > _MOST_REPEATS * len(different) and len(different) < _MANY_DIFFERENT
    if not n_copies or len(names) < 2 or is_repetitive:
        return True
    rng, is_twin = np.random.default_rng(0), counts > 1

    def tell_apart(some: Sequence[str]) -> bool:
        values = pd.factorize(codes := codes_of(some))[0]
        if (np.bincount(values)[values] == counts)[is_twin].mean() < _ALONE:
            return False
        others = codes_of(sorted({*names} - {*some}))
        n_different = len(pd.unique(mixed_bits(others ^ rng.permutation(codes))))
        return len(rows) - n_different <= _BY_CHANCE * n_copies

    orders = (rng.permutation(names).tolist() for _ in range(4))
    halves = (half for order in orders for half in (order[::2], order[1::2]))
    return not (any(tell_apart([name]) for name in names) or all(map(tell_apart, halves)))


def times_written(counts: Index) -> int:
    """How often a whole table was written, from the number of rows equal in all columns *and* the label; usually 1.

    Nearly every number is then a multiple of it, which happens by chance in fewer than 1 of 1,000 tables.
    Without the label a balanced design looks the same.
    """
    counts = counts[counts > 0]
    if len(counts) < _FEWEST_REPEATED:
        return 1
    return max(k for k in range(1, int(np.median(counts)) + 1) if (counts % k == 0).mean() >= _REPEATED)


def copied_pairs(counts: Index) -> int:
    """How many more rows, with their labels, occur exactly twice than independent rows of any distribution do.

    Of independent rows F_k ones occur k times, and k!·F_k are moments of one measure: (2F₂)² ≤ F₁·6F₃ (Cauchy-Schwarz).
    Copies of some rows break this; square roots of F₃ and of its bound tell by how much.
    """
    once, twice, thrice = (float((counts == k).sum()) for k in (1, 2, 3))
    bound = twice**2 / (1.5 * max(once, 1.0))
    error = math.sqrt(0.25 + bound * (1.0 / max(twice, 1.0) + 0.25 / max(once, 1.0)))
    is_beyond = math.sqrt(bound) - math.sqrt(thrice + 1.0) > _PAIRS_Z * error
    return int(twice - math.sqrt(1.5 * once * thrice)) if is_beyond else 0


def row_hashes(columns: Sequence[Column], table: TableCells, X: Array | Sequence[LabelArray], salt: int) -> Hashes:
    """One hash a row; ``salt`` is 0, or that of a fingerprint. X may be parts by column, with places of categories."""
    parts = X if not isinstance(X, np.ndarray) else [X[:, block] for block in blocks_of(columns)]
    hashes = np.zeros(len(parts[0]), dtype=np.uint64)
    for part in _parts(columns, table, parts):
        hashes = mixed_bits(hashes ^ part)
    return mixed_bits(hashes ^ np.uint64(salt)) if salt else hashes


def _bucket(hashes: Hashes, n_buckets: int) -> Index:
    """The bucket of each hash; mixed once more, since small hashes are kept."""
    return (mixed_bits(hashes) % np.uint64(n_buckets)).astype(np.int64)


def _parts(columns: Sequence[Column], table: TableCells, parts: Sequence[LabelArray]) -> Iterator[Hashes]:
    """What each row holds in each column, as integers."""
    for column, encoded in zip(columns, parts, strict=True):
        key = name_key(f"{column.name}/0")
        if column.kind == "text":
            # Of the text itself: its components hold only what occurs in several rows.
            text = table[column.name].text.fillna("\0").to_numpy(dtype=object)
            yield mixed_bits(pd.util.hash_array(text, categorize=True) + key)
        elif column.kind == "category":
            places = np.where(encoded.any(axis=1), encoded.argmax(axis=1), -1) if encoded.ndim > 1 else encoded
            yield mixed_bits(places.astype(np.int64).view(np.uint64) + key)
        else:
            yield from (_of_numbers(part, f"{column.name}/{i}") for i, part in enumerate(encoded.T))


def name_key(name: str) -> np.uint64:
    """A number for a name."""
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big"))


def _of_numbers(values: Array, name: str) -> Hashes:
    """Numbers with `_DIGITS` significant digits as integers, from digits and exponent."""
    size = np.abs(values)
    with np.errstate(divide="ignore"):
        exponent = np.where(size > 0, np.floor(np.log10(size)), 0.0)
    # In two steps, since the power of ten of a tiny number is none that a float holds.
    half = np.trunc((_DIGITS - 1 - exponent) / 2)
    digits = np.rint(values * 10.0**half * 10.0 ** (_DIGITS - 1 - exponent - half))
    is_next = np.abs(digits) >= 10.0**_DIGITS  # 9.999999 is 10.0000
    digits, exponent = np.where(is_next, digits / 10.0, digits), np.where(is_next, exponent + 1, exponent)
    return mixed_bits((digits.astype(np.int64) * 1024 + exponent.astype(np.int64)).view(np.uint64) + name_key(name))


def chance_of_more(count: int, n: int, count_before: int, n_before: int) -> float:
    """Probability that of all marked rows at least ``count`` are among the ``n`` new ones: Fisher's exact test."""
    marked, total = count + count_before, n + n_before
    if count <= n * marked / total:
        return 1.0
    if n <= 20:  # without SciPy, which loading a model does not need
        counts = range(count, min(n, marked) + 1)
        return sum(math.comb(marked, k) * math.comb(total - marked, n - k) for k in counts) / math.comb(total, n)
    k, betaln = np.arange(count, min(n, marked) + 1), special.betaln
    ways = -betaln(k + 1, marked - k + 1) - betaln(n - k + 1, total - marked - n + k + 1) - math.log1p(marked)
    ways += betaln(total - n + 1, n + 1) + math.log1p(total) - math.log1p(total - marked)
    return float(np.exp(ways).sum())


class RowDigest:
    """SHA-256 of rows that arrive in chunks, independent of their order and of the file format.

    Cells are compared by value: 1, 1.0 and "1" are equal, as are a date and the same date at midnight.
    """

    def __init__(self, columns: Sequence[str], label: str | None = None) -> None:
        self.columns, self._label = tuple(sorted(columns)), label
        self._rows: list[bytes] = []
        self._labelled: list[bytes] = []
        self._cells: dict[str, Counter[str]] = {name: Counter() for name in self.columns}

    def add(self, frame: DataFrame) -> None:
        """Add the rows of a data frame."""
        parts = [_cells_of(frame[name]) for name in self.columns]
        for counts, cells in zip(self._cells.values(), parts, strict=True):
            counts.update(cells)
        own_rows = [hashlib.sha256(_bytes("".join(row))).digest() for row in zip(*parts, strict=True)]
        self._rows += own_rows
        if self._label is not None:
            pairs = zip(own_rows, _cells_of(frame[self._label]), strict=True)
            self._labelled += [hashlib.sha256(row + _bytes(label)).digest() for row, label in pairs]

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return len(self._rows)

    @property
    def rows(self) -> str:
        """Hexadecimal digest of all rows with the names of the columns."""
        return self._of(self.columns, self._rows)

    @property
    def labelled(self) -> str:
        """The same of rows with their labels."""
        return self._of((*self.columns, self._label or ""), self._labelled)

    @staticmethod
    def _of(names: Sequence[str], rows: list[bytes]) -> str:
        head = hashlib.sha256(_bytes("\0".join(names))).digest()
        return hashlib.sha256(b"".join([head, *sorted(rows)])).hexdigest()

    @property
    def by_column(self) -> dict[str, str]:
        """Digest of the values of each column and of how often each occurs."""
        lists = {name: sorted(counts.items()) for name, counts in self._cells.items()}
        texts = {name: "\n".join(f"{count} {cell}" for cell, count in cells) for name, cells in lists.items()}
        return {name: hashlib.sha256(_bytes(text)).hexdigest() for name, text in texts.items()}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _cells_of(column: Series) -> list[str]:
    """The value of each cell as text with its length first; that of a missing cell is empty."""
    numbers, values = pd.factorize(column.astype(object))
    cells = [f"{len(text)}:{text}" for text in (*map(canonical, values), "")]  # the last stands for -1
    return [cells[number] for number in numbers.tolist()]


def canonical(cell: object) -> str:
    """The value of a cell as text that is the same in all formats."""
    text = cell.isoformat() if hasattr(cell, "isoformat") else str(cell)
    text = text.strip() if isinstance(cell, str) else text
    if text[:1] not in _FIRST_OF_NUMBER:
        lower = text.casefold()
        return lower if lower in ("true", "false") else text
    if _NUMBER.fullmatch(text):
        number = float(text)
        if abs(number) < 2**53:
            return repr(number + 0.0)  # −0 is 0
        return text if text.lstrip("+-").isdecimal() else repr(number)
    midnight = _MIDNIGHT.fullmatch(text)
    return midnight[1] if midnight else text
