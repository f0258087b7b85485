"""The command-line application: options, their conversion to parameters, printing, and errors.

Only typer, rich and the list of goals are imported here. Other modules are imported when a command runs, so that help,
version and usage errors are fast. Exit codes: 0 success, 1 error in files or data (a message on standard error), 2 an
invalid option (`InvalidParameter`), 130 interrupted, 143 ended by SIGTERM.
"""

import gc
import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Protocol, TypeAlias

import typer
from typer.core import TyperCommand

from crcen._support.files import is_standard_output
from crcen._support.text import printable
from crcen._version import __version__
from crcen.exceptions import CrcenError, InvalidParameter
from crcen.theory.goals import GOALS, Goal, Review

Named: TypeAlias = Callable[[str], inspect.Parameter]
Kind: TypeAlias = Any  # the type of an option, also ``list[str]``
Given: TypeAlias = dict[str, Any]  # values of options, by parameter

# Parameters of files that a command writes.
_WRITTEN = ("out", "onnx", "report", "state", "page", "json_out")
# Parameters whose option has another name; others differ by dashes only.
_OPTIONS = {"audit_probability": "--audited", "n_resamples": "--resamples", "random_state": "--seed"}
# Options of this call: the representation of a value → its text on the command line.
_TYPED: dict[str, str] = {}

app = typer.Typer(
    name="crcen",
    help="Decisions about rare events: state what a miss is worth, get decisions at that price.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_json(value: object, *, err: bool = False) -> None:
    """Print a value of plain lists, dicts, numbers and strings; control characters are escaped."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    escaped = (json.dumps(c)[1:-1] if not c.isprintable() and c != "\n" else c for c in text)
    typer.echo(text if text.replace("\n", "").isprintable() else "".join(escaped), err=err)


class _Command(TyperCommand):
    """A command whose error for an unknown option names the commands that have it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Values of the options, as typer parses them; of several names of an option, errors state the one typed."""
        stated = {arg.partition("=")[0] for arg in args}
        for one in self.params:
            if len(one.opts) > 1:
                _OPTIONS[one.name] = next((name for name in one.opts if name in stated), one.opts[0])
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            unknown, every = getattr(error, "option_name", None), ctx.parent.command.commands.items()
            having = [name for name, one in every if any(unknown in each.opts for each in one.params)]
            if having and self.name not in having:
                message = f"{self.name} has no {unknown}: it is an option of {', '.join(having)}."
                error.__dict__.update(message=message, possibilities=None)
            raise


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crcen {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def option_name(parameter: str) -> str:
    """The option of a parameter."""
    return _OPTIONS.get(parameter, f"--{parameter.replace('_', '-')}")


def typed(value: object, option: str) -> object:
    """Return the value of an option and remember its text, so that error messages can show it."""
    _TYPED[value if isinstance(value, str) else repr(value)] = option
    return value


def in_options(error: Exception) -> str:
    """The message of an error in one line, with option names instead of parameter names."""
    text = error.spelt(option_name) if isinstance(error, CrcenError) else " ".join(str(error).split())
    for value, option in _TYPED.items():
        text = text.replace(value, option)
    return text


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Exit cleanly on SIGTERM and SIGHUP, so that unfinished files are removed; a second signal exits at once."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        sys.exit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup has SIG_IGN
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run() -> None:
    """Entry point: print errors of crcen and of the operating system as one line."""
    gc.set_threshold(50_000)  # by default a quarter of the time for a wide table
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # products are small, and waiting threads occupy their cores
    try:
        with _orderly_end():
            app()
    except BrokenPipeError:  # the output is no longer read, as in `crcen methods | head`
        sys.stderr.close()
        sys.exit(0)
    except (CrcenError, OSError) as error:
        sys.stderr.write(f"crcen: {printable(in_options(error))}\n")
        sys.exit(2 if isinstance(error, InvalidParameter) else 1)


class Result(Protocol):
    """The result of a command; ``str`` gives its text."""

    def to_dict(self) -> object:
        """Plain values, ready for JSON."""


@dataclass(frozen=True)
class Listing:
    """A result of plain values and lines of text."""

    values: object
    lines: list[str]

    def to_dict(self) -> object:
        """Plain values, ready for JSON."""
        return self.values

    def __str__(self) -> str:
        return "\n".join(self.lines)


def _parameter(name: str, kind: Kind, default: object, about: Any) -> inspect.Parameter:
    if isinstance(kind, tuple):  # of the values that may be chosen
        values, kind = kind, str
        about.metavar, about.parser = f"<{'|'.join(values)}>", lambda text: _one_of(values, text)
    annotation: Kind = Annotated[kind | None if default is None else kind, about]
    value = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)


def option(kind: Kind, help: str, *names: str, default: object = None, panel: str | None = None, **how: Any) -> Named:
    """An option; its key in the table is the parameter and, unless names are given, the name of the option."""
    if kind in (int, float):
        least, most = how.pop("min", None), how.pop("max", None)
        within = "" if least is None else f" of at least {least}" if most is None else f" from {least} to {most}"
        how["metavar"] = how.get("metavar") or f"<{kind.__name__}{within}>"
        how["parser"] = lambda text: _number(kind, least, most, within, text)  # which has a name, unlike a partial

    def named(name: str) -> inspect.Parameter:
        flags = names or ((option_name(name),) if kind is bool else ())
        empty: object = False if kind is bool else [] if kind == list[str] else None
        about = typer.Option(*flags, help=help, rich_help_panel=panel, readable=False, **how)  # the library checks it
        return _parameter(name, kind, empty if default is None else default, about)

    return named


def _number(kind: type[float], least: float | None, most: float | None, within: str, text: str) -> float:
    """The number that was typed; typer's own errors repeat neither that nor, in one sentence, what is allowed."""
    with suppress(ValueError):
        found = kind(text)
        if (least is None or found >= least) and (most is None or found <= most):
            return found
    raise typer.BadParameter(f"must be a {'whole ' * (kind is int)}number{within}: got {text!r}.")


def argument(kind: Kind, help: str, metavar: str | None = None, default: object = ...) -> Named:
    """A positional argument."""
    return lambda name: _parameter(name, kind, default, typer.Argument(help=help, metavar=metavar, readable=False))


def _one_of(values: tuple[str, ...], text: str) -> str:
    if text in values:
        return text
    raise typer.BadParameter(f"must be one of {', '.join(values)}: got {text!r}.")


def share(text: str) -> float:
    """A share such as 1% or 0.01."""
    number = text.strip()
    with suppress(ValueError):
        found = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
        if 0.0 <= found < 1.0:
            return found
    raise typer.BadParameter(f"must be a share such as 5% or 0.05: got {text!r}.")


def _prevalence(text: str) -> str | float | dict[str, float]:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        return _by_class([text], "must be a share, auto, or CLASS=SHARE,...")


def _by_class(texts: list[str], allowed: str) -> dict[str, float]:
    parts = [part.rpartition("=") for part in ",".join(texts).split(",")]
    with suppress(ValueError):
        found = {label.strip(): float(number) for label, _, number in parts}
        if "" not in found:
            return found
    raise typer.BadParameter(f"{allowed}: got {','.join(texts)!r}.")


_WEIGHTS = "balanced, none, or the cost of an error on each class: fine=1,worn=5,broken=40; may be repeated."
_COSTS = "Cost matrix: one row per true class, one column per decision; other columns are actions."
_DATA = "Text, Parquet or Excel files; a folder, pattern or URL; or a database, such as sqlite:///file.db."
_RULES = "uniform: equal probabilities; neyman: larger for more informative rows."
_SHARES = "Share of positives here if it differs from training, auto to estimate it, or CLASS=SHARE,..."
_MISSING = "-200,999 or COLUMN=-1"
_price, _goal, _reading, _by_classes = (
    partial(option, panel=panel) for panel in ("Price", "Instead of a price", "Reading the table", "Several classes")
)


def _goal_option(kind: type[Goal], panel: str) -> Named:
    how = kind.statement
    return option(how.kind, how.help, *how.flags, panel=panel, metavar=how.metavar)


# Goals that --confidence can guarantee.
_GUARANTEED = [name for name, kind in GOALS.items() if kind.statement.can_be_guaranteed]
_GUARANTEE = " or ".join(map(option_name, _GUARANTEED))
# Sets of options that several commands use.
_SETS: dict[str, dict[str, Named]] = {
    # A price of two classes.
    "price": {
        "budget": _price(float, "The most false alarms that one more catch may cost."),
        "cost_ratio": _price(float, "Cost of a miss in false alarms, the same number as --budget."),
        "alpha": _price(float, "Cost ratio divided by the negatives per positive; 1 is balanced."),
        "lam": _price(float, "Weight of a positive row, between 0 and 1."),
        "balanced": _price(bool, "Equal total weight of both classes."),
    },
    # A goal of two classes, and its guarantee.
    "goal": {name: _goal_option(kind, "Instead of a price") for name, kind in GOALS.items()},
    "guarantee": {"confidence": _goal(float, f"Guarantee {_GUARANTEE} with this probability.")},
    "weighting": {"weighting": _by_classes(list[str], _WEIGHTS), "costs": _by_classes(Path, _COSTS)},
    "columns": {
        "positive": option(str, "The positive value; default: the rarer of two, none of more."),
        "drop": option(list[str], "Column to leave out; may be repeated."),
        "keep": option(list[str], "Column to use although it looks like an identifier."),
        "categorical": option(list[str], "Column of numbers to use as categories; may be repeated."),
    },
    # The fields of `crcen.ReadOptions`.
    "read": {
        "query": _reading(str, "Query of a database.", metavar="SQL"),
        "table": _reading(str, "Table of a database.", metavar="NAME"),
        "sheet": _reading(str, "Sheet of a workbook, by name or number; default: the first visible one."),
        "skip_rows": _reading(int, "Rows above the column names; default: detected."),
        "separator": _reading(str, "Separator: a character, tab, space or fixed; default: detected."),
        "encoding": _reading(str, "Encoding of a text file, such as windows-1252; default: detected."),
        "decimal": _reading(str, "Decimal mark, a point or a comma; default: detected."),
        "quote": _reading(str, 'Quotation mark, or none; default: ".'),
        "missing": _reading(list[str], "Values that stand for a missing cell; may be repeated.", metavar=_MISSING),
        "dates": _reading(str, "Order of dates such as 3/4/2024.", metavar="day-first|month-first"),
        "rename_duplicates": _reading(bool, "Rename duplicate columns, x to x_2."),
    },
}
# Prices of one number.
_PRICES = {"budget": "Budget", "cost_ratio": "CostRatio", "alpha": "Alpha", "lam": "Lam"}
# Single parameters that commands share.
_SINGLE: dict[str, Named] = {
    "model": argument(Path, "Model file of `crcen fit`."),
    "data": argument(list[str], _DATA, "DATA"),
    "random_state": option(int, "Random seed.", "--seed", default=0, min=0, max=2**32 - 1),
    "audit_rule": option(("neyman", "uniform"), _RULES, default="neyman"),
    "target": option(str, "Column with the label; default: that of training."),
    "review": _goal_option(Review, "Price"),
    "cost_column": _price(str, "Column with the cost of a miss of each row."),
    "alarm_cost": _price(float, "Cost of a false alarm, in the unit of --cost-column; 1 by default."),
    "prevalence": option(str, _SHARES, metavar="SHARE|auto", parser=_prevalence),
    "weight": option(str, "Column of sample weights, such as survey weights."),
    "clusters": option(str, "Column whose equal values are dependent rows, such as a patient; tests account for it."),
    "audit_probability": option(str, "Column with the probability that a row was selected for a label.", "--audited"),
    "groups": option(list[str], "Column whose values define the groups to compare; may be repeated."),
}


def add_command(
    examples: str,
    about: str,
    function: str | Callable[..., Result | None],
    parameters: Mapping[str, Named],
    shared: str = "",
    *,
    panel: str | None = None,
    has_json: bool = True,
    exit_code: Callable[[Any], int] = lambda result: 0,
    interrupted: str = "no result was written",
) -> None:
    """Register a command that calls ``function`` (see `library`) and prints its result.

    ``examples`` are separated by " | " and begin with the name of the command. ``shared`` names shared parameters, or
    sets of them: "read" gives ``read``; "price", "goal", "guarantee" and "weighting" give ``weighting``, the last one
    also ``costs``. ``interrupted`` is printed after Ctrl-C.
    """
    sets = shared.split()
    options = {key: make for one in sets for key, make in (_SETS.get(one) or {one: _SINGLE[one]}).items()}
    signature = [make(key) for key, make in ({**parameters} | options).items()]
    signature.sort(key=lambda one: isinstance(one.annotation.__metadata__[0], typer.models.OptionInfo))
    if has_json:
        signature.append(option(bool, "Print JSON instead of text.", "--json")("as_json"))

    def run(**given: Any) -> None:
        if given.get("details") and given["as_json"]:
            raise typer.BadParameter("--json contains all details: leave out --details.")
        if isinstance(given.get("data"), list) and len(given["data"]) == 1:
            given["data"] = given["data"][0]
        own = {key: given[key] for key in parameters if not key.startswith("old_")}
        try:
            call = library(function) if isinstance(function, str) else function
            result = call(**own, **_parameters({key: given[key] for key in options}, sets))
        except KeyboardInterrupt:  # otherwise typer would handle it, with another exit code
            typer.echo(f"crcen: interrupted; {interrupted}.", err=True)
            raise typer.Exit(130) from None
        if result is None:
            return
        # Print to standard error if a file was written to standard output.
        is_taken = any(given.get(key) is not None and is_standard_output(given[key]) for key in _WRITTEN)
        if given["as_json"]:
            print_json(result.to_dict(), err=is_taken)
        else:
            text = f"{result}\n\n{result.details()}" if given.get("details") else str(result)  # type: ignore[attr-defined]
            typer.echo("\n".join(map(printable, text.split("\n"))), err=is_taken)
        raise typer.Exit(exit_code(result))

    run.__doc__ = about
    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in signature}
    each = [f"crcen {one}" for one in examples.split(" | ")]
    epilog = f"Example{'s' * (len(each) > 1)}:  {'   |   '.join(each)}"
    app.command(examples.split()[0], cls=_Command, rich_help_panel=panel, epilog=epilog)(run)


def library(name: str) -> Callable[..., Result]:
    """A function of `crcen` or of its modules (``commands.demo.demo``); it shows progress if stderr is a terminal."""
    module, _, short = f"crcen.{name}".rpartition(".")
    function = getattr(import_module(module), short)
    has_progress = "verbose" in inspect.signature(function).parameters
    return partial(function, verbose=int(sys.stderr.isatty())) if has_progress else function


def is_stated(value: object) -> bool:
    """Whether an option was given."""
    return value is not None and value is not False and value != []


def _parameters(given: Given, names: list[str]) -> Given:
    columns = _SETS["columns"] if "columns" in names else ()
    found = {name: given[name] for name in [*names, *columns] if name in given and name != "weighting"}
    if found.get("review") is not None:
        found["review"] = _stated_goal(Review, found["review"])
    if "audit_probability" in given and given.get("confidence") is not None:  # also of the bound on recall by audits
        found["confidence"] = given["confidence"]
        if given["audit_probability"] is not None and all(given[name] is None for name in _GUARANTEED):
            given["confidence"] = None
    if {"price", "weighting"} & {*names}:
        found["weighting"] = _stated_weighting(given)
    if "weighting" in names:
        found["costs"] = given["costs"]
    if "read" in names:
        stated = {name: given[name] for name in _SETS["read"] if is_stated(given[name])}
        import crcen

        found["read"] = crcen.ReadOptions(**stated) if stated else None
    return found


def _stated_weighting(given: Given) -> object:
    """The stated price, goal or weighting, or None; "none" stays text, since labels are not known yet."""
    prices, goals, by_class = (
        [name for name in _SETS[one] if is_stated(given.get(name))] for one in ("price", "goal", "weighting")
    )
    stated = [option_name(name) for name in (*goals, *prices, *by_class)]
    if len(stated) > 1:
        raise typer.BadParameter(f"{' and '.join(stated)} both state the price: give one of them.")
    named = {name: given[name] for name in ("confidence",) if given.get(name) is not None}
    if named and not {*_GUARANTEED} & {*goals}:
        raise typer.BadParameter(f"--confidence must go with {_GUARANTEE}.")
    if given.get("weighting"):
        texts, allowed = given["weighting"], "balanced, none, or CLASS=WEIGHT,... such as fine=1,worn=5,broken=40"
        is_word = len(texts) == 1 and texts[0].strip().lower() in ("balanced", "none")
        return texts[0].strip().lower() if is_word else _by_class(texts, f"--weighting must be {allowed}")
    if not prices and not goals:
        return None
    (name,) = (*prices, *goals)
    value = given[name]
    if name == "balanced":
        return "balanced"
    if goals:
        return _stated_goal(GOALS[name], value, **named)
    if name == "lam" and not 0.0 < value < 1.0:
        hint = f"--alpha {value:g} or --cost-ratio {value:g}" if value > 1.0 else "--lam 0.5 or --balanced"
        raise InvalidParameter(f"--lam must lie strictly between 0 and 1, got {value:g}: did you mean {hint}?")
    import crcen

    return _made(partial(getattr(crcen, _PRICES[name]), value), _PRICES[name], f"{option_name(name)} {value:g}")


def _stated_goal(kind: type[Goal], value: float | str, **named: object) -> object:
    try:
        values = kind.parse(value) if isinstance(value, str) else (value,)
    except InvalidParameter as error:
        raise typer.BadParameter(in_options(error)) from None
    shown = value if isinstance(value, str) else f"{value:g}"
    return _made(partial(kind, *values, **named), kind.__name__, f"{option_name(kind.name)} {shown}")


def _made(make: Callable[[], object], kind: str, option: str) -> object:
    """A price or goal from an option; errors name the option instead of the class."""
    try:
        return typed(make(), option)
    except InvalidParameter as error:
        raise InvalidParameter(str(error).replace(kind, option.split()[0], 1)) from error
