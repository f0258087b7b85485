"""report_table: the HTML report of a model on labelled rows of a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crcen
from crcen._support.whole_files import check_place
from crcen.workflow.inputs import labels_as, model_of, source_of, target_of
from crcen.workflow.progress import busy

__all__ = ["TableReport", "report_table"]


@dataclass(frozen=True)
class TableReport:
    """Where a report was written; prints itself.

    Parameters
    ----------
    path : Path
        The HTML file.
    n_rows : int
        Rows it is about.
    notes : tuple of str
        What was odd about the table.
    """

    path: Path
    n_rows: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"path": str(self.path), "rows": self.n_rows, "notes": list(self.notes)}

    def __str__(self) -> str:
        return "\n".join([*(f"Note: {note}." for note in self.notes), f"{self.n_rows:,} rows, written to {self.path}"])


def report_table(
    model: Any,
    data: Any,
    *,
    out: str | Path,
    target: str | None = None,
    title: str | None = None,
    verbose: int = 0,
) -> TableReport:
    """Write one self-contained HTML page about a model on labelled rows: what `crcen report` does.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    data : data frame, str or Path
        Rows that it was not trained on.
    out : str or Path
        The HTML file to write.
    target : str, optional
        Column with the labels; by default that of training.
    title : str, optional
        Of the page.
    verbose : int, default=0
        1 shows on a terminal that work goes on.

    Returns
    -------
    TableReport
        Where it is.
    """
    check_place(out, model, data)
    model_path = str(model) if isinstance(model, str | Path) else None
    model, source = model_of(model), source_of(data)
    target = target_of(target, model, source)
    frame, notes = source.read(), source.notes
    known = frame[target].notna()
    if not known.all():
        notes.insert(0, f"{int((~known).sum())} rows without a value of {target} were left out")
    frame = frame[known].reset_index(drop=True)
    y = model.classes_[labels_as(frame[target], model.classes_, target)]
    used = [column.name for column in model.columns_] if hasattr(model, "columns_") else frame.columns.drop(target)
    options: dict[str, Any] = {"title": title, "data_name": source.name, "model_path": model_path}
    with busy("writing the report", visible=bool(verbose)):
        crcen.write_report(model, frame[list(used)], y, out, **options)
    return TableReport(Path(out), len(frame), tuple(notes))
