"""Fit a classifier to rows that are read from disk in every epoch and are never in memory together."""

import hashlib
import numbers
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from crcen._support.files import check_writable
from crcen._support.progress import progress_bar
from crcen.exceptions import InvalidParameter, TrainingFailed
from crcen.models.classifier import CRCENClassifier
from crcen.models.fitting import base_seed
from crcen.scale.balance import balance_on, store_networks
from crcen.scale.checkpoint import Progress, lock_storage, read_checkpoint, write_checkpoint
from crcen.scale.plan import StreamPlan, check_streamable, make_plan, rows_together, streamed_encoding
from crcen.scale.sources import BatchSource, RowBlocks, Source, open_source, read_ahead
from crcen.scale.statistics import StreamStatistics, survey_source
from crcen.theory.price import WeightingLike
from crcen.theory.rows import Array
from crcen.training.device import find_device, reproducible_arithmetic
from crcen.training.jobs import Status
from crcen.training.recipe import Schedule
from crcen.training.stream import AllReduce, Batch, StreamTrainer, cut_evenly

Parameters = dict[str, Any]  # of `CRCENClassifier`

_PATIENCE = 10  # epochs without a lower validation loss before training stops, as in `CRCENClassifier`
_MOST_L2, _L2_ROWS = 1e-4, 100.0
_DEFAULTS = {"hidden": (64,), "l2": _MOST_L2, "n_members": 1, "encoding": "standard"}
_BATCH_SIZE = 1024
SAMPLE_ROWS = 65_536  # on which an encoding other than "standard" is fitted


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
        Parquet files; an Arrow dataset; or any object that gives the same (X, y) or (X, y, weight) batches each time it
        is iterated, such as a list.
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
        ``encoding="standard"``, which is fitted on all rows; other encodings are fitted on a random sample of 65,536.

    Returns
    -------
    CRCENClassifier
        The fitted classifier.

    Raises
    ------
    DataUnavailable
        If a file cannot be read, is missing, or changes during the fit: its name is in the message.
    InvalidInput
        If columns, values or labels cannot be used; found before training starts.
    TrainingFailed
        If the networks diverge.

    Notes
    -----
    With ``early_stopping`` the validation rows are chosen by a hash of their values, so that they and their copies are
    never trained on. They take another pass in each epoch.

    Examples
    --------
    >>> from crcen import fit_stream, make_rare_events
    >>> events = make_rare_events(4000, n_features=3, imbalance_ratio=9)
    >>> clf = fit_stream(events, epochs=1, hidden=(4,), random_state=0)
    >>> clf.key_equation_.residual < 1e-10
    True
    """
    model = streamed_model(weighting, epochs, parameters, checkpoint_rows=checkpoint_rows, buffer_rows=buffer_rows)
    rows = open_source(source, target, sample_weight, features, skip_bad_files=skip_bad_files)
    path, device = None if checkpoint is None else Path(checkpoint), find_device(model.device)
    lock = nullcontext() if path is None else lock_storage(path.parent, path.name, "checkpoint")
    if path is not None:
        check_writable(path)
    with lock, progress_bar("fit_stream", visible=bool(model.verbose)) as show:
        saved = read_checkpoint(path) if path is not None else None
        is_seeded = isinstance(model.random_state, numbers.Integral)
        seed = base_seed(model.random_state) if saved is None or is_seeded else saved.seed
        statistics = survey_source(rows, *survey_terms(model, seed))
        settle_penalty(model, parameters, statistics)
        plan = make_plan(model, statistics, seed)
        buffer_rows = buffer_rows or rows_together(plan.encoding.size)
        progress = Progress(fingerprint_of(model, rows.fingerprint, buffer_rows, statistics.digest()), seed)
        if saved is not None:
            if (saved.fingerprint, saved.seed) != (progress.fingerprint, seed):
                message = f"{path} is the checkpoint of another fit: data or settings differ"
                raise InvalidParameter(f"{message}; remove it or give another path.")
            progress = saved
        run = StreamRun(model, rows, plan, progress, buffer_rows, device)
        if path is not None:
            run.save_every(checkpoint_rows, partial(write_checkpoint, path))
        with reproducible_arithmetic():
            status = run.train(lambda: show(run.share_done))
        names = None if isinstance(rows, BatchSource) and not rows.has_names else rows.names
        store_networks(model, plan, run.parameters(), names=names, loss_curve=progress.loss_curve, status=status)
        folder = None if path is None else path.parent
        balance_on(model, plan, rows.blocks(buffer_rows), folder, is_weighted=statistics.is_weighted)
    return model


def streamed_model(weighting: object, epochs: int, parameters: Parameters, **counts: object) -> CRCENClassifier:
    """A classifier with checked settings of a streamed fit; ``counts`` of rows and workers are checked, too."""
    model = CRCENClassifier(cast(WeightingLike, weighting), **{"max_epochs": epochs, **_DEFAULTS, **parameters})
    schedule = Schedule.of(model.schedule)
    model.schedule = replace(schedule, batch_size=schedule.batch_size or _BATCH_SIZE)
    check_streamable(model)
    check_counts(**counts)
    return model


def check_counts(**counts: object) -> None:
    """Reject counts of rows or workers that are no positive whole numbers."""
    for name, value in counts.items():
        is_right = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not is_right and (value is not None or name != "buffer_rows"):
            raise InvalidParameter(f"{name} must be a whole number of at least 1: got {value!r}.", parameter=name)


def settle_penalty(model: CRCENClassifier, parameters: Parameters, statistics: StreamStatistics) -> None:
    """Give a classifier the default penalty unless ``parameters`` have one: it decreases with the number of rows."""
    if "l2" not in parameters:
        model.l2 = min(_MOST_L2, _L2_ROWS / max(statistics.train_totals.n_rows, 1))


def survey_terms(model: CRCENClassifier, seed: int) -> tuple[float, int, int]:
    """Arguments of a survey: the share of rows to hold out, the seed, and the size of the sample."""
    recipe = model.recipe()
    fraction = recipe.validation_fraction if recipe.early_stopping else 0.0
    return fraction, seed, 0 if streamed_encoding(model) == "standard" else SAMPLE_ROWS


def fingerprint_of(model: CRCENClassifier, *about: object) -> str:
    """A text that differs for other settings that change the result, or another ``about``."""
    settings = {k: v for k, v in model.get_params().items() if k not in ("verbose", "random_state", "device")}
    return hashlib.sha256(repr((sorted(settings.items()), about)).encode()).hexdigest()


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

    def __post_init__(self) -> None:
        self.trainer: StreamTrainer = self.plan.trainer(self.device, self.all_reduce)
        if self.progress.arrays:
            self.trainer.restore({k: v for k, v in self.progress.arrays.items() if not k.startswith("best_")})
        self._keep: Callable[[Progress], object] = lambda _: None
        self._save_rows = self._saved_at = 0

    def save_every(self, n_rows: int, keep: Callable[[Progress], object]) -> None:
        """Write a checkpoint after each such number of rows."""
        self._save_rows, self._keep, self._saved_at = n_rows, keep, self.trainer.rows_seen

    @property
    def share_done(self) -> float:
        """The share of the rows of all epochs that training has used."""
        return self.trainer.rows_seen / self.plan.shape.total_rows

    def train(self, show: Callable[[], None]) -> Status:
        """Run the epochs that are left; ``show`` is called after each block of rows."""
        at, stops_early = self.progress, self.plan.recipe.early_stopping
        while at.epoch < int(self.model.max_epochs or 1):
            if stops_early and at.since_best >= _PATIENCE:
                return Status.EARLY_STOPPED
            for block, batch, rows in self._batches():
                if not self.trainer.step(rows):
                    break
                if block != at.block:
                    show()
                at.block, at.batch = block, batch + 1
                if self._save_rows and self.trainer.rows_seen - self._saved_at >= self._save_rows:
                    self._save()
            self._check_finite()
            at.loss_curve.append(self.trainer.take_objective())
            if stops_early:
                self._watch()
            at.epoch, at.block, at.batch = at.epoch + 1, 0, 0
            if self._save_rows:
                self._save()
            show()
        return Status.COMPLETED

    def _batches(self) -> Iterator[tuple[int, int, Batch | None]]:
        """What is left of this epoch: block, batch and rows; one of several workers has no rows left at last."""
        at = self.progress
        first, skip, block = at.block, at.batch, at.block - 1
        batch_size = max(1, self.plan.recipe.batch_rows // self.n_workers)

        def prepared() -> Iterator[Batch]:
            buffer = self.plan.buffer()
            blocks = self.rows.blocks(self.buffer_rows, self.plan.seed, at.epoch, first)
            for number, block in enumerate(blocks, first):
                yield self.plan.training_rows(block, at.epoch, number, buffer=buffer).to(self.device)

        for block, rows in enumerate(read_ahead(prepared()), first):
            for batch, part in enumerate(cut_evenly(len(rows), batch_size)):
                if block > first or batch >= skip:
                    yield block, batch, rows[part]
        while self.n_workers > 1:
            yield block + 1, -1, None

    def _watch(self) -> None:
        """Keep each member's best epoch on the held-out rows."""
        at = self.progress
        held_out = (self.plan.validation_rows(block) for block in self.rows.blocks(self.buffer_rows))
        losses = self.trainer.losses(rows.to(self.device) for rows in read_ahead(held_out))
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

    def _save(self) -> None:
        self._check_finite()
        self._saved_at = self.trainer.rows_seen
        self.progress.arrays |= self.trainer.state()
        self._keep(self.progress)

    def _check_finite(self) -> None:
        if not self.trainer.is_finite:
            raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or look for extreme values.")
