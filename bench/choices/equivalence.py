"""Training with a weight compared with moving the threshold to 1 − λ: the cost of decisions on unseen rows.

    python -m bench.choices.equivalence [--data-home DIR] [--sets abalone us_crime] [--folds 4] [--max-rows 20000]
                                     [--epochs 30] [--cases 5]

Every available benchmark set, with at most `--max-rows` rows (a stratified sample), is evaluated out of fold by
`equivalence_report` for networks with 16 hidden units. The output is a table of all sets at the price of α = 1, then a
line for each penalty and price: the geometric mean of the cost ratio (trained over cut) with a 95 % interval over the
sets, the number of sets on which the interval over rows shows a difference, and the median share of rows decided
differently. In the last line each way has its own best penalty.
"""

import argparse
import os
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

import crcen
from crcen.decisions.expense_curve import stratified_splits
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.search.classifier_cv import path_logits
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.metrics import bootstrap_sums, percentile_interval
from crcen.theory.price import Price, WeightingLike
from crcen.theory.rows import Estimator, Rows, ShownInOneLine, Splitter

BASE = {"hidden": (16,), "encoding": "standard", "n_members": 1, "random_state": 0, "device": "cpu"}
# The first is printed in full.
CASES: dict[str, tuple[dict, object]] = {
    "l2 1e-3, α = 1": ({"l2": 1e-3}, crcen.Alpha(1)),
    "no l2, α = 1": ({"l2": 0.0}, crcen.Alpha(1)),
    "l2 0.01, α = 1": ({"l2": 0.01}, crcen.Alpha(1)),
    "l2 0.1, α = 1": ({"l2": 0.1}, crcen.Alpha(1)),
    "l2 1e-3, α = 4": ({"l2": 1e-3}, crcen.Alpha(4)),
}
SAME_PRICE = [case for case in CASES if case.endswith("α = 1")]


@dataclass(frozen=True, repr=False)
class EquivalenceReport(ShownInOneLine):
    """Two ways to decide at one price, on rows that neither was trained on; costs in false alarms for 1,000 rows."""

    weighting: Price
    n_rows: int
    n_pos: int
    share_differing: float  # share of rows that the two decide differently
    share_differing_by_seed: float  # the same for two seeds of the plain network; NaN without a seed
    cost_trained: float
    cost_cut: float
    difference: float  # trained minus cut: below 0 training with the weight was cheaper
    difference_interval: tuple[float, float]  # bootstrap over rows; it does not hold the chance of training
    level: float

    @property
    def verdict(self) -> str:
        """The result by the interval: "trained cheaper", "cut cheaper", or "no difference shown"."""
        low, high = self.difference_interval
        if high < 0.0:
            return "trained cheaper"
        return "cut cheaper" if low > 0.0 else "no difference shown"

    def __str__(self) -> str:
        (low, high), price, seed = self.difference_interval, self.weighting, self.share_differing_by_seed
        by_seed = "" if np.isnan(seed) else f" (two seeds of the plain network: {100 * seed:.2f} %)"
        return (
            f"Trained at λ = {price.lam:.4g} against a plain network cut at {price.threshold:.4g} (a miss is worth "
            f"{price.cost_ratio:.4g} false alarms)\n"
            f"  rows judged          {self.n_rows}, of them {self.n_pos} positive, none of them trained on\n"
            f"  decided differently  {100 * self.share_differing:.2f} % of rows{by_seed}\n"
            f"  cost for 1,000 rows  trained {self.cost_trained:.4g}, cut {self.cost_cut:.4g}\n"
            f"  difference           {self.difference:+.4g}, {100 * self.level:g} % interval "
            f"[{low:+.4g}, {high:+.4g}]: {self.verdict}"
        )


def equivalence_report(
    estimator: Estimator,
    X: Rows,
    y: ArrayLike,
    weighting: WeightingLike = "balanced",
    *,
    cv: Splitter = 4,
    sample_weight: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int = 0,
) -> EquivalenceReport:
    """Train at a weight and without one, decide both at that price, and compare.

    Networks are trained from copies of the estimator, both of every fold in one stack. A plain network of another seed
    shows how much the seed alone changes.

    Parameters
    ----------
    estimator, X, y, sample_weight, cv, level, n_resamples, random_state
        See `ExpenseCurve.from_estimator`.
    weighting : Lam, Alpha, CostRatio, Budget, float or "balanced", default="balanced"
        The price; λ = ½ is the plain network itself and is refused.
    """
    splits = stratified_splits(cv, X, y, random_state)
    path = path_logits(estimator, X, y, [None, weighting], splits, sample_weight)
    plain, price = path.weightings
    if price.positive is None:
        raise InvalidInput(f"equivalence_report is for two classes, got {price.n_classes}")
    if np.isclose(price.lam, plain.lam, rtol=0.0, atol=1e-12):
        raise InvalidParameter("at λ = ½ training with the weight is plain training: give another weighting")
    trained = path.logits[1] > 0.0
    cut = path.logits[0] + price.logit_shift > 0.0
    costs, weights = CostMatrix.binary(fn=price.cost_ratio), path.weights
    own = [weights * costs.realised(path.target, alarms) for alarms in (trained, cut)]
    sums = bootstrap_sums(np.column_stack([own[0] - own[1], weights]), n_resamples, np.random.default_rng(random_state))
    low, high = percentile_interval(1000.0 * sums[:, 0] / sums[:, 1], level)
    total = float(weights.sum())
    cost_trained, cost_cut = (1000.0 * float(cost.sum()) / total for cost in own)
    by_seed = np.nan
    if "random_state" in estimator.get_params(deep=False):
        seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
        other = path_logits(clone(estimator).set_params(random_state=seed), X, y, [None], splits, sample_weight)
        by_seed = float(weights @ ((other.logits[0] + price.logit_shift > 0.0) != cut)) / total
    return EquivalenceReport(
        weighting=price,
        n_rows=len(trained),
        n_pos=int(path.target.sum()),
        share_differing=float(weights @ (trained != cut)) / total,
        share_differing_by_seed=by_seed,
        cost_trained=cost_trained,
        cost_cut=cost_cut,
        difference=cost_trained - cost_cut,
        difference_interval=(low, high),
        level=level,
    )


def over_sets(trained: list[float], cut: list[float]) -> str:
    """Geometric mean of the ratio of costs, with its interval over the sets."""
    logs = np.log(np.array(trained) / np.array(cut))
    error = 1.96 * logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
    return f"{np.exp(logs.mean()):>6.3f}  [{np.exp(logs.mean() - error):.3f}, {np.exp(logs.mean() + error):.3f}]"


def summary(reports: list[EquivalenceReport]) -> str:
    """Ratio of costs over the sets, verdicts, and medians of the shares of rows decided differently."""
    verdicts = [report.verdict for report in reports]
    shares = [(100 * report.share_differing, 100 * report.share_differing_by_seed) for report in reports]
    differing, by_seed = np.median(shares, axis=0)
    ratio = over_sets([report.cost_trained for report in reports], [report.cost_cut for report in reports])
    return (
        f"{ratio}  {verdicts.count('trained cheaper'):>7}  {verdicts.count('cut cheaper'):>5}  "
        f"{verdicts.count('no difference shown'):>7}  {differing:>6.2f} %  {by_seed:>6.2f} %"
    )


def line(name: str, report: EquivalenceReport) -> str:
    """One set of the full table."""
    low, high = report.difference_interval
    return (
        f"{name:<17}{report.n_pos:>6}{report.weighting.cost_ratio:>8.1f}{100 * report.share_differing:>9.2f}"
        f"{100 * report.share_differing_by_seed:>9.2f}{report.cost_trained:>9.1f}{report.cost_cut:>9.1f}"
        f"{report.difference:>+9.1f}  {f'[{low:+.1f}, {high:+.1f}]':<18}{report.verdict}"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("CRCEN_DATA_HOME") or None)
    parser.add_argument("--sets", nargs="+", default=None)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--max-rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=None, help="of training; the estimator's own by default")
    parser.add_argument("--cases", type=int, default=len(CASES), help="how many of the networks and prices to run")
    args = parser.parse_args()
    names = args.sets or [row.name for row in crcen.list_datasets(args.data_home) if row.available != "download"]
    cases = dict(list(CASES.items())[: args.cases])
    found: dict[str, list[EquivalenceReport]] = {case: [] for case in cases}
    start = time.perf_counter()
    full = next(iter(CASES))
    print(f"{full}; costs for 1,000 rows, in false alarms; difference is trained minus cut")
    print(
        f"{'set':<17}{'pos.':>6}{'price':>8}{'differ %':>9}{'seed %':>9}{'trained':>9}{'cut':>9}{'diff.':>9}  "
        f"{'95 % interval':<18}verdict"
    )
    for name in names:
        data = crcen.load_dataset(name, args.data_home)
        X, y = data.X, data.y
        if len(y) > args.max_rows:
            X, _, y, _ = train_test_split(X, y, train_size=args.max_rows, stratify=y, random_state=0)
        for case, (params, price) in cases.items():
            estimator = crcen.CRCENClassifier(**BASE, **params, max_epochs=args.epochs)
            found[case].append(equivalence_report(estimator, X, y, price, cv=args.folds))
        print(line(name, found[full][-1]), flush=True)
    print(
        f"\nall {len(names)} sets, {args.folds} folds, at most {args.max_rows} rows: cost trained / cost cut, "
        "and verdicts"
    )
    print(f"{'penalty and price':<22}{'ratio':>6}  {'95 % interval':<14}  trained    cut  neither    differ    seed")
    for case, reports in found.items():
        print(f"{case:<22}{summary(reports)}")
    if set(SAME_PRICE) <= set(found):
        by_set = list(zip(*(found[case] for case in SAME_PRICE), strict=True))
        best = [[min(getattr(r, f"cost_{way}") for r in own) for own in by_set] for way in ("trained", "cut")]
        print(f"{'own best l2, α = 1':<22}{over_sets(*best)}")
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
