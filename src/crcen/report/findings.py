"""What a reader must be warned about: checks with stable codes, each with its measure, its limit and what to try."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from crcen.report.evidence import Evidence, kept_by
from crcen.report.finding import Finding, finding
from crcen.report.importance import Importances
from crcen.report.operating_points import OperatingPoints, price_ladder
from crcen.report.reliability_groups import ReliabilityGroup
from crcen.report.shared_checks import dominated, leaks, not_calibrated
from crcen.theory.key_equation import KeyEquation
from crcen.theory.limits import (
    EQUATION_P,
    EXPENSE_Z,
    FEWEST_OF_A_CLASS,
    FEWEST_POSITIVES,
    NEAR_PERFECT_AREA,
    SCORE_DISTANCE,
    SCORE_P,
    SCORE_RANGE,
    SHARE_RATIO,
    SHARE_Z,
    is_nearly_separated,
    judge_share,
    score_slack,
)
from crcen.theory.price import Price
from crcen.theory.rows import effective_totals

__all__ = ["examine"]

Array = NDArray[np.float64]


def examine(
    evidence: Evidence,
    points: OperatingPoints,
    groups: Sequence[ReliabilityGroup],
    equations: Mapping[str, KeyEquation],
    separations: Sequence[tuple[str, float]],
    importances: Importances,
) -> tuple[Finding, ...]:
    """Run every check.

    Parameters
    ----------
    evidence : Evidence
        The model and its rows.
    points : OperatingPoints
        Counts at every price.
    groups : sequence of ReliabilityGroup
        Reliability of the probabilities.
    equations : dict of KeyEquation
        As `crcen.report.measurements.key_equations` gives them.
    separations : sequence of (name, area)
        As `crcen.report.single_columns.separations` gives them.
    importances : Importances
        What each column is worth.

    Returns
    -------
    tuple of Finding
        One for each code, in order.
    """
    return (
        _too_few_positives(evidence),
        _expense_outside(evidence, points),
        not_calibrated([(None, group) for group in groups], evidence.noise_factor, _RECALIBRATE),
        _drift(evidence),
        _separable(evidence, points),
        _leaks(evidence, separations),
        _equation_off(evidence, equations["these_rows"]),
        _training_rows(evidence, equations["these_rows"]),
        dominated(importances, _TOO_FEW if _too_few_to_rank(evidence) else None),
    )


def _too_few_positives(evidence: Evidence) -> Finding:
    here = int(evidence.target.sum())
    measured = f"{here:,} positive rows here"
    few = here < FEWEST_POSITIVES
    if evidence.has_price:
        trained = evidence.weighting.n_pos
        measured += f", {trained:,.6g} in training"
        few = few or trained < FEWEST_POSITIVES
    return finding(
        "CRC001",
        "Too few positive rows",
        few,
        measured,
        f"fewer than {FEWEST_POSITIVES}: recall is then known to no better than about ±14 percentage points",
        "Collect more labelled positives, or judge the model by cross-validation over all rows; read the intervals, "
        "not the figures.",
    )


def _expense_outside(evidence: Evidence, points: OperatingPoints) -> Finding:
    prices = price_ladder(evidence.weighting.cost_ratio, points.n_neg / points.n_pos)
    judged = [points.judge(step, evidence.noise_factor) for step in points.path(prices)]
    judged = [one for one in judged if not math.isnan(one.z)]
    limit = f"more than {EXPENSE_Z:g} standard deviations outside, for a step between two round prices"
    advice = (
        "A catch did not cost what the probabilities say. Fit again with more rows or a stronger penalty, or correct "
        "the probabilities on fresh labelled rows, before relying on a price."
    )
    if not judged:
        return finding(
            "CRC002", "Expense outside its bracket", None, "too few decisions change with the price to tell", limit, ""
        )
    worst = max(judged, key=lambda one: abs(one.z))
    step = worst.step
    between = f"between the prices {step.bracket_low:g} and {step.bracket_high:g}"
    if step.catches > 0.0:
        found = f"{between} a catch cost {step.expense:.3g} false alarms"
    else:
        found = f"{between} {step.delta_fp:,.6g} false alarms were added and no catch"
    measured = f"{found}; that is {abs(worst.z):.1f} standard deviations outside of the bracket"
    if worst.z == 0.0:
        measured = f"all {len(judged)} steps between round prices that can be judged lie in their brackets"
    return finding("CRC002", "Expense outside its bracket", worst.is_beyond_chance, measured, limit, advice)


def _drift(evidence: Evidence) -> Finding:
    title = "These rows differ from the training rows"
    limit = (
        f"a share of positives off by a factor of {SHARE_RATIO:g} and {SHARE_Z:g} standard deviations, or scores whose "
        f"distributions are {SCORE_DISTANCE:g} apart (Kolmogorov–Smirnov), beyond the model's own error"
    )
    if not evidence.has_price:
        return finding("CRC004", title, None, "the model keeps nothing of its training rows", limit, "")
    share = judge_share(*effective_totals(evidence.target, evidence.weights), evidence.weighting)
    is_off = share.has_moved
    measured = (
        f"{100 * share.share:.3g} % positive here, {100 * share.before:.3g} % in training "
        f"({abs(share.z):.1f} standard deviations)"
    )
    kept = _kept_scores(evidence)
    if kept is not None:
        slack = score_slack(evidence.weighting, evidence.training_error)
        cut = partial(_where_it_matters, weighting=evidence.weighting)
        # Folds train on fewer rows, and a model has learnt its own: what differs from both is these rows.
        distance, by_chance = min(_score_distance(cut(before), cut(here), slack) for before, here in kept)
        measured += f"; scores are {distance:.3f} apart from those of training rows, the model's own error allowed for"
        is_off = is_off or (distance >= SCORE_DISTANCE and by_chance < SCORE_P)
    return finding(
        "CRC004",
        title,
        is_off,
        measured,
        limit,
        "Find out what changed: another time, place, selection or measurement. If only the share of positives moved, "
        "shift the probabilities to the new share; otherwise train again with recent rows.",
    )


def _kept_scores(evidence: Evidence) -> list[tuple[Array, Array]] | None:
    """Scores of training rows and of these on one scale, where the model has both.

    Out of fold; and by the whole model, where it keeps a profile of them.
    """
    kept = kept_by(evidence.model, "oof_decision_function_")
    encoded = evidence.encoded
    asked, rows = (evidence.model, evidence.X) if encoded is None else (encoded.estimator, encoded.X)
    if kept is None or not hasattr(asked, "decision_function"):
        return None
    before = np.asarray(kept, dtype=np.float64)
    before = before[np.isfinite(before)]
    if not before.size:
        return None
    found = [(before, np.asarray(asked.decision_function(rows), dtype=np.float64))]
    profile = getattr(evidence.model, "profile_", None)
    if profile is not None and profile.scores and not evidence.is_out_of_fold:
        shift = evidence.weighting.logit_shift
        p = np.clip(evidence.p, _TINY, 1.0 - _TINY)
        found.append((profile.scores[0] + shift, np.log(p) - np.log1p(-p) + shift))
    return found


def _where_it_matters(scores: Array, weighting: Price) -> Array:
    """Scores cut off far beyond the price and the share of positives.

    Of classes that a model separates nearly without an error, two models are sure of the same rows by log-odds of their
    own: at −6 or −9 no decision and hardly a probability is another.
    """
    limit = SCORE_RANGE + abs(math.log(weighting.alpha))
    return np.clip(scores, -limit, limit)


def _score_distance(one: Array, other: Array, slack: float = 0.0) -> tuple[float, float]:
    """Kolmogorov and Smirnov's distance with its asymptotic p-value, where scores within a slack are one.

    Boosted trees give many rows one score: between two models of the same rows a step of the distribution is then as
    far apart as it is high, however near its places are. The distance is that of Lévy at a fixed width.
    """

    def above(one: Array, other: Array) -> float:
        at, there = np.sort(one), np.sort(other)
        here = np.searchsorted(at, at, side="right") / at.size
        return float(np.max(here - np.searchsorted(there, at + slack, side="right") / there.size))

    distance = max(above(one, other), above(other, one), 0.0)
    size = one.size * other.size / (one.size + other.size)
    terms = np.arange(1, 101)
    scaled = distance * (math.sqrt(size) + 0.12 + 0.11 / math.sqrt(size))
    by_chance = 2.0 * float(np.sum((-1.0) ** (terms - 1) * np.exp(-2.0 * (terms * scaled) ** 2)))
    return distance, min(max(by_chance, 0.0), 1.0) if scaled > 0.2 else 1.0


def _too_few_to_rank(evidence: Evidence) -> bool:
    """Whether a few rows that happen to lie right would look like a leak."""
    n_pos = int(evidence.target.sum())
    return min(n_pos, evidence.n_rows - n_pos) < FEWEST_OF_A_CLASS


# Probabilities nearer to 0 and 1 have no log-odds worth comparing.
_TINY = 1e-12
_RECALIBRATE = (
    "Recalibrate on rows that were not used for training; check that these rows have the class ratio of daily use. "
    "A stronger penalty or an average of more networks often helps."
)
_SEPARABLE = ("CRC005", "The classes are separated almost without an error")
_LEAK = "A single column nearly separates the classes"
_TOO_FEW = f"fewer than {FEWEST_OF_A_CLASS} rows of a class are too few to tell"


def _separable(evidence: Evidence, points: OperatingPoints) -> Finding:
    area = points.roc_auc
    if _too_few_to_rank(evidence):
        return finding(*_SEPARABLE, None, _TOO_FEW, f"an area of {NEAR_PERFECT_AREA:g} or more", "")
    without = "without a single error" if area == 1.0 else f"in all but {1.0 - area:.1g} of the pairs"
    return finding(
        *_SEPARABLE,
        is_nearly_separated(area),
        f"area under the ROC curve {area:.5g}" + (f", positive above negative {without}" if area > 0.99 else ""),
        f"an area of {NEAR_PERFECT_AREA:g} or more",
        "Good news only if it is true: look for a column that is filled in after the event, for rows that occur in "
        "training too, and for labels made by a rule. With no errors most prices give the same decisions.",
    )


def _leaks(evidence: Evidence, separations: Sequence[tuple[str, float]]) -> Finding:
    if _too_few_to_rank(evidence):
        return leaks(_LEAK, [], _TOO_FEW, "")
    return leaks(
        _LEAK,
        [(f"“{name}”", area) for name, area in separations],
        "",
        "If it is written after or because of the event, or is an id in order of the outcome, drop it (crcen fit "
        "--drop) and train again.",
    )


def _equation_off(evidence: Evidence, equation: KeyEquation) -> Finding:
    title, limit = "The key equation fails on these rows", f"a p-value below {EQUATION_P:g}"
    if evidence.is_out_of_fold:
        return finding("CRC007", title, None, "the output bias was solved on these out-of-fold rows", limit, "")
    test = evidence.tested(equation)
    if test.reason:
        return finding("CRC007", title, None, test.reason, limit, "")
    return finding(
        "CRC007",
        title,
        test.verdict == "does not hold",
        str(test),
        limit,
        "The network did not keep its balance on new rows: it is overfitted, or the rows come from elsewhere. Use a "
        "stronger penalty, solve the bias on rows held out, or look at CRC004.",
    )


def _training_rows(evidence: Evidence, equation: KeyEquation) -> Finding:
    title = "These look like the training rows"
    if evidence.is_out_of_fold:
        said = "every row was judged by models that did not see it, though the saved model did"
        return finding("CRC008", title, False, said, "answers of a model on its own training rows", "")
    is_balanced = "balanced" in equation.z_reason
    measured = f"residual {equation.residual:.2g}" + (
        ", as only a solve on these rows leaves it" if is_balanced else ""
    )
    is_seen: bool | None = is_balanced
    # Models of tables keep hashes of their training rows.
    known = evidence.model.recognise(evidence.X) if hasattr(evidence.model, "recognise") else None
    if known is not None:
        measured = f"{known.measured}; {measured}"
        is_seen = is_balanced or {"seen": True, "new": False}.get(known.status)
    elif not is_balanced and "out-of-fold" in getattr(getattr(evidence.model, "key_equation_", None), "rows", ""):
        # Solved on rows it had not seen, such a model leaves no trace on those it has.
        measured, is_seen = f"the model keeps no hashes of its training rows; {measured}", None
    return finding(
        "CRC008",
        title,
        is_seen,
        measured,
        "more rows of training than chance allows where rows repeat, or a key equation that holds to the last digits",
        "Write the report on rows that took no part in training (crcen split keeps some apart); nothing on this page "
        "is evidence otherwise.",
    )
