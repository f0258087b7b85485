"""`crcen predict`, `evaluate`, `report`, `plan` and `monitor`: a model on new rows."""

from functools import partial
from pathlib import Path

import typer

from crcen.cli.options import Result, add_command, argument, library, option, renamed

_gate, _goal = (partial(option, panel=panel) for panel in ("For pipelines", "Instead of a price"))

add_command(
    "predict",
    "Write a probability and a decision for every row, in constant memory; a price here needs no new training.",
    "predict_table",
    {
        "out": option(str, "File to write: .csv, .tsv, .parquet, .xlsx, or sqlite:///scores.db#scores.", default=...),
        "held_out": _goal(str, "Labelled rows the model did not see, to choose the price of the goal on."),
        "time": _goal(str, "Column of dates, for --capacity 20/day."),
        "audit": option(str, "Draw rows without an alarm for a check: their number, or a share.", metavar="N|P%"),
        "default_action": option(str, "Decision that is no alarm, for --audit; default the commonest class."),
        "id": option(list[str], "Column to carry over; may be repeated."),
        "all_columns": option(bool, "Carry over every column."),
        "sort": option(bool, "Highest risk first; needs memory for all rows."),
        "safe_csv": option(bool, "Put ' before ids and labels that a spreadsheet takes for formulas."),
        "append": option(bool, "Add to a table of a database that is there."),
        "reasons": option(int, "Reasons for each alarm: columns that raised or lowered it most.", default=0, min=0),
        "background": option(str, "File of rows that --reasons compares with; default typical rows."),
    },
    "model data audit_rule random_state price goal guarantee weighting review cost_column alarm_cost prevalence "
    "clusters read",
    examples=(
        "predict model.crcen new.csv --out scored.parquet --id customer",
        "predict model.crcen new.csv.gz --out scored.csv --budget 10 --reasons 3",
        "predict model.crcen new.csv --out scored.csv --costs costs.csv",
        "predict model.crcen new.xlsx --out calls.xlsx --top 200 --all-columns --sort",
    ),
)
add_command(
    "evaluate",
    "Judge a model on labelled rows it has not seen: metrics with intervals, key equation, price of catches.",
    "evaluate_table",
    {
        "stratified": option(bool, "The class counts of these rows were fixed when they were drawn."),
        "fail_on": _gate(str, "Checks that must not warn, such as CRC003,CRC007, or any: else exit with 3."),
        "min_recall": _gate(float, "Recall to reach, else exit with 3."),
        "min_precision": _gate(float, "Precision to reach, else exit with 3."),
        "n_resamples": option(int, "Resamples; 0 omits some intervals.", "--resamples", default=500, min=0),
    },
    "model data target price goal guarantee weighting review cost_column alarm_cost prevalence weight clusters "
    "audit_probability groups read",
    examples=(
        "evaluate model.crcen test.csv --budget 10 --json",
        "evaluate model.crcen test.csv --fail-on CRC003,CRC007 --min-recall 0.7",
    ),
    exit_code=lambda result: 3 if result.failures else 0,
)


def _report(files: list[str], **given: object) -> Result:
    if len(files) < 2:
        raise typer.BadParameter(f"a report needs a model and a table: got {files[0]} alone.")
    model, *others, data = files
    return library("report_table")(model, data, others=others, **given)


add_command(
    "report",
    "Write one HTML page about a model on labelled rows, with a slider for the price, or about several.",
    _report,
    {
        "files": argument(list[str], "A model, or several side by side, and then the table.", "MODEL... DATA"),
        "out": option(Path, "The HTML file to write.", default=Path("report.html")),
        "confidence": option(float, "Of the bound on recall, with --audited.", default=0.95),
        "title": option(str, "Title of the page."),
        "declaration": option(Path, "Declaration of the model, to link to."),
        "certificate": option(Path, "Certificate (JSON) of the model, to link to."),
    },
    "target weighting weight clusters prevalence audit_probability groups review read",
    examples=(
        "report model.crcen test.csv --out report.html --groups sex --groups region",
        "report model.crcen test.csv --costs costs.csv",
    ),
)
add_command(
    "plan",
    "Say how many labels or audits are needed, from rows without labels.",
    "plan_table",
    {
        "drift": option(float, "Drift in log-odds that the labels must detect; default 0.3 without another goal."),
        "recall_bound": option(float, "Lower bound on recall that labels or audits must establish."),
        "cost_width": option(float, "Width of the interval of the cost per 1,000 rows."),
        "power": option(float, "Probability of reaching the goal.", default=0.8),
        "level": option(float, "Level of the test of drift.", default=0.05),
        "confidence": option(float, "Of the bound on recall and of the interval.", default=0.95),
    },
    "model data audit_rule random_state price weighting prevalence read",
    examples=(
        "plan model.crcen rows.csv --drift 0.3 --power 0.8",
        "plan model.crcen rows.csv --recall-bound 0.8",
        "plan model.crcen rows.csv --cost-width 20",
    ),
)
add_command(
    "monitor",
    "Watch a model at work: exit code 0 when quiet, 3 on an alarm. Labels are used where there are any.",
    "monitor_table",
    {
        "state": option(Path, "JSON file that carries the watch from call to call; made if it does not exist."),
        "when": option(str, "What to call these rows; default the name of the file."),
        "page": option(Path, "HTML page to write, with the running evidence."),
        "delay": option(int, "Of a new watch: use labels only after this number of --cohort values.", min=0),
        "cohort": option(str, "Column with the day (a date) or the number of the week in which rows were scored."),
        "now": option(str, "The present cohort, a date or a number; default the latest in the table."),
        "false_alarm_rate": option(float, "Probability of any false alarm of a new watch, ever.", default=0.05),
        "declaration": option(Path, "File of `crcen declare`, whose criteria are watched too."),
        "old_error_rate": renamed("--error-rate", "--false-alarm-rate"),
    },
    "model data target weight clusters audit_probability price weighting read",
    examples=(
        "monitor model.crcen today.csv --state watch.json",
        "monitor model.crcen may.parquet --state watch.json --when 2024-05 --page watch.html",
        "monitor model.crcen week.csv --state watch.json --delay 30 --cohort scored_on",
    ),
    exit_code=lambda result: 3 if result.is_alarm else 0,
)
