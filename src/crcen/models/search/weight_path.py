"""A path of weights: a model trained at each of them, and its logits of held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from crcen.exceptions import InvalidParameter
from crcen.models.classifier import CRCENClassifier, has_usual_steps
from crcen.models.fitting import FitRows, assemble, base_seed, member_jobs, usable
from crcen.models.options import AT_PRICE, Calibration
from crcen.models.search.folds import Fold, row_numbers
from crcen.models.validation import check_labels, check_rows, check_weights, take_rows
from crcen.theory.checks import class_totals
from crcen.theory.price import Labels, Price, WeightingLike, resolve
from crcen.theory.rows import Array, Estimator, Index, Rows
from crcen.training.jobs import TrainingJob
from crcen.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class WeightPath:
    """Logits of held-out rows for every weighting of a path."""

    weightings: tuple[Price, ...]  # resolved with the class counts of all training rows: one price for every fold
    target: NDArray[np.bool_]  # whether the held-out rows are positive
    weights: Array  # their sample weights
    logits: Array  # weighted logit of the positive class; above 0 is an alarm


def path_logits(
    estimator: Estimator,
    X: Rows,
    y: ArrayLike,
    weightings: Sequence[WeightingLike],
    splits: Sequence[Fold],
    sample_weight: ArrayLike | None = None,
) -> WeightPath:
    """Train a copy of an estimator for every weighting, and predict the rows that a split holds out.

    Networks of `CRCENClassifier` are trained together, weightings × folds × members in one stack, from the same
    initial weights and batches. Any other estimator with a ``weighting`` or a ``class_weight`` is fitted in a loop.
    """
    is_stack = has_usual_steps(estimator)
    if is_stack:
        probe = CRCENClassifier(encoding=estimator.encoding)  # records the columns instead of the estimator
        X, y = check_rows(probe, X, y, reset=True)
    y = np.asarray(y)
    weights = check_weights(sample_weight, np.empty((len(y), 1)))
    labels = Labels.from_rows(check_labels(y), y, weights, getattr(estimator, "pos_label", None))
    target = labels.target(y)
    path = tuple(resolve(weighting, *class_totals(target, weights)) for weighting in weightings)
    splits = [(row_numbers(rows), row_numbers(held_out)) for rows, held_out in splits]
    parts = [(rows, take_rows(X, held_out)) for rows, held_out in splits]
    rows = FitRows(X, y, weights, labels)
    answers = (_stacked if is_stack else _looped)(_seeded(estimator, labels.positive), rows, path, parts)
    logits = np.full((len(path), len(y)), np.nan)
    for i, own in enumerate(answers):
        for (_, held_out), values in zip(splits, own, strict=True):
            logits[i, held_out] = values
    seen = np.isfinite(logits).all(axis=0)
    return WeightPath(path, target[seen], weights[seen], logits[:, seen])


def _seeded(estimator: Estimator, pos_label: object) -> Estimator:
    """A copy with one seed and one positive class: networks of the path differ in their weight only."""
    copy = clone(estimator)
    params = copy.get_params(deep=False)
    if "pos_label" in params:
        copy.set_params(pos_label=pos_label)
    if "random_state" in params and not isinstance(params["random_state"], int | np.integer):
        copy.set_params(random_state=int(check_random_state(params["random_state"]).randint(2**31 - 1)))
    return copy


def _stacked(
    estimator: CRCENClassifier, rows: FitRows, path: Sequence[Price], parts: Sequence[tuple[Index, Array]]
) -> list[list[Array]]:
    """Logits of (weighting, part): the steps of a fit, with all networks trained in between at once."""
    from crcen.training.engine import train  # torch is for fitting alone

    seed, n_members, labels = base_seed(estimator.random_state), estimator.n_members, rows.labels
    own_rows = [rows.take(own) for own, _ in parts]
    recipes = [estimator.recipe().settled(len(own)) for own, _ in parts]
    jobs: list[TrainingJob] = []
    for weighting in path:
        for (own, _), part, recipe in zip(parts, own_rows, recipes, strict=True):
            for job in member_jobs(recipe, part.resolve(weighting), n_members, seed, part):
                watched = None if job.watched is None else own[job.watched]
                jobs.append(job.replace(rows=own[job.trained(len(own))], watched=watched))
    results = iter(train(rows.X, rows.engine_target, jobs, sample_weight=rows.weights, device=estimator.device))

    def logits(weighting: Price, part: FitRows, recipe: Recipe, asked: Array) -> Array:
        members = usable([next(results) for _ in range(n_members)], type(estimator).__name__)
        ensemble, _ = assemble(part.resolve(weighting), members, part, is_balanced=recipe.balance)
        return labels.margin(ensemble.mean_logits(asked) + ensemble.shift)

    fits = [(part, recipe, asked) for part, recipe, (_, asked) in zip(own_rows, recipes, parts, strict=True)]
    return [[logits(weighting, *fit) for fit in fits] for weighting in path]


def _looped(
    estimator: Estimator, rows: FitRows, path: Sequence[Price], parts: Sequence[tuple[Index, Rows]]
) -> list[list[Array]]:
    """The same for any estimator, fitted for one weighting and part at a time."""
    params, labels = estimator.get_params(deep=False), rows.labels

    def setting(weighting: Price) -> dict[str, object]:
        if "weighting" in params:
            how: dict[str, object] = {"weighting": weighting}
            if "calibration" in params:  # what is asked for are networks trained at each weight
                how["calibration"] = replace(Calibration.of(params["calibration"]), training_weighting=AT_PRICE)
            return how
        if "class_weight" in params:
            return {"class_weight": {labels.positive: weighting.cost_ratio, labels.negative: 1.0}}
        raise InvalidParameter(
            f"a path of weights needs an estimator with a weighting or a class_weight: {type(estimator).__name__} "
            f"has neither; give its out-of-fold predict_proba to ExpenseCurve.from_predictions instead."
        )

    def logits(how: dict[str, object], own: Index, asked: Rows) -> Array:
        weights = rows.weights[own]
        options = {} if (weights == 1.0).all() else {"sample_weight": weights}
        model = clone(estimator).set_params(**how).fit(take_rows(rows.X, own), rows.y[own], **options)
        return _weighted_logits(model, asked, labels.positive)

    return [[logits(setting(weighting), *part) for part in parts] for weighting in path]


def _weighted_logits(model: Estimator, X: Rows, pos: object) -> Array:
    """Logit of the positive class under the weight the model was trained with."""
    labels = Labels(model.classes_, pos)
    if hasattr(model, "weighting"):
        return labels.signed(np.asarray(model.decision_function(X), dtype=np.float64))
    q = labels.in_order(np.asarray(model.predict_proba(X), dtype=np.float64))
    with np.errstate(divide="ignore"):
        logits = np.log(q[:, 1]) - np.log(q[:, 0])
    return np.clip(logits, -700.0, 700.0)
