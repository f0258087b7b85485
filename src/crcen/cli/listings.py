"""`crcen datasets` and `crcen methods`: what is there."""

from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import FOLDER, app

__all__ = ["datasets", "methods"]


@app.command(epilog="Example:  crcen datasets --data-home data")
def datasets(
    data_home: Annotated[Path | None, typer.Option(help="Folder in imbalanced-learn's cache layout.", **FOLDER)] = None,
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
