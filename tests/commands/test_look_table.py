"""inspect_table and split_table: the columns of a fit with gaps, ids and leaks; every row in one of two files."""

import gzip
import json
import shlex

import numpy as np
import pandas as pd
import pandas.testing
import pytest
from sklearn.metrics import roc_auc_score

from crcen import InvalidInput, InvalidParameter, TableClassifier, inspect_table, split_table
from crcen.commands import split as splitting
from crcen.tables.reading import open_table

RNG = np.random.default_rng(0)
N = 800
Y = RNG.random(N) < 0.15
FRAME = pd.DataFrame(
    {
        "id": [f"C{i:05d}" for i in range(N)],
        "amount": RNG.normal(size=N) + Y,
        "price": [f"${cell:,.2f}" for cell in RNG.gamma(2.0, 900.0, N)],
        "country": RNG.choice(["NL", "NO", "SE"], N),
        "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
        "age": np.where(RNG.random(N) < 0.25, np.nan, RNG.integers(18, 90, N)),
        "collected": np.where(Y, RNG.gamma(2.0, 50.0, N), 0.0),
        "same": 1,
        "late": np.where(Y, "yes", "no"),
    }
)


@pytest.fixture(scope="module")
def look():
    return inspect_table(FRAME, target="late")


def test_kinds_gaps_and_reasons_are_those_of_a_fit(look):
    reader = TableClassifier(random_state=0).learn_columns(FRAME.drop(columns="late"))
    kinds = {one.name: one.kind for one in look.columns}
    assert kinds == {column.name: column.kind for column in reader.columns_} | dict.fromkeys(["id", "same"], "left out")
    assert {one.name: one.plan for one in look.columns if one.kind == "left out"} == {
        one.name: one.reason for one in reader.dropped_
    }
    found = {one.name: one for one in look.columns}
    assert found["age"].n_missing == FRAME.age.isna().sum()
    assert found["age"].plan == "used as a number; missing values are filled and have an indicator column"
    assert "$" in found["price"].note  # money as text
    assert (found["country"].n_values, look.counts) == (3, {"yes": int(Y.sum()), "no": int((~Y).sum())})


def test_areas_are_those_of_scikit_learn_and_leaks_are_named(look):
    found = {one.name: one for one in look.columns}
    assert found["amount"].area == pytest.approx(roc_auc_score(Y, FRAME.amount), abs=1e-12)
    assert found["collected"].is_suspect
    assert [one.name for one in look.columns if one.is_suspect] == ["collected"]
    assert look.to_dict()["suspects"] == ["collected"]
    assert any("collected alone nearly separates yes" in note for note in look.notes)
    assert found["country"].area < 0.65
    dropped = inspect_table(FRAME, target="late", drop="collected")
    assert not any("nearly separate" in note for note in dropped.notes)
    assert next(one.plan for one in dropped.columns if one.name == "collected") == "asked for"


@pytest.mark.parametrize(
    ("n_late", "head", "note"),
    [
        (0, "late: no (800)", "late has 1 value"),
        (1, "late: yes (1), no (799); 1 row in 800 is yes", "late has 1 row of yes, and a fit needs 2 of each class"),
        (4, "late: yes (4), no (796); 1 row in 200 is yes", "up to ±49 percentage points, and leaks cannot be found"),
        (400, "late: yes (400), no (400); 1 row in 2 is yes", "yes (50 % of rows) is the positive class"),
    ],
)
def test_a_table_with_hardly_an_event_is_described(n_late, head, note):
    look = inspect_table(FRAME.assign(late=np.where(np.arange(N) < n_late, "yes", "no")), target="late")
    assert str(look).split("\n", 1)[0].endswith(head)
    assert any(note in one for one in look.notes)


def test_it_prints_and_shows_itself_escaped():
    frame = FRAME.rename(columns={"country": "<b>country</b>"})
    constant = inspect_table(FRAME.assign(note="two\nlines " + 60 * "x")).columns[-1].plan
    assert constant == f"constant: every value is two lines {29 * 'x'}…"
    look = inspect_table(frame, target="late")
    assert "<b>" not in look._repr_html_()
    assert "\n" not in repr(look)
    lines = str(look).splitlines()
    said = f"{N} rows, 8 columns; late: yes ({Y.sum()}), no ({N - Y.sum()}); 1 row in {N / Y.sum():.0f} is yes"
    assert lines[0] == f"the data frame: {said}"
    assert sum(line.split("  ")[0] in frame.columns for line in lines) == 8
    low, middle, high = (f"{value:.4g}" for value in np.quantile(frame["amount"], [0, 0.5, 1]))
    assert f"used as a number; from {low} to {high}, median {middle}" in str(look)


def test_without_a_target_and_with_many_values():
    plain = inspect_table(FRAME)
    assert (len(plain.columns), all(np.isnan(one.area) for one in plain.columns)) == (9, True)
    assert inspect_table(FRAME, clusters="age").clusters["missing"] == FRAME["age"].isna().sum() > 0
    several = inspect_table(FRAME.assign(copy=FRAME["country"]), target="country")
    assert set(several.counts) == set(FRAME["country"])
    assert [one.name for one in several.columns if one.is_suspect] == ["copy"]
    many = inspect_table(FRAME.assign(number=np.arange(N)), target="number")
    assert any(f"number has {N} values, and classes are 2 to 50" in note for note in many.notes)
    notes = inspect_table(pd.DataFrame({"x": range(20), "y": ["a"] * 20}), target="y").notes
    assert "y has 1 value, and classes are 2 to 50: rows of another class are needed" in notes
    useless = inspect_table(pd.DataFrame({"a": [1, 1, 1], "b": [None, None, None]}))
    assert [one.kind for one in useless.columns] == ["left out", "left out"]
    one = inspect_table(FRAME, target="country", positive="NO")
    assert set(one.counts) == {"NO", "not NO"}
    with pytest.raises(InvalidParameter, match="must be a column"):
        inspect_table(FRAME, target="nothing")
    with pytest.raises(InvalidParameter, match="positive= needs target="):
        inspect_table(FRAME, positive="NO")
    for n in (0, 2):
        with pytest.raises(InvalidInput, match=r"^the data frame has no row with a value of y\.$"):
            inspect_table(pd.DataFrame({"x": range(n), "y": [None] * n}), target="y")


def test_a_large_table_is_described_by_a_sample_with_missing_cells_of_all_rows(monkeypatch):
    monkeypatch.setattr("crcen.commands.look._MOST_DESCRIBED", 500)
    rng = np.random.default_rng(0)
    n = 4000
    frame = pd.DataFrame({"x": rng.normal(size=n), "id": np.arange(n), "y": np.where(rng.random(n) < 0.2, "a", "b")})
    frame.loc[:6, "x"] = np.nan
    for target in (None, "y"):
        found = inspect_table(frame, target=target).to_dict()
        columns = {one["name"]: one for one in found["columns"]}
        assert (found["rows"], columns["x"]["n_missing"]) == (n, 7)
        assert columns["x"]["n_values"] <= 500
        assert "row number" in columns["id"]["plan"]
        assert any("a random sample of 500 rows" in note for note in found["notes"])


def crossing(done):
    """Test rows that are also training rows."""
    train, test = (pd.read_csv(place, dtype=str) for place in (done.train, done.test))
    return len(test.merge(train.drop_duplicates()))


# Eight columns together tell rows apart; flags do not, but a table that is written twice has each row an even number of
# times, and copies of half of the rows make too many pairs. Independent rows of a few values are equal by chance.
@pytest.mark.parametrize(
    ("n_columns", "n_values", "n_times"), [(8, 100, 2), (9, 2, 2), (9, 2, 1), (1, 100, 1), (13, 2, 1.5)]
)
def test_copies_are_told_from_rows_that_are_equal_by_chance(tmp_path, crcen_command, n_columns, n_values, n_times):
    def draw(rng):
        cells = rng.integers(0, n_values, (600, n_columns))
        return pd.DataFrame(cells).add_prefix("x").assign(y=rng.random(600) < 0.25)

    is_named, rows = n_times > 1, draw(np.random.default_rng(0))
    n_copies = int(n_times * 600) - len(rows.drop_duplicates())
    rows = pd.concat([rows, rows[: int((n_times - 1) * 600)]]).sample(frac=1.0, random_state=0)
    rows.to_csv(tmp_path / "a.csv", index=False)
    for command in ("look", "split"):
        _, out, _ = crcen_command(command, tmp_path / "a.csv", "--target", "y")
        said = f"{n_copies:,} of {len(rows):,} rows are copies of other rows"
        assert (said in out) == is_named
        assert ("(each row occurs 2 times or a multiple" in out) == (n_times == 2)
        assert ("rows equal others, by chance or because they belong together" in out) != is_named
    assert ("copies of a row in the same file" in out) == is_named
    model = tmp_path / "m.crcen"
    _, out, _ = crcen_command("fit", tmp_path / "a_train.csv", "--target", "y", "--quick", "--out", model)
    assert ("copies of a row were held out together" in out) == is_named
    assert crcen_command("evaluate", model, tmp_path / "a_test.csv", "--fail-on", "CRC008")[0] == 0
    if is_named:
        assert crcen_command("evaluate", model, tmp_path / "a_train.csv", "--fail-on", "CRC008")[0] == 3
        draw(np.random.default_rng(1)).to_csv(tmp_path / "b.csv", index=False)  # equal to training rows by chance only
        assert crcen_command("evaluate", model, tmp_path / "b.csv", "--fail-on", "CRC008")[0] == 0


@pytest.mark.parametrize("n_positive", [400, 30])  # drawn at random, and in the same share of each label
def test_copies_stay_in_one_file(tmp_path, monkeypatch, n_positive):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(1000, 2)), columns=["a", "b"]).assign(y=np.arange(1000) < n_positive)
    rows = pd.concat([rows, rows[:100], rows[:100]])
    rows.to_csv(tmp_path / "a.csv", index=False)
    done = split_table(tmp_path / "a.csv", target="y", test=0.3)
    assert (crossing(done), done.duplicates.n_crossing, done.n_rows[1]) == (0, 0, pytest.approx(360, abs=3))
    assert done.is_stratified == (n_positive == 30)
    assert done.counts["True"][1] == pytest.approx(0.3 * rows["y"].sum(), abs=2 if n_positive == 30 else 60)
    # One different row of a label cannot be in both files without its copies.
    one = pd.concat([rows[~rows["y"]], rows[:1], rows[:1], rows[:1]])
    one.to_csv(tmp_path / "c.csv", index=False)
    done = split_table(tmp_path / "c.csv", target="y")
    assert done.counts["True"] == (2, 1)
    assert "test rows are also training rows" in str(done)
    # A large file has its copies behind the first chunk.
    monkeypatch.setattr(splitting, "_CHUNK_ROWS", 100)
    pd.concat([rows[:1000]] * 2).to_csv(tmp_path / "b.csv", index=False)
    done = split_table(tmp_path / "b.csv", target="y")
    assert (crossing(done), "copies of a row in the same file" in done.how) == (0, True)


def test_copies_with_several_labels_and_rows_that_repeat_often(tmp_path):
    rng = np.random.default_rng(0)
    once = pd.DataFrame(rng.normal(size=(60, 4)), columns=list("abcd"))
    split_table(pd.concat([once.assign(y=y) for y in (0, 0, 1)]), target="y", folder=tmp_path)
    many = pd.DataFrame(rng.normal(size=(1000, 4)), columns=list("abcd")).assign(y=rng.integers(0, 2, 1000))
    many.loc[:399, list("abcd")] = 0.0
    for seed in range(4):
        (tmp_path / str(seed)).mkdir()
        done = split_table(many, target="y", folder=tmp_path / str(seed), random_state=seed)
        assert done.n_rows == (750, 250)
        assert 60 < (pd.read_parquet(done.test)["a"] == 0.0).sum() < 140


def test_far_dates_and_words_that_may_be_missing():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"state": rng.choice(["ND", "SD", "NY", "CA"], 200)})  # ND is North Dakota
    rows["grade"] = rng.choice(["low", "high", "nd"], 200)
    days = (pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 200), "D")).strftime("%Y-%m-%d")
    rows["until"] = np.where(np.arange(200) % 9 == 0, "9999-12-31", days)
    n_words = int((rows.grade == "nd").sum())
    assert inspect_table(rows).placeholders == {"grade": {"nd": n_words}, "until": {"9999-12-31": 23}}


@pytest.fixture
def visits(mixed_table):
    """Rows with a number of their own, a patient, and a day."""
    frame = mixed_table(1000).assign(patient=np.arange(1000) // 4)
    return frame.sample(frac=1, random_state=0).reset_index(drop=True)


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet"])
def test_every_row_is_in_one_file_as_it_was(visits, tmp_path, monkeypatch, ending):
    monkeypatch.setattr(splitting, "_CHUNK_ROWS", 64)
    path = tmp_path / f"visits.{ending}"
    if ending == "parquet":
        visits.to_parquet(path)
    else:
        visits.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    done = split_table(path, target="bad")
    assert (done.train.name, done.test.name) == (f"visits_train.{ending}", f"visits_test.{ending}")
    whole = open_table(path).read()
    parts = [open_table(place).read() for place in (done.train, done.test)]
    both = pd.concat(parts).set_index("id", drop=False).loc[whole["id"]].reset_index(drop=True)
    pandas.testing.assert_frame_equal(both, whole)
    # In the order of the file, and in the same shares.
    order = whole["id"].tolist()
    for part in parts:
        assert part["id"].tolist() == sorted(part["id"], key=order.index)
        assert (part["bad"] == "yes").mean() == pytest.approx((whole["bad"] == "yes").mean(), abs=0.002)
    assert (len(parts[1]), sum(done.n_rows)) == (pytest.approx(250, abs=1), 1000)
    if ending == "csv.gz":
        assert gzip.decompress(done.train.read_bytes()).startswith(b"id,")


def test_a_seed_gives_the_same_files_and_another_gives_others(visits, tmp_path):
    visits.to_csv(tmp_path / "a.csv", index=False)
    found = []
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        (tmp_path / name).mkdir()
        done = split_table(tmp_path / "a.csv", target="bad", random_state=seed, folder=tmp_path / name)
        found.append(done.test.read_bytes())
    assert found[0] == found[1] != found[2]


def test_clusters_stay_in_one_file(visits, tmp_path):
    visits.to_csv(tmp_path / "a.csv", index=False)
    done = split_table(tmp_path / "a.csv", target="bad", clusters="patient", test=0.2)
    train, test = (pd.read_csv(place) for place in (done.train, done.test))
    assert not set(train["patient"]) & set(test["patient"])
    assert len(test) == pytest.approx(200, abs=20)
    assert (test["bad"] == "yes").mean() == pytest.approx((visits["bad"] == "yes").mean(), abs=0.03)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_latest_rows_are_kept_apart(visits, tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    visits.to_csv(path, index=False) if ending == "csv" else visits.to_parquet(path)
    done = split_table(path, target="bad", time="when", test=0.3)
    train, test = (open_table(place).read() for place in (done.train, done.test))
    assert train["when"].max() < test["when"].min()
    assert len(test) == pytest.approx(300, abs=10)


def test_parquet_keeps_its_types(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {"n": pa.array([1, None] * 20, pa.int32()), "y": ["a", "b"] * 20, "d": pa.array([1] * 40, pa.date32())}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert pq.read_schema(split_table(tmp_path / "a.parquet", target="y").train) == table.schema


def test_rows_without_a_label_go_to_both_and_the_next_commands_are_printed(visits, tmp_path):
    visits.loc[:99, "bad"] = None
    visits.to_csv(tmp_path / "a.csv", index=False)
    done = split_table(tmp_path / "a.csv", target="bad")
    assert done.counts["no value"] == (75, 25)
    assert f"crcen fit {done.train} --target bad --out model.crcen" in str(done)
    assert f"crcen evaluate model.crcen {done.test}" in str(done)
    plain = json.loads(json.dumps(done.to_dict()))
    assert plain["train"]["rows"] + plain["test"]["rows"] == 1000
    assert plain["test"]["labels"]["yes"] == (pd.read_csv(done.test)["bad"] == "yes").sum()


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({}, {"target": "Bad"}, "did you mean bad?"),
        ({}, {"time": "country"}, "numbers or dates of one format"),
        ({}, {"target": "amount"}, "more than 50; is it the label?"),
        ({"bad": "no"}, {}, "must have two different values: got one, no"),
        ({"bad": ["one"] + ["no"] * 499 + ["yes"] * 500}, {}, "at least 2 rows of each value, one for each file"),
        ({"patient": 1}, {"clusters": "patient"}, "at least two different values"),
        ({"when": "2024-01-01"}, {"time": "when"}, "time= leaves no training row of bad = no"),
    ],
)
def test_bad_input_is_one_sentence(visits, tmp_path, change, options, said):
    visits.assign(**change).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises((InvalidInput, InvalidParameter), match=said.replace("?", r"\?")):
        split_table(tmp_path / "a.csv", **{"target": "bad", **options})
    assert [one.name for one in tmp_path.iterdir()] == ["a.csv"]


def test_nothing_is_replaced(visits, tmp_path):
    visits.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "a_test.csv").write_text("mine")
    with pytest.raises(InvalidParameter, match="exists, and split does not replace files"):
        split_table(tmp_path / "a.csv", target="bad")
    assert (tmp_path / "a_test.csv").read_text() == "mine"
    assert not (tmp_path / "a_train.csv").exists()


def test_what_is_printed_hides_no_class_and_can_be_typed(tmp_path):
    place = tmp_path / "my rows.csv"
    kinds = [f"kind {k:02}" for k in range(15)]
    pd.DataFrame({"x": range(150), "my kind": kinds * 10}).to_csv(place, index=False)
    lines = str(split_table(place, target="my kind")).split("\n")
    assert lines[1].endswith(" and 3 more")
    assert sum(kind in lines[1] for kind in kinds) == 12
    assert shlex.split(lines[4])[2:5] == [str(tmp_path / "my rows_train.csv"), "--target", "my kind"]


@pytest.mark.parametrize(("option", "column"), [("clusters", "patient"), ("time", "when")])
def test_next_command_validates_as_the_split_did(visits, tmp_path, crcen_command, monkeypatch, option, column):
    monkeypatch.chdir(tmp_path)
    visits.rename(columns={column: f"its {column}"}).to_csv("a.csv", index=False)
    code, out, _ = crcen_command("split", "a.csv", "--target", "bad", f"--{option}", f"its {column}")
    assert code == 0
    command = shlex.split(next(line for line in out.splitlines() if "crcen fit" in line))[1:]
    assert command[command.index(f"--{option}") + 1] == f"its {column}"
    code, out, _ = crcen_command(*command, "--quick", "--json")
    assert code == 0
    assert f"its {column}" in json.loads(out)["validation"]["how"]
    stored = json.loads(crcen_command("info", "model.crcen", "--json")[1])["clusters"]
    assert stored == (f"its {column}" if option == "clusters" else None)
