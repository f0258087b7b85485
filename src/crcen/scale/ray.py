"""Fits on a Ray cluster, and training jobs as its tasks.

Ray Data reads, Ray Train runs the workers and starts them again when they die. The workers of a network add up their
gradients. LightGBM's data-parallel learner connects those of boosted trees.
"""

import faulthandler
import numbers
import os
import pickle
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch.distributed as dist
from numpy.typing import ArrayLike
from torch import Tensor

from crcen._support.extras import need
from crcen._support.progress import progress_bar
from crcen.exceptions import CrcenError, DeviceMissing, InvalidParameter, TrainingFailed
from crcen.models.classifier import CRCENClassifier
from crcen.models.fitting import base_seed
from crcen.scale import sources, stream
from crcen.scale.committee import BinnedRows, Codes, GrownTrees, TreePlan, grow_trees
from crcen.scale.sources import ArrowSource, Chunk, RayShard, Source, StreamStatistics, reading_order, survey_part
from crcen.scale.stream import Progress, StreamPlan, StreamRun
from crcen.theory.price import Labels
from crcen.theory.rows import ArrowTable, LabelArray
from crcen.training import engine
from crcen.training.device import find_device, reproducible_arithmetic
from crcen.training.jobs import TrainingJob, TrainingResult

Ray = Any  # the module, which is optional and which no type checker sees
T = TypeVar("T")

# Files that a reader opens together, to mix their rows, and groups of files a worker, to keep readers busy.
_MOST_FILES, _GROUPS_A_WORKER = 8, 4
# Seconds that workers may wait for each other: one of few rows waits while others go through theirs.
_LONGEST_WAIT = 86_400
_BLOCK_ROWS = 65_536
_FEWEST_ROWS = 1000  # of a worker that grows trees
_WORKER_FILE, _TREES_FILE = "worker-{}.npz", "trees.json"  # of checkpoints


def fit_ray(
    source: Source,
    target: str,
    weighting: object = "balanced",
    *,
    workers: int = 2,
    use_gpu: bool = False,
    cpus_per_worker: int = 1,
    epochs: int = 5,
    storage: str | Path | None = None,
    max_failures: int = 3,
    worker_timeout: float = 600.0,
    sample_weight: str | None = None,
    features: Sequence[str] | None = None,
    checkpoint_rows: int = 1_000_000,
    buffer_rows: int | None = None,
    skip_bad_files: bool = False,
    **parameters: Any,
) -> CRCENClassifier:
    """Fit a `CRCENClassifier` with several workers on a Ray cluster.

    As `crcen.fit_stream`, but the workers share the batch of each step. They add up their gradients, so there is one
    network, and the key equation holds on the rows of all workers. A worker or machine that dies is replaced; training
    then continues from the last checkpoint. The result depends on the seed and ``workers``, but not on failures. It
    connects to the cluster of ``RAY_ADDRESS`` or of ``ray.init``, or starts a local one.

    Parameters
    ----------
    source : path, folder, pattern, list of paths, or pyarrow Dataset
        Parquet files that every machine can open.
    target, weighting, epochs, sample_weight, features, checkpoint_rows, buffer_rows, skip_bad_files
        As in `crcen.fit_stream`.
    workers, cpus_per_worker : int
        Workers, and CPUs of each. The cluster must have at least one CPU more, for reading.
    use_gpu : bool, default=False
        Give each worker a GPU.
    storage : path, optional
        A folder or address for checkpoints that every machine sees. The same call with the same data and settings
        continues from the last checkpoint. Default: a temporary folder.
    max_failures : int, default=3
        How often training may be started again.
    worker_timeout : float, default=600
        Seconds within which a worker must make progress; a worker that hangs longer is replaced.
    **parameters
        Any other parameter of `CRCENClassifier`. ``batch_size`` counts the rows of all workers, 1024 by default.

    Raises
    ------
    InvalidParameter
        If the cluster has no room for workers and readers. Further errors are those of `crcen.fit_stream`.
    TrainingFailed
        If the networks diverge, or training fails more than ``max_failures`` times.
    """
    counts = {"workers": workers, "cpus_per_worker": cpus_per_worker, "checkpoint_rows": checkpoint_rows}
    model = stream.streamed_model(weighting, epochs, parameters, **counts, buffer_rows=buffer_rows)
    if not (isinstance(worker_timeout, numbers.Real) and worker_timeout > 0):
        raise InvalidParameter(f"worker_timeout must be a number of seconds above 0: got {worker_timeout!r}.")
    need("ray.train.torch", "ray")
    is_open = hasattr(source, "check_unchanged")
    files = source if is_open else ArrowSource(source, target, sample_weight, features, skip_bad_files=skip_bad_files)
    seeded = int(model.random_state) if isinstance(model.random_state, numbers.Integral) else None
    name = stream.fingerprint_of(model, files.fingerprint, buffer_rows, workers, seeded)
    with (
        connected(workers * cpus_per_worker) as ray,
        storage_of(storage) as place,
        sources.lock_storage(place, f"crcen-{name[:16]}.fit"),
    ):
        check_room(ray, workers, cpus_per_worker, use_gpu=use_gpu)
        n_machines = sum(node["Alive"] for node in ray.nodes())
        if storage is None and n_machines > 1:
            message = f"storage must be a place that all {n_machines} machines of the cluster see: got None."
            raise InvalidParameter(message)
        # A fit that is to be found again needs the same seed again.
        seed = int(name[:7], 16) if seeded is None and storage is not None else base_seed(model.random_state)
        statistics = _survey(ray, files, model, seed)
        stream.settle_penalty(model, parameters, statistics)
        plan = stream.make_plan(model, statistics, seed)
        at_once = buffer_rows or sources.rows_together(plan.encoding.size)
        fingerprint = stream.fingerprint_of(model, name, statistics.digest())
        about = (at_once, checkpoint_rows, fingerprint, statistics.is_weighted, float(worker_timeout))
        told, name = Assignment(model, plan, files, *about), f"crcen-{name[:16]}"
        with cluster_progress(ray, "fit_ray", visible=bool(model.verbose)) as show:
            configs = trainer_configs(workers, cpus_per_worker, place, name, max_failures, use_gpu)
            fitted: CRCENClassifier = run_trainer(_trainer(told, show, workers, configs), files, storage)
            return deepcopy(fitted)  # arrays from Ray are read-only


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


def _survey(ray: Ray, files: ArrowSource, model: CRCENClassifier, seed: int) -> StreamStatistics:
    """Statistics of all rows, a task a file, merged in the order of the files; bad files are rejected or left out."""
    task, terms = ray.remote(survey_part), (stream.validation_share(model), seed)
    found = ray.get([task.remote(files.part([number]), *terms) for number in range(files.n_files)])
    whole = StreamStatistics(files.names, *terms)

    def take(number: int) -> None:
        if isinstance(found[number], CrcenError):
            raise found[number]
        whole.merge(found[number])

    files.try_files(take)
    return whole


def _groups(n_files: int, workers: int, seed: int) -> list[list[int]]:
    """Files that are read together: drawn at random, few enough for all readers to be busy."""
    order = reading_order(n_files, seed, 0)
    size = min(_MOST_FILES, max(1, n_files // (_GROUPS_A_WORKER * workers)))
    return [order[start : start + size] for start in range(0, n_files, size)]


def _trainer(told: Assignment, show: Callable[[float], None], workers: int, configs: Mapping[str, Ray]) -> Ray:
    import ray.data
    import ray.train
    import ray.train.torch

    class SharedOut(ray.train.DataConfig):
        """Every row goes to one worker, the same in every epoch; shares may be uneven."""

        def configure(self, datasets: Ray, world_size: int, *args: Ray, **kwargs: Ray) -> list[dict[str, Ray]]:
            return [{"rows": share} for share in datasets["rows"].streaming_split(world_size, equal=False)]

    # Pickled here, so that Ray's own processes pass them on without loading what the workers need.
    packed, reading = pickle.dumps(told), pickle.dumps(told.reading)
    groups = _groups(told.source.n_files, workers, told.plan.seed)

    def read(numbers: Ray) -> Iterator[ArrowTable]:
        from crcen.scale.sources import read_groups

        return read_groups([groups[number] for number in numbers["group"].tolist()], *pickle.loads(reading))

    def work() -> Ray:
        from crcen.scale.ray import train_worker

        return train_worker(pickle.loads(packed), show)

    listed = ray.data.from_items([{"group": number} for number in range(len(groups))], override_num_blocks=len(groups))
    rows = listed.map_batches(read, batch_size=1)
    rows.context.execution_options.preserve_order = True
    rows.context.enable_progress_bars = False
    how: dict[str, Ray] = {"datasets": {"rows": rows}, "dataset_config": SharedOut()}
    how["torch_config"] = ray.train.torch.TorchConfig(timeout_s=_LONGEST_WAIT)
    return ray.train.torch.TorchTrainer(work, **how, **configs)


class Watchdog:
    """Ends this process after some seconds without progress, and writes the stack of every thread to its log.

    Python's fault handler counts the time, in a thread that needs neither the interpreter nor memory.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, 0.0
        self.moved()

    def moved(self) -> None:
        """Restart the count, at most ten times in the timeout: each restart takes a new thread."""
        now = time.monotonic()
        if now >= self._next:
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=2)  # standard error
            self._next = now + 0.1 * self._seconds

    def end(self) -> None:
        """Stop watching."""
        faulthandler.cancel_dump_traceback_later()
        self._next = 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for other workers, which have their own watchdog, without a limit."""
        self.end()
        try:
            yield
        finally:
            self.moved()


def train_worker(told: Assignment, show: Callable[[float], None]) -> CRCENClassifier | CrcenError:
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
    watchdog = Watchdog(told.worker_timeout)
    rows = RayShard(ray.train.get_dataset_shard("rows"), watchdog.moved)
    device = ray.train.torch.get_device()

    def all_reduce(tensor: Tensor) -> None:
        dist.all_reduce(tensor)
        watchdog.moved()

    def gather(own: object) -> list[object]:
        found = [own] * count
        if count > 1:
            with watchdog.paused():
                dist.all_gather_object(found, own)
        return found

    together = all_reduce if count > 1 else None
    run = StreamRun(told.model, rows, plan, progress, told.buffer_rows, device, together, count)
    run.labels = told.plan.labels
    started_at = run.trainer.rows_seen
    run.save_rows = told.checkpoint_rows
    run.keep = lambda at: _report(at, rank, started_at, run.trainer.rows_seen)
    with reproducible_arithmetic():
        try:
            status = run.train(lambda share: None if rank else show(share))
        except TrainingFailed as error:  # networks are the same in all workers
            watchdog.end()
            return error
    run.store(status, told.source.names, is_weighted=told.is_weighted, gather=gather)
    watchdog.end()
    return told.model


def _agreed_start(told: Assignment, rank: int, count: int) -> Progress:
    """The state to start from. The first error of any worker is raised in all of them, so that none waits."""
    errors: list[CrcenError | None] = [None] * count
    progress = Progress(told.fingerprint, told.plan.seed)
    try:
        told.source.part(range(rank, told.source.n_files, count)).check_unchanged()
        progress = _saved(_WORKER_FILE.format(rank), stream.read_checkpoint) or progress
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


def _saved(file: str, read: Callable[[Path], T | None]) -> T | None:
    """The content of a file of the last checkpoint, if there is one."""
    import ray.train

    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        return read(Path(folder) / file)


def _report(at: Progress, rank: int, started_at: int, rows_seen: int) -> None:
    """Report a checkpoint, to which every worker adds its own state."""
    import ray.train

    with tempfile.TemporaryDirectory(prefix="crcen-checkpoint-") as folder:
        stream.write_checkpoint(Path(folder) / _WORKER_FILE.format(rank), at)
        metrics = {"epoch": at.epoch, "rows_seen": rows_seen, "started_at": started_at}
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def grow_trees_on_ray(
    plan: TreePlan,
    source: ArrowSource,
    held_out: tuple[Codes, LabelArray],
    *,
    workers: int = 2,
    cpus_per_worker: int = 1,
    storage: str | Path | None = None,
    max_failures: int = 3,
    worker_timeout: float = 600.0,
    verbose: int = 0,
) -> GrownTrees:
    """As `grow_trees`, with the row groups of the source divided among workers of a Ray cluster.

    Workers that die are started again and continue from the last checkpoint; further trees then draw other columns.
    Fewer workers are used if there are not enough row groups or rows.
    """
    workers = workers_of_trees(plan, source, workers)
    name = f"crcen-trees-{plan.fingerprint(source.fingerprint)[:16]}"
    packed = pickle.dumps((plan, source, held_out, worker_timeout))
    with connected(workers * cpus_per_worker) as ray, storage_of(storage) as place:
        from ray.train.lightgbm import LightGBMTrainer

        title = f"growing trees ({plan.n_bytes / 1e6:,.0f} MB)"
        with cluster_progress(ray, title, visible=bool(verbose)) as show:
            assignment = ray.put(packed)

            def work() -> Ray:
                from crcen.scale.ray import grow_in_worker

                return grow_in_worker(*pickle.loads(ray.get(assignment)), show=show)

            configs = trainer_configs(workers, cpus_per_worker, place, name, max_failures)
            grown: GrownTrees = run_trainer(LightGBMTrainer(work, **configs), source, storage)
    return grown


def workers_of_trees(plan: TreePlan, source: ArrowSource, most: int) -> int:
    """How many workers have enough rows each; a row group is not divided."""
    counts = range(most, 1, -1)
    return next((count for count in counts if plan.share * source.smallest_share(count) >= _FEWEST_ROWS), 1)


def grow_in_worker(
    plan: TreePlan,
    source: ArrowSource,
    held_out: tuple[Codes, LabelArray],
    worker_timeout: float,
    *,
    show: Callable[[float], None],
) -> GrownTrees:
    """Part of one worker: bin its rows, wait for the others, and grow the same trees as they do."""
    import ray.train
    from ray.train.collective import barrier
    from ray.train.lightgbm import get_network_params

    context = ray.train.get_context()
    rank, count = context.get_world_rank(), context.get_world_size()
    watchdog = Watchdog(worker_timeout)
    start = _saved(_TREES_FILE, lambda path: GrownTrees.read(path, "")) or GrownTrees()

    def blocks() -> Iterator[Iterable[Chunk]]:
        for block in source.share(rank, count).blocks(_BLOCK_ROWS):
            watchdog.moved()
            yield block

    def connect() -> dict[str, object]:
        with watchdog.paused():  # LightGBM waits two minutes for others, which may have more rows to read
            barrier()
        return {"tree_learner": "data", **get_network_params()}

    def save(grown: GrownTrees) -> None:
        with tempfile.TemporaryDirectory(prefix="crcen-checkpoint-") as folder:
            grown.write(Path(folder) / _TREES_FILE)
            kept = ray.train.Checkpoint.from_directory(folder) if rank == 0 else None
            ray.train.report({"trees": len(grown.losses), "started_at": len(start.losses)}, checkpoint=kept)

    def tell(share: float) -> None:
        watchdog.moved()
        if rank == 0:
            show(share)

    try:
        rows, joined = BinnedRows(plan, blocks()), connect if count > 1 else None
        return grow_trees(plan, rows, held_out, start, save, connect=joined, show=tell)
    finally:
        watchdog.end()


# A local cluster counts at least so many CPUs beside those of its workers, however few cores there are.
_SPARE_CPUS = 2


@contextmanager
def connected(wanted_cpus: int, *, stay: bool = False) -> Iterator[Ray]:
    """Yield the connected ray module: to the current cluster, ``RAY_ADDRESS``, or a local one for this time.

    A local cluster has more CPUs than the workers need, for readers. With ``stay`` the connection lasts until the
    process ends: a start takes seconds.
    """
    ray = need("ray", "ray")
    is_ours = not ray.is_initialized()
    if is_ours:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        if os.environ.get("RAY_ADDRESS"):
            ray.init(**quiet)
        else:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cpus = max(os.cpu_count() or 1, wanted_cpus + _SPARE_CPUS)
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    try:
        yield ray
    finally:
        if is_ours and not stay:
            ray.shutdown()


def check_room(ray: Ray, workers: int, cpus_per_worker: int, *, use_gpu: bool) -> None:
    """Raise an error if the cluster has no room, where Ray would wait forever; readers need one CPU more."""
    found = ray.cluster_resources()
    cpus, gpus = int(found.get("CPU", 0)), int(found.get("GPU", 0))
    taken = workers * cpus_per_worker
    if taken + 1 > cpus:
        message = f"{workers} workers of {cpus_per_worker} CPU leave none of the cluster's {cpus} CPUs to readers"
        advice = f"use fewer workers, or a cluster of at least {taken + 1} CPUs"
        raise InvalidParameter(f"{message}, and training would wait forever; {advice}.", parameter="workers")
    if use_gpu and workers > gpus:
        message = f"use_gpu=True takes one GPU a worker: got {workers} workers and {gpus} GPUs in the cluster"
        raise DeviceMissing(f"{message}; use fewer workers, or use_gpu=False.")


def storage_of(path: str | Path | None) -> AbstractContextManager[str]:
    """Where checkpoints are kept: a folder or address, or a temporary folder."""
    if path is None:
        return tempfile.TemporaryDirectory(prefix="crcen-ray-", ignore_cleanup_errors=True)
    return nullcontext(str(path) if "://" in str(path) else str(Path(path).resolve()))


def trainer_configs(
    workers: int, cpus_per_worker: int, storage: str, name: str, max_failures: int, use_gpu: bool = False
) -> dict[str, Ray]:
    """Arguments of Ray's trainers: resources, checkpoints under a name, and how often workers are started again."""
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

    resources = {"CPU": cpus_per_worker, **({"GPU": 1} if use_gpu else {})}
    scaling = ScalingConfig(num_workers=workers, use_gpu=use_gpu, resources_per_worker=resources)
    kept, retried = CheckpointConfig(num_to_keep=2), FailureConfig(max_failures=max_failures)
    run = RunConfig(name=name, storage_path=storage, checkpoint_config=kept, failure_config=retried)
    return {"scaling_config": scaling, "run_config": run}


_ERROR_LINE = re.compile(r"([\w.]+(Error|Exception)\b|crcen\.exceptions\.\w+): ")  # of a traceback


def run_trainer(trainer: Ray, files: ArrowSource, storage: str | Path | None) -> Any:
    """The value that the first worker returns; an error of the library that it returns is raised."""
    from ray.train import TrainingFailedError

    try:
        answer = trainer.fit().return_value
    except TrainingFailedError as error:
        files.check_unchanged()  # where the cause is a file, it is named
        lines = str(error).strip().splitlines()
        said = [line for line in lines if _ERROR_LINE.match(line)] or lines  # Ray's advice on retries comes last
        where = "; call again with the same storage to continue" if storage is not None else ""
        raise TrainingFailed(f"training on Ray failed{where}: {said[-1][:300] if said else error!r}") from error
    if isinstance(answer, CrcenError):
        raise answer
    return answer


@contextmanager
def cluster_progress(ray: Ray, title: str, *, visible: bool) -> Iterator[Callable[[float], None]]:
    """Draw a bar meanwhile; yield what a worker calls, on any machine, with the share of work done."""
    if not visible:
        yield lambda share: None
        return
    from ray.util.queue import Queue

    shares = Queue(actor_options={"num_cpus": 0})

    def put(share: float) -> None:
        with suppress(ray.exceptions.RayError):  # the machine of the queue is lost: the fit continues without a bar
            shares.put(share)

    def follow(show: Callable[[float], None]) -> None:
        with suppress(ray.exceptions.RayError):
            while (share := shares.get()) <= 1.0:
                show(share)

    with progress_bar(title, visible=True) as show:
        looking = threading.Thread(target=follow, args=(show,), daemon=True, name="crcen-progress")
        looking.start()
        try:
            yield put
            show(1.0)
        finally:
            put(inf)  # ends the thread
            looking.join()
            shares.shutdown(force=True)


# Networks of a task. It must not follow the size of the cluster: then results would, in their last digits.
_MOST_JOBS = 16
_NO_BOUND = 2**62


def train_on_ray(
    X: ArrayLike,
    y: ArrayLike,
    jobs: Sequence[TrainingJob],
    *,
    sample_weight: ArrayLike | None = None,
    device: str = "auto",
    memory_bytes: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[TrainingResult]:
    """As `train`, on the cluster that is connected, that of ``RAY_ADDRESS``, or a local one, which stays.

    Jobs that share work go together, up to 16 a task, whatever the cluster, so that results do not depend on it. A task
    whose machine dies is run again. A task on CUDA takes a GPU; ``"auto"`` is CUDA if the cluster has one.
    ``memory_bytes`` bounds each task.
    """
    rows = np.ascontiguousarray(X, dtype=np.float64)
    if not jobs:
        return []
    with connected(wanted_cpus=1, stay=True) as ray:
        uses_gpu = _uses_gpu(ray, device)
        where = "cuda" if uses_gpu else "cpu"
        task = ray.remote(num_cpus=1, num_gpus=int(uses_gpu))(_train_part)
        data = ray.put((rows, y, sample_weight))
        parts = _parts(jobs, rows.shape)
        owners = {task.remote(data, [jobs[p] for p in part], where, memory_bytes): part for part in parts}
        results: dict[int, TrainingResult] = {}
        waiting = list(owners)
        while waiting:
            (ref,), waiting = ray.wait(waiting)
            answer = ray.get(ref)
            if isinstance(answer, CrcenError):
                for other in waiting:
                    ray.cancel(other)
                raise answer
            # Arrays from Ray are read-only.
            results |= zip(owners[ref], deepcopy(answer), strict=True)
            if progress is not None:
                progress(len(results) / len(jobs))
    return [results[position] for position in range(len(jobs))]


def _uses_gpu(ray: Ray, device: str) -> bool:
    if device == "cpu":
        return False
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if device.startswith("cuda") and not gpus:
        raise DeviceMissing(f"device={device!r} was asked for, but no machine of the cluster has a GPU; use 'auto'.")
    if device != "auto" and not device.startswith("cuda"):
        find_device(device)  # raises an error
    return gpus > 0


def _parts(jobs: Sequence[TrainingJob], shape: tuple[int, ...]) -> list[list[int]]:
    """Positions of the jobs of each task, largest tasks first."""
    stacks = engine.plan(jobs, shape[0], lambda _: shape[-1], _NO_BOUND)
    small = []
    while stacks:
        groups = stacks.pop()
        if sum(map(len, groups)) <= _MOST_JOBS:
            small.append([position for group in groups for position in group])
        else:
            stacks += engine.halves(groups)
    return sorted(small, key=len, reverse=True)


def _train_part(
    data: tuple[ArrayLike, ArrayLike, ArrayLike | None], jobs: list[TrainingJob], device: str, memory_bytes: int | None
) -> list[TrainingResult] | CrcenError:
    """The results of some jobs, or why there are none: Ray would try an error again."""
    X, y, sample_weight = data
    try:
        return engine.train(X, y, jobs, sample_weight=sample_weight, device=device, memory_bytes=memory_bytes)
    except CrcenError as error:
        return error
