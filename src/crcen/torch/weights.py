"""What one row of each class weighs in a loss, from any way to state it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.price import Alpha, CostRatio, Price, as_spec, resolve, resolved

__all__ = ["binary_price", "stated_weights", "weighting_of", "weights_of_classes"]

Array = NDArray[np.float64]


def stated_weights(weighting: Any) -> Any:
    """A weighting with losses, tensors and cost matrices turned into a list of weights; anything else as it is."""
    # A ClassWeightedLoss, or a NaturalLogits: whatever keeps the weights that it was given.
    if isinstance(weighting, torch.nn.Module):
        weighting = getattr(weighting, "class_weights", weighting)
        if isinstance(weighting, torch.nn.Module):
            raise InvalidParameter(
                f"a weighting given as a module must be a ClassWeightedLoss or NaturalLogits: got "
                f"{type(weighting).__name__}; ClassWeightedLoss.from_torch takes torch's losses."
            )
    if isinstance(weighting, torch.Tensor):
        return weighting.detach().double().cpu().numpy()
    if isinstance(weighting, CostMatrix):
        weights = weighting.class_weights()
        if weights is None:
            raise InvalidParameter(
                "these costs are no weights of classes: what a mistake costs differs by where the row goes; train "
                "without weights and decide with CostMatrix.choose."
            )
        return weights
    return weighting


def weighting_of(holder: torch.nn.Module) -> torch.nn.Module:
    """The one loss with class weights that a module is or holds, for callbacks that are not told a weighting."""
    kept = [part for part in holder.modules() if isinstance(getattr(part, "class_weights", None), torch.Tensor)]
    if len(kept) != 1:
        raise InvalidParameter(
            f"{type(holder).__name__} must hold one ClassWeightedLoss to read the weighting off: got {len(kept)}; give "
            f"BalanceCallback its weighting."
        )
    return kept[0]


def weights_of_classes(weighting: Any, counts: Any = None) -> Array:
    """Weights (K,) for a loss.

    A price for two classes (λ, α, cost ratio, budget) gives weights in the ratio 1 − λ to λ whose mean over the counted
    rows is 1, so that the loss is as large as an unweighted one; without counts, over as many rows of either class.
    Weights stated one by one stay as they are.

    Parameters
    ----------
    weighting
        As in `crcen.torch.ClassWeightedLoss`.
    counts : array of shape (K,), optional
        Rows of each class.
    """
    given = stated_weights(weighting)
    if isinstance(given, Price):
        return given.weights if given.positive is None else _of_price(given)
    if _is_list(given):
        n_classes = len(given) if counts is None else len(counts)
        return resolved(given, np.ones(n_classes) if counts is None else np.asarray(counts, dtype=np.float64)).weights
    if counts is None:
        if isinstance(as_spec(given), Alpha):
            raise InvalidParameter(
                f"weighting={weighting!r} needs the rows of each class: give counts, such as "
                f"counts=torch.bincount(y), or a cost ratio, λ, or a weight for each class."
            )
        return _of_price(resolve(given, 1.0, 1.0))
    sizes = np.asarray(counts, dtype=np.float64)
    if sizes.shape == (2,):
        return _of_price(resolve(given, sizes[1], sizes[0]))
    return resolve(given, counts=sizes).weights


def binary_price(weighting: Any) -> Any:
    """A weighting of two classes as `crcen.resolve` takes it: two stated weights are a cost ratio."""
    given = stated_weights(weighting)
    if not _is_list(given) and not (isinstance(given, Price) and given.positive is None):
        return given
    weights = weights_of_classes(given)
    if weights.size != 2:
        raise InvalidParameter(f"the network tells two classes apart: got weights for {weights.size}.")
    return CostRatio(float(weights[1] / weights[0]))


def _is_list(given: Any) -> bool:
    return isinstance(given, Mapping | list | tuple) or (isinstance(given, np.ndarray) and given.ndim > 0)


def _of_price(price: Price) -> Array:
    return np.asarray(price.weights * (price.counts.sum() / (price.weights @ price.counts)))
