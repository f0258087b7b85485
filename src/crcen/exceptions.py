"""Every error and warning that crcen raises on purpose.

::

    CrcenError
    ├── InvalidInput      (ValueError)     data that cannot be used: NaN, one class, lengths that differ
    ├── InvalidParameter  (ValueError)     a parameter or weighting that has no meaning
    ├── TrainingFailed    (RuntimeError)   no finite network is left
    ├── DeviceMissing     (RuntimeError)   a device was asked for that is not there
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
    """Base of all errors; the command line prints these in one line and exits with 1."""


class InvalidInput(CrcenError, ValueError):
    """Data that cannot be used as given."""


class InvalidParameter(CrcenError, ValueError):
    """A parameter or weighting that has no meaning."""


class TrainingFailed(CrcenError, RuntimeError):
    """No finite network is left after training."""


class DeviceMissing(CrcenError, RuntimeError):
    """A device was asked for that is not there."""


class DataUnavailable(CrcenError, OSError):
    """A data set that is absent, truncated or altered."""


class MissingExtra(CrcenError, ImportError):
    """An optional dependency that is not installed."""
