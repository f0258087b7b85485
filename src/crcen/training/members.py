"""Members: what a fitted model averages. A group of stacked networks is one kind."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from crcen.training.encoding import InputEncoding
from crcen.training.network import Network, log_sigmoid, stacked_logits

__all__ = ["Member", "NetworkGroup", "grouped"]

Array = NDArray[np.float64]


@runtime_checkable
class Member(Protocol):
    """Anything that gives logits; C is 1 for two classes, the logit of the positive one."""

    def logits(self, X: Array) -> Array:
        """Logits of the rows of X, float64 (n, C)."""

    def arrays(self) -> dict[str, Any]:
        """Its state as plain values and arrays, for files and graphs."""


@dataclass(frozen=True, eq=False)
class NetworkGroup:
    """Networks of one shape behind one input encoding, averaged as logits.

    Parameters
    ----------
    encoding
        The frozen input layer.
    weights, biases
        (networks, in, out) and (networks, out) a layer.
    activation
        Name of the hidden activation.
    is_one_against_all
        As in `crcen.training.network.Network`.
    """

    encoding: InputEncoding
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: str
    is_one_against_all: bool = False

    @classmethod
    def of(cls, networks: Sequence[Network]) -> "NetworkGroup":
        """Networks of one shape as a group."""
        return cls(
            networks[0].encoding,
            tuple(np.stack(layer) for layer in zip(*(n.weights for n in networks), strict=True)),
            tuple(np.stack(layer) for layer in zip(*(n.biases for n in networks), strict=True)),
            networks[0].activation,
            networks[0].is_one_against_all,
        )

    def __len__(self) -> int:
        return len(self.weights[0])

    def logits(self, X: Array) -> Array:
        """The networks' mean logits, (n, 1), or (n, C) for C classes."""
        logits = stacked_logits(X, self.encoding, self.weights, self.biases, self.activation)
        if self.is_one_against_all:
            logits = log_sigmoid(logits)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by the caller, in words
            mean: Array = logits.mean(axis=0)
        return mean[:, None] if mean.ndim == 1 else mean

    def arrays(self) -> dict[str, Any]:
        """Encoding, weights and biases; what is not there is not listed."""
        encoding = {name: value for name, value in vars(self.encoding).items() if value is not None}
        return {
            "encoding": encoding,
            "weights": list(self.weights),
            "biases": list(self.biases),
            "activation": self.activation,
            **({"is_one_against_all": True} if self.is_one_against_all else {}),
        }

    def networks(self) -> list[Network]:
        """The networks one by one."""
        return [
            Network(
                self.encoding,
                tuple(w[m] for w in self.weights),
                tuple(b[m] for b in self.biases),
                self.activation,
                self.is_one_against_all,
            )
            for m in range(len(self))
        ]

    def shifted(self, shift: float | Array) -> "NetworkGroup":
        """The same with a shift added to every output bias, one for each output where there are several."""
        return replace(self, biases=(*self.biases[:-1], self.biases[-1] + shift))

    def scaled(self, slope: float) -> "NetworkGroup":
        """The same with every output multiplied by a slope."""
        if slope == 1.0:
            return self
        weights = (*self.weights[:-1], slope * self.weights[-1])
        return replace(self, weights=weights, biases=(*self.biases[:-1], slope * self.biases[-1]))


def grouped(networks: Sequence[Any]) -> Any:
    """Trained networks of one kind as a member: stacked ones as arrays, modules of the caller's own as they are."""
    if isinstance(networks[0], Network):
        return NetworkGroup.of(networks)
    from crcen.training.module_member import ModuleGroup  # with torch, which arrays do not need

    return ModuleGroup(tuple(networks))
