"""A fitted network as plain arrays, its float64 logits, and the random numbers it starts from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.training.activations import activate_in_place
from crcen.training.encoding import InputEncoding
from crcen.training.threads import THREADS

__all__ = ["Network", "device_logits", "stacked_logits", "uniform"]

_ROWS_AT_ONCE = 2048
_NUMBERS_AT_ONCE = (2**18, 2**27)  # on a CPU, whose cache holds so many, and on CUDA, which wants large products

# splitmix64's constants, as signed 64-bit numbers.
_GOLDEN, _MIX_1, _MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Network:
    """One multilayer perceptron: its input encoding, hidden layers, one output logit.

    Parameters
    ----------
    encoding
        The frozen input layer.
    weights, biases
        One (in, out) matrix and one (out,) vector a layer; the last has one output.
    activation
        Name of the hidden activation.
    """

    encoding: InputEncoding
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: str

    def logits(self, X: Array) -> Array:
        """Weighted logits of the rows of X, float64 (n,)."""
        return stacked_logits(
            X,
            self.encoding,
            [weight[None] for weight in self.weights],
            [bias[None] for bias in self.biases],
            self.activation,
        )[0]


def stacked_logits(
    X: Array, encoding: InputEncoding, weights: Sequence[Array], biases: Sequence[Array], activation: str
) -> Array:
    """`device_logits` on the CPU, as an array."""
    return device_logits(X, encoding, weights, biases, activation, torch.device("cpu")).numpy()


def device_logits(
    X: Array,
    encoding: InputEncoding,
    weights: Sequence[Array],
    biases: Sequence[Array],
    activation: str,
    device: torch.device,
) -> Tensor:
    """Float64 logits of M networks of one shape that share their input encoding.

    This is the one path from stored parameters to logits: the balance solve and every prediction use it.

    Shape
    -----
    X (n, F); weights[l] (M, in, out); biases[l] (M, out); result (M, n).
    """
    layers = [
        (
            torch.from_numpy(np.ascontiguousarray(w)).to(device),
            torch.from_numpy(np.ascontiguousarray(b)).to(device)[:, None, :],
        )
        for w, b in zip(weights, biases, strict=True)
    ]
    models, widest = weights[0].shape[0], max(w.shape[2] for w in weights)
    numbers = _NUMBERS_AT_ONCE[device.type == "cuda"]
    at_once = max(64, min(_ROWS_AT_ONCE, numbers // max(models * widest, encoding.size)))
    logits = torch.empty(models, X.shape[0], dtype=torch.float64, device=device)
    with torch.inference_mode(), THREADS.for_work(float(X.shape[0]) * sum(w.size for w in weights)):
        for start in range(0, X.shape[0], at_once):
            chunk = np.ascontiguousarray(X[start : start + at_once], dtype=np.float64)
            h = torch.from_numpy(encoding(chunk)).to(device)[None]
            for weight, bias in layers[:-1]:
                h = activate_in_place(activation, (h @ weight).add_(bias))
            weight, bias = layers[-1]
            logits[:, start : start + at_once] = (h @ weight + bias)[..., 0]
    return logits


def uniform(seeds: Tensor, count: int) -> Tensor:
    """``count`` numbers in [−1, 1) for every seed, float64, a function of the seed alone on any device.

    A counter-based generator (the output function of splitmix64), so that thousands of networks can be filled at once
    and each gets what it would get alone.

    Shape
    -----
    seeds any shape, int64; result (*seeds.shape, count).
    """
    counters = torch.arange(1, count + 1, device=seeds.device) * _GOLDEN
    bits = _mix(_mix(seeds + _GOLDEN)[..., None] + counters)
    return _shifted(bits, 11).double() * 2.0**-52 - 1.0


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _MIX_1
    x = (x ^ _shifted(x, 27)) * _MIX_2
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Logical shift to the right; torch's own keeps the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)
