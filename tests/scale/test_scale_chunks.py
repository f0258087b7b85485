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


def test_a_block_mixes_large_pieces_and_every_epoch_has_its_own_order():
    blocks = plan_blocks([1000] * 10, list(range(10)), block_rows=80, ways=8)
    assert all(len({s.piece for s in block}) >= 7 for block in blocks[:100])
    first, second, again = (reading_order(50, seed=1, epoch=epoch) for epoch in (0, 1, 0))
    assert first == again != second
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
    # They are spread over columns of few values.
    grid = np.stack(np.meshgrid(np.arange(64.0), np.arange(64.0)), -1).reshape(-1, 2)
    out = held_out(grid, 0.5, seed=0).reshape(64, 64)
    assert abs(out.mean() - 0.5) < 0.04
    assert max(np.abs(out.mean(axis) - 0.5).max() for axis in (0, 1)) < 0.3


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
