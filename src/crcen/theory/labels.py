"""Labels: the classes of a problem in sorted order and, for two classes, the positive one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.price import Price, positive_number, resolved
from crcen.theory.rows import Array, Bools, Index, LabelArray, as_numpy

# Class weights that differ by less than this share are equal; then the number of rows decides which class is rarer.
_TIE = 1e-9


@dataclass(frozen=True, eq=False)
class Labels:
    """K ≥ 2 sorted classes; for a binary problem also the positive class (None where a cost matrix decides).

    The positive class is the one that was asked for; otherwise the class with less weight, or fewer rows if weights
    tie; otherwise the last one.
    """

    classes: LabelArray
    positive: object = None

    @classmethod
    def from_totals(
        cls, classes: LabelArray, weights: ArrayLike, rows: ArrayLike, pos_label: object, weighting: object
    ) -> "Labels":
        """By the weight and the number of rows of each class; no class is positive of K > 2 or with a cost matrix."""
        total, count = np.asarray(weights, dtype=np.float64), np.asarray(rows, dtype=np.float64)
        _check_weight(classes, total)
        has_costs = isinstance(weighting, CostMatrix) or (isinstance(weighting, Price) and weighting.costs is not None)
        if len(classes) > 2 or has_costs:
            if pos_label is not None:
                raise InvalidParameter(
                    f"pos_label is for two classes and a price, and there are {len(classes)} classes"
                    f"{' and a cost matrix' if has_costs else ''}: leave it None, or fit on y == {pos_label!r} to "
                    f"tell that class from the rest."
                )
            return cls(classes)
        if pos_label is not None and (np.asarray(pos_label).ndim or pos_label not in classes.tolist()):
            listed = ", ".join(repr(c) for c in classes.tolist())
            raise InvalidParameter(f"pos_label must be one of the classes {listed}: got {pos_label!r}.")
        return cls(classes, _rarer(classes, total, count) if pos_label is None else pos_label)

    @classmethod
    def from_rows(
        cls, classes: LabelArray, y: LabelArray, weights: Array, pos_label: object = None, weighting: object = None
    ) -> "Labels":
        """By the labels of rows and their weights."""
        own = np.array([y == label for label in classes])
        return cls.from_totals(classes, own @ weights, own.sum(axis=1), pos_label, weighting)

    @classmethod
    def of_model(cls, model: object, y: LabelArray | None = None, weights: Array | None = None) -> "Labels":
        """Labels of a fitted classifier of two classes: its ``pos_label_``, else by these rows, else the last class."""
        classes = np.asarray(getattr(model, "classes_", ()))
        if classes.shape != (2,):
            raise InvalidInput(f"model must be a fitted classifier of two classes, got {type(model).__name__}")
        if hasattr(model, "pos_label_"):
            return cls(classes, model.pos_label_)
        if y is None:
            return cls(classes, classes[1])
        rows = np.array([y == label for label in classes])
        count = rows.sum(axis=1, dtype=np.float64)
        return cls(classes, _rarer(classes, count if weights is None else rows @ weights, count))

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def column(self) -> int:
        """Column of the positive class."""
        if self.positive is None:
            raise InvalidInput(f"none of {self.n_classes} classes is the positive one.")
        return int(self.is_last)

    @property
    def is_last(self) -> bool:
        """Whether the positive class is ``classes[1]``, whose sign scikit-learn's decision functions have."""
        return bool(self.positive == self.classes[1])

    @property
    def negative(self) -> object:
        """The other of two classes."""
        return self.classes[1 - self.column]

    def encode(self, y: ArrayLike, name: str = "y") -> Index:
        """Class numbers of labels; a label that is no class is refused."""
        labels = np.asarray(as_numpy(y))
        numbers = np.full(labels.shape, -1, dtype=np.int64)
        for number, label in enumerate(self.classes.tolist()):  # isin would take "1" for 1
            numbers[np.asarray(labels == label)] = number
        unknown = labels[numbers < 0].tolist()
        if unknown:
            raise InvalidInput(f"{name} must hold the labels {self.classes.tolist()} only: got {unknown[0]!r}.")
        return numbers

    def target(self, y: ArrayLike, name: str = "y") -> LabelArray:
        """The target of training: whether rows are positive, or class numbers if there is no positive class."""
        numbers = self.encode(y, name)
        return numbers if self.positive is None else numbers == self.column

    def is_positive(self, y: ArrayLike) -> Bools:
        """Where labels are the positive class; every other label counts as negative."""
        return np.asarray(np.asarray(as_numpy(y)) == self.positive, dtype=np.bool_)

    def decode(self, decided: Index | Bools) -> LabelArray:
        """Labels of class numbers, or of truth values for the positive class."""
        if decided.dtype == np.bool_:
            decided = np.where(decided, self.column, 1 - self.column)
        return np.asarray(self.classes[decided])

    def counts(self, numbers: Index, weights: ArrayLike) -> Array:
        """Weight of the rows of each class, by class number; each class must have some."""
        found = np.bincount(numbers, np.asarray(weights, np.float64), self.n_classes).astype(np.float64)
        _check_weight(self.classes, found)
        return found

    def columns(self, logits: ArrayLike) -> Array:
        """Logits of all classes, (…, K), from those of a network, which has one logit for K = 2: the positive one."""
        values = np.asarray(logits, dtype=np.float64)
        if self.positive is None:
            return values
        found = np.zeros((*values.shape, 2))
        found[..., self.column] = values
        return found

    def margin(self, columns: Array) -> Array:
        """Log-odds of the positive class, (…), from logits of both classes, (…, 2)."""
        return np.asarray(columns[..., self.column] - columns[..., 1 - self.column])

    def choose(self, logits: Array) -> Index:
        """Number of the class with the largest logit; of equals the negative class, or the first one."""
        if self.positive is None:
            return np.asarray(logits.argmax(axis=-1))
        return np.where(self.margin(logits) > 0, self.column, 1 - self.column)

    def signed(self, logits: Array) -> Array:
        """Logits of ``classes[1]`` from those of the positive class, and back."""
        return logits if self.is_last else -logits

    def in_order(self, columns: Array) -> Array:
        """Columns (…, K) of which the positive class is the last of two, in the order of the classes, and back."""
        return columns if self.positive is None or self.is_last else columns[..., ::-1]

    def pair(self, by_class: Sequence[float] | Array) -> tuple[float, float]:
        """The numbers of the positive and the negative class, of numbers in the order of the classes."""
        return float(by_class[self.column]), float(by_class[1 - self.column])

    def by_class(self, pos: float, neg: float) -> Array:
        """The inverse of `pair`."""
        return np.array([neg, pos] if self.is_last else [pos, neg], dtype=np.float64)

    def resolve(self, weighting: object, counts: ArrayLike) -> Price:
        """Resolve a price (see `crcen.resolve`) with counts in the order of the classes; a dict has labels as keys."""
        if isinstance(weighting, CostMatrix):
            if weighting.is_per_row:
                raise InvalidParameter(
                    "costs that differ by row belong to the rows of a decision: use crcen.decide(proba, costs), and "
                    "fit with weighting=None."
                )
            weighting = weighting.for_classes(self.classes.tolist(), self.positive)
        elif isinstance(weighting, Mapping):
            labels = self.classes.tolist()
            if set(weighting) != set(labels):
                listed = ", ".join(map(repr, labels))
                raise InvalidParameter(f"a weighting dict needs one weight for each of {listed}: got {weighting!r}.")
            weighting = [positive_number(weighting[label], f"the weight of class {label}") for label in labels]
        return resolved(weighting, np.asarray(counts, dtype=np.float64), None if self.positive is None else self.column)


def _check_weight(classes: LabelArray, totals: Array) -> None:
    for label in classes[~(totals > 0.0)].tolist():
        raise InvalidInput(f"every class needs weight: every row of class {label} has sample_weight 0.")


def _rarer(classes: LabelArray, weights: Array, rows: Array) -> object:
    """The class with less weight, or fewer rows if weights tie; the last one if these tie too."""
    decides = rows if abs(weights[0] - weights[1]) <= _TIE * weights.sum() else weights
    return classes[0] if decides[0] < decides[1] else classes[1]
