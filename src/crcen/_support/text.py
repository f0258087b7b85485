"""Text and plain values: lists, plurals, labels, JSON and attributes."""

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from html import escape
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from crcen.exceptions import InvalidInput


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name most similar to a mistyped one, case-insensitive; None if none is similar."""
    found: dict[str, str] = {}
    for one in names:
        found.setdefault(one.casefold().strip(), one)
    near = difflib.get_close_matches(str(name).casefold().strip(), found, n=1)
    return found[near[0]] if near else None


def reject_constant(name: str) -> None:
    """Reject NaN and infinities, as ``parse_constant`` of `json.loads`."""
    raise ValueError(f"{name} is not a JSON number; null is missing")


def missing_columns(
    absent: list[str], n_needed: int, others: Iterable[str], sheets: Sequence[str] = (), model: str = "the model"
) -> InvalidInput:
    """The error for a table without some training columns: names the most similar other one and ``sheets``."""
    close = closest(absent[0], map(str, others))
    meant = f"; {absent[0]} may be called {close} there: use the column names of training." if close else "."
    meant = f"; read another sheet ({listed(sheets)}) with sheet=." if sheets else meant
    lacks = f"the table lacks {len(absent)} of the {n_needed} columns that {model} needs: {', '.join(absent)}"
    return InvalidInput(lacks + meant, parameter="sheet")


def listed(items: Iterable[object], most: int = 8, longest: int | None = None) -> str:
    """The first ``most`` items, comma-separated, and the number of the others; items over ``longest`` end in "…"."""
    texts = [str(item) for item in items]
    shown = [text if longest is None or len(text) <= longest else f"{text[:longest]}…" for text in texts[:most]]
    return ", ".join(shown) + (f" and {len(texts) - most:,} more" if len(texts) > most else "")


def listed_counts(counts: Iterable[tuple[object, float]], most: int = 8) -> str:
    """Labels, each with its number of rows in brackets."""
    return listed((f"{label} ({count_text(number)})" for label, number in counts), most)


def count_text(number: float) -> str:
    """A count or a sum of weights: six digits, or all before the point.

    >>> count_text(2.5), count_text(1_234_567.0)
    ('2.5', '1,234,567')
    """
    return f"{number:,.6g}" if abs(number) < 999_999.5 else f"{number:,.0f}"


def plural(number: float, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1.

    >>> plural(1, "row"), plural(2000, "row"), plural(0.5, "false alarm")
    ('1 row', '2,000 rows', '0.5 false alarms')
    """
    shown = count_text(number)
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


# Plain values, ready for JSON.
Values: TypeAlias = dict[str, Any]


def json_value(value: Any, *, shorten: bool = False) -> Any:
    """Convert a value for JSON: NumPy to Python, NaN and infinities to None, dataclasses to dicts.

    With ``shorten``, whole numbers have no decimal point.

    >>> json_value({"a": (1.0, float("nan"))}), json_value(2.0, shorten=True)
    ({'a': [1.0, None]}, 2)
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): json_value(one, shorten=shorten) for name, one in value.items()}
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [json_value(one, shorten=shorten) for one in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if shorten and value.is_integer() and abs(value) < 2**53 else value
    return value


def attributes(result: object, names: str) -> dict[str, Any]:
    """Attributes of a result as plain values, by name; ``key=attribute`` (also ``a.b``) where the key differs.

    Examples
    --------
    >>> attributes(3 + 4j, "real im=imag")
    {'real': 3.0, 'im': 4.0}
    """

    def plain(value: Any) -> Any:
        if hasattr(value, "to_dict"):
            return value.to_dict()
        if isinstance(value, list | tuple):
            return [plain(one) for one in value]
        if isinstance(value, Mapping):
            return {str(name): plain(one) for name, one in value.items()}
        return str(value) if isinstance(value, PurePath) else json_value(value)

    pairs = (one.partition("=") for one in names.split())
    return {key: plain(attrgetter(name or key)(result)) for key, _, name in pairs}


def plain_label(cell: Any) -> Any:
    """A label as int if it is a whole number, also one written as text; bool and other text stay."""
    cell = cell.item() if hasattr(cell, "item") else cell  # of NumPy
    if isinstance(cell, bool):
        return cell
    if isinstance(cell, numbers.Integral):
        return int(cell)  # a float would be inexact above 2**53
    text = str(cell).strip()
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        return int(value) if (value := float(text)).is_integer() else text
    return text


def label_key(label: Any) -> str:
    """A key that is equal for all spellings of a label."""
    return str(plain_label(label)).casefold()


def plain_labels(cells: Iterable[Any]) -> dict[Any, Any]:
    """Cell → label, where the labels are all bool, all int, or all text."""
    found = {cell: plain_label(cell) for cell in cells}
    if {type(label) for label in found.values()} not in ({bool}, {int}):
        return {cell: str(label) for cell, label in found.items()}
    return found


def rest_of(positive: Any) -> str:
    """The label of all values but the positive one, if a target has more than two."""
    return f"not {positive}"
