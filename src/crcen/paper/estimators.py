"""The compared methods as estimators, other than networks with losses of other papers."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import AdaBoostClassifier
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from crcen._support.extras import need
from crcen.exceptions import InvalidInput
from crcen.models.classifier import CRCENClassifier
from crcen.models.fitted import transactional_fit
from crcen.models.options import Calibration, GroupedParameters, estimator
from crcen.models.validation import check_choice, check_labels, check_number, check_rows
from crcen.paper import Array, Bools, Index, LabelArray, Seed, Values
from crcen.theory.metrics import confusion_counts
from crcen.theory.price import CostRatio, Labels, Price
from crcen.training.recipe import Inputs, Schedule

_LARGEST_VOTE = 10.0  # of a learner without an error; enough to outvote any other
# Evolution of EUSBoost.
_BALANCE = 0.2  # P of García and Herrera
_REDRAWN = 0.35  # share of bits drawn again when CHC restarts
_SET = 0.25  # probability that an unset bit becomes set: choices stay small


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
        is_last = self.decision_function(X) > 0  # first: it checks that there are classes
        return np.asarray(self.classes_[is_last.astype(int)])

    def _positive(self, X: Array) -> Array:
        """1/(1 + e^(−2·score)): half a log-odds, as in boosting. It ranks rows; it is no posterior."""
        return np.asarray(expit(2 * self._score(X)))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of both classes; the registry of the methods states whether they are natural."""
        check_is_fitted(self)
        p = self._positive(check_rows(self, X, reset=False))
        return self._labels.in_order(np.column_stack([1 - p, p]))

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

    _why_no_posterior = "boosts with costs in its row weights, and its votes are not probabilities at any class ratio"

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
        message = f"its first tree is useless at a cost ratio of {self.weighting_.cost_ratio:g}"
        advice = "try another weighting or a larger max_depth"
        raise InvalidInput(f"{self.variant} cannot boost these rows: {message}; {advice}.")

    def _boost(self, X: Array, is_pos: Bools, costs: Array, weights: Array) -> None:
        """Boosting rounds from given row weights; none if the first learner is useless."""
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
        X = np.asarray(X, dtype=np.float32)
        pairs = zip(self.estimators_, self.votes_, strict=True)
        return np.asarray(sum(np.where(tree.predict(X), vote, -vote) for tree, vote in pairs))


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
            name = type(self).__name__
            raise InvalidInput(f"{name} calibrates out of fold: class {self.pos_label_} needs two rows, got 1 sample.")
        self.weighting_ = self._price(self.weighting, is_pos)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        tree = DecisionTreeClassifier(max_depth=self.max_depth)
        booster = AdaBoostClassifier(tree, n_estimators=self.n_estimators, random_state=seed)
        folds = StratifiedKFold(min(self.cv, n_pos), shuffle=True, random_state=seed)
        self.calibrated_ = CalibratedClassifierCV(booster, method="sigmoid", cv=folds, ensemble=False)
        self.calibrated_.fit(X, is_pos)

    def _score(self, X: Array) -> Array:
        p = np.clip(self._positive(X), np.finfo(np.float64).tiny, 1 - 1e-16)
        return np.asarray(logit(p) + self.weighting_.logit_shift)

    def _positive(self, X: Array) -> Array:
        """Natural probability, the same at every price."""
        return np.asarray(self.calibrated_.predict_proba(X)[:, 1])


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

    _why_no_posterior = "selects rows by their score and sums boosted votes, which are not probabilities"

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
                message = f"{type(self).__name__} cannot boost a balanced draw of these rows: {error}"
                raise InvalidInput(message) from error
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


def selection_fitness(distances: Array, is_pos: Bools, kept: Bools) -> float:
    """G-mean of one nearest neighbour among kept rows, minus 0.2·|1 − positives/kept negatives|.

    ``distances`` (n, n) is infinite on the diagonal: no row is its own neighbour. ``kept`` marks negatives; all
    positives are kept.
    """
    n_pos, n_kept = int(is_pos.sum()), int(kept.sum())
    prototypes = is_pos.copy()
    prototypes[~is_pos] = kept
    among = np.flatnonzero(prototypes)
    predicted = is_pos[among[distances[:, among].argmin(axis=1)]]
    g_mean = float(np.sqrt(predicted[is_pos].mean() * (~predicted[~is_pos]).mean()))
    return g_mean - _BALANCE * (abs(1 - n_pos / n_kept) if n_kept else 1.0)


def overlap(kept: Bools, before: Sequence[Bools]) -> float:
    """Largest Q-statistic with earlier choices: 1 for the same, −1 for the opposite, 0 without any.

    A choice that keeps nothing gets 2, as in the authors' program, so that it never survives.
    """
    if before and not kept.any():
        return 2.0
    found = []
    for other in before:
        same = float((kept & other).sum()) * float((~kept & ~other).sum())
        apart = float((kept & ~other).sum()) * float((~kept & other).sum())
        # If all or none is kept, Q does not exist.
        found.append((same - apart) / (same + apart) if same + apart else float(np.array_equal(kept, other)))
    return max(found, default=0.0)


def evolve(
    fitness: Callable[[Bools], float], n_bits: int, n_kept: int, *, population: int, evaluations: int, rng: RandomState
) -> tuple[Bools, float]:
    """The fittest bits that CHC finds, and their fitness; ``n_kept`` of ``n_bits`` are set at first.

    CHC (Eshelman 1991) as in García and Herrera (2009): parents pair at random and only if they differ enough; half of
    the differing bits change, a set bit always and an unset one with probability ¼; the best of parents and children
    survive. If no child does, the required difference falls; once it is used up, all but the best are replaced by the
    best with 35 % of its bits drawn again.
    """
    first = [rng.permutation(np.arange(n_bits) < n_kept) for _ in range(min(population, evaluations))]
    living = sorted(((fitness(bits), bits) for bits in first), key=lambda one: -one[0])
    left = evaluations - len(living)
    apart = n_bits // 4
    while left > 0:
        order = rng.permutation(len(living))
        children: list[tuple[float, Bools]] = []
        for one, other in zip(order[::2], order[1::2], strict=False):
            a, b = living[one][1], living[other][1]
            differing = np.flatnonzero(a != b)
            if len(differing) // 2 <= apart or len(differing) == 0:
                continue
            changing = differing[rng.random_sample(len(differing)) < 0.5]
            for bits in (a.copy(), b.copy()):
                if left > 0:
                    bits[changing] = ~bits[changing] & (rng.random_sample(len(changing)) < _SET)
                    children.append((fitness(bits), bits))
                    left -= 1
        if any(child[0] > living[-1][0] for child in children):
            living = sorted([*living, *children], key=lambda one: -one[0])[: len(living)]
            continue
        apart -= 1
        if apart < 0:
            best = living[0]
            n_new = min(len(living) - 1, left)
            if n_new < 1:
                break
            draws = [(rng.random_sample(n_bits) < _REDRAWN, rng.random_sample(n_bits) < _SET) for _ in range(n_new)]
            again = [np.where(is_drawn, drawn, best[1]) for is_drawn, drawn in draws]
            living = sorted([best, *((fitness(bits), bits) for bits in again)], key=lambda one: -one[0])
            left -= n_new
            apart = int(_REDRAWN * (1 - _REDRAWN) * n_bits)
    return living[0][1], living[0][0]


@dataclass(eq=False, repr=False)
class EUSBoostClassifier(SignedScoreClassifier):
    """AdaBoost.M2 whose trees see the positives and negatives selected by evolution.

    In round t of T, CHC maximises over choices of negatives

        fitness = (G − 0.2·|1 − n₊/n₋|) · (1/β) · (10/IR) − β·Q

    G is the leave-one-out G-mean of one nearest neighbour among kept rows; n₊/n₋ the ratio of positives to kept
    negatives; IR the imbalance ratio; Q the largest Q-statistic with earlier choices; β = (T − t)/T, so that diversity
    matters most at first. A tree learns from the kept rows with their weights D. With q the probability that it gives
    a row's own class and ε = ΣD(1 − q), D becomes D·(ε/(1 − ε))^q, and its vote is ln((1 − ε)/ε).

    Checked against the authors' program in KEEL, which differs in |1 − n₋/n₊| and votes with the probability of the
    decided class alone. Chosen here: 300 evaluations per round and a population of 30 (there 10,000 and 50), so the
    first population keeps as many negatives as there are positives; trees of depth 3 instead of C4.5; boosting ends
    before a tree of ε ≥ ½ (the first stays, alone) and after one without an error. Above ``max_rows`` rows, evolution
    and trees see a random draw (positives first, up to half of it), with a warning; D still follows all rows.

    Galar, Fernández, Barrenechea, Herrera, "EUSBoost: Enhancing ensembles for highly imbalanced data-sets by
    evolutionary undersampling", Pattern Recognition 46, 2013.
    """

    _why_no_posterior = "selects rows by their position and sums boosted votes, which are not probabilities"

    n_estimators: int = 10
    _: KW_ONLY
    max_depth: int = 3
    population: int = 30
    evaluations: int = 300
    max_rows: int = 1000
    random_state: Seed = None

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_least(self, n_estimators=1, max_depth=1, population=2, evaluations=1, max_rows=4)
        random = check_random_state(self.random_state)
        seen = self._drawn(is_pos, random)
        self.n_rows_seen_ = len(seen)
        distances = pairwise_distances(StandardScaler().fit(X).transform(X[seen]))
        np.fill_diagonal(distances, np.inf)
        among, weights = is_pos[seen], np.full(len(X), 1 / len(X))
        self.estimators_: list[DecisionTreeClassifier] = []
        self.choices_: list[Bools] = []
        votes: list[float] = []
        for number in range(self.n_estimators):
            kept = self._choice(distances, among, number, random)
            rows = np.concatenate([seen[among], seen[~among][kept]])
            tree = DecisionTreeClassifier(max_depth=self.max_depth, random_state=random.randint(2**31 - 1))
            tree.fit(X[rows], is_pos[rows], sample_weight=weights[rows])
            p = _positive(tree, X)
            own = np.where(is_pos, p, 1 - p)
            error = float(weights @ (1 - own))
            is_chance = error >= 0.5
            if is_chance and votes:
                break
            odds = max(error, 1e-9) / max(1 - error, 1e-9)
            self.estimators_.append(tree)
            self.choices_.append(kept)
            votes.append(1.0 if is_chance else -0.5 * np.log(odds))
            if is_chance or error <= 1e-9:
                break
            weights = weights * odds**own
            weights /= weights.sum()
        self.votes_ = np.array(votes)

    def _choice(self, distances: Array, is_pos: Bools, number: int, random: RandomState) -> Bools:
        n_pos, n_neg = int(is_pos.sum()), int((~is_pos).sum())
        beta = (self.n_estimators - number) / self.n_estimators
        scale = 10 * n_pos / n_neg / beta

        def fitness(kept: Bools) -> float:
            return selection_fitness(distances, is_pos, kept) * scale - beta * overlap(kept, self.choices_)

        sizes = {"population": self.population, "evaluations": self.evaluations}
        return evolve(fitness, n_neg, min(n_pos, n_neg), **sizes, rng=random)[0]

    def _drawn(self, is_pos: Bools, random: RandomState) -> Index:
        """The rows that evolution sees: all of them, or a draw."""
        if len(is_pos) <= self.max_rows:
            return np.arange(len(is_pos))
        drawn = f"evolution and trees see a random draw of {self.max_rows}; the time grows with the square of max_rows"
        warnings.warn(
            f"{type(self).__name__} has {len(is_pos)} rows and max_rows={self.max_rows}: {drawn}.", stacklevel=4
        )
        positives, negatives = (random.permutation(np.flatnonzero(own)) for own in (is_pos, ~is_pos))
        n_pos = min(len(positives), self.max_rows // 2)
        return np.sort(np.concatenate([positives[:n_pos], negatives[: self.max_rows - n_pos]]))

    def _score(self, X: Array) -> Array:
        pairs = zip(self.estimators_, self.votes_, strict=True)
        return np.asarray(sum(vote * (2 * _positive(tree, X) - 1) for tree, vote in pairs))


def _positive(tree: DecisionTreeClassifier, X: Array) -> Array:
    """Probability of the positive class; 1 if the tree saw no negative."""
    return np.asarray(tree.predict_proba(X)[:, -1])


@dataclass(eq=False, repr=False)
class GranularSVMClassifier(SignedScoreClassifier):
    """GSVM-RU: a support vector machine on the positives and on negative support vectors of earlier machines.

    A machine is trained on all rows; its negative support vectors are the first granule and are removed. The next
    machine, on the remaining rows, gives the second granule, and so on. The final machine sees the positives and all
    granules (``"combine"``) or the newest alone (``"discard"``: earlier ones are so close to the positives that they
    shift the boundary). Granules are added while the G-mean improves. Without class weights ``"combine"`` may never
    alarm where classes overlap. Time and memory grow with the square of the rows.

    Chosen here: the G-mean is measured on a stratified quarter of the rows (on the training rows if a class has fewer
    than eight) and the number of granules found there is used on all rows; the aggregation is a parameter; columns are
    standardised; no class weights. Two other implementations agree in extracting from the remaining rows and stopping
    at the first granule without improvement.

    Tang, Zhang, Chawla, Krasser, "SVMs modeling for highly imbalanced classification", IEEE Transactions on Systems,
    Man, and Cybernetics B 39, 2009.
    """

    _why_no_posterior = "selects rows by their position, and its distances to a boundary are not probabilities"

    aggregation: str = "discard"
    _: KW_ONLY
    max_granules: int = 10
    C: float = 1.0
    kernel: str = "rbf"
    random_state: Seed = None

    def _machine(self, X: Array, is_pos: Bools) -> SVC:
        return SVC(C=self.C, kernel=self.kernel).fit(X, is_pos)

    def granules(self, X: Array, is_pos: Bools, count: int) -> list[Index]:
        """The first granules of negatives, as rows of the standardised X; fewer if they run out."""
        positives, left = np.flatnonzero(is_pos), np.flatnonzero(~is_pos)
        found: list[Index] = []
        while len(found) < count and len(left):
            rows = np.concatenate([positives, left])
            support = rows[self._machine(X[rows], is_pos[rows]).support_]
            found.append(np.sort(support[~is_pos[support]]))
            left = np.setdiff1d(left, found[-1])
        return found

    def _aggregated(self, X: Array, is_pos: Bools, granules: list[Index]) -> SVC:
        rows = np.concatenate([np.flatnonzero(is_pos), *(granules if self.aggregation == "combine" else granules[-1:])])
        return self._machine(X[rows], is_pos[rows])

    def _best_count(self, X: Array, is_pos: Bools) -> int:
        """Number of granules before the first that does not improve the G-mean."""
        fitted = judged = np.arange(len(X))
        if min(is_pos.sum(), (~is_pos).sum()) >= 8:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            fitted, judged = train_test_split(fitted, test_size=0.25, stratify=is_pos, random_state=seed)
        granules = self.granules(X[fitted], is_pos[fitted], self.max_granules)
        best = -1.0
        for count in range(1, len(granules) + 1):
            machine = self._aggregated(X[fitted], is_pos[fitted], granules[:count])
            g_mean = float(confusion_counts(is_pos[judged], machine.predict(X[judged])).g_mean)
            if not g_mean > best:
                return count - 1
            best = g_mean
        return len(granules)

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_choice(self, "aggregation", ("combine", "discard"))
        check_least(self, max_granules=1)
        check_number(self, "C", low=0, open_low=True)
        self._scaler = StandardScaler().fit(X)
        scaled = self._scaler.transform(X)
        self.granules_ = self.granules(scaled, is_pos, max(self._best_count(scaled, is_pos), 1))
        self.machine_ = self._aggregated(scaled, is_pos, self.granules_)

    def _score(self, X: Array) -> Array:
        return np.asarray(self.machine_.decision_function(self._scaler.transform(X)))


# The paper's network: one standardised hidden layer, trained at the price, balanced on the training rows.
PAPER: Values = {"hidden": (32,), "l2": 1e-4, "n_members": 1, "encoding": "standard", "calibration": "paper"}
_MAX_PAIRS_AT_ONCE = 2**17  # in prediction
_TIE = 1e-9  # decides for an alarm


@estimator
class CSMLPClassifier(CRCENClassifier):
    """Networks trained on class-weighted squared error with targets ±1 (Castro and Braga 2013).

    The output is tanh(o/2), so the squared error on ±1 targets is 4 w (y − q)² with q = σ(o), and decisions,
    probabilities and weights have the meaning of `CRCENClassifier`. Stationarity in the output bias is
    Σ w (y − q) q (1 − q) = 0, not the key equation; ``calibration`` is therefore None by default.

    Parameters, attributes and methods are those of `CRCENClassifier`.
    """

    losses = ("squared_error",)
    _column_scales = False

    hidden: object = (32,)
    l2: float = 1e-4
    n_members: int = 1
    encoding: str | Sequence[str] | Inputs = "standard"
    calibration: str | Calibration | None = None


class MovedThresholdClassifier(CRCENClassifier):
    """Train with plain cross entropy (λ = ½), decide at the price of ``weighting``: positive where p > 1 − λ.

    The control for every claim about weighting: in theory it nearly ties with training at λ, since both estimate the
    same posterior. Parameters and attributes are those of `CRCENClassifier`; ``weighting_`` is the price of the
    decision and ``key_equation_`` that of the plain network.
    """

    is_control = True

    def training_weighting_at(self, price: Price, labels: Labels) -> Price:
        """λ = ½ at every price."""
        return price.replace(None)


@estimator
class ResampledClassifier(SignedScoreClassifier, GroupedParameters):
    """Standardise, oversample the minority class to a ratio of 1:1, train a plain network (λ = ½), decide at ½.

    Neighbours are searched among standardised rows.

    Parameters
    ----------
    sampler : {"smote", "adasyn"}, default="smote"
        imbalanced-learn's sampler with its defaults (extra ``baselines``).
    hidden, l2, max_epochs, schedule, n_members, device, random_state
        As in `CRCENClassifier`.
    """

    sampler: str = field(default="smote", kw_only=False)
    hidden: object = (32,)
    l2: float = 1e-4
    max_epochs: int | None = None
    schedule: Schedule | None = None
    n_members: int = 1
    device: str = "auto"
    random_state: Seed = None

    def resample(self, X: Array, y: LabelArray) -> tuple[Array, LabelArray]:
        """Rows and labels after rebalancing, in the units of X."""
        check_choice(self, "sampler", ("smote", "adasyn"))
        sampler = getattr(need("imblearn.over_sampling", "baselines"), self.sampler.upper())
        scaler = StandardScaler().fit(X)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        try:
            rows, labels = sampler(random_state=seed).fit_resample(scaler.transform(X), y)
        except (RuntimeError, ValueError) as error:  # too few rows, or ADASYN finds nothing to generate
            raise InvalidInput(f"{self.sampler} cannot rebalance these rows: {error}") from error
        return scaler.inverse_transform(rows), labels

    def _learn(self, X: Array, is_pos: Bools) -> None:
        given = {name: value for name, value in self.get_params(deep=False).items() if name != "sampler"}
        rows, target = self.resample(X, is_pos.astype(np.int64))
        self.network_ = CRCENClassifier(None, **{**PAPER, **given}, pos_label=1).fit(rows, target)

    def _score(self, X: Array) -> Array:
        """Logit among rebalanced rows."""
        return np.asarray(self.network_.decision_function(X))

    def _positive(self, X: Array) -> Array:
        """Probability among rebalanced rows, which is not natural."""
        return np.asarray(self.network_.predict_proba(X)[:, 1])


@dataclass(eq=False, repr=False, kw_only=True)
class PairedClassifier(SignedScoreClassifier):
    """s2s: a network that reads two rows at once and predicts both labels; references vote on new rows.

    The network gets pairs of four kinds (common-common, common-rare, rare-common, rare-rare), drawn without
    repetition, at most ``max_pairs`` of a kind; common pairs are limited to the number of mixed pairs of one order. It
    has one class per kind; the probability that the first row is rare is the sum of two of them. A new row is paired
    with ``n_references`` training rows of each class, which vote.

    ``predict`` is the vote. ``predict_proba`` is the mean probability with the share of rare rows among the pairs
    divided out, a known factor: natural as far as the network's is. ``weighting_`` is the price of ``predict``.

    Chosen here: one joint output for the two labels, 25 references per class, a tied vote alarms.

    Dumpala, Chakraborty, Kopparapu, "A novel data representation for effective learning in class imbalanced
    scenarios", IJCAI 2018.
    """

    hidden: object = (32,)
    l2: float = 1e-4
    max_epochs: int | None = None
    max_pairs: int = 20_000
    n_references: int = 25
    random_state: Seed = None

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_least(self, max_pairs=1, n_references=1)
        rng = check_random_state(self.random_state)
        first, second, kind = self._pairs(is_pos, rng)
        given = {name: getattr(self, name) for name in ("hidden", "l2", "max_epochs")}
        model = CRCENClassifier(None, **{**PAPER, **given}, random_state=rng.randint(2**31 - 1))
        self.model_ = model.set_params(calibration=None).fit(np.hstack([X[first], X[second]]), kind)
        parts = [np.flatnonzero(is_pos == is_rare) for is_rare in (False, True)]
        drawn = [rng.choice(part, min(len(part), self.n_references), replace=False) for part in parts]
        self.references_ = X[np.concatenate(drawn)]
        # Odds of a rare row among the first rows of pairs, relative to the table.
        self.factor_ = float(is_pos[first].sum() / (~is_pos[first]).sum() * (~is_pos).sum() / is_pos.sum())
        self.weighting_ = self._price(CostRatio(self.factor_), is_pos)

    def _pairs(self, target: Bools, rng: np.random.RandomState) -> tuple[Index, Index, LabelArray]:
        rows = {"0": np.flatnonzero(~target), "1": np.flatnonzero(target)}
        mixed = min(len(rows["0"]) * len(rows["1"]), int(self.max_pairs))
        parts, self.pair_counts_ = [], dict[str, int]()
        for kind in ("00", "01", "10", "11"):
            a, b = rows[kind[0]], rows[kind[1]]
            count = min(len(a) * len(b), mixed if kind == "00" else int(self.max_pairs))
            numbers = _distinct(len(a) * len(b), count, rng)
            parts.append((a[numbers // len(b)], b[numbers % len(b)], np.full(count, kind)))
            self.pair_counts_[kind] = count
        first, second, kinds = (np.concatenate(part) for part in zip(*parts, strict=True))
        return first, second, kinds

    def _votes(self, rows: Array) -> tuple[Array, Array]:
        """Share of references that take a row for rare, and their mean probability of it."""
        is_rare = np.char.startswith(self.model_.classes_.astype(str), "1")
        n_references, found = len(self.references_), []
        step = max(1, _MAX_PAIRS_AT_ONCE // n_references)
        for block in (rows[start : start + step] for start in range(0, len(rows), step)):
            pairs = np.hstack([np.repeat(block, n_references, axis=0), np.tile(self.references_, (len(block), 1))])
            p = self.model_.predict_proba(pairs)[:, is_rare].sum(axis=1).reshape(len(block), n_references)
            found.append([(p >= 0.5).mean(axis=1), p.mean(axis=1)])
        share, mean = np.concatenate(found, axis=1)
        return share, mean

    def _score(self, X: Array) -> Array:
        """Share of votes; a tie alarms."""
        return np.asarray(self._votes(X)[0] - 0.5 + _TIE)

    def _positive(self, X: Array) -> Array:
        """Natural probability: the references' mean with the share of rare rows among the pairs divided out."""
        _, mean = self._votes(X)
        return np.asarray(mean / (mean + self.factor_ * (1.0 - mean)))


def _distinct(n: int, count: int, rng: np.random.RandomState) -> Index:
    """``count`` different numbers below n, without a list of all n."""
    if count * 2 >= n:
        return np.asarray(rng.permutation(n)[:count], dtype=np.int64)
    found = np.unique(rng.randint(0, n, size=count + count // 4 + 16, dtype=np.int64))
    while len(found) < count:
        found = np.unique(np.concatenate([found, rng.randint(0, n, size=count, dtype=np.int64)]))
    return np.asarray(rng.permutation(found)[:count], dtype=np.int64)
