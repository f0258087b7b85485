"""The decision log: one complete line of JSON for each decision and each label, safe for several processes."""

import fcntl
import json
import os
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crcen.exceptions import DataUnavailable

__all__ = ["DecisionLog"]

_FIRST, _SECOND = '{"id": "', '", "time": "'


class DecisionLog:
    """Lines of JSON that begin with ``id`` and ``time``.

    Each batch of lines is one write at the end of the file under a lock, so that a process that is killed leaves
    complete lines, and several processes share one file. A line that a full disk cut is removed at the next start.

    Parameters
    ----------
    path : Path
        The file. Beyond ``most_bytes`` it is renamed to ``NAME.TIME.jsonl``, and a new one is begun.
    most_bytes : int
        Size of a file.
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

    def write(self, ids: Iterable[str], entries: Iterable[dict[str, Any]]) -> None:
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

    def find(self, ids: Iterable[str]) -> tuple[dict[str, dict[str, Any]], set[str]]:
        """The latest decision of each identifier, and the identifiers that have a label."""
        wanted = {json.dumps(one)[1:-1]: one for one in ids}
        decisions: dict[str, dict[str, Any]] = {}
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

    def decisions_between(self, first: str, last: str, version: str, most: int) -> dict[str, dict[str, Any]]:
        """Decisions of a model version from one time to another, by identifier; at most this many."""
        found: dict[str, dict[str, Any]] = {}
        for line in self._lines():
            start = line.find(_SECOND, len(_FIRST)) + len(_SECOND)
            if not first <= line[start : start + len(first)] <= last:
                continue
            entry = json.loads(line)
            if entry.get("version") == version and "inputs" in entry:
                found[entry["id"]] = entry
                if len(found) >= most:
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

    def _locked(self, work: Any) -> None:
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
