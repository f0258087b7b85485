"""Readings of Table 3 beside each other, from the rows of their runs: by method and claim by claim, or cell by cell.

python scripts/reading_table.py today=results/full 2019=results/reading_2019 > results/readings.md
python scripts/reading_table.py --cells today=results/full 2019=results/reading_2019 > results/reading_cells.md
"""

import argparse
import json
from pathlib import Path
from typing import Any

from crcen.paper.claims import compare_cells, compare_claims, compare_readings


def rows_of(folder: str, artefact: str) -> list[dict[str, Any]]:
    """Rows of a run, none where it has none."""
    path = Path(folder) / artefact / "rows.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


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
