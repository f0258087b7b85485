"""What every display shares: axes to draw on, and colours that stay apart for the colour-blind."""

from typing import Any

from crcen._support.extras import need

__all__ = ["ALERT", "BLUE", "GREY", "ORANGE", "axes_or_new", "tidy"]

# Okabe and Ito's palette.
BLUE, ORANGE, ALERT, GREY = "#0072b2", "#e69f00", "#d55e00", "#767676"


def axes_or_new(ax: Any, size: tuple[float, float] = (6.4, 4.4)) -> Any:
    """Give back the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    return need("matplotlib.pyplot", "plots").subplots(figsize=size, layout="constrained")[1]


def tidy(ax: Any) -> None:
    """Take away the lines that say nothing."""
    ax.spines[["top", "right"]].set_visible(False)
