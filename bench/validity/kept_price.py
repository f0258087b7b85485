"""Drift from the price on new rows: the defaults of both estimators and the paper's training, at c = 5, 10 and IR.

Every model is fitted at the price. Drift is the shift of the logit that makes the key equation exact on new rows: 0
means that decisions follow the price, +.7 that they act as if the price were half as high. With few uncertain new rows,
even right probabilities have a negative mean drift, because the logarithm of a sum of few rare terms is biased (see
--simulate). "Of right ones" is the mean drift of the same new rows if their labels were drawn from the model's own
probabilities, 400 times. "Beyond" is the drift minus that, and "by precision" the mean drift of sets and splits
weighted by 1 / variance. A set is outside if the residual test on its new rows rejects at .05, with the model
uncertainty included by 1 + κ · n_new/n_train, κ = 1 and 2; of 12 sets chance gives 0.6, and more than 2 in one of 50
cases. Cost is c · misses + false alarms, divided by that of the cheaper of always and never raising an alarm.

    python -m bench.validity.kept_price --half confirmation --splits 8 --processes 12 --rows kept_price.jsonl

An interrupted run resumes from its rows. --simulate uses true posteriors instead of models.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.model_selection import StratifiedShuffleSplit

import crcen
from bench.harness import rows_of
from bench.rivals.datasets import all_sets
from crcen.theory.balance import balance_shift
from crcen.theory.price import sigmoid
from crcen.theory.residual_test import joint_residual_sums

DRAWS = 400  # of labels from a model's own probabilities
PRICES = (5.0, 10.0, "IR")
PAPER = {"calibration": "paper"}
MODELS: dict[str, Callable[..., Any]] = {
    "CRCENClassifier": lambda price, seed: crcen.CRCENClassifier(price, **common(seed)),
    "CRCENClassifierCV": lambda price, seed: crcen.CRCENClassifierCV(price, **common(seed)),
    "CRCENClassifier, the paper's training": lambda price, seed: crcen.CRCENClassifier(price, **common(seed), **PAPER),
    "CRCENClassifierCV, the paper's training": lambda price, seed: crcen.CRCENClassifierCV(
        price, **common(seed), **PAPER
    ),
}


def common(seed: int) -> dict[str, Any]:
    """What all models are told."""
    return {"pos_label": 1, "device": "cpu", "random_state": seed}


def run(task: tuple[str, int, str]) -> list[dict[str, Any]]:
    """One model on one split of one set, at every price."""
    name, split, label = task
    data = crcen.load_dataset(name)
    train, test = next(StratifiedShuffleSplit(1, test_size=0.25, random_state=1000 + split).split(data.X, data.y))
    X, y, X_new, y_new = data.X[train], data.y[train], data.X[test], data.y[test]
    found: list[dict[str, Any]] = []
    trained: list[Any] = []
    for asked in PRICES:
        price = float((y == 0).sum() / (y == 1).sum()) if asked == "IR" else asked
        model = MODELS[label](crcen.CostRatio(price), split)
        if label == "CRCENClassifier":
            model.train_jobs = trained_once(model.train_jobs, trained)
        start = time.process_time()
        model.fit(X, y)
        seconds = time.process_time() - start if not found or label != "CRCENClassifier" else found[0]["seconds"]
        logits = model.decision_function(X_new)
        q = np.column_stack([sigmoid(-logits), sigmoid(logits)])
        resolved = crcen.resolve(crcen.CostRatio(price), 1, 1)
        sums = joint_residual_sums(np.asarray(y_new == 1, np.int64), q, resolved).of_class(1)
        alarms = logits > 0
        cost = price * np.sum((y_new == 1) & ~alarms) + np.sum((y_new == 0) & alarms)
        p = model.predict_proba(X_new)[:, 1]
        found.append(
            {
                "set": name,
                "split": split,
                "model": label,
                "price": str(asked),
                "positives": int(y_new.sum()),
                "drift": float(balance_shift(y_new, logits, crcen.CostRatio(price))),
                "of_right_ones": of_right_ones(p, logits, price),
                "variance": sums.variance / sums.slope**2,
                "z": sums.z,
                "cost": float(cost / min(price * (y_new == 1).sum(), (y_new == 0).sum())),
                "log_loss": float(-np.mean(np.log(np.where(y_new == 1, p, 1 - p)))),
                "seconds": seconds,
            }
        )
    return found


def trained_once(train: Callable[..., Any], kept: list[Any]) -> Callable[..., Any]:
    """Networks of a fit before, call by call: a default fit trains at λ = ½, whatever the price."""
    calls = iter(list(kept))

    def again(*arguments: Any, **named: Any) -> Any:
        results = next(calls, None)
        if results is None:
            results = train(*arguments, **named)
            kept.append(results)
        return results

    return again


def of_right_ones(p: np.ndarray, logits: np.ndarray, price: float, seed: int = 0) -> float:
    """Mean drift over labels drawn from the model's own probabilities: what its drift would be if they were right."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(DRAWS):
        y = rng.random(p.size) < p
        if y.any() and not y.all():
            found.append(balance_shift(y, logits, crcen.CostRatio(price)))
    return float(np.mean(found)) if found else math.nan


def simulate(n_rows: int = 2000, draws: int = 2000) -> str:
    """Mean drift of the true posterior σ(b + s·x): the steeper, the fewer rows are in doubt, and the lower it is."""
    lines = [
        f"The true posterior σ(b + s·x) on {n_rows:,} new rows with 2 % positives, {draws} draws of labels a cell.",
        "",
        "| slope s | positives a draw | price | sd of drift | mean drift ± standard error | median |",
        "|---|---|---|---|---|---|",
    ]
    rng = np.random.default_rng(0)
    for slope in (1.0, 3.0, 10.0, 30.0):
        x = rng.standard_normal(200_000)
        bias = brentq(lambda b, s=slope, x=x: float(sigmoid(b + s * x).mean()) - 0.02, -100.0, 10.0)
        for price in (5.0, 10.0, 49.0):
            found, positives = [], []
            for _ in range(draws):
                logits = bias + slope * rng.standard_normal(n_rows)
                y = rng.random(n_rows) < sigmoid(logits)
                positives.append(y.sum())
                found.append(balance_shift(y, logits + math.log(price), crcen.CostRatio(price)))
            lines.append(
                f"| {slope:g} | {np.mean(positives):.0f} | {price:g} | {np.std(found):.2f} | "
                f"{np.mean(found):+.3f} ± {np.std(found) / math.sqrt(draws):.3f} | {np.median(found):+.3f} |"
            )
    return "\n".join(lines)


def table(rows: list[dict[str, Any]], n_sets: int, n_splits: int) -> str:
    """Means over sets and splits; sets outside their interval, a split."""
    lines = [
        f"{n_sets} sets × {n_splits} splits; ± is the standard error over sets. Outside: sets of {n_sets}, a split.",
        "",
        "| model | price | drift | of right ones | beyond | by precision | median drift | outside, κ = 1 | κ = 2 "
        "| cost | log loss | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for label in MODELS:
        for price in map(str, PRICES):
            own = [row for row in rows if row["model"] == label and row["price"] == price]
            if not own:
                continue
            names = sorted({row["set"] for row in own})
            means, right = (
                np.array([np.mean([row[field] for row in own if row["set"] == name]) for name in names])
                for field in ("drift", "of_right_ones")
            )
            precision = np.array([1.0 / row["variance"] for row in own])
            z = np.abs([row["z"] for row in own])
            splits = len({row["split"] for row in own})
            outside = [(z > 1.96 * math.sqrt(1 + kappa / 3)).sum() / splits for kappa in (1, 2)]
            beyond = means - right
            error, own_error = (v.std(ddof=1) / math.sqrt(len(v)) if len(v) > 1 else math.nan for v in (means, beyond))
            lines.append(
                f"| {label} | {price} | {means.mean():+.3f} ± {error:.3f} | {right.mean():+.3f} | "
                f"{beyond.mean():+.3f} ± {own_error:.3f} | "
                f"{precision @ [row['drift'] for row in own] / precision.sum():+.3f} | "
                f"{np.median([row['drift'] for row in own]):+.3f} | {outside[0]:.2f} | {outside[1]:.2f} | "
                + " | ".join(f"{np.mean([row[c] for row in own]):.4f}" for c in ("cost", "log_loss"))
                + f" | {np.mean([row['seconds'] for row in own]):.1f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what is not there yet, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["development", "confirmation"], default="confirmation")
    parser.add_argument("--sets", nargs="*", help="instead of the half; without isolet and webpage, which take long")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--models", type=int, default=len(MODELS), help="the first so many models")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=Path, default=Path("kept_price.jsonl"))
    parser.add_argument("--simulate", action="store_true", help="true posteriors instead of models")
    options = parser.parse_args()
    if options.simulate:
        print(simulate())
        return
    sets = options.sets or [one for one in all_sets()[options.half] if one not in ("isolet", "webpage")]
    size = {name: crcen.load_dataset(name).X.size for name in sets}
    labels = list(MODELS)[: options.models]
    tasks = [(name, split, label) for split in range(options.splits) for name in sets for label in labels]
    # Split after split, so that a cut run has whole ones; the large sets of each first.
    tasks.sort(key=lambda task: (task[1], -size[task[0]]))
    rows = rows_of(run, tasks, lambda row: (row["set"], row["split"], row["model"]), options.rows, options.processes)
    rows = [row for row in rows if row["set"] in sets and row["split"] < options.splits]
    print(table(rows, len(sets), options.splits))


if __name__ == "__main__":
    main()
