"""Boosted trees on rows that do not fit in memory, and the committee of them and a streamed network.

LightGBM trains on binned rows, one byte per cell. Bin limits come from a sample of rows. One pass writes bin numbers of
all rows to a file, from which LightGBM builds its data set. Thresholds are converted back to values of the columns.
"""

import hashlib
import json
import mmap
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.files import write_atomic
from crcen._support.lazy import lightgbm, neural_network, pd, threadpoolctl
from crcen.exceptions import InvalidParameter
from crcen.models import committee
from crcen.models.classifier import CRCENClassifier
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import write_ensemble
from crcen.models.members.lightgbm_trees import TreeSetting, trees_of_text
from crcen.models.members.member import FittedMember
from crcen.models.members.tree_arrays import TreeEnsemble
from crcen.scale.sources import Chunk, ColumnMoments, kept_in, row_shares
from crcen.theory.balance import class_shifts
from crcen.theory.key_equation import on_rows, without_test
from crcen.theory.price import Labels
from crcen.theory.rows import Array, DataFrame, Index, LabelArray, Series
from crcen.training.network import NetworkGroup

Codes = NDArray[np.uint8]
Blocks = Callable[[], Iterable[tuple[DataFrame, Array]]]
Dataset = Any  # of LightGBM, which no type checker sees

SETTING = TreeSetting(128, 20, 5.0, 0.5)
_MOST_BINS = 250  # of 256: LightGBM keeps some for itself
_MOST_TREES = 500
# Trees between two checkpoints, and the share of trees without a lower loss at which growing ends.
_TREES_PER_CHECKPOINT, _WITHOUT_GAIN, _FEWEST_TREES = 50, 0.2, 30
# Measured bytes beside the bins: per output and row (score, gradient, curvature), per row (label, order, buffers), and
# per bin of a leaf's histogram.
_OUTPUT_BYTES, _ROW_BYTES, _BIN_BYTES = 18, 48, 16
_CELLS_AT_ONCE = 2**20  # converted for LightGBM at a time
_MANY_CELLS = 2_000_000  # with fewer, several threads cost more than they save
_SEED = 7  # of the sample of rows, apart from that of the held-out rows


@dataclass(frozen=True, eq=False)
class TreePlan:
    """Everything about the trees except the rows; workers share it."""

    limits: tuple[Array, ...]  # upper limits of all bins of a column but the last
    sample: Codes  # bin numbers of some rows, with every bin among them
    labels: Labels  # classes; two classes with a positive one have one output
    share: float = 1.0  # share of the training rows that memory has room for
    n_bytes: int = 0  # memory that the rows and histograms will take
    pool_bytes: int = 0  # of it, for histograms
    seed: int = 0
    threads: int = 1  # the result does not depend on it

    @property
    def n_outputs(self) -> int:
        """1 for two classes with a positive one, otherwise K."""
        return 1 if self.labels.positive is not None else self.labels.n_classes

    def codes(self, X: Array) -> Codes:
        """Bin numbers of encoded rows."""
        return _codes(X, self.limits)

    def fingerprint(self, source: str) -> str:
        """A text that differs for other settings, or for rows of another fingerprint ``source``."""
        about = source, self.seed, self.share, SETTING, self.labels, [len(upper) for upper in self.limits]
        return hashlib.sha256(repr(about).encode() + np.concatenate(self.limits).tobytes()).hexdigest()

    def params(self) -> dict[str, object]:
        """LightGBM's parameters."""
        return SETTING.params(max(2, self.n_outputs), self.threads) | {
            "max_bin": 255,
            "min_data_in_bin": 1,
            "bin_construct_sample_cnt": len(self.sample),
            "histogram_pool_size": self.pool_bytes / 2**20,
            "pre_partition": True,  # workers have rows of their own
        }


def plan_trees(
    sample: Iterable[Array], labels: Labels, n_rows: int, memory_bytes: int, *, seed: int = 0, threads: int = 1
) -> TreePlan:
    """Bin limits from a sample of encoded rows, and the share of ``n_rows`` rows that fits in memory.

    ``sample`` are blocks of columns of the same rows.
    """
    limits: list[Array] = []
    codes = []
    for block in sample:
        own = [_limits(column) for column in block.T]
        codes.append(_codes(block, own))
        limits += own
    threads = threads if n_rows * len(limits) >= _MANY_CELLS else 1
    plan = TreePlan(tuple(limits), np.hstack(codes), labels, seed=seed, threads=threads)
    histogram = _BIN_BYTES * sum(len(one) + 1 for one in limits)
    pool = min(SETTING.leaves * histogram, max(2 * histogram, memory_bytes // 3))
    row_bytes = _bin_bytes(plan) + _OUTPUT_BYTES * plan.n_outputs + _ROW_BYTES
    share = max(0.0, min(1.0, (memory_bytes - pool) / max(1, n_rows * row_bytes)))
    if share < 1.0 and share * n_rows < 2 * SETTING.leaf_rows:
        room = f"room for {2 * SETTING.leaf_rows} rows of {row_bytes:.0f} bytes and {pool:,} bytes of histograms"
        message = f"memory must have {room}: got {memory_bytes:,} bytes; give more, or use learner='networks'."
        raise InvalidParameter(message, parameter=("memory", "learner"))
    return replace(plan, share=share, n_bytes=int(share * n_rows * row_bytes + pool), pool_bytes=pool)


def _bin_bytes(plan: TreePlan) -> float:
    """Bytes per row of LightGBM's bins: fewer than columns, since it bundles those of a category."""
    with tempfile.TemporaryDirectory(prefix="crcen-bins-") as folder:
        path = Path(folder) / "sample.bin"
        _dataset(plan.sample, None, plan.params()).save_binary(path)
        return path.stat().st_size / len(plan.sample)


def _codes(X: Array, limits: Sequence[Array]) -> Codes:
    found = np.empty(X.shape, dtype=np.uint8)
    is_binary = np.array([len(upper) == 1 for upper in limits])
    found[:, is_binary] = X[:, is_binary] > np.array([upper[0] for upper in limits if len(upper) == 1])
    for j in np.flatnonzero(~is_binary).tolist():
        found[:, j] = np.searchsorted(limits[j], X[:, j])
    return found


def _limits(column: Array) -> Array:
    """Halfway between the values of a column, or quantiles where there are many values."""
    ordered = np.sort(column)
    values = ordered[np.append(True, ordered[1:] > ordered[:-1])]
    if len(values) > _MOST_BINS:
        values = np.unique(ordered[(np.linspace(0, 1, _MOST_BINS) * (len(ordered) - 1)).astype(np.int64)])
    return np.asarray(0.5 * values[:-1] + 0.5 * values[1:])


class BinnedRows:
    """Bin numbers and targets of training rows, in an unnamed file of a folder that disappears with the process."""

    def __init__(self, plan: TreePlan, blocks: Iterable[Iterable[Chunk]], folder: Path | None = None) -> None:
        targets: list[Codes] = []
        on_disk = kept_in(folder, "the binned rows, one byte per cell,", "use learner='networks'")
        with on_disk, tempfile.TemporaryFile(dir=folder) as file:
            for chunk in chain.from_iterable(blocks):
                if plan.share < 1.0:
                    chunk = chunk[row_shares(chunk.X, plan.seed + _SEED) < plan.share]
                file.write(plan.codes(chunk.X).tobytes())
                targets.append(chunk.target(plan.labels).astype(np.uint8))
            file.flush()
            if not any(map(len, targets)):
                room = f"memory has room for {plan.share:.2g} of the rows, which repeat, so that none was drawn"
                raise InvalidParameter(f"{room}: give more, or use learner='networks'.", parameter="memory")
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.target = np.concatenate(targets)
        self.codes: Codes = np.frombuffer(self._mapped, np.uint8).reshape(len(self.target), -1)

    def release(self) -> None:
        """Take the pages of the file that were read out of this process's memory."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _dataset(
    codes: Codes,
    target: LabelArray | None,
    params: Mapping[str, object],
    reference: Dataset = None,
    release: Callable[[], None] | None = None,
) -> Dataset:
    """LightGBM's data set of binned rows; with ``release`` they are read in parts, and it is called after each."""

    class Rows(lightgbm.Sequence):  # type: ignore[misc]
        batch_size = _rows_at_once(codes)
        block, start = np.empty((0, 0)), -1

        def __getitem__(self, at: int | slice | list[int]) -> Array:
            if not isinstance(at, slice | list):  # one of the sampled rows, which come in order
                if self.start != (start := at - at % self.batch_size):
                    self.block, self.start = self[start : start + self.batch_size], start
                return np.asarray(self.block[at - start])
            found = np.asarray(codes[at], dtype=np.float64)
            assert release is not None
            release()
            return found

        def __len__(self) -> int:
            return len(codes)

    label = None if target is None else target.astype(np.float32)
    data = codes if release is None else Rows()
    return lightgbm.Dataset(data, label=label, reference=reference, params=dict(params)).construct()


def _rows_at_once(codes: Codes) -> int:
    return max(256, _CELLS_AT_ONCE // max(1, codes.shape[1]))


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
        write_atomic(path, json.dumps(vars(self)))

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
        whole = trees_of_text("".join(self.models), max(2, plan.n_outputs), len(plan.limits), self.n_best)
        nodes = np.flatnonzero(np.isfinite(whole.threshold))
        threshold = whole.threshold.copy()
        at = np.maximum(0, np.floor(threshold[nodes]).astype(np.int64))
        for j in np.unique(whole.feature[nodes]).tolist():
            own = whole.feature[nodes] == j
            threshold[nodes[own]] = np.append(plan.limits[j], np.inf)[at[own]]
        return replace(whole, threshold=threshold)


def grow_trees(
    plan: TreePlan,
    rows: BinnedRows,
    held_out: tuple[Codes, LabelArray],
    start: GrownTrees,
    save: Callable[[GrownTrees], object] | None = None,
    *,
    connect: Callable[[], Mapping[str, object]] | None = None,
    show: Callable[[float], None] = lambda share: None,
) -> GrownTrees:
    """Grow trees, after those of an earlier run, until the loss of held-out rows does not decrease.

    ``held_out`` are bin numbers of rows that no training row equals, and their targets. ``save`` takes a checkpoint
    every 50 trees. ``connect`` is for several workers that grow the trees together: it is called once the data set is
    built and returns LightGBM's network parameters. All workers then have the same trees and the same losses.
    """
    grown = replace(start, models=list(start.models), losses=list(start.losses))
    if grown.is_done or len(grown.losses) >= _MOST_TREES:
        return grown
    params = {**plan.params(), "seed": (plan.seed + len(grown.losses)) % 2**31}
    # All workers have the bins of the sample. LightGBM does not bundle columns then, so trees take 1.7 times as long.
    reference = None if connect is None else _dataset(plan.sample, None, params)
    train = _dataset(rows.codes, rows.target, params, reference, rows.release)
    judged = _dataset(*held_out, params, train)
    if grown.models:
        train.set_init_score(_scores(grown.models, rows.codes))
        judged.set_init_score(_scores(grown.models, held_out[0]))
    network = {} if connect is None else connect()

    def first_tree(threads: int) -> tuple[Dataset, bool, float]:
        begin = time.perf_counter()
        booster = lightgbm.Booster({**params, "num_threads": threads, **network}, train)
        booster.add_valid(judged, "held out")
        return booster, booster.update(), time.perf_counter() - begin

    threads = plan.threads
    if threads > 1 and connect is None:  # they wait actively: on busy cores for many times the time of one thread
        seconds = {number: first_tree(number)[2] for number in (threads, 1)}
        threads = min(seconds, key=seconds.__getitem__)
    booster, is_finished, _ = first_tree(threads)
    while True:
        grown.losses.append(float(booster.eval_valid()[0][2]))
        show(len(grown.losses) / _MOST_TREES)
        is_finished |= grown.is_done or len(grown.losses) >= _MOST_TREES
        if is_finished or (save is not None and len(grown.losses) % _TREES_PER_CHECKPOINT == 0):
            grown.models = [*start.models, booster.model_to_string(num_iteration=-1)]
            if save is not None:
                save(grown)
        if is_finished:
            return grown
        is_finished = booster.update()


def _scores(models: list[str], codes: Codes) -> Array:
    """Raw scores of rows by trees of an earlier run, class after class."""
    boosters, at_once = [lightgbm.Booster(model_str=text) for text in models], _rows_at_once(codes)
    blocks = (np.asarray(codes[i : i + at_once], dtype=np.float64) for i in range(0, len(codes), at_once))
    parts = [np.sum([one.predict(block, raw_score=True) for one in boosters], axis=0) for block in blocks]
    return np.concatenate(parts).ravel(order="F")


STACKING_ROWS = "held-out rows that the members were combined on"
# Rows that a trial network is trained on, counted in every pass, and rows that they are drawn from.
_TRIAL_VISITS, _TRIAL_ROWS, _TRIAL_BATCH, _TRIAL_RATE = 2**16, 2**18, 256, 0.005


class StackingRows:
    """Held-out rows that weigh network and trees, from blocks of frames and encoded rows.

    ``counts`` are the training rows of each class. Rows of one cluster (``who``, or None) are in one fold.
    """

    def __init__(
        self, blocks: Blocks, y: LabelArray, labels: Labels, counts: Array, trees: TreeEnsemble, who: Series, seed: int
    ) -> None:
        self.trees = trees if labels.positive is None else trees.column(1)
        found = np.concatenate([self.trees.logits(X) for _, X in blocks()])
        self._of_trees = found if labels.positive is None else labels.columns(found[:, 0])
        self._blocks, self.labels, self.target, self.counts, self.seed = blocks, labels, labels.encode(y), counts, seed
        cluster = np.arange(len(y)) if who is None else pd.factorize(who, use_na_sentinel=False)[0]
        drawn = np.array_split(np.random.default_rng(seed).permutation(cluster.max() + 1), 4)
        self.folds = [np.flatnonzero(np.isin(cluster, part)) for part in drawn if len(part)]
        # The class ratio of the training rows is known better than that of the held-out ones.
        self.sizes = (counts / np.bincount(self.target, minlength=len(counts)))[self.target]
        self.sizes /= self.sizes.mean()

    def logits(self, network: CRCENClassifier | None) -> Array:
        """Natural logits of the network, if there is one, and of the trees, (n, members, K)."""
        found = [] if network is None else [[network.ensemble_.logits(X)[0] for _, X in self._blocks()]]
        return np.stack([*map(np.concatenate, found), self._of_trees], axis=1)

    def has_use_for_network(self, blocks: Iterable[Iterable[Chunk]], most_rows: int, epochs: int) -> bool:
        """Whether a network gets a weight beside the trees, by a trial on at most ``most_rows`` of the first rows.

        Scikit-learn trains it, since loading torch takes longer. Of frequent classes it has a part of the rows. There
        is no trial, and the answer is yes, if it would take longer than ``epochs`` of all rows, or lacks a class.
        """
        parts, n_read, room = list[tuple[Array, Index]](), 0, np.full(len(self.counts), most_rows // len(self.counts))
        for chunk in chain.from_iterable(blocks if epochs * self.counts.sum() > _TRIAL_VISITS else ()):
            target = self.labels.encode(chunk.labels)
            own = np.concatenate([np.flatnonzero(target == k)[:most] for k, most in enumerate(room)])
            parts.append((chunk.X[own], target[own]))
            room -= np.bincount(target[own], minlength=len(room))
            n_read += len(target)
            if n_read >= _TRIAL_ROWS or not room.any():
                break
        kept = most_rows // len(room) - room
        if not kept.all():
            return True
        X, target = (np.concatenate(part) for part in zip(*parts, strict=True))
        encoding = ColumnMoments.of(X, np.ones(len(X))).encoding()
        how = {"batch_size": min(_TRIAL_BATCH, len(X)), "learning_rate_init": _TRIAL_RATE, "random_state": self.seed}
        network, rows = neural_network.MLPClassifier((64,), **how), encoding(X).astype(np.float32)
        judged = [encoding(X).astype(np.float32) for _, X in self._blocks()]
        with threadpoolctl.threadpool_limits(1):  # the answer must not depend on the number of threads
            for _ in range(-(-_TRIAL_VISITS // len(X))):
                network.partial_fit(rows, target, classes=np.arange(len(kept)))
                p = np.concatenate([network.predict_proba(X) for X in judged]).astype(np.float64)
                of_network = np.log(np.maximum(p, 1e-12)) + np.log(self.counts / kept)
                logits = np.stack([of_network, self._of_trees], axis=1)
                if committee.fit_stacking(logits, self.target, self.sizes, committee.RIDGES[0]).weights[0] > 0.0:
                    return True
        return False


def stack_members(
    made: committee.CommitteeClassifier, rows: StackingRows, grown: GrownTrees, network: CRCENClassifier | None
) -> committee.CommitteeClassifier:
    """Combine trees, and a streamed network if there is one, by weights from rows that neither was trained on."""
    start = time.perf_counter()
    labels, target, sizes = rows.labels, rows.target, rows.sizes
    has_positive = labels.positive is not None
    price, plain = (labels.resolve(one, rows.counts) for one in (made.weighting, None))
    logits = rows.logits(network)
    ridge = committee.choose_ridge(logits, target, sizes, rows.folds, rows.seed)
    stacking = committee.fit_stacking(logits, target, sizes, ridge)
    crossed = committee.cross_fitted_logits(logits, target, sizes, rows.folds, ridge)
    members: list[NetworkGroup | TreeEnsemble] = [rows.trees]
    settings = {"trees": f"{grown.n_best} trees of {SETTING}"}
    if network is not None:
        (group,) = network.ensemble_.members
        assert isinstance(group, NetworkGroup)
        natural = network.ensemble_.shift - price.log_weights
        members.insert(0, group.shifted(labels.margin(natural) if has_positive else natural))
        settings = {"networks": f"{len(group)} network{'s' * (len(group) > 1)}, hidden {network.hidden}", **settings}
    kept = np.flatnonzero(stacking.weights > 0.0).tolist() or list(range(len(members)))
    ensemble = Ensemble.of(labels, plain, tuple(members[i] for i in kept), stacking.weights[kept])
    ensemble = ensemble.shifted(stacking.intercepts).at_price(price)
    weighted = stacking(logits) + price.log_weights
    before = ensemble.key_equation(weighted, target, sizes)
    shift = class_shifts(target, weighted, price.weights, sizes)
    ensemble = ensemble.moved(shift)
    after = ensemble.key_equation(weighted, target, sizes)
    made.oof_key_equation_ = on_rows(without_test(before), STACKING_ROWS)
    made.oof_shift_ = float(labels.margin(shift)) if has_positive else shift
    write_ensemble(made, ensemble, on_rows(after, STACKING_ROWS))
    made.member_weights_ = stacking.weights
    found = [FittedMember(name, (), logits[:, i], (text,), 1) for i, (name, text) in enumerate(settings.items())]
    positive = [labels.column] if has_positive else None
    made.leaderboard_ = committee.leaderboard(found, stacking.weights, crossed, target, sizes, positive)
    made.n_features_in_, made.notes_, made.fit_time_ = rows.trees.n_features, [], time.perf_counter() - start
    return made
