"""One step of the application in a process of its own: ``python -m crcen.serve.tasks``.

The first line of standard input is JSON with the step and its options. Progress and the result are lines of JSON on
standard output. If standard input closes, because the application ended, the process and its children end at once.
"""

import json
import os
import signal
import sys
import threading
import time
from typing import Any

__all__ = ["main", "run_step"]

_SECONDS_BETWEEN = 0.2


def run_step(step: str, options: dict[str, Any]) -> dict[str, Any]:
    """Call the public function of a step: its text and plain values."""
    import crcen

    options = dict(options)
    if isinstance(options.get("weighting"), list):
        name, value = options["weighting"]
        kinds: dict[str, Any] = {
            "budget": crcen.Budget,
            "recall": crcen.RecallAtLeast,
            "precision": crcen.PrecisionAtLeast,
            "capacity": lambda alarms: crcen.Capacity(int(alarms), per=1000),
        }
        options["weighting"] = kinds[name](value)
    functions: dict[str, Any] = {
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

    def send(message: dict[str, Any]) -> None:
        stdout.write(json.dumps(message, allow_nan=False, default=str) + "\n")
        stdout.flush()

    from crcen._support.progress import report_to
    from crcen.exceptions import CrcenError

    last: list[Any] = [0.0, ""]

    def progress(title: str, share: float | None) -> None:
        now = time.monotonic()
        if now - last[0] > _SECONDS_BETWEEN or last[1] != title:
            last[:] = now, title
            send({"progress": None if share is None else round(min(max(share, 0.0), 1.0), 4), "title": title})

    report_to(progress)
    try:
        send({"result": run_step(request["step"], request["options"])})
    except (CrcenError, OSError) as error:
        send({"error": " ".join(str(error).split()), "parameters": list(getattr(error, "parameters", ()))})
    except MemoryError:
        send({"error": "the table does not fit into memory: use fewer rows, or crcen fit --engine stream."})
    sys.stdout = stdout
    os._exit(0)


if __name__ == "__main__":
    main()
