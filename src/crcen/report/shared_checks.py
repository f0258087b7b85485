"""Checks that are the same for two classes and for several: calibration, a leak, one column that carries everything."""

from collections.abc import Sequence

from crcen.report.finding import Finding, finding
from crcen.report.importance import Importances
from crcen.report.reliability_groups import ReliabilityGroup
from crcen.theory.limits import (
    CALIBRATION_P,
    CALIBRATION_RATIO,
    DOMINANT_SHARE,
    DOMINANT_SKILL,
    LEAK_AREA,
    count_chance,
    is_dominated,
)

__all__ = ["dominated", "leaks", "not_calibrated"]


def not_calibrated(groups: Sequence[tuple[str | None, ReliabilityGroup]], noise: float, advice: str) -> Finding:
    """CRC003: whether the outcome of a group of rows is not what their probabilities say.

    Parameters
    ----------
    groups : sequence of (label or None, ReliabilityGroup)
        Rows of about one probability of a class; None for the positive one of two.
    noise : float
        How much more they vary than under the truth.
    advice : str
        What to try.
    """

    def by_chance(group: ReliabilityGroup) -> float:
        found, expected = group.observed_positives, group.expected_positives
        variance = ((found - expected) / group.z) ** 2 if group.z else 0.0
        return min(1.0, len(groups) * count_chance(found, expected, variance, noise))

    def is_large(group: ReliabilityGroup) -> bool:
        low, high = sorted((group.observed_positives, group.expected_positives))
        return high > CALIBRATION_RATIO * low

    large = [one for one in groups if is_large(one[1])]
    label, worst = min(large or groups, key=lambda one: by_chance(one[1]))
    # The probability that decides, not a z: one positive where 0.001 were expected has a z of 30 and proves little.
    chance = f"by chance in at most {max(by_chance(worst), 1e-15):.1g} of cases, {len(groups)} groups compared"
    whose, what = ("", " positives") if label is None else (f" for {label}", "")
    return finding(
        "CRC003",
        "Probabilities are not calibrated",
        bool(large) and by_chance(worst) < CALIBRATION_P,
        f"where the model says {worst.mean_p:.3g}{whose} on average, {worst.observed_positives:.4g}{what} were found "
        f"and {worst.expected_positives:.4g} expected "
        f"({chance if large else 'the largest difference, and a small one'})",
        f"a group off by a factor of {CALIBRATION_RATIO:g} or more, by chance in fewer than {CALIBRATION_P:g} of cases",
        advice,
    )


def leaks(title: str, separations: Sequence[tuple[str, float]], unknown: str, advice: str) -> Finding:
    """CRC006: whether one column alone nearly separates classes.

    Parameters
    ----------
    title : str
        What would be wrong.
    separations : sequence of (text, area)
        What a column tells, and the area under its ROC curve.
    unknown : str
        Why it cannot be told, where there are none.
    advice : str
        What to try, after having asked when the column is known.
    """
    limit = f"an area of {LEAK_AREA:g} or more for one column alone"
    if not separations:
        return finding("CRC006", title, None, unknown, limit, "")
    suspects = [one for one in separations if one[1] >= LEAK_AREA]
    shown = suspects or [max(separations, key=lambda one: one[1])]
    listed = ", ".join(f"{text} ({area:.4f})" for text, area in shown[:5])
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return finding(
        "CRC006",
        title,
        bool(suspects),
        f"{'suspects' if suspects else 'the strongest column'} by area under the ROC curve: {listed}{more}",
        limit,
        f"Ask when that column is known. {advice}",
    )


def dominated(importances: Importances, unknown: str | None) -> Finding:
    """CRC009: whether one column nearly alone tells the outcome; ``unknown`` says why it cannot be told."""
    title = "One column carries nearly everything"
    limit = (
        f"{100 * DOMINANT_SHARE:g} % or more of what all columns add, where the log loss is {100 * DOMINANT_SKILL:g} % "
        "or more below that without columns"
    )
    if unknown is None and len(importances.columns) < 2:
        unknown = "the model has one column"
    if unknown is not None:
        return finding("CRC009", title, None, unknown, limit, "")
    first, share = importances.columns[0], importances.share_of_first
    fall = 100.0 * (1.0 - importances.log_loss / importances.base_log_loss)
    where = f"{fall:.0f} % below" if fall >= 0.0 else "above"
    return finding(
        "CRC009",
        title,
        is_dominated(share, importances.log_loss, importances.base_log_loss),
        f"“{first.name}” has {100 * share:.0f} % of what all columns add when shuffled ({first.increase:.3g} of log "
        f"loss), and the log loss is {where} that without columns",
        limit,
        "Ask when that column is known, and fit again without it (crcen fit --drop): if the rest is far weaker, the "
        "column may be written after or because of the event.",
    )
