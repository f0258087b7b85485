"""How hyperparameters are chosen: on which rows, by what, and once."""

import numpy as np
import pytest

import crcen
from crcen.datasets.dataset import Dataset
from crcen.paper.reproduction import protocol as module
from crcen.paper.reproduction.protocol import _score, _search, select, splits
from crcen.training import engine
from crcen.training.jobs import TrainingJob
from crcen.training.row_sets import RowSets


@pytest.fixture
def searched(monkeypatch):
    """The rows and methods that were searched on, without the work."""
    calls = []

    def spy(name, X, y, settings, engine):
        calls.append((name, X, y))
        return {"hidden": 4, "l2": 0.1, "score": float(len(calls)), "grid": []}

    monkeypatch.setattr(module, "_search", spy)
    return calls


def test_splits_are_stratified_repeated_and_reproducible(toy, protocol):
    data = toy()
    found = splits(data, protocol | {"splits": 4})
    assert [split.number for split in found] == [0, 1, 2, 3]
    for split in found:
        assert len(split.test) == round(0.25 * data.n_samples)
        np.testing.assert_array_equal(np.union1d(split.train, split.test), np.arange(data.n_samples))
        assert len(np.intersect1d(split.train, split.test)) == 0
        assert data.y[split.test].mean() == pytest.approx(data.y.mean(), abs=1 / len(split.test))
    assert not np.array_equal(found[0].test, found[1].test)
    for one, other in zip(found, splits(data, protocol | {"splits": 4}), strict=True):
        np.testing.assert_array_equal(one.train, other.train)


@pytest.mark.parametrize(("where", "used"), [("first_split", 0), ("per_split", 1)])
def test_the_right_splits_training_rows_are_searched(toy, protocol, selection, searched, where, used):
    data, settings = toy(), protocol | {"selection": where}
    found = splits(data, settings)
    select(selection, data, found[1], "crcen", settings)
    ((name, X, y),) = searched
    assert name == "crcen"
    np.testing.assert_array_equal(X, data.X[found[used].train])
    np.testing.assert_array_equal(y, data.y[found[used].train])
    assert selection.rows[0]["split"] == used


@pytest.mark.parametrize(("where", "times"), [("first_split", 1), ("per_split", 2)])
def test_what_was_chosen_is_kept_and_used_again(toy, protocol, selection, searched, where, times, tmp_path):
    data, settings = toy(), protocol | {"selection": where}
    found = splits(data, settings)
    chosen = [select(selection, data, split, "crcen", settings) for split in (*found, *found)]
    assert len(searched) == times
    assert chosen[:2] == chosen[2:]
    again = module.RunFolder(selection.folder, protocol, selection.key)  # another process
    assert [select(again, data, split, "crcen", settings) for split in found] == chosen[:2]
    assert len(searched) == times


def test_methods_and_sets_are_chosen_for_apart_but_an_average_follows_its_network(toy, protocol, selection, searched):
    for name in ("a", "b"):
        data = toy(name)
        for method in ("mlp", "crcen", "crcen_ensemble"):
            select(selection, data, splits(data, protocol)[0], method, protocol)
    assert [(row["dataset"], row["method"]) for row in selection.rows] == [
        (d, m) for d in "ab" for m in ("mlp", "crcen")
    ]


@pytest.mark.parametrize("method", ["crcen", "smote"])
@pytest.mark.parametrize("where", ["first_split", "per_split"])
def test_test_rows_take_no_part(toy, protocol, tmp_path, method, where):
    data, settings = toy(), protocol | {"selection": where}
    split = splits(data, settings)[0]
    garbage = data.X.copy()
    garbage[split.test] = 1e6 * np.random.default_rng(1).normal(size=garbage[split.test].shape)
    rows = []
    for name, X in (("clean", data.X), ("garbage", garbage)):
        other = Dataset(data.name, X, data.y, data.feature_names, data.source)
        run = module.RunFolder(tmp_path / name, settings, key=("dataset", "split", "method"))
        rows.append(select(run, other, split, method, settings))
    assert rows[0] == rows[1]


@pytest.mark.parametrize("scoring", ["f1", "g_mean", "weighted_log_loss"])
def test_the_best_mean_score_over_folds_wins(toy, protocol, scoring):
    data = toy()
    found = _search("crcen", data.X, data.y, protocol | {"scoring": scoring})
    assert [(entry["hidden"], entry["l2"]) for entry in found["grid"]] == [
        (h, l2) for h in protocol["hidden"] for l2 in protocol["l2"]
    ]
    assert all(len(entry["folds"]) == protocol["folds"] for entry in found["grid"])
    for entry in found["grid"]:
        assert entry["score"] == pytest.approx(np.mean(entry["folds"]))
    best = max(found["grid"], key=lambda entry: entry["score"])
    assert (found["hidden"], found["l2"], found["score"]) == (best["hidden"], best["l2"], best["score"])


def test_a_grid_point_scores_as_networks_trained_alone(toy, protocol):
    data = toy()
    folds = list(module.StratifiedKFold(2, shuffle=True, random_state=0).split(data.X, data.y))
    found = _search("crcen", data.X, data.y, protocol | {"scoring": "g_mean"})
    for i, (train, held_out) in enumerate(folds):
        job = TrainingJob(
            lam=float((data.y[train] == 0).mean()),
            rows=RowSets(pool=train),
            hidden=(4,),
            l2=0.1,
            max_epochs=protocol["epochs"],
        )
        network = engine.train(data.X, data.y, [job])[0].network
        alone = crcen.g_mean(data.y[held_out], network.logits(data.X[held_out]) > 0)
        assert found["grid"][3]["folds"][i] == pytest.approx(alone, abs=0.02)


def test_scores_by_hand():
    engine.training = crcen.METHODS["crcen"].training
    y, y_train = np.array([1, 1, 0, 0, 0, 0]), np.array([1, 0, 0, 0])  # trained at 3 : 1, so λ = ¾
    logits = np.array([2.0, -1.0, 0.5, -3.0, -3.0, -3.0])
    tp, fp, fn, tn = 1, 1, 1, 3
    assert _score(engine.training, logits, y, y_train, "f1") == pytest.approx(2 * tp / (2 * tp + fp + fn))
    assert _score(engine.training, logits, y, y_train, "g_mean") == pytest.approx(
        np.sqrt(tp / (tp + fn) * tn / (tn + fp))
    )
    q = 1 / (1 + np.exp(-logits))
    loss = -(0.75 * np.log(q[:2]).sum() + 0.25 * np.log(1 - q[2:]).sum()) / (2 * 0.75 + 4 * 0.25)
    assert _score(engine.training, logits, y, y_train, "weighted_log_loss") == pytest.approx(-loss)


def test_a_moved_threshold_is_scored_at_its_price():
    y, y_train = np.array([1, 0]), np.array([1, 0, 0, 0])
    logits = np.array([-1.0, -1.2])  # p above and below ¼: log(1/3) = −1.0986
    assert _score(crcen.METHODS["mlp"].training, logits, y, y_train, "g_mean") == 0.0
    assert _score(crcen.METHODS["mlp_threshold"].training, logits, y, y_train, "g_mean") == 1.0
    # Rebalanced rows carry the price already.
    assert _score(crcen.METHODS["smote"].training, logits, y, y_train, "g_mean") == 0.0


def test_a_method_at_its_defaults_has_nothing_to_search(toy, protocol):
    data = toy()
    with pytest.raises(crcen.InvalidParameter, match="rusboost has nothing to search over"):
        _search("rusboost", data.X, data.y, protocol)
