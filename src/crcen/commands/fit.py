"""fit_table: from a table with a target column to a validated model, and how it does on held-out rows."""

from __future__ import annotations

import math
import time as clock
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray
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
from crcen._support.text import listed
from crcen._support.values import json_value
from crcen.commands.export import check_exportable
from crcen.commands.inputs import (
    MOST_CLASSES,
    Rows,
    audit_probabilities,
    check_column,
    labels_as,
    model_of,
    quiet_decision,
    rows_of,
    source_of,
    weights_of,
    why_positive,
)
from crcen.commands.learners import (
    folds_of,
    goal_in_rows,
    learner_lines,
    learner_values,
    measure_training_error,
    shift_line,
    times_or_clusters,
    unfitted_learner,
)
from crcen.commands.prices import (
    average_price,
    own_costs,
    price_values,
    prices_around,
    stated_weighting,
    step_lines,
    step_values,
)
from crcen.commands.quality import METRICS, Measured, RowMetrics, count_sentence, count_values, of_no_use, too_good
from crcen.tables.leaks import Signs, find_signs
from crcen.tables.options import ReadOptions
from crcen.theory.goals import ThresholdGoal
from crcen.theory.limits import is_nearly_separated
from crcen.theory.metrics import ConfusionCounts, Quality, measure_quality
from crcen.theory.rows import Shown, effective_rows, in_one_line
from crcen.theory.selective import clipped_weights, label_selection

__all__ = ["AlarmShares", "PositiveClass", "Selection", "TableFit", "fit_table"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

_FIT_SHARE = 0.7  # of a time limit, for members of a committee
_FEW = 10  # rows of a class
_MOST_UNEVEN = 100.0  # ratio of balanced weights that is pointed out
# Shares of alarms that differ by both: a refit on more rows is another model, so some difference is expected.
_FACTOR, _Z = 1.5, 4.0


@dataclass(frozen=True)
class AlarmShares:
    """Shares of alarms among training rows.

    Parameters
    ----------
    folds, saved : float
        Among rows held out once: by the networks that had not seen them, and by the saved model.
    training : float
        By the saved model, among all rows that it was trained on.
    z : float
        Rows on which only one of the two alarms, as a difference in standard deviations.
    """

    folds: float
    saved: float
    training: float
    z: float

    @classmethod
    def of(cls, by_folds: Bools, by_model: Bools, was_held_out: Bools) -> AlarmShares:
        """Count alarms.

        Parameters
        ----------
        by_folds : bool array of shape (held out,)
            Alarms of the models of the folds.
        by_model : bool array of shape (n,)
            Alarms of the saved model.
        was_held_out : bool array of shape (n,)
            Which of its rows the first array is about, in order.
        """
        same = by_model[was_held_out]
        only_folds, only_model = int((by_folds & ~same).sum()), int((same & ~by_folds).sum())
        z = (only_model - only_folds) / math.sqrt(max(1, only_model + only_folds))
        return cls(float(by_folds.mean()), float(same.mean()), float(by_model.mean()), z)

    @property
    def differ(self) -> bool:
        """Whether the two differ beyond noise."""
        low, high = sorted((self.folds, self.saved))
        return abs(self.z) > _Z and high > _FACTOR * low

    @property
    def notes(self) -> list[str]:
        """A sentence where they differ."""
        if not self.differ:
            return []
        return [
            f"the saved model raises {_per_1000(self.saved)} alarms per 1,000 of the rows held out, where the models "
            f"of the folds raised {_per_1000(self.folds)}: the figures above are theirs, not its own; judge it on "
            f"labelled rows that are new before relying on it"
        ]

    def __str__(self) -> str:
        return (
            f"alarms per 1,000 rows    {_per_1000(self.folds)} by the folds' models, {_per_1000(self.saved)} by the "
            f"saved model on the same rows, {_per_1000(self.training)} on all its rows"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"folds": self.folds, "saved_model": self.saved, "training": self.training, "differ": self.differ}


def _per_1000(share: float) -> str:
    return f"{1000.0 * share:,.4g}"


@dataclass(frozen=True)
class Selection:
    """How training rows were chosen for a label.

    Parameters
    ----------
    n_labelled, n_unlabelled : int
        Rows with and without a label.
    column : str or None
        Column with the probability of each row.
    largest_weight : float or None
        Where weights of 1 / probability were cut; None if they were not.
    effective_rows : float or None
        Equally weighted rows that carry as much information (Kish).
    alarm_share, quiet_share : float or None
        Share of rows with a label among alarms of the earlier model, and among its other rows.
    """

    n_labelled: int
    n_unlabelled: int
    column: str | None = None
    largest_weight: float | None = None
    effective_rows: float | None = None
    alarm_share: float | None = None
    quiet_share: float | None = None

    @classmethod
    def by_model(cls, model: Any, frame: Any, labelled: Bools) -> Selection:
        """Compare rows with and without a label by the decisions of the model that selected them."""
        model = model_of(model)
        alarms, scores = quiet_decision(model, frame)
        found = label_selection(labelled, scores, alarms)
        shares = [json_value(share) for share in (found.alarm_share, found.quiet_share)]
        return cls(int(labelled.sum()), found.n_missing, None, None, None, *shares)

    @property
    def notes(self) -> list[str]:
        """Sentences for the user."""
        if self.column is not None:
            if self.largest_weight is None:
                return []
            return [
                f"weights of 1 / {self.column} were cut at {self.largest_weight:.4g}, so that {self.n_labelled:,} rows "
                f"carry as much information as {self.effective_rows:,.0f} equally weighted ones; figures are biased "
                "towards rows that were likely to be chosen"
            ]
        if not self.n_unlabelled:
            return ["every row has a label, so the earlier model selected none of them"]
        quiet, alarm = self.quiet_share or 0.0, self.alarm_share or 0.0
        if quiet < 0.01 * alarm:
            return [
                f"labels exist only where the earlier model raised an alarm ({100.0 * alarm:.3g} % of alarms, "
                f"{100.0 * quiet:.2g} % of other rows): nothing can be learned about rows without an alarm, and the "
                "probabilities of such rows are extrapolated; draw audits with crcen predict --audit (CRC011)"
            ]
        return [
            f"{100.0 * alarm:.3g} % of the alarms of the earlier model have a label, and {100.0 * quiet:.3g} % of "
            "other rows; record the probability of each and use --audited, since rows count equally here"
        ]


@dataclass(frozen=True, eq=False)
class PositiveClass:
    """Held-out rows of two classes, seen from the positive one.

    Parameters
    ----------
    counts : ConfusionCounts
        Decisions of out-of-fold rows.
    metrics : dict of str to Measured
        By the names of `crcen.commands.quality.METRICS`.
    average_price : float
        Expected false alarms of the average catch, by the out-of-fold probabilities.
    expense : ExpenseCurve
        Cost of catches between half the price, the price and twice the price.
    alarms : AlarmShares
        Share of alarms of the saved model and of the models of the folds.
    """

    counts: ConfusionCounts
    metrics: dict[str, Measured]
    average_price: float
    expense: ExpenseCurve
    alarms: AlarmShares


@dataclass(frozen=True, eq=False)
class TableFit(Shown):
    """A fitted table with its out-of-fold evidence; prints the main result.

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
    quality : Quality
        Decisions of out-of-fold rows and their cost, for each class.
    positive : PositiveClass or None
        The same for the positive class, if there is one.
    signs : Signs
        Columns that may be recorded after the event, copies of rows, repeating identifiers.
    selection : Selection or None
        How rows were chosen for a label, if that was stated.
    seconds : float
        Time of reading, encoding and fitting.
    notes : tuple of str
        What a user should know.
    path, onnx, report : Path or None
        Where the model was saved, where its ONNX graph is, and where the report.
    """

    model: TableClassifier
    data: str
    target: str
    n_rows: int
    validation: str
    n_validated: int
    quality: Quality
    positive: PositiveClass | None
    signs: Signs
    selection: Selection | None
    seconds: float
    notes: tuple[str, ...] = ()
    path: Path | None = None
    onnx: Path | None = None
    report: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the same keys for any number of classes."""
        model, positive, error = self.model, self.positive, self.training_error
        price = price_values(model.weighting_, model.classes_.tolist()) or {}
        out_of_fold = self.quality.to_dict()
        if positive is not None:
            price |= {
                "average_price": json_value(positive.average_price),
                "expense": step_values(positive.expense),
                "alarm_shares": positive.alarms.to_dict(),
            }
            values = {name: json_value(one.value) for name, one in positive.metrics.items() if name != "cost_per_1000"}
            out_of_fold |= {"counts": count_values(positive.counts), **values}
        labels = [json_value(label) for label in model.classes_.tolist()]
        return {
            "data": self.data,
            "target": self.target,
            "classes": labels,
            "rows": {"all": self.n_rows, "by_class": model.weighting_.counts.tolist()},
            "columns_read": [*map(str, model.feature_names_in_), self.target],
            "columns_used": [column.name for column in model.columns_],
            "columns": [column.describe() for column in model.columns_],
            "dropped": [{"name": one.name, "reason": one.reason} for one in model.dropped_],
            "n_encoded": len(model.encoded_names_),
            "goal": None if self.goal is None else str(self.goal),
            "price": price,
            **learner_values(model.estimator_),
            "validation": {"how": self.validation, "rows": self.n_validated},
            "key_equation": self._equation(),
            "out_of_fold": out_of_fold,
            "training_error": None if error is None else error.sizes.tolist() if positive is None else error.size,
            **self.signs.to_dict(),
            "selection": None if self.selection is None else asdict(self.selection),
            "seconds": self.seconds,
            "notes": list(self.notes),
            **{name: None if place is None else str(place) for name, place in self._places().items()},
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        cost, quality = self.quality.cost.scaled(1000.0), self.quality
        by_weight = "" if math.isclose(self.model.weighting_.counts.sum(), self.n_rows) else " by weight"
        where = f"{self.data}, {self.n_validated:,} rows held out of training{by_weight}"
        if self.positive is not None:
            lines = [f"{where}: {count_sentence(self.positive.counts)} ({self.target} = {self.model.pos_label_})"]
            lines += [] if self.goal is None else [f"Goal: {self.goal}, met by the price below"]
            unit = f" if one miss = {self.model.weighting_.cost_ratio:.6g} false alarms"
        else:
            lines, unit = [f"{where}:", *self._class_lines()], ""
        lines.append(
            f"Cost per 1,000 rows {cost.value:.4g} ({cost.low:.4g} to {cost.high:.4g}){unit}; "
            f"{1000.0 * quality.habit_cost:.4g} with {quality.habit} for every row"
        )
        lines += [f"Note: {note}." for note in self.notes]
        names = {"path": "saved to", "onnx": "ONNX graph", "report": "report on held-out rows"}
        written = [f", {names[name]} {place}" for name, place in self._places().items() if place is not None]
        lines.append(f"{self.seconds:.1f} s{''.join(written)}")
        if self.path is not None:
            lines.append(f"Next: crcen evaluate {quote(str(self.path))} NEW_ROWS, with labelled rows kept apart")
        return "\n".join(lines)

    def details(self) -> str:
        """Columns, learner, price and every metric of held-out rows, for `crcen fit --details`."""
        model, positive, error = self.model, self.positive, self.training_error
        kinds = [column.kind for column in model.columns_]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        lines = [
            f"Rows      {self.n_rows:,}: {_class_counts(model, self.target)}",
            f"Columns   {len(model.columns_)} used ({counted}; {len(model.encoded_names_)} inputs), "
            f"{len(model.dropped_)} left out",
            *(f"  {one.name:<20} left out: {one.reason}" for one in model.dropped_),
            *learner_lines(model.estimator_, self.validation),
            "",
            *_price_lines(model),
            "",
            f"On {self.n_validated:,} rows held out of training",
        ]
        if positive is None:
            lines += [f"  {line}" if line else "" for line in self.quality.lines()]
        else:
            lines += self._positive_lines(positive)
        lines += [] if error is None else [f"  model error              {error}"]
        if positive is not None:
            lines += ["Cost per extra catch: observed and expected", *step_lines(positive.expense)]
        return "\n".join(lines)

    def _positive_lines(self, positive: PositiveClass) -> list[str]:
        estimator, average = self.model.estimator_, "false_alarms_per_catch"
        equation, found = estimator.oof_key_equation_, positive.metrics[average]
        expected = "" if math.isnan(positive.average_price) else f" ({positive.average_price:.4g} expected)"
        price = f"{self.model.weighting_.cost_ratio:.6g}"
        caught = "nothing was caught" if math.isnan(found.value) else f"{found} on average{expected}"
        named = [name for name in positive.metrics if name not in (average, "alarms_per_1000")]
        return [
            *(f"  {METRICS[name].title:<24} {positive.metrics[name]}" for name in named),
            f"  {positive.alarms}",
            f"  {METRICS[average].title:<24} {caught}; {price} for the last catch",
            f"  key equation             left side {equation.lhs:.4g}, right side {equation.rhs:.4g} "
            f"({shift_line(estimator)})",
        ]

    def _class_lines(self) -> list[str]:
        """Found rows and false alarms of each class, and rows given to other actions."""
        table, labels = self.quality.counts.table, [str(label) for label in self.quality.names]
        width = max(map(len, labels))
        lines = [
            f"  {label:<{width}}  found {table[k, k]:,.6g} of {table[k].sum():,.6g}, "
            f"{table[:, k].sum() - table[k, k]:,.6g} false alarms"
            for k, label in enumerate(labels[: len(table)])
        ]
        others = [f"  {label:<{width}}  {table[:, k].sum():,.6g} rows" for k, label in enumerate(labels)][len(table) :]
        return [*lines, *others]

    def _equation(self) -> dict[str, Any]:
        """Both sides, residual and shift: numbers for two classes, lists for more."""
        estimator = self.model.estimator_
        equation = estimator.oof_key_equation_
        is_one = np.ndim(equation.lhs) == 0
        values = {"left": equation.lhs, "right": equation.rhs, "shift": estimator.oof_shift_}
        values["residual"] = equation.residual if is_one else equation.residuals
        return {name: json_value(value) if is_one else np.asarray(value).tolist() for name, value in values.items()}

    def _places(self) -> dict[str, Path | None]:
        return {"path": self.path, "onnx": self.onnx, "report": self.report}

    @property
    def training_error(self) -> Any:
        """How far off the model may be by the chance of its rows (`crcen.training_error`); None if not measured."""
        return getattr(self.model, "training_error_", None)

    @property
    def goal(self) -> ThresholdGoal | None:
        """The goal that was stated instead of a price, if any."""
        stated = self.model.estimator_.weighting
        return stated if isinstance(stated, ThresholdGoal) else None


def _class_counts(model: Any, target: str) -> str:
    """Rows of each class, the rarest last."""
    counts, labels = model.weighting_.counts, model.classes_.tolist()
    order = np.argsort(-counts, kind="stable")
    return f"{len(labels)} classes of {target}: " + listed((f"{labels[k]} {counts[k]:,.6g}" for k in order), most=12)


def _price_lines(model: Any) -> list[str]:
    price, costs = model.weighting_, getattr(model, "costs_", None)
    if costs is not None and price.positive is None:
        return ["Costs     of every decision for every true class", *(f"  {line}" for line in str(costs).split("\n"))]
    if price.positive is None:
        pairs = zip(model.classes_.tolist(), price.weights.tolist(), strict=True)
        return [f"Weights   a mistake on a class costs its weight: {', '.join(f'{one} {w:.4g}' for one, w in pairs)}"]
    return [
        "Price, one number under four names",
        f"  budget, cost ratio  {price.cost_ratio:<10.6g} one miss = so many false alarms",
        f"  λ                   {price.lam:<10.6g} weight of a positive row at this price",
        f"  α                   {price.alpha:<10.6g} 1 is balanced",
        f"  threshold           {price.threshold:<10.6g} an alarm above this probability",
    ]


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
    audit_probability: str | None = None,
    selected_by: Any = None,
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
        What a miss is worth, or a goal that out-of-fold rows turn into a price: ``RecallAtLeast(0.9)``,
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
    audit_probability : str, optional
        Column with the probability that a row was chosen for a label, as `crcen.predict_table` writes it. Rows count
        1 / probability; large weights are cut if the effective sample size would fall below half. Rows without a label
        are unlabelled, not negative. Not used as an input.
    selected_by : fitted classifier, str or Path, optional
        The earlier model whose alarms were checked, if no probabilities were recorded: determines where labels were
        possible at all.
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
    TableFit
        ``.model``, and evidence on held-out rows; print it.

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
    if audit_probability is not None and selected_by is not None:
        raise InvalidParameter(
            "audit_probability= states how rows were chosen: leave out selected_by=.",
            parameter=("audit_probability", "selected_by"),
        )
    roles = _roles(source, target, clusters=clusters, time=time, weight=weight, audit_probability=audit_probability)
    with busy("reading the table", visible=bool(verbose)):
        frame = source.numbered()
        check_column(target, source.columns, "the target", source.name)
        labelled = frame[target].notna().to_numpy()
        if audit_probability is not None:
            frame[audit_probability] = audit_probabilities(frame, audit_probability, labelled)
        selection = None if selected_by is None else Selection.by_model(selected_by, frame, labelled)
        how_read: dict[str, Any] = {"is_audited": audit_probability is not None or selected_by is not None}
        rows = rows_of(source, target, positive, tuple(roles), most_labels=MOST_CLASSES, frame=frame, **how_read)
    reasons = {**dict.fromkeys([drop] if isinstance(drop, str) else drop, "asked for"), **roles}
    reasons.pop(target, None)
    weights = None if weight is None else weights_of(rows.frame[weight], "weight")
    if audit_probability is not None:
        weights, selection = _audited_weights(rows, weights, audit_probability, int((~labelled).sum()))
    y = rows.y.to_numpy()
    weighting = stated_weighting(weighting, costs, np.unique(y).tolist(), target)
    weighting = goal_in_rows(weighting, rows, time)
    folds, how = folds_of(rows, clusters, time, n_splits, random_state)
    search = unfitted_learner(learner, estimator, time_limit, len(y), effort)
    if time_limit is not None:  # the rest is for encoding, refits and files
        search.set_params(time_limit=max(1e-3, _FIT_SHARE * (time_limit - (clock.perf_counter() - start))))
    search.set_params(
        weighting=weighting, pos_label=rows.positive, cv=folds, random_state=random_state, verbose=verbose
    )
    columns: dict[str, Any] = {"drop": reasons, "keep": keep, "categorical": categorical}
    model = TableClassifier(estimator=search, **columns, fingerprint=fingerprint, random_state=random_state)
    model.learn_columns(rows.frame)
    if onnx is not None:
        check_exportable(model, onnx, data)
    encoded = model.encode(rows.frame)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit_encoded(rows.frame, encoded, rows.y, weights, groups=times_or_clusters(rows, clusters, time))
    if weight is not None:
        model.weight_name_ = weight
    if clusters is not None:
        model.clusters_name_ = clusters
    if source.options.to_remember:
        model.read_ = source.options.to_remember
    n_refits = (0 if effort == "quick" else 6) if n_refits is None else n_refits
    until = None if time_limit is None else start + 0.95 * time_limit
    measure_training_error(model, encoded.X, y, weights, n_refits, random_state, verbose, until)
    numbers = labels_as(rows.y, model.classes_, target)
    signs = find_signs(model.columns_, rows.frame, numbers, model.classes_.tolist(), model.dropped_)
    p, seen, seen_from_positive = _held_out(model, y, weights, encoded.X)
    held_out = None if weights is None else weights[seen]
    quality = measure_quality(numbers[seen], p, own_costs(model), held_out)
    chosen = [] if selection is None else selection.notes
    notes = [
        *signs.notes,
        *chosen,
        *rows.notes,
        *model.notes_,
        *dict.fromkeys(str(one.message).rstrip(".") for one in caught),
    ]
    notes += [note for note in getattr(model.estimator_, "notes_", []) if note not in notes]
    notes += [*_rare_notes(model, numbers), *getattr(model.estimator_, "search_notes_", [])]
    if seen_from_positive is None:
        notes += _class_notes(model, quality)
    else:
        notes += _positive_notes(seen_from_positive)
        notes += _why_positive(rows, model, weight) if positive is None else []
    page: dict[str, Any] = {"data_name": source.name, "sample_weight": held_out}
    return TableFit(
        model=model,
        data=source.name,
        target=target,
        n_rows=len(y),
        validation=how,
        n_validated=int(seen.sum()),
        quality=quality,
        positive=seen_from_positive,
        signs=signs,
        selection=selection,
        seconds=clock.perf_counter() - start,
        notes=tuple(notes),
        path=None if out is None else save(model, out),
        onnx=None if onnx is None else export_onnx(model, onnx).path,
        report=None if report is None else _reported(model, rows, seen, p, report, page),
    )


def _audited_weights(rows: Rows, weights: Array | None, column: str, n_unlabelled: int) -> tuple[Array, Selection]:
    """Row weights times 1 / probability, cut if the effective sample size would fall below half."""
    inverse, cut = clipped_weights(1.0 / rows.frame[column].to_numpy(dtype=np.float64))
    found = inverse if weights is None else inverse * weights
    largest = None if math.isinf(cut) else cut
    return found, Selection(len(found), n_unlabelled, column, largest, effective_rows(found))


def _roles(source: Any, target: str, **columns: str | None) -> dict[str, str]:
    """Columns with a role of their own, which are no inputs, and why."""
    reasons = {
        "audit_probability": "states how rows were chosen for a label",
        "clusters": "keeps rows of a cluster together",
        "time": "orders rows in time",
        "weight": "states how much rows count",
    }
    found = {}
    for option, name in columns.items():
        if name is None:
            continue
        if name == target:
            raise InvalidParameter(
                f"{option} must be another column than the target: got {name!r} for both.", parameter=option
            )
        found[check_column(name, source.columns, option, source.name)] = reasons[option]
    return found


def _held_out(
    model: TableClassifier, y: NDArray[Any], weights: Array | None, encoded: Array
) -> tuple[Array, Bools, PositiveClass | None]:
    """Out-of-fold probabilities (held out, K), which rows were held out, and these from the positive class."""
    estimator, price = model.estimator_, model.weighting_
    if price.positive is None:
        p = estimator.oof_proba_
        seen = np.isfinite(p).all(axis=1)
        return p[seen], seen, None
    expense = ExpenseCurve.from_cv(estimator, y, prices_around(price), sample_weight=weights)
    rows = expense.rows
    assert rows is not None  # a curve of moved thresholds has its rows
    seen = np.isfinite(estimator.oof_decision_function_)
    alarms = price.decide(rows.p)
    shares = AlarmShares.of(alarms, np.asarray(estimator.predict(encoded) == model.pos_label_), seen)
    average = average_price(rows.p[alarms], rows.weights[alarms])
    both = np.column_stack([1.0 - rows.p, rows.p] if price.positive == 1 else [rows.p, 1.0 - rows.p])
    numbers = np.where(rows.target, price.positive, 1 - price.positive)
    scored = RowMetrics(numbers, both, price, rows.weights)
    return both, seen, PositiveClass(scored.confusion, scored.measured(), average, expense, shares)


def _rare_notes(model: TableClassifier, numbers: NDArray[np.int64]) -> list[str]:
    """A note on classes with too few rows: the positive one, or any of several."""
    counts, positive = np.bincount(numbers, minlength=len(model.classes_)), model.weighting_.positive
    some = range(len(counts)) if positive is None else [positive]
    rare = [f"{model.classes_[k]} ({counts[k]})" for k in some if counts[k] < _FEW]
    return [f"fewer than {_FEW} rows of {listed(rare)}: too few for reliable figures"] if rare else []


def _positive_notes(positive: PositiveClass) -> list[str]:
    metrics = positive.metrics
    counts = positive.counts
    useless = of_no_use(metrics["log_loss"].value, [float(counts.tp + counts.fn), float(counts.fp + counts.tn)])
    return [*positive.alarms.notes, *too_good(metrics["roc_auc"].value), *useless]


def _class_notes(model: TableClassifier, quality: Quality) -> list[str]:
    """Notes for several classes: balanced weights far apart, classes that are separated, decisions of no use."""
    notes, weights = [], model.weighting_.weights
    dear, cheap = int(np.argmax(weights)), int(np.argmin(weights))
    is_stated = model.costs_ is not None or getattr(model.estimator_, "weighting", None) != "balanced"
    if not is_stated and weights[dear] >= _MOST_UNEVEN * weights[cheap]:
        ratio = f"{weights[dear] / weights[cheap]:,.0f} of {model.classes_[cheap]}"
        notes.append(
            f"by balanced weights one row of {model.classes_[dear]} counts as much as {ratio}; if mistakes do not cost "
            f"that, state costs or class weights"
        )
    known = [one.value for one in quality.areas if np.isfinite(one.value)]
    if known and is_nearly_separated(min(known)):
        notes += too_good(min(known))
    if quality.saved.value < 0.0:
        notes.append(f"{quality.habit} for every row costs less than these decisions: the columns say too little")
    return notes


def _why_positive(rows: Rows, model: TableClassifier, weight: str | None) -> list[str]:
    """Why a class is the positive one, if that was not stated and is not obvious."""
    counts = rows.y.value_counts()
    rarer, by_rows = model.pos_label_, counts.index[1]
    if weight is not None and counts.iloc[0] != counts.iloc[1] and by_rows != rarer:
        return [f"{rarer} is the positive class because it is rarer by {weight}; by rows {by_rows} is: use --positive"]
    return why_positive(rarer, float(counts[rarer] / counts.sum()))


def _reported(model: TableClassifier, rows: Rows, seen: Bools, p: Array, path: Any, options: dict[str, Any]) -> Path:
    """The report on held-out rows, by the probabilities of the models that did not see them."""
    frame = rows.frame[[column.name for column in model.columns_]][seen].reset_index(drop=True)
    positive = model.weighting_.positive
    held_out = p if positive is None else p[:, positive]
    return write_report(model, frame, rows.y.to_numpy()[seen], path, out_of_fold=held_out, **options).path
