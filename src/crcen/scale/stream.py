"""Fit a classifier to rows that are read from disk in every epoch and are never in memory together.

A checkpoint is written atomically; the fit continues from it after an interruption.
"""

import hashlib
import json
import numbers
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from crcen._support.files import atomic_file, check_writable
from crcen._support.progress import progress_bar
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter, TrainingFailed
from crcen.models.classifier import CRCENClassifier
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import Course, write_fit
from crcen.models.fitting import base_seed, member_seed
from crcen.models.options import Calibration
from crcen.scale import sources
from crcen.scale.sources import BatchSource, Chunk, RowBlocks, Source, StreamStatistics, kept_in
from crcen.theory.balance import BalanceRows, solve_balance
from crcen.theory.key_equation import KeySums, key_sums, on_rows
from crcen.theory.price import Labels, Price, WeightingLike, softmax
from crcen.theory.rows import Array, Index, LabelArray
from crcen.training.device import find_device, reproducible_arithmetic
from crcen.training.jobs import Status
from crcen.training.network import InputEncoding, NetworkGroup, raw
from crcen.training.recipe import ADAM, Recipe, Schedule
from crcen.training.stream import AllReduce, Batch, StreamShape, StreamTrainer, cut_evenly, encode_into, spread_order

Parameters = dict[str, Any]  # of `CRCENClassifier`
_Single: TypeAlias = NDArray[np.float32]

_PATIENCE = 10  # epochs without a lower validation loss before training stops, as in `CRCENClassifier`
_MOST_L2, _L2_ROWS = 1e-4, 100.0
_DEFAULTS = {"hidden": (64,), "l2": _MOST_L2, "n_members": 1, "encoding": "standard"}
_BATCH_SIZE = 1024
_BALANCED = 1e-10
_ROWS_AT_ONCE = 65_536
# Numbers of a table of rows and pairs of classes in memory at a time.
_NUMBERS_AT_ONCE = 2**22
# Gap of logarithms of flows at which the solve ends; parts of the rows are summed in other orders than whole ones.
_CLOSED, _CLOSED_TWO = 1e-12, 1e-14

Shift = float | Array  # of the positive class, or of all
Gather = Callable[[Any], Sequence[Any]]  # the values of all workers, in the order of ranks


def fit_stream(
    source: Source,
    target: str | None = None,
    weighting: object = "balanced",
    *,
    epochs: int = 5,
    sample_weight: str | None = None,
    features: Sequence[str] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_rows: int = 1_000_000,
    buffer_rows: int | None = None,
    skip_bad_files: bool = False,
    **parameters: Any,
) -> CRCENClassifier:
    """Fit a `CRCENClassifier` to data larger than memory.

    One pass counts and standardises, ``epochs`` passes train, and one more computes the logits on which the output bias
    is solved for, so that the key equation holds on **all** rows. A stream has no folds and no probability map.

    Parameters
    ----------
    source : path, folder, pattern, list of paths, pyarrow Dataset, or iterable
        Parquet files; an Arrow dataset; or an iterable of (X, y) or (X, y, weight) batches, the same each time.
    target : str
        Column of labels, for files and datasets.
    weighting : "balanced", None, float, Lam, Alpha, CostRatio, Budget, dict, array, CostMatrix, default="balanced"
        As in `CRCENClassifier`.
    epochs : int, default=5
        Passes over the rows; the one-cycle rate follows the rows seen of all of them.
    sample_weight : str, optional
        Column of row weights, for files and datasets.
    features : list of str, optional
        Columns to learn from; all others by default.
    checkpoint : path, optional
        A file that is rewritten every ``checkpoint_rows`` rows. If it exists, training continues from it, with the
        result of an uninterrupted fit. A checkpoint of other data or settings, or in use by another fit, is rejected.
    checkpoint_rows : int, default=1000000
        Rows between two checkpoints.
    buffer_rows : int, optional
        Rows that are shuffled together, from up to eight row groups that are drawn in each epoch. Default: 65,536, or
        as many as take 32 MB once encoded.
    skip_bad_files : bool, default=False
        Leave out files that cannot be read or do not fit the others, with a warning that names them.
    **parameters
        Any other parameter of `CRCENClassifier`. Other defaults: ``hidden=(64,)``, ``n_members=1``,
        ``Schedule(batch_size=1024)``, an ``l2`` of 100 divided by the number of rows, at most 1e-4, and
        ``encoding="standard"``, the only one that a stream supports.

    Raises
    ------
    DataUnavailable
        If a file cannot be read, is missing, or changes during the fit: its name is in the message.
    InvalidInput
        If columns, values or labels cannot be used; found before training starts.
    TrainingFailed
        If the networks diverge.

    Examples
    --------
    >>> from crcen import fit_stream, make_rare_events
    >>> events = make_rare_events(4000, n_features=3, imbalance_ratio=9)
    >>> clf = fit_stream(events, epochs=1, hidden=(4,), random_state=0)
    >>> clf.key_equation_.residual < 1e-10
    True
    """
    model = streamed_model(weighting, epochs, parameters, checkpoint_rows=checkpoint_rows, buffer_rows=buffer_rows)
    rows = sources.open_source(source, target, sample_weight, features, skip_bad_files=skip_bad_files)
    path, device = None if checkpoint is None else Path(checkpoint), find_device(model.device)
    lock = nullcontext() if path is None else sources.lock_storage(path.parent, path.name, "checkpoint")
    if path is not None:
        check_writable(path)
    with lock, progress_bar("fit_stream", visible=bool(model.verbose)) as show:
        saved = read_checkpoint(path) if path is not None else None
        is_seeded = isinstance(model.random_state, numbers.Integral)
        seed = base_seed(model.random_state) if saved is None or is_seeded else saved.seed
        statistics = sources.survey_source(rows, validation_share(model), seed)
        settle_penalty(model, parameters, statistics)
        plan = make_plan(model, statistics, seed)
        buffer_rows = buffer_rows or sources.rows_together(plan.encoding.size)
        progress = Progress(fingerprint_of(model, rows.fingerprint, buffer_rows, statistics.digest()), seed)
        if saved is not None:
            if (saved.fingerprint, saved.seed) != (progress.fingerprint, seed):
                message = f"{path} is the checkpoint of another fit: data or settings differ"
                raise InvalidParameter(f"{message}; remove it or give another path.")
            progress = saved
        run = StreamRun(model, rows, plan, progress, buffer_rows, device)
        if path is not None:
            run.save_rows, run.keep = checkpoint_rows, partial(write_checkpoint, path)
        with reproducible_arithmetic():
            status = run.train(show)
        names = None if isinstance(rows, BatchSource) and not rows.has_names else rows.names
        run.store(status, names, None if path is None else path.parent, is_weighted=statistics.is_weighted)
    return model


def streamed_model(weighting: object, epochs: int, parameters: Parameters, **counts: object) -> CRCENClassifier:
    """A classifier with checked settings of a streamed fit; ``counts`` of rows and workers are checked, too."""
    model = CRCENClassifier(cast(WeightingLike, weighting), **{"max_epochs": epochs, **_DEFAULTS, **parameters})
    schedule = Schedule.of(model.schedule)
    model.schedule = replace(schedule, batch_size=schedule.batch_size or _BATCH_SIZE)
    recipe, calibration = model.recipe(), Calibration.of(model.calibration)
    for name, value, allowed, instead in (
        ("probability", calibration.probability, ("shift", "auto"), "a fitted map needs folds of rows in memory"),
        ("balance", calibration.balance, (True, False, "auto"), "a stream has no folds; all rows solve for its bias"),
        ("solver", recipe.solver, (ADAM.name, "auto"), "L-BFGS needs all rows at each step"),
        ("loss", recipe.loss, ("cross_entropy", "squared_error"), "a stream learns one softmax; use fit"),
        ("missing", recipe.missing, ("error",), "a stream has no indicators; fill NaN in your source, or use fit"),
        ("encoding", recipe.encoding, ("standard", "auto"), "other encodings are learned by fit, with rows in memory"),
        ("column_scales", recipe.column_scales, (False, "auto"), "scales are learned by fit, with all rows in memory"),
    ):
        if value not in allowed:
            raise InvalidParameter(f"{name} must be {allowed[0]!r} here, got {value!r}: {instead}.", parameter=name)
    sources.check_counts(**counts)
    return model


def settle_penalty(model: CRCENClassifier, parameters: Parameters, statistics: StreamStatistics) -> None:
    """Give a classifier the default penalty unless ``parameters`` have one: it decreases with the number of rows."""
    if "l2" not in parameters:
        model.l2 = min(_MOST_L2, _L2_ROWS / max(statistics.train_totals.n_rows, 1))


def validation_share(model: CRCENClassifier) -> float:
    """The share of rows that is held out for early stopping."""
    recipe = model.recipe()
    return recipe.validation_fraction if recipe.early_stopping else 0.0


def fingerprint_of(model: CRCENClassifier, *about: object) -> str:
    """A text that differs for other settings that change the result, or another ``about``."""
    settings = {k: v for k, v in model.get_params().items() if k not in ("verbose", "random_state", "device")}
    return hashlib.sha256(repr((sorted(settings.items()), about)).encode()).hexdigest()


@dataclass
class Progress:
    """The state of a streamed fit."""

    fingerprint: str  # of data and settings: a checkpoint of another fit is rejected
    seed: int  # all randomness derives from it and the position
    epoch: int = 0  # what comes next
    block: int = 0
    batch: int = 0
    loss_curve: list[float] = field(default_factory=list)  # one value an epoch that is over
    val_loss_curve: list[list[float]] = field(default_factory=list)
    since_best: int = 0  # epochs since any member was best on the held-out rows
    arrays: dict[str, LabelArray] = field(default_factory=dict)  # the trainer's state and the members' best parameters


def write_checkpoint(path: Path, progress: Progress) -> None:
    """Replace the file atomically; if it cannot be written, the earlier checkpoint is kept."""
    about = {k: v for k, v in vars(progress).items() if k != "arrays"} | {"digest": _digest(progress.arrays)}
    header = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    try:
        with atomic_file(path) as file:
            np.savez(file, allow_pickle=False, header=header, **progress.arrays)
    except DataUnavailable as error:
        advice = "the last whole checkpoint is kept, make room and start again from it"
        raise DataUnavailable(f"{str(error).rstrip('.')}; {advice}.") from error


def _digest(arrays: dict[str, LabelArray]) -> str:
    """Of names and content: the file's own sums do not cover the names."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(repr((name, array.dtype.str, array.shape)).encode() + array.tobytes())
    return found.hexdigest()


def read_checkpoint(path: Path) -> Progress | None:
    """The checkpoint, or None if there is no file; nothing in the file is executed."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        about = json.loads(arrays.pop("header").tobytes())
        if about.pop("digest") != _digest(arrays):
            raise ValueError("arrays are others than those written")
        return Progress(**about, arrays=arrays)
    except Exception as error:  # of a file that is empty, truncated, altered or no checkpoint
        message = f"{path} is no checkpoint of a streamed fit, or damaged: remove it to start again."
        raise DataUnavailable(message) from error


class _RowBuffer:
    """Memory for the rows of a block, reused for the next block: allocation costs as much as reading."""

    def __init__(self, width: int) -> None:
        self._parts: list[_Single] = [np.empty(shape, dtype=np.float32) for shape in ((0, width), (0,), (0,))]

    def rows(self, start: int, stop: int) -> list[_Single]:
        """Encoded rows, labels and weights from ``start`` to ``stop``; earlier rows are kept."""
        if stop > len(self._parts[0]):
            for number, part in enumerate(self._parts):
                larger = np.empty((stop + stop // 2 if start else stop, *part.shape[1:]), dtype=np.float32)
                larger[:start] = part[:start]
                self._parts[number] = larger
        return [part[start:stop] for part in self._parts]


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """A streamed fit without its data; every worker makes the same plan from the same statistics."""

    labels: Labels  # as in the fitted classifier
    price: Price  # with the counts of all rows
    training_price: Price  # weights of the loss
    recipe: Recipe  # how the networks are trained
    encoding: InputEncoding  # input layer
    shape: StreamShape  # networks: one output for two classes with a positive one, otherwise one per class
    seed: int  # of initial weights, order and held-out rows
    validation_fraction: float  # share of rows held out for early stopping, 0 for none
    weight_scale: float  # mean sample weight of the training rows; the weights of a batch are divided by it
    mean_weight: float  # mean of scaled sample weight times class weight over the training rows
    output_bias: float | Array  # at the start: log-odds of the weighted classes, or centred logarithms of their shares
    n_features: int  # columns of the rows

    def trainer(self, device: torch.device | str = "cpu", all_reduce: AllReduce | None = None) -> StreamTrainer:
        """Networks at their start, the same for every worker."""
        made = StreamTrainer(self.shape, device, all_reduce)
        made.initialise(self.output_bias)
        weights = self.training_price.weights
        if self.labels.positive is not None:
            weights = weights[[1 - self.labels.column, self.labels.column]]
        made.weigh(weights, self.mean_weight)
        return made

    def by_number(self) -> "StreamPlan":
        """The same plan for rows whose labels are targets already: truth values, or class numbers."""
        if self.labels.positive is not None:
            return replace(self, labels=Labels(np.array([False, True]), True))
        return replace(self, labels=Labels(np.arange(self.labels.n_classes)))

    def training_rows(self, block: Iterable[Chunk], *key: int, buffer: _RowBuffer) -> Batch:
        """The training rows of a block, shuffled by (seed, key) with the classes spread evenly."""
        parts = self._collected(block, buffer, held=False)
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, 4, *key])))
        order = spread_order(parts[1].astype(np.int64), rng)
        return Batch(*(torch.from_numpy(part.take(order, axis=0)) for part in parts))

    def validation_rows(self, block: Iterable[Chunk]) -> Batch:
        """The rows of a block that are held out."""
        return Batch(*map(torch.from_numpy, self._collected(block, _RowBuffer(self.encoding.size + 1), held=True)))

    def _collected(self, block: Iterable[Chunk], buffer: _RowBuffer, *, held: bool) -> list[_Single]:
        """Encoded rows, labels and weights of a block in its own order; a chunk is released before the next is read."""
        n = 0
        for chunk in block:
            if self.validation_fraction:
                chunk = chunk[sources.held_out(chunk.X, self.validation_fraction, self.seed) == held]
            x, y, weights = buffer.rows(n, n + len(chunk))
            encode_into(x, self.encoding, chunk.X)
            y[:], weights[:] = chunk.target(self.labels), chunk.weight / self.weight_scale
            n += len(chunk)
        return buffer.rows(0, n)


def make_plan(model: CRCENClassifier, statistics: StreamStatistics, seed: int) -> StreamPlan:
    """The plan that follows from the counts and moments of all rows, including those of other workers."""
    totals, classes = statistics.totals, statistics.classes()
    counts, sizes = totals.weights(classes), [totals.rows[label] for label in classes.tolist()]
    labels = Labels.from_totals(classes, counts, sizes, model.pos_label, model.weighting)
    price, train_counts = labels.resolve(model.weighting, counts), statistics.train_totals.weights(classes)
    n_rows, n_train = totals.n_rows, statistics.train_totals.n_rows
    if not train_counts.all() or (statistics.validation_fraction and n_train == n_rows):
        held = f"{n_rows - n_train} of {n_rows} were held out; change validation_fraction or turn early_stopping off"
        raise InvalidInput(f"rows of every class are needed to train on, and some to hold out: {held}.")
    trained = model.training_weighting_at(price, labels)
    mass, scale = trained.weights * train_counts, float(train_counts.sum()) / n_train
    logs = np.log(mass)
    recipe = model.recipe().in_batches().replace(encoding="standard", column_scales=False)
    recipe = recipe.settled(n_train)
    encoding = statistics.moments.encoding() if recipe.standardize else raw(len(statistics.names))
    is_binary = labels.positive is not None
    return StreamPlan(
        labels=labels,
        price=price,
        training_price=trained,
        recipe=recipe,
        encoding=encoding,
        shape=StreamShape(
            n_inputs=encoding.size,
            recipe=recipe,
            seeds=tuple(member_seed(seed, member) for member in range(model.n_members)),
            total_rows=int(model.max_epochs or 1) * n_train,
            n_outputs=1 if is_binary else labels.n_classes,
        ),
        seed=seed,
        validation_fraction=statistics.validation_fraction,
        weight_scale=scale,
        mean_weight=float(mass.sum()) / (n_train * scale),
        output_bias=float(logs[labels.column] - logs[1 - labels.column]) if is_binary else logs - logs.mean(),
        n_features=len(statistics.names),
    )


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
            table = np.frombuffer(self._file.read(8 * self._columns * at_once)).reshape(-1, self._columns)
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


@dataclass(eq=False)
class StreamRun:
    """The remaining epochs of a streamed fit; with ``all_reduce``, the part of one of several workers."""

    model: CRCENClassifier
    rows: RowBlocks
    plan: StreamPlan
    progress: Progress
    buffer_rows: int
    device: torch.device
    all_reduce: AllReduce | None = None
    n_workers: int = 1
    save_rows: int = 0  # between two checkpoints, which ``keep`` takes; 0 for none
    keep: Callable[[Progress], object] = lambda progress: None

    def __post_init__(self) -> None:
        self.labels = self.plan.labels  # of the classifier; the plan of one of several workers has others
        self.trainer: StreamTrainer = self.plan.trainer(self.device, self.all_reduce)
        if self.progress.arrays:
            self.trainer.restore({k: v for k, v in self.progress.arrays.items() if not k.startswith("best_")})
        self._saved_at = self.trainer.rows_seen

    def train(self, show: Callable[[float], None]) -> Status:
        """Run the epochs that are left; ``show`` takes the share of rows done after each block."""
        at, stops_early = self.progress, self.plan.recipe.early_stopping
        while at.epoch < int(self.model.max_epochs or 1):
            if stops_early and at.since_best >= _PATIENCE:
                return Status.EARLY_STOPPED
            for block, batch, rows in self._batches():
                if not self.trainer.step(rows):
                    break
                if block != at.block:
                    show(self.trainer.rows_seen / self.plan.shape.total_rows)
                at.block, at.batch = block, batch + 1
                if self.save_rows and self.trainer.rows_seen - self._saved_at >= self.save_rows:
                    self._save()
            self._check_finite()
            at.loss_curve.append(self.trainer.take_objective())
            if stops_early:
                self._watch()
            at.epoch, at.block, at.batch = at.epoch + 1, 0, 0
            if self.save_rows:
                self._save()
            show(self.trainer.rows_seen / self.plan.shape.total_rows)
        return Status.COMPLETED

    def _batches(self) -> Iterator[tuple[int, int, Batch | None]]:
        """What is left of this epoch: block, batch and rows; one of several workers has no rows left at last."""
        at = self.progress
        first, skip, block = at.block, at.batch, at.block - 1
        batch_size = max(1, self.plan.recipe.batch_rows // self.n_workers)

        def prepared() -> Iterator[Batch]:
            buffer = _RowBuffer(self.plan.encoding.size + 1)
            blocks = self.rows.blocks(self.buffer_rows, self.plan.seed, at.epoch, first)
            for number, block in enumerate(blocks, first):
                yield self.plan.training_rows(block, at.epoch, number, buffer=buffer).to(self.device)

        for block, rows in enumerate(sources.read_ahead(prepared()), first):
            for batch, part in enumerate(cut_evenly(len(rows), batch_size)):
                if block > first or batch >= skip:
                    yield block, batch, rows[part]
        while self.n_workers > 1:
            yield block + 1, -1, None

    def _watch(self) -> None:
        """Keep each member's best epoch on the held-out rows."""
        at = self.progress
        held_out = (self.plan.validation_rows(block) for block in self.rows.blocks(self.buffer_rows))
        losses = self.trainer.losses(rows.to(self.device) for rows in sources.read_ahead(held_out))
        before = np.min(at.val_loss_curve, axis=0) if at.val_loss_curve else np.full(len(losses), np.inf)
        at.val_loss_curve.append(losses.tolist())
        better = losses < before
        at.since_best = 0 if better.any() else at.since_best + 1
        for kind, layers in zip(("weight", "bias"), self.trainer.parameters(), strict=True):
            for number, layer in enumerate(layers):
                best = at.arrays.setdefault(f"best_{kind}_{number}", layer.copy())
                best[better] = layer[better]

    def parameters(self) -> tuple[list[Array], list[Array]]:
        """Weights and biases of each layer: the best on the held-out rows, or the last."""
        weights, biases = self.trainer.parameters()
        best = self.progress.arrays
        weights = [best.get(f"best_weight_{i}", own) for i, own in enumerate(weights)]
        return weights, [best.get(f"best_bias_{i}", own) for i, own in enumerate(biases)]

    def ensemble(self) -> Ensemble:
        """The networks at the price of the plan."""
        plan, (weights, biases) = self.plan, self.parameters()
        group = NetworkGroup(plan.encoding, tuple(weights), tuple(biases), plan.recipe.activation)
        return Ensemble.of(self.labels, plan.training_price, (group,)).at_price(plan.price)

    def store(
        self,
        status: Status,
        names: Sequence[str] | None,
        folder: Path | None = None,
        *,
        is_weighted: bool,
        gather: Gather = lambda own: [own],
    ) -> None:
        """Write the fitted state of the classifier, with the key equation solved on all rows if it asks for that.

        ``names`` are those of the columns, if known. A file of the folder holds the logits. ``gather`` collects the
        values of all workers.
        """
        plan, model, ensemble = self.plan, self.model, self.ensemble()
        labels, (group,) = ensemble.labels, cast(tuple[NetworkGroup], ensemble.members)
        with reproducible_arithmetic(), LogitFile(folder, plan.shape.n_outputs, is_weighted=is_weighted) as logits:
            for chunk in sources.read_ahead(chain.from_iterable(self.rows.blocks(self.buffer_rows))):
                columns = ensemble.mean_logits(chunk.X) + ensemble.shift
                of_network = columns if labels.positive is None else labels.margin(columns)
                logits.add(of_network, chunk.target(plan.labels), chunk.weight)
            shift: Shift = np.zeros(labels.n_classes) if labels.positive is None else 0.0
            if plan.recipe.balance:
                shift = solve_file(logits, plan.price, gather)
            own = sums_of_file(logits, shift, plan.price)
        found = [part for part in gather(own) if part is not None]
        key = on_rows(sum(found[1:], found[0]).key_equation(plan.price), "all rows of the stream")
        if len(group) == 1:  # its own bias carries the shift
            ensemble = replace(ensemble, members=(group.shifted(shift),))
        else:
            ensemble = ensemble.shifted(labels.columns(shift))
        losses = self.progress.loss_curve
        write_fit(model, ensemble, plan.recipe, Course(len(losses), np.array(losses), status.name.lower()), key)
        model.n_features_in_ = plan.n_features
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
        if plan.recipe.balance and not key.residual <= _BALANCED:
            advice = "look for extreme values, or standardize columns"
            warnings.warn(
                f"the key equation holds to {key.residual:.1e} only; {advice}.", ConvergenceWarning, stacklevel=3
            )

    def _save(self) -> None:
        self._check_finite()
        self._saved_at = self.trainer.rows_seen
        self.progress.arrays |= self.trainer.state()
        self.keep(self.progress)

    def _check_finite(self) -> None:
        if not self.trainer.is_finite:
            raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or look for extreme values.")
