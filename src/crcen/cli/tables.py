"""`crcen look`, `split` and `fit`: from a file to a model."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import Data, Seed, is_watched, share_of, show, takes

__all__ = ["fit", "look", "split"]


class Engine(StrEnum):
    """What trains: a search in memory, or a committee for files of any size, here or on a cluster."""

    table = "table"
    stream = "stream"
    ray = "ray"


def bytes_of(text: str) -> int:
    """A size such as 4GB or 500MB in bytes."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)B?\s*", text.upper())
    try:
        if found is None:
            raise ValueError
        return int(float(found[1]) * 1000 ** " KMGT".index(found[2] or " "))
    except ValueError:
        raise typer.BadParameter(f"--memory must be a size such as 4GB or 500MB: got {text!r}.") from None


class Effort(StrEnum):
    """How much is tried."""

    quick = "quick"
    standard = "standard"
    best = "best"


class LearnerName(StrEnum):
    """What is searched in memory."""

    committee = "committee"
    networks = "networks"
    trees = "trees"


def _renamed(use: str) -> Any:
    """Callback of an option that was renamed: the error names the new one."""

    def reject(value: str | None) -> None:
        if value:
            raise typer.BadParameter(f"it was renamed: use {use} {value}.")

    return reject


# Goals that only a fit in memory meets: class → option.
_GOALS = {"Capacity": "--capacity", "RecallAtLeast": "--recall", "PrecisionAtLeast": "--precision"}
RenamedCategory = Annotated[str | None, typer.Option("--category", hidden=True, callback=_renamed("--categorical"))]
RenamedGroups = Annotated[str | None, typer.Option("--groups", hidden=True, callback=_renamed("--clusters"))]


def check_engine(engine: Engine, in_memory: dict[str, Any], on_ray: dict[str, Any], on_files: dict[str, Any]) -> None:
    """Refuse options that this engine would ignore."""
    ignored = {Engine.table: on_ray | on_files, Engine.stream: in_memory | on_ray, Engine.ray: in_memory}
    for name, value in ignored[engine].items():
        if value is None:
            continue
        if name in in_memory:
            raise typer.BadParameter(f"{name} is for tables in memory, not for --engine {engine.value}.")
        use = "--engine ray" if name in on_ray else "--engine stream or --engine ray"
        raise typer.BadParameter(f"{name} is for {use}, and does nothing with --engine {engine.value}.")


@app.command(epilog="Example:  crcen look data.csv --target fraud")
@takes("columns", "audited", "read")
def look(
    data: Data,
    target: Annotated[
        str | None, typer.Option(help="Column with the label: columns that determine it by themselves are named.")
    ] = None,
    category: RenamedCategory = None,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Look at a table before a fit: kinds, gaps, ids, leaks, and what would be done with each column."""
    import crcen

    show(crcen.look_at_table(data, target=target, verbose=is_watched(), **shared), as_json)


@app.command(
    epilog="Examples:  crcen split data.csv --target fraud   |   crcen split visits.parquet --target readmitted "
    "--clusters patient --test 0.3"
)
@takes("read")
def split(
    data: Data,
    target: Annotated[str, typer.Option(help="Column with the label.")],
    test: Annotated[float, typer.Option(help="Share of test rows, between 0 and 1.")] = 0.25,
    clusters: Annotated[str | None, typer.Option(help="Keep equal values of this column in one file.")] = None,
    groups: RenamedGroups = None,
    time: Annotated[str | None, typer.Option(help="Use the latest rows by this column as test rows.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where to write; default the folder of the data.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Split a file into training rows and test rows."""
    if clusters is not None and time is not None:
        raise typer.BadParameter("--clusters and --time are two ways to split: give one of them.")
    import crcen

    result = crcen.split_table(
        data,
        target=target,
        test=test,
        clusters=clusters,
        time=time,
        folder=folder,
        random_state=seed,
        verbose=is_watched(),
        **shared,
    )
    show(result, as_json)


@app.command(
    epilog="Examples:  crcen fit train.csv --target fraud --budget 20 --out model.crcen   |   "
    "crcen fit visits.parquet --target readmitted --positive yes --clusters patient --drop name   |   "
    "crcen fit machines.csv --target state --costs costs.csv   |   "
    "crcen fit calls.xlsx --target sold --capacity 20/day --time called --report calls.html   |   "
    "crcen fit 'days/*.parquet' --target y --engine ray --workers 4"
)
@takes("columns", "price", "goal", "weighting", "weight", "audited", "read")
def fit(
    data: Data,
    target: Annotated[str, typer.Option(help="Column with the label.")],
    out: Annotated[Path, typer.Option(help="Where to save the model.")] = Path("model.crcen"),
    onnx: Annotated[Path | None, typer.Option(help="Where to write it as an ONNX graph too.")] = None,
    report: Annotated[Path | None, typer.Option(help="Where to write the HTML report on rows held out.")] = None,
    category: RenamedCategory = None,
    selected_by: Annotated[
        Path | None, typer.Option(help="The earlier model whose alarms were checked, without recorded probabilities.")
    ] = None,
    clusters: Annotated[str | None, typer.Option(help="Validate with equal values of this column together.")] = None,
    groups: RenamedGroups = None,
    time: Annotated[str | None, typer.Option(help="Validate on rows that are later by this column.")] = None,
    learner: Annotated[
        LearnerName | None, typer.Option(help="What is searched; default a committee of networks and trees.")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; steps that cannot finish are not started.")] = None,
    effort: Annotated[
        Effort | None, typer.Option(help="quick: one network, no search; best: more settings, seeds and folds.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as --effort quick.")] = False,
    no_fingerprint: Annotated[
        bool, typer.Option("--no-fingerprint", help="Store no hashes of training rows in the model.")
    ] = False,
    seed: Seed = 0,
    details: Annotated[
        bool, typer.Option("--details", help="Print columns, learner, price and every metric too.")
    ] = False,
    engine: Annotated[
        Engine, typer.Option(help="stream: files larger than memory; ray: on a cluster.", rich_help_panel="Large data")
    ] = Engine.table,
    workers: Annotated[
        int | None, typer.Option(help="Workers of --engine ray; default 2.", rich_help_panel="Large data")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the rows, with --engine stream or ray; default 5.", rich_help_panel="Large data"
        ),
    ] = None,
    hold_out: Annotated[
        str | None,
        typer.Option(help="Share of rows held out of training, such as 5%; default 5%.", rich_help_panel="Large data"),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory for the rows of the trees, such as 4GB.", rich_help_panel="Large data")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Folder for checkpoints and scratch files.", rich_help_panel="Large data")
    ] = None,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Learn from a table, say how well it went on rows held out, and save the model. Without a price: --balanced.

    A target of 3 to 50 values is a multiclass target; --positive finds one value among all others.
    """
    if clusters is not None and time is not None:
        raise typer.BadParameter("--clusters and --time are two ways to validate: give one of them.")
    if quick and effort not in (None, Effort.quick):
        raise typer.BadParameter(f"--quick is --effort quick: got --effort {effort} as well.")
    if details and as_json:
        raise typer.BadParameter("--json has all details: leave out --details.")
    chosen = Effort.quick if quick else effort
    if chosen is Effort.quick and learner is not None:
        raise typer.BadParameter("--effort quick is one network, and --learner a search: give one of them.")
    shared["weighting"] = "balanced" if shared["weighting"] is None else shared["weighting"]
    in_memory: dict[str, Any] = {"--time": time, "--effort": chosen, "--onnx": onnx}
    in_memory |= {"--time-limit": time_limit, "--weight": shared["weight"], "--report": report}
    in_memory |= {"--details": details or None, "--audited": shared["audit_probability"], "--selected-by": selected_by}
    in_memory |= {_GOALS[type(one).__name__]: one for one in [shared["weighting"]] if type(one).__name__ in _GOALS}
    on_files = {"--epochs": epochs, "--storage": storage, "--hold-out": hold_out, "--memory": memory}
    check_engine(engine, in_memory, {"--workers": workers}, on_files)
    if engine is not Engine.table and learner is LearnerName.trees:
        raise typer.BadParameter(f"--learner trees is for tables in memory, not for --engine {engine.value}.")
    import crcen

    common: dict[str, Any] = {
        "target": target,
        "clusters": clusters,
        "learner": None if learner is None else learner.value,
        "fingerprint": not no_fingerprint,
        "random_state": seed,
        "verbose": is_watched(),
        "out": out,
        **{name: shared.pop(name) for name in ("positive", "drop", "keep", "categorical", "read")},
    }
    if engine is not Engine.table:
        from crcen.commands.prices import stated_weighting

        files = crcen.fit_files(
            data,
            engine=engine.value,
            weighting=lambda classes: stated_weighting(shared["weighting"], shared["costs"], classes, target),
            hold_out=0.05 if hold_out is None else share_of(hold_out, "--hold-out"),
            memory=None if memory is None else bytes_of(memory),
            epochs=5 if epochs is None else epochs,
            workers=2 if workers is None else workers,
            storage=storage,
            **common,
        )
        show(files, as_json, out)
        return
    result = crcen.fit_table(
        data,
        selected_by=selected_by,
        time=time,
        time_limit=time_limit,
        effort="standard" if chosen is None else chosen.value,
        onnx=onnx,
        report=report,
        **common,
        **shared,
    )
    show(result, as_json, out, onnx, report, details=details)
