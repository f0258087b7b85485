"""evaluate_table: a model on labelled rows it has not seen, as figures and checks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crcen import ExpenseCurve, ReadOptions
from crcen._support.progress import counted, logged
from crcen._support.text import Values, attributes, count_text, json_value, plural
from crcen.commands import inputs, rules
from crcen.commands.inputs import GROUP_CHECK, Data, FittedModel, Label, require
from crcen.commands.results import note_lines
from crcen.commands.rules import CostsLike, Prevalence, ReviewPrices, Weighting
from crcen.commands.scoring import Judging, LabelledRows, unlike_lines
from crcen.decisions.expense_curve import ChosenWeighting, CurveRows
from crcen.report import quality as measures
from crcen.report.checks import CHECKS, COLUMN_CHECKS, Finding, examine
from crcen.report.evidence import compared_groups, evidence_of, gather
from crcen.tables.fingerprint import Recognition
from crcen.tables.profile import Difference, trained_with_weights
from crcen.theory.checks import check_whole_number
from crcen.theory.groups import GroupComparison
from crcen.theory.intervals import LEVEL, Interval, shifted_probabilities
from crcen.theory.key_equation import EquationTest
from crcen.theory.limits import FEWEST_OF_A_CLASS, judge_class_shares
from crcen.theory.metrics import MOST_RESAMPLES, ConfusionCounts, Quality, log_losses, measure_quality
from crcen.theory.price import Price
from crcen.theory.rows import ShownInOneLine, share_text
from crcen.theory.thresholds import ReviewedRows


@dataclass(frozen=True, eq=False, repr=False)
class TableEvaluation(ShownInOneLine):
    """A model on labelled rows; prints itself. ``to_dict`` has the same values for JSON."""

    data: str
    target: str
    rows_by_class: tuple[int, ...]  # with a label
    labels: tuple[Label, ...]
    price: Price
    quality: Quality  # decisions at the price, their cost, recall and precision of each class
    metrics: dict[str, Interval]
    equation: EquationTest  # key equations at the weights of training
    # Cost of catches between half the price, the price and twice the price; for more classes the steps of each weight.
    expense: ExpenseCurve
    noise: float = 1.0  # how much more new rows vary than under the truth, since the model was fitted
    effect: float = 1.0  # and since rows of a cluster depend on each other
    notes: tuple[str, ...] = ()
    unlike: tuple[Difference, ...] = ()  # differences from training rows beyond chance
    recognition: Recognition | None = None  # whether they are training rows; None if the model cannot know
    findings: tuple[Finding, ...] = ()
    failures: tuple[str, ...] = ()  # conditions that are not met, a sentence each
    chosen: ChosenWeighting | None = None  # the price that meets a goal here
    review: ReviewedRows | None = None
    row_costs: rules.RowCosts | None = None
    groups: tuple[GroupComparison, ...] = ()
    shares: rules.ClassShares | None = None  # that the probabilities were moved to
    is_weighted: bool = False  # counts are sums of weights
    audited: rules.AuditedRows | None = None  # bounds, if labels were drawn with known probabilities

    @property
    def counts(self) -> ConfusionCounts:
        """Found, missed, false alarms and the rest, of the positive class or of each class."""
        return ConfusionCounts.of_table(self.quality.counts.table, self.price.positive)

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

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        table, k = self.quality.counts.table, len(self.labels)
        if self.price.positive is None:
            right, actions = float(np.trace(table[:, :k])), float(table[:, k:].sum())
            decided = {"right": right, "wrong": float(table.sum()) - right - actions, "actions": actions}
            counts = {name: round(number) for name, number in decided.items()}
        else:
            counts = measures.count_values(self.counts)
        return {
            **attributes(self, "data target rows=n_rows labels"),
            "price": rules.price_values(self.price, self.labels),
            "counts": counts,
            **json_value(self.quality.to_dict()),
            "cost_per_1000": self.metrics["cost_per_1000"].to_dict(),
            **rules.bound_values(self.audited),
            **attributes(self, "audited metrics key_equation=equation"),
            "expense": rules.step_values(self.expense, self.noise, self.effect),
            **attributes(self, "prevalence=shares notes unlike training_rows=recognition findings groups failures"),
            **attributes(self, "chosen review row_costs"),
        }

    def __str__(self) -> str:
        metrics = (
            f"  {measures.METRICS[name].title:<24} {measures.measured_text(one)}" for name, one in self.metrics.items()
        )
        head, positive = f"{self.data}: {self.n_rows:,} rows, ", None
        if self.price.positive is None:
            lines, steps = [f"{head}{len(self.labels)} classes of {self.target}", "", *self.quality.lines()], []
        else:
            positive, by_weight = self.labels[self.price.positive], ", by weight" if self.is_weighted else ""
            lines = [
                f"{head}{self.n_pos:,} with {self.target} = {positive}",
                f"Price: one miss = {plural(self.price.cost_ratio, 'false alarm')}; an alarm above probability "
                f"{share_text(self.price.threshold)}",
                f"At that price{by_weight}: {measures.count_sentence(self.counts)}",
                *(str(one) for one in (self.chosen, self.review, self.row_costs) if one is not None),
            ]
            found = rules.step_lines(self.expense, self.noise, self.effect)
            steps = ["Cost per extra catch: observed and expected", *found]
        warnings = [one for one in self.findings if one.status == "warning"]
        groups: list[str] = []
        for one in self.groups:
            said = f"{one.sentence[0].upper()}{one.sentence[1:]}"
            said = f"Warning {GROUP_CHECK}: {one.sentence}" if one.differing else said
            groups += ["", f"Groups of {one.column}", *one.lines(), f"{said}."]
        trained, (equation, *others) = self.equation.weighting, self.equation.lines()
        if not np.allclose(trained.weights, self.price.weights):
            equation = re.sub("equations?", r"\g<0> at the price of training", equation, count=1)
        lines += [
            *["", "Metrics (95 % interval)", *metrics, "", equation, *others, "", *steps],
            *([] if self.audited is None else [str(self.audited)]),
            *([] if self.shares is None else [self.shares.line(positive)]),
            *(f"{one.code}  {one.sentence}" for one in warnings if one.code != GROUP_CHECK),
            *groups,
            *note_lines(self.notes),
            *unlike_lines(self.unlike),
            *(f"Failed: {one}." for one in self.failures),
        ]
        return "\n".join(lines).rstrip().replace("\n\n\n", "\n\n")


@logged
def evaluate_table(
    model: FittedModel | str | Path,
    data: Data,
    *,
    target: str | None = None,
    weighting: Weighting = None,
    costs: CostsLike = None,
    weight: str | None = None,
    review: ReviewPrices = None,
    cost_column: str | None = None,
    alarm_cost: float | None = None,
    prevalence: Prevalence = None,
    clusters: str | None = None,
    stratified: bool = False,
    audit_probability: str | None = None,
    confidence: float = LEVEL,
    groups: str | Sequence[str] = (),
    fail_on: str | Sequence[str] = (),
    min_recall: float | None = None,
    min_precision: float | None = None,
    n_resamples: int = 500,
    random_state: int = 0,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TableEvaluation:
    """Evaluate a model on labelled rows that it was not trained on, as `crcen evaluate` does.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    data : data frame, str or Path
        Rows at the natural class ratio.
    target : str, optional
        Column with the labels; by default that of training.
    weighting : Budget, CostRatio, Lam, Alpha, "balanced", float, dict, or a goal, optional
        A price of decisions other than that of training; a goal such as `Capacity` is met here, in ``.chosen``.
    costs : CostMatrix, data frame, str or Path, optional
        Costs of decisions other than those of training, as `crcen.fit_table` takes them.
    weight : str, optional
        Column of sample weights; counts are then sums of weights, 1 on average.
    review : Review or (low, high), optional
        Two prices between which rows go to review: how many, and what that saves, in ``.review``.
    cost_column, alarm_cost : str and float, optional
        Column with the cost of a miss of that row, in the unit of the cost of a false alarm (1); see ``.row_costs``.
    prevalence : float, dict of label to share, or "auto", optional
        Class shares of these rows if they differ from training, as in `crcen.predict_table`.
    clusters : str, optional
        Column of rows that belong together, such as a patient: tests and intervals account for dependence within it.
    stratified : bool, default=False
        Whether the class counts of these rows were fixed by stratified sampling; `crcen.split_table` records it.
    audit_probability, confidence : str, optional, and float, default=0.95
        Column with the probability that a row was selected for a label, whose inverse weights the row; confidence of
        the lower bound on recall, in ``.audited``.
    groups : str or sequence of str, optional
        Columns whose values are groups to compare, in ``.groups``; they need not be inputs of the model.
    fail_on : str or sequence of str, optional
        Codes of checks that must not warn, such as ``"CRC003,CRC007"``, or ``"any"``; see ``.failures``.
    min_recall, min_precision : float, optional
        Minimum values at the price, for every class if there are several; see ``.failures``.
    n_resamples, random_state : int
        Bootstrap resamples, at least 40 (0 omits intervals without a closed form, such as that of F1); their seed.
    read, verbose : ReadOptions and int, optional
        How the table is read, by default detected; 1 shows progress on a terminal.
    """
    codes, asked = _codes_of(fail_on, groups), {"recall": min_recall, "precision": min_precision}
    n_resamples = check_whole_number(n_resamples, "n_resamples", 0, MOST_RESAMPLES)
    inputs.check("n_resamples", n_resamples, not 0 < n_resamples < 40, "be 0 or at least 40, for 95 % intervals")
    least = {name: share for name, share in asked.items() if share is not None}
    for name, share in least.items():
        require(0.0 < share <= 1.0, f"min_{name} must be a share above 0 and at most 1: got {share:g}.", f"min_{name}")
    roles = {"weight": weight, "clusters": clusters, "cost_column": cost_column, "audit_probability": audit_probability}
    named: Values = {"target": target, "needs_target": True, "roles": roles, "groups": groups}
    named |= {"review": review, "cost_column": cost_column, "alarm_cost": alarm_cost}
    judging = Judging.of(model, data, read, weighting, costs, **named)
    model, source, rule, target = judging.model, judging.source, judging.rule, str(judging.target)
    of_columns = COLUMN_CHECKS & {*codes}  # all columns are kept only if these checks are asked for
    rows = judging.labelled(verbose, prevalence, stratified=stratified, recognises=True, keeps_all=bool(of_columns))
    scored, y, p, weights, together = rows.scored, rows.y, rows.p, rows.weights, rows.options["clusters"]
    known, column, trained = scored.is_labelled, rule.price.positive, rows.model.weighting_
    w = np.ones(len(y)) if weights is None else weights
    recognition = scored.comparison.recognition(y, known)
    price, chosen = rule.price, None
    if rule.goal is not None and column is not None:
        chosen = rules.chosen_price(rule.goal, y == column, p[:, column], weights, recognition, source.name, together)
        price = model.weighting_.replace(chosen.weighting)
    matrix = price.cost_matrix.for_classes(rule.labels)
    every = np.asarray(price.decide(rows.p_all), dtype=np.int64)
    with counted("resamples", n_resamples, visible=bool(verbose)) as done:
        metrics = measures.RowMetrics(y, p, price, weights, clusters=together).measured(n_resamples, random_state, done)
    quality = measure_quality(y, p, matrix, w, together, actions=every[known])
    audited = rows.audited(replace(rule, price=price), confidence)
    if audited is not None:  # intervals of the labelled rows do not know of positives that no audit found
        metrics["cost_per_1000"], quality = audited.cost_per_1000, quality.with_recall_lows(audited.recall_lows)
        if column is not None:
            metrics["recall"] = metrics["recall"]._replace(low=quality.recalls[column].low)
    seen: Values = {**rows.options, "known_rows": recognition, "costs": matrix if column is None else None}
    if of_columns:
        X = rows.inputs(model, target, *judging.roles.values())
        evidence = gather(rows.model, X, model.classes_[y], weights, **seen)
    else:
        evidence = evidence_of(rows.model, y, p, weights, **seen)
    evidence = replace(evidence, proba=p, price=trained)
    judged = by_row = None
    if column is not None:
        own, misses = (y == column, p[:, column]), scored.amounts("cost_column")
        if rule.review is not None:
            judged = rule.review.meet(own[1], price.cost_ratio, own[0], weights)
        by_row = None if misses is None else rules.RowCosts.of(*own, misses, rule.alarm_cost, price, weights)
    around = trained if column is None else rules.prices_around(price)
    curve_rows = CurveRows(y, p, w, column, rule.labels, together)
    drawn: Values = {"random_state": random_state, "n_resamples": rules.step_resamples(price)}
    expense = ExpenseCurve.from_rows(curve_rows, around, **drawn)
    values = {name: inputs.group_values(scored.labelled(name)) for name in judging.groups}
    compared = compared_groups(evidence, values, price)
    findings = examine(replace(evidence, groups=compared), {*CHECKS} - COLUMN_CHECKS | of_columns)
    notes = [
        *(recognition.notes if recognition else ()),
        *scored.notes,
        *rows.notes,
        *(audited.notes if audited else ()),
        *share_notes(rows, rule, findings),
    ]
    table, n_classes = quality.counts.table, len(rule.labels)
    n_elsewhere, decided = float(table[:, n_classes:].sum()), table[:, :n_classes]
    if n_elsewhere and decided.any():
        names = ", ".join(map(str, quality.costs.names[n_classes:]))
        others = f"the accuracy of the other rows is {np.trace(decided) / decided.sum():.3g}"
        not_found = f"which is not a class: accuracy and recall count them as not found; {others}"
        notes.append(f"{count_text(n_elsewhere)} rows were decided for {names}, {not_found}")
    compares_alarms = column is not None and chosen is None and rows.shares is None
    is_comparable = weight is None or trained_with_weights(model)  # the training profile has no weights
    n_alarms = int(((every if audited else every[known]) == column).sum()) if compares_alarms else None
    return TableEvaluation(
        data=source.name,
        target=target,
        rows_by_class=tuple(np.bincount(y, minlength=len(rule.labels)).tolist()),
        labels=rule.labels,
        price=price,
        quality=quality,
        metrics=metrics,
        equation=evidence.equations,
        expense=expense,
        noise=evidence.noise,
        effect=evidence.effect,
        notes=tuple(notes),
        unlike=scored.comparison.unlike(n_alarms, price) if is_comparable else (),
        recognition=recognition,
        findings=findings,
        failures=_failures(findings, codes, least, quality, column),
        chosen=chosen,
        review=judged,
        row_costs=by_row,
        groups=compared,
        shares=rows.shares,
        is_weighted=weights is not None,
        audited=audited,
    )


def share_notes(rows: LabelledRows, rule: rules.RowRule, findings: Sequence[Finding]) -> list[str]:
    """Notes on moved class shares (CRC004), with advice unless labels depend on the model, and on a useless model."""
    y, p, w = rows.y, rows.p, np.ones(len(rows.y)) if rows.weights is None else rows.weights
    labels, before, positive = rule.labels, rows.model.weighting_.counts, rule.price.positive
    counts, totals = np.bincount(y, minlength=len(labels)), np.bincount(y, w, len(labels))
    here, tests = totals / totals.sum(), judge_class_shares(y, w, before, rows.options["clusters"])
    where = getattr(rows.model, "shares_are_", "in training")
    can_move = where != "by the estimate"  # shares that were estimated from these rows cannot be tested on them
    moved = [k for k in rule.evaluated if can_move and 0.0 < here[k] < 1.0 and tests[k].has_moved]
    losses = {"": float(w @ log_losses(y, p) / w.sum())}
    if moved:
        at_shares = shifted_probabilities(p, before / before.sum(), np.maximum(here, 1e-12))
        losses[" at the class shares of these rows"] = float(w @ log_losses(y, at_shares) / w.sum())
    best, has_classes = min(losses, key=losses.__getitem__), int((counts >= FEWEST_OF_A_CLASS).sum()) > 1
    notes = measures.of_no_use(losses[best], totals.tolist(), best) if has_classes else []
    if moved:
        shown = ", ".join(f"{labels[k]} {tests[k].share:.3g} here and {tests[k].before:.3g} {where}" for k in moved)
        is_chosen = any(one.code == "CRC011" and one.status == "warning" for one in findings)
        stated = "auto" if positive is None else f"{here[positive]:.3g}"
        use = "" if notes or is_chosen else f": use --prevalence {stated}"
        share = {"as stated": "stated share"}.get(where, "share of training")
        at = f"probabilities, tests and prices are at the {share}"
        notes.insert(0, f"prevalence shift: {shown}, more than chance allows; {at}{use} (CRC004)")
    return notes


def _codes_of(fail_on: str | Sequence[str] | None, groups: str | Sequence[str]) -> tuple[str, ...]:
    """Codes of checks from a list of them or a text with commas; "any" is all, and groups are compared if named."""
    given = fail_on.split(",") if isinstance(fail_on, str) else list(fail_on or ())
    codes = [str(code).strip().upper() for code in given]
    if codes == ["ANY"]:
        return tuple(sorted(CHECKS))
    unknown = [code for code in codes if code not in CHECKS]
    allowed = f"fail_on must name checks of the report, {min(CHECKS)} to {max(CHECKS)}, or any"
    require(not unknown, f"{allowed}: got {', '.join(unknown) or 'none'}.", "fail_on")
    alone = f"fail_on={GROUP_CHECK} compares groups: name their columns with groups=."
    require(GROUP_CHECK not in codes or groups, alone, "fail_on", "groups")
    return tuple(codes)


def _failures(
    findings: Sequence[Finding], codes: tuple[str, ...], least: dict[str, float], quality: Quality, column: int | None
) -> tuple[str, ...]:
    """A sentence for each check among these codes that warns, and for each recall or precision that is too low."""
    broken = [
        f"{one.code} warns: {one.title[0].lower()}{one.title[1:]}, {one.measured}"
        for one in findings
        if one.status == "warning" and one.code in codes
    ]
    by_name = {"recall": quality.recalls, "precision": quality.precisions}
    for name, bound in least.items():
        for k, share in enumerate(by_name[name]):
            if k == column and not share.value >= bound:
                broken.append(f"{name} is {share.value:.4g}, below {bound:g}")
            elif column is None and share.value < bound:  # a class without rows or decisions breaks nothing
                broken.append(f"{name} of {quality.labels[k]} is {share.value:.4g}, below {bound:g}")
    return tuple(broken)
