"""The balance solve and the key equation over rows that are never in memory together."""

import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from crcen.exceptions import InvalidInput
from crcen.models.classifier import CRCENClassifier
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import Course, write_fit
from crcen.scale.checkpoint import kept_in
from crcen.scale.plan import StreamPlan
from crcen.scale.sources import Chunk, read_ahead
from crcen.theory.balance import BalanceRows, solve_balance
from crcen.theory.key_equation import KeySums, key_sums, on_rows
from crcen.theory.price import Price, softmax
from crcen.theory.rows import Array, Index, LabelArray
from crcen.training.device import reproducible_arithmetic
from crcen.training.jobs import Status
from crcen.training.network import NetworkGroup

_ROWS_AT_ONCE = 65_536
# Numbers of a table of rows and pairs of classes in memory at a time.
_NUMBERS_AT_ONCE = 2**22
# Gap of logarithms of flows at which the solve ends; parts of the rows are summed in other orders than whole ones.
_CLOSED, _CLOSED_TWO = 1e-12, 1e-14
_BALANCED = 1e-10

Shift = float | Array  # of the positive class, or of all
Gather = Callable[[Any], Sequence[Any]]  # the values of all workers, in the order of ranks


class LogitFile:
    """Logits, classes and sample weights of rows, in an unnamed file of a folder, written and read in chunks.

    ``n_outputs`` is 1 for the logit of the positive class, else K; weights are kept if they differ from 1.
    """

    def __init__(self, folder: Path | None = None, n_outputs: int = 1, *, is_weighted: bool) -> None:
        self.n_classes, self._n_outputs, self._n_rows = max(2, n_outputs), n_outputs, 0
        self._columns, self._folder = n_outputs + 1 + is_weighted, folder
        with self._on_disk():
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self.totals = np.zeros(self.n_classes)

    def add(self, logits: Array, y: LabelArray, weight: Array) -> None:
        """Append rows with class numbers, or whether they are positive; those of weight 0 are no rows."""
        if not np.isfinite(logits).all():
            raise InvalidInput("a logit is not finite: look for extreme values in these rows, or standardize columns.")
        mine = weight > 0
        table = np.column_stack([logits[mine], y[mine].astype(np.float64), weight[mine]])[:, : self._columns]
        self.totals += np.bincount(y[mine].astype(np.int64), weight[mine], self.n_classes)
        self._n_rows += len(table)
        with self._on_disk():
            self._file.write(np.ascontiguousarray(table).tobytes())

    def _on_disk(self) -> AbstractContextManager[None]:
        return kept_in(self._folder, f"the logits, {8 * self._columns} bytes a row,", "name a larger disk by TMPDIR")

    def rows(
        self, price: Price, shift: Shift = 0.0, at_once: int | None = None
    ) -> Iterator[tuple[Array, Index, Array]]:
        """Logits (n, K) with a shift, class numbers and weights, in chunks."""
        if not self._n_rows:
            return
        with self._on_disk():
            self._file.flush()
        n, at_once = self._n_outputs, at_once or _ROWS_AT_ONCE
        for start in range(0, self._n_rows, at_once):
            self._file.seek(8 * self._columns * start)
            found = self._file.read(8 * self._columns * at_once)
            table = np.frombuffer(found).reshape(-1, self._columns)
            columns, y = table[:, :n] + shift, table[:, n].astype(np.int64)
            weight = table[:, -1] if self._columns > n + 1 else np.ones(len(table))
            if price.positive is not None:
                columns = np.column_stack([np.zeros(len(table)), columns])[:, :: 1 if price.positive else -1]
                y = y if price.positive else 1 - y
            yield columns, y, weight

    def __enter__(self) -> "LogitFile":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # of a full disk: what could not be written is not wanted any more
            self._file.close()


def solve_file(logits: LogitFile, price: Price, gather: Gather = lambda own: [own]) -> Shift:
    """The shift, or shifts (K,) with mean 0, with which the key equations hold on all rows of all workers.

    ``gather`` collects the arrays of all workers; each worker then finds the same shifts.
    """
    totals = np.sum(gather(logits.totals), axis=0)
    is_binary = price.positive is not None
    if not totals.all():
        absent = int(np.argmin(totals))
        what = f"no {('negative', 'positive')[absent]} row was given" if is_binary else f"class {absent} has none"
        raise InvalidInput(f"the balance solve needs rows of every class with weight: {what}.")

    def parts() -> Iterator[tuple[Array, Index, Array]]:
        for columns, y, weight in logits.rows(price):
            yield columns, y, np.log(weight) + price.log_weights[y]

    rows = BalanceRows(parts, logits.n_classes, lambda values: np.stack(gather(values)))
    shifts = solve_balance(rows, _CLOSED_TWO if is_binary else _CLOSED)
    if price.positive is not None:
        return float(shifts[price.positive] - shifts[1 - price.positive])
    return np.asarray(shifts - shifts.mean())


def sums_of_file(logits: LogitFile, shift: Shift, price: Price) -> KeySums | None:
    """The sums of the rows of a file, with the shift added to their logits; None if there are no rows."""
    n_pairs = logits.n_classes * (logits.n_classes - 1) // 2
    rows = logits.rows(price, shift, max(256, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // n_pairs)))
    parts = [key_sums(y, softmax(columns), weight, price) for columns, y, weight in rows]
    return sum(parts[1:], parts[0]) if parts else None


def store_networks(
    model: CRCENClassifier,
    plan: StreamPlan,
    parameters: tuple[list[Array], list[Array]],
    *,
    names: Sequence[str] | None,
    loss_curve: Sequence[float],
    status: Status,
) -> None:
    """Give a classifier its fitted state without the balance; ``names`` are the names of the columns, if known."""
    weights, biases = parameters
    group = NetworkGroup(plan.encoding, tuple(weights), tuple(biases), plan.recipe.activation)
    ensemble = Ensemble.of(plan.labels, plan.training_price, (group,)).at_price(plan.price)
    write_fit(model, ensemble, plan.recipe, Course(len(loss_curve), np.array(loss_curve), status.name.lower()))
    model.n_features_in_ = plan.n_features
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


def balance_on(
    model: CRCENClassifier,
    plan: StreamPlan,
    blocks: Iterable[Iterable[Chunk]],
    folder: Path | None = None,
    *,
    is_weighted: bool,
    gather: Gather = lambda own: [own],
) -> None:
    """Solve for the key equation on all rows of this worker's blocks (if the classifier asks for it) and record it.

    The model is that of `store_networks`. A file of the folder holds the logits. ``gather`` collects the values of all
    workers.
    """
    ensemble, is_balanced = model.ensemble_, plan.recipe.balance
    labels = ensemble.labels  # the plan of a worker has truth values as labels
    with reproducible_arithmetic(), LogitFile(folder, plan.shape.n_outputs, is_weighted=is_weighted) as logits:
        for chunk in read_ahead(chain.from_iterable(blocks)):
            columns = ensemble.mean_logits(chunk.X) + ensemble.shift
            of_network = columns if labels.positive is None else labels.margin(columns)
            logits.add(of_network, chunk.target(plan.labels), chunk.weight)
        shift: Shift = np.zeros(labels.n_classes) if labels.positive is None else 0.0
        if is_balanced:
            shift = solve_file(logits, plan.price, gather)
        own = sums_of_file(logits, shift, plan.price)
    found = [part for part in gather(own) if part is not None]
    key = on_rows(sum(found[1:], found[0]).key_equation(plan.price), "all rows of the stream")
    (group,) = ensemble.members
    if isinstance(group, NetworkGroup) and len(group) == 1:  # its own bias carries the shift
        ensemble = replace(ensemble, members=(group.shifted(shift),))
    else:
        ensemble = ensemble.shifted(labels.columns(shift))
    write_fit(model, ensemble, plan.recipe, Course(model.n_iter_, model.loss_curve_, model.status_), key)
    if is_balanced and not key.residual <= _BALANCED:
        message = f"the key equation holds to {key.residual:.1e} only; look for extreme values, or standardize columns."
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
