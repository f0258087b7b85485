"""Files, datasets and batches: the order of rows, held-out rows, rejected files; counts and moments in any cut."""

import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.scale.sources import Chunk, StreamStatistics, held_out, open_source, plan_blocks, read_ahead, reading_order
from crcen.training.network import standardization


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
    opened = open_source(source, *((None, None) if form == "batches" else ("y", "w")))
    for how in ({}, {"seed": 1, "epoch": 0}):
        np.testing.assert_array_equal(sorted_rows(*rows_of(opened, **how)), sorted_rows(X, y, w))


def test_blocks_are_the_same_from_any_start_and_epochs_differ(folder):
    source = open_source(folder, "y")

    def blocks(**how):
        return [np.concatenate([chunk.X[:, 0] for chunk in block]) for block in source.blocks(90, seed=3, **how)]

    whole = blocks(epoch=1)
    for start in range(len(whole) + 1):
        late = blocks(epoch=1, start=start)
        np.testing.assert_array_equal(np.concatenate([*late, []]), np.concatenate([*whole[start:], []]))
    # A block that is not read to its end does not shift the next one.
    for number, block in enumerate(source.blocks(90, seed=3, epoch=1)):
        first = next(iter(block)).X[:, 0]
        np.testing.assert_array_equal(first, whole[number][: len(first)])
    assert not np.array_equal(np.concatenate(blocks(epoch=0)), np.concatenate(whole))


def test_types_may_differ_in_width_but_not_in_kind(tmp_path, write):
    X, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1])
    names = np.where(y, "fraud", "ok")
    for folder, labels, other, bad in (
        (tmp_path / "numbers", y, pa.int8(), (np.array([["x", "y", "z"]] * 4), y)),
        (tmp_path / "texts", names, pa.dictionary(pa.int8(), pa.string()), (X, y)),
    ):
        folder.mkdir()
        write(folder / "1.parquet", X, labels)
        write(folder / "2.parquet", X, labels, types={"a": pa.float32(), "b": pa.int16(), "y": other})
        found = rows_of(open_source(folder, "y"))
        np.testing.assert_array_equal(found[0], np.concatenate([X, X]))
        assert found[1].tolist() == labels.tolist() * 2
        write(folder / "3.parquet", *bad)
        words = r"column '(a' is string|y' is int64) in .*3\.parquet, but (double|string) in .*1\.parquet"
        with pytest.raises(InvalidInput, match=words):
            open_source(folder, "y")


def test_chosen_absent_and_partition_columns(folder, tmp_path, write):
    assert open_source(folder, "y", features=["c", "a"]).names == ("c", "a")
    assert open_source(folder, "y").names == ("a", "b", "c", "w")
    with pytest.raises(InvalidInput, match="no column 'z'; it has a, b, c, y, w"):
        open_source(folder, "z")
    write(tmp_path / "0.parquet", np.ones((2, 3)), np.array([0, 1]))
    files = [tmp_path / "0.parquet", *sorted(folder.glob("*"))]
    with pytest.warns(UserWarning, match=r"the first file lacks are left out: w \(in .*part-0\.parquet\); features="):
        assert open_source(files, "y").names == ("a", "b", "c")
    assert open_source(files, "y", features=["a"]).names == ("a",)  # without a warning
    pq.write_table(pa.table({"a": [0.5], "z": [0.5], "y": [1]}), tmp_path / "bad.parquet")
    with pytest.warns(UserWarning, match="1 of 2 files left out: ") as said:
        open_source([files[0], tmp_path / "bad.parquet"], "y", skip_bad_files=True)
    assert len(said) == 1  # none of its columns
    for part in (1, 2):
        (tmp_path / "hive" / f"part={part}").mkdir(parents=True)
        write(tmp_path / "hive" / f"part={part}" / "0.parquet", np.full((3, 3), part), np.array([0, 1, 0]))
    source = open_source(ds.dataset(tmp_path / "hive", partitioning="hive"), "y")
    assert source.names == ("a", "b", "c", "part")
    np.testing.assert_array_equal(rows_of(source)[0][:, 3], [1, 1, 1, 2, 2, 2])


def test_truth_values_and_missing_numbers(tmp_path):
    pq.write_table(pa.table({"a": [True, False, None], "b": [1, None, 3], "y": [0, 1, 0]}), tmp_path / "t.parquet")
    X = rows_of(open_source(tmp_path, "y"))[0]
    np.testing.assert_array_equal(X, [[1, 1], [0, np.nan], [np.nan, 3]])
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": [0, None]}), tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match=r"column 'y' of .*t\.parquet has 1 missing"):
        rows_of(open_source(tmp_path, "y"))


def test_files_that_cannot_be_used_are_named(folder, tmp_path, write):
    filtered = ds.dataset(sorted(folder.glob("*.parquet"))).filter(ds.field("a") > 0)
    for source, target, error, words in (
        (tmp_path / "nowhere", "y", DataUnavailable, "does not exist"),
        ([folder / "part-0.parquet", folder / "gone.parquet"], "y", DataUnavailable, r"gone\.parquet does not exist"),
        (folder, None, InvalidParameter, "target must name"),
        ([(np.zeros((2, 2)), [0, 1])], "y", InvalidParameter, "batches bring"),
        (filtered, "y", InvalidInput, "filtered"),  # rather than read whole
    ):
        with pytest.raises(error, match=words):
            open_source(source, target)
    source = open_source(folder, "y")
    (folder / "part-2.parquet").rename(tmp_path / "away")
    with pytest.raises(DataUnavailable, match=r"part-2\.parquet does not exist; check the name"):
        rows_of(source)
    write(folder / "part-2.parquet", np.zeros((9, 3)), np.zeros(9, dtype=int), np.ones(9))
    with pytest.raises(DataUnavailable, match=r"part-2\.parquet was changed"):
        rows_of(source)
    (tmp_path / "away").rename(folder / "part-2.parquet")
    (folder / "part-9.parquet").write_bytes(b"PAR1 no parquet PAR1")
    with pytest.raises(DataUnavailable, match=r"part-9\.parquet cannot be read"):
        open_source(folder, "y")
    with pytest.warns(UserWarning, match=r"1 of 5 files left out: .*part-9\.parquet"):
        assert open_source(folder, "y", skip_bad_files=True).n_rows == 600
    for file in folder.glob("*"):
        file.write_bytes(b"")
    with pytest.raises(DataUnavailable, match="none of the 5 files"):
        open_source(folder, "y", skip_bad_files=True)


class FewerBatches:
    """Three rows when it is read first, then two."""

    lengths = iter([3, 2])

    def __iter__(self):
        n = next(self.lengths)
        yield np.zeros((n, 1)), np.zeros(n)


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
        (FewerBatches(), "3 rows at first and 2 now"),
    ],
)
def test_batches_that_cannot_be_used(source, sentence):
    with pytest.raises(InvalidInput, match=sentence):  # noqa: PT012
        opened = open_source(source, None)
        rows_of(opened)
        rows_of(opened)


def test_reading_ahead_keeps_order_errors_and_bounds_and_ends_its_thread():
    made, before = [], threading.active_count()

    def items():
        for i in range(20):
            made.append(i)
            yield i
        raise RuntimeError("the end")

    ahead = read_ahead(items())
    for number in range(20):
        time.sleep(0.001)
        assert next(ahead) == number
        assert len(made) <= number + 2
    with pytest.raises(RuntimeError, match="the end"):
        next(ahead)
    next(read_ahead(iter(range(1000))))
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


@pytest.mark.parametrize("ways", [1, 3, 8])
@pytest.mark.parametrize("sizes", [[5], [100, 1, 0, 37, 250], [7] * 20, [1000, 2]])
def test_a_plan_holds_every_row_once_in_blocks_of_the_size_asked_for(sizes, ways):
    order = reading_order(len(sizes), seed=4, epoch=2)
    blocks = plan_blocks(sizes, order, block_rows=64, ways=ways)
    seen = [(piece, row) for block in blocks for piece, start, stop in block for row in range(start, stop)]
    assert sorted(seen) == [(piece, row) for piece, size in enumerate(sizes) for row in range(size)]
    lengths = [sum(stop - start for _, start, stop in block) for block in blocks]
    assert all(length == 64 for length in lengths[:-1])
    assert 0 < lengths[-1] <= 64
    for piece in range(len(sizes)):  # a piece is read from its start to its end
        starts = [start for block in blocks for own, start, _ in block if own == piece]
        assert starts == sorted(starts)


def test_a_block_mixes_large_pieces_and_every_epoch_has_its_own_order():
    blocks = plan_blocks([1000] * 10, list(range(10)), block_rows=80, ways=8)
    assert all(len({piece for piece, _, _ in block}) >= 7 for block in blocks[:100])
    first, second, again = (reading_order(50, seed=1, epoch=epoch) for epoch in (0, 1, 0))
    assert first == again != second
    assert reading_order(4, seed=None, epoch=3) == [0, 1, 2, 3]


def test_held_out_rows_depend_on_their_values_alone(folder, table):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4))
    out = held_out(X, 0.2, seed=3)
    order = rng.permutation(len(X))
    np.testing.assert_array_equal(held_out(X[order], 0.2, seed=3), out[order])
    np.testing.assert_array_equal(held_out(np.asfortranarray(X), 0.2, seed=3), out)
    assert out.mean() == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / len(X)))
    other = held_out(X, 0.2, seed=4)
    assert (out & other).mean() == pytest.approx(0.04, abs=0.01)  # independent of it
    # Nearby fractions are nested, and 0 and −0 are one value.
    assert not (out & ~held_out(X, 0.3, seed=3)).any()
    assert len(set(held_out(np.array([[0.0, 0.0], [-0.0, -0.0]]), 0.5, seed=0).tolist())) == 1
    # They are spread over columns of few values.
    grid = np.stack(np.meshgrid(np.arange(64.0), np.arange(64.0)), -1).reshape(-1, 2)
    out = held_out(grid, 0.5, seed=0).reshape(64, 64)
    assert abs(out.mean() - 0.5) < 0.04
    assert max(np.abs(out.mean(axis) - 0.5).max() for axis in (0, 1)) < 0.3
    source, (X, _, _) = open_source(folder, "y", features=["a", "b", "c"]), table
    kept = rows_of(source.without_held_out(0.3, 5))[0]
    expected = X[~held_out(X, 0.3, 5)]
    np.testing.assert_array_equal(kept[np.lexsort(kept.T)], expected[np.lexsort(expected.T)])
    assert source.without_held_out(0.3, 5).fingerprint != source.fingerprint


@pytest.mark.parametrize(
    ("value", "weight", "words"),
    [
        (np.nan, 1.0, "here holds NaN.*column second"),
        (np.inf, 1.0, "here holds infinity.*column second"),
        *((0.0, weight, "sample weight") for weight in (-1.0, np.nan, np.inf)),
    ],
)
def test_values_and_weights_that_cannot_be_used_are_rejected(value, weight, words):
    X = np.array([[0.0, 0.0], [0.0, value]])
    with pytest.raises(InvalidInput, match=words):
        Chunk(X, np.zeros(2), np.array([1.0, weight]), "here").check(("first", "second"))


NAMES = ("a", "b", "c")


def statistics_of(X, y, w, cuts, **settings):
    found = StreamStatistics(NAMES, **settings)
    for rows in np.split(np.arange(len(X)), cuts):
        if len(rows):
            found.add(Chunk(X[rows], y[rows], w[rows], "here"))
    return found


@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3, 599], list(range(10, 600, 7))])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_streamed_standardisation_is_that_of_all_rows_but_held_out_ones(table, cuts, share):
    X, y, w = table
    found = statistics_of(X, y, w, cuts, validation_fraction=share, seed=9)
    kept = ~held_out(X, share, 9)
    mean, scale = standardization(X[kept], w[kept])
    np.testing.assert_allclose(found.moments.encoding().mean, mean, rtol=1e-13)
    np.testing.assert_allclose(found.moments.encoding().scale, scale, rtol=1e-10)
    assert (found.totals.n_rows, found.train_totals.n_rows) == (600, kept.sum())
    assert kept.sum() > 300
    assert kept.all() == (share == 0)


def test_workers_merge_to_the_same_and_a_third_label_is_a_class(table):
    X, y, w = table
    third = statistics_of(X, np.where(np.arange(600) == 550, 2, y), w, [500])
    assert (third.classes().tolist(), third.totals.weight[2]) == ([0, 1, 2], w[550])
    with pytest.raises(InvalidInput, match="too large"):
        statistics_of(X * 1e200, y, w, []).moments.encoding()
    whole = statistics_of(X, y, w, [100])
    left, right = (statistics_of(X[part], y[part], w[part], []) for part in (slice(0, 17), slice(17, None)))
    left.merge(right)
    left.merge(StreamStatistics(NAMES))  # a worker without rows
    np.testing.assert_allclose(left.moments.mean, whole.moments.mean, rtol=1e-13)
    np.testing.assert_allclose(left.moments.squares, whole.moments.squares, rtol=1e-10)
    assert left.totals.rows == whole.totals.rows == {0: int((y == 0).sum()), 1: int(y.sum())}
    assert left.totals.weights(np.array([1, 0])) == pytest.approx([w[y == 1].sum(), w[y == 0].sum()], rel=1e-12)
    twice = StreamStatistics(NAMES)  # workers with equal rows
    for _ in range(2):
        twice.merge(right)
    assert twice.moments.weight == pytest.approx(2 * right.moments.weight)


def test_constant_columns_and_rows_without_weight(table):
    _, y, w = table
    X = np.column_stack([np.full(600, 1e30), np.full(600, 0.1), np.where(np.arange(600) < 20, 50.0, 7.0)])
    w = np.where(np.arange(600) < 20, 0.0, w)
    encoding = statistics_of(X, y, w, [5, 30]).moments.encoding()
    np.testing.assert_array_equal(encoding.mean, [1e30, 0.1, 7.0])
    np.testing.assert_array_equal(encoding.scale, [1.0, 1.0, 1.0])
