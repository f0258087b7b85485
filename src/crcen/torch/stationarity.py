"""How far a trained module is from its key equation, and why: by experiment."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from crcen.exceptions import InvalidParameter
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits
from crcen.theory.price import resolve
from crcen.torch.experiments import Effect, solved, tried
from crcen.torch.trial_rows import TrialRows, trial_rows
from crcen.torch.weights import binary_price, stated_weights

__all__ = ["Cause", "Stationarity", "stationarity"]

SMALL = 0.01  # log-odds: a distance that nobody would notice in a decision
EXPLAINS, PRESENT, ABSENT, UNSEEN = "explains it", "present", "absent", "not examined"


@dataclass(frozen=True)
class Cause:
    """One possible reason for a distance from the key equation.

    Parameters
    ----------
    name : str
        Such as ``"label smoothing"``.
    verdict : {"explains it", "present", "absent", "not examined"}
        It explains the distance where at most half of it is left once the cause is put into the equation.
    left : float
        The largest distance of an output with the cause put in, in log-odds; NaN where it was not examined.
    sentence : str
        What was tried, or what would be needed to try it.
    """

    name: str
    verdict: str
    left: float
    sentence: str


@dataclass(frozen=True, eq=False)
class Stationarity:
    """How far each output bias is from where the key equation holds, and what was found to hold it there.

    Parameters
    ----------
    equation : KeyEquation or KeyEquation
        On these rows, as the module answers now.
    shifts : float64 array of shape (1,) or (K,)
        What would have to be added to each output bias, in log-odds: what `crcen.torch.balance_` adds.
    causes : tuple of Cause
        Every cause that is known, examined or not.
    """

    equation: KeyEquation
    shifts: NDArray[np.float64]
    causes: tuple[Cause, ...]

    @property
    def distance(self) -> float:
        """The largest of the shifts in size."""
        return float(np.abs(self.shifts).max())

    @property
    def is_stationary(self) -> bool:
        """Whether no output is further than .01 log-odds from its equation."""
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
        raise KeyError(f"no cause {name!r}; there are {', '.join(cause.name for cause in self.causes)}")

    def __str__(self) -> str:
        biases = ", ".join(f"{shift:+.3f}" for shift in self.shifts)
        lines = [f"from the key equation, in log-odds: {biases}" + (" (stationary)" if self.is_stationary else "")]
        width = max(len(cause.name) for cause in self.causes)
        lines += [f"  {cause.name:<{width}}  {cause.verdict:<12}  {cause.sentence}" for cause in self.causes]
        if not self.is_stationary and not self.explained_by:
            lines.append("  nothing that was examined explains it alone; the noise of the last steps might.")
        return "\n".join(lines)


def stationarity(
    module: nn.Module,
    batches: Iterable[Any],
    weighting: Any,
    *,
    loss: nn.Module | None = None,
    optimizer: Any = None,
    sampler: Any = None,
    bias: str | None = None,
) -> Stationarity:
    """How far each output bias is from its key equation, and why.

    Each cause is put into the equation, which is then solved again: where that brings the module's outputs to their
    place, the cause explains the distance. What was not given the means to be tried is "not examined". The module, its
    optimizer and the loss stay as they are.

    Parameters
    ----------
    module : nn.Module
        As trained; answers as in `crcen.torch.balance_`.
    batches : iterable
        The training rows in batches, as in `crcen.torch.balance_`. A ``DataLoader`` of a data set is gone through row
        by row, whatever its sampler is; other batches must be in the order of the data set where a sampler is given.
    weighting
        What the module should have been trained under: as in `crcen.torch.balance_`.
    loss : nn.Module, optional
        What it was trained by, called with logits and targets: for label smoothing, weights divided by each batch, and
        other weights than stated.
    optimizer : torch.optim.Optimizer, optional
        What it was trained with, in its last state: for weight decay on biases. With ``loss`` training goes on for one
        pass on a copy, for early stopping.
    sampler : optional
        What drew the training rows, such as a ``WeightedRandomSampler``, or a weight for each row; that of a
        ``DataLoader`` is seen by itself.
    bias : str, optional
        Name of the output bias, as in `crcen.torch.balance_`.

    Returns
    -------
    Stationarity
        Printing it shows a line for each cause.

    Raises
    ------
    InvalidInput, InvalidParameter
        If batches, weighting or sampler cannot be used.
    """
    if loss is not None and not callable(loss):
        raise InvalidParameter(f"loss must be called with logits and targets: got {type(loss).__name__}.")
    rows = trial_rows(module, batches, bias)
    equation, shifts = _equation(rows, weighting)
    found = tried(rows, weighting, loss, optimizer, sampler)
    return Stationarity(equation, shifts, tuple(_cause(name, effect, shifts) for name, effect in found.items()))


def _cause(name: str, effect: Effect, shifts: NDArray[np.float64]) -> Cause:
    distance = float(np.abs(shifts).max())
    if effect.moved is None:
        return Cause(
            name, ABSENT if effect.is_absent else UNSEEN, distance if effect.is_absent else np.nan, effect.sentence
        )
    left = float(np.abs(shifts + effect.moved).max())
    size = float(np.abs(effect.moved).max())
    if size <= SMALL:
        return Cause(name, ABSENT, left, f"{effect.sentence}: it moves no output by more than {SMALL:g}")
    verdict = EXPLAINS if distance > SMALL and left <= 0.5 * distance else PRESENT
    return Cause(name, verdict, left, f"{effect.sentence}: it moves an output by {size:.3f} and leaves {left:.3f}")


def _equation(rows: TrialRows, weighting: Any) -> tuple[KeyEquation, NDArray[np.float64]]:
    kept = rows.collected
    shifts = solved(rows, weighting, kept.logits)
    if kept.logits.shape[1] <= 2:
        margin = kept.logits[:, -1] - (kept.logits[:, 0] if kept.logits.shape[1] == 2 else 0.0)
        resolved = resolve(binary_price(weighting), float(rows.counts[1]), float(rows.counts[0]))
        return key_equation_of_logits(kept.y, margin, resolved, kept.sample_weight), shifts
    weights = resolve(stated_weights(weighting), counts=rows.counts)
    return key_equation_of_logits(kept.y, kept.logits, weights, kept.sample_weight), shifts
