"""Table 2: the data sets, as loaded, beside the paper's description."""

from pathlib import Path

import crcen
from crcen._support.values import attributes
from crcen.paper import Rows, Settings
from crcen.paper.run_folder import RunFolder, Table, published


def run_table2(settings: Settings, folder: Path, data_home: Path | None) -> RunFolder:
    """Load every set and write its description."""
    run = RunFolder(folder, {"sets": settings["sets"]}, key=("dataset",))
    for name in settings["sets"]:
        if not run.has(dataset=name):
            data = crcen.load_dataset(name, data_home)
            run.add([{"dataset": name} | attributes(data, "n_samples n_features n_pos imbalance_ratio source")])
    run.write_tables({"table2": table2(run.rows)})
    return run


def table2(rows: Rows) -> Table:
    """Sizes and imbalance ratios, ours and the paper's."""
    lines = []
    for row in rows:
        metrics = {"n_samples": "count", "n_features": "count", "imbalance_ratio": "ratio"}
        paper = {column: published("table2", row["dataset"], column, metric) for column, metric in metrics.items()}
        # The paper prints ratios to two digits.
        ours = {column: float(row[column]) for column in metrics}
        ours["imbalance_ratio"] = float(f"{ours['imbalance_ratio']:.2g}")
        agrees = all(cell is None or ours[column] == cell[0] for column, cell in paper.items())
        lines.append(
            {
                "dataset": row["dataset"],
                "rows": str(row["n_samples"]),
                "features": str(row["n_features"]),
                "positive": str(row["n_pos"]),
                "IR": f"{row['imbalance_ratio']:.2f}",
                **{f"paper {column}": f"{cell[0]:g}" if cell else "" for column, cell in paper.items()},
                "agrees": "yes" if agrees else "no",
                "source": row["source"],
            }
        )
    return Table("Table 2", lines, "Data sets as loaded, beside the paper's description (IR there has two digits).")
