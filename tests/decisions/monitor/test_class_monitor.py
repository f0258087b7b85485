"""KeyEquationMonitor on streams of K classes with a known posterior: which class moved, how far, and how seldom not."""

import json
import math

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

from crcen import CostMatrix, CRCENClassifier, CRCENClassifierCV, InvalidInput, InvalidParameter, KeyEquationMonitor
from crcen.decisions.monitor.drift_tests import DriftTest, Tally, comparison, stacked
from crcen.decisions.monitor.track import DriftAlarm
from crcen.theory.price import Price
from crcen.theory.residual_test import joint_residual_sums, residual_sums
from crcen.theory.sequential import stream_sums

WEIGHTS = np.array([1.0, 3.0, 8.0, 20.0])
SHARES = np.log([0.6, 0.2, 0.15, 0.05])


def stream(n, seed, drift=(0.0, 0.0, 0.0, 0.0)):
    """Natural posterior of a right model, and labels at its log-odds plus a drift of each class."""
    rng = np.random.default_rng(seed)
    logits = SHARES + rng.normal(0, 1, (n, 4))
    truth = softmax(logits + np.asarray(drift), axis=1)
    return softmax(logits, axis=1), (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


def weighted(p, w=WEIGHTS):
    return p * w / (p * w).sum(axis=1, keepdims=True)


def monitor_of(n=6000, seed=0, w=WEIGHTS, **params):
    p, y = stream(n, seed)
    return KeyEquationMonitor(weighting=w, y_reference=y, q_reference=weighted(p, w), **params)


def feed(monitor, p, y, batches, w=WEIGHTS, **columns):
    found = []
    for rows in np.array_split(np.arange(len(y)), batches):
        parts = {name: np.asarray(values)[rows] for name, values in columns.items()}
        found += monitor.update(q=weighted(p[rows], w), y=y[rows], **parts)
    return found


# -- the mathematics -------------------------------------------------------------------------------------------------


def test_sums_are_the_moments_of_the_residuals_over_all_labels_that_might_have_come():
    p, y = stream(30, 1)
    q, sizes = weighted(p), np.linspace(0.5, 2.0, 30)
    weighting = Price(WEIGHTS, np.ones(4))
    found = joint_residual_sums(y, q, weighting, sizes)
    residual, variance = np.zeros(4), np.zeros((4, 4))
    for i in range(30):
        values = [sizes[i] * WEIGHTS[c] * (np.eye(4)[c] - q[i]) for c in range(4)]
        residual += values[y[i]]
        assert np.abs(sum(p[i, c] * values[c] for c in range(4))).max() < 1e-12  # mean 0 under the model
        variance += sum(p[i, c] * np.outer(values[c], values[c]) for c in range(4))
    assert found.residuals == pytest.approx(residual, abs=1e-10)
    assert found.variance == pytest.approx(variance, rel=1e-9, abs=1e-9)
    halves = [joint_residual_sums(y[r], q[r], weighting, sizes[r]) for r in (slice(0, 11), slice(11, 30))]
    assert (halves[0] + halves[1]).slope == pytest.approx(found.slope, rel=1e-12)
    # A drift d moves the mean residual by A d.
    d = 1e-5 * np.array([1.0, -2.0, 0.5, 3.0])
    truth = softmax(np.log(p) + d, axis=1)
    moved = sum(sizes[i] * truth[i, c] * WEIGHTS[c] * (np.eye(4)[c] - q[i]) for i in range(30) for c in range(4))
    assert found.slope @ d == pytest.approx(moved, rel=1e-3, abs=1e-9)


def test_the_tally_of_two_classes_is_that_of_the_positive_one():
    rng = np.random.default_rng(2)
    p = rng.beta(1, 5, 3000)
    y, lam = (rng.random(3000) < p).astype(int), 0.8
    q = lam * p / (lam * p + (1 - lam) * (1 - p))
    for r in (slice(0, 1000), slice(1000, 1600), slice(1600, 3000)):
        one = residual_sums(y[r], q[r], lam)
        both = Tally.of(stream_sums(y[r], np.column_stack([1 - q[r], q[r]]), Price.binary(lam, 1, 1)))
        information = one.slope**2 / one.variance
        assert both.score[0] == pytest.approx(one.slope * one.residual / one.variance, rel=1e-9)
        assert (both.information[0, 0], both.reach[0], both.by_class[1]) == pytest.approx([information] * 3, rel=1e-9)
        assert both.drift[1] == pytest.approx(math.log(one.missed / one.alarmed), rel=1e-9)


def test_shares_of_all_comparisons_that_may_come_sum_to_one():
    """Else a false alarm could come more often than stated: without rows it is 1, however many points are open."""
    p, y = stream(3000, 3)
    sums = stream_sums(y, weighted(p), Price(WEIGHTS, np.ones(4)))
    test, quiet = DriftTest(Tally.of(sums), 0.3, 0.0), Tally.none(4)
    for number in range(7):
        assert test.log_evidence() == pytest.approx(0.0, abs=1e-12)
        test.starts.append(quiet)
        test.start_batches.append(0)
        test.start_numbers.append(number)


def test_evidence_of_all_classes_is_the_mixture_over_their_drifts():
    """Mean of exp(d·X − d·u·d/2) over d ~ N(0, scale²), by inverses in coordinates that sum to zero."""
    weighting = Price(WEIGHTS, np.ones(4))
    tallies, parts = [], []
    basis = np.linalg.svd(np.ones((1, 4)))[2][1:]
    for n, seed in ((2000, 3), (700, 4)):
        p, y = stream(n, seed, (0, 0, 0, 0.4 * (seed == 4)))
        sums = stream_sums(y, weighted(p), weighting)
        tallies.append(Tally.of(sums))
        a, v = basis @ sums.slope @ basis.T, basis @ sums.variance @ basis.T
        parts.append((a @ np.linalg.solve(v, basis @ sums.residuals), a @ np.linalg.solve(v, a)))
    (g0, b), (g, c) = parts
    u = np.linalg.inv(np.linalg.inv(b) + np.linalg.inv(c))
    x = u @ (np.linalg.solve(c, g) - np.linalg.solve(b, g0))
    m = np.eye(3) / 0.3**2 + u
    expected = 0.5 * x @ np.linalg.solve(m, x) - 0.5 * np.linalg.slogdet(np.eye(3) + 0.3**2 * u)[1]
    test = DriftTest(tallies[0], 0.15, 0.0)  # drifts of twice that size are mixed
    test.add(tallies[1], 1)
    assert test.log_evidence_by_part()[0, -1] == pytest.approx(expected + math.log(0.7 * 0.2), rel=1e-8)
    moved, clock, _ = comparison(stacked(tallies[:1]), stacked(tallies[1:]), np.zeros((1, 3)))
    assert moved[0] == pytest.approx(basis.T @ x, rel=1e-7, abs=1e-9)
    assert clock[0] == pytest.approx(basis.T @ u @ basis, rel=1e-7, abs=1e-7)


def test_the_comparison_is_brownian_motion_on_its_matrix_clock():
    """Cov(X, X') = u, the earlier clock: the claim that the bar rests on; informations that do not commute."""
    rng = np.random.default_rng(5)

    def drawn(information):
        return rng.normal(size=(60_000, 2)) @ np.linalg.cholesky(information).T

    b, c1, c2 = (np.array(m) for m in ([[40.0, 5], [5, 20]], [[9.0, -3], [-3, 30]], [[60.0, 10], [10, 15]]))
    before, first, second = drawn(b), drawn(c1), drawn(c2)
    found, clocks = [], []
    for score, c in ((first, c1), (first + second, c1 + c2)):
        u = np.linalg.inv(np.linalg.inv(b) + np.linalg.inv(c))
        found.append((score @ np.linalg.inv(c) - before @ np.linalg.inv(b)) @ u)
        clocks.append(u)
    assert found[0].T @ found[1] / 60_000 == pytest.approx(clocks[0], abs=0.5)


# -- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("w", [np.ones(4), WEIGHTS])
def test_a_drift_of_one_class_is_found_named_dated_and_measured(w):
    monitor = monitor_of(6000, w=w, false_alarm_rate=0.01)
    assert feed(monitor, *stream(8000, 6), 8, w) == []
    found = feed(monitor, *stream(12_000, 7, (0, 0, 0, 0.7)), 12, w)
    (alarm,) = found
    assert isinstance(alarm, DriftAlarm)
    assert alarm.label == 3
    assert 9 <= alarm.batch <= 14
    assert 7 <= alarm.since_batch <= 11
    assert alarm.drift == pytest.approx(0.7, abs=0.3)
    assert alarm.drift_low < 0.7 < alarm.drift_high
    assert "drift of class 3 in all rows" in str(monitor)


def test_a_tolerated_drift_is_no_alarm_and_a_larger_one_is():
    within = stream(20_000, 8, (0.1, -0.1, 0, 0.1))
    assert feed(monitor_of(20_000, tolerance=0.25), *within, 20) == []
    assert feed(monitor_of(20_000), *within, 20)
    assert feed(monitor_of(20_000, tolerance=0.25), *stream(20_000, 8, (0, 0, 0, 1.2)), 20)


def test_false_alarms_over_whole_streams_stay_below_the_rate():
    alarms = 0
    for seed in range(60):
        monitor = monitor_of(600, 1000 + seed, false_alarm_rate=0.1)
        alarms += bool(feed(monitor, *stream(3000, 5000 + seed), 15))
    assert alarms <= binom.ppf(0.999, 60, 0.1)


def test_a_class_that_is_hardly_known_does_not_silence_the_others():
    p, y = stream(4000, 9)
    q = np.column_stack([p, np.full(4000, 1e-7)])
    q /= q.sum(axis=1, keepdims=True)
    monitor = KeyEquationMonitor(y_reference=y, q_reference=q)
    p, y = stream(8000, 10, (0, 0, 0, 0.8))
    q = np.column_stack([p, np.full(8000, 1e-7)]) / (1 + 1e-7)
    found = [alarm for rows in np.array_split(np.arange(8000), 8) for alarm in monitor.update(q=q[rows], y=y[rows])]
    assert [alarm.label for alarm in found] == [3]
    assert np.isinf(monitor.reference_error[4]) or monitor.reference_error[4] > 10


def test_rows_come_back_from_a_file_as_if_there_had_been_no_break(tmp_path):
    p, y = stream(6000, 11, (0, 0.8, 0, 0))
    names = np.random.default_rng(0).choice(["north", "south"], 6000)
    days = np.repeat(np.arange(12), 500)
    kinds = {"plain": {}, "late": {"delay": 2}, "segments": {"segments": ["north", "south"]}}
    for name, params in kinds.items():
        whole, parts = monitor_of(**params), monitor_of(**params)
        for batch in range(12):
            rows = slice(500 * batch, 500 * (batch + 1))
            more = {"cohort": days[rows]} if name == "late" else {}
            more |= {"segment": names[rows]} if name == "segments" else {}
            for monitor in (whole, parts):
                monitor.update(q=weighted(p[rows]), y=y[rows], **more)
            parts.to_json(tmp_path / "m.json")
            parts = KeyEquationMonitor.from_json(tmp_path / "m.json")
        assert whole.alarms
        assert parts.alarms == whole.alarms
        assert json.dumps(parts.state()) == json.dumps(whole.state())
        assert str(parts) == str(whole)
        assert parts.n_held == (1500 if name == "late" else 0)
    monitor = monitor_of(delay=0)
    monitor.update(q=weighted(p[:2]), y=[0, 1], cohort=5)
    with pytest.warns(UserWarning, match=r"2 rows \(1 of 0, 1 of 3\) came after their cohort"):
        monitor.update(q=weighted(p[:2]), y=[0, 3], cohort=4, now=9)


def test_models_bring_labels_weights_and_out_of_fold_rows():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(900, 3))
    y = np.array(["fine", "worn", "broken"])[np.argmax(X + rng.gumbel(size=(900, 3)) + [2, 0, -0.5], axis=1)]
    other = LogisticRegression().fit(X, y)
    monitor = KeyEquationMonitor(other, y_reference=y, q_reference=other.predict_proba(X))
    assert monitor.update(X, y) == []
    assert monitor.history[None][-1].counts == tuple(np.unique(y, return_counts=True)[1])
    ours = CRCENClassifierCV({"fine": 1, "worn": 2, "broken": 9}, hidden=[()], l2=[1e-2], cv=2, max_epochs=20)
    monitor = KeyEquationMonitor(ours.fit(X, y), y_reference=y)
    assert "± " in str(monitor)
    assert monitor.reference_error.shape == (3,)
    # The out-of-fold rows were solved for: the model's error on them is 0.
    assert monitor._tracks[None].test.reference.drift == pytest.approx(np.zeros(3), abs=1e-9)
    assert monitor.update(X, y) == []
    resumed = KeyEquationMonitor.from_state(json.loads(json.dumps(monitor.state())), ours)
    assert resumed.state() == monitor.state()
    with pytest.raises(InvalidInput, match="belongs to a model with the classes"):
        KeyEquationMonitor.from_state(monitor.state(), LogisticRegression().fit(X, np.where(y == "fine", "ok", y)))
    with pytest.raises(InvalidInput, match="rows of the classes"):
        KeyEquationMonitor(ours, y_reference=np.roll(np.where(y == "worn", "fine", y), 1))
    with pytest.raises(InvalidInput, match=r"only: got 'ugly'"):
        monitor.update(X, np.where(y == "worn", "ugly", y))
    with pytest.raises(InvalidParameter, match="weighting_ is used"):
        KeyEquationMonitor(ours, weighting=[1, 2, 3])
    two = CRCENClassifier(CostMatrix([[0, 1], [5, 0]]), hidden=(), random_state=0).fit(X, y == "worn")
    watched = KeyEquationMonitor(two, y_reference=y == "worn", q_reference=two.weighted_proba(X))
    assert watched.update(X, y == "worn") == []


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        ({"q": np.full((2, 3), 1 / 3), "y": [0, 1]}, r"column for each of 4 classes, got shape \(2, 3\)"),
        ({"q": np.full((3, 4), 1 / 4), "y": [0, 1]}, "row for each of the 2 labels"),
        ({"q": np.full((2, 4), 1 / 3), "y": [0, 1]}, "each row with the sum 1"),
        ({"q": np.full((2, 4), 1 / 4), "y": [0, 4]}, "only: got 4"),
        ({"q": np.full((2, 4), 1 / 4), "y": [0, 1], "sample_weight": [1e200, 1]}, "too large"),
        ({"X": [[1.0]], "y": [0]}, "no model"),
    ],
)
def test_what_cannot_be_used_is_refused_and_changes_nothing(batch, sentence):
    monitor = monitor_of(300)
    before = json.dumps(monitor.state())
    with pytest.raises(InvalidInput, match=sentence):
        monitor.update(**batch)
    assert json.dumps(monitor.state()) == before


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda s: s.pop("classes"), "'classes'"),
        (lambda s: s.update(classes=[0]), "two classes or more"),
        (lambda s: s.update(class_weights=[1, 2]), "4 numbers as 'class_weights'"),
        (lambda s: s["tracks"][0].update(sums=[1, 2]), "382 numbers as 'sums'"),
        (lambda s: s["tracks"][0]["reference"].__setitem__(1, -1), "not negative as 'reference'"),
        (lambda s: s["tracks"][0].update(total=[]), "numbers as 'total'"),
        (lambda s: s["tracks"][0]["history"][0].update(z_by_class=3), "list as 'z_by_class'"),
        (lambda s: s.update(arrival=[]), "4 orders"),
        (lambda s: s.update(alarms=[{}]), "'drift_low'"),
    ],
)
def test_damaged_states_are_refused(damage, sentence):
    monitor = monitor_of(300)
    monitor.update(q=weighted(stream(20, 1)[0]), y=stream(20, 1)[1])
    state = json.loads(json.dumps(monitor.state()))
    damage(state)
    with pytest.raises(InvalidInput, match=sentence):
        KeyEquationMonitor.from_state(state)
