"""`crcen export`, `info` and `demo`: a model as an ONNX graph, what is installed or saved, and a demonstration."""

from pathlib import Path

from crcen.cli.options import Result, add_command, argument, library, option


def _info(model: Path | None) -> Result:
    return library("commands.environment.environment_info")() if model is None else library("model_info")(model)


add_command(
    "export",
    "Write a model as one ONNX graph, checked against the model before it is written.",
    "export_onnx",
    {"out": option(Path, "The ONNX file to write.", "--onnx", default=...)},
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
    "commands.demo.demo",
    {"out": option(Path, "The report to write.", default=Path("report.html"))},
    examples=("demo --out report.html",),
)
