"""Cost, log loss and processor time of the committee with other constants of its members, on the development half.

    python -m bench.choices.committee_constants --out runs/constants --processes 8 [--only "present,two settings"]

Every fit runs in a separate process with one thread. An interrupted run can be resumed.
"""

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bench.choices.sizes import simulated
from bench.rivals.datasets import Rows, all_sets, load_set
from bench.rivals.evaluation import PRICES, costs, split_rows
from bench.speed.tables import mixed_table

_PROTOCOL = {"test_size": 0.25, "seed": 0}
_LEFT_OUT = ("webpage", "flights")  # their fits take as long as all others
_MEMBERS = "crcen.models.members"
NETWORKS, TREES, CATBOOST = (f"{_MEMBERS}.{name}" for name in ("networks", "lightgbm_trees", "catboost_trees"))
COMMITTEE, SEARCH = "crcen.models.committee", "crcen.models.search.run"


def batches(size):
    """A change of `networks._plans`: batches of so many rows from 6,000 rows on."""

    def changed(setting):
        rate = setting.recipe.learning_rate * (size / 128) ** 0.5
        return replace(setting, recipe=setting.recipe.replace(batch_size=size, learning_rate=rate))

    def change(before):
        def plans(task):
            found = before(task)
            if len(task.X) < 6_000:
                return found
            return [replace(plan, grid=[changed(setting) for setting in plan.grid]) for plan in found]

        return plans

    return change


def unlimited(before):
    """A change of `encoding._ramps`: standardised inputs are not limited to the range of the training rows."""

    def ramps(kind, columns, X, y, sample_weight, plain):
        found, n = before(kind, columns, X, y, sample_weight, plain), X.shape[1]
        low, high = (np.append(own, part[n:]) for own, part in ((plain.low, found.low), (plain.high, found.high)))
        return replace(found, low=low, high=high)

    return ramps


# Attributes of modules by name; a function makes the new value of the old one.
_EARLIER_ROUNDS = ((30, 0.5), (80, 0.34), (200, 0.22), (400, 0.0))
VARIANTS = {
    "present": {},
    "prior of equal weights": {(COMMITTEE, "_PRIOR_LOSS"): 1e9, (COMMITTEE, "RIDGES"): (5.0, 20.0, 80.0)},
    "one penalty in the lead": {(NETWORKS, "_LEADING_L2"): (1.0,)},
    "halving from 10,000 rows": {(SEARCH, "_MANY_ROWS"): 10_000},
    "long rounds on samples": {(TREES, "_SAMPLE_ROUNDS"): ((40, 0.5), (100, 0.0))},
    "more waiting": {(TREES, "_WITHOUT_GAIN"): 0.3},
    "unlimited inputs": {("crcen.training.network", "_ramps"): unlimited},
    "compared on all folds": {(NETWORKS, "_COMPARED_ROWS"): 10**9},
    "compared on 200 rows": {(NETWORKS, "_COMPARED_ROWS"): 200},
    "two networks in the lead": {(NETWORKS, "_LEADING_NETWORKS"): 2},
    "five networks in any lead": {(NETWORKS, "_CLEAR_LEAD"): 1.0},
    "one sample fold": {(TREES, "_SAMPLE_FOLDS"): 1},
    "250 trees on many rows": {(TREES, "_LARGE_ROUNDS"): ((100, 1.0), (250, 0.0))},
    "4 repeats": {(COMMITTEE, "_REPEATS_IN_TIME"): 4},  # with --effort best --time-limit 120
    "two settings": {(NETWORKS, "N_SETTINGS"): 2},
    "three networks": {(NETWORKS, "N_NETWORKS"): 3},
    "30 epochs": {(NETWORKS, "_ENOUGH_EPOCHS"): 30},
    "batches of 256": {(NETWORKS, "_plans"): batches(256)},
    "screened on four folds": {(NETWORKS, "_SAMPLE_FOLDS"): 4},
    "long rounds of trees": {(TREES, "_ROUNDS"): _EARLIER_ROUNDS},
    "two leaf steps": {(CATBOOST, "_LEAF_STEPS"): (2, 3)},
    "fast CatBoost": {(CATBOOST, "_SLOW"): 0.1},
    "slow CatBoost": {(CATBOOST, "_FAST"): 0.06},
    "one best on many rows": {(TREES, "_LARGE_BEST"): 1},
    "63 bins on many rows": {(TREES, "_MANY_BINS"): 63},
    "255 bins on many rows": {(TREES, "_MANY_BINS"): 255},
}

VARIANTS["all slower"] = {
    key: value
    for name in ("halving from 10,000 rows", "long rounds on samples", "more waiting", "slow CatBoost")
    for key, value in VARIANTS[name].items()
}


def mixed(n):
    """The table of `bench.speed.tables`, dates as numbers, without its text; a third as many rows are for the test."""
    import pandas as pd

    frame = mixed_table(4 * n // 3, 0, 37).drop(columns=["id", "version", "note"])
    y = (frame.pop("fraud") == "yes").astype(int).to_numpy()
    dates = {name: pd.to_datetime(frame[name]).astype("int64") for name in frame if name.startswith("date")}
    X = pd.get_dummies(frame.assign(**dates)).to_numpy(dtype=float)
    return Rows("mixed", np.nan_to_num(X), y)


def fit(task):
    """One row: a variant on a split of a set."""
    import importlib

    import torch

    variant, name, split, how = task
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from crcen import CommitteeClassifier

    for (module, attribute), value in VARIANTS[variant].items():
        place = importlib.import_module(module)
        setattr(place, attribute, value(getattr(place, attribute)) if callable(value) else value)
    if name.startswith("simulated"):
        X, y, new, labels = simulated(int(name.removeprefix("simulated ")))
        data = Rows(name, np.concatenate([X, new]), np.concatenate([y, labels]))
    else:
        data = mixed(100_000) if name == "mixed" else load_set(name)
    train, test = split_rows(data, split, _PROTOCOL)
    start = time.process_time()
    model = CommitteeClassifier(None, pos_label=1, n_jobs=1, device="cpu", random_state=split, **how)
    model.fit(data.X[train], data.y[train])
    seconds = time.process_time() - start
    p = model.predict_proba(data.X[test])[:, 1]
    y, inside = data.y[test] == 1, np.clip(p, 1e-6, 1 - 1e-6)
    loss = -float(np.mean(np.where(y, np.log(inside), np.log1p(-inside))))
    by_price = {price: float(value) for price, value in costs(data.y[train], data.y[test], p).items()}
    return {"variant": variant, "set": name, "split": split, "seconds": seconds, "log_loss": loss} | by_price


def table(rows, sets):
    """A line per variant: means over sets and splits that all variants have."""
    by_variant = {}
    for row in rows:
        if row["set"] in sets:
            by_variant.setdefault(row["variant"], {})[row["set"], row["split"]] = row
    common = set.intersection(*(set(own) for own in by_variant.values())) if by_variant else set()
    names = ("log_loss", *PRICES, "seconds")
    lines = [f"{len(common)} fits of {len({name for name, _ in common})} sets"]
    lines.append(f"{'':24}" + "".join(f"{name:>10}" for name in (*names, "mean cost")))
    for variant, own in by_variant.items():
        means = [float(np.mean([own[key][name] for key in common])) for name in names]
        cost = float(np.mean(means[1:-1]))
        lines.append(f"{variant:24}" + "".join(f"{value:10.4f}" for value in (*means, cost)))
    return "\n".join(lines)


def main():
    """Fit what is missing, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the rows")
    parser.add_argument("--only", default=",".join(VARIANTS), help="variants with commas")
    parser.add_argument(
        "--sets", default="", help="names with commas; default the development sets without the largest"
    )
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--effort", default="standard")
    parser.add_argument("--members", help="names with commas; default all of the effort")
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    members = options.members.split(",") if options.members else None
    options.out.mkdir(parents=True, exist_ok=True)
    file, halves = options.out / "rows.jsonl", all_sets()
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(row["variant"], row["set"], row["split"]) for row in rows}
    small, large = (
        [name for name in halves[half] if name not in _LEFT_OUT] for half in ("development", "large-development")
    )
    work = [
        (variant, name, split, {"effort": options.effort, "time_limit": options.time_limit, "members": members})
        for split in range(options.splits)
        for name in (options.sets.split(",") if options.sets else (*large, *small))
        for variant in options.only.split(",")
        if (variant, name, split) not in done
    ]
    with ProcessPoolExecutor(options.processes, get_context("spawn"), max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(fit, task) for task in work]):
            rows.append(future.result())
            with file.open("a") as out:
                out.write(json.dumps(rows[-1]) + "\n")
    others = sorted({row["set"] for row in rows}.difference(small, large))
    for title, sets in (("Sets of the benchmark", small), ("Larger tables", large), ("Others", others)):
        print(f"\n{title}: {table(rows, sets)}")


if __name__ == "__main__":
    main()
