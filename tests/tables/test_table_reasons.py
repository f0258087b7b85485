"""Reasons of mixed tables: in the table's own columns and units, from typical rows that the model file keeps."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

from crcen import Budget, CRCENClassifier, InvalidParameter, TableClassifier, load, predict_table, save
from grouped_settings import grouped

RNG = np.random.default_rng(1)
N = 500
FRAME = pd.DataFrame(
    {
        "balance": RNG.gamma(2.0, 900.0, N).round(),
        "price": [f"€{cell:,.2f}" for cell in RNG.gamma(2.0, 900.0, N)],
        "region": RNG.choice(["north", "south", "<east>"], N),
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
        "insured": RNG.choice(["yes", "no"], N),
        "age": np.where(RNG.random(N) < 0.2, np.nan, RNG.integers(18, 90, N)),
        "remark": [" ".join(RNG.choice([f"word{i}" for i in range(60)], 6)) + f" {i}" for i in range(N)],
    }
)
LOG_ODDS = -3 + FRAME.balance / 900 + 1.5 * (FRAME.region == "north") - 1.0 * (FRAME.insured == "yes")
Y = pd.Series(RNG.random(N) < 1 / (1 + np.exp(-LOG_ODDS)), name="late").map({True: "late", False: "fine"})
QUICK = {"hidden": (6,), "max_epochs": 15, "random_state": 0}


@pytest.fixture(scope="module")
def model():
    return TableClassifier(estimator=CRCENClassifier(Budget(2), **grouped(**QUICK)), random_state=0).fit(FRAME, Y)


def test_reasons_are_of_the_tables_columns_and_in_its_units(model):
    found = model.reasons(FRAME[:50])
    assert list(found.columns) == list(FRAME.columns)
    column = {name: found.cells[:, j].tolist() for j, name in enumerate(found.columns)}
    assert (column["balance"][0], column["price"][0]) == (f"{FRAME.balance[0]:,.0f}", FRAME.price[0])
    assert column["region"][:5] == FRAME.region[:5].tolist()
    assert column["since"][0].startswith(str(FRAME.since[0].date()))
    assert [cell == "missing" for cell in column["age"]] == FRAME.age[:50].isna().tolist()
    assert all(len(cell) <= 40 for cell in column["remark"])
    p = model.predict_proba(FRAME[:50])[:, 1]
    assert np.abs(found.values.sum(axis=1) + found.base - np.log(p / (1 - p))).max() < 1e-9
    assert 0 < found.standard_error <= 0.05
    text = FRAME.assign(balance=FRAME.balance.map(lambda cell: f"{cell:.0f}"))
    assert model.reasons(text[:5]).sentences(7) == model.reasons(FRAME[:5]).sentences(7)


def test_known_effects_have_their_sign(model):
    values = model.reasons(FRAME).to_frame()
    north = (FRAME.region == "north").to_numpy()
    assert values.region[north].mean() - values.region[~north].mean() > 0.4
    insured = (FRAME.insured == "yes").to_numpy()
    assert values.insured[insured].mean() < -0.1 < 0.1 < values.insured[~insured].mean()
    assert np.corrcoef(values.balance, FRAME.balance)[0, 1] > 0.9


def test_a_file_keeps_typical_rows_and_gives_the_same_reasons(model, tmp_path):
    back = load(save(model, tmp_path / "model.crcen"))
    assert np.array_equal(back.reasons(FRAME[:9]).values, model.reasons(FRAME[:9]).values)
    encoded = model.encode(FRAME).X
    assert not any((encoded == row).all(axis=1).any() for row in model.background_)
    texts = [i for i, name in enumerate(model.encoded_names_) if name.startswith("remark: component")]
    assert not np.isin(model.background_[:, texts], encoded[:, texts]).any()  # no text of a single row
    del back.background_
    with pytest.raises(InvalidParameter, match="pass background="):
        back.reasons(FRAME[:9])
    assert len(back.reasons(FRAME[:9], background=FRAME)) == 9


def test_any_classifier_with_probabilities_has_reasons():
    columns = ["balance", "region"]
    model = TableClassifier(Budget(2), estimator=RandomForestClassifier(20, random_state=0)).fit(FRAME[columns], Y)
    found = model.reasons(FRAME[:20])
    p = np.clip(model.predict_proba(FRAME[:20])[:, 1], 1e-7, 1 - 1e-7)
    assert np.abs(found.values.sum(axis=1) + found.base - np.log(p / (1 - p))).max() < 1e-9


def test_predict_gives_reasons_to_alarms_alone(model, tmp_path):
    scored = predict_table(model, FRAME, reasons=2, chunk_rows=170)
    alarms = (scored.frame.decision == "late").to_numpy()
    assert 0 < alarms.sum() < N
    assert (scored.frame.reason_1[~alarms] == "").all()
    assert (scored.frame.reason_2[alarms].str.endswith(" log-odds")).all()
    expected = model.reasons(FRAME[alarms]).sentences(2)
    assert scored.frame.loc[alarms, ["reason_1", "reason_2"]].to_numpy().tolist() == expected
    error = model.reasons(FRAME[alarms]).standard_error
    assert scored.to_dict()["reasons"].items() >= {"rows": alarms.sum(), "standard_error": error}.items()
    assert f"Reasons for {alarms.sum():,} alarms" in str(scored)
    assert "reason_1" not in predict_table(model, FRAME).frame
    with pytest.raises(InvalidParameter, match="from 0 to 100"):
        predict_table(model, FRAME, reasons=-1)
