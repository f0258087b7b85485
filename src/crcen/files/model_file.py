"""Model files: title, SHA-256 of all other bytes, manifest (one line of JSON), sizes, and a compressed payload.

Loading creates objects of the types listed in `registry` only. The checksum detects damage, not forgery: so sizes are
checked before anything is created, and a loaded model must predict artificial rows. `docs/model-files.md` lists what a
file reveals about its training rows.
"""

import hashlib
import json
import platform
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from crcen._support.extras import installed_versions
from crcen._support.files import check_writable, write_atomic
from crcen._support.lazy import import_with_lazy, pd
from crcen._support.text import attributes, json_value, printable
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter, MissingExtra
from crcen.files.payload import NotStorable, pack, unpack
from crcen.files.registry import TYPES, InvalidState, find_type, fits, is_known
from crcen.theory.rows import Estimator, ShownInOneLine

FORMAT = 9
_TITLE = "crcen model, format "

# Limits the size of a decompressed payload. Content that compresses better is stored uncompressed.
_GROWTH, _SPARE = 4, 1 << 20
_TRIAL_ROWS = 3

# Types that a file may hold as its model; the other listed types may only be parts.
_MODELS = (
    *("TableClassifier", "CRCENClassifier", "CRCENClassifierCV", "CommitteeClassifier", "CSMLPClassifier"),
    *("ModuleClassifier", "MovedThresholdClassifier"),
)
_WRAPPERS = ("PosteriorCorrection", "Pipeline")
_PARTS = [name for module, names in TYPES.items() if module.startswith("sklearn.") for name in names]
_SETTINGS = "names of scores and integers as seeds"
_PACKAGES = ("crcen", "numpy", "scikit-learn", "torch", "pandas")

Label = str | int | float | bool | None


@dataclass(frozen=True, repr=False)
class ModelInfo(ShownInOneLine):
    """The header of a model file; reading it creates no object of the file.

    ``positive`` is None for more than two classes. ``weighting`` holds ``lam``, ``alpha``, ``cost_ratio``,
    ``threshold``, ``n_pos`` and ``n_neg``; for more than two classes ``class_weights`` and ``class_counts``, in the
    order of ``classes``; None for a pipeline without a price. ``columns`` have name, kind and ``has_missing``;
    ``dropped`` ones name and reason. ``clusters`` is the column that kept rows together in validation.
    """

    format: int
    model: str
    created: str
    python: str
    versions: dict[str, str]
    classes: list[Label]
    positive: Label
    target: str | None
    clusters: str | None
    weighting: dict[str, float | list[float]] | None
    columns: list[dict[str, str | bool | int]]
    dropped: list[dict[str, str]]

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        import jinja2  # only here: loading a model needs no template

        text = resources.files("crcen.files").joinpath("model_info.txt.j2").read_text(encoding="utf-8")
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        environment.finalize = lambda value: printable(str(value))  # no value may write control characters
        return environment.from_string(text).render(info=self, kinds=Counter(str(one["kind"]) for one in self.columns))


def save(model: Estimator, path: str | Path) -> Path:
    """Write a fitted model to a file atomically.

    Parameters
    ----------
    model : TableClassifier, CRCENClassifier and related classifiers, PosteriorCorrection, or scikit-learn Pipeline
        Fitted. Parts of the last two must be classifiers of this package, logistic regression, scalers, imputers,
        category encoders or column transformers.
    path : str or Path
        The file, which is also returned; an existing one is replaced.

    Raises
    ------
    InvalidParameter
        If it is not a model of this package, is not fitted, or has a part that cannot be saved, such as a function.
    DataUnavailable
        If the file cannot be written.
    """
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    name = type(model).__name__
    if not _is_model(model):
        allowed = "classifiers of this package, PosteriorCorrection and pipelines of scikit-learn"
        raise InvalidParameter(f"save takes {allowed}: got {name}.")
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InvalidParameter(f"this {name} is not fitted yet; call fit first.") from error
    n_classes = len(getattr(model, "classes_", ()))
    if n_classes != 2 and (n_classes < 2 or _inner_attribute(model, "weighting_", None) is None):
        allowed = "pipelines that end in a classifier of two classes, or in one of this package"
        raise InvalidParameter(f"save takes {allowed}: got a {name} of {n_classes} classes.")
    ensembles = [getattr(one, "ensemble_", None) for one in _chain(model)]
    for member in (member for one in ensembles for member in getattr(one, "members", ())):
        if not is_known(type(member)):
            member.arrays()  # of another library: raises an error with its name
    check_writable(path)
    model = model.without_code() if hasattr(model, "without_code") else model
    try:
        tree, data = pack(model)
        unpack(tree, data)
    except (NotStorable, InvalidState) as error:
        message = f"this {name} holds {error}, which a model file may not"
        raise InvalidParameter(f"{message}; use {', '.join((*_MODELS[1:], *_PARTS))}, and {_SETTINGS}.") from error
    created, python = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"), platform.python_version()
    writer = {"created": created, "python": python, "versions": installed_versions(_PACKAGES)}
    body = json.dumps(_manifest(model) | writer).encode() + b"\n" + _compress(tree, data)
    title = f"{_TITLE}{FORMAT}\n".encode()
    write_atomic(path, title + hashlib.sha256(title + body).hexdigest().encode() + b"\n" + body)
    return Path(path)


def load(path: str | Path, *, module: Any = None) -> Estimator:
    """Read a fitted model as `save` wrote it; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        The file.
    module : nn.Module, or a callable that creates one
        For a saved `ModuleClassifier`: its file holds arrays only.

    Raises
    ------
    DataUnavailable
        If the file is missing, truncated, altered, or of another format.
    InvalidInput
        If it is not a model file, or contains something that is not part of a model.
    MissingExtra
        If the model needs a package that is not installed.
    """
    _, body = _read(Path(path))
    # Models that predict dicts need none of these, and importing them takes long.
    import_with_lazy("sklearn.base", "pandas", "scipy.linalg", "scipy.sparse.csgraph", "scipy.sparse.linalg")
    try:
        model: Any = unpack(*_decompress(body.partition(b"\n")[2]))
    except InvalidState as error:
        message = f"it holds {printable(str(error))}; it was altered, or written by another version of crcen"
        raise InvalidInput(f"{path} was not loaded: {message}.") from error
    except MissingExtra:
        raise
    except Exception as error:  # whatever a forged file causes
        raise DataUnavailable(f"{path} is altered: its payload cannot be read ({_reason(error)}).") from error
    if not _is_model(model):
        raise InvalidInput(f"{path} was not loaded: it holds a {type(model).__name__}, not a model of crcen.")
    if (module is None) is hasattr(model, "around"):
        needed = f"{path} holds the arrays of a module, not its code: give load the module, or a factory, as module=..."
        surplus = f"module is for a saved ModuleClassifier: {path} holds a {type(model).__name__}."
        raise InvalidParameter(needed if module is None else surplus)
    try:
        if module is not None:
            model.around(module)
        _check_answers(model)
        _manifest(model)
    except (InvalidParameter, MissingExtra):
        raise
    except Exception as error:
        message = f"its parts do not fit together or are of another version ({_reason(error)})"
        raise InvalidInput(f"{path} was not loaded: {message}; `crcen info` shows the versions.") from error
    return model


def model_info(path: str | Path) -> ModelInfo:
    """Read the header of a model file (versions, price, classes, columns) without creating the model."""
    version, body = _read(Path(path))
    try:
        manifest = {"format": version, **json.loads(body.partition(b"\n")[0])}
        json.dumps(manifest, ensure_ascii=False).encode()  # rejects halves of surrogate pairs
        info, hints = ModelInfo(**manifest), get_type_hints(ModelInfo)
        if not all(fits(value, hints[name]) for name, value in manifest.items()) or not str(info):
            raise ValueError
        return info
    except Exception as error:  # whatever a forged file causes
        raise DataUnavailable(f"{path} is altered: its manifest cannot be read.") from error


def _is_model(model: object) -> bool:
    return any(type(model) is find_type(name) for name in (*_MODELS, *_WRAPPERS) if name == type(model).__name__)


def _chain(model: Estimator) -> Iterator[Estimator]:
    """A model, and the classifiers inside a pipeline, table or correction."""
    while model is not None:
        yield model
        steps = getattr(model, "steps", None)
        model = steps[-1][1] if steps else getattr(model, "estimator_", None)


def _inner_attribute(model: Estimator, name: str, default: Any) -> Any:
    """An attribute of a model, or of the classifier inside."""
    return next((getattr(one, name) for one in _chain(model) if hasattr(one, name)), default)


def _reason(error: Exception) -> str:
    return printable(" ".join(f"{type(error).__name__}: {error}".split()))[:160]


def _most(length: int) -> int:
    return _GROWTH * length + _SPARE


def _compress(tree: bytes, data: bytes) -> bytes:
    """Sizes and content, compressed if `_decompress` accepts the ratio."""
    content, is_compressed = zlib.compress(tree + data, 6), True
    if len(tree) + len(data) > _most(len(content)):
        content, is_compressed = tree + data, False
    sizes = {"tree": len(tree), "data": len(data), "is_compressed": is_compressed}
    return json.dumps(sizes).encode() + b"\n" + content


def _decompress(payload: bytes) -> tuple[bytes, bytes]:
    """The tree and the bytes. Sizes out of proportion to the file are rejected before anything is allocated."""
    line, _, content = payload.partition(b"\n")
    sizes = json.loads(line) if len(line) < 200 else None
    if not isinstance(sizes, dict) or set(sizes) != {"tree", "data", "is_compressed"}:
        raise ValueError("no sizes")
    n_tree, n_data = sizes["tree"], sizes["data"]
    if any(type(size) is not int or size < 0 for size in (n_tree, n_data)) or n_tree + n_data > _most(len(content)):
        raise ValueError("sizes out of proportion")
    if sizes["is_compressed"]:
        stream = zlib.decompressobj()
        content = stream.decompress(content, n_tree + n_data + 1)
        if not stream.eof or stream.unused_data:
            raise ValueError("wrong size")
    if len(content) != n_tree + n_data:
        raise ValueError("wrong size")
    return content[:n_tree], content[n_tree:]


def _read(path: Path) -> tuple[int, bytes]:
    """The format, and everything after the checksum, which is correct."""
    try:
        with open(path, "rb") as file:
            first = file.readline(80)
            title = first.decode("ascii", errors="replace").strip()
            if not title.startswith(_TITLE) or not title.removeprefix(_TITLE).isdecimal():
                raise InvalidInput(f"{path} is not a model file of crcen: its first line is not {_TITLE.strip()!r}.")
            version = int(title.removeprefix(_TITLE))
            if version != FORMAT:
                advice = "update crcen" if version > FORMAT else "fit and save the model again"
                raise DataUnavailable(f"{path} has format {version}, this crcen reads format {FORMAT}; {advice}.")
            checksum, body = file.readline(80).strip(), file.read()
    except FileNotFoundError as error:
        raise DataUnavailable(f"{path} does not exist; check the name.") from error
    except DataUnavailable:  # an OSError, too
        raise
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    if hashlib.sha256(first + body).hexdigest().encode() != checksum:
        raise DataUnavailable(f"{path} is truncated or altered: its checksum does not match; copy it again.")
    return version, body


def _manifest(model: Estimator) -> dict[str, object]:
    price = getattr(model, "price_", None)
    price = _inner_attribute(model, "weighting_", None) if price is None else price
    columns, dropped = _columns(model)
    weighting: dict[str, object] | None = None
    if price is not None:
        names = "lam alpha cost_ratio threshold n_pos n_neg"
        weighting = attributes(
            price, names if price.positive is not None else "class_weights=weights class_counts=counts"
        )
    has_positive = len(model.classes_) == 2 and getattr(price, "positive", 1) is not None
    return {
        "model": type(model).__name__,
        "classes": json_value(model.classes_),
        "positive": json_value(_inner_attribute(model, "pos_label_", model.classes_[1])) if has_positive else None,
        "target": _inner_attribute(model, "target_name_", None),
        "clusters": _inner_attribute(model, "clusters_name_", None),
        "weighting": weighting,
        "columns": columns,
        "dropped": dropped,
    }


def _columns(model: Estimator) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    table = _table_of(model)
    if table is not None:
        # Without notes, which may quote cells.
        found = [{k: v for k, v in column.describe().items() if k != "note"} for column in table.columns_]
        return found, [asdict(one) for one in table.dropped_]
    names = getattr(model, "feature_names_in_", None)
    names = range(int(model.n_features_in_)) if names is None else names
    members = getattr(getattr(model, "ensemble_", None), "members", ())
    indicators = [getattr(getattr(one, "encoding", None), "indicators", None) for one in members]
    missing = {int(number) for numbers in indicators if numbers is not None for number in numbers}
    kind = "number" if hasattr(model, "ensemble_") else "any"
    return [{"name": str(name), "kind": kind, "has_missing": i in missing} for i, name in enumerate(names)], []


def _table_of(model: Estimator) -> Estimator | None:
    """The `TableClassifier` that a model is or corrects."""
    return next((one for one in (model, getattr(model, "estimator_", None)) if hasattr(one, "columns_")), None)


def _check_answers(model: Any) -> None:
    """Raise an error unless a model gives probabilities and decisions for artificial rows."""
    from crcen.tables.profile import NewRows

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        rows = _artificial_rows(model)
        probabilities = np.asarray(model.predict_proba(rows), dtype=np.float64)
        decisions = np.asarray(model.predict(rows))
        if hasattr(model, "profile_"):
            new = NewRows(model.profile_, model.columns_)
            new.add(model.encode(rows))
            new.differences(n_alarms=1)
        if hasattr(model, "fingerprint_"):
            model.fingerprint_.judge(*model.fingerprint_.compare(np.zeros(_TRIAL_ROWS, dtype=np.uint64)))
        if hasattr(model, "background_"):
            typical = np.asarray(model.estimator_.predict_proba(model.background_))
            if not len(typical) or not np.isfinite(typical).all():
                raise ValueError("invalid background rows")
    is_probability = (probabilities >= 0) & (probabilities <= 1)
    if probabilities.shape != (_TRIAL_ROWS, len(model.classes_)) or not is_probability.all():
        raise ValueError("invalid probabilities")
    for part in (model, getattr(model, "estimator_", model)):
        labels = list(part.classes_)
        if len(labels) < 2 or getattr(part, "pos_label_", labels[0]) not in labels:
            raise ValueError("invalid labels")
    allowed = [*model.classes_, *getattr(getattr(model, "costs_", None), "actions", ())]
    if decisions.shape != (_TRIAL_ROWS,) or not all(one in allowed for one in decisions.tolist()):
        raise ValueError("decisions that are no labels")


def _artificial_rows(model: Any) -> Any:
    """Rows like those of training, as far as the state of the model describes them."""
    if hasattr(model, "row_shape_"):
        return np.zeros((_TRIAL_ROWS, *model.row_shape_), dtype=np.int64 if model.has_whole_rows_ else np.float64)
    table, names = _table_of(model), getattr(model, "feature_names_in_", None)
    columns = range(model.n_features_in_) if names is None else names
    labels = {} if table is not None else dict(_known_categories(model, columns))
    if table is None and names is None and not labels:
        return np.zeros((_TRIAL_ROWS, len(columns)))
    if table is not None:
        cells = {one.name: (None, *_artificial_cells(one)) for one in table.columns_}
        return [{name: own[i] for name, own in cells.items()} for i in range(_TRIAL_ROWS)]  # without pandas
    frame = pd.DataFrame(0.0, range(_TRIAL_ROWS), columns, dtype=object if names is None else None)
    for name, label in labels.items():
        frame[name] = label
    return frame.to_numpy() if names is None else frame


def _known_categories(part: Any, columns: Iterable[Any]) -> Iterator[tuple[Any, object]]:
    """A training category for each column whose first step, apart from imputers, is a category encoder."""
    columns = list(columns)
    if hasattr(part, "categories_"):
        yield from ((column, found[0]) for column, found in zip(columns, part.categories_, strict=True) if len(found))
    elif type(part).__name__ == "PosteriorCorrection":
        yield from _known_categories(part.estimator_, columns)
    elif hasattr(part, "transformers_"):
        for _, inner, chosen in part.transformers_:
            if not isinstance(inner, str) and isinstance(chosen, list):
                yield from _known_categories(inner, [columns[one] if isinstance(one, int) else one for one in chosen])
    elif hasattr(part, "steps"):
        for _, step in part.steps:
            yield from _known_categories(step, columns)
            if not hasattr(step, "statistics_"):  # another step may change the columns
                return


def _artificial_cells(column: Any) -> tuple[object, object]:
    if column.kind == "category":
        return (*column.categories, "another")[0], "an unseen category"
    if column.kind == "date":
        return (datetime(2024, 2, 29, tzinfo=UTC).strftime(column.date_format or "%Y-%m-%d"),) * 2
    return ("some words", "") if column.kind == "text" else ("1", "0")
