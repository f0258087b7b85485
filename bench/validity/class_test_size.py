"""How often the tests of the key equations of K classes reject a fitted model on new rows of the same kind.

    python -m bench.validity.class_test_size [--quick] [--seconds 300] [--processes 8] [--rows class_size.jsonl]

Five normal features, true logits linear in them, three or four classes of which the rarest has 5 or 4 % of rows. Every
fitted model is tested on 20 draws of new rows, ⅓, 1 and 5 times as many as it was trained on: the K − 1 key equations
together, and all pairs of classes. What varies is how the model's own error is allowed for: not at all; by the factor
1 + 2 · n_new/n_train, which stands for what was not measured; and as `crcen.training_error` measures it with 6 refits,
as `crcen fit` keeps it in the file. Intervals are over fits. A run that was cut goes on from its rows.
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
from scipy.special import log_softmax, softmax
from threadpoolctl import threadpool_limits

import crcen
from crcen.theory.key_equation import judge_equations
from crcen.theory.price import Price

# Intercepts for shares of about .80 .15 .05 and .70 .17 .09 .04.
COEF = np.random.default_rng(7).normal(0.0, 0.6, (5, 4))
BIAS = {3: np.array([2.9, 1.0, -0.3]), 4: np.array([2.9, 1.3, 0.6, -0.5])}
RATIOS, DRAWS, LEVEL = (1 / 3, 1.0, 5.0), 20, 0.05
WAYS = ("no allowance", "1 + 2 new/train", "measured")
SIZES = (1000, 3000)
EVERY = {1000: 1, 3000: 2, "trees": 1, "networks": 1, "committee": 3}


def draw(rng: np.random.Generator, n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels; every class is there three times at least."""
    while True:
        X = rng.standard_normal((n, 5))
        p = softmax(log_softmax(BIAS[n_classes] + X @ COEF[:, :n_classes], axis=1), axis=1)
        y = np.minimum((p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), n_classes - 1)
        if np.bincount(y, minlength=n_classes).min() >= 3:
            return X, y


def made(name: str, seed: int) -> Any:
    """An unfitted model."""
    if name == "networks":
        return crcen.CRCENClassifierCV(hidden=[(16,)], l2=[1e-3, 1e-2, 1e-1], n_members=2, random_state=seed)
    if name == "committee":
        return crcen.CommitteeClassifier(n_jobs=1, random_state=seed, device="cpu")
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=7, learning_rate=0.1, random_state=seed)


def one_fit(task: tuple[str, int, int, int]) -> dict[str, Any]:
    """One fitted model: rejections [ratio][way][equations, pairs] of all draws."""
    name, n, n_classes, seed = task
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, n, n_classes])
    X, y = draw(rng, n, n_classes)
    model = made(name, seed).fit(X, y)
    error = crcen.training_error(model, X, y, n_fits=6, random_state=seed)
    counts = np.bincount(y, minlength=n_classes).astype(float)
    trained = getattr(model, "weighting_", None) or Price(np.ones(n_classes), counts)
    found = np.zeros((len(RATIOS), len(WAYS), 2))
    for place, ratio in enumerate(RATIOS):
        for _ in range(DRAWS):
            X_new, y_new = draw(rng, round(ratio * n), n_classes)
            p = model.predict_proba(X_new)
            for way, how in enumerate(({"noise": 1.0}, {}, {"error": error})):
                judged = judge_equations(y_new, p, trained, range(n_classes), **how)
                tests = (judged.equations.p_value, judged.pairs.p_value)
                found[place, way] += [value < LEVEL for value in tests]
    return {"model": name, "n": n, "classes": n_classes, "seed": seed, "rejected": (found / DRAWS).tolist()}


def one_thread() -> None:
    """Let processes, not threads, share the cores."""
    import torch

    torch.set_num_threads(1)
    threadpool_limits(1)


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each model, size, number of classes and ratio; then all of a model together."""
    lines = [
        f"Share of draws of new rows on which the tests reject at {LEVEL} (± standard error over fits)",
        f"{'':<10}{'':>7}{'':>8}{'':>10}{'':>5}{'key equations':^51}{'pairs of classes':^51}",
        f"{'model':<10}{'rows':>7}{'classes':>8}{'new/train':>10}{'fits':>5}"
        + "".join(f"{way:>17}" for way in WAYS * 2),
    ]
    for name in dict.fromkeys(row["model"] for row in rows):
        pooled = []
        for n in SIZES:
            for n_classes in BIAS:
                own = [row for row in rows if (row["model"], row["n"], row["classes"]) == (name, n, n_classes)]
                for place, ratio in enumerate(RATIOS):
                    if len(own) < 2:
                        continue
                    known = np.array([row["rejected"][place] for row in own])
                    pooled.append(known)
                    shown = _shares(known.mean(axis=0), known.std(axis=0, ddof=1) / math.sqrt(len(known)))
                    lines.append(f"{name:<10}{n:>7,}{n_classes:>8}{ratio:>10.2f}{len(known):>5}" + shown)
        if pooled:
            means = np.mean([known.mean(axis=0) for known in pooled], axis=0)
            variances = np.sum([known.var(axis=0, ddof=1) / len(known) for known in pooled], axis=0)
            shown = _shares(means, np.sqrt(variances) / len(pooled))
            lines.append(f"{name:<10}{'all':>7}{'':>8}{'':>10}{sum(map(len, pooled)):>5}" + shown)
    return "\n".join(lines)


def _shares(means: np.ndarray, errors: np.ndarray) -> str:
    pairs = zip(means.T.ravel(), errors.T.ravel(), strict=True)
    return "".join(f"{f'{mean:.3f} ± {error:.3f}':>17}" for mean, error in pairs)


def main() -> None:
    """Measure until the time is over, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 rows and 8 fits")
    parser.add_argument("--models", nargs="*", default=["trees", "networks", "committee"])
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no fit after this time")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=Path, default=Path("class_test_size.jsonl"))
    args = parser.parse_args()
    began = time.perf_counter()
    rows = [json.loads(line) for line in args.rows.read_text().splitlines()] if args.rows.exists() else []
    done = {(row["model"], row["n"], row["classes"], row["seed"]) for row in rows}
    mixed = [
        (seed * EVERY[name] * EVERY[n], (name, n, n_classes, seed))
        for name in args.models
        for n in (SIZES[:1] if args.quick else SIZES)
        for n_classes in BIAS
        for seed in range(8 if args.quick else args.fits)
    ]
    left = [task for _, task in sorted(mixed) if task not in done][::-1]
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
