"""Results of commands: an object whose text is ``str`` and whose plain values are ``to_dict``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from crcen._support.values import Values, attributes
from crcen.theory.rows import ShownInOneLine


class Result(ShownInOneLine):
    """A result whose ``keys`` name its plain values, as `attributes` takes them."""

    keys: ClassVar[str]

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        return attributes(self, self.keys)


def note_lines(notes: Iterable[str]) -> list[str]:
    """Notes as lines of text."""
    return [f"Note: {note}." for note in notes]
