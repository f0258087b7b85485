"""A small table that can be written as Markdown, CSV and HTML, and the numbers published in the paper."""

import csv
import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Table:
    """Rows of text with one set of columns; ``**bold**`` is kept in Markdown and HTML and dropped in CSV."""

    title: str
    rows: Sequence[Mapping[str, str]]
    note: str = ""

    @property
    def columns(self) -> list[str]:
        """Column names, in order of first use."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def markdown(self) -> str:
        """Title, note and a pipe table."""
        lines = [f"## {self.title}", ""]
        if self.note:
            lines += [self.note, ""]
        lines += ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(row.get(name, "") for name in self.columns) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Comma-separated values without mark-up."""
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: text.replace("**", "") for name, text in row.items()} for row in self.rows)
        return buffer.getvalue()

    def html(self) -> str:
        """A section with heading, note and table."""

        def cell(text: str, tag: str) -> str:
            return f"<{tag}>" + re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text)) + f"</{tag}>"

        head = "".join(cell(name, "th") for name in self.columns)
        body = "\n".join("<tr>" + "".join(cell(r.get(n, ""), "td") for n in self.columns) + "</tr>" for r in self.rows)
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return (
            f"<section><h2>{html.escape(self.title)}</h2>{note}<div class='wide'><table><thead><tr>{head}</tr></thead>"
            f"<tbody>\n{body}\n</tbody></table></div></section>"
        )


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
