"""Steps that run in child processes: progress, time limit, cancel; nothing is left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Job", "remove_at_end"]

_TITLES = {"look": "Reading the table", "fit": "Fitting", "score": "Scoring rows", "monitor": "Comparing rows"}


class Job:
    """A step in a child process, with a folder for its files.

    Parameters
    ----------
    step : str
        "look", "fit", "score" or "monitor".
    options : dict
        Of the public function, as JSON.
    folder : Path
        Made for this job. Removed if the job fails or is cancelled.
    done : callable
        Called with the result.
    limit : float or None
        Seconds after which the job is ended.
    """

    def __init__(
        self,
        step: str,
        options: dict[str, Any],
        folder: Path,
        done: Callable[[dict[str, Any]], None],
        limit: float | None = None,
    ) -> None:
        self.step, self.status, self.error = step, "running", ""
        self.title, self.share = _TITLES[step], None
        self._folder, self._done, self._start, self._limit = folder, done, time.monotonic(), limit
        self._seconds: float | None = None
        scratch = folder / "scratch"
        scratch.mkdir(parents=True)
        environment = {**os.environ, "TMPDIR": str(scratch), "JOBLIB_TEMP_FOLDER": str(scratch)}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "crcen.serve.tasks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
            start_new_session=True,
        )
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps({"step": step, "options": options}, default=str) + "\n")
            self._child.stdin.flush()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def to_dict(self) -> dict[str, Any]:
        """Where it stands."""
        seconds = time.monotonic() - self._start if self._seconds is None else self._seconds
        found = {"step": self.step, "status": self.status, "title": self.title, "share": self.share}
        return {**found, "seconds": round(seconds, 1), "error": self.error}

    def cancel(self, status: str = "cancelled", why: str = "") -> None:
        """End the child and its own children, and remove its files."""
        if self.status == "running":
            self.status, self.error = status, why
            self._kill()
            self._thread.join(10)

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait(10)

    def _read(self) -> None:
        assert self._child.stdout is not None
        timer = None
        if self._limit is not None:
            why = f"the step was ended after {self._limit:g} seconds: choose a longer time limit or fewer rows."
            timer = threading.Timer(self._limit, lambda: self.cancel("failed", why))
            timer.daemon = True
            timer.start()
        result = None
        for line in self._child.stdout:
            message = json.loads(line)
            if "result" in message:
                result = message["result"]
            elif "error" in message:
                self.error = message["error"]
            else:
                self.title, self.share = _TITLES[self.step], message["progress"]
        self._kill()  # children of the child
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        if timer is not None:
            timer.cancel()
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


_JANITOR = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"


def remove_at_end(folder: Path) -> "subprocess.Popen[bytes]":
    """A process that removes a folder when this process ends in any way, also by SIGKILL."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _JANITOR, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
