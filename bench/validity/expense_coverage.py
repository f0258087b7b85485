"""How often intervals of an expense contain the expected expense, and how often right and wrong models are rejected.

    python -m bench.validity.expense_coverage [--samples 1000] [--rows 3000] [--draws 20000] [--out FILE]

Posteriors are drawn (log-odds normal with mean -3 and standard deviation 1.6), labels from them, and the threshold of
this right model moves from a price of 2 to 20. The expected expense of a step is known exactly.

The second table is about the test of `crcen evaluate` and CRC002, which allows for the model's own error. All rows of a
narrow step have the probability of its price of 20, and their log-odds a normal error that raises the variance of the
catches by the factor "noise". Printed is how often the test accuses if the true catches are so many times those
expected, and in the row below the same for (catches - expected) / sqrt(variance * noise).
"""

import math
from itertools import pairwise

import numpy as np

import crcen
from bench.harness import Printer, options
from crcen.theory.expense import expense_table
from crcen.theory.limits import EXPENSE_Z
from crcen.theory.price import CostRatio, sigmoid

PRICES = (2.0, 5.0, 10.0, 20.0)
FACTORS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


def steps(say: Printer, draws: int) -> None:
    """Print how often a step is accused, by expected catches, noise and the factor of the true catches."""
    rng, share, path = np.random.default_rng(1), 1.0 / 21.0, [CostRatio(19.999), CostRatio(20.0)]
    say(f"{draws} draws of a step; accused if the true catches are so many times those expected", "")
    say(f"{'expected':>8}  {'noise':>5}  {'':<7}" + "".join(f"{factor:>8g}" for factor in FACTORS))
    for expected in (10, 20, 80):
        n = round(expected / share)
        for noise in (1.0, 2.4, 10.0):
            variance = n * share * (1.0 - share)
            error = rng.normal(size=draws) * math.sqrt((noise - 1.0) / variance)
            new, normal = [], []
            for factor in FACTORS:
                chance = np.minimum(factor * sigmoid(error - math.log(20.0)), 1.0)
                counts = rng.binomial(n, chance)
                values, at = np.unique(counts, return_inverse=True)
                tables = [expense_table(path, [k, 0], [0, n - k]).steps[0] for k in values]
                new.append(np.mean(np.array([abs(one.deviation(noise)) > EXPENSE_Z for one in tables])[at]))
                normal.append(np.mean(np.abs(counts - n * share) > EXPENSE_Z * math.sqrt(variance * noise)))
            say(f"{expected:>8}  {noise:>5g}  {'test':<7}" + "".join(f"{rate:>8.4f}" for rate in new))
            say(f"{'':>8}  {'':>5}  {'normal':<7}" + "".join(f"{rate:>8.4f}" for rate in normal))


def main() -> None:
    """Run and print."""
    args = options(__doc__, samples=1000, rows=3000, draws=20_000).parse_args()
    say, rng = Printer(args.out), np.random.default_rng(0)
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
    say(f"{args.samples} samples of {args.rows} rows, 95 % intervals of 1,000 resamples")
    say(f"{'price':>10}  {'expected expense':>16}  {'catches':>7}  {'covered':>7}  {'accused':>7}")
    means = (np.mean(values, axis=0) for values in (catches, covered, accused))
    for low, high, expense, n, share, wrong in zip(PRICES, PRICES[1:], truth, *means, strict=False):
        say(f"{f'{low:g} -> {high:g}':>10}  {expense:>16.2f}  {n:>7.0f}  {share:>7.3f}  {wrong:>7.3f}")
    say(f"all steps: covered {np.mean(covered):.3f}, accused {np.mean(accused):.4f}", "")
    steps(say, args.draws)


if __name__ == "__main__":
    main()
