"""Members of a committee, and the shrinkage of their weights towards equal weights, compared on the development half.

Members are searched once for each table and split, and their log-odds are stored in a folder. The ways to combine them
are then compared on the test rows. Tables of 600 and 2,000 rows are drawn from the larger ones and tested on the
remaining rows.

    python -m bench.choices.committee_members --keep runs/members --splits 4 --processes 8
"""

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit

from bench.rivals.datasets import load_set
from bench.rivals.evaluation import costs
from crcen import CommitteeClassifier, balance_shift
from crcen.models.committee import choose_ridge, cross_fitted_logits, fit_stacking
from crcen.theory.price import sigmoid

MEMBERS = ("networks", "trees", "random_trees", "catboost", "forest")
WHOLE = [
    "coil_2000",
    "nyc_weather",
    "letter_img",
    "optical_digits",
    "covid_testing",
    "lending_club",
    "thyroid_sick",
    "sick_euthyroid",
    "wine_quality",
    "yeast_ml8",
    "credit_default",
    "arrhythmia",
    "car_eval_34",
    "car_eval_4",
    "libras_move",
    "ecoli",
]
LARGER = [
    "covid_testing",
    "nyc_weather",
    "lending_club",
    "letter_img",
    "coil_2000",
    "optical_digits",
    "credit_default",
    "wine_quality",
    "thyroid_sick",
    "sick_euthyroid",
    "flights",
]
METRICS = ("log loss", "cost at 2", "cost at 5", "cost at 20", "cost at IR", "average precision", "ROC AUC")
_TEST_ROWS = 8_000


def split_of(name, number, n_rows):
    """Training and test rows: all of a table, or so many rows and the others."""
    data = load_set(name)
    how = {"train_size": n_rows, "random_state": 7000 + number} if n_rows else {"test_size": 0.25, "random_state": 3000}
    if not n_rows:
        how["random_state"] += number
    train, test = next(StratifiedShuffleSplit(1, **how).split(data.X, data.y))
    if len(test) > _TEST_ROWS:
        test = np.sort(np.random.default_rng(7000 + number).choice(test, _TEST_ROWS, replace=False))
    return data.X[train], data.y[train], data.X[test], data.y[test]


def search(task):
    """Log-odds of every member, out of fold and of test rows, into a file."""
    name, number, n_rows, place = task
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    X, y, new, y_new = split_of(name, number, n_rows)
    kept = {}

    class Keeping(CommitteeClassifier):
        def _stack(self, found, rows, seed):
            fold = np.full(len(rows.X), -1, dtype=np.int8)
            for i, (_, held_out) in enumerate(rows.folds):
                fold[held_out] = i
            answers = [np.mean([_log_odds(part.logits(new)) for part in one.parts], axis=0) for one in found]
            oof = np.stack([_log_odds(one.logits) for one in found], 1)
            kept.update(oof=oof, new=np.stack(answers, 1), fold=fold)
            return super()._stack(found, rows, seed)

    how = {"members": MEMBERS, "pos_label": 1, "n_jobs": 1, "device": "cpu", "random_state": number}
    Keeping(None, **how).fit(X, y)
    np.savez_compressed(place, y=y == 1, y_new=y_new == 1, **kept)
    return place.name


def _log_odds(logits):
    """(n, K) logits of two classes, or those of the positive one alone, as log-odds (n,)."""
    return logits[:, -1] - (logits[:, 0] if logits.shape[1] > 1 else 0.0)


def judged(kept, members, ridge):
    """Scores on test rows of these members, in the order of `METRICS`; without a ridge, nested folds choose it."""
    at = [MEMBERS.index(member) for member in members]
    oof, new = (np.stack([np.zeros_like(kept[name][:, at]), kept[name][:, at]], axis=2) for name in ("oof", "new"))
    y, y_new, ones = kept["y"].astype(int), kept["y_new"], np.ones(len(kept["y"]))
    held_out = [np.flatnonzero(kept["fold"] == k) for k in range(kept["fold"].max() + 1)]
    ridge = choose_ridge(oof, y, ones, held_out) if ridge is None else ridge
    crossed = _log_odds(cross_fitted_logits(oof, y, ones, held_out, ridge))
    logits = _log_odds(fit_stacking(oof, y, ones, ridge)(new)) + balance_shift(y, crossed, None)
    p = sigmoid(logits)
    inside = np.clip(p, 1e-6, 1 - 1e-6)
    loss = -np.mean(np.where(y_new, np.log(inside), np.log1p(-inside)))
    by_price = costs(y, y_new.astype(int), p)
    return [loss, *by_price.values(), average_precision_score(y_new, logits), roc_auc_score(y_new, logits)]


def table(files):
    """A line a way: what changes against the first, in percent, its error over sets, and sets better and worse."""
    ways = {"all, ridge 5": (MEMBERS, 5.0), "all, nested": (MEMBERS, None)}
    ways |= {f"all, ridge {ridge:g}": (MEMBERS, ridge) for ridge in (0.5, 50.0, 500.0)}
    ways |= {f"without {one}": (tuple(m for m in MEMBERS if m != one), None) for one in MEMBERS}
    ways |= {f"{one} alone": ((one,), None) for one in MEMBERS}
    sets = sorted({file.stem.rsplit("_", 1)[0] for file in files})
    scores = {
        way: {file.stem: judged(np.load(file), *how) for file in files if file.stem.rsplit("_", 1)[0] in sets}
        for way, how in ways.items()
    }
    lines = [f"{len(sets)} sets, {len(files)} splits", f"{'':26}" + "".join(f"{metric:>23}" for metric in METRICS)]
    first = next(iter(ways))
    for way in ways:
        line = f"{way:26}"
        for i, metric in enumerate(METRICS):
            means = np.array(
                [
                    [
                        np.mean([scores[one][f][i] for f in scores[one] if f.rsplit("_", 1)[0] == s])
                        for one in (way, first)
                    ]
                    for s in sets
                ]
            )
            change = np.log(means[:, 0] / means[:, 1]) if i == 0 else (means[:, 0] - means[:, 1]) / means[:, 1].mean()
            better = change * (1 if metric in METRICS[-2:] else -1)
            error = change.std(ddof=1) / np.sqrt(len(sets))
            counts = f"{(better > 1e-9).sum()}:{(better < -1e-9).sum()}"
            line += f"{100 * change.mean():+9.2f} ±{100 * error:5.2f} {counts:>6}"
        lines.append(line)
    return "\n".join(lines)


def main():
    """Search what is missing, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", type=Path, required=True, help="folder of the members' log-odds")
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--tables-only", action="store_true")
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    work = [(name, number, 0) for number in range(options.splits) for name in WHOLE]
    work += [(name, number, n) for number in range(options.splits) for n in (600, 2000) for name in LARGER]
    tasks = []
    for name, number, n_rows in work:
        place = options.keep / f"{name}{f'-{n_rows}' if n_rows else ''}_{number}.npz"
        if not place.exists() and not options.tables_only:
            tasks.append((name, number, n_rows, place))
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for done in pool.map(search, tasks):
            print(done, flush=True)
    files = sorted(options.keep.glob("*.npz"))
    print("Change against all members with a ridge of 5 rows, in percent ± error over sets, sets better:worse")
    for title, own in (
        ("Whole tables", [f for f in files if "-" not in f.stem]),
        ("Few rows", [f for f in files if "-" in f.stem]),
    ):
        print(f"\n{title}: {table(own)}")


if __name__ == "__main__":
    main()
