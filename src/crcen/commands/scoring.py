"""Probabilities of a table's rows, chunk by chunk, and how the rows compare with those of training."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, TableClassifier
from crcen._support.progress import counted
from crcen._support.text import missing_columns
from crcen.commands.inputs import Source, labels_as
from crcen.tables.fingerprint import RowDigest, row_hashes
from crcen.tables.identifiers import why_repeating
from crcen.theory.price import Price

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CHUNK_ROWS",
    "RowWatch",
    "ScoredTable",
    "model_rows",
    "score_frame",
    "score_table",
    "scored_chunks",
    "unlike_lines",
]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]
Hashes = NDArray[np.uint32]

CHUNK_ROWS = 50_000
_KINDS = {
    "unseen": "categories that training did not have were ignored",
    "unreadable": "cells of another kind than in training were taken as missing",
    "missing": "cells are missing where none was in training, and were filled",
    "clipped": "values far outside of the training range were clipped",
}


def model_rows(model: Any, frame: "pd.DataFrame", ignored: set[str]) -> Any:
    """The columns of a table that a model takes, of a type that it takes; one sentence if columns are missing."""
    is_table = isinstance(model, TableClassifier)
    names = [column.name for column in model.columns_] if is_table else getattr(model, "feature_names_in_", None)
    names = [name for name in frame.columns if name not in ignored] if names is None else list(names)
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise missing_columns(absent, len(names), frame.columns)
    if is_table:
        return frame[names]
    numbers = frame[names].apply(_as_numbers)
    return numbers if hasattr(model, "feature_names_in_") else numbers.to_numpy()


def _as_numbers(cells: "pd.Series") -> "pd.Series":
    import pandas as pd

    try:
        return pd.to_numeric(cells)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the model takes numbers: column {cells.name} holds other values.") from error


def unlike_lines(unlike: Sequence[Any]) -> list[str]:
    """Differences from training as lines of text."""
    return [
        *(["Unlike training, more than chance allows:"] if unlike else []),
        *(f"  {one.sentence}" for one in unlike),
    ]


class RowWatch:
    """Compares rows with the training profile and fingerprint of a model, and counts cells it was not prepared for.

    Parameters
    ----------
    model : fitted classifier
        A model without a profile, such as a network on plain numbers, cannot compare.
    recognises : bool
        Whether to look for training rows too.
    keeps_hashes : bool
        Whether to keep a hash of each row.
    clusters : str, optional
        Column of rows that belong together: at most one row of each cluster is compared with the profile.
    """

    def __init__(
        self, model: Any, *, recognises: bool = False, keeps_hashes: bool = False, clusters: str | None = None
    ) -> None:
        self._clusters, self._seen = clusters, set[Any]()
        self._model = model
        # Columns whose rare and new values share an input: a new value there is no oddity by itself.
        self._pooled = {one.name for one in getattr(model, "columns_", ()) if getattr(one, "has_other", False)}
        profile = getattr(model, "profile_", None)
        self._rows = None if profile is None else profile.new_rows(model.columns_)
        self._fingerprint = getattr(model, "fingerprint_", None) if recognises else None
        self._compared: list[tuple[Any, Any]] = []
        self._cells: dict[str, dict[str, int]] = {kind: {} for kind in _KINDS}
        self._extra: tuple[str, ...] = ()
        self._hashes: list[NDArray[np.uint64]] | None = [] if keeps_hashes else None

    def add(self, frame: "pd.DataFrame", encoded: Any, ignored: set[str]) -> None:
        """Count a chunk: the rows, and what the model's encoder made of them."""
        if self._rows is not None and self._clusters is None:
            self._rows.add(encoded)
        elif self._rows is not None:
            one_each = frame[self._one_each(frame[self._clusters])]
            if len(one_each):
                self._rows.add(self._model.encode(one_each))
        if self._fingerprint is not None:
            self._compared.append(self._fingerprint.compare(self._model.row_hashes(frame, encoded)))
        if self._hashes is not None:
            self._hashes.append(row_hashes(self._model.columns_, frame, encoded.X, 0))
        for kind, counts in self._cells.items():
            for name, number in getattr(encoded, kind).items():
                if kind != "unseen" or name not in self._pooled:
                    counts[name] = counts.get(name, 0) + number
        self._extra = tuple(name for name in encoded.extra if name not in ignored)

    def _one_each(self, cells: "pd.Series") -> Bools:
        """Rows of which no two are of one cluster, each row with the same probability; known clusters are left out."""
        rng, new = np.random.default_rng(len(self._seen)), ~cells.isin(self._seen).to_numpy()
        _, which, sizes = np.unique(cells.astype(str).to_numpy(), return_inverse=True, return_counts=True)
        self._seen.update(cells.unique())
        order = rng.permutation(len(cells))
        _, first = np.unique(which.ravel()[order], return_index=True)  # a random row of each cluster
        chosen = np.zeros(len(cells), dtype=bool)
        chosen[order[first]] = rng.random(len(sizes)) < sizes / sizes.max()
        return np.asarray(chosen & new)

    def hashes(self, y: Index, p: Array) -> Hashes:
        """A hash of 32 bits of each row's inputs and label; of its probabilities for a model without columns."""
        if not self._hashes:
            rows = np.ascontiguousarray(p).view(np.uint64)
            mixed = np.zeros(len(p), dtype=np.uint64)
            for column in rows.T:
                mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        else:
            mixed = np.concatenate(self._hashes)
        mixed = (mixed ^ (y + 1).astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        return (mixed >> np.uint64(32)).astype(np.uint32)

    @property
    def notes(self) -> list[str]:
        """A sentence for each kind of cell or column that training did not prepare for."""
        notes = []
        if self._rows is None and hasattr(self._model, "columns_"):
            notes.append("this model keeps no profile of its training rows, so that these were not compared with them")
        for kind, counts in self._cells.items():
            if counts:
                named = ", ".join(f"{name} {number:,}" for name, number in counts.items())
                notes.append(f"{_KINDS[kind]}: {named} rows")
        if self._extra:
            shown = ", ".join(self._extra[:5]) + (" and more" if len(self._extra) > 5 else "")
            notes.append(f"columns that training did not have were ignored: {len(self._extra)} ({shown})")
        return notes

    def unlike(
        self, n_alarms: int | None = None, price: Price | None = None, error_rate: float | None = None
    ) -> tuple[Any, ...]:
        """Differences from training beyond chance; of alarms too, if they were counted on all these rows at a price."""
        if self._rows is None:
            return ()
        threshold = 0.0
        if price is None or price.positive is None or self._clusters is not None:
            n_alarms = None
        else:
            threshold = math.log(price.threshold) - math.log1p(-price.threshold)
        options = {} if error_rate is None else {"error_rate": error_rate}
        return tuple(self._rows.differences(n_alarms, threshold, **options))

    def recognition(self, numbers: Any = None, is_labelled: Any = None) -> Any:
        """Whether these are training rows; None for a model without a fingerprint.

        Parameters
        ----------
        numbers : int array of shape (n labelled,), optional
            Class numbers of the rows with a label: whether training rows among them depend on it.
        is_labelled : bool array of shape (n,), optional
            Which rows have a label; the others are left out.
        """
        if self._fingerprint is None:
            return None
        can, matches = (np.concatenate([chunk[i] for chunk in self._compared]) for i in range(2))
        if is_labelled is not None:
            can, matches = can[is_labelled], matches[is_labelled]
        return self._fingerprint.judge(can, matches, numbers, self._model.classes_.tolist())


def score_frame(model: Any, frame: "pd.DataFrame", ignored: set[str]) -> Array:
    """Probabilities of every class for rows in memory, (n, K)."""
    return np.asarray(model.predict_proba(model_rows(model, frame, ignored)), dtype=np.float64)


def scored_chunks(
    model: Any, source: Source, watch: RowWatch, ignored: set[str], chunk_rows: int = CHUNK_ROWS
) -> "Iterator[tuple[pd.DataFrame, Array]]":
    """Yield each chunk of a source with the probability of every class, (n, K); a source without rows is rejected."""
    is_empty = True
    for chunk in source.chunks(chunk_rows):
        if not len(chunk):
            continue
        is_empty = False
        if isinstance(model, TableClassifier):
            encoded = model.encode(chunk)
            watch.add(chunk, encoded, ignored)
            yield chunk, model.estimator_.predict_proba(encoded.X)
        else:
            yield chunk, model.predict_proba(model_rows(model, chunk, ignored))
    if is_empty:
        raise InvalidInput(f"{source.name} has no rows.")


@dataclass(frozen=True, eq=False)
class ScoredTable:
    """Rows of a table with probabilities and, if known, labels.

    Parameters
    ----------
    y : int64 array of shape (n,)
        Class numbers, −1 for rows without a label.
    p : float64 array of shape (n, K)
        Natural probabilities.
    watch : RowWatch
        How the rows compare with those of training.
    columns : dict of str to Series
        Other columns of the same rows.
    notes : list of str
        About the table.
    """

    y: Index
    p: Array
    watch: RowWatch
    columns: "dict[str, pd.Series]" = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def hashes(self) -> Hashes:
        """A hash of the inputs and the label of each row."""
        return self.watch.hashes(self.y, self.p)

    @property
    def frame(self) -> "pd.DataFrame":
        """The kept columns of all rows."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    @property
    def is_labelled(self) -> Bools:
        """Rows with a label."""
        return np.asarray(self.y >= 0)

    def labelled(self, name: str) -> "pd.Series":
        """A column of the rows with a label."""
        return self.columns[name][self.is_labelled]


def _repeating_notes(model: Any, frame: "pd.DataFrame", ignored: set[str]) -> list[str]:
    """A statement if rows may depend on each other: a column with clusters of training, or like an identifier."""
    name = getattr(model, "clusters_name_", None)
    if name is None or name not in frame.columns:
        kinds = {str(one): "number" if frame[one].dtype.kind in "iuf" else "text" for one in frame.columns}
        names = [one for one, kind in kinds.items() if one not in ignored and why_repeating(one, frame[one], kind)]
        name = names[0] if names else None
    if name is None:
        return []
    return [f"{name} repeats like an identifier, and tests assume independent rows: use --clusters {name}"]


def score_table(
    model: Any,
    source: Source,
    target: str | None,
    columns: Sequence[str] = (),
    verbose: int = 0,
    *,
    recognises: bool = False,
    keeps_hashes: bool = False,
    clusters: str | None = None,
    digest: RowDigest | None = None,
) -> ScoredTable:
    """Score all rows of a table.

    Parameters
    ----------
    model, source
        A fitted classifier, and the table.
    target : str or None
        Column with the labels; cells may be missing.
    columns : sequence of str
        Further columns to keep.
    verbose : int
        1 shows progress on a terminal.
    recognises : bool
        Whether to look for training rows.
    keeps_hashes : bool
        Whether to keep a hash of each row.
    clusters : str, optional
        Column of rows that belong together, as in `RowWatch`.
    digest : RowDigest, optional
        Takes every row.
    """
    import pandas as pd

    watch, names = (
        RowWatch(model, recognises=recognises, keeps_hashes=keeps_hashes, clusters=clusters),
        tuple(dict.fromkeys(columns)),
    )
    numbers: list[Index] = []
    scores: list[Array] = []
    kept: list[pd.DataFrame] = []
    repeating: list[str] | None = None if clusters is None else []
    ignored = {*names} if target is None else {target, *names}
    with counted("rows", source.n_rows, visible=bool(verbose)) as done:
        for chunk, p in scored_chunks(model, source, watch, ignored):
            y = np.full(len(p), -1, dtype=np.int64)
            if target is not None:
                known = chunk[target].notna().to_numpy()
                y[known] = labels_as(chunk[target][known], model.classes_, target)
            if digest is not None:
                digest.add(chunk)
            numbers.append(y)
            scores.append(p)
            kept.append(chunk[list(names)])
            repeating = _repeating_notes(model, chunk, ignored) if repeating is None else repeating
            done(len(p))
    frame = pd.concat(kept, ignore_index=True)
    found = {name: frame[name] for name in names}
    notes = [*source.notes, *watch.notes, *(repeating or [])]
    return ScoredTable(np.concatenate(numbers), np.concatenate(scores), watch, found, notes)
