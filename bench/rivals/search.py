"""Try a peer's settings by cross-validation and refit the best: one rule for all.

The rule is the natural log loss of out-of-fold probabilities at the best intercept: their log-odds are shifted by the
one number that makes their mean the share of positives. A peer with right probabilities is judged as it is, and one
that was weighted or rebalanced is not judged by the shift that its weighting made on purpose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.class_weight import compute_sample_weight

import crcen
from bench.rivals.budget import Deadline, TimeUp
from bench.rivals.peer import Peer
from bench.rivals.searched import Searched, SearchRows
from crcen.exceptions import TrainingFailed
from crcen.theory.decision import sigmoid
from crcen.training.engine import train as train_jobs
from crcen.training.jobs import TrainingJob
from crcen.training.network import Network

__all__ = [
    "CLIP",
    "by_itself",
    "cross_validated",
    "fit_peer",
    "log_odds",
    "resampled_stack",
    "selection_loss",
]

Array = NDArray[np.float64]

# Probabilities of exactly 0 or 1, as forests give them, would make one row's loss infinite.
CLIP = 1e-6
# What is left of the time after this share is the refit's.
_SEARCH_SHARE = 0.8


def log_odds(p: Array, clip: float = CLIP) -> Array:
    """Log-odds of probabilities that are kept off 0 and 1."""
    inside = np.clip(p, clip, 1.0 - clip)
    return np.log(inside) - np.log1p(-inside)


def selection_loss(y: NDArray[np.int64], p: Array) -> float:
    """Mean log loss at the best intercept, lower is better; infinite where a probability is none."""
    if not np.isfinite(p).all():
        return float("inf")
    scores = log_odds(p)
    scores = scores + crcen.balance_shift(y, scores, None)
    return float(np.mean(np.logaddexp(0.0, scores) - y * scores))


def cross_validated(peer: Peer, rows: SearchRows, count: int, deadline: Deadline) -> Searched:
    """Every setting on every fold, one fit at a time, until the time is over; then the best is refitted."""
    best: tuple[float, Array, Mapping[str, Any]] | None = None
    tried = 0
    failure: Exception | None = None
    try:
        with deadline.within(_SEARCH_SHARE):
            for setting in peer.settings(count):
                deadline.check(_SEARCH_SHARE)
                try:
                    oof = _out_of_fold(peer, rows, setting)
                    loss = selection_loss(rows.y, oof)
                    if best is None or loss < best[0]:
                        best = loss, oof, setting
                except Exception as error:  # RUSBoost refuses a base classifier that is worse than chance
                    failure = error
                tried += 1
    except TimeUp:
        pass  # the best of those that were tried
    if best is None:
        raise failure if failure is not None else TimeUp
    _, oof, chosen = best
    with deadline.within():
        model = fit_peer(peer, chosen, rows.X, rows.y, rows.seed)
    return Searched(model, oof, chosen, tried)


def _out_of_fold(peer: Peer, rows: SearchRows, setting: Mapping[str, Any]) -> Array:
    oof = np.full(len(rows.y), np.nan)
    for train, held_out in rows.folds:
        model = fit_peer(peer, setting, rows.X[train], rows.y[train], rows.seed)
        oof[held_out] = model.predict_proba(rows.X[held_out])[:, 1]
    return oof


def fit_peer(peer: Peer, setting: Mapping[str, Any], X: Array, y: NDArray[np.int64], seed: int) -> Any:
    """A peer of a setting fitted to rows, all classes weighing the same where it is a weighted one."""
    model = peer.make(setting, seed)
    if not peer.is_weighted:
        return model.fit(X, y)
    name = "model__sample_weight" if isinstance(model, Pipeline) else "sample_weight"
    return model.fit(X, y, **{name: compute_sample_weight("balanced", y)})


def by_itself(peer: Peer, rows: SearchRows, count: int, deadline: Deadline) -> Searched:
    """Our searches and committees, which search, refit and keep their out-of-fold logits themselves, on these folds."""
    with deadline.within():
        model = peer.make({}, rows.seed).set_params(cv=list(rows.folds)).fit(rows.X, rows.y)
    natural = model.oof_decision_function_ - model.weighting_.logit_shift
    if isinstance(model, crcen.CommitteeClassifier):
        found = {one.name: "; ".join([f"weight {one.weight:.3g}", *one.settings]) for one in model.leaderboard_[:-1]}
        return Searched(model, sigmoid(natural), found, model.leaderboard_[-1].n_tried)
    return Searched(model, sigmoid(natural), model.best_params_, len(model.cv_results_["params"]))


@dataclass(frozen=True, eq=False)
class _PlainNetwork:
    """A fitted network behind ``predict_proba`` and ``predict``."""

    network: Network

    def predict_proba(self, X: Array) -> Array:
        p = sigmoid(self.network.logits(X))
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Array) -> NDArray[np.int64]:
        return (self.network.logits(X) > 0).astype(np.int64)


def resampled_stack(peer: Peer, rows: SearchRows, count: int, deadline: Deadline) -> Searched:
    """Rebalance each fold's training rows once, train all settings on them as one stack of plain networks."""
    settings = peer.settings(count)
    oof = np.full((len(settings), len(rows.y)), np.nan)
    with deadline.within():
        for train, held_out in rows.folds:
            networks = _networks(peer, rows.X[train], rows.y[train], settings, rows.seed)
            for i, network in enumerate(networks):
                if network is not None:
                    oof[i, held_out] = network.logits(rows.X[held_out])
        p = sigmoid(oof)
        best = int(np.argmin([selection_loss(rows.y, one) for one in p]))
        network = _networks(peer, rows.X, rows.y, [settings[best]], rows.seed)[0]
    if network is None or not np.isfinite(p[best]).all():
        raise TrainingFailed(f"no setting of {peer.label} has a finite network on every fold.")
    return Searched(_PlainNetwork(network), p[best], settings[best], len(settings))


def _networks(
    peer: Peer, X: Array, y: NDArray[np.int64], settings: Sequence[Mapping[str, Any]], seed: int
) -> list[Network | None]:
    rows, labels = peer.make({}, seed).resample(X, y)
    jobs = [TrainingJob((0.5, 0.5), hidden=s["hidden"], l2=s["l2"], seed=seed, shuffle_seed=seed) for s in settings]
    return [result.network for result in train_jobs(rows, labels, jobs, device="cpu")]
