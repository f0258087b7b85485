"""Why a default fit drifts from its price: its folds' networks, those on all rows, or the measure itself.

Folds say for how many epochs networks are trained, and which map and bias they need. Here the networks on all rows then
take as many steps as those of the folds, as many epochs, or all 30; "now" is what `CRCENClassifier` does: epochs, or
steps where a fold has one or two batches. "One fold" has the networks of one fold for the whole model, to which what
held-out rows say belongs; "mean of folds" has them all. Drift is what new rows ask to add to the logit at a price; "of
right ones" is its mean where labels are drawn from the model's own probabilities. Two designs on the development half:
75/25 splits of sets, and small parts of sets, judged on up to 6,000 rows.

    python benchmarks/default_epochs.py --processes 8 --seconds 320 --rows rows.jsonl
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

import crcen
from crcen.models.fitting import FitRows, base_seed, member_jobs
from crcen.models.probability import fit_map, probability_folds
from crcen.theory.decision import sigmoid
from crcen.training.balance import balance_shift
from crcen.training.engine import train
from crcen.training.jobs import TrainingJob
from crcen.training.schedule import n_batches

SPLIT = "libras_move ecoli arrhythmia car_eval_34 car_eval_4 wine_quality yeast_ml8 sick_euthyroid thyroid_sick "
SPLIT += "optical_digits coil_2000"
PARTS = {"letter_img": (700, 2000), "optical_digits": (400, 1500), "thyroid_sick": (700,), "wine_quality": (900,)}
PARTS |= {"car_eval_34": (500,), "car_eval_4": (700,), "sick_euthyroid": (500,), "yeast_ml8": (800,)}
PARTS |= {"coil_2000": (1000,)}
MEMBERS, MOST_NEW, DRAWS, FEW_BATCHES = 4, 6000, 60, 2
PRICES = ("5", "10", "IR")
VARIANTS = ("as many steps", "as many epochs", "now", "all 30 epochs", "one fold", "mean of folds")


def logits_by_epoch(X: np.ndarray, target: np.ndarray, jobs: list[TrainingJob], own: list[np.ndarray]) -> np.ndarray:
    """(groups, epochs, rows): mean logits of the members that were trained on each group's own rows."""
    watched = [replace(one.rows, watched=np.arange(len(X))) for one in jobs]
    jobs = [replace(one, rows=rows, record_every=1, balance=False) for one, rows in zip(jobs, watched, strict=True)]
    found = train(X, target, jobs, device="cpu")
    members = len(jobs) // len(own)
    groups = [found[i : i + members] for i in range(0, len(found), members)]
    return np.array([np.mean([one.val_logits for one in part], axis=0, dtype=np.float64) for part in groups])


def losses(target: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Log loss of each row."""
    return np.logaddexp(0.0, np.where(target, -logits, logits))


def run(task: tuple[str, int, int]) -> list[dict[str, Any]]:
    """One split of a set, or one part of it: a row for each variant."""
    name, size, seed = task
    warnings.simplefilter("ignore")
    data = crcen.load_dataset(name)
    how = {"train_size": size, "test_size": min(MOST_NEW, len(data.y) - size)} if size else {"test_size": 0.25}
    old, new = next(StratifiedShuffleSplit(1, random_state=1000 + seed, **how).split(data.X, data.y))
    X, target, n = data.X[[*old, *new]], data.y[[*old, *new]] == 1, len(old)
    recipe = crcen.CRCENClassifier(device="cpu").recipe().settled(n)
    rows, own, start = FitRows(X, target, np.ones(len(X))), np.arange(n), base_seed(seed)
    folds = probability_folds(target[:n], np.ones(n), start, 3)
    on_all = member_jobs(recipe, 0.5, MEMBERS, start, rows, own)
    on_folds = [job for part, _ in folds for job in member_jobs(recipe, 0.5, MEMBERS, start, rows, part)]
    raw = logits_by_epoch(X, target, on_folds, [part for part, _ in folds])
    of_folds = balanced(raw, target, [part for part, _ in folds])
    curves = [losses(target[out], one[:, out]).mean(axis=1) for one, (_, out) in zip(raw, folds, strict=True)]
    best = int(np.argmin(np.mean(curves, axis=0)))
    n_epochs, batches = raw.shape[1], np.mean([n_batches(len(part), recipe.batch_rows) for part, _ in folds])
    fewer = max(1, round(min(1.0, batches / n_batches(n, recipe.batch_rows)) * n_epochs))
    shorter = [replace(job, max_epochs=fewer) for job in on_all]
    epochs, steps = (balanced(logits_by_epoch(X, target, jobs, [own]), target, [own])[0] for jobs in (on_all, shorter))
    held_out = np.empty((n_epochs, n))
    for one, (_, out) in zip(of_folds, folds, strict=True):
        held_out[:, out] = one[:, out]
    at = min(fewer, max(1, round(fewer / n_epochs * (best + 1)))) - 1
    found = {
        "as many steps": (best, steps[at]),
        "as many epochs": (best, epochs[best]),
        "all 30 epochs": (n_epochs - 1, epochs[-1]),
        "one fold": (best, of_folds[0][best]),
        "mean of folds": (best, of_folds[:, best].mean(axis=0)),
    }
    found["now"] = found["as many steps" if batches <= FEW_BATCHES else "as many epochs"]
    known = {"set": name, "n": size, "seed": seed, "batches": float(batches)}
    judged = {k: judge(target, n, held_out[epoch], logits[n:]) for k, (epoch, logits) in found.items()}
    return [{**known, "variant": variant, "epoch": found[variant][0] + 1, **judged[variant]} for variant in VARIANTS]


def balanced(logits: np.ndarray, target: np.ndarray, own: Sequence[np.ndarray]) -> np.ndarray:
    """Each group's logits after every epoch, with the balance solve at λ = ½ on its own rows."""
    for one, rows in zip(logits, own, strict=True):
        one += np.array([balance_shift(target[rows], epoch[rows], None) for epoch in one])[:, None]
    return logits


def judge(target: np.ndarray, n: int, held_out: np.ndarray, new: np.ndarray) -> dict[str, float]:
    """Map and bias by logits of held-out rows, and how the new rows keep each price."""
    here, there, found = target[:n], target[n:], {}
    slope, shift = fit_map("temperature", here, held_out, np.ones(n))
    for asked in PRICES:
        price = float((~here).sum() / here.sum()) if asked == "IR" else float(asked)
        spec, moved = crcen.CostRatio(price), shift + math.log(price)
        moved += balance_shift(here, slope * held_out + moved, spec)
        logits = slope * new + moved
        p = sigmoid(logits - math.log(price))
        cost = price * np.sum(there & (logits <= 0)) + np.sum(~there & (logits > 0))
        found["drift" + asked] = float(balance_shift(there, logits, spec))
        found["cost" + asked] = float(cost / min(price * there.sum(), (~there).sum()))
        if asked == "10":
            rng = np.random.default_rng(0)
            drawn = [y for y in (rng.random((DRAWS, len(p))) < p) if y.any() and not y.all()]
            found["right"] = float(np.mean([balance_shift(y, logits, spec) for y in drawn])) if drawn else math.nan
            found["log_loss"] = float(losses(there, logits - math.log(price)).mean())
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each variant in each design; every set or part counts alike, ± is over its seeds."""
    lines = []
    for title, is_part in (("75/25 splits", False), ("small parts, many new rows", True)):
        of_design = [row for row in rows if bool(row["n"]) == is_part]
        cells = sorted({(row["set"], row["n"]) for row in of_design})
        fits = len({(row["set"], row["n"], row["seed"]) for row in of_design})
        lines.append(f"{title}: {len(cells)} sets or parts, {fits} fits")
        head = [f"drift, c = {price}" for price in PRICES] + ["of right ones", "log loss"]
        lines.append(
            f"{'':<16}" + "".join(f"{one:>17}" for one in [*head, *(f"cost, c = {price}" for price in PRICES)])
        )
        for variant in VARIANTS:
            parts = [
                [row for row in of_design if (row["set"], row["n"], row["variant"]) == (*one, variant)] for one in cells
            ]
            shown = []
            for field in (*(f"drift{price}" for price in PRICES), "right", "log_loss", *(f"cost{p}" for p in PRICES)):
                values = [np.array([row[field] for row in part]) for part in parts]
                error = math.sqrt(sum(one.var(ddof=1) / len(one) for one in values)) / len(values)
                mean = float(np.mean([one.mean() for one in values]))
                shown.append(f"{mean:+.3f} ± {error:.3f}" if field.startswith("drift") else f"{mean:.4f}")
            lines.append(f"{variant:<16}" + "".join(f"{one:>17}" for one in shown))
        lines.append("")
    return "\n".join(lines).rstrip()


def one_thread() -> None:
    """Let processes, not threads, share the cores."""
    import torch

    torch.set_num_threads(1)
    threadpool_limits(1)


def main() -> None:
    """Run seed after seed until the time is over, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no fit after this time")
    parser.add_argument("--seeds", type=int, default=18)
    parser.add_argument("--rows", type=Path, default=Path("default_epochs.jsonl"))
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()] if options.rows.exists() else []
    done = {(row["set"], row["n"], row["seed"]) for row in rows}
    left = [(name, 0, seed) for seed in range(options.seeds) for name in SPLIT.split()]
    left += [(name, size, seed) for seed in range(options.seeds) for name, sizes in PARTS.items() for size in sizes]
    left = sorted((task for task in left if task not in done), key=lambda task: -task[2])
    began, running = time.perf_counter(), set()
    with (
        ProcessPoolExecutor(options.processes, get_context("spawn"), initializer=one_thread) as pool,
        options.rows.open("a") as out,
    ):
        while left or running:
            while left and len(running) < options.processes and time.perf_counter() - began < options.seconds:
                running.add(pool.submit(run, left.pop()))
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                rows += future.result()
                out.writelines(json.dumps(row) + "\n" for row in future.result())
                out.flush()
    print(table(rows))


if __name__ == "__main__":
    main()
