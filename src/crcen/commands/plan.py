"""plan_table: how many labels or audits are needed to find a drift, to show a recall, or to know a cost."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidParameter
from crcen._support.progress import logged
from crcen._support.values import json_value
from crcen.commands.audits import AUDIT_RULES
from crcen.commands.inputs import model_of, source_of
from crcen.commands.prices import price_values
from crcen.commands.rules import ClassShares, RowRule, rule_of
from crcen.commands.scoring import score_table
from crcen.tables.options import ReadOptions
from crcen.theory.intervals import LEVEL
from crcen.theory.metrics import expected_counts
from crcen.theory.planning import (
    audits_for_recall_bound,
    labels_for_cost_width,
    labels_for_drift,
    labels_for_recall_bound,
    smallest_drift,
)
from crcen.theory.price import positive_number
from crcen.theory.residual_test import TrainingError
from crcen.theory.rows import Shown, in_one_line
from crcen.theory.selective import audit_scores

__all__ = ["TablePlan", "plan_table"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Variance of an unmeasured model's mean log-odds over what its number of training labels alone leaves.
_UNMEASURED = 2.0


@dataclass(frozen=True, eq=False)
class TablePlan(Shown):
    """Numbers of labels and audits that suffice; prints itself.

    Parameters
    ----------
    data : str
        The rows that the plan is for.
    n_rows : int
        How many.
    rule : RowRule
        How they are decided.
    goals : dict of str to float
        What was asked for: "drift", "recall_bound", "cost_width".
    power, level, confidence : float
        Probability of reaching the goal, level of the test of drift, and confidence of the bound on recall.
    labels : dict of str to dict of label to float
        Labelled rows, drawn at random, for each goal and class; infinite if no number suffices.
    audits : dict of label to float
        Audits of rows without an alarm for the bound on recall, of each class; infinite if no number suffices.
    uncertainty : dict of label to float
        The model's own error in log-odds.
    """

    data: str
    n_rows: int
    rule: RowRule
    goals: dict[str, float]
    power: float
    level: float
    confidence: float
    labels: dict[str, dict[Any, float]]
    audits: dict[Any, float]
    uncertainty: dict[Any, float]

    @property
    def n_labels(self) -> float:
        """Labelled rows that suffice for all goals; infinite if no number does."""
        return max((n for own in self.labels.values() for n in own.values()), default=math.nan)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; None if no number suffices."""
        return {
            "data": self.data,
            "rows": self.n_rows,
            "price": price_values(self.rule.price, self.rule.labels),
            "goals": self.goals,
            "power": self.power,
            "level": self.level,
            "confidence": self.confidence,
            "labels": json_value(self.n_labels),
            "labels_by_goal": json_value(self.labels),
            "audits": json_value(max(self.audits.values())) if self.audits else None,
            "audits_by_class": json_value(self.audits),
            "uncertainty": json_value(self.uncertainty),
            "sentences": self._sentences(),
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        head = f"{self.data}: plan for rows like these {self.n_rows:,}"
        return "\n".join([head, *(f"  {sentence}" for sentence in self._sentences())])

    def _sentences(self) -> list[str]:
        said = []
        for goal, own in self.labels.items():
            for label, n in own.items():
                whose = "" if self.rule.positive is not None or label is None else f" of {label}"
                what = {
                    "drift": f"a drift of {self.goals.get('drift', 0):g} in the log-odds{whose}",
                    "recall_bound": f"a recall{whose} of at least {self.goals.get('recall_bound', 0):g}",
                    "cost_width": f"a cost per 1,000 rows within ±{self.goals.get('cost_width', 0) / 2:g}",
                }[goal]
                power = "" if goal == "cost_width" else f" with a power of {self.power:g}"
                if math.isfinite(n):
                    said.append(f"{what}: {n:,.0f} labelled rows, drawn at random, show it{power}")
                elif goal == "drift":
                    said.append(
                        f"{what}: no number of labels suffices, since the model's own error is "
                        f"{self.uncertainty[label]:.2g} log-odds; more training rows are needed"
                    )
                else:
                    said.append(f"{what}: no number of labels suffices, since the expected recall is not above it")
        for label, n in self.audits.items():
            whose = "" if self.rule.positive is not None else f" of {label}"
            bound = f"a recall{whose} of at least {self.goals['recall_bound']:g}"
            if math.isfinite(n):
                said.append(f"{bound}: {n:,.0f} audits of rows without an alarm (crcen predict --audit {n:.0f})")
            else:
                said.append(f"{bound}: no number of audits suffices, since the expected recall is not above it")
        return said


@logged
def plan_table(
    model: Any,
    data: Any,
    *,
    drift: float | None = None,
    recall_bound: float | None = None,
    cost_width: float | None = None,
    power: float = 0.8,
    level: float = 0.05,
    confidence: float = LEVEL,
    audit_rule: str = "neyman",
    weighting: Any = None,
    costs: Any = None,
    prevalence: Any = None,
    random_state: int = 0,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TablePlan:
    """Numbers of labels and audits that suffice for a goal, as `crcen plan` does; rows need no labels.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    data : data frame, str or Path
        Rows like those that will be labelled.
    drift : float, optional
        Drift in log-odds that `crcen.evaluate_table` shall find; 0.3 if no goal is stated.
    recall_bound : float, optional
        Lower bound on recall that labels or audits shall show.
    cost_width : float, optional
        Width of the interval of the cost per 1,000 rows.
    power : float, default=0.8
        Probability of reaching the goal.
    level : float, default=0.05
        Level of the test of drift.
    confidence : float, default=0.95
        Of the bound on recall, and of the interval of the cost.
    audit_rule : "neyman" or "uniform", default="neyman"
        How audits are drawn, as in `crcen.predict_table`.
    weighting, costs, prevalence
        As in `crcen.predict_table`; goals are no price.
    random_state : int, default=0
        Seed of the simulation of audits.
    read : ReadOptions, optional
        How the table is read; by default detected.
    verbose : int, default=0
        1 shows progress on a terminal.

    Returns
    -------
    TablePlan
        ``n_labels`` and ``audits``.
    """
    if audit_rule not in AUDIT_RULES:
        raise InvalidParameter(f"audit_rule must be neyman or uniform: got {audit_rule!r}.", parameter="audit_rule")
    for name, value in (("power", power), ("level", level), ("confidence", confidence), ("recall_bound", recall_bound)):
        if value is not None and not 0.0 < value < 1.0:
            raise InvalidParameter(f"{name} must lie between 0 and 1: got {value:g}.", parameter=name)
    fitted = model_of(model)
    source = source_of(data, read, fitted)
    rule = rule_of(fitted, source, weighting, costs)
    if rule.goal is not None:
        raise InvalidParameter(f"{rule.goal} is no price: a plan needs a price.", parameter="weighting")
    asked = {"drift": drift, "recall_bound": recall_bound, "cost_width": cost_width}
    goals = {name: float(value) for name, value in asked.items() if value is not None} or {"drift": 0.3}
    target = str(getattr(fitted, "target_name_", "") or "")
    scored = score_table(fitted, source, None, [target] if target in source.columns else [], verbose)
    shares = ClassShares.of(prevalence, fitted, scored.p)
    p = scored.p if shares is None else shares.moved(scored.p)
    actions, _ = rule.decide(p)
    weights, column = fitted.weighting_.weights, rule.price.positive
    classes = range(p.shape[1]) if column is None else [column]
    sigma = {k: _uncertainty(fitted, p, k) for k in classes}
    labels: dict[str, dict[Any, float]] = {}
    audits: dict[Any, float] = {}
    if "drift" in goals:
        options = {"power": power, "level": level}
        labels["drift"] = {
            rule.labels[k]: labels_for_drift(p, weights, k, goals["drift"], **options, uncertainty=sigma[k])
            for k in classes
        }
    if "recall_bound" in goals:
        found = [k for k in classes if k != rule.default]
        bound, chances = goals["recall_bound"], {"confidence": confidence, "power": power}
        labels["recall_bound"] = {rule.labels[k]: _for_recall(p, actions, k, bound, **chances) for k in found}
        quiet = np.asarray(actions == rule.default)
        scores = audit_scores(p, rule.price.weights) if audit_rule == "neyman" else np.ones(len(p))
        for k in found:
            # Rows of the class that other alarms take are missed without an audit.
            chance = np.where(quiet | (actions == k), p[:, k], 0.0)
            audits[rule.labels[k]] = audits_for_recall_bound(chance, quiet, scores, bound, **chances, seed=random_state)
    if "cost_width" in goals:
        width = positive_number(goals["cost_width"], "cost_width") / 1000.0
        labels["cost_width"] = {None: labels_for_cost_width(p, actions, rule.costs.costs, width, level=confidence)}
    return TablePlan(
        data=source.name,
        n_rows=len(p),
        rule=rule,
        goals=goals,
        power=power,
        level=level,
        confidence=confidence,
        labels=labels,
        audits=audits,
        uncertainty={rule.labels[k]: sigma[k] for k in classes},
    )


def _for_recall(
    p: Array, actions: NDArray[np.int64], k: int, bound: float, *, confidence: float, power: float
) -> float:
    """Labelled rows for a bound on the recall of a class; infinite if its expected recall is not above the bound."""
    recall = expected_counts(p[:, k], actions == k).recall.value
    if not bound < recall <= 1.0:
        return math.inf
    try:
        return labels_for_recall_bound(bound, recall, float(p[:, k].mean()), confidence=confidence, power=power)
    except InvalidParameter:  # too near to the bound
        return math.inf


def _uncertainty(model: Any, p: Array, k: int) -> float:
    """The model's own error in log-odds of a class: measured by refits, or as models of its kind have it."""
    error, price = getattr(model, "training_error_", None), model.weighting_
    if isinstance(error, TrainingError):
        return float(error.size if price.positive is not None else error.sizes[k])
    # 1 + 2·n/n_train as a variance of the residual is an error of 2/(j·n_train) in squared log-odds.
    unit = smallest_drift(p, price.weights, k, 1.0, power=0.5, level=0.05) / 1.959963984540054
    return math.sqrt(_UNMEASURED / float(price.counts.sum())) * unit
