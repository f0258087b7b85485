"""A monitor as a table of text and as a drawing."""

import math
from typing import Any

from crcen._support.extras import need
from crcen.decisions.monitor.track import DriftAlarm, Track
from crcen.exceptions import InvalidParameter

__all__ = ["draw_readings", "table_of_readings"]

Tracks = dict[str | None, Track]

_QUANTITIES = {
    "evidence": "evidence, powers of ten over the bar",
    "z": "Z against the model alone",
    "drift": "drift in log-odds",
}


def table_of_readings(tracks: Tracks) -> list[str]:
    """One line for each test, below a line of heads."""
    heads = (("rows", 10), ("positive", 10), ("Z", 8), ("Z (ref.)", 10), ("drift", 8), ("evidence", 12), ("bar", 9))
    lines = [f"  {'rows of':<16}" + "".join(f"{head:>{width}}" for head, width in heads)]
    for name, track in tracks.items():
        label = "all" if name is None else name
        if not track.history:
            lines.append(f"  {label:<16}{'no rows yet':>10}")
            continue
        last = track.history[-1]
        evidence = math.exp(min(last.log_evidence, 700.0))
        lines.append(
            f"  {label:<16}{last.n_rows:>10,}{last.n_pos:>10,}{last.z:>8.2f}{last.z_reference:>10.2f}"
            f"{last.drift:>+8.2f}{evidence:>12.3g}{1.0 / track.level:>9.4g}"
        )
    return lines


def draw_readings(tracks: Tracks, alarms: list[DriftAlarm], ax: Any, quantity: str) -> Any:
    """Draw a quantity of every test over batches, with its alarms."""
    if quantity not in _QUANTITIES:
        raise InvalidParameter(f"quantity must be one of {', '.join(_QUANTITIES)}, got {quantity!r}")
    if ax is None:
        _, ax = need("matplotlib.pyplot", "plots").subplots()
    for name, track in tracks.items():
        values = [
            (r.log_evidence + math.log(track.level)) / math.log(10.0)
            if quantity == "evidence"
            else getattr(r, quantity)
            for r in track.history
        ]
        label, width = ("all rows", 2.0) if name is None else (name, 1.0)
        (line,) = ax.plot([r.batch for r in track.history], values, marker=".", linewidth=width, label=label)
        for alarm in alarms:
            if alarm.segment == name:
                ax.axvline(alarm.batch, color=line.get_color(), linestyle=":")
    bar = {"label": "alarm", "linestyle": "--"} if quantity == "evidence" else {"linewidth": 0.8}
    ax.axhline(0.0, color="black", **bar)
    ax.set(xlabel="batch", ylabel=_QUANTITIES[quantity])
    ax.legend()
    return ax
