"""Reasons for 10,000 alarms and 30 columns: time, standard errors, and the error compared with many more rounds.

    OMP_NUM_THREADS=1 python -m bench.speed.reasons [--rows 10000] [--out FILE]

A table of 30 numbers in which columns act alone, in pairs and in threes. Prints processor seconds, shared by all cores
(values do not depend on their number), the largest and the median standard error, and the root mean square of the
difference to values of another seed over √2, which the standard errors should equal.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from crcen import Budget, CommitteeClassifier, CRCENClassifier

COLUMNS, TRAINING = 30, 4_000


def table(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, COLUMNS))
    log_odds = -3 + X[:, 0] + X[:, 1] * X[:, 2] + np.sin(2 * X[:, 3]) + 0.5 * X[:, 4:8].sum(axis=1)
    log_odds += X[:, 8] * X[:, 9] * (X[:, 10] > 0)
    return X, rng.random(n) < 1 / (1 + np.exp(-log_odds))


def line(name: str, model: object, X: np.ndarray, background: np.ndarray) -> str:
    """One model's line."""
    start, begun = time.process_time(), time.perf_counter()
    found = model.reasons(X, background=background)  # type: ignore[attr-defined]
    seconds, wall = time.process_time() - start, time.perf_counter() - begun
    few = X[:500]
    other = model.reasons(few, background=background, random_state=1)  # type: ignore[attr-defined]
    again = model.reasons(few, background=background)  # type: ignore[attr-defined]
    apart = np.sqrt(((again.values - other.values) ** 2).mean() / 2)
    said = np.sqrt((again.errors**2 + other.errors**2).mean() / 2)
    return (
        f"{name:<34} {seconds:>9.1f}  {wall:>9.1f}  {found.standard_error:>9.3f}  {np.median(found.errors):>9.4f}  "
        f"{apart:>9.4f}  {said:>9.4f}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    X, y = table(TRAINING, 0)
    new, _ = table(options.rows, 1)
    models = {
        "4 networks of 64 units": CRCENClassifier(Budget(5), hidden=(64,), random_state=0),
        "4 networks of 64 and 32 units": CRCENClassifier(Budget(5), hidden=(64, 32), random_state=0),
        "boosted trees, 3 settings": CommitteeClassifier(Budget(5), members=("trees",), cv=3, random_state=0),
    }
    lines = [
        f"{options.rows:,} rows of {COLUMNS} columns against 32 background rows",
        f"{'':<34} {'processor':>9}  {'wall':>9}  {'largest':>9}  {'median':>9}  {'measured':>9}  {'said':>9}",
        f"{'':<34} {'seconds':>9}  {'seconds':>9}  {'error':>9}  {'error':>9}  {'rms error':>9}  {'rms error':>9}",
    ]
    for name, model in models.items():
        lines.append(line(name, model.fit(X, y), new, X[:32]))
        print("\n".join(lines[-1:]), flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
