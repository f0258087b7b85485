"""K classes against independent truth: the binary theory, simulated posteriors, brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest

from crcen import Budget, CostMatrix, CostRatio, balance_shift, decide, key_equation
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.classes.balance import class_balance_shifts
from crcen.theory.classes.chi_square import chi_square_tail
from crcen.theory.classes.key_equations import class_key_equations, class_key_equations_of_logits
from crcen.theory.classes.log_sums import softmax
from crcen.theory.price import Price, resolve

PRIORS = np.array([0.75, 0.15, 0.07, 0.03])
WEIGHTS = np.array([1.0, 5.0, 12.0, 40.0])


def draw(n, seed, priors=PRIORS, separation=1.2):
    """Classes with equal covariances, and their true posteriors."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(0, separation, (len(priors), 4))
    y = np.append(np.arange(len(priors)), rng.choice(len(priors), n - len(priors), p=priors))
    X = centres[y] + rng.normal(size=(n, 4))
    return X, y, softmax(-0.5 * ((X[:, None] - centres) ** 2).sum(2) + np.log(priors))


@pytest.mark.parametrize("degrees", [1, 2, 3, 10, 99])
def test_the_tail_of_chi_square_is_scipys(degrees):
    for value in [0.0, *np.geomspace(1e-4, 500, 80)]:
        assert chi_square_tail(value, degrees) == pytest.approx(chi2.sf(value, degrees), abs=1e-13, rel=1e-9)


# -- the balance solve -----------------------------------------------------------------------------------------------


def hard_case(seed, kind, n_classes=None):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 7)) if n_classes is None else n_classes
    n = int(rng.integers(k, 60 + k))
    y = np.append(np.arange(k), rng.integers(0, k, n - k))
    o = rng.normal(size=(n, k))
    own = np.eye(k)[y]
    o = {
        "plain": o,
        "right": o + 40 * own,
        "wrong": o - 40 * own,
        "far": 300 * o,
        "pairs": o + 500 * (np.arange(k) // 2 == (y // 2)[:, None]),
        "shifted": o + rng.normal(0, 200, k),
    }[kind]
    return y, o, 10.0 ** rng.uniform(-6, 6, k)


@pytest.mark.parametrize("kind", ["plain", "right", "wrong", "far", "pairs", "shifted"])
@pytest.mark.parametrize("seed", range(25))
def test_hard_cases_are_solved(kind, seed):
    y, o, w = hard_case(seed, kind)
    found = class_balance_shifts(y, o, w)
    assert found.gap <= 1e-10
    a = w[y][:, None]
    residual = (a * (np.eye(o.shape[1])[y] - softmax(o + found.shifts))).sum(0)
    assert np.abs(residual).max() <= 1e-12 * a.sum()
    assert found.shifts[0] == 0.0


def test_one_row_a_class_and_a_hundred_classes():
    assert (
        class_balance_shifts(np.arange(100), np.random.default_rng(0).normal(size=(100, 100)), np.ones(100)).gap < 1e-10
    )


@pytest.mark.parametrize("seed", range(20))
def test_two_classes_are_the_binary_solve(seed):
    rng = np.random.default_rng(seed)
    y = np.append([0, 1], rng.integers(0, 2, 40))
    o, c, s = rng.normal(0, 10 ** rng.uniform(-2, 2.5), (42, 2)), 10 ** rng.uniform(-3, 3), rng.random(42) + 0.1
    ours = class_balance_shifts(y, o, [1.0, c], s).shifts[1]
    assert ours == pytest.approx(balance_shift(y, o[:, 1] - o[:, 0], CostRatio(c), s), rel=1e-11, abs=1e-11)


def test_weights_of_rows_are_copies_and_order_does_not_matter():
    y, o, w = hard_case(3, "plain", 4)
    copies = np.random.default_rng(0).integers(1, 4, len(y))
    one = class_balance_shifts(y, o, w, copies).shifts
    assert one == pytest.approx(class_balance_shifts(np.repeat(y, copies), np.repeat(o, copies, 0), w).shifts, abs=1e-9)
    assert one == pytest.approx(class_balance_shifts(y[::-1], o[::-1], w, copies[::-1]).shifts, abs=1e-9)


def test_a_class_without_weight_is_refused_by_its_number():
    with pytest.raises(InvalidInput, match="class 2 has none"):
        class_balance_shifts([0, 1, 0], np.zeros((3, 3)), np.ones(3))


# -- the equations ---------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_balanced_rows_keep_the_law(seed):
    y, o, w = hard_case(seed, "plain", 4)
    q = o + class_balance_shifts(y, o, w).shifts
    found = class_key_equations_of_logits(y, q, w)
    assert found.residual < 1e-12
    assert found.residuals.sum() == pytest.approx(0.0, abs=1e-14)
    pi, m, d = found.shares, found.confusion, found.discrimination
    assert pi @ m == pytest.approx(pi, abs=1e-12)
    assert np.diag(m) == pytest.approx(pi + (1 - pi) * d, abs=1e-12)
    assert found.equations.reason.startswith("these rows were balanced")


def test_two_classes_are_the_binary_equation():
    rng = np.random.default_rng(0)
    y, q, s = np.append([0, 1], rng.integers(0, 2, 200)), rng.random(202), rng.random(202) + 0.1
    binary = key_equation(y, q, CostRatio(7.0), s)
    found = class_key_equations(y, np.column_stack([1 - q, q]), [1.0, 7.0], s)
    assert found.residual == pytest.approx(binary.residual, rel=1e-12)
    assert found.equations.statistic == pytest.approx(binary.z**2, rel=1e-9)
    assert found.equations.p_value == pytest.approx(binary.p_value, rel=1e-9)
    assert found.confusion[1, 1] == pytest.approx(binary.mean_pos)
    # One row of the flows over the other is the left side over the right: the ratio of means of errors.
    errors = found.confusion[1, 0] / found.confusion[0, 1]
    assert errors == pytest.approx(binary.lhs)


def test_one_against_all_is_a_special_case():
    """Li, Li, Pan and Zhu (2020): merging all classes but one gives that class's binary equation."""
    _, y, p = draw(2000, 1)
    w = np.array([1.0, 1.0, 1.0, 30.0])  # one weight for all of the rest
    q = Price(w, np.bincount(y)).weighted(p)
    found = class_key_equations(y, q, w)
    binary = key_equation((y == 3).astype(int), q[:, 3], CostRatio(30.0))
    assert found.lhs[3] / found.rhs[3] == pytest.approx(binary.lhs * binary.weighting.alpha, rel=1e-9)


def test_both_tests_have_their_size_for_the_true_posterior():
    ps = []
    for seed in range(400):
        _, y, p = draw(1500, seed)
        q = Price(WEIGHTS, np.bincount(y)).weighted(p)
        found = class_key_equations(y, q, WEIGHTS)
        assert (found.equations.degrees, found.pairs.degrees) == (3, 6)
        ps.append([found.equations.p_value, found.pairs.p_value])
    for values in np.transpose(ps):
        assert kstest(values, "uniform").pvalue > 1e-3
        assert 0.02 <= np.mean(values < 0.05) <= 0.085


def test_a_drift_is_found_and_read_off_the_pairs():
    _, y, p = draw(40_000, 0)
    drift = np.array([0.0, 0.4, -0.3, 0.8])
    truth = softmax(np.log(p) + drift)
    y = np.minimum((truth.cumsum(1) < np.random.default_rng(1).random((len(y), 1))).sum(1), 3)
    q = Price(WEIGHTS, np.bincount(y)).weighted(p)
    found = class_key_equations(y, q, WEIGHTS)
    assert found.equations.p_value < 1e-6
    assert found.drift == pytest.approx(drift - drift.mean(), abs=0.12)
    assert class_key_equations(y, Price(WEIGHTS, np.bincount(y)).weighted(truth), WEIGHTS).pairs.p_value > 1e-3


def test_weights_are_undone_exactly():
    _, y, p = draw(500, 2)
    weights = Price(WEIGHTS, np.bincount(y))
    assert weights.posterior(weights.weighted(p)) == pytest.approx(p, abs=1e-14)


# -- costs -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_the_cheapest_action_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    costs, p = rng.uniform(0, 10, (3, 5)), rng.dirichlet(np.ones(3), 20)
    matrix = CostMatrix(costs, labels=["a", "b", "c"], actions=["review", "reject"])
    names = ["a", "b", "c", "review", "reject"]
    for row, decision in zip(p, matrix.decide(p), strict=True):
        expected = [sum(row[k] * costs[k, a] for k in range(3)) for a in range(5)]
        assert decision == names[int(np.argmin(expected))]


def test_class_weights_decide_as_their_matrix_does_and_other_matrices_have_none():
    _, _, p = draw(3000, 3)
    matrix = CostMatrix(WEIGHTS[:, None] * (1 - np.eye(4)) + np.array([[3.0], [0.0], [1.0], [2.0]]))
    assert matrix.class_weights() == pytest.approx(WEIGHTS)
    assert np.array_equal((p * WEIGHTS).argmax(1), matrix.choose(p))
    assert CostMatrix([[0, 1, 2], [1, 0, 1], [2, 1, 0]]).class_weights() is None
    assert CostMatrix([[0, 1, 0.3], [20, 0, 2]], actions=["review"]).class_weights() is None


def test_labels_may_come_in_another_order():
    costs = CostMatrix([[0, 1, 2], [3, 0, 4], [5, 6, 0]], labels=["b", "a", "c"])
    ours = costs.for_classes(np.array(["a", "b", "c"]))
    assert ours.costs.tolist() == [[0, 3, 4], [1, 0, 2], [6, 5, 0]]
    with pytest.raises(InvalidParameter, match=r"must be for the classes \['a', 'b', 'x'\]"):
        costs.for_classes(["a", "b", "x"])


def test_costs_by_row_and_what_they_came_to():
    costs = np.array([[[0, 1.0], [5, 0]], [[0, 1.0], [0.1, 0]]])
    matrix = CostMatrix(costs)
    assert matrix.choose([[0.6, 0.4], [0.6, 0.4]]).tolist() == [1, 0]
    assert matrix.realised([1, 1], [1, 0]).tolist() == [0.0, 0.1]
    with pytest.raises(InvalidInput, match="these costs are for 2 rows"):
        matrix.choose([[0.6, 0.4]])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: CostMatrix([[0, 1]]), "a row for each true class"),
        (lambda: CostMatrix([[0, np.nan], [1, 0]]), "finite"),
        (lambda: CostMatrix([[0, 1, 2], [1, 0, 2]]), "1 columns of costs decide for no class"),
        (lambda: CostMatrix([[0, 1], [1, 0]], labels=["a", "a"]), "2 different classes"),
        (lambda: CostMatrix([[0, 1, 2], [1, 0, 2]], labels=["a", "b"], actions=["a"]), "the name of a class"),
        (lambda: resolve(CostRatio(3.0), counts=[1, 2, 3]), "a price for two classes, and there are 3"),
        (lambda: resolve({0: 1.0, 1: 2.0}, counts=[1, 2, 3]), "classes 0 to 2"),
        (lambda: resolve([1.0, 0.0, 2.0], counts=[1, 2, 3]), "above 0"),
        (lambda: resolve("even", counts=[1, 2, 3]), "balanced"),
        (lambda: class_key_equations([0, 1, 1], np.full((3, 3), 1 / 3), None), "class 2 has none"),
        (lambda: class_key_equations([0, 1], [[0.5, 0.6], [0.5, 0.5]], None), "sum 1"),
    ],
)
def test_what_means_nothing_is_refused_with_a_sentence(make, sentence):
    with pytest.raises((InvalidInput, InvalidParameter), match=sentence):
        make()


def test_everything_prints_itself():
    _, y, p = draw(300, 2)
    text = class_key_equations(y, p, "balanced").table(["none", "mild", "bad", "worst"])
    assert "worst" in text
    assert "degrees of freedom" in text
    assert "review" in str(CostMatrix([[0, 1, 0.3], [20, 0, 2]], labels=["ok", "bad"], actions=["review"]))


def test_the_public_functions_take_classes_too():
    _, y, p = draw(300, 2)
    assert key_equation(y, p, "balanced").flows == pytest.approx(class_key_equations(y, p, "balanced").flows)
    costs = CostMatrix([[0, 1], [9, 0]], labels=["ok", "bad"])
    assert decide([0.05, 0.2], costs).tolist() == ["ok", "bad"]
    assert decide([0.05, 0.2], Budget(9)).tolist() == [False, True]
