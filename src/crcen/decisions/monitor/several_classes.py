"""What a monitor of K classes reads from a model, rows and states: class numbers, q of every class, sums."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.decisions.monitor.arrival import ArrivalOrder
from crcen.decisions.monitor.class_track import ClassDriftAlarm, ClassTrack, class_alarm_from, class_dispersion
from crcen.decisions.monitor.plain_state import class_sums_from, list_of, numbers_of, short
from crcen.decisions.monitor.rows import check_out_of_fold, cluster_sizes, has_weighting, not_a_model
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.labels import Labels
from crcen.theory.price import Price, resolved
from crcen.theory.residual_test import JointResidualSums, ResidualSums, residual_sums
from crcen.theory.rows import as_numpy, check_row_weights

__all__ = ["SeveralClasses", "n_classes_of"]

Index = NDArray[np.int64]


def n_classes_of(model: Any, weighting: Any, q_reference: Any) -> int:
    """How many classes a monitor will see, as far as it can be told: by the model, the weights or the reference."""
    if model is not None:
        if isinstance(getattr(model, "weighting_", None), Price):
            return int(model.weighting_.n_classes)
        return len(getattr(model, "classes_", ()))
    if isinstance(weighting, Price):
        return weighting.n_classes
    if isinstance(weighting, dict | list | tuple | np.ndarray):
        return len(weighting)
    reference = np.asarray(() if q_reference is None else as_numpy(q_reference))
    return reference.shape[1] if reference.ndim == 2 else 0


class SeveralClasses:
    """Rows of K classes, with the weights of the probabilities that the monitor will see.

    Parameters
    ----------
    model : fitted classifier or None
        As in `KeyEquationMonitor`.
    weighting : Price, dict, array of K weights or None
        What q was trained under, where no model of ours says it.
    n_classes : int
        K.
    """

    version = 3

    def __init__(self, model: Any, weighting: Any, n_classes: int) -> None:
        self.model = model
        classes = np.arange(n_classes) if model is None else np.asarray(model.classes_)
        if len(classes) != n_classes:
            raise InvalidInput(f"model must be a fitted classifier of {n_classes} classes, got {len(classes)}")
        self.labels = Labels(classes)
        ones = np.ones(n_classes)
        if has_weighting(model):
            if weighting is not None:
                raise InvalidParameter(f"weighting={weighting!r} must not be given: the model's own weighting_ is used")
            weighting = model.weighting_
        if isinstance(weighting, dict):
            if set(weighting) != set(classes.tolist()):
                raise InvalidParameter(f"weighting must have a weight for each of {classes.tolist()}, got {weighting}")
            weighting = [weighting[label] for label in classes.tolist()]
        if isinstance(weighting, str):
            raise InvalidParameter(f"weighting={weighting!r} needs class counts: give the weights that q was made with")
        self.weighting = resolved(weighting, ones)
        if self.weighting.n_classes != n_classes:
            raise InvalidParameter(f"weighting must have {n_classes} weights, got {self.weighting.n_classes}")

    # -- rows ------------------------------------------------------------------------------------------------------

    def encode(self, y: ArrayLike) -> Index:
        """Class numbers of labels; without a model they must be class numbers."""
        labels = np.asarray(as_numpy(y))
        if labels.ndim != 1 or labels.size == 0:
            raise InvalidInput(f"y must be 1-D with at least one row, got an array of shape {labels.shape}")
        return self.labels.encode(labels)

    def outputs(self, X: Any) -> NDArray[np.float64]:
        """Weighted probabilities of every class by the model, natural ones where it has no weighting."""
        if self.model is None:
            raise not_a_model()
        return np.asarray(self.model.weighted_proba(X) if has_weighting(self.model) else self.model.predict_proba(X))

    def out_of_fold(self, numbers: Index, sample_weight: ArrayLike | None) -> NDArray[np.float64]:
        """Out-of-fold q of the training rows of a `CRCENClassifierCV`, whose labels and weights these must be."""
        chances = check_out_of_fold(self.model, numbers.size, "oof_proba_")
        found = np.bincount(numbers, check_row_weights(sample_weight, numbers.size), self.labels.n_classes)
        if not np.allclose(found, self.model.weighting_.counts, rtol=1e-6):
            raise InvalidInput(
                f"y_reference and sample_weight_reference must be those of fit, which had "
                f"{self.model.weighting_.counts.tolist()} rows of the classes, got {found.tolist()}"
            )
        return self.weighting.weighted(chances)

    def check_reference(self, numbers: Index) -> None:
        """Refuse reference rows of one class."""
        if len(np.unique(numbers)) < 2:
            raise InvalidInput("y_reference must have rows of two classes or more, got those of one")

    def check_outputs(self, q: NDArray[Any], n_rows: int) -> None:
        """Refuse q of another shape."""
        if q.shape != (n_rows, self.labels.n_classes):
            raise InvalidInput(
                f"q must have a row for each of the {n_rows} labels and a column for each of {self.labels.n_classes} "
                f"classes, got shape {q.shape}"
            )

    def sums(
        self, numbers: Index, q: Any, sample_weight: ArrayLike | None, clusters: NDArray[Any] | None = None
    ) -> JointResidualSums:
        """Sum rows; those of a cluster share the weight of one, and may all be alike."""
        weights, sizes = check_row_weights(sample_weight, numbers.size), cluster_sizes(clusters, numbers.size)
        found = residual_sums(numbers, q, self.weighting, weights / sizes)
        if clusters is None:
            return found
        alike = residual_sums(numbers, q, self.weighting, weights / np.sqrt(sizes))
        return replace(found, variance=alike.variance)

    def no_sums(self) -> JointResidualSums:
        """Of no rows."""
        return JointResidualSums.none(self.labels.n_classes)

    def kinds(self, numbers: NDArray[Any]) -> tuple[int, str]:
        """Of which classes rows are, in words; none of them counts as positive."""
        counts = np.bincount(numbers, minlength=self.labels.n_classes)
        found = (f"{count} of {label!r}" for label, count in zip(self.classes, counts, strict=True) if count)
        return 0, ", ".join(found)

    @property
    def classes(self) -> tuple[Any, ...]:
        """Labels in the order of the columns."""
        return tuple(self.labels.classes.tolist())

    # -- tests -----------------------------------------------------------------------------------------------------

    def dispersion(self, reference: Any) -> float:
        """How much larger the variance of residuals is than the model says."""
        return class_dispersion(reference)

    def track(self, *settings: Any) -> ClassTrack:
        """A running test."""
        return ClassTrack(self.classes, *settings)

    def arrivals(self) -> list[tuple[ArrivalOrder, Callable[[Any], ResidualSums]]]:
        """What looks at the order of labels: one for each class, against all others."""
        return [
            (ArrivalOrder(f"rows of class {label!r}", f"rows of class {label!r} and others"), _of_class(k))
            for k, label in enumerate(self.classes)
        ]

    def arrival_state(self, arrivals: Any) -> Any:
        """The order of labels so far, as JSON can hold it."""
        return [order.state() for order, _ in arrivals]

    def restore_arrivals(self, arrivals: Any, state: Any) -> None:
        """The inverse of `arrival_state`."""
        stored = list_of(state, "arrival")
        if len(stored) != len(arrivals):
            raise InvalidInput(f"the monitor's state must hold {len(arrivals)} orders of labels, got {len(stored)}")
        for (order, _), kept in zip(arrivals, stored, strict=True):
            order.restore(kept)

    # -- state -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What the probabilities were trained under."""
        return {"classes": list(self.classes), "class_weights": self.weighting.weights.tolist()}

    @classmethod
    def from_state(cls, state: Any, model: Any) -> "SeveralClasses":
        """The inverse of `state`, checked against the model."""
        classes = list_of(state, "classes")
        if len(classes) < 2:
            raise InvalidInput(f"the monitor's state must hold two classes or more, got {short(classes)}")
        weights = numbers_of(state, "class_weights", len(classes))
        made = cls(model, None if has_weighting(model) else weights, len(classes))
        if list(made.classes) != classes or not np.array_equal(made.weighting.weights, weights):
            raise InvalidInput(
                f"the state belongs to a model with the classes {short(classes)} and the weights {short(weights)}, got "
                f"one with {short(list(made.classes))} and {short(made.weighting.weights.tolist())}"
            )
        return made

    def read_sums(self, state: Any, key: str) -> JointResidualSums:
        """Sums stored under a key."""
        return class_sums_from(state, key, self.labels.n_classes)

    def read_alarm(self, stored: Any) -> ClassDriftAlarm:
        """A stored alarm."""
        return class_alarm_from(stored, self.labels.n_classes)


def _of_class(k: int) -> Callable[[Any], ResidualSums]:
    return lambda sums: sums.of_class(k)
