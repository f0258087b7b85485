"""Join runs of parts of Table 3 and Figure 1, by sets or methods, into one run folder with its tables.

    python scripts/join_runs.py PART... --out results/reading_2019

A row that occurs in several parts is taken from the first of them; the environment is that of the first part. Rows that
are missing in all parts are printed and left out of the tables.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from crcen.paper.protocol import RunFolder
from crcen.paper.reproduce import figure1_tables, method_names, read_settings, table3, table3_ranks

KEYS = {
    "table3": ("dataset", "split", "method"),
    "selection": ("dataset", "split", "method"),
    "figure1": ("dataset", "split", "curve", "weight"),
}


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a file, without a last line that was cut off."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def joined(parts: list[Path], name: str, settings: dict[str, Any], out: Path) -> RunFolder:
    """The rows of all parts in one run folder, in the order of sets, splits and methods."""
    order = {one: place for place, one in enumerate((*settings["sets"], *settings.get("methods", ())))}
    run = RunFolder(out / name, settings, KEYS[name])
    measured = json.loads((parts[0] / name / "environment.json").read_text(encoding="utf-8"))
    run.write("environment.json", json.dumps(measured | {"command": ["crcen", "reproduce", "in parts"]}, indent=1))
    rows = [row for part in parts for row in whole_lines(part / name / "rows.jsonl")]
    run.add(sorted(rows, key=lambda row: (order[row["dataset"]], row["split"], order.get(row.get("method"), 0))))
    return run


def main() -> None:
    """Join, write the tables, and say what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", type=Path, help="run folders")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--reading", default="2019")
    parser.add_argument("--methods", help="as `crcen reproduce table3 --methods`")
    options = parser.parse_args()
    settings = read_settings(False, None, options.reading)
    protocol, methods = settings["protocol"], settings["table3"]["methods"]
    if options.methods:
        methods = method_names(options.methods)
    joined(options.parts, "selection", protocol, options.out)
    run = joined(options.parts, "table3", {**protocol, "methods": methods}, options.out)
    for name, table in (("table3", table3(run.rows, protocol)), ("table3_ranks", table3_ranks(run.rows))):
        run.write(f"{name}.md", table.markdown())
        run.write(f"{name}.csv", table.csv())
    wanted = [
        (name, split, method) for name in protocol["sets"] for split in range(protocol["splits"]) for method in methods
    ]
    missing = [one for one in wanted if not run.has(dataset=one[0], split=one[1], method=one[2])]
    if any((part / "figure1" / "rows.jsonl").exists() for part in options.parts):
        figure = joined(options.parts, "figure1", {**protocol, **settings["figure1"]}, options.out)
        for name, table in figure1_tables(figure.rows, protocol).items():
            figure.write(f"{name}.md", table.markdown())
    seconds = sum(row.get("seconds", 0.0) for row in run.rows)
    print(f"{len(run.rows)} of {len(wanted)} rows of Table 3, {seconds:.0f} s of fits and searches")
    for name, split, method in missing:
        print(f"missing: {name}, split {split}, {method}")
    if not missing:
        run.write("DONE", "")


if __name__ == "__main__":
    main()
