"""Parameters that scikit-learn's networks have under other names: refused with a sentence that says ours."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

__all__ = ["OURS", "says_our_names"]

_Given = ParamSpec("_Given")

# Their name → what to write instead.
OURS = {
    "alpha": "l2; MLPClassifier's alpha = l2 * batch_size is the same penalty",
    "class_weight": "weighting, as 'balanced', Budget(5) or {label: weight}",
    "hidden_layer_sizes": "hidden",
    "learning_rate_init": "learning_rate",
    "max_iter": "max_epochs",
    "n_iter_no_change": "early_stopping=True, which keeps the best epoch",
    "n_jobs": "nothing: one fit trains its networks together; see Notes",
    "warm_start": "partial_fit",
}


def says_our_names(initialise: Callable[_Given, None]) -> Callable[_Given, None]:
    """Make an ``__init__`` refuse names of other libraries by ours; its signature stays."""

    @wraps(initialise)
    def told(*args: _Given.args, **kwargs: _Given.kwargs) -> None:
        foreign: list[Any] = [name for name in kwargs if name in OURS]
        if foreign:
            raise TypeError(f"{type(args[0]).__name__} has no parameter {foreign[0]!r}: use {OURS[foreign[0]]}.")
        initialise(*args, **kwargs)

    return told
