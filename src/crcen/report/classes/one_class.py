"""One class of several against the rest, as the tools for two classes see it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.report.classes.findings import ClassRows
from crcen.report.encoded_rows import EncodedRows, encoded_rows
from crcen.report.evidence import Evidence
from crcen.report.single_columns import separations
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.decision import weighted_probability
from crcen.theory.limits import FEWEST_OF_A_CLASS
from crcen.theory.price import CostRatio, resolve

__all__ = ["OneClass", "class_separations", "one_against_rest", "price_of_class"]

# Classes that single columns are compared with, the commonest first, and rows that they are ranked on.
_MOST_CLASSES, _MOST_ROWS = 10, 20_000
_LEAST_PRICE, _MOST_PRICE = 1e-3, 1e6


class OneClass:
    """A model of several classes that answers for one of them: its probability, and that of the rest."""

    def __init__(self, model: Any, k: int) -> None:
        self._model, self._k = model, k
        self.classes_ = rest_and_class(model.classes_.tolist()[k])
        self.pos_label_ = self.classes_[1]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the rest and of the class."""
        p = np.asarray(self._model.predict_proba(X), dtype=np.float64)[:, self._k]
        return np.column_stack([1.0 - p, p])


def rest_and_class(label: Any) -> NDArray[Any]:
    """Both labels, the rest first."""
    both = np.empty(2, dtype=object)
    both[:] = [f"not {label}", str(label)]
    return both


def price_of_class(costs: CostMatrix, k: int, counts: NDArray[np.float64]) -> float:
    """What a miss of a class is worth in rows of others taken for it: its mean extra cost over theirs, by counts."""
    others = np.flatnonzero(np.arange(costs.n_classes) != k)
    miss = float((costs.costs[k, others] - costs.costs[k, k]).mean())
    extra = costs.costs[others, k] - costs.costs[others, others]
    alarm = float(extra @ counts[others] / counts[others].sum())
    price = miss / alarm if alarm > 0.0 else _MOST_PRICE
    return float(np.clip(price, _LEAST_PRICE, _MOST_PRICE))


def one_against_rest(
    model: Any, X: Any, encoded: EncodedRows | None, rows: ClassRows, k: int, costs: CostMatrix
) -> Evidence:
    """The evidence of one class.

    Parameters
    ----------
    model : object
        Of several classes.
    X : DataFrame
        The rows as it takes them.
    encoded : EncodedRows or None
        The same as its network sees them.
    rows : ClassRows
        Its answers.
    k : int
        Number of the class.
    costs : CostMatrix
        What decisions are made by; the price of the class follows from them.
    """
    counts = rows.trained.counts
    price = resolve(CostRatio(price_of_class(costs, k, counts)), counts[k], counts.sum() - counts[k])
    label = rest_and_class(rows.labels[k])
    if encoded is not None:
        encoded = EncodedRows(encoded.X, encoded.columns, OneClass(encoded.estimator, k))
    return Evidence(
        model=OneClass(model, k),
        X=X,
        columns=tuple(str(name) for name in X.columns),
        pos_label=label[1],
        neg_label=label[0],
        target=rows.y == k,
        weights=rows.weights,
        is_weighted=bool((rows.weights != 1.0).any()),
        p=rows.p[:, k],
        q=weighted_probability(rows.p[:, k], price),
        weighting=price,
        has_price=True,
        encoded=encoded,
        is_out_of_fold=rows.is_out_of_fold,
    )


def class_separations(model: Any, X: Any, rows: ClassRows, costs: CostMatrix) -> list[tuple[str, Any, float]]:
    """How well each column alone tells the class that it tells best: (column, class, area under the ROC curve)."""
    some = np.arange(len(rows.y))
    if len(some) > _MOST_ROWS:
        some = np.sort(np.random.default_rng(0).choice(some, _MOST_ROWS, replace=False))
    part = ClassRows(rows.labels, rows.y[some], rows.p[some], rows.weights[some], rows.trained)
    frame = X.iloc[some].reset_index(drop=True)
    encoded = encoded_rows(model, frame)
    best: dict[str, tuple[Any, float]] = {}
    counts = part.counts
    for k in np.argsort(-counts, kind="stable")[:_MOST_CLASSES]:
        if min(counts[k], len(some) - counts[k]) < FEWEST_OF_A_CLASS:
            continue
        evidence = one_against_rest(model, frame, encoded, part, int(k), costs)
        for name, area in separations(evidence):
            if name not in best or area > best[name][1]:
                best[name] = rows.labels[k], area
    return [(name, label, area) for name, (label, area) in best.items()]
