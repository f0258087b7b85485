"""Float64 logits of fitted networks on a GPU, for the balance solve there."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.training.activations import activate_in_place
from crcen.training.encoding import InputEncoding
from crcen.training.network import stacked_logits
from crcen.training.transfers import encoded_on

__all__ = ["device_logits"]

_ROWS_AT_ONCE = 2048
_NUMBERS_AT_ONCE = 2**27  # a GPU wants large products

Array = NDArray[np.float64]


def device_logits(
    X: Array,
    encoding: InputEncoding,
    weights: Sequence[Array],
    biases: Sequence[Array],
    activation: str,
    device: torch.device,
) -> Tensor:
    """What `stacked_logits` gives, as a tensor (M, n), or (M, n, C), on a device."""
    if device.type == "cpu":
        return torch.from_numpy(stacked_logits(X, encoding, weights, biases, activation))
    layers = [
        (
            torch.from_numpy(np.ascontiguousarray(w)).to(device),
            torch.from_numpy(np.ascontiguousarray(b)).to(device)[:, None, :],
        )
        for w, b in zip(weights, biases, strict=True)
    ]
    models, widest = weights[0].shape[0], max(w.shape[2] for w in weights)
    at_once = max(64, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // max(models * widest, encoding.size)))
    n_outputs = weights[-1].shape[2]
    logits = torch.empty(models, X.shape[0], n_outputs, dtype=torch.float64, device=device)
    with torch.inference_mode():
        for start in range(0, X.shape[0], at_once):
            h = encoded_on(device, encoding, X[start : start + at_once])[None]
            for weight, bias in layers[:-1]:
                h = activate_in_place(activation, (h @ weight).add_(bias))
            weight, bias = layers[-1]
            logits[:, start : start + at_once] = h @ weight + bias
    return logits[..., 0] if n_outputs == 1 else logits
