"""Size and power of the residual test, before and after the Lugannani–Rice tail and the stratified variance.

    python -m bench.validity.tail [--scale 1.0]

"before": normal tail with Bennett's inequality if the total skewness exceeds .5 (two classes), or a joint χ² (K > 2).
"after": `crcen.theory.tail.residual_test`; K classes by Holm's correction over the class residuals. All probabilities
are the true ones unless a model uncertainty is given.
"""

import argparse
import math

import numpy as np
from scipy.special import chdtrc, erfc

from bench.harness import columns, done, draw_classes, head, line, rate, sigmoid
from crcen.theory.tail import holm, residual_test, residual_values, stratified_factor, variance_of


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


def two_clouds(rng: np.random.Generator, n: int) -> None:
    """1,900 rows at logit −11.5 ± 1, 100 at 8.6 ± 1: the total skewness cancels."""
    before, after = [], []
    p = columns(sigmoid(np.r_[rng.normal(-11.5, 1, 1900), rng.normal(8.6, 1, 100)]))
    values = residual_values(p, np.ones(2), 1)
    likely = np.r_[np.zeros(1900, int), np.ones(100, int)]
    quiet = bennett(values, p, likely), residual_test(values, p, likely).p_value
    for _ in range(n):
        y = (rng.random(2000) < p[:, 1]).astype(int)
        is_likely = (y == likely).all()
        found = quiet if is_likely else (bennett(values, p, y), residual_test(values, p, y).p_value)
        before.append(found[0] < 0.001)
        after.append(found[1] < 0.001)
    line("two clouds, λ = ½", rate(before), rate(after))


def near_separation(rng: np.random.Generator, n: int, gap: float, n_classes: int) -> None:
    """K classes of 700 rows each, the true class ahead of all others by so many log-odds."""
    logits = rng.normal(0, 1, (700 * n_classes, n_classes))
    logits[np.arange(len(logits)), np.arange(len(logits)) % n_classes] += gap
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    weights = np.ones(n_classes)
    values = [residual_values(p, weights, k) for k in range(n_classes)]
    before, after = [], []
    for _ in range(n):
        y = draw_classes(rng, p)
        before.append(chi_square(p, weights, y) < 0.001)
        after.append(np.nanmin(holm([residual_test(one, p, y).p_value for one in values])) < 0.001)
    line(f"{n_classes} classes, {gap:g} log-odds apart", rate(before), rate(after))


def counts(rng: np.random.Generator, n: int) -> None:
    """Few expected positives, several cost ratios and levels."""
    for expected in (2, 5, 20):
        for c in (1.0, 10.0, 100.0):
            logits = rng.normal(0, 1.5, 2000)
            shift = np.log(expected / 2000) - 1.125
            p = columns(sigmoid(logits + shift))
            p[:, 1] *= expected / p[:, 1].sum()
            p[:, 0] = 1 - p[:, 1]
            values = residual_values(p, np.array([1.0, c]), 1)
            labels = [(rng.random(2000) < p[:, 1]).astype(int) for _ in range(n)]
            p_values = np.array([residual_test(values, p, y).p_value for y in labels])
            line(f"{expected} expected positives, c = {c:g}", *(rate(p_values < a) for a in (0.05, 0.01, 0.001)))


def uneven_weights(rng: np.random.Generator, n: int) -> None:
    """Pareto(1.5) sample weights, 2,000 rows, 5 % positives."""
    for drift in (0.0, 0.5):
        before, after = [], []
        for _ in range(n):
            logits = rng.normal(0, 1, 2000) - 3.4
            p, w = columns(sigmoid(logits)), 1 + rng.pareto(1.5, 2000)
            y = (rng.random(2000) < sigmoid(logits + drift)).astype(int)
            values = residual_values(p, np.array([1.0, 5.0]), 1, w)
            before.append(bennett(values, p, y) < 0.05)
            after.append(residual_test(values, p, y).p_value < 0.05)
        line(f"Pareto(1.5) weights, drift {drift:g}", rate(before), rate(after))


def model_uncertainty(rng: np.random.Generator, n: int) -> None:
    """Log-odds that are off by N(0, .2²): the residual test with and without this variance."""
    before, after = [], []
    for _ in range(n):
        logits = rng.normal(0, 1, 3000) - 3
        p = columns(sigmoid(logits))
        y = (rng.random(3000) < sigmoid(logits + 0.2 * rng.standard_normal())).astype(int)
        values = residual_values(p, np.array([1.0, 5.0]), 1)
        slope = float((p[:, 1] * values[:, 1]).sum())
        before.append(residual_test(values, p, y).p_value < 0.05)
        after.append(residual_test(values, p, y, uncertainty=[((0.2 * slope) ** 2, math.inf)]).p_value < 0.05)
    line("model uncertainty σ = .2, ignored and allowed for", rate(before), rate(after))


def stratified(rng: np.random.Generator, n: int) -> None:
    """Test sets with fixed class counts."""
    logits = rng.normal(0, 1.5, 400_000) - 3
    truth = sigmoid(logits)
    y_all = (rng.random(len(logits)) < truth).astype(int)
    pos, neg = np.flatnonzero(y_all), np.flatnonzero(y_all == 0)
    n_pos = round(2000 * len(pos) / len(y_all))
    for c in (1.0, 5.0, 30.0):
        weights, drawn = np.array([1.0, c]), {"random": [], "unaware": [], "stratified": []}
        sums, variances = [], []
        for _ in range(n):
            rows = rng.integers(len(logits), size=2000)
            p, y = columns(truth[rows]), y_all[rows]
            drawn["random"].append(residual_test(residual_values(p, weights, 1), p, y).p_value < 0.05)
            rows = np.r_[rng.choice(pos, n_pos), rng.choice(neg, 2000 - n_pos)]
            p, y = columns(truth[rows]), y_all[rows]
            values = residual_values(p, weights, 1)
            drawn["unaware"].append(residual_test(values, p, y).p_value < 0.05)
            drawn["stratified"].append(residual_test(values, p, y, is_stratified=True).p_value < 0.05)
            sums.append(values[np.arange(2000), y].sum())
            variances.append((variance_of(values, p), stratified_factor(values, p)))
        label, factor = np.mean(variances, axis=0)
        line(f"c = {c:g}", *(rate(hits) for hits in drawn.values()), f"{np.var(sums) / label:.3f}", f"{factor:.3f}")


def main() -> None:
    """Print all rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="number of replicates, relative")
    scale = parser.parse_args().scale
    rng = np.random.default_rng(0)
    head("Rejected at .001 (true posteriors)", "before", "after")
    two_clouds(rng, int(100_000 * scale))
    for gap, n_classes in ((9.0, 3), (10.0, 4)):
        near_separation(rng, int(6_000 * scale), gap, n_classes)
    head("Rejected at .05", "before", "after")
    uneven_weights(rng, int(3_000 * scale))
    model_uncertainty(rng, int(2_000 * scale))
    head("Rejected, after", ".05", ".01", ".001")
    counts(rng, int(3_000 * scale))
    head("Rejected at .05", "random rows", "stratified, ignored", "stratified, used", "true ratio", "factor")
    stratified(rng, int(2_000 * scale))
    done()


if __name__ == "__main__":
    main()
