"""From a target to a price: the curve is inverted, and what cannot be met is refused."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from three_classes import LABELS, NEW, TRUTH, X, Y

import crcen
from crcen import Budget, Capacity, ExpenseCurve, InvalidInput, InvalidParameter, PrecisionAtLeast, RecallAtLeast
from crcen import choose_weighting as choose
from crcen.theory.metrics import decision_counts
from crcen.theory.price import sigmoid
from papers_training import CRCENClassifier, CRCENClassifierCV


def draw(n, seed, tied=False):
    rng = np.random.default_rng(seed)
    p = sigmoid(rng.normal(-2.5, 1.5, n))
    p = np.round(p, 2) if tied else p
    return rng.uniform(size=n) < p, p


def curve(y, p):
    return ExpenseCurve.from_predictions(y, p, [Budget(1), Budget(5)], n_resamples=2)


def at_all_thresholds(y, p):
    """(threshold, recall, precision, share of alarms) with an alarm at p >= threshold, by brute force."""
    return [(t, y[p >= t].sum() / y.sum(), y[p >= t].mean(), (p >= t).mean()) for t in np.unique(p)]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("goal", "met", "best"),
    [
        *((RecallAtLeast(goal), lambda recall, *_, goal=goal: recall >= goal, max) for goal in (0.3, 0.8, 1.0)),
        *((PrecisionAtLeast(goal), lambda _, right, __, goal=goal: right >= goal, min) for goal in (0.2, 0.5)),
        *((Capacity(n, per="day"), lambda *figures, n=n: 1000 * figures[2] <= n, min) for n in (20, 300)),
    ],
)
def test_a_goal_is_met_at_the_threshold_of_brute_force(goal, met, best, tied):
    y, p = draw(800, 1, tied)
    p = np.clip(p, 0.001, 1)
    chosen = choose(curve(y, p), goal, rate=1000, n_resamples=5)
    alarms = crcen.decide(p, chosen.weighting)
    np.testing.assert_array_equal(alarms, p >= best(t for t, *figures in at_all_thresholds(y, p) if met(*figures)))
    assert (chosen.counts.tp, chosen.counts.fp) == (y[alarms].sum(), (~y)[alarms].sum())
    figures = y[alarms].sum() / y.sum(), y[alarms].mean(), alarms.mean()
    assert (chosen.recall, chosen.precision, chosen.alarm_rate) == pytest.approx(figures)
    assert chosen.average_price == pytest.approx(chosen.counts.fp / chosen.counts.tp)
    assert chosen.average_price < chosen.weighting.value
    assert f"alarms a day{1000 * chosen.alarm_rate:>19.4g}" in str(chosen)


def test_intervals_hold_the_expectation_of_new_rows():
    """Recall on a large population, at the threshold chosen: inside the 95 % interval in most of 60 samples."""
    y_all, p_all = draw(200_000, 4)
    inside = []
    for seed in range(60):
        rows = np.random.default_rng(seed).integers(200_000, size=1000)
        chosen = choose(curve(y_all[rows], p_all[rows]), RecallAtLeast(0.8), n_resamples=200)
        truth = y_all[p_all > chosen.threshold].sum() / y_all.sum()
        inside.append(chosen.recall_interval[0] <= truth <= chosen.recall_interval[1])
        assert chosen.price_interval[0] <= chosen.weighting.value <= chosen.price_interval[1]
    assert np.mean(inside) > 0.85


def test_intervals_are_not_empty_where_every_alarm_is_right():
    y, p = np.repeat([1, 0], [40, 400]), np.repeat([0.9, 0.1], [40, 400])
    chosen = choose(curve(y, p), PrecisionAtLeast(0.9), n_resamples=20)
    assert (chosen.precision, chosen.precision_interval[1]) == pytest.approx((1.0, 1.0))
    assert chosen.precision_interval[0] == pytest.approx(1 / (1 + 1.96**2 / 40), rel=1e-3)  # Wilson at 40 of 40
    assert choose(curve(y, p), PrecisionAtLeast(0.9), n_resamples=20, level=0.5).precision_interval[0] > 0.98
    with pytest.raises(InvalidParameter, match="level must lie"):
        choose(curve(y, p), PrecisionAtLeast(0.9), n_resamples=20, level=1.5)


def test_a_model_is_asked_about_rows_it_did_not_see(rare_rows):
    X, y = rare_rows(900, seed=2)
    model = CRCENClassifier(Budget(3), hidden=(), random_state=0).fit(X[:500], y[:500])
    p = model.predict_proba(X[500:])[:, 1]
    by_model = choose(model, RecallAtLeast(0.8), X[500:], y[500:], n_resamples=5)
    assert by_model == choose(curve(y[500:], p), RecallAtLeast(0.8), n_resamples=5)
    named = np.where(y == 1, "fraud", "ok")  # the positive class comes first
    twin = CRCENClassifier(Budget(3), hidden=(), random_state=0).fit(X[:500], named[:500])
    other = choose(twin, RecallAtLeast(0.8), X[500:], named[500:], n_resamples=5)
    assert other.counts == by_model.counts
    logistic = LogisticRegression().fit(X[:500], named[:500])
    assert choose(logistic, RecallAtLeast(0.8), X[500:], named[500:], n_resamples=5).recall >= 0.8


def test_a_search_is_judged_out_of_fold(rare_rows):
    X, y = rare_rows(500, seed=3)
    search = CRCENClassifierCV(hidden=(), l2=1e-2, cv=3, random_state=0).fit(X, y)
    p = sigmoid(search.oof_decision_function_ - search.weighting_.logit_shift)
    chosen = choose(search, RecallAtLeast(0.8), y=y, n_resamples=5)
    assert chosen == choose(curve(y, p), RecallAtLeast(0.8), n_resamples=5)
    with pytest.raises(InvalidParameter, match="a search needs y"):
        choose(search, RecallAtLeast(0.8))


def test_weights_are_copies():
    y, p = draw(300, 6)
    copies = np.random.default_rng(0).integers(0, 3, 300)
    model = Answers(p)
    weighted = choose(model, RecallAtLeast(0.6), np.empty((300, 1)), y, sample_weight=copies, n_resamples=5)
    copied = choose(curve(np.repeat(y, copies), np.repeat(p, copies)), RecallAtLeast(0.6), n_resamples=5)
    names = ("recall", "precision", "alarm_rate")
    assert [getattr(weighted, name) for name in names] == pytest.approx([getattr(copied, name) for name in names])


@pytest.mark.parametrize("goal", [RecallAtLeast(0.6), PrecisionAtLeast(0.2), Capacity(40)])
def test_the_unit_of_weights_has_no_meaning(goal):
    y, p = draw(300, 6)
    weights, rows = np.random.default_rng(0).uniform(0.2, 3.0, 300), np.empty((300, 1))
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


HAPPENED, CHANCE = np.array([1, 0, 0, 0, 0, 0, 0, 1]), np.array([0.9, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])


@pytest.mark.parametrize(
    ("goal", "sentence"),
    [
        (PrecisionAtLeast(0.6), "no threshold has precision of at least 0.6: the best on these rows is 0.5"),
        (PrecisionAtLeast(0.2), "every price has precision of at least 0.2, since 25 % of all rows are positive"),
        (Capacity(1), "25 % of the rows share the largest probability, 0.9"),
        (Capacity(8), "allow an alarm on every row"),
        (Capacity(8, per="day"), "needs the number of rows a day"),
        (Budget(3), "a goal must be Capacity"),
        (RecallAtLeast(1.0), "no finite price has recall of at least 1"),
    ],
)
def test_goals_that_cannot_be_met_are_refused(goal, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        choose(curve(HAPPENED, CHANCE), goal)
    with pytest.raises(InvalidParameter, match="rate must be"):
        choose(curve(HAPPENED, CHANCE), goal, rate=-1)


def test_what_is_no_model_or_no_rows_is_refused(rare_rows):
    X, y = rare_rows(200)
    retrained = ExpenseCurve.from_estimator(CRCENClassifier(hidden=()), X, y, [Budget(1), Budget(5)], n_resamples=2)
    model, goal = LogisticRegression().fit(X, y), RecallAtLeast(0.5)
    for arguments, error, sentence in (
        ((retrained, goal), InvalidParameter, "not nested"),
        ((LogisticRegression(), goal, X, y), InvalidParameter, "got a LogisticRegression"),
        ((model, goal), InvalidParameter, "needs X and y"),
        ((model, goal, X, y + 1), InvalidInput, r"labels \[0, 1\]"),
        ((Answers(np.full(200, 1.5)), goal, X, y == 1), InvalidInput, r"predict_proba must lie in \[0, 1\]"),
        ((Answers(np.full(200, 0.5)), goal, X, np.zeros(200, dtype=bool)), InvalidInput, "no positive row"),
    ):
        with pytest.raises(error, match=sentence):
            choose(*arguments)


def test_guaranteed_precision_holds_on_new_rows_and_needs_labels():
    held = []
    everything, p_all = draw(200_000, 99)
    for seed in range(60):
        y, p = draw(3000, seed)
        chosen = choose(curve(y, p), PrecisionAtLeast(0.4, confidence=0.9), n_resamples=2)
        held.append(everything[p_all > chosen.threshold].mean() >= 0.4)
    assert np.mean(held) >= 0.85
    y, p = draw(3000, 0)
    plain = choose(curve(y, p), PrecisionAtLeast(0.4), n_resamples=2)
    assert plain.threshold < chosen.threshold
    assert "confidence 0.9" in str(PrecisionAtLeast(0.4, confidence=0.9))
    with pytest.raises(InvalidParameter, match=r"do not show precision of at least 0\.99 with confidence 0\.99"):
        choose(curve(y, p), PrecisionAtLeast(0.99, confidence=0.99), n_resamples=2)
    with pytest.raises(InvalidParameter, match="only labelled rows can give"):
        crcen.decide(p, PrecisionAtLeast(0.4, confidence=0.9))


def test_guarantees_count_one_row_of_each_cluster():
    y, p = draw(400, 1)
    clusters, goal = np.repeat(np.arange(400), 10), RecallAtLeast(0.8, confidence=0.95)
    once = choose(curve(y, p), goal, n_resamples=2)
    repeated = curve(np.repeat(y, 10), np.repeat(p, 10))
    assert choose(repeated, goal, n_resamples=2, clusters=clusters).threshold == pytest.approx(once.threshold)
    assert choose(repeated, goal, n_resamples=2).threshold > once.threshold  # too sure
    y, p = draw(4000, 1)
    with pytest.raises(InvalidParameter, match=r"positive clusters that were held out, got [1-9]\b"):
        choose(curve(y, p), goal, n_resamples=2, clusters=np.arange(4000) // 500)


@pytest.fixture(scope="module")
def three():
    return LogisticRegression(C=1e6).fit(X, LABELS[Y])


@pytest.mark.parametrize("asked", [{"high": 0.9}, {"high": 0.8, "middle": 0.7}, {"high": 0.3, "low": 0.5}])
def test_the_least_weights_with_these_recalls(three, asked):
    found = choose(three, asked, NEW, LABELS[TRUTH])
    p, classes = three.predict_proba(NEW), three.classes_
    w = np.array([found.weighting[label] for label in classes])
    truth = np.searchsorted(classes, LABELS[TRUTH])
    recalls = decision_counts(truth, (p * w).argmax(axis=1), 3).recalls
    np.testing.assert_allclose(found.counts.recalls, recalls)
    for label, recall in asked.items():
        k = classes.tolist().index(label)
        assert recalls[k] >= recall
        if w[k] > 1.0:  # with any less it would not be reached
            less = w * np.where(np.arange(3) == k, 1.0 - 1e-6, 1.0)
            assert decision_counts(truth, (p * less).argmax(axis=1), 3).recalls[k] < recall
    assert all(found.weighting[label] == 1.0 for label in set(LABELS) - set(asked))
    assert "recall" in str(found)


def test_recalls_that_cannot_be_met_are_refused(three):
    together = dict.fromkeys(LABELS, 0.97), "cannot be reached together"
    for recalls, sentence in (together, ({"tall": 0.9}, "of the classes"), ({"high": 90}, "at most 1")):
        with pytest.raises(InvalidParameter, match=sentence):
            choose(three, recalls, NEW, LABELS[TRUTH])
