"""The checks for models of several classes, under the codes that two classes have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.report.findings import Finding
from crcen.report.reliability_groups import ReliabilityGroup, reliability_groups
from crcen.theory.classes.class_quality import ClassQuality
from crcen.theory.classes.class_weights import ClassWeights
from crcen.theory.classes.judged_equations import JudgedEquations
from crcen.theory.judgements import (
    CALIBRATION_P,
    CALIBRATION_RATIO,
    EQUATION_P,
    FEWEST_OF_A_CLASS,
    FEWEST_POSITIVES,
    LEAK_AREA,
    NEAR_PERFECT_AREA,
    SHARE_RATIO,
    SHARE_Z,
    count_chance,
    is_nearly_separated,
    judge_class_share,
)

__all__ = ["ClassRows", "class_reliability", "examine_classes"]

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
    trained : ClassWeights
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
    trained: ClassWeights
    noise: float = 1.0
    is_out_of_fold: bool = False

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each class."""
        return np.bincount(self.y, minlength=len(self.labels))


def class_reliability(rows: ClassRows) -> tuple[tuple[ReliabilityGroup, ...], ...]:
    """Reliability of the probability of every class."""
    return tuple(reliability_groups(rows.y == k, rows.p[:, k], None, rows.weights) for k in range(len(rows.labels)))


def examine_classes(
    rows: ClassRows,
    quality: ClassQuality,
    equations: JudgedEquations,
    recognition: Any = None,
    separations: Sequence[tuple[str, Any, float]] | None = None,
) -> tuple[Finding, ...]:
    """Run the checks that several classes have.

    Parameters
    ----------
    rows : ClassRows
        The model's answers.
    quality : ClassQuality
        Decisions and rankings.
    equations : JudgedEquations
        The key equations, tested.
    recognition : Recognition or None
        Whether these are training rows; None where the model cannot know.
    separations : sequence of (column, class, area), optional
        How well each column alone tells the class that it tells best; without it CRC006 is left out.

    Returns
    -------
    tuple of Finding
        In the order of the codes. CRC002, CRC009 and CRC010 are for two classes.
    """
    found = [
        _too_few(rows),
        _not_calibrated(rows),
        _drift(rows),
        _separable(rows, quality),
        *([] if separations is None else [_leaks(separations)]),
        _equations_off(rows, equations),
        _training_rows(rows, recognition),
    ]
    return tuple(found)


def _finding(code: str, title: str, is_warning: bool | None, measured: str, limit: str, advice: str) -> Finding:
    status = {True: "warning", False: "passed", None: "unknown"}[is_warning]
    return Finding(code, title, status, measured, limit, advice)


def _too_few(rows: ClassRows) -> Finding:
    here, trained = rows.counts, rows.trained.counts
    few = [k for k in range(len(rows.labels)) if min(here[k], trained[k]) < FEWEST_POSITIVES]
    shown = few or [int(np.argmin(here))]
    listed = ", ".join(f"{here[k]:,} of {rows.labels[k]} here, {trained[k]:,.6g} in training" for k in shown[:4])
    more = f", and {len(shown) - 4} more classes" if len(shown) > 4 else ""
    return _finding(
        "CRC001",
        "Too few rows of a class",
        bool(few),
        listed + more,
        f"fewer than {FEWEST_POSITIVES}: its recall is then known to no better than about ±14 percentage points",
        "Collect more labelled rows of these classes, or join classes that are decided alike; read the intervals, not "
        "the figures.",
    )


def _not_calibrated(rows: ClassRows) -> Finding:
    groups = [(k, group) for k, some in enumerate(class_reliability(rows)) for group in some]

    def by_chance(one: tuple[int, ReliabilityGroup]) -> float:
        group = one[1]
        found, expected = group.observed_positives, group.expected_positives
        variance = ((found - expected) / group.z) ** 2 if group.z else 0.0
        return min(1.0, len(groups) * count_chance(found, expected, variance, rows.noise))

    def is_large(one: tuple[int, ReliabilityGroup]) -> bool:
        low, high = sorted((one[1].observed_positives, one[1].expected_positives))
        return high > CALIBRATION_RATIO * low

    large = [one for one in groups if is_large(one)]
    worst = min(large or groups, key=by_chance)
    k, group = worst
    chance = f"by chance in at most {max(by_chance(worst), 1e-15):.1g} of cases, {len(groups)} groups compared"
    return _finding(
        "CRC003",
        "Probabilities are not calibrated",
        bool(large) and by_chance(worst) < CALIBRATION_P,
        f"where the model says {group.mean_p:.3g} for {rows.labels[k]} on average, {group.observed_positives:.4g} were "
        f"found and {group.expected_positives:.4g} expected "
        f"({chance if large else 'the largest difference, and a small one'})",
        f"a group off by a factor of {CALIBRATION_RATIO:g} or more, by chance in fewer than {CALIBRATION_P:g} of cases",
        "Recalibrate on rows that were not used for training; check that these rows have the shares of daily use. A "
        "stronger penalty or an average of more networks often helps.",
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
    return _finding(
        "CRC004",
        "These rows differ from the training rows",
        bool(moved),
        listed,
        f"a share of a class off by a factor of {SHARE_RATIO:g} and {SHARE_Z:g} standard deviations",
        "Find out what changed: another time, place, selection or measurement. If only the shares moved, shift the "
        "probabilities to the new shares; otherwise train again with recent rows.",
    )


def _separable(rows: ClassRows, quality: ClassQuality) -> Finding:
    title, limit = "The classes are separated almost without an error", f"areas of {NEAR_PERFECT_AREA:g} or more"
    ranked = [k for k, n in enumerate(rows.counts) if n >= FEWEST_OF_A_CLASS]
    if not ranked:
        return _finding("CRC005", title, None, f"no class has {FEWEST_OF_A_CLASS} rows", limit, "")
    worst = min(ranked, key=lambda k: float(quality.areas[k]))
    area = float(quality.areas[worst])
    return _finding(
        "CRC005",
        title,
        is_nearly_separated(area),
        f"the class that is hardest to tell is {rows.labels[worst]}, with an area under the ROC curve of {area:.5g}",
        limit,
        "Good news only if it is true: look for a column that is filled in after the event, for rows that occur in "
        "training too, and for labels made by a rule.",
    )


def _leaks(separations: Sequence[tuple[str, Any, float]]) -> Finding:
    suspects = [one for one in separations if one[2] >= LEAK_AREA]
    shown = suspects or sorted(separations, key=lambda one: -one[2])[:1]
    listed = ", ".join(f"“{name}” for {label} ({area:.4f})" for name, label, area in shown[:5])
    return _finding(
        "CRC006",
        "A single column nearly separates a class",
        bool(suspects) if separations else None,
        f"{'suspects' if suspects else 'the strongest column'} by area under the ROC curve: {listed}"
        if separations
        else "no column can be ranked",
        f"an area of {LEAK_AREA:g} or more for one column alone",
        "Ask when that column is known. If it is written after or because of the event, drop it (crcen fit --drop) and "
        "train again.",
    )


def _equations_off(rows: ClassRows, equations: JudgedEquations) -> Finding:
    title, limit = "The key equations fail on these rows", f"a joint p-value below {EQUATION_P:g}"
    if rows.is_out_of_fold:
        return _finding("CRC007", title, None, "the output biases were solved on these out-of-fold rows", limit, "")
    joint = equations.joint
    if joint.reason:
        return _finding("CRC007", title, None, joint.reason, limit, "")
    worst = max((one for one in equations.classes if one.is_tested), key=lambda one: abs(one.z))
    more = "more" if worst.z > 0.0 else "less"
    return _finding(
        "CRC007",
        title,
        equations.verdict == "do not hold",
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
        return _finding("CRC008", title, False, said, limit, "")
    if recognition is None:
        return _finding("CRC008", title, None, "the model keeps no hashes of its training rows", limit, "")
    return _finding(
        "CRC008",
        title,
        {"seen": True, "new": False}.get(recognition.status),
        recognition.measured,
        limit,
        "Judge it on rows that took no part in training (crcen split keeps some apart); nothing here is evidence "
        "otherwise.",
    )
