"""Decisions of any probability model at a price, and the scorer of their costs."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import LinearSVC
from three_classes import LABELS, NEW, TRUTH, WEIGHTS, X, Y
from three_classes import P as CHANCES

import crcen
from crcen import Alpha, Budget, CostMatrix, CostRatio, InvalidInput, InvalidParameter, Lam, cost_scorer, decide
from crcen._support.text import listed_counts
from crcen.datasets.simulated import sim2_posterior
from crcen.theory.price import Price

P = np.linspace(0, 1, 1001)
BOTH = np.column_stack([1 - P, P])


@pytest.mark.parametrize("b", [0.2, 1.0, 5.0, 37.0])
def test_a_budget_is_a_cost_ratio_is_a_weight_is_a_matrix(b):
    by_hand = np.greater(P, 1 / (1 + b))
    for price in (Budget(b), CostRatio(b), CostMatrix.binary(fn=b)):
        np.testing.assert_array_equal(decide(P, price), by_hand)
        np.testing.assert_array_equal(decide(BOTH, price), by_hand)
    off_the_threshold = np.abs(P - 1 / (1 + b)) > 1e-9  # λ = b / (1 + b) is rounded
    for price in (Lam(b / (1 + b)), b / (1 + b), crcen.resolve(Budget(b), 10, 90)):
        np.testing.assert_array_equal(decide(P, price)[off_the_threshold], by_hand[off_the_threshold])


@pytest.mark.parametrize(
    "price",
    [Budget(5), Price.binary(0.8, 10, 90), crcen.Capacity(200), crcen.RecallAtLeast(0.7), CostMatrix.binary(fn=5)],
    ids=str,
)
def test_one_column_and_two_columns_of_two_classes_decide_alike(price):
    np.testing.assert_array_equal(decide(P, price), decide(BOTH, price))
    np.testing.assert_array_equal(decide(P, crcen.Review(2, 30)), decide(BOTH, crcen.Review(2, 30)))
    assert str(crcen.decision_summary(P, price, P > 0.7)) == str(crcen.decision_summary(BOTH, price, P > 0.7))
    first = Price.binary(0.8, 10, 90, positive=0)  # the order of the columns is that of the classes
    np.testing.assert_array_equal(decide(P, first), decide(BOTH[:, ::-1], first))
    actions = crcen.CostMatrix([[0, 1, 0.3], [20, 0, 2]], ["ok", "fraud"], ["review"])
    np.testing.assert_array_equal(decide(BOTH, Price([1, 1], [90, 10], actions, positive=1)), decide(P, actions))


@pytest.mark.parametrize(
    ("p", "price", "counts", "sentence"),
    [
        ([0.1, 1.2], Budget(5), {}, r"p must lie in \[0, 1\], got values from 0.1 to 1.2: are these logits"),
        ([[0.9, 0.1, 0.0]], Budget(5), {}, "is for two classes, and p has 3 columns: give a CostMatrix"),
        ([[0.9, 0.3], [0.2, 0.8]], Budget(5), {}, "must sum to 1"),
        ([], Budget(5), {}, "at least one row"),
        (0.5, Budget(5), {}, "at least one row"),
        *((P, price, {}, "must be") for price in (-1.0, 1.5, "cheap", {"a": 1, "b": 5}, Budget, [[1], [2, 3]])),
        (P, crcen.Review, {}, "got the class Review: did you mean Review"),
        (P, Budget(5), {"times": ["2024-01-01"] * len(P)}, "must go with a capacity for a day or a week"),
        (P, Alpha(1), {}, "only with class counts"),
        *((P, price, {"n_pos": 10}, "come in pairs") for price in (Alpha(1), Budget(5))),
    ],
)
def test_what_is_no_posterior_or_no_price_is_refused(p, price, counts, sentence):
    with pytest.raises((InvalidInput, InvalidParameter), match=sentence):
        decide(p, price, **counts)
    np.testing.assert_array_equal(decide(P, "balanced", n_pos=10, n_neg=90), P > 0.1)
    np.testing.assert_array_equal(decide(P, Alpha(0.5), n_pos=10, n_neg=90), P > 1 / 5.5)


@pytest.fixture(scope="module")
def many():
    """Rows of Sim2 with labels drawn anew from their true posterior."""
    p = sim2_posterior(crcen.make_sim2(20000, 200000, seed=5).X, imbalance_ratio=10)
    return p, np.random.default_rng(5).uniform(size=len(p)) < p


@pytest.mark.parametrize("b", [2.0, 8.0, 25.0])
def test_decisions_at_a_budget_cost_least_of_all_thresholds(many, b):
    p, y = many
    costs = CostMatrix.binary(fn=b)
    own = costs.realised(y, decide(p, Budget(b)))
    ratios = []
    for threshold in np.concatenate([np.geomspace(0.003, 0.5, 60), np.linspace(0.5, 1, 15)]):
        excess = costs.realised(y, p > threshold) - own
        error = excess.std() * np.sqrt(len(y))
        ratios.append(excess.sum() / error if error > 0 else 0.0)
    assert min(ratios) > -3.5  # never cheaper beyond noise ...
    assert np.mean(np.array(ratios) > 3.5) > 0.5  # ... and a wrong threshold is seen to be dearer


def test_summary_tells_the_last_catch_from_the_average_one(many):
    p, y = many
    summary = crcen.decision_summary(p, Budget(8), y)
    alarms = p > 1 / 9
    assert (summary.n_alarms, summary.expected_catches) == pytest.approx((alarms.sum(), p[alarms].sum()))
    assert summary.average_price == pytest.approx((1 - p[alarms]).sum() / p[alarms].sum())
    assert summary.marginal_price == pytest.approx((8, 8))
    assert summary.realised_price == pytest.approx((alarms & ~y).sum() / (alarms & y).sum())
    assert summary.realised_price == pytest.approx(summary.average_price, rel=0.05)
    assert summary.expected_cost < summary.constant_costs.min()
    assert summary.constant_costs == pytest.approx([8 * p.sum(), (1 - p).sum()])
    text = str(summary)
    assert "price of the last catch     8 " in text
    assert f"price of the average catch  {summary.average_price:.4g} " in text


def test_summary_without_labels_or_alarms_and_of_costs_by_row():
    summary = crcen.decision_summary([0.01, 0.02], Budget(2))
    assert np.isnan([summary.average_price, summary.realised_price]).all()
    assert "realised" not in str(summary)
    summary = crcen.decision_summary([0.9, 0.9, 0.9], CostMatrix.binary(tp=1.0, fp=1.0, fn=np.array([0.5, 5.0, 9.0])))
    assert (summary.n_alarms, *summary.marginal_price) == pytest.approx((2, 4, 8))  # the first row decides nothing
    assert "4 to 8, by row" in str(summary)
    nothing = crcen.decision_summary([0.9], CostMatrix.binary(tp=np.array([3.0]), fn=2.0))
    assert np.isnan(nothing.marginal_price).all()


def test_class_weights_decide_as_their_costs_and_a_summary_counts_classes_and_actions():
    p, rng = CHANCES, np.random.default_rng(1)
    for price in (Price(WEIGHTS, np.ones(3)), WEIGHTS, WEIGHTS.tolist(), dict(enumerate(WEIGHTS))):
        np.testing.assert_array_equal(decide(p, price), (p * WEIGHTS).argmax(axis=1))
    np.testing.assert_array_equal(decide(p[:, 1], [1, 5]), decide(p[:, 1], Budget(5)))
    y = np.array([rng.choice(3, p=one) for one in p])
    costs = CostMatrix(np.column_stack([WEIGHTS[:, None] * (1 - np.eye(3)), np.full(3, 0.8)]), LABELS, ["review"])
    summary = crcen.decision_summary(p, costs, LABELS[y])
    expected = p @ costs.costs
    chosen = expected.argmin(axis=1)
    assert summary.expected_cost == pytest.approx(expected.min(axis=1).sum())
    assert summary.constant_costs.min() == pytest.approx(expected.sum(axis=0).min())
    assert summary.realised_cost == pytest.approx(costs.costs[y, chosen].sum())
    np.testing.assert_array_equal(summary.n_decided, np.bincount(chosen, minlength=4))
    np.testing.assert_allclose(summary.expected.sum(axis=1), p.sum(axis=0))
    assert summary.counts.table.shape == (3, 4)
    assert "review" in str(summary)


def test_the_score_is_minus_the_cost_of_a_row(rare_rows):
    X, y = rare_rows(400)
    model = LogisticRegression().fit(X, y)
    alarms = model.predict_proba(X)[:, 1] > 1 / 11
    cost = (10 * (y == 1) * ~alarms + (y == 0) * alarms).mean()
    assert cost_scorer(Budget(10))(model, X, y) == pytest.approx(-cost)
    assert cost_scorer(CostMatrix.binary(fp=3, fn=30))(model, X, y) == pytest.approx(-3 * cost)
    weights = np.random.default_rng(0).integers(0, 3, 400)
    copies = np.repeat(np.arange(400), weights)
    weighted = cost_scorer("balanced")(model, X, y, sample_weight=weights)
    assert weighted == pytest.approx(cost_scorer("balanced")(model, X[copies], y[copies]))


def test_searches_take_it_and_a_network_is_scored_at_its_price_not_its_own(rare_rows):
    X, y = rare_rows(300)
    named = np.where(y == 1, "fraud", "ok")  # the positive class comes first
    scorer = pickle.loads(pickle.dumps(cost_scorer(Budget(8))))
    of_named = cost_scorer(Budget(8), pos_label="fraud")
    scores = cross_val_score(LogisticRegression(), X, y, scoring=scorer, cv=3)
    np.testing.assert_allclose(cross_val_score(LogisticRegression(), X, named, scoring=of_named, cv=3), scores)
    with pytest.raises(InvalidParameter, match=r"give pos_label, one of \['fraud', 'ok'\]"):
        scorer(LogisticRegression().fit(X, named), X, named)
    # Class 1 stays the positive one, also where it is not the rarer one of the scored rows.
    most = np.flatnonzero(y == 1)
    fitted = LogisticRegression().fit(X, y)
    p = fitted.predict_proba(X[most])[:, 1]
    assert scorer(fitted, X[most], y[most]) == pytest.approx(-8.0 * (p <= 1 / 9).mean())
    search = GridSearchCV(LogisticRegression(), {"C": [1e-4, 1.0]}, scoring=scorer, cv=3).fit(X, y)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    model = crcen.CRCENClassifier(Budget(2), hidden=(), random_state=0).fit(X, y)
    np.testing.assert_array_equal(decide(model.predict_proba(X)[:, 1], model.weighting_), model.predict(X) == 1)
    alarms = model.predict_proba(X)[:, 1] > 1 / 21
    assert (alarms != model.predict(X)).any()
    assert cost_scorer(Budget(20))(model, X, y) == pytest.approx(-np.where(y == 1, 20 * ~alarms, alarms).mean())


def test_what_is_no_price_is_refused_at_once(rare_rows):
    X, y = rare_rows(100)
    for price, sentence in (
        (crcen.Capacity(5), "not a price by itself"),
        (CostMatrix.binary(fn=np.ones(3)), "one price"),
        (Budget(3), "LinearSVC has none"),
    ):
        with pytest.raises(InvalidParameter, match=sentence):
            cost_scorer(price)(LinearSVC().fit(X, y), X, y)


def test_a_scorer_takes_prices_of_more_than_two_classes():
    model, w = LogisticRegression(C=1e6).fit(X, LABELS[Y]), dict(zip(LABELS, WEIGHTS, strict=True))
    own = np.array([w[label] for label in model.classes_])
    decided = model.classes_[(model.predict_proba(NEW) * own).argmax(axis=1)]
    cost = np.where(decided == LABELS[TRUTH], 0.0, WEIGHTS[TRUTH]).mean()
    for price in (w, CostMatrix(WEIGHTS[:, None] * (1 - np.eye(3)), LABELS)):
        assert cost_scorer(price)(model, NEW, LABELS[TRUTH]) == pytest.approx(-cost)


def test_large_counts_are_printed_in_full():
    summary = crcen.decision_summary(np.full(1_200_000, 0.5), Budget(2), np.ones(1_200_000))
    assert "1,200,000 alarms on 1,200,000 rows" in str(summary)
    assert "realised   1,200,000 catches, 0 false alarms, 0 misses" in str(summary)
    assert listed_counts([("no", 2_345_678.0)]) == "no (2,345,678)"
