"""Input of a monitor: rows, segments, clusters, cohorts and audits, checked; and the order in which labels arrive."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import pdtr

from crcen._support.values import Values
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_binary_target, check_clusters, check_probabilities, check_row_weights
from crcen.theory.limits import ARRIVAL_TURNS, ARRIVAL_Z
from crcen.theory.price import Alpha, Labels, Price, WeightingLike, sigmoid
from crcen.theory.residual_test import ResidualSums
from crcen.theory.rows import Array, Bools, Estimator, Index, Rows, as_numpy
from crcen.theory.sequential import StreamSums, stream_sums

Sums = dict[str | None, StreamSums]


class WatchedModel:
    """The model of a monitor: its classes and the price of its probabilities; two classes are (negative, positive)."""

    def __init__(self, model: Estimator, weighting: WeightingLike, n_columns: int = 0) -> None:
        self.model = model
        self.has_price = hasattr(model, "weighted_proba") and hasattr(model, "weighting_")
        if self.has_price and weighting is not None:
            raise InvalidParameter(f"weighting={weighting!r} must not be given: the model's own weighting_ is used")
        price = model.weighting_ if self.has_price else weighting
        if isinstance(price, str | Alpha):
            raise InvalidParameter(f"weighting={price!r} needs class counts: give the weights that q was made with")
        classes = None if model is None else np.asarray(getattr(model, "classes_", ()))
        n_classes = n_columns if classes is None else len(classes)
        if classes is None and isinstance(price, Price | dict | list | tuple | np.ndarray):
            n_classes = price.n_classes if isinstance(price, Price) else len(price)
        if n_classes > 2:
            self.labels = Labels(np.arange(n_classes) if classes is None else classes)
        else:
            self.labels = Labels(np.arange(2), 1) if model is None else Labels.of_model(model)
        ones, names = np.ones(self.labels.n_classes), self.labels.classes.tolist()
        weights = self.labels.in_order(self.labels.resolve(price, ones).weights)
        self.price = Price(weights, ones, None, 1 if len(ones) == 2 else None)
        self.classes: tuple[object, ...] = tuple(names if n_classes > 2 or self.labels.is_last else names[::-1])

    def encode(self, y: ArrayLike) -> Index:
        """Class numbers of labels in the order of `classes`; without a model y must hold 0/1 or class numbers."""
        if self.model is None and self.labels.n_classes == 2:
            return check_binary_target(y).astype(np.int64)
        labels = np.asarray(as_numpy(y))
        if labels.ndim != 1 or labels.size == 0:
            raise InvalidInput(f"y must be 1-D with at least one row, got an array of shape {labels.shape}")
        return self.labels.target(labels).astype(np.int64)

    def outputs(self, X: Rows) -> Array:
        """Weighted probabilities by the model, natural ones if it has no weighting, in the order of `classes`."""
        if self.model is None:
            raise InvalidInput("this monitor has no model: pass q, or give it one with KeyEquationMonitor(model, ...)")
        return self._in_order(self.model.weighted_proba(X) if self.has_price else self.model.predict_proba(X))

    def columns(self, q: ArrayLike, n_rows: int) -> Array:
        """Given probabilities, (n, K) in the order of the model's classes or (n,) of the positive one, checked."""
        values, n_classes = np.asarray(as_numpy(q)), self.labels.n_classes
        if n_classes == 2 and values.shape == (n_rows,):
            chance = check_probabilities(values)
            return np.column_stack([1.0 - chance, chance])
        if values.shape == (n_rows, n_classes):
            return self._in_order(check_probabilities(values))
        needed, hint = f"one value for each of the {n_rows} rows", ""
        if n_classes > 2:
            needed = f"a row for each of the {n_rows} labels and a column for each of {n_classes} classes"
        elif values.ndim == 2 and values.shape[1] > 2:
            hint = f": for {values.shape[1]} classes give the monitor a model of them, or their weights as weighting="
        raise InvalidInput(f"q must have {needed}, got shape {values.shape}{hint}")

    def _in_order(self, columns: ArrayLike) -> Array:
        return self.labels.in_order(np.asarray(columns, dtype=np.float64))

    def out_of_fold(self, numbers: Index, sample_weight: ArrayLike | None) -> Array:
        """Out-of-fold q of the training rows of a `CRCENClassifierCV`, whose labels and weights these must be."""
        is_binary = self.has_price and self.model.weighting_.positive is not None
        found = getattr(self.model, "oof_decision_function_" if is_binary else "oof_proba_", None)
        if found is None or not self.has_price:
            raise InvalidInput(
                "y_reference needs q_reference, the model's weighted probabilities of rows that it was not fitted on; "
                "only a CRCENClassifierCV has out-of-fold probabilities of its own"
            )
        if len(found) != numbers.size:
            raise InvalidInput(
                f"y_reference must be the {len(found)} training labels in the order of fit, got {numbers.size}: pass "
                "q_reference for other rows"
            )
        known = np.isfinite(found).reshape(numbers.size, -1).all(axis=1)
        if not known.all():
            raise InvalidInput(
                f"{int((~known).sum())} training rows were in no test fold: pass y_reference and q_reference of those "
                "that were"
            )
        counts = np.bincount(numbers, check_row_weights(sample_weight, numbers.size), self.labels.n_classes)
        fitted = self._in_order(self.model.weighting_.counts[None])[0]
        if not np.allclose(counts, fitted, rtol=1e-6):
            raise InvalidInput(
                f"y_reference and sample_weight_reference must be those of fit, which had {fitted.tolist()} rows of "
                f"the classes, got {counts.tolist()}"
            )
        if not is_binary:
            return self.price.weighted(self._in_order(found))
        signed = self.labels.signed(np.asarray(found))
        return np.column_stack([sigmoid(-signed), sigmoid(signed)])

    def kinds(self, numbers: Index) -> str:
        """Rows of each class, in words."""
        counts = np.bincount(numbers, minlength=len(self.classes))
        return ", ".join(f"{count} of {label!r}" for label, count in zip(self.classes, counts, strict=True) if count)


class Batch:
    """Checked rows: class numbers (n,), weighted probabilities (n, K), weights, segments and clusters (n,)."""

    def __init__(
        self,
        numbers: Index,
        q: Array,
        weights: ArrayLike | None,
        segments: ArrayLike | None,
        clusters: ArrayLike | None,
    ) -> None:
        self.numbers, self.q = numbers, q
        self.weights = check_row_weights(weights, numbers.size)
        self.segments = None if segments is None else row_segments(segments, numbers.size)
        self.clusters = check_clusters(clusters, numbers.size)

    def sums(self, price: Price, unit: float, rows: Bools | None = None) -> Sums:
        """Sums over all rows (or those given), under None, and over the rows of each segment."""
        chosen = np.ones(self.numbers.size, dtype=bool) if rows is None else rows
        parts: dict[str | None, Bools] = {None: chosen}
        if self.segments is not None:
            parts |= {name: chosen & (self.segments == name) for name in sorted(set(self.segments[chosen].tolist()))}
        found: Sums = {}
        for name, mine in parts.items():
            sizes = None
            if self.clusters is not None:  # rows of the same cluster
                _, which, counts = np.unique(self.clusters[mine], return_inverse=True, return_counts=True)
                sizes = counts[which.ravel()].astype(np.float64)
            whole = stream_sums(
                self.numbers[mine], self.q[mine], price, self.weights[mine], cluster_sizes=sizes, weight_unit=unit
            )
            found[name], unit = whole, whole.weight_unit
        return found


def check_audits(y: ArrayLike, audit_probability: ArrayLike) -> tuple[Array, Bools]:
    """Audit probabilities, 0 for unknown ones of rows without a label, and which rows have a label."""
    labels = np.asarray(as_numpy(y))
    is_labelled = np.array([one is not None and one == one for one in labels.ravel().tolist()], dtype=bool)
    e = np.asarray(as_numpy(audit_probability), dtype=np.float64)
    if e.shape != labels.shape:
        raise InvalidInput(f"audit_probability must have one value for each of {labels.size} rows, got {e.shape}")
    e = np.where(is_labelled, e, np.nan_to_num(e))
    wrong = np.flatnonzero(is_labelled & ~((e > 0.0) & (e <= 1.0)) | (e < 0.0) | (e > 1.0))
    if len(wrong):
        raise InvalidInput(f"audit_probability must lie in (0, 1], got {e[wrong[0]]:g} in row {wrong[0] + 1}")
    return e, is_labelled


def labelled_rows(values: object, is_labelled: Bools) -> NDArray[np.generic] | None:
    """Values of the rows with a label; one value for all rows stays as it is."""
    if values is None:
        return None
    found = np.asarray(as_numpy(values))
    return found[is_labelled] if found.shape == is_labelled.shape else found


def segment_names(segments: Iterable[object]) -> list[str]:
    """Distinct names, as text."""
    if isinstance(segments, str):
        raise InvalidParameter(f"segments must be a sequence of names, got the text {segments!r}: did you mean a list?")
    names = [str(name) for name in segments]
    if len(set(names)) != len(names):
        raise InvalidParameter(f"segments must be distinct, got {names}")
    return names


def row_segments(segment: ArrayLike, n: int) -> NDArray[np.object_]:
    """The segment of each row as text; one name stands for all rows."""
    values = np.asarray(segment, dtype=object)
    if values.ndim == 0:
        values = np.full(n, values)
    if values.shape != (n,):
        raise InvalidInput(f"segment must have one name for each of the {n} rows, got shape {values.shape}")
    if any(value is None or value != value for value in values.tolist()):
        raise InvalidInput("segment must be known for every row, got None or NaN: name such rows 'unknown'")
    # Objects: an array of strings would be as wide as the longest name, for every row.
    return np.array([str(value) for value in values.tolist()], dtype=object)


# Batches are pooled until they should hold this many positives: with fewer, no positive at all is not yet unusual. A
# piece with far too many ends as soon as it holds a few.
_ENOUGH, _FEW = 10.0, 5
# Chance of so few audited labels below which audits have stopped.
_AUDIT_LEVEL = 1e-4


def cohort_numbers(cohort: object, n: int | None = None) -> tuple[Index, bool]:
    """Cohorts as whole numbers, one for each of n rows, and whether they were dates (then: days since 1970)."""
    values = np.asarray(cohort)
    is_text = values.dtype.kind in "US"
    if is_text or (values.dtype.kind == "O" and all(isinstance(value, date) for value in values.ravel().tolist())):
        try:
            values = values.astype("datetime64[D]")
        except ValueError:
            raise _wrong_cohort(f"dates such as '2024-05-01' or whole numbers, got {cohort!r}") from None
    are_dates = values.dtype.kind == "M"
    if are_dates:
        if np.isnat(values).any():
            raise _wrong_cohort("known for every row, got a missing date")
        values = values.astype("datetime64[D]").astype(np.int64)
    is_whole = values.dtype.kind in "iu" or (values.dtype.kind == "f" and np.isfinite(values).all())
    if not is_whole or (values != np.round(values)).any():
        raise _wrong_cohort("whole numbers, such as that of the week, or dates, and known for every row")
    if n is not None and values.shape not in ((), (n,)):
        raise _wrong_cohort(f"one value for each of the {n} rows, got shape {values.shape}")
    numbers = values.astype(np.int64)
    return (numbers if n is None else np.broadcast_to(numbers, n)), are_dates


def _wrong_cohort(allowed: str) -> InvalidInput:
    return InvalidInput(f"cohort must be {allowed}", parameter="cohort")


@dataclass
class Cohorts:
    """Sums of cohorts whose labels may still be coming; c is complete when the present cohort is beyond c + delay."""

    delay: int
    present: int | None = None
    are_dates: bool | None = None
    held: dict[int, Sums] = field(default_factory=dict)
    n_late: int = 0

    def present_of(self, now: object, cohorts: Index, are_dates: bool) -> int:
        """The present cohort: the one stated, or the latest given."""
        number, is_date = (cohorts.max(), are_dates) if now is None else cohort_numbers(now)
        for other in (is_date, self.are_dates):
            if other not in (None, are_dates):
                raise InvalidInput(
                    "cohort and now must be dates every time, or numbers every time, got both", parameter="cohort"
                )
        if np.ndim(number) or number < cohorts.max():
            raise InvalidInput(f"now must be one cohort, none of the rows being later, got {now!r}", parameter="now")
        return int(number)

    def is_closed(self, cohort: Index) -> Bools:
        """Which cohorts have been released, so that their rows come too late."""
        return cohort + self.delay < (-np.inf if self.present is None else self.present)

    def hold(self, cohort: int, sums: Sums) -> None:
        """Add sums of rows to a cohort that is open."""
        mine = self.held.setdefault(cohort, {})
        for name, piece in sums.items():
            mine[name] = mine[name] + piece if name in mine else piece

    def release(self, present: int, are_dates: bool) -> list[tuple[str, Sums]]:
        """Move on to a present cohort; the names and sums of those that are now complete, oldest first."""
        self.are_dates = are_dates
        self.present = present if self.present is None else max(self.present, present)
        complete = sorted(cohort for cohort in self.held if cohort + self.delay < self.present)
        return [(self.name(cohort), self.held.pop(cohort)) for cohort in complete]

    def name(self, cohort: int) -> str:
        """What a cohort is called in records."""
        return str(np.datetime64(cohort, "D")) if self.are_dates else f"cohort {cohort}"

    @property
    def n_held(self) -> int:
        """Rows held back."""
        return sum(sums[None].n_rows for sums in self.held.values())

    def state(self) -> Values:
        """Everything, as JSON can hold it."""
        held = [
            {"cohort": cohort, "sums": [{"segment": name, "sums": s.to_list()} for name, s in sums.items()]}
            for cohort, sums in self.held.items()
        ]
        return {**vars(self), "held": held}

    @classmethod
    def from_state(cls, state: Values, n_classes: int) -> "Cohorts":
        """The inverse of `state`."""
        none = StreamSums.none(n_classes)
        held = {
            entry["cohort"]: {piece["segment"]: none.from_list(piece["sums"]) for piece in entry["sums"]}
            for entry in state["held"]
        }
        return cls(**{**state, "held": held})


@dataclass
class ArrivalOrder:
    """Counts how often the residual of a class turns from far above to far below what chance allows."""

    label: str
    pending: list[float] = field(default_factory=lambda: [0.0] * 5)  # `ResidualSums`
    last_z: float = 0.0
    turns: int = 0

    def add(self, sums: ResidualSums) -> str:
        """Take a batch; a warning if it is the one that shows it, else nothing."""
        self.pending = [before + new for before, new in zip(self.pending, sums, strict=True)]
        own = ResidualSums(*self.pending)
        if own.variance <= 0.0:
            return ""
        z, is_crowded = own.z, own.z > ARRIVAL_Z and own.n_pos >= _FEW
        if not is_crowded and own.slope**2 < _ENOUGH * own.variance:
            return ""
        turned = min(abs(z), abs(self.last_z)) > ARRIVAL_Z and (z > 0.0) != (self.last_z > 0.0)
        self.pending, self.last_z, self.turns = [0.0] * 5, z, self.turns + turned
        if not turned or self.turns != ARRIVAL_TURNS:
            return ""
        return (
            f"rows of {self.label} and others seem to arrive at different times: {self.turns} times a piece of the "
            f"stream with far more of them than the model expects came next to one with far fewer; evidence is only "
            f"valid if a label's arrival does not depend on its class, so feed complete cohorts (delay= holds rows "
            f"back until theirs is)"
        )


@dataclass
class AuditArrival:
    """Compares the audited labels that arrive with the number that audit probabilities promise."""

    unit: float  # weight 1/e that counts as 1, fixed by the first audited rows
    expected: float = 0.0  # labels of rows with an audit probability below 1, in the present window
    found: int = 0
    has_stopped: bool = False

    def add(self, e: Array, is_labelled: Bools) -> str:
        """Take the audit probabilities of all rows of a batch; a warning if audits stopped, else nothing."""
        drawn = e < 1.0
        self.expected += float(e[drawn].sum())
        self.found += int((is_labelled & drawn).sum())
        if float(pdtr(self.found, self.expected)) < _AUDIT_LEVEL:
            if self.has_stopped:
                return ""
            self.has_stopped = True
            return (
                f"audits seem to have stopped: {self.expected:.0f} labels of rows without an alarm were expected and "
                f"{self.found} arrived; labels of alarms alone are no evidence about the other rows"
            )
        if self.expected >= _ENOUGH:  # begin a new window: a later stop shows soon
            self.expected, self.found, self.has_stopped = 0.0, 0, False
        return ""
