"""Rows with a term that trees find and one that networks find."""

import numpy as np


def draw(n=900, seed=0, n_classes=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    logit = X[:, 0] * X[:, 1] + 1.5 * X[:, 2] - 2.5
    if n_classes == 2:
        return X, (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)
    noise = rng.gumbel(size=(n, 3))
    return X, (np.column_stack([np.zeros(n), logit + 1.5, logit * 0.5 - 1.0]) + noise).argmax(axis=1)
