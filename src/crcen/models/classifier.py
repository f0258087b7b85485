"""CRCENClassifier: stacked networks with class-wise reweighted cross entropy behind scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags

from crcen._support.progress import progress_bar
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models import fitting
from crcen.models.fitted import Course, FittedNetworks, transactional_fit, write_fit
from crcen.models.fitting import FitRows
from crcen.models.incremental import IncrementalFit
from crcen.models.options import OUT_OF_FOLD, Calibration, GroupedParameters, estimator
from crcen.models.probability import PROBABILITIES, probability_folds
from crcen.models.schedule_cut import CutSchedule, is_cut
from crcen.models.search.folds import Fold
from crcen.models.validation import Seed, check_classes, check_number, check_rows, check_weights
from crcen.theory.goals import ThresholdGoal
from crcen.theory.key_equation import on_rows
from crcen.theory.price import Labels, Price, WeightingLike, is_price_of_two
from crcen.theory.rows import Rows
from crcen.training.engines import Engine, need_torch
from crcen.training.jobs import TrainingJob
from crcen.training.recipe import ONE_AGAINST_ALL, Inputs, Recipe, Schedule

# With fewer rows of a class nothing is fitted out of fold unless it was requested.
_FEWEST_FOR_FOLDS = 3


@estimator
class CRCENClassifier(IncrementalFit, FittedNetworks, ClassifierMixin, GroupedParameters):  # type: ignore[misc]
    """Neural networks for rare events, decided at a stated price.

    The objective is class-wise reweighted cross entropy,
    ``−Σ w [y log q + (1−y) log(1−q)] / Σ w + ½·l2·‖W‖²``, with ``w`` = λ for positive and 1−λ for negative rows, times
    the sample weight; biases are not penalised. By default networks are trained without class weights (λ = ½). The
    price enters the decision: probabilities are fitted on out-of-fold rows, and the output bias is solved for, so that
    the key equation Σ_pos (1−q) / Σ_neg q = (1−λ)/λ holds on these rows. The training of the paper,
    ``calibration="paper"``, is weighted by the price and exact on the training rows; an overfitted network then alarms
    too seldom on new rows.

    Parameters
    ----------
    weighting : "balanced", None, float, Lam, Alpha, CostRatio, Budget, dict, CostMatrix, or a goal, default="balanced"
        What a miss is worth: a float is λ in (0, 1), ``None`` is λ = ½, ``"balanced"`` is α = 1, ``Budget(5)`` pays up
        to five false alarms for one more catch, a dict gives a weight per label. A goal (``RecallAtLeast(0.9)``,
        ``PrecisionAtLeast(0.5)``, ``Capacity(20, per=1000)``) trains at λ = ½; ``weighting_`` is then the price that
        meets it on out-of-fold rows. More than two classes take ``"balanced"``, ``None``, a dict, an array of class
        weights or a `CostMatrix`.
    hidden : tuple of int, default=(64, 32)
        Hidden layer sizes; ``()`` is weighted logistic regression.
    l2 : float, default=0.001
        Penalty on weights. (``alpha = l2 * batch_size`` of scikit-learn's MLP is the same penalty.)
    n_members : int, default=4
        Networks trained in one stack and averaged as logits.
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
    The key equation on the rows of its own solve is no evidence; evaluate `crcen.key_equation` on other rows. With
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

    def fit(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> CRCENClassifier:
        """Train on rows X with labels y.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, n_features)
            Finite numbers; NaN where ``encoding`` allows it. A sparse matrix is made dense, up to 1 GiB.
        y : array of shape (n,)
            Two classes or more.
        sample_weight : array of shape (n,), optional
            Row weights; only their ratios matter.

        Returns
        -------
        self
        """
        with transactional_fit(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        need_torch()
        recipe = self.recipe()
        X, y = check_rows(self, X, y, reset=True)
        classes, weights = check_classes(y), check_weights(sample_weight, X)
        fitting.check_loss(recipe, len(classes))
        rows = FitRows(X, y, weights, Labels.from_rows(classes, y, weights, self.pos_label, self.weighting))
        price = rows.resolve(fitting.before_goal(self.weighting))
        trained = self.training_weighting_at(price, rows.labels)
        recipe, seed = recipe.settled(len(X)), fitting.base_seed(self.random_state)
        jobs = fitting.member_jobs(recipe, trained, self.n_members, seed, rows)
        balance, probability, folds, fold_jobs, rows_of_key = self._on_folds(recipe, trained, seed, rows)
        rows = replace(rows, folds=folds)
        with progress_bar(type(self).__name__, visible=bool(self.verbose)) as progress:
            train = self.training_on(rows)
            if is_cut(self, recipe, rows, balance):
                results = CutSchedule(train, rows, trained, jobs, fold_jobs).results(progress)
            else:
                results = train(jobs + fold_jobs, progress=progress)
        oof = fitting.held_out_logits(results[self.n_members :], rows, trained if recipe.balance else None)
        members = fitting.usable(results[: self.n_members], type(self).__name__)
        ensemble, logits = fitting.assemble(trained, members, rows, is_balanced=recipe.balance)
        ensemble = ensemble.mapped(fitting.fitted_map(probability, oof, rows, trained))
        if self.is_control:
            key = on_rows(ensemble.key_equation(logits, rows.target, weights), fitting.TRAINING_ROWS)
            if isinstance(self.weighting, ThresholdGoal):
                ensemble = fitting.at_goal(ensemble, self.weighting, ensemble.priced(oof)[0], rows)
            else:
                ensemble = ensemble.at_price(price)
            write_fit(self, ensemble, recipe, Course.of(members), key)
            return
        to_price = price.log_weights - trained.log_weights
        ensemble, oof, logits = ensemble.at_price(price), oof + to_price, logits + to_price
        own = logits, rows.target, weights
        if balance == OUT_OF_FOLD:
            seen = fitting.seen_rows(oof)
            own = oof[seen], rows.target[seen], weights[seen]
        if balance == OUT_OF_FOLD or (recipe.balance and trained is not price):
            ensemble = fitting.solved_at_price(ensemble, *own)
        if isinstance(self.weighting, ThresholdGoal):
            before = ensemble.shift
            ensemble = fitting.at_goal(ensemble, self.weighting, ensemble.priced(oof)[0], rows)
            own = own[0] + (ensemble.shift - before), *own[1:]
        key = on_rows(ensemble.key_equation(*own), rows_of_key)
        write_fit(self, ensemble, recipe, Course.of(members), key)

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
        if isinstance(self.weighting, ThresholdGoal):  # met out of fold
            balance, is_open = OUT_OF_FOLD, False
        if balance != OUT_OF_FOLD and probability == PROBABILITIES[0]:
            return balance, probability, [], [], fitting.TRAINING_ROWS
        jobs: list[TrainingJob] = []
        try:
            folds = probability_folds(rows.engine_target, rows.weights, seed, _FEWEST_FOR_FOLDS if is_open else 2)
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
        Calibration.of(self.calibration)
        if not isinstance(self.verbose, bool | np.bool_):
            check_number(self, "verbose", low=0, integer=True)
        if not isinstance(self.device, str):
            raise InvalidParameter(f"device must be 'auto', 'cpu' or 'cuda': got {self.device!r}.")

    def training_weighting_at(self, price: Price, labels: Labels) -> Price:
        """The class weights of the loss of a model that decides at a price; subclasses may use others."""
        calibration = self._calibration()
        return price if calibration.is_at_price else labels.resolve(calibration.training_weighting, price.counts)
