"""plan_table: the number of labels or audits needed to find a drift, to show a recall, or to estimate a cost."""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from crcen import ReadOptions
from crcen._support.progress import logged
from crcen._support.text import Values
from crcen.commands import inputs
from crcen.commands.inputs import Data, FittedModel, Label, check, require
from crcen.commands.results import Result, note_lines
from crcen.commands.rules import AUDIT_RULES, ClassShares, CostsLike, Prevalence, RowRule, Weighting
from crcen.commands.scoring import Judging
from crcen.theory import criteria
from crcen.theory.intervals import LEVEL, design_effect
from crcen.theory.residual_test import clustered_variance, residual_values, variance_of
from crcen.theory.rows import Array, Index
from crcen.theory.selective import audit_scores


@dataclass(frozen=True, eq=False, repr=False)
class TablePlan(Result):
    """Numbers of labels and audits that suffice, infinite if no number does; prints itself. None in JSON."""

    keys = (
        "data rows=n_rows price=rule goals power level confidence labels=n_labels labels_by_goal=labels "
        "audits=n_audits audits_by_class=audits uncertainty clusters sentences notes"
    )
    data: str
    n_rows: int
    rule: RowRule
    goals: dict[str, float]  # "drift", "recall_bound", "cost_width"
    power: float
    level: float  # of the test of drift
    confidence: float  # of the bound on recall
    labels: dict[str, dict[Label | None, float]]  # rows drawn at random (in clusters, if named), by goal and class
    audits: dict[Label, float]  # of rows without an alarm for the bound on recall, by class
    uncertainty: dict[Label, float]  # the model uncertainty in log-odds
    clusters: Values | None = None  # column, number, rows of each on average, and whether effects are estimated
    notes: tuple[str, ...] = ()

    @property
    def n_labels(self) -> float:
        """Labelled rows that suffice for all goals; infinite if no number does."""
        return max((n for own in self.labels.values() for n in own.values()), default=math.nan)

    @property
    def n_audits(self) -> float | None:
        """Audits that suffice for all classes, if a bound on recall was requested; infinite if no number suffices."""
        return max(self.audits.values()) if self.audits else None

    def __str__(self) -> str:
        head = f"Plan for rows like the {self.n_rows:,} of {self.data}"
        return "\n".join([head, *(f"  {sentence}" for sentence in self.sentences), *note_lines(self.notes)])

    @property
    def sentences(self) -> list[str]:
        """The plan in words, by goal and class."""
        found, none = [], "because the expected recall is not above it"
        whose = {label: "" if self.rule.positive is not None else f" of {label}" for label in self.rule.labels}
        for goal, own in self.labels.items():
            for label, n in own.items():
                of, size, level = "" if label is None else whose[label], self.goals[goal], 100.0 * self.confidence
                what = {
                    "drift": f"a drift of {size:g} in the log-odds{of}, up or down",
                    "recall_bound": f"a recall{of} of at least {size:g}",
                    "cost_width": f"a {level:g} % interval of the cost per 1,000 rows that is {size:g} wide on average",
                }[goal]
                shown = f"show it with a power of {self.power:g}"
                shown, why = ("give it", "because it is too narrow") if goal == "cost_width" else (shown, none)
                if goal == "drift" and label is not None:
                    error = f"because the model uncertainty is {self.uncertainty[label]:.2g} log-odds"
                    why = f"{error}; more training rows are needed" if size < 3.0 else "as too few positives remain"
                drawn = "drawn at random"
                if self.clusters is not None and math.isfinite(n):
                    drawn = f"in {math.ceil(n / self.clusters['rows']):,} clusters drawn at random"
                enough = f"{n:,.0f} labelled rows, {drawn}, {shown}"
                found.append(f"{what}: {enough if math.isfinite(n) else f'no number of labels suffices, {why}'}")
        for label, n in self.audits.items():
            enough = f"{n:,.0f} audits of rows without an alarm (crcen predict --audit {n:.0f})"
            enough = enough if math.isfinite(n) else f"no number of audits suffices, {none}"
            found.append(f"a recall{whose[label]} of at least {self.goals['recall_bound']:g} on these rows: {enough}")
        if self.clusters is not None:
            known = "by the labels here" if self.clusters["estimated"] else "as if they were alike, without labels"
            found.append(f"rows of the same {self.clusters['column']} count as fewer, {known}")
        return found


@logged
def plan_table(
    model: FittedModel | str | Path,
    data: Data,
    *,
    drift: float | None = None,
    recall_bound: float | None = None,
    cost_width: float | None = None,
    power: float = 0.8,
    level: float = 0.05,
    confidence: float = LEVEL,
    audit_rule: str = "neyman",
    weighting: Weighting = None,
    costs: CostsLike = None,
    prevalence: Prevalence = None,
    clusters: str | None = None,
    random_state: int = 0,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TablePlan:
    """Compute how many labels or audits a goal needs, as `crcen plan` does; rows need no labels.

    Parameters
    ----------
    model, weighting, costs, prevalence, read, verbose
        See `crcen.evaluate_table`; goals are not accepted.
    data : data frame, str or Path
        Rows like those that will be labelled.
    drift : float, optional
        Drift in log-odds, up or down, that `crcen.evaluate_table` must detect; 0.3 if no goal is stated.
    recall_bound : float, optional
        Lower bound on recall that labels or audits must establish.
    cost_width : float, optional
        Expected width of the interval of the cost per 1,000 rows.
    power, level, confidence : float
        Probability of reaching the goal; level of the test of drift; confidence of the bound and of the interval.
    audit_rule, random_state : "neyman" or "uniform", and int
        How audits are drawn, as in `crcen.predict_table`; seed of their simulation.
    clusters : str, optional
        Column of rows that belong together, such as a patient: more labels are needed then, by the design effect of the
        labels here, if there are any, otherwise as if rows of a cluster were equal.
    """
    require(audit_rule in AUDIT_RULES, f"audit_rule must be neyman or uniform: got {audit_rule!r}.", "audit_rule")
    asked = {"drift": drift, "recall_bound": recall_bound, "cost_width": cost_width}
    goals = {name: float(value) for name, value in asked.items() if value is not None} or {"drift": 0.3}
    for name, is_default, of in (
        ("power", power == 0.8, ("drift", "recall_bound")),
        ("level", level == 0.05, ("drift",)),
        ("confidence", confidence == LEVEL, ("recall_bound", "cost_width")),
        ("audit_rule", audit_rule == "neyman", ("recall_bound",)),
        ("random_state", random_state == 0, ("recall_bound",)),
    ):
        must = f"{name} must go with {'= or '.join(of)}=: the other goals do not depend on it."
        require(is_default or any(goal in goals for goal in of), must, name, *of)
    for name, value in {**goals, "power": power, "level": level, "confidence": confidence}.items():
        most, allowed = (math.inf, "be above 0") if name in ("drift", "cost_width") else (1.0, "lie between 0 and 1")
        check(name, value, 0.0 < value < most, allowed)
    judging = Judging.of(model, data, read, weighting, costs, needs_price=True, roles={"clusters": clusters})
    fitted, rule = judging.model, judging.rule
    scored = judging.score(verbose, reads_labels=clusters is not None)
    p, together = scored.p, scored.frame.get(clusters or "")
    shares = ClassShares.of(prevalence, fitted, p, together)
    p = p if shares is None else shares.moved(p)
    actions, _ = rule.decide(p)
    trained, error = fitted.weighting_, getattr(fitted, "training_error_", None)
    weights, sigma = trained.weights, {k: criteria.model_uncertainty(error, trained, p, k) for k in rule.evaluated}
    labels: dict[str, dict[Label | None, float]] = {}
    audits: dict[Label, float] = {}
    if "drift" in goals:
        planned = partial(criteria.labels_for_drift, p, weights, drift=goals["drift"], power=power, level=level)
        labels["drift"] = {rule.labels[k]: planned(k=k, uncertainty=error) for k, error in sigma.items()}
    if "recall_bound" in goals:
        found = [k for k in rule.evaluated if k != rule.default]
        bound, chances = goals["recall_bound"], {"confidence": confidence, "power": power}
        labels["recall_bound"] = {}
        quiet = np.asarray(actions == rule.default)
        scores = audit_scores(p, rule.price.weights) if audit_rule == "neyman" else np.ones(len(p))
        for k in found:
            own, which = actions == k, rule.labels[k]
            labels["recall_bound"][which], _ = criteria.labels_for_share("recall", p[:, k], own, bound, **chances)
            # Rows of the class that other alarms take are missed without an audit.
            chance = np.where(quiet | own, p[:, k], 0.0)
            n_other = float((p[:, k] - chance).sum())
            audits[which] = criteria.audits_for_recall_bound(
                chance, quiet, scores, bound, n_other=n_other, **chances, seed=random_state
            )
    if "cost_width" in goals:
        width, paid = goals["cost_width"] / 1000.0, rule.costs.costs
        labels["cost_width"] = {None: criteria.labels_for_cost_width(p, actions, paid, width, level=confidence)}
    drawn: Values | None = None
    if together is not None:
        numbers = inputs.cluster_numbers(together)
        n_clusters, has_labels = int(numbers.max()) + 1, len(np.unique(scored.y[scored.is_labelled])) > 1
        drawn = {"column": clusters, "number": n_clusters, "rows": len(p) / n_clusters, "estimated": has_labels}
        used = scored.is_labelled if has_labels else np.ones(len(p), dtype=np.bool_)
        effect = partial(_effect, scored.y[used], p[used], actions[used], numbers[used], rule, weights)
        for goal, by_label in labels.items():
            for label, n in by_label.items():
                by_label[label] = math.ceil(n * effect(goal, label)) if math.isfinite(n) else n
    return TablePlan(
        data=judging.source.name,
        n_rows=len(p),
        rule=rule,
        goals=goals,
        power=power,
        level=level,
        confidence=confidence,
        labels=labels,
        audits=audits,
        uncertainty={rule.labels[k]: error for k, error in sigma.items()},
        clusters=drawn,
        notes=tuple(scored.notes),
    )


def _effect(
    y: Index, p: Array, actions: Index, clusters: Index, rule: RowRule, trained: Array, goal: str, label: Label | None
) -> float:
    """Factor by which clusters increase the labels for a goal, from their labels (−1 if unknown: rows are equal)."""
    k = -1 if label is None else rule.labels.index(label)
    if goal == "drift" and y.min() >= 0:
        values = residual_values(p, trained, k)
        alone = variance_of(values, p)
        return clustered_variance(values[np.arange(len(y)), y], alone, clusters)[0] / alone if alone > 0.0 else 1.0
    own = (y == k) | (k < 0) | (y < 0)
    paid = np.asarray(rule.costs.costs)[y, actions] if k < 0 else (actions == k).astype(np.float64)
    return design_effect(np.where(y < 0, 0.0, paid)[own], np.ones(int(own.sum())), clusters[own])
