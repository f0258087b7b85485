"""The price of a wish by labelled rows that a model did not see."""

from typing import Any

from crcen import InvalidParameter
from crcen.commands.decided_rows import chosen_price
from crcen.commands.evaluation import scored_rows
from crcen.commands.inputs import Source, target_of
from crcen.decisions.choose import ChosenWeighting
from crcen.theory.goals import ThresholdGoal

__all__ = ["chosen_on"]


def chosen_on(model: Any, source: Source, wish: Any, *, target: str | None = None, verbose: int = 0) -> ChosenWeighting:
    """Choose a price on rows of a table.

    Parameters
    ----------
    model : fitted classifier
        One that did not see these rows: where it can tell that it did, a guarantee is refused.
    source : Source
        Labelled rows.
    wish : RecallAtLeast, PrecisionAtLeast or Capacity
        What is wanted.
    target : str, optional
        Column with the labels; by default that of training.
    verbose : int, default=0
        1 shows progress on a terminal.

    Returns
    -------
    ChosenWeighting
        The price, and what it brings on these rows.
    """
    if not isinstance(wish, ThresholdGoal):
        raise InvalidParameter(
            "held_out must go with a recall, a precision or a capacity: a price needs no other rows.",
            parameter="held_out",
        )
    if wish.period is not None:
        raise InvalidParameter(f"{wish} is counted among the rows to score: leave held_out out.")
    y, p, _, watch = scored_rows(model, source, target_of(target, model, source), verbose)
    chosen = chosen_price(wish, y, p, None, watch.recognition(), source.name)
    assert chosen is not None  # it is a wish
    return chosen
