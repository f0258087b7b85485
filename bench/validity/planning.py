"""Power reached with planned numbers of labels and audits, and coverage of shares estimated without labels.

python -m bench.validity.planning [--scale 1.0] [--processes 2]
"""

import math
from itertools import product

import numpy as np

from bench.harness import Replicates, columns, head, line, options, rate, sigmoid
from crcen.theory.criteria import (
    audits_for_recall_bound,
    labels_for_cost_width,
    labels_for_drift,
    labels_for_recall_bound,
)
from crcen.theory.intervals import clopper_pearson, cost_interval, estimate_shares
from crcen.theory.residual_test import FEWEST_TO_TEST, residual_test, residual_values
from crcen.theory.selective import audit_probabilities, audit_scores, missed_bound


def drift(rng: np.random.Generator, logits: np.ndarray, labels: int, c: float, size: float, uncertainty: float) -> bool:
    """Whether the residual test finds a drift, with uncertain log-odds of the model and enough positives."""
    chosen, weights = rng.choice(logits, labels), np.array([1.0, c])
    p = columns(sigmoid(chosen))
    moved = chosen + size + uncertainty * rng.standard_normal()
    values = residual_values(p, weights, 1)
    extra = (uncertainty * float(p[:, 1] @ values[:, 1])) ** 2
    y = (rng.random(len(p)) < sigmoid(moved)).astype(int)
    return y.sum() >= FEWEST_TO_TEST and residual_test(values, p, y, uncertainty=[(extra, math.inf)]).p_value < 0.05


def recall(rng: np.random.Generator, rows: int, bound: float, truth: float) -> bool:
    """Whether the lower limit of the recall reaches a bound, the number of positives being random."""
    n_pos = rng.binomial(rows, 0.03)
    return bool(clopper_pearson(rng.binomial(n_pos, truth), n_pos, 0.9)[0] >= bound)


def cost(rng: np.random.Generator, p: np.ndarray, actions: np.ndarray, costs: np.ndarray, labels: int) -> float:
    """Width of the cost interval."""
    rows = rng.integers(len(p), size=labels)
    found = cost_interval((rng.random(labels) < p[rows, 1]).astype(int), actions[rows], costs)
    return found.high - found.low


def audits(rng: np.random.Generator, chance: np.ndarray, quiet: np.ndarray, e: np.ndarray, bound: float) -> bool:
    """Whether audits with these probabilities reach a recall bound."""
    y = rng.random(len(chance)) < chance
    caught = y[~quiet].sum()
    upper = missed_bound(e[quiet], (rng.random(len(chance)) < e)[quiet], y[quiet])
    return caught / (caught + upper) >= bound


def shares(rng: np.random.Generator, before: float, now: float, rows: int) -> tuple[float, bool]:
    """A class share estimated without labels, and whether its interval covers."""
    x = rng.normal(2.0 * (rng.random(rows) < now), 1)
    p = columns(sigmoid(math.log(before / (1 - before)) + 2 * x - 2))
    found = estimate_shares(p, np.array([1 - before, before]))[1]
    return found.value, found.low <= now <= found.high


def main() -> None:
    """Print all rates."""
    args = options(__doc__, scale=1.0, processes=2).parse_args()
    replicates, rng = Replicates(args.processes, args.scale), np.random.default_rng(0)
    head("Planned power .80", "labels", "reached")
    for c, size, uncertainty in product((1.0, 20.0), (0.3, 0.7), (0.0, 0.06)):
        logits = rng.normal(-3.5, 1.2, 20_000)
        labels = labels_for_drift(columns(sigmoid(logits)), np.array([1.0, c]), 1, size, uncertainty=uncertainty)
        for moved in (-size, size):
            found = replicates(drift, 1000, logits, int(labels), c, moved, uncertainty)
            line(f"drift {moved:+g}, c = {c:g}, σ = {uncertainty:g}", f"{labels:,}", rate(found))
    for bound, truth in ((0.8, 0.9), (0.9, 0.95), (0.6, 0.8)):
        rows = labels_for_recall_bound(bound, truth, 0.03)
        found = replicates(recall, 20_000, rows, bound, truth)
        line(f"recall bound {bound:g}, recall {truth:g}, 3 % positives", f"{rows:,}", rate(found))
    chance = sigmoid(rng.normal(-6, 2.5, 30_000))
    quiet = chance < 1 / 21
    for rule, bound in product(("neyman", "uniform"), (0.5, 0.7)):
        scores = audit_scores(columns(chance), np.array([1.0, 20.0])) if rule == "neyman" else np.ones(len(chance))
        number = audits_for_recall_bound(chance, quiet, scores, bound)
        found = replicates(audits, 300, chance, quiet, audit_probabilities(scores, quiet, number), bound)
        line(f"recall bound {bound:g} by audits, {rule}", f"{number:,}", rate(found))
    head("Planned width", "labels", "mean width")
    costs, p = np.array([[0, 1.0], [20, 0]]), columns(sigmoid(rng.normal(-3.5, 1.5, 20_000)))
    actions = np.argmin(p @ costs, axis=1)
    labels = labels_for_cost_width(p, actions, costs, 0.1)
    widths = replicates(cost, 300, p, actions, costs, labels)
    line("cost interval of width .1", f"{labels:,}", f"{widths.mean():.4f}")
    head("Class shares without labels", "mean estimate", "covered at .95")
    for before, now, rows in ((0.05, 0.02, 2000), (0.05, 0.15, 2000), (0.02, 0.02, 500)):
        estimates, covered = replicates(shares, 500, before, now, rows).T
        title = f"{before:.0%} in training, {now:.0%} here, {rows:,} rows"
        line(title, f"{estimates.mean():.4f}", rate(covered))
    replicates.done()


if __name__ == "__main__":
    main()
