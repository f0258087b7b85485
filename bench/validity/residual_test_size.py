"""How often the residual test rejects a fitted model on new rows of the same kind.

    python -m bench.validity.residual_test_size [--quick] [--seconds 420] [--processes 12] [--rows size.jsonl]

Five normal features, true log-odds linear in them, 3 or 10 % positives. Every fitted model is tested on 50 draws of new
rows, ⅓, 1 and 5 times as many as it was trained on. What varies is how the model's own error is allowed for: not at
all; by 1 + n_new/n_train; by 1 + 2 · n_new/n_train, which an evaluation takes for models that were not measured; and as
`crcen.training_error` measures it with 6 refits, as `crcen fit` keeps it in the file. A draw with fewer than 20
positives is answered "too few", which is no rejection; cells where most draws are so are left out. Intervals are over
fits. The last columns are the model's true error in mean log-odds over fits: its mean, which is a model that is wrong
and no test should allow for, its standard deviation, and what was measured of that, as a root mean square.

Fits are drawn cell by cell in turn, the small ones more often, until there are 200 a cell or the time is over; a run
that was cut goes on from its rows. --quick has 1,000 training rows and 12 fits.
"""

import argparse
import json
import math
import time
import warnings
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import crcen
from crcen.theory.decision import sigmoid
from crcen.theory.price import resolve
from crcen.theory.residual_test import FEWEST_TO_TEST, ResidualSums, TrainingError, joint_residual_sums, two_sided

COEF, BIAS = np.array([1.0, -0.8, 0.5, 0.0, 0.3]), {0.10: -2.874, 0.03: -4.332}
RATIOS, DRAWS, LEVELS = (1 / 3, 1.0, 5.0), 50, (0.05, 0.01, 0.001)
WAYS = ("no allowance", "1 + new/train", "1 + 2 new/train", "measured")
SIZES, SHARES = (1000, 3000, 10000), (0.10, 0.03)
# A fit of how many is of this size, or of this model.
EVERY = {1000: 1, 3000: 2, 10000: 6, "LightGBM": 1, "networks": 1, "committee": 3}
JUDGED_ON = 20_000  # rows on which the true error of a model is found


def draw(rng: np.random.Generator, n: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels and true probabilities."""
    X = rng.standard_normal((n, COEF.size))
    p = sigmoid(BIAS[share] + X @ COEF)
    return X, (rng.random(n) < p).astype(int), p


def residual_sums(y: np.ndarray, q: np.ndarray, weighting: object) -> ResidualSums:
    """Sums of the residual test of the positive class."""
    columns = np.column_stack([1.0 - q, q])
    return joint_residual_sums(y.astype(np.int64), columns, resolve(weighting, 1, 1)).of_class(1)


def made(name: str, seed: int) -> Any:
    """An unfitted model; LightGBM by scikit-learn's histogram boosting where it is not installed."""
    if name == "networks":
        return crcen.CRCENClassifierCV(hidden=[(16,)], l2=[1e-3, 1e-2, 1e-1], n_members=2, random_state=seed)
    if name == "committee":
        return crcen.CommitteeClassifier(n_jobs=1, random_state=seed, device="cpu")
    try:
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=60, num_leaves=7, verbose=-1, n_jobs=1, random_state=seed)
    except ImportError:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=7, random_state=seed)


def one_fit(task: tuple[str, int, float, int]) -> dict[str, Any]:
    """One fitted model: its true error, what refits say of it, and Z, slope and positives of every draw of new rows."""
    name, n, share, seed = task
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, n, round(100 * share)])
    X, y, _ = draw(rng, n, share)
    model = made(name, seed).fit(X, y)
    weighting = crcen.CostRatio(model.weighting_.cost_ratio) if hasattr(model, "weighting_") else None
    answer = model.weighted_proba if hasattr(model, "weighted_proba") else model.predict_proba
    error = crcen.training_error(model, X, y, n_fits=6, random_state=seed)
    X_new, _, p_new = draw(rng, JUDGED_ON, share)
    q = answer(X_new)[:, 1]
    lam = 0.5 if weighting is None else resolve(weighting, 1, 1).lam
    slope = residual_sums(np.ones(JUDGED_ON), q, weighting).slope
    true = float(np.sum(lam * p_new * (1 - q) - (1 - lam) * (1 - p_new) * q)) / slope
    draws = []
    for ratio in RATIOS:
        draws.append([])
        for _ in range(DRAWS):
            X_new, y_new, _ = draw(rng, round(ratio * n), share)
            sums = residual_sums(y_new, answer(X_new)[:, 1], weighting)
            draws[-1].append([round(sums.z, 4), round(sums.slope / math.sqrt(sums.variance), 4), sums.n_pos])
    found = {"log_odds": error.log_odds, "degrees": error.degrees, "least": error.least}
    return {"model": name, "n": n, "share": share, "seed": seed, "true": true, "error": found, "draws": draws}


def rejected(row: dict[str, Any], place: int) -> tuple[list[list[float]], float]:
    """Shares of all draws rejected, [way][level], and of draws with enough positives: too few is no rejection."""
    error, ratio = TrainingError(**row["error"]), RATIOS[place]
    p_values = [
        [
            *(two_sided(z / math.sqrt(1 + kappa * ratio)) for kappa in (0, 1, 2)),
            error.test(max(z, 0.0), max(-z, 0.0), 1.0, slope, n_pos)[1],
        ]
        for z, slope, n_pos in row["draws"][place]
        if n_pos >= FEWEST_TO_TEST
    ]
    ways = np.array(p_values).reshape(-1, len(WAYS))
    return [[float((way < level).sum()) / DRAWS for level in LEVELS] for way in ways.T], len(ways) / DRAWS


def one_thread() -> None:
    """Let processes, not threads, share the cores."""
    import torch

    torch.set_num_threads(1)
    threadpool_limits(1)


def tasks_in_turn(names: list[str], sizes: tuple[int, ...], fits: int) -> list[tuple[str, int, float, int]]:
    """Every cell's fits, so mixed that a run that is cut has some of each."""
    mixed = [
        (seed * EVERY[name] * EVERY[n], (name, n, share, seed))
        for name in names
        for n in sizes
        for share in SHARES
        for seed in range(fits)
    ]
    return [task for _, task in sorted(mixed)]


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each model, size, share and ratio; then all of a model together."""
    lines = [
        f"Share of draws of new rows on which the test rejects at {LEVELS[0]} (± standard error over fits); at "
        f"{LEVELS[1]} and {LEVELS[2]} for what was measured",
        f"{'model':<10}{'rows':>7}{'pos':>5}{'new/train':>10}{'fits':>5}"
        + "".join(f"{way:>17}" for way in WAYS)
        + f"{'.01':>7}{'.001':>7}{'mean':>8}{'sd':>7}{'meas.':>7}",
    ]
    for name in dict.fromkeys(row["model"] for row in rows):
        pooled: list[np.ndarray] = []
        for n in SIZES:
            for share in SHARES:
                own = [row for row in rows if (row["model"], row["n"], row["share"]) == (name, n, share)]
                for place, ratio in enumerate(RATIOS):
                    found = [rejected(row, place) for row in own]
                    if len(own) < 2 or np.mean([tested for _, tested in found]) < 0.5:
                        continue
                    known = np.array([shares for shares, _ in found])
                    pooled.append(known)
                    lines.append(f"{name:<10}{n:>7,}{share:>5.0%}{ratio:>10.2f}" + _cells(known, own))
        if pooled:
            # Every cell counts alike, however many fits there was time for.
            means = np.mean([known.mean(axis=0) for known in pooled], axis=0)
            variances = np.sum([known.var(axis=0, ddof=1) / len(known) for known in pooled], axis=0)
            shown = _shares(means, np.sqrt(variances) / len(pooled))
            lines.append(f"{name:<10}{'all':>7}{'':>5}{'':>10}{sum(map(len, pooled)):>5}" + shown)
    return "\n".join(lines)


def _cells(known: np.ndarray, own: list[dict[str, Any]]) -> str:
    means, errors = known.mean(axis=0), known.std(axis=0, ddof=1) / math.sqrt(len(known))
    true = np.array([row["true"] for row in own])
    measured = np.array([TrainingError(**row["error"]).size for row in own])
    shown = f"{true.mean():>+8.3f}{true.std(ddof=1):>7.3f}{math.sqrt(np.mean(measured**2)):>7.3f}"
    return f"{len(known):>5}" + _shares(means, errors) + shown


def _shares(means: np.ndarray, errors: np.ndarray) -> str:
    text = "".join(f"{f'{mean:.3f} ± {error:.3f}':>17}" for mean, error in zip(means[:, 0], errors[:, 0], strict=True))
    return text + f"{means[-1, 1]:>7.3f}{means[-1, 2]:>7.3f}"


def main() -> None:
    """Measure until the time is over, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="*", default=["LightGBM", "networks", "committee"])
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no fit after this time")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=Path, default=Path("residual_test_size.jsonl"))
    args = parser.parse_args()
    began = time.perf_counter()
    rows = [json.loads(line) for line in args.rows.read_text().splitlines()] if args.rows.exists() else []
    done = {(row["model"], row["n"], row["share"], row["seed"]) for row in rows}
    left = tasks_in_turn(args.models, SIZES[:1] if args.quick else SIZES, 12 if args.quick else args.fits)
    left = [task for task in left if task not in done][::-1]
    with (
        ProcessPoolExecutor(args.processes, get_context("spawn"), initializer=one_thread) as pool,
        args.rows.open("a") as out,
    ):
        running = set()
        while left or running:
            while left and len(running) < args.processes and time.perf_counter() - began < args.seconds:
                running.add(pool.submit(one_fit, left.pop()))
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                rows.append(future.result())
                out.write(json.dumps(rows[-1]) + "\n")
                out.flush()
    print(table(rows))


if __name__ == "__main__":
    main()
