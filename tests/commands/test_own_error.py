"""The model's own error: measured by a fit, kept in its file, used by evaluations and the report."""

import math

import numpy as np
import pytest

import crcen
from crcen import Budget, CRCENClassifierCV, InvalidParameter, evaluate_table, fit_table, load
from crcen.theory.decision import sigmoid
from crcen.theory.residual_test import TrainingError

SMALL = {"hidden": [()], "l2": 1e-3, "encoding": "standard", "n_members": 1}


@pytest.fixture(scope="module")
def table():
    import pandas as pd

    rng = np.random.default_rng(0)
    X = rng.standard_normal((1600, 3))
    y = rng.random(1600) < sigmoid(-2.2 + X @ [1.0, -0.7, 0.4])
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(bad=np.where(y, "yes", "no"))


def fitted(table, **how):
    return fit_table(table[:800], target="bad", weighting=Budget(5), estimator=CRCENClassifierCV(**SMALL), **how)


def test_a_fit_measures_its_error_and_its_file_keeps_it(table, tmp_path):
    fit = fitted(table, out=tmp_path / "m.crcen")
    again = load(tmp_path / "m.crcen")
    assert again.training_error_ == fit.training_error == fit.model.training_error_
    assert fit.training_error.degrees == 5.0
    # Logistic regression with 100 positives: about one over the root of the information at this price.
    assert 0.07 < fit.training_error.size < 0.3
    assert fit.to_dict()["training_error"] == fit.training_error.size
    assert "model error" in fit.details()
    # An evaluation by the file and the report's check have the test of key_equation with this error.
    new = table[800:]
    q = again.weighted_proba(new)[:, list(again.classes_).index("yes")]
    want = crcen.key_equation(new["bad"] == "yes", q, again.weighting_, training_error=fit.training_error)
    seen = evaluate_table(tmp_path / "m.crcen", new, n_resamples=0).equation
    assert (seen.z, seen.p_value) == pytest.approx((want.z, want.p_value), rel=1e-6)
    page = crcen.write_report(again, new.drop(columns="bad"), new["bad"], tmp_path / "r.html")
    crc007 = next(one for one in page.findings if one.code == "CRC007")
    assert f"z = {want.z:.2f}" in crc007.measured


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
    assert TrainingError.binary(0.1).noise(crcen.theory.residual_test.ResidualSums()) == 1.0


def test_several_classes_have_their_error_measured_and_kept(tmp_path):
    import pandas as pd

    rng = np.random.default_rng(1)
    X = rng.standard_normal((1200, 2))
    logits = np.column_stack([np.full(1200, 1.5), X[:, 0], X[:, 1] - 0.5])
    state = np.array(["fine", "worn", "broken"])[(logits + rng.gumbel(size=(1200, 3))).argmax(axis=1)]
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(state=state)
    fit = fit_table(frame[:600], target="state", estimator=CRCENClassifierCV(**SMALL), out=tmp_path / "m.crcen")
    again, new = load(tmp_path / "m.crcen"), frame[600:]
    error = again.training_error_
    np.testing.assert_array_equal(error.covariance, fit.model.training_error_.covariance)
    assert fit.to_dict()["training_error"] == error.sizes.tolist()
    assert "model error" in fit.details()
    assert ((error.sizes > 0.02) & (error.sizes < 0.4)).all()
    q, numbers = again.weighted_proba(new), np.searchsorted(again.classes_, new["state"])
    want = crcen.key_equation(numbers, q, again.weighting_, training_error=error).equations
    plain = crcen.key_equation(numbers, q, again.weighting_).equations
    assert want.p_value > plain.p_value
    seen = evaluate_table(tmp_path / "m.crcen", new).equation
    assert (seen.joint.statistic, seen.joint.p_value) == pytest.approx((want.statistic, want.p_value), rel=1e-6)
    page = crcen.write_report(again, new.drop(columns="state"), new["state"], tmp_path / "r.html")
    crc007 = next(one for one in page.findings if one.code == "CRC007")
    assert f"p-value {want.p_value:.3g}" in crc007.measured
    with pytest.raises(crcen.InvalidInput, match="is for 3 classes"):
        crcen.key_equation(numbers == 0, q[:, 0], None, training_error=error)
