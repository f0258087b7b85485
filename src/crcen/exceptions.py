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
    """Base of all errors; the command line prints these in one line and exits with 1.

    Parameters
    ----------
    *args
        The message: one sentence with what was received, what is allowed and what to try.
    parameter : str or tuple of str
        Parameters that the message names, at its beginning or as ``name=``; the command line names options instead.
    """

    def __init__(self, *args: object, parameter: str | tuple[str, ...] = ()) -> None:
        super().__init__(*args)
        self.parameters = (parameter,) if isinstance(parameter, str) else parameter


class InvalidInput(CrcenError, ValueError):
    """Data that cannot be used as given."""


class InvalidParameter(CrcenError, ValueError):
    """A parameter or weighting that has no meaning."""


class TrainingFailed(CrcenError, RuntimeError):
    """No finite network is left after training."""


class DeviceMissing(CrcenError, RuntimeError):
    """The requested device is not available."""


class DataUnavailable(CrcenError, OSError):
    """A data set that is absent, truncated or altered."""


class MissingExtra(CrcenError, ImportError):
    """An optional dependency that is not installed."""
