"""PairedClassifier: the simultaneous two-sample representation (s2s) of Dumpala and others (2018)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from crcen.models.classifier import CRCENClassifier
from crcen.models.validation import check_labels, check_number, check_rows
from crcen.theory.labels import Labels
from crcen.theory.specs import CostRatio
from crcen.theory.weighting import resolve

__all__ = ["PairedClassifier"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
# Rows that meet the network at once in prediction.
_PAIRS_AT_ONCE = 2**17


class PairedClassifier(ClassifierMixin, BaseEstimator):
    """A network that reads two rows at once and answers both labels; new rows are decided by a vote over references.

    n rows make n² pairs, of which those with a rare row are many: P rare and N common rows give 2PN mixed pairs beside
    P² rare ones. The network gets pairs of each of the four kinds (common and common, common and rare, …), drawn
    without repetition, as many of a kind as there are but at most ``max_pairs``; common pairs are capped at the number
    of mixed ones of one order. It has a class for each kind, and the probability that the first row is rare is the sum
    over two of them. A new row is the first of a pair with each of the references, training rows drawn evenly from
    both classes, and the references vote.

    ``predict`` is that vote. ``predict_proba`` is the mean probability with the share of rare rows among the pairs
    taken out again, a known factor: natural, as far as the network's is.

    Left open by the paper and chosen here: one joint output for the two labels rather than two pairs of units; 25
    references of each class; an even vote alarms.

    Parameters
    ----------
    hidden, l2, n_members, max_epochs, encoding
        The network, as in `CRCENClassifier`.
    max_pairs : int, default=20000
        Of a kind.
    n_references : int, default=25
        Of each class.
    pos_label : label, default=None
        The positive class; None is the rarer one.
    random_state : int, RandomState or None
        Seed of pairs, references and networks.

    Attributes
    ----------
    pair_counts_ : dict
        Pairs of each kind that were trained on: "00" are common ones, "01" a common and then a rare row.
    weighting_ : ClassWeighting
        The price of ``predict``, which follows from the share of rare rows among the pairs.

    References
    ----------
    Dumpala, Chakraborty, Kopparapu, "A novel data representation for effective learning in class imbalanced
    scenarios", IJCAI 2018.
    """

    def __init__(
        self,
        *,
        hidden: Any = (32,),
        l2: float = 1e-4,
        n_members: int = 1,
        max_epochs: int | None = None,
        encoding: str = "standard",
        max_pairs: int = 20_000,
        n_references: int = 25,
        pos_label: Any = None,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.l2 = l2
        self.n_members = n_members
        self.max_epochs = max_epochs
        self.encoding = encoding
        self.max_pairs = max_pairs
        self.n_references = n_references
        self.pos_label = pos_label
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "PairedClassifier":
        """Draw pairs and references, and train."""
        for name in ("max_pairs", "n_references"):
            check_number(self, name, low=1, integer=True)
        X, y = check_rows(self, X, y, reset=True)
        self.classes_ = check_labels(y)
        self.labels_ = Labels.from_rows(self.classes_, y, np.ones(len(X)), self.pos_label)
        target = self.labels_.encode(y)
        rng = check_random_state(self.random_state)
        first, second, kind = self._pairs(target, rng)
        self.model_ = CRCENClassifier(
            None,
            hidden=self.hidden,
            l2=self.l2,
            n_members=self.n_members,
            max_epochs=self.max_epochs,
            encoding=self.encoding,
            balance=False,
            probability="shift",
            training_weighting="price",
            random_state=rng.randint(2**31 - 1),
        ).fit(np.hstack([X[first], X[second]]), kind)
        own = [np.flatnonzero(target == is_rare) for is_rare in (False, True)]
        drawn = [rng.choice(rows, min(len(rows), self.n_references), replace=False) for rows in own]
        self.references_ = X[np.concatenate(drawn)]
        # What a rare row weighs among the first rows of pairs over what it weighs in the table.
        in_pairs = target[first]
        among_pairs = in_pairs.sum() / (~in_pairs).sum()
        self.factor_ = float(among_pairs / (target.sum() / (~target).sum()))
        self.pos_label_ = self.labels_.positive
        self.weighting_ = resolve(CostRatio(self.factor_), target.sum(), (~target).sum())
        return self

    def _pairs(self, target: NDArray[np.bool_], rng: Any) -> tuple[Index, Index, NDArray[np.str_]]:
        rows = {"0": np.flatnonzero(~target), "1": np.flatnonzero(target)}
        mixed = min(len(rows["0"]) * len(rows["1"]), int(self.max_pairs))
        parts = []
        self.pair_counts_ = {}
        for kind in ("00", "01", "10", "11"):
            a, b = rows[kind[0]], rows[kind[1]]
            count = min(len(a) * len(b), mixed if kind == "00" else int(self.max_pairs))
            numbers = _distinct(len(a) * len(b), count, rng)
            parts.append((a[numbers // len(b)], b[numbers % len(b)], np.full(count, kind)))
            self.pair_counts_[kind] = count
        first, second, kinds = (np.concatenate(part) for part in zip(*parts, strict=True))
        return first, second, kinds

    def _votes(self, X: Any) -> tuple[Array, Array]:
        """Share of references that take a row for rare, and their mean probability of it."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        is_rare = np.char.startswith(self.model_.classes_.astype(str), "1")
        n_references = len(self.references_)
        share, mean = np.empty(len(X)), np.empty(len(X))
        step = max(1, _PAIRS_AT_ONCE // n_references)
        for start in range(0, len(X), step):
            block = X[start : start + step]
            pairs = np.hstack([np.repeat(block, n_references, axis=0), np.tile(self.references_, (len(block), 1))])
            p = self.model_.predict_proba(pairs)[:, is_rare].sum(axis=1).reshape(len(block), n_references)
            share[start : start + step] = (p >= 0.5).mean(axis=1)
            mean[start : start + step] = p.mean(axis=1)
        return share, mean

    def predict(self, X: Any) -> NDArray[Any]:
        """The label that most references vote for."""
        share, _ = self._votes(X)
        return self.labels_.decode(share >= 0.5)

    def predict_proba(self, X: Any) -> Array:
        """Natural probabilities: the references' mean, with the share of rare rows among the pairs taken out."""
        _, mean = self._votes(X)
        natural = mean / (mean + self.factor_ * (1.0 - mean))
        return self.labels_.in_order(np.column_stack([1.0 - natural, natural]))


def _distinct(n: int, count: int, rng: Any) -> Index:
    """So many different numbers below n, without a list of all n."""
    if count * 2 >= n:
        return np.asarray(rng.permutation(n)[:count], dtype=np.int64)
    found = np.unique(rng.randint(0, n, size=count + count // 4 + 16, dtype=np.int64))
    while len(found) < count:
        found = np.unique(np.concatenate([found, rng.randint(0, n, size=count, dtype=np.int64)]))
    return np.asarray(rng.permutation(found)[:count], dtype=np.int64)
