"""Two readings of Table 3 beside each other, from the rows of their runs.

python scripts/reading_table.py results/full results/reading_2019 > results/readings.md
"""

import json
import sys
from pathlib import Path

from crcen.experiments.paper.readings import compare_readings


def main() -> None:
    """Print the table."""
    rows = {}
    for name, folder in zip(("today", "2019"), sys.argv[1:], strict=True):
        text = (Path(folder) / "table3" / "rows.jsonl").read_text(encoding="utf-8")
        rows[name] = [json.loads(line) for line in text.splitlines()]
    print(compare_readings(rows).markdown())


if __name__ == "__main__":
    main()
