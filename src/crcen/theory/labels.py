"""Labels: the two classes, which of them is positive, and what follows from that for targets, signs and columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.specs import CostRatio, Lam, positive_number
from crcen.theory.tensors import as_numpy
from crcen.theory.weighting import ClassWeighting, resolve

__all__ = ["Labels"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Weights that differ by less than this share balance the classes; rows then say which one is rarer.
_TIE = 1e-9


@dataclass(frozen=True, eq=False)
class Labels:
    """Both classes in sorted order, and the positive one.

    The one rule for the positive class: the one that was asked for; else the class with less weight, or fewer rows
    where weights tie; else the last one.

    Parameters
    ----------
    classes : array of shape (2,)
        Sorted labels.
    positive : label
        One of them.
    """

    classes: NDArray[Any]
    positive: Any

    @classmethod
    def from_totals(cls, classes: NDArray[Any], weights: ArrayLike, rows: ArrayLike, pos_label: Any = None) -> "Labels":
        """By the weight and the number of rows of each class; both must have weight."""
        total, count = np.asarray(weights, dtype=np.float64), np.asarray(rows, dtype=np.float64)
        for label, weight in zip(classes, total, strict=True):
            if not weight > 0:
                raise InvalidInput(f"both classes need weight: every row of class {label} has sample_weight 0.")
        if pos_label is None:
            return cls(classes, _rarer(classes, total, count))
        if np.ndim(pos_label) or pos_label not in classes.tolist():
            listed = ", ".join(repr(c) for c in classes.tolist())
            raise InvalidParameter(f"pos_label must be one of the classes {listed}: got {pos_label!r}.")
        return cls(classes, pos_label)

    @classmethod
    def from_rows(cls, classes: NDArray[Any], y: NDArray[Any], weights: Array, pos_label: Any = None) -> "Labels":
        """By the labels of rows and their weights."""
        own = [y == label for label in classes]
        return cls.from_totals(
            classes, [float(weights[rows].sum()) for rows in own], [float(rows.sum()) for rows in own], pos_label
        )

    @classmethod
    def of_model(cls, model: Any, y: NDArray[Any] | None = None, weights: Array | None = None) -> "Labels":
        """Those of a fitted classifier: its ``pos_label_``, else by the rows at hand, else the last class."""
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
    def is_last(self) -> bool:
        """Whether the positive class is ``classes[1]``, whose sign scikit-learn's decision functions have."""
        return bool(self.positive == self.classes[1])

    @property
    def negative(self) -> Any:
        """The other class."""
        return self.classes[0] if self.is_last else self.classes[1]

    @property
    def column(self) -> int:
        """The positive class's column of two."""
        return int(self.is_last)

    @property
    def sign(self) -> float:
        """What turns the positive class's logit into that of ``classes[1]``, and back."""
        return 1.0 if self.is_last else -1.0

    def encode(self, y: Any) -> Bools:
        """Where labels are positive; every other label counts as negative."""
        return np.asarray(np.asarray(as_numpy(y)) == self.positive, dtype=np.bool_)

    def checked(self, y: Any, name: str = "y") -> Bools:
        """`encode`, and refuse a label that is neither class."""
        labels = np.asarray(as_numpy(y))
        known = np.asarray((labels == self.classes[0]) | (labels == self.classes[1]))  # isin would take "1" for 1
        if not known.all():
            raise InvalidInput(
                f"{name} must hold the labels {self.classes.tolist()} only: got {labels[~known].tolist()[0]!r}."
            )
        return self.encode(labels)

    def decode(self, is_positive: Bools) -> NDArray[Any]:
        """Labels of decisions."""
        return self.classes[np.where(is_positive, self.column, 1 - self.column)]

    def signed(self, logits: Array) -> Array:
        """Logits of ``classes[1]`` from those of the positive class, and back."""
        return logits if self.is_last else -logits

    def in_order(self, columns: Array) -> Array:
        """Columns (n, 2) of the negative and the positive class in the order of the classes, and back."""
        return columns if self.is_last else columns[:, ::-1]

    def pair(self, by_class: Sequence[float] | Array) -> tuple[float, float]:
        """The positive class's number and the negative one's, of numbers in the order of the classes."""
        return float(by_class[self.column]), float(by_class[1 - self.column])

    def odds(self, factor: float) -> float:
        """A factor on the odds of the positive class from one on those of ``classes[1]``, and back."""
        return factor if self.is_last else 1.0 / factor

    def resolve(self, weighting: Any, n_pos: float, n_neg: float) -> ClassWeighting:
        """A weighting with its class counts; a dict gives a weight a label, and a resolved one keeps its λ alone."""
        if isinstance(weighting, Mapping):
            if set(weighting) != set(self.classes.tolist()):
                listed = ", ".join(repr(c) for c in self.classes.tolist())
                raise InvalidParameter(
                    f"a weighting dict needs one weight for each of {listed}: got {dict(weighting)!r}."
                )
            pos, neg = (
                positive_number(weighting[label], f"the weight of class {label}")
                for label in (self.positive, self.negative)
            )
            weighting = CostRatio(pos / neg)
        elif isinstance(weighting, ClassWeighting):
            weighting = Lam(weighting.lam)  # the counts are those of the rows given here
        return resolve(weighting, n_pos, n_neg)


def _rarer(classes: NDArray[Any], weights: Array, rows: Array) -> Any:
    """The class with less weight, or fewer rows where weights tie; the last one where these do too."""
    decides = rows if abs(weights[0] - weights[1]) <= _TIE * weights.sum() else weights
    return classes[0] if decides[0] < decides[1] else classes[1]
