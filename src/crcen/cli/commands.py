"""All commands in the order of `crcen --help`; each parses options, calls one public function, and prints."""

import inspect
import os
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer

from crcen._support.files import check_writable
from crcen.cli.app import (
    Given,
    Listing,
    Result,
    add_command,
    argument,
    is_stated,
    library,
    option,
    option_name,
    share,
    typed,
)

_TARGET = option(str, "Column with the label.", default=...)
_CRITERIA = (
    "recall >= 0.8, precision[CLASS] >= 0.5, cost per 1000 <= 400, key equation, unlike, groups; may be repeated."
)
_FOLDER: Given = {"exists": True, "file_okay": False}  # a mistyped path is a usage error
_PANELS = "Large data, For pipelines, Instead of a price, Probabilities of other tools, Decision log, Limits, Access"
_large, _gate, _goal, _column, _log, _limit, _access = (partial(option, panel=one) for one in _PANELS.split(", "))
_add_evidence, _add_research = (partial(add_command, panel=panel) for panel in ("Evidence", "Research: the paper"))


def _bytes(text: str) -> int:
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*([KMGT]?)B?\s*", text.upper())
    if found is None:
        raise typer.BadParameter(f"must be a size such as 4GB or 500MB: got {text!r}.")
    return int(float(found[1]) * 1000 ** " KMGT".index(found[2] or " "))


def _fit(engine: str, quick: bool, no_fingerprint: bool, details: bool, **given: object) -> Result:
    stated = {name: value for name, value in given.items() if is_stated(value)}
    if quick and stated.setdefault("effort", "quick") != "quick":
        raise typer.BadParameter(f"--quick is --effort quick: got --effort {stated['effort']} as well.")
    if quick:
        typed("--effort quick", "--quick")
    function = library("fit_table" if engine == "table" else "fit_files")
    accepted = {*inspect.signature(function).parameters, *["details"] * (engine == "table")}
    for name in [*stated, *["details"] * details]:
        if name not in accepted or (name == "workers" and engine != "ray"):
            large = "--engine ray" if name == "workers" else "--engine stream or --engine ray"
            use = large if name in ("workers", "epochs", "hold_out", "memory", "storage") else "tables in memory"
            raise typer.BadParameter(f"{option_name(name)} is for {use}, not for --engine {engine}.")
    if engine != "table":
        stated["engine"] = engine
    return function(fingerprint=not no_fingerprint, **stated)


def _report(files: list[str], **given: object) -> Result:
    if len(files) < 2:
        raise typer.BadParameter(f"a report needs a model and a table: got {files[0]} alone.")
    model, *others, data = files
    return library("report_table")(model, data, others=others, **given)


def _compare(files: list[str], probability_old: list[str], probability_new: list[str], **given: object) -> Result:
    least = 1 if probability_old or probability_new else 3
    if len(files) < least:
        raise typer.BadParameter(f"a comparison needs two models and a table: got {' '.join(files)}.")
    old, new = (None, None) if least == 1 else files[:2]
    tables = files[least - 1 :]
    given |= {"probability_old": probability_old or None, "probability_new": probability_new or None}
    return library("compare_models")(old, new, tables[0] if len(tables) == 1 else tables, **given)


def _serve(
    models: list[Path], port: int, workers: int, token: str | None, token_file: Path | None, **settings: Any
) -> None:
    _need_packages("crcen serve")
    from crcen.commands.results import read_bytes
    from crcen.serve.server import Settings, serve

    if token is not None and token_file is not None and "CRCEN_TOKEN" not in os.environ:
        raise typer.BadParameter("--token and --token-file both state the token: give one of them.")
    if token_file is not None:
        token = read_bytes(token_file).decode(errors="replace").strip()
    if settings["log"] is not None and settings["log"].is_file():  # to which decisions are added
        check_writable(settings["log"], *models, token_file)
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

    said = "Open {} in a browser; Ctrl-C stops the application."
    run_app(folder, port, lambda address: typer.echo(said.format(address)), browser=not no_browser)


def _need_packages(command: str) -> None:
    from crcen._support.extras import need

    for package in ("uvicorn", "starlette"):
        need(package, "serve", command)


def _datasets(data_home: Path | None) -> Listing:
    from crcen.datasets.benchmark import list_datasets

    rows = list_datasets(data_home)
    lines = [f"{'name':16s} {'rows':>7s} {'columns':>7s} {'positive':>8s} {'ratio':>6s}  {'in paper':9s} from"]
    lines += [
        f"{row.name:16s} {row.n_samples:7d} {row.n_features:7d} {row.n_pos:8d} {row.imbalance_ratio:6.1f}  "
        f"{row.paper_name or '':9s} {row.available}"
        for row in rows
    ]
    return Listing([asdict(row) for row in rows], lines)


def _methods() -> Listing:
    from crcen.paper.methods import METHODS

    fields = ("summary", "changes", "probabilities", "budget", "source")
    values = [{"name": name} | {key: getattr(method, key) for key in fields} for name, method in METHODS.items()]
    natural = {"natural": "natural", "factor": "by a known factor", "calibrate": "by calibration out of fold"}
    lines = [
        f"{name:19s} {method.summary}; changes {', '.join(method.changes.split()) or 'nothing'}; probabilities "
        f"{natural[method.probabilities]}{f'; at most {method.budget}' if method.budget else ''} [{method.source}]"
        for name, method in METHODS.items()
    ]
    return Listing(values, lines)


def _reproduce(**given: Any) -> Listing:
    from crcen.paper.reproduce import reproduce

    run = reproduce(**given)
    return Listing({"folder": str(run.folder), "texts": list(run.texts)}, [*run.texts, f"Written to {run.folder}"])


add_command(
    "look data.csv --target fraud",
    "Summarise a table before a fit: types, missing values, identifiers, leaks, and the use of each column.",
    "inspect_table",
    {"target": option(str, "Column with the label; columns that alone predict it are reported.")},
    "data columns clusters audit_probability read",
)
add_command(
    "split data.csv --target fraud | split visits.parquet --target readmitted --clusters patient --test 0.3",
    "Split a file into training rows and test rows.",
    "split_table",
    {
        "target": _TARGET,
        "test": option(float, "Share of test rows, between 0 and 1.", default=0.25),
        "clusters": option(str, "Keep equal values of this column in one file."),
        "time": option(str, "Use the latest rows by this column as test rows."),
        "folder": option(Path, "Folder for both files; default: the folder of the data."),
    },
    "data random_state read",
)
add_command(
    "fit train.csv --target fraud --budget 20 --out model.crcen | "
    "fit visits.parquet --target readmitted --positive yes --clusters patient --drop name | "
    "fit machines.csv --target state --costs costs.csv | "
    "fit calls.xlsx --target sold --capacity 20/day --time called --report calls.html | "
    "fit 'days/*.parquet' --target y --engine ray --workers 4",
    """Fit a model to a table, evaluate it on held-out rows, and save it. The default price is --balanced.

    A target with 3 to 50 values is multiclass; --positive predicts one value against all others.
    """,
    _fit,
    {
        "target": _TARGET,
        "out": option(Path, "File for the model.", default=Path("model.crcen")),
        "onnx": option(Path, "File for the model as an ONNX graph."),
        "report": option(Path, "File for the HTML report on held-out rows."),
        "selected_by": option(Path, "Earlier model whose alarms were labelled, if no probabilities were recorded."),
        "clusters": option(str, "Keep rows with equal values of this column in one fold."),
        "time": option(str, "Validate on later rows by this column."),
        "learner": option(str, "Kind of model: committee (default), networks, trees, forest or another member."),
        "time_limit": option(float, "Time limit in seconds; steps that cannot finish are not started."),
        "effort": option(("quick", "standard", "best"), "quick: one network; best: average of several searches."),
        "quick": option(bool, "The same as --effort quick."),
        "no_fingerprint": option(bool, "Store no hashes of training rows in the model."),
        "details": option(bool, "Also print columns, learner, price and all metrics."),
        "engine": _large(("table", "stream", "ray"), "stream: any size; ray: on a cluster.", default="table"),
        "workers": _large(int, "Workers of --engine ray; default: 2."),
        "epochs": _large(int, "Epochs of the network, with --engine stream or ray; default: 5."),
        "hold_out": _large(str, "Share of rows held out of training, such as 5% (the default).", parser=share),
        "memory": _large(
            str, "Memory limit of the process, such as 4GB; with ray, of the rows of the trees.", parser=_bytes
        ),
        "storage": _large(str, "Folder for checkpoints and temporary files."),
    },
    "data random_state columns price goal weighting weight audit_probability read",
)
add_command(
    "predict model.crcen new.csv --out scored.parquet --id customer | "
    "predict model.crcen new.csv.gz --out scored.csv --budget 10 --reasons 3 | "
    "predict model.crcen new.csv --out scored.csv --costs costs.csv | "
    "predict model.crcen new.xlsx --out calls.xlsx --top 200 --all-columns --sort",
    "Write a probability and a decision for every row, in constant memory; another price needs no refit.",
    "predict_table",
    {
        "out": option(str, "File to write: .csv, .tsv, .parquet, .xlsx, or sqlite:///scores.db#scores.", default=...),
        "held_out": _goal(str, "Labelled rows that the model did not see, on which the goal is met."),
        "time": _goal(str, "Column of dates, for --capacity 20/day."),
        "audit": option(str, "Select rows without an alarm for an audit: a number or a share.", metavar="N|P%"),
        "default_action": option(str, "Decision that is no alarm, for --audit; default: the most frequent class."),
        "id": option(list[str], "Column to copy to the output; may be repeated."),
        "all_columns": option(bool, "Copy every column."),
        "sort": option(bool, "Highest risk first; needs memory for all rows."),
        "safe_csv": option(bool, "Put ' before ids and labels that a spreadsheet would interpret as formulas."),
        "append": option(bool, "Append to an existing table of a database."),
        "reasons": option(int, "Reasons per alarm: the columns with the largest effect.", default=0, min=0),
    },
    "model data audit_rule random_state price goal guarantee weighting review cost_column alarm_cost prevalence "
    "clusters read",
)
add_command(
    "evaluate model.crcen test.csv --budget 10 --json | "
    "evaluate model.crcen test.csv --fail-on CRC003,CRC007 --min-recall 0.7",
    "Evaluate a model on unseen labelled rows: metrics with intervals, key equation, cost per extra catch.",
    "evaluate_table",
    {
        "stratified": option(bool, "The class counts of these rows were fixed by stratified sampling."),
        "fail_on": _gate(str, "Checks that must not warn, such as CRC003,CRC007, or any; otherwise exit with 3."),
        "min_recall": _gate(float, "Minimum recall; otherwise exit with 3."),
        "min_precision": _gate(float, "Minimum precision; otherwise exit with 3."),
        "n_resamples": option(int, "Bootstrap resamples, 40 or more; 0 omits them.", "--resamples", default=500, min=0),
    },
    "model data target price goal guarantee weighting review cost_column alarm_cost prevalence weight clusters "
    "audit_probability groups read",
    exit_code=lambda result: 3 if result.failures else 0,
)
add_command(
    "report model.crcen test.csv --out report.html --groups sex --groups region | "
    "report model.crcen test.csv --costs costs.csv",
    "Write an HTML report of one or several models on labelled rows, with a slider for the price.",
    _report,
    {
        "files": argument(list[str], "One or several models, then the table.", "MODEL... DATA"),
        "out": option(Path, "The HTML file to write.", default=Path("report.html")),
        "confidence": option(float, "Confidence of the bound on recall, with --audited.", default=0.95),
        "title": option(str, "Title of the page."),
        "declaration": option(Path, "Declaration of the model; the report links to it."),
        "certificate": option(Path, "Certificate (JSON) of the model; the report links to it."),
    },
    "target weighting weight clusters prevalence audit_probability groups review read",
)
add_command(
    "plan model.crcen rows.csv --drift 0.3 --power 0.8 | "
    "plan model.crcen rows.csv --recall-bound 0.8 | "
    "plan model.crcen rows.csv --cost-width 20",
    "Compute how many labels or audits are needed; the rows need no labels.",
    "plan_table",
    {
        "drift": option(float, "Drift in log-odds that the labels must detect; default: 0.3 without another goal."),
        "recall_bound": option(float, "Lower bound on recall that labels or audits must establish."),
        "cost_width": option(float, "Expected width of the interval of the cost per 1,000 rows."),
        "power": option(float, "Probability of reaching the goal of --drift or --recall-bound.", default=0.8),
        "level": option(float, "Level of the test of drift.", default=0.05),
        "confidence": option(float, "Confidence of the bound on recall and of the interval.", default=0.95),
    },
    "model data audit_rule random_state price weighting prevalence clusters read",
)
add_command(
    "monitor model.crcen today.csv --state watch.json | "
    "monitor model.crcen may.parquet --state watch.json --when 2024-05 --page watch.html | "
    "monitor model.crcen week.csv --state watch.json --delay 30 --cohort scored_on",
    "Monitor a model in use: exit code 3 on an alarm, otherwise 0. Labels are used if they are known.",
    "monitor_table",
    {
        "state": option(Path, "JSON file with the state between calls; created if it does not exist."),
        "when": option(str, "Name of these rows; default: the file name."),
        "page": option(Path, "HTML page to write, with the evidence so far."),
        "delay": option(int, "Use labels only after this number of --cohort values; for a new state.", min=0),
        "cohort": option(str, "Column with the day (a date) or the number of the week in which rows were scored."),
        "now": option(str, "The current cohort, a date or a number; default: the latest in the table."),
        "false_alarm_rate": option(float, "Probability of any false alarm; for a new state.", default=0.05),
        "declaration": option(Path, "File of `crcen declare`; its criteria are monitored too."),
    },
    "model data target weight clusters audit_probability price weighting read",
    exit_code=lambda result: 3 if result.is_alarm else 0,
)
_add_evidence(
    'declare model.crcen --require "recall >= 0.8" --require "cost per 1000 <= 400" --require "key equation" '
    "--groups sex --rows test_unlabelled.csv --out declaration.toml",
    "Declare acceptance criteria of a model before the labels of the test rows are used.",
    "declare",
    {
        "require": option(list[str], _CRITERIA, default=..., metavar="CRITERION"),
        "out": option(Path, "The TOML file to write.", default=Path("declaration.toml")),
        "rows": option(str, "Table of the rows to be tested, without labels; default: any rows are accepted."),
        "groups": option(list[str], "Column whose values are groups; criteria must hold in each. May be repeated."),
        "confidence": option(float, "One minus the probability of any wrong verdict.", default=0.95),
        "description": option(Path, "TOML or JSON file with purpose, population, limitations and responsible."),
    },
    "model target clusters read",
)
_add_evidence(
    "certify declaration.toml test.csv --model model.crcen --out certificate.html --json-out certificate.json "
    "--sign key.pem",
    "Test declared criteria on labelled rows: exit code 0, or 3 if a criterion fails.",
    "certify",
    {
        "declaration": argument(Path, "Declaration file of `crcen declare`."),
        "model": option(Path, "File of the declared model.", default=...),
        "out": option(Path, "The printable HTML page to write.", default=Path("certificate.html")),
        "json_out": option(Path, "The JSON file to write.", default=Path("certificate.json")),
        "sign": option(Path, "Ed25519 private key, of `crcen keygen`."),
        "again": option(bool, "Allow a second certification on the same rows; the certificate states it."),
    },
    "data clusters read",
    exit_code=lambda result: 3 if result.verdict == "fail" else 0,
)
_add_evidence(
    "verify certificate.json --model model.crcen --data test.csv --public-key key.pem.pub",
    "Verify a certificate: exit code 0 if all files match it (with any verdict), otherwise 1.",
    "verify",
    {
        "certificate": argument(Path, "JSON file of `crcen certify`."),
        "model": option(Path, "Model that must be the certified one."),
        "data": option(str, "Labelled rows that must be the certified ones."),
        "declaration": option(Path, "Declaration that must belong to it."),
        "page": option(Path, "HTML page that must belong to it."),
        "public_key": option(Path, "Public key that must have signed it."),
    },
    "read",
    exit_code=lambda result: 0 if result.is_valid else 1,
)
_add_evidence(
    "keygen --out key.pem",
    "Create an Ed25519 key pair to sign certificates.",
    "commands.certify.generate_key",
    {"out": option(Path, "File of the private key; the public key file has the suffix .pub.", default=Path("key.pem"))},
)
_add_evidence(
    "compare old.crcen new.crcen rows.csv --state compare.json | "
    "compare scored.csv --probability-old p_old --probability-new p_new --target fraud --budget 20",
    "Test whether a new model is cheaper than the old one at the price; valid after any number of rows.",
    _compare,
    {
        "files": argument(list[str], "Old model, new model, table; or a table of probabilities.", "[OLD NEW] DATA"),
        "probability_old": _column(list[str], "Column of the old model, or CLASS=COLUMN for each class."),
        "probability_new": _column(list[str], "Column of the new model, or CLASS=COLUMN for each class."),
        "positive": _column(str, "The positive class; default: 1 if the classes are 0 and 1."),
        "confidence": option(float, "One minus the probability of ever naming the wrong model.", default=0.95),
        "state": option(Path, "JSON file with the state between calls, until the comparison is decided."),
    },
    "target price weighting clusters audit_probability groups read",
)
add_command(
    "serve model.crcen --port 8000 | "
    "serve fraud.crcen churn.crcen --log decisions.jsonl --log-inputs --audit 1% | "
    "serve model.crcen --host 0.0.0.0 --token-file token.txt --workers 2",
    "Serve models over HTTP: JSON, CSV and the Open Inference Protocol v2. SIGHUP reloads changed files.",
    _serve,
    {
        "models": argument(list[Path], "Model files; the file name is the model name.", "MODEL..."),
        "port": option(int, "Port; 0 selects a free one.", default=8000, min=0, max=65_535),
        "host": _access(str, "Address; addresses other than loopback need a token.", default="127.0.0.1"),
        "token": _access(str, "Token that clients send as Authorization: Bearer.", envvar="CRCEN_TOKEN"),
        "token_file": _access(Path, "File with the token."),
        "workers": option(int, "Number of processes.", default=1, min=1, max=64),
        "id": option(str, "Column with the identifier of each row."),
        "log": _log(Path, "File for the decision log, one line of JSON per decision."),
        "log_inputs": _log(bool, "Log inputs instead of their hash, to compare columns with training."),
        "log_size": _log(int, "Start a new file after this number of megabytes.", default=100, min=1),
        "audit": _log(str, "Share of rows without an alarm to select for audits, such as 1%.", parser=share),
        "default_action": _log(str, "Decision that is no alarm, for --audit; default: the most frequent class."),
        "seed": _log(int, "Random seed of audits.", default=0, min=0),
        "max_rows": _limit(int, "Maximum number of rows per request.", default=100_000, min=1),
        "max_megabytes": _limit(int, "Maximum size of a request in megabytes.", default=32, min=1),
        "timeout": _limit(float, "Time limit of a request in seconds.", default=30.0, min=0.1),
    },
    has_json=False,
)
add_command(
    "app",
    "Open the local web application, from a table to scored rows; data stay on this machine.",
    _app,
    {
        "port": option(int, "Port; 0 selects a free one.", default=0, min=0, max=65_535),
        "no_browser": option(bool, "Print the address, but do not open a browser."),
        "folder": option(Path, "Folder for saved models.", default=Path(".")),
    },
    has_json=False,
)
add_command(
    "export model.crcen --onnx model.onnx",
    "Write a model as one ONNX graph, after comparing it with the model.",
    "export_onnx",
    {"out": option(Path, "The ONNX file to write.", "--onnx", default=...)},
    "model",
)
add_command(
    "info | info model.crcen --json",
    "Show the installed versions, or the header of a saved model without loading it.",
    lambda model: library("commands.environment.environment_info")() if model is None else library("model_info")(model),
    {"model": argument(Path, "A saved model; without it, the installed versions.", default=None)},
)
add_command(
    "demo --out report.html",
    "Fit, evaluate and report on a bundled data set; writes only the report.",
    "commands.demo.demo",
    {"out": option(Path, "The report to write.", default=Path("report.html"))},
)
_add_research(
    "datasets --data-home data",
    "List the benchmark data sets and the location of each.",
    _datasets,
    {"data_home": option(Path, "Folder in imbalanced-learn's cache layout.", **_FOLDER)},
)
_add_research(
    "methods", "List the methods: what each changes, how its probabilities are corrected, and its source.", _methods, {}
)
_add_research(
    "reproduce table1 | reproduce all --quick --out runs/quick",
    "Reproduce the paper's tables and figure beside the published numbers; interrupted runs resume.",
    _reproduce,
    {
        "artefact": argument(("table1", "table2", "table3", "figure1", "all"), "Experiment.", default="all"),
        "data_home": option(Path, "Folder in imbalanced-learn's cache layout; default CRCEN_DATA_HOME.", **_FOLDER),
        "quick": option(bool, "A short version on the bundled sets."),
        "out": option(Path, "Run folder, default: runs/ and a hash of the settings; an existing run is resumed."),
        "selection": option(("first_split", "per_split"), "Select hyperparameters once, or for each split."),
        "scoring": option(("f1", "g_mean", "weighted_log_loss", "own_metric"), "Score for the selection."),
        "config": option(Path, "TOML file with settings that replace the packaged ones.", dir_okay=False),
        "engine": option(("local", "ray"), "Train locally, or on a Ray cluster.", default="local"),
        "methods": option(str, "Methods of table3, separated by commas, or all; see `crcen methods`."),
        "reading": option(
            ("today", "2019", "scikit-learn"), "Interpretation of the protocol of table3.", default="today"
        ),
    },
    interrupted="run the same command again to resume",
)
