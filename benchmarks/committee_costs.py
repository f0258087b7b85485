"""Cost of decisions at stated prices, and whether new rows keep the price: committee, networks and LightGBM.

Each model is fitted once a split without looking at the price; decisions are p > 1/(1 + c) after the output bias was
solved for at that price out of fold. LightGBM gets 16 settings by four-fold log loss, a slope and the same solve. The
last lines are today's defaults, trained at the price. Cost is c · misses + false alarms, over that of the cheaper
trivial habit (alarm always, or never). Drift is what new rows ask to add to the logit at the price: 0 is a price kept.

    python benchmarks/committee_costs.py --half confirmation --splits 2 --processes 16
"""

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

import crcen
from crcen.models.probability import apply_map, fit_map
from crcen.paper.rivals.peers import PEERS
from crcen.paper.rivals.plan import all_sets
from crcen.paper.rivals.search import log_odds, selection_loss

PRICES = (2.0, 5.0, 20.0, "IR")
COLUMNS = ("log loss", "AP", "ROC AUC", *(f"cost {c}" for c in PRICES), *(f"drift {c}" for c in PRICES[1:]), "seconds")


def shift_at(target, logits, price):
    """What makes the key equation hold at a price for natural logits."""
    return crcen.balance_shift(target, logits + np.log(price), crcen.CostRatio(price))


def judged(natural, target, y_new, decided):
    """Every column of a model: natural logits of new rows, and weighted logits of them at each price."""
    ratio = (target == 0).sum() / (target == 1).sum()
    row = {
        "log loss": float(np.mean(np.logaddexp(0, natural) - y_new * natural)),
        "AP": average_precision_score(y_new, natural),
        "ROC AUC": roc_auc_score(y_new, natural),
    }
    for name in PRICES:
        price = ratio if name == "IR" else name
        weighted = decided(price)
        alarms = weighted > 0
        cost = price * np.sum((y_new == 1) & ~alarms) + np.sum((y_new == 0) & alarms)
        row[f"cost {name}"] = cost / min(price * (y_new == 1).sum(), (y_new == 0).sum())
        row[f"drift {name}"] = crcen.balance_shift(y_new, weighted, crcen.CostRatio(price))
    return row


def from_logits(oof, new, target, y_new, slope):
    """A model by its natural out-of-fold and new logits; ``slope`` fits a slope out of fold first."""
    state = fit_map("temperature", target == 1, oof, np.ones(len(oof))) if slope else np.array([1.0, 0.0])
    held_out, fresh = apply_map(state, oof), apply_map(state, new)
    natural = fresh + shift_at(target, held_out, 1.0)
    return judged(natural, target, y_new, lambda c: fresh + shift_at(target, held_out, c) + np.log(c))


def committee(X, y, new, y_new, folds, seed):
    """Networks and trees together."""
    model = crcen.CommitteeClassifier(None, cv=folds, n_jobs=1, pos_label=1, device="cpu", random_state=seed).fit(X, y)
    return from_logits(model.oof_decision_function_, model.decision_function(new), y, y_new, slope=False)


def networks(X, y, new, y_new, folds, seed):
    """The search, unweighted."""
    model = crcen.CRCENClassifierCV(None, cv=folds, pos_label=1, device="cpu", random_state=seed).fit(X, y)
    return from_logits(model.oof_decision_function_, model.decision_function(new), y, y_new, slope=True)


def lightgbm(X, y, new, y_new, folds, seed):
    """The peer of `crcen benchmark`, with 16 settings."""
    peer, best = PEERS["lightgbm"], None
    for setting in peer.settings(16):
        oof = np.empty(len(y))
        for train, held_out in folds:
            oof[held_out] = peer.make(setting, seed).fit(X[train], y[train]).predict_proba(X[held_out])[:, 1]
        loss = selection_loss(y, oof)
        if best is None or loss < best[0]:
            best = loss, oof, setting
    p = peer.make(best[2], seed).fit(X, y).predict_proba(new)[:, 1]
    return from_logits(log_odds(best[1]), log_odds(p), y, y_new, slope=True)


def at_prices(make):
    """A model that is trained anew for every price."""

    def run(X, y, new, y_new, folds, seed):
        natural = make(None, folds, seed).fit(X, y).decision_function(new)
        return judged(
            natural, y, y_new, lambda c: make(crcen.CostRatio(c), folds, seed).fit(X, y).decision_function(new)
        )

    return run


def single(weighting, folds, seed):
    """Trained at the price and solved on the training rows, as the paper does."""
    how = {"training_weighting": "price", "balance": True, "probability": "shift", "l2": 1e-2}
    return crcen.CRCENClassifier(weighting, pos_label=1, device="cpu", random_state=seed, **how)


def single_kept(weighting, folds, seed):
    """The same, but trained unweighted and solved out of fold at the price."""
    how = {"training_weighting": None, "balance": "oof", "probability": "temperature"}
    return crcen.CRCENClassifier(weighting, pos_label=1, device="cpu", random_state=seed, **how)


def searched(weighting, folds, seed):
    """Searched and trained at the price."""
    how = {"training_weighting": "price", "balance": "oof", "probability": "shift"}
    return crcen.CRCENClassifierCV(weighting, cv=folds, pos_label=1, device="cpu", random_state=seed, **how)


MODELS = {
    "committee": committee,
    "networks, searched, unweighted": networks,
    "LightGBM, searched": lightgbm,
    "one network, trained at λ = ½, price kept out of fold": at_prices(single_kept),
    "networks, searched, trained at the price": at_prices(searched),
    "one network, trained at the price": at_prices(single),
}


def one_thread():
    """Let processes, not threads, share the cores."""
    import torch

    torch.set_num_threads(1)
    threadpool_limits(1)


def run(task):
    """One model on one split of one set."""
    name, split, label = task
    warnings.simplefilter("ignore")
    data = crcen.load_dataset(name)
    splitter = StratifiedShuffleSplit(1, test_size=0.25, random_state=1000 + split)
    train, test = next(splitter.split(data.X, data.y))
    X, y = data.X[train], data.y[train]
    folds = list(StratifiedKFold(4, shuffle=True, random_state=split).split(X, y))
    start = time.process_time()
    try:
        row = MODELS[label](X, y, data.X[test], data.y[test], folds, split)
    except Exception as error:  # a model that fails is a row that says so
        return task, {"error": f"{type(error).__name__}: {error}"}
    return task, row | {"seconds": time.process_time() - start}


def main():
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["development", "confirmation"], default="confirmation")
    parser.add_argument("--sets", nargs="*", help="instead of the half; without isolet and webpage, which take long")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    sets = options.sets or [one for one in all_sets()[options.half] if one not in ("isolet", "webpage")]
    size = {name: crcen.load_dataset(name).X.size for name in sets}
    tasks = [(name, split, label) for name in sets for split in range(options.splits) for label in MODELS]
    tasks.sort(key=lambda task: -size[task[0]])
    rows = {}
    with ProcessPoolExecutor(options.processes, get_context("spawn"), initializer=one_thread) as pool:
        for task, row in pool.map(run, tasks, chunksize=1):
            rows[task] = row
            if "error" in row:
                print(task, row["error"])
    print(f"Means over {len(sets)} sets × {options.splits} splits ({', '.join(sets)}).")
    print("Seconds are of one processor; those trained at the price are fitted five times.\n")
    print("| model | " + " | ".join(COLUMNS) + " |\n|---|" + "---|" * len(COLUMNS))
    for label in MODELS:
        own = [row for (_, _, model), row in rows.items() if model == label and "error" not in row]
        cells = (f"{np.mean([row[column] for row in own]):.4f}" if own else "–" for column in COLUMNS[:-1])
        print(f"| {label} | " + " | ".join(cells) + f" | {np.mean([row['seconds'] for row in own]):.1f} |")


if __name__ == "__main__":
    main()
