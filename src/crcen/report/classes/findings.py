"""The checks for models of several classes, under the codes that two classes have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.report.finding import Finding, finding
from crcen.report.group_panel import group_arrays
from crcen.report.importance import Importances
from crcen.report.reliability_groups import ReliabilityGroup, reliability_groups
from crcen.report.shared_checks import dominated, leaks, not_calibrated
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.expense import judge_class_steps, outside_chance
from crcen.theory.groups import GroupComparison, compare_groups
from crcen.theory.key_equation import EquationTest
from crcen.theory.limits import (
    EQUATION_P,
    EXPENSE_P,
    FEWEST_OF_A_CLASS,
    FEWEST_POSITIVES,
    NEAR_PERFECT_AREA,
    SHARE_RATIO,
    SHARE_Z,
    is_nearly_separated,
    judge_class_share,
)
from crcen.theory.metrics import Quality
from crcen.theory.price import Price

__all__ = ["ClassRows", "class_reliability", "compared_groups", "examine_classes"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Answers of a model of several classes on labelled rows.

    Parameters
    ----------
    labels : tuple
        The classes.
    y : int64 array of shape (n,)
        Class numbers.
    p : float64 array of shape (n, K)
        Natural probabilities.
    weights : float64 array of shape (n,)
        What each row counts.
    trained : Price
        The weights that key equations are at, with the counts of the training rows.
    noise : float
        By how much the model's own error raises variances on new rows.
    is_out_of_fold : bool
        Whether p is that of models which did not see these rows, where the model itself did.
    """

    labels: tuple[Any, ...]
    y: NDArray[np.int64]
    p: Array
    weights: Array
    trained: Price
    noise: float = 1.0
    is_out_of_fold: bool = False

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each class."""
        return np.bincount(self.y, minlength=len(self.labels))


def class_reliability(rows: ClassRows) -> tuple[tuple[ReliabilityGroup, ...], ...]:
    """Reliability of the probability of every class."""
    return tuple(reliability_groups(rows.y == k, rows.p[:, k], None, rows.weights) for k in range(len(rows.labels)))


def compared_groups(rows: ClassRows, costs: CostMatrix, groups: Any) -> tuple[GroupComparison, ...]:
    """Groups under these costs, by column; none where none was named."""
    columns = group_arrays(groups, len(rows.y))
    weights = None if (rows.weights == 1.0).all() else rows.weights
    return compare_groups(
        columns,
        rows.y,
        rows.p,
        rows.trained.replace(costs),
        rows.trained,
        weights,
        labels=rows.labels,
        noise=rows.noise,
    )


def examine_classes(
    rows: ClassRows,
    quality: Quality,
    equations: EquationTest,
    recognition: Any = None,
    separations: Sequence[tuple[str, Any, float]] | None = None,
    importances: Importances | None = None,
) -> tuple[Finding, ...]:
    """Run the checks that several classes have.

    Parameters
    ----------
    rows : ClassRows
        The model's answers.
    quality : Quality
        Decisions and rankings.
    equations : EquationTest
        The key equations, tested.
    recognition : Recognition or None
        Whether these are training rows; None where the model cannot know.
    separations : sequence of (column, class, area), optional
        How well each column alone tells the class that it tells best; without it CRC006 is left out.
    importances : Importances, optional
        What each column is worth; without it CRC009 is left out.

    Returns
    -------
    tuple of Finding
        In the order of the codes, CRC001 to CRC009.
    """
    found = [
        _too_few(rows),
        _expense_outside(rows),
        not_calibrated(_by_label(rows), rows.noise, _RECALIBRATE),
        _drift(rows),
        _separable(rows, quality),
        *([] if separations is None else [_leaks(separations)]),
        _equations_off(rows, equations),
        _training_rows(rows, recognition),
        *([] if importances is None else [dominated(importances, None if _can_be_ranked(rows) else _TOO_FEW)]),
    ]
    return tuple(found)


def _by_label(rows: ClassRows) -> list[tuple[str | None, ReliabilityGroup]]:
    pairs = zip(rows.labels, class_reliability(rows), strict=True)
    return [(str(label), group) for label, groups in pairs for group in groups]


_TOO_FEW = f"fewer than {FEWEST_OF_A_CLASS} rows of all classes but one are too few to tell"


def _can_be_ranked(rows: ClassRows) -> bool:
    return int((rows.counts >= FEWEST_OF_A_CLASS).sum()) > 1


def _too_few(rows: ClassRows) -> Finding:
    here, trained = rows.counts, rows.trained.counts
    few = [k for k in range(len(rows.labels)) if min(here[k], trained[k]) < FEWEST_POSITIVES]
    shown = few or [int(np.argmin(here))]
    listed = ", ".join(f"{here[k]:,} of {rows.labels[k]} here, {trained[k]:,.6g} in training" for k in shown[:4])
    more = f", and {len(shown) - 4} more classes" if len(shown) > 4 else ""
    return finding(
        "CRC001",
        "Too few rows of a class",
        bool(few),
        listed + more,
        f"fewer than {FEWEST_POSITIVES}: its recall is then known to no better than about ±14 percentage points",
        "Collect more labelled rows of these classes, or join classes that are decided alike; read the intervals, not "
        "the figures.",
    )


def _expense_outside(rows: ClassRows) -> Finding:
    title = "Expense outside its bracket"
    limit = (
        f"outside by so much in fewer than {EXPENSE_P:g} of cases by chance, for any step that doubles the weight of a "
        "class"
    )
    steps = judge_class_steps(rows.y, rows.p, rows.trained, rows.weights, rows.noise)
    if not steps:
        return finding("CRC002", title, None, "too few decisions change with the weights to tell", limit, "")
    worst = max(steps, key=lambda one: abs(one.z))
    chance = outside_chance(steps)
    label = rows.labels[worst.number]
    cost = f"{worst.price:.3g} in weight of others" if worst.gained else "others and found none"
    measured = (
        f"where the weight of {label} rises from {worst.low:.3g} to {worst.high:.3g}, one more row of it cost {cost}; "
        f"that is {abs(worst.z):.1f} standard deviations outside (by chance in at most {max(chance, 1e-15):.1g} of "
        f"cases, {len(steps)} steps compared)"
    )
    if worst.z == 0.0:
        measured = f"all {len(steps)} steps of the weights of classes that can be judged lie in their brackets"
    return finding(
        "CRC002",
        title,
        chance < EXPENSE_P,
        measured,
        limit,
        "A row found did not cost what the probabilities say. Fit again with more rows or a stronger penalty, or "
        "correct the probabilities on fresh labelled rows, before relying on costs or weights.",
    )


_RECALIBRATE = (
    "Recalibrate on rows that were not used for training; check that these rows have the shares of daily use. A "
    "stronger penalty or an average of more networks often helps."
)


def _drift(rows: ClassRows) -> Finding:
    size = float(rows.weights.sum() ** 2 / (rows.weights**2).sum())  # unequal weights tell as much as fewer equal ones
    share = np.bincount(rows.y, rows.weights, len(rows.labels)) / rows.weights.sum()
    tests = [
        judge_class_share(size * share[k], size, float(rows.trained.counts[k]), float(rows.trained.counts.sum()))
        for k in range(len(rows.labels))
    ]
    moved = [k for k, test in enumerate(tests) if test.has_moved]
    shown = moved or [max(range(len(tests)), key=lambda k: abs(tests[k].z))]
    listed = ", ".join(
        f"{rows.labels[k]} {100 * tests[k].share:.3g} % here and {100 * tests[k].before:.3g} % in training "
        f"({abs(tests[k].z):.1f} standard deviations)"
        for k in shown[:4]
    )
    return finding(
        "CRC004",
        "These rows differ from the training rows",
        bool(moved),
        listed,
        f"a share of a class off by a factor of {SHARE_RATIO:g} and {SHARE_Z:g} standard deviations",
        "Find out what changed: another time, place, selection or measurement. If only the shares moved, shift the "
        "probabilities to the new shares; otherwise train again with recent rows.",
    )


def _separable(rows: ClassRows, quality: Quality) -> Finding:
    title, limit = "The classes are separated almost without an error", f"areas of {NEAR_PERFECT_AREA:g} or more"
    ranked = [k for k, n in enumerate(rows.counts) if n >= FEWEST_OF_A_CLASS]
    if not ranked:
        return finding("CRC005", title, None, f"no class has {FEWEST_OF_A_CLASS} rows", limit, "")
    worst = min(ranked, key=lambda k: quality.areas[k].value)
    area = quality.areas[worst].value
    return finding(
        "CRC005",
        title,
        is_nearly_separated(area),
        f"the class that is hardest to tell is {rows.labels[worst]}, with an area under the ROC curve of {area:.5g}",
        limit,
        "Good news only if it is true: look for a column that is filled in after the event, for rows that occur in "
        "training too, and for labels made by a rule.",
    )


def _leaks(separations: Sequence[tuple[str, Any, float]]) -> Finding:
    return leaks(
        "A single column nearly separates a class",
        [(f"“{name}” for {label}", area) for name, label, area in separations],
        "no column can be ranked",
        "If it is written after or because of the event, drop it (crcen fit --drop) and train again.",
    )


def _equations_off(rows: ClassRows, equations: EquationTest) -> Finding:
    title, limit = "The key equations fail on these rows", f"a joint p-value below {EQUATION_P:g}"
    if rows.is_out_of_fold:
        return finding("CRC007", title, None, "the output biases were solved on these out-of-fold rows", limit, "")
    joint = equations.joint
    if joint.reason:
        return finding("CRC007", title, None, joint.reason, limit, "")
    worst = max((one for one in equations.classes if one.is_tested), key=lambda one: abs(one.z))
    more = "more" if worst.z > 0.0 else "less"
    return finding(
        "CRC007",
        title,
        equations.verdict == "does not hold",
        f"{joint}; most off is {worst.label}, {more} frequent than stated (z = {worst.z:.1f})",
        limit,
        "The model did not keep its balance on new rows: it is overfitted, or the rows come from elsewhere. Use a "
        "stronger penalty, or look at CRC004.",
    )


def _training_rows(rows: ClassRows, recognition: Any) -> Finding:
    title = "These look like the training rows"
    limit = "more rows of training than chance allows where rows repeat"
    if rows.is_out_of_fold:
        said = "every row was judged by models that did not see it, though the saved model did"
        return finding("CRC008", title, False, said, limit, "")
    if recognition is None:
        return finding("CRC008", title, None, "the model keeps no hashes of its training rows", limit, "")
    return finding(
        "CRC008",
        title,
        {"seen": True, "new": False}.get(recognition.status),
        recognition.measured,
        limit,
        "Judge it on rows that took no part in training (crcen split keeps some apart); nothing here is evidence "
        "otherwise.",
    )
