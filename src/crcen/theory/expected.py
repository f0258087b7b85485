"""What decisions are expected to come to before any label is known, from the probabilities themselves."""

import math
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Expected", "ExpectedCounts", "expected_counts"]

# Fewer expected positives than this, and there is nothing to have a share of.
_NONE = 1e-9


@dataclass(frozen=True)
class Expected:
    """An expected figure with the standard deviation that chance gives it.

    Parameters
    ----------
    value, error : float
        NaN where there is none, as of the precision of no alarms.
    """

    value: float
    error: float

    @property
    def low(self) -> float:
        """Lower end of the middle 95 %."""
        return self.value - 1.96 * self.error

    @property
    def high(self) -> float:
        """Upper end of the middle 95 %."""
        return self.value + 1.96 * self.error

    def to_dict(self) -> dict[str, float | None]:
        """Plain values, ready for JSON."""
        return {name: _plain(getattr(self, name)) for name in ("value", "low", "high")}


@dataclass(frozen=True)
class ExpectedCounts:
    """Sums over decided rows from which expected figures follow; they add, so that rows may come in pieces.

    Everything rests on one assumption: that a row of probability p is positive with chance p, independently of other
    rows. Columns may move; what columns say about the label must not have changed. Labels alone can tell whether it
    has.

    Parameters
    ----------
    n_rows, n_alarms : int
        Rows, and alarms among them.
    catches, misses : float
        Sums of p over alarms, and over the other rows.
    catch_variance, miss_variance : float
        Sums of p(1 − p) over the same.
    """

    n_rows: int = 0
    n_alarms: int = 0
    catches: float = 0.0
    misses: float = 0.0
    catch_variance: float = 0.0
    miss_variance: float = 0.0

    def __add__(self, other: "ExpectedCounts") -> "ExpectedCounts":
        return ExpectedCounts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def alarm_share(self) -> float:
        """Alarms among rows."""
        return self.n_alarms / self.n_rows if self.n_rows else math.nan

    @property
    def precision(self) -> Expected:
        """Share of alarms that are right."""
        if not self.n_alarms:
            return Expected(math.nan, math.nan)
        return Expected(self.catches / self.n_alarms, math.sqrt(self.catch_variance) / self.n_alarms)

    @property
    def recall(self) -> Expected:
        """Share of positives that are caught; its error to first order."""
        total = self.catches + self.misses
        if total <= _NONE:
            return Expected(math.nan, math.nan)
        caught, missed = self.catches / total, self.misses / total
        variance = missed**2 * self.catch_variance + caught**2 * self.miss_variance
        return Expected(caught, math.sqrt(variance) / total)

    def cost(self, cost_ratio: float) -> Expected:
        """Cost of 1,000 rows in false alarms: one for a false alarm, the cost ratio for a miss."""
        if not self.n_rows:
            return Expected(math.nan, math.nan)
        total = self.n_alarms - self.catches + cost_ratio * self.misses
        error = math.sqrt(self.catch_variance + cost_ratio**2 * self.miss_variance)
        return Expected(1000.0 * total / self.n_rows, 1000.0 * error / self.n_rows)


def expected_counts(p: NDArray[np.float64], alarms: NDArray[np.bool_]) -> ExpectedCounts:
    """The sums over rows with these natural probabilities and decisions."""
    variance = p * (1.0 - p)
    return ExpectedCounts(
        len(p),
        int(alarms.sum()),
        float(p[alarms].sum()),
        float(p[~alarms].sum()),
        float(variance[alarms].sum()),
        float(variance[~alarms].sum()),
    )


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
