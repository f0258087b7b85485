"""evaluate_table: metrics with intervals, the key equation and the expense of a model on rows it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import ExpenseCurve, InvalidInput, Review, key_equation
from crcen._support.progress import counted, logged
from crcen._support.values import json_value
from crcen.commands.classes.evaluation import ClassEvaluation, evaluate_classes
from crcen.commands.conditions import broken_conditions, codes_of
from crcen.commands.decided_rows import JudgedReview, RowCosts, chosen_price, collected_amounts, judge_review
from crcen.commands.group_columns import group_columns, group_lines, group_values, unequal_groups
from crcen.commands.inputs import (
    Source,
    check_column,
    model_of,
    price_of,
    source_of,
    target_of,
    weight_notes,
)
from crcen.commands.prices import has_class_price, plain_price, price_of_two, prices_around, step_lines, step_values
from crcen.commands.quality import METRICS, Measured, ScoredRows, count_sentence, count_values, of_no_use, too_good
from crcen.commands.reporting import labelled_rows
from crcen.commands.row_watch import RowWatch, unlike_lines
from crcen.commands.scored_chunks import labelled_scores, scored_chunks
from crcen.report.checks import check_model
from crcen.tables.options import ReadOptions
from crcen.theory.decision import weighted_probability
from crcen.theory.groups import GroupComparison, compare_groups
from crcen.theory.key_equation import EquationTest, judge_equation
from crcen.theory.labels import Labels
from crcen.theory.limits import FEWEST_OF_A_CLASS, fitted_model_noise, judge_share
from crcen.theory.metrics import ConfusionCounts
from crcen.theory.price import Price
from crcen.theory.residual_test import TrainingError, residual_sums
from crcen.theory.rows import Shown, effective_totals

__all__ = ["TableEvaluation", "evaluate_table", "scored_rows"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TableEvaluation(Shown):
    """A model on labelled rows; prints itself.

    Parameters
    ----------
    data, target : str
        The rows.
    n_rows, n_pos : int
        Rows with a label, and positive ones.
    positive : label
        The positive class.
    price : Price
        The price of the decisions.
    counts : ConfusionCounts
        What was found, missed and alarmed for nothing at that price.
    quality : dict of str to Measured
        Metrics with intervals.
    equation : EquationTest
        The key equation at the weighting of training.
    expense : ExpenseCurve
        What catches cost between half the price, the price and twice the price.
    noise : float
        How much more new rows vary than under the truth, by the model's own error: measured, or as
        `crcen.theory.limits.fitted_model_noise` has it.
    notes : tuple of str
        What was odd about the table.
    unlike : tuple of Difference
        In what the rows differ from training rows beyond chance.
    recognition : Recognition or None
        Whether they are training rows; None where the model cannot know.
    findings : tuple of Finding
        Every check of the report with its outcome, where some must not warn.
    groups : tuple of GroupComparison
        Figures of groups and whether they differ beyond noise, by column.
    failures : tuple of str
        Conditions that are not kept, a sentence each.
    chosen : ChosenWeighting or None
        Where a wish stood in place of a price: the price that meets it here.
    review : JudgedReview or None
        Where a review was asked for: rows in three, and what that saved.
    row_costs : RowCosts or None
        Where rows have costs of their own: what decisions came to.
    """

    data: str
    target: str
    n_rows: int
    n_pos: int
    positive: Any
    price: Price
    counts: ConfusionCounts
    quality: dict[str, Measured]
    equation: EquationTest
    expense: ExpenseCurve
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "data": self.data,
            "target": self.target,
            "rows": self.n_rows,
            "positives": self.n_pos,
            "positive": json_value(self.positive),
            "cost_ratio": plain_price(self.price.cost_ratio),
            "threshold": plain_price(self.price.threshold),
            "counts": count_values(self.counts),
            "metrics": {name: one.to_dict() for name, one in self.quality.items()},
            "key_equation": self.equation.to_dict(),
            "expense": step_values(self.expense, self.noise),
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

    def __str__(self) -> str:
        lines = [
            f"{self.data}: {self.n_rows:,} rows, {self.n_pos:,} with {self.target} = {self.positive}",
            f"Price {self.price.cost_ratio:.6g} false alarms per catch: an alarm above probability "
            f"{self.price.threshold:.6g}",
            f"At that price: {count_sentence(self.counts)}",
            *(str(one) for one in (self.chosen, self.review, self.row_costs) if one is not None),
            "",
            "Metrics (95 % interval)",
            *(f"  {METRICS[name]:<24} {one}" for name, one in self.quality.items()),
            "",
            f"Key equation {self.equation.verdict}: {self.equation}",
            "",
            "What one more catch costs, beside what right probabilities would make it cost",
            *step_lines(self.expense, self.noise),
            *group_lines(self.groups),
            *(f"Note: {note}." for note in self.notes),
            *unlike_lines(self.unlike),
            *(f"Failed: {one}." for one in self.failures),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<TableEvaluation of {self.n_rows:,} rows: {count_sentence(self.counts)}, key equation "
            f"{self.equation.verdict}>"
        )


def scored_rows(
    model: Any, source: Source, target: str, verbose: int = 0, kept: dict[str, list[Any]] | None = None
) -> tuple[NDArray[np.bool_], Array, list[str], RowWatch]:
    """Labels and posteriors of the rows with a label, what was odd about the table, and how it is beside training.

    Columns named in ``kept`` are collected there, chunk by chunk, for the same rows.
    """
    numbers, p, odd, unlabelled = labelled_scores(scored_chunks, model, source, target, verbose, kept)
    y = Labels.of_model(model).is_positive(model.classes_[numbers])
    if not len(y):
        raise InvalidInput(f"{source.name} has no row with a value of {target}.")
    if not y.any() or y.all():
        raise InvalidInput(
            f"an evaluation needs rows of both classes: {source.name} has {int(y.sum())} of {model.pos_label_} among "
            f"{len(y)} labelled rows."
        )
    notes = [*source.notes, *odd.notes]
    if unlabelled:
        notes.insert(0, f"{unlabelled} rows without a value of {target} were left out")
    return y, p, notes, odd.watch


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
    alarm_cost: float = 1.0,
    groups: Any = (),
    fail_on: Any = (),
    min_recall: float | None = None,
    min_precision: float | None = None,
    n_resamples: int = 500,
    random_state: int = 0,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TableEvaluation | ClassEvaluation:
    """Judge a model on labelled rows that it was not trained on: what `crcen evaluate` does.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    data : data frame, str or Path
        Rows at the natural class ratio.
    target : str, optional
        Column with the labels; by default that of training.
    weighting : Budget, CostRatio, Lam, Alpha, "balanced", float, or a wish, optional
        Another price of decisions than that of training. ``RecallAtLeast``, ``PrecisionAtLeast`` or ``Capacity`` is met
        on these rows, in ``.chosen``: with a confidence a recall is guaranteed for this model on new rows.
    costs : CostMatrix, data frame, str or Path, optional
        Other costs of decisions than those of training, as `crcen.fit_table` takes them.
    weight : str, optional
        Column that says how much each row counts; figures are then sums of weights.
    review : Review or (low, high), optional
        Two prices between which rows go to review: how many, and what that saves, in ``.review``.
    cost_column : str, optional
        Column with what a miss of that row costs, in the unit of ``alarm_cost``; what decisions by these costs came to
        is in ``.row_costs``.
    alarm_cost : float, default=1
        What a false alarm costs, with ``cost_column``.
    groups : str or sequence of str, optional
        Columns whose values are groups to compare: recall, precision, calibration and key equation of each, in
        ``.groups``. A model need not decide by them.
    fail_on : str or sequence of str, optional
        Codes of the report's checks that must not warn, such as ``"CRC003,CRC007"``, or ``"any"``. All rows are then in
        memory; what every check found is in ``.findings``.
    min_recall, min_precision : float, optional
        What must be reached at the price, by every class where there are several. Conditions that are not kept are in
        ``.failures``.
    n_resamples : int, default=500
        Resamples of the bootstrap; 0 for no intervals of the metrics.
    random_state : int, default=0
        Seed of the bootstrap.
    read : ReadOptions, optional
        How the table is read, where that is not to be detected.
    verbose : int, default=0
        1 shows progress on a terminal.

    Returns
    -------
    TableEvaluation, or ClassEvaluation for several classes
        Metrics with intervals, the key equation tested, the expense around the price with verdicts.
    """
    model, codes = model_of(model), codes_of(fail_on)
    source = source_of(data, read, model)
    target = target_of(target, model, source)
    if has_class_price(model):
        two = {"review": review, "cost_column": cost_column}
        how: dict[str, Any] = {"codes": codes, "fail_on": fail_on, "min_recall": min_recall}
        how |= {"min_precision": min_precision, "weight": weight, "verbose": verbose, "others": two}
        how["groups"] = groups
        return evaluate_classes(model, source, target, weighting=weighting, costs=costs, **how)
    weighting = price_of_two(weighting, costs, model)
    kept: dict[str, list[Any]] = {}
    group_names = group_columns(groups, source, target)
    for name, what in ((weight, "weight"), (cost_column, "cost_column"), *((one, "groups") for one in group_names)):
        if name is not None:
            kept[check_column(name, source.columns, what, source.name)] = []
    y, p, notes, watch = scored_rows(model, source, target, verbose, kept)
    weights = None if weight is None else collected_amounts(kept[weight], "weight")
    recognition = watch.recognition()
    chosen = chosen_price(weighting, y, p, weights, recognition, source.name)
    price = price_of(weighting if chosen is None else chosen.weighting, model)
    rows = ScoredRows(y, p, price.threshold, weights)
    with counted("resamples", n_resamples, visible=bool(verbose)) as done:
        quality = rows.measured(n_resamples, random_state, done)
    trained = model.weighting_
    q = weighted_probability(p, trained)
    error: TrainingError | None = getattr(model, "training_error_", None)
    if error is not None:
        noise, left = error.noise(residual_sums(y, q, trained, weights)), 1.0
    else:
        ones = np.ones(len(y)) if weights is None else weights
        noise = left = fitted_model_noise(ones, trained, getattr(model, "profile_", None))
    findings: tuple[Any, ...] = ()
    if codes:
        X, labels, row_weights, _ = labelled_rows(model, source, target, weight)
        findings = check_model(model, X, labels, row_weights)
    costs = None if cost_column is None else collected_amounts(kept[cost_column], "cost_column")
    compared = compare_groups(
        {name: group_values(kept[name]) for name in group_names}, y, p, price, trained, weights, noise=noise
    )
    broken = broken_conditions(findings, codes, quality, min_recall, min_precision)
    return TableEvaluation(
        data=source.name,
        target=target,
        n_rows=len(y),
        n_pos=int(y.sum()),
        positive=model.pos_label_,
        price=price,
        counts=rows.counts,
        quality=quality,
        equation=judge_equation(key_equation(y, q, trained, weights, training_error=error), left, _n_rarer(y)),
        expense=ExpenseCurve.from_predictions(
            y, p, prices_around(price), sample_weight=weights, random_state=random_state
        ),
        noise=noise,
        notes=tuple(
            [
                *(recognition.notes if recognition else ()),
                *notes,
                *weight_notes(model, weight),
                *_warnings(y, weights, quality["roc_auc"].value, trained),
                *(of_no_use(quality["log_loss"].value, rows.counts) if _n_rarer(y) >= FEWEST_OF_A_CLASS else ()),
            ]
        ),
        unlike=watch.unlike(int((p > price.threshold).sum()), len(p), price),
        recognition=recognition,
        findings=findings,
        failures=(*broken, *unequal_groups(compared, codes, fail_on)),
        groups=compared,
        chosen=chosen,
        review=judge_review(y, p, Review.of(review), price.cost_ratio, weights),
        row_costs=None if costs is None else RowCosts.of(y, p, costs, alarm_cost, price, weights),
    )


def _n_rarer(y: NDArray[np.bool_]) -> int:
    return min(int(y.sum()), int((~y).sum()))


def _warnings(y: NDArray[np.bool_], weights: NDArray[np.float64] | None, roc_auc: float, trained: Price) -> list[str]:
    """Notes for what the report warns of under CRC004 and CRC005."""
    said = []
    share = judge_share(*effective_totals(y, np.ones(len(y)) if weights is None else weights), trained)
    if share.has_moved:
        said.append(
            f"the share of positives is {share.share:.3g} here and was {share.before:.3g} in training, more than "
            "chance allows: tests and prices assume the same ratio (CRC004)"
        )
    if _n_rarer(y) < FEWEST_OF_A_CLASS:
        return said
    return [*said, *too_good(roc_auc, "a column that is filled in after the event, or rows that were in training")]
