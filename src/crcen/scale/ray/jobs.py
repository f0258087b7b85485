"""Training jobs as tasks of a Ray cluster, for searches and reproductions."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crcen.exceptions import CrcenError, DeviceMissing
from crcen.scale.ray.cluster import connected
from crcen.training.engine import find_device, train
from crcen.training.jobs import TrainingJob, TrainingResult
from crcen.training.planner import halves, plan

__all__ = ["train_on_ray"]

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

    Jobs that share work go together, up to 16 a task. How they are put together does not depend on the cluster, so that
    results do not either. A task whose machine dies is run again.

    Parameters
    ----------
    X, y, jobs, sample_weight, progress
        As in `train`.
    device
        As there; a task on CUDA takes a GPU of the cluster, and ``"auto"`` is CUDA if the cluster has one.
    memory_bytes
        Bound for each task.

    Returns
    -------
    list of TrainingResult
        In the order of ``jobs``.
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
        refs = [task.remote(data, [jobs[p] for p in part], where, memory_bytes) for part in parts]
        owners = dict(zip(refs, parts, strict=True))
        results: dict[int, TrainingResult] = {}
        waiting = refs
        while waiting:
            (ref,), waiting = ray.wait(waiting)
            answer = ray.get(ref)
            if isinstance(answer, CrcenError):
                for other in waiting:
                    ray.cancel(other)
                raise answer
            # What Ray hands over cannot be written to.
            results |= zip(owners[ref], deepcopy(answer), strict=True)
            if progress is not None:
                progress(len(results) / len(jobs))
    return [results[position] for position in range(len(jobs))]


def _uses_gpu(ray: Any, device: str) -> bool:
    if device == "cpu":
        return False
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if device.startswith("cuda") and not gpus:
        raise DeviceMissing(f"device={device!r} was asked for, but no machine of the cluster has a GPU; use 'auto'.")
    if device != "auto" and not device.startswith("cuda"):
        find_device(device)  # raises, in words
    return gpus > 0


def _parts(jobs: Sequence[TrainingJob], shape: tuple[int, ...]) -> list[list[int]]:
    """Positions of the jobs of each task, largest tasks first."""
    stacks = [stack.groups for stack in plan(jobs, shape[0], lambda _: shape[-1], _NO_BOUND)]
    small = []
    while stacks:
        groups = stacks.pop()
        if sum(map(len, groups)) <= _MOST_JOBS:
            small.append([position for group in groups for position in group])
        else:
            stacks += halves(groups)
    return sorted(small, key=len, reverse=True)


def _train_part(
    data: tuple[Any, Any, Any], jobs: list[TrainingJob], device: str, memory_bytes: int | None
) -> list[TrainingResult] | CrcenError:
    """The results of some jobs, or why there are none: Ray would try an error again."""
    X, y, sample_weight = data
    try:
        return train(X, y, jobs, sample_weight=sample_weight, device=device, memory_bytes=memory_bytes)
    except CrcenError as error:
        return error
