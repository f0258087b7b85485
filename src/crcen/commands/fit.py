"""fit_table: from a table with a target column to a validated model with evidence on held-out rows."""

import math
import time as clock
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import crcen
from crcen import CommitteeClassifier, CRCENClassifierCV, InvalidInput, ReadOptions, TableClassifier, TimeSplit
from crcen._support.lazy import model_selection
from crcen._support.progress import busy, logged
from crcen._support.text import attributes, count_text, json_value, listed, listed_counts, plural
from crcen.commands import inputs, rules
from crcen.commands.export import check_exportable
from crcen.commands.inputs import Data, FittedModel, Label, Rows, check, require, require_input
from crcen.commands.results import Result, note_lines
from crcen.commands.rules import CostsLike, Weighting
from crcen.decisions.expense_curve import out_of_fold_rows
from crcen.exceptions import TrainingFailed
from crcen.models.members.registry import MEMBERS
from crcen.report.checks import selection_of
from crcen.report.quality import METRICS, RowMetrics, count_sentence, count_values, measured_text, of_no_use, too_good
from crcen.tables.cells import TableCells
from crcen.tables.fingerprint import row_hashes
from crcen.tables.leaks import Signs, find_signs
from crcen.tables.profile import rows_to_score
from crcen.theory.checks import check_whole_number
from crcen.theory.goals import ThresholdGoal, goal_of
from crcen.theory.intervals import Interval
from crcen.theory.metrics import ConfusionCounts, Quality, measure_quality
from crcen.theory.residual_test import TrainingError
from crcen.theory.rows import Array, Bools, Index, LabelArray, Splitter, effective_rows, four_digits
from crcen.theory.selective import clipped_weights

Learner: TypeAlias = CRCENClassifierCV | CommitteeClassifier
Options: TypeAlias = dict[str, Any]  # parameters of an estimator

EFFORTS = ("quick", "standard", "best")
# One setting instead of a search.
QUICK: Options = {"hidden": (16,), "l2": 1e-2, "encoding": "standard", "n_members": 1}
_MANY = 10_000  # rows above which a search of networks has fewer settings
_FIT_SHARE = 0.7  # of a time limit, for members of a committee
_FEW = 10  # rows of a class: too few for reliable metrics, and for refits on halves of the rows
_MOST_REFIT_ROWS = 5_000
_MOST_GROUPS = 2_048  # into which rows are put by their hashes, so that copies stay together
_COPIES_TOGETHER = "copies of a row were held out together, so no model was evaluated on a copy of its training rows"
_COPIES_APART = "metrics of held-out rows are too good, because the model had seen copies of them: remove the copies"
_MOST_UNEVEN = 100.0  # ratio of balanced weights that is pointed out
# Shares of alarms that differ by both: a refit on more rows is another model, so some difference is expected.
_FACTOR, _Z = 1.5, 4.0


@dataclass(frozen=True)
class Selection:
    """How training rows were chosen for a label: with known probabilities, or by an earlier model."""

    n_labelled: int
    n_unlabelled: int
    column: str | None = None  # of audit probabilities
    largest_weight: float | None = None  # where weights of 1 / probability were cut
    effective_rows: float | None = None  # equally weighted rows that carry as much information (Kish)
    alarm_share: float | None = None  # of rows with a label among alarms of the earlier model
    quiet_share: float | None = None  # and among its other rows

    @property
    def notes(self) -> list[str]:
        """Sentences for the user."""
        alarm, quiet = 100.0 * (self.alarm_share or 0.0), 100.0 * (self.quiet_share or 0.0)
        said = f"{alarm:.3g} % of the alarms of the earlier model have a label, and {quiet:.3g} % of other rows; "
        said += "rows count equally here: record the probability of each and use --audited"
        if self.column is not None:
            said = (
                f"weights of 1 / {self.column} were limited to {self.largest_weight or 0.0:.4g}, so that "
                f"{self.n_labelled:,} rows carry as much information as {self.effective_rows:,.0f} equally weighted "
                "ones; metrics are biased towards rows that were likely to be chosen"
            )
        elif not self.n_unlabelled:
            said = "every row has a label, so the earlier model selected none of them"
        elif quiet < 0.01 * alarm:
            said = (
                f"labels exist only where the earlier model raised an alarm ({alarm:.3g} % of alarms, {quiet:.2g} % of "
                "other rows): nothing can be learned about rows without an alarm, and the probabilities of such rows "
                "are extrapolated; draw audits with crcen predict --audit (CRC011)"
            )
        return [] if self.column is not None and self.largest_weight is None else [said]


class PositiveClass(NamedTuple):
    """Held-out rows of two classes, seen from the positive one; ``average_price`` is expected, not observed."""

    counts: ConfusionCounts
    metrics: dict[str, Interval]
    average_price: float
    alarm_shares: dict[str, float | bool]  # see `alarm_shares`
    notes: list[str]  # alarms that differ, classes that are separated, a useless model


def alarm_shares(
    by_folds: Bools, by_model: Bools, is_positive: Bools, was_held_out: Bools, scored: Index | None = None
) -> tuple[dict[str, float | bool], list[str]]:
    """Shares of alarms of the folds' models (held-out rows) and of the saved model (the same, all rows), and notes.

    The first two ``differ`` if that is beyond noise and not explained by labels that the saved model has learnt, which
    move its share towards that of the positives. ``scored`` are the rows of the saved model's alarms, if not all.
    """
    rows, alarms = np.arange(len(was_held_out)) if scored is None else scored, was_held_out.copy()
    alarms[was_held_out] = by_folds
    held_out = was_held_out[rows]
    compared, same = alarms[rows][held_out], by_model[held_out]
    z = (int(same.sum()) - int(compared.sum())) / math.sqrt(max(1, int((compared != same).sum())))
    shares = (by_folds, compared, same, by_model, is_positive[rows][held_out])
    folds, rate, saved, training, learnt = (float(one.mean()) for one in shares)
    is_apart = abs(z) > _Z and max(rate, saved) > _FACTOR * min(rate, saved)
    differ = is_apart and not min(rate, learnt) <= saved <= max(rate, learnt)
    own, others = f"{1000.0 * saved:,.4g} alarms per 1,000 on its training rows", f"{1000.0 * folds:,.4g}"
    note = f"the saved model raises {own}, and the models of the folds {others} on held-out rows"
    note += ", which the metrics above describe; evaluate the saved model on new labelled rows before relying on it"
    return {"folds": folds, "saved_model": saved, "training": training, "differ": differ}, [note] if differ else []


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FittedTable(Result):
    """What every fit of a table has: the model, the data, notes and the file it was saved to."""

    model: TableClassifier
    data: str
    target: str
    seconds: float
    notes: tuple[str, ...] = ()
    path: Path | None = None

    def _model_values(self, n_rows: float, **own_price: object) -> dict[str, object]:
        model, labels = self.model, self.model.classes_.tolist()
        return {
            **attributes(self, "data target"),
            "classes": json_value(labels),
            "rows": {"all": n_rows, "by_class": model.weighting_.counts.tolist()},
            "price": (rules.price_values(model.weighting_, labels) or {}) | own_price,
            "columns": [column.describe() for column in model.columns_],
            "dropped": [attributes(one, "name reason") for one in model.dropped_],
            "n_encoded": len(model.encoded_names_),
            **attributes(self, "seconds notes path"),
        }

    def _class_counts(self) -> str:
        counts, labels = self.model.weighting_.counts, self.model.classes_.tolist()
        shown = listed_counts(((labels[k], counts[k]) for k in np.argsort(-counts, kind="stable")), most=12)
        return f"{len(labels)} classes of {self.target}: {shown}"

    def _column_lines(self) -> list[str]:
        kinds = Counter(column.kind for column in self.model.columns_)
        counted = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        return [
            f"Columns   {kinds.total()} used ({counted}; {plural(len(self.model.encoded_names_), 'input')}), "
            f"{len(self.model.dropped_)} left out",
            *(f"  {one.name:<20} left out: {one.reason}" for one in self.model.dropped_),
        ]

    def _price_lines(self) -> list[str]:
        price, costs = self.model.weighting_, getattr(self.model, "costs_", None)
        if price.positive is not None:
            return [
                "Price, stated in four ways",
                f"  budget, cost ratio  {price.cost_ratio:<10.6g} false alarms that one miss is worth",
                f"  λ                   {price.lam:<10.6g} weight of a positive row at this price",
                f"  α                   {price.alpha:<10.6g} 1 is balanced",
                f"  threshold           {price.threshold:<10.6g} an alarm above this probability",
            ]
        if costs is not None:
            return ["Costs     of every decision for every true class", *(f"  {one}" for one in str(costs).split("\n"))]
        pairs = zip(self.model.classes_.tolist(), price.weights.tolist(), strict=True)
        return [f"Weights   a mistake on a class costs its weight: {', '.join(f'{one} {w:.4g}' for one, w in pairs)}"]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TableFit(FittedTable):
    """A fitted table with its out-of-fold evidence; prints the main result.

    ``model`` is ready to predict; ``path``, ``onnx`` and ``report`` are the files that were written.
    """

    n_rows: int  # with a label
    validation: str  # how rows were held out
    n_validated: int  # rows that were held out once
    quality: Quality  # decisions of out-of-fold rows and their cost, for each class
    expense: crcen.ExpenseCurve  # cost of catches between half and twice the price, or of each class around its weight
    positive: PositiveClass | None  # the same for the positive class, if there is one
    signs: Signs  # columns that may be recorded after the event, copies of rows, repeating identifiers
    selection: Selection | None  # how rows were chosen for a label, if that was stated
    onnx: Path | None = None
    report: Path | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON; the same keys for any number of classes."""
        model, positive, own_price = self.model, self.positive, dict[str, object]()
        out_of_fold, equation = self.quality.to_dict(), model.estimator_.oof_key_equation_
        error: TrainingError | None = getattr(model, "training_error_", None)
        own_price["average_price"] = None if positive is None else json_value(positive.average_price)
        own_price["expense"] = rules.step_values(self.expense)
        own_price["alarm_shares"] = None if positive is None else positive.alarm_shares
        if positive is not None:
            own = {name: json_value(one.value) for name, one in positive.metrics.items() if name != "cost_per_1000"}
            out_of_fold |= {"counts": count_values(positive.counts), **own}
        residual = equation.residual if np.ndim(equation.lhs) == 0 else equation.residuals
        rows, shift = f"{equation.rows}, before the shift", model.estimator_.oof_shift_
        sides = {"left": equation.lhs, "right": equation.rhs, "rows": rows, "shift": shift}
        return {
            **self._model_values(self.n_rows, **own_price),
            "columns_read": [*map(str, model.feature_names_in_), self.target],
            "columns_used": [column.name for column in model.columns_],
            "goal": None if self.goal is None else str(self.goal),
            **_learner_values(model.estimator_),
            "validation": {"how": self.validation, "rows": self.n_validated},
            "key_equation": json_value(sides | {"residual": residual}),
            "out_of_fold": out_of_fold,
            "training_error": None if error is None else error.sizes.tolist() if positive is None else error.size,
            **self.signs.to_dict(),
            "selection": None if self.selection is None else asdict(self.selection),
            **attributes(self, "onnx report"),
        }

    def __str__(self) -> str:
        cost, quality = self.quality.cost.scaled(1000.0), self.quality
        by_audits = self.selection is not None and self.selection.effective_rows is not None
        by_weight = ", by weight" if by_audits or hasattr(self.model, "weight_name_") else ""
        where = f"{self.data}, {plural(self.n_validated, 'row')} held out of training{by_weight}"
        if self.positive is not None:
            lines = [f"{where}: {count_sentence(self.positive.counts)} ({self.target} = {self.model.pos_label_})"]
            lines += [] if self.goal is None else [f"Goal: {self.goal}, met by the price below"]
            unit = f" if one miss = {plural(self.model.weighting_.cost_ratio, 'false alarm')}"
        else:
            lines, unit = [f"{where}:", *self._class_lines()], quality.costs.unit and f" if {quality.costs.unit}"
        habit = f"{quality.habit} for every row"
        if self.positive is not None:
            habit = "an alarm on every row" if quality.habit == self.model.pos_label_ else "no alarm at all"
        value, low, high, constant = map(four_digits, (*cost[:3], 1000.0 * quality.habit_cost))
        lines.append(f"Cost per 1,000 rows {value} ({low} to {high}){unit}; {constant} with {habit}")
        places = {"saved to": self.path, "ONNX graph": self.onnx, "report on held-out rows": self.report}
        written = "".join(f", {name} {place}" for name, place in places.items() if place is not None)
        lines += [*note_lines(self.notes), f"{self.seconds:.1f} s{written}"]
        if self.path is not None:
            rows = "NEW_ROWS, with labelled rows that are new to the model"
            lines.append(f"Next: crcen evaluate {quote(str(self.path))} {rows}")
        return "\n".join(lines)

    def details(self) -> str:
        """Columns, learner, price and every metric of held-out rows, for `crcen fit --details`."""
        positive, error = self.positive, getattr(self.model, "training_error_", None)
        lines = [
            f"Rows      {self.n_rows:,}: {self._class_counts()}",
            *self._column_lines(),
            *_learner_lines(self.model.estimator_, self.validation),
            "",
            *self._price_lines(),
            "",
            f"On {plural(self.n_validated, 'row')} held out of training",
        ]
        measured = self.quality.lines() if positive is None else self._positive_lines(positive)
        measured += [] if error is None else [f"{'model uncertainty':<24} {error}"]
        lines += [f"  {line}" if line else "" for line in measured]
        if positive is not None:
            lines += ["Cost per extra catch: observed and expected", *rules.step_lines(self.expense)]
        return "\n".join(lines)

    def _positive_lines(self, positive: PositiveClass) -> list[str]:
        estimator, metrics = self.model.estimator_, positive.metrics
        equation, found = estimator.oof_key_equation_, metrics["false_alarms_per_catch"]
        expected = "" if math.isnan(positive.average_price) else f" ({positive.average_price:.4g} expected)"
        caught = "nothing was caught" if math.isnan(found.value) else f"{measured_text(found)} on average{expected}"
        balance = crcen.Calibration.of(getattr(estimator, "calibration", "out_of_fold")).balance
        shifted = f"log-odds then shifted by {estimator.oof_shift_:+.3f} to solve it"
        if self.goal is not None:
            shifted = "log-odds not shifted to solve it: the price is where the goal is met"
        elif estimator.oof_shift_ == 0.0 and balance in ("auto", "oof"):
            shifted = "log-odds not shifted to solve it: later rows differ in both directions"
        folds, saved, *_ = (f"{1000.0 * share:,.4g}" for share in positive.alarm_shares.values())
        n_rows = len(estimator.oof_decision_function_)
        part = "a random part of " if len(rows_to_score(n_rows)) < n_rows else ""
        alarms = f"{folds} by the folds' models, {saved} by the saved model on {part}the same rows, its training rows"
        last = {
            "alarms_per_1000": alarms,
            "false_alarms_per_catch": f"{caught}; {self.model.weighting_.cost_ratio:.6g} for the last catch",
        }
        texts = {METRICS[name].title: measured_text(one) for name, one in metrics.items() if name not in last}
        texts |= {METRICS[name].title: text for name, text in last.items()}
        texts["key equation"] = f"left side {equation.lhs:.4g}, right side {equation.rhs:.4g} ({shifted})"
        return [f"{title:<24} {text}" for title, text in texts.items()]

    def _class_lines(self) -> list[str]:
        table, labels = self.quality.counts.table, [str(label) for label in self.quality.costs.names]
        width, lines = max(map(len, labels)), []
        for k, label in enumerate(labels):
            line = plural(float(table[:, k].sum()), "row")
            if k < len(table):
                false_alarms = plural(float(table[:, k].sum() - table[k, k]), "false alarm")
                line = f"found {count_text(table[k, k])} of {count_text(table[k].sum())}, {false_alarms}"
            lines.append(f"  {label:<{width}}  {line}")
        return lines

    @property
    def goal(self) -> ThresholdGoal | None:
        """The goal that was stated instead of a price, if any."""
        return goal_of(self.model.estimator_.weighting)


@logged
def fit_table(
    data: Data,
    *,
    target: str,
    positive: Label | None = None,
    weighting: Weighting = "balanced",
    costs: CostsLike = None,
    drop: str | Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
    weight: str | None = None,
    audit_probability: str | None = None,
    selected_by: FittedModel | str | Path | None = None,
    clusters: str | None = None,
    time: str | None = None,
    n_splits: int = 4,
    learner: str | None = None,
    effort: str = "standard",
    time_limit: float | None = None,
    estimator: CRCENClassifierCV | CommitteeClassifier | None = None,
    n_refits: int | None = None,
    fingerprint: bool = True,
    random_state: int = 0,
    read: ReadOptions | None = None,
    verbose: int = 0,
    out: str | Path | None = None,
    onnx: str | Path | None = None,
    report: str | Path | None = None,
) -> TableFit:
    """Fit a model to a table of mixed columns, as `crcen fit` does.

    Columns of weights, audit probabilities, clusters and times are not inputs.

    Parameters
    ----------
    data : data frame, str or Path
        Training rows, or the CSV, TSV or Parquet file that holds them.
    target : str
        Column with the label, of two to fifty values; rows without one are left out.
    positive : label, optional
        The positive value; by default the rarer of two, and none of more. All other values become ``"not …"``.
    weighting : as in CRCENClassifier, default="balanced"
        What a miss is worth, or a goal that out-of-fold rows turn into a price, such as ``RecallAtLeast(0.9)`` or
        ``Capacity(20, per="day")`` with ``time``. For more than two classes ``None`` or a dict with a weight for each.
    costs : CostMatrix, data frame, str or Path, optional
        Cost of each decision (columns) for each true class (rows), also as a spreadsheet; other columns are actions.
    drop, keep, categorical : sequence of str
        Columns to leave out, to use although they look like identifiers, to use as categories; see `TableClassifier`.
    weight : str, optional
        Column of sample weights, such as survey weights; out-of-fold counts are then sums of weights, 1 on average.
    audit_probability : str, optional
        Column with the probability that a row was selected for a label; rows count 1 / probability, within limits.
    selected_by : fitted classifier, str or Path, optional
        The earlier model whose alarms were checked, if no probabilities were recorded.
    clusters, time : str, optional
        Column whose equal values stay in one fold, or of times: validation rows are later than training rows.
    learner : {"committee", "networks", "trees", "forest", ...}, optional
        Kind of model: by default a `CommitteeClassifier`, or one of its members alone.
    effort : {"quick", "standard", "best"}, default="standard"
        ``"quick"``: one network without a search. ``"best"``: several searches, averaged.
    time_limit : float, optional
        Seconds for the whole fit. Steps that would not finish in time are not started.
    estimator : CRCENClassifierCV or CommitteeClassifier, optional
        Another search; its weighting, positive class, folds and seed are set here.
    n_refits : int, optional
        Refits on halves of the rows for `crcen.training_error`; default: 6, and 0 with ``effort="quick"``.
    fingerprint : bool, default=True
        Keep truncated hashes of the training rows, by which `report` and `evaluate` recognise them.
    n_splits, random_state : int
        Validation folds, fewer if a class has fewer rows; seed.
    read, verbose : ReadOptions and int, optional
        How the table is read, by default detected; 1 shows progress on a terminal.
    out, onnx, report : str or Path, optional
        Where to save the model, its ONNX graph, and the report of `write_report` on out-of-fold rows.
    """
    start = clock.perf_counter()
    both = "clusters= and time= are two ways to validate: give one of them."
    require(clusters is None or time is None, both, "clusters", "time")
    both = "audit_probability= states how rows were chosen: leave out selected_by=."
    require(audit_probability is None or selected_by is None, both, "audit_probability", "selected_by")
    inputs.check_outputs({"out": out, "onnx": onnx, "report": report}, data, costs, selected_by)
    source = inputs.source_of(data, read)
    named = {"clusters": clusters, "time": time, "weight": weight, "audit_probability": audit_probability}
    roles = {name: inputs.ROLES[role] for role, name in inputs.role_columns(source, target, named).items()}
    with busy("reading the table", visible=bool(verbose)):
        frame = source.numbered()
        inputs.check_column(target, source, "the target")
        labelled = frame[target].notna().to_numpy()
        if audit_probability is not None:
            frame[audit_probability] = inputs.audit_probabilities(frame, audit_probability, labelled)
        selection = None
        if selected_by is not None:
            earlier: Any = inputs.model_of(selected_by)
            own, X = (earlier.estimator_, earlier.encode(frame).X) if hasattr(earlier, "encode") else (earlier, frame)
            found = selection_of(earlier, labelled, own.predict_proba(X))
            shares = json_value([found.alarm_share, found.quiet_share])
            selection = Selection(int(labelled.sum()), found.n_missing, None, None, None, *shares)
        is_audited = audit_probability is not None or selected_by is not None
        rows = inputs.rows_of(source, target, positive, *roles, frame=frame, is_audited=is_audited)
    reasons = {**dict.fromkeys([drop] if isinstance(drop, str) else drop, "asked for"), **roles}
    require(target not in reasons, f"drop must name other columns than the target: got {target!r}.", "drop")
    weights = None if weight is None else inputs.weights_of(rows.frame[weight])
    if audit_probability is not None:
        inverse, cut = clipped_weights(1.0 / rows.frame[audit_probability].to_numpy(dtype=np.float64))
        weights = inverse if weights is None else inverse * weights
        largest, missing = None if math.isinf(cut) else cut, int((~labelled).sum())
        selection = Selection(len(weights), missing, audit_probability, largest, effective_rows(weights))
    y = rows.y.to_numpy()
    weighting = rules.stated_weighting(weighting, costs, np.unique(y).tolist(), target)
    goal, by_rows = goal_of(weighting), []
    if goal is not None and goal.period is not None:  # of days or weeks as one of these rows
        require(time, f"{goal} needs time=, the column of dates from which rows per day are counted.", "time")
        weighting = goal.over_days(inputs.dates_of(rows.frame[time]).astype("datetime64[D]").astype(np.int64))
        by_rows = [f"{goal} was taken for {weighting}, as many as have a label in a {goal.period} on average"]
    related = None if clusters is None else inputs.cluster_numbers(rows.frame[clusters])
    together = related if time is None else inputs.times_of(rows.frame[time], time)
    search = unfitted_learner(learner, estimator, time_limit, len(y), effort)
    if time_limit is not None:  # the rest is for encoding, refits and files
        search.set_params(time_limit=max(1e-3, _FIT_SHARE * (time_limit - (clock.perf_counter() - start))))
    columns: Options = {"drop": reasons, "keep": keep, "categorical": categorical}
    model = TableClassifier(estimator=search, fingerprint=fingerprint, random_state=random_state, **columns)
    table = TableCells(rows.frame)
    model.learn_columns(table)
    if onnx is not None:
        check_exportable(model, onnx, data)
    encoded = model.encode(table)
    numbers = inputs.labels_as(rows.y, np.unique(y), target)
    signs = find_signs(model.columns_, table, numbers, np.unique(y).tolist(), model.dropped_)
    copies = []
    if together is None and signs.duplicates.notes and not signs.duplicates.is_coarse:
        groups = (row_hashes(model.columns_, table, encoded.X, 0) % np.uint64(_MOST_GROUPS)).astype(np.int64)
        n_groups = np.bincount(np.unique(numbers * _MOST_GROUPS + groups) // _MOST_GROUPS)  # of each class
        together = related = groups if n_groups.min() > 1 else None
        copies = [_COPIES_APART if related is None else _COPIES_TOGETHER]
    folds, how = folds_of(rows.y, together, clusters or "copies of a row", time, n_splits, random_state)
    stated: Options = {"weighting": weighting, "pos_label": rows.positive, "cv": folds}
    search.set_params(random_state=random_state, verbose=verbose, **stated)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit_encoded(table, encoded, rows.y, weights, groups=together)
    inputs.remember(model, source, clusters, weight)
    n_refits = (0 if effort == "quick" else 6) if n_refits is None else n_refits
    until = math.inf if time_limit is None else start + 0.95 * time_limit
    with busy("estimating the model uncertainty", visible=bool(verbose)):
        halves: Options = {"sample_weight": weights, "clusters": related, "random_state": random_state}
        _measure_training_error(model, encoded.X, y, n_refits, until, halves)
    if signs.leaks:
        model.leaks_ = [" and ".join(one.columns) for one in signs.leaks]
    p, seen, expense, seen_from_positive = _held_out(model, y, weights, encoded.X, related)
    held_out, together = (None if one is None else one[seen] for one in (weights, related))
    quality = measure_quality(numbers[seen], p, rules.own_costs(model), held_out, together)
    sizes, event = np.bincount(numbers, minlength=len(model.classes_)), model.weighting_.positive
    some = range(len(sizes)) if event is None else [event]
    rare = [f"{model.classes_[k]} ({sizes[k]})" for k in some if sizes[k] < _FEW]
    notes = [
        *by_rows,
        *signs.notes,
        *copies,
        *([] if selection is None else selection.notes),
        *rows.notes,
        *model.notes_,
        *(str(one.message).rstrip(".") for one in caught),
        *getattr(model.estimator_, "notes_", []),
        *([f"fewer than {_FEW} rows of {listed(rare)}: too few for reliable metrics"] if rare else []),
        *([] if effort == "quick" else getattr(model.estimator_, "search_notes_", [])),
        *(_class_notes(model, quality) if seen_from_positive is None else seen_from_positive.notes),
        *(_why_positive(rows, model, weight) if seen_from_positive is not None and positive is None else []),
    ]
    if report is not None:  # by the probabilities of the models that did not see the rows
        frame, column = rows.frame.loc[seen, [one.name for one in model.columns_]], model.weighting_.positive
        how_shown: Options = {"data_name": source.name, "sample_weight": held_out, "clusters": together}
        how_shown["out_of_fold"] = p if column is None else p[:, column]
        crcen.write_report(model, frame.reset_index(drop=True), y[seen], report, **how_shown)
    return TableFit(
        model=model,
        data=source.name,
        target=target,
        n_rows=len(y),
        validation=how,
        n_validated=int(seen.sum()),
        quality=quality,
        expense=expense,
        positive=seen_from_positive,
        signs=signs,
        selection=selection,
        seconds=clock.perf_counter() - start,
        notes=tuple(dict.fromkeys(notes)),
        path=None if out is None else crcen.save(model, out),
        onnx=None if onnx is None else crcen.export_onnx(model, onnx).path,
        report=None if report is None else Path(report),
    )


def unfitted_learner(
    learner: str | None, estimator: Learner | None, time_limit: float | None, n_rows: int, effort: str = "standard"
) -> Learner:
    """The estimator for a learner and an effort, or a copy of the given one; many rows are searched more cheaply."""
    is_own = f"a CRCENClassifierCV or a CommitteeClassifier: got {type(estimator).__name__}."
    require(estimator is None or isinstance(estimator, Learner), f"estimator must be {is_own}", "estimator")
    check("learner", learner, estimator is None or learner is None, "be left out if an estimator is given")
    learners = ("committee", *MEMBERS)
    check("learner", learner, learner in (None, *learners), f"be one of {', '.join(learners)}")
    check("effort", effort, effort in EFFORTS, f"be one of {', '.join(EFFORTS)}")
    is_search = estimator is None and learner != "networks"
    own = f"learner={learner}" if estimator is None else "an estimator"
    alone = f"effort={effort} must go without {own}: quick is one network, best a committee or trees."
    require(effort == "standard" or (is_search and (effort == "best" or learner is None)), alone, "effort", "learner")
    no_limit = "time_limit must go with the learner trees or committee: a search of networks has no time limit."
    require(time_limit is None or is_search, no_limit, "time_limit")
    is_time = time_limit is None or (isinstance(time_limit, int | float) and time_limit > 0)
    check("time_limit", time_limit, is_time, "be a number of seconds above 0")
    if estimator is not None:
        return clone(estimator)
    if learner == "networks" and n_rows > _MANY:  # where settings differ less and cost more
        encoding, search = crcen.Inputs(bins=8), crcen.Search(widen=True)
        return CRCENClassifierCV(hidden=(64,), l2=(1e-3, 1e-2, 1e-1), n_members=2, encoding=encoding, search=search)
    if learner == "networks":
        return CRCENClassifierCV()
    if effort == "quick" and time_limit is None:
        return CRCENClassifierCV(**QUICK, max_epochs=int(np.clip(200_000 // n_rows, 10, 100)))  # few rows are few steps
    members = None if learner in (None, "committee") else (learner,)
    return CommitteeClassifier(members=members, effort=effort, time_limit=time_limit)


def _learner_lines(fitted: Learner, validation: str) -> list[str]:
    """The chosen settings: a line for networks, a leaderboard for a committee."""
    if isinstance(fitted, CommitteeClassifier):
        weights = ", ".join(f"{one.name} {one.weight:.3g}" for one in fitted.leaderboard_[:-1])
        title = "committee" if len(fitted.leaderboard_) > 2 else fitted.leaderboard_[0].name
        return [
            f"{title.capitalize():<9} weights of log-odds: {weights}; all below by {validation}",
            f"  {'':<20} {'weight':>6}  {'log loss':>9}  {'average precision':>17}  {'ROC AUC':>8}  {'time':>9}",
            *(f"  {one}" for one in fitted.leaderboard_),
            *(f"  {one.name}: {line}" for one in fitted.leaderboard_ for line in one.settings),
        ]
    lines: list[str] = []
    for chosen in fitted.best_settings_:
        hidden = f"{fitted.n_members} with hidden units {'-'.join(map(str, chosen['hidden'])) or 'none'}"
        epochs = plural(int(chosen["epochs"] or fitted.n_iter_), "epoch")
        title = "" if lines else "Networks"
        lines.append(f"{title:<9} {hidden}, {chosen['encoding']} inputs, l2 {chosen['l2']:g}, {epochs}")
    return [*lines[:-1], f"{lines[-1]}, chosen by {validation}"]


def _learner_values(fitted: Learner) -> dict[str, object]:
    """The same as plain values; a committee has a ``leaderboard``, networks have ``network``, their best setting."""
    if isinstance(fitted, CommitteeClassifier):
        lines = [json_value(one) for one in fitted.leaderboard_]
        learner = "committee" if len(lines) > 2 else lines[0]["name"]
        return {"learner": learner, "network": None, "networks": [], "leaderboard": lines}
    keys = ("hidden", "l2", "encoding", "epochs")
    settings = [{name: json_value(chosen[name]) for name in keys} for chosen in fitted.best_settings_]
    networks = [{**chosen, "members": fitted.n_members} for chosen in settings]
    return {"learner": "networks", "network": networks[0], "networks": networks, "leaderboard": []}


def folds_of(
    y: pd.Series, together: Array | Index | None, clusters: str | None, time: str | None, n_splits: int, seed: int
) -> tuple[Splitter, str]:
    """The splitter of the search, and what to call it; ``together`` are the clusters or times of the rows."""
    n_splits = check_whole_number(n_splits, "n_splits", 2)
    sizes = np.unique(y, return_counts=True)[1]
    # Of several classes those with fewer rows than folds are held out in some of them.
    rarest = int(sizes.min() if len(sizes) == 2 or together is not None else sizes.max())
    if time is not None:
        count = max(1, min(n_splits, rarest - 1))
        while count > 1:  # as many folds as moments allow: there may be few, as with a column of years
            try:
                list(TimeSplit(count).split(None, y, together))
                break
            except InvalidInput:
                count -= 1
        return TimeSplit(count), f"{plural(count, 'fold')} of later rows by {time}"
    if together is None:
        count = min(n_splits, rarest)
        return count, f"{count} stratified folds"
    count = min(n_splits, max(rarest, 2), len(np.unique(together)))
    require_input(count >= 2, f"clusters must have at least two different values: {clusters} has one.", "clusters")
    splitter = model_selection.StratifiedGroupKFold(count, shuffle=True, random_state=seed)
    return splitter, f"{count} folds that keep {clusters} together"


def _measure_training_error(
    model: TableClassifier, X: Array, y: LabelArray, n_refits: int, until: float, halves: Options
) -> None:
    """Keep the error of a model's mean log-odds, from refits, as ``training_error_``, unless rows or time are few."""
    is_number = isinstance(n_refits, int) and not isinstance(n_refits, bool) and (n_refits == 0 or n_refits >= 3)
    check("n_refits", n_refits, is_number, "be 0, or a whole number of at least 3")
    price, estimator, start = model.weighting_, model.estimator_, clock.perf_counter()
    if not n_refits or float(price.counts.min() if price.positive is None else price.n_pos) < _FEW or start > until:
        return
    try:
        if math.isfinite(until) and hasattr(estimator, "refit_on"):  # one refit is timed
            some = np.random.default_rng(0).permutation(len(y))[: min(len(y) // 2, _MOST_REFIT_ROWS)]
            estimator.refit_on(X[some], y[some])
        now = clock.perf_counter()
        if now + n_refits * (now - start) <= until:
            model.training_error_ = crcen.training_error(estimator, X, y, n_fits=n_refits, **halves)
    except (InvalidInput, TrainingFailed):  # a part of the rows lacks one class, or leaves no network
        return


def _held_out(
    model: TableClassifier, y: LabelArray, weights: Array | None, encoded: Array, clusters: Index | None
) -> tuple[Array, Bools, crcen.ExpenseCurve, PositiveClass | None]:
    """Out-of-fold probabilities (held out, K), which rows were held out, their expense, and figures if binary."""
    estimator, price = model.estimator_, model.weighting_
    around = price if price.positive is None else rules.prices_around(price)
    seen = np.isfinite(estimator.oof_proba_).all(axis=1)
    related = None if clusters is None else clusters[seen]
    rows = replace(out_of_fold_rows(estimator, y, weights), clusters=related)
    expense = crcen.ExpenseCurve.from_rows(rows, around, price.replace, n_resamples=rules.step_resamples(price))
    if price.positive is None:
        return rows.p, seen, expense, None
    chances, some = rows.p[:, price.positive], rows_to_score(len(y))
    alarms = price.decide(chances)
    saved, is_positive = (np.asarray(one == model.pos_label_) for one in (estimator.predict(encoded[some]), y))
    shares, notes = alarm_shares(alarms, saved, is_positive, seen, some)
    p, w = chances[alarms], rows.weights[alarms]  # of an average catch: false alarms that are expected
    average = float((1.0 - p) @ w) / float(p @ w) if (p @ w) > 0.0 else math.nan
    scored = RowMetrics(rows.y, rows.p, price, rows.weights, clusters=related)
    counts, metrics = scored.confusion, scored.measured()
    notes += too_good(metrics["roc_auc"].value)
    notes += of_no_use(metrics["log_loss"].value, [float(counts.tp + counts.fn), float(counts.fp + counts.tn)])
    return rows.p, seen, expense, PositiveClass(counts, metrics, average, shares, notes)


def _class_notes(model: TableClassifier, quality: Quality) -> list[str]:
    """Notes for several classes: balanced weights far apart, classes that are separated, decisions of no use."""
    notes, weights, names = list[str](), model.weighting_.weights, model.classes_
    dear, cheap = int(np.argmax(weights)), int(np.argmin(weights))
    is_stated = model.costs_ is not None or getattr(model.estimator_, "weighting", None) != "balanced"
    if not is_stated and weights[dear] >= _MOST_UNEVEN * weights[cheap]:
        ratio = f"{names[dear]} counts as much as {weights[dear] / weights[cheap]:,.0f} of {names[cheap]}"
        notes = [f"by balanced weights one row of {ratio}; if errors have other costs, state costs or class weights"]
    known = [one.value for one in quality.areas if np.isfinite(one.value)]
    useless = f"{quality.habit} for every row costs less than these decisions: the columns have too little information"
    notes += too_good(min(known)) if known else []
    return [*notes, *([useless] if quality.saved.value < 0.0 else [])]


def _why_positive(rows: Rows, model: TableClassifier, weight: str | None) -> list[str]:
    counts = rows.y.value_counts()
    rarer, by_rows = model.pos_label_, counts.index[1]
    if weight is not None and counts.iloc[0] != counts.iloc[1] and by_rows != rarer:
        return [f"{rarer} is the positive class because it is rarer by {weight}; by rows {by_rows} is: use --positive"]
    return inputs.why_positive(rarer, float(counts[rarer] / counts.sum()))
