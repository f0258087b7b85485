"""Two readings of Table 3 beside each other, from the rows of their runs: by method, the claims, cell by cell.

python scripts/reading_table.py results/full results/reading_2019 > results/readings.md
"""

import json
import sys
from pathlib import Path
from typing import Any

from crcen.experiments.paper.readings import compare_cells, compare_claims, compare_readings


def rows_of(folder: str, artefact: str) -> list[dict[str, Any]]:
    """Rows of a run, none where it has none."""
    path = Path(folder) / artefact / "rows.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    """Print the tables."""
    folders = dict(zip(("today", "2019"), sys.argv[1:], strict=True))
    rows = {name: rows_of(folder, "table3") for name, folder in folders.items()}
    figures = {name: rows_of(folder, "figure1") for name, folder in folders.items()}
    tables = (compare_readings(rows), compare_claims(rows, figures), compare_cells(rows))
    print("\n".join(table.markdown().replace("## ", "### ", 1) for table in tables).rstrip())


if __name__ == "__main__":
    main()
