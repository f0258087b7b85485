"""A committee's members trained again on other rows, at the settings that its search chose and without a search."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import TrainingFailed
from crcen.models.committee.members import ForeignMember, fit_foreign
from crcen.models.fitting import member_seed
from crcen.models.trees.forest import fit_forest
from crcen.models.trees.search import fit_trees
from crcen.theory.labels import Labels
from crcen.training.jobs import Status, TrainingJob
from crcen.training.members import Member, NetworkGroup
from crcen.training.recipe import Recipe

__all__ = ["refitted_parts"]

Array = NDArray[np.float64]


def refitted_parts(
    member: Any,
    chosen: Sequence[Any],
    labels: Labels,
    X: Array,
    y: NDArray[Any],
    weights: Array,
    *,
    n_networks: int,
    seed: int,
    device: str,
    threads: int,
) -> tuple[Member, ...]:
    """The parts of one member, trained on these rows.

    Parameters
    ----------
    member
        One of the committee's ``members``.
    chosen
        What its search chose, as `Candidate.chosen` has it.
    labels
        The committee's.
    X, y, weights
        Rows, labels and sample weights.
    n_networks
        Networks of each setting.
    seed, device, threads
        As in a search.
    """
    target = labels.target(y)
    if member == "trees":
        return tuple(fit_trees(X, target, weights, list(chosen), seed=seed, threads=threads))
    if member == "forest":
        return (fit_forest(X, target, weights, chosen[0], seed=seed, threads=threads),)
    if member != "networks":
        return (ForeignMember(*fit_foreign(member, X, y, weights, None if labels.positive is None else labels)),)
    from crcen.training.engine import train  # torch is for fitting alone

    def job(recipe: Recipe, number: int) -> TrainingJob:
        seeds = {"seed": member_seed(seed, number), "shuffle_seed": seed}
        if labels.positive is not None:
            return TrainingJob.by(recipe, lam=0.5, **seeds)
        return TrainingJob.of_classes(recipe, np.ones(labels.n_classes), **seeds)

    jobs = [
        replace(job(recipe, number), stop_epoch=epochs) for recipe, epochs in chosen for number in range(n_networks)
    ]
    results = train(X, target, jobs, sample_weight=weights, device=device)
    groups = []
    for first in range(0, len(results), n_networks):
        networks = [one.network for one in results[first : first + n_networks] if one.network is not None]
        if not networks:
            raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}.")
        groups.append(NetworkGroup.of(networks))
    return tuple(groups)
