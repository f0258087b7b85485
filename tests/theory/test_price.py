"""Statements of a price and what they resolve to: conversions against exact fractions, refusals, decisions."""

import copy
import math
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from crcen import Alpha, Budget, CostMatrix, CostRatio, Lam, posterior, resolve
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.price import Labels, Price, alpha_of, as_spec, cost_ratio_of, sigmoid, weighted_probability

SPECS = [Lam, Alpha, CostRatio, Budget]
prices = st.floats(1e-3, 1e3)
counts = st.integers(1, 10**6)
lams = st.floats(1e-3, 0.999)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("given", [0.25, np.float64(0.25), np.float32(0.25), Fraction(1, 4)])
def test_specs_are_frozen_plain_floats_with_a_type(spec, given):
    made = spec(given)
    assert type(made.value) is float
    assert made.value == 0.25
    assert repr(made) == f"{spec.__name__}(0.25)"
    assert eval(repr(made)) == made
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
    with pytest.raises(AttributeError):
        made.value = 2.0
    assert {made, *(one(0.25) for one in SPECS)} == {one(0.25) for one in SPECS}
    assert len({one(0.25) for one in SPECS}) == 4
    assert type(CostRatio(np.int64(2)).value) is float


@pytest.mark.parametrize(
    ("specs", "value", "words"),
    [
        ([Lam], 1, r"strictly between 0 and 1, got 1: .*balanced"),
        ([Lam], 1.0000001, r"did you mean Alpha\(1\.0000001\) or CostRatio\(1\.0000001\)\?"),
        ([Lam], 10, r"between 0 and 1, got 10: did you mean Alpha\(10\) or CostRatio\(10\)\?"),
        ([Lam], 0, r"strictly between 0 and 1, got 0: .*None"),
        ([Lam], -0.2, r"strictly between 0 and 1, got -0\.2: "),
        ([Lam], 10**400, "got inf"),
        ([Lam], np.bool_(False), "truth value False: did you mean None"),
        ([Lam], 0.5 + 0j, "got a complex"),
        ([Lam], None, "got a NoneType"),
        (SPECS, True, 'truth value True: did you mean "balanced"'),
        (SPECS, float("nan"), "got nan"),
        (SPECS, float("-inf"), "got -inf"),
        (SPECS, "0.5", "got the text '0.5'.*number"),
        (SPECS, np.array([0.5, 0.6]), "got a ndarray: did you mean one plain number"),
        (SPECS, [0.5], "got a list"),
        (SPECS, {1: 2}, "got a dict"),
        (SPECS, Alpha(1.5), r"got Alpha\(1\.5\): did you mean Alpha\(1\.5\) by itself"),
        (SPECS[1:], 0, "above 0, got 0: did you mean a small number above 0"),
        (SPECS[1:], -2.5, r"above 0, got -2\.5: did you mean 2\.5"),
    ],
)
def test_specs_refuse(specs, value, words):
    for spec in specs:
        with pytest.raises(InvalidParameter, match=f"^{'λ' if spec is Lam else spec.__name__} must be .*{words}"):
            spec(value)


@pytest.mark.parametrize(
    ("weighting", "words"),
    [
        ("Balanced", "got 'Balanced': did you mean \"balanced\", None"),
        ("0.9", "got '0.9': did you mean .* or a number without quotes"),
        (Alpha, "got a type"),
        (True, "truth value True"),
        (1.5, r"did you mean Alpha\(1\.5\)"),
        (-1, "got -1"),
        (float("nan"), "got nan"),
    ],
)
def test_weightings_that_mean_nothing(weighting, words):
    for function in (as_spec, alpha_of, cost_ratio_of, lambda given: resolve(given, 1, 2)):
        with pytest.raises(InvalidParameter, match=words) as caught:
            function(weighting)
        message = str(caught.value)  # one sentence that ends with a question
        assert message.count("?") == message.endswith("?") == 1
        assert "\n" not in message


def test_plain_forms_stand_for_specs_and_some_prices_and_alphas_need_no_counts():
    assert [as_spec(w) for w in (None, "balanced", 0.9, Budget(3))] == [Lam(0.5), Alpha(1), Lam(0.9), Budget(3)]
    resolved = Price.binary(0.75, 10, 90)
    assert [cost_ratio_of(w) for w in (None, 0.75, Lam(0.75), CostRatio(7), Budget(8), resolved)] == [1, 3, 3, 7, 8, 3]
    assert [alpha_of(w) for w in ("balanced", Alpha(2), resolved)] == pytest.approx([1, 2, 1 / 3], rel=1e-15)
    for function, needing in ((cost_ratio_of, ("balanced", Alpha(2))), (alpha_of, (None, 0.9, CostRatio(9)))):
        for weighting in needing:
            with pytest.raises(InvalidParameter, match=r"class counts are needed.*resolve\(weighting, n_pos, n_neg\)"):
                function(weighting)


@given(lams, counts, counts)
def test_names_agree_with_exact_fractions(lam, n_pos, n_neg):
    made = resolve(lam, n_pos, n_neg)
    exact = Fraction(lam)
    cost = exact / (1 - exact)
    assert made.lam == lam
    assert made.cost_ratio == pytest.approx(float(cost), rel=1e-14)
    assert made.alpha == pytest.approx(float(cost * n_pos / n_neg), rel=1e-14)
    assert made.threshold == pytest.approx(float(1 - exact), rel=1e-15)
    assert made.imbalance_ratio == pytest.approx(n_neg / n_pos, rel=1e-15)
    assert made.logit_shift == pytest.approx(math.log(cost.numerator) - math.log(cost.denominator), abs=1e-12)


@given(prices, counts, counts)
def test_round_trips(price, n_pos, n_neg):
    by_cost = resolve(CostRatio(price), n_pos, n_neg)
    assert by_cost.cost_ratio == pytest.approx(price, rel=1e-12)
    assert by_cost.threshold == pytest.approx(float(1 / (1 + Fraction(price))), rel=1e-12)
    assert by_cost == resolve(Budget(price), n_pos, n_neg)
    again = resolve(Lam(by_cost.lam), n_pos, n_neg)
    assert again == by_cost
    by_alpha = resolve(Alpha(by_cost.alpha), n_pos, n_neg)
    assert by_alpha.lam == pytest.approx(by_cost.lam, rel=1e-12)
    assert by_alpha.cost_ratio == pytest.approx(price, rel=1e-11)


def test_names_of_the_paper():
    assert (resolve(None, 1000, 10000).lam, resolve(None, 1000, 10000).logit_shift) == (0.5, 0.0)
    assert resolve("balanced", 1000, 10000).lam == pytest.approx(10000 / 11000, rel=1e-15)
    assert resolve(Alpha(2), 1000, 10000).lam == pytest.approx(2 * 10000 / (1000 + 2 * 10000), rel=1e-15)
    assert resolve(Budget(4), 1000, 10000).lam == pytest.approx(4 / (1 + 4), rel=1e-15)
    assert [1 / resolve(w, 1000, 10000).alpha for w in (None, "balanced", Alpha(2))] == pytest.approx([10, 1, 0.5])
    made = resolve("balanced", 10, 90)  # what is resolved keeps its counts
    assert resolve(made, 50, 50) is made
    assert resolve("balanced", 1e308, 1e308).lam == pytest.approx(0.5)


def test_weights_of_rows_by_hand_and_of_two_classes_as_a_cost_ratio():
    made = Price.binary(0.8, 1, 4)
    np.testing.assert_allclose(made.row_weights([1, 0, 0]), [0.8, 0.2, 0.2], rtol=1e-15)
    np.testing.assert_allclose(made.row_weights([True, False, True], [2, 3, 0]), [1.6, 0.6, 0.0], rtol=1e-15)
    assert made.row_weights([1, 0]).dtype == np.float64
    with pytest.raises(InvalidInput, match="one weight for each of the 2 rows"):
        made.row_weights([1, 0], [1, 2, 3])
    for weighting in ([2, 6], np.array([0.5, 1.5]), {1: 3, 0: 1}, CostMatrix.binary(fn=3)):
        assert resolve(weighting, 10, 90).lam == resolve(CostRatio(3), 10, 90).lam == 0.75
        assert resolve(weighting, counts=[90, 10]).n_pos == 10


def test_value_object_with_all_four_names():
    text = str(Price.binary(0.9, 100, 1800))
    for part in ("λ = 0.9", "α = 0.5", "cost ratio = 9", "budget = 9", "0.1", "100 positive", "1800 negative"):
        assert part in text
    made = Price.binary(np.float64(0.5), np.int64(1), 2)
    assert repr(made) == "Price(lam=0.5, n_pos=1.0, n_neg=2.0)"
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(Price.binary(0.5, 1, 2))
    with pytest.raises(AttributeError):
        made.lam = 0.6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1.5, 1, 1), r"did you mean Alpha\(1\.5\)"),
        ((0.5, 0, 1), "n_pos must be a finite number above 0, got 0"),
        ((0.5, 1, -3), "n_neg must be a finite number above 0, got -3"),
        ((0.5, 1, float("nan")), "n_neg must be .* got nan"),
        ((0.5, True, 1), "n_pos must be .* truth value"),
        ((1e-310, 1, 1), "milder weighting"),
        ((0.5, 1e300, 1e-300), "milder weighting"),
        ((0.5, 1e-300, 1e300), "milder weighting"),
    ],
)
def test_class_weighting_refuses(arguments, words):
    with pytest.raises(InvalidParameter, match=words):
        Price.binary(*arguments)


def test_a_lambda_that_rounds_to_the_edge_is_refused_and_the_largest_prices_still_work():
    for spec in (CostRatio(1e17), Alpha(1e300), Alpha(1e308), Budget(1e16), Alpha(5e-324)):
        with pytest.raises(InvalidParameter, match=r"finite and above 0|milder weighting"):
            resolve(spec, 10, 1000 if spec.value > 1 else 1)
    assert resolve(CostRatio(1e12), 1, 1).cost_ratio == pytest.approx(1e12, rel=1e-3)
    assert resolve(CostRatio(1e-12), 1, 1).cost_ratio == pytest.approx(1e-12, rel=1e-14)


def test_three_classes_have_weights_and_no_names_of_two():
    made = resolve("balanced", counts=[50, 30, 20])
    np.testing.assert_allclose(made.weights, 100 / (3 * np.array([50, 30, 20])))
    assert resolve(None, counts=[50, 30, 20]).weights.tolist() == [1, 1, 1]
    assert made.row_weights([0, 2], [1, 3]).tolist() == [made.weights[0], 3 * made.weights[2]]
    for name in ("lam", "alpha", "cost_ratio", "budget", "threshold", "n_pos", "n_neg"):
        with pytest.raises(AttributeError, match="a price of 3 classes has no"):
            getattr(made, name)


@pytest.mark.parametrize("weighting", [Budget(9), Lam(0.7), CostMatrix.binary(fn=9)])
@pytest.mark.parametrize("positive", [0, 1])
def test_decisions_of_two_classes_are_the_threshold_and_ties_are_no_alarm(weighting, positive):
    labels = Labels(np.array(["a", "b"]), "ab"[positive])
    made = labels.resolve(weighting, [50, 50])
    p = np.array([0.0, 0.05, made.threshold, np.nextafter(made.threshold, 1), 0.5, 1.0])
    assert made.decide(p).tolist() == [False, False, False, True, True, True]
    columns = np.stack([1 - p, p] if positive else [p, 1 - p], axis=1)
    assert (made.decide(columns) == positive).tolist() == made.decide(p).tolist()


def test_decisions_take_the_cheapest_class_or_action():
    p = np.random.default_rng(0).dirichlet(np.ones(3), 200)
    weights = np.array([1.0, 4.0, 9.0])
    expected = p @ (weights[:, None] * (1 - np.eye(3)))
    assert resolve(weights, counts=[1, 1, 1]).decide(p).tolist() == expected.argmin(axis=1).tolist()
    costs = CostMatrix([[0, 1, 2, 0.5], [3, 0, 4, 0.5], [5, 6, 0, 0.5]], actions=["review"])
    made = resolve(costs, counts=[1, 1, 1])
    assert made.decide(p).tolist() == (p @ costs.costs).argmin(axis=1).tolist()
    assert set(made.decide(p)) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("weighting", "sentence"),
    [
        (CostRatio(3.0), "a price for two classes, and there are 3"),
        ({0: 1.0, 1: 2.0}, "classes 0 to 2"),
        ([1.0, 0.0, 2.0], "above 0"),
        ([1.0, 2.0], "an array of 3 weights"),
        ("even", "balanced"),
    ],
)
def test_prices_of_three_classes_that_mean_nothing_are_refused(weighting, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        resolve(weighting, counts=[1, 2, 3])


@given(st.floats(1e-9, 1 - 1e-9), prices)
def test_the_logit_shifts_by_the_log_price_and_back(q, price):
    assert logit(posterior(q, CostRatio(price))) == pytest.approx(logit(q) - np.log(price), rel=1e-6, abs=1e-6)
    assert posterior(q, CostRatio(price)) == pytest.approx(expit(logit(q) - np.log(price)), rel=1e-9)
    there = weighted_probability(q, CostRatio(price))
    # 1 − q is known to 1e-16 absolutely, so what is lost coming back is that over 1 − q.
    assert posterior(there, CostRatio(price)) == pytest.approx(q, rel=1e-15 / (1 - there) + 1e-14)


@pytest.mark.parametrize("price", [1e-300, 1e-6, 1.0, 1e6, 1e300])
def test_ends_stay_and_nothing_warns(price):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in (posterior, weighted_probability):
            result = function([0.0, 5e-324, 0.5, 1 - 1e-16, 1.0], CostRatio(price))
            assert result[0] == 0.0
            assert result[-1] == 1.0
            assert ((result >= 0) & (result <= 1)).all()
            assert (np.diff(result) >= 0).all()


def test_all_names_of_one_price_agree():
    q = np.array([[0.1, 0.5], [0.7, 0.99]])
    for weighting in (0.8, Lam(0.8), CostRatio(4), Budget(4), resolve(Alpha(1), 20, 80)):
        np.testing.assert_allclose(posterior(q, weighting), q / (q + 4 * (1 - q)), rtol=1e-13)
    for plain in (None, 0.5):
        np.testing.assert_allclose(posterior(q, plain), q, rtol=1e-15)
    assert isinstance(posterior(0.5, CostRatio(4)), float)
    for function in (posterior, weighted_probability):
        with pytest.raises(InvalidInput, match=r"must lie in \[0, 1\]"):
            function([1.1], None)
    p = np.random.default_rng(0).dirichlet(np.ones(4), 500)
    price = Price(np.array([1.0, 5.0, 12.0, 40.0]), np.ones(4))
    assert price.posterior(price.weighted(p)) == pytest.approx(p, abs=1e-14)


def test_sigmoid():
    logits = np.r_[np.linspace(-745, 745, 1001), 0.0, -1e300, 1e300, -np.inf, np.inf]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = sigmoid(logits)
    np.testing.assert_allclose(result, expit(logits), rtol=1e-14, atol=1e-305)
    assert sigmoid(np.float32(0)).dtype == np.float64
    assert np.isnan(sigmoid(np.nan))
