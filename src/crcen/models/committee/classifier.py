"""CommitteeClassifier: networks and boosted trees, combined out of fold and decided at one price."""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from crcen._support.progress import part_of, progress_bar
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.atomic import all_or_nothing
from crcen.models.classes.fitting import check_no_positive
from crcen.models.classes.search import ClassSearchRows
from crcen.models.committee.classes import combine_classes
from crcen.models.committee.leaderboard import leaderboard
from crcen.models.committee.members import (
    KINDS,
    QUICK,
    Candidate,
    How,
    fit_candidate,
    grid_of_networks,
    kind_of,
    usual_members,
)
from crcen.models.committee.refitting import refitted_parts
from crcen.models.committee.stacking import cross_fitted_logits, fit_stacking
from crcen.models.ensemble import Ensemble
from crcen.models.fitted import FittedEnsemble, write_ensemble
from crcen.models.fitting import OUT_OF_FOLD_ROWS, base_seed
from crcen.models.search.classifier_cv import CRCENClassifierCV
from crcen.models.search.folds import checked_folds
from crcen.models.search.grid import SearchRows
from crcen.models.search.run import held_out_shift
from crcen.models.validation import check_classes, check_number, check_rows, check_weights
from crcen.models.wished import before_wish, move_to_wish
from crcen.theory.key_equation import key_equation_of_logits, on_rows, without_test
from crcen.theory.labels import Labels, is_for_classes
from crcen.theory.price import Price, is_price_of_two
from crcen.training.recipe import Inputs

__all__ = ["CommitteeClassifier"]

Array = NDArray[np.float64]


class CommitteeClassifier(FittedEnsemble, ClassifierMixin, BaseEstimator):
    """Networks and boosted trees that decide together at a stated price.

    Every member is searched on the same folds, unweighted. Weights that are never negative, drawn towards equal ones,
    combine their natural out-of-fold logits. The output bias is then solved for, so that the key equation holds at the
    price on rows that no member saw. What the committee claims out of fold comes from weights of the other folds.

    Parameters
    ----------
    weighting : "balanced", None, float, Lam, Alpha, CostRatio, Budget, dict, or a wish, default="balanced"
        What a miss is worth, as in `CRCENClassifier`; a wish is met out of fold. It decides, and does not weigh the
        training.
    members : sequence, default=None
        ``"networks"`` (the best settings of `CRCENClassifierCV`), ``"trees"`` (scikit-learn's histogram boosting),
        ``"forest"`` (trees cut at random), or classifiers with ``predict_proba``; the latter cannot be saved or
        exported. Their probabilities must be natural: wrap what was weighted or resampled in `PosteriorCorrection`.
        ``None`` is networks and trees, with a forest for two classes and up to 60,000 rows.
    cv : int, splitter or iterable, default=4
        As in scikit-learn; an int is stratified folds, shuffled by ``random_state``.
    time_limit : float, default=None
        Seconds. Each member has an equal share of what is left; past most of it, it begins nothing that a first
        answer does not need, and ends with one setting. What was begun is finished.
    n_jobs : int, default=None
        Tree fits at a time; ``None`` is the number of processors this process may use. The result does not depend on
        it.
    pos_label : default=None
        The positive class; ``None`` is the rarer one.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where networks train.
    random_state : int, RandomState or None, default=None
        Seed.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    ensemble_ : Ensemble
        The fitted model as one value.
    leaderboard_ : list of MemberScore
        The members and the committee, out of fold.
    member_weights_ : ndarray of shape (n_members,)
        What each member's natural logit is multiplied by.
    chosen_settings_ : list
        What each member's search chose, to train by again (`refit_on`).
    weighting_, key_equation_, classes_, pos_label_
        As in `CRCENClassifier`, all at the price.
    oof_decision_function_ : ndarray of shape (n,)
        Out-of-fold `decision_function`, by weights of the other folds; NaN for rows in no test fold. For more
        than two classes ``oof_proba_`` has the probabilities, (n, K).
    oof_key_equation_ : KeyEquation
        The key equation on these before the solve.
    oof_shift_ : float
        What the solve on them then added, in log-odds.
    n_splits_, fit_time_
        Folds, and seconds.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from crcen import Budget, CommitteeClassifier
    >>> X, y = make_classification(300, weights=[0.9], random_state=0)
    >>> clf = CommitteeClassifier(Budget(10), random_state=0).fit(X, y)  # doctest: +SKIP
    >>> print(clf.leaderboard_[0])  # doctest: +SKIP
    """

    def __init__(
        self,
        weighting: Any = "balanced",
        *,
        members: Any = None,
        cv: Any = 4,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        pos_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.weighting = weighting
        self.members = members
        self.cv = cv
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.pos_label = pos_label
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    takes_missing = True  # trees and networks both learn from gaps

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> "CommitteeClassifier":
        """Search every member, combine them, solve at the price.

        Parameters
        ----------
        X : array or data frame of shape (n, n_features)
            Numbers; NaN where a cell is missing.
        y : array of shape (n,)
            Two classes or more.
        sample_weight : array of shape (n,), optional
            Row weights.
        groups : array of shape (n,), optional
            For splitters that keep groups together.

        Returns
        -------
        self
        """
        with all_or_nothing(self):
            self._fit(X, y, sample_weight, groups)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        start = time.perf_counter()
        self._check_parameters()
        X, y = check_rows(self, X, y, reset=True)
        classes = check_classes(y)
        weights = check_weights(sample_weight, X)
        of_classes, seed = is_for_classes(self.weighting, classes), base_seed(self.random_state)
        members = self._given_members() or usual_members(len(X), of_classes=of_classes)
        if of_classes:
            check_no_positive(self, classes)
            labels: Any = Labels(classes)
        else:
            labels = Labels.from_rows(classes, y, weights, self.pos_label)
        target = labels.target(y)
        folds = checked_folds(self.cv, X, y, target, weights, groups, seed)
        kind: Any = ClassSearchRows if of_classes else SearchRows
        rows = kind(X=X, target=target, weights=weights, y=y, labels=labels, folds=folds)
        price = rows.resolve(self.weighting if of_classes else before_wish(self.weighting))
        has_gaps = bool(np.isnan(X).any())
        inputs = Inputs(missing="indicator" if has_gaps else "error")
        few = grid_of_networks(len(X))
        grid = CRCENClassifierCV(None, inputs=inputs, **few).grid(len(X))
        found: dict[int, Candidate] = {}
        with progress_bar(type(self).__name__, visible=bool(self.verbose)) as progress:
            for place in sorted(range(len(members)), key=lambda i: kind_of(members[i]) != QUICK):
                done = len(found) / len(members)
                own = part_of(progress, done, done + 1 / len(members))
                seconds = self._share_of_time(start, len(members) - len(found))
                how = How(seed, self.device, self._threads(), seconds)
                found[place] = fit_candidate(members[place], rows, grid, how, own)
        candidates = [found[place] for place in range(len(members))]
        self.chosen_settings_ = [one.chosen for one in candidates]
        if of_classes:
            combine_classes(self, candidates, rows, price)
        else:
            self._combine(candidates, rows, price)
            move_to_wish(self, target, weights)
        self.n_splits_, self.fit_time_ = len(folds), time.perf_counter() - start

    def refit_on(self, X: Any, y: Any, sample_weight: Any = None, *, n_networks: int = 2) -> "CommitteeClassifier":
        """Train the members on other rows at the settings that were chosen, without a search.

        What each member counts for, the intercept and the price stay as they are; `crcen.training_error` compares such
        committees of random halves of the rows.

        Parameters
        ----------
        X, y, sample_weight
            Rows, labels and weights, as in `fit`.
        n_networks : int, default=2
            Networks of each setting, at most as many as `fit` trains.

        Returns
        -------
        CommitteeClassifier
            Another one; it has answers, and neither a leaderboard nor out-of-fold rows.
        """
        ensemble, settings = self.ensemble_, getattr(self, "chosen_settings_", None)
        if settings is None:
            raise InvalidInput("refit_on needs a committee that was fitted with this version.")
        fresh = clone(self)
        X, y = check_rows(fresh, X, y, reset=True)
        weights, seed = check_weights(sample_weight, X), base_seed(self.random_state)
        how: dict[str, Any] = {
            "n_networks": n_networks,
            "seed": seed,
            "device": self.device,
            "threads": self._threads(),
        }
        parts: list[Any] = []
        members = self._given_members() or KINDS[: len(settings)]
        for member, chosen in zip(members, settings, strict=True):
            parts += refitted_parts(member, chosen, ensemble.labels, X, y, weights, **how)
        write_ensemble(fresh, replace(ensemble, members=tuple(parts)), None)
        return fresh

    def _given_members(self) -> list[Any]:
        """The members that were asked for; none where that is left to `fit`."""
        if self.members is None:
            return []
        return [self.members] if isinstance(self.members, str) else list(self.members)

    def _check_parameters(self) -> None:
        names = [kind_of(member) for member in self._given_members()]
        if not names and self.members is not None:
            raise InvalidParameter("members of CommitteeClassifier must not be empty.")
        if len(set(names)) < len(names):
            raise InvalidParameter(f"members of CommitteeClassifier must differ from each other: got {names}.")
        if self.time_limit is not None:
            check_number(self, "time_limit", low=0, open_low=True)
        if self.n_jobs is not None:
            check_number(self, "n_jobs", low=1, integer=True)

    def _threads(self) -> int:
        return joblib.cpu_count() if self.n_jobs is None else int(self.n_jobs)

    def _share_of_time(self, start: float, n_members: int) -> float | None:
        """What each of the members that are left may take of the seconds that are left."""
        if self.time_limit is None:
            return None
        return max(0.0, float(self.time_limit) - (time.perf_counter() - start)) / n_members

    def _combine(self, candidates: list[Candidate], rows: SearchRows, price: Price) -> None:
        """Weights, the solve at the price, and everything that is kept."""
        logits = np.stack([one.logits for one in candidates], axis=1)
        seen = np.isfinite(logits).all(axis=1)
        stacking = fit_stacking(logits[seen], rows.target[seen], rows.weights[seen])
        held_out = [test for _, test in rows.folds]
        crossed = cross_fitted_logits(logits, rows.target, rows.weights, held_out)
        weighted = crossed + price.logit_shift
        known = np.isfinite(weighted)
        equation = key_equation_of_logits(rows.target[known], weighted[known], price, rows.weights[known])
        self.oof_key_equation_ = on_rows(without_test(equation), OUT_OF_FOLD_ROWS)
        self.oof_shift_ = held_out_shift(weighted, rows, price)
        pairs = zip(candidates, stacking.weights, strict=True)
        parts = [(part, weight / len(one.parts)) for one, weight in pairs for part in one.parts]
        ensemble = Ensemble(
            rows.labels,
            price,
            rows.resolve(None),
            tuple(part for part, _ in parts),
            stacking.intercept + price.logit_shift + self.oof_shift_,
            member_weights=np.array([weight for _, weight in parts]),
        )
        solved = ensemble.key_equation(weighted[known] + self.oof_shift_, rows.target[known], rows.weights[known])
        write_ensemble(self, ensemble, on_rows(solved, OUT_OF_FOLD_ROWS))
        self.member_weights_ = stacking.weights
        self.oof_decision_function_ = ensemble.decision(ensemble.priced(weighted + self.oof_shift_)[1])
        self.leaderboard_ = leaderboard(candidates, stacking.weights, crossed, partial(_judged, rows=rows))

    def __sklearn_tags__(self) -> Any:
        """Any number of classes, unless the weighting is a price of two; missing cells are learned from."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not is_price_of_two(self.weighting)
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True  # made dense inside, within a bound
        return tags


def _judged(logits: Array, rows: SearchRows) -> tuple[float, float, float]:
    """Log loss, average precision and area under the curve of out-of-fold logits."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    known = np.isfinite(logits) & (rows.weights > 0)
    target, own, weights = rows.target[known], logits[known], rows.weights[known]
    losses = np.logaddexp(0.0, np.where(target, -own, own))
    return (
        float(weights @ losses / weights.sum()),
        float(average_precision_score(target, own, sample_weight=weights)),
        float(roc_auc_score(target, own, sample_weight=weights)),
    )
