"""Counters of all workers in one shared array, and their text for Prometheus."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Metrics"]

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CODES = ("2xx", "3xx", "4xx", "5xx")
_ROWS = {
    "rows": "Rows decided.",
    "alarms": "Rows with another decision than the default one.",
    "unlike": "Rows unlike training: extreme, unseen or missing values.",
    "audits": "Rows without an alarm that were drawn for an audit.",
    "labels": "Labels received.",
}


class Metrics:
    """Counters; each worker adds to its own row of a file that all of them map.

    Parameters
    ----------
    models : sequence of str
        Names of the models.
    path : Path or None
        The shared file, made by the first process; None for one worker.
    worker, n_workers : int
        Which row is this worker's.
    """

    def __init__(self, models: Sequence[str], path: Path | None = None, worker: int = 0, n_workers: int = 1) -> None:
        self._models = list(models)
        width = len(_CODES) + len(_BOUNDS) + 2 + len(_ROWS) * len(self._models)
        shape = (n_workers, width)
        self._all: Any = np.zeros(shape) if path is None else np.memmap(path, np.float64, "r+", shape=shape)
        self._own = self._all[worker]

    @staticmethod
    def create(path: Path, n_models: int, n_workers: int) -> None:
        """Make the shared file."""
        width = len(_CODES) + len(_BOUNDS) + 2 + len(_ROWS) * n_models
        path.write_bytes(bytes(8 * width * n_workers))

    def request(self, status: int, seconds: float) -> None:
        """Count a request."""
        self._own[min(max(status // 100 - 2, 0), 3)] += 1
        start = len(_CODES)
        self._own[start + int(np.searchsorted(_BOUNDS, seconds))] += 1
        self._own[start + len(_BOUNDS) + 1] += seconds

    def add(self, model: str, **counts: float) -> None:
        """Count rows of a model."""
        start = len(_CODES) + len(_BOUNDS) + 2 + len(_ROWS) * self._models.index(model)
        for i, name in enumerate(_ROWS):
            self._own[start + i] += counts.get(name, 0)

    def text(self, gauges: dict[str, dict[str, float]]) -> str:
        """The exposition format; ``gauges`` has further values by name and model."""
        total = np.asarray(self._all.sum(axis=0))
        lines = ["# HELP crcen_requests_total Requests by status.", "# TYPE crcen_requests_total counter"]
        lines += [f'crcen_requests_total{{status="{code}"}} {total[i]:.0f}' for i, code in enumerate(_CODES)]
        start = len(_CODES)
        lines += ["# HELP crcen_request_seconds Time to answer.", "# TYPE crcen_request_seconds histogram"]
        counts = np.cumsum(total[start : start + len(_BOUNDS) + 1])
        bounds = [*map(str, _BOUNDS), "+Inf"]
        lines += [f'crcen_request_seconds_bucket{{le="{b}"}} {n:.0f}' for b, n in zip(bounds, counts, strict=True)]
        start += len(_BOUNDS) + 1
        lines += [f"crcen_request_seconds_sum {total[start]:.6f}", f"crcen_request_seconds_count {counts[-1]:.0f}"]
        by_model = total[start + 1 :].reshape(len(self._models), len(_ROWS))
        for i, (name, text) in enumerate(_ROWS.items()):
            lines += [f"# HELP crcen_{name}_total {text}", f"# TYPE crcen_{name}_total counter"]
            lines += [
                f'crcen_{name}_total{{model="{_escaped(model)}"}} {by_model[j, i]:.0f}'
                for j, model in enumerate(self._models)
            ]
        for name, values in gauges.items():
            lines += [f"# TYPE crcen_{name} gauge"]
            lines += [f'crcen_{name}{{model="{_escaped(model)}"}} {value:g}' for model, value in values.items()]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
