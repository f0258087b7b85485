"""Error messages with the names of options in place of parameters of the library."""

import re
from collections.abc import Collection

__all__ = ["in_options", "typed"]

# Parameters whose option has another name; others differ by dashes only.
_OPTIONS = {"audit_probability": "--audited", "n_resamples": "--resamples", "random_state": "--seed"}
# Prices and goals of this call: their representation → what was typed.
_TYPED: dict[str, str] = {}


def typed(value: object, option: str) -> object:
    """Return a price or goal that was made of an option; error messages show the option."""
    _TYPED[repr(value)] = option
    return value


def _option(name: str) -> str:
    return _OPTIONS.get(name, f"--{name.replace('_', '-')}")


def in_options(error: Exception, options: Collection[str] = ()) -> str:
    """The message of an error in one line, with options in place of parameters.

    These are the parameters that the error carries, and those of ``options`` that the message begins with, as in
    "time must be", or that it names, as in "use time=".
    """
    text = " ".join(str(error).split())
    named = [one[1] or one[2] for one in re.finditer(r"^(\w+) must\b|(?<![\w/.'\"-])(\w+)=", text)]
    named = [name for name in named if _option(name) in options]
    for name in dict.fromkeys([*getattr(error, "parameters", ()), *named]):
        if text.startswith(f"{name} "):
            text = _option(name) + text.removeprefix(name)
        text = re.sub(rf"(?<![\w/.'\"-]){name}=(?=[\w/~])", f"{_option(name)} ", text)
        text = re.sub(rf"(?<![\w/.'\"-]){name}=", _option(name), text)
    for value, option in _TYPED.items():
        text = text.replace(value, option)
    return text
