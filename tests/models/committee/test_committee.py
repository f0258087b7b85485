"""The committee: its answers from its parts, the price on new rows, gaps, orientation, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from rows_of_a_committee import draw
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import crcen
from crcen import Budget, CommitteeClassifier, InvalidInput, InvalidParameter


def fitted(rows, **how):
    return CommitteeClassifier(Budget(8), random_state=0, cv=3, **how).fit(*rows)


def test_its_logit_is_the_weighted_sum_of_its_members(rows):
    committee = fitted(rows)
    new, _ = draw(50, seed=9)
    total = np.zeros(50)
    ensemble = committee.ensemble_
    for member, weight in zip(ensemble.members, ensemble.member_weights, strict=True):
        total += weight * member.logits(new)[:, 0]
    total += committee.shift_ + committee.probability_map_[1]
    assert committee.decision_function(new) == pytest.approx(total, abs=1e-12)
    natural = np.log(committee.predict_proba(new)[:, 1] / committee.predict_proba(new)[:, 0])
    assert natural == pytest.approx(total - np.log(8), abs=1e-9)
    assert ((committee.predict_proba(new)[:, 1] > 1 / 9) == (committee.predict(new) == 1)).all()
    assert [line.name for line in committee.leaderboard_] == ["networks", "trees", "catboost", "forest", "committee"]
    assert committee.member_weights_.shape == (4,)


def test_the_price_is_kept_on_rows_that_no_member_saw(rows):
    """On out-of-fold rows by the solve, on new rows within the noise of their number."""
    _, y = rows
    committee = fitted(rows)
    oof = 1 / (1 + np.exp(-committee.oof_decision_function_))
    assert crcen.key_equation(y, oof, committee.weighting_).residual < 1e-12
    new, labels = draw(20_000, seed=5)
    equation = crcen.key_equation(labels, committee.weighted_proba(new)[:, 1], committee.weighting_)
    assert abs(np.log(equation.lhs / equation.rhs)) < 0.35
    assert (committee.key_equation_.rows, committee.oof_key_equation_.rows) == ("out-of-fold rows",) * 2
    assert committee.key_equation_.residual < 1e-12 < committee.oof_key_equation_.residual
    assert np.isnan(committee.oof_key_equation_.z)  # errors of folds cancel, so there is no test


def test_it_is_at_least_as_good_as_its_parts_on_new_rows(rows):
    new, labels = draw(20_000, seed=6)
    losses = {
        name: log_loss(labels, fitted(rows, members=members).predict_proba(new)[:, 1])
        for name, members in (("both", ("networks", "trees")), ("networks", "networks"), ("trees", "trees"))
    }
    assert losses["both"] < max(losses["networks"], losses["trees"])
    assert losses["both"] < 1.03 * min(losses["networks"], losses["trees"])


def test_gaps_are_learned_from_and_labels_may_be_text():
    X, y = draw(600)
    X[::3, 0] = np.nan
    labels = np.where(y == 1, "bad", "ok")
    committee = fitted((X, labels))
    assert committee.classes_.tolist() == ["bad", "ok"]
    assert committee.pos_label_ == "bad"
    decisions = committee.predict(X)
    assert set(decisions) <= {"bad", "ok"}
    assert ((committee.decision_function(X) > 0) == (decisions == "ok")).all()
    with pytest.raises(InvalidInput, match="infinity"):
        committee.predict(np.full((1, 5), np.inf))


def test_the_seed_decides_and_threads_do_not(rows):
    one, same = (fitted(rows, members=("trees", "forest"), n_jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(one.oof_decision_function_, same.oof_decision_function_)
    assert np.array_equal(one.decision_function(rows[0]), same.decision_function(rows[0]))


def test_another_classifier_may_sit_in_it(rows):
    committee = fitted(rows, members=("trees", LogisticRegression()))
    assert [line.name for line in committee.leaderboard_] == ["trees", "LogisticRegression", "committee"]
    assert committee.predict(rows[0]).shape == (900,)
    with pytest.raises(InvalidParameter, match="LogisticRegression cannot be saved"):
        committee.ensemble_.members[-1].arrays()


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"members": ()}, "must not be empty"),
        (
            {"members": ("woods",)},
            r"must be of \['networks', 'trees', 'random_trees', 'catboost', 'forest'\]",
        ),
        ({"effort": "huge"}, "effort of CommitteeClassifier must be"),
        ({"members": ("trees", "trees")}, "must differ"),
        ({"members": (3,)}, "predict_proba"),
        ({"time_limit": 0}, "time_limit"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_what_means_nothing_is_refused(rows, how, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        fitted(rows, **how)


def test_a_failed_fit_leaves_what_was_there(rows):
    committee = fitted(rows, members=("trees",))
    before = committee.decision_function(rows[0][:5])
    with pytest.raises(InvalidInput):
        committee.fit(np.full((10, 5), np.inf), np.arange(10) % 2)
    assert np.array_equal(committee.decision_function(rows[0][:5]), before)


def test_three_classes_are_decided_at_their_weights_and_balanced_out_of_fold():
    X, y = draw(600, n_classes=3)
    labels = np.array(["low", "middle", "high"])[y]
    weights = {"low": 1.0, "middle": 3.0, "high": 10.0}
    members = ("trees", LogisticRegression(max_iter=2000))
    committee = CommitteeClassifier(weights, members=members, cv=2, random_state=0).fit(X, labels)
    p = committee.predict_proba(X)
    assert committee.classes_.tolist() == ["high", "low", "middle"]
    w = np.array([10.0, 1.0, 3.0])
    np.testing.assert_array_equal(committee.predict(X), committee.classes_[(w * p).argmax(axis=1)])
    assert committee.key_equation_.residual <= 1e-12
    assert "out-of-fold" in committee.key_equation_.rows
    assert committee.oof_decision_function_.shape == (600, 3)
    assert log_loss(labels, committee.oof_proba_) < 0.9


def test_costs_of_actions_are_decided_by_expected_cost(tmp_path):
    X, y = draw(400, n_classes=3)
    costs = crcen.CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["review"])
    model = CommitteeClassifier(costs, members=("trees", "forest"), cv=2, random_state=0).fit(X, y)
    assert set(map(str, model.predict(X))) <= {"0", "1", "2", "review"}
    again = crcen.load(crcen.save(model, tmp_path / "model.crcen"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_quick_fits_one_setting_of_one_network(rows):
    committee = fitted(rows, effort="quick")
    assert [line.name for line in committee.leaderboard_] == ["networks", "committee"]
    assert len(committee.leaderboard_[0].settings) == 1


def test_names_of_columns_are_kept_and_checked(rows):
    X, y = rows
    frame = pd.DataFrame(X, columns=list("abcde"))
    committee = CommitteeClassifier(members=("trees",), cv=3, random_state=0).fit(frame, y)
    assert committee.feature_names_in_.tolist() == list("abcde")
    by_numbers = clone(committee).fit(X, y)
    np.testing.assert_array_equal(committee.predict_proba(frame), by_numbers.predict_proba(X))
    with pytest.raises(ValueError, match="feature names should match"):
        committee.predict(frame[list("edcba")])
