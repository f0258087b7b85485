"""Search a peer's settings by cross-validation within a time limit and refit the best: one rule for all.

The rule is the log loss of out-of-fold probabilities at the best intercepts: their logarithms are shifted by one number
per class so that their means equal the class shares. Right probabilities are not changed by this. The intended shift of
weighted or rebalanced peers is not counted against them.
"""

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils.class_weight import compute_sample_weight

from bench.rivals.peers import Peer

__all__ = ["Deadline", "SearchRows", "Searched", "TimeUp", "search", "search_rows", "selection_loss"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Probabilities of exactly 0, as forests give them, would make one row's loss infinite.
CLIP = 1e-6
# What is left of the time after this share is the refit's.
_SEARCH_SHARE = 0.8
_SIGNAL_AGAIN = 0.5
# Functions of XGBoost that its C++ code calls back: an exception in them is swallowed and leaves its memory broken.
_CALLED_FROM_C = {"_next_wrapper", "_reset_wrapper"}


class TimeUp(BaseException):
    """The time is over; no ``except Exception`` of a package that is being timed can swallow it."""


class Deadline:
    """A limit in processor seconds of this process, from now on; other work on the machine does not count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.start = time.process_time()

    @property
    def passed(self) -> float:
        """Processor seconds since the start."""
        return time.process_time() - self.start

    def check(self, share: float = 1.0) -> None:
        """Raise TimeUp if that share of the time is used."""
        if self.passed >= share * self.seconds:
            raise TimeUp

    @contextmanager
    def within(self, share: float = 1.0) -> Iterator[None]:
        """Raise TimeUp out of the block once that share of the time is used.

        A signal interrupts the block where the system has one and this is the main thread; elsewhere only `check` does.
        """
        self.check(share)
        if not hasattr(signal, "SIGPROF") or threading.current_thread() is not threading.main_thread():
            yield
            return
        is_up = False

        def interrupt(_: int, frame: Any) -> None:
            nonlocal is_up
            while frame is not None:
                if frame.f_code.co_name in _CALLED_FROM_C:
                    return  # the signal comes again
                frame = frame.f_back
            is_up = True
            raise TimeUp

        before = signal.signal(signal.SIGPROF, interrupt)
        # It repeats: an exception inside a destructor or a callback of C code is swallowed there.
        signal.setitimer(signal.ITIMER_PROF, share * self.seconds - self.passed, _SIGNAL_AGAIN)
        try:
            yield
        except BaseException as error:
            if is_up:  # a package may turn what a signal raises into an error of its own
                raise TimeUp from error
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


@dataclass(frozen=True, eq=False)
class SearchRows:
    """Training rows, their folds (training and held-out positions), the seed and the number of classes."""

    X: Array
    y: Index
    folds: Sequence[tuple[Index, Index]]
    seed: int
    n_classes: int


@dataclass(frozen=True, eq=False)
class Searched:
    """The best setting refitted on all rows, its out-of-fold probabilities (NaN: none), and the settings tried."""

    model: Any
    oof: Array
    setting: Mapping[str, Any]
    n_settings: int


def search_rows(X: Array, y: Index, n_folds: int, seed: int, n_classes: int) -> SearchRows:
    """Rows with stratified folds; a class with fewer rows than folds is always trained on, as packages need it."""
    scarce = np.bincount(y)[y] < n_folds
    own, always = np.flatnonzero(~scarce), np.flatnonzero(scarce)
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    parts = splitter.split(own, y[own])
    folds = [(np.sort(np.concatenate([own[train], always])), own[test]) for train, test in parts]
    return SearchRows(X, y, folds, seed, n_classes)


def selection_loss(y: Index, p: Array) -> float:
    """Mean log loss of probabilities (n, K) at the best intercepts; infinite if a probability is not finite."""
    if not np.isfinite(p).all():
        return float("inf")
    log_p = np.log(np.clip(p, CLIP, None))
    shares = np.bincount(y, minlength=p.shape[1]) / len(y)
    used = shares > 0
    shift = np.zeros(p.shape[1])
    for _ in range(1000):
        moved = log_p + shift
        moved -= np.logaddexp.reduce(moved, axis=1, keepdims=True)
        step = np.where(used, np.log(np.where(used, shares, 1.0)) - np.log(np.exp(moved).mean(axis=0)), 0.0)
        shift += step
        if np.abs(step).max() < 1e-10:
            break
    return float(-moved[np.arange(len(y)), y].mean())


def search(peer: Peer, rows: SearchRows, count: int, deadline: Deadline) -> Searched:
    """Try up to ``count`` settings of a peer until the time is over, and refit the best on all rows."""
    return _own_search(peer, rows, deadline) if peer.searches_itself else _cross_validated(peer, rows, count, deadline)


def _cross_validated(peer: Peer, rows: SearchRows, count: int, deadline: Deadline) -> Searched:
    """Every setting on every fold, one fit at a time."""
    settings, best, tried, failure = peer.settings(count), None, 0, None
    nothing = np.full((len(rows.y), rows.n_classes), np.nan)
    if len(settings) == 1 and rows.n_classes > 2:  # nothing to choose, and no threshold is looked for
        best, tried = (0.0, nothing, settings[0]), 1
    else:
        try:
            with deadline.within(_SEARCH_SHARE):
                for setting in settings:
                    deadline.check(_SEARCH_SHARE)
                    try:
                        oof = nothing.copy()
                        for train, held_out in rows.folds:
                            model = _fitted(peer, setting, rows, train)
                            oof[held_out] = model.predict_proba(rows.X[held_out])
                        known = np.concatenate([held_out for _, held_out in rows.folds])
                        loss = selection_loss(rows.y[known], oof[known])
                        if best is None or loss < best[0]:
                            best = loss, oof, setting
                    except Exception as error:  # RUSBoost refuses a base classifier that is worse than chance
                        failure = error
                    tried += 1
        except TimeUp:
            pass  # the best of those that were tried
    if best is None:
        raise failure if failure is not None else TimeUp
    with deadline.within():
        model = _fitted(peer, best[2], rows, np.arange(len(rows.y)))
    return Searched(model, best[1], best[2], tried)


def _fitted(peer: Peer, setting: Mapping[str, Any], rows: SearchRows, at: Index) -> Any:
    """A peer of a setting fitted to rows, all classes weighing the same if it is a weighted one."""
    model, X, y = _made(peer, setting, rows), rows.X[at], rows.y[at]
    if not peer.is_weighted:
        return model.fit(X, y)
    name = "model__sample_weight" if isinstance(model, Pipeline) else "sample_weight"
    return model.fit(X, y, **{name: compute_sample_weight("balanced", y)})


def _made(peer: Peer, setting: Mapping[str, Any], rows: SearchRows) -> Any:
    model = peer.make(setting, rows.seed)
    return model.set_params(pos_label=1) if rows.n_classes == 2 and "pos_label" in model.get_params() else model


def _own_search(peer: Peer, rows: SearchRows, deadline: Deadline) -> Searched:
    """Our searches and committees, which search, refit and keep out-of-fold logits themselves, on these folds."""
    covered = sum(len(held_out) for _, held_out in rows.folds) == len(rows.y)
    with deadline.within():
        model = _made(peer, {}, rows).set_params(cv=list(rows.folds) if covered else len(rows.folds))
        model.fit(rows.X, rows.y)
    if hasattr(model, "oof_"):  # AutoGluon
        return Searched(model, model.oof_, {"models": "; ".join(model.models_)}, len(model.models_))
    if hasattr(model, "leaderboard_"):
        *members, whole = model.leaderboard_
        setting = {one.name: "; ".join([f"weight {one.weight:.3g}", *one.settings]) for one in members}
        n_settings = whole.n_tried
    else:
        setting, n_settings = model.best_params_, len(model.cv_results_["params"])
    oof = np.full((len(rows.y), rows.n_classes), np.nan)
    if rows.n_classes == 2:
        natural = model.oof_decision_function_ - model.weighting_.logit_shift
        oof[:, 1] = 1.0 / (1.0 + np.exp(-natural))
        oof[:, 0] = 1.0 - oof[:, 1]
    return Searched(model, oof, setting, n_settings)
