"""Error messages with the names of options in place of parameters of the library."""

import re

__all__ = ["in_options", "typed"]

# Parameters whose option has another name; others differ by dashes only.
_OPTIONS = {"audit_probability": "--audited", "n_resamples": "--resamples", "random_state": "--seed"}
# Prices and goals of this call: their representation → what was typed.
_TYPED: dict[str, str] = {}


def typed(value: object, option: str) -> object:
    """Return a price or goal that was made of an option; error messages show the option."""
    _TYPED[repr(value)] = option
    return value


def in_options(error: Exception) -> str:
    """The message of an error in one line, with the options of those parameters that the error carries."""
    text = " ".join(str(error).split())
    for name in getattr(error, "parameters", ()):
        option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if text.startswith(f"{name} "):
            text = option + text.removeprefix(name)
        text = re.sub(rf"(?<![\w/.'\"-]){name}=(?=[\w/~])", f"{option} ", text)
        text = re.sub(rf"(?<![\w/.'\"-]){name}=", option, text)
    for value, option in _TYPED.items():
        text = text.replace(value, option)
    return text
