"""Two readings of the paper beside each other: how far each is from the published cells."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import crcen
from crcen.experiments.paper.published import published
from crcen.experiments.paper.table3 import METRICS, cells
from crcen.experiments.tables import Table

__all__ = ["compare_readings"]


def compare_readings(readings: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
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
    return Table("Table 3, two readings of the paper", lines, note)
