"""Readings (interpretations of the protocol) of Table 3 from the rows of their runs: by method and claim, or by cell.

python scripts/reading_table.py today=results/full 2019=results/reading_2019 > results/readings.md
python scripts/reading_table.py --cells today=results/full 2019=results/reading_2019 > results/reading_cells.md
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import crcen
from crcen.paper import Rows
from crcen.paper.protocol import Table, published
from crcen.paper.reproduce import METRICS, cells, expense_claims, performance_claims

Readings = Mapping[str, Rows]  # rows of Table 3 or Figure 1 by the name of their reading
NEAR = 0.03  # a cell within this difference counts as reached


def rows_of(folder: str, artefact: str) -> list[dict[str, Any]]:
    """Rows of a run, none where it has none."""
    path = Path(folder) / artefact / "rows.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _gaps(readings: Readings) -> dict[tuple[str, str, str], dict[str, tuple[float, float]]]:
    """(method, set, metric) → reading → value and difference to the published value."""
    sets = list(dict.fromkeys(row["dataset"] for rows in readings.values() for row in rows))
    found: dict[tuple[str, str, str], dict[str, tuple[float, float]]] = {}
    tables = {reading: cells(rows) for reading, rows in readings.items()}
    for method in (name for name, one in crcen.METHODS.items() if one.in_paper):
        for key in ((method, dataset, metric) for dataset in sets for metric in METRICS):
            paper = published("table3", *key)
            own = {reading: table[key][0] for reading, table in tables.items() if key in table}
            if paper and own:
                found[key] = {reading: (value, value - paper[0]) for reading, value in own.items()}
    return found


def compare_readings(readings: Readings) -> Table:
    """Mean absolute difference to the published cells: a line per method, a column per reading."""
    gaps = _gaps(readings)
    lines = []
    for method in [*dict.fromkeys(key[0] for key in gaps), "all"]:
        own = [cell for key, cell in gaps.items() if method in (key[0], "all")]
        line = {"method": "all methods" if method == "all" else crcen.METHODS[method].label}
        for reading in readings:
            values = np.abs([cell[reading][1] for cell in own if reading in cell])
            line[f"{reading}: mean absolute difference"] = f"{values.mean():.3f}" if len(values) else "–"
            line[f"{reading}: within .03"] = f"{int((values <= NEAR).sum())} of {len(values)}"
        reached = sum(min(abs(gap) for _, gap in cell.values()) <= NEAR for cell in own)
        line["any reading: within .03"] = f"{reached} of {len(own)}"
        lines.append(line)
    note = f"Cells are {', '.join(METRICS.values())} of each set, means over splits, less the published value."
    return Table("Table 3, readings of the paper", lines, note)


def compare_cells(readings: Readings) -> Table:
    """Every published cell beside that of each reading, the closest reading, and whether any is within .03."""
    lines = []
    for (method, dataset, metric), own in _gaps(readings).items():
        value, gap = next(iter(own.values()))
        line = {"method": crcen.METHODS[method].label, "cell": f"{dataset} {METRICS[metric]}"}
        line["paper"] = f"{value - gap:.3f}"
        line |= {name: f"{own[name][0]:.3f} ({own[name][1]:+.3f})" if name in own else "–" for name in readings}
        sizes = {name: round(abs(gap), 3) for name, (_, gap) in own.items()}
        least = min(sizes.values())
        line["closest"] = ", ".join(name for name, size in sizes.items() if size == least)
        line["reached"] = "yes" if least <= NEAR else "no"
        lines.append(line)
    n_missed = sum(line["reached"] == "no" for line in lines)
    note = (
        "Means over splits, in brackets the difference to the published value. A cell is reached if a reading comes "
        f"within .03 of it; no reading reaches {n_missed} of {len(lines)} cells."
    )
    return Table("Table 3, cell by cell", lines, note)


def compare_claims(readings: Readings, figures: Readings) -> Table:
    """The paper's claims about Table 3 and Figure 1 (if a reading has it), judged by the rows of each reading."""
    lines: dict[str, dict[str, str]] = {}
    for name, rows in readings.items():
        found = [*performance_claims(rows), *(expense_claims(figures[name]) if figures.get(name) else ())]
        for claim, verdict, number in found:
            line = lines.setdefault(claim, {"claim of the paper": claim, **dict.fromkeys(readings, "–")})
            line[name] = f"{verdict}: {number}"
    return Table("The paper's claims under each reading", list(lines.values()))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readings", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--cells", action="store_true")
    options = parser.parse_args()
    folders = dict(one.split("=", 1) for one in options.readings)
    rows = {name: rows_of(folder, "table3") for name, folder in folders.items()}
    figures = {name: rows_of(folder, "figure1") for name, folder in folders.items()}
    tables = [compare_cells(rows)] if options.cells else [compare_readings(rows), compare_claims(rows, figures)]
    print("\n".join(table.markdown().replace("## ", "### ", 1) for table in tables).rstrip())


if __name__ == "__main__":
    main()
