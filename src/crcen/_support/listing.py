"""The first few of many things in a sentence, and how many are left out."""

from collections.abc import Iterable
from typing import Any

__all__ = ["listed"]


def listed(things: Iterable[Any], most: int = 8, longest: int | None = None) -> str:
    """A list with commas that says how many more there are.

    Parameters
    ----------
    things : iterable
        Anything with a text.
    most : int, default=8
        How many are named.
    longest : int, optional
        Characters of each; longer ones end in "…".
    """
    texts = [str(thing) for thing in things]
    shown = [text if longest is None or len(text) <= longest else f"{text[:longest]}…" for text in texts[:most]]
    return ", ".join(shown) + (f" and {len(texts) - most} more" if len(texts) > most else "")
