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
    """One line for each test, below a line of heads; for more than two classes one for each class."""
    lines = []
    if len(tracks[None].classes) == 2:
        heads = (("rows", 10), ("positive", 10), ("Z", 8), ("Z (ref.)", 10), ("drift", 8), ("evidence", 12), ("bar", 9))
        lines = [f"  {'rows of':<16}" + "".join(f"{head:>{width}}" for head, width in heads)]
    for name, track in tracks.items():
        label = "all" if name is None else name
        if not track.history:
            lines.append(f"  {label:<16}{'no rows yet':>10}")
            continue
        last, bar = track.history[-1], 1.0 / track.level
        evidence = math.exp(min(last.log_evidence, 700.0))
        if len(track.classes) == 2:
            lines.append(
                f"  {label:<16}{last.n_rows:>10,}{last.n_pos:>10,}{last.z:>8.2f}{last.z_reference:>10.2f}"
                f"{last.drift:>+8.2f}{evidence:>12.3g}{bar:>9.4g}"
            )
            continue
        lines.append(f"  rows of {label}: {last.n_rows:,}, evidence {evidence:.3g} (bar {bar:.4g})")
        lines.append(f"    {'class':<16}{'rows':>10}{'Z':>8}{'drift':>8}")
        for one, count, z, drift in zip(track.classes, last.counts, last.z_by_class, last.drift_by_class, strict=True):
            lines.append(f"    {one!s:<16}{count:>10,}{z:>8.2f}{drift:>+8.2f}")
    return lines


def _curves(tracks: Tracks, quantity: str) -> list[tuple[str | None, str, list[int], list[float]]]:
    """Curves to draw: test, name, batches and values."""
    curves = []
    for name, track in tracks.items():
        label, batches = "all rows" if name is None else name, [r.batch for r in track.history]
        if quantity == "evidence":
            bar = math.log(track.level)
            curves.append((name, label, batches, [(r.log_evidence + bar) / math.log(10.0) for r in track.history]))
        elif name is None or len(track.classes) == 2:  # a line for each class of a segment would be too many
            for k, one in enumerate(track.classes[track.tested]):
                values = [getattr(r, f"{quantity}_by_class")[k] for r in track.history]
                curves.append((name, label if len(track.classes) == 2 else str(one), batches, values))
    return curves


def draw_readings(tracks: Tracks, alarms: list[DriftAlarm], ax: Any, quantity: str) -> Any:
    """Draw a quantity of every test over batches, with its alarms."""
    if quantity not in _QUANTITIES:
        raise InvalidParameter(f"quantity must be one of {', '.join(_QUANTITIES)}, got {quantity!r}")
    if ax is None:
        _, ax = need("matplotlib.pyplot", "plots").subplots()
    for name, label, batches, values in _curves(tracks, quantity):
        (line,) = ax.plot(batches, values, marker=".", linewidth=2.0 if name is None else 1.0, label=label)
        for alarm in alarms:
            if alarm.segment == name:
                ax.axvline(alarm.batch, color=line.get_color(), linestyle=":")
    bar = {"label": "alarm", "linestyle": "--"} if quantity == "evidence" else {"linewidth": 0.8}
    ax.axhline(0.0, color="black", **bar)
    ax.set(xlabel="batch", ylabel=_QUANTITIES[quantity])
    ax.legend()
    return ax
