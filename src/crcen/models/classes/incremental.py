"""partial_fit of K classes."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput
from crcen.models.classes.ensemble import ClassEnsemble
from crcen.models.classes.fitting import ClassRows, check_no_positive, trained_at
from crcen.models.one_pass import carried, continued, kept_networks, networks_of, one_pass, started_trainer
from crcen.theory.labels import Labels
from crcen.theory.price import Price
from crcen.training.network import NetworkGroup
from crcen.training.recipe import Recipe

if TYPE_CHECKING:  # torch is for fitting alone
    from crcen.training.stream import StreamTrainer

__all__ = ["learn_classes"]

Array = NDArray[np.float64]


def learn_classes(
    model: Any,
    recipe: Recipe,
    X: Array,
    y: NDArray[Any],
    weights: Array,
    classes: NDArray[Any],
    state: dict[str, Any],
    counts: Array,
) -> "tuple[ClassEnsemble, Recipe, StreamTrainer]":
    """One pass over checked rows; ``state`` is what calls remember, ``counts`` those of the classes so far."""
    check_no_positive(model, classes)
    before: ClassEnsemble | None = getattr(model, "ensemble_", None)
    labels = Labels(classes)
    price = _price(model.weighting, labels, counts)
    trained = trained_at(model.training_weighting, price, labels)
    rows = ClassRows(X, labels.encode(y), weights, labels)
    recipe, encoding = carried(recipe, rows) if before is None else continued(recipe, before)
    fitted = None if before is None else _at_training_weight(before, trained)
    # A class that has not come yet counts as half a row.
    mass = trained.weights * np.maximum(state["totals"], 0.5)
    bias = np.log(mass)
    trainer = started_trainer(model, state, recipe, encoding, bias - bias.mean(), fitted)
    trainer.weigh(trained.weights, float(trained.weights @ state["totals"] / state["totals"].sum()))
    one_pass(trainer, state, encoding, rows)
    ensemble = ClassEnsemble.of(labels, trained, (kept_networks(trainer, encoding, recipe),))
    return ensemble.at_price(price), recipe, trainer


def _price(asked: Any, labels: Labels, counts: Array) -> Price:
    """The resolved weighting; a class without rows counts as one row where the weights do not depend on it."""
    if not counts.all() and isinstance(asked, str):
        absent = labels.classes[counts == 0].tolist()[0]
        raise InvalidInput(
            f"weighting={asked!r} needs counts of every class, but no row of class {absent!r} came yet: pass "
            f"class_counts={{label: count}}, or state the weighting as a dict, an array or a CostMatrix."
        )
    return labels.resolve(asked, np.where(counts > 0, counts, 1.0))


def _at_training_weight(before: ClassEnsemble, weighting: Price) -> NetworkGroup:
    """Fitted networks with their shifts and map in the output layer, as they are under the weights of training."""
    slope, intercepts = float(before.probability_map[0]), before.probability_map[1:]
    moved = weighting.log_weights - slope * before.weighting.log_weights
    return networks_of(before).scaled(slope).shifted(slope * before.shift + intercepts + moved)
