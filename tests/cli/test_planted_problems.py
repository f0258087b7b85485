"""Problems planted in a table, and found by `look`, `split`, `fit` and `export`; none is found in the clean table."""

import numpy as np
import pandas as pd
import pytest

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


def flag(frame):
    rng = np.random.default_rng(1)
    return frame.assign(flagged=((frame["y"] == "yes") & (rng.random(len(frame)) < 0.4)).astype(int))


def short_flag(frame):
    flagged = np.zeros(len(frame), dtype=int)
    flagged[np.flatnonzero(frame["y"] == "yes")[:18]] = 1
    return frame.assign(flagged=flagged)


def near_copy(frame):
    return frame.assign(score=(6.0 * (frame["y"] == "yes") + np.random.default_rng(1).normal(size=len(frame))).round(3))


def filled_in(frame):
    rng = np.random.default_rng(1)
    is_known = (frame["y"] == "yes") & (rng.random(len(frame)) < 0.6)
    return frame.assign(refund=np.where(is_known, rng.gamma(2.0, 50.0, len(frame)).round(2), np.nan))


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
    "flag": (flag, "flagged is 1 for yes only"),
    "short flag": (short_flag, "flagged is 1 for yes only (18 of 18 such rows"),
    "near copy": (near_copy, "score alone nearly separates yes"),
    "filled in": (filled_in, "refund is filled in for yes only"),
    "later date": (later_date, "opened is before closed for yes only"),
    "oversampled": (oversampled, "copies depend on the label"),
    "identifier": (patients, "patient_id repeats like a customer or patient ID"),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("problem", PLANTED)
def test_planted_problems_are_named_by_look_and_fit(printed, tmp_path, problem, n_classes):
    plant, said = PLANTED[problem]
    plant(clean(n_classes)).to_csv(tmp_path / "a.csv", index=False)
    table = (tmp_path / "a.csv", "--target", "y")
    assert said in printed("look", *table)
    assert said in printed("fit", *table, "--quick", "--out", tmp_path / "m.crcen")
    if problem == "oversampled":
        out = printed("split", *table)
        assert said in out
        assert "test rows are also training rows" in out


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_clean_table_gives_no_warning(answer, printed, tmp_path, n_classes, seed):
    clean(n_classes, seed=seed).assign(number=np.arange(N)).to_csv(tmp_path / "a.csv", index=False)
    found = answer("look", tmp_path / "a.csv", "--target", "y")
    assert (found["leaks"], found["identifiers"], found["notes"]) == ([], {}, [])
    assert "Note:" not in printed("split", tmp_path / "a.csv", "--target", "y")


def test_split_finds_copies_with_new_row_numbers(answer, tmp_path):
    frame = oversampled(clean()).reset_index(drop=True)
    frame.insert(0, "row_id", np.arange(len(frame)) + 1)
    frame.to_csv(tmp_path / "a.csv", index=False)
    copies = answer("split", tmp_path / "a.csv", "--target", "y")["duplicates"]
    assert (copies["label"], copies["n_crossing"] > 50) == ("yes", True)


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
    changed = pd.read_csv(done["test"]["path"])[1:]
    changed.to_csv(done["test"]["path"], index=False)
    assert not was_stratified(open_table(done["test"]["path"]), "y")


def test_the_graph_answers_as_the_model_whatever_the_spelling(answer, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    import crcen

    frame = clean(n=400).assign(paid=lambda one: np.where(one["a"] > 0, "NO", "YES, LATE"))
    frame.drop(columns="opened").to_csv(tmp_path / "a.csv", index=False)
    how = ("--target", "y", "--quick", "--out", tmp_path / "m.crcen")
    answer("fit", tmp_path / "a.csv", *how)
    assert answer("export", tmp_path / "m.crcen", "--onnx", tmp_path / "m.onnx")["checked_rows"] >= 512
    cells = ["NO", "NO ", " NO\t", "no", "nO", "new", "", "YES, LATE", "\u00a0YES, LATE"]
    rows = pd.DataFrame({"a": 0.3, "b": np.nan, "site": "x", "paid": cells})
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    feeds = {name: rows[name].to_numpy(dtype=np.float64)[:, None] for name in ("a", "b")}
    feeds |= {name: rows[name].to_numpy(dtype=object)[:, None] for name in ("site", "paid")}
    model = crcen.load(tmp_path / "m.crcen")
    expected = model.predict_proba(rows.replace("", None))
    np.testing.assert_allclose(session.run(["probabilities"], feeds)[0], expected, atol=1e-9)
    assert expected[1] == pytest.approx(expected[0], abs=1e-12)


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


def test_rows_of_few_different_values_are_no_warning(printed, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 4, (600, 3)), columns=["a", "b", "c"])
    frame["year"] = 1994 + rng.integers(0, 9, 600)
    frame.assign(y=np.where(rng.random(600) < 0.4, "yes", "no")).to_csv(tmp_path / "a.csv", index=False)
    for command, more in (("look", ("--positive", "yes")), ("split", ())):
        out = printed(command, tmp_path / "a.csv", "--target", "y", *more)
        assert ("Note:" in out, "1,994" in out, "Duplicates: " in out) == (False, False, True)
