"""predict_table: probabilities and a decision for every row of a table, in chunks."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import CostRatio, InvalidParameter, ReadOptions
from crcen._support.files import check_writable
from crcen._support.progress import counted, logged
from crcen._support.text import Values, attributes, count_text, plural
from crcen.commands import inputs, rules
from crcen.commands.inputs import Data, FittedModel, Label, Source, check, require, require_input
from crcen.commands.results import Result, note_lines
from crcen.commands.rules import AUDIT_COLUMNS, ClassShares, CostsLike, Prevalence, ReviewPrices, RowRule, Weighting
from crcen.commands.scoring import CHUNK_ROWS, Chunks, Judging, RowComparison, model_rows, scored_chunks, unlike_lines
from crcen.decisions.expense_curve import ChosenWeighting
from crcen.tables.databases import is_database
from crcen.tables.frames import native_like
from crcen.tables.profile import Difference
from crcen.tables.writing import TableWriter, written_to
from crcen.theory.checks import check_whole_number
from crcen.theory.goals import goal_of
from crcen.theory.price import Price
from crcen.theory.rows import Array, DataFrame, Estimator, Index, share_text
from crcen.theory.thresholds import MetGoal, ReviewedRows

_LONGEST = 60  # characters of a label in the name of its column
# Without a positive class: the column with the classes that the reasons compare.
_REASONS_FOR = "reasons_for"
_MOST_REASONS = 100


class RowReasons(Result):
    """Reasons of alarms, or of the decision for each row if the model has no positive class; ``number`` of each row.

    Its plain values are the rows explained, the mean log-odds that they are compared with, and the largest error.
    """

    keys = "rows=n_rows base_log_odds=base standard_error"

    def __init__(self, model: FittedModel, number: int) -> None:
        number = check_whole_number(number, "reasons", 0, _MOST_REASONS)
        has_reasons = hasattr(model, "reasons") or not number
        require(has_reasons, f"a {type(model).__name__} has no reasons; models of crcen fit have.")
        self.model: Estimator = model
        self.number, self.positive = number, model.weighting_.positive
        first = [_REASONS_FOR] if number and self.positive is None else []
        self.names = [*first, *(f"reason_{i + 1}" for i in range(number))]
        self.n_rows, self.standard_error, self.base = 0, 0.0, math.nan

    def columns(
        self, chunk: pd.DataFrame, p: Array, chosen: Index, ignored: set[str]
    ) -> dict[str, NDArray[np.object_]]:
        """The columns for a chunk with probabilities (n, K) and decisions; empty texts where a row is no alarm."""
        found = {name: np.full(len(p), "", dtype=object) for name in self.names}
        rows = np.ones(len(p), dtype=bool) if self.positive is None else chosen == self.positive
        if not self.number or not rows.any():
            return found
        of = {}
        if self.positive is None:  # of another action than a class the most probable class is explained
            of["classes"] = self.model.classes_[np.where(chosen < p.shape[1], chosen, p.argmax(axis=1))]
        reasons = self.model.reasons(model_rows(self.model, chunk[rows], ignored), **of)
        self.n_rows += len(reasons)
        self.standard_error = max(self.standard_error, reasons.standard_error)
        if self.positive is None:
            found[_REASONS_FOR][:] = reasons.comparisons
        else:
            self.base = reasons.base
        for name, texts in zip(self.names[-self.number :], reasons.columns_of(self.number), strict=True):
            found[name][rows] = texts
        return found

    def __str__(self) -> str:
        if not self.n_rows:
            return "No row is an alarm, so there are no reasons"
        exact = f"standard error at most {self.standard_error:.2g}" if self.standard_error else "exact"
        of, scale = "row", "log-odds of a class against the most probable other class"
        if self.positive is not None:
            of, scale = "alarm", f"log-odds against background rows (mean {self.base:.2f})"
        return f"Reasons for {plural(self.n_rows, of)}, in {scale}: {exact}"


@dataclass(frozen=True, eq=False, repr=False)
class TablePredictions(Result):
    """Decisions on the rows of a table; prints itself."""

    n_rows: int
    n_alarms: int  # rows with another decision than the default
    labels: tuple[Label, ...]
    positive: Label | None
    decided: dict[Label, int]  # rows with each decision
    expected: dict[Label, float]  # sum of the probabilities of each class
    expected_cost: float  # for two classes in false alarms
    expected_catches: float  # alarms that are expected to be right
    # Also the one that a goal implies; None if rows have prices of their own, or if every row got an alarm.
    price: Price | None
    notes: tuple[str, ...] = ()
    unlike: tuple[Difference, ...] = ()  # differences from training rows beyond chance
    frame: DataFrame = None  # the rows, of the library that they came from, if they were not written
    path: Path | str | None = None  # the file, or the table of a database
    goal: MetGoal | None = None
    chosen: ChosenWeighting | None = None  # the price that labelled rows gave for a goal
    review: ReviewedRows | None = None
    reasons: RowReasons | None = None
    shares: ClassShares | None = None  # that the probabilities were moved to
    audits: rules.Audits | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON; without the rows."""
        return {
            **attributes(self, "rows=n_rows alarms=n_alarms decided expected expected_cost expected_catches"),
            "expected_false_alarms": self.n_alarms - self.expected_catches,
            "price": rules.price_values(self.price, self.labels),
            **attributes(self, "goal chosen review prevalence=shares audit=audits notes unlike reasons path"),
        }

    def __str__(self) -> str:
        lines = self._decisions()
        lines += [] if self.shares is None else [self.shares.line(self.positive)]
        lines += [str(one) for one in (self.audits, self.reasons) if one is not None]
        lines += [*note_lines(self.notes), *unlike_lines(self.unlike)]
        return "\n".join([*lines, *([] if self.path is None else [f"Written to {self.path}"])])

    def _decisions(self) -> list[str]:
        decided, lines = f"{plural(self.n_alarms, 'alarm')} (decision = {self.positive})", list[str]()
        expected = ""
        if self.positive is None:
            decided, table = f"decided between {len(self.expected)} classes", [("", "decided", "expected")]
            for label, count in self.decided.items():
                rows = f"{self.expected[label]:,.1f}" if label in self.expected else "–"
                table.append((str(label), f"{count:,}", rows))
            lines = [f"  {label:24.24s} {count:>9}{share:>10}" for label, count, share in table]
            per_row = f"{self.expected_cost / max(self.n_rows, 1):.4g} per row"
            cost = f"expected cost {count_text(self.expected_cost)}, {per_row}"
            unit = "" if self.price is None else self.price.cost_matrix.for_classes([*self.expected]).unit
            expected = f"{cost}, if {unit}" if unit else cost
        elif self.goal is not None or self.review is not None:
            lines = [str(self.review if self.goal is None else self.goal)]
        elif self.price is None:
            decided += " by what each row costs"
        else:
            decided += f" if one miss = {plural(self.price.cost_ratio, 'false alarm')}"
            decided += f" (probability above {share_text(self.price.threshold)})"
        if self.chosen is not None:
            lines.append(f"Chosen on labelled rows: {self.chosen}")
        if self.positive is not None and self.goal is None and self.n_alarms:
            false_alarms = f"{self.n_alarms - self.expected_catches:,.1f} false alarms"
            expected = f"expected among the alarms: {self.expected_catches:,.1f} catches and {false_alarms}"
        return [f"{plural(self.n_rows, 'row')}, {decided}", *lines, *filter(None, [expected])]


@logged
def predict_table(
    model: FittedModel | str | Path,
    data: Data,
    *,
    out: str | Path | None = None,
    weighting: Weighting = None,
    costs: CostsLike = None,
    held_out: Data | None = None,
    review: ReviewPrices = None,
    cost_column: str | None = None,
    alarm_cost: float | None = None,
    time: str | None = None,
    prevalence: Prevalence = None,
    audit: float | str | None = None,
    audit_rule: str = "neyman",
    default_action: Label | None = None,
    clusters: str | None = None,
    random_state: int = 0,
    id: str | list[str] | None = None,
    all_columns: bool = False,
    sort: bool = False,
    safe_csv: bool = False,
    append: bool = False,
    reasons: int = 0,
    chunk_rows: int = CHUNK_ROWS,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TablePredictions:
    """Score and decide every row of a table, as `crcen predict` does.

    Columns of the result are ``probability`` (for several classes ``probability_LABEL`` of each) and ``decision``.

    Parameters
    ----------
    model, costs, review, cost_column, alarm_cost, read, verbose
        As in `crcen.evaluate_table`; the decision of a row between the two prices of a review is "review".
    data : data frame, str or Path
        Rows to score, with the columns of training in any order; other columns are ignored and counted.
    out : str or Path, optional
        Where to write the result: .csv, .tsv, .parquet, .xlsx, or a table such as ``sqlite:///scores.db#scores``, in
        constant memory except with ``sort``, goals and ``prevalence="auto"``. By default it is ``.frame``.
    weighting : Budget, CostRatio, Lam, Alpha, "balanced", float, dict, Capacity, RecallAtLeast or PrecisionAtLeast
        A price other than that of training; or a goal, met on these rows by their probabilities, or on ``held_out``.
        Probabilities do not change. A dict has a weight for each class.
    held_out, time : data frame, str or Path, and str, optional
        Labelled rows that the model did not see, on which the price of a goal is chosen; a guarantee needs them.
        Column of dates, for ``Capacity(20, per="day")``.
    prevalence : float, dict of label to share, or "auto", optional
        Class shares of these rows if they differ from training (a number: of positives). Probabilities are
        adjusted to them, which assumes that rows within a class are as in training. "auto" estimates them.
    audit : float or str, optional
        Select rows without an alarm for an audit: their expected number, or a share of them such as "2%". Columns
        ``audit`` (1 for alarms and drawn rows) and ``audit_probability`` (1 for alarms) are added.
    audit_rule : "neyman" or "uniform", default="neyman"
        Probabilities proportional to the standard deviation of the row's residual, with a lower limit; or equal ones.
    default_action : label, optional
        The decision that is no alarm, for audits by a model of several classes; by default its most frequent class.
    clusters : str, optional
        Column of rows that belong together, also in ``held_out``: the comparison with training rows, the interval of
        ``prevalence="auto"`` and guarantees account for it. Decisions do not change.
    id, all_columns : str or list of str, and bool
        Columns to copy, or all of them; by default rows are numbered from 1 in a column ``row``.
    sort : bool, default=False
        Sort by decreasing risk: the probability that a row is not of the default class. All rows are then in memory.
    safe_csv, append : bool, default=False
        Put an apostrophe before texts that a spreadsheet would run as formulas; add to an existing database table.
    reasons : int, default=0
        Columns ``reason_1`` and so on: for each alarm the columns that raised or lowered its log-odds most; for more
        than two classes for every row, with ``reasons_for``: the decided class against the most probable other one.
    random_state, chunk_rows : int
        Seed of the draws: the same seed and row give the same draw; rows per chunk.
    """
    chunk_rows = check_whole_number(chunk_rows, "chunk_rows", 1)
    if out is not None and not is_database(out):
        check_writable(out, model, data, costs, held_out)
    model = inputs.model_of(model)
    rules.reject_without_positive(model, {"held_out": held_out})
    chosen: ChosenWeighting | None = None
    chosen_notes: list[str] = []
    if held_out is not None:
        both = "held_out= and prevalence= cannot be combined: held-out rows have their own prevalence."
        require(prevalence is None, both, "held_out", "prevalence")
        chosen, chosen_notes = _chosen_on(model, held_out, read, weighting, clusters, verbose)
        weighting = chosen.weighting
    how: Values = {"review": review, "cost_column": cost_column, "alarm_cost": alarm_cost, "time": time}
    roles = {"clusters": clusters, "cost_column": cost_column}
    judging = Judging.of(model, data, read, weighting, costs, roles=roles, **how)
    source, rule = judging.source, rules.with_default(judging.rule, default_action)
    shares, why = ClassShares.of(prevalence, model), RowReasons(model, reasons)
    names, target = answer_columns(rule), str(getattr(model, "target_name_", ""))
    is_audited = audit is not None
    is_rule = audit_rule in rules.AUDIT_RULES and (is_audited or audit_rule == "neyman")
    check("audit_rule", audit_rule, is_rule, "be neyman or uniform, and go with audit=", "audit")
    check("random_state", random_state, is_audited or not random_state, "go with audit=", "audit")
    require(is_audited or default_action is None, "default_action must go with audit=.", "default_action", "audit")
    ids = _copied(id, all_columns, source, (*names, *why.names, *(AUDIT_COLUMNS if is_audited else ())))
    ignored, comparison, pieces = {*ids, target, rule.time or ""} - {""}, RowComparison(model, clusters=clusters), []
    chunks = scored_chunks(model, source, comparison, ignored, chunk_rows)
    met = audits = None
    if rule.goal is not None or is_audited or (shares is not None and shares.is_estimated):
        needed = [name for name in (rule.time, rule.cost_column, clusters) if name is not None]
        with counted("rows", source.n_rows, visible=bool(verbose)) as done:
            p_all, cells, hashes = _all_rows(chunks, needed, target, is_audited, done)
        shares = ClassShares.of(prevalence, model, p_all, None if clusters is None else cells[clusters])
        moved = p_all if shares is None else shares.moved(p_all)
        met = None if rule.goal is None else rule.goal.meet(rule.chance(moved), rule.when(cells))
        if is_audited:
            every = rule.decide(moved, cells)[0] if met is None else rule.numbers(met.alarms)
            audits = rules.draw_audits(audit, audit_rule, rule, moved, every, hashes, random_state)
        chunks = _again(source, p_all, chunk_rows)
    n_rows, n_alarms, catches, cost = 0, 0, 0.0, 0.0
    decided, expected, risks = np.zeros(len(rule.names), dtype=np.int64), np.zeros(len(rule.labels)), []
    with ExitStack() as opened:
        writer = None if out is None else opened.enter_context(TableWriter(out, safe_csv=safe_csv, append=append))
        done = opened.enter_context(counted("rows", source.n_rows, visible=bool(verbose)))
        for chunk, p_trained in chunks:
            p = p_trained if shares is None else shares.moved(p_trained)
            rows = slice(n_rows, n_rows + len(p))
            if met is None:
                actions, own_cost = rule.decide(p, chunk)
            else:
                actions = rule.numbers(met.alarms[rows])
                own_cost = rule.costs.expected(p)[np.arange(len(p)), actions]
            piece = _answer(rule, names, chunk, p, actions, ids, n_rows)
            if audits is not None:
                drawn = (audits.drawn[rows].astype(np.int64), audits.probabilities[rows])
                piece = piece.assign(**dict(zip(AUDIT_COLUMNS, drawn, strict=True)))
            piece = piece.assign(**why.columns(chunk, p, actions, ignored))
            n_alarms, catches = n_alarms + int(rule.alarms(actions).sum()), catches + rule.catches(p, actions)
            n_rows, cost, expected = n_rows + len(p), cost + float(own_cost.sum()), expected + p.sum(axis=0)
            decided += np.bincount(actions, minlength=len(decided))
            if rule.review is not None or sort:
                risks.append(rule.chance(p))
            if writer is None or sort:
                pieces.append(piece)
            else:
                writer.write(piece)
            done(len(p))
        frame = pd.concat(pieces, ignore_index=True) if pieces else None
        if sort and frame is not None:
            frame = frame.iloc[np.argsort(-np.concatenate(risks), kind="stable")].reset_index(drop=True)
        if writer is not None and frame is not None:
            writer.write(frame)
    uses = f"clusters do not change decisions: of each {clusters} at most one row was compared with the training rows"
    cluster_notes = [f"{uses}, and intervals and guarantees allow for dependent rows"] if clusters is not None else []
    is_one_price = met is None and rule.review is None and cost_column is None and shares is None
    price: Price | None = rule.price
    if met is not None:  # at the class counts of training
        low = met.price[0]
        price = model.weighting_.replace(CostRatio(low)) if np.isfinite(low) and low > 0.0 else None
    return TablePredictions(
        n_rows=n_rows,
        n_alarms=n_alarms,
        labels=rule.labels,
        positive=rule.positive,
        decided=dict(zip(rule.names, decided.tolist(), strict=True)),
        expected=dict(zip(rule.labels, expected.tolist(), strict=True)),
        expected_cost=cost,
        expected_catches=catches,
        price=None if cost_column is not None else price,
        notes=(*source.notes, *comparison.notes, *chosen_notes, *cluster_notes),
        unlike=comparison.unlike(n_alarms if is_one_price else None, rule.price),
        frame=None if frame is None or out is not None else native_like(frame, source.native),
        path=written_to(out),
        goal=met,
        chosen=chosen,
        review=rule.review.meet(np.concatenate(risks), rule.price.cost_ratio) if rule.review is not None else None,
        reasons=why if reasons else None,
        shares=shares,
        audits=audits,
    )


def answer_columns(rule: RowRule) -> list[str]:
    """Names of the output columns: without line breaks, all different."""
    if rule.price.positive is not None:
        return ["probability", "decision"]
    names = ["decision"]
    for label in rule.labels:
        text = " ".join("".join(c if c.isprintable() else " " for c in str(label)).split())
        base = f"probability_{text[:_LONGEST]}"
        others = (f"{base}_{number}" for number in range(2, len(rule.labels) + 2))
        names.append(next(name for name in (base, *others) if name not in names))
    return names


def _chosen_on(
    model: FittedModel, held_out: Data, read: ReadOptions | None, stated: Weighting, clusters: str | None, verbose: int
) -> tuple[ChosenWeighting, list[str]]:
    """The price of a goal on labelled rows that the model did not see, and notes if it saw them."""
    goal = goal_of(stated)
    if goal is None:
        alone = "held_out must go with a recall, a precision or a capacity: a price needs no other rows."
        raise InvalidParameter(alone, parameter="held_out")
    require(goal.period is None, f"{goal} is counted among the rows to score: leave held_out out.")
    judging = Judging.of(model, held_out, read, needs_target=True, roles={"clusters": clusters}, is_strict=False)
    scored, name, column = judging.score(verbose, recognises=True), judging.source.name, model.weighting_.positive
    known = scored.is_labelled
    positive = scored.y[known] == column
    require_input(positive.any() and not positive.all(), f"held_out needs rows of both classes: {name} lacks one.")
    recognition = scored.comparison.recognition(is_labelled=known)
    chosen = rules.chosen_price(goal, positive, scored.p[known][:, column], None, recognition, name, scored.clusters)
    notes = [*scored.comparison.notes, *(recognition.notes if recognition else ())]
    return chosen, [f"held-out rows of {name}: {note}" for note in notes]


def _copied(id: str | Sequence[str] | None, all_columns: bool, source: Source, taken: tuple[str, ...]) -> list[str]:
    """Columns of the table to copy to the output; names of output columns are not allowed."""
    ids = [id] if isinstance(id, str) else list(id or ())
    for name in ids:
        inputs.check_column(name, source, "id")
    if all_columns:
        ids = [*ids, *(name for name in source.columns if name not in ids)]
    for name in ids:
        own = f"the column {name} must be renamed or left out: the output has a column of that name."
        require(name not in taken, own, "id")
    return ids


def _all_rows(
    chunks: Chunks, names: list[str], target: str, is_audited: bool, done: Callable[[int], object]
) -> tuple[Array, pd.DataFrame, NDArray[np.uint64]]:
    """Probabilities of all rows, the named columns, and hashes of rows if audits need them."""
    scores, cells, hashes = [], [], [np.empty(0, dtype=np.uint64)]
    for chunk, p in chunks:
        scores.append(p)
        cells.append(chunk[names])
        if is_audited:
            cells_of_row = chunk.drop(columns=target, errors="ignore").astype(str)
            hashes.append(pd.util.hash_pandas_object(cells_of_row, index=False).to_numpy(dtype=np.uint64))
        done(len(p))
    return np.concatenate(scores), pd.concat(cells, ignore_index=True), np.concatenate(hashes)


def _again(source: Source, p: Array, chunk_rows: int) -> Chunks:
    """The chunks of a table again, with their probabilities."""
    for chunk in filter(len, source.chunks(chunk_rows)):
        yield chunk, p[: len(chunk)]
        p = p[len(chunk) :]


def _answer(
    rule: RowRule, names: Sequence[str], chunk: pd.DataFrame, p: Array, actions: Index, ids: list[str], n_before: int
) -> pd.DataFrame:
    found = {name: chunk[name].to_numpy() for name in ids}
    found = found or {"row": np.arange(n_before + 1, n_before + len(p) + 1)}
    # Labels of one type stay of that type; with other actions all are objects, and texts with a review.
    possible = [str(name) for name in rule.names] if rule.review is not None else rule.names
    answers = {"decision": np.array(possible, dtype=object if len(rule.names) > len(rule.labels) else None)[actions]}
    scores = [rule.chance(p)] if rule.price.positive is not None else p.T
    answers |= dict(zip([name for name in names if name != "decision"], scores, strict=True))
    return pd.DataFrame(found | {name: answers[name] for name in names})
