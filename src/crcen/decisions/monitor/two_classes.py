"""What a monitor of two classes reads from a model, rows and states: labels, q of the positive class, sums."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.decisions.monitor.arrival import ArrivalOrder
from crcen.decisions.monitor.plain_state import from_plain, item_of, number_of, stream_sums_from
from crcen.decisions.monitor.rows import check_out_of_fold, cluster_sizes, has_weighting, not_a_model
from crcen.decisions.monitor.sequential_test import dispersion_of
from crcen.decisions.monitor.track import DriftAlarm, Track
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.decision import sigmoid
from crcen.theory.labels import Labels
from crcen.theory.price import Lam, WeightingLike, cost_ratio_of
from crcen.theory.residual_test import ResidualSums
from crcen.theory.rows import as_numpy, check_binary_target, check_row_weights
from crcen.theory.sequential import StreamSums, stream_sums

__all__ = ["TwoClasses"]

Bools = NDArray[np.bool_]


class TwoClasses:
    """Rows of two classes, with the λ of the probabilities that the monitor will see.

    Parameters
    ----------
    model : fitted classifier or None
        As in `KeyEquationMonitor`.
    weighting : Lam, CostRatio, Budget, float or None
        What q was trained under, where no model of ours says it.
    """

    version = 4

    def __init__(self, model: Any, weighting: WeightingLike) -> None:
        self.model = model
        self.weight_unit: float | None = None
        if has_weighting(model):
            if weighting is not None:
                raise InvalidParameter(f"weighting={weighting!r} must not be given: the model's own weighting_ is used")
            self.lam = float(model.weighting_.lam)
        else:
            cost = cost_ratio_of(weighting)
            self.lam = Lam(weighting).value if isinstance(weighting, float) else cost / (1.0 + cost)

    # -- rows ------------------------------------------------------------------------------------------------------

    def encode(self, y: ArrayLike) -> Bools:
        """Where labels are positive; without a model they must be 0/1."""
        if self.model is None:
            return check_binary_target(y)
        labels = np.asarray(as_numpy(y))
        if labels.ndim != 1 or labels.size == 0:
            raise InvalidInput(f"y must be 1-D with at least one row, got an array of shape {labels.shape}")
        return Labels.of_model(self.model).target(labels)

    def outputs(self, X: Any) -> NDArray[np.float64]:
        """Weighted probabilities of the positive class by the model, natural ones where it has no weighting."""
        if self.model is None:
            raise not_a_model()
        column = Labels.of_model(self.model).column
        answer = self.model.weighted_proba(X) if has_weighting(self.model) else self.model.predict_proba(X)
        return np.asarray(answer)[:, column]

    def out_of_fold(self, positive: Bools, sample_weight: ArrayLike | None) -> NDArray[np.float64]:
        """Out-of-fold q of the training rows of a `CRCENClassifierCV`, whose labels and weights these must be."""
        logits = check_out_of_fold(self.model, positive.size, "oof_decision_function_")
        total = float(check_row_weights(sample_weight, positive.size)[positive].sum())
        if not math.isclose(total, self.model.weighting_.n_pos, rel_tol=1e-6):
            raise InvalidInput(
                f"y_reference and sample_weight_reference must be those of fit, which had "
                f"{self.model.weighting_.n_pos:g} positives, got {total:g}"
            )
        return sigmoid(Labels.of_model(self.model).signed(logits))

    def check_reference(self, positive: Bools) -> None:
        """Refuse reference rows of one class."""
        n_pos = int(positive.sum())
        if not 0 < n_pos < positive.size:
            raise InvalidInput(f"y_reference must have both classes, got {n_pos} positives of {positive.size} rows")

    def check_outputs(self, q: NDArray[Any], n_rows: int) -> None:
        """Refuse q of another shape."""
        if q.shape != (n_rows,):
            columns = ""
            if q.ndim == 2 and q.shape[1] > 2:
                columns = f": for {q.shape[1]} classes give the monitor a model of them, or their weights as weighting="
            raise InvalidInput(f"q must have one value for each of the {n_rows} rows, got shape {q.shape}{columns}")

    def sums(
        self, positive: Bools, q: Any, sample_weight: ArrayLike | None, clusters: NDArray[Any] | None = None
    ) -> StreamSums:
        """Sum rows; those of a cluster share the weight of one, and may all be alike."""
        sizes = None if clusters is None else cluster_sizes(clusters, positive.size)
        unit = self.weight_unit or 0.0
        found = stream_sums(positive, q, Lam(self.lam), sample_weight, cluster_sizes=sizes, weight_unit=unit)
        self.weight_unit = found.weight_unit
        return found

    def no_sums(self) -> StreamSums:
        """Of no rows."""
        return StreamSums()

    def kinds(self, positive: NDArray[Any]) -> tuple[int, str]:
        """How many rows are positive, and that in words."""
        return int(positive.sum()), f"{int(positive.sum())} positive"

    # -- tests -----------------------------------------------------------------------------------------------------

    def dispersion(self, reference: Any) -> float:
        """How much larger the variance of residuals is than the model says."""
        return dispersion_of(reference)

    def track(self, *settings: Any) -> Track:
        """A running test."""
        return Track(*settings)

    def arrivals(self) -> list[tuple[ArrivalOrder, Callable[[Any], ResidualSums]]]:
        """What looks at the order of labels, with what it looks at of the sums."""
        return [(ArrivalOrder(), lambda sums: sums.residuals)]

    def arrival_state(self, arrivals: Any) -> Any:
        """The order of labels so far, as JSON can hold it."""
        return arrivals[0][0].state()

    def restore_arrivals(self, arrivals: Any, state: Any) -> None:
        """The inverse of `arrival_state`."""
        arrivals[0][0].restore(item_of(state, "arrival"))

    # -- state -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What the probabilities were trained under."""
        return {"lam": self.lam, "weight_unit": self.weight_unit}

    @classmethod
    def from_state(cls, state: Any, model: Any) -> "TwoClasses":
        """The inverse of `state`, checked against the model."""
        lam = number_of(state, "lam")
        made = cls(model, None if has_weighting(model) else lam)
        if made.lam != lam:
            raise InvalidInput(f"the state belongs to a model with λ = {lam!r}, got one with λ = {made.lam!r}")
        made.weight_unit = None if item_of(state, "weight_unit") is None else number_of(state, "weight_unit")
        return made

    def read_sums(self, state: Any, key: str) -> StreamSums:
        """Sums stored under a key."""
        return stream_sums_from(state, key)

    def read_alarm(self, stored: Any) -> DriftAlarm:
        """A stored alarm."""
        return from_plain(DriftAlarm, stored)
