"""Selective labels: audits of rows without an alarm, drawn with known probabilities e; estimates weighted by 1/e."""

import math
from typing import NamedTuple

import numpy as np

from crcen._support.lazy import optimize, special, stats
from crcen.exceptions import InvalidParameter
from crcen.theory.intervals import LEVEL, UNKNOWN, Interval, clopper_pearson
from crcen.theory.rows import Array, Bools, Hashes, Index, effective_rows, normalised

# Smallest audit probability as a share of equal probabilities: most of Neyman's gain, and bounds that stay short.
AUDIT_FLOOR = 0.7
_MOST_STRATA = 3
# Betting against too many missed positives: decay of the likelihood per missed positive, relative to the smallest e.
_BETS = np.array([0.97, 0.8, 0.6, 0.45, 0.3, 0.2, 0.12, 0.07, 0.04, 0.02])
_LOG_STAKES = -np.log(np.arange(1.0, 11.0) * (1.0 / np.arange(1.0, 11.0)).sum())  # most on few found positives


def audit_scores(p: Array, weights: Array) -> Array:
    """Standard deviation of each row's residuals, √Σ_k Var(w_y(1{y = k} − q_k)): Neyman's allocation of audits."""
    q = normalised(p * weights)
    distance = 1.0 - 2.0 * q + (q**2).sum(axis=1, keepdims=True)  # |e_j − q|²
    return np.asarray(np.sqrt(np.maximum((p * weights**2 * distance).sum(axis=1), 0.0)))


def audit_probabilities(scores: Array, quiet: Bools, n_audits: float, *, floor: float = AUDIT_FLOOR) -> Array:
    """Probabilities for ``n_audits``: 1 for alarms, by score for other rows, not below a share of equal ones."""
    n_quiet = int(quiet.sum())
    if not (n_audits > 0.0 and 0.0 < floor <= 1.0):
        raise InvalidParameter(f"audits need a number above 0 and a floor in (0, 1], got {n_audits:g} and {floor:g}")
    found = np.ones(len(scores))
    if not n_quiet or n_audits >= n_quiet:
        return found
    own, least = scores[quiet], floor * n_audits / n_quiet
    own = np.maximum(own / own.max(), 1e-100) if own.any() else np.ones(n_quiet)  # scores of 0 come last

    def surplus(log_scale: float) -> float:
        return float(np.clip(math.exp(log_scale) * own, least, 1.0).sum()) - n_audits

    low, high = (math.log(n_audits / own.sum()) + reach for reach in (-300.0, 300.0))
    log_scale = optimize.brentq(surplus, low, high, xtol=1e-13) if surplus(low) < 0.0 else low
    found[quiet] = np.clip(math.exp(log_scale) * own, least, 1.0)
    return found


def mixed_bits(values: Hashes) -> Hashes:
    """Splitmix64: every bit of the result depends on every bit of the value."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def row_hash(keys: Hashes, seed: int) -> Array:
    """A number in [0, 1) for each key, the same for the same seed and key in any order."""
    start = (int(seed) * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & 0xFFFFFFFFFFFFFFFF
    bits = mixed_bits(mixed_bits(keys.astype(np.uint64) + np.uint64(start)))  # twice: neighbours must not be related
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def audit_draws(keys: Hashes, e: Array, seed: int) -> Bools:
    """Independent draws with probabilities e; the same seed and row key give the same draw."""
    return np.asarray(row_hash(keys, seed) < e)


def missed_bound(e_quiet: Array, audited: Bools, hit: Bools, confidence: float = LEVEL) -> float:
    """Upper confidence bound on the hits among all rows without an alarm, from those found by audits; for any labels.

    Up to three distinct probabilities: N · Clopper–Pearson's bound in each stratum, Bonferroni over strata. Otherwise a
    mixture of bets over θ: with T hits the mean of Π_found(1 − θ·min e/e_i)·(1 − θ·min e)^−T is 1.
    """
    n, found = len(e_quiet), audited & hit
    if not n:
        return 0.0
    most = float(n - int((audited & ~hit).sum()))
    distinct, strata = np.unique(e_quiet, return_inverse=True)
    alpha, strata = 1.0 - confidence, strata.ravel()
    if len(distinct) <= _MOST_STRATA:
        sizes, drawn, hits = (np.bincount(strata, rows, len(distinct)) for rows in (None, audited, found))
        _, share = clopper_pearson(hits, drawn, 1.0 - 2.0 * alpha / len(sizes))
        return min(float((sizes * np.where(drawn > 0, share, 1.0)).sum()), most)
    return betting_bound(float(e_quiet.min()), e_quiet[found], most, alpha)


def betting_bound(least: float, e_found: Array, most: float, alpha: float) -> float:
    """The bound of `missed_bound` for unequal probabilities, from the smallest one and those of the rows found."""
    if least <= 0.0:
        return most
    step = np.log1p(-_BETS * least)
    lost = _LOG_STAKES + np.log1p(-np.outer(_BETS, least / e_found)).sum(axis=1) + math.log(alpha)

    def log_capital(total: float) -> float:
        return float(special.logsumexp(lost - total * step))

    start = float(len(e_found))
    if log_capital(most) < 0.0:
        return most
    return start if log_capital(start) >= 0.0 else float(optimize.brentq(log_capital, start, most))


def recall_bounds(
    y: Index, actions: Index, e: Array, default: int, n_classes: int, confidence: float = LEVEL
) -> tuple[Array, Array]:
    """Lower bound on the recall of each class, and upper bound on its missed rows, both (n_classes,).

    ``y`` is −1 without a label, ``e`` the audit probability (1 for alarms), ``default`` the action without an alarm.
    Recall is TP / (TP + FN + U), where U bounds the rows of the class among rows without an alarm.
    """
    quiet, labelled = actions == default, y >= 0
    e_quiet, audited, recalls, missed = e[quiet], labelled[quiet], np.full(n_classes, np.nan), np.zeros(n_classes)
    for k in range(n_classes):
        among_alarms = ~quiet & (y == k)
        if k == default:
            right = float(quiet.sum()) - missed_bound(e_quiet, audited, y[quiet] != k, confidence)
            missed[k] = float(among_alarms.sum())
        else:
            right = float((among_alarms & (actions == k)).sum())
            missed[k] = float(among_alarms.sum()) - right + missed_bound(e_quiet, audited, y[quiet] == k, confidence)
        recalls[k] = right / (right + missed[k]) if right + missed[k] > 0.0 else math.nan
    return recalls, missed


def audited_cost(y: Index, actions: Index, p: Array, costs: Array, e: Array, default: int) -> Interval:
    """Doubly robust mean cost (1/n) Σ[m + A/e·(ℓ − m)], m = Σ_k p_k·cost (Robins, Rotnitzky and Zhao 1994).

    MOVER with exact limits of the cells of alarms and gamma limits of the other rows (Fay and Feuer 1997).
    """
    labelled, quiet = y >= 0, actions == default
    counts_now = labelled | quiet  # alarms without a label are left out
    n = int(counts_now.sum())
    if not n:
        return UNKNOWN
    expected = np.einsum("nk,nk->n", p, costs[:, actions].T)
    paid = costs[np.maximum(y, 0), actions]
    value = float((expected + np.where(labelled, (paid - expected) / e, 0.0))[counts_now].sum()) / n
    below = above = 0.0
    usual = float(costs[default, default]) if default < len(costs) else float(costs[:, default].min())
    largest = 1.0 / float(e[quiet].min()) if quiet.any() else 1.0
    for k in range(len(costs)):
        for action in np.unique(actions):
            coefficient = float(costs[k, action]) - usual
            if coefficient == 0.0:
                continue
            hit = labelled & (y == k) & (actions == action)
            if action == default:
                reach = _gamma_reach(1.0 / e[hit], largest)
            else:
                count = float(hit.sum())
                low, high = clopper_pearson(count, n)
                reach = count - n * float(low), n * float(high) - count
            down, up = reach if coefficient > 0.0 else reach[::-1]
            below, above = below + (coefficient * down) ** 2, above + (coefficient * up) ** 2
    return Interval(value, max(value - math.sqrt(below) / n, float(costs.min())), value + math.sqrt(above) / n)


def _gamma_reach(weights: Array, largest: float) -> tuple[float, float]:
    """Distances from a sum of weights of a Poisson number of rows to its limits (Fay and Feuer 1997)."""
    total, squares = float(weights.sum()), float((weights**2).sum())
    chdtri, top, variance = special.chdtri, total + largest, squares + largest**2
    low = squares / (2.0 * total) * float(chdtri(2.0 * total**2 / squares, (1.0 + LEVEL) / 2.0)) if total else 0.0
    return total - low, variance / (2.0 * top) * float(chdtri(2.0 * top**2 / variance, (1.0 - LEVEL) / 2.0)) - total


def clipped_weights(weights: Array) -> tuple[Array, float]:
    """Weights cut so that the effective sample size is at least half of the rows; and the cut, maybe infinite."""
    least = 0.5 * len(weights)
    if effective_rows(weights) >= least:
        return weights, math.inf

    def surplus(cut: float) -> float:
        return effective_rows(np.minimum(weights, cut)) - least

    low = float(weights[weights > 0.0].min())
    if surplus(low) <= 0.0:
        return np.minimum(weights, low), low
    cut = float(optimize.brentq(surplus, low, float(weights.max()), xtol=1e-9 * low))
    return np.minimum(weights, cut), cut


class LabelSelection(NamedTuple):
    """Whether labels are missing depending on the score."""

    n_missing: int  # rows without a label
    alarm_share: float  # share of alarms with a label; NaN without alarms
    quiet_share: float  # share of quiet rows with a label; NaN without quiet rows
    p_value: float  # of equal scores with and without a label (Mann–Whitney, normal approximation)

    @property
    def is_alarms_only(self) -> bool:
        """Whether (nearly) only rows with an alarm have labels, so that recall cannot be estimated."""
        return self.n_missing > 0 and self.quiet_share < 0.01 * self.alarm_share


def label_selection(labelled: Bools, scores: Array, alarms: Bools) -> LabelSelection:
    """Compare the scores of rows with and without a label."""
    with_alarm, quiet = (float(labelled[rows].mean()) if rows.any() else math.nan for rows in (alarms, ~alarms))
    p_value = 1.0 if labelled.any() and not labelled.all() else math.nan
    if p_value == 1.0 and np.ptp(scores) > 0.0:
        test = stats.mannwhitneyu(scores[labelled], scores[~labelled], use_continuity=False, method="asymptotic")
        p_value = float(test.pvalue)
    return LabelSelection(int((~labelled).sum()), with_alarm, quiet, p_value)
