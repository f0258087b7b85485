"""`crcen fit --engine`: from files of numbers to a saved model by one command."""

import json
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen.commands import fit_files as large_files


def test_a_pattern_is_streamed_to_a_model_that_predicts(crcen_command, fit_command, folder, table, tmp_path):
    options = ("--drop", "w", "--budget", "5", "--epochs", "2", "--hold-out", "0")
    (printed, out), scored = fit_command(f"{folder}/*.parquet", "y", *options), tmp_path / "scored.csv"
    assert "600 training rows" in printed
    assert "cost ratio  5  " in printed
    model = crcen.load(out)
    assert [column.name for column in model.columns_] == ["a", "b", "c"]
    assert [(one.name, one.reason) for one in model.dropped_] == [("w", "asked for")]
    assert model.target_name_ == "y"
    assert model.weighting_.n_pos == table[1].sum()
    assert crcen_command("predict", out, folder / "part-0.parquet", "--out", scored)[0] == 0
    assert len(scored.read_text().splitlines()) == 51
    same = crcen.fit_stream(folder, "y", crcen.Budget(5), features=["a", "b", "c"], epochs=2, random_state=0)
    np.testing.assert_array_equal(same.coefs_[0], model.estimator_.coefs_[0])
    np.testing.assert_array_equal(same.intercepts_[-1], model.estimator_.intercepts_[-1])
    X = np.column_stack([table[0][:20], np.ones(20)])
    np.testing.assert_array_equal(same.predict_proba(pd.DataFrame(X[:, :3], columns=[*"abc"])), model.predict_proba(X))


def test_options_reach_ray(crcen_command, folder, tmp_path, monkeypatch):
    asked = {}

    def fit_ray(source, target, weighting, *, workers, storage, **settings):
        asked.update(source=source.n_files, workers=workers, storage=storage)
        return crcen.fit_stream(source, target, weighting, **settings)

    monkeypatch.setattr(large_files, "connected", nullcontext)
    monkeypatch.setattr(large_files, "fit_ray", fit_ray)
    arguments = ["--engine", "ray", "--workers", "4", "--storage", "/shared/runs", "--positive", "0", "--epochs", "1"]
    code, printed, _ = crcen_command(
        "fit", f"{folder}/*.parquet", "--target", "y", *arguments, "--json", "--out", tmp_path / "m.crcen"
    )
    assert code == 0
    said = json.loads(printed)
    assert asked == {"source": 4, "workers": 4, "storage": "/shared/runs"}
    assert said["price"]["positive"] == 0
    assert said["engine"] == "4 workers of Ray"
    assert [column["name"] for column in said["columns"]] == ["a", "b", "c", "w"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--drop q", "--drop must be a column of"),
        ("--positive yes", "positive must be a value of y, 0, 1: got 'yes'"),
        ("--time a", "--time is for tables in memory"),
        ("--clusters q", "--clusters must be a column of"),
        ("--hold-out 60%", "--hold-out must be a share between 0 and 0.5"),
        ("--hold-out some", "must be a share such as 5%"),
        ("--memory much", "must be a size such as 4GB"),
        ("--learner trees", "--learner must be one of committee, networks for files: got 'trees'"),
        ("--learner committee --hold-out 0", "a committee is combined on held-out rows"),
        ("--engine ray --learner networks --memory 1GB", "--memory is for the trees of a committee"),
        ("--epochs 0", "max_epochs"),
    ],
)
def test_impossible_options_are_rejected(fit_command, folder, options, words):
    assert words in fit_command(folder, "y", *options.split(), fails=True)


def test_a_truth_value_is_no_share(folder):
    with pytest.raises(crcen.InvalidParameter, match=r"hold_out must be a share between 0 and 0.5, .* got False"):
        crcen.fit_files(folder, target="y", hold_out=False)


def test_missing_files_targets_and_engines_are_rejected(fit_command, folder, tmp_path):
    assert "no file at" in fit_command(tmp_path / "*.parquet", "y", "--engine", "ray", fails=True)
    assert "the target must be a column of" in fit_command(folder, "z", fails=True)
    with pytest.raises(crcen.InvalidParameter, match="engine must be one of stream, ray: got 'dask'"):
        crcen.fit_files(tmp_path, target="y", engine="dask")


@pytest.mark.parametrize(("name", "is_folder"), [(None, True), ("customer", False)])
def test_the_index_of_pandas_is_no_input(crcen_command, fit_command, table, tmp_path, name, is_folder):
    data, scored, stored = tmp_path / "rows", tmp_path / "scored.csv", name or "__index_level_0__"
    # As a person writes it who sorted a data frame: rows keep the numbers they had.
    frame = pd.DataFrame(table[0], columns=["a", "b", "c"]).assign(y=table[1]).sort_values("y").rename_axis(name)
    data.mkdir()
    for number, part in enumerate((frame[:300], frame[300:]) if is_folder else (frame,)):
        part.to_parquet(data / f"{number}.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    printed, out = fit_command(data if is_folder else data / "0.parquet", "y", "--epochs", "1")
    assert f"{stored} was the index of a pandas data frame and is left out" in printed
    assert crcen_command("predict", out, tmp_path / "rows.csv", "--out", scored)[0] == 0
    assert len(scored.read_text().splitlines()) == 601
    with pytest.warns(UserWarning, match=f"{stored} of .*parquet was the index of a pandas data frame"):
        clf = crcen.fit_stream(data, "y", epochs=1, hidden=(4,), random_state=0)
    assert list(clf.feature_names_in_) == ["a", "b", "c"]
    clf = crcen.fit_stream(data, "y", epochs=1, hidden=(4,), features=["a", stored], random_state=0)
    assert list(clf.feature_names_in_) == ["a", stored]
