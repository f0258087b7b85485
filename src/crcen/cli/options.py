"""What several commands share: options for tables and prices, the way out on Ctrl-C, printing."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from crcen._support.files import is_standard_output
from crcen._support.text import printable
from crcen.cli.app import print_json
from crcen.cli.wording import typed
from crcen.exceptions import InvalidParameter

__all__ = [
    "AlarmCost",
    "Alpha",
    "AuditRule",
    "Audited",
    "Balanced",
    "Budget",
    "Capacity",
    "Clusters",
    "Confidence",
    "CostColumn",
    "CostsFile",
    "Data",
    "Lam",
    "Model",
    "Precision",
    "Prevalence",
    "Ratio",
    "Recall",
    "ReviewPrices",
    "Target",
    "Weight",
    "Weighting",
    "class_shares",
    "interruptible",
    "is_watched",
    "made",
    "price",
    "price_or_goal",
    "reads_table",
    "show",
    "two_prices",
    "stated_price",
]

Data = Annotated[
    list[str],
    typer.Argument(
        help="Text, Parquet or Excel file, or several; a folder, pattern or URL; or a database, such as "
        "postgresql://host/name or sqlite:///file.db.",
        metavar="DATA",
        show_default=False,
    ),
]
Model = Annotated[Path, typer.Argument(help="File that `crcen fit` wrote.", show_default=False)]
Target = Annotated[str | None, typer.Option(help="Column with the label; default that of training.")]
Budget = Annotated[
    float | None, typer.Option(help="False alarms that one more catch may cost.", rich_help_panel="Price")
]
Ratio = Annotated[
    float | None, typer.Option(help="What a miss costs, in false alarms: the same number.", rich_help_panel="Price")
]
Alpha = Annotated[
    float | None, typer.Option(help="Cost ratio over negatives per positive; 1 is balanced.", rich_help_panel="Price")
]
Lam = Annotated[float | None, typer.Option(help="Weight of a positive row, between 0 and 1.", rich_help_panel="Price")]
Balanced = Annotated[bool, typer.Option("--balanced", help="Both classes weigh the same.", rich_help_panel="Price")]


def _reading(help: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel="Reading the table")


# The fields of `crcen.ReadOptions`.
_READ: dict[str, tuple[Any, Any]] = {
    "query": (str | None, _reading("Query that gives the table, of a database.", metavar="SQL")),
    "table": (str | None, _reading("Table to read, of a database.", metavar="NAME")),
    "sheet": (str | None, _reading("Sheet of a workbook, by name or number; default the first visible one.")),
    "skip_rows": (int | None, _reading("Rows above the column names; default detected.")),
    "separator": (str | None, _reading("Between values: a character, tab, space or fixed; default detected.")),
    "encoding": (str | None, _reading("Of a text file, such as windows-1252; default detected.")),
    "decimal": (str | None, _reading("Decimal mark, a point or a comma; default detected.")),
    "quote": (str | None, _reading('Quotation mark, or none; default ".')),
    "missing": (
        list[str] | None,
        _reading("Values that stand for a missing cell; may be repeated.", metavar="-200,999 or COLUMN=-1"),
    ),
    "dates": (str | None, _reading("Order of dates such as 3/4/2024.", metavar="day-first|month-first")),
    "rename_duplicates": (bool, _reading("Rename duplicate columns, x to x_2.", "--rename-duplicates")),
}


def reads_table(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options on how its table is read; it takes them as ``read``, and several files as a list."""
    signature = inspect.signature(command)
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if kind is bool else None,
            annotation=Annotated[kind, how],
        )
        for name, (kind, how) in _READ.items()
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        stated = {name: value for name in _READ if (value := given.pop(name)) not in (None, False)}
        if "data" in given:
            given["data"] = given["data"][0] if len(given["data"]) == 1 else given["data"]
        import crcen

        command(read=crcen.ReadOptions(**stated) if stated else None, **given)

    own = [one for name, one in signature.parameters.items() if name != "read"]
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*own, *added]}
    return run


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends in one line: here, since typer would answer first, and with another exit code."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("crcen: interrupted; nothing was written.", err=True)
        raise typer.Exit(130) from None


def show(result: Any, as_json: bool, *written: str | Path | None, details: bool = False) -> None:
    """Print a result, with its details if asked for; to standard error if standard output took a written file."""
    is_taken = any(path is not None and is_standard_output(path) for path in written)
    if as_json:
        print_json(result.to_dict(), err=is_taken)
    else:
        text = f"{result}\n\n{result.details()}" if details else str(result)
        typer.echo("\n".join(map(printable, text.split("\n"))), err=is_taken)


def price(
    budget: float | None, cost_ratio: float | None, alpha: float | None, lam: float | None, balanced: bool
) -> Any:
    """The one price that was stated, or None."""
    options = {"--budget": budget, "--cost-ratio": cost_ratio, "--alpha": alpha, "--lam": lam}
    given = {name: value for name, value in options.items() if value is not None}
    stated = [*given, *["--balanced"] * balanced]
    if len(stated) > 1:
        raise typer.BadParameter(f"{', '.join(stated)} are names of one number: give one of them.")
    if not stated:
        return None
    if balanced:
        return "balanced"
    import crcen

    (name,) = given
    value = given[name]
    if name == "--lam" and not 0.0 < value < 1.0:
        others = f"--alpha {value:g} or --cost-ratio {value:g}" if value > 1.0 else "--lam 0.5"
        hint = "--lam 0.5 or --balanced" if value == 1.0 else others
        raise InvalidParameter(f"--lam must lie strictly between 0 and 1, got {value:g}: did you mean {hint}?")
    kinds = {"--budget": crcen.Budget, "--cost-ratio": crcen.CostRatio, "--alpha": crcen.Alpha, "--lam": crcen.Lam}
    return made(kinds[name], name, value)


def made(kind: Callable[..., object], option: str, *values: object, **named: object) -> object:
    """A price or goal of an option; errors name the option instead of the class."""
    shown = " ".join([option, ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)])
    try:
        return typed(kind(*values, **named), shown)
    except InvalidParameter as error:
        raise InvalidParameter(str(error).replace(kind.__name__, option, 1)) from error


def is_watched() -> int:
    """1 where a person looks at a terminal, for a progress bar."""
    return int(sys.stderr.isatty())


_GOAL = "Instead of a price"
Capacity = Annotated[
    str | None,
    typer.Option(
        "--capacity",
        "--top",
        help="So many alarms: 200 of these rows, 20/day, 100/week, or 5/1000 rows.",
        metavar="N[/day]",
        rich_help_panel=_GOAL,
    ),
]
Recall = Annotated[
    float | None, typer.Option(help="Find at least this share of the positives, such as 0.9.", rich_help_panel=_GOAL)
]
Precision = Annotated[
    float | None, typer.Option(help="At least this share of alarms right, such as 0.5.", rich_help_panel=_GOAL)
]
Confidence = Annotated[
    float | None,
    typer.Option(help="Guarantee --recall or --precision with this probability, such as 0.95.", rich_help_panel=_GOAL),
]
ReviewPrices = Annotated[
    str | None,
    typer.Option(
        help="Two prices, such as 2,30: between them a person looks.", metavar="LOW,HIGH", rich_help_panel="Price"
    ),
]
CostColumn = Annotated[
    str | None, typer.Option(help="Column with what a miss of that row costs.", rich_help_panel="Price")
]
AlarmCost = Annotated[
    float | None, typer.Option(help="What a false alarm costs, in the unit of --cost-column.", rich_help_panel="Price")
]
Weight = Annotated[str | None, typer.Option(help="Column that says how much each row counts, as survey weights do.")]
Clusters = Annotated[
    str | None, typer.Option(help="Column of rows that belong together, such as a patient: tests allow for it.")
]
Audited = Annotated[
    str | None,
    typer.Option(help="Column with the probability of a row to get a label; rows without one are unlabelled."),
]


class AuditRule(StrEnum):
    """How audits are drawn."""

    neyman = "neyman"
    uniform = "uniform"


Prevalence = Annotated[
    str | None,
    typer.Option(
        help="Share of positives here if it differs from training, auto to estimate it, or CLASS=SHARE,...",
        metavar="SHARE|auto",
    ),
]


def class_shares(text: str | None) -> Any:
    """The value of --prevalence: a share, "auto", a dict of shares, or None."""
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        return _by_class(text.split(","), "--prevalence must be a share, auto, or CLASS=SHARE,...", text)


def _by_class(parts: list[str], allowed: str, text: str) -> dict[str, float]:
    """CLASS=NUMBER pairs."""
    found: dict[str, float] = {}
    for part in parts:
        label, mark, number = part.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            mark = ""
        if not mark or not label.strip():
            raise typer.BadParameter(f"{allowed}: got {text!r}.")
        found[label.strip()] = value
    return found


def price_or_goal(
    budget: float | None,
    cost_ratio: float | None,
    alpha: float | None,
    lam: float | None,
    balanced: bool,
    capacity: str | None,
    recall: float | None,
    precision: float | None,
    confidence: float | None = None,
) -> Any:
    """The one price or goal that was stated, or None."""
    goals = {"--capacity": capacity, "--recall": recall, "--precision": precision}
    given = [name for name, value in goals.items() if value is not None]
    prices = {
        "--budget": budget,
        "--cost-ratio": cost_ratio,
        "--alpha": alpha,
        "--lam": lam,
        "--balanced": balanced or None,
    }
    stated = given + [name for name, value in prices.items() if value is not None]
    if given and len(stated) > 1:
        raise typer.BadParameter(f"{' and '.join(stated)} both say where alarms begin: give one of them.")
    if confidence is not None and recall is None and precision is None:
        raise typer.BadParameter("--confidence must go with --recall or --precision, which it guarantees.")
    if not given:
        return price(budget, cost_ratio, alpha, lam, balanced)
    import crcen

    if capacity is not None:
        return _capacity(capacity)
    if recall is not None:
        return made(crcen.RecallAtLeast, "--recall", recall, confidence=confidence)
    return made(crcen.PrecisionAtLeast, "--precision", precision, confidence=confidence)


def _capacity(text: str) -> Any:
    """A number of alarms, also for a day, a week or so many rows."""
    import crcen

    number, _, per = text.replace(",", "").partition("/")
    period: Any = per.strip() or None
    try:
        if period is not None and period not in ("day", "week"):
            period = int(period)
        alarms = int(number)
    except ValueError:
        raise typer.BadParameter(
            f"--capacity must be a number of alarms, such as 200, 20/day, 100/week or 5/1000: got {text!r}."
        ) from None
    return made(crcen.Capacity, "--capacity", alarms, per=period)


def two_prices(text: str | None) -> Any:
    """The two prices of --review, or None."""
    if text is None:
        return None
    import crcen

    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--review must be two prices, such as 2,30: got {text!r}.") from None
    return made(crcen.Review, "--review", low, high)


_CLASSES = "Several classes"
CostsFile = Annotated[
    Path | None,
    typer.Option(
        help="Table of costs, .csv or .xlsx: a row for each true class, a column for each decision; other columns, "
        "such as review, are actions.",
        rich_help_panel=_CLASSES,
    ),
]
Weighting = Annotated[
    list[str] | None,
    typer.Option(
        help="balanced, none, or what a mistake on each class is worth: fine=1,worn=5,broken=40; may be repeated.",
        rich_help_panel=_CLASSES,
    ),
]


def stated_price(price: Any, weighting: list[str] | None, costs: Path | None) -> Any:
    """The one thing that was stated: a price or goal of two classes (None where there is none), or a weighting.

    Parameters
    ----------
    price : price, goal or None
        From the options for two classes.
    weighting : list of str or None
        From --weighting.
    costs : Path or None
        From --costs; passed on beside this, and checked here.

    Returns
    -------
    price, goal, "balanced", dict or None
        None where nothing was stated, or costs. For ``--weighting none`` a dict is not possible, since labels are not
        known yet: it is the text "none".
    """
    stated = [*(["a price or goal"] if price is not None else []), *(["--weighting"] if weighting else [])]
    stated += ["--costs"] if costs is not None else []
    if len(stated) > 1:
        raise typer.BadParameter(f"{' and '.join(stated)} both say what mistakes are worth: give one of them.")
    if not weighting:
        return price
    if len(weighting) == 1 and weighting[0].strip().lower() in ("balanced", "none"):
        return weighting[0].strip().lower()
    parts = [one for text in weighting for one in text.split(",")]
    allowed = "--weighting must be balanced, none, or CLASS=WEIGHT with commas between, such as fine=1,worn=5,broken=40"
    return _by_class(parts, allowed, ",".join(weighting))
