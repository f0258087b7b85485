"""Models on disk: one file with a header anyone can read and a payload that cannot execute anything.

::

    crcen model, format 2
    <SHA-256 of the first line and everything below, in hex>
    <manifest: one line of JSON>
    <sizes: one line of JSON>
    <payload: a tree of JSON and a run of bytes, compressed with zlib>

Loading makes objects of the types listed in `known_types` and of no others, and calls none of the file's own code; the
form of the payload is in `packing`. The checksum finds damage, not forgery: whoever can write a file can write its
checksum too. So sizes are checked before anything is made, and a model must answer made-up rows before it is given out.
"""

import hashlib
import json
import platform
import zlib
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from crcen._support.terminal import printable
from crcen._support.whole_files import check_place, write_whole
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.files.known_types import Unfit
from crcen.files.packing import Unpackable, pack, unpack
from crcen.files.trial import answers_a_row
from crcen.models.classifier import CRCENClassifier
from crcen.tables.classifier import TableClassifier

__all__ = ["FORMAT", "ModelInfo", "load", "model_info", "save"]

FORMAT = 2
_TITLE = "crcen model, format "
_PACKAGES = ("crcen", "numpy", "scikit-learn", "torch", "skrub", "pandas")

# What a payload may grow to, so that a small file cannot fill the memory. What compresses better is stored as it is.
_GROWTH, _SPARE = 4, 1 << 20
_WEIGHTING = ("lam", "alpha", "cost_ratio", "threshold", "n_pos", "n_neg")


@dataclass(frozen=True)
class ModelInfo:
    """What the header of a model file says; reading it makes no object of the file.

    Parameters
    ----------
    format : int
        Version of the file format.
    model : str
        The estimator's name.
    created : str
        When it was written, UTC.
    python : str
        Version of Python.
    versions : dict of str to str
        Versions of the libraries.
    classes : list
        Labels in sorted order.
    positive : label
        The positive class.
    target : str or None
        Name of the target column, where there was one.
    weighting : dict
        ``lam``, ``alpha``, ``cost_ratio``, ``threshold``, ``n_pos`` and ``n_neg`` of training.
    columns : list of dict
        Input columns: name, kind, and whether training rows lacked cells.
    dropped : list of dict
        Columns that training left out: name and reason.
    """

    format: int
    model: str
    created: str
    python: str
    versions: dict[str, str]
    classes: list[Any]
    positive: Any
    target: str | None
    weighting: dict[str, float]
    columns: list[dict[str, Any]]
    dropped: list[dict[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        price, kinds = self.weighting["cost_ratio"], [one["kind"] for one in self.columns]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        libraries = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [
            f"{self.model}, written {self.created} (format {self.format})",
            f"  positive class  {self.positive}   (target {self.target or 'not named'}, classes "
            f"{', '.join(map(str, self.classes))})",
            f"  trained on      {self.weighting['n_pos']:g} positive and {self.weighting['n_neg']:g} negative rows",
            f"  price           a miss is worth {price:.6g} false alarms (λ = {self.weighting['lam']:.6g}, "
            f"α = {self.weighting['alpha']:.6g}); an alarm above probability {self.weighting['threshold']:.6g}",
            f"  columns         {len(self.columns)}: {counted}",
            *(
                f"    {one['name']:24s} {one['kind']}{', lacked cells' if one.get('has_missing') else ''}"
                for one in self.columns
            ),
            *(f"    {one['name']:24s} left out: {one['reason']}" for one in self.dropped),
            f"  written with    python {self.python}, {libraries}",
        ]
        return "\n".join(map(printable, lines))


def save(model: Any, path: str | Path) -> Path:
    """Write a fitted model to a file, whole or not at all.

    Parameters
    ----------
    model : TableClassifier, CRCENClassifier, CRCENClassifierCV or CSMLPClassifier
        Fitted; nothing of Torch is in it.
    path : str or Path
        The file; one that is there is replaced.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidParameter
        If it is no model of this package, not fitted, or holds something that a file may not, such as a function.
    DataUnavailable
        If the file cannot be written.
    """
    if not isinstance(model, CRCENClassifier | TableClassifier):
        raise InvalidParameter(
            f"save takes TableClassifier, CRCENClassifier and its relatives: got {type(model).__name__}."
        )
    name = type(model).__name__
    if not hasattr(model, "weighting_"):
        raise InvalidParameter(f"this {name} is not fitted yet; call fit first.")
    check_place(path)
    try:
        tree, data = pack(model)
        unpack(tree, data)
    except (Unpackable, Unfit) as error:
        raise InvalidParameter(
            f"this {name} holds {error}, which a model file may not; use names of scores, whole numbers as seeds and "
            f"splitters of scikit-learn as parameters."
        ) from error
    body = json.dumps(_manifest(model)).encode() + b"\n" + _payload(tree, data)
    title = f"{_TITLE}{FORMAT}\n".encode()
    write_whole(path, title + hashlib.sha256(title + body).hexdigest().encode() + b"\n" + body)
    return Path(path)


def load(path: str | Path) -> Any:
    """Read a model that `save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    TableClassifier, CRCENClassifier, CRCENClassifierCV or CSMLPClassifier
        As it was saved.

    Raises
    ------
    DataUnavailable
        If the file is missing, truncated, altered, or of another format.
    InvalidInput
        If it is no model file, or holds what a model has no use for.
    """
    _, body = _read(Path(path))
    try:
        model = unpack(*_unpacked(body.partition(b"\n")[2]))
    except Unfit as error:
        raise InvalidInput(f"{path} was not loaded: it holds {printable(str(error))}; do not trust it.") from error
    except Exception as error:  # whatever a forged file can think of
        raise DataUnavailable(f"{path} is altered: its payload cannot be read ({_reason(error)}).") from error
    if not isinstance(model, CRCENClassifier | TableClassifier):
        raise InvalidInput(f"{path} was not loaded: it holds a {type(model).__name__}, not a model of crcen.")
    try:
        answers_a_row(model)
        _manifest(model)
    except Exception as error:
        raise InvalidInput(
            f"{path} was not loaded: its parts do not fit together or are of another version ({_reason(error)}); "
            f"`crcen info` says which versions wrote it."
        ) from error
    return model


def model_info(path: str | Path) -> ModelInfo:
    """Read what a model file says about itself, without making the model.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    ModelInfo
        Versions, price, classes and columns.
    """
    format_version, body = _read(Path(path))
    try:
        manifest = json.loads(body.partition(b"\n")[0])
        _check_manifest(manifest)
        return ModelInfo(format=format_version, **manifest)
    except Exception as error:  # whatever a forged file can think of
        raise DataUnavailable(f"{path} is altered: its manifest cannot be read.") from error


def _reason(error: Exception) -> str:
    return printable(" ".join(f"{type(error).__name__}: {error}".split()))[:160]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _most(length: int) -> int:
    return _GROWTH * length + _SPARE


def _payload(tree: bytes, data: bytes) -> bytes:
    """Sizes and content, compressed where reading will take it."""
    content, is_small = zlib.compress(tree + data, 6), True
    if len(tree) + len(data) > _most(len(content)):
        content, is_small = tree + data, False
    sizes = {"tree": len(tree), "data": len(data), "is_compressed": is_small}
    return json.dumps(sizes).encode() + b"\n" + content


def _unpacked(payload: bytes) -> tuple[bytes, bytes]:
    """The tree and the bytes; nothing larger than the sizes say, and no sizes out of proportion to the file."""
    line, _, content = payload.partition(b"\n")
    sizes = json.loads(line) if len(line) < 200 else None
    if not isinstance(sizes, dict) or set(sizes) != {"tree", "data", "is_compressed"}:
        raise ValueError("no sizes")
    n_tree, n_data = sizes["tree"], sizes["data"]
    if any(type(size) is not int or size < 0 for size in (n_tree, n_data)) or n_tree + n_data > _most(len(content)):
        raise ValueError("sizes out of proportion")
    if sizes["is_compressed"]:
        opened = zlib.decompressobj()
        content = opened.decompress(content, n_tree + n_data + 1)
        if not opened.eof or opened.unused_data:
            raise ValueError("another size than it says")
    if len(content) != n_tree + n_data:
        raise ValueError("another size than it says")
    return content[:n_tree], content[n_tree:]


def _manifest(model: Any) -> dict[str, Any]:
    """What the header says: all of `ModelInfo` but the format."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    weighting = model.weighting_
    if isinstance(model, TableClassifier):
        columns = [column.describe() for column in model.columns_]
        dropped = [asdict(one) for one in model.dropped_]
    else:
        names = getattr(model, "feature_names_in_", range(model.n_features_in_))
        lacking = set(model.input_encoding_.get("indicators", np.empty(0)).tolist())
        columns = [{"name": str(name), "kind": "number", "has_missing": i in lacking} for i, name in enumerate(names)]
        dropped = []
    return {
        "model": type(model).__name__,
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "python": platform.python_version(),
        "versions": versions,
        "classes": [_plain(label) for label in model.classes_],
        "positive": _plain(model.pos_label_),
        "target": getattr(model, "target_name_", None),
        "weighting": {name: getattr(weighting, name) for name in _WEIGHTING},
        "columns": columns,
        "dropped": dropped,
    }


def _check_manifest(manifest: Any) -> None:
    """Raise unless every part is of the kind that `ModelInfo` says."""
    if set(manifest) != {field.name for field in fields(ModelInfo)} - {"format"}:
        raise ValueError("other parts")
    plain = (str, int, float, bool, type(None))
    texts = [manifest["model"], manifest["created"], manifest["python"], manifest["target"] or ""]
    texts += [*manifest["versions"].values(), *(one["name"] for one in manifest["columns"] + manifest["dropped"])]
    texts += [*(one["kind"] for one in manifest["columns"]), *(one["reason"] for one in manifest["dropped"])]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text that is none")
    for text in texts:
        text.encode()  # halves of letters cannot be printed
    if not all(isinstance(label, plain) for label in [*manifest["classes"], manifest["positive"]]):
        raise TypeError("a label that is none")
    if not all(isinstance(manifest["weighting"][name], int | float) for name in _WEIGHTING):
        raise TypeError("a number that is none")


def _read(path: Path) -> tuple[int, bytes]:
    """The format and everything under the checksum, which is right."""
    if path.is_dir():
        raise DataUnavailable(f"{path} is a folder; give a file that crcen saved.")
    try:
        with open(path, "rb") as file:
            first = file.readline(80)
            title = first.decode("ascii", errors="replace").strip()
            if not title.startswith(_TITLE) or not title.removeprefix(_TITLE).isdecimal():
                raise InvalidInput(f"{path} is no model that crcen saved: its first line is not {_TITLE.strip()!r}.")
            version = int(title.removeprefix(_TITLE))
            if version > FORMAT:
                raise DataUnavailable(
                    f"{path} has format {version}, and this crcen reads format {FORMAT}; update crcen."
                )
            if version < FORMAT:
                raise DataUnavailable(
                    f"{path} has format {version}, and this crcen reads format {FORMAT}; fit and save the model again."
                )
            checksum, body = file.readline(80).strip(), file.read()
    except FileNotFoundError as error:
        raise DataUnavailable(f"{path} is not there; check the name.") from error
    except OSError as error:
        if isinstance(error, DataUnavailable):
            raise
        raise DataUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    if hashlib.sha256(first + body).hexdigest().encode() != checksum:
        raise DataUnavailable(f"{path} is truncated or altered: its checksum is not that of its content; get it again.")
    return version, body
