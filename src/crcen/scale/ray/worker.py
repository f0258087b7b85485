"""The workers of a fit on a Ray cluster."""

import faulthandler
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch.distributed as dist
from torch import Tensor

from crcen.exceptions import CrcenError, InvalidParameter, TrainingFailed
from crcen.models.classifier import CRCENClassifier
from crcen.scale.balance import balance_on, store_networks
from crcen.scale.checkpoint import Progress, read_checkpoint, write_checkpoint
from crcen.scale.plan import StreamPlan
from crcen.scale.ray.cluster import Ray
from crcen.scale.ray.reader import TARGET, WEIGHT
from crcen.scale.sources import ArrowSource, Chunk, chunk_of
from crcen.scale.stream import StreamRun
from crcen.theory.price import Labels
from crcen.training.device import reproducible_arithmetic


class Watch:
    """Ends this process after some seconds without progress, and writes the stack of every thread to its log.

    Python's fault handler counts the time, in a thread that needs neither the interpreter nor memory.
    """

    def __init__(self, seconds: float, log: int | IO[str] = 2) -> None:
        self._seconds, self._log, self._next = seconds, log, 0.0

    def moved(self) -> None:
        """Restart the count, at most ten times in the timeout: each restart takes a new thread."""
        now = time.monotonic()
        if now >= self._next:
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._log)
            self._next = now + 0.1 * self._seconds

    def end(self) -> None:
        """Stop watching."""
        faulthandler.cancel_dump_traceback_later()
        self._next = 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for other workers, which have their own watch, without a limit."""
        self.end()
        try:
            yield
        finally:
            self.moved()


_ROWS_AT_ONCE = 8192
_FILE = "worker-{}.npz"


@dataclass(frozen=True, eq=False)
class Assignment:
    """What every worker receives."""

    model: CRCENClassifier  # to be fitted
    plan: StreamPlan
    source: ArrowSource
    buffer_rows: int  # shuffled together
    checkpoint_rows: int  # between two checkpoints
    fingerprint: str  # of data and settings: a checkpoint of another fit is rejected
    is_weighted: bool  # whether rows have sample weights
    worker_timeout: float  # seconds within which a worker must make progress

    @property
    def reading(self) -> tuple[ArrowSource, Labels, int, int]:
        """The arguments of `read_groups` after the groups."""
        return self.source, self.plan.labels, self.buffer_rows, self.plan.seed


def train_worker(told: Assignment, show: Callable[[float], None] | None = None) -> CRCENClassifier | CrcenError:
    """Part of one worker from the last checkpoint on: train, solve for the balance, return the classifier.

    Errors that all workers meet in the same step are returned: Ray would retry after a raised error. The first worker
    calls ``show`` with the share of work done.
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
    """The state to start from. The first error of any worker is raised in all of them, so that none waits."""
    errors: list[CrcenError | None] = [None] * count
    progress = Progress(told.fingerprint, told.plan.seed)
    try:
        told.source.part(range(rank, told.source.n_files, count)).check_unchanged()
        progress = _saved(rank) or progress
        if progress.fingerprint != told.fingerprint:
            raise InvalidParameter("the checkpoint in storage is of other data; give another storage.")
    except CrcenError as error:
        errors[rank] = error
    if count > 1:
        dist.all_gather_object(errors, errors[rank])
    for found in errors:
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
    """Report a checkpoint, to which every worker adds its own state."""
    import ray.train

    with tempfile.TemporaryDirectory(prefix="crcen-checkpoint-") as folder:
        write_checkpoint(Path(folder) / _FILE.format(rank), at)
        metrics = {"epoch": at.epoch, "rows_seen": rows_seen, "started_at": started_at}
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


class _Shard:
    """The rows that readers send to one worker, in blocks; the same in every epoch and after a restart."""

    def __init__(self, shard: Ray, moved: Callable[[], None] = lambda: None) -> None:
        self._shard, self._moved = shard, moved

    def blocks(self, block_rows: int, seed: int | None = None, epoch: int = 0, start: int = 0) -> Iterator[list[Chunk]]:
        """Blocks in the order of reading, from block ``start`` on; those before it are read and passed over."""
        tables = self._shard.iter_batches(batch_size=block_rows, batch_format="pyarrow", prefetch_batches=1)
        for number, table in enumerate(tables):
            self._moved()
            if number >= start:
                features = [str(j) for j in range(table.num_columns - 2)]
                batches = table.to_batches(max_chunksize=_ROWS_AT_ONCE)
                yield [chunk_of(batch, features, TARGET, WEIGHT, "a file") for batch in batches]
