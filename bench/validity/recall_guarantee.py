"""How often a guaranteed recall holds on new rows: 2,000 samples for each line, recall of new rows in closed form.

Positives have uniform probabilities, so the recall at a threshold t is 1 − t exactly; with ties the probabilities are
rounded up to tenths. Prints text; kept as results/validity/recall_guarantee.txt.

    python -m bench.validity.recall_guarantee [--samples 2000]
"""

import argparse
import math

import numpy as np

from crcen import RecallAtLeast
from crcen.decisions.choose import choose_on

SETTINGS = [(0.9, 0.95, 29), (0.9, 0.95, 60), (0.9, 0.95, 400), (0.8, 0.9, 60), (0.95, 0.99, 200)]


def recall_at(threshold: float, is_tied: bool) -> float:
    """Recall of new positives above a threshold."""
    if not is_tied:
        return 1.0 - threshold
    return 1.0 - math.floor(threshold * 10.0 + 1e-9) / 10.0


def main() -> None:
    """Draw, choose, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    samples = parser.parse_args().samples
    print(f"{samples:,} samples each; 'plain' is the same goal without a confidence")
    print("recall confidence positives  ties      held   plain   mean recall of new rows")
    for share, confidence, n_pos in SETTINGS:
        for is_tied in (False, True):
            rng = np.random.default_rng([n_pos, int(is_tied)])
            target = np.arange(2 * n_pos) < n_pos
            found = {True: [], False: []}
            for _ in range(samples):
                p = np.concatenate([rng.uniform(size=n_pos), 0.5 * rng.uniform(size=n_pos)])
                p = np.ceil(10.0 * p) / 10.0 if is_tied else p
                for is_sure in found:
                    goal = RecallAtLeast(share, confidence if is_sure else None)
                    chosen = choose_on(target, p, np.ones(2 * n_pos), goal, n_resamples=1)
                    found[is_sure].append(recall_at(chosen.threshold, is_tied))
            held = {is_sure: np.mean(np.array(values) >= share - 1e-12) for is_sure, values in found.items()}
            print(
                f"{share:>6g} {confidence:>10g} {n_pos:>9} {'yes' if is_tied else 'no':>5}   {held[True]:>7.4f} "
                f"{held[False]:>7.4f}   {np.mean(found[True]):.4f}"
            )


if __name__ == "__main__":
    main()
