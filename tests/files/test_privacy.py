"""What a model file reveals: secrets of a single row, planted in every kind of column, are not in the file."""

import itertools

import numpy as np
import pandas as pd
import pytest
from forging import parts

from crcen import Budget, CommitteeClassifier, CRCENClassifierCV, TableClassifier, load, save
from crcen.tables.fingerprint import FALSE_MATCH_RATE

N = 400
SECRET_WORD, SECRET_CODE, SECRET_ID = "xylophagous", "zq-blackmail", "ID-7Q9Z-4411"
SECRET_NUMBER, SECRET_AMOUNT, SECRET_DATE = 98_765.4375, "$98,765.4375", "1911-11-27"
NETWORK = {"hidden": (4,), "l2": 1e-2, "max_epochs": 3, "cv": 2, "n_members": 1, "random_state": 0}


def _table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    words = np.array(["alpha", "bravo", "charlie", "delta", "echo"])
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    return pd.DataFrame(
        {
            "number": rng.lognormal(8, 0.4, n).round(2),
            "amount": [f"${x:,.2f}" for x in rng.lognormal(8, 0.4, n)],
            "category": rng.choice(["red", "green", "blue"], n),
            "text": [" ".join(rng.choice(words, 4)) + f" {rng.integers(1000)}" for _ in range(n)],
            "date": days.strftime("%Y-%m-%d"),
            "age": rng.integers(18, 95, n),
            "customer": [f"ID-{a:04d}-{b:04d}" for a, b in rng.integers(9999, size=(n, 2))],
        }
    )


def _planted():
    frame = _table()
    frame.loc[17, ["number", "amount", "category", "date"]] = [SECRET_NUMBER, SECRET_AMOUNT, SECRET_CODE, SECRET_DATE]
    frame.loc[17, "text"] = f"the patient is {SECRET_WORD} since birth"
    frame.loc[17, "customer"] = SECRET_ID
    y = np.where(frame["number"].rank() + frame["age"].rank() > 1.2 * N, "yes", "no")
    return frame, pd.Series(y, name="target")


def _content(path):
    manifest, tree, data = parts(path.read_bytes())
    return repr(manifest) + repr(tree) + data.decode("latin-1") + data.decode("utf-16-le", "replace"), data


@pytest.mark.parametrize(
    "estimator",
    [
        *(CRCENClassifierCV(Budget(5), encoding=kind, **NETWORK) for kind in ("standard", "quantile", "piecewise")),
        CommitteeClassifier(Budget(5), members=("trees",), cv=2, random_state=0),
    ],
    ids=["standard", "quantile", "piecewise", "trees"],
)
def test_planted_secrets_are_not_in_the_file(estimator, tmp_path):
    frame, y = _planted()
    model = TableClassifier(estimator=estimator, random_state=0).fit(frame, y)
    kinds = {column.name: column.kind for column in model.columns_}
    own = {kind: kind for kind in ("number", "category", "text", "date")}
    assert kinds == {**own, "amount": "number", "age": "number"}
    text, data = _content(save(model, tmp_path / "m.crcen"))
    for word in (SECRET_WORD, SECRET_WORD[:4], SECRET_CODE, SECRET_ID, "7Q9Z", "98765", "98,765", SECRET_DATE, "1911"):
        assert word not in text, word
    days = (pd.Timestamp(SECRET_DATE) - pd.Timestamp("1970-01-01")).days
    for number, kind in itertools.product((SECRET_NUMBER, days), (np.float64, np.float32, np.int64, np.int32)):
        assert kind(number).tobytes() not in data, number
    assert "red" in text  # what five rows share is there


def test_notes_quote_cells_but_files_do_not(tmp_path):
    frame, y = _planted()
    frame["amount"] = np.where(np.arange(N) == 3, "call the doctor", frame["amount"])
    # Dates whose order nothing shows: the column is left out, and the reason is stored.
    frame["visit"] = np.where(np.arange(N) % 2, "2021-03-04", "03/04/2021")
    frame.loc[[5, 6], "visit"] = "ask the doctor"
    model = TableClassifier(estimator=CRCENClassifierCV(Budget(5), encoding="standard", **NETWORK)).fit(frame, y)
    assert any("call the doctor" in note for note in model.notes_)
    (left_out,) = [one.reason for one in model.dropped_ if one.name == "visit"]
    assert "99/99/9999 in" in left_out
    assert "2 other cells" in left_out
    path = save(model, tmp_path / "m.crcen")
    assert "doctor" not in _content(path)[0]
    assert load(path).notes_ == [f"visit is left out: it {left_out}"]  # of patterns, without a cell


def test_a_guessed_age_matches_as_often_as_chance_says():
    """Someone knows all of a person's row but the age: every fourth wrong age matches too."""
    frame, y = _planted()
    model = TableClassifier(estimator=CRCENClassifierCV(Budget(5), encoding="standard", **NETWORK)).fit(frame, y)
    rates = []
    for row in range(60):
        guesses = pd.concat([frame.iloc[[row]].assign(age=age) for age in range(18, 95)], ignore_index=True)
        _, matches = model.fingerprint_.compare(model.row_hashes(guesses, model.encode(guesses)))
        assert matches[frame["age"].iloc[row] - 18]  # the right one always does
        rates.append((matches.sum() - 1) / (len(matches) - 1))
    assert np.mean(rates) == pytest.approx(FALSE_MATCH_RATE, abs=0.03)
    assert min(rates) > 0.05


def test_planted_secrets_are_neither_on_the_page_nor_in_the_monitor_state(crcen_command, tmp_path):
    frame, y = _planted()
    frame.assign(target=y).to_csv(tmp_path / "rows.csv", index=False)
    model, page, state = tmp_path / "m.crcen", tmp_path / "page.html", tmp_path / "watch.json"
    fit = ("fit", tmp_path / "rows.csv", "--target", "target", "--budget", 5, "--quick", "--drop", "age")
    assert crcen_command(*fit, "--out", model, "--no-fingerprint")[0] == 0
    assert not hasattr(load(model), "fingerprint_")
    assert load(model).recognise(frame) is None
    assert crcen_command("report", model, tmp_path / "rows.csv", "--out", page)[0] in (0, 3)
    assert crcen_command("monitor", model, tmp_path / "rows.csv", "--state", state)[0] in (0, 3)
    for path in (page, state):
        text = path.read_text(encoding="utf-8")
        for word in (SECRET_WORD, SECRET_CODE, SECRET_ID, "98765.4", "98,765", SECRET_DATE):
            assert word not in text, (path.name, word)
    assert "green" in page.read_text(encoding="utf-8")  # what five rows share is there
