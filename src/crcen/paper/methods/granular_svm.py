"""GSVM-RU: granular support vector machines with repetitive undersampling (Tang 2009)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import check_random_state

from crcen.models.validation import check_choice, check_number
from crcen.paper.methods.signed_scores import Array, Bools, SignedScoreClassifier
from crcen.theory.metrics import confusion_counts

__all__ = ["GranularSVMClassifier"]

Index = NDArray[np.int64]


class GranularSVMClassifier(SignedScoreClassifier):
    """A support vector machine on all positives and the negatives that machines before it leant on.

    A machine is trained on all positives and all negatives; its negative support vectors are the first granule, and are
    taken away. The next machine, on what is left, gives the second granule, and so on. The final machine sees the
    positives and an aggregation of granules:

    - ``"combine"``: all granules so far, since each holds a part of what the negatives tell;
    - ``"discard"``: the newest alone, since those before it lie so near the positives that they push the boundary
      there.

    Granules are added while the G-mean improves.

    Source: Y. Tang, Y.-Q. Zhang, N. V. Chawla, S. Krasser, "SVMs modeling for highly imbalanced classification", IEEE
    Transactions on Systems, Man, and Cybernetics B 39 (2009).

    Checked against two programs of others (an undersampler in Python, one in MATLAB), which take the article the same
    way: support vectors are extracted from what is left, and the first granule that does not raise the score on rows
    held out ends it.

    Left open there, and chosen here: the G-mean is that on a quarter of the rows, held out in strata (on the training
    rows where a class has fewer than eight), and the number of granules found there is then used on all rows; the paper
    takes either aggregation by the data, here it is a parameter; columns are standardised; no class weights.

    What to expect of ``"combine"``: where classes overlap, the first granule alone outnumbers the positives, and the
    final machine may never alarm; without class weights nothing makes up for that.

    Parameters
    ----------
    aggregation : {"discard", "combine"}, default="discard"
    max_granules : int, default=10
        Granules at most.
    C, kernel, gamma
        As in scikit-learn's SVC.
    random_state : int, RandomState or None
        Of the rows that are held out.

    Attributes
    ----------
    granules_ : list of arrays of int
        Rows of each granule, in order.
    machine_ : SVC
        The final one, on standardised rows.

    Notes
    -----
    Support vector machines take time and memory with the square of the rows, and the first one sees them all.
    """

    _why_no_posterior = "picks rows by where they lie, and its distances to a boundary are no probabilities"

    def __init__(
        self,
        aggregation: str = "discard",
        *,
        max_granules: int = 10,
        C: float = 1.0,
        kernel: str = "rbf",
        gamma: Any = "scale",
        random_state: Any = None,
    ) -> None:
        self.aggregation = aggregation
        self.max_granules = max_granules
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.random_state = random_state

    def _machine(self) -> SVC:
        return SVC(C=self.C, kernel=self.kernel, gamma=self.gamma)

    def granules(self, X: Array, is_pos: Bools, count: int) -> list[Index]:
        """The first granules of negatives, fewer where they run out: rows of X, which is standardised already."""
        positives, left = np.flatnonzero(is_pos), np.flatnonzero(~is_pos)
        found: list[Index] = []
        while len(found) < count and len(left):
            rows = np.concatenate([positives, left])
            support = rows[self._machine().fit(X[rows], is_pos[rows]).support_]
            found.append(np.sort(support[~is_pos[support]]))
            left = np.setdiff1d(left, found[-1])
        return found

    def _aggregated(self, X: Array, is_pos: Bools, granules: list[Index]) -> SVC:
        taken = granules if self.aggregation == "combine" else granules[-1:]
        rows = np.concatenate([np.flatnonzero(is_pos), *taken])
        return self._machine().fit(X[rows], is_pos[rows])

    def _best_count(self, X: Array, is_pos: Bools) -> int:
        """How many granules there are before the first that does not raise the G-mean."""
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
        check_number(self, "max_granules", low=1, integer=True)
        check_number(self, "C", low=0, open_low=True)
        self._scaler = StandardScaler().fit(X)
        scaled = self._scaler.transform(X)
        self.granules_ = self.granules(scaled, is_pos, max(self._best_count(scaled, is_pos), 1))
        self.machine_ = self._aggregated(scaled, is_pos, self.granules_)

    def _score(self, X: Array) -> Array:
        score: Array = self.machine_.decision_function(self._scaler.transform(X))
        return score
