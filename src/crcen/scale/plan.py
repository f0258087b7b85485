"""The plan of a streamed fit: everything that is known before the first batch, and how chunks become batches."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.classifier import CRCENClassifier
from crcen.models.fitting import member_seed
from crcen.models.options import Calibration
from crcen.scale.sources import Chunk, held_out
from crcen.scale.statistics import StreamStatistics
from crcen.theory.price import Labels, Price
from crcen.theory.rows import Array
from crcen.training.network import InputEncoding
from crcen.training.recipe import ADAM, Recipe
from crcen.training.stream import AllReduce, Batch, StreamShape, StreamTrainer, encode_into, spread_order

_Single: TypeAlias = NDArray[np.float32]
# There are four buffers of rows: one is filled, one shuffled, one waits and one is trained on.
_BUFFER_ROWS, _BUFFER_BYTES = 65_536, 2**25


def rows_together(n_inputs: int) -> int:
    """Rows that are shuffled together: as many as fit in bounded memory once encoded."""
    return max(1, min(_BUFFER_ROWS, _BUFFER_BYTES // (4 * (n_inputs + 1))))


def check_streamable(model: CRCENClassifier) -> None:
    """Reject settings that are invalid, or that a stream does not support."""
    recipe, calibration = model.recipe(), Calibration.of(model.calibration)
    for name, value, allowed, instead in (
        ("probability", calibration.probability, ("shift", "auto"), "a fitted map needs folds of rows in memory"),
        ("balance", calibration.balance, (True, False, "auto"), "a stream has no folds; all rows solve for its bias"),
        ("solver", recipe.solver, (ADAM.name, "auto"), "L-BFGS needs all rows at each step"),
        ("loss", recipe.loss, ("cross_entropy", "squared_error"), "a stream learns one softmax; use fit"),
        ("missing", recipe.missing, ("error",), "a stream has no indicators; fill NaN in your source, or use fit"),
        ("column_scales", recipe.column_scales, (False, "auto"), "scales are learned by fit, with all rows in memory"),
    ):
        if value not in allowed:
            raise InvalidParameter(f"{name} must be {allowed[0]!r} here, got {value!r}: {instead}.", parameter=name)


class _RowBuffer:
    """Memory for the rows of a block, reused for the next block: allocation costs as much as reading."""

    def __init__(self, width: int) -> None:
        self._parts: list[_Single] = [np.empty(shape, dtype=np.float32) for shape in ((0, width), (0,), (0,))]

    def rows(self, start: int, stop: int) -> list[_Single]:
        """Encoded rows, labels and weights from ``start`` to ``stop``; earlier rows are kept."""
        if stop > len(self._parts[0]):
            for number, part in enumerate(self._parts):
                larger = np.empty((stop + stop // 2 if start else stop, *part.shape[1:]), dtype=np.float32)
                larger[:start] = part[:start]
                self._parts[number] = larger
        return [part[start:stop] for part in self._parts]


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """A streamed fit without its data; every worker makes the same plan from the same statistics."""

    # As in the fitted classifier; the counts are those of all rows
    labels: Labels
    price: Price
    training_price: Price  # weights of the loss
    recipe: Recipe  # how the networks are trained
    # Input layer and networks: one output for two classes with a positive one, otherwise one per class
    encoding: InputEncoding
    shape: StreamShape
    seed: int  # of initial weights, order and held-out rows
    validation_fraction: float  # share of rows held out for early stopping, 0 for none
    weight_scale: float  # mean sample weight of the training rows; the weights of a batch are divided by it
    mean_weight: float  # mean of scaled sample weight times class weight over the training rows
    # Start of the output biases: log-odds of the weighted classes, or centred logarithms of their shares
    output_bias: float | Array
    n_features: int  # columns of the rows

    def trainer(self, device: torch.device | str = "cpu", all_reduce: AllReduce | None = None) -> StreamTrainer:
        """Networks at their start, the same for every worker."""
        made = StreamTrainer(self.shape, device, all_reduce)
        made.initialise(self.output_bias)
        weights = self.training_price.weights
        if self.labels.positive is not None:
            weights = weights[[1 - self.labels.column, self.labels.column]]
        made.weigh(weights, self.mean_weight)
        return made

    def by_number(self) -> "StreamPlan":
        """The same plan for rows whose labels are targets already: truth values, or class numbers."""
        if self.labels.positive is not None:
            return replace(self, labels=Labels(np.array([False, True]), True))
        return replace(self, labels=Labels(np.arange(self.labels.n_classes)))

    def training_rows(self, block: Iterable[Chunk], *key: int, buffer: _RowBuffer) -> Batch:
        """The training rows of a block, shuffled by (seed, key) with the classes spread evenly."""
        parts = self._collected(block, buffer, held=False)
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, 4, *key])))
        order = spread_order(parts[1].astype(np.int64), rng)
        return Batch(*(torch.from_numpy(part.take(order, axis=0)) for part in parts))

    def validation_rows(self, block: Iterable[Chunk]) -> Batch:
        """The rows of a block that are held out."""
        return Batch(*map(torch.from_numpy, self._collected(block, self.buffer(), held=True)))

    def buffer(self) -> _RowBuffer:
        """Memory for the rows of a block."""
        return _RowBuffer(self.encoding.size + 1)

    def _collected(self, block: Iterable[Chunk], buffer: _RowBuffer, *, held: bool) -> list[_Single]:
        """Encoded rows, labels and weights of a block in its own order; a chunk is released before the next is read."""
        n = 0
        for chunk in block:
            if self.validation_fraction:
                chunk = chunk[held_out(chunk.X, self.validation_fraction, self.seed) == held]
            x, y, weights = buffer.rows(n, n + len(chunk))
            encode_into(x, self.encoding, chunk.X)
            y[:], weights[:] = chunk.target(self.labels), chunk.weight / self.weight_scale
            n += len(chunk)
        return buffer.rows(0, n)


def make_plan(model: CRCENClassifier, statistics: StreamStatistics, seed: int) -> StreamPlan:
    """The plan that follows from the counts and moments of all rows, including those of other workers."""
    totals, classes = statistics.totals, statistics.classes()
    counts, sizes = totals.weights(classes), [totals.rows[label] for label in classes.tolist()]
    labels = Labels.from_totals(classes, counts, sizes, model.pos_label, model.weighting)
    price, train_counts = labels.resolve(model.weighting, counts), statistics.train_totals.weights(classes)
    n_rows, n_train = totals.n_rows, statistics.train_totals.n_rows
    if not train_counts.all() or (statistics.validation_fraction and n_train == n_rows):
        held = f"{n_rows - n_train} of {n_rows} were held out; change validation_fraction or turn early_stopping off"
        raise InvalidInput(f"rows of every class are needed to train on, and some to hold out: {held}.")
    trained = model.training_weighting_at(price, labels)
    mass, scale = trained.weights * train_counts, float(train_counts.sum()) / n_train
    logs = np.log(mass)
    recipe = model.recipe().in_batches().replace(encoding=streamed_encoding(model), column_scales=False)
    recipe = recipe.settled(n_train)
    encoding = statistics.encoding(recipe.encoding, recipe.bins, labels.target, standardize=recipe.standardize)
    is_binary = labels.positive is not None
    return StreamPlan(
        labels=labels,
        price=price,
        training_price=trained,
        recipe=recipe,
        encoding=encoding,
        shape=StreamShape(
            n_inputs=encoding.size,
            recipe=recipe,
            seeds=tuple(member_seed(seed, member) for member in range(model.n_members)),
            total_rows=int(model.max_epochs or 1) * n_train,
            n_outputs=1 if is_binary else labels.n_classes,
        ),
        seed=seed,
        validation_fraction=statistics.validation_fraction,
        weight_scale=scale,
        mean_weight=float(mass.sum()) / (n_train * scale),
        output_bias=float(logs[labels.column] - logs[1 - labels.column]) if is_binary else logs - logs.mean(),
        n_features=len(statistics.names),
    )


def streamed_encoding(model: CRCENClassifier) -> str:
    """The input encoding of a streamed fit; ``"auto"`` is the standard one, which is fitted on all rows."""
    recipe = model.recipe()
    return "standard" if recipe.encoding == "auto" or not recipe.standardize else recipe.encoding
