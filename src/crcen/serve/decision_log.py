"""The decision log: one complete line of JSON for each decision and each label, and labels for the monitor."""

import json
import mmap
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from html import escape
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock

from crcen import InvalidInput, KeyEquationMonitor, monitor_table
from crcen._support.files import exclusive_lock, write_atomic
from crcen._support.text import json_value, label_key
from crcen.commands.inputs import require_input
from crcen.exceptions import DataUnavailable
from crcen.report.checks import selection_of
from crcen.serve.served_model import ServedModel

Entry = dict[str, Any]  # one line of the log, or values by identifier

_FIRST, _SECOND = '{"id": "', '", "time": "'
_AUDIT = "audit_probability"
_NO_COLUMNS = "columns were not compared with training: the log has no inputs"
_SECONDS_BETWEEN = 0.001  # attempts to lock the log; filelock waits 50 ms
# Rows of a period that are compared with training.
_MOST_ROWS = 100_000


class DecisionLog:
    """Lines of JSON that begin with ``id`` and ``time``, shared by several processes.

    Each batch of lines is one write under a lock, so that a killed process leaves complete lines. A line that a full
    disk cut is removed at the next start. Beyond ``most_bytes`` the file is renamed to ``NAME.TIME.jsonl``.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path, self.most_bytes = path, most_bytes
        self._lock, self._threads = FileLock(f"{path}.lock", mode=0o600), threading.Lock()
        try:
            self._open().close()  # refuses a missing folder, which filelock would create
            with self._alone(), self._open() as file:
                if size := file.seek(0, os.SEEK_END):
                    with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                        is_log = _FIRST.startswith(data[: len(_FIRST)].decode("latin-1"))
                        require_input(is_log, f"{path} exists and is no decision log: give another name.")
                        end = data.rfind(b"\n") + 1
                    file.truncate(end)
        except OSError as error:
            raise DataUnavailable(f"{path} cannot be written: {error.strerror}.") from error

    def _open(self) -> FileIO:
        """The file for writing at its end; nobody else may read it."""
        return FileIO(self.path, "a+", opener=lambda path, flags: os.open(path, flags, 0o600))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads and processes from writing; the lock leaves no file."""
        with self._threads, self._lock.acquire(poll_interval=_SECONDS_BETWEEN):
            try:
                yield
            finally:
                with suppress(OSError):  # before the release: filelock does not accept a lock on a removed file
                    os.unlink(self._lock.lock_file)

    def write(self, ids: Iterable[str], entries: Iterable[Entry]) -> None:
        """Append a line for each entry."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines = [
            json.dumps({"id": one, "time": now, **entry}, allow_nan=False, default=str)
            for one, entry in zip(ids, entries, strict=True)
        ]
        data = ("\n".join(lines) + "\n").encode()
        with self._alone():
            size = self.path.stat().st_size if self.path.exists() else 0
            if size and size + len(data) > self.most_bytes:
                stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
                self.path.rename(self.path.with_name(f"{self.path.stem}.{stamp}{self.path.suffix}"))
                size = 0
            with self._open() as file:
                if file.write(data) < len(data):
                    file.truncate(size)
                    raise DataUnavailable(f"{self.path} cannot be written: no space left.")

    def find(self, ids: Iterable[str]) -> tuple[dict[str, Entry], set[str]]:
        """The latest decision of each identifier, and the identifiers that have a label."""
        wanted = {json.dumps(one)[1:-1] for one in ids}  # as lines write them
        decisions: dict[str, Entry] = {}
        labelled: set[str] = set()
        for entry in self._entries(lambda one, _: one in wanted):
            if "label" in entry:
                labelled.add(entry["id"])
            else:
                decisions[entry["id"]] = entry
        return decisions, labelled

    def decisions_between(self, first: str, last: str, version: str) -> dict[str, Entry]:
        """The first 100,000 decisions of a model version from one time to another, by identifier."""
        entries = self._entries(lambda _, time: first <= time <= last)
        own = (one for one in entries if one.get("version") == version and "label" not in one)
        return {one["id"]: one for one in islice(own, _MOST_ROWS)}

    def _entries(self, is_wanted: Callable[[str, str], bool]) -> Iterator[Entry]:
        """Lines whose identifier and time are wanted; other lines are not parsed."""
        for path in (*sorted(self.path.parent.glob(f"{self.path.stem}.*{self.path.suffix}")), self.path):
            with path.open(encoding="utf-8") as file:
                for line in file:
                    one, _, rest = line.removeprefix(_FIRST).partition(_SECOND)
                    if is_wanted(one, rest.partition('"')[0]):
                        yield json.loads(line)


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
            got = f"got {str(label)[:60]!r} for id {one[:60]!r}."
            allowed = f"labels must be of {', '.join(map(str, known.values()))}: {got}"
            require_input(label_key(label) in known, allowed)
        with exclusive_lock(f"{self._log.path}.labels", instead="send the labels again", seconds=20.0):
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
                "unknown": len(pairs.keys() - decisions),
                "repeated": len(pairs.keys() & labelled),
                "not_drawn": len(usable) - len(chosen),
                "other_version": len(decisions.keys() - labelled - usable.keys()),
                "monitor": None,
            }
            if chosen:
                labels = {one: known[label_key(pairs[one])] for one in chosen}
                found["monitor"] = self._compare(served, chosen, labels)
                write_atomic(self._place(served, "last.json"), json.dumps(found["monitor"], default=str))
                self._log.write(chosen, [{"version": served.version, "label": pairs[one]} for one in chosen])
        return found

    def _compare(self, served: ServedModel, entries: dict[str, Entry], labels: Entry) -> Entry:
        """Give all rows of the period to the monitor: those without a label keep the rows representative."""
        times = sorted(str(entry["time"]) for entry in entries.values())
        entries = {**self._log.decisions_between(times[0], times[-1], served.version), **entries}
        if not self._has_inputs:
            return self._compare_labels(served, entries, labels, times[-1][:10])
        entries = {one: entry for one, entry in entries.items() if "inputs" in entry}
        target, audit = served.target or "label", _audit_probabilities(entries)
        names = list(map(str, served.model.feature_names_in_))
        frame = pd.DataFrame({name: [entry["inputs"].get(name) for entry in entries.values()] for name in names})
        frame[target] = [labels.get(one) for one in entries]
        return monitor_table(
            served.model,
            frame if audit is None else frame.assign(**{_AUDIT: audit}),
            state=self._place(served, "json"),
            page=self._place(served, "html"),
            target=target,
            are_new=True,  # each identifier gets one label
            when=times[-1][:10],
            audit_probability=None if audit is None else _AUDIT,
        ).to_dict()

    def _compare_labels(self, served: ServedModel, entries: dict[str, Entry], labels: Entry, when: str) -> Entry:
        """Test labels against logged probabilities; the columns are not known."""
        place = self._place(served, "labels.json")
        if place.exists():
            monitor = KeyEquationMonitor.from_json(place, served.model)
        else:
            monitor = KeyEquationMonitor(served.model)
            if getattr(served.model, "held_out_sums_", None) is not None:
                monitor.use_reference(served.model.held_out_sums_)
        p = np.array([_columns(served, entry["probability"]) for entry in entries.values()])
        y = np.array([labels.get(one) for one in entries], dtype=object)
        known, notes = np.array([one in labels for one in entries]), [_NO_COLUMNS]
        audit = _audit_probabilities(entries)
        if audit is None:
            if not known.all() and selection_of(served.model, known, p).is_alarms_only:
                notes.append("only alarms have labels: nothing is known about the other rows")
            p, y = p[known], np.array(y[known].tolist())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            monitor.update(q=served.model.weighting_.weighted(p), y=y, when=when, audit_probability=audit)
        monitor.to_json(place)
        write_atomic(self._place(served, "html"), _page(f"<pre>{escape(str(monitor))}</pre>"))
        return {
            "rows": len(entries),
            "labelled": len(labels),
            "is_alarm": bool(monitor.alarms),
            "drift_alarms": [{**json_value(alarm), "sentence": str(alarm)} for alarm in monitor.alarms],
            "labels": monitor.history[None][-1].to_dict(),
            "notes": [*notes, *(str(one.message) for one in caught)],
        }

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
        found: dict[str, dict[str, float]] = {}
        for served in models:
            place = self._place(served, "last.json")
            if place.exists():
                last = json.loads(place.read_text(encoding="utf-8"))
                values = {"alarm": last["is_alarm"], "drift": (last["labels"] or {}).get("drift")}
                values |= {"unlike_columns": len(last["unlike"])} if "unlike" in last else {}
                for name, value in values.items():
                    if isinstance(value, int | float):
                        found.setdefault(f"monitor_{name}", {})[served.name] = float(value)
        return found


def _audit_probabilities(entries: dict[str, Entry]) -> list[float] | None:
    found = [entry[_AUDIT] for entry in entries.values() if _AUDIT in entry]
    return found if len(found) == len(entries) else None


def _page(body: str) -> str:
    return f"<!doctype html><html lang=en><meta name=viewport content=width=device-width><title>Monitor</title>{body}"


def _columns(served: ServedModel, probability: float | dict[str, float]) -> list[float]:
    if isinstance(probability, dict):
        return [probability[str(label)] for label in served.classes]
    return [1.0 - probability, probability] if served.positive else [probability, 1.0 - probability]


def _pairs(body: object) -> dict[str, object]:
    if isinstance(body, dict):
        is_one = set(body) == {"id", "label"}
        body = [body] if is_one else [{"id": one, "label": label} for one, label in body.items()]
    if not isinstance(body, list) or not body:
        raise InvalidInput("labels must be a list of objects with id and label, or an object of labels by id.")
    found: dict[str, object] = {}
    for number, one in enumerate(body, 1):
        is_pair = isinstance(one, dict) and set(one) == {"id", "label"} and isinstance(one["id"], str | int)
        if not is_pair or isinstance(one["label"], list | dict | type(None)):
            raise InvalidInput(f"label {number} must be an object with id and label.")
        found[str(one["id"])] = one["label"]
    return found
