"""The key equations of K classes on new rows, tested class by class, together and in pairs, for a fitted model."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.classes.chi_square import chi_square_tail
from crcen.theory.classes.class_training_error import ClassTrainingError, quadratic_form
from crcen.theory.classes.key_equations import JointTest
from crcen.theory.judgements import EQUATION_P, fitted_noise
from crcen.theory.price import Price
from crcen.theory.residual_test import FEWEST_TO_TEST, two_sided
from crcen.theory.rows import check_class_numbers, check_row_weights, effective_rows

__all__ = ["ClassEquation", "JudgedEquations", "PairEquation", "judge_class_equations"]

Array = NDArray[np.float64]
Test = Callable[[Array, Array], tuple[float, int, float]]
_SMALLEST_P = 1e-15
_PAIRS_SHOWN = 5


@dataclass(frozen=True)
class ClassEquation:
    """The equation of one class.

    Parameters
    ----------
    label : object
        The class.
    n_rows : int
        Its rows.
    flows_out, flows_in : float
        Weight of its rows that the model gives to others, and of others' rows that it gives to this class.
    z : float
        Their difference in standard deviations, the model's own error in them; NaN where there is no variance.
    drift : float
        Log-odds by which the class is more frequent than the model says, against all others: the logarithm of what
        flows out over what flows in, as the monitor has it.
    is_tested : bool
        Whether it has rows enough to take part in the joint test.
    """

    label: Any
    n_rows: int
    flows_out: float
    flows_in: float
    z: float
    drift: float
    is_tested: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        numbers = {"out": self.flows_out, "in": self.flows_in, "z": self.z, "drift": self.drift}
        known = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {"label": self.label, "rows": self.n_rows, **known, "tested": self.is_tested}


@dataclass(frozen=True)
class PairEquation:
    """Two classes: what flows from one to the other and back, of which right probabilities make the same.

    Parameters
    ----------
    first, second : object
        The classes.
    drift : float
        Log-odds by which the first is more frequent against the second than the model says.
    z : float
        In standard deviations, the model's own error in them.
    """

    first: Any
    second: Any
    drift: float
    z: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"first": self.first, "second": self.second, "drift": _plain(self.drift), "z": _plain(self.z)}

    def __str__(self) -> str:
        more, less = (self.first, self.second) if self.drift > 0.0 else (self.second, self.first)
        return (
            f"{more} against {less}: {abs(self.drift):.2f} log-odds more frequent than stated (z = {abs(self.z):.1f})"
        )


@dataclass(frozen=True, eq=False)
class JudgedEquations:
    """All of them, with what they say together.

    Parameters
    ----------
    classes : tuple of ClassEquation
        One for each class.
    joint : JointTest
        The independent equations of classes with rows enough: one χ².
    pairs : tuple of PairEquation
        Of classes with rows enough, the most deviant first. Training does not enforce them, so they are evidence.
    joint_pairs : JointTest
        All of these at once.
    noise : float
        By how much a fitted model's own error raises the variances.
    """

    classes: tuple[ClassEquation, ...]
    joint: JointTest
    pairs: tuple[PairEquation, ...]
    joint_pairs: JointTest
    noise: float

    @property
    def verdict(self) -> str:
        """What the joint test says: "hold", "do not hold" or "not tested"."""
        if math.isnan(self.joint.p_value):
            return "not tested"
        return "do not hold" if self.joint.p_value < EQUATION_P else "hold"

    @property
    def deviant_pairs(self) -> tuple[PairEquation, ...]:
        """Pairs that deviate beyond chance, all of them looked at."""
        if not self.pairs:
            return ()
        return tuple(one for one in self.pairs if two_sided(one.z) * len(self.pairs) < EQUATION_P)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "verdict": self.verdict,
            "classes": [one.to_dict() for one in self.classes],
            "joint": _test_values(self.joint),
            "pairs": [one.to_dict() for one in self.pairs],
            "joint_pairs": _test_values(self.joint_pairs),
            "noise": self.noise,
        }

    def lines(self) -> list[str]:
        """The verdict, a line for each class, and the pairs that deviate."""
        names = [_short(one.label) for one in self.classes]
        width = max(9, *(len(name) + 2 for name in names))
        lines = [
            f"Key equations {self.verdict}: {_said(self.joint)}",
            f"  {'':<{width}}{'flows out':>12}{'flows in':>12}{'z':>8}  drift in log-odds",
        ]
        for one, name in zip(self.classes, names, strict=True):
            z = "–" if math.isnan(one.z) else f"{one.z:.2f}"
            drift = "–" if math.isnan(one.drift) else f"{one.drift:+.2f}"
            few = "" if one.is_tested else f"  ({one.n_rows} rows, too few to test)"
            lines.append(f"  {name:<{width}}{one.flows_out:>12.4g}{one.flows_in:>12.4g}{z:>8}  {drift}{few}")
        lines.append(f"Pairs of classes: {_said(self.joint_pairs)}")
        lines += [f"  {one}" for one in self.deviant_pairs[:_PAIRS_SHOWN]]
        return lines


def judge_class_equations(
    y: ArrayLike,
    p: ArrayLike,
    trained: Price,
    labels: Any,
    sample_weight: ArrayLike | None = None,
    *,
    noise: float | None = None,
    error: ClassTrainingError | None = None,
) -> JudgedEquations:
    """Test the key equations of natural probabilities on rows that the model did not see.

    Parameters
    ----------
    y : array of shape (n,)
        Class numbers 0 … K−1; a class may have no rows here.
    p : array of shape (n, K)
        Natural probabilities.
    trained : Price
        What the equations are at, with the counts of the training rows.
    labels : sequence
        Names of the classes.
    sample_weight : array of shape (n,), optional
        What each row counts.
    noise : float, optional
        By how much a fitted model's own error raises the variance; by default 1 + 2 · new rows / training rows, see
        `crcen.theory.judgements.fitted_model_noise`. 1 is for the true posterior.
    error : ClassTrainingError, optional
        That error as refits measured it, instead of such a factor.

    Notes
    -----
    Residuals of classes with fewer than 20 rows are far from normal. They are shown, and take no part in the tests.
    Where all classes have more, the equations sum to zero and one of them is left out.
    """
    numbers = check_class_numbers(y, trained.n_classes)
    outputs = trained.weighted(p)
    if len(numbers) != len(outputs):
        raise InvalidInput(f"p must have one row a label: got {len(outputs)} for {len(numbers)}.")
    sizes = check_row_weights(sample_weight, numbers.size)
    unmeasured = fitted_noise(effective_rows(sizes), float(trained.counts.sum())) if noise is None else noise
    factor = unmeasured if error is None else 1.0
    w, unit = trained.weights / trained.weights.max(), sizes / sizes.max()
    n_rows = np.bincount(numbers, minlength=trained.n_classes)
    flows = np.zeros((trained.n_classes,) * 2)
    np.add.at(flows, numbers, (sizes * trained.weights[numbers])[:, None] * outputs)
    out, into = flows.sum(axis=1) - np.diag(flows), flows.sum(axis=0) - np.diag(flows)
    natural = np.asarray(p, dtype=np.float64)
    mass = w[numbers] * unit
    residual = np.bincount(numbers, mass, trained.n_classes) - mass @ outputs
    second = unit[:, None] ** 2 * natural * w**2
    cross = second.T @ outputs
    variance = np.diag(second.sum(axis=0)) - cross - cross.T + (outputs * second.sum(axis=1)[:, None]).T @ outputs
    variance *= factor
    tested = n_rows >= FEWEST_TO_TEST
    chosen = np.flatnonzero(tested)[1:] if tested.all() else np.flatnonzero(tested)
    weight = (unit * (natural @ w))[:, None] * outputs
    slope = np.diag(weight.sum(axis=0)) - weight.T @ outputs
    spread = np.diag(variance) if error is None else error.variances(variance, slope)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = residual / np.sqrt(spread)
        drift = np.log(flows) - np.log(flows.T)
        against_all = np.log(out) - np.log(into)
    drift, against_all = (np.where(np.isfinite(one), one, np.nan) for one in (drift, against_all))
    classes = tuple(
        ClassEquation(
            label, int(n_rows[k]), float(out[k]), float(into[k]), float(z[k]), float(against_all[k]), bool(tested[k])
        )
        for k, label in enumerate(labels)
    )
    rows = (numbers, natural, outputs, unit, w)
    pairs, joint_pairs = _pairs(*rows, factor, unmeasured, np.flatnonzero(tested), drift, labels, error)
    test = None if error is None else partial(error.test, jacobian=slope[chosen])
    joint = _joint(residual[chosen], variance[np.ix_(chosen, chosen)], test)
    if error is not None:
        known = (np.diag(variance) > 0.0) & tested
        factor = float(np.mean(spread[known] / np.diag(variance)[known])) if known.any() else 1.0
    return JudgedEquations(classes, joint, pairs, joint_pairs, factor)


def _pairs(
    y: NDArray[np.int64],
    p: Array,
    q: Array,
    unit: Array,
    w: Array,
    factor: float,
    unmeasured: float,
    tested: Any,
    drift: Array,
    labels: Any,
    error: ClassTrainingError | None,
) -> tuple[tuple[PairEquation, ...], JointTest]:
    """Σ s (w_j 1{y=j} q_k − w_k 1{y=k} q_j) for every pair, each of mean 0 for the true posterior."""
    first, second = (tested[side] for side in np.triu_indices(len(tested), 1))
    n_pairs = len(first)
    sums, variance = np.zeros(n_pairs), np.zeros((n_pairs, n_pairs))
    for label in tested:
        mine = (first == label) | (second == label)
        sign, other = (
            np.where(first[mine] == label, 1.0, -1.0),
            np.where(first[mine] == label, second[mine], first[mine]),
        )
        value = unit[:, None] * w[label] * sign * q[:, other]
        sums[mine] += value[y == label].sum(axis=0)
        variance[np.ix_(mine, mine)] += (value * p[:, [label]]).T @ value
    variance *= factor
    # Refits say how errors between two classes vary, not how far off they all are: allow no less than without them.
    share = 0.0 if error is None else max(error.pairs * float(unit.sum()), unmeasured - 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = sums / np.sqrt((1.0 + share) * np.diag(variance))
    found = [
        PairEquation(labels[j], labels[k], float(drift[j, k]), float(one))
        for j, k, one in zip(first, second, z, strict=True)
        if np.isfinite(one) and np.isfinite(drift[j, k])
    ]
    found.sort(key=lambda one: -abs(one.z))
    test = None if error is None else partial(error.test_pairs, share=share)
    return tuple(found), _joint(sums, variance, test)


def _joint(sums: Array, variance: Array, test: Test | None) -> JointTest:
    if not len(sums):
        return JointTest(math.nan, 0, math.nan, f"fewer than {FEWEST_TO_TEST} rows of a class are too few to test")
    scale = np.sqrt(np.diag(variance))
    if not (scale > 0.0).all():
        return JointTest(math.nan, len(sums), math.nan, "an output is 0 or 1 on every row, so it has no variance")
    statistic, degrees = quadratic_form(sums, variance)
    if np.abs(sums).max() <= 1e-10 * scale.max():
        return JointTest(math.nan, degrees, math.nan, "these rows were balanced, so the equations hold on them")
    if test is not None:
        return JointTest(*test(sums, variance))
    return JointTest(statistic, degrees, chi_square_tail(statistic, degrees))


def _said(test: JointTest) -> str:
    if test.reason:
        return test.reason
    p_value = f"{test.p_value:.2g}" if test.p_value >= _SMALLEST_P else f"below {_SMALLEST_P:g}"
    return f"χ² = {test.statistic:.4g} with {test.degrees} degrees of freedom, p-value {p_value}"


def _test_values(test: JointTest) -> dict[str, Any]:
    values = {"statistic": _plain(test.statistic), "degrees": test.degrees, "p_value": _plain(test.p_value)}
    return {**values, "reason": test.reason}


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(name: Any) -> str:
    text = " ".join(str(name).split())
    return text if len(text) <= 20 else f"{text[:19]}…"
