"""A run's folder: rows survive whatever happens, and nothing is half written."""

import json
import os

import pytest

import crcen
from crcen._support.files import write_atomic
from crcen.exceptions import DataUnavailable
from crcen.paper import run_folder
from crcen.paper.run_folder import RunFolder, settings_hash

KEY = ("dataset", "split")
ROWS = [{"dataset": "a", "split": s, "x": 0.1 * s, "nothing": None, "far": float("-inf")} for s in range(3)]


def opened(folder, **settings):
    return RunFolder(folder, {"seed": 0, **settings}, KEY)


def test_rows_survive(tmp_path):
    first = opened(tmp_path)
    first.add(ROWS[:2])
    first.add(ROWS[2:])
    assert first.rows == ROWS
    assert opened(tmp_path).rows == ROWS
    assert (tmp_path / "rows.jsonl").read_bytes().count(b"\n") == 3


def test_rows_are_on_disk_when_add_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(run_folder.os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    run = opened(tmp_path)
    synced.clear()
    run.add(ROWS)
    assert synced == [(tmp_path / "rows.jsonl").stat().st_size]


@pytest.mark.parametrize("tail", [b'{"dataset": "a", "spl', b'{"dataset": "a", "split": 9}', b"\x00\x00\xff", b"{"])
def test_a_line_that_was_cut_off_is_dropped_from_the_file_too(tmp_path, tail):
    opened(tmp_path).add(ROWS)
    path = tmp_path / "rows.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    again = opened(tmp_path)
    assert again.rows == ROWS
    assert path.read_bytes() == whole
    again.add([{"dataset": "b", "split": 0}])
    assert opened(tmp_path).rows == [*ROWS, {"dataset": "b", "split": 0}]


@pytest.mark.parametrize("length", range(0, 60, 7))
def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path, length):
    opened(tmp_path).add(ROWS)
    path = tmp_path / "rows.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:length])
    assert opened(tmp_path).rows == ROWS[: 1 if length < len(lines[1]) else 2]


def test_a_known_row_is_not_added_twice(tmp_path):
    run = opened(tmp_path)
    run.add(ROWS[:1])
    run.add([{"dataset": "a", "split": 0, "x": "another"}, ROWS[1]])
    assert run.rows == ROWS[:2]
    again = opened(tmp_path)
    again.add(ROWS)
    assert again.rows == opened(tmp_path).rows == ROWS


def test_rows_of_one_key_count_once(tmp_path):
    run = opened(tmp_path)
    run.add([ROWS[0], {**ROWS[0], "x": "again"}, ROWS[1]])
    assert run.rows == ROWS[:2]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(path.read_bytes() + json.dumps({**ROWS[1], "x": "of another run"}).encode() + b"\n")
    again = opened(tmp_path)
    assert again.rows == ROWS[:2]
    again.add(ROWS)
    assert opened(tmp_path).rows == ROWS


def test_nothing_new_writes_nothing(tmp_path):
    run = opened(tmp_path)
    run.add([])
    assert not (tmp_path / "rows.jsonl").exists()


def test_has_looks_at_the_fields_given(tmp_path):
    run = opened(tmp_path)
    run.add(ROWS)
    assert run.has(dataset="a")
    assert run.has(dataset="a", split=2)
    assert not run.has(dataset="a", split=3)
    assert not run.has(dataset="a", curve="none")


def test_other_settings_are_refused_by_name(tmp_path):
    opened(tmp_path, folds=4, sets=["a"]).add(ROWS)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        crcen.InvalidParameter, match=r"other settings \(folds, scoring\); give another --out"
    ) as caught:
        opened(tmp_path, folds=3, sets=["a"], scoring="f1")
    assert str(tmp_path) in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_tuples_and_lists_are_the_same_setting(tmp_path):
    opened(tmp_path, sets=("a", "b"))
    opened(tmp_path, sets=["a", "b"])
    assert settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1})
    assert settings_hash({"a": 1}) != settings_hash({"a": 2})
    assert len(settings_hash({})) == 8


def test_the_environment_is_written_once_and_says_what_ran(tmp_path):
    opened(tmp_path)
    path = tmp_path / "environment.json"
    environment = json.loads(path.read_text())
    assert environment["crcen"] == crcen.__version__
    assert {"python", "platform", "processors", "device", "packages", "command"} <= environment.keys()
    assert environment["packages"].keys() >= {"numpy", "torch", "scikit-learn", "imbalanced-learn"}
    path.write_text("the first run's")
    opened(tmp_path)
    assert path.read_text() == "the first run's"


def test_a_kill_between_the_first_two_files_leaves_a_folder_that_completes_itself(tmp_path, monkeypatch):
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
    opened(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"settings.json", "environment.json"}


def test_done_comes_from_finish_alone(tmp_path):
    run = opened(tmp_path)
    run.add(ROWS)
    run.write("table.md", "text")
    assert not (run.folder / "DONE").exists()
    run.finish()
    assert (run.folder / "DONE").exists()


def test_a_full_disk_keeps_whole_rows_and_says_so(full_disk):
    run = opened(full_disk)
    run.add(ROWS)
    whole = (full_disk / "rows.jsonl").read_bytes()
    with pytest.raises(DataUnavailable, match=r"rows\.jsonl was not written: No space left on device"):
        run.add([{"dataset": "b", "split": split, "x": "y" * 5_000} for split in range(20)])
    assert (full_disk / "rows.jsonl").read_bytes() == whole
    assert opened(full_disk).rows == run.rows == ROWS
