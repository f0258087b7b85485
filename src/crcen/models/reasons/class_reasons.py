"""ClassReasons: why a row is decided for a class rather than for the likeliest other one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.text import listed
from crcen._support.values import label_key
from crcen.exceptions import InvalidParameter
from crcen.models.reasons.class_shapley import shapley_of_class_function, shapley_of_classes
from crcen.models.reasons.reasons import Reasons
from crcen.models.reasons.shapley import ShapleyValues

__all__ = ["ClassReasons", "explain_classes"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_LEAST = 1e-7


@dataclass(frozen=True, eq=False)
class ClassReasons(Reasons):
    """What columns add to the natural log-odds of a class against another; prints itself.

    Parameters
    ----------
    classes, rivals : object arrays of shape (n,)
        For every row the class that is explained, and the likeliest other one, which it is compared with. ``log_odds``
        are log p(class) / p(rival), and ``base`` is (n,): their mean over the rows that these are compared with.
    """

    classes: NDArray[np.object_]
    rivals: NDArray[np.object_]

    @property
    def about(self) -> str:
        """What the values are compared with, and how exact they are."""
        return f"against typical rows, for a class rather than the likeliest other one, {self.exactness}"

    def sentences(self, number: int = 3) -> list[list[str]]:
        """For every row its strongest reasons in words; they speak of ``classes`` against ``rivals``."""
        return super().sentences(number)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        pairs = {"classes": [str(one) for one in self.classes], "rivals": [str(one) for one in self.rivals]}
        return {**super().to_dict(), "base": np.asarray(self.base).tolist(), **pairs}

    def _some(self, n: int) -> "ClassReasons":
        arrays = (self.values[:n], self.errors[:n], self.log_odds[:n], np.asarray(self.base)[:n], self.cells[:n])
        return ClassReasons(self.columns, *arrays, self.classes[:n], self.rivals[:n])

    def _line(self, row: int, reasons: list[str]) -> str:
        return f"{self.classes[row]} rather than {self.rivals[row]}: {super()._line(row, reasons)}"


def explain_classes(
    model: Any,
    X: Array,
    background: Array,
    blocks: Sequence[Index],
    columns: Sequence[str],
    cells: NDArray[np.object_],
    classes: Any,
    seed: int,
    threads: int,
) -> ClassReasons:
    """Reasons of rows for a class each: the given ones, or what is decided, or for an action the likeliest class."""
    p = np.asarray(model.predict_proba(X), dtype=np.float64)
    labels = model.classes_.tolist()
    costs = getattr(model, "costs_", None)
    actions = () if costs is None else costs.actions
    first = _numbers(model.predict(X) if classes is None else classes, labels, actions, p)
    others = p.copy()
    others[np.arange(len(p)), first] = -1.0
    second = others.argmax(axis=1)
    if hasattr(model, "ensemble_"):
        found = shapley_of_classes(model.ensemble_, X, background, blocks, (first, second), seed, threads)
    else:
        found = shapley_of_class_function(_log_posterior(model), X, background, blocks, (first, second), seed)
    return _reasons(found, columns, cells, *(_labelled(labels, side) for side in (first, second)))


def _reasons(
    found: ShapleyValues,
    columns: Sequence[str],
    cells: NDArray[np.object_],
    classes: NDArray[np.object_],
    rivals: NDArray[np.object_],
) -> ClassReasons:
    values = (found.values, found.errors, found.logits, found.base)
    return ClassReasons(tuple(columns), *values, cells, classes, rivals)


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


def _log_posterior(model: Any) -> Any:
    def logits(X: Array) -> Array:
        return np.log(np.clip(np.asarray(model.predict_proba(X), dtype=np.float64), _LEAST, 1.0))

    return logits
