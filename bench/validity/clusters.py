"""Clusters and group tests: error rates with dependent rows ignored and used, before and after.

    python -m bench.validity.clusters [--scale 1.0]

200 clusters of 10 rows; the latent log-odds of a row share a normal effect within the cluster (correlation ρ of the
latent variable), and the stated probabilities are right for each row by itself.
"""

import argparse
import math

import numpy as np
from scipy.stats import binom, norm

from bench.harness import columns, done, head, line, rate
from crcen.report.checks import group_chance, score_distance
from crcen.report.curves import reliability_groups
from crcen.theory.exact_tests import one_per_cluster, precision_cut, shares_p_value
from crcen.theory.groups import compare_groups
from crcen.theory.limits import judge_class_shares
from crcen.theory.price import CostRatio, resolve
from crcen.theory.tail import residual_test, residual_values


def clustered(rng: np.random.Generator, n_clusters: int, size: int, rho: float) -> tuple[np.ndarray, ...]:
    """Probabilities, labels and clusters by a probit with a shared part."""
    clusters = np.repeat(np.arange(n_clusters), size)
    x = rng.normal(-1.8, 0.8, n_clusters * size)
    latent = math.sqrt(rho) * rng.standard_normal(n_clusters)[clusters] + math.sqrt(1 - rho) * rng.standard_normal(
        len(x)
    )
    return columns(norm.cdf(x)), (latent < x).astype(int), clusters


def residuals(rng: np.random.Generator, n: int) -> None:
    """The residual test."""
    for n_clusters, size, rho in ((200, 10, 0.5), (200, 10, 0.0), (50, 10, 0.5), (500, 4, 0.3)):
        hits: list[list[bool]] = [[], [], []]
        for _ in range(n):
            p, y, clusters = clustered(rng, n_clusters, size, rho)
            values = residual_values(p, np.array([1.0, 5.0]), 1)
            used = residual_test(values, p, y, clusters=clusters).p_value
            hits[0].append(residual_test(values, p, y).p_value < 0.05)
            hits[1].append(used < 0.05)
            hits[2].append(used < 0.001)
        line(f"{n_clusters} clusters of {size}, ρ = {rho:g}", *(rate(one) for one in hits))


def recall_guarantee(rng: np.random.Generator, n: int) -> None:
    """A recall of .95 at confidence .95 from 60 positives in 12 clusters: all of them, and one of each."""
    for n_clusters in (12, 100):
        held: list[list[bool]] = [[], []]
        size = 5
        for _ in range(n):
            clusters = np.repeat(np.arange(n_clusters), size)
            scores = math.sqrt(0.7) * rng.standard_normal(n_clusters)[clusters] + math.sqrt(0.3) * rng.standard_normal(
                n_clusters * size
            )
            for place, own in enumerate((scores, scores[one_per_cluster(clusters, int(rng.integers(2**31)))])):
                # So many of the scores may lie below the threshold: P(Bin(n, .05) ≤ lost) ≤ .05.
                lost = int(np.searchsorted(binom.cdf(np.arange(len(own)), len(own), 0.05), 0.05, side="right")) - 1
                cut = np.sort(own)[lost] if lost >= 0 else -np.inf  # none: no guarantee is given
                held[place].append(norm.sf(cut) >= 0.95)
        line(f"recall .95 at .95, {n_clusters} clusters of {size} positives", *(rate(one) for one in held))


def precision(rng: np.random.Generator, n: int) -> None:
    """A precision floor: the last threshold that has it on the rows, and the guaranteed one."""
    population = np.sort(1 / (1 + np.exp(-rng.normal(-3, 1.5, 400_000))))[::-1]
    precisions = np.cumsum(population) / np.arange(1, len(population) + 1)
    for n_rows, share in ((500, 0.3), (2000, 0.3), (10_000, 0.5)):
        missed: list[list[bool]] = [[], []]
        given = []
        for _ in range(n):
            scores = np.sort(rng.choice(population, n_rows))[::-1]
            y = rng.random(n_rows) < scores
            plain = np.flatnonzero(np.cumsum(y) / np.arange(1, n_rows + 1) >= share)
            cuts = (int(plain[-1]) + 1 if len(plain) else 0, precision_cut(y, scores, share, 0.95))
            for place, cut in enumerate(cuts):
                at = np.searchsorted(-population, -scores[cut - 1], side="right") - 1 if cut else 0
                missed[place].append(bool(cut) and precisions[at] < share)
            given.append(cuts[1] > 0)
        line(f"precision {share:g} at .95, {n_rows:,} rows", *(rate(one) for one in missed), rate(given))


def report(rng: np.random.Generator, n: int) -> None:
    """Tests of the report at .05, clusters ignored and used: groups of similar probability, class shares, groups."""
    price = resolve(CostRatio(6.0), 100.0, 900.0)
    for n_clusters, size, rho, n_groups in ((200, 10, 0.5, 2), (200, 10, 0.5, 5), (200, 10, 0.0, 2), (50, 10, 0.5, 2)):
        hits: list[list[list[bool]]] = [[[], []] for _ in range(6)]
        for _ in range(n):
            p, y, clusters = clustered(rng, n_clusters, size, rho)
            _, trained, _ = clustered(rng, 3 * n_clusters, size, rho)
            before_scores, scores = (
                math.sqrt(rho) * np.repeat(rng.standard_normal(m), size)
                + math.sqrt(1 - rho) * rng.standard_normal(m * size)
                for m in (3 * n_clusters, n_clusters)
            )
            # Half of the columns hold for a whole cluster, the others for a row.
            group = rng.integers(0, n_groups, n_clusters)[clusters] if rng.random() < 0.5 else None
            group = rng.integers(0, n_groups, len(y)) if group is None else group
            for place, own in enumerate((None, clusters)):
                ones = np.ones(len(y))
                bins = reliability_groups(y == 1, p[:, 1], None, ones, own)
                hits[0][place].append(min(group_chance(one, len(bins), 1.0) for one in bins) < 0.05)
                before = np.bincount(trained, minlength=2).astype(float)
                hits[1][place].append(abs(judge_class_shares(y, ones, before, own)[1].z) > 1.96)
                hits[2][place].append(score_distance(before_scores, scores, 0.0, own)[1] < 0.05)
                (found,) = compare_groups(
                    {"group": group.astype(str)}, y, p, price, price, clusters=own, error_rate=0.15
                )
                for k, test in enumerate(found.tests):
                    hits[3 + k][place].append(test.p_value < 0.05)
        name = f"{n_clusters} clusters of {size}, ρ = {rho:g}, {n_groups} groups"
        line(name, *(" → ".join(f"{np.mean(one):.3f}" for one in both) for both in hits))


def groups(rng: np.random.Generator, n: int) -> None:
    """Groups that differ in recall (.9 and .4) by 60 columns, and groups that do not."""
    level = 0.01 / (3 * 60)
    for name, shares in (("groups differ", (0.9, 0.4, 0.8)), ("groups alike", (0.8, 0.8, 0.8))):
        before, after, size = [], [], []
        for _ in range(n):
            hits, sizes = rng.binomial(60, shares), np.full(3, 60)
            p_value = shares_p_value([(hits, sizes)], level, int(rng.integers(2**31)))
            before.append(max(p_value, 1 / 10_000) < level)
            after.append(p_value < level)
            size.append(p_value < 0.05)
        line(f"{name}, 60 columns", rate(before), rate(after), rate(size))


def main() -> None:
    """Print all rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="number of replicates, relative")
    scale = parser.parse_args().scale
    rng = np.random.default_rng(0)
    head("Residual test, rejected", "ignored, .05", "used, .05", "used, .001")
    residuals(rng, int(2000 * scale))
    head("Guarantee held", "all rows", "one per cluster")
    recall_guarantee(rng, int(2000 * scale))
    head("Precision floor missed", "before", "after", "guarantee given")
    precision(rng, int(1000 * scale))
    names = ("CRC003", "CRC004: shares", "CRC004: scores", "recall", "precision", "calibration")
    head("Tests of the report rejected at .05, ignored → used", *names)
    report(rng, int(1000 * scale))
    head("Groups named as different", "9,999 draws", "after", "p < .05")
    groups(rng, int(300 * scale))
    done()


if __name__ == "__main__":
    main()
