"""Tensors as arrays, without importing what made them."""

from typing import Any

import numpy as np

__all__ = ["as_numpy", "rounding_of"]

# What NumPy has no type for, and what each loses: half the distance of two neighbours at 1.
_ROUNDING = {"torch.bfloat16": 2.0**-8, "torch.float16": 2.0**-11}


def as_numpy(values: Any) -> Any:
    """A tensor of any device, with a gradient or without, as an array; anything else as it is.

    A tensor is what can be detached and brought to the CPU. bfloat16, which NumPy does not have, becomes float32.
    """
    if not (hasattr(values, "detach") and hasattr(values, "cpu")):
        return values
    plain = values.detach().cpu()
    if str(getattr(plain, "dtype", "")) == "torch.bfloat16":
        plain = plain.float()
    return np.asarray(plain)


def rounding_of(values: Any) -> float:
    """By how much a number near 1 may be rounded in the type that values come in; 0 for single precision and above."""
    return _ROUNDING.get(str(getattr(values, "dtype", "")), 0.0)
