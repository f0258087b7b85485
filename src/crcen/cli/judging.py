"""`crcen evaluate`, `report` and `plan`: a model on labelled rows, and how many labels that needs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import (
    AlarmCost,
    Alpha,
    Audited,
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
    Target,
    Weight,
    Weighting,
    class_shares,
    interruptible,
    is_watched,
    price,
    price_or_goal,
    reads_table,
    show,
    stated_price,
    two_prices,
)

__all__ = ["evaluate", "plan", "report"]

Groups = Annotated[list[str] | None, typer.Option(help="Column whose values are groups to compare; may be repeated.")]


@app.command(
    epilog="Examples:  crcen evaluate model.crcen test.csv --budget 10 --json   |   "
    "crcen evaluate model.crcen test.csv --fail-on CRC003,CRC007 --min-recall 0.7"
)
@reads_table
def evaluate(
    model: Model,
    data: Data,
    target: Target = None,
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
    review: ReviewPrices = None,
    cost_column: CostColumn = None,
    alarm_cost: AlarmCost = None,
    prevalence: Prevalence = None,
    weight: Weight = None,
    clusters: Clusters = None,
    stratified: Annotated[
        bool, typer.Option("--stratified", help="The class counts of these rows were fixed when they were drawn.")
    ] = False,
    audited: Audited = None,
    groups: Groups = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="Checks of the report that must not warn, such as CRC003,CRC007, or any: else exit with 3.",
            rich_help_panel="For pipelines",
        ),
    ] = None,
    min_recall: Annotated[
        float | None, typer.Option(help="Recall to reach, else exit with 3.", rich_help_panel="For pipelines")
    ] = None,
    min_precision: Annotated[
        float | None, typer.Option(help="Precision to reach, else exit with 3.", rich_help_panel="For pipelines")
    ] = None,
    resamples: Annotated[
        int,
        typer.Option(min=0, help="Bootstrap resamples; 0 omits intervals without a closed form."),
    ] = 500,
    read: Any = None,
    as_json: Json = False,
) -> None:
    """Judge a model on labelled rows it has not seen: metrics with intervals, key equation, price of catches."""
    with interruptible():
        is_bound = audited is not None and recall is None and precision is None
        guaranteed = None if is_bound else confidence
        stated = (budget, cost_ratio, alpha, lam, balanced, capacity, recall, precision, guaranteed)
        worth = stated_price(price_or_goal(*stated), weighting, costs)
        import crcen

        result = crcen.evaluate_table(
            model,
            data,
            target=target,
            weighting=worth,
            costs=costs,
            weight=weight,
            groups=groups or (),
            review=two_prices(review),
            cost_column=cost_column,
            alarm_cost=alarm_cost,
            prevalence=class_shares(prevalence),
            clusters=clusters,
            stratified=stratified,
            audit_probability=audited,
            confidence=0.95 if confidence is None else confidence,
            fail_on=fail_on or (),
            min_recall=min_recall,
            min_precision=min_precision,
            n_resamples=resamples,
            read=read,
            verbose=is_watched(),
        )
    show(result, as_json)
    if result.failures:
        raise typer.Exit(3)


@app.command(
    epilog="Examples:  crcen report model.crcen test.csv --out report.html --groups sex --groups region   |   "
    "crcen report model.crcen test.csv --costs costs.csv"
)
@reads_table
def report(
    files: Annotated[
        list[str],
        typer.Argument(
            help="A model, or several side by side, and then the table.", metavar="MODEL... DATA", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    target: Target = None,
    weighting: Weighting = None,
    costs: CostsFile = None,
    weight: Weight = None,
    clusters: Clusters = None,
    prevalence: Prevalence = None,
    audited: Audited = None,
    confidence: Annotated[float, typer.Option(help="Of the bound on recall, with --audited.")] = 0.95,
    groups: Groups = None,
    review: ReviewPrices = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    declaration: Annotated[Path | None, typer.Option(help="Declaration of the model, to link to.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Certificate (JSON) of the model, to link to.")] = None,
    read: Any = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page about a model on labelled rows, with a slider for the price, or about several."""
    with interruptible():
        if len(files) < 2:
            raise typer.BadParameter(f"a report needs a model and a table: got {files[0]} alone.")
        worth = stated_price(None, weighting, costs)
        import crcen

        model, *others, data = files
        result = crcen.report_table(
            model,
            data,
            others=others,
            out=out,
            target=target,
            weighting=worth,
            costs=costs,
            weight=weight,
            clusters=clusters,
            prevalence=class_shares(prevalence),
            audit_probability=audited,
            confidence=confidence,
            groups=groups or (),
            review=two_prices(review),
            title=title,
            declaration=declaration,
            certificate=certificate,
            read=read,
            verbose=is_watched(),
        )
    show(result, as_json, out)


@app.command(
    epilog="Examples:  crcen plan model.crcen rows.csv --drift 0.3 --power 0.8   |   "
    "crcen plan model.crcen rows.csv --recall-bound 0.8   |   crcen plan model.crcen rows.csv --cost-width 20"
)
@reads_table
def plan(
    model: Model,
    data: Data,
    drift: Annotated[
        float | None, typer.Option(help="Drift in log-odds that labels shall find; default 0.3 without another goal.")
    ] = None,
    recall_bound: Annotated[
        float | None, typer.Option(help="Lower bound on recall that labels or audits shall show.")
    ] = None,
    cost_width: Annotated[float | None, typer.Option(help="Width of the interval of the cost per 1,000 rows.")] = None,
    power: Annotated[float, typer.Option(help="Probability of reaching the goal.")] = 0.8,
    level: Annotated[float, typer.Option(help="Level of the test of drift.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="Of the bound on recall and of the interval.")] = 0.95,
    audit_rule: Annotated[AuditRule, typer.Option(help="How audits are drawn.")] = AuditRule.neyman,
    budget: Budget = None,
    cost_ratio: Ratio = None,
    alpha: Alpha = None,
    lam: Lam = None,
    balanced: Balanced = False,
    weighting: Weighting = None,
    costs: CostsFile = None,
    prevalence: Prevalence = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the simulation of audits.")] = 0,
    read: Any = None,
    as_json: Json = False,
) -> None:
    """Say how many labels or audits are needed, from rows without labels."""
    with interruptible():
        worth = stated_price(price(budget, cost_ratio, alpha, lam, balanced), weighting, costs)
        import crcen

        result = crcen.plan_table(
            model,
            data,
            drift=drift,
            recall_bound=recall_bound,
            cost_width=cost_width,
            power=power,
            level=level,
            confidence=confidence,
            audit_rule=audit_rule.value,
            weighting=worth,
            costs=costs,
            prevalence=class_shares(prevalence),
            random_state=seed,
            read=read,
            verbose=is_watched(),
        )
    show(result, as_json)
