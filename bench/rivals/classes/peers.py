"""Who is compared on tables of several classes, and how each is searched: one rule for all.

Peers whose classes were made to weigh the same, by class weights or by drawing rows, decide by the largest of their
probabilities, as people use them. All others decide by the costs, from their probabilities: the same rule for each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

import crcen
from bench.rivals.budget import Deadline, TimeUp
from bench.rivals.peer import Peer
from bench.rivals.peers import PEERS
from bench.rivals.search import fit_peer
from bench.rivals.spaces import Range
from crcen.theory.metrics import log_losses

__all__ = ["CLASS_PEERS", "Found", "choose_class_peers", "search_classes"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_SEARCH_SHARE = 0.8


def _networks(setting: Mapping[str, Any], seed: int) -> Any:
    return crcen.CRCENClassifierCV(None, **setting, device="cpu", random_state=seed)


def _committee(setting: Mapping[str, Any], seed: int) -> Any:
    return crcen.CommitteeClassifier(None, **setting, n_jobs=1, device="cpu", random_state=seed)


def _defaults(setting: Mapping[str, Any], seed: int) -> Any:
    return crcen.CRCENClassifier(None, **setting, device="cpu", random_state=seed)


@dataclass(frozen=True)
class ClassPeer:
    """A peer of the benchmark on several classes: ours search by themselves.

    ``is_balanced`` is whether its probabilities are those of classes that weigh the same.
    """

    peer: Peer
    is_ours: bool = False
    is_balanced: bool = False

    @property
    def name(self) -> str:
        """Its key."""
        return self.peer.name

    @property
    def label(self) -> str:
        """What tables print."""
        return self.peer.label


def _ours() -> list[ClassPeer]:
    found = []
    for name, label, make in (
        ("committee", "committee", _committee),
        ("crcen_cv", "CRCEN, searched", _networks),
        ("crcen", "CRCEN, defaults", _defaults),
    ):
        found.append(ClassPeer(Peer(name, label, "neural", "crcen", make, None), True))  # type: ignore[arg-type]
    return found


_OTHERS = ("lightgbm", "xgboost", "catboost", "hist_gb", "balanced_rf", "sklearn_mlp")
_WITH_WEIGHTS = tuple(f"{name}_weighted" for name in _OTHERS if f"{name}_weighted" in PEERS)
# Some tables have so few rows that epochs of few steps each would leave scikit-learn's network untrained.
_MLP_EPOCHS = Range(20, 400, log=True, integer=True)


def _other(name: str) -> ClassPeer:
    peer = PEERS[name]
    if name.startswith("sklearn_mlp"):
        peer = replace(peer, default={**peer.default, "max_iter": 200}, space={**peer.space, "max_iter": _MLP_EPOCHS})
    return ClassPeer(peer, is_balanced=peer.is_weighted or name == "balanced_rf")


CLASS_PEERS: dict[str, ClassPeer] = {one.name: one for one in [*_ours(), *map(_other, (*_OTHERS, *_WITH_WEIGHTS))]}


def choose_class_peers(which: str | Sequence[str] = "core") -> list[ClassPeer]:
    """The peers of ``core`` or ``all``, which are the same here, or of names with commas between them."""
    names = which.split(",") if isinstance(which, str) else list(which)
    if names in (["core"], ["all"]):
        return list(CLASS_PEERS.values())
    unknown = [name for name in names if name not in CLASS_PEERS]
    if unknown or not names:
        raise crcen.InvalidParameter(
            f"there is no peer {', '.join(unknown)} of several classes: choose all or {', '.join(CLASS_PEERS)}."
        )
    return [peer for peer in CLASS_PEERS.values() if peer.name in names]


@dataclass(frozen=True, eq=False)
class Found:
    """The best setting refitted on all rows, and how many were tried."""

    model: Any
    setting: Mapping[str, Any]
    n_settings: int


def search_classes(one: ClassPeer, X: Array, y: Index, folds: int, count: int, seed: int, deadline: Deadline) -> Found:
    """Try settings by the log loss of held-out rows until the time is over, and refit the best.

    Rows of a class with fewer rows than folds are always trained on: packages refuse folds without a class.

    Parameters
    ----------
    one : ClassPeer
        Whom to search.
    X, y : arrays of shape (n, columns) and (n,)
        Training rows and their class numbers.
    folds, count, seed : int
        Folds, settings to try, and the seed.
    deadline : Deadline
        When to stop.
    """
    peer = one.peer
    if one.is_ours:
        with deadline.within():
            model = peer.make({}, seed)
            if "cv" in model.get_params() and not isinstance(model, crcen.CRCENClassifier):
                model.set_params(cv=folds)
            return Found(model.fit(X, y), getattr(model, "best_params_", {}), _n_tried(model))
    pairs = _folds(y, folds, seed)
    best: tuple[float, Mapping[str, Any]] | None = None
    tried, failure = 0, None
    try:
        with deadline.within(_SEARCH_SHARE):
            for setting in peer.settings(count):
                deadline.check(_SEARCH_SHARE)
                try:
                    loss = _held_out_loss(one, setting, X, y, pairs, seed)
                    best = (loss, setting) if best is None or loss < best[0] else best
                except Exception as error:  # what a package refuses is no setting
                    failure = error
                tried += 1
    except TimeUp:
        pass
    if best is None:
        raise failure if failure is not None else TimeUp
    with deadline.within():
        return Found(fit_peer(peer, best[1], X, y, seed), best[1], tried)


def _n_tried(model: Any) -> int:
    """How many settings one of ours tried by itself."""
    if hasattr(model, "leaderboard_"):
        return int(model.leaderboard_[-1].n_tried)
    return len(model.cv_results_["params"]) if hasattr(model, "cv_results_") else 1


def _folds(y: Index, folds: int, seed: int) -> list[tuple[Index, Index]]:
    scarce = np.bincount(y)[y] < folds
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    own = np.flatnonzero(~scarce)
    return [
        (np.sort(np.concatenate([own[train], np.flatnonzero(scarce)])), own[test])
        for train, test in splitter.split(own, y[own])
    ]


def _held_out_loss(
    one: ClassPeer, setting: Mapping[str, Any], X: Array, y: Index, folds: Sequence[tuple[Index, Index]], seed: int
) -> float:
    losses = []
    for train, test in folds:
        model = fit_peer(one.peer, setting, X[train], y[train], seed)
        p = np.asarray(model.predict_proba(X[test]), dtype=np.float64)
        if one.is_balanced:  # judged by natural probabilities: all classes weigh the same on purpose
            p = p * np.bincount(y[train])
            p = p / p.sum(axis=1, keepdims=True)
        losses.append(log_losses(y[test], np.clip(p, 1e-6, 1.0)))
    return float(np.concatenate(losses).mean())
