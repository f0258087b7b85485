"""Rows that a model did not see: folds, and the out-of-fold probabilities of a search."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils.validation import check_is_fitted

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.fitted import FittedEnsemble
from crcen.models.search.classifier_cv import CRCENClassifierCV
from crcen.theory.decision import sigmoid
from crcen.theory.labels import Labels
from crcen.theory.rows import Array, Bools, Estimator, Index, Rows, Splitter, as_numpy


def stratified_splits(cv: Splitter, X: Rows, y: ArrayLike, random_state: int) -> list[tuple[Index, Index]]:
    """Split rows: an int is that many stratified folds, shuffled; anything else is as in scikit-learn."""
    try:
        if isinstance(cv, int | np.integer):
            rarest = int(np.unique(np.asarray(as_numpy(y)), return_counts=True)[1].min())
            if rarest < cv:
                raise ValueError(f"the rarer class has {rarest} rows, fewer than the {cv} folds")
            splitter: Splitter = StratifiedKFold(int(cv), shuffle=True, random_state=random_state)
        else:
            splitter = check_cv(cv, y, classifier=True)
        return list(splitter.split(X, y))
    except ValueError as error:
        raise InvalidInput(f"cross-validation by {cv!r} cannot split these rows: {error}") from error


def has_held_out_rows(model: Estimator) -> bool:
    """Whether it is a search, or another fit that keeps its answers to rows which no part of it saw: a committee."""
    return isinstance(model, CRCENClassifierCV) or (
        isinstance(model, FittedEnsemble) and hasattr(model, "oof_decision_function_")
    )


def check_search(model: Estimator) -> None:
    """Refuse what has no held-out rows of its own."""
    if not has_held_out_rows(model):
        raise InvalidParameter(
            f"from_cv needs a fitted CRCENClassifierCV or CommitteeClassifier, got a {type(model).__name__}: for "
            "another model give its probabilities on rows it did not see to from_predictions"
        )
    check_is_fitted(model)


def out_of_fold_posterior(model: Estimator, y: ArrayLike) -> tuple[Bools, Array, Index]:
    """Labels (True is positive), natural posteriors and numbers of the rows that a fitted search held out.

    y are the labels it was fitted on, in the same order.
    """
    check_search(model)
    labels = np.asarray(as_numpy(y))
    logits = model.oof_decision_function_
    if labels.shape != logits.shape:
        raise InvalidInput(f"y must be the {len(logits)} labels the model was fitted on, got shape {labels.shape}")
    unknown = set(np.unique(labels).tolist()) - set(model.classes_.tolist())
    if unknown:
        raise InvalidInput(f"y must hold the classes {model.classes_.tolist()} of the model, got {sorted(unknown)!r}")
    seen = np.flatnonzero(np.isfinite(logits))
    own = Labels.of_model(model)
    natural = own.signed(logits[seen]) - model.weighting_.logit_shift
    return own.is_positive(labels[seen]), sigmoid(natural), seen
