"""A committee, the search of networks and LightGBM's search on 1,000 to 200,000 rows.

The simulated rows are those of `make_classification` with a rare class and 2 % wrong labels; 20,000 more rows are the
test. Real tables are drawn down to each size. Log loss and cost (mean over prices of 2, 5, 20 and the class ratio) are
of test rows, seconds are of one processor each.

    python -m bench.choices.sizes --rows 1000 5000 20000 60000 100000 200000
    python -m bench.choices.sizes --set flights --rows 5000 50000 200000
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold, train_test_split

from bench.harness import columns
from bench.rivals.datasets import load_set
from bench.rivals.evaluation import costs
from bench.rivals.search import selection_loss
from crcen import CommitteeClassifier, CRCENClassifierCV

_TEST_ROWS = 20_000


def simulated(n):
    """Training and test rows."""
    how = {"n_informative": 10, "n_redundant": 4, "weights": [0.95], "flip_y": 0.02, "class_sep": 0.7}
    X, y = make_classification(n + _TEST_ROWS, 30, random_state=0, **how)
    return X[:n], y[:n], X[n:], y[n:]


def drawn(name, n):
    """So many rows of a table, and up to 20,000 others."""
    data = load_set(name)
    X, new, y, labels = train_test_split(data.X, data.y, train_size=n, stratify=data.y, random_state=0)
    return X, y, new[:_TEST_ROWS], labels[:_TEST_ROWS]


def lightgbm(X, y, threads):
    """The best of 16 settings on four folds."""
    from bench.rivals.peers import PEERS

    peer, best = PEERS["lightgbm"], None
    folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(X, y))
    for setting in peer.settings(16):
        oof = np.empty(len(y))
        for rows, held_out in folds:
            model = peer.make(setting, 0).set_params(n_jobs=threads).fit(X[rows], y[rows])
            oof[held_out] = model.predict_proba(X[held_out])[:, 1]
        if best is None or selection_loss(y, columns(oof)) < best[0]:
            best = selection_loss(y, columns(oof)), setting
    return peer.make(best[1], 0).set_params(n_jobs=threads).fit(X, y)


def main():
    """Fit each, print a line each."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[1000, 5000, 20_000, 60_000, 100_000, 200_000])
    parser.add_argument("--set", help="a table of the benchmark instead of simulated rows")
    parser.add_argument("--models", nargs="*", default=["committee", "search", "lightgbm"])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    how = {"pos_label": 1, "device": "cpu", "random_state": 0}
    for n in options.rows:
        X, y, new, labels = drawn(options.set, n) if options.set else simulated(n)
        makers = {
            "committee": lambda X, y: CommitteeClassifier(None, n_jobs=options.threads, **how).fit(X, y),
            "search": lambda X, y: CRCENClassifierCV(None, **how).fit(X, y),
            "lightgbm": lambda X, y: lightgbm(X, y, options.threads),
        }
        for name in options.models:
            wall, processor = time.perf_counter(), time.process_time()
            model = makers[name](X, y)
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            p = np.clip(model.predict_proba(new)[:, 1], 1e-6, 1 - 1e-6)
            loss = -np.mean(np.where(labels == 1, np.log(p), np.log1p(-p)))
            cost = np.mean(list(costs(y, labels, p).values()))
            print(
                f"{n:>7,} rows  {name:<9} log loss {loss:.4f}  cost {cost:.4f}  {processor:6.1f} s  {wall:6.1f} s wall"
            )
            for one in getattr(model, "leaderboard_", []):
                print(f"          {one}  {'; '.join(one.settings)}", flush=True)


if __name__ == "__main__":
    main()
