"""Rows of three classes, drawn from normal distributions, and their labels."""

import numpy as np

LABELS = np.array(["low", "middle", "high"])
WEIGHTS = np.array([1.0, 4.0, 15.0])
SHARES = np.array([0.75, 0.17, 0.08])


def rows(n, seed):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(3), rng.choice(3, n - 3, p=SHARES)])
    centres = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])
    return centres[y] + rng.normal(size=(n, 2)), y


X, Y = rows(3000, 1)
NEW, TRUTH = rows(20000, 2)
P = np.random.default_rng(0).dirichlet([1.0, 1.0, 1.0], 400)
