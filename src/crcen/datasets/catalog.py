"""The one table of imbalanced-learn's benchmark: names, shapes, class counts, sources and checksums.

The table is ``benchmark.csv`` beside this file; everything that names a benchmark set reads it from here.
"""

import csv
import difflib
import functools
import hashlib
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter

__all__ = ["CatalogEntry", "arrays_sha256", "catalog", "find"]


@dataclass(frozen=True)
class CatalogEntry:
    """One row of the benchmark's table.

    Parameters
    ----------
    id : int
        Number in the benchmark, 1 to 27; the file is ``x{id}data.npz``.
    name : str
        Name in imbalanced-learn.
    n_samples, n_features, n_pos : int
        Rows, columns, rows of the minority class.
    paper_name : str or None
        Name in the paper's Table 2, for its six sets.
    source : str
        Where the data were published first.
    verified : str
        How ``arrays_sha256`` relates to the original file: "exact", or a sentence that says what is not known.
    arrays_sha256 : str or None
        Digest of the arrays, see `arrays_sha256`; None where the original could not be read.
    original_blob_id : str
        Git blob id (SHA-1) of the original, uncompressed file.
    feature_names : tuple of str
        Known names of the columns, otherwise x0, x1, …
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

    @property
    def n_neg(self) -> int:
        """Rows of the majority class."""
        return self.n_samples - self.n_pos

    @property
    def imbalance_ratio(self) -> float:
        """Majority rows per minority row."""
        return self.n_neg / self.n_pos


@functools.cache
def catalog() -> tuple[CatalogEntry, ...]:
    """Return the 27 sets of the benchmark in the order of their numbers.

    Returns
    -------
    tuple of CatalogEntry
        One entry per set.
    """
    text = resources.files("crcen.datasets").joinpath("benchmark.csv").read_text(encoding="utf-8")
    return tuple(_entry(row) for row in csv.DictReader(text.splitlines()))


def find(name: str) -> CatalogEntry:
    """Return the benchmark set of that name.

    Parameters
    ----------
    name : str
        A name of imbalanced-learn ("us_crime") or of the paper ("UScrime"), in any case.

    Returns
    -------
    CatalogEntry
        The row of the table.

    Raises
    ------
    InvalidParameter
        If there is no such set; the sentence names the closest ones.
    """
    known = {}
    for entry in catalog():
        known[entry.name.casefold()] = entry
        if entry.paper_name is not None:
            known[entry.paper_name.casefold()] = entry
    wanted = name.strip().casefold() if isinstance(name, str) else ""
    if wanted in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    names = dict.fromkeys(known[key].name for key in close)
    raise InvalidParameter(
        f"Got data set {name!r}, but only the {len(catalog())} names of imbalanced-learn's benchmark and the paper's "
        f"six are allowed; try {' or '.join(repr(key) for key in names) or 'crcen.datasets.list_datasets()'}."
    )


def arrays_sha256(data: NDArray[np.float64], label: NDArray[np.int64]) -> str:
    """Digest the arrays of a benchmark file, whatever form the file has.

    The digest is SHA-256 over an ASCII line ``crcen-arrays-1 f8 {n} {p} i8 {n}`` ended by a newline, the features as
    little-endian float64 in C order, and the labels (−1 and +1) as little-endian int64.

    Parameters
    ----------
    data : ndarray of shape (n_samples, n_features)
        Features.
    label : ndarray of shape (n_samples,)
        Labels, −1 for the majority and +1 for the minority class.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    n_samples, n_features = data.shape
    digest = hashlib.sha256(f"crcen-arrays-1 f8 {n_samples} {n_features} i8 {label.shape[0]}\n".encode("ascii"))
    digest.update(np.ascontiguousarray(data, dtype="<f8").data)
    digest.update(np.ascontiguousarray(label, dtype="<i8").data)
    return digest.hexdigest()


def _entry(row: dict[str, str]) -> CatalogEntry:
    n_features = int(row["n_features"])
    return CatalogEntry(
        id=int(row["id"]),
        name=row["name"],
        n_samples=int(row["n_samples"]),
        n_features=n_features,
        n_pos=int(row["n_pos"]),
        paper_name=row["paper_name"] or None,
        source=row["source"],
        verified=row["verified"],
        arrays_sha256=row["arrays_sha256"] or None,
        original_blob_id=row["original_blob_id"],
        feature_names=tuple(row["feature_names"].split()) or tuple(f"x{j}" for j in range(n_features)),
    )
