"""From trained parameters to an ordinary fitted classifier, balanced on rows in passing."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from crcen.models.classes.ensemble import ClassEnsemble
from crcen.models.classifier import CRCENClassifier
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import Course, write_fit
from crcen.scale.balance import Gather, LogitFile, alone, solve_file, sums_of_file
from crcen.scale.chunks import Chunk
from crcen.scale.class_plan import ClassStreamPlan
from crcen.scale.sources import read_ahead
from crcen.scale.stream_plan import StreamPlan
from crcen.theory.key_equation import on_rows
from crcen.training.jobs import Status
from crcen.training.network import NetworkGroup
from crcen.training.threads import reproducible_arithmetic

__all__ = ["balance_on", "store_networks"]

Array = NDArray[np.float64]
# The sums of all workers, in the order of ranks.
GatherSums = Callable[[Any], Sequence[Any]]

_BALANCED = 1e-10
_CHUNKS_AHEAD = 4
_ALL_ROWS = "all rows of the stream"


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
    group = NetworkGroup(plan.encoding, tuple(weights), tuple(biases), plan.recipe.activation)
    trained = plan.training_weighting
    ensemble: Any
    if isinstance(plan, ClassStreamPlan):
        ensemble = ClassEnsemble.of(plan.labels, trained, (group,)).at_price(plan.price)
    else:
        ensemble = Ensemble(plan.labels, trained, trained, (group,)).at_price(plan.weighting)
    write_fit(model, ensemble, plan.recipe, Course(len(loss_curve), np.array(loss_curve), status.name.lower()))
    model.n_features_in_ = plan.n_features
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


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
    ensemble: Any = model.ensemble_
    is_balanced = plan.recipe.balance
    n_outputs = len(plan.classes) if isinstance(plan, ClassStreamPlan) else 1
    with reproducible_arithmetic(), LogitFile(folder, n_outputs, is_weighted=is_weighted) as logits:
        for chunk in read_ahead(chain.from_iterable(blocks), depth=_CHUNKS_AHEAD):
            logits.add(ensemble.mean_logits(chunk.X) + ensemble.shift, plan.target(chunk), chunk.weight)
        shift: Any = 0.0 * ensemble.shift
        if is_balanced:
            shift = solve_file(logits, plan.weighting, gather)
        own = sums_of_file(logits, shift, plan.weighting)
    parts = [own] if gather_sums is None else gather_sums(own)
    found = [part for part in parts if part is not None]
    key = on_rows(sum(found[1:], found[0]).key_equation(plan.weighting), _ALL_ROWS)
    (group,) = ensemble.members
    if isinstance(group, NetworkGroup) and len(group) == 1:  # its own bias carries the shift
        ensemble = replace(ensemble, members=(group.shifted(shift),))
    else:
        ensemble = ensemble.shifted(shift)
    write_fit(model, ensemble, plan.recipe, Course(model.n_iter_, model.loss_curve_, model.status_), key)
    if is_balanced and not key.residual <= _BALANCED:
        message = f"the key equation holds to {key.residual:.1e} only; look for extreme values, or standardize columns."
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
