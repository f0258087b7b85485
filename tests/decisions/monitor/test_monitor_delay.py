"""Labels that become known at different times by class: cohorts held back, and a warning where the order shows it."""

import json
import warnings
from datetime import date, timedelta

import numpy as np
import pytest

import crcen
from crcen import InvalidInput, InvalidParameter, KeyEquationMonitor
from crcen.theory.price import sigmoid
from crcen.theory.sequential import stream_sums


def days_of_rows(n_days, rows_a_day=200, seed=0, drift=0.0, from_day=0):
    """Day, probability and label of each row; from a day on the odds are e^drift times what the model says."""
    rng = np.random.default_rng(seed)
    day = np.repeat(np.arange(n_days), rows_a_day)
    p = rng.beta(1, 9, day.size)
    shifted = sigmoid(np.log(p / (1 - p)) + np.where(day >= from_day, drift, 0.0))
    return day, p, (rng.random(day.size) < shifted).astype(int)


def with_reference(seed=99, n=10000, **settings):
    rng = np.random.default_rng(seed)
    p = rng.beta(1, 9, n)
    return KeyEquationMonitor(y_reference=(rng.random(n) < p).astype(int), q_reference=p, **settings)


def by_arrival(day, y, lag):
    """The day on which each label is known: a negative at once, a positive after up to `lag` days."""
    rng = np.random.default_rng(5)
    known = day + np.where(y == 1, rng.integers(1, lag + 1, day.size), 0)
    return [(now, np.flatnonzero(known == now)) for now in range(int(known.max()) + 1)]


def test_positives_known_later_alarm_at_once_and_cohorts_do_not():
    n_false, n_held_back = 0, 0
    for seed in range(20):
        day, p, y = days_of_rows(60, seed=seed)
        hasty, patient = with_reference(seed + 100), with_reference(seed + 100, delay=10)
        for now, rows in by_arrival(day, y, lag=10):
            if rows.size:
                hasty.update(q=p[rows], y=y[rows])
                patient.update(q=p[rows], y=y[rows], cohort=day[rows], now=now)
        patient.release(69)
        n_false += bool(hasty.alarms)
        n_held_back += bool(patient.alarms)
        assert patient.n_batches == 59  # days 0 to 58 lie more than ten days before day 69
        assert patient.n_late == 0
    assert n_false >= 18
    assert n_held_back <= 3  # nominal .05: 4 or more of 20 have a chance of .016


def test_a_cohort_counts_once_it_is_complete_whatever_the_order_of_its_labels():
    day, p, y = days_of_rows(40, seed=3)
    patient, closed = with_reference(delay=4), with_reference()
    for now, rows in by_arrival(day, y, lag=4):
        if rows.size:
            patient.update(q=p[rows], y=y[rows], cohort=day[rows], now=now)
    patient.release(100)
    for one in range(40):
        closed.update(q=p[day == one], y=y[day == one])
    assert patient.n_held == 0
    ours, theirs = patient.history[None], closed.history[None]
    assert [reading.batch for reading in ours] == [reading.batch for reading in theirs]
    assert [reading.log_evidence for reading in ours] == pytest.approx([reading.log_evidence for reading in theirs])


def test_a_drift_is_found_and_called_after_its_cohort():
    first = date(2024, 3, 1)
    day, p, y = days_of_rows(60, seed=4, drift=0.8, from_day=20)
    monitor = with_reference(delay=5)
    dates = np.array([first + timedelta(days=int(d)) for d in range(60)])
    for now, rows in by_arrival(day, y, lag=5):
        if rows.size:
            monitor.update(q=p[rows], y=y[rows], cohort=dates[day[rows]], now=first + timedelta(days=now))
    (alarm,) = monitor.alarms
    assert alarm.when == str(first + timedelta(days=alarm.batch - 1))
    assert alarm.batch > 20
    assert "rows wait for their cohort (delay 5)" in str(monitor)


def test_dates_as_text_and_as_numpy_are_the_same():
    monitors = [with_reference(delay=2) for _ in range(3)]
    _, p, y = days_of_rows(3)
    cohorts = np.repeat(["2024-01-31", "2024-02-01", "2024-02-04"], 200)
    monitors[0].update(q=p, y=y, cohort=cohorts)
    monitors[1].update(q=p, y=y, cohort=cohorts.astype("datetime64[ns]"))
    monitors[2].update(q=p, y=y, cohort=cohorts.tolist())
    assert monitors[0].state() == monitors[1].state() == monitors[2].state()
    assert monitors[0].n_batches == 2  # 4 February is more than two days after the other two
    assert monitors[0].n_held == 200


def test_rows_after_their_cohort_are_left_out_and_said():
    _, p, y = days_of_rows(3)
    monitor = with_reference(delay=1)
    monitor.update(q=p[:400], y=y[:400], cohort=np.repeat([0, 5], 200))
    with pytest.warns(UserWarning, match=r"2 rows \(1 of 0, 1 of 1\) came after their cohort was complete"):
        monitor.update(q=[0.1, 0.2, 0.3], y=[0, 1, 1], cohort=[0, 3, 5])
    assert monitor.n_late == 2
    assert monitor.n_held == 201
    assert "2 left out: too late" in str(monitor)


ROW = {"q": [0.1], "y": [0]}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"cohort": None}, "needs the cohort"),
        ({"cohort": 0.5}, "whole numbers"),
        ({"cohort": np.nan}, "whole numbers"),
        ({"cohort": "May"}, "dates such as '2024-05-01'"),
        ({"cohort": np.datetime64("NaT")}, "a missing date"),
        ({"cohort": [1, 2]}, "one value for each of the 1 rows"),
        ({"cohort": "2024-01-01"}, "dates every time, or numbers"),
        ({"cohort": 8, "now": "2024-01-01"}, "dates every time, or numbers"),
        ({"cohort": 8, "now": 7}, "none of the rows being later"),
        ({"cohort": 8, "when": "May"}, "not given with delay="),
    ],
)
def test_cohorts_that_cannot_be_are_refused(more, sentence):
    monitor = KeyEquationMonitor(delay=3)
    monitor.update(**ROW, cohort=7)
    with pytest.raises(InvalidInput, match=sentence):
        monitor.update(**ROW, **more)
    assert monitor.n_held == 1


def test_cohorts_need_a_delay_of_whole_numbers():
    with pytest.raises(InvalidInput, match="make it with delay="):
        KeyEquationMonitor().update(**ROW, cohort=8)
    with pytest.raises(InvalidInput, match="make it with delay="):
        KeyEquationMonitor().release(8)
    for delay in (-1, 1.5, "30", True):
        with pytest.raises(InvalidParameter, match="delay must be a whole number of at least 0"):
            KeyEquationMonitor(delay=delay)


# -- the order of arrival ----------------------------------------------------------------------------------------


def test_positives_first_in_every_window_are_said_once():
    day, p, y = days_of_rows(30, seed=6)
    monitor = with_reference()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for one in range(30):
            for label in (1, 0):
                rows = (day == one) & (y == label)
                monitor.update(q=p[rows], y=y[rows])
    assert [str(w.message).split(":")[0] for w in caught] == [
        "rows of class 1 and others seem to arrive at different times"
    ]
    assert "delay=" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_neither_chance_nor_a_change_of_the_world_is_taken_for_an_order(recwarn):
    for seed in range(20):
        monitor = with_reference(seed)
        day, p, y = days_of_rows(200, 100, seed=seed)
        for one in range(200):
            monitor.update(q=p[day == one], y=y[day == one])
    monitor = with_reference()
    for from_day, drift in ((0, 0.0), (0, 3.0), (0, -3.0)):  # up, and down again
        day, p, y = days_of_rows(20, 500, seed=8, drift=drift, from_day=from_day)
        for one in range(20):
            monitor.update(q=p[day == one], y=y[day == one])
    assert monitor.alarms
    assert not recwarn.list


# -- size of the state -------------------------------------------------------------------------------------------


def test_the_state_does_not_grow_with_batches():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 9, 50000)
    y = rng.random(50000) < p
    monitor = with_reference()
    columns, price = np.column_stack([1 - p, p]), crcen.resolve(None, 1, 1)
    pieces = [stream_sums(y[i : i + 50].astype(int), columns[i : i + 50], price) for i in range(0, 50000, 50)]
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
