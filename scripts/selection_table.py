"""CRCEN's cells of Table 3 under every selection rule, one line each.

    python scripts/selection_table.py [--data-home DIR] [--out runs/selection]

Prints a Markdown table with the number of cells that are within 0.03 (or one standard error over splits) of the
published value or above it. Resumable, like every run.
"""

import argparse
import os
from pathlib import Path

import crcen
from crcen.paper.protocol import RunFolder, Table, published
from crcen.paper.reproduce import METRICS, cells, read_settings, run_table3


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("CRCEN_DATA_HOME") or None)
    parser.add_argument("--out", default="runs/selection")
    args = parser.parse_args()
    home = Path(args.data_home) if args.data_home else None
    lines = []
    for selection in ("first_split", "per_split"):
        for scoring in ("weighted_log_loss", "f1", "g_mean"):
            settings = read_settings(quick=False)["protocol"] | {"selection": selection, "scoring": scoring}
            folder = Path(args.out) / f"{selection}-{scoring}"
            chosen = RunFolder(folder / "selection", settings, key=("dataset", "split", "method"))
            run = run_table3(settings, ["crcen"], folder / "table3", chosen, home)
            line = {"selection": selection, "scoring": scoring}
            good = 0
            for (_, name, metric), (mean, sd, n) in cells(run.rows).items():
                paper = published("table3", "crcen", name, metric)
                assert paper is not None
                is_good = mean >= paper[0] - max(0.03, sd / n**0.5)
                good += is_good
                text = f"{mean:.3f} ({mean - paper[0]:+.3f})"
                line[f"{crcen.load_dataset(name, home).name} {METRICS[metric]}"] = text if is_good else f"{text} ✗"
            lines.append(line | {"cells that agree": f"{good} of 12"})
    note = "CRCEN, mean over four splits and difference to the published value; ✗ marks a cell that falls short."
    print(Table("Selection", lines, note).markdown().replace("## Selection\n\n", ""))


if __name__ == "__main__":
    main()
