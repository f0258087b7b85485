"""`crcen serve` and `app`: an inference server and a local web application; `export`, `info` and `demo`."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import typer

from crcen.cli.options import Result, add_command, argument, library, option, share

_log, _limit, _access = (partial(option, panel=panel) for panel in ("Decision log", "Limits", "Access"))


def _serve(
    models: list[Path], port: int, workers: int, token: str | None, token_file: Path | None, **settings: Any
) -> None:
    _need_packages("crcen serve")
    from crcen.serve.processes import serve
    from crcen.serve.server import Settings

    if token is not None and token_file is not None and "CRCEN_TOKEN" not in os.environ:
        raise typer.BadParameter("--token and --token-file both state the token: give one of them.")
    if token_file is not None:
        token = token_file.read_text(encoding="utf-8").strip()
    settings |= {"audit": settings["audit"] or 0.0, "token": token or None}
    settings |= {"log_bytes": settings.pop("log_size") * 1_000_000}
    settings |= {"max_bytes": settings.pop("max_megabytes") * 1_000_000}
    names = ", ".join(path.name.removesuffix(".crcen") for path in models)

    def started(address: str) -> None:
        typer.echo(f"Serving {names} at {address} (description: {address}/openapi.json)")

    serve(Settings(tuple(models), **settings), port, workers, started)


def _app(port: int, no_browser: bool, folder: Path) -> None:
    _need_packages("crcen app")
    from crcen.serve.app import run_app

    said = "Open {} in a browser; Ctrl-C ends the application."
    run_app(folder, port, lambda address: typer.echo(said.format(address)), browser=not no_browser)


def _need_packages(command: str) -> None:
    from crcen._support.extras import need

    for package in ("uvicorn", "starlette"):
        need(package, "serve", command)


def _info(model: Path | None) -> Result:
    return library("commands.environment.environment_info")() if model is None else library("model_info")(model)


add_command(
    "serve",
    "Serve models over HTTP: JSON, CSV and the Open Inference Protocol v2. SIGHUP loads changed files again.",
    _serve,
    {
        "models": argument(list[Path], "Model files; the file name is the model name.", "MODEL..."),
        "port": option(int, "Port; 0 takes a free one.", default=8000, min=0, max=65_535),
        "host": _access(str, "Address; any other than loopback needs a token.", default="127.0.0.1"),
        "token": _access(str, "Token that clients send as Authorization: Bearer.", envvar="CRCEN_TOKEN"),
        "token_file": _access(Path, "File with the token.", exists=True, dir_okay=False),
        "workers": option(int, "Processes.", default=1, min=1, max=64),
        "id": option(str, "Column with the identifier of each row."),
        "log": _log(Path, "File for a line of JSON for each decision."),
        "log_inputs": _log(bool, "Log inputs instead of their hash, to compare columns with training."),
        "log_size": _log(int, "Megabytes after which a new file is begun.", default=100, min=1),
        "audit": _log(str, "Share of rows without an alarm to draw for checks, such as 1%.", parser=share),
        "default_action": _log(str, "Decision that is no alarm, for --audit; default the commonest class."),
        "seed": _log(int, "Seed of the draws.", default=0, min=0),
        "max_rows": _limit(int, "Rows of a request.", default=100_000, min=1),
        "max_megabytes": _limit(int, "Size of a request.", default=32, min=1),
        "timeout": _limit(float, "Seconds of a request.", default=30.0, min=0.1),
    },
    examples=(
        "serve model.crcen --port 8000",
        "serve fraud.crcen churn.crcen --log decisions.jsonl --log-inputs --audit 1%",
        "serve model.crcen --host 0.0.0.0 --token-file token.txt --workers 2",
    ),
    has_json=False,
)
add_command(
    "app",
    "Open the local web application: from a table to scored rows. Data stay on this machine.",
    _app,
    {
        "port": option(int, "Port; 0 takes a free one.", default=0, min=0, max=65_535),
        "no_browser": option(bool, "Print the address and open no browser."),
        "folder": option(Path, "Where models are saved.", default=Path(".")),
    },
    examples=("app",),
    has_json=False,
)
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
