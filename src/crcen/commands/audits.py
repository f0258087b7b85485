"""Selective labels: audits of quiet rows, and what labels with known probabilities say about all rows."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidParameter
from crcen._support.values import json_value
from crcen.commands.rules import RowRule
from crcen.theory.intervals import LEVEL, Interval, effective_size
from crcen.theory.rows import Shown, in_one_line
from crcen.theory.selective import (
    audit_draws,
    audit_probabilities,
    audit_scores,
    audited_cost,
    recall_bounds,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "AUDIT_COLUMNS",
    "AUDIT_RULES",
    "AuditedRows",
    "Audits",
    "cell_hashes",
    "draw_audits",
    "row_keys",
]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]
Keys = NDArray[np.uint64]

AUDIT_COLUMNS = ("audit", "audit_probability")
AUDIT_RULES = ("neyman", "uniform")
# Fewer labels of quiet rows than expected with a smaller probability: audits have stopped.
_STOPPED_P = 1e-3


@dataclass(frozen=True, eq=False)
class Audits(Shown):
    """Quiet rows that were drawn to be checked; prints itself.

    Parameters
    ----------
    rule : str
        "neyman" or "uniform".
    n_quiet, n_drawn : int
        Rows without an alarm, and those drawn.
    n_checked : int
        Rows to check: alarms and drawn rows.
    expected : float
        Expected number of drawn rows.
    probabilities : float64 array of shape (n,)
        Probability of being checked, 1 for alarms.
    drawn : bool array of shape (n,)
        Rows to check.
    """

    rule: str
    n_quiet: int
    n_drawn: int
    n_checked: int
    expected: float
    probabilities: Array
    drawn: Bools

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "rule": self.rule,
            "quiet_rows": self.n_quiet,
            "expected": self.expected,
            "drawn": self.n_drawn,
            "to_check": self.n_checked,
            "smallest_probability": float(self.probabilities.min()),
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        return (
            f"Audits: {self.n_drawn:,} of {self.n_quiet:,} rows without an alarm were drawn (expected "
            f"{self.expected:,.4g}), {self.n_checked:,} rows to check with the alarms"
        )


def n_audits(audit: Any, n_quiet: int) -> float:
    """Expected number of audits, from a number or a share of the quiet rows such as "2%"."""
    text = str(audit).strip()
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    is_share = text.endswith("%")
    if isinstance(audit, bool) or not (math.isfinite(value) and value > 0.0 and not (is_share and value > 100.0)):
        raise InvalidParameter(
            f"audit must be a number of rows, such as 100, or a share of the rows without an alarm, such as 2%: got "
            f"{audit!r}.",
            parameter="audit",
        )
    return value / 100.0 * n_quiet if is_share else min(value, float(n_quiet))


def cell_hashes(frame: "pd.DataFrame") -> Keys:
    """A hash of the cells of each row."""
    import pandas as pd

    return np.asarray(pd.util.hash_pandas_object(frame.astype(str), index=False), dtype=np.uint64)


def row_keys(hashes: Keys) -> Keys:
    """A key for each row from the hash of its cells; rows that are alike get different keys."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    rank = np.empty(len(hashes), dtype=np.uint64)
    rank[order] = (np.arange(len(hashes)) - np.searchsorted(ordered, ordered, side="left")).astype(np.uint64)
    return np.asarray(hashes + rank * np.uint64(0x9E3779B97F4A7C15), dtype=np.uint64)


def draw_audits(audit: Any, audit_rule: str, rule: RowRule, p: Array, actions: Index, keys: Keys, seed: int) -> Audits:
    """Draw rows without an alarm, independently, with probabilities that are known.

    Parameters
    ----------
    audit : int, float or str
        Expected number of drawn rows, or a share of the quiet rows such as "2%".
    audit_rule : str
        "neyman": proportional to the standard deviation of the row's residual, with a lower limit; or "uniform".
    rule, p, actions
        Rule of decisions, probabilities (n, K) and decisions.
    keys : uint64 array of shape (n,)
        Of `row_keys`: the same seed and row give the same draw.
    seed : int
        Of the draws.
    """
    quiet = np.asarray(actions == rule.default)
    n_quiet = int(quiet.sum())
    expected = n_audits(audit, n_quiet)
    scores = audit_scores(p, rule.price.weights) if audit_rule == "neyman" else np.ones(len(p))
    e = audit_probabilities(scores, quiet, expected) if n_quiet else np.ones(len(p))
    drawn = audit_draws(keys, e, seed) | ~quiet
    return Audits(audit_rule, n_quiet, int((drawn & quiet).sum()), int(drawn.sum()), float(e[quiet].sum()), e, drawn)


@dataclass(frozen=True, eq=False)
class AuditedRows(Shown):
    """What audited labels say about all rows; prints itself.

    Parameters
    ----------
    labels : tuple
        The classes.
    positive : label or None
        The positive class of two.
    confidence : float
        Of the bounds.
    n_quiet, n_audited, n_unlabelled_alarms : int
        Rows without an alarm, those of them with a label, and alarms without one.
    effective : float
        Kish's effective number of labelled rows with weights 1/e.
    recalls, missed : float64 arrays of shape (K,)
        Lower bound on the recall of each class, and upper bound on its missed rows.
    cost_per_1000 : Interval
        Doubly robust estimate.
    expected_audits : float
        Sum of the probabilities of the quiet rows.
    """

    labels: tuple[Any, ...]
    positive: Any
    confidence: float
    n_quiet: int
    n_audited: int
    n_unlabelled_alarms: int
    effective: float
    recalls: Array
    missed: Array
    cost_per_1000: Interval
    expected_audits: float

    @classmethod
    def of(
        cls, rule: RowRule, costs: Array, y: Index, p: Array, actions: Index, e: Array, confidence: float = LEVEL
    ) -> "AuditedRows":
        """From all rows: class numbers (−1: no label), probabilities, decisions and audit probabilities."""
        if not 0.0 < confidence < 1.0:
            raise InvalidParameter(f"confidence must lie between 0 and 1: got {confidence:g}.", parameter="confidence")
        quiet, labelled = actions == rule.default, y >= 0
        recalls, missed = recall_bounds(y, actions, e, rule.default, len(rule.labels), confidence)
        return cls(
            rule.labels,
            rule.positive,
            confidence,
            int(quiet.sum()),
            int((quiet & labelled).sum()),
            int((~quiet & ~labelled).sum()),
            effective_size(1.0 / e[labelled]),
            recalls,
            missed,
            audited_cost(y, actions, p, costs, e, rule.default).scaled(1000.0),
            float(e[quiet].sum()),
        )

    def _by_class(self, values: Array) -> Any:
        if self.positive is not None:
            return json_value(float(values[self.labels.index(self.positive)]))
        return {str(label): json_value(float(value)) for label, value in zip(self.labels, values, strict=True)}

    @property
    def recall_bound(self) -> Any:
        """Lower bound on recall: a number for two classes, by class for more."""
        return self._by_class(self.recalls)

    @property
    def missed_bound(self) -> Any:
        """Upper bound on missed rows: a number for two classes, by class for more."""
        return self._by_class(self.missed)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "confidence": self.confidence,
            "quiet_rows": self.n_quiet,
            "audited_rows": self.n_audited,
            "effective_rows": self.effective,
            "unlabelled_alarms": self.n_unlabelled_alarms,
            "expected_audits": self.expected_audits,
        }

    @property
    def notes(self) -> list[str]:
        """What limits these results."""
        notes = []
        if not self.n_audited:
            notes.append("no row without an alarm has a label: labels of alarms say nothing about the other rows")
        elif self.has_stopped:
            notes.append(
                f"{self.n_audited:,} audited rows have a label where {self.expected_audits:,.4g} were expected: labels "
                "of audits are missing"
            )
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

    __repr__ = in_one_line

    def __str__(self) -> str:
        which = range(len(self.labels)) if self.positive is None else [self.labels.index(self.positive)]
        lines = [
            f"Audited labels: {self.n_audited:,} of {self.n_quiet:,} rows without an alarm have a label, weighted by "
            f"1 / audit probability ({self.effective:,.4g} effective rows)"
        ]
        for k in which:
            name = "" if self.positive is not None else f" of {self.labels[k]}"
            bound = "unknown" if math.isnan(self.recalls[k]) else f"at least {self.recalls[k]:.3g}"
            lines.append(
                f"  recall{name} {bound}, at most {self.missed[k]:,.4g} missed (confidence {self.confidence:g})"
            )
        return "\n".join(lines)
