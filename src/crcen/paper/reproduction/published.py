"""The numbers printed in the paper, for the comparison columns; `published.csv` is their one source."""

import csv
from functools import cache
from importlib import resources

__all__ = ["published"]


@cache
def _table() -> dict[tuple[str, str, str, str], tuple[float, float | None]]:
    text = resources.files("crcen.paper.reproduction").joinpath("published.csv").read_text(encoding="utf-8")
    return {
        (row["artefact"], row["row"], row["column"], row["metric"]): (
            float(row["value"]),
            float(row["sd"]) if row["sd"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    }


def published(artefact: str, row: str, column: str, metric: str) -> tuple[float, float | None] | None:
    """Value and standard deviation of a published cell, or ``None`` where the paper has none."""
    return _table().get((artefact, row, column, metric))
