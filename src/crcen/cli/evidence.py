"""`crcen declare`, `certify`, `verify`, `keygen` and `compare`: declared criteria, certificates, comparisons."""

from pathlib import Path
from typing import Annotated, Any

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import Data, Model, show, takes

__all__ = ["certify", "compare", "declare", "keygen", "verify"]

_EVIDENCE = "Evidence"
Groups = Annotated[
    list[str] | None, typer.Option(help="Column whose values are groups; criteria must hold in each. May be repeated.")
]


@app.command(
    rich_help_panel=_EVIDENCE,
    epilog='Example:  crcen declare model.crcen --require "recall >= 0.8" --require "cost per 1000 <= 400" '
    '--require "key equation" --groups sex --rows test_unlabelled.csv --out declaration.toml',
)
@takes("target", "read")
def declare(
    model: Model,
    require: Annotated[
        list[str],
        typer.Option(
            help="Criterion: recall >= 0.8, precision[CLASS] >= 0.5, cost per 1000 <= 400, key equation, drift, "
            "groups; may be repeated.",
            metavar="CRITERION",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The TOML file to write.")] = Path("declaration.toml"),
    rows: Annotated[
        str | None, typer.Option(help="Table of the rows to be tested, without labels; default: any rows are accepted.")
    ] = None,
    groups: Groups = None,
    confidence: Annotated[float, typer.Option(help="One minus the probability of any wrong verdict.")] = 0.95,
    description: Annotated[
        Path | None,
        typer.Option(
            help="TOML or JSON file with purpose, population, sampling, oversight, limitations and responsible."
        ),
    ] = None,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Declare acceptance criteria of a model before the labels of the test rows are used."""
    import crcen

    result = crcen.declare(
        model,
        require,
        out=out,
        groups=groups or (),
        confidence=confidence,
        rows=rows,
        description=description,
        **shared,
    )
    show(result, as_json, out)


@app.command(
    rich_help_panel=_EVIDENCE,
    epilog="Example:  crcen certify declaration.toml test.csv --model model.crcen --out certificate.html "
    "--json-out certificate.json --sign key.pem",
)
@takes("read")
def certify(
    declaration: Annotated[Path, typer.Argument(help="File that `crcen declare` wrote.", show_default=False)],
    data: Data,
    model: Annotated[Path, typer.Option(help="File of the declared model.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The printable HTML page to write.")] = Path("certificate.html"),
    json_out: Annotated[Path, typer.Option(help="The JSON file to write.")] = Path("certificate.json"),
    sign: Annotated[Path | None, typer.Option(help="Ed25519 private key, of `crcen keygen`.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Certify on the same rows once more; the certificate states it.")
    ] = False,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Test declared criteria on labelled rows: exit code 0, or 3 if a criterion fails."""
    import crcen

    result = crcen.certify(declaration, data, model=model, out=out, json_out=json_out, sign=sign, again=again, **shared)
    show(result, as_json, out, json_out)
    if result.verdict == "fail":
        raise typer.Exit(3)


@app.command(
    rich_help_panel=_EVIDENCE,
    epilog="Example:  crcen verify certificate.json --model model.crcen --data test.csv --public-key key.pem.pub",
)
@takes("read")
def verify(
    certificate: Annotated[Path, typer.Argument(help="JSON file that `crcen certify` wrote.", show_default=False)],
    model: Annotated[Path | None, typer.Option(help="Model that must be the certified one.")] = None,
    labelled: Annotated[
        str | None, typer.Option("--data", help="Labelled rows that must be the certified ones.")
    ] = None,
    declaration: Annotated[Path | None, typer.Option(help="Declaration that must belong to it.")] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page that must belong to it.")] = None,
    public_key: Annotated[Path | None, typer.Option(help="Public key that must have signed it.")] = None,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Check a certificate: exit code 0 if everything belongs together, whatever the verdicts, otherwise 1."""
    import crcen

    result = crcen.verify(
        certificate,
        model=model,
        data=labelled,
        declaration=declaration,
        page=page,
        public_key=public_key,
        **shared,
    )
    show(result, as_json)
    if not result.is_valid:
        raise typer.Exit(1)


@app.command(rich_help_panel=_EVIDENCE, epilog="Example:  crcen keygen --out key.pem")
def keygen(
    out: Annotated[Path, typer.Option(help="File of the private key; the public one has .pub after it.")] = Path(
        "key.pem"
    ),
    as_json: Json = False,
) -> None:
    """Make an Ed25519 key pair to sign certificates with."""
    from crcen.commands.certify import generate_key

    show(generate_key(out), as_json)


_COLUMNS = "Probabilities of other tools"


@app.command(
    rich_help_panel=_EVIDENCE,
    epilog="Examples:  crcen compare old.crcen new.crcen rows.csv --state compare.json   |   "
    "crcen compare scored.csv --probability-old p_old --probability-new p_new --target fraud --budget 20",
)
@takes("target", "price", "weighting", "read")
def compare(
    files: Annotated[
        list[str],
        typer.Argument(
            help="The old model, the new model and the table; only the table if it holds the probabilities.",
            metavar="[OLD NEW] DATA",
            show_default=False,
        ),
    ],
    probability_old: Annotated[
        list[str] | None,
        typer.Option(help="Column of the old model, or CLASS=COLUMN for each class.", rich_help_panel=_COLUMNS),
    ] = None,
    probability_new: Annotated[
        list[str] | None,
        typer.Option(help="Column of the new model, or CLASS=COLUMN for each class.", rich_help_panel=_COLUMNS),
    ] = None,
    positive: Annotated[
        str | None, typer.Option(help="The positive class; default 1 of 0 and 1.", rich_help_panel=_COLUMNS)
    ] = None,
    groups: Annotated[list[str] | None, typer.Option(help="Column whose values are groups; may be repeated.")] = None,
    audited: Annotated[
        str | None, typer.Option(help="Column with the probability that a row was checked, where labels are missing.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="One minus the probability of ever naming the wrong model.")] = 0.95,
    state: Annotated[
        Path | None, typer.Option(help="JSON file that carries the comparison from call to call until it is decided.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Table of the rows that change decision.")] = None,
    as_json: Json = False,
    **shared: Any,
) -> None:
    """Is a new model cheaper than the old one at the price? The answer is valid after any number of rows."""
    has_columns = bool(probability_old or probability_new)
    least = 1 if has_columns else 3
    if len(files) < least:
        raise typer.BadParameter(f"a comparison needs two models and a table: got {' '.join(files)}.")
    old, new = (None, None) if has_columns else (files[0], files[1])
    tables = files[least - 1 :]
    import crcen

    result = crcen.compare_models(
        old,
        new,
        tables[0] if len(tables) == 1 else tables,
        probability_old=probability_old or None,
        probability_new=probability_new or None,
        positive=positive,
        groups=groups or (),
        audit_probability=audited,
        confidence=confidence,
        state=state,
        out=out,
        **shared,
    )
    show(result, as_json, state, out)
