"""Methods outside our stacks are tuned as ours are: on the same folds, as many settings, by the same score."""

from dataclasses import replace

import numpy as np
import pytest

import crcen
from crcen.paper.methods import METHODS, Tuning
from crcen.paper.reproduction import protocol as module
from crcen.paper.reproduction import tuning as tuned
from crcen.paper.reproduction.protocol import _search, splits
from crcen.paper.reproduction.tuning import candidates


def test_every_system_with_a_setting_is_tuned():
    at_defaults = [name for name, method in METHODS.items() if method.training is None and method.tuning is None]
    assert at_defaults == [
        "rusboost",
        "easyensemble",
        "balanced_rf",
        "adaboost",
        "adaboost_threshold",
        "balanced_bagging",
        "balance_cascade",
        "gsvm_ru",
        "eusboost",
    ]
    assert not [name for name, method in METHODS.items() if method.training is not None and method.tuning is not None]


def test_costs_are_as_many_as_networks_and_end_at_the_imbalance_ratio(protocol):
    y = np.repeat([0, 1], [160, 10])
    grid = candidates(Tuning("cost"), y, protocol)
    np.testing.assert_allclose([entry["cost_ratio"] for entry in grid], [2, 4, 8, 16])
    assert len(candidates(Tuning(), y, protocol)) == 4


@pytest.mark.parametrize("name", ["sosr", "s2s", "msfe", "lmle", "adac2"])
def test_the_best_setting_wins_on_the_protocols_folds(toy, protocol, name, monkeypatch):
    """Folds are those of our networks, and the score of a setting is that of a fit by hand."""
    data = toy()
    rows = []
    first = tuned._fitted
    monkeypatch.setattr(tuned, "_fitted", lambda models, X, y: rows.append(X) or first(models, X, y))
    found = _search(name, data.X, data.y, protocol | {"scoring": "g_mean"})
    folds = list(module.StratifiedKFold(2, shuffle=True, random_state=0).split(data.X, data.y))
    for seen, (train, _) in zip(rows, folds, strict=True):
        np.testing.assert_array_equal(seen, data.X[train])
    assert len(found["grid"]) == 4
    best = max(found["grid"], key=lambda entry: entry["score"])
    assert found["score"] == best["score"]
    train, held_out = folds[1]
    method = METHODS[name]
    params = tuned.params_of(method.tuning, found["grid"][0], protocol, 0) | dict(method.tuning.lighter)
    alone = method.make(**params).fit(data.X[train], data.y[train])
    by_hand = crcen.g_mean(data.y[held_out], alone.predict(data.X[held_out]))
    assert found["grid"][0]["folds"][1] == pytest.approx(by_hand, abs=0.02)


class Answers:
    """A fitted method with stated scores."""

    def __init__(self, scores):
        self.scores = np.array(scores)

    def decision_function(self, X):
        return self.scores

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-self.scores))
        return np.column_stack([1 - p, p])


def test_scores_by_hand():
    y, y_train = np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0])  # trained at 3 : 1, so λ = ¾
    scores = np.array([1.0, -0.5, 0.2, -2.0])
    weights = np.array([0.75, 0.75, 0.25, 0.25])

    def loss(logits):
        own = np.where(y == 1, logits, -logits)
        return (weights * np.log1p(np.exp(-own))).sum() / weights.sum()

    natural = tuned._score(Answers(scores), Tuning(is_natural=True), y, y, y_train, "weighted_log_loss")
    assert natural == pytest.approx(-loss(scores + np.log(3)))
    # Without log-odds the scale is free, and where scores lie about 0 is not.
    free = tuned._score(Answers(scores), Tuning(), y, y, y_train, "weighted_log_loss")
    assert free == pytest.approx(-min(loss(scores * s) for s in np.logspace(-3, 2, 20001)), rel=1e-5)
    again = tuned._score(Answers(1e6 * scores), Tuning(), y, y, y_train, "weighted_log_loss")
    assert again == pytest.approx(free, rel=1e-6)
    assert tuned._score(Answers(scores - 5), Tuning(), y, y, y_train, "weighted_log_loss") < free


def test_a_setting_that_cannot_be_fitted_loses(toy, protocol, monkeypatch):
    data = toy()
    adac = METHODS["adac1"].make

    def make(**params):
        if params["weighting"].value > 2:
            raise crcen.InvalidInput("no")
        return adac(**params)

    class Late:
        def __init__(self, **params):
            self.params = params

        def fit(self, X, y):
            return make(**self.params).fit(X, y)

    monkeypatch.setitem(METHODS, "adac1", replace(METHODS["adac1"], make=Late))
    found = _search("adac1", data.X, data.y, protocol)
    assert found["cost_ratio"] <= 2


def test_a_budget_bounds_the_networks_of_a_setting(toy, protocol, monkeypatch):
    data = toy()
    counts = []
    first = tuned._fitted
    monkeypatch.setattr(tuned, "_fitted", lambda models, X, y: counts.append(len(models)) or first(models, X, y))
    for name in ("focal", "crl"):
        _search(name, data.X, data.y, protocol | {"search_networks": 3, "epochs": 1})
    assert counts == [12, 12, 4, 4]


def test_the_row_of_a_fit_says_what_was_chosen(toy, protocol, selection):
    from crcen.paper.reproduction.table3 import _evaluate

    data = toy()
    for name, keys in (("adac3", {"cost_ratio"}), ("focal", {"hidden", "l2"})):
        row = _evaluate(data, splits(data, protocol)[0], name, protocol, selection, "local")
        assert keys <= set(row)
        assert row["cv_score"] == next(r["score"] for r in selection.rows if r["method"] == name)
        assert 0 <= row["g_mean"] <= 1
        assert row["search_seconds"] > row["seconds"] > 0  # a search fits many, and is told apart from the fit
        again = _evaluate(data, splits(data, protocol)[1], name, protocol, selection, "local")
        assert "search_seconds" not in again
