"""`crcen predict`: a probability and a decision for every row of a file."""

from typing import Annotated, Any

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import (
    AlarmCost,
    Alpha,
    AuditRule,
    Balanced,
    Budget,
    Capacity,
    Clusters,
    Confidence,
    CostColumn,
    CostsFile,
    Data,
    Lam,
    Model,
    Precision,
    Prevalence,
    Ratio,
    Recall,
    ReviewPrices,
    Weighting,
    class_shares,
    interruptible,
    is_watched,
    price_or_goal,
    reads_table,
    show,
    stated_price,
    two_prices,
)

__all__ = ["predict"]


@app.command(
    epilog="Examples:  crcen predict model.crcen new.csv --out scored.parquet --id customer   |   "
    "crcen predict model.crcen new.csv.gz --out scored.csv --budget 10 --reasons 3   |   "
    "crcen predict model.crcen new.csv --out scored.csv --costs costs.csv   |   "
    "crcen predict model.crcen new.xlsx --out calls.xlsx --top 200 --all-columns --sort"
)
@reads_table
def predict(
    model: Model,
    data: Data,
    out: Annotated[
        str,
        typer.Option(help="Where to write the answers: .csv, .tsv, .parquet, .xlsx, or sqlite:///scores.db#scores."),
    ],
    budget: Budget = None,
    cost_ratio: Ratio = None,
    alpha: Alpha = None,
    lam: Lam = None,
    balanced: Balanced = False,
    capacity: Capacity = None,
    recall: Recall = None,
    precision: Precision = None,
    confidence: Confidence = None,
    weighting: Weighting = None,
    costs: CostsFile = None,
    held_out: Annotated[
        str | None,
        typer.Option(
            help="Labelled rows the model did not see: choose the price of --recall, --precision or --capacity there.",
            rich_help_panel="Instead of a price",
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column of dates, for --capacity 20/day.", rich_help_panel="Instead of a price")
    ] = None,
    review: ReviewPrices = None,
    cost_column: CostColumn = None,
    alarm_cost: AlarmCost = None,
    prevalence: Prevalence = None,
    audit: Annotated[
        str | None,
        typer.Option(help="Draw rows without an alarm to be checked: so many, or a share of them.", metavar="N|P%"),
    ] = None,
    audit_rule: Annotated[
        AuditRule, typer.Option(help="uniform: equal probabilities; neyman: larger where a label says more.")
    ] = AuditRule.neyman,
    clusters: Clusters = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of --audit.")] = 0,
    id: Annotated[list[str] | None, typer.Option(help="Column to carry over; may be repeated.")] = None,
    all_columns: Annotated[bool, typer.Option("--all-columns", help="Carry over every column.")] = False,
    sort: Annotated[bool, typer.Option("--sort", help="Highest risk first; needs memory for all rows.")] = False,
    safe_csv: Annotated[
        bool, typer.Option("--safe-csv", help="Put ' before ids and labels that a spreadsheet takes for formulas.")
    ] = False,
    append: Annotated[bool, typer.Option("--append", help="Add to a table of a database that is there.")] = False,
    reasons: Annotated[
        int, typer.Option(min=0, help="Reasons for each alarm: columns that raised or lowered it most.")
    ] = 0,
    background: Annotated[
        str | None, typer.Option(help="File of rows that --reasons compares with; default typical rows.")
    ] = None,
    read: Any = None,
    as_json: Json = False,
) -> None:
    """Write a probability and a decision for every row, in constant memory; a price here needs no new training."""
    with interruptible():
        stated = (budget, cost_ratio, alpha, lam, balanced, capacity, recall, precision, confidence)
        worth = stated_price(price_or_goal(*stated), weighting, costs)
        import crcen

        result = crcen.predict_table(
            model,
            data,
            out=out,
            weighting=worth,
            costs=costs,
            held_out=held_out,
            review=two_prices(review),
            cost_column=cost_column,
            alarm_cost=alarm_cost,
            time=time,
            prevalence=class_shares(prevalence),
            audit=audit,
            audit_rule=audit_rule.value,
            clusters=clusters,
            random_state=seed,
            id=id,
            all_columns=all_columns,
            sort=sort,
            safe_csv=safe_csv,
            append=append,
            reasons=reasons,
            background=background,
            read=read,
            verbose=is_watched(),
        )
    show(result, as_json, out)
