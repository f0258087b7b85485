"""Commands as tables of options: shared options, how their values become parameters of the library, and printing."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from crcen._support.files import is_standard_output
from crcen._support.text import printable
from crcen.cli.app import app, print_json
from crcen.cli.wording import typed
from crcen.exceptions import InvalidParameter

__all__ = ["Listing", "add_command", "argument", "choice", "library", "option", "renamed", "share_of"]

Named = Callable[[str], inspect.Parameter]
# Parameters of files that a command writes.
_WRITTEN = ("out", "onnx", "report", "state", "page", "json_out")


@dataclass(frozen=True)
class Listing:
    """A result of plain values and lines of text."""

    values: Any
    lines: list[str]

    def to_dict(self) -> Any:
        """Plain values, ready for JSON."""
        return self.values

    def __str__(self) -> str:
        return "\n".join(self.lines)


def _parameter(name: str, kind: Any, default: Any, about: Any) -> inspect.Parameter:
    annotation: Any = Annotated[kind | None if default is None else kind, about]
    value = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)


def option(kind: Any, help: str, *names: str, default: Any = None, panel: str | None = None, **how: Any) -> Named:
    """An option; its parameter is the key of the table that it is in, and its name too unless names are given."""
    empty: Any = {bool: False, list[str]: []}

    def named(name: str) -> inspect.Parameter:
        flags = names or ((f"--{name.replace('_', '-')}",) if kind is bool else ())
        about = typer.Option(*flags, help=help, rich_help_panel=panel, **how)
        return _parameter(name, kind, empty.get(kind, default) if default is None else default, about)

    return named


def argument(kind: Any, help: str, metavar: str | None = None, default: Any = ..., **how: Any) -> Named:
    """A positional argument."""
    return lambda name: _parameter(name, kind, default, typer.Argument(help=help, metavar=metavar, **how))


def choice(*values: str) -> Any:
    """The type of an option with these values."""
    kind: Any = StrEnum
    return kind("Choice", {value: value for value in values})


def renamed(old: str, new: str) -> Named:
    """A hidden option that was renamed: the error names the new one."""

    def reject(value: str | None) -> None:
        if value is not None:
            raise typer.BadParameter(f"it was renamed: use {new} {value}.")

    return option(str, "", old, hidden=True, callback=reject)


_CAPACITY = "So many alarms: 200 of these rows, 20/day, 100/week, or 5/1000 rows."
_WEIGHTS = "balanced, none, or what a mistake on each class is worth: fine=1,worn=5,broken=40; may be repeated."
_COSTS = (
    "Table of costs, .csv or .xlsx: a row for each true class, a column for each decision; other columns, such as "
    "review, are actions."
)
_DATA = (
    "Text, Parquet or Excel file, or several; a folder, pattern or URL; or a database, such as "
    "postgresql://host/name or sqlite:///file.db."
)
_SHARES = "Share of positives here if it differs from training, auto to estimate it, or CLASS=SHARE,..."
_MISSING = "-200,999 or COLUMN=-1"
_price, _goal, _reading, _by_classes = (
    partial(option, panel=panel) for panel in ("Price", "Instead of a price", "Reading the table", "Several classes")
)
# Sets of options that commands share.
_SETS: dict[str, dict[str, Named]] = {
    # A price of two classes.
    "price": {
        "budget": _price(float, "False alarms that one more catch may cost."),
        "cost_ratio": _price(float, "What a miss costs, in false alarms: the same number."),
        "alpha": _price(float, "Cost ratio over negatives per positive; 1 is balanced."),
        "lam": _price(float, "Weight of a positive row, between 0 and 1."),
        "balanced": _price(bool, "Both classes weigh the same."),
    },
    # A goal of two classes, and its guarantee.
    "goal": {
        "capacity": _goal(str, _CAPACITY, "--capacity", "--top", metavar="N[/day]"),
        "recall": _goal(float, "Find at least this share of the positives, such as 0.9."),
        "precision": _goal(float, "At least this share of alarms right, such as 0.5."),
    },
    "guarantee": {"confidence": _goal(float, "Guarantee --recall or --precision with this probability.")},
    "weighting": {"weighting": _by_classes(list[str], _WEIGHTS), "costs": _by_classes(Path, _COSTS)},
    "columns": {
        "positive": option(str, "The value to find: default the rarer one of two, and every class of more."),
        "drop": option(list[str], "Column to leave out; may be repeated."),
        "keep": option(list[str], "Column to use although it looks like an identifier."),
        "categorical": option(list[str], "Column of categories although it holds numbers; may be repeated."),
    },
    # The fields of `crcen.ReadOptions`.
    "read": {
        "query": _reading(str, "Query that gives the table, of a database.", metavar="SQL"),
        "table": _reading(str, "Table to read, of a database.", metavar="NAME"),
        "sheet": _reading(str, "Sheet of a workbook, by name or number; default the first visible one."),
        "skip_rows": _reading(int, "Rows above the column names; default detected."),
        "separator": _reading(str, "Between values: a character, tab, space or fixed; default detected."),
        "encoding": _reading(str, "Of a text file, such as windows-1252; default detected."),
        "decimal": _reading(str, "Decimal mark, a point or a comma; default detected."),
        "quote": _reading(str, 'Quotation mark, or none; default ".'),
        "missing": _reading(list[str], "Values that stand for a missing cell; may be repeated.", metavar=_MISSING),
        "dates": _reading(str, "Order of dates such as 3/4/2024.", metavar="day-first|month-first"),
        "rename_duplicates": _reading(bool, "Rename duplicate columns, x to x_2."),
    },
}
# Single parameters that commands share.
_SINGLE: dict[str, Named] = {
    "model": argument(Path, "File that `crcen fit` wrote."),
    "data": argument(list[str], _DATA, "DATA"),
    "random_state": option(int, "Seed of everything that is random.", "--seed", default=0, min=0, max=2**32 - 1),
    "audit_rule": option(
        choice("neyman", "uniform"),
        "uniform: equal probabilities; neyman: larger where a label says more.",
        default="neyman",
    ),
    "target": option(str, "Column with the label; default that of training."),
    "review": _price(str, "Two prices, such as 2,30: rows between them go to review.", metavar="LOW,HIGH"),
    "cost_column": _price(str, "Column with what a miss of that row costs."),
    "alarm_cost": _price(float, "What a false alarm costs, in the unit of --cost-column."),
    "prevalence": option(str, _SHARES, metavar="SHARE|auto"),
    "weight": option(str, "Column that says how much each row counts, as survey weights do."),
    "clusters": option(str, "Column of rows that belong together, such as a patient: tests allow for it."),
    "audit_probability": option(
        str, "Column with the probability of a row to get a label; others are unlabelled.", "--audited"
    ),
    "groups": option(list[str], "Column whose values are groups to compare; may be repeated."),
}


def add_command(
    name: str,
    about: str,
    function: str | Callable[..., Any],
    parameters: Mapping[str, Named],
    shared: str = "",
    *,
    examples: tuple[str, ...] = (),
    panel: str | None = None,
    has_json: bool = True,
    exit_code: Callable[[Any], int] = lambda result: 0,
    interrupted: str = "nothing was written",
) -> None:
    """Register a command.

    Parameters
    ----------
    name, about : str
        The command and its help.
    function : str or callable
        What it calls: a function of `crcen` by name, or one that takes the parameters and returns a result to print.
    parameters : mapping of str to option or argument
        Its own parameters.
    shared : str
        Shared parameters, or sets of them. The function gets parameters of the library: ``read`` of "read";
        ``weighting`` of "price", "goal", "guarantee" and "weighting", which also gives ``costs``.
    examples : tuple of str
        Shown below the help, without the name of the program.
    panel : str, optional
        Of the list of commands.
    has_json : bool
        Whether --json prints the result as JSON.
    exit_code : callable
        Exit code of a result.
    interrupted : str
        What is said after Ctrl-C.
    """
    sets = shared.split()
    options = {key: make for one in sets for key, make in (_SETS.get(one) or {one: _SINGLE[one]}).items()}
    signature = [make(key) for key, make in ({**parameters} | options).items()]
    signature.sort(key=lambda one: isinstance(one.annotation.__metadata__[0], typer.models.OptionInfo))
    if has_json:
        signature.append(option(bool, "Print JSON instead of text.", "--json")("as_json"))

    def run(**given: Any) -> None:
        if given.get("details") and given["as_json"]:
            raise typer.BadParameter("--json has all details: leave out --details.")
        given = {key: value.value if isinstance(value, StrEnum) else value for key, value in given.items()}
        if isinstance(given.get("data"), list) and len(given["data"]) == 1:
            given["data"] = given["data"][0]
        own = {key: given[key] for key in parameters if not key.startswith("old_")}
        try:
            call = library(function) if isinstance(function, str) else function
            result = call(**own, **_parameters({key: given[key] for key in options}, sets))
        except KeyboardInterrupt:  # here, since typer would answer first, and with another exit code
            typer.echo(f"crcen: interrupted; {interrupted}.", err=True)
            raise typer.Exit(130) from None
        if result is not None:
            _show(result, given["as_json"], [given[key] for key in _WRITTEN if key in given], given.get("details"))
            raise typer.Exit(exit_code(result))

    run.__doc__ = about
    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in signature}
    shown = "   |   ".join(f"crcen {one}" for one in examples)
    app.command(name, rich_help_panel=panel, epilog=f"Example{'s' * (len(examples) > 1)}:  {shown}")(run)


def library(name: str) -> Callable[..., Any]:
    """A function of the library, with a progress bar if stderr is a terminal."""
    import crcen

    function = getattr(crcen, name)
    has_progress = "verbose" in inspect.signature(function).parameters
    return partial(function, verbose=int(sys.stderr.isatty())) if has_progress else function


def _parameters(given: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Values of shared options as parameters of the library."""
    columns = _SETS["columns"] if "columns" in names else ()
    found = {name: given[name] for name in [*names, *columns] if name in given and name != "weighting"}
    if "review" in found:
        found["review"] = _two_prices(found["review"])
    if "prevalence" in found:
        found["prevalence"] = _class_shares(found["prevalence"])
    if "audit_probability" in given and given.get("confidence") is not None:  # also of the bound on recall by audits
        found["confidence"] = given["confidence"]
        if given["audit_probability"] is not None and given["recall"] is given["precision"] is None:
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
    return value is not None and value is not False and value != []


def _show(result: Any, as_json: bool, written: list[Path | str | None], details: bool | None) -> None:
    """Print a result, with its details if asked for; to standard error if standard output took a written file."""
    is_taken = any(path is not None and is_standard_output(path) for path in written)
    if as_json:
        print_json(result.to_dict(), err=is_taken)
    else:
        text = f"{result}\n\n{result.details()}" if details else str(result)
        typer.echo("\n".join(map(printable, text.split("\n"))), err=is_taken)


def _made(kind: Callable[..., object], option: str, *values: object, **named: object) -> object:
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
    options = {f"--{name.replace('_', '-')}": value for name, value in given.items() if _is_stated(value)}
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
        return _made(kinds[name], name, value)
    goal = crcen.RecallAtLeast if name == "--recall" else crcen.PrecisionAtLeast
    return _made(goal, name, value, confidence=given.get("confidence"))


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
    return _made(crcen.Capacity, "--capacity", alarms, per=period)


def _two_prices(text: str | None) -> Any:
    """The two prices of --review, or None."""
    if text is None:
        return None
    import crcen

    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--review must be two prices, such as 2,30: got {text!r}.") from None
    return _made(crcen.Review, "--review", low, high)


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
