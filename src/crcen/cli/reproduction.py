"""`crcen datasets`, `methods` and `reproduce`: data sets, compared methods, and the paper's tables and figure."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import FOLDER, RESEARCH, Json, app, print_json, print_run

__all__ = ["datasets", "methods", "reproduce"]


@app.command(rich_help_panel=RESEARCH, epilog="Example:  crcen datasets --data-home data")
def datasets(
    data_home: Annotated[Path | None, typer.Option(help="Folder in imbalanced-learn's cache layout.", **FOLDER)] = None,
    as_json: Json = False,
) -> None:
    """List the benchmark sets and where each would be loaded from."""
    from crcen.datasets.benchmark import list_datasets

    rows = list_datasets(data_home)
    if as_json:
        print_json([asdict(row) | {"imbalance_ratio": row.imbalance_ratio} for row in rows])
        return
    typer.echo(f"{'name':16s} {'rows':>7s} {'columns':>7s} {'positive':>8s} {'ratio':>6s}  {'in paper':9s} from")
    for row in rows:
        typer.echo(
            f"{row.name:16s} {row.n_samples:7d} {row.n_features:7d} {row.n_pos:8d} {row.imbalance_ratio:6.1f}  "
            f"{row.paper_name or '':9s} {row.available}"
        )


@app.command(rich_help_panel=RESEARCH, epilog="Example:  crcen methods")
def methods(as_json: Json = False) -> None:
    """List the compared methods: what each changes, how natural probabilities follow, and its source."""
    from crcen.paper.methods import METHODS

    if as_json:
        fields = ("summary", "changes", "probabilities", "budget", "source")
        print_json([{"name": name} | {key: getattr(method, key) for key in fields} for name, method in METHODS.items()])
        return
    natural = {"natural": "natural", "factor": "by a known factor", "calibrate": "by calibration out of fold"}
    for name, method in METHODS.items():
        changes = ", ".join(method.changes.split()) or "nothing"
        budget = f"; at most {method.budget}" if method.budget else ""
        typer.echo(
            f"{name:19s} {method.summary}; changes {changes}; probabilities {natural[method.probabilities]}{budget} "
            f"[{method.source}]"
        )


class Artefact(StrEnum):
    """What `crcen reproduce` can rebuild."""

    table1 = "table1"
    table2 = "table2"
    table3 = "table3"
    figure1 = "figure1"
    all = "all"


class Selection(StrEnum):
    """Where hyperparameters are chosen."""

    first_split = "first_split"
    per_split = "per_split"


class Scoring(StrEnum):
    """Score by which hyperparameters are chosen."""

    f1 = "f1"
    g_mean = "g_mean"
    weighted_log_loss = "weighted_log_loss"
    own_metric = "own_metric"


class Reading(StrEnum):
    """How the paper is read where it leaves things open."""

    today = "today"
    then = "2019"
    scikit_learn = "scikit-learn"


class Engine(StrEnum):
    """Where networks are trained."""

    local = "local"
    ray = "ray"


@app.command(
    rich_help_panel=RESEARCH,
    epilog="Examples:  crcen reproduce table1   |   crcen reproduce all --quick --out runs/quick",
)
def reproduce(
    artefact: Annotated[Artefact, typer.Argument(help="What to rebuild.")] = Artefact.all,
    data_home: Annotated[
        Path | None,
        typer.Option(help="Folder in imbalanced-learn's cache layout; default CRCEN_DATA_HOME.", **FOLDER),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute-long version on the bundled sets.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default runs/ and a hash of the settings. Same folder: resume.")
    ] = None,
    selection: Annotated[Selection | None, typer.Option(help="Choose hyperparameters once, or for each split.")] = None,
    scoring: Annotated[Scoring | None, typer.Option(help="Score by which they are chosen.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings that replace the packaged ones.", dir_okay=False)
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Train searches here, or on a Ray cluster.")] = Engine.local,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods of table3, separated by commas, or all; see `crcen methods`."),
    ] = None,
    reading: Annotated[
        Reading,
        typer.Option(help="Of table3: today's networks and libraries, those of 2019, or scikit-learn's defaults."),
    ] = Reading.today,
    as_json: Json = False,
) -> None:
    """Rebuild the paper's tables and figure, published numbers next to ours; interrupted runs resume."""
    try:
        from crcen.paper.reproduce import reproduce as run

        report = run(
            artefact.value,
            quick=quick,
            out=out,
            data_home=data_home,
            selection=selection.value if selection else None,
            scoring=scoring.value if scoring else None,
            config=config,
            engine=engine.value,
            methods=methods,
            reading=reading.value,
        )
    except KeyboardInterrupt:  # before typer handles it without mentioning that the run can be resumed
        typer.echo("crcen: interrupted; run the same command again to resume.", err=True)
        raise typer.Exit(130) from None
    print_run(report, as_json)
