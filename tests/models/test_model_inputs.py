"""What estimators take: frames, sparse rows, parameters in groups, and names of other libraries."""

import inspect
from dataclasses import fields

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from crcen import (
    Budget,
    Calibration,
    CRCENClassifier,
    CRCENClassifierCV,
    CSMLPClassifier,
    Inputs,
    InvalidInput,
    InvalidParameter,
    Schedule,
    Search,
)
from crcen.models import validation
from crcen.models.options import HINTS

KINDS = (CRCENClassifier, CRCENClassifierCV, CSMLPClassifier)
NAMES = ["age", "income", "visits"]


def quick(weighting="balanced", **how):
    return CRCENClassifier(weighting, **{"hidden": (4,), "max_epochs": 3, "random_state": 0} | how)


def as_pandas(X, names):
    return pd.DataFrame(X, columns=names)


def as_polars(X, names):
    return pl.DataFrame(X, schema=names)


@pytest.fixture(params=[as_pandas, as_polars], ids=["pandas", "polars"])
def as_frame(request):
    return request.param


def test_a_frame_gives_the_model_of_its_array(as_frame, rare_rows):
    X, y = rare_rows()
    model, frame = quick(), as_frame(X, NAMES)
    from_array = model.fit(X, y).predict_proba(X)
    assert not hasattr(model, "feature_names_in_")
    for labels in (y, (pd.Series if as_frame is as_pandas else pl.Series)(y)):
        np.testing.assert_array_equal(model.fit(frame, labels).predict_proba(frame), from_array)
    for other in (as_pandas, as_polars):  # frames of another library are compared by name
        np.testing.assert_array_equal(model.predict_proba(other(X, NAMES)), from_array)
    with pytest.warns(UserWarning, match="valid feature names"):
        model.predict(X)
    assert (model.feature_names_in_.tolist(), model.n_features_in_) == (NAMES, 3)


def test_other_columns_and_cells_that_are_not_finite_are_refused_by_name(as_frame, rare_rows):
    X, y = rare_rows()
    model = quick().fit(as_frame(X, NAMES), y)
    for names, words in (
        (NAMES[::-1], "same order"),
        (NAMES[:2], r"now missing:\n- visits"),
        (["age", "income", "height"], r"unseen at fit time:\n- height"),
    ):
        with pytest.raises(InvalidInput, match=words):
            model.predict(as_frame(X[:, : len(names)], names))
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")):
        X[3, 1] = X[4, 2] = value
        for refused in (lambda: model.predict(as_frame(X, NAMES)), lambda: quick().fit(as_frame(X, NAMES), y)):
            with pytest.raises(InvalidInput, match=f"{word} in column income, visits"):
                refused()


CITIES = ["Oslo", "Rome"] * 10
NO_NUMBERS = r"column city does not; encode it first.*OneHotEncoder"


@pytest.mark.parametrize(
    ("kind", "cells", "words"),
    [
        (pl.DataFrame, {"a": [1.0, None] * 10}, "NaN in column a;"),
        (pd.DataFrame, {"a": pd.array([1, pd.NA] * 10, dtype="Int64")}, "NaN in column a;"),
        (pd.DataFrame, {"a": np.array([1, None] * 10, dtype=object)}, "NaN in column a;"),
        (pd.DataFrame, {"city": CITIES}, NO_NUMBERS),
        (pd.DataFrame, {"city": pd.Categorical(CITIES)}, NO_NUMBERS),
        (pd.DataFrame, {"city": pd.date_range("2024-01-01", periods=20)}, NO_NUMBERS),
        (pd.DataFrame, {"city": [{}] * 20}, NO_NUMBERS),
        (pl.DataFrame, {"city": CITIES}, NO_NUMBERS),
    ],
    ids=["polars null", "pandas NA", "None", "text", "category", "date", "dict", "polars text"],
)
def test_missing_values_and_columns_without_numbers_of_any_kind_are_refused(kind, cells, words):
    with pytest.raises(InvalidInput, match=words):
        quick().fit(kind({"b": range(20), **cells}), [0, 1] * 10)


def test_truth_values_are_numbers(rare_rows):
    X, y = rare_rows()
    frame = pd.DataFrame({"a": X[:, 0], "flag": X[:, 1] > X[:, 1].mean()})
    as_numbers = quick().fit(frame.astype(float), y).predict_proba(frame.astype(float))
    np.testing.assert_array_equal(quick().fit(frame, y).predict_proba(frame), as_numbers)


def categories(n=300):
    rng = np.random.default_rng(0)
    X = rng.choice(["a", "b", "c", "d"], size=(n, 3))
    return X, ((X[:, 0] == "a") & (rng.random(n) < 0.6)).astype(int)


def test_a_default_one_hot_encoder():
    X, y = categories()
    pipeline = make_pipeline(OneHotEncoder(), quick(Budget(3))).fit(X, y)
    coded = OneHotEncoder().fit_transform(X)
    assert sparse.issparse(coded)
    plain = quick(Budget(3)).fit(coded.toarray(), y)
    np.testing.assert_array_equal(pipeline.predict_proba(X), plain.predict_proba(coded.toarray()))
    for form in (coded.tocsc(), coded.tocoo(), sparse.csr_array(coded)):
        np.testing.assert_array_equal(plain.predict(form), pipeline.predict(X))


def test_sparse_rows_with_holes_or_too_large_are_refused(monkeypatch):
    X, y = categories()
    coded = OneHotEncoder().fit_transform(X)
    hole = coded.copy()
    hole.data[5] = np.nan
    with pytest.raises(InvalidInput, match="Input X contains NaN in column"):
        quick().fit(hole, y)
    monkeypatch.setattr(validation, "DENSE_BYTES", 8 * coded.shape[0] * coded.shape[1] - 1)
    with pytest.raises(InvalidInput, match=r"300 rows × 12 columns: dense it takes .* GiB, more than"):
        quick().fit(coded, y)
    model = quick().fit(coded.toarray(), y)
    with pytest.raises(InvalidInput, match="fewer rows at a time"):
        model.predict(coded)
    assert len(model.predict(coded[:100])) == 100


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HINTS)
def test_names_of_other_libraries_are_answered_by_ours(kind, name):
    for given in (kind, kind().set_params):
        with pytest.raises(TypeError, match=f"^{kind.__name__} has no parameter '{name}': use {HINTS[name][:6]}.*\\.$"):
            given(**{name: 1})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("group", "value"),
    [("schedule", Schedule()), ("encoding", Inputs()), ("calibration", Calibration()), ("search", Search())],
)
def test_parameters_of_a_group_are_answered_by_its_place(kind, group, value):
    if group == "search" and kind is not CRCENClassifierCV:
        with pytest.raises(TypeError, match="unexpected keyword argument 'halving'"):
            kind(**{"halving": False})
        return
    for name in (field.name for field in fields(value) if field.name != "encoding"):
        said = f"^{kind.__name__} has no parameter '{name}': use {group}={type(value).__name__}\\({name}=…\\)\\.$"
        for given in (kind, kind().set_params):
            with pytest.raises(TypeError, match=said):
                given(l2=1.0, **{name: getattr(value, name)})


def test_a_group_is_shown_by_what_was_set_and_leaves_the_rest_as_it_was():
    assert repr(Schedule()) == "Schedule()"
    assert repr(CRCENClassifier(schedule=Schedule(tol=0))) == "CRCENClassifier(schedule=Schedule(tol=0.0))"
    assert clone(CRCENClassifier(schedule=Schedule(tol=0))).schedule == Schedule(tol=0)
    search, single = CRCENClassifierCV(encoding=Inputs(bins=5)), CRCENClassifier(encoding=Inputs(bins=5))
    assert (search.recipe().column_scales, single.recipe().column_scales) == ("auto", "auto")
    assert CSMLPClassifier(encoding=Inputs(bins=5)).recipe().column_scales is False
    assert (search.recipe().bins, search.recipe().missing) == (5, "error")


@pytest.mark.parametrize("kind", KINDS)
def test_names_said_are_parameters_and_signatures_stay(kind):
    parameters = inspect.signature(kind).parameters
    assert set(kind().get_params(deep=False)) == set(parameters)
    assert len(parameters) <= 14
    assert not set(HINTS) & set(parameters)
    for said in ("l2", "weighting", "hidden", "schedule", "max_epochs"):
        assert said in parameters
    with pytest.raises(TypeError, match="unexpected keyword argument 'hiden'"):
        kind(hiden=(3,))
    assert clone(kind(Budget(3), l2=0.5)).get_params()["l2"] == 0.5


def test_grid_search_over_parameters():
    X, y = categories()
    coded = OneHotEncoder().fit_transform(X)
    schedules = [Schedule(batch_size=size) for size in (32, 64)]
    plain = quick(Budget(3))
    search = GridSearchCV(plain, {"l2": [1e-3, 1e-1], "schedule": schedules}, cv=2)
    assert np.isfinite(search.fit(coded, y).cv_results_["mean_test_score"]).all()
    nested = GridSearchCV(plain, {"l2": [1e-3, 1e-1], "schedule__batch_size": [32, 64]}, cv=2).fit(coded, y)
    np.testing.assert_array_equal(nested.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"])


def test_nested_parameters_replace_one_field_of_a_group():
    model = CRCENClassifier(schedule=Schedule(tol=0), encoding="tree", calibration="paper")
    before = model.schedule
    model.set_params(schedule__learning_rate=0.5, encoding__missing="indicator", calibration__probability="isotonic")
    assert (model.schedule, before) == (Schedule(tol=0, learning_rate=0.5), Schedule(tol=0))
    assert model.encoding == Inputs(encoding="tree", missing="indicator")
    assert model.calibration == Calibration(balance=True, probability="isotonic", training_weighting="price")
    assert model.get_params()["schedule__learning_rate"] == 0.5
    with pytest.raises(ValueError, match="Schedule has no parameter 'rate': use one of solver"):
        model.set_params(schedule__rate=1)
    with pytest.raises(InvalidParameter, match="learning_rate must be a number above 0"):
        model.set_params(schedule__learning_rate=-1)
