"""fit_stream: an ordinary classifier, balanced on all rows, the same after any interruption; checkpoints; balance."""

import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import crcen
from crcen import Alpha, CRCENClassifier, Lam, Schedule, balance_shift, fit_stream, key_equation, resolve
from crcen._support.files import exclusive_lock
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter, TrainingFailed
from crcen.scale import stream
from crcen.scale.sources import rows_together
from crcen.scale.stream import LogitFile, settle_penalty, solve_file, streamed_model, sums_of_file
from crcen.theory.balance import class_shifts
from crcen.theory.price import Price, softmax
from crcen.training.network import standardization
from grouped_settings import grouped

NETWORK = {"hidden": (4,), "l2": 1e-4, "batch_size": 32, "learning_rate": 0.05, "random_state": 0}


def frame(X):
    return pd.DataFrame(X, columns=["a", "b", "c"])


def fit(folder, weighting="balanced", **changes):
    defaults = {"epochs": 3, "buffer_rows": 100, "features": ["a", "b", "c"], **NETWORK}
    return fit_stream(folder, "y", weighting, **grouped(**{**defaults, **changes}))


def assert_equal_models(one, other):
    def arrays(model):
        return *model.coefs_, *model.intercepts_, model.loss_curve_, model.key_equation_.flows, model.shift_

    for ours, theirs in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("weight", [None, "w"])
def test_the_result_is_an_ordinary_classifier_balanced_on_all_rows(folder, table, n_members, weight):
    X, y, w = table
    model = fit(folder, Alpha(0.5), n_members=n_members, sample_weight=weight)
    w = np.ones(600) if weight is None else w
    assert (model.weighting_.alpha, model.weighting_.n_pos) == pytest.approx((0.5, w[y == 1].sum()))
    found = key_equation(y, model.weighted_proba(frame(X))[:, 1], model.weighting_, w)
    assert max(found.residual, model.key_equation_.residual) < 1e-12
    assert model.key_equation_.mean_pos == pytest.approx(found.mean_pos, rel=1e-12)
    mean, scale = standardization(X, w)
    np.testing.assert_allclose(model.input_encoding_["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(model.input_encoding_["scale"], scale, rtol=1e-10)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert (model.n_iter_, len(model.loss_curve_), model.status_) == (3, 3, "completed")
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(frame(X)), model.predict_proba(frame(X)))
    clone(model).fit(frame(X), y)  # its parameters are an ordinary classifier's


def test_model_depends_on_the_seed_and_not_on_the_folder(folder, tmp_path):
    here, other = fit(folder), fit(folder, random_state=1)
    assert_equal_models(fit(folder.rename(tmp_path / "elsewhere")), here)
    assert not np.array_equal(here.coefs_[0], other.coefs_[0])


def test_labels_of_text_follow_the_rarer_class(tmp_path, table, write):
    X, y, _ = table
    write(tmp_path / "t.parquet", X, np.where(y == 1, "fraud", "ok"))
    model = fit(tmp_path)
    assert (model.classes_.tolist(), model.pos_label_) == (["fraud", "ok"], "fraud")
    assert set(model.predict(frame(X))) == {"fraud", "ok"}
    assert fit(tmp_path, pos_label="ok").pos_label_ == "ok"
    assert fit(tmp_path, {"fraud": 5, "ok": 1}).weighting_.cost_ratio == pytest.approx(5)


def test_early_stopping_watches_rows_that_are_never_trained_on(folder, table):
    X, y, _ = table
    model = fit(folder, early_stopping=True, validation_fraction=0.3, epochs=40, learning_rate=0.3)
    assert model.status_ in ("completed", "early_stopped")
    assert key_equation(y, model.weighted_proba(frame(X))[:, 1], model.weighting_).residual < 1e-12
    mean, _ = standardization(X, np.ones(600))
    assert not np.allclose(model.input_encoding_["mean"], mean, rtol=1e-13)  # held-out rows do not standardise


def test_without_balance_the_equation_is_reported_unsolved(folder, table):
    X, y, _ = table
    model = fit(folder, balance=False)
    truth = key_equation(y, model.weighted_proba(frame(X))[:, 1], model.weighting_)
    assert model.key_equation_.residual > 1e-6
    for name in ("lhs", "rhs", "residual", "imbalance", "mean_pos", "mean_neg", "var_pos", "var_neg", "z"):
        assert getattr(model.key_equation_, name) == pytest.approx(getattr(truth, name), rel=1e-9), name


write_checkpoint = stream.write_checkpoint  # also while a test replaces it


@contextmanager
def at_checkpoint(number, then):
    count = itertools.count(1)  # of checkpoints that have been written

    def written(*args):
        write_checkpoint(*args)
        if next(count) == number:
            then()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "write_checkpoint", written)
        yield


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize(("stop_after", "early_stopping"), [(1, False), (4, False), (9, True)])
def test_fit_resumed_from_a_checkpoint_equals_an_uninterrupted_one(folder, tmp_path, stop_after, early_stopping):
    settings = {"early_stopping": early_stopping, "random_state": None if stop_after == 4 else 0}
    path = tmp_path / "run" / "fit.ckpt"
    with at_checkpoint(stop_after, interrupt), pytest.raises(KeyboardInterrupt):
        fit(folder, checkpoint=path, checkpoint_rows=130, **settings)
    resumed = fit(folder, checkpoint=path, checkpoint_rows=130, **settings)
    if settings["random_state"] == 0:
        assert_equal_models(resumed, fit(folder, **settings))
    assert_equal_models(fit(folder, checkpoint=path, checkpoint_rows=130, **settings), resumed)  # all was done
    assert [p.name for p in path.parent.iterdir()] == ["fit.ckpt"]


KILLED = """
import os, signal, sys
import test_scale_stream as tests
with tests.at_checkpoint(7, lambda: os.kill(os.getpid(), signal.SIGKILL)):
    tests.fit(sys.argv[1], checkpoint=sys.argv[2], checkpoint_rows=60)
"""


def test_kill_minus_nine_and_resume_bit_by_bit(folder, tmp_path):
    path, environment = tmp_path / "fit.ckpt", os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, folder, path], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    before = path.stat().st_mtime_ns
    resumed = fit(folder, checkpoint=path, checkpoint_rows=60)
    assert path.stat().st_mtime_ns > before
    assert_equal_models(resumed, fit(folder))


def test_a_checkpoint_of_another_fit_or_a_damaged_one_is_refused(folder, tmp_path, write):
    path = tmp_path / "fit.ckpt"
    fit(folder, checkpoint=path)
    for changes in ({"l2": 0.5}, {"epochs": 4}, {"weighting": 0.3}, {"buffer_rows": 50}, {"random_state": 8}, {}):
        if not changes:
            write(folder / "part-9.parquet", np.zeros((5, 3)), np.zeros(5, dtype=int), np.ones(5))
        with pytest.raises(InvalidParameter, match="checkpoint of another fit"):
            fit(folder, checkpoint=path, **changes)
    for content in (path.read_bytes()[:200], b"", b"PK", b"\x80\x04.", b"no checkpoint", b"PK\x05\x06" + b"\0" * 18):
        path.write_bytes(content)
        with pytest.raises(DataUnavailable, match=r"fit.ckpt is no checkpoint .*, or damaged: remove it"):
            fit(folder, checkpoint=path)


@pytest.mark.parametrize("damage", ["a broken page header", "values that a checksum guards"])
def test_a_damaged_page_is_found_before_training_and_skipped_by_choice(folder, damage):
    bad, place = folder / "part-2.parquet", 4
    if damage == "values that a checksum guards":
        pq.write_table(pq.read_table(bad), bad, write_page_checksum=True, use_dictionary=False, compression="none")
        place = 300
    content = bytearray(bad.read_bytes())
    content[place : place + 40] = b"\xff" * 40
    bad.write_bytes(bytes(content))
    with pytest.raises(DataUnavailable, match=r"part-2\.parquet cannot be read"):
        fit(folder)
    with pytest.warns(UserWarning, match=r"1 of 4 files left out: .*part-2\.parquet"):
        model = fit(folder, skip_bad_files=True)
    assert model.weighting_.n_pos + model.weighting_.n_neg == 450
    assert model.key_equation_.residual < 1e-12
    bad.unlink()
    assert_equal_models(model, fit(folder))


def test_file_that_disappears_during_training_is_named_and_nothing_is_lost(folder, tmp_path):
    path, away = tmp_path / "fit.ckpt", tmp_path / "away"
    lost = at_checkpoint(1, lambda: (folder / "part-1.parquet").rename(away))
    with lost, pytest.raises(DataUnavailable, match=r"part-1\.parquet does not exist"):
        fit(folder, checkpoint=path, checkpoint_rows=700)
    assert path.exists()
    away.rename(folder / "part-1.parquet")
    assert_equal_models(fit(folder, checkpoint=path, checkpoint_rows=700), fit(folder))


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"encoding": "wavelet"}, InvalidParameter, "encoding"),
        ({"encoding": "steps"}, InvalidParameter, "encoding must be 'standard' here, got 'steps'"),
        ({"probability": "isotonic"}, InvalidParameter, "probability must be 'shift'"),
        ({"solver": "lbfgs"}, InvalidParameter, "solver must be 'adam'"),
        ({"missing": "indicator"}, InvalidParameter, "missing must be 'error'.* fill NaN"),
        ({"column_scales": True}, InvalidParameter, "column_scales must be False"),
        ({"hidden": (0,)}, InvalidParameter, "hidden"),
        ({"epochs": 0}, InvalidParameter, "max_epochs"),
        ({"buffer_rows": 0}, InvalidParameter, "buffer_rows"),
        ({"checkpoint_rows": 2.5}, InvalidParameter, "checkpoint_rows"),
        ({"pos_label": 7}, InvalidParameter, "pos_label"),
        ({"learning_rate": 1e25}, TrainingFailed, "no finite network"),
        ({"early_stopping": True, "validation_fraction": 1e-12}, InvalidInput, "held out"),
    ],
)
def test_what_cannot_be_is_refused(folder, changes, error, sentence):
    with pytest.raises(error, match=sentence):
        fit(folder, **changes)


@pytest.mark.parametrize(
    ("n_rows", "value", "sentence"), [(4, np.nan, "NaN.*column b"), (4, 0.0, "two classes"), (0, 0.0, "no rows")]
)
def test_bad_rows_are_refused_before_training(tmp_path, write, n_rows, value, sentence):
    write(tmp_path / "t.parquet", np.array([[1.0, value, 0.0]] * n_rows).reshape(-1, 3), np.zeros(n_rows, dtype=int))
    with pytest.raises(InvalidInput, match=sentence):
        fit(tmp_path)


@pytest.mark.parametrize(("n_rows", "l2"), [(600, 1e-4), (1_000_000, 1e-4), (4_000_000, 2.5e-5), (10**9, 1e-7)])
def test_the_default_penalty_is_that_of_a_prior_which_rows_outweigh(n_rows, l2):
    model = streamed_model(None, 1, {})
    settle_penalty(model, {}, SimpleNamespace(train_totals=SimpleNamespace(n_rows=n_rows)))
    assert model.l2 == pytest.approx(l2)


def test_a_bar_follows_the_blocks_of_rows(folder, monkeypatch):
    assert [*map(rows_together, (1, 30, 390, 2048, 10**8))] == [65_536, 65_536, 21_454, 4094, 1]  # at most 32 MB
    shares = []
    monkeypatch.setattr(stream, "progress_bar", lambda _, *, visible: nullcontext(shares.append if visible else None))
    fit(folder, verbose=1, epochs=2)
    assert (shares, shares[-1]) == (sorted(shares), 1.0)
    assert len(shares) >= 10  # two epochs of six blocks


def test_memory_does_not_grow_with_the_rows(tmp_path):
    peaks = []  # live memory of Python and NumPy at its highest
    for n in (80_000, 160_000):
        crcen.make_rare_events(n, n_features=4, imbalance_ratio=20, path=tmp_path / str(n), rows_per_file=8000)
        tracemalloc.start()
        fit_stream(tmp_path / str(n), "y", epochs=1, hidden=(4,), buffer_rows=4096, random_state=0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.15 * peaks[0]


def progress(number):
    return stream.Progress("made", 3, epoch=number, arrays={"weight": np.full((50, 4), float(number))})


def test_damage_is_never_read_as_another_state(tmp_path):
    path, rng = tmp_path / "fit.ckpt", np.random.default_rng(0)
    for number in (1, 2):
        write_checkpoint(path, progress(number))
    whole = path.read_bytes()
    for is_damaged in [False] + [True] * 300:
        content = bytearray(whole)
        if is_damaged and rng.random() < 0.2:
            del content[int(rng.integers(len(content))) :]
        elif is_damaged:
            content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(content))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zipfile
            try:
                found = stream.read_checkpoint(path)
            except DataUnavailable:
                assert is_damaged
                continue
        assert vars(found) | {"arrays": None} == vars(progress(2)) | {"arrays": None}
        np.testing.assert_array_equal(found.arrays["weight"], progress(2).arrays["weight"])


def test_full_disk_keeps_the_last_checkpoint(full_disk):
    path, X = full_disk / "fit.ckpt", np.random.default_rng(0).normal(size=(20_000, 2))
    with pytest.raises(DataUnavailable, match=r"the logits, 16 bytes a row, cannot be kept in .*make room"):
        fit_stream([(X, X[:, 0] > 1.5)], epochs=1, hidden=(2,), checkpoint=path, random_state=0)
    assert stream.read_checkpoint(path).epoch == 1  # the training is not lost
    with pytest.raises(DataUnavailable, match=r"fit\.ckpt was not written: .*; the last whole checkpoint is kept"):
        write_checkpoint(path, stream.Progress("made", 3, epoch=2, arrays={"weight": X}))
    assert stream.read_checkpoint(path).epoch == 1
    assert os.listdir(full_disk) == ["fit.ckpt"]


def test_two_fits_do_not_share_a_checkpoint_or_storage_folder(folder, tmp_path, fit_command):
    path, storage = tmp_path / "fit.ckpt", tmp_path / "storage"
    storage.mkdir()
    arguments = (folder, "y", "--epochs", "1", "--storage", storage)
    own = f"in use by process {os.getpid()} "
    with exclusive_lock(path), exclusive_lock(storage):
        with pytest.raises(DataUnavailable, match=rf"{own}.*or give another checkpoint"):
            fit(folder, checkpoint=path)
        assert own in fit_command(*arguments, fails=True)
    assert not path.exists()
    assert fit(folder, checkpoint=path).status_ == "completed"
    assert sorted(os.listdir(tmp_path)) == ["data", "fit.ckpt", "storage"]
    for _ in range(2):  # the second one continues from the first
        fit_command(*arguments)
        assert (storage / "stream.checkpoint").exists()


def test_path_that_cannot_be_a_checkpoint_is_rejected_before_the_work(folder, tmp_path):
    (tmp_path / "file").write_text("")
    for place, words in ((tmp_path, "it is a folder"), (tmp_path / "file" / "fit.ckpt", "nothing can be kept in")):
        with pytest.raises(DataUnavailable, match=words):
            fit(folder, checkpoint=place)


# Several classes.
LABELS = np.array(["ash", "birch", "oak"])
WEIGHTS = {"ash": 1.0, "birch": 3.0, "oak": 12.0}


def class_rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.8, 0.15, 0.05])
    centres = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 2.0]])
    return centres[y] + rng.normal(size=(n, 2)), LABELS[y], rng.uniform(0.5, 2.0, n)


def batches(X, y, *weight, size=400):
    cuts = [slice(start, start + size) for start in range(0, len(X), size)]
    return [tuple(part[cut] for part in (X, y, *weight)) for cut in cuts]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_stream_comes_to_the_softmax_regression_of_rows_in_memory(n_classes):
    X, y, weight = class_rows()
    if n_classes == 2:
        y = np.where(y == "oak", "oak", "birch")
    weights = {name: WEIGHTS[name] for name in np.unique(y).tolist()}
    common = {"hidden": (), "l2": 1e-3, "training_weighting": "price", "random_state": 0}
    many = fit_stream(batches(X, y, weight), weighting=weights, epochs=60, **grouped(**common, batch_size=128))
    in_memory = {"balance": True, "probability": "shift", "schedule": Schedule(solver="lbfgs"), "max_epochs": 300}
    whole = CRCENClassifier(weights, **grouped(**in_memory, **common)).fit(X, y, sample_weight=weight)
    assert many.classes_.tolist() == sorted(weights)
    assert not hasattr(many, "feature_names_in_")
    # The last batches of Adam leave noise; the optimum is the same.
    assert np.abs(many.predict_proba(X) - whole.predict_proba(X)).max() < 0.04
    assert np.mean(many.predict(X) == whole.predict(X)) > 0.98
    assert many.key_equation_.residual <= 1e-11
    assert set(vars(many)) == set(vars(fit_stream(batches(X, y), weighting=weights, epochs=1)))
    np.testing.assert_allclose(whole.weighting_.counts, many.weighting_.counts)
    if n_classes == 2:
        return
    equation = key_equation(np.searchsorted(LABELS, y), many.weighted_proba(X), many.weighting_, weight)
    assert equation.residual <= 1e-11
    np.testing.assert_allclose(many.key_equation_.flows, equation.flows, rtol=1e-9)
    assert many.key_equation_.pairs.statistic == pytest.approx(equation.pairs.statistic, rel=1e-6)
    assert "stream" in many.key_equation_.rows


def test_hidden_networks_go_to_files_and_on_from_checkpoints(tmp_path):
    X, y, _ = class_rows(1200)
    how = {"weighting": WEIGHTS, "hidden": (6,), "n_members": 2, "random_state": 0}
    model = fit_stream(batches(X, y), epochs=2, **how)
    assert model.key_equation_.residual <= 1e-11
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(1200))
    again = crcen.load(crcen.save(model, tmp_path / "model.crcen"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    how |= {"epochs": 2, "checkpoint": tmp_path / "fit.npz", "checkpoint_rows": 300}
    with at_checkpoint(2, interrupt), pytest.raises(KeyboardInterrupt):
        fit_stream(batches(X, y), **how)
    resumed = fit_stream(batches(X, y), **how)
    np.testing.assert_array_equal(resumed.predict_proba(X), model.predict_proba(X))


def test_costs_and_early_stopping():
    X, y, _ = class_rows(1500)
    costs = crcen.CostMatrix([[0, 1, 2, 0.3], [3, 0, 3, 0.3], [12, 9, 0, 0.3]], labels=list(LABELS), actions=["look"])
    how = {"hidden": (4,), "random_state": 0, "schedule": Schedule(early_stopping=True)}
    model = fit_stream(batches(X, y), weighting=costs, epochs=3, **how)
    chosen = (model.predict_proba(X) @ costs.costs).argmin(axis=1)
    assert (model.predict(X) == np.array([*LABELS, "look"], dtype=object)[chosen]).all()
    assert model.weighting_.weights.tolist() == [1, 1, 1]
    # Two classes with several actions have an output each, too.
    two = crcen.CostMatrix([[0, 1, 0.4], [5, 0, 0.4]], actions=["look"])
    pair = fit_stream(batches(X, (y == "oak").astype(int)), weighting=two, epochs=1, hidden=(), random_state=0)
    assert pair.predict_proba(X).shape == (1500, 2)


def test_what_cannot_be_streamed_is_said():
    X, y, _ = class_rows(300)
    for given, words in (({"pos_label": "oak"}, "pos_label is for two classes"), ({"weighting": 0.9}, "price for two")):
        with pytest.raises(InvalidParameter, match=words):
            fit_stream(batches(X, y), epochs=1, **given)
    with pytest.raises(InvalidInput, match="at most 1000 of them"):
        fit_stream([(np.ones((1200, 1)), np.arange(1200))], epochs=1)


# The balance solve against the same on rows in memory, for one worker and several.
RNG = np.random.default_rng(3)
Y = RNG.random(3000) < 0.05
W = np.where(RNG.random(3000) < 0.1, 0.0, RNG.uniform(0.1, 5.0, 3000))


def weighting_of(y, w):
    return resolve(Lam(0.9), w[y].sum(), w[~y].sum())


def filled(folder, logits, y, w, is_weighted=True):
    file = LogitFile(folder, is_weighted=is_weighted)
    for rows in np.split(np.arange(len(y)), [1, 40, 1000]):
        file.add(logits[rows], y[rows], w[rows])
    return file


@pytest.mark.parametrize("spread", [0.01, 3.0, 60.0])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_solve_from_a_file_is_exact(tmp_path, monkeypatch, spread, is_weighted):
    monkeypatch.setattr("crcen.scale.stream._ROWS_AT_ONCE", 64)  # several chunks of each class
    logits = RNG.normal(-4.0, spread, 3000)
    w = W if is_weighted else np.ones(3000)
    weighting = weighting_of(Y, w)
    with filled(tmp_path, logits, Y, w, is_weighted) as file:
        shift = solve_file(file, weighting)
        equation = sums_of_file(file, shift, weighting).key_equation(weighting)
    assert not list(tmp_path.iterdir())
    row_weights = weighting.row_weights(Y, w)
    a = logits + shift
    errors = np.where(Y, 1 / (1 + np.exp(a)), -1 / (1 + np.exp(-a)))
    assert abs(row_weights @ errors) / row_weights.sum() < 1e-14
    assert equation.residual < 1e-14
    assert shift == pytest.approx(balance_shift(Y, logits, weighting, w), abs=1e-11)


def test_one_class_and_infinite_logits_are_rejected(tmp_path):
    weighting = weighting_of(Y, W)
    with (
        filled(tmp_path, np.zeros(5), np.zeros(5, dtype=bool), np.ones(5)) as file,
        pytest.raises(InvalidInput, match="no positive row"),
    ):
        solve_file(file, weighting)
    with LogitFile(tmp_path, is_weighted=False) as file, pytest.raises(InvalidInput, match="not finite"):
        file.add(np.array([np.inf]), np.array([True]), np.ones(1))


def solved_in_step(files, weighting):
    """The solves of both workers in threads, which exchange their arrays at a barrier."""
    barrier, box = threading.Barrier(len(files)), [None] * len(files)

    def work(rank):
        def gather(own):
            box[rank] = own
            barrier.wait()
            found = list(box)
            barrier.wait()
            return found

        return solve_file(files[rank], weighting, gather)

    with ThreadPoolExecutor(len(files)) as pool:
        return list(pool.map(work, range(len(files))))


def test_solve_of_several_workers_and_classes_is_that_of_all_rows(tmp_path):
    rng = np.random.default_rng(1)
    y = np.concatenate([np.arange(4), rng.choice(4, 996, p=[0.7, 0.2, 0.07, 0.03])])
    logits, weight = rng.normal(0, 3, (1000, 4)), rng.uniform(0.1, 3, 1000)
    weighting = Price(np.array([1.0, 2.0, 10.0, 40.0]), np.ones(4))
    files = [LogitFile(tmp_path, 4, is_weighted=True) for _ in range(2)]
    for file, own in zip(files, (slice(0, 300), slice(300, 1000)), strict=True):
        file.add(logits[own], y[own], weight[own])
    results = solved_in_step(files, weighting)
    for shifts in results:
        np.testing.assert_allclose(shifts, class_shifts(y, logits, weighting.weights, weight), atol=1e-10)
    np.testing.assert_array_equal(results[0], results[1])
    sums = [sums_of_file(file, results[0], weighting) for file in files]
    found = (sums[0] + sums[1]).key_equation(weighting)
    expected = key_equation(y, softmax(logits + results[0]), weighting, weight)
    np.testing.assert_allclose(found.flows, expected.flows, rtol=1e-10)
    assert found.pairs.statistic == pytest.approx(expected.pairs.statistic, rel=1e-8)
    for file in files:
        file.__exit__()
