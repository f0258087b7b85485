"""Selective labels: audits of quiet rows, and what labels with known probabilities say about all rows."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen._support.text import listed
from crcen._support.values import Values, label_key
from crcen.commands.inputs import Label, check, is_share
from crcen.commands.results import Result
from crcen.commands.rules import RowRule
from crcen.theory.intervals import LEVEL, Interval
from crcen.theory.rows import Array, Bools, Index, effective_rows, plain
from crcen.theory.selective import audit_draws, audit_probabilities, audit_scores, audited_cost, recall_bounds

Keys = NDArray[np.uint64]

AUDIT_COLUMNS = ("audit", "audit_probability")
AUDIT_RULES = ("neyman", "uniform")
# Fewer labels of quiet rows than expected with a smaller probability: audits have stopped.
_STOPPED_P = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class Audits(Result):
    """Quiet rows that were drawn to be checked; prints itself."""

    keys = "rule quiet_rows=n_quiet expected drawn=n_drawn to_check=n_checked smallest_probability"
    rule: str  # "neyman" or "uniform"
    n_quiet: int
    n_drawn: int  # of the quiet rows
    n_checked: int  # with the alarms
    expected: float  # of n_drawn
    smallest_probability: float
    probabilities: Array  # of being checked, 1 for alarms
    drawn: Bools  # rows to check

    def __str__(self) -> str:
        return (
            f"Audits: {self.n_drawn:,} of {self.n_quiet:,} rows without an alarm were drawn (expected "
            f"{self.expected:,.4g}), {self.n_checked:,} rows to check with the alarms"
        )


def with_default(rule: RowRule, default_action: Label | None) -> RowRule:
    """The rule with the decision that is no alarm, if it was named."""
    if default_action is None:
        return rule
    keys = [label_key(name) for name in rule.names]
    has_positive = rule.price.positive is not None
    allowed = "left out for a model with a positive class" if has_positive else f"one of {listed(rule.names)}"
    check("default_action", default_action, not has_positive and label_key(default_action) in keys, f"be {allowed}")
    return replace(rule, quiet=keys.index(label_key(default_action)))


def draw_audits(
    audit: object, audit_rule: str, rule: RowRule, p: Array, actions: Index, hashes: Keys, seed: int
) -> Audits:
    """Draw rows without an alarm, independently, with known probabilities; a seed and a row's hash fix its draw.

    ``audit`` is their expected number, or a share of the rows without an alarm such as "2%".
    """
    quiet, text = np.asarray(actions == rule.default), str(audit).strip()
    n_quiet, is_percent = int(quiet.sum()), text.endswith("%")
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    is_right = not isinstance(audit, bool) and 0.0 < value < math.inf and not (is_share and value > 100.0)
    allowed = "be a number of rows, such as 100, or a share of the rows without an alarm, such as 2%"
    check("audit", audit, is_right, allowed)
    expected = value / 100.0 * n_quiet if is_percent else min(value, float(n_quiet))
    scores = audit_scores(p, rule.price.weights) if audit_rule == "neyman" else np.ones(len(p))
    e = audit_probabilities(scores, quiet, expected) if n_quiet else np.ones(len(p))
    rank = pd.Series(hashes).groupby(hashes).cumcount().to_numpy(dtype=np.uint64)  # rows that are alike differ in it
    drawn = audit_draws(hashes + rank * np.uint64(0x9E3779B97F4A7C15), e, seed) | ~quiet
    counts = n_quiet, int((drawn & quiet).sum()), int(drawn.sum())
    return Audits(audit_rule, *counts, float(e[quiet].sum()), float(e.min()), e, drawn)


@dataclass(frozen=True, eq=False, repr=False)
class AuditedRows(Result):
    """What labels of alarms and audits say about all rows; prints itself."""

    keys = (
        "confidence quiet_rows=n_quiet audited_rows=n_audited effective_rows=effective "
        "unlabelled_alarms=n_unlabelled_alarms expected_audits"
    )
    rule: RowRule
    confidence: float
    n_quiet: int
    n_audited: int  # quiet rows with a label
    n_unlabelled_alarms: int
    effective: float  # Kish's number of labelled rows with weights 1/e
    recalls: Array  # lower bounds, (K,)
    missed: Array  # upper bounds on missed rows, (K,)
    recall_lows: Array  # lower ends of 95 % intervals of recall, (K,)
    cost_per_1000: Interval  # doubly robust
    expected_audits: float  # sum of the probabilities of quiet rows
    n_left_out: int  # unlabelled rows that no audit could have drawn

    @classmethod
    def of(cls, rule: RowRule, y: Index, p: Array, e: Array, confidence: float = LEVEL) -> "AuditedRows":
        """From all rows: class numbers (−1: no label), probabilities and audit probabilities."""
        check("confidence", confidence, is_share(confidence), "lie between 0 and 1")
        possible = (e > 0.0) & (e <= 1.0)
        y, p, e = y[possible], p[possible], e[possible]
        actions = np.asarray(rule.price.decide(p), dtype=np.int64)
        default, is_drawn = rule.default, e < 1.0
        if rule.price.positive is None and is_drawn.any():  # predict may have been given another default action
            default = int(np.bincount(actions[is_drawn]).argmax())
        quiet, labelled, costs = actions == default, y >= 0, rule.price.cost_matrix.for_classes(rule.labels)
        bounds = (recall_bounds(y, actions, e, default, p.shape[1], one) for one in (confidence, 0.5 + 0.5 * LEVEL))
        (recalls, missed), (recall_lows, _) = bounds
        return cls(
            rule=rule,
            confidence=confidence,
            n_quiet=int(quiet.sum()),
            n_audited=int((quiet & labelled).sum()),
            n_unlabelled_alarms=int((~quiet & ~labelled).sum()),
            effective=effective_rows(1.0 / e[labelled]),
            recalls=recalls,
            missed=missed,
            recall_lows=recall_lows,
            cost_per_1000=audited_cost(y, actions, p, costs.costs, e, default).scaled(1000.0),
            expected_audits=float(e[quiet].sum()),
            n_left_out=int((~possible).sum()),
        )

    @property
    def notes(self) -> list[str]:
        """What limits these results."""
        notes = []
        if self.n_left_out:
            notes.append(f"{self.n_left_out:,} rows without a label had no chance of an audit: left out")
        k, m = float(self.n_audited), self.expected_audits
        if not self.n_audited:
            notes.append("no row without an alarm has a label: labels of alarms say nothing about the other rows")
        elif k < m and math.exp(k - m - k * math.log(k / m)) < _STOPPED_P:  # Chernoff's bound
            expected = f"{m:,.4g} were expected: labels of audits are missing"
            notes.append(f"{self.n_audited:,} audited rows have a label where {expected}")
        if self.n_unlabelled_alarms:
            notes.append(f"{self.n_unlabelled_alarms:,} alarms without a label were left out")
        return notes

    def __str__(self) -> str:
        lines = [
            f"Audited labels: {self.n_audited:,} of {self.n_quiet:,} rows without an alarm have a label, weighted by "
            f"1 / audit probability ({self.effective:,.4g} effective rows)"
        ]
        for k in self.rule.watched:
            name = "" if self.rule.positive is not None else f" of {self.rule.labels[k]}"
            bound = "unknown" if math.isnan(self.recalls[k]) else f"at least {self.recalls[k]:.3g}"
            missed = f"at most {self.missed[k]:,.4g} missed (confidence {self.confidence:g})"
            lines.append(f"  recall{name} {bound}, {missed}")
        return "\n".join(lines)


def bound_values(audited: AuditedRows | None) -> Values:
    """Lower bound on recall and upper bound on missed rows: numbers for two classes, by class for more."""
    if audited is None:
        return {"recall_bound": None, "missed_bound": None}
    bounds, labels = {"recall_bound": audited.recalls, "missed_bound": audited.missed}, audited.rule.labels
    if audited.rule.price.positive is not None:
        return {name: plain(values[audited.rule.price.positive]) for name, values in bounds.items()}
    return {name: dict(zip(map(str, labels), map(plain, values), strict=True)) for name, values in bounds.items()}
