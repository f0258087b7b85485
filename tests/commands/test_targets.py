"""Targets of more than two values, names that are nearly right, and columns with two roles."""

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import InvalidInput, evaluate_table, fit_table, load, look_at_table, predict_table, report_table

N = 240
QUICK = crcen.CRCENClassifierCV(hidden=(2,), l2=1e-2, encoding="standard", n_members=1, max_epochs=3)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N)
    kind = np.where(x + rng.normal(size=N) > 1, 3, rng.integers(1, 3, N))
    return pd.DataFrame({"x": x, "Region": rng.integers(0, 9, N), "Kind": kind})


def fit(frame, **options):
    return fit_table(frame, **{"target": "Kind", "estimator": QUICK, "n_splits": 2, **options})


@pytest.mark.parametrize("positive", [3, "3"])
def test_one_value_against_the_rest(tmp_path, one_thread, positive):
    frame = rows()
    found = fit(frame, positive=positive, out=tmp_path / "m.crcen")
    assert "Kind has 3 values: 3 is the positive class, all others are the negative one (1, 2)" in found.notes
    assert found.model.weighting_.n_pos == (frame["Kind"] == 3).sum()

    twin = fit(frame.assign(Kind=np.where(frame["Kind"] == 3, "yes", "no")), positive="yes")
    model, new = load(tmp_path / "m.crcen"), rows(1)
    scored = predict_table(model, new).frame
    np.testing.assert_array_equal(scored["probability"], predict_table(twin.model, new).frame["probability"])
    assert set(scored["decision"]) == {"3", "not 3"}

    new.loc[:20, "Kind"] = 7  # a value that training did not have is one of the rest
    judged = evaluate_table(model, new, n_resamples=0)
    assert judged.n_pos == (new["Kind"] == 3).sum()
    assert judged.n_rows == N
    assert report_table(model, new, out=tmp_path / "r.html").n_rows == N


def test_without_a_positive_value_classes_are_those_of_the_target(one_thread):
    found, frame = fit(rows()), rows()
    assert found.model.classes_.tolist() == [1, 2, 3]
    assert found.model.classes_.dtype.kind == "i"
    assert set(predict_table(found.model, rows(1)).frame["decision"]) <= {1, 2, 3}
    with pytest.raises(InvalidInput, match="positive must be a value of Kind, 1, 2, 3: got 9"):
        fit(frame, positive=9)
    found = fit(frame.assign(Kind=(frame["Kind"] == 3).astype(int)), positive=1)
    assert found.model.classes_.tolist() == [0, 1]
    with pytest.raises(InvalidInput, match=r"must hold the labels of training, 0, 1: got [23], [23]"):
        evaluate_table(found.model, frame)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target": "KIND"}, "did you mean Kind?"),
        ({"target": "kidn"}, "did you mean Kind?"),
        ({"clusters": "REGION"}, "did you mean Region?"),
        ({"drop": ["region"]}, "did you mean Region?"),
        ({"keep": ["REGION"]}, "did you mean Region?"),
        ({"categorical": ["regoin"]}, "did you mean Region?"),
        ({"target": "zzz"}, "it has x, Region, Kind"),
        ({"clusters": "Kind"}, "must be another column than the target: got 'Kind'"),
        ({"time": "Kind"}, "must be another column than the target: got 'Kind'"),
    ],
)
def test_names_that_are_nearly_right_or_used_twice(options, sentence):
    with pytest.raises((InvalidInput, crcen.InvalidParameter)) as caught:
        fit(rows(), positive=3, **options)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("cell", [[1, 2], {"a": 1}, np.array([1.0])])
def test_a_target_of_lists_or_records(tmp_path, cell):
    frame = rows().astype({"Kind": object})
    frame["Kind"] = [cell] * N
    frame.to_parquet(tmp_path / "a.parquet")
    for source in (frame, tmp_path / "a.parquet"):
        with pytest.raises(InvalidInput, match="the target Kind must hold single values: it holds lists or records"):
            fit(source)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".xlsx", "frame"])
def test_cells_of_spaces_are_missing_and_no_class(tmp_path, ending):
    frame = pd.DataFrame({"x": range(60), "when": [f"2024-01-{i % 28 + 1:02}" for i in range(60)]})
    frame = frame.assign(kind=pd.Categorical(["  ", "a", "b"] * 20), y=["yes", "no", "no"] * 20)
    frame.loc[::4, ["when", "y"]] = ["\t", " "]
    source = frame if ending == "frame" else tmp_path / f"a{ending}"
    if ending != "frame":
        getattr(frame, {".csv": "to_csv", ".parquet": "to_parquet", ".xlsx": "to_excel"}[ending])(source, index=False)
    look = look_at_table(source, target="y")
    assert look.counts == {"yes": 15, "no": 30}
    when, kind = look.columns[1:]
    assert (when.kind, when.n_missing) == ("date", 0)  # the rows that lack it lack a label too
    assert (kind.n_missing, kind.n_values) == (15, 2)
    assert all(example.strip() for column in look.columns for example in column.examples)


@pytest.mark.parametrize(
    ("labels", "counts", "note"),
    [
        ([2**53, 2**53 + 1, 2**53 + 1, 2**53 + 1], {2**53: 10, 2**53 + 1: 30}, None),  # no float has the second one
        (["01", "1", "2", "2.0"], {1: 20, 2: 20}, "y has 01 and 1, taken as one value since they are one number"),
    ],
)
def test_whole_numbers_as_labels(tmp_path, labels, counts, note):
    frame = pd.DataFrame({"x": range(40), "y": labels * 10})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for source in (frame, tmp_path / "a.csv"):
        look = look_at_table(source, target="y")
        assert look.counts == counts
        assert [one for one in look.notes if "one number" in one] == ([] if note is None else [note])


def test_a_class_called_none_is_not_lost_without_a_word(tmp_path):
    rows = ["x;y"] + [f"{i};{['None', 'stop', 'land', ''][i % 4]}" for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    look = look_at_table(tmp_path / "a.csv", target="y")
    assert look.counts == {"land": 10, "stop": 10}
    assert "20 rows without a value of y were left out" in look.notes
    assert '"None" stands in 10 cells of y and is read as missing: write another word if it is a class' in look.notes
    (tmp_path / "b.csv").write_text("\n".join(rows).replace("None", "NA"))
    assert not any("None" in note for note in look_at_table(tmp_path / "b.csv", target="y").notes)


@pytest.mark.parametrize("command", ["look", "split", "fit"])
def test_a_target_with_one_class_and_missing_cells_says_so(tmp_path, crcen_command, command):
    rows = pd.DataFrame({"x": np.arange(60) % 7, "bad": ["", "NA", "ok"] * 20})
    rows.to_csv(tmp_path / "a.csv", index=False)
    _, out, err = crcen_command(command, tmp_path / "a.csv", "--target", "bad")
    assert "in 40 other rows it is missing" in err or "(40 rows without a value)" in out
