"""Cost-sensitive boosting: AdaBoost where costs are equal, votes that minimise their bound, and the control."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import crcen
from crcen.paper.boosting import AdaCClassifier, CalibratedBoostingClassifier, next_row_weights, vote_weight

VARIANTS = ("adac1", "adac2", "adac3")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    y = rng.permutation(np.arange(300) < 60).astype(int)
    X = rng.normal(size=(300, 3))
    X[:, 0] += 1.5 * y
    return X, y


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("depth", [1, 2])
def test_equal_costs_are_adaboost(rows, variant, depth):
    X, y = rows
    ours = AdaCClassifier(variant, crcen.CostRatio(1), n_estimators=12, max_depth=depth, random_state=0).fit(X, y)
    theirs = AdaBoostClassifier(DecisionTreeClassifier(max_depth=depth), n_estimators=12, random_state=0).fit(X, y)
    np.testing.assert_allclose(2 * ours.votes_, theirs.estimator_weights_, rtol=1e-9)
    # scikit-learn's score runs from −2 to 2 whatever the votes add up to.
    score = theirs.decision_function(X) / 2 * ours.votes_.sum()
    np.testing.assert_allclose(ours.decision_function(X), score, atol=1e-9)


def bound(variant, weights, costs, sign, vote):
    """What Sun and others minimise: the sum of the next weights, e^(−αCu) replaced by its chord where C is inside."""
    outside = costs if variant != "adac1" else 1.0
    inside = costs if variant != "adac2" else 1.0
    chord = (1 + inside * sign) / 2 * np.exp(-vote) + (1 - inside * sign) / 2 * np.exp(vote)
    return (outside * weights * chord).sum()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(3))
def test_the_vote_is_the_least_point_of_its_bound(variant, seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(40))
    costs = np.where(rng.random(40) < 0.3, 1.0, 0.2)
    is_right = rng.random(40) < 0.7
    sign = np.where(is_right, 1.0, -1.0)
    vote = vote_weight(variant, weights, costs, is_right)
    best = minimize_scalar(
        lambda a: bound(variant, weights, costs, sign, a), bounds=(-5, 5), method="bounded", options={"xatol": 1e-10}
    )
    assert vote == pytest.approx(best.x, abs=1e-6)
    # It bounds the sum of the unnormalised next weights.
    outside = costs if variant != "adac1" else 1.0
    inside = costs if variant != "adac2" else 1.0
    following = outside * weights * np.exp(-vote * inside * sign)
    assert following.sum() <= bound(variant, weights, costs, sign, vote) + 1e-12
    np.testing.assert_allclose(
        next_row_weights(variant, weights, costs, is_right, vote), following / following.sum(), rtol=1e-12
    )


def test_after_adac2_right_and_wrong_rows_weigh_the_same():
    """As after AdaBoost, its next weights leave the last learner no better than chance."""
    rng = np.random.default_rng(0)
    weights, costs, is_right = rng.dirichlet(np.ones(30)), np.where(rng.random(30) < 0.5, 1.0, 0.1), np.arange(30) > 8
    vote = vote_weight("adac2", weights, costs, is_right)
    assert next_row_weights("adac2", weights, costs, is_right, vote)[is_right].sum() == pytest.approx(0.5)


@pytest.mark.parametrize("variant", ["adac2", "adac3"])  # adac1 may stop before it heeds its costs
def test_a_dearer_miss_means_more_alarms(rows, variant):
    X, y = rows
    cheap, dear = (
        AdaCClassifier(variant, crcen.CostRatio(c), n_estimators=10, max_depth=2, random_state=0).fit(X, y)
        for c in (0.2, 5.0)
    )
    assert cheap.predict(X).sum() < dear.predict(X).sum()


@pytest.mark.parametrize("variant", VARIANTS)
def test_stumps_that_never_alarm_are_no_dead_end(variant):
    """At the balanced price such a first stump has α = 0 under equal weights of rows."""
    rng = np.random.default_rng(1)
    y = (np.arange(400) < 20).astype(int)
    X = rng.normal(size=(400, 1)) + y[:, None]
    assert DecisionTreeClassifier(max_depth=1).fit(X, y).predict(X).sum() == 0
    model = AdaCClassifier(variant, max_depth=1, n_estimators=3, random_state=0).fit(X, y)
    assert len(model.votes_) >= 1
    assert (model.votes_ > 0).all()


def test_a_tree_without_an_error_ends_boosting():
    y = np.arange(40) < 10
    model = AdaCClassifier("adac2", random_state=0).fit(y[:, None].astype(float), y)
    assert len(model.estimators_) == 1
    assert (model.predict(y[:, None].astype(float)) == y).all()


def test_rows_that_tell_nothing_are_refused():
    with pytest.raises(crcen.InvalidInput, match="its first tree is worth nothing at a cost ratio of 1"):
        AdaCClassifier("adac1", crcen.CostRatio(1)).fit(np.zeros((20, 1)), np.arange(20) % 2)


def test_the_control_decides_at_its_price_on_natural_probabilities(rows):
    X, y = rows
    given = {"n_estimators": 10, "max_depth": 1, "random_state": 0}
    plain, dear = (CalibratedBoostingClassifier(crcen.CostRatio(c), **given).fit(X, y) for c in (1.0, 4.0))
    np.testing.assert_allclose(plain.predict_proba(X), dear.predict_proba(X), rtol=1e-9)
    p = dear.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(dear.predict(X) == 1, p > 1 / 5)
    np.testing.assert_array_equal(plain.predict(X) == 1, p > 1 / 2)
    assert p.mean() == pytest.approx(y.mean(), abs=0.03)  # as many positives as there are
    np.testing.assert_allclose(p, dear.calibrated_.predict_proba(X)[:, 1], rtol=1e-9)


def test_the_control_with_the_first_class_rarer(rows):
    X, y = rows
    given = {"n_estimators": 5, "max_depth": 1, "random_state": 0}
    one, other = CalibratedBoostingClassifier(**given).fit(X, y), CalibratedBoostingClassifier(**given).fit(X, 1 - y)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X)[:, ::-1], rtol=1e-9)
    np.testing.assert_array_equal(one.predict(X), 1 - other.predict(X))


@parametrize_with_checks([AdaCClassifier(n_estimators=3), CalibratedBoostingClassifier(n_estimators=3, max_depth=1)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
