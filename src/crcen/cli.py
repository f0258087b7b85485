"""The command line: each command parses, calls one function, prints.

Only typer and rich are imported here; what a command needs is imported when it runs, so that help, version and usage
errors answer at once. Exit codes: 0 done, 1 refused with one sentence on standard error, 2 usage, 130 interrupted.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crcen._version import __version__
from crcen.exceptions import CrcenError

__all__ = ["app", "main"]

app = typer.Typer(
    name="crcen",
    help="Rare-event classification: say what a miss is worth, get decisions at that price.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


# A path that must be there already; a mistyped one is a usage error.
_FOLDER: Any = {"exists": True, "file_okay": False}


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
    """By what hyperparameters are chosen."""

    f1 = "f1"
    g_mean = "g_mean"
    weighted_log_loss = "weighted_log_loss"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crcen {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Examples:  crcen reproduce table1   |   crcen reproduce all --quick --out runs/quick")
def reproduce(
    artefact: Annotated[Artefact, typer.Argument(help="What to rebuild.")] = Artefact.all,
    data_home: Annotated[
        Path | None,
        typer.Option(help="Folder in imbalanced-learn's cache layout; default CRCEN_DATA_HOME.", **_FOLDER),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute-long version on the bundled sets.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default runs/ and a hash of the settings. Same folder: resume.")
    ] = None,
    selection: Annotated[Selection | None, typer.Option(help="Choose hyperparameters once, or for each split.")] = None,
    scoring: Annotated[Scoring | None, typer.Option(help="By what they are chosen.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings that replace the packaged ones.", dir_okay=False)
    ] = None,
) -> None:
    """Rebuild the paper's tables and figure, published numbers beside ours; interrupted runs resume."""
    try:
        from crcen.experiments.reproduce import reproduce as run

        report = run(
            artefact.value,
            quick=quick,
            out=out,
            data_home=data_home,
            selection=selection.value if selection else None,
            scoring=scoring.value if scoring else None,
            config=config,
        )
    except KeyboardInterrupt:  # here and not in `main`: typer would answer first, without a word about resuming
        typer.echo("crcen: interrupted; the same command goes on where it stopped.", err=True)
        raise typer.Exit(130) from None
    for text in report.texts:
        typer.echo(text)
    typer.echo(f"Written to {report.folder}")


@app.command(epilog="Example:  crcen datasets --data-home data")
def datasets(
    data_home: Annotated[
        Path | None, typer.Option(help="Folder in imbalanced-learn's cache layout.", **_FOLDER)
    ] = None,
) -> None:
    """List the benchmark sets and where each would be loaded from."""
    from crcen.datasets.benchmark import list_datasets

    typer.echo(f"{'name':16s} {'rows':>7s} {'columns':>7s} {'positive':>8s} {'ratio':>6s}  {'in paper':9s} from")
    for row in list_datasets(data_home):
        typer.echo(
            f"{row.name:16s} {row.n_samples:7d} {row.n_features:7d} {row.n_pos:8d} {row.imbalance_ratio:6.1f}  "
            f"{row.paper_name or '':9s} {row.available}"
        )


@app.command(epilog="Example:  crcen methods")
def methods() -> None:
    """List the methods of the comparison with their source."""
    from crcen.models.methods import METHODS

    for name, method in METHODS.items():
        typer.echo(f"{name:15s} {method.summary} [{method.source}]")


def main() -> None:
    """Entry point: errors that crcen raises on purpose, and those of files and disks, become one line."""
    try:
        app()
    except BrokenPipeError:  # the reader of our output has gone, as in `crcen methods | head`
        sys.stderr.close()
        sys.exit(0)
    except (CrcenError, OSError) as error:
        sys.stderr.write(f"crcen: {' '.join(str(error).split())}\n")
        sys.exit(1)
