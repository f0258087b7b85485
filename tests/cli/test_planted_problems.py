"""Problems planted in a table, and found by `look`, `split`, `fit` and `export`; none is found in the clean table."""

import json

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
    labels = np.array(["no", "yes", "maybe"])
    return pd.DataFrame(
        {"a": a.round(4), "b": b.round(4), "site": rng.choice(["x", "y"], n), "opened": opened, "y": labels[kind]}
    )


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
    return frame.assign(
        patient_id=rng.integers(10**6, 10**7, len(frame) // 3)[rng.integers(0, len(frame) // 3, len(frame))]
    )


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
def test_planted_problems_are_named_by_look_and_fit(crcen_command, tmp_path, problem, n_classes):
    plant, said = PLANTED[problem]
    plant(clean(n_classes)).to_csv(tmp_path / "a.csv", index=False)
    commands = {
        "look": ("look", tmp_path / "a.csv", "--target", "y"),
        "fit": ("fit", tmp_path / "a.csv", "--target", "y", "--quick", "--out", tmp_path / "m.crcen"),
    }
    for arguments in commands.values():
        code, out, err = crcen_command(*arguments)
        assert (code, err) == (0, "")
        assert said in out
    if problem == "oversampled":
        code, out, _ = crcen_command("split", tmp_path / "a.csv", "--target", "y")
        assert said in out
        assert "test rows are also training rows" in out


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_clean_table_gives_no_warning(crcen_command, tmp_path, n_classes, seed):
    clean(n_classes, seed=seed).assign(number=np.arange(N)).to_csv(tmp_path / "a.csv", index=False)
    code, out, _ = crcen_command("look", tmp_path / "a.csv", "--target", "y", "--json")
    found = json.loads(out)
    assert (code, found["leaks"], found["identifiers"], found["notes"]) == (0, [], {}, [])
    code, out, _ = crcen_command("split", tmp_path / "a.csv", "--target", "y")
    assert (code, "Note:" in out) == (0, False)


def test_split_finds_copies_with_new_row_numbers(crcen_command, tmp_path):
    frame = oversampled(clean()).reset_index(drop=True)
    frame.insert(0, "row_id", np.arange(len(frame)) + 1)
    frame.to_csv(tmp_path / "a.csv", index=False)
    code, out, _ = crcen_command("split", tmp_path / "a.csv", "--target", "y", "--json")
    copies = json.loads(out)["duplicates"]
    assert (code, copies["label"]) == (0, "yes")
    assert copies["n_crossing"] > 50


def test_nearly_balanced_classes_state_the_positive_one(crcen_command, tmp_path):
    clean(share=0.4).to_csv(tmp_path / "a.csv", index=False)
    for command in (("look",), ("fit", "--quick", "--out", tmp_path / "m.crcen")):
        _, out, _ = crcen_command(*command, tmp_path / "a.csv", "--target", "y")
        assert "% of rows) is the positive class because it is the rarer one; use --positive" in out
        _, out, _ = crcen_command(*command, tmp_path / "a.csv", "--target", "y", "--positive", "yes")
        assert "nearly balanced" not in out


@pytest.mark.parametrize("n_classes", [2, 3])
def test_fit_prints_the_main_result_first(crcen_command, tmp_path, n_classes):
    clean(n_classes).to_csv(tmp_path / "a.csv", index=False)
    how = ("fit", tmp_path / "a.csv", "--target", "y", "--quick", "--out", tmp_path / "m.crcen")
    code, out, _ = crcen_command(*how)
    lines = out.splitlines()
    assert (code, len(lines) <= 10) == (0, True)
    assert "found " in " ".join(lines[: n_classes + 1])
    assert "false alarms" in " ".join(lines[: n_classes + 1])
    assert any(line.startswith("Cost per 1,000 rows ") for line in lines)
    assert lines[-1].startswith(f"Next: crcen evaluate {tmp_path / 'm.crcen'}")
    code, more, _ = crcen_command(*how, "--details")
    assert code == 0
    assert "log loss" in more
    assert "log loss" not in out


def test_splits_draw_at_random_if_the_test_rows_suffice(crcen_command, tmp_path):
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
            code, out, _ = crcen_command(*how, "--json")
            done = json.loads(out)
            assert (code, done["stratified"]) == (0, is_fixed)
            found.append(done["test"]["labels"]["yes"])
            assert was_stratified(open_table(done["test"]["path"]), "y") == is_fixed
        assert (len(set(found)) == 1) == is_fixed
    changed = pd.read_csv(done["test"]["path"])[1:]
    changed.to_csv(done["test"]["path"], index=False)
    assert not was_stratified(open_table(done["test"]["path"]), "y")


def test_the_graph_answers_as_the_model_whatever_the_spelling(crcen_command, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    import crcen

    frame = clean(n=400).assign(paid=lambda one: np.where(one["a"] > 0, "NO", "YES, LATE"))
    frame.drop(columns="opened").to_csv(tmp_path / "a.csv", index=False)
    how = ("--target", "y", "--quick", "--out", tmp_path / "m.crcen")
    assert crcen_command("fit", tmp_path / "a.csv", *how)[0] == 0
    code, out, err = crcen_command("export", tmp_path / "m.crcen", "--onnx", tmp_path / "m.onnx", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["checked_rows"] >= 512
    cells = ["NO", "NO ", " NO\t", "no", "nO", "new", "", "YES, LATE", "\u00a0YES, LATE"]
    rows = pd.DataFrame({"a": 0.3, "b": np.nan, "site": "x", "paid": cells})
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    feeds = {name: rows[name].to_numpy(dtype=np.float64)[:, None] for name in ("a", "b")}
    feeds |= {name: rows[name].to_numpy(dtype=object)[:, None] for name in ("site", "paid")}
    model = crcen.load(tmp_path / "m.crcen")
    expected = model.predict_proba(rows.replace("", None))
    np.testing.assert_allclose(session.run(["probabilities"], feeds)[0], expected, atol=1e-9)
    assert expected[1] == pytest.approx(expected[0], abs=1e-12)


def test_evaluate_allows_for_a_stratified_split(crcen_command, tmp_path):
    """The p-value with the record of the split is that of --stratified, and another without the record."""
    clean(n=700).drop(columns="opened").to_csv(tmp_path / "a.csv", index=False)
    code, out, _ = crcen_command("split", tmp_path / "a.csv", "--target", "y", "--json")
    done = json.loads(out)
    assert (code, done["stratified"]) == (0, True)
    model, test = tmp_path / "m.crcen", done["test"]["path"]
    assert crcen_command("fit", done["train"]["path"], "--target", "y", "--quick", "--out", model)[0] == 0

    def evaluated(*options):
        code, out, err = crcen_command("evaluate", model, test, "--resamples", 0, "--json", *options)
        assert (code, err) == (0, "")
        return json.loads(out)

    recorded, stated = evaluated(), evaluated("--stratified")
    assert any("fixed the class counts" in note for note in recorded["notes"])
    page = tmp_path / "report.html"
    code, out, _ = crcen_command("report", model, test, "--out", page, "--json")
    assert code == 0
    assert any("fixed the class counts" in note for note in json.loads(out)["notes"])
    (tmp_path / f"{done['test']['path']}.split.json").unlink()
    plain = evaluated()
    assert recorded["key_equation"]["p_value"] == stated["key_equation"]["p_value"] != plain["key_equation"]["p_value"]


def test_rows_of_few_different_values_are_no_warning(crcen_command, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 4, (600, 3)), columns=["a", "b", "c"]).assign(
        year=1994 + rng.integers(0, 9, 600)
    )
    frame.assign(y=np.where(rng.random(600) < 0.4, "yes", "no")).to_csv(tmp_path / "a.csv", index=False)
    for command in ("look", "split"):
        code, out, _ = crcen_command(
            command, tmp_path / "a.csv", "--target", "y", *["--positive", "yes"] * (command == "look")
        )
        assert (code, "Note:" in out, "1,994" in out) == (0, False, False)
        assert "Duplicates: " in out
