"""One row of the benchmark: a peer searched and refitted on a split's training rows, scored on its test rows."""

import os
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold

import crcen
from bench.rivals.budget import Deadline, TimeUp
from bench.rivals.peer import Peer
from bench.rivals.prices import calibration_error, costs
from bench.rivals.search import CLIP, log_odds
from bench.rivals.searched import Searched, SearchRows
from crcen.datasets.dataset import Dataset
from crcen.paper.protocol import Split
from crcen.theory.curves import ThresholdCurve
from crcen.theory.decision import sigmoid
from crcen.theory.metrics import ConfusionCounts

__all__ = ["best_threshold", "evaluate"]

Array = NDArray[np.float64]

# Finer than CLIP, so that a threshold may lie among very small probabilities.
_FINE = 1e-15
_TIMED_ROWS = 1000


def evaluate(peer: Peer, data: Dataset, split: Split, protocol: Mapping[str, Any], time_limit: float) -> dict[str, Any]:
    """Search, refit and score; what fails or takes too long is a row that says so."""
    row: dict[str, Any] = {"dataset": data.name, "split": split.number, "peer": peer.name}
    row |= {"version": peer.version(), "processors": os.cpu_count(), "time_limit": time_limit}
    row |= {"device": peer.device()} if peer.is_accelerated else {}
    if reason := peer.missing():
        return row | {"error": reason}
    X, y = data.X[split.train], data.y[split.train]
    folds = StratifiedKFold(protocol["folds"], shuffle=True, random_state=protocol["seed"] + split.number)
    rows = SearchRows(X, y, list(folds.split(X, y)), protocol["seed"] + split.number)
    deadline, start = Deadline(time_limit), time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # packages' notices about their own defaults and slow convergence
            found = peer.search(peer, rows, protocol["settings"], deadline)
            row |= {"seconds_fit": time.perf_counter() - start, "processor_fit": deadline.passed}
            scores = _scores(found, y, data.X[split.test], data.y[split.test])
    except TimeUp:
        return row | {
            "error": f"over budget: no setting was fitted and refitted within {time_limit:g} processor seconds"
        }
    except Exception as error:  # whatever a package raises is that peer's result here
        return row | {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    return row | {"settings": found.n_settings, "setting": _plain(found.setting)} | scores


def _scores(found: Searched, y_train: NDArray[np.int64], X: Array, y: NDArray[np.int64]) -> dict[str, Any]:
    p = np.asarray(found.model.predict_proba(X), dtype=np.float64)[:, 1]
    if not np.isfinite(p).all():
        raise crcen.InvalidInput("the probabilities of test rows are not finite.")
    timed = X[np.arange(_TIMED_ROWS) % len(X)]
    start, processor = time.perf_counter(), time.process_time()
    found.model.predict_proba(timed)
    scores: dict[str, Any] = {
        "seconds_predict": time.perf_counter() - start,
        "processor_predict": time.process_time() - processor,
    }
    for metric in ("g_mean", "f1"):
        threshold = best_threshold(y_train, found.oof, metric)
        counts = crcen.confusion_counts(y, log_odds(p, _FINE) > threshold)
        scores |= {metric: float(getattr(counts, metric)), f"threshold_{metric}": float(sigmoid(threshold))}
    own = crcen.confusion_counts(y, np.asarray(found.model.predict(X)).reshape(-1).astype(int))
    inside = np.clip(p, CLIP, 1.0 - CLIP)
    return scores | {
        "average_precision": float(average_precision_score(y, p)),
        "roc_auc": float(roc_auc_score(y, p)),
        "log_loss": float(log_loss(y, inside, labels=[0, 1])),
        "brier": float(brier_score_loss(y, p)),
        "calibration_error": calibration_error(y, p),
        **costs(y_train, y, p),
        "own_g_mean": float(own.g_mean),
        "own_f1": float(own.f1),
    }


def best_threshold(y: NDArray[np.int64], p: Array, metric: str) -> float:
    """The log-odds above which rows are called positive so that ``f1`` or ``g_mean`` of these rows is highest.

    Halfway between two neighbouring values; of equally good ones the highest.
    """
    curve = ThresholdCurve(y == 1, log_odds(p, _FINE))
    tp, fp = curve.totals(np.ones(len(y)))
    counts = ConfusionCounts(tp=tp, fp=fp, fn=tp[-1] - tp, tn=fp[-1] - fp)
    best = int(np.argmax(getattr(counts, metric)))
    is_last = best == len(curve.score) - 1
    return float("-inf") if is_last else float((curve.score[best] + curve.score[best + 1]) / 2)


def _plain(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A setting as JSON holds it."""
    return {
        name: value if isinstance(value, int | float | str | None) else str(value) for name, value in setting.items()
    }
