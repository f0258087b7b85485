"""Labels and price of a problem: its classes, what mistakes on them cost, and the probabilities that this changes."""

import contextlib
import math
import numbers
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_binary_target, check_class_numbers, check_probabilities, check_row_weights
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.rows import Array, Bools, Index, LabelArray, Shown, alarms_above, as_numpy

_NEEDS_COUNTS = "class counts are needed to turn {!r} into {}: resolve it first with resolve(weighting, n_pos, n_neg)"


def _real_number(value: object, name: str, allowed: str) -> float:
    """`value` as a float (NaN and infinities included), or an error that states why it is not one number."""
    got, meant = f"a {type(value).__name__}", "one plain number"
    if isinstance(value, bool | np.bool_):
        got, meant = f"the truth value {bool(value)}", '"balanced"' if value else "None, plain cross entropy"
    elif isinstance(value, numbers.Real):
        with contextlib.suppress(OverflowError):
            return float(value)
        return math.inf
    elif isinstance(value, str):
        got, meant = f"the text {value!r}", "a number"
    elif isinstance(value, _Spec):
        got, meant = f"{value!r}", f"{value!r} by itself"
    elif isinstance(value, type):
        got, meant = f"the class {value.__name__}", f"{value.__name__}(…) with a number"
    raise InvalidParameter(f"{name} must be {allowed}, got {got}: did you mean {meant}?")


def positive_number(value: object, name: str) -> float:
    """`value` as a float; an error that uses `name` unless it is one finite number above 0."""
    allowed = "a finite number above 0"
    number = _real_number(value, name, allowed)
    if math.isfinite(number) and number > 0.0:
        return number
    hint = f"did you mean {-number:.12g}?" if number < 0.0 else "did you mean a small number above 0?"
    if not math.isfinite(number):
        hint = "did a computation before it overflow?"
    named = name if name.islower() else ()  # otherwise a class
    raise InvalidParameter(f"{name} must be {allowed}, got {number:.12g}: {hint}", parameter=named)


@dataclass(frozen=True, repr=False)
class _Spec:
    """One positive number; its class gives it a meaning."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", positive_number(self.value, type(self).__name__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Lam(_Spec):
    """The weight λ of the positive class, strictly between 0 and 1; negative rows have 1 − λ. ½ is no weighting."""

    def __post_init__(self) -> None:
        allowed = "a number strictly between 0 and 1"
        lam = _real_number(self.value, "λ", allowed)
        if 0.0 < lam < 1.0:
            object.__setattr__(self, "value", lam)
            return
        text = f"{lam:.12g}"
        hint = f"did you mean Alpha({text}) or CostRatio({text})?"
        if not math.isfinite(lam):
            hint = "did a computation before it overflow?"
        elif lam == 1.0:
            hint = 'did you mean None (λ = ½) or "balanced" (Alpha(1))?'
        elif lam <= 0.0:
            hint = "did you mean None, plain cross entropy, which is λ = ½?"
        raise InvalidParameter(f"λ must be {allowed}, got {text}: {hint}")


class Alpha(_Spec):
    """The paper's multiplier α = cost ratio · n_pos / n_neg, above 0; Alpha(1) is "balanced"."""


class CostRatio(_Spec):
    """Cost of one missed positive in units of one false alarm, λ / (1 − λ), above 0; 1 is plain cross entropy."""


class Budget(_Spec):
    """The most false alarms that one more catch may cost, above 0; the same number as the cost ratio."""


Spec: TypeAlias = Lam | Alpha | CostRatio | Budget


def as_spec(weighting: object) -> Spec:
    """Any statement of one number as its spec: a plain number is λ, None is λ = ½, "balanced" is α = 1."""
    if weighting is None:
        return Lam(0.5)
    if isinstance(weighting, Lam | Alpha | CostRatio | Budget):
        return weighting
    if isinstance(weighting, str):
        if weighting == "balanced":
            return Alpha(1.0)
        hint = 'did you mean "balanced", None (plain cross entropy), or a number without quotes?'
        raise InvalidParameter(f'a weighting given as text must be "balanced", got {weighting!r}: {hint}')
    if hasattr(weighting, "use") and not isinstance(weighting, type):  # a goal says so
        raise InvalidParameter(f"{weighting!r} is not a price by itself: {weighting.use}")
    return Lam(weighting)  # type: ignore[arg-type]  # Lam refuses what is not a number, with a suggestion


@dataclass(frozen=True, eq=False, repr=False)
class Price(Shown):
    """A resolved price: class weights, training counts and, if given, a cost matrix.

    Only ratios of weights matter: w_j / w_k is how many rows of class k one row of class j is worth. For two classes
    with a positive one the weights are stored as 1 − λ and λ, and everything else derives from them, so that all names
    agree to the last digits. Then it also has ``lam``, ``alpha``, ``cost_ratio``, ``budget``, ``threshold``,
    ``logit_shift``, ``n_pos``, ``n_neg`` and ``imbalance_ratio``.
    """

    weights: Array  # (K,), above 0, in the order of the classes
    counts: Array  # likewise; weighted if there are sample weights
    costs: CostMatrix | None = None  # what decisions are made by if weights cannot state it
    positive: int | None = None  # column of the positive class, if K = 2

    def __post_init__(self) -> None:
        for name in ("weights", "counts"):
            values = np.array(getattr(self, name), dtype=np.float64)
            if values.ndim != 1 or values.size < 2 or not ((values > 0.0) & (values < np.inf)).all():
                text = f"{name} of classes must be two or more numbers, finite and above 0: got {values.tolist()}."
                raise InvalidParameter(text)
            object.__setattr__(self, name, values)
        n_weights, n_counts = self.weights.size, self.counts.size
        if n_weights != n_counts or (self.positive is not None and (n_weights != 2 or self.positive not in (0, 1))):
            raise InvalidParameter(f"got {n_weights} weights for {n_counts} classes, with positive={self.positive!r}.")
        if self.positive is not None:
            pos, neg = self.weights[[self.positive, 1 - self.positive]].tolist()
            if neg != 1.0 - pos:
                cost = pos / neg
                lam = cost / (1.0 + cost) if cost < 1.0 else 1.0 / (1.0 + 1.0 / cost)
                object.__setattr__(self, "weights", _by_column(lam, 1.0 - lam, self.positive))
            # Each in turn: the first one out of range could make the next one divide by 0.
            names, least = ("cost_ratio", "imbalance_ratio", "alpha"), sys.float_info.min
            if not 0.0 < self.lam < 1.0 or not all(least <= getattr(self, name) < math.inf for name in names):
                got = f"got λ = {self.lam!r} with counts {self.n_pos:g} and {self.n_neg:g}: use a milder weighting"
                raise InvalidParameter(f"λ, α and the cost ratio must be above 0 and finite, and λ below 1, {got}")
        self.weights.setflags(write=False)
        self.counts.setflags(write=False)

    @classmethod
    def binary(cls, lam: float, n_pos: float, n_neg: float, positive: int = 1) -> "Price":
        """The price λ of two classes with these counts."""
        value = Lam(lam).value
        pos, neg = positive_number(n_pos, "n_pos"), positive_number(n_neg, "n_neg")
        return cls(_by_column(value, 1.0 - value, positive), _by_column(pos, neg, positive), None, positive)

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.weights.size)

    @property
    def log_weights(self) -> Array:
        """What the weights add to the natural logits, (K,); for two classes relative to the negative one."""
        if self.positive is None:
            return np.asarray(np.log(self.weights))
        return _by_column(math.log(self.cost_ratio), 0.0, self.positive)

    def _column(self, name: str) -> int:
        if self.positive is None:
            raise AttributeError(f"a price of {self.n_classes} classes has no {name}: see weights and counts.")
        return self.positive

    @property
    def lam(self) -> float:
        """λ, the weight of a positive row; a negative one has 1 − λ."""
        return float(self.weights[self._column("lam")])

    @property
    def threshold(self) -> float:
        """Natural posterior above which a row is decided positive, 1 − λ = 1 / (1 + cost ratio)."""
        return float(self.weights[1 - self._column("threshold")])

    @property
    def n_pos(self) -> float:
        """Count of the positive class."""
        return float(self.counts[self._column("n_pos")])

    @property
    def n_neg(self) -> float:
        """Count of the negative class."""
        return float(self.counts[1 - self._column("n_neg")])

    @property
    def cost_ratio(self) -> float:
        """Cost of one miss in false alarms, λ / (1 − λ)."""
        return self.lam / self.threshold

    budget = cost_ratio  # false alarms that one more catch may cost

    @property
    def alpha(self) -> float:
        """The paper's α, cost ratio · n_pos / n_neg; 1 is "balanced"."""
        return self.cost_ratio / self.imbalance_ratio

    @property
    def logit_shift(self) -> Any:
        """What the price adds to the natural logit of the positive class, log cost ratio; `log_weights` for K > 2."""
        return self.log_weights if self.positive is None else math.log(self.cost_ratio)

    @property
    def imbalance_ratio(self) -> float:
        """Negatives per positive, n_neg / n_pos."""
        return self.n_neg / self.n_pos

    @property
    def cost_matrix(self) -> CostMatrix:
        """The costs that it states: a mistake on a class costs its weight; in false alarms for two classes."""
        if self.costs is not None:
            return self.costs
        weights = self.weights if self.positive is None else _by_column(self.cost_ratio, 1.0, self.positive)
        return CostMatrix(weights[:, None] * (1.0 - np.eye(self.n_classes)))

    def decide(self, p: ArrayLike) -> NDArray[Any]:
        """Decide by natural probabilities, (n,) of the positive class or (n, K); of equals no alarm, or the first."""
        chances = check_probabilities(p, "p")
        if chances.ndim == 1 and self.positive is not None:
            if self.costs is None or not self.costs.actions:
                return alarms_above(chances, self.threshold)
            chances = self.by_column(chances, 1.0 - chances)
        self._check_columns(chances)
        if self.costs is not None and (self.positive is None or self.costs.actions):
            return self.costs.choose(chances)
        if self.positive is None:
            return np.asarray((chances * self.weights).argmax(axis=1))
        return np.where(alarms_above(chances[:, self.positive], self.threshold), self.positive, 1 - self.positive)

    def _check_columns(self, values: Array) -> Array:
        if values.ndim != 2 or values.shape[1] != self.n_classes:
            raise InvalidInput(f"p must have a column for each of {self.n_classes} classes: got {values.shape}.")
        return values

    def by_column(self, pos: Array, neg: Array) -> Array:
        """Values of the positive and the negative class as columns (n, 2) in the order of the classes."""
        return _by_column(pos, neg, self._column("positive class"))

    def replace(self, weighting: object) -> "Price":
        """Another price for the same classes and counts."""
        return resolved(weighting, self.counts, self.positive)

    def row_weights(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Array:
        """Weights of rows in the loss: that of the row's class (0/1 or class numbers) times its sample weight."""
        if self.positive is not None:
            target = check_binary_target(y)
            return check_row_weights(sample_weight, target.size) * np.where(target, self.lam, self.threshold)
        classes = check_class_numbers(y, self.n_classes)
        return np.asarray(check_row_weights(sample_weight, classes.size) * self.weights[classes])

    def posterior(self, q: ArrayLike) -> Array:
        """Natural probabilities p_k ∝ q_k / w_k of weighted ones, (n, K), or (n,) of the positive class."""
        weighted = check_probabilities(q, "q")
        if weighted.ndim == 1 and self.positive is not None:
            return np.asarray(weighted / (weighted + self.cost_ratio * (1.0 - weighted)))
        return _normalised(self._check_columns(weighted) / self.weights)

    def weighted(self, p: ArrayLike) -> Array:
        """Weighted probabilities q_k ∝ w_k p_k of natural ones, (n, K), or (n,) of the positive class."""
        natural = check_probabilities(p, "p")
        if natural.ndim == 1 and self.positive is not None:
            return np.asarray(self.cost_ratio * natural / (self.cost_ratio * natural + (1.0 - natural)))
        return _normalised(self._check_columns(natural) * self.weights)

    def __str__(self) -> str:
        if self.positive is None:
            pairs = enumerate(zip(self.weights, self.counts, strict=True))
            return "weights " + ", ".join((f"class {k}: {w:.6g} (of {n:.12g} rows)" for k, (w, n) in pairs))
        price = f"{self.cost_ratio:.6g}"
        return (
            f"λ = {self.lam:.6g}, α = {self.alpha:.6g}, cost ratio = {price} (a miss is worth {price} false alarms), "
            f"budget = {price} false alarms per extra catch; positive above posterior {self.threshold:.6g}; "
            f"counts {self.n_pos:.12g} positive, {self.n_neg:.12g} negative"
        )

    def __repr__(self) -> str:
        if self.positive is not None:
            return f"Price(lam={self.lam!r}, n_pos={self.n_pos!r}, n_neg={self.n_neg!r})"
        return f"Price(weights={self.weights.tolist()}, counts={self.counts.tolist()})"

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Price) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.weights.tobytes(), self.counts.tobytes(), self.positive, self.costs


WeightingLike: TypeAlias = Price | Spec | CostMatrix | Mapping[Any, float] | ArrayLike | None


def resolve(
    weighting: object, n_pos: float | None = None, n_neg: float | None = None, *, counts: ArrayLike | None = None
) -> Price:
    """Resolve a price with the class counts; an invalid weighting raises an error with a suggestion.

    Parameters
    ----------
    weighting : Price, Lam, Alpha, CostRatio, Budget, float, "balanced", None, dict, array or CostMatrix
        For two classes a plain number is λ and None is λ = ½. ``"balanced"`` is α = 1, or n / (K · count) for K > 2
        classes. A dict has a weight for each class number, an array one for each class. A `Price` is returned as it is.
    n_pos, n_neg : float
        Counts of the positive and the negative class, above 0.
    counts : array of shape (K,)
        Counts of all classes instead; for two classes (negative, positive), the second of which is positive.

    Examples
    --------
    >>> from crcen import Budget, resolve
    >>> price = resolve(Budget(9), n_pos=100, n_neg=900)
    >>> round(price.lam, 12), round(price.alpha, 12)
    (0.9, 1.0)
    >>> resolve("balanced", counts=[50, 30, 20]).weights.round(3).tolist()
    [0.667, 1.111, 1.667]
    """
    if isinstance(weighting, Price):
        return weighting
    if counts is not None:
        if n_pos is not None or n_neg is not None:
            raise InvalidParameter("give n_pos and n_neg, or counts, not both.")
        sizes = np.asarray(as_numpy(counts), dtype=np.float64)
        return resolved(weighting, sizes, 1 if sizes.shape == (2,) else None)
    return resolved(weighting, np.array([positive_number(n_neg, "n_neg"), positive_number(n_pos, "n_pos")]), 1)


def resolved(weighting: object, counts: Array, positive: int | None = None) -> Price:
    """A price of the classes with these counts; a `Price` keeps its weights and costs, and takes these counts."""
    if isinstance(weighting, Price):
        weights, costs = weighting.weights, weighting.costs
        if None not in (positive, weighting.positive) and positive != weighting.positive:
            weights, costs = weights[::-1], None if costs is None else _reversed(costs)
        return Price(weights, counts, costs, positive)
    if isinstance(weighting, CostMatrix):
        weighting = _reversed(weighting) if weighting.is_binary and positive == 0 else weighting
        stated = weighting.class_weights()
        return Price(np.ones(counts.size) if stated is None else stated, counts, weighting, positive)
    if isinstance(weighting, Mapping):
        if set(weighting) != set(range(counts.size)):
            raise InvalidParameter(f"weights must be given for the classes 0 to {counts.size - 1}: got {weighting!r}.")
        weighting = [weighting[k] for k in range(counts.size)]
    is_list = isinstance(weighting, list | tuple) or getattr(weighting, "ndim", 0) == 1
    if positive is not None and not is_list:
        spec = as_spec(weighting)
        pos, neg = positive_number(counts[positive], "n_pos"), positive_number(counts[1 - positive], "n_neg")
        factor = neg / pos if isinstance(spec, Alpha) else 1.0
        negative = 1.0 - spec.value if isinstance(spec, Lam) else 1.0
        return Price(_by_column(spec.value * factor, negative, positive), counts, None, positive)
    if hasattr(weighting, "use") or (isinstance(weighting, str) and weighting != "balanced"):
        as_spec(weighting)  # refuses it
    if weighting is None:
        return Price(np.ones(counts.size), counts)
    if isinstance(weighting, str):
        return Price(counts.sum() / (counts.size * counts), counts)
    if isinstance(weighting, _Spec | float | int | np.number):
        got = f"{weighting!r}, a price for two classes, and there are {counts.size}"
        hint = "give a weight for each class as a dict or an array, 'balanced', or a CostMatrix"
        raise InvalidParameter(f"Only binary classification is supported by {got}: {hint}.")
    try:
        weights = np.asarray(as_numpy(weighting), dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.empty((0, 0))
    if weights.shape != counts.shape:
        allowed = f"'balanced', None, a dict or an array of {counts.size} weights, or a CostMatrix"
        raise InvalidParameter(f"a weighting of {counts.size} classes must be {allowed}: got {weighting!r}.")
    return Price(weights, counts, None, positive)


def cost_ratio_of(weighting: object) -> float:
    """Cost ratio of a price of two classes that needs no class counts for it: anything but an unresolved α."""
    if isinstance(weighting, Price):
        return weighting.cost_ratio
    spec = as_spec(weighting)
    if isinstance(spec, Alpha):
        raise InvalidParameter(_NEEDS_COUNTS.format(weighting, "a cost ratio"))
    return spec.value / (1.0 - spec.value) if isinstance(spec, Lam) else spec.value


def alpha_of(weighting: object) -> float:
    """α of a price of two classes that needs no class counts for it: a resolved one, `Alpha` or "balanced"."""
    if isinstance(weighting, Price):
        return weighting.alpha
    spec = as_spec(weighting)
    if not isinstance(spec, Alpha):
        raise InvalidParameter(_NEEDS_COUNTS.format(weighting, "α"))
    return spec.value


def is_price_of_two(weighting: object) -> bool:
    """Whether a weighting can only be for two classes."""
    if isinstance(weighting, Price):
        return weighting.positive is not None
    if weighting is None or isinstance(weighting, str | CostMatrix | list | np.ndarray):
        return isinstance(weighting, CostMatrix) and weighting.is_price
    return not isinstance(weighting, Mapping) or len(weighting) == 2


def _reversed(costs: CostMatrix) -> CostMatrix:
    labels = range(2) if costs.labels is None else costs.labels
    swapped = CostMatrix(costs.costs, labels, costs.actions).for_classes(labels[::-1])
    return CostMatrix(swapped.costs, costs.labels and swapped.labels, costs.actions)


def _by_column(pos: float | Array, neg: float | Array, positive: int) -> Array:
    return np.stack([neg, pos] if positive == 1 else [pos, neg], axis=-1)


def _normalised(values: Array) -> Array:
    totals = values.sum(axis=1, keepdims=True)
    if (totals <= 0.0).any():
        raise InvalidInput("a row of probabilities must not be all zero.")
    return np.asarray(values / totals)


# Class weights that differ by less than this share are equal; then the number of rows decides which class is rarer.
_TIE = 1e-9


@dataclass(frozen=True, eq=False)
class Labels:
    """K ≥ 2 sorted classes; for a binary problem also the positive class (None where a cost matrix decides).

    The positive class is the requested one; otherwise the class with less weight, or fewer rows if weights
    tie; otherwise the last one.
    """

    classes: LabelArray
    positive: object = None

    @classmethod
    def from_totals(
        cls, classes: LabelArray, weights: ArrayLike, rows: ArrayLike, pos_label: object, weighting: object
    ) -> "Labels":
        """By the weight and the number of rows of each class; no class is positive of K > 2 or with a cost matrix."""
        total, count = np.asarray(weights, dtype=np.float64), np.asarray(rows, dtype=np.float64)
        _check_weight(classes, total)
        costs = weighting.costs if isinstance(weighting, Price) else weighting
        has_costs = isinstance(costs, CostMatrix) and not costs.is_price
        if len(classes) > 2 or has_costs:
            if pos_label is not None:
                got = f"{len(classes)} classes{' and a cost matrix' if has_costs else ''}"
                hint = f"leave it None, or fit on y == {pos_label!r} to separate that class from the rest"
                raise InvalidParameter(f"pos_label is for two classes and a price, and there are {got}: {hint}.")
            if hasattr(weighting, "use"):  # a goal
                got = f"{weighting!r} is for two classes, and there are {len(classes)}"
                raise InvalidParameter(f"{got}: choose_weighting finds class weights that reach recalls.")
            return cls(classes)
        if pos_label is not None and (np.asarray(pos_label).ndim or pos_label not in classes.tolist()):
            listed = ", ".join(repr(c) for c in classes.tolist())
            raise InvalidParameter(f"pos_label must be one of the classes {listed}: got {pos_label!r}.")
        return cls(classes, _rarer(classes, total, count) if pos_label is None else pos_label)

    @classmethod
    def from_rows(
        cls, classes: LabelArray, y: LabelArray, weights: Array, pos_label: object = None, weighting: object = None
    ) -> "Labels":
        """By the labels of rows and their weights."""
        own = np.array([y == label for label in classes])
        return cls.from_totals(classes, own @ weights, own.sum(axis=1), pos_label, weighting)

    @classmethod
    def of_model(cls, model: object, y: LabelArray | None = None, weights: Array | None = None) -> "Labels":
        """Labels of a fitted classifier of two classes: its ``pos_label_``, else by these rows, else the last class."""
        classes = np.asarray(getattr(model, "classes_", ()))
        if classes.shape != (2,):
            raise InvalidInput(f"model must be a fitted classifier of two classes, got {type(model).__name__}")
        if hasattr(model, "pos_label_"):
            return cls(classes, model.pos_label_)
        if y is None:
            return cls(classes, classes[1])
        rows = np.array([y == label for label in classes])
        count = rows.sum(axis=1, dtype=np.float64)
        return cls(classes, _rarer(classes, count if weights is None else rows @ weights, count))

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def column(self) -> int:
        """Column of the positive class."""
        if self.positive is None:
            raise InvalidInput(f"none of {self.n_classes} classes is the positive one.")
        return int(self.is_last)

    @property
    def is_last(self) -> bool:
        """Whether the positive class is ``classes[1]``, whose sign scikit-learn's decision functions have."""
        return bool(self.positive == self.classes[1])

    @property
    def negative(self) -> object:
        """The other of two classes."""
        return self.classes[1 - self.column]

    def encode(self, y: ArrayLike, name: str = "y") -> Index:
        """Class numbers of labels; a label that is no class is refused."""
        labels = np.asarray(as_numpy(y))
        numbers = np.full(labels.shape, -1, dtype=np.int64)
        for number, label in enumerate(self.classes.tolist()):  # isin would take "1" for 1
            numbers[np.asarray(labels == label)] = number
        unknown = labels[numbers < 0].tolist()
        if unknown:
            raise InvalidInput(f"{name} must hold the labels {self.classes.tolist()} only: got {unknown[0]!r}.")
        return numbers

    def target(self, y: ArrayLike, name: str = "y") -> LabelArray:
        """The target of training: whether rows are positive, or class numbers if there is no positive class."""
        numbers = self.encode(y, name)
        return numbers if self.positive is None else numbers == self.column

    def decode(self, decided: Index | Bools) -> LabelArray:
        """Labels of class numbers, or of truth values for the positive class."""
        if decided.dtype == np.bool_:
            decided = np.where(decided, self.column, 1 - self.column)
        return np.asarray(self.classes[decided])

    def counts(self, numbers: Index, weights: ArrayLike) -> Array:
        """Weight of the rows of each class, by class number; each class must have some."""
        found = np.bincount(numbers, np.asarray(weights, np.float64), self.n_classes).astype(np.float64)
        _check_weight(self.classes, found)
        return found

    def columns(self, logits: ArrayLike) -> Array:
        """Logits of all classes, (…, K), from those of a network, which has one logit for K = 2: the positive one."""
        values = np.asarray(logits, dtype=np.float64)
        if self.positive is None:
            return values
        found = np.zeros((*values.shape, 2))
        found[..., self.column] = values
        return found

    def margin(self, columns: Array) -> Array:
        """Log-odds of the positive class, (…), from logits of both classes, (…, 2)."""
        return np.asarray(columns[..., self.column] - columns[..., 1 - self.column])

    def choose(self, logits: Array) -> Index:
        """Number of the class with the largest logit; of equals the negative class, or the first one."""
        if self.positive is None:
            return np.asarray(logits.argmax(axis=-1))
        return np.where(self.margin(logits) > 0, self.column, 1 - self.column)

    def signed(self, logits: Array) -> Array:
        """Logits of ``classes[1]`` from those of the positive class, and back."""
        return logits if self.is_last else -logits

    def in_order(self, columns: Array) -> Array:
        """Columns (…, K) of which the positive class is the last of two, in the order of the classes, and back."""
        return columns if self.positive is None or self.is_last else columns[..., ::-1]

    def pair(self, by_class: Sequence[float] | Array) -> tuple[float, float]:
        """The numbers of the positive and the negative class, of numbers in the order of the classes."""
        return float(by_class[self.column]), float(by_class[1 - self.column])

    def by_class(self, pos: float, neg: float) -> Array:
        """The inverse of `pair`."""
        return np.array([neg, pos] if self.is_last else [pos, neg], dtype=np.float64)

    def resolve(self, weighting: object, counts: ArrayLike) -> Price:
        """Resolve a price (see `crcen.resolve`) with counts in the order of the classes; a dict has labels as keys."""
        if isinstance(weighting, CostMatrix):
            if weighting.is_per_row:
                hint = "use crcen.decide(proba, costs), and fit with weighting=None"
                raise InvalidParameter(f"costs that differ by row belong to the rows of a decision: {hint}.")
            if weighting.is_binary and self.positive is None and self.classes.tolist() not in ([0, 1], [-1, 1]):
                why = "these costs must name the classes, because no class is the positive one here"
                raise InvalidParameter(f"{why}: give CostMatrix(..., labels=[negative, positive]).", parameter="costs")
            weighting = weighting.for_classes(self.classes.tolist(), self.positive)
            weighting.check_right_is_cheapest()
        elif isinstance(weighting, Mapping):
            labels = self.classes.tolist()
            if set(weighting) != set(labels):
                listed = ", ".join(map(repr, labels))
                raise InvalidParameter(f"a weighting dict needs one weight for each of {listed}: got {weighting!r}.")
            weighting = [positive_number(weighting[label], f"the weight of class {label}") for label in labels]
        return resolved(weighting, np.asarray(counts, dtype=np.float64), None if self.positive is None else self.column)


def _check_weight(classes: LabelArray, totals: Array) -> None:
    for label in classes[~(totals > 0.0)].tolist():
        raise InvalidInput(f"every class needs weight: every row of class {label} has sample_weight 0.")


def _rarer(classes: LabelArray, weights: Array, rows: Array) -> object:
    """The class with less weight, or fewer rows if weights tie; the last one if these tie too."""
    decides = rows if abs(weights[0] - weights[1]) <= _TIE * weights.sum() else weights
    return classes[0] if decides[0] < decides[1] else classes[1]


def posterior(q: ArrayLike, weighting: WeightingLike) -> Array:
    """Natural posterior of a network's weighted output: logit p = logit q − log cost ratio; 0 and 1 stay.

    Parameters
    ----------
    q : array of any shape, or (n, K) with a weighting of K > 2 classes
        Weighted probabilities of the positive class, in [0, 1], or of every class.
    weighting : Price, Lam, CostRatio, Budget, float, class weights or None
        The weighting of q; an unresolved α needs class counts first.
    """
    price = by_class(weighting)
    if isinstance(price, Price) and price.positive is None:
        return price.posterior(q)
    cost, weighted = cost_ratio_of(price), check_probabilities(q, "q")
    # Odds divided by c without a logarithm: nothing overflows, and 0 and 1 are exact.
    return np.asarray(weighted / (weighted + cost * (1.0 - weighted)), dtype=np.float64)[()]


def weighted_probability(p: ArrayLike, weighting: WeightingLike) -> Array:
    """Output of a right network under a weighting if the natural posterior is p: the inverse of `posterior`."""
    price = by_class(weighting)
    if isinstance(price, Price) and price.positive is None:
        return price.weighted(p)
    cost, natural = cost_ratio_of(price), check_probabilities(p, "p")
    return np.asarray(cost * natural / (cost * natural + (1.0 - natural)), dtype=np.float64)[()]


def by_class(weighting: object) -> object:
    """A price of class weights, which need no counts; any other weighting as it is."""
    values = np.array(weighting, dtype=object) if isinstance(weighting, list | tuple) else weighting
    if isinstance(values, Mapping) or (isinstance(values, np.ndarray) and values.ndim == 1):
        return resolve(weighting, counts=np.ones(len(values)))
    if isinstance(values, np.ndarray) and values.ndim > 1:
        raise InvalidParameter(f"costs must be a CostMatrix: got an array of shape {values.shape}.", parameter="costs")
    return weighting


def sigmoid(logits: ArrayLike) -> Array:
    """1 / (1 + exp(−logits)) in float64 without overflow; infinities become 0 and 1, NaN stays NaN."""
    values = np.asarray(logits, dtype=np.float64)
    decay = np.exp(-np.abs(values))
    return np.asarray(np.where(values >= 0.0, 1.0, decay) / (1.0 + decay), dtype=np.float64)[()]


def softmax(logits: Array) -> Array:
    """Probabilities of each row of logits, (n, K)."""
    mass = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(mass / mass.sum(axis=1, keepdims=True))


def log_softmax(logits: Array) -> Array:
    """Their logarithms, which keep their digits if a probability rounds to 1."""
    below = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(axis=1, keepdims=True)))


def log_sum_exp(values: Array, axis: int) -> Array:
    """log Σ exp along an axis, −inf of nothing; several times faster than SciPy's, which inner loops need."""
    if values.shape[axis] == 0:
        return np.full(np.delete(values.shape, axis), -np.inf)
    top = values.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(values - top).sum(axis=axis)) + np.squeeze(top, axis=axis))
