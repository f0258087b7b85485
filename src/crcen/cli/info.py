"""`crcen export`, `info` and `demo`: a model as an ONNX graph, what is installed or saved, and a demonstration."""

from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import Model, interruptible, is_watched, show

__all__ = ["demo", "export", "info"]


@app.command(epilog="Example:  crcen export model.crcen --onnx model.onnx")
def export(
    model: Model,
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.")],
    as_json: Json = False,
) -> None:
    """Write a model as one ONNX graph, checked against the model before it is written."""
    with interruptible():
        import crcen

        result = crcen.export_onnx(model, onnx)
    show(result, as_json, onnx)


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
