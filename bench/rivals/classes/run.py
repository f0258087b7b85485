"""Run the benchmark of several classes: every (table, split, peer) that is missing, each row on disk as it is done."""

import functools
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedShuffleSplit

import crcen
from bench.rivals.budget import Deadline, TimeUp
from bench.rivals.classes.costs import cost_matrices
from bench.rivals.classes.page import class_page
from bench.rivals.classes.peers import CLASS_PEERS, choose_class_peers, search_classes
from bench.rivals.classes.tables import CLASS_TABLES, ClassTableRows, load_class_table
from bench.rivals.run import Benchmark, make_folder, one_thread, side_by_side
from crcen._support.files import exclusive_lock
from crcen._support.progress import steps
from crcen.paper.run_folder import RunFolder, settings_hash
from crcen.theory.metrics import average_precisions, decision_counts, log_losses

__all__ = ["benchmark_classes", "evaluate_classes"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_KEY = ("dataset", "split", "peer")
# Probabilities of exactly 0, as forests give them, would make one row's loss infinite.
_CLIP = 1e-6
_PROTOCOL: dict[str, Any] = {
    "kind": "multiclass",
    "test_size": 0.25,
    "folds": 3,
    "settings": 6,
    "most_rows": 20_000,
    "seed": 0,
}
_SPLITS, _TIME_LIMIT = 2, 300.0


def benchmark_classes(
    peers: str | Sequence[str] = "core",
    *,
    sets: Sequence[str] = (),
    splits: int | None = None,
    settings: int | None = None,
    jobs: int | None = None,
    data_home: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    tables_only: bool = False,
) -> Benchmark:
    """Compare peers on tables of 3 to 8 classes, going on where an interrupted run stopped.

    Parameters
    ----------
    peers : str or sequence of str
        ``"all"``, or names (with commas between them in a str).
    sets : sequence of str
        Names of tables; all by default.
    splits, settings : int, optional
        Stratified splits a table (2), and settings tried for each peer (6).
    jobs : int, optional
        Processes, one thread each; default the number of processors.
    data_home : path-like, optional
        As in `load_class_table`.
    out : path-like, optional
        Run folder; default ``runs/benchmark-`` and a hash of the settings.
    time_limit : float, optional
        Processor seconds that a peer may take for one split; 300 by default.
    tables_only : bool
        Run nothing; derive the tables from the rows that are there.
    """
    chosen = choose_class_peers(peers)
    unknown = [name for name in sets if name not in CLASS_TABLES]
    if unknown:
        raise crcen.InvalidParameter(f"there is no table {', '.join(unknown)}: choose from {', '.join(CLASS_TABLES)}.")
    names = [name for name in CLASS_TABLES if not sets or name in sets]
    protocol = dict(_PROTOCOL) | ({} if settings is None else {"settings": settings})
    n_splits = _SPLITS if splits is None else splits
    n_jobs = os.cpu_count() or 1 if jobs is None else jobs
    limit = _TIME_LIMIT if time_limit is None else float(time_limit)
    for name, value in (("splits", n_splits), ("settings", protocol["settings"]), ("jobs", n_jobs)):
        if value < 1:
            raise crcen.InvalidParameter(f"{name} must be at least 1: got {value}.")
    if not limit > 0:
        raise crcen.InvalidParameter(f"time_limit must be above 0 seconds: got {limit:g}.")
    folder = Path(out) if out is not None else Path("runs") / f"benchmark-{settings_hash(protocol)}"
    make_folder(folder)
    with exclusive_lock(folder, instead="give another --out"):
        run = RunFolder(folder, protocol, key=_KEY)
        if not tables_only:
            for name in names:
                load_class_table(name, data_home, 1)  # says at once what is not there
            tasks = [
                (name, split, one.name)
                for split in range(n_splits)
                for name in sorted(names, key=lambda name: -CLASS_TABLES[name].n_samples)
                for one in chosen
                if not run.has(dataset=name, split=split, peer=one.name)
            ]
            work = functools.partial(_run_task, protocol=protocol, limit=limit, data_home=data_home)
            with steps("benchmark", len(tasks)) as advance:
                for row in map(work, tasks) if n_jobs == 1 else side_by_side(work, tasks, n_jobs):
                    run.add([row])
                    outcome = row.get("error") or f"{row['seconds_fit']:.1f} s"
                    advance(f"{row['dataset']} split {row['split']} {row['peer']}: {outcome}")
        text = class_page(run.rows)
        run.write("summary.md", text)
        return Benchmark(folder, [text])


def _run_task(task: tuple[str, int, str], protocol: Mapping[str, Any], limit: float, data_home: Any) -> dict[str, Any]:
    name, split, peer = task
    with one_thread():
        return evaluate_classes(
            CLASS_PEERS[peer], _loaded(name, data_home, protocol["most_rows"]), split, protocol, limit
        )


@functools.lru_cache(maxsize=2)
def _loaded(name: str, data_home: Any, most_rows: int) -> ClassTableRows:
    return load_class_table(name, data_home, most_rows)


def evaluate_classes(
    one: Any, rows: ClassTableRows, split: int, protocol: Mapping[str, Any], limit: float
) -> dict[str, Any]:
    """One row: a peer searched and refitted on a split's training rows, scored on its test rows.

    Parameters
    ----------
    one : ClassPeer
        Whom to evaluate.
    rows : ClassTableRows
        The table.
    split : int
        Number of the split.
    protocol : mapping
        The settings of a run.
    limit : float
        Processor seconds.
    """
    row: dict[str, Any] = {"dataset": rows.table.name, "split": split, "peer": one.name, "version": one.peer.version()}
    if reason := one.peer.missing():
        return row | {"error": reason}
    seed = protocol["seed"] + split
    splitter = StratifiedShuffleSplit(1, test_size=protocol["test_size"], random_state=seed)
    train, test = next(splitter.split(rows.X, rows.y))
    y, n_classes = rows.y[train], len(rows.table.classes)
    deadline, start = Deadline(limit), time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # packages' notices about their own defaults
            how = protocol["folds"], protocol["settings"], seed
            found = search_classes(one, rows.X[train], y, *how, deadline)
            seconds = time.perf_counter() - start
            p = np.asarray(found.model.predict_proba(rows.X[test]), dtype=np.float64)
    except TimeUp:
        return row | {"error": f"over budget: nothing was fitted within {limit:g} processor seconds"}
    except Exception as error:  # whatever a package raises is that peer's result here
        return row | {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    scores = _scores(p, rows.y[test], np.bincount(y, minlength=n_classes), one.is_balanced)
    chosen = {name: str(value) for name, value in found.setting.items()}
    return row | {"seconds_fit": seconds, "settings": found.n_settings, "chosen": chosen} | scores


def _scores(p: Array, y: Index, counts: Index, is_balanced: bool) -> dict[str, float]:
    n_classes = len(counts)
    inside = np.clip(p, _CLIP, 1.0)
    scores = {
        "log_loss": float(log_losses(y, inside / inside.sum(axis=1, keepdims=True)).mean()),
        "macro_ap": float(np.nanmean(average_precisions(y, p))),
    }
    for name, costs in cost_matrices(counts).items():
        chosen = p.argmax(axis=1) if is_balanced else costs.choose(p)
        habit = min(costs.costs[y, action].sum() for action in range(n_classes))
        scores[f"cost_{name}"] = float(costs.costs[y, chosen].sum() / habit)
        if name == "inverse":
            decided = decision_counts(y, chosen, n_classes)
            scores |= {"g_mean": decided.g_mean, "balanced_accuracy": decided.balanced_accuracy}
            scores["macro_f1"] = decided.macro_f1
    return scores
