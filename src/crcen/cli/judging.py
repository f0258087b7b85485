"""`crcen evaluate` and `report`: a model on labelled rows."""

from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import (
    Alpha,
    Balanced,
    Budget,
    Data,
    Lam,
    Model,
    Ratio,
    Target,
    interruptible,
    is_watched,
    price,
    show,
)

__all__ = ["evaluate", "report"]


@app.command(epilog="Example:  crcen evaluate model.crcen test.csv --budget 10 --json")
def evaluate(
    model: Model,
    data: Data,
    target: Target = None,
    budget: Budget = None,
    cost_ratio: Ratio = None,
    alpha: Alpha = None,
    lam: Lam = None,
    balanced: Balanced = False,
    resamples: Annotated[int, typer.Option(min=0, help="Resamples behind the intervals.")] = 500,
    as_json: Json = False,
) -> None:
    """Judge a model on labelled rows it has not seen: metrics with intervals, key equation, price of catches."""
    with interruptible():
        weighting = price(budget, cost_ratio, alpha, lam, balanced)
        import crcen

        result = crcen.evaluate_table(
            model, data, target=target, weighting=weighting, n_resamples=resamples, verbose=is_watched()
        )
    show(result, as_json)


@app.command(epilog="Example:  crcen report model.crcen test.csv --out report.html")
def report(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    target: Target = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page about a model on labelled rows, with a slider for the price."""
    with interruptible():
        import crcen

        result = crcen.report_table(model, data, out=out, target=target, title=title, verbose=is_watched())
    show(result, as_json, out)
