"""The balance solve: the shift of an output bias that makes the key equation hold exactly.

With a = o + d, the weighted residual Σ_pos w σ(−a) − Σ_neg w σ(a) falls strictly in d and has one root whenever both
classes are present. The solve works on the difference of the logarithms of the two sums, which keeps its relative
precision where every probability is saturated, and is computed from logits, never from probabilities. Each Newton step
is kept inside a bracket and replaced by bisection where it would leave it: plain Newton diverges from saturated logits.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from crcen.exceptions import InvalidInput
from crcen.training.threads import reproducible_arithmetic

__all__ = ["find_root", "log_sums", "log_sums_gap", "merged_log_sums", "relative_residual", "solve_shifts"]

_MAX_STEPS = 200


def solve_shifts(
    y: NDArray[np.bool_], logits: NDArray[np.float64] | Tensor, weights: NDArray[np.float64] | Tensor
) -> NDArray[np.float64]:
    """Shifts of M networks at once, each from its own logits and weights; tensors are solved for where they lie.

    Shape
    -----
    y (n,); logits (M, n); weights (M, n) or (1, n); result (M,).
    """
    outputs, row_weights = _tensor(logits), _tensor(weights)
    used = (row_weights > 0).any(0).cpu().numpy()
    pos, neg = y & used, ~y & used
    if not pos.any() or not neg.any():
        missing = "positive" if not pos.any() else "negative"
        raise InvalidInput(f"the balance solve needs rows of both classes with weight: no {missing} row was given.")
    with reproducible_arithmetic():
        return _solve(outputs, row_weights, pos, neg)


def _tensor(values: NDArray[np.float64] | Tensor) -> Tensor:
    """An array as a tensor that shares its memory where torch allows it."""
    return values if isinstance(values, Tensor) else torch.from_numpy(np.require(values, requirements=["C", "W"]))


def _solve(logits: Tensor, weights: Tensor, pos: NDArray[np.bool_], neg: NDArray[np.bool_]) -> NDArray[np.float64]:
    rows = [torch.from_numpy(np.flatnonzero(part)).to(logits.device) for part in (pos, neg)]
    out_pos, out_neg = (logits.index_select(1, part) for part in rows)
    log_pos, log_neg = (weights.index_select(1, part).log() for part in rows)

    # Outside these ends one of the two sums dominates whatever the logits are.
    spread = (log_pos.logsumexp(1) - log_neg.logsumexp(1)).abs() + 40.0
    low = -torch.maximum(out_pos.amax(1), out_neg.amax(1)) - spread
    high = -torch.minimum(out_pos.amin(1), out_neg.amin(1)) + spread

    def gap_and_slope(shift: Tensor) -> tuple[Tensor, Tensor]:
        return _log_gap(out_pos + shift[:, None], log_pos, out_neg + shift[:, None], log_neg)

    return find_root(gap_and_slope, torch.zeros_like(low), low, high).cpu().numpy()


def find_root(
    gap_and_slope: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    low: Tensor,
    high: Tensor,
    tol: float = 0.0,
) -> Tensor:
    """Where falling functions are zero, by Newton steps kept inside their brackets; each tensor (M,).

    ``gap_and_slope`` gives the functions and their derivatives at a point. It may add them up over chunks of rows or
    over several machines: the search depends on nothing else. A function within ``tol`` of zero counts as zero.
    """
    shift = start.clamp(low, high)
    for _ in range(_MAX_STEPS):
        gap, slope = gap_and_slope(shift)
        low = torch.where(gap >= 0, shift, low)
        high = torch.where(gap <= 0, shift, high)
        step = shift - gap / slope
        inside = (step > low) & (step < high) & torch.isfinite(step)
        new = torch.where(inside, step, 0.5 * (low + high))
        new = torch.where(gap.abs() <= tol, shift, new)
        done = (new - shift).abs() <= 4e-16 * new.abs().clamp(min=1.0)
        shift = new
        if bool(done.all()):
            break
    return shift


def _log_gap(a_pos: Tensor, log_pos: Tensor, a_neg: Tensor, log_neg: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ_pos w σ(−a) − log Σ_neg w σ(a), falling in the shift, and its slope."""
    terms_pos, terms_neg = log_pos + logsigmoid(-a_pos), log_neg + logsigmoid(a_neg)
    sum_pos, sum_neg = terms_pos.logsumexp(1), terms_neg.logsumexp(1)
    share_pos, share_neg = (terms_pos - sum_pos[:, None]).exp(), (terms_neg - sum_neg[:, None]).exp()
    slope = -(share_pos * torch.sigmoid(a_pos)).sum(1) - (share_neg * torch.sigmoid(-a_neg)).sum(1)
    return sum_pos - sum_neg, slope


def log_sums(a_pos: Tensor, log_pos: Tensor, a_neg: Tensor, log_neg: Tensor) -> Tensor:
    """What some rows, one network's, contribute to the balance solve, as logarithms (4,).

    Of Σ_pos w σ(−a), Σ_neg w σ(a), and both with σ(a)σ(−a) in place of the one factor; −inf for no rows. Contributions
    of chunks and of workers add up by `merged_log_sums`.

    Shape
    -----
    a_pos, log_pos (n_pos,): shifted logits and log weights of the positives; a_neg, log_neg (n_neg,) of the negatives.
    """
    miss, alarm = log_pos + logsigmoid(-a_pos), log_neg + logsigmoid(a_neg)
    return torch.stack(
        [
            miss.logsumexp(0),
            alarm.logsumexp(0),
            (miss + logsigmoid(a_pos)).logsumexp(0),
            (alarm + logsigmoid(-a_neg)).logsumexp(0),
        ]
    )


def merged_log_sums(parts: Tensor) -> Tensor:
    """Contributions (n, 4) of n parts of the rows, added up: (4,)."""
    return parts.logsumexp(0)


def log_sums_gap(sums: Tensor) -> tuple[Tensor, Tensor]:
    """The gap of `find_root` and its slope, (1,) each, from the `log_sums` of all rows."""
    miss, alarm, miss_slope, alarm_slope = sums
    return (miss - alarm)[None], -((miss_slope - miss).exp() + (alarm_slope - alarm).exp())[None]


def relative_residual(
    y: NDArray[np.bool_], logits: NDArray[np.float64] | Tensor, weights: NDArray[np.float64] | Tensor
) -> NDArray[np.float64]:
    """|Σ w (y − q)| / Σ w of M networks: logits (M, n), weights (M, n) or (1, n) → (M,)."""
    a, w = _tensor(logits), _tensor(weights)
    error = torch.where(torch.from_numpy(y).to(a.device), torch.sigmoid(-a), -torch.sigmoid(a))
    return ((w * error).sum(1).abs() / w.sum(1)).cpu().numpy()
