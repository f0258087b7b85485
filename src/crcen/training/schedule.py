"""How many batches an epoch has, and the rate's one cycle."""

import math

__all__ = ["n_batches", "one_cycle"]

_WARM_UP = 0.2


def n_batches(n_rows: int, batch_size: int) -> int:
    """Batches an epoch over ``n_rows`` rows."""
    return -(-n_rows // min(batch_size, n_rows))


def one_cycle(progress: float) -> float:
    """Share of the peak rate at a share of the schedule: it rises over the first fifth and falls along a cosine."""
    if progress < _WARM_UP:
        return progress / _WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (progress - _WARM_UP) / (1 - _WARM_UP)))
