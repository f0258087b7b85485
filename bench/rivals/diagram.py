"""Critical-difference diagrams: mean ranks on an axis, bars over methods that Nemenyi's test cannot tell apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from crcen._support.extras import need

__all__ = ["Ranking", "cliques", "draw_ranks"]

_OURS_COLOUR = "#d55e00"


@dataclass(frozen=True)
class Ranking:
    """One panel: mean ranks by label, the critical difference, and whose label is set off."""

    title: str
    ranks: Mapping[str, float]
    difference: float
    marked: Sequence[str] = ()


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """First and last position, in ascending ranks, of every largest run of two or more within the difference."""
    found: list[tuple[int, int]] = []
    for start in range(len(ranks)):
        end = max(i for i in range(start, len(ranks)) if ranks[i] - ranks[start] <= difference)
        if end > start and (not found or end > found[-1][1]):
            found.append((start, end))
    return found


def draw_ranks(rankings: Sequence[Ranking], suffix: str) -> bytes:
    """One panel a ranking, as ``svg`` or ``png``; the same ranks give the same bytes."""
    need("matplotlib", "plots")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [0.9 + 0.19 * ((len(r.ranks) + 1) // 2 + len(cliques(sorted(r.ranks.values()), r.difference)) / 2)
               for r in rankings]  # fmt: skip
    figure = Figure(figsize=(9.5, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rankings), squeeze=False, gridspec_kw={"height_ratios": heights})
    for ax, ranking in zip(axes[:, 0], rankings, strict=True):
        _panel(ax, ranking)
    buffer = BytesIO()
    metadata = {"Date": None, "Creator": None} if suffix == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "crcen"}):
        figure.savefig(buffer, format=suffix, dpi=120, metadata=metadata)
    return buffer.getvalue()


def _panel(ax: Any, ranking: Ranking) -> None:
    """The axis on top, bars below it, labels in two columns, the better half on the left."""
    ordered = sorted(ranking.ranks.items(), key=lambda item: item[1])
    values = [value for _, value in ordered]
    low, high = 1.0, float(max(len(values), 2))
    groups = cliques(values, ranking.difference)
    on_left = (len(values) + 1) // 2
    depth = -0.6 - 0.45 * len(groups)
    for i, (start, end) in enumerate(groups):
        height = -0.35 - 0.45 * i
        ax.plot([values[start] - 0.04, values[end] + 0.04], [height, height], color="black", linewidth=3)
    for i, (label, value) in enumerate(ordered):
        is_left = i < on_left
        height = depth - (i if is_left else len(values) - 1 - i)
        edge = low - 0.04 * (high - low) if is_left else high + 0.04 * (high - low)
        colour = _OURS_COLOUR if label in ranking.marked else "black"
        ax.plot([value, value, edge], [0, height, height], color=colour, linewidth=0.9)
        ax.text(edge, height, f" {label} {value:.2f} ", ha="right" if is_left else "left", va="center",
                color=colour, fontsize=9)  # fmt: skip
    ax.plot([low, high], [0, 0], color="black", linewidth=1)
    for tick in range(1, int(high) + 1):
        ax.plot([tick, tick], [0, 0.15], color="black", linewidth=1)
        ax.text(tick, 0.25, str(tick), ha="center", va="bottom", fontsize=8)
    ax.plot([low, low + ranking.difference], [1.7, 1.7], color="black", linewidth=1.5, marker="|")
    text = f"critical difference {ranking.difference:.2f}"
    ax.text(low + ranking.difference, 1.7, f"  {text}", ha="left", va="center", fontsize=8)
    ax.set_title(ranking.title, fontsize=10, loc="left")
    span = high - low
    ax.set_xlim(low - 0.45 * span, high + 0.45 * span)
    ax.set_ylim(depth - on_left, 2.3)
    ax.axis("off")
