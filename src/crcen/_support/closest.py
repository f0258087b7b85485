"""The name that was probably meant."""

import difflib
from collections.abc import Iterable

from crcen.exceptions import InvalidInput

__all__ = ["closest", "lacking"]


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name closest to a mistyped one, first without regard to case; None if none is close."""
    found: dict[str, str] = {}
    for one in names:
        found.setdefault(one.casefold().strip(), one)
    near = difflib.get_close_matches(str(name).casefold().strip(), found, n=1)
    return found[near[0]] if near else None


def lacking(absent: list[str], n_needed: int, there: Iterable[str]) -> InvalidInput:
    """The refusal of a table without some columns of training, with the name that the first may go by there."""
    close = closest(absent[0], [str(name) for name in there])
    meant = f"; {absent[0]} may be called {close} there: give columns their names of training." if close else "."
    return InvalidInput(
        f"the table lacks {len(absent)} of the {n_needed} columns that the model needs: {', '.join(absent)}{meant}"
    )
