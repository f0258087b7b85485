"""The steps of a fit of K classes: jobs, networks assembled and balanced, held-out logits, answers at the price."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from crcen._support.progress import progress_bar
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.classes.ensemble import ClassEnsemble
from crcen.models.classes.probability import class_folds, fit_class_map, solved_shifts
from crcen.models.fitted import Course, write_fit
from crcen.models.fitting import (
    AT_PRICE,
    AUTO,
    OUT_OF_FOLD,
    OUT_OF_FOLD_ROWS,
    TRAINING_ROWS,
    base_seed,
    fold_members,
    member_seed,
    settled_answers,
    usable,
)
from crcen.models.probability import PROBABILITIES
from crcen.models.schedule_cut import is_cut, train_to_cut
from crcen.theory.decision import log_sum_exp
from crcen.theory.key_equation import key_equation_of_logits
from crcen.theory.labels import Labels
from crcen.theory.price import Price
from crcen.training.engines import grouped, mean_logits
from crcen.training.jobs import RowSets, TrainingJob, TrainingResult
from crcen.training.network import by_blocks
from crcen.training.recipe import ONE_AGAINST_ALL, Recipe

__all__ = [
    "ClassRows",
    "assemble_classes",
    "check_loss_of_two",
    "check_no_positive",
    "class_member_jobs",
    "fit_classes",
    "fitted_class_map",
    "held_out_class_logits",
    "solved_at_class_price",
    "trained_at",
]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Fold = tuple[Index, Index]

_BALANCED = 1e-12
# With fewer rows of a class than this nothing is fitted out of fold, unless it was asked for.
_FEWEST_FOR_FOLDS = 3


@dataclass(frozen=True, eq=False)
class ClassRows:
    """What a fit reads: rows, their class numbers, sample weights, and the labels."""

    X: Array
    target: Index
    weights: Array
    labels: Labels

    @property
    def counts(self) -> Array:
        """Weight of the rows of each class."""
        return self.labels.counts(self.target, self.weights)


def trained_at(training_weighting: Any, price: Price, labels: Labels) -> Price:
    """What the loss of a model is weighted by that decides at a price."""
    if isinstance(training_weighting, str) and training_weighting == AT_PRICE:
        return price
    return labels.resolve(training_weighting, price.counts)


def class_member_jobs(
    recipe: Recipe, weighting: Price, n_members: int, seed: int, rows: ClassRows, own: Index | None = None
) -> list[TrainingJob]:
    """One job a member, by a settled recipe, on all rows or on some of them; a share is held out for early stopping."""
    rows_of_job = RowSets.fold(own)
    if recipe.early_stopping:
        used = np.flatnonzero(rows.weights > 0) if own is None else own[rows.weights[own] > 0]
        rows_of_job = RowSets.fold(*_watched_rows(rows, used, recipe.validation_fraction, seed))
    return [
        TrainingJob.by(
            recipe,
            weighting.weights,
            outputs=rows.labels.n_classes,
            rows=rows_of_job,
            seed=member_seed(seed, member),
            shuffle_seed=seed,
        )
        for member in range(n_members)
    ]


def _watched_rows(rows: ClassRows, used: Index, validation_fraction: float, seed: int) -> tuple[Index, Index]:
    """Rows to train on and rows to watch, with every class among both."""
    target = rows.target[used]
    try:
        own, watched = train_test_split(used, test_size=validation_fraction, stratify=target, random_state=seed)
        if any(len(np.unique(rows.target[part])) < rows.labels.n_classes for part in (own, watched)):
            raise ValueError("a class is in one part only")
    except ValueError as error:
        rarest = int(np.bincount(target, minlength=rows.labels.n_classes).min())
        raise InvalidInput(
            f"early_stopping needs rows of every class in its validation part: got {rarest} rows of the rarest class "
            f"with validation_fraction={validation_fraction}; raise it or turn early_stopping off."
        ) from error
    return np.sort(own), np.sort(watched)


def assemble_classes(
    weighting: Price,
    results: Sequence[TrainingResult],
    rows: ClassRows,
    *more: Sequence[TrainingResult],
    is_balanced: bool,
) -> tuple[ClassEnsemble, Array]:
    """Networks as an ensemble at the weighting they were trained with, and its weighted logits of the training rows.

    A single network was balanced by the engine; the average of several is balanced here, if it is to be, and one
    against all, whose networks were balanced class by class, before they are made to sum to 1. ``more`` are networks of
    other settings: each setting is one member, and all count alike.
    """
    groups = [grouped([one.network for one in own if one.network is not None]) for own in (results, *more)]
    ensemble = ClassEnsemble.of(rows.labels, weighting, tuple(groups))
    logits = by_blocks(ensemble.mean_logits, groups, rows.X)
    if is_balanced:
        if len(groups) > 1 or len(groups[0]) > 1 or _is_one_against_all(groups[0]):
            ensemble = ensemble.shifted(solved_shifts(rows.target, logits, weighting.weights, rows.weights))
            logits = logits + ensemble.shift
        residual = key_equation_of_logits(rows.target, logits, weighting, rows.weights).residual
        if not residual <= _BALANCED:
            message = f"the key equations hold to {residual:.1e} only; standardised inputs help."
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
    return ensemble, logits


def held_out_class_logits(
    folds: Sequence[Fold], results: Sequence[TrainingResult], rows: ClassRows, weighting: Price | None
) -> Array:
    """Logits (n, K) of held-out rows, members averaged; NaN for rows in no fold or of a fold whose networks diverged.

    With a ``weighting`` the average of several members is balanced on its fold's training rows, as the whole model's
    is on all rows.
    """
    logits = np.full((len(rows.X), rows.labels.n_classes), np.nan)
    members = len(results) // max(len(folds), 1)
    for i, (own, held_out) in enumerate(folds):
        found = [result.network for result in results[i * members : (i + 1) * members]]
        networks = [network for network in found if network is not None]
        if not networks:
            continue
        logits[held_out] = mean_logits(networks, rows.X[held_out])
        if weighting is not None and (len(networks) > 1 or _is_one_against_all(networks[0])):
            average = mean_logits(networks, rows.X[own])
            logits[held_out] += solved_shifts(rows.target[own], average, weighting.weights, rows.weights[own])
    return logits


def _is_one_against_all(networks: Any) -> bool:
    return bool(getattr(networks, "is_one_against_all", False))


def fitted_class_map(kind: str, oof: Array, rows: ClassRows, weighting: Price) -> Array:
    """The probability map of a kind, fitted on out-of-fold weighted logits, NaN where there is none."""
    seen = np.isfinite(oof).all(axis=1)
    return fit_class_map(kind, rows.target[seen], oof[seen] - weighting.log_weights, rows.weights[seen])


def solved_at_class_price(ensemble: ClassEnsemble, logits: Array, target: Index, weights: Array) -> ClassEnsemble:
    """An ensemble whose biases, after its map, make the key equations exact at its price on rows with these logits."""
    mapped = ensemble.priced(logits)[1]
    return ensemble.moved(solved_shifts(target, mapped, ensemble.weighting.weights, weights))


def check_no_positive(model: Any, classes: NDArray[Any]) -> None:
    """Refuse a positive class where there are more than two."""
    if model.pos_label is not None:
        raise InvalidParameter(
            f"pos_label is for two classes, and there are {len(classes)}: leave it None, or fit on "
            f"y == {model.pos_label!r} to tell that class from the rest."
        )


def check_loss_of_two(recipe: Recipe) -> None:
    """Refuse a loss that is for more than two classes."""
    if recipe.loss == ONE_AGAINST_ALL:
        raise InvalidParameter(
            f"loss={ONE_AGAINST_ALL!r} is for more than two classes: with two, each is against the other already, "
            f"which is loss='cross_entropy'."
        )


def fit_classes(model: Any, recipe: Recipe, X: Array, y: NDArray[Any], classes: NDArray[Any], weights: Array) -> None:
    """Fit a `CRCENClassifier` on checked rows of K classes."""
    check_no_positive(model, classes)
    if len(classes) == 2:
        check_loss_of_two(recipe)
    labels = Labels(classes)
    rows = ClassRows(X, labels.encode(y), weights, labels)
    price = labels.resolve(model.weighting, rows.counts)
    trained = trained_at(None if model.is_control else model.training_weighting, price, labels)
    recipe, seed = recipe.settled(len(X)), base_seed(model.random_state)
    jobs = class_member_jobs(recipe, trained, model.n_members, seed, rows)
    balance, probability, folds, fold_jobs, rows_of_key = _on_folds(model, recipe, trained, seed, rows)
    with progress_bar(type(model).__name__, visible=bool(model.verbose)) as progress:
        train = model.training_on(X, rows.target, weights, labels.n_classes)
        if is_cut(model, recipe, folds, balance):
            losses = partial(_natural_losses, rows, trained)
            results = train_to_cut(train, jobs, fold_jobs, folds, losses, recipe, len(X), progress)
        else:
            results = train(jobs + fold_jobs, progress)
    oof = held_out_class_logits(folds, results[model.n_members :], rows, trained if recipe.balance else None)
    members = usable(results[: model.n_members], type(model).__name__)
    ensemble, logits = assemble_classes(trained, members, rows, is_balanced=recipe.balance)
    ensemble = ensemble.mapped(fitted_class_map(probability, oof, rows, trained))
    if model.is_control:
        key = ensemble.key_equation(logits, rows.target, weights)
        write_fit(model, ensemble.at_price(price), recipe, Course.of(members), replace(key, rows=TRAINING_ROWS))
        return
    to_price = price.log_weights - trained.log_weights
    ensemble, oof, logits = ensemble.at_price(price), oof + to_price, logits + to_price
    own_rows = (logits, rows.target, weights)
    if balance == OUT_OF_FOLD:
        seen = np.isfinite(oof).all(axis=1)
        own_rows = (oof[seen], rows.target[seen], weights[seen])
    if balance == OUT_OF_FOLD or (recipe.balance and to_price.any()):
        ensemble = solved_at_class_price(ensemble, *own_rows)
    key = replace(ensemble.key_equation(*own_rows), rows=rows_of_key)
    write_fit(model, ensemble, recipe, Course.of(members), key)


def _natural_losses(rows: ClassRows, trained: Price, logits: Array, own: Index) -> Array:
    """Log loss of each record of logits (records, n, K) of some rows, under their training weight."""
    target, weights = rows.target[own], rows.weights[own]
    natural = logits - trained.log_weights
    of_own = natural[:, np.arange(len(own)), target]
    with np.errstate(invalid="ignore"):  # a diverged network's logits are NaN, and so is its loss
        return np.asarray((log_sum_exp(natural, 2) - of_own) @ weights / weights.sum())


def _on_folds(
    model: Any, recipe: Recipe, trained: Price, seed: int, rows: ClassRows
) -> tuple[Any, str, list[Fold], list[TrainingJob], str]:
    """``balance`` and ``probability`` settled, folds and jobs on them, and of which rows the key equations are.

    Where it was left to the data and the data have no folds, all is as without them.
    """
    asked = model.balance, model.probability
    is_open = isinstance(asked[0], str) and asked[0] == AUTO and asked[1] in (AUTO, "shift")
    balance, probability = settled_answers(*asked, has_folds=not model.is_control)
    if balance != OUT_OF_FOLD and probability == PROBABILITIES[0]:
        return balance, probability, [], [], TRAINING_ROWS
    jobs: list[TrainingJob] = []
    try:
        folds = class_folds(rows.target, rows.weights, seed, _FEWEST_FOR_FOLDS if is_open else 2)
        for own, _ in folds:
            n_members = fold_members(model.n_members, len(rows.X))
            jobs += class_member_jobs(recipe, trained, n_members, seed, rows, own)
    except InvalidInput as error:
        if not is_open:
            raise
        reason = str(error).partition(";")[0]
        return *settled_answers(*asked, has_folds=False), [], [], f"{TRAINING_ROWS}, not out of fold: {reason}"
    return balance, probability, folds, jobs, OUT_OF_FOLD_ROWS if balance == OUT_OF_FOLD else TRAINING_ROWS
