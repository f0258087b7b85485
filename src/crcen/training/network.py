"""A fitted network as plain arrays and its float64 logits, in NumPy: neither needs torch.

A row's logits are the same bits whatever rows come with it, and however many threads there are. A matrix product of
BLAS does not give that by itself, since its way of adding up depends on the number of rows and of threads. Here every
product has the same shape, 16 rows with zeros where there are fewer, and is small enough that BLAS takes one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.training.encoding import InputEncoding
from crcen.training.names import ACTIVATIONS

__all__ = ["Network", "activate", "log_sigmoid", "stacked_logits"]

# Rows of one product, and its largest inner dimension: up to there BLAS adds up in one go.
_ROWS = 16
_INNER = 256
# Multiplications up to which OpenBLAS takes one thread: of two matrices, of a matrix and a vector.
_ONE_THREAD, _ONE_THREAD_VECTOR = 2**18, 2**13
# Numbers of a layer that are worked on at a time, so that they stay in the cache.
_NUMBERS_AT_ONCE = 2**17

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Network:
    """One multilayer perceptron: its input encoding, hidden layers, one output logit, or one for each class.

    Parameters
    ----------
    encoding
        The frozen input layer.
    weights, biases
        One (in, out) matrix and one (out,) vector a layer; the last has the outputs.
    activation
        Name of the hidden activation.
    is_one_against_all
        Whether each output is the logit of a class against all others, and not one that softmax makes a probability of.
    """

    encoding: InputEncoding
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: str
    is_one_against_all: bool = False

    def logits(self, X: Array) -> Array:
        """Weighted logits of the rows of X, float64 (n,), or (n, C) for C classes, of which softmax is the probability.

        Of one against all these are log σ(o): softmax then divides the sigmoids by their sum.
        """
        outputs = self.outputs(X)
        return log_sigmoid(outputs) if self.is_one_against_all else outputs

    def outputs(self, X: Array) -> Array:
        """What the output layer gives, before `logits` makes anything of it."""
        return stacked_logits(
            X,
            self.encoding,
            [weight[None] for weight in self.weights],
            [bias[None] for bias in self.biases],
            self.activation,
        )[0]


def log_sigmoid(outputs: NDArray[np.floating[Any]]) -> Any:
    """log σ(o), in the precision of o."""
    return -np.logaddexp(outputs.dtype.type(0.0), -outputs)


def stacked_logits(
    X: Array, encoding: InputEncoding, weights: Sequence[Array], biases: Sequence[Array], activation: str
) -> Array:
    """Float64 logits of M networks of one shape that share their input encoding.

    This is the one path from stored parameters to logits: the balance solve and every prediction use it.

    Shape
    -----
    X (n, F); weights[l] (M, in, out); biases[l] (M, out); result (M, n), or (M, n, C) for C > 1 outputs.
    """
    n, models = len(X), len(weights[0])
    widest = max(weight.shape[2] for weight in weights)
    at_once = max(4, _NUMBERS_AT_ONCE // max(models * widest, encoding.size) // _ROWS) * _ROWS
    outputs = (weights[-1].shape[2],) if weights[-1].shape[2] > 1 else ()
    logits = np.empty((models, n, *outputs))
    layers = [
        (np.ascontiguousarray(weight)[:, None], bias[:, None, None])
        for weight, bias in zip(weights, biases, strict=True)
    ]
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is the caller's to refuse
        for start in range(0, n, at_once):
            encoded = encoding(X[start : start + at_once])
            rows = len(encoded)
            if rows % _ROWS or not encoded.flags.c_contiguous:
                filled = np.zeros((-(-rows // _ROWS) * _ROWS, encoding.size))
                filled[:rows] = encoded
                encoded = filled
            h: Array = encoded.reshape(1, -1, _ROWS, encoding.size)
            for weight, bias in layers[:-1]:
                h = _product(h, weight)
                h += bias
                activate(activation, h)
            weight, bias = layers[-1]
            logits[:, start : start + rows] = (_product(h, weight) + bias).reshape(models, -1, *outputs)[:, :rows]
    return logits


def _product(h: Array, weight: Array) -> Array:
    """h (M or 1, blocks, rows, in) times weight (M, 1, in, out), in parts of the inner dimension where it is long."""
    n_in, n_out = weight.shape[2:]
    limit = _ONE_THREAD if n_out > 1 else _ONE_THREAD_VECTOR
    inner = max(1, min(_INNER, limit // (_ROWS * n_out)))
    out: Array = np.matmul(h[..., :inner], weight[:, :, :inner])
    for start in range(inner, n_in, inner):
        part = slice(start, start + inner)
        out += np.matmul(h[..., part], weight[:, :, part])
    return out


def activate(name: str, h: NDArray[np.floating[Any]]) -> None:
    """Pre-activations → units, written over them."""
    if name == "relu":
        np.maximum(h, 0.0, out=h)
    elif name == "tanh":
        np.tanh(h, out=h)
    elif name == "sigmoid":
        np.divide(1.0, 1.0 + np.exp(-h), out=h)
    elif name == "gelu":
        from scipy.special import erf

        h *= 0.5 * (1.0 + erf(h * np.sqrt(0.5)))
    elif name == "silu":
        h /= 1.0 + np.exp(-h)
    else:
        raise ValueError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}: got {name!r}.")
