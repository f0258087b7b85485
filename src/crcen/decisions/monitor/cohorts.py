"""Arrival of labels: cohorts held back until complete, the order of classes, and audits that stop."""

from dataclasses import dataclass, field
from datetime import date

import numpy as np
from scipy.special import pdtr

from crcen._support.values import Values
from crcen.exceptions import InvalidInput
from crcen.theory.limits import ARRIVAL_TURNS, ARRIVAL_Z
from crcen.theory.residual_test import ResidualSums
from crcen.theory.rows import Array, Bools, Index
from crcen.theory.sequential import StreamSums

Sums = dict[str | None, StreamSums]

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
