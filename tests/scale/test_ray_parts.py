"""Parts of a fit on Ray without a cluster: reading, sharing out, room, the start; and Dask as a backend of joblib."""

import copy
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import joblib
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from crcen import CRCENClassifier, Schedule
from crcen.exceptions import DataUnavailable, DeviceMissing, InvalidParameter, TrainingFailed
from crcen.scale import ray as ray_fit
from crcen.scale.ray import Assignment, _agreed_start, _groups, check_room, fit_ray, run_trainer, workers_of_trees
from crcen.scale.sources import ArrowSource, RayShard, read_groups, survey_part, survey_source
from crcen.scale.stream import Progress, StreamRun, make_plan, streamed_model
from crcen.training.engine import train
from crcen.training.engines import find_engine
from processes import ThreadedSum


@pytest.fixture
def told(folder):
    source = ArrowSource(folder, "y", "w")
    model = streamed_model("balanced", 2, {"hidden": (3,), "random_state": 0, "schedule": Schedule(batch_size=64)})
    plan = make_plan(model, survey_source(source, 0.0, 0), 0)
    return Assignment(model, plan, source, 100, 150, "this", is_weighted=True, worker_timeout=60.0)


def shard_of(tables):
    """A stand-in for Ray's share of a data set: batches of any size from tables in order."""

    def iter_batches(batch_size, batch_format, prefetch_batches):
        rows = pa.concat_tables(tables)
        for start in range(0, rows.num_rows, batch_size):
            yield rows.slice(start, batch_size)

    return RayShard(SimpleNamespace(iter_batches=iter_batches))


def rows_of(blocks):
    chunks = [chunk for block in blocks for chunk in block]
    table = np.column_stack([np.concatenate([getattr(c, name) for c in chunks]) for name in ("X", "labels", "weight")])
    return table[np.lexsort(table.T)]


def test_readers_send_the_rows_of_the_files(told, table):
    X, y, w = table
    again = pickle.loads(pickle.dumps(told.reading))  # as a reader on another machine has it
    tables = list(read_groups([[3, 0], [1, 2]], *again))
    expected = np.column_stack([X, y, w])
    np.testing.assert_array_equal(rows_of(shard_of(tables).blocks(130)), expected[np.lexsort(expected.T)])
    late = list(shard_of(tables).blocks(130, start=2))
    np.testing.assert_array_equal(rows_of(late), rows_of(list(shard_of(tables).blocks(130))[2:]))


READER = """
import pickle, sys
from crcen.scale.sources import read_groups, survey_part
told = pickle.loads(open(sys.argv[1], 'rb').read())
rows = sum(len(table) for table in read_groups([[0, 1]], *told))
survey_part(told[0], 0.0, 0)
print(rows, 'torch' in sys.modules)
"""


def test_a_reader_loads_no_torch(told, tmp_path):
    # Ray stops readers whenever it likes; one that was loading torch could never load it again.
    (tmp_path / "reading").write_bytes(pickle.dumps(told.reading))
    command = [sys.executable, "-c", READER, tmp_path / "reading"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(told.source.part([0, 1]).n_rows), "False"]


def test_part_of_an_arrow_dataset_travels(folder, table):
    source = ArrowSource(ds.dataset(folder, format="parquet"), "y", "w")
    part = pickle.loads(pickle.dumps(source.part([1, 3])))
    assert part.n_rows == len(rows_of(part.blocks(100))) == 250 + 150
    part.check_unchanged()
    (folder / "part-3.parquet").unlink()
    with pytest.raises(DataUnavailable, match=r"part-3\.parquet does not exist"):
        part.check_unchanged()


@pytest.mark.parametrize(
    ("sizes", "share", "most", "expected"),
    [([3000, 3000], 1.0, 4, 2), ([3000, 3000], 0.3, 4, 1), ([3000, 3000, 5], 1.0, 3, 2), ([6000, 1], 1.0, 2, 1)],
)
def test_no_worker_of_the_trees_is_without_rows(tmp_path, sizes, share, most, expected):
    for number, size in enumerate(sizes):
        rows = {"x": np.arange(float(size)), "y": np.arange(size) % 2}
        pa.parquet.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    source = ArrowSource(tmp_path, "y")
    assert workers_of_trees(SimpleNamespace(share=share), source, most) == expected
    assert sum(source.share(rank, expected).n_rows for rank in range(expected)) == sum(sizes)
    for n_files, workers in ((1, 2), (5, 2), (100, 2), (1000, 8)):  # groups of readers hold every file once
        groups = _groups(n_files, workers, seed=1)
        assert sorted(file for group in groups for file in group) == list(range(n_files))
        assert max(map(len, groups)) <= 8
        assert len(groups) >= min(n_files, 4 * workers)


@pytest.mark.parametrize("error", ["crcen.exceptions.DataUnavailable: rows.parquet was changed", "ValueError: bad"])
def test_the_error_of_a_worker_is_named(error):
    ray_train = pytest.importorskip("ray.train")
    failed = Exception.__new__(ray_train.TrainingFailedError)
    failed.args = (f"Traceback\n{error}\nRetry with other settings.",)

    def fit():
        raise failed

    files = SimpleNamespace(check_unchanged=lambda: None)
    with pytest.raises(TrainingFailed, match=re.escape(error)):
        run_trainer(SimpleNamespace(fit=fit), files, None)


def test_a_file_is_surveyed_or_its_refusal_handed_back(told, folder):
    whole = survey_source(told.source, 0.0, 0)
    merged, *parts = (survey_part(told.source.part([number]), 0.0, 0) for number in range(4))
    for part in parts:
        merged.merge(part)
    assert merged.digest() == whole.digest()
    (folder / "part-2.parquet").unlink()
    refused = survey_part(told.source.part([2]), 0.0, 0)
    assert isinstance(refused, DataUnavailable)
    assert "part-2.parquet does not exist" in str(refused)


@pytest.mark.parametrize(
    ("room", "wanted", "error", "words"),
    [
        ({"CPU": 2.0}, (2, 1, False), InvalidParameter, "use fewer workers, or a cluster of at least 3 CPUs"),
        ({}, (1, 4, False), InvalidParameter, "cluster's 0 CPUs .* of at least 5 CPUs"),
        ({"CPU": 9.0, "GPU": 1.0}, (2, 1, True), DeviceMissing, "got 2 workers and 1 GPUs"),
    ],
)
def test_a_cluster_without_room_is_refused(room, wanted, error, words):
    workers, cpus, use_gpu = wanted
    with pytest.raises(error, match=words):
        check_room(SimpleNamespace(cluster_resources=lambda: room), workers, cpus, use_gpu=use_gpu)
    check_room(SimpleNamespace(cluster_resources=lambda: {"CPU": 99.0, "GPU": 9.0}), workers, cpus, use_gpu=use_gpu)


def test_start_is_rejected_with_other_files_or_another_checkpoint(told, folder, monkeypatch):
    for saved, epoch in ((None, 0), (Progress("this", 0, epoch=1), 1)):
        monkeypatch.setattr(ray_fit, "_saved", lambda file, read, saved=saved: saved)
        assert _agreed_start(told, 0, 1).epoch == epoch
    monkeypatch.setattr(ray_fit, "_saved", lambda file, read: Progress("another", 0, epoch=1))
    with pytest.raises(InvalidParameter, match="checkpoint in storage is of other data"):
        _agreed_start(told, 0, 1)
    (folder / "part-1.parquet").unlink()
    with pytest.raises(DataUnavailable, match=r"part-1\.parquet does not exist"):
        _agreed_start(told, 0, 1)


def run_workers(told, shards, progress, stop_after=None):
    """Train one worker a shard, each on a thread; parameters of all, and their checkpoints."""
    all_reduce, kept = ThreadedSum(len(shards)), [[] for _ in shards]

    def work(rank):
        plan, cpu = told.plan.by_number(), torch.device("cpu")
        run = StreamRun(told.model, shards[rank], plan, progress[rank], 100, cpu, all_reduce.of(rank), len(shards))

        def keep(now):
            kept[rank].append(copy.deepcopy(now))
            if stop_after == len(kept[rank]):
                raise InterruptedError

        run.save_rows, run.keep = told.checkpoint_rows, keep
        with suppress(InterruptedError):
            run.train(lambda share: None)
            return [*run.parameters()[0], *run.parameters()[1]]

    with ThreadPoolExecutor(len(shards)) as pool:
        return list(pool.map(work, range(len(shards)))), kept


@pytest.mark.parametrize("stop_after", [1, 3, 5])
def test_uneven_workers_stay_equal_and_go_on_exactly(told, stop_after):
    tables = list(read_groups([[0, 1, 2, 3]], *told.reading))
    shards = [shard_of(tables[:1]), shard_of(tables[1:])]  # 100 rows and 500
    anew = [Progress("this", 0), Progress("this", 0)]
    (one, other), _ = run_workers(told, shards, copy.deepcopy(anew))
    (none, _), kept = run_workers(told, shards, copy.deepcopy(anew), stop_after)
    assert none is None
    (again, _), _ = run_workers(told, shards, [parts[-1] for parts in kept])
    for mine, yours, resumed in zip(one, other, again, strict=True):
        np.testing.assert_array_equal(mine, yours)
        np.testing.assert_array_equal(mine, resumed)


def test_uneven_workers_watch_the_same_held_out_rows(told):
    how = {"hidden": (3,), "random_state": 0, "schedule": Schedule(early_stopping=True)}
    model = streamed_model("balanced", 3, how)
    told = replace(told, model=model, plan=make_plan(model, survey_source(told.source, 0.1, 0), 0))
    tables = list(read_groups([[0, 1, 2, 3]], *told.reading))
    shards = [shard_of(tables[:2]), shard_of(tables[2:])]
    _, kept = run_workers(told, shards, [Progress("this", 0), Progress("this", 0)])
    one, other = (parts[-1] for parts in kept)
    assert one.val_loss_curve == other.val_loss_curve
    # The curve's last value, from the last parameters on all held-out rows at once.
    plan = told.plan.by_number()
    trainer = plan.trainer()
    trainer.restore({key: value for key, value in one.arrays.items() if not key.startswith("best_")})
    held = plan.validation_rows([chunk for block in shard_of(tables).blocks(600) for chunk in block])
    assert 20 < len(held) < 120
    np.testing.assert_allclose(trainer.losses([held]), one.val_loss_curve[-1], rtol=1e-6)


def test_timeouts_and_engines_are_checked(folder):
    for seconds in (0, -1.0, "soon", None):
        with pytest.raises(InvalidParameter, match="worker_timeout must be a number of seconds above 0"):
            fit_ray(folder, "y", worker_timeout=seconds)
    assert (find_engine("local"), find_engine("ray").__name__) == (train, "train_on_ray")
    with pytest.raises(InvalidParameter, match="engine must be one of 'local', 'ray': got 'dask'"):
        find_engine("dask")


START = """
import time
from crcen.scale.ray import Watchdog
watchdog = Watchdog(1.0)
"""
# Ends at once: unloading torch on a busy machine takes longer than the watchdog waits.
ALIVE = "print('alive', flush=True)\nimport os\nos._exit(0)"


@pytest.mark.parametrize(
    ("rest", "status", "out", "log"),
    [
        ("import threading\nthreading.Lock().acquire()\nthreading.Event().wait()", 1, "", "in wait"),
        ("for _ in range(20):\n    time.sleep(0.1)\n    watchdog.moved()\n" + ALIVE, 0, "alive\n", ""),
        ("with watchdog.paused():\n    time.sleep(2.0)\n" + ALIVE, 0, "alive\n", ""),
        ("watchdog.end()\ntime.sleep(2.0)\n" + ALIVE, 0, "alive\n", ""),
        (
            "with watchdog.paused():\n    time.sleep(1.5)\nprint('alive', flush=True)\ntime.sleep(60)",
            1,
            "alive\n",
            "Time",
        ),
    ],
)
def test_worker_without_progress_is_ended_and_its_log_says_where(rest, status, out, log):
    done = subprocess.run([sys.executable, "-c", START + rest], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (status, out)
    assert log in done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dask's own, and those of what it loads
def test_a_search_through_dask_is_the_search_without(table):
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    X, y, _ = table
    model = CRCENClassifier(hidden=(4,), max_epochs=2, random_state=0)
    search = GridSearchCV(model, {"l2": [1e-4, 1e-1]}, cv=3, scoring="neg_log_loss")
    alone = clone(search).fit(X, y)
    settings = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        found = search.fit(X, y)
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"], rtol=1e-6)
    assert found.best_params_ == alone.best_params_
