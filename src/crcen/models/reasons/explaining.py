"""Reasons of rows as a fitted model's inner estimator takes them: of two classes, or of several."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.reasons.background import chosen_rows
from crcen.models.reasons.class_reasons import explain_classes
from crcen.models.reasons.reasons import Reasons
from crcen.models.reasons.shapley import ShapleyValues, shapley_of_ensemble, shapley_of_function
from crcen.theory.labels import Labels

__all__ = ["explain_rows"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def explain_rows(
    model: Any,
    X: Array,
    background: Array | None,
    blocks: Sequence[Index],
    columns: Sequence[str],
    cells: NDArray[np.object_],
    random_state: Any,
    *,
    is_made_up: bool = False,
    classes: Any = None,
) -> Reasons:
    """Reasons of rows as a model's inner estimator takes them.

    Parameters
    ----------
    model
        One with an ``ensemble_``, or any classifier with ``predict_proba``, ``classes_`` and ``pos_label_``.
    X, background
        Rows to explain, and rows to compare with.
    blocks, columns, cells
        Which columns of X are one column of the table, what those are called, and their cells as text.
    random_state
        Seed of the orders in which columns change over.
    is_made_up
        Whether the background are typical rows, all of which are used.
    classes
        Of a model of several classes: the label of each row that is explained, by default what is decided.
    """
    has_several = len(model.classes_) > 2 or getattr(getattr(model, "weighting_", None), "positive", 1) is None
    if classes is not None and not has_several:
        raise InvalidParameter("classes must be left out: reasons of two classes are for the positive one.")
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise InvalidParameter(
            f"random_state must be a whole number from 0: got {random_state!r}.", parameter="random_state"
        )
    if background is None or not len(background):
        raise InvalidParameter(
            "reasons compare rows with others, and this model keeps none: give some as background=, such as those of "
            "training.",
            parameter="background",
        )
    seed = int(random_state)
    Z = background if is_made_up else chosen_rows(background, seed)
    if has_several:
        return _checked(explain_classes(model, X, Z, blocks, columns, cells, classes, seed, _cores()))
    if hasattr(model, "ensemble_"):
        found = shapley_of_ensemble(model.ensemble_, X, Z, blocks, seed, _cores())
    else:
        found = shapley_of_function(_log_odds_of(model), X, Z, blocks, seed)
    return _reasons(found, columns, cells)


def _reasons(found: ShapleyValues, columns: Sequence[str], cells: NDArray[np.object_]) -> Reasons:
    return _checked(Reasons(tuple(columns), found.values, found.errors, found.logits, found.base, cells))


def _checked(found: Reasons) -> Reasons:
    if not np.isfinite(found.values).all():
        raise InvalidInput("X holds values too large for this model: its output overflows.")
    return found


def _log_odds_of(model: Any) -> Callable[[Array], Array]:
    column = Labels.of_model(model).column

    def log_odds(X: Array) -> Array:
        p = np.clip(np.asarray(model.predict_proba(X), dtype=np.float64)[:, column], 1e-7, 1.0 - 1e-7)
        return np.asarray(np.log(p) - np.log1p(-p))

    return log_odds


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
