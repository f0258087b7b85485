"""Boosted trees on rows that do not fit in memory: LightGBM on binned rows, one byte per cell.

Bin limits come from a sample of rows. One pass writes the bin numbers of all rows to a file, from which LightGBM builds
its data set; that takes one byte per cell of memory. Thresholds are converted back to values of the columns.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.files import atomic_file
from crcen.exceptions import DataUnavailable, InvalidParameter
from crcen.models.members.lightgbm_trees import TreeSetting, tree_ensemble
from crcen.models.members.tree_arrays import TreeEnsemble
from crcen.scale.sources import Chunk, row_shares
from crcen.theory.labels import Labels

Array = NDArray[np.float64]
Codes = NDArray[np.uint8]
Dataset = Any  # of LightGBM, which no type checker sees

SETTING = TreeSetting(128, 20, 5.0, 0.5)
_MOST_BINS = 250  # of 256: LightGBM keeps some for itself
_MOST_TREES = 500
# Trees between two checkpoints, and the share of trees without a lower loss at which growing ends.
_TREES_PER_CHECKPOINT, _WITHOUT_GAIN, _FEWEST_TREES = 50, 0.3, 30
# Bytes per row and output beside the cells: score, gradient and curvature; and per row: label and order.
_OUTPUT_BYTES, _ROW_BYTES = 24, 16
_SEED = 7  # of the sample of rows, apart from that of the held-out rows


@dataclass(frozen=True, eq=False)
class TreePlan:
    """Everything about the trees except the rows; workers share it."""

    limits: tuple[Array, ...]  # upper limits of all bins of a column but the last
    labels: Labels  # classes; two classes with a positive one have one output
    share: float  # share of the training rows that memory has room for
    n_bytes: int  # memory that the rows will take
    # The result does not depend on the number of threads
    seed: int = 0
    threads: int = 1
    # Of LightGBM
    setting: TreeSetting = SETTING
    most_trees: int = _MOST_TREES

    @property
    def n_outputs(self) -> int:
        """1 for two classes with a positive one, otherwise K."""
        return 1 if self.labels.positive is not None else self.labels.n_classes

    def codes(self, X: Array) -> Codes:
        """Bin numbers of encoded rows."""
        found = np.empty(X.shape, dtype=np.uint8)
        for j, limits in enumerate(self.limits):
            found[:, j] = np.searchsorted(limits, X[:, j])
        return found

    def params(self) -> dict[str, object]:
        """LightGBM's parameters."""
        return {
            "num_leaves": self.setting.leaves,
            "min_data_in_leaf": self.setting.leaf_rows,
            "lambda_l2": self.setting.l2,
            "feature_fraction_bynode": self.setting.columns,
            "learning_rate": self.setting.rate,
            "max_bin": 255,
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
            "num_threads": self.threads,
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
            **({"objective": "binary"} if self.n_outputs == 1 else {"objective": "multiclass"}),
            **({} if self.n_outputs == 1 else {"num_class": self.n_outputs}),
        }


def plan_trees(
    sample: Array, labels: Labels, n_rows: int, memory_bytes: int, *, seed: int = 0, threads: int = 1
) -> TreePlan:
    """Bin limits from a sample of encoded rows, and the share of ``n_rows`` rows that fits in memory."""
    plan = TreePlan(tuple(_limits(column) for column in sample.T), labels, 1.0, 0, seed, threads)
    n_bytes = n_rows * (sample.shape[1] + _OUTPUT_BYTES * plan.n_outputs + _ROW_BYTES)
    share = min(1.0, memory_bytes / max(1, n_bytes))
    if share * n_rows < 2 * SETTING.leaf_rows:
        raise InvalidParameter(
            f"memory must have room for {2 * SETTING.leaf_rows} rows of {n_bytes // max(1, n_rows)} bytes: got "
            f"{memory_bytes:,} bytes; give more, or use learner='networks'.",
            parameter=("memory", "learner"),
        )
    return replace(plan, share=share, n_bytes=int(share * n_bytes))


def _limits(column: Array) -> Array:
    """Halfway between the values of a column, or quantiles where there are many values."""
    values = np.unique(column)
    if len(values) > _MOST_BINS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, _MOST_BINS), method="lower"))
    return np.asarray(0.5 * values[:-1] + 0.5 * values[1:])


class BinnedRows:
    """Bin numbers and targets of the training rows, in a file of a folder."""

    def __init__(self, plan: TreePlan, blocks: Iterable[Iterable[Chunk]], folder: Path) -> None:
        self.path = folder / "bins.u8"
        targets: list[NDArray[np.uint8]] = []
        try:
            with self.path.open("wb") as file:
                for chunk in (chunk for block in blocks for chunk in block):
                    kept = row_shares(chunk.X, plan.seed + _SEED) < plan.share
                    file.write(plan.codes(chunk.X[kept]).tobytes())
                    targets.append(chunk.target(plan.labels)[kept].astype(np.uint8))
        except OSError as error:
            raise DataUnavailable(
                f"the binned rows, one byte per cell, cannot be kept in {folder}: {error.strerror or error}; make "
                f"room, or use learner='networks'."
            ) from error
        self.target = np.concatenate(targets)
        self.codes: Codes = np.memmap(self.path, np.uint8, "r", shape=(len(self.target), len(plan.limits)))

    def dataset(self, params: Mapping[str, object]) -> Dataset:
        """LightGBM's data set, read from the file in parts."""
        import lightgbm

        codes = self.codes

        class Rows(lightgbm.Sequence):
            batch_size = max(256, 2**22 // max(1, codes.shape[1]))

            def __getitem__(self, at: int | slice | list[int]) -> Array:
                return np.asarray(codes[at], dtype=np.float64)

            def __len__(self) -> int:
                return len(codes)

        return lightgbm.Dataset(Rows(), label=self.target.astype(np.float32), params=dict(params))


@dataclass
class GrownTrees:
    """Trees so far: what a checkpoint holds."""

    fingerprint: str = ""  # of data and settings; a checkpoint of another fit is rejected
    models: list[str] = field(default_factory=list)  # lightGBM's text, one for each part between restarts
    losses: list[float] = field(default_factory=list)  # log loss of the held-out rows after each tree

    @property
    def n_best(self) -> int:
        """The number of trees with the lowest loss."""
        return int(np.argmin(self.losses)) + 1

    @property
    def is_done(self) -> bool:
        """Whether more trees do not help."""
        return len(self.losses) >= _FEWEST_TREES and self.n_best <= (1.0 - _WITHOUT_GAIN) * len(self.losses)

    def write(self, path: Path) -> None:
        """Replace the checkpoint."""
        with atomic_file(path) as file:
            file.write(json.dumps(vars(self)).encode())

    @classmethod
    def read(cls, path: Path, fingerprint: str) -> "GrownTrees":
        """The checkpoint of the same fit; otherwise no trees."""
        try:
            found = cls(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return cls(fingerprint)
        return found if found.fingerprint == fingerprint else cls(fingerprint)

    def ensemble(self, plan: TreePlan) -> TreeEnsemble:
        """The best number of trees, with thresholds in values of the encoded columns."""
        import lightgbm

        n_classes, left, parts = max(2, plan.n_outputs), self.n_best, []
        for text in self.models:
            model = lightgbm.Booster(model_str=text)
            n_trees = min(left, model.current_iteration())
            if n_trees:
                model = lightgbm.Booster(model_str=model.model_to_string(num_iteration=n_trees))
                parts.append(tree_ensemble(model, n_classes))
            left -= n_trees
        whole = _joined(parts)
        is_inner = np.isfinite(whole.threshold)
        nodes = np.flatnonzero(is_inner)
        threshold = whole.threshold.copy()
        at = np.maximum(0, np.floor(threshold[nodes]).astype(np.int64))
        for j in np.unique(whole.feature[nodes]).tolist():
            own = whole.feature[nodes] == j
            threshold[nodes[own]] = np.append(plan.limits[j], np.inf)[at[own]]
        return replace(whole, threshold=threshold, n_features=len(plan.limits))


def _joined(parts: list[TreeEnsemble]) -> TreeEnsemble:
    """Additive trees one after another."""
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0, *(len(part.left) for part in parts[:-1])])
    names = ("feature", "threshold", "missing_left", "value", "output")
    whole: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    whole |= {
        name: np.concatenate([getattr(part, name) + at for part, at in zip(parts, offsets, strict=True)]).astype(
            np.int32
        )
        for name in ("left", "right", "roots")
    }
    return replace(parts[0], **whole, depth=max(part.depth for part in parts))


def grow_trees(
    plan: TreePlan,
    rows: BinnedRows,
    held_out: tuple[Array, NDArray[np.generic]],
    start: GrownTrees,
    save: Callable[[GrownTrees], object] = lambda grown: None,
    *,
    network: Mapping[str, object] | None = None,
    show: Callable[[float], None] = lambda share: None,
) -> GrownTrees:
    """Grow trees, after those of an earlier run, until the loss of held-out rows does not decrease.

    ``held_out`` are encoded rows that no training row equals, and their targets. ``save`` takes a checkpoint every 50
    trees. ``network`` has LightGBM's network parameters if several workers grow the trees together.
    """
    import lightgbm

    grown = replace(start, models=list(start.models), losses=list(start.losses))
    if grown.is_done or len(grown.losses) >= plan.most_trees:
        return grown
    params = {**plan.params(), "seed": (plan.seed + len(grown.losses)) % 2**31, **(network or {})}
    if network:
        params |= {"tree_learner": "data", "pre_partition": True}
    codes = plan.codes(held_out[0])
    train = rows.dataset(params)
    # With workers, the data set is built by the booster, which connects them first.
    judged = lightgbm.Dataset(codes.astype(np.float64), held_out[1].astype(np.float32), reference=train, params=params)
    if grown.models:
        train.set_init_score(_scores(grown.models, rows.codes))
        judged.set_init_score(_scores(grown.models, codes))
    booster = lightgbm.Booster(params, train)
    booster.add_valid(judged, "held out")
    before = list(grown.models)
    while len(grown.losses) < plan.most_trees and not grown.is_done:
        is_finished = booster.update()
        grown.losses.append(float(booster.eval_valid()[0][2]))
        show(len(grown.losses) / plan.most_trees)
        if len(grown.losses) % _TREES_PER_CHECKPOINT == 0:
            grown.models = [*before, booster.model_to_string(num_iteration=-1)]
            save(grown)
        if is_finished:
            break
    grown.models = [*before, booster.model_to_string(num_iteration=-1)]
    save(grown)
    return grown


def _scores(models: list[str], codes: Codes) -> Array:
    """Raw scores of rows by trees of an earlier run, class after class."""
    import lightgbm

    boosters = [lightgbm.Booster(model_str=text) for text in models]
    predict = [partial(one.predict, raw_score=True) for one in boosters]
    at_once = max(256, 2**24 // max(1, codes.shape[1]))
    parts = [
        np.sum([one(np.asarray(codes[i : i + at_once], dtype=np.float64)) for one in predict], axis=0)
        for i in range(0, len(codes), at_once)
    ]
    return np.concatenate(parts).ravel(order="F")
