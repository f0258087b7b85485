"""Expense curves: counts, brackets, intervals and verdicts; training with a weight against a moved threshold."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold
from sklearn.tree import DecisionTreeClassifier

import crcen
from crcen import Alpha, Budget, CostRatio, ExpenseCurve, InvalidInput, InvalidParameter, Lam, Schedule
from crcen.decisions.expense_curve import equivalence_report
from crcen.models.search.weight_path import path_logits
from crcen.paper.networks import MovedThresholdClassifier
from crcen.theory.price import sigmoid, weighted_probability
from grouped_settings import grouped
from papers_training import CRCENClassifier, CRCENClassifierCV

PATH = [CostRatio(c) for c in (2.0, 5.0, 10.0, 20.0)]
HELD_OUT = [(np.arange(400), np.arange(400, 600))]
LINEAR = {"hidden": (), "solver": "lbfgs", "tol": 1e-8, "random_state": 3}


@pytest.fixture(scope="module")
def population():
    """Posteriors of a large population; a sample draws rows of it and their labels."""
    return sigmoid(np.random.default_rng(0).normal(-3.0, 1.6, 100_000))


def draw(population, n, rng):
    p = rng.choice(population, n)
    return rng.uniform(size=n) < p, p


def expected_expenses(population, path):
    """Expected false alarms per expected catch among the rows that flip, by hand."""
    cuts = [1 / (1 + price.value) for price in path]
    flips = [(population > low) & (population <= high) for high, low in pairwise(cuts)]
    return np.array([(1 - population[f]).sum() / population[f].sum() for f in flips])


def test_counts_are_those_of_each_threshold(population):
    y, p = draw(population, 3000, np.random.default_rng(1))
    curve = ExpenseCurve.from_predictions(y, p, PATH)
    for i, price in enumerate(PATH):
        tn, fp, fn, tp = confusion_matrix(y, p > 1 / (1 + price.value)).ravel()
        assert (curve.counts.tp[i], curve.counts.fp[i], curve.counts.fn[i], curve.counts.tn[i]) == (tp, fp, fn, tn)
        assert curve.counts.recall[i] == pytest.approx(tp / y.sum())
    steps = curve.steps
    assert steps[1].expense == pytest.approx(np.diff(curve.counts.fp)[1] / -np.diff(curve.counts.fn)[1])
    assert (steps[1].bracket_low, steps[1].bracket_high) == pytest.approx((5, 10))


def test_brackets_hold_and_intervals_cover_as_stated(population):
    """250 samples of 3,000 rows: 95 % intervals cover the expected expense in about 95 %, alarms are rarer than 5 %."""
    truth = expected_expenses(population, PATH)
    prices = np.array([price.value for price in PATH])
    assert ((prices[:-1] < truth) & (truth < prices[1:])).all()
    rng = np.random.default_rng(2)
    covered, alarms = [], []
    for seed in range(250):
        y, p = draw(population, 3000, rng)
        curve = ExpenseCurve.from_predictions(y, p, PATH, n_resamples=300, random_state=seed)
        low, high = curve.intervals.T
        covered.append((low <= truth) & (truth <= high))
        alarms.append([step.is_beyond_noise for step in curve.steps])
    assert 0.925 <= np.mean(covered) <= 0.975
    assert np.mean(alarms) <= 0.05
    assert np.mean(covered, axis=0).min() > 0.90


def test_wrong_probabilities_leave_their_brackets_beyond_noise(population):
    y, p = draw(population, 20_000, np.random.default_rng(3))
    too_high = ExpenseCurve.from_predictions(y, weighted_probability(p, CostRatio(10)), PATH)
    too_low = ExpenseCurve.from_predictions(y, crcen.posterior(p, CostRatio(10)), PATH)
    right = ExpenseCurve.from_predictions(y, p, PATH)
    assert [(s.verdict, s.is_beyond_noise) for s in too_high.steps] == [("above", True)] * 3
    assert [(s.verdict, s.is_beyond_noise) for s in too_low.steps] == [("below", True)] * 3
    assert [(s.verdict, s.is_beyond_noise) for s in right.steps] == [("inside", False)] * 3
    assert {s.reason for s in too_high.steps} == {"probabilities between these prices are too high"}
    assert {s.reason for s in too_low.steps} == {"probabilities between these prices are too low"}
    assert "too high" in str(too_high)
    step = too_high.steps[0]
    retrained = replace(step, kind="retrained")
    assert retrained.reason == f"{step.reason}, or the ranking changed from one network to the next"


def test_few_flips_may_be_chance_and_none_are_undefined():
    y = np.array([1, 1, 0, 0, 0, 0, 0, 0])
    p = np.array([0.9, 0.4, 0.4, 0.4, 0.4, 0.01, 0.01, 0.01])
    curve = ExpenseCurve.from_predictions(y, p, [CostRatio(0.5), CostRatio(1), CostRatio(2), CostRatio(3)])
    nothing, chance, nothing_again = curve.steps
    assert (nothing.verdict, nothing.reason) == ("undefined", "no row lies between the two thresholds")
    assert np.isnan([nothing.low, nothing.high, nothing_again.low]).all()
    assert (chance.expense, chance.verdict, chance.is_beyond_noise) == (3.0, "above", False)
    assert chance.high == np.inf  # in many resamples the one catch is missing
    assert "may be chance" in chance.reason

    curve = ExpenseCurve.from_predictions([1, 0, 0, 0], [0.9, 0.4, 0.4, 0.1], [CostRatio(1), CostRatio(2)])
    assert (curve.steps[0].verdict, curve.steps[0].reason) == ("undefined", "no catch was gained")


def test_weights_are_copies_and_one_seed_is_one_interval(population):
    y, p = draw(population, 500, np.random.default_rng(4))
    curves = [ExpenseCurve.from_predictions(y, p, PATH, random_state=seed).intervals for seed in (1, 1, 2)]
    np.testing.assert_array_equal(curves[0], curves[1])
    assert (curves[0] != curves[2]).any()
    copies = np.random.default_rng(5).integers(0, 4, 500)
    weighted = ExpenseCurve.from_predictions(y, p, PATH, sample_weight=copies)
    copied = ExpenseCurve.from_predictions(np.repeat(y, copies), np.repeat(p, copies), PATH)
    assert weighted.counts == copied.counts
    np.testing.assert_allclose([w.alpha for w in weighted.weightings], [w.alpha for w in copied.weightings])


def test_no_weightings_are_those_of_the_default(population):
    y, p = draw(population, 500, np.random.default_rng(4))
    default, none = (ExpenseCurve.from_predictions(y, p, *given, n_resamples=20) for given in ((), (None,)))
    assert [w.alpha for w in none.weightings] == pytest.approx([0.25, 0.5, 1, 2, 4])
    assert default.counts == none.counts


@pytest.fixture(scope="module")
def rows(rare_rows):
    return rare_rows(600, seed=7)


@pytest.mark.parametrize(
    "params",
    [
        LINEAR,
        {"hidden": (4,), "max_epochs": 3, "n_members": 2, "random_state": 3},
        {"hidden": (4,), "max_epochs": 4, "schedule": Schedule(early_stopping=True), "random_state": 1},
    ],
)
def test_the_stack_is_what_single_fits_give(rows, params):
    X, y = rows
    splits = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, y))
    path = path_logits(CRCENClassifier(**params), X, y, [None, Budget(4), Alpha(2)], splits)
    assert path.logits.shape == (3, len(y))
    for weighting, logits in zip(path.weightings, path.logits, strict=True):
        for train, held_out in splits:
            alone = CRCENClassifier(weighting, **params).fit(X[train], y[train])
            np.testing.assert_allclose(logits[held_out], alone.decision_function(X[held_out]), atol=1e-4)


def test_splits_may_be_masks(rows):
    X, y = rows
    halves = np.arange(600) % 2 == 0
    masks = path_logits(CRCENClassifier(**LINEAR), X, y, PATH, [(halves, ~halves), (~halves, halves)])
    numbers = [np.flatnonzero(halves), np.flatnonzero(~halves)]
    same = path_logits(CRCENClassifier(**LINEAR), X, y, PATH, [tuple(numbers), tuple(numbers[::-1])])
    np.testing.assert_array_equal(masks.logits, same.logits)


@pytest.mark.parametrize(
    ("model", "weighted"),
    [
        (CRCENClassifier(**LINEAR), lambda price: {"weighting": price}),
        (LogisticRegression(), lambda price: {"class_weight": {0: 1.0, 1: price.value}}),
    ],
)
def test_from_estimator_on_test_rows_counts_the_decisions_of_refits(rows, model, weighted):
    X, y = rows
    prices = [CostRatio(1), CostRatio(3), CostRatio(9)]
    curve = ExpenseCurve.from_estimator(model, X, y, prices, cv=HELD_OUT)
    assert curve.kind == "retrained"
    assert "test rows" in str(curve)
    for i, price in enumerate(prices):
        predicted = clone(model).set_params(**weighted(price)).fit(X[:400], y[:400]).predict(X[400:])
        counts = crcen.confusion_counts(y[400:], predicted)
        assert (curve.counts.fn[i], curve.counts.fp[i]) == (counts.fn, counts.fp)
    assert not hasattr(model, "classes_")


def test_from_estimator_judges_every_row_once_and_never_the_training_rows(rows):
    X, y = rows
    deep = CRCENClassifier(hidden=(64,), l2=0, schedule=Schedule(solver="lbfgs"), max_epochs=200, random_state=0)
    curve = ExpenseCurve.from_estimator(deep, X[:150], y[:150], [CostRatio(1), CostRatio(4)])
    assert curve.counts.fn[0] + curve.counts.tp[0] == y[:150].sum()
    assert deep.fit(X[:150], y[:150]).score(X[:150], y[:150]) == 1.0  # it knows its training rows by heart ...
    assert curve.counts.fn[0] > 0  # ... and the curve does not believe it


def test_labels_do_not_matter_and_other_classifiers_of_ours_keep_their_own_way(rows):
    X, y = rows
    named = np.where(y == 1, "fraud", "ok")
    plain = ExpenseCurve.from_estimator(CRCENClassifier(**LINEAR), X, y, PATH)
    other = ExpenseCurve.from_estimator(CRCENClassifier(**LINEAR), X, named, PATH)
    assert plain.counts == other.counts
    X, y = rows
    moved = MovedThresholdClassifier(**grouped(l2=1e-2, **LINEAR))
    curve = ExpenseCurve.from_estimator(moved, X, y, PATH, cv=HELD_OUT)
    p = CRCENClassifier(None, **LINEAR).fit(X[:400], y[:400]).predict_proba(X[400:])[:, 1]
    assert curve.counts == ExpenseCurve.from_predictions(y[400:], p, PATH).counts


@pytest.fixture(scope="module")
def search(rows):
    X, y = rows
    path = [Alpha(0.5), Alpha(1), Alpha(2)]
    return CRCENClassifierCV(path, hidden=(4,), l2=1e-3, max_epochs=5, random_state=0).fit(X, y)


def test_from_cv_moves_the_threshold_out_of_fold(search, rows):
    y = rows[1]
    curve = ExpenseCurve.from_cv(search, y, PATH)
    p = sigmoid(search.oof_decision_function_ - search.weighting_.logit_shift)
    assert curve.counts == ExpenseCurve.from_predictions(y, p, PATH).counts
    assert curve.kind == "threshold"
    named = np.where(y == 1, "fraud", "ok")
    other = clone(search).fit(rows[0], named)
    assert ExpenseCurve.from_cv(other, named, PATH).counts == curve.counts


def test_frame_has_a_row_for_each_weighting(population):
    y, p = draw(population, 2000, np.random.default_rng(6))
    curve = ExpenseCurve.from_predictions(y, p)
    frame = curve.frame()
    assert frame["alpha"].tolist() == pytest.approx([0.25, 0.5, 1, 2, 4])
    np.testing.assert_allclose(frame["recall"], frame["tp"] / y.sum())
    np.testing.assert_allclose(frame["expense"][1:], [s.expense for s in curve.steps])
    np.testing.assert_allclose(frame["bracket_high"][1:], frame["cost_ratio"][1:])
    assert frame["verdict"].tolist() == ["", *(s.verdict for s in curve.steps)]
    assert set(frame["curve"]) == {"threshold"}


Y, P = np.array([0, 0, 1, 1]), np.array([0.1, 0.3, 0.2, 0.9])


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: ExpenseCurve.from_predictions(Y, P + 0.5), InvalidInput, r"p must lie in \[0, 1\]"),
        (lambda: ExpenseCurve.from_predictions([0, 1, 2, 1], P), InvalidInput, "got the labels 0, 1, 2"),
        (lambda: ExpenseCurve.from_predictions([0, 0, 0, 0], P), InvalidInput, "no positive row"),
        (lambda: ExpenseCurve.from_predictions(Y, P[:3]), InvalidInput, "one value for each of the 4 rows"),
        (lambda: ExpenseCurve.from_predictions(Y, P, PATH[::-1]), InvalidParameter, "increase in cost ratio"),
        (lambda: ExpenseCurve.from_predictions(Y, P, PATH[:1]), InvalidParameter, "at least two"),
        (lambda: ExpenseCurve.from_predictions(Y, P, [Lam(0.5), {0: 1}]), InvalidParameter, "got {0: 1}"),
        (lambda: ExpenseCurve.from_predictions(Y, P, level=95), InvalidParameter, "level must lie"),
        (lambda: ExpenseCurve.from_predictions(Y, P, n_resamples=0), InvalidParameter, "n_resamples must be"),
    ],
)
def test_bad_predictions_are_refused(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


def test_bad_estimators_are_refused(rows, search):
    X, y = rows
    model, curve = CRCENClassifier(**LINEAR), ExpenseCurve.from_estimator
    other = "needs a fitted CRCENClassifierCV or CommitteeClassifier, got a CRCENClassifier"
    for call, error, sentence in (
        (lambda: curve(DecisionStump(), X, y), InvalidParameter, "has neither; give its out-of-fold predict_proba"),
        (lambda: curve(model, X[:20], np.arange(20) == 3), InvalidInput, "cannot split"),
        (lambda: curve(model, X, np.zeros(len(X)), cv=HELD_OUT), InvalidInput, "two classes"),
        (lambda: curve(CRCENClassifier(pos_label=7), X, y), InvalidParameter, "one of the classes 0, 1: got 7"),
        (lambda: curve(model, np.where(X > 2, np.nan, X), y), InvalidInput, "contains NaN"),
        (lambda: ExpenseCurve.from_cv(model, y), InvalidParameter, other),
        (lambda: ExpenseCurve.from_cv(search, y[:10]), InvalidInput, "600 labels the model was fitted on"),
        (lambda: ExpenseCurve.from_cv(search, y + 1), InvalidInput, r"labels \[0, 1\] only: got 2"),
    ):
        with pytest.raises(error, match=sentence):
            call()


class DecisionStump(DecisionTreeClassifier):
    """A classifier without any weight to set."""

    def __init__(self, random_state=None):
        super().__init__(max_depth=1, random_state=random_state)


# -- training with a weight against moving the threshold ---------------------------------------------------------------


CONVEX = {"hidden": (), "tol": 1e-8, "random_state": 0}


@pytest.fixture(scope="module")
def halves():
    """Rows and a split of them into training and test rows."""
    rows, new = crcen.make_sim2(300, 3000, seed=1), crcen.make_sim2(300, 3000, seed=2)
    split = (np.arange(3300), np.arange(3300, 6600))
    return {"X": np.vstack([rows.X, new.X]), "y": np.concatenate([rows.y, new.y]), "cv": [split]}


def parts(halves):
    (train, test), X, y = halves["cv"][0], halves["X"], halves["y"]
    return X[train], y[train], X[test], y[test]


@pytest.mark.parametrize(
    ("plain", "weighted"),
    [
        (CRCENClassifier(None, **CONVEX), CRCENClassifier(Budget(6), **CONVEX)),
        (LogisticRegression(C=0.01), LogisticRegression(C=0.01, class_weight={0: 1, 1: 6})),
    ],
)
def test_report_is_what_two_fits_give(halves, plain, weighted):
    X, y, X_test, y_test = parts(halves)
    report = equivalence_report(plain, weighting=Budget(6), n_resamples=4000, **halves)
    trained = clone(weighted).fit(X, y).predict(X_test) == 1
    cut = clone(plain).fit(X, y).predict_proba(X_test)[:, 1] > 1 / 7
    costs = [1000 * np.mean(np.where(y_test == 1, 6.0 * ~alarms, alarms)) for alarms in (trained, cut)]
    assert report.share_differing == pytest.approx(np.mean(trained != cut))
    assert (report.cost_trained, report.cost_cut) == pytest.approx(tuple(costs))
    assert report.difference == pytest.approx(costs[0] - costs[1])
    assert report.difference_interval[0] <= report.difference <= report.difference_interval[1]
    assert report.share_differing_by_seed == 0.0  # a convex problem has one answer, whatever the seed
    assert (report.n_rows, report.n_pos) == (3300, 300)
    # The interval is that of paired differences.
    differences = 1000 * np.where(y_test == 1, 6.0 * ~trained - 6.0 * ~cut, 1.0 * trained - 1.0 * cut)
    half = 1.96 * differences.std() / np.sqrt(len(y_test))
    low, high = report.difference_interval
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)


def test_folds_judge_every_row_once_and_a_network_too_strongly_penalised_cannot_be_cut(halves):
    report = equivalence_report(CRCENClassifier(**CONVEX), halves["X"][:3300], halves["y"][:3300], cv=3)
    assert (report.n_rows, report.n_pos) == (3300, 300)
    assert report.weighting.alpha == pytest.approx(1.0)
    assert report.verdict == "no difference shown"
    # l2 holds a plain network near the share of positives, so that hardly a row exceeds the threshold or all do.
    rows = crcen.make_sim1(300, 6000, seed=3)
    report = equivalence_report(CRCENClassifier(l2=3.0, **CONVEX), rows.X, rows.y, Alpha(1))
    assert report.verdict == "trained cheaper"
    assert report.cost_trained < 0.7 * report.cost_cut


def test_two_seeds_of_a_network_differ_too(halves):
    model = CRCENClassifier(hidden=(8,), max_epochs=3, random_state=0)
    report = equivalence_report(model, weighting=Budget(6), **halves)
    assert 0 < report.share_differing_by_seed < 0.5
    assert f"two seeds of the plain network: {100 * report.share_differing_by_seed:.2f} %" in str(report)
    assert f"{report.difference:+.4g}" in str(report)
    assert report == equivalence_report(model, weighting=Budget(6), **halves)  # one seed, one report


def test_what_cannot_be_compared_is_refused(halves):
    X, y = halves["X"], halves["y"]
    with pytest.raises(InvalidParameter, match="at λ = ½ training with the weight is plain training"):
        equivalence_report(CRCENClassifier(**CONVEX), X, y, None)
    with pytest.raises(InvalidInput, match="two classes"):
        equivalence_report(CRCENClassifier(**CONVEX), X, np.zeros(len(X)), cv=halves["cv"])
    with pytest.raises(InvalidInput, match="the rarer class has 2 rows, fewer than the 4 folds"):
        equivalence_report(CRCENClassifier(**CONVEX), X[:50], np.arange(50) < 2)
    with pytest.raises(InvalidInput, match="it has no split"):
        equivalence_report(CRCENClassifier(**CONVEX), X, y, cv=[])
