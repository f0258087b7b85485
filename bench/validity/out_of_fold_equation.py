"""Z of the key equation out of fold: its spread over training sets, and its relation to new rows.

    python -m bench.validity.out_of_fold_equation [--logistic 300] [--networks 60] [--out FILE]

Five normal features, true log-odds linear in them, 10 % positives, 1,000 training rows in 4 stratified folds, 1,000 new
rows. The models are logistic regressions without a penalty at λ = ½, which have the right form, and networks selected
by `CRCENClassifierCV` at weighting="balanced". If Z out of fold were a valid test, its standard deviation would be 1 or
more.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import crcen
from crcen._support.files import write_atomic
from crcen.theory.price import sigmoid

COEF, BIAS, N = np.array([1.0, -0.8, 0.5, 0.0, 0.3]), -2.874, 1000


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels."""
    X = rng.standard_normal((n, COEF.size))
    return X, (rng.random(n) < sigmoid(BIAS + X @ COEF)).astype(int)


def logistic(seed: int) -> tuple[float, float]:
    """Z out of fold and on new rows, of the right model."""
    rng = np.random.default_rng(seed)
    (X, y), (X_new, y_new) = draw(rng, N), draw(rng, N)
    model = LogisticRegression(C=1e6)
    folds = StratifiedKFold(4, shuffle=True, random_state=seed)
    held_out = cross_val_predict(model, X, y, cv=folds, method="predict_proba")[:, 1]
    new = model.fit(X, y).predict_proba(X_new)[:, 1]
    return crcen.key_equation(y, held_out, None).z, crcen.key_equation(y_new, new, None).z


def network(seed: int) -> tuple[float, float]:
    """The same of searched networks, before the solve on out-of-fold rows."""
    rng = np.random.default_rng(seed)
    (X, y), (X_new, y_new) = draw(rng, N), draw(rng, N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibration = crcen.Calibration(balance="oof", probability="shift", training_weighting="price")
        grid = {"hidden": [(8,)], "l2": [1e-3, 1e-2, 1e-1]}
        model = crcen.CRCENClassifierCV(**grid, random_state=seed, calibration=calibration)
        model.fit(X, y)
    held_out = sigmoid(model.oof_decision_function_ - model.oof_shift_)
    new = model.weighted_proba(X_new)[:, 1]
    w = model.weighting_
    return crcen.key_equation(y, held_out, w).z, crcen.key_equation(y_new, new, w).z


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logistic", type=int, default=300)
    parser.add_argument("--networks", type=int, default=60)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    began = time.perf_counter()
    lines = [
        "Z of the key equation over training sets of 1,000 rows, 4 stratified folds",
        f"{'model':<24}{'fits':>6}{'sd out of fold':>16}{'sd on new rows':>16}{'correlation':>13}",
    ]
    for name, one, n in (
        ("logistic regression", logistic, args.logistic),
        ("searched networks", network, args.networks),
    ):
        z = np.array([one(seed) for seed in range(n)])
        spread, together = z.std(axis=0, ddof=1), np.corrcoef(z.T)[0, 1]
        lines.append(f"{name:<24}{n:>6}{spread[0]:>16.3f}{spread[1]:>16.3f}{together:>13.2f}")
    print("\n".join(lines))
    print(f"{time.perf_counter() - began:.0f} s")
    if args.out:
        write_atomic(args.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
