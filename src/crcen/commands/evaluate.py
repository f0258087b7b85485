"""evaluate_table: metrics with intervals, key equation, expense and checks of a model on rows it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import ExpenseCurve, InvalidInput, InvalidParameter
from crcen._support.progress import counted, logged
from crcen._support.text import listed
from crcen._support.values import json_value
from crcen.commands.audits import AuditedRows
from crcen.commands.group_columns import CODE, group_columns, group_lines, group_values
from crcen.commands.inputs import (
    Source,
    amounts_of,
    audit_probabilities,
    check_column,
    cluster_numbers,
    model_of,
    source_of,
    target_of,
    weight_notes,
)
from crcen.commands.prices import price_values, prices_around, step_lines, step_values
from crcen.commands.quality import (
    METRICS,
    Measured,
    RowMetrics,
    confusion_of,
    count_sentence,
    count_values,
    of_no_use,
    too_good,
)
from crcen.commands.report import labelled_rows
from crcen.commands.rules import ClassShares, JudgedReview, RowCosts, chosen_price, judge_review, rule_of
from crcen.commands.scoring import score_table, unlike_lines
from crcen.commands.split import was_stratified
from crcen.report.checks import CHECKS, Finding, examine, selection_of
from crcen.report.evidence import evidence_of, gather
from crcen.tables.options import ReadOptions
from crcen.theory.expense import ClassStep, judge_class_steps
from crcen.theory.groups import GroupComparison, compare_groups
from crcen.theory.intervals import LEVEL, effective_size
from crcen.theory.key_equation import EquationTest, judge_equations
from crcen.theory.limits import FEWEST_OF_A_CLASS, fitted_model_noise, judge_class_share
from crcen.theory.metrics import ConfusionCounts, Quality, log_losses, measure_quality
from crcen.theory.prevalence import shifted_probabilities
from crcen.theory.price import Price
from crcen.theory.residual_test import TrainingError, residual_sums
from crcen.theory.rows import Shown

__all__ = ["CODES", "TableEvaluation", "evaluate_table"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Those of the report.
CODES = tuple(sorted(CHECKS))
# Checks that need every column of the rows.
_OF_COLUMNS = {"CRC006", "CRC009"}
_ANY = "ANY"


@dataclass(frozen=True, eq=False)
class TableEvaluation(Shown):
    """A model on labelled rows; prints itself.

    Parameters
    ----------
    data, target : str
        The rows.
    rows_by_class : tuple of int
        Rows with a label, by class.
    labels : tuple
        The classes.
    price : Price
        The price of the decisions.
    quality : Quality
        Decisions at the price, their cost, recall and precision of each class.
    metrics : dict of str to Measured
        Metrics with intervals.
    equation : EquationTest
        The key equations at the weights of training.
    expense : ExpenseCurve, or tuple of ClassStep
        What catches cost between half the price, the price and twice the price; for more than two classes the steps
        that can be judged of the weight of each class.
    noise : float
        How much more new rows vary than under the truth because the model was fitted.
    notes : tuple of str
        About the table.
    unlike : tuple of Difference
        How the rows differ from training rows beyond chance.
    recognition : Recognition or None
        Whether they are training rows; None if the model cannot know.
    findings : tuple of Finding
        Checks of the report with their outcome.
    groups : tuple of GroupComparison
        Metrics of groups and whether they differ beyond noise, by column.
    failures : tuple of str
        Conditions that are not met, a sentence each.
    chosen : ChosenWeighting or None
        The price that meets a goal here.
    review : JudgedReview or None
        Three answers on these rows.
    row_costs : RowCosts or None
        Cost of decisions if rows have costs of their own.
    shares : ClassShares or None
        Class shares that the probabilities were moved to.
    audited : AuditedRows or None
        Bounds on recall and missed rows, if labels were drawn with known probabilities.
    """

    data: str
    target: str
    rows_by_class: tuple[int, ...]
    labels: tuple[Any, ...]
    price: Price
    quality: Quality
    metrics: dict[str, Measured]
    equation: EquationTest
    expense: ExpenseCurve | tuple[ClassStep, ...]
    noise: float = 1.0
    notes: tuple[str, ...] = ()
    unlike: tuple[Any, ...] = ()
    recognition: Any = None
    findings: tuple[Any, ...] = ()
    failures: tuple[str, ...] = ()
    chosen: Any = None
    review: JudgedReview | None = None
    row_costs: RowCosts | None = None
    groups: tuple[GroupComparison, ...] = ()
    shares: ClassShares | None = None
    audited: AuditedRows | None = None

    @property
    def counts(self) -> ConfusionCounts:
        """For two classes: found, missed, false alarms and the rest."""
        if self.price.positive is None:
            raise AttributeError("the counts of several classes are in quality.counts.")
        return confusion_of(self.quality.counts, self.price.positive)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The checks that warn."""
        return tuple(one for one in self.findings if one.status == "warning")

    @property
    def n_rows(self) -> int:
        """Rows with a label."""
        return sum(self.rows_by_class)

    @property
    def n_pos(self) -> int:
        """Positive rows, for two classes."""
        if self.price.positive is None:
            raise AttributeError("several classes have no positive one.")
        return self.rows_by_class[self.price.positive]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        is_binary = self.price.positive is not None
        return {
            "data": self.data,
            "target": self.target,
            "rows": self.n_rows,
            "labels": json_value(list(self.labels)),
            "price": price_values(self.price, self.labels),
            "counts": count_values(self.counts) if is_binary else self._class_counts(),
            **json_value(self.quality.to_dict()),
            "cost_per_1000": self.metrics["cost_per_1000"].to_dict(),
            "recall_bound": None if self.audited is None else self.audited.recall_bound,
            "missed_bound": None if self.audited is None else self.audited.missed_bound,
            "audited": None if self.audited is None else self.audited.to_dict(),
            "metrics": {name: one.to_dict() for name, one in self.metrics.items()},
            "key_equation": self.equation.to_dict(),
            "expense": step_values(self.expense, self.noise, self.labels),
            "prevalence": None if self.shares is None else self.shares.to_dict(),
            "notes": list(self.notes),
            "unlike": [one.to_dict() for one in self.unlike],
            "training_rows": None if self.recognition is None else self.recognition.to_dict(),
            "findings": [one.to_dict() for one in self.findings],
            "groups": [one.to_dict() for one in self.groups],
            "failures": list(self.failures),
            "chosen": None if self.chosen is None else self.chosen.to_dict(),
            "review": None if self.review is None else self.review.to_dict(),
            "row_costs": None if self.row_costs is None else self.row_costs.to_dict(),
        }

    def _class_counts(self) -> dict[str, int]:
        table, k = self.quality.counts.table, len(self.labels)
        right, actions = float(np.trace(table[:, :k])), float(table[:, k:].sum())
        return {"right": round(right), "wrong": round(float(table.sum()) - right - actions), "actions": round(actions)}

    def __str__(self) -> str:
        lines = [
            *(self._by_class() if self.price.positive is None else self._by_alarm()),
            *([] if self.audited is None else [str(self.audited)]),
            *([] if self.shares is None else [self.shares.line(self._positive)]),
            *(f"{one.code}  {one.title}: {one.measured}." for one in self.warnings if one.code != CODE),
            *group_lines(self.groups),
            *(f"Note: {note}." for note in self.notes),
            *unlike_lines(self.unlike),
            *(f"Failed: {one}." for one in self.failures),
        ]
        return "\n".join(lines).rstrip()

    @property
    def _positive(self) -> Any:
        return None if self.price.positive is None else self.labels[self.price.positive]

    def _metric_lines(self) -> list[str]:
        return [
            "Metrics (95 % interval)",
            *(f"  {METRICS[name].title:<24} {one}" for name, one in self.metrics.items()),
        ]

    def _by_alarm(self) -> list[str]:
        assert isinstance(self.expense, ExpenseCurve)
        return [
            f"{self.data}: {self.n_rows:,} rows, {self.n_pos:,} with {self.target} = {self._positive}",
            f"Price {self.price.cost_ratio:.6g} false alarms per catch: an alarm above probability "
            f"{self.price.threshold:.6g}",
            f"At that price: {count_sentence(self.counts)}",
            *(str(one) for one in (self.chosen, self.review, self.row_costs) if one is not None),
            "",
            *self._metric_lines(),
            "",
            *self.equation.lines(),
            "",
            "Cost per extra catch: observed and expected",
            *step_lines(self.expense, self.noise),
        ]

    def _by_class(self) -> list[str]:
        return [
            f"{self.data}: {self.n_rows:,} rows, {len(self.labels)} classes of {self.target}",
            "",
            *self.quality.lines(),
            "",
            *self._metric_lines(),
            "",
            *self.equation.lines(),
            "",
        ]

    def __repr__(self) -> str:
        verdict = f"key equation {self.equation.verdict}"
        if self.price.positive is None:
            cost = f"cost a row {self.quality.cost.value:.4g}"
            return f"<TableEvaluation of {self.n_rows:,} rows, {len(self.labels)} classes: {cost}, {verdict}>"
        return f"<TableEvaluation of {self.n_rows:,} rows: {count_sentence(self.counts)}, {verdict}>"


@logged
def evaluate_table(
    model: Any,
    data: Any,
    *,
    target: str | None = None,
    weighting: Any = None,
    costs: Any = None,
    weight: str | None = None,
    review: Any = None,
    cost_column: str | None = None,
    alarm_cost: float | None = None,
    prevalence: Any = None,
    clusters: str | None = None,
    stratified: bool = False,
    audit_probability: str | None = None,
    confidence: float = LEVEL,
    groups: Any = (),
    fail_on: Any = (),
    min_recall: float | None = None,
    min_precision: float | None = None,
    n_resamples: int = 500,
    random_state: int = 0,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TableEvaluation:
    """Judge a model on labelled rows that it was not trained on, as `crcen evaluate` does.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    data : data frame, str or Path
        Rows at the natural class ratio.
    target : str, optional
        Column with the labels; by default that of training.
    weighting : Budget, CostRatio, Lam, Alpha, "balanced", float, dict, or a goal, optional
        Another price of decisions than that of training. ``RecallAtLeast``, ``PrecisionAtLeast`` or ``Capacity`` is met
        on these rows, in ``.chosen``: with a confidence it is guaranteed for this model on new rows.
    costs : CostMatrix, data frame, str or Path, optional
        Other costs of decisions than those of training, as `crcen.fit_table` takes them.
    weight : str, optional
        Column of sample weights; counts are then sums of weights.
    review : Review or (low, high), optional
        Two prices between which rows go to review: how many, and what that saves, in ``.review``.
    cost_column : str, optional
        Column with the cost of a miss of that row, in the unit of ``alarm_cost``; the cost of decisions by it is in
        ``.row_costs``.
    alarm_cost : float, optional
        Cost of a false alarm, with ``cost_column``; 1 by default.
    prevalence : float, dict of label to share, or "auto", optional
        Class shares of these rows if they differ from training, as in `crcen.predict_table`.
    clusters : str, optional
        Column of rows that belong together, such as a patient: tests and intervals allow for dependence within it.
    stratified : bool, default=False
        Whether the class counts of these rows were fixed when they were drawn; `crcen.split_table` records it.
    audit_probability : str, optional
        Column with the probability with which each row was chosen for a label, as `crcen.predict_table` writes it. Rows
        without a label are then unlabelled, not negative: rows count 1 / probability, and a lower bound on recall is in
        ``.audited``.
    confidence : float, default=0.95
        Of that bound.
    groups : str or sequence of str, optional
        Columns whose values are groups to compare: recall, precision, calibration and key equation of each, in
        ``.groups``. A model need not decide by them.
    fail_on : str or sequence of str, optional
        Codes of the report's checks that must not warn, such as ``"CRC003,CRC007"``, or ``"any"``. All rows are then in
        memory; the outcome of every check is in ``.findings``.
    min_recall, min_precision : float, optional
        What must be reached at the price, by every class if there are several. Conditions that are not met are in
        ``.failures``.
    n_resamples : int, default=500
        Bootstrap resamples; 0 omits intervals that have no closed form, such as that of F1.
    random_state : int, default=0
        Seed of the bootstrap.
    read : ReadOptions, optional
        How the table is read; by default detected.
    verbose : int, default=0
        1 shows progress on a terminal.

    Returns
    -------
    TableEvaluation
        Metrics with intervals, the key equations tested, the expense around the price.
    """
    model, codes = model_of(model), _codes_of(fail_on)
    least = _least_shares(min_recall, min_precision)
    source = source_of(data, read, model)
    target = target_of(target, model, source)
    how: dict[str, Any] = {"review": review, "cost_column": cost_column, "alarm_cost": alarm_cost}
    rule = rule_of(model, source, weighting, costs, **how, is_labelled=True)
    group_names = group_columns(groups, source, target)
    _check_groups(group_names, fail_on)
    named = {"weight": weight, "clusters": clusters, "cost_column": cost_column, "audit_probability": audit_probability}
    columns = [
        check_column(name, source.columns, what, source.name) for what, name in named.items() if name is not None
    ]
    scored = score_table(model, source, target, [*columns, *group_names], verbose, recognises=True, clusters=clusters)
    known, column = scored.is_labelled, rule.price.positive
    y, notes = scored.y[known], list(scored.notes)
    _check_classes(y, model, source, target)
    notes += _missing_labels(scored.y, rule.labels, target, audit_probability is not None)
    shares = ClassShares.of(prevalence, model, scored.p)
    trained = model.weighting_ if shares is None else shares.price(model.weighting_)
    p_all = scored.p if shares is None else shares.moved(scored.p)
    p = p_all[known]
    weights = None if weight is None else amounts_of(scored.labelled(weight), "weight")
    e = None
    if audit_probability is not None:
        e = audit_probabilities(scored.frame, audit_probability, known)
        weights = (1.0 if weights is None else weights) / e[known]
    w = np.ones(len(y)) if weights is None else weights
    together = None if clusters is None else cluster_numbers(scored.labelled(clusters))
    recognition = scored.watch.recognition(y, known)
    price, chosen = rule.price, None
    if rule.goal is not None and column is not None:
        chosen = chosen_price(rule.goal, y == column, p[:, column], weights, recognition, source.name, together)
        price = model.weighting_.replace(chosen.weighting)
    matrix = price.cost_matrix.for_classes(rule.labels)
    actions = np.asarray(price.decide(p), dtype=np.int64)
    rows = RowMetrics(y, p, price, weights, clusters=together)
    with counted("resamples", n_resamples, visible=bool(verbose)) as done:
        metrics = rows.measured(n_resamples, random_state, done)
    audited, every = None, np.asarray(price.decide(p_all), dtype=np.int64)
    if e is not None:
        is_possible = (e > 0.0) & (e <= 1.0)
        if not is_possible.all():
            notes.append(f"{int((~is_possible).sum()):,} rows without a label had no chance of an audit: left out")
        parts = (scored.y[is_possible], p_all[is_possible], every[is_possible], e[is_possible])
        audited = AuditedRows.of(replace(rule, price=price), matrix.costs, *parts, confidence=confidence)
        metrics["cost_per_1000"] = Measured(*audited.cost_per_1000)
        notes += audited.notes
    quality = measure_quality(y, p, matrix, w, together, actions=actions)
    error: TrainingError | None = getattr(model, "training_error_", None)
    unmeasured = fitted_model_noise(w, trained, getattr(model, "profile_", None))
    if not stratified and was_stratified(source, target):
        stratified = True
        notes.append("crcen split fixed the class counts of these rows; the test of the key equation allows for that")
    drawn: dict[str, Any] = {"clusters": together, "is_stratified": stratified}
    equation = judge_equations(y, p, trained, rule.labels, w, noise=unmeasured, error=error, **drawn)
    noise = equation.noise
    expense: ExpenseCurve | tuple[ClassStep, ...]
    if column is None:
        expense = judge_class_steps(y, p, trained, w, noise)
    else:
        if error is not None:
            noise = error.noise(residual_sums(y == column, trained.weighted(p[:, column]), trained, weights))
        around = prices_around(price)
        expense = ExpenseCurve.from_predictions(
            y == column, p[:, column], around, sample_weight=weights, random_state=random_state
        )
    values = {name: group_values([scored.labelled(name)]) for name in group_names}
    compared = compare_groups(values, y, p, price, trained, weights, labels=rule.labels, noise=noise)
    seen: dict[str, Any] = {"weights": weights, "price": trained, "known_rows": recognition, "groups": compared}
    seen |= {"selection": selection_of(model, known, p_all), "is_audited": e is not None}
    if column is None:
        seen["costs"] = matrix
    seen["asked"] = model if shares is None else shares.applied_to(model)
    findings = _findings(model, source, target, weight, codes, y, p, **seen, **drawn)
    failures = [*_warned(findings, codes), *_below(least, quality, column)]
    judged = by_row = None
    if column is not None:
        own = (y == column, p[:, column])
        judged = judge_review(*own, rule.review, price.cost_ratio, weights)
        if cost_column is not None:
            misses = amounts_of(scored.labelled(cost_column), "cost_column")
            by_row = RowCosts.of(*own, misses, rule.alarm_cost, price, weights)
    notes = [
        *(recognition.notes if recognition else ()),
        *notes,
        *weight_notes(model, weight),
        *_warnings(y, p, w, rows, trained, rule.labels),
        *_action_notes(quality),
    ]
    is_trained_price = chosen is None and shares is None
    n_alarms = None if column is None else int((every == column).sum())
    return TableEvaluation(
        data=source.name,
        target=target,
        rows_by_class=tuple(np.bincount(y, minlength=len(rule.labels)).tolist()),
        labels=rule.labels,
        price=price,
        quality=quality,
        metrics=metrics,
        equation=equation,
        expense=expense,
        noise=noise,
        notes=tuple(notes),
        unlike=scored.watch.unlike(n_alarms if is_trained_price else None, price),
        recognition=recognition,
        findings=findings,
        failures=tuple(failures),
        chosen=chosen,
        review=judged,
        row_costs=by_row,
        groups=compared,
        shares=shares,
        audited=audited,
    )


def _check_classes(y: Index, model: Any, source: Source, target: str) -> None:
    """Reject rows without labels, or of one class only."""
    if not len(y):
        raise InvalidInput(f"{source.name} has no row with a value of {target}.")
    if len(np.unique(y)) > 1:
        return
    needed = "both" if len(model.classes_) == 2 else "several"
    raise InvalidInput(
        f"an evaluation needs rows of {needed} classes: {source.name} has only {model.classes_[y[0]]} in {target}."
    )


def _missing_labels(y: Index, labels: tuple[Any, ...], target: str, is_audited: bool) -> list[str]:
    """Notes on rows without a label and classes without a row."""
    n_missing, notes = int((y < 0).sum()), []
    if n_missing:
        done = "are unlabelled, not negative" if is_audited else "were left out"
        notes.append(f"{n_missing} rows without a value of {target} {done}")
    absent = [str(label) for k, label in enumerate(labels) if not (y == k).any()]
    if absent:
        notes.append(f"{listed(absent)} {'has' if len(absent) == 1 else 'have'} no row here")
    return notes


def _warnings(y: Index, p: Array, w: Array, rows: RowMetrics, trained: Price, labels: tuple[Any, ...]) -> list[str]:
    """Notes on moved class shares (CRC004), classes without an error (CRC005), and a useless model."""
    counts, before, totals = np.bincount(y, minlength=len(labels)), trained.counts, np.bincount(y, w, len(labels))
    size, here = effective_size(w), totals / totals.sum()
    watched = range(len(labels)) if rows.column is None else [rows.column]
    tests = {k: judge_class_share(size * here[k], size, float(before[k]), float(before.sum())) for k in watched}
    moved = [k for k, test in tests.items() if 0.0 < here[k] < 1.0 and test.has_moved]
    notes = []
    if moved:
        shown = ", ".join(f"{labels[k]} {tests[k].share:.3g} here and {tests[k].before:.3g} in training" for k in moved)
        stated = f"{here[rows.column]:.3g}" if rows.column is not None else "auto"
        notes.append(
            f"prevalence shift: {shown}, more than chance allows; probabilities, tests and prices are at the share of "
            f"training: use --prevalence {stated} (CRC004)"
        )
    if int((counts >= FEWEST_OF_A_CLASS).sum()) < 2:
        return notes
    if rows.column is not None:
        notes += too_good(
            rows.values()["roc_auc"], "a column that is filled in after the event, or rows that were in training"
        )
    at_shares = shifted_probabilities(p, before / before.sum(), np.maximum(here, 1e-12)) if moved else p
    return [*notes, *of_no_use(float(w @ log_losses(y, at_shares) / w.sum()), totals.tolist())]


def _action_notes(quality: Quality) -> list[str]:
    """How rows that were decided for no class enter accuracy and recall."""
    n_classes, table = len(quality.labels), quality.counts.table
    n_rows, rest = float(table[:, n_classes:].sum()), table[:, :n_classes]
    if not n_rows or not rest.any():
        return []
    names = ", ".join(map(str, quality.names[n_classes:]))
    return [
        f"{n_rows:,.6g} rows were decided for {names}, which is no class: accuracy and recall count them as not found; "
        f"the accuracy of the other rows is {np.trace(rest) / rest.sum():.3g}"
    ]


def _codes_of(fail_on: str | Sequence[str] | None) -> tuple[str, ...]:
    """Codes of checks from a list of them or a text with commas; "any" is all."""
    if not fail_on:
        return ()
    given = fail_on.split(",") if isinstance(fail_on, str) else list(fail_on)
    codes = [str(code).strip().upper() for code in given]
    if codes == [_ANY]:
        return CODES
    unknown = [code for code in codes if code not in CODES]
    if unknown:
        raise InvalidParameter(
            f"fail_on must name checks of the report, {CODES[0]} to {CODES[-1]}, or any: got {', '.join(unknown)}.",
            parameter="fail_on",
        )
    return tuple(codes)


def _check_groups(names: Sequence[str], fail_on: Any) -> None:
    """Reject a condition on groups if none were named."""
    asked = fail_on.upper() if isinstance(fail_on, str) else " ".join(map(str, fail_on or ())).upper()
    if CODE in asked and not names:
        raise InvalidParameter(
            f"fail_on={CODE} compares groups: name their columns with groups=.", parameter=("fail_on", "groups")
        )


def _least_shares(min_recall: float | None, min_precision: float | None) -> dict[str, float]:
    """What must be reached, by name, if anything was asked for."""
    asked = {"recall": min_recall, "precision": min_precision}
    found = {name: least for name, least in asked.items() if least is not None}
    for name, least in found.items():
        if not 0.0 < least <= 1.0:
            raise InvalidParameter(
                f"min_{name} must be a share above 0 and at most 1: got {least:g}.", parameter=f"min_{name}"
            )
    return found


def _warned(findings: Sequence[Any], codes: tuple[str, ...]) -> list[str]:
    """A sentence for each check among these codes that warns."""
    return [
        f"{one.code} warns: {one.title[0].lower()}{one.title[1:]}, {one.measured}"
        for one in findings
        if one.status == "warning" and one.code in codes
    ]


def _below(least: dict[str, float], quality: Quality, column: int | None) -> list[str]:
    """A sentence for each recall or precision that is too low: of the positive class, or of every class."""
    broken, by_name = [], {"recall": quality.recalls, "precision": quality.precisions}
    for name, bound in least.items():
        for k, share in enumerate(by_name[name]):
            if k == column and not share.value >= bound:
                broken.append(f"{name} is {share.value:.4g}, below {bound:g}")
            elif column is None and share.value < bound:  # a class without rows or decisions breaks nothing
                broken.append(f"{name} of {quality.labels[k]} is {share.value:.4g}, below {bound:g}")
    return broken


def _findings(
    model: Any,
    source: Source,
    target: str,
    weight: str | None,
    codes: tuple[str, ...],
    y: Index,
    p: Array,
    **known: Any,
) -> tuple[Finding, ...]:
    """Checks of the report; those that need all columns only if they are asked for."""
    weights, more = known.pop("weights"), {"price": known.pop("price"), "groups": known.pop("groups")}
    of_columns, asked = _OF_COLUMNS & {*codes}, known.pop("asked")
    if of_columns:
        X, labels, _, _ = labelled_rows(model, source, target, weight)
        found = replace(gather(asked, X, labels, weights, **known), proba=p, **more)
    else:
        found = replace(evidence_of(asked, y, p, weights, **known), **more)
    return examine(found, {*CHECKS} - _OF_COLUMNS | of_columns)
