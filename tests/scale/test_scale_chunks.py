"""The order in which rows are read, and which of them are held out."""

import numpy as np
import pytest

from crcen.exceptions import InvalidInput
from crcen.scale.sources import Chunk, held_out, plan_blocks, reading_order


@pytest.mark.parametrize("ways", [1, 3, 8])
@pytest.mark.parametrize("sizes", [[5], [100, 1, 0, 37, 250], [7] * 20, [1000, 2]])
def test_a_plan_holds_every_row_once_in_blocks_of_the_size_asked_for(sizes, ways):
    order = reading_order(len(sizes), seed=4, epoch=2)
    blocks = plan_blocks(sizes, order, block_rows=64, ways=ways)
    seen = [(s.piece, row) for block in blocks for s in block for row in range(s.start, s.stop)]
    assert sorted(seen) == [(piece, row) for piece, size in enumerate(sizes) for row in range(size)]
    lengths = [sum(s.stop - s.start for s in block) for block in blocks]
    assert all(length == 64 for length in lengths[:-1])
    assert 0 < lengths[-1] <= 64
    for piece in range(len(sizes)):  # a piece is read from its start to its end
        starts = [s.start for block in blocks for s in block if s.piece == piece]
        assert starts == sorted(starts)


def test_a_block_mixes_large_pieces():
    blocks = plan_blocks([1000] * 10, list(range(10)), block_rows=80, ways=8)
    assert all(len({s.piece for s in block}) >= 7 for block in blocks[:100])


def test_every_epoch_has_its_own_order_and_no_seed_means_as_they_stand():
    assert reading_order(50, seed=1, epoch=0) != reading_order(50, seed=1, epoch=1)
    assert reading_order(50, seed=1, epoch=0) == reading_order(50, seed=1, epoch=0)
    assert reading_order(4, seed=None, epoch=3) == [0, 1, 2, 3]


def test_held_out_rows_depend_on_their_values_alone():
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
    zeros = np.zeros((2, 2))
    zeros[1] = -0.0
    assert len(set(held_out(zeros, 0.5, seed=0).tolist())) == 1


def test_held_out_rows_are_spread_over_columns_of_few_values():
    X = np.stack(np.meshgrid(np.arange(64.0), np.arange(64.0)), -1).reshape(-1, 2)
    out = held_out(X, 0.5, seed=0).reshape(64, 64)
    assert abs(out.mean() - 0.5) < 0.04
    assert np.abs(out.mean(0) - 0.5).max() < 0.3
    assert np.abs(out.mean(1) - 0.5).max() < 0.3


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_values_that_are_not_finite_are_refused_by_column_and_origin(value, word):
    X = np.zeros((3, 2))
    X[1, 1] = value
    with pytest.raises(InvalidInput, match=f"here holds {word}.*column second"):
        Chunk(X, np.zeros(3), np.ones(3), "here").check(("first", "second"))


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_bad_weights_are_refused(weight):
    with pytest.raises(InvalidInput, match="sample weight"):
        Chunk(np.zeros((2, 1)), np.zeros(2), np.array([1.0, weight]), "here").check(("a",))
