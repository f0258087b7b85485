"""Five rounds of prediction, checking and refitting on real tables: effects of selective labels and of audits.

Each table is shuffled and divided: 15 % labelled rows to start with, five batches of 12 %, and 25 % test rows. In each
round the model scores a batch, rows are checked, and the model is refitted. Strategies: labels for alarms only; rows
without an alarm count as negative; 2 % of the rows without an alarm are audited and weighted by 1/e; all labels.

Means over tables and repetitions, on test rows with all labels: cost at the price (relative to never raising an alarm),
true recall, drift (what test rows add to the log-odds). Recall is also estimated from the labels of the round; audits
give a lower bound on it.

    python -m bench.choices.selective_labels --jobs 2 --out results/choices/selective_labels.txt
"""

import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.special import logit

from bench.harness import Printer, options
from bench.rivals.datasets import load_set
from crcen import CommitteeClassifier, CostRatio, balance_shift
from crcen.theory.selective import (
    audit_draws,
    audit_probabilities,
    audit_scores,
    clipped_weights,
    recall_bounds,
)

STRATEGIES = {"a": "alarms only", "b": "unlabelled = negative", "c": "2 % audits", "d": "all labels"}
SETS = ["abalone", "coil_2000", "letter_img", "mammography", "optical_digits", "ozone_level", "pen_digits", "satimage",
        "sick_euthyroid", "thyroid_sick", "wine_quality", "yeast_ml8"]  # fmt: skip
PRICE, ROUNDS, SHARE = 5.0, 5, 0.02


def fitted(X, y, weights, seed):
    """Boosted trees at the price."""
    model = CommitteeClassifier(CostRatio(PRICE), members=["trees"], pos_label=1, n_jobs=1, random_state=seed)
    return model.fit(X, y, sample_weight=weights)


def measured(model, X, y):
    """Relative cost, recall and drift on rows with all labels."""
    p = model.predict_proba(X)[:, 1]
    alarms = p > 1.0 / (1.0 + PRICE)
    cost = (PRICE * (y[~alarms] == 1).sum() + (y[alarms] == 0).sum()) / (PRICE * (y == 1).sum())
    drift = balance_shift(y, logit(p) + np.log(PRICE), CostRatio(PRICE))
    return {"cost": cost, "recall": alarms[y == 1].mean(), "drift": drift}


def checked(strategy, model, X, y, seed):
    """Rows to learn from, their labels and weights, the estimated recall, and its lower bound."""
    p = model.predict_proba(X)
    alarms = p[:, 1] > 1.0 / (1.0 + PRICE)
    n = len(y)
    if strategy == "d":
        return np.arange(n), y, np.ones(n), alarms[y == 1].mean(), np.nan
    if strategy == "b":
        return np.arange(n), np.where(alarms, y, 0), np.ones(n), 1.0, np.nan
    if strategy == "a":
        return np.flatnonzero(alarms), y[alarms], np.ones(alarms.sum()), 1.0, np.nan
    e = audit_probabilities(audit_scores(p, np.array([1.0, PRICE])), ~alarms, SHARE * (~alarms).sum())
    rows = np.flatnonzero(alarms | audit_draws(np.arange(n, dtype=np.uint64), e, seed))
    known = np.full(n, -1)
    known[rows] = y[rows]
    hits, total = (1 / e[rows])[(y[rows] == 1) & alarms[rows]].sum(), (1 / e[rows])[y[rows] == 1].sum()
    bound = recall_bounds(known, alarms.astype(np.int64), e, 0, 2)[0][1]
    return rows, y[rows], 1 / e[rows], hits / total if total else np.nan, bound


def one_table(task):
    """All strategies on one table and repetition."""
    name, repetition, data_home = task
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    data, rng = load_set(name, data_home), np.random.default_rng(repetition)
    order = rng.permutation(len(data.y))
    X, y = data.X[order], data.y[order]
    cuts = (np.array([0.15, *(0.15 + 0.12 * i for i in range(1, ROUNDS + 1))]) * len(y)).astype(int)
    test = slice(cuts[-1], None)
    start = fitted(X[: cuts[0]], y[: cuts[0]], None, repetition)
    found = []
    for strategy in STRATEGIES:
        model, rows = start, [(X[: cuts[0]], y[: cuts[0]], np.ones(cuts[0]))]
        for number in range(ROUNDS):
            batch = slice(cuts[number], cuts[number + 1])
            chosen, labels, weights, estimate, bound = checked(strategy, model, X[batch], y[batch], number)
            alarms = model.predict_proba(X[batch])[:, 1] > 1.0 / (1.0 + PRICE)
            truth = alarms[y[batch] == 1].mean() if (y[batch] == 1).any() else np.nan
            found.append(
                measured(model, X[test], y[test])
                | {"set": name, "strategy": strategy, "round": number, "estimate": estimate, "bound": bound}
                | {"here": truth, "n_labels": len(chosen)}
            )
            rows.append((X[batch][chosen], labels, weights))
            own_X, own_y, own_w = (np.concatenate(part) for part in zip(*rows, strict=True))
            model = fitted(own_X, own_y, clipped_weights(own_w)[0], repetition)
        found.append(measured(model, X[test], y[test]) | {"set": name, "strategy": strategy, "round": ROUNDS})
    return found


def drawn(rows, path):
    """Cost, recall and drift by round, as a figure."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for axis, (name, title) in zip(
        axes, {"cost": "relative cost", "recall": "true recall", "drift": "drift in log-odds"}.items(), strict=True
    ):
        for strategy, label in STRATEGIES.items():
            means = [
                np.nanmean([row[name] for row in rows if row["strategy"] == strategy and row["round"] == number])
                for number in range(ROUNDS + 1)
            ]
            axis.plot(range(ROUNDS + 1), means, marker="o", label=label)
        axis.set(title=title, xlabel="round")
    axes[0].legend()
    figure.savefig(path, dpi=110)


def main():
    """Run, print, draw."""
    parser = options(__doc__, data_home=True, jobs=2, repetitions=2, sets=SETS)
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args()
    show = Printer(chosen.out)
    tasks = [(name, i, chosen.data_home) for i in range(chosen.repetitions) for name in chosen.sets]
    with ProcessPoolExecutor(chosen.jobs) as pool:
        rows = [row for part in pool.map(one_table, tasks) for row in part]
    show(f"{len(chosen.sets)} tables, {chosen.repetitions} repetitions, price {PRICE:g}, {SHARE:.0%} audits")
    show("strategy               round    cost  recall   drift estimated  bound  labels")
    for strategy, label in STRATEGIES.items():
        for number in range(ROUNDS + 1):
            own = [row for row in rows if (row["strategy"], row["round"]) == (strategy, number)]
            mean = {k: np.nanmean([row.get(k, np.nan) for row in own] or [np.nan]) for k in ("cost", "recall")}
            finite = [row["drift"] for row in own if np.isfinite(row["drift"])]
            more = [
                np.nanmean(values) if (values := [row[k] for row in own if np.isfinite(row.get(k, np.nan))]) else np.nan
                for k in ("estimate", "bound", "n_labels")
            ]
            show(
                f"{label:<22} {number:>5} {mean['cost']:7.3f} {mean['recall']:7.3f} {np.mean(finite):+7.2f} "
                f"{more[0]:9.3f} {more[1]:6.3f} {more[2]:7.0f}"
            )
    kept = [
        row["bound"] <= row["here"]
        for row in rows
        if np.isfinite(row.get("bound", np.nan)) and row["here"] == row["here"]
    ]
    show(f"lower bound on recall (95 %) holds in {np.mean(kept):.3f} of {len(kept)} rounds")
    if chosen.figure:
        drawn(rows, chosen.figure)


if __name__ == "__main__":
    main()
