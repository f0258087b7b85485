"""Deleted cells in benchmark sets: `missing="indicator"`, imputers before the same network, and trees.

    CRCEN_DATA_HOME=... python -m bench.choices.missing_values

Either no cell or a fifth of the cells are deleted: each cell with the same probability, or only cells in the upper half
of each column's values, so that a missing cell carries information about the value. The table shows the mean log loss
on a held-out quarter of the rows over splits and, in brackets, the mean difference to `missing="indicator"` on the same
splits with its standard error. The trees are those of scikit-learn, which send missing cells to the better side. Their
size and learning rate are selected by the log loss in three folds, like the penalty of the networks.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

import crcen

SETS = ("abalone", "satimage", "mammography")
SHARE, SPLITS = 0.2, 4
NETWORK = {"weighting": None, "hidden": (64,), "l2": [1e-3, 1e-2, 1e-1], "cv": 3, "n_members": 2}
TREES = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 31]}

CANDIDATES = {
    'missing="indicator"': crcen.CRCENClassifierCV(
        **NETWORK, encoding=crcen.Inputs(encoding="steps", missing="indicator"), random_state=0
    ),
    "means and indicators first": make_pipeline(
        SimpleImputer(add_indicator=True), crcen.CRCENClassifierCV(**NETWORK, encoding="steps", random_state=0)
    ),
    "means first": make_pipeline(SimpleImputer(), crcen.CRCENClassifierCV(**NETWORK, encoding="steps", random_state=0)),
    "boosted trees": GridSearchCV(
        HistGradientBoostingClassifier(early_stopping=False, random_state=0), TREES, scoring="neg_log_loss", cv=3
    ),
}


def with_gaps(X: NDArray[np.float64], how: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """A copy of the rows with a fifth of the cells missing, or none."""
    chance = np.full(X.shape, 0.0 if how == "nowhere" else SHARE)
    if how == "upper half":
        ranks = (X + 1e-9 * X.std(axis=0) * rng.normal(size=X.shape)).argsort(axis=0).argsort(axis=0)
        chance = np.where(ranks >= len(X) / 2, 2 * SHARE, 0.0)
    return np.where(rng.random(X.shape) < chance, np.nan, X)


def main() -> None:
    """Run and print."""
    print(f"{SHARE:.0%} of the cells deleted, or none: natural log loss on held-out rows, {SPLITS} splits")
    print("| set | deleted from | " + " | ".join(CANDIDATES) + " |\n" + "|---" * (len(CANDIDATES) + 2) + "|")
    for name in SETS:
        data = crcen.load_dataset(name)
        for how in ("nowhere", "anywhere", "upper half"):
            X = with_gaps(data.X, how, np.random.default_rng(0))
            losses = np.empty((SPLITS, len(CANDIDATES)))
            for split in range(SPLITS):
                rows, held_out = train_test_split(np.arange(len(X)), stratify=data.y, random_state=split)
                for i, candidate in enumerate(CANDIDATES.values()):
                    model = clone(candidate).fit(X[rows], data.y[rows])
                    losses[split, i] = log_loss(data.y[held_out], model.predict_proba(X[held_out]))
            apart = losses - losses[:, :1]
            means, errors = apart.mean(axis=0), apart.std(axis=0, ddof=1) / np.sqrt(SPLITS)
            cells = [f"{loss:.4f}" for loss in losses.mean(axis=0)]
            cells[1:] = [f"{c} ({m:+.4f} ± {e:.4f})" for c, m, e in zip(cells, means, errors, strict=True)][1:]
            print(f"| {name} | {how} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
