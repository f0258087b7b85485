"""What a streamed fit knows before its first batch, and how chunks become batches."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from crcen.models.classifier import CRCENClassifier
from crcen.scale.chunks import Chunk, held_out
from crcen.theory.labels import Labels
from crcen.training.encoding import InputEncoding
from crcen.training.recipe import Recipe
from crcen.training.stream import AllReduce, Batch, StreamShape, StreamTrainer, encode_into, spread_order

__all__ = ["StreamPlan", "stream_recipe", "streamed_encoding"]

_Rows: TypeAlias = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]
_Single: TypeAlias = NDArray[np.float32]
# A buffer of rows, of which there are four: one is filled, one shuffled, one waits and one is trained on.
_BUFFER_ROWS, _BUFFER_BYTES = 65_536, 2**25


class RowRoom:
    """Memory for the rows of a block, which the next block finds again: new memory costs as much as reading."""

    def __init__(self, width: int) -> None:
        self._parts: list[_Single] = [np.empty(shape, dtype=np.float32) for shape in ((0, width), (0,), (0,))]

    def rows(self, start: int, stop: int) -> list[_Single]:
        """Encoded rows, labels and weights from ``start`` to ``stop``; what is before them is kept."""
        if stop > len(self._parts[0]):
            for number, part in enumerate(self._parts):
                larger = np.empty((stop + stop // 2 if start else stop, *part.shape[1:]), dtype=np.float32)
                larger[:start] = part[:start]
                self._parts[number] = larger
        return [part[start:stop] for part in self._parts]


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """The whole of a streamed fit but its data; every worker makes the same one from the same statistics.

    Parameters
    ----------
    classes, pos_label, weighting
        As the fitted classifier will have them; the counts are those of all rows.
    training_weighting
        What the loss is weighted by.
    recipe
        How the networks are trained.
    encoding, shape
        Input layer and networks.
    seed
        Of initial weights, order and held-out rows.
    validation_fraction
        Share of rows held out, 0 for none.
    weight_scale
        Mean sample weight of the training rows, which batches are divided by.
    mean_weight
        Mean of what is left, times λ or 1 − λ, over the training rows.
    output_bias
        Where output biases start: log(Σ_pos w / Σ_neg w).
    n_train_rows, n_features
        Rows that are trained on, and their columns.
    """

    classes: NDArray[Any]
    pos_label: Any
    weighting: Any
    training_weighting: Any
    recipe: Recipe
    encoding: InputEncoding
    shape: StreamShape
    seed: int
    validation_fraction: float
    weight_scale: float
    mean_weight: float
    output_bias: Any
    n_train_rows: int
    n_features: int

    def trainer(self, device: torch.device | str = "cpu", all_reduce: AllReduce | None = None) -> StreamTrainer:
        """Networks at their start, the same for every worker."""
        made = StreamTrainer(self.shape, device, all_reduce)
        made.initialise(self.output_bias)
        lam = self.training_weighting.lam
        made.weigh(np.array([1.0 - lam, lam]), self.mean_weight)
        return made

    @property
    def labels(self) -> Any:
        """Both classes, and the positive one."""
        return Labels(self.classes, self.pos_label)

    def by_number(self) -> "StreamPlan":
        """The same for rows that say whether they are positive instead of their label."""
        return replace(self, classes=np.array([False, True]), pos_label=True)

    def order(self, target: Any, rng: np.random.Generator) -> NDArray[np.int64]:
        """A random order of rows with the classes spread evenly."""
        return spread_order(target > 0, rng)

    def buffer_rows(self, asked: int | None) -> int:
        """Rows that are shuffled together: as many as were asked for, or as take a bounded memory once encoded."""
        return asked or max(1, min(_BUFFER_ROWS, _BUFFER_BYTES // (4 * (self.encoding.size + 1))))

    def target(self, chunk: Chunk) -> Any:
        """Which rows of a chunk are positive, or their class numbers; a label that is no class is refused."""
        return chunk.target(self.labels)

    def training_rows(self, block: Iterable[Chunk], *key: int, room: RowRoom | None = None) -> Batch:
        """The rows of a block that are trained on, shuffled by (seed, key) with the classes spread evenly."""
        parts = self._collected(block, room or self.room(), held=False)
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, 4, *key])))
        order = self.order(parts[1], rng)
        return Batch(*(torch.from_numpy(part.take(order, axis=0)) for part in parts))

    def validation_rows(self, block: Iterable[Chunk]) -> Batch:
        """The rows of a block that are held out."""
        return Batch(*map(torch.from_numpy, self._collected(block, self.room(), held=True)))

    def room(self) -> RowRoom:
        """Memory for the rows of a block."""
        return RowRoom(self.encoding.size + 1)

    def _kept(self, chunk: Chunk, *, held: bool) -> _Rows:
        target = self.target(chunk)
        if not self.validation_fraction:
            return chunk.X, target, chunk.weight
        kept = held_out(chunk.X, self.validation_fraction, self.seed) == held
        return chunk.X[kept], target[kept], chunk.weight[kept]

    def _collected(self, block: Iterable[Chunk], room: RowRoom, *, held: bool) -> list[_Single]:
        """Encoded rows, labels and weights of a block in its own order; a chunk is let go before the next is read."""
        n = 0
        for chunk in block:
            X, target, weight = self._kept(chunk, held=held)
            x, y, weights = room.rows(n, n + len(target))
            encode_into(x, self.encoding, X)
            y[:], weights[:] = target, weight / self.weight_scale
            n += len(target)
        return room.rows(0, n)


def streamed_encoding(model: CRCENClassifier) -> str:
    """The input encoding of a streamed fit; ``"auto"`` is the standard one here, which all rows have part in."""
    recipe = model.recipe()
    return "standard" if recipe.encoding == "auto" or not recipe.standardize else recipe.encoding


def stream_recipe(model: CRCENClassifier, n_train: int) -> Recipe:
    """How the networks of a stream of so many rows are trained."""
    recipe = model.recipe().in_batches().replace(encoding=streamed_encoding(model), column_scales=False)
    return recipe.settled(n_train)
