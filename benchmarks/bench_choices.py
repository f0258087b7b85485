"""Which defaults serve new rows: the balance solve on training or out-of-fold rows, and halving of the search.

    python benchmarks/bench_choices.py [--data-home DIR] [--splits 2] [--sets abalone us_crime]

Every benchmark set at hand, stratified 75/25 splits, `CRCENClassifierCV` with a small grid. For each way to balance:
|log(left side / right side)| of the key equation, G-mean, weighted and natural log loss on the test rows. For halving:
how often the winner is the same, the difference in weighted log loss on the test rows, and the time.
"""

import argparse
import os
import time

import numpy as np
from sklearn.model_selection import train_test_split

import crcen
from crcen.theory.decision import sigmoid

GRID = {
    "hidden": [(8,), (16,), (32,), (64,)], "l2": [1e-4, 1e-3, 1e-2, 1e-1], "encoding": "standard", "n_members": 1,
    "random_state": 0, "device": "cpu",
}  # fmt: skip
WHOLE = {"search": crcen.Search(halving=False)}
VARIANTS = {
    "training rows": {"balance": True, **WHOLE}, "out-of-fold rows": {"balance": "oof", **WHOLE},
    "no solve": {"balance": False, **WHOLE},
}  # fmt: skip


def scores(model: crcen.CRCENClassifierCV, X: np.ndarray, y: np.ndarray) -> list[float]:
    """Key-equation miss, G-mean, weighted and natural log loss on test rows."""
    logits = model.decision_function(X)
    signed = np.where(y == 1, -logits, logits)
    weights = model.weighting_.row_weights(y)
    natural = np.where(y == 1, -1, 1) * (logits - model.weighting_.logit_shift)
    equation = crcen.key_equation(y, sigmoid(logits), model.weighting_)
    return [
        abs(np.log(equation.lhs / equation.rhs)),
        float(crcen.g_mean(y, logits > 0)),
        float((weights * np.logaddexp(0, signed)).sum() / weights.sum()),
        float(np.logaddexp(0, natural).mean()),
    ]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("CRCEN_DATA_HOME") or None)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--sets", nargs="+", default=None)
    args = parser.parse_args()
    names = args.sets or [row.name for row in crcen.list_datasets(args.data_home) if row.available != "download"]
    found: dict[str, list[list[float]]] = {name: [] for name in VARIANTS}
    halving: list[tuple[float, ...]] = []
    for name in names:
        data = crcen.load_dataset(name, args.data_home)
        for split in range(args.splits):
            X, X_test, y, y_test = train_test_split(data.X, data.y, stratify=data.y, random_state=split)
            models, seconds = {}, {}
            for variant, params in {**VARIANTS, "halving": {"balance": True}}.items():
                start = time.perf_counter()
                models[variant] = crcen.CRCENClassifierCV(**GRID, **params).fit(X, y)
                seconds[variant] = time.perf_counter() - start
            results = {variant: scores(model, X_test, y_test) for variant, model in models.items()}
            for variant in VARIANTS:
                found[variant].append(results[variant])
            same = models["halving"].best_params_ == models["training rows"].best_params_
            gap = results["halving"][2] - results["training rows"][2]
            halving.append((same, gap, seconds["halving"] / seconds["training rows"]))
        print(f"# {name} done", flush=True)
    print(f"{len(names)} sets, {args.splits} splits; medians over set-splits of the miss, means of the rest")
    print("| balance solved on | key equation miss | G-mean | weighted log loss | natural log loss |")
    print("|---|---|---|---|---|")
    for variant, rows in found.items():
        table = np.array(rows)
        means = table.mean(axis=0)
        print(f"| {variant} | {np.median(table[:, 0]):.3f} | {means[1]:.4f} | {means[2]:.4f} | {means[3]:.4f} |")
    train, oof = (np.array(found[v]) for v in ("training rows", "out-of-fold rows"))
    for column, label in enumerate(("key equation miss", "G-mean", "weighted log loss", "natural log loss")):
        gap = oof[:, column] - train[:, column]
        better = (gap > 0 if label == "G-mean" else gap < 0).mean()
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        print(f"out-of-fold minus training, {label}: {gap.mean():+.4f} ± {error:.4f}, better in {100 * better:.0f} %")
    same, gap, ratio = np.array(halving).T
    error = gap.std(ddof=1) / np.sqrt(len(gap))
    print(
        f"halving: same winner in {100 * same.mean():.0f} %, weighted log loss on test rows {gap.mean():+.5f} "
        f"± {error:.5f}, {np.median(ratio):.2f} of the time"
    )


if __name__ == "__main__":
    main()
