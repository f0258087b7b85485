"""Models on disk: one file with a header anyone can read and a payload that cannot execute anything.

::

    crcen model, format 3
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
import zlib
from pathlib import Path
from typing import Any

from crcen._support.files import check_writable, write_atomic
from crcen._support.text import printable
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.files.known_types import TYPES, Unfit, find_type, is_known
from crcen.files.manifest import ModelInfo, check_manifest, innermost, manifest_of
from crcen.files.packing import Unpackable, pack, unpack
from crcen.files.trial import answers_a_row

__all__ = ["FORMAT", "ModelInfo", "load", "model_info", "save"]

FORMAT = 3
_TITLE = "crcen model, format "

# What a payload may grow to, so that a small file cannot fill the memory. What compresses better is stored as it is.
_GROWTH, _SPARE = 4, 1 << 20

# What a file may hold as its model; the other listed types may be parts of it.
_MODELS = (
    *("TableClassifier", "CRCENClassifier", "CRCENClassifierCV", "CommitteeClassifier", "CSMLPClassifier"),
    *("ModuleClassifier", "MovedThresholdClassifier"),
)
_AROUND = ("PosteriorCorrection", "Pipeline")


def save(model: Any, path: str | Path) -> Path:
    """Write a fitted model to a file, whole or not at all.

    Parameters
    ----------
    model : TableClassifier, CRCENClassifier and its relatives, PosteriorCorrection, or Pipeline of scikit-learn
        Fitted, for two classes; nothing of Torch is in it. The parts of the last two must be known: classifiers of this
        package, logistic regression, scalers, imputers, encoders of categories, column transformers.
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
    name = type(model).__name__
    if not _is_model(model):
        raise InvalidParameter(
            f"save takes TableClassifier, CRCENClassifier and its relatives, PosteriorCorrection and pipelines of "
            f"scikit-learn: got {name}."
        )
    if not _is_fitted(model):
        raise InvalidParameter(f"this {name} is not fitted yet; call fit first.")
    n_classes = len(getattr(model, "classes_", ()))
    if n_classes != 2 and (n_classes < 2 or innermost(model, "weighting_", None) is None):
        raise InvalidParameter(f"save takes classifiers of two classes, or ours of more: this {name} is none.")
    _check_members(model)
    check_writable(path)
    if hasattr(model, "without_code"):
        model = model.without_code()
    try:
        tree, data = pack(model)
        unpack(tree, data)
    except Unpackable as error:
        raise InvalidParameter(
            f"this {name} holds {error}, which a model file may not; use {_advice(error)}."
        ) from error
    except Unfit as error:
        raise InvalidParameter(f"this {name} holds {error}, which a model file may not.") from error
    body = json.dumps(manifest_of(model)).encode() + b"\n" + _payload(tree, data)
    title = f"{_TITLE}{FORMAT}\n".encode()
    write_atomic(path, title + hashlib.sha256(title + body).hexdigest().encode() + b"\n" + body)
    return Path(path)


def load(path: str | Path, *, module: Any = None) -> Any:
    """Read a model that `save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        The file.
    module : nn.Module, or what makes one
        For a saved `ModuleClassifier`, of which the file holds arrays alone.

    Returns
    -------
    fitted classifier
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
    if not _is_model(model):
        raise InvalidInput(f"{path} was not loaded: it holds a {type(model).__name__}, not a model of crcen.")
    if (module is None) is hasattr(model, "around"):
        raise InvalidParameter(
            f"{path} holds the arrays of a module, not its code: give load the module or what makes it, module=..."
            if module is None
            else f"module is for a saved ModuleClassifier: {path} holds a {type(model).__name__}."
        )
    try:
        if module is not None:
            model.around(module)
        answers_a_row(model)
        manifest_of(model)
    except InvalidParameter:
        raise
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
        check_manifest(manifest)
        return ModelInfo(format=format_version, **manifest)
    except Exception as error:  # whatever a forged file can think of
        raise DataUnavailable(f"{path} is altered: its manifest cannot be read.") from error


def _is_model(model: Any) -> bool:
    return any(type(model) is find_type(name) for name in (*_MODELS, *_AROUND) if name == type(model).__name__)


def _is_fitted(model: Any) -> bool:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


def _check_members(model: Any) -> None:
    """Refuse a committee with a classifier of another library: such a member says so itself, by its name."""
    inside: Any = model
    while inside is not None:
        for member in getattr(getattr(inside, "ensemble_", None), "members", ()):
            if not is_known(type(member)):
                member.arrays()
        inside = inside.steps[-1][1] if hasattr(inside, "steps") else getattr(inside, "estimator_", None)


def _advice(error: Unpackable) -> str:
    """What could stand in the place of what was refused."""
    if error.what.startswith("sklearn.") and not error.what.startswith("sklearn.metrics"):
        parts = [name for home, names in TYPES.items() if home.startswith("sklearn.") for name in names]
        return f"parts of these kinds: {', '.join([*_MODELS[1:], *parts])}"
    return "names of scores, whole numbers as seeds and splitters of scikit-learn as parameters"


def _reason(error: Exception) -> str:
    return printable(" ".join(f"{type(error).__name__}: {error}".split()))[:160]


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
