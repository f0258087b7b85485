"""Versions of what is installed."""

from collections.abc import Iterable
from importlib import metadata

__all__ = ["installed_version", "installed_versions"]


def installed_version(package: str) -> str | None:
    """The version of a package by its name on PyPI, or None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those that are installed."""
    found = {package: installed_version(package) for package in packages}
    return {package: version for package, version in found.items() if version is not None}
