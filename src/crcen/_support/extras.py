"""Optional packages and renamed parameters: errors that state what to install or write, and installed versions."""

from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module, metadata
from types import ModuleType
from typing import ParamSpec, TypeVar

from crcen.exceptions import InvalidParameter, MissingExtra

P = ParamSpec("P")
Result = TypeVar("Result")


def need(module: str, extra: str, purpose: str = "") -> ModuleType:
    """Import an optional module; if it is missing, the error names the extra to install, after ``purpose``."""
    package = module.split(".")[0]
    before = purpose and f"{purpose}: "
    try:
        return import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or package).split(".")[0] == package:
            raise MissingExtra(
                f"{before}{package} is not installed; get it with: pip install 'crcen[{extra}]'"
            ) from error
        raise MissingExtra(  # one of its dependencies is missing or too old
            f"{before}{package} is installed but cannot be imported ({error}); "
            f"repair it with: pip install -U 'crcen[{extra}]'"
        ) from error


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


def renamed(**names: str) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Decorate a function with earlier parameters: each raises an error with its new name, or a sentence if removed."""

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def wrapper(*args: P.args, **options: P.kwargs) -> Result:
            for old in names.keys() & options.keys():
                new = names[old]
                said = f"removed: {new}." if " " in new else f"renamed: use {new}={options[old]!r}."
                raise InvalidParameter(f"{old} was {said}", parameter=old)
            return function(*args, **options)

        return wrapper

    return decorate
