"""Shared by the scripts of this folder: rates with their Monte-Carlo error, and simulated probabilities."""

import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

_BEGAN = time.perf_counter()


def rate(hits: Iterable[Any]) -> str:
    """Share of true values, with its standard error."""
    values = np.fromiter((bool(hit) for hit in hits), dtype=float)
    share = values.mean()
    return f"{share:.4f} ± {math.sqrt(share * (1 - share) / len(values)):.4f}"


def line(name: str, *cells: object) -> None:
    """One line of a table."""
    print(f"{name:<58}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


def head(title: str, *columns: str) -> None:
    """Title and column names of a table."""
    print()
    line(title, *columns)


def done() -> None:
    """Running time."""
    print(f"\n{time.perf_counter() - _BEGAN:.0f} s")


def columns(p: np.ndarray) -> np.ndarray:
    """Probabilities of the positive class as two columns."""
    return np.column_stack([1.0 - p, p])


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Log-odds as probabilities."""
    return 1.0 / (1.0 + np.exp(-values))


def draw_classes(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """A class number for each row of probabilities (n, K)."""
    return np.minimum((rng.random(len(p))[:, None] > np.cumsum(p, axis=1)).sum(axis=1), p.shape[1] - 1)
