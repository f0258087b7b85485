"""Numbers on their way to a GPU: sent without waiting for the work that is queued there, and encoded on arrival."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.training.encoding import SMOOTH_LIMIT, InputEncoding

__all__ = ["encoded_on", "sent"]


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Values of the host on a device; a copy from memory that cannot be moved does not wait for a GPU's queue."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def encoded_on(device: torch.device, encoding: InputEncoding, X: NDArray[np.float64] | Tensor) -> Tensor:
    """What ``encoding(X)`` is, float64 (n, E), on a device; a GPU works it out, by the same operations.

    X may be there already.
    """
    if device.type == "cpu" or encoding.knots is not None:
        return torch.from_numpy(encoding(X.cpu().numpy() if isinstance(X, Tensor) else X)).to(device)
    return _worked_out(device, encoding, X)


def _worked_out(device: torch.device, encoding: InputEncoding, X: NDArray[np.float64] | Tensor) -> Tensor:
    x = X if isinstance(X, Tensor) else sent(torch.from_numpy(np.ascontiguousarray(X, dtype=np.float64)), device)
    if encoding.indicators is not None:
        x = torch.cat([x, x[:, sent(torch.from_numpy(encoding.indicators), device)].isnan().double()], 1)
    if encoding.columns is not None:
        x = x[:, sent(torch.from_numpy(encoding.columns), device)]
    mean, scale = (sent(torch.from_numpy(part), device) for part in (encoding.mean, encoding.scale))
    z = (x - mean).div_(scale)
    if encoding.low is not None and encoding.high is not None:
        low, high = (sent(torch.from_numpy(part), device) for part in (encoding.low, encoding.high))
        z.clamp_(low, high)
    if encoding.is_smooth:
        z.div_(torch.sqrt(1.0 + (z / SMOOTH_LIMIT) ** 2))
    return z.nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf) if encoding.indicators is not None else z
