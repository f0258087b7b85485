"""The random numbers that networks start from."""

import torch
from torch import Tensor

__all__ = ["uniform"]

# splitmix64's constants, as signed 64-bit numbers.
_GOLDEN, _MIX_1, _MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


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
