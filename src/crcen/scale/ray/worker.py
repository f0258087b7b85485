"""The workers of a fit on a Ray cluster."""

import faulthandler
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch.distributed as dist
from torch import Tensor

from crcen.exceptions import CrcenError, InvalidParameter, TrainingFailed
from crcen.models.classifier import CRCENClassifier
from crcen.scale.balance import balance_on, store_networks
from crcen.scale.checkpoint import Progress, read_checkpoint, write_checkpoint
from crcen.scale.plan import StreamPlan
from crcen.scale.ray.cluster import Ray
from crcen.scale.ray.reader import TARGET, WEIGHT
from crcen.scale.sources import ArrowSource, Chunk, RecordBatch
from crcen.scale.stream import StreamRun
from crcen.theory.labels import Labels
from crcen.training.threads import reproducible_arithmetic


class Watch:
    """Ends this process when nothing moved for some seconds; where every thread stood is then in its log.

    Python's own fault handler counts the time, in a thread that needs neither the interpreter nor memory.
    """

    def __init__(self, seconds: float, log: int | IO[str] = 2) -> None:
        self._seconds, self._log, self._next = seconds, log, 0.0

    def moved(self) -> None:
        """Something was read or learned: count anew (now and then, for that takes a new thread)."""
        now = time.monotonic()
        if now >= self._next:
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._log)
            self._next = now + 0.1 * self._seconds

    def end(self) -> None:
        """Do not watch any more."""
        faulthandler.cancel_dump_traceback_later()
        self._next = 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for others, however long they take: they are watched themselves."""
        self.end()
        try:
            yield
        finally:
            self.moved()


_ROWS_AT_ONCE = 8192
_FILE = "worker-{}.npz"


@dataclass(frozen=True, eq=False)
class Assignment:
    """What every worker is told."""

    # The classifier to be, what was settled with the statistics of all rows, and their files
    model: CRCENClassifier
    plan: StreamPlan
    source: ArrowSource
    # Rows shuffled together, and rows between two checkpoints
    buffer_rows: int
    checkpoint_rows: int
    fingerprint: str  # of data and settings: a checkpoint of another fit is refused
    is_weighted: bool  # whether rows have sample weights
    worker_timeout: float  # seconds in which a worker must read or learn something

    @property
    def reading(self) -> tuple[ArrowSource, Labels, int, int]:
        """What the readers of its rows are told: the arguments of `read_groups` after the groups."""
        return self.source, self.plan.labels, self.buffer_rows, self.plan.seed


def train_worker(told: Assignment, show: Callable[[float], None] | None = None) -> CRCENClassifier | CrcenError:
    """One worker's part of a fit, from the last checkpoint on: train, solve for the balance, return the classifier.

    What all workers find in the same step is returned, for Ray would try again what was raised. A worker is watched to
    the end: one that raised is still to tell Ray. ``show`` takes the share done, from the first worker.
    """
    import ray.train.torch

    context = ray.train.get_context()
    rank, count = context.get_world_rank(), context.get_world_size()
    try:
        progress = _agreed_start(told, rank, count)
    except CrcenError as error:
        return error
    plan = told.plan.by_number()  # readers send whether a row is positive, or its class number, not its label
    watch = Watch(told.worker_timeout)
    watch.moved()
    rows = _Shard(ray.train.get_dataset_shard("rows"), watch.moved)
    device = ray.train.torch.get_device()

    def all_reduce(tensor: Tensor) -> None:
        dist.all_reduce(tensor)
        watch.moved()

    together = all_reduce if count > 1 else None
    run = StreamRun(told.model, rows, plan, progress, told.buffer_rows, device, together, count)
    started_at = run.trainer.rows_seen
    run.save_every(told.checkpoint_rows, lambda at: _report(at, rank, started_at, run.trainer.rows_seen))
    with reproducible_arithmetic():
        try:
            status = run.train(lambda: None if show is None or rank else show(run.share_done))
        except TrainingFailed as error:  # networks are the same in all workers
            watch.end()
            return error
    model, parameters = told.model, run.parameters()
    store_networks(model, told.plan, parameters, names=told.source.names, loss_curve=progress.loss_curve, status=status)

    def gather(own: object) -> list[object]:
        found = [own] * count
        if count > 1:
            with watch.paused():
                dist.all_gather_object(found, own)
        return found

    balance_on(model, plan, rows.blocks(told.buffer_rows), is_weighted=told.is_weighted, gather=gather)
    watch.end()
    return model


def _agreed_start(told: Assignment, rank: int, count: int) -> Progress:
    """Where to start. The first refusal that any worker has is raised in all of them, so that none waits for others."""
    refusal: CrcenError | None = None
    progress = Progress(told.fingerprint, told.plan.seed)
    try:
        told.source.part(range(rank, told.source.n_files, count)).check_unchanged()
        progress = _saved(rank) or progress
        if progress.fingerprint != told.fingerprint:
            raise InvalidParameter("the checkpoint in storage is of other data; give another storage.")
    except CrcenError as error:
        refusal = error
    refusals: list[CrcenError | None] = [refusal]
    if count > 1:
        refusals = [None] * count
        dist.all_gather_object(refusals, refusal)
    for found in refusals:
        if found is not None:
            raise found
    return progress


def _saved(rank: int) -> Progress | None:
    import ray.train

    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        return read_checkpoint(Path(folder) / _FILE.format(rank))


def _report(at: Progress, rank: int, started_at: int, rows_seen: int) -> None:
    """A checkpoint, to which every worker adds where it stands in its own rows."""
    import ray.train

    with tempfile.TemporaryDirectory(prefix="crcen-checkpoint-") as folder:
        write_checkpoint(Path(folder) / _FILE.format(rank), at)
        metrics = {"epoch": at.epoch, "rows_seen": rows_seen, "started_at": started_at}
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


class _Shard:
    """A worker's share of what the readers send, in blocks; the same in every epoch, and after a restart."""

    def __init__(self, shard: Ray, moved: Callable[[], None] = lambda: None) -> None:
        self._shard, self._moved = shard, moved

    def blocks(self, block_rows: int, seed: int | None = None, epoch: int = 0, start: int = 0) -> Iterator[list[Chunk]]:
        """Blocks in the order of reading, from block ``start`` on; those before it are read and passed over."""
        tables = self._shard.iter_batches(batch_size=block_rows, batch_format="pyarrow", prefetch_batches=1)
        for number, table in enumerate(tables):
            self._moved()
            if number >= start:
                yield [_chunk(batch) for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE)]


def _chunk(batch: RecordBatch) -> Chunk:
    columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
    target, weight = columns.pop(TARGET), columns.pop(WEIGHT)
    X = np.empty((len(columns), batch.num_rows))
    for j in range(len(columns)):
        X[j] = columns[str(j)]
    return Chunk(X.T, target, weight, "a file")
