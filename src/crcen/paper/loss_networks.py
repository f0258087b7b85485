"""Networks trained by the losses of other papers: SOSR, CoSen, CRL, LMLE, MSFE, focal, LDAM and others.

`LossNetwork` prepares rows, trains and predicts; a subclass defines its loss.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from crcen.exceptions import InvalidParameter
from crcen.models.fitted import transactional_fit
from crcen.models.validation import check_classes, check_rows
from crcen.paper import Array, Index, LabelArray, Seed, losses
from crcen.paper.estimators import check_least
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.price import Labels, Price
from crcen.torch.balance import ClassWeightedLoss
from crcen.training.device import find_device
from crcen.training.jobs import TrainingJob
from crcen.training.modules import ModuleRows, epochs
from crcen.training.recipe import Inputs, Recipe, Schedule, layer_sizes

Inputs32 = NDArray[np.float32]
Loss = Any  # the module that a subclass trains with
_MAX_ROWS_COMPARED = 1000  # CoSen's separability
_MAX_CLUSTERS = 10  # per class, of LMLE
_LEAST_ERROR = 1e-3  # MSFE: the smaller class error relative to the larger one


@dataclass(eq=False, repr=False, kw_only=True)
class LossNetwork(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One network on standardised columns, trained by the loss of a subclass; parameters as in `CRCENClassifier`.

    ``weighting_`` is the price that ``predict`` decides at, if there is one; ``pos_label_`` is the rarer of two
    classes.
    """

    hidden: object = (32,)
    l2: float = 1e-4
    max_epochs: int | None = None
    schedule: Schedule | None = None
    device: str = "auto"
    random_state: Seed = None

    _criterion: ClassVar[Callable[..., nn.Module]]  # of class counts, unless `_loss` is overridden
    _divides_out = False  # whether the class weights of the decision are divided out of the probabilities

    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _loss(self) -> nn.Module:
        """The loss, a module of (outputs, targets)."""
        return self._criterion(self.counts_)

    def _targets(self, inputs: Inputs32, classes: Index) -> Index:
        """What the loss gets for every row; class numbers unless overridden."""
        return classes

    def _after_epoch(self, net: nn.Sequential, loss: Loss, inputs: Tensor, target: Tensor) -> None:
        """Learn something between epochs."""

    def _finish(self, inputs: Inputs32, classes: Index) -> None:
        """Learn something after training."""

    def _scores(self, outputs: Array) -> Array:
        """One number per class, (n, K); the largest is decided."""
        return outputs

    def _logits(self, outputs: Array) -> Array:
        """Logits of the probabilities, (n, K): the exact inverse of the loss if it is known."""
        natural, weights = getattr(self.loss_, "natural_logits", None), self._decides_at()
        if self._divides_out and weights is not None:
            return outputs - np.log(weights)
        return self._scores(outputs) if natural is None else np.asarray(natural(torch.from_numpy(outputs)).numpy())

    def _decides_at(self) -> Array | None:
        """Class weights that the decision by the largest score corresponds to, up to a factor; None if unknown."""
        return None

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on rows X with labels y of two classes or more."""
        with transactional_fit(self):
            rows, labels = check_rows(self, X, y, reset=True)
            self.classes_ = check_classes(labels)
            classes = np.searchsorted(self.classes_, labels).astype(np.int64)
            self.counts_ = np.bincount(classes).astype(np.float64)
            self._scaler = StandardScaler().fit(rows)
            self._rng = check_random_state(self.random_state)
            self._seed = int(self._rng.randint(2**31 - 1))
            inputs = self._inputs(rows)
            self._train(inputs, self._targets(inputs, classes))
            self._finish(inputs, classes)
            del self._rng, self._seed
            weights = self._decides_at()
            if weights is not None:
                rare = int(self.counts_[1] <= self.counts_[0]) if len(self.counts_) == 2 else None
                self.weighting_ = Price(weights, self.counts_, None, rare)
                if rare is not None:
                    self.pos_label_ = self.classes_[rare]
        return self

    def _train(self, X: Inputs32, target: Index) -> None:
        """Adam with a one-cycle learning rate; sets ``module_``."""
        schedule = Schedule.of(self.schedule).in_batches()
        own = {"l2": self.l2, "max_epochs": self.max_epochs, "encoding": "standard"}
        recipe = Recipe.combined(schedule, Inputs(standardize=False), hidden=(), balance=False, **own).settled(len(X))
        job = TrainingJob.by(recipe, (1.0, 1.0), seed=self._seed, shuffle_seed=self._seed)
        device = find_device(self.device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self._seed)
            net = _network(X.shape[1], layer_sizes("hidden", self.hidden), self._n_outputs()).to(device)
            loss = self._loss().to(device)
            inputs, targets = torch.from_numpy(X).to(device), torch.from_numpy(target).to(device)
            rows = _LossRows(inputs, targets, torch.ones(len(X), device=device) / len(X), loss)
            for _ in epochs(net, rows, job, torch.optim.Adam(net.parameters(), lr=job.learning_rate)):
                with torch.no_grad():
                    self._after_epoch(net, loss, inputs, targets)
        self.module_, self.loss_ = net.cpu().eval(), loss.cpu()

    def _inputs(self, X: Array) -> Inputs32:
        return np.asarray(self._scaler.transform(X), dtype=np.float32)

    @torch.no_grad()
    def _outputs(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        inputs = self._inputs(check_rows(self, X, reset=False))
        return np.asarray(self.module_(torch.from_numpy(inputs)).double().numpy())

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores of the classes, (n, K); for two classes the second minus the first."""
        scores = self._scores(self._outputs(X))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> LabelArray:
        """The class with the largest score."""
        return np.asarray(self.classes_[self._scores(self._outputs(X)).argmax(axis=1)])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities; the class docstring says whether they are natural."""
        return np.asarray(softmax(self._logits(self._outputs(X)), axis=1))


@dataclass(frozen=True, eq=False)
class _LossRows(ModuleRows):
    criterion: Loss

    def loss(self, module: nn.Module, part: Tensor, n_outputs: int) -> Tensor:
        mean: Tensor = self.criterion(module(self.inputs[part]), self.target[part])
        return mean * (len(part) / len(self.target))


def _network(n_inputs: int, hidden: tuple[int, ...], n_outputs: int) -> nn.Sequential:
    """Relu layers as the first module, a linear head as the last."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(n_inputs, size), nn.ReLU()]
        n_inputs = size
    return nn.Sequential(nn.Sequential(*layers), nn.Linear(n_inputs, n_outputs))


class LogitAdjustedClassifier(LossNetwork):
    """Logit adjustment (τ = 1: balanced softmax), decided by the largest output: the decision at the costs 1/π_k.

    ``predict_proba`` adds log π and is natural.
    """

    _criterion = losses.LogitAdjustedLoss

    def _decides_at(self) -> Array:
        return 1.0 / self.counts_


class ClassBalancedClassifier(LossNetwork):
    """Class weights by the effective number of rows (Cui et al. 2019).

    The decision is at these weights; ``predict_proba`` divides them out and is natural.
    """

    _divides_out = True

    def _decides_at(self) -> Array:
        return losses.effective_number_weights(self.counts_)

    def _loss(self) -> nn.Module:
        return ClassWeightedLoss(self._decides_at())


class FocalClassifier(LossNetwork):
    """Focal loss at γ = 2 without class weights, decided by the largest output, which is the largest posterior.

    ``predict_proba`` is the exact inverse of the loss and is natural; see `crcen.paper.losses.FocalLoss`.
    """

    def _decides_at(self) -> Array:
        return np.ones(len(self.counts_))

    def _loss(self) -> nn.Module:
        return losses.FocalLoss()


class LDAMClassifier(LossNetwork):
    """Margins by the fourth root of the class counts, decided by the largest output.

    ``predict_proba`` is the exact inverse of the loss and is natural; see `crcen.paper.losses.LDAMLoss`. For two
    classes the decision is at the cost ratio (1 + e^−Δ₀)/(1 + e^−Δ₁), which is near 1.
    """

    _criterion = losses.LDAMLoss

    def _decides_at(self) -> Array | None:
        if len(self.counts_) > 2:
            return None
        return 1.0 + np.exp(-losses.LDAMLoss(self.counts_).margins.double().numpy()[::-1])


class MeanSquaredFalseErrorClassifier(LossNetwork):
    """MSFE: networks trained on Σ_k E_k², with E_k the mean squared error of the rows of class k.

    The gradient Σ 2·E_k·∇E_k is that of squared error with class weights E_k/n_k: the class with the larger error
    counts more. The errors are measured on all training rows after every epoch and give the weights of the next one
    (``class_weights_``); the first epoch has balanced weights. The authors measure them per mini-batch, where a rare
    class has few rows or none. (The plain sum Σ_k E_k, MFE, is `CSMLPClassifier` with balanced weights.) The decision
    is by the weighted output, as the authors do. ``predict_proba`` divides out the weights of the last epoch.

    Wang, Liu, Wu, Cao, Meng, Kennedy, "Training deep neural networks on imbalanced data sets", IJCNN 2016.
    """

    _divides_out = True

    def _loss(self) -> nn.Module:
        loss = _WeightedSquaredError(len(self.counts_))
        self._weight_path = [loss.set_errors(torch.ones(len(self.counts_)), self.counts_)]
        return loss

    def _after_epoch(self, net: nn.Sequential, loss: Loss, inputs: Tensor, target: Tensor) -> None:
        squares = loss.squares(net(inputs), target)
        errors = torch.stack([squares[target == k].mean() for k in range(len(self.counts_))])
        self._weight_path.append(loss.set_errors(errors, self.counts_))

    def _finish(self, inputs: Inputs32, classes: Index) -> None:
        self.class_weights_ = np.array(self._weight_path[:-1])
        del self._weight_path

    def _decides_at(self) -> Array:
        return np.asarray(self.class_weights_[-1])


class _WeightedSquaredError(nn.Module):
    """2·w_y·Σ_k (δ_yk − q_k)², for two classes CSMLP's 4·w_y·(y − q)²."""

    weights: Tensor

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.ones(n_classes))

    def squares(self, logits: Tensor, target: Tensor) -> Tensor:
        return 2.0 * (one_hot(target, logits.shape[1]) - logits.softmax(dim=1)).square().sum(dim=1)

    def set_errors(self, errors: Tensor, counts: Array) -> Array:
        """Weights E_k/n_k with mean 1 over the rows."""
        found = np.nan_to_num(errors.double().cpu().numpy(), nan=1.0)
        found = np.maximum(found, max(found.max() * _LEAST_ERROR, np.finfo(float).tiny))
        weights = np.asarray(counts.sum() * found / (counts * found.sum()))
        self.weights.copy_(torch.from_numpy(weights))
        return weights

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return (self.weights[target] * self.squares(logits, target)).mean()


@dataclass(eq=False, repr=False)
class OneSidedRegressionClassifier(LossNetwork):
    """SOSR: the network estimates the cost of each decision; the cheapest is taken.

    ``weighting`` states the cost of wrong decisions: a `CostMatrix`, for two classes a price of the rarer one, or
    ``"balanced"``, which charges a row the inverse share of its class. Costs are divided by their mean over the rows,
    which changes no decision. The slope of `crcen.paper.losses.OneSidedRegressionLoss` is at most 1 whatever a row
    costs: expect few alarms if positives are rare. ``predict_proba`` is the softmax of the negative costs, which ranks
    rows but is no posterior: calibrate it.
    """

    _why_no_posterior = "outputs costs, each estimated from one side, which are not probabilities"

    weighting: object = "balanced"

    def _costs(self) -> Array:
        counts, weighting = self.counts_, self.weighting
        if isinstance(weighting, CostMatrix):
            if weighting.actions or weighting.n_rows is not None:
                raise InvalidParameter("these networks decide for classes: give a CostMatrix of classes alone.")
            costs = weighting.for_classes(self.classes_.tolist()).costs
        else:
            rare = self.classes_[int(counts[1] <= counts[0])] if len(counts) == 2 else None
            weights = Labels(self.classes_, rare).resolve(weighting, counts).weights
            costs = weights[:, None] * (1.0 - np.eye(len(counts)))
        return np.asarray(costs * (counts.sum() / (counts @ costs.mean(axis=1))))

    def _n_outputs(self) -> int:
        self.costs_ = self._costs()
        return int(self.costs_.shape[1])

    def _loss(self) -> nn.Module:
        return losses.OneSidedRegressionLoss(self.costs_)

    def _scores(self, outputs: Array) -> Array:
        return -outputs

    def _decides_at(self) -> Array | None:
        has_costs = len(self.classes_) > 2 and isinstance(self.weighting, CostMatrix)
        return None if has_costs else np.asarray(self.costs_.sum(axis=1))


class LearnedCostClassifier(LossNetwork):
    """CoSen: costs inside the softmax (``costs_``), learned together with the network and dropped in prediction.

    After every epoch the costs ξ move towards `crcen.paper.losses.target_costs`. The step is reduced to a hundredth
    when the error on the rows grows; the paper measures that error on separate rows. ``predict_proba`` is the softmax
    of the outputs and no posterior: calibrate it. (With ξ fixed at the class shares this is `LogitAdjustedClassifier`.)

    Chosen here: μ = 0 and σ = 1, a step of .1, at most 1,000 rows for separability.
    """

    _why_no_posterior = "learns costs inside its softmax, which no known map removes"

    def _loss(self) -> nn.Module:
        self._rate, self._error = 0.1, np.inf
        return losses.LearnedCostLoss(len(self.counts_))

    def _after_epoch(self, net: nn.Sequential, loss: Loss, inputs: Tensor, target: Tensor) -> None:
        n_classes = len(self.counts_)
        decided = net(inputs).argmax(dim=1)
        found = [torch.bincount(decided[target == k], minlength=n_classes).cpu().double() for k in range(n_classes)]
        confusion = torch.stack(found) / torch.from_numpy(self.counts_)[:, None]
        some = self._rng.permutation(len(target))[:_MAX_ROWS_COMPARED]
        separability = losses.class_separability(net[0](inputs[some]).cpu(), target[some].cpu(), n_classes)
        error = float((decided != target).double().mean())
        if error > self._error:
            self._rate *= 0.01
        self._error = error
        loss.move_costs(losses.target_costs(self.counts_, separability, confusion).to(loss.costs.device), self._rate)
        self.costs_ = loss.costs.double().cpu().numpy()


class ClassRectificationClassifier(LossNetwork):
    """CRL: cross entropy and hard triplets of the rare classes of each batch.

    See `crcen.paper.losses.ClassRectificationLoss`. The outputs are no posterior: calibrate them.
    """

    _criterion = losses.ClassRectificationLoss
    _why_no_posterior = "adds triplets to cross entropy, which no known map removes"


@dataclass(eq=False, repr=False, kw_only=True)
class EmbeddedNeighboursClassifier(LossNetwork):
    """LMLE: an embedding learned from quintuplets over clusters, decided by its neighbours.

    Every class is divided into one to ten clusters of about ``cluster_size`` rows (k-means, repeated on the embedded
    rows after each third of the epochs). Rows of a cluster shall be closer than other rows of the class, and these
    closer than another class (`crcen.paper.losses.QuintupletLoss`). A new row goes to the class with the largest margin
    (distance to the nearest row of another class) − (distance to the k-th nearest row of the class), where the cluster
    with the nearest centre represents a class.

    Designed for images and pretrained networks. Here it starts from random weights, draws quintuplets within ordinary
    batches, and keeps at most ``max_neighbors`` rows per cluster (``n_kept_`` of ``n_rows_``). ``predict_proba`` is the
    softmax of the margins, which ranks rows but is no posterior: calibrate it.
    """

    _why_no_posterior = "decides by distances to neighbours, which are not probabilities"

    n_dimensions: int = 16
    cluster_size: int = 200
    n_neighbors: int = 5
    max_neighbors: int = 100

    def _n_outputs(self) -> int:
        return int(self.n_dimensions)

    def _targets(self, inputs: Inputs32, classes: Index) -> Index:
        """Cluster numbers, which determine the class."""
        check_least(self, n_dimensions=1, cluster_size=1, n_neighbors=1, max_neighbors=1)
        self._epochs_done = 0
        return self._clusters(inputs, classes)

    def _clusters(self, rows: Array | Inputs32, classes: Index) -> Index:
        """The cluster of every row, numbered across classes; sets ``cluster_classes_``."""
        found = np.empty(len(rows), dtype=np.int64)
        class_of: list[int] = []
        for k in range(len(self.classes_)):
            own = np.flatnonzero(classes == k)
            count = int(np.clip(len(own) // self.cluster_size, 1, min(_MAX_CLUSTERS, len(own))))
            with warnings.catch_warnings():  # fewer distinct points than clusters give fewer clusters
                warnings.simplefilter("ignore", ConvergenceWarning)
                parts = KMeans(count, n_init=1, random_state=self._seed).fit_predict(rows[own])
            numbers, parts = np.unique(parts, return_inverse=True)
            found[own] = parts + len(class_of)
            class_of += [k] * len(numbers)
        self.cluster_classes_ = np.array(class_of, dtype=np.int64)
        return found

    def _loss(self) -> nn.Module:
        return _ClusterQuintuplets(self.cluster_classes_)

    def _after_epoch(self, net: nn.Sequential, loss: Loss, inputs: Tensor, target: Tensor) -> None:
        self._epochs_done += 1
        if self._epochs_done % max(1, int(self.max_epochs or 30) // 3) == 0:
            embedded = normalize(net(inputs), dim=1).double().cpu().numpy()
            target.copy_(torch.from_numpy(self._clusters(embedded, loss.class_of[target].cpu().numpy())))
            loss.class_of = torch.from_numpy(self.cluster_classes_).to(target.device)

    @torch.no_grad()
    def _finish(self, inputs: Inputs32, classes: Index) -> None:
        """Keep the cluster centres and some rows per cluster."""
        del self._epochs_done
        embedded = normalize(self.module_(torch.from_numpy(inputs)), dim=1).double().numpy()
        clusters = self._clusters(embedded, classes)
        numbers = range(len(self.cluster_classes_))
        self.centres_ = np.stack([embedded[clusters == c].mean(axis=0) for c in numbers])
        self.cluster_rows_ = [embedded[np.flatnonzero(clusters == c)[: int(self.max_neighbors)]] for c in numbers]
        self.n_kept_, self.n_rows_ = sum(map(len, self.cluster_rows_)), len(embedded)

    def _scores(self, outputs: Array) -> Array:
        q = outputs / np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), 1e-12)
        to_centres = cdist(q, self.centres_, "sqeuclidean")
        n_classes = len(self.classes_)
        nearest, farthest = np.empty((len(q), n_classes)), np.empty((len(q), n_classes))
        for k in range(n_classes):
            own = np.flatnonzero(self.cluster_classes_ == k)
            chosen = own[to_centres[:, own].argmin(axis=1)]
            for cluster in own:
                mine = chosen == cluster
                distances = np.sort(cdist(q[mine], self.cluster_rows_[cluster], "sqeuclidean"), axis=1)
                k_th = min(self.n_neighbors, distances.shape[1]) - 1
                nearest[mine, k], farthest[mine, k] = distances[:, 0], distances[:, k_th]
        return np.stack([np.delete(nearest, k, axis=1).min(axis=1) for k in range(n_classes)], axis=1) - farthest


class _ClusterQuintuplets(losses.QuintupletLoss):
    class_of: Tensor

    def __init__(self, class_of: Index) -> None:
        super().__init__()
        self.register_buffer("class_of", torch.from_numpy(class_of))

    def forward(self, embedding: Tensor, cluster: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(embedding, self.class_of[cluster], cluster)
