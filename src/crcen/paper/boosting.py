"""Compared methods by boosting: AdaC1 to AdaC3, calibrated AdaBoost, RUSBoost by SAMME.R, BalanceCascade."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import AdaBoostClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from crcen.exceptions import InvalidInput
from crcen.models.fitted import transactional_fit
from crcen.models.validation import check_choice, check_labels, check_number, check_rows
from crcen.paper import Array, Bools, LabelArray, Seed
from crcen.theory.labels import Labels
from crcen.theory.price import Price

_LARGEST_VOTE = 10.0  # of a learner without an error; enough to outvote any other


class SignedScoreClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of binary methods that decide by the sign of one score; the rarer class (the last in a tie) is positive."""

    @abstractmethod
    def _learn(self, X: Array, is_pos: Bools) -> None:
        """Learn from checked rows; set the fitted attributes."""

    @abstractmethod
    def _score(self, X: Array) -> Array:
        """Half the evidence for the positive class, which is predicted above 0."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from rows and labels."""
        with transactional_fit(self):
            rows, own = check_rows(self, X, y, reset=True)
            self.classes_ = check_labels(own)
            self.pos_label_ = Labels.from_rows(self.classes_, own, np.ones(len(own))).positive
            self._learn(rows, self._labels.target(own))
        return self

    @property
    def _labels(self) -> Labels:
        return Labels(self.classes_, self.pos_label_)

    def _price(self, weighting: object, is_pos: Bools) -> Price:
        return self._labels.resolve(weighting, self._labels.by_class(is_pos.sum(), (~is_pos).sum()))

    def decision_function(self, X: ArrayLike) -> Array:
        """The score with the sign of ``classes_[1]``."""
        check_is_fitted(self)
        return self._labels.signed(self._score(check_rows(self, X, reset=False)))

    def predict(self, X: ArrayLike) -> LabelArray:
        """The class given by the sign of the score."""
        is_last = self.decision_function(X) > 0
        return np.asarray(self.classes_[is_last.astype(int)])

    def predict_proba(self, X: ArrayLike) -> Array:
        """1/(1 + e^(−2·score)): half a log-odds, as in boosting. It ranks rows; it is no posterior."""
        p = expit(2 * self.decision_function(X))
        return np.column_stack([1 - p, p])

    def __sklearn_tags__(self) -> Tags:
        """Binary."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags


def check_least(owner: object, **least: int) -> None:
    """Check parameters that are integers by the least value of each."""
    for name, low in least.items():
        check_number(owner, name, low=low, integer=True)


def boosting_step(variant: str, weights: Array, costs: Array, is_right: Bools) -> tuple[float, Array]:
    """α of a learner, which minimises its bound on the training cost at weights D and costs C, and D of the next round.

    Without a minimiser α is the largest vote.
    """
    sign = np.where(is_right, 1.0, -1.0)
    inside, outside = costs if variant != "adac2" else 1.0, costs if variant != "adac1" else 1.0
    total = float((outside * weights).sum())
    edge = float((sign * costs ** (2 if variant == "adac3" else 1) * weights).sum())
    has_minimum = total - edge > 1e-12 * total
    vote = min(0.5 * float(np.log((total + edge) / (total - edge))), _LARGEST_VOTE) if has_minimum else _LARGEST_VOTE
    following: Array = outside * weights * np.exp(-vote * inside * sign)
    return vote, following / following.sum()


@dataclass(eq=False, repr=False)
class AdaCClassifier(SignedScoreClassifier):
    """AdaBoost with class costs in the row weights.

    With u = +1 where a learner h is right and −1 where it is wrong, Σ₊ and Σ₋ over those rows, ΣD = 1:

    ======= ====================== =======================================================
    variant D becomes, normalised  α
    ======= ====================== =======================================================
    adac1   D·e^(−αCu)             ½ ln[(1 + Σ₊CD − Σ₋CD) / (1 − Σ₊CD + Σ₋CD)]
    adac2   C·D·e^(−αu)            ½ ln[Σ₊CD / Σ₋CD]
    adac3   C·D·e^(−αCu)           ½ ln[(ΣCD + Σ₊C²D − Σ₋C²D) / (ΣCD − Σ₊C²D + Σ₋C²D)]
    ======= ====================== =======================================================

    The decision is the sign of Σ αh. With C = 1 all three are AdaBoost. The cost of ``adac2`` and ``adac3`` multiplies
    the weights in every round (c^t after t rounds): at a large c they soon alarm on most rows. ``adac1`` may stop
    before its costs have an effect.

    Chosen here: costs 1 and 1/c at the cost ratio c of ``weighting``; trees of depth 3 instead of C4.5; D starts equal,
    or at C if the first learner then has α ≤ 0; boosting ends with the first learner of α ≤ 0, or with one without an
    error, whose α is limited to 10.

    Sun, Kamel, Wong, Wang, "Cost-sensitive boosting for classification of imbalanced data", Pattern Recognition 40,
    2007.
    """

    _why_no_posterior = "boosts with costs in its row weights, and its votes are no probabilities under any prior"

    variant: str = "adac2"
    weighting: object = "balanced"
    _: KW_ONLY
    n_estimators: int = 50
    max_depth: int = 3
    random_state: Seed = None

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_choice(self, "variant", ("adac1", "adac2", "adac3"))
        check_least(self, n_estimators=1, max_depth=1)
        self.weighting_ = self._price(self.weighting, is_pos)
        costs = np.where(is_pos, self.weighting_.cost_ratio, 1.0)
        costs /= costs.max()
        for start in (np.ones(len(X)), costs):
            self._boost(X, is_pos, costs, start / start.sum())
            if self.estimators_:
                return
        raise InvalidInput(
            f"{self.variant} cannot boost these rows: its first tree is worth nothing at a cost ratio of "
            f"{self.weighting_.cost_ratio:g}; try another weighting or a larger max_depth."
        )

    def _boost(self, X: Array, is_pos: Bools, costs: Array, weights: Array) -> None:
        """Boosting rounds from given row weights; none if the first learner is worth nothing."""
        random = check_random_state(self.random_state)
        X = np.asarray(X, dtype=np.float32)  # the dtype of trees, converted once
        self.estimators_: list[DecisionTreeClassifier] = []
        votes: list[float] = []
        for _ in range(self.n_estimators):
            seed = random.randint(np.iinfo(np.int32).max)
            tree = DecisionTreeClassifier(max_depth=self.max_depth, random_state=seed)
            is_right = tree.fit(X, is_pos, sample_weight=weights).predict(X) == is_pos
            vote, weights = boosting_step(self.variant, weights, costs, is_right)
            if vote <= 1e-12:
                break
            self.estimators_.append(tree)
            votes.append(vote)
            if is_right.all():
                break
        self.votes_ = np.array(votes)

    def _score(self, X: Array) -> Array:
        score, X = np.zeros(len(X)), np.asarray(X, dtype=np.float32)
        for tree, vote in zip(self.estimators_, self.votes_, strict=True):
            score += np.where(tree.predict(X), vote, -vote)
        return score


@dataclass(eq=False, repr=False)
class CalibratedBoostingClassifier(SignedScoreClassifier):
    """AdaBoost without costs, Platt's sigmoid on out-of-fold rows, positive where p > 1/(1 + c).

    The control of `AdaCClassifier`, with the same trees. The authors hold out half of the rows for the sigmoid; here
    every row is held out once (``cv`` folds, fewer for few positives) and one booster is fitted on all rows.

    Nikolaou, Edakunni, Kull, Flach, Brown, "Cost-sensitive boosting algorithms: do we really need them?", Machine
    Learning 104, 2016.
    """

    weighting: object = "balanced"
    _: KW_ONLY
    n_estimators: int = 50
    max_depth: int = 3
    cv: int = 3
    random_state: Seed = None

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_least(self, n_estimators=1, max_depth=1, cv=2)
        n_pos = int(is_pos.sum())
        if n_pos < 2:
            raise InvalidInput(
                f"{type(self).__name__} calibrates out of fold: class {self.pos_label_} needs two rows, got 1 sample."
            )
        self.weighting_ = self._price(self.weighting, is_pos)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        tree = DecisionTreeClassifier(max_depth=self.max_depth)
        booster = AdaBoostClassifier(tree, n_estimators=self.n_estimators, random_state=seed)
        folds = StratifiedKFold(min(self.cv, n_pos), shuffle=True, random_state=seed)
        self.calibrated_ = CalibratedClassifierCV(booster, method="sigmoid", cv=folds, ensemble=False)
        self.calibrated_.fit(X, is_pos)

    def _score(self, X: Array) -> Array:
        p = np.clip(self.calibrated_.predict_proba(X)[:, 1], np.finfo(np.float64).tiny, 1 - 1e-16)
        return np.asarray(logit(p) + self.weighting_.logit_shift)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Natural probabilities at every price."""
        score = self.decision_function(X)
        p = expit(self._labels.signed(score) - self.weighting_.logit_shift)
        return self._labels.in_order(np.column_stack([1 - p, p]))


@dataclass(eq=False, repr=False)
class RealRUSBoostClassifier(SignedScoreClassifier):
    """RUSBoost by SAMME.R, as libraries had it in 2019.

    Boosted stumps, each on all positives and as many randomly drawn negatives, combined by their probabilities.
    scikit-learn has removed SAMME.R; with SAMME a single stump that is worse than chance on all rows ends the boosting.

    Seiffert et al., "RUSBoost: a hybrid approach to alleviating class imbalance", 2010; Zhu et al., "Multi-class
    AdaBoost", 2009.
    """

    n_estimators: int = 50
    _: KW_ONLY
    random_state: Seed = None

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_least(self, n_estimators=1)
        random = check_random_state(self.random_state)
        weights = np.full(len(X), 1.0 / len(X))
        pos, neg = np.flatnonzero(is_pos), np.flatnonzero(~is_pos)
        sign = np.where(is_pos, 1.0, -1.0)
        self.estimators_ = []
        for _ in range(self.n_estimators):
            rows = np.concatenate([pos, random.choice(neg, len(pos), replace=False)])
            stump = DecisionTreeClassifier(max_depth=1, random_state=random.randint(2**31 - 1))
            stump.fit(X[rows], is_pos[rows], sample_weight=weights[rows])
            self.estimators_.append(stump)
            if not (stump.predict(X) != is_pos).any():
                break
            weights = weights * np.exp(-sign * _half_log_odds(stump, X))
            weights /= weights.sum()

    def _score(self, X: Array) -> Array:
        return np.asarray(np.sum([_half_log_odds(stump, X) for stump in self.estimators_], axis=0))


def _half_log_odds(stump: DecisionTreeClassifier, X: Array) -> Array:
    p = np.clip(stump.predict_proba(X), np.finfo(np.float64).eps, None)
    return np.asarray((np.log(p[:, 1]) - np.log(p[:, 0])) / 2.0)


@dataclass(eq=False, repr=False)
class BalanceCascadeClassifier(SignedScoreClassifier):
    """T rounds of AdaBoost, each on all positives and as many of the remaining negatives.

    With P positives and N negatives, f = (P/N)^(1/(T−1)). In round i

    1. AdaBoost learns F_i = Σ_j α_ij h_ij from the positives and P random remaining negatives;
    2. θ_i is set so that F_i > θ_i holds for the share f of the remaining negatives (false positive rate);
    3. the other negatives are dropped, so that N·f^i remain, and P of them in round T.

    The decision is joint: positive where Σ_i (F_i − θ_i) > 0.

    Chosen here: N·f^i is rounded; ties at θ_i are broken at random; θ_i is the midpoint between the last kept and the
    first dropped score; θ_T follows the same rate; trees of depth 3 instead of CART; the score is divided by T.

    Liu, Wu, Zhou, "Exploratory undersampling for class-imbalance learning", IEEE Transactions on Systems, Man, and
    Cybernetics B 39, 2009.
    """

    _why_no_posterior = "picks rows by their score and adds up boosted votes, which are no probabilities"

    n_rounds: int = 4
    _: KW_ONLY
    n_estimators: int = 10
    max_depth: int = 3
    random_state: Seed = None

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_least(self, n_rounds=2, n_estimators=1, max_depth=1)
        random = check_random_state(self.random_state)
        positives, left = np.flatnonzero(is_pos), np.flatnonzero(~is_pos)
        n_neg, rate = len(left), (len(positives) / len(left)) ** (1 / (self.n_rounds - 1))
        self.estimators_: list[AdaBoostClassifier] = []
        thresholds, counts = [], []
        for number in range(1, self.n_rounds + 1):
            left = random.permutation(left)  # breaks ties
            counts.append(len(left))
            rows = np.concatenate([positives, left[: len(positives)]])
            tree, seed = DecisionTreeClassifier(max_depth=self.max_depth), int(random.randint(2**31 - 1))
            booster = AdaBoostClassifier(tree, n_estimators=self.n_estimators, random_state=seed)
            try:
                booster.fit(X[rows], is_pos[rows])
            except ValueError as error:
                raise InvalidInput(
                    f"{type(self).__name__} cannot boost a balanced draw of these rows: {error}"
                ) from error
            scores = _votes(booster, X[left])
            order = np.argsort(-scores, kind="stable")
            n_kept = round(n_neg * rate**number) if number < self.n_rounds else round(len(left) * rate)
            n_kept = min(max(n_kept, 1), len(left))
            self.estimators_.append(booster)
            # If all are kept, as in classes of equal size, nothing determines a threshold.
            edge = scores[order[n_kept - 1 : n_kept + 1]]
            thresholds.append(float(edge.mean()) if n_kept < len(left) else 0.0)
            left = left[order[:n_kept]]
        self.thresholds_, self.negatives_left_ = np.array(thresholds), np.array(counts)

    def _score(self, X: Array) -> Array:
        votes = [_votes(e, X) - threshold for e, threshold in zip(self.estimators_, self.thresholds_, strict=True)]
        return np.asarray(np.mean(votes, axis=0))


def _votes(booster: AdaBoostClassifier, X: Array) -> Array:
    """Σ α h: scikit-learn's weights are 2α, and its score is scaled to −2 to 2."""
    return np.asarray(booster.decision_function(X) * booster.estimator_weights_.sum() / 4)
