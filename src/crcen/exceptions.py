"""Every error and warning that crcen raises on purpose.

::

    CrcenError
    ├── InvalidInput      (ValueError)     data that cannot be used: NaN, one class, lengths that differ
    ├── InvalidParameter  (ValueError)     a parameter or weighting that has no meaning
    ├── TrainingFailed    (RuntimeError)   no finite network is left
    ├── DeviceMissing     (RuntimeError)   the requested device is not available
    ├── DataUnavailable   (OSError)        a data set that is absent, truncated or altered
    └── MissingExtra      (ImportError)    an optional dependency that is not installed
"""

from collections.abc import Callable

__all__ = [
    "CrcenError",
    "DataUnavailable",
    "DeviceMissing",
    "InvalidInput",
    "InvalidParameter",
    "MissingExtra",
    "TrainingFailed",
]


class CrcenError(Exception):
    """Base of all errors; the command line prints these in one line and exits with 1, or 2 if an option is wrong.

    Parameters
    ----------
    *args
        The message: one sentence with what was received, what is allowed and what to try.
    parameter : str or tuple of str
        Parameters that the message names, as its first word, as ``name=`` or with their value as ``name=value``.
    """

    def __init__(self, *args: object, parameter: str | tuple[str, ...] = ()) -> None:
        super().__init__(*args)
        self.parameters = (parameter,) if isinstance(parameter, str) else parameter

    def spelt(self, name: Callable[[str], str]) -> str:
        """The message in one line, its parameters by another name, such as that of an option."""
        words = str(self).split()
        for place, word in enumerate(words):
            parameter, mark, value = word.partition("=")
            if parameter in self.parameters and (mark or place == 0):
                has_value = value[:1].isalnum() or value[:1] in {*"_/~'\""}
                words[place] = f"{name(parameter)}{' ' * has_value}{value}"
        return " ".join(words)


class InvalidInput(CrcenError, ValueError):
    """Data that cannot be used as given."""


class InvalidParameter(CrcenError, ValueError):
    """An invalid parameter or weighting."""


class TrainingFailed(CrcenError, RuntimeError):
    """No finite network is left after training."""


class DeviceMissing(CrcenError, RuntimeError):
    """The requested device is not available."""


class DataUnavailable(CrcenError, OSError):
    """A data set that is absent, truncated or altered."""


class MissingExtra(CrcenError, ImportError):
    """An optional dependency that is not installed."""
