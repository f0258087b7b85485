"""Mixed tables: what each column is taken for, what is left out and why, and how new rows are met."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold

from crcen import Budget, CRCENClassifier, CRCENClassifierCV, InvalidInput, InvalidParameter, TableClassifier, TimeSplit

SMALL = CRCENClassifier(Budget(3), hidden=(), random_state=0)
N = 60


def labels(n=N):
    return np.arange(n) % 3 == 0


def fitted(n=N, **columns):
    return TableClassifier(estimator=SMALL, random_state=0).fit(pd.DataFrame(columns), labels(n))


def kinds(model):
    return {column.name: column.kind for column in model.columns_}


def reasons(model):
    return {one.name: one.reason for one in model.dropped_}


RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=N)
WORDS = np.array(["red", "green", "blue", "stolen", "card", "abroad", "night", "refund", "gift", "large"])


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (NUMBERS, "number"),
        (NUMBERS.astype(str), "number"),
        (RNG.integers(0, 5, N), "number"),
        (pd.array([1, None, 3] * 20, dtype="Int64"), "number"),
        (pd.to_timedelta(NUMBERS, unit="h"), "number"),
        ([True, False, None] * 20, "boolean"),
        (["Yes", "no", ""] * 20, "boolean"),
        (["true", "FALSE", "true"] * 20, "boolean"),
        (["NL", "NO", "DE"] * 20, "category"),
        (pd.Categorical([1, 2, 3] * 20), "category"),
        ([1, "x", None] * 20, "category"),
        (pd.date_range("2024-01-01", periods=N, freq="7h"), "date"),
        (pd.date_range("2024-01-01", periods=N, freq="7h", tz="Europe/Oslo"), "date"),
        ([datetime.date(2024, 1, 1 + i % 30) for i in range(N)], "date"),
        ([f"{1 + i % 28:02d}/{1 + i % 12:02d}/2024" for i in range(N)], "date"),
        (["2024-03-01T12:00:00"] * 30 + ["2023-03-01T12:00:00"] * 30, "date"),
        (["2024-01-31T10:00:00Z", "2023-12-01T11:30:00Z"] * 30, "date"),
        (["31 January 2024", "01 December 2023"] * 30, "date"),
        (["Mon, 01 Jan 2024", "Tue, 02 Jan 2024"] * 30, "date"),
        (["2024-01-31 10:00:00+0100", "2023-12-01 11:00:00+0100"] * 30, "date"),
        (["01/31/2024 10:15 PM", "12/01/2023 09:15 AM"] * 30, "date"),
        (["10:15 p.m. 3 May", "11:15 a.m. 4 June"] * 30, "date"),
        (["word3", "word11"] * 30, "category"),
        (["grade 2", "grade 7"] * 30, "category"),
        (["x1", "2024"] * 30, "category"),
        (["yes", "no", "maybe"] * 20, "category"),
        (["maybe", "yes", "no"] * 20, "category"),
    ],
)
def test_kinds_are_found_out(cells, kind):
    assert kinds(fitted(x=cells, y=NUMBERS))["x"] == kind


def test_strings_of_more_values_than_categories_are_text():
    texts = [" ".join(RNG.choice(WORDS, 5)) + f" {i}" for i in range(600)]
    model, frame = fitted(600, note=texts), pd.DataFrame({"note": texts})
    assert kinds(model) == {"note": "text"}
    assert model.encode(frame[:3]).X.shape == (3, 30)
    np.testing.assert_array_equal(fitted(600, note=texts).predict_proba(frame), model.predict_proba(frame))
    few = fitted(600, note=[" ".join(RNG.choice(["red", "orange", "blue", "night"], 9)) for _ in range(600)])
    assert len(few.encoded_names_) == 4  # of four words, other components would be rounding errors


def test_days_and_parts_of_a_date_are_right():
    days = pd.date_range("2024-01-30", periods=N, freq="31h")
    for cells in (days, days.strftime("%d.%m.%Y %H:%M")):
        model = fitted(when=cells)
        found = dict(zip(model.encoded_names_, model.encode(pd.DataFrame({"when": cells})).X.T, strict=True))
        expected = [(day - pd.Timestamp(0)).total_seconds() / 86_400 for day in days]
        np.testing.assert_allclose(found["when: days"], expected)
        for part, name in (("month", "month"), ("day", "day"), ("weekday", "day_of_week"), ("hour", "hour")):
            np.testing.assert_array_equal(found[f"when: {part}"], getattr(days, name))


@pytest.mark.parametrize(
    ("name", "cells", "reason"),
    [
        ("x", [None] * N, "every value is missing"),
        ("x", [""] * N, "every value is missing"),
        ("x", ["a"] * N, "constant: every value is a"),
        ("x", [3.0] * N, "constant: every value is 3"),
        ("x", [np.inf] * 30 + [-np.inf] * 30, "missing or infinite"),
        ("row", np.arange(N) + 17, "numbers the rows"),
        ("x", RNG.permutation(np.arange(N)).astype(str), "numbers the rows"),
        ("x", [f"F{i:04d}" for i in range(N)], "an identifier"),
        ("customerId", RNG.choice(10**6, N, replace=False), "an identifier by its name"),
        ("order_key", [f"{i % 40}x" for i in range(N)], "an identifier"),
        ("x", [[1, 2]] * N, "holds lists"),
        ("x", [datetime.date(2024, 1, 1)] * N, "constant"),
    ],
)
def test_columns_that_say_nothing_are_left_out_with_the_reason(name, cells, reason):
    model = fitted(**{name: cells, "other": NUMBERS})
    assert kinds(model) == {"other": "number"}
    assert reason in reasons(model)[name]


def test_keep_drop_and_categorical():
    frame = pd.DataFrame({"row": np.arange(N), "x": NUMBERS, "zip": [1000, 2000, 3000] * 20})
    model = TableClassifier(estimator=SMALL, keep=["row"], drop={"x": "a test"}, categorical=["zip"]).fit(
        frame, labels()
    )
    assert kinds(model) == {"row": "number", "zip": "category"}
    assert reasons(model) == {"x": "a test"}
    for wrong in ({"drop": ["no"]}, {"keep": "row"}, {"categorical": 3}):
        with pytest.raises(InvalidParameter, match=next(iter(wrong))):
            TableClassifier(estimator=SMALL, **wrong).fit(frame, labels())
    with pytest.raises(InvalidInput, match="no column is left"):
        TableClassifier(estimator=SMALL, drop=["x", "zip"]).fit(frame, labels())


def test_missing_numbers_become_the_median_and_say_so():
    cells = np.where(np.arange(N) % 4 == 0, np.nan, np.arange(N) ** 2.0)
    model = fitted(x=cells, full=NUMBERS)
    X = model.encode(pd.DataFrame({"x": [np.nan, 5.0], "full": [np.nan, 1.0]}))
    low, middle, high = np.nanquantile(cells, [0.25, 0.5, 0.75])
    assert X.X[0, 0] == pytest.approx(middle, abs=(high - low) / 20)  # rounded, so that it is no row's value
    assert X.X[0, 0] % 20 == 0
    np.testing.assert_allclose(X.X[:, 1:], [[1, np.round(np.median(NUMBERS), 2)], [0, 1]], atol=0.02)
    assert X.X[1, 0] == 5
    assert X.missing == {"full": 1}


def test_categories_known_rare_unseen_and_missing():
    cells = ["a"] * 20 + ["b"] * 20 + ["r1"] * 2 + ["r2"] * 2 + [None] * 16
    model = fitted(c=cells)
    assert model.encoded_names_ == ["c = a", "c = b", "c is another", "c is missing"]
    found = model.encode(pd.DataFrame({"c": [" a", "b", "r1", "never", None]}))
    np.testing.assert_array_equal(found.X, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert found.unseen == {"c": 2}  # rare values have no names
    shops, y = pd.DataFrame({"shop": [f"shop {i % 200}" for i in range(2000)]}), np.arange(2000) % 200 == 77
    model = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0)).fit(shops, y)
    assert len(model.encoded_names_) == 200
    np.testing.assert_array_equal(model.predict(shops), y)


def test_numbers_and_dates_are_clipped_beyond_the_training_range():
    rng = np.random.default_rng(0)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 100, 200), unit="D")
    frame = pd.DataFrame({"age": rng.integers(20, 81, 200), "when": when})
    y = rng.random(200) < 1 / (1 + np.exp((50 - frame["age"]) / 5))
    model = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0)).fit(frame, y)
    new = frame.iloc[:4].assign(age=[1e9, -1e9, 90, 40])
    new.loc[3, "when"] = pd.Timestamp("2200-01-01")
    found = model.encode(new)
    assert found.clipped == {"age": 2, "when": 1}
    assert found.X[:, 0].tolist() == [pytest.approx(110, abs=5), pytest.approx(-10, abs=5), 90, 40]
    p = model.predict_proba(new)
    assert (p > 1e-12).all()
    rows = [{"age": age, "when": when.strftime("%Y-%m-%d")} for age, when in new.to_numpy().tolist()]
    np.testing.assert_array_equal(model.encode(rows).X, found.X)
    assert model.encode(rows).clipped == found.clipped


def test_new_rows_are_met_with_grace():
    frame = pd.DataFrame({"x": NUMBERS, "c": ["a", "b", "c"] * 20})
    model = TableClassifier(estimator=SMALL).fit(frame, labels())
    new = pd.DataFrame({"more": 1, "c": ["a", "zz", "b"], "x": ["1.5", "high", "-3"]})
    found = model.encode(new)
    assert (found.unseen, found.unreadable, found.extra) == ({"c": 1}, {"x": 1}, ("more",))
    assert np.isfinite(model.predict_proba(new)).all()
    with pytest.raises(InvalidInput, match="lacks 2 of the 2 columns that the model needs: x, c"):
        model.predict(new[["more"]])
    with pytest.raises(InvalidInput, match=r"lacks 1 of the 2 columns.*: x; x may be called X there"):
        model.predict(new.rename(columns={"x": "X"}))
    with pytest.raises(InvalidInput, match="0 sample"):
        model.predict(new.iloc[:0])


def test_a_text_table_and_its_typed_twin_give_the_same_answers():
    typed = pd.DataFrame(
        {
            "x": np.where(np.arange(N) % 5 == 0, np.nan, NUMBERS),
            "b": [True, False, True] * 20,
            "c": ["a", "b", None] * 20,
            "when": pd.date_range("2024-01-01", periods=N, freq="7h"),
        }
    )
    text = typed.astype(object).where(typed.notna(), None).map(lambda cell: None if cell is None else str(cell))
    for train in (typed, text):
        model = TableClassifier(estimator=SMALL, random_state=0).fit(train, labels())
        assert kinds(model) == {"x": "number", "b": "boolean", "c": "category", "when": "date"}
        np.testing.assert_allclose(model.predict_proba(typed), model.predict_proba(text), rtol=1e-12)


def test_it_is_the_estimator_on_the_encoded_columns():
    frame = pd.DataFrame({"x": NUMBERS, "c": ["a", "b", "c"] * 20})
    model = TableClassifier(estimator=SMALL).fit(frame, labels())
    encoded = np.column_stack([NUMBERS, np.tile(np.eye(3), (20, 1))])
    alone = clone(SMALL).fit(encoded, labels())
    for method in ("predict", "predict_proba", "weighted_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(model, method)(frame), getattr(alone, method)(encoded))
    assert model.pos_label_ == alone.pos_label_
    assert model.weighting_ == alone.weighting_


def test_arrays_and_polars_frames():
    X = np.column_stack([NUMBERS, NUMBERS**2])
    model = TableClassifier(estimator=SMALL).fit(X, labels())
    assert kinds(model) == {"0": "number", "1": "number"}
    with pytest.raises(InvalidInput, match="X has 1 features"):
        model.predict(X[:, :1])
    with pytest.raises(InvalidInput, match="rows and columns"):
        model.predict(NUMBERS)
    with pytest.raises(InvalidInput, match="duplicate column name in the data frame: a"):
        TableClassifier(estimator=SMALL).fit(pd.DataFrame(X, columns=["a", "a"]), labels())
    frame = pl.DataFrame({"x": NUMBERS, "c": ["a", "b", "c"] * 20})
    other = TableClassifier(estimator=SMALL).fit(frame, labels())
    np.testing.assert_array_equal(other.predict(frame), other.predict(frame.to_pandas()))


def test_groups_reach_the_search_and_a_failed_fit_leaves_nothing():
    frame, groups, model = pd.DataFrame({"x": NUMBERS}), np.arange(N) // 10, TableClassifier(estimator=SMALL)
    with pytest.raises(InvalidInput, match="one class"):
        model.fit(frame, np.zeros(N))
    assert not hasattr(model, "columns_")
    search = CRCENClassifierCV(Budget(3), hidden=(2,), l2=1e-2, max_epochs=2, cv=GroupKFold(3), random_state=0)
    model = TableClassifier(estimator=search).fit(frame, labels(), groups=groups)
    assert np.isfinite(model.estimator_.oof_decision_function_).all()
    with pytest.raises(InvalidParameter, match="leave groups out"):
        TableClassifier(estimator=SMALL).fit(frame, labels(), groups=groups)


def test_later_rows_are_later_and_every_stretch_has_events():
    rng = np.random.default_rng(3)
    times, y = rng.integers(0, 50, 400), rng.random(400) < 0.05
    folds = list(TimeSplit(4).split(None, y, times))
    assert len(folds) == TimeSplit(4).get_n_splits() == 4
    for train, test in folds:
        assert times[train].max() < times[test].min()
        assert y[train].any()
        assert y[test].any()
    tested = np.concatenate([test for _, test in folds])
    assert len(tested) == len(set(tested))
    assert set(tested) | set(folds[0][0]) == set(range(400))


@pytest.mark.parametrize(
    ("times", "y"), [([1] * 9, [0, 1] * 4 + [0]), (range(9), [0] * 8 + [1]), ([1, 2] * 4 + [2], [0, 1] * 4 + [0])]
)
def test_time_that_cannot_be_cut_is_refused(times, y):
    with pytest.raises(InvalidInput, match="time cannot be split into 5 periods"):
        list(TimeSplit(4).split(None, y, times))
    with pytest.raises(InvalidInput, match="needs y"):
        list(TimeSplit(4).split(None))
