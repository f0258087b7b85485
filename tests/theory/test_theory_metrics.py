"""Metrics from counts, against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score

from crcen.exceptions import InvalidInput
from crcen.theory.metrics import ConfusionCounts, confusion_counts, g_mean


@st.composite
def decided_rows(draw):
    n = draw(st.integers(2, 30))
    bits = st.lists(st.integers(0, 1), min_size=n, max_size=n)
    y = [1, 0, *draw(bits)]
    pred = draw(st.lists(st.lists(st.integers(0, 1), min_size=n + 2, max_size=n + 2), min_size=1, max_size=4))
    weights = draw(st.lists(st.floats(0.125, 8.0), min_size=n + 2, max_size=n + 2))
    return np.array(y), np.array(pred), draw(st.sampled_from([None, np.array(weights)]))


@given(decided_rows())
def test_agree_with_scikit_learn(rows):
    y, pred, weights = rows
    many = confusion_counts(y, pred, weights)
    for k, one in enumerate(pred):
        options = {"sample_weight": weights, "zero_division": 0.0}
        recall, specificity = recall_score(y, one, **options), recall_score(y, one, pos_label=0, **options)
        expected = {
            "recall": recall,
            "specificity": specificity,
            "precision": precision_score(y, one, **options),
            "f1": f1_score(y, one, **options),
            "g_mean": np.sqrt(recall * specificity),
        }
        alone = confusion_counts(y, one.astype(bool), weights)
        tn, fp, fn, tp = confusion_matrix(y, one, sample_weight=weights).ravel()
        assert (alone.tn, alone.fp, alone.fn, alone.tp) == pytest.approx((tn, fp, fn, tp), abs=1e-12)
        for name, value in expected.items():
            assert getattr(many, name)[k] == pytest.approx(value, abs=1e-12)
            assert getattr(alone, name) == pytest.approx(value, abs=1e-12)
            assert type(getattr(alone, name)) is float
        assert g_mean(y, one, weights) == pytest.approx(expected["g_mean"], abs=1e-12)
    assert g_mean(y, pred, weights).shape == (len(pred),)


def test_by_hand():
    counts = ConfusionCounts(tp=8, fp=3, fn=2, tn=87)
    assert counts.recall == 0.8
    assert counts.specificity == pytest.approx(87 / 90)
    assert counts.precision == pytest.approx(8 / 11)
    assert counts.f1 == pytest.approx(16 / 21)
    assert counts.g_mean == pytest.approx((0.8 * 87 / 90) ** 0.5)


def test_undefined():
    silent = confusion_counts([1, 0, 0], [0, 0, 0])
    assert (silent.precision, silent.f1, silent.recall, silent.g_mean) == (0.0, 0.0, 0.0, 0.0)
    no_positive = confusion_counts([0, 0], [1, 0])
    assert np.isnan(no_positive.recall)
    assert np.isnan(no_positive.g_mean)
    assert no_positive.specificity == 0.5
    no_negative = confusion_counts([1, 1], [1, 0])
    assert np.isnan(no_negative.specificity)
    assert no_negative.recall == 0.5
    assert confusion_counts([0], [0]).f1 == 0.0


def test_a_class_of_weight_zero_is_absent():
    counts = confusion_counts([[1, 0][k] for k in (0, 1, 1)], [[1, 1, 0], [0, 0, 0]], [0, 1, 3])
    assert np.isnan(counts.recall).all()
    np.testing.assert_allclose(counts.specificity, [0.75, 1.0])


def test_weight_k_is_k_copies():
    rng = np.random.default_rng(3)
    y, pred = rng.integers(0, 2, 40), rng.integers(0, 2, (3, 40))
    copies = rng.integers(0, 4, 40)
    assert confusion_counts(y, pred, copies) == confusion_counts(np.repeat(y, copies), np.repeat(pred, copies, axis=1))


def test_equality_is_by_value():
    assert ConfusionCounts(1, 2, 3, 4) == ConfusionCounts(1.0, 2.0, 3.0, 4.0)
    assert ConfusionCounts(1, 2, 3, 4) != ConfusionCounts(1, 2, 3, 5)
    assert ConfusionCounts(1, 2, 3, 4) != (1, 2, 3, 4)
    with pytest.raises(AttributeError):
        ConfusionCounts(1, 2, 3, 4).tp = 0
    with pytest.raises(TypeError, match="unhashable"):
        hash(ConfusionCounts(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ((-1, 0, 0, 0), "tp must be finite and not negative, got -1"),
        ((0, 0, float("nan"), 0), "fn must be finite and not negative, got nan"),
        (([1, 2], [1, 2], [1, 2], [1]), "must have one shape"),
        (("a", 0, 0, 0), "tp must hold numbers"),
    ],
)
def test_counts_refused(cells, words):
    with pytest.raises(InvalidInput, match=words):
        ConfusionCounts(*cells)


@pytest.mark.parametrize(
    ("y", "pred", "weights", "words"),
    [
        ([0, 1], [0, 1, 1], None, r"y_pred must have 2 columns as y has rows, got shape \(3,\)"),
        ([0, 1], [0, 0.7], None, "y_pred must be 0/1 or bool"),
        ([1, 2], [0, 1], None, "y must be 0/1 or bool.*labels 1, 2"),
        ([0, 1], [0, 1], [1, -1], "sample_weight must be finite and not negative, got -1"),
        ([0, 1], np.zeros((1, 1, 2)), None, "1-D or 2-D"),
    ],
)
def test_rows_refused(y, pred, weights, words):
    for function in (confusion_counts, g_mean):
        with pytest.raises(InvalidInput, match=words):
            function(y, pred, weights)
