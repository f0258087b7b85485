import dataclasses

import numpy as np
import pytest

from crcen.datasets import Dataset
from crcen.exceptions import InvalidInput


def test_arrays_are_converted_and_counted():
    data = Dataset("toy", np.asfortranarray(np.ones((5, 2), dtype=np.float32)), [0, 0, 1, 0, 0], ("a", "b"), "here")
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous
    assert data.y.dtype == np.int64
    assert (data.n_samples, data.n_features, data.n_pos, data.n_neg, data.imbalance_ratio) == (5, 2, 1, 4, 4.0)


def test_without_a_minority_row_the_ratio_is_infinite():
    assert Dataset("toy", np.ones((2, 1)), [0, 0], ("a",), "here").imbalance_ratio == float("inf")


def test_is_frozen():
    data = Dataset("toy", np.ones((2, 1)), [0, 1], ("a",), "here")
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"


@pytest.mark.parametrize(
    ("X", "y", "names", "match"),
    [
        (np.ones(3), [0, 0, 1], ("a",), r"X of shape \(3,\)"),
        (np.ones((3, 1)), [0, 1], ("a",), "one row per label"),
        (np.ones((2, 1)), [-1, 1], ("a",), "only one dimension of 0 and 1"),
        (np.ones((2, 1)), [[0, 1]], ("a",), r"labels of shape \(1, 2\)"),
        (np.ones((2, 2)), [0, 1], ("a",), "1 feature names for 2 columns"),
    ],
)
def test_what_does_not_fit_is_refused(X, y, names, match):
    with pytest.raises(InvalidInput, match=match):
        Dataset("toy", X, y, names, "here")
