"""Selective labels: audits of quiet rows, and what labels with known probabilities say about all rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen._support.text import listed
from crcen._support.values import Values, attributes, label_key
from crcen.commands.inputs import Label, require
from crcen.commands.rules import RowRule
from crcen.theory.intervals import LEVEL, Interval
from crcen.theory.rows import Array, Bools, Index, ShownInOneLine, effective_rows, plain
from crcen.theory.selective import audit_draws, audit_probabilities, audit_scores, audited_cost, recall_bounds

Keys = NDArray[np.uint64]

AUDIT_COLUMNS = ("audit", "audit_probability")
# Attributes of `AuditedRows` that stand beside other results.
BOUNDS = ("recall_bound", "missed_bound")
AUDIT_RULES = ("neyman", "uniform")
# Fewer labels of quiet rows than expected with a smaller probability: audits have stopped.
_STOPPED_P = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class Audits(ShownInOneLine):
    """Quiet rows that were drawn to be checked; prints itself."""

    rule: str  # "neyman" or "uniform"
    n_quiet: int
    n_drawn: int  # of the quiet rows
    n_checked: int  # with the alarms
    expected: float  # of n_drawn
    probabilities: Array  # of being checked, 1 for alarms
    drawn: Bools  # rows to check

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        found = attributes(self, "rule quiet_rows=n_quiet expected drawn=n_drawn to_check=n_checked")
        return found | {"smallest_probability": float(self.probabilities.min())}

    def __str__(self) -> str:
        return (
            f"Audits: {self.n_drawn:,} of {self.n_quiet:,} rows without an alarm were drawn (expected "
            f"{self.expected:,.4g}), {self.n_checked:,} rows to check with the alarms"
        )


def n_audits(audit: object, n_quiet: int) -> float:
    """Expected number of audits, from a number or a share of the quiet rows such as "2%"."""
    text = str(audit).strip()
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    is_share, is_number = text.endswith("%"), not isinstance(audit, bool) and math.isfinite(value) and value > 0.0
    allowed = "audit must be a number of rows, such as 100, or a share of the rows without an alarm, such as 2%"
    require(is_number and not (is_share and value > 100.0), f"{allowed}: got {audit!r}.", "audit")
    return value / 100.0 * n_quiet if is_share else min(value, float(n_quiet))


def row_keys(hashes: Keys) -> Keys:
    """A key for each row from the hash of its cells; rows that are alike get different keys."""
    rank = pd.Series(hashes).groupby(hashes).cumcount().to_numpy(dtype=np.uint64)
    return np.asarray(hashes + rank * np.uint64(0x9E3779B97F4A7C15), dtype=np.uint64)


def with_default(rule: RowRule, default_action: Label | None) -> RowRule:
    """The rule with the decision that is no alarm, if it was named."""
    if default_action is None:
        return rule
    keys = [label_key(name) for name in rule.names]
    allowed = "left out for a model that finds one class" if rule.positive else f"one of {listed(rule.names)}"
    is_right = rule.price.positive is None and label_key(default_action) in keys
    require(is_right, f"default_action must be {allowed}: got {default_action!r}.", "default_action")
    return replace(rule, quiet=keys.index(label_key(default_action)))


def draw_audits(
    audit: object, audit_rule: str, rule: RowRule, p: Array, actions: Index, keys: Keys, seed: int
) -> Audits:
    """Draw rows without an alarm, independently, with known probabilities; a seed and a row's key fix its draw."""
    quiet = np.asarray(actions == rule.default)
    n_quiet = int(quiet.sum())
    expected = n_audits(audit, n_quiet)
    scores = audit_scores(p, rule.price.weights) if audit_rule == "neyman" else np.ones(len(p))
    e = audit_probabilities(scores, quiet, expected) if n_quiet else np.ones(len(p))
    drawn = audit_draws(keys, e, seed) | ~quiet
    return Audits(audit_rule, n_quiet, int((drawn & quiet).sum()), int(drawn.sum()), float(e[quiet].sum()), e, drawn)


@dataclass(frozen=True, eq=False, repr=False)
class AuditedRows(ShownInOneLine):
    """What labels of alarms and audits say about all rows; prints itself."""

    labels: tuple[Label, ...]
    positive: Label | None
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
    n_left_out: int = 0  # unlabelled rows that no audit could have drawn

    @classmethod
    def of(cls, rule: RowRule, y: Index, p: Array, e: Array, confidence: float = LEVEL) -> AuditedRows:
        """From all rows: class numbers (−1: no label), probabilities and audit probabilities."""
        is_right = 0.0 < confidence < 1.0
        require(is_right, f"confidence must lie between 0 and 1: got {confidence:g}.", "confidence")
        possible = (e > 0.0) & (e <= 1.0)
        y, p, e = y[possible], p[possible], e[possible]
        actions = np.asarray(rule.price.decide(p), dtype=np.int64)
        costs = rule.price.cost_matrix.for_classes(rule.labels)
        default, is_drawn = rule.default, e < 1.0
        if rule.price.positive is None and is_drawn.any():  # predict may have been given another default action
            default = int(np.bincount(actions[is_drawn]).argmax())
        quiet, labelled = actions == default, y >= 0
        recalls, missed = recall_bounds(y, actions, e, default, len(rule.labels), confidence)
        return cls(
            rule.labels,
            rule.positive,
            confidence,
            int(quiet.sum()),
            int((quiet & labelled).sum()),
            int((~quiet & ~labelled).sum()),
            effective_rows(1.0 / e[labelled]),
            recalls,
            missed,
            recall_bounds(y, actions, e, default, len(rule.labels), 0.5 + 0.5 * LEVEL)[0],
            audited_cost(y, actions, p, costs.costs, e, default).scaled(1000.0),
            float(e[quiet].sum()),
            int((~possible).sum()),
        )

    def _by_class(self, values: Array) -> float | Values | None:
        if self.positive is not None:
            return plain(values[self.labels.index(self.positive)])
        return {str(label): plain(value) for label, value in zip(self.labels, values, strict=True)}

    @property
    def recall_bound(self) -> float | Values | None:
        """Lower bound on recall: a number for two classes, by class for more."""
        return self._by_class(self.recalls)

    @property
    def missed_bound(self) -> float | Values | None:
        """Upper bound on missed rows: a number for two classes, by class for more."""
        return self._by_class(self.missed)

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        keys = "confidence quiet_rows=n_quiet audited_rows=n_audited effective_rows=effective"
        return attributes(self, f"{keys} unlabelled_alarms=n_unlabelled_alarms expected_audits")

    @property
    def notes(self) -> list[str]:
        """What limits these results."""
        notes = []
        if self.n_left_out:
            notes.append(f"{self.n_left_out:,} rows without a label had no chance of an audit: left out")
        if not self.n_audited:
            notes.append("no row without an alarm has a label: labels of alarms say nothing about the other rows")
        elif self.has_stopped:
            expected = f"{self.expected_audits:,.4g} were expected: labels of audits are missing"
            notes.append(f"{self.n_audited:,} audited rows have a label where {expected}")
        if self.n_unlabelled_alarms:
            notes.append(f"{self.n_unlabelled_alarms:,} alarms without a label were left out")
        return notes

    @property
    def has_stopped(self) -> bool:
        """Whether far fewer quiet rows have a label than were drawn (Chernoff's bound)."""
        k, m = float(self.n_audited), self.expected_audits
        if k >= m or m <= 0.0:
            return False
        exponent = (k * math.log(k / m) if k else 0.0) - k + m
        return math.exp(-exponent) < _STOPPED_P

    def __str__(self) -> str:
        which = range(len(self.labels)) if self.positive is None else [self.labels.index(self.positive)]
        lines = [
            f"Audited labels: {self.n_audited:,} of {self.n_quiet:,} rows without an alarm have a label, weighted by "
            f"1 / audit probability ({self.effective:,.4g} effective rows)"
        ]
        for k in which:
            name = "" if self.positive is not None else f" of {self.labels[k]}"
            bound = "unknown" if math.isnan(self.recalls[k]) else f"at least {self.recalls[k]:.3g}"
            missed = f"at most {self.missed[k]:,.4g} missed (confidence {self.confidence:g})"
            lines.append(f"  recall{name} {bound}, {missed}")
        return "\n".join(lines)
