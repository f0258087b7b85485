"""Coverage of intervals of recall, ROC area and cost, before and after.

    python -m bench.validity.intervals [--scale 1.0]

"before": percentile bootstrap (recall of two classes), normal interval (cost of K classes); none for binary cost.
"after": `share_interval` (Wilson), `auc_interval` (logit-DeLong with Newcombe), `cost_interval` (MOVER over
Clopper–Pearson); MOVER over Wilson for comparison.
"""

import argparse
from itertools import product

import numpy as np
from scipy.stats import norm

import crcen.theory.intervals as intervals
from bench.harness import done, head, line, rate
from crcen.theory.intervals import auc_interval, cost_interval, share_interval, wilson


def covers(interval, truth):
    """Whether an interval holds the truth."""
    return interval[-2] <= truth <= interval[-1]


def recall(rng: np.random.Generator, n: int) -> None:
    """Positives found, by percentile bootstrap and by Wilson."""
    for n_pos, truth in product((3, 12, 17, 56), (0.8, 0.951)):
        before, after, point = [], [], []
        for _ in range(n):
            hit = rng.random(n_pos) < truth
            drawn = rng.binomial(n_pos, hit.mean(), 400) / n_pos
            low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
            before.append(low <= truth <= high)
            point.append(low == high)
            after.append(covers(share_interval(hit), truth))
        line(f"recall {truth:g}, {n_pos} positives", rate(before), rate(point), rate(after))
    for n_clusters, size, rho in ((12, 5, 0.5), (30, 5, 0.5), (60, 3, 0.2)):
        before, after = [], []
        for _ in range(n):
            shared = rng.random(n_clusters) < 0.8
            hit = np.where(
                rng.random((n_clusters, size)) < rho, shared[:, None], rng.random((n_clusters, size)) < 0.8
            ).ravel()
            before.append(covers(share_interval(hit), 0.8))
            after.append(covers(share_interval(hit, None, np.repeat(np.arange(n_clusters), size)), 0.8))
        line(f"{n_clusters} clusters of {size}, ρ = {rho**2:.2f}, ignored / used", rate(before), "", rate(after))
    before, after = [], []
    for _ in range(n):
        w = 1 + rng.pareto(1.5, 60)
        hit = rng.random(60) < 0.8
        share = w[hit].sum() / w.sum()
        before.append(covers(wilson(share, 60), 0.8))
        after.append(covers(share_interval(hit, w), 0.8))
    line("60 positives, Pareto(1.5) weights, ignored / used", rate(before), "", rate(after))


def area(rng: np.random.Generator, n: int) -> None:
    """ROC area of binormal scores, and of positives of which a part is like negatives."""
    for n_pos, (name, distance, like) in product(
        (3, 5, 12, 17, 56), (("AUC .885", 1.7, 0.0), ("AUC .977", 2.82, 0.0), ("AUC .948, mixed", 4.0, 0.1))
    ):
        truth = (1 - like) * norm.cdf(distance / np.sqrt(2)) + like / 2
        plain, after, width = [], [], []
        target = np.r_[np.ones(n_pos, bool), np.zeros(300, bool)]
        for _ in range(n):
            scores = rng.normal(0, 1, n_pos + 300)
            scores[:n_pos] += distance * (rng.random(n_pos) >= like)
            found = auc_interval(target, scores)
            after.append(covers(found, truth))
            width.append(found.high - found.low)
            plain.append(covers(delong(scores[:n_pos], scores[n_pos:]), truth))
        line(f"{name}, {n_pos} positives", rate(plain), rate(after), f"{np.mean(width):.3f}")


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


def cost(rng: np.random.Generator, n: int, n_classes: int) -> None:
    """Cost of a row, so many expected positives among 1,000 rows: smallest coverage over six cases."""
    for n_pos in (3, 12, 16, 56):
        found = [_cost_coverage(rng, n, n_classes, n_pos, *case) for case in product((0.5, 0.8, 0.95), (5, 100))]
        worst = np.min(np.array(found), axis=0)
        line(f"K = {n_classes}, {n_pos} positives", *(f"{one:.4f}" for one in (*worst[:4], -worst[4])))


def _cost_coverage(
    rng: np.random.Generator, n: int, n_classes: int, n_pos: int, recall: float, c: float
) -> tuple[float, ...]:
    if n_classes == 2:
        shares, costs = np.array([1 - n_pos / 1000, n_pos / 1000]), np.array([[0, 1.0], [c, 0]])
        chance = np.array([[0.98, 0.02], [1 - recall, recall]])
    else:  # the second class at a tenth of the cost; a review as a further action
        shares = np.array([0.94 - n_pos / 1000, 0.06, n_pos / 1000])
        costs = np.array([[0, 1.0, 2, 0.4], [c / 10, 0, 1, 0.4], [c, c / 2, 0, 0.4]])
        chance = np.array([[0.95, 0.02, 0.01, 0.02], [0.2, 0.6, 0.1, 0.1], [0, 0, recall, 0]])
        chance[2] += (1 - recall) * np.array([0.5, 0.3, 0, 0.2])
    truth, cells = float(shares @ (chance * costs).sum(axis=1)), (shares[:, None] * chance).ravel()
    rows = []
    for counts in rng.multinomial(1000, cells / cells.sum(), n):
        y, actions = np.divmod(np.repeat(np.arange(len(cells)), counts), costs.shape[1])
        after, over_wilson = cost_interval(y, actions, costs), wilson_cost(y, actions, costs)
        rows.append(
            (
                covers(normal_cost(costs[y, actions], np.ones(1000)), truth),
                covers(over_wilson, truth),
                covers(after, truth),
                truth <= after.high,
                -(after.high - after.low) / (over_wilson.high - over_wilson.low),
            )
        )
    return tuple(np.mean(rows, axis=0))


def weighted_cost(rng: np.random.Generator, n: int) -> None:
    """Rare negatives weigh 20 (sampled classes), or all rows Pareto(2); clusters of 5 rows."""
    costs = np.array([[0, 1.0], [20, 0]])
    for name in ("negatives weigh 20", "Pareto(2) weights", "200 clusters of 5 with one class each"):
        before, after, truth = [], [], 0.0
        for _ in range(n):
            share = 0.3 if name.startswith("negatives") else 0.03
            y = (rng.random(1000) < share).astype(int)
            clusters = None
            if name.startswith("200"):
                clusters = np.repeat(np.arange(200), 5)
                y = np.repeat((rng.random(200) < share).astype(int), 5)
            actions = np.where(rng.random(1000) < np.where(y == 1, 0.8, 0.02), 1, 0)
            w = np.where(y == 1, 1.0, 20.0) if name.startswith("negatives") else np.ones(1000)
            if name.startswith("Pareto"):
                w = 1 + rng.pareto(2, 1000)
            mass = np.array([(1 - share) * 20, share]) if name.startswith("negatives") else np.array([1 - share, share])
            truth = float(mass @ [0.02, 4.0] / mass.sum())
            before.append(covers(normal_cost(costs[y, actions], w), truth))
            after.append(covers(cost_interval(y, actions, costs, w, clusters), truth))
        line(f"K = 2, {name}", rate(before), "", rate(after))


def main() -> None:
    """Print all rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="number of replicates, relative")
    scale = parser.parse_args().scale
    rng = np.random.default_rng(0)
    head("Recall: coverage at .95", "bootstrap", "of these width 0", "Wilson")
    recall(rng, int(2000 * scale))
    head("ROC area: coverage at .95", "logit-DeLong alone", "after", "width")
    area(rng, int(1000 * scale))
    for n_classes in (2, 3):
        head(
            "Cost of a row: smallest coverage at .95", "normal", "over Wilson", "after", "upper limit", "width / Wilson"
        )
        cost(rng, int(2000 * scale), n_classes)
    weighted_cost(rng, int(1000 * scale))
    done()


if __name__ == "__main__":
    main()
