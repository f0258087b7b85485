"""How often new rows miss a recall or precision that labelled rows had, without a confidence.

Probabilities are drawn from a beta distribution and are right, so recall and precision of new rows at a threshold have
a closed form. The price is chosen by the labels of the rows. "Rejected" is the share of samples in which no threshold
had the precision, or every one. Prints text; kept as results/validity/goals_missed.txt.

    python -m bench.validity.goals_missed [--samples 1000] [--processes 2] [--out FILE]
"""

from itertools import product

import numpy as np
from scipy.stats import beta

from bench.harness import Printer, Replicates, options
from crcen import PrecisionAtLeast, RecallAtLeast, choose_weighting
from crcen.decisions.expense_curve import CurveRows
from crcen.exceptions import InvalidParameter

GOALS = [RecallAtLeast(0.8), RecallAtLeast(0.9), PrecisionAtLeast(0.3), PrecisionAtLeast(0.5)]
SHAPES = [(0.3, 2.7), (1.0, 9.0), (0.5, 9.5)]  # 10, 10 and 5 % positives; few probabilities above .5 in the last two
SIZES = [500, 2000, 10_000]


def shortfall(
    rng: np.random.Generator, goal: RecallAtLeast | PrecisionAtLeast, shape: tuple[float, float], n_rows: int
) -> float:
    """The goal minus what new rows have at the chosen threshold; NaN if no threshold can be chosen."""
    a, b = shape
    p = rng.beta(a, b, n_rows)
    try:
        threshold = choose_weighting(CurveRows.binary(rng.random(n_rows) < p, p), goal, n_resamples=1).threshold
    except InvalidParameter:
        return np.nan
    catches = beta.sf(threshold, a + 1, b)  # share of the positives above the threshold
    reached = catches if isinstance(goal, RecallAtLeast) else catches * a / (a + b) / beta.sf(threshold, a, b)
    return goal.share - reached


def main() -> None:
    """Draw, choose, compare."""
    args = options(__doc__, samples=1000, processes=2).parse_args()
    replicates, say = Replicates(args.processes), Printer(args.out)
    say(f"{args.samples:,} samples each", "goal           positives   p > .5    rows  missed  rejected")
    for goal, (a, b), n_rows in product(GOALS, SHAPES, SIZES):
        gaps = replicates(shortfall, args.samples, goal, (a, b), n_rows)
        found = gaps[~np.isnan(gaps)]
        share = f"{goal.name} {goal.share:g}"
        rows = f"{a / (a + b):>9.0%} {beta.sf(0.5, a, b):>8.2%} {n_rows:>7,}"
        say(f"{share:<15}{rows}  {(found > 0).mean():>6.3f}  {1.0 - len(found) / len(gaps):>8.3f}")
    replicates.done()


if __name__ == "__main__":
    main()
