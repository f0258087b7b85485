"""Rows held back until the labels of their whole cohort are known."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.decisions.monitor.plain_state import count_of, item_of, list_of, plain_sums, short
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.residual_test import JointResidualSums, ResidualSums

__all__ = ["Cohorts", "check_delay", "cohort_numbers"]

Sums = dict[str | None, ResidualSums | JointResidualSums]


def check_delay(delay: Any) -> int:
    """A whole number of cohorts, not negative."""
    if isinstance(delay, bool) or not isinstance(delay, int | np.integer) or delay < 0:
        raise InvalidParameter(
            f"delay must be a whole number of cohorts (days, where cohorts are dates), not negative, got {delay!r}",
            parameter="delay",
        )
    return int(delay)


def cohort_numbers(cohort: Any, n: int | None = None) -> tuple[NDArray[np.int64], bool]:
    """Cohorts as whole numbers, one for each of n rows, and whether they were dates (then: days since 1970)."""
    values = np.asarray(cohort)
    if values.dtype.kind == "O" and all(isinstance(value, date) for value in values.ravel().tolist()):
        values = values.astype("datetime64[D]")
    if values.dtype.kind in "US":
        try:
            values = values.astype("datetime64[D]")
        except ValueError:
            raise InvalidInput(
                f"cohort must be dates such as '2024-05-01' or whole numbers, got {cohort!r}", parameter="cohort"
            ) from None
    are_dates = values.dtype.kind == "M"
    if are_dates and np.isnat(values).any():
        raise InvalidInput("cohort must be known for every row, got a missing date", parameter="cohort")
    if are_dates:
        values = values.astype("datetime64[D]").astype(np.int64)
    if values.dtype.kind not in "iu":
        if values.dtype.kind != "f" or not np.isfinite(values).all() or (values != np.round(values)).any():
            raise InvalidInput(
                "cohort must be whole numbers, such as that of the week, or dates, and known for every row",
                parameter="cohort",
            )
        values = values.astype(np.int64)
    if n is not None:
        if values.ndim == 0:
            values = np.full(n, values)
        if values.shape != (n,):
            raise InvalidInput(
                f"cohort must have one value for each of the {n} rows, got shape {values.shape}", parameter="cohort"
            )
    return values.astype(np.int64), are_dates


@dataclass
class Cohorts:
    """Sums of cohorts whose labels may still be coming.

    Cohort c is complete as soon as the present cohort is beyond c + delay. Only sums are kept, so that what is held
    does not grow with rows, and no more than delay + 1 cohorts are held at a time.

    Parameters
    ----------
    delay : int
        Cohorts that must pass.
    """

    delay: int
    present: int | None = None
    are_dates: bool | None = None
    held: dict[int, Sums] = field(default_factory=dict)
    n_late: int = 0
    n_late_pos: int = 0

    def present_of(self, now: Any, cohorts: NDArray[np.int64], are_dates: bool) -> int:
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

    def is_closed(self, cohort: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which cohorts have been released, so that their rows come too late."""
        if self.present is None:
            return np.zeros(cohort.shape, dtype=bool)
        return cohort + self.delay < self.present

    def hold(self, cohort: int, sums: Sums) -> None:
        """Add sums of rows to a cohort that is open."""
        mine = self.held.setdefault(cohort, {})
        for name, piece in sums.items():
            mine[name] = mine[name] + piece if name in mine else piece  # type: ignore[operator]  # of one kind

    def leave_out(self, n_rows: int, n_pos: int, kinds: str) -> str:
        """Count rows that came too late, and say so, with what kinds of rows they are."""
        self.n_late += n_rows
        self.n_late_pos += n_pos
        return (
            f"{n_rows} rows ({kinds}) came after their cohort was complete and are left out: a delay of {self.delay} "
            f"is too short for them"
        )

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

    def state(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "delay": self.delay,
            "present": self.present,
            "are_dates": self.are_dates,
            "n_late": self.n_late,
            "n_late_pos": self.n_late_pos,
            "held": [
                {"cohort": cohort, "sums": [{"segment": name, "sums": plain_sums(s)} for name, s in sums.items()]}
                for cohort, sums in self.held.items()
            ],
        }

    @classmethod
    def from_state(cls, state: Any, segments: list[str], read_sums: Callable[[Any, str], Any]) -> "Cohorts":
        """The inverse of `state`, checked; `read_sums` reads the sums stored under a key."""
        present, are_dates = item_of(state, "present"), item_of(state, "are_dates")
        if are_dates not in (None, True, False) or (present is None) != (are_dates is None):
            raise InvalidInput(f"the monitor's state must say whether cohorts are dates, got {are_dates!r}")
        made = cls(
            count_of(state, "delay"),
            None if present is None else count_of(state, "present", -(2.0**53)),
            are_dates,
            n_late=count_of(state, "n_late"),
            n_late_pos=count_of(state, "n_late_pos"),
        )
        for entry in list_of(state, "held"):
            pieces = list_of(entry, "sums")
            names = [item_of(piece, "segment") for piece in pieces]
            if None not in names or not all(name in (None, *segments) for name in names):
                raise InvalidInput(f"the monitor's state must hold cohorts of its own segments, got {short(names)}")
            sums = {name: read_sums(piece, "sums") for name, piece in zip(names, pieces, strict=True)}
            made.held[count_of(entry, "cohort", -(2.0**53))] = sums
        return made
