"""A fitted network as plain arrays, its float64 logits, and its initial parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from crcen.training.activations import ACTIVATIONS

__all__ = ["INPUT_LIMIT", "Network", "encode", "initial_parameters", "stacked_logits"]

# Standardised inputs are cut off here, far outside any training row, so that a wild new value cannot give a NaN.
INPUT_LIMIT = 1e6
_ROWS_AT_ONCE = 2048

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Network:
    """One multilayer perceptron: z = (x − mean)/scale, hidden layers, one output logit.

    Parameters
    ----------
    mean, scale
        (F,) each; zeros and ones where inputs are not standardised.
    weights, biases
        One (in, out) matrix and one (out,) vector a layer; the last has one output.
    activation
        Name of the hidden activation.
    is_standardized
        Whether ``mean`` and ``scale`` came from data.
    """

    mean: Array
    scale: Array
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: str
    is_standardized: bool = True

    def logits(self, X: Array) -> Array:
        """Weighted logits of the rows of X, float64 (n,)."""
        return stacked_logits(
            X,
            self.mean,
            self.scale,
            [weight[None] for weight in self.weights],
            [bias[None] for bias in self.biases],
            self.activation,
            limit=self.is_standardized,
        )[0]


def encode(X: Array, mean: Array, scale: Array, *, limit: bool) -> Array:
    """Standardise rows; with ``limit`` also cut them off at ±`INPUT_LIMIT`."""
    with np.errstate(over="ignore"):
        z = (X - mean) / scale
    return np.clip(z, -INPUT_LIMIT, INPUT_LIMIT, out=z) if limit else z


def stacked_logits(
    X: Array,
    mean: Array,
    scale: Array,
    weights: Sequence[Array],
    biases: Sequence[Array],
    activation: str,
    *,
    limit: bool = True,
) -> Array:
    """Float64 logits of M networks of one shape that share their input encoding.

    This is the one path from stored parameters to logits: the balance solve and every prediction use it.

    Shape
    -----
    X (n, F); weights[l] (M, in, out); biases[l] (M, out); result (M, n).
    """
    act = ACTIVATIONS[activation].forward
    layers = [
        (torch.from_numpy(np.ascontiguousarray(w)), torch.from_numpy(np.ascontiguousarray(b))[:, None, :])
        for w, b in zip(weights, biases, strict=True)
    ]
    logits = np.empty((weights[0].shape[0], X.shape[0]))
    with torch.inference_mode():
        for start in range(0, X.shape[0], _ROWS_AT_ONCE):
            chunk = np.ascontiguousarray(X[start : start + _ROWS_AT_ONCE], dtype=np.float64)
            h = torch.from_numpy(encode(chunk, mean, scale, limit=limit))[None]
            for weight, bias in layers[:-1]:
                h = act(h @ weight + bias)
            weight, bias = layers[-1]
            logits[:, start : start + _ROWS_AT_ONCE] = (h @ weight + bias)[..., 0].numpy()
    return logits


def initial_parameters(
    n_features: int, hidden: tuple[int, ...], activation: str, seed: int
) -> tuple[list[Array], list[Array]]:
    """Glorot-uniform weights and biases from the job's own seed; the output bias starts at zero.

    A network without hidden layer starts at zero: its objective is convex.
    """
    sizes = (n_features, *hidden, 1)
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 1])))
    weights: list[Array] = []
    biases: list[Array] = []
    for fan_in, fan_out in pairwise(sizes):
        bound = np.sqrt(ACTIVATIONS[activation].gain / (fan_in + fan_out))
        weights.append(rng.uniform(-bound, bound, (fan_in, fan_out)))
        biases.append(rng.uniform(-bound, bound, fan_out))
    biases[-1][:] = 0.0
    if not hidden:
        weights[0][:] = 0.0
    return weights, biases
