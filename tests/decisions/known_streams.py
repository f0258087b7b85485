"""Streams of rows with a known posterior, of two and of four classes, and monitors of them."""

import numpy as np
from scipy.special import softmax

from crcen import KeyEquationMonitor

LOG_SHARES = {2: np.array([0.0, -2.5]), 3: np.array([0.0, -2.5, -2.5]), 4: np.log([0.6, 0.2, 0.15, 0.05])}
EQUAL = {k: np.ones(k) for k in LOG_SHARES}
WEIGHTS = {2: np.array([1.0, 9.0]), 4: np.array([1.0, 3.0, 8.0, 20.0])}


def stream(n, seed, drift=0.0, n_classes=2):
    """Natural posterior (n, K), and labels at its log-odds plus a drift of the last class, or of each class."""
    rng = np.random.default_rng(seed)
    logits = LOG_SHARES[n_classes] + rng.normal(0, 1, (n, n_classes)) * (np.arange(n_classes) > 0)
    moved = softmax(logits + (drift if np.ndim(drift) else drift * np.eye(n_classes)[-1]), axis=1)
    return softmax(logits, axis=1), (moved.cumsum(axis=1)[:, :-1] < rng.random((n, 1))).sum(axis=1)


def weighted(p, w):
    return p * w / (p * w).sum(axis=1, keepdims=True)


def monitor_of(n=4000, seed=0, w=EQUAL[2], **params):
    """A monitor whose reference rows are a stream without drift."""
    p, y = stream(n, seed, n_classes=len(w))
    return KeyEquationMonitor(weighting=w, y_reference=y, q_reference=weighted(p, w), **params)


def feed(monitor, p, y, batches, w=None, **columns):
    """Update in batches; all alarms."""
    q, found = p if w is None else weighted(p, w), []
    for rows in np.array_split(np.arange(len(y)), batches):
        parts = {name: np.asarray(values)[rows] for name, values in columns.items()}
        found += monitor.update(q=q[rows], y=y[rows], **parts)
    return found
