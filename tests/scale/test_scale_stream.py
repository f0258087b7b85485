"""fit_stream: an ordinary classifier, balanced on all rows, the same after any interruption."""

import itertools
import os
import pickle
import signal
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import crcen
import crcen.scale.stream as module
from crcen import Alpha, Budget, CRCENClassifier, Schedule, fit_stream, key_equation, make_rare_events
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter, TrainingFailed
from crcen.scale.plan import rows_together
from crcen.scale.stream import settle_penalty, streamed_model
from crcen.training.network import standardization
from grouped_settings import grouped

NETWORK = {"hidden": (4,), "l2": 1e-4, "batch_size": 32, "learning_rate": 0.05, "random_state": 0}


def frame(X):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(X, columns=["a", "b", "c"])


def fit(folder, weighting="balanced", **changes):
    return fit_stream(
        folder,
        "y",
        weighting,
        **grouped(**{"epochs": 3, "buffer_rows": 100, "features": ["a", "b", "c"], **NETWORK, **changes}),
    )


def assert_equal_models(one, other):
    for name in ("coefs_", "intercepts_"):
        for ours, theirs in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(one.loss_curve_, other.loss_curve_)
    assert one.shift_ == other.shift_
    np.testing.assert_array_equal(one.key_equation_.flows, other.key_equation_.flows)


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("weight", [None, "w"])
def test_the_result_is_an_ordinary_classifier_balanced_on_all_rows(folder, table, n_members, weight):
    X, y, w = table
    model = fit(folder, Alpha(0.5), n_members=n_members, sample_weight=weight)
    w = np.ones(600) if weight is None else w
    assert isinstance(model, CRCENClassifier)
    assert model.weighting_.alpha == pytest.approx(0.5)
    assert model.weighting_.n_pos == pytest.approx(w[y == 1].sum())
    q = model.weighted_proba(frame(X))[:, 1]
    found = key_equation(y, q, model.weighting_, w)
    assert found.residual < 1e-12
    assert model.key_equation_.residual < 1e-12
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


@pytest.mark.parametrize("encoding", ["standard", "steps"])
def test_model_depends_on_the_seed_and_not_on_the_folder(folder, tmp_path, monkeypatch, encoding):
    monkeypatch.setattr("crcen.scale.stream.SAMPLE_ROWS", 200)
    here, other = fit(folder, encoding=encoding), fit(folder, encoding=encoding, random_state=1)
    assert_equal_models(fit(folder.rename(tmp_path / "elsewhere"), encoding=encoding), here)
    assert not np.array_equal(here.coefs_[0], other.coefs_[0])


@pytest.mark.parametrize("encoding", ["quantile", "tree", "steps"])
def test_other_encodings_are_fitted_on_a_sample(folder, table, encoding):
    """Which here is all rows, so that the encoding is that of a fit in memory."""
    X, y, _ = table
    streamed = fit(folder, Budget(4), encoding=encoding)
    how = {"hidden": (4,), "max_epochs": 1, "encoding": encoding, "schedule": Schedule(solver="adam")}
    plain = CRCENClassifier(Budget(4), **how).fit(frame(X), y)
    assert streamed.input_encoding_.keys() == plain.input_encoding_.keys()
    for name, values in plain.input_encoding_.items():
        np.testing.assert_allclose(streamed.input_encoding_[name], values, rtol=1e-9, err_msg=name)
    assert key_equation(y, streamed.weighted_proba(frame(X))[:, 1], streamed.weighting_).residual < 1e-12


def test_labels_of_text_follow_the_rarer_class(tmp_path, table, write):
    X, y, _ = table
    write(tmp_path / "t.parquet", X, np.where(y == 1, "fraud", "ok"))
    model = fit(tmp_path)
    assert model.classes_.tolist() == ["fraud", "ok"]
    assert model.pos_label_ == "fraud"
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
    assert model.key_equation_.residual == pytest.approx(truth.residual, rel=1e-9)
    assert model.key_equation_.residual > 1e-6
    assert model.key_equation_.z == pytest.approx(truth.z, rel=1e-9)


@contextmanager
def after_each_checkpoint(then):
    """Call a function with the number of checkpoints so far after each of them."""
    write_checkpoint, count = module.write_checkpoint, itertools.count(1)

    def written(*args):
        write_checkpoint(*args)
        then(next(count))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "write_checkpoint", written)
        yield


def interrupt_after(count):
    def interrupt(number):
        if number == count:
            raise KeyboardInterrupt

    return interrupt


@pytest.mark.parametrize(("stop_after", "early_stopping"), [(1, False), (4, False), (9, True)])
def test_fit_resumed_from_a_checkpoint_equals_an_uninterrupted_one(folder, tmp_path, stop_after, early_stopping):
    settings = {"early_stopping": early_stopping, "random_state": None if stop_after == 4 else 0}
    path = tmp_path / "run" / "fit.ckpt"

    with after_each_checkpoint(interrupt_after(stop_after)), pytest.raises(KeyboardInterrupt):
        fit(folder, checkpoint=path, checkpoint_rows=130, **settings)
    resumed = fit(folder, checkpoint=path, checkpoint_rows=130, **settings)
    if settings["random_state"] == 0:
        assert_equal_models(resumed, fit(folder, **settings))
    assert_equal_models(fit(folder, checkpoint=path, checkpoint_rows=130, **settings), resumed)  # all was done
    assert [p.name for p in path.parent.iterdir()] == ["fit.ckpt"]


KILLED = """
import sys
import crcen
import crcen.scale.stream as module
from crcen import Schedule, fit_stream
write = module.write_checkpoint
def slow(*args):
    write(*args)
    print("saved", flush=True)
    import time; time.sleep(0.05)
module.write_checkpoint = slow
schedule = Schedule(batch_size=32, learning_rate=0.05)
fit_stream(sys.argv[1], "y", epochs=3, hidden=(4,), schedule=schedule, random_state=0,
           features=["a", "b", "c"], buffer_rows=100, checkpoint=sys.argv[2], checkpoint_rows=60)
"""


def test_kill_minus_nine_and_resume_bit_by_bit(folder, tmp_path):
    path = tmp_path / "fit.ckpt"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), str(path)], stdout=subprocess.PIPE, env=environment, text=True
    )
    for _ in range(7):
        assert child.stdout.readline() == "saved\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert child.returncode == -signal.SIGKILL
    before = path.stat().st_mtime_ns
    resumed = fit(folder, checkpoint=path, checkpoint_rows=60)
    assert path.stat().st_mtime_ns > before
    assert_equal_models(resumed, fit(folder))


def test_a_checkpoint_of_another_fit_or_a_damaged_one_is_refused(folder, tmp_path, write):
    path = tmp_path / "fit.ckpt"
    fit(folder, checkpoint=path)
    for changes in ({"l2": 0.5}, {"epochs": 4}, {"weighting": 0.3}, {"buffer_rows": 50}, {"random_state": 8}):
        with pytest.raises(InvalidParameter, match="checkpoint of another fit"):
            fit(folder, checkpoint=path, **changes)
    write(folder / "part-9.parquet", np.zeros((5, 3)), np.zeros(5, dtype=int), np.ones(5))
    with pytest.raises(InvalidParameter, match="checkpoint of another fit"):
        fit(folder, checkpoint=path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataUnavailable, match="damaged"):
        fit(folder, checkpoint=path)


@pytest.mark.parametrize("damage", ["a broken page header", "values that a checksum guards"])
def test_a_damaged_page_is_found_before_training_and_skipped_by_choice(folder, damage):
    bad = folder / "part-2.parquet"
    if damage == "values that a checksum guards":
        pq.write_table(pq.read_table(bad), bad, write_page_checksum=True, use_dictionary=False, compression="none")
    content = bytearray(bad.read_bytes())
    place = 4 if damage == "a broken page header" else 300
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

    def lose_a_file(number):
        if number == 1:
            (folder / "part-1.parquet").rename(away)

    with after_each_checkpoint(lose_a_file), pytest.raises(DataUnavailable, match=r"part-1\.parquet is not there"):
        fit(folder, checkpoint=path, checkpoint_rows=700)
    assert path.exists()
    away.rename(folder / "part-1.parquet")
    assert_equal_models(fit(folder, checkpoint=path, checkpoint_rows=700), fit(folder))


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"encoding": "wavelet"}, InvalidParameter, "encoding"),
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
    ("X", "y", "sentence"),
    [
        (np.array([[1.0, np.nan, 0.0]] * 4), [0, 1, 0, 1], "NaN.*column b"),
        (np.zeros((4, 3)), [0, 0, 0, 0], "two classes"),
        (np.zeros((0, 3)), [], "no rows"),
    ],
)
def test_bad_rows_are_refused_before_training(tmp_path, write, X, y, sentence):
    write(tmp_path / "t.parquet", X, np.array(y, dtype=int))
    with pytest.raises(InvalidInput, match=sentence):
        fit(tmp_path)


@pytest.mark.parametrize(("n_rows", "l2"), [(600, 1e-4), (1_000_000, 1e-4), (4_000_000, 2.5e-5), (10**9, 1e-7)])
def test_the_default_penalty_is_that_of_a_prior_which_rows_outweigh(n_rows, l2):
    statistics = SimpleNamespace(train_totals=SimpleNamespace(n_rows=n_rows))
    for told, expected in (({}, l2), ({"l2": 0.5}, 0.5)):
        model = streamed_model(None, 1, told)
        settle_penalty(model, told, statistics)
        assert model.l2 == pytest.approx(expected)


def test_a_bar_follows_the_blocks_of_rows(folder, monkeypatch):
    shares = []

    @contextmanager
    def bar(description, *, visible):
        assert (description, visible) == ("fit_stream", True)
        yield shares.append

    monkeypatch.setattr("crcen.scale.stream.progress_bar", bar)
    fit(folder, verbose=1, epochs=2)
    assert shares == sorted(shares)
    assert len(shares) >= 10  # two epochs of six blocks
    assert shares[-1] == 1.0


@pytest.mark.parametrize("n_inputs", [1, 30, 390, 2048, 10**8])
def test_wide_rows_are_buffered_in_smaller_numbers(n_inputs):
    found = rows_together(n_inputs)
    assert 1 <= found <= 65_536
    assert found == 1 or found * (n_inputs + 1) * 4 <= 32 * 2**20
    assert found == 65_536 or (found + 1) * (n_inputs + 1) * 4 > 32 * 2**20


def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Live memory of Python and NumPy at its highest: twice the rows, hardly more of it."""
    peaks = []
    for n in (80_000, 160_000):
        make_rare_events(n, n_features=4, imbalance_ratio=20, path=tmp_path / str(n), rows_per_file=8000)
        tracemalloc.start()
        fit_stream(tmp_path / str(n), "y", epochs=1, hidden=(4,), buffer_rows=4096, random_state=0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.15 * peaks[0]


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
    path = tmp_path / "fit.npz"
    with after_each_checkpoint(interrupt_after(2)), pytest.raises(KeyboardInterrupt):
        fit_stream(batches(X, y), epochs=2, checkpoint=path, checkpoint_rows=300, **how)
    resumed = fit_stream(batches(X, y), epochs=2, checkpoint=path, checkpoint_rows=300, **how)
    np.testing.assert_array_equal(resumed.predict_proba(X), model.predict_proba(X))


def test_costs_encodings_and_early_stopping():
    X, y, _ = class_rows(1500)
    costs = crcen.CostMatrix(
        [[0, 1, 2, 0.3], [3, 0, 3, 0.3], [12, 9, 0, 0.3]], labels=LABELS.tolist(), actions=["look"]
    )
    how = {"hidden": (4,), "encoding": "steps", "random_state": 0, "schedule": Schedule(early_stopping=True)}
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
