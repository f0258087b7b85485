"""`crcen datasets` and `crcen methods`: lists of data sets and compared methods."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import FOLDER, RESEARCH, Json, app, print_json

__all__ = ["datasets", "methods"]


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
