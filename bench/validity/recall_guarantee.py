"""How often a guaranteed recall holds on new rows: 2,000 samples for each line, recall of new rows in closed form.

Positives have uniform probabilities, so the recall at a threshold t is 1 − t exactly; with ties the probabilities are
rounded up to tenths. Prints text; kept as results/validity/recall_guarantee.txt.

    python -m bench.validity.recall_guarantee [--samples 2000] [--processes 2] [--out FILE]
"""

import math
from itertools import product

import numpy as np

from bench.harness import Printer, Replicates, options
from crcen import RecallAtLeast, choose_weighting
from crcen.decisions.expense_curve import CurveRows

SETTINGS = [(0.9, 0.95, 29), (0.9, 0.95, 60), (0.9, 0.95, 400), (0.8, 0.9, 60), (0.95, 0.99, 200)]


def recall_at(threshold: float, is_tied: bool) -> float:
    """Recall of new positives above a threshold."""
    if not is_tied:
        return 1.0 - threshold
    return 1.0 - math.floor(threshold * 10.0 + 1e-9) / 10.0


def sample(rng: np.random.Generator, share: float, confidence: float, n_pos: int, is_tied: bool) -> tuple[float, float]:
    """Recall of new rows with the guaranteed threshold and with the same goal without a confidence."""
    target = np.arange(2 * n_pos) < n_pos
    p = np.concatenate([rng.uniform(size=n_pos), 0.5 * rng.uniform(size=n_pos)])
    p = np.ceil(10.0 * p) / 10.0 if is_tied else p
    goals = RecallAtLeast(share, confidence), RecallAtLeast(share)
    rows = CurveRows.binary(target, p)
    chosen = [choose_weighting(rows, goal, n_resamples=1) for goal in goals]
    return tuple(recall_at(one.threshold, is_tied) for one in chosen)


def main() -> None:
    """Draw, choose, compare."""
    args = options(__doc__, samples=2000, processes=2).parse_args()
    replicates, say = Replicates(args.processes), Printer(args.out)
    say(
        f"{args.samples:,} samples each; 'plain' is the same goal without a confidence",
        "recall confidence positives  ties      held   plain   mean recall of new rows",
    )
    for (share, confidence, n_pos), is_tied in product(SETTINGS, (False, True)):
        found = replicates(sample, args.samples, share, confidence, n_pos, is_tied)
        held, plain = (found >= share - 1e-12).mean(axis=0)
        mean, ties = found[:, 0].mean(), "yes" if is_tied else "no"
        say(f"{share:>6g} {confidence:>10g} {n_pos:>9} {ties:>5}   {held:>7.4f} {plain:>7.4f}   {mean:.4f}")
    replicates.done()


if __name__ == "__main__":
    main()
