"""Steps of a fit: rows, jobs, assembled networks, out-of-fold logits, balance solves and operating goals."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from crcen.exceptions import InvalidParameter, TrainingFailed
from crcen.models.ensemble import Ensemble, fit_map
from crcen.models.fitted import write_ensemble
from crcen.models.search.folds import Fold, early_stopping_split
from crcen.models.validation import Seed
from crcen.theory.balance import class_shifts, solve_shift
from crcen.theory.goals import ThresholdGoal, goal_of
from crcen.theory.key_equation import key_equation_of_logits, on_rows, without_test
from crcen.theory.price import CostRatio, Labels, Price, WeightingLike, sigmoid, softmax
from crcen.theory.rows import Array, Bools, Clusters, Estimator, Index
from crcen.theory.thresholds import RowsByProbability, price_of_threshold
from crcen.training.engines import as_members
from crcen.training.jobs import Status, TrainingJob, TrainingResult
from crcen.training.network import Member, Network, NetworkGroup
from crcen.training.recipe import ONE_AGAINST_ALL, Recipe

# The rows of a key equation.
TRAINING_ROWS, OUT_OF_FOLD_ROWS = "the training rows", "out-of-fold rows"
# From this many rows each fold has at most this many networks: members differ less there, and folds take most of the
# time of a fit.
_MANY_ROWS, _MOST_ON_A_FOLD = 17_000, 2
_ROWS_OF_A_PART = 4096  # of a prediction in a fit
_BALANCED = 1e-12  # residual after the solve, unless logits are so large that a shift is lost in rounding


@dataclass(frozen=True, eq=False)
class FitRows:
    """The rows of a fit: inputs, labels, class numbers, sample weights, and folds and groups, if any."""

    X: Array
    y: NDArray[np.generic]
    weights: Array
    labels: Labels
    folds: list[Fold] = field(default_factory=list)
    groups: Clusters | None = None  # rows that stay together in folds and in early stopping
    _prices: list[tuple[object, Index | None, Price]] = field(default_factory=list, init=False)

    @cached_property
    def target(self) -> Index:
        """Class numbers."""
        return self.labels.encode(self.y)

    @cached_property
    def engine_target(self) -> Bools | Index:
        """What networks are trained on: whether rows are positive, or class numbers without a positive class."""
        return self.target if self.labels.positive is None else self.target == self.labels.column

    def take(self, rows: Index) -> "FitRows":
        """Some of the rows."""
        return replace(self, X=self.X[rows], y=self.y[rows], weights=self.weights[rows])

    def resolve(self, weighting: WeightingLike | ThresholdGoal, own: Index | None = None) -> Price:
        """A price with the class counts of all rows, or of some; resolved once for each pair of objects."""
        for known, rows, price in self._prices:
            if known is weighting and rows is own:
                return price
        at = slice(None) if own is None else own
        price = self.labels.resolve(weighting, self.labels.counts(self.target[at], self.weights[at]))
        self._prices.append((weighting, own, price))
        return price


def check_loss(recipe: Recipe, n_classes: int) -> None:
    """Reject a loss that needs more than two classes."""
    if recipe.loss == ONE_AGAINST_ALL and n_classes == 2:
        raise InvalidParameter(f"loss={recipe.loss!r} is for more than two classes: use loss='cross_entropy'.")


def base_seed(random_state: Seed) -> int:
    """The seed from which all other seeds of a fit are derived."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise InvalidParameter(f"random_state must be a seed, a RandomState or None: {error}.") from error


def member_seed(base: int, member: int) -> int:
    """Seed of a member's initial weights."""
    return int(np.random.SeedSequence([base, member]).generate_state(1)[0])


def fold_members(n_members: int, n_rows: int) -> int:
    """Number of networks on each fold for a model that averages ``n_members`` networks."""
    return min(n_members, _MOST_ON_A_FOLD) if has_many_rows(n_rows) else n_members


def has_many_rows(n_rows: int) -> bool:
    """Whether rows are many: the schedule is then shorter, and its end is usually best."""
    return n_rows >= _MANY_ROWS


def training_job(
    recipe: Recipe, price: Price, seed: int, member: int, rows: Index | None = None, validation: Index | None = None
) -> TrainingJob:
    """The training job of a member: one output for a binary problem, otherwise one per class."""
    is_binary = price.positive is not None
    class_weights = (price.threshold, price.lam) if is_binary else price.weights
    own = {"rows": rows, "validation": validation, "outputs": None if is_binary else price.n_classes}
    return TrainingJob.by(recipe, class_weights, seed=member_seed(seed, member), shuffle_seed=seed, **own)


def member_jobs(
    recipe: Recipe, price: Price, n_members: int, seed: int, rows: FitRows, own: Index | None = None
) -> list[TrainingJob]:
    """One job per member on all rows or on some of them; a share is held out for early stopping."""
    validation: Index | None = None
    if recipe.early_stopping:
        used = np.flatnonzero(rows.weights > 0) if own is None else own[rows.weights[own] > 0]
        own, validation = early_stopping_split(rows.engine_target, used, recipe.validation_fraction, seed, rows.groups)
    return [training_job(recipe, price, seed, member, own, validation) for member in range(n_members)]


def usable(results: Sequence[TrainingResult], name: str) -> list[TrainingResult]:
    """Results with a network; one warning for diverged networks, and one if the iteration limit was reached."""
    finite = [result for result in results if result.network is not None]
    if not finite:
        raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or look for extreme values.")
    if len(finite) < len(results):
        lost = len(results) - len(finite)
        message = f"{lost} of {len(results)} members diverged and were left out: {Status.DIVERGED.value}."
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    if any(result.status is Status.MAX_EPOCHS for result in finite):
        warnings.warn(f"{name}: {Status.MAX_EPOCHS.value}.", ConvergenceWarning, stacklevel=3)
    return finite


def solved_shifts(target: Index, logits: Array, price: Price, weights: Array) -> Array:
    """The balance solve at a price: shifts (K,) of logits (n, K), 0 for the negative class or with the mean 0."""
    if price.positive is None:
        return class_shifts(target, logits, price.weights, weights)
    shifts, own = np.zeros(2), price.positive
    shifts[own] = solve_shift(target == own, logits[:, own] - logits[:, 1 - own], price.weights[target] * weights)
    return shifts


def assemble(
    weighting: Price,
    results: Sequence[TrainingResult],
    rows: FitRows,
    *more: Sequence[TrainingResult],
    is_balanced: bool,
) -> tuple[Ensemble, Array]:
    """Networks as an ensemble at the weighting they were trained with, and its weighted logits of the training rows.

    The engine has balanced a single network; an average is balanced here if ``is_balanced``, and so is one against all,
    whose outputs were balanced class by class before normalisation. ``more`` are networks of other settings: each
    setting is one member, with equal weights.
    """
    networks = [[one.network for one in own if one.network is not None] for own in (results, *more)]
    ensemble = Ensemble.of(rows.labels, weighting, tuple(one for own in networks for one in as_members(own)))
    logits = _by_parts(ensemble.mean_logits, rows.X, ensemble.members)
    if is_balanced:
        if sum(map(len, networks)) > 1 or _is_one_against_all(networks[0][0]):
            ensemble = ensemble.shifted(solved_shifts(rows.target, logits, weighting, rows.weights))
            logits = logits + ensemble.shift
        residual = key_equation_of_logits(rows.target, logits, weighting, rows.weights).residual
        if not residual <= _BALANCED:
            message = f"the key equation holds to {residual:.1e} only; look for extreme values, or standardize columns."
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return ensemble, logits


def held_out_logits(results: Sequence[TrainingResult], rows: FitRows, price: Price | None) -> Array:
    """Logits (n, K) of held-out rows, members averaged; NaN for rows in no fold or of folds that diverged."""
    logits = np.full((len(rows.X), rows.labels.n_classes), np.nan)
    members = len(results) // max(len(rows.folds), 1)
    for i, (own, held_out) in enumerate(rows.folds):
        found = [result.network for result in results[i * members : (i + 1) * members]]
        networks = [network for network in found if network is not None]
        if not networks:
            continue
        logits[held_out] = engine_logits(networks, rows, held_out)
        if price is not None and (len(networks) > 1 or _is_one_against_all(networks[0])):
            average = engine_logits(networks, rows, own)
            logits[held_out] += solved_shifts(rows.target[own], average, price, rows.weights[own])
    return logits


def engine_logits(networks: Sequence[Network], rows: FitRows, own: Index) -> Array:
    """Mean logits (n, K) of networks for some rows."""
    logits: Array = np.mean([_by_parts(one.logits, rows.X[own], [one]) for one in as_members(networks)], axis=0)
    return logits if rows.labels.positive is None else rows.labels.columns(logits[:, 0])


def _by_parts(logits: Callable[[Array], Array], X: Array, members: Sequence[Member]) -> Array:
    """Logits of rows, on several threads if members are networks: those of a row do not depend on others."""
    from crcen.training.device import on_threads  # torch is for fitting alone

    n_parts = len(X) // _ROWS_OF_A_PART + 1 if isinstance(members[0], NetworkGroup) else 1
    return np.concatenate(on_threads(logits, np.array_split(X, n_parts)))


def seen_rows(logits: Array) -> NDArray[np.bool_]:
    """Rows whose logits (n, K) are known."""
    return np.asarray(np.isfinite(logits).all(axis=1))


def fitted_map(kind: str, oof: Array, rows: FitRows, price: Price) -> Array:
    """The probability map of a kind, fitted on out-of-fold weighted logits (n, K), NaN where there is none."""
    seen, labels = seen_rows(oof), rows.labels
    natural, weights = oof[seen] - price.log_weights, rows.weights[seen]
    if labels.positive is None:
        return fit_map(kind, rows.target[seen], natural, weights)
    return fit_map(kind, rows.engine_target[seen], labels.margin(natural), weights)


def solved_at_price(ensemble: Ensemble, logits: Array, target: Index, weights: Array) -> Ensemble:
    """The ensemble with a shift after its map that makes the key equation exact at its price on these rows."""
    return ensemble.moved(solved_shifts(target, ensemble.priced(logits)[1], ensemble.weighting, weights))


def _is_one_against_all(network: object) -> bool:
    return bool(getattr(network, "is_one_against_all", False))


def held_out_shifts(logits: Array, rows: FitRows, price: Price) -> Array:
    """The balance solve on out-of-fold rows, (K,)."""
    seen = seen_rows(logits)
    pooled = solved_shifts(rows.target[seen], logits[seen], price, rows.weights[seen])
    if seen.all():
        return pooled
    shifts, variances = shifts_of_folds(logits, rows, price)
    return np.array([agreed_shift(*own) for own in zip(pooled, shifts.T, variances.T, strict=True)])


def shifts_of_folds(logits: Array, rows: FitRows, price: Price) -> tuple[Array, Array]:
    """The balance solve on each fold's held-out rows alone."""
    n_classes = rows.labels.n_classes
    shifts, variances = np.full((2, len(rows.folds), n_classes), np.nan)
    for i, (_, test) in enumerate(rows.folds):
        own, target, weights = logits[test], rows.target[test], rows.weights[test]
        if not np.isfinite(own).all() or not np.bincount(target, weights, n_classes).all():
            continue
        shifts[i] = solved_shifts(target, own, price, weights)
        mass, q = (weights * price.weights[target])[:, None], softmax(own + shifts[i])
        error = (target[:, None] == np.arange(n_classes)) - q
        slope = (mass * q * (1.0 - q)).sum(axis=0)
        variances[i] = np.divide((mass**2 * error**2).sum(axis=0), slope**2, out=variances[i], where=slope > 0)
    return shifts, variances


def agreed_shift(pooled: float, shifts: Array, variances: Array) -> float:
    """The shift that folds over different periods have in common.

    The error of an overconfident network is the same in every fold, and the shift corrects it. A drift moves each
    period differently: the pooled shift then depends on the choice of periods, and the model, which was trained on all
    of them, must not be moved by it. If folds differ beyond sampling, by a variance τ² (DerSimonian and Laird 1986),
    the result is their mean m, shrunk by 1 − (τ²/K) / m², or 0 if that is negative.
    """
    known = np.isfinite(shifts) & np.isfinite(variances) & (variances > 0)
    if known.sum() < 2:
        return pooled
    values, precision = shifts[known], 1.0 / variances[known]
    common = float(precision @ values / precision.sum())
    excess = float(precision @ (values - common) ** 2) - (len(values) - 1)
    spread = excess / float(precision.sum() - (precision**2).sum() / precision.sum())
    if spread <= 0.0:
        return pooled
    precision = 1.0 / (variances[known] + spread)
    mean = float(precision @ values / precision.sum())
    kept = 1.0 - spread / len(values) / mean**2 if mean else 0.0
    return mean * kept if kept > 0.0 else 0.0


def before_goal(weighting: WeightingLike | ThresholdGoal) -> WeightingLike:
    """The weighting to fit at: λ = ½ if a goal is to be met later, otherwise the weighting itself."""
    goal = goal_of(weighting)
    if goal is None:
        return weighting  # type: ignore[return-value]
    if goal.confidence is not None:
        advice = f"fit without confidence, then choose_weighting(model, {weighting!r}, X, y) on held-out rows"
        raise InvalidParameter(f"{weighting!r} is a guarantee for a fitted model: {advice}.")
    return None


def at_goal(ensemble: Ensemble, goal: ThresholdGoal, natural: Array, rows: FitRows) -> Ensemble:
    """The ensemble at the price that meets a goal, with the same probabilities."""
    seen = seen_rows(natural)
    p, weights = sigmoid(rows.labels.margin(natural[seen])), rows.weights[seen]
    own = RowsByProbability(rows.engine_target[seen] == 1, p, weights)
    threshold = goal.for_rows(float(weights.sum())).threshold(own)
    return ensemble.at_price(ensemble.weighting.replace(CostRatio(price_of_threshold(threshold))))


def move_to_goal(model: Estimator, rows: FitRows) -> None:
    """Move a fitted search or committee to the price that meets its ``weighting``, if that is a goal."""
    goal = goal_of(model.weighting)
    if goal is None:
        return
    ensemble, labels = model.ensemble_, rows.labels
    weighted = labels.columns(labels.signed(model.oof_decision_function_))
    natural = weighted - ensemble.weighting.log_weights
    moved = at_goal(ensemble, goal, natural, rows)
    weighted, seen = natural + moved.weighting.log_weights, seen_rows(natural)
    equation = key_equation_of_logits(rows.target[seen], weighted[seen], moved.weighting, rows.weights[seen])
    write_ensemble(model, moved, on_rows(without_test(equation), OUT_OF_FOLD_ROWS))
    model.oof_decision_function_ = labels.signed(labels.margin(weighted))
