"""Results of commands, the JSON files that commands keep between calls, and digests of models."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from crcen import InvalidInput, TableClassifier
from crcen._support.files import exclusive_lock, write_atomic
from crcen._support.text import Values, attributes, reject_constant
from crcen.commands.inputs import FittedModel
from crcen.decisions.monitor import state_digest
from crcen.files.payload import pack
from crcen.theory.rows import Array, Estimator, Index, ShownInOneLine
from crcen.theory.sequential import ConfidenceSequence


class Result(ShownInOneLine):
    """A result whose text is ``str`` and whose ``keys`` name its plain values, as `attributes` takes them."""

    keys: ClassVar[str]

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        return attributes(self, self.keys)


def note_lines(notes: Iterable[str]) -> list[str]:
    """Notes as lines of text."""
    return [f"Note: {note}." for note in notes]


def state_lock(state: str | Path | None, seconds: float = 0.0) -> AbstractContextManager[None]:
    """Hold the lock of a state, if there is one; ``seconds`` is how long to wait for another call."""
    return nullcontext() if state is None else exclusive_lock(state, instead="use another state", seconds=seconds)


def write_state(path: str | Path | None, kind: tuple[str, int], content: Values) -> None:
    """Write a state of a format and version with a digest of its content, if there is a path."""
    if path is not None:
        content = {"format": kind[0], "version": kind[1], **content}
        write_atomic(path, json_text(content | {"digest": state_digest(content)}))


def read_state(path: str | Path, kind: tuple[str, int], what: str) -> Values:
    """The content of a state that `write_state` wrote; a changed file is rejected."""
    content = read_json(path, *kind, f"the state of a {what}")
    if content.pop("digest", None) != state_digest(content):
        raise InvalidInput(f"{path} is a damaged state of a {what}: its digest does not match; start a new one.")
    return {name: value for name, value in content.items() if name not in ("format", "version")}


def json_text(content: Mapping[str, object]) -> str:
    """The one text of a content."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_bytes(path: str | Path) -> bytes:
    """The content of a file; an error states why it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error


def read_json(path: str | Path, form: str, version: int | None, what: str) -> Values:
    """The content of a file of a format and version; an error states what the file should have been."""
    text = read_bytes(path)
    try:
        content = json.loads(text, parse_constant=reject_constant)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (form, version):
        raise InvalidInput(f"{path} is not {what}, in the format that this crcen reads: name another file.")
    return content


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(read_bytes(path)).hexdigest()


def model_digest(model: FittedModel) -> str:
    """A digest of a fitted model: its price, its columns and its parameters."""
    inner: Estimator = model.estimator_ if isinstance(model, TableClassifier) else model
    names = [column.name for column in model.columns_] if isinstance(model, TableClassifier) else []
    ensemble, weights = getattr(inner, "ensemble_", None), model.weighting_.weights
    if ensemble is None:
        rows = getattr(model, "background_", None)
        answers = inner.predict_proba(np.zeros((1, inner.n_features_in_)) if rows is None else rows)
        numbers: list[object] = [np.round(np.asarray(answers, dtype=np.float64), 9)]
    else:
        numbers = [[one.arrays() for one in ensemble.members], ensemble.probability_map, ensemble.shift]
        numbers.append(ensemble.member_weights)
    return hashlib.sha256(b"".join(pack([type(inner).__name__, names, weights, numbers]))).hexdigest()


class Sequences(dict[str, ConfidenceSequence]):
    """Confidence sequences of means by name, which a state keeps between calls."""

    def put(self, name: str, values: Array, low: float, high: float, clusters: Index | None = None) -> None:
        """Add values to the sequence of a name, the mean of each cluster as one; a new one has this range."""
        if clusters is not None:
            _, which, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
            values = np.bincount(which.ravel(), values, len(sizes)) / sizes
        self[name] = self.get(name, ConfidenceSequence(low, high)).add(values)

    def state(self) -> Values:
        """Range, values and counts of each sequence."""
        return {name: [one.low, one.high, one.values.tolist(), one.counts.tolist()] for name, one in self.items()}

    @classmethod
    def from_state(cls, state: Values) -> "Sequences":
        """The sequences of a state."""
        return cls(
            (name, replace(ConfidenceSequence(low, high).add(values), counts=np.array(counts, dtype=np.float64)))
            for name, (low, high, values, counts) in state.items()
        )
