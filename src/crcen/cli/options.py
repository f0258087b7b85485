"""What several commands share: options for tables and prices, the way out on Ctrl-C, printing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from crcen._support.files import is_standard_output
from crcen._support.text import printable
from crcen.cli.app import print_json
from crcen.cli.wording import typed
from crcen.exceptions import InvalidParameter

__all__ = [
    "Alpha",
    "Balanced",
    "Budget",
    "Data",
    "Lam",
    "Model",
    "Ratio",
    "Target",
    "interruptible",
    "is_watched",
    "made",
    "price",
    "show",
]

Data = Annotated[
    Path, typer.Argument(help="CSV, TSV or Parquet file, also with .gz or .zst; or Excel.", show_default=False)
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


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends in one line: here, since typer would answer first, and with another exit code."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("crcen: interrupted; nothing was written.", err=True)
        raise typer.Exit(130) from None


def show(result: Any, as_json: bool, *written: Path | None) -> None:
    """Print a result: to standard error where standard output took one of the files that were written."""
    is_taken = any(path is not None and is_standard_output(path) for path in written)
    if as_json:
        print_json(result.to_dict(), err=is_taken)
    else:
        typer.echo("\n".join(map(printable, str(result).split("\n"))), err=is_taken)


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
