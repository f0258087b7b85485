"""Data sets, and the 27 of imbalanced-learn's benchmark: catalogue, lookup on this machine, download, verification.

The catalogue is ``benchmark.csv`` beside this file. Files are checked against it and never unpickled.
"""

import csv
import functools
import hashlib
import io
import os
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crcen._support.extras import need
from crcen._support.progress import busy
from crcen._support.text import closest
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter

_ZIP_BYTES = 65_536  # the zip's directory, and data that deflate cannot shrink


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with labels 0 and 1, where 1 is the minority class; compared by identity.

    Parameters
    ----------
    name : str
        Name of the data set.
    X : ndarray of shape (n_samples, n_features)
        Features, float64 in C order; other numeric arrays are converted.
    y : ndarray of shape (n_samples,)
        Labels, int64, 0 for the majority and 1 for the minority class.
    feature_names : tuple of str
        One name per column of ``X``.
    source : str
        Where the rows come from, in words.
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    feature_names: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        X, y, names = np.ascontiguousarray(self.X, dtype=np.float64), np.asarray(self.y), tuple(self.feature_names)
        if np.ndim(self.X) != 2 or y.shape != X.shape[:1] or len(names) != X.shape[1] or not np.isin(y, (0, 1)).all():
            labels = f"y of shape {y.shape} with values {np.unique(y)[:5].tolist()}"
            found = f"X of shape {np.shape(self.X)}, {labels}, and {len(names)} feature names"
            allowed = "X must have two dimensions, y one label 0 or 1 per row, and feature_names one name per column"
            raise InvalidInput(f"The data set {self.name!r} got {found}; {allowed}.")
        for name, value in (("X", X), ("y", y.astype(np.int64)), ("feature_names", names)):
            object.__setattr__(self, name, value)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def n_pos(self) -> int:
        """Number of rows of the minority class."""
        return int(np.count_nonzero(self.y))

    @property
    def n_neg(self) -> int:
        """Number of rows of the majority class."""
        return self.n_samples - self.n_pos

    @property
    def imbalance_ratio(self) -> float:
        """Majority rows per minority row; infinite without minority rows."""
        return self.n_neg / self.n_pos if self.n_pos else float("inf")


@dataclass(frozen=True)
class CatalogEntry:
    """One row of the catalogue; ``n_pos`` counts the minority class, ``original_blob_id`` is a Git blob id.

    ``verified`` says how ``arrays_sha256`` (None if the original could not be read) relates to the original file.
    """

    id: int
    name: str
    n_samples: int
    n_features: int
    n_pos: int
    paper_name: str | None
    source: str
    verified: str
    arrays_sha256: str | None
    original_blob_id: str
    feature_names: tuple[str, ...]

    @property
    def filename(self) -> str:
        """Name of the file in imbalanced-learn's cache layout."""
        return f"x{self.id}data.npz"


@dataclass(frozen=True)
class DatasetListing:
    """One benchmark set and where it would be loaded from.

    ``imbalance_ratio`` is majority rows per minority row. ``paper_name`` is the name in the paper, for its six sets.
    ``available`` is the first place that has the file: "data_home", "bundled", "cache" or "download".
    """

    name: str
    n_samples: int
    n_features: int
    n_pos: int
    imbalance_ratio: float
    paper_name: str | None
    available: str


@functools.cache
def catalog() -> tuple[CatalogEntry, ...]:
    """The 27 sets of the benchmark in the order of their numbers."""
    text = resources.files("crcen.datasets").joinpath("benchmark.csv").read_text(encoding="utf-8")
    entries = []
    for row in csv.DictReader(text.splitlines()):
        given: dict[str, Any] = {name: row[name] or None for name in CatalogEntry.__dataclass_fields__}
        given |= {name: int(row[name]) for name in ("id", "n_samples", "n_features", "n_pos")}
        names = row["feature_names"].split() or [f"x{j}" for j in range(given["n_features"])]
        entries.append(CatalogEntry(**{**given, "feature_names": tuple(names)}))
    return tuple(entries)


def find(name: str) -> CatalogEntry:
    """The benchmark set of that name, imbalanced-learn's ("us_crime") or the paper's ("UScrime"), in any case."""
    known = {entry.name.casefold(): entry for entry in catalog()}
    known |= {entry.paper_name.casefold(): entry for entry in catalog() if entry.paper_name is not None}
    wanted = str(name).strip().casefold()
    if wanted in known:
        return known[wanted]
    close = closest(wanted, known)
    allowed = f"the {len(catalog())} names of imbalanced-learn's benchmark and the paper's six"
    advice = repr(known[close].name) if close else "crcen.datasets.list_datasets()"
    raise InvalidParameter(f"Got data set {name!r}, but only {allowed} are allowed; try {advice}.")


class _Place(NamedTuple):
    kind: str
    label: str
    folder: Path
    advice: str


def load_dataset(name: str, data_home: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a set of imbalanced-learn's benchmark.

    Locations are tried in this order: ``data_home``; the environment's ``CRCEN_DATA_HOME``; the package itself (abalone
    and satimage); the user's cache (``CRCEN_CACHE``, or ``crcen`` in ``XDG_CACHE_HOME`` or ``~/.cache``); a download
    through imbalanced-learn into that cache. Each file is checked against the catalogue and never unpickled.

    Parameters
    ----------
    name : str
        A name of imbalanced-learn ("us_crime") or of the paper ("UScrime"), in any case.
    data_home : path-like, default=None
        A folder in imbalanced-learn's cache layout, ``<data_home>/zenodo/x{id}data.npz``.

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
        _download(entry, place.folder, ", ".join(p.label for p in places))
    return read_verified(place.folder / entry.filename, entry, place.advice)


def list_datasets(data_home: str | os.PathLike[str] | None = None) -> tuple[DatasetListing, ...]:
    """List the 27 sets of the benchmark and the location of each; ``data_home`` as in `load_dataset`."""
    places, rows = tuple(_places(data_home)), []
    for entry in catalog():
        place, sizes = _first_with(entry, places), (entry.n_samples, entry.n_features, entry.n_pos)
        about = entry.n_samples / entry.n_pos - 1.0, entry.paper_name, "download" if place is None else place.kind
        rows.append(DatasetListing(entry.name, *sizes, *about))
    return tuple(rows)


def _places(data_home: str | os.PathLike[str] | None) -> Iterator[_Place]:
    """The places on this machine in the order they are tried; the user's cache is last."""
    replace = "try replacing it with a fresh copy, or loading without this folder"
    for name, home in {"data_home": data_home, "CRCEN_DATA_HOME": os.environ.get("CRCEN_DATA_HOME") or None}.items():
        if home is not None:
            folder = Path(os.path.expanduser(home))
            yield _Place("data_home", f"{name}={folder}", folder / "zenodo", replace)
    bundled = Path(str(resources.files("crcen.datasets"))) / "bundled"
    yield _Place("bundled", "the package", bundled, "try reinstalling crcen")
    cache = os.environ.get("CRCEN_CACHE")
    if not cache:
        base = os.environ.get("XDG_CACHE_HOME", "")  # XDG: a relative path is to be ignored
        cache = os.path.join(base if os.path.isabs(base) else "~/.cache", "crcen")
    folder = Path(os.path.expanduser(cache))
    yield _Place("cache", f"the cache {folder}", folder / "zenodo", "try deleting it, it is then downloaded again")


def _first_with(entry: CatalogEntry, places: tuple[_Place, ...]) -> _Place | None:
    # A dangling link or a folder of that name counts as found: it is refused by name, not skipped.
    return next((place for place in places if os.path.lexists(place.folder / entry.filename)), None)


def _download(entry: CatalogEntry, folder: Path, tried: str) -> None:
    """Download the benchmark and keep each verified set in a folder; ``tried`` names the places without the set."""
    lost = f"The data set {entry.name!r} is not in {tried}"
    home = f"CRCEN_DATA_HOME to a folder that holds zenodo/{entry.filename}"
    imblearn = need("imblearn.datasets", "baselines", f"{lost}; set {home}, or download it with imbalanced-learn")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder, ignore_cleanup_errors=True) as place:
            try:
                with busy(f"Downloading the imbalanced-learn benchmark for {entry.name}", visible=True):
                    _fetch(imblearn, place, entry.name)
            except Exception as error:  # each library has its own
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
                message = f"{lost}, and the download failed ({reason}); try again with a network, or set {home}."
                raise DataUnavailable(message, parameter="data_home") from error
            for one in sorted(catalog(), key=lambda other: other != entry):  # the benchmark is one archive
                source, target = Path(place) / "zenodo" / one.filename, folder / one.filename
                if one == entry or (source.is_file() and not os.path.lexists(target)):
                    try:
                        read_verified(source, one, "it was not kept, try again later or use a copy in data_home")
                        os.replace(source, target)
                    except OSError:  # DataUnavailable is one
                        if one == entry:
                            raise
    except DataUnavailable:
        raise
    except OSError as error:
        message = f"{lost}, and the cache {folder} cannot be written ({error.strerror})"
        raise DataUnavailable(f"{message}; set CRCEN_CACHE to another folder.", parameter="data_home") from error


def _fetch(imblearn: Any, place: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # imbalanced-learn leaves its files open for the collector
        try:
            imblearn.fetch_datasets(data_home=place, filter_data=(name,), download_if_missing=True)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # closes them, so that they can be removed
            raise


class _Refused(Exception):
    """What is wrong with a file, as a clause."""


def arrays_sha256(data: NDArray[np.float64], label: NDArray[np.int64]) -> str:
    """SHA-256 of a line with the shapes, the features as little-endian float64 and the labels as int64."""
    n_samples, n_features = data.shape
    digest = hashlib.sha256(f"crcen-arrays-1 f8 {n_samples} {n_features} i8 {label.shape[0]}\n".encode("ascii"))
    digest.update(np.ascontiguousarray(data, dtype="<f8").data)
    digest.update(np.ascontiguousarray(label, dtype="<i8").data)
    return digest.hexdigest()


def read_verified(path: Path, entry: CatalogEntry, advice: str) -> Dataset:
    """Read a benchmark file, without unpickling, and check it against the catalogue; ``advice`` ends the error.

    Its arrays must have the catalogue's digest, or the file must be, byte for byte, the original.
    """
    try:
        return _read(path, entry)
    except _Refused as refused:
        reason = str(refused)
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or type(error).__name__})"
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds of error for a damaged file
        reason = f"it is truncated or corrupt ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
    message = f"The file {path} for the data set {entry.name!r} is rejected because {reason}"
    raise DataUnavailable(f"{message}, and only the benchmark's own arrays are allowed; {advice}.")


def _read(path: Path, entry: CatalogEntry) -> Dataset:
    shapes = {"data": (entry.n_samples, entry.n_features), "label": (entry.n_samples,)}
    n_bytes = 8 * entry.n_samples * (entry.n_features + 1)
    most = n_bytes + n_bytes // 100 + _ZIP_BYTES
    with path.open("rb") as file:
        raw = file.read(most + 1)
    too_large = _Refused(f"it is larger than its {entry.n_samples} × {entry.n_features} values can need")
    if len(raw) > most:
        raise too_large
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        if sum(member.file_size for member in archive.infolist()) > most:
            raise too_large
    with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
        if sorted(stored.files) != list(shapes):
            raise _Refused(f"it holds {', '.join(stored.files[:5]) or 'nothing'} instead of data and label")
        arrays = {name: stored[name] for name in shapes}
    for (name, array), dtype in zip(arrays.items(), (np.dtype("<f8"), np.dtype("<i8")), strict=True):
        if array.dtype != dtype or array.shape != shapes[name]:
            found = f"type {array.dtype} and shape {array.shape} instead of {dtype} and {shapes[name]}"
            raise _Refused(f"its array {name} has {found}")
    if arrays_sha256(**arrays) == entry.arrays_sha256:
        source = entry.source if entry.verified == "exact" else f"{entry.source} ({entry.verified})"
    elif hashlib.sha1(b"blob %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest() == entry.original_blob_id:
        source = entry.source
    else:
        raise _Refused("its values differ from the benchmark's (the checksum does not match)")
    return Dataset(entry.name, arrays["data"], arrays["label"] == 1, entry.feature_names, source)
