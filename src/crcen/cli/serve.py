"""`crcen serve`: an inference server for saved models; `crcen app`: the local web application."""

import os
from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import app
from crcen.cli.options import share_of

__all__ = ["serve", "web_app"]

_LOG, _LIMITS, _ACCESS = "Decision log", "Limits", "Access"


@app.command(
    epilog="Examples:  crcen serve model.crcen --port 8000   |   "
    "crcen serve fraud.crcen churn.crcen --log decisions.jsonl --log-inputs --audit 1%   |   "
    "crcen serve model.crcen --host 0.0.0.0 --token-file token.txt --workers 2"
)
def serve(
    models: Annotated[
        list[Path], typer.Argument(help="Model files; the file name is the model name.", metavar="MODEL...")
    ],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address; any other than loopback needs a token.", rich_help_panel=_ACCESS)
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            help="Token that clients send as Authorization: Bearer.", envvar="CRCEN_TOKEN", rich_help_panel=_ACCESS
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token.", rich_help_panel=_ACCESS, exists=True, dir_okay=False)
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 1,
    id: Annotated[str | None, typer.Option(help="Column with the identifier of each row.")] = None,
    log: Annotated[
        Path | None, typer.Option(help="File for a line of JSON for each decision.", rich_help_panel=_LOG)
    ] = None,
    log_inputs: Annotated[
        bool,
        typer.Option(
            "--log-inputs",
            help="Log inputs instead of their hash, to compare columns with training.",
            rich_help_panel=_LOG,
        ),
    ] = False,
    log_size: Annotated[
        int, typer.Option(min=1, help="Megabytes after which a new file is begun.", rich_help_panel=_LOG)
    ] = 100,
    audit: Annotated[
        str | None,
        typer.Option(help="Share of rows without an alarm to draw for checks, such as 1%.", rich_help_panel=_LOG),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.", rich_help_panel=_LOG)] = 0,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows of a request.", rich_help_panel=_LIMITS)] = 100_000,
    max_megabytes: Annotated[int, typer.Option(min=1, help="Size of a request.", rich_help_panel=_LIMITS)] = 32,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds of a request.", rich_help_panel=_LIMITS)] = 30.0,
) -> None:
    """Serve models over HTTP: JSON, CSV and the Open Inference Protocol v2. SIGHUP loads changed files again."""
    from crcen._support.extras import need

    for package in ("uvicorn", "starlette"):
        need(package, "serve", "crcen serve")
    from crcen.serve.processes import serve as run
    from crcen.serve.server import Settings

    if token is not None and token_file is not None and "CRCEN_TOKEN" not in os.environ:
        raise typer.BadParameter("--token and --token-file both state the token: give one of them.")
    if token_file is not None:
        token = token_file.read_text(encoding="utf-8").strip()
    settings = Settings(
        tuple(models),
        host=host,
        token=token or None,
        id=id,
        log=log,
        log_inputs=log_inputs,
        log_bytes=log_size * 1_000_000,
        audit=0.0 if audit is None else share_of(audit, "--audit"),
        seed=seed,
        max_rows=max_rows,
        max_bytes=max_megabytes * 1_000_000,
        timeout=timeout,
    )

    def started(address: str) -> None:
        names = ", ".join(path.name.removesuffix(".crcen") for path in models)
        typer.echo(f"Serving {names} at {address} (description: {address}/openapi.json)")

    run(settings, port, workers, started)


@app.command("app", epilog="Example:  crcen app")
def web_app(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open no browser.")] = False,
    folder: Annotated[Path, typer.Option(help="Where models are saved.")] = Path("."),
) -> None:
    """Open the local web application: from a table to scored rows. Data stay on this machine."""
    from crcen._support.extras import need

    for package in ("uvicorn", "starlette", "pandas"):
        need(package, "serve", "crcen app")
    from crcen.serve.app import run_app

    def started(address: str) -> None:
        typer.echo(f"Open {address} in a browser; Ctrl-C ends the application.")

    run_app(folder, port, started, browser=not no_browser)
