"""The price of a wish by labelled rows that a model did not see."""

from typing import Any

import numpy as np

from crcen import ChosenWeighting, InvalidInput, InvalidParameter
from crcen.decisions.choose import choose_on
from crcen.theory.wishes import Capacity, Wish
from crcen.workflow.evaluation import scored_rows
from crcen.workflow.inputs import Source, target_of

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
    if not isinstance(wish, Wish):
        raise InvalidParameter("held_out must go with a wish, such as RecallAtLeast(0.9): a price needs no other rows.")
    if isinstance(wish, Capacity) and isinstance(wish.per, str):
        raise InvalidParameter(f"{wish} is counted among the rows to score: leave held_out out.")
    y, p, _, watch = scored_rows(model, source, target_of(target, model, source), verbose)
    recognition = watch.recognition()
    if getattr(wish, "confidence", None) is not None and recognition is not None and recognition.status == "seen":
        raise InvalidInput(
            f"a guarantee needs rows that the model did not see, and of {source.name} {recognition.measured}."
        )
    return choose_on(y, p, np.ones(len(y)), wish)
