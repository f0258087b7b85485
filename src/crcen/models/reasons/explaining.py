"""Reasons of rows as a fitted model's inner estimator takes them."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.text import listed
from crcen._support.values import label_key
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.reasons.background import chosen_rows
from crcen.models.reasons.reasons import Reasons
from crcen.models.reasons.shapley import shapley_of_ensemble, shapley_of_function
from crcen.theory.labels import Labels

__all__ = ["explain_rows"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Probabilities are at least this in the log-odds of classifiers without logits.
_LEAST = 1e-7


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
        pairs = _class_pairs(model, X, classes)
    else:
        labels = model.ensemble_.labels if hasattr(model, "ensemble_") else Labels.of_model(model)
        pairs = np.full(len(X), labels.column), np.full(len(X), 1 - labels.column)
    if hasattr(model, "ensemble_"):
        found = shapley_of_ensemble(model.ensemble_, X, Z, blocks, pairs, seed, _cores())
    else:
        found = shapley_of_function(_logits_of(model, has_several), X, Z, blocks, pairs, seed)
    if not np.isfinite(found.values).all():
        raise InvalidInput("X holds values too large for this model: its output overflows.")
    values = (tuple(columns), found.values, found.errors, found.log_odds)
    if not has_several:
        return Reasons(*values, float(found.base[0]), cells)
    return Reasons(*values, found.base, cells, *(_labelled(model.classes_.tolist(), side) for side in pairs))


def _class_pairs(model: Any, X: Array, classes: Any) -> tuple[Index, Index]:
    """Numbers of the explained class of each row, by default the decided one, and of the most probable other class."""
    p = np.asarray(model.predict_proba(X), dtype=np.float64)
    costs = getattr(model, "costs_", None)
    actions = () if costs is None else costs.actions
    first = _numbers(model.predict(X) if classes is None else classes, model.classes_.tolist(), actions, p)
    others = p.copy()
    others[np.arange(len(p)), first] = -1.0
    return first, others.argmax(axis=1)


def _numbers(classes: Any, labels: list[Any], actions: Sequence[Any], p: Array) -> Index:
    """The number of each row's class; where an action was decided, that of the likeliest one."""
    place = {label_key(label): k for k, label in enumerate(labels)}
    given = [classes] * len(p) if np.ndim(classes) == 0 else list(classes)
    if len(given) != len(p):
        raise InvalidParameter(f"classes must have one label a row: got {len(given)} for {len(p)}.")
    known = {*place, *map(label_key, actions)}
    unknown = next((one for one in given if label_key(one) not in known), None)
    if unknown is not None:
        raise InvalidParameter(f"classes must be of this model, {listed(labels)}: got {unknown!r}.")
    likeliest = p.argmax(axis=1)
    return np.array([place.get(label_key(one), likely) for one, likely in zip(given, likeliest, strict=True)], np.int64)


def _labelled(labels: list[Any], numbers: Index) -> NDArray[np.object_]:
    found = np.empty(len(numbers), dtype=object)
    found[:] = [labels[k] for k in numbers]
    return found


def _logits_of(model: Any, has_several: bool) -> Callable[[Array], Array]:
    """Natural logits (n, K) of any classifier; the negative class of a binary problem has the logit 0."""

    def logits(X: Array) -> Array:
        p = np.asarray(model.predict_proba(X), dtype=np.float64)
        if has_several:
            return np.log(np.clip(p, _LEAST, 1.0))
        labels = Labels.of_model(model)
        positive = np.clip(p[:, labels.column], _LEAST, 1.0 - _LEAST)
        return labels.columns(np.log(positive) - np.log1p(-positive))

    return logits


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
