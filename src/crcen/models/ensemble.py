"""Ensemble: a fitted model as one immutable value, from which every prediction is computed, and probability maps."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crcen._support.lazy import isotonic, optimize
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.members.tree_arrays import TreeEnsemble, tree_walk
from crcen.theory.balance import class_shifts, solve_shift
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits
from crcen.theory.price import Labels, Price, log_softmax, sigmoid, softmax
from crcen.theory.rows import Array, Bools, Index
from crcen.training.network import Member

# A mapped log-odds this close to the threshold lies on it: a whole step of an isotonic map can, and rounding must not
# decide. It becomes the largest number below 0, so that a tie is no alarm in either order of the labels.
_TIE = 1e-12
_NO_ALARM = -np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Members' logits averaged or weighted, then shifted and mapped to natural probabilities, decided at a price.

    Logits have a column for each class. Of two classes with a positive one the negative class has the logit 0.
    """

    labels: Labels  # the classes; for a binary problem also the positive one
    weighting: Price  # the price of decisions. Weighted logits are natural logits plus its log weights
    training_weighting: Price  # the class weights of the loss
    members: tuple[Member, ...]  # the models that are averaged
    shift: Array  # added to the averaged logits
    probability_map: Array  # from natural logits to those of probabilities (see below)
    member_weights: Array | None = None  # factor of each member's logits; without them the members are averaged

    @classmethod
    def of(
        cls, labels: Labels, weighting: Price, members: tuple[Member, ...], member_weights: Array | None = None
    ) -> "Ensemble":
        """Members as they were trained, at their training weights."""
        no_shift = np.zeros(labels.n_classes)
        no_map = np.append(1.0, no_shift if labels.positive is None else 0.0)
        return cls(labels, weighting, weighting, members, no_shift, no_map, member_weights)

    def mean_logits(self, X: Array) -> Array:
        """The members' average or weighted sum before the shift, (n, K)."""
        found = self._member_logits(X)
        if self.member_weights is not None:
            pairs = zip(found, self.member_weights, strict=True)
            total = sum((weight * logits for logits, weight in pairs), start=np.zeros((len(X), 1)))
        else:
            total = found[0] if len(found) == 1 else np.mean(found, axis=0)
        return total if self.labels.positive is None else self.labels.columns(total[:, 0])

    def _member_logits(self, X: Array) -> list[Array]:
        """Logits of each member; all trees are walked together, which is faster for a single row."""
        trees = [member for member in self.members if isinstance(member, TreeEnsemble)]
        if len(trees) < 2:
            return [member.logits(X) for member in self.members]
        of_trees = iter(tree_walk(self, trees).logits(X))
        return [next(of_trees) if isinstance(member, TreeEnsemble) else member.logits(X) for member in self.members]

    def priced(self, logits: Array) -> tuple[Array, Array]:
        """Natural and weighted logits, (n, K) each, of shifted averages: every prediction comes from these."""
        natural, weighted = logits - self.weighting.log_weights, logits
        if not is_identity(self.probability_map):
            natural = apply_map(self.probability_map, natural, self.labels)
            weighted = natural + self.weighting.log_weights
        if self.labels.positive is not None:
            log_odds = self.labels.margin(weighted)
            closest = 0.0 if is_identity(self.probability_map) else _TIE
            weighted = self.labels.columns(np.where(np.abs(log_odds) <= closest, _NO_ALARM, log_odds))
        return natural, weighted

    def logits(self, X: Array) -> tuple[Array, Array]:
        """Natural and weighted logits of the rows of X, (n, K) each."""
        return self.priced(self.mean_logits(X) + self.shift)

    def decision(self, weighted: Array) -> Array:
        """Scores of the decision.

        (n,) log-odds of ``classes[1]`` for a binary problem; otherwise weighted logits with mean 0, (n, K), or minus
        the expected costs, (n, actions).
        """
        if self.weighting.costs is not None:
            return -self.weighting.costs.expected(softmax(weighted - self.weighting.log_weights))
        if self.labels.positive is not None:
            return np.asarray(weighted[:, 1] - weighted[:, 0])
        return np.asarray(weighted - weighted.mean(axis=1, keepdims=True))

    def decided(self, weighted: Array) -> NDArray[np.generic]:
        """Labels of decisions, or names of actions; of equals the negative class, or the first one."""
        if self.weighting.costs is not None:
            return self.weighting.costs.decide(softmax(weighted - self.weighting.log_weights))
        return self.labels.decode(self.labels.choose(weighted))

    def posterior(self, natural: Array, weighted: Array) -> Array:
        """Natural probabilities, (n, K) in the order of the classes.

        Next to the threshold of a binary problem a probability is rounded to the side of its log-odds, so that a
        comparison with the threshold decides as `decided` does.
        """
        if self.labels.positive is None:
            return softmax(natural)
        log_odds, price = self.labels.margin(natural), self.weighting
        thresholds = price.threshold, 1.0 / (1.0 + price.cost_ratio)  # the same number, up to rounding
        p, is_alarm = sigmoid(log_odds), self.labels.margin(weighted) > 0
        p = np.where(is_alarm, np.maximum(p, np.nextafter(max(thresholds), 1.0)), np.minimum(p, min(thresholds)))
        return self.labels.in_order(np.column_stack([sigmoid(-log_odds), p]))

    def key_equation(self, logits: Array, target: Index, weights: Array) -> KeyEquation:
        """The key equation of rows with these shifted averages and class numbers."""
        return key_equation_of_logits(target, self.priced(logits)[1], self.weighting, weights)

    def shifted(self, shift: Array) -> "Ensemble":
        """The same with a shift (K,) added to the averaged logits."""
        return replace(self, shift=self.shift + shift)

    def mapped(self, probability_map: Array) -> "Ensemble":
        """The same with another probability map."""
        return replace(self, probability_map=probability_map)

    def moved(self, shift: Array) -> "Ensemble":
        """The same with a shift (K,) added to the logits that the map returns."""
        moved = np.array(self.probability_map, dtype=np.float64)
        if self.labels.positive is None:
            moved[1:] += shift
        else:
            moved[1] += self.labels.margin(shift)
        return self.mapped(moved)

    def at_price(self, price: Price) -> "Ensemble":
        """The same natural probabilities, decided at another price."""
        if price is self.weighting:
            return self
        return replace(self, weighting=price, shift=self.shift + (price.log_weights - self.weighting.log_weights))


# A map is one float64 array, so that a fitted model stays plain NumPy. For a binary problem it maps the log-odds of the
# positive class: two numbers are slope and intercept, two rows of numbers are the corners (old, new) of a piecewise
# linear function. For K classes it is (1 + K,): a common slope, and an intercept for each class.
PROBABILITIES = ("shift", "balance", "temperature", "isotonic")


def is_identity(state: Array) -> bool:
    """Whether a map changes nothing."""
    return state.ndim == 1 and bool(state[0] == 1.0) and not state[1:].any()


def fit_map(kind: str, target: NDArray[np.generic], logits: Array, weights: Array) -> Array:
    """The map of a kind, fitted on natural logits of rows that their networks did not see."""
    is_binary = logits.ndim == 1
    if kind == "isotonic" and not is_binary:
        raise InvalidParameter("Only binary classification is supported by probability='isotonic': use 'temperature'.")
    if kind == "shift":
        return np.append(1.0, np.zeros(1 if is_binary else logits.shape[1]))
    used = weights > 0
    target, logits, weights = target[used], logits[used], weights[used] / weights[used].mean()  # for any scale
    if not np.bincount(target.astype(np.int64), minlength=2 if is_binary else logits.shape[1]).all():
        which = "both classes" if is_binary else "every class"
        raise InvalidInput(f"probability={kind!r} needs out-of-fold rows of {which}; use probability='shift'.")
    if is_binary:
        is_positive = target.astype(np.bool_)
        if kind == "balance":
            return np.array([1.0, solve_shift(is_positive, logits, weights)])
        return (_temperature if kind == "temperature" else _isotonic)(is_positive, logits, weights)
    numbers, equal = target.astype(np.int64), np.ones(logits.shape[1])
    slope = 1.0 if kind == "balance" else _slope(numbers, logits, weights)
    return np.append(slope, class_shifts(numbers, slope * logits, equal, weights))


def apply_map(state: Array, logits: Array, labels: Labels | None = None) -> Array:
    """New logits of old ones under a map: (n,) log-odds, or (n, K) with ``labels``."""
    if labels is not None and labels.positive is not None:
        return labels.columns(apply_map(state, labels.margin(logits)))
    if state.ndim == 2:
        return np.interp(logits, state[0], state[1])
    return np.asarray(state[0] * logits + (state[1:] if logits.ndim > 1 else state[1]))


def _temperature(target: Bools, logits: Array, weights: Array) -> Array:
    """Slope and intercept of least log loss; log slope ~ N(0, 1) a priori keeps it finite on separable rows."""
    total, sign = weights.sum(), np.where(target, -1.0, 1.0)

    def objective(parameters: Array) -> tuple[float, Array]:
        slope, intercept = np.exp(parameters[0]), parameters[1]
        new = slope * logits + intercept
        error = weights * (sigmoid(new) - target) / total
        # Not products of BLAS, which add up by the number of threads.
        loss = (weights * np.logaddexp(0.0, sign * new)).sum() / total + 0.5 * parameters[0] ** 2 / total
        return float(loss), np.array([slope * (error * logits).sum() + parameters[0] / total, error.sum()])

    start = np.array([0.0, solve_shift(target, logits, weights)])
    limits, close = [(-5.0, 5.0), (None, None)], {"ftol": 1e-14, "gtol": 1e-10}
    found = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, options=close)
    slope = float(np.exp(found.x[0]))
    # The prior is on the slope alone, so the best intercept is a balance solve: Σ w (y − p) = 0 holds exactly.
    return np.array([slope, solve_shift(target, slope * logits, weights)])


def _isotonic(target: Bools, logits: Array, weights: Array) -> Array:
    """Corners of the isotonic regression, in logits.

    The lowest step often holds no positive row and the highest no negative one. To claim certainty there would cost an
    infinite log loss, so a step of k rows has (0 + ½)/(k + 1) instead of 0 and 1 − ½/(k + 1) instead of 1.
    """
    regression = isotonic.IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    values = regression.fit_transform(logits, target.astype(np.float64), sample_weight=weights)
    none, all_of_them = weights[values <= 0.0], weights[values >= 1.0]
    low = 0.5 / (none.sum() + 1.0) if none.size else 0.0
    high = 1.0 - 0.5 / (all_of_them.sum() + 1.0) if all_of_them.size else 1.0
    p = np.clip(regression.y_thresholds_, low, high)
    return np.stack([regression.X_thresholds_, np.log(p) - np.log1p(-p)])


def _slope(target: Index, logits: Array, weights: Array) -> float:
    """The slope of least log loss with its intercepts, for K classes; the same prior as in `_temperature`."""
    total, rows, n_classes = weights.sum(), np.arange(len(target)), logits.shape[1]

    def objective(parameters: Array) -> tuple[float, Array]:
        slope = np.exp(parameters[0])
        log_p = log_softmax(slope * logits + parameters[1:])
        loss = -(weights * log_p[rows, target]).sum() / total + 0.5 * parameters[0] ** 2 / total
        error = np.exp(log_p)
        error[rows, target] -= 1.0
        error *= (weights / total)[:, None]
        return float(loss), np.append(slope * (error * logits).sum() + parameters[0] / total, error.sum(axis=0))

    start = np.append(0.0, class_shifts(target, logits, np.ones(n_classes), weights))
    limits, close = [(-5.0, 5.0), *[(None, None)] * n_classes], {"ftol": 1e-14, "gtol": 1e-10, "maxiter": 500}
    found = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, options=close)
    return float(np.exp(found.x[0]))
