"""A Ray cluster to work on: the one that is there, or a local one; and whether it has room."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crcen._support.extras import need
from crcen.exceptions import DeviceMissing, InvalidParameter

__all__ = ["check_room", "connected"]

# A local cluster counts at least so many CPUs beside those of its workers, however few cores there are.
_SPARE_CPUS = 2


@contextmanager
def connected(wanted_cpus: int, *, stay: bool = False) -> Iterator[Any]:
    """Give the ray module, connected: as it is already, to ``RAY_ADDRESS``, or to a local cluster for this while.

    Parameters
    ----------
    wanted_cpus
        What workers will take; a local cluster is given some more, so that readers find room.
    stay
        Stay connected until the process ends, for who comes back soon: a start takes seconds.
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


def check_room(ray: Any, num_workers: int, cpus_per_worker: int, *, use_gpu: bool) -> None:
    """Refuse what the cluster cannot hold: Ray itself would wait for ever, without a word.

    Parameters
    ----------
    ray
        The connected module.
    num_workers, cpus_per_worker, use_gpu
        What training takes. Readers need a CPU beside it.
    """
    found = ray.cluster_resources()
    cpus, gpus = int(found.get("CPU", 0)), int(found.get("GPU", 0))
    taken = num_workers * cpus_per_worker
    if taken + 1 > cpus:
        most = max((cpus - 1) // cpus_per_worker, 0)
        advice = f"use num_workers={most}, or" if most else "use"
        raise InvalidParameter(
            f"{num_workers} workers of {cpus_per_worker} CPU leave none of the cluster's {cpus} CPUs to those who read "
            f"the files, and training would wait for ever; {advice} a cluster of at least {taken + 1} CPUs.",
            parameter="num_workers",
        )
    if use_gpu and num_workers > gpus:
        raise DeviceMissing(
            f"use_gpu=True takes one GPU a worker: got {num_workers} workers and {gpus} GPUs in the cluster; use fewer "
            f"workers, or use_gpu=False."
        )
