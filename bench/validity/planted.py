"""Problems planted in real tables, and which of them the commands report.

    python -m bench.validity.planted [--tables 12] [--rows 2000] [--out FILE]

Tables are the first ones of `bench.validity.clean_splits`. A problem counts as found if the command names it. Leaks of
single columns are planted by `bench.validity.leaks`.
"""

import json
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.harness import Printer, options
from bench.validity.clean_splits import chosen, command


def in_training(rows: Any, rare: Any, rng: Any) -> dict[str, tuple[Any, str]]:
    """Tables with one problem each, and words by which `look` and `fit` must name it."""
    n = len(rows)
    rows = rows.assign(measured=rng.normal(size=n).round(6))  # rows differ
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    away = pd.to_timedelta(np.where(rare, 1, -1) * rng.integers(1, 40, n), unit="D")
    opened, closed = (pd.Series(one.strftime("%Y-%m-%d"), index=rows.index) for one in (day, day + away))
    return {
        "oversampled": (pd.concat([rows, rows[rare], rows[rare]]), "copies depend on the label"),
        "identifier": (rows.assign(client=rng.permutation(10**6)[rng.integers(0, n // 2, n)]), "client repeats like"),
        "date present": (rows.assign(closed=closed.where(rare & (rng.random(n) < 0.7))), "closed is filled in"),
        "date order": (rows.assign(opened=opened, closed=closed), "opened is before closed"),
    }


def in_test(test: Any, label: str, values: list[Any], number: str, rng: Any) -> dict[str, tuple[Any, str]]:
    """Test rows with one problem each, and words by which `evaluate` must name it."""
    common, rare = (test[test[label] == value] for value in values)
    shifted = pd.concat([rare, common.head(max(len(rare) // 2, 20))])
    huge = test.copy()
    huge[number] = huge[number].astype(float)
    huge.iloc[rng.integers(0, len(test)), huge.columns.get_loc(number)] = 1e9
    return {
        "prevalence": (shifted, "prevalence shift"),
        "swapped labels": (
            test.assign(**{label: test[label].map(dict(zip(values, values[::-1], strict=True)))}),
            "swapped",
        ),
        "value 1e9": (huge, number),
    }


def main() -> None:
    """Print what was not found, and the counts."""
    given = options(__doc__, tables=12, rows=2000).parse_args()
    say, planted, found = Printer(given.out), Counter[str](), Counter[str]()

    def count(problem: str, name: str, is_found: bool, printed: str) -> None:
        planted[problem] += 1
        found[problem] += is_found
        if not is_found:
            say(f"{name}, {problem}: not named; {printed[:300]!r}")

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, frame, label in islice(chosen(), given.tables):
            rng = np.random.default_rng(0)
            rows = frame.sample(min(len(frame), given.rows), random_state=0).reset_index(drop=True)
            values = rows[label].value_counts().index.tolist()
            for problem, (table, words) in in_training(rows, rows[label] == values[1], rng).items():
                table.sample(frac=1.0, random_state=0).to_csv(folder / "rows.csv", index=False)
                for part in folder.glob("rows_*"):
                    part.unlink()
                paths = [folder / part for part in ("rows_train.csv", "rows_test.csv", "model.crcen")]
                out = command("look", folder / "rows.csv", "--target", label, "--json")[1]
                count(f"{problem}: look", name, words in out, out[-300:])
                out = command("split", folder / "rows.csv", "--target", label, "--folder", folder)[1]
                if problem == "oversampled":
                    count(f"{problem}: split", name, words in " ".join(out.split()), out)
                how = ("--target", label, "--quick", "--json", "--out", paths[2])
                out = command("fit", paths[0], *how)[1]
                count(f"{problem}: fit", name, words in out, out[-300:])
                if problem == "oversampled":
                    out = command("report", paths[2], paths[1], "--json", "--out", folder / "page.html")[1]
                    one = next(one for one in json.loads(out)["findings"] if one["code"] == "CRC008")
                    is_named = one["status"] == "warning" and "depending on their label" in one["measured"]
                    count(f"{problem}: report", name, is_named, one["measured"])
            order = rng.permutation(len(rows))
            train, test = (rows.iloc[part] for part in np.split(order, [len(rows) // 2]))
            train.to_csv(folder / "train.csv", index=False)
            out = command("fit", folder / "train.csv", "--target", label, "--quick", "--json", "--out", folder / "m")[1]
            fitted = json.loads(out)
            area = fitted["out_of_fold"]["classes"][0]["roc_auc"]["value"]
            numbers = [one["name"] for one in fitted["columns"] if one["kind"] == "number"]
            for problem, (table, words) in in_test(test, label, values, (numbers or [label])[0], rng).items():
                if problem == "value 1e9" and not numbers:
                    continue
                table.to_csv(folder / "test.csv", index=False)
                code, out, err = command("evaluate", folder / "m", folder / "test.csv", "--resamples", 0, "--json")
                shown = json.loads(out) if out.startswith("{") else {}
                where = json.dumps(
                    shown.get("unlike") if problem == "value 1e9" else [shown.get("notes"), shown.get("findings")]
                )
                if problem == "swapped labels" and area < 0.7:
                    say(f"{name}, {problem}: not planted, since the model hardly ranks (area {area:.2f})")
                    continue
                count(f"{problem}: evaluate", name, words in where, f"{code} {err} {where[:300]}")
    for problem, n in planted.items():
        say(f"{problem:<24} {found[problem]} of {n}")
    say(f"{sum(found.values())} of {sum(planted.values())} named on {given.tables} tables")


if __name__ == "__main__":
    main()
