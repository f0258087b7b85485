"""The name that was probably meant."""

import difflib
from collections.abc import Iterable

__all__ = ["closest"]


def closest(name: str, names: Iterable[str]) -> str | None:
    """The name closest to a mistyped one, first without regard to case; None if none is close."""
    found: dict[str, str] = {}
    for one in names:
        found.setdefault(one.casefold().strip(), one)
    near = difflib.get_close_matches(str(name).casefold().strip(), found, n=1)
    return found[near[0]] if near else None
