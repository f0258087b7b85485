"""Coverage of intervals of recall, ROC area and cost, before and after.

    python -m bench.validity.intervals [--scale 1.0] [--processes 2]

"before": percentile bootstrap (recall of two classes), normal interval (cost of K classes); none for binary cost.
"after": `share_interval` (Wilson), `auc_interval` (logit-DeLong with Newcombe), `cost_interval` (MOVER over
Clopper–Pearson); MOVER over Wilson for comparison.
"""

from itertools import product

import numpy as np
from scipy.stats import norm

import crcen.theory.intervals as intervals
from bench.harness import Replicates, head, line, options, rate
from crcen.theory.intervals import auc_interval, cost_interval, share_interval, wilson


def covers(interval, truth):
    """Whether an interval holds the truth."""
    return interval[-2] <= truth <= interval[-1]


def recall(rng: np.random.Generator, n_pos: int, truth: float) -> tuple[bool, ...]:
    """Coverage of positives found: percentile bootstrap, of these of width 0, and Wilson."""
    hit = rng.random(n_pos) < truth
    drawn = rng.binomial(n_pos, hit.mean(), 400) / n_pos
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    return low <= truth <= high, low == high, covers(share_interval(hit), truth)


def clustered_recall(rng: np.random.Generator, n_clusters: int, size: int, rho: float) -> tuple[bool, bool]:
    """Coverage of a recall of .8 with clusters of positives, ignored and used."""
    shared, own = rng.random(n_clusters) < 0.8, rng.random((n_clusters, size)) < 0.8
    hit = np.where(rng.random((n_clusters, size)) < rho, shared[:, None], own).ravel()
    clusters = np.repeat(np.arange(n_clusters), size)
    return covers(share_interval(hit), 0.8), covers(share_interval(hit, None, clusters), 0.8)


def weighted_recall(rng: np.random.Generator) -> tuple[bool, bool]:
    """Coverage of a recall of .8 with Pareto(1.5) weights, ignored and used."""
    w, hit = 1 + rng.pareto(1.5, 60), rng.random(60) < 0.8
    return covers(wilson(w[hit].sum() / w.sum(), 60), 0.8), covers(share_interval(hit, w), 0.8)


def area(rng: np.random.Generator, n_pos: int, distance: float, like: float) -> tuple[float, ...]:
    """Coverage and width of the ROC area of binormal scores; a part of the positives is like negatives."""
    truth = (1 - like) * norm.cdf(distance / np.sqrt(2)) + like / 2
    scores = rng.normal(0, 1, n_pos + 300)
    scores[:n_pos] += distance * (rng.random(n_pos) >= like)
    found = auc_interval(np.arange(n_pos + 300) < n_pos, scores)
    return covers(delong(scores[:n_pos], scores[n_pos:]), truth), covers(found, truth), found.high - found.low


def delong(pos: np.ndarray, neg: np.ndarray) -> tuple[float, float]:
    """Logit-DeLong alone."""
    above = (pos[:, None] > neg).astype(float)
    value = above.mean()
    if value in (0.0, 1.0):
        return value, value
    deviation = np.sqrt(above.mean(1).var(ddof=1) / len(pos) + above.mean(0).var(ddof=1) / len(neg))
    half = 1.96 * deviation / (value * (1 - value))
    middle = np.log(value / (1 - value))
    return 1 / (1 + np.exp(half - middle)), 1 / (1 + np.exp(-half - middle))


def normal_cost(paid: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    """The earlier interval: normal, not below 0."""
    mean = w @ paid / w.sum()
    half = 1.96 * np.sqrt((w**2 * (paid - mean) ** 2).sum()) / w.sum()
    return max(mean - half, 0.0), mean + half


def wilson_cost(*arguments):
    """MOVER over Wilson intervals."""
    exact = intervals.clopper_pearson
    intervals.clopper_pearson = lambda count, size, level: wilson(np.divide(count, size), size, level)
    try:
        return cost_interval(*arguments)
    finally:
        intervals.clopper_pearson = exact


def cost(rng: np.random.Generator, n_classes: int, n_pos: int, recall: float, c: float) -> tuple[float, ...]:
    """Coverage of the cost of a row, so many expected positives among 1,000 rows."""
    if n_classes == 2:
        shares, costs = np.array([1 - n_pos / 1000, n_pos / 1000]), np.array([[0, 1.0], [c, 0]])
        chance = np.array([[0.98, 0.02], [1 - recall, recall]])
    else:  # the second class at a tenth of the cost; a review as a further action
        shares = np.array([0.94 - n_pos / 1000, 0.06, n_pos / 1000])
        costs = np.array([[0, 1.0, 2, 0.4], [c / 10, 0, 1, 0.4], [c, c / 2, 0, 0.4]])
        chance = np.array([[0.95, 0.02, 0.01, 0.02], [0.2, 0.6, 0.1, 0.1], [0, 0, recall, 0]])
        chance[2] += (1 - recall) * np.array([0.5, 0.3, 0, 0.2])
    truth, cells = float(shares @ (chance * costs).sum(axis=1)), (shares[:, None] * chance).ravel()
    counts = rng.multinomial(1000, cells / cells.sum())
    y, actions = np.divmod(np.repeat(np.arange(len(cells)), counts), costs.shape[1])
    after, over_wilson = cost_interval(y, actions, costs), wilson_cost(y, actions, costs)
    return (
        covers(normal_cost(costs[y, actions], np.ones(1000)), truth),
        covers(over_wilson, truth),
        covers(after, truth),
        truth <= after.high,
        (after.high - after.low) / (over_wilson.high - over_wilson.low),
    )


def weighted_cost(rng: np.random.Generator, name: str) -> tuple[bool, bool]:
    """Coverage with negatives that weigh 20 (sampled classes), Pareto(2) weights, or clusters of 5 rows."""
    costs, share = np.array([[0, 1.0], [20, 0]]), 0.3 if name.startswith("negatives") else 0.03
    y, clusters, w = (rng.random(1000) < share).astype(int), None, np.ones(1000)
    mass = np.array([1 - share, share])
    if name.startswith("negatives"):
        w, mass = np.where(y == 1, 1.0, 20.0), mass * [20, 1]
    elif name.startswith("Pareto"):
        w = 1 + rng.pareto(2, 1000)
    else:
        clusters, y = np.repeat(np.arange(200), 5), np.repeat((rng.random(200) < share).astype(int), 5)
    actions = np.where(rng.random(1000) < np.where(y == 1, 0.8, 0.02), 1, 0)
    truth = float(mass @ [0.02, 4.0] / mass.sum())
    return (
        covers(normal_cost(costs[y, actions], w), truth),
        covers(cost_interval(y, actions, costs, w, clusters), truth),
    )


def main() -> None:
    """Print all rates."""
    args = options(__doc__, scale=1.0, processes=2).parse_args()
    replicates = Replicates(args.processes, args.scale)
    head("Recall: coverage at .95", "bootstrap", "of these width 0", "Wilson")
    for n_pos, truth in product((3, 12, 17, 56), (0.8, 0.951)):
        line(f"recall {truth:g}, {n_pos} positives", *map(rate, replicates(recall, 2000, n_pos, truth).T))
    for n_clusters, size, rho in ((12, 5, 0.5), (30, 5, 0.5), (60, 3, 0.2)):
        before, after = replicates(clustered_recall, 2000, n_clusters, size, rho).T
        line(f"{n_clusters} clusters of {size}, ρ = {rho**2:.2f}, ignored / used", rate(before), "", rate(after))
    before, after = replicates(weighted_recall, 2000).T
    line("60 positives, Pareto(1.5) weights, ignored / used", rate(before), "", rate(after))
    head("ROC area: coverage at .95", "logit-DeLong alone", "after", "width")
    kinds = (("AUC .885", 1.7, 0.0), ("AUC .977", 2.82, 0.0), ("AUC .948, mixed", 4.0, 0.1))
    for n_pos, (name, distance, like) in product((3, 5, 12, 17, 56), kinds):
        plain, after, width = replicates(area, 1000, n_pos, distance, like).T
        line(f"{name}, {n_pos} positives", rate(plain), rate(after), f"{width.mean():.3f}")
    columns = ("normal", "over Wilson", "after", "upper limit", "width / Wilson")
    head("Cost of a row: smallest coverage of six cases at .95", *columns)
    for n_classes, n_pos in product((2, 3), (3, 12, 16, 56)):
        found = np.array(
            [
                replicates(cost, 2000, n_classes, n_pos, found, c).mean(axis=0)
                for found, c in product((0.5, 0.8, 0.95), (5, 100))
            ]
        )
        cells = (f"{one:.4f}" for one in (*found[:, :4].min(axis=0), found[:, 4].max()))
        line(f"K = {n_classes}, {n_pos} positives", *cells)
    for name in ("negatives weigh 20", "Pareto(2) weights", "200 clusters of 5 with one class each"):
        before, after = replicates(weighted_cost, 1000, name).T
        line(f"K = 2, {name}", rate(before), "", rate(after))
    replicates.done()


if __name__ == "__main__":
    main()
