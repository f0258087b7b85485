"""`crcen predict`: a probability and a decision for every row of a file."""

from pathlib import Path
from typing import Annotated

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import Alpha, Balanced, Budget, Data, Lam, Model, Ratio, interruptible, is_watched, price, show

__all__ = ["predict"]


@app.command(
    epilog="Examples:  crcen predict model.crcen new.csv --out scored.parquet --id customer   |   "
    "crcen predict model.crcen new.csv.gz --out scored.csv --budget 10"
)
def predict(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="Where to write the answers: .csv, .tsv or .parquet.")],
    budget: Budget = None,
    cost_ratio: Ratio = None,
    alpha: Alpha = None,
    lam: Lam = None,
    balanced: Balanced = False,
    id: Annotated[list[str] | None, typer.Option(help="Column to carry over; may be repeated.")] = None,
    safe_csv: Annotated[
        bool, typer.Option("--safe-csv", help="Put ' before ids and labels that a spreadsheet takes for formulas.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a probability and a decision for every row, in constant memory; a price here needs no new training."""
    with interruptible():
        weighting = price(budget, cost_ratio, alpha, lam, balanced)
        import crcen

        result = crcen.predict_table(
            model, data, out=out, weighting=weighting, id=id, safe_csv=safe_csv, verbose=is_watched()
        )
    show(result, as_json, out)
