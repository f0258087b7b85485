"""The average of the best few settings of a search, against the settings fitted one by one."""

import numpy as np
import pytest

import crcen
from crcen import Budget
from crcen.models.search.grid import Outcome, Setting
from crcen.models.search.run import best_few
from crcen.theory.decision import sigmoid
from papers_training import CRCENClassifierCV

GRID = {"hidden": [(4,), (8,)], "l2": [1e-3, 1e-1], "encoding": "standard", "n_members": 2, "max_epochs": 4, "cv": 3}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = (X[:, 0] * X[:, 1] + rng.normal(size=400) > 1.6).astype(int)
    return X, y


@pytest.fixture(scope="module")
def three(rows):
    return CRCENClassifierCV(Budget(6), n_settings=3, random_state=0, **GRID).fit(*rows)


def test_the_logit_is_the_mean_of_the_settings_fitted_alone(rows, three):
    X, y = rows
    alone = []
    for kept in three.best_settings_:
        setting = {"hidden": [kept["hidden"]], "l2": [kept["l2"]]}
        one = CRCENClassifierCV(Budget(6), random_state=0, **(GRID | setting | {"encoding": kept["encoding"]}))
        one.set_params(calibration__balance=False).fit(X, y)
        assert one.best_epochs_ == kept["epochs"]
        alone.append(one.decision_function(X))
    assert len(alone) == 3
    raw = three.decision_function(X) - three.probability_map_[1]
    assert raw == pytest.approx(np.mean(alone, axis=0), abs=1e-5)


def test_settings_are_the_best_of_the_table_in_their_order(three):
    table = three.cv_results_
    order = np.argsort(-table["mean_test_score"], kind="stable")[:3]
    assert [table["params"][i] for i in order] == [
        {name: kept[name] for name in ("weighting", "hidden", "l2", "encoding")} for kept in three.best_settings_
    ]
    assert three.best_settings_[0]["score"] == three.best_score_
    assert three.best_settings_[0]["hidden"] == three.best_params_["hidden"]


def test_the_key_equation_is_exact_where_it_was_solved(rows, three):
    _, y = rows
    oof = crcen.key_equation(y, sigmoid(three.oof_decision_function_), Budget(6))
    assert oof.residual < 1e-12
    assert three.oof_key_equation_.residual > 1e-6  # before the solve
    balanced = CRCENClassifierCV(Budget(6), n_settings=2, balance=True, random_state=0, **GRID).fit(*rows)
    assert balanced.key_equation_.residual < 1e-12


def test_it_saves_reports_and_answers_as_before(rows, three, tmp_path):
    X, _ = rows
    crcen.save(three, tmp_path / "model.crcen")
    loaded = crcen.load(tmp_path / "model.crcen")
    assert np.array_equal(loaded.predict_proba(X), three.predict_proba(X))
    assert loaded.best_settings_ == three.best_settings_
    assert np.array_equal(three.predict(X) == 1, three.predict_proba(X)[:, 1] > three.weighting_.threshold)
    with pytest.raises(crcen.InvalidInput, match="n_settings=1"):
        crcen.stationarity(three, *rows)
    with pytest.raises(AttributeError, match="3 settings"):
        _ = three.coefs_


def test_one_is_the_best_alone_and_more_than_there_are_is_all(rows):
    one = CRCENClassifierCV(Budget(6), n_settings=1, random_state=0, **GRID).fit(*rows)
    assert len(one.best_settings_) == len(one.ensemble_.members) == 1
    every = CRCENClassifierCV(Budget(6), n_settings=9, random_state=0, **(GRID | {"l2": 1e-2})).fit(*rows)
    assert len(every.best_settings_) == 2

    simplest = CRCENClassifierCV(Budget(6), n_settings=3, one_standard_error=True, random_state=0, **GRID).fit(*rows)
    assert len(simplest.best_settings_) == 1
    with pytest.raises(crcen.InvalidParameter, match="n_settings"):
        CRCENClassifierCV(search=crcen.Search(n_settings=0)).fit(*rows)


def test_only_settings_of_the_chosen_weighting_that_ran_to_their_end_are_kept():
    def outcome(index, score, *, is_dropped=False):
        return Outcome(Setting(index, None, None), 3, np.array([score]), np.zeros(2), is_dropped)

    outcomes = [outcome(0, 5.0), outcome(1, 4.0), outcome(0, 3.0, is_dropped=True), outcome(0, np.nan), outcome(0, 1.0)]
    assert best_few(outcomes, 0, 4) == [outcomes[0], outcomes[4]]
    assert best_few(outcomes, 1, 4) == [outcomes[1]]
