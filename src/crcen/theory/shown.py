"""Results in a notebook: as they print themselves, escaped; and in one line where they stand in a list or a log."""

from html import escape

__all__ = ["Shown", "ShownInOneLine", "in_one_line"]

_LONGEST = 160


class Shown:
    """A result that a notebook shows as `print` does."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def in_one_line(result: object) -> str:
    """A result's name and the first line that it prints: for ``__repr__`` of what holds arrays or models."""
    first = next((line.strip() for line in str(result).splitlines() if line.strip()), "")
    first = first if len(first) <= _LONGEST else f"{first[: _LONGEST - 1]}…"
    return f"<{type(result).__name__}: {first}>"


class ShownInOneLine(Shown):
    """The same, with a representation of one line."""

    def __repr__(self) -> str:
        return in_one_line(self)
