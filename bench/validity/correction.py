"""Accuracy of corrected probabilities after a weighting or a resampling, for classifiers of other libraries.

    python -m bench.validity.correction

Sim2 with 20 negatives per positive, 21,000 training rows and 105,000 new rows. The table shows the log loss on the new
rows divided by that of the true posterior: for the classifier without a correction, and with each method of
`crcen.PosteriorCorrection`. A star marks classifiers for which `fit` warns that a prior shift cannot be exact.
Probabilities of 0 and 1 are scored as 1e-6 and 1 − 1e-6.
"""

import warnings

import lightgbm
import numpy as np
import xgboost
from imblearn.ensemble import (
    BalancedBaggingClassifier,
    BalancedRandomForestClassifier,
    EasyEnsembleClassifier,
    RUSBoostClassifier,
)
from imblearn.over_sampling import ADASYN, SMOTE, RandomOverSampler
from imblearn.pipeline import make_pipeline
from imblearn.under_sampling import RandomUnderSampler
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import crcen
from crcen.datasets.simulated import sim2_posterior
from crcen.models.ensemble import PROBABILITIES

IR, N_POS = 20, 1000
SEED = {"random_state": 0}
FOREST = {"n_estimators": 50, **SEED}


def lgbm(**params: float) -> lightgbm.LGBMClassifier:
    """Small trees, one thread."""
    return lightgbm.LGBMClassifier(n_estimators=60, num_leaves=7, verbose=-1, n_jobs=1, **params)


CLASSIFIERS = {
    "LightGBM, unweighted": lgbm(),
    "LightGBM, scale_pos_weight=20": lgbm(scale_pos_weight=IR),
    "LightGBM after random under-sampling": make_pipeline(RandomUnderSampler(**SEED), lgbm()),
    "LightGBM after random over-sampling": make_pipeline(RandomOverSampler(**SEED), lgbm()),
    "XGBoost, scale_pos_weight=20": xgboost.XGBClassifier(
        n_estimators=60, max_depth=3, learning_rate=0.1, scale_pos_weight=IR, n_jobs=1
    ),
    "HistGradientBoosting, balanced": HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=7, class_weight="balanced", **SEED
    ),
    "LogisticRegression, balanced": LogisticRegression(class_weight="balanced"),
    "BalancedBagging of LogisticRegression": BalancedBaggingClassifier(LogisticRegression(), **SEED),
    "BalancedRandomForest": BalancedRandomForestClassifier(**FOREST),
    "BalancedRandomForest, leaves of 20 rows": BalancedRandomForestClassifier(min_samples_leaf=20, **FOREST),
    "RandomForest, balanced": RandomForestClassifier(class_weight="balanced", **FOREST),
    "LightGBM after SMOTE": make_pipeline(SMOTE(**SEED), lgbm()),
    "LightGBM after ADASYN": make_pipeline(ADASYN(**SEED), lgbm()),
    "EasyEnsemble": EasyEnsembleClassifier(5, **SEED),
    "RUSBoost": RUSBoostClassifier(n_estimators=30, **SEED),
}


def main() -> None:
    """Run and print."""
    train = crcen.make_sim2(N_POS, IR * N_POS, seed=1)
    new = crcen.make_sim2(5 * N_POS, 5 * IR * N_POS, seed=2)

    def loss(p: np.ndarray) -> float:
        return float(log_loss(new.y, np.clip(np.asarray(p, dtype=np.float64), 1e-6, 1 - 1e-6)))

    bayes = loss(sim2_posterior(new.X, IR))
    print(f"Sim2, {IR} negatives a positive: log loss over that of the true posterior ({bayes:.4f})")
    print("| classifier | odds factor | as it is | " + " | ".join(PROBABILITIES) + " |")
    print("|---" * (len(PROBABILITIES) + 3) + "|")
    for name, classifier in CLASSIFIERS.items():
        cells, star = [], ""
        for method in PROBABILITIES:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                model = crcen.PosteriorCorrection(classifier, method=method, price=None).fit(train.X, train.y)
                star = star or ("*" if any("prior shift" in str(w.message) for w in caught) else "")
                if method == "shift":
                    cells += [
                        f"{model.odds_factor_:.2f}",
                        f"{loss(model.estimator_.predict_proba(new.X)[:, 1]) / bayes:.3f}",
                    ]
                cells.append(f"{loss(model.predict_proba(new.X)[:, 1]) / bayes:.3f}")
        print(f"| {name}{star} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
