"""Load a set of imbalanced-learn's benchmark from the first place that has it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from crcen.datasets.catalog import CatalogEntry, catalog, find
from crcen.datasets.dataset import Dataset
from crcen.datasets.download import download
from crcen.datasets.verification import read_verified

__all__ = ["DatasetListing", "list_datasets", "load_dataset"]


@dataclass(frozen=True)
class DatasetListing:
    """One benchmark set and where it would be loaded from.

    Parameters
    ----------
    name : str
        Name in imbalanced-learn.
    n_samples, n_features, n_pos : int
        Rows, columns, rows of the minority class.
    imbalance_ratio : float
        Majority rows per minority row.
    paper_name : str or None
        Name in the paper, for its six sets.
    available : {"data_home", "bundled", "cache", "download"}
        The first place that has the file; it is looked for, not read.
    """

    name: str
    n_samples: int
    n_features: int
    n_pos: int
    imbalance_ratio: float
    paper_name: str | None
    available: str


@dataclass(frozen=True)
class _Place:
    kind: str
    label: str
    folder: Path
    advice: str


def load_dataset(name: str, data_home: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a set of imbalanced-learn's benchmark.

    Places are tried in this order: ``data_home``; the environment's ``CRCEN_DATA_HOME``; the package itself (abalone
    and satimage); the user's cache (``CRCEN_CACHE``, or ``crcen`` in ``XDG_CACHE_HOME`` or ``~/.cache``); a download
    through imbalanced-learn into that cache. Each file is checked against the catalogue and never unpickled.

    Parameters
    ----------
    name : str
        A name of imbalanced-learn ("us_crime") or of the paper ("UScrime"), in any case.
    data_home : path-like, default=None
        A folder in imbalanced-learn's cache layout, ``<data_home>/zenodo/x{id}data.npz``.

    Returns
    -------
    Dataset
        Features in float64, labels 0 and 1 with 1 for the minority class.

    Raises
    ------
    InvalidParameter
        If there is no set of that name.
    DataUnavailable
        If the set is nowhere and cannot be downloaded, or the first file found is truncated or altered.
    MissingExtra
        If the set must be downloaded and imbalanced-learn is not installed.

    Examples
    --------
    >>> from crcen.datasets import load_dataset
    >>> abalone = load_dataset("abalone")
    >>> abalone.X.shape, abalone.n_pos
    ((4177, 10), 391)
    """
    entry = find(name)
    places = tuple(_places(data_home))
    place = _first_with(entry, places)
    if place is None:
        place = places[-1]  # the user's cache
        tried = ", ".join(p.label for p in places)
        download(entry, place.folder, tried)
    arrays = read_verified(place.folder / entry.filename, entry, place.advice)
    return Dataset(
        name=entry.name,
        X=arrays.data,
        y=(arrays.label == 1).astype(np.int64),
        feature_names=entry.feature_names,
        source=entry.source if arrays.original else f"{entry.source} ({entry.verified})",
    )


def list_datasets(data_home: str | os.PathLike[str] | None = None) -> tuple[DatasetListing, ...]:
    """List the benchmark's sets and where each would be loaded from.

    Parameters
    ----------
    data_home : path-like, default=None
        As in `load_dataset`.

    Returns
    -------
    tuple of DatasetListing
        27 rows in the benchmark's order.
    """
    places = tuple(_places(data_home))
    rows = []
    for entry in catalog():
        place = _first_with(entry, places)
        rows.append(
            DatasetListing(
                name=entry.name,
                n_samples=entry.n_samples,
                n_features=entry.n_features,
                n_pos=entry.n_pos,
                imbalance_ratio=entry.imbalance_ratio,
                paper_name=entry.paper_name,
                available="download" if place is None else place.kind,
            )
        )
    return tuple(rows)


def _places(data_home: str | os.PathLike[str] | None) -> Iterator[_Place]:
    """Yield the places on this machine in the order they are tried; the user's cache is last."""
    replace = "try replacing it with a fresh copy, or loading without this folder"
    if data_home is not None:
        home = _expanded(os.fspath(data_home))
        yield _Place("data_home", f"data_home={home}", home / "zenodo", replace)
    if from_environment := os.environ.get("CRCEN_DATA_HOME"):
        home = _expanded(from_environment)
        yield _Place("data_home", f"CRCEN_DATA_HOME={home}", home / "zenodo", replace)
    bundled = Path(str(resources.files("crcen.datasets"))) / "bundled"
    yield _Place("bundled", "the package", bundled, "try installing crcen again")
    cache = _user_cache()
    yield _Place("cache", f"the cache {cache}", cache / "zenodo", "try deleting it, it is then downloaded again")


def _first_with(entry: CatalogEntry, places: tuple[_Place, ...]) -> _Place | None:
    # A dangling link or a folder of that name counts as found: it is refused by name, not passed over.
    return next((place for place in places if os.path.lexists(place.folder / entry.filename)), None)


def _user_cache() -> Path:
    if cache := os.environ.get("CRCEN_CACHE"):
        return _expanded(cache)
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative path is to be ignored.
    return (Path(base) if os.path.isabs(base) else _expanded("~/.cache")) / "crcen"


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))
