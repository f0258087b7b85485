"""Training with a weight compared with plain training and a moved threshold: decisions and costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state

from crcen.decisions.expense_curve import stratified_splits
from crcen.exceptions import InvalidParameter
from crcen.models.search.weight_path import path_logits
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.metrics import bootstrap_sums, percentile_interval
from crcen.theory.price import Price, WeightingLike
from crcen.theory.rows import Estimator, Rows, ShownInOneLine, Splitter


@dataclass(frozen=True, repr=False)
class EquivalenceReport(ShownInOneLine):
    """Two ways to decide at one price, on rows that neither was trained on; costs in false alarms for 1,000 rows."""

    weighting: Price
    n_rows: int
    n_pos: int
    share_differing: float  # share of rows that the two decide differently
    share_differing_by_seed: float  # the same for two seeds of the plain network; NaN without a seed
    cost_trained: float
    cost_cut: float
    difference: float  # trained minus cut: below 0 training with the weight was cheaper
    difference_interval: tuple[float, float]  # bootstrap over rows; it does not hold the chance of training
    level: float

    @property
    def verdict(self) -> str:
        """The result by the interval: "trained cheaper", "cut cheaper", or "no difference shown"."""
        low, high = self.difference_interval
        if high < 0.0:
            return "trained cheaper"
        return "cut cheaper" if low > 0.0 else "no difference shown"

    def __str__(self) -> str:
        (low, high), price, seed = self.difference_interval, self.weighting, self.share_differing_by_seed
        by_seed = "" if np.isnan(seed) else f" (two seeds of the plain network: {100 * seed:.2f} %)"
        return (
            f"Trained at λ = {price.lam:.4g} against a plain network cut at {price.threshold:.4g} (a miss is worth "
            f"{price.cost_ratio:.4g} false alarms)\n"
            f"  rows judged          {self.n_rows}, of them {self.n_pos} positive, none of them trained on\n"
            f"  decided differently  {100 * self.share_differing:.2f} % of rows{by_seed}\n"
            f"  cost for 1,000 rows  trained {self.cost_trained:.4g}, cut {self.cost_cut:.4g}\n"
            f"  difference           {self.difference:+.4g}, {100 * self.level:g} % interval "
            f"[{low:+.4g}, {high:+.4g}]: {self.verdict}"
        )


def equivalence_report(
    estimator: Estimator,
    X: Rows,
    y: ArrayLike,
    weighting: WeightingLike = "balanced",
    *,
    X_test: Rows = None,
    y_test: ArrayLike | None = None,
    cv: Splitter = 4,
    sample_weight: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int = 0,
) -> EquivalenceReport:
    """Train at a weight and without one, decide both at that price, and compare.

    Networks are trained from copies of the estimator, both of every fold in one stack. A plain network of another seed
    shows how much the seed alone changes.

    Parameters
    ----------
    estimator, X, y, sample_weight, X_test, y_test, cv, level, n_resamples, random_state
        See `ExpenseCurve.from_estimator`.
    weighting : Lam, Alpha, CostRatio, Budget, float or "balanced", default="balanced"
        The price; λ = ½ is the plain network itself and is refused.
    """
    splits = stratified_splits(cv, X, y, random_state) if X_test is None and y_test is None else None
    rest = {"X_test": X_test, "y_test": y_test, "sample_weight": sample_weight}
    path = path_logits(estimator, X, y, [None, weighting], splits, **rest)
    plain, price = path.weightings
    if np.isclose(price.lam, plain.lam, rtol=0.0, atol=1e-12):
        raise InvalidParameter("at λ = ½ training with the weight is plain training: give another weighting")
    trained = path.logits[1] > 0.0
    cut = path.logits[0] + price.logit_shift > 0.0
    costs, weights = CostMatrix.binary(fn=price.cost_ratio), path.weights
    own = [weights * costs.realised(path.target, alarms) for alarms in (trained, cut)]
    sums = bootstrap_sums(np.column_stack([own[0] - own[1], weights]), n_resamples, np.random.default_rng(random_state))
    low, high = percentile_interval(1000.0 * sums[:, 0] / sums[:, 1], level)
    total = float(weights.sum())
    cost_trained, cost_cut = (1000.0 * float(cost.sum()) / total for cost in own)
    by_seed = np.nan
    if "random_state" in estimator.get_params(deep=False):
        seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
        other = path_logits(clone(estimator).set_params(random_state=seed), X, y, [None], splits, **rest)
        by_seed = float(weights @ ((other.logits[0] + price.logit_shift > 0.0) != cut)) / total
    return EquivalenceReport(
        weighting=price,
        n_rows=len(trained),
        n_pos=int(path.target.sum()),
        share_differing=float(weights @ (trained != cut)) / total,
        share_differing_by_seed=by_seed,
        cost_trained=cost_trained,
        cost_cut=cost_cut,
        difference=cost_trained - cost_cut,
        difference_interval=(low, high),
        level=level,
    )
