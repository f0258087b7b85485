"""The monitor's e-process beside its earlier normal test: false alarms, delays, and the drift stated at an alarm.

    python -m bench.validity.sequential [--scale 1.0]

Streams of batches with one set of probabilities. The model's own error is known from reference rows up to a standard
error. "before" is Robbins' mixture of normal scores with starting points at 1.2 times the information, "after" is
`DriftTest`. Delays are in batches, for drifts up and down together.
"""

import argparse
import math

import numpy as np
from scipy.special import logsumexp

from bench.harness import done, head, line, rate, sigmoid
from crcen.decisions.monitor.drift_tests import DriftTest, Tally, log_evidence
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
        evidence = log_evidence(difference, clock, np.zeros(len(k)), SCALE) - np.log(k * (k + 1.0))
        if logsumexp(np.append(evidence, -math.log(len(k) + 1.0))) >= -math.log(RATE):
            return look
    return -1


def after(information: float, step: float, counts: np.ndarray, p: np.ndarray) -> tuple[int, DriftTest]:
    """The batch of an alarm by `DriftTest`, −1 for none."""
    test = DriftTest(Tally.binary(0.0, information, -information * GRID**2 / 2), SCALE, 0.0)
    expected = np.log1p(p[:, None] * np.expm1(GRID)).sum(axis=0)
    for look, count in enumerate(counts):
        score = count - p.sum()
        test.add(Tally.binary(score, step, GRID * count - expected), look + 1)
        if test.log_evidence() >= -math.log(RATE):
            return look, test
    return -1, test


def streams(rng: np.random.Generator, setting: tuple[float, int, int], drift: float, begin: int, looks: int, n: int):
    """Alarms of both tests, and what the second one says about the drift."""
    share, size, n_reference = setting
    logits = probabilities(rng, share, size)
    p = sigmoid(logits)
    step = float((p * (1 - p)).sum())
    information = step * n_reference / size
    found = []
    for i in range(n):
        moved = drift * (1 if i % 2 else -1)
        error = rng.standard_normal() / math.sqrt(information)
        chance = [sigmoid(logits + error + (moved if look >= begin else 0.0)) for look in (0, looks)]
        counts = np.array([(rng.random(size) < chance[look >= begin]).sum() for look in range(looks)], dtype=float)
        alarm, test = after(information, step, counts, p)
        found.append((before(information, step, counts - p.sum()), alarm, moved, test))
    return found


def main() -> None:
    """Print rates and delays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="number of streams, relative")
    scale = parser.parse_args().scale
    rng = np.random.default_rng(0)
    head("False alarms of 100 batches, nominal .05", "before", "after")
    for setting in SETTINGS:
        found = streams(rng, setting, 0.0, 0, 100, int(400 * scale))
        line(f"{setting[0]:.1%} positives", rate(f[0] >= 0 for f in found), rate(f[1] >= 0 for f in found))
    head("Drift ± size: batches to the alarm", "before, mean", "after, mean", "before, median", "after, median")
    estimates = []
    for setting in SETTINGS:
        for begin in (0, 24):
            for size in (0.3, 0.6):
                looks = begin + 80
                found = streams(rng, setting, size, begin, looks, int(100 * scale))
                delays = [
                    [looks - begin if f[k] < 0 else f[k] - begin + 1 for f in found if not 0 <= f[k] < begin]
                    for k in (0, 1)
                ]
                cells = [f"{np.mean(one):.1f}" for one in delays] + [f"{np.median(one):.0f}" for one in delays]
                line(f"{setting[0]:.1%} positives, ± {size:g} after {begin} batches", *cells)
                changes = [(f[2], f[3].change()) for f in found if f[1] >= begin]
                estimates += [(moved, one.drift, one.error, one.low, one.high) for moved, one in changes]
    head("Drift stated at the alarm", "mean |estimate|", "interval covers")
    for size in (0.3, 0.6):
        own = [one for one in estimates if abs(one[0]) == size]
        signed = np.mean([one[1] * np.sign(one[0]) for one in own])
        line(f"true size {size:g}", f"{signed:.3f}", rate(one[3] <= one[0] <= one[4] for one in own))
    done()


if __name__ == "__main__":
    main()
