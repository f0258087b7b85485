"""What the systems share that train one network by a loss of their own: rows in, an epoch by autograd, answers out."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from crcen.exceptions import InvalidInput
from crcen.models.validation import check_rows
from crcen.training.jobs import TrainingJob
from crcen.training.parameters import group, layer_sizes
from crcen.training.recipe import Inputs, Recipe, Schedule

__all__ = ["LossNetwork"]

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

    # -- what a subclass says ------------------------------------------------------------------------------------------

    def _n_outputs(self) -> int:
        """Outputs of the network."""
        return len(self.classes_)

    def _loss(self, counts: Array) -> Any:
        """The loss, a module of (outputs, class numbers)."""
        raise NotImplementedError

    def _after_epoch(self, net: Any, loss: Any, inputs: Any, target: Any) -> None:
        """What is learned between epochs, beside the network."""

    def _scores(self, outputs: Array) -> Array:
        """A number a class, (n, K); the largest is decided."""
        return outputs

    def _logits(self, outputs: Array) -> Array:
        """Logits of the probabilities, (n, K)."""
        return self._scores(outputs)

    # -- scikit-learn's side -------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> "LossNetwork":
        """Train on rows X with labels y of two classes or more."""
        X, y = check_rows(self, X, y, reset=True)
        self.classes_, target = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(f"y must have two classes at least: got {self.classes_.tolist()}.")
        self.counts_ = np.bincount(target).astype(np.float64)
        self.mean_ = X.mean(axis=0)
        spread = X.std(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        self._rng = check_random_state(self.random_state)
        self._train(self._inputs(X), target.astype(np.int64), int(self._rng.randint(2**31 - 1)))
        del self._rng
        return self

    def _inputs(self, X: Array) -> NDArray[np.float32]:
        return np.asarray((X - self.mean_) / self.scale_, dtype=np.float32)

    def _train(self, X: NDArray[np.float32], target: NDArray[np.int64], seed: int) -> None:
        import torch  # for fitting and for these networks' answers alone

        from crcen.training.engine import find_device
        from crcen.training.module_training import AutogradEpochs

        schedule = group("schedule", self.schedule, Schedule, "learning_rate=0.02")
        recipe = Recipe.of(
            replace(schedule, solver="adam"),
            Inputs(standardize=False),
            hidden=(),
            l2=self.l2,
            max_epochs=self.max_epochs,
            encoding="standard",
            balance=False,
        )
        job = TrainingJob.by(recipe.settled(len(X)), lam=0.5, seed=seed, shuffle_seed=seed)
        device = find_device(self.device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            net = _network(X.shape[1], layer_sizes("hidden", self.hidden), self._n_outputs()).to(device)
            loss = self._loss(self.counts_).to(device)
            rows = _LossRows(torch.from_numpy(X).to(device), torch.from_numpy(target).to(device), loss)
            solver = AutogradEpochs(net, rows, job, None)  # type: ignore[arg-type]  # rows with a loss of their own
            self.loss_curve_ = np.empty(job.max_epochs)
            for epoch in range(job.max_epochs):
                self.loss_curve_[epoch] = float(solver.step())
                net.eval()
                with torch.no_grad():
                    self._after_epoch(net, loss, rows.inputs, rows.target)
        self.module_ = net.cpu().eval()

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


class _LossRows:
    """Rows of a network with a loss of its own, as `AutogradEpochs` asks for them."""

    def __init__(self, inputs: Any, target: Any, loss: Any) -> None:
        self.inputs, self.target, self._of = inputs, target, loss

    def loss(self, module: Any, part: Any, _: int) -> Any:
        """What a batch adds to the epoch's loss."""
        return self._of(module(self.inputs[part]), self.target[part]) * (len(part) / len(self.target))


def _network(n_inputs: int, hidden: tuple[int, ...], n_outputs: int) -> Any:
    """A body of relu layers, and a linear head as the last module."""
    from torch import nn

    layers: list[Any] = []
    for size in hidden:
        layers += [nn.Linear(n_inputs, size), nn.ReLU()]
        n_inputs = size
    return nn.Sequential(nn.Sequential(*layers), nn.Linear(n_inputs, n_outputs))
