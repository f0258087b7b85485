"""Rare events of any number with a known posterior, so that what is lost to the best possible model can be measured.

Columns are independent standard normal numbers, rounded to float32. The logit of the positive class is an intercept
plus one of two random functions, scaled to a standard deviation of 1.5:

- ``"smooth"``: a linear function of half the columns and eight ridges tanh(u·x + t);
- ``"tree"``: twenty trees, each of four cuts of single columns.

Labels are drawn from that posterior. Rows are made in chunks, each from (seed, chunk) alone, so that the same rows come
in any order, in memory or on disk.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.extras import need
from crcen._support.files import atomic_file
from crcen.datasets.simulated import _rows, _whole
from crcen.exceptions import InvalidInput, InvalidParameter

__all__ = ["RareEvents", "make_rare_events"]

CHUNK_ROWS = 65_536
_STRENGTH = 1.5
_RIDGES = 8
_TREES, _CUTS = 20, 4
_CALIBRATION_CHUNKS = 4
# Independent streams of one seed.
_FUNCTION, _CALIBRATION, _ROWS, _SAMPLES = range(4)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RareEvents:
    """A recipe for rows with a known posterior; iterating gives them as (X, y) chunks, any number of times.

    Parameters
    ----------
    n, n_features, imbalance_ratio, seed, family
        As in `make_rare_events`.
    files : tuple of Path
        The Parquet files that hold the rows, if they were written.
    """

    n: int
    n_features: int
    imbalance_ratio: float
    seed: int
    family: str
    files: tuple[Path, ...] = ()
    _score: Callable[[Floats], Floats] = field(init=False, repr=False)
    _slope: float = field(init=False, repr=False)
    _intercept: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        score = _FAMILIES[self.family](_generator(self.seed, _FUNCTION), self.n_features)
        draws = [
            score(_columns(_generator(self.seed, _CALIBRATION, chunk), CHUNK_ROWS, self.n_features))
            for chunk in range(_CALIBRATION_CHUNKS)
        ]
        scores = np.concatenate(draws)
        slope = _STRENGTH / float(scores.std())
        object.__setattr__(self, "_score", score)
        object.__setattr__(self, "_slope", slope)
        object.__setattr__(self, "_intercept", _intercept(slope * scores, 1.0 / (1.0 + self.imbalance_ratio)))

    def __reduce__(self) -> tuple[Any, ...]:
        return RareEvents, (self.n, self.n_features, self.imbalance_ratio, self.seed, self.family, self.files)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns; that of the labels is ``y``."""
        return tuple(f"x{j}" for j in range(self.n_features))

    def logit(self, X: ArrayLike) -> Floats:
        """The true logit of the positive class of rows (n, n_features)."""
        return self._intercept + self._slope * self._score(_rows(X, self.n_features, "logit"))

    def posterior(self, X: ArrayLike) -> Floats:
        """P(y = 1 | x) of rows (n, n_features)."""
        return _sigmoid(self.logit(X))

    def bayes_log_loss(self, X: ArrayLike) -> float:
        """Expected log loss of the true posterior on rows, over their labels: no model can be better."""
        logit = self.logit(X)
        p = _sigmoid(logit)
        return float(np.mean(p * np.logaddexp(0.0, -logit) + (1.0 - p) * np.logaddexp(0.0, logit)))

    def excess_log_loss(self, X: ArrayLike, p: ArrayLike) -> float:
        """What probabilities ``p`` of the positive class lose to the true ones on rows, expected over their labels.

        This is the mean Kullback-Leibler divergence: never negative, and free of the noise of labels.
        """
        given = np.asarray(p, dtype=np.float64)
        logit = self.logit(X)
        if given.shape != logit.shape or not ((given >= 0) & (given <= 1)).all():
            raise InvalidInput(
                f"p must hold a probability for each of the {len(logit)} rows, got shape {given.shape} or values "
                f"outside [0, 1]; try predict_proba(X)[:, 1]."
            )
        truth = _sigmoid(logit)
        with np.errstate(divide="ignore"):
            pos = truth * (-np.logaddexp(0.0, -logit) - np.log(given))
            neg = (1.0 - truth) * (-np.logaddexp(0.0, logit) - np.log1p(-given))
        return float(np.mean(pos + neg))

    def sample(self, n: int, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
        """Draw rows and labels that are not among those of the set; other seeds give other rows."""
        rng = _generator(self.seed, _SAMPLES, _whole("seed", seed, 0))
        X = _columns(rng, _whole("n", n, 1), self.n_features)
        return X, self._labels(rng, X)

    def __iter__(self) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
        for start in range(0, self.n, CHUNK_ROWS):
            rng = _generator(self.seed, _ROWS, start // CHUNK_ROWS)
            X = _columns(rng, min(CHUNK_ROWS, self.n - start), self.n_features)
            yield X, self._labels(rng, X)

    def _labels(self, rng: np.random.Generator, X: Floats) -> NDArray[np.int64]:
        return (rng.random(len(X)) < self.posterior(X)).astype(np.int64)


def make_rare_events(
    n: int,
    n_features: int = 30,
    imbalance_ratio: float = 100.0,
    seed: int = 0,
    *,
    family: str = "smooth",
    path: str | os.PathLike[str] | None = None,
    rows_per_file: int = 1_048_576,
) -> RareEvents:
    """Make rows with a known posterior, as many as wanted: as chunks in memory, or as Parquet files.

    Parameters
    ----------
    n : int
        Rows.
    n_features : int, default=30
        Columns ``x0``, ``x1``, …; the labels 0/1 are the column ``y``.
    imbalance_ratio : float, default=100
        Expected negatives per positive. The intercept is solved for it on 262,144 rows, which leaves an error of about
        one per cent, and the labels are random.
    seed : int, default=0
        The same seed and settings give the same function and the same rows.
    family : {"smooth", "tree"}, default="smooth"
        The true function.
    path : folder, optional
        Write the rows there as ``part-00000.parquet``, …, in row groups of 65,536. The folder is made; it must not hold
        Parquet files already.
    rows_per_file : int, default=1048576
        Rows of a file.

    Returns
    -------
    RareEvents
        The recipe, with the true posterior. It holds no rows; iterating makes them again.

    Examples
    --------
    >>> from crcen import make_rare_events
    >>> events = make_rare_events(1000, n_features=5, imbalance_ratio=9)
    >>> X, y = events.sample(1000)
    >>> events.excess_log_loss(X, events.posterior(X))
    0.0
    """
    if family not in _FAMILIES:
        raise InvalidParameter(f"Got family={family!r}, but only {', '.join(map(repr, _FAMILIES))} are allowed.")
    if not (imbalance_ratio > 0 and math.isfinite(imbalance_ratio)):
        raise InvalidParameter(f"Got imbalance_ratio={imbalance_ratio!r}, but only a finite number above 0 is allowed.")
    size = _whole("rows_per_file", rows_per_file, 1)
    events = RareEvents(
        _whole("n", n, 1), _whole("n_features", n_features, 1), float(imbalance_ratio), _whole("seed", seed, 0), family
    )
    if path is None:
        return events
    object.__setattr__(events, "files", tuple(_write(events, Path(path), size)))
    return events


def _write(events: RareEvents, folder: Path, rows_per_file: int) -> Iterator[Path]:
    """Write the rows, file by file, each whole or not at all."""
    pa, pq = need("pyarrow", "tables"), need("pyarrow.parquet", "tables")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("*.parquet")):
        raise InvalidParameter(f"Got path={str(folder)!r}, which holds Parquet files already; try an empty folder.")
    schema = pa.schema([*((name, pa.float32()) for name in events.feature_names), ("y", pa.int8())])
    rest: Any = schema.empty_table()
    chunks = iter(events)
    for number in range(-(-events.n // rows_per_file)):
        final = folder / f"part-{number:05d}.parquet"
        with atomic_file(final) as file, pq.ParquetWriter(file, schema, use_dictionary=False) as writer:
            missing = min(rows_per_file, events.n - number * rows_per_file)
            while missing:
                if not len(rest):
                    X, y = next(chunks)
                    columns = [*(pa.array(column) for column in X.astype(np.float32).T), pa.array(y.astype(np.int8))]
                    rest = pa.table(columns, schema=schema)
                part, rest = rest.slice(0, missing), rest.slice(missing)
                writer.write_table(part, row_group_size=CHUNK_ROWS)
                missing -= len(part)
        yield final


def _generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def _columns(rng: np.random.Generator, n: int, n_features: int) -> Floats:
    return rng.standard_normal((n, n_features), dtype=np.float32).astype(np.float64)


def _sigmoid(logit: Floats) -> Floats:
    small = np.exp(-np.abs(logit))
    return np.where(logit >= 0, 1.0, small) / (1.0 + small)


def _intercept(scores: Floats, share: float) -> float:
    """The intercept at which the mean posterior is ``share``, by bisection."""
    low, high = -800.0 - float(scores.max()), 800.0 - float(scores.min())
    for _ in range(100):
        middle = 0.5 * (low + high)
        if float(_sigmoid(scores + middle).mean()) < share:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def _smooth(rng: np.random.Generator, n_features: int) -> Callable[[Floats], Floats]:
    linear = rng.standard_normal(n_features) * (rng.permutation(n_features) < (n_features + 1) // 2)
    linear /= np.linalg.norm(linear)
    ridges = rng.standard_normal((n_features, _RIDGES))
    ridges *= 1.5 / np.linalg.norm(ridges, axis=0)
    offsets, heights = rng.standard_normal(_RIDGES), rng.choice([-1.0, 1.0], _RIDGES)

    def score(X: Floats) -> Floats:
        return X @ linear + np.tanh(X @ ridges + offsets) @ heights

    return score


def _tree(rng: np.random.Generator, n_features: int) -> Callable[[Floats], Floats]:
    cut_columns = rng.integers(n_features, size=(_TREES, _CUTS))
    thresholds = rng.standard_normal((_TREES, _CUTS)) * 0.7
    leaves = rng.standard_normal((_TREES, 2**_CUTS))

    def score(X: Floats) -> Floats:
        total = np.zeros(len(X))
        for columns, cuts, values in zip(cut_columns, thresholds, leaves, strict=True):
            total += values[(X[:, columns] > cuts) @ (1 << np.arange(_CUTS))]
        return total

    return score


_FAMILIES: dict[str, Callable[[np.random.Generator, int], Callable[[Floats], Floats]]] = {
    "smooth": _smooth,
    "tree": _tree,
}
