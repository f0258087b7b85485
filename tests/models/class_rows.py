"""Gaussian classes of one covariance, for which logistic regression is right, and their true posterior."""

import numpy as np
from scipy.special import softmax

LABELS = np.array(["ash", "birch", "cedar", "oak"])
PRIORS = np.array([0.7, 0.15, 0.1, 0.05])
WEIGHTS = np.array([1.0, 5.0, 12.0, 40.0])
CENTRES = np.random.default_rng(99).normal(0.0, 1.2, (4, 3))


def draw(n, seed, each=1):
    """Rows, class numbers with at least ``each`` of every class, and probabilities."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.repeat(np.arange(4), each), rng.choice(4, n - 4 * each, p=PRIORS)])
    X = CENTRES[y] + rng.normal(size=(n, 3))
    return X, y, softmax(-0.5 * ((X[:, None] - CENTRES) ** 2).sum(2) + np.log(PRIORS), axis=1)
