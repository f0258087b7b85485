"""Functions shared by the benchmarks: options, printing, simulated rows, splits, and resumable runs in processes."""

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

_BEGAN = time.perf_counter()
# Simulated logistic rows: the coefficients, and the bias of a share of positives.
COEF = np.array([1.0, -0.8, 0.5, 0.0, 0.3])
BIAS = {0.10: -2.874, 0.03: -4.332, 0.02: -4.795}


# -- options and printing ----------------------------------------------------------------------------------------------


def options(doc: str | None, *, data_home: bool = False, **defaults: Any) -> argparse.ArgumentParser:
    """A parser with ``--out`` and an option for each default; a list default takes several values."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data_home:
        parser.add_argument("--data-home", default=os.environ.get("CRCEN_DATA_HOME") or None)
    for name, value in defaults.items():
        several = {"nargs": "*"} if isinstance(value, list | tuple) else {}
        kind = type(value[0]) if several else str if value is None else type(value)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=value, **several)
    parser.add_argument("--out", type=Path, help="write what is printed to this file, too")
    return parser


class Printer:
    """Prints lines at once and writes all of them to a file, where one is given."""

    def __init__(self, out: Path | None = None) -> None:
        self.lines: list[str] = []
        self._out = out

    def __call__(self, *lines: str) -> None:
        """Print lines."""
        print("\n".join(lines), flush=True)
        self.lines += lines
        if self._out is not None:
            self._out.write_text("\n".join(self.lines) + "\n", encoding="utf-8")


class Replicates:
    """Replicates of a simulation in processes; the random numbers do not depend on how many processes there are."""

    CHUNKS = 64

    def __init__(self, processes: int, scale: float = 1.0) -> None:
        self._scale, self._calls = scale, 0
        self._pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=one_thread)

    def __call__(self, work: Callable[..., Any], n: int, *args: Any) -> np.ndarray:
        """What ``work(rng, *args)`` returns, n times the scale times: (replicates,) or (replicates, values)."""
        self._calls += 1
        counts = np.bincount(np.arange(max(round(n * self._scale), 2)) % self.CHUNKS)
        seeds = [[self._calls, chunk] for chunk in range(len(counts))]
        rest = [[value] * len(counts) for value in args]
        return np.concatenate(list(self._pool.map(_replicates, [work] * len(counts), seeds, counts, *rest)))

    def done(self) -> None:
        """Stop the processes and print the running time."""
        self._pool.shutdown()
        done()


def _replicates(work: Callable[..., Any], seed: list[int], count: int, *args: Any) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([work(rng, *args) for _ in range(count)], dtype=float)


def share(hits: Iterable[Any]) -> str:
    """Share of true values, with its standard error, in three digits."""
    values = np.array([bool(hit) for hit in hits], dtype=float)
    return f"{values.mean():.3f} ± {math.sqrt(values.var() / len(values)):.3f}"


def rate(hits: Iterable[Any]) -> str:
    """Share of true values, with its standard error, in four digits."""
    values = np.array([bool(hit) for hit in hits], dtype=float)
    return f"{values.mean():.4f} ± {math.sqrt(values.var() / len(values)):.4f}"


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


# -- simulated rows ----------------------------------------------------------------------------------------------------


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Log-odds as probabilities."""
    return 1.0 / (1.0 + np.exp(-values))


def columns(p: np.ndarray) -> np.ndarray:
    """Probabilities of the positive class as two columns."""
    return np.column_stack([1.0 - p, p])


def draw_classes(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """A class number for each row of probabilities (n, K)."""
    return np.minimum((rng.random(len(p))[:, None] > np.cumsum(p, axis=1)).sum(axis=1), p.shape[1] - 1)


def logistic_rows(
    rng: np.random.Generator, n: int, positives: float = 0.10, shift: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Five normal features (moved by ``shift``), labels, and true probabilities, linear in them on the logit scale."""
    X = rng.standard_normal((n, COEF.size)) + shift
    p = sigmoid(BIAS[positives] + X @ COEF)
    return X, (rng.random(n) < p).astype(int), p


def normal_classes(
    rng: np.random.Generator, n: int, shares: np.ndarray, drift: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four normal features around a centre for each class, labels, and the log posterior before a drift of it."""
    centres = np.random.default_rng(99).normal(0.0, 1.2 if len(shares) > 2 else 0.6, (len(shares), 4))
    X = centres[rng.choice(len(shares), n, p=shares)] + rng.standard_normal((n, 4))
    logits = -0.5 * ((X[:, None] - centres) ** 2).sum(2) + np.log(shares)
    logits -= np.logaddexp.reduce(logits, axis=1, keepdims=True)
    moved = np.exp(logits + drift)
    return X, draw_classes(rng, moved / moved.sum(axis=1, keepdims=True)), logits


# -- splits and runs ---------------------------------------------------------------------------------------------------


def split(y: np.ndarray, number: int, test_size: float = 0.25) -> tuple[np.ndarray, np.ndarray]:
    """Training and test positions of a stratified split."""
    splitter = StratifiedShuffleSplit(1, test_size=test_size, random_state=number)
    return next(splitter.split(np.zeros((len(y), 1)), y))


def one_thread() -> None:
    """Let processes, not threads, share the cores."""
    import warnings

    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1)
    warnings.simplefilter("ignore")


def rows_of(
    work: Callable[[tuple[Any, ...]], Any],
    tasks: Sequence[tuple[Any, ...]],
    key: Callable[[dict[str, Any]], tuple[Any, ...]],
    file: Path,
    processes: int = 2,
    seconds: float = math.inf,
) -> list[dict[str, Any]]:
    """Rows of tasks, in processes of one thread each; a run that was cut goes on from the rows in its file.

    ``work`` gives a row or a list of rows; ``key`` the task of a row. No task begins after ``seconds``.
    """
    rows = [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []
    known = {key(row) for row in rows}
    left = [task for task in tasks if task not in known]
    with file.open("a") as out:
        for found in in_processes(work, left, processes, seconds):
            new = found if isinstance(found, list) else [found]
            rows += new
            out.writelines(json.dumps(row) + "\n" for row in new)
            out.flush()
    return rows


def in_processes(
    work: Callable[[Any], Any], tasks: Iterable[Any], processes: int = 2, seconds: float = math.inf
) -> Iterator[Any]:
    """Results as they are finished, in processes of one thread each; no task begins after ``seconds``."""
    left, began = list(tasks)[::-1], time.perf_counter()
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=one_thread) as pool:
        running: set[Any] = set()
        while left or running:
            while left and len(running) < processes and time.perf_counter() - began < seconds:
                running.add(pool.submit(work, left.pop()))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)
