"""Labels: one rule for the positive class, and signs, columns and targets that follow from it."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import crcen
from crcen import Budget, InvalidInput, InvalidParameter, Lam, resolve
from crcen.theory.labels import Labels

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


def test_what_has_no_positive_class():
    with pytest.raises(InvalidInput, match="both classes need weight: every row of class b has sample_weight 0"):
        of(["a", "b"], [1, 0])
    for wrong in ("c", ["a"], np.array([1])):
        with pytest.raises(InvalidParameter, match="pos_label must be one of the classes 'a', 'b'"):
            of(["a", "b"], pos_label=wrong)


@pytest.mark.parametrize(("labels", "column", "sign"), [(FIRST, 0, -1.0), (LAST, 1, 1.0)])
def test_what_follows(labels, column, sign):
    assert (labels.column, labels.sign) == (column, sign)
    assert {labels.positive, labels.negative} == set(labels.classes.tolist())
    y = np.array([labels.positive, labels.negative, labels.positive])
    target = labels.encode(y)
    assert target.tolist() == [True, False, True]
    assert labels.decode(target).tolist() == y.tolist()
    logits = np.array([-1.0, 2.0])
    np.testing.assert_array_equal(labels.signed(logits), sign * logits)
    np.testing.assert_array_equal(labels.signed(labels.signed(logits)), logits)
    pair = np.array([[0.7, 0.3]])  # negative, positive
    assert labels.in_order(pair)[0, column] == 0.3
    np.testing.assert_array_equal(labels.in_order(labels.in_order(pair)), pair)
    assert labels.pair(labels.in_order(pair)[0]) == (0.3, 0.7)


def test_labels_that_are_neither():
    assert LAST.checked(["yes", "no"]).tolist() == [True, False]
    with pytest.raises(InvalidInput, match="y must hold the labels \\['no', 'yes'\\] only: got 'maybe'"):
        LAST.checked(["yes", "maybe"])


def test_those_of_a_model():
    model = SimpleNamespace(classes_=np.array(["fraud", "ok"]))
    rows = np.array(["fraud", "ok", "ok"])
    assert Labels.of_model(model).positive == "ok"  # no rows at hand: the last one
    assert Labels.of_model(model, rows).positive == "fraud"
    assert Labels.of_model(model, rows, np.array([3.0, 1.0, 1.0])).positive == "ok"
    model.pos_label_ = "ok"
    assert Labels.of_model(model, rows).positive == "ok"
    with pytest.raises(InvalidInput, match="two classes"):
        Labels.of_model(SimpleNamespace())


def test_weightings_by_label():
    assert FIRST.resolve({"fraud": 6, "ok": 2}, 10, 90) == resolve(Budget(3), 10, 90)
    assert LAST.resolve({"yes": 1, "no": 4}, 10, 90).cost_ratio == pytest.approx(1 / 4)
    assert LAST.resolve(resolve(Lam(0.8), 1, 1), 10, 90) == resolve(Lam(0.8), 10, 90)
    with pytest.raises(InvalidParameter, match="one weight for each of 'no', 'yes'"):
        LAST.resolve({"yes": 1}, 10, 90)


def test_factors_of_odds_turn_with_the_class():
    assert LAST.odds(4.0) == 4.0
    assert FIRST.odds(4.0) == 0.25
    assert FIRST.odds(FIRST.odds(8.0)) == 8.0


def test_rows_decide_where_weights_tie_also_for_a_model():
    model = SimpleNamespace(classes_=np.array(["fraud", "ok"]))
    rows = np.array(["fraud", "ok", "ok"])
    assert Labels.of_model(model, rows, np.array([2.0, 1.0, 1.0])).positive == "fraud"
    assert Labels.from_rows(model.classes_, rows, np.array([2.0, 1.0, 1.0])).positive == "fraud"


def test_nobody_else_asks_which_class_is_last():
    package = Path(crcen.__file__).parent
    asking = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"classes_?\[[01]\]\s*==", path.read_text(encoding="utf-8"))
    ]
    assert asking == []
