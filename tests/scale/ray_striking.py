"""For tests of Ray: a network of loopback alone, files to train on, and ways to strike a running fit."""

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import crcen
from crcen.scale.arrow_source import ArrowSource
from crcen.training.stream import StreamTrainer

_NEW_NET = 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1


@contextmanager
def loopback_only():
    """Take this thread, and all that it starts, into a network of loopback alone; OSError if that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_NEW_NET):
            raise OSError(ctypes.get_errno(), "no network namespace of one's own")
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                request = struct.pack("16sh22x", b"lo", 0)
                (flags,) = struct.unpack_from("h", fcntl.ioctl(any_socket, _GET_FLAGS, request), 16)
                fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh22x", b"lo", flags | _UP))
            yield
        finally:
            libc.setns(before, _NEW_NET)
    finally:
        os.close(before)


def write_files(folder, events, sizes):
    """Events as uneven files of different number types; the last file, of ``sizes[-1]`` rows, has no positive."""
    folder.mkdir()
    X, y = (np.concatenate(parts) for parts in zip(*events, strict=True))
    lone = np.flatnonzero(y == 0)[-sizes[-1] :]
    rest = np.setdiff1d(np.arange(len(y)), lone)
    groups = np.split(rest, np.cumsum(sizes[:-1]))
    for number, rows in enumerate([*groups, lone]):
        columns = {name: X[rows, j] for j, name in enumerate(events.feature_names)}
        labels = pa.array(np.where(y[rows], "event", "none"))
        columns["x0"] = columns["x0"].astype(np.float32 if number % 2 else np.float64)
        pq.write_table(pa.table({**columns, "kind": labels}), folder / f"{number}.parquet", row_group_size=700)
    return sorted(folder.glob("*.parquet"))


def checkpoints(storage):
    """What Ray's record says of the checkpoints of a fit that are complete: rows seen, at them and when it started."""
    for record in Path(storage).glob("crcen-*/checkpoint_manager_snapshot.json"):
        try:
            return [one["metrics"] for one in json.loads(record.read_text())["checkpoint_results"]]
        except ValueError:  # being written
            break
    return []


def pids_of(title):
    """Processes of our own network whose title holds a text."""
    own, found = os.stat("/proc/thread-self/ns/net").st_ino, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if title in (folder / "cmdline").read_text() and os.stat(folder / "ns/net").st_ino == own:
                found.append(int(folder.name))
        except OSError:
            continue
    return sorted(found)


@contextmanager
def striking(storage, strike):
    """Call ``strike`` once, from another thread, when a checkpoint is there; yields a list of what it returned."""
    struck, is_over = [], threading.Event()

    def watch():
        while not is_over.wait(0.02):
            if checkpoints(storage):
                struck.append(strike())
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield struck
    finally:
        is_over.set()
        thread.join()


def kill_a_worker():
    """Kill the last of the workers that train."""
    pid = pids_of("ray::RayTrainWorker")[-1]
    os.kill(pid, signal.SIGKILL)
    return pid


def starve_a_worker():
    """Let the last of the workers have no more memory than it has now."""
    pid = pids_of("ray::RayTrainWorker")[-1]
    sizes = Path(f"/proc/{pid}/status").read_text().splitlines()
    most = 1024 * next(int(line.split()[1]) for line in sizes if line.startswith("VmSize"))
    resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
    return pid


class Hungry(ArrowSource):
    """A source whose first worker to look at it runs out of memory after some steps: once, where a file marks it."""

    def check_unchanged(self):
        super().check_unchanged()
        marker = Path(os.environ["CRCEN_HUNGRY"])
        if marker.exists():
            return
        marker.touch()
        step, left = StreamTrainer.step, iter(range(15))

        def hungry_step(trainer, batch):
            if next(left, None) is None:
                raise MemoryError("no memory is left")
            return step(trainer, batch)

        StreamTrainer.step = hungry_step


def log_loss(model, X, y):
    """Mean log loss of a model's natural probabilities."""
    p = model.predict_proba(frame(X))[np.arange(len(y)), np.searchsorted(model.classes_, np.where(y, "event", "none"))]
    return float(-np.log(p).mean())


def frame(X):
    """Rows with the names of their columns."""
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


def events_of(n, n_features=5):
    """Events with a known posterior, one in ten."""
    return crcen.make_rare_events(n, n_features=n_features, imbalance_ratio=9, seed=3)
