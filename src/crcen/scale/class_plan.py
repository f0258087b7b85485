"""What a streamed fit of K classes needs to know before its first batch."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput
from crcen.models.classes.fitting import check_no_positive, trained_at
from crcen.models.classifier import CRCENClassifier
from crcen.models.fitting import member_seed
from crcen.scale.statistics import StreamStatistics
from crcen.scale.stream_plan import StreamPlan, stream_recipe
from crcen.theory.labels import Labels
from crcen.theory.price import Price
from crcen.training.stream import AllReduce, StreamShape, StreamTrainer, spread_order

__all__ = ["ClassStreamPlan", "make_class_plan"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassStreamPlan(StreamPlan):
    """`StreamPlan` of K classes.

    Parameters
    ----------
    price
        Class weights, and costs where there are some; ``weighting`` are its weights.
    output_bias
        (K,): logarithms of the weighted class shares, their mean 0.
    """

    price: Price

    def trainer(self, device: torch.device | str = "cpu", all_reduce: AllReduce | None = None) -> StreamTrainer:
        """Networks at their start, the same for every worker."""
        made = StreamTrainer(self.shape, device, all_reduce)
        made.initialise(self.output_bias)
        made.weigh(self.training_weighting.weights, self.mean_weight)
        return made

    @property
    def labels(self) -> Any:
        """All classes."""
        return Labels(self.classes)

    def order(self, target: Any, rng: np.random.Generator) -> Index:
        """A random order in which each class is spread evenly."""
        return spread_order(target.astype(np.int64), rng)

    def by_number(self) -> "ClassStreamPlan":
        """The same for rows whose labels are class numbers."""
        return replace(self, classes=np.arange(len(self.classes)))


def make_class_plan(
    model: CRCENClassifier, statistics: StreamStatistics, classes: NDArray[Any], seed: int
) -> ClassStreamPlan:
    """Settle everything with the counts and moments of the rows; as `crcen.scale.plan.make_plan`."""
    check_no_positive(model, classes)
    labels = Labels(classes)
    counts, train_counts = (
        np.array([totals.weight.get(label, 0.0) for label in classes.tolist()])
        for totals in (statistics.totals, statistics.train_totals)
    )
    n_train, n_rows = statistics.train_totals.n_rows, statistics.totals.n_rows
    if not counts.all():
        raise InvalidInput(f"every class needs weight: every row of {classes[int(np.argmin(counts))]} has weight 0.")
    if not train_counts.all() or (statistics.validation_fraction and n_train == n_rows):
        raise InvalidInput(
            f"rows of every class are needed to train on, and some to hold out: of {n_rows} rows {n_rows - n_train} "
            f"were held out; change validation_fraction or turn early_stopping off."
        )
    price = labels.resolve(model.weighting, counts)
    trained: Price = trained_at(model.training_weighting, price, labels)
    mass, scale = trained.weights * train_counts, float(train_counts.sum()) / n_train
    recipe = stream_recipe(model, n_train)
    encoding = statistics.encoding(recipe.encoding, recipe.bins, labels.encode, standardize=recipe.standardize)
    logs = np.log(mass)
    return ClassStreamPlan(
        classes=classes,
        pos_label=None,
        weighting=price,
        training_weighting=trained,
        recipe=recipe,
        encoding=encoding,
        shape=StreamShape(
            n_inputs=encoding.size,
            recipe=recipe,
            seeds=tuple(member_seed(seed, member) for member in range(model.n_members)),
            total_rows=int(model.max_epochs or 1) * n_train,
            n_outputs=len(classes),
        ),
        seed=seed,
        validation_fraction=statistics.validation_fraction,
        weight_scale=scale,
        mean_weight=float(mass.sum()) / (n_train * scale),
        output_bias=logs - logs.mean(),
        n_train_rows=n_train,
        n_features=len(statistics.names),
        price=price,
    )
