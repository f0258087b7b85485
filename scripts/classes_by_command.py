"""Commands for a model of several classes, with their output, as docs/classes.md shows them.

    python scripts/classes_by_command.py [--out results/classes_by_command.txt]

4,000 machines that are fine, worn or broken; costs as a spreadsheet exports them. The commands run in a
temporary folder.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import make_classification

from crcen._support.files import write_atomic

COSTS = ";fine;worn;broken;inspect\nfine;;1;1;0,5\nworn;5;;2;1\nbroken;40;10;;3\n"
COMMANDS = (
    "crcen split machines.csv --target state",
    "crcen fit machines_train.csv --target state --costs costs.csv --learner networks --out model.crcen",
    "crcen evaluate model.crcen machines_test.csv",
    "crcen predict model.crcen machines_test.csv --out decided.csv --id machine",
)


def write_machines(folder: Path, n: int) -> None:
    """The table and the costs."""
    shape = {"n_features": 6, "n_informative": 4, "n_classes": 3, "n_clusters_per_class": 1, "class_sep": 0.8}
    X, y = make_classification(n, **shape, weights=[0.85, 0.12], random_state=0)
    names = ["hours", "load", "heat", "noise", "oil", "age"]
    frame = pd.DataFrame(X.round(4), columns=names).assign(state=np.array(["fine", "worn", "broken"])[y])
    frame.insert(0, "machine", [f"M{i:05d}" for i in range(n)])
    frame.to_csv(folder / "machines.csv", index=False)
    (folder / "costs.csv").write_text(COSTS, encoding="utf-8")


def _short(line: str) -> list[str]:
    """A line of the terminal in parts that fit a page."""
    return textwrap.wrap(line, 116, subsequent_indent="    ") if len(line) > 116 else [line]


def main() -> None:
    """Run every command and write the text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = ["$ cat costs.csv", *COSTS.rstrip().split("\n")]
    with tempfile.TemporaryDirectory() as home:
        write_machines(Path(home), options.rows)
        for command in COMMANDS:
            words = [sys.executable, "-m", *shlex.split(command)]
            done = subprocess.run(words, cwd=home, capture_output=True, text=True, env=os.environ, check=False)
            printed = (done.stdout + done.stderr).rstrip().split("\n")
            lines += ["", *_short(f"$ {command}"), *(part for line in printed for part in _short(line))]
            if done.returncode not in (0, 3):
                raise SystemExit("\n".join(lines))
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    print(text)
    if options.out:
        write_atomic(options.out, text)


if __name__ == "__main__":
    main()
