"""Probabilities of a table's rows, chunk by chunk, and what was odd about the rows on the way."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, TableClassifier
from crcen._support.progress import counted
from crcen.commands.inputs import Source, labels_as
from crcen.commands.model_rows import model_rows
from crcen.commands.row_watch import RowWatch
from crcen.theory.labels import Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

__all__ = ["CHUNK_ROWS", "Oddities", "class_chunks", "labelled_scores", "scored_chunks"]

Array = NDArray[np.float64]

CHUNK_ROWS = 50_000


@dataclass
class Oddities:
    """Cells and columns that training did not prepare for, counted over chunks."""

    unseen: dict[str, int]
    unreadable: dict[str, int]
    missing: dict[str, int]
    clipped: dict[str, int]
    watch: RowWatch
    extra: tuple[str, ...] = ()

    @classmethod
    def none(cls, model: Any, *, recognises: bool = False) -> "Oddities":
        """Nothing odd yet; whether to look for training rows too."""
        return cls({}, {}, {}, {}, RowWatch(model, recognises=recognises))

    def add(self, frame: "pd.DataFrame", encoded: Any, ignored: set[str]) -> None:
        """Count those of a chunk."""
        self.watch.add(frame, encoded)
        for kind in ("unseen", "unreadable", "missing", "clipped"):
            counts = getattr(self, kind)
            for name, number in getattr(encoded, kind).items():
                if kind != "unseen" or name not in self.watch.pooled:
                    counts[name] = counts.get(name, 0) + number
        self.extra = tuple(name for name in encoded.extra if name not in ignored)

    @property
    def notes(self) -> list[str]:
        """A sentence for each kind."""

        def listed(counts: dict[str, int]) -> str:
            return ", ".join(f"{name} {number:,}" for name, number in counts.items())

        said = self.watch.notes
        if self.unseen:
            said.append(f"categories that training did not have were ignored: {listed(self.unseen)} rows")
        if self.unreadable:
            said.append(f"cells of another kind than in training were taken as missing: {listed(self.unreadable)} rows")
        if self.missing:
            said.append(f"cells are missing where none was in training, and were filled: {listed(self.missing)} rows")
        if self.clipped:
            said.append(f"values far outside of the training range were clipped: {listed(self.clipped)} rows")
        if self.extra:
            shown = ", ".join(self.extra[:5]) + (" and more" if len(self.extra) > 5 else "")
            said.append(f"columns that training did not have were ignored: {len(self.extra)} ({shown})")
        return said


def _probabilities(model: Any, frame: "pd.DataFrame", odd: Oddities, ignored: set[str]) -> Array:
    """Posteriors (n, K) of a chunk, its oddities counted."""
    if not isinstance(model, TableClassifier):
        return model.predict_proba(model_rows(model, frame, ignored))
    encoded = model.encode(frame)
    odd.add(frame, encoded, ignored)
    return model.estimator_.predict_proba(encoded.X)


def class_chunks(
    model: Any, source: Source, odd: Oddities, ignored: set[str], chunk_rows: int
) -> "Iterator[tuple[pd.DataFrame, Array]]":
    """Yield each chunk of a source with the probability of every class; a source without rows is refused."""
    is_empty = True
    for chunk in source.chunks(chunk_rows):
        if len(chunk):
            is_empty = False
            yield chunk, _probabilities(model, chunk, odd, ignored)
    if is_empty:
        raise InvalidInput(f"{source.name} has no rows.")


def scored_chunks(
    model: Any, source: Source, odd: Oddities, ignored: set[str], chunk_rows: int
) -> "Iterator[tuple[pd.DataFrame, Array]]":
    """The same with the probability of the positive class alone."""
    column = Labels.of_model(model).column
    for chunk, p in class_chunks(model, source, odd, ignored, chunk_rows):
        yield chunk, p[:, column]


def labelled_scores(
    chunks: "Callable[..., Iterator[tuple[pd.DataFrame, Array]]]",
    model: Any,
    source: Source,
    target: str,
    verbose: int = 0,
    kept: dict[str, list[Any]] | None = None,
) -> tuple[NDArray[np.int64], Array, Oddities, int]:
    """Class numbers and probabilities of the rows with a label, what was odd, and how many rows have no label.

    Parameters
    ----------
    chunks : callable
        `class_chunks` or `scored_chunks`.
    model, source, target
        What is asked, of which rows, and the column with their labels.
    verbose : int
        1 shows progress on a terminal.
    kept : dict, optional
        Columns named here are collected, chunk by chunk, for the same rows.
    """
    kept = {} if kept is None else kept
    odd, labels, scores, unlabelled = Oddities.none(model, recognises=True), [], [], 0
    with counted("rows", source.n_rows, visible=bool(verbose)) as done:
        for chunk, p in chunks(model, source, odd, {target, *kept}, CHUNK_ROWS):
            known = chunk[target].notna().to_numpy()
            unlabelled += int((~known).sum())
            labels.append(labels_as(chunk[target][known], model.classes_, target))
            scores.append(p[known])
            for name, cells in kept.items():
                cells.append(chunk[name][known])
            done(len(p))
    return np.concatenate(labels), np.concatenate(scores), odd, unlabelled
