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

import numpy as np
from sklearn.model_selection import train_test_split

import crcen
from crcen.decisions.expense_curve import EquivalenceReport, equivalence_report

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
