"""A goal in place of a price: the price that meets it on out-of-fold rows, once a model is fitted without a weight."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import write_ensemble
from crcen.models.fitting import OUT_OF_FOLD_ROWS, FitRows, seen_rows
from crcen.theory.decision import sigmoid
from crcen.theory.goals import RowsByProbability, ThresholdGoal, price_of_threshold
from crcen.theory.key_equation import key_equation_of_logits, on_rows, without_test
from crcen.theory.price import CostRatio

__all__ = ["at_goal", "before_goal", "move_to_goal"]

Array = NDArray[np.float64]


def before_goal(weighting: Any) -> Any:
    """What to fit at: λ = ½ where a goal is to be met later, else the weighting itself."""
    if not isinstance(weighting, ThresholdGoal):
        return weighting
    if weighting.confidence is not None:
        goal: Any = weighting
        plain = type(goal)(goal.share)
        raise InvalidParameter(
            f"{weighting!r} is a guarantee for a model that is fitted already: fit with {plain!r}, then "
            f"choose_weighting(model, {weighting!r}, X, y) on rows that were held out from it"
        )
    return None


def at_goal(ensemble: Ensemble, goal: ThresholdGoal, natural: Array, rows: FitRows) -> Ensemble:
    """The same probabilities, decided at the price that meets a goal.

    Parameters
    ----------
    ensemble
        Fitted.
    goal
        What is wanted.
    natural : float64 array of shape (n, 2)
        Natural logits out of fold; NaN for rows in no test fold.
    rows
        The rows of the fit.
    """
    seen = seen_rows(natural)
    p, weights = sigmoid(rows.labels.margin(natural[seen])), rows.weights[seen]
    own = RowsByProbability(rows.engine_target[seen], p, weights)
    threshold = goal.for_rows(float(weights.sum())).threshold(own)
    return ensemble.at_price(ensemble.weighting.replace(CostRatio(price_of_threshold(threshold))))


def move_to_goal(model: Any, rows: FitRows) -> None:
    """Have a fitted search or committee decide at the price that meets its ``weighting``, where that is a goal.

    Its out-of-fold decisions are then at that price; ``oof_key_equation_`` stays at λ = ½, what was trained at.
    """
    if not isinstance(model.weighting, ThresholdGoal):
        return
    ensemble, labels = model.ensemble_, rows.labels
    weighted = labels.columns(labels.signed(model.oof_decision_function_))
    natural = weighted - ensemble.weighting.log_weights
    moved = at_goal(ensemble, model.weighting, natural, rows)
    weighted, seen = natural + moved.weighting.log_weights, seen_rows(natural)
    equation = key_equation_of_logits(rows.target[seen], weighted[seen], moved.weighting, rows.weights[seen])
    write_ensemble(model, moved, on_rows(without_test(equation), OUT_OF_FOLD_ROWS))
    model.oof_decision_function_ = labels.signed(labels.margin(weighted))
