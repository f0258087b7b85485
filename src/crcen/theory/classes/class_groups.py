"""How one model and its costs serve different groups of rows, for K classes.

The tests are those of two classes, class by class: recall and precision given how many rows of a class each group has
(or was given), all classes together; calibration by the residuals of all probabilities about their common error in
log-odds. One error rate holds for all of them together.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.theory.classes.chi_square import chi_square_tail
from crcen.theory.classes.class_quality import ClassQuality, class_quality
from crcen.theory.classes.judged_equations import JudgedEquations, judge_class_equations
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.group_tests import FEWEST_ROWS, GroupTest, shares_alike
from crcen.theory.groups import GROUP_ERROR_RATE, named_groups
from crcen.theory.price import Price

__all__ = ["ClassGroup", "ClassGroupComparison", "compare_class_groups"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_SMALLEST_P = 1e-15


@dataclass(frozen=True, eq=False)
class ClassGroup:
    """One group at the common costs.

    Parameters
    ----------
    name : str
        The value of the column.
    n_rows : int
        Its rows.
    quality : ClassQuality
        Decisions of its rows and what they cost.
    expected_cost : float
        What a row was expected to cost by the probabilities.
    expected : float64 array of shape (K,)
        Rows of each class that the probabilities expect.
    equations : JudgedEquations
        The key equations of its rows at the weights of training.
    """

    name: str
    n_rows: int
    quality: ClassQuality
    expected_cost: float
    expected: Array
    equations: JudgedEquations

    @property
    def found(self) -> Array:
        """Rows of each class."""
        return np.asarray(self.quality.counts.table.sum(axis=1))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        joint, figures = self.equations.joint, self.quality.to_dict()
        return {
            "group": self.name,
            "rows": self.n_rows,
            "cost_per_row": figures["cost_per_row"],
            "expected_cost_per_row": self.expected_cost,
            "classes": [
                {**{key: one[key] for key in ("label", "rows", "decided", "recall", "precision")}, "expected": expected}
                for one, expected in zip(figures["classes"], self.expected.tolist(), strict=True)
            ],
            "key_equations": {
                "verdict": self.equations.verdict,
                "p_value": None if math.isnan(joint.p_value) else joint.p_value,
                "classes": [one.to_dict() for one in self.equations.classes],
            },
        }

    @property
    def equations_said(self) -> str:
        """The verdict of the joint test with its p-value, and the class that is most off."""
        if math.isnan(self.equations.joint.p_value):
            return "not tested"
        worst = max((one for one in self.equations.classes if one.is_tested), key=lambda one: abs(one.z))
        p_value = max(self.equations.joint.p_value, _SMALLEST_P)
        return f"{self.equations.verdict} (p {p_value:.2g}; {worst.label} {worst.z:+.1f})"


@dataclass(frozen=True)
class ClassGroupComparison:
    """The groups of one column.

    Parameters
    ----------
    column : str
        Its name.
    groups : tuple of ClassGroup
        The largest first.
    tests : tuple of GroupTest
        Of recall, precision and calibration, all classes together.
    """

    column: str
    groups: tuple[ClassGroup, ...]
    tests: tuple[GroupTest, ...]

    @property
    def differing(self) -> tuple[str, ...]:
        """The figures in which groups differ beyond noise."""
        return tuple(test.figure for test in self.tests if test.differs)

    @property
    def sentence(self) -> str:
        """The outcome in words: for each figure the class in which groups differ most."""
        if not self.differing:
            return f"no difference between groups of {self.column} beyond chance"
        return f"groups of {self.column} differ in {', '.join(map(self._part, self.differing))}"

    def _part(self, figure: str) -> str:
        tables = np.array([one.quality.counts.table for one in self.groups])
        expected = np.array([one.expected for one in self.groups])
        found = tables.sum(axis=2)
        n_classes = found.shape[1]
        right = np.diagonal(tables, axis1=1, axis2=2)[:, :n_classes]
        decided = tables.sum(axis=1)[:, :n_classes]
        hits, sizes = {"recall": (right, found), "precision": (right, decided), "calibration": (found, expected)}[
            figure
        ]
        known = sizes >= FEWEST_ROWS
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(known, hits / sizes, np.nan)
            pooled = np.where(known, hits, 0.0).sum(axis=0) / np.where(known, sizes, 0.0).sum(axis=0)
            spread = sizes * (share - pooled) ** 2
            spread = spread / (pooled if figure == "calibration" else pooled * (1.0 - pooled))
        k = int(np.argmax(np.nan_to_num(np.nansum(spread, axis=0), posinf=0.0)))
        low, high = int(np.nanargmin(share[:, k])), int(np.nanargmax(share[:, k]))
        label = self.groups[0].quality.labels[k]
        word = f"rows of {label} found over expected" if figure == "calibration" else f"{figure} of {label}"
        return (
            f"{word} from {share[low, k]:.2f} ({self.groups[low].name}) to {share[high, k]:.2f} "
            f"({self.groups[high].name})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "column": self.column,
            "groups": [one.to_dict() for one in self.groups],
            "tests": [
                {
                    "figure": test.figure,
                    "p_value": None if math.isnan(test.p_value) else test.p_value,
                    "level": test.level,
                    "differs": test.differs,
                }
                for test in self.tests
            ],
            "sentence": self.sentence,
        }

    def lines(self) -> list[str]:
        """A table as text."""
        width = max(len("group"), *(len(one.name) for one in self.groups))
        lines = [
            f"  {'group':<{width}} {'rows':>9}  {'cost a row':<30} {'expected':>9}  key equations (p; most off, z)"
        ]
        for one in self.groups:
            cost = one.quality.cost
            said = f"{cost.value:.4g} ({cost.low:.4g} to {cost.high:.4g})"
            lines.append(
                f"  {one.name:<{width}} {one.n_rows:>9,}  {said:<30} {one.expected_cost:>9.4g}  {one.equations_said}"
            )
        return lines


def compare_class_groups(
    columns: Mapping[str, ArrayLike],
    y: Index,
    p: Array,
    costs: CostMatrix,
    trained: Price,
    sample_weight: Array | None = None,
    *,
    noise: float = 1.0,
    error_rate: float = GROUP_ERROR_RATE,
) -> tuple[ClassGroupComparison, ...]:
    """Figures of groups, column by column, with tests under one error rate.

    Parameters
    ----------
    columns : dict of str to array of shape (n,)
        The group of every row as text or None, by column.
    y : int64 array of shape (n,)
        Class numbers.
    p : float64 array of shape (n, K)
        Natural probabilities.
    costs : CostMatrix
        What decisions are made by, labelled.
    trained : Price
        What the key equations are at.
    sample_weight : array of shape (n,), optional
        What rows count, checked.
    noise : float
        How much more a residual varies than under the truth.
    error_rate : float
        Chance of any difference being named where there is none, over all columns and figures.
    """
    chosen, paid = costs.choose(p), costs.expected(p).min(axis=1)
    w = np.ones(len(y)) if sample_weight is None else sample_weight / sample_weight.mean()
    counts = w > 0.0  # a row without weight is in no group
    level = error_rate / (3 * max(len(columns), 1))
    found = []
    for column, values in columns.items():
        names, which = named_groups(column, np.asarray(values, dtype=object), len(y))
        groups = []
        for i, name in enumerate(names):
            rows = (which == i) & counts
            if not rows.any():
                continue
            groups.append(
                ClassGroup(
                    name,
                    int(rows.sum()),
                    class_quality(y[rows], p[rows], costs, w[rows]),
                    float(np.average(paid[rows], weights=w[rows])),
                    np.asarray(w[rows] @ p[rows]),
                    judge_class_equations(y[rows], p[rows], trained, costs.labels, w[rows], noise=noise),
                )
            )
        some = (which[counts], len(names), y[counts], chosen[counts], p[counts])
        tests = _tests(*some, None if sample_weight is None else w[counts], noise, level)
        found.append(ClassGroupComparison(column, tuple(groups), tests))
    return tuple(found)


def _tests(
    which: Index, n_groups: int, y: Index, chosen: Index, p: Array, w: Array | None, noise: float, level: float
) -> tuple[GroupTest, ...]:
    classes = range(p.shape[1])
    right = chosen == y
    shares = (("recall", [y == k for k in classes]), ("precision", [chosen == k for k in classes]))
    found = [(figure, shares_alike(which, n_groups, strata, right, w)) for figure, strata in shares]
    found.append(("calibration", _residuals_alike(which, n_groups, y, p, np.ones(len(y)) if w is None else w, noise)))
    return tuple(GroupTest(figure, p_value, level) for figure, p_value in found)


def _residuals_alike(which: Index, n_groups: int, y: Index, p: Array, w: Array, noise: float) -> float:
    """χ² of the groups' residuals of all classes about what one common error in log-odds would make of them."""
    n_classes, parts = p.shape[1], []
    information, toward = np.zeros((n_classes, n_classes)), np.zeros(n_classes)
    degrees = 0
    for i in range(n_groups):
        rows = which == i
        own, size = p[rows], w[rows]
        residual = np.bincount(y[rows], size, n_classes) - size @ own
        slope, variance = (np.diag(one @ own) - (own * one[:, None]).T @ own for one in (size, size**2))
        known = np.flatnonzero(np.diag(variance) * noise >= FEWEST_ROWS)
        if not len(known):
            continue
        values, vectors = np.linalg.eigh(variance[np.ix_(known, known)] * noise)
        kept = values > 1e-10 * values.max()  # the residuals of all classes sum to zero
        # Residual and slope in units in which the residual varies by 1 in each direction.
        unit = (vectors[:, kept] / np.sqrt(values[kept])).T
        parts.append((unit @ residual[known], unit @ slope[known]))
        information += parts[-1][1].T @ parts[-1][1]
        toward += parts[-1][1].T @ parts[-1][0]
        degrees += int(kept.sum())
    if len(parts) < 2:
        return math.nan
    common, _, rank, _ = np.linalg.lstsq(information, toward, rcond=1e-10)
    degrees -= int(rank)
    if degrees < 1:
        return math.nan
    return chi_square_tail(sum(float(((r - s @ common) ** 2).sum()) for r, s in parts), degrees)
