"""Labels, weights and probabilities: what is taken and what is refused, in words."""

from functools import partial

import numpy as np
import pytest

from crcen.exceptions import InvalidInput
from crcen.theory.checks import check_binary_target, check_not_negative, check_probabilities, check_row_weights

check_weights = partial(check_row_weights, n=3)
check_decisions = partial(check_binary_target, name="y_pred", ndims=(1, 2))


@pytest.mark.parametrize(
    "y",
    [
        [0, 1, 1],
        [False, True, True],
        np.array([0.0, 1.0, 1.0], dtype=np.float32),
        np.array([0, 1, 1], dtype=np.uint8),
        np.array([0, 1.0, True], dtype=object),
    ],
)
def test_targets_taken(y):
    positive = check_binary_target(y)
    assert positive.dtype == np.bool_
    assert positive.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("check", "value", "words"),
    [
        (check_binary_target, [-1, 1], r"got the labels -1, 1; pass y == "),
        (check_binary_target, [1, 2, 2], "got the labels 1, 2;"),
        (check_binary_target, [0, 1, 2, 3, 4, 5, 6], "got the labels 0, 1, 2, 3, 4, ...;"),
        (check_binary_target, [0.0, 0.5], "got the labels 0, 0.5"),
        (check_binary_target, [0.0, 1.0, float("nan")], "got 1 NaN"),
        (check_binary_target, [0.0, float("inf")], "labels 0, inf"),
        (check_binary_target, ["fraud", "ok"], "must hold numbers, got values such as 'fraud'"),
        (check_binary_target, np.array(["1", 0], dtype=object), "must hold numbers, got values such as '1'"),
        (check_binary_target, [0, None], "must hold numbers, got values such as None"),
        (check_binary_target, [[0, 1]], r"must be 1-D, got an array of shape \(1, 2\)"),
        (check_binary_target, 1, r"must be 1-D, got an array of shape \(\)"),
        (check_binary_target, [], "at least one row"),
        (check_binary_target, [[0, 1], [1]], "rectangular"),
        (check_binary_target, np.array([1j]), "must hold numbers"),
        (check_decisions, [[[1]]], r"y_pred must be 1-D or 2-D, got an array of shape \(1, 1, 1\)"),
        (check_weights, [1, 2], r"each of the 3 rows, got shape \(2,\)"),
        (check_weights, 2.0, r"got shape \(\)"),
        (check_weights, [[1, 2, 3]], r"got shape \(1, 3\)"),
        (check_weights, [1, -0.5, 1], "sample_weight must be finite and not negative, got -0.5"),
        (check_weights, [1, float("nan"), 1], "got nan"),
        (check_weights, [1, float("inf"), 1], "got inf"),
        (check_weights, ["a", "b", "c"], "must hold numbers"),
        (check_probabilities, [0.5, -0.1], r"q must lie in \[0, 1\], got values from -0.1 to 0.5"),
        (check_probabilities, [0.5, 1.1], r"to 1.1: are these logits"),
        (check_probabilities, [0.5, float("nan")], "got 1 NaN"),
        (check_probabilities, ["x"], "must hold numbers"),
    ],
)
def test_refused(check, value, words):
    with pytest.raises(InvalidInput, match=words):
        check(value)


def test_what_is_taken_keeps_its_shape_and_is_a_copy():
    assert check_probabilities([[0, 1], [0.5, 1]]).shape == (2, 2)
    assert check_decisions([[0, 1]]).shape == (1, 2)
    assert check_row_weights(None, 3).tolist() == [1.0, 1.0, 1.0]
    mine = np.ones(2)
    check_not_negative(mine, "fn")[0] = 5
    assert mine[0] == 1.0
    assert check_row_weights([0, 1, 2], 3).dtype == np.float64
    assert check_probabilities(np.float32(0.5)).dtype == np.float64
