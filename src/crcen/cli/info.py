"""`crcen info` and `crcen demo`: what is installed or saved, and the whole story on a bundled set."""

from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import interruptible, is_watched, show

__all__ = ["demo", "info"]


@app.command(epilog="Examples:  crcen info   |   crcen info model.crcen --json")
def info(
    model: Annotated[Path | None, typer.Argument(help="A saved model; without it, what is installed.")] = None,
    as_json: Json = False,
) -> None:
    """Say what is installed, or what a saved model is; a model is not loaded for that."""
    from crcen.commands.environment import environment_info
    from crcen.files.model_file import model_info

    show(environment_info() if model is None else model_info(model), as_json)


@app.command(epilog="Example:  crcen demo --out report.html")
def demo(
    out: Annotated[Path, typer.Option(help="The report to write.")] = Path("report.html"),
    as_json: Json = False,
) -> None:
    """Fit, evaluate and report on a bundled set; writes the report and nothing else."""
    with interruptible():
        from crcen.commands.demo import demo

        result = demo(out, verbose=is_watched())
    show(result, as_json)
