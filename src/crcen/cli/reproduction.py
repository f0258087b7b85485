"""`crcen reproduce`: the paper's tables and figure."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import FOLDER, RESEARCH, Json, app, print_run

__all__ = ["reproduce"]


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
    """Rebuild the paper's tables and figure, published numbers beside ours; interrupted runs resume."""
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
