"""CRCENClassifierCV: grid × folds as stacks, the best setting refitted; and models along a path of weights."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import Tags

from crcen._support.progress import part_of, progress_bar
from crcen.exceptions import InvalidParameter
from crcen.models import fitting
from crcen.models.classifier import CRCENClassifier, has_usual_steps
from crcen.models.ensemble import PROBABILITIES
from crcen.models.fitted import Course, transactional_fit, write_fit, write_out_of_fold
from crcen.models.fitting import FitRows, assemble, base_seed, member_jobs, usable
from crcen.models.options import AT_PRICE, AUTO, OUT_OF_FOLD, Calibration, Search, estimator
from crcen.models.search import run as searching
from crcen.models.search.folds import Fold, checked_folds, row_numbers
from crcen.models.validation import check_classes, check_rows, check_weights, take_rows
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.expense import price_paths
from crcen.theory.goals import goal_of
from crcen.theory.key_equation import key_equation_of_logits, on_rows, without_test
from crcen.theory.price import Labels, Price, is_price_of_two
from crcen.theory.rows import Array, Estimator, Index, LabelArray, Rows, Splitter
from crcen.training.engines import trainer_on
from crcen.training.jobs import TrainingJob
from crcen.training.recipe import Inputs, Recipe

_HIDDEN, _L2, _ENCODINGS = [(64,), (64, 32)], (1e-4, 1e-3, 1e-2, 1e-1), ("standard", "steps")


@estimator
class CRCENClassifierCV(CRCENClassifier):
    """CRCEN networks with cross-validated hidden units, penalty, epochs and, if several are given, weighting.

    All settings and folds are trained together. The folds and the refit of a setting have the same number of epochs.

    Parameters
    ----------
    weighting : as in CRCENClassifier, or a list of such, default="balanced"
        A list is searched; a weight chosen by F1 or G-mean is no longer a stated price. A goal is searched and trained
        at λ = ½, and met on out-of-fold rows.
    hidden : int, tuple, or a list of such, default=None
        A list is searched; a tuple is one network. ``None`` is ``[(64,), (64, 32)]``.
    l2 : float or list of float, default=[1e-4, 1e-3, 1e-2, 1e-1]
        A list is searched.
    encoding : str, list of str, or Inputs, default=["standard", "steps"]
        A list is searched, also as ``Inputs(encoding=[...], missing="indicator")``.
    cv : int, splitter or iterable, default=4
        As in scikit-learn; an int is stratified folds, shuffled by ``random_state``.
    search : Search, default=None
        Scoring, number of settings kept, halving, engine and memory; see `crcen.Search`.
    calibration : as in CRCENClassifier, default="out_of_fold"
        Fitted on the out-of-fold logits of the search. Several weightings need ``"paper"``, ``None`` or
        ``Calibration(training_weighting="price")``.
    n_members, max_epochs, schedule, pos_label, device, random_state, verbose
        As in `CRCENClassifier`; ``max_epochs`` is the length of the schedule, and there is no early stopping.

    Attributes
    ----------
    cv_results_ : dict of arrays
        As in `sklearn.model_selection.GridSearchCV`, with ``epochs`` and ``is_dropped`` (by halving).
    best_index_, best_params_, best_score_, best_epochs_
        The best setting.
    best_settings_ : list of dict
        The settings that are kept, best first: their parameters, ``epochs`` and ``score``.
    oof_decision_function_, oof_proba_ : ndarray
        Out-of-fold `decision_function` and `predict_proba` of the kept settings; NaN for rows in no test fold.
    oof_key_equation_ : KeyEquation
        The key equation on out-of-fold rows before any solve on them. Errors of folds cancel, so it has no p-value.
    oof_shift_ : float
        Log-odds added by the solve on out-of-fold rows, as far as folds over time agree; 0 without it.
    oof_counts_ : list of ConfusionCounts, or of arrays of shape (K, actions) for more than two classes
        Out-of-fold decisions for every weighting at its best setting, one network per fold, before the balance solve;
        `crcen.expense_table` gives the expense along them.
    search_notes_ : list of str
        Parameters of the chosen setting that are at a border of the grid.
    n_splits_, scorer_, search_time_
        Folds, scoring, seconds of search and refit.
    """

    hidden: object = None
    l2: float | Sequence[float] = _L2  # type: ignore[assignment]  # several are searched
    encoding: str | Sequence[str] | Inputs = _ENCODINGS
    cv: Splitter = 4
    search: Search | None = None

    def fit(
        self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> "CRCENClassifierCV":
        """Search, choose and refit, as `CRCENClassifier.fit`; ``groups`` are also given to a splitter ``cv``."""
        with transactional_fit(self):
            start = time.perf_counter()
            settings, search = self._settings(), Search.of(self.search)
            scoring = self._scoring(settings)
            X, y = check_rows(self, X, y, reset=True)
            classes, weights = check_classes(y), check_weights(sample_weight, X)
            fitting.check_loss(settings[0].recipe, len(classes))
            with_costs = next((one.weighting for one in settings if isinstance(one.weighting, CostMatrix)), None)
            labels = Labels.from_rows(classes, y, weights, self.pos_label, with_costs or goal_of(self.weighting))
            seed = fitting.base_seed(self.random_state)
            folds = checked_folds(self.cv, X, y, weights, labels, groups, seed)
            rows = FitRows(X, y, weights, labels, folds)
            settings = [replace(setting, recipe=setting.recipe.settled(len(X))) for setting in settings]
            bound = None if search.memory_bytes is None else search.memory_bytes // 2
            with progress_bar(type(self).__name__, visible=bool(self.verbose)) as progress:
                how = {"sample_weight": weights, "device": self.device, "memory_bytes": bound}
                train = trainer_on(search.engine, X, rows.engine_target, len(classes), **how)
                run = searching.SearchRun(rows, scoring, seed, train, search.memory_bytes)
                first = part_of(progress, 0.0, 0.5)
                if search.halving:
                    outcomes = run.screened(settings, progress=first)
                else:
                    outcomes = run.outcomes(settings, halving=False, progress=first)
                # Borders of the grid that may be crossed are those of parameters that were not given.
                l2 = search.widen is True or (search.widen == "auto" and isinstance(self.l2, tuple) and self.l2 == _L2)
                may_cross = {"l2": l2, "epochs": bool(search.widen) and self.max_epochs is None}
                outcomes = searching.widened(run, outcomes, **may_cross, progress=part_of(progress, 0.5, 0.7))
                few = searching.best_few(outcomes, search.n_settings)
                kept = searching.refit_settings(run, few, self.n_members, part_of(progress, 0.7, 1.0))
            self._keep(kept, rows)
            fitting.move_to_goal(self, rows)
            self.best_settings_ = [
                one.outcome.setting.params() | {"epochs": one.outcome.epochs, "score": one.outcome.merit}
                for one in kept
            ]
            chosen, self.scorer_ = kept[0].outcome, scoring
            self.best_index_, self.best_params_ = outcomes.index(chosen), chosen.setting.params()
            self.best_epochs_, self.best_score_ = chosen.epochs, float(chosen.scores.mean())
            self.cv_results_, self.search_notes_ = (
                searching.score_table(outcomes),
                searching.border_notes(chosen, outcomes),
            )
            self.n_splits_, self.oof_counts_ = len(folds), searching.operating_points(outcomes, rows)
            self.search_time_ = time.perf_counter() - start
        return self

    def __sklearn_tags__(self) -> Tags:
        """Any number of classes, unless one of the weightings is a price of two."""
        tags = super().__sklearn_tags__()
        if isinstance(self.weighting, list) and any(map(is_price_of_two, self.weighting)):
            tags.classifier_tags.multi_class = False
        return tags

    def grid(self, n_rows: int) -> list[searching.Setting]:
        """The settings of the search, settled for this number of rows."""
        return [replace(setting, recipe=setting.recipe.settled(n_rows)) for setting in self._settings()]

    def recipe(self) -> Recipe:
        """Training parameters of the first point of the grid, validated; ``recipe_`` is that of the fitted networks."""
        return self._settings()[0].recipe

    # -- the grid -----------------------------------------------------------------------------------------------

    def _settings(self) -> list[searching.Setting]:
        """The validated grid: one recipe with some of its parameters replaced."""
        weightings = self.weighting if isinstance(self.weighting, list) else [fitting.before_goal(self.weighting)]
        if any(goal_of(one) for one in weightings):
            raise InvalidParameter("a list of weightings must hold prices: give a goal by itself.")
        hidden = _HIDDEN if self.hidden is None else self.hidden
        hidden = hidden if isinstance(hidden, list) else [hidden]
        l2 = list(np.atleast_1d(np.array(self.l2, dtype=object)))
        inputs = self._inputs()
        given = _ENCODINGS if inputs.encoding == "auto" and isinstance(self.encoding, Inputs) else inputs.encoding
        encodings = list(given) if isinstance(given, tuple) else [given]
        for name, values in (("weighting", weightings), ("hidden", hidden), ("l2", l2), ("encoding", encodings)):
            if not len(values):
                raise InvalidParameter(f"{name} of {type(self).__name__} must not be an empty list.")
        calibration = self._calibration()
        if not calibration.is_at_price and len(weightings) > 1:
            allowed = f"'paper', None or Calibration(training_weighting='price'), got {self.calibration!r}"
            raise InvalidParameter(
                f"several weightings are searched by training at each: calibration must be {allowed}."
            )
        Search.of(self.search)
        recipe = self._recipe(hidden[0], l2[0], encodings[0], calibration.balance is True)
        if recipe.early_stopping:
            raise InvalidParameter("a search chooses the number of epochs by its folds: early_stopping must be False.")
        settings = []
        for (index, weighting), *point in product(enumerate(weightings), hidden, l2, encodings):
            trained_at = weighting if calibration.is_at_price else calibration.training_weighting
            own = replace(recipe, **dict(zip(searching.SEARCHED, point, strict=True)))
            settings.append(searching.Setting(index, weighting, own, trained_at))
        return settings

    def _scoring(self, settings: list[searching.Setting]) -> searching.Scoring:
        scoring = Search.of(self.search).scoring
        several = len({s.weighting_index for s in settings}) > 1
        if scoring is None:
            is_weighted = settings[0].trained_at is settings[0].weighting
            return "neg_weighted_log_loss" if is_weighted and not several else "neg_log_loss"
        if several and scoring == "neg_weighted_log_loss":
            raise InvalidParameter(f"{scoring!r} cannot compare weightings: its minimum depends on the weight.")
        return searching.check_scoring(scoring)

    # -- the kept settings --------------------------------------------------------------------------------------------

    def _keep(self, kept: list[searching.Refitted], rows: FitRows) -> None:
        """Write the networks of the kept settings, and results of their out-of-fold logits at the price."""
        setting, recipe = kept[0].outcome.setting, kept[0].outcome.setting.recipe
        price, trained, name = rows.resolve(setting.weighting), rows.resolve(setting.trained_at), type(self).__name__
        members, *others = (fitting.usable(one.results, name) for one in kept)
        oof: Array = np.mean([one.oof for one in kept], axis=0)
        ensemble, logits = fitting.assemble(trained, members, rows, *others, is_balanced=recipe.balance)
        ensemble, logits = ensemble.at_price(price), logits + searching.to_price(rows, setting)
        seen = fitting.seen_rows(oof)
        held_out = oof[seen], rows.target[seen], rows.weights[seen]
        equation = key_equation_of_logits(held_out[1], held_out[0], price, held_out[2])
        self.oof_key_equation_ = on_rows(without_test(equation), fitting.OUT_OF_FOLD_ROWS)
        balance, probability = self._calibration().settled()
        leaves_out = not seen[rows.weights > 0].all()
        if self._calibration().probability == AUTO and leaves_out:
            probability = PROBABILITIES[0]  # folds over time do not hold all rows out, and a map would learn the drift
        ensemble = ensemble.mapped(fitting.fitted_map(probability, oof, rows, price))
        shifts = np.zeros(rows.labels.n_classes)
        if balance == OUT_OF_FOLD:
            shifts = fitting.held_out_shifts(ensemble.priced(oof)[1], rows, price)
            ensemble = ensemble.moved(shifts)
            key = on_rows(ensemble.key_equation(*held_out), fitting.OUT_OF_FOLD_ROWS)
            if leaves_out:
                key = on_rows(without_test(key), f"{fitting.OUT_OF_FOLD_ROWS}, as far as folds agree")
        else:
            if recipe.balance and setting.trained_at is not setting.weighting:
                ensemble = fitting.solved_at_price(ensemble, logits, rows.target, rows.weights)
            key = on_rows(ensemble.key_equation(logits, rows.target, rows.weights), fitting.TRAINING_ROWS)
        self.oof_shift_ = shifts if rows.labels.positive is None else float(rows.labels.margin(shifts))
        write_fit(self, ensemble, recipe, Course.of(sum(others, members)), key)
        write_out_of_fold(self, ensemble, oof)


@dataclass(frozen=True, eq=False)
class WeightPath:
    """Logits of held-out rows for every weighting of a path."""

    paths: list[list[Price]]  # resolved with the class counts of all training rows: one price for every fold
    weightings: list[Price]  # of all paths
    labels: Labels
    y: Index  # class numbers of the held-out rows
    target: LabelArray  # whether they are positive, or their class numbers
    weights: Array  # their sample weights
    logits: Array  # (weightings, n) weighted logit of the positive class, above 0 is an alarm; or (weightings, n, K)
    chosen: Index  # decisions (weightings, n) as class numbers


def path_logits(
    estimator: Estimator,
    X: Rows,
    y: ArrayLike,
    weightings: Any,
    splits: Sequence[Fold],
    sample_weight: ArrayLike | None = None,
) -> WeightPath:
    """Train a copy of an estimator for every weighting, and predict the rows that a split holds out.

    Networks of `CRCENClassifier` are trained together, weightings × folds × members in one stack, from the same
    initial weights and batches. Any other estimator with a ``weighting`` or a ``class_weight`` is fitted in a loop.
    """
    is_stack = has_usual_steps(estimator)
    if is_stack:
        probe = CRCENClassifier(encoding=estimator.encoding)  # records the columns instead of the estimator
        X, y = check_rows(probe, X, y, reset=True)
    y = np.asarray(y)
    weights = check_weights(sample_weight, np.empty((len(y), 1)))
    labels = Labels.from_rows(check_classes(y), y, weights, getattr(estimator, "pos_label", None))
    numbers = labels.encode(y)
    counts = labels.counts(numbers, weights)
    paths = price_paths(weightings, lambda weighting: labels.resolve(weighting, counts))
    path = [price for own in paths for price in own]
    splits = [(row_numbers(rows), row_numbers(held_out)) for rows, held_out in splits]
    parts = [(rows, take_rows(X, held_out)) for rows, held_out in splits]
    rows = FitRows(X, y, weights, labels)
    answers = (_stacked if is_stack else _looped)(_seeded(estimator, labels.positive), rows, path, parts)
    logits = np.full((len(path), len(y), *answers[0][0].shape[1:]), np.nan)
    for i, own in enumerate(answers):
        for (_, held_out), values in zip(splits, own, strict=True):
            logits[i, held_out] = values
    seen = np.isfinite(logits).reshape(*logits.shape[:2], -1).all(axis=(0, 2))
    found = logits[:, seen]
    if labels.positive is None:
        target, chosen = numbers, found.argmax(axis=2)
    else:
        target, chosen = numbers == labels.column, np.where(found > 0.0, labels.column, 1 - labels.column)
    return WeightPath(paths, path, labels, numbers[seen], target[seen], weights[seen], found, chosen)


def _seeded(estimator: Estimator, pos_label: object) -> Estimator:
    """A copy with one seed and one positive class: networks of the path differ in their weight only."""
    copy = clone(estimator)
    params = copy.get_params(deep=False)
    if "pos_label" in params:
        copy.set_params(pos_label=pos_label)
    if "random_state" in params and not isinstance(params["random_state"], int | np.integer):
        copy.set_params(random_state=base_seed(params["random_state"]))
    return copy


def _stacked(
    estimator: CRCENClassifier, rows: FitRows, path: Sequence[Price], parts: Sequence[tuple[Index, Array]]
) -> list[list[Array]]:
    """Logits of (weighting, part): the steps of a fit, with all networks trained in between at once."""
    from crcen.training.engine import train  # torch is for fitting alone

    seed, n_members, labels = base_seed(estimator.random_state), estimator.n_members, rows.labels
    own_rows = [rows.take(own) for own, _ in parts]
    recipes = [estimator.recipe().settled(len(own)) for own, _ in parts]
    jobs: list[TrainingJob] = []
    for weighting in path:
        for (own, _), part, recipe in zip(parts, own_rows, recipes, strict=True):
            for job in member_jobs(recipe, part.resolve(weighting), n_members, seed, part):
                validation = None if job.validation is None else own[job.validation]
                jobs.append(job.replace(rows=own[job.trained(len(own))], validation=validation))
    results = iter(train(rows.X, rows.engine_target, jobs, sample_weight=rows.weights, device=estimator.device))

    def logits(weighting: Price, part: FitRows, recipe: Recipe, asked: Array) -> Array:
        members = usable([next(results) for _ in range(n_members)], type(estimator).__name__)
        ensemble, _ = assemble(part.resolve(weighting), members, part, is_balanced=recipe.balance)
        found = ensemble.mean_logits(asked) + ensemble.shift
        return found if labels.positive is None else labels.margin(found)

    fits = [(part, recipe, asked) for part, recipe, (_, asked) in zip(own_rows, recipes, parts, strict=True)]
    return [[logits(weighting, *fit) for fit in fits] for weighting in path]


def _looped(
    estimator: Estimator, rows: FitRows, path: Sequence[Price], parts: Sequence[tuple[Index, Rows]]
) -> list[list[Array]]:
    """The same for any estimator, fitted for one weighting and part at a time."""
    params, labels = estimator.get_params(deep=False), rows.labels

    def setting(weighting: Price) -> dict[str, object]:
        if "weighting" in params:
            how: dict[str, object] = {"weighting": weighting}
            if "calibration" in params:  # networks are trained at each weight
                how["calibration"] = replace(Calibration.of(params["calibration"]), training_weighting=AT_PRICE)
            return how
        if "class_weight" in params:
            weights = np.exp(weighting.log_weights).tolist()  # the cost ratio and 1 for two classes
            return {"class_weight": dict(zip(labels.classes.tolist(), weights, strict=True))}
        message = f"a path of weights needs a weighting or class_weight, and {type(estimator).__name__} has neither"
        raise InvalidParameter(
            f"{message}; give its out-of-fold predict_proba to ExpenseCurve.from_predictions instead."
        )

    def logits(how: dict[str, object], own: Index, asked: Rows) -> Array:
        weights = rows.weights[own]
        options = {} if (weights == 1.0).all() else {"sample_weight": weights}
        model = clone(estimator).set_params(**how).fit(take_rows(rows.X, own), rows.y[own], **options)
        return _weighted_logits(model, asked, labels.positive)

    return [[logits(setting(weighting), *part) for part in parts] for weighting in path]


def _weighted_logits(model: Estimator, X: Rows, pos: object) -> Array:
    """Logits of the positive class, or of every class, under the weight the model was trained with."""
    labels = Labels(model.classes_, pos)
    if hasattr(model, "weighting"):
        found = np.asarray(model.decision_function(X), dtype=np.float64)
        return found if pos is None else labels.signed(found)
    with np.errstate(divide="ignore"):
        logs = np.log(labels.in_order(np.asarray(model.predict_proba(X), dtype=np.float64)))
    return np.clip(logs if pos is None else logs[:, 1] - logs[:, 0], -700.0, 700.0)
