"""Audits: coverage of the recall bound and of the cost interval, the key equation with weights 1/e, the monitor.

    python -m bench.validity.audits [--scale 1.0]

Each simulation has 10,000 rows. "before" uses the labels of alarms only: recall is 1 by construction.
"""

import argparse
from functools import cache
from itertools import product

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import norm

from bench.harness import columns, done, draw_classes, head, line, rate, sigmoid
from crcen import KeyEquationMonitor
from crcen.theory.residual_test import residual_test, residual_values
from crcen.theory.selective import (
    audit_draws,
    audit_probabilities,
    audit_scores,
    audited_cost,
    missed_bound,
    recall_bounds,
)

ROWS, COST = 10_000, 20.0


def audited(rng, p, weights, share, rule):
    """Decisions, audit probabilities and labels (−1 for none) of rows with probabilities p."""
    actions = np.argmax(p * weights, axis=1)
    quiet = actions == 0
    scores = audit_scores(p, weights) if rule == "neyman" else np.ones(len(p))
    e = audit_probabilities(scores, quiet, share * quiet.sum())
    drawn = audit_draws(rng.integers(2**63, size=len(p)).astype(np.uint64), e, int(rng.integers(2**31)))
    return actions, e, drawn


@cache
def bias(expected: float) -> float:
    """The bias at which so many of the rows are expected to be positive."""
    logits = norm.isf((np.arange(ROWS) + 0.5) / ROWS, 0, 2)
    return float(brentq(lambda b: sigmoid(logits + b).sum() - expected, -30.0, 10.0))


def positives(rng: np.random.Generator, expected: float, wrong: float) -> tuple[np.ndarray, np.ndarray]:
    """True and stated probabilities; `wrong` is the standard deviation of the model's errors in log-odds."""
    logits = rng.normal(bias(expected), 2, ROWS)
    return sigmoid(logits), sigmoid(logits + wrong * rng.standard_normal(ROWS))


def two_classes(rng: np.random.Generator, n: int) -> None:
    """Coverage of the recall bound at .95, its median beside the true recall, and of the cost interval."""
    costs, weights = np.array([[0, 1.0], [COST, 0]]), np.array([1.0, COST])
    for rule, expected, share in product(("neyman", "uniform"), (5, 50, 500), (0.01, 0.05, 0.2)):
        held, bounds, truths, cost_held, widths = [], [], [], [], []
        for _ in range(n):
            truth, stated = positives(rng, expected, 1.0)
            actions, e, drawn = audited(rng, columns(stated), weights, share, rule)
            label = (rng.random(ROWS) < truth).astype(int)
            y = np.where(drawn, label, -1)
            if not label.any():
                continue
            bound = recall_bounds(y, actions, e, 0, 2)[0][1]
            recall = (actions[label == 1] == 1).mean()
            held.append(not bound > recall)
            bounds.append(np.nan_to_num(bound))
            truths.append(recall)
            expected_cost = float((costs[1, actions] * truth + costs[0, actions] * (1 - truth)).mean())
            interval = audited_cost(y, actions, columns(stated), costs, e, 0)
            cost_held.append(interval.low <= expected_cost <= interval.high)
            widths.append((interval.high - interval.low) / expected_cost)
        line(
            f"{rule}, {expected} positives, e = {share:.0%}",
            rate(held),
            f"{np.median(bounds):.3f} ({np.median(truths):.3f})",
            rate(cost_held),
            f"{np.median(widths):.2f}",
        )


def three_classes(rng: np.random.Generator, n: int) -> None:
    """Coverage of the bounds of each of three classes; the rarest has so many rows, the next one five times as many."""
    weights = np.array([1.0, 5.0, 20.0])
    for rule, expected, share in product(("neyman", "uniform"), (5, 50, 500), (0.01, 0.2)):
        held, middle = [], np.log([1.0, 5 * expected / ROWS, expected / ROWS]) - 0.75
        for _ in range(n):
            logits = rng.normal(middle, [0.0, 1.2, 1.2], (ROWS, 3))
            truth, stated = softmax(logits, axis=1), softmax(logits + rng.normal(0, 0.7, logits.shape), axis=1)
            actions, e, drawn = audited(rng, stated, weights, share, rule)
            label = draw_classes(rng, truth)
            bounds = recall_bounds(np.where(drawn, label, -1), actions, e, 0, 3)[0]
            rows = np.maximum(np.bincount(label, minlength=3), 1)
            recalls = np.bincount(label, actions == label, 3) / rows
            held.append([not bounds[k] > recalls[k] for k in range(3)])
        line(f"{rule}, {expected} rows of class 2, e = {share:.0%}", *(rate(one) for one in np.array(held).T))


def floors(rng: np.random.Generator, n: int) -> None:
    """Median bound on missed positives (in units of the true number) by the floor of the probabilities."""
    for expected, share in product((20, 200), (0.02, 0.1)):
        found: dict[float, list[float]] = {floor: [] for floor in (0.1, 0.3, 0.5, 0.7, 1.0)}
        for _ in range(n):
            truth, stated = positives(rng, expected, 1.0)
            p, weights = columns(stated), np.array([1.0, COST])
            quiet = np.argmax(p * weights, axis=1) == 0
            label = rng.random(ROWS) < truth
            for floor, bounds in found.items():
                e = audit_probabilities(audit_scores(p, weights), quiet, share * quiet.sum(), floor=floor)
                drawn = rng.random(ROWS) < e
                missed = max(int(label[quiet].sum()), 1)
                bounds.append(missed_bound(e[quiet], drawn[quiet], label[quiet]) / missed)
        line(f"{expected} positives, e = {share:.0%}", *(f"{np.median(bounds):.2f}" for bounds in found.values()))


def key_equation(rng: np.random.Generator, n: int) -> None:
    """Rejected at .05: unlabelled as negative, labels of alarms alone, weights 1/e; power at a drift of .5."""
    weights = np.array([1.0, COST])
    for expected, share in product((100, 500), (0.02, 0.1)):
        hits: list[list[bool]] = [[], [], [], []]
        for _ in range(n):
            truth, _ = positives(rng, expected, 0.0)
            p = columns(truth)
            actions, e, drawn = audited(rng, p, weights, share, "neyman")
            for place, chance in ((0, truth), (3, sigmoid(np.log(truth / (1 - truth)) + 0.5))):
                label = (rng.random(ROWS) < chance).astype(int)
                x, rows = residual_values(p, weights, 1, 1 / e), np.flatnonzero(drawn)
                weighted = residual_test(x[rows], p[rows], label[rows]).p_value < 0.05
                if place:
                    hits[3].append(weighted)
                    continue
                plain = residual_values(p, weights, 1)
                hits[0].append(residual_test(plain, p, np.where(drawn, label, 0)).p_value < 0.05)
                quiet = np.flatnonzero(actions == 1)
                hits[1].append(residual_test(plain[quiet], p[quiet], label[quiet]).p_value < 0.05)
                hits[2].append(weighted)
        line(f"{expected} positives, e = {share:.0%}", *(rate(one) for one in hits))


def monitor(rng: np.random.Generator, n: int) -> None:
    """Streams of 20 batches with an alarm at .05, without drift and with one of 1 in the log-odds."""
    weights = np.array([1.0, COST])
    for expected, share in ((200, 0.05), (1000, 0.05), (1000, 0.2)):
        found = []
        for _ in range(n):
            truth, _ = positives(rng, expected, 0.0)
            p = columns(truth)
            label = (rng.random(ROWS) < truth).astype(int)
            watches = [KeyEquationMonitor(y_reference=label, q_reference=truth) for _ in range(3)]
            _, e, drawn = audited(rng, p, weights, share, "neyman")
            for batch in np.array_split(rng.permutation(ROWS), 20):
                for place, drift in enumerate((0.0, 0.0, 1.0)):
                    chance = sigmoid(np.log(truth[batch] / (1 - truth[batch])) + drift)
                    y = (rng.random(len(batch)) < chance).astype(float)
                    if not place:  # rows without a label taken as negative
                        watches[place].update(q=truth[batch], y=np.where(drawn[batch], y, 0.0))
                        continue
                    y[~drawn[batch]] = np.nan
                    watches[place].update(q=truth[batch], y=y, audit_probability=e[batch])
            found.append([bool(one.alarms) for one in watches])
        line(f"{expected} positives, e = {share:.0%}", *(rate(one) for one in zip(*found, strict=True)))


def main() -> None:
    """Print all rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="number of replicates, relative")
    scale = parser.parse_args().scale
    rng = np.random.default_rng(0)
    head("Recall bound at .95", "held", "median (recall)", "cost interval held", "width / cost")
    two_classes(rng, int(2000 * scale))
    head("Recall bounds of three classes", "held, class 0", "class 1", "class 2")
    three_classes(rng, int(2000 * scale))
    head("Median bound on missed positives / true number", *(f"floor {one}" for one in (0.1, 0.3, 0.5, 0.7, 1.0)))
    floors(rng, int(200 * scale))
    head("Key equation, rejected at .05", "unlabelled = 0", "alarms alone", "weights 1/e", "power, drift .5")
    key_equation(rng, int(500 * scale))
    head("Monitor, alarms at .05", "unlabelled = 0", "weights 1/e", "found, drift 1")
    monitor(rng, int(100 * scale))
    done()


if __name__ == "__main__":
    main()
