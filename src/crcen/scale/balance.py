"""The balance solve over rows that never are in memory together, and the key equation on them.

Logits are computed once, in float64, by the path of every prediction, and kept in a file of eight bytes a row (sixteen
with sample weights). Each step of the solve reads that file and comes to four sums, which add up over workers.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.exceptions import DataUnavailable, InvalidInput
from crcen.scale.statistics import ColumnMoments
from crcen.theory.decision import posterior, sigmoid
from crcen.theory.key_equation import KeyEquation, key_equation_of_moments
from crcen.theory.price import Price
from crcen.theory.residual_test import residual_variance, z_test
from crcen.training.balance_solve import find_root, log_sums, log_sums_gap, merged_log_sums

__all__ = ["Gather", "KeySums", "LogitFile", "alone", "key_sums", "solve_shift"]

_ROWS_AT_ONCE = 65_536
# A gap of the logarithms of two sums: the residual is then smaller still.
_TOL = 1e-14

Array = NDArray[np.float64]
# Every worker's tensor, in the order of ranks, stacked; ``tensor[None]`` for a single worker.
Gather = Callable[[Tensor], Tensor]


def alone(tensor: Tensor) -> Tensor:
    """Gather from a single worker."""
    return tensor[None]


class LogitFile:
    """Logits and sample weights of rows in two files, positives and negatives, written and read in chunks.

    Parameters
    ----------
    folder
        Where the files are for as long as the context lasts.
    is_weighted
        Whether weights differ from 1 and must be kept.
    """

    def __init__(self, folder: Path, *, is_weighted: bool) -> None:
        self._columns = 2 if is_weighted else 1
        self._paths = {label: folder / f"logits-{name}.f64" for label, name in ((True, "pos"), (False, "neg"))}
        self._files: dict[bool, BinaryIO] = {label: path.open("wb") for label, path in self._paths.items()}
        self.low, self.high = math.inf, -math.inf
        self.totals = {True: 0.0, False: 0.0}

    def add(self, logits: Array, y: NDArray[np.bool_], weight: Array) -> None:
        """Append rows; those of weight 0 are no rows."""
        if not np.isfinite(logits).all():
            raise InvalidInput("a logit is not finite: look for extreme values in these rows, or standardize columns.")
        for label in (True, False):
            mine = (y == label) & (weight > 0)
            if mine.any():
                table = np.column_stack([logits[mine], weight[mine]])
                self._write(label, table[:, : self._columns])
                self.low, self.high = min(self.low, table[:, 0].min()), max(self.high, table[:, 0].max())
                self.totals[label] += float(table[:, 1].sum())

    def _write(self, label: bool, table: Array) -> None:
        try:
            self._files[label].write(np.ascontiguousarray(table).tobytes())
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> DataUnavailable:
        folder = self._paths[True].parent
        return DataUnavailable(
            f"the logits, {8 * self._columns} bytes a row, cannot be kept in {folder}: {error.strerror or error}; make "
            f"room, or name a larger disk by TMPDIR."
        )

    def chunks(self, label: bool) -> Iterator[tuple[Array, Array]]:
        """Logits and weights of a class."""
        try:
            self._files[label].flush()
        except OSError as error:
            raise self._refusal(error) from error
        with self._paths[label].open("rb") as file:
            while (values := np.fromfile(file, count=self._columns * _ROWS_AT_ONCE)).size:
                table = values.reshape(-1, self._columns)
                weight = np.ascontiguousarray(table[:, 1]) if self._columns == 2 else np.ones(len(table))
                yield np.ascontiguousarray(table[:, 0]), weight

    def __enter__(self) -> "LogitFile":
        return self

    def __exit__(self, *error: Any) -> None:
        for label, file in self._files.items():
            with suppress(OSError):  # of a full disk: what could not be written is not wanted any more
                file.close()
            self._paths[label].unlink(missing_ok=True)


def solve_shift(logits: LogitFile, weighting: Price, gather: Gather = alone) -> float:
    """The shift of the output bias with which the key equation holds on all rows of all workers.

    ``gather`` brings the tensors of all workers together; each worker then finds the same shift.
    """
    log_pos, log_neg = math.log(weighting.lam), math.log(weighting.threshold)

    def gap_and_slope(shift: Tensor) -> tuple[Tensor, Tensor]:
        parts = [_sums(logits, True, log_pos, shift), _sums(logits, False, log_neg, shift)]
        own = merged_log_sums(torch.stack(parts))
        return log_sums_gap(merged_log_sums(gather(own)))

    ends = torch.tensor([logits.low, logits.high, logits.totals[True], logits.totals[False]], dtype=torch.float64)
    all_ends = gather(ends)
    low, high = float(all_ends[:, 0].min()), float(all_ends[:, 1].max())
    total_pos, total_neg = float(all_ends[:, 2].sum()), float(all_ends[:, 3].sum())
    if not total_pos or not total_neg:
        missing = "negative" if total_pos else "positive"
        raise InvalidInput(f"the balance solve needs rows of both classes with weight: no {missing} row was given.")
    spread = abs(log_pos + math.log(total_pos) - log_neg - math.log(total_neg)) + 40.0
    start, lowest, highest = torch.tensor([[0.0], [-high - spread], [spread - low]], dtype=torch.float64)
    return float(find_root(gap_and_slope, start, lowest, highest, tol=_TOL)[0])


def _sums(logits: LogitFile, label: bool, log_class_weight: float, shift: Tensor) -> Tensor:
    """The `log_sums` of a class."""
    nothing = torch.empty(0, dtype=torch.float64)
    parts = [log_sums(nothing, nothing, nothing, nothing)]
    for values, weight in logits.chunks(label):
        a, log_weight = torch.from_numpy(values) + shift, torch.from_numpy(weight).log() + log_class_weight
        own = (a, log_weight, nothing, nothing) if label else (nothing, nothing, a, log_weight)
        parts.append(log_sums(*own))
    return merged_log_sums(torch.stack(parts))


class KeySums:
    """Class moments of q that make up the key equation; those of chunks and of workers add up by `merge`."""

    def __init__(self) -> None:
        self._pos, self._neg = ColumnMoments(2), ColumnMoments(1)  # q and 1 − q, each with its own digits; q
        self._variance = 0.0

    def add(self, logits: Array, weight: Array, weighting: Price, *, label: bool) -> None:
        """Take in rows of one class with their final logits."""
        q, complement = sigmoid(logits), sigmoid(-logits)
        if label:
            self._pos.merge(ColumnMoments.of(np.array([q, complement]).T, weight))
        else:
            self._neg.merge(ColumnMoments.of(q[:, None], weight))
        miss, alarm = weight * weighting.lam * complement, weight * weighting.threshold * q
        self._variance += residual_variance(miss, alarm, posterior(q, weighting))

    def merge(self, other: "KeySums") -> None:
        """Take in the sums of other rows."""
        self._pos.merge(other._pos)
        self._neg.merge(other._neg)
        self._variance += other._variance

    def key_equation(self, weighting: Price) -> KeyEquation:
        """The key equation on the rows that were added up, as `crcen.key_equation` gives it on rows in memory."""
        (mean_pos, miss), (mean_neg,) = self._pos.mean.tolist(), self._neg.mean.tolist()
        missed, alarmed = weighting.lam * self._pos.weight * miss, weighting.threshold * self._neg.weight * mean_neg
        return key_equation_of_moments(
            weighting,
            means=(mean_pos, mean_neg),
            variances=(
                float(self._pos.squares[0]) / self._pos.weight,
                float(self._neg.squares[0]) / self._neg.weight,
            ),
            miss_pos=miss,
            test=z_test(missed, alarmed, self._variance),
        )


def key_sums(logits: LogitFile, shift: float, weighting: Price) -> KeySums:
    """The sums of the rows of a file, with the shift added to their logits."""
    sums = KeySums()
    for label in (True, False):
        for values, weight in logits.chunks(label):
            sums.add(values + shift, weight, weighting, label=label)
    return sums
