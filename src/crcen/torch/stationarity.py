"""How far a trained module is from its key equation, and why: the equation is solved with and without each cause."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits
from crcen.theory.price import Price
from crcen.torch.balance import (
    Batch,
    Collected,
    Sampler,
    collect,
    evaluating,
    logits_of,
    margin,
    output_bias,
    row_by_row,
    solved_shifts,
    split_batch,
)
from crcen.torch.loss import ClassWeightedLoss, Inputs, NaturalLogits, Weighting, price_of

SMALL = 0.01  # log-odds: a distance without effect on decisions
EXPLAINS, PRESENT, ABSENT, UNSEEN = "explains it", "present", "absent", "not examined"
_MOST_BATCHES, _MOST_STEPS = 200, 500
# Parts whose behaviour differs in training.
_MODES: dict[str, tuple[type, ...]] = {
    "batch norm": (nn.modules.batchnorm._BatchNorm,),
    "dropout": (nn.modules.dropout._DropoutNd,),
}

Array = NDArray[np.float64]
Loss = Any  # a module, or another callable of logits and targets


@dataclass(frozen=True)
class Cause:
    """One possible reason for a distance from the key equation."""

    name: str  # such as "label smoothing"
    verdict: str  # "explains it" (at most half of the distance remains with it), "present", "absent" or "not examined"
    left: float  # the largest remaining distance of an output, in log-odds; NaN if not examined
    sentence: str  # what was tested, or what would be needed to test it


@dataclass(frozen=True, eq=False)
class Stationarity:
    """The distance of each output bias from the key equation, and its possible causes."""

    equation: KeyEquation  # on these rows, with the current module
    shifts: Array  # (1,) or (K,), log-odds that `crcen.torch.balance_` would add so that the equation holds
    causes: tuple[Cause, ...]  # all known ones, examined or not

    @property
    def distance(self) -> float:
        """The largest absolute shift."""
        return float(np.abs(self.shifts).max())

    @property
    def is_stationary(self) -> bool:
        """Whether every output is within .01 log-odds of its equation."""
        return self.distance <= SMALL

    @property
    def explained_by(self) -> tuple[str, ...]:
        """Names of the causes that explain the distance."""
        return tuple(cause.name for cause in self.causes if cause.verdict == EXPLAINS)

    def __getitem__(self, name: str) -> Cause:
        """The cause of a name."""
        for cause in self.causes:
            if cause.name == name:
                return cause
        raise KeyError(f"no cause {name!r}; known are {', '.join(cause.name for cause in self.causes)}")

    def __str__(self) -> str:
        biases = ", ".join(f"{shift:+.3f}" for shift in self.shifts)
        lines = [f"distance from the key equation, in log-odds: {biases}" + (" (stationary)" * self.is_stationary)]
        width = max(len(cause.name) for cause in self.causes)
        lines += [f"  {cause.name:<{width}}  {cause.verdict:<12}  {cause.sentence}" for cause in self.causes]
        if not self.is_stationary and not self.explained_by:
            lines.append("  no examined cause explains it alone; it may be the noise of the last steps.")
        return "\n".join(lines)


def stationarity(
    module: nn.Module,
    batches: Iterable[Batch],
    weighting: Weighting,
    *,
    loss: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    sampler: Sampler = None,
    bias: str | None = None,
) -> Stationarity:
    """Measure how far each output bias is from its key equation, and find out why.

    Each cause is put into the equation, which is solved again. If that brings the module's outputs to their place, the
    cause explains the distance. A cause that cannot be tested with the given arguments is "not examined". Module,
    optimizer and loss are not changed.

    Parameters
    ----------
    module : nn.Module
        The trained module; returns logits as in `crcen.torch.balance_`.
    batches : iterable
        The training rows in batches, as in `crcen.torch.balance_`. The data set of a ``DataLoader`` is read row by row,
        whatever its sampler; other batches must be in the order of the data set if a sampler is given.
    weighting
        The intended weighting of the training: as in `crcen.torch.balance_`.
    loss : nn.Module, optional
        The loss of the training, called with logits and targets: for label smoothing, weights divided by each batch,
        and other weights than stated.
    optimizer : torch.optim.Optimizer, optional
        The optimizer in its last state: for weight decay on biases. With ``loss``, training continues for one pass on a
        copy, for early stopping.
    sampler : optional
        The sampler of the training rows, such as a ``WeightedRandomSampler``, or a weight for each row; that of a
        ``DataLoader`` is known.
    bias : str, optional
        Name of the output bias, as in `crcen.torch.balance_`.

    """
    if loss is not None and not callable(loss):
        raise InvalidParameter(f"loss must be callable with logits and targets: got {type(loss).__name__}.")
    trial = _Trial.of(module, batches, weighting, bias, loss, optimizer, sampler)
    shifts = trial.solved(trial.rows.logits)
    equation = key_equation_of_logits(trial.rows.y, margin(trial.rows.logits), trial.price, trial.rows.sample_weight)
    causes = tuple(_cause(name, test(trial), shifts) for name, test in _CAUSES.items())
    return Stationarity(equation, shifts, causes)


@dataclass(frozen=True, eq=False)
class _Effect:
    """How far a cause moves the solution of the key equation, or why that is not known."""

    moved: Array | None
    sentence: str
    is_absent: bool = False


def _unseen(sentence: str) -> _Effect:
    return _Effect(None, sentence)


def _absent(sentence: str) -> _Effect:
    return _Effect(None, sentence, is_absent=True)


def _cause(name: str, effect: _Effect, shifts: Array) -> Cause:
    distance = float(np.abs(shifts).max())
    if effect.moved is None:
        absent = effect.is_absent
        return Cause(name, ABSENT if absent else UNSEEN, distance if absent else np.nan, effect.sentence)
    left = float(np.abs(shifts + effect.moved).max())
    size = float(np.abs(effect.moved).max())
    if size <= SMALL:
        return Cause(name, ABSENT, left, f"{effect.sentence}: it moves no output by more than {SMALL:g}")
    verdict = EXPLAINS if distance > SMALL and left <= 0.5 * distance else PRESENT
    return Cause(name, verdict, left, f"{effect.sentence}: it moves an output by {size:.3f} and leaves {left:.3f}")


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Trial:
    """Everything that the tests of causes read."""

    module: nn.Module
    loss: Loss
    optimizer: torch.optim.Optimizer | None
    batches: Iterable[Batch] | None  # to be read again; None if they can be read only once
    rows: Collected  # in evaluation mode
    in_mode: dict[str, Collected]  # with batch norm, or with dropout, as in training
    outputs: Tensor  # (n, C): logits as the loss gets them
    targets: Tensor
    price: Price
    weighting: Weighting
    batch_size: int
    order: NDArray[np.int64]  # the row of the data set that each row is
    bias: Tensor | None
    no_bias: str  # why there is none
    sampler: Sampler  # "none" for a plain loader, None if not known

    @classmethod
    def of(
        cls,
        module: nn.Module,
        batches: Iterable[Batch],
        weighting: Weighting,
        name: str | None,
        loss: Loss,
        optimizer: torch.optim.Optimizer | None,
        sampler: Sampler,
    ) -> "_Trial":
        """Read the batches once, with the module in each mode."""
        again: Iterable[Batch] | None = None if isinstance(batches, Iterator) else batches
        source, own_sampler, order = row_by_row(batches)
        present = {mode: kinds for mode, kinds in _MODES.items() if _parts(module, kinds)}
        pairs: dict[str, list[tuple[Tensor, Tensor]]] = {mode: [] for mode in ("", *present)}
        bias: Tensor | None = None
        no_bias = ""
        with torch.random.fork_rng(devices=[]), evaluating(module):
            torch.manual_seed(0)
            for number, batch in enumerate(source):
                inputs, target = split_batch(batch)
                for mode, kinds in {"": (), **present}.items():
                    with _training(module, kinds):
                        pairs[mode].append((logits_of(module, inputs), target))
                if number == 0:
                    bias, no_bias = _bias(module, inputs, name)
        if not pairs[""]:
            raise InvalidInput("there is no batch to read: got an empty loader; is the generator exhausted?")
        rows, targets = collect(pairs[""]), torch.cat([target.detach().cpu() for _, target in pairs[""]])
        return cls(
            module=module,
            loss=loss,
            optimizer=optimizer,
            batches=again,
            rows=rows,
            in_mode={mode: collect(pairs[mode]) for mode in present},
            outputs=torch.cat([logits.detach().cpu().double() for logits, _ in pairs[""]]),
            targets=targets,
            price=price_of(weighting, rows.counts()),
            weighting=weighting,
            batch_size=len(pairs[""][0][1]),
            order=np.arange(len(targets)) if order is None else order,
            bias=bias,
            no_bias=no_bias,
            sampler=own_sampler if sampler is None else sampler,
        )

    def solved(self, logits: Array, row_weights: Array | None = None) -> Array:
        """Values to add to the columns of logits so that the key equation holds; row weights multiply the rows."""
        rows = self.rows
        if row_weights is not None:
            rows = replace(
                rows, sample_weight=row_weights * (1.0 if rows.sample_weight is None else rows.sample_weight)
            )
        return solved_shifts(rows, self.price, logits)

    def minimised(self, objective: Callable[[Tensor], Tensor]) -> Array:
        """The shifts that minimise an objective, by L-BFGS in float64; several have mean 0."""
        shifts = torch.zeros(self.outputs.shape[1], dtype=torch.float64, requires_grad=True)
        solver = torch.optim.LBFGS(
            [shifts], max_iter=200, tolerance_grad=1e-10, tolerance_change=1e-12, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            solver.zero_grad()
            value = objective(shifts)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        with torch.enable_grad():
            solver.step(closure)  # type: ignore[no-untyped-call]
        found = shifts.detach().numpy()
        return np.asarray(found - found.mean() if len(found) > 1 else found)

    def least(self, loss: Loss, decay: Callable[[Tensor], Tensor] | None = None) -> Array:
        """The shifts that minimise a loss over all rows at once, with an optional penalty."""
        own = _as_float64(loss)

        def objective(shifts: Tensor) -> Tensor:
            value = _called(own, self.outputs + shifts, self.targets)
            return value if decay is None else value + decay(shifts)

        return self.minimised(objective)


def _bias(module: nn.Module, inputs: Inputs, name: str | None) -> tuple[Tensor | None, str]:
    """The output bias, or why there is none."""
    if isinstance(module, NaturalLogits):
        return None, "no optimizer moves the shift of NaturalLogits"
    try:
        return output_bias(module, inputs, name)[1], ""
    except InvalidParameter as error:
        if name is not None:
            raise
        return None, str(error).split(":")[0]


def _parts(module: nn.Module, kinds: tuple[type, ...]) -> list[nn.Module]:
    return [part for part in module.modules() if isinstance(part, kinds)]


@contextmanager
def _training(module: nn.Module, kinds: tuple[type, ...]) -> Iterator[None]:
    """Parts of these kinds as in training; their running statistics are restored."""
    parts = _parts(module, kinds)
    kept = [{name: value.clone() for name, value in part.named_buffers()} for part in parts]
    for part in parts:
        part.train()
    try:
        yield
    finally:
        for part, buffers in zip(parts, kept, strict=True):
            part.eval()
            for name, value in part.named_buffers():
                value.copy_(buffers[name])


def _called(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss as in training: BCE expects targets in the shape of the logits, cross entropy class numbers."""
    if isinstance(loss, nn.BCEWithLogitsLoss):
        return loss(outputs[:, -1] if outputs.shape[1] == 1 else outputs, targets.reshape(-1).to(outputs.dtype))
    if isinstance(loss, nn.CrossEntropyLoss) and targets.is_floating_point():
        targets = targets.to(outputs.dtype)
    found: Tensor = loss(outputs, targets)
    return found


def _as_float64(loss: Loss) -> Loss:
    return copy.deepcopy(loss).cpu().double() if isinstance(loss, nn.Module) else copy.deepcopy(loss)


def _sharp(loss: Loss) -> Loss:
    """A copy of a loss without label smoothing."""
    sharp = copy.deepcopy(loss)
    if getattr(sharp, "label_smoothing", 0.0):
        sharp.label_smoothing = 0.0
    return sharp


# -- causes ------------------------------------------------------------------------------------------------------------


def _weight_decay(trial: _Trial) -> _Effect:
    """The optimizer's penalty on the output bias."""
    optimizer, bias = trial.optimizer, trial.bias
    if optimizer is None:
        return _unseen("give optimizer= to examine it")
    if bias is None:
        return _absent(f"no output bias to decay: {trial.no_bias}")
    groups = [g for g in optimizer.param_groups if any(p is bias for p in g["params"])]
    if not groups:
        return _absent("the optimizer does not contain the output bias")
    rate = float(groups[0].get("weight_decay", 0.0))
    if rate == 0.0:
        return _absent("weight_decay of the output bias is 0")
    decay: float | Tensor = rate
    if isinstance(optimizer, torch.optim.AdamW) or groups[0].get("decoupled_weight_decay", False):
        state = optimizer.state.get(bias, {})
        if "exp_avg_sq" not in state:
            return _unseen("the optimizer has made no step, so the relative size of its decay is not known")
        steps = float(state["step"])
        size = (state["exp_avg_sq"].double().cpu() / (1.0 - groups[0]["betas"][1] ** steps)).sqrt()
        decay = rate * (size + groups[0]["eps"]).reshape(-1)
    start = bias.detach().double().cpu().reshape(-1)
    used = ClassWeightedLoss(trial.weighting, trial.rows.counts()) if trial.loss is None else trial.loss
    decayed = trial.least(used, lambda shifts: 0.5 * (decay * (start + shifts) ** 2).sum())
    return _Effect(decayed - trial.least(used), f"weight_decay={rate:g} in the equation of the output bias")


def _label_smoothing(trial: _Trial) -> _Effect:
    """Label smoothing of the loss."""
    if trial.loss is None:
        return _unseen("give loss= to examine it")
    share = getattr(trial.loss, "label_smoothing", 0.0)
    if not share:
        return _absent("the loss has no label smoothing")
    moved = trial.least(trial.loss) - trial.least(_sharp(trial.loss))
    return _Effect(moved, f"label_smoothing={share:g} in the loss")


def _mean_by_batch(trial: _Trial) -> _Effect:
    """The loss over random batches against the loss over their rows at once."""
    if trial.loss is None:
        return _unseen("give loss= to examine it")
    n, size = len(trial.targets), min(trial.batch_size, len(trial.targets))
    if size == n:
        return _unseen("all rows came as one batch: give the batches of the training")
    generator = torch.Generator().manual_seed(0)
    parts: list[Tensor] = []
    while len(parts) < _MOST_BATCHES:
        parts += [part for part in torch.randperm(n, generator=generator).split(size) if len(part) == size]  # type: ignore[no-untyped-call]
    parts = parts[:_MOST_BATCHES]
    own, every = _as_float64(trial.loss), torch.cat(parts)

    def by_batch(shifts: Tensor) -> Tensor:
        values = [_called(own, trial.outputs[part] + shifts, trial.targets[part]) for part in parts]
        return torch.stack(values).mean()

    def at_once(shifts: Tensor) -> Tensor:
        return _called(own, trial.outputs[every] + shifts, trial.targets[every])

    moved = trial.minimised(by_batch) - trial.minimised(at_once)
    return _Effect(moved, f"the loss of {len(parts)} batches of {size} rows against that of the same rows at once")


def _other_weights(trial: _Trial) -> _Effect:
    """The loss without label smoothing over all rows at once, against the stated weighting."""
    if trial.loss is None:
        return _unseen("give loss= to examine it")
    moved = trial.least(_sharp(trial.loss)) - trial.solved(trial.rows.logits)
    return _Effect(moved, "the loss over all rows at once against the stated weights")


def _weighted_sampler(trial: _Trial) -> _Effect:
    """Rows that are drawn more often than others."""
    used, rows = trial.sampler, trial.rows
    if used is None:
        return _unseen("give sampler=, or a DataLoader, to examine it")
    if isinstance(used, str):
        return _absent("the loader draws every row equally often")
    drawn = _drawing_weights(used, len(trial.order))
    if drawn is None:
        return _unseen(f"the drawing weights of {type(used).__name__} are not known: give a weight for each row")
    if rows.sample_weight is not None or len(rows.y) != len(trial.order):
        return _unseen("rows with soft or ignored labels cannot be matched with the sampler's weights")
    weights = drawn[trial.order]
    moved = trial.solved(rows.logits, weights / weights.mean()) - trial.solved(rows.logits)
    return _Effect(moved, f"rows weighted as {type(used).__name__} draws them")


def _drawing_weights(sampler: Sampler, n: int) -> Array | None:
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


def _in_mode(name: str, sentence: str) -> Callable[[_Trial], _Effect]:
    def test(trial: _Trial) -> _Effect:
        if name not in trial.in_mode:
            return _absent(f"the module has no {name}")
        return _Effect(trial.solved(trial.in_mode[name].logits) - trial.solved(trial.rows.logits), sentence)

    return test


def _early_stopping(trial: _Trial) -> _Effect:
    """Whether the equation gets closer when training continues for one pass, on a copy."""
    if trial.loss is None or trial.optimizer is None:
        return _unseen("give loss= and optimizer= to examine it")
    if trial.batches is None:
        return _unseen("the batches can be read only once: give a loader or a list")
    if isinstance(trial.module, NaturalLogits):
        return _unseen("give the trained module, not NaturalLogits around it")
    before = trial.solved(trial.rows.logits)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, optimizer, loss = copy.deepcopy((trial.module, trial.optimizer, trial.loss))
        taken = list(islice(trial.batches, _MOST_STEPS))
        middle, shifts = -(-len(taken) // 2), []
        for half in (taken[:middle], taken[middle:]):
            _train(module, optimizer, loss, half)
            shifts.append(trial.solved(_logits_again(module, trial.batches)))
    sentence = f"training continued for {len(taken)} steps on a copy"
    midway, after = shifts
    furthest = int(np.abs(before).argmax())
    first, second, third = abs(before[furthest]), abs(midway[furthest]), abs(after[furthest])
    # Noise also moves a bias, back and forth.
    if not third <= second + 0.1 * first <= first:
        return _absent(f"{sentence} does not bring it steadily closer")
    return _Effect(after - before, sentence)


def _train(module: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss, batches: Iterable[Batch]) -> None:
    module.train()
    with torch.enable_grad():
        for batch in batches:
            inputs, target = split_batch(batch)
            optimizer.zero_grad()
            logits = logits_of(module, inputs)
            _called(loss, logits, target.to(logits.device)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _logits_again(module: nn.Module, batches: Iterable[Batch]) -> Array:
    with evaluating(module):
        pairs = (split_batch(batch) for batch in row_by_row(batches)[0])
        return collect((logits_of(module, inputs), target) for inputs, target in pairs).logits


_CAUSES: dict[str, Callable[[_Trial], _Effect]] = {
    "weight decay on biases": _weight_decay,
    "label smoothing": _label_smoothing,
    "weights divided by batch": _mean_by_batch,
    "other weights than stated": _other_weights,
    "weighted sampler": _weighted_sampler,
    "batch normalisation": _in_mode("batch norm", "statistics of each batch instead of the running ones"),
    "dropout": _in_mode("dropout", "logits with dropout as in training"),
    "early stopping": _early_stopping,
}
