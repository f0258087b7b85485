"""Networks: the best few settings of the search of `CRCENClassifierCV`, several networks of each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import TrainingFailed
from crcen.models.classes.search import ClassSearchRows, ClassSearchRun
from crcen.models.fitting import member_seed
from crcen.models.members.member import FittedMember, MemberKind, MemberTask
from crcen.models.search.best_settings import best_settings
from crcen.models.search.borders import Borders
from crcen.models.search.classifier_cv import CRCENClassifierCV
from crcen.models.search.run import SearchRun
from crcen.training.engines import trainer_on
from crcen.training.jobs import Status, TrainingJob
from crcen.training.members import Member, NetworkGroup
from crcen.training.recipe import Inputs, Recipe

__all__ = ["Networks"]

Array = NDArray[np.float64]

N_SETTINGS, N_NETWORKS = 3, 3
# Large data: settings and networks differ less and cost more.
_MANY_ROWS, _MANY_KEPT = 60_000, 2


class Networks(MemberKind):
    """The member ``"networks"``."""

    name = "networks"

    def search(self, task: MemberTask) -> FittedMember:
        """Search the grid, refit the best few settings."""
        rows, is_many, is_quick = task.search_rows, len(task.X) > _MANY_ROWS, task.effort == "quick"
        is_of_classes = isinstance(rows, ClassSearchRows)
        grid = _grid(task)
        how: dict[str, Any] = {"sample_weight": task.weights, "device": task.device, "memory_bytes": None}
        train = trainer_on("local", task.X, rows.target, task.n_classes if is_of_classes else None, **how)
        run = (ClassSearchRun if is_of_classes else SearchRun)(rows, "neg_log_loss", task.seed, train, None)
        clock = task.clock.share(0.7)
        found = best_settings(
            run,
            grid,
            n_settings=1 if is_quick else _MANY_KEPT if is_many else N_SETTINGS,
            n_members=1 if is_quick else _MANY_KEPT if is_many else N_NETWORKS,
            progress=task.progress,
            is_late=lambda: clock.left <= 0.0,
            borders=Borders(l2=True, epochs=True),
        )
        lines = tuple(_line(one.setting.recipe, one.epochs, -one.merit) for one in found.outcomes)
        chosen = tuple((one.setting.recipe, one.epochs) for one in found.outcomes)
        logits = found.logits if is_of_classes else np.column_stack([np.zeros(len(task.X)), found.logits])
        return FittedMember(self.name, tuple(found.groups), logits, lines, len(grid), chosen)

    def refit(self, task: MemberTask, chosen: Sequence[Any], n_networks: int = 3) -> tuple[Member, ...]:
        """Networks of chosen settings on all rows."""
        from crcen.training.engine import train  # torch is for fitting alone

        is_of_classes = task.search_rows is None or isinstance(task.search_rows, ClassSearchRows)
        target = task.target if is_of_classes else task.target == 1

        def job(recipe: Recipe, number: int) -> TrainingJob:
            seeds = {"seed": member_seed(task.seed, number), "shuffle_seed": task.seed}
            if is_of_classes:
                return TrainingJob.of_classes(recipe, np.ones(task.n_classes), **seeds)
            return TrainingJob.by(recipe, lam=0.5, **seeds)

        jobs = [
            replace(job(recipe, number), stop_epoch=epochs) for recipe, epochs in chosen for number in range(n_networks)
        ]
        results = train(task.X, target, jobs, sample_weight=task.weights, device=task.device)
        groups = []
        for first in range(0, len(results), n_networks):
            networks = [one.network for one in results[first : first + n_networks] if one.network is not None]
            if not networks:
                raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}.")
            groups.append(NetworkGroup.of(networks))
        return tuple(groups)


def _grid(task: MemberTask) -> list[Any]:
    inputs = Inputs(missing="indicator" if np.isnan(task.X).any() else "error")
    grid = CRCENClassifierCV(None, inputs=inputs).grid(len(task.X))
    return grid[1:2] if task.effort == "quick" else grid


def _line(recipe: Recipe, epochs: int | None, loss: float) -> str:
    hidden = "-".join(map(str, recipe.hidden)) or "none"
    length = "" if epochs is None else f", {epochs} epochs"
    return f"hidden units {hidden}, {recipe.encoding} inputs, l2 {recipe.l2:g}{length}: log loss {loss:.4g}"
