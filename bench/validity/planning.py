"""Power reached with planned numbers of labels and audits, and coverage of shares estimated without labels.

python -m bench.validity.planning [--scale 1.0]
"""

import argparse
import math
from itertools import product

import numpy as np

from bench.harness import columns, done, head, line, rate, sigmoid
from crcen.theory.intervals import clopper_pearson, cost_interval
from crcen.theory.planning import (
    audits_for_recall_bound,
    labels_for_cost_width,
    labels_for_drift,
    labels_for_recall_bound,
)
from crcen.theory.prevalence import estimate_shares
from crcen.theory.selective import audit_probabilities, audit_scores, missed_bound
from crcen.theory.tail import residual_test, residual_values


def drift(rng: np.random.Generator, n: int) -> None:
    """Power of the residual test, planned .80."""
    for c, size, uncertainty in product((1.0, 20.0), (0.3, 0.7), (0.0, 0.06)):
        logits, weights = rng.normal(-3.5, 1.2, 20_000), np.array([1.0, c])
        labels = labels_for_drift(columns(sigmoid(logits)), weights, 1, size, uncertainty=uncertainty)
        found = []
        for _ in range(n):
            chosen = rng.choice(logits, int(labels))
            p = columns(sigmoid(chosen))
            moved = chosen + size * rng.choice([-1, 1]) + uncertainty * rng.standard_normal()
            values = residual_values(p, weights, 1)
            extra = (uncertainty * float(p[:, 1] @ values[:, 1])) ** 2
            y = (rng.random(len(p)) < sigmoid(moved)).astype(int)
            found.append(residual_test(values, p, y, uncertainty=[(extra, math.inf)]).p_value < 0.05)
        line(f"drift ± {size:g}, c = {c:g}, σ = {uncertainty:g}", f"{labels:,}", rate(found))


def recall(rng: np.random.Generator, n: int) -> None:
    """Labelled rows for a recall bound, the number of positives being random."""
    for bound, truth in ((0.8, 0.9), (0.9, 0.95), (0.6, 0.8)):
        rows = labels_for_recall_bound(bound, truth, 0.03)
        n_pos = rng.binomial(rows, 0.03, n)
        found = rng.binomial(n_pos, truth)
        line(
            f"recall bound {bound:g}, recall {truth:g}, 3 % positives",
            f"{rows:,}",
            rate(clopper_pearson(found, n_pos, 0.9)[0] >= bound),
        )


def cost(rng: np.random.Generator, n: int) -> None:
    """Labelled rows for a cost interval of .1 per row: its width."""
    costs = np.array([[0, 1.0], [20, 0]])
    p = columns(sigmoid(rng.normal(-3.5, 1.5, 20_000)))
    actions = np.argmin(p @ costs, axis=1)
    labels = labels_for_cost_width(p, actions, costs, 0.1)
    widths = []
    for _ in range(n):
        rows = rng.integers(len(p), size=labels)
        found = cost_interval((rng.random(labels) < p[rows, 1]).astype(int), actions[rows], costs)
        widths.append(found.high - found.low)
    line("cost interval of width .1", f"{labels:,}", f"{np.mean(widths):.4f}")


def audits(rng: np.random.Generator, n: int) -> None:
    """Audits for a recall bound."""
    chance = sigmoid(rng.normal(-6, 2.5, 30_000))
    p, weights, quiet = columns(chance), np.array([1.0, 20.0]), chance < 1 / 21
    for rule, bound in product(("neyman", "uniform"), (0.5, 0.7)):
        scores = audit_scores(p, weights) if rule == "neyman" else np.ones(len(p))
        number = audits_for_recall_bound(chance, quiet, scores, bound)
        e, found = audit_probabilities(scores, quiet, number), []
        for _ in range(n):
            y = rng.random(len(p)) < chance
            caught = y[~quiet].sum()
            upper = missed_bound(e[quiet], (rng.random(len(p)) < e)[quiet], y[quiet])
            found.append(caught / (caught + upper) >= bound)
        line(f"recall bound {bound:g} by audits, {rule}", f"{number:,}", rate(found))


def shares(rng: np.random.Generator, n: int) -> None:
    """Class shares without labels: coverage at .95."""
    for before, now, rows in ((0.05, 0.02, 2000), (0.05, 0.15, 2000), (0.02, 0.02, 500)):
        covered, estimates = [], []
        for _ in range(n):
            x = rng.normal(2.0 * (rng.random(rows) < now), 1)
            p = columns(sigmoid(math.log(before / (1 - before)) + 2 * x - 2))
            found = estimate_shares(p, np.array([1 - before, before]))[1]
            covered.append(found.low <= now <= found.high)
            estimates.append(found.value)
        line(f"{before:.0%} in training, {now:.0%} here, {rows:,} rows", f"{np.mean(estimates):.4f}", rate(covered))


def main() -> None:
    """Print all rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="number of replicates, relative")
    scale = parser.parse_args().scale
    rng = np.random.default_rng(0)
    head("Planned power .80", "labels", "reached")
    drift(rng, int(1000 * scale))
    recall(rng, int(20_000 * scale))
    audits(rng, int(300 * scale))
    head("Planned width", "labels", "mean width")
    cost(rng, int(300 * scale))
    head("Class shares without labels", "mean estimate", "covered at .95")
    shares(rng, int(500 * scale))
    done()


if __name__ == "__main__":
    main()
