"""Which network is the default: variants compared on training parts of the benchmark's development half alone.

For each development set and split the benchmark's training part is split again, two thirds to fit and one third to
score, so no row that `crcen benchmark` tests on is looked at. Thresholds for F1 and G-mean come from out-of-fold rows.
LightGBM with as many cross-validated settings stands beside the variants as a yardstick. Rows are appended to a file,
and a run that was stopped goes on.

    CRCEN_DATA_HOME=data python benchmarks/network_choices.py rows.jsonl [--variants standard,steps] [--jobs 2]
"""

import argparse
import json
import os
import time
import tomllib
import warnings
from importlib.resources import files
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import average_precision_score, log_loss
from sklearn.model_selection import ParameterSampler, StratifiedKFold, cross_val_predict, train_test_split

from crcen import CRCENClassifierCV, Inputs, Schedule, confusion_counts, load_dataset

METRICS = ("g_mean", "f1", "average_precision", "log_loss")
BASE = {
    "weighting": None, "hidden": [(16,), (64,)], "l2": [1e-4, 1e-3, 1e-2, 1e-1], "n_members": 4, "encoding": "standard",
    "max_epochs": 30,
}  # fmt: skip
STEPS = BASE | {"encoding": "steps", "inputs": Inputs(column_scales=False)}
DEFAULT = BASE | {"hidden": [(64,), (64, 32)], "encoding": ["standard", "steps"]}
VARIANTS = {
    "standard": BASE,
    "balanced": BASE | {"weighting": "balanced"},
    "robust": BASE | {"encoding": "robust"},
    "quantile": BASE | {"encoding": "quantile"},
    "piecewise": BASE | {"encoding": "piecewise"},
    "piecewise 32": BASE | {"encoding": "piecewise", "inputs": Inputs(bins=32)},
    "tree": BASE | {"encoding": "tree"},
    "tree 32": BASE | {"encoding": "tree", "inputs": Inputs(bins=32)},
    "steps": STEPS,
    "steps 6": STEPS | {"inputs": Inputs(bins=6, column_scales=False)},
    "steps balanced": STEPS | {"weighting": "balanced"},
    "1 member": STEPS | {"n_members": 1},
    "8 members": STEPS | {"n_members": 8},
    "rate .003": STEPS | {"schedule": Schedule(learning_rate=0.003)},
    "rate .03": STEPS | {"schedule": Schedule(learning_rate=0.03)},
    "100 epochs": STEPS | {"max_epochs": 100},
    "batch 32": STEPS | {"schedule": Schedule(batch_size=32)},
    "two layers": STEPS | {"hidden": [(32, 16), (64, 64)]},
    "wide": STEPS | {"hidden": [(64,), (256,)]},
    "gelu": STEPS | {"activation": "gelu"},
    "the default": DEFAULT,
    "no scales": DEFAULT | {"inputs": Inputs(column_scales=False)},
}


def development() -> list[str]:
    """Names of the development half."""
    text = files("crcen.paper").joinpath("configs/benchmark.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["halves"]["development"]


def thresholds(y: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Cuts with the best F1 and the best G-mean on these rows."""
    cuts = np.unique(np.quantile(p, np.linspace(0, 1, 401)))
    counts = [confusion_counts(y, p > cut) for cut in cuts]
    return tuple(float(cuts[np.argmax([getattr(c, name) for c in counts])]) for name in ("f1", "g_mean"))


def lightgbm(X: np.ndarray, y: np.ndarray, seed: int) -> tuple:
    """LightGBM refitted at the best of 16 settings, and its out-of-fold probabilities."""
    from lightgbm import LGBMClassifier

    space = {"n_estimators": [50, 100, 200, 400], "learning_rate": [0.03, 0.1], "num_leaves": [7, 15, 31, 63],
             "min_child_samples": [5, 20, 50], "reg_lambda": [0.0, 1.0, 10.0],
             "colsample_bytree": [0.5, 1.0]}  # fmt: skip
    folds = StratifiedKFold(4, shuffle=True, random_state=seed)
    best = (np.inf, None, None)
    for setting in ParameterSampler(space, 16, random_state=seed):
        model = LGBMClassifier(**setting, n_jobs=1, verbose=-1, random_state=seed)
        p = cross_val_predict(model, X, y, cv=folds, method="predict_proba")[:, 1]
        best = min(best, (log_loss(y, np.clip(p, 1e-12, 1 - 1e-12)), model, p), key=lambda found: found[0])
    return best[1].fit(X, y), best[2]


def run(name: str, split: int, variant: str) -> dict:
    """One variant on one split of one set."""
    warnings.simplefilter("ignore")
    data = load_dataset(name)
    part, _ = train_test_split(np.arange(len(data.y)), test_size=0.25, stratify=data.y, random_state=split)
    fit, held = train_test_split(part, test_size=1 / 3, stratify=data.y[part], random_state=split)
    X, y = data.X[fit], data.y[fit]
    start = time.perf_counter()
    if variant == "LightGBM":
        model, oof = lightgbm(X, y, split)
        found = None
    else:
        model = CRCENClassifierCV(**VARIANTS[variant], device="cpu", random_state=split).fit(X, y)
        oof = 1 / (1 + np.exp(-(model.oof_decision_function_ - model.weighting_.logit_shift)))
        found = {**model.best_params_, "weighting": repr(model.best_params_["weighting"]), "epochs": model.best_epochs_}
    seconds = time.perf_counter() - start
    cut_f1, cut_gm = thresholds(y, oof)
    p = np.clip(model.predict_proba(data.X[held])[:, 1], 1e-12, 1 - 1e-12)
    truth = data.y[held]
    return {
        "set": name, "split": split, "variant": variant, "seconds": seconds, "found": found,
        "g_mean": confusion_counts(truth, p > cut_gm).g_mean, "f1": confusion_counts(truth, p > cut_f1).f1,
        "average_precision": average_precision_score(truth, p), "log_loss": log_loss(truth, p),
    }  # fmt: skip


def table(rows: list[dict]) -> str:
    """Mean over sets of each metric, log loss as ratio to the first variant, and mean seconds."""
    names = list(dict.fromkeys(row["variant"] for row in rows))
    keys = sorted({(row["set"], row["split"]) for row in rows})
    at = {(row["variant"], row["set"], row["split"]): row for row in rows}
    keys = [key for key in keys if all((name, *key) in at for name in names)]
    lines = [f"{len({k[0] for k in keys})} sets, {len(keys)} runs; mean rank of {len(names)} in parentheses",
             f"{'variant':14s}" + "".join(f"{m:>20s}" for m in METRICS) + f"{'seconds':>9s}"]  # fmt: skip
    values = {m: np.array([[at[(n, *k)][m] for n in names] for k in keys]) for m in METRICS}
    ranks = {}
    for m, v in values.items():
        signed = np.round(v if m == "log_loss" else -v, 4)
        ranks[m] = (
            1
            + (signed[:, None, :] < signed[:, :, None]).sum(2)
            + 0.5 * ((signed[:, None, :] == signed[:, :, None]).sum(2) - 1)
        )
    for i, n in enumerate(names):
        cells = []
        for m, v in values.items():
            mean = np.exp(np.log(v[:, i] / v[:, 0]).mean()) if m == "log_loss" else v[:, i].mean()
            cells.append(f"{mean:12.4f} ({ranks[m][:, i].mean():5.2f})")
        seconds = np.mean([at[(n, *k)]["seconds"] for k in keys])
        lines.append(f"{n:14s}" + "".join(f"{c:>20s}" for c in cells) + f"{seconds:9.1f}")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--variants", default=",".join([*VARIANTS, "LightGBM"]))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--leave-out", default="webpage", help="sets, with commas; webpage takes as long as all others")
    args = parser.parse_args()
    done = [json.loads(line) for line in args.rows.read_text().splitlines()] if args.rows.exists() else []
    known = {(row["set"], row["split"], row["variant"]) for row in done}
    sets = [name for name in development() if name not in args.leave_out.split(",")]
    todo = [(n, s, v) for s in range(args.splits) for v in args.variants.split(",") for n in sets
            if (n, s, v) not in known]  # fmt: skip

    with args.rows.open("a") as file:
        for row in Parallel(args.jobs, return_as="generator_unordered", batch_size=1)(delayed(run)(*t) for t in todo):
            done.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    print(table(done))


if __name__ == "__main__":
    main()
