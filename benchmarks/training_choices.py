"""Which way of training serves: ingredients compared one by one on training parts of the development half alone.

The networks are those of `training_prototype.py`, where every ingredient is a switch: dropout, members that share
their weights, bagging, learnable scales of the inputs, rate, schedule, batches, width, depth, decoupled weight decay.
The protocol is that of `network_choices.py`: of the benchmark's training part two thirds to fit and one third to score;
penalty, shape and epochs by out-of-fold log loss, thresholds from out-of-fold rows. The encoding is "steps" throughout.
"library" is `CRCENClassifierCV` at the settings of "base". Variants combine: "rate .03 + dropout .1". All splits of a
set are trained together; on a GPU a step is one captured graph (on a CPU all variants would take hours). Rows are
appended to a file, and a run that was stopped goes on.

    CRCEN_DATA_HOME=data python benchmarks/training_choices.py rows.jsonl --device cuda --jobs 8
    CRCEN_DATA_HOME=data python benchmarks/training_choices.py rows.jsonl --sets ecoli --variants "base,dropout .1"
"""

import argparse
import json
import math
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from network_choices import METRICS, development, thresholds
from sklearn.metrics import average_precision_score, log_loss
from sklearn.model_selection import StratifiedKFold, train_test_split
from torch.nn.functional import softplus
from training_prototype import Choice, Networks, Rows, Training, balancing_shift, pooled

from crcen import CRCENClassifierCV, confusion_counts, load_dataset
from crcen.training.encoding import column_layout, fit_encoding

FOLDS, BINS = 4, 12


WIDE = {"hidden": ((256,), (256, 64))}
SHARED = {"is_shared": True, "chosen_by": "all"}
VARIANTS: dict[str, dict] = {
    "base": {},
    "rate .03": {"rate": 0.03},
    "batch 32 if small": {"small_batch": 32},
    "width 256": WIDE,
    "dropout .1": {"dropout": 0.1},
    "dropout .3": {"dropout": 0.3},
    "shared 4": SHARED,
    "shared 16": SHARED | {"members": 16},
    "poisson rows": {"bagging": "poisson"},
    "exponential rows": {"bagging": "exponential"},
    "column scales": {"scales": "free"},
    "column scales l2": {"scales": "penalised"},
    "slow scales l2": {"scales": "penalised", "scale_speed": 1.0},
    "chosen by all": {"chosen_by": "all"},
    "8 members": {"members": 8},
    "1 member": {"members": 1},
    "input dropout .1": {"column_dropout": 0.1},
    "feature drop .1": {"feature_dropout": 0.1},
    "60 epochs": {"epochs": 60},
    "rate .03 60 epochs": {"rate": 0.03, "epochs": 60},
    "600 steps": {"enough_steps": 600},
    "64 steps an epoch": {"least_steps": 64},
    "deeper": {"hidden": ((64, 32), (64, 64, 32))},
    "256 .03 dropout .1": WIDE | {"rate": 0.03, "dropout": 0.1},
    "256 .03 dropout .3": WIDE | {"rate": 0.03, "dropout": 0.3},
    "decoupled decay": {"is_decoupled": True, "l2": (1e-2, 1e-1, 1.0, 1e1)},
    "cosine": {"schedule": "cosine"},
    "constant": {"schedule": "constant"},
    "four cycles": {"schedule": "four cycles"},
    "beta2 .95": {"beta2": 0.95},
    "plain shuffle": {"is_spread": False},
    "mean probability": {"average": "probabilities"},
    ".03 small 32 by all": {"rate": 0.03, "small_batch": 32, "chosen_by": "all"},
}


def choice_of(variant: str) -> Choice:
    """The choice that a variant's name stands for; names joined by " + " are taken together."""
    changes: dict = {}
    for name in variant.split(" + "):
        changes |= VARIANTS[name]
    return replace(Choice(), **changes)


# -- rows ------------------------------------------------------------------------------------------------------------


def parts(name: str, split: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows to fit, then rows to score, with their labels, and the number of the first."""
    data = load_dataset(name)
    part, _ = train_test_split(np.arange(len(data.y)), test_size=0.25, stratify=data.y, random_state=split)
    fit, held = train_test_split(part, test_size=1 / 3, stratify=data.y[part], random_state=split)
    rows = np.concatenate([fit, held])
    return data.X[rows], data.y[rows], len(fit)


def folds_of(y: np.ndarray, split: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and held-out rows of every fold."""
    return list(StratifiedKFold(FOLDS, shuffle=True, random_state=split).split(y, y))


def encode(name: str, split: int, folder: str) -> None:
    """Write the rows of a split as each fold's encoding and that of all rows to fit gives them."""
    X, y, n_fit = parts(name, split)
    columns = column_layout(X[:n_fit], "steps", BINS)
    tables = np.empty((FOLDS + 1, *X.shape[:1], len(columns)), dtype=np.float32)
    for i, train in enumerate([*(train for train, _ in folds_of(y[:n_fit], split)), np.arange(n_fit)]):
        encoding = fit_encoding("steps", columns, X[train], y[train] == 1, np.ones(len(train)))
        tables[i] = encoding(X)
    np.save(Path(folder) / f"{name}-{split}.npy", tables)
    np.save(Path(folder) / f"{name}-{split}-columns.npy", columns)


def load(name: str, splits: Sequence[int], folder: str, device: str) -> tuple[Rows, Rows, int]:
    """The folds of all splits, the splits whole, and the number of rows to fit."""
    tables = [np.load(Path(folder) / f"{name}-{split}.npy") for split in splits]
    layouts = [np.load(Path(folder) / f"{name}-{split}-columns.npy") for split in splits]
    labels = []
    for split in splits:
        _, y, n_fit = parts(name, split)
        labels.append(y)
    width = max(len(layout) for layout in layouts)  # a split whose rows leave a bin out gets a column of zeros
    tables = [np.pad(table, ((0, 0), (0, 0), (0, width - table.shape[2]))) for table in tables]
    layouts = [np.pad(layout + 1, (0, width - len(layout))) for layout in layouts]
    folds = [train for y, s in zip(labels, splits, strict=True) for train, _ in folds_of(y[:n_fit], s)]

    def rows(chosen: slice, size: int, train: list[np.ndarray], repeats: int) -> Rows:
        x = np.concatenate([table[chosen, :size] for table in tables])
        y = np.repeat([label[:size] for label in labels], repeats, axis=0).astype(np.float32)
        feature = np.repeat(layouts, repeats, axis=0)
        return Rows(torch.from_numpy(x).to(device), torch.from_numpy(y).to(device), feature, train,
                    [s for s in splits for _ in range(repeats)])  # fmt: skip

    everything = [np.arange(n_fit) for _ in splits]
    return (rows(slice(FOLDS), n_fit, folds, FOLDS),
            rows(slice(FOLDS, None), len(labels[0]), everything, 1), n_fit)  # fmt: skip


# -- one variant -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Found:
    """What a split's search found: the setting, epochs of how long a schedule, and out-of-fold logits (members, n)."""

    hidden: tuple[int, ...]
    l2: float
    epochs: int
    schedule: int
    loss: float
    oof: np.ndarray


def search(choice: Choice, rows: Rows, splits: Sequence[int], *, graphs: bool) -> list[Found]:
    """The best setting of each split by out-of-fold log loss."""
    used = rows.is_train()
    held = [np.flatnonzero(own) for own in (1 - used[..., 0]).cpu().numpy()]
    longest = max(map(len, held))
    at = torch.from_numpy(np.stack([np.pad(h, (0, longest - len(h)), mode="edge") for h in held])).to(rows.x.device)
    best: list[Found | None] = [None] * len(splits)
    for hidden in choice.hidden:
        networks = Networks(choice, rows, hidden, np.tile(choice.l2, (len(rows.seeds), 1)))
        training = Training(networks, rows, graphs=graphs)
        logits, shifts = [], []
        for _ in training.run():
            z = networks.logits(rows.x)
            logits.append(z.gather(1, at[..., None, None].expand(-1, -1, *z.shape[2:])))
            shifts.append(balancing_shift(z, rows.y, used))
        z = torch.stack(logits)  # (epochs, G, rows, P, K)
        y = rows.y.gather(1, at)[..., None, None]
        judged = z[..., :1] if choice.chosen_by == "one" else pooled(z, choice)[..., None]
        losses = softplus(judged) - y * judged  # (epochs, G, rows, P, 1)
        real = torch.zeros(len(held), longest, device=rows.x.device)
        for own, h in zip(real, held, strict=True):
            own[: len(h)] = 1 / len(h)
        by_group = (losses[..., 0] * real[..., None]).sum(2)  # (epochs, G, P)
        means = by_group.view(len(logits), len(splits), FOLDS, -1).mean(2).cpu().numpy()
        for s in range(len(splits)):
            own = np.where(np.isfinite(means[:, s]), means[:, s], np.inf)
            epoch, setting = np.unravel_index(np.argmin(own), own.shape)
            if best[s] is None or own[epoch, setting] < best[s].loss:
                oof = np.empty((choice.members, rows.y.shape[1]))
                for g in range(s * FOLDS, (s + 1) * FOLDS):
                    balanced = z[epoch, g, : len(held[g]), setting] + shifts[epoch][g, :, setting]
                    oof[:, held[g]] = balanced.T.double().cpu().numpy()
                loss = float(own[epoch, setting])
                best[s] = Found(hidden, choice.l2[setting], int(epoch) + 1, training.epochs, loss, oof)
    return best


def refit(choice: Choice, rows: Rows, found: list[Found], *, graphs: bool) -> list[np.ndarray]:
    """Each split's members on all rows to fit: probabilities of all its rows."""
    result: list[np.ndarray] = [np.empty(0)] * len(found)
    for hidden in dict.fromkeys(one.hidden for one in found):
        mine = [s for s, one in enumerate(found) if one.hidden == hidden]
        own = Rows(rows.x[mine], rows.y[mine], rows.feature[mine], [rows.train[s] for s in mine],
                   [rows.seeds[s] for s in mine])  # fmt: skip
        networks = Networks(choice, own, hidden, np.array([[found[s].l2] for s in mine]))
        training = Training(networks, own, graphs=graphs, epochs=found[mine[0]].schedule)
        for epoch in training.run(max(found[s].epochs for s in mine)):
            done = [i for i, s in enumerate(mine) if found[s].epochs == epoch]
            if not done:
                continue
            z = networks.logits(own.x).double()
            z = z + balancing_shift(z, own.y, own.is_train())
            z = pooled(z, choice)[..., None]
            if choice.average == "logits":  # the mean of balanced probabilities is balanced
                z = z + balancing_shift(z, own.y, own.is_train())
            for i in done:
                result[mine[i]] = torch.sigmoid(z[i, :, 0, 0]).cpu().numpy()
    return result


def run(name: str, splits: Sequence[int], variant: str, folder: str, device: str, graphs: bool) -> list[dict]:
    """One variant on splits of one set."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.perf_counter()
    if variant == "library":
        outcomes = [library(name, split) for split in splits]
    else:
        choice = choice_of(variant)
        folds, whole, n_fit = load(name, splits, folder, device)
        found = search(choice, folds, splits, graphs=graphs)
        scores = refit(choice, whole, found, graphs=graphs)
        outcomes = []
        for one, p in zip(found, scores, strict=True):
            oof = torch.sigmoid(pooled(torch.from_numpy(one.oof).T, choice)).numpy()
            outcomes.append((oof, p[n_fit:], {"hidden": one.hidden, "l2": one.l2, "epochs": one.epochs}))
    seconds = (time.perf_counter() - start) / len(splits)
    if device != "cpu":
        torch.cuda.empty_cache()  # processes share the device
    result = []
    for split, (oof, p, chosen) in zip(splits, outcomes, strict=True):
        _, y, n_fit = parts(name, split)
        cut_f1, cut_gm = thresholds(y[:n_fit], oof)
        p, truth = np.clip(p, 1e-12, 1 - 1e-12), y[n_fit:]
        result.append({
            "set": name, "split": split, "variant": variant, "seconds": seconds, "found": chosen,
            "oof_log_loss": log_loss(y[:n_fit], np.clip(oof, 1e-12, 1 - 1e-12)),
            "g_mean": confusion_counts(truth, p > cut_gm).g_mean, "f1": confusion_counts(truth, p > cut_f1).f1,
            "average_precision": average_precision_score(truth, p), "log_loss": log_loss(truth, p),
        })  # fmt: skip
    return result


def library(name: str, split: int) -> tuple[np.ndarray, np.ndarray, dict]:
    """Out-of-fold and new probabilities of the library at the settings of "base"."""
    X, y, n_fit = parts(name, split)
    base = Choice()
    model = CRCENClassifierCV(
        weighting=None, hidden=list(base.hidden), l2=list(base.l2), n_members=base.members, encoding="steps", bins=BINS,
        solver="adam", learning_rate=base.rate, max_epochs=base.epochs, batch_size=base.batch, device="cpu",
        random_state=split,
    ).fit(X[:n_fit], y[:n_fit])  # fmt: skip
    oof = 1 / (1 + np.exp(-(model.oof_decision_function_ - model.weighting_.logit_shift)))
    chosen = {name: model.best_params_[name] for name in ("hidden", "l2")} | {"epochs": model.best_epochs_}
    return oof, model.predict_proba(X[n_fit:])[:, 1], chosen


# -- the table -------------------------------------------------------------------------------------------------------


def table(rows: list[dict], first: str = "base") -> str:
    """Means and mean ranks, then differences to the first variant with the standard error over sets.

    Log loss is a ratio to the first variant, and its difference the logarithm of that. A mean is taken over splits
    before sets are compared. Ranks are among variants that have every run the first has.
    """
    at = {(row["variant"], row["set"], row["split"]): row for row in rows}
    keys = sorted({key[1:] for key in at if key[0] == first})
    if not keys:
        return f"no run of {first} yet"
    seen = list(dict.fromkeys(row["variant"] for row in rows if (row["set"], row["split"]) in keys))
    names = sorted(seen, key=lambda n: list(VARIANTS).index(n) if n in VARIANTS else len(VARIANTS))
    wide = max(map(len, names))
    whole = [n for n in names if all((n, *key) in at for key in keys)]
    sets = sorted({key[0] for key in keys})
    lines = [
        f"{len(sets)} sets, {len(keys)} runs; mean rank of {len(whole)} in parentheses; log loss over that of {first}",
        f"{'variant':{wide}s}" + "".join(f"{m:>19s}" for m in METRICS) + f"{'seconds':>9s}",
    ]
    ranks = {}
    for m in METRICS:
        v = np.round([[at[(n, *k)][m] * (1 if m == "log_loss" else -1) for n in whole] for k in keys], 4)
        below, equal = ((f(v[:, None, :], v[:, :, None])).sum(2) for f in (np.less, np.equal))
        ranks[m] = (1 + below + 0.5 * (equal - 1)).mean(0)
    differences = []
    for n in names:
        own = [k for k in keys if (n, *k) in at]
        cells, against = [], []
        for m in METRICS:
            new, old = (np.array([at[(who, *k)][m] for k in own]) for who in (n, first))
            change = np.log(new / old) if m == "log_loss" else new - old
            by_set = np.array([change[[k[0] == s for k in own]].mean() for s in sets if any(k[0] == s for k in own)])
            mean = np.exp(by_set.mean()) if m == "log_loss" else new.mean()
            rank = f"({ranks[m][whole.index(n)]:5.2f})" if n in whole else "(  -  )"
            cells.append(f"{mean:11.4f} {rank}")
            error = by_set.std(ddof=1) / math.sqrt(len(by_set)) if len(by_set) > 1 else math.nan
            good = (by_set < -1e-4 if m == "log_loss" else by_set > 1e-4).sum()
            bad = (by_set > 1e-4 if m == "log_loss" else by_set < -1e-4).sum()
            against.append(f"{by_set.mean():+9.4f} ±{error:6.4f} {good:2d}:{bad:<2d}")
        partial = "" if n in whole else f"  ({len(own)} runs)"
        seconds = np.mean([at[(n, *k)]["seconds"] for k in own])
        lines.append(f"{n:{wide}s}" + "".join(f"{c:>19s}" for c in cells) + f"{seconds:9.1f}{partial}")
        differences.append(f"{n:{wide}s}" + "".join(f"{c:>25s}" for c in against) + partial)
    return "\n".join([
        *lines, "", f"difference to {first} ± standard error over sets, and sets better:worse; log loss as a logarithm",
        f"{'variant':{wide}s}" + "".join(f"{m:>25s}" for m in METRICS), *differences[1:],
    ])  # fmt: skip


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--variants", default=",".join(["base", "library", *list(VARIANTS)[1:]]))
    parser.add_argument("--sets", default="", help="with commas; otherwise the development half")
    parser.add_argument("--leave-out", default="webpage", help="sets, with commas")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-graphs", action="store_true", help="launch the kernels of a step one by one")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing new after this time")
    parser.add_argument("--table", action="store_true", help="only print the table of the rows that are there")
    parser.add_argument("--check", action="store_true", help="only compare captured graphs with plain steps")
    args = parser.parse_args()
    start = time.time()
    if args.check:
        return check(args.device)
    done = [json.loads(line) for line in args.rows.read_text().splitlines()] if args.rows.exists() else []
    if args.table:
        return print(table(done))
    known = {(row["set"], row["split"], row["variant"]) for row in done}
    sets = args.sets.split(",") if args.sets else [n for n in development() if n not in args.leave_out.split(",")]
    sets.sort(key=lambda name: -load_dataset(name).X.size)
    todo = []
    for variant in args.variants.split(","):
        for name in sets:
            missing = [s for s in range(args.splits) if (name, s, variant) not in known]
            if missing:
                todo.append((name, missing, variant))
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, args.rows.open("a") as file, context.Pool(args.jobs) as pool:
        needed = dict.fromkeys((name, s, folder) for name, missing, _ in todo for s in missing)
        pool.starmap(encode, needed, chunksize=1)
        print(f"{len(todo)} tasks; rows encoded after {time.time() - start:.0f} s", flush=True)
        tasks = [(*task, folder, args.device, not args.no_graphs, start + 60 * args.minutes) for task in todo]
        for rows in pool.imap_unordered(attempt, tasks):
            done += rows
            file.write("".join(json.dumps(row) + "\n" for row in rows))
            file.flush()
    print(f"{time.time() - start:.0f} s", table(done), sep="\n")


def attempt(task: tuple) -> list[dict]:
    """`run`, unless it is too late; an error costs that task alone."""
    *arguments, deadline = task
    if time.time() > deadline:
        return []
    try:
        return run(*arguments)
    except Exception as error:
        print(f"{arguments[0]}, {arguments[2]}: {type(error).__name__}: {error}", flush=True)
        return []


def check(device: str) -> None:
    """Train variants of every kind of step with captured graphs and without; exit with an error where they differ."""
    variants = ("base", "shared 4", "poisson rows", "column scales", "decoupled decay", "deeper", "dropout .1",
                "feature drop .1")  # fmt: skip
    differ = False
    with tempfile.TemporaryDirectory() as folder:
        encode("ecoli", 0, folder)
        encode("ecoli", 1, folder)
        for variant in variants:
            graphs, plain = (run("ecoli", [0, 1], variant, folder, device, graphs) for graphs in (True, False))
            for new, old in zip(graphs, plain, strict=True):
                print(
                    f"{variant:30s}" + "".join(f" {one['log_loss']:.6f} {one['seconds']:.1f} s" for one in (new, old))
                )
                # Dropout draws other masks.
                differ |= abs(new["log_loss"] / old["log_loss"] - 1) > (0.3 if "drop" in variant else 0.01)
    if differ:
        raise SystemExit("captured graphs give another result")


if __name__ == "__main__":
    main()
