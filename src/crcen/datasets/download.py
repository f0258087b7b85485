"""Download the benchmark through imbalanced-learn, verify it, and keep it in the user's cache."""

import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crcen._support.extras import need
from crcen.datasets.catalog import CatalogEntry, catalog
from crcen.datasets.verification import read_verified
from crcen.exceptions import DataUnavailable

__all__ = ["download"]


def download(entry: CatalogEntry, folder: Path, tried: str) -> None:
    """Download a benchmark set into a folder; the file appears there whole and verified, or not at all.

    The benchmark is one archive, so the other sets in it that verify are kept as well.

    Parameters
    ----------
    entry : CatalogEntry
        The set to get.
    folder : Path
        The folder for ``x{id}data.npz``, made if missing.
    tried : str
        The places where the set was not found, for the error's sentence.

    Raises
    ------
    MissingExtra
        If imbalanced-learn is not installed.
    DataUnavailable
        If the folder cannot be written, the download fails, or what came is not the benchmark.
    """
    imblearn = need(
        "imblearn.datasets",
        "baselines",
        f"The data set {entry.name!r} is not in {tried}; set CRCEN_DATA_HOME to a folder that holds "
        f"zenodo/{entry.filename}, or download it with imbalanced-learn",
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=".download-", dir=folder, ignore_cleanup_errors=True)
    except OSError as error:
        raise DataUnavailable(
            f"The data set {entry.name!r} is not in {tried}, and the cache {folder} cannot be written "
            f"({error.strerror}); try setting CRCEN_CACHE to a folder that can."
        ) from error
    with temporary as home:
        arrived = Path(home) / "zenodo"
        try:
            with _spinner(entry.name), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # imbalanced-learn leaves its files open for the collector
                try:
                    imblearn.fetch_datasets(data_home=home, filter_data=(entry.name,), download_if_missing=True)
                except Exception as error:
                    traceback.clear_frames(error.__traceback__)  # which closes them, so that they can be removed
                    raise
        except Exception as error:  # no network, no such page, a damaged archive: each library has its own error
            raise DataUnavailable(
                f"The data set {entry.name!r} is not in {tried}, and the download failed "
                f"({type(error).__name__}: {' '.join(str(error).split())[:160]}); try again with a network, or set "
                f"CRCEN_DATA_HOME to a folder that holds zenodo/{entry.filename}."
            ) from error
        read_verified(arrived / entry.filename, entry, "it was not kept, try again later or use a copy in data_home")
        try:
            os.replace(arrived / entry.filename, folder / entry.filename)
        except OSError as error:
            raise DataUnavailable(
                f"The data set {entry.name!r} was downloaded, but the cache {folder} cannot take it "
                f"({error.strerror}); try setting CRCEN_CACHE to a folder that can."
            ) from error
        _keep_others(arrived, entry, folder)


def _keep_others(arrived: Path, wanted: CatalogEntry, folder: Path) -> None:
    for entry in catalog():
        if entry == wanted or os.path.lexists(folder / entry.filename) or not (arrived / entry.filename).is_file():
            continue
        try:
            read_verified(arrived / entry.filename, entry, "it was not kept")
            os.replace(arrived / entry.filename, folder / entry.filename)
        except OSError:  # DataUnavailable is one
            continue  # nobody asked for it; whoever does downloads again and is told what is wrong


@contextmanager
def _spinner(name: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(f"Downloading the imbalanced-learn benchmark for {name}", total=None)
        yield
