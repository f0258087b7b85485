"""Confidence intervals of shares, ROC areas, costs and, without labels, of class shares; for weights and clusters."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.lazy import optimize, special
from crcen._support.text import json_value
from crcen.theory.rows import Array, Bools, Clusters, Index, effective_rows, normalised

LEVEL = 0.95
_MOST_STEPS = 2_000  # of EM
_PSEUDO_ROWS = 1.92  # half the squared normal quantile, which Wilson's interval adds to hits and to others


class Interval(NamedTuple):
    """An estimate with its confidence limits; NaN if there are no rows."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> "Interval":
        """All three times a positive factor."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def to_dict(self) -> dict[str, float | None]:
        """Plain values, ready for JSON."""
        return {name: json_value(float(value)) for name, value in self._asdict().items()}

    def __str__(self) -> str:
        return "–" if math.isnan(self.value) else f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


UNKNOWN = Interval(math.nan, math.nan, math.nan)


def normal_interval(value: float, error: float) -> Interval:
    """The middle 95 % of a normal value with this standard deviation."""
    return Interval(value, value - 1.96 * error, value + 1.96 * error)


def wilson(share: ArrayLike, size: ArrayLike, level: float = LEVEL) -> tuple[Array, Array]:
    """Wilson's interval of a share of `size` (effective) rows, elementwise; NaN where there are none."""
    s, n, z = np.asarray(share, np.float64), np.asarray(size, np.float64), _quantile(level)
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = s + z**2 / (2.0 * n)
        half = z * np.sqrt(s * (1.0 - s) / n + z**2 / (4.0 * n**2))
        scale = 1.0 + z**2 / n
        low, high = (centre - half) / scale, (centre + half) / scale
    known = (n > 0.0) & ~np.isnan(s)
    # At 0 and 1 rounding would leave a trace.
    low, high = np.where(s == 0.0, 0.0, np.clip(low, 0.0, s)), np.where(s == 1.0, 1.0, np.clip(high, s, 1.0))
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def clopper_pearson(count: ArrayLike, size: ArrayLike, level: float = LEVEL) -> tuple[Array, Array]:
    """Exact interval of a binomial share, elementwise; one-sided bounds at confidence c have ``level=2c − 1``."""
    k, n, tail = np.asarray(count, np.float64), np.asarray(size, np.float64), (1.0 - level) / 2.0
    k, n = np.broadcast_arrays(k, n)
    left = np.maximum(n - k, 0.0)
    low = np.where(k > 0.0, special.betaincinv(np.maximum(k, 1e-300), left + 1.0, tail), 0.0)
    high = np.where(left > 0.0, special.betaincinv(k + 1.0, np.maximum(left, 1e-300), 1.0 - tail), 1.0)
    return np.where(n > 0.0, low, np.nan), np.where(n > 0.0, high, np.nan)


def design_effect(values: Array, weights: Array, clusters: Clusters | None) -> float:
    """Variance of a weighted mean with clusters over that without, at least 1; the largest possible for equal ones."""
    if clusters is None or not weights.any():
        return 1.0
    _, which = np.unique(clusters[weights > 0.0], return_inverse=True)
    w, v = weights[weights > 0.0], values[weights > 0.0]
    which, w = which.ravel(), w / w.max()
    n_clusters = int(which.max()) + 1
    most = float((np.bincount(which, w) ** 2).sum() / (w**2).sum())
    deviation = w * (v - w @ v / w.sum())
    alone = float((deviation**2).sum())
    if n_clusters < 2 or alone <= 1e-24 * float((w**2).sum()):
        return most
    together = float((np.bincount(which, deviation) ** 2).sum()) * n_clusters / (n_clusters - 1.0)
    # The effect is estimated from few clusters: Student's t instead of the normal (Korn and Graubard 1998).
    spread = (_quantile(LEVEL, n_clusters - 1.0) / _quantile(LEVEL)) ** 2
    return float(np.clip(together / alone * spread, 1.0, max(most, 1.0)))


def share_interval(
    hit: Bools, weights: Array | None = None, clusters: Clusters | None = None, *, level: float = LEVEL
) -> Interval:
    """Wilson's interval of the (weighted) share of rows with a hit; rows of one cluster may depend on each other."""
    w = np.ones(len(hit)) if weights is None else weights
    if not w.any():
        return UNKNOWN
    unit = w / w.max()
    share = float(unit[hit].sum() / unit.sum())
    low, high = wilson(share, share_rows(hit, unit) / design_effect(hit.astype(np.float64), w, clusters), level)
    return Interval(share, float(low), float(high))


def share_rows(hit: Bools, w: Array) -> float:
    """Equally weighted rows whose share of hits has the same (linearised) variance; weights may depend on the hit."""
    w = w / w.max()  # the squares of tiny weights are zero
    total = float(w.sum())
    share, squares, usual = float(w[hit].sum()) / total, w**2, float((w**2).sum()) / total
    per_row = 0.0
    for rows, other in ((hit, 1.0 - share), (~hit, share)):
        # The mean weight of a unit of weight; Wilson's 1.92 rows more, as few rows do not show the weights of others.
        own, more = float(w[rows].sum()), _PSEUDO_ROWS * usual
        size = (float(squares[rows].sum()) + more * usual) / (own + more) if own else float(w.max())
        per_row += other * size
    return total / per_row


def share_p_value(count: float, size: float, bound: float) -> float:
    """Exact one-sided p-value of "the share is at most `bound`": P(Bin(size, bound) ≥ count); rows may be effective."""
    return float(special.betainc(count, size - count + 1.0, bound)) if count > 0.0 else 1.0


def auc_interval(
    target: Bools, scores: Array, weights: Array | None = None, clusters: Clusters | None = None
) -> Interval:
    """Area under the ROC curve: DeLong's interval on the logit scale, not shorter than Newcombe's (2006, method 5)."""
    w = np.ones(len(target)) if weights is None else weights
    w_pos, w_neg = np.where(target, w, 0.0), np.where(target, 0.0, w)
    m, n = effective_rows(w_pos), effective_rows(w_neg)
    if not (m and n):
        return UNKNOWN
    w_pos, w_neg = w_pos / w_pos.sum(), w_neg / w_neg.sum()
    # Share of the other class below each row, ties half.
    placement = np.where(target, _below(scores, w_neg), 1.0 - _below(scores, w_pos))
    area = float(w_pos @ placement)
    area = float(round(area)) if min(area, 1.0 - area) < 1e-12 else area
    each, away = w_pos + w_neg, placement - area
    effect = design_effect(placement, each, clusters)
    sizes = [max(size / effect, 1.0) for size in (m, n)]
    low, high = _newcombe(area, sizes[0], sizes[1], _quantile(LEVEL))
    if 0.0 < area < 1.0 and min(sizes) > 1.0:
        variance = spread = 0.0
        for rows, kish, size in zip((target & (w > 0.0), ~target & (w > 0.0)), (m, n), sizes, strict=True):
            # By the jackknife, as a row with a large weight draws the area to itself.
            squares = (each[rows] * away[rows] / (1.0 - each[rows])) ** 2
            part = float(squares.sum()) * (1.0 - 1.0 / kish) ** 2 * size / (size - 1.0) * effect
            # Where weights leave the variance to a few rows, it has fewer degrees of freedom.
            even = effective_rows(squares) / max(effective_rows(away[rows] ** 2), 1.0)
            degrees = min(size - 1.0, (int(rows.sum()) - 1.0) * even / effect)
            variance, spread = variance + part, spread + part**2 / max(degrees, 1e-9)
        freedom = variance**2 / max(spread, 1e-300)
        half = _quantile(LEVEL, max(freedom, 1.0)) * math.sqrt(variance) / (area * (1.0 - area))
        ends = special.expit(special.logit(area) + np.array([-half, half]))
        low, high = min(low, float(ends[0])), max(high, float(ends[1]))
    return Interval(area, low, high)


def _below(scores: Array, weights: Array) -> Array:
    """Weight of rows with a smaller score, plus half of that of equal ones."""
    values, which = np.unique(scores, return_inverse=True)
    mass = np.bincount(which.ravel(), weights, len(values))
    return np.asarray((np.cumsum(mass) - 0.5 * mass)[which.ravel()])


def _newcombe(area: float, m: float, n: float, z: float) -> tuple[float, float]:
    """Areas whose distance from the estimate is within z standard errors of their own."""
    size = (m + n) / 2.0 - 1.0

    def outside(a: float) -> float:
        spread = a * (1.0 - a) * (1.0 + size * (1.0 - a) / (2.0 - a) + size * a / (1.0 + a)) / (m * n)
        return abs(area - a) - z * math.sqrt(max(spread, 0.0))

    low = 0.0 if area == 0.0 else optimize.brentq(outside, 0.0, min(area, 1.0 - 1e-12))
    return float(low), float(1.0 if area == 1.0 else optimize.brentq(outside, max(area, 1e-12), 1.0))


def cost_interval(
    y: Index,
    actions: Index,
    costs: Array,
    weights: Array | None = None,
    clusters: Clusters | None = None,
    *,
    level: float = LEVEL,
) -> Interval:
    """Mean cost of a row at a cost matrix (K, A), by MOVER (Zou and Donner 2008) over exact limits of its cells."""
    w = np.ones(len(y)) if weights is None else weights
    if not len(y) or not w.any():
        return UNKNOWN
    value, shares, coefficients, sizes = _cells(y, actions, costs, w / w.max(), clusters)
    low, high = _mover(value, shares, coefficients, sizes, level)
    paid = costs[:, np.unique(actions)]
    return Interval(value, max(low, float(paid.min())), min(high, float(paid.max())))


def cost_p_value(y: Index, actions: Index, costs: Array, bound: float, clusters: Clusters | None = None) -> float:
    """One-sided p-value of "the mean cost of a row is at least `bound`", from the upper limits of `cost_interval`."""
    if not len(y):
        return 1.0
    cells = _cells(y, actions, costs, np.ones(len(y)), clusters)
    if cells[0] >= bound:
        return 1.0

    def excess(log_p: float) -> float:
        return _mover(*cells, 1.0 - 2.0 * math.exp(log_p))[1] - bound

    least, most = math.log(1e-15), math.log(0.499)
    if excess(least) < 0.0:
        return 1e-15
    return 0.5 if excess(most) > 0.0 else math.exp(optimize.brentq(excess, least, most, xtol=1e-6))


def expected_cost_interval(p: Array, actions: Index, costs: Array, n_rows: float, *, level: float = LEVEL) -> Interval:
    """The cost interval that `n_rows` labelled rows like these would give, by their probabilities p of shape (m, K)."""
    n, n_classes = p.shape
    y = np.tile(np.arange(n_classes), n)  # each row as one of every class, weighted by its probability
    value, shares, coefficients, sizes = _cells(y, np.repeat(actions, n_classes), costs, p.ravel(), None)
    return Interval(value, *_mover(value, shares, coefficients, np.full_like(sizes, n_rows), level))


def _cells(
    y: Index, actions: Index, costs: Array, w: Array, clusters: Clusters | None
) -> tuple[float, Array, Array, Array]:
    """Mean cost; shares, coefficients and effective sizes of cells: (class, cost) pairs off the most frequent cost."""
    paid = costs[y, actions]
    values, which = np.unique(paid, return_inverse=True)
    usual = float(values[np.argmax(np.bincount(which.ravel(), w))])
    total = float(w.sum())
    shares, coefficients, sizes = [], [], []
    for k in range(costs.shape[0]):
        own = y == k
        weight = float(w[own].sum())
        # A class without rows counts as one that weighs as rows do on average.
        size = effective_rows(w[own]) * total / weight if weight > 0.0 else effective_rows(w)
        for cost in np.unique(costs[k, np.unique(actions)]):
            if cost == usual:
                continue
            hit = own & (paid == cost)
            effect = design_effect((hit if hit.any() else own).astype(np.float64), w, clusters)
            shares.append(float(w[hit].sum()) / total)
            coefficients.append(float(cost) - usual)
            sizes.append(min(size, share_rows(hit, w)) / effect)  # the share of the class varies too
    value = usual + float(np.dot(shares, coefficients)) if shares else usual
    return value, np.array(shares), np.array(coefficients), np.array(sizes)


def _mover(value: float, shares: Array, coefficients: Array, sizes: Array, level: float) -> tuple[float, float]:
    if not shares.size:
        return value, value
    low, high = clopper_pearson(shares * sizes, sizes, level)
    below, above = shares - low, high - shares
    rises = coefficients > 0.0
    odds = np.sqrt(shares / np.maximum(1.0 - shares, 1e-12))
    correlation = -np.outer(odds, odds)
    np.fill_diagonal(correlation, 1.0)
    correlation = np.clip(correlation, -1.0, 1.0)
    ends = []
    for part in (np.where(rises, below, above), np.where(rises, above, below)):
        reach = coefficients * part
        ends.append(math.sqrt(max(float(reach @ correlation @ reach), float((reach**2).max()))))
    return value - ends[0], value + ends[1]


def _quantile(level: float, degrees: float | None = None) -> float:
    """Of a normal distribution, or of Student's t with these degrees of freedom."""
    share = (1.0 + level) / 2.0
    return float(special.ndtri(share) if degrees is None else special.stdtrit(degrees, share))


def shifted_probabilities(p: Array, trained: Array, shares: Array) -> Array:
    """Probabilities if the class shares are `shares` instead of those of training: p_k · shares_k / trained_k."""
    return normalised(p * (shares / trained))


def estimate_shares(
    p: Array,
    trained: Array,
    weights: Array | None = None,
    *,
    uncertainty: Array | None = None,
    clusters: Clusters | None = None,
) -> tuple[Interval, ...]:
    """Maximum-likelihood class shares of rows without labels under label shift, with likelihood-ratio intervals.

    By EM (Saerens, Latinne and Decaestecker 2002) from calibrated probabilities (n, K); rows with ``weights`` count as
    their effective number. ``uncertainty`` (K,) is the model's own error in log-odds, which makes the intervals longer.
    So do ``clusters`` of rows that depend on each other: by the design effect of the score of a share.
    """
    before = trained / trained.sum()
    w = np.ones(len(p)) if weights is None else weights * (effective_rows(weights) / weights.sum())
    ratio = p / before
    shares, top = _maximise(ratio, w, before)
    posterior, found = shifted_probabilities(p, before, np.maximum(shares, 1e-12)), []
    for k in range(p.shape[1]):
        drop = float(special.chdtri(1, 1.0 - LEVEL)) / 2.0 * design_effect(posterior[:, k], w, clusters)
        error, ends = 0.0 if uncertainty is None else float(uncertainty[k]), []

        def surplus(value: float, k: int = k, drop: float = drop) -> float:
            return _maximise(ratio, w, shares, (k, value))[1] - top + drop

        for outer, edge in ((0.0, 1e-9), (1.0, 1.0 - 1e-9)):
            is_outer = abs(shares[k] - outer) < 1e-9 or surplus(edge) >= 0.0
            end = outer if is_outer else float(optimize.brentq(surplus, edge, shares[k], xtol=1e-9))
            ends.append(_wider(float(shares[k]), end, error))
        found.append(Interval(float(shares[k]), *ends))
    return tuple(found)


def _maximise(ratio: Array, w: Array, start: Array, fixed: tuple[int, float] | None = None) -> tuple[Array, float]:
    """EM for the shares, optionally with one of them fixed; returns the shares and the log-likelihood."""
    shares, value = start if fixed is None else _with_share(start, *fixed), -math.inf
    for _ in range(_MOST_STEPS if fixed is None or len(start) > 2 else 0):
        total = np.maximum(ratio @ shares, 1e-300)
        new_value = float(w @ np.log(total))
        shares = shares * ((w / total) @ ratio) / w.sum()
        shares = shares if fixed is None else _with_share(shares, *fixed)
        if new_value - value < 1e-9:
            break
        value = new_value
    return shares, float(w @ np.log(np.maximum(ratio @ shares, 1e-300)))


def _with_share(shares: Array, k: int, value: float) -> Array:
    """Shares with that of one class set, and the others in proportion."""
    found = np.where(np.arange(len(shares)) == k, 0.0, shares)
    found = found / found.sum() if found.any() else np.full(len(shares), 1.0 / (len(shares) - 1))
    return np.where(np.arange(len(shares)) == k, value, found * (1.0 - value))


def _wider(value: float, end: float, uncertainty: float) -> float:
    """A limit moved out by the model uncertainty: both distances in log-odds add in squares."""
    if not (0.0 < value < 1.0 and 0.0 < end < 1.0):
        return end
    middle, distance = math.log(value / (1.0 - value)), math.log(end / (1.0 - end))
    reach = math.hypot(distance - middle, math.sqrt(special.chdtri(1, 1.0 - LEVEL)) * uncertainty)
    return 1.0 / (1.0 + math.exp(-middle - math.copysign(reach, distance - middle)))
