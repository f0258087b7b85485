"""How often the residual test rejects a fitted model on new rows of the same kind, at nominal .05.

    python benchmarks/residual_test_size.py [--quick] [--fits 200] [--out results/residual_test_size.txt]

Five normal features, true log-odds linear in them. Every fitted model is tested on 50 draws of new rows; what varies is
how the model's own error is allowed for: not at all, by the factor 1 + n_new/n_train, and by `crcen.training_error`
with 8 refits on halves. Intervals are over fits. A model that is biased in the mean, as trees with few rows can be, is
rejected for that as well. --quick has 1,000 training rows, 10 % positives and few fits: minutes on one core. The full
grid is 18 cells for each kind of model and takes 200 × 9 fits a cell: about a day on one core for the networks.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import crcen
from crcen._support.whole_files import write_whole

COEF, BIAS = np.array([1.0, -0.8, 0.5, 0.0, 0.3]), {0.10: -2.874, 0.03: -4.332}
RATIOS, DRAWS, LEVEL = (1 / 3, 1.0, 5.0), 50, 0.05


def draw(rng: np.random.Generator, n: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels."""
    X = rng.standard_normal((n, COEF.size))
    return X, (rng.random(n) < crcen.sigmoid(BIAS[share] + X @ COEF)).astype(int)


def networks(seed: int) -> Any:
    """Penalty and epochs by cross-validation."""
    return crcen.CRCENClassifierCV(hidden=[(8,)], l2=[1e-3, 1e-2, 1e-1], n_members=1, random_state=seed, device="cpu")


def lightgbm(seed: int) -> Any:
    """Small trees, unweighted."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=60, num_leaves=7, verbose=-1, n_jobs=1, random_state=seed)


def rejections(make: Callable[[int], Any], n: int, share: float, seed: int) -> np.ndarray:
    """For one fitted model, the share of draws rejected: (ratios, ways), NaN where positives are too few."""
    rng = np.random.default_rng(seed)
    X, y = draw(rng, n, share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(seed).fit(X, y)
        error = crcen.training_error(model, X, y, random_state=seed)
    weighting = getattr(model, "weighting_", None)
    answer = getattr(model, "weighted_proba", model.predict_proba)
    found = np.empty((len(RATIOS), 3))
    for place, ratio in enumerate(RATIOS):
        p_values = []
        for _ in range(DRAWS):
            X_new, y_new = draw(rng, round(ratio * n), share)
            q = answer(X_new)[:, 1]
            plain = crcen.key_equation(y_new, q, weighting)
            allowed = math.erfc(abs(plain.z) / math.sqrt(2 * (1 + ratio)))
            fitted = crcen.key_equation(y_new, q, weighting, training_error=error)
            p_values.append([plain.p_value, allowed, fitted.p_value])
        known = np.array(p_values)[~np.isnan(np.array(p_values)[:, 2])]
        found[place] = (known < LEVEL).mean(axis=0) if len(known) else np.nan
    return found


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--network-fits", type=int)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cells = [(1000, 0.10)] if args.quick else [(n, share) for n in (1000, 3000, 10000) for share in (0.10, 0.03)]
    began = time.perf_counter()
    lines = [
        f"Share of draws of new rows on which the test rejects at {LEVEL} (± standard error over fits)",
        f"{'model':<12}{'rows':>7}{'positives':>11}{'fits':>6}{'new/train':>11}"
        f"{'no allowance':>17}{'1 + n_new/n_train':>19}{'training_error':>17}",
    ]
    print("\n".join(lines), flush=True)
    for name, make, n_fits in (
        ("LightGBM", lightgbm, args.fits),
        ("networks", networks, args.network_fits or args.fits),
    ):
        for n, share in cells:
            found = np.array([rejections(make, n, share, seed) for seed in range(n_fits)])
            for place, ratio in enumerate(RATIOS):
                shares = found[:, place]
                means, errors = np.nanmean(shares, axis=0), np.nanstd(shares, axis=0, ddof=1) / math.sqrt(n_fits)
                shown = [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)]
                line = f"{name:<12}{n:>7,}{share:>11.0%}{n_fits:>6}{ratio:>11.2f}"
                lines.append(line + f"{shown[0]:>17}{shown[1]:>19}{shown[2]:>17}")
                print(lines[-1], flush=True)
    print(f"{time.perf_counter() - began:.0f} s")
    if args.out:
        write_whole(args.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
