"""Clusters and group tests: error rates with dependent rows ignored and used, before and after.

    python -m bench.validity.clusters [--scale 1.0] [--processes 2]

200 clusters of 10 rows; the latent log-odds of a row share a normal effect within the cluster (correlation ρ of the
latent variable), and the stated probability of each single row is right.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.stats import binom, norm

from bench.harness import Replicates, columns, head, line, options, rate
from crcen.commands.results import Sequences
from crcen.report.checks import group_chance, score_distance
from crcen.report.quality import reliability_groups
from crcen.theory.criteria import ScoredClasses, judge_criteria, parse_criteria
from crcen.theory.groups import compare_groups, shares_p_value
from crcen.theory.limits import judge_class_shares
from crcen.theory.price import CostRatio, resolve
from crcen.theory.residual_test import residual_test, residual_values
from crcen.theory.thresholds import one_per_cluster, precision_cut


def clustered(rng: np.random.Generator, n_clusters: int, size: int, rho: float) -> tuple[np.ndarray, ...]:
    """Probabilities, labels and clusters by a probit with a shared part."""
    clusters = np.repeat(np.arange(n_clusters), size)
    x = rng.normal(-1.8, 0.8, n_clusters * size)
    latent = math.sqrt(rho) * rng.standard_normal(n_clusters)[clusters] + math.sqrt(1 - rho) * rng.standard_normal(
        len(x)
    )
    return columns(norm.cdf(x)), (latent < x).astype(int), clusters


def residuals(rng: np.random.Generator, n_clusters: int, size: int, rho: float) -> tuple[bool, ...]:
    """The residual test: rejected with clusters ignored at .05, used at .05 and .001."""
    p, y, clusters = clustered(rng, n_clusters, size, rho)
    values = residual_values(p, np.array([1.0, 5.0]), 1)
    used = residual_test(values, p, y, clusters=clusters).p_value
    return residual_test(values, p, y).p_value < 0.05, used < 0.05, used < 0.001


def recall_guarantee(rng: np.random.Generator, n_clusters: int, size: int) -> list[bool]:
    """Whether a recall of .95 at confidence .95 holds: by all positives, and by one of each cluster."""
    clusters = np.repeat(np.arange(n_clusters), size)
    scores = math.sqrt(0.7) * rng.standard_normal(n_clusters)[clusters]
    scores = scores + math.sqrt(0.3) * rng.standard_normal(n_clusters * size)
    held = []
    for own in (scores, scores[one_per_cluster(clusters, int(rng.integers(2**31)))]):
        # So many of the scores may lie below the threshold: P(Bin(n, .05) ≤ lost) ≤ .05.
        lost = int(np.searchsorted(binom.cdf(np.arange(len(own)), len(own), 0.05), 0.05, side="right")) - 1
        cut = np.sort(own)[lost] if lost >= 0 else -np.inf  # none: no guarantee is given
        held.append(norm.sf(cut) >= 0.95)
    return held


def precision(rng: np.random.Generator, population: np.ndarray, n_rows: int, share: float) -> tuple[bool, ...]:
    """Precision missed by the last threshold that has it on the rows and by the guaranteed one, which may not exist."""
    precisions = np.cumsum(population) / np.arange(1, len(population) + 1)
    scores = np.sort(rng.choice(population, n_rows))[::-1]
    y = rng.random(n_rows) < scores
    plain = np.flatnonzero(np.cumsum(y) / np.arange(1, n_rows + 1) >= share)
    cuts = (int(plain[-1]) + 1 if len(plain) else 0, precision_cut(y, scores, share, 0.95))
    missed = [
        bool(cut) and precisions[np.searchsorted(-population, -scores[cut - 1], side="right") - 1] < share
        for cut in cuts
    ]
    return *missed, cuts[1] > 0


def report(rng: np.random.Generator, n_clusters: int, size: int, rho: float, n_groups: int) -> list[bool]:
    """Tests of the report at .05, each with clusters ignored and used: similar probability, class shares, groups."""
    price = resolve(CostRatio(6.0), 100.0, 900.0)
    p, y, clusters = clustered(rng, n_clusters, size, rho)
    _, trained, _ = clustered(rng, 3 * n_clusters, size, rho)
    before_scores, scores = (
        math.sqrt(rho) * np.repeat(rng.standard_normal(m), size) + math.sqrt(1 - rho) * rng.standard_normal(m * size)
        for m in (3 * n_clusters, n_clusters)
    )
    # Half of the columns hold for a whole cluster, the others for a row.
    group = rng.integers(0, n_groups, n_clusters)[clusters] if rng.random() < 0.5 else None
    group = rng.integers(0, n_groups, len(y)) if group is None else group
    ones, before = np.ones(len(y)), np.bincount(trained, minlength=2).astype(float)
    hits = []
    for own in (None, clusters):
        bins = reliability_groups(y == 1, p[:, 1], None, ones, own)
        hits.append(min(group_chance(one, len(bins), 1.0) for one in bins) < 0.05)
        hits.append(abs(judge_class_shares(y, ones, before, own)[1].z) > 1.96)
        hits.append(score_distance(before_scores, scores, 0.0, own)[1] < 0.05)
        (found,) = compare_groups({"group": group.astype(str)}, y, p, price, price, clusters=own, error_rate=0.15)
        hits += [test.p_value < 0.05 for test in found.tests]
    return hits


def truth() -> tuple[float, float, float]:
    """Recall, precision and mean cost of the decisions of `certified`."""
    p = norm.cdf(np.random.default_rng(0).normal(-1.8, 0.8, 4_000_000))
    alarm = p > 1 / 6
    recall, precision = p[alarm].sum() / p.sum(), p[alarm].mean()
    return float(recall), float(precision), float(np.where(alarm, 1.0 - p, 5.0 * p).mean())


def certified(
    rng: np.random.Generator, limits: tuple[float, ...], n_clusters: int, size: int, rho: float
) -> list[bool]:
    """Criteria that hold with equality, each alone: passed, then failed, with clusters ignored and used."""
    price = resolve(CostRatio(5.0), 100.0, 900.0)
    p, y, clusters = clustered(rng, n_clusters, size, rho)
    texts = [
        f"{name} {limit}" for name, limit in zip(("recall >=", "precision >=", "cost per row <="), limits, strict=True)
    ]
    rows = ScoredClasses(["no", "yes"], p, price.decide(p).astype(int), price.cost_matrix.costs, price, price, y)
    found = []
    for own in (None, clusters):
        used = replace(rows, clusters=own)
        judged = [
            judge_criteria(parse_criteria([text], rows.labels, 1), used, 0.95, lambda rate: None) for text in texts
        ]
        found += [one.verdict == word for word in ("pass", "fail") for (one,) in judged]
    return found


def compared(rng: np.random.Generator, n_clusters: int, size: int, rho: float) -> list[bool]:
    """Whether equal models are told apart by a confidence sequence over rows, and over means of clusters."""
    _, y, clusters = clustered(rng, n_clusters, size, rho)
    # Each model decides for half of the clusters, so that their costs differ by chance alone.
    difference = np.where(rng.random(n_clusters)[clusters] < 0.5, 1.0, -1.0) * np.where(y == 1, 5.0, -1.0)
    found = []
    for own in (None, clusters):
        tests = Sequences()
        tests.put("cost", difference, -5.0, 5.0, own)
        found.append(tests["cost"].decides(0.05) != 0)
    return found


def groups(rng: np.random.Generator, shares: tuple[float, ...]) -> tuple[bool, ...]:
    """Groups with these recalls, one of 60 columns: named with 9,999 draws, with enough draws, and p < .05."""
    level = 0.01 / (3 * 60)
    p_value = shares_p_value([(rng.binomial(60, shares), np.full(3, 60))], level, int(rng.integers(2**31)))
    return max(p_value, 1 / 10_000) < level, p_value < level, p_value < 0.05


def evidence(replicates: Replicates) -> None:
    """Print the rates of `crcen certify` and `crcen compare`."""
    names = ("recall", "precision", "cost")
    head(
        "Criteria at their limit, passed and failed at .05",
        *(f"{one}, {word}" for word in ("pass", "fail") for one in names),
    )
    limits = truth()
    for case in ((200, 10, 0.5), (50, 10, 0.5), (500, 4, 0.3)):
        before, after = replicates(certified, 500, limits, *case).mean(axis=0).reshape(2, -1)
        cells = (f"{a:.3f} → {b:.3f}" for a, b in zip(before, after, strict=True))
        line("{} clusters of {}, ρ = {:g}".format(*case), *cells)
    head("Equal models told apart at .05", "rows", "clusters")
    for case in ((200, 10, 0.5), (500, 4, 0.3)):
        line("{} clusters of {}, ρ = {:g}".format(*case), *map(rate, replicates(compared, 2000, *case).T))


def main() -> None:
    """Print all rates."""
    args = options(__doc__, scale=1.0, processes=2).parse_args()
    replicates = Replicates(args.processes, args.scale)
    names = ("CRC003", "CRC004: shares", "CRC004: scores", "recall", "precision", "calibration")
    head("Tests of the report rejected at .05, ignored → used", *names)
    for case in ((200, 10, 0.5, 2), (200, 10, 0.5, 5), (200, 10, 0.0, 2), (50, 10, 0.5, 2)):
        before, after = replicates(report, 2000, *case).mean(axis=0).reshape(2, -1)
        cells = (f"{a:.3f} → {b:.3f}" for a, b in zip(before, after, strict=True))
        line("{} clusters of {}, ρ = {:g}, {} groups".format(*case), *cells)
    head("Residual test, rejected", "ignored, .05", "used, .05", "used, .001")
    for case in ((200, 10, 0.5), (200, 10, 0.0), (50, 10, 0.5), (500, 4, 0.3)):
        line("{} clusters of {}, ρ = {:g}".format(*case), *map(rate, replicates(residuals, 2000, *case).T))
    head("Guarantee held", "all rows", "one per cluster")
    for case in ((12, 5), (100, 5)):
        found = replicates(recall_guarantee, 2000, *case)
        line("recall .95 at .95, {} clusters of {} positives".format(*case), *map(rate, found.T))
    head("Precision floor missed", "before", "after", "guarantee given")
    population = np.sort(1 / (1 + np.exp(-np.random.default_rng(0).normal(-3, 1.5, 400_000))))[::-1]
    for n_rows, floor in ((500, 0.3), (2000, 0.3), (10_000, 0.5)):
        found = replicates(precision, 1000, population, n_rows, floor)
        line(f"precision {floor:g} at .95, {n_rows:,} rows", *map(rate, found.T))
    head("Groups named as different", "9,999 draws", "after", "p < .05")
    for name, recalls in (("groups differ", (0.9, 0.4, 0.8)), ("groups alike", (0.8, 0.8, 0.8))):
        line(f"{name}, 60 columns", *map(rate, replicates(groups, 300, recalls).T))
    evidence(replicates)
    replicates.done()


if __name__ == "__main__":
    main()
