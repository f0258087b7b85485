"""Fitted networks as plain arrays and their float64 logits, in NumPy only.

The logits of a row are bit-identical in any batch and with any number of threads. A BLAS product alone does not
guarantee that, because its summation order depends on the number of rows and threads. Here every product has the same
shape (16 rows, zero-padded) and is small enough for BLAS to use one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from crcen.theory.rows import Array
from crcen.training.encoding import InputEncoding

ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "silu")

# Rows of one product and its largest inner dimension: up to this size BLAS sums in one pass.
_ROWS = 16
_INNER = 256
# Multiplications up to which OpenBLAS uses one thread: matrix-matrix and matrix-vector products.
_ONE_THREAD, _ONE_THREAD_VECTOR = 2**18, 2**13
# Numbers of a layer that are processed at a time, to stay in the cache.
_NUMBERS_AT_ONCE = 2**17

_Float = TypeVar("_Float", np.float32, np.float64)


@dataclass(frozen=True, eq=False)
class Network:
    """One multilayer perceptron with one output logit (two classes) or one logit per class."""

    encoding: InputEncoding  # the fitted input layer
    weights: tuple[Array, ...]  # one (in, out) matrix and one (out,) vector per layer
    biases: tuple[Array, ...]
    activation: str  # name of the hidden activation
    # whether each output is the logit of one class against all others, instead of an input of softmax
    is_one_against_all: bool = False

    def logits(self, X: Array) -> Array:
        """Weighted logits of X, (n,) or (n, C); for one against all log σ(o), so that softmax normalises."""
        outputs = self.outputs(X)
        return log_sigmoid(outputs) if self.is_one_against_all else outputs

    def outputs(self, X: Array) -> Array:
        """Values of the output layer."""
        return NetworkGroup.of([self]).outputs(X)[0]


@runtime_checkable
class Member(Protocol):
    """A fitted model that provides logits; C is 1 for two classes (the logit of the positive class)."""

    def logits(self, X: Array) -> Array:
        """Logits of the rows of X, float64 (n, C)."""

    def arrays(self) -> dict[str, Any]:
        """The state as plain values and arrays, for files and exported graphs."""


class NetworkGroup(Network):
    """Networks of one shape with one input encoding: weights and biases have one more axis; logits are averaged."""

    @classmethod
    def of(cls, networks: Sequence[Network]) -> NetworkGroup:
        """A group from networks of one shape."""
        first = networks[0]
        weights, biases = (
            tuple(np.stack(layer) for layer in zip(*parts, strict=True))
            for parts in ([n.weights for n in networks], [n.biases for n in networks])
        )
        return cls(first.encoding, weights, biases, first.activation, first.is_one_against_all)

    def __len__(self) -> int:
        return len(self.weights[0])

    def logits(self, X: Array) -> Array:
        """Mean logits, (n, 1) or (n, C)."""
        logits = super().logits(X)
        with np.errstate(over="ignore", invalid="ignore"):  # the caller reports overflow
            mean: Array = logits.mean(axis=0)
        return mean[:, None] if mean.ndim == 1 else mean

    def outputs(self, X: Array) -> Array:
        """Values of the output layer of every network, (networks, n), or (networks, n, C) for C > 1 outputs."""
        n, models, n_outputs, size = len(X), len(self), self.weights[-1].shape[2], self.encoding.size
        widest = max(weight.shape[2] for weight in self.weights)
        at_once = max(4, _NUMBERS_AT_ONCE // max(models * widest, size) // _ROWS) * _ROWS
        found = np.empty((models, n, n_outputs))
        pairs = zip(self.weights, self.biases, strict=True)
        *hidden, (last, last_bias) = [(np.ascontiguousarray(w)[:, None], b[:, None, None]) for w, b in pairs]
        with np.errstate(over="ignore", invalid="ignore"):  # the caller reports overflow
            for start in range(0, n, at_once):
                encoded = self.encoding(X[start : start + at_once])
                rows = len(encoded)
                if rows % _ROWS or not encoded.flags.c_contiguous:
                    padded = np.zeros((-(-rows // _ROWS) * _ROWS, size))
                    padded[:rows] = encoded
                    encoded = padded
                h: Array = encoded.reshape(1, -1, _ROWS, size)
                for weight, bias in hidden:
                    h = _product(h, weight)
                    h += bias
                    activate(self.activation, h)
                outputs = (_product(h, last) + last_bias).reshape(models, -1, n_outputs)
                found[:, start : start + rows] = outputs[:, :rows]
        return found[..., 0] if n_outputs == 1 else found

    def arrays(self) -> dict[str, Any]:
        """Encoding, weights and biases; absent parts are left out."""
        encoding = {one.name: getattr(self.encoding, one.name) for one in fields(self.encoding)}
        return {
            "encoding": {name: value for name, value in encoding.items() if value is not None},
            "weights": list(self.weights),
            "biases": list(self.biases),
            "activation": self.activation,
            **({"is_one_against_all": True} if self.is_one_against_all else {}),
        }

    def shifted(self, shift: float | Array) -> NetworkGroup:
        """The same networks with a shift, a number or one per output, added to the output bias."""
        return replace(self, biases=(*self.biases[:-1], self.biases[-1] + shift))

    def scaled(self, slope: float) -> NetworkGroup:
        """The same networks with every output multiplied by a slope."""
        if slope == 1.0:
            return self
        weights = (*self.weights[:-1], slope * self.weights[-1])
        return replace(self, weights=weights, biases=(*self.biases[:-1], slope * self.biases[-1]))


def log_sigmoid(outputs: NDArray[_Float]) -> NDArray[_Float]:
    """log σ(o), in the precision of o."""
    found: NDArray[_Float] = -np.logaddexp(outputs.dtype.type(0.0), -outputs)
    return found


def _product(h: Array, weight: Array) -> Array:
    """h (M or 1, blocks, rows, in) times weight (M, 1, in, out), in parts where the inner dimension is long."""
    n_in, n_out = weight.shape[2:]
    limit = _ONE_THREAD if n_out > 1 else _ONE_THREAD_VECTOR
    inner = max(1, min(_INNER, limit // (_ROWS * n_out)))
    out: Array = np.matmul(h[..., :inner], weight[:, :, :inner])
    for start in range(inner, n_in, inner):
        part = slice(start, start + inner)
        out += np.matmul(h[..., part], weight[:, :, part])
    return out


def activate(name: str, h: NDArray[_Float]) -> None:
    """Apply an activation in place."""
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
