"""Boosted trees on a Ray cluster: workers bin their own rows, and LightGBM's data-parallel learner connects them."""

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from crcen.scale.ray.cluster import Ray, cluster_progress, connected, run_trainer, storage_of, trainer_configs
from crcen.scale.sources import ArrowSource, Chunk
from crcen.scale.trees import BinnedRows, Codes, GrownTrees, TreePlan, grow_trees
from crcen.theory.rows import LabelArray

_BLOCK_ROWS = 65_536
_FEWEST_ROWS = 1000  # of a worker
_FILE = "trees.json"


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
                from crcen.scale.ray.trees import grow_in_worker

                return grow_in_worker(*pickle.loads(ray.get(assignment)), show=show)

            trainer = LightGBMTrainer(work, **trainer_configs(workers, cpus_per_worker, place, name, max_failures))
            grown: GrownTrees = run_trainer(trainer, source, storage)
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
    show: Callable[[float], None] | None,
) -> GrownTrees:
    """Part of one worker: bin its rows, wait for the others, and grow the same trees as they do."""
    import ray.train
    from ray.train.collective import barrier
    from ray.train.lightgbm import get_network_params

    from crcen.scale.ray.worker import Watch

    context = ray.train.get_context()
    rank, count = context.get_world_rank(), context.get_world_size()
    watch = Watch(worker_timeout)
    watch.moved()
    start = GrownTrees()
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            start = GrownTrees.read(Path(folder) / _FILE, "")

    def blocks() -> Iterator[Iterable[Chunk]]:
        for block in source.share(rank, count).blocks(_BLOCK_ROWS):
            watch.moved()
            yield block

    def connect() -> dict[str, object]:
        if count == 1:
            return {}
        with watch.paused():  # LightGBM waits two minutes for others, which may have more rows to read
            barrier()
        return {"tree_learner": "data", **get_network_params()}

    def save(grown: GrownTrees) -> None:
        with tempfile.TemporaryDirectory(prefix="crcen-checkpoint-") as folder:
            grown.write(Path(folder) / _FILE)
            kept = ray.train.Checkpoint.from_directory(folder) if rank == 0 else None
            ray.train.report({"trees": len(grown.losses), "started_at": len(start.losses)}, checkpoint=kept)

    def tell(share: float) -> None:
        watch.moved()
        if show is not None and rank == 0:
            show(share)

    try:
        return grow_trees(plan, BinnedRows(plan, blocks()), held_out, start, save, connect=connect, show=tell)
    finally:
        watch.end()
