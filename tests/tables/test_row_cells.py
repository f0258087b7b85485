"""Rows given as dicts, against the same rows in a data frame."""

import datetime

import numpy as np
import pandas as pd
import pytest

from crcen import CRCENClassifier, InvalidInput, TableClassifier

N_ROWS = 120


def made_up(has_gaps):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "amount": rng.normal(size=N_ROWS).round(3),
            "count": rng.integers(0, 9, N_ROWS) * 1000,
            "price": [f"1.{rng.integers(100, 999)},50 €" for _ in range(N_ROWS)],
            "country": rng.choice(["NL", "NO", " DE "], N_ROWS),
            "code": [str(one) for one in rng.integers(1, 4, N_ROWS)],
            "rare": ["odd" if i == 7 else "even" if i % 2 else "plain" for i in range(N_ROWS)],
            "paid": rng.choice(["yes", "no"], N_ROWS),
            "day": pd.date_range("2021-03-01", periods=N_ROWS, freq="7h").strftime("%Y-%m-%d %H:%M"),
            "german_day": pd.date_range("2021-03-13", periods=N_ROWS, freq="D").strftime("%d.%m.%Y"),
        }
    )
    if has_gaps:
        frame = frame.astype(object).mask(rng.random(frame.shape) < 0.1, None)
        frame["amount"] = frame["amount"].astype(float)
    return frame, (np.arange(N_ROWS) % 5 == 0).astype(int)


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "gaps"])
def model(request):
    frame, y = made_up(request.param)
    network = CRCENClassifier(hidden=(), random_state=0)
    return TableClassifier(estimator=network, categorical=["code"]).fit(frame, y)


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
}


@pytest.mark.parametrize("name", CELLS)
def test_each_cell_is_as_in_a_frame(model, name):
    frame, _ = made_up(False)
    for cell in CELLS[name]:
        row = frame.iloc[1].to_dict() | {name: cell}
        own, expected = model.encode(row), model.encode(pd.DataFrame([row]))
        np.testing.assert_allclose(own.X, expected.X, rtol=1e-14, err_msg=repr(cell))
        for kind in ("unseen", "unreadable", "missing", "extra"):
            assert getattr(own, kind) == getattr(expected, kind), (cell, kind)


@pytest.mark.parametrize("count", [1, 5, 100])
def test_lists_of_dicts(model, count):
    frame, _ = made_up(False)
    rows = frame.to_dict("records")[:count]
    for answer in ("predict", "predict_proba", "weighted_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(model, answer)(rows), getattr(model, answer)(frame[:count]))
    np.testing.assert_array_equal(model.predict_proba(rows[0]), model.predict_proba(frame[:1]))


def test_columns_may_be_more_and_in_any_order_but_not_fewer(model):
    frame, _ = made_up(False)
    row = frame.iloc[0].to_dict()
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
        model.predict(frame[:3].to_dict("list"))


def test_no_data_frame_is_made(monkeypatch):
    frame, y = made_up(False)
    model = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0), drop=["price"]).fit(frame, y)
    row = frame.drop(columns="price").iloc[0].to_dict()
    expected = model.predict_proba(row)
    for name in ("DataFrame", "Series"):
        monkeypatch.setattr(pd, name, lambda *values, **how: pytest.fail("a data frame was made"))
    np.testing.assert_array_equal(model.predict_proba(row), expected)
