"""Rows held out over time where there are few moments, as in a column of years."""

from types import SimpleNamespace

import pandas as pd
import pytest

from crcen import InvalidInput
from crcen.commands.learners import folds_of, times_or_clusters


def rows_at(years, events):
    """Ten rows a year, so many of each positive."""
    cells = [(year, int(i < n)) for year, n in zip(years, events, strict=True) for i in range(10)]
    frame = pd.DataFrame(cells, columns=["year", "y"])
    return SimpleNamespace(frame=frame, y=frame["y"])


@pytest.mark.parametrize(
    ("events", "n_folds"),
    [([3, 3, 3, 3, 3], 4), ([4, 4, 4], 2), ([1, 1, 9, 1, 1], 1), ([5, 5], 1)],
)
def test_there_are_as_many_folds_as_the_years_allow(events, n_folds):
    rows = rows_at(range(2000, 2000 + len(events)), events)
    splitter, said = folds_of(rows, None, "year", 4, 0)
    found = list(splitter.split(None, rows.y, times_or_clusters(rows, None, "year")))
    assert len(found) == n_folds
    assert said.startswith(f"{n_folds} fold")
    for train, test in found:
        assert rows.frame["year"][train].max() < rows.frame["year"][test].min()
        assert rows.y[train].any()
        assert rows.y[test].any()


def test_one_moment_is_refused():
    rows = rows_at([2000], [4])
    splitter, _ = folds_of(rows, None, "year", 4, 0)
    with pytest.raises(InvalidInput, match="time cannot be cut"):
        list(splitter.split(None, rows.y, times_or_clusters(rows, None, "year")))
