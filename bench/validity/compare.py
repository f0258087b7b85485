"""Comparing two models by a confidence sequence: wrong decisions under optional stopping, and rows until a decision.

    python -m bench.validity.compare [--streams 1000]

5 % positives, a miss costs 10 false alarms. Models decide by correlated scores and are compared after every 500 rows.
"before" is a paired t-test at .05, repeated as often.
"""

import argparse

import numpy as np

from bench.harness import done, head, line, rate
from crcen.theory.sequential import ConfidenceSequence

COST, LOOK = 10.0, 500


def differences(rng: np.random.Generator, n: int, gain: float) -> np.ndarray:
    """Cost of the old model minus that of the new one, row by row; the new one is cheaper by this share."""
    y = rng.random(n) < 0.05
    old = rng.random(n)
    new = np.where(rng.random(n) < 0.2, rng.random(n), old)
    base = 0.05 * 0.3 * COST + 0.95 * 0.05
    found = 0.7 + gain * base / (0.05 * COST)  # the gain is in recall
    wrong_old = np.where(y, COST * (old > 0.7), old < 0.05)
    wrong_new = np.where(y, COST * (new > found), new < 0.05)
    return wrong_old - wrong_new


def decided(rng: np.random.Generator, most: int, gain: float) -> tuple[int, int, bool]:
    """Decision, rows until then, and whether the t-test ever rejected."""
    sequence, values = ConfidenceSequence(-COST, COST), np.empty(0)
    verdict, rows, rejected = 0, most, False
    for start in range(0, most, LOOK):
        new = differences(rng, LOOK, gain)
        sequence = sequence.add(new)
        values = np.concatenate([values, new]) if gain == 0.0 else values
        if gain == 0.0 and not rejected and values.std() > 0.0:
            rejected = abs(values.mean()) > 1.96 * values.std() / np.sqrt(len(values))
        if not verdict and (verdict := sequence.decides()):
            rows = start + LOOK
            if gain:
                break
    return verdict, rows, rejected


def main() -> None:
    """Print rates and rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    n = parser.parse_args().streams
    rng = np.random.default_rng(0)
    head("Equal models, 40,000 rows, 80 looks", "repeated t-test", "confidence sequence")
    found = [decided(rng, 40_000, 0.0) for _ in range(n)]
    line("wrong decisions", rate(one[2] for one in found), rate(one[0] != 0 for one in found))
    head("The new model is cheaper by", "right", "wrong", "median rows")
    for gain in (0.05, 0.1, 0.2):
        found = [decided(rng, 400_000, gain) for _ in range(max(n // 10, 5))]
        line(
            f"{gain:.0%}",
            rate(one[0] == 1 for one in found),
            rate(one[0] == -1 for one in found),
            f"{np.median([one[1] for one in found]):,.0f}",
        )
    done()


if __name__ == "__main__":
    main()
