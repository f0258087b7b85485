"""A folder with one run: its settings, its rows as they finish, its tables, and whether it is done.

A run can be interrupted at any point, including kill -9, and resumed: rows are appended line by line and flushed to
disk, a truncated line is dropped, and finished work is found by its key. One process at a time: whoever opens a folder
holds the lock of it (or of the folder around it).
"""

import csv
import hashlib
import html
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import pandas as pd

from crcen import InvalidParameter, __version__
from crcen._support.extras import installed_version
from crcen._support.files import write_atomic
from crcen.exceptions import DataUnavailable
from crcen.paper import Settings, Values

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "imbalanced-learn", "matplotlib")


def settings_hash(settings: Settings) -> str:
    """Eight letters that are equal for equal settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def _environment() -> Values:
    import torch

    return {
        "crcen": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "packages": {package: installed_version(package) or "not installed" for package in _PACKAGES},
        "command": ["crcen", *sys.argv[1:]],
    }


@dataclass(frozen=True)
class Table:
    """Rows of text with one set of columns; ``**bold**`` is kept in Markdown and HTML and dropped in CSV."""

    title: str
    rows: Sequence[Mapping[str, str]]
    note: str = ""

    def _frame(self) -> pd.DataFrame:
        return pd.DataFrame(list(self.rows), dtype=object).fillna("")

    def markdown(self) -> str:
        """Title, note and a pipe table."""
        frame = self._frame()
        head, *lines = [f"| {' | '.join(cells)} |" for cells in [frame.columns, *frame.to_numpy()]]
        note = [self.note, ""] if self.note else []
        return "\n".join([f"## {self.title}", "", *note, head, "|" + "---|" * frame.shape[1], *lines]) + "\n"

    def csv(self) -> str:
        """Comma-separated values without mark-up."""
        return str(self._frame().replace(r"\*\*", "", regex=True).to_csv(index=False, lineterminator="\n"))

    def html(self) -> str:
        """A section with heading, note and table."""
        with pd.option_context("display.max_colwidth", None):
            table = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", self._frame().to_html(index=False, border=0))
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<section><h2>{html.escape(self.title)}</h2>{note}<div class='wide'>{table}</div></section>"


@cache
def _published() -> dict[tuple[str, str, str, str], tuple[float, float | None]]:
    text = resources.files("crcen.paper").joinpath("published.csv").read_text(encoding="utf-8")
    return {
        (artefact, row, column, metric): (float(value), float(sd) if sd else None)
        for artefact, row, column, metric, value, sd in list(csv.reader(text.splitlines()))[1:]
    }


def published(artefact: str, row: str, column: str, metric: str) -> tuple[float, float | None] | None:
    """Value and standard deviation of a published cell, or ``None`` if the paper has none."""
    return _published().get((artefact, row, column, metric))


class RunFolder:
    """One run; ``key`` names the fields that identify a row. A folder with other settings is rejected."""

    def __init__(self, folder: Path, settings: Settings, key: tuple[str, ...]) -> None:
        self.folder, self.key = folder, key
        self._by_key: dict[tuple[object, ...], Values] = {}  # the first row stays, since tables were made from it
        self._check_settings(json.loads(json.dumps(settings)))
        path, whole = folder / "rows.jsonl", 0
        if path.exists():
            with suppress(ValueError):  # a kill may have cut off the last line
                for line in path.read_bytes().splitlines(keepends=True):
                    row = json.loads(line[: line.index(b"\n")])
                    self._by_key.setdefault(self._key_of(row), row)
                    whole += len(line)
            os.truncate(path, whole)

    @property
    def rows(self) -> list[Values]:
        """All rows, in order."""
        return list(self._by_key.values())

    def _check_settings(self, wanted: Values) -> None:
        path = self.folder / "settings.json"
        if path.exists():
            found = json.loads(path.read_text())
            if found != wanted:
                changed = sorted(k for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k))
                message = f"{self.folder} holds a run with other settings ({', '.join(changed)})"
                raise InvalidParameter(f"{message}; give another --out, or delete that folder.")
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        # Settings last: a folder that has them is complete.
        write_atomic(self.folder / "environment.json", json.dumps(_environment(), indent=1) + "\n")
        write_atomic(path, json.dumps(wanted, indent=1, sort_keys=True) + "\n")

    def _key_of(self, row: Settings) -> tuple[object, ...]:
        return tuple(row.get(name) for name in self.key)

    def has(self, **fields: object) -> bool:
        """Whether there is a row with these fields."""
        return any(fields.items() <= row.items() for row in self.rows)

    def add(self, rows: Iterable[Settings]) -> None:
        """Append finished rows, on disk before this returns; rows with a known key are ignored."""
        lines: dict[tuple[object, ...], str] = {}
        for row in rows:
            if self._key_of(row) not in self._by_key:
                lines.setdefault(self._key_of(row), json.dumps(dict(row)) + "\n")
        if not lines:
            return
        path = self.folder / "rows.jsonl"
        before = path.stat().st_size if path.exists() else 0
        try:
            with open(path, "ab") as file:
                file.write("".join(lines.values()).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(path, before)  # a nearly full disk takes a part
            raise DataUnavailable(f"{path} was not written: {error.strerror}; earlier rows are kept.") from error
        self._by_key |= {key: json.loads(line) for key, line in lines.items()}

    def write(self, name: str, content: str | bytes) -> None:
        """Write a derived file atomically."""
        write_atomic(self.folder / name, content)

    def write_tables(self, tables: Mapping[str, Table]) -> None:
        """Write tables as Markdown and CSV, keep them as ``tables``, and mark the run as done."""
        self.tables = list(tables.values())
        for name, table in tables.items():
            self.write(f"{name}.md", table.markdown())
            self.write(f"{name}.csv", table.csv())
        self.write("DONE", "")
