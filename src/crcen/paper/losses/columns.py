"""One column of logits a class, whatever shape a network answers in, and checked counts."""

from typing import Any

import torch
from torch import Tensor

from crcen.exceptions import InvalidInput, InvalidParameter

__all__ = ["checked_counts", "logit_columns", "true_column"]


def logit_columns(logits: Tensor, n_classes: int | None = None) -> Tensor:
    """(B,), (B, 1) or (B, K) → (B, K). One logit o becomes the pair (0, o), whose softmax is (1 − σ(o), σ(o))."""
    if logits.ndim == 2 and logits.shape[1] == 1:
        logits = logits[:, 0]
    if logits.ndim == 1:
        logits = torch.stack([torch.zeros_like(logits), logits], dim=1)
    if logits.ndim != 2 or (n_classes is not None and logits.shape[1] != n_classes):
        wanted = "(B, K)" if n_classes is None else f"(B, {n_classes})"
        raise InvalidInput(f"logits must have the shape (B,), (B, 1) or {wanted}: got {tuple(logits.shape)}.")
    return logits


def true_column(target: Tensor, logits: Tensor) -> Tensor:
    """The class number of every row, (B,) int64, checked against the columns of the logits."""
    flat = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
    if flat.shape != logits.shape[:1]:
        raise InvalidInput(
            f"target must hold a class number for each of {len(logits)} rows: got the shape {tuple(target.shape)}."
        )
    numbers = flat.long()
    if bool((numbers != flat).any()) or (
        len(flat) and not 0 <= int(numbers.min()) <= int(numbers.max()) < logits.shape[1]
    ):
        raise InvalidInput(f"target must hold class numbers from 0 to {logits.shape[1] - 1}.")
    return numbers


def checked_counts(counts: Any) -> Tensor:
    """Rows of each class, as float64."""
    found = torch.as_tensor(counts, dtype=torch.float64)
    if found.ndim != 1 or len(found) < 2 or not bool((found > 0).all()) or not bool(found.isfinite().all()):
        raise InvalidParameter(
            f"counts must hold the rows of class 0, 1, … of the training set, all above 0: got {counts!r}."
        )
    return found
