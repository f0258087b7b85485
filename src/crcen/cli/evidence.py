"""`crcen declare`, `certify`, `verify`, `keygen` and `compare`: declared criteria, certificates, comparisons."""

from pathlib import Path
from typing import Annotated, Any

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import Data, Model, Target, interruptible, reads_table, show

__all__ = ["certify", "declare", "keygen", "verify"]

_EVIDENCE = "Evidence"
Groups = Annotated[
    list[str] | None, typer.Option(help="Column whose values are groups; criteria must hold in each. May be repeated.")
]


@app.command(
    rich_help_panel=_EVIDENCE,
    epilog='Example:  crcen declare model.crcen --require "recall >= 0.8" --require "cost per 1000 <= 400" '
    '--require "key equation" --groups sex --rows test_unlabelled.csv --out declaration.toml',
)
@reads_table
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
    target: Target = None,
    description: Annotated[
        Path | None,
        typer.Option(
            help="TOML or JSON file with purpose, population, sampling, oversight, limitations and responsible."
        ),
    ] = None,
    read: Any = None,
    as_json: Json = False,
) -> None:
    """Declare acceptance criteria of a model before the labels of the test rows are used."""
    with interruptible():
        import crcen

        result = crcen.declare(
            model,
            require,
            out=out,
            groups=groups or (),
            confidence=confidence,
            rows=rows,
            target=target,
            description=description,
            read=read,
        )
    show(result, as_json, out)


@app.command(
    rich_help_panel=_EVIDENCE,
    epilog="Example:  crcen certify declaration.toml test.csv --model model.crcen --out certificate.html "
    "--json-out certificate.json --sign key.pem",
)
@reads_table
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
    read: Any = None,
    as_json: Json = False,
) -> None:
    """Test declared criteria on labelled rows: exit code 0, or 3 if a criterion fails."""
    with interruptible():
        import crcen

        result = crcen.certify(
            declaration, data, model=model, out=out, json_out=json_out, sign=sign, again=again, read=read
        )
    show(result, as_json, out, json_out)
    if result.verdict == "fail":
        raise typer.Exit(3)


@app.command(
    rich_help_panel=_EVIDENCE,
    epilog="Example:  crcen verify certificate.json --model model.crcen --data test.csv --public-key key.pem.pub",
)
@reads_table
def verify(
    certificate: Annotated[Path, typer.Argument(help="JSON file that `crcen certify` wrote.", show_default=False)],
    model: Annotated[Path | None, typer.Option(help="Model that must be the certified one.")] = None,
    labelled: Annotated[
        str | None, typer.Option("--data", help="Labelled rows that must be the certified ones.")
    ] = None,
    declaration: Annotated[Path | None, typer.Option(help="Declaration that must belong to it.")] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page that must belong to it.")] = None,
    public_key: Annotated[Path | None, typer.Option(help="Public key that must have signed it.")] = None,
    read: Any = None,
    as_json: Json = False,
) -> None:
    """Check a certificate: exit code 0 if everything belongs together, whatever the verdicts, otherwise 1."""
    with interruptible():
        import crcen

        result = crcen.verify(
            certificate,
            model=model,
            data=labelled,
            declaration=declaration,
            page=page,
            public_key=public_key,
            read=read,
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
