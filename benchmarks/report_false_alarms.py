"""How often the report's checks warn about a model that states the true posterior, on 300 samples of 2,000 rows.

python benchmarks/report_false_alarms.py [--samples 300] [--rows 2000]
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import crcen


class TruePosterior:
    """p = σ(−2.5 + 1.5·x), with a price of 5 and the counts of a large training set."""

    classes_, pos_label_ = np.array([0, 1]), 1

    def __init__(self, share: float) -> None:
        self.weighting_ = crcen.resolve(crcen.Budget(5), share * 1e6, (1.0 - share) * 1e6)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Two columns."""
        p = crcen.sigmoid(-2.5 + 1.5 * X[:, 0])
        return np.column_stack([1.0 - p, p])


def main() -> None:
    """Print the number of warnings of each check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--rows", type=int, default=2000)
    options = parser.parse_args()
    many = np.random.default_rng(0).normal(size=1_000_000)
    model = TruePosterior(float(crcen.sigmoid(-2.5 + 1.5 * many).mean()))
    warned: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.samples):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(options.rows, 1))
            y = (rng.random(options.rows) < model.predict_proba(X)[:, 1]).astype(int)
            report = crcen.write_report(model, X, y, Path(folder) / "report.html")
            warned.update(finding.code for finding in report.warnings)
    print(f"{options.samples} samples of {options.rows:,} rows, true posterior: {sum(warned.values())} warnings")
    for finding in report.findings:
        print(f"{finding.code}  {warned[finding.code]:>3}  {finding.title}")


if __name__ == "__main__":
    main()
