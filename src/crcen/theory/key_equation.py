"""The key equation on any rows, K ≥ 2 classes: outflow of each class equals its inflow, F_jk = w_j Σ_{y=j} s q_k."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.text import attributes
from crcen.exceptions import InvalidInput
from crcen.theory import checks, residual_test
from crcen.theory.limits import EQUATION_P, fitted_model_noise
from crcen.theory.price import Price, WeightingLike, alpha_of, cost_ratio_of, resolve, resolved, sigmoid, softmax
from crcen.theory.residual_test import FEWEST_TO_TEST, JointResidualSums, JointTest, PairSums, TrainingError, two_sided
from crcen.theory.rows import Array, FloatOrArray, Index, ShownInOneLine, as_numpy, divided, p_text, scalar, short

_OUT_OF_FOLD = "folds share training rows, so their errors cancel; test on rows that were not used in training"
_TOO_FEW = f"fewer than {FEWEST_TO_TEST} rows of a class are too few to test"
_PAIRS_SHOWN = 5
_ROUNDING = 1e-12  # of probabilities


@dataclass(frozen=True, eq=False, repr=False)
class KeyEquation(ShownInOneLine):
    """The key equation on some rows."""

    weighting: Price  # its counts are those of the training rows if it came resolved
    flows: Array  # (K, K), F_jk = w_j Σ_{y=j} s q_k: weight of class j that the model gives to class k
    equations: JointTest  # of the K − 1 equations; for two classes the statistic is z²
    pairs: JointTest  # of all pairwise equations E F_jk = E F_kj, which true posteriors satisfy, training need not
    variances: Array  # (K,), in each class, of q of the positive class; of q of the class itself for K > 2
    z: float = math.nan  # for two classes: the residual in standard deviations; NaN if there is no test
    rows: str = ""  # which rows these are

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.flows)

    @property
    def p_value(self) -> float:
        """Of the test of the equations; NaN if there is none."""
        return self.equations.p_value

    @property
    def z_reason(self) -> str:
        """Why there is no test; empty otherwise."""
        return self.equations.reason

    @property
    def confusion(self) -> Array:
        """Soft confusion matrix M: rows of class j have the mean output M_jk for class k; NaN for an absent class."""
        return divided(self.flows, self.flows.sum(axis=1, keepdims=True))

    @property
    def shares(self) -> Array:
        """π, the weighted share of each class on these rows; π M = π if the key equations hold."""
        return np.asarray(self.flows.sum(axis=1) / self.flows.sum())

    @property
    def outflows(self) -> Array:
        """w_k Σ_{y=k} s (1 − q_k) of each class."""
        return np.asarray((self.flows * (1.0 - np.eye(self.n_classes))).sum(axis=1))

    @property
    def inflows(self) -> Array:
        """What each class receives from the others."""
        return np.asarray((self.flows * (1.0 - np.eye(self.n_classes))).sum(axis=0))

    @property
    def residuals(self) -> Array:
        """(outflow − inflow) / Σ s w of each class; they sum to zero."""
        return np.asarray((self.outflows - self.inflows) / self.flows.sum())

    @property
    def lhs(self) -> FloatOrArray:
        """(1 − mean_pos) / mean_neg for two classes (inf if mean_neg is 0, NaN for 0/0); otherwise outflows."""
        if self.n_classes > 2:
            return self.outflows
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.divide(self._miss_pos, self.mean_neg))

    @property
    def rhs(self) -> FloatOrArray:
        """1/α for two classes, otherwise the inflows (K,)."""
        return self.inflows if self.n_classes > 2 else 1.0 / self.weighting.alpha

    @property
    def discrimination(self) -> FloatOrArray:
        """D = mean_pos − mean_neg, or D_k: mean output for k of rows of k, less others."""
        if self.n_classes == 2:
            return self.mean_pos - self.mean_neg
        pi, m = self.shares, self.confusion
        return np.asarray(np.diag(m) - (pi @ m - pi * np.diag(m)) / (1.0 - pi))

    @property
    def residual(self) -> float:
        """|Σ w(y−q)| / Σ w on the training rows, with the counts of the price; for K > 2 the largest residual."""
        if self.n_classes > 2:
            return float(np.abs(self.residuals).max())
        missed, alarmed = self._sides
        return abs(missed - alarmed) / float(self.weighting.weights @ self.weighting.counts)

    @property
    def imbalance(self) -> float:
        """The same over the sum of both terms (two classes): not small merely because classes are separable."""
        missed, alarmed = self._sides
        return abs(missed - alarmed) / (missed + alarmed) if missed + alarmed > 0.0 else 0.0

    @property
    def mean_pos(self) -> float:
        """For two classes: mean of q among positives."""
        return self._mean(self._column, self._column)

    @property
    def mean_neg(self) -> float:
        """For two classes: mean of q among negatives."""
        return self._mean(1 - self._column, self._column)

    @property
    def var_pos(self) -> float:
        """For two classes: variance of q among positives."""
        return float(self.variances[self._column])

    @property
    def var_neg(self) -> float:
        """For two classes: variance of q among negatives."""
        return float(self.variances[1 - self._column])

    @property
    def predicted_mean_pos(self) -> float:
        """Mean of q among positives by the general-λ law, (1 + D/α) / (1 + 1/α)."""
        return means_by_law(self.mean_pos - self.mean_neg, self.weighting.alpha)[0]

    @property
    def predicted_mean_neg(self) -> float:
        """Mean of q among negatives by the general-λ law, (1 − D) / (1 + 1/α)."""
        return means_by_law(self.mean_pos - self.mean_neg, self.weighting.alpha)[1]

    @property
    def _column(self) -> int:
        if self.weighting.positive is None:
            raise AttributeError(f"the key equations of {self.n_classes} classes have no positive class: see flows.")
        return self.weighting.positive

    @property
    def _miss_pos(self) -> float:
        return self._mean(self._column, 1 - self._column)

    @property
    def _sides(self) -> tuple[float, float]:
        price = self.weighting
        return price.lam * price.n_pos * self._miss_pos, price.threshold * price.n_neg * self.mean_neg

    def _mean(self, row: int, column: int) -> float:
        return float(self.flows[row, column] / self.flows[row].sum())

    def table(self, labels: Sequence[object] | None = None) -> str:
        """A line for each class."""
        names = [str(label) for label in (range(self.n_classes) if labels is None else labels)]
        width = max(5, *map(len, names))
        lines = [f"of {self.rows}"] if self.rows else []
        lines += [f"{'class':<{width}}  {'flows out':>12}  {'flows in':>12}  {'residual':>10}  {'mean output':>11}"]
        columns = zip(names, self.outflows, self.inflows, self.residuals, np.diag(self.confusion), strict=True)
        for name, out, into, residual, mean in columns:
            lines.append(f"{name:<{width}}  {out:>12.6g}  {into:>12.6g}  {residual:>10.2e}  {mean:>11.4f}")
        return "\n".join([*lines, f"equations  {self.equations}", f"pairs      {self.pairs}"])

    def __str__(self) -> str:
        if self.n_classes > 2:
            return self.table()
        test = f"not available: {self.z_reason}" if self.z_reason else f"z = {self.z:.3f}, p-value {self.p_value:.3g}"
        lines = [
            f"Key equation (1 - mean_pos) / mean_neg = 1/α at λ = {self.weighting.lam:.6g}"
            + (f", on {self.rows}" if self.rows else ""),
            f"  left side       {self.lhs:.6g}",
            f"  right side      {self.rhs:.6g}",
            f"  residual        {self.residual:.3g}   (imbalance {self.imbalance:.3g})",
        ]
        for name in ("positives", "negatives"):
            mean, variance, law = (getattr(self, f"{one}_{name[:3]}") for one in ("mean", "var", "predicted_mean"))
            lines.append(f"  {name}       mean {mean:.6g}, variance {variance:.6g}, mean by the law {law:.6g}")
        return "\n".join([*lines, f"  discrimination  {self.discrimination:.6g}", f"  residual test   {test}"])


def key_equation(
    y: ArrayLike,
    q: ArrayLike,
    weighting: WeightingLike,
    sample_weight: ArrayLike | None = None,
    *,
    training_error: TrainingError | None = None,
    clusters: ArrayLike | None = None,
    is_stratified: bool = False,
) -> KeyEquation:
    """Evaluate the key equation on any rows, for the output of any model.

    Parameters
    ----------
    y : array of shape (n,)
        0/1 or bool, 1 is positive; class numbers if q has columns. Every class must occur.
    q : array of shape (n,) or (n, K)
        Weighted probabilities of the positive class, or of every class.
    weighting : as in `crcen.resolve`
        The weighting of q. A `Price` has its training counts; any other weighting is resolved on these rows.
    sample_weight : array of shape (n,), optional
        Finite and not negative.
    training_error : TrainingError, optional
        The model uncertainty, as `crcen.training_error` estimates it; without it p is assumed to be true.
    clusters : array of shape (n,), optional
        Rows of the same cluster, such as those of one patient, may depend on each other.
    is_stratified : bool
        Whether the class counts were fixed when the rows were drawn, as by a stratified split.

    Notes
    -----
    The residual test is Z = Σ w(y−q) / sqrt(Σ s²[λ² p(1−q)² + (1−λ)²(1−p)q²]), p the natural posterior of q and s the
    sample weight, with a saddlepoint p-value; K classes have one χ² test. It assumes independent rows (or clusters) at
    the natural class ratio and that p is the **true** posterior, unless ``training_error`` adds the model's own.
    """
    if np.ndim(as_numpy(q)) == 2:
        columns = checks.check_class_probabilities(q, len(np.asarray(as_numpy(y))))
        numbers, price = checks.check_class_numbers(y, columns.shape[1]), weighting
    else:
        positive, outputs = checks.check_binary_rows(y, q)
        numbers, columns, price = _two_columns(positive, outputs, 1.0 - outputs, weighting, sample_weight)
    sizes, n_classes = checks.check_row_weights(sample_weight, numbers.size), columns.shape[1]
    counts = np.bincount(numbers, weights=sizes, minlength=n_classes)
    _check_all_present(counts)
    price = resolve(price, counts=counts)
    if price.n_classes != n_classes:
        raise InvalidInput(f"q must have a column for each of {price.n_classes} classes: got {n_classes}.")
    if training_error is not None and len(training_error.least) != n_classes:
        raise InvalidInput(f"training_error is for {len(training_error.least)} classes, and q has {n_classes}.")
    related = checks.check_clusters(clusters, numbers.size)
    found = _TestedRows(numbers, columns, sizes, price, training_error, 1.0, related, is_stratified).equation()
    return found if clusters is None or found.z_reason else replace(found, pairs=found.equations)


def key_equation_of_logits(
    y: ArrayLike, logits: ArrayLike, weighting: WeightingLike, sample_weight: ArrayLike | None = None
) -> KeyEquation:
    """`key_equation` from weighted logits, (n,) or (n, K): it keeps its digits if q rounds to 1."""
    outputs = np.asarray(as_numpy(logits), dtype=np.float64)
    if outputs.ndim == 2:
        return key_equation(y, softmax(outputs), weighting, sample_weight)
    positive, q = checks.check_binary_rows(y, sigmoid(outputs), "logits")
    return key_equation(*_two_columns(positive, q, sigmoid(-outputs), weighting, sample_weight), sample_weight)


def _two_columns(
    positive: NDArray[np.bool_], q: Array, complement: Array, weighting: WeightingLike, sample_weight: ArrayLike | None
) -> tuple[Index, Array, Price]:
    """Class numbers, columns and price from q and 1 − q of the positive class, each with its own digits."""
    price = resolve(weighting, *checks.class_totals(positive, checks.check_row_weights(sample_weight, positive.size)))
    if price.positive is None:
        raise InvalidInput(f"q must have a column for each of {price.n_classes} classes: got one value for each row.")
    return (positive == (price.positive == 1)).astype(np.int64), price.by_column(q, complement), price


def _check_all_present(counts: NDArray[np.number]) -> None:
    if not counts.all():
        raise InvalidInput(f"every class must have a row with weight: class {int(np.argmin(counts))} has none.")


@dataclass(frozen=True, eq=False)
class _TestedRows:
    """Rows of a key equation, with saddlepoint tests of the residuals of single classes."""

    y: Index  # class numbers
    q: Array  # weighted probabilities (n, K)
    sample_weight: Array
    price: Price
    error: TrainingError | None = None  # of the fitted model
    noise: float = 1.0  # factor of the variances, if that error was not measured
    clusters: NDArray[np.generic] | None = None
    is_stratified: bool = False

    @cached_property
    def sizes(self) -> Array:
        """Sample weights, at most 1, so that squares do not overflow."""
        return np.asarray(self.sample_weight / self.sample_weight.max())

    @cached_property
    def p(self) -> Array:
        """Natural probabilities."""
        p = self.q / self.price.weights
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    @cached_property
    def sums(self) -> "KeySums":
        """Sums over the rows."""
        return key_sums(self.y, self.q, self.sizes, self.price)

    def equation(self, tested: Index | None = None, least: float = 0.0) -> KeyEquation:
        """The key equation, with tests of these classes; see `KeySums.key_equation`."""
        scale = float(self.sample_weight.max())
        found = self.sums.key_equation(self.price, self.error, self.noise, scale, tested, least)
        if found.z_reason:
            return found
        if found.weighting.positive is not None:
            own = self.class_test(found.weighting.positive)
            test = JointTest(own.z**2, 1, own.p_value)
            return replace(found, equations=test, pairs=test, z=own.z)
        return replace(found, equations=self._guarded(found.equations, tested))

    def class_test(self, k: int) -> residual_test.ResidualTest:
        """Test of the residual of one class."""
        values = residual_test.residual_values(self.p, self.price.weights, k, self.sizes)
        uncertainty = [((self.noise - 1.0) * residual_test.variance_of(values, self.p), math.inf)]
        if self.error is not None:
            own = self.sums.sums.slope[k]
            parts = ((self.error.covariance, self.error.degrees), (self.error.least, math.inf))
            uncertainty = [(float(own @ part @ own), degrees) for part, degrees in parts]
        return residual_test.residual_test(values, self.p, self.y, uncertainty, self.clusters, self.is_stratified)

    def _guarded(self, joint: JointTest, tested: Index | None) -> JointTest:
        """A joint test whose p-value is not below Holm's over the classes if these are lopsided or rows in clusters."""
        p_values, is_normal = [], self.clusters is None and not self.is_stratified
        needs_more, classes = not is_normal, range(self.price.n_classes) if tested is None else tested.tolist()
        for k in classes:
            rough = two_sided(self.sums.sums.of_class(k).z / math.sqrt(self.noise))
            is_fine = is_normal  # a residual far from significance needs no better tail, nor one of many events
            if is_normal and rough * len(classes) < 0.5:
                values = residual_test.residual_values(self.p, self.price.weights, k, self.sizes)
                is_fine = not residual_test.is_lopsided(values, self.p)
            needs_more = needs_more or not is_fine
            p_values.append(rough if is_fine else self.class_test(k).p_value)
        if not needs_more:
            return joint
        p_value = float(np.nanmin(residual_test.holm(p_values)))
        if p_value <= joint.p_value and not self.is_stratified:
            return joint
        return replace(joint, p_value=p_value, method=residual_test.BY_CLASS)


@dataclass(frozen=True, eq=False)
class KeySums:
    """Sums over rows that make the key equation; sums of parts of the rows add up."""

    sums: JointResidualSums
    pairs: PairSums | None  # for K > 2
    masses: Array  # weight of the rows of each class, (K,)
    means: Array  # by class, of the output that `KeyEquation.variances` are of
    squares: Array  # its sum of squares about the mean

    def __add__(self, other: "KeySums") -> "KeySums":
        masses = self.masses + other.masses
        share = divided(other.masses, masses, 0.0)
        gap = other.means - self.means
        return KeySums(
            self.sums + other.sums,
            None if self.pairs is None or other.pairs is None else self.pairs + other.pairs,
            masses,
            self.means + share * gap,
            self.squares + other.squares + self.masses * share * gap**2,
        )

    def key_equation(
        self,
        price: Price,
        error: TrainingError | None = None,
        noise: float = 1.0,  # factor of the variances, if the error was not measured
        scale: float = 1.0,  # by which the weights were divided
        tested: Index | None = None,  # of K > 2 classes, those that take part in tests
        least: float = 0.0,  # least share by which a measured error raises the variances of pairs
    ) -> KeyEquation:
        """The key equation at a price."""
        if price.n_classes == 2 and price.positive is None:
            price = resolved(price, price.counts, 1)
        variances = divided(self.squares, self.masses)
        sums, total, flows = self.sums, float(self.sums.between.sum()), scale * self.sums.flows
        own = np.arange(price.n_classes) if tested is None else tested
        chosen = own[1:] if len(own) == price.n_classes else own  # all residuals sum to zero
        test = pairs = JointTest.none(0, _TOO_FEW)
        if len(chosen):
            variance = noise * sums.variance[np.ix_(chosen, chosen)]
            test = residual_test.joint_test(sums.residuals[chosen], variance, total, error, sums.slope[chosen])
        if price.positive is not None:
            positives, z = sums.of_class(price.positive), math.nan
            if not test.reason and error is not None and positives.n_pos < FEWEST_TO_TEST:
                test = JointTest.none(1, f"too few: {positives.n_pos} positives, and the test needs {FEWEST_TO_TEST}")
            if not test.reason:
                added = 0.0 if error is None else (positives.slope * error.size) ** 2
                z = positives.residual / math.sqrt(noise * positives.variance + added)
            return KeyEquation(price, flows, test, test, variances, z)
        if len(own) > 1 and self.pairs is not None:
            pairs = self.pairs.among(own).test(total, error, noise, self.pair_share(error, least))
        return KeyEquation(price, flows, test, pairs, variances)

    def pair_share(self, error: TrainingError | None, least: float = 0.0) -> float:
        """Share by which a measured error raises the variances of the pairwise equations."""
        return 0.0 if error is None else max(error.pairs * float(self.masses.sum()), least)


def key_sums(y: Index, q: Array, sizes: Array, price: Price) -> KeySums:
    """Sums of rows with class numbers y, weighted probabilities q (n, K) and sample weights."""
    w, n_classes = price.weights, price.n_classes
    values = q[:, 1 if price.positive is None else price.positive] if n_classes == 2 else q[np.arange(len(y)), y]
    masses = np.bincount(y, sizes, n_classes).astype(np.float64)
    means = divided(np.bincount(y, sizes * values, n_classes), masses, 0.0)
    squares = np.bincount(y, sizes * (values - means[y]) ** 2, n_classes).astype(np.float64)
    sums = residual_test.sums_of_columns(y, q, sizes, w)
    return KeySums(sums, residual_test.pair_sums(y, q, sizes, w) if n_classes > 2 else None, masses, means, squares)


def without_test(equation: KeyEquation, reason: str = _OUT_OF_FOLD) -> KeyEquation:
    """The same equation without tests, for rows on which their distribution is not known."""
    equations, pairs = (JointTest.none(one.degrees, reason) for one in (equation.equations, equation.pairs))
    return replace(equation, equations=equations, pairs=pairs, z=math.nan)


def on_rows(equation: KeyEquation, rows: str) -> KeyEquation:
    """The same equation with a description of its rows."""
    return replace(equation, rows=rows)


@dataclass(frozen=True)
class ClassEquation:
    """The equation of one class."""

    label: object
    n_rows: int
    flows_out: float  # weight of its rows that the model gives to others
    flows_in: float  # weight of others' rows that the model gives to it
    z: float  # difference in standard deviations, with the model's error; NaN without variance
    drift: float  # log-odds by which it is more frequent than the model states, against all others
    is_tested: bool  # whether it has enough rows for the joint test


@dataclass(frozen=True)
class PairEquation:
    """Two classes: log-odds by which the first is more frequent than the second, compared with the model, and its z."""

    first: object
    second: object
    drift: float
    z: float

    def __str__(self) -> str:
        more, less = (self.first, self.second) if self.drift > 0.0 else (self.second, self.first)
        drift = f"{abs(self.drift):.2f} log-odds more frequent than stated"
        return f"{more} against {less}: {drift} (z = {abs(self.z):.1f})"


@dataclass(frozen=True, eq=False, repr=False)
class EquationTest(KeyEquation):
    """The key equation on new rows, tested for a fitted model: with its error, and on classes with enough rows."""

    classes: tuple[ClassEquation, ...] = ()  # for K > 2
    class_pairs: tuple[PairEquation, ...] = ()  # of classes with enough rows, the most deviant first
    noise: float = 1.0  # how much the model's error raises the variances

    @property
    def rhs(self) -> FloatOrArray:
        """1/α at the class ratio of these rows for two classes, as in the test; otherwise the inflows (K,)."""
        totals = self.flows.sum(axis=1)
        return self.inflows if self.n_classes > 2 else float(totals[1 - self._column] / totals[self._column])

    @property
    def verdict(self) -> str:
        """The result: "holds", "does not hold" (p-value below `EQUATION_P`) or "not tested"."""
        return "not tested" if math.isnan(self.p_value) else "does not hold" if self.p_value < EQUATION_P else "holds"

    @property
    def deviant_pairs(self) -> tuple[PairEquation, ...]:
        """Pairs that deviate beyond chance, all of them considered."""
        return tuple(one for one in self.class_pairs if two_sided(one.z) * len(self.class_pairs) < EQUATION_P)

    def untested(self, reason: str) -> "EquationTest":
        """The same equation without tests, also of classes and pairs; itself if there is no reason."""
        classes = tuple(replace(one, z=math.nan) for one in self.classes)
        own = {**vars(without_test(self, reason)), "classes": classes, "class_pairs": ()}
        return EquationTest(**own) if reason else self

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON; None for what does not exist."""
        keys = "label rows=n_rows out=flows_out in=flows_in z drift tested=is_tested"
        return {
            **attributes(self, "left=lhs right=rhs residual z p_value verdict joint=equations"),
            "classes": [attributes(one, keys) for one in self.classes],
            **attributes(self, "pairs=class_pairs joint_pairs=pairs noise"),
        }

    def __str__(self) -> str:
        if self.n_classes > 2:
            return "\n".join(self.lines())
        both = f"left side {self.lhs:.4g}, right side {self.rhs:.4g}"
        if self.z_reason:
            return f"{both} ({self.z_reason})"
        text = f"{both}; z = {self.z:.2f}, p-value {p_text(self.p_value)}"
        if self.verdict != "does not hold":
            return text
        return f"{text}: {'more' if self.z > 0.0 else 'fewer'} positives than the probabilities say"

    def lines(self) -> list[str]:
        """The result; for K > 2 also a line for each class, and the pairs that deviate."""
        if self.n_classes == 2:
            return [f"Key equation {self.verdict}: {self}"]
        names = [short(one.label) for one in self.classes]
        width = max(9, *(len(name) + 2 for name in names))
        verdict = {"holds": "hold", "does not hold": "do not hold"}.get(self.verdict, self.verdict)
        lines = [
            f"Key equations {verdict}: {self.z_reason or self.equations}",
            f"  {'':<{width}}{'flows out':>12}{'flows in':>12}{'z':>8}  drift in log-odds",
        ]
        for one, name in zip(self.classes, names, strict=True):
            z = "–" if math.isnan(one.z) else f"{one.z:.2f}"
            drift = "–" if math.isnan(one.drift) else f"{one.drift:+.2f}"
            few = "" if one.is_tested else f"  ({one.n_rows} rows, too few to test)"
            lines.append(f"  {name:<{width}}{one.flows_out:>12.4g}{one.flows_in:>12.4g} {z:>7}  {drift}{few}")
        lines.append(f"Pairs of classes: {self.pairs.reason or self.pairs}")
        return lines + [f"  {one}" for one in self.deviant_pairs[:_PAIRS_SHOWN]]


def judge_equations(
    y: ArrayLike,
    p: ArrayLike,
    trained: Price,
    labels: Sequence[object] | None = None,
    sample_weight: ArrayLike | None = None,
    *,
    noise: float | None = None,  # how much an unmeasured error raises the variance; by default `fitted_model_noise`
    error: TrainingError | None = None,  # that error, as refits measured it
    clusters: ArrayLike | None = None,
    is_stratified: bool = False,
) -> EquationTest:
    """Test the key equations of natural probabilities (n, K) on new rows; classes with few rows are not tested."""
    n_classes = trained.n_classes
    numbers, q = checks.check_class_numbers(y, n_classes), trained.weighted(p)
    if len(numbers) != len(q):
        raise InvalidInput(f"p must have one row for each label: got {len(q)} for {len(numbers)}.")
    sizes = checks.check_row_weights(sample_weight, numbers.size)
    unmeasured = fitted_model_noise(sizes, trained) if noise is None else noise
    factor = unmeasured if error is None else 1.0
    if trained.positive is not None:
        _check_all_present(np.bincount(numbers, sizes, 2))
    related = checks.check_clusters(clusters, numbers.size)
    rows = _TestedRows(numbers, q, sizes, trained, error, factor, related, is_stratified)
    sums = rows.sums.sums
    is_tested, variance = sums.counts >= FEWEST_TO_TEST, factor * sums.variance
    spread = np.diag(variance) if error is None else error.variances(variance, sums.slope)
    if error is not None:
        known = (np.diag(variance) > 0.0) & (is_tested | (n_classes == 2))
        factor = float(np.mean(spread[known] / np.diag(variance)[known])) if known.any() else 1.0
    if trained.positive is not None:
        found = rows.equation()
        if not found.z_reason and not is_tested.all():
            found = without_test(found, _TOO_FEW)
        return EquationTest(**vars(found), noise=factor)
    # Refits say how errors between two classes vary, not how far off they all are: allow no less than without.
    least = unmeasured - 1.0
    names, tested = range(n_classes) if labels is None else labels, np.flatnonzero(is_tested)
    found = rows.equation(tested, least)
    if rows.clusters is not None and not found.z_reason:
        found = replace(found, pairs=JointTest.none(0, "not tested for rows in clusters"))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = sums.residuals / np.sqrt(spread)
        if rows.clusters is not None or is_stratified:
            z = np.array([rows.class_test(k).z for k in range(n_classes)])
        drifts = np.log(found.flows) - np.log(found.flows.T)
        against_all = np.log(found.outflows) - np.log(found.inflows)
    columns = (sums.counts, found.outflows, found.inflows, z, np.where(np.isfinite(against_all), against_all, np.nan))
    by_class = zip(names, *(column.tolist() for column in (*columns, is_tested)), strict=True)
    pairs: list[PairEquation] = []
    if len(tested) > 1 and rows.sums.pairs is not None and rows.clusters is None:
        own = rows.sums.pairs.among(tested)
        with np.errstate(divide="ignore", invalid="ignore"):
            raised = (1.0 + rows.sums.pair_share(error, least)) * rows.noise
            pair_z = own.sums / np.sqrt(raised * np.diag(own.variance))
        places = zip(*(tested[side] for side in np.triu_indices(len(tested), 1)), pair_z.tolist(), strict=True)
        pairs = [PairEquation(names[i], names[j], float(drifts[i, j]), one) for i, j, one in places]
        pairs = [one for one in pairs if math.isfinite(one.z) and math.isfinite(one.drift)]
        pairs.sort(key=lambda one: -abs(one.z))
    return EquationTest(
        **vars(found), classes=tuple(ClassEquation(*one) for one in by_class), class_pairs=tuple(pairs), noise=factor
    )


def _probability(values: ArrayLike, what: str) -> FloatOrArray:
    """Values in [0, 1] up to rounding; anything further out is an error about `what`."""
    found = np.asarray(values, dtype=np.float64)
    outside = found[~((found >= -_ROUNDING) & (found <= 1.0 + _ROUNDING))]
    if outside.size:
        raise InvalidInput(f"{what} must lie in [0, 1], but the key equation gives {outside.ravel()[0]:.6g}")
    return scalar(np.clip(found, 0.0, 1.0))


def means_by_law(discrimination: float, alpha: float) -> tuple[float, float]:
    """Class means by the general-λ law, (1 + rD) / (1 + r) and (1 − D) / (1 + r), r = 1/α; possibly outside [0, 1]."""
    return (alpha + discrimination) / (1.0 + alpha), alpha * (1.0 - discrimination) / (1.0 + alpha)


def class_means(discrimination: float, weighting: WeightingLike) -> tuple[float, float]:
    """Both class means (positives, negatives) of a network from its discrimination: the general-λ law.

    With r = 1/α: (1 + rD) / (1 + r) and (1 − D) / (1 + r), D = mean_pos − mean_neg in [−1, 1]; an error if a class mean
    would leave [0, 1]. The key equation alone promises no accuracy, as a constant output satisfies it (D = 0).
    """
    alpha = alpha_of(weighting)
    if not -1.0 <= discrimination <= 1.0:
        raise InvalidInput(f"discrimination is a difference of probabilities in [-1, 1], got {discrimination}")
    pos, neg = means_by_law(discrimination, alpha)
    at = f"at discrimination {discrimination:g} and α = {alpha:g}"
    return float(_probability(pos, f"mean_pos {at}")), float(_probability(neg, f"mean_neg {at}"))


def mean_pos_given(mean_neg: ArrayLike, weighting: WeightingLike) -> FloatOrArray:
    """Mean output on positives from that on negatives, 1 − mean_neg / α; an error if it leaves [0, 1]."""
    alpha = alpha_of(weighting)
    given = checks.check_probabilities(mean_neg, "mean_neg")
    with np.errstate(over="ignore"):  # a tiny α is refused by the check that follows
        return _probability(1.0 - given / alpha, f"mean_pos at α = {alpha:g}")


class MeanBounds(NamedTuple):
    """Bounds of the class means by the key equation alone: a lower one for positives, an upper one for negatives."""

    min_mean_pos: float
    max_mean_neg: float


def mean_bounds(weighting: WeightingLike) -> MeanBounds:
    """Bounds for any network that satisfies the key equation: mean_pos ≥ 1 − 1/α and mean_neg ≤ α."""
    alpha = alpha_of(weighting)
    return MeanBounds(min_mean_pos=max(0.0, 1.0 - 1.0 / alpha), max_mean_neg=min(1.0, alpha))


def _cantelli(distance: Array, variance: ArrayLike, name: str) -> FloatOrArray:
    """Lower bound of the share of values within `distance` of their mean on one side: d² / (v + d²) for d > 0."""
    spread = checks.check_not_negative(variance, name)
    squared = np.maximum(distance, 0.0) ** 2
    return scalar(divided(squared, squared + spread, 0.0))


def recall_bound(mean_pos: ArrayLike, var_pos: ArrayLike, threshold: ArrayLike = 0.5) -> FloatOrArray:
    """Lower bound of recall by Cantelli's inequality, 1 − v / (v + (mean − threshold)²).

    From mean and population variance of the positives' weighted probabilities, with an alarm above the threshold; 0,
    nothing promised, if the mean is not above it.
    """
    distance = checks.check_probabilities(mean_pos, "mean_pos") - checks.check_probabilities(threshold, "threshold")
    return _cantelli(distance, var_pos, "var_pos")


def specificity_bound(mean_neg: ArrayLike, var_neg: ArrayLike, threshold: ArrayLike = 0.5) -> FloatOrArray:
    """The same for specificity: 1 − v / (v + (threshold − mean)²), 0 if the mean is not below the threshold."""
    distance = checks.check_probabilities(threshold, "threshold") - checks.check_probabilities(mean_neg, "mean_neg")
    return _cantelli(distance, var_neg, "var_neg")


def copies_per_positive(weighting: WeightingLike) -> float:
    """Copies of each minority row, itself included, that would replace the weights: λ / (1 − λ)."""
    return cost_ratio_of(weighting)
