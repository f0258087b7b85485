"""A cost matrix with all four entries, reduced to the one threshold that it means."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.metrics import FloatOrArray
from crcen.theory.rows import check_binary_target, check_probabilities
from crcen.theory.specs import CostRatio
from crcen.theory.weighting import WeightingLike, cost_ratio_of

__all__ = ["Costs", "expected_cost", "realised_cost"]

Array = NDArray[np.float64]


def _checked(value: ArrayLike, name: str) -> FloatOrArray:
    """Return one finite number, or finite numbers for rows."""
    try:
        costs = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"{name} of Costs must be a number or one number for each row: {error}") from error
    if costs.ndim > 1:
        raise InvalidParameter(f"{name} of Costs must be a number or one for each row, got shape {costs.shape}")
    if not np.isfinite(costs).all():
        raise InvalidParameter(f"{name} of Costs must be finite, got {costs[~np.isfinite(costs)].ravel()[0]}")
    return float(costs) if costs.ndim == 0 else costs


@dataclass(frozen=True, eq=False)
class Costs:
    """What each of the four outcomes costs; a gain is a negative cost.

    An alarm on a row with posterior p costs p·tp + (1−p)·fp in expectation, silence p·fn + (1−p)·tn. The alarm is
    cheaper exactly where p is above

        threshold = (fp − tn) / ((fp − tn) + (fn − tp)).

    So only two differences count, and with b = fn − tp (what catching a positive saves) and a = fp − tn (what a false
    alarm adds) the matrix is the cost ratio b/a.

    Parameters
    ----------
    tp, fp, fn, tn : float or array of shape (n,)
        Cost of a true alarm, a false alarm, a miss, and of rightly leaving a row alone; numbers, or one for each row.

    Raises
    ------
    InvalidParameter
        If an entry is not finite, lengths differ, or the matrix decides without looking at p: with four plain numbers
        both differences must be above 0. With arrays a *row* on which an alarm never pays (its threshold is inf) or
        always does (−inf) is allowed, since a small transaction is simply not worth a phone call; only rows on which
        both differences are negative, where an alarm would be right for the *improbable* positives, are refused.

    Examples
    --------
    >>> from crcen import Costs
    >>> Costs(tp=1, fp=1, fn=20).threshold  # every alarm costs one visit, a miss costs 20
    0.05
    """

    tp: FloatOrArray = 0.0
    fp: FloatOrArray = 1.0
    fn: FloatOrArray = 1.0
    tn: FloatOrArray = 0.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            object.__setattr__(self, entry.name, _checked(getattr(self, entry.name), entry.name))
        lengths = {e.name: len(v) for e in fields(self) if isinstance(v := getattr(self, e.name), np.ndarray)}
        if len(set(lengths.values())) > 1:
            raise InvalidParameter(f"the entries of Costs must be plain numbers or have one length, got {lengths}")
        saved, added = np.asarray(self.saved_by_catch), np.asarray(self.added_by_false_alarm)
        if ((saved < 0.0) & (added < 0.0)).any():
            raise InvalidParameter(
                "Costs where a catch costs more than a miss and a false alarm less than silence would raise alarms on "
                "the least probable rows: did you mean gains? A gain is a negative cost"
            )
        if not self.is_per_row and saved <= 0.0:
            raise InvalidParameter(
                f"with fn = {self.fn:g} and tp = {self.tp:g} a catch saves {float(saved):g}, so an alarm never pays: "
                "fn must be above tp"
            )
        if not self.is_per_row and added <= 0.0:
            raise InvalidParameter(
                f"with fp = {self.fp:g} and tn = {self.tn:g} a false alarm adds {float(added):g}, so an alarm on every "
                "row always pays: fp must be above tn"
            )

    @classmethod
    def of_price(cls, weighting: WeightingLike) -> Costs:
        """Write a price as costs, counted in false alarms.

        Parameters
        ----------
        weighting : ClassWeighting, Lam, CostRatio, Budget, float or None
            Anything with a cost ratio c; an unresolved α needs class counts first.

        Returns
        -------
        Costs
            ``Costs(tp=0, fp=1, fn=c, tn=0)``.
        """
        return cls(tp=0.0, fp=1.0, fn=cost_ratio_of(weighting), tn=0.0)

    @property
    def saved_by_catch(self) -> FloatOrArray:
        """What an alarm saves on a positive row, fn − tp."""
        return self.fn - self.tp

    @property
    def added_by_false_alarm(self) -> FloatOrArray:
        """What an alarm adds on a negative row, fp − tn."""
        return self.fp - self.tn

    @property
    def is_per_row(self) -> bool:
        """Whether an entry is an array, so that each row has its own threshold."""
        return any(isinstance(getattr(self, entry.name), np.ndarray) for entry in fields(self))

    @property
    def n_rows(self) -> int | None:
        """How many rows the arrays are for; None for plain numbers."""
        return next((len(v) for e in fields(self) if isinstance(v := getattr(self, e.name), np.ndarray)), None)

    @property
    def threshold(self) -> FloatOrArray:
        """The posterior above which an alarm is cheaper; inf on a row where it never is, −inf where it always is."""
        added, saved = np.broadcast_arrays(
            np.asarray(self.added_by_false_alarm, dtype=np.float64), np.asarray(self.saved_by_catch, dtype=np.float64)
        )
        never, always = (saved < 0.0) | ((saved == 0.0) & (added == 0.0)), (added < 0.0) & (saved >= 0.0)
        total = np.where(never | always, 1.0, added + saved)
        values = np.where(never, np.inf, np.where(always, -np.inf, added / total))
        return float(values) if values.ndim == 0 else values

    @property
    def weighting(self) -> CostRatio:
        """The price to train at; refused where rows have prices of their own."""
        if self.is_per_row:
            raise InvalidParameter(
                "costs that differ from row to row are no single weighting: decide with crcen.decide(p, costs), or "
                "train with sample weights"
            )
        return CostRatio(float(self.saved_by_catch / self.added_by_false_alarm))

    def __repr__(self) -> str:
        shown = {
            e.name: f"<{len(v)} rows>" if isinstance(v := getattr(self, e.name), np.ndarray) else f"{v:g}"
            for e in fields(self)
        }
        return f"Costs({', '.join(f'{name}={value}' for name, value in shown.items())})"


def _alarms(alarms: ArrayLike, costs: Costs) -> NDArray[np.bool_]:
    raised = check_binary_target(alarms, "alarms")
    if costs.n_rows not in (None, raised.size):
        raise InvalidInput(f"these costs are for {costs.n_rows} rows, got {raised.size} decisions")
    return raised


def expected_cost(p: ArrayLike, alarms: ArrayLike, costs: Costs) -> Array:
    """Price each decision before its label is known.

    Parameters
    ----------
    p : array of shape (n,)
        Natural posteriors of the positive class.
    alarms : array of shape (n,)
        Decisions, 0/1 or bool.
    costs : Costs
        The cost matrix, one for all rows or one for each.

    Returns
    -------
    float64 array of shape (n,)
        The expected cost of each row; their sum is the expected total.
    """
    raised, chance = _alarms(alarms, costs), check_probabilities(p, "p")
    if chance.shape != raised.shape:
        raise InvalidInput(f"p must have one value for each of the {raised.size} decisions, got shape {chance.shape}")
    return np.where(
        raised, chance * costs.tp + (1.0 - chance) * costs.fp, chance * costs.fn + (1.0 - chance) * costs.tn
    )


def realised_cost(y: ArrayLike, alarms: ArrayLike, costs: Costs) -> Array:
    """Price each decision once its label is known.

    Parameters
    ----------
    y : array of shape (n,)
        0/1 or bool, 1 is positive.
    alarms : array of shape (n,)
        Decisions, 0/1 or bool.
    costs : Costs
        The cost matrix, one for all rows or one for each.

    Returns
    -------
    float64 array of shape (n,)
        The cost of each row.
    """
    return expected_cost(check_binary_target(y).astype(np.float64), alarms, costs)
