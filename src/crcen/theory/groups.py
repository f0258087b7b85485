"""How one model and one price serve different groups of rows: figures of each, and whether they differ beyond chance.

One error rate holds for all tests of `crcen.theory.group_tests` together.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.decision import weighted_probability
from crcen.theory.group_tests import GroupTest, group_tests
from crcen.theory.key_equation import KeyEquation, key_equation
from crcen.theory.metrics import wilson_interval
from crcen.theory.price import Lam, Price

__all__ = [
    "GROUP_ERROR_RATE",
    "GroupComparison",
    "GroupFigures",
    "GroupTest",
    "Interval",
    "compare_groups",
    "named_groups",
]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Chance of calling any of the groups different, over all columns and figures, where none is.
GROUP_ERROR_RATE = 0.01
MOST_GROUPS = 20  # values of a column that are shown; the rest are one group
OTHERS, MISSING = "all others", "missing"


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval; NaN where there is none."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """Plain values, ready for JSON."""
        return {name: _plain(value) for name, value in vars(self).items()}

    def __str__(self) -> str:
        return "–" if math.isnan(self.value) else f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class GroupFigures:
    """One group at the common price.

    Parameters
    ----------
    name : str
        The value of the column.
    n_rows, n_pos, n_alarms, n_caught : int
        Rows, positives, alarms, and positives with an alarm.
    alarm_share, recall, precision : Interval
        Wilson intervals.
    found_over_expected : Interval
        Positives over the sum of probabilities: 1 where these are right in the mean.
    equation : KeyEquation or None
        The key equation of the group's rows at the weight of training, with the group's own counts; None where
        it has rows of one class alone.
    cost_per_1000 : float
        What the decisions cost at the price, in false alarms per 1,000 rows.
    equal_recall_price : float
        At which price the group would have the recall of all rows together; NaN where no price gives it.
    equal_recall_alarms : float
        Alarms per 1,000 rows at that price.
    equal_recall_cost : float
        What its decisions would then cost, counted at the common price, per 1,000 rows.
    """

    name: str
    n_rows: int
    n_pos: int
    n_alarms: int
    n_caught: int
    alarm_share: Interval
    recall: Interval
    precision: Interval
    found_over_expected: Interval
    equation: KeyEquation | None
    cost_per_1000: float
    equal_recall_price: float
    equal_recall_alarms: float
    equal_recall_cost: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "group": self.name,
            "rows": self.n_rows,
            "positives": self.n_pos,
            "alarms": self.n_alarms,
            "caught": self.n_caught,
            **{
                name: getattr(self, name).to_dict()
                for name in ("alarm_share", "recall", "precision", "found_over_expected")
            },
            "key_equation": {
                "left": None if self.equation is None else _plain(self.equation.lhs),
                "right": None if self.equation is None else _plain(self.equation.rhs),
            },
            "cost_per_1000": _plain(self.cost_per_1000),
            "equal_recall": {
                "price": _plain(self.equal_recall_price),
                "alarms_per_1000": _plain(self.equal_recall_alarms),
                "cost_per_1000": _plain(self.equal_recall_cost),
            },
        }


@dataclass(frozen=True)
class GroupComparison:
    """The groups of one column.

    Parameters
    ----------
    column : str
        Its name.
    groups : tuple of GroupFigures
        The largest first.
    tests : tuple of GroupTest
        Of recall, precision and calibration.
    overall_recall : float
        That of all rows.
    """

    column: str
    groups: tuple[GroupFigures, ...]
    tests: tuple[GroupTest, ...]
    overall_recall: float

    @property
    def differing(self) -> tuple[str, ...]:
        """The figures in which groups differ beyond noise."""
        return tuple(test.figure for test in self.tests if test.differs)

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if not self.differing:
            return f"no difference between groups of {self.column} beyond chance"
        parts = []
        for figure in self.differing:
            name = {"calibration": "found_over_expected"}.get(figure, figure)
            known = [one for one in self.groups if not math.isnan(getattr(one, name).value)]
            low = min(known, key=lambda one: getattr(one, name).value)
            high = max(known, key=lambda one: getattr(one, name).value)
            word = {"calibration": "positives found over expected"}.get(figure, figure)
            parts.append(
                f"{word} from {getattr(low, name).value:.2f} ({low.name}) to {getattr(high, name).value:.2f} "
                f"({high.name})"
            )
        return f"groups of {self.column} differ in {', '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "column": self.column,
            "groups": [one.to_dict() for one in self.groups],
            "tests": [
                {"figure": t.figure, "p_value": _plain(t.p_value), "level": t.level, "differs": t.differs}
                for t in self.tests
            ],
            "sentence": self.sentence,
        }

    def lines(self) -> list[str]:
        """A table as text."""
        width = max(len("group"), *(len(one.name) for one in self.groups))
        head = f"{'rows':>9} {'positive':>8} {'alarms':>8}  {'recall':<20} {'precision':<20} {'found/expected':<20}"
        lines = [f"  {'group':<{width}} {head} {'key equation':<15} {'cost/1,000':>10} {'price, equal recall':>20}"]
        for one in self.groups:
            equation = "–" if one.equation is None else f"{one.equation.lhs:.3g} : {one.equation.rhs:.3g}"
            price = "–" if math.isnan(one.equal_recall_price) else f"{one.equal_recall_price:.3g}"
            lines.append(
                f"  {one.name:<{width}} {one.n_rows:>9,} {one.n_pos:>8,} {one.n_alarms:>8,}  {one.recall!s:<20} "
                f"{one.precision!s:<20} {one.found_over_expected!s:<20} {equation:<15} {one.cost_per_1000:>10.3g} "
                f"{price:>20}"
            )
        return lines


def compare_groups(
    columns: Mapping[str, ArrayLike],
    target: Bools,
    p: Array,
    price: Price,
    trained: Price,
    sample_weight: Array | None = None,
    *,
    noise: float = 1.0,
    error_rate: float = GROUP_ERROR_RATE,
) -> tuple[GroupComparison, ...]:
    """Figures of groups, column by column, with tests under one error rate.

    Parameters
    ----------
    columns : dict of str to array of shape (n,)
        The group of every row as text or None, by column.
    target, p : arrays of shape (n,)
        Whether rows are positive, and their natural probabilities.
    price, trained : Price
        The price of decisions, and the weighting that the key equation is of.
    sample_weight : array of shape (n,), optional
        What rows count, checked. Rows, positives and alarms are counted all the same; every share, cost and key
        equation is then of weights.
    noise : float
        How much more a residual varies than under the truth (`crcen.theory.judgements.fitted_model_noise`).
    error_rate : float
        Chance of any difference being named where there is none, over all columns and figures.
    """
    alarms = p > price.threshold
    # Their scale does not matter: the mean is 1.
    w = np.ones(len(p)) if sample_weight is None else sample_weight / sample_weight.mean()
    n_pos = float(w[target].sum())
    overall = float(w[target & alarms].sum() / n_pos) if n_pos else math.nan
    level = error_rate / (3 * max(len(columns), 1))
    found = []
    for column, values in columns.items():
        names, which = named_groups(column, values, len(target))
        groups = []
        for i, name in enumerate(names):
            rows = which == i
            groups.append(_figures(name, target[rows], p[rows], w[rows], price, trained, overall, noise))
        tests = group_tests(which, len(names), target, alarms, p, None if sample_weight is None else w, noise, level)
        found.append(GroupComparison(column, tuple(groups), tests, overall))
    return tuple(found)


def named_groups(column: str, values: ArrayLike, n: int) -> tuple[list[str], NDArray[np.int64]]:
    """Names of groups, the largest first, and the group of each row."""
    cells = np.asarray(values, dtype=object)
    if cells.shape != (n,):
        raise InvalidInput(f"groups of {column} must have one value for each of the {n} rows, got {cells.shape}.")
    texts = np.array([MISSING if cell is None or cell != cell else str(cell) for cell in cells], dtype=object)
    names, which, counts = np.unique(texts.astype(str), return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    shown = [str(name) for name in names[order]]
    where = place[which]
    if len(shown) > MOST_GROUPS:
        where = np.minimum(where, MOST_GROUPS - 1)
        shown = [*shown[: MOST_GROUPS - 1], OTHERS]
    return shown, where


def _figures(
    name: str,
    y: Bools,
    p: Array,
    w: Array,
    price: Price,
    trained: Price,
    overall: float,
    noise: float,
) -> GroupFigures:
    alarms = p > price.threshold
    n, n_pos, n_alarms, caught = len(y), int(y.sum()), int(alarms.sum()), int((y & alarms).sum())
    expected, found = float((w * p).sum()), float(w[y].sum())
    half = 1.96 * math.sqrt(float((w**2 * p * (1.0 - p)).sum()) * noise)
    ratio = Interval(math.nan, math.nan, math.nan)
    if expected > 0.0:
        ratio = Interval(found / expected, max(found - half, 0.0) / expected, (found + half) / expected)
    own_price, own_alarms, own_cost = _at_recall(y, p, w, overall, price.cost_ratio)
    wrong = np.where(y, price.cost_ratio * ~alarms, alarms)
    return GroupFigures(
        name,
        n,
        n_pos,
        n_alarms,
        caught,
        _share(alarms, w),
        _share(alarms[y], w[y]),
        _share(y[alarms], w[alarms]),
        ratio,
        _equation(y, p, w, trained),
        1000.0 * float((w * wrong).sum() / w.sum()) if w.any() else math.nan,
        own_price,
        own_alarms,
        own_cost,
    )


def _equation(y: Bools, p: Array, w: Array, trained: Price) -> KeyEquation | None:
    """The key equation with the group's own counts; None where it has rows of one class alone."""
    if not (w[y].any() and w[~y].any()):
        return None
    weights = None if (w == 1.0).all() else w
    return key_equation(y, weighted_probability(p, trained), Lam(trained.lam), weights)


def _share(hit: Bools, w: Array) -> Interval:
    """The share of weight with a hit, its interval by as many rows as tell as much where all weigh the same."""
    if not w.any():
        return Interval(math.nan, math.nan, math.nan)
    share = float(w[hit].sum() / w.sum())
    return Interval(share, *wilson_interval(share, float(w.sum() ** 2 / (w**2).sum())))


def _at_recall(y: Bools, p: Array, w: Array, recall: float, cost_ratio: float) -> tuple[float, float, float]:
    """Price, alarms and cost per 1,000 rows where a group has at least this recall, with as few alarms as can be."""
    nothing = math.nan, math.nan, math.nan
    n_pos = float(w[y].sum())
    if not n_pos or math.isnan(recall) or recall * n_pos <= 1e-9:
        return nothing
    order = np.argsort(-p[y], kind="stable")
    enough = int(np.searchsorted(np.cumsum(w[y][order]), recall * n_pos - 1e-9))
    threshold = float(p[y][order][min(enough, len(order) - 1)])
    if not 0.0 < threshold < 1.0:
        return nothing
    alarms = p >= threshold
    wrong = np.where(y, cost_ratio * ~alarms, alarms)
    n_alarms, cost = (1000.0 * float((w * one).sum() / w.sum()) for one in (alarms, wrong))
    return (1.0 - threshold) / threshold, n_alarms, cost


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
