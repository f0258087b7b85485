"""A run folder: rows survive interruptions, nothing is half written, and a stopped run resumes to the same tables."""

import json
import os
from unittest import mock

import pytest

import crcen
from crcen._support.files import write_atomic
from crcen.exceptions import DataUnavailable
from crcen.paper import run_folder
from crcen.paper.figure1 import run_figure1
from crcen.paper.reproduce import read_settings
from crcen.paper.run_folder import RunFolder, settings_hash
from crcen.paper.table1 import run_table1
from crcen.paper.table3 import run_table3

KEY = ("dataset", "split")
ROWS = [{"dataset": "a", "split": s, "x": 0.1 * s, "nothing": None, "far": float("-inf")} for s in range(3)]


def opened(folder, **settings):
    return RunFolder(folder, {"seed": 0, **settings}, KEY)


def test_rows_are_on_disk_when_add_returns_and_found_again(tmp_path, monkeypatch):
    synced = []
    run = opened(tmp_path)
    run.add([])
    assert not (tmp_path / "rows.jsonl").exists()
    monkeypatch.setattr(run_folder.os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    run.add(ROWS[:2])
    run.add(ROWS[2:])
    assert synced[-1] == (tmp_path / "rows.jsonl").stat().st_size
    assert run.rows == opened(tmp_path).rows == ROWS
    assert run.has(dataset="a", split=2)
    assert not run.has(dataset="a", split=3)
    assert not run.has(dataset="a", curve="none")


@pytest.mark.parametrize(
    "tail", [b'{"dataset": "a", "spl', b'{"dataset": "a", "split": 9}', b"\x00\x00\xff", b"{", b""]
)
def test_truncated_line_is_dropped_from_the_file(tmp_path, tail):
    opened(tmp_path).add(ROWS)
    path = tmp_path / "rows.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    again = opened(tmp_path)
    assert again.rows == ROWS
    assert path.read_bytes() == whole
    again.add([{"dataset": "b", "split": 0}])
    assert opened(tmp_path).rows == [*ROWS, {"dataset": "b", "split": 0}]


def test_first_row_of_a_key_is_kept(tmp_path):
    run = opened(tmp_path)
    run.add([ROWS[0], {**ROWS[0], "x": "again"}])
    run.add([{**ROWS[0], "x": "another"}, ROWS[1]])
    assert run.rows == ROWS[:2]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(path.read_bytes() + json.dumps({**ROWS[1], "x": "of another run"}).encode() + b"\n")
    again = opened(tmp_path)
    assert again.rows == ROWS[:2]
    again.add(ROWS)
    assert opened(tmp_path).rows == ROWS


def test_other_settings_are_rejected_by_name(tmp_path):
    opened(tmp_path, folds=4, sets=("a", "b")).add(ROWS)
    opened(tmp_path, folds=4, sets=["a", "b"])  # a tuple and a list are the same setting
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    message = r"other settings \(folds, scoring\); give another --out"
    with pytest.raises(crcen.InvalidParameter, match=message) as caught:
        opened(tmp_path, folds=3, sets=["a", "b"], scoring="f1")
    assert str(tmp_path) in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1}) != settings_hash({"a": 1})
    assert len(settings_hash({})) == 8


def test_environment_is_written_once_and_an_interrupted_folder_is_completed(tmp_path, monkeypatch):
    written = []

    def killed(path, content):
        written.append(path.name)
        if len(written) == 2:
            raise KeyboardInterrupt
        write_atomic(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path)
    run = opened(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"settings.json", "environment.json"}
    run.write("table.md", "text")
    assert not (tmp_path / "DONE").exists()
    run.write_tables({})
    assert (tmp_path / "DONE").exists()
    path = tmp_path / "environment.json"
    environment = json.loads(path.read_text())
    assert environment["crcen"] == crcen.__version__
    assert {"python", "platform", "processors", "device", "packages", "command"} <= environment.keys()
    assert environment["packages"].keys() >= {"numpy", "torch", "scikit-learn", "imbalanced-learn"}
    path.write_text("the first run's")
    opened(tmp_path)
    assert path.read_text() == "the first run's"


def test_full_disk_keeps_whole_rows_with_an_error(full_disk):
    run = opened(full_disk)
    run.add(ROWS)
    whole = (full_disk / "rows.jsonl").read_bytes()
    with pytest.raises(DataUnavailable, match=r"rows\.jsonl was not written: No space left on device"):
        run.add([{"dataset": "b", "split": split, "x": "y" * 5_000} for split in range(20)])
    assert (full_disk / "rows.jsonl").read_bytes() == whole
    assert opened(full_disk).rows == run.rows == ROWS


TABLES = {"table1": ("table1",), "table3": ("table3", "table3_ranks"), "figure1": ("figure1", "figure1_pairs")}


QUICK = read_settings(quick=True)
PROTOCOL = QUICK["protocol"] | {"folds": 2, "hidden": [2], "l2": [1e-3, 1e-1], "epochs": 1, "members": 2}
PROTOCOL |= {"selection": "per_split", "scoring": "g_mean"}
TABLE1 = QUICK["table1"] | {"runs": 3, "runs_at_once": 1, "n_pos": 50, "n_neg": 500, "n_test": 50, "hidden": [3]}


def run_all(folder):
    run_table1(TABLE1 | {"epochs": 2}, folder / "table1")
    selection = RunFolder(folder / "selection", PROTOCOL, key=("dataset", "split", "method"))
    run_table3(PROTOCOL, ["crcen", "smote"], folder / "table3", selection, None)
    run_figure1(PROTOCOL, [0.5, 1.0], folder / "figure1", selection, None)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of an undisturbed run, and that of a run stopped in each of its parts, which left half a line."""
    calm, stopped = tmp_path_factory.mktemp("calm"), tmp_path_factory.mktemp("stopped")
    run_all(calm)
    add = RunFolder.add
    # Between the chunks of table 1, after a choice and a row of table 3, and after a split of figure 1.
    for part, n in (("table1", 3), ("table3", 3), ("figure1", 6)):
        path = stopped / part / "rows.jsonl"

        def add_and_stop(self, rows, path=path, n=n):
            add(self, rows)
            if path.exists() and path.read_bytes().count(b"\n") >= n:
                raise KeyboardInterrupt

        with mock.patch.object(RunFolder, "add", add_and_stop), pytest.raises(KeyboardInterrupt):
            run_all(stopped)
        assert not (stopped / part / "DONE").exists()
        assert not (stopped / part / f"{part}.md").exists()
        path.write_bytes(path.read_bytes() + b'{"dataset": "abalone", "sp')
    run_all(stopped)
    return calm, stopped


@pytest.mark.parametrize("part", [*TABLES, "selection"])
def test_stopped_run_ends_with_the_same_rows_tables_and_figure(folders, part):
    def rows_of(folder):
        lines = (folder / part / "rows.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if not k.endswith("seconds")} for line in lines]

    assert rows_of(folders[0]) == rows_of(folders[1])
    names = [f"{name}.{suffix}" for name in TABLES.get(part, ()) for suffix in ("md", "csv")]
    for name in [*names, *(("figure1.svg", "figure1.png") if part == "figure1" else ())]:
        one, other = ((folder / part / name).read_bytes() for folder in folders)
        assert one == other
        assert len(one.splitlines()) > 2
    for folder in folders:
        assert (folder / part / "DONE").exists() == (part in TABLES)
        assert not list((folder / part).rglob("*.part"))
