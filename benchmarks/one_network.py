"""One network for every price: trained under prices drawn anew for each row, beside a plain one whose threshold moves.

Loss-conditional training (Dosovitskiy and Djolonga 2020) gives the network log c as an input, weighs a positive row by
the c it was drawn with, and adds log c to the output, so that what is left to learn is the natural log-odds and how it
depends on the price. The plain network of the same size, trained for as many steps, decides at p > 1/(1 + c).

    python benchmarks/one_network.py [--data-home DIR] [--sets abalone,satimage] [--splits 4]
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

import crcen
from crcen.models.module_classifier import ModuleClassifier

COPIES, EPOCHS = 4, 10
LARGEST = np.log(50.0)  # prices are drawn from 1/50 to 50, evenly in their logarithm


class Conditional(torch.nn.Module):
    """log c in the last column, which is also added to the output."""

    def __init__(self, n_columns):
        super().__init__()
        self.body = plain(n_columns + 1)

    def forward(self, rows):
        """Weighted log-odds at each row's own price."""
        return self.body(torch.cat([rows[:, :-1], rows[:, -1:] / float(LARGEST)], dim=1))[:, 0] + rows[:, -1]


def plain(n_columns):
    """The network of both."""
    return torch.nn.Sequential(torch.nn.Linear(n_columns, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))


def fitted(make, X, y, weights, epochs, seed):
    """A module trained by weighted cross entropy; its output is the log-odds under those weights."""
    model = ModuleClassifier(make, None, l2=1e-3, max_epochs=epochs, balance=False, random_state=seed)
    return model.fit(X, y, sample_weight=weights)


def costs(y, alarms, price):
    """Misses at the price, and false alarms."""
    return float(price * ((y == 1) & ~alarms).sum() + ((y == 0) & alarms).sum())


def compare(X, y, train, test, seed):
    """Ratios of costs at four prices, and both log losses."""
    scaler = StandardScaler().fit(X[train])
    old, new, truth = scaler.transform(X[train]), scaler.transform(X[test]), y[test]
    rng = np.random.default_rng(seed)
    log_c = rng.uniform(-LARGEST, LARGEST, COPIES * len(train))
    rows = np.column_stack([np.tile(old, (COPIES, 1)), log_c])
    labels = np.tile(y[train], COPIES)
    # λ and 1 − λ: no price weighs more than another.
    lam = 1.0 / (1.0 + np.exp(-log_c))
    every = fitted(lambda: Conditional(X.shape[1]), rows, labels, np.where(labels == 1, lam, 1.0 - lam), EPOCHS, seed)
    one = fitted(lambda: plain(X.shape[1]), old, y[train], None, COPIES * EPOCHS, seed)
    natural = one.decision_function(new)
    ratio = float((y == 0).sum() / (y == 1).sum())
    ratios = []
    for price in (2.0, 5.0, 20.0, ratio):
        alarms = every.decision_function(np.column_stack([new, np.full(len(new), np.log(price))])) > 0
        of_cut = costs(truth, natural > -np.log(price), price)
        ratios.append(costs(truth, alarms, price) / max(of_cut, 1.0))
    at_one = every.decision_function(np.column_stack([new, np.zeros(len(new))]))
    losses = [log_loss(truth, 1.0 / (1.0 + np.exp(-logits))) for logits in (at_one, natural)]
    return ratios, losses


def main():
    """Print a line a set, and the mean over all with an interval over sets and splits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", type=Path)
    parser.add_argument("--sets", default="abalone,satimage")
    parser.add_argument("--splits", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    print("cost of one network for every price / cost of a plain one with a moved threshold")
    print(f"{'set':16s} {'at 2':>6s} {'at 5':>6s} {'at 20':>6s} {'at IR':>6s} {'log loss':>9s} {'plain':>7s}")
    logs = []
    for name in options.sets.split(","):
        data = crcen.load_dataset(name, options.data_home)
        splitter = StratifiedShuffleSplit(options.splits, test_size=0.25, random_state=0)
        found = [compare(data.X, data.y, *rows, seed) for seed, rows in enumerate(splitter.split(data.X, data.y))]
        ratios, losses = (np.array(part) for part in zip(*found, strict=True))
        logs.append(np.log(ratios).mean(axis=1))
        means, (own, cut) = np.exp(np.log(ratios).mean(axis=0)), losses.mean(axis=0)
        print(f"{name:16s} " + " ".join(f"{mean:6.3f}" for mean in means) + f" {own:9.4f} {cut:7.4f}", flush=True)
    together = np.array(logs)
    rng = np.random.default_rng(0)
    n_sets, n_splits = together.shape
    drawn = [
        np.mean([rng.choice(together[i], n_splits).mean() for i in rng.integers(0, n_sets, n_sets)])
        for _ in range(2000)
    ]
    low, high = np.exp(np.quantile(drawn, [0.025, 0.975]))
    print(f"all: {np.exp(together.mean()):.3f} [{low:.3f}, {high:.3f}], {n_sets} sets, {options.splits} splits")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
