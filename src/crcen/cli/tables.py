"""`crcen look`, `split` and `fit`: from a file to a model."""

import inspect
import re
from functools import partial
from pathlib import Path

import typer

from crcen.cli.app import option_name
from crcen.cli.options import Result, add_command, choice, is_stated, library, option, renamed, share

_large = partial(option, panel="Large data")


def _bytes(text: str) -> int:
    """A size such as 4GB or 500MB in bytes."""
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*([KMGT]?)B?\s*", text.upper())
    if found is None:
        raise typer.BadParameter(f"must be a size such as 4GB or 500MB: got {text!r}.")
    return int(float(found[1]) * 1000 ** " KMGT".index(found[2] or " "))


def _fit(engine: str, quick: bool, no_fingerprint: bool, details: bool, **given: object) -> Result:
    stated = {name: value for name, value in given.items() if is_stated(value)}
    if quick and stated.setdefault("effort", "quick") != "quick":
        raise typer.BadParameter(f"--quick is --effort quick: got --effort {stated['effort']} as well.")
    function = library("fit_table" if engine == "table" else "fit_files")
    accepted = {*inspect.signature(function).parameters, *["details"] * (engine == "table")}
    for name in [*stated, *["details"] * details]:
        if name not in accepted or (name == "workers" and engine != "ray"):
            large = "--engine ray" if name == "workers" else "--engine stream or --engine ray"
            use = large if name in ("workers", "epochs", "hold_out", "memory", "storage") else "tables in memory"
            raise typer.BadParameter(f"{option_name(name)} is for {use}, not for --engine {engine}.")
    if engine != "table":
        stated["engine"] = engine
    return function(fingerprint=not no_fingerprint, **stated)


_TARGET = option(str, "Column with the label.", default=...)
_OLD_CATEGORY, _OLD_GROUPS = renamed("--category", "--categorical"), renamed("--groups", "--clusters")

add_command(
    "look",
    "Look at a table before a fit: kinds, gaps, ids, leaks, and what would be done with each column.",
    "look_at_table",
    {
        "target": option(str, "Column with the label: columns that determine it by themselves are named."),
        "old_category": _OLD_CATEGORY,
    },
    "data columns audit_probability read",
    examples=("look data.csv --target fraud",),
)
add_command(
    "split",
    "Split a file into training rows and test rows.",
    "split_table",
    {
        "target": _TARGET,
        "test": option(float, "Share of test rows, between 0 and 1.", default=0.25),
        "clusters": option(str, "Keep equal values of this column in one file."),
        "old_groups": _OLD_GROUPS,
        "time": option(str, "Use the latest rows by this column as test rows."),
        "folder": option(Path, "Where to write; default the folder of the data."),
    },
    "data random_state read",
    examples=(
        "split data.csv --target fraud",
        "split visits.parquet --target readmitted --clusters patient --test 0.3",
    ),
)
add_command(
    "fit",
    """Learn from a table, say how well it went on rows held out, and save the model. Without a price: --balanced.

    A target of 3 to 50 values is a multiclass target; --positive finds one value among all others.
    """,
    _fit,
    {
        "target": _TARGET,
        "out": option(Path, "Where to save the model.", default=Path("model.crcen")),
        "onnx": option(Path, "Where to write it as an ONNX graph too."),
        "report": option(Path, "Where to write the HTML report on rows held out."),
        "old_category": _OLD_CATEGORY,
        "selected_by": option(Path, "The earlier model whose alarms were checked, without recorded probabilities."),
        "clusters": option(str, "Validate with equal values of this column together."),
        "old_groups": _OLD_GROUPS,
        "time": option(str, "Validate on rows that are later by this column."),
        "learner": option(choice("committee", "networks", "trees", "forest"), "What is searched; default committee."),
        "time_limit": option(float, "Seconds; steps that cannot finish are not started."),
        "effort": option(choice("quick", "standard", "best"), "quick: one network; best: more settings and folds."),
        "quick": option(bool, "The same as --effort quick."),
        "no_fingerprint": option(bool, "Store no hashes of training rows in the model."),
        "details": option(bool, "Print columns, learner, price and every metric too."),
        "engine": _large(choice("table", "stream", "ray"), "stream: files; ray: on a cluster.", default="table"),
        "workers": _large(int, "Workers of --engine ray; default 2."),
        "epochs": _large(int, "Passes over the rows, with --engine stream or ray; default 5."),
        "hold_out": _large(str, "Share of rows held out of training, such as 5%; default 5%.", parser=share),
        "memory": _large(
            str, "Most memory of the process, such as 4GB; with ray, for the rows of the trees.", parser=_bytes
        ),
        "storage": _large(str, "Folder for checkpoints and scratch files."),
    },
    "data random_state columns price goal weighting weight audit_probability read",
    examples=(
        "fit train.csv --target fraud --budget 20 --out model.crcen",
        "fit visits.parquet --target readmitted --positive yes --clusters patient --drop name",
        "fit machines.csv --target state --costs costs.csv",
        "fit calls.xlsx --target sold --capacity 20/day --time called --report calls.html",
        "fit 'days/*.parquet' --target y --engine ray --workers 4",
    ),
)
