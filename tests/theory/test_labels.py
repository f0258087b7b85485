"""Labels, weights and probabilities that callers pass; one rule for the positive class and what follows from it."""

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import crcen
from crcen import Budget, CostMatrix, InvalidInput, InvalidParameter, Lam, resolve
from crcen.theory.checks import check_binary_target, check_not_negative, check_probabilities, check_row_weights
from crcen.theory.price import Labels

FIRST, LAST = Labels(np.array(["fraud", "ok"]), "fraud"), Labels(np.array(["no", "yes"]), "yes")


def of(y, weights=None, pos_label=None):
    y = np.array(y)
    weights = np.ones(len(y)) if weights is None else np.array(weights, float)
    return Labels.from_rows(np.unique(y), y, weights, pos_label).positive


def test_the_positive_class():
    assert of([0, 0, 1]) == 1
    assert of([0, 1, 1]) == 0
    assert of([0, 1]) == 1
    assert of(["a", "a", "b"], [1, 1, 5]) == "a"
    assert of(["a", "b", "b"], [2, 1, 1]) == "a"  # weights that balance the classes: rows decide
    assert of([0, 0, 1], pos_label=0) == 0
    with pytest.raises(InvalidInput, match="every class needs weight: every row of class b has sample_weight 0"):
        of(["a", "b"], [1, 0])
    for wrong in ("c", ["a"], np.array([1])):
        with pytest.raises(InvalidParameter, match="pos_label must be one of the classes 'a', 'b'"):
            of(["a", "b"], pos_label=wrong)


@pytest.mark.parametrize(("labels", "column"), [(FIRST, 0), (LAST, 1)])
def test_columns_signs_and_targets_follow_the_positive_class(labels, column):
    assert labels.column == column
    assert {labels.positive, labels.negative} == set(labels.classes.tolist())
    y = np.array([labels.positive, labels.negative, labels.positive])
    target = labels.target(y)
    assert target.tolist() == labels.is_positive(y).tolist() == [True, False, True]
    assert (labels.encode(y) == column).tolist() == target.tolist()
    assert labels.decode(target).tolist() == labels.decode(labels.encode(y)).tolist() == y.tolist()
    logits = np.array([-1.0, 2.0])
    np.testing.assert_array_equal(labels.signed(logits), logits if column else -logits)
    pair = np.array([[0.7, 0.3]])  # negative, positive
    assert labels.in_order(pair)[0, column] == 0.3
    np.testing.assert_array_equal(labels.in_order(labels.in_order(pair)), pair)
    assert labels.pair(labels.in_order(pair)[0]) == (0.3, 0.7)
    assert labels.pair(labels.by_class(3.0, 4.0)) == (3.0, 4.0)


def test_three_classes_have_numbers_and_no_positive_class():
    y = np.array(["b", "c", "a", "c"])
    labels = Labels.from_rows(np.unique(y), y, np.ones(4))
    assert labels.positive is None
    assert labels.encode(y).tolist() == labels.target(y).tolist() == [1, 2, 0, 2]
    assert labels.decode(labels.encode(y)).tolist() == y.tolist()
    assert labels.counts(labels.encode(y), [1, 2, 3, 4]).tolist() == [3, 1, 6]
    with pytest.raises(InvalidInput, match="none of 3 classes is the positive one"):
        _ = labels.column
    with pytest.raises(InvalidInput, match="every row of class b has sample_weight 0"):
        labels.counts(labels.encode(y), [0, 2, 3, 4])
    assert LAST.is_positive(["yes", "maybe"]).tolist() == [True, False]
    with pytest.raises(InvalidInput, match="y must hold the labels \\['no', 'yes'\\] only: got 'maybe'"):
        LAST.encode(["yes", "maybe"])


def test_those_of_a_model():
    model = SimpleNamespace(classes_=np.array(["fraud", "ok"]))
    rows = np.array(["fraud", "ok", "ok"])
    assert Labels.of_model(model).positive == "ok"  # no rows at hand: the last one
    assert Labels.of_model(model, rows).positive == "fraud"
    assert Labels.of_model(model, rows, np.array([3.0, 1.0, 1.0])).positive == "ok"
    assert Labels.of_model(model, rows, np.array([2.0, 1.0, 1.0])).positive == "fraud"  # a tie: rows decide
    model.pos_label_ = "ok"
    assert Labels.of_model(model, rows).positive == "ok"
    with pytest.raises(InvalidInput, match="two classes"):
        Labels.of_model(SimpleNamespace())


def test_prices_are_resolved_in_the_order_of_the_classes():
    first = FIRST.resolve({"fraud": 6, "ok": 2}, [10, 90])
    assert (first.weights.tolist(), first.counts.tolist(), first.positive) == ([0.75, 0.25], [10, 90], 0)
    assert (first.cost_ratio, first.n_pos, first.alpha) == (3, 10, pytest.approx(1 / 3))
    assert FIRST.resolve(Budget(3), [10, 90]) == FIRST.resolve([3, 1], [10, 90]) == first
    assert LAST.resolve({"yes": 1, "no": 4}, [90, 10]).cost_ratio == pytest.approx(1 / 4)
    assert LAST.resolve(resolve(Lam(0.8), 1, 1), [90, 10]) == resolve(Lam(0.8), 10, 90)
    assert FIRST.resolve(resolve(Lam(0.8), 1, 1), [10, 90]).lam == 0.8
    three = Labels(np.array(["a", "b", "c"]))
    assert three.resolve({"c": 3, "a": 1, "b": 2}, [1, 2, 3]).weights.tolist() == [1, 2, 3]
    costs = CostMatrix([[0, 1, 2], [3, 0, 4], [5, 6, 0]], labels=["c", "b", "a"])
    assert three.resolve(costs, [1, 1, 1]).costs.costs.tolist() == [[0, 6, 5], [4, 0, 3], [2, 1, 0]]
    with pytest.raises(InvalidParameter, match="one weight for each of 'no', 'yes'"):
        LAST.resolve({"yes": 1}, [90, 10])


def test_nobody_else_asks_which_class_is_last():
    package = Path(crcen.__file__).parent
    asking = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"classes_?\[[01]\]\s*==", path.read_text(encoding="utf-8"))
    ]
    assert asking == []


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
