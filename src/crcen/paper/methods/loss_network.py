"""What the systems share that train one network by a loss of their own: rows in, an epoch by autograd, answers out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from crcen.models.atomic import all_or_nothing
from crcen.models.validation import check_classes, check_rows
from crcen.theory.classes.class_weights import ClassWeights
from crcen.theory.specs import CostRatio
from crcen.theory.weighting import resolve
from crcen.training.parameters import layer_sizes
from crcen.training.recipe import Schedule

__all__ = ["LossNetwork", "fit_together"]

Array = NDArray[np.float64]


class LossNetwork(ClassifierMixin, BaseEstimator):
    """One network on standardised columns, trained by a loss that a subclass states.

    Parameters
    ----------
    hidden : tuple of int, default=(32,)
        Hidden layer sizes, of relu units.
    l2 : float, default=1e-4
        Penalty on weights.
    max_epochs : int, default=None
        Passes over the rows; None as in `CRCENClassifier`.
    schedule : Schedule, default=None
        Batch size and learning rate.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where it is trained.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    weighting_ : ClassWeighting, or ClassWeights of more than two classes
        The price that ``predict`` decides at, of those that decide at one; ``pos_label_`` is the rarer of two classes.
    """

    def __init__(
        self,
        *,
        hidden: Any = (32,),
        l2: float = 1e-4,
        max_epochs: int | None = None,
        schedule: Schedule | None = None,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.l2 = l2
        self.max_epochs = max_epochs
        self.schedule = schedule
        self.device = device
        self.random_state = random_state

    # Whether the loss is a mean over rows that asks each for itself alone: then one call serves a stack of networks.
    _loss_is_of_rows = True
    # Whether networks of a stack may share their targets.
    _stacks = True

    # -- what a subclass says ------------------------------------------------------------------------------------------

    def _n_outputs(self) -> int:
        """Outputs of the network."""
        return len(self.classes_)

    def _loss(self, counts: Array) -> Any:
        """The loss, a module of (outputs, class numbers)."""
        raise NotImplementedError

    # Where something is learned between epochs, beside the network: a method of (net, loss, inputs, target).
    _after_epoch: Any = None

    def _scores(self, outputs: Array) -> Array:
        """A number a class, (n, K); the largest is decided."""
        return outputs

    def _logits(self, outputs: Array) -> Array:
        """Logits of the probabilities, (n, K)."""
        return self._scores(outputs)

    def _decides_at(self) -> Array | None:
        """What a row of each class is worth where the largest score decides, up to a factor; None where unknown."""
        return None

    # -- scikit-learn's side -------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> "LossNetwork":
        """Train on rows X with labels y of two classes or more."""
        with all_or_nothing(self):
            self._train(*self._begun(X, y))
            self._end()
        return self

    def _begun(self, X: Any, y: Any) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
        """Checked rows as inputs, class numbers, and a seed; what is known before training is written."""
        X, y = check_rows(self, X, y, reset=True)
        self.classes_ = check_classes(y)
        target = np.searchsorted(self.classes_, y)
        self.counts_ = np.bincount(target).astype(np.float64)
        self.mean_ = X.mean(axis=0)
        spread = X.std(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        self._rng = check_random_state(self.random_state)
        return self._inputs(X), target.astype(np.int64), int(self._rng.randint(2**31 - 1))

    def _end(self) -> None:
        del self._rng
        worth, counts = self._decides_at(), self.counts_
        if worth is None:
            return
        if len(counts) > 2:
            self.weighting_: Any = ClassWeights(worth, counts)
            return
        rare = int(counts[1] <= counts[0])
        self.pos_label_ = self.classes_[rare]
        self.weighting_ = resolve(CostRatio(worth[rare] / worth[1 - rare]), counts[rare], counts[1 - rare])

    def _inputs(self, X: Array) -> NDArray[np.float32]:
        return np.asarray((X - self.mean_) / self.scale_, dtype=np.float32)

    def _train(self, X: NDArray[np.float32], target: NDArray[np.int64], seed: int) -> None:
        from crcen.paper.methods.loss_stack import (
            train_stack,  # torch is for fitting and for these networks' answers alone
        )

        train_stack([self], X, target, [seed])

    def _outputs(self, X: Any) -> Array:
        import torch

        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        with torch.no_grad():
            return np.asarray(self.module_(torch.from_numpy(self._inputs(X))).double().numpy())

    def decision_function(self, X: Any) -> Array:
        """Scores of the classes, (n, K); of two classes that of the second over the first."""
        scores = self._scores(self._outputs(X))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the largest score."""
        return self.classes_[self._scores(self._outputs(X)).argmax(axis=1)]

    def predict_proba(self, X: Any) -> Array:
        """Probabilities, as far as the outputs are logits: see the class."""
        logits = self._logits(self._outputs(X))
        parts = np.exp(logits - logits.max(axis=1, keepdims=True))
        return parts / parts.sum(axis=1, keepdims=True)


def fit_together(models: Sequence[LossNetwork], X: Any, y: Any) -> None:
    """Fit networks of one class on the same rows, those with the same hidden units as one stack.

    They may differ in ``hidden``, ``l2`` and ``random_state``. A stack draws its batches by the seed of its first
    network; with that seed a network ends as it does alone, rounding aside.
    """
    from crcen.paper.methods.loss_stack import train_stack

    if not models[0]._stacks:
        for model in models:
            model.fit(X, y)
        return
    for hidden in dict.fromkeys(layer_sizes("hidden", model.hidden) for model in models):
        stack = [model for model in models if layer_sizes("hidden", model.hidden) == hidden]
        begun = [model._begun(X, y) for model in stack]
        train_stack(stack, begun[0][0], begun[0][1], [seed for _, _, seed in begun])
        for model in stack:
            model._end()
