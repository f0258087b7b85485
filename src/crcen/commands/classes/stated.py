"""What decisions between several classes are worth, as it was stated: costs, weights of the classes, or neither."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crcen import CostMatrix, CostRatio, InvalidParameter, Lam
from crcen._support.text import closest, listed
from crcen._support.values import label_key
from crcen.commands.classes.cost_file import costs_from
from crcen.theory.goals import ThresholdGoal
from crcen.theory.labels import Labels
from crcen.theory.price import Price, is_price_of_two

__all__ = [
    "has_class_price",
    "own_costs",
    "price_of_two",
    "refuse_two_class_options",
    "stated_costs",
    "stated_weighting",
]


# What to do in place of an option of two classes.
_INSTEAD = {
    "sort": "sort what is written by the column of a class",
    "review": "make review a column of costs=",
    "cost_column": "state costs= by class",
    "held_out": "state costs=, which need no other rows",
}


def has_class_price(model: Any) -> bool:
    """Whether a fitted model decides between several classes, or by costs of several actions."""
    return model.weighting_.positive is None


def own_costs(model: Any) -> CostMatrix:
    """What a model of several classes decides by, as costs."""
    costs = getattr(model, "costs_", None)
    return (model.weighting_.cost_matrix if costs is None else costs).for_classes(model.classes_.tolist())


def stated_weighting(weighting: Any, costs: Any, classes: Sequence[Any], target: str) -> Any:
    """A weighting for a fit on these classes, from what was stated about them.

    Parameters
    ----------
    weighting : "balanced", None, price, wish, dict or CostMatrix
        As `fit_table` takes it; labels of a dict are matched however they are spelt.
    costs : CostMatrix, data frame, path or None
        Costs instead of a weighting.
    classes : sequence
        The labels.
    target : str
        What they are values of.

    Raises
    ------
    InvalidParameter
        For a price or a wish of two classes where there are more, and for both a price and costs.
    """
    if isinstance(weighting, str) and weighting == "none":
        weighting = None
    if costs is not None:
        if not (weighting is None or (isinstance(weighting, str) and weighting == "balanced")):
            raise InvalidParameter(
                f"costs and {weighting!r} both say what mistakes are worth: give one of them.", parameter="costs"
            )
        weighting = costs
    if costs is not None or isinstance(weighting, CostMatrix):
        found = _checked(costs_from(weighting, classes))
        weights = found.class_weights()
        if len(classes) == 2 and weights is not None:  # a price of two classes, which all tools for two understand
            return dict(zip(classes, weights.tolist(), strict=True))
        return found
    if isinstance(weighting, Mapping):
        return _by_label(weighting, classes, target)
    if len(classes) > 2 and (isinstance(weighting, ThresholdGoal) or is_price_of_two(weighting)):
        raise InvalidParameter(
            f"{weighting!r} is for two classes, and {target} has {len(classes)}: state costs=, or weights of the "
            f"classes, or name one class to find with positive=.",
            parameter=("costs", "positive"),
        )
    return weighting


def stated_costs(weighting: Any, costs: Any, model: Any) -> CostMatrix:
    """Costs of decisions by a fitted model: its own, or others that were stated; probabilities stay what they are."""
    if weighting is None and costs is None:
        return own_costs(model)
    found = stated_weighting(weighting, costs, model.classes_.tolist(), getattr(model, "target_name_", None) or "it")
    if isinstance(found, CostMatrix):
        return found
    if isinstance(found, Mapping):
        found = [found[label] for label in model.classes_.tolist()]
    elif isinstance(found, str) and found == "balanced":
        counts = model.weighting_.counts
        found = counts.sum() / (len(counts) * counts)
    elif found is None:
        found = np.ones(len(model.classes_))
    return Price(np.asarray(found), model.weighting_.counts).cost_matrix.for_classes(model.classes_.tolist())


def price_of_two(weighting: Any, costs: Any, model: Any) -> Any:
    """A price for a fitted model of two classes: weights of both, or their costs, as one cost ratio; all else as is."""
    if isinstance(weighting, str) and weighting == "none":
        return Lam(0.5)
    found = stated_weighting(weighting, costs, model.classes_.tolist(), "this model")
    if isinstance(found, CostMatrix):
        raise InvalidParameter(
            "these costs have actions of their own, and this model was fitted for a price of two classes: fit it with "
            "costs=, or use review=.",
            parameter=("costs", "review"),
        )
    if not isinstance(found, Mapping):
        return found
    labels = Labels.of_model(model)
    return CostRatio(found[labels.positive] / found[labels.negative])


def refuse_two_class_options(model: Any, others: Mapping[str, Any]) -> None:
    """Refuse options that need a positive class, where they are set."""
    for name, value in others.items():
        if value is None or value is False or (isinstance(value, int | tuple | list) and not value):
            continue
        raise InvalidParameter(
            f"{name} must be left out: it is for a model that finds one class, and this one tells "
            f"{len(model.classes_)} apart; {_INSTEAD.get(name, 'to find one of them, fit with positive=')}.",
            parameter=(name, "positive"),
        )


def _by_label(weighting: Mapping[Any, Any], classes: Sequence[Any], target: str) -> dict[Any, float]:
    by_key = {label_key(label): label for label in classes}
    found = {}
    for label, weight in weighting.items():
        if label_key(label) not in by_key:
            meant = closest(str(label), [str(one) for one in classes])
            hint = f"; did you mean {meant}?" if meant else "."
            raise InvalidParameter(f"weights must be for values of {target}, {listed(classes)}: got {label!r}{hint}")
        if isinstance(weight, bool) or not weight > 0.0 or not np.isfinite(weight):
            raise InvalidParameter(f"the weight of {label} must be a number above 0: got {weight!r}.")
        found[by_key[label_key(label)]] = float(weight)
    absent = [str(label) for label in classes if label not in found]
    if absent:
        raise InvalidParameter(
            f"every value of {target} needs a weight: {listed(absent)} {'has' if len(absent) == 1 else 'have'} none."
        )
    return found


def _checked(costs: CostMatrix) -> CostMatrix:
    if costs.n_rows is None and (np.ptp(costs.costs, axis=1) == 0.0).all():
        raise InvalidParameter(
            "costs must differ between decisions: whatever is decided costs the same by these.", parameter="costs"
        )
    return costs
