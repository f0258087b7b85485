"""Rows with a term that trees find and one that networks find."""

import numpy as np


def draw(n=900, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    logit = X[:, 0] * X[:, 1] + 1.5 * X[:, 2] - 2.5
    return X, (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)
