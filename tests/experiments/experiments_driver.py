"""A small run of all experiments in a process of its own, to be killed: python experiments_driver.py FOLDER [PAUSE]."""

import sys
import time
from pathlib import Path

from crcen.experiments.paper.figure1 import run_figure1
from crcen.experiments.paper.table1 import run_table1
from crcen.experiments.paper.table3 import run_table3
from crcen.experiments.run_folder import RunFolder

PROTOCOL = {
    "sets": ["abalone", "satimage"],
    "splits": 2,
    "test_size": 0.25,
    "folds": 2,
    "search_networks": 1,
    "hidden": [2],
    "l2": [1e-3, 1e-1],
    "epochs": 1,
    "members": 2,
    "seed": 0,
    "selection": "per_split",
    "scoring": "g_mean",
}
TABLE1 = {
    "runs": 3,
    "runs_at_once": 1,
    "n_pos": 50,
    "n_neg": 500,
    "n_test": 50,
    "seed": 0,
    "hidden": [3],
    "epochs": 2,
    "learning_rate": 0.01,
}


def run_all(folder):
    run_table1(TABLE1, folder / "table1")
    selection = RunFolder(folder / "selection", PROTOCOL, key=("dataset", "split", "method"))
    run_table3(PROTOCOL, ["crcen", "smote"], folder / "table3", selection, None)
    run_figure1(PROTOCOL, [0.5, 1.0], folder / "figure1", selection, None)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        write = RunFolder.add

        def write_and_wait(self, rows):
            write(self, rows)
            time.sleep(float(sys.argv[2]))  # time for the killer to come

        RunFolder.add = write_and_wait
    run_all(Path(sys.argv[1]))
