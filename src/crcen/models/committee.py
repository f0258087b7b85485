"""CommitteeClassifier: networks and trees, combined out of fold and decided at one price."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from threading import Event, Thread
from typing import TYPE_CHECKING

import joblib
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from crcen._support.lazy import LazyModule, import_with_lazy, optimize, threadpoolctl
from crcen._support.progress import part_of, progress_bar
from crcen.exceptions import CrcenError, DeviceMissing, InvalidParameter, MissingExtra, TrainingFailed
from crcen.models.clock import Clock, OutOfTime
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import FittedEnsemble, transactional_fit, write_ensemble, write_out_of_fold
from crcen.models.members.member import EFFORTS, FittedMember, MemberKind, MemberTask, log_loss
from crcen.models.members.tree_arrays import TreeEnsemble
from crcen.models.search.folds import Fold, checked_folds
from crcen.models.validation import Seed, check_choice, check_classes, check_number, check_rows, check_weights
from crcen.theory.goals import ThresholdGoal
from crcen.theory.key_equation import on_rows, without_test
from crcen.theory.metrics import ThresholdCurve, average_precision, roc_area
from crcen.theory.price import Labels, Price, WeightingLike, is_price_of_two, softmax
from crcen.theory.rows import Array, Bools, Estimator, Index, Rows, Shown, Splitter
from crcen.training.engines import need_torch
from crcen.training.network import Member

if TYPE_CHECKING:
    from crcen.models import fitting
    from crcen.models.members import registry
else:  # predicting needs neither
    fitting, registry = LazyModule("crcen.models.fitting"), LazyModule("crcen.models.members.registry")

# Searches of every member with the most effort, each with a seed and folds of its own: without and with a time limit.
_REPEATS, _REPEATS_IN_TIME = 4, 12


@dataclass(eq=False, repr=False, kw_only=True)
class CommitteeClassifier(FittedEnsemble, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An ensemble of networks and boosted trees, combined by stacking, that decides at a stated price.

    Every member is searched on the same folds, unweighted. Non-negative weights combine the members' natural
    out-of-fold logits; nested folds select how strongly they are shrunk towards a prior that prefers good members. The
    output bias is then solved so that the key equation holds at the price on rows that no member saw. Out-of-fold
    results come from weights fitted on the other folds.

    Parameters
    ----------
    weighting : "balanced", None, float, Lam, Alpha, CostRatio, Budget, dict, or an operating goal, default="balanced"
        What a miss is worth, as in `CRCENClassifier`; a goal is met out of fold. Training is unweighted.
    members : sequence, default=None
        ``"networks"`` (the best settings of `CRCENClassifierCV`), ``"trees"`` (LightGBM), ``"random_trees"`` (LightGBM
        with random thresholds), ``"catboost"`` (CatBoost, extra ``boosting``), ``"forest"`` (extremely randomised
        trees), or classifiers with ``predict_proba``; the latter cannot be saved or exported. Their probabilities must
        be natural: wrap a classifier that was weighted or resampled in `PosteriorCorrection`. ``None`` is all that are
        installed: CatBoost up to 60,000 rows, the forest up to 10,000, random trees only with the effort ``"best"``.
    effort : {"quick", "standard", "best"}, default="standard"
        ``"quick"``: one setting per member without a search, by default networks alone. ``"best"``: several searches
        with different seeds and folds, averaged, as many as ``time_limit`` allows.
    cv : int, splitter or iterable, default=4
        As in scikit-learn; an int is stratified folds, shuffled by ``random_state``.
    time_limit : float, default=None
        Seconds. Steps that would not finish in time are not started.
    n_jobs : int, default=None
        Threads; ``None`` is the number of processors this process may use. The result does not depend on it.
    pos_label, device, random_state, verbose
        As in `CRCENClassifier`.

    Attributes
    ----------
    leaderboard_ : list of MemberScore
        The members and the committee, out of fold.
    member_weights_ : ndarray of shape (n_members,)
        Weight of each member's natural logit.
    chosen_settings_ : dict
        The settings that each member's search selected, for `refit_on`.
    notes_ : list of str
        Members that are not installed, failed, or had no time or hardly any weight.
    ensemble_, weighting_, key_equation_, classes_, pos_label_
        As in `CRCENClassifier`.
    oof_decision_function_, oof_proba_, oof_key_equation_, oof_shift_, n_splits_
        As in `CRCENClassifierCV`, with member weights fitted on the other folds.
    fit_time_ : float
        Seconds.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from crcen import Budget, CommitteeClassifier
    >>> X, y = make_classification(300, weights=[0.9], random_state=0)
    >>> clf = CommitteeClassifier(Budget(10), random_state=0).fit(X, y)  # doctest: +SKIP
    """

    weighting: WeightingLike | ThresholdGoal = field(default="balanced", kw_only=False)
    members: str | Sequence[str | Estimator] | None = None
    effort: str = "standard"
    cv: Splitter = 4
    time_limit: float | None = None
    n_jobs: int | None = None
    pos_label: object = None
    device: str = "auto"
    random_state: Seed = None
    verbose: int = 0

    takes_missing = True  # trees and networks both learn from missing values

    def fit(
        self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> CommitteeClassifier:
        """Search every member, combine them, and solve the output bias at the price.

        Parameters
        ----------
        X, y, sample_weight
            As in `CRCENClassifier.fit`; NaN where a cell is missing.
        groups : array of shape (n,), optional
            Rows of the same group stay together in folds; also given to a splitter ``cv``.
        """
        # Threads of linear algebra would mostly wait, and keep cores from the members meanwhile.
        with transactional_fit(self), threadpoolctl.threadpool_limits(1, user_api="blas"):
            start, kinds = time.perf_counter(), self._kinds()
            clock = Clock(self.time_limit)
            X, y = check_rows(self, X, y, reset=True)
            classes, weights = check_classes(y), check_weights(sample_weight, X)
            labels = Labels.from_rows(classes, y, weights, self.pos_label, self.weighting)
            seed = fitting.base_seed(self.random_state)
            folds = checked_folds(self.cv, X, y, weights, labels, groups, seed)
            rows = fitting.FitRows(X, y, weights, labels, folds)
            price = rows.resolve(fitting.before_goal(self.weighting))
            self.notes_: list[str] = []
            if not kinds:
                kinds, self.notes_ = registry.default_members(len(X), len(classes), self.effort)
            task = self._task(rows, seed)
            with progress_bar(type(self).__name__, visible=bool(self.verbose)) as progress:
                # Time is kept for the weights of the members, and with the most effort for repeated fits.
                most = 0.6 if self.effort == "best" else 0.95
                found = self._search(kinds, replace(task, folds=folds), clock.share(most), part_of(progress, 0.0, most))
                if self.effort == "best":
                    n_repeats = _REPEATS_IN_TIME if clock.is_limited else _REPEATS
                    again = (self._folds_again(rows, groups, seed + i) for i in range(1, n_repeats))
                    found = self._repeat(found, kinds, replace(task, folds=folds), again, clock.share(0.95))
            self._combine(found, rows, price, seed)
            fitting.move_to_goal(self, rows)
            self.n_splits_, self.fit_time_ = len(folds), time.perf_counter() - start
        return self

    def _task(self, rows: fitting.FitRows, seed: int) -> MemberTask:
        """What members are fitted on; of two classes the positive one is number 1."""
        labels = rows.labels
        return MemberTask(
            X=rows.X,
            target=rows.engine_target.astype(np.int64),
            weights=normalised(rows.weights),
            n_classes=labels.n_classes,
            seed=seed,
            device=self.device,
            threads=joblib.cpu_count() if self.n_jobs is None else int(self.n_jobs),
            effort=self.effort,
            y=rows.y,
            classes=labels.classes.tolist() if labels.positive is None else [labels.negative, labels.positive],
            search_rows=rows,
        )

    def _search(
        self, kinds: list[MemberKind], task: MemberTask, clock: Clock, progress: Callable[[float], None]
    ) -> list[FittedMember]:
        """Search every member within its share of the time; one that fails is left out.

        Networks, which do not occupy all processors, have a thread of their own unless time or threads are limited.
        """
        # Trees are the fastest of the strong ones, and whether networks are ahead of them decides how many there are.
        # CatBoost, the most like trees, is last.
        order = sorted(kinds, key=lambda kind: {"trees": 0, "networks": 1, "catboost": 3}.get(kind.name, 2))
        found: dict[str, FittedMember] = {}
        failed: dict[str, Exception] = {}
        shares = dict.fromkeys((kind.name for kind in order), 0.0)  # of the work that is done
        first_loss: Future[float] = Future()
        interrupted = Event()

        def show(name: str, done: float) -> None:
            if interrupted.is_set():  # ends a search in the other thread
                raise InterruptedError
            shares[name] = done
            progress(sum(shares.values()) / len(shares))

        def search(done: int, best_loss: Callable[[], float]) -> None:
            share = order[done].time_share / sum(one.time_share for one in order[done:])
            start, name = time.perf_counter(), order[done].name
            now = replace(task, clock=clock.share(share), is_needed=not found, best_loss=best_loss)
            now = replace(now, progress=partial(show, name))
            if found and task.n_classes > 2 and task.effort == "standard":
                others = [found[kind.name].logits for kind in order if kind.name in found]
                now = replace(now, check_weight=partial(_check_weight, task, others))
            try:
                fitted = order[done].search(now)
            except Exception as error:  # whatever a library raises: the others can do without it
                failed[name] = error
            else:
                found[name] = replace(fitted, seconds=time.perf_counter() - start)
            shares[name] = 1.0

        def best_so_far() -> float:
            return min((_loss(one, task) for one in list(found.values())), default=np.inf)

        if any(kind.name == "networks" for kind in order):
            need_torch()  # not after the other members were searched
        is_parallel = task.threads > 1 and not clock.is_limited
        beside = [i for i, kind in enumerate(order) if i and is_parallel and kind.name == "networks"]
        threads = [Thread(target=search, args=(i, first_loss.result), daemon=True) for i in beside]
        for one in threads:
            with suppress(Exception):  # its search states what is wrong
                import_with_lazy(order[0].package or "crcen")  # not at the same time as torch
            one.start()
        try:
            for done in range(len(order)):
                for one in threads if done and task.n_classes > 2 else ():
                    one.join()  # the weight of the others is checked beside that of the networks
                if done not in beside:
                    search(done, best_so_far)
                if done == 0:
                    first_loss.set_result(best_so_far())
            for one in threads:
                one.join()
        except BaseException:
            interrupted.set()  # a thread that is interrupted is not waited for
            raise
        finally:
            if not first_loss.done():
                first_loss.set_result(np.inf)
        failures = {kind.name: failed[kind.name] for kind in order if kind.name in failed}  # not as threads ended
        if isinstance(error := failures.get("networks"), MissingExtra | DeviceMissing | InvalidParameter):
            raise error  # of the installation or the device that was asked for
        for name, error in failures.items():
            if isinstance(error, OutOfTime | NegligibleWeight):
                self.notes_.append(f"{name} was left out: {error}")
                continue
            self.notes_.append(f"{name} failed and was left out: {' '.join(str(error).split())}")
            warnings.warn(self.notes_[-1], UserWarning, stacklevel=3)
        if not found:
            last = sorted(failures.values(), key=lambda error: not isinstance(error, OutOfTime))[-1]
            if isinstance(last, CrcenError):
                raise last
            said = " ".join(str(last).split())
            raise TrainingFailed(f"every member failed; the last error was: {said}") from last
        return [found[kind.name] for kind in kinds if kind.name in found]

    def _folds_again(self, rows: fitting.FitRows, groups: ArrayLike | None, seed: int) -> list[Fold]:
        """Other folds of the same kind; the same ones where they were given or are of time."""
        cv = self.cv
        if getattr(cv, "shuffle", False) and hasattr(cv, "random_state"):
            cv = copy(cv)
            cv.random_state = seed % 2**32
        elif not isinstance(cv, int | np.integer):
            return list(rows.folds)
        return checked_folds(cv, rows.X, rows.y, rows.weights, rows.labels, groups, seed)

    def _repeat(
        self,
        found: list[FittedMember],
        kinds: list[MemberKind],
        task: MemberTask,
        again: Iterable[list[Fold]],
        clock: Clock,
    ) -> list[FittedMember]:
        """Average members over searches with further seeds and folds, as far as there is time."""
        by_name, members = {kind.name: kind for kind in kinds}, {one.name: one for one in found}
        losses, seconds = {one.name: _loss(one, task) for one in found}, {one.name: one.seconds for one in found}
        ended = {name for name, kind in by_name.items() if isinstance(kind, registry.External)}
        for number, folds in enumerate(again, 1):
            # Seeds of members are this one plus small numbers.
            own = replace(task, folds=folds, seed=task.seed + 1000 * number)
            own = replace(own, search_rows=replace(task.search_rows, folds=folds))
            for name, one in list(members.items()):
                if name in ended or 1.2 * seconds[name] > clock.left:
                    continue
                start = time.perf_counter()
                others = min((loss for other, loss in losses.items() if other != name), default=np.inf)
                now = replace(own, best_loss=partial(float, others), clock=clock.share(1.0), is_needed=False)
                try:
                    fitted = by_name[name].search(now)
                except Exception as error:  # the searches before it stay
                    ended.add(name)
                    if not isinstance(error, OutOfTime):
                        self.notes_.append(f"a repeated search of {name} failed: {' '.join(str(error).split())}")
                        warnings.warn(self.notes_[-1], UserWarning, stacklevel=3)
                    continue
                seconds[name] = time.perf_counter() - start
                parts, spent = (*one.parts, *fitted.parts), one.seconds + seconds[name]
                mean = one.logits + (fitted.logits - one.logits) * len(fitted.parts) / len(parts)
                members[name] = replace(one, parts=parts, logits=mean, seconds=spent)
        return list(members.values())

    @property
    def refits_in_parallel(self) -> bool:
        """Whether `refit_on` may run in several threads: not with classifiers of other libraries."""
        return not any(isinstance(kind, registry.External) for kind in self._kinds())

    def refit_on(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> CommitteeClassifier:
        """Another committee, trained on other rows with the selected settings, for `crcen.training_error`.

        Member weights, intercept and price stay as they are. It has no leaderboard and no out-of-fold rows. One thread
        is used, and a `RandomState` is copied: the caller may run several refits at the same time.
        """
        check_is_fitted(self)
        ensemble, settings = self.ensemble_, self.chosen_settings_
        fresh = clone(self)
        X, y = check_rows(fresh, X, y, reset=True)
        rows = fitting.FitRows(X, y, check_weights(sample_weight, X), ensemble.labels)
        task, kinds = self._task(rows, fitting.base_seed(fresh.random_state)), {one.name: one for one in self._kinds()}
        task = replace(task, threads=1)
        weight_of = {one.name: one.weight for one in self.leaderboard_[:-1]}
        parts: list[Member] = []
        weights: list[float] = []
        for name, chosen in settings.items():
            fitted = (kinds[name] if name in kinds else registry.member_kind(name)).refit(task, chosen)
            parts += fitted
            weights += [weight_of[name] / len(fitted)] * len(fitted)  # best effort has further parts of a member
        members = _with_outputs(parts, ensemble.labels)
        write_ensemble(fresh, replace(ensemble, members=members, member_weights=np.array(weights)), None)
        return fresh

    def _kinds(self) -> list[MemberKind]:
        """The requested members, checked; none if `fit` selects them."""
        check_choice(self, "effort", EFFORTS)
        if self.time_limit is not None:
            check_number(self, "time_limit", low=0, open_low=True)
        if self.n_jobs is not None:
            check_number(self, "n_jobs", low=1, integer=True)
        if self.members is None:
            return []
        kinds = list(map(registry.member_kind, [self.members] if isinstance(self.members, str) else self.members))
        names = [kind.name for kind in kinds]
        if not kinds or len(set(names)) < len(names):
            raise InvalidParameter(f"members must be one or more with different names: got {names}.")
        return kinds

    def _stack(self, found: list[FittedMember], rows: fitting.FitRows, seed: int) -> tuple[Array, Array]:
        """Intercepts (K,) of weights on all out-of-fold rows; logits (n, K) combined by weights of the other folds."""
        logits, labels = np.stack([one.logits for one in found], axis=1), rows.labels
        target, weights = rows.engine_target.astype(np.int64), normalised(rows.weights)
        held_out = [test for _, test in rows.folds]
        if labels.n_classes > 2:
            logits = cap_lone_rows(logits, target, weights, rows.folds)
        ridge = choose_ridge(logits, target, weights, held_out, seed)
        seen: Bools = np.asarray(np.isfinite(logits).all(axis=(1, 2)))
        stacking = fit_stacking(logits[seen], target[seen], weights[seen], ridge, LEAST_WEIGHT)
        self.member_weights_ = stacking.weights
        crossed = cross_fitted_logits(logits, target, weights, held_out, ridge)
        classes = None if labels.positive is None else [1]
        self.leaderboard_ = leaderboard(found, stacking.weights, crossed, target, weights, classes)
        if labels.positive is None:
            return stacking.intercepts, crossed
        intercepts, crossed = (labels.columns(both[..., 1] - both[..., 0]) for both in (stacking.intercepts, crossed))
        return intercepts, crossed

    def _combine(self, found: list[FittedMember], rows: fitting.FitRows, price: Price, seed: int) -> None:
        """Weights, the solve at the price, and everything that is kept; members without weight are left out."""
        intercepts, crossed = self._stack(found, rows, seed)
        pairs = list(zip(found, self.member_weights_.tolist(), strict=True))
        pairs = [(one, weight) for one, weight in pairs if weight > 0.0] or pairs[:1]
        self.chosen_settings_ = {one.name: one.chosen for one, _ in pairs}
        parts = [(part, weight / len(one.parts)) for one, weight in pairs for part in one.parts]
        members = _with_outputs([part for part, _ in parts], rows.labels)
        member_weights = np.array([weight for _, weight in parts])
        natural = Ensemble.of(rows.labels, rows.resolve(None), members, member_weights).shifted(intercepts)
        ensemble, weighted = natural.at_price(price), crossed + price.log_weights
        seen = fitting.seen_rows(weighted)
        held_out = weighted[seen], rows.target[seen], rows.weights[seen]
        self.oof_key_equation_ = on_rows(without_test(ensemble.key_equation(*held_out)), fitting.OUT_OF_FOLD_ROWS)
        shifts = fitting.held_out_shifts(weighted, rows, price)
        self.oof_shift_ = shifts if rows.labels.positive is None else float(rows.labels.margin(shifts))
        ensemble = ensemble.moved(shifts)
        write_ensemble(self, ensemble, on_rows(ensemble.key_equation(*held_out), fitting.OUT_OF_FOLD_ROWS))
        write_out_of_fold(self, ensemble, weighted)

    def __sklearn_tags__(self) -> Tags:
        """Any number of classes, unless the weighting is a price of two; missing cells are learned from."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not is_price_of_two(self.weighting)
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True  # made dense inside, within a bound
        return tags


def _loss(member: FittedMember, task: MemberTask) -> float:
    known = fitting.seen_rows(member.logits)
    return log_loss(member.logits[known], task.target[known], task.weights[known])


class NegligibleWeight(Exception):
    """A member whose logits of the first fold have hardly any weight."""


def _check_weight(task: MemberTask, others: list[Array], logits: Array, rows: Index) -> None:
    """Raise `NegligibleWeight` if held-out logits have hardly any weight beside those of the members before."""
    every = np.stack([*(one[rows] for one in others), logits], axis=1)
    seen = np.isfinite(every).all(axis=(1, 2)) & (task.weights[rows] > 0)
    data = every[seen], task.target[rows][seen], task.weights[rows][seen]
    if seen.any() and fit_stacking(*data, _TRIAL_RIDGE).weights[-1] < _TRIAL_WEIGHT:
        raise NegligibleWeight(f"its weight on the first fold was below {_TRIAL_WEIGHT}")


def normalised(weights: Array) -> Array:
    """Weights with mean 1 in single precision: the same for any scale, and exactly 1 if all are equal."""
    used = weights[weights > 0]
    return (weights > 0 if np.all(used == used[0]) else weights / used.mean()).astype(np.float32).astype(np.float64)


def _with_outputs(parts: Sequence[Member], labels: Labels) -> tuple[Member, ...]:
    """Members with the outputs of an ensemble: of two classes one, the log-odds of the positive class."""
    if labels.positive is None:
        return tuple(parts)
    return tuple(part.column(1) if isinstance(part, TreeEnsemble | registry.ExternalMember) else part for part in parts)


# Strengths of the shrinkage to choose from, in units of rows: about how many it takes to move away from the prior.
RIDGES = (1.0, 5.0, 20.0, 80.0)
# In the prior, a member whose log loss, summed over the rows, is higher by this has 1/e of the weight.
_PRIOR_LOSS = 30.0
LEAST_WEIGHT = 0.02  # a member with less costs time in every prediction and changes hardly any
# For several classes: the shrinkage for the trial of a member on the first fold, and the weight that it must have.
_TRIAL_RIDGE, _TRIAL_WEIGHT = 5.0, 0.1
_ROWS_TO_CHOOSE = 20_000  # with more, a sample decides: the strength hardly matters then


@dataclass(frozen=True, eq=False)
class Stacking:
    """The committee's natural logits: intercepts (K,) + Σ weight × member's natural logits (n, K)."""

    weights: Array
    intercepts: Array

    def __call__(self, logits: Array) -> Array:
        """Combine (n, members, K) logits to (n, K)."""
        return np.asarray(np.einsum("nmk,m->nk", logits, self.weights) + self.intercepts)


def fit_stacking(
    logits: Array,
    target: Index,
    row_weights: Array,
    ridge: float,
    least_weight: float = 0.0,
    start: Stacking | None = None,
) -> Stacking:
    """Weights ≥ 0 and intercepts that minimise the log loss plus ``ridge``·Σ (w − v)².

    The prior v sums to 1. It is about equal on few rows; with more rows, members with a lower log loss get a larger
    share. Members with less than ``least_weight`` get none, and the others are weighted again.
    """
    if not (is_used := row_weights > 0).all():  # other rows are no evidence
        logits, target, row_weights = logits[is_used], target[is_used], row_weights[is_used]
    n, n_members, n_classes = logits.shape
    scale = row_weights / row_weights.mean()
    losses = n * np.array([log_loss(logits[:, m], target, scale) for m in range(n_members)])
    prior = softmax(-losses[None] / _PRIOR_LOSS)[0]
    is_class = target[:, None] == np.arange(1, n_classes)
    # Log-odds against the first class: one column for two classes.
    odds = np.ascontiguousarray((logits[:, :, 1:] - logits[:, :, :1]).transpose(1, 0, 2).reshape(n_members, -1))

    def objective(parameters: Array) -> tuple[float, Array]:
        away = parameters[:n_members] - prior
        combined = (parameters[:n_members] @ odds).reshape(n, n_classes - 1) + parameters[n_members:]
        top = np.maximum(combined.max(axis=1), 0.0)
        error = np.exp(combined - top[:, None])
        total = error.sum(axis=1) + np.exp(-top)
        loss = scale @ (np.log(total) + top - np.where(is_class, combined, 0.0).sum(axis=1)) + ridge * (away @ away)
        error = (error / total[:, None] - is_class) * scale[:, None]
        return float(loss), np.concatenate([odds @ error.ravel() + 2.0 * ridge * away, error.sum(axis=0)])

    found = np.concatenate([prior, np.zeros(n_classes - 1)])
    if start is not None:
        found = np.concatenate([start.weights, start.intercepts[1:] - start.intercepts[0]])
    most = np.full(len(found), np.inf)
    least = np.repeat([0.0, -np.inf], [n_members, n_classes - 1])
    options = {"ftol": 1e-13, "gtol": 1e-8}
    for _ in range(2):
        bounds = optimize.Bounds(least, most)
        with _blas().limit(limits=1):  # several threads would mostly wait
            found = optimize.minimize(
                objective, np.minimum(found, most), jac=True, method="L-BFGS-B", bounds=bounds, options=options
            ).x
        is_tiny = found[:n_members] < min(least_weight, found[:n_members].max())
        if not (is_tiny & (found[:n_members] > 0.0)).any():
            break
        most[:n_members][is_tiny] = 0.0
    intercepts = np.concatenate([[0.0], found[n_members:]])
    return Stacking(found[:n_members], intercepts - intercepts.mean())


# The linear algebra of this process; looking for it takes longer than a fit on few rows.
_blas = cache(lambda: threadpoolctl.ThreadpoolController().select(user_api="blas"))


def choose_ridge(logits: Array, target: Index, row_weights: Array, held_out: Sequence[Index], seed: int = 0) -> float:
    """The strength whose weights, fitted on the other folds, predict each fold best."""
    known = _known(logits, held_out)
    if len(held_out) < 2:
        return RIDGES[-1]
    if known.sum() > _ROWS_TO_CHOOSE:
        rows = np.random.default_rng([seed, len(target)]).choice(np.flatnonzero(known), _ROWS_TO_CHOOSE, replace=False)
        known = np.zeros(len(target), dtype=bool)
        known[rows] = True
    losses = []
    for ridge in RIDGES:
        crossed = cross_fitted_logits(logits, target, row_weights, held_out, ridge, known)
        seen = np.isfinite(crossed).all(axis=1)
        losses.append(log_loss(crossed[seen], target[seen], row_weights[seen]) if seen.any() else np.inf)
    return RIDGES[int(np.argmin(losses))]


def cap_lone_rows(logits: Array, target: Index, row_weights: Array, folds: Sequence[Fold]) -> Array:
    """Held-out logits (n, members, K) with the log-odds of lone rows capped.

    The only row of a class is in the training rows of every fold, so its logits are not held out. Its log-odds of the
    class are capped at the highest of the other rows. Otherwise the stacking weights would rest on a memorised label.
    """
    trained = np.concatenate([np.intersect1d(*fold) for fold in folds])
    is_honest = np.isfinite(logits).all(axis=(1, 2)) & (row_weights > 0)
    is_honest[trained] = False
    logits, honest = logits.copy(), np.flatnonzero(is_honest)
    for row in trained[~np.isin(target[trained], target[honest])] if len(honest) else ():
        own = target[row]
        odds = logits[:, :, own] - np.logaddexp.reduce(np.delete(logits, own, axis=2), axis=2)
        nearest = honest[odds[honest].mean(axis=1).argmax()]
        logits[row, :, own] -= np.maximum(odds[row] - odds[nearest], 0.0)
    return logits


def cross_fitted_logits(
    logits: Array,
    target: Index,
    row_weights: Array,
    held_out: Sequence[Index],
    ridge: float,
    known: Bools | None = None,
) -> Array:
    """Combined logits of each fold's rows by weights fitted on the other folds' rows.

    Weights fitted on a row's own label make its loss look better than that of a new row; these do not. A row in no
    fold, or in a fold whose other rows lack a class, is NaN.
    """
    n_classes = logits.shape[2]
    combined = np.full((len(logits), n_classes), np.nan)
    seen, stacking = _known(logits, held_out) if known is None else known, None
    for fold in held_out:
        others = seen.copy()
        others[fold] = False
        own = fold[seen[fold]]
        if len(held_out) == 1:  # one fold of later rows: no other rows to fit weights on
            combined[own] = logits[own].mean(axis=1)
            continue
        counts = np.bincount(target[others], row_weights[others], n_classes)
        others |= seen & np.isin(target, np.flatnonzero(counts == 0))  # the only row of a class cannot be left out
        if np.bincount(target[others], row_weights[others], n_classes).all():
            stacking = fit_stacking(logits[others], target[others], row_weights[others], ridge, start=stacking)
            combined[own] = stacking(logits[own])
    return combined


def _known(logits: Array, held_out: Sequence[Index]) -> Bools:
    known = np.zeros(len(logits), dtype=bool)
    known[np.concatenate(held_out)] = True
    return known & np.isfinite(logits).all(axis=(1, 2))


@dataclass(frozen=True)
class MemberScore(Shown):
    """A line of the leaderboard."""

    name: str  # of the member, or "committee"
    weight: float  # factor of its natural logit; NaN for the committee
    log_loss: float  # scores out of fold, by natural probabilities; the committee's by weights fitted on other folds
    average_precision: float
    roc_auc: float
    seconds: float  # of search and refit; networks share them with other members
    settings: tuple[str, ...] = ()  # chosen by its search
    n_tried: int = 0  # number of settings that its search compared

    def __str__(self) -> str:
        weight = "" if np.isnan(self.weight) else f"{self.weight:.2f}"
        metrics = f"{self.log_loss:>9.4g}  {self.average_precision:>17.4g}  {self.roc_auc:>8.4g}"
        return f"{self.name:<20} {weight:>6}  {metrics}  {self.seconds:>7.1f} s"


def leaderboard(
    members: Sequence[FittedMember],
    weights: Array,
    crossed: Array,
    target: Index,
    row_weights: Array,
    classes: Sequence[int] | None,
) -> list[MemberScore]:
    """A line for each member, and one for the committee, whose logits are ``crossed``."""

    def judged(logits: Array) -> tuple[float, float, float]:
        known = np.isfinite(logits).all(axis=1) & (row_weights > 0)
        own, y, w = logits[known], target[known], row_weights[known]
        several = np.unique(y) if classes is None else classes
        p = softmax(own) if logits.shape[1] > 2 else own - own[:, ::-1]
        counts = [ThresholdCurve(y == k, p[:, k]).totals(w) for k in several]
        precision, area = (float(np.mean([one(*each) for each in counts])) for one in (average_precision, roc_area))
        return log_loss(own, y, w), precision, area

    lines = [
        MemberScore(one.name, float(weight), *judged(one.logits), one.seconds, one.settings, one.n_tried)
        for one, weight in zip(members, weights, strict=True)
    ]
    seconds, n_tried = sum(one.seconds for one in members), sum(one.n_tried for one in members)
    return [*lines, MemberScore("committee", np.nan, *judged(crossed), seconds, n_tried=n_tried)]
