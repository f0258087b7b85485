"""A small table that can be written as Markdown, CSV and HTML, and the numbers published in the paper."""

import csv
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import pandas as pd


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
