"""The application that commands register with, its version option, and errors with options in place of parameters.

Only typer and rich are imported here; what a command needs is imported when it runs, so that help, version and usage
errors answer at once. Exit codes: 0 done, 1 refused with one sentence on standard error, 2 usage, 130 interrupted,
143 ended by SIGTERM.
"""

import gc
import json
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from crcen._support.text import printable
from crcen._version import __version__
from crcen.exceptions import CrcenError

# Parameters whose option has another name; others differ by dashes only.
_OPTIONS = {"audit_probability": "--audited", "n_resamples": "--resamples", "random_state": "--seed"}
# Prices and goals of this call: their representation → what was typed.
_TYPED: dict[str, str] = {}

app = typer.Typer(
    name="crcen",
    help="Rare-event classification: say what a miss is worth, get decisions at that price.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_json(value: object, *, err: bool = False) -> None:
    """Print a value of plain lists, dicts, numbers and strings; what a terminal would obey is escaped."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    escaped = (json.dumps(c)[1:-1] if not c.isprintable() and c != "\n" else c for c in text)
    typer.echo(text if text.replace("\n", "").isprintable() else "".join(escaped), err=err)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crcen {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def option_name(parameter: str) -> str:
    """The option of a parameter."""
    return _OPTIONS.get(parameter, f"--{parameter.replace('_', '-')}")


def typed(value: object, option: str) -> object:
    """Return a price or goal that was made of an option; error messages show the option."""
    _TYPED[repr(value)] = option
    return value


def in_options(error: Exception) -> str:
    """The message of an error in one line, with the options of those parameters that the error carries."""
    text = " ".join(str(error).split())
    for name in getattr(error, "parameters", ()):
        option = option_name(name)
        if text.startswith(f"{name} "):
            text = option + text.removeprefix(name)
        text = re.sub(rf"(?<![\w/.'\"-]){name}=(?=[\w/~'\"])", f"{option} ", text)
        text = re.sub(rf"(?<![\w/.'\"-]){name}=", option, text)
    for value, option in _TYPED.items():
        text = text.replace(value, option)
    return text


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Unwind on SIGTERM and on a closed terminal, so that unfinished files go; a second signal ends at once."""

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
    """Entry point: errors that crcen raises on purpose, and those of files and disks, become one line."""
    gc.set_threshold(50_000)  # by default a quarter of the time for a wide table
    try:
        with _orderly_end():
            app()
    except BrokenPipeError:  # the reader of our output has gone, as in `crcen methods | head`
        sys.stderr.close()
        sys.exit(0)
    except (CrcenError, OSError) as error:
        sys.stderr.write(f"crcen: {printable(in_options(error))}\n")
        sys.exit(1)
