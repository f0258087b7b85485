"""Acceptance criteria: syntax, tests on labelled rows, verdicts under one family-wise error; sample-size planning."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.lazy import optimize, stats
from crcen._support.text import attributes
from crcen.exceptions import InvalidParameter
from crcen.theory import intervals, residual_test
from crcen.theory.groups import compare_groups, named_groups
from crcen.theory.intervals import LEVEL, UNKNOWN, Interval
from crcen.theory.key_equation import judge_equations
from crcen.theory.limits import DRIFT_SCALE, UNMEASURED
from crcen.theory.price import Price
from crcen.theory.residual_test import TrainingError, holm, residual_effect, residual_values, variance_of
from crcen.theory.rows import Array, Bools, Clusters, Index, divided, normalised, p_text
from crcen.theory.selective import audit_probabilities, betting_bound

Differences = Callable[[float], "tuple[str, ...] | None"]

SYNTAX = (
    "recall >= 0.8, precision >= 0.5, recall[CLASS] >= 0.8, precision[CLASS] >= 0.5, cost per 1000 <= 400, "
    "key equation, unlike, groups"
)
TESTS = {
    "recall": "exact binomial test of the share of rows of the class that are found, with Clopper–Pearson bounds",
    "precision": "exact binomial test of the share of decisions for the class that are right, with Clopper–Pearson "
    "bounds",
    "cost": "mean cost of a row by MOVER over the exact limits of all cells of decisions and classes",
    "key equation": "residual test of the key equation at the price, with the uncertainty of the fitted model",
    "unlike": "comparison of every column, and of the share of alarms, with the training rows",
    "groups": "exact tests that groups have equal recall and precision, and a test of equal calibration",
}
_SHARE = r"(recall|precision)\s*(?:\[\s*(.+?)\s*\])?\s*(?:>=|≥)"
_COST = r"cost per\s+([\d,]+|row)(?:\s+rows?)?\s*(?:<=|≤)"
_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%?)"
_COMPARISON = re.compile(rf"(?:{_SHARE}|{_COST})\s*{_NUMBER}")
_POWER, _MOST_POSITIVES, _SIMULATIONS = 0.8, 1_000_000, 100  # of planned numbers of labels


@dataclass(frozen=True)
class Criterion:
    """One acceptance criterion."""

    metric: str  # one of `TESTS`
    threshold: float = math.nan  # what must be reached; of a cost per row. NaN for criteria without one
    column: int = -1  # class of a recall or precision, by number; −1 otherwise
    text: str = ""  # in the form in which it is written
    per: int = 1  # rows to which a cost refers

    @property
    def has_threshold(self) -> bool:
        """Whether rows must show that a threshold is kept; otherwise they must not contradict a claim."""
        return self.metric in ("recall", "precision", "cost")

    @property
    def has_groups(self) -> bool:
        """Whether it is also tested in each group."""
        return self.metric not in ("unlike", "groups")


def parse_criteria(texts: Sequence[str], classes: Sequence[object], positive: int | None) -> tuple[Criterion, ...]:
    """Criteria from their text, see `SYNTAX`; an error for one that has no test, is out of range or occurs twice."""
    found: list[Criterion] = []
    if not texts:
        raise InvalidParameter(f"require must state at least one criterion, such as {SYNTAX}.", parameter="require")
    for text in texts:
        one = _parsed(" ".join(str(text).split()), classes, positive)
        if any((one.metric, one.column) == (other.metric, other.column) for other in found):
            said = f"require must state each criterion once: got {one.text!r} again."
            raise InvalidParameter(said, parameter="require")
        found.append(one)
    return tuple(found)


def _parsed(text: str, classes: Sequence[object], positive: int | None) -> Criterion:
    plain_text = text.casefold()
    if plain_text in ("key equation", "unlike", "groups"):
        return Criterion(plain_text, text=plain_text)
    found = _COMPARISON.fullmatch(text)
    if found is None:
        said = f"require must be a criterion that has a test ({SYNTAX}): got {text!r}."
        raise InvalidParameter(said, parameter="require")
    metric, label, size, number, percent = found.groups()
    value = float(number) / (100.0 if percent else 1.0)
    if metric:
        if not 0.0 < value < 1.0:
            hint = f"; did you mean {value / 100:g}?" if 2.0 <= value < 100.0 else "."
            raise InvalidParameter(f"the threshold of {text!r} must lie between 0 and 1: got {value:g}{hint}")
        column = _column(metric, label, classes, positive)
        named = "" if positive is not None and column == positive else f"[{classes[column]}]"
        return Criterion(metric, value, column, f"{metric}{named} >= {value:g}")
    per = 1 if size == "row" else int(size.replace(",", "") or 0)
    if per < 1 or not 0.0 < value < math.inf:
        raise InvalidParameter(f"the threshold and the rows of {text!r} must be above 0 and finite.")
    unit = "row" if size == "row" else str(per)
    return Criterion("cost", value / per, -1, f"cost per {unit} <= {value:g}", per)


def _column(metric: str, label: str | None, classes: Sequence[object], positive: int | None) -> int:
    if label is None and positive is not None:
        return positive
    names, own = [str(one) for one in classes], str(label)
    matches = [k for k, name in enumerate(names) if name == own]
    matches = matches or [k for k, name in enumerate(names) if name.casefold() == own.casefold()]
    if label is None or len(matches) != 1:
        got = "" if label is None else f": got {label!r}"
        such = f"{', '.join(names[:8])}, such as {metric}[{names[0]}] >= 0.8"
        raise InvalidParameter(f"{metric} must name a class of the model, {such}{got}.")
    return matches[0]


@dataclass(frozen=True, eq=False)
class ScoredClasses:
    """Rows with probabilities, decisions and, once known, labels."""

    labels: Sequence[object]  # names of the K classes
    p: Array  # natural probabilities (n, K)
    actions: Index  # decisions; below K they are classes
    costs: Array  # of each action for each class, (K, A)
    price: Price  # of the decisions
    trained: Price  # of the key equation
    y: Index = field(default_factory=lambda: np.empty(0, np.int64))  # class numbers; empty before labels are known
    groups: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)  # the group of each row, by column
    clusters: Clusters | None = None  # rows that may depend on each other
    error: TrainingError | None = None  # uncertainty of the model as measured
    noise: float | None = None  # factor on variances if it was not measured

    def parts(self) -> list[tuple[str, str, Bools]]:
        """Column, name and rows of every group."""
        found = []
        for column, values in self.groups.items():
            names, which = named_groups(column, values, len(self.p))
            found += [(column, name, which == i) for i, name in enumerate(names)]
        return found

    def of(self, part: Bools) -> "ScoredClasses":
        """Some of the rows, without labels and groups."""
        own: dict[str, Any] = {"y": np.empty(0, np.int64), "p": self.p[part], "actions": self.actions[part]}
        return replace(self, **own, groups={}, clusters=None if self.clusters is None else self.clusters[part])

    @property
    def reference(self) -> int:
        """The positive class, or the rarest one in training."""
        return int(np.argmin(self.trained.counts)) if self.trained.positive is None else self.trained.positive

    @property
    def uncertainty(self) -> float:
        """The model uncertainty in log-odds of the reference class."""
        return model_uncertainty(self.error, self.trained, self.p, self.reference)


@dataclass(frozen=True)
class Outcome:
    """One test of a criterion, on all rows or on those of a group."""

    criterion: Criterion
    size: int  # rows that count
    estimate: float = math.nan  # in the unit of the criterion
    bounds: tuple[float, float] = (math.nan, math.nan)  # one-sided confidence bounds, of this test alone
    interval: Interval = UNKNOWN  # two-sided, at the same confidence
    hits: int = 0  # rows that are right (of a share)
    p_pass: float = math.nan  # of "the threshold is not kept"; NaN without such a test
    p_fail: float = math.nan  # of "it is kept", likewise
    detail: str = ""
    column: str = ""  # of a group; empty for all rows
    group: str = ""
    verdict: str = ""  # "pass", "fail" or "undecided", with all tests of the certificate considered
    statement: str = ""  # what was shown, in one sentence
    groups: tuple["Outcome", ...] = ()

    @property
    def is_upper(self) -> bool:
        """Whether the upper bound decides."""
        return (self.criterion.metric == "cost") == (self.verdict != "fail")

    @property
    def bound(self) -> float:
        """The bound that decides."""
        return self.bounds[self.is_upper]

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        one = self.criterion
        numbers = {
            **attributes(self, "verdict estimate bound"),
            "interval": attributes(self.interval, "low high"),
            "rows": self.size,
            "right": self.hits if one.column >= 0 else None,
            **attributes(self, "p_value_pass=p_pass p_value_fail=p_fail statement"),
        }
        if self.column:
            return {"column": self.column, "group": self.group, **numbers}
        threshold = one.threshold * one.per if one.has_threshold else None
        name = {"criterion": one.text, "metric": one.metric, "threshold": threshold, "test": TESTS[one.metric]}
        return {**name, **numbers, **attributes(self, "groups")}


def number_of_tests(criteria: Sequence[Criterion], n_groups: int) -> int:
    """Tests of criteria, on all rows and on groups: Holm tests each at least at the family's level over this number."""
    return sum(1 + n_groups * one.has_groups for one in criteria)


def judge_criteria(
    criteria: Sequence[Criterion], rows: ScoredClasses, confidence: float, differences: Differences
) -> tuple[Outcome, ...]:
    """Test all criteria on labelled rows, in their order, with Holm's method over all of "kept" and of "not kept".

    One minus the confidence is the probability of any wrong pass of a threshold, and of any wrong fail. ``differences``
    gives sentences about columns that differ from training, for a false-alarm rate; None if that is not known.
    """
    alpha = 1.0 - confidence
    tests: list[Outcome] = []
    parts = [("", "", np.ones(len(rows.y), np.bool_)), *rows.parts()]
    least = alpha / number_of_tests(criteria, len(parts) - 1)
    for one in criteria:
        for column, name, part in parts if one.has_groups else parts[:1]:
            tests.append(replace(_measured(one, rows, part, confidence, least), column=column, group=name))
    has_unlike = any(one.metric == "unlike" for one in criteria)
    found = differences(least) if has_unlike else None
    level = alpha - least if has_unlike else alpha
    adjusted = holm([test.p_pass for test in tests]), holm([test.p_fail for test in tests])
    n_pass, n_fail = (int((~np.isnan(one)).sum()) for one in adjusted)  # what shows no threshold has no p-value to pass
    outcomes = []
    for test, p_pass, p_fail in zip(tests, *adjusted, strict=True):
        if test.criterion.metric == "unlike":
            verdict, detail = "undecided" if found is None else "fail" if found else "pass", "; ".join(found or ())
        else:
            is_shown = p_pass <= alpha if test.criterion.has_threshold else not math.isnan(p_fail)
            verdict, detail = "fail" if p_fail <= level else "pass" if is_shown else "undecided", test.detail
        judged = replace(test, verdict=verdict, detail=detail, p_pass=float(p_pass), p_fail=float(p_fail))
        outcomes.append(replace(judged, statement=_statement(judged, confidence, n_pass, n_fail)))
    return _nested(outcomes)


def _nested(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Groups inside their criterion; it passes if all of them do, and fails if one of them does."""
    found: list[Outcome] = []
    for one in (one for one in outcomes if not one.column):
        parts = tuple(part for part in outcomes if part.column and part.criterion is one.criterion)
        verdicts = {one.verdict, *(part.verdict for part in parts)}
        verdict = next(word for word in ("fail", "undecided", "pass") if word in verdicts)
        statement = one.statement
        if verdict != one.verdict:
            others = [f"{part.column} = {part.group}" for part in parts if part.verdict == verdict]
            more = " and others" if len(others) > 5 else ""
            start = "It fails in" if verdict == "fail" else "It is undecided in"
            statement = f"{start} {', '.join(others[:5])}{more}. All rows: {statement}"
        found.append(replace(one, verdict=verdict, bounds=(one.bound,) * 2, statement=statement, groups=parts))
    return tuple(found)


def _measured(one: Criterion, rows: ScoredClasses, part: Bools, confidence: float, least: float) -> Outcome:
    """A test; ``least`` is the level at which Holm tests it at least."""
    y, actions, one_sided = rows.y[part], rows.actions[part], 2.0 * confidence - 1.0
    related = None if rows.clusters is None else rows.clusters[part]
    if one.metric in ("recall", "precision"):
        among = (y if one.metric == "recall" else actions) == one.column
        right = (y == actions)[among]
        hits, size = int(right.sum()), len(right)
        # Rows of clusters count as fewer ones (Korn and Graubard 1998).
        own = None if related is None else related[among]
        effect = intervals.design_effect(right.astype(np.float64), np.ones(size), own)
        k, n = hits / effect, size / effect
        low, high = (float(end) for end in intervals.clopper_pearson(k, n, one_sided))
        estimate = hits / size if size else math.nan
        interval = Interval(estimate, *(float(end) for end in intervals.clopper_pearson(k, n, confidence)))
        p_pass = intervals.share_p_value(k, n, one.threshold)
        p_fail = intervals.share_p_value(n - k, n, 1.0 - one.threshold)
        return Outcome(one, size, estimate, (low, high), interval, hits, p_pass, p_fail)
    if one.metric == "cost":
        if not len(y):
            return Outcome(one, 0, p_pass=1.0, p_fail=1.0)
        paid = (y, actions, rows.costs, None, related)
        bound = intervals.cost_interval(*paid, level=one_sided).scaled(one.per)
        interval = intervals.cost_interval(*paid, level=confidence).scaled(one.per)
        p_pass = intervals.cost_p_value(y, actions, rows.costs, one.threshold, related)
        p_fail = intervals.cost_p_value(y, actions, -rows.costs, -one.threshold, related)
        return Outcome(one, len(y), interval.value, (bound.low, bound.high), interval, 0, p_pass, p_fail)
    if one.metric == "key equation":
        if len(np.unique(y)) < 2:
            return Outcome(one, len(y), detail="rows of one class only cannot be tested")
        p = rows.p[part]
        how: dict[str, Any] = {"noise": rows.noise, "error": rows.error, "clusters": related}
        found = judge_equations(y, p, rows.trained, rows.labels, **how)
        if found.z_reason:
            return Outcome(one, len(y), detail=found.z_reason)
        effect = residual_effect(y, p, np.ones(len(y)), related)
        drifts, label = (p, rows.trained.weights, rows.reference, len(y)), rows.labels[rows.reference]
        drift = smallest_drift(*drifts, level=least, uncertainty=rows.uncertainty, effect=effect)
        which = f"a drift of {drift:.2g}" if math.isfinite(drift) else "no drift"
        detail = f"{which} in the log-odds of {label} would be found with a probability of 80 % in both directions"
        return Outcome(one, len(y), found.residual, p_fail=found.p_value, detail=detail)
    if one.metric == "groups":
        scored = (rows.groups, rows.y, rows.p, rows.price, rows.trained)
        how = {"labels": rows.labels, "noise": rows.noise or 1.0, "clusters": related}
        columns = compare_groups(*scored, **how, error_rate=1.0 - confidence)
        values = [test.p_value for column in columns for test in column.tests if not math.isnan(test.p_value)]
        if not values:
            return Outcome(one, len(y), detail="no group has enough rows")
        detail = "; ".join(column.sentence for column in columns)
        return Outcome(one, len(y), p_fail=min(1.0, len(values) * min(values)), detail=detail)
    return Outcome(one, len(y))


def _p_value(p_value: float, n_tests: int) -> str:
    of = f"of {n_tests} tests, adjusted by Holm" if n_tests > 1 else "the only test"
    return f"p-value {p_text(p_value)} ({of})"


def _statement(test: Outcome, confidence: float, n_pass: int, n_fail: int) -> str:
    one = test.criterion
    if not one.has_threshold:
        return _claim(test, n_fail)
    among = {"recall": "rows of the class", "precision": "decisions for the class"}.get(one.metric, "rows")
    if not test.size:
        return f"Undecided: there are no {among}."
    share = f"{test.hits:,} of {test.size:,} {among} are right" if one.column >= 0 else f"{test.size:,} rows"
    p_value, n_tests = (test.p_fail, n_fail) if test.verdict == "fail" else (test.p_pass, n_pass)
    side = f"one-sided {100 * confidence:g} % {'upper' if test.is_upper else 'lower'} bound {test.bound:.4g}"
    side += f" before adjustment for {n_tests} tests" if n_tests > 1 else ""
    start = {
        "pass": f"These rows show {one.text}",
        "fail": f"These rows show that {one.text} does not hold",
        "undecided": f"These rows neither show nor exclude {one.text}",
    }
    return f"{start[test.verdict]}: estimate {test.estimate:.4g}, {side}, {share}; {_p_value(p_value, n_tests)}."


def _claim(test: Outcome, n_tests: int) -> str:
    if test.criterion.metric == "unlike":
        return {
            "undecided": "Undecided: the model keeps no profile of its training rows.",
            "fail": f"The rows differ from the training rows beyond chance: {test.detail}.",
            "pass": "No difference between these rows and the training rows beyond chance was found.",
        }[test.verdict]
    if test.verdict == "undecided":
        return f"Undecided: {test.detail}."
    of = _p_value(test.p_fail, n_tests)
    what = "The key equation is" if test.criterion.metric == "key equation" else "Equal groups are"
    if test.verdict == "fail":
        more = f": {test.detail}" if test.criterion.metric == "groups" else ""
        return f"{what} contradicted by these rows{more}; {of}."
    return f"{what} not contradicted by these rows: {test.detail}; {of}."


def labels_needed(
    one: Criterion, rows: ScoredClasses, criteria: Sequence[Criterion], confidence: float
) -> tuple[float, str]:
    """Labelled rows with which one of the criteria passes, with a power of 0.8 if probabilities are right, and why.

    Infinite if no number suffices. The level is the one at which Holm tests every criterion at least.
    """
    groups = rows.parts()
    beside = [other for other in criteria if other.has_threshold or not one.has_threshold]
    confidence = 1.0 - (1.0 - confidence) / number_of_tests(beside, len(groups))
    parts = [("", rows, 1.0)]
    if one.has_threshold:  # a group needs as many rows of its own
        parts += [(f", in {column} = {name}", rows.of(part), float(part.mean())) for column, name, part in groups]
    found = []
    for where, own, share in parts:
        needed, why = _independent_labels(one, own, confidence)
        if own.clusters is not None and math.isfinite(needed):
            needed *= intervals.design_effect(np.ones(len(own.p)), np.ones(len(own.p)), own.clusters)
            why += "; rows of a cluster count as fewer, as if they were alike, without labels"
        found.append((needed / share, why + where))
    return max(found, key=lambda needed: needed[0])


def labels_for_share(
    metric: str, chance: Array, is_own: Bools, bound: float, *, confidence: float, power: float = 0.8
) -> tuple[float, str]:
    """Labelled rows that show a recall or precision of a class above a bound, and why; infinite if none do."""
    total = float(chance.sum()) if metric == "recall" else float(is_own.sum())
    expected = float(chance[is_own].sum()) / total if total > 0.0 else math.nan
    if math.isnan(expected):
        return math.inf, f"no {metric} is expected, because the model decides for the class in no such row"
    if not expected > bound:
        return math.inf, f"the model expects a {metric} of {expected:.3g} on such rows, not above the threshold"
    share = min(total / len(chance), 1.0 - 1e-9)
    needed = labels_for_recall_bound(bound, min(expected, 1.0), share, confidence=confidence, power=power)
    if math.isinf(needed):
        return needed, f"the {metric} that the model expects, {expected:.6g}, is too near to the threshold"
    return needed, f"if the {metric} is {expected:.3g}, as the model expects"


def _independent_labels(one: Criterion, rows: ScoredClasses, confidence: float) -> tuple[float, str]:
    p, actions = rows.p, rows.actions
    if one.metric in ("recall", "precision"):
        chance, own = p[:, one.column], actions == one.column
        return labels_for_share(one.metric, chance, own, one.threshold, confidence=confidence)
    if one.metric == "cost":
        # The upper limit lies below the threshold with this power if the limit at the sum of both quantiles does.
        level = 1.0 - 2.0 * float(stats.norm.sf(stats.norm.ppf(confidence) + stats.norm.ppf(_POWER)))
        expected = partial(intervals.expected_cost_interval, p, actions, rows.costs, level=level)
        needed = smallest_size(lambda log_rows: expected(math.exp(log_rows)).high - one.threshold, 1e9)
        value = f"{expected(len(p)).value * one.per:.4g} per {'row' if one.per == 1 else f'{one.per:,} rows'}"
        if math.isinf(needed):
            return needed, f"the model expects a cost of {value} on such rows, not below the threshold"
        return needed, f"if the cost is {value}, as the model expects"
    if one.metric == "key equation":
        how, what = {"level": 1.0 - confidence, "uncertainty": rows.uncertainty}, f"a drift of {DRIFT_SCALE:g}"
        needed = labels_for_drift(p, rows.trained.weights, rows.reference, DRIFT_SCALE, **how)
        if math.isinf(needed):
            return needed, f"no number of labels finds {what}: the model uncertainty is {rows.uncertainty:.2g}"
        return needed, f"to find {what} in log-odds, up or down"
    return math.nan, "the number of labels is not planned"


def _information(p: Array, weights: Array, k: int) -> float:
    """Information about a drift of class k per row: j = (Σhv)² / (m Σh²v)."""
    values = residual_values(p, weights, k)
    variance = variance_of(values, p)
    return float(p[:, k] @ values[:, k]) ** 2 / (len(p) * variance) if variance > 0.0 else 0.0


def model_uncertainty(error: TrainingError | None, trained: Price, p: Array, k: int) -> float:
    """The model uncertainty in log-odds of a class: measured by refits, or as models of its kind have it."""
    if error is not None:
        return float(error.size if trained.positive is not None else error.sizes[k])
    # 1 + 2·n/n_train as a variance of the residual is an error of 2/(j·n_train) in squared log-odds.
    information = _information(p, trained.weights, k)
    return math.sqrt(UNMEASURED / (information * float(trained.counts.sum()))) if information > 0.0 else math.inf


def _drift_chance(
    p: Array, weights: Array, k: int, drift: float, level: float, uncertainty: float, effect: float = 1.0
) -> Callable[[float], float]:
    """By number of rows: the chance to find a drift of class k, of the sign that the residual test finds less often."""
    values, m, is_own = residual_values(p, weights, k), len(p), np.arange(p.shape[1]) == k
    variance, error = variance_of(values, p) / m, uncertainty * float(p[:, k] @ values[:, k]) / m
    truths = [normalised(p * np.exp(-min(drift, 100.0) * lowered)) for lowered in (is_own, ~is_own)]
    means = np.array([np.einsum("nk,nk->", truth, values) for truth in truths]) / m
    moved = np.array([variance_of(values, truth) for truth in truths]) / m - means**2
    moved = np.maximum(moved, 0.0)  # rounded
    shares = np.array([truth[:, k].mean() for truth in truths])

    def chance(rows: float) -> float:
        n = rows / effect
        spread = np.sqrt(n * moved + (n * error) ** 2)
        distance = n * np.abs(means) - float(stats.norm.isf(level / 2.0)) * math.sqrt(n * variance + (n * error) ** 2)
        missed = stats.norm.sf(divided(distance, spread, -math.inf))
        # Rows with few of a class are not tested.
        few = stats.poisson.cdf((residual_test.FEWEST_TO_TEST - 1) / effect, n * np.minimum(shares, 1.0 - shares))
        return 1.0 - float((missed + few).max())

    return chance


def labels_for_drift(
    p: Array,
    weights: Array,
    k: int,
    drift: float,
    *,
    power: float = 0.8,
    level: float = 0.05,
    uncertainty: float = 0.0,
) -> float:
    """Labelled rows with which the residual test finds a drift of either sign; infinite beyond 10¹⁵ rows."""
    chance = _drift_chance(p, weights, k, drift, level, uncertainty)
    return smallest_size(lambda log_rows: power - chance(math.exp(log_rows)), 1e15)


def smallest_drift(
    p: Array, weights: Array, k: int, n: float, *, level: float = 0.05, uncertainty: float = 0.0, effect: float = 1.0
) -> float:
    """The drift of either sign that n labelled rows find with a power of 0.8; infinite if there is none."""
    information, reached = _information(p, weights, k), -math.inf
    spread = math.sqrt(effect / (information * n) + uncertainty**2) if information > 0.0 else math.inf
    drift = float(stats.norm.isf(level / 2.0) + stats.norm.ppf(_POWER)) * spread  # enough if it is small
    while (found := _drift_chance(p, weights, k, drift, level, uncertainty, effect)(n)) < _POWER:
        if found <= reached:  # rows of a class become too few before it is large enough
            return math.inf
        drift, reached = 1.02 * drift, found
    return drift


def labels_for_recall_bound(
    bound: float, recall: float, prevalence: float, *, confidence: float = LEVEL, power: float = 0.8
) -> float:
    """Labelled rows for an exact lower bound on recall, the number of positives being random; maybe infinite."""
    quantiles, shares = stats.norm.ppf([confidence, power]), np.array([bound, recall])
    # An upper bound also if a quantile is negative.
    about = (float(np.maximum(np.abs(quantiles), 1.0) @ np.sqrt(shares * (1.0 - shares))) / (recall - bound)) ** 2
    positives = max(about, math.log(1.0 - confidence) / math.log(bound))  # with fewer ones no bound is reached
    if positives > _MOST_POSITIVES:
        return math.inf
    counts = np.arange(round(4.0 * positives) + 100)
    needed = stats.binom.isf(1.0 - confidence, counts, bound) + 1.0  # least k: P(Bin(n, bound) ≥ k) ≤ 1 − confidence
    passes = np.where(needed <= counts, stats.binom.sf(needed - 1.0, counts, recall), 0.0)

    def excess(log_rows: float) -> float:
        return power - float(stats.binom.pmf(counts, round(math.exp(log_rows)), prevalence) @ passes)

    return smallest_size(excess, (2.0 * positives + 20.0) / prevalence)


def labels_for_cost_width(p: Array, actions: Index, costs: Array, width: float, *, level: float = LEVEL) -> float:
    """Labelled rows for a cost interval of this width, of decisions like these; infinite beyond 10¹⁵ rows."""
    expected = partial(intervals.expected_cost_interval, p, actions, costs, level=level)
    # The estimate lies between both limits.
    return smallest_size(lambda log_rows: float(np.ptp(expected(math.exp(log_rows)))) - width, 1e15)


def smallest_size(excess: Callable[[float], float], most: float, least: float = 1.0) -> float:
    """The smallest number of rows n with excess(log n) ≤ 0, for a falling function; infinite beyond ``most``."""
    low, high = math.log(least), math.log(most)
    if excess(low) <= 0.0:
        return math.ceil(least)
    return math.ceil(math.exp(optimize.brentq(excess, low, high, xtol=1e-6))) if excess(high) <= 0.0 else math.inf


def audits_for_recall_bound(
    chance: Array,  # of the class in rows that are decided for it or quiet, 0 in others
    quiet: Bools,
    scores: Array,
    bound: float,
    *,
    n_other: float = 0.0,  # rows of the class expected among the others
    confidence: float = LEVEL,
    power: float = 0.8,
    seed: int = 0,
) -> float:
    """Audits with which the lower bound on recall reaches ``bound`` with this power, by simulation; maybe infinite."""
    rng, n_quiet, own = np.random.default_rng(seed), int(quiet.sum()), chance[quiet]
    caught = rng.poisson(float(chance[~quiet].sum()), _SIMULATIONS)
    missed, total = rng.poisson(float(own.sum()), _SIMULATIONS), float(own.sum())
    allowed = caught * (1.0 / bound - 1.0) - rng.poisson(n_other, _SIMULATIONS)
    places = [rng.choice(n_quiet, size, p=own / total) if size else np.zeros(0, np.int64) for size in missed]
    luck = [rng.random(len(place)) for place in places]
    is_uniform = bool(np.ptp(scores[quiet]) == 0.0) if n_quiet else True

    def reached(n_audits: float) -> float:
        e = audit_probabilities(scores, quiet, n_audits)[quiet]
        least, hits = float(e.min()), 0
        for place, u, most in zip(places, luck, allowed, strict=True):
            found = e[place][u < e[place]]
            if is_uniform:
                upper = n_quiet * float(intervals.clopper_pearson(len(found), n_audits, 2.0 * confidence - 1.0)[1])
            else:
                upper = betting_bound(least, found, float(n_quiet), 1.0 - confidence)
            hits += upper <= most
        return hits / _SIMULATIONS - power

    if not n_quiet or float((missed <= allowed).mean()) < power:
        return math.inf
    low, high = 1.0, float(n_quiet)
    while high > low * 1.01 + 1.0:  # nearly monotone in the number of audits
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(middle) >= 0.0 else (middle, high)
    return math.ceil(high)
