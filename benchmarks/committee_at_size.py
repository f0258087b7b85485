"""A committee and LightGBM's search on one large table: how long both take, and how good they are on held-out rows.

One stratified split of 75/25 and four folds, the same for both. LightGBM has the 16 settings of `crcen benchmark`. Both
may use the same number of processors; seconds of a processor are summed over them.

    python benchmarks/committee_at_size.py flights --processors 4
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

import crcen
from crcen.paper.rivals.peers import PEERS
from crcen.paper.rivals.plan import load_set
from crcen.paper.rivals.prices import costs
from crcen.paper.rivals.search import log_odds, selection_loss


def committee(X, y, new, folds, processors):
    """Networks and trees together; its leaderboard says what each took."""
    import torch

    torch.set_num_threads(processors)
    model = crcen.CommitteeClassifier(None, cv=folds, n_jobs=processors, pos_label=1, device="cpu", random_state=0)
    model.fit(X, y)
    for line in model.leaderboard_:
        print(f"    {line}", flush=True)
        for setting in line.settings:
            print(f"      {setting}", flush=True)
    return model.predict_proba(new)[:, 1]


def lightgbm(X, y, new, folds, processors):
    """The peer of `crcen benchmark`, with 16 settings."""
    peer, best = PEERS["lightgbm"], None
    for setting in peer.settings(16):
        oof = np.empty(len(y))
        for train, held_out in folds:
            model = peer.make(setting, 0).set_params(n_jobs=processors).fit(X[train], y[train])
            oof[held_out] = model.predict_proba(X[held_out])[:, 1]
        loss = selection_loss(y, oof)
        if best is None or loss < best[0]:
            best = loss, setting
    print(f"    chose {best[1]}", flush=True)
    return peer.make(best[1], 0).set_params(n_jobs=processors).fit(X, y).predict_proba(new)[:, 1]


def main():
    """Fit both, print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", help="a set of the benchmark, such as flights")
    parser.add_argument("--processors", type=int, default=2)
    parser.add_argument("--models", nargs="*", choices=["committee", "lightgbm"], default=["committee", "lightgbm"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = load_set(options.set)
    train, test = next(StratifiedShuffleSplit(1, test_size=0.25, random_state=0).split(data.X, data.y))
    X, y = data.X[train], data.y[train]
    folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(X, y))
    print(f"{options.set}: {len(X):,} training rows × {X.shape[1]} columns, {y.sum():,} events")
    for name in options.models:
        wall, processor = time.perf_counter(), time.process_time()
        p = {"committee": committee, "lightgbm": lightgbm}[name](X, y, data.X[test], folds, options.processors)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        target, logit = data.y[test], log_odds(p, 1e-15)
        loss = np.mean(np.logaddexp(0.0, np.where(target == 1, -logit, logit)))
        said = ", ".join(f"{column} {value:.4f}" for column, value in costs(y, target, p).items())
        print(
            f"{name}: {wall:.0f} s on {options.processors} processors, {processor:.0f} s of one; log loss {loss:.5f}, "
            f"average precision {average_precision_score(target, p):.4f}, ROC AUC {roc_auc_score(target, p):.4f}, "
            f"{said}",
            flush=True,
        )


if __name__ == "__main__":
    main()
