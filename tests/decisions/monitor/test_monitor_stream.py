"""KeyEquationMonitor on streams with a known posterior: readings, alarms, segments, resuming, models."""

import json
import math
import warnings

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import CRCENClassifier, CRCENClassifierCV, KeyEquationMonitor
from crcen.decisions.monitor.track import DriftAlarm
from crcen.exceptions import MissingExtra
from crcen.theory.decision import sigmoid, weighted_probability


def stream(n, seed, drift=0.0):
    """Natural posterior of a right model, and labels at its log-odds plus a drift."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-2.5, 1.0, n)
    return expit(logits), (rng.random(n) < expit(logits + drift)).astype(int)


def monitor_of(n=4000, seed=0, weighting=None, **params):
    p, y = stream(n, seed)
    return KeyEquationMonitor(weighting=weighting, y_reference=y, q_reference=weighted(p, weighting), **params)


def weighted(p, weighting):
    return weighted_probability(p, weighting)


def feed(monitor, p, y, batches, weighting=None, **columns):
    found = []
    for rows in np.array_split(np.arange(len(y)), batches):
        parts = {name: np.asarray(values)[rows] for name, values in columns.items()}
        found += monitor.update(q=weighted(p[rows], weighting), y=y[rows], **parts)
    return found


@pytest.mark.parametrize("weighting", [None, 0.9])
def test_readings_are_those_of_all_rows_so_far(weighting):
    monitor = monitor_of(weighting=weighting)
    p, y = stream(3000, 1)
    feed(monitor, p, y, 7, weighting)
    last = monitor.history[None][-1]
    whole = crcen.key_equation(y, weighted(p, weighting), crcen.resolve(weighting, y.sum(), (1 - y).sum()))
    assert (last.segment, last.batch, last.n_rows, last.n_pos) == (None, 7, 3000, y.sum())
    assert last.z == pytest.approx(whole.z, rel=1e-9)
    p0, y0 = stream(4000, 0)
    lam = weighting or 0.5
    sides = [
        lam * np.sum(1 - weighted(a, weighting)[b == 1]) / ((1 - lam) * np.sum(weighted(a, weighting)[b == 0]))
        for a, b in ((p, y), (p0, y0))
    ]
    assert last.drift == pytest.approx(math.log(sides[0] / sides[1]), rel=1e-9)
    assert abs(last.z_reference) < 4
    assert not monitor.alarms
    assert "no alarm" in str(monitor)


def test_the_reference_error_is_the_spread_of_models_fitted_to_as_many_rows():
    """For p(y) alone: a model that fits one rate to 2,000 rows is off by sqrt(1/(n p(1−p))) in log-odds."""
    rng = np.random.default_rng(0)
    rates = rng.binomial(2000, 0.2, 4000) / 2000
    y = np.arange(2000) < 400
    monitor = KeyEquationMonitor(y_reference=y, q_reference=np.full(2000, 0.2))
    spread = np.std(np.log(rates / (1 - rates)))
    assert monitor.reference_error == pytest.approx(spread, rel=0.05)
    assert KeyEquationMonitor().reference_error == math.inf


def test_a_drift_is_found_dated_and_measured():
    monitor = monitor_of(20000, false_alarm_rate=0.01)
    feed(monitor, *stream(10000, 2), 10)
    found = feed(monitor, *stream(10000, 3, drift=0.6), 10)
    assert [alarm.segment for alarm in found] == [None]
    assert monitor.alarms == found
    alarm = found[0]
    assert isinstance(alarm, DriftAlarm)
    assert 11 <= alarm.batch <= 14
    assert 8 <= alarm.since_batch <= 12
    assert alarm.drift == pytest.approx(0.6, abs=3 * alarm.drift_error)
    assert alarm.log_evidence >= math.log(100)
    assert "ALARM: drift of class 1 in all rows" in str(monitor)


def test_a_negative_drift_is_found():
    monitor = monitor_of(20000)
    found = feed(monitor, *stream(20000, 4, drift=-0.6), 20)
    assert found[0].drift == pytest.approx(-0.6, abs=3 * found[0].drift_error)


def test_a_tolerated_drift_is_no_alarm_and_a_larger_one_is():
    p, y = stream(60000, 5, drift=0.3)
    assert feed(monitor_of(60000, tolerance=0.35), p, y, 20) == []
    assert feed(monitor_of(60000), p, y, 20)
    assert feed(monitor_of(60000, tolerance=0.35), *stream(60000, 5, drift=0.9), 20)


def test_false_alarms_of_fitted_models_over_whole_streams():
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
        naive += max(abs(reading.z) for reading in monitor.history[None]) > 1.645
    assert alarms <= binom.ppf(0.999, trials, 0.1)
    assert naive > 0.5 * trials  # what looking often at a fixed test does


# -- segments ----------------------------------------------------------------------------------------------------


def segmented(n, seed, drifted=None, drift=0.8):
    p, y = stream(n, seed)
    names = np.random.default_rng(seed).choice(["east", "north", "west"], n)
    if drifted:
        mine = names == drifted
        y[mine] = (
            np.random.default_rng(seed + 1).random(mine.sum()) < expit(np.log(p / (1 - p)) + drift)[mine]
        ).astype(int)
    return p, y, names


def test_a_drift_in_one_segment_is_found_there():
    p, y, names = segmented(30000, 7)
    monitor = KeyEquationMonitor(y_reference=y, q_reference=p, segment_reference=names)
    assert monitor.segments == ["east", "north", "west"]
    p, y, names = segmented(30000, 8, drifted="north")
    found = feed(monitor, p, y, 30, segment=names)
    assert found[0].segment in {"north", None}
    assert {alarm.segment for alarm in found} >= {"north"}
    assert not {"east", "west"} & {alarm.segment for alarm in found}
    north = monitor.history["north"][-1]
    assert north.n_rows == (names == "north").sum()
    assert north.z == pytest.approx(crcen.key_equation(y[names == "north"], p[names == "north"], None).z, rel=1e-9)


def test_the_rate_is_shared_out_over_all_tests():
    monitor = KeyEquationMonitor(segments=["a", "b", "c", "d"], false_alarm_rate=0.04)
    levels = [track.level for track in monitor._tracks.values()]
    assert levels == pytest.approx([0.02] + [0.005] * 4)
    assert sum(levels) == pytest.approx(0.04)
    assert [track.level for track in KeyEquationMonitor(false_alarm_rate=0.04)._tracks.values()] == [0.04]


def test_one_name_stands_for_a_whole_batch_and_a_segment_may_be_absent():
    monitor = monitor_of(segments=["a", "b"])
    p, y = stream(500, 9)
    monitor.update(q=p, y=y, segment="a")
    assert monitor.history["a"][-1].n_rows == 500
    assert monitor.history["b"] == []
    assert "no rows yet" in str(monitor)


def test_a_segment_without_reference_rows_is_compared_with_its_own_past():
    monitor = monitor_of(20000, segments=["new"])
    p, y = stream(10000, 10)
    feed(monitor, p, y, 10, segment=np.full(10000, "new"))
    assert math.isnan(monitor.history["new"][-1].z_reference)
    p, y = stream(10000, 11, drift=0.8)
    found = feed(monitor, p, y, 10, segment=np.full(10000, "new"))
    assert {alarm.segment for alarm in found} == {None, "new"}


# -- state -------------------------------------------------------------------------------------------------------


def test_resuming_equals_going_on_to_the_last_bit(tmp_path):
    p, y, names = segmented(6000, 12, drifted="west", drift=1.5)
    s = np.random.default_rng(0).uniform(0.5, 2.0, 6000)
    settings = {"segments": ["east", "north", "west"], "tolerance": 0.05, "false_alarm_rate": 0.1}
    straight = monitor_of(weighting=0.8, **settings)
    broken = monitor_of(weighting=0.8, **settings)
    for part, rows in enumerate(np.array_split(np.arange(6000), 12)):
        batch = {"q": weighted(p[rows], 0.8), "y": y[rows], "segment": names[rows], "sample_weight": s[rows]}
        assert straight.update(**batch, when=f"week {part}") == broken.update(**batch, when=f"week {part}")
        broken.to_json(tmp_path / "monitor.json")
        broken = KeyEquationMonitor.from_json(tmp_path / "monitor.json")
    assert broken.state() == straight.state()
    assert json.dumps(broken.state()) == json.dumps(straight.state())
    assert straight.alarms
    assert straight.alarms[0].when.startswith("week")
    assert str(broken) == str(straight)
    assert [path.name for path in tmp_path.iterdir()] == ["monitor.json"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    monitor = monitor_of()
    monitor.to_json(tmp_path / "monitor.json")
    before = (tmp_path / "monitor.json").read_text()
    feed(monitor, *stream(200, 1), 1)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises((crcen.CrcenError, OSError)):
        monitor.to_json(tmp_path / "monitor.json")
    assert (tmp_path / "monitor.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["monitor.json"]


def test_rows_without_variance_wait_for_others():
    """q of 0 and 1 exactly, a row at a time: the same rows count in the end."""
    monitor = monitor_of()
    for q, y in ((0.0, 0), (0.0, 1), (1.0, 1)):
        monitor.update(q=[q], y=[y])
    assert math.isnan(monitor.history[None][-1].z)
    assert KeyEquationMonitor.from_state(json.loads(json.dumps(monitor.state()))).state() == monitor.state()
    p, y = stream(500, 1)
    monitor.update(q=p, y=y)
    together = monitor_of()
    together.update(q=np.r_[0.0, 0.0, 1.0, p], y=np.r_[0, 1, 1, y])
    one, other = monitor.history[None][-1], together.history[None][-1]
    assert (one.n_rows, one.z) == (other.n_rows, pytest.approx(other.z))
    assert one.log_evidence == pytest.approx(other.log_evidence)


# -- models ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def search(rare_rows):
    X, y = rare_rows(400, seed=1)
    labels = np.where(y == 1, "fraud", "ok")  # the positive class is classes_[0]
    model = CRCENClassifierCV(hidden=[()], l2=[1e-3], cv=4, random_state=0, device="cpu").fit(X, labels)
    return model, labels


def test_out_of_fold_rows_are_the_reference(search, rare_rows):
    model, labels = search
    monitor = KeyEquationMonitor(model, y_reference=labels)
    q = np.column_stack([sigmoid(-model.oof_decision_function_), sigmoid(model.oof_decision_function_)])
    by_hand = KeyEquationMonitor(model, y_reference=labels, q_reference=q)
    assert monitor.state() == by_hand.state()
    sums = monitor._tracks[None].reference
    assert sums.counts[1] == (labels == "fraud").sum()
    assert abs(sums.residuals[1]) < 1e-9 * sums.flows.sum()  # solved on them
    X, y = rare_rows(300, seed=2)
    named = np.where(y == 1, "fraud", "ok")
    monitor.update(X, named)
    by_hand.update(q=model.weighted_proba(X), y=named)
    assert monitor.state() == by_hand.state()
    assert monitor.history[None][0].n_pos == y.sum()
    resumed = KeyEquationMonitor.from_state(monitor.state(), model)
    assert resumed.update(X, named) == monitor.update(X, named)
    assert resumed.state() == monitor.state()


def test_any_classifier_with_probabilities_will_do(rare_rows):
    X, y = rare_rows(400, seed=3)
    model = LogisticRegression().fit(X, y)
    monitor = KeyEquationMonitor(model)
    monitor.update(X=X, y=y)
    assert monitor.history[None][0].z == pytest.approx(
        crcen.key_equation(y, model.predict_proba(X)[:, 1], None).z, rel=1e-6, abs=1e-6
    )
    assert "the stream's own past" in str(monitor)


def test_a_plain_network_brings_its_weighting(rare_rows):
    X, y = rare_rows(200, seed=4)
    model = CRCENClassifier(hidden=(), random_state=0, device="cpu").fit(X, y)
    assert KeyEquationMonitor(model).state()["class_weights"][1] == model.weighting_.lam


# -- the plot ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantity", ["evidence", "z", "drift"])
def test_the_plot_draws_the_readings(quantity):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monitor = monitor_of(20000, segments=["a"])
    feed(monitor, *stream(8000, 3, drift=0.8), 8, segment=np.full(8000, "a"))
    figure, ax = pyplot.subplots()
    assert monitor.plot(ax, quantity=quantity) is ax
    drawn = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    readings = monitor.history[None]
    if quantity == "evidence":
        crossed = np.asarray(drawn["all rows"]) >= 0
        assert crossed.argmax() + 1 == monitor.alarms[0].batch
    else:
        assert drawn["all rows"] == pytest.approx([getattr(reading, quantity) for reading in readings])
    assert {"all rows", "a"} <= set(drawn)
    pyplot.close(figure)


def test_the_plot_names_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtra, match=r"crcen\[plots\]"):
        monitor_of().plot()


@pytest.mark.filterwarnings("ignore:.*arrive at different times")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_of_a_cluster_are_one_arrival(n_classes):
    """Every row ten times: without clusters chance looks like drift, with them it does not; drift is still found."""
    rng = np.random.default_rng(0)

    def rows(n, drift=0.0):
        logits = np.column_stack([np.zeros(n), *(rng.normal(-2.0, 1.0, (n_classes - 1, n)))])
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        moved = p * np.exp(drift * np.eye(n_classes)[-1])
        moved /= moved.sum(axis=1, keepdims=True)
        y = np.minimum((rng.random(n)[:, None] > np.cumsum(moved, axis=1)).sum(axis=1), n_classes - 1)
        return (p[:, 1] if n_classes == 2 else p), y

    alarms = {"ignored": 0, "used": 0, "drift": 0}
    weighting = None if n_classes == 2 else [1.0, 1.0, 1.0]
    for _ in range(12):
        p, y = rows(4000)
        monitors = {name: KeyEquationMonitor(weighting=weighting, y_reference=y, q_reference=p) for name in alarms}
        for _ in range(10):
            for drift, names in ((0.0, ("ignored", "used")), (0.8, ("drift",))):
                p, y = rows(150, drift)
                q, labels, clusters = np.repeat(p, 10, axis=0), np.repeat(y, 10), np.repeat(np.arange(150), 10)
                for name in names:
                    monitors[name].update(q=q, y=labels, clusters=None if name == "ignored" else clusters)
        for name, monitor in monitors.items():
            alarms[name] += bool(monitor.alarms)
    assert alarms["ignored"] >= 3
    assert alarms["used"] <= 2
    assert alarms["drift"] >= 11


def test_unit_of_weights_does_not_change_the_evidence():
    p, y = stream(3000, 0)
    w = np.random.default_rng(1).uniform(0.5, 2.0, 3000)
    p_new, y_new = stream(2000, 2, 0.3)
    found = []
    for unit in (1.0, 1e-4, 3e5):
        monitor = KeyEquationMonitor(y_reference=y, q_reference=p, sample_weight_reference=unit * w)
        monitor.update(q=p_new, y=y_new, sample_weight=unit * w[:2000])
        found.append(monitor.history[None][-1].log_evidence)
    assert found[1:] == pytest.approx([found[0]] * 2, rel=1e-9)


# -- audits ------------------------------------------------------------------------------------------------------


def audited(rng, n, drift=0.0, n_classes=2):
    """Probabilities, labels (missing where not checked) and audit probabilities; alarms are always checked."""
    logits = np.column_stack([np.zeros(n), *rng.normal(-2.5, 1.0, (n_classes - 1, n))])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    moved = p * np.exp(drift * np.eye(n_classes)[-1])
    moved /= moved.sum(axis=1, keepdims=True)
    y = np.minimum((rng.random(n)[:, None] > np.cumsum(moved, axis=1)).sum(axis=1), n_classes - 1).astype(float)
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
    assert monitor.audits_have_stopped
    assert "audits have stopped" in str(monitor)


@pytest.mark.parametrize("wrong", [0.0, 1.5, -0.1, np.nan])
def test_audit_probabilities_that_cannot_be_are_refused_with_the_row(wrong):
    monitor = KeyEquationMonitor()
    before = monitor.state()
    with pytest.raises(crcen.InvalidInput, match="in row 2"):
        monitor.update(q=[0.1, 0.2, 0.3], y=[0, 1, None], audit_probability=[1.0, wrong, np.nan])
    assert monitor.state() == before


@pytest.mark.parametrize("n_classes", [2, 3])
def test_state_and_readings_have_the_same_keys_for_any_number_of_classes(n_classes):
    rng = np.random.default_rng(2)
    p, y, e = audited(rng, 3000, n_classes=n_classes)
    monitor = KeyEquationMonitor(weighting=np.ones(n_classes), segments=["a"])
    monitor.update(q=p, y=y, audit_probability=e, segment="a")
    two = KeyEquationMonitor(segments=["a"])
    two.update(q=[0.2, 0.4], y=[0, 1], segment="a")
    assert list(monitor.state()) == list(two.state())
    assert [list(one) for one in monitor.state()["tracks"]] == [list(one) for one in two.state()["tracks"]]
    assert list(monitor.history["a"][0].to_dict()) == list(two.history["a"][0].to_dict())
    assert sum(monitor.history["a"][0].counts) == np.isfinite(y).sum()
