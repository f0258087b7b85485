"""EUSBoost: boosting on negatives that evolution picks anew in each round (Galar 2013)."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

from crcen.models.validation import check_number
from crcen.paper.methods.evolutionary_sampling import evolve, overlap, selection_fitness
from crcen.paper.methods.signed_scores import Array, Bools, SignedScoreClassifier

__all__ = ["EUSBoostClassifier"]


class EUSBoostClassifier(SignedScoreClassifier):
    """AdaBoost.M2 whose trees see the positives and the negatives that evolution picks.

    In round t of T, CHC maximises over choices of negatives

        fitness = (G − 0.2·|1 − n₊/n₋|) · (1/β) · (10/IR) − β·Q

    G is the G-mean of one nearest neighbour among kept rows, on all rows, each without itself; n₊/n₋ the positives over
    the kept negatives; IR the imbalance ratio; Q the largest Q-statistic with the choices of earlier rounds; β falls
    with t, so that diversity matters most at first. A tree learns from the kept rows with their weights D. With q the
    probability that it gives a row's own class, ε = ΣD(1 − q), D becomes D·(ε/(1 − ε))^q, and its vote is
    ln((1 − ε)/ε).

    Source: M. Galar, A. Fernández, E. Barrenechea, F. Herrera, "EUSBoost: Enhancing ensembles for highly imbalanced
    data-sets by evolutionary undersampling", Pattern Recognition 46 (2013).

    Checked against the authors' program in KEEL: β = (T − t)/T with t from 0, 10/IR, Q, P = 0.2, the rules of CHC and
    of AdaBoost.M2 are the same. Their program has |1 − n₋/n₊| in place of the article's |1 − n₊/n₋|, which is kept
    here, and votes with the probability of the decided class alone, where AdaBoost.M2 takes those of both.

    Chosen here: 300 evaluations a round and a population of 30, where they have 10,000 and 50, so the first population
    keeps as many negatives as there are positives (theirs keeps half of all, and evolution thins them out); trees of
    depth 3 for C4.5; boosting ends before a tree of ε ≥ ½ (the first stays, alone) and after one without an error.

    **Bounded by rows.** One evaluation compares every row with every kept row. Above ``max_rows`` rows, evolution and
    trees see a random draw of that many (positives first, up to half of it), and a warning says so; the weights D still
    follow all rows.

    Parameters
    ----------
    n_estimators : int, default=10
        T.
    max_depth : int, default=3
        Of each tree.
    population : int, default=30
    evaluations : int, default=300
        Choices tried in each round, the budget.
    max_rows : int, default=1000
    random_state : int, RandomState or None

    Attributes
    ----------
    estimators_, votes_
        Trees of "is positive", and half of their votes.
    choices_, fitness_
        Kept negatives of each round, among those drawn, and how fit they are.
    n_rows_seen_ : int
        Rows that evolution and trees saw.
    """

    _why_no_posterior = "picks rows by where they lie and adds up boosted votes, which are no probabilities"

    def __init__(
        self,
        n_estimators: int = 10,
        *,
        max_depth: int = 3,
        population: int = 30,
        evaluations: int = 300,
        max_rows: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.population = population
        self.evaluations = evaluations
        self.max_rows = max_rows
        self.random_state = random_state

    def _learn(self, X: Array, is_pos: Bools) -> None:
        least = {"n_estimators": 1, "max_depth": 1, "population": 2, "evaluations": 1, "max_rows": 4}
        for name, low in least.items():
            check_number(self, name, low=low, integer=True)
        random = check_random_state(self.random_state)
        seen = self._drawn(is_pos, random)
        self.n_rows_seen_ = len(seen)
        scaled = StandardScaler().fit(X).transform(X[seen])
        distances = pairwise_distances(scaled)
        np.fill_diagonal(distances, np.inf)
        among = is_pos[seen]
        negatives = seen[~among]
        weights = np.full(len(X), 1 / len(X))
        self.estimators_: list[DecisionTreeClassifier] = []
        self.choices_: list[Bools] = []
        self.fitness_: list[float] = []
        votes: list[float] = []
        for number in range(self.n_estimators):
            kept, fitness = self._choice(distances, among, number, random)
            rows = np.concatenate([seen[among], negatives[kept]])
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
            self.fitness_.append(fitness)
            votes.append(1.0 if is_chance else -0.5 * np.log(odds))
            if is_chance or error <= 1e-9:
                break
            weights = weights * odds**own
            weights /= weights.sum()
        self.votes_ = np.array(votes)

    def _choice(self, distances: Array, is_pos: Bools, number: int, random: Any) -> tuple[Bools, float]:
        """The negatives of a round, and how fit they are."""
        n_pos, n_neg = int(is_pos.sum()), int((~is_pos).sum())
        beta = (self.n_estimators - number) / self.n_estimators
        scale = 10 * n_pos / n_neg / beta

        def fitness(kept: Bools) -> float:
            return selection_fitness(distances, is_pos, kept) * scale - beta * overlap(kept, self.choices_)

        return evolve(
            fitness, n_neg, min(n_pos, n_neg), population=self.population, evaluations=self.evaluations, random=random
        )

    def _drawn(self, is_pos: Bools, random: Any) -> NDArray[np.int64]:
        """The rows that evolution sees: all of them, or a draw."""
        if len(is_pos) <= self.max_rows:
            return np.arange(len(is_pos))
        warnings.warn(
            f"{type(self).__name__} has {len(is_pos)} rows and max_rows={self.max_rows}: evolution and trees see a "
            f"random draw of {self.max_rows}; a larger max_rows takes time with its square.",
            stacklevel=4,
        )
        positives, negatives = (random.permutation(np.flatnonzero(own)) for own in (is_pos, ~is_pos))
        n_pos = min(len(positives), self.max_rows // 2)
        drawn: NDArray[np.int64] = np.sort(np.concatenate([positives[:n_pos], negatives[: self.max_rows - n_pos]]))
        return drawn

    def _score(self, X: Array) -> Array:
        score = np.zeros(len(X))
        for tree, vote in zip(self.estimators_, self.votes_, strict=True):
            score += vote * (2 * _positive(tree, X) - 1)
        return score


def _positive(tree: DecisionTreeClassifier, X: Array) -> Array:
    """Probability of the positive class; a tree that saw no negative, because none was kept, is sure of it."""
    p: Array = tree.predict_proba(X)[:, -1]
    return p
