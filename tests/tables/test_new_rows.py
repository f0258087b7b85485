"""New rows beside training rows: training rows are known again, what differs is said, and what chance allows is not."""

import math
import re
import time
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom

import crcen
from crcen import Budget, CRCENClassifier, TableClassifier
from crcen.tables import fingerprint as hashing
from crcen.tables.cells import ColumnCells, TableCells
from crcen.tables.columns import learn_column
from crcen.tables.profile import NewRows, kolmogorov_smirnov
from crcen.tables.reading import open_table

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
    assert hashing.chance_of_more(3, 10, 0, 40) == pytest.approx(math.comb(10, 3) / math.comb(50, 3))
    assert [hashing.chance_of_more(*counts) for counts in ((0, 10, 5, 50), (1, 10, 9, 50))] == [1.0, 1.0]
    expected = hypergeom.sf(119, 60_000, 1_120, 5_000)
    assert hashing.chance_of_more(120, 5_000, 1_000, 55_000) == pytest.approx(expected, rel=1e-9)


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
        (
            "age",
            lambda x: np.minimum(x + 20, 79).mask(x.index < 12, 85),
            "range",
            0.03,
            r"in 3 % of rows; it is at most ",
        ),
        ("country", lambda x: x.mask(x.index < 80, "FR"), "unseen", 0.2, "new or were rare in training in 20 %"),
        ("country", lambda x: "DE", "categories", 1.0, r"DE in 100 % of rows here, (8|9|1\d)(\.\d)? % in training"),
        ("is_new", lambda x: True, "categories", 1.0, "is_new is true in 100 % of rows here"),
        ("age", lambda x: x.astype(object).mask(x.index < 100, "fifty"), "unreadable", 0.25, "no number as written"),
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


def _known(n, seed=0):
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
    return columns, hashing.fingerprint_of(
        columns, TableCells(frame), _encoded(columns, frame), np.zeros(len(frame), int), 1
    )


def _judge(columns, fingerprint, frame):
    hashes = hashing.row_hashes(columns, TableCells(frame), _encoded(columns, frame), fingerprint.salt)
    return fingerprint.judge(*fingerprint.compare(hashes))


@pytest.fixture(scope="module")
def trained():
    frame = _known(400)
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
    fresh = _known(400, seed=1)
    mixed = model.recognise(pd.concat([fresh, frame[:150]]))
    for found, status, n_seen in ((model.recognise(fresh), "new", 0), (mixed, "seen", 150)):
        assert (found.status, found.n_seen) == (status, pytest.approx(n_seen, abs=50))
    assert not mixed.is_new[400:].any()  # no training row passes for a new one


def test_the_number_of_training_rows_is_stated_with_its_margin():
    rng, counts, found = np.random.default_rng(0), np.ones((2000, 1), dtype=np.int64), []
    for _ in range(200):
        old, new = rng.integers(0, 2**64, (2, 2000), dtype=np.uint64)
        new[:300] = old[:300]
        fingerprint = hashing.Fingerprint.of_hashes(1, np.sort(old), counts, 2**64 - 1, is_coarse=False)
        said = fingerprint.judge(*fingerprint.compare(new)).measured
        found.append([*map(int, re.match(r"about (\d+) \(± (\d+)\) of 2,000", said).groups())])
    estimate, margin = np.transpose(found)
    assert abs(estimate.mean() - 300) < 4 * estimate.std() / np.sqrt(200)
    assert 0.9 <= (np.abs(estimate - 300) <= margin).mean() <= 0.99


def test_rows_that_repeat_by_chance_among_many_are_no_copies():
    """Few training rows have no twin by chance, while many rows of the same distribution have one."""
    old, new = np.arange(200, dtype=np.uint64), np.random.default_rng(0).integers(0, 50_000, 20_000).astype(np.uint64)
    fingerprint = hashing.Fingerprint.of_hashes(1, old, np.ones((200, 1), dtype=np.int64), 2**64 - 1, is_coarse=True)
    assert (fingerprint.copies(new), len(fingerprint.copies(np.tile(new[:300], 2)))) == ([], 1)


def test_a_table_may_be_written_any_number_of_times():
    counts = np.random.default_rng(0).poisson(2.0, 100) + 1  # of rows that repeat by chance
    assert [hashing.times_written(n * counts) for n in (1, 2, 13, 47)] == [1, 2, 13, 47]


def test_of_many_rows_a_part_is_kept(trained):
    frame = _known(3 * hashing.MOST_HASHES).drop(columns="note")
    columns, fingerprint = _fingerprint(frame)
    assert fingerprint.rows.tolist() == [hashing.MOST_HASHES]
    found = _judge(columns, fingerprint, frame)
    assert (found.n_rows, found.n_seen, found.status) == (hashing.MOST_HASHES, hashing.MOST_HASHES, "seen")
    fresh = _judge(columns, fingerprint, _known(hashing.MOST_HASHES, seed=2).drop(columns="note"))
    # A third of all hashes are compared.
    assert (fresh.n_rows, fresh.status) == (pytest.approx(hashing.MOST_HASHES / 3, rel=0.1), "new")


def _passengers(n=2201, seed=0):
    """As on the Titanic: four columns of few categories, so that nearly all rows repeat."""
    rng = np.random.default_rng(seed)
    draw = [("1st", "2nd", "3rd", "crew"), ("man", "woman"), ("adult", "child"), ("yes", "no")]
    return pd.DataFrame({f"c{i}": rng.choice(values, n) for i, values in enumerate(draw)})


@pytest.mark.parametrize("new", [_passengers(500, seed=1), _passengers(), None], ids=["fresh", "training", "three"])
def test_where_all_rows_repeat_or_few_are_compared_nothing_is_claimed(new):
    train, new = (_known(120), _known(120)[:3]) if new is None else (_passengers(), new)
    assert _judge(*_fingerprint(train), new).status == "unknown"


def test_half_of_the_rows_have_a_twin():
    """Splits of rows that repeat by chance are never accused over many draws; copies and training rows always known."""
    rng = np.random.default_rng(3)
    pool, rows = (_known(n, seed=4)[["amount", "country", "is_new"]] for n in (1500, 900))
    pool["amount"] = (pool["amount"] / 5).round()
    copies = pd.concat([rows, rows[:300], rows[:200], rows[:100]])
    for _ in range(40):
        order = rng.permutation(len(pool))
        train, test = pool.iloc[order[400:]], pool.iloc[order[:400]]
        columns, fingerprint = _fingerprint(train)
        fresh = _judge(columns, fingerprint, test)
        assert (fresh.status, fresh.n_expected > 20) == ("new", True)
        # As many as a training row's chance of a twin says, within four standard deviations.
        assert abs(fresh.n_seen - fresh.n_expected) < 4 * np.sqrt(2 * fresh.n_expected + 0.25 / 0.75 * fresh.n_rows)
        assert _judge(columns, fingerprint, train).status == "seen"
        assert _judge(*_fingerprint(copies.iloc[order[400:]]), copies.iloc[order[:400]]).status == "seen"


def test_buckets_are_occupied_at_the_stated_rate_and_kept_in_files(trained, tmp_path):
    frame, model = trained
    fingerprint = model.fingerprint_
    assert fingerprint.false_match_rate == pytest.approx(hashing.FALSE_MATCH_RATE, abs=0.03)
    assert len(fingerprint.buckets) * 8 < 4 * len(frame)  # fewer than four bits for each row
    assert _fingerprint(frame[:399])[1].salt != _fingerprint(frame)[1].salt
    loaded = crcen.load(crcen.save(model, tmp_path / "m.crcen"))
    assert loaded.recognise(frame) == model.recognise(frame)
    del loaded.fingerprint_
    assert loaded.recognise(frame) is None


def test_hashing_takes_at_most_20_microseconds_per_row():
    frame = pd.concat([_known(5000).drop(columns="when").add_suffix(f"_{i}") for i in range(4)], axis=1)  # 20 columns
    columns, fingerprint = _fingerprint(frame)
    X = _encoded(columns, frame)
    hashing.row_hashes(columns, TableCells(frame), X, fingerprint.salt)
    start = time.process_time()
    fingerprint.compare(hashing.row_hashes(columns, TableCells(frame), X, fingerprint.salt))
    assert (time.process_time() - start) / len(frame) < 20e-6


def test_numbers_of_all_sizes():
    sizes = [0.0, -0.0, 1e-300, -3.5e-7, 9.9999996, 10.0, 123456.7, 1e15, 1e300, np.nextafter(0.1, 1)]
    frame = pd.DataFrame({"x": sizes * 3})
    _, fingerprint = _fingerprint(frame)
    assert fingerprint.rows.tolist() == [30]
    # 0 and -0, and 10 and 9.9999996 to six digits, are one value each.
    assert fingerprint.n_buckets == math.ceil(-8 / math.log(1 - hashing.FALSE_MATCH_RATE))


@pytest.mark.parametrize(
    ("rows", "twins", "n_distinct", "wanted"),
    [
        ([700, 900], [0, 890], 1007, 1),  # the rarer class oversampled until it is the commonest
        ([700, 900], [0, 890], 713, None),  # heaps of equal rows
        ([157, 297], [2, 173], 313, None),  # MASS biopsy: scores from 1 to 10, most of them 1 in benign rows
        ([700, 1000], [0, 632], 1068 + 264, 1),  # 1,000 draws of 1,000 rows: e⁻¹ are drawn once, 264 more than once
        ([200, 1800], [14, 1400], 1000, None),  # coarse columns: the common class has more twins
        ([1800, 200], [0, 180], 1860, 1),
        ([1000, 1000], [450, 470], 1500, None),
    ],
)
def test_the_class_that_was_duplicated(rows, twins, n_distinct, wanted):
    assert hashing.duplicated_class(np.array(rows), np.array(twins), n_distinct) == wanted


@pytest.mark.parametrize(("middle", "kind"), [(0.0, "distribution"), (9.0, "scale")])
def test_a_unit_is_suggested_only_for_columns_of_one_sign(middle, kind):
    rng = np.random.default_rng(3)
    x, new = rng.normal(middle, 1.0, 1500), rng.normal(0.0, 1.0, 800)
    model = TableClassifier(estimator=LINEAR).fit(pd.DataFrame({"x": x}), rng.random(1500) < 0.3)
    (found,) = unlike(model, pd.DataFrame({"x": new + 1.0 if middle == 0.0 else 10.0 * (new + middle)}))
    assert found.kind == kind
