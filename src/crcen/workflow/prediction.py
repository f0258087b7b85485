"""predict_table: a probability and a decision for every row, in chunks of constant memory."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import ClassWeighting, InvalidInput, InvalidParameter, TableClassifier, decide
from crcen._support.closest import lacking
from crcen._support.progress import counted
from crcen._support.whole_files import check_place
from crcen.tables.writing import TableWriter
from crcen.workflow.inputs import Source, check_column, model_of, plain, price_of, source_of
from crcen.workflow.prices import plain_price
from crcen.workflow.row_watch import RowWatch, unlike_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

__all__ = ["CHUNK_ROWS", "Oddities", "TablePredictions", "model_rows", "predict_table", "scored_chunks"]

Array = NDArray[np.float64]

CHUNK_ROWS = 50_000
_NAMES = ("probability", "decision")


@dataclass
class Oddities:
    """Cells and columns that training did not prepare for, counted over chunks."""

    unseen: dict[str, int]
    unreadable: dict[str, int]
    missing: dict[str, int]
    watch: RowWatch
    extra: tuple[str, ...] = ()

    @classmethod
    def none(cls, model: Any, *, recognises: bool = False) -> "Oddities":
        """Nothing odd yet; whether to look for training rows too."""
        return cls({}, {}, {}, RowWatch(model, recognises=recognises))

    def add(self, frame: "pd.DataFrame", encoded: Any, ignored: set[str]) -> None:
        """Count those of a chunk."""
        self.watch.add(frame, encoded)
        for kind in ("unseen", "unreadable", "missing"):
            counts = getattr(self, kind)
            for name, number in getattr(encoded, kind).items():
                counts[name] = counts.get(name, 0) + number
        self.extra = tuple(name for name in encoded.extra if name not in ignored)

    @property
    def notes(self) -> list[str]:
        """A sentence for each kind."""

        def listed(counts: dict[str, int]) -> str:
            return ", ".join(f"{name} {number:,}" for name, number in counts.items())

        said = self.watch.notes
        if self.unseen:
            said.append(f"categories that training did not have were taken as rare ones: {listed(self.unseen)} rows")
        if self.unreadable:
            said.append(f"cells of another kind than in training were taken as missing: {listed(self.unreadable)} rows")
        if self.missing:
            said.append(f"cells are missing where none was in training, and were filled: {listed(self.missing)} rows")
        if self.extra:
            shown = ", ".join(self.extra[:5]) + (" and more" if len(self.extra) > 5 else "")
            said.append(f"columns that training did not have were ignored: {len(self.extra)} ({shown})")
        return said


def model_rows(model: Any, frame: "pd.DataFrame", ignored: set[str]) -> Any:
    """The columns of a table that a model takes, of a type that it takes; one sentence where columns are missing."""
    is_table = isinstance(model, TableClassifier)
    names = [column.name for column in model.columns_] if is_table else getattr(model, "feature_names_in_", None)
    names = [name for name in frame.columns if name not in ignored] if names is None else list(names)
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise lacking(absent, len(names), frame.columns)
    if is_table:
        return frame[names]
    numbers = frame[names].apply(_as_numbers)
    return numbers if hasattr(model, "feature_names_in_") else numbers.to_numpy()


def _positive_probabilities(model: Any, frame: "pd.DataFrame", odd: Oddities, ignored: set[str]) -> Array:
    """Posterior of the positive class for a chunk, its oddities counted."""
    column = int(np.flatnonzero(model.classes_ == model.pos_label_)[0])
    if not isinstance(model, TableClassifier):
        return model.predict_proba(model_rows(model, frame, ignored))[:, column]
    encoded = model.encode(frame)
    odd.add(frame, encoded, ignored)
    return model.estimator_.predict_proba(encoded.X)[:, column]


def _as_numbers(cells: "pd.Series") -> "pd.Series":
    import pandas as pd

    try:
        return pd.to_numeric(cells)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the model takes numbers: column {cells.name} holds other values.") from error


@dataclass(frozen=True, eq=False)
class TablePredictions:
    """What was decided; prints itself.

    Parameters
    ----------
    n_rows, n_alarms : int
        Rows scored, and those decided positive.
    positive : label
        What an alarm says.
    price : ClassWeighting
        The price of the decisions.
    expected_catches : float
        Sum of the probabilities of the alarms.
    notes : tuple of str
        What was odd about the table.
    unlike : tuple of Difference
        In what the rows differ from training rows beyond chance: ``.column .kind .here .training .sentence``.
    frame : DataFrame or None
        The rows, where they were not written to a file.
    path : Path or None
        The file.
    """

    n_rows: int
    n_alarms: int
    positive: Any
    price: ClassWeighting
    expected_catches: float
    notes: tuple[str, ...] = ()
    unlike: tuple[Any, ...] = ()
    frame: Any = None
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; without the rows."""
        return {
            "rows": self.n_rows,
            "alarms": self.n_alarms,
            "positive": plain(self.positive),
            "cost_ratio": plain_price(self.price.cost_ratio),
            "threshold": self.price.threshold,
            "expected_catches": self.expected_catches,
            "expected_false_alarms": self.n_alarms - self.expected_catches,
            "notes": list(self.notes),
            "unlike": [one.to_dict() for one in self.unlike],
            "path": None if self.path is None else str(self.path),
        }

    def __str__(self) -> str:
        false_alarms = self.n_alarms - self.expected_catches
        lines = [
            f"{self.n_rows:,} rows, {self.n_alarms:,} of them {self.positive} at a price of "
            f"{self.price.cost_ratio:.6g} false alarms per catch (probability above {self.price.threshold:.6g})",
            f"expected among these: {self.expected_catches:,.1f} catches and {false_alarms:,.1f} false alarms",
            *(f"Note: {note}." for note in self.notes),
            *unlike_lines(self.unlike),
        ]
        return "\n".join([*lines, *([] if self.path is None else [f"Written to {self.path}"])])


def predict_table(
    model: Any,
    data: Any,
    *,
    out: str | Path | None = None,
    weighting: Any = None,
    id: str | list[str] | None = None,
    safe_csv: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    verbose: int = 0,
) -> TablePredictions:
    """Score and decide every row of a table: what `crcen predict` does.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    data : data frame, str or Path
        Rows to score. Columns of training must be there, in any order; others are ignored and counted.
    out : str or Path, optional
        Where to write them: .csv, .tsv or .parquet; memory then does not grow with the number of rows. Without it
        they are in ``.frame``.
    weighting : Budget, CostRatio, Lam, Alpha, "balanced" or float, optional
        Another price than that of training; probabilities stay what they are.
    id : str or list of str, optional
        Columns to carry over; by default rows are numbered from 1 in a column ``row``.
    safe_csv : bool, default=False
        Put an apostrophe before ids and labels that a spreadsheet would take for formulas, as in ``=1+1``; for text
        tables that people open in one.
    chunk_rows : int, default=50,000
        Rows at a time.
    verbose : int, default=0
        1 shows progress on a terminal.

    Returns
    -------
    TablePredictions
        Counts and notes, and the rows or where they are: ``probability`` of the positive class and ``decision``.
    """
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int) or chunk_rows < 1:
        raise InvalidParameter(f"chunk_rows must be a whole number of at least 1: got {chunk_rows!r}.")
    if out is not None:
        check_place(out, model, data)
    model = model_of(model)
    price = price_of(weighting, model)
    source = source_of(data)
    ids = [id] if isinstance(id, str) else list(id or ())
    for name in ids:
        check_column(name, source.columns, "id", source.name)
        if name in _NAMES:
            raise InvalidParameter(f"id must not be called {name}: that column is for the model's answer; rename it.")
    odd, pieces, target = Oddities.none(model), [], str(getattr(model, "target_name_", ""))
    n_rows, n_alarms, catches = 0, 0, 0.0
    with ExitStack() as opened:
        writer = None if out is None else opened.enter_context(TableWriter(out, safe_csv=safe_csv))
        done = opened.enter_context(counted("rows", source.n_rows, visible=bool(verbose)))
        for chunk, p in scored_chunks(model, source, odd, {*ids, target}, chunk_rows):
            alarms = decide(p, price)
            piece = _answer(model, chunk, p, alarms, ids, n_rows)
            n_rows, n_alarms, catches = n_rows + len(p), n_alarms + int(alarms.sum()), catches + float(p[alarms].sum())
            if writer is None:
                pieces.append(piece)
            else:
                writer.write(piece)
            done(len(p))
    frame = None
    if out is None:
        import pandas as pd

        frame = pd.concat(pieces, ignore_index=True)
    notes = tuple([*source.notes, *odd.notes])
    path = None if out is None else Path(out)
    unlike = odd.watch.unlike(n_alarms, n_rows, price)
    return TablePredictions(n_rows, n_alarms, model.pos_label_, price, catches, notes, unlike, frame, path)


def scored_chunks(
    model: Any, source: Source, odd: Oddities, ignored: set[str], chunk_rows: int
) -> "Iterator[tuple[pd.DataFrame, Array]]":
    """Yield each chunk of a source with its probabilities; a source without rows is refused."""
    is_empty = True
    for chunk in source.chunks(chunk_rows):
        if len(chunk):
            is_empty = False
            yield chunk, _positive_probabilities(model, chunk, odd, ignored)
    if is_empty:
        raise InvalidInput(f"{source.name} has no rows.")


def _answer(
    model: Any, chunk: "pd.DataFrame", p: Array, alarms: NDArray[np.bool_], ids: list[str], n_before: int
) -> "pd.DataFrame":
    import pandas as pd

    negative = next(label for label in model.classes_ if label != model.pos_label_)
    first = {name: chunk[name].to_numpy() for name in ids}
    first = first or {"row": np.arange(n_before + 1, n_before + len(p) + 1)}
    labels = np.array([negative, model.pos_label_], dtype=model.classes_.dtype)
    return pd.DataFrame({**first, "probability": p, "decision": labels[alarms.astype(int)]})
