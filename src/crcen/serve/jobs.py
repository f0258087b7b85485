"""Steps of the application in child processes: progress, time limit, cancel; nothing is left behind.

A child leads a session of its own. If the application ends in any way, the child and its own children end at once.
"""

import atexit
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import crcen
from crcen._support.progress import report_to
from crcen._support.values import Values

# Function and title of each step.
_STEPS: dict[str, tuple[str, str]] = {
    "look": ("look_at_table", "Reading the table"),
    "fit": ("fit_table", "Fitting"),
    "score": ("predict_table", "Scoring rows"),
    "monitor": ("monitor_table", "Comparing rows"),
}
_SECONDS_BETWEEN = 0.2


class Job:
    """A step in a child process: "look", "fit", "score" or "monitor" with options of the public function.

    Its folder is removed if the job fails or is cancelled. ``done`` takes the result; ``limit`` is in seconds.
    """

    def __init__(
        self, step: str, options: Values, folder: Path, done: Callable[[Values], None], limit: float | None = None
    ) -> None:
        self.step, self.status, self.error = step, "running", ""
        self._share: float | None = None
        self._seconds: float | None = None
        self._folder, self._done, self._start = folder, done, time.monotonic()
        (folder / "scratch").mkdir(parents=True)
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe(duplex=False)
        self._child = context.Process(target=_work, args=(step, options, folder / "scratch", there))
        self._child.start()
        atexit.register(self._kill)  # before multiprocessing, which would wait for the child
        there.close()
        why = f"the step was ended after {limit or 0:g} seconds: choose a longer time limit or fewer rows."
        self._timer = threading.Timer(limit or threading.TIMEOUT_MAX, self.cancel, ("failed", why))
        self._thread = threading.Thread(target=self._read, daemon=True)
        for one in (self._timer, self._thread):
            one.daemon = True
            one.start()

    def to_dict(self) -> Values:
        """Where it stands."""
        seconds = time.monotonic() - self._start if self._seconds is None else self._seconds
        found = {"step": self.step, "status": self.status, "title": _STEPS[self.step][1], "share": self._share}
        return {**found, "seconds": round(seconds, 1), "error": self.error}

    def cancel(self, status: str = "cancelled", why: str = "") -> None:
        """End the child and its own children, and remove its files."""
        if self.status == "running":
            self.status, self.error = status, why
            self._kill()
            self._thread.join(10)

    def _kill(self) -> None:
        assert self._child.pid is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.kill()  # before it leads a group
        self._child.join(10)

    def _read(self) -> None:
        result = None
        with suppress(EOFError, OSError):
            while True:
                name, value = self._pipe.recv()
                if name == "progress":
                    self._share = value
                elif name == "error":
                    self.error = value
                else:
                    result = value
        self._kill()  # children of the child
        atexit.unregister(self._kill)
        self._pipe.close()
        self._timer.cancel()
        shutil.rmtree(self._folder / "scratch", ignore_errors=True)
        if self.status == "running" and result is not None:
            self._done(result)
            self.status = "done"
        else:
            shutil.rmtree(self._folder, ignore_errors=True)
            if self.status == "running":
                self.error = self.error or "the step ended unexpectedly; the computer may lack memory."
                self.status = "failed"
        self._seconds = time.monotonic() - self._start


def _work(step: str, options: Values, scratch: Path, pipe: Connection) -> None:
    """Run a step in a child process; progress, and the result or an error, go into the pipe."""
    os.setsid()
    os.environ |= {"TMPDIR": str(scratch), "JOBLIB_TEMP_FOLDER": str(scratch)}
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    last = (0.0, "")

    def progress(title: str, share: float | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last[0] > _SECONDS_BETWEEN or last[1] != title:
            last = (now, title)
            pipe.send(("progress", None if share is None else round(min(max(share, 0.0), 1.0), 4)))

    report_to(progress)
    try:
        result = getattr(crcen, _STEPS[step][0])(verbose=1, **options)
        pipe.send(("result", {"text": str(result), "values": result.to_dict()}))
    except (crcen.CrcenError, OSError) as error:
        pipe.send(("error", " ".join(str(error).split())))
    except MemoryError:
        pipe.send(("error", "the table does not fit into memory: use fewer rows, or crcen fit --engine stream."))
    pipe.close()
    os._exit(0)
