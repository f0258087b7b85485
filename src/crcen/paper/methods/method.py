"""Method: what the comparison knows of one method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Method", "NetworkTraining", "Tuning"]


@dataclass(frozen=True)
class NetworkTraining:
    """How a method trains its network, for a search that stacks many of them.

    Parameters
    ----------
    weighting, loss
        The training objective.
    price
        The weighting of the decision.
    sampler
        Name of the sampler that rebalances the training rows first, or ``None``.
    """

    weighting: Any
    price: Any
    loss: str = "cross_entropy"
    sampler: str | None = None


@dataclass(frozen=True)
class Tuning:
    """What a comparison tunes in a method that our stacks do not train: on the same folds, as many settings, by cost.

    Parameters
    ----------
    what
        ``"network"`` is the grid over ``hidden`` and ``l2``; ``"cost"`` as many cost ratios.
    is_natural
        Whether ``predict_proba`` is natural. Else settings are compared by the score that the method decides by, at
        the scale that suits its rows best.
    networks
        Networks that a setting is judged by at most: the budget of a costly method.
    lighter
        Parameters of the trials that are not those of the fit, for the same reason.
    """

    what: str = "network"
    is_natural: bool = False
    networks: int | None = None
    lighter: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A named method.

    Parameters
    ----------
    label
        Short name for tables; the paper's where it has one.
    summary, source
        What it is and where it comes from.
    make
        Keyword arguments → unfitted estimator.
    training
        Of the methods with a network of ours, which share a grid over ``hidden`` and ``l2``; else ``None``.
    tuning
        Of the others that have something to tune; else ``None``.
    changes
        What it changes of plain training: some of ``rows``, ``loss``, ``margin``, ``threshold``, ``vote``.
    probabilities
        What its ``predict_proba`` is: ``"natural"``; natural after ``"factor"``, a known one, is taken out; or
        ``"calibrate"``: no known map makes it natural. `crcen.PosteriorCorrection` does what is said here.
    budget
        What bounds its time at the defaults, where the method of the paper would take too long; else empty.
    in_paper
        Whether the paper compares it.
    in_table3
        Whether our Table 3 runs it unless told otherwise. The systems that the paper's related work names do not.
    """

    label: str
    summary: str
    source: str
    make: Callable[..., Any]
    training: NetworkTraining | None = None
    tuning: Tuning | None = None
    changes: str = ""
    probabilities: str = "natural"
    budget: str = ""
    in_paper: bool = True
    in_table3: bool = True
