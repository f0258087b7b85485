"""fit_files: from a table larger than memory to a saved model, in this process or on a Ray cluster."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from crcen._support.files import check_writable, exclusive_lock
from crcen._support.progress import progress_bar
from crcen._support.text import listed
from crcen._support.values import label_key, plain_labels, rest_of
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.files.model_file import save
from crcen.models.classifier import CRCENClassifier
from crcen.scale.encoded_rows import EncodedRows, FingerprintOfAll, write_encoded
from crcen.scale.ray.fit import fit_ray
from crcen.scale.sources import ArrowSource
from crcen.scale.stream import fit_stream
from crcen.scale.table_survey import SAMPLE_ROWS, LearnedColumns, TableSurvey, learn_columns, survey_table
from crcen.tables.classifier import TableClassifier
from crcen.tables.column_kinds import DroppedColumn
from crcen.tables.columns import BooleanColumn, Column, NumberColumn
from crcen.tables.locations import masked
from crcen.tables.options import ReadOptions
from crcen.tables.parquet import dataset_of, index_columns, kind_of
from crcen.tables.profile import profile_of, training_scores
from crcen.tables.reading import Table, open_table
from crcen.tables.typical import typical_table
from crcen.theory.rows import Shown, in_one_line

__all__ = [
    "FilesFit",
    "fit_files",
    "of_several_classes",
    "price_lines",
    "price_values",
    "row_line",
]

_SHOWN = 12


def of_several_classes(model: Any) -> bool:
    """Whether a fitted model tells more than two classes apart, or decides by costs of several actions."""
    return model.weighting_.positive is None


def row_line(model: Any, target: str) -> str:
    """How many rows there were, and of which classes."""
    weighting = model.weighting_
    if not of_several_classes(model):
        return (
            f"{weighting.n_pos + weighting.n_neg:,.0f} rows, {weighting.n_pos:,.0f} with {target} = "
            f"{model.pos_label_} ({weighting.imbalance_ratio:.3g} negatives per positive)"
        )
    counts, labels = weighting.counts, model.classes_.tolist()
    order = np.argsort(-counts, kind="stable")
    shown = ", ".join(f"{labels[k]} {counts[k]:,.6g}" for k in order[:_SHOWN])
    more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
    return f"{counts.sum():,.0f} rows, {len(labels)} classes of {target}: {shown}{more}"


def price_lines(model: Any) -> list[str]:
    """What decisions are made by."""
    if not of_several_classes(model):
        return [f"Price     a miss is worth {model.weighting_.cost_ratio:.6g} false alarms"]
    if model.costs_ is not None:
        return ["Costs     of every decision for every truth", *(f"  {line}" for line in str(model.costs_).split("\n"))]
    pairs = zip(model.classes_.tolist(), model.weighting_.weights.tolist(), strict=True)
    return [f"Weights   {', '.join(f'{label} {weight:.4g}' for label, weight in pairs)}"]


def price_values(model: Any) -> dict[str, Any]:
    """The same as plain values, ready for JSON."""
    weighting = model.weighting_
    if not of_several_classes(model):
        return {
            "positive": model.pos_label_.item() if hasattr(model.pos_label_, "item") else model.pos_label_,
            "rows": {"positive": weighting.n_pos, "negative": weighting.n_neg},
            "weighting": {"lam": weighting.lam, "alpha": weighting.alpha, "cost_ratio": weighting.cost_ratio},
        }
    return {
        "classes": model.classes_.tolist(),
        "rows": {"all": float(weighting.counts.sum()), "by_class": weighting.counts.tolist()},
        "class_weights": None if model.costs_ is not None else weighting.weights.tolist(),
    }


ENGINES = ("stream", "ray")
_FINGERPRINT_ROWS = 65_536
_MOST_CLASSES = 50  # a target with more values is rather a number or a name than a class


@dataclass(frozen=True, eq=False)
class FilesFit(Shown):
    """A model fitted to files; prints itself.

    Parameters
    ----------
    model : TableClassifier
        Ready to predict; ``.estimator_`` is the network.
    data, target : str
        What it was fitted on.
    engine : str
        What trained it.
    seconds : float
        How long that took.
    path : Path or None
        Where the model was saved.
    notes : tuple of str
        What a person should know.
    """

    model: TableClassifier
    data: str
    target: str
    engine: str
    seconds: float
    path: Path | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        model, network = self.model, self.model.estimator_
        return {
            "data": self.data,
            "target": self.target,
            **price_values(model),
            "columns": [column.describe() for column in model.columns_],
            "dropped": [{"name": one.name, "reason": one.reason} for one in model.dropped_],
            "n_encoded": len(model.encoded_names_),
            "network": {"hidden": list(network.hidden), "l2": network.l2, "epochs": network.n_iter_},
            "key_equation": {"residual": model.key_equation_.residual},
            "loss_curve": network.loss_curve_.tolist(),
            "engine": self.engine,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "path": None if self.path is None else str(self.path),
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        model, network = self.model, self.model.estimator_
        equation = "Key equations" if of_several_classes(model) else "Key equation"
        kinds = [column.kind for column in model.columns_]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        lines = [
            f"{self.data}: {row_line(model, self.target)}",
            f"Columns   {len(model.columns_)} used ({counted}; {len(model.encoded_names_)} inputs), "
            f"{len(model.dropped_)} left out",
            *(f"  {one.name:<20} left out: {one.reason}" for one in model.dropped_),
            *price_lines(model),
            f"Trained   {network.n_iter_} epochs by {self.engine} in {self.seconds:.0f} s; last loss "
            f"{network.loss_curve_[-1]:.5f}",
            f"{equation} on these rows: residual {model.key_equation_.residual:.1e}, by construction.",
            *(f"Note: {note}." for note in self.notes),
            "No row was held out, so nothing here says how good it is: crcen evaluate on other rows does.",
        ]
        if self.path is not None:
            lines.append(f"Saved to {self.path}")
        return "\n".join(lines)


def fit_files(
    data: Any,
    *,
    target: str,
    engine: str = "stream",
    positive: Any = None,
    weighting: Any = "balanced",
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
    epochs: int = 5,
    workers: int = 2,
    storage: str | Path | None = None,
    fingerprint: bool = True,
    random_state: int | None = 0,
    verbose: int = 0,
    out: str | Path | None = None,
    read: ReadOptions | None = None,
    **parameters: Any,
) -> FilesFit:
    """Fit one network to a table in files that need not fit in memory, and save it.

    Columns may hold numbers, truth values, categories, dates, free text and gaps, as in `crcen.TableClassifier`. Unless
    all are numbers without gaps in Parquet files, the encoded rows are written to a scratch folder for the time of the
    fit: about eight bytes a number, less for categories.

    Parameters
    ----------
    data : str, Path, list of them, or data frame
        Anything that `crcen.tables.reading.open_table` takes, also databases and lazy frames.
    target : str
        Column of labels; rows without one are left out.
    engine : {"stream", "ray"}
        In this process (`crcen.fit_stream`), or on a Ray cluster (`crcen.fit_ray`). Columns are learned and encoded in
        this process either way.
    positive : label, optional
        The label to find; default the rarer of two. All others are then ``"not …"``, where there are several. Without
        it 3 to 50 labels are told apart as they are.
    weighting
        As in `crcen.CRCENClassifier`, or a function that makes one of the list of labels.
    drop, keep, categorical : list of str
        Columns to leave out, to use although they look like identifiers, to take as categories.
    epochs : int
        Passes over the rows.
    workers : int
        With Ray: how many train.
    storage : str or Path, optional
        A folder for checkpoints and scratch files: called again with the same data and settings, the fit goes on from
        there. With Ray every machine must see it.
    fingerprint : bool, default=True
        Keep truncated hashes of the training rows, to recognise a file of them.
    random_state, verbose
        As in `crcen.CRCENClassifier`.
    out : str or Path, optional
        Where to save the model.
    read : ReadOptions, optional
        How the table is read.
    **parameters
        Any other parameter of `crcen.fit_stream` or `crcen.fit_ray`, those of the network among them.

    Returns
    -------
    FilesFit
        The model and what there is to say about it.
    """
    if engine not in ENGINES:
        raise InvalidParameter(f"engine must be one of {', '.join(ENGINES)}: got {engine!r}.")
    if out is not None:
        check_writable(out, data)
    start = time.perf_counter()
    table = open_table(data, read)
    if target not in table.columns:
        raise InvalidParameter(f"{table.name} has no column {target!r}; it has {listed(table.columns)}.")
    index = index_columns(table.schema) if table.kind == "parquet" else []
    dropped = _left_out(table, target, drop, keep, categorical, index)
    names = tuple(name for name in table.columns if name != target and name not in dropped)
    if not names:
        raise InvalidInput(f"{table.name} holds no column but {target} to learn from.")
    survey = TableSurvey(names, target, frozenset(categorical), int(random_state or 0), SAMPLE_ROWS)
    with progress_bar("reading the table", visible=bool(verbose)) as show:
        survey_table(table, survey, show)
    labels, positive, notes = _labels(survey, data, positive)
    if callable(weighting):
        weighting = weighting(sorted(set(labels.values())))
    learned = learn_columns(
        survey, keep=keep, categorical=categorical, declared=_categories(table), seed=int(random_state or 0)
    )
    index = [name for name in index if name in dropped]
    notes = [*table.notes, *notes]
    notes += [f"{name} was the index of a pandas data frame and is left out" for name in index]
    if survey.n_unlabelled:
        notes.append(f"{survey.n_unlabelled:,} rows without a value of {target} were left out")
    settings: dict[str, Any] = {
        "epochs": epochs,
        "pos_label": positive,
        "random_state": random_state,
        "verbose": verbose,
        **parameters,
    }
    sample = survey.sample.frame
    memory = FingerprintOfAll(learned.used, sample, _encoded(learned.used, sample))
    with _alone(storage), _rows(table, learned, survey, labels, storage, verbose, memory) as source:
        if engine == "ray":
            settings |= {"num_workers": workers, "storage_path": storage}
            network = fit_ray(source, target, weighting, **settings)
        else:
            checkpoint = None if storage is None else Path(storage) / "stream.checkpoint"
            network = fit_stream(source, target, weighting, checkpoint=checkpoint, **settings)
    how = {"drop": tuple(drop), "keep": tuple(keep), "categorical": tuple(categorical), "random_state": random_state}
    how["fingerprint"] = fingerprint
    model = _table_model(network, table, learned, dropped, target, how)
    encoded = model.encode(sample)
    model.background_ = typical_table(model.columns_, encoded.X)
    model.profile_ = profile_of(model.columns_, sample, encoded, training_scores(network, encoded.X))
    if fingerprint:
        model.fingerprint_ = memory.fingerprint()
    if table.options.to_remember:
        model.read_ = table.options.to_remember
    seconds = time.perf_counter() - start
    path = save(model, out) if out is not None else None
    trained_by = f"{workers} workers of Ray" if engine == "ray" else "one process"
    name = masked(str(data)) if isinstance(data, str | Path) else table.name
    return FilesFit(model, name, target, trained_by, seconds, path, tuple([*notes, *model.notes_, *learned.notes]))


def _categories(table: Table) -> list[str]:
    """Columns that their source declares to be categories."""
    import pyarrow as pa

    return [] if table.schema is None else [one.name for one in table.schema if pa.types.is_dictionary(one.type)]


def _nested(table: Table, target: str) -> list[str]:
    import pyarrow as pa

    fields = [] if table.schema is None else table.schema
    return [one.name for one in fields if pa.types.is_nested(one.type) and one.name != target]


def _left_out(
    table: Table,
    target: str,
    drop: Sequence[str],
    keep: Sequence[str],
    categorical: Sequence[str],
    index: Sequence[str],
) -> dict[str, str]:
    """Columns that are left out unread, and why."""
    for what, names in (("leave out", drop), ("keep", keep), ("take as categories", categorical)):
        unknown = sorted(set(names) - set(table.columns))
        if unknown:
            listed = ", ".join(table.columns[:12])
            raise InvalidParameter(f"there is no column {', '.join(unknown)} to {what}; there are {listed}.")
    index = [name for name in index if name not in {*keep, *categorical}]
    reasons = {
        **dict.fromkeys(_nested(table, target), "holds lists or records, not single values"),
        **dict.fromkeys(index, "the index of a pandas data frame"),
        **dict.fromkeys(drop, "asked for"),
    }
    reasons.pop(target, None)
    return reasons


def _labels(survey: TableSurvey, data: str | Path, positive: Any) -> tuple[dict[Any, Any], Any, list[str]]:
    """What cells of the target stand for; the positive one of two where it was named; what was done to them."""
    target, labels = survey.target, plain_labels(survey.labels)
    classes, notes = sorted(set(labels.values())), []
    if not classes:
        raise InvalidInput(f"{data} has no row with a value of {target}.")
    if positive is not None:
        found = [label for label in classes if label_key(label) == label_key(positive)]
        if not found:
            raise InvalidInput(
                f"positive must be a value of {target}, {listed(classes)}: got {positive!r}.", parameter="positive"
            )
        positive = found[0]
    if len(classes) > 2 and positive is not None:
        labels = {cell: str(label) if label == positive else rest_of(positive) for cell, label in labels.items()}
        positive = str(positive)
        notes.append(f"{target} has {len(classes)} values ({listed(classes)}): {positive} is told from all others")
    elif not 2 <= len(classes) <= _MOST_CLASSES:
        got = f"one, {classes[0]}" if len(classes) == 1 else f"{len(classes)} ({listed(classes)})"
        advice = "rows of another one are needed." if len(classes) == 1 else "name the one to find with positive=."
        raise InvalidInput(f"the target {target} must have 2 to {_MOST_CLASSES} different values: got {got}; {advice}")
    return labels, positive, notes


def _alone(storage: str | Path | None) -> AbstractContextManager[None]:
    """Keep other fits from the same folder, where that can be told: not at an address."""
    if storage is None or "://" in str(storage):
        return nullcontext()
    try:
        Path(storage).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataUnavailable(f"nothing can be kept in {storage}: {error.strerror}.") from error
    return exclusive_lock(storage, instead="give another storage folder")


@contextmanager
def _rows(
    table: Table,
    learned: LearnedColumns,
    survey: TableSurvey,
    labels: Mapping[Any, Any],
    storage: str | Path | None,
    verbose: int,
    memory: FingerprintOfAll,
) -> Iterator[ArrowSource]:
    """What to stream: the files themselves where all is numbers, or the encoded rows in a scratch folder."""
    names = [column.name for column in learned.used]
    is_plain = all(isinstance(one, NumberColumn | BooleanColumn) and not one.has_missing for one in learned.used)
    are_labels = all(cell == label for cell, label in labels.items())
    is_plain = is_plain and are_labels and not survey.n_unlabelled and not table.options.to_remember
    if (
        is_plain
        and table.kind == "parquet"
        and all(kind_of(table.schema.field(name).type) == "number" for name in names)
    ):
        source = ArrowSource(dataset_of(table.parts), survey.target, features=names)
        for block in source.blocks(_FINGERPRINT_ROWS):
            memory.add_chunks(block)
        yield source
        return
    if storage is not None and "://" in str(storage):
        raise InvalidParameter(
            f"storage must be a folder for a table that is not all numbers, since its encoded rows are kept there: got "
            f"{str(storage)!r}.",
            parameter="storage",
        )
    if storage is None:
        folder = Path(tempfile.mkdtemp(prefix="crcen-rows-"))
    else:
        folder = Path(storage) / "rows"
        shutil.rmtree(folder, ignore_errors=True)  # what a killed fit left
        folder.mkdir(parents=True)
    try:
        with progress_bar("encoding the rows", visible=bool(verbose)) as show:
            unreadable = write_encoded(table, learned.used, survey.target, labels, folder, memory.add, show)
        for name, number in unreadable.items():
            learned.notes.append(f"{number:,} cells of {name} are not of its kind and were taken as missing")
        yield EncodedRows(folder, learned.used)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _encoded(columns: Sequence[Column], frame: Any) -> NDArray[np.float64]:
    return np.column_stack([column.encode(frame[column.name]).values for column in columns]).astype(np.float64)


def _table_model(
    network: CRCENClassifier,
    table: Table,
    learned: LearnedColumns,
    dropped: Mapping[str, str],
    target: str,
    how: Mapping[str, Any],
) -> TableClassifier:
    """The network behind the columns that feed it."""
    if hasattr(network, "feature_names_in_"):
        del network.feature_names_in_  # it sees encoded columns, which come as an array
    model = TableClassifier(estimator=clone(network), **how)
    model.feature_names_in_ = np.array([name for name in table.columns if name != target], dtype=object)
    model.n_features_in_ = len(model.feature_names_in_)
    model.columns_ = learned.used
    model.dropped_ = [*(DroppedColumn(name, reason) for name, reason in dropped.items()), *learned.dropped]
    model._take(network, target)
    return model
