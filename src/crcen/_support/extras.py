"""Optional dependencies, asked for where they are needed."""

from importlib import import_module
from types import ModuleType

from crcen.exceptions import MissingExtra

__all__ = ["need"]


def need(module: str, extra: str) -> ModuleType:
    """Import an optional module; where it is missing the error names the extra that brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise MissingExtra(f"{package} is not installed; get it with: pip install 'crcen[{extra}]'") from error
