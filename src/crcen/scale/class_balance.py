"""The balance solve of K classes over rows that never are in memory together, and the key equations on them.

Logits are computed once, in float64, and kept in a file of a number a class, the class and, where rows have weights,
the weight. Each step of the solve reads that file and comes to sums that add up over workers.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crcen.exceptions import DataUnavailable, InvalidInput
from crcen.scale.balance import Gather, alone
from crcen.theory.classes.balance import BalanceRows, solve_class_balance
from crcen.theory.classes.key_equations import ClassKeySums, class_key_sums
from crcen.theory.classes.log_sums import softmax
from crcen.theory.price import Price

__all__ = ["ClassLogitFile", "class_sums_of_file", "solve_class_shifts"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_ROWS_AT_ONCE = 65_536
# Numbers of a table of rows and pairs of classes that are worked on at a time.
_NUMBERS_AT_ONCE = 2**22
# A gap of logarithms of flows; parts of the rows are added up in other orders than whole ones.
_CLOSED = 1e-12


class ClassLogitFile:
    """Logits, class numbers and sample weights of rows in a file, written and read in chunks.

    Parameters
    ----------
    folder
        Where the file is for as long as the context lasts.
    n_classes
        K.
    is_weighted
        Whether weights differ from 1 and must be kept.
    """

    def __init__(self, folder: Path, n_classes: int, *, is_weighted: bool) -> None:
        self.n_classes, self._columns = n_classes, n_classes + 1 + is_weighted
        self._path = folder / "logits-classes.f64"
        self._file = self._path.open("wb")
        self.totals = np.zeros(n_classes)

    def add(self, logits: Array, y: Index, weight: Array) -> None:
        """Append rows; those of weight 0 are no rows."""
        if not np.isfinite(logits).all():
            raise InvalidInput("a logit is not finite: look for extreme values in these rows, or standardize columns.")
        mine = weight > 0
        table = np.column_stack([logits[mine], y[mine].astype(np.float64), weight[mine]])[:, : self._columns]
        self.totals += np.bincount(y[mine], weight[mine], self.n_classes)
        try:
            self._file.write(np.ascontiguousarray(table).tobytes())
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> DataUnavailable:
        return DataUnavailable(
            f"the logits, {8 * self._columns} bytes a row, cannot be kept in {self._path.parent}: "
            f"{error.strerror or error}; make room, or name a larger disk by TMPDIR."
        )

    def chunks(self, rows_at_once: int = _ROWS_AT_ONCE) -> Iterator[tuple[Array, Index, Array]]:
        """Logits, class numbers and weights."""
        try:
            self._file.flush()
        except OSError as error:
            raise self._refusal(error) from error
        with self._path.open("rb") as file:
            while (values := np.fromfile(file, count=self._columns * rows_at_once)).size:
                table = values.reshape(-1, self._columns)
                has_weights = self._columns > self.n_classes + 1
                weight = np.ascontiguousarray(table[:, -1]) if has_weights else np.ones(len(table))
                yield np.ascontiguousarray(table[:, : self.n_classes]), table[:, self.n_classes].astype(int), weight

    def __enter__(self) -> "ClassLogitFile":
        return self

    def __exit__(self, *error: Any) -> None:
        with suppress(OSError):  # of a full disk: what could not be written is not wanted any more
            self._file.close()
        self._path.unlink(missing_ok=True)


def solve_class_shifts(logits: ClassLogitFile, weighting: Price, gather: Gather = alone) -> Array:
    """Shifts (K,), their mean 0, with which the key equations hold on all rows of all workers.

    Parameters
    ----------
    logits : ClassLogitFile
        This worker's rows.
    weighting : Price
        What the logits are at.
    gather : callable
        Brings tensors of all workers together; each worker then finds the same shifts.
    """

    def together(values: Array) -> Array:
        return np.asarray(gather(torch.from_numpy(np.ascontiguousarray(values))).numpy())

    totals = together(logits.totals).sum(axis=0)
    if not totals.all():
        raise InvalidInput(
            f"the balance solve needs rows of every class with weight: class {int(np.argmin(totals))} has none."
        )
    log_w = weighting.log_weights

    def parts() -> Iterator[tuple[Array, Index, Array]]:
        for values, y, weight in logits.chunks():
            yield values, y, np.log(weight) + log_w[y]

    shifts = solve_class_balance(BalanceRows(parts, logits.n_classes, together), _CLOSED).shifts
    return np.asarray(shifts - shifts.mean())


def class_sums_of_file(logits: ClassLogitFile, shifts: Array, weighting: Price) -> ClassKeySums | None:
    """The sums of the rows of a file, with the shifts added to their logits; None where there are no rows."""
    n_pairs = logits.n_classes * (logits.n_classes - 1) // 2
    total: ClassKeySums | None = None
    for values, y, weight in logits.chunks(max(256, _NUMBERS_AT_ONCE // n_pairs)):
        own = class_key_sums(y, softmax(values + shifts), weight, weighting.weights)
        total = own if total is None else total + own
    return total
