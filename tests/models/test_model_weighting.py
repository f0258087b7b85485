"""Every way to state one weight trains one model; what means nothing is refused by name."""

import numpy as np
import pytest

from crcen import Alpha, Budget, CostRatio, InvalidParameter, Lam
from crcen.theory.price import Price
from papers_training import CRCENClassifier

QUICK = {"hidden": (3,), "solver": "adam", "max_epochs": 4, "batch_size": 32, "random_state": 0}


@pytest.fixture
def logits_under(rare_rows):
    X, y = rare_rows()
    named = np.where(y == 1, "fraud", "ok")

    def logits(weighting, **changed):
        return CRCENClassifier(weighting, **{**QUICK, **changed}).fit(X, named).decision_function(X)

    return logits


@pytest.mark.parametrize(
    "same",
    [
        ["balanced", Alpha(1), Alpha(1.0), Alpha(np.float32(1))],
        [None, Lam(0.5), 0.5, CostRatio(1), Budget(1), {"ok": 1, "fraud": 1}, {"ok": 7.0, "fraud": 7.0}],
        [CostRatio(3), Budget(3), Lam(0.75), 0.75, np.float64(0.75), {"ok": 2, "fraud": 6}, {"fraud": 3, "ok": 1}],
        [CostRatio(1 / 3), Budget(1 / 3), Lam(0.25), 0.25, {"ok": 3, "fraud": 1}],
    ],
    ids=["balanced", "plain", "price 3", "price 1/3"],
)
def test_names_of_one_weight_train_one_model(logits_under, same):
    expected = logits_under(same[0])
    for weighting in same[1:]:
        np.testing.assert_array_equal(logits_under(weighting), expected, err_msg=repr(weighting))


def test_a_higher_price_catches_more(rare_rows):
    X, y = rare_rows(n=400)
    caught = [
        np.sum(CRCENClassifier(Budget(b), hidden=()).fit(X, y).predict(X)[y == 1] == 1) for b in (0.2, 1, 5, 25, 125)
    ]
    assert caught == sorted(caught)
    assert caught[0] < caught[-1]


def test_balanced_counts_sample_weights(rare_rows):
    X, y = rare_rows()
    weight = np.where(y == 1, 2.0, 0.5)
    weighting = CRCENClassifier(hidden=(), pos_label=1).fit(X, y, weight).weighting_
    assert weighting.cost_ratio == pytest.approx(weight[y == 0].sum() / weight[y == 1].sum())


def test_dict_weights_go_by_label_whichever_class_is_positive(rare_rows):
    X, y = rare_rows()
    by_label = {0: 1.0, 1: 5.0}
    assert CRCENClassifier(by_label, hidden=()).fit(X, y).weighting_.cost_ratio == pytest.approx(5)
    assert CRCENClassifier(by_label, hidden=(), pos_label=0).fit(X, y).weighting_.cost_ratio == pytest.approx(0.2)
    by_truth = {False: 1, True: 5}
    assert CRCENClassifier(by_truth, hidden=()).fit(X, y == 1).weighting_.cost_ratio == pytest.approx(5)


def test_a_resolved_weighting_brings_its_weight_but_not_its_counts(rare_rows):
    """Counts of other rows would make the key equation of these rows wrong."""
    X, y = rare_rows()
    elsewhere = Price.binary(0.8, n_pos=1, n_neg=1000)
    fitted = CRCENClassifier(elsewhere, hidden=()).fit(X, y)
    assert fitted.weighting_ == Price.binary(0.8, y.sum(), (1 - y).sum())
    assert fitted.key_equation_.residual <= 1e-12


@pytest.mark.parametrize(
    ("weighting", "words"),
    [
        (1.5, r"did you mean Alpha\(1.5\) or CostRatio\(1.5\)\?"),
        ("balance", 'did you mean "balanced"'),
        ([0.5, 0.5, 0.5], "array of 2 weights"),
        ({0: 1}, "one weight for each of 0, 1: got {0: 1}"),
        ({0: 1, 2: 5}, "one weight for each of 0, 1"),
        ({0: 1, 1: 5, 2: 5}, "one weight for each of 0, 1"),
        ({"0": 1, "1": 5}, "one weight for each of 0, 1"),
        (Lam, r"did you mean Lam\(0.5\)"),
        ({0: -2, 1: 1}, "the weight of class 0 must be a finite number above 0"),
        ({0: 1, 1: 0}, "the weight of class 1 must be a finite number above 0"),
        ({0: 1, 1: "x"}, "the weight of class 1 must be a finite number above 0"),
        ({0: 1e-300, 1: 1e300}, "tell from 0 and 1"),
        (CostRatio(1e300), "double precision"),
    ],
    ids=repr,
)
def test_a_weighting_without_meaning_is_refused(rare_rows, weighting, words):
    with pytest.raises(InvalidParameter, match=words):
        CRCENClassifier(weighting, hidden=()).fit(*rare_rows())
