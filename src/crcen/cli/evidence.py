"""`crcen declare`, `certify`, `verify`, `keygen` and `compare`: declared criteria, certificates, comparisons."""

from functools import partial
from pathlib import Path

import typer

from crcen.cli.options import Result, add_command, argument, library, option

_PANEL = "Evidence"
_CRITERIA = (
    "recall >= 0.8, precision[CLASS] >= 0.5, cost per 1000 <= 400, key equation, drift, groups; may be repeated."
)
_column = partial(option, panel="Probabilities of other tools")

add_command(
    "declare",
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
    "model target read",
    panel=_PANEL,
    examples=(
        'declare model.crcen --require "recall >= 0.8" --require "cost per 1000 <= 400" --require "key equation" '
        "--groups sex --rows test_unlabelled.csv --out declaration.toml",
    ),
)
add_command(
    "certify",
    "Test declared criteria on labelled rows: exit code 0, or 3 if a criterion fails.",
    "certify",
    {
        "declaration": argument(Path, "File that `crcen declare` wrote."),
        "model": option(Path, "File of the declared model.", default=...),
        "out": option(Path, "The printable HTML page to write.", default=Path("certificate.html")),
        "json_out": option(Path, "The JSON file to write.", default=Path("certificate.json")),
        "sign": option(Path, "Ed25519 private key, of `crcen keygen`."),
        "again": option(bool, "Certify on the same rows once more; the certificate states it."),
    },
    "data read",
    panel=_PANEL,
    examples=(
        "certify declaration.toml test.csv --model model.crcen --out certificate.html --json-out certificate.json "
        "--sign key.pem",
    ),
    exit_code=lambda result: 3 if result.verdict == "fail" else 0,
)
add_command(
    "verify",
    "Check a certificate: exit code 0 if everything belongs together, whatever the verdicts, otherwise 1.",
    "verify",
    {
        "certificate": argument(Path, "JSON file that `crcen certify` wrote."),
        "model": option(Path, "Model that must be the certified one."),
        "data": option(str, "Labelled rows that must be the certified ones."),
        "declaration": option(Path, "Declaration that must belong to it."),
        "page": option(Path, "HTML page that must belong to it."),
        "public_key": option(Path, "Public key that must have signed it."),
    },
    "read",
    panel=_PANEL,
    examples=("verify certificate.json --model model.crcen --data test.csv --public-key key.pem.pub",),
    exit_code=lambda result: 0 if result.is_valid else 1,
)


add_command(
    "keygen",
    "Make an Ed25519 key pair to sign certificates with.",
    "commands.certify.generate_key",
    {"out": option(Path, "File of the private key; the public one has .pub after it.", default=Path("key.pem"))},
    panel=_PANEL,
    examples=("keygen --out key.pem",),
)


def _compare(files: list[str], probability_old: list[str], probability_new: list[str], **given: object) -> Result:
    least = 1 if probability_old or probability_new else 3
    if len(files) < least:
        raise typer.BadParameter(f"a comparison needs two models and a table: got {' '.join(files)}.")
    old, new = (None, None) if least == 1 else files[:2]
    tables = files[least - 1 :]
    given |= {"probability_old": probability_old or None, "probability_new": probability_new or None}
    return library("compare_models")(old, new, tables[0] if len(tables) == 1 else tables, **given)


add_command(
    "compare",
    "Is a new model cheaper than the old one at the price? The answer is valid after any number of rows.",
    _compare,
    {
        "files": argument(list[str], "Old model, new model, table; or a table of probabilities.", "[OLD NEW] DATA"),
        "probability_old": _column(list[str], "Column of the old model, or CLASS=COLUMN for each class."),
        "probability_new": _column(list[str], "Column of the new model, or CLASS=COLUMN for each class."),
        "positive": _column(str, "The positive class; default 1 of 0 and 1."),
        "groups": option(list[str], "Column whose values are groups; may be repeated."),
        "confidence": option(float, "One minus the probability of ever naming the wrong model.", default=0.95),
        "state": option(Path, "JSON file that carries the comparison from call to call until it is decided."),
        "out": option(Path, "Table of the rows that change decision."),
    },
    "target price weighting audit_probability read",
    panel=_PANEL,
    examples=(
        "compare old.crcen new.crcen rows.csv --state compare.json",
        "compare scored.csv --probability-old p_old --probability-new p_new --target fraud --budget 20",
    ),
)
