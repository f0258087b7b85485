"""Sample-size planning: labels for drift, for a recall bound and for a cost interval; audits."""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, norm

from crcen.exceptions import InvalidParameter
from crcen.theory.intervals import LEVEL, clopper_pearson, expected_cost_interval
from crcen.theory.residual_test import residual_values, variance_of
from crcen.theory.rows import Array, Bools, Index
from crcen.theory.selective import audit_probabilities, betting_bound

_MOST_POSITIVES = 1_000_000
_SIMULATIONS = 100


def _check_shares(**shares: float) -> None:
    for name, value in shares.items():
        if not 0.0 < value < 1.0:
            raise InvalidParameter(f"{name} must lie between 0 and 1, got {value:g}")


def _information(p: Array, weights: Array, k: int) -> float:
    """Information about a drift of class k per row: j = (Σhv)² / (m Σh²v)."""
    values = residual_values(p, weights, k)
    variance = variance_of(values, p)
    return float(p[:, k] @ values[:, k]) ** 2 / (len(p) * variance) if variance > 0.0 else 0.0


def labels_for_drift(
    p: Array, weights: Array, k: int, drift: float, *, power: float = 0.8, level: float = 0.05, uncertainty: float = 0.0
) -> float:
    """Labelled rows with which the residual test finds a drift d: n = 1 / (j[(d / (z_{1−α/2} + z_power))² − σ²])."""
    _check_shares(power=power, level=level)
    if not (math.isfinite(drift) and drift != 0.0):
        raise InvalidParameter(f"drift must be a finite number other than 0, got {drift:g}", parameter="drift")
    information = _information(p, weights, k)
    room = (drift / float(norm.isf(level / 2.0) + norm.ppf(power))) ** 2 - uncertainty**2
    return math.ceil(1.0 / (information * room)) if room > 0.0 and information > 0.0 else math.inf


def smallest_drift(
    p: Array, weights: Array, k: int, n: float, *, power: float = 0.8, level: float = 0.05, uncertainty: float = 0.0
) -> float:
    """The drift that n labelled rows detect with this power, the inverse of `labels_for_drift`."""
    information = _information(p, weights, k)
    spread = math.sqrt(1.0 / (information * n) + uncertainty**2) if information > 0.0 else math.inf
    return float(norm.isf(level / 2.0) + norm.ppf(power)) * spread


def positives_for_recall_bound(
    bound: float, recall: float, *, confidence: float = LEVEL, power: float = 0.8
) -> tuple[int, int]:
    """Positives needed, and how many must be found, for an exact lower bound below the expected ``recall``."""
    _check_shares(bound=bound, confidence=confidence, power=power)
    if not bound < recall <= 1.0:
        raise InvalidParameter(f"the expected recall, {recall:g}, must be above the bound {bound:g} and at most 1")
    start, chunk = 1, 256
    while start <= _MOST_POSITIVES:
        n = np.arange(start, start + chunk)
        needed = binom.isf(1.0 - confidence, n, bound) + 1.0  # smallest k with P(Bin(n, bound) ≥ k) ≤ 1 − confidence
        passes = np.flatnonzero((needed <= n) & (binom.sf(needed - 1.0, n, recall) >= power))
        if len(passes):
            return int(n[passes[0]]), int(needed[passes[0]])
        start, chunk = start + chunk, 2 * chunk
    raise InvalidParameter(
        f"a recall of {recall:g} is too near to the bound {bound:g}: more than {_MOST_POSITIVES:,} positives are needed"
    )


def labels_for_recall_bound(
    bound: float, recall: float, prevalence: float, *, confidence: float = LEVEL, power: float = 0.8
) -> int:
    """Labelled rows for an exact lower bound on recall, the number of positives among them being random."""
    positives, _ = positives_for_recall_bound(bound, recall, confidence=confidence, power=power)
    _check_shares(prevalence=prevalence)
    counts = np.arange(2 * positives + 50)
    needed = binom.isf(1.0 - confidence, counts, bound) + 1.0
    passes = np.where(needed <= counts, binom.sf(needed - 1.0, counts, recall), 0.0)

    def surplus(log_rows: float) -> float:
        return float(binom.pmf(counts, round(math.exp(log_rows)), prevalence) @ passes) - power

    start = math.log(positives / prevalence)
    low, high = start - 0.3, start + 0.3
    while surplus(high) < 0.0 and high < start + 0.6:
        high += 0.1
    if surplus(low) >= 0.0 or surplus(high) < 0.0:
        return math.ceil(math.exp(low if surplus(low) >= 0.0 else high))
    return math.ceil(math.exp(brentq(surplus, low, high, xtol=1e-4)))


def labels_for_cost_width(p: Array, actions: Index, costs: Array, width: float, *, level: float = LEVEL) -> float:
    """Labelled rows with which the cost interval of decisions like these is expected to have this width.

    Infinite beyond 10¹⁵ rows.
    """
    if not (math.isfinite(width) and width > 0.0):
        raise InvalidParameter(f"the width of the interval must be above 0, got {width:g}")

    def excess(log_rows: float) -> float:
        found = expected_cost_interval(p, actions, costs, math.exp(log_rows), level=level)
        return found.high - found.low - width

    return smallest_size(excess, 1e15)


def smallest_size(excess: Callable[[float], float], most: float) -> float:
    """The smallest number of rows n with excess(log n) ≤ 0, for a falling function; infinite beyond ``most``."""
    if excess(0.0) <= 0.0:
        return 1
    top = math.log(most)
    return math.ceil(math.exp(brentq(excess, 0.0, top, xtol=1e-6))) if excess(top) <= 0.0 else math.inf


def audits_for_recall_bound(
    chance: Array,
    quiet: Bools,
    scores: Array,
    bound: float,
    *,
    n_other: float = 0.0,
    confidence: float = LEVEL,
    power: float = 0.8,
    seed: int = 0,
) -> float:
    """Audits with which the lower bound on recall reaches ``bound`` with this power, by simulation; maybe infinite.

    ``chance`` is the probability of the class in rows that are decided for it or ``quiet``, and 0 in others, among
    which ``n_other`` rows of the class are expected.
    """
    _check_shares(bound=bound, confidence=confidence, power=power)
    rng, n_quiet, own = np.random.default_rng(seed), int(quiet.sum()), chance[quiet]
    caught = rng.poisson(float(chance[~quiet].sum()), _SIMULATIONS)
    missed, total = rng.poisson(float(own.sum()), _SIMULATIONS), float(own.sum())
    allowed = caught * (1.0 / bound - 1.0) - rng.poisson(n_other, _SIMULATIONS)
    places = [rng.choice(n_quiet, size, p=own / total) if size else np.zeros(0, np.int64) for size in missed]
    luck = [rng.random(len(place)) for place in places]
    is_uniform = bool(np.ptp(scores[quiet]) == 0.0) if n_quiet else True

    def reached(n_audits: float) -> float:
        e = audit_probabilities(scores, quiet, n_audits)[quiet]
        least, hits = float(e.min()), 0
        for place, u, most in zip(places, luck, allowed, strict=True):
            found = e[place][u < e[place]]
            if is_uniform:
                upper = n_quiet * float(clopper_pearson(len(found), n_audits, 2.0 * confidence - 1.0)[1])
            else:
                upper = betting_bound(least, found, float(n_quiet), 1.0 - confidence)
            hits += upper <= most
        return hits / _SIMULATIONS - power

    if not n_quiet or float((missed <= allowed).mean()) < power:
        return math.inf
    low, high = 1.0, float(n_quiet)
    while high > low * 1.01 + 1.0:  # nearly monotone in the number of audits
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(middle) >= 0.0 else (middle, high)
    return math.ceil(high)
