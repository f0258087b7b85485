"""What a benchmark runs: the packaged settings, the two halves of the sets, and a person's choice of sets."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import crcen

__all__ = ["HALVES", "all_sets", "choose_sets", "half_of", "packaged_settings"]

HALVES = ("development", "confirmation")


def packaged_settings() -> dict[str, Any]:
    """The sections ``halves`` and ``protocol`` of ``configs/benchmark.toml``."""
    file = resources.files("crcen.experiments").joinpath("configs", "benchmark.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def all_sets() -> Mapping[str, Sequence[str]]:
    """The names of the sets by half."""
    halves = packaged_settings()["halves"]
    return {half: tuple(halves[half]) for half in HALVES}


def half_of(name: str) -> str:
    """The half that a set belongs to; a set of neither, as in a trial, is a half of its own."""
    return next((half for half, names in all_sets().items() if name in names), "other")


def choose_sets(half: str = "all", sets: Sequence[str] = ()) -> list[str]:
    """Names of the sets of a half (or of both), or of those among ``sets``, refused where they are unknown."""
    if half not in (*HALVES, "all"):
        raise crcen.InvalidParameter(f"half must be one of {', '.join(HALVES)}, all: got {half!r}.")
    known = [name for part, names in all_sets().items() if half in (part, "all") for name in names]
    unknown = [name for name in sets if name not in known]
    if unknown:
        where = "the benchmark" if half == "all" else f"the {half} half"
        raise crcen.InvalidParameter(f"{', '.join(unknown)} is not in {where}: choose from {', '.join(known)}.")
    return [name for name in known if not sets or name in sets]
