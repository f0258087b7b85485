"""Methods that take negatives away: how many a cascade leaves, and which a granular machine takes."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import crcen
from crcen.paper.boosting import BalanceCascadeClassifier
from crcen.paper.undersampling import GranularSVMClassifier


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(660) < 20).astype(int)
    X = rng.normal(size=(660, 2))
    X[:, 0] += 1.5 * y
    return X, y


@pytest.mark.parametrize(
    ("n_rounds", "expected"), [(6, [640, 320, 160, 80, 40, 20]), (2, [640, 20]), (3, [640, 113, 20])]
)
def test_negatives_left_before_each_round(rows, n_rounds, expected):
    """20 positives and 640 negatives: (1/32)^(1/5) is one half, and 640/√32 is 113.1."""
    model = BalanceCascadeClassifier(n_rounds, n_estimators=2, max_depth=1, random_state=0).fit(*rows)
    np.testing.assert_array_equal(model.negatives_left_, expected)


def test_a_threshold_lets_the_share_f_of_the_negatives_pass(rows):
    """Scores of full trees differ, so that the first round's false positives are counted exactly."""
    X, y = rows
    model = BalanceCascadeClassifier(3, n_estimators=30, max_depth=3, random_state=0).fit(X, y)
    first, negatives = model.estimators_[0], X[y == 0]
    votes = np.array([2.0 * tree.predict(negatives) - 1 for tree in first.estimators_])
    score = first.estimator_weights_[: len(votes)] / 2 @ votes
    above, tied = (score > model.thresholds_[0] + 1e-9).sum(), np.isclose(score, model.thresholds_[0]).sum()
    assert above <= 113 <= above + tied


def test_the_vote_is_joint(rows):
    X, y = rows
    model = BalanceCascadeClassifier(3, n_estimators=4, max_depth=1, random_state=0).fit(X, y)
    score = np.zeros(len(X))
    for booster, threshold in zip(model.estimators_, model.thresholds_, strict=True):
        for weight, tree in zip(booster.estimator_weights_, booster.estimators_, strict=False):
            score += weight / 2 * np.where(tree.predict(X), 1, -1)
        score -= threshold
    np.testing.assert_allclose(3 * model.decision_function(X), score, atol=1e-9)


def test_classes_of_equal_size_lose_no_row():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    model = BalanceCascadeClassifier(3, n_estimators=2, max_depth=1, random_state=0).fit(rng.normal(size=(60, 2)), y)
    np.testing.assert_array_equal(model.negatives_left_, [30, 30, 30])


def test_rows_that_tell_nothing_are_refused():
    with pytest.raises(crcen.InvalidInput, match="cannot boost a balanced draw of these rows"):
        BalanceCascadeClassifier().fit(np.zeros((20, 1)), np.arange(20) < 5)


# -- granules --------------------------------------------------------------------------------------------------------

# Two positives on the y axis. Each negative on the x axis is nearer to them than the next, and a machine that splits
# without error leans on the nearest alone.
PLANE = np.array([[0, 1], [0, -1], [2, 0], [3, 0], [4, 0], [5, 0]], dtype=float)
IS_POS = np.array([True, True, False, False, False, False])


def test_granules_on_a_plane_are_the_negatives_from_near_to_far():
    found = GranularSVMClassifier(kernel="linear", C=1e6).granules(PLANE, IS_POS, 3)
    assert [granule.tolist() for granule in found] == [[2], [3], [4]]
    every = GranularSVMClassifier(kernel="linear", C=1e6).granules(PLANE, IS_POS, 10)
    assert [granule.tolist() for granule in every] == [[2], [3], [4], [5]]


@pytest.mark.parametrize(("aggregation", "middle"), [("combine", 1.0), ("discard", 2.0)])
def test_aggregations_draw_their_boundary_half_way(aggregation, middle):
    """Combined, the nearest negative at x = 2 sets it; with older granules discarded, the third does, at x = 4."""
    model = GranularSVMClassifier(aggregation, kernel="linear", C=1e6)
    machine = model._aggregated(PLANE, IS_POS, model.granules(PLANE, IS_POS, 3))
    along = np.array([[middle - 0.01, 0.0], [middle, 0.0], [middle + 0.01, 0.0]])
    above, on, below = machine.decision_function(along)
    assert above > 0 > below
    assert on == pytest.approx(0, abs=1e-3)


def test_granules_hold_no_row_twice_and_no_positive(rows):
    X, y = rows
    found = GranularSVMClassifier().granules(X, y == 1, 4)
    together = np.concatenate(found)
    assert len(set(together.tolist())) == len(together)
    assert not y[together].any()


def test_the_final_machine_sees_positives_and_granules(rows):
    X, y = rows
    combined, newest = (GranularSVMClassifier(how, random_state=0).fit(X, y) for how in ("combine", "discard"))
    for model, taken in ((combined, combined.granules_), (newest, newest.granules_[-1:])):
        assert model.machine_.shape_fit_[0] == y.sum() + sum(len(granule) for granule in taken)


@parametrize_with_checks([BalanceCascadeClassifier(2, n_estimators=3), GranularSVMClassifier(max_granules=2)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
