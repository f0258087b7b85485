"""Models on disk: one file with a header anyone can read and a payload that cannot execute anything.

::

    crcen model, format 1
    <SHA-256 of the first line and everything below, in hex>
    <manifest: one line of JSON>
    <payload of skops: a zip of JSON and arrays>

Loading makes objects of the types listed in `_TYPES` and of no others, and calls none of the file's own code. The
checksum finds damage, not forgery: whoever can write a file can write its checksum too.
"""

import hashlib
import io
import json
import platform
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from crcen._support.whole_files import write_whole
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.files.skops_import import skops_io
from crcen.models.classifier import CRCENClassifier
from crcen.tables.classifier import TableClassifier

__all__ = ["FORMAT", "ModelInfo", "load", "model_info", "save"]

FORMAT = 1
_TITLE = "crcen model, format "
_PACKAGES = ("crcen", "numpy", "scikit-learn", "torch", "skops", "skrub", "pandas")

# skops's name of a node, and the types it may make. Functions, methods and reduced objects are not among them.
_TYPES: dict[str, dict[str, tuple[str, ...]]] = {
    "ObjectNode": {
        "crcen.models.classifier": ("CRCENClassifier",),
        "crcen.tables.column_kinds": ("DroppedColumn",),
        "crcen.tables.columns": ("BooleanColumn", "CategoryColumn", "DateColumn", "NumberColumn", "TextColumn"),
        "crcen.baselines.csmlp": ("CSMLPClassifier",),
        "crcen.models.search.time_split": ("TimeSplit",),
        "crcen.models.search.classifier_cv": ("CRCENClassifierCV",),
        "crcen.tables.classifier": ("TableClassifier",),
        "crcen.baselines.threshold": ("MovedThresholdClassifier",),
        "crcen.theory.expense": ("ExpenseStep", "ExpenseTable"),
        "crcen.theory.key_equation": ("KeyEquation",),
        "crcen.theory.metrics": ("ConfusionCounts",),
        "crcen.theory.specs": ("Alpha", "Budget", "CostRatio", "Lam"),
        "crcen.theory.weighting": ("ClassWeighting",),
        "crcen.training.encoding": ("InputEncoding",),
        "sklearn.decomposition._truncated_svd": ("TruncatedSVD",),
        "sklearn.feature_extraction.text": ("TfidfTransformer", "TfidfVectorizer"),
        "sklearn.model_selection._split": (
            *("GroupKFold", "KFold", "StratifiedGroupKFold", "StratifiedKFold", "StratifiedShuffleSplit"),
            *("RepeatedStratifiedKFold", "ShuffleSplit", "TimeSeriesSplit"),
        ),
        "skrub._string_encoder": ("StringEncoder",),
        "skrub._to_str": ("ToStr",),
    },
    "DictNode": {"builtins": ("dict",), "collections": ("OrderedDict",)},
    "ListNode": {"builtins": ("list",)},
    "TupleNode": {"builtins": ("tuple",)},
    "SetNode": {"builtins": ("set",)},
    "JsonNode": {"builtins": ("str", "int", "float", "bool", "NoneType")},
    "TypeNode": {
        "builtins": ("str", "int", "float", "bool"),
        "numpy": ("float32", "float64", "int32", "int64", "bool_", "str_"),
    },
    "NdArrayNode": {
        "numpy": (
            *("ndarray", "bool_", "bool", "str_", "float16", "float32", "float64", "longdouble"),
            *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "datetime64"),
        )
    },
    "MaskedArrayNode": {"numpy.ma": ("MaskedArray",), "numpy.ma.core": ("MaskedArray",)},
    "RandomStateNode": {"numpy.random.mtrand": ("RandomState",), "numpy.random": ("RandomState",)},
    "SparseMatrixNode": {
        "scipy.sparse._csr": ("csr_matrix", "csr_array"),
        "scipy.sparse._dia": ("dia_matrix", "dia_array"),
    },
}


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
        return "\n".join(lines)


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
    skops = skops_io()
    if not isinstance(model, CRCENClassifier | TableClassifier):
        raise InvalidParameter(
            f"save takes TableClassifier, CRCENClassifier and its relatives: got {type(model).__name__}."
        )
    if not hasattr(model, "weighting_"):
        raise InvalidParameter(f"this {type(model).__name__} is not fitted yet; call fit first.")
    payload = skops.dumps(model, compression=zipfile.ZIP_DEFLATED)
    refused = sorted({name for name, is_allowed in _types_in(payload) if not is_allowed})
    if refused:
        raise InvalidParameter(
            f"this {type(model).__name__} holds {', '.join(refused[:3])}, which a model file may not; use names of "
            f"scores, whole numbers as seeds and splitters of scikit-learn as parameters."
        )
    body = json.dumps(_manifest(model)).encode() + b"\n" + payload
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
        If the file is missing, truncated, altered, or of a newer format.
    InvalidInput
        If it is no model file, or holds types that a model has no use for.
    """
    skops = skops_io()
    _, body = _read(Path(path))
    payload = body.partition(b"\n")[2]
    try:
        found = _types_in(payload)
    except (zipfile.BadZipFile, KeyError, RecursionError, TypeError, ValueError) as error:
        raise DataUnavailable(f"{path} is altered: its payload cannot be read ({error}).") from error
    refused = sorted({name for name, is_allowed in found if not is_allowed})
    if refused:
        raise InvalidInput(
            f"{path} was not loaded: it holds {', '.join(refused[:5])}, which no model of crcen needs; do not trust it."
        )
    model = skops.loads(payload, trusted=sorted({name for name, _ in found}))
    if not isinstance(model, CRCENClassifier | TableClassifier):
        raise InvalidInput(f"{path} was not loaded: it holds a {type(model).__name__}, not a model of crcen.")
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
        return ModelInfo(format=format_version, **json.loads(body.partition(b"\n")[0]))
    except (TypeError, ValueError) as error:
        raise DataUnavailable(f"{path} is altered: its manifest cannot be read.") from error


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


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
        "weighting": {
            name: getattr(weighting, name) for name in ("lam", "alpha", "cost_ratio", "threshold", "n_pos", "n_neg")
        },
        "columns": columns,
        "dropped": dropped,
    }


def _read(path: Path) -> tuple[int, bytes]:
    """The format and everything under the checksum, which is right."""
    if path.is_dir():
        raise DataUnavailable(f"{path} is a folder; give a file that crcen saved.")
    try:
        with open(path, "rb") as file:
            first = file.readline(80)
            title = first.decode("ascii", errors="replace").strip()
            if not title.startswith(_TITLE) or not title.removeprefix(_TITLE).isdigit():
                raise InvalidInput(f"{path} is no model that crcen saved: its first line is not {_TITLE.strip()!r}.")
            version = int(title.removeprefix(_TITLE))
            if version > FORMAT:
                raise DataUnavailable(
                    f"{path} has format {version}, and this crcen reads formats up to {FORMAT}; update crcen."
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


def _types_in(payload: bytes) -> list[tuple[str, bool]]:
    """Every type that a payload would make, with whether a model may hold it."""
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        schema = json.loads(archive.read("schema.json"))
    return [
        (f"{node['__module__']}.{node['__class__']}", _is_allowed(node))
        for node in _nodes(schema)
        if "__loader__" in node
    ]


def _is_allowed(node: dict[str, Any]) -> bool:
    if node["__loader__"] == "CachedNode":  # an object that stands elsewhere in the file
        return True
    return node["__class__"] in _TYPES.get(node["__loader__"], {}).get(node["__module__"], ())


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nodes(child)
