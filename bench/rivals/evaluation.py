"""One row of the benchmark: a peer searched and refitted on a split's training rows, scored on its test rows."""

import os
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, brier_score_loss, confusion_matrix, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit

import crcen
from bench.rivals.datasets import Rows, published_costs
from bench.rivals.peers import Peer
from bench.rivals.search import CLIP, Deadline, Searched, TimeUp, search, search_rows

__all__ = [
    "PRICES",
    "best_threshold",
    "calibration_error",
    "cost_matrices",
    "costs",
    "evaluate",
    "log_odds",
    "relative_cost",
    "split_rows",
]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# What a miss is worth in false alarms, by the name of the column; None is the training rows' class ratio.
PRICES = {"cost_2": 2.0, "cost_5": 5.0, "cost_20": 20.0, "cost_ir": None}
# What a mistake on the rarest of several classes costs if one class is dear; others cost 1.
DEAR = 20.0
_GROUPS = 10
_FINE = 1e-15
_TIMED_ROWS = 1000


def split_rows(data: Rows, number: int, protocol: Mapping[str, Any]) -> tuple[Index, Index]:
    """Training and test positions of a split; more splits go on from fewer."""
    splitter = StratifiedShuffleSplit(number + 1, test_size=protocol["test_size"], random_state=protocol["seed"])
    *_, (train, test) = splitter.split(data.X, data.y)
    return np.sort(train), np.sort(test)


def evaluate(peer: Peer, data: Rows, split: int, protocol: Mapping[str, Any], time_limit: float) -> dict[str, Any]:
    """Search, refit and score; what fails or takes too long is a row that says so."""
    row: dict[str, Any] = {"dataset": data.name, "split": split, "peer": peer.name}
    row |= {"version": peer.version(), "processors": os.cpu_count(), "time_limit": time_limit}
    row |= {"device": peer.device()} if peer.is_accelerated else {}
    if reason := peer.missing():
        return row | {"error": reason}
    train, test = split_rows(data, split, protocol)
    rows = search_rows(data.X[train], data.y[train], protocol["folds"], protocol["seed"] + split, data.n_classes)
    deadline, start = Deadline(time_limit), time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # packages' notices about their own defaults and slow convergence
            found = search(peer, rows, protocol["settings"], deadline)
            row |= {"seconds_fit": time.perf_counter() - start, "processor_fit": deadline.passed}
            scores = _scores(found, rows.y, data.X[test], data.y[test], peer.is_balanced, published_costs(data.name))
    except TimeUp:
        return row | {
            "error": f"over budget: no setting was fitted and refitted within {time_limit:g} processor seconds"
        }
    except Exception as error:  # whatever a package raises is that peer's result here
        return row | {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    setting = {
        name: value if isinstance(value, int | float | str | None) else str(value)
        for name, value in found.setting.items()
    }
    return row | {"settings": found.n_settings, "setting": setting} | scores


def _scores(
    found: Searched, y_train: Index, X: Array, y: Index, is_balanced: bool, published: Array | None
) -> dict[str, Any]:
    p = np.asarray(found.model.predict_proba(X), dtype=np.float64)
    if not np.isfinite(p).all():
        raise crcen.InvalidInput("the probabilities of test rows are not finite.")
    timed = X[np.arange(_TIMED_ROWS) % len(X)]
    start, processor = time.perf_counter(), time.process_time()
    found.model.predict_proba(timed)
    scores: dict[str, Any] = {
        "seconds_predict": time.perf_counter() - start,
        "processor_predict": time.process_time() - processor,
        "log_loss": _log_loss(y, p),
    }
    if p.shape[1] > 2:
        counts = np.bincount(y_train, minlength=p.shape[1])
        return scores | _multiclass_scores(p, y, cost_matrices(counts, published), is_balanced)
    for metric in ("g_mean", "f1"):
        threshold = best_threshold(y_train, found.oof[:, 1], metric)
        value = getattr(crcen.confusion_counts(y, log_odds(p[:, 1]) > threshold), metric)
        scores |= {metric: float(value), f"threshold_{metric}": float(1.0 / (1.0 + np.exp(-threshold)))}
    own = crcen.confusion_counts(y, np.asarray(found.model.predict(X)).reshape(-1).astype(int))
    return scores | {
        "average_precision": float(average_precision_score(y, p[:, 1])),
        "roc_auc": float(roc_auc_score(y, p[:, 1])),
        "brier": float(brier_score_loss(y, p[:, 1])),
        "calibration_error": calibration_error(y, p[:, 1]),
        **costs(y_train, y, p[:, 1]),
        "own_g_mean": float(own.g_mean),
        "own_f1": float(own.f1),
    }


def _log_loss(y: Index, p: Array) -> float:
    inside = np.clip(p, CLIP, 1.0 - CLIP)
    return float(-np.log(inside[np.arange(len(y)), y] / inside.sum(axis=1)).mean())


def log_odds(p: Array) -> Array:
    """Log-odds of probabilities that are kept off 0 and 1, so that thresholds may lie among very small ones."""
    inside = np.clip(p, _FINE, 1.0 - _FINE)
    return np.log(inside) - np.log1p(-inside)


def best_threshold(y: Index, p: Array, metric: str) -> float:
    """The log-odds above which rows are called positive so that ``f1`` or ``g_mean`` of these rows is highest.

    Halfway between two neighbouring values; of equally good ones the highest; −inf if all rows are positive.
    """
    order = np.argsort(-p, kind="stable")
    score = log_odds(p)[order]
    last = np.append(np.flatnonzero(np.diff(score)), len(p) - 1)  # of equal scores
    tp = np.cumsum(y[order] == 1)[last]
    n_pos, fp = tp[-1], last + 1 - tp
    recall, specificity = tp / n_pos, 1.0 - fp / (len(y) - n_pos)
    best = int(np.argmax(np.sqrt(recall * specificity) if metric == "g_mean" else 2.0 * tp / (tp + fp + n_pos)))
    return float("-inf") if best == len(last) - 1 else float((score[last[best]] + score[last[best + 1]]) / 2.0)


def costs(y_train: Index, y: Index, p: Array) -> dict[str, float]:
    """`relative_cost` at every price of `PRICES`; the class ratio of the training rows is the last."""
    ratio = float((y_train == 0).sum() / (y_train == 1).sum())
    return {name: relative_cost(y, p, ratio if price is None else price) for name, price in PRICES.items()}


def relative_cost(y: Index, p: Array, price: float) -> float:
    """Cost of the decisions p > 1/(1 + price), price · misses + false alarms, over the cheaper of always and never."""
    counts = crcen.confusion_counts(y, p > 1.0 / (1.0 + price))
    never, always = price * (counts.tp + counts.fn), counts.fp + counts.tn
    return float((price * counts.fn + counts.fp) / min(never, always))


def calibration_error(y: Index, p: Array) -> float:
    """By how many positives the probabilities are off, group by group, as a share of all positives.

    Rows are sorted by probability and cut into up to ten groups with about equally many expected positives each;
    equal probabilities stay together. Groups of equally many rows would put nearly every positive into the last one.
    """
    order = np.argsort(p, kind="stable")
    stated, seen = np.cumsum(p[order]), np.cumsum(y[order] == 1)
    ends = np.searchsorted(stated, stated[-1] * np.arange(1, _GROUPS) / _GROUPS, side="left")
    # The last row with the same probability; the groups end there.
    ends = np.searchsorted(p[order], p[order][np.minimum(ends, len(p) - 1)], side="right") - 1
    ends = np.unique(np.append(ends, len(p) - 1))
    gaps = np.diff(stated[ends], prepend=0.0) - np.diff(seen[ends], prepend=0)
    return float(np.abs(gaps).sum() / seen[-1])


def cost_matrices(counts: Index, published: Array | None = None) -> dict[str, Array]:
    """Cost matrices (rows the truth, columns decisions) of K classes, made of their training counts, and a given one.

    ``inverse``: a mistake on a class costs n / (K · its count). ``ordinal``: the distance of both classes in their
    order. ``dear``: 20 for a mistake on the rarest class, 1 for others.
    """
    place = np.arange(len(counts))
    wrong = 1.0 - np.eye(len(counts))
    dear = np.where(place == int(np.argmin(counts)), DEAR, 1.0)
    return {
        "inverse": (counts.sum() / (len(counts) * counts))[:, None] * wrong,
        "ordinal": np.abs(place[:, None] - place).astype(np.float64),
        "dear": dear[:, None] * wrong,
    } | ({} if published is None else {"published": published})


def _multiclass_scores(p: Array, y: Index, matrices: Mapping[str, Array], is_balanced: bool) -> dict[str, float]:
    """Scores of K classes; costs are over those of the cheapest constant decision.

    Peers whose classes were made to weigh the same decide by their largest probability, as people use them; all others
    decide by the expected costs.
    """
    present = np.unique(y)
    precisions = [average_precision_score(y == k, p[:, k]) for k in present]
    scores = {"macro_ap": float(np.mean(precisions))}
    for name, matrix in matrices.items():
        chosen = (p if is_balanced else -(p @ matrix)).argmax(axis=1)
        scores[f"cost_{name}"] = float(matrix[y, chosen].sum() / matrix[y].sum(axis=0).min())
        if name == "inverse":
            table = confusion_matrix(y, chosen, labels=np.arange(p.shape[1]))[present]
            recalls = table[np.arange(len(present)), present] / table.sum(axis=1)
            scores |= {
                "g_mean": float(np.exp(np.mean(np.log(recalls)))) if recalls.all() else 0.0,
                "balanced_accuracy": float(recalls.mean()),
                "macro_f1": float(f1_score(y, chosen, labels=present, average="macro", zero_division=0.0)),
            }
    return scores
