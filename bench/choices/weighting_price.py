"""The price of weighting for a model of the right form: the excess cost of its decisions, in theory and in fits.

    python -m bench.choices.weighting_price [--fits 400] [--out FILE]

A logistic model with the right form, fitted under the weight c, solves least squares with weights c / (c·p + 1 − p)
relative to those of maximum likelihood. Its coefficients vary by H⁻¹ J H⁻¹, and the expected excess cost of decisions
at a price is ½ Σ over the density at the threshold of the variance of the log-odds there. Both are computed on a large
sample, and compared with fits on 2,000 rows. One to five normal features, 2 to 20 % positives.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from crcen._support.files import write_atomic
from crcen.theory.price import sigmoid

N_LARGE, N_TRAIN = 400_000, 2_000
CASES = ((1, 1.0, 0.05), (1, 2.0, 0.05), (5, 1.0, 0.05), (5, 2.0, 0.05), (5, 1.0, 0.20), (5, 2.0, 0.02))


def sample(rng: np.random.Generator, n: int, k: int, size: float, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a leading 1, and coefficients of length `size` that give the share of positives."""
    X = np.column_stack([np.ones(n), rng.standard_normal((n, k))])
    beta = np.concatenate([[0.0], np.full(k, size / np.sqrt(k))])
    low, high = -20.0, 5.0
    for _ in range(60):
        beta[0] = (low + high) / 2
        low, high = (beta[0], high) if sigmoid(X @ beta).mean() < share else (low, beta[0])
    return X, beta


def excess(X: np.ndarray, beta: np.ndarray, weight: float, price: float) -> float:
    """Expected excess cost of a row at a price, times the number of training rows, under a training weight."""
    p = sigmoid(X @ beta)
    q = weight * p / (weight * p + 1 - p)
    heft = weight / (weight * p + 1 - p)  # the row's residual is heft · (y − p)
    # The derivative of Σ w(y − q)x in β is w̄ q(1 − q), w̄ the mean weight of a row: heft · p(1 − p) again.
    bread = (X * (heft * p * (1 - p))[:, None]).T @ X / len(X)
    meat = (X * (heft**2 * p * (1 - p))[:, None]).T @ X / len(X)
    assert np.allclose((weight * p + 1 - p) * q * (1 - q), heft * p * (1 - p))
    covariance = np.linalg.solve(bread, np.linalg.solve(bread, meat).T)
    cut = -np.log(price)
    logits = X @ beta
    near = np.abs(logits - cut) < 0.1
    variance = np.einsum("ij,jk,ik->i", X[near], covariance, X[near])
    # A wrong decision at distance d in log-odds costs d · dp/dlogit · (1 + c); over a shift that is half its square.
    slope = 1 / (1 + price) * price / (1 + price) * (1 + price)
    return float(0.5 * variance.sum() / len(X) / 0.2 * slope)


def fitted(rng: np.random.Generator, X: np.ndarray, beta: np.ndarray, weight: float, price: float) -> float:
    """The same for one model fitted on N_TRAIN rows, by its decisions on X."""
    rows = X[rng.integers(len(X), size=N_TRAIN)]
    y = rng.random(N_TRAIN) < sigmoid(rows @ beta)
    w = np.where(y, weight, 1.0)
    own = beta + np.r_[np.log(weight), np.zeros(len(beta) - 1)]
    for _ in range(25):
        q = sigmoid(rows @ own)
        step = np.linalg.solve((rows * (w * q * (1 - q))[:, None]).T @ rows, rows.T @ (w * (y - q)))
        own = own + step
        if np.abs(step).max() < 1e-8:
            break
    own[0] -= np.log(weight)
    p, cut = sigmoid(X @ beta), -np.log(price)
    wrong = (X @ own > cut) != (X @ beta > cut)
    return float(np.sum(np.abs(1 - p - price * p)[wrong]) / len(X) * N_TRAIN)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=400)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    began = time.perf_counter()
    lines = [
        "Excess cost of decisions at the price, trained under a weight over trained without one (λ = ½)",
        f"{'':<34}{'price 10':^34}{'price IR':^22}",
        f"{'features':>8}{'size':>6}{'positives':>11}{'IR':>7}  {'weight 10':>10}{'(fits)':>16}{'weight √10':>11}"
        f"{'weight IR':>11}{'weight √IR':>11}",
    ]
    print("\n".join(lines), flush=True)
    for place, (k, size, share) in enumerate(CASES):
        rng = np.random.default_rng(place)
        X, beta = sample(rng, N_LARGE, k, size, share)
        ratio = (1 - share) / share
        factors = [
            excess(X, beta, weight, price) / excess(X, beta, 1.0, price)
            for weight, price in ((10, 10), (10**0.5, 10), (ratio, ratio), (ratio**0.5, ratio))
        ]
        part = X[:40_000]
        costs = np.array(
            [
                [fitted(np.random.default_rng([place, seed]), part, beta, weight, 10.0) for weight in (10.0, 1.0)]
                for seed in range(args.fits)
            ]
        )
        seen = costs[:, 0].mean() / costs[:, 1].mean()
        spread = np.std(costs[:, 0] - seen * costs[:, 1], ddof=1) / np.sqrt(args.fits) / costs[:, 1].mean()
        lines.append(
            f"{k:>8}{size:>6.1f}{share:>11.0%}{ratio:>7.1f}  {factors[0]:>10.2f}{f'{seen:.2f} ± {spread:.2f}':>16}"
            f"{factors[1]:>11.2f}{factors[2]:>11.2f}{factors[3]:>11.2f}"
        )
        print(lines[-1], flush=True)
    print(f"{time.perf_counter() - began:.0f} s")
    if args.out:
        write_atomic(args.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
