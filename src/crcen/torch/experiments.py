"""What could hold an output bias off its key equation, each tried: the equation is solved with it and without it."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crcen.exceptions import InvalidParameter
from crcen.theory.balance import balance_shift, class_shifts
from crcen.theory.price import resolve
from crcen.torch.collected import answer, as_answering, collect, split_batch
from crcen.torch.loss import ClassWeightedLoss
from crcen.torch.natural import NaturalLogits
from crcen.torch.trial_rows import TrialRows, row_by_row
from crcen.torch.weights import binary_price, stated_weights

__all__ = ["Effect", "solved", "tried"]

Array = NDArray[np.float64]

_MOST_BATCHES, _MOST_STEPS = 200, 500


@dataclass(frozen=True, eq=False)
class Effect:
    """By how much a cause moves the solution of the key equation, or why that is not known."""

    moved: Array | None
    sentence: str
    is_absent: bool = False


def _unseen(sentence: str) -> Effect:
    return Effect(None, sentence)


def _absent(sentence: str) -> Effect:
    return Effect(None, sentence, is_absent=True)


def solved(rows: TrialRows, weighting: Any, logits: Array, row_weights: Array | None = None) -> Array:
    """What must be added to each column of logits for the key equation to hold; of several their mean is 0.

    ``row_weights`` multiply the rows of ``rows.collected``.
    """
    kept = rows.collected
    sizes = kept.sample_weight
    if row_weights is not None:
        sizes = row_weights if sizes is None else sizes * row_weights
    columns = logits.shape[1]
    if columns == 1:
        resolved = resolve(binary_price(weighting), float(rows.counts[1]), float(rows.counts[0]))
        return np.array([balance_shift(kept.y, logits[:, 0], resolved, sizes)])
    if columns == 2:
        resolved = resolve(binary_price(weighting), float(rows.counts[1]), float(rows.counts[0]))
        shift = balance_shift(kept.y, logits[:, 1] - logits[:, 0], resolved, sizes)
        return np.array([-0.5 * shift, 0.5 * shift])
    weights = resolve(stated_weights(weighting), counts=rows.counts).weights
    return class_shifts(kept.y, logits, weights, sizes)


def tried(rows: TrialRows, weighting: Any, loss: nn.Module | None, optimizer: Any, sampler: Any) -> dict[str, Effect]:
    """The effect of every cause that is known, by its name."""
    return {
        "weight decay on biases": _weight_decay(rows, weighting, loss, optimizer),
        "label smoothing": _label_smoothing(rows, loss),
        "weights divided by batch": _mean_by_batch(rows, loss),
        "other weights than stated": _other_weights(rows, weighting, loss),
        "weighted sampler": _weighted_sampler(rows, weighting, sampler),
        "batch normalisation": _batch_norm(rows, weighting),
        "dropout": _dropout(rows, weighting),
        "early stopping": _early_stopping(rows, weighting, loss, optimizer),
    }


def _minimised(columns: int, objective: Callable[[Tensor], Tensor]) -> Array:
    """Where an objective of the shifts is least, by L-BFGS in float64."""
    shifts = torch.zeros(columns, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS(
        [shifts], max_iter=200, tolerance_grad=1e-10, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        value = objective(shifts)
        value.backward()
        return value

    with torch.enable_grad():
        solver.step(closure)
    found = shifts.detach().numpy()
    return np.asarray(found - found.mean() if columns > 1 else found)


def _called(loss: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss as training calls it: BCE wants its target in the shape of the logits, cross entropy class numbers."""
    if isinstance(loss, nn.BCEWithLogitsLoss):
        return loss(outputs[:, -1] if outputs.shape[1] == 1 else outputs, targets.reshape(-1).to(outputs.dtype))
    if isinstance(loss, nn.CrossEntropyLoss) and targets.is_floating_point():
        targets = targets.to(outputs.dtype)
    return loss(outputs, targets)


def _as_float64(loss: nn.Module) -> nn.Module:
    copied = copy.deepcopy(loss).cpu()
    return copied.double() if isinstance(copied, nn.Module) else copied


def _solution(rows: TrialRows, loss: nn.Module, decay: Callable[[Tensor], Tensor] | None = None) -> Array:
    """Where this loss over all rows at once is least, with a penalty or without."""
    own = _as_float64(loss)

    def objective(shifts: Tensor) -> Tensor:
        value = _called(own, rows.outputs + shifts, rows.targets)
        return value if decay is None else value + decay(shifts)

    return _minimised(rows.outputs.shape[1], objective)


def _weight_decay(rows: TrialRows, weighting: Any, loss: nn.Module | None, optimizer: Any) -> Effect:
    """The penalty that an optimizer puts on the output bias."""
    if optimizer is None:
        return _unseen("give optimizer= to see it")
    if rows.bias is None:
        return _absent(f"no output bias to decay: {rows.no_bias}")
    groups = [g for g in optimizer.param_groups if any(p is rows.bias for p in g["params"])]
    if not groups:
        return _absent("the optimizer does not hold the output bias")
    rate = float(groups[0].get("weight_decay", 0.0))
    if rate == 0.0:
        return _absent("weight_decay of the output bias is 0")
    decay: Any = rate
    if isinstance(optimizer, torch.optim.AdamW) or groups[0].get("decoupled_weight_decay", False):
        state = optimizer.state.get(rows.bias, {})
        if "exp_avg_sq" not in state:
            return _unseen("the optimizer has made no step: what its decay weighs against is not known")
        steps = float(state["step"])
        size = (state["exp_avg_sq"].double().cpu() / (1.0 - groups[0]["betas"][1] ** steps)).sqrt()
        decay = rate * (size + groups[0]["eps"]).reshape(-1)
    bias = rows.bias.detach().double().cpu().reshape(-1)
    used = ClassWeightedLoss(weighting, rows.counts) if loss is None else loss
    plain = _solution(rows, used)
    decayed = _solution(rows, used, lambda shifts: 0.5 * (decay * (bias + shifts) ** 2).sum())
    return Effect(decayed - plain, f"weight_decay={rate:g} in the equation of the output bias")


def _label_smoothing(rows: TrialRows, loss: nn.Module | None) -> Effect:
    """Labels that a loss smooths."""
    if loss is None:
        return _unseen("give loss= to see it")
    share = getattr(loss, "label_smoothing", 0.0)
    if not share:
        return _absent("the loss smooths no labels")
    sharp: Any = copy.deepcopy(loss)
    sharp.label_smoothing = 0.0
    return Effect(_solution(rows, loss) - _solution(rows, sharp), f"label_smoothing={share:g} in the loss")


def _mean_by_batch(rows: TrialRows, loss: nn.Module | None) -> Effect:
    """The same loss over drawn batches, and over their rows at once."""
    if loss is None:
        return _unseen("give loss= to see it")
    n, size = len(rows.targets), min(rows.batch_size, len(rows.targets))
    if size == n:
        return _unseen("all rows came as one batch: give them in the batches of training")
    generator = torch.Generator().manual_seed(0)
    parts: list[Tensor] = []
    while len(parts) < _MOST_BATCHES:
        parts += [part for part in torch.randperm(n, generator=generator).split(size) if len(part) == size]
    parts = parts[:_MOST_BATCHES]
    own = _as_float64(loss)
    every = torch.cat(parts)

    def by_batch(shifts: Tensor) -> Tensor:
        values = [_called(own, rows.outputs[part] + shifts, rows.targets[part]) for part in parts]
        return torch.stack(values).mean()

    def at_once(shifts: Tensor) -> Tensor:
        return _called(own, rows.outputs[every] + shifts, rows.targets[every])

    columns = rows.outputs.shape[1]
    moved = _minimised(columns, by_batch) - _minimised(columns, at_once)
    return Effect(moved, f"the loss of {len(parts)} batches of {size} rows against that of the same rows at once")


def _other_weights(rows: TrialRows, weighting: Any, loss: nn.Module | None) -> Effect:
    """What a loss without smoothing weighs, over all rows at once, against the weighting that was stated."""
    if loss is None:
        return _unseen("give loss= to see it")
    sharp: Any = copy.deepcopy(loss)
    if getattr(sharp, "label_smoothing", 0.0):
        sharp.label_smoothing = 0.0
    stated = solved(rows, weighting, rows.collected.logits)
    return Effect(_solution(rows, sharp) - stated, "the loss over all rows at once against the stated weights")


def _weighted_sampler(rows: TrialRows, weighting: Any, sampler: Any) -> Effect:
    """Rows that were drawn more often than others."""
    used = rows.sampler if sampler is None else sampler
    if used is None:
        return _unseen("give sampler=, or a DataLoader, to see it")
    if isinstance(used, str):
        return _absent("the loader draws every row alike")
    drawn = _drawing_weights(used, len(rows.order))
    if drawn is None:
        return _unseen(f"{type(used).__name__} does not say how often it draws a row: give a weight for each row")
    if rows.collected.sample_weight is not None or len(rows.collected.y) != len(rows.order):
        return _unseen("rows with soft or ignored labels cannot be put beside the sampler's weights")
    weights = drawn[rows.order]
    logits = rows.collected.logits
    moved = solved(rows, weighting, logits, weights / weights.mean()) - solved(rows, weighting, logits)
    return Effect(moved, f"rows weighed as {type(used).__name__} draws them")


def _drawing_weights(sampler: Any, n: int) -> Array | None:
    given = getattr(sampler, "weights", None if hasattr(sampler, "__next__") else sampler)
    if isinstance(given, Tensor):
        given = given.detach().cpu().numpy()
    if not isinstance(given, list | tuple | np.ndarray):
        return None
    weights = np.asarray(given, dtype=np.float64)
    if weights.shape != (n,) or not (weights >= 0).all() or not weights.sum() > 0:
        raise InvalidParameter(
            f"sampler must have a weight for each of {n} rows: got shape {weights.shape}; give all rows as batches, in "
            f"the order of the data set."
        )
    return weights


def _batch_norm(rows: TrialRows, weighting: Any) -> Effect:
    """Batch norm by the batch, as in training, against its running statistics."""
    return _in_mode(rows, weighting, "batch norm", "statistics of each batch instead of the running ones")


def _dropout(rows: TrialRows, weighting: Any) -> Effect:
    """Dropout as in training."""
    return _in_mode(rows, weighting, "dropout", "answers with dropout as in training")


def _in_mode(rows: TrialRows, weighting: Any, name: str, sentence: str) -> Effect:
    if name not in rows.in_mode:
        return _absent(f"the module has no {name}")
    moved = solved(rows, weighting, rows.in_mode[name].logits) - solved(rows, weighting, rows.collected.logits)
    return Effect(moved, sentence)


def _early_stopping(rows: TrialRows, weighting: Any, loss: nn.Module | None, optimizer: Any) -> Effect:
    """Whether the equation is nearer after training has gone on for a pass, on a copy."""
    if loss is None or optimizer is None:
        return _unseen("give loss= and optimizer= to see it")
    if rows.batches is None:
        return _unseen("the batches can be gone through once only: give a loader or a list")
    if isinstance(rows.module, NaturalLogits):
        return _unseen("give the module that was trained, not NaturalLogits around it")
    before = solved(rows, weighting, rows.collected.logits)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, steps_by, loss_of = copy.deepcopy((rows.module, optimizer, loss))
        taken = list(islice(rows.batches, _MOST_STEPS))
        shifts = []
        for half in (taken[: -(-len(taken) // 2)], taken[-(-len(taken) // 2) :]):
            _go_on(module, steps_by, loss_of, half)
            shifts.append(solved(rows, weighting, _answers_again(module, rows.batches)))
    sentence = f"training gone on for {len(taken)} steps on a copy"
    midway, after = shifts
    furthest = int(np.abs(before).argmax())
    way = np.array([before[furthest], midway[furthest], after[furthest]])
    # The noise of steps also moves a bias, to and fro.
    if not abs(way[2]) <= abs(way[1]) + 0.1 * abs(way[0]) <= 0.9 * abs(way[0]) + 0.1 * abs(way[0]):
        return _absent(f"{sentence} does not bring it steadily nearer")
    return Effect(after - before, sentence)


def _go_on(module: nn.Module, optimizer: Any, loss: Any, batches: Iterable[Any]) -> None:
    module.train()
    with torch.enable_grad():
        for batch in batches:
            inputs, target = split_batch(batch)
            optimizer.zero_grad()
            logits = answer(module, inputs)
            _called(loss, logits, target.to(logits.device)).backward()
            optimizer.step()


def _answers_again(module: nn.Module, batches: Iterable[Any]) -> Array:
    with as_answering(module):
        pairs = (split_batch(batch) for batch in row_by_row(batches)[0])
        return collect((answer(module, inputs), target) for inputs, target in pairs).logits
