"""Prices, labels and cost matrices: conversions against exact fractions, decisions against brute force, refusals."""

import copy
import math
import pickle
import re
import warnings
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

import crcen
from crcen import Alpha, Budget, CostMatrix, CostRatio, Lam, decide, posterior, resolve
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory import price as module
from crcen.theory.checks import check_binary_target, check_not_negative, check_probabilities, check_row_weights
from crcen.theory.price import Labels, Price, alpha_of, as_spec, cost_ratio_of, weighted_probability

SPECS = [Lam, Alpha, CostRatio, Budget]
prices = st.floats(1e-3, 1e3)
counts = st.integers(1, 10**6)
lams = st.floats(1e-3, 0.999)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("given", [0.25, np.float64(0.25), np.float32(0.25), Fraction(1, 4)])
def test_specs_are_frozen_plain_floats_with_a_type(spec, given):
    made = spec(given)
    assert (type(made.value), made.value, repr(made)) == (float, 0.25, f"{spec.__name__}(0.25)")
    assert eval(repr(made)) == made
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
    with pytest.raises(AttributeError):
        made.value = 2.0
    assert len({made, *(one(0.25) for one in SPECS)}) == 4
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
        (Alpha, r"got the class Alpha: did you mean Alpha\("),
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
    found, others = (made.cost_ratio, made.alpha), (made.threshold, made.imbalance_ratio)
    assert found == pytest.approx((float(cost), float(cost * n_pos / n_neg)), rel=1e-14)
    assert others == pytest.approx((float(1 - exact), n_neg / n_pos), rel=1e-15)
    assert made.logit_shift == pytest.approx(math.log(cost.numerator) - math.log(cost.denominator), abs=1e-12)


@given(prices, counts, counts)
def test_round_trips(price, n_pos, n_neg):
    by_cost = resolve(CostRatio(price), n_pos, n_neg)
    expected = (price, float(1 / (1 + Fraction(price))))
    assert (by_cost.cost_ratio, by_cost.threshold) == pytest.approx(expected, rel=1e-12)
    assert by_cost == resolve(Budget(price), n_pos, n_neg) == resolve(Lam(by_cost.lam), n_pos, n_neg)
    by_alpha = resolve(Alpha(by_cost.alpha), n_pos, n_neg)
    assert (by_alpha.lam, by_alpha.cost_ratio) == pytest.approx((by_cost.lam, price), rel=1e-11)


def test_names_of_the_paper():
    assert (resolve(None, 1000, 10000).lam, resolve(None, 1000, 10000).logit_shift) == (0.5, 0.0)
    lams = [resolve(w, 1000, 10000).lam for w in ("balanced", Alpha(2), Budget(4))]
    assert lams == pytest.approx([10000 / 11000, 2 * 10000 / (1000 + 2 * 10000), 4 / (1 + 4)], rel=1e-15)
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
    parts = ("λ = 0.9", "α = 0.5", "cost ratio = 9", "budget = 9", "0.1", "100 positive", "1800 negative")
    assert all(part in str(Price.binary(0.9, 100, 1800)) for part in parts)
    made = Price.binary(np.float64(0.5), np.int64(1), 2)
    assert repr(made) == "Price(lam=0.5, n_pos=1.0, n_neg=2.0)"
    assert (pickle.loads(pickle.dumps(made)), hash(made)) == (made, hash(Price.binary(0.5, 1, 2)))
    with pytest.raises(AttributeError):
        made.lam = 0.6


of_three = partial(resolve, counts=[1, 2, 3])


@pytest.mark.parametrize(
    ("make", "arguments", "words"),
    [
        (Price.binary, (1.5, 1, 1), r"did you mean Alpha\(1\.5\)"),
        (Price.binary, (0.5, 0, 1), "n_pos must be a finite number above 0, got 0"),
        (Price.binary, (0.5, 1, -3), "n_neg must be a finite number above 0, got -3"),
        (Price.binary, (0.5, 1, float("nan")), "n_neg must be .* got nan"),
        (Price.binary, (0.5, True, 1), "n_pos must be .* truth value"),
        (Price.binary, (1e-310, 1, 1), "milder weighting"),
        (Price.binary, (0.5, 1e300, 1e-300), "milder weighting"),
        (Price.binary, (0.5, 1e-300, 1e300), "milder weighting"),
        *((partial(resolve, counts=[0, 5]), (w,), "n_neg must be .* got 0") for w in (Alpha(1), Budget(5))),
        (of_three, (CostRatio(3.0),), "a price for two classes, and there are 3"),
        (of_three, ({0: 1.0, 1: 2.0},), "classes 0 to 2"),
        (of_three, ([1.0, 0.0, 2.0],), "above 0"),
        (of_three, ([1.0, 2.0],), "an array of 3 weights"),
        (of_three, ("even",), "balanced"),
        (CostMatrix, ([[0, 1]],), "a row for each true class"),
        (CostMatrix, ([[0, np.nan], [1, 0]],), "finite"),
        (CostMatrix, ([[0, 1, 2], [1, 0, 2]],), "must name 1 columns of costs"),
        (CostMatrix, ([[0, 1], [1, 0]], ["a", "a"]), "2 classes .* each different"),
        (CostMatrix, ([[0, 1, 2], [1, 0, 2]], ["a", "b"], ["a"]), "actions others"),
        *((CostMatrix, (np.ones((2, 4)), names, ["r", "r"]), "each different") for names in (None, ["a", "b"])),
        *((partial(CostMatrix, is_binary=True), given, "two classes") for given in ((np.eye(3),), (np.eye(2), "ab"))),
        (lambda costs: CostMatrix(costs).threshold, (1 - np.eye(3),), "CostMatrix.binary"),
        (CostMatrix.binary, (5, 1, 5), "fn must be above tp, .* no alarm pays"),
        (CostMatrix.binary, (6, 1, 5), "no alarm pays"),
        (CostMatrix.binary, (0, 0), "fp above tn: .* always pays"),
        (CostMatrix.binary, (0, -1, -1), "least probable rows: did you mean gains"),
        (CostMatrix.binary, (0, np.array([1.0, -1.0]), np.array([1.0, -1.0])), "least probable rows"),
        (CostMatrix.binary, (0, 1, float("nan")), "the cost fn must be a finite number .* got nan"),
        (CostMatrix.binary, (0, 1, np.array([1.0, np.inf])), "the cost fn must be a finite number"),
        (CostMatrix.binary, (0, 1, np.ones((2, 2))), "one for each row"),
        (CostMatrix.binary, (0, 1, "dear"), "the cost fn must be a number"),
        (CostMatrix.binary, (0, np.ones(4), np.ones(3)), "must be numbers or arrays of one length"),
    ],
)
def test_prices_and_costs_that_mean_nothing_are_refused(make, arguments, words):
    with pytest.raises(InvalidParameter, match=words):
        make(*arguments)


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
            assert (result[0], result[-1]) == (0.0, 1.0)
            assert (np.diff(result) >= 0).all()


def test_all_names_of_one_price_agree():
    q = np.array([[0.1, 0.5], [0.7, 0.99]])
    for weighting in (0.8, Lam(0.8), CostRatio(4), Budget(4), resolve(Alpha(1), 20, 80), [1, 4], {0: 1, 1: 4}):
        np.testing.assert_allclose(posterior(q, weighting), q / (q + 4 * (1 - q)), rtol=1e-13)
    for plain in (None, 0.5):
        np.testing.assert_allclose(posterior(q, plain), q, rtol=1e-15)
    assert isinstance(posterior(0.5, CostRatio(4)), float)
    for function in (posterior, weighted_probability):
        with pytest.raises(InvalidInput, match=r"must lie in \[0, 1\]"):
            function([1.1], None)
    p = np.random.default_rng(0).dirichlet(np.ones(4), 500)
    for price in (Price(np.array([1.0, 5.0, 12.0, 40.0]), np.ones(4)), np.array([1.0, 5.0, 12.0, 40.0])):
        assert posterior(weighted_probability(p, price), price) == pytest.approx(p, abs=1e-14)
        with pytest.raises(InvalidInput, match="a column for each of 4 classes"):
            posterior([0.5], price)


def test_sigmoid():
    logits = np.r_[np.linspace(-745, 745, 1001), 0.0, -1e300, 1e300, -np.inf, np.inf]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = module.sigmoid(logits)
    np.testing.assert_allclose(result, expit(logits), rtol=1e-14, atol=1e-305)
    assert module.sigmoid(np.float32(0)).dtype == np.float64
    assert np.isnan(module.sigmoid(np.nan))
    far = np.array([[-2000.0, 0.0], [0.0, 800.0]])
    np.testing.assert_array_equal(module.log_softmax(far), [[-2000.0, 0.0], [-800.0, 0.0]])
    np.testing.assert_array_equal(module.softmax(far), [[0.0, 1.0], [0.0, 1.0]])


# -- labels and rows

FIRST, LAST = Labels(np.array(["fraud", "ok"]), "fraud"), Labels(np.array(["no", "yes"]), "yes")


def of(y, weights=None, pos_label=None):
    y = np.array(y)
    weights = np.ones(len(y)) if weights is None else np.array(weights, float)
    return Labels.from_rows(np.unique(y), y, weights, pos_label).positive


def test_the_positive_class():
    assert (of([0, 0, 1]), of([0, 1, 1]), of([0, 1])) == (1, 0, 1)
    assert of(["a", "a", "b"], [1, 1, 5]) == "a"
    assert of(["a", "b", "b"], [2, 1, 1]) == "a"  # weights that balance the classes: rows decide
    assert of([0, 0, 1], pos_label=0) == 0
    with pytest.raises(InvalidInput, match="every class needs weight: every row of class b has sample_weight 0"):
        of(["a", "b"], [1, 0])
    for wrong in ("c", ["a"], np.array([1])):
        with pytest.raises(InvalidParameter, match="pos_label must be one of the classes 'a', 'b'"):
            of(["a", "b"], pos_label=wrong)


@pytest.mark.parametrize(("labels", "column"), [(FIRST, 0), (LAST, 1)])
def test_columns_signs_and_targets_follow_the_positive_class(labels, column):
    assert (labels.column, {labels.positive, labels.negative}) == (column, set(labels.classes.tolist()))
    y = np.array([labels.positive, labels.negative, labels.positive])
    target = labels.target(y)
    assert target.tolist() == [True, False, True]
    assert (labels.encode(y) == column).tolist() == target.tolist()
    assert labels.decode(target).tolist() == labels.decode(labels.encode(y)).tolist() == y.tolist()
    logits = np.array([-1.0, 2.0])
    np.testing.assert_array_equal(labels.signed(logits), logits if column else -logits)
    pair = np.array([[0.7, 0.3]])  # negative, positive
    assert labels.in_order(pair)[0, column] == 0.3
    np.testing.assert_array_equal(labels.in_order(labels.in_order(pair)), pair)
    assert labels.pair(labels.in_order(pair)[0]) == (0.3, 0.7)
    assert labels.pair(labels.by_class(3.0, 4.0)) == (3.0, 4.0)


def test_three_classes_have_numbers_and_no_positive_class():
    y = np.array(["b", "c", "a", "c"])
    labels = Labels.from_rows(np.unique(y), y, np.ones(4))
    assert labels.positive is None
    assert labels.encode(y).tolist() == labels.target(y).tolist() == [1, 2, 0, 2]
    assert labels.decode(labels.encode(y)).tolist() == y.tolist()
    assert labels.counts(labels.encode(y), [1, 2, 3, 4]).tolist() == [3, 1, 6]
    with pytest.raises(InvalidInput, match="none of 3 classes is the positive one"):
        _ = labels.column
    with pytest.raises(InvalidInput, match="every row of class b has sample_weight 0"):
        labels.counts(labels.encode(y), [0, 2, 3, 4])
    with pytest.raises(InvalidInput, match="y must hold the labels \\['no', 'yes'\\] only: got 'maybe'"):
        LAST.encode(["yes", "maybe"])


def test_those_of_a_model():
    model = SimpleNamespace(classes_=np.array(["fraud", "ok"]))
    rows = np.array(["fraud", "ok", "ok"])
    assert Labels.of_model(model).positive == "ok"  # no rows at hand: the last one
    assert Labels.of_model(model, rows).positive == "fraud"
    assert Labels.of_model(model, rows, np.array([3.0, 1.0, 1.0])).positive == "ok"
    assert Labels.of_model(model, rows, np.array([2.0, 1.0, 1.0])).positive == "fraud"  # a tie: rows decide
    model.pos_label_ = "ok"
    assert Labels.of_model(model, rows).positive == "ok"
    with pytest.raises(InvalidInput, match="two classes"):
        Labels.of_model(SimpleNamespace())


def test_prices_are_resolved_in_the_order_of_the_classes():
    first = FIRST.resolve({"fraud": 6, "ok": 2}, [10, 90])
    assert (first.weights.tolist(), first.counts.tolist(), first.positive) == ([0.75, 0.25], [10, 90], 0)
    assert (first.cost_ratio, first.n_pos, first.alpha) == (3, 10, pytest.approx(1 / 3))
    assert FIRST.resolve(Budget(3), [10, 90]) == FIRST.resolve([3, 1], [10, 90]) == first
    assert LAST.resolve({"yes": 1, "no": 4}, [90, 10]).cost_ratio == pytest.approx(1 / 4)
    assert LAST.resolve(resolve(Lam(0.8), 1, 1), [90, 10]) == resolve(Lam(0.8), 10, 90)
    assert FIRST.resolve(resolve(Lam(0.8), 1, 1), [10, 90]).lam == 0.8
    three = Labels(np.array(["a", "b", "c"]))
    assert three.resolve({"c": 3, "a": 1, "b": 2}, [1, 2, 3]).weights.tolist() == [1, 2, 3]
    costs = CostMatrix([[0, 1, 2], [3, 0, 4], [5, 6, 0]], labels=["c", "b", "a"])
    assert three.resolve(costs, [1, 1, 1]).costs.costs.tolist() == [[0, 6, 5], [4, 0, 3], [2, 1, 0]]
    with pytest.raises(InvalidParameter, match="one weight for each of 'no', 'yes'"):
        LAST.resolve({"yes": 1}, [90, 10])


def test_nobody_else_asks_which_class_is_last():
    package = Path(crcen.__file__).parent
    asking = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"classes_?\[[01]\]\s*==", path.read_text(encoding="utf-8"))
    ]
    assert asking == []


check_weights = partial(check_row_weights, n=3)
check_decisions = partial(check_binary_target, name="y_pred", ndims=(1, 2))


@pytest.mark.parametrize(
    ("check", "value", "words"),
    [
        (check_binary_target, [-1, 1], r"got the labels -1, 1; pass y == "),
        (check_binary_target, [0, 1, 2, 3, 4, 5, 6], "got the labels 0, 1, 2, 3, 4, ...;"),
        (check_binary_target, [0.0, 0.5], "got the labels 0, 0.5"),
        (check_binary_target, [0.0, 1.0, float("nan")], "in every row, got 1 NaN"),
        (check_binary_target, [0.0, float("inf")], "labels 0, inf"),
        (check_binary_target, ["fraud", "ok"], "must hold numbers, got values such as 'fraud'; pass y == the positive"),
        (check_binary_target, np.array(["1", 0], dtype=object), "must hold numbers, got values such as '1'"),
        (check_binary_target, [0, None], "must hold numbers, got values such as None"),
        (check_binary_target, [[0, 1]], r"must be 1-D with at least one row, got an array of shape \(1, 2\)"),
        (check_binary_target, [], "at least one row"),
        (check_binary_target, [[0, 1], [1]], "rectangular"),
        (check_binary_target, np.array([1j]), "must hold numbers"),
        (check_decisions, [[[1]]], r"y_pred must be 1-D or 2-D .*, got an array of shape \(1, 1, 1\)"),
        (check_weights, [1, 2], r"each of the 3 rows, got shape \(2,\)"),
        (check_weights, 2.0, r"got shape \(\)"),
        (check_weights, [1, -0.5, 1], "sample_weight must be finite and not negative, got -0.5"),
        (check_weights, [1, float("nan"), 1], "got nan"),
        (check_probabilities, [0.5, -0.1], r"q must lie in \[0, 1\], got values from -0.1 to 0.5"),
        (check_probabilities, [0.5, 1.1], r"to 1.1: are these logits"),
        (check_probabilities, [0.5, float("nan")], "got 1 NaN"),
    ],
)
def test_rows_refused(check, value, words):
    with pytest.raises(InvalidInput, match=words):
        check(value)


def test_what_is_taken_keeps_its_shape_and_is_a_copy():
    mixed = np.array([0, 1.0, np.True_], object)
    taken = [0, 1, 1], [False, True, True], np.float32([0, 1, 1]), np.uint8([0, 1, 1]), mixed
    assert {tuple(check_binary_target(y).tolist()) for y in taken} == {(False, True, True)}
    assert (check_probabilities([[0, 1], [0.5, 1]]).shape, check_decisions([[0, 1]]).shape) == ((2, 2), (1, 2))
    assert check_row_weights(None, 3).tolist() == [1.0, 1.0, 1.0]
    mine = np.ones(2)
    check_not_negative(mine, "fn")[0] = 5
    assert mine[0] == 1.0
    assert check_row_weights([0, 1, 2], 3).dtype == check_probabilities(np.float32(0.5)).dtype == np.float64


# -- cost matrices


def cheaper_by_hand(p, tp, fp, fn, tn):
    return p * tp + (1 - p) * fp < p * fn + (1 - p) * tn


@pytest.mark.parametrize("seed", range(20))
def test_threshold_is_where_an_alarm_becomes_cheaper(seed):
    rng = np.random.default_rng(seed)
    tp, tn = rng.normal(size=2) * 5
    costs = {"tp": tp, "fp": tn + rng.exponential(3), "fn": tp + rng.exponential(30), "tn": tn}
    p = np.linspace(0, 1, 1001)
    assert 0 < CostMatrix.binary(**costs).threshold < 1
    np.testing.assert_array_equal(p > CostMatrix.binary(**costs).threshold, cheaper_by_hand(p, **costs))


def test_every_row_has_its_own_threshold():
    rng = np.random.default_rng(1)
    amount = rng.exponential(100, 500)
    p = rng.uniform(size=500)
    costs = CostMatrix.binary(tp=10.0, fp=10.0, fn=amount)
    by_hand = [cheaper_by_hand(p[i], 10.0, 10.0, amount[i], 0.0) for i in range(500)]
    np.testing.assert_array_equal(decide(p, costs), by_hand)
    assert np.isinf(costs.threshold[amount < 10]).all()  # not worth a visit, whatever p
    assert (costs.threshold[amount > 10] < 1).all()
    assert not decide(np.ones(500), costs)[amount < 10].any()
    costs = CostMatrix.binary(tp=0.0, fp=np.array([-1.0, 0.0, 1.0]), fn=5.0)  # an alarm on the first row always pays
    np.testing.assert_allclose(costs.threshold, [-np.inf, 0.0, 1 / 6])
    assert decide([0.0, 0.0, 0.0], costs).tolist() == [True, False, False]
    assert decide([0.1, 0.1, 0.1], costs).tolist() == [True, True, False]
    assert CostMatrix.binary(tp=np.array([3.0]), fp=2.0, fn=3.0, tn=2.0).threshold.tolist() == [np.inf]  # indifferent


@pytest.mark.parametrize("positive", [0, 1])
def test_costs_give_the_price_of_their_ratio(positive):
    labels = Labels(np.array(["fraud", "ok"]), ["fraud", "ok"][positive])
    plain, moved = CostMatrix.binary(tp=0, fp=1, fn=7, tn=0), CostMatrix.binary(tp=100, fp=51, fn=107, tn=50)
    assert moved.threshold == pytest.approx(plain.threshold)
    for costs in (plain, moved):
        price = labels.resolve(costs, labels.by_class(10, 90))
        assert (price.cost_ratio, price.n_pos, price.positive) == (pytest.approx(7), 10, positive)
        assert price.costs.costs[positive, 1 - positive] == costs.costs[1, 0]  # a miss


def test_costs_are_sums_over_the_confusion_matrix_and_expected_ones_their_mean():
    costs, rng = CostMatrix.binary(tp=2, fp=3, fn=50, tn=-1), np.random.default_rng(3)
    y, alarms = rng.uniform(size=300) < 0.3, rng.uniform(size=300) < 0.4
    by_hand = 2 * (y & alarms).sum() + 3 * (~y & alarms).sum() + 50 * (y & ~alarms).sum() - (~y & ~alarms).sum()
    assert costs.realised(y, alarms).sum() == pytest.approx(by_hand)
    for alarm in (0, 1):
        for p in (0.0, 0.2, 1.0):
            mean = p * costs.realised([1], [alarm])[0] + (1 - p) * costs.realised([0], [alarm])[0]
            assert costs.expected([p])[0, alarm] == pytest.approx(mean)


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_the_cheapest_action_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    costs, p = rng.uniform(0, 10, (3, 5)), rng.dirichlet(np.ones(3), 20)
    matrix = CostMatrix(costs, labels=["a", "b", "c"], actions=["review", "reject"])
    expected = [[sum(row[k] * costs[k, a] for k in range(3)) for a in range(5)] for row in p]
    assert matrix.decide(p).tolist() == [matrix.names[int(np.argmin(row))] for row in expected]


def test_class_weights_decide_as_their_matrix_does_and_other_matrices_have_none():
    p, weights = np.random.default_rng(0).dirichlet(np.ones(4), 3000), np.array([1.0, 5.0, 12.0, 40.0])
    matrix = CostMatrix(weights[:, None] * (1 - np.eye(4)) + np.array([[3.0], [0.0], [1.0], [2.0]]))
    assert matrix.class_weights() == pytest.approx(weights)
    assert np.array_equal((p * weights).argmax(1), matrix.choose(p))
    assert CostMatrix([[0, 1, 2], [1, 0, 1], [2, 1, 0]]).class_weights() is None
    assert CostMatrix([[0, 1, 0.3], [20, 0, 2]], actions=["review"]).class_weights() is None
    costs = Price(np.array([1.0, 5.0]), np.array([9.0, 3.0])).cost_matrix.for_classes(["x", "y"])
    assert costs == CostMatrix([[0, 1], [5, 0]], labels=["x", "y"])
    assert decide([0.05, 0.2], CostMatrix([[0, 1], [9, 0]], labels=["ok", "bad"])).tolist() == ["ok", "bad"]
    assert decide([0.05, 0.2], Budget(9)).tolist() == [False, True]


def test_labels_may_come_in_another_order_and_are_printed():
    costs = CostMatrix([[0, 1, 2], [3, 0, 4], [5, 6, 0]], labels=["b", "a", "c"])
    ours = costs.for_classes(np.array(["a", "b", "c"]))
    assert ours.costs.tolist() == [[0, 3, 4], [1, 0, 2], [6, 5, 0]]
    with pytest.raises(InvalidParameter, match=r"must be for the classes \['a', 'b', 'x'\]"):
        costs.for_classes(["a", "b", "x"])
    by_row = CostMatrix.binary(tp=1, fn=np.arange(1.0, 8.0) + 1)
    assert repr(by_row) == "CostMatrix.binary(tp=1, fp=1, fn=<7 rows>, tn=0)"
    assert "review" in str(CostMatrix([[0, 1, 0.3], [20, 0, 2]], labels=["ok", "bad"], actions=["review"]))
    assert "positive" in str(CostMatrix.binary(fn=3))


def test_costs_by_row_and_what_they_came_to():
    costs = np.array([[[0, 1.0], [5, 0]], [[0, 1.0], [0.1, 0]]])
    matrix = CostMatrix(costs)
    assert (matrix.choose([[0.6, 0.4]] * 2).tolist(), matrix.realised([1, 1], [1, 0]).tolist()) == ([1, 0], [0.0, 0.1])
    for call in (lambda: matrix.choose([[0.6, 0.4]]), lambda: matrix.realised([0], [0])):
        with pytest.raises(InvalidInput, match="these costs are for 2 rows: got 1"):
            call()
    with pytest.raises(InvalidParameter, match="differ by row"):
        Labels(np.array([0, 1]), 1).resolve(matrix, [1, 1])
    with pytest.raises(InvalidInput, match=r"the columns of p must sum to 1: got sums from 1\.3 to 1\.4"):
        CostMatrix(1 - np.eye(3)).decide([[0.4, 0.9, 0.1], [0.9, 0.1, 0.3]])
