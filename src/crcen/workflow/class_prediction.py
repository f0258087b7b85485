"""predict_table for models of more than two classes: the decision and the probability of every class."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crcen import InvalidInput, InvalidParameter, TableClassifier
from crcen._support.progress import counted
from crcen.tables.writing import TableWriter
from crcen.workflow.inputs import Source, plain
from crcen.workflow.model_rows import model_rows
from crcen.workflow.row_watch import unlike_lines
from crcen.workflow.scored_chunks import Oddities

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ClassPredictions", "class_columns", "predict_classes"]


@dataclass(frozen=True, eq=False)
class ClassPredictions:
    """What was decided between several classes; prints itself.

    Parameters
    ----------
    n_rows : int
        Rows scored.
    decided : dict of label to int
        How many rows got each decision.
    expected : dict of label to float
        Sum of the probabilities of each class: how many of them to expect among these rows.
    notes : tuple of str
        What was odd about the table.
    unlike : tuple of Difference
        In what the rows differ from training rows beyond chance.
    frame : DataFrame or None
        The rows, where they were not written to a file.
    path : Path or None
        The file.
    """

    n_rows: int
    decided: dict[Any, int]
    expected: dict[Any, float]
    notes: tuple[str, ...] = ()
    unlike: tuple[Any, ...] = ()
    frame: Any = None
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; without the rows."""
        return {
            "rows": self.n_rows,
            "decided": {str(plain(label)): count for label, count in self.decided.items()},
            "expected": {str(plain(label)): total for label, total in self.expected.items()},
            "notes": list(self.notes),
            "unlike": [one.to_dict() for one in self.unlike],
            "path": None if self.path is None else str(self.path),
        }

    def __str__(self) -> str:
        lines = [f"{self.n_rows:,} rows"]
        for label, count in self.decided.items():
            share = f", {self.expected[label]:,.1f} expected" if label in self.expected else ""
            lines.append(f"  {label!s:24s} {count:,} decided{share}")
        lines += [*(f"Note: {note}." for note in self.notes), *unlike_lines(self.unlike)]
        return "\n".join([*lines, *([] if self.path is None else [f"Written to {self.path}"])])


def class_columns(model: Any) -> list[str]:
    """Names of the columns with the probability of every class."""
    return [f"probability_{label}" for label in model.classes_.tolist()]


def predict_classes(
    model: Any,
    source: Source,
    ids: list[str],
    *,
    out: str | Path | None,
    safe_csv: bool,
    chunk_rows: int,
    verbose: int,
    **others: Any,
) -> ClassPredictions:
    """Score and decide every row; ``others`` are options of two classes, refused where they are set."""
    given = [name for name, value in others.items() if value is not None and value is not False and value != 0]
    if given:
        what = "another price" if given[0] == "weighting" else given[0]
        raise InvalidParameter(
            f"{what} is for two classes, and this model has {len(model.classes_)}: leave it out; costs belong to "
            f"the fit, as a CostMatrix."
        )
    odd, pieces, target = Oddities.none(model), [], str(getattr(model, "target_name_", ""))
    n_rows, expected = 0, np.zeros(len(model.classes_))
    names = [*model.classes_.tolist(), *getattr(model.costs_, "actions", ())]
    decided: dict[Any, int] = dict.fromkeys(names, 0)
    with ExitStack() as opened:
        writer = None if out is None else opened.enter_context(TableWriter(out, safe_csv=safe_csv))
        done = opened.enter_context(counted("rows", source.n_rows, visible=bool(verbose)))
        for chunk in source.chunks(chunk_rows):
            if not len(chunk):
                continue
            piece, p = _answered(model, chunk, odd, {*ids, target}, ids, n_rows)
            n_rows, expected = n_rows + len(p), expected + p.sum(axis=0)
            for label, count in piece["decision"].value_counts().items():
                decided[label] += int(count)
            if writer is None:
                pieces.append(piece)
            else:
                writer.write(piece)
            done(len(p))
    if not n_rows:
        raise InvalidInput(f"{source.name} has no rows.")
    return ClassPredictions(
        n_rows,
        decided,
        dict(zip(model.classes_.tolist(), expected.tolist(), strict=True)),
        tuple([*source.notes, *odd.notes]),
        odd.watch.unlike(0, -1, None),
        _joined(pieces) if pieces else None,
        None if out is None else Path(out),
    )


def _answered(
    model: Any, chunk: "pd.DataFrame", odd: Oddities, ignored: set[str], ids: list[str], n_before: int
) -> tuple[Any, Any]:
    import pandas as pd

    if isinstance(model, TableClassifier):
        encoded = model.encode(chunk)
        odd.add(chunk, encoded, ignored)
        p, chosen = model.estimator_.predict_proba(encoded.X), model.estimator_.predict(encoded.X)
    else:
        rows = model_rows(model, chunk, ignored)
        p, chosen = model.predict_proba(rows), model.predict(rows)
    first = {name: chunk[name].to_numpy() for name in ids}
    first = first or {"row": np.arange(n_before + 1, n_before + len(p) + 1)}
    columns = dict(zip(class_columns(model), p.T, strict=True))
    return pd.DataFrame({**first, "decision": chosen, **columns}), p


def _joined(pieces: list[Any]) -> Any:
    import pandas as pd

    return pd.concat(pieces, ignore_index=True)
