"""predict_table: a probability and a decision for every row, in chunks of constant memory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidParameter
from crcen._support.files import check_writable
from crcen._support.progress import counted, logged
from crcen._support.values import json_value
from crcen.commands.alarm_reasons import AlarmReasons
from crcen.commands.classes.prediction import ClassPredictions, class_columns, predict_classes
from crcen.commands.held_out import chosen_on
from crcen.commands.inputs import Source, check_column, model_of, source_of
from crcen.commands.prices import has_class_price, plain_price, price_of_two
from crcen.commands.row_rules import RowRule, at_prevalence, implied_price, rule_of
from crcen.commands.row_watch import unlike_lines
from crcen.commands.scored_chunks import CHUNK_ROWS, Oddities, scored_chunks
from crcen.tables.databases import is_database
from crcen.tables.options import ReadOptions
from crcen.tables.writing import TableWriter, written_to
from crcen.theory.labels import Labels
from crcen.theory.price import Price
from crcen.theory.rows import Shown, in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

__all__ = ["TablePredictions", "predict_table"]

Array = NDArray[np.float64]

_NAMES = ("probability", "decision")


@dataclass(frozen=True, eq=False)
class TablePredictions(Shown):
    """What was decided; prints itself.

    Parameters
    ----------
    n_rows, n_alarms : int
        Rows scored, and those decided positive.
    positive : label
        What an alarm says.
    price : Price or None
        The price of the decisions, also that which a wish implies; None where rows have prices of their own, or where a
        capacity was for more rows than there are.
    expected_catches : float
        Sum of the probabilities of the alarms.
    notes : tuple of str
        What was odd about the table.
    unlike : tuple of Difference
        In what the rows differ from training rows beyond chance: ``.column .kind .here .training .sentence``.
    frame : data frame or None
        The rows, of the library that they came from, where they were not written.
    path : Path, str or None
        The file, or the table of a database.
    met : MetGoal or None
        Where a wish stood in place of a price: what it implies and is expected to catch.
    chosen : ChosenWeighting or None
        The price that labelled rows gave for a wish.
    review : ReviewedRows or None
        Where rows went to review: how many, and what that saves.
    reasons : AlarmReasons or None
        Of how many alarms there are reasons, and how exact they are.
    """

    n_rows: int
    n_alarms: int
    positive: Any
    price: Price | None
    expected_catches: float
    notes: tuple[str, ...] = ()
    unlike: tuple[Any, ...] = ()
    frame: Any = None
    path: Path | str | None = None
    met: Any = None
    chosen: Any = None
    review: Any = None
    reasons: AlarmReasons | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; without the rows."""
        return {
            "rows": self.n_rows,
            "alarms": self.n_alarms,
            "positive": json_value(self.positive),
            "cost_ratio": None if self.price is None else plain_price(self.price.cost_ratio),
            "threshold": None if self.price is None else self.price.threshold,
            "wish": None if self.met is None else self.met.to_dict(),
            "chosen": None if self.chosen is None else self.chosen.to_dict(),
            "review": None if self.review is None else self.review.to_dict(),
            "expected_catches": self.expected_catches,
            "expected_false_alarms": self.n_alarms - self.expected_catches,
            "notes": list(self.notes),
            "unlike": [one.to_dict() for one in self.unlike],
            "reasons": None if self.reasons is None else self.reasons.summary,
            "path": None if self.path is None else str(self.path),
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        false_alarms = self.n_alarms - self.expected_catches
        if self.met is not None or self.review is not None:
            first = [f"{self.n_rows:,} rows, {self.n_alarms:,} of them {self.positive}"]
            first += str(self.met if self.met is not None else self.review).split("\n")
        elif self.price is None:
            first = [f"{self.n_rows:,} rows, {self.n_alarms:,} of them {self.positive} by what each row costs"]
        else:
            first = [
                f"{self.n_rows:,} rows, {self.n_alarms:,} of them {self.positive} at a price of "
                f"{self.price.cost_ratio:.6g} false alarms per catch (probability above {self.price.threshold:.6g})"
            ]
        if self.chosen is not None:
            first += ["Chosen on labelled rows: " + str(self.chosen)]
        if self.met is None:
            first.append(
                f"expected among these: {self.expected_catches:,.1f} catches and {false_alarms:,.1f} false alarms"
            )
        lines = [
            *first,
            *([self.reasons.line] if self.reasons is not None and self.reasons.number else []),
            *(f"Note: {note}." for note in self.notes),
            *unlike_lines(self.unlike),
        ]
        return "\n".join([*lines, *([] if self.path is None else [f"Written to {self.path}"])])


@logged
def predict_table(
    model: Any,
    data: Any,
    *,
    out: str | Path | None = None,
    weighting: Any = None,
    costs: Any = None,
    held_out: Any = None,
    review: Any = None,
    cost_column: str | None = None,
    alarm_cost: float = 1.0,
    time: str | None = None,
    prevalence: float | None = None,
    id: str | list[str] | None = None,
    all_columns: bool = False,
    sort: bool = False,
    safe_csv: bool = False,
    append: bool = False,
    reasons: int = 0,
    background: Any = None,
    chunk_rows: int = CHUNK_ROWS,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TablePredictions | ClassPredictions:
    """Score and decide every row of a table: what `crcen predict` does.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    data : data frame, str or Path
        Rows to score. Columns of training must be there, in any order; others are ignored and counted.
    out : str or Path, optional
        Where to write them: .csv, .tsv, .parquet, .xlsx, or a table such as ``sqlite:///scores.db#scores``;
        memory then does not grow with the number of rows, but for ``sort`` and, by 8 bytes a row, for wishes. Without
        it they are in ``.frame``.
    weighting : Budget, CostRatio, Lam, Alpha, "balanced", float, Capacity, RecallAtLeast or PrecisionAtLeast, optional
        Another price than that of training, or a wish; probabilities stay what they are. A wish is met on these rows as
        their probabilities expect it, or on ``held_out``.
    costs : CostMatrix, data frame, str or Path, optional
        Other costs of decisions than those of training, as `fit_table` takes them.
    held_out : data frame, str or Path, optional
        Labelled rows that the model did not see, on which the price of a wish is chosen instead; a guaranteed recall
        needs them.
    review : Review or (low, high), optional
        Two prices between which the decision is "review".
    cost_column : str, optional
        Column with what a miss of that row costs, in the unit of ``alarm_cost``: each row then has its own price.
    alarm_cost : float, default=1
        What a false alarm costs, with ``cost_column``.
    time : str, optional
        Column of dates, for ``Capacity(20, per="day")``.
    prevalence : float, optional
        Share of positives among these rows where it is known to differ from that of training; probabilities are moved
        to it, which is right where positives and negatives are each still like those of training.
    id : str or list of str, optional
        Columns to carry over; by default rows are numbered from 1 in a column ``row``.
    all_columns : bool, default=False
        Carry over all of them.
    sort : bool, default=False
        Riskiest rows first; all rows are then in memory.
    safe_csv : bool, default=False
        Put an apostrophe before ids and labels that a spreadsheet would take for formulas, as in ``=1+1``; for text
        tables that people open in one.
    append : bool, default=False
        Add to a table of a database that is there.
    reasons : int, default=0
        Columns ``reason_1`` and so on: for each alarm the columns that raised or lowered its log-odds most. Of several
        classes for every row, with what they are for in ``reasons_for``: the class that is decided, rather than the
        likeliest other one.
    background : data frame, str or Path, optional
        Rows that reasons compare alarms with; by default the model's own typical rows.
    chunk_rows : int, default=50,000
        Rows at a time.
    read : ReadOptions, optional
        How the table is read, where that is not to be detected.
    verbose : int, default=0
        1 shows progress on a terminal.

    Returns
    -------
    TablePredictions, or ClassPredictions for a model of more than two classes
        Counts and notes, and the rows or where they are: ``probability`` of the positive class and ``decision``. Of
        more classes ``probability_LABEL`` for each; options that need a positive class are refused.
    """
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int) or chunk_rows < 1:
        raise InvalidParameter(f"chunk_rows must be a whole number of at least 1: got {chunk_rows!r}.")
    if out is not None and not is_database(out):
        check_writable(out, model, data)
    model = model_of(model)
    source = source_of(data, read, model)
    if has_class_price(model):
        why = AlarmReasons(model, reasons, background, read)
        ids = _carried(id, all_columns, source, ("decision", *class_columns(model.classes_.tolist()), *why.class_names))
        two = {"held_out": held_out, "review": review, "cost_column": cost_column}
        two |= {"time": time, "prevalence": prevalence, "sort": sort}
        how_many: dict[str, Any] = {
            "safe_csv": safe_csv,
            "append": append,
            "chunk_rows": chunk_rows,
            "verbose": verbose,
        }
        stated = {"weighting": weighting, "costs": costs}
        return predict_classes(model, source, ids, out=out, why=why, others=two, **stated, **how_many)
    weighting = price_of_two(weighting, costs, model)
    if held_out is not None and prevalence is not None:
        raise InvalidParameter(
            "held_out= and prevalence= do not go together: held-out rows have a share of their own.",
            parameter=("held_out", "prevalence"),
        )
    labelled = None if held_out is None else source_of(held_out, read, model, is_strict=False)
    chosen = None if labelled is None else chosen_on(model, labelled, weighting, verbose=verbose)
    how = {"review": review, "cost_column": cost_column, "alarm_cost": alarm_cost, "time": time}
    rule = rule_of(model, source, weighting if chosen is None else chosen.weighting, **how)
    why = AlarmReasons(model, reasons, background, read)
    ids = _carried(id, all_columns, source, (*_NAMES, *why.names))
    odd, pieces, target = Oddities.none(model), [], str(getattr(model, "target_name_", ""))
    n_rows, n_alarms, catches, probabilities = 0, 0, 0.0, []
    met, chunks = None, _moved_chunks(model, source, odd, {*ids, target}, chunk_rows, prevalence)
    if rule.wish is not None:
        with counted("rows", source.n_rows, visible=bool(verbose)) as done:
            p_all, times = _all_rows(chunks, rule, done)
        met, chunks = rule.meet(p_all, times), _again(source, p_all, chunk_rows)
    with ExitStack() as opened:
        writer = None if out is None else opened.enter_context(TableWriter(out, safe_csv=safe_csv, append=append))
        done = opened.enter_context(counted("rows", source.n_rows, visible=bool(verbose)))
        for chunk, p in chunks:
            alarms = rule.decide(p, chunk) if met is None else met.alarms[n_rows : n_rows + len(p)]
            to_review = None
            if rule.review is not None:
                low, high = rule.review.thresholds
                alarms, to_review = p > high, (p > low) & (p <= high)
                probabilities.append(p)
            piece = _answer(model, chunk, p, alarms, to_review, ids, n_rows)
            piece = piece.assign(**why.of(chunk, alarms, {*ids, target}))
            n_rows, n_alarms, catches = n_rows + len(p), n_alarms + int(alarms.sum()), catches + float(p[alarms].sum())
            if writer is None or sort:
                pieces.append(piece)
            else:
                writer.write(piece)
            done(len(p))
        frame = _joined(pieces, sort) if pieces else None
        if writer is not None and frame is not None:
            writer.write(frame)
    price = rule.price if met is None else implied_price(met, model)
    is_one_price = met is None and review is None and cost_column is None
    return TablePredictions(
        n_rows,
        n_alarms,
        model.pos_label_,
        None if cost_column is not None else price,
        catches,
        tuple([*source.notes, *odd.notes]),
        odd.watch.unlike(n_alarms, n_rows if is_one_price and prevalence is None else -1, rule.price),
        None if frame is None or out is not None else source.like_input(frame),
        written_to(out),
        met,
        chosen,
        rule.reviewed(np.concatenate(probabilities)) if probabilities else None,
        why,
    )


def _carried(id: Any, all_columns: bool, source: Source, taken: tuple[str, ...]) -> list[str]:
    """Columns of the table that stand beside the answers, whose names are taken."""
    ids = [id] if isinstance(id, str) else list(id or ())
    for name in ids:
        check_column(name, source.columns, "id", source.name)
    if all_columns:
        ids = [*ids, *(name for name in source.columns if name not in ids)]
    for name in ids:
        if name in taken:
            raise InvalidParameter(
                f"id must not be called {name}: that column is for the model's answer; rename it.", parameter="id"
            )
    return ids


def _moved_chunks(
    model: Any, source: Source, odd: Oddities, ignored: set[str], chunk_rows: int, prevalence: float | None
) -> Iterator[tuple[pd.DataFrame, Array]]:
    for chunk, p in scored_chunks(model, source, odd, ignored, chunk_rows):
        yield chunk, at_prevalence(p, prevalence, model.weighting_)


def _all_rows(chunks: Any, rule: RowRule, done: Any) -> tuple[Array, Any]:
    """Probabilities of all rows, and their times where the rule goes by them."""
    scores, times = [], []
    for chunk, p in chunks:
        scores.append(p)
        times.append(rule.when(chunk))
        done(len(p))
    return np.concatenate(scores), None if rule.time is None else np.concatenate(times)


def _again(source: Source, p: Array, chunk_rows: int) -> Iterator[tuple[pd.DataFrame, Array]]:
    """The chunks of a table once more, with the probabilities that they got."""
    start = 0
    for chunk in source.chunks(chunk_rows):
        if len(chunk):
            yield chunk, p[start : start + len(chunk)]
            start += len(chunk)


def _joined(pieces: list[pd.DataFrame], sort: bool) -> pd.DataFrame:
    import pandas as pd

    frame = pd.concat(pieces, ignore_index=True)
    return frame.sort_values("probability", ascending=False, kind="stable", ignore_index=True) if sort else frame


def _answer(
    model: Any,
    chunk: pd.DataFrame,
    p: Array,
    alarms: NDArray[np.bool_],
    to_review: NDArray[np.bool_] | None,
    ids: list[str],
    n_before: int,
) -> pd.DataFrame:
    import pandas as pd

    first = {name: chunk[name].to_numpy() for name in ids}
    first = first or {"row": np.arange(n_before + 1, n_before + len(p) + 1)}
    decisions = Labels.of_model(model).decode(alarms)
    if to_review is not None:
        decisions = np.where(to_review, "review", decisions.astype(str)).astype(object)
    return pd.DataFrame({**first, "probability": p, "decision": decisions})
