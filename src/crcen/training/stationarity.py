"""The paper's stationarity condition for every parameter of a fitted network, in float64."""

import numpy as np
import torch
from numpy.typing import NDArray

from crcen.training.network import Network
from crcen.training.stack import Stack
from crcen.training.threads import reproducible_arithmetic

__all__ = ["gradient_of"]

Array = NDArray[np.float64]


def gradient_of(
    network: Network,
    X: Array,
    y: NDArray[np.bool_] | NDArray[np.int64],
    row_weights: Array,
    loss: str,
    l2: float,
    *,
    scaled: bool = False,
) -> tuple[list[Array], list[Array]]:
    """Gradient of a network's objective: Σ w (∂ℓ/∂o)(∂o/∂θ) / Σ w, plus l2·W on weights.

    For cross entropy ∂ℓ/∂o = q − y, so that without penalty a component is the paper's
    −λ Σ_pos (1 − q) ∂o/∂θ + (1 − λ) Σ_neg q ∂o/∂θ, divided by Σ w. For a network with an output for each class y holds
    class numbers. Where encoded columns had scales, the penalty on the first layer is l2·Σ‖W_j‖ over its columns j,
    which has no gradient where W_j is zero; the change by a proximal step of length one stands for it.

    Returns
    -------
    weights, biases
        One array a layer, in the shapes of the network's own parameters.
    """
    hidden = tuple(weight.shape[1] for weight in network.weights[:-1])
    cpu = torch.device("cpu")
    size, n_outputs = network.encoding.size, network.weights[-1].shape[1]
    stack = Stack(1, size, [hidden], network.activation, loss, torch.float64, cpu, n_outputs=n_outputs)
    stack.set_network(0, 0, network.weights, network.biases)
    encoded = network.encoding(X)
    x = torch.from_numpy(np.column_stack([encoded, np.ones(len(X))]))[None]
    target = torch.from_numpy(y.astype(np.float64))[None, :, None]
    weight = torch.from_numpy(row_weights / row_weights.sum())[None, :, None]
    with torch.no_grad(), reproducible_arithmetic():
        stack.loss_and_gradient(x, target, weight, add=True)
    weights, biases = stack.arrays(stack.grad)[0]
    penalised = [grad[0, 0] + l2 * own for grad, own in zip(weights, network.weights, strict=True)]
    if scaled:
        first = network.weights[0]
        # A column that is left out has no gradient: what a proximal step of length one would change is zero just where
        # the objective is stationary, and g + l2·W_j/‖W_j‖ to first order elsewhere.
        ahead = first - weights[0][0, 0]
        sizes = np.linalg.norm(ahead, axis=1, keepdims=True)
        penalised[0] = first - ahead * np.maximum(1.0 - l2 / np.maximum(sizes, np.finfo(np.float64).tiny), 0.0)
    return penalised, [grad[0, 0] for grad in biases]
