"""Table 2: the data sets, as loaded, beside the paper's description."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import crcen
from crcen.paper.reproduction.published import published
from crcen.paper.run_folder import RunFolder
from crcen.paper.tables import Table

__all__ = ["run_table2", "table2"]


def run_table2(settings: Mapping[str, Any], folder: Path, data_home: Path | None) -> RunFolder:
    """Load every set and write its description."""
    run = RunFolder(folder, {"sets": settings["sets"]}, key=("dataset",))
    for name in settings["sets"]:
        if not run.has(dataset=name):
            data = crcen.load_dataset(name, data_home)
            run.add(
                [
                    {
                        "dataset": name,
                        "n_samples": data.n_samples,
                        "n_features": data.n_features,
                        "n_pos": data.n_pos,
                        "imbalance_ratio": data.imbalance_ratio,
                        "source": data.source,
                    }
                ]
            )
    table = table2(run.rows)
    run.write("table2.md", table.markdown())
    run.write("table2.csv", table.csv())
    run.finish()
    return run


def table2(rows: list[dict[str, Any]]) -> Table:
    """Sizes and imbalance ratios, ours and the paper's."""
    lines = []
    for row in rows:
        paper = {
            column: published("table2", row["dataset"], column, metric)
            for column, metric in (("n_samples", "count"), ("n_features", "count"), ("imbalance_ratio", "ratio"))
        }
        ours = {
            "n_samples": float(row["n_samples"]),
            "n_features": float(row["n_features"]),
            "imbalance_ratio": row["imbalance_ratio"],
        }
        # The paper prints ratios to two digits.
        agrees = all(
            cell is None or float(f"{ours[column]:.2g}" if column == "imbalance_ratio" else ours[column]) == cell[0]
            for column, cell in paper.items()
        )
        lines.append(
            {
                "dataset": row["dataset"],
                "rows": str(row["n_samples"]),
                "features": str(row["n_features"]),
                "positive": str(row["n_pos"]),
                "IR": f"{row['imbalance_ratio']:.2f}",
                **{f"paper {c}": f"{cell[0]:g}" if cell else "" for c, cell in paper.items()},
                "agrees": "yes" if agrees else "no",
                "source": row["source"],
            }
        )
    return Table("Table 2", lines, "Data sets as loaded, beside the paper's description (IR there has two digits).")
