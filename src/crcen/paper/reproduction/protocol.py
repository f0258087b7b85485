"""The paper's protocol: stratified splits, and a cross-validated grid that is trained as stacks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

import crcen
from crcen.datasets.dataset import Dataset
from crcen.paper.methods import NetworkTraining, Tuning, make_method
from crcen.paper.reproduction.tuning import candidates, fold_scores
from crcen.paper.run_folder import RunFolder
from crcen.training.engines import find_engine
from crcen.training.jobs import Status, TrainingJob
from crcen.training.row_sets import RowSets

__all__ = ["OWN_METRIC", "Split", "select", "splits"]

# Of `scoring`: a cell of F1 is of the setting with the best F1, a cell of G-mean of that with the best G-mean.
OWN_METRIC = "own_metric"
_OWN_METRICS = ("f1", "g_mean")

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """One division of a set into training and test rows."""

    number: int
    train: Index
    test: Index


def splits(data: Dataset, settings: Mapping[str, Any]) -> list[Split]:
    """The repeated stratified splits of a set."""
    splitter = StratifiedShuffleSplit(
        settings["splits"], test_size=settings["test_size"], random_state=settings["seed"]
    )
    return [Split(i, np.sort(a), np.sort(b)) for i, (a, b) in enumerate(splitter.split(data.X, data.y))]


def select(
    run: RunFolder, data: Dataset, split: Split, name: str, settings: Mapping[str, Any], engine: str = "local"
) -> Mapping[str, Any]:
    """What is tuned in a method, by cross-validation on the training rows of a split (or of the first split).

    What was chosen is kept in the run's rows, so that it is computed once.
    """
    # An average of networks takes what suits one network.
    name = "crcen" if name == "crcen_ensemble" else name
    first = settings["selection"] == "first_split"
    key = {"dataset": data.name, "split": 0 if first else split.number, "method": name}
    if not run.has(**key):
        source = splits(data, settings)[0] if first else split
        run.add([key | _search(name, data.X[source.train], data.y[source.train], settings, engine)])
    return next(row for row in run.rows if all(row[field] == value for field, value in key.items()))


def _search(
    name: str, X: Array, y: NDArray[np.int64], settings: Mapping[str, Any], engine: str = "local"
) -> dict[str, Any]:
    """Train grid × folds × networks; return the best setting, its mean score and every setting's.

    A fold's score is the mean over several networks that differ in their seed: one alone says little on small sets.
    """
    method = crcen.METHODS[name]
    tuning = Tuning() if method.training is not None else method.tuning
    if tuning is None:
        raise crcen.InvalidParameter(f"{name} has nothing to search over.")
    folds = StratifiedKFold(settings["folds"], shuffle=True, random_state=settings["seed"])
    fold_rows = list(folds.split(X, y))
    metrics = _OWN_METRICS if settings["scoring"] == OWN_METRIC else (settings["scoring"],)
    grid = candidates(tuning, y, settings)
    try:
        if method.training is not None:
            every = _stacked_scores(name, X, y, fold_rows, grid, metrics, settings, engine)
        else:
            every = fold_scores(name, X, y, fold_rows, grid, metrics, settings)
    except ValueError as error:
        return {"error": _sentence(error)}
    found: list[dict[str, Any]] = []
    for scores in every.mean(axis=3):
        means = scores.mean(axis=1)
        if np.isneginf(means).all():
            lost = f"a network: {Status.DIVERGED.value}" if tuning.what == "network" else "a fit"
            return {"error": f"TrainingFailed: every setting lost {lost}"}
        best = int(np.argmax(means))
        table = [
            setting | {"score": float(m), "folds": s.tolist()}
            for setting, m, s in zip(grid, means, scores, strict=True)
        ]
        found.append(grid[best] | {"score": float(means[best]), "grid": table})
    return found[0] | {metric: one for metric, one in zip(metrics[1:], found[1:], strict=True)}


def _stacked_scores(
    name: str,
    X: Array,
    y: NDArray[np.int64],
    fold_rows: Sequence[tuple[Index, Index]],
    grid: Sequence[Mapping[str, Any]],
    metrics: Sequence[str],
    settings: Mapping[str, Any],
    engine: str,
) -> Array:
    """Scores of a method of our networks, of shape (metrics, settings, folds, networks); −∞ where one is lost."""
    training = crcen.METHODS[name].training or NetworkTraining(None, None)
    pools, rows, labels = _training_rows(training, name, X, y, [train for train, _ in fold_rows], settings)
    count = settings["search_networks"]
    jobs = [
        _job(training, setting, pool, labels, settings, settings["seed"] + network)
        for setting in grid
        for pool in pools
        for network in range(count)
    ]
    every = np.full((len(metrics), len(grid), len(fold_rows), count), -np.inf)
    for position, result in enumerate(find_engine(engine)(rows, labels, jobs)):
        setting, fold, network = map(int, np.unravel_index(position, every.shape[1:]))
        if result.network is not None:
            train, held_out = fold_rows[fold]
            logits = result.network.logits(X[held_out])
            for i, metric in enumerate(metrics):
                every[i, setting, fold, network] = _score(training, logits, y[held_out], y[train], metric)
    return every


def _training_rows(
    training: NetworkTraining,
    name: str,
    X: Array,
    y: NDArray[np.int64],
    folds: Sequence[Index],
    settings: Mapping[str, Any],
) -> tuple[list[Index], Array, NDArray[np.int64]]:
    """Rows of each fold, and what they index: resampled inside the fold where the method resamples."""
    if training.sampler is None:
        return list(folds), X, y
    sampled = [make_method(name, random_state=settings["seed"]).resample(X[train], y[train]) for train in folds]
    ends = np.cumsum([len(labels) for _, labels in sampled])
    pools = [np.arange(end - len(labels), end) for end, (_, labels) in zip(ends, sampled, strict=True)]
    rows, labels = (np.concatenate(part) for part in zip(*sampled, strict=True))
    return pools, rows, labels


def _job(
    training: NetworkTraining,
    setting: Mapping[str, Any],
    pool: Index,
    y: NDArray[np.int64],
    settings: Mapping[str, Any],
    seed: int,
) -> TrainingJob:
    n_pos = int(y[pool].sum())
    return TrainingJob(
        lam=crcen.resolve(training.weighting, n_pos, len(pool) - n_pos).lam,
        rows=RowSets(pool=pool),
        hidden=(int(setting["hidden"]),),
        l2=float(setting["l2"]),
        loss=training.loss,
        max_epochs=int(settings["epochs"]),
        seed=seed,
        shuffle_seed=int(settings["seed"]),
        balance=training.loss == "cross_entropy",
    )


def _score(
    training: NetworkTraining, logits: Array, y: NDArray[np.int64], y_train: NDArray[np.int64], scoring: str
) -> float:
    """Score of a network's logits on held-out rows, higher is better, decided at the method's price."""
    n_pos = int(y_train.sum())
    price = crcen.resolve(training.price, n_pos, len(y_train) - n_pos)
    if training.weighting is None and training.price is not None and training.sampler is None:
        logits = logits + price.logit_shift  # a plain network whose threshold is moved
    if scoring == "weighted_log_loss":
        weights = price.row_weights(y)
        return -float((weights * (np.logaddexp(0, logits) - y * logits)).sum() / weights.sum())
    counts = crcen.confusion_counts(y, logits > 0)
    return float(counts.f1 if scoring == "f1" else counts.g_mean)


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
