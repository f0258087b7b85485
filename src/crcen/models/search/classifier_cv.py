"""CRCENClassifierCV: grid × folds as stacks, then the best setting refitted, with its out-of-fold evidence."""

import time
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.progress import progress_bar
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.atomic import all_or_nothing
from crcen.models.automatic import encoding_of, epochs_of, scales_of, solver_of
from crcen.models.classifier import CRCENClassifier
from crcen.models.probability import logits_at_price
from crcen.models.search.fold_shift import agreed_shift, shifts_of_folds
from crcen.models.search.folds import checked_folds
from crcen.models.search.grid import Outcome, SearchRows, Setting, is_list_of_networks, operating_points
from crcen.models.search.scoring import LOG_LOSSES, check_scoring, held_out_score, log_losses, score_table
from crcen.models.search.trials import Trial, run_trials
from crcen.models.validation import (
    check_choice,
    check_flag,
    check_hidden,
    check_labels,
    check_number,
    check_rows,
    check_weights,
)
from crcen.theory.key_equation import key_equation_of_logits, without_test
from crcen.theory.weighting import ClassWeighting
from crcen.training.balance import solve_shifts
from crcen.training.engines import ENGINES, Engine, trainer_on
from crcen.training.jobs import TrainingJob, TrainingResult

__all__ = ["CRCENClassifierCV"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Held-out logits of a search are kept for every epoch while they take no more than this, or than a quarter of the bound
# on memory; else for every second epoch, every third, and so on.
_RECORD_BYTES = 2**30


class CRCENClassifierCV(CRCENClassifier):
    """CRCEN networks with cross-validated hidden units, penalty, epochs and, if several are given, weighting.

    All settings and folds are trained as stacks. The number of epochs is chosen for each setting, common to its
    folds, as a cut of one schedule; the refit follows the same schedule cut there. No fold's network is stopped by the
    rows that it is scored on alone.

    Parameters
    ----------
    weighting : as in CRCENClassifier, or a list of such, default="balanced"
        A list is searched. A weight that was chosen by F1 or G-mean is not a stated price any more.
    hidden : int, tuple, or a list of such, default=[(64,), (64, 32)]
        A list is searched; a tuple is one network.
    l2 : float or list of float, default=[1e-4, 1e-3, 1e-2, 1e-1]
        A list is searched.
    encoding : str or list of str, default=["standard", "steps"]
        A list is searched.
    cv : int, splitter or iterable, default=4
        As in scikit-learn; an int is stratified folds, shuffled by ``random_state``.
    scoring : str, callable or None, default=None
        ``None`` is ``"neg_weighted_log_loss"``, or ``"neg_log_loss"`` of the natural posterior with several weightings:
        the weighted loss has its minimum elsewhere for every weight and cannot compare them. Also ``"f1"``,
        ``"g_mean"``, ``"average_precision"``, any scorer that scikit-learn knows, or a callable ``(estimator, X, y)``.
    one_standard_error : bool, default=False
        Take the simplest setting (fewest hidden units, then largest l2) within one standard error of the best.
    halving : bool, default=True
        Where a weighting has eight settings or more, look at four points of the schedule which of them are far behind,
        and end them there; and end those that gain no more. On the benchmark the winner is the same within noise. Not
        with ``one_standard_error``, which wants all settings, nor where ``memory_bytes`` has no room for it.
    engine : {"local", "ray"}, default="local"
        Where the stacks are trained: in this process, or as tasks of a Ray cluster. The result is the same.
    memory_bytes : int, default=None
        Bound on the memory of the search beside the rows themselves; a stack that would exceed it is split, and what
        cannot be split is refused. ``None`` is half of what is free.
    balance : "oof", True or False, default="oof"
        Solve the output bias on the out-of-fold logits, on the training rows as `CRCENClassifier` does, or not at all.
        On new rows of the benchmark the first had the best probabilities. Where folds leave rows out, as those over
        time do, the shift is shrunk by how far the folds disagree about it beyond sampling: a drift is no bias.
    n_members, activation, solver, max_epochs, batch_size, learning_rate, tol, bins, missing, column_scales,
    standardize, pos_label, device, probability, random_state, verbose
        As in `CRCENClassifier`. ``max_epochs`` is the length of the schedule of which a cut is chosen.

    Attributes
    ----------
    cv_results_ : dict of arrays
        In the form of `sklearn.model_selection.GridSearchCV`; also ``epochs`` and ``is_dropped`` (by halving).
    best_index_, best_params_, best_score_, best_epochs_
        The chosen setting.
    oof_decision_function_ : ndarray of shape (n,)
        Out-of-fold `decision_function` of the chosen setting, members averaged and under the probability map; NaN for
        rows in no test fold, and that of the last fold for rows in several.
    oof_key_equation_ : KeyEquation
        The key equation on out-of-fold rows, before any solve on them. It shows overfitting, which training rows hide,
        not whether probabilities are right in the mean: errors of folds cancel, so it has no Z and no p-value.
    oof_shift_ : float
        What the solve on out-of-fold rows then added to the logit: how far off, in log-odds, the networks were on rows
        they did not see, as far as folds over time agree. 0 without that solve.
    oof_counts_ : list of ConfusionCounts
        Out-of-fold decisions of the search for every weighting, each at its own best setting (one network a fold,
        before the balance solve, so that those of the chosen one may differ a little from `oof_decision_function_`).
    oof_expense_ : ExpenseTable or None
        Expense along the weightings searched, where there are several of increasing price.
    n_splits_, scorer_, search_time_
        Folds, the scoring used, seconds of search and refit.
    """

    def __init__(
        self,
        weighting: Any = "balanced",
        *,
        hidden: Any = ((64,), (64, 32)),
        l2: Any = (1e-4, 1e-3, 1e-2, 1e-1),
        n_members: int = 4,
        cv: Any = 4,
        scoring: Any = None,
        one_standard_error: bool = False,
        halving: bool = True,
        engine: str = "local",
        memory_bytes: int | None = None,
        activation: str = "relu",
        solver: str = "auto",
        max_epochs: int | None = None,
        batch_size: int = 128,
        learning_rate: float = 0.01,
        tol: float = 1e-5,
        encoding: Any = ("standard", "steps"),
        bins: int = 12,
        missing: str = "error",
        column_scales: Any = "auto",
        standardize: bool = True,
        balance: Any = "oof",
        probability: str = "shift",
        pos_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            weighting,
            hidden=hidden,
            activation=activation,
            l2=l2,
            n_members=n_members,
            solver=solver,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            tol=tol,
            encoding=encoding,
            bins=bins,
            missing=missing,
            column_scales=column_scales,
            standardize=standardize,
            balance=balance,
            probability=probability,
            pos_label=pos_label,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.engine = engine
        self.memory_bytes = memory_bytes
        self.halving = halving

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> "CRCENClassifierCV":
        """Search, choose and refit.

        Parameters
        ----------
        X, y, sample_weight
            As in `CRCENClassifier.fit`.
        groups : array of shape (n,), optional
            For splitters that keep groups together.
        """
        with all_or_nothing(self):
            self._search_and_refit(X, y, sample_weight, groups)
        return self

    def _search_and_refit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        start = time.perf_counter()
        settings = self._settings()
        scoring = self._scoring(settings)
        X, y = check_rows(self, X, y, reset=True)
        self.classes_ = check_labels(y)
        weights = check_weights(sample_weight, X)
        self.pos_label_ = self._positive_label(y, weights)
        target = y == self.pos_label_
        seed = self._base_seed()
        folds = checked_folds(self.cv, X, y, target, weights, groups, seed)
        if len(folds) < 2 and self.one_standard_error:
            raise InvalidParameter("one_standard_error needs at least two folds: got 1.")
        rows = SearchRows(X, y, target, weights, folds)
        with progress_bar(type(self).__name__, visible=bool(self.verbose)) as progress:
            train = self._trainer(rows)
            outcomes = self._search(settings, rows, scoring, seed, train, lambda share: progress(0.7 * share))
            best = self._choose(outcomes)
            chosen = outcomes[best]
            self.weighting_ = self._resolve_one(chosen.setting.weighting, target, weights)
            members, oof = self._refit(chosen, rows, seed, train, lambda share: progress(0.7 + 0.3 * share))
        self._keep(outcomes, best, scoring, rows, members, oof)
        self.search_time_ = time.perf_counter() - start

    def _penalty(self) -> float:
        return float(self.best_params_["l2"])

    # -- what is searched ----------------------------------------------------------------------------------------

    def _settings(self) -> list[Setting]:
        """The grid, checked."""
        weightings = self.weighting if isinstance(self.weighting, list) else [self.weighting]
        hidden = self.hidden if is_list_of_networks(self.hidden) else [self.hidden]
        l2 = list(self.l2) if isinstance(self.l2, list | tuple | np.ndarray) else [self.l2]
        encodings = list(self.encoding) if isinstance(self.encoding, list | tuple) else [self.encoding]
        for name, values in (("weighting", weightings), ("hidden", hidden), ("l2", l2), ("encoding", encodings)):
            if not len(values):
                raise InvalidParameter(f"{name} of {type(self).__name__} must not be an empty list.")
        settings = []
        for (index, weighting), h, penalty, encoding in product(enumerate(weightings), hidden, l2, encodings):
            layers = check_hidden(self, h)
            # Every setting must be one that CRCENClassifier takes; its own check says what is wrong.
            CRCENClassifier(
                weighting,
                hidden=h,
                l2=penalty,
                n_members=self.n_members,
                activation=self.activation,
                solver=self.solver,
                max_epochs=self.max_epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                tol=self.tol,
                encoding=encoding,
                bins=self.bins,
                missing=self.missing,
                column_scales=self.column_scales,
                standardize=self.standardize,
                probability=self.probability,
                device=self.device,
                verbose=self.verbose,
            )._check_parameters()
            settings.append(Setting(index, weighting, layers, float(penalty), encoding_of(encoding, layers)))
        check_choice(self, "balance", (True, False, "oof"))
        check_flag(self, "one_standard_error")
        check_flag(self, "halving")
        check_choice(self, "engine", tuple(ENGINES))
        if self.memory_bytes is not None:
            check_number(self, "memory_bytes", low=1, integer=True)
        return settings

    def _scoring(self, settings: list[Setting]) -> Any:
        several = len({s.weighting_index for s in settings}) > 1
        if self.scoring is None:
            return "neg_log_loss" if several else "neg_weighted_log_loss"
        if several and self.scoring == "neg_weighted_log_loss":
            raise InvalidParameter(
                "scoring='neg_weighted_log_loss' cannot compare weightings, since its minimum depends on the weight; "
                "use scoring=None for the natural log loss, or search one weighting."
            )
        return check_scoring(self.scoring)

    # -- the search ----------------------------------------------------------------------------------------------

    def _job(self, setting: Setting, lam: float, seed: int, member: int, n_rows: int) -> TrainingJob:
        solver = solver_of(self.solver, setting.hidden)
        return TrainingJob(
            lam=lam,
            hidden=setting.hidden,
            activation=self.activation,
            l2=setting.l2,
            solver=solver,
            max_epochs=epochs_of(self.max_epochs, solver, n_rows, self.batch_size),
            batch_size=int(self.batch_size),
            learning_rate=float(self.learning_rate),
            tol=float(self.tol),
            seed=self._member_seed(seed, member),
            shuffle_seed=seed,
            encoding=setting.encoding,
            bins=int(self.bins),
            missing=self.missing,
            column_scales=self._has_scales(setting, solver),
            standardize=bool(self.standardize),
            balance=self._balances_training_rows(),
        )

    def _has_scales(self, setting: Setting, solver: str) -> bool:
        return scales_of(self.column_scales, setting.encoding, solver, standardize=bool(self.standardize))

    def _search(
        self, settings: list[Setting], rows: SearchRows, scoring: Any, seed: int, train: Engine, progress: Any
    ) -> list[Outcome]:
        """Every setting's outcome at its best epoch (L-BFGS: where it ended)."""
        trials = []
        for setting in settings:
            jobs = []
            for train_rows, held_out in rows.folds:
                lam = self._resolve_fold(setting.weighting, rows, train_rows).lam
                job = self._job(setting, lam, seed, 0, len(rows.X))
                job = replace(job, pool=train_rows, balance=False)
                if job.solver == "adam":
                    size = 4 * len(settings) * sum(len(test) for _, test in rows.folds) * job.max_epochs
                    job = replace(job, val_rows=held_out, record_every=-(-size // self._record_bytes()))
                jobs.append(job)
            trials.append(Trial(setting, jobs))
        return run_trials(
            trials,
            train,
            lambda trial: self._outcome(trial, rows, scoring),
            halving=self.halving and not self.one_standard_error and self._has_room_for_states(trials, train),
            progress=progress,
        )

    def _outcome(self, trial: Trial, rows: SearchRows, scoring: Any) -> Outcome:
        """Choose the epoch by the folds' mean log loss, then score there."""
        natural = LOG_LOSSES.get(scoring, False) if isinstance(scoring, str) else False
        weightings = [self._resolve_fold(trial.setting.weighting, rows, train_rows) for train_rows, _ in rows.folds]
        losses = []
        for fold, (weighting, (_, test)) in enumerate(zip(weightings, rows.folds, strict=True)):
            latest = trial.latest(fold, rows.X[test])
            curve = log_losses(latest, rows.target[test], rows.weights[test], weighting, natural=natural)
            losses.append(np.where(np.isfinite(curve), curve, np.inf))
        trial.losses += np.mean(losses, axis=0).tolist()
        record = int(np.argmin(trial.losses))
        logits = np.full(len(rows.X), np.nan)
        scores = []
        for fold, (weighting, (_, held_out)) in enumerate(zip(weightings, rows.folds, strict=True)):
            own = trial.record(fold, record, rows.X[held_out])
            logits[held_out] = own
            scores.append(
                held_out_score(
                    scoring, own, rows.X[held_out], rows.y[held_out], rows.target[held_out], rows.weights[held_out],
                    weighting, self.classes_, self._positive_is_last(),
                )
                if np.isfinite(own).all()
                else -np.inf
            )  # fmt: skip
        return Outcome(trial.setting, trial.epochs[record] if trial.epochs else None, np.array(scores), logits)

    def _choose(self, outcomes: list[Outcome]) -> int:
        means = np.array([-np.inf if outcome.is_dropped else outcome.merit for outcome in outcomes])
        best = int(np.argmax(means))
        if not np.isfinite(means[best]):
            raise InvalidInput("no setting has a finite score; check scoring, or lower learning_rate.")
        if not self.one_standard_error:
            return best
        scores = outcomes[best].scores
        floor = means[best] - scores.std(ddof=1) / np.sqrt(len(scores))
        good = np.flatnonzero(means >= floor).tolist()
        return min(good, key=lambda i: (sum(outcomes[i].setting.hidden), -outcomes[i].setting.l2, -means[i]))

    # -- the chosen setting --------------------------------------------------------------------------------------

    def _refit(
        self, chosen: Outcome, rows: SearchRows, seed: int, train: Engine, progress: Any
    ) -> tuple[list[TrainingResult], Array]:
        """The members on all rows, and their out-of-fold logits by networks on each fold, in one stack.

        The first member's networks on the folds are those of the search, unless they are to be balanced.
        """
        known = 0 if self._balances_training_rows() else 1
        jobs = []
        for member in range(self.n_members):
            for fold in (None, *(train_rows for train_rows, _ in rows.folds)):
                if fold is not None and member < known:
                    continue
                resolved = self.weighting_ if fold is None else self._resolve_fold(chosen.setting.weighting, rows, fold)
                job = self._job(chosen.setting, resolved.lam, seed, member, len(rows.X))
                jobs.append(replace(job, pool=fold, stop_epoch=chosen.epochs))
        results = train(jobs, progress=progress)
        members = [result for job, result in zip(jobs, results, strict=True) if job.pool is None]
        on_folds = [result.network for job, result in zip(jobs, results, strict=True) if job.pool is not None]
        oof = np.full(len(rows.X), np.nan)
        for i, (_, held_out) in enumerate(rows.folds):
            networks = [network for network in on_folds[i :: len(rows.folds)] if network is not None]
            logits = [network.logits(rows.X[held_out]) for network in networks]
            oof[held_out] = np.mean([*logits, chosen.logits[held_out]] if known else logits, axis=0)
        return members, oof

    def _has_room_for_states(self, trials: list[Trial], train: Engine) -> bool:
        """Whether what one part of a schedule leaves to the next takes no more than a quarter of the bound."""
        from crcen.training.engine import Trainer

        if self.memory_bytes is None or not isinstance(train, Trainer):
            return True
        # Those that go on and those they started from are there at a time.
        return 2 * sum(train.state_bytes(job) for trial in trials for job in trial.jobs) <= self.memory_bytes // 4

    def _trainer(self, rows: SearchRows) -> Engine:
        bound = None if self.memory_bytes is None else self.memory_bytes // 2
        how = {"sample_weight": rows.weights, "device": self.device, "memory_bytes": bound}
        return trainer_on(self.engine, rows.X, rows.target, **how)

    def _record_bytes(self) -> int:
        return _RECORD_BYTES if self.memory_bytes is None else min(_RECORD_BYTES, max(1, self.memory_bytes // 4))

    def _keep(
        self,
        outcomes: list[Outcome],
        best: int,
        scoring: Any,
        rows: SearchRows,
        members: list[TrainingResult],
        oof: Array,
    ) -> None:
        """Set every fitted attribute."""
        chosen = outcomes[best]
        solver = solver_of(self.solver, chosen.setting.hidden)
        self.column_scales_ = self._has_scales(chosen.setting, solver)
        self._store(self._finite(members), rows.X, rows.target, rows.weights)
        seen = np.isfinite(oof)
        equation = key_equation_of_logits(rows.target[seen], oof[seen], self.weighting_, rows.weights[seen])
        self.oof_key_equation_ = without_test(equation)
        self.oof_shift_ = 0.0
        if self.balance == "oof":
            self.oof_shift_ = self._held_out_shift(oof, seen, rows)
            oof, self.shift_ = oof + self.oof_shift_, self.shift_ + self.oof_shift_
        self._fit_probability(rows.target, oof, rows.weights)
        if self.balance == "oof" or self.probability != "shift":
            self._judge_training_rows(rows.X, rows.target, rows.weights)
        _, oof = logits_at_price(self.probability_map_, oof, self.weighting_)
        self.oof_decision_function_ = oof if self._positive_is_last() else -oof
        self.best_index_, self.scorer_, self.n_splits_ = best, scoring, len(rows.folds)
        self.best_params_, self.best_epochs_ = chosen.setting.params(), chosen.epochs
        self.best_score_ = float(chosen.scores.mean())
        self.cv_results_ = score_table(
            [outcome.setting.params() for outcome in outcomes],
            np.array([outcome.epochs or 0 for outcome in outcomes]),
            np.array([outcome.is_dropped for outcome in outcomes]),
            np.array([outcome.scores for outcome in outcomes]),
        )
        self.oof_counts_, self.oof_expense_ = operating_points(outcomes, rows, self._resolve_one)

    def _held_out_shift(self, oof: Array, seen: NDArray[np.bool_], rows: SearchRows) -> float:
        """The solve on out-of-fold rows; where folds leave rows out, as those over time do, what they agree on."""
        row_weights = self.weighting_.row_weights(rows.target, rows.weights)
        shift = float(solve_shifts(rows.target[seen], oof[None, seen], row_weights[None, seen])[0])
        if seen.all():
            return shift
        return agreed_shift(shift, *shifts_of_folds(rows.target, oof, row_weights, [test for _, test in rows.folds]))

    def _resolve_fold(self, weighting: Any, rows: SearchRows, fold: Index) -> ClassWeighting:
        return self._resolve_one(weighting, rows.target[fold], rows.weights[fold])
