"""Readings of the paper beside each other: how far each is from the published cells, and its claims under each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import crcen
from crcen.paper.reproduction.claims import expense_claims, performance_claims
from crcen.paper.reproduction.published import published
from crcen.paper.reproduction.table3 import METRICS, cells
from crcen.paper.tables import Table

__all__ = ["compare_cells", "compare_claims", "compare_readings"]

Readings = Mapping[str, Sequence[Mapping[str, Any]]]


def compare_readings(readings: Readings) -> Table:
    """Mean absolute difference to the published cells, a line for each method, a column for each reading.

    Parameters
    ----------
    readings
        Rows of Table 3 by the name of their reading.
    """
    found = {name: cells(rows) for name, rows in readings.items()}
    methods = [name for name, method in crcen.METHODS.items() if method.in_paper]
    gaps: dict[str, dict[str, list[float]]] = {name: {} for name in readings}
    for reading, table in found.items():
        for (method, dataset, metric), (mean, _, _) in table.items():
            paper = published("table3", method, dataset, metric)
            if paper and method in methods:
                gaps[reading].setdefault(method, []).append(mean - paper[0])
    lines = []
    for method in [*methods, "all"]:
        own = {
            reading: [gap for name, values in parts.items() if method in (name, "all") for gap in values]
            for reading, parts in gaps.items()
        }
        if not any(own.values()):
            continue
        label = "all methods" if method == "all" else crcen.METHODS[method].label
        line = {"method": label}
        for reading, values in own.items():
            line[f"{reading}: mean absolute difference"] = f"{np.mean(np.abs(values)):.3f}" if values else "–"
            line[f"{reading}: within .03"] = f"{int((np.abs(values) <= 0.03).sum())} of {len(values)}"
        lines.append(line)
    note = f"Cells are {', '.join(METRICS.values())} of each set, means over splits, less the published value."
    return Table("Table 3, readings of the paper", lines, note)


def compare_cells(readings: Readings) -> Table:
    """Every published cell beside that of each reading, and the difference; a dash where a reading has no row.

    Parameters
    ----------
    readings
        Rows of Table 3 by the name of their reading.
    """
    found = {name: cells(rows) for name, rows in readings.items()}
    sets = list(dict.fromkeys(row["dataset"] for rows in readings.values() for row in rows))
    lines = []
    for method in (name for name, one in crcen.METHODS.items() if one.in_paper):
        for dataset in sets:
            for metric, title in METRICS.items():
                paper = published("table3", method, dataset, metric)
                if not paper:
                    continue
                line = {"method": crcen.METHODS[method].label, "cell": f"{dataset} {title}", "paper": f"{paper[0]:.3f}"}
                gaps = {}
                for name, table in found.items():
                    value = table.get((method, dataset, metric))
                    line[name] = f"{value[0]:.3f} ({value[0] - paper[0]:+.3f})" if value else "–"
                    gaps[name] = abs(value[0] - paper[0]) if value else np.inf
                nearest = min(gaps, key=lambda name: gaps[name])
                line["nearer"] = nearest if len(set(gaps.values())) > 1 else "–"
                lines.append(line)
    return Table(
        "Table 3, cell by cell", lines, "Means over splits, in brackets the difference to the published value."
    )


def compare_claims(readings: Readings, figures: Readings) -> Table:
    """The paper's claims about Table 3 and Figure 1, judged by the rows of each reading.

    Parameters
    ----------
    readings, figures
        Rows of Table 3, and of Figure 1 where a reading has them, by the name of their reading.
    """
    lines: dict[str, dict[str, str]] = {}
    for name, rows in readings.items():
        found = [*performance_claims(rows), *(expense_claims(figures[name]) if figures.get(name) else ())]
        for claim, verdict, number in found:
            line = lines.setdefault(claim, {"claim of the paper": claim})
            line[name] = f"{verdict}: {number}"
    for line in lines.values():
        for name in readings:
            line.setdefault(name, "–")
    return Table("The paper's claims under each reading", list(lines.values()))
