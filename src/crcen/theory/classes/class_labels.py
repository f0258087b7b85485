"""ClassLabels: the labels of K classes in sorted order, and what follows from that for targets and weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.classes.class_weights import ClassWeights, resolve_classes
from crcen.theory.classes.cost_matrix import CostMatrix

__all__ = ["ClassLabels", "ClassPrice", "is_for_classes", "is_price_of_two"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def is_for_classes(weighting: Any, classes: NDArray[Any]) -> bool:
    """Whether a fit needs an output for each class: for more than two, or for costs of several actions."""
    return len(classes) > 2 or isinstance(weighting, CostMatrix)


def is_price_of_two(weighting: Any) -> bool:
    """Whether a weighting says something of two classes alone."""
    if weighting is None or isinstance(weighting, str | CostMatrix | ClassWeights | ClassPrice | list | np.ndarray):
        return False
    return not isinstance(weighting, Mapping) or len(weighting) == 2


@dataclass(frozen=True, eq=False)
class ClassPrice:
    """What decisions between K classes are worth: class weights, and a cost matrix where there is one.

    Parameters
    ----------
    weights : ClassWeights
        What weighted probabilities are at; all alike where the costs are of a kind that no weights say.
    costs : CostMatrix or None
        In the order of the classes.
    """

    weights: ClassWeights
    costs: CostMatrix | None = None


@dataclass(frozen=True, eq=False)
class ClassLabels:
    """Sorted labels.

    Parameters
    ----------
    classes : array of shape (K,)
        Two or more.
    """

    classes: NDArray[Any]

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    def encode(self, y: Any, name: str = "y") -> Index:
        """Class numbers of labels; a label that is no class is refused."""
        labels = np.asarray(y)
        numbers = np.full(labels.shape, -1, dtype=np.int64)
        for number, label in enumerate(self.classes.tolist()):  # isin would take "1" for 1
            numbers[np.asarray(labels == label)] = number
        if (numbers < 0).any():
            raise InvalidInput(
                f"{name} must hold the labels {self.classes.tolist()} only: got {labels[numbers < 0].tolist()[0]!r}."
            )
        return numbers

    def checked(self, y: Any, name: str = "y") -> Index:
        """`encode`, by the name that `crcen.theory.labels.Labels` has for it."""
        return self.encode(y, name)

    def decode(self, numbers: Index) -> NDArray[Any]:
        """Labels of class numbers."""
        return np.asarray(self.classes[numbers])

    def counts(self, numbers: Index, weights: ArrayLike) -> Array:
        """Weight of the rows of each class; each must have some."""
        found = np.bincount(numbers, np.asarray(weights, dtype=np.float64), self.n_classes)
        for label, count in zip(self.classes.tolist(), found, strict=True):
            if not count > 0.0:
                raise InvalidInput(f"every class needs weight: every row of class {label} has sample_weight 0.")
        return np.asarray(found)

    def resolve(self, weighting: Any, counts: Array) -> ClassPrice:
        """A weighting with its class counts; a dict gives a weight a label.

        Raises
        ------
        InvalidParameter
            For a price of two classes, weights of other labels, or costs that differ by row.
        """
        if isinstance(weighting, ClassPrice):
            return ClassPrice(ClassWeights(weighting.weights.weights, counts), weighting.costs)
        if isinstance(weighting, CostMatrix):
            if weighting.n_rows is not None:
                raise InvalidParameter(
                    "costs that differ by row belong to the rows of a decision: use crcen.decide(proba, costs), and "
                    "fit with weighting=None."
                )
            costs = weighting.for_classes(self.classes.tolist())
            weights = costs.class_weights()
            ones = np.ones(self.n_classes)
            return ClassPrice(ClassWeights(ones if weights is None else weights, counts), costs)
        if isinstance(weighting, Mapping):
            if set(weighting) != set(self.classes.tolist()):
                listed = ", ".join(repr(c) for c in self.classes.tolist())
                raise InvalidParameter(
                    f"a weighting dict needs one weight for each of {listed}: got {dict(weighting)!r}."
                )
            weighting = [weighting[label] for label in self.classes.tolist()]
        elif isinstance(weighting, ClassWeights):
            weighting = weighting.weights  # the counts are those of the rows given here
        return ClassPrice(resolve_classes(weighting, counts))
