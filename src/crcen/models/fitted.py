"""Predictions of fitted estimators, all from their ensemble, and the only functions that write fitted attributes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from crcen.exceptions import InvalidInput
from crcen.models.ensemble import Ensemble
from crcen.models.reasons import Reasons, explain_rows, spelled
from crcen.models.validation import check_rows, check_weights
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.key_equation import KeyEquation
from crcen.theory.price import Price, log_softmax, softmax
from crcen.theory.rows import Array, Estimator, Rows, Shown
from crcen.training.jobs import Status, TrainingResult
from crcen.training.network import NetworkGroup
from crcen.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Course:
    """How training went: epochs of the longest member, the members' mean objective by epoch, and how it ended."""

    n_iter: int
    loss_curve: Array
    status: str

    @classmethod
    def of(cls, results: Sequence[TrainingResult]) -> "Course":
        """The course of finished jobs."""
        n_iter = max(result.n_iter for result in results)
        curves = [np.pad(r.loss_curve, (0, n_iter - r.n_iter), mode="edge") for r in results]
        worst = max(results, key=lambda result: list(Status).index(result.status))
        return cls(n_iter, np.mean(curves, axis=0), worst.status.name.lower())


def write_ensemble(model: Estimator, ensemble: Ensemble, key_equation: KeyEquation | None) -> None:
    """Set the ensemble of an estimator; no other code writes it."""
    model.__dict__.pop("key_equation_", None)
    model.ensemble_ = ensemble
    if key_equation is not None:
        model.key_equation_ = key_equation


def write_fit(
    model: Estimator, ensemble: Ensemble, recipe: Recipe, course: Course, key_equation: KeyEquation | None = None
) -> None:
    """Set the ensemble of an estimator of networks, with its recipe and the course of training."""
    write_ensemble(model, ensemble, key_equation)
    model.recipe_ = recipe
    model.n_iter_, model.loss_curve_, model.status_ = course.n_iter, course.loss_curve, course.status


class FittedEnsemble:
    """Predictions of an estimator with an ensemble, and its fitted attributes."""

    ensemble_: Ensemble
    key_equation_: KeyEquation

    def decision_function(self, X: Rows) -> Array:
        """Weighted logit of ``classes_[1]``, float64: positive exactly where `predict` returns ``classes_[1]``.

        For more classes (n, K): weighted logits with mean 0, or minus the expected cost of every action if the
        weighting is a `CostMatrix`; `predict` returns the largest.
        """
        _, weighted = self._logits(X)  # which checks that there is an ensemble
        return self.ensemble_.decision(weighted)

    def predict(self, X: Rows) -> NDArray[np.generic]:
        """Decide at the stated price c: positive where `predict_proba` is above 1/(1 + c), not at a tie.

        This need not be the more probable class. For more classes it is the class with the largest w_k p_k, or the
        cheapest action of a `CostMatrix`.
        """
        _, weighted = self._logits(X)
        return self.ensemble_.decided(weighted)

    def predict_proba(self, X: Rows) -> Array:
        """Natural posterior, (n, K) in the order of ``classes_``, without the weighting."""
        natural, weighted = self._logits(X)
        return self.ensemble_.posterior(natural, weighted)

    def predict_log_proba(self, X: Rows) -> Array:
        """Logarithm of `predict_proba`; finite where that would round to 0."""
        return log_softmax(self._logits(X)[0])

    def weighted_proba(self, X: Rows) -> Array:
        """Probabilities under the weighting, the q of the paper, in the shape of `predict_proba`."""
        return softmax(self._logits(X)[1])

    def reasons(
        self, X: Rows, *, background: Rows = None, classes: ArrayLike | None = None, random_state: int = 0
    ) -> Reasons:
        """Shapley values: what each column adds to the natural log-odds of each row, compared with other rows.

        Parameters
        ----------
        X : array or data frame of shape (n, n_features)
            Rows to explain, such as alarms.
        background : array or data frame of shape (m, n_features)
            Rows to compare with, such as the training rows; a random part is used if there are many.
        classes : label or array of shape (n,), optional
            For more than two classes: the class to explain, compared with the most probable other class. Default: the
            decision, or the most probable class if the decision is an action.
        random_state : int, default=0
            Seed of the sampled orders.
        """
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        others = None if background is None else check_rows(self, background, reset=False)
        names = getattr(self, "feature_names_in_", None)
        names = [f"column {j}" for j in range(rows.shape[1])] if names is None else [str(name) for name in names]
        blocks = [np.array([j]) for j in range(rows.shape[1])]
        cells = np.column_stack([spelled(column) for column in rows.T])
        return explain_rows(self, rows, others, blocks, names, cells, random_state, classes=classes)

    def _logits(self, X: Rows) -> tuple[Array, Array]:
        """Natural and weighted logits, (n, K) each."""
        if not hasattr(self, "ensemble_"):  # scikit-learn's check takes long for a single row
            check_is_fitted(self)
        natural, weighted = self.ensemble_.logits(check_rows(self, X, reset=False))
        if not np.isfinite(weighted).all():
            raise InvalidInput("X holds extreme values: the output overflows; remove them, or standardize columns.")
        return natural, weighted

    @property
    def classes_(self) -> NDArray[np.generic]:
        """Sorted labels."""
        return self.ensemble_.labels.classes

    @property
    def pos_label_(self) -> Any:
        """The positive class of a binary problem."""
        labels = self.ensemble_.labels
        if labels.positive is None:
            raise AttributeError(f"none of {labels.n_classes} classes is the positive one.")
        return labels.positive

    @property
    def weighting_(self) -> Price:
        """The resolved weighting: the price of decisions."""
        return self.ensemble_.weighting

    @property
    def costs_(self) -> CostMatrix | None:
        """The costs of decisions, in the order of the classes, if the weighting is a `CostMatrix`."""
        return self.ensemble_.weighting.costs

    @property
    def shift_(self) -> float | Array:
        """The shift of the averaged log-odds of the positive class, or of the logit of each class."""
        labels, shift = self.ensemble_.labels, self.ensemble_.shift
        return shift if labels.positive is None else float(labels.margin(shift))

    @property
    def probability_map_(self) -> Array:
        """Slope and intercepts, or corners, in logits."""
        return self.ensemble_.probability_map


def write_out_of_fold(model: Estimator, ensemble: Ensemble, logits: Array) -> None:
    """Write decisions and natural probabilities of out-of-fold logits (n, K) at the price; NaN for rows in no fold."""
    seen = np.isfinite(logits).all(axis=1)
    natural, weighted = ensemble.priced(logits[seen])
    decision, p = ensemble.decision(weighted), ensemble.posterior(natural, weighted)
    model.oof_decision_function_ = np.full((len(logits), *decision.shape[1:]), np.nan)
    model.oof_decision_function_[seen] = decision
    model.oof_proba_ = np.full((len(logits), p.shape[1]), np.nan)
    model.oof_proba_[seen] = p


class FittedNetworks(FittedEnsemble):
    """Further attributes of an estimator of networks alone: how they were trained, and their layers."""

    recipe_: Recipe

    @property
    def column_scales_(self) -> bool:
        """Whether the networks were trained with column scales."""
        return bool(self.recipe_.column_scales)

    @property
    def coefs_(self) -> list[Array]:
        """Weights of each layer, (n_members, in, out)."""
        return list(self._group().weights)

    @property
    def intercepts_(self) -> list[Array]:
        """Biases of each layer, (n_members, out)."""
        return list(self._group().biases)

    @property
    def input_encoding_(self) -> dict[str, NDArray[np.generic]]:
        """The fitted input layer as plain arrays."""
        return dict(self._group().arrays()["encoding"])

    def _group(self) -> NetworkGroup:
        member, *others = self.ensemble_.members
        if not isinstance(member, NetworkGroup):
            raise AttributeError(f"a {type(member).__name__} has no layers.")
        if others:
            raise AttributeError(f"networks of {1 + len(others)} settings differ in layers: see ensemble_.members.")
        return member


@contextmanager
def transactional_fit(estimator: object) -> Iterator[None]:
    """Restore an estimator if its fit fails or is interrupted: a partly fitted estimator must not look fitted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@dataclass(frozen=True, eq=False)
class Stationarity(Shown):
    """Gradient of the training objective at a fitted model; zero everywhere at a stationary point."""

    # one array per layer, in the shapes of ``coefs_`` and ``intercepts_``
    weights: list[Array]
    biases: list[Array]

    @property
    def output_bias(self) -> float:
        """Largest magnitude at the output bias: the key equation."""
        return float(np.abs(self.biases[-1]).max())

    @property
    def largest_bias(self) -> float:
        """Largest magnitude over all biases, which are never penalised."""
        return max(float(np.abs(bias).max()) for bias in self.biases)

    @property
    def largest_weight(self) -> float:
        """Largest magnitude over all weights, the penalty's gradient included."""
        return max(float(np.abs(weight).max()) for weight in self.weights)

    def __str__(self) -> str:
        found = f"output bias {self.output_bias:.2e}, any bias {self.largest_bias:.2e}"
        found += f", any weight {self.largest_weight:.2e}"
        return f"stationarity: {found} (gradient of the mean weighted loss plus penalty)"


def stationarity(model: FittedNetworks, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Stationarity:
    """The paper's necessary condition, for every component of the parameters.

    A component θ contributes Σ w (∂ℓ/∂o)(∂o/∂θ) / Σ w, plus the penalty's gradient on weights; with cross entropy
    ∂ℓ/∂o = q − y, which for the output bias is the key equation. Each member of an averaged model has its own.

    Parameters
    ----------
    model : CRCENClassifier or CSMLPClassifier
        Fitted.
    X, y, sample_weight
        The training rows of the model.
    """
    check_is_fitted(model)
    rows = check_rows(model, X, reset=False)
    labels = np.asarray(y)
    if labels.shape != (len(rows),) or not np.isin(labels, model.classes_).all():
        listed = ", ".join(repr(c) for c in model.classes_.tolist())
        raise InvalidInput(f"y must hold one label of {listed} for each of the {len(rows)} rows.")
    ensemble, recipe = model.ensemble_, model.recipe_
    if not isinstance(ensemble.members[0], NetworkGroup) or len(ensemble.members) > 1:
        raise InvalidInput("stationarity needs n_settings=1; use crcen.torch.stationarity for a module.")
    target, numbers = ensemble.labels.target(labels), ensemble.labels.encode(labels)
    row_weights = ensemble.training_weighting.weights[numbers] * check_weights(sample_weight, rows)
    from crcen.training.engine import gradients_of  # torch is not for prediction

    how = recipe.loss, recipe.l2
    return Stationarity(*gradients_of(model._group(), rows, target, row_weights, *how, scaled=model.column_scales_))
