"""partial_fit: networks that learn from successive batches, as in scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if

from crcen.exceptions import InvalidInput, InvalidParameter, TrainingFailed
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import Course, transactional_fit, write_fit
from crcen.models.fitting import FitRows, base_seed, member_seed
from crcen.models.options import Calibration
from crcen.models.validation import check_classes, check_rows, check_weights
from crcen.theory.checks import check_not_negative
from crcen.theory.price import Alpha, Labels, Price, WeightingLike, as_spec
from crcen.theory.rows import Array, Estimator, Rows
from crcen.training.encoding import InputEncoding, column_layout, fit_encoding, incomplete_columns
from crcen.training.engines import need_torch
from crcen.training.jobs import Status
from crcen.training.network import NetworkGroup
from crcen.training.recipe import ONE_AGAINST_ALL, Recipe

if TYPE_CHECKING:  # torch is for fitting alone
    from crcen.training.stream import StreamTrainer

# `status_` after partial_fit, and the default encoding: the first rows may be few.
UNBALANCED, _FIRST_ENCODING = "incremental_unbalanced", "standard"


def _learns_in_parts(estimator: Estimator) -> bool:
    """Whether `partial_fit` is available: not with L-BFGS, a fitted map or a subclass with another ``fit``."""
    kind = type(estimator)
    owner: type = next(one for one in kind.__mro__ if IncrementalFit in one.__bases__)
    has_map = Calibration.of(estimator.calibration).probability not in ("auto", "shift")
    is_plain = not getattr(estimator.schedule, "needs_all_rows", False) and not has_map
    steps = ("fit", "_fit", "training_on", "training_weighting_at")
    return is_plain and all(getattr(kind, step) is getattr(owner, step) for step in steps)


class IncrementalFit:
    """`partial_fit` of an estimator that has the parameters and private methods of `CRCENClassifier`."""

    @available_if(_learns_in_parts)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Rows,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        class_counts: Mapping[Any, float] | None = None,
    ) -> Any:
        """Learn from some more rows: one pass over them, in mini-batches.

        There are no folds and no map, and the output bias is **not** solved for: ``status_`` is
        ``"incremental_unbalanced"`` and there is no ``key_equation_`` (`crcen.balance_shift` gives the shift for any
        rows, `crcen.fit_stream` solves). The learning rate falls with the square root of the rows seen. After `fit` it
        continues from the fitted networks.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``. The first call fixes the input encoding: give it enough rows.
        classes : array of shape (K,), optional
            All labels; needed at the first call if its rows do not hold every class. The class rarer there is the
            positive one, unless ``pos_label`` or ``class_counts`` says otherwise.
        class_counts : dict of label to count, optional
            Class counts of the whole stream, for ``Alpha`` and ``"balanced"``, kept for later calls; default: counts of
            all rows so far.

        Returns
        -------
        self
        """
        with transactional_fit(self):
            self._partial = _learn(self, getattr(self, "_partial", {}), X, y, classes, sample_weight, class_counts)
        return self


def _learn(
    model: Estimator,
    kept: dict[str, Any],
    X: Rows,
    y: ArrayLike,
    classes: ArrayLike | None,
    sample_weight: ArrayLike | None,
    class_counts: Mapping[Any, float] | None,
) -> dict[str, Any]:
    """One pass over rows. ``kept`` is the state that the last call returned; returns the state for the next call."""
    recipe = model.recipe()
    if recipe.early_stopping:
        raise InvalidParameter("partial_fit has no rows to hold out: set early_stopping=False, or use fit.")
    if recipe.loss == ONE_AGAINST_ALL:
        raise InvalidParameter(
            f"partial_fit learns one softmax: got loss={recipe.loss!r}; use 'cross_entropy', or fit."
        )
    before: Ensemble | None = getattr(model, "ensemble_", None)
    X, y = check_rows(model, X, y, reset=before is None)
    weights = check_weights(sample_weight, X)
    known = check_classes(np.asarray(y if classes is None else classes)) if before is None else before.labels.classes
    if classes is not None and not np.array_equal(np.unique(classes), known):
        raise InvalidInput(f"classes must stay {known.tolist()}: got {np.unique(classes).tolist()}.")
    unknown = ~np.isin(y, known)
    if unknown.any():
        raise InvalidInput(f"y must hold the labels {known.tolist()} only: got {y[unknown].tolist()[0]!r}.")
    going_on = getattr(model, "status_", None) == UNBALANCED
    state = dict(kept)
    if not going_on:
        totals = np.zeros(len(known)) if before is None else np.array(before.weighting.counts)
        seed = base_seed(model.random_state)
        state = {"seed": seed, "totals": totals, "n_rows": float(totals.sum()), "class_counts": None}
    if class_counts is not None:
        state["class_counts"] = _counts(class_counts, known)
    state["totals"] = state["totals"] + [weights[y == label].sum() for label in known]
    state["n_rows"] += len(X)
    counts = state["totals"] if state["class_counts"] is None else state["class_counts"]
    labels = before.labels if before is not None else None
    if labels is None:  # an absent class is the rarer one
        totals = np.maximum(counts, 1e-300)
        labels = Labels.from_totals(known, totals, np.ones(len(known)), model.pos_label, model.weighting)
    price = _price(model.weighting, labels, counts)
    trained = model.training_weighting_at(price, labels)
    rows = FitRows(X, y, weights, labels)
    fitted = None if before is None else _at_training_weight(before, trained)
    encoding = _first_encoding(recipe, rows) if fitted is None else fitted.encoding
    if fitted is not None:  # networks keep their shape
        hidden = tuple(layer.shape[2] for layer in fitted.weights[:-1])
        recipe = recipe.replace(hidden=hidden, activation=fitted.activation)
    elif recipe.encoding == "auto":
        recipe = recipe.replace(encoding=_FIRST_ENCODING)
    recipe = recipe.in_batches().replace(column_scales=False, balance=False)
    recipe = recipe.settled(len(X) if fitted is None else 1)
    trainer = _taught(model, state, recipe, encoding, trained, fitted, rows)
    if not trainer.is_finite:
        raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or look for extreme values.")
    layers, biases = map(tuple, trainer.parameters())
    group = NetworkGroup(encoding, layers, biases, recipe.activation)
    ensemble = Ensemble.of(labels, trained, (group,)).at_price(price)
    curve = np.append(model.loss_curve_ if going_on else [], trainer.take_objective())
    write_fit(model, ensemble, recipe, Course(len(curve), curve, UNBALANCED))
    return state | {"trainer": trainer.state()}


def _counts(class_counts: Mapping[Any, float], classes: NDArray[np.generic]) -> Array:
    if not isinstance(class_counts, Mapping) or set(class_counts) != set(classes.tolist()):
        raise InvalidParameter(f"class_counts must give a count for each of {classes.tolist()}: got {class_counts!r}.")
    counts = check_not_negative([class_counts[label] for label in classes.tolist()], "class_counts")
    if not counts.all():
        raise InvalidParameter(f"class_counts must be above 0: got {class_counts!r}.")
    return counts


def _price(asked: WeightingLike, labels: Labels, counts: Array) -> Price:
    """The resolved weighting; a class without rows counts as one row where the weights do not depend on it."""
    needs_counts = isinstance(asked, str | Alpha)
    if not counts.all() and needs_counts:
        as_spec(asked)  # refuses any other text
        absent = labels.classes[counts == 0].tolist()[0]
        instead = "a dict, an array or a CostMatrix" if labels.positive is None else "CostRatio, Budget or Lam"
        raise InvalidInput(
            f"weighting={asked!r} needs counts of every class, but no row of class {absent!r} came yet: "
            f"pass class_counts={{label: count}}, or state the weighting as {instead}."
        )
    return labels.resolve(asked, np.where(counts > 0, counts, 1.0))


def _at_training_weight(before: Ensemble, trained: Price) -> NetworkGroup:
    """Fitted networks with their shift and map in the output layer, under the training weights."""
    (group,), state, labels = before.members, before.probability_map, before.labels
    if not isinstance(group, NetworkGroup):
        raise InvalidInput(f"partial_fit goes on with networks: this model holds a {type(group).__name__}.")
    slope, intercepts = (float(state[0]), state[1:]) if state.ndim == 1 else (1.0, np.zeros(1))
    moved = slope * before.shift + trained.log_weights - slope * before.weighting.log_weights
    return group.scaled(slope).shifted(intercepts + (moved if labels.positive is None else labels.margin(moved)))


def _first_encoding(recipe: Recipe, rows: FitRows) -> InputEncoding:
    """The input encoding of new networks, fitted on the first rows."""
    if recipe.column_scales is True:
        raise InvalidParameter("column_scales=True needs all rows at once: use fit, or column_scales='auto'.")
    kind = _FIRST_ENCODING if recipe.encoding == "auto" else recipe.encoding
    layout = column_layout(rows.X, kind, recipe.bins)
    indicators = incomplete_columns(rows.X) if recipe.missing == "indicator" else None
    own = rows.X, rows.engine_target, rows.weights
    return fit_encoding(kind, layout, *own, standardize=recipe.standardize, indicators=indicators)


def _taught(
    model: Estimator,
    state: dict[str, Any],
    recipe: Recipe,
    encoding: InputEncoding,
    trained: Price,
    fitted: NetworkGroup | None,
    rows: FitRows,
) -> StreamTrainer:
    """The networks after one pass over the rows, from their start, as fitted, or as the last call left them."""
    need_torch()
    import torch

    from crcen.training.device import find_device, reproducible_arithmetic
    from crcen.training.stream import Batch, StreamShape, StreamTrainer, cut_evenly, encoded_rows, spread_order

    n_members = model.n_members if fitted is None else len(fitted)
    seeds = tuple(member_seed(state["seed"], member) for member in range(n_members))
    n_outputs = 1 if trained.positive is not None else trained.n_classes
    trainer = StreamTrainer(StreamShape(encoding.size, recipe, seeds, 0, n_outputs), find_device(model.device))
    if "trainer" in state:
        trainer.restore(state["trainer"])
    elif fitted is not None:
        trainer.start_from(fitted)
    elif trained.positive is not None:  # biases start at the weighted class shares
        trainer.initialise(math.log(trained.alpha))
    else:
        bias = np.log(trained.weights * trained.counts)
        trainer.initialise(bias - bias.mean())
    class_weights, totals = rows.labels.in_order(trained.weights), rows.labels.in_order(state["totals"])
    trainer.weigh(class_weights, float((class_weights * totals).sum() / totals.sum()))
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([state["seed"], 5, trainer.rows_seen])))
    order, mean = spread_order(rows.engine_target, rng), state["totals"].sum() / state["n_rows"]
    parts = encoded_rows(encoding, rows.X), rows.engine_target, rows.weights / mean
    batches = Batch(*(torch.from_numpy(part[order].astype(np.float32)) for part in parts)).to(trainer.device)
    with reproducible_arithmetic():
        for part in cut_evenly(len(order), recipe.batch_rows):
            trainer.step(batches[part])
    return trainer
