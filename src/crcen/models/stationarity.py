"""The stationarity of a fitted classifier's objective in each of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from crcen.exceptions import InvalidInput
from crcen.models.classifier import CRCENClassifier
from crcen.models.validation import check_rows, check_weights
from crcen.theory.rows import Rows, Shown
from crcen.training.network import NetworkGroup


@dataclass(frozen=True, eq=False)
class Stationarity(Shown):
    """Gradient of the training objective at a fitted model; zero everywhere at a stationary point."""

    # one array per layer, in the shapes of ``coefs_`` and ``intercepts_``
    weights: list[NDArray[np.float64]]
    biases: list[NDArray[np.float64]]

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
        return (
            f"stationarity: output bias {self.output_bias:.2e}, any bias {self.largest_bias:.2e}, "
            f"any weight {self.largest_weight:.2e} (gradient of the mean weighted loss plus penalty)"
        )


def stationarity(model: CRCENClassifier, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Stationarity:
    """The paper's necessary condition, for every component of the parameters.

    A component θ contributes Σ w (∂ℓ/∂o)(∂o/∂θ) / Σ w, plus the penalty's gradient on weights; with cross entropy
    ∂ℓ/∂o = q − y, which for the output bias is the key equation. Each member of an averaged model has its own.

    Parameters
    ----------
    model : CRCENClassifier or CSMLPClassifier
        Fitted.
    X, y, sample_weight
        The training rows of the model.

    Returns
    -------
    Stationarity
        The gradient, layer by layer.
    """
    check_is_fitted(model)
    rows = check_rows(model, X, reset=False)
    labels = np.asarray(y)
    if labels.shape != (len(rows),) or not np.isin(labels, model.classes_).all():
        listed = ", ".join(repr(c) for c in model.classes_.tolist())
        raise InvalidInput(f"y must hold one label of {listed} for each of the {len(rows)} rows.")
    ensemble, recipe = model.ensemble_, model.recipe_
    if not isinstance(ensemble.members[0], NetworkGroup):
        raise InvalidInput("stationarity takes networks of CRCENClassifier: use crcen.torch.stationarity for a module.")
    if len(ensemble.members) > 1:
        raise InvalidInput(
            f"stationarity is defined for one setting, and this model averages {len(ensemble.members)}: fit with "
            f"n_settings=1."
        )
    target, numbers = ensemble.labels.target(labels), ensemble.labels.encode(labels)
    row_weights = ensemble.training_weighting.weights[numbers] * check_weights(sample_weight, rows)
    from crcen.training.stack import gradients_of  # torch is not for prediction

    how = recipe.loss, recipe.l2
    return Stationarity(*gradients_of(model._group(), rows, target, row_weights, *how, scaled=model.column_scales_))
