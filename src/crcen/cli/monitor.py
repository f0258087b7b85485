"""`crcen monitor`: new rows against those of training, with labels and without."""

from pathlib import Path
from typing import Annotated, Any

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import (
    Alpha,
    Audited,
    Balanced,
    Budget,
    Clusters,
    CostsFile,
    Data,
    Lam,
    Model,
    Ratio,
    Weight,
    Weighting,
    interruptible,
    is_watched,
    price,
    reads_table,
    show,
    stated_price,
)

__all__ = ["ALARM", "monitor"]

# Exit code of an alarm, which is neither a refusal (1) nor a mistake in the options (2).
ALARM = 3


def _reject_error_rate(value: float | None) -> None:
    if value is not None:
        raise typer.BadParameter(f"it was renamed: use --false-alarm-rate {value:g}.")


@app.command(
    epilog="Examples:  crcen monitor model.crcen today.csv --state watch.json   |   "
    "crcen monitor model.crcen may.parquet --state watch.json --when 2024-05 --page watch.html   |   "
    "crcen monitor model.crcen week.csv --state watch.json --delay 30 --cohort scored_on"
)
@reads_table
def monitor(
    model: Model,
    data: Data,
    state: Annotated[
        Path | None,
        typer.Option(help="JSON file that carries the watch from call to call; made where it is not there."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column with labels, where there are any; default that of training.")
    ] = None,
    when: Annotated[str | None, typer.Option(help="What to call these rows; default the name of the file.")] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page to write, with the running evidence.")] = None,
    weight: Weight = None,
    clusters: Clusters = None,
    audited: Audited = None,
    delay: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Of a new watch: hold labels back until so many cohorts have passed, where positives are known later "
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
    budget: Budget = None,
    cost_ratio: Ratio = None,
    alpha: Alpha = None,
    lam: Lam = None,
    balanced: Balanced = False,
    weighting: Weighting = None,
    costs: CostsFile = None,
    read: Any = None,
    as_json: Json = False,
) -> None:
    """Watch a model at work: exit code 0 when quiet, 3 on an alarm. Labels are used where there are any."""
    with interruptible():
        worth = stated_price(price(budget, cost_ratio, alpha, lam, balanced), weighting, costs)
        import crcen

        result = crcen.monitor_table(
            model,
            data,
            state=state,
            target=target,
            weighting=worth,
            costs=costs,
            when=when,
            weight=weight,
            clusters=clusters,
            audit_probability=audited,
            delay=delay,
            cohort=cohort,
            now=now,
            false_alarm_rate=false_alarm_rate,
            declaration=declaration,
            page=page,
            read=read,
            verbose=is_watched(),
        )
    show(result, as_json, state, page)
    if result.is_alarm:
        raise typer.Exit(ALARM)
