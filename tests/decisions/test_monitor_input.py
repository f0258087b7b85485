"""What KeyEquationMonitor refuses without a change of its state, and labels that become known later by class."""

import copy
import json
import tracemalloc
import warnings
from datetime import date, timedelta

import numpy as np
import pytest
from known_streams import WEIGHTS, monitor_of, stream
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import CRCENClassifier, CRCENClassifierCV, InvalidInput, InvalidParameter, KeyEquationMonitor
from crcen.theory.sequential import stream_sums

SETTINGS = {2: {"segments": ["a", "b"]}, 4: {"w": WEIGHTS[4]}}
TWO = {"q": [0.1, 0.2], "y": [0, 1]}
FOUR = {"q": np.full((2, 4), 1 / 4), "y": [0, 1]}


@pytest.mark.parametrize(
    ("n_classes", "batch", "sentence"),
    [
        (2, {"q": [0.1, 0.2]}, "needs the labels"),
        (2, {"y": [0, 1]}, "either the rows X or"),
        (2, {"X": [[1.0]], "q": [0.1], "y": [0]}, "not both"),
        (2, {"X": [[1.0]], "y": [0]}, "no model"),
        (2, TWO | {"y": [0, 2]}, r"\[0, 1\] only: got 2"),
        (2, TWO | {"y": [[0, 1]]}, "1-D"),
        (2, {"q": [], "y": []}, "at least one row"),
        (2, TWO | {"q": [0.1, 1.5]}, "are these logits"),
        (2, TWO | {"q": [[0.9], [0.8]]}, r"shape \(2, 2\) or \(2,\), got \(2, 1\)"),
        (2, TWO | {"q": np.full((2, 3), 1 / 3)}, "for other classes give the monitor a model of them"),
        (2, TWO | {"sample_weight": [1.0, -1.0]}, "not negative"),
        (2, TWO | {"segment": ["a", "c"]}, r"\(a, b\), got 'c'"),
        (2, TWO | {"segment": ["a"]}, "one name for each"),
        (2, TWO | {"segment": ["a", None]}, "None or NaN"),
        (2, TWO | {"segment": [1.0, np.nan]}, "None or NaN"),
        (2, TWO | {"when": 5}, "text"),
        (2, TWO | {"cohort": 8}, "create it with delay="),
        (2, TWO | {"audit_probability": [1.0, 1.0], "segment": ["a"]}, "one name for each"),
        (2, TWO | {"audit_probability": [0.5, 0.5], "y": [0, None], "segment": ["a"] * 3}, "one name for each"),
        *((2, TWO | {"audit_probability": [1.0, wrong]}, "in row 2") for wrong in (0.0, 1.5, -0.1, np.nan)),
        (4, FOUR | {"q": np.full((2, 3), 1 / 3)}, r"shape \(2, 4\), got \(2, 3\)"),
        (4, FOUR | {"q": np.full((3, 4), 1 / 4)}, r"shape \(2, 4\), got \(3, 4\)"),
        (4, FOUR | {"q": np.full((2, 4), 1 / 3)}, "each row with the sum 1"),
        (4, FOUR | {"y": [0, 4]}, "only: got 4"),
        (4, FOUR | {"sample_weight": [-1, 1]}, "not negative"),
    ],
)
def test_bad_batches_are_refused_and_change_nothing(n_classes, batch, sentence):
    monitor = monitor_of(400, **SETTINGS[n_classes])
    before = copy.deepcopy(monitor.state())
    with pytest.raises(InvalidInput, match=sentence):
        monitor.update(**batch)
    assert monitor.state() == before


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"false_alarm_rate": 0}, "false_alarm_rate"),
        ({"false_alarm_rate": 1.0}, "between 0 and 1"),
        ({"false_alarm_rate": "often"}, "false_alarm_rate"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"tolerance": np.nan}, "tolerance"),
        ({"tolerance": 30}, "at most 3"),
        ({"weighting": "balanced"}, "class counts"),
        ({"weighting": 2.0}, "λ"),
        ({"segments": "north"}, "list of distinct names"),
        ({"segments": ["a", "a"]}, "list of distinct names"),
        ({"q_reference": [0.1, 0.2]}, "q_reference needs the labels"),
        ({"segment_reference": ["a", "b"]}, "segment_reference needs"),
        ({"sample_weight_reference": [1, 1]}, "sample_weight_reference needs"),
        ({"y_reference": [0, 1]}, "only a CRCENClassifierCV"),
        ({"y_reference": [0, 0], "q_reference": [0.1, 0.2]}, "both classes"),
        ({"y_reference": [0, 1], "q_reference": [0.1, 0.2, 0.3]}, "shape"),
        ({"y_reference": [0, 3], "q_reference": [0.1, 0.2]}, r"\[0, 1\] only: got 3"),
        *(({"delay": delay}, "delay must be a whole number of at least 0") for delay in (-1, 1.5, "30", True)),
    ],
)
def test_bad_parameters_and_references_are_refused(params, sentence):
    with pytest.raises((InvalidParameter, InvalidInput), match=sentence):
        KeyEquationMonitor(**params)


def test_models_that_do_not_fit_are_refused(rare_rows):
    X, y = rare_rows(200)
    model, numbers = LogisticRegression().fit(X, np.where(y, "bad", "good")), LogisticRegression().fit(X, y)
    for watched, labels, sentence in (
        (LogisticRegression(), y, "fitted classifier of two classes, got LogisticRegression"),
        (model, np.where(y, "bad", "ugly"), r"\['bad', 'good'\] only: got 'ugly'"),
        (model, [], "1-D"),
        (model, np.where(y, "bad", "good")[:3], rf"y must have one label for each of {len(y)} rows: got 3\."),
        (numbers, y.astype(str), r"\[0, 1\] only: got '0'"),
        (numbers, np.where(y, 1.0, np.nan), "got nan"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            KeyEquationMonitor(watched).update(X, labels)
    ours = CRCENClassifier(hidden=(), random_state=0, device="cpu").fit(X, y)
    with pytest.raises(InvalidParameter, match="weighting_ is used"):
        KeyEquationMonitor(ours, weighting=0.9)
    with pytest.raises(InvalidInput, match="belongs to a model with the classes"):
        KeyEquationMonitor.from_state(saved(), ours)


def test_out_of_fold_references_must_be_the_training_labels(rare_rows):
    X, y = rare_rows(200)
    model = CRCENClassifierCV(hidden=[()], l2=[1e-2], cv=3, random_state=0, device="cpu").fit(X, y)
    with_gap = copy.copy(model)
    with_gap.oof_decision_function_ = np.where(np.arange(200) < 20, np.nan, model.oof_decision_function_)
    weights = {"sample_weight_reference": np.full(200, 2.0)}
    for watched, labels, given in ((model, y[:150], {}), (model, 1 - y, {}), (model, y, weights), (with_gap, y, {})):
        with pytest.raises(InvalidInput, match=r"the 200 training labels in the order of fit, .* each in a test fold"):
            KeyEquationMonitor(watched, y_reference=labels, **given)


def saved(n_classes=2):
    monitor = monitor_of(400, w=WEIGHTS[n_classes], segments=["a"])
    p, y = stream(20, 1, n_classes=n_classes)
    monitor.update(q=p, y=y, segment="a")
    return json.loads(json.dumps(monitor.state()))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda s: s.pop("format"), "must be of the format"),
        (lambda s: s.update(format="something"), "must be of the format"),
        (lambda s: s.update(version=99), "'version': 99"),
        (lambda s: s.pop("digest"), "damaged"),
        (lambda s: s.pop("classes"), "damaged"),
        (lambda s: s.update(n_batches=-1), "damaged"),
        (lambda s: s.update(alarms={1}, digest=""), "damaged"),
        (lambda s: s["tracks"].pop(), "damaged"),
        (lambda s: s["tracks"][0]["sums"].__setitem__(2, None), "damaged"),
        (lambda s: s["tracks"][0]["history"][0].update(z_by_class=3), "damaged"),
    ],
)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_damaged_states_are_refused(damage, sentence, n_classes):
    state = saved(n_classes)
    damage(state)
    with pytest.raises(InvalidInput, match=sentence):
        KeyEquationMonitor.from_state(state)


def test_a_program_that_writes_whole_numbers_without_a_point_does_no_damage():
    state = saved()
    whole = json.loads(
        json.dumps(state), parse_float=lambda text: int(float(text)) if text.endswith(".0") else float(text)
    )
    assert json.dumps(whole) != json.dumps(state)
    assert KeyEquationMonitor.from_state(whole).state() == KeyEquationMonitor.from_state(state).state()


@pytest.mark.parametrize("content", [b"{ not json", b"[1, 2]", b"\xff\xfe\x00", b"[" * 200_000])
def test_files_of_other_things_are_refused(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"must be a JSON file|must be of the format"):
        KeyEquationMonitor.from_json(tmp_path / "a.json")


def test_a_long_name_of_a_segment_is_not_paid_for_by_every_row():
    names = [*["north"] * 20_000, "x" * 20_000]
    monitor = KeyEquationMonitor(segments=["north", "x" * 20_000])
    tracemalloc.start()
    monitor.update(q=np.full(20_001, 0.1), y=np.arange(20_001) % 10 == 0, segment=names)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(readings) for readings in monitor.history.values()] == [1, 1, 1]
    assert peak < 400e6  # an array of strings would take 1.6 GB


def days_of_rows(n_days, seed=0, drift=0.0, from_day=0, rows_a_day=200):
    """Day, probability and label of each row; from a day on the odds are e^drift times what the model says."""
    day = np.repeat(np.arange(n_days), rows_a_day)
    (p, y), (_, moved) = stream(day.size, seed), stream(day.size, seed, drift)
    return day, p[:, 1], np.where(day >= from_day, moved, y)


def feed_as_known(monitor, day, p, y, lag, names=None):
    """Update day by day with the labels that become known: a negative at once, a positive after up to `lag` days."""
    known = day + np.where(y == 1, np.random.default_rng(5).integers(1, lag + 1, day.size), 0)
    for now in range(int(known.max()) + 1):
        rows = np.flatnonzero(known == now)
        if rows.size and monitor.delay is None:
            monitor.update(q=p[rows], y=y[rows])
        elif rows.size:
            of = np.arange(now + 1) if names is None else names
            monitor.update(q=p[rows], y=y[rows], cohort=of[day[rows]], now=of[now])
    return monitor


def feed_by_day(monitor, day, p, y):
    for one in range(day.max() + 1):
        monitor.update(q=p[day == one], y=y[day == one])
    return monitor


def test_positives_known_later_alarm_at_once_and_cohorts_do_not():
    n_false, n_held_back = 0, 0
    for seed in range(20):
        rows = days_of_rows(60, seed)
        hasty, patient = (feed_as_known(monitor_of(10_000, seed + 100, delay=delay), *rows, 10) for delay in (None, 10))
        patient.release(69)
        n_false += bool(hasty.alarms)
        n_held_back += bool(patient.alarms)
        # Days 0 to 58 lie more than ten days before day 69.
        assert (patient.n_batches, patient.n_late) == (59, 0)
    assert n_false >= 18
    assert n_held_back <= 3  # nominal .05: 4 or more of 20 have a chance of .016


def test_a_cohort_counts_once_it_is_complete_whatever_the_order_of_its_labels():
    rows = days_of_rows(40, 3)
    patient, closed = feed_as_known(monitor_of(delay=4), *rows, 4), feed_by_day(monitor_of(), *rows)
    patient.release(100)
    assert patient.n_held == 0
    ours, theirs = patient.history[None], closed.history[None]
    assert [reading.batch for reading in ours] == [reading.batch for reading in theirs]
    assert [reading.log_evidence for reading in ours] == pytest.approx([reading.log_evidence for reading in theirs])


def test_a_drift_is_found_and_called_after_its_cohort():
    first = date(2024, 3, 1)
    dates = np.array([first + timedelta(days=one) for one in range(70)])
    monitor = feed_as_known(monitor_of(10_000, 99, delay=5), *days_of_rows(60, 4, 0.8, 20), 5, dates)
    (alarm,) = monitor.alarms
    assert alarm.when == str(first + timedelta(days=alarm.batch - 1))
    assert alarm.batch > 20
    assert "rows wait for their cohort (delay 5)" in str(monitor)


def test_dates_may_be_text_and_rows_after_their_cohort_are_left_out_and_said():
    _, p, y = days_of_rows(3)
    cohorts, monitors = np.repeat(["2024-01-31", "2024-02-01", "2024-02-04"], 200), []
    for given in (cohorts, cohorts.astype("datetime64[ns]"), cohorts.tolist()):
        monitors.append(monitor_of(delay=2))
        monitors[-1].update(q=p, y=y, cohort=given)
    assert monitors[0].state() == monitors[1].state() == monitors[2].state()
    # 4 February is more than two days after the other two.
    assert (monitors[0].n_batches, monitors[0].n_held) == (2, 200)
    monitor = monitor_of(delay=1)
    monitor.update(q=p[:400], y=y[:400], cohort=np.repeat([0, 5], 200))
    with pytest.warns(UserWarning, match="2 rows came after their cohort was complete"):
        monitor.update(q=[0.1, 0.2, 0.3], y=[0, 1, 1], cohort=[0, 3, 5])
    assert (monitor.n_late, monitor.n_held) == (2, 201)
    assert "2 left out: too late" in str(monitor)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"cohort": None}, "needs the cohort"),
        *(
            ({"cohort": wrong}, r"whole numbers or dates such as .* got")
            for wrong in (0.5, np.nan, "May", np.datetime64("NaT"), [1, 2])
        ),
        ({"cohort": "2024-01-01"}, "dates every time, or numbers"),
        ({"cohort": 8, "now": "2024-01-01"}, "dates every time, or numbers"),
        ({"cohort": 8, "now": 7}, "none of the rows being later"),
        ({"cohort": 8, "when": "May"}, "not given with delay="),
    ],
)
def test_cohorts_that_cannot_be_are_refused(more, sentence):
    monitor = KeyEquationMonitor(delay=3)
    monitor.update(q=[0.1], y=[0], cohort=7)
    with pytest.raises(InvalidInput, match=sentence):
        monitor.update(q=[0.1], y=[0], **more)
    assert monitor.n_held == 1
    with pytest.raises(InvalidInput, match="create it with delay="):
        KeyEquationMonitor().release(8)


def test_positives_first_in_every_window_are_said_once():
    day, p, y = days_of_rows(30, 6)
    monitor = monitor_of(10_000, 99)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for one in range(30):
            for label in (1, 0):
                rows = (day == one) & (y == label)
                monitor.update(q=p[rows], y=y[rows])
    (said,) = caught
    assert str(said.message).startswith("rows of class 1 and others seem to arrive at different times")
    assert "delay=" in str(said.message)
    assert said.filename == __file__


def test_neither_chance_nor_a_change_of_the_world_is_taken_for_an_order(recwarn):
    for seed in range(20):
        feed_by_day(monitor_of(10_000, seed + 99), *days_of_rows(200, seed, rows_a_day=100))
    monitor = monitor_of(10_000, 99)
    for drift in (0.0, 3.0, -3.0):  # up, and down again
        feed_by_day(monitor, *days_of_rows(20, 8, drift, rows_a_day=500))
    assert monitor.alarms
    assert not recwarn.list


def test_the_state_does_not_grow_with_batches():
    monitor, (p, y), price = monitor_of(10_000, 99), stream(50_000, 0), crcen.resolve(None, 1, 1)
    pieces = [stream_sums(y[i : i + 50], p[i : i + 50], price) for i in range(0, 50_000, 50)]
    sizes = []
    for batch in range(8_000):
        monitor._take([(None, {None: pieces[batch % 1000]})])
        if batch + 1 in (1_000, 8_000):
            sizes.append(len(json.dumps(monitor.state())))
    assert sizes[1] < 1.5 * sizes[0] < 600_000
    batches = [reading.batch for reading in monitor.history[None]]
    assert len(batches) <= 512
    assert batches[-256:] == list(range(8_000 - 255, 8_001))  # the latest are all there
    assert batches == sorted(set(batches))
    assert batches[0] == 1  # and so is the beginning
    assert max(np.diff(batches)) < 1_000  # old times are kept coarsely, none is left out
