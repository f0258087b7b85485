"""Data frames in: names kept, compared and used in messages; values as in the array."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from crcen import CRCENClassifier, InvalidInput

NAMES = ["age", "income", "visits"]


def as_pandas(X, names):
    return pd.DataFrame(X, columns=names)


def as_polars(X, names):
    return pl.DataFrame(X, schema=names)


@pytest.fixture(params=[as_pandas, as_polars], ids=["pandas", "polars"])
def as_frame(request):
    return request.param


@pytest.fixture
def quick():
    return CRCENClassifier(hidden=(3,), max_epochs=10, random_state=0)


def test_a_frame_gives_the_model_of_its_array(as_frame, quick, rare_rows):
    X, y = rare_rows()
    from_array = quick.fit(X, y).predict_proba(X)
    assert not hasattr(quick, "feature_names_in_")
    frame = as_frame(X, NAMES)
    from_frame = quick.fit(frame, y).predict_proba(frame)
    np.testing.assert_array_equal(from_frame, from_array)
    labels = (pd.Series if as_frame is as_pandas else pl.Series)(y)
    np.testing.assert_array_equal(quick.fit(frame, labels).predict_proba(frame), from_array)
    for other in (as_pandas, as_polars):  # frames of another library are compared by name
        np.testing.assert_array_equal(quick.predict_proba(other(X, NAMES)), from_array)
    with pytest.warns(UserWarning, match="valid feature names"):
        quick.predict(X)
    assert quick.feature_names_in_.tolist() == NAMES
    assert quick.n_features_in_ == 3


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (NAMES[::-1], "same order"),
        (NAMES[:2], r"now missing:\n- visits"),
        (["age", "income", "height"], r"unseen at fit time:\n- height"),
    ],
)
def test_other_columns_are_refused(as_frame, quick, rare_rows, names, words):
    X, y = rare_rows()
    quick.fit(as_frame(X, NAMES), y)
    with pytest.raises(InvalidInput, match=words):
        quick.predict(as_frame(X[:, : len(names)], names))


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_columns_that_are_not_finite_are_named(as_frame, quick, rare_rows, value, word):
    X, y = rare_rows()
    fitted = quick.fit(as_frame(X, NAMES), y)
    X[3, 1] = X[4, 2] = value
    for refused in (lambda: quick.fit(as_frame(X, NAMES), y), lambda: fitted.predict(as_frame(X, NAMES))):
        with pytest.raises(InvalidInput, match=f"{word} in column income, visits"):
            refused()


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"a": [1.0, None] * 10, "b": range(20)}),
        pd.DataFrame({"a": pd.array([1, pd.NA] * 10, dtype="Int64"), "b": range(20)}),
        pd.DataFrame({"a": np.array([1, None] * 10, dtype=object), "b": range(20)}),
    ],
    ids=["polars null", "pandas NA", "None"],
)
def test_a_missing_value_of_any_kind_is_one(quick, frame):
    with pytest.raises(InvalidInput, match="NaN in column a;"):
        quick.fit(frame, [0, 1] * 10)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": range(20), "city": ["Oslo", "Rome"] * 10}),
        pd.DataFrame({"a": range(20), "city": pd.Categorical(["Oslo", "Rome"] * 10)}),
        pd.DataFrame({"a": range(20), "city": pd.date_range("2024-01-01", periods=20)}),
        pd.DataFrame({"a": range(20), "city": [{}] * 20}),
        pl.DataFrame({"a": range(20), "city": ["Oslo", "Rome"] * 10}),
    ],
    ids=["text", "category", "date", "dict", "polars text"],
)
def test_a_column_that_holds_no_numbers_is_named_with_what_to_do(quick, frame):
    with pytest.raises(InvalidInput, match=r"column city does not; encode it first.*OneHotEncoder"):
        quick.fit(frame, [0, 1] * 10)


def test_truth_values_are_numbers(quick, rare_rows):
    X, y = rare_rows()
    frame = pd.DataFrame({"a": X[:, 0], "flag": X[:, 1] > X[:, 1].mean()})
    as_numbers = quick.fit(frame.astype(float), y).predict_proba(frame.astype(float))
    np.testing.assert_array_equal(quick.fit(frame, y).predict_proba(frame), as_numbers)
