"""Fits and searches on a real Ray cluster of this machine, in a network that holds nothing but loopback."""

import json
import os
import shutil
from contextlib import ExitStack, nullcontext
from pathlib import Path

import joblib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics
from ray_striking import KilledTrees, checkpoints, events_of, frame, log_loss, loopback_only, one_worker, write_files
from scipy.special import softmax
from sklearn.model_selection import cross_val_score

import crcen
from crcen.exceptions import DataUnavailable, DeviceMissing
from crcen.paper.reproduce import reproduce
from crcen.scale import ray as ray_cluster
from crcen.scale.committee import BinnedRows, GrownTrees, grow_trees, plan_trees
from crcen.scale.ray import _survey, grow_trees_on_ray
from crcen.scale.sources import ArrowSource
from crcen.theory.price import Labels
from crcen.training.engine import train
from crcen.training.engines import find_engine
from crcen.training.jobs import TrainingJob
from grouped_settings import grouped

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [
    pytest.mark.timeout(1200),  # every Ray process takes seconds to start, and on a busy machine many
    # Ray warns of what it does itself.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
    pytest.mark.filterwarnings(r"ignore::FutureWarning:ray\..*"),
    pytest.mark.filterwarnings(r"ignore::ResourceWarning"),
]

SETTINGS = {"epochs": 2, "hidden": (8,), "random_state": 0, "batch_size": 256, "buffer_rows": 1024}


@pytest.fixture(scope="module")
def cluster():
    with ExitStack() as stack:
        try:
            stack.enter_context(loopback_only())
        except OSError as error:
            pytest.skip(f"Ray is tested in a network namespace of its own, which is not allowed here: {error}")
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]  # workers unpickle sources of this folder
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
        patch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")  # a checkpoint waits for the next look
        # Idle processes are kept, for the next fit to find.
        kept = {"num_workers_soft_limit": 16, "idle_worker_killing_time_threshold_ms": 600_000}
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init(address="local", num_cpus=3, _system_config=kept, **quiet)
        stack.callback(ray.shutdown)
        yield ray


@pytest.fixture(scope="module")
def events():
    return events_of(12_000)


@pytest.fixture(scope="module")
def files(events, tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("ray") / "data", events, [300, 4000, 1500, 2500, 900])


@pytest.fixture(scope="module")
def calm(cluster, files):
    """An undisturbed fit."""
    return crcen.fit_ray(files, "kind", **grouped(checkpoint_rows=4000, **SETTINGS))


def assert_same_networks(model, other):
    for one, two in zip([*model.coefs_, *model.intercepts_], [*other.coefs_, *other.intercepts_], strict=True):
        np.testing.assert_array_equal(one, two)


def test_three_classes_are_fitted_by_two_workers_of_which_one_runs_out_of_memory(cluster, events, tmp_path):
    X, y = (np.concatenate(parts)[:3000] for parts in zip(*events, strict=True))
    labels = np.where(y, "event", np.where(X[:, 0] > 1.0, "high", "none"))
    for number, own in enumerate(np.array_split(np.arange(3000), 3)):
        columns = {name: X[own, j] for j, name in enumerate(events.feature_names)}
        pq.write_table(pa.table({**columns, "kind": labels[own]}), tmp_path / f"{number}.parquet")
    settings = grouped(epochs=4, hidden=(), random_state=0, batch_size=128, buffer_rows=1024)
    weights, files, storage = {"none": 1, "event": 5, "high": 2}, sorted(tmp_path.glob("*.parquet")), tmp_path / "kept"
    # A busy machine may let a worker wait longer than the timeout: it is then started again once more.
    kept = grouped(checkpoint_rows=1000, storage=storage, worker_timeout=40, max_failures=10)
    kept |= {"cpus_per_worker": 1, "features": [*events.feature_names]}
    with one_worker(storage, "starved") as starved:
        model = crcen.fit_ray(files, "kind", weights, workers=2, **settings, **kept)
    assert starved.exists()
    assert checkpoints(storage)[-1]["started_at"] > 0  # it did fail, and nothing that was saved was lost
    assert (model.n_iter_, model.classes_.tolist()) == (4, ["event", "high", "none"])
    assert model.weighting_.counts.tolist() == np.bincount(np.searchsorted(model.classes_, labels)).tolist()
    q, numbers = model.weighted_proba(frame(X)), np.searchsorted(model.classes_, labels)
    assert max(crcen.key_equation(numbers, q, model.weighting_).residual, model.key_equation_.residual) < 1e-10
    alone = crcen.fit_stream(files, "kind", weights, **settings)
    apart = np.abs(alone.predict_proba(frame(X)) - model.predict_proba(frame(X)))
    assert apart.mean() < 0.03  # batches are others, and Adam has not come to rest


def test_a_fit_with_a_killed_worker_ends_as_one_without(calm, events, files, tmp_path, monkeypatch):
    shares = []
    monkeypatch.setattr(ray_cluster, "progress_bar", lambda title, *, visible: nullcontext(shares.append))
    with one_worker(tmp_path, "killed") as killed:
        struck = crcen.fit_ray(files, "kind", **grouped(checkpoint_rows=4000, storage=tmp_path, verbose=1, **SETTINGS))
    assert killed.exists()
    assert checkpoints(tmp_path)[-1]["started_at"] > 0
    assert_same_networks(struck, calm)
    # The bar was fed on the way, from another process.
    assert any(0 < share < 1 for share in shares)
    assert shares[-1] == 1.0
    # No row was left out or met twice: the counts are those of the files, and all rows take part in the balance.
    X, y = (np.concatenate(parts) for parts in zip(*events, strict=True))
    assert (calm.weighting_.n_pos, calm.weighting_.n_neg) == (y.sum(), len(y) - y.sum())
    q = struck.weighted_proba(frame(X))[:, list(struck.classes_).index("event")]
    assert crcen.key_equation(y, q, struck.weighting_).residual < 1e-10
    assert (calm.pos_label_, calm.status_, calm.coefs_[0].flags.writeable) == ("event", "completed", True)
    assert list(calm.feature_names_in_) == list(events.feature_names)
    X, y = events.sample(20_000)
    alone = crcen.fit_stream(files, "kind", **grouped(**SETTINGS))
    best = -np.log(np.where(y, events.posterior(X), 1 - events.posterior(X))).mean()
    assert best < log_loss(calm, X, y) < best + 0.03
    assert abs(log_loss(calm, X, y) - log_loss(alone, X, y)) < 0.01


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_of_two_workers_of_which_one_is_killed_are_as_good_as_those_of_one(cluster, tmp_path, n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4))
    y = 2.0 * X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=len(X)) > 2.0
    names = np.where(y, "event", np.where((X[:, 2] < -1.0) & (n_classes == 3), "low", "none"))
    columns = {f"x{j}": X[:16_000, j] for j in range(4)}
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({**columns, "kind": names[:16_000]}), tmp_path / "rows" / "0.parquet", row_group_size=700)
    labels = Labels(np.unique(names), "event" if n_classes == 2 else None)
    plan = plan_trees([X[:5000]], labels, 16_000, 10**9)
    held_out = plan.codes(X[16_000:]), labels.target(names[16_000:])
    source = KilledTrees(tmp_path / "rows", "kind")
    source.storage = tmp_path
    alone = grow_trees(plan, BinnedRows(plan, source.blocks(1000)), held_out, GrownTrees())
    struck = grow_trees_on_ray(plan, source, held_out, storage=tmp_path)
    assert (tmp_path / "struck").exists()
    assert (checkpoints(tmp_path)[-1]["started_at"], len(struck.models)) == (50, 2)
    # The workers draw other columns than one process does.
    assert min(struck.losses) == pytest.approx(min(alone.losses), rel=0.05)
    p = softmax(struck.ensemble(plan).logits(X[16_000:]), axis=1)
    loss = sklearn.metrics.log_loss(held_out[1].astype(int), p)
    assert loss == pytest.approx(min(struck.losses), rel=1e-6)


def test_a_bad_file_is_named_before_training_or_left_out(cluster, files, tmp_path):
    copies = [Path(shutil.copy(file, tmp_path)) for file in files]
    content = bytearray(copies[2].read_bytes())
    content[200:2200] = np.random.default_rng(0).bytes(2000)  # a page; the footer is whole, so that only reading tells
    copies[2].write_bytes(content)
    with pytest.raises(DataUnavailable, match=r"2\.parquet cannot be read"):
        crcen.fit_ray(copies, "kind", **grouped(**SETTINGS))
    source = ArrowSource(copies, "kind", skip_bad_files=True)
    with pytest.warns(UserWarning, match=r"1 of 6 files left out: .*2\.parquet"):
        found = _survey(cluster, source, crcen.CRCENClassifier(), 0)
    good = ArrowSource([copy for copy in copies if copy != copies[2]], "kind")
    assert source.n_files == 5
    assert found.totals.n_rows == source.n_rows == good.n_rows


def test_what_the_cluster_cannot_hold_is_refused(cluster, files):
    with pytest.raises(crcen.InvalidParameter, match=r"leave none of the cluster's 3 CPUs .* use fewer workers"):
        crcen.fit_ray(files, "kind", **grouped(workers=3, **SETTINGS))
    with pytest.raises(DeviceMissing, match="got 2 workers and 0 GPUs"):
        crcen.fit_ray(files, "kind", **grouped(use_gpu=True, **SETTINGS))
    with pytest.raises(DeviceMissing, match="no machine of the cluster has a GPU"):
        find_engine("ray")(np.zeros((2, 1)), [0, 1], [TrainingJob((0.5, 0.5))], device="cuda")


def jobs_and_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + rng.normal(size=200) > 0.8
    folds = [np.flatnonzero(np.arange(200) % 3 != fold) for fold in range(3)]
    jobs = [
        TrainingJob((1 - lam, lam), rows=fold, l2=l2, hidden=(4,), max_epochs=2, seed=1)
        for lam in (0.5, 0.9)
        for l2 in (1e-4, 1e-3, 1e-2, 1e-1)
        for fold in folds
    ]
    return X, y, jobs


def test_jobs_on_ray_are_those_trained_here(cluster):
    X, y, jobs = jobs_and_rows()
    weight = np.linspace(0.5, 2.0, 200)
    shares = []
    found = find_engine("ray")(X, y, jobs, sample_weight=weight, progress=shares.append)
    for one, other in zip(found, train(X, y, jobs, sample_weight=weight), strict=True):
        np.testing.assert_allclose(one.network.logits(X), other.network.logits(X), atol=1e-5)
        assert one.network.weights[0].flags.writeable
    # What is trained together is the same on any cluster, and so are the results, to the last digit.
    for part in ray_cluster._parts(jobs, X.shape):
        for one, position in zip(train(X, y, [jobs[p] for p in part], sample_weight=weight), part, strict=True):
            np.testing.assert_array_equal(one.network.logits(X), found[position].network.logits(X))
    assert (shares, shares[-1]) == (sorted(shares), 1.0)
    with pytest.raises(crcen.InvalidInput, match="rows of every class"):
        find_engine("ray")(X, np.zeros(200), jobs)


def test_a_search_on_ray_is_the_search_here(cluster):
    X, y, _ = jobs_and_rows()
    settings = {"hidden": [(2,), (4,)], "l2": [1e-3, 1e-1], "cv": 3, "max_epochs": 4, "random_state": 0}
    found = crcen.CRCENClassifierCV(**grouped(engine="ray", **settings)).fit(X, y)
    alone = crcen.CRCENClassifierCV(**grouped(**settings)).fit(X, y)
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"], rtol=1e-5)
    assert found.best_params_ == alone.best_params_
    np.testing.assert_allclose(found.predict_proba(X), alone.predict_proba(X), atol=1e-5)


def test_a_reproduction_on_ray_gives_the_rows_of_one_here(cluster, tmp_path):
    (tmp_path / "small.toml").write_text("[table1]\nruns = 2\nn_pos = 50\nn_neg = 200\nn_test = 50\nepochs = 3\n")
    for engine in ("local", "ray"):
        reproduce("table1", quick=True, config=tmp_path / "small.toml", out=tmp_path / engine, engine=engine)
    places = (tmp_path / engine / "table1" / "rows.jsonl" for engine in ("local", "ray"))
    local, on_ray = ([json.loads(line) for line in place.read_text().splitlines()] for place in places)
    assert len(local) == len(on_ray) > 0
    for one, other in zip(local, on_ray, strict=True):
        assert one.keys() == other.keys()
        assert {key: other[key] for key in ("simulation", "run", "weighting")}.items() <= one.items()
        assert other["lhs"] == pytest.approx(one["lhs"], rel=1e-4)


def test_ray_as_a_backend_of_joblib(cluster):
    from ray.util.joblib import register_ray

    register_ray()
    X, y, _ = jobs_and_rows()
    model = crcen.CRCENClassifier(hidden=(4,), max_epochs=2, random_state=0)
    with joblib.parallel_config("ray"):
        found = cross_val_score(model, X, y, cv=3, scoring="neg_log_loss", n_jobs=2)
    np.testing.assert_allclose(found, cross_val_score(model, X, y, cv=3, scoring="neg_log_loss"), rtol=1e-6)
