"""Text from outside, made fit for a terminal."""

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""The text with a question mark for each letter that a terminal would obey: controls and marks of direction.

    Examples
    --------
    >>> printable("name\x1b[2J")
    'name?[2J'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)
