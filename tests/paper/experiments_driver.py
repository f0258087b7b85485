"""Small runs of all experiments, one left alone and one killed in each part: experiments_driver.py CALM KILLED.

Each run is a fork of this process, which has loaded everything and computed nothing, so that no run waits for imports.
"""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

import imblearn.over_sampling  # noqa: F401
import matplotlib.backends.backend_svg  # noqa: F401

import crcen.training.engine  # noqa: F401
from crcen.paper.figure1 import run_figure1
from crcen.paper.reproduce import read_settings
from crcen.paper.run_folder import RunFolder
from crcen.paper.table1 import run_table1
from crcen.paper.table3 import run_table3

QUICK = read_settings(quick=True)
PROTOCOL = QUICK["protocol"] | {"folds": 2, "hidden": [2], "l2": [1e-3, 1e-1], "epochs": 1, "members": 2}
PROTOCOL |= {"selection": "per_split", "scoring": "g_mean"}
TABLE1 = QUICK["table1"] | {"runs": 3, "runs_at_once": 1, "n_pos": 50, "n_neg": 500, "n_test": 50}
TABLE1 |= {"hidden": [3], "epochs": 2}


def run_all(folder):
    run_table1(TABLE1, folder / "table1")
    selection = RunFolder(folder / "selection", PROTOCOL, key=("dataset", "split", "method"))
    run_table3(PROTOCOL, ["crcen", "smote"], folder / "table3", selection, None)
    run_figure1(PROTOCOL, [0.5, 1.0], folder / "figure1", selection, None)


def n_rows(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def run_apart(folder, path=None, n=1):
    """A process that runs all; with a path it waits to be killed as soon as so many rows are there."""
    child = os.fork()
    if child:
        return child
    try:
        write = RunFolder.add

        def write_and_wait(self, rows):
            write(self, rows)
            time.sleep(120 if path and n_rows(path) >= n else 0)

        RunFolder.add = write_and_wait
        run_all(folder)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_after_rows(folder, path, n):
    child, deadline = run_apart(folder, path, n), time.monotonic() + 120
    while n_rows(path) < n and time.monotonic() < deadline and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    assert ended(child) == -signal.SIGKILL


if __name__ == "__main__":
    calm, killed = map(Path, sys.argv[1:])
    alone = run_apart(calm)
    # Between the chunks of table 1, after a choice and a row of table 3, and after a split of figure 1.
    for part, n in (("table1", 3), ("table3", 3), ("figure1", 6)):
        kill_after_rows(killed, killed / part / "rows.jsonl", n)
        assert not (killed / part / "DONE").exists()
        assert not (killed / part / f"{part}.md").exists()
        with open(killed / part / "rows.jsonl", "ab") as file:
            file.write(b'{"dataset": "abalone", "sp')  # a line that the kill cut off
    assert ended(run_apart(killed)) == 0
    assert ended(alone) == 0
