"""A watch of a model: planted faults are found, quiet rows stay quiet, states belong to their model."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import Budget, CostMatrix, CRCENClassifierCV, InvalidInput, TableClassifier, monitor_table, save
from crcen.commands.monitor import ExpectedFigures
from crcen.commands.rules import RowRule
from crcen.theory.metrics import expected_shares

QUICK = {"hidden": (), "max_epochs": 10, "random_state": 0, "l2": 1e-3, "encoding": "standard", "n_members": 1}


def table(n, seed, shift=0.0):
    """Mixed rows whose labels follow known log-odds, all of them moved by ``shift``."""
    rng = np.random.default_rng(seed)
    balance, region = rng.gamma(2.0, 900.0, n).round(2), rng.choice(["north", "south", "east"], n, p=[0.5, 0.3, 0.2])
    age = np.where(rng.random(n) < 0.05, np.nan, rng.integers(18, 90, n))
    frame = pd.DataFrame({"balance": balance, "region": region, "age": age})
    log_odds = -3.5 + frame.balance / 1000 + (frame.region == "north") + shift
    labels = np.where(rng.random(n) < 1 / (1 + np.exp(-log_odds)), "bad", "good")
    return frame, pd.Series(labels, name="state")


@pytest.fixture(scope="module")
def model():
    frame, y = table(3000, 0)
    return TableClassifier(estimator=CRCENClassifierCV(Budget(4), cv=3, **QUICK), random_state=0).fit(frame, y)


def rows(n, seed, labelled=True, **options):
    frame, y = table(n, seed, **options)
    return frame.assign(state=y) if labelled else frame


def test_rows_like_those_of_training_are_quiet(model, tmp_path):
    state = tmp_path / "watch.json"
    for call in range(1, 5):
        watch = monitor_table(model, rows(500, 10 + call), state=state, when=f"day {call}")
        assert (watch.is_alarm, watch.call, watch.n_labelled) == (False, call, 500)
    kept = json.loads(state.read_text())
    assert kept["n_calls"] == 4
    assert [call["when"] for call in kept["history"]] == [f"day {call}" for call in range(1, 5)]
    assert watch.reading.n_rows == 2000
    assert "Quiet" in str(watch)
    subjects = [line.split()[0] for line in str(watch).splitlines()[1:] if line[0] != " "]
    assert subjects == ["Rows", "Decisions", "Columns", "Expected", "Labels", "Guarantee", "State"]
    assert "balance" not in state.read_text()  # nothing of the rows
    assert not any("training rows" in note for note in watch.notes)
    assert "rows compared are training rows" in monitor_table(model, rows(3000, 0)).notes[0]


FAULTS = {
    "missing": lambda frame: frame.assign(age=np.where(np.arange(len(frame)) % 3 == 0, np.nan, frame.age)),
    "unseen": lambda frame: frame.assign(region=frame.region.where(np.arange(len(frame)) % 8 > 0, "west")),
    "scale": lambda frame: frame.assign(balance=frame.balance * 100),
    "distribution": lambda frame: frame.assign(age=frame.age.clip(lower=50)),
    "categories": lambda frame: frame.assign(region=frame.region.replace("south", "east")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found_without_labels(model, tmp_path, fault):
    state = tmp_path / "watch.json"
    monitor_table(model, rows(600, 50, labelled=False), state=state)
    watch = monitor_table(model, FAULTS[fault](rows(600, 51, labelled=False)), state=state)
    assert fault in {one.kind for one in watch.unlike}
    assert (watch.is_alarm, watch.n_labelled) == (True, 0)
    for part in ("differences from training", "none yet"):
        assert part in str(watch)
    assert str(watch).startswith("ALARM: differences from training\n")
    assert not monitor_table(model, rows(600, 52, labelled=False), state=state).is_alarm  # it was about those rows


def test_labels_that_moved_raise_an_alarm_which_stays(model, tmp_path):
    state = tmp_path / "watch.json"
    for call in range(12):
        watch = monitor_table(model, rows(800, 100 + call, shift=1.0), state=state)
        if watch.is_alarm:
            break
    assert watch.alarms
    assert not watch.unlike  # columns are what they were
    assert watch.alarms[0].drift == pytest.approx(1.0, abs=0.5)
    again = monitor_table(model, rows(300, 1, labelled=False), state=state)
    assert (again.is_alarm, str(again).split("\n")[0]) == (True, "ALARM: drift by labels")
    assert again.alarms[0].batch == watch.alarms[0].batch


def test_a_large_drift_is_found_with_few_rows_held_out(tmp_path):
    """Sixty rows held out know the model's log-odds badly, and a drift of 3 is far beyond that; one of 0.5 is not."""
    frame, y = table(60, 0)
    small = TableClassifier(estimator=CRCENClassifierCV(Budget(4), cv=3, **QUICK), random_state=0).fit(frame, y)
    state = tmp_path / "watch.json"
    assert "no alarm" in str(monitor_table(small, rows(200, 100, shift=0.5), state=state))
    found = monitor_table(small, rows(800, 100, shift=3.0), state=tmp_path / "other.json")
    assert found.alarms
    assert found.alarms[0].drift_low < found.alarms[0].drift < found.alarms[0].drift_high


def test_rows_held_out_of_training_are_the_reference(model):
    """The sums that the model keeps are those of a monitor made with labels and out-of-fold probabilities."""
    from crcen import KeyEquationMonitor

    _frame, y = table(3000, 0)
    direct = KeyEquationMonitor(model.estimator_, y_reference=y.to_numpy(), false_alarm_rate=0.025)
    new = rows(1000, 7)
    direct.update(model.encode(new).X, new.state.to_numpy())
    watch = monitor_table(model, new)
    assert watch.reading.drift_by_class[0] == pytest.approx(direct.history[None][-1].drift_by_class[0], rel=1e-9)
    assert watch.reading.log_evidence == pytest.approx(direct.history[None][-1].log_evidence, rel=1e-9)


def test_expected_figures_are_right_where_probabilities_are():
    """Over many draws of labels, precision, recall and cost lie about their expected values as the errors say."""
    rng = np.random.default_rng(0)
    p = rng.beta(1, 6, 4000)
    alarms = p > 0.2
    rule = RowRule((0, 1), crcen.resolve(Budget(4), 10, 60))
    figures = ExpectedFigures.of(rule, np.column_stack([1 - p, p]), alarms.astype(int))
    y = rng.random((3000, len(p))) < p
    caught, missed = (y & alarms).sum(axis=1), (y & ~alarms).sum(axis=1)
    cost = 1000 * (alarms.sum() - caught + 4 * missed) / len(p)
    drawn = {"precision": caught / alarms.sum(), "recall": caught / (caught + missed), "cost_per_1000": cost}
    for name, values in drawn.items():
        one = figures.figures[None if name == "cost_per_1000" else 1][name]
        error = (one.high - one.value) / 1.96
        assert values.mean() == pytest.approx(one.value, abs=5 * error / np.sqrt(3000) + 1e-4)
        assert values.std() == pytest.approx(error, rel=0.07)
        assert np.mean((values > one.low) & (values < one.high)) == pytest.approx(0.95, abs=0.015)
    none = expected_shares(np.full(9, 1e-200), np.zeros(9, dtype=bool))  # neither an alarm nor a positive
    assert np.isnan([one.value for one in none.values()]).all()


def test_expected_figures_of_training_stand_beside(model):
    said = monitor_table(model, rows(20_000, 5)).to_dict()
    here, there = said["expected"]["recall"]["value"], said["expected_in_training"]["recall"]["value"]
    assert here == pytest.approx(there, abs=0.05)
    labels = rows(20_000, 5).state == "bad"
    alarms = model.predict(rows(20_000, 5)) == "bad"
    assert here == pytest.approx((labels & alarms).sum() / labels.sum(), abs=0.06)


def test_another_models_state_is_refused(model, tmp_path):
    state = tmp_path / "watch.json"
    monitor_table(model, rows(200, 3), state=state)
    before = state.read_text()
    frame, y = table(600, 9)
    other = TableClassifier(estimator=crcen.CRCENClassifier(Budget(4), **QUICK), random_state=0).fit(frame, y)
    with pytest.raises(InvalidInput, match="the monitor state of another model"):
        monitor_table(other, rows(200, 4), state=state)
    for rate in (0, 1.5, True, "a"):
        with pytest.raises(crcen.InvalidParameter, match="false_alarm_rate must lie between 0 and 1"):
            monitor_table(model, rows(50, 3), false_alarm_rate=rate)
    assert state.read_text() == before
    assert monitor_table(crcen.load(save(model, tmp_path / "model.crcen")), rows(200, 4), state=state).call == 2


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": "crcen table monitor", "version": 9}', "\x00", "nonsense"]
)
def test_a_file_that_is_no_state_is_refused_and_stays(model, tmp_path, content):
    state = tmp_path / "watch.json"
    state.write_text(content)
    with pytest.raises(InvalidInput, match=r"watch\.json is"):
        monitor_table(model, rows(50, 3), state=state)
    assert state.read_text() == content


def test_a_streamed_or_plain_model_is_watched_too(tmp_path):
    frame, y = table(800, 1)
    plain = crcen.CRCENClassifier(Budget(4), **QUICK).fit(frame[["balance"]].to_numpy(), y)
    watch = monitor_table(plain, rows(300, 2)[["balance", "state"]], target="state", state=tmp_path / "watch.json")
    assert watch.n_labelled == 300
    assert watch.to_dict()["expected_in_training"] is None


def test_the_page_shows_all_calls_and_is_escaped(model, tmp_path):
    state, page = tmp_path / "watch.json", tmp_path / "watch.html"
    for call in range(3):
        monitor_table(model, rows(300, 20 + call), state=state, page=page, when=f"<b>day {call}</b>")
    text = page.read_text()
    assert text.count("day ") >= 3
    assert [part for part in ("<b>", "<script", "http://", "https://") if part in text.replace("http-equiv", "")] == []
    assert len(text) < 100_000


def test_the_command_ends_with_0_when_quiet_and_3_on_an_alarm(model, crcen_command, tmp_path):
    save(model, tmp_path / "model.crcen")
    rows(500, 30).to_csv(tmp_path / "new.csv", index=False)
    FAULTS["scale"](rows(500, 31, labelled=False)).to_csv(tmp_path / "bad.csv", index=False)
    places = ("--state", tmp_path / "watch.json", "--page", tmp_path / "watch.html")
    code, out, _ = crcen_command("monitor", tmp_path / "model.crcen", tmp_path / "new.csv", *places)
    assert (code, out.splitlines()[0]) == (0, "Quiet")
    code, out, _ = crcen_command("monitor", tmp_path / "model.crcen", tmp_path / "bad.csv", *places, "--json")
    said = json.loads(out)
    assert (code, said["is_alarm"], said["call"], said["unlike"][0]["column"]) == (3, True, 2, "balance")


def three_rows(n, seed, moved=0.0):
    """Three classes with a known softmax; the log-odds of brøken may have moved."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)).round(4)
    logits = np.column_stack([X[:, 0] - 1 + moved, np.full(n, 1.2), X[:, 1]])
    kind = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "state": np.array(["brøken", "fine", "worn out"])[kind]})


@pytest.fixture(scope="module")
def three():
    search = CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=8, encoding="standard", n_members=1)
    return crcen.fit_table(three_rows(3000, 0), target="state", estimator=search).model


def test_quiet_then_the_class_that_drifted(three, tmp_path):
    state, page = tmp_path / "watch.json", tmp_path / "watch.html"
    for month in range(1, 4):
        watch = monitor_table(three, three_rows(1000, month), state=state, when=f"month {month}")
        assert not watch.is_alarm, str(watch)
    assert watch.call == 3
    assert "no alarm" in str(watch) or "not tested" in str(watch)
    for month in range(4, 8):
        watch = monitor_table(three, three_rows(1000, month, moved=0.8), state=state, when=f"month {month}", page=page)
    assert (watch.is_alarm, watch.alarms[0].label) == (True, "brøken")
    assert (watch.alarms[0].drift, sum(watch.decided.values())) == (pytest.approx(0.8, abs=0.4), 1000)
    assert "brøken" in page.read_text(encoding="utf-8")
    assert json.loads(state.read_text(encoding="utf-8"))["n_calls"] == 7
    with pytest.raises(InvalidInput, match="were counted before, in call 7"):
        monitor_table(three, three_rows(1000, 7, moved=0.8), state=state)


def test_three_classes_without_labels_and_columns_that_moved(three):
    frame = three_rows(800, 20).drop(columns="state")
    watch = monitor_table(three, frame)
    assert (watch.n_labelled, watch.is_alarm) == (0, False)
    assert "none yet" in str(watch)
    expected = (three.predict_proba(frame) @ (three.weighting_.weights[:, None] * (1 - np.eye(3)))).min(axis=1).mean()
    assert watch.expected.figures[None]["cost_per_1000"].value == pytest.approx(1000 * expected)
    gains = str(monitor_table(three, frame, costs=CostMatrix(np.where(np.eye(3), -9.0, 9.0))))
    costs = re.search(r"cost per 1,000 rows (-[\d,.]+) \((-[\d,.]+) to (-[\d,.]+)\)", gains).groups()
    value, low, high = (float(one.replace(",", "")) for one in costs)
    assert low < value < high
    moved = monitor_table(three, frame.assign(a=frame["a"] + 3))
    assert moved.is_alarm
    assert "differences from training" in str(moved)


def test_no_decision_is_left_out_in_silence(three):
    costs = CostMatrix(np.ones((3, 16)) - np.eye(3, 16), actions=[f"call {i}" for i in range(13)])
    assert "call 8 (0) and 4 more\n" in str(monitor_table(three, three_rows(100, 40), costs=costs))
