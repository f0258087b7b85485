"""Steps of the application in child processes: progress, time limit, cancel; nothing is left behind.

A child is ``python -m crcen.serve.jobs``. The first line of its standard input is JSON with the step and its options.
Progress and the result are lines of JSON on standard output. If standard input closes, because the application ended,
the child and its own children end at once.
"""

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

_TITLES = {"look": "Reading the table", "fit": "Fitting", "score": "Scoring rows", "monitor": "Comparing rows"}
_SECONDS_BETWEEN = 0.2
_JANITOR = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"


class Job:
    """A step in a child process: "look", "fit", "score" or "monitor" with options of the public function, as JSON.

    Its folder is removed if the job fails or is cancelled. ``done`` takes the result; ``limit`` is in seconds.
    """

    def __init__(
        self,
        step: str,
        options: dict[str, object],
        folder: Path,
        done: Callable[[dict[str, object]], None],
        limit: float | None = None,
    ) -> None:
        self.step, self.status, self.error = step, "running", ""
        self._share: float | None = None
        self._seconds: float | None = None
        self._folder, self._done, self._start, self._limit = folder, done, time.monotonic(), limit
        scratch = folder / "scratch"
        scratch.mkdir(parents=True)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "crcen.serve.jobs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(scratch), "JOBLIB_TEMP_FOLDER": str(scratch)},
            text=True,
            start_new_session=True,
        )
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps({"step": step, "options": options}, default=str) + "\n")
            self._child.stdin.flush()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def to_dict(self) -> dict[str, object]:
        """Where it stands."""
        seconds = time.monotonic() - self._start if self._seconds is None else self._seconds
        found = {"step": self.step, "status": self.status, "title": _TITLES[self.step], "share": self._share}
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
        """Follow the child to its end."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        timer = None
        if self._limit is not None:
            why = f"the step was ended after {self._limit:g} seconds: choose a longer time limit or fewer rows."
            timer = threading.Timer(self._limit, self.cancel, ("failed", why))
            timer.daemon = True
            timer.start()
        result = None
        for line in self._child.stdout:
            message = json.loads(line)
            result = message.get("result", result)
            self.error = message.get("error", self.error)
            self._share = message.get("progress", self._share)
        self._kill()  # children of the child
        for pipe in (self._child.stdin, self._child.stdout):
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


def remove_at_end(folder: Path) -> "subprocess.Popen[bytes]":
    """A process that removes a folder when this process ends in any way, also by SIGKILL."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _JANITOR, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )


def run_step(step: str, options: dict[str, Any]) -> dict[str, object]:
    """Call the public function of a step: its text and plain values."""
    import crcen

    if isinstance(options.get("weighting"), list):
        name, value = options["weighting"]
        kinds: dict[str, Callable[[float], object]] = {
            "budget": crcen.Budget,
            "recall": crcen.RecallAtLeast,
            "precision": crcen.PrecisionAtLeast,
            "capacity": lambda alarms: crcen.Capacity(int(alarms), per=1000),
        }
        options = {**options, "weighting": kinds[name](value)}
    functions: dict[str, Callable[..., Any]] = {
        "look": crcen.look_at_table,
        "fit": crcen.fit_table,
        "score": crcen.predict_table,
        "monitor": crcen.monitor_table,
    }
    result = functions[step](verbose=1, **options)
    return {"text": str(result), "values": result.to_dict()}


def main() -> None:
    """Run the step on standard input."""
    stdin, stdout = sys.stdin, sys.stdout
    sys.stdout = sys.stderr  # nothing else may write to the pipe
    request = json.loads(stdin.readline())

    def watch() -> None:
        stdin.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()

    def send(message: dict[str, object]) -> None:
        stdout.write(json.dumps(message, allow_nan=False, default=str) + "\n")
        stdout.flush()

    from crcen._support.progress import report_to
    from crcen.exceptions import CrcenError

    last = (0.0, "")

    def progress(title: str, share: float | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last[0] > _SECONDS_BETWEEN or last[1] != title:
            last = (now, title)
            send({"progress": None if share is None else round(min(max(share, 0.0), 1.0), 4)})

    report_to(progress)
    try:
        send({"result": run_step(request["step"], request["options"])})
    except (CrcenError, OSError) as error:
        send({"error": " ".join(str(error).split())})
    except MemoryError:
        send({"error": "the table does not fit into memory: use fewer rows, or crcen fit --engine stream."})
    os._exit(0)


if __name__ == "__main__":
    main()
