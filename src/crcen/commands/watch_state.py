"""The state of a watch between calls: whose model it is, what labels said so far, and what each call found."""

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crcen import InvalidInput, KeyEquationMonitor, TableClassifier
from crcen.theory.limits import WATCHED_COLUMNS_PART
from crcen.theory.residual_test import JointResidualSums

__all__ = ["WatchState", "model_digest", "new_state", "read_state"]

_FORMAT, _VERSION = "crcen watch", 1
# Calls that are kept in words; the evidence itself needs no more than sums.
_MOST_CALLS = 400


@dataclass
class WatchState:
    """What is kept between calls.

    Parameters
    ----------
    model : str
        Digest of the model that is watched.
    error_rate : float
        Chance of any false alarm, of columns and labels, over all calls together.
    monitor : KeyEquationMonitor
        What labels said so far.
    n_calls : int
        Calls so far.
    history : list of dict
        What each call found, the latest 400.
    """

    model: str
    error_rate: float
    monitor: KeyEquationMonitor
    n_calls: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def input_error_rate(self) -> float:
        """What the columns of the next call may spend: 1/(k(k + 1)) of their part at call k, which sums to 1."""
        k = self.n_calls + 1
        return WATCHED_COLUMNS_PART * self.error_rate / (k * (k + 1))

    def add(self, call: dict[str, Any]) -> None:
        """Take in what a call found."""
        self.n_calls += 1
        self.history = [*self.history, call][-_MOST_CALLS:]

    def text(self) -> str:
        """The state as JSON."""
        state = {
            "format": _FORMAT,
            "version": _VERSION,
            "model": self.model,
            "error_rate": self.error_rate,
            "n_calls": self.n_calls,
            "labels": self.monitor.state(),
            "history": self.history,
        }
        return json.dumps(state, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def new_state(model: Any, error_rate: float, delay: int | None = None) -> WatchState:
    """The state before any row: labels will be compared with rows held out of training, where the model knows such."""
    monitor = KeyEquationMonitor(model, false_alarm_rate=(1.0 - WATCHED_COLUMNS_PART) * error_rate, delay=delay)
    sums = getattr(model, "held_out_sums_", None)
    if sums is not None and sums.n_rows and _has_two_classes(sums):
        state = monitor.state()
        parts = [np.ravel(getattr(sums, name)).tolist() for name in sums.__dataclass_fields__]
        state["tracks"][0]["reference"] = [float(number) for part in parts for number in part]
        if "weight_unit" in state:
            state["weight_unit"] = sums.weight_unit
        monitor = KeyEquationMonitor.from_state(state, model)
    return WatchState(model_digest(model), error_rate, monitor)


def _has_two_classes(sums: Any) -> bool:
    """Whether rows of two classes at least were summed."""
    if isinstance(sums, JointResidualSums):
        return int((sums.counts > 0).sum()) > 1
    return bool(0 < sums.n_pos < sums.n_rows)


def read_state(path: Path, model: Any) -> WatchState:
    """The state in a file; one of another model, or no state at all, is refused in a sentence."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is no state of a watch, since it is no JSON: name another file.") from error
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise InvalidInput(f"{path} is no state of a watch: name another file, which is made where it is not there.")
    if state.get("version") != _VERSION:
        raise InvalidInput(f"{path} is a watch of version {state.get('version')!r}, and this crcen reads {_VERSION}.")
    if state.get("model") != model_digest(model):
        raise InvalidInput(
            f"{path} is the watch of another model: after a new fit begin a new one, with another name for the state."
        )
    rate, n_calls, history = state.get("error_rate"), state.get("n_calls"), state.get("history")
    if not (isinstance(rate, float) and 0.0 < rate < 1.0 and isinstance(n_calls, int) and isinstance(history, list)):
        raise InvalidInput(f"{path} is a damaged state of a watch: begin a new one.")
    if not all(isinstance(call, dict) for call in history):
        raise InvalidInput(f"{path} is a damaged state of a watch: begin a new one.")
    monitor = KeyEquationMonitor.from_state(state.get("labels"), model)
    return WatchState(state["model"], rate, monitor, n_calls, history)


def model_digest(model: Any) -> str:
    """What tells one fitted model from another: its price, its columns and the numbers that it answers from."""
    digest = hashlib.blake2b(digest_size=16)
    inner = model.estimator_ if isinstance(model, TableClassifier) else model
    names = [column.name for column in model.columns_] if isinstance(model, TableClassifier) else []
    price = model.weighting_
    weight = price.weights.tolist() if price.positive is None else price.lam
    digest.update(json.dumps([type(inner).__name__, names, weight], ensure_ascii=False).encode())
    ensemble = getattr(inner, "ensemble_", None)
    if ensemble is None:
        rows = getattr(model, "background_", None)
        answers = inner.predict_proba(rows) if rows is not None else inner.predict_proba(_zeros(inner))
        _take(digest, np.round(np.asarray(answers, dtype=np.float64), 9))
        return digest.hexdigest()
    for part in (*[member.arrays() for member in ensemble.members], ensemble.probability_map, ensemble.shift):
        _take(digest, part)
    _take(digest, ensemble.member_weights)
    return digest.hexdigest()


def _zeros(model: Any) -> Any:
    return np.zeros((1, model.n_features_in_))


def _take(digest: Any, value: Any) -> None:
    """Take plain values and arrays into a digest, in a fixed order."""
    if isinstance(value, dict):
        for name in sorted(value):
            digest.update(name.encode())
            _take(digest, value[name])
    elif isinstance(value, list | tuple):
        for one in value:
            _take(digest, one)
    elif isinstance(value, np.ndarray):
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, float) and not math.isfinite(value):
        digest.update(b"none")
    else:
        digest.update(repr(value).encode())
