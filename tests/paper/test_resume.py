"""A run that is killed and started again gives the tables of a run that was left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

DRIVER = Path(__file__).with_name("experiments_driver.py")
TABLES = {
    "table1": ("table1",),
    "table3": ("table3", "table3_ranks"),
    "figure1": ("figure1", "figure1_pairs"),
}


def rows_of(folder, part):
    lines = (folder / part / "rows.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.endswith("seconds")} for line in lines]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of a run left alone, and that of one killed in each of its parts."""
    calm, killed = tmp_path_factory.mktemp("calm"), tmp_path_factory.mktemp("killed")
    command = [sys.executable, str(DRIVER), str(calm), str(killed)]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
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
