"""monitor_table of several classes: quiet while nothing changes, then the class that drifted is named."""

import json

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import CRCENClassifierCV, InvalidInput


def table(n, seed, moved=0.0):
    """Three classes with a known softmax; the log-odds of brøken may have moved."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)).round(4)
    logits = np.column_stack([X[:, 0] - 1 + moved, np.full(n, 1.2), X[:, 1]])
    kind = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "state": np.array(["brøken", "fine", "worn out"])[kind]})


@pytest.fixture(scope="module")
def model():
    search = CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=8, encoding="standard", n_members=1)
    return crcen.fit_table(table(3000, 0), target="state", estimator=search).model


def test_quiet_then_the_class_that_drifted(model, tmp_path):
    state, page = tmp_path / "watch.json", tmp_path / "watch.html"
    for month in range(1, 4):
        watch = crcen.monitor_table(model, table(1000, month), state=state, when=f"month {month}")
        assert not watch.is_alarm, str(watch)
    assert watch.call == 3
    assert "no alarm" in str(watch) or "not tested" in str(watch)
    for month in range(4, 8):
        watch = crcen.monitor_table(model, table(1000, month, moved=0.8), state=state, when=f"month {month}", page=page)
    assert watch.is_alarm
    assert watch.alarms[0].label == "brøken"
    assert watch.alarms[0].drift == pytest.approx(0.8, abs=0.4)
    assert sum(watch.decided.values()) == 1000
    assert "brøken" in page.read_text(encoding="utf-8")
    kept = json.loads(state.read_text(encoding="utf-8"))
    assert kept["n_calls"] == 7
    with pytest.raises(InvalidInput, match="were counted before, in call 7"):
        crcen.monitor_table(model, table(1000, 7, moved=0.8), state=state)


def test_rows_without_labels_and_columns_that_moved(model):
    frame = table(800, 20).drop(columns="state")
    watch = crcen.monitor_table(model, frame)
    assert (watch.n_labelled, watch.is_alarm) == (0, False)
    assert "none has come yet" in str(watch)
    expected = (model.predict_proba(frame) @ (model.weighting_.weights[:, None] * (1 - np.eye(3)))).min(axis=1).mean()
    assert watch.expected.cost_per_1000.value == pytest.approx(1000 * expected)
    moved = crcen.monitor_table(model, frame.assign(a=frame["a"] + 3))
    assert moved.is_alarm
    assert "unlike training" in str(moved)


def test_the_command_ends_with_3_on_an_alarm(model, crcen_command, tmp_path):
    crcen.save(model, tmp_path / "m.crcen")
    table(1000, 30, moved=3.0).to_csv(tmp_path / "a.csv", index=False)
    code, out, _ = crcen_command("monitor", tmp_path / "m.crcen", tmp_path / "a.csv", "--json")
    assert code == 3
    assert "brøken" in json.loads(out)["drift_alarms"][0]["label"]


def test_no_decision_is_left_out_in_silence(model):
    costs = crcen.CostMatrix(np.ones((3, 16)) - np.eye(3, 16), actions=[f"call {i}" for i in range(13)])
    said = str(crcen.monitor_table(model, table(100, 40), costs=costs))
    assert "0 call 8 and 4 more\n" in said
