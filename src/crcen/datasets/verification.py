"""Read a benchmark file without trusting it: nothing is executed, and what differs from the catalogue is refused."""

import hashlib
import io
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crcen.datasets.catalog import CatalogEntry, arrays_sha256
from crcen.exceptions import DataUnavailable

__all__ = ["VerifiedArrays", "read_verified"]

_MEMBERS = ("data.npy", "label.npy")
_HEADER_BYTES = 10_000  # more than any npy header of these files needs, and NumPy's own limit
_ZIP_BYTES = 65_536  # room for the zip's directory and for data that deflate cannot shrink


class VerifiedArrays(NamedTuple):
    """The arrays of a benchmark file that was checked.

    Parameters
    ----------
    data : ndarray of shape (n_samples, n_features)
        Features, float64 in C order.
    label : ndarray of shape (n_samples,)
        Labels, int64, −1 for the majority and +1 for the minority class.
    original : bool
        Whether the arrays are shown to be those of the original file.
    """

    data: NDArray[np.float64]
    label: NDArray[np.int64]
    original: bool


class _Refused(Exception):
    """What is wrong with a file, as a clause."""


def read_verified(path: Path, entry: CatalogEntry, advice: str) -> VerifiedArrays:
    """Read a benchmark file and check it against the catalogue.

    A file is accepted when its shapes and class counts are the catalogue's and either its arrays have the catalogue's
    digest or the file is, byte for byte, the original.

    Parameters
    ----------
    path : Path
        An npz file with the members ``data`` and ``label``.
    entry : CatalogEntry
        What the file must hold.
    advice : str
        What to try if the file is refused, the end of the error's sentence.

    Returns
    -------
    VerifiedArrays
        The arrays, writable and not shared with anything.

    Raises
    ------
    DataUnavailable
        If the file is truncated, altered or not such a file at all; the sentence says which set, file and fault.
    """
    try:
        return _read(path, entry)
    except _Refused as refused:
        reason = str(refused)
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or type(error).__name__})"
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds of error for a damaged file
        reason = f"it is truncated or corrupt ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
    raise DataUnavailable(
        f"The file {path} for the data set {entry.name!r} is refused because {reason}, "
        f"and only the benchmark's own arrays are allowed; {advice}."
    )


def _read(path: Path, entry: CatalogEntry) -> VerifiedArrays:
    shapes = {"data.npy": (entry.n_samples, entry.n_features), "label.npy": (entry.n_samples,)}
    n_bytes = 8 * entry.n_samples * (entry.n_features + 1)
    with path.open("rb") as file:
        raw = file.read(n_bytes + n_bytes // 100 + _ZIP_BYTES + 1)
    if len(raw) > n_bytes + n_bytes // 100 + _ZIP_BYTES:
        raise _Refused(f"it is larger than its {entry.n_samples} × {entry.n_features} values can need")
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        found = sorted(archive.namelist())
        if found != sorted(_MEMBERS):
            keys = ", ".join(name.removesuffix(".npy") for name in found[:5]) or "nothing"
            raise _Refused(f"it holds {keys} instead of data and label")
        data = _read_member(archive, "data.npy", shapes["data.npy"], np.dtype("<f8"))
        label = _read_member(archive, "label.npy", shapes["label.npy"], np.dtype("<i8"))
    if not np.isin(label, (-1, 1)).all():
        raise _Refused("it has labels other than −1 and +1")
    n_pos = int(np.count_nonzero(label == 1))
    if n_pos != entry.n_pos:
        raise _Refused(f"it has {n_pos} rows of the minority class instead of {entry.n_pos}")
    if arrays_sha256(data, label) == entry.arrays_sha256:
        return VerifiedArrays(data, label, original=entry.verified == "exact")
    if _git_blob_id(raw) == entry.original_blob_id:
        return VerifiedArrays(data, label, original=True)
    raise _Refused("its values differ from the benchmark's (the checksum does not match)")


def _read_member(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    member = archive.getinfo(name)
    with archive.open(member) as file:
        found_shape, fortran_order, found_dtype = _read_header(file, name)
        key = name.removesuffix(".npy")
        if found_dtype.hasobject:
            raise _Refused(f"its array {key} holds Python objects, which are never loaded")
        if found_dtype != dtype:
            raise _Refused(f"its array {key} is of type {found_dtype} instead of {dtype}")
        if found_shape != shape:
            raise _Refused(f"its array {key} has shape {found_shape} instead of {shape}")
        if member.file_size > n_bytes + _HEADER_BYTES:
            raise _Refused(f"its array {key} is followed by {member.file_size - n_bytes} bytes of something else")
        payload = file.read(n_bytes + 1)  # one more than needed, so that the zip's own checksum is verified
    if len(payload) != n_bytes:
        raise _Refused(f"its array {key} has {len(payload)} bytes instead of {n_bytes}")
    flat = np.frombuffer(payload, dtype=dtype)
    return np.array(flat.reshape(shape, order="F" if fortran_order else "C"), dtype=dtype.newbyteorder("="), order="C")


def _read_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file, max_header_size=_HEADER_BYTES)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file, max_header_size=_HEADER_BYTES)
    raise _Refused(f"its member {name} has the npy version {version} instead of (1, 0) or (2, 0)")


def _git_blob_id(raw: bytes) -> str:
    digest = hashlib.sha1(f"blob {len(raw)}\0".encode("ascii"), usedforsecurity=False)
    digest.update(raw)
    return digest.hexdigest()
