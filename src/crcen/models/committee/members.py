"""Kinds of members: each is searched on the committee's folds and gives natural logits, also for new rows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from crcen._support.progress import part_of
from crcen.exceptions import InvalidParameter
from crcen.models.classes.search import ClassSearchRows, ClassSearchRun
from crcen.models.search.best_settings import best_settings
from crcen.models.search.borders import Borders
from crcen.models.search.grid import SearchRows
from crcen.models.search.run import SearchRun
from crcen.models.trees.forest import fit_forest, forest_out_of_fold
from crcen.models.trees.search import SEARCH_SHARE, fit_trees, search_trees
from crcen.models.trees.setting import TREE_SETTINGS
from crcen.theory.labels import Labels
from crcen.training.members import Member
from crcen.training.recipe import Recipe

__all__ = [
    "KINDS",
    "QUICK",
    "Candidate",
    "ForeignMember",
    "How",
    "fit_candidate",
    "fit_foreign",
    "grid_of_networks",
    "kind_of",
    "usual_members",
]

Array = NDArray[np.float64]
Progress = Callable[[float], None]
Rows = SearchRows | ClassSearchRows

KINDS = ("networks", "trees", "forest")
QUICK = "forest"  # the first to be fitted: what it leaves of its share of a time limit is the others'
_SETTINGS_KEPT = 3
_NETWORKS_A_SETTING = 3
# On many rows fewer settings of networks are tried and kept: they differ less there, and cost more.
_MANY_ROWS, _MANY_KEPT = 60_000, 2
_CLIP = 1e-7  # a probability of exactly 0 or 1, as forests give it, has no logit


@dataclass(frozen=True)
class How:
    """What the members' searches share: the seed, where networks train, fits at a time, and the member's seconds."""

    seed: int
    device: str
    threads: int
    time_limit: float | None


@dataclass(frozen=True, eq=False)
class Candidate:
    """One member after its search.

    Parameters
    ----------
    name
        What to call it.
    parts
        What is averaged for a new row: natural logits.
    logits
        Natural logits of the training rows, out of fold; NaN for rows in no test fold.
    settings
        What the search chose, a line each.
    n_tried
        How many settings the search looked at.
    seconds
        Time of search and refit.
    chosen
        The same settings to train by again: recipes with their epochs, or settings of trees with their number.
    """

    name: str
    parts: tuple[Member, ...]
    logits: Array
    settings: tuple[str, ...]
    n_tried: int
    seconds: float
    chosen: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class ForeignMember:
    """Another library's fitted classifier behind natural logits; it cannot be saved or exported.

    ``column`` is that of the positive class, or None for a logit of each.
    """

    model: Any
    column: int | None

    def logits(self, X: Array) -> Array:
        """Log-odds of its probability of the positive class, (n, 1), or logarithms of all, (n, K)."""
        if self.column is None:
            return np.asarray(np.log(np.clip(self.model.predict_proba(X), _CLIP, 1.0)))
        return _log_odds(self.model.predict_proba(X)[:, self.column])[:, None]

    def arrays(self) -> dict[str, Any]:
        """Refused: its state is not known here."""
        raise InvalidParameter(
            f"a committee with a {type(self.model).__name__} cannot be saved or exported; its own members can."
        )


def kind_of(member: Any) -> str:
    """What to call a member: one of `KINDS`, or the name of a classifier."""
    if isinstance(member, str):
        if member not in KINDS:
            raise InvalidParameter(f"members must be of {list(KINDS)} or classifiers: got {member!r}.")
        return member
    if not hasattr(member, "fit") or not hasattr(member, "predict_proba"):
        raise InvalidParameter(
            f"a member must be one of {list(KINDS)} or a classifier with predict_proba: got {type(member).__name__}."
        )
    return type(member).__name__


def fit_candidate(member: Any, rows: Rows, networks: list[Any], how: How, progress: Progress) -> Candidate:
    """Search and refit one member.

    Parameters
    ----------
    member
        One of `KINDS`, or a classifier.
    rows
        All rows and folds.
    networks
        The grid of settings of ``"networks"``.
    how
        Seed, device, threads, time.
    progress
        Called with the share of the work that is done.
    """
    start = time.perf_counter()
    name = kind_of(member)
    if name == "networks":
        parts, logits, settings, chosen, n_tried = *_networks(rows, networks, how, progress), len(networks)
    elif name == "trees":
        parts, logits, settings, chosen, n_tried = *_trees(rows, how, progress), len(TREE_SETTINGS)
    elif name == "forest":
        parts, logits, settings, chosen, n_tried = *_forest(rows, how, progress), 1
    else:
        parts, logits, settings, chosen, n_tried = *_foreign(member, rows, progress), [], 1
    return Candidate(name, parts, logits, settings, n_tried, time.perf_counter() - start, tuple(chosen))


def usual_members(n_rows: int, *, of_classes: bool) -> Sequence[str]:
    """Who sits in a committee where nobody was asked for: the first of `KINDS`.

    On many rows a forest takes as long as boosted trees, which are better there; for more than two classes it was not
    measured.
    """
    return KINDS[: 2 if of_classes or n_rows > _MANY_ROWS else 3]


def grid_of_networks(n_rows: int) -> dict[str, Any]:
    """What is searched of networks, as parameters of `CRCENClassifierCV`; nothing is its own grid."""
    return {"l2": (1e-3,)} if n_rows > _MANY_ROWS else {}


def _networks(
    rows: Rows, grid: list[Any], how: How, progress: Progress
) -> tuple[tuple[Member, ...], Array, tuple[str, ...], list[Any]]:
    from crcen.training.engines import trainer_on

    is_of_classes = isinstance(rows, ClassSearchRows)
    n_classes = rows.labels.n_classes if isinstance(rows, ClassSearchRows) else None
    own: dict[str, Any] = {"sample_weight": rows.weights, "device": how.device, "memory_bytes": None}
    train = trainer_on("local", rows.X, rows.target, n_classes, **own)
    run = (ClassSearchRun if is_of_classes else SearchRun)(rows, "neg_log_loss", how.seed, train, None)
    begun = time.perf_counter()
    found = best_settings(
        run,
        grid,
        n_settings=_MANY_KEPT if len(rows.X) > _MANY_ROWS else _SETTINGS_KEPT,
        n_members=_MANY_KEPT if len(rows.X) > _MANY_ROWS else _NETWORKS_A_SETTING,
        progress=progress,
        is_late=lambda: how.time_limit is not None and time.perf_counter() - begun > SEARCH_SHARE * how.time_limit,
        borders=Borders(l2=True, epochs=len(rows.X) <= _MANY_ROWS),
    )
    lines = tuple(_network_line(one.setting.recipe, one.epochs, -one.merit) for one in found.outcomes)
    return tuple(found.groups), found.logits, lines, [(one.setting.recipe, one.epochs) for one in found.outcomes]


def _network_line(recipe: Recipe, epochs: int | None, loss: float) -> str:
    hidden = "-".join(map(str, recipe.hidden)) or "none"
    length = "" if epochs is None else f", {epochs} epochs"
    return f"hidden units {hidden}, {recipe.encoding} inputs, l2 {recipe.l2:g}{length}: log loss {loss:.4g}"


def _trees(rows: Rows, how: How, progress: Progress) -> tuple[tuple[Member, ...], Array, tuple[str, ...], list[Any]]:
    outcomes = search_trees(
        rows.X,
        rows.target,
        rows.weights,
        rows.folds,
        seed=how.seed,
        n_best=_SETTINGS_KEPT,
        threads=how.threads,
        time_limit=how.time_limit,
        progress=part_of(progress, 0.0, 0.8),
    )
    chosen = [(one.setting, one.n_trees) for one in outcomes]
    trees = fit_trees(rows.X, rows.target, rows.weights, chosen, seed=how.seed, threads=how.threads)
    progress(1.0)
    lines = tuple(
        f"{one.n_trees} trees of {one.setting.leaves} leaves, {one.setting.rows_a_leaf} rows a leaf, "
        f"l2 {one.setting.l2:g}: log loss {one.loss:.4g}"
        for one in outcomes
    )
    return tuple(trees), np.mean([one.logits for one in outcomes], axis=0), lines, chosen


def _forest(rows: Rows, how: How, progress: Progress) -> tuple[tuple[Member, ...], Array, tuple[str, ...], list[Any]]:
    begun = time.perf_counter()
    own: dict[str, Any] = {"seed": how.seed, "threads": how.threads}
    logits, n_trees = forest_out_of_fold(
        rows.X,
        rows.target,
        rows.weights,
        rows.folds,
        progress=part_of(progress, 0.0, 0.8),
        is_late=lambda: how.time_limit is not None and time.perf_counter() - begun > SEARCH_SHARE * how.time_limit,
        **own,
    )
    forest = fit_forest(rows.X, rows.target, rows.weights, n_trees, **own)
    progress(1.0)
    return (forest,), logits, (f"{n_trees} trees, cut at random",), [n_trees]


def _foreign(member: Any, rows: Rows, progress: Progress) -> tuple[tuple[Member, ...], Array, tuple[str, ...]]:
    is_of_classes = isinstance(rows, ClassSearchRows)
    logits = np.full((len(rows.X), len(rows.labels.classes)) if is_of_classes else len(rows.X), np.nan)
    for i, (train, held_out) in enumerate(rows.folds):
        fitted = _fitted(member, rows, train)
        found = fitted.logits(rows.X[held_out])
        logits[held_out] = found if is_of_classes else found[:, 0]
        progress((i + 1) / (len(rows.folds) + 1))
    return (_fitted(member, rows, np.arange(len(rows.X))),), logits, ("as it was given",)


def _fitted(member: Any, rows: Rows, own: NDArray[np.int64]) -> ForeignMember:
    labels = None if isinstance(rows, ClassSearchRows) else rows.labels
    return ForeignMember(*fit_foreign(member, rows.X[own], rows.y[own], rows.weights[own], labels))


def fit_foreign(
    member: Any, X: Array, y: NDArray[Any], weights: Array, labels: Labels | None
) -> tuple[Any, int | None]:
    """Another library's classifier fitted on rows, and the column of the positive class, where there is one."""
    options = {} if np.all(weights == weights[0]) else {"sample_weight": weights}
    model = clone(member).fit(X, y, **options)
    return model, None if labels is None else list(model.classes_).index(labels.positive)


def _log_odds(p: Array) -> Array:
    inside = np.clip(p, _CLIP, 1.0 - _CLIP)
    return np.asarray(np.log(inside) - np.log1p(-inside))
