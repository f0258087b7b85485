"""`crcen serve`: an inference server for saved models; `crcen app`: the local web application."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import typer

from crcen.cli.options import add_command, argument, option, share

_log, _limit, _access = (partial(option, panel=panel) for panel in ("Decision log", "Limits", "Access"))


def _serve(
    models: list[Path],
    port: int,
    workers: int,
    token: str | None,
    token_file: Path | None,
    audit: float | None,
    log_size: int,
    max_megabytes: int,
    **settings: Any,
) -> None:
    from crcen._support.extras import need

    for package in ("uvicorn", "starlette"):
        need(package, "serve", "crcen serve")
    from crcen.serve.processes import serve
    from crcen.serve.server import Settings

    if token is not None and token_file is not None and "CRCEN_TOKEN" not in os.environ:
        raise typer.BadParameter("--token and --token-file both state the token: give one of them.")
    if token_file is not None:
        token = token_file.read_text(encoding="utf-8").strip()
    settings |= {"audit": audit or 0.0, "token": token or None}
    settings |= {"log_bytes": log_size * 1_000_000, "max_bytes": max_megabytes * 1_000_000}

    def started(address: str) -> None:
        names = ", ".join(path.name.removesuffix(".crcen") for path in models)
        typer.echo(f"Serving {names} at {address} (description: {address}/openapi.json)")

    serve(Settings(tuple(models), **settings), port, workers, started)


def _app(port: int, no_browser: bool, folder: Path) -> None:
    from crcen._support.extras import need

    for package in ("uvicorn", "starlette", "pandas"):
        need(package, "serve", "crcen app")
    from crcen.serve.app import run_app

    def started(address: str) -> None:
        typer.echo(f"Open {address} in a browser; Ctrl-C ends the application.")

    run_app(folder, port, started, browser=not no_browser)


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
