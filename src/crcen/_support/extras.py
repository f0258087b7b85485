"""Optional packages: errors that state what to install, and installed versions."""

from collections.abc import Iterable
from importlib import import_module, metadata
from types import ModuleType

from crcen.exceptions import MissingExtra


def need(module: str, extra: str, purpose: str = "") -> ModuleType:
    """Import an optional module; if it is missing, the error names the extra to install, after ``purpose``."""
    package = module.split(".")[0]
    before = purpose and f"{purpose}: "
    try:
        return import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or package).split(".")[0] == package:
            get = f"get it with: pip install 'crcen[{extra}]'"
            raise MissingExtra(f"{before}{package} is not installed; {get}") from error
        why = f"is installed but cannot be imported ({error})"  # one of its dependencies is missing or too old
        raise MissingExtra(f"{before}{package} {why}; repair it with: pip install -U 'crcen[{extra}]'") from error


def installed_version(package: str) -> str | None:
    """The version of a package by its name on PyPI; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    found = {package: installed_version(package) for package in packages}
    return {package: version for package, version in found.items() if version is not None}
