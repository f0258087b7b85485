"""From trained parameters to an ordinary fitted classifier, balanced on rows in passing."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from crcen.models.classifier import CRCENClassifier
from crcen.scale.balance import Gather, KeySums, LogitFile, alone, key_sums, solve_shift
from crcen.scale.chunks import Chunk
from crcen.scale.plan import StreamPlan
from crcen.scale.sources import read_ahead
from crcen.training.jobs import Status
from crcen.training.threads import reproducible_arithmetic

__all__ = ["balance_on", "store_networks"]

Array = NDArray[np.float64]
# The sums of all workers, in the order of ranks.
GatherSums = Callable[[KeySums], Sequence[KeySums]]

_BALANCED = 1e-10
_CHUNKS_AHEAD = 4


def store_networks(
    model: CRCENClassifier,
    plan: StreamPlan,
    parameters: tuple[list[Array], list[Array]],
    *,
    names: Sequence[str] | None,
    loss_curve: Sequence[float],
    status: Status,
) -> None:
    """Give a classifier its fitted state, but for the balance; ``names`` are those of the columns, if they have any."""
    weights, biases = parameters
    model.classes_, model.pos_label_, model.weighting_ = plan.classes, plan.pos_label, plan.weighting
    model.n_features_in_ = plan.n_features
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    model.input_encoding_ = {name: value for name, value in vars(plan.encoding).items() if value is not None}
    model.coefs_, model.intercepts_, model.shift_ = weights, biases, 0.0
    model.loss_curve_, model.n_iter_ = np.array(loss_curve), len(loss_curve)
    model.status_ = status.name.lower()
    no_rows = np.empty(0)
    model._fit_probability(np.empty(0, dtype=np.bool_), no_rows, no_rows)


def balance_on(
    model: CRCENClassifier,
    plan: StreamPlan,
    blocks: Iterable[Iterable[Chunk]],
    folder: Path,
    *,
    is_weighted: bool,
    gather: Gather = alone,
    gather_sums: GatherSums | None = None,
) -> None:
    """Solve for the key equation on all rows (if the classifier asks for it) and record it.

    Parameters
    ----------
    model, plan
        As `store_networks` left it.
    blocks
        This worker's rows, each once.
    folder
        Where the logits are kept meanwhile.
    is_weighted
        Whether rows have sample weights.
    gather, gather_sums
        Bring tensors and sums of all workers together.
    """
    with reproducible_arithmetic(), LogitFile(folder, is_weighted=is_weighted) as logits:
        for chunk in read_ahead(chain.from_iterable(blocks), depth=_CHUNKS_AHEAD):
            logits.add(model._mean_logits(chunk.X), plan.target(chunk), chunk.weight)
        shift = solve_shift(logits, plan.weighting, gather) if model._balances_training_rows() else 0.0
        own = key_sums(logits, shift, plan.weighting)
    sums = KeySums()
    for part in [own] if gather_sums is None else gather_sums(own):
        sums.merge(part)
    if len(model.coefs_[0]) == 1:
        model.intercepts_[-1] = model.intercepts_[-1] + shift
    else:
        model.shift_ = shift
    model.key_equation_ = sums.key_equation(plan.weighting)
    if model._balances_training_rows() and not model.key_equation_.residual <= _BALANCED:
        message = f"the key equation holds to {model.key_equation_.residual:.1e} only; set standardize=True."
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
