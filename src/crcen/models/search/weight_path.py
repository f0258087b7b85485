"""A path of weights: a model trained at each of them, and its logits of held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state

from crcen.exceptions import InvalidParameter
from crcen.models.classifier import CRCENClassifier, has_usual_steps
from crcen.models.fitting import FitRows, assemble, base_seed, member_jobs, usable
from crcen.models.options import AT_PRICE, Calibration
from crcen.models.search.folds import Fold, row_numbers
from crcen.models.validation import check_classes, check_rows, check_weights, take_rows
from crcen.theory.expense import price_paths
from crcen.theory.price import Labels, Price
from crcen.theory.rows import Array, Estimator, Index, LabelArray, Rows
from crcen.training.jobs import TrainingJob
from crcen.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class WeightPath:
    """Logits of held-out rows for every weighting of a path."""

    paths: list[list[Price]]  # resolved with the class counts of all training rows: one price for every fold
    weightings: list[Price]  # of all paths
    labels: Labels
    y: Index  # class numbers of the held-out rows
    target: LabelArray  # whether they are positive, or their class numbers
    weights: Array  # their sample weights
    logits: Array  # (weightings, n) weighted logit of the positive class, above 0 is an alarm; or (weightings, n, K)
    chosen: Index  # decisions (weightings, n) as class numbers


def path_logits(
    estimator: Estimator,
    X: Rows,
    y: ArrayLike,
    weightings: Any,
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
    labels = Labels.from_rows(check_classes(y), y, weights, getattr(estimator, "pos_label", None))
    numbers = labels.encode(y)
    counts = labels.counts(numbers, weights)
    paths = price_paths(weightings, lambda weighting: labels.resolve(weighting, counts))
    path = [price for own in paths for price in own]
    splits = [(row_numbers(rows), row_numbers(held_out)) for rows, held_out in splits]
    parts = [(rows, take_rows(X, held_out)) for rows, held_out in splits]
    rows = FitRows(X, y, weights, labels)
    answers = (_stacked if is_stack else _looped)(_seeded(estimator, labels.positive), rows, path, parts)
    logits = np.full((len(path), len(y), *answers[0][0].shape[1:]), np.nan)
    for i, own in enumerate(answers):
        for (_, held_out), values in zip(splits, own, strict=True):
            logits[i, held_out] = values
    seen = np.isfinite(logits).reshape(*logits.shape[:2], -1).all(axis=(0, 2))
    found = logits[:, seen]
    if labels.positive is None:
        target, chosen = numbers, found.argmax(axis=2)
    else:
        target, chosen = numbers == labels.column, np.where(found > 0.0, labels.column, 1 - labels.column)
    return WeightPath(paths, path, labels, numbers[seen], target[seen], weights[seen], found, chosen)


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
        found = ensemble.mean_logits(asked) + ensemble.shift
        return found if labels.positive is None else labels.margin(found)

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
            weights = np.exp(weighting.log_weights).tolist()  # the cost ratio and 1 for two classes
            return {"class_weight": dict(zip(labels.classes.tolist(), weights, strict=True))}
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
    """Logits of the positive class, or of every class, under the weight the model was trained with."""
    labels = Labels(model.classes_, pos)
    if hasattr(model, "weighting"):
        found = np.asarray(model.decision_function(X), dtype=np.float64)
        return found if pos is None else labels.signed(found)
    with np.errstate(divide="ignore"):
        logs = np.log(labels.in_order(np.asarray(model.predict_proba(X), dtype=np.float64)))
    return np.clip(logs if pos is None else logs[:, 1] - logs[:, 0], -700.0, 700.0)
