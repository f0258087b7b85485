"""Simulated rows with a known posterior: the paper's two simulations, and rare events in any number.

Sim1, one feature: a positive is N(−1.5, 1) + U(0, 0.5), a negative N(1.5, 1) + U(−0.5, 0).
Sim2, three features: a positive is N((0, 0, 0), 1.2² I), a negative N((1, 1, 1), I).

Rare events have independent standard normal columns, rounded to float32. The logit of the positive class is an
intercept plus one of two random functions, scaled to a standard deviation of 1.5: ``"smooth"``, a linear function of
half the columns and eight ridges tanh(u·x + t), or ``"tree"``, twenty trees, each of four cuts of single columns.
"""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # which loads its parts on first use
from numpy.typing import ArrayLike

from crcen._support.files import atomic_file
from crcen._support.lazy import pa, pq
from crcen.datasets.benchmark import Dataset
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_whole_number
from crcen.theory.price import positive_number
from crcen.theory.rows import Array, Index

_SIM1_MEAN = 1.5  # of the negatives' normal part; the positives' is its negative
_SIM1_WIDTH = 0.5  # of both uniform parts, each towards the other class
_SIM2_SD_POS = 1.2  # a standard deviation: Table 1 agrees with this reading

CHUNK_ROWS = 65_536
_STRENGTH = 1.5
_RIDGES = 8
_TREES, _CUTS = 20, 4
_CALIBRATION_CHUNKS = 4
_FUNCTION, _CALIBRATION, _ROWS, _SAMPLES = range(4)  # independent streams of one seed


def make_sim1(n_pos: int = 1000, n_neg: int = 10000, seed: int | np.random.SeedSequence = 0) -> Dataset:
    """Draw rows of the paper's Sim1 (one feature), in random order; the same seed and counts give the same rows.

    Examples
    --------
    >>> from crcen.datasets import make_sim1
    >>> make_sim1(seed=1).imbalance_ratio
    10.0
    """
    rng, n_pos, n_neg = _rng(seed), check_whole_number(n_pos, "n_pos", 1), check_whole_number(n_neg, "n_neg", 1)
    pos = rng.normal(-_SIM1_MEAN, 1.0, (n_pos, 1)) + rng.uniform(0.0, _SIM1_WIDTH, (n_pos, 1))
    neg = rng.normal(_SIM1_MEAN, 1.0, (n_neg, 1)) + rng.uniform(-_SIM1_WIDTH, 0.0, (n_neg, 1))
    return _shuffled("sim1", pos, neg, rng, "simulated: N(-1.5, 1) + U(0, 0.5) against N(1.5, 1) + U(-0.5, 0)")


def make_sim2(n_pos: int = 1000, n_neg: int = 10000, seed: int | np.random.SeedSequence = 0) -> Dataset:
    """Draw rows of the paper's Sim2 (three features), in random order; parameters as in `make_sim1`."""
    rng, n_pos, n_neg = _rng(seed), check_whole_number(n_pos, "n_pos", 1), check_whole_number(n_neg, "n_neg", 1)
    pos, neg = rng.normal(0.0, _SIM2_SD_POS, (n_pos, 3)), rng.normal(1.0, 1.0, (n_neg, 3))
    return _shuffled("sim2", pos, neg, rng, "simulated: N((0, 0, 0), 1.2² I) against N((1, 1, 1), I)")


def _rng(seed: int | np.random.SeedSequence) -> np.random.Generator:
    key = seed if isinstance(seed, np.random.SeedSequence) else check_whole_number(seed, "seed", 0)
    return np.random.Generator(np.random.PCG64(key))


def _shuffled(name: str, pos: Array, neg: Array, rng: np.random.Generator, source: str) -> Dataset:
    order = rng.permutation(len(pos) + len(neg))
    X, y = np.concatenate([pos, neg])[order], np.repeat([1, 0], [len(pos), len(neg)])[order]
    return Dataset(name, X, y, tuple(f"x{j}" for j in range(X.shape[1])), source)


def sim1_posterior(X: ArrayLike, imbalance_ratio: float) -> Array:
    """True probability P(y = 1 | x) of Sim1, for rows of shape (n_samples, 1) and negatives per positive."""
    x = np.clip(_rows(X, 1, "Sim1")[:, 0], -1e3, 1e3)  # 0 or 1 beyond
    log_ratio = _log_mass(x + _SIM1_MEAN - _SIM1_WIDTH) - _log_mass(x - _SIM1_MEAN)
    return np.asarray(scipy.special.expit(log_ratio - math.log(positive_number(imbalance_ratio, "imbalance_ratio"))))


def _log_mass(low: Array) -> Array:
    """log(Φ(low + width) − Φ(low)), with the interval reflected to the left of zero, where log Φ is exact."""
    low = np.minimum(low, -low - _SIM1_WIDTH)
    log_high = scipy.special.log_ndtr(low + _SIM1_WIDTH)
    return np.asarray(log_high + np.log1p(-np.exp(scipy.special.log_ndtr(low) - log_high)))


def sim2_posterior(X: ArrayLike, imbalance_ratio: float) -> Array:
    """True probability P(y = 1 | x) of Sim2, for rows of shape (n_samples, 3); parameters as in `sim1_posterior`."""
    rows, log_ratio = _rows(X, 3, "Sim2"), math.log(positive_number(imbalance_ratio, "imbalance_ratio"))
    with np.errstate(over="ignore"):  # beyond 1e154 the ratio is infinite, as it should be
        terms = rows * ((0.5 - 0.5 / _SIM2_SD_POS**2) * rows - 1.0) + (0.5 - math.log(_SIM2_SD_POS))
        return np.asarray(scipy.special.expit(terms.sum(axis=1) - log_ratio))


@dataclass(eq=False)
class RareEvents:
    """A recipe for rows with a known posterior; iterating gives them as (X, y) chunks, any number of times.

    Each chunk is drawn from (seed, chunk number) alone, so the rows do not depend on how they are read.

    Parameters are those of `make_rare_events`; ``files`` are the Parquet files that hold the rows, if any.
    """

    n: int
    n_features: int
    imbalance_ratio: float
    seed: int
    family: str
    files: tuple[Path, ...] = ()
    _score: Callable[[Array], Array] = field(init=False, repr=False)
    _slope: float = field(init=False, repr=False)
    _intercept: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._score = _FAMILIES[self.family](_stream(self.seed, _FUNCTION), self.n_features)
        streams = (_stream(self.seed, _CALIBRATION, chunk) for chunk in range(_CALIBRATION_CHUNKS))
        scores = np.concatenate([self._score(_columns(one, CHUNK_ROWS, self.n_features)) for one in streams])
        self._slope = _STRENGTH / float(scores.std())
        self._intercept = _intercept(self._slope * scores, 1.0 / (1.0 + self.imbalance_ratio))

    def __reduce__(self) -> tuple[Any, ...]:
        return RareEvents, (self.n, self.n_features, self.imbalance_ratio, self.seed, self.family, self.files)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns; that of the labels is ``y``."""
        return tuple(f"x{j}" for j in range(self.n_features))

    def posterior(self, X: ArrayLike) -> Array:
        """P(y = 1 | x) of rows (n, n_features)."""
        score = self._score(_rows(X, self.n_features, "posterior"))
        return np.asarray(scipy.special.expit(self._intercept + self._slope * score))

    def bayes_log_loss(self, X: ArrayLike) -> float:
        """Expected log loss of the true posterior on rows, over their labels: no model can be better."""
        p = self.posterior(X)
        return float(np.mean(scipy.special.entr(p) + scipy.special.entr(1.0 - p)))

    def excess_log_loss(self, X: ArrayLike, p: ArrayLike) -> float:
        """Expected log loss of probabilities ``p`` on rows, less that of the true ones."""
        given, truth = np.asarray(p, dtype=np.float64), self.posterior(X)
        if given.shape != truth.shape or not ((given >= 0) & (given <= 1)).all():
            found = f"got shape {given.shape} or values outside [0, 1]; try predict_proba(X)[:, 1]"
            raise InvalidInput(f"p must hold a probability for each of the {len(truth)} rows, {found}.")
        return float(np.mean(scipy.special.rel_entr(truth, given) + scipy.special.rel_entr(1.0 - truth, 1.0 - given)))

    def sample(self, n: int, seed: int = 0) -> tuple[Array, Index]:
        """Draw rows and labels that are not among those of the set; other seeds give other rows."""
        rng = _stream(self.seed, _SAMPLES, check_whole_number(seed, "seed", 0))
        X = _columns(rng, check_whole_number(n, "n", 1), self.n_features)
        return X, self._labels(rng, X)

    def __iter__(self) -> Iterator[tuple[Array, Index]]:
        for start in range(0, self.n, CHUNK_ROWS):
            rng = _stream(self.seed, _ROWS, start // CHUNK_ROWS)
            X = _columns(rng, min(CHUNK_ROWS, self.n - start), self.n_features)
            yield X, self._labels(rng, X)

    def _labels(self, rng: np.random.Generator, X: Array) -> Index:
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
    """Make a recipe for any number of rows with a known posterior, as chunks in memory or as Parquet files.

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
        Write the rows to a new or empty folder as ``part-00000.parquet``, …, in row groups of 65,536.
    rows_per_file : int, default=1048576
        Rows of a file.

    Examples
    --------
    >>> from crcen import make_rare_events
    >>> events = make_rare_events(1000, n_features=5, imbalance_ratio=9)
    >>> X, y = events.sample(1000)
    >>> abs(events.excess_log_loss(X, events.posterior(X))) < 1e-15
    True
    """
    if family not in _FAMILIES:
        raise InvalidParameter(f"Got family={family!r}, but only {', '.join(map(repr, _FAMILIES))} are allowed.")
    size = check_whole_number(rows_per_file, "rows_per_file", 1)
    counts = check_whole_number(n, "n", 1), check_whole_number(n_features, "n_features", 1)
    ratio = positive_number(imbalance_ratio, "imbalance_ratio")
    events = RareEvents(*counts, ratio, check_whole_number(seed, "seed", 0), family)
    if path is not None:
        events.files = tuple(_write(events, Path(path), size))
    return events


def _write(events: RareEvents, folder: Path, rows_per_file: int) -> Iterator[Path]:
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


def _stream(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def _columns(rng: np.random.Generator, n: int, n_features: int) -> Array:
    return rng.standard_normal((n, n_features), dtype=np.float32).astype(np.float64)


def _intercept(scores: Array, share: float) -> float:
    """The intercept at which the mean posterior is ``share``."""
    ends = -800.0 - float(scores.max()), 800.0 - float(scores.min())

    def excess(intercept: float) -> float:
        return float(scipy.special.expit(scores + intercept).mean()) - share

    return float(scipy.optimize.brentq(excess, *ends, xtol=1e-15))


def _smooth(rng: np.random.Generator, n_features: int) -> Callable[[Array], Array]:
    linear = rng.standard_normal(n_features) * (rng.permutation(n_features) < (n_features + 1) // 2)
    linear /= np.linalg.norm(linear)
    ridges = rng.standard_normal((n_features, _RIDGES))
    ridges *= 1.5 / np.linalg.norm(ridges, axis=0)
    offsets, heights = rng.standard_normal(_RIDGES), rng.choice([-1.0, 1.0], _RIDGES)
    return lambda X: X @ linear + np.tanh(X @ ridges + offsets) @ heights


def _tree(rng: np.random.Generator, n_features: int) -> Callable[[Array], Array]:
    cut_columns = rng.integers(n_features, size=(_TREES, _CUTS))
    thresholds = rng.standard_normal((_TREES, _CUTS)) * 0.7
    leaves = rng.standard_normal((_TREES, 2**_CUTS))

    def score(X: Array) -> Array:
        total = np.zeros(len(X))
        for columns, cuts, values in zip(cut_columns, thresholds, leaves, strict=True):
            total += values[(X[:, columns] > cuts) @ (1 << np.arange(_CUTS))]
        return total

    return score


_FAMILIES = {"smooth": _smooth, "tree": _tree}


def _rows(X: ArrayLike, n_features: int, name: str) -> Array:
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_features or not np.isfinite(rows).all():
        what = "NaN or infinite values" if rows.shape[1:] == (n_features,) else f"shape {rows.shape}"
        allowed = f"only finite values of shape (n_samples, {n_features}) are allowed; try X.reshape(-1, {n_features})"
        raise InvalidInput(f"{name} got X with {what}, but {allowed}.")
    return rows
