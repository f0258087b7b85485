"""Predictions of a fitted estimator, all from its ensemble, and the only writers of fitted attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from crcen.exceptions import InvalidInput
from crcen.models.ensemble import Ensemble
from crcen.models.reasons.reasons import Reasons, explain_rows, spelled
from crcen.models.validation import check_rows
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.decision import log_softmax, softmax
from crcen.theory.key_equation import KeyEquation
from crcen.theory.price import Price
from crcen.theory.rows import Array, Estimator, Rows
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
    def of(cls, results: Sequence[TrainingResult]) -> Course:
        """That of finished jobs."""
        n_iter = max(result.n_iter for result in results)
        curves = [np.pad(r.loss_curve, (0, n_iter - r.n_iter), mode="edge") for r in results]
        worst = max(results, key=lambda result: list(Status).index(result.status))
        return cls(n_iter, np.mean(curves, axis=0), worst.status.name.lower())


def write_ensemble(model: Estimator, ensemble: Ensemble, key_equation: KeyEquation | None) -> None:
    """Give an estimator its ensemble; no other code writes it, whatever the fit was."""
    model.ensemble_ = ensemble
    if key_equation is not None:
        model.key_equation_ = key_equation
    else:
        model.__dict__.pop("key_equation_", None)


def write_fit(
    model: Estimator, ensemble: Ensemble, recipe: Recipe, course: Course, key_equation: KeyEquation | None = None
) -> None:
    """The same for networks, with how they were trained and how that went."""
    write_ensemble(model, ensemble, key_equation)
    model.recipe_ = recipe
    model.n_iter_, model.loss_curve_, model.status_ = course.n_iter, course.loss_curve, course.status


class FittedEnsemble:
    """The answers of an estimator that has its ensemble, and that state by its everyday names."""

    ensemble_: Ensemble
    key_equation_: KeyEquation

    def decision_function(self, X: Rows) -> Array:
        """Weighted logit of ``classes_[1]``, float64: above 0 exactly where `predict` gives ``classes_[1]``.

        With more classes a column for each, (n, K), of which the largest is `predict`: weighted logits with the mean 0,
        or minus the expected cost of every action, where the weighting is a `CostMatrix`.
        """
        _, weighted = self._logits(X)
        return self.ensemble_.decision(weighted)

    def predict(self, X: Rows) -> NDArray[np.generic]:
        """Decide at the stated price c: positive where `predict_proba` is above 1/(1 + c), not at a tie.

        This need not be the larger of both probabilities. With more classes it is the one with the largest w_k p_k, or
        the cheapest action of a `CostMatrix`.
        """
        _, weighted = self._logits(X)
        return self.ensemble_.decided(weighted)

    def predict_proba(self, X: Rows) -> Array:
        """Natural posterior, (n, K) in the order of ``classes_``: the weighting is taken out again."""
        natural, weighted = self._logits(X)
        return self.ensemble_.posterior(natural, weighted)

    def predict_log_proba(self, X: Rows) -> Array:
        """Logarithm of `predict_proba`; finite where that would round to 0."""
        natural, _ = self._logits(X)
        return log_softmax(natural)

    def weighted_proba(self, X: Rows) -> Array:
        """The paper's q: probabilities under the weighting, in the shape of `predict_proba`."""
        _, weighted = self._logits(X)
        return softmax(weighted)

    def reasons(
        self, X: Rows, *, background: Rows = None, classes: ArrayLike | None = None, random_state: int = 0
    ) -> Reasons:
        """What each column adds to the natural log-odds of each row, against other rows: Shapley values.

        Parameters
        ----------
        X : array or data frame of shape (n, n_features)
            Rows to explain, such as alarms.
        background : array or data frame of shape (m, n_features)
            Rows to compare with, such as those of training; of many a random part is used.
        classes : label or array of shape (n,), optional
            Of a model of several classes: which one is explained, against the likeliest other one; by default what is
            decided, and for an action the likeliest class.
        random_state : int, default=0
            Seed; the values are the same for the same rows.

        Returns
        -------
        Reasons
            ``values``, their ``errors``, and the strongest ones in words by ``sentences(3)``.
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
            raise InvalidInput(
                "X holds extreme values: the output of this network overflows; remove them, or standardize columns."
            )
        return natural, weighted

    @property
    def classes_(self) -> NDArray[np.generic]:
        """Sorted labels."""
        return self.ensemble_.labels.classes

    @property
    def pos_label_(self) -> Any:
        """The positive class; of more than two there is none."""
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
        """The costs that are decided by, in the order of the classes, where the weighting is a `CostMatrix`."""
        return self.ensemble_.weighting.costs

    @property
    def shift_(self) -> float | Array:
        """Added to the averaged log-odds of the positive class, or to the logit of each class."""
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
    """What an estimator of networks alone shows beside its answers: how they were trained, and their layers."""

    recipe_: Recipe

    @property
    def column_scales_(self) -> bool:
        """Whether the networks were trained with scales of their columns."""
        return bool(self.recipe_.column_scales)

    @property
    def coefs_(self) -> list[Array]:
        """(n_members, in, out) a layer."""
        return list(self._group().weights)

    @property
    def intercepts_(self) -> list[Array]:
        """(n_members, out) a layer."""
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
            raise AttributeError(
                f"networks of {1 + len(others)} settings have layers of their own: look at ensemble_.members, or fit "
                f"with n_settings=1."
            )
        return member


@contextmanager
def transactional_fit(estimator: object) -> Iterator[None]:
    """Put an estimator back as it was if its fit fails, Ctrl-C included: what is half fitted must not look fitted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
