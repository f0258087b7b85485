"""Candidates for the default of a fit without a search: variants of `CRCENClassifier()` on the development half.

The splits are stratified, 75/25. Costs are those of `bench.rivals`: decisions p > 1/(1 + c), divided by the cost of the
cheaper constant decision. The last column is the mean rank over the four costs. Seconds are those of one processor.

    python -m bench.choices.default_fit --processes 6 --rows rows.jsonl
"""

import argparse
import time
from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from bench.harness import rows_of
from bench.rivals.evaluation import costs
from crcen import Calibration, CRCENClassifier, CRCENClassifierCV, Inputs, Search
from crcen.datasets.benchmark import load_dataset
from crcen.models.ensemble import apply_map, fit_map
from crcen.theory.balance import balance_shift
from crcen.theory.price import sigmoid

SETS = "ecoli libras_move arrhythmia car_eval_34 car_eval_4 wine_quality yeast_ml8 sick_euthyroid thyroid_sick "
SETS += "optical_digits coil_2000 letter_img"
COLUMNS = ("log_loss", "AP", "AUC", "cost_2", "cost_5", "cost_20", "cost_ir", "seconds")


PLAIN = Calibration(balance=True, probability="shift")


class Bag:
    """The networks of four folds, averaged, instead of networks on all rows."""

    def __init__(self, epochs, seed):
        self.epochs, self.seed = epochs, seed

    def fit(self, X, y):
        """Train the folds; fit slope and bias on the rows they hold out."""
        oof, self.parts = np.empty(len(y)), []
        for train, held_out in StratifiedKFold(4, shuffle=True, random_state=self.seed).split(X, y):
            part = one(max_epochs=self.epochs, calibration=PLAIN)(self.seed).fit(X[train], y[train])
            oof[held_out] = part.decision_function(X[held_out])
            self.parts.append(part)
        self.map = fit_map("temperature", y == 1, oof, np.ones(len(y)))
        self.shift = balance_shift(y, apply_map(self.map, oof), None)
        return self

    def predict_proba(self, X):
        """By the mean logit of the folds."""
        mean = np.mean([part.decision_function(X) for part in self.parts], axis=0)
        p = sigmoid(apply_map(self.map, mean) + self.shift)
        return np.stack([1.0 - p, p], axis=1)


def one(**how):
    """Networks without a search."""
    return lambda seed: CRCENClassifier(None, pos_label=1, device="cpu", random_state=seed, **how)


def searched(**how):
    """The package's own search."""
    return lambda seed: CRCENClassifierCV(None, pos_label=1, device="cpu", random_state=seed, **how)


BOTH, DEEP = ["standard", "steps"], (64, 32)
VARIANTS = {
    "all 30 epochs": one(max_epochs=30),
    "cut, the default": one(),
    "cut, l2 3e-3": one(l2=3e-3),
    "cut, l2 1e-2": one(l2=1e-2),
    "cut, no scales": one(encoding=Inputs(column_scales=False)),
    "cut, one hidden layer": one(hidden=(64,)),
    "cut, 8 members": one(n_members=8),
    "cut, 16 members": one(n_members=16),
    "cut, robust inputs": one(encoding="robust"),
    "bag of folds, 30 epochs": lambda seed: Bag(30, seed),
    "bag of folds, 15 epochs": lambda seed: Bag(15, seed),
    "search over two l2": searched(l2=[1e-3, 1e-2], hidden=DEEP, encoding="steps"),
    "two encodings averaged": searched(l2=[1e-3], hidden=DEEP, encoding=BOTH, search=Search(n_settings=2)),
    "best two of four": searched(l2=[1e-3, 1e-2], hidden=DEEP, encoding=BOTH, search=Search(n_settings=2)),
    "CRCENClassifierCV": searched(),
    "the same, three settings": searched(search=Search(n_settings=3)),
}


def run(task):
    """One variant on one split of one set."""
    name, split, variant = task
    data = load_dataset(name)
    train, test = next(StratifiedShuffleSplit(1, test_size=0.25, random_state=2000 + split).split(data.X, data.y))
    start = time.process_time()
    p = VARIANTS[variant](split).fit(data.X[train], data.y[train]).predict_proba(data.X[test])[:, 1]
    seconds, y, inside = time.process_time() - start, data.y[test], np.clip(p, 1e-6, 1 - 1e-6)
    return {
        "set": name,
        "split": split,
        "variant": variant,
        "seconds": seconds,
        "log_loss": float(-np.mean(np.where(y == 1, np.log(inside), np.log1p(-inside)))),
        "AP": float(average_precision_score(y, p)),
        "AUC": float(roc_auc_score(y, p)),
        **costs(data.y[train], y, p),
    }


def table(rows):
    """Means over the splits that every variant was run on."""
    by_split = {}
    for row in rows:
        by_split.setdefault((row["set"], row["split"]), {})[row["variant"]] = row
    names = [name for name in VARIANTS if any(name in found for found in by_split.values())]
    whole = [found for found in by_split.values() if len(found) == len(names)]
    values = np.array([[[found[name][column] for column in COLUMNS] for name in names] for found in whole])
    ranks = np.mean([rankdata(values[:, :, i], axis=1) for i in range(3, 7)], axis=(0, 1))
    yield f"{len(whole)} splits of {len({row['set'] for found in whole for row in found.values()})} sets"
    yield f"{'':<26}" + "".join(f"{column:>10}" for column in COLUMNS) + "  rank over costs"
    for name, mean, rank in zip(names, values.mean(axis=0), ranks, strict=True):
        yield f"{name:<26}" + "".join(f"{value:>10.4f}" for value in mean[:-1]) + f"{mean[-1]:>10.1f}{rank:>17.2f}"


def main():
    """Run what is not in the file of rows yet, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=SETS.split())
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=Path, default=Path("default_fit.jsonl"), help="a line a fit, added to")
    options = parser.parse_args()
    tasks = [(name, split, variant) for split in range(options.splits) for name in options.sets for variant in VARIANTS]
    rows = rows_of(run, tasks, lambda row: (row["set"], row["split"], row["variant"]), options.rows, options.processes)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
