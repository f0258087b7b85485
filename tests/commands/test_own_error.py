"""The model's own error: measured by a fit, kept in its file, used by evaluations and the report."""

import math

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import Budget, CRCENClassifierCV, InvalidParameter, evaluate_table, fit_table, load
from crcen.theory.decision import sigmoid

SMALL = {"hidden": [()], "l2": 1e-3, "encoding": "standard", "n_members": 1}


def draw(k):
    """1,600 rows of K classes with a known softmax."""
    rng = np.random.default_rng(k)
    X = rng.standard_normal((1600, 3))
    logits = np.column_stack([np.full(1600, 2.2), X @ [1.0, -0.7, 0.4], X[:, 1] - 0.5])[:, :k]
    state = np.array(["no", "yes", "worst"])[(logits + rng.gumbel(size=logits.shape)).argmax(axis=1)]
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(bad=state)


@pytest.fixture(scope="module")
def table():
    return draw(2)


def fitted(table, **how):
    weights = Budget(5) if table["bad"].nunique() == 2 else "balanced"
    return fit_table(table[:800], target="bad", weighting=weights, estimator=CRCENClassifierCV(**SMALL), **how)


@pytest.mark.parametrize("k", [2, 3])
def test_a_fit_measures_its_error_and_its_file_keeps_it(tmp_path, k):
    table = draw(k)
    fit, new = fitted(table, out=tmp_path / "m.crcen"), table[800:]
    again, error = load(tmp_path / "m.crcen"), fit.model.training_error_
    np.testing.assert_array_equal(again.training_error_.covariance, error.covariance)
    assert fit.to_dict()["training_error"] == (error.size if k == 2 else error.sizes.tolist())
    assert k == 3 or error.degrees == 5.0  # six refits
    # Logistic regression with about 100 positives: about one over the root of the information at this price.
    assert ((error.sizes > 0.02) & (error.sizes < 0.4)).all()
    assert "model error" in fit.details()
    # An evaluation by the file and the report's check have the test of key_equation with this error.
    numbers, q = np.searchsorted(again.classes_, new["bad"]), again.weighted_proba(new)
    rows = (numbers == 1, q[:, 1]) if k == 2 else (numbers, q)
    want = crcen.key_equation(*rows, again.weighting_, training_error=error)
    seen = evaluate_table(tmp_path / "m.crcen", new, n_resamples=0).equation
    page = crcen.write_report(again, new.drop(columns="bad"), new["bad"], tmp_path / "r.html")
    measured = next(one for one in page.findings if one.code == "CRC007").measured
    if k == 2:
        assert (seen.z, seen.p_value) == pytest.approx((want.z, want.p_value), rel=1e-6)
        assert f"z = {want.z:.2f}" in measured
        return
    want = want.equations
    assert (seen.equations.statistic, seen.equations.p_value) == pytest.approx((want.statistic, want.p_value), rel=1e-6)
    assert want.p_value > crcen.key_equation(*rows, again.weighting_).equations.p_value
    assert f"p-value {want.p_value:.3g}" in measured
    with pytest.raises(crcen.InvalidInput, match="is for 3 classes"):
        crcen.key_equation(numbers == 0, q[:, 0], None, training_error=error)


def test_without_refits_an_evaluation_allows_for_twice_the_labels(table):
    fit = fitted(table, n_refits=0)
    assert fit.training_error is None
    assert not hasattr(fit.model, "training_error_")
    new = table[800:1200]
    q = fit.model.weighted_proba(new)[:, 1]
    plain = crcen.key_equation(new["bad"] == "yes", q, fit.model.weighting_)
    seen = evaluate_table(fit.model, new, n_resamples=0)
    assert seen.equation.z == pytest.approx(plain.z / math.sqrt(1 + 2 * 400 / 800), rel=1e-6)
    with pytest.raises(InvalidParameter, match="n_refits must be 0, or a whole number of at least 3: got 2"):
        fitted(table, n_refits=2)


def test_under_twenty_positives_are_too_few(table):
    model = fitted(table).model
    few = table[800:].groupby("bad").head(19)
    seen = evaluate_table(model, few, n_resamples=0).equation
    assert seen.verdict == "not tested"
    assert "too few: 19 positives" in str(seen)
    del model.training_error_
    assert "fewer than 20 rows of a class are too few" in str(evaluate_table(model, few, n_resamples=0).equation)


def test_an_error_of_few_rows_is_that_of_all_scaled_and_never_below_the_labels():
    """Logistic regression: from 200 of 2,000 rows the same as from halves, within what 30 refits can tell."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    X = rng.standard_normal((2000, 2))
    p = sigmoid(-1.0 + X @ [1.0, 0.5])
    y = (rng.random(2000) < p).astype(int)
    model = LogisticRegression(C=1e6).fit(X, y)
    halves = crcen.training_error(model, X, y, n_fits=30)
    small = crcen.training_error(model, X, y, n_fits=30, max_rows=200)
    least = 1 / math.sqrt(np.sum(p * (1 - p)))
    assert small.size == pytest.approx(halves.size, rel=0.4)
    assert min(small.size, halves.size) > 0.97 * least
    with pytest.raises(InvalidParameter, match="max_rows must be a whole number of at least 10"):
        crcen.training_error(model, X, y, max_rows=3)
