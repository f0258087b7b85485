"""New rows beside training rows: what differs is said, what chance allows is not."""

import math
import re
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom

import crcen
from crcen import Budget, CRCENClassifier, TableClassifier
from crcen.tables.fingerprint import chance_of_more
from crcen.tables.profile import NewRows, kolmogorov_smirnov

LINEAR = CRCENClassifier(Budget(3), hidden=(), max_epochs=5, random_state=0)


def _table(n, seed):
    rng = np.random.default_rng(seed)
    amount = rng.lognormal(3, 0.5, n)
    amount[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "amount": amount,
            "age": rng.integers(18, 80, n),
            "country": rng.choice(["NL", "NO", "DE"], n, p=[0.6, 0.3, 0.1]),
            "is_new": rng.random(n) < 0.3,
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )


@pytest.fixture(scope="module")
def model():
    frame = _table(1500, 0)
    y = np.random.default_rng(9).random(1500) < 1 / (1 + np.exp(-(frame["age"] - 80) / 8))
    return TableClassifier(estimator=LINEAR).fit(frame, y)


def unlike(model, frame, n_chunks=1):
    rows = NewRows(model.profile_, model.columns_)
    for part in np.array_split(np.arange(len(frame)), n_chunks):
        rows.add(model.encode(frame.iloc[part]))
    return rows.differences()


def test_fishers_exact_test():
    # The three largest of 10 + 40 values are all among the 10.
    assert chance_of_more(3, 10, 0, 40) == pytest.approx(math.comb(10, 3) / math.comb(50, 3))
    assert [chance_of_more(*counts) for counts in ((0, 10, 5, 50), (1, 10, 9, 50))] == [1.0, 1.0]
    expected = hypergeom.sf(119, 60_000, 1_120, 5_000)
    assert chance_of_more(120, 5_000, 1_000, 55_000) == pytest.approx(expected, rel=1e-9)


def test_the_bound_holds_in_draws():
    rng, beyond = np.random.default_rng(0), 0
    for _ in range(2000):
        x, y = np.sort(rng.random(200)), np.sort(rng.random(300))
        grid = np.quantile(x, np.linspace(0, 1, 33))
        distance = np.abs(np.searchsorted(x, grid, "right") / 200 - np.searchsorted(y, grid, "right") / 300).max()
        beyond += kolmogorov_smirnov(distance, 300, 200) < 0.05
    assert beyond <= 0.05 * 2000


@pytest.mark.parametrize(
    ("column", "change", "kind", "here", "sentence"),
    [
        ("amount", lambda x: 100 * x, "scale", None, r"is (9\d|1[01]\d)(\.\d)? times as large as in training"),  # cents
        ("age", lambda x: x.mask(x.index < 40, 140), "range", 0.1, r"15 to 80 in 10 % of rows \(40 values were cl"),
        ("when", lambda x: x + pd.Timedelta(days=400), "range", 1.0, "2023-12-29 to 2024-11-13"),
        ("age", lambda x: np.minimum(x + 20, 79), "distribution", None, r"at most \d+ in \d+ % of rows here, \d+ %"),
        ("country", lambda x: x.mask(x.index < 80, "FR"), "unseen", 0.2, "new or were rare in training in 20 %"),
        ("country", lambda x: "DE", "categories", 1.0, r"DE in 100 % of rows here, (8|9|1\d)(\.\d)? % in training"),
        ("is_new", lambda x: True, "categories", 1.0, "is_new is true in 100 % of rows here"),
        ("age", lambda x: x.astype(object).mask(x.index < 100, "fifty"), "unreadable", 0.25, "read as a number"),
    ],
)
def test_one_change_is_one_difference(model, column, change, kind, here, sentence):
    frame = _table(400, 1)
    (found,) = unlike(model, frame.assign(**{column: change(frame[column])}))
    assert (found.column, found.kind) == (column, kind)
    assert here is None or found.here == here
    assert re.search(sentence, found.sentence)


@pytest.mark.parametrize(("value", "count", "expected"), [(300, 20, "range"), (300, 1, None), (1e9, 1, "clipped")])
def test_clipped_values_are_reported_beyond_chance(model, value, count, expected):
    frame = _table(1500, 1)
    frame.loc[: count - 1, "age"] = value
    found = unlike(model, frame)
    assert [(one.column, one.kind) for one in found] == ([("age", expected)] if expected else [])
    assert all(f"{count} value" in one.sentence for one in found)


@pytest.mark.parametrize("column", ["amount", "age", "country"])
def test_missing_cells(model, column):
    frame = _table(400, 1)
    frame[column] = frame[column].astype(object).where(np.arange(400) % 2 == 0)
    found = {one.kind: one for one in unlike(model, frame)}["missing"]
    before = pytest.approx(0.1 if column == "amount" else 0.0, abs=0.03)
    assert (found.column, found.here, found.training) == (column, pytest.approx(0.5, abs=0.06), before)


def test_chunks_give_the_same_answer(model):
    frame = _table(500, 1).assign(is_new=True)
    frame["amount"] *= 100
    whole, parts = (list(map(asdict, unlike(model, frame, n))) for n in (1, 7))
    assert len(whole) == len(parts) == 2
    for one, other in zip(whole, parts, strict=True):
        assert one == {**other, "here": pytest.approx(other["here"])}
    like = [unlike(model, _table(n, seed)) for seed in range(1, 60) for n in (1, 30, 700)]
    assert sum(map(bool, like)) <= 1


def test_many_more_alarms(model):
    answer = crcen.predict_table(model, _table(400, 1).assign(age=78))
    (alarms,) = [one for one in answer.to_dict()["unlike"] if one["kind"] == "alarms"]
    own = pytest.approx((model.predict(_table(1500, 0)) == model.pos_label_).mean(), abs=0.002)
    assert (alarms["column"], alarms["here"], alarms["training"]) == (None, answer.n_alarms / 400, own)
    assert "alarms here" in str(answer)
    at_another_price = crcen.predict_table(model, _table(400, 1), weighting=Budget(200)).unlike
    assert "alarms" not in [one.kind for one in at_another_price]


def test_it_survives_the_file_and_holds_no_rows(model, tmp_path):
    frame, loaded = _table(300, 1).assign(is_new=True), crcen.load(crcen.save(model, tmp_path / "m.crcen"))
    assert crcen.predict_table(loaded, frame).unlike == crcen.predict_table(model, frame).unlike != ()
    assert max(len(one.edges) for one in loaded.profile_.columns) <= 33
    del loaded.profile_
    blind = crcen.predict_table(loaded, frame)
    assert (blind.unlike, "keeps no profile of its training rows" in blind.notes[0]) == ((), True)
