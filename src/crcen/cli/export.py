"""`crcen export`: a model as an ONNX graph."""

from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import Model, interruptible, show

__all__ = ["export"]


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
