"""`crcen predict`, `evaluate`, `report`, `plan` and `monitor`: a model on new rows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import AuditRule, Data, Model, Seed, is_watched, show, takes

__all__ = ["evaluate", "monitor", "plan", "predict", "report"]

_PIPELINES = "For pipelines"


@app.command(
    epilog="Examples:  crcen predict model.crcen new.csv --out scored.parquet --id customer   |   "
    "crcen predict model.crcen new.csv.gz --out scored.csv --budget 10 --reasons 3   |   "
    "crcen predict model.crcen new.csv --out scored.csv --costs costs.csv   |   "
    "crcen predict model.crcen new.xlsx --out calls.xlsx --top 200 --all-columns --sort"
)
@takes(
    *("price", "goal", "guarantee", "weighting", "review", "cost_column", "alarm_cost", "prevalence", "clusters"),
    "read",
)
def predict(
    model: Model,
    data: Data,
    out: Annotated[
        str,
        typer.Option(help="Where to write the answers: .csv, .tsv, .parquet, .xlsx, or sqlite:///scores.db#scores."),
    ],
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
    audit: Annotated[
        str | None,
        typer.Option(help="Draw rows without an alarm for a check: their number, or a share.", metavar="N|P%"),
    ] = None,
    audit_rule: Annotated[
        AuditRule, typer.Option(help="uniform: equal probabilities; neyman: larger where a label says more.")
    ] = AuditRule.neyman,
    default_action: Annotated[
        str | None,
        typer.Option(help="Decision that is no alarm, for --audit of several classes; default the commonest class."),
    ] = None,
    seed: Seed = 0,
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
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Write a probability and a decision for every row, in constant memory; a price here needs no new training."""
    import crcen

    result = crcen.predict_table(
        model,
        data,
        out=out,
        held_out=held_out,
        time=time,
        audit=audit,
        audit_rule=audit_rule.value,
        default_action=default_action,
        random_state=seed,
        id=id,
        all_columns=all_columns,
        sort=sort,
        safe_csv=safe_csv,
        append=append,
        reasons=reasons,
        background=background,
        verbose=is_watched(),
        **shared,
    )
    show(result, as_json, out)


@app.command(
    epilog="Examples:  crcen evaluate model.crcen test.csv --budget 10 --json   |   "
    "crcen evaluate model.crcen test.csv --fail-on CRC003,CRC007 --min-recall 0.7"
)
@takes(
    *("target", "price", "goal", "guarantee", "weighting", "review", "cost_column", "alarm_cost", "prevalence"),
    *("weight", "clusters", "audited", "groups", "read"),
)
def evaluate(
    model: Model,
    data: Data,
    stratified: Annotated[
        bool, typer.Option("--stratified", help="The class counts of these rows were fixed when they were drawn.")
    ] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="Checks of the report that must not warn, such as CRC003,CRC007, or any: else exit with 3.",
            rich_help_panel=_PIPELINES,
        ),
    ] = None,
    min_recall: Annotated[
        float | None, typer.Option(help="Recall to reach, else exit with 3.", rich_help_panel=_PIPELINES)
    ] = None,
    min_precision: Annotated[
        float | None, typer.Option(help="Precision to reach, else exit with 3.", rich_help_panel=_PIPELINES)
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=0, help="Bootstrap resamples; 0 omits intervals without a closed form.")
    ] = 500,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Judge a model on labelled rows it has not seen: metrics with intervals, key equation, price of catches."""
    import crcen

    result = crcen.evaluate_table(
        model,
        data,
        stratified=stratified,
        fail_on=fail_on or (),
        min_recall=min_recall,
        min_precision=min_precision,
        n_resamples=resamples,
        verbose=is_watched(),
        **shared,
    )
    show(result, as_json)
    if result.failures:
        raise typer.Exit(3)


@app.command(
    epilog="Examples:  crcen report model.crcen test.csv --out report.html --groups sex --groups region   |   "
    "crcen report model.crcen test.csv --costs costs.csv"
)
@takes("target", "weighting", "weight", "clusters", "prevalence", "audited", "groups", "review", "read")
def report(
    files: Annotated[
        list[str],
        typer.Argument(
            help="A model, or several side by side, and then the table.", metavar="MODEL... DATA", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    confidence: Annotated[float, typer.Option(help="Of the bound on recall, with --audited.")] = 0.95,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    declaration: Annotated[Path | None, typer.Option(help="Declaration of the model, to link to.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Certificate (JSON) of the model, to link to.")] = None,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Write one HTML page about a model on labelled rows, with a slider for the price, or about several."""
    if len(files) < 2:
        raise typer.BadParameter(f"a report needs a model and a table: got {files[0]} alone.")
    import crcen

    model, *others, data = files
    result = crcen.report_table(
        model,
        data,
        others=others,
        out=out,
        confidence=confidence,
        title=title,
        declaration=declaration,
        certificate=certificate,
        verbose=is_watched(),
        **shared,
    )
    show(result, as_json, out)


@app.command(
    epilog="Examples:  crcen plan model.crcen rows.csv --drift 0.3 --power 0.8   |   "
    "crcen plan model.crcen rows.csv --recall-bound 0.8   |   crcen plan model.crcen rows.csv --cost-width 20"
)
@takes("price", "weighting", "prevalence", "read")
def plan(
    model: Model,
    data: Data,
    drift: Annotated[
        float | None,
        typer.Option(help="Drift in log-odds that the labels must detect; default 0.3 without another goal."),
    ] = None,
    recall_bound: Annotated[
        float | None, typer.Option(help="Lower bound on recall that labels or audits must establish.")
    ] = None,
    cost_width: Annotated[float | None, typer.Option(help="Width of the interval of the cost per 1,000 rows.")] = None,
    power: Annotated[float, typer.Option(help="Probability of reaching the goal.")] = 0.8,
    level: Annotated[float, typer.Option(help="Level of the test of drift.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="Of the bound on recall and of the interval.")] = 0.95,
    audit_rule: Annotated[AuditRule, typer.Option(help="How audits are drawn.")] = AuditRule.neyman,
    seed: Seed = 0,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Say how many labels or audits are needed, from rows without labels."""
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
        random_state=seed,
        verbose=is_watched(),
        **shared,
    )
    show(result, as_json)


def _reject_error_rate(value: float | None) -> None:
    if value is not None:
        raise typer.BadParameter(f"it was renamed: use --false-alarm-rate {value:g}.")


@app.command(
    epilog="Examples:  crcen monitor model.crcen today.csv --state watch.json   |   "
    "crcen monitor model.crcen may.parquet --state watch.json --when 2024-05 --page watch.html   |   "
    "crcen monitor model.crcen week.csv --state watch.json --delay 30 --cohort scored_on"
)
@takes("target", "weight", "clusters", "audited", "price", "weighting", "read")
def monitor(
    model: Model,
    data: Data,
    state: Annotated[
        Path | None, typer.Option(help="JSON file that carries the watch from call to call; made if it does not exist.")
    ] = None,
    when: Annotated[str | None, typer.Option(help="What to call these rows; default the name of the file.")] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page to write, with the running evidence.")] = None,
    delay: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Of a new watch: use labels only after this number of cohorts, where positives are known later "
            "than negatives, or the other way round. Needs --cohort.",
        ),
    ] = None,
    cohort: Annotated[
        str | None,
        typer.Option(help="Column with the day (a date) or the number of the week in which rows were scored."),
    ] = None,
    now: Annotated[
        str | None, typer.Option(help="The present cohort, a date or a number; default the latest in the table.")
    ] = None,
    false_alarm_rate: Annotated[
        float, typer.Option(help="Probability of any false alarm over all calls of a new watch; half for the columns.")
    ] = 0.05,
    declaration: Annotated[
        Path | None,
        typer.Option(help="File of `crcen declare`: also raise an alarm when a declared criterion no longer holds."),
    ] = None,
    error_rate: Annotated[float | None, typer.Option(hidden=True, callback=_reject_error_rate)] = None,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Watch a model at work: exit code 0 when quiet, 3 on an alarm. Labels are used where there are any."""
    import crcen

    result = crcen.monitor_table(
        model,
        data,
        state=state,
        when=when,
        delay=delay,
        cohort=cohort,
        now=now,
        false_alarm_rate=false_alarm_rate,
        declaration=declaration,
        page=page,
        verbose=is_watched(),
        **shared,
    )
    show(result, as_json, state, page)
    if result.is_alarm:
        raise typer.Exit(3)
