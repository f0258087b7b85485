"""How often the residual test rejects a fitted model on new rows of the same kind.

    python benchmarks/residual_test_size.py [--quick] [--seconds 420] [--processes 12] [--rows size.jsonl]

Five normal features, true log-odds linear in them, 3 or 10 % positives. Every fitted model is tested on 50 draws of new
rows, ⅓, 1 and 5 times as many as it was trained on. What varies is how the model's own error is allowed for: not at
all; by 1 + n_new/n_train; by 1 + 2 · n_new/n_train, which an evaluation takes for models that were not measured; and as
`crcen.training_error` measures it with 6 refits, as `crcen fit` keeps it in the file. Intervals are over fits. The last
columns are the model's true error in mean log-odds, over fits, and what was measured, both as root mean squares.

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
from crcen.theory.residual_test import TrainingError, residual_sums, two_sided

COEF, BIAS = np.array([1.0, -0.8, 0.5, 0.0, 0.3]), {0.10: -2.874, 0.03: -4.332}
RATIOS, DRAWS, LEVELS = (1 / 3, 1.0, 5.0), 50, (0.05, 0.01, 0.001)
WAYS = ("no allowance", "1 + new/train", "1 + 2 new/train", "measured")
SIZES, SHARES = (1000, 3000, 10000), (0.10, 0.03)
# A fit of how many is of this size, or of this model.
EVERY = {1000: 1, 3000: 2, 10000: 5, "LightGBM": 1, "networks": 1, "committee": 4}
JUDGED_ON = 20_000  # rows on which the true error of a model is found


def draw(rng: np.random.Generator, n: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels and true probabilities."""
    X = rng.standard_normal((n, COEF.size))
    p = sigmoid(BIAS[share] + X @ COEF)
    return X, (rng.random(n) < p).astype(int), p


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
    """Shares of draws rejected for one fitted model: [ratio][way][level], None where positives were too few."""
    name, n, share, seed = task
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, n, round(100 * share)])
    X, y, _ = draw(rng, n, share)
    model = made(name, seed).fit(X, y)
    weighting = crcen.CostRatio(model.weighting_.cost_ratio) if hasattr(model, "weighting_") else None
    answer = model.weighted_proba if hasattr(model, "weighted_proba") else model.predict_proba
    # A committee would be searched anew with every refit: `crcen fit` does not measure it.
    error = None if name == "committee" else crcen.training_error(model, X, y, n_fits=6, random_state=seed)
    X_new, _, p_new = draw(rng, JUDGED_ON, share)
    own = residual_sums(np.ones(JUDGED_ON), answer(X_new)[:, 1], weighting)
    q = answer(X_new)[:, 1]
    lam = 0.5 if weighting is None else crcen.resolve(weighting, 1, 1).lam
    true = float(np.sum(lam * p_new * (1 - q) - (1 - lam) * (1 - p_new) * q)) / own.slope
    found = []
    for ratio in RATIOS:
        p_values = []
        for _ in range(DRAWS):
            X_new, y_new, _ = draw(rng, round(ratio * n), share)
            sums = residual_sums(y_new, answer(X_new)[:, 1], weighting)
            if sums.n_pos < 20:
                continue
            allowed = [two_sided(sums.z / math.sqrt(1 + kappa * ratio)) for kappa in (0, 1, 2)]
            p_values.append([*allowed, _measured(sums, error) if error else math.nan])
        ways = np.array(p_values).reshape(-1, len(WAYS))
        found.append([[float((way < level).mean()) for level in LEVELS] for way in ways.T] if len(ways) else None)
    measured = None if error is None else error.log_odds
    return {"model": name, "n": n, "share": share, "seed": seed, "found": found, "true": true, "measured": measured}


def _measured(sums: Any, error: TrainingError) -> float:
    return error.test(sums.missed, sums.alarmed, sums.variance, sums.slope, sums.n_pos)[1]


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
        f"{LEVELS[1]} and {LEVELS[2]} for what was measured, or else for 1 + 2 new/train",
        f"{'model':<10}{'rows':>7}{'pos':>5}{'new/train':>10}{'fits':>5}"
        + "".join(f"{way:>17}" for way in WAYS)
        + f"{'.01':>7}{'.001':>7}{'true':>7}{'meas.':>7}",
    ]
    for name in dict.fromkeys(row["model"] for row in rows):
        pooled = []
        for n in SIZES:
            for share in SHARES:
                for place, ratio in enumerate(RATIOS):
                    own = [row for row in rows if (row["model"], row["n"], row["share"]) == (name, n, share)]
                    known = np.array([row["found"][place] for row in own if row["found"][place]], dtype=float)
                    if len(known) < 2:
                        continue
                    pooled.append(known)
                    lines.append(f"{name:<10}{n:>7,}{share:>5.0%}{ratio:>10.2f}" + _cells(known, own))
        if pooled:
            every = np.concatenate(pooled)
            lines.append(
                f"{name:<10}{'all':>7}{'':>5}{'':>10}" + _cells(every, [r for r in rows if r["model"] == name])
            )
    return "\n".join(lines)


def _cells(known: np.ndarray, own: list[dict[str, Any]]) -> str:
    means, errors = known.mean(axis=0), known.std(axis=0, ddof=1) / math.sqrt(len(known))
    if not any(row["measured"] is not None for row in own):
        means[-1] = np.nan
    best = -2 if np.isnan(means[-1, 0]) else -1
    text = f"{len(known):>5}"
    for way in range(len(WAYS)):
        text += f"{'–':>17}" if np.isnan(means[way, 0]) else f"{f'{means[way, 0]:.3f} ± {errors[way, 0]:.3f}':>17}"
    true = math.sqrt(np.mean([row["true"] ** 2 for row in own]))
    measured = [row["measured"] for row in own if row["measured"] is not None]
    shown = f"{math.sqrt(np.mean(np.square(measured))):>7.3f}" if measured else f"{'–':>7}"
    return text + f"{means[best, 1]:>7.3f}{means[best, 2]:>7.3f}{true:>7.3f}{shown}"


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
