"""The search: settings scored on folds, screened, widened at the border of the grid, chosen and refitted."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from crcen._support.lazy import metrics
from crcen._support.progress import part_of
from crcen.exceptions import InvalidInput, InvalidParameter, TrainingFailed
from crcen.models.clock import OutOfTime
from crcen.models.fitting import FitRows, engine_logits, fold_members, seen_rows, training_job
from crcen.models.search.folds import Fold
from crcen.theory.goals import ThresholdGoal
from crcen.theory.metrics import count_decisions
from crcen.theory.price import Labels, Price, WeightingLike, log_sum_exp, softmax
from crcen.theory.rows import Array, Index, Rows
from crcen.training.engines import Engine, trainer_on_some
from crcen.training.jobs import Status, TrainingJob, TrainingResult, TrainingState
from crcen.training.network import Network
from crcen.training.recipe import Recipe

Rungs = Sequence[tuple[float, float]]
Progress = Callable[[float], None]

# Parameters of a recipe that a search takes lists of.
SEARCHED = ("hidden", "l2", "encoding")


@dataclass(frozen=True)
class Setting:
    """One point of the grid."""

    weighting_index: int  # weightings need not be hashable
    weighting: WeightingLike | ThresholdGoal  # the price
    recipe: Recipe
    trained_at: WeightingLike = None  # the weighting of the loss

    def params(self) -> dict[str, Any]:
        """The searched parameters, as keyword arguments of `CRCENClassifier`."""
        return {"weighting": self.weighting} | {name: getattr(self.recipe, name) for name in SEARCHED}


def to_price(rows: FitRows, setting: Setting, own: Index | None = None) -> Array:
    """Add this (K,) to logits under a setting's training weights to get those at its price."""
    return rows.resolve(setting.weighting, own).log_weights - rows.resolve(setting.trained_at, own).log_weights


@dataclass(frozen=True, eq=False)
class Outcome:
    """A setting's fold scores at the epoch chosen for it, and its out-of-fold logits there."""

    setting: Setting
    epochs: int | None
    scores: Array
    logits: Array
    is_dropped: bool = False

    @property
    def merit(self) -> float:
        """Mean score over the folds; −∞ if a fold has no score."""
        mean = float(self.scores.mean())
        return -np.inf if np.isnan(mean) else mean


def operating_points(outcomes: list[Outcome], rows: FitRows) -> list[Any]:
    """Out-of-fold counts of every weighting at its best setting.

    All from the search, one network a fold and not balanced, so that the steps of a path can be compared. Counts are
    `ConfusionCounts` for a binary problem, otherwise (K, actions): a row for each class, a column for each decision.
    """
    ranked = sorted(outcomes, key=lambda outcome: (outcome.is_dropped, -outcome.merit))
    best = {outcome.setting.weighting_index: outcome for outcome in reversed(ranked)}
    labels, found = rows.labels, []
    for _, outcome in sorted(best.items()):
        seen, price = seen_rows(outcome.logits), rows.resolve(outcome.setting.weighting)
        logits, costs = outcome.logits[seen], price.costs
        chosen = labels.choose(logits) if costs is None else costs.choose(softmax(logits - price.log_weights))
        n_decisions, own = 0 if costs is None else costs.n_actions, (rows.target[seen], chosen, rows.weights[seen])
        counts = count_decisions(*own, labels.n_classes, n_decisions, price.positive)
        found.append(counts.table if labels.positive is None else counts)
    return found


# -- scores ------------------------------------------------------------------------------------------------------------

Score = Callable[[Array, Index, Array, Labels], float]
Scoring: TypeAlias = str | Callable[..., float]


def log_losses(logits: Array, target: Index, weights: Array, price: Price, *, natural: bool) -> Array:
    """Log loss of each record of weighted logits (records, n, K): at the price, or of the natural posterior."""
    if natural:
        logits = logits - price.log_weights
    else:
        weights = price.weights[target] * weights
    with np.errstate(invalid="ignore"):  # a diverged network's logits are NaN, and so is its loss
        return np.asarray((_row_losses(logits, target) * weights).sum(axis=-1) / weights.sum())


def _row_losses(logits: Array, target: Index) -> Array:
    """−log q of the rows' own classes, for logits (…, n, K)."""
    if logits.shape[-1] == 2:
        return np.asarray(np.logaddexp(0.0, np.where(target == 1, -1.0, 1.0) * (logits[..., 1] - logits[..., 0])))
    own = np.take_along_axis(logits, np.broadcast_to(target[:, None], (*logits.shape[:-1], 1)), axis=-1)[..., 0]
    return np.asarray(log_sum_exp(logits, logits.ndim - 1) - own)


def _f1(logits: Array, target: Index, weights: Array, labels: Labels) -> float:
    """F1 of the positive class, or the mean over the classes."""
    counts = count_decisions(target, labels.choose(logits), weights, labels.n_classes)
    return counts.macro_f1 if labels.positive is None else float(np.asarray(counts.f1)[labels.column])


def _g_mean(logits: Array, target: Index, weights: Array, labels: Labels) -> float:
    return float(count_decisions(target, labels.choose(logits), weights, labels.n_classes).g_mean)


def _average_precision(logits: Array, target: Index, weights: Array, labels: Labels) -> float:
    """Average precision of the positive class, or the mean over the classes."""
    classes = np.unique(target) if labels.positive is None else [labels.column]
    scores = softmax(logits) if labels.positive is None else logits - logits[:, ::-1]
    found = [metrics.average_precision_score(target == k, scores[:, k], sample_weight=weights) for k in classes]
    return float(np.mean(found))


# Log losses also choose the number of epochs; the value is whether they are of the natural posterior.
LOG_LOSSES = {"neg_weighted_log_loss": False, "neg_log_loss": True}
SCORES: dict[str, Score] = {"f1": _f1, "g_mean": _g_mean, "average_precision": _average_precision}


class _HeldOut(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator for scikit-learn's scorers that returns the logits of the held-out rows."""

    def __init__(self, labels: Labels, logits: Array, price: Price) -> None:
        self.classes_ = labels.classes
        self._labels, self._logits, self._natural = labels, logits, logits - price.log_weights

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, X: Rows) -> Array:
        return self._logits if self._labels.positive is None else self._logits[:, 1] - self._logits[:, 0]

    def predict(self, X: Rows) -> NDArray[np.generic]:
        return self._labels.decode(self._labels.choose(self._logits))

    def predict_proba(self, X: Rows) -> Array:
        return softmax(self._natural)


def check_scoring(scoring: object) -> Scoring:
    """``scoring`` itself, if it is a name of `SCORES`, any other scorer name of scikit-learn, or a callable."""
    own = (*LOG_LOSSES, *SCORES)
    if callable(scoring) or (isinstance(scoring, str) and scoring in (*own, *metrics.get_scorer_names())):
        return scoring
    raise InvalidParameter(f"scoring must be {', '.join(own)}, a scikit-learn scorer or a callable: got {scoring!r}.")


def held_out_score(scoring: Scoring, logits: Array, rows: FitRows, held_out: Index, price: Price) -> float:
    """Score of weighted logits (n, K) on held-out rows, higher is better; `check_scoring` has accepted ``scoring``."""
    if isinstance(scoring, str) and scoring in LOG_LOSSES:
        own = rows.target[held_out], rows.weights[held_out], price
        return -float(log_losses(logits, *own, natural=LOG_LOSSES[scoring]))
    if isinstance(scoring, str) and scoring in SCORES:
        return SCORES[scoring](logits, rows.target[held_out], rows.weights[held_out], rows.labels)
    scorer = metrics.get_scorer(scoring) if isinstance(scoring, str) else scoring
    return float(scorer(_HeldOut(rows.labels, logits, price), rows.X[held_out], rows.y[held_out]))


def score_table(outcomes: list[Outcome]) -> dict[str, Any]:
    """The table of a search in the form of scikit-learn's."""
    params, table = [outcome.setting.params() for outcome in outcomes], {}
    for name in params[0]:
        are_floats = all(isinstance(setting[name], float) for setting in params)
        column: Any = np.ma.masked_all(len(params), dtype=np.float64 if are_floats else object)  # type: ignore[no-untyped-call]
        for i, setting in enumerate(params):
            column[i] = setting[name]
        table[f"param_{name}"] = column
    is_dropped, scores = np.array([one.is_dropped for one in outcomes]), np.array([one.scores for one in outcomes])
    epochs = np.array([outcome.epochs or 0 for outcome in outcomes])
    table |= {"params": params, "epochs": epochs, "is_dropped": is_dropped}
    table |= {f"split{fold}_test_score": scores[:, fold] for fold in range(scores.shape[1])}
    with np.errstate(invalid="ignore"):  # no spread where a fold's score is infinite
        table |= {"mean_test_score": scores.mean(axis=1), "std_test_score": scores.std(axis=1)}
    merit = np.array([outcome.merit for outcome in outcomes])
    is_better = (merit[None, :] > merit[:, None]) & (is_dropped[None, :] == is_dropped[:, None])
    is_ahead = (~is_dropped[None, :] & is_dropped[:, None]) | is_better
    table["rank_test_score"] = (1 + is_ahead.sum(axis=1)).astype(np.int32)
    return table


# -- trials: settings on every fold in parts of the schedule; those far behind are dropped -----------------------------

# After these shares of the schedule, these shares of the settings go on. Chosen on the benchmark's development half.
RUNGS = ((1 / 6, 0.75), (1 / 3, 0.5), (1 / 2, 0.25), (2 / 3, 0.125))
_FEWEST = 2
# Fewer settings than this are all run in full; on many rows, where scores tell settings apart early and training is
# dear, fewer than that.
_WORTH_HALVING, _WORTH_HALVING_MANY_ROWS = 8, 4
_MANY_ROWS = 5_000
_SHORTEST_SCHEDULE = 5
# From half of the schedule on, a setting that has not gained in this last share of its epochs is done.
_FINISHED_FROM, _WITHOUT_GAIN = 1 / 2, 1 / 2


class Trial:
    """One setting on every fold: its jobs and their results so far."""

    def __init__(self, setting: Setting, jobs: Sequence[TrainingJob]) -> None:
        self.setting, self.jobs = setting, jobs
        self.epochs: list[int] = []
        # Log loss of every record, the mean over folds; whoever scores the trial adds to it.
        self.losses: list[float] = []
        self.schedule = jobs[0].max_epochs  # epochs of the whole schedule
        self.goes_in_parts = jobs[0].draws_batches  # whether training can stop and go on
        self._states: list[TrainingState | None] = [None] * len(jobs)
        self._records: list[list[NDArray[np.float32] | Network | None]] = [[] for _ in jobs]

    def next_jobs(self, stop: int) -> Iterable[TrainingJob]:
        """The jobs that continue every fold up to an epoch."""
        for job, state in zip(self.jobs, self._states, strict=True):
            yield job.replace(start=state, stop_epoch=stop, leaves_state=True) if self.goes_in_parts else job

    def take(self, results: Sequence[TrainingResult]) -> None:
        """Add the results of the folds: held-out logits recorded in training, or the final network."""
        self.epochs += results[0].recorded_epochs
        self._states = [result.state for result in results]
        if results[0].state is not None and results[0].state.epoch == self.schedule:
            self._states = [None] * len(results)
        for own, result in zip(self._records, results, strict=True):
            own += list(result.val_logits) if self.epochs else [result.network]

    def forget(self) -> None:
        """Free everything that only a further part would need."""
        self._states, self._records = [None] * len(self.jobs), [[] for _ in self.jobs]

    def latest(self, fold: int, X: Array, rows: Index) -> Array:
        """Held-out logits of the records without a loss, (records, n[, K])."""
        new = range(len(self.losses), len(self._records[fold]))
        return np.array([self.record(fold, position, X, rows) for position in new])

    def record(self, fold: int, position: int, X: Array, rows: Index) -> Array:
        """Held-out logits of one record of all parts, (n,) or (n, K), where ``rows`` of X are held out."""
        found = self._records[fold][position]
        if isinstance(found, np.ndarray):
            return found.astype(np.float64)
        if found is None:
            n_outputs = self.jobs[fold].outputs
            return np.full((len(rows),) if n_outputs is None else (len(rows), n_outputs), np.nan)
        return found.logits(X[rows])


def run_trials(
    trials: Sequence[Trial],
    train: Engine,
    score: Callable[[Trial], Outcome],
    *,
    halving: bool,
    progress: Progress,
    rungs: Rungs = RUNGS,
) -> list[Outcome]:
    """The outcome of every trial; those far behind are marked as dropped."""
    schedule = max((trial.schedule for trial in trials if trial.goes_in_parts), default=1)
    in_parts = halving and schedule >= _SHORTEST_SCHEDULE
    stops = {round(share * schedule): keep for share, keep in rungs} if in_parts else {}
    outcomes: dict[int, Outcome] = {}
    running, begun = list(range(len(trials))), 0
    for stop, keep in [*stops.items(), (schedule, 1.0)]:
        jobs = [job for i in running for job in trials[i].next_jobs(stop)]
        try:
            found = iter(train(jobs, progress=part_of(progress, begun / schedule, stop / schedule)))
        except OutOfTime:
            if not outcomes:
                raise
            break
        for i in running:
            trials[i].take([next(found) for _ in trials[i].jobs])
        del found  # what the trials do not keep is freed
        outcomes |= {i: score(trials[i]) for i in running}
        unfinished = [i for i in running if trials[i].goes_in_parts]  # the others have been run in full
        running, begun = _going_on(unfinished, trials, outcomes, keep, stop, schedule), stop
        for i in set(outcomes).difference(running):
            trials[i].forget()
        if not running:
            break
    progress(1.0)
    return [outcomes[i] for i in range(len(trials))]


def _going_on(
    running: list[int], trials: Sequence[Trial], outcomes: dict[int, Outcome], keep: float, stop: int, schedule: int
) -> list[int]:
    """Trials that continue after a part: not those far behind, which are marked, nor those that no longer improve."""
    if stop == schedule:
        return []
    by_weighting: dict[int, list[int]] = {}
    for i, outcome in outcomes.items():
        if trials[i].goes_in_parts:  # a setting that is through would be compared with one at a sixth of its way
            by_weighting.setdefault(outcome.setting.weighting_index, []).append(i)
    for rivals in by_weighting.values():
        has_many_rows = min(job.n_trained(0) for i in rivals for job in trials[i].jobs) >= _MANY_ROWS
        if len(rivals) < (_WORTH_HALVING_MANY_ROWS if has_many_rows else _WORTH_HALVING):
            continue
        left = (i for i in rivals if not outcomes[i].is_dropped)
        # Scores of decisions are often equal early on; the loss, by which the epoch is chosen, then decides.
        ahead = sorted(left, key=lambda i: (-outcomes[i].merit, min(trials[i].losses)))
        for i in ahead[max(_FEWEST, math.ceil(keep * len(rivals))) :]:
            if i in running:
                outcomes[i] = replace(outcomes[i], is_dropped=True)
    latest = (1 - _WITHOUT_GAIN) * stop if stop >= _FINISHED_FROM * schedule else 0
    return [i for i in running if not outcomes[i].is_dropped and (outcomes[i].epochs or stop) > latest]


# -- settings on folds, and networks of a chosen setting ---------------------------------------------------------------

# Held-out logits of a search are kept for every epoch while they take no more than this, or than a quarter of the bound
# on memory; else for every second epoch, every third, and so on.
_RECORD_BYTES = 2**30


@dataclass(frozen=True, eq=False)
class SearchRun:
    """What all parts of a search share."""

    rows: FitRows  # rows and folds
    scoring: Scoring  # what `check_scoring` lets pass
    seed: int  # of initial weights and batches
    train: Engine  # trains a list of jobs on these rows
    memory_bytes: int | None  # bound on memory, or ``None``

    def on_folds(self, n_folds: int) -> "SearchRun":
        """The search on the first folds alone."""
        return replace(self, rows=replace(self.rows, folds=self.rows.folds[:n_folds]))

    def screened(
        self, settings: list[Setting], *, progress: Progress, keep: float = 1 / 4, sample: "SearchRun | None" = None
    ) -> list[Outcome]:
        """`outcomes` with settings left behind on the way: where rows are many, a subsample chooses a share first.

        The subsample has the folds of another search where one is given, and settings left behind have as many scores.
        """
        behind = screen_on_subsample(sample or self, settings, keep, progress=part_of(progress, 0.0, 0.3))
        ahead = [setting for i, setting in enumerate(settings) if i not in behind]
        found = iter(self.outcomes(ahead, halving=True, progress=part_of(progress, 0.3, 1.0) if behind else progress))
        return [behind[i] if i in behind else next(found) for i in range(len(settings))]

    def outcomes(
        self, settings: list[Setting], *, halving: bool, progress: Progress, rungs: Rungs = RUNGS
    ) -> list[Outcome]:
        """Every setting's outcome at its best epoch (L-BFGS: where it ended)."""
        rows, trials = self.rows, []
        n_held_out, bound = sum(len(test) for _, test in rows.folds), _RECORD_BYTES
        if self.memory_bytes is not None:
            bound = min(bound, max(1, self.memory_bytes // 4))
        for setting in settings:
            jobs = []
            for train_rows, held_out in rows.folds:
                job = self.job(setting, train_rows, 0).replace(balance=False)
                if job.draws_batches:
                    size = 4 * len(settings) * n_held_out * job.max_epochs * job.n_outputs
                    job = job.replace(validation=held_out, record_every=-(-size // bound))
                jobs.append(job)
            trials.append(Trial(setting, jobs))
        halving = halving and self._has_room_for_states(trials)
        return run_trials(trials, self.train, self._outcome, halving=halving, progress=progress, rungs=rungs)

    def refit(
        self, chosen: Outcome, n_members: int, progress: Progress, n_on_folds: int | None = None
    ) -> tuple[list[TrainingResult], Array]:
        """The members on all rows, and their out-of-fold logits at the price, by networks on each fold, in one stack.

        The first member's networks on the folds of the search are those of the search, unless they are to be balanced.
        Only the first ``n_on_folds`` members have networks on folds; by default all of them, or fewer on many rows.
        """
        rows, recipe = self.rows, chosen.setting.recipe
        most = n_on_folds or fold_members(n_members, len(rows.X))
        is_known = [not recipe.balance and bool(seen_rows(chosen.logits[test]).all()) for _, test in rows.folds]
        work: list[tuple[int | None, TrainingJob]] = []  # the number of its fold, and a job
        for member in range(n_members):
            for fold in (None, *[i for i, known in enumerate(is_known) if member < most and (member or not known)]):
                job = self.job(chosen.setting, None if fold is None else rows.folds[fold][0], member)
                work.append((fold, job.replace(stop_epoch=chosen.epochs)))
        results = self.train([job for _, job in work], progress=progress)
        members = [result for (fold, _), result in zip(work, results, strict=True) if fold is None]
        oof = np.full_like(chosen.logits, np.nan)
        for i, (train_rows, held_out) in enumerate(rows.folds):
            networks = [one.network for (fold, _), one in zip(work, results, strict=True) if fold == i]
            moved = to_price(rows, chosen.setting, train_rows)
            logits = [engine_logits([one], rows, held_out) + moved for one in networks if one is not None]
            oof[held_out] = np.mean([*logits, chosen.logits[held_out]] if is_known[i] else logits, axis=0)
        return members, oof

    def job(self, setting: Setting, own: Index | None, member: int) -> TrainingJob:
        """The job of a setting at its training weight, as rows of a fold or all rows resolve it."""
        return training_job(setting.recipe, self.rows.resolve(setting.trained_at, own), self.seed, member, own)

    def _outcome(self, trial: Trial) -> Outcome:
        """Choose the epoch by the folds' mean log loss, then score there."""
        rows, scoring = self.rows, self.scoring
        natural = LOG_LOSSES.get(scoring, False) if isinstance(scoring, str) else False
        prices = [rows.resolve(trial.setting.weighting, train_rows) for train_rows, _ in rows.folds]
        moved = [to_price(rows, trial.setting, train_rows) for train_rows, _ in rows.folds]
        losses = []
        for fold, (price, (_, test)) in enumerate(zip(prices, rows.folds, strict=True)):
            latest = rows.labels.columns(trial.latest(fold, rows.X, test)) + moved[fold]
            curve = log_losses(latest, rows.target[test], rows.weights[test], price, natural=natural)
            losses.append(np.where(np.isfinite(curve), curve, np.inf))
        trial.losses += np.mean(losses, axis=0).tolist()
        record = int(np.argmin(trial.losses))
        logits, scores = np.full((len(rows.X), rows.labels.n_classes), np.nan), []
        for fold, (price, (_, held_out)) in enumerate(zip(prices, rows.folds, strict=True)):
            own = rows.labels.columns(trial.record(fold, record, rows.X, held_out)) + moved[fold]
            logits[held_out] = own
            is_finite = bool(np.isfinite(own).all())
            scores.append(held_out_score(scoring, own, rows, held_out, price) if is_finite else -np.inf)
        return Outcome(trial.setting, trial.epochs[record] if trial.epochs else None, np.array(scores), logits)

    def _has_room_for_states(self, trials: list[Trial]) -> bool:
        """Whether what one part of a schedule leaves to the next takes no more than a quarter of the bound."""
        from crcen.training.engine import Trainer, n_parameters

        if self.memory_bytes is None or not isinstance(self.train, Trainer):
            return True
        # Parameters and two moments in float32, of those that go on and those they started from.
        n_inputs, jobs = self.train.data.n_inputs, [job for trial in trials for job in trial.jobs]
        return 2 * 12 * sum(n_parameters(job, n_inputs) for job in jobs) <= self.memory_bytes // 4


# -- screening on a subsample ------------------------------------------------------------------------------------------

# Rows of the subsample, or their share if that is more; tables with fewer than twice as many rows are not screened.
_SAMPLE_ROWS, _SAMPLE_SHARE = 3_000, 1 / 16
# Rows that each class must have in it, and in what a fold of it trains on and holds out.
_ROWS_OF_A_CLASS, _TRAINED, _HELD_OUT = 200, 20, 5
_FEWEST_SETTINGS = 8  # fewer settings of a weighting are not screened
# Its schedule, and which share of the settings is left after a part of it.
_SAMPLE_EPOCHS = 10
_SAMPLE_RUNGS = ((0.4, 0.5),)


@dataclass(frozen=True, eq=False)
class Subsample:
    """Rows for a first comparison of settings: about equally many of each class, weighted back to the class shares."""

    rows: Index  # in order
    factors: Array  # of the rows' weights
    times: float  # how many times as much information all rows hold: the penalty grows by it

    @classmethod
    def drawn(cls, target: NDArray[np.generic], weights: Array, seed: int) -> "Subsample | None":
        """A subsample of training rows; ``None`` where half of all rows would not do, or a class is too rare."""
        used = np.flatnonzero(weights > 0)
        labels, counts = np.unique(target[used], return_counts=True)
        size = max(_SAMPLE_ROWS, round(_SAMPLE_SHARE * len(used)))
        if 2 * size > len(used) or counts.min() < _ROWS_OF_A_CLASS:
            return None
        kept, left = counts.copy(), size
        for done, k in enumerate(np.argsort(counts)):  # rare classes are kept whole, the others share the rest
            kept[k] = min(counts[k], left // (len(counts) - done))
            left -= kept[k]
        rng = np.random.default_rng([seed, 3])
        drawn = [rng.choice(used[target[used] == k], n, False) for k, n in zip(labels, kept, strict=True)]
        rows, order = np.concatenate(drawn), np.argsort(np.concatenate(drawn))
        return cls(rows[order], np.repeat(counts / kept, kept)[order], float((1 / kept).sum() / (1 / counts).sum()))


def screen_on_subsample(
    run: SearchRun, settings: Sequence[Setting], keep: float, *, progress: Progress
) -> dict[int, Outcome]:
    """The rejected settings, by position, with their outcomes on the subsample; none where rows are few."""
    rivals: dict[int, list[int]] = {}
    for i, setting in enumerate(settings):
        if setting.recipe.draws_batches:  # the others are trained in full, by other steps
            rivals.setdefault(setting.weighting_index, []).append(i)
    screened, rows = [i for own in rivals.values() if len(own) >= _FEWEST_SETTINGS for i in own], run.rows
    sample = Subsample.drawn(rows.engine_target, rows.weights, run.seed) if screened else None
    folds = None if sample is None else folds_within(rows.folds, sample.rows, rows.target)
    if sample is None or folds is None:
        return {}
    own = rows.take(sample.rows)
    own = replace(own, weights=own.weights * sample.factors, folds=folds)
    part = replace(run, rows=own, train=trainer_on_some(run.train, sample.rows, sample.factors))
    fewer = [settings[i].recipe.on_fewer_rows(sample.times).replace(max_epochs=_SAMPLE_EPOCHS) for i in screened]
    short = [replace(settings[i], recipe=recipe) for i, recipe in zip(screened, fewer, strict=True)]
    found = part.outcomes(short, halving=True, progress=progress, rungs=_SAMPLE_RUNGS)
    outcomes = dict(zip(screened, found, strict=True))
    behind: dict[int, Outcome] = {}
    for positions in rivals.values():
        known = (i for i in positions if i in outcomes)
        ranked = sorted(known, key=lambda i: (outcomes[i].is_dropped, -outcomes[i].merit))
        for i in ranked[max(2, math.ceil(keep * len(ranked))) :]:
            logits = np.full((len(rows.X), *outcomes[i].logits.shape[1:]), np.nan)
            logits[sample.rows] = outcomes[i].logits
            behind[i] = replace(outcomes[i], setting=settings[i], logits=logits, is_dropped=True)
    return behind


def folds_within(folds: Sequence[Fold], own: Index, target: Index) -> list[Fold] | None:
    """The folds as far as they are within some rows, counted there; ``None`` where a class is too rare in one."""
    place = np.full(len(target), -1)
    place[own] = np.arange(len(own))
    found = [(place[a][place[a] >= 0], place[b][place[b] >= 0]) for a, b in folds]
    for trained, held_out in found:
        for part, fewest in ((trained, _TRAINED), (held_out, _HELD_OUT)):
            if min(np.sum(target[own[part]] == label) for label in np.unique(target)) < fewest:
                return None
    return found


# -- the border of the grid --------------------------------------------------------------------------------------------

# Steps beyond the grid that are taken at most; each but the last must be an improvement.
_BORDER_STEPS = 3
# A step that gains less than this share of the score is the last: on many rows a longer schedule is always a little
# better, and its folds cost as much as the whole search.
_WORTH_A_FURTHER_STEP = 0.005
# A schedule is doubled up to this many epochs: what tables of few rows have from the start.
LONGEST_SCHEDULE = 30
# One that can grow by less than this is left as it is.
_WORTH_GROWING = 1.5


def widened(run: SearchRun, outcomes: list[Outcome], *, l2: bool, epochs: bool, progress: Progress) -> list[Outcome]:
    """The outcomes of a search and of points beyond its grid, as far as the best point is on a border.

    Points beyond have a smaller or larger penalty if ``l2``, and a longer schedule if ``epochs``.
    """
    found, tried = list(outcomes), {_key(outcome.setting) for outcome in outcomes}
    for step in range(_BORDER_STEPS):
        before = _best(found)
        candidates = [s for s in _beyond(before, found, l2, epochs) if _key(s) not in tried]
        if not candidates:
            break
        tried.update(map(_key, candidates))
        own = part_of(progress, step / _BORDER_STEPS, (step + 1) / _BORDER_STEPS)
        try:
            found += run.outcomes(candidates, halving=False, progress=own)
        except OutOfTime:
            break
        if not _best(found).merit - before.merit >= _WORTH_A_FURTHER_STEP * abs(before.merit):
            break
    progress(1.0)
    return found


def border_notes(chosen: Outcome, outcomes: Sequence[Outcome]) -> list[str]:
    """What of the chosen setting is still the last of its kind that was tried, a sentence each."""
    notes, recipe = [], chosen.setting.recipe
    penalties = _penalties(chosen, outcomes)
    if len(penalties) > 1 and recipe.l2 in (penalties[0], penalties[-1]):
        which, other = ("smallest", "smaller") if recipe.l2 == penalties[0] else ("largest", "larger")
        notes.append(f"the best l2, {recipe.l2:g}, is the {which} that was tried: a {other} value may be better")
    if _is_at_the_end(chosen):
        notes.append(f"the best number of epochs, {chosen.epochs}, is the maximum: a longer schedule may be better")
    return notes


def _best(outcomes: Sequence[Outcome]) -> Outcome:
    return max(outcomes, key=lambda outcome: (not outcome.is_dropped, outcome.merit))


def _key(setting: Setting) -> tuple[object, ...]:
    return setting.weighting_index, setting.recipe


def _penalties(best: Outcome, outcomes: Sequence[Outcome]) -> list[float]:
    index = best.setting.weighting_index
    return sorted({one.setting.recipe.l2 for one in outcomes if one.setting.weighting_index == index})


def _is_at_the_end(outcome: Outcome) -> bool:
    recipe = outcome.setting.recipe
    return recipe.draws_batches and outcome.epochs is not None and outcome.epochs == recipe.max_epochs


def _beyond(best: Outcome, outcomes: Sequence[Outcome], l2: bool, epochs: bool) -> list[Setting]:
    """The neighbours of the best point on the other side of each border it is on."""
    recipe, found = best.setting.recipe, []
    penalties = _penalties(best, outcomes)
    if l2 and len(penalties) > 1:
        ends = (penalties[:2], penalties[:-3:-1])  # the last two of each side, the outer one first
        for last, before in ends:
            if recipe.l2 == last and min(last, before) > 0.0:
                found.append(recipe.replace(l2=float(f"{last**2 / before:.6g}")))
    schedule = recipe.max_epochs
    if epochs and schedule is not None and _is_at_the_end(best):
        longer = min(2 * schedule, LONGEST_SCHEDULE)
        if longer >= _WORTH_GROWING * schedule:
            found.append(recipe.replace(max_epochs=longer))
    return [replace(best.setting, recipe=one) for one in found]


# -- the best settings, refitted ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Refitted:
    """A setting's outcome, its networks on all rows, and their mean logits (n, K) at the price out of fold."""

    outcome: Outcome
    results: list[TrainingResult]
    oof: Array


def best_few(outcomes: list[Outcome], n_settings: int) -> list[Outcome]:
    """The best outcome, and the next best of its weighting that were not dropped."""
    finite = [outcome for outcome in outcomes if not outcome.is_dropped and np.isfinite(outcome.merit)]
    if not finite:
        raise InvalidInput("no setting has a finite score; look for extreme values, or lower the learning rate.")
    ranked = sorted(finite, key=lambda outcome: -outcome.merit)
    chosen = ranked[0].setting.weighting_index
    return [outcome for outcome in ranked if outcome.setting.weighting_index == chosen][:n_settings]


def refit_settings(
    run: SearchRun, kept: list[Outcome], n_members: int, progress: Progress, n_on_folds: int | None = None
) -> list[Refitted]:
    """Networks of some settings on all rows, as far as time allows; settings without a finite network are left out."""
    found: list[Refitted] = []
    for i, outcome in enumerate(kept):
        try:
            own = part_of(progress, i / len(kept), (i + 1) / len(kept))
            results, oof = run.refit(outcome, n_members, own, n_on_folds)
        except OutOfTime:
            if found:
                break
            raise
        if any(result.network is not None for result in results):
            found.append(Refitted(outcome, results, oof))
    if not found:
        raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or look for extreme values.")
    return found
