"""A run that is killed and started again gives the tables of a run that was left alone."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("experiments_driver.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TABLES = {
    "table1": ("table1",),
    "table3": ("table3", "table3_ranks"),
    "figure1": ("figure1", "figure1_pairs"),
}


def start(folder, *arguments):
    command = [sys.executable, str(DRIVER), str(folder), *arguments]
    return subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def finish(process):
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def kill_after_rows(process, path, n):
    """Kill -9 as soon as so many rows are on disk."""
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < n:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert process.returncode == -9


def rows_of(folder, part):
    lines = (folder / part / "rows.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.endswith("seconds")} for line in lines]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of a run left alone, and that of one killed in each of its parts."""
    calm, killed = tmp_path_factory.mktemp("calm"), tmp_path_factory.mktemp("killed")
    quiet = start(calm)
    # Between the chunks of table 1, after a choice and a row of table 3, and after a split of figure 1.
    for part, n in (("table1", 3), ("table3", 3), ("figure1", 6)):
        process = start(killed, "0.3")
        kill_after_rows(process, killed / part / "rows.jsonl", n)
        assert not (killed / part / "DONE").exists()
        assert not (killed / part / f"{part}.md").exists()
        with open(killed / part / "rows.jsonl", "ab") as file:
            file.write(b'{"dataset": "abalone", "sp')  # a line that the kill cut off
    finish(start(killed))
    finish(quiet)
    return calm, killed


@pytest.mark.parametrize("part", TABLES)
def test_tables_are_the_same_to_the_byte(folders, part):
    calm, killed = folders
    for name in TABLES[part]:
        for suffix in ("md", "csv"):
            one, other = ((folder / part / f"{name}.{suffix}").read_bytes() for folder in folders)
            assert one == other
            assert len(one.splitlines()) > 2
    assert (calm / part / "DONE").exists()
    assert (killed / part / "DONE").exists()


@pytest.mark.parametrize("part", [*TABLES, "selection"])
def test_rows_are_the_same_but_for_the_time_they_took(folders, part):
    calm, killed = folders
    assert rows_of(calm, part) == rows_of(killed, part)


def test_the_figure_is_the_same(folders):
    for suffix in ("svg", "png"):
        one, other = ((folder / "figure1" / f"figure1.{suffix}").read_bytes() for folder in folders)
        assert one == other


def test_nothing_half_written_is_left(folders):
    assert not [path for folder in folders for path in folder.rglob("*.part")]
