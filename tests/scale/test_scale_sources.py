"""Files, datasets and batches: what is read, and what is refused by name."""

import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.scale.sources import open_source, read_ahead


def rows_of(source, **how):
    chunks = [chunk for block in source.blocks(100, **how) for chunk in block]
    return tuple(np.concatenate([getattr(c, name) for c in chunks]) for name in ("X", "labels", "weight"))


def sorted_rows(X, y, w):
    table = np.column_stack([X, y, w])
    return table[np.lexsort(table.T)]


@pytest.mark.parametrize("form", ["folder", "pattern", "list", "dataset", "batches", "table"])
def test_every_form_of_a_source_gives_all_rows(form, folder, table):
    X, y, w = table
    files = sorted(folder.glob("*.parquet"))
    source = {
        "folder": folder,
        "pattern": f"{folder}/*.parquet",
        "list": files,
        "dataset": ds.dataset(files),
        "batches": [(X[:100], y[:100], w[:100]), (X[100:], y[100:], w[100:])],
        "table": ds.dataset(pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y, "w": w})),
    }[form]
    opened = open_source(
        source, *(() if form == "batches" else ("y", "w")), **({"target": None} if form == "batches" else {})
    )
    for how in ({}, {"seed": 1, "epoch": 0}):
        np.testing.assert_array_equal(sorted_rows(*rows_of(opened, **how)), sorted_rows(X, y, w))


def test_reading_can_start_at_any_block(folder):
    source = open_source(folder, "y")
    whole = [list(block) for block in source.blocks(90, seed=3, epoch=1)]
    for start in range(len(whole) + 1):
        rest = [list(block) for block in source.blocks(90, seed=3, epoch=1, start=start)]
        assert len(rest) == len(whole) - start
        for ours, theirs in zip(rest, whole[start:], strict=True):
            np.testing.assert_array_equal(np.concatenate([c.X for c in ours]), np.concatenate([c.X for c in theirs]))


def test_a_block_that_nobody_reads_does_not_shift_the_next(folder):
    source = open_source(folder, "y")
    whole = [list(block) for block in source.blocks(90, seed=3, epoch=1)]
    for number, block in enumerate(source.blocks(90, seed=3, epoch=1)):
        first = next(iter(block))
        np.testing.assert_array_equal(first.X, whole[number][0].X)


def test_types_may_differ_in_width_but_not_in_kind(tmp_path, write):
    X, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1])
    write(tmp_path / "1.parquet", X, y)
    write(tmp_path / "2.parquet", X, y, types={"a": pa.float32(), "b": pa.int16(), "y": pa.int8()})
    read = rows_of(open_source(tmp_path, "y"))
    np.testing.assert_array_equal(read[0], np.concatenate([X, X]))
    write(tmp_path / "3.parquet", np.array([["x", "y", "z"]] * 4), y)
    with pytest.raises(InvalidInput, match=r"column 'a' is string in .*3\.parquet, but double in .*1\.parquet"):
        open_source(tmp_path, "y")


def test_labels_of_text_and_of_categories(tmp_path, write):
    X, y = np.zeros((3, 3)), np.array(["ok", "fraud", "ok"])
    write(tmp_path / "1.parquet", X, y)
    write(tmp_path / "2.parquet", X, y, types={"y": pa.dictionary(pa.int8(), pa.string())})
    assert rows_of(open_source(tmp_path, "y"))[1].tolist() == ["ok", "fraud", "ok"] * 2
    write(tmp_path / "3.parquet", X, np.array([0, 1, 0]))
    with pytest.raises(InvalidInput, match=r"column 'y' is int64 in .*3\.parquet"):
        open_source(tmp_path, "y")


def test_chosen_columns_and_absent_ones(folder):
    assert open_source(folder, "y", features=["c", "a"]).names == ("c", "a")
    assert open_source(folder, "y").names == ("a", "b", "c", "w")
    with pytest.raises(InvalidInput, match="no column 'z'; it has a, b, c, y, w"):
        open_source(folder, "z")


def test_truth_values_and_missing_numbers(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [True, False, None], "b": [1, None, 3], "y": [0, 1, 0]}), tmp_path / "t.parquet")
    X = rows_of(open_source(tmp_path, "y"))[0]
    np.testing.assert_array_equal(X, [[1, 1], [0, np.nan], [np.nan, 3]])
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": [0, None]}), tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match=r"column 'y' of .*t\.parquet has 1 missing"):
        rows_of(open_source(tmp_path, "y"))


def test_files_that_cannot_be_used_are_named(folder, tmp_path):
    with pytest.raises(DataUnavailable, match="is not there"):
        open_source(tmp_path / "nowhere", "y")
    with pytest.raises(DataUnavailable, match=r"gone\.parquet is not there"):
        open_source([folder / "part-0.parquet", folder / "gone.parquet"], "y")
    (folder / "part-9.parquet").write_bytes(b"PAR1 no parquet PAR1")
    with pytest.raises(DataUnavailable, match=r"part-9\.parquet cannot be read"):
        open_source(folder, "y")
    with pytest.warns(UserWarning, match=r"1 of 5 files left out: .*part-9\.parquet"):
        source = open_source(folder, "y", skip_bad_files=True)
    assert source.n_rows == 600
    for file in folder.glob("*"):
        file.write_bytes(b"")
    with pytest.raises(DataUnavailable, match="none of the 5 files"):
        open_source(folder, "y", skip_bad_files=True)


def test_a_file_that_disappears_or_changes_is_named(folder, write):
    source = open_source(folder, "y")
    (folder / "part-2.parquet").unlink()
    with pytest.raises(DataUnavailable, match=r"part-2\.parquet is not there; check the name"):
        rows_of(source)
    write(folder / "part-2.parquet", np.zeros((9, 3)), np.zeros(9, dtype=int), np.ones(9))
    with pytest.raises(DataUnavailable, match=r"part-2\.parquet was changed"):
        rows_of(source)


def test_a_filtered_dataset_is_refused_rather_than_read_whole(folder):
    filtered = ds.dataset(sorted(folder.glob("*.parquet"))).filter(ds.field("a") > 0)
    with pytest.raises(InvalidInput, match="filtered"):
        open_source(filtered, "y")


def test_hive_partitions_are_columns(tmp_path, write):
    for part in (1, 2):
        (tmp_path / f"part={part}").mkdir()
        write(tmp_path / f"part={part}" / "0.parquet", np.full((3, 3), part), np.array([0, 1, 0]))
    source = open_source(ds.dataset(tmp_path, partitioning="hive"), "y")
    assert source.names == ("a", "b", "c", "part")
    np.testing.assert_array_equal(rows_of(source)[0][:, 3], [1, 1, 1, 2, 2, 2])


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (3, "an iterable of"),
        (iter([]), "read only once"),
        ([np.zeros((2, 2))], "must be \\(X, y\\)"),
        ([(np.zeros(2), np.zeros(2))], "must have X of shape"),
        ([(np.zeros((2, 2)), np.zeros(3))], "must have X of shape"),
        ([(np.array([["a"]]), np.zeros(1))], "must hold numbers"),
        ([(np.zeros((2, 2)), np.zeros(2)), (np.zeros((2, 3)), np.zeros(2))], "all must be alike"),
    ],
)
def test_batches_that_cannot_be_used(source, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        rows_of(open_source(source, None))


def test_names_of_columns_belong_to_files_and_files_need_a_target(folder):
    with pytest.raises(InvalidParameter, match="target must name"):
        open_source(folder, None)
    with pytest.raises(InvalidParameter, match="batches bring"):
        open_source([(np.zeros((2, 2)), np.zeros(2))], "y")


def test_batches_must_stay_as_many():
    class Batches:
        def __init__(self):
            self.lengths = iter([3, 2])

        def __iter__(self):
            n = next(self.lengths)
            yield np.zeros((n, 1)), np.zeros(n)

    source = open_source(Batches(), None)
    rows_of(source)
    with pytest.raises(InvalidInput, match="3 rows at first and 2 now"):
        rows_of(source)


def test_reading_ahead_keeps_order_errors_and_bounds():
    made = []

    def items():
        for i in range(20):
            made.append(i)
            yield i
        raise RuntimeError("the end")

    got = []
    ahead = read_ahead(items())
    for _ in range(20):
        time.sleep(0.001)
        got.append(next(ahead))
        assert len(made) <= got[-1] + 2
    assert got == list(range(20))
    with pytest.raises(RuntimeError, match="the end"):
        next(ahead)


def test_reading_ahead_ends_its_thread_when_nobody_listens():
    before = threading.active_count()
    for _ in read_ahead(iter(range(1000))):
        break
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_epochs_differ_in_order(folder):
    source = open_source(folder, "y")
    first, second, again = (rows_of(source, seed=3, epoch=epoch)[0] for epoch in (0, 1, 0))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
