"""Fit a classifier on a Ray cluster: Ray Data reads, Ray Train runs the workers and starts them again when they die."""

import numbers
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from crcen._support.extras import need, renamed
from crcen.exceptions import CrcenError, InvalidParameter
from crcen.models.classifier import CRCENClassifier
from crcen.models.fitting import base_seed
from crcen.scale.checkpoint import lock_storage
from crcen.scale.plan import make_plan, rows_together
from crcen.scale.ray import cluster
from crcen.scale.ray.cluster import Ray
from crcen.scale.ray.reader import survey_part
from crcen.scale.ray.worker import Assignment
from crcen.scale.sources import ArrowSource, Source, reading_order
from crcen.scale.statistics import StreamStatistics
from crcen.scale.stream import fingerprint_of, settle_penalty, streamed_model, survey_terms
from crcen.tables.typing import ArrowTable

# Files that a reader opens together, to mix their rows, and groups of files a worker, to keep readers busy.
_MOST_FILES, _GROUPS_A_WORKER = 8, 4
# Seconds that workers may wait for each other: one of few rows waits while others go through theirs.
_LONGEST_WAIT = 86_400


@renamed(num_workers="workers", storage_path="storage")
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
    then continues from the last checkpoint.

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

    Returns
    -------
    CRCENClassifier
        The fitted classifier.

    Raises
    ------
    InvalidParameter
        If the cluster has no room for workers and readers. Further errors are those of `crcen.fit_stream`.
    TrainingFailed
        If the networks diverge, or training fails more than ``max_failures`` times.

    Notes
    -----
    Connects to the cluster of ``RAY_ADDRESS``, or to the one that ``ray.init`` was called for, or starts a local one.
    The result depends on the seed and ``workers``, which share batches, but not on failures.
    """
    counts = {"workers": workers, "cpus_per_worker": cpus_per_worker, "checkpoint_rows": checkpoint_rows}
    model = streamed_model(weighting, epochs, parameters, **counts, buffer_rows=buffer_rows)
    if not (isinstance(worker_timeout, numbers.Real) and worker_timeout > 0):
        raise InvalidParameter(f"worker_timeout must be a number of seconds above 0: got {worker_timeout!r}.")
    need("ray.train.torch", "ray")
    is_open = hasattr(source, "check_unchanged")
    files = source if is_open else ArrowSource(source, target, sample_weight, features, skip_bad_files=skip_bad_files)
    seeded = int(model.random_state) if isinstance(model.random_state, numbers.Integral) else None
    name = fingerprint_of(model, files.fingerprint, buffer_rows, workers, seeded)
    with (
        cluster.connected(workers * cpus_per_worker) as ray,
        cluster.storage_of(storage) as place,
        lock_storage(place, f"crcen-{name[:16]}.fit"),
    ):
        cluster.check_room(ray, workers, cpus_per_worker, use_gpu=use_gpu)
        n_machines = sum(node["Alive"] for node in ray.nodes())
        if storage is None and n_machines > 1:
            message = f"storage must be a place that all {n_machines} machines of the cluster see: got None."
            raise InvalidParameter(message)
        # A fit that is to be found again needs the same seed again.
        seed = int(name[:7], 16) if seeded is None and storage is not None else base_seed(model.random_state)
        statistics = _survey(ray, files, model, seed)
        settle_penalty(model, parameters, statistics)
        plan = make_plan(model, statistics, seed)
        at_once = buffer_rows or rows_together(plan.encoding.size)
        fingerprint = fingerprint_of(model, name, statistics.digest())
        about = (at_once, checkpoint_rows, fingerprint, statistics.is_weighted, float(worker_timeout))
        told, name = Assignment(model, plan, files, *about), f"crcen-{name[:16]}"
        with cluster.cluster_progress(ray, "fit_ray", visible=bool(model.verbose)) as show:
            configs = cluster.trainer_configs(workers, cpus_per_worker, place, name, max_failures, use_gpu)
            fitted: CRCENClassifier = cluster.run_trainer(_trainer(told, show, workers, configs), files, storage)
            return deepcopy(fitted)  # arrays from Ray are read-only


def _survey(ray: Ray, files: ArrowSource, model: CRCENClassifier, seed: int) -> StreamStatistics:
    """Statistics of all rows, a task a file, merged in the order of the files; bad files are rejected or left out."""
    task, terms = ray.remote(survey_part), survey_terms(model, seed)
    found = ray.get([task.remote(files.part([number]), *terms) for number in range(files.n_files)])
    whole = StreamStatistics(files.names, *terms[:2], sample_rows=terms[2])

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


def _trainer(told: Assignment, show: Callable[[float], None] | None, workers: int, configs: Mapping[str, Ray]) -> Ray:
    import ray.data
    import ray.train
    import ray.train.torch

    class SharedOut(ray.train.DataConfig):
        """Every row goes to one worker, the same in every epoch; shares may be uneven."""

        def configure(self, datasets: Ray, world_size: int, *args: Ray, **kwargs: Ray) -> list[dict[str, Ray]]:
            shares = datasets["rows"].streaming_split(world_size, equal=False)
            return [{"rows": share} for share in shares]

    # Pickled here, so that Ray's own processes pass them on without loading what the workers need.
    packed, reading = pickle.dumps(told), pickle.dumps(told.reading)
    groups = _groups(told.source.n_files, workers, told.plan.seed)

    def read(numbers: Ray) -> Iterator[ArrowTable]:
        from crcen.scale.ray.reader import read_groups

        return read_groups([groups[number] for number in numbers["group"].tolist()], *pickle.loads(reading))

    def work() -> Ray:
        from crcen.scale.ray.worker import train_worker

        return train_worker(pickle.loads(packed), show)

    listed = ray.data.from_items([{"group": number} for number in range(len(groups))], override_num_blocks=len(groups))
    rows = listed.map_batches(read, batch_size=1)
    rows.context.execution_options.preserve_order = True
    rows.context.enable_progress_bars = False
    how: dict[str, Ray] = {"datasets": {"rows": rows}, "dataset_config": SharedOut()}
    how["torch_config"] = ray.train.torch.TorchConfig(timeout_s=_LONGEST_WAIT)
    return ray.train.torch.TorchTrainer(work, **how, **configs)
