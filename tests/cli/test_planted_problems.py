"""Problems planted in a table, and found by `look`, `split`, `fit` and `export`; none is found in the clean table."""

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen.commands import scoring

N = 1200


def clean(n_classes=2, n=N, seed=0, share=0.12):
    """Honest columns; the target is y with values "yes" and "no", or three classes."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(size=n)
    kind = (rng.random(n) < share * np.exp(0.5 * a)).astype(int)
    kind += (n_classes == 3) * ((rng.random(n) < share) & (kind == 0)) * 2
    opened = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    columns = {"a": a.round(4), "b": b.round(4), "site": rng.choice(["x", "y"], n), "opened": opened}
    return pd.DataFrame({**columns, "y": np.array(["no", "yes", "maybe"])[kind]})


def flag(frame, n=None):
    """A flag of the first n positives, or of 40 %."""
    is_yes = frame["y"] == "yes"
    some = np.random.default_rng(1).random(len(frame)) < 0.4 if n is None else is_yes.cumsum() <= n
    return frame.assign(flagged=(is_yes & some).astype(int))


def near_copy(frame):
    return frame.assign(score=(6.0 * (frame["y"] == "yes") + np.random.default_rng(1).normal(size=len(frame))).round(3))


def filled_in(frame):
    rng = np.random.default_rng(1)
    is_known = (frame["y"] == "yes") & (rng.random(len(frame)) < 0.6)
    return frame.assign(refund=np.where(is_known, rng.gamma(2.0, 50.0, len(frame)).round(2), np.nan))


def spending(frame, share=0.975):
    """An amount that only rows of "no" have, and the amount over an income."""
    rng = np.random.default_rng(1)
    spent = np.where((frame["y"] == "no") & (rng.random(len(frame)) < share), rng.gamma(2.0, 50.0, len(frame)), 0.0)
    return frame.assign(spent=spent.round(2), part=((spent + 0.1) / rng.uniform(1.0, 9.0, len(frame))).round(5))


def later_date(frame):
    rng = np.random.default_rng(1)
    days = np.where(frame["y"] == "yes", rng.integers(1, 30, len(frame)), -rng.integers(1, 30, len(frame)))
    return frame.assign(closed=frame["opened"] + pd.to_timedelta(days, "D"))


def oversampled(frame):
    copies = frame[frame["y"] == "yes"]
    return pd.concat([frame, copies, copies, copies]).sample(frac=1, random_state=0)


def patients(frame):
    rng = np.random.default_rng(1)
    ids = rng.integers(10**6, 10**7, len(frame) // 3)
    return frame.assign(patient_id=ids[rng.integers(0, len(frame) // 3, len(frame))])


PLANTED = {
    "flag": (flag, "flagged is 1 only in rows of class yes"),
    "short flag": (partial(flag, n=18), "flagged is 1 only in rows of class yes (18 of 18 such rows"),
    "near copy": (near_copy, "score alone nearly separates yes"),
    "filled in": (filled_in, "refund is filled in only in rows of class yes"),
    "spending": (spending, "spent is above 0 only in rows of class no"),
    "later date": (later_date, "opened is before closed only in rows of class yes"),
    "oversampled": (oversampled, "copies depend on the label"),
    "identifier": (patients, "patient_id repeats like a customer or patient ID"),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("problem", PLANTED)
def test_planted_problems_are_named_by_look_and_fit(printed, tmp_path, problem, n_classes):
    plant, said = PLANTED[problem]
    frame = clean(n_classes, share=0.25 if problem == "spending" else 0.12)
    plant(frame).to_csv(tmp_path / "a.csv", index=False)
    table = (tmp_path / "a.csv", "--target", "y")
    out = printed("look", *table)
    assert said in out
    assert ("part nearly tells whether spent is above 0" in out) == (problem == "spending")
    assert said in printed("fit", *table, "--quick", "--out", tmp_path / "m.crcen")
    if problem == "identifier":
        assert said in printed("split", *table)
    if problem == "oversampled":
        frame = pd.read_csv(tmp_path / "a.csv")
        frame.assign(row_id=np.arange(len(frame)) + 1).to_csv(tmp_path / "a.csv", index=False)  # found all the same
        out = printed("split", *table)
        assert said in out
        assert "copies of a row in the same file" in out


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_clean_table_gives_no_warning(answer, printed, tmp_path, n_classes, seed):
    clean(n_classes, seed=seed).assign(number=np.arange(N)).to_csv(tmp_path / "a.csv", index=False)
    found = answer("look", tmp_path / "a.csv", "--target", "y")
    assert (found["leaks"], found["identifiers"], found["notes"]) == ([], {}, [])
    assert "Note:" not in printed("split", tmp_path / "a.csv", "--target", "y")
    # The more frequent class has cells alone in honest tables too: half of its rows spend.
    spending(clean(n_classes, seed=seed, share=0.25), share=0.5).to_csv(tmp_path / "b.csv", index=False)
    assert answer("look", tmp_path / "b.csv", "--target", "y")["leaks"] == []


def test_nearly_balanced_classes_state_the_positive_one(printed, tmp_path):
    clean(share=0.4).to_csv(tmp_path / "a.csv", index=False)
    for command in (("look",), ("fit", "--quick", "--out", tmp_path / "m.crcen")):
        how = (*command, tmp_path / "a.csv", "--target", "y")
        assert "% of rows) is the positive class because it is the rarer one; use --positive" in printed(*how)
        assert "nearly balanced" not in printed(*how, "--positive", "yes")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_fit_prints_the_main_result_first(printed, tmp_path, n_classes):
    clean(n_classes).to_csv(tmp_path / "a.csv", index=False)
    how = ("fit", tmp_path / "a.csv", "--target", "y", "--quick", "--out", tmp_path / "m.crcen")
    lines = printed(*how).splitlines()
    assert len(lines) <= 10
    assert "found " in " ".join(lines[: n_classes + 1])
    assert "false alarms" in " ".join(lines[: n_classes + 1])
    assert any(line.startswith("Cost per 1,000 rows ") for line in lines)
    assert lines[-1].startswith(f"Next: crcen evaluate {tmp_path / 'm.crcen'}")
    assert ["log loss" in text for text in ("\n".join(lines), printed(*how, "--details"))] == [False, True]


def test_splits_draw_at_random_if_the_test_rows_suffice(answer, tmp_path):
    """With 0.25 × 300 expected positives their number varies with the seed; with 0.25 × 40 it is fixed and recorded."""
    from crcen.commands.split import was_stratified
    from crcen.tables.reading import open_table

    rng = np.random.default_rng(0)
    for n_pos, is_fixed in ((300, False), (40, True)):
        y = np.where(rng.permutation(1000) < n_pos, "yes", "no")
        pd.DataFrame({"a": rng.normal(size=1000), "y": y}).to_csv(tmp_path / "a.csv", index=False)
        found = []
        for seed in range(4):
            folder = tmp_path / f"{n_pos}_{seed}"
            folder.mkdir()
            how = ("split", tmp_path / "a.csv", "--target", "y", "--folder", folder, "--seed", seed)
            done = answer(*how)
            assert done["stratified"] == is_fixed
            found.append(done["test"]["labels"]["yes"])
            assert was_stratified(open_table(done["test"]["path"]), "y") == is_fixed
        assert (len(set(found)) == 1) == is_fixed
    pd.read_csv(done["test"]["path"])[1:].to_csv(done["test"]["path"], index=False)
    assert not was_stratified(open_table(done["test"]["path"]), "y")


def test_evaluate_allows_for_a_stratified_split(answer, tmp_path):
    """The p-value with the record of the split is that of --stratified, and another without the record."""
    clean(n=700).drop(columns="opened").to_csv(tmp_path / "a.csv", index=False)
    done = answer("split", tmp_path / "a.csv", "--target", "y")
    assert done["stratified"]
    model, test = tmp_path / "m.crcen", done["test"]["path"]
    answer("fit", done["train"]["path"], "--target", "y", "--quick", "--out", model)
    evaluate = ("evaluate", model, test, "--resamples", 0)
    recorded, stated = answer(*evaluate), answer(*evaluate, "--stratified")
    for found in (recorded, answer("report", model, test, "--out", tmp_path / "report.html")):
        assert any("fixed the class counts" in note for note in found["notes"])
    (tmp_path / f"{done['test']['path']}.split.json").unlink()
    tests = [one["key_equation"]["p_value"] for one in (recorded, stated, answer(*evaluate))]
    assert tests[0] == tests[1] != tests[2]


def draw(n, seed, shift=0.0, k=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)).round(5)
    logits = np.column_stack([np.full(n, 2.0 - shift), *(2.0 * X[:, i] for i in range(k - 1))])
    kind = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "state": np.array(["no", "yes", "worst"])[kind]})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Models of two and of three classes."""
    folder = tmp_path_factory.mktemp("planted")
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=8, encoding="standard", n_members=1, cv=3)
    for k in (2, 3):
        rows = draw(1500, 0, k=k)
        crcen.fit_table(rows, target="state", weighting="balanced", estimator=search, out=folder / f"{k}.crcen")
    return folder


@pytest.fixture
def run(home, crcen_command, tmp_path):
    def command(name, rows, *options, k=2):
        rows.to_csv(tmp_path / "rows.csv", index=False)
        return crcen_command(name, home / f"{k}.crcen", tmp_path / "rows.csv", *options)

    return command


@pytest.fixture
def found(run):
    """The values that a command gives, which may raise an alarm."""

    def values(name, rows, *options, k=2):
        code, out, err = run(name, rows, *options, "--json", k=k)
        assert (code in (0, 3), err) == (True, "")
        return json.loads(out)

    return values


def test_another_prevalence_is_no_useless_model(run, found):
    """Positives are 60 % in place of 18 %: a shift with its advice, after which the key equation holds."""
    rows = draw(4000, 1)
    positive = rows[rows["state"] == "yes"]
    mixed = pd.concat([positive, rows[rows["state"] == "no"].head(2 * len(positive) // 3)])
    out = run("evaluate", mixed, "--resamples", 0)[1]
    assert "prevalence shift: yes 0.6 here" in out
    assert "use --prevalence 0.6" in out
    likely = run("evaluate", rows[rows["a"] > 0.8], "--resamples", 0)[1]  # right as they are, and wrong if shifted
    assert "prevalence shift" in likely
    assert "of no use" not in out + likely
    for stated in ("0.6", "auto"):
        values = found("evaluate", mixed, "--resamples", 0, "--prevalence", stated)
        assert not any("prevalence shift" in note for note in values["notes"])
        assert values["key_equation"]["verdict"] == ("not tested" if stated == "auto" else "holds")
        assert not [one["code"] for one in values["findings"] if one["status"] == "warning"]
    wrong = run("evaluate", mixed, "--resamples", 0, "--prevalence", "0.3")[1]
    assert "prevalence shift: yes 0.6 here and 0.3 as stated" in wrong
    assert "prices are at the stated share: use" in wrong
    assert "class yes has 60 % of rows here and 30 % as stated" in wrong
    moved = draw(3000, 2, k=3)
    few = pd.concat([moved[moved["state"] == "worst"], moved[moved["state"] != "worst"].head(300)])
    assert "prevalence shift" in run("evaluate", few, "--resamples", 0, k=3)[1]


@pytest.mark.parametrize(("command", "option"), [("evaluate", "--resamples=0"), ("report", "--out=r.html")])
def test_swapped_labels_are_no_prevalence_to_state(run, monkeypatch, tmp_path, command, option):
    monkeypatch.chdir(tmp_path)
    rows = draw(4000, 1)
    out = run(command, rows.assign(state=rows["state"].map({"yes": "no", "no": "yes"})), option)[1]
    assert "are the labels swapped?" in out
    assert "prevalence shift: yes 0.776 here" in out
    assert "use --prevalence" not in out
    assert "the model is of no use here" in out


def test_labels_of_alarms_only_are_no_prevalence_to_state(run, home):
    rows = draw(4000, 1)
    is_alarm = crcen.load(home / "2.crcen").predict(rows) == "yes"
    out = run("evaluate", rows.assign(state=rows["state"].where(is_alarm)), "--resamples", 0)[1]
    assert "prevalence shift: yes " in out
    assert "use --prevalence" not in out


def test_few_training_rows_are_named_at_any_prevalence(tmp_path, crcen_command):
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=3, encoding="standard", n_members=1, cv=3)
    rows = draw(1500, 0)
    rows = pd.concat([rows[rows["state"] == "no"], rows[rows["state"] == "yes"].head(20)])
    crcen.fit_table(rows, target="state", weighting="balanced", estimator=search, out=tmp_path / "few.crcen")
    draw(1500, 1).to_csv(tmp_path / "rows.csv", index=False)
    command = ("evaluate", tmp_path / "few.crcen", tmp_path / "rows.csv", "--resamples", 0, "--prevalence", 0.2)
    assert "rows of class yes here, 20 in training" in crcen_command(*command)[1]


@pytest.mark.parametrize("k", [2, 3])
def test_an_extreme_value_is_clipped_and_reported(found, home, k):
    rows = draw(400, 4, k=k)
    rows.loc[7, "a"] = 1e9
    for name, options in (("predict", ("--out", home / "s.csv")), ("evaluate", ("--resamples", 0)), ("monitor", ())):
        kinds = {(one["column"], one["kind"]) for one in found(name, rows, *options, k=k)["unlike"]}
        assert {("a", "clipped"), ("a", "scale")} & kinds, name
    clean = crcen.predict_table(home / f"{k}.crcen", draw(400, 4, k=k)).frame
    planted = crcen.predict_table(home / f"{k}.crcen", rows)
    assert any(one.column == "a" for one in planted.unlike)
    column = "probability" if k == 2 else "probability_yes"
    assert planted.frame[column].between(1e-6, 1 - 1e-9)[7]
    np.testing.assert_array_equal(planted.frame[column].drop(7), clean[column].drop(7))


def test_rows_for_review_are_explained(run, tmp_path):
    (tmp_path / "costs.csv").write_text(";no;yes;worst;look\nno;0;1;1;.2\nyes;5;0;1;.2\nworst;9;9;0;.2\n")
    out = run("evaluate", draw(600, 5, k=3), "--costs", tmp_path / "costs.csv", "--resamples", 0, k=3)[1]
    assert "rows were decided for look, which is not a class: accuracy and recall count them as not found" in out


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_repeated_rows_without_clusters_are_stated(found, tmp_path, command):
    rows = draw(900, 7).assign(patient_id=10_000 + np.arange(900) // 3)
    options = ("--out", tmp_path / "r.html") if command == "report" else ()
    stated = "patient_id repeats like an identifier, and tests assume independent rows: use --clusters patient_id"
    for by in ((), ("--clusters", "patient_id")):
        assert (stated in found(command, rows, *options, *by)["notes"]) is not bool(by)


def test_identifiers_of_a_wide_table_repeat_over_several_chunks(found, monkeypatch):
    monkeypatch.setattr(scoring, "_CHUNK_BYTES", 1)  # chunks of 1,000 rows, in which hardly any of them repeats
    rows = draw(6000, 7).assign(patient_id=np.random.default_rng(0).permutation(10_000 + np.arange(6000) // 2))
    notes = found("evaluate", rows, "--resamples", 0)["notes"]
    assert any("patient_id repeats like an identifier" in note for note in notes)


def test_clusters_of_unlabelled_rows_are_used_and_the_use_is_stated(run, found, tmp_path):
    """Every row five times: the prevalence is known no better than from the rows once."""
    once = draw(300, 21).assign(who=np.arange(300))
    rows = pd.concat([once] * 5, ignore_index=True)
    out = tmp_path / "out.csv"

    def share(table, *by):
        values = found("predict", table, "--out", out, "--prevalence", "auto", *by)
        one = values["prevalence"]["shares"]["yes"]
        return one["high"] - one["low"], values["notes"]

    alone, naive, together = share(once)[0], share(rows)[0], share(rows, "--clusters", "who")
    assert naive < 0.6 * alone
    assert together[0] == pytest.approx(alone, rel=0.05)
    used = "clusters do not change decisions: of each who at most one row was compared with the training rows"
    assert f"{used}, and intervals and guarantees allow for dependent rows" in together[1]
    assert used in run("predict", rows, "--out", out, "--prevalence", "0.3", "--clusters", "who")[1]


@pytest.mark.parametrize("k", [2, 3])
def test_dependent_rows_raise_no_warning_with_clusters(found, tmp_path, k):
    """Twenty-five nearly equal rows of each of sixty patients pass for 1,500 rows only if clusters are not stated."""
    rng = np.random.default_rng(0)
    rows = draw(60, 12, k=k).assign(patient=range(60), ward=rng.choice(["x", "y", "z"], 60))
    rows = rows.loc[np.repeat(rows.index, 25)].reset_index(drop=True)
    rows[["a", "b"]] += rng.normal(0.0, 0.01, (1500, 2))
    for name, more in (("report", ("--out", tmp_path / "r.html")), ("evaluate", ("--fail-on", "CRC003"))):
        calls = [found(name, rows, "--groups", "ward", *more, *by, k=k) for by in ((), ("--clusters", "patient"))]
        alone, together = ({f["code"] for f in one["findings"] if f["status"] == "warning"} for one in calls)
        assert {"CRC004", "CRC010"} <= alone, name
        assert {"CRC002", "CRC003"} & alone, name
        assert not {"CRC002", "CRC003", "CRC004", "CRC007", "CRC010"} & together, name


class TestWatch:
    """The state of a monitor: replayed rows, damaged counts, several writers."""

    def test_replayed_rows_are_not_counted_again(self, run, found, tmp_path):
        state, rows = ("--state", tmp_path / "watch.json"), draw(300, 8)
        found("monitor", rows, *state)
        for planted in (rows.sample(frac=1.0, random_state=0), rows.drop(index=5), rows.head(200)):
            code, _, err = run("monitor", planted, *state)
            assert (code, "labelled rows of rows.csv were counted before, in call 1" in err) == (1, True)
        partly = found("monitor", pd.concat([draw(300, 9), rows.head(20)]), *state)
        assert partly["labelled"] == 300
        assert "20 labelled rows were counted before, in call 1, and were left out" in partly["notes"]
        assert json.loads((tmp_path / "watch.json").read_text())["n_calls"] == 2

    def test_rows_that_repeat_by_nature_are_counted(self, run, found, tmp_path):
        state, coarse = ("--state", tmp_path / "watch.json"), [draw(300, seed).round(0) for seed in (10, 11)]
        assert [found("monitor", rows, *state)["labelled"] for rows in coarse] == [300, 300]
        assert run("monitor", coarse[0].sample(frac=1.0, random_state=1), *state)[0] == 1

    def test_invalid_counts_are_one_sentence(self, run, tmp_path):
        state, rows = tmp_path / "watch.json", draw(200, 13)
        run("monitor", draw(200, 12), "--state", state)
        whole = state.read_text()
        for change in ({"n_calls": -1}, {"history": [{}]}, {"false_alarm_rate": None}, {"labels": None}):
            state.write_text(json.dumps(json.loads(whole) | change))
            before = state.read_bytes()
            code, _, err = run("monitor", rows, "--state", state, "--page", tmp_path / "page.html")
            assert (code, len(err.splitlines()), state.read_bytes() == before) == (1, 1, True), change
            assert "is a damaged state of a monitor" in err

    def test_another_false_alarm_rate_is_refused(self, run, tmp_path):
        state = tmp_path / "watch.json"
        run("monitor", draw(200, 12), "--state", state, "--false-alarm-rate", 0.01)
        _, _, err = run("monitor", draw(200, 13), "--state", state, "--false-alarm-rate", 0.2)
        assert "--false-alarm-rate must not change in a monitor that was started with 0.01: got 0.2" in err
        assert "at most 0.01" in run("monitor", draw(200, 13), "--state", state)[1]

    def test_four_processes_lose_no_update(self, home, tmp_path):
        running = []
        for number in range(4):
            draw(100, 20 + number).to_csv(tmp_path / f"{number}.csv", index=False)
            command = [sys.executable, "-m", "crcen", "monitor", home / "2.crcen", tmp_path / f"{number}.csv"]
            running.append(subprocess.Popen([*map(str, command), "--state", str(tmp_path / "watch.json"), "--json"]))
        assert {one.wait(timeout=240) for one in running} <= {0, 3}
        kept = json.loads((tmp_path / "watch.json").read_text())
        assert (kept["n_calls"], len(kept["history"])) == (4, 4)
        assert sum(call["labelled"] for call in kept["history"]) == 400
        assert sorted(call["call"] for call in kept["history"]) == [1, 2, 3, 4]
