"""How one model and one price serve different groups of rows: figures of each, and whether they differ beyond chance.

Recall and precision are compared exactly: given how many positives (or alarms) a group has and how many were right in
all, the right ones of each group follow the multivariate hypergeometric distribution where groups are alike. Residuals
of probabilities are compared by χ², with the error of the fitted model allowed for. One error rate holds for all of it
together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.classes.chi_square import chi_square_tail
from crcen.theory.decision import weighted_probability
from crcen.theory.key_equation import KeyEquation, key_equation
from crcen.theory.metrics import wilson_interval
from crcen.theory.specs import Lam
from crcen.theory.weighting import ClassWeighting

__all__ = ["GROUP_ERROR_RATE", "GroupComparison", "GroupFigures", "GroupTest", "Interval", "compare_groups"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Chance of calling any of the groups different, over all columns and figures, where none is.
GROUP_ERROR_RATE = 0.01
# Values of a column that are shown; the rest are one group. Rows with which a group counts in tests.
MOST_GROUPS, FEWEST_ROWS = 20, 5
OTHERS, MISSING = "all others", "missing"
_DRAWS = 9_999


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
class GroupTest:
    """Whether groups differ in a figure.

    Parameters
    ----------
    figure : str
        "recall", "precision" or "calibration".
    p_value : float
        NaN where too little is known of all groups but one.
    level : float
        Below this they differ beyond noise.
    """

    figure: str
    p_value: float
    level: float

    @property
    def differs(self) -> bool:
        """Whether groups differ more than chance allows."""
        return self.p_value < self.level


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
    price: ClassWeighting,
    trained: ClassWeighting,
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
    price, trained : ClassWeighting
        The price of decisions, and the weighting that the key equation is of.
    noise : float
        How much more a residual varies than under the truth (`crcen.theory.judgements.fitted_model_noise`).
    error_rate : float
        Chance of any difference being named where there is none, over all columns and figures.
    """
    alarms = p > price.threshold
    n_pos = int(target.sum())
    overall = float((target & alarms).sum() / n_pos) if n_pos else math.nan
    level = error_rate / (3 * max(len(columns), 1))
    found = []
    for column, values in columns.items():
        names, which = _named(column, values, len(target))
        groups = []
        for i, name in enumerate(names):
            rows = which == i
            groups.append(_figures(name, target[rows], p[rows], price, trained, overall, noise))
        found.append(GroupComparison(column, tuple(groups), _tests(groups, which, target, p, noise, level), overall))
    return tuple(found)


def _named(column: str, values: ArrayLike, n: int) -> tuple[list[str], NDArray[np.int64]]:
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
    name: str, y: Bools, p: Array, price: ClassWeighting, trained: ClassWeighting, overall: float, noise: float
) -> GroupFigures:
    alarms = p > price.threshold
    n, n_pos, n_alarms, caught = len(y), int(y.sum()), int(alarms.sum()), int((y & alarms).sum())
    expected, variance = float(p.sum()), float((p * (1.0 - p)).sum()) * noise
    half = 1.96 * math.sqrt(variance)
    ratio = Interval(math.nan, math.nan, math.nan)
    if expected > 0.0:
        ratio = Interval(n_pos / expected, max(n_pos - half, 0.0) / expected, (n_pos + half) / expected)
    own_price, own_alarms, own_cost = _at_recall(y, p, overall, price.cost_ratio)
    return GroupFigures(
        name,
        n,
        n_pos,
        n_alarms,
        caught,
        _share(n_alarms, n),
        _share(caught, n_pos),
        _share(caught, n_alarms),
        ratio,
        _equation(y, p, trained),
        1000.0 * (n_alarms - caught + price.cost_ratio * (n_pos - caught)) / n,
        own_price,
        own_alarms,
        own_cost,
    )


def _equation(y: Bools, p: Array, trained: ClassWeighting) -> KeyEquation | None:
    """The key equation with the group's own counts; None where it has rows of one class alone."""
    if not 0 < int(y.sum()) < len(y):
        return None
    return key_equation(y, weighted_probability(p, trained), Lam(trained.lam))


def _share(part: int, whole: int) -> Interval:
    if not whole:
        return Interval(math.nan, math.nan, math.nan)
    return Interval(part / whole, *wilson_interval(part / whole, float(whole)))


def _at_recall(y: Bools, p: Array, recall: float, cost_ratio: float) -> tuple[float, float, float]:
    """Price, alarms and cost per 1,000 rows where a group has at least this recall, with as few alarms as can be."""
    n_pos = int(y.sum())
    if not n_pos or math.isnan(recall):
        return math.nan, math.nan, math.nan
    wanted = math.ceil(recall * n_pos - 1e-9)
    if wanted == 0:
        return math.nan, math.nan, math.nan
    threshold = float(np.sort(p[y])[::-1][wanted - 1])
    if not 0.0 < threshold < 1.0:
        return math.nan, math.nan, math.nan
    alarms = p >= threshold
    caught = int((y & alarms).sum())
    cost = 1000.0 * (int(alarms.sum()) - caught + cost_ratio * (n_pos - caught)) / len(y)
    return (1.0 - threshold) / threshold, 1000.0 * float(alarms.mean()), cost


def _tests(
    groups: Sequence[GroupFigures], which: NDArray[np.int64], y: Bools, p: Array, noise: float, level: float
) -> tuple[GroupTest, ...]:
    caught = np.array([one.n_caught for one in groups])
    recall = _homogeneous(caught, np.array([one.n_pos for one in groups]))
    precision = _homogeneous(caught, np.array([one.n_alarms for one in groups]))
    return (
        GroupTest("recall", recall, level),
        GroupTest("precision", precision, level),
        GroupTest("calibration", _residuals_alike(which, len(groups), y, p, noise), level),
    )


def _homogeneous(right: NDArray[np.int64], sizes: NDArray[np.int64]) -> float:
    """Exact chance, up to its draws, of shares so different where all groups have one."""
    known = sizes >= FEWEST_ROWS
    right, sizes = right[known], sizes[known]
    total, n = int(right.sum()), int(sizes.sum())
    if len(sizes) < 2 or total in (0, n):
        return math.nan
    expected = sizes * (total / n)
    spread = expected * (1.0 - total / n)
    drawn = np.random.default_rng(0).multivariate_hypergeometric(sizes, total, _DRAWS, method="marginals")
    far = ((drawn - expected) ** 2 / spread).sum(axis=1)
    seen = float(((right - expected) ** 2 / spread).sum())
    return float((1 + int((far >= seen * (1.0 - 1e-12)).sum())) / (_DRAWS + 1))


def _residuals_alike(which: NDArray[np.int64], n_groups: int, y: Bools, p: Array, noise: float) -> float:
    """χ² of the groups' residuals about their common one."""
    residual = np.bincount(which, y - p, minlength=n_groups)
    variance = np.bincount(which, p * (1.0 - p), minlength=n_groups) * noise
    known = variance >= FEWEST_ROWS
    residual, variance = residual[known], variance[known]
    if len(residual) < 2:
        return math.nan
    value = float((residual**2 / variance).sum() - residual.sum() ** 2 / variance.sum())
    return chi_square_tail(value, len(residual) - 1)


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
