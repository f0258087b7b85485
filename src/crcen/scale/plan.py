"""The plan of a streamed fit, made from settings and the counts and moments of the rows."""

import math

import numpy as np

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.classifier import CRCENClassifier
from crcen.models.fitting import member_seed
from crcen.scale.class_plan import make_class_plan
from crcen.scale.statistics import StreamStatistics
from crcen.scale.stream_plan import StreamPlan, stream_recipe
from crcen.theory.labels import Labels, is_for_classes
from crcen.training.recipe import ADAM
from crcen.training.stream import StreamShape

__all__ = ["check_streamable", "make_plan"]


def check_streamable(model: CRCENClassifier) -> None:
    """Refuse settings that have no meaning, or none for rows in passing."""
    recipe = model.recipe()
    for name, value, allowed, instead in (
        ("probability", model.probability, ("shift", "auto"), "a fitted map needs folds of rows in memory"),
        ("balance", model.balance, (True, False, "auto"), "a stream has no folds; its bias is solved for on all rows"),
        ("solver", recipe.solver, (ADAM.name, "auto"), "L-BFGS needs all rows at each step"),
        ("loss", recipe.loss, ("cross_entropy", "squared_error"), "a stream learns one softmax; use fit"),
        ("missing", recipe.missing, ("error",), "a stream has no indicators; fill NaN in your source, or use fit"),
        ("column_scales", recipe.column_scales, (False, "auto"), "scales are learned by fit, with all rows in memory"),
    ):
        if value not in allowed:
            raise InvalidParameter(f"{name} must be {allowed[0]!r} here, got {value!r}: {instead}.", parameter=name)


def make_plan(model: CRCENClassifier, statistics: StreamStatistics, seed: int) -> StreamPlan:
    """Settle everything with the counts and moments of the rows.

    Parameters
    ----------
    model
        Settings; ``max_epochs`` is the number of epochs.
    statistics
        Of all rows, those of other workers included.
    seed
        What `crcen.models.fitting.base_seed` gave.
    """
    classes = statistics.classes()
    if is_for_classes(model.weighting, classes):
        return make_class_plan(model, statistics, classes, seed)
    totals = statistics.totals
    weights, rows = (np.array([of[label] for label in classes.tolist()], float) for of in (totals.weight, totals.rows))
    labels = Labels.from_totals(classes, weights, rows, model.pos_label)
    pos_label = labels.positive
    weighting = labels.resolve(model.weighting, labels.by_class(*statistics.class_totals(pos_label)))
    train_pos, train_neg = statistics.class_totals(pos_label, train=True)
    n_train = statistics.train_totals.n_rows
    if not train_pos or not train_neg or (statistics.validation_fraction and n_train == totals.n_rows):
        raise InvalidInput(
            f"rows of both classes are needed to train on, and some to hold out: of {totals.n_rows} rows "
            f"{totals.n_rows - n_train} were held out; change validation_fraction or turn early_stopping off."
        )
    trained = model.training_weighting_at(weighting, labels)
    lam, scale = trained.lam, (train_pos + train_neg) / n_train
    pos_sum, neg_sum = lam * train_pos, (1.0 - lam) * train_neg
    recipe = stream_recipe(model, n_train)
    encoding = statistics.encoding(recipe.encoding, recipe.bins, labels.target, standardize=recipe.standardize)
    shape = StreamShape(
        n_inputs=encoding.size,
        recipe=recipe,
        seeds=tuple(member_seed(seed, member) for member in range(model.n_members)),
        total_rows=int(model.max_epochs or 1) * n_train,
    )
    return StreamPlan(
        classes=classes,
        pos_label=pos_label,
        weighting=weighting,
        training_weighting=trained,
        recipe=recipe,
        encoding=encoding,
        shape=shape,
        seed=seed,
        validation_fraction=statistics.validation_fraction,
        weight_scale=scale,
        mean_weight=(pos_sum + neg_sum) / (n_train * scale),
        output_bias=math.log(pos_sum) - math.log(neg_sum),
        n_train_rows=n_train,
        n_features=len(statistics.names),
    )
