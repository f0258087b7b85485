"""Training rows are known again, whatever file they come from; fresh rows of repetitive tables are not accused."""

import math
import time

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import Budget, CRCENClassifier, TableClassifier
from crcen.tables.cells import ColumnCells, TableCells
from crcen.tables.columns import learn_column
from crcen.tables.fingerprint import FALSE_MATCH_RATE, MOST_HASHES, duplicated_class, fingerprint_of, row_hashes
from crcen.tables.reading import open_table

LINEAR = CRCENClassifier(Budget(3), hidden=(), max_epochs=3, random_state=0)


def _table(n, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "amount": rng.normal(1e3, 400, n).round(2),
            "ratio": rng.random(n),
            "country": rng.choice(["NL", "NO", "DE"], n),
            "is_new": rng.random(n) < 0.5,
            "when": pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 500, n), unit="D"),
            "note": [f"call {rng.integers(1e9)} about it" for _ in range(n)],
        }
    )


def _encoded(columns, frame):
    return np.column_stack([column.encode(ColumnCells(frame[column.name])).values for column in columns])


def _fingerprint(frame):
    columns = [learn_column(ColumnCells(frame[name]), is_kept=True) for name in frame.columns]
    return columns, fingerprint_of(
        columns, TableCells(frame), _encoded(columns, frame), np.zeros(len(frame), dtype=int), 1
    )


def _judge(columns, fingerprint, frame):
    hashes = row_hashes(columns, TableCells(frame), _encoded(columns, frame), fingerprint.salt)
    return fingerprint.judge(*fingerprint.compare(hashes))


@pytest.fixture(scope="module")
def trained():
    frame = _table(400)
    y = np.arange(400) % 5 == 0
    return frame, TableClassifier(estimator=LINEAR).fit(frame, y)


def test_training_rows_are_known_in_every_form(trained, tmp_path):
    frame, model = trained
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    single = frame.astype({"amount": "float32", "ratio": "float32"})
    spelt = pd.read_csv(tmp_path / "a.csv", dtype=str)
    spelt["amount"] = [f"{float(cell):.6e}" for cell in spelt["amount"]]
    forms = [frame, frame.iloc[::-1, ::-1], spelt]
    forms += [open_table(tmp_path / name).read() for name in ("a.csv", "a.parquet")]
    found = [model.recognise(form) for form in forms]
    assert {(one.status, one.n_seen, one.n_rows) for one in found} == {("seen", 400, 400)}
    # A few numbers round another way at the last digit kept.
    assert model.recognise(single).n_seen > 390


def test_fresh_rows_are_new_and_a_mixture_is_seen(trained):
    frame, model = trained
    fresh = _table(400, seed=1)
    mixed = model.recognise(pd.concat([fresh, frame[:150]]))
    for found, status, n_seen in ((model.recognise(fresh), "new", 0), (mixed, "seen", 150)):
        assert (found.status, found.n_seen) == (status, pytest.approx(n_seen, abs=50))
    assert not mixed.is_new[400:].any()  # no training row passes for a new one


def test_of_many_rows_a_part_is_kept(trained):
    frame = _table(3 * MOST_HASHES).drop(columns="note")
    columns, fingerprint = _fingerprint(frame)
    assert fingerprint.rows.tolist() == [MOST_HASHES]
    found = _judge(columns, fingerprint, frame)
    assert (found.n_rows, found.n_seen, found.status) == (MOST_HASHES, MOST_HASHES, "seen")
    fresh = _judge(columns, fingerprint, _table(MOST_HASHES, seed=2).drop(columns="note"))
    # A third of all hashes are compared.
    assert (fresh.n_rows, fresh.status) == (pytest.approx(MOST_HASHES / 3, rel=0.1), "new")


def _passengers(n=2201, seed=0):
    """As on the Titanic: four columns of few categories, so that nearly all rows repeat."""
    rng = np.random.default_rng(seed)
    draw = [("1st", "2nd", "3rd", "crew"), ("man", "woman"), ("adult", "child"), ("yes", "no")]
    return pd.DataFrame({f"c{i}": rng.choice(values, n) for i, values in enumerate(draw)})


@pytest.mark.parametrize("new", [_passengers(500, seed=1), _passengers(), None], ids=["fresh", "training", "three"])
def test_where_all_rows_repeat_or_few_are_compared_nothing_is_claimed(new):
    train, new = (_table(120), _table(120)[:3]) if new is None else (_passengers(), new)
    assert _judge(*_fingerprint(train), new).status == "unknown"


def test_half_of_the_rows_have_a_twin():
    """Splits of a table in which rows repeat: never accused over many draws; training rows always known."""
    rng = np.random.default_rng(3)
    pool = _table(900, seed=4)[["amount", "country", "is_new"]]
    pool = pd.concat([pool, pool[:300], pool[:200], pool[:100]])
    for _ in range(40):
        order = rng.permutation(len(pool))
        train, test = pool.iloc[order[400:]], pool.iloc[order[:400]]
        columns, fingerprint = _fingerprint(train)
        fresh = _judge(columns, fingerprint, test)
        assert (fresh.status, fresh.n_expected > 20) == ("new", True)
        # As many as a training row's chance of a twin says, within four standard deviations.
        assert abs(fresh.n_seen - fresh.n_expected) < 4 * np.sqrt(2 * fresh.n_expected + 0.25 / 0.75 * fresh.n_rows)
        assert _judge(columns, fingerprint, train).status == "seen"


def test_buckets_are_occupied_at_the_stated_rate_and_kept_in_files(trained, tmp_path):
    frame, model = trained
    fingerprint = model.fingerprint_
    assert fingerprint.false_match_rate == pytest.approx(FALSE_MATCH_RATE, abs=0.03)
    assert len(fingerprint.buckets) * 8 < 4 * len(frame)  # fewer than four bits for each row
    assert _fingerprint(frame[:399])[1].salt != _fingerprint(frame)[1].salt
    loaded = crcen.load(crcen.save(model, tmp_path / "m.crcen"))
    assert loaded.recognise(frame) == model.recognise(frame)
    del loaded.fingerprint_
    assert loaded.recognise(frame) is None


def test_hashing_takes_at_most_20_microseconds_per_row():
    frame = pd.concat([_table(5000).drop(columns="when").add_suffix(f"_{i}") for i in range(4)], axis=1)  # 20 columns
    columns, fingerprint = _fingerprint(frame)
    X = _encoded(columns, frame)
    row_hashes(columns, TableCells(frame), X, fingerprint.salt)
    start = time.process_time()
    fingerprint.compare(row_hashes(columns, TableCells(frame), X, fingerprint.salt))
    assert (time.process_time() - start) / len(frame) < 20e-6


def test_numbers_of_all_sizes():
    sizes = [0.0, -0.0, 1e-300, -3.5e-7, 9.9999996, 10.0, 123456.7, 1e15, 1e300, np.nextafter(0.1, 1)]
    frame = pd.DataFrame({"x": sizes * 3})
    _, fingerprint = _fingerprint(frame)
    assert fingerprint.rows.tolist() == [30]
    # 0 and -0, and 10 and 9.9999996 to six digits, are one value each.
    assert fingerprint.n_buckets == math.ceil(-8 / math.log(1 - FALSE_MATCH_RATE))


@pytest.mark.parametrize(
    ("rows", "twins", "n_distinct", "wanted"),
    [
        ([700, 900], [0, 890], 1007, 1),  # the rarer class oversampled until it is the commonest
        ([700, 900], [0, 890], 713, None),  # heaps of equal rows
        ([200, 1800], [14, 1400], 1000, None),  # coarse columns: the common class has more twins
        ([1800, 200], [0, 180], 1860, 1),
        ([1000, 1000], [450, 470], 1500, None),
    ],
)
def test_the_class_that_was_duplicated(rows, twins, n_distinct, wanted):
    assert duplicated_class(np.array(rows), np.array(twins), n_distinct) == wanted
