"""How often the interval of an expense contains the expected expense, and how often it rejects a right model.

    python -m bench.validity.expense_coverage [--samples 1000] [--rows 3000]

Posteriors are drawn (log-odds normal with mean -3 and standard deviation 1.6), labels from them, and the threshold of
this right model moves from a price of 2 to 20. The expected expense of a step is known exactly.
"""

import argparse
from itertools import pairwise

import numpy as np

import crcen
from crcen.theory.price import sigmoid

PRICES = (2.0, 5.0, 10.0, 20.0)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=3000)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    population = sigmoid(rng.normal(-3.0, 1.6, 1_000_000))
    cuts = [1 / (1 + price) for price in PRICES]
    flips = [population[(population > low) & (population <= high)] for high, low in pairwise(cuts)]
    truth = np.array([(1 - p).sum() / p.sum() for p in flips])
    covered, accused, catches = [], [], []
    for sample in range(args.samples):
        p = rng.choice(population, args.rows)
        path = [crcen.CostRatio(price) for price in PRICES]
        curve = crcen.ExpenseCurve.from_predictions(rng.uniform(size=args.rows) < p, p, path, random_state=sample)
        low, high = curve.intervals.T
        covered.append((low <= truth) & (truth <= high))
        accused.append([step.is_beyond_noise for step in curve.steps])
        catches.append([step.catches for step in curve.steps])
    print(f"{args.samples} samples of {args.rows} rows, 95 % intervals of 1,000 resamples")
    print(f"{'price':>10}  {'expected expense':>16}  {'catches':>7}  {'covered':>7}  {'accused':>7}")
    means = (np.mean(values, axis=0) for values in (catches, covered, accused))
    for low, high, expense, n, share, wrong in zip(PRICES, PRICES[1:], truth, *means, strict=False):
        print(f"{f'{low:g} -> {high:g}':>10}  {expense:>16.2f}  {n:>7.0f}  {share:>7.3f}  {wrong:>7.3f}")
    print(f"all steps: covered {np.mean(covered):.3f}, accused {np.mean(accused):.4f}")


if __name__ == "__main__":
    main()
