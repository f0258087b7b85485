"""partial_fit: networks that learn from batch after batch, in scikit-learn's manner."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from crcen.exceptions import InvalidInput, InvalidParameter, TrainingFailed
from crcen.models.atomic import all_or_nothing
from crcen.models.validation import check_hidden, check_labels, check_rows, check_weights, positive_label
from crcen.theory.rows import check_not_negative
from crcen.theory.specs import Alpha, as_spec
from crcen.training.encoding import column_layout, fit_encoding, incomplete_columns
from crcen.training.jobs import Status

if TYPE_CHECKING:  # torch is for fitting alone
    from crcen.training.stream import StreamTrainer

__all__ = ["IncrementalFit", "UNBALANCED"]

# `status_` after partial_fit.
UNBALANCED = "incremental_unbalanced"

Array = NDArray[np.float64]


def _learns_in_parts(estimator: Any) -> bool:
    """Whether there is a `partial_fit`: not with L-BFGS or a fitted map, nor where a subclass fits in its own way."""
    kind = type(estimator)
    owner: Any = next(one for one in kind.__mro__ if IncrementalFit in one.__bases__)
    is_plain = estimator.solver != "lbfgs" and estimator.probability == "shift"
    return is_plain and kind.fit is owner.fit and kind._fit is owner._fit


class IncrementalFit:
    """`partial_fit` of an estimator that has the parameters and private methods of `CRCENClassifier`."""

    @available_if(_learns_in_parts)
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, class_counts: Any = None
    ) -> Any:
        """Learn from some more rows: one pass over them, in mini-batches.

        The output bias is **not** solved for, so the key equation is not claimed: ``status_`` is
        ``"incremental_unbalanced"`` and there is no ``key_equation_``. (`crcen.balance_shift` gives the shift for any
        rows; `crcen.fit_stream` streams and solves.) The learning rate starts at ``learning_rate`` and falls with the
        square root of the rows seen. After `fit` it goes on from the fitted networks.

        Parameters
        ----------
        X : array or data frame of shape (n, n_features)
            As in ``fit``. The input encoding is fixed by the rows of the first call: give it enough of them. Columns
            that lack cells only later have no indicator.
        y : array of shape (n,)
            Labels.
        classes : array of shape (2,), optional
            Both labels; needed at the first call if its rows hold one class only. The class rarer there is the
            positive one from then on (the absent one, if one is absent) unless ``pos_label`` or ``class_counts`` says
            otherwise.
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
            _learn(self, X, y, classes, sample_weight, class_counts)
        return self


def _learn(model: Any, X: Any, y: Any, classes: Any, sample_weight: Any, class_counts: Any) -> None:
    _check_settings(model)
    is_first = not hasattr(model, "coefs_")
    X, y = check_rows(model, X, y, reset=is_first)
    weights = check_weights(sample_weight, X)
    if is_first:
        model.classes_ = check_labels(y if classes is None else np.asarray(classes))
    elif classes is not None and not np.array_equal(np.unique(classes), model.classes_):
        raise InvalidInput(f"classes must stay {model.classes_.tolist()}: got {np.unique(classes).tolist()}.")
    _check_known(y, model.classes_)
    going_on = getattr(model, "status_", None) == UNBALANCED
    state = dict(model._partial) if going_on else _fresh_state(model, is_first)
    if class_counts is not None:
        state["class_counts"] = _counts(class_counts, model.classes_)
    state["totals"] = state["totals"] + [weights[y == label].sum() for label in model.classes_]
    state["n_rows"] += len(X)
    counts = state["totals"] if state["class_counts"] is None else state["class_counts"]
    if is_first:
        # An absent class is the rarer one.
        model.pos_label_ = positive_label(model.pos_label, model.classes_, model.classes_, np.maximum(counts, 1e-300))
    target = np.asarray(y == model.pos_label_, dtype=np.bool_)
    model.weighting_ = _weighting(model, counts)
    trainer = _trainer(model, state, X, target, weights, is_first)
    _run(model, trainer, state, X, target, weights)
    if not trainer.is_finite:
        raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or set standardize=True.")
    model.coefs_, model.intercepts_ = trainer.parameters()
    model.shift_ = 0.0
    objective = trainer.take_objective()
    model.loss_curve_ = np.append(model.loss_curve_ if going_on else [], objective)
    model.n_iter_ = len(model.loss_curve_)
    model.status_ = UNBALANCED
    model._partial = state | {"trainer": trainer.state()}
    no_rows = np.empty(0)
    model._fit_probability(np.empty(0, dtype=np.bool_), no_rows, no_rows)
    vars(model).pop("key_equation_", None)


def _check_settings(model: Any) -> None:
    model._check_parameters()
    if model.early_stopping:
        raise InvalidParameter("partial_fit has no rows to hold out: set early_stopping=False, or use fit.")


def _check_known(y: NDArray[Any], classes: NDArray[Any]) -> None:
    unknown = ~np.isin(y, classes)
    if unknown.any():
        raise InvalidInput(f"y must hold the labels {classes.tolist()} only: got {y[unknown].tolist()[0]!r}.")


def _fresh_state(model: Any, is_first: bool) -> dict[str, Any]:
    """What is remembered between calls; after `fit`, its counts."""
    totals = np.zeros(2)
    if not is_first:
        pair = [model.weighting_.n_neg, model.weighting_.n_pos]
        totals = np.array(pair if model._positive_is_last() else pair[::-1])
    return {"seed": model._base_seed(), "totals": totals, "n_rows": float(totals.sum()), "class_counts": None}


def _counts(class_counts: Any, classes: NDArray[Any]) -> Array:
    if not isinstance(class_counts, Mapping) or set(class_counts) != set(classes.tolist()):
        raise InvalidParameter(f"class_counts must give a count for each of {classes.tolist()}: got {class_counts!r}.")
    counts = check_not_negative([class_counts[label] for label in classes.tolist()], "class_counts")
    if not counts.all():
        raise InvalidParameter(f"class_counts must be above 0: got {class_counts!r}.")
    return counts


def _weighting(model: Any, counts: Array) -> Any:
    """The resolved weighting; a class without rows counts as one row where λ does not depend on it."""
    if not counts.all():
        needs_counts = not isinstance(model.weighting, Mapping) and isinstance(as_spec(model.weighting), Alpha)
        if needs_counts:
            absent = model.classes_[counts == 0].tolist()[0]
            raise InvalidInput(
                f"weighting={model.weighting!r} needs counts of both classes, but no row of class {absent!r} came yet: "
                f"pass class_counts={{label: count}}, or state the weighting as CostRatio, Budget or Lam."
            )
        counts = np.where(counts > 0, counts, 1.0)
    pair = counts if model._positive_is_last() else counts[::-1]
    return model._resolve(np.array([False, True]), pair)


def _trainer(
    model: Any, state: dict[str, Any], X: Array, target: NDArray[np.bool_], weights: Array, is_first: bool
) -> "StreamTrainer":
    """The networks where they stand: at their start, as fitted, or as the last call left them."""
    from crcen.training.engine import find_device
    from crcen.training.stream import StreamShape, StreamTrainer

    model.column_scales_ = False  # what is learned from here on has none
    if is_first:
        if model.column_scales is True:
            raise InvalidParameter("column_scales=True needs all rows at once: use fit, or column_scales='auto'.")
        kind = "standard" if model.encoding == "auto" else model.encoding  # the first rows may be few
        layout = column_layout(X, kind, model.bins)
        standardize = bool(model.standardize)
        indicators = incomplete_columns(X) if model.missing == "indicator" else None
        rows = X, target, weights
        encoding = fit_encoding(kind, layout, *rows, standardize=standardize, indicators=indicators)
        model.input_encoding_ = {name: value for name, value in vars(encoding).items() if value is not None}
    n_members = model.n_members if is_first else len(model.coefs_[0])
    shape = StreamShape(
        n_inputs=model._encoding().size,
        hidden=check_hidden(model, model.hidden) if is_first else tuple(w.shape[2] for w in model.coefs_[:-1]),
        activation=model.activation,
        loss=model._loss,
        l2=float(model.l2),
        seeds=tuple(model._member_seed(state["seed"], member) for member in range(n_members)),
        learning_rate=float(model.learning_rate),
        batch_size=int(model.batch_size),
        total_rows=0,
    )
    trainer = StreamTrainer(shape, find_device(model.device))
    if "trainer" in state:
        trainer.restore(state["trainer"])
    elif is_first:
        trainer.initialise(math.log(model.weighting_.alpha))
    else:
        trainer.start_from(model.coefs_, [*model.intercepts_[:-1], model.intercepts_[-1] + model.shift_])
    return trainer


def _run(
    model: Any,
    trainer: "StreamTrainer",
    state: dict[str, Any],
    X: Array,
    target: NDArray[np.bool_],
    weights: Array,
) -> None:
    """One pass over the rows."""
    import torch

    from crcen.training.stream import Batch, cut_evenly, encoded_rows, spread_order
    from crcen.training.threads import reproducible_arithmetic

    lam, (neg, pos) = model.weighting_.lam, state["totals"] if model._positive_is_last() else state["totals"][::-1]
    scale = (pos + neg) / state["n_rows"]
    trainer.weigh(lam, (lam * pos + (1.0 - lam) * neg) / (pos + neg))
    key = [state["seed"], 5, trainer.rows_seen]
    order = spread_order(target, np.random.Generator(np.random.Philox(np.random.SeedSequence(key))))
    rows = Batch(
        torch.from_numpy(encoded_rows(model._encoding(), X)[order]),
        torch.from_numpy(target[order].astype(np.float32)),
        torch.from_numpy((weights[order] / scale).astype(np.float32)),
    ).to(trainer.device)
    with reproducible_arithmetic():
        for _ in trainer.run(rows[part] for part in cut_evenly(len(X), trainer.shape.batch_size)):
            pass
