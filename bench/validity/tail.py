"""Size and power of the residual test, before and after the Lugannani–Rice tail and the stratified variance.

    python -m bench.validity.tail [--scale 1.0] [--processes 2]

"before": normal tail with Bennett's inequality if the total skewness exceeds .5 (two classes), or a joint χ² (K > 2).
"after": `residual_test` of crcen.theory.residual_test; K classes by Holm's correction over the class residuals. All
probabilities are the true ones unless a model uncertainty is given.
"""

import math
from functools import lru_cache
from itertools import product

import numpy as np
from scipy.special import chdtrc, erfc

from bench.harness import Replicates, columns, draw_classes, head, line, options, rate, sigmoid
from crcen.theory.residual_test import holm, residual_test, residual_values, stratified_factor, variance_of


def bennett(values: np.ndarray, p: np.ndarray, y: np.ndarray) -> float:
    """The p-value of the earlier test of two classes."""
    total, variance = values[np.arange(len(y)), y].sum(), variance_of(values, p)
    third = abs((p * values**3).sum())
    p_value = erfc(abs(total) / math.sqrt(2 * variance))
    if third <= 0.5 * variance**1.5:
        return p_value
    largest = np.abs(values[:, 1] if total > 0 else values[:, 0]).max()
    far = largest * abs(total) / variance
    return max(p_value, min(1.0, 2 * math.exp(-variance / largest**2 * ((1 + far) * math.log1p(far) - far))))


def chi_square(p: np.ndarray, weights: np.ndarray, y: np.ndarray) -> float:
    """The p-value of the earlier joint test of K classes."""
    values = [residual_values(p, weights, k) for k in range(1, p.shape[1])]
    total = np.array([one[np.arange(len(y)), y].sum() for one in values])
    variance = np.array([[(p * a * b).sum() for b in values] for a in values])
    return float(chdtrc(len(total), total @ np.linalg.pinv(variance, hermitian=True) @ total))


def two_clouds(rng: np.random.Generator, p: np.ndarray) -> tuple[float, float]:
    """The p-values before and after for labels drawn with these probabilities."""
    y = (rng.random(len(p)) < p[:, 1]).astype(int)
    return _two_clouds(p, y) if (y != (p[:, 1] > 0.5)).any() else _likely(p.tobytes())


def _two_clouds(p: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    values = residual_values(p, np.ones(2), 1)
    return bennett(values, p, y), residual_test(values, p, y).p_value


@lru_cache
def _likely(content: bytes) -> tuple[float, float]:
    p = np.frombuffer(content).reshape(-1, 2)
    return _two_clouds(p, (p[:, 1] > 0.5).astype(int))


def near_separation(rng: np.random.Generator, p: np.ndarray) -> tuple[float, float]:
    """The p-values before and after for classes drawn with these probabilities."""
    weights, y = np.ones(p.shape[1]), draw_classes(rng, p)
    tests = [residual_test(residual_values(p, weights, k), p, y).p_value for k in range(p.shape[1])]
    return chi_square(p, weights, y), float(np.nanmin(holm(tests)))


def separated(gap: float, n_classes: int) -> np.ndarray:
    """Probabilities of 700 rows of each class, the true class ahead of all others by so many log-odds."""
    logits = np.random.default_rng(n_classes).normal(0, 1, (700 * n_classes, n_classes))
    logits[np.arange(len(logits)), np.arange(len(logits)) % n_classes] += gap
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def few_positives(rng: np.random.Generator, p: np.ndarray, c: float) -> float:
    """The p-value for labels drawn with these probabilities."""
    y = (rng.random(len(p)) < p[:, 1]).astype(int)
    return residual_test(residual_values(p, np.array([1.0, c]), 1), p, y).p_value


def uneven_weights(rng: np.random.Generator, drift: float) -> tuple[float, float]:
    """The p-values before and after with Pareto(1.5) sample weights, 2,000 rows, 5 % positives."""
    logits = rng.normal(0, 1, 2000) - 3.4
    p, w = columns(sigmoid(logits)), 1 + rng.pareto(1.5, 2000)
    y = (rng.random(2000) < sigmoid(logits + drift)).astype(int)
    values = residual_values(p, np.array([1.0, 5.0]), 1, w)
    return bennett(values, p, y), residual_test(values, p, y).p_value


def model_uncertainty(rng: np.random.Generator) -> tuple[float, float]:
    """The p-values for log-odds that are off by N(0, .2²), without and with this variance."""
    logits = rng.normal(0, 1, 3000) - 3
    p = columns(sigmoid(logits))
    y = (rng.random(3000) < sigmoid(logits + 0.2 * rng.standard_normal())).astype(int)
    values = residual_values(p, np.array([1.0, 5.0]), 1)
    extra = (0.2 * float((p[:, 1] * values[:, 1]).sum())) ** 2
    return (
        residual_test(values, p, y).p_value,
        residual_test(values, p, y, uncertainty=[(extra, math.inf)]).p_value,
    )


@lru_cache
def population() -> tuple[np.ndarray, np.ndarray]:
    """True probabilities and labels from which test sets are drawn."""
    rng = np.random.default_rng(0)
    truth = sigmoid(rng.normal(0, 1.5, 400_000) - 3)
    return truth, (rng.random(len(truth)) < truth).astype(int)


def stratified(rng: np.random.Generator, c: float) -> tuple[float, ...]:
    """P-values of random rows and of rows with fixed class counts (ignored, used); sum, its variance and the factor."""
    truth, y_all = population()
    weights, pos, neg = np.array([1.0, c]), np.flatnonzero(y_all), np.flatnonzero(y_all == 0)
    rows = rng.integers(len(truth), size=2000)
    p = columns(truth[rows])
    random = residual_test(residual_values(p, weights, 1), p, y_all[rows]).p_value
    n_pos = round(2000 * len(pos) / len(y_all))
    rows = np.r_[rng.choice(pos, n_pos), rng.choice(neg, 2000 - n_pos)]
    p, y = columns(truth[rows]), y_all[rows]
    values = residual_values(p, weights, 1)
    return (
        random,
        residual_test(values, p, y).p_value,
        residual_test(values, p, y, is_stratified=True).p_value,
        values[np.arange(2000), y].sum(),
        variance_of(values, p),
        stratified_factor(values, p),
    )


def main() -> None:
    """Print all rates."""
    args = options(__doc__, scale=1.0, processes=2).parse_args()
    replicates, rng = Replicates(args.processes, args.scale), np.random.default_rng(0)
    head("Rejected at .001 (true posteriors)", "before", "after")
    clouds = columns(sigmoid(np.r_[rng.normal(-11.5, 1, 1900), rng.normal(8.6, 1, 100)]))
    line("two clouds, λ = ½", *map(rate, replicates(two_clouds, 100_000, clouds).T < 0.001))
    for gap, n_classes in ((9.0, 3), (10.0, 4)):
        found = replicates(near_separation, 6_000, separated(gap, n_classes))
        line(f"{n_classes} classes, {gap:g} log-odds apart", *map(rate, found.T < 0.001))
    head("Rejected at .05", "before", "after")
    for drift in (0.0, 0.5):
        found = replicates(uneven_weights, 3_000, drift)
        line(f"Pareto(1.5) weights, drift {drift:g}", *map(rate, found.T < 0.05))
    found = replicates(model_uncertainty, 2_000)
    line("model uncertainty σ = .2, ignored and allowed for", *map(rate, found.T < 0.05))
    head("Rejected, after", ".05", ".01", ".001")
    for expected, c in product((2, 5, 20), (1.0, 10.0, 100.0)):
        chance = sigmoid(rng.normal(0, 1.5, 2000) + np.log(expected / 2000) - 1.125)
        found = replicates(few_positives, 3_000, columns(chance * expected / chance.sum()), c)
        line(f"{expected} expected positives, c = {c:g}", *(rate(found < a) for a in (0.05, 0.01, 0.001)))
    head("Rejected at .05", "random rows", "stratified, ignored", "stratified, used", "true ratio", "factor")
    for c in (1.0, 5.0, 30.0):
        *p_values, sums, variance, factor = replicates(stratified, 2_000, c).T
        cells = (rate(one < 0.05) for one in p_values)
        line(f"c = {c:g}", *cells, f"{np.var(sums) / variance.mean():.3f}", f"{factor.mean():.3f}")
    replicates.done()


if __name__ == "__main__":
    main()
