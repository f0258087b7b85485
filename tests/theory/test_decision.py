"""Undoing the weighting: against SciPy's logit and Bayes' rule."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from crcen.exceptions import InvalidInput
from crcen.theory.decision import posterior, sigmoid, weighted_probability
from crcen.theory.price import Alpha, Budget, CostRatio, Lam, resolve

prices = st.floats(1e-3, 1e3)
inside = st.floats(1e-9, 1 - 1e-9)


@given(inside, prices)
def test_the_logit_shifts_by_the_log_price(q, price):
    assert logit(posterior(q, CostRatio(price))) == pytest.approx(logit(q) - np.log(price), rel=1e-6, abs=1e-6)
    assert posterior(q, CostRatio(price)) == pytest.approx(expit(logit(q) - np.log(price)), rel=1e-9)


@given(inside, prices)
def test_inverse(p, price):
    there = weighted_probability(p, CostRatio(price))
    back = posterior(there, CostRatio(price))
    # 1 − q is known to 1e-16 absolutely, so what is lost coming back is that over 1 − q.
    assert back == pytest.approx(p, rel=1e-15 / (1 - there) + 1e-14)


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


@pytest.mark.parametrize("function", [posterior, weighted_probability])
@pytest.mark.parametrize("bad", [[-0.1], [1.1], [float("nan")]])
def test_what_is_not_a_probability_is_refused(function, bad):
    with pytest.raises(InvalidInput, match=r"must lie in \[0, 1\]"):
        function(bad, None)


def test_sigmoid():
    logits = np.r_[np.linspace(-745, 745, 1001), 0.0, -1e300, 1e300, -np.inf, np.inf]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = sigmoid(logits)
    np.testing.assert_allclose(result, expit(logits), rtol=1e-14, atol=1e-305)
    assert sigmoid(np.float32(0)).dtype == np.float64
    assert np.isnan(sigmoid(np.nan))
