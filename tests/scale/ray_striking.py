"""For tests of Ray: a network of loopback alone, files to train on, and ways to strike a running fit."""

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import time
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import crcen
from crcen.scale.sources import ArrowSource
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


@contextmanager
def one_worker(storage, fate):
    """Let one worker meet a fate, once, when a checkpoint is complete; yields a file that exists from then on.

    ``"killed"``, ``"refused memory"`` for one request, or ``"starved"``: no memory from then on.
    """
    struck = Path(storage) / "struck"

    def source(*args, **kwargs):
        made = _Struck(*args, **kwargs)
        made.storage, made.fate, made.chosen, made.struck = storage, fate, Path(storage) / "chosen", struck
        return made

    Path(storage).mkdir(exist_ok=True)
    with mock.patch("crcen.scale.ray.ArrowSource", source):
        yield struck


class _Struck(ArrowSource):
    """The first worker that looks at this source is the one; it strikes itself, so that no strike can be too late."""

    def check_unchanged(self):
        super().check_unchanged()
        try:
            self.chosen.touch(exist_ok=False)
        except FileExistsError:
            return
        step, steps = StreamTrainer.step, count()

        def struck_step(trainer, batch):
            # Workers that took so many steps have reported a checkpoint: the record of it is on its way.
            end = time.monotonic() + (60 if next(steps) >= 45 else 0)
            while not (found := checkpoints(self.storage)) and time.monotonic() < end:
                time.sleep(0.02)
            if found:
                self.struck.touch()
                FATES[self.fate]()
            return step(trainer, batch)

        StreamTrainer.step = struck_step


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def _refuse_memory():
    raise MemoryError("no memory is left")


def _starve():
    sizes = Path("/proc/self/status").read_text().splitlines()
    most = 1024 * next(int(line.split()[1]) for line in sizes if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    bytearray(1 << 30)  # what is free within its size would do for many small requests


FATES = {"killed": _kill, "refused memory": _refuse_memory, "starved": _starve}


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


class KilledTrees(ArrowSource):
    """Kills the first worker that takes its share, once, when a checkpoint of the trees is complete."""

    storage = None

    def share(self, number, count):
        import lightgbm

        with suppress(FileExistsError):
            (Path(self.storage) / "chosen").touch(exist_ok=False)
            update = lightgbm.Booster.update

            def killed_update(booster):
                if checkpoints(self.storage):
                    (Path(self.storage) / "struck").touch()
                    _kill()
                return update(booster)

            lightgbm.Booster.update = killed_update
        return super().share(number, count)
