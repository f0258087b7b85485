"""Two models on the same rows: verdicts, intervals, audits, states and refusals."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import Budget, CRCENClassifierCV
from crcen._support.files import exclusive_lock
from crcen.theory.sequential import ConfidenceSequence


def scored(n, seed, skill=0.0, classes=2):
    """Probabilities of two tools; the old one sees the truth through noise, the new one less so with skill."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, classes)) * 1.5 - np.arange(classes) * 1.5
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    y = (rng.random((n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)

    def tool(share):
        seen = x * share + (1 - share) * rng.normal(size=x.shape)
        return np.exp(seen) / np.exp(seen).sum(axis=1, keepdims=True)

    old, new = tool(0.5), tool(0.5 + skill)
    names = np.array(["ok", "worn", "broken"])[:classes]
    frame = pd.DataFrame(
        {f"{side}_{name}": q[:, k] for side, q in (("old", old), ("new", new)) for k, name in enumerate(names)}
    )
    return frame.assign(state=names[y], site=rng.choice(["north", "south"], n))


OPTIONS = {
    2: {"probability_old": "old_worn", "probability_new": "new_worn", "positive": "worn", "weighting": Budget(4)},
    3: {
        "probability_old": ["ok=old_ok", "worn=old_worn", "broken=old_broken"],
        "probability_new": ["ok=new_ok", "worn=new_worn", "broken=new_broken"],
        "weighting": {"ok": 1, "worn": 3, "broken": 9},
    },
}


def compared(frame, classes=2, **more):
    return crcen.compare_models(None, None, frame, target="state", **{**OPTIONS[classes], **more})


@pytest.mark.parametrize("classes", [2, 3])
def test_costs_savings_and_changes_are_those_of_the_decisions(classes):
    frame = scored(3000, 1, 0.5, classes)
    found = compared(frame, classes, groups="site")
    names = ["ok", "worn", "broken"][:classes]
    weights = np.array([1.0, 4.0]) if classes == 2 else np.array([1.0, 3.0, 9.0])
    y = frame.state.map({name: k for k, name in enumerate(names)}).to_numpy()
    decided = [
        (frame[[f"{side}_{name}" for name in names]].to_numpy() * weights).argmax(axis=1) for side in ("old", "new")
    ]
    cost = [weights[y] * (one != y) for one in decided]
    scale = weights.max() if classes == 2 else np.abs(np.array(found.content["price"]["costs"])).max() / weights.max()
    unit = 1.0 if classes == 2 else scale
    assert found.content["cost_per_1000"]["old"] == pytest.approx(1000 * cost[0].mean() * unit)
    assert found.saving.value == pytest.approx(1000 * (cost[0] - cost[1]).mean() * unit)
    reach = weights.max() * unit
    sequence = ConfidenceSequence(-reach, reach).add((cost[0] - cost[1]) * unit)
    assert (found.saving.low, found.saving.high) == pytest.approx(tuple(1000 * end for end in sequence.interval(0.05)))
    assert (found.verdict, found.content["changed"]["rows"]) == ("new", int((decided[0] != decided[1]).sum()))
    k = classes - 1
    row = found.content["classes"][-1]
    recalls = [float((one[y == k] == k).mean()) for one in decided]
    assert (row["recall"]["old"], row["recall"]["new"]) == pytest.approx(recalls)
    alarms = [float((one[y != k] == k).mean()) for one in decided]
    assert (row["false_alarm_share"]["old"], row["false_alarm_share"]["new"]) == pytest.approx(alarms)
    assert row["recall"]["difference"]["low"] < recalls[1] - recalls[0] < row["recall"]["difference"]["high"]
    by_group = {one["group"]: one for one in found.content["groups"]}
    for name in ("north", "south"):
        rows = (frame.site == name).to_numpy()
        assert by_group[name]["saving_per_1000"]["value"] == pytest.approx(
            1000 * (cost[0] - cost[1])[rows].mean() * unit
        )
    assert set(compared(scored(200, 2), 2).to_dict()) == set(found.to_dict())
    assert len({line.index(" old ") for line in str(found).splitlines() if re.search(r" old \S+, new ", line)}) == 1


def test_probabilities_may_have_decimal_commas():
    frame = scored(300, 2, 0.5)
    text = frame.assign(old_worn=[f"{p:.17g}".replace(".", ",") for p in frame.old_worn])
    assert compared(text).to_dict() == compared(frame).to_dict()


def test_the_worse_new_model_and_equal_ones_are_told_apart():
    frame = scored(4000, 3, 0.5)
    swapped = {"probability_old": "new_worn", "probability_new": "old_worn"}
    better, worse = str(compared(frame)), str(compared(frame, **swapped))
    assert compared(frame, **swapped).verdict == "old"
    pattern = r"the new one {} (\S+){} per 1,000 rows \(95 % confidence sequence (\S+) to (\S+)\)"
    saved, lost = re.search(pattern.format("saves", ""), better), re.search(pattern.format("costs", " more"), worse)
    assert saved.groups() == lost.groups()
    changes = (re.findall(r"which (saves|costs) (\S+)(?: more)? in all", text) for text in (better, worse))
    gains, losses = ({(verb, abs(float(one))) for verb, one in found} for found in changes)
    assert {verb for verb, _ in gains} == {"saves"}
    assert losses == {("costs", one) for _, one in gains}
    assert compared(frame.assign(new_worn=frame.old_worn)).saving.value == 0.0
    assert compared(frame.assign(new_worn=frame.old_worn)).verdict == "undecided"
    both = pd.concat([frame, frame.rename(columns={"old_worn": "new_worn", "new_worn": "old_worn"})])
    assert compared(both.sample(frac=1, random_state=0), weighting=Budget(3.1)).saving.value == 0.0  # but for rounding


@pytest.mark.parametrize("classes", [2, 3])
def test_a_state_continues_and_stops_when_decided(classes, tmp_path):
    state, parts = tmp_path / "compare.json", [scored(150, seed, 0.5, classes) for seed in range(40)]
    calls = []
    for part in parts:
        calls.append(compared(part, classes, groups="site", state=state))
        if calls[-1].verdict != "undecided":
            break
    n = len(calls)
    assert 1 < n < 40
    assert calls[-1].verdict == "new"
    whole = compared(pd.concat(parts[:n]), classes, groups="site")
    for key in ("saving_per_1000", "cost_per_1000", "classes", "groups"):
        assert _near(whole.content[key]) == _near(calls[-1].content[key])
    before = state.read_text()
    after = compared(parts[n], classes, state=state)
    assert after.content["rows"] == 150 * n == after.content["decided_after"]
    assert "were not used" in after.content["notes"][0]
    assert state.read_text() == before


def test_a_state_whose_whole_numbers_were_written_without_a_point_continues(tmp_path):
    first, second = (scored(200, seed).assign(e=e) for seed, e in ((1, 0.5), (2, 0.8)))
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    compared(first, audit_probability="e", state=one)
    other.write_text(re.sub(r"(\d)\.0\b", r"\1", one.read_text()))
    found = [compared(second, audit_probability="e", state=state).content for state in (one, other)]
    assert found[0] == found[1]


def _near(value):
    """The same values, floats up to rounding."""
    return json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.5e}"))


def test_audited_labels_are_unbiased_and_unlabelled_rows_are_refused_otherwise():
    frame = scored(60_000, 5, 0.5)
    full = compared(frame).saving
    rng = np.random.default_rng(0)
    e = np.where(frame.old_worn > 0.2, 1.0, 0.1)
    audited = frame.assign(state=frame.state.where(rng.random(len(frame)) < e), e=e)
    found = compared(audited, audit_probability="e")
    assert found.content["is_audited"]
    assert found.saving.low < full.value < found.saving.high
    assert (found.saving.value, found.verdict) == (pytest.approx(full.value, rel=0.25), "new")
    with pytest.raises(crcen.InvalidInput, match="depends on the score"):
        compared(audited)
    with pytest.raises(crcen.InvalidInput, match=r"above 0 and at most 1 .* in row 1"):
        compared(frame.head(50).assign(e=0.0), audit_probability="e")
    random = frame.head(500).assign(state=frame.state.head(500).where(frame.index[:500] % 3 > 0))
    assert "were left out" in compared(random).content["notes"][0]


def test_what_cannot_be_compared_is_refused_and_nothing_is_written(tmp_path):
    frame, state = scored(200, 6), tmp_path / "compare.json"

    def refused(why, table=frame, **more):
        before = state.read_text() if state.exists() else None
        with pytest.raises(crcen.CrcenError, match=why):
            compared(table, state=state, **more)
        assert (state.read_text() if state.exists() else None) == before

    with pytest.raises(crcen.InvalidParameter, match="target must name the column with the labels"):
        crcen.compare_models(None, None, frame, **OPTIONS[2])
    refused("needs a price", weighting=None)
    for by_counts in ("balanced", crcen.Alpha(2)):
        refused("needs the class counts", weighting=by_counts)
    refused("positive must name", positive=None)
    refused("which has Ok, Worn: got lost", frame.assign(state=frame.state.str.title()), positive="lost")
    refused("between 0 and 1, of sum 1 over classes: got values from 2 to 2", frame.assign(old_worn=2.0))
    refused("must be a column", probability_old="nothing")
    refused("or the columns probability_old= and probability_new=", probability_old=None)
    refused("needs two models", probability_old=None, probability_new=None)
    refused("confidence must be", confidence=1.0)
    many = {f"g{i}": 1 for i in range(51)}
    refused("at most 50 columns: got 51", frame.assign(**many), groups=[*many])
    refused("no row with a value", frame.assign(state=None))
    compared(frame, state=state)
    refused("already part of this comparison")
    grades = scored(200, 8).round(1)  # an input of a model names groups
    compared(grades, state=state, groups="old_worn")
    refused("already part of this comparison", grades)
    for batch in range(9):
        compared(scored(20, 10 + batch).assign(day=[f"{batch}-{i}" for i in range(20)]), state=state, groups="day")
    refused("all calls together", scored(20, 9).assign(day=[f"last {i}" for i in range(20)]), groups="day")
    refused("another price", scored(200, 7), weighting=Budget(5))
    refused("another old model", scored(200, 7), probability_old="old_ok")
    state.write_text(state.read_text().replace('"rows": ', '"rows": 1'))
    refused("is a damaged state of a comparison: its digest does not match")
    state.write_text("{}")
    refused("is not the state of a comparison")


def test_a_state_in_use_is_refused(tmp_path):
    with exclusive_lock(tmp_path / "compare.json"), pytest.raises(crcen.CrcenError, match="in use"):
        compared(scored(100, 9), state=tmp_path / "compare.json")


def test_models_are_compared_at_one_price_on_new_rows(mixed_table, model_file, tmp_path):
    search = CRCENClassifierCV(hidden=(2,), l2=1.0, max_epochs=1, encoding="standard")
    other = crcen.fit_table(mixed_table(), target="bad", weighting=Budget(5), estimator=search, drop=["amount"])
    crcen.save(other.model, tmp_path / "new.crcen")
    rows = mixed_table(1500, 8)
    found = crcen.compare_models(model_file, tmp_path / "new.crcen", rows, groups="country")
    alarms = [crcen.load(path).predict(rows.drop(columns="bad")) for path in (model_file, tmp_path / "new.crcen")]
    wrong = [np.where(rows.bad == "yes", 5.0 * (one == "no"), one == "yes") for one in alarms]
    assert found.saving.value == pytest.approx(1000 * (wrong[0] - wrong[1]).mean())
    assert found.content["changed"]["rows"] == int((alarms[0] != alarms[1]).sum()) > 0
    with pytest.raises(crcen.InvalidInput, match="neither model was trained on"):
        crcen.compare_models(model_file, tmp_path / "new.crcen", mixed_table())
    at_ten = crcen.fit_table(mixed_table(), target="bad", weighting=Budget(10), estimator=search)
    with pytest.raises(crcen.InvalidInput, match=r"prices \(5 and 10 .*: state one for both, such as --budget"):
        crcen.compare_models(model_file, at_ten.model, rows)
    how = {"target": "country", "estimator": search}
    two = [crcen.fit_table(mixed_table(), weighting=one, **how).model for one in ("none", "balanced")]
    with pytest.raises(crcen.InvalidInput, match=r"other costs each\): state one for both, such as --weighting"):
        crcen.compare_models(*two, rows)
    found = crcen.compare_models(model_file, at_ten.model, rows, weighting=Budget(10))
    assert found.content["price"]["cost_ratio"] == 10
    with pytest.raises(crcen.InvalidInput, match=r"lacks 1 of the .* columns that the new model needs: amount"):
        crcen.compare_models(tmp_path / "new.crcen", model_file, rows.drop(columns="amount"))
    odd = rows.assign(amount=rows["amount"].astype(str).where(rows.index > 2, "ca. 3"))
    notes = crcen.compare_models(tmp_path / "new.crcen", model_file, odd).content["notes"]
    assert any(note.startswith("new model: cells written otherwise") for note in notes)


def test_rows_that_repeat_like_an_identifier_are_pointed_out():
    frame, stated = scored(1000, 3), "assume independent rows: use --clusters patient_id"
    for own, is_stated in ((frame, False), (frame.assign(patient_id=np.repeat(np.arange(200), 5)), True)):
        assert any(stated in note for note in compared(own).content["notes"]) == is_stated
