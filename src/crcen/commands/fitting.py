"""fit_table: from a table with a target column to a validated model, and what there is to say about it."""

from __future__ import annotations

import math
import time as clock
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from crcen import (
    CommitteeClassifier,
    CRCENClassifierCV,
    ExpenseCurve,
    InvalidParameter,
    TableClassifier,
    export_onnx,
    save,
    write_report,
)
from crcen._support.extras import renamed
from crcen._support.files import check_writable
from crcen._support.progress import busy, logged
from crcen._support.values import json_value
from crcen.commands.alarm_shares import AlarmShares
from crcen.commands.classes.fitting import MOST_CLASSES, ClassTableFit, judged_class_fit
from crcen.commands.inputs import Rows, check_column, rarer_by_weight, rows_of, source_of, weights_of
from crcen.commands.learners import closing_move, learner_lines, learner_values, unfitted_learner
from crcen.commands.onnx.export import check_exportable
from crcen.commands.own_error import measure_own_error
from crcen.commands.prices import (
    average_price,
    has_class_price,
    plain_price,
    prices_around,
    stated_weighting,
    step_lines,
    step_values,
)
from crcen.commands.quality import METRICS, Measured, ScoredRows, count_sentence, count_values, of_no_use, too_good
from crcen.commands.validation import folds_of, times_or_clusters, wish_in_rows
from crcen.tables.options import ReadOptions
from crcen.theory.goals import ThresholdGoal
from crcen.theory.metrics import ConfusionCounts
from crcen.theory.residual_test import TrainingError
from crcen.theory.rows import Shown, in_one_line

__all__ = ["TableFit", "fit_table"]

Array = NDArray[np.float64]

_FIT_SHARE = 0.7  # of a time limit, for members of a committee
_FEW = 10


@dataclass(frozen=True, eq=False)
class TableFit(Shown):
    """A fitted table, with its out-of-fold evidence; prints itself.

    Parameters
    ----------
    model : TableClassifier
        Ready to predict.
    data, target : str
        What it was fitted on.
    n_rows : int
        Rows with a label.
    validation : str
        How rows were held out.
    n_validated : int
        Rows that were held out once.
    counts : ConfusionCounts
        Decisions of out-of-fold rows.
    quality : dict of str to Measured
        Metrics of out-of-fold rows, by the names of `crcen.commands.quality.METRICS`.
    average_price : float
        False alarms that the average catch is expected to cost, by the out-of-fold probabilities.
    expense : ExpenseCurve
        What catches cost between half the price, the price and twice the price, out of fold.
    alarms : AlarmShares
        How often the model alarms on its own rows, beside the models of the folds.
    seconds : float
        Time of reading, encoding and fitting.
    own_error : TrainingError or None
        How far off the model may be by the chance of its rows, where that was measured.
    notes : tuple of str
        What a person should know.
    path, onnx, report : Path or None
        Where the model was saved, where its ONNX graph is, and where the report.
    """

    model: TableClassifier
    data: str
    target: str
    n_rows: int
    validation: str
    n_validated: int
    counts: ConfusionCounts
    quality: dict[str, Measured]
    average_price: float
    expense: ExpenseCurve
    alarms: AlarmShares
    seconds: float
    own_error: TrainingError | None = None
    notes: tuple[str, ...] = ()
    path: Path | None = None
    onnx: Path | None = None
    report: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        model, weighting = self.model, self.model.weighting_
        equation = model.estimator_.oof_key_equation_
        return {
            "data": self.data,
            "target": self.target,
            "positive": json_value(model.pos_label_),
            "rows": {
                "all": self.n_rows,
                "positive": int(weighting.n_pos),
                "negative": int(weighting.n_neg),
                "negatives_per_positive": weighting.imbalance_ratio,
            },
            "columns_read": [*map(str, model.feature_names_in_), self.target],
            "columns_used": [column.name for column in model.columns_],
            "columns": [column.describe() for column in model.columns_],
            "dropped": [{"name": one.name, "reason": one.reason} for one in model.dropped_],
            "n_encoded": len(model.encoded_names_),
            "wish": None if self.wish is None else str(self.wish),
            "weighting": {
                "lam": weighting.lam,
                "alpha": weighting.alpha,
                "cost_ratio": plain_price(weighting.cost_ratio),
                "budget": plain_price(weighting.cost_ratio),
                "threshold": weighting.threshold,
            },
            **learner_values(model.estimator_),
            "validation": {"how": self.validation, "rows": self.n_validated},
            "key_equation": {
                "left": json_value(equation.lhs),
                "right": json_value(equation.rhs),
                "residual": json_value(equation.residual),
                "shift": model.estimator_.oof_shift_,
            },
            "counts": count_values(self.counts),
            "training_error": None if self.own_error is None else json_value(self.own_error.size),
            "out_of_fold": {name: json_value(one.value) for name, one in self.quality.items()},
            "alarm_shares": self.alarms.to_dict(),
            "marginal_price": plain_price(weighting.cost_ratio),
            "average_price": json_value(self.average_price),
            "expense": step_values(self.expense),
            "seconds": self.seconds,
            "notes": list(self.notes),
            "path": None if self.path is None else str(self.path),
            "onnx": None if self.onnx is None else str(self.onnx),
            "report": None if self.report is None else str(self.report),
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        model, weighting = self.model, self.model.weighting_
        estimator = model.estimator_
        price, average = f"{weighting.cost_ratio:.6g}", "false_alarms_per_catch"
        plainly_said = {average, "alarms_per_1000"}
        kinds = [column.kind for column in model.columns_]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        equation = estimator.oof_key_equation_
        by_weight = "" if math.isclose(weighting.n_pos + weighting.n_neg, self.n_rows) else " by weight"
        lines = [
            f"{self.data}: {self.n_rows:,} rows, {weighting.n_pos:,.0f}{by_weight} with {self.target} = "
            f"{model.pos_label_} "
            f"(1 in {1 + weighting.imbalance_ratio:,.0f}; {weighting.imbalance_ratio:.3g} negatives per positive)",
            "",
            f"Columns   {len(model.columns_)} used ({counted}; {len(model.encoded_names_)} inputs), "
            f"{len(model.dropped_)} left out",
            *(f"  {one.name:<20} left out: {one.reason}" for one in model.dropped_),
            *learner_lines(estimator, self.validation),
            "",
            *([] if self.wish is None else [f"Goal      {self.wish}, met out of fold at the price below"]),
            "Price, one number under four names",
            f"  budget, cost ratio  {price:<10} a miss is worth so many false alarms; the last catch may cost so many",
            f"  λ                   {weighting.lam:<10.6g} weight of a positive row at this price",
            f"  α                   {weighting.alpha:<10.6g} 1 is balanced",
            f"  threshold           {weighting.threshold:<10.6g} an alarm above this probability",
            "",
            f"On {self.n_validated:,} rows held out of training{by_weight}: {count_sentence(self.counts)}",
            *(f"  {METRICS[name]:<24} {one}" for name, one in self.quality.items() if name not in plainly_said),
            f"  {self.alarms}",
            f"  {METRICS[average]:<24} {self._average()}{price} for the last catch",
            f"  key equation             left side {equation.lhs:.4g}, right side {equation.rhs:.4g} "
            f"({closing_move(estimator)})",
            *([] if self.own_error is None else [f"  own error                {self.own_error}"]),
            "What one more catch costs there, beside what right probabilities would make it cost",
            *step_lines(self.expense),
            "",
            *(f"Note: {note}." for note in self.notes),
            f"{self.seconds:.1f} s"
            + ("" if self.path is None else f", saved to {self.path}")
            + ("" if self.onnx is None else f", as ONNX to {self.onnx}")
            + ("" if self.report is None else f", the report on rows held out to {self.report}"),
        ]
        return "\n".join(lines)

    @property
    def wish(self) -> ThresholdGoal | None:
        """What was asked for in place of a price, if anything was."""
        stated = self.model.estimator_.weighting
        return stated if isinstance(stated, ThresholdGoal) else None

    def _average(self) -> str:
        """What the average catch cost, where there was one."""
        found = self.quality["false_alarms_per_catch"]
        if math.isnan(found.value):
            return "nothing was caught; "
        expected = "" if math.isnan(self.average_price) else f" ({self.average_price:.4g} expected)"
        return f"{found} on average{expected}, "


@logged
@renamed(groups="clusters")
def fit_table(
    data: Any,
    *,
    target: str,
    positive: Any = None,
    weighting: Any = "balanced",
    costs: Any = None,
    drop: Any = (),
    keep: Any = (),
    categorical: Any = (),
    weight: str | None = None,
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
) -> TableFit | ClassTableFit:
    """Fit a table of mixed columns: what `crcen fit` does.

    Parameters
    ----------
    data : data frame, str or Path
        Training rows, or the CSV, TSV or Parquet file that holds them.
    target : str
        Column with the label, of two to fifty values; rows without one are left out.
    positive : label, optional
        The value to find; by default the rarer one of two, and all classes where there are more. With it all others
        are ``"not …"``, where there are several.
    weighting : as in CRCENClassifier, default="balanced"
        What a miss is worth, or a wish that out-of-fold rows turn into a price: ``RecallAtLeast(0.9)``,
        ``PrecisionAtLeast(0.5)``, ``Capacity(200)`` for as many rows as there are here, ``Capacity(20, per="day")``
        with ``time``. Of more than two values ``"balanced"``, ``None``, or a dict with a weight for each.
    costs : CostMatrix, data frame, str or Path, optional
        What each decision costs for each truth, in place of a weighting: also a file made in a spreadsheet, with a row
        for each true class, a column for each decision; columns that are no class, such as "review", are actions.
    drop, keep, categorical : sequence of str
        Columns to leave out, to use although they look like identifiers, to take as categories; see `TableClassifier`.
    weight : str, optional
        Column that says how much each row counts, such as survey weights. Not used as an input; figures out of fold are
        then sums of weights.
    clusters : str, optional
        Column whose equal values (a customer, a patient) are never on both sides of a validation split. Not used as an
        input; its name is stored with the model.
    time : str, optional
        Column of dates or numbers by which validation rows come later than training rows. Not used as an input.
    n_splits : int, default=4
        Validation folds; fewer where there are fewer rows of a class.
    learner : {"committee", "networks", "trees"}, optional
        What is searched: by default a `CommitteeClassifier` of networks and boosted trees, or one of these alone.
        Networks alone are ``CRCENClassifierCV()``; for more than 10,000 rows with six settings and two networks.
    effort : {"quick", "standard", "best"}, default="standard"
        ``"quick"``: one network without a search. ``"best"``: more settings, several seeds and repeated folds.
    time_limit : float, optional
        Seconds for the whole fit. Steps that would not finish in time are not started.
    estimator : CRCENClassifierCV or CommitteeClassifier, optional
        A search of one's own; its weighting, positive class, folds and seed are set here.
        Figures out of fold are those after its ``probability`` map, two numbers of which were fitted on these rows.
    n_refits : int, optional
        Refits of the chosen settings on halves of the rows, of 5,000 rows at most: how far off the model may be by the
        chance of its rows (`crcen.training_error`), kept with it for later evaluations. By default 6, and 0 with
        ``effort="quick"``.
    fingerprint : bool, default=True
        Keep truncated hashes of the training rows, so that `report` and `evaluate` recognise a file of them.
    random_state : int, default=0
        Seed.
    read : ReadOptions, optional
        How the table is read, where that is not to be detected.
    verbose : int, default=0
        1 shows a progress bar on a terminal.
    out : str or Path, optional
        Where to save the model.
    onnx : str or Path, optional
        Where to write it as an ONNX graph too. Columns that ONNX cannot carry are refused before the fit.
    report : str or Path, optional
        Where to write the report of `write_report` on the out-of-fold rows.

    Returns
    -------
    TableFit, or ClassTableFit for more than two classes
        ``.model``, and evidence on rows held out; print it.

    Raises
    ------
    InvalidInput, InvalidParameter, DataUnavailable
        With one sentence.

    Examples
    --------
    >>> fit = fit_table("train.csv", target="fraud", weighting=Budget(20), out="model.crcen")  # doctest: +SKIP
    >>> print(fit)  # doctest: +SKIP
    """
    start = clock.perf_counter()
    if clusters is not None and time is not None:
        raise InvalidParameter("clusters and time are two ways to validate: give one of them.", parameter="clusters")
    for place in (out, report):
        if place is not None:
            check_writable(place, data)
    source = source_of(data, read)
    role = {}
    uses = ((clusters, "clusters", "keeps rows of a cluster together"), (time, "time", "orders rows in time"))
    for name, option, reason in (*uses, (weight, "weight", "says what rows count")):
        if name is not None:
            role[check_column(name, source.columns, option, source.name)] = reason
            if name == target:
                raise InvalidParameter(
                    f"{option} must be another column than the target: got {name!r} for both.", parameter=option
                )
    with busy("reading the table", visible=bool(verbose)):
        rows = rows_of(source, target, positive, tuple(role), most_labels=MOST_CLASSES)
    reasons = {**dict.fromkeys([drop] if isinstance(drop, str) else drop, "asked for"), **role}
    reasons.pop(target, None)
    weights = None if weight is None else weights_of(rows.frame[weight], "weight")
    weighting = stated_weighting(weighting, costs, np.unique(rows.y.to_numpy()).tolist(), target)
    weighting = wish_in_rows(weighting, rows, time)
    folds, how = folds_of(rows, clusters, time, n_splits, random_state)
    search = unfitted_learner(learner, estimator, time_limit, len(rows.y), effort)
    if time_limit is not None:  # the rest is for encoding, refits and files
        search.set_params(time_limit=max(1e-3, _FIT_SHARE * (time_limit - (clock.perf_counter() - start))))
    search.set_params(
        weighting=weighting, pos_label=rows.positive, cv=folds, random_state=random_state, verbose=verbose
    )
    columns: dict[str, Any] = {"drop": reasons, "keep": keep, "categorical": categorical}
    model = TableClassifier(estimator=search, **columns, fingerprint=fingerprint, random_state=random_state)
    if onnx is not None:
        check_exportable(clone(model).learn_columns(rows.frame), onnx, data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(rows.frame, rows.y, weights, groups=times_or_clusters(rows, clusters, time))
    if weight is not None:
        model.weight_name_ = weight
    if clusters is not None:
        model.clusters_name_ = clusters
    if source.options.to_remember:
        model.read_ = source.options.to_remember
    n_refits = (0 if effort == "quick" else 6) if n_refits is None else n_refits
    until = None if time_limit is None else start + 0.95 * time_limit
    encoded = model.encode(rows.frame).X  # once for all that follows: cells of text take their time
    own_error = measure_own_error(model, encoded, rows.y.to_numpy(), weights, n_refits, random_state, verbose, until)
    notes = [*rows.notes, *model.notes_, *dict.fromkeys(str(one.message).rstrip(".") for one in caught)]
    notes += [note for note in getattr(model.estimator_, "notes_", []) if note not in notes]
    if has_class_price(model):
        how_judged: dict[str, Any] = {"data": source.name, "validation": how, "notes": notes, "start": start}
        return judged_class_fit(model, rows, weights, **how_judged, out=out, onnx=onnx, report=report)
    positives = int(model.weighting_.n_pos)
    if positives < _FEW:
        notes.append(f"{positives} rows of {model.pos_label_} are too few to trust any figure here")
    around = prices_around(model.weighting_)
    expense = ExpenseCurve.from_cv(model.estimator_, rows.y.to_numpy(), around, sample_weight=weights)
    held_out = expense.rows
    assert held_out is not None  # a curve of moved thresholds has its rows
    is_alarm = np.asarray(model.estimator_.predict(encoded) == model.pos_label_)
    was_held_out = np.isfinite(model.estimator_.oof_decision_function_)
    by_folds = held_out.p > model.weighting_.threshold
    alarms = AlarmShares.of(by_folds, is_alarm, was_held_out)
    scored = ScoredRows(held_out.target, held_out.p, model.weighting_.threshold, held_out.weights)
    quality = scored.measured()
    notes += getattr(model.estimator_, "search_notes_", [])
    notes += [*alarms.notes, *too_good(quality["roc_auc"].value), *of_no_use(quality["log_loss"].value, scored.counts)]
    notes += rarer_by_weight(rows.y, model.pos_label_, weight) if rows.positive is None else []
    return TableFit(
        model=model,
        data=source.name,
        target=target,
        n_rows=len(rows.y),
        validation=how,
        n_validated=len(held_out.p),
        counts=scored.counts,
        quality=quality,
        average_price=average_price(held_out.p[by_folds], held_out.weights[by_folds]),
        expense=expense,
        alarms=alarms,
        own_error=own_error if isinstance(own_error, TrainingError) else None,
        seconds=clock.perf_counter() - start,
        notes=tuple(notes),
        path=None if out is None else save(model, out),
        onnx=None if onnx is None else export_onnx(model, onnx).path,
        report=None if report is None else _reported(model, rows, was_held_out, held_out, report, source.name, weight),
    )


def _reported(
    model: TableClassifier,
    rows: Rows,
    was_held_out: NDArray[np.bool_],
    held_out: Any,
    path: str | Path,
    data_name: str,
    weight: str | None,
) -> Path:
    """The report on the rows that were held out, by the answers of the models that did not see them."""
    frame = rows.frame[[column.name for column in model.columns_]][was_held_out].reset_index(drop=True)
    weights = None if weight is None else held_out.weights
    options: dict[str, Any] = {"data_name": data_name, "out_of_fold": held_out.p, "sample_weight": weights}
    return write_report(model, frame, rows.y.to_numpy()[was_held_out], path, **options).path
