"""Options that several commands share, how their values become parameters of the library, and printing."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from crcen._support.files import is_standard_output
from crcen._support.text import printable
from crcen.cli.app import print_json
from crcen.cli.wording import typed
from crcen.exceptions import InvalidParameter

__all__ = ["AuditRule", "Data", "Model", "Seed", "interruptible", "is_watched", "made", "share_of", "show", "takes"]

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
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything that is random.")]


class AuditRule(StrEnum):
    """How audits are drawn."""

    neyman = "neyman"
    uniform = "uniform"


def _option(kind: Any, help: str, *names: str, panel: str | None = None, metavar: str | None = None) -> Any:
    """The annotation of an option."""
    return Annotated[kind, typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel)]


_CAPACITY = "So many alarms: 200 of these rows, 20/day, 100/week, or 5/1000 rows."
_WEIGHTS = "balanced, none, or what a mistake on each class is worth: fine=1,worn=5,broken=40; may be repeated."
_COSTS = (
    "Table of costs, .csv or .xlsx: a row for each true class, a column for each decision; other columns, such as "
    "review, are actions."
)
_SHARES = "Share of positives here if it differs from training, auto to estimate it, or CLASS=SHARE,..."
_MISSING = "-200,999 or COLUMN=-1"
_TEXT, _TEXTS, _NUMBER = str | None, list[str] | None, float | None
_price, _goal, _reading, _by_classes = (
    partial(_option, panel=panel) for panel in ("Price", "Instead of a price", "Reading the table", "Several classes")
)
# Sets of options: name → annotation.
_SETS: dict[str, dict[str, Any]] = {
    # A price of two classes.
    "price": {
        "budget": _price(_NUMBER, "False alarms that one more catch may cost."),
        "cost_ratio": _price(_NUMBER, "What a miss costs, in false alarms: the same number."),
        "alpha": _price(_NUMBER, "Cost ratio over negatives per positive; 1 is balanced."),
        "lam": _price(_NUMBER, "Weight of a positive row, between 0 and 1."),
        "balanced": _price(bool, "Both classes weigh the same.", "--balanced"),
    },
    # A goal of two classes, and its guarantee.
    "goal": {
        "capacity": _goal(_TEXT, _CAPACITY, "--capacity", "--top", metavar="N[/day]"),
        "recall": _goal(_NUMBER, "Find at least this share of the positives, such as 0.9."),
        "precision": _goal(_NUMBER, "At least this share of alarms right, such as 0.5."),
    },
    "guarantee": {"confidence": _goal(_NUMBER, "Guarantee --recall or --precision with this probability.")},
    "weighting": {"weighting": _by_classes(_TEXTS, _WEIGHTS), "costs": _by_classes(Path | None, _COSTS)},
    "columns": {
        "positive": _option(_TEXT, "The value to find: default the rarer one of two, and every class of more."),
        "drop": _option(_TEXTS, "Column to leave out; may be repeated."),
        "keep": _option(_TEXTS, "Column to use although it looks like an identifier."),
        "categorical": _option(_TEXTS, "Column of categories although it holds numbers; may be repeated."),
    },
    # The fields of `crcen.ReadOptions`.
    "read": {
        "query": _reading(_TEXT, "Query that gives the table, of a database.", metavar="SQL"),
        "table": _reading(_TEXT, "Table to read, of a database.", metavar="NAME"),
        "sheet": _reading(_TEXT, "Sheet of a workbook, by name or number; default the first visible one."),
        "skip_rows": _reading(int | None, "Rows above the column names; default detected."),
        "separator": _reading(_TEXT, "Between values: a character, tab, space or fixed; default detected."),
        "encoding": _reading(_TEXT, "Of a text file, such as windows-1252; default detected."),
        "decimal": _reading(_TEXT, "Decimal mark, a point or a comma; default detected."),
        "quote": _reading(_TEXT, 'Quotation mark, or none; default ".'),
        "missing": _reading(_TEXTS, "Values that stand for a missing cell; may be repeated.", metavar=_MISSING),
        "dates": _reading(_TEXT, "Order of dates such as 3/4/2024.", metavar="day-first|month-first"),
        "rename_duplicates": _reading(bool, "Rename duplicate columns, x to x_2.", "--rename-duplicates"),
    },
}
# Single options: name → annotation.
_SINGLE: dict[str, Any] = {
    "target": _option(_TEXT, "Column with the label; default that of training."),
    "review": _price(_TEXT, "Two prices, such as 2,30: rows between them go to review.", metavar="LOW,HIGH"),
    "cost_column": _price(_TEXT, "Column with what a miss of that row costs."),
    "alarm_cost": _price(_NUMBER, "What a false alarm costs, in the unit of --cost-column."),
    "prevalence": _option(_TEXT, _SHARES, metavar="SHARE|auto"),
    "weight": _option(_TEXT, "Column that says how much each row counts, as survey weights do."),
    "clusters": _option(_TEXT, "Column of rows that belong together, such as a patient: tests allow for it."),
    "audited": _option(_TEXT, "Column with the probability of a row to get a label; others are unlabelled."),
    "groups": _option(_TEXTS, "Column whose values are groups to compare; may be repeated."),
}


def takes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command shared options, instead of its ``**shared``, and one line on Ctrl-C.

    Parameters
    ----------
    *names : str
        Single options, or sets of them. The command gets parameters of the library: ``read`` of "read"; ``weighting``
        of "price", "goal", "guarantee" and "weighting", which also gives ``costs``; ``audit_probability`` of "audited".
    """
    options = {key: one for name in names for key, one in _SETS.get(name, {name: _SINGLE.get(name)}).items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            own = {name: value for name, value in given.items() if name not in options}
            if isinstance(own.get("data"), list) and len(own["data"]) == 1:
                own["data"] = own["data"][0]
            with interruptible():
                command(**own, **_parameters({name: given[name] for name in options}, names))

        signature = inspect.signature(command)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        shared = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if kind.__origin__ is bool else None,
                annotation=kind,
            )
            for name, kind in options.items()
        ]
        every = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        every[-1:-1] = shared  # before --json
        run.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in every}
        return run

    return decorate


def _parameters(given: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Values of shared options as parameters of the library."""
    found = {name: given[name] for name in names if name in _SINGLE}
    if "columns" in names:
        found |= {name: given[name] or () for name in _SETS["columns"]} | {"positive": given["positive"]}
    if "audited" in found:
        found["audit_probability"] = found.pop("audited")
    if "groups" in found:
        found["groups"] = found["groups"] or ()
    if "review" in found:
        found["review"] = _two_prices(found["review"])
    if "prevalence" in found:
        found["prevalence"] = _class_shares(found["prevalence"])
    if "audited" in given and given.get("confidence") is not None:  # also of the bound on recall by audits
        found["confidence"] = given["confidence"]
        if given["audited"] is not None and given["recall"] is given["precision"] is None:
            given["confidence"] = None
    if {"price", "weighting"} & {*names}:
        found["weighting"] = _stated(given)
    if "weighting" in names:
        found["costs"] = given["costs"]
    if "read" in names:
        stated = {name: given[name] for name in _SETS["read"] if _is_stated(given[name])}
        import crcen

        found["read"] = crcen.ReadOptions(**stated) if stated else None
    return found


def _is_stated(value: object) -> bool:
    return value is not None and value is not False


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends in one line: here, since typer would answer first, and with another exit code."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("crcen: interrupted; nothing was written.", err=True)
        raise typer.Exit(130) from None


def show(result: Any, as_json: bool, *written: Path | str | None, details: bool = False) -> None:
    """Print a result, with its details if asked for; to standard error if standard output took a written file."""
    is_taken = any(path is not None and is_standard_output(path) for path in written)
    if as_json:
        print_json(result.to_dict(), err=is_taken)
    else:
        text = f"{result}\n\n{result.details()}" if details else str(result)
        typer.echo("\n".join(map(printable, text.split("\n"))), err=is_taken)


def is_watched() -> int:
    """1 if stderr is a terminal, for a progress bar."""
    return int(sys.stderr.isatty())


def made(kind: Callable[..., object], option: str, *values: object, **named: object) -> object:
    """A price or goal of an option; errors name the option instead of the class."""
    shown = " ".join([option, ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)])
    try:
        return typed(kind(*values, **named), shown)
    except InvalidParameter as error:
        raise InvalidParameter(str(error).replace(kind.__name__, option, 1)) from error


def share_of(text: str, option: str) -> float:
    """A share such as 1% or 0.01, from an option."""
    number = text.strip()
    try:
        found = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
    except ValueError:
        found = -1.0
    if not 0.0 <= found < 1.0:
        raise InvalidParameter(f"{option} must be a share such as 5% or 0.05: got {text!r}.")
    return found


def _stated(given: dict[str, Any]) -> Any:
    """The one price, goal or weighting that was stated, or None; "none" is the text, since labels are not known yet."""
    options = {
        f"--{name.replace('_', '-')}": value
        for name, value in given.items()
        if value is not None and value is not False
    }
    prices = [name for name in options if name[2:].replace("-", "_") in _SETS["price"]]
    goals = [name for name in options if name[2:] in _SETS["goal"]]
    if len(goals + prices) > 1:
        both = " and ".join(goals + prices)
        if goals:
            raise typer.BadParameter(f"{both} both say where alarms begin: give one of them.")
        raise typer.BadParameter(f"{', '.join(prices)} are names of one number: give one of them.")
    if "--confidence" in options and not {"--recall", "--precision"} & {*goals}:
        raise typer.BadParameter("--confidence must go with --recall or --precision, which it guarantees.")
    weighting = given.get("weighting")
    stated = [*["a price or goal"] * bool(prices or goals), *["--weighting"] * bool(weighting)]
    stated += ["--costs"] if given.get("costs") is not None else []
    if len(stated) > 1:
        raise typer.BadParameter(f"{' and '.join(stated)} both say what mistakes are worth: give one of them.")
    if weighting:
        return _weighting(weighting)
    if not prices and not goals:
        return None
    name = (prices or goals)[0]
    return _capacity(given["capacity"]) if name == "--capacity" else _price_or_goal(name, options[name], given)


def _price_or_goal(name: str, value: float, given: dict[str, Any]) -> Any:
    """The price or goal of an option."""
    if name == "--balanced":
        return "balanced"
    if name == "--lam" and not 0.0 < value < 1.0:
        others = f"--alpha {value:g} or --cost-ratio {value:g}" if value > 1.0 else "--lam 0.5"
        hint = "--lam 0.5 or --balanced" if value == 1.0 else others
        raise InvalidParameter(f"--lam must lie strictly between 0 and 1, got {value:g}: did you mean {hint}?")
    import crcen

    kinds = {"--budget": crcen.Budget, "--cost-ratio": crcen.CostRatio, "--alpha": crcen.Alpha, "--lam": crcen.Lam}
    if name in kinds:
        return made(kinds[name], name, value)
    goal = crcen.RecallAtLeast if name == "--recall" else crcen.PrecisionAtLeast
    return made(goal, name, value, confidence=given.get("confidence"))


def _capacity(text: str) -> Any:
    """A number of alarms in total, per day, per week or per number of rows."""
    import crcen

    number, _, per = text.replace(",", "").partition("/")
    period: str | int | None = per.strip() or None
    try:
        if period is not None and period not in ("day", "week"):
            period = int(period)
        alarms = int(number)
    except ValueError:
        raise typer.BadParameter(
            f"--capacity must be a number of alarms, such as 200, 20/day, 100/week or 5/1000: got {text!r}."
        ) from None
    return made(crcen.Capacity, "--capacity", alarms, per=period)


def _two_prices(text: str | None) -> Any:
    """The two prices of --review, or None."""
    if text is None:
        return None
    import crcen

    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--review must be two prices, such as 2,30: got {text!r}.") from None
    return made(crcen.Review, "--review", low, high)


def _class_shares(text: str | None) -> str | float | dict[str, float] | None:
    """The value of --prevalence: a share, "auto", a dict of shares, or None."""
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        return _by_class(text.split(","), "--prevalence must be a share, auto, or CLASS=SHARE,...", text)


def _weighting(texts: list[str]) -> str | dict[str, float]:
    """The value of --weighting: "balanced", "none", or class weights."""
    if len(texts) == 1 and texts[0].strip().lower() in ("balanced", "none"):
        return texts[0].strip().lower()
    parts = [one for text in texts for one in text.split(",")]
    allowed = "--weighting must be balanced, none, or CLASS=WEIGHT with commas between, such as fine=1,worn=5,broken=40"
    return _by_class(parts, allowed, ",".join(texts))


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
