"""How often the checks of the report warn about a right model, and about tables without problems.

First, 300 samples of 2,000 rows from a known posterior, which the model states. Then models fitted on as many rows,
with the model uncertainty estimated as in `crcen fit`. Then every available benchmark set, with half of its rows for a
small network and half for its evaluation.

python -m bench.validity.report_false_alarms [--samples 300] [--rows 2000] [--fits 100] [--only-fitted] [--models trees]
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

import crcen
from crcen.exceptions import DataUnavailable
from crcen.report.checks import examine
from crcen.report.evidence import gather
from crcen.theory.price import sigmoid

# What asks whether figures are too good to be true; the others judge the small network, not the table.
TOO_GOOD = ("CRC005", "CRC006", "CRC009")
SMALL = {"hidden": (16,), "l2": 1e-2, "encoding": "standard", "n_members": 1, "max_epochs": 10}
MOST_ROWS, MOST_COLUMNS = 15_000, 300


class TruePosterior:
    """p = σ(−2.5 + 1.5·x), with a price of 5 and the counts of a large training set; of three columns one matters."""

    classes_, pos_label_ = np.array([0, 1]), 1

    def __init__(self, share: float) -> None:
        self.weighting_ = crcen.resolve(crcen.Budget(5), share * 1e6, (1.0 - share) * 1e6)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Two columns."""
        p = sigmoid(-2.5 + 1.5 * X[:, 0])
        return np.column_stack([1.0 - p, p])


def true_posterior(samples: int, rows: int, page: Path) -> None:
    """Print the number of warnings of each check."""
    many = np.random.default_rng(0).normal(size=1_000_000)
    model = TruePosterior(float(sigmoid(-2.5 + 1.5 * many).mean()))
    warned: Counter[str] = Counter()
    for seed in range(samples):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(rows, 3))
        y = (rng.random(rows) < model.predict_proba(X)[:, 1]).astype(int)
        report = crcen.write_report(model, X, y, page)
        warned.update(finding.code for finding in report.warnings)
    print(f"{samples} samples of {rows:,} rows, true posterior: {sum(warned.values())} warnings")
    for finding in report.findings:
        print(f"{finding.code}  {warned[finding.code]:>3}  {finding.title}")


FITTED = {
    "networks": (
        "searched networks",
        lambda seed: crcen.CRCENClassifierCV(
            crcen.Budget(5), hidden=[(16,)], l2=[1e-3, 1e-2, 1e-1], n_members=2, random_state=seed
        ),
    ),
    "trees": (
        "boosted trees",
        lambda seed: crcen.CommitteeClassifier(crcen.Budget(5), members="trees", n_jobs=1, random_state=seed),
    ),
}


def fitted_models(fits: int, rows: int, models: list[str]) -> None:
    """Print the number of warnings of each check about fitted models, on rows like theirs."""
    for name, make in map(FITTED.__getitem__, models):
        warned: Counter[str] = Counter()
        for seed in range(fits):
            rng = np.random.default_rng([seed, rows])
            X = rng.normal(size=(2 * rows, 3))
            y = (rng.random(2 * rows) < sigmoid(-2.5 + 1.5 * X[:, 0])).astype(int)
            model = make(seed).fit(X[:rows], y[:rows])
            model.training_error_ = crcen.training_error(model, X[:rows], y[:rows], n_fits=6, random_state=seed)
            findings = examine(gather(model, X[rows:], y[rows:]))
            warned.update(finding.code for finding in findings if finding.status == "warning")
        print(f"\n{fits} {name} fitted on {rows:,} rows and judged on as many: {sum(warned.values())} warnings")
        print("\n".join(f"{one.code}  {warned[one.code]:>3}  {one.title}" for one in findings), flush=True)


def honest_tables(page: Path) -> None:
    """Print on which sets of the benchmark the checks for leaks warn."""
    warned: dict[str, list[str]] = {code: [] for code in TOO_GOOD}
    n_sets = 0
    for name in (listing.name for listing in crcen.list_datasets()):
        try:
            data = crcen.load_dataset(name)
        except DataUnavailable:
            continue
        if data.X.shape[1] > MOST_COLUMNS:
            continue
        n_sets += 1
        rows = np.random.default_rng(0).permutation(len(data.y))[:MOST_ROWS]
        train, test = train_test_split(rows, test_size=0.5, stratify=data.y[rows], random_state=0)
        model = crcen.CRCENClassifierCV("balanced", random_state=0, **SMALL).fit(data.X[train], data.y[train])
        for finding in crcen.write_report(model, data.X[test], data.y[test], page).warnings:
            if finding.code in TOO_GOOD:
                warned[finding.code].append(name)
    print(f"\n{n_sets} sets of the benchmark, half of each to fit and half to judge, checks for leaks")
    for code, names in warned.items():
        print(f"{code}  {len(names):>3}  {', '.join(names)}".rstrip())


def main() -> None:
    """Count both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--only-fitted", action="store_true")
    parser.add_argument("--models", nargs="*", choices=list(FITTED), default=list(FITTED))
    options = parser.parse_args()
    if options.only_fitted:
        fitted_models(options.fits, options.rows, options.models)
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        true_posterior(options.samples, options.rows, page)
        fitted_models(options.fits, options.rows, options.models)
        honest_tables(page)


if __name__ == "__main__":
    main()
