"""cost_scorer: what decisions at a price cost, for scikit-learn's searches and cross-validation."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from crcen.decisions.decide import decide
from crcen.exceptions import InvalidParameter
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.labels import Labels
from crcen.theory.price import Price, resolve
from crcen.theory.rows import check_row_weights

__all__ = ["CostScorer", "cost_scorer"]


@dataclass(frozen=True)
class CostScorer:
    """Scores a fitted classifier by what its decisions cost, in false alarms a row; greater is better.

    Parameters
    ----------
    price : Budget, CostRatio, Lam, Alpha, "balanced", float, None or CostMatrix.binary(...)
        What a miss is worth.
    """

    price: Any

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the mean cost of the decisions on rows X with labels y."""
        if not hasattr(estimator, "predict_proba"):
            raise InvalidParameter(f"cost_scorer needs probabilities, and {type(estimator).__name__} has none.")
        labels = np.asarray(y)
        own = Labels.of_model(estimator, labels)
        target, weights = own.target(labels), check_row_weights(sample_weight, labels.size)
        p = np.asarray(estimator.predict_proba(X), dtype=np.float64)[:, own.column]
        price = self.price
        if not isinstance(price, CostMatrix | Price):
            n_pos, n_neg = float(weights[target].sum()), float(weights[~target].sum())
            price = resolve(price, n_pos or 1.0, n_neg or 1.0)
        costs = price if isinstance(price, CostMatrix) else CostMatrix.binary(fn=price.cost_ratio)
        return -float(costs.realised(target, decide(p, price)) @ weights / weights.sum())

    def __repr__(self) -> str:
        return f"cost_scorer({self.price!r})"


def cost_scorer(price: Any) -> CostScorer:
    """A scorer for ``GridSearchCV``, ``cross_val_score`` and the like: decisions of the probabilities at a price.

    Parameters
    ----------
    price : Budget, CostRatio, Lam, Alpha, "balanced", float, None or CostMatrix.binary(...)
        What a miss is worth. Whatever price a model was trained for, its natural probabilities are decided at this one,
        so that models of any kind are compared by what they would cost there.

    Returns
    -------
    CostScorer
        To be called with (estimator, X, y, sample_weight=None). It gives minus the mean cost a row, in false alarms, or
        in the unit of ``CostMatrix``.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from crcen import Budget, cost_scorer
    >>> X, y = make_classification(400, weights=[0.9], random_state=0)
    >>> cross_val_score(LogisticRegression(), X, y, scoring=cost_scorer(Budget(10)), cv=3).mean() < 0
    True
    """
    if isinstance(price, CostMatrix) and price.is_per_row:
        raise InvalidParameter("cost_scorer takes one price: costs that differ by row cannot be split with the rows.")
    if not isinstance(price, CostMatrix | Price):
        resolve(price, 1.0, 1.0)  # says now what it would say in the middle of a search
    return CostScorer(price)
