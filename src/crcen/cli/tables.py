"""`crcen look`, `split` and `fit`: from a file to a model."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import typer

from crcen.cli.options import add_command, choice, library, option, renamed, share_of

# Goals that only a fit in memory meets: class → option.
_GOALS = {"Capacity": "--capacity", "RecallAtLeast": "--recall", "PrecisionAtLeast": "--precision"}
_large = partial(option, panel="Large data")


def bytes_of(text: str) -> int:
    """A size such as 4GB or 500MB in bytes."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)B?\s*", text.upper())
    try:
        if found is None:
            raise ValueError
        return int(float(found[1]) * 1000 ** " KMGT".index(found[2] or " "))
    except ValueError:
        raise typer.BadParameter(f"--memory must be a size such as 4GB or 500MB: got {text!r}.") from None


def check_engine(engine: str, in_memory: dict[str, Any], on_ray: dict[str, Any], on_files: dict[str, Any]) -> None:
    """Reject options that this engine would ignore."""
    ignored = {"table": on_ray | on_files, "stream": in_memory | on_ray, "ray": in_memory}
    for name, value in ignored[engine].items():
        if value is None:
            continue
        if name in in_memory:
            raise typer.BadParameter(f"{name} is for tables in memory, not for --engine {engine}.")
        use = "--engine ray" if name in on_ray else "--engine stream or --engine ray"
        raise typer.BadParameter(f"{name} is for {use}, and does nothing with --engine {engine}.")


def _one_split(given: dict[str, Any], purpose: str) -> None:
    if given["clusters"] is not None and given["time"] is not None:
        raise typer.BadParameter(f"--clusters and --time are two ways to {purpose}: give one of them.")


def _split(**given: Any) -> Any:
    _one_split(given, "split")
    return library("split_table")(**given)


def _fit(
    engine: str,
    quick: bool,
    no_fingerprint: bool,
    details: bool,
    hold_out: str | None,
    memory: str | None,
    **given: Any,
) -> Any:
    _one_split(given, "validate")
    effort, learner = given.pop("effort"), given["learner"]
    if quick and effort not in (None, "quick"):
        raise typer.BadParameter(f"--quick is --effort quick: got --effort {effort} as well.")
    effort = "quick" if quick else effort
    if effort == "quick" and learner is not None:
        raise typer.BadParameter("--effort quick is one network, and --learner a search: give one of them.")
    given["weighting"] = "balanced" if given["weighting"] is None else given["weighting"]
    in_memory = {
        f"--{name.replace('_', '-')}": given[name] for name in ("time", "onnx", "time_limit", "weight", "report")
    }
    in_memory |= {"--effort": effort, "--details": details or None, "--audited": given["audit_probability"]}
    in_memory |= {"--selected-by": given["selected_by"]}
    in_memory |= {_GOALS[type(one).__name__]: one for one in [given["weighting"]] if type(one).__name__ in _GOALS}
    on_files = {name: given.pop(name) for name in ("epochs", "storage")}
    shown = {**{f"--{name}": value for name, value in on_files.items()}, "--hold-out": hold_out, "--memory": memory}
    workers = given.pop("workers")
    check_engine(engine, in_memory, {"--workers": workers}, shown)
    given["fingerprint"] = not no_fingerprint
    if engine == "table":
        return library("fit_table")(effort=effort or "standard", **given)
    if learner in ("trees", "forest"):
        raise typer.BadParameter(f"--learner {learner} is for tables in memory, not for --engine {engine}.")
    from crcen.commands.prices import stated_weighting

    stated, costs, target = given.pop("weighting"), given.pop("costs"), given["target"]
    for name in ("time", "onnx", "time_limit", "weight", "report", "audit_probability", "selected_by"):
        del given[name]
    return library("fit_files")(
        engine=engine,
        weighting=lambda classes: stated_weighting(stated, costs, classes, target),
        hold_out=0.05 if hold_out is None else share_of(hold_out, "--hold-out"),
        memory=None if memory is None else bytes_of(memory),
        epochs=5 if on_files["epochs"] is None else on_files["epochs"],
        workers=2 if workers is None else workers,
        storage=on_files["storage"],
        **given,
    )


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
    _split,
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
        "learner": option(
            choice("committee", "networks", "trees", "forest"), "What is searched; default a committee of all of them."
        ),
        "time_limit": option(float, "Seconds; steps that cannot finish are not started."),
        "effort": option(
            choice("quick", "standard", "best"), "quick: one network, no search; best: more settings, seeds and folds."
        ),
        "quick": option(bool, "The same as --effort quick."),
        "no_fingerprint": option(bool, "Store no hashes of training rows in the model."),
        "details": option(bool, "Print columns, learner, price and every metric too."),
        "engine": _large(
            choice("table", "stream", "ray"), "stream: files larger than memory; ray: on a cluster.", default="table"
        ),
        "workers": _large(int, "Workers of --engine ray; default 2."),
        "epochs": _large(int, "Passes over the rows, with --engine stream or ray; default 5."),
        "hold_out": _large(str, "Share of rows held out of training, such as 5%; default 5%."),
        "memory": _large(str, "Memory for the rows of the trees, such as 4GB."),
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
