"""The limit of every check, in one table, and the small tests that several folders share."""

import math
from dataclasses import dataclass

import numpy as np

from crcen._support.lazy import optimize, special
from crcen.theory.intervals import design_effect, share_rows
from crcen.theory.price import Price
from crcen.theory.residual_test import two_sided
from crcen.theory.rows import Array, Bools, Clusters, Index, effective_rows

FEWEST_POSITIVES = 50  # fewer positive rows leave recall uncertain by more than 14 percentage points
FEWEST_OF_A_CLASS = 10  # fewer rows of a class are too few for any test or ranking
EXPENSE_Z = 3.0  # an expense this many standard deviations outside its bracket is not chance
EXPENSE_P = 0.003  # with several classes there are many steps: the probability that any of them is that far outside
LEAST_VARIANCE = 5.0  # below this variance of the number of catches the normal distribution does not apply
CALIBRATION_P, CALIBRATION_RATIO = 0.0001, 1.25  # probability by chance of a group that is off by this factor
SHARE_Z, SHARE_RATIO = 4.0, 1.25  # the share of positives moved by this many standard deviations and by this factor
SCORE_DISTANCE, SCORE_P = 0.1, 0.001  # Kolmogorov–Smirnov distance of scores, and its probability by chance
SCORE_RANGE = 4.0  # scores further than this in log-odds beyond the price and the share of positives count as equal
SCORE_ERRORS = 2.0  # out-of-fold scores are by other models: moved by this many errors of the model they are the same
EQUATION_P = 0.001  # the key equation fails if chance explains the residual with a lower probability
UNMEASURED = 2.0  # unmeasured variance of a model's mean log-odds, over what its number of labels alone leaves
LEAK_AREA, NEAR_PERFECT_AREA = 0.99, 0.999  # ROC area from which a column, and the whole model, suggest a leak
SWAPPED_SHARE, SWAPPED_P = 0.2, 0.001  # share of labels that fit as if swapped, and its error rate over all pairs
_SWAP_RANGE, _LEAST_SLOPE = 5.0, 1.0 / 3.0  # log-odds beyond this are equal; least slope of labels without a swap
# A column dominates if it has this share of the importance of all columns and the log loss fell by this share. A strong
# honest column (a balance for default, age for death) has the first and not the second.
DOMINANT_SHARE, DOMINANT_SKILL = 0.8, 0.6
# False alarm rate of a monitor over the whole stream, the drift in log-odds that it is tuned for, and the part of the
# rate that checks of columns use.
FALSE_ALARM_RATE, DRIFT_SCALE, WATCHED_COLUMNS_PART = 0.05, 0.3, 0.5
# Labels arrive in an order that depends on them if pieces of the stream are off by this many standard deviations, in
# alternating directions this many times: a real change turns once.
ARRIVAL_Z, ARRIVAL_TURNS = 3.0, 3
# New rows are unlike training rows: probability under chance over all comparisons, and the smallest difference that
# matters in shares of rows, distances of distributions, ratios of alarm shares, and ratios of scales.
UNLIKE_P = 0.001
UNLIKE_SHARE, UNLIKE_DISTANCE, UNLIKE_RATIO, UNLIKE_SCALE = 0.01, SCORE_DISTANCE, 1.5, 5.0


def fitted_model_noise(weights: Array, weighting: Price, profile: object = None) -> float:
    """Variance of a residual on new rows over that under the truth, for models without a measured error."""
    # A training profile counts rows without weights.
    n_train = getattr(profile, "n_rows", 0) or float(weighting.counts.sum())
    return 1.0 + UNMEASURED * effective_rows(weights) / float(n_train)


def count_chance(observed: float, expected: float, variance: float | None = None, noise: float = 1.0) -> float:
    """Upper bound of the probability of a count this far from its expectation: Chernoff's bound and the normal tail."""
    spread = expected if variance is None else variance
    if observed == expected:
        return 1.0
    if spread <= 0.0 or expected <= 0.0:
        return 0.0
    scale = spread / expected  # in units of single events
    k, m = observed / scale, expected / scale
    exponent = (k * math.log(k / m) if k > 0.0 else 0.0) - k + m
    z = (observed - expected) / math.sqrt(spread * noise)
    return min(1.0, max(2.0 * math.exp(-exponent / noise), two_sided(z)))


def count_deviation(count: float, n: float, share: float, noise: float = 1.0) -> float:
    """Signed root of the deviance of a binomial count whose log-odds have a normal error, in standard deviations.

    The error has the variance that raises that of the count by the factor ``noise``. A count of few rows is not normal,
    and an error of log-odds cannot make it negative: no catch where 20 are expected is rare for any small error. With
    many rows this is (count − n share) / √(n share (1 − share) noise). Half a row corrects for continuity.
    """
    sign = math.copysign(1.0, count - n * share)
    count -= sign * min(0.5, abs(count - n * share))
    center, weight = math.log(share / (1.0 - share)), n * share * (1.0 - share) / max(noise - 1.0, 1e-12)
    # The most likely error, between none and that which explains the count: there count − n q(error) = weight · error.
    ends = sorted((0.0, math.log(count / (n - count)) - center if 0.0 < count < n else sign * 100.0))
    for _ in range(60):
        error = 0.5 * (ends[0] + ends[1])
        rest = count - n / (1.0 + math.exp(-center - error)) - weight * error
        ends = [error, ends[1]] if rest > 0.0 else [ends[0], error]
    q = 1.0 / (1.0 + math.exp(-center - error))
    deviance = 2.0 * sum(k * math.log(k / m) for k, m in ((count, n * q), (n - count, n * (1.0 - q))) if k > 0.0)
    return sign * math.sqrt(max(0.0, deviance + weight * error**2))


@dataclass(frozen=True)
class ShareTest:
    """The share of a class here and in training, and their difference in standard deviations."""

    share: float
    before: float
    z: float
    n_rows: float

    @property
    def has_moved(self) -> bool:
        """Whether it moved beyond chance and by enough to matter: `SHARE_Z` and `SHARE_RATIO`."""
        high, low = max(self.share, self.before), min(self.share, self.before)
        by_chance = count_chance(self.n_rows * self.share, self.n_rows * self.before)
        return abs(self.z) > SHARE_Z and by_chance < 2.0 * two_sided(SHARE_Z) and high > SHARE_RATIO * low


def judge_class_shares(y: Index, weights: Array, trained: Array, clusters: Clusters | None = None) -> list[ShareTest]:
    """Compare the share of every class among these rows with that of training, whose rows cluster as these do."""
    found = []
    for k, before in enumerate(trained.tolist()):
        effect = design_effect((y == k).astype(np.float64), weights, clusters)
        here, there = share_rows(y == k, weights) / effect, float(trained.sum()) / effect
        share, own = float(weights[y == k].sum() / weights.sum()), before / float(trained.sum())
        pooled = (here * share + there * own) / (here + there)
        deviation = math.sqrt(pooled * (1.0 - pooled) * (1.0 / here + 1.0 / there))
        found.append(ShareTest(share, own, (share - own) / deviation, here))
    return found


def swapped_share(target: Bools, log_odds: Array, weights: Array, *, is_calibrated: bool) -> tuple[float, float]:
    """Share of the labels of two classes that fits best as swapped, and the p-value of a swap of none.

    Without a swap, labels follow log-odds up to a shift and a slope, of any size if they may be overconfident: only
    shares above one half differ then. By Markov's inequality, the mean likelihood ratio exceeds 1/p in p of cases.
    """
    z, sign = np.clip(log_odds, -_SWAP_RANGE, _SWAP_RANGE), np.where(target, 1.0, -1.0)
    columns = np.column_stack([np.ones_like(z), z])

    def loss(parameters: Array) -> tuple[float, Array]:
        margin = sign * (columns @ parameters)
        return float(weights @ np.logaddexp(0.0, -margin)), -(weights * sign * special.expit(-margin)) @ columns

    least, shares, shifts = _LEAST_SLOPE, np.linspace(SWAPPED_SHARE, 1.0, 9), np.linspace(-2.0, 2.0, 17)
    least, shares = (least, shares) if is_calibrated else (0.0, shares[shares > 0.55])
    fitted = optimize.minimize(loss, (0.0, 1.0), jac=True, bounds=[(None, None), (least, None)])
    right = special.expit(sign * (z + shifts[:, None]))
    fits = np.array([np.log(share + (1.0 - 2.0 * share) * right) @ weights for share in shares])
    gain = float(special.logsumexp(fits)) - math.log(fits.size) + float(fitted.fun)
    return float(shares[fits.max(axis=1).argmax()]), math.exp(-max(gain, 0.0))
