"""Mixed tables: kinds of columns, columns left out, new rows as frames and dicts, prices, any classifier, K classes."""

import datetime

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import crcen
from crcen import (
    Budget,
    CostMatrix,
    CRCENClassifier,
    CRCENClassifierCV,
    InvalidInput,
    InvalidParameter,
    TableClassifier,
)

SMALL = CRCENClassifier(Budget(3), hidden=(), random_state=0)
NETWORKS = CRCENClassifier(hidden=(), random_state=0)
N = 60


def labels(n=N):
    return np.arange(n) % 3 == 0


def fitted(n=N, **columns):
    return TableClassifier(estimator=SMALL, random_state=0).fit(pd.DataFrame(columns), labels(n))


def kinds(model):
    return {column.name: column.kind for column in model.columns_}


RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=N)
WORDS = np.array(["red", "green", "blue", "stolen", "card", "abroad", "night", "refund", "gift", "large"])


def test_a_text_table_and_its_typed_twin_give_the_same_answers():
    columns = {"x": np.where(np.arange(N) % 5 == 0, np.nan, NUMBERS), "b": [True, False, True] * 20}
    columns |= {"c": ["a", "b", None] * 20, "when": pd.date_range("2024-01-01", periods=N, freq="7h")}
    typed = pd.DataFrame(columns)
    text = typed.astype(object).where(typed.notna(), None).map(lambda cell: None if cell is None else str(cell))
    for train in (typed, text):
        model = TableClassifier(estimator=SMALL, random_state=0).fit(train, labels())
        assert kinds(model) == {"x": "number", "b": "boolean", "c": "category", "when": "date"}
        np.testing.assert_allclose(model.predict_proba(typed), model.predict_proba(text), rtol=1e-12)


def test_strings_of_more_values_than_categories_are_text():
    texts = [" ".join(RNG.choice(WORDS, 5)) + f" {i}" for i in range(600)]
    model, frame = fitted(600, note=texts), pd.DataFrame({"note": texts})
    assert kinds(model) == {"note": "text"}
    alone = np.vstack([model.encode(frame[i : i + 1]).X for i in range(99, -1, -1)])
    np.testing.assert_array_equal(alone[::-1], model.encode(frame[:100]).X)  # the same bits in any batch
    assert alone.shape == (100, 30)
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


def test_keep_drop_and_categorical():
    frame = pd.DataFrame({"row": np.arange(N), "x": NUMBERS, "zip": [1000, 2000, 3000] * 20})
    how = {"keep": ["row"], "drop": {"x": "a test"}, "categorical": ["zip"]}
    model = TableClassifier(estimator=SMALL, **how).fit(frame, labels())
    assert kinds(model) == {"row": "number", "zip": "category"}
    assert [(one.name, one.reason) for one in model.dropped_] == [("x", "a test")]
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
    np.testing.assert_allclose(X.X[:, 1:], [[1, np.round(np.median(NUMBERS), 2)], [0, 1]], atol=0.02)
    assert (X.X[0, 0] % 20, X.X[1, 0], X.missing) == (0, 5, {"full": 1})


def test_categories_known_rare_unseen_and_missing():
    cells = ["a"] * 20 + ["b"] * 20 + ["r1"] * 2 + ["r2"] * 2 + [None] * 16
    model = fitted(c=cells)
    assert model.encoded_names_ == ["c = a", "c = b", "c is another", "c is missing"]
    found = model.encode(pd.DataFrame({"c": [" a", "b", "r1", "never", None]}))
    np.testing.assert_array_equal(found.X, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert found.unseen == {"c": 2}  # rare values have no names
    shops, y = pd.DataFrame({"shop": [f"shop {i % 200}" for i in range(2000)]}), np.arange(2000) % 200 == 77
    model = TableClassifier(estimator=NETWORKS).fit(shops, y)
    assert len(model.encoded_names_) == 200
    np.testing.assert_array_equal(model.predict(shops), y)


def test_numbers_and_dates_are_clipped_beyond_the_training_range():
    rng = np.random.default_rng(0)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 100, 200), unit="D")
    frame = pd.DataFrame({"age": rng.integers(20, 81, 200), "when": when})
    y = rng.random(200) < 1 / (1 + np.exp((50 - frame["age"]) / 5))
    model = TableClassifier(estimator=NETWORKS).fit(frame, y)
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
    with pytest.warns(UserWarning, match=r"cells that cannot be read are taken as missing: x \(1 row\)\."):
        assert np.isfinite(model.predict_proba(new)).all()
    for wrong, said in (
        (new[["more"]], "lacks 2 of the 2 columns that the model needs: x, c"),
        (new.rename(columns={"x": "X"}), r"lacks 1 of the 2 columns.*: x; x may be called X there"),
        (new.iloc[:0], "0 sample"),
    ):
        with pytest.raises(InvalidInput, match=said):
            model.predict(wrong)
    two = TableClassifier(estimator=SMALL).fit(frame.assign(x2=frame["x"] ** 2), labels())
    with pytest.raises(InvalidInput, match=r"needs: x2\.$"):  # x is another column of the model
        two.predict(frame)


def test_it_is_the_estimator_on_the_encoded_columns():
    frame = pd.DataFrame({"x": NUMBERS, "c": ["a", "b", "c"] * 20})
    model = TableClassifier(estimator=SMALL).fit(frame, labels())
    encoded = np.column_stack([NUMBERS, np.tile(np.eye(3), (20, 1))])
    alone = clone(SMALL).fit(encoded, labels())
    for method in ("predict", "predict_proba", "weighted_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(model, method)(frame), getattr(alone, method)(encoded))
    assert (model.pos_label_, model.weighting_) == (alone.pos_label_, alone.weighting_)


def test_arrays_have_numbers_as_names():
    X = np.column_stack([NUMBERS, NUMBERS**2])
    model = TableClassifier(estimator=SMALL).fit(X, labels())
    assert kinds(model) == {"0": "number", "1": "number"}
    for wrong, said in ((X[:, :1], "X has 1 features"), (NUMBERS, "rows and columns")):
        with pytest.raises(InvalidInput, match=said):
            model.predict(wrong)


def test_groups_reach_the_search_and_a_failed_fit_leaves_nothing():
    frame, groups, model = pd.DataFrame({"x": NUMBERS}), np.arange(N) // 10, TableClassifier(estimator=SMALL)
    with pytest.raises(InvalidInput, match="one class"):
        model.fit(frame, np.zeros(N))
    assert not hasattr(model, "columns_")
    search = CRCENClassifierCV(Budget(3), hidden=(2,), l2=1e-2, max_epochs=2, cv=GroupKFold(3), random_state=0)
    model = TableClassifier(estimator=search).fit(frame, labels(), groups=groups)
    assert np.isfinite(model.estimator_.oof_decision_function_).all()


# -- rows given as dicts, against the same rows in a data frame --------------------------------------------------------


def mixed_rows(has_gaps=False, n=120):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "amount": rng.normal(size=n).round(3),
            "count": rng.integers(0, 9, n) * 1000,
            "price": [f"1.{rng.integers(100, 999)},50 €" for _ in range(n)],
            "country": rng.choice(["NL", "NO", " DE "], n),
            "code": [str(one) for one in rng.integers(1, 4, n)],
            "rare": ["odd" if i == 7 else "even" if i % 2 else "plain" for i in range(n)],
            "paid": rng.choice(["yes", "no"], n),
            "day": pd.date_range("2021-03-01", periods=n, freq="7h").strftime("%Y-%m-%d %H:%M"),
            "german_day": pd.date_range("2021-03-13", periods=n, freq="D").strftime("%d.%m.%Y"),
            "remark": [" ".join(rng.choice(["late", "paid", "crédit", "card", "Abroad"], 5)) for _ in range(n)],
        }
    )
    if has_gaps:
        frame = frame.astype(object).mask(rng.random(frame.shape) < 0.1, None)
        frame["amount"] = frame["amount"].astype(float)
    return frame


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "gaps"])
def model(request):
    return TableClassifier(estimator=NETWORKS, categorical=["code"]).fit(mixed_rows(request.param), labels(120))


CELLS = {
    "amount": [1.5, 3, "2.25", " 1e2 ", None, float("nan"), float("inf"), "much", np.float64(2.5), True],
    "count": [1000, 2**70, "1000", np.int64(5), None, ""],
    "price": ["1.234,50 €", "12,5", None, 17.0],
    "country": ["NL", " NO ", "", "FR", None, 5],
    "code": ["1", 2, 3.0, "9", None],
    "rare": ["odd", "new", None],
    "paid": ["yes", "NO", True, 0, 1.0, "perhaps", None],
    "day": ["2021-03-02 05:00", "2021-03-02", "2021-03-02T05:00:30Z", "never", None, datetime.datetime(2021, 3, 2, 5)],
    "german_day": ["13.03.2021", "2021-03-13", None],
    "remark": ["late card late", " paid\tcard", "crédit\u2003card late", "card\x1clate", "?", "", " ", None, 7],
}


@pytest.mark.parametrize("name", CELLS)
def test_each_cell_is_as_in_a_frame(model, name):
    for cell in CELLS[name]:
        row = mixed_rows().iloc[1].to_dict() | {name: cell}
        own, expected = model.encode(row), model.encode(pd.DataFrame([row]))
        np.testing.assert_allclose(own.X, expected.X, rtol=1e-14, err_msg=repr(cell))
        for kind in ("unseen", "unreadable", "missing", "extra"):
            assert getattr(own, kind) == getattr(expected, kind), (cell, kind)


@pytest.mark.parametrize("count", [1, 5, 100])
def test_lists_of_dicts(model, count):
    frame = mixed_rows()[:count]
    rows = frame.to_dict("records")
    for answer in ("predict", "predict_proba", "weighted_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(model, answer)(rows), getattr(model, answer)(frame))
    np.testing.assert_array_equal(model.predict_proba(rows[0]), model.predict_proba(frame[:1]))


def test_columns_may_be_more_and_in_any_order_but_not_fewer(model):
    row = mixed_rows().iloc[0].to_dict()
    shuffled = dict(reversed(row.items())) | {"further": 1}
    encoded = model.encode(shuffled)
    assert encoded.extra == ("further",)
    np.testing.assert_array_equal(encoded.X, model.encode(row).X)
    del shuffled["paid"]
    with pytest.raises(InvalidInput, match="paid"):
        model.predict_proba(shuffled)
    # What one row of several lacks is a missing cell.
    assert np.isfinite(model.predict_proba([row, shuffled])).all()
    with pytest.raises(InvalidInput, match="a dict is one row"):
        model.predict(mixed_rows()[:3].to_dict("list"))


def test_no_data_frame_is_made_of_dicts(monkeypatch):
    frame = mixed_rows().drop(columns="price")
    model, row = TableClassifier(estimator=NETWORKS).fit(frame, labels(120)), frame.iloc[0].to_dict()
    expected = model.predict_proba(row)
    for name in ("DataFrame", "Series"):
        monkeypatch.setattr(pd, name, lambda *values, **how: pytest.fail("a data frame was made"))
    np.testing.assert_array_equal(model.predict_proba(row), expected)


# -- prices, other classifiers, and more than two classes --------------------------------------------------------------


def priced_rows(n=400, seed=0, names=("no", "yes")):
    rng = np.random.default_rng(seed)
    x, kind = rng.normal(size=n), rng.choice(["a", "b"], n)
    y = rng.random(n) < 1 / (1 + np.exp(2 - 1.5 * x - (kind == "b")))
    return pd.DataFrame({"x": x, "kind": kind}), np.where(y, names[1], names[0])


@pytest.mark.parametrize("names", [("no", "yes"), ("ok", "fraud")], ids=["rare last", "rare first"])
def test_a_logistic_regression_is_decided_at_the_price(names, tmp_path):
    X, y = priced_rows(names=names)
    model = TableClassifier(Budget(6), estimator=LogisticRegression()).fit(X, y)
    encoded = model.encode(X).X
    own = LogisticRegression().fit(encoded, y)
    np.testing.assert_allclose(model.predict_proba(X), own.predict_proba(encoded), rtol=1e-9)
    at = own.classes_.tolist().index(names[1])
    p, q = own.predict_proba(encoded)[:, at], model.weighted_proba(X)[:, at]
    np.testing.assert_array_equal(model.predict(X) == names[1], p > 1 / 7)
    assert (model.weighting_.cost_ratio, model.pos_label_) == (pytest.approx(6), names[1])
    np.testing.assert_allclose(q, 6 * p / (6 * p + 1 - p))
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X) == model.classes_[1])
    assert np.isfinite(model.key_equation_.lhs)
    loaded = crcen.load(crcen.save(model, tmp_path / "model.crcen"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_xgboost_learns_labels_that_are_no_numbers():
    X, y = priced_rows(names=("ok", "fraud"))
    booster = pytest.importorskip("xgboost").XGBClassifier(n_estimators=5)
    model = TableClassifier(Budget(6), estimator=booster).fit(X, y)
    p = clone(booster).fit(model.encode(X).X, y == "fraud").predict_proba(model.encode(X).X)[:, 1]
    np.testing.assert_allclose(model.predict_proba(X)[:, 0], p, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X) == "fraud", p > 1 / 7)


def test_prices_of_the_table_and_of_its_estimator():
    X, y = priced_rows(200)
    balanced = TableClassifier(estimator=LogisticRegression()).fit(X, y)
    assert (balanced.weighting_.alpha, balanced.get_params(deep=False)["weighting"]) == (pytest.approx(1), None)
    model = TableClassifier(Budget(10), random_state=0)
    assert clone(model).weighting == Budget(10)
    model.set_params(estimator=CRCENClassifier(hidden=(), max_epochs=3, random_state=0)).fit(X, y)
    assert (model.weighting_.cost_ratio, model.estimator.weighting) == (pytest.approx(10), "balanced")
    default = TableClassifier(Budget(10))._unfitted()
    assert (type(default).__name__, default.weighting) == ("CRCENClassifierCV", Budget(10))
    weights = np.where(y == "yes", 3.0, 1.0)
    weighted = TableClassifier(estimator=LogisticRegression()).fit(X, y, sample_weight=weights)
    own = LogisticRegression().fit(weighted.encode(X).X, y, sample_weight=weights)
    np.testing.assert_allclose(weighted.estimator_.estimator_.coef_, own.coef_)
    assert weighted.weighting_.n_pos == weights[y == "yes"].sum()


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(n_estimators=10, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
        crcen.PosteriorCorrection(LogisticRegression(class_weight="balanced"), price=Budget(1)),
    ],
    ids=["forest", "pipeline", "corrected weights"],
)
def test_any_classifier_goes_through_the_workflow(estimator, tmp_path):
    X, y = priced_rows()
    model = TableClassifier(Budget(5), estimator=estimator).fit(X, y)
    new, truth = priced_rows(300, seed=1)
    answer = crcen.predict_table(model, new)
    assert answer.unlike == ()
    np.testing.assert_array_equal(answer.frame["decision"], model.predict(new))
    np.testing.assert_array_equal(answer.frame["decision"] == "yes", answer.frame["probability"] > 1 / 6)
    found = crcen.evaluate_table(model, new.assign(bad=truth), target="bad", n_resamples=0)
    assert (found.recognition.status, model.recognise(X).status) == ("new", "seen")
    crcen.write_report(model, new, truth, tmp_path / "r.html")


def soft_vote(model):
    return VotingClassifier([("only", model)], voting="soft")


@pytest.mark.parametrize(
    ("estimator", "options", "said"),
    [
        (LinearSVC(), {}, "LinearSVC has no predict_proba"),
        (LinearRegression(), {}, "LinearRegression has no predict_proba"),
        (LogisticRegression(class_weight="balanced"), {}, "wrap it in crcen.PosteriorCorrection"),
        (make_pipeline(LogisticRegression(class_weight={"no": 1, "yes": 9})), {}, "gives weighted probabilities"),
        (LGBMClassifier(is_unbalance=True), {}, "gives weighted probabilities"),
        (LGBMClassifier(scale_pos_weight=0), {}, "scale_pos_weight=0 gives weighted probabilities"),
        (GridSearchCV(LogisticRegression(class_weight="balanced"), {}), {}, "GridSearchCV with class_weight='bal"),
        (BaggingClassifier(LogisticRegression(class_weight="balanced")), {}, "gives weighted probabilities"),
        (soft_vote(LogisticRegression(class_weight="balanced")), {}, "gives weighted probabilities"),
        (LogisticRegression, {}, "must be a classifier"),
        ("forest", {}, "must be a classifier"),
        (KNeighborsClassifier(), {"sample_weight": np.ones(60)}, "KNeighborsClassifier takes no sample weights"),
        (LogisticRegression(), {"groups": np.arange(60)}, "LogisticRegression does not cross-validate"),
    ],
)
def test_what_a_classifier_cannot_do_is_refused_in_one_sentence(estimator, options, said):
    X, y = priced_rows(60)
    with pytest.raises(InvalidParameter, match=said):
        TableClassifier(estimator=estimator).fit(X, y, **options)


def test_weights_may_be_inside_an_estimator_that_corrects_the_probabilities():
    X, y = priced_rows(200)
    for corrects in (CalibratedClassifierCV, crcen.PosteriorCorrection):
        model = TableClassifier(estimator=corrects(LogisticRegression(class_weight="balanced"))).fit(X, y)
        assert model.predict_proba(X)[:, 1].mean() == pytest.approx((np.asarray(y) == "yes").mean(), abs=0.03)


def test_labels_may_be_a_column_of_a_frame_but_not_missing_and_only_a_fitted_model_predicts():
    X, y = priced_rows(60)
    labels = pd.Series(y, name="late", dtype="object")
    model = TableClassifier(estimator=LogisticRegression()).fit(X, labels.to_frame())
    assert (model.target_name_, model.classes_.tolist()) == ("late", ["no", "yes"])
    with pytest.raises(InvalidInput, match="y must have a label for every row"):
        TableClassifier(estimator=LogisticRegression()).fit(X, labels.where(labels.index > 5))
    for name in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(TableClassifier(), name)(X)


@pytest.mark.parametrize("costs", [CostMatrix.binary(fn=10), CostMatrix.binary(fp=3, fn=30)])
def test_costs_of_two_outcomes_are_a_price_of_the_rarer_class_wherever_it_is_sorted(costs):
    X, y = priced_rows(300)
    y = np.where(np.asarray(y) == "yes", "a fault", "no fault")  # the positive class comes first
    for make in (lambda price: TableClassifier(price, estimator=LogisticRegression()), crcen.CRCENClassifier):
        rows = X if make is not crcen.CRCENClassifier else pd.DataFrame({"x": np.arange(300.0)})
        stated, budget = (make(price).fit(rows, y) for price in (costs, crcen.Budget(10)))
        assert stated.pos_label_ == budget.pos_label_ == "a fault"
        np.testing.assert_array_equal(stated.predict(rows), budget.predict(rows))
    with pytest.raises(InvalidParameter, match="these costs must name the classes"):
        TableClassifier(costs.with_review(0.01), estimator=LogisticRegression()).fit(X, y)
    reversed_price = crcen.theory.price.Price.binary(0.5, 10, 90, positive=0).replace(costs)
    assert reversed_price.cost_ratio == pytest.approx(10)


def test_only_estimators_that_state_the_probabilities_must_be_without_weights():
    X, y = priced_rows(60)
    weighted = LogisticRegression(class_weight="balanced")
    for fine in (
        make_pipeline(SelectFromModel(weighted), LogisticRegression()),
        StackingClassifier([("a", weighted)], final_estimator=LogisticRegression()),
        make_pipeline("passthrough", LogisticRegression()),
    ):
        TableClassifier(estimator=fine).fit(X, y)


GRADES = np.concatenate([np.arange(3), RNG.choice(3, 297, p=[0.7, 0.2, 0.1])])
MACHINES = pd.DataFrame(
    {
        "hours": np.where(RNG.random(300) < 0.1, np.nan, 10.0 * GRADES + RNG.normal(0, 4, 300)),
        "site": np.where(GRADES == 2, RNG.choice(["Oslo", "Lima"], 300), RNG.choice(["Oslo", "Rome"], 300)),
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 90, 300), unit="D"),
    }
)
STATES = np.array(["fine", "worn", "broken"])[GRADES]
WEIGHTS = {"fine": 1.0, "worn": 3.0, "broken": 20.0}
COSTS = crcen.CostMatrix(10.0 * (1 - np.eye(3)) + np.array([[0], [0], [5.0]]), labels=["broken", "fine", "worn"])
SEARCH = CRCENClassifierCV(hidden=(), l2=[1e-3, 1e-2], encoding="standard", cv=2, n_members=1, random_state=0)


@pytest.mark.parametrize("weighting", [WEIGHTS, "balanced", COSTS], ids=["weights", "balanced", "costs"])
@pytest.mark.parametrize(
    "estimator", [NETWORKS, SEARCH, LogisticRegression(max_iter=5000)], ids=["networks", "search", "logistic"]
)
def test_a_table_of_three_classes(estimator, weighting, tmp_path):
    model = TableClassifier(weighting, estimator=estimator, random_state=0).fit(MACHINES, STATES)
    p, decisions = model.predict_proba(MACHINES), model.predict(MACHINES)
    assert (model.classes_.tolist(), p.shape) == (["broken", "fine", "worn"], (300, 3))
    assert not hasattr(model, "pos_label_")
    if weighting is COSTS:
        expected = model.classes_[(p @ COSTS.costs).argmin(axis=1)]
    else:
        weighted = model.weighting_.weights * p
        expected = model.classes_[weighted.argmax(axis=1)]
        np.testing.assert_allclose(model.weighted_proba(MACHINES), weighted / weighted.sum(axis=1, keepdims=True))
        if weighting is WEIGHTS:
            np.testing.assert_allclose(model.weighting_.weights / model.weighting_.weights[1], [20, 1, 3])
    np.testing.assert_array_equal(decisions, expected)
    assert (decisions == STATES).mean() > 0.6
    assert model.decision_function(MACHINES).shape == (300, 3)
    again = crcen.load(crcen.save(model, tmp_path / "model.crcen"))
    np.testing.assert_array_equal(again.predict_proba(MACHINES), p)
    np.testing.assert_array_equal(again.predict(MACHINES), decisions)
    if estimator not in (NETWORKS, SEARCH):  # the probabilities of another classifier stay its own
        np.testing.assert_array_equal(p, model.estimator_.estimator_.predict_proba(model.encode(MACHINES).X))
    if estimator is SEARCH:  # solved on these rows: no residual is left
        sums = again.held_out_sums_
        assert sums.counts.tolist() == np.unique(STATES, return_counts=True)[1].tolist()
        assert np.abs(sums.residuals).max() < 1e-9 * sums.flows.sum()


@pytest.mark.parametrize("estimator", [NETWORKS, LogisticRegression()])
def test_a_price_of_two_classes_is_refused(estimator):
    with pytest.raises(InvalidParameter, match="price for two classes"):
        TableClassifier(Budget(5), estimator=estimator).fit(MACHINES, STATES)


# -- folds in the order of time ----------------------------------------------------------------------------------------


def test_later_rows_are_later_and_every_period_has_events():
    rng = np.random.default_rng(3)
    times, y = rng.integers(0, 50, 400), rng.random(400) < 0.05
    folds = list(crcen.TimeSplit(4).split(None, y, times))
    assert len(folds) == crcen.TimeSplit(4).get_n_splits() == 4
    assert all(times[train].max() < times[test].min() and y[train].any() and y[test].any() for train, test in folds)
    tested = np.concatenate([test for _, test in folds])
    assert sorted([*tested, *folds[0][0]]) == list(range(400))
    mixed = [0, 1] * 4 + [0]
    for times, y in (([1] * 9, mixed), (range(9), [0] * 8 + [1]), ([1, 2] * 4 + [2], mixed)):
        with pytest.raises(InvalidInput, match="time cannot be split into 5 periods"):
            list(crcen.TimeSplit(4).split(None, y, times))
    with pytest.raises(InvalidInput, match="needs y"):
        list(crcen.TimeSplit(4).split(None))
