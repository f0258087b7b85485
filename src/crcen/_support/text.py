"""Text for people: lists, similar names, safe terminal output, pages inside notebooks."""

import difflib
from collections.abc import Iterable
from html import escape
from pathlib import Path

from crcen.exceptions import InvalidInput


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name most similar to a mistyped one, case-insensitive; None if none is similar."""
    found: dict[str, str] = {}
    for one in names:
        found.setdefault(one.casefold().strip(), one)
    near = difflib.get_close_matches(str(name).casefold().strip(), found, n=1)
    return found[near[0]] if near else None


def missing_columns(absent: list[str], n_needed: int, present: Iterable[str]) -> InvalidInput:
    """The error for a table without some training columns; names the most similar column of the table."""
    close = closest(absent[0], [str(name) for name in present])
    meant = f"; {absent[0]} may be called {close} there: use the column names of training." if close else "."
    return InvalidInput(
        f"the table lacks {len(absent)} of the {n_needed} columns that the model needs: {', '.join(absent)}{meant}"
    )


def listed(items: Iterable[object], most: int = 8, longest: int | None = None) -> str:
    """The first ``most`` items, comma-separated, and the number of the others; items over ``longest`` end in "…"."""
    texts = [str(item) for item in items]
    shown = [text if longest is None or len(text) <= longest else f"{text[:longest]}…" for text in texts[:most]]
    return ", ".join(shown) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def plural(number: float, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1.

    >>> plural(1, "row"), plural(2000, "row"), plural(0.5, "false alarm")
    ('1 row', '2,000 rows', '0.5 false alarms')
    """
    shown = f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"
    return f"{shown} {noun}" if shown == "1" else f"{shown} {noun}s"


def printable(text: str) -> str:
    r"""The text with control characters and direction marks replaced by question marks, whitespace by spaces.

    >>> printable("name\x1b[2J")
    'name?[2J'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)


def page_in_frame(path: Path) -> str:
    """HTML that shows one of our pages in a sandboxed frame of a notebook: its script runs without network access."""
    try:
        page = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return f"<p>{escape(str(path))} no longer exists.</p>"
    style = "width: 100%; height: 720px; border: 1px solid #d9dee4; border-radius: 8px"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'
