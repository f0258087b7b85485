"""What a person may state as a weighting, and what they are told when it means nothing."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest

from crcen.exceptions import InvalidParameter
from crcen.theory.price import (
    Alpha,
    Budget,
    CostRatio,
    Lam,
    Price,
    alpha_of,
    as_spec,
    cost_ratio_of,
    positive_number,
    resolve,
)

SPECS = [Lam, Alpha, CostRatio, Budget]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("given", [0.25, np.float64(0.25), np.float32(0.25), Fraction(1, 4)])
def test_values_become_plain_floats(spec, given):
    made = spec(given)
    assert type(made.value) is float
    assert made.value == 0.25
    assert repr(made) == f"{spec.__name__}(0.25)"
    assert eval(repr(made)) == made
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)


def test_integers_are_numbers():
    assert Alpha(2).value == CostRatio(np.int64(2)).value == 2.0
    assert type(Alpha(2).value) is float


def test_specs_are_frozen_and_distinct():
    spec = Alpha(1.0)
    with pytest.raises(AttributeError):
        spec.value = 2.0
    assert Alpha(1.0) != CostRatio(1.0)
    assert len({Alpha(1.0), Alpha(1), CostRatio(1.0)}) == 2


@pytest.mark.parametrize("value", [1.5, 10, 1.0000001])
def test_a_lambda_above_one_was_meant_as_something_else(value):
    expected = rf"between 0 and 1, got {value}: did you mean Alpha\({value}\) or CostRatio\({value}\)\?"
    for attempt in (lambda: Lam(value), lambda: resolve(value, 10, 90)):
        with pytest.raises(InvalidParameter, match=expected):
            attempt()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1, r"strictly between 0 and 1, got 1: .*balanced"),
        (0, r"strictly between 0 and 1, got 0: .*None"),
        (-0.2, r"strictly between 0 and 1, got -0\.2: "),
        (float("nan"), "got nan"),
        (float("inf"), "got inf"),
        (10**400, "got inf"),
        (True, 'truth value True: did you mean "balanced"'),
        (np.bool_(False), "truth value False: did you mean None"),
        ("0.5", "got the text '0.5'.*number"),
        (np.array([0.5, 0.6]), r"array of shape \(2,\).*one plain number"),
        (np.array(0.5), r"array of shape \(\)"),
        ([0.5], "got a list"),
        (0.5 + 0j, "got a complex"),
        (Alpha(1.5), r"got Alpha\(1\.5\): did you mean Alpha\(1\.5\) by itself"),
        (None, "got a NoneType"),
    ],
)
def test_lambda_refuses(value, words):
    with pytest.raises(InvalidParameter, match=words):
        Lam(value)


@pytest.mark.parametrize("spec", [Alpha, CostRatio, Budget])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "got 0: did you mean a small number above 0"),
        (-2.5, r"got -2\.5: did you mean 2\.5"),
        (float("nan"), "got nan"),
        (float("-inf"), "got -inf"),
        (True, "truth value"),
        ("3", "got the text '3'"),
        (np.ones(3), r"array of shape \(3,\)"),
        ({1: 2}, "got a dict"),
        (Lam(0.5), r"got Lam\(0\.5\)"),
    ],
)
def test_positive_specs_refuse(spec, value, words):
    with pytest.raises(InvalidParameter, match=rf"^{spec.__name__} must be a finite number above 0, .*{words}"):
        spec(value)


@pytest.mark.parametrize(
    ("plain", "spec"), [(None, Lam(0.5)), ("balanced", Alpha(1)), (0.9, Lam(0.9)), (Budget(3), Budget(3))]
)
def test_plain_forms_stand_for_specs(plain, spec):
    assert as_spec(plain) == spec


@pytest.mark.parametrize(
    ("weighting", "words"),
    [
        ("balance", "got 'balance': did you mean \"balanced\"\\?"),
        ("Balanced", 'did you mean "balanced"\\?'),
        ("0.9", "did you mean the number 0.9 without quotes"),
        ("none", 'did you mean "balanced", None'),
        ("", 'did you mean "balanced", None'),
        (Alpha, r"the class Alpha: did you mean Alpha\("),
        (True, "truth value True"),
    ],
)
def test_weightings_that_mean_nothing(weighting, words):
    for function in (as_spec, alpha_of, cost_ratio_of, lambda given: resolve(given, 1, 2)):
        with pytest.raises(InvalidParameter, match=words):
            function(weighting)


@pytest.mark.parametrize("bad", ["balance", 1.5, -1, True, float("nan"), "0.9"])
def test_an_error_is_one_sentence(bad):
    with pytest.raises(InvalidParameter) as caught:
        resolve(bad, 1, 2)
    message = str(caught.value)
    assert message.count("?") == 1
    assert message.endswith("?")
    assert "\n" not in message


def test_positive_number_names_what_it_checks():
    assert positive_number(3, "n_pos") == 3.0
    with pytest.raises(InvalidParameter, match=r"^n_pos must be"):
        positive_number(0, "n_pos")


def test_prices_and_alphas_that_need_no_counts():
    resolved = Price.binary(0.75, 10, 90)
    assert [cost_ratio_of(w) for w in (None, 0.75, Lam(0.75), CostRatio(7), Budget(8), resolved)] == [1, 3, 3, 7, 8, 3]
    assert [alpha_of(w) for w in ("balanced", Alpha(2), resolved)] == pytest.approx([1, 2, 1 / 3], rel=1e-15)


@pytest.mark.parametrize("weighting", ["balanced", Alpha(2)])
def test_a_price_of_alpha_needs_counts(weighting):
    with pytest.raises(InvalidParameter, match=r"class counts are needed.*resolve\(weighting, n_pos, n_neg\)"):
        cost_ratio_of(weighting)


@pytest.mark.parametrize("weighting", [None, 0.9, Lam(0.9), CostRatio(9), Budget(9)])
def test_an_alpha_of_a_price_needs_counts(weighting):
    with pytest.raises(InvalidParameter, match=r"class counts are needed.*resolve\(weighting, n_pos, n_neg\)"):
        alpha_of(weighting)
