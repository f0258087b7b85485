"""partial_fit: networks that learn from batch after batch, in scikit-learn's manner."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.atomic import all_or_nothing
from crcen.models.classes.ensemble import ClassEnsemble
from crcen.models.classes.incremental import learn_classes
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import Course, write_fit
from crcen.models.fitting import FitRows, base_seed
from crcen.models.one_pass import carried, continued, kept_networks, networks_of, one_pass, started_trainer
from crcen.models.validation import check_classes, check_rows, check_weights
from crcen.theory.labels import Labels, is_for_classes
from crcen.theory.price import Alpha, Price, as_spec
from crcen.theory.rows import check_not_negative
from crcen.training.network import NetworkGroup
from crcen.training.recipe import ONE_AGAINST_ALL, Recipe

if TYPE_CHECKING:  # torch is for fitting alone
    from crcen.training.stream import StreamTrainer

__all__ = ["IncrementalFit"]

# `status_` after partial_fit.
UNBALANCED = "incremental_unbalanced"

Array = NDArray[np.float64]


def _learns_in_parts(estimator: Any) -> bool:
    """Whether there is a `partial_fit`: not with L-BFGS or a fitted map, nor where a subclass fits in its own way."""
    kind = type(estimator)
    owner: Any = next(one for one in kind.__mro__ if IncrementalFit in one.__bases__)
    is_plain = not getattr(estimator.schedule, "needs_all_rows", False) and estimator.probability in ("auto", "shift")
    return is_plain and all(
        getattr(kind, name) is getattr(owner, name) for name in ("fit", "_fit", "training_weighting_at")
    )


class IncrementalFit:
    """`partial_fit` of an estimator that has the parameters and private methods of `CRCENClassifier`."""

    @available_if(_learns_in_parts)
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, class_counts: Any = None
    ) -> Any:
        """Learn from some more rows: one pass over them, in mini-batches.

        The loss is weighted as ``training_weighting`` says, decisions are at the price. There are no folds and no map,
        and the output bias is **not** solved for, so the key equation is not claimed: ``status_`` is
        ``"incremental_unbalanced"`` and there is no ``key_equation_``. (`crcen.balance_shift` gives the shift for any
        rows; `crcen.fit_stream` streams and solves.) The learning rate starts at that of ``schedule`` and falls with
        the square root of the rows seen. After `fit` it goes on from the fitted networks.

        Parameters
        ----------
        X : array or data frame of shape (n, n_features)
            As in ``fit``. The input encoding is fixed by the rows of the first call: give it enough of them. Columns
            that lack cells only later have no indicator.
        y : array of shape (n,)
            Labels.
        classes : array of shape (K,), optional
            All labels; needed at the first call if its rows do not hold every class. Of two classes the one rarer there
            is the positive one from then on (the absent one, if one is absent) unless ``pos_label`` or ``class_counts``
            says otherwise.
        sample_weight : array of shape (n,), optional
            Row weights.
        class_counts : dict of label to count, optional
            Class counts of the whole stream, for ``Alpha`` and ``"balanced"``; remembered by later calls. Without them
            the counts of all rows so far are used, and λ moves with them.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._partial = _learn(self, getattr(self, "_partial", {}), X, y, classes, sample_weight, class_counts)
        return self


def _learn(
    model: Any, kept: dict[str, Any], X: Any, y: Any, classes: Any, sample_weight: Any, class_counts: Any
) -> dict[str, Any]:
    """One pass over rows. ``kept`` is what the last call gave for the next one to know, as this one does."""
    recipe = model.recipe()
    if recipe.early_stopping:
        raise InvalidParameter("partial_fit has no rows to hold out: set early_stopping=False, or use fit.")
    if recipe.loss == ONE_AGAINST_ALL:
        raise InvalidParameter(
            f"partial_fit learns one softmax: got loss={recipe.loss!r}; use 'cross_entropy', or fit."
        )
    before: Any = getattr(model, "ensemble_", None)
    X, y = check_rows(model, X, y, reset=before is None)
    weights = check_weights(sample_weight, X)
    known = check_classes(y if classes is None else np.asarray(classes)) if before is None else before.labels.classes
    if before is not None and classes is not None and not np.array_equal(np.unique(classes), known):
        raise InvalidInput(f"classes must stay {known.tolist()}: got {np.unique(classes).tolist()}.")
    _check_known(y, known)
    going_on = getattr(model, "status_", None) == UNBALANCED
    state = dict(kept) if going_on else _fresh_state(model, before, len(known))
    if class_counts is not None:
        state["class_counts"] = _counts(class_counts, known)
    state["totals"] = state["totals"] + [weights[y == label].sum() for label in known]
    state["n_rows"] += len(X)
    counts = state["totals"] if state["class_counts"] is None else state["class_counts"]
    learn = learn_classes if is_for_classes(model.weighting, known) else _learn_two_classes
    ensemble, recipe, trainer = learn(model, recipe, X, y, weights, known, state, counts)
    curve = np.append(model.loss_curve_ if going_on else [], trainer.take_objective())
    write_fit(model, ensemble, recipe, Course(len(curve), curve, UNBALANCED))
    return state | {"trainer": trainer.state()}


def _learn_two_classes(
    model: Any,
    recipe: Recipe,
    X: Array,
    y: NDArray[Any],
    weights: Array,
    classes: NDArray[Any],
    state: dict[str, Any],
    counts: Array,
) -> "tuple[Ensemble, Recipe, StreamTrainer]":
    """One pass over checked rows, as `crcen.models.classes.incremental.learn_classes`."""
    before: Ensemble | None = getattr(model, "ensemble_", None)
    if before is None:
        # An absent class is the rarer one.
        totals = np.maximum(counts, 1e-300)
        labels = Labels.from_totals(classes, totals, np.ones(2), model.pos_label)
    else:
        labels = before.labels
    price = _weighting(model.weighting, labels, counts)
    weighting = model.training_weighting_at(price, labels)
    rows = FitRows(X, labels.target(y), weights)
    recipe, encoding = carried(recipe, rows) if before is None else continued(recipe, before)
    fitted = None if before is None else _at_training_weight(before, weighting)
    trainer = started_trainer(model, state, recipe, encoding, math.log(weighting.alpha), fitted)
    pos, neg = labels.pair(state["totals"])
    lam = weighting.lam
    trainer.weigh(np.array([1.0 - lam, lam]), (lam * pos + (1.0 - lam) * neg) / (pos + neg))
    one_pass(trainer, state, encoding, rows)
    ensemble = Ensemble(labels, weighting, weighting, (kept_networks(trainer, encoding, recipe),))
    return ensemble.at_price(price), recipe, trainer


def _check_known(y: NDArray[Any], classes: NDArray[Any]) -> None:
    unknown = ~np.isin(y, classes)
    if unknown.any():
        raise InvalidInput(f"y must hold the labels {classes.tolist()} only: got {y[unknown].tolist()[0]!r}.")


def _fresh_state(model: Any, before: Any, n_classes: int) -> dict[str, Any]:
    """What is remembered between calls; after `fit`, its counts."""
    totals = np.zeros(n_classes)
    if isinstance(before, ClassEnsemble):
        totals = np.array(before.weighting.counts)
    elif before is not None:
        pair = np.array([[before.weighting.n_neg, before.weighting.n_pos]])
        totals = before.labels.in_order(pair)[0]
    seed = base_seed(model.random_state)
    return {"seed": seed, "totals": totals, "n_rows": float(totals.sum()), "class_counts": None}


def _counts(class_counts: Any, classes: NDArray[Any]) -> Array:
    if not isinstance(class_counts, Mapping) or set(class_counts) != set(classes.tolist()):
        raise InvalidParameter(f"class_counts must give a count for each of {classes.tolist()}: got {class_counts!r}.")
    counts = check_not_negative([class_counts[label] for label in classes.tolist()], "class_counts")
    if not counts.all():
        raise InvalidParameter(f"class_counts must be above 0: got {class_counts!r}.")
    return counts


def _weighting(asked: Any, labels: Labels, counts: Array) -> Price:
    """The resolved weighting; a class without rows counts as one row where λ does not depend on it."""
    if not counts.all():
        needs_counts = not isinstance(asked, Mapping) and isinstance(as_spec(asked), Alpha)
        if needs_counts:
            absent = labels.classes[counts == 0].tolist()[0]
            raise InvalidInput(
                f"weighting={asked!r} needs counts of both classes, but no row of class {absent!r} came yet: "
                f"pass class_counts={{label: count}}, or state the weighting as CostRatio, Budget or Lam."
            )
        counts = np.where(counts > 0, counts, 1.0)
    return labels.resolve(asked, counts)


def _at_training_weight(before: Ensemble, weighting: Price) -> NetworkGroup:
    """Fitted networks with their shift and map in the output layer, as they are under the weight of training."""
    group, state = networks_of(before), before.probability_map
    slope, intercept = (float(state[0]), float(state[1])) if state.ndim == 1 else (1.0, 0.0)
    moved = weighting.logit_shift - slope * before.weighting.logit_shift
    return group.scaled(slope).shifted(slope * before.shift + intercept + moved)
