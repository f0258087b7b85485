"""How far a trained module is from its key equation, and why: the equation is solved with and without each cause."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from crcen.exceptions import InvalidParameter
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits
from crcen.theory.rows import Array, as_numpy
from crcen.torch import balance
from crcen.torch.balance import ClassWeightedLoss, Inputs, Loader, NaturalLogits, Sampler, Weighting, price_of

SMALL = 0.01  # log-odds: a distance without effect on decisions
EXPLAINS, PRESENT, ABSENT, UNSEEN = "explains it", "present", "absent", "not examined"
_MOST_BATCHES, _MOST_STEPS = 200, 500
# Parts whose behaviour differs in training.
_MODES: dict[str, type] = {"batch norm": nn.modules.batchnorm._BatchNorm, "dropout": nn.modules.dropout._DropoutNd}

Loss = Callable[[Tensor, Tensor], Tensor]
Effect = tuple[Array | str, str]  # how far a cause moves the solution, or ABSENT or UNSEEN; and a sentence


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
        return {cause.name: cause for cause in self.causes}[name]

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
    batches: Loader,
    weighting: Weighting,
    *,
    loss: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    sampler: Sampler = None,
    bias: str | None = None,
) -> Stationarity:
    """Measure how far each output bias is from its key equation, and find out why.

    Each cause is put into the equation, which is solved again. If that explains the module's outputs, the
    cause explains the distance. A cause that cannot be tested with the given arguments is "not examined". Module,
    optimizer and loss are not changed.

    Parameters
    ----------
    module : nn.Module
        The trained module; returns logits as in `crcen.torch.balance_`.
    batches : iterable
        The training rows in batches, as in `crcen.torch.balance_`. The data set of a ``DataLoader`` is read row by row,
        with any sampler; other batches must be in the order of the data set if a sampler is given.
    weighting
        The intended weighting of the training: as in `crcen.torch.balance_`.
    loss : nn.Module, optional
        The loss of the training, called with logits and targets: for label smoothing, batch means, other weights.
    optimizer : torch.optim.Optimizer, optional
        The optimizer in its last state: for weight decay on biases. With ``loss``, training continues for one pass on a
        copy, for early stopping.
    sampler : optional
        The sampler of the training, such as a ``WeightedRandomSampler``, or row weights; default that of the loader.
    bias : str, optional
        Name of the output bias, as in `crcen.torch.balance_`.
    """
    if loss is not None and not callable(loss):
        raise InvalidParameter(f"loss must be callable with logits and targets: got {type(loss).__name__}.")
    trial = _Trial(module, batches, weighting, bias, loss, optimizer, sampler)
    rows = trial.rows
    equation = key_equation_of_logits(rows.y, balance.margin(rows.logits), trial.price, rows.sample_weight)
    return Stationarity(equation, trial.shifts, tuple(_examined(name, trial) for name in _CAUSES))


def _examined(name: str, trial: "_Trial") -> Cause:
    needed, test = _CAUSES[name]
    missing = [f"{argument}=" for argument in needed if getattr(trial, argument) is None]
    moved, sentence = (UNSEEN, f"give {' and '.join(missing)} to examine it") if missing else test(trial)
    distance = float(np.abs(trial.shifts).max())
    if isinstance(moved, str):
        return Cause(name, moved, distance if moved == ABSENT else np.nan, sentence)
    left, size = float(np.abs(trial.shifts + moved).max()), float(np.abs(moved).max())
    if size <= SMALL:
        return Cause(name, ABSENT, left, f"{sentence}: it moves no output by more than {SMALL:g}")
    verdict = EXPLAINS if distance > SMALL and left <= 0.5 * distance else PRESENT
    return Cause(name, verdict, left, f"{sentence}: it moves an output by {size:.3f} and leaves {left:.3f}")


class _Trial:
    """Everything that the tests of causes read; the batches are read once, with the module in each mode."""

    def __init__(
        self,
        module: nn.Module,
        batches: Loader,
        weighting: Weighting,
        name: str | None,
        loss: Loss | None,
        optimizer: torch.optim.Optimizer | None,
        sampler: Sampler,
    ) -> None:
        self.module, self.optimizer = module, optimizer
        self.batches = None if isinstance(batches, Iterator) else batches  # to be read again
        source, own_sampler, order = balance.row_by_row(batches)
        self.sampler = own_sampler if sampler is None else sampler  # "none" for a plain loader, None if not known
        self.bias: Tensor | None = None
        with torch.random.fork_rng(devices=[]), balance.evaluating(module):
            torch.manual_seed(0)
            parts = {mode: [one for one in module.modules() if isinstance(one, kind)] for mode, kind in _MODES.items()}
            pairs: dict[str, list[tuple[Tensor, Tensor]]] = {
                mode: [] for mode in ("", *parts) if not mode or parts[mode]
            }
            for number, batch in enumerate(source):
                inputs, target = balance.split_batch(batch)
                for mode, own in pairs.items():
                    with _training(parts.get(mode, [])):
                        own.append((balance.logits_of(module, inputs), target))
                if number == 0:
                    self.bias, self.no_bias = _bias(module, inputs, name)
        self.ignored = getattr(weighting, "ignore_index", getattr(loss, "ignore_index", balance.IGNORED))
        self.rows = balance.collect(pairs[""], self.ignored)
        # Logits as in training.
        self.in_mode = {mode: balance.collect(pairs[mode], self.ignored).logits for mode in pairs if mode}
        self.outputs = torch.cat([logits.detach().cpu().double() for logits, _ in pairs[""]])  # as the loss gets them
        self.targets = torch.cat([target.detach().cpu() for _, target in pairs[""]])
        self.batch_size = len(pairs[""][0][1])
        self.order = np.arange(len(self.targets)) if order is None else order  # the row of the data set of each row
        self.price = price_of(weighting, self.rows.counts())
        self.loss = loss
        self.used_loss = ClassWeightedLoss(weighting, self.rows.counts()) if loss is None else loss
        self.shifts = self.solved(self.rows.logits)

    def solved(self, logits: Array, sample_weight: Array | None = None) -> Array:
        """Values to add to the columns of logits so that the key equation holds, also with other row weights."""
        rows = self.rows if sample_weight is None else replace(self.rows, sample_weight=sample_weight)
        return balance.solved_shifts(rows, self.price, logits)

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

    def least(self, decay: Callable[[Tensor], Tensor | float] = lambda shifts: 0.0, *, is_sharp: bool = False) -> Array:
        """The shifts that minimise the loss over all rows at once, with a penalty or without label smoothing."""
        own = _as_float64(self.used_loss)
        if is_sharp and hasattr(own, "label_smoothing"):
            own.label_smoothing = 0.0
        return self.minimised(lambda shifts: _called(own, self.outputs + shifts, self.targets) + decay(shifts))


def _bias(module: nn.Module, inputs: Inputs, name: str | None) -> tuple[Tensor | None, str]:
    """The output bias, or why there is none."""
    if isinstance(module, NaturalLogits):
        return None, "no optimizer moves the shift of NaturalLogits"
    try:
        return balance.output_bias(module, inputs, name)[1], ""
    except InvalidParameter as error:
        if name is not None:
            raise
        return None, str(error).split(":")[0]


@contextmanager
def _training(parts: list[nn.Module]) -> Iterator[None]:
    """Parts of a module as in training, their running statistics restored; not every module can be copied."""
    kept = [(value, value.clone()) for part in parts for value in part.buffers()]
    for part in parts:
        part.train()
    try:
        yield
    finally:
        for part in parts:
            part.eval()
        for value, before in kept:
            value.copy_(before)


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


def _weight_decay(trial: _Trial) -> Effect:
    optimizer, bias = trial.optimizer, trial.bias
    assert optimizer is not None
    if bias is None:
        return ABSENT, f"no output bias to decay: {trial.no_bias}"
    groups = [g for g in optimizer.param_groups if any(p is bias for p in g["params"])]
    if not groups:
        return ABSENT, "the optimizer does not contain the output bias"
    rate = float(groups[0].get("weight_decay", 0.0))
    if rate == 0.0:
        return ABSENT, "weight_decay of the output bias is 0"
    decay: float | Tensor = rate
    if isinstance(optimizer, torch.optim.AdamW) or groups[0].get("decoupled_weight_decay", False):
        state = optimizer.state.get(bias, {})
        if "exp_avg_sq" not in state:
            return UNSEEN, "the optimizer has made no step, so the relative size of its decay is not known"
        size = (state["exp_avg_sq"].double().cpu() / (1.0 - groups[0]["betas"][1] ** float(state["step"]))).sqrt()
        decay = rate * (size + groups[0]["eps"]).reshape(-1)
    start = bias.detach().double().cpu().reshape(-1)
    decayed = trial.least(lambda shifts: 0.5 * (decay * (start + shifts) ** 2).sum())
    return decayed - trial.least(), f"weight_decay={rate:g} in the equation of the output bias"


def _label_smoothing(trial: _Trial) -> Effect:
    share = getattr(trial.loss, "label_smoothing", 0.0)
    if not share:
        return ABSENT, "the loss has no label smoothing"
    return trial.least() - trial.least(is_sharp=True), f"label_smoothing={share:g} in the loss"


def _mean_by_batch(trial: _Trial) -> Effect:
    """The loss over random batches against the loss over their rows at once."""
    n, size = len(trial.targets), min(trial.batch_size, len(trial.targets))
    if size == n:
        return UNSEEN, "all rows came as one batch: give the batches of the training"
    generator = torch.Generator().manual_seed(0)
    parts: list[Tensor] = []
    while len(parts) < _MOST_BATCHES:
        parts += [part for part in torch.randperm(n, generator=generator).split(size) if len(part) == size]  # type: ignore[no-untyped-call]
    parts = parts[:_MOST_BATCHES]
    own = _as_float64(trial.used_loss)

    def best(groups: list[Tensor]) -> Array:
        def mean(shifts: Tensor) -> Tensor:
            values = [_called(own, trial.outputs[group] + shifts, trial.targets[group]) for group in groups]
            return torch.stack(values).mean()

        return trial.minimised(mean)

    sentence = f"the loss of {len(parts)} batches of {size} rows against that of the same rows at once"
    return best(parts) - best([torch.cat(parts)]), sentence


def _other_weights(trial: _Trial) -> Effect:
    """The loss without label smoothing over all rows at once, against the stated weighting."""
    return trial.least(is_sharp=True) - trial.shifts, "the loss over all rows at once against the stated weights"


def _weighted_sampler(trial: _Trial) -> Effect:
    used, rows = trial.sampler, trial.rows
    if isinstance(used, str):
        return ABSENT, "the loader draws every row equally often"
    given, n = getattr(used, "weights", used), len(trial.order)
    if not isinstance(given, Tensor | list | tuple | np.ndarray):
        return UNSEEN, f"the drawing weights of {type(used).__name__} are not known: give a weight for each row"
    drawn = np.asarray(as_numpy(given), dtype=np.float64)
    if drawn.shape != (n,) or not (drawn >= 0).all() or not drawn.sum() > 0:
        message = f"sampler must have a weight for each of {n} rows: got shape {drawn.shape}"
        raise InvalidParameter(f"{message}; give all rows as batches, in the order of the data set.")
    if rows.sample_weight is not None or len(rows.y) != n:
        return UNSEEN, "rows with soft or ignored labels cannot be matched with the sampler's weights"
    weights = drawn[trial.order]
    moved = trial.solved(rows.logits, weights / weights.mean()) - trial.shifts
    return moved, f"rows weighted as {type(used).__name__} draws them"


def _in_mode(trial: _Trial, name: str, sentence: str) -> Effect:
    if name not in trial.in_mode:
        return ABSENT, f"the module has no {name}"
    return trial.solved(trial.in_mode[name]) - trial.shifts, sentence


def _early_stopping(trial: _Trial) -> Effect:
    """Whether the equation gets closer when training continues for one pass, on a copy."""
    if trial.batches is None:
        return UNSEEN, "the batches can be read only once: give a loader or a list"
    if isinstance(trial.module, NaturalLogits):
        return UNSEEN, "give the trained module, not NaturalLogits around it"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, optimizer, loss = copy.deepcopy((trial.module, trial.optimizer, trial.used_loss))
        assert optimizer is not None
        taken, path = list(islice(trial.batches, _MOST_STEPS)), [trial.shifts]
        middle = -(-len(taken) // 2)
        for half in (taken[:middle], taken[middle:]):
            module.train()
            with torch.enable_grad():
                for inputs, target in map(balance.split_batch, half):
                    optimizer.zero_grad()
                    logits = balance.logits_of(module, inputs)
                    _called(loss, logits, target.to(logits.device)).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
            with balance.evaluating(module):
                pairs = map(balance.split_batch, balance.row_by_row(trial.batches)[0])
                outputs = ((balance.logits_of(module, x), target) for x, target in pairs)
                path.append(trial.solved(balance.collect(outputs, trial.ignored).logits))
    sentence = f"training continued for {len(taken)} steps on a copy"
    first, second, third = (abs(shifts[np.abs(trial.shifts).argmax()]) for shifts in path)
    # Noise also moves a bias, back and forth.
    if not third <= second + 0.1 * first <= first:
        return ABSENT, f"{sentence} does not bring it steadily closer"
    return path[-1] - trial.shifts, sentence


# Arguments that a test needs, and the test.
_CAUSES: dict[str, tuple[tuple[str, ...], Callable[[_Trial], Effect]]] = {
    "weight decay on biases": (("optimizer",), _weight_decay),
    "label smoothing": (("loss",), _label_smoothing),
    "weights divided by batch": (("loss",), _mean_by_batch),
    "other weights than stated": (("loss",), _other_weights),
    "weighted sampler": (("sampler",), _weighted_sampler),
    "batch normalisation": (
        (),
        partial(_in_mode, name="batch norm", sentence="statistics of each batch instead of the running ones"),
    ),
    "dropout": ((), partial(_in_mode, name="dropout", sentence="logits with dropout as in training")),
    "early stopping": (("loss", "optimizer"), _early_stopping),
}
