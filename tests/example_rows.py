"""Rows that tests of several folders draw, of two and more classes, and the residual of the balance written out."""

import numpy as np
from scipy.special import expit, softmax

LABELS = np.array(["ash", "birch", "cedar", "oak"])
PRIORS = np.array([0.7, 0.15, 0.1, 0.05])
WEIGHTS = np.array([1.0, 5.0, 12.0, 40.0])
CENTRES = np.random.default_rng(99).normal(0.0, 1.2, (4, 3))


def rare_rows(n=150, n_features=3, seed=0, shift=1.2):
    """Overlapping classes, 1 = rare, in columns of different place and size."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, n_features))
    y = (z @ np.linspace(1.0, -0.5, n_features) + rng.normal(size=n) > shift).astype(int)
    y[:2] = 0, 1
    return z * np.linspace(0.5, 3.0, n_features) + np.linspace(-2.0, 5.0, n_features), y


def interaction_rows(n=900, seed=0, n_classes=2):
    """Five columns, with a term that trees find and one that networks find; two or three classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    logit = X[:, 0] * X[:, 1] + 1.5 * X[:, 2] - 2.5
    if n_classes == 2:
        return X, (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)
    noise = rng.gumbel(size=(n, 3))
    return X, (np.column_stack([np.zeros(n), logit + 1.5, logit * 0.5 - 1.0]) + noise).argmax(axis=1)


def gaussian_classes(n, seed, each=1):
    """Four Gaussian classes of one covariance: rows, class numbers with ``each`` of every class first, posterior."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.repeat(np.arange(4), each), rng.choice(4, n - 4 * each, p=PRIORS)])
    X = CENTRES[y] + rng.normal(size=(n, 3))
    return X, y, softmax(-0.5 * ((X[:, None] - CENTRES) ** 2).sum(2) + np.log(PRIORS), axis=1)


def row_weights(y, lam, sample_weight=None):
    s = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    return s * np.where(np.asarray(y) == 1, lam, 1.0 - lam)


def plain_residual(y, logits, weights):
    """|Σ w (y − q)| / Σ w of two classes; 1 − q as σ(−o), which keeps its digits."""
    y = np.asarray(y) == 1
    error = np.where(y, expit(-logits), -expit(logits))
    return abs(np.sum(weights * error)) / np.sum(weights)
