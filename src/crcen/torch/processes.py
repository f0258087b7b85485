"""Rows that several processes hold, put together in each of them."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from torch import distributed

from crcen.exceptions import InvalidInput
from crcen.torch.collected import Collected

__all__ = ["gathered", "n_processes"]

Target = TypeVar("Target")


def n_processes() -> int:
    """How many processes ``torch.distributed`` runs; 1 without it."""
    is_running = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if is_running else 1


def gathered(answers: Callable[[], tuple[Collected, Target]]) -> tuple[Collected, Target]:
    """The rows of all processes, in their order, and what this process has beside its own.

    Every process must get here. Where one of them fails, all do: nobody waits for it.
    """
    own: Any
    target: Any = None
    failure: Exception | None = None
    try:
        own, target = answers()
    except Exception as error:
        own, failure = f"{type(error).__name__}: {error}", error
    shares: list[Any] = [None] * n_processes()
    distributed.all_gather_object(shares, own)
    if failure is not None:
        raise failure
    for number, share in enumerate(shares):
        if isinstance(share, str):
            raise InvalidInput(f"process {number} has no rows to balance over: {share}")
    if len({share.logits.shape[1] for share in shares}) > 1:
        raise InvalidInput(f"processes answer {[share.logits.shape[1] for share in shares]} logits a row.")
    return _joined(shares), target


def _joined(shares: list[Collected]) -> Collected:
    sizes = None
    if any(share.sample_weight is not None for share in shares):
        sizes = np.concatenate([np.ones(len(s.y)) if s.sample_weight is None else s.sample_weight for s in shares])
    return Collected(np.concatenate([s.logits for s in shares]), np.concatenate([s.y for s in shares]), sizes)
