"""evaluate_table of several classes: figures by hand, planted faults found, conditions of a pipeline."""

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import CostMatrix, CRCENClassifierCV, InvalidInput, InvalidParameter

LABELS = ["brøken", "fine", "worn out"]


def table(n, seed, shares=(0.7, 0.2, 0.1)):
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n, p=shares)
    rows = {"hours": (kind + rng.normal(size=n)).round(4), "load": rng.normal(size=n).round(4)}
    return pd.DataFrame({**rows, "state": np.array(["fine", "worn out", "brøken"])[kind]})


@pytest.fixture(scope="module")
def model():
    search = CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=8, encoding="standard", n_members=1)
    weights = {"fine": 1, "worn out": 4, "brøken": 10}
    return crcen.fit_table(table(1500, 0), target="state", weighting=weights, estimator=search).model


def codes(judged):
    return {one.code for one in judged.findings if one.status == "warning"}


def test_new_rows_pass_and_figures_are_right(model):
    frame = table(800, 1)
    judged = crcen.evaluate_table(model, frame)
    p = model.predict_proba(frame)
    y, chosen = np.searchsorted(LABELS, frame["state"]), (p * [10, 1, 4]).argmax(axis=1)
    assert judged.quality.cost.value == pytest.approx(np.where(y == chosen, 0, np.array([10, 1, 4])[y]).mean())
    assert judged.quality.habit_cost == pytest.approx(
        min((np.array([10, 1, 4])[y] * (y != k)).mean() for k in range(3))
    )
    assert judged.equation.verdict == "holds"
    assert codes(judged) == set()
    assert "cheaper" in str(judged)
    assert judged.to_dict()["key_equation"]["joint"]["degrees"] == 2


def test_planted_faults_are_found(model):
    frame = table(800, 2)
    shuffled = frame.assign(state=np.random.default_rng(0).permutation(frame["state"]))
    assert {"CRC003", "CRC007"} <= codes(crcen.evaluate_table(model, shuffled))
    other_prior = crcen.evaluate_table(model, table(800, 3, shares=(0.4, 0.2, 0.4)))
    assert {"CRC004", "CRC007"} <= codes(other_prior)
    first = other_prior.equation.deviant_pairs[0]
    assert "brøken" in (first.first, first.second)
    assert abs(first.drift) == pytest.approx(np.log(0.4 / 0.1) - np.log(0.4 / 0.7), abs=0.8)
    known = crcen.evaluate_table(model, table(1500, 0))
    assert "CRC008" in codes(known)
    leaking = frame.assign(hours=frame["state"].map({"fine": 0, "worn out": 5, "brøken": 9}) + 0.001 * frame["hours"])
    assert "CRC006" in codes(crcen.evaluate_table(model, leaking, fail_on="CRC006"))
    few = crcen.evaluate_table(model, frame.head(120))
    assert "CRC001" in codes(few)


def test_conditions_of_a_pipeline(model):
    frame = table(800, 4)
    assert crcen.evaluate_table(model, frame, fail_on="any", min_recall=0.05).failures == ()
    broken = crcen.evaluate_table(model, frame, min_recall=0.999, min_precision=0.001).failures
    assert len(broken) >= 1
    assert all("recall of" in one and "below 0.999" in one for one in broken)
    shuffled = frame.assign(state=np.random.default_rng(0).permutation(frame["state"]))
    assert any("CRC007 warns" in one for one in crcen.evaluate_table(model, shuffled, fail_on="CRC007").failures)


def test_other_costs_with_an_action(model):
    frame = table(300, 5)
    costs = CostMatrix(10 * (1 - np.eye(3)), labels=LABELS).with_review(0.5)
    judged = crcen.evaluate_table(model, frame, costs=costs)
    assert judged.quality.names[-1] == "review"
    assert judged.quality.cost.value <= 10 * (1 - model.predict_proba(frame).max(axis=1)).mean() + 1


def test_weights_of_rows_count(model):
    frame = table(300, 6).assign(times=2)
    twice = crcen.evaluate_table(model, frame, weight="times")
    assert twice.quality.counts.table.sum() == 600
    assert twice.quality.cost.value == pytest.approx(crcen.evaluate_table(model, frame).quality.cost.value)


def test_rows_without_a_class_and_what_is_refused(model):
    frame = table(300, 7)
    judged = crcen.evaluate_table(model, frame[frame["state"] != "brøken"])
    assert any("brøken has no row here" in note for note in judged.notes)
    assert np.isnan(judged.quality.recalls[0].value)
    with pytest.raises(InvalidInput, match="has only fine in state"):
        crcen.evaluate_table(model, frame[frame["state"] == "fine"])
    with pytest.raises(InvalidInput, match="must hold the labels of training"):
        crcen.evaluate_table(model, frame.replace("fine", "fien"))
    for options, sentence in (
        ({"weighting": crcen.Budget(3)}, "is for two classes, and state has 3"),
        ({"review": (2, 30)}, "make review a column of costs="),
        ({"fail_on": "CRC010"}, "compares groups: name their columns"),
        ({"min_recall": 3}, "min_recall must be a share"),
    ):
        with pytest.raises(InvalidParameter, match=sentence):
            crcen.evaluate_table(model, frame, **options)


def test_the_report_has_the_checks_of_the_evaluation(model, tmp_path):
    frame = table(400, 8)
    report = crcen.report_table(model, frame, out=tmp_path / "r.html")
    judged = crcen.evaluate_table(model, frame, fail_on="any")
    assert [one.to_dict() for one in report.findings] == [one.to_dict() for one in judged.findings]
    page = crcen.report_table(model, frame, out=tmp_path / "r.html", others=[model]).path.read_text(encoding="utf-8")
    assert page.count('<th scope="row">model 2</th>') == 1
    two = crcen.fit_table(table(300, 9), target="state", positive="brøken", estimator=model.estimator).model
    for own in ({"costs": CostMatrix([[0, 1], [1, 0]])}, {"weighting": "none"}):
        with pytest.raises(
            InvalidParameter, match="must be left out: this model finds brøken, and its page has a price"
        ):
            crcen.report_table(two, frame, out=tmp_path / "r.html", **own)
    with pytest.raises(
        InvalidInput, match=r"must have the same classes: the first looks for brøken among .*, and model 2 separates"
    ):
        crcen.report_table(two, frame, out=tmp_path / "r.html", others=[model])
