"""The protocol: which rows settings are chosen on, by what score, and that held-out rows have no influence."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit

import crcen
from crcen.datasets.benchmark import Dataset
from crcen.paper import protocol as module
from crcen.paper.methods import METHODS, Tuning
from crcen.paper.protocol import _model_score, _score, _search, _training_rows, candidates, params_of, select, splits
from crcen.paper.table3 import _evaluate
from crcen.training import engine
from crcen.training.jobs import TrainingJob


@pytest.fixture
def data(toy):
    return toy()


@pytest.fixture
def folds(data):
    return list(module.StratifiedKFold(2, shuffle=True, random_state=0).split(data.X, data.y))


@pytest.fixture
def searched(monkeypatch):
    """The rows and methods that were searched on, without the work."""
    calls = []

    def spy(name, X, y, settings, engine):
        calls.append((name, X, y))
        return {"hidden": 4, "l2": 0.1, "score": float(len(calls)), "grid": []}

    monkeypatch.setattr(module, "_search", spy)
    return calls


def test_splits_are_stratified_repeated_and_reproducible(data, protocol):
    found = splits(data, protocol | {"splits": 4})
    assert [split.number for split in found] == [0, 1, 2, 3]
    for split in found:
        assert len(split.test) == round(0.25 * data.n_samples)
        np.testing.assert_array_equal(np.union1d(split.train, split.test), np.arange(data.n_samples))
        assert len(np.intersect1d(split.train, split.test)) == 0
        assert data.y[split.test].mean() == pytest.approx(data.y.mean(), abs=1 / len(split.test))
    assert not np.array_equal(found[0].test, found[1].test)
    np.testing.assert_array_equal(splits(data, protocol | {"splits": 4})[3].train, found[3].train)


@pytest.mark.parametrize(("where", "used", "times"), [("first_split", 0, 1), ("per_split", 1, 2)])
def test_setting_is_chosen_on_the_right_split_and_kept(data, protocol, selection, searched, where, used, times):
    settings = protocol | {"selection": where}
    found = splits(data, settings)
    select(selection, data, found[1], "crcen", settings)
    ((name, X, y),) = searched
    assert name == "crcen"
    np.testing.assert_array_equal(X, data.X[found[used].train])
    np.testing.assert_array_equal(y, data.y[found[used].train])
    assert selection.rows[0]["split"] == used
    chosen = [select(selection, data, split, "crcen", settings) for split in (*found, *found)]
    assert len(searched) == times
    assert chosen[:2] == chosen[2:]
    again = module.RunFolder(selection.folder, protocol, selection.key)  # another process
    assert [select(again, data, split, "crcen", settings) for split in found] == chosen[:2]
    assert len(searched) == times


def test_methods_and_sets_are_chosen_separately_but_an_average_follows_its_network(toy, protocol, selection, searched):
    for name in ("a", "b"):
        data = toy(name)
        for method in ("mlp", "crcen", "crcen_ensemble"):
            select(selection, data, splits(data, protocol)[0], method, protocol)
    assert [(row["dataset"], row["method"]) for row in selection.rows] == [
        (d, m) for d in "ab" for m in ("mlp", "crcen")
    ]


@pytest.mark.parametrize("method", ["crcen", "smote"])
@pytest.mark.parametrize("where", ["first_split", "per_split"])
def test_test_rows_have_no_influence_on_the_choice(data, protocol, tmp_path, method, where):
    settings = protocol | {"selection": where}
    split = splits(data, settings)[0]
    garbage = data.X.copy()
    garbage[split.test] = 1e6 * np.random.default_rng(1).normal(size=garbage[split.test].shape)
    rows = []
    for name, X in (("clean", data.X), ("garbage", garbage)):
        other = Dataset(data.name, X, data.y, data.feature_names, data.source)
        run = module.RunFolder(tmp_path / name, settings, key=("dataset", "split", "method"))
        rows.append(select(run, other, split, method, settings))
    assert rows[0] == rows[1]


@pytest.mark.parametrize("name", ["crcen", "smote"])
def test_scaling_is_fitted_on_the_rows_of_a_fold(monkeypatch, data, folds, protocol, name):
    seen = []

    def spy(X, y, jobs):
        results = engine.train(X, y, jobs)
        seen.extend((X, job, result.network) for job, result in zip(jobs, results, strict=True))
        return results

    monkeypatch.setattr(module, "find_engine", lambda _: spy)
    _search(name, data.X, data.y, protocol)
    assert len(seen) == 4 * len(folds)
    for position, (X, job, network) in enumerate(seen):
        own = data.X[folds[position % len(folds)][0]]
        rows = X[job.rows]  # with SMOTE those of the fold and those made from them
        np.testing.assert_allclose(rows[: len(own)], own, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(network.encoding.mean, rows.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(network.encoding.scale, rows.std(axis=0), rtol=1e-9)


@pytest.mark.parametrize("name", ["smote", "adasyn"])
def test_resampled_rows_depend_on_their_fold_alone(data, folds, protocol, name):
    training, fold_rows = METHODS[name].training, [train for train, _ in folds]
    pools, rows, labels = _training_rows(training, name, data.X, data.y, fold_rows, protocol)
    np.testing.assert_array_equal(np.concatenate(pools), np.arange(len(rows)))
    for own, fold in zip(pools, fold_rows, strict=True):
        made = rows[own][len(fold) :]
        assert len(made) > 0
        assert (labels[own][len(fold) :] == 1).all()
        positives = data.X[fold][data.y[fold] == 1]
        assert (made >= positives.min(axis=0) - 1e-9).all()
        assert (made <= positives.max(axis=0) + 1e-9).all()
    wild, held_out = data.X.copy(), folds[0][1]
    wild[held_out[data.y[held_out] == 1][0]] = 1e6
    wild[held_out[data.y[held_out] == 0][0]] = -1e6
    (first, second), wild_rows, wild_labels = _training_rows(training, name, wild, data.y, fold_rows, protocol)
    np.testing.assert_array_equal(rows[pools[0]], wild_rows[first])
    np.testing.assert_array_equal(labels[pools[0]], wild_labels[first])
    assert np.abs(wild_rows[second]).max() > 1e5  # the fold that owns the row does see it


@pytest.mark.parametrize("own", [{}, {"batch_size": 32, "learning_rate": 0.003, "standardize": False}])
def test_best_mean_score_wins_and_a_grid_point_scores_as_a_network_trained_alone(data, folds, protocol, own):
    found = _search("crcen", data.X, data.y, protocol | own | {"scoring": "g_mean"})
    grid = [(h, l2) for h in protocol["hidden"] for l2 in protocol["l2"]]
    assert [(entry["hidden"], entry["l2"]) for entry in found["grid"]] == grid
    assert all(entry["score"] == pytest.approx(np.mean(entry["folds"])) for entry in found["grid"])
    best = max(found["grid"], key=lambda entry: entry["score"])
    assert (found["hidden"], found["l2"], found["score"]) == (best["hidden"], best["l2"], best["score"])
    for i, (train, held_out) in enumerate(folds):
        lam = float((data.y[train] == 0).mean())
        job = TrainingJob((1 - lam, lam), rows=train, hidden=(4,), l2=0.1, max_epochs=2, **own)
        network = engine.train(data.X, data.y, [job])[0].network
        alone = crcen.g_mean(data.y[held_out], network.logits(data.X[held_out]) > 0)
        assert found["grid"][3]["folds"][i] == pytest.approx(alone, abs=0.02)
    params = params_of(Tuning(), found, protocol | own, 0)
    if own:
        assert (params["schedule"].batch_size, params["schedule"].learning_rate) == (32, 0.003)
        assert not params["encoding"].standardize
    else:
        assert set(params) == {"hidden", "l2", "max_epochs", "random_state"}


def test_scores_by_hand():
    y, price = np.array([1, 1, 0, 0, 0, 0]), crcen.resolve("balanced", 1, 3)  # λ = ¾
    logits = np.array([2.0, -1.0, 0.5, -3.0, -3.0, -3.0])
    tp, fp, fn, tn = 1, 1, 1, 3
    assert _score(logits, y, price, "f1") == pytest.approx(2 * tp / (2 * tp + fp + fn))
    assert _score(logits, y, price, "g_mean") == pytest.approx(np.sqrt(tp / (tp + fn) * tn / (tn + fp)))
    q = 1 / (1 + np.exp(-logits))
    loss = -(0.75 * np.log(q[:2]).sum() + 0.25 * np.log(1 - q[2:]).sum()) / (2 * 0.75 + 4 * 0.25)
    assert _score(logits, y, price, "weighted_log_loss") == pytest.approx(-loss)


def test_networks_are_scored_at_the_price_of_their_method(data, protocol, monkeypatch):
    """Every network answers −1.2: p = .231, between 1 − λ of the balanced price and ½."""

    result = SimpleNamespace(network=SimpleNamespace(logits=lambda X: np.full(len(X), -1.2)))
    monkeypatch.setattr(module, "find_engine", lambda _: lambda X, y, jobs: [result for _ in jobs])
    assert 0.15 < data.y.mean() < 0.22
    for name, alarms in (("mlp", False), ("mlp_threshold", True), ("smote", False), ("crcen", False)):
        found = _search(name, data.X, data.y, protocol | {"scoring": "f1"})
        assert (found["score"] > 0) == alarms, name


def answering(scores):
    """A fitted method with given scores."""
    proba = np.column_stack([expit(-scores), expit(scores)])
    return SimpleNamespace(decision_function=lambda X: scores, predict_proba=lambda X: proba)


def test_scores_of_other_methods_by_hand():
    y, price = np.array([1, 1, 0, 0]), crcen.resolve("balanced", 1, 3)
    scores, weights = np.array([1.0, -0.5, 0.2, -2.0]), np.array([0.75, 0.75, 0.25, 0.25])

    def loss(logits):
        return (weights * np.log1p(np.exp(-np.where(y == 1, logits, -logits)))).sum() / weights.sum()

    def found(given, **tuning):
        return _model_score(answering(given), Tuning(**tuning), y, y, price, "weighted_log_loss")

    assert found(scores, is_natural=True) == pytest.approx(-loss(scores + np.log(3)))
    # Without log-odds the scale is free, and the zero is not.
    free = found(scores)
    assert free == pytest.approx(-min(loss(scores * s) for s in np.logspace(-3, 2, 20001)), rel=1e-5)
    assert found(1e6 * scores) == pytest.approx(free, rel=1e-6)
    assert found(scores - 5) < free
    assert found(scores * np.nan) == found(scores * np.nan, is_natural=True) == -np.inf


def record_fits(monkeypatch, name):
    """The rows of every fit of a method, from now on."""
    rows, method = [], METHODS[name]

    def make(**params):
        model = method.make(**params)
        fit = model.fit
        model.fit = lambda X, y: rows.append(X) or fit(X, y)
        return model

    monkeypatch.setitem(METHODS, name, dataclasses.replace(method, make=make))
    return rows


@pytest.mark.parametrize("name", ["sosr", "s2s", "msfe", "lmle", "adac2"])
def test_other_methods_are_searched_on_the_same_folds(data, folds, protocol, name, monkeypatch):
    rows = record_fits(monkeypatch, name)
    found = _search(name, data.X, data.y, protocol | {"scoring": "g_mean"})
    for i, seen in enumerate(rows):
        np.testing.assert_array_equal(seen, data.X[folds[i * len(folds) // len(rows)][0]])
    assert len(found["grid"]) == 4
    assert found["score"] == max(entry["score"] for entry in found["grid"])
    train, held_out = folds[1]
    tuning = METHODS[name].tuning
    params = params_of(tuning, found["grid"][0], protocol, 0) | dict(tuning.lighter)
    alone = METHODS[name].make(**params).fit(data.X[train], data.y[train])
    by_hand = crcen.g_mean(data.y[held_out], alone.predict(data.X[held_out]))
    assert found["grid"][0]["folds"][1] == pytest.approx(by_hand)


def test_cost_ratios_end_at_the_imbalance_ratio_and_those_that_cannot_be_fitted_lose(data, protocol, monkeypatch):
    y = np.repeat([0, 1], [160, 10])
    grid = candidates(Tuning("cost"), y, protocol)
    np.testing.assert_allclose([entry["cost_ratio"] for entry in grid], [2, 4, 8, 16])
    assert len(candidates(Tuning(), y, protocol)) == 4
    adac = METHODS["adac1"].make

    class Late:
        def __init__(self, **params):
            self.params = params

        def fit(self, X, y):
            if self.params["weighting"].value > 2:
                raise crcen.InvalidInput("no")
            return adac(**self.params).fit(X, y)

    monkeypatch.setitem(METHODS, "adac1", dataclasses.replace(METHODS["adac1"], make=Late))
    assert _search("adac1", data.X, data.y, protocol)["cost_ratio"] <= 2


def test_costly_methods_are_judged_by_fewer_networks_and_methods_without_a_search_rejected(data, protocol, monkeypatch):
    for name, fits in {"focal": 24, "crl": 8}.items():
        rows = record_fits(monkeypatch, name)
        _search(name, data.X, data.y, protocol | {"search_networks": 3, "epochs": 1})
        assert len(rows) == fits
    with pytest.raises(crcen.InvalidParameter, match="rusboost has nothing to search over"):
        _search("rusboost", data.X, data.y, protocol)


def test_row_of_a_fit_says_what_was_chosen(data, protocol, selection):
    for name, keys in (("adac3", {"cost_ratio"}), ("focal", {"hidden", "l2"})):
        row, again = (_evaluate(data, split, name, protocol, selection, "local") for split in splits(data, protocol))
        assert keys <= set(row)
        assert row["cv_score"] == next(r["score"] for r in selection.rows if r["method"] == name)
        assert 0 <= row["g_mean"] <= 1
        assert row["search_seconds"] > row["seconds"] > 0
        assert "search_seconds" not in again
