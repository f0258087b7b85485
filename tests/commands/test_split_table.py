"""split_table: every row once, shares kept, clusters and times respected, nothing replaced."""

import gzip
import json
import shlex

import numpy as np
import pandas as pd
import pandas.testing
import pytest

from crcen import InvalidInput, InvalidParameter, split_table
from crcen.commands import split as splitting
from crcen.tables.reading import open_table


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
    assert len(parts[1]) == pytest.approx(250, abs=1)
    assert sum(done.n_rows) == 1000
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
    done = split_table(tmp_path / "a.parquet", target="y")
    assert pq.read_schema(done.train) == table.schema


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
        ({"bad": "no"}, {}, "at least two different values: got one, no"),
        ({"patient": 1}, {"clusters": "patient"}, "at least two different values"),
        ({"when": "2024-01-01"}, {"time": "when"}, "at one moment"),
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
    assert lines[1].endswith(" and 3 more)")
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
