"""Optional dependencies, asked for where they are needed."""

from importlib import import_module
from types import ModuleType

from crcen.exceptions import MissingExtra

__all__ = ["need"]


def need(module: str, extra: str, purpose: str = "") -> ModuleType:
    """Import an optional module; where it is missing the error names the extra that brings it, behind ``purpose``."""
    package = module.split(".")[0]
    before = purpose and f"{purpose}: "
    try:
        return import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or package).split(".")[0] == package:
            raise MissingExtra(
                f"{before}{package} is not installed; get it with: pip install 'crcen[{extra}]'"
            ) from error
        # It is there, and something that it needs is not, or is of another version.
        raise MissingExtra(
            f"{before}{package} is installed but cannot be imported ({error}); "
            f"mend it with: pip install -U 'crcen[{extra}]'"
        ) from error
