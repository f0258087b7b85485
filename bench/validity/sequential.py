"""The monitor's e-process and its earlier normal test: false alarms, delays, and the drift stated at an alarm.

    python -m bench.validity.sequential [--scale 1.0] [--processes 2]

Streams of batches with one set of probabilities. The model's own error is known from reference rows up to a standard
error. "before" is Robbins' mixture of normal scores with starting points at 1.2 times the information, "after" is
`DriftTest`. Delays are in batches, for drifts up and down together.
"""

import math
from itertools import product

import numpy as np
from scipy.special import log_ndtr, logsumexp

from bench.harness import Replicates, head, line, options, rate, sigmoid
from crcen.decisions.drift import DriftTest, Tally
from crcen.theory.sequential import GRID

RATE, SCALE = 0.05, 0.3
SETTINGS = ((0.1, 1250, 5_000), (0.02, 1250, 20_000), (0.002, 5000, 200_000))


def probabilities(rng: np.random.Generator, share: float, n: int) -> np.ndarray:
    """Log-odds of a batch with this mean probability."""
    logits, low, high = rng.normal(0, 1.2, n), -15.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if sigmoid(logits + middle).mean() > share else (middle, high)
    return logits + low


def log_evidence(difference: np.ndarray, clock: np.ndarray) -> np.ndarray:
    """Log of Robbins' mixture for a drift, by the estimated drift and its clock, 1 / variance."""
    spread = 1.0 + SCALE**2 * clock
    z = SCALE * clock * difference / np.sqrt(spread)
    return np.logaddexp(log_ndtr(z), log_ndtr(-z)) + 0.5 * z**2 - 0.5 * np.log(spread)


def before(information: float, step: float, scores: np.ndarray) -> int:
    """The batch of an alarm by the earlier test, −1 for none."""
    starts: list[tuple[float, float]] = []
    total = 0.0
    for look, score in enumerate(scores):
        seen = step * look
        if not starts or information + seen >= 1.2 * (information + starts[-1][1]):
            starts.append((total, seen))
        total += score
        at, info = np.array(starts).T
        since = step * (look + 1) - info
        clock = (information + info) * since / (information + info + since)
        difference = (total - at) / since - at / (information + info)
        k = np.arange(1, len(starts) + 1)
        evidence = log_evidence(difference, clock) - np.log(k * (k + 1.0))
        if logsumexp(np.append(evidence, -math.log(len(k) + 1.0))) >= -math.log(RATE):
            return look
    return -1


def tally(score: float, information: float, likelihood: np.ndarray) -> Tally:
    """Of two classes, by the numbers of the positive one."""
    return Tally(np.array([-score, score]), np.full(2, information), np.ones(2), np.ones(2), likelihood[None])


def after(information: float, step: float, counts: np.ndarray, p: np.ndarray) -> tuple[int, DriftTest]:
    """The batch of an alarm by `DriftTest`, −1 for none."""
    test = DriftTest(tally(0.0, information, -information * GRID**2 / 2), SCALE, 0.0)
    expected = np.log1p(p[:, None] * np.expm1(GRID)).sum(axis=0)
    for look, count in enumerate(counts):
        score = count - p.sum()
        test.add(tally(score, step, GRID * count - expected), look + 1)
        if test.log_evidence() >= -math.log(RATE):
            return look, test
    return -1, test


def stream(
    rng: np.random.Generator, logits: np.ndarray, information: float, drift: float, begin: int, looks: int
) -> tuple[float, ...]:
    """Batches of the alarm of both tests (−1 for none), the true drift, and what the second test says about it."""
    p = sigmoid(logits)
    step = float((p * (1 - p)).sum())
    moved, error = drift * rng.choice([-1, 1]), rng.standard_normal() / math.sqrt(information)
    quiet, drifted = (sigmoid(logits + error + one) for one in (0.0, moved))
    counts = [float((rng.random(len(p)) < (drifted if look >= begin else quiet)).sum()) for look in range(looks)]
    alarm, test = after(information, step, np.array(counts), p)
    change = test.change()
    return before(information, step, counts - p.sum()), alarm, moved, change.drift, change.low, change.high


def main() -> None:
    """Print rates and delays."""
    args = options(__doc__, scale=1.0, processes=2).parse_args()
    replicates, rng = Replicates(args.processes, args.scale), np.random.default_rng(0)
    head("False alarms of 100 batches, nominal .05", "before", "after")
    batches = {}
    for share, size, n_reference in SETTINGS:
        logits = probabilities(rng, share, size)
        p = sigmoid(logits)
        batches[share] = logits, float((p * (1 - p)).sum()) * n_reference / size
        found = replicates(stream, 400, *batches[share], 0.0, 0, 100)
        line(f"{share:.1%} positives", *map(rate, found[:, :2].T >= 0))
    head("Drift ± size: batches to the alarm", "before, mean", "after, mean", "before, median", "after, median")
    stated = {0.3: [], 0.6: []}
    for (share, batch), begin, size in product(batches.items(), (0, 24), stated):
        found = replicates(stream, 100, *batch, size, begin, begin + 80)
        late = [np.where(one < 0, 80, one - begin + 1) for one in found[:, :2].T]
        delays = [one[one > 0] for one in late]  # an alarm before the drift is a false one
        cells = [f"{one.mean():.1f}" for one in delays] + [f"{np.median(one):.0f}" for one in delays]
        line(f"{share:.1%} positives, ± {size:g} after {begin} batches", *cells)
        stated[size].append(found[found[:, 1] >= begin, 2:])
    head("Drift stated at the alarm", "mean estimate", "interval covers")
    for size, parts in stated.items():
        true, drift, low, high = np.concatenate(parts).T
        line(f"true size {size:g}", f"{np.mean(drift * np.sign(true)):.3f}", rate((low <= true) & (true <= high)))
    replicates.done()


if __name__ == "__main__":
    main()
