"""`crcen export`, `info` and `demo`: a model as an ONNX graph, what is installed or saved, and a demonstration."""

import sys
from pathlib import Path
from typing import Any

from crcen.cli.options import add_command, argument, library, option


def _export(model: Path, onnx: Path) -> Any:
    return library("export_onnx")(model, onnx)


def _info(model: Path | None) -> Any:
    from crcen.commands.environment import environment_info
    from crcen.files.model_file import model_info

    return environment_info() if model is None else model_info(model)


def _demo(out: Path) -> Any:
    from crcen.commands.demo import demo

    return demo(out, verbose=int(sys.stderr.isatty()))


add_command(
    "export",
    "Write a model as one ONNX graph, checked against the model before it is written.",
    _export,
    {"onnx": option(Path, "The ONNX file to write.", default=...)},
    "model",
    examples=("export model.crcen --onnx model.onnx",),
)
add_command(
    "info",
    "Say what is installed, or what a saved model is; a model is not loaded for that.",
    _info,
    {"model": argument(Path, "A saved model; without it, what is installed.", default=None)},
    examples=("info", "info model.crcen --json"),
)
add_command(
    "demo",
    "Fit, evaluate and report on a bundled set; writes the report and nothing else.",
    _demo,
    {"out": option(Path, "The report to write.", default=Path("report.html"))},
    examples=("demo --out report.html",),
)
