"""Expense curves, the price that meets a goal, and training with a weight against a moved threshold."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import three_classes
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from three_classes import LABELS, NEW, TRUTH

import crcen
from bench.choices.equivalence import equivalence_report
from crcen import Budget, CostRatio, ExpenseCurve, InvalidInput, InvalidParameter, PrecisionAtLeast, RecallAtLeast
from crcen import choose_weighting as choose
from crcen.models.search.classifier_cv import path_logits
from crcen.paper.estimators import MovedThresholdClassifier
from crcen.theory.price import sigmoid, weighted_probability
from grouped_settings import grouped
from papers_training import CRCENClassifier, CRCENClassifierCV

PATH = [CostRatio(c) for c in (2.0, 5.0, 10.0, 20.0)]
HELD_OUT = [(np.arange(400), np.arange(400, 600))]
LINEAR = {"hidden": (), "solver": "lbfgs", "tol": 1e-8, "random_state": 3}


POPULATION = sigmoid(np.random.default_rng(0).normal(-2.5, 1.5, 100_000))


def draw(n, seed, tied=False):
    """Labels and posteriors of rows from the population."""
    rng = np.random.default_rng(seed)
    p = rng.choice(POPULATION, n)
    p = np.clip(np.round(p, 2), 0.001, 1) if tied else p
    return rng.uniform(size=n) < p, p


def expected_expenses(path):
    """Expected false alarms per expected catch among the rows that flip, by hand."""
    cuts = [1 / (1 + price.value) for price in path]
    flips = [(low < POPULATION) & (high >= POPULATION) for high, low in pairwise(cuts)]
    return np.array([(1 - POPULATION[f]).sum() / POPULATION[f].sum() for f in flips])


def draw_three(n, seed):
    """Class numbers and posteriors (n, 3)."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([3.0, 1.5, 0.8], n)
    return np.argmax(np.log(p) + rng.gumbel(size=p.shape), axis=1), p


@pytest.mark.parametrize("k", [2, 3])
def test_counts_are_those_of_each_weighting_and_a_frame_has_a_row_for_each(k):
    y, p = draw(3000, 1) if k == 2 else draw_three(3000, 1)
    curve = ExpenseCurve.from_predictions(y, p, PATH if k == 2 else None)
    columns, steps, frame = np.column_stack([1 - p, p]) if k == 2 else p, curve.steps, curve.frame()
    tables = [confusion_matrix(y, (columns * w.weights).argmax(axis=1)) for w in curve.weightings]
    np.testing.assert_array_equal(curve.counts.table, tables)
    own, ends = (np.array([step.number for step in steps]), np.flatnonzero(frame["verdict"] != ""))
    assert own.tolist() == ([1, 1, 1] if k == 2 else np.repeat(range(3), 4).tolist())
    assert len(frame) == len(tables) == len(ends) + (1 if k == 2 else 3)  # the first weighting of a path ends no step
    for step, i in zip(steps, ends, strict=True):
        weights = curve.weightings[i].weights / (curve.weightings[i].weights[0] if k == 2 else 1)
        before, after = (table.sum(axis=1) - np.diag(table) for table in tables[i - 1 : i + 1])  # mistakes by class
        gained, others = (before - after)[step.number], np.arange(k) != step.number
        assert step.expense == pytest.approx(((after - before) * weights)[others].sum() / gained)
        assert (step.bracket_high, frame["recall"][i]) == pytest.approx(
            (weights[step.number], tables[i][step.number, step.number] / (y == step.number).sum())
        )
        for name in ("expense", "bracket_low", "bracket_high", "verdict"):
            assert frame[name][i] == getattr(step, name)
    np.testing.assert_allclose(frame["precision"], frame["tp"] / (frame["tp"] + frame["fp"]))
    assert set(frame["curve"]) == {"threshold"}
    assert len(str(curve).splitlines()) == len(steps) + (3 if k == 2 else 5)


def test_brackets_hold_and_intervals_cover_as_stated():
    """250 samples of 3,000 rows: 95 % intervals cover the expected expense in about 95 %, alarms are rarer than 5 %."""
    truth = expected_expenses(PATH)
    prices = np.array([price.value for price in PATH])
    assert ((prices[:-1] < truth) & (truth < prices[1:])).all()
    covered, alarms = [], []
    for seed in range(250):
        y, p = draw(3000, 100 + seed)
        curve = ExpenseCurve.from_predictions(y, p, PATH, n_resamples=300, random_state=seed)
        low, high = curve.intervals.T
        covered.append((low <= truth) & (truth <= high))
        alarms.append([step.is_beyond_noise for step in curve.steps])
    assert 0.925 <= np.mean(covered) <= 0.975
    assert np.mean(alarms) <= 0.05
    assert np.mean(covered, axis=0).min() > 0.90


def test_wrong_probabilities_leave_their_brackets_beyond_noise():
    y, p = draw(20_000, 3)
    too_high = ExpenseCurve.from_predictions(y, weighted_probability(p, CostRatio(10)), PATH)
    too_low = ExpenseCurve.from_predictions(y, crcen.posterior(p, CostRatio(10)), PATH)
    right = ExpenseCurve.from_predictions(y, p, PATH)
    wrong = "probabilities between these prices are too"
    for curve, found in (
        (too_high, ("above", True, f"{wrong} high")),
        (too_low, ("below", True, f"{wrong} low")),
        (right, ("inside", False, "")),
    ):
        assert [(step.verdict, step.is_beyond_noise, step.reason) for step in curve.steps] == [found] * 3
    assert "too high" in str(too_high)
    y, p = draw_three(20_000, 3)
    for odds, verdict in ((6.0, "above"), (1 / 6, "below"), (1.0, "")):
        q = p * [1.0, 1.0, odds]
        steps = ExpenseCurve.from_predictions(y, q / q.sum(axis=1, keepdims=True)).steps
        assert {step.verdict for step in steps[-4:] if step.is_beyond_noise} == ({verdict} - {""})
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


def test_weights_are_copies_one_seed_is_one_interval_and_no_path_is_the_default():
    y, p = draw(500, 4)
    curves = [ExpenseCurve.from_predictions(y, p, PATH, random_state=seed).intervals for seed in (1, 1, 2)]
    np.testing.assert_array_equal(curves[0], curves[1])
    assert (curves[0] != curves[2]).any()
    copies = np.random.default_rng(5).integers(0, 4, 500)
    weighted = ExpenseCurve.from_predictions(y, p, PATH, sample_weight=copies)
    copied = ExpenseCurve.from_predictions(np.repeat(y, copies), np.repeat(p, copies), PATH)
    assert weighted.counts == copied.counts
    np.testing.assert_allclose([w.alpha for w in weighted.weightings], [w.alpha for w in copied.weightings])
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
        {"hidden": (4,), "max_epochs": 4, "schedule": crcen.Schedule(early_stopping=True), "random_state": 1},
    ],
)
def test_the_stack_is_what_single_fits_give(rows, params):
    X, y = rows
    splits = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, y))
    splits[0] = tuple(np.isin(np.arange(len(y)), part) for part in splits[0])  # masks will do
    path = path_logits(CRCENClassifier(**params), X, y, [None, Budget(4), crcen.Alpha(2)], splits)
    assert path.logits.shape == (3, len(y))
    for weighting, logits in zip(path.weightings, path.logits, strict=True):
        for train, held_out in splits:
            alone = CRCENClassifier(weighting, **params).fit(X[train], y[train])
            np.testing.assert_allclose(logits[held_out], alone.decision_function(X[held_out]), atol=1e-4)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("model", [CRCENClassifier(**LINEAR), LogisticRegression()])
def test_from_estimator_on_test_rows_counts_the_decisions_of_refits(rows, model, k):
    X, y = rows if k == 2 else (three_classes.X[:600], three_classes.Y[:600])
    name = "weighting" if hasattr(model, "weighting") else "class_weight"
    prices = [dict(zip(range(k), [*[1.0] * (k - 1), price], strict=True)) for price in (1.0, 3.0, 9.0)]
    curve = ExpenseCurve.from_estimator(model, X, y, prices, cv=HELD_OUT)
    assert (curve.kind, "test rows" in str(curve)) == ("retrained", True)
    for i, price in enumerate(prices):
        predicted = clone(model).set_params(**{name: price}).fit(X[:400], y[:400]).predict(X[400:])
        np.testing.assert_array_equal(curve.counts.table[i], confusion_matrix(y[400:], predicted))
    assert not hasattr(model, "classes_")


def test_from_estimator_judges_every_row_once_and_never_the_training_rows(rows):
    X, y = rows
    deep = CRCENClassifier(hidden=(64,), l2=0, schedule=crcen.Schedule(solver="lbfgs"), max_epochs=200, random_state=0)
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
    moved = MovedThresholdClassifier(**grouped(l2=1e-2, **LINEAR))
    curve = ExpenseCurve.from_estimator(moved, X, y, PATH, cv=HELD_OUT)
    p = CRCENClassifier(None, **LINEAR).fit(X[:400], y[:400]).predict_proba(X[400:])[:, 1]
    assert curve.counts == ExpenseCurve.from_predictions(y[400:], p, PATH).counts


@pytest.fixture(scope="module")
def search(rows):
    X, y = rows
    path = [crcen.Alpha(0.5), crcen.Alpha(1), crcen.Alpha(2)]
    return CRCENClassifierCV(path, hidden=(4,), l2=1e-3, max_epochs=5, random_state=0).fit(X, y)


def test_from_cv_moves_the_threshold_out_of_fold(search, rows):
    y = rows[1]
    curve = ExpenseCurve.from_cv(search, y, PATH)
    p = sigmoid(search.oof_decision_function_ - search.weighting_.logit_shift)
    assert curve.counts == ExpenseCurve.from_predictions(y, p, PATH).counts
    assert curve.kind == "threshold"
    named = np.where(y == 1, "fraud", "ok")
    other = ExpenseCurve.from_cv(clone(search).fit(rows[0], named), named, PATH)
    assert (other.counts, other.rows.label(other.steps[0].number)) == (curve.counts, "fraud")
    three = CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=5, random_state=0).fit(three_classes.X, three_classes.Y)
    curve = ExpenseCurve.from_cv(three, three_classes.Y, "balanced", n_resamples=5)
    price = three.weighting_.replace("balanced")
    predicted = ExpenseCurve.from_predictions(three_classes.Y, three.oof_proba_, price, n_resamples=5)
    assert curve.counts == predicted.counts
    assert choose(three, {2: 0.8}, y=three_classes.Y).weighting == choose(curve, {2: 0.8}).weighting


Y, P = np.array([0, 0, 1, 1]), np.array([0.1, 0.3, 0.2, 0.9])


def test_bad_predictions_and_estimators_are_refused(rows, search):
    X, y = rows
    model, curve, predicted = CRCENClassifier(**LINEAR), ExpenseCurve.from_estimator, ExpenseCurve.from_predictions
    other = "needs a fitted CRCENClassifierCV or CommitteeClassifier, got a CRCENClassifier"
    for call, error, sentence in (
        (lambda: predicted(Y, P + 0.5), InvalidInput, r"p must lie in \[0, 1\]"),
        (lambda: predicted([0, 1, 2, 1], P), InvalidInput, "got the labels 0, 1, 2"),
        (lambda: predicted([0, 0, 0, 0], P), InvalidInput, "no positive row"),
        (lambda: predicted(Y, P[:3]), InvalidInput, "one value for each of the 4 rows"),
        (lambda: predicted(Y, P, PATH[::-1]), InvalidParameter, "increase in cost ratio"),
        (lambda: predicted(Y, P, PATH[:1]), InvalidParameter, "at least two"),
        (lambda: predicted(Y, P, [crcen.Lam(0.5), {0: 1}]), InvalidParameter, "got {0: 1}"),
        (lambda: predicted(Y, P, level=95), InvalidParameter, "level must lie"),
        (lambda: predicted(Y, P, n_resamples=0), InvalidParameter, "n_resamples must be"),
        (lambda: predicted(Y, P, n_resamples=10**9), InvalidParameter, "from 1 to 1000000, got 1000000000"),
        (lambda: predicted([0, 1, 2, 1], np.full((4, 3), 0.5)), InvalidInput, "each row with the sum 1"),
        (lambda: predicted([0, 1, 2, 1], np.full((4, 3), 1 / 3), [CostRatio(1)]), InvalidParameter, "for two classes"),
        (lambda: curve(GaussianNB(), X, y), InvalidParameter, "has neither; give its out-of-fold predict_proba"),
        (lambda: curve(model, X[:20], np.arange(20) == 3), InvalidInput, "cannot split"),
        (lambda: curve(model, X, np.zeros(len(X)), cv=HELD_OUT), InvalidInput, "two classes"),
        (lambda: curve(model, X, None), InvalidInput, "y must hold a label for each row"),
        (lambda: ExpenseCurve.from_cv(search, None), InvalidInput, "600 labels the model was fitted on"),
        (lambda: curve(CRCENClassifier(pos_label=7), X, y), InvalidParameter, "one of the classes 0, 1: got 7"),
        (lambda: curve(model, np.where(X > 2, np.nan, X), y), InvalidInput, "contains NaN"),
        (lambda: ExpenseCurve.from_cv(model, y), InvalidParameter, other),
        (lambda: ExpenseCurve.from_cv(search, y[:10]), InvalidInput, "600 labels the model was fitted on"),
        (lambda: ExpenseCurve.from_cv(search, y + 1), InvalidInput, r"labels \[0, 1\] only: got 2"),
    ):
        with pytest.raises(error, match=sentence):
            call()


def curve_of(y, p):
    return ExpenseCurve.from_predictions(y, p, [Budget(1), Budget(5)], n_resamples=2)


def at_all_thresholds(y, p):
    """(threshold, recall, precision, share of alarms) with an alarm at p >= threshold, by brute force."""
    return [(t, y[p >= t].sum() / y.sum(), y[p >= t].mean(), (p >= t).mean()) for t in np.unique(p)]


def figures_of(chosen):
    return chosen.recall.value, chosen.precision.value, chosen.alarm_rate.value


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("goal", "met", "best"),
    [
        *((RecallAtLeast(goal), lambda recall, *_, goal=goal: recall >= goal, max) for goal in (0.3, 0.8, 1.0)),
        *((PrecisionAtLeast(goal), lambda _, right, __, goal=goal: right >= goal, min) for goal in (0.2, 0.5)),
        *((crcen.Capacity(n, per="day"), lambda *figures, n=n: 1000 * figures[2] <= n, min) for n in (20, 300)),
    ],
)
def test_a_goal_is_met_at_the_threshold_of_brute_force(goal, met, best, tied):
    y, p = draw(800, 1, tied)
    chosen = choose(curve_of(y, p), goal, rate=1000, n_resamples=5)
    alarms = crcen.decide(p, chosen.weighting)
    np.testing.assert_array_equal(alarms, p >= best(t for t, *figures in at_all_thresholds(y, p) if met(*figures)))
    assert (chosen.counts.tp, chosen.counts.fp) == (y[alarms].sum(), (~y)[alarms].sum())
    figures = y[alarms].sum() / y.sum(), y[alarms].mean(), alarms.mean()
    assert figures_of(chosen) == pytest.approx(figures)
    assert chosen.average_price == pytest.approx(chosen.counts.fp / chosen.counts.tp)
    assert chosen.average_price < chosen.weighting.value
    assert f"alarms a day{1000 * chosen.alarm_rate.value:>19.4g}" in str(chosen)


def test_intervals_hold_the_expectation_of_new_rows_and_are_not_empty_where_every_alarm_is_right():
    """Recall on a large population, at the threshold chosen: inside the 95 % interval in most of 60 samples."""
    y_all, p_all = draw(200_000, 4)
    inside = []
    for seed in range(60):
        rows = np.random.default_rng(seed).integers(200_000, size=1000)
        chosen = choose(curve_of(y_all[rows], p_all[rows]), RecallAtLeast(0.8), n_resamples=200)
        truth = y_all[p_all > chosen.threshold].sum() / y_all.sum()
        inside.append(chosen.recall.low <= truth <= chosen.recall.high)
        assert chosen.cost_ratio.low <= chosen.weighting.value <= chosen.cost_ratio.high
    assert np.mean(inside) > 0.85
    y, p = np.repeat([1, 0], [40, 400]), np.repeat([0.9, 0.1], [40, 400])
    chosen = choose(curve_of(y, p), PrecisionAtLeast(0.9), n_resamples=20)
    assert chosen.precision == pytest.approx((1.0, 1 / (1 + 1.96**2 / 40), 1.0), rel=1e-3)  # Wilson at 40 of 40
    assert choose(curve_of(y, p), PrecisionAtLeast(0.9), n_resamples=20, level=0.5).precision.low > 0.98
    with pytest.raises(InvalidParameter, match="level must lie"):
        choose(curve_of(y, p), PrecisionAtLeast(0.9), n_resamples=20, level=1.5)


def test_a_model_is_asked_about_rows_it_did_not_see_and_a_search_out_of_fold(rare_rows):
    X, y = rare_rows(900, seed=2)
    model = CRCENClassifier(Budget(3), hidden=(), random_state=0).fit(X[:500], y[:500])
    p = model.predict_proba(X[500:])[:, 1]
    by_model = choose(model, RecallAtLeast(0.8), X[500:], y[500:], n_resamples=5)
    assert by_model == choose(curve_of(y[500:], p), RecallAtLeast(0.8), n_resamples=5)
    named = np.where(y == 1, "fraud", "ok")  # the positive class comes first
    twin = CRCENClassifier(Budget(3), hidden=(), random_state=0).fit(X[:500], named[:500])
    other = choose(twin, RecallAtLeast(0.8), X[500:], named[500:], n_resamples=5)
    assert other.counts == by_model.counts
    logistic = LogisticRegression().fit(X[:500], named[:500])
    assert choose(logistic, RecallAtLeast(0.8), X[500:], named[500:], n_resamples=5).recall.value >= 0.8
    X, y = rare_rows(500, seed=3)
    search = CRCENClassifierCV(hidden=(), l2=1e-2, cv=3, random_state=0).fit(X, y)
    p = sigmoid(search.oof_decision_function_ - search.weighting_.logit_shift)
    chosen = choose(search, RecallAtLeast(0.8), y=y, n_resamples=5)
    assert chosen == choose(curve_of(y, p), RecallAtLeast(0.8), n_resamples=5)
    with pytest.raises(InvalidInput, match="500 labels the model was fitted on"):
        choose(search, RecallAtLeast(0.8))


@pytest.mark.parametrize("goal", [RecallAtLeast(0.6), PrecisionAtLeast(0.2), crcen.Capacity(40)])
def test_weights_are_copies_and_their_unit_has_no_meaning(goal):
    y, p = draw(300, 6)
    rng, rows = np.random.default_rng(0), np.empty((300, 1))
    copies, weights = rng.integers(0, 3, 300), rng.uniform(0.2, 3.0, 300)
    if not isinstance(goal, crcen.Capacity):
        weighted = choose(Answers(p), goal, rows, y, sample_weight=copies, n_resamples=5)
        copied = choose(curve_of(np.repeat(y, copies), np.repeat(p, copies)), goal, n_resamples=5)
        assert figures_of(weighted) == pytest.approx(figures_of(copied))
    scaled = [{"sample_weight": unit * weights, "n_resamples": 20} for unit in (1.0, 1e-12, 3e7)]
    found = [choose(Answers(p), goal, rows, y, **settings) for settings in scaled]
    assert len({(str(one), one.threshold) for one in found}) == 1


class Answers:
    """A fitted classifier that gives stored posteriors."""

    classes_ = np.array([False, True])
    pos_label_ = True

    def __init__(self, p):
        self.p = p

    def predict_proba(self, X):
        return np.column_stack([1 - self.p, self.p])


def test_goals_models_and_rows_that_cannot_be_used_are_refused(rare_rows, three):
    X, y = rare_rows(200)
    retrained = ExpenseCurve.from_estimator(CRCENClassifier(hidden=()), X, y, [Budget(1), Budget(5)], n_resamples=2)
    model, goal, known = LogisticRegression().fit(X, y), RecallAtLeast(0.5), (NEW, LABELS[TRUTH])
    few = curve_of([1, 0, 0, 0, 0, 0, 0, 1], [0.9, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    for arguments, sentence in (
        ((few, PrecisionAtLeast(0.6)), "no threshold has precision of at least 0.6: the best on these rows is 0.5"),
        ((few, PrecisionAtLeast(0.2)), "every price has precision of at least 0.2, since 25 % of all rows"),
        ((few, crcen.Capacity(1)), "25 % of the rows share the largest probability, 0.9"),
        ((curve_of([1, 0], [0.3] * 2), crcen.Capacity(1)), "100 % of the rows share the largest probability, 0.3"),
        ((few, crcen.Capacity(8)), "allow an alarm on every row"),
        ((few, crcen.Capacity(8, per="day")), "needs the number of rows a day"),
        ((few, Budget(3)), "a goal must be Capacity"),
        ((few, RecallAtLeast(1.0)), "no finite price has recall of at least 1"),
        ((retrained, goal), "do not follow from one threshold"),
        ((LogisticRegression(), goal, X, y), "got a LogisticRegression"),
        ((model, goal), "rows X and y that it did not see, got a LogisticRegression"),
        ((model, goal, X, y + 1), r"labels \[0, 1\]"),
        ((Answers(np.full(200, 1.5)), goal, X, y == 1), r"predict_proba must lie in \[0, 1\]"),
        ((Answers(np.full(200, 0.5)), goal, X, np.zeros(200, dtype=bool)), "no positive row"),
        ((three, dict.fromkeys(LABELS, 0.97), *known), "cannot be reached together"),
        ((three, {"tall": 0.9}, *known), "of the classes"),
        ((three, {"high": 90}, *known), "at most 1"),
        ((three, goal, *known), "is for two classes, and these rows have 3"),
    ):
        with pytest.raises((InvalidInput, InvalidParameter), match=sentence):
            choose(*arguments)
    for asked, rate in ((goal, -1), ({1: 0.5}, 9)):
        with pytest.raises(InvalidParameter, match="rate must be"):
            choose(few, asked, rate=rate)
    for unfitted in (CRCENClassifierCV(), crcen.CommitteeClassifier()):
        for call in (lambda one: choose(one, goal, None, y), lambda one: ExpenseCurve.from_cv(one, y)):
            with pytest.raises(NotFittedError):
                call(unfitted)


def test_guaranteed_precision_holds_on_new_rows_and_needs_labels():
    held = []
    everything, p_all = draw(200_000, 99)
    for seed in range(60):
        y, p = draw(3000, seed)
        chosen = choose(curve_of(y, p), PrecisionAtLeast(0.4, confidence=0.9), n_resamples=2)
        held.append(everything[p_all > chosen.threshold].mean() >= 0.4)
    assert np.mean(held) >= 0.85
    y, p = draw(3000, 0)
    plain = choose(curve_of(y, p), PrecisionAtLeast(0.4), n_resamples=2)
    assert plain.threshold < chosen.threshold
    assert "confidence 0.9" in str(PrecisionAtLeast(0.4, confidence=0.9))
    with pytest.raises(InvalidParameter, match=r"do not show precision of at least 0\.99 with confidence 0\.99"):
        choose(curve_of(y, p), PrecisionAtLeast(0.99, confidence=0.99), n_resamples=2)
    with pytest.raises(InvalidParameter, match="only labelled rows can give"):
        crcen.decide(p, PrecisionAtLeast(0.4, confidence=0.9))


def test_guarantees_count_one_row_of_each_cluster():
    y, p = draw(400, 1)
    clusters, goal = np.repeat(np.arange(400), 10), RecallAtLeast(0.8, confidence=0.95)
    once = choose(curve_of(y, p), goal, n_resamples=2)
    repeated = curve_of(np.repeat(y, 10), np.repeat(p, 10))
    assert choose(repeated, goal, n_resamples=2, clusters=clusters).threshold == pytest.approx(once.threshold)
    assert choose(repeated, goal, n_resamples=2).threshold > once.threshold  # too sure
    y, p = draw(4000, 1)
    with pytest.raises(InvalidParameter, match=r"positive clusters that were held out, got [1-9]\b"):
        choose(curve_of(y, p), goal, n_resamples=2, clusters=np.arange(4000) // 500)


@pytest.fixture(scope="module")
def three():
    return LogisticRegression(C=1e6).fit(three_classes.X, LABELS[three_classes.Y])


@pytest.mark.parametrize("asked", [{"high": 0.9}, {"high": 0.8, "middle": 0.7}, {"high": 0.3, "low": 0.5}])
def test_the_least_weights_with_these_recalls(three, asked):
    found = choose(three, asked, NEW, LABELS[TRUTH])
    p, classes = three.predict_proba(NEW), three.classes_
    w = np.array([found.weighting[label] for label in classes])
    truth = np.searchsorted(classes, LABELS[TRUTH])
    recalls = crcen.confusion_counts(truth, (p * w).argmax(axis=1)).recall
    np.testing.assert_allclose(found.counts.recall, recalls)
    assert [one["recall"].value for one in found.figures.values()] == pytest.approx(recalls)
    for label, recall in asked.items():
        k = classes.tolist().index(label)
        assert recalls[k] >= recall
        if w[k] > 1.0:  # with any less it would not be reached
            less = w * np.where(np.arange(3) == k, 1.0 - 1e-6, 1.0)
            assert crcen.confusion_counts(truth, (p * less).argmax(axis=1)).recall[k] < recall
    assert all(found.weighting[label] == 1.0 for label in set(LABELS) - set(asked))
    assert "recall" in str(found)


CONVEX = {"hidden": (), "tol": 1e-8, "random_state": 0}


@pytest.fixture(scope="module")
def halves():
    """Rows and a split of them into training and test rows."""
    rows, new = crcen.make_sim2(300, 3000, seed=1), crcen.make_sim2(300, 3000, seed=2)
    split = (np.arange(3300), np.arange(3300, 6600))
    return {"X": np.vstack([rows.X, new.X]), "y": np.concatenate([rows.y, new.y]), "cv": [split]}


@pytest.mark.parametrize(
    ("plain", "weighted"),
    [
        (CRCENClassifier(None, **CONVEX), CRCENClassifier(Budget(6), **CONVEX)),
        (LogisticRegression(C=0.01), LogisticRegression(C=0.01, class_weight={0: 1, 1: 6})),
    ],
)
def test_report_is_what_two_fits_give(halves, plain, weighted):
    (X, X_test), (y, y_test) = (np.split(halves[name], 2) for name in "Xy")
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
    report = equivalence_report(CRCENClassifier(l2=3.0, **CONVEX), rows.X, rows.y, crcen.Alpha(1))
    assert report.verdict == "trained cheaper"
    assert report.cost_trained < 0.7 * report.cost_cut
