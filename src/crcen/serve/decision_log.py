"""The decision log: one complete line of JSON for each decision and each label, and labels for the monitor."""

import fcntl
import json
import os
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from crcen import InvalidInput, KeyEquationMonitor, monitor_table
from crcen._support.files import write_atomic
from crcen._support.values import json_value, label_key
from crcen.exceptions import DataUnavailable
from crcen.report.checks import selection_of
from crcen.serve.served_model import ServedModel

Entry = dict[str, Any]  # one line of the log

_FIRST, _SECOND = '{"id": "', '", "time": "'
_AUDIT = "audit_probability"
_NO_COLUMNS = "columns were not compared with training: the log has no inputs"
# Rows of a period that are compared with training.
_MOST_ROWS = 100_000


class DecisionLog:
    """Lines of JSON that begin with ``id`` and ``time``.

    Each batch of lines is one write at the end of the file under a lock, so that a killed process leaves complete lines
    and several processes share one file. A line that a full disk cut is removed at the next start. Beyond
    ``most_bytes`` the file is renamed to ``NAME.TIME.jsonl``, and a new one is begun.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path, self.most_bytes = path, most_bytes
        self._guard, self._file, self._pid = threading.Lock(), -1, -1
        try:
            with self._guard:
                self._open()
                self._locked(self._repair)
        except OSError as error:
            raise DataUnavailable(f"{path} cannot be written: {error.strerror}.") from error

    def write(self, ids: Iterable[str], entries: Iterable[Entry]) -> None:
        """Append a line for each entry."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines = [
            json.dumps({"id": one, "time": now, **entry}, allow_nan=False, default=str)
            for one, entry in zip(ids, entries, strict=True)
        ]
        data = ("\n".join(lines) + "\n").encode()
        with self._guard:
            self._open()
            self._locked(lambda: self._append(data))

    def find(self, ids: Iterable[str]) -> tuple[dict[str, Entry], set[str]]:
        """The latest decision of each identifier, and the identifiers that have a label."""
        wanted = {json.dumps(one)[1:-1]: one for one in ids}
        decisions: dict[str, Entry] = {}
        labelled: set[str] = set()
        for line in self._lines():
            end = line.find(_SECOND, len(_FIRST))
            one = wanted.get(line[len(_FIRST) : end]) if end > 0 and line.startswith(_FIRST) else None
            if one is None:
                continue
            entry = json.loads(line)
            if "label" in entry:
                labelled.add(one)
            else:
                decisions[one] = entry
        return decisions, labelled

    def decisions_between(self, first: str, last: str, version: str) -> dict[str, Entry]:
        """The first 100,000 decisions of a model version from one time to another, by identifier."""
        found: dict[str, Entry] = {}
        for line in self._lines():
            start = line.find(_SECOND, len(_FIRST)) + len(_SECOND)
            if first <= line[start : start + len(first)] <= last:
                entry = json.loads(line)
                if entry.get("version") == version and "label" not in entry:
                    found[entry["id"]] = entry
                    if len(found) >= _MOST_ROWS:
                        break
        return found

    def _lines(self) -> Iterator[str]:
        older = sorted(self.path.parent.glob(f"{self.path.stem}.*{self.path.suffix}"))
        for path in (*older, self.path):
            with path.open(encoding="utf-8") as file:
                yield from file

    def _open(self) -> None:
        """Open the file in this process, and again after another process has renamed it."""
        if self._pid == os.getpid():
            try:
                if os.stat(self.path).st_ino == os.fstat(self._file).st_ino:
                    return
            except FileNotFoundError:
                pass
            os.close(self._file)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()

    def _locked(self, work: Callable[[], object]) -> None:
        """Work while no other process writes or renames the file."""
        while True:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            before = self._file
            try:
                if os.path.exists(self.path) and os.stat(self.path).st_ino == os.fstat(self._file).st_ino:
                    work()
                    return
            finally:
                if self._file == before:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
            self._open()

    def _append(self, data: bytes) -> None:
        size = os.fstat(self._file).st_size
        if size and size + len(data) > self.most_bytes:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
            os.rename(self.path, self.path.with_name(f"{self.path.stem}.{stamp}{self.path.suffix}"))
            os.close(self._file)  # releases the lock
            self._pid = -1
            self._open()
            self._locked(lambda: os.write(self._file, data))
            return
        written = os.write(self._file, data)
        if written < len(data):
            os.ftruncate(self._file, size)
            raise DataUnavailable(f"{self.path} cannot be written: no space left.")

    def _repair(self) -> None:
        """Remove a line that was cut."""
        size = os.fstat(self._file).st_size
        end = size
        while end:
            start = max(0, end - 65_536)
            found = os.pread(self._file, end - start, start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._file, end)


class LabelledRows:
    """Labels of the rows in a decision log, with or without inputs.

    With logged inputs, `monitor_table` compares columns and labels with training. Without them, labels are compared
    with the logged probabilities alone. The state is kept in the folder of the log, one file for each model version.
    """

    def __init__(self, log: DecisionLog, has_inputs: bool) -> None:
        self._log, self._has_inputs = log, has_inputs

    def add(self, served: ServedModel, body: object) -> Entry:
        """Give new labels to the monitor; numbers of labels, and what the monitor found.

        The body is a list of objects with ``id`` and ``label``, or labels by identifier. Decisions of other versions
        are left out.
        """
        pairs = _pairs(body)
        known = {label_key(label): label for label in served.model.classes_.tolist()}
        for one, label in pairs.items():
            if label_key(label) not in known:
                raise InvalidInput(
                    f"labels must be of {', '.join(map(str, known.values()))}: got {str(label)[:60]!r} for id "
                    f"{one[:60]!r}."
                )
        with FileLock(f"{self._log.path}.lock", timeout=20):
            decisions, labelled = self._log.find(pairs)
            usable = {
                one: entry
                for one, entry in decisions.items()
                if entry["version"] == served.version
                and one not in labelled
                and ("inputs" in entry or not self._has_inputs)
            }
            chosen = {one: entry for one, entry in usable.items() if entry.get("audit", True)}
            found: Entry = {
                "labels": len(chosen),
                "unknown": len([one for one in pairs if one not in decisions]),
                "repeated": len([one for one in pairs if one in labelled]),
                "not_drawn": len(usable) - len(chosen),
                "other_version": len([one for one in decisions if one not in labelled and one not in usable]),
                "monitor": None,
            }
            if chosen:
                labels = {one: known[label_key(pairs[one])] for one in chosen}
                found["monitor"] = (self._compare_rows if self._has_inputs else self._compare_labels)(
                    served, chosen, labels
                )
                self._log.write(chosen, [{"version": served.version, "label": pairs[one]} for one in chosen])
        return found

    def _compare_rows(self, served: ServedModel, entries: dict[str, Entry], labels: dict[str, object]) -> Entry:
        """Give all rows of the period to the monitor: those without a label keep the columns representative."""
        import pandas as pd

        entries, when = self._period(served, entries)
        entries = {one: entry for one, entry in entries.items() if "inputs" in entry}
        names = list(map(str, served.model.feature_names_in_))
        frame = pd.DataFrame({name: [entry["inputs"].get(name) for entry in entries.values()] for name in names})
        target, audit = served.target or "label", None
        frame[target] = [labels.get(one) for one in entries]
        if all(_AUDIT in entry for entry in entries.values()):
            frame[_AUDIT] = [entry[_AUDIT] for entry in entries.values()]
            audit = _AUDIT
        return monitor_table(
            served.model,
            frame,
            state=self._place(served, "json"),
            page=self._place(served, "html"),
            target=target,
            when=when,
            audit_probability=audit,
        ).to_dict()

    def _compare_labels(self, served: ServedModel, entries: dict[str, Entry], labels: dict[str, object]) -> Entry:
        """Test labels against logged probabilities; the columns are not known."""
        place = self._place(served, "labels.json")
        if place.exists():
            monitor = KeyEquationMonitor.from_json(place, served.model)
        else:
            monitor = KeyEquationMonitor(served.model)
            if getattr(served.model, "held_out_sums_", None) is not None:
                monitor.use_reference(served.model.held_out_sums_)
        everything, when = self._period(served, entries)
        p = np.array([_columns(served, entry["probability"]) for entry in everything.values()])
        y = np.array([labels.get(one) for one in everything], dtype=object)
        known, notes = np.array([one in labels for one in everything]), [_NO_COLUMNS]
        if all(_AUDIT in entry for entry in everything.values()):
            options: Entry = {_AUDIT: [entry[_AUDIT] for entry in everything.values()]}
        else:
            if not known.all() and selection_of(served.model, known, p).is_alarms_only:
                notes.append("labels only where the model alarmed: nothing is known about the other rows")
            p, y, options = p[known], np.array(y[known].tolist()), {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            monitor.update(q=served.model.weighting_.weighted(p), y=y, when=when, **options)
        monitor.to_json(place)
        write_atomic(self._place(served, "html"), _page(f"<pre>{escape(str(monitor))}</pre>"))
        return {
            "rows": len(everything),
            "labelled": len(labels),
            "is_alarm": bool(monitor.alarms),
            "drift_alarms": [{**json_value(alarm), "sentence": str(alarm)} for alarm in monitor.alarms],
            "labels": monitor.history[None][-1].to_dict(),
            "notes": [*notes, *(str(one.message) for one in caught)],
        }

    def _period(self, served: ServedModel, entries: dict[str, Entry]) -> tuple[dict[str, Entry], str]:
        """The decisions of the same time, and their last day."""
        times = sorted(str(entry["time"]) for entry in entries.values())
        return {**self._log.decisions_between(times[0], times[-1], served.version), **entries}, times[-1][:10]

    def _place(self, served: ServedModel, kind: str) -> Path:
        return self._log.path.with_name(f"{self._log.path.stem}-{served.name}-{served.version}.monitor.{kind}")

    def page(self, served: ServedModel) -> str:
        """The page of the monitor, or a sentence."""
        try:
            return self._place(served, "html").read_text(encoding="utf-8")
        except FileNotFoundError:
            return _page("<p>No labels yet: send them to POST /labels, and this page shows how the model performs.</p>")

    def gauges(self, models: Iterable[ServedModel]) -> dict[str, dict[str, float]]:
        """Whether the monitor raised an alarm, the drift of the log-odds, and columns unlike training."""
        found: dict[str, dict[str, float]] = {"monitor_alarm": {}, "monitor_drift": {}, "monitor_unlike_columns": {}}
        for served in models:
            try:
                if self._has_inputs:
                    last = json.loads(self._place(served, "json").read_text(encoding="utf-8"))["history"][-1]
                    is_alarm, drift = last["is_alarm"], (last.get("labels") or {}).get("drift")
                    found["monitor_unlike_columns"][served.name] = float(len(last["unlike"]))
                else:
                    monitor = KeyEquationMonitor.from_json(self._place(served, "labels.json"), served.model)
                    is_alarm, drift = bool(monitor.alarms), monitor.history[None][-1].to_dict()["drift"]
            except (FileNotFoundError, IndexError):
                continue
            found["monitor_alarm"][served.name] = float(is_alarm)
            if isinstance(drift, int | float):
                found["monitor_drift"][served.name] = float(drift)
        return {name: values for name, values in found.items() if values}


def _page(content: str) -> str:
    return (
        f"<!doctype html><html lang=en><meta name=viewport content=width=device-width><title>Monitor</title>{content}"
    )


def _columns(served: ServedModel, probability: float | dict[str, float]) -> list[float]:
    """A probability for each class, from that of the log."""
    if isinstance(probability, dict):
        return [probability[str(label)] for label in served.classes]
    return [1.0 - probability, probability] if served.positive else [probability, 1.0 - probability]


def _pairs(body: object) -> dict[str, object]:
    """Labels by identifier."""
    if isinstance(body, dict) and set(body) != {"id", "label"}:
        body = [{"id": one, "label": label} for one, label in body.items()]
    given: Collection[object] = body if isinstance(body, list) else [body] if isinstance(body, dict) else ()
    if not given:
        raise InvalidInput("labels must be a list of objects with id and label, or an object of labels by id.")
    found: dict[str, object] = {}
    for number, one in enumerate(given, 1):
        is_whole = isinstance(one, dict) and set(one) == {"id", "label"} and isinstance(one["id"], str | int)
        if not isinstance(one, dict) or not is_whole or isinstance(one["label"], list | dict | type(None)):
            raise InvalidInput(f"label {number} must be an object with id and label.")
        found[str(one["id"])] = one["label"]
    return found
