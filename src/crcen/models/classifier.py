"""CRCENClassifier and ModuleClassifier: networks at a stated price behind scikit-learn's interface."""

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if

from crcen._support.progress import part_of, progress_bar
from crcen.exceptions import InvalidInput, InvalidParameter, TrainingFailed
from crcen.models import fitting
from crcen.models.ensemble import PROBABILITIES, Ensemble
from crcen.models.fitted import Course, FittedNetworks, transactional_fit, write_fit
from crcen.models.fitting import FitRows
from crcen.models.options import OUT_OF_FOLD, Calibration, GroupedParameters, estimator
from crcen.models.search.folds import Fold, probability_folds
from crcen.models.search.run import Progress, log_losses
from crcen.models.validation import Seed, check_classes, check_number, check_rows, check_weights
from crcen.theory.checks import check_clusters, check_not_negative
from crcen.theory.goals import ThresholdGoal, goal_of
from crcen.theory.key_equation import on_rows
from crcen.theory.price import Alpha, Labels, Price, WeightingLike, as_spec, is_price_of_two
from crcen.theory.rows import Array, Estimator, Rows
from crcen.training.engines import Engine, need_torch
from crcen.training.jobs import Status, TrainingJob, TrainingResult, TrainingState
from crcen.training.network import InputEncoding, NetworkGroup, column_layout, fit_encoding, incomplete_columns
from crcen.training.recipe import ONE_AGAINST_ALL, Inputs, Recipe, Schedule, n_batches

if TYPE_CHECKING:  # torch is for fitting alone
    from crcen.training.stream import StreamTrainer

Part = TypeVar("Part")
Fitted = TypeVar("Fitted")

# With fewer rows of a class nothing is fitted out of fold unless it was requested.
_FEWEST_FOR_FOLDS = 3
# `status_` after partial_fit, and the default encoding: the first rows may be few.
UNBALANCED, _FIRST_ENCODING = "incremental_unbalanced", "standard"


def has_usual_steps(estimator: Estimator) -> bool:
    """Whether an estimator is trained by the steps of `CRCENClassifier`: not so a search or other networks."""
    steps = ("fit", "training_on", "training_weighting_at")
    is_own = isinstance(estimator, CRCENClassifier)
    return is_own and all(getattr(type(estimator), step) is getattr(CRCENClassifier, step) for step in steps)


def _learns_in_parts(estimator: Estimator) -> bool:
    """Whether `partial_fit` is available: not with L-BFGS, a fitted map or a subclass with another ``fit``."""
    has_map = Calibration.of(estimator.calibration).probability not in ("auto", "shift")
    return has_usual_steps(estimator) and not has_map and not getattr(estimator.schedule, "needs_all_rows", False)


@estimator
class CRCENClassifier(FittedNetworks, ClassifierMixin, GroupedParameters):  # type: ignore[misc]
    """Neural networks for rare events, decided at a stated price.

    The objective is class-wise reweighted cross entropy,
    ``−Σ w [y log q + (1−y) log(1−q)] / Σ w + ½·l2·‖W‖²``, with ``w`` = λ for positive and 1−λ for negative rows, times
    the sample weight; biases are not penalised. By default networks are trained without class weights (λ = ½). The
    price enters the decision: probabilities are fitted on out-of-fold rows, and the output bias is solved for, so that
    the key equation Σ_pos (1−q) / Σ_neg q = (1−λ)/λ holds on these rows. The training of the paper,
    ``calibration="paper"``, is weighted by the price and exact on the training rows; an overfitted network then raises
    too few alarms on new rows.

    Parameters
    ----------
    weighting : "balanced", None, float, Lam, Alpha, CostRatio, Budget, dict, CostMatrix, or a goal, default="balanced"
        What a miss is worth: a float is λ in (0, 1), ``None`` is λ = ½, ``"balanced"`` is α = 1, ``Budget(5)`` pays up
        to five false alarms for one more catch, a dict gives a weight per label. A goal (``RecallAtLeast(0.9)``,
        ``PrecisionAtLeast(0.5)``, ``Capacity(20, per=1000)``) trains at λ = ½; ``weighting_`` is then the price that
        meets it on out-of-fold rows. More than two classes: ``"balanced"``, ``None``, dict, array or `CostMatrix`.
    hidden : tuple of int, default=(64, 32)
        Hidden layer sizes; ``()`` is weighted logistic regression.
    l2 : float, default=0.001
        Penalty on weights. (``alpha = l2 * batch_size`` of scikit-learn's MLP is the same penalty.)
    n_members : int, default=4
        Number of networks; they are trained together, and their logits are averaged.
    max_epochs : int, default=None
        Passes over the rows. ``None``: 30 for Adam (fewer from 17,000 rows, at least 5) and 500 iterations for L-BFGS;
        if folds are trained, Adam stops after the epoch with the lowest log loss on held-out rows.
    schedule : Schedule, default=None
        Solver, batch size, learning rate, tolerance, early stopping, activation and loss; see `crcen.Schedule`.
    encoding : {"auto", "standard", "robust", "quantile", "piecewise", "tree", "steps"} or Inputs, default="auto"
        The input layer, fitted on the training rows: standardised columns (``"standard"``), median and interquartile
        range (``"robust"``), normal scores (``"quantile"``), or standardised columns with ramps between quantiles
        (``"piecewise"``), ramps between the splits of a small tree (``"tree"``) or steps at these splits (``"steps"``).
        ``"auto"``: ``"steps"`` with a hidden layer, otherwise ``"standard"``. `crcen.Inputs` also states bins, missing
        cells, column scales and standardisation.
    calibration : {"out_of_fold", "paper", None} or Calibration, default="out_of_fold"
        ``"out_of_fold"``: trained without class weights, temperature and output bias fitted on out-of-fold logits (four
        stratified folds). ``"paper"``: trained at the price, balanced on the training rows, no probability map.
        ``None``: trained at the price, no solve, no map. See `crcen.Calibration`.
    pos_label : default=None
        The positive class; ``None`` is the rarer one, ``classes_[1]`` on a tie.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where to train; the fitted model is plain NumPy.
    random_state : int, RandomState or None, default=None
        Seed of initial weights, batch order and folds.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        Sorted labels.
    pos_label_ : label
        The positive class of two.
    weighting_ : Price
        The resolved weighting: ``.lam .alpha .cost_ratio .threshold .logit_shift .n_pos .n_neg``.
    key_equation_ : KeyEquation
        The key equation on the rows of the balance solve, named in its ``rows``.
    coefs_, intercepts_, input_encoding_, column_scales_
        Layers (n_members, in, out) and (n_members, out); the fitted input layer; whether columns were scaled.
    shift_, probability_map_
        The shift of the balance solve on the training rows; slope and intercept, or corners, of the map in logits.
    ensemble_, recipe_
        The fitted model as one value, which makes every prediction; training parameters with defaults applied.
    n_iter_, loss_curve_, status_ : int, ndarray, str
        Epochs of the longest member, mean training objective by epoch, and how training ended.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    On the rows of the balance solve the key equation holds by construction; test `crcen.key_equation` on others. With
    folds a fit trains five times ``n_members`` networks (from 17,000 rows at most two per fold). ``partial_fit`` and
    streams have no folds. There is no ``n_jobs``: one fit trains its networks together.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from crcen import Budget, CRCENClassifier
    >>> X, y = make_classification(400, weights=[0.9], random_state=0)
    >>> clf = CRCENClassifier(Budget(5), hidden=(), random_state=0).fit(X, y)
    >>> clf.key_equation_.residual < 1e-12
    True
    """

    losses: ClassVar[tuple[str, ...]] = ("cross_entropy", ONE_AGAINST_ALL)  # of a schedule
    is_control: ClassVar[bool] = False  # whether decisions keep the training weights
    can_cut: ClassVar[bool] = True  # whether folds may choose the number of epochs
    _column_scales: ClassVar[bool | str] = "auto"  # where `Inputs` leaves them open

    weighting: WeightingLike | ThresholdGoal = field(default="balanced", kw_only=False)
    hidden: object = (64, 32)
    l2: float = 1e-3
    n_members: int = 4
    max_epochs: int | None = None
    schedule: Schedule | None = None
    encoding: str | Sequence[str] | Inputs = "auto"
    calibration: str | Calibration | None = "out_of_fold"
    pos_label: object = None
    device: str = "auto"
    random_state: Seed = None
    verbose: int = 0

    def fit(
        self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> "CRCENClassifier":
        """Train on rows X with labels y.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, n_features)
            Finite numbers; NaN where ``encoding`` allows it. A sparse matrix is made dense, up to 1 GiB.
        y : array of shape (n,)
            Two classes or more.
        sample_weight : array of shape (n,), optional
            Row weights; only their ratios matter.
        groups : array of shape (n,), optional
            Rows of the same group, such as those of one patient, stay together in folds and in early stopping.
        """
        with transactional_fit(self):
            need_torch()
            recipe = self.recipe()
            X, y = check_rows(self, X, y, reset=True)
            classes, weights = check_classes(y), check_weights(sample_weight, X)
            fitting.check_loss(recipe, len(classes))
            labels = Labels.from_rows(classes, y, weights, self.pos_label, self.weighting)
            rows = FitRows(X, y, weights, labels, groups=check_clusters(groups, len(y), "groups"))
            price = rows.resolve(fitting.before_goal(self.weighting))
            trained = self.training_weighting_at(price, rows.labels)
            recipe, seed = recipe.settled(len(X)), fitting.base_seed(self.random_state)
            jobs = fitting.member_jobs(recipe, trained, self.n_members, seed, rows)
            balance, probability, folds, fold_jobs, rows_of_key = self._on_folds(recipe, trained, seed, rows)
            if groups is not None and rows_of_key == fitting.TRAINING_ROWS and not (folds or recipe.early_stopping):
                needed = "groups must go with calibration='out_of_fold' or early stopping, which hold rows out"
                raise InvalidParameter(f"{needed}: got calibration={self.calibration!r}.", parameter="groups")
            rows = replace(rows, folds=folds)
            # Folds choose the number of epochs if it was left to the data, and if they are needed for logits only.
            is_cut = self.max_epochs is None and recipe.draws_batches and not recipe.early_stopping
            is_cut = is_cut and bool(folds) and isinstance(balance, str) and self.can_cut and not self.is_control
            with progress_bar(type(self).__name__, visible=bool(self.verbose)) as progress:
                train = self.training_on(rows)
                if is_cut:
                    results = CutSchedule(train, rows, trained, jobs, fold_jobs).results(progress)
                else:
                    results = train(jobs + fold_jobs, progress=progress)
            oof = fitting.held_out_logits(results[self.n_members :], rows, trained if recipe.balance else None)
            members = fitting.usable(results[: self.n_members], type(self).__name__)
            ensemble, logits = fitting.assemble(trained, members, rows, is_balanced=recipe.balance)
            ensemble = ensemble.mapped(fitting.fitted_map(probability, oof, rows, trained))
            goal = goal_of(self.weighting)
            if self.is_control:
                key = on_rows(ensemble.key_equation(logits, rows.target, weights), fitting.TRAINING_ROWS)
                if goal is not None:
                    ensemble = fitting.at_goal(ensemble, goal, ensemble.priced(oof)[0], rows)
                else:
                    ensemble = ensemble.at_price(price)
                write_fit(self, ensemble, recipe, Course.of(members), key)
                return self
            to_price = price.log_weights - trained.log_weights
            ensemble, oof, logits = ensemble.at_price(price), oof + to_price, logits + to_price
            own = logits, rows.target, weights
            if balance == OUT_OF_FOLD:
                seen = fitting.seen_rows(oof)
                own = oof[seen], rows.target[seen], weights[seen]
            if balance == OUT_OF_FOLD or (recipe.balance and trained is not price):
                ensemble = fitting.solved_at_price(ensemble, *own)
            if goal is not None:
                before = ensemble.shift
                ensemble = fitting.at_goal(ensemble, goal, ensemble.priced(oof)[0], rows)
                own = own[0] + (ensemble.shift - before), *own[1:]
            key = on_rows(ensemble.key_equation(*own), rows_of_key)
            write_fit(self, ensemble, recipe, Course.of(members), key)
        return self

    def training_on(self, rows: FitRows) -> Engine:
        """The engine that trains jobs on these rows, list by list; subclasses may have networks of another kind."""
        from crcen.training.engine import Trainer  # torch is for fitting alone

        n_classes, device = rows.labels.n_classes, self.device
        return Trainer(rows.X, rows.engine_target, n_classes=n_classes, sample_weight=rows.weights, device=device)

    def _on_folds(
        self, recipe: Recipe, trained: Price, seed: int, rows: FitRows
    ) -> tuple[bool | str, str, list[Fold], list[TrainingJob], str]:
        """Settled balance and probability map, folds, jobs on them, and the rows of the key equation."""
        calibration = Calibration.of(self.calibration)
        is_open, (balance, probability) = calibration.is_open, calibration.settled(has_folds=not self.is_control)
        if goal_of(self.weighting) is not None:  # met out of fold
            balance, is_open = OUT_OF_FOLD, False
        if balance != OUT_OF_FOLD and probability == PROBABILITIES[0]:
            return balance, probability, [], [], fitting.TRAINING_ROWS
        jobs: list[TrainingJob] = []
        try:
            fewest = _FEWEST_FOR_FOLDS if is_open else 2
            folds = probability_folds(rows.engine_target, rows.weights, seed, fewest, rows.groups)
            for own, _ in folds:
                n_members = fitting.fold_members(self.n_members, len(rows.X))
                jobs += fitting.member_jobs(recipe, trained, n_members, seed, rows, own)
        except InvalidInput as error:
            if not is_open:
                raise
            reason = f"{fitting.TRAINING_ROWS}, not out of fold: {str(error).partition(';')[0]}"
            return *calibration.settled(has_folds=False), [], [], reason
        rows_of_key = fitting.OUT_OF_FOLD_ROWS if balance == OUT_OF_FOLD else fitting.TRAINING_ROWS
        return balance, probability, folds, jobs, rows_of_key

    def recipe(self) -> Recipe:
        """The training recipe of these parameters, which are validated."""
        # Networks whose bias is solved out of fold are balanced on their own rows first.
        return self._recipe(self.hidden, self.l2, self._inputs().encoding, bool(self._calibration().balance))

    def _calibration(self) -> Calibration:
        return Calibration.of(self.calibration)

    def _inputs(self) -> Inputs:
        inputs = Inputs.of(self.encoding)
        return replace(inputs, column_scales=self._column_scales) if inputs.column_scales is None else inputs

    def _recipe(self, hidden: object, l2: float, encoding: object, balance: bool) -> Recipe:
        """The recipe with one value of each parameter that a search takes lists of."""
        self._check_parameters()
        schedule = Schedule.of(self.schedule)
        own = {"hidden": hidden, "l2": l2, "max_epochs": self.max_epochs, "encoding": encoding, "balance": balance}
        if schedule.loss not in self.losses:
            if schedule.loss != Schedule.loss:
                raise InvalidParameter(f"loss must be one of {', '.join(self.losses)}: got {schedule.loss!r}.")
            own["loss"] = self.losses[0]
        return Recipe.combined(schedule, self._inputs(), **own)

    @property
    def takes_missing(self) -> bool:
        """Whether rows may have missing cells."""
        return isinstance(self.encoding, Inputs) and self.encoding.missing == "indicator"

    def __sklearn_tags__(self) -> Tags:
        """Any number of classes, unless the weighting is a price for two classes."""
        tags = super().__sklearn_tags__()
        is_binary = is_price_of_two(self.weighting) or getattr(self.calibration, "probability", None) == "isotonic"
        tags.classifier_tags.multi_class = not is_binary
        tags.input_tags.allow_nan = self.takes_missing
        tags.input_tags.sparse = True  # made dense inside, within a bound
        return tags

    def _check_parameters(self) -> None:
        """Validate parameters that are not part of the recipe."""
        check_number(self, "n_members", low=1, integer=True)
        if not isinstance(self.verbose, bool | np.bool_):
            check_number(self, "verbose", low=0, integer=True)
        if not isinstance(self.device, str):
            raise InvalidParameter(f"device must be 'auto', 'cpu' or 'cuda': got {self.device!r}.")

    def training_weighting_at(self, price: Price, labels: Labels) -> Price:
        """The class weights of the loss of a model that decides at a price; subclasses may use others."""
        calibration = self._calibration()
        return price if calibration.is_at_price else labels.resolve(calibration.training_weighting, price.counts)

    # -- partial_fit ------------------------------------------------------------------------------------------------

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
            Class counts of the stream, for ``Alpha`` and ``"balanced"``, kept for later calls; default: those so far.
        """
        with transactional_fit(self):
            recipe = self.recipe()
            if recipe.early_stopping or recipe.loss == ONE_AGAINST_ALL:
                got = f"early_stopping={recipe.early_stopping}, loss={recipe.loss!r}"
                raise InvalidParameter(f"partial_fit needs early_stopping=False and loss='cross_entropy': got {got}.")
            before: Ensemble | None = getattr(self, "ensemble_", None)
            X, y = check_rows(self, X, y, reset=before is None)
            weights = check_weights(sample_weight, X)
            given = np.asarray(y if classes is None else classes)
            known = check_classes(given) if before is None else before.labels.classes
            if classes is not None and not np.array_equal(np.unique(classes), known):
                raise InvalidInput(f"classes must stay {known.tolist()}: got {np.unique(classes).tolist()}.")
            unknown = ~np.isin(y, known)
            if unknown.any():
                raise InvalidInput(f"y must hold the labels {known.tolist()} only: got {y[unknown].tolist()[0]!r}.")
            going_on = getattr(self, "status_", None) == UNBALANCED
            state = dict(getattr(self, "_partial", {}))
            if not going_on:
                totals = np.zeros(len(known)) if before is None else np.array(before.weighting.counts)
                seed = fitting.base_seed(self.random_state)
                state = {"seed": seed, "totals": totals, "n_rows": float(totals.sum()), "class_counts": None}
            if class_counts is not None:
                state["class_counts"] = _counts(class_counts, known)
            state["totals"] = state["totals"] + [weights[y == label].sum() for label in known]
            state["n_rows"] += len(X)
            counts = state["totals"] if state["class_counts"] is None else state["class_counts"]
            if before is not None:
                labels = before.labels
            else:  # an absent class is the rarer one
                totals = np.maximum(counts, 1e-300)
                labels = Labels.from_totals(known, totals, np.ones(len(known)), self.pos_label, self.weighting)
            price = _price(self.weighting, labels, counts)
            trained = self.training_weighting_at(price, labels)
            rows = FitRows(X, y, weights, labels)
            fitted = None if before is None else _at_training_weight(before, trained)
            encoding = _first_encoding(recipe, rows) if fitted is None else fitted.encoding.covering(rows.X)
            if fitted is not None:  # networks keep their shape
                hidden = tuple(layer.shape[2] for layer in fitted.weights[:-1])
                recipe = recipe.replace(hidden=hidden, activation=fitted.activation)
            elif recipe.encoding == "auto":
                recipe = recipe.replace(encoding=_FIRST_ENCODING)
            recipe = recipe.in_batches().replace(column_scales=False, balance=False)
            recipe = recipe.settled(len(X) if fitted is None else 1)
            trainer = self._taught(state, recipe, encoding, trained, fitted, rows)
            if not trainer.is_finite:
                raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or look for extreme values.")
            layers, biases = map(tuple, trainer.parameters())
            group = NetworkGroup(encoding, layers, biases, recipe.activation)
            ensemble = Ensemble.of(labels, trained, (group,)).at_price(price)
            curve = np.append(self.loss_curve_ if going_on else [], trainer.take_objective())
            write_fit(self, ensemble, recipe, Course(len(curve), curve, UNBALANCED))
            self._partial = state | {"trainer": trainer.state()}
        return self

    def _taught(
        self,
        state: dict[str, Any],
        recipe: Recipe,
        encoding: InputEncoding,
        trained: Price,
        fitted: NetworkGroup | None,
        rows: FitRows,
    ) -> "StreamTrainer":
        """The networks after one pass over the rows, from their start, as fitted, or as the last call left them."""
        need_torch()
        import torch

        from crcen.training.device import find_device, reproducible_arithmetic
        from crcen.training.stream import Batch, StreamShape, StreamTrainer, cut_evenly, encoded_rows, spread_order

        n_members = self.n_members if fitted is None else len(fitted)
        seeds = tuple(fitting.member_seed(state["seed"], member) for member in range(n_members))
        n_outputs = 1 if trained.positive is not None else trained.n_classes
        trainer = StreamTrainer(StreamShape(encoding.size, recipe, seeds, 0, n_outputs), find_device(self.device))
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


def _counts(class_counts: Mapping[Any, float], classes: NDArray[np.generic]) -> Array:
    if not isinstance(class_counts, Mapping) or set(class_counts) != set(classes.tolist()):
        raise InvalidParameter(f"class_counts must give a count for each of {classes.tolist()}: got {class_counts!r}.")
    counts = check_not_negative([class_counts[label] for label in classes.tolist()], "class_counts")
    if not counts.all():
        raise InvalidParameter(f"class_counts must be above 0: got {class_counts!r}.")
    return counts


def _price(asked: WeightingLike | ThresholdGoal, labels: Labels, counts: Array) -> Price:
    """The resolved weighting; a class without rows counts as one row where the weights do not depend on it."""
    if not counts.all() and isinstance(asked, str | Alpha):
        as_spec(asked)  # refuses any other text
        absent = labels.classes[counts == 0].tolist()[0]
        words = f"weighting={asked!r} needs counts of every class, but no row of class {absent!r} came yet"
        raise InvalidInput(f"{words}: pass class_counts={{label: count}}, or another weighting.")
    return labels.resolve(asked, np.where(counts > 0, counts, 1.0))


def _at_training_weight(before: Ensemble, trained: Price) -> NetworkGroup:
    """Fitted networks with their shift and map in the output layer, under the training weights."""
    (group,), state, labels = before.members, before.probability_map, before.labels
    if not isinstance(group, NetworkGroup):
        raise InvalidInput(f"partial_fit continues networks: this model holds a {type(group).__name__}.")
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


_States = list[TrainingState | None]

_RECORD_BYTES = 2**28  # held-out logits are kept for every epoch while they take no more than this
_SHARE_OF_CHOICE = 0.6  # of the time of a fit, about
_FEW_BATCHES = 2  # of an epoch on a fold
# Shares of the schedule after which folds pause, and end if the best epoch is in this first share of the epochs so far.
# Before the half the loss may rise with the rate, by a third and more, and then fall below all earlier values.
_STOPS = ((1 / 3, 0.0), (1 / 2, 1 / 3), (2 / 3, 2 / 3), (5 / 6, 2 / 3))
_STOPS_OF_MANY_ROWS = ((2 / 3, 2 / 3),)  # the end is usually best there, and a pause takes time
_SHORTEST_SCHEDULE = 12  # with pauses


@dataclass(frozen=True, eq=False)
class CutSchedule:
    """Training on all rows and on folds, stopped after the epoch with the lowest loss on held-out rows."""

    train: Engine
    rows: FitRows  # with folds
    trained: Price  # the class weights of the loss
    jobs: list[TrainingJob]  # on all rows
    fold_jobs: list[TrainingJob]  # fold by fold, as many members on each

    def results(self, progress: Progress) -> list[TrainingResult]:
        """Results of the jobs on all rows, then of those on folds."""
        epochs, found, states = self._chosen_epochs(part_of(progress, 0.0, _SHARE_OF_CHOICE))
        on_all, on_folds = self._stopped_after(epochs)
        on_folds = [job.replace(start=state) for job, state in zip(on_folds, states, strict=True)]
        rest = part_of(progress, _SHARE_OF_CHOICE, 1.0)
        if epochs == self.fold_jobs[0].max_epochs and self._are_ready(found):
            return [*self.train(on_all, progress=rest), *found]
        return self.train(on_all + on_folds, progress=rest)

    def _are_ready(self, found: list[TrainingResult]) -> bool:
        """Whether networks of the whole schedule, which are not balanced, can be used as the networks of the folds.

        The average of several networks is balanced as a whole, and the biases of its parts cancel there.
        """
        return len(found) > len(self.rows.folds) and all(one.network is not None for one in found)

    def _chosen_epochs(self, progress: Progress) -> tuple[int | None, list[TrainingResult], _States]:
        """The best number of epochs (``None`` if all networks diverge), the last networks, and earlier states.

        The states are those of the last pause before the best epoch, ``None`` for the start.
        """
        folds, first = self.rows.folds, self.fold_jobs[0]
        members, schedule = len(self.fold_jobs) // len(folds), first.max_epochs
        size = 4 * members * first.n_outputs * schedule * sum(len(held_out) for _, held_out in folds)
        how = {"record_every": -(-size // _RECORD_BYTES), "balance": False}
        validation = [job.replace(validation=folds[i // members][1], **how) for i, job in enumerate(self.fold_jobs)]
        states: _States = [None] * len(validation)
        best, least, before_best, begun = None, np.inf, states, 0
        shares = _STOPS_OF_MANY_ROWS if fitting.has_many_rows(len(self.rows.X)) else _STOPS
        stops = [(round(share * schedule), limit) for share, limit in shares if schedule >= _SHORTEST_SCHEDULE]
        for stop, limit in [*stops, (schedule, 0.0)]:
            own = {"stop_epoch": stop, "leaves_state": stop < schedule}
            part = [job.replace(start=state, **own) for job, state in zip(validation, states, strict=True)]
            found = self.train(part, progress=part_of(progress, begun / schedule, stop / schedule))
            curve = self._curve(found)
            lowest = int(np.argmin(curve)) if len(curve) else 0
            if len(curve) and curve[lowest] < least:
                recorded = next(one.recorded_epochs for one in found if one.status is not Status.DIVERGED)
                best, least, before_best = recorded[lowest], curve[lowest], states
            states, begun = [one.state for one in found], stop
            if stop < schedule and best is not None and best <= limit * stop:
                break
        return best, found, before_best

    def _curve(self, found: list[TrainingResult]) -> Array:
        """The folds' mean natural log loss of held-out rows at each record; empty if all networks diverged."""
        rows, members, curves = self.rows, len(found) // len(self.rows.folds), []
        for i, (_, held_out) in enumerate(rows.folds):
            fold = found[i * members : (i + 1) * members]
            own = [one.val_logits for one in fold if one.status is not Status.DIVERGED]
            if own:
                logits, target = rows.labels.columns(np.mean(own, axis=0, dtype=np.float64)), rows.target[held_out]
                curves.append(log_losses(logits, target, rows.weights[held_out], self.trained, natural=True))
        curve = np.mean(curves, axis=0) if curves else np.empty(0)
        return np.where(np.isfinite(curve), curve, np.inf)

    def _stopped_after(self, epochs: int | None) -> tuple[list[TrainingJob], list[TrainingJob]]:
        """Jobs on all rows and on folds, stopped after the chosen epoch.

        The number of steps grows with the rows, or stays if batches are few. If as many epochs would be more steps,
        because of a small last batch, jobs on all rows get fewer epochs, at the same share of the rate's cycle.
        """
        if epochs is None:
            return self.jobs, self.fold_jobs
        size, n_rows, folds = self.jobs[0].batch_size, len(self.rows.X), self.rows.folds
        rows_of_fold = sum(len(own) for own, _ in folds) / len(folds)
        steps_of_fold = sum(n_batches(len(own), size) for own, _ in folds) / len(folds)
        growth = n_rows / rows_of_fold if steps_of_fold > _FEW_BATCHES else 1.0
        share = min(1.0, growth * steps_of_fold / n_batches(n_rows, size))
        whole, stop = (max(1, round(share * count)) for count in (self.jobs[0].max_epochs, epochs))
        on_all = [job.replace(max_epochs=whole, stop_epoch=min(stop, whole)) for job in self.jobs]
        return on_all, [job.replace(stop_epoch=epochs) for job in self.fold_jobs]


def parallel_fits(model: Estimator, fit: Callable[[Part], Fitted], parts: Sequence[Part]) -> list[Fitted]:
    """``fit(part)`` of every part, in parallel for our estimators on a CPU, without convergence warnings."""
    is_network = isinstance(model, CRCENClassifier) and type(model).training_on is CRCENClassifier.training_on
    with warnings.catch_warnings():  # once: all threads share the filters
        warnings.simplefilter("ignore", ConvergenceWarning)
        if not (is_network or (getattr(model, "refits_in_parallel", False) and find_spec("torch"))):
            return [fit(part) for part in parts]
        from crcen.training.device import find_device, on_threads  # torch, which the refits load

        return on_threads(fit, parts) if find_device(model.device).type == "cpu" else [fit(part) for part in parts]


@estimator
class ModuleClassifier(CRCENClassifier):
    """A PyTorch module as a classifier for rare events: rows of any shape, two classes or more.

    Everything but the network is that of `CRCENClassifier`: price, weighted loss, averaged members, early stopping,
    balance solve, natural probabilities and decisions. Training uses autograd.

    Parameters
    ----------
    module : nn.Module or factory
        A function or class without arguments creates each member from its own seed; an instance is copied, and members
        then differ by batches and dropout. It returns logits (rows,), (rows, 1) or (rows, 2) for two classes, the last
        column for the positive one, and (rows, K) for K.
    optimizer : class of ``torch.optim`` or callable, optional
        A class gets the parameters and the learning rate of the schedule, anything else the parameters alone, such as
        ``lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)``. Its rates are the peaks of one cycle. Default: Adam.
    l2 : float, default=0
        Penalty on parameters with two or more dimensions.
    n_members : int, default=1
        Modules trained and averaged as logits.
    calibration : {"paper", "out_of_fold", None} or Calibration, default="paper"
        As in `CRCENClassifier`; folds are four more trainings of each member.
    weighting, max_epochs, schedule, pos_label, device, random_state, verbose
        As in `CRCENClassifier`.

    Attributes
    ----------
    ensemble_, classes_, weighting_, key_equation_, n_iter_, loss_curve_, status_
        As in `CRCENClassifier`.
    row_shape_ : tuple of int
        Shape of one row.

    Notes
    -----
    X may be an array or a tensor of any shape (rows, …). Real numbers reach the module unscaled in single precision,
    integers as int64. `crcen.save` stores arrays only; ``crcen.load(path, module=...)`` needs the module or factory.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from torch import nn
    >>> from crcen import Budget, ModuleClassifier
    >>> X, y = make_classification(400, weights=[0.9], random_state=0)
    >>> net = lambda: nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> clf = ModuleClassifier(net, Budget(5), max_epochs=3, random_state=0).fit(X, y)
    >>> clf.key_equation_.residual < 1e-12
    True
    """

    takes_any_shape = True  # of rows
    can_cut = False  # the schedule of a given optimizer cannot be cut

    def __init__(
        self,
        module: object = None,
        weighting: WeightingLike | ThresholdGoal = "balanced",
        *,
        optimizer: object = None,
        l2: float = 0.0,
        n_members: int = 1,
        max_epochs: int | None = None,
        schedule: Schedule | None = None,
        calibration: str | Calibration | None = "paper",
        pos_label: object = None,
        device: str = "auto",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.module, self.weighting, self.optimizer, self.l2 = module, weighting, optimizer, l2
        self.n_members, self.max_epochs, self.schedule = n_members, max_epochs, schedule
        self.calibration, self.pos_label, self.device = calibration, pos_label, device
        self.random_state, self.verbose = random_state, verbose

    def recipe(self) -> Recipe:
        """The training recipe of these parameters, which are validated."""
        if self.module is None:
            raise InvalidParameter("module must be an nn.Module or a factory: got None.")
        self._check_parameters()
        schedule = Schedule.of(self.schedule)
        if schedule.needs_all_rows:
            raise InvalidParameter("modules are trained in batches: leave solver out, and give optimizer.")
        own = {"hidden": (), "l2": self.l2, "max_epochs": self.max_epochs, "encoding": "standard"}
        balance = bool(self._calibration().balance)
        return Recipe.combined(schedule.in_batches(), Inputs(standardize=False), balance=balance, **own)

    def training_on(self, rows: FitRows) -> Engine:
        """Training of jobs by autograd."""
        from crcen.training.modules import train_modules  # torch is for fitting alone

        own = rows.X, rows.engine_target, self.module, self.optimizer
        return partial(train_modules, *own, sample_weight=rows.weights, device=self.device)

    def without_code(self) -> "ModuleClassifier":
        """The same with arrays instead of modules, for files."""
        bare = copy.copy(self)
        bare.module = bare.optimizer = None
        own: Any = self.ensemble_.members
        bare.ensemble_ = replace(self.ensemble_, members=tuple(replace(one, module=None) for one in own))
        return bare

    def around(self, module: object) -> "ModuleClassifier":
        """A loaded classifier with the module that its arrays belong to."""
        self.module = module
        own: Any = self.ensemble_.members
        self.ensemble_ = replace(self.ensemble_, members=tuple(one.filled(module) for one in own))
        return self

    def __sklearn_tags__(self) -> Tags:
        """Rows of any shape; sparse ones are made dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
