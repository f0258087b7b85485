"""The balance of any module: its output bias moved to where the key equation holds."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.balance import balance_shift, class_shifts
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits, without_test
from crcen.theory.price import resolve
from crcen.theory.rows import check_class_numbers
from crcen.torch.collected import Collected, answer, as_answering, collect, split_batch
from crcen.torch.natural import NaturalLogits
from crcen.torch.output_bias import bias_of, check_moves_logits, last_layer, named_bias
from crcen.torch.processes import gathered, n_processes
from crcen.torch.weights import binary_price, stated_weights

__all__ = ["balance_"]

_SOLVED = "these rows were solved for; test on rows that the network has not seen"


def balance_(
    module: nn.Module, batches: Iterable[Any], weighting: Any, *, bias: str | None = None, distributed: bool = True
) -> KeyEquation:
    """Move the output bias of any module, in place, to where the key equation holds on these rows.

    The module is run in evaluation mode (dropout off, batch norm with its running statistics, which stay as they are);
    the mode of every part is restored. Logits are kept in float64 on the CPU, 8 bytes each, and the bias is solved for
    on all of them at once, whatever the batch size.

    Parameters
    ----------
    module : nn.Module
        Answers weighted logits (rows,), (rows, 1) or (rows, K), or an object with ``.logits``. With a `NaturalLogits`
        its shift is moved instead of a bias.
    batches : iterable
        Pairs of inputs and target, such as a ``DataLoader`` of the training rows, gone through once. Inputs are a
        tensor, a tuple (arguments) or a dict (named arguments); a dict with ``labels`` is a batch too. Targets are
        as in `ClassWeightedLoss`.
    weighting
        What the module was trained under: as in `ClassWeightedLoss`, or that loss itself. ``"balanced"`` and α are
        resolved on these rows.
    bias : str, optional
        Name of the parameter that is the output bias. By default that of the linear or convolutional layer which one
        forward pass reaches last. Either is tried: what is added to it must come out as added to the logits.
    distributed : bool, default=True
        Where ``torch.distributed`` runs several processes: each of them calls this with its own share of the rows, the
        shares are put together, and all solve for the same bias. ``False`` for one process that has all rows.

    Returns
    -------
    KeyEquation or KeyEquation
        For two classes, with one logit or two, and for more, with the bias as it is stored now.

    Raises
    ------
    InvalidParameter
        If there is no output bias, or the weighting does not fit.
    InvalidInput
        If batches cannot be used, or a class is absent.

    Notes
    -----
    The solve is exact in float64. A float32 bias b is stored with an error of up to 6e-8·|b|, which leaves a residual
    of at most 1.5e-8·|b|, and the module's own float32 arithmetic adds as much times its logits; bfloat16 leaves up to
    1e-3·|b|: balance a float32 copy.

    A ``DistributedSampler`` repeats a few rows so that all shares have one length; they then count twice here, as they
    did in training.
    """
    if isinstance(module, nn.parallel.DistributedDataParallel):  # its forward would wait for the other processes
        module, bias = module.module, None if bias is None else bias.removeprefix("module.")
    with as_answering(module):
        if distributed and n_processes() > 1:
            rows, target = gathered(lambda: _answers(module, batches, bias))
        else:
            rows, target = _answers(module, batches, bias)
        return _solve(rows, weighting, target, module.class_weights if isinstance(module, NaturalLogits) else None)


def _answers(module: nn.Module, batches: Iterable[Any], name: str | None) -> tuple[Collected, Tensor]:
    """Weighted logits and labels of all batches, and the bias that moves them."""
    pairs = (split_batch(batch) for batch in batches)
    first = next(pairs, None)
    if first is None:
        raise InvalidInput("there is no batch to balance over: got an empty loader; was a generator used up?")
    if isinstance(module, NaturalLogits):
        if name is not None:
            raise InvalidParameter(f"NaturalLogits has a shift of its own: got bias={name!r}; leave it out.")
        forward: Callable[..., Any] = module.weighted_logits
        logits, target = answer(module, first[0], forward), module.shift
    else:
        forward = module
        logits, target = _output_bias(module, first[0], name)
    rest = ((answer(module, inputs, forward), y) for inputs, y in pairs)
    return collect(chain([(logits, first[1])], rest)), target


def _output_bias(module: nn.Module, inputs: Any, name: str | None) -> tuple[Tensor, Tensor]:
    logits, last = last_layer(module, lambda: answer(module, inputs))
    columns = logits.shape[1]
    if name is None:
        name, bias = bias_of(last, columns)
    else:
        bias = named_bias(module, name, columns)
    if bool(logits.isfinite().all()):  # if not, that is what there is to say
        check_moves_logits(name, bias, logits, lambda: answer(module, inputs))
    return logits, bias


def _solve(rows: Collected, weighting: Any, bias: Tensor, taken_out: Tensor | None) -> KeyEquation:
    columns = rows.logits.shape[1]
    sizes = rows.sample_weight
    counts = np.bincount(check_class_numbers(rows.y, max(columns, 2)), weights=sizes, minlength=max(columns, 2))
    if not counts.all():
        raise InvalidInput(f"batches must hold rows of each of {counts.size} classes: got counts {counts.tolist()}.")
    if columns <= 2:
        margin = rows.logits[:, -1] - (rows.logits[:, 0] if columns == 2 else 0.0)
        resolved = resolve(binary_price(weighting), float(counts[1]), float(counts[0]))
        _check_same(taken_out, np.array([resolved.threshold, resolved.lam]))
        shift = balance_shift(rows.y, margin, resolved, sizes)
        moved = _add(bias, np.array([0.0, shift])[-bias.numel() :])
        stored = float(moved[-1] - (moved[0] if moved.size == 2 else 0.0))
        return without_test(key_equation_of_logits(rows.y, margin + stored, resolved, sizes), _SOLVED)
    weights = resolve(stated_weights(weighting), counts=counts)
    _check_same(taken_out, weights.weights)
    # The mean stays where it is: softmax does not see it, and biases stay small.
    moved = _add(bias, class_shifts(rows.y, rows.logits, weights.weights, sizes))
    return without_test(key_equation_of_logits(rows.y, rows.logits + moved, weights, sizes), _SOLVED)


def _add(bias: Tensor, shifts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add to the bias in float64; what the stored one has moved by."""
    before = bias.detach().double().cpu().clone()  # a float64 bias would else be seen through its own copy
    bias.copy_((before + torch.from_numpy(shifts).reshape(before.shape)).to(bias.dtype))
    return np.asarray((bias.detach().double().cpu() - before).reshape(-1).numpy())


def _check_same(taken_out: Tensor | None, weights: NDArray[np.float64]) -> None:
    """NaturalLogits takes out the weights it was made with: another weighting would leave a shift in its answers."""
    if taken_out is None:
        return
    own = taken_out.detach().double().cpu().numpy()
    if own.size != weights.size or not np.allclose(weights / weights[0], own / own[0], rtol=1e-5):
        raise InvalidParameter(
            f"NaturalLogits takes out weights in the ratio {_ratios(own)}: got {_ratios(weights)} to balance at; give "
            f"the module itself as weighting."
        )


def _ratios(weights: NDArray[np.float64]) -> str:
    return " : ".join(f"{w:.6g}" for w in weights / weights[0])
