"""missing="indicator" against tables prepared by hand, a known posterior, and everything that reads a model."""

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline

import crcen
from crcen import Budget, CostRatio, CSMLPClassifier, Inputs, InvalidInput, stationarity
from crcen.paper.estimators import MovedThresholdClassifier
from crcen.training.network import ENCODINGS
from grouped_settings import grouped
from papers_training import CRCENClassifier, CRCENClassifierCV

EXACT = {"solver": "lbfgs", "tol": 1e-10, "max_epochs": 2000, "random_state": 0}
WAY_OUT = r"NaN in column 0, 1;.*fit with encoding=Inputs\(missing='indicator'\), or impute"
QUICK = {"hidden": (4,), "max_epochs": 3, "n_members": 2, "random_state": 0}


@pytest.fixture(scope="module")
def gappy(rare_rows):
    """Rows of which the first two columns lack a fifth of their cells each, and other rows that lack any."""
    rng = np.random.default_rng(0)
    X, y = rare_rows(n=300)
    new = X[:100].copy()
    X[:, :2][rng.random((300, 2)) < 0.2] = np.nan
    new[rng.random(new.shape) < 0.3] = np.nan
    return X, y, new


def by_hand(X, fitted_on, weights):
    """Standard scores of the cells that are there, 0 for others, and standard scores of being missing."""
    parts = []
    for own, new in zip(fitted_on.T, X.T, strict=True):
        there = ~np.isnan(own)
        mean = np.average(own[there], weights=weights[there])
        std = np.sqrt(np.average((own[there] - mean) ** 2, weights=weights[there]))
        parts.append(np.nan_to_num((new - mean) / std, nan=0.0))
    for own, new in zip(fitted_on.T[:2], X.T[:2], strict=True):
        share = np.average(np.isnan(own), weights=weights)
        parts.append((np.isnan(new) - share) / np.sqrt(share * (1 - share)))
    return np.column_stack(parts)


@pytest.mark.parametrize("weighting", [None, Budget(4)], ids=repr)
def test_fits_agree_with_a_table_prepared_by_hand(gappy, weighting):
    X, y, new = gappy
    s = np.random.default_rng(5).uniform(0.2, 3.0, len(y))
    how = {"hidden": (), "l2": 1e-2, **EXACT}
    ours = CRCENClassifier(weighting, missing="indicator", **how).fit(X, y, s)
    theirs = CRCENClassifier(weighting, standardize=False, **how).fit(by_hand(X, X, s), y, s)
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(by_hand(new, X, s)), atol=1e-8)


@pytest.mark.parametrize("kind", [CRCENClassifier, CRCENClassifierCV])
def test_fits_agree_with_those_without_the_setting_where_nothing_is_missing(rare_rows, kind):
    X, y = rare_rows()
    how = {**QUICK, "encoding": "steps", "l2": 1e-2}
    given, absent = (kind(**grouped(missing=missing, **how)).fit(X, y) for missing in ("indicator", "error"))
    np.testing.assert_allclose(given.predict_proba(X), absent.predict_proba(X), atol=1e-12)
    assert np.isfinite(given.predict_proba(np.full((1, 3), np.nan))).all()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_weights_agree_with_copies_of_rows(gappy, encoding):
    X, y, new = gappy
    k = np.random.default_rng(3).integers(0, 4, len(y))
    how = {"hidden": (), "l2": 1e-2, "encoding": encoding, "missing": "indicator", **EXACT}
    weighted = CRCENClassifier(**how).fit(X, y, k.astype(float))
    copied = CRCENClassifier(**how).fit(np.repeat(X, k, axis=0), np.repeat(y, k))
    np.testing.assert_allclose(weighted.predict_proba(new), copied.predict_proba(new), atol=1e-7)


def rows_whose_gaps_speak(n, seed):
    """P(y = 1) is σ(x − 3) where x is there and σ(½) where it is missing; another column lacks cells for no reason."""
    rng = np.random.default_rng(seed)
    X, is_missing = rng.normal(size=(n, 2)), rng.random((n, 2)) < 0.25
    p = 1 / (1 + np.exp(-np.where(is_missing[:, 0], 0.5, X[:, 0] - 3.0)))
    X[is_missing] = np.nan
    return X, (rng.random(n) < p).astype(int), p


@pytest.mark.parametrize("how", [{"hidden": ()}, {"hidden": (16,), "n_members": 2}], ids=["logistic", "network"])
def test_where_gaps_tell_the_class_the_posterior_is_found(how):
    X, y, _ = rows_whose_gaps_speak(4000, 0)
    new, labels, p = rows_whose_gaps_speak(8000, 1)
    best = log_loss(labels, p)
    given = CRCENClassifier(Budget(5), missing="indicator", random_state=0, **how).fit(X, y)
    filled = make_pipeline(SimpleImputer(), CRCENClassifier(Budget(5), random_state=0, **how)).fit(X, y)
    assert log_loss(labels, given.predict_proba(new)) - best < 0.01
    if how["hidden"]:  # which could learn from the mean that so many cells share
        assert log_loss(labels, filled.predict_proba(new)) > log_loss(labels, given.predict_proba(new))
    else:
        assert log_loss(labels, filled.predict_proba(new)) - best > 0.1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_column_may_lack_all_cells_of_a_fold(gappy, encoding):
    X, y, new = gappy
    X = np.where((np.arange(300) < 200)[:, None] & (np.arange(3) == 0), np.nan, X)
    folds = [(np.arange(200), np.arange(200, 300)), (np.arange(200, 300), np.arange(200))]
    search = CRCENClassifierCV(cv=folds, l2=1e-2, encoding=encoding, missing="indicator", **QUICK).fit(X, y)
    assert np.isfinite(search.oof_decision_function_).all()
    assert np.isfinite(search.predict_proba(new)).all()


@pytest.mark.parametrize("kind", [CRCENClassifier, CSMLPClassifier, MovedThresholdClassifier, CRCENClassifierCV])
def test_nan_is_refused_by_default_with_the_way_out(gappy, kind):
    X, y, _ = gappy
    with pytest.raises(InvalidInput, match=WAY_OUT):
        kind(**grouped(**QUICK)).fit(X, y)
    model = kind(**grouped(missing="indicator", **QUICK)).fit(X, y)
    assert model.__sklearn_tags__().input_tags.allow_nan
    assert not kind().__sklearn_tags__().input_tags.allow_nan
    endless = np.where(np.isnan(X), np.inf, X)
    endless[0, 2] = np.nan
    for refused in (lambda: model.fit(endless, y), lambda: model.predict_proba(endless)):
        with pytest.raises(InvalidInput, match=r"contains infinity in column 0, 1; .*so replace or drop"):
            refused()
    assert np.isfinite(model.predict_proba(X)).all()  # what was fitted is still there


def test_new_rows_may_lack_what_the_fitted_networks_take_whatever_the_parameter_says_now(gappy):
    X, y, new = gappy
    told = CRCENClassifier(missing="indicator", **QUICK).fit(X, y)
    expected = told.predict_proba(new)
    np.testing.assert_array_equal(told.set_params(encoding=Inputs(missing="error")).predict_proba(new), expected)
    plain = CRCENClassifier(**QUICK).fit(np.nan_to_num(X), y).set_params(encoding=Inputs(missing="indicator"))
    for refused in (lambda: plain.predict_proba(X), lambda: stationarity(plain, X, y), lambda: plain.partial_fit(X, y)):
        with pytest.raises(InvalidInput, match=WAY_OUT):
            refused()


def test_frames_with_gaps_of_any_kind(gappy):
    X, y, new = gappy
    frame, asked = (pd.DataFrame(rows, columns=list("abc")) for rows in (X, new))
    model = CRCENClassifier(missing="indicator", **QUICK)
    expected = model.fit(X, y).predict_proba(new)
    for fitted_on, asked_for in ((frame, asked), (frame.convert_dtypes(), asked.convert_dtypes())):
        np.testing.assert_array_equal(model.fit(fitted_on, y).predict_proba(asked_for), expected)


def test_learning_in_parts(gappy):
    X, y, new = gappy
    model = CRCENClassifier(Budget(3), missing="indicator", encoding="standard", **QUICK)
    model.partial_fit(X[:150], y[:150], classes=[0, 1])
    encoding, before = model.ensemble_.members[0].encoding, model.predict_proba(new)
    np.testing.assert_allclose(encoding(new), by_hand(new, X[:150], np.ones(150)), atol=1e-12)
    model.partial_fit(new, y[:100])  # whose last column lacks cells, too
    assert np.isfinite(model.predict_proba(new)).all()
    assert (model.predict_proba(new) != before).all()
    assert model.ensemble_.members[0].encoding.size == 5


def test_what_reads_a_model_takes_its_gaps(gappy, tmp_path):
    X, y, new = gappy
    model = CRCENClassifierCV(Budget(4), missing="indicator", l2=1e-2, encoding="steps", **QUICK).fit(X, y)
    found = crcen.load(crcen.save(model, tmp_path / "m"))
    np.testing.assert_array_equal(found.predict_proba(new), model.predict_proba(new))
    told = crcen.model_info(tmp_path / "m")
    assert [one["has_missing"] for one in told.columns] == [True, True, False]
    assert str(told).count("number, with missing cells") == 2
    assert np.isfinite(stationarity(model, X, y).largest_weight)
    crcen.KeyEquationMonitor(model).update(new, y[:100])
    crcen.write_report(model, X, y, tmp_path / "report.html")
    plain, path = CRCENClassifier(missing="indicator", **QUICK), [CostRatio(2), CostRatio(5)]
    assert len(crcen.ExpenseCurve.from_estimator(plain, X, y, path, cv=2, n_resamples=10).weightings) == 2
