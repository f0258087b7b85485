"""KeyEquationMonitor on streams with a known posterior, of two and of four classes, and its sequential test."""

import json
import math
import re
import warnings
from itertools import pairwise

import numpy as np
import pytest
from known_streams import EQUAL, WEIGHTS, feed, monitor_of, stream, weighted
from scipy.special import expit
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import CostMatrix, CRCENClassifier, CRCENClassifierCV, InvalidInput, InvalidParameter, KeyEquationMonitor
from crcen._support.text import json_value
from crcen.decisions.drift import DriftTest, Start, Tally
from crcen.theory.price import Price, sigmoid
from crcen.theory.sequential import GRID, StreamSums, stream_sums


@pytest.mark.parametrize("w", [EQUAL[2], WEIGHTS[2]])
def test_readings_are_those_of_all_rows_so_far_and_the_reference_error_is_that_of_as_many_rows(w):
    monitor = monitor_of(w=w)
    p, y = stream(3000, 1)
    feed(monitor, p, y, 7, w)
    last = monitor.history[None][-1]
    lam = w[1] / w.sum()
    whole = crcen.key_equation(y, weighted(p, w)[:, 1], crcen.resolve(lam, y.sum(), (1 - y).sum()))
    assert (last.segment, last.batch, last.n_rows, last.counts[1]) == (None, 7, 3000, y.sum())
    assert last.z_by_class[0] == pytest.approx(whole.z, rel=1e-9)
    sides = [
        lam * np.sum(weighted(a, w)[b == 1, 0]) / ((1 - lam) * np.sum(weighted(a, w)[b == 0, 1]))
        for a, b in ((p, y), stream(4000, 0))
    ]
    assert last.drift_by_class[0] == pytest.approx(math.log(sides[0] / sides[1]), rel=1e-9)
    assert abs(last.z_reference_by_class[0]) < 4
    assert "4,000 reference rows, model uncertainty ± " in str(monitor)
    # A model that fits one rate to 2,000 rows is off by sqrt(1/(n p(1−p))) in log-odds.
    rates = np.random.default_rng(0).binomial(2000, 0.2, 4000) / 2000
    monitor = KeyEquationMonitor(y_reference=np.arange(2000) < 400, q_reference=np.full(2000, 0.2))
    assert monitor.reference_error == pytest.approx(np.std(np.log(rates / (1 - rates))), rel=0.05)
    assert KeyEquationMonitor().reference_error == math.inf


@pytest.mark.parametrize(
    ("w", "drift", "quiet"),
    [(EQUAL[2], 0.6, 10), (WEIGHTS[2], 0.6, 10), (EQUAL[2], -0.6, 0), (EQUAL[4], 0.7, 8), (WEIGHTS[4], 0.7, 8)],
)
def test_a_drift_of_one_class_is_found_named_dated_and_measured(w, drift, quiet):
    n_classes = len(w)
    monitor = monitor_of(20_000 if n_classes == 2 else 6000, w=w, false_alarm_rate=0.01)
    if quiet:
        assert feed(monitor, *stream(1000 * quiet, 6, n_classes=n_classes), quiet, w) == []
    (alarm,) = feed(monitor, *stream(12_000, 7, drift, n_classes), 12, w)
    assert (alarm.segment, alarm.label, alarm.drift) == (None, n_classes - 1, pytest.approx(drift, abs=0.3))
    assert quiet < alarm.batch <= quiet + 6
    assert abs(alarm.since_batch - quiet - 1) <= 2
    assert alarm.drift_low < drift < alarm.drift_high
    assert alarm.log_evidence >= math.log(100)
    assert f"ALARM: drift of class {n_classes - 1} in all rows" in str(monitor)


@pytest.mark.parametrize(
    ("drift", "said"),
    [(5.0, r"\+\d\.\d\d \(\+(.*) or more\)"), (-5.0, r"-\d\.\d\d \(-(.*) or less\)")],
)
def test_a_drift_beyond_the_largest_estimate_is_stated_as_open(drift, said):
    monitor = monitor_of(20_000)
    (alarm,) = feed(monitor, *stream(4000, 7, drift), 1)
    (limit,) = re.search(f"log-odds {said} since batch 1", str(alarm)).groups()
    assert 2.0 < float(limit) < abs(alarm.drift) < abs(drift)
    again = type(alarm).from_plain(json_value(alarm))
    assert (again, str(again)) == (alarm, str(alarm))


@pytest.mark.parametrize(("n_classes", "within"), [(2, 0.3), (4, np.array([0.1, -0.1, 0, 0.1]))])
def test_a_tolerated_drift_is_no_alarm_and_a_larger_one_is(n_classes, within):
    w, tolerance, n = WEIGHTS[n_classes], 0.35 if n_classes == 2 else 0.25, 60_000 if n_classes == 2 else 20_000
    rows = stream(n, 8, within, n_classes)
    assert feed(monitor_of(n, w=w, tolerance=tolerance), *rows, 20, w) == []
    assert feed(monitor_of(n, w=w), *rows, 20, w)
    assert feed(monitor_of(n, w=w, tolerance=tolerance), *stream(n, 8, 1.2, n_classes), 20, w)


def test_false_alarms_over_whole_streams():
    """One feature and an intercept fitted to 500 rows, streams eight times as long, looked at 20 times."""
    rng = np.random.default_rng(6)
    trials, alarms, naive = 150, 0, 0
    for _ in range(trials):
        x = rng.normal(size=4500)
        y = rng.random(4500) < expit(-1.5 + x)
        design = np.column_stack([np.ones(4500), x])
        beta = np.array([-1.5, 1.0])
        for _ in range(6):
            q = expit(design[:500] @ beta)
            beta += np.linalg.solve((design[:500].T * (q * (1 - q))) @ design[:500], design[:500].T @ (y[:500] - q))
        q = expit(design @ beta)
        # The model's own training rows serve as reference: their residual is 0, as that of solved out-of-fold rows is.
        monitor = KeyEquationMonitor(y_reference=y[:500], q_reference=q[:500], false_alarm_rate=0.1)
        feed(monitor, q[500:], y[500:], 20)
        alarms += bool(monitor.alarms)
        naive += max(abs(reading.z_by_class[0]) for reading in monitor.history[None]) > 1.645
    assert alarms <= binom.ppf(0.999, trials, 0.1)
    assert naive > 0.5 * trials  # what looking often at a fixed test does
    w, alarms = WEIGHTS[4], 0
    for seed in range(60):
        monitor = monitor_of(600, 1000 + seed, w, false_alarm_rate=0.1)
        alarms += bool(feed(monitor, *stream(3000, 5000 + seed, n_classes=4), 15, w))
    assert alarms <= binom.ppf(0.999, 60, 0.1)


def test_a_class_that_is_hardly_known_does_not_silence_the_others():
    def with_rare(p):
        return np.column_stack([p, np.full(len(p), 1e-7)]) / (1 + 1e-7)

    p, y = stream(4000, 9, n_classes=4)
    monitor = KeyEquationMonitor(y_reference=y, q_reference=with_rare(p))
    p, y = stream(8000, 10, 0.8, 4)
    assert [alarm.label for alarm in feed(monitor, with_rare(p), y, 8)] == [3]
    assert np.isinf(monitor.reference_error[4]) or monitor.reference_error[4] > 10


def segmented(n, seed, drift=0.0, drifted="north"):
    """A stream in three segments, one of them drifted."""
    (p, y), (_, moved) = stream(n, seed), stream(n, seed, drift)
    names = np.random.default_rng(seed).choice(["east", "north", "west"], n)
    return p, np.where(names == drifted, moved, y), names


def test_a_drift_in_one_segment_is_found_there():
    p, y, names = segmented(30_000, 7)
    monitor = KeyEquationMonitor(y_reference=y, q_reference=p, segment_reference=names)
    assert monitor.segments == ["east", "north", "west"]
    p, y, names = segmented(30_000, 8, 0.8)
    found = {alarm.segment for alarm in feed(monitor, p, y, 30, segment=names)}
    assert {"north"} <= found <= {"north", None}
    north, mine = monitor.history["north"][-1], names == "north"
    expected = crcen.key_equation(y[mine], p[mine, 1], None).z
    assert (north.n_rows, north.z_by_class[0]) == (mine.sum(), pytest.approx(expected, rel=1e-9))


def test_the_rate_is_shared_out_and_a_segment_without_reference_is_compared_with_its_past():
    monitor = KeyEquationMonitor(segments=["a", "b", "c", "d"], false_alarm_rate=0.04)
    assert [track.level for track in monitor._tracks.values()] == pytest.approx([0.02] + [0.005] * 4)
    assert [track.level for track in KeyEquationMonitor(false_alarm_rate=0.04)._tracks.values()] == [0.04]
    monitor = monitor_of(20_000, segments=["new", "absent"])
    for seed, drift, expected in ((10, 0.0, set()), (11, 0.8, {None, "new"})):
        p, y = stream(10_000, seed, drift)
        found = [monitor.update(q=p[rows], y=y[rows], segment="new") for rows in np.split(np.arange(10_000), 10)]
        assert {alarm.segment for alarms in found for alarm in alarms} == expected
    last = monitor.history["new"][-1]
    assert (last.n_rows, np.isnan(last.z_reference_by_class[0]), monitor.history["absent"]) == (20_000, True, [])
    assert "no rows yet" in str(monitor)


@pytest.mark.filterwarnings("ignore:.*arrive at different times")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_of_a_cluster_are_one_arrival(n_classes):
    """Every row ten times: without clusters chance looks like drift, with them it does not; drift is still found."""
    rng = np.random.default_rng(0)
    alarms, clusters = {"ignored": 0, "used": 0, "drift": 0}, np.repeat(np.arange(150), 10)
    for _ in range(12):
        p, y = stream(4000, rng, n_classes=n_classes)
        monitors = {name: KeyEquationMonitor(y_reference=y, q_reference=p) for name in alarms}
        for _ in range(10):
            for drift, names in ((0.0, ("ignored", "used")), (0.8, ("drift",))):
                p, y = stream(150, rng, drift, n_classes)
                batch = {"q": np.repeat(p, 10, axis=0), "y": np.repeat(y, 10)}
                for name in names:
                    monitors[name].update(**batch, clusters=None if name == "ignored" else clusters)
        for name, monitor in monitors.items():
            alarms[name] += bool(monitor.alarms)
    assert alarms["ignored"] >= 3
    assert alarms["used"] <= 2
    assert alarms["drift"] >= 11


def test_unit_of_weights_does_not_change_the_evidence():
    (p, y), (p_new, y_new) = stream(3000, 0), stream(2000, 2, 0.3)
    w = np.random.default_rng(1).uniform(0.5, 2.0, 3000)
    found = []
    for unit in (1.0, 1e-4, 3e5):
        monitor = KeyEquationMonitor(y_reference=y, q_reference=p, sample_weight_reference=unit * w)
        monitor.update(q=p_new, y=y_new, sample_weight=unit * w[:2000])
        found.append(monitor.history[None][-1].log_evidence)
    assert found[1:] == pytest.approx([found[0]] * 2, rel=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("params", [{"tolerance": 0.05}, {"delay": 2}, {"segments": ["north", "south"]}])
def test_resuming_equals_going_on_to_the_last_bit(tmp_path, n_classes, params):
    p, y = stream(6000, 11, 1.5, n_classes)
    rng, w = np.random.default_rng(0), WEIGHTS[n_classes]
    names, sizes = rng.choice(["north", "south"], 6000), rng.uniform(0.5, 2.0, 6000)
    whole, parts = (monitor_of(w=w, **params) for _ in range(2))
    for week, rows in enumerate(np.split(np.arange(6000), 12)):
        batch = {"q": weighted(p[rows], w), "y": y[rows], "sample_weight": sizes[rows]}
        batch |= {"cohort": week} if "delay" in params else {"when": f"week {week}"}
        batch |= {"segment": names[rows]} if "segments" in params else {}
        assert whole.update(**batch) == parts.update(**batch)
        parts.to_json(tmp_path / "monitor.json")
        parts = KeyEquationMonitor.from_json(tmp_path / "monitor.json")
    assert whole.alarms[0].when.startswith("cohort" if "delay" in params else "week")
    assert (str(parts), json.dumps(parts.state())) == (str(whole), json.dumps(whole.state()))
    assert parts.n_held == (1500 if "delay" in params else 0)
    assert [path.name for path in tmp_path.iterdir()] == ["monitor.json"]


def test_rows_without_variance_wait_for_others():
    """q of 0 and 1 exactly, a row at a time: the same rows count in the end."""
    monitor, together = monitor_of(), monitor_of()
    for q, y in ((0.0, 0), (0.0, 1), (1.0, 1)):
        monitor.update(q=[q], y=[y])
    assert math.isnan(monitor.history[None][-1].z_by_class[0])
    assert KeyEquationMonitor.from_state(json.loads(json.dumps(monitor.state()))).state() == monitor.state()
    p, y = stream(500, 1)
    monitor.update(q=p, y=y)
    together.update(q=np.r_[0.0, 0.0, 1.0, p[:, 1]], y=np.r_[0, 1, 1, y])
    one, other = (
        (last.n_rows, *last.z_by_class, last.log_evidence)
        for last in (monitor.history[None][-1], together.history[None][-1])
    )
    assert one == pytest.approx(other)


def test_out_of_fold_rows_are_the_reference_and_any_classifier_will_do(rare_rows):
    X, y = rare_rows(400, seed=1)
    labels = np.where(y == 1, "fraud", "ok")  # the positive class is classes_[0]
    model = CRCENClassifierCV(hidden=[()], l2=[1e-3], cv=4, random_state=0, device="cpu").fit(X, labels)
    monitor = KeyEquationMonitor(model, y_reference=labels)
    q = np.column_stack([sigmoid(-model.oof_decision_function_), sigmoid(model.oof_decision_function_)])
    by_hand = KeyEquationMonitor(model, y_reference=labels, q_reference=q)
    assert monitor.state() == by_hand.state()
    assert monitor.state()["class_weights"][1] == model.weighting_.lam
    sums = monitor._tracks[None].reference
    assert abs(sums.residuals[1]) < 1e-9 * sums.flows.sum()  # solved on them
    X, y = rare_rows(300, seed=2)
    named = np.where(y == 1, "fraud", "ok")
    monitor.update(X, named)
    by_hand.update(q=model.weighted_proba(X), y=named)
    assert monitor.state() == by_hand.state()
    assert monitor.history[None][0].counts[1] == y.sum()
    resumed = KeyEquationMonitor.from_state(monitor.state(), model)
    assert resumed.update(X, named) == monitor.update(X, named)
    assert resumed.state() == monitor.state()
    other = LogisticRegression().fit(X, y)  # any classifier with probabilities will do
    monitor = KeyEquationMonitor(other)
    monitor.update(X=X, y=y)
    expected = crcen.key_equation(y, other.predict_proba(X)[:, 1], None).z
    assert monitor.history[None][0].z_by_class[0] == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert "the stream's own past" in str(monitor)


def test_models_of_three_classes_bring_labels_weights_and_out_of_fold_rows():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(900, 3))
    y = np.array(["fine", "worn", "broken"])[np.argmax(X + rng.gumbel(size=(900, 3)) + [2, 0, -0.5], axis=1)]
    other = LogisticRegression().fit(X, y)
    monitor = KeyEquationMonitor(other, y_reference=y, q_reference=other.predict_proba(X))
    assert monitor.update(X, y) == []
    assert monitor.history[None][-1].counts == tuple(np.unique(y, return_counts=True)[1])
    ours = CRCENClassifierCV({"fine": 1, "worn": 2, "broken": 9}, hidden=[()], l2=[1e-2], cv=2, max_epochs=20)
    monitor = KeyEquationMonitor(ours.fit(X, y), y_reference=y)
    assert monitor.reference_error.shape == (3,)
    # The out-of-fold rows were solved for: the model's error on them is 0.
    assert monitor._tracks[None].test.reference.drift == pytest.approx(np.zeros(3), abs=1e-9)
    assert monitor.update(X, y) == []
    resumed = KeyEquationMonitor.from_state(json.loads(json.dumps(monitor.state())), ours)
    assert resumed.state() == monitor.state()
    renamed = LogisticRegression().fit(X, np.where(y == "fine", "ok", y))
    for call, sentence in (
        (lambda: KeyEquationMonitor.from_state(monitor.state(), renamed), "belongs to a model with the classes"),
        (lambda: KeyEquationMonitor(ours, y_reference=np.where(y == "worn", "fine", y)), "labels in the order of fit"),
        (lambda: monitor.update(X, np.where(y == "worn", "ugly", y)), "only: got 'ugly'"),
        (lambda: KeyEquationMonitor(ours, weighting=[1, 2, 3]), "weighting_ is used"),
    ):
        with pytest.raises((InvalidInput, InvalidParameter), match=sentence):
            call()
    two = CRCENClassifier(CostMatrix([[0, 1], [5, 0]]), hidden=(), random_state=0).fit(X, y == "worn")
    watched = KeyEquationMonitor(two, y_reference=y == "worn", q_reference=two.weighted_proba(X))
    assert watched.update(X, y == "worn") == []


def test_the_plot_draws_the_readings():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monitor = monitor_of(20_000, segments=["a"])
    feed(monitor, *stream(8000, 3, 0.8), 8, segment=np.full(8000, "a"))
    ax = monitor.plot()
    drawn = {line.get_label(): np.asarray(line.get_ydata()) for line in ax.get_lines()}
    assert (drawn["all rows"] >= 0).argmax() + 1 == monitor.alarms[0].batch
    assert {"all rows", "a"} <= set(drawn)
    pyplot.close(ax.figure)


def audited(rng, n, drift=0.0, n_classes=2):
    """Probabilities, labels (missing where not checked) and audit probabilities; alarms are always checked."""
    p, y = stream(n, rng, drift, n_classes)
    risk = 1 - p[:, 0]
    e = np.where(risk > 0.3, 1.0, np.clip(0.5 * np.sqrt(risk), 0.05, 1.0))
    return p, np.where(rng.random(n) < e, y, np.nan), e


@pytest.mark.filterwarnings("ignore:.*arrive at different times")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_audited_labels_keep_the_false_alarm_rate_and_show_a_drift(n_classes):
    rng = np.random.default_rng(0)
    alarms, found = 0, 0
    for _ in range(40):
        p, y, e = audited(rng, 3000, n_classes=n_classes)
        rows = ~np.isnan(y)
        reference = {"y_reference": y[rows].astype(int), "q_reference": p[rows], "audit_probability_reference": e[rows]}
        quiet, moved = (KeyEquationMonitor(**reference, false_alarm_rate=0.1) for _ in range(2))
        for _ in range(12):
            for monitor, drift in ((quiet, 0.0), (moved, 1.0)):
                p, y, e = audited(rng, 500, drift, n_classes)
                monitor.update(q=p, y=y, audit_probability=e)
        alarms += bool(quiet.alarms)
        found += bool(moved.alarms)
    assert alarms <= binom.ppf(0.999, 40, 0.1)
    assert found >= 36


def test_audits_that_stop_are_reported_once_and_survive_the_state(tmp_path):
    rng = np.random.default_rng(1)
    monitor = KeyEquationMonitor()
    for _ in range(10):
        p, y, e = audited(rng, 400)
        monitor.update(q=p, y=y, audit_probability=e)
    assert not monitor.audits_have_stopped
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(5):
            p, y, e = audited(rng, 400)
            monitor.update(q=p, y=np.where(e < 1, np.nan, y), audit_probability=e)
            monitor.to_json(tmp_path / "m.json")
            monitor = KeyEquationMonitor.from_json(tmp_path / "m.json")
    assert sum("audits seem to have stopped" in str(one.message) for one in said) == 1
    assert (monitor.audits_have_stopped, "audits have stopped" in str(monitor)) == (True, True)


def test_state_and_readings_have_the_same_keys_for_any_number_of_classes():
    states = []
    for n_classes in (2, 3):
        p, y, e = audited(np.random.default_rng(2), 3000, n_classes=n_classes)
        monitor = KeyEquationMonitor(weighting=np.ones(n_classes), segments=["a"])
        monitor.update(q=p, y=y, audit_probability=e, segment="a")
        reading = monitor.history["a"][0]
        assert sum(reading.counts) == np.isfinite(y).sum()
        states.append([list(monitor.state()), *map(list, monitor.state()["tracks"]), list(reading.to_dict())])
    assert states[0] == states[1]


def test_evidence_is_the_mean_of_the_processes_of_all_classes_and_shares_sum_to_one():
    """Else a false alarm could come more often than stated: without rows it is 1, however many points are open."""
    w, sums = WEIGHTS[4], []
    for n, drift in ((2000, 0.0), (700, 0.4)):
        p, y = stream(n, 3 + len(sums), drift, 4)
        sums.append(stream_sums(y, weighted(p, w), Price(w, np.ones(4))))
    reference, tally = map(Tally.of, sums)
    test = DriftTest(reference, 0.3, 0.0)
    for number in range(7):
        assert test.log_evidence() == pytest.approx(0.0, abs=1e-12)
        test.starts.append(Start(0, number, Tally.none(4)))
    test = DriftTest(reference, 0.3, 0.0)
    test.add(tally, 1)
    alone = [process.log_evidence(one) for process, one in zip(test.processes, tally.likelihood, strict=True)]
    assert test.log_evidence() == pytest.approx(math.log(0.5 * np.mean(np.exp(alone)) + 0.5), rel=1e-9)
    assert test.change().test == 3


def test_tally_recovers_a_constant_drift_exactly():
    """E[missed] = e^d E[alarmed], whatever λ and the spread of p; exact expectations, no sampling."""
    q = np.linspace(0.02, 0.97, 40)
    for lam, d in ((0.5, 0.3), (0.9, -1.2), (0.2, 2.0)):
        p = q / (q + lam / (1 - lam) * (1 - q))
        chance = expit(np.log(p / (1 - p)) + d)
        tally = normal(0.0, 0.0, np.sum(chance * lam * (1 - q)), np.sum((1 - chance) * (1 - lam) * q))
        assert tally.drift == pytest.approx([-d, d], rel=1e-12)
    assert normal(6.0, 20.0, 1.0, 0.0).drift == pytest.approx([-0.3, 0.3])


def test_dispersion_is_at_least_one_and_widens_the_variance():
    assert StreamSums.none(2).dispersion == 1.0
    rng = np.random.default_rng(0)
    p = np.full(500, 0.2)
    sums = stream_sums((rng.random(500) < 0.4).astype(int), np.column_stack([1 - p, p]), Price.binary(0.5, 1, 1))
    assert sums.dispersion == pytest.approx(sums.squares[1] / sums.variance[1, 1])
    assert sums.dispersion > 1.2
    wide, plain = Tally.of(sums, 1.5), Tally.of(sums)
    for name in ("information", "score", "likelihood"):
        assert getattr(wide, name) == pytest.approx(getattr(plain, name) / 1.5)


def normal(score, information, missed=1.0, alarmed=1.0):
    """A tally of two classes with the likelihood of a normal score."""
    sides, likelihood = np.array([alarmed, missed]), score * GRID - information * GRID**2 / 2
    return Tally(np.array([-score, score]), np.full(2, information), sides, sides[::-1], likelihood[None])


def test_starting_points_open_as_the_past_grows():
    test = DriftTest(normal(0.0, 5.0), 0.3, 0.0)
    for batch in range(1, 101):
        test.add(normal(0.0, 1.0), batch)
    opened = [5.0 + start.before.information[1] for start in test.starts]
    assert opened[0] == 5.0
    assert all(later >= 1.12 * earlier for earlier, later in pairwise(opened))
    assert len(opened) == pytest.approx(1 + math.log(104 / 5) / math.log(1.12), abs=6)
    # Nothing happened: the evidence is below 1, and what is not opened yet keeps its weight.
    assert -math.log(2 * (len(opened) + 1)) < test.log_evidence() < 0
    for batch in range(101, 5000):
        test.add(normal(0.0, 50.0), batch)
    assert (len(test.starts), test.starts[0].number) == (40, 0)
    assert test.starts[-1].number > 60
    assert test.log_evidence() < 0
    # Without reference rows or a past there is no evidence.
    test = DriftTest(Tally.none(2), 0.3, 0.0)
    assert (test.log_evidence(), test.change()) == (0.0, None)
    test.add(normal(400.0, 1e3), 1)
    assert test.log_evidence() < math.log(10)


def noisy_test(rng, reference, looks, step, tolerance=0.0, drift=0.0):
    """Largest log evidence of one stream of normal scores whose model has an error of its own."""
    own = rng.normal(0, 1 / math.sqrt(reference))
    test = DriftTest(normal(0.0, reference), 0.3, tolerance)
    largest = 0.0
    for look, moved in enumerate(np.broadcast_to(drift, looks)):
        test.add(normal(rng.normal((own + moved) * step, math.sqrt(step)), step), look)
        largest = max(largest, test.log_evidence())
    return largest


def test_a_tolerated_drift_is_no_alarm_and_a_late_one_is_found_where_the_reference_is_small():
    rng = np.random.default_rng(3)
    tolerance = 0.2
    drift = np.tile(np.r_[np.full(10, tolerance), np.full(10, -tolerance)], 2)
    peaks = np.array([noisy_test(rng, 300.0, 40, 50.0, tolerance, drift) for _ in range(60)])
    assert (peaks >= math.log(20)).sum() <= binom.ppf(0.999, 60, 0.05)
    strict = np.array([noisy_test(rng, 300.0, 40, 50.0, 0.0, drift) for _ in range(20)])
    assert (strict >= math.log(20)).mean() > 0.9
    # With information 30 before the stream, +0.3 is within the model's error; against a quiet year it is not.
    rng = np.random.default_rng(4)
    late = np.r_[np.zeros(30), np.full(30, 0.3)]
    found = np.mean([noisy_test(rng, 30.0, 60, 40.0, drift=late) >= math.log(20) for _ in range(30)])
    first = np.mean([noisy_test(rng, 30.0, 60, 40.0, drift=0.3) >= math.log(20) for _ in range(30)])
    assert found > 0.9
    assert first < 0.6
