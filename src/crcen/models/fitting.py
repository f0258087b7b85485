"""The steps of a fit that estimators, searches and paths of weights share."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from crcen.exceptions import InvalidParameter, TrainingFailed
from crcen.models.ensemble import Ensemble
from crcen.models.probability import fit_map, is_identity, shifted_map
from crcen.models.search.folds import early_stopping_split
from crcen.theory.balance import solve_shift
from crcen.theory.key_equation import key_equation_of_logits
from crcen.theory.labels import Labels
from crcen.theory.price import Price
from crcen.training.engines import grouped
from crcen.training.jobs import RowSets, Status, TrainingJob, TrainingResult
from crcen.training.network import by_blocks
from crcen.training.recipe import Recipe

__all__ = [
    "AT_PRICE",
    "AUTO",
    "OUT_OF_FOLD",
    "OUT_OF_FOLD_ROWS",
    "TRAINING_ROWS",
    "FitRows",
    "assemble",
    "base_seed",
    "fitted_map",
    "fold_members",
    "has_many_rows",
    "member_jobs",
    "member_seed",
    "moved_after_map",
    "settled_answers",
    "solved_at_price",
    "usable",
]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]

# Of `training_weighting`: the loss is weighted as decisions are. Of `balance`: the bias is solved for out of fold.
AT_PRICE, OUT_OF_FOLD = "price", "oof"
# Of `balance` and `probability`: out of fold by a temperature where there are folds, else as the paper has it.
AUTO = "auto"
# Which rows a key equation is of.
TRAINING_ROWS, OUT_OF_FOLD_ROWS = "the training rows", "out-of-fold rows"
# From so many rows on, where the schedule is shorter too, folds have this many networks each at most: members differ
# less there, and folds are most of the time of a fit.
_MANY_ROWS, _MOST_ON_A_FOLD = 17_000, 2
_BALANCED = 1e-12  # what the solve leaves of the key equation, unless no shift can be added to logits so large


@dataclass(frozen=True, eq=False)
class FitRows:
    """What a fit reads: rows, whether each is positive, and sample weights."""

    X: Array
    target: Bools
    weights: Array

    @property
    def totals(self) -> tuple[float, float]:
        """Weight of the positive and of the negative rows."""
        return float(self.weights[self.target].sum()), float(self.weights[~self.target].sum())

    def take(self, rows: Index) -> "FitRows":
        """Some of the rows."""
        return FitRows(self.X[rows], self.target[rows], self.weights[rows])


def settled_answers(balance: Any, probability: str, *, has_folds: bool = True) -> tuple[Any, str]:
    """``"auto"`` of `balance` and of `probability`, decided.

    A map is fitted where the bias is solved for out of fold as well: with ``balance=True`` the key equation is to be
    exact on the training rows, which a map would end.
    """
    if isinstance(balance, str) and balance == AUTO:
        balance = OUT_OF_FOLD if has_folds else True
    if probability == AUTO:
        probability = "temperature" if isinstance(balance, str) and has_folds else "shift"
    return balance, probability


def base_seed(random_state: Any) -> int:
    """The seed that all others of a fit come from."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise InvalidParameter(f"random_state must be a seed, a RandomState or None: {error}.") from error


def member_seed(base: int, member: int) -> int:
    """Seed of a member's initial weights."""
    return int(np.random.SeedSequence([base, member]).generate_state(1)[0])


def fold_members(n_members: int, n_rows: int) -> int:
    """Networks on each fold, for out-of-fold logits of a model that averages so many."""
    return min(n_members, _MOST_ON_A_FOLD) if has_many_rows(n_rows) else n_members


def has_many_rows(n_rows: int) -> bool:
    """Whether rows are so many that a whole schedule, which is shorter then, serves best as a rule."""
    return n_rows >= _MANY_ROWS


def member_jobs(
    recipe: Recipe, lam: float, n_members: int, seed: int, rows: FitRows, own: Index | None = None
) -> list[TrainingJob]:
    """One job a member, by a settled recipe, on all rows or on some of them; a share is held out for early stopping."""
    rows_of_job = RowSets.fold(own)
    if recipe.early_stopping:
        weights = rows.weights
        if own is not None:
            weights = np.zeros_like(rows.weights)
            weights[own] = rows.weights[own]
        rows_of_job = RowSets.fold(*early_stopping_split(rows.target, weights, recipe.validation_fraction, seed))
    return [
        TrainingJob.by(
            recipe,
            (1.0 - lam, lam),
            rows=rows_of_job,
            seed=member_seed(seed, member),
            shuffle_seed=seed,
        )
        for member in range(n_members)
    ]


def usable(results: Sequence[TrainingResult], name: str) -> list[TrainingResult]:
    """Results that have a network; one warning for the rest, and for those that did not converge."""
    finite = [result for result in results if result.network is not None]
    if not finite:
        raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or look for extreme values.")
    if len(finite) < len(results):
        lost = len(results) - len(finite)
        message = f"{lost} of {len(results)} members diverged and were left out: {Status.DIVERGED.value}."
        warnings.warn(message, ConvergenceWarning, stacklevel=4)
    if any(result.status is Status.MAX_EPOCHS for result in finite):
        warnings.warn(f"{name}: {Status.MAX_EPOCHS.value}.", ConvergenceWarning, stacklevel=4)
    return finite


def assemble(
    labels: Labels,
    weighting: Price,
    results: Sequence[TrainingResult],
    rows: FitRows,
    *more: Sequence[TrainingResult],
    is_balanced: bool,
) -> tuple[Ensemble, Array]:
    """Networks as an ensemble at the weighting they were trained with, and its weighted logits of the training rows.

    A single network was balanced by the engine; the average of several is balanced here, if it is to be. ``more`` are
    networks of other settings: each setting is one member, and all count alike.
    """
    groups = [grouped([one.network for one in own if one.network is not None]) for own in (results, *more)]
    ensemble = Ensemble(labels, weighting, weighting, tuple(groups))
    logits = by_blocks(ensemble.mean_logits, groups, rows.X)
    if is_balanced:
        if len(groups) > 1 or len(groups[0]) > 1:
            row_weights = weighting.row_weights(rows.target, rows.weights)
            ensemble = ensemble.shifted(solve_shift(rows.target, logits, row_weights))
            logits = logits + ensemble.shift
        residual = key_equation_of_logits(rows.target, logits, weighting, rows.weights).residual
        if not residual <= _BALANCED:
            message = f"the key equation holds to {residual:.1e} only; look for extreme values, or standardize columns."
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
    return ensemble, logits


def fitted_map(kind: str, target: Bools, oof: Array, weights: Array, weighting: Price) -> Array:
    """The probability map of a kind, fitted on out-of-fold weighted logits, NaN where there is none."""
    seen = np.isfinite(oof)
    return fit_map(kind, target[seen], oof[seen] - weighting.logit_shift, weights[seen])


def solved_at_price(ensemble: Ensemble, logits: Array, target: Bools, weights: Array) -> Ensemble:
    """An ensemble whose bias, after its map, makes the key equation exact at its price on rows with these logits.

    Parameters
    ----------
    ensemble
        At its price.
    logits
        Weighted logits of rows, before the map.
    target, weights
        Whether these rows are positive, and their sample weights.
    """
    return moved_after_map(ensemble, price_shift(ensemble, logits, target, weights))


def price_shift(ensemble: Ensemble, logits: Array, target: Bools, weights: Array) -> float:
    """What `solved_at_price` adds to the mapped logits."""
    mapped = ensemble.priced(logits)[1]
    row_weights = ensemble.weighting.row_weights(target, weights)
    return solve_shift(target, mapped, row_weights)


def moved_after_map(ensemble: Ensemble, shift: float) -> Ensemble:
    """An ensemble with something added to the logits that its map gives."""
    if is_identity(ensemble.probability_map):
        return ensemble.shifted(shift)
    return ensemble.mapped(shifted_map(ensemble.probability_map, shift))
