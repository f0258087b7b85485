"""What KeyEquationMonitor refuses, with the sentence that says why, and that nothing has changed then."""

import copy
import json
import tracemalloc

import numpy as np
import pytest
from known_streams import WEIGHTS, monitor_of, stream
from sklearn.linear_model import LogisticRegression

from crcen import CRCENClassifier, CRCENClassifierCV, InvalidInput, InvalidParameter, KeyEquationMonitor
from crcen.decisions.monitor.rows import row_segments

TWO, FOUR = ({"n": 400, "segments": ["a", "b"]}, {"n": 300, "w": WEIGHTS[4]})


@pytest.mark.parametrize(
    ("settings", "batch", "sentence"),
    [
        (TWO, {"q": [0.1, 0.2]}, "needs the labels"),
        (TWO, {"y": [0, 1]}, "either the rows X or"),
        (TWO, {"X": [[1.0]], "q": [0.1], "y": [0]}, "not both"),
        (TWO, {"X": [[1.0]], "y": [0]}, "no model"),
        (TWO, {"q": [0.1, 0.2], "y": [0, 2]}, "0/1"),
        (TWO, {"q": [0.1, 0.2], "y": [[0, 1]]}, "1-D"),
        (TWO, {"q": [], "y": []}, "at least one row"),
        (TWO, {"q": [0.1, 1.5], "y": [0, 1]}, "are these logits"),
        (TWO, {"q": [[0.9], [0.8]], "y": [0, 1]}, "one value for each"),
        (TWO, {"q": [0.1, 0.2], "y": [0, 1], "sample_weight": [1.0, -1.0]}, "not negative"),
        (TWO, {"q": [0.1, 0.2], "y": [0, 1], "segment": ["a", "c"]}, r"\(a, b\), got 'c'"),
        (TWO, {"q": [0.1, 0.2], "y": [0, 1], "segment": ["a"]}, "one name for each"),
        (TWO, {"q": [0.1, 0.2], "y": [0, 1], "segment": ["a", None]}, "None or NaN"),
        (TWO, {"q": [0.1, 0.2], "y": [0, 1], "segment": [1.0, np.nan]}, "None or NaN"),
        (TWO, {"q": [0.1, 0.2], "y": [0, 1], "when": 5}, "text"),
        (TWO, {"q": np.full((2, 3), 1 / 3), "y": [0, 1]}, "for 3 classes give the monitor a model of them"),
        (FOUR, {"q": np.full((2, 3), 1 / 3), "y": [0, 1]}, r"column for each of 4 classes, got shape \(2, 3\)"),
        (FOUR, {"q": np.full((3, 4), 1 / 4), "y": [0, 1]}, "row for each of the 2 labels"),
        (FOUR, {"q": np.full((2, 4), 1 / 3), "y": [0, 1]}, "each row with the sum 1"),
        (FOUR, {"q": np.full((2, 4), 1 / 4), "y": [0, 4]}, "only: got 4"),
        (FOUR, {"q": np.full((2, 4), 1 / 4), "y": [0, 1], "sample_weight": [-1, 1]}, "not negative"),
    ],
)
def test_bad_batches_are_refused_and_change_nothing(settings, batch, sentence):
    monitor = monitor_of(**settings)
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
        ({"segments": "north"}, "did you mean a list"),
        ({"segments": ["a", "a"]}, "distinct"),
        ({"q_reference": [0.1, 0.2]}, "q_reference needs the labels"),
        ({"segment_reference": ["a", "b"]}, "segment_reference needs"),
        ({"sample_weight_reference": [1, 1]}, "sample_weight_reference needs"),
        ({"y_reference": [0, 1]}, "only a CRCENClassifierCV"),
        ({"y_reference": [0, 0], "q_reference": [0.1, 0.2]}, "both classes"),
        ({"y_reference": [0, 1], "q_reference": [0.1, 0.2, 0.3]}, "one value for each"),
        ({"y_reference": [0, 3], "q_reference": [0.1, 0.2]}, "0/1"),
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
        (numbers, y.astype(str), r"\[0, 1\] only: got '0'"),
        (numbers, np.where(y, 1.0, np.nan), "got nan"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            KeyEquationMonitor(watched).update(X, labels)
    ours = CRCENClassifier(hidden=(), random_state=0, device="cpu").fit(X, y)
    with pytest.raises(InvalidParameter, match="weighting_ is used"):
        KeyEquationMonitor(ours, weighting=0.9)


def test_out_of_fold_references_must_be_the_training_labels(rare_rows):
    X, y = rare_rows(200)
    model = CRCENClassifierCV(hidden=[()], l2=[1e-2], cv=3, random_state=0, device="cpu").fit(X, y)
    with pytest.raises(InvalidInput, match="200 training labels"):
        KeyEquationMonitor(model, y_reference=y[:150])
    with pytest.raises(InvalidInput, match="rows of the classes"):
        KeyEquationMonitor(model, y_reference=1 - y)
    with pytest.raises(InvalidInput, match="those of fit"):
        KeyEquationMonitor(model, y_reference=y, sample_weight_reference=np.full(200, 2.0))
    model.oof_decision_function_ = np.where(np.arange(200) < 20, np.nan, model.oof_decision_function_)
    with pytest.raises(InvalidInput, match="20 training rows were in no test fold"):
        KeyEquationMonitor(model, y_reference=y)


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


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{ not json", "must be a JSON file"),
        (b"[1, 2]", "must be of the format"),
        (b"\xff\xfe\x00", "must be a JSON file"),
        (b"[" * 200_000, "must be a JSON file"),
    ],
)
def test_files_of_other_things_are_refused(tmp_path, content, sentence):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=sentence):
        KeyEquationMonitor.from_json(tmp_path / "a.json")


def test_a_state_of_another_model_is_refused(rare_rows):
    X, y = rare_rows(200)
    ours = CRCENClassifier(hidden=(), random_state=0, device="cpu").fit(X, y)
    with pytest.raises(InvalidInput, match="belongs to a model with the classes"):
        KeyEquationMonitor.from_state(saved(), ours)


def test_a_gap_among_names_is_refused_and_a_long_name_is_not_paid_for_by_every_row():
    with pytest.raises(InvalidInput, match="known for every row"):
        row_segments(["north", float("nan")], 2)
    names = [*["north"] * 20_000, "x" * 20_000]
    tracemalloc.start()
    found = row_segments(names, 20_001)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(found.tolist()) == {"north", "x" * 20_000}
    assert peak < 10e6
