"""Fit a classifier to rows that are read again and again from disk, and never are in memory together."""

import hashlib
import numbers
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from crcen._support.files import check_writable, exclusive_lock
from crcen._support.progress import progress_bar
from crcen.exceptions import DataUnavailable, InvalidParameter, TrainingFailed
from crcen.models.classifier import CRCENClassifier
from crcen.models.fitting import base_seed
from crcen.scale.balance import balance_on, store_networks
from crcen.scale.checkpoint import Progress, read_checkpoint, write_checkpoint
from crcen.scale.plan import StreamPlan, check_streamable, make_plan, streamed_encoding
from crcen.scale.sources import BatchSource, RowBlocks, Source, open_source, read_ahead
from crcen.scale.statistics import StreamStatistics, survey_source
from crcen.theory.price import WeightingLike
from crcen.training.device import find_device
from crcen.training.jobs import Status
from crcen.training.parameters import group
from crcen.training.recipe import Schedule
from crcen.training.stream import AllReduce, Batch, StreamTrainer, cut_evenly
from crcen.training.threads import reproducible_arithmetic

Array = NDArray[np.float64]
Parameters = dict[str, Any]  # of `CRCENClassifier`

# Epochs without a lower validation loss before training stops, as in `CRCENClassifier`.
_PATIENCE = 10
# Large data: small L2, one member.
_MOST_L2, _L2_ROWS = 1e-4, 100.0
_DEFAULTS = {"hidden": (64,), "l2": _MOST_L2, "n_members": 1, "encoding": "standard"}
_BATCH_SIZE = 1024
# Rows that an encoding other than the standard one is fitted on.
SAMPLE_ROWS = 65_536


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

    One pass counts and standardises, ``epochs`` passes train, one more computes logits on which the output bias is
    solved for at the price, so that the key equation holds on **all** rows. A stream has no folds, and so no map of
    probabilities: with rows this many a network knows few of them by heart.

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
        A file that is rewritten every ``checkpoint_rows`` rows. If it is there already, training goes on from it, and
        ends as if it had never stopped; a checkpoint of other data or settings is refused, and so is one that another
        fit is using. The one before it is kept beside it as ``.previous``, and taken where the last is damaged.
    checkpoint_rows : int, default=1000000
        Rows between two checkpoints.
    buffer_rows : int, optional
        Rows that are shuffled together. They come from up to eight row groups, drawn anew each epoch. By default
        65,536, or as many as take 32 MB once encoded, where that is fewer.
    skip_bad_files : bool, default=False
        Leave out files that cannot be read or do not fit the others, with a warning that names them.
    **parameters
        Any other parameter of `CRCENClassifier`. Defaults differ, for many rows: ``hidden=(64,)``, ``n_members=1``,
        ``Schedule(batch_size=1024)``, an ``l2`` of 100 divided by the number of rows, at most 1e-4, and
        ``encoding="standard"``,
        which is fitted on all rows; other encodings are fitted on a random sample of 65,536. ``solver`` is always Adam
        and ``probability`` the shift.

    Returns
    -------
    CRCENClassifier
        Fitted, as any other.

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
    With ``early_stopping`` the rows to watch are chosen by a hash of their values, so that they and their copies are
    never trained on, and another pass an epoch is needed to watch them.

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
    path = Path(checkpoint) if checkpoint is not None else None
    lock: AbstractContextManager[None] = nullcontext()
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataUnavailable(f"no checkpoint can be kept at {path}: {error.strerror}.") from error
        check_writable(path)
        lock = exclusive_lock(path, instead="give another checkpoint")
    device = find_device(model.device)
    with lock, progress_bar("fit_stream", visible=bool(model.verbose)) as show:
        saved = read_checkpoint(path) if path is not None else None
        is_seeded = isinstance(model.random_state, numbers.Integral)
        seed = base_seed(model.random_state) if saved is None or is_seeded else saved.seed
        fraction, sample_rows = survey_terms(model)
        statistics = survey_source(rows, fraction, seed, sample_rows)
        settle_penalty(model, parameters, statistics)
        plan = make_plan(model, statistics, seed)
        buffer_rows = plan.buffer_rows(buffer_rows)
        progress = Progress(fingerprint_of(model, rows.fingerprint, buffer_rows, statistics.digest()), seed)
        if saved is not None:
            if (saved.fingerprint, saved.seed) != (progress.fingerprint, seed):
                raise InvalidParameter(
                    f"{path} is the checkpoint of another fit: data or settings differ; remove it or give another path."
                )
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
    """A classifier with the settings of a streamed fit, checked, and so are the ``counts`` of rows and workers."""
    model = CRCENClassifier(cast(WeightingLike, weighting), **{"max_epochs": epochs, **_DEFAULTS, **parameters})
    schedule = group("schedule", model.schedule, Schedule, "learning_rate=0.02")
    model.schedule = replace(schedule, batch_size=schedule.batch_size or _BATCH_SIZE)
    check_streamable(model)
    check_counts(**counts)
    return model


def check_counts(**counts: object) -> None:
    """Reject counts of rows or workers that are no positive whole numbers."""
    for name, value in counts.items():
        if value is None and name == "buffer_rows":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidParameter(f"{name} must be a whole number of at least 1: got {value!r}.", parameter=name)


def settle_penalty(model: CRCENClassifier, parameters: Parameters, statistics: StreamStatistics) -> None:
    """Give a classifier the default penalty, if it was told none: that of a prior, which the more rows weigh down."""
    if "l2" not in parameters:
        model.l2 = min(_MOST_L2, _L2_ROWS / max(statistics.train_totals.n_rows, 1))


def survey_terms(model: CRCENClassifier) -> tuple[float, int]:
    """The share of rows that a survey holds out, and how many it keeps as a sample."""
    recipe = model.recipe()
    fraction = recipe.validation_fraction if recipe.early_stopping else 0.0
    return fraction, 0 if streamed_encoding(model) == "standard" else SAMPLE_ROWS


def fingerprint_of(model: CRCENClassifier, *about: object) -> str:
    """A text that differs for other settings, as far as they change the result, or where ``about`` differs."""
    settings = {k: v for k, v in model.get_params().items() if k not in ("verbose", "random_state", "device")}
    return hashlib.sha256(repr((sorted(settings.items()), about)).encode()).hexdigest()


class StreamRun:
    """The epochs of a streamed fit, from wherever it stands; with ``all_reduce``, one of several workers' part."""

    def __init__(
        self,
        model: CRCENClassifier,
        rows: RowBlocks,
        plan: StreamPlan,
        progress: Progress,
        buffer_rows: int,
        device: torch.device,
        all_reduce: AllReduce | None = None,
        n_workers: int = 1,
    ) -> None:
        self._model, self._rows, self._plan, self._progress = model, rows, plan, progress
        self._buffer_rows, self._device = buffer_rows, device
        self.trainer: StreamTrainer = plan.trainer(device, all_reduce)
        self._n_workers, self._batch_size = n_workers, max(1, plan.recipe.batch_rows // n_workers)
        if progress.arrays:
            self.trainer.restore({k: v for k, v in progress.arrays.items() if not k.startswith("best_")})
        self._keep: Callable[[Progress], object] = lambda _: None
        self._save_rows = self._saved_at = 0

    def save_every(self, n_rows: int, keep: Callable[[Progress], object]) -> None:
        """Write a checkpoint after each such number of rows."""
        self._save_rows, self._keep, self._saved_at = n_rows, keep, self.trainer.rows_seen

    @property
    def share_done(self) -> float:
        """The share of all epochs' rows that was learned from."""
        return self.trainer.rows_seen / self._plan.shape.total_rows

    def train(self, show: Callable[[], None]) -> Status:
        """Run the epochs that are left; ``show`` is called after each block of rows."""
        at = self._progress
        while at.epoch < int(self._model.max_epochs or 1):
            if self._plan.recipe.early_stopping and at.since_best >= _PATIENCE:
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
            if self._plan.recipe.early_stopping:
                self._watch()
            at.epoch, at.block, at.batch = at.epoch + 1, 0, 0
            if self._save_rows:
                self._save()
            show()
        return Status.COMPLETED

    def _batches(self) -> Iterator[tuple[int, int, Batch | None]]:
        """What is left of this epoch: block, batch and rows; one of several workers has no rows left at last."""
        at = self._progress
        first, skip = at.block, at.batch
        block = first - 1

        def prepared() -> Iterator[Batch]:
            buffer = self._plan.buffer()
            blocks = self._rows.blocks(self._buffer_rows, self._plan.seed, at.epoch, first)
            for number, block in enumerate(blocks, first):
                yield self._plan.training_rows(block, at.epoch, number, buffer=buffer).to(self._device)

        for block, rows in enumerate(read_ahead(prepared()), first):
            for batch, part in enumerate(cut_evenly(len(rows), self._batch_size)):
                if block > first or batch >= skip:
                    yield block, batch, rows[part]
        while self._n_workers > 1:
            yield block + 1, -1, None

    def _watch(self) -> None:
        """Keep each member's best epoch on the held-out rows."""
        at = self._progress
        held_out = (self._plan.validation_rows(block) for block in self._rows.blocks(self._buffer_rows))
        losses = self.trainer.losses(rows.to(self._device) for rows in read_ahead(held_out))
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
        best = self._progress.arrays
        if "best_weight_0" not in best:
            return weights, biases
        numbers = range(len(weights))
        return [best[f"best_weight_{i}"] for i in numbers], [best[f"best_bias_{i}"] for i in numbers]

    def _save(self) -> None:
        self._check_finite()
        self._saved_at = self.trainer.rows_seen
        self._progress.arrays |= self.trainer.state()
        self._keep(self._progress)

    def _check_finite(self) -> None:
        if not self.trainer.is_finite:
            raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or look for extreme values.")
