"""A Ray cluster: connection, resources, a progress bar, and training jobs as its tasks."""

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.extras import need
from crcen._support.progress import progress_bar
from crcen.exceptions import CrcenError, DeviceMissing, InvalidParameter, TrainingFailed
from crcen.scale.sources import ArrowSource
from crcen.training.device import find_device
from crcen.training.engine import halves, plan, train
from crcen.training.jobs import TrainingJob, TrainingResult

Ray = Any  # the module, which is optional and which no type checker sees

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
    text = str(path)
    return nullcontext(text if "://" in text else str(Path(text).resolve()))


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
    stacks = plan(jobs, shape[0], lambda _: shape[-1], _NO_BOUND)
    small = []
    while stacks:
        groups = stacks.pop()
        if sum(map(len, groups)) <= _MOST_JOBS:
            small.append([position for group in groups for position in group])
        else:
            stacks += halves(groups)
    return sorted(small, key=len, reverse=True)


def _train_part(
    data: tuple[ArrayLike, ArrayLike, ArrayLike | None], jobs: list[TrainingJob], device: str, memory_bytes: int | None
) -> list[TrainingResult] | CrcenError:
    """The results of some jobs, or why there are none: Ray would try an error again."""
    X, y, sample_weight = data
    try:
        return train(X, y, jobs, sample_weight=sample_weight, device=device, memory_bytes=memory_bytes)
    except CrcenError as error:
        return error
