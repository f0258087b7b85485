"""The maps from natural logits to natural probabilities, each against an independent solution."""

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from crcen import InvalidInput
from crcen.models.probability import PROBABILITIES, apply_map, fit_map, probability_folds
from crcen.theory.decision import sigmoid

FITTED = PROBABILITIES[1:]


@pytest.fixture(scope="module")
def rows():
    """True natural logits of a rare event, and overconfident, biased ones of a network."""
    rng = np.random.default_rng(0)
    truth = rng.normal(-3.0, 1.5, 20000)
    target = rng.random(20000) < sigmoid(truth)
    return target, 2.0 * truth + 1.0, np.ones(20000), truth


def log_loss(target, logits, weights):
    return np.average(np.logaddexp(0.0, np.where(target, -logits, logits)), weights=weights)


def test_shift_is_the_identity_and_balance_the_intercept_that_makes_the_mean_right(rows):
    target, logits, weights, _ = rows
    assert np.array_equal(apply_map(fit_map("shift", target, logits, weights), logits), logits)
    slope, intercept = fit_map("balance", target, logits, weights)
    assert slope == 1.0
    root = brentq(lambda d: np.sum(target - sigmoid(logits + d)), -20, 20, xtol=1e-12)
    assert intercept == pytest.approx(root, abs=1e-9)


def test_temperature_is_logistic_regression_on_the_logit(rows):
    target, logits, weights, truth = rows
    state = fit_map("temperature", target, logits, weights)
    free = LogisticRegression(C=np.inf, tol=1e-10).fit(logits[:, None], target)
    assert state[0] == pytest.approx(free.coef_[0, 0], rel=1e-3)  # the prior weighs one row in 20,000
    assert state[1] == pytest.approx(free.intercept_[0], rel=1e-2)
    assert abs(np.sum(target - sigmoid(apply_map(state, logits)))) < 1e-8
    assert np.abs(apply_map(state, logits) - truth).mean() < 0.1


def test_temperature_turns_no_ranking_round():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=500)
    target = rng.random(500) < sigmoid(-3.0 * logits)
    assert 0.0 < fit_map("temperature", target, logits, np.ones(500))[0] < 0.05


def test_isotonic_is_scikit_learns_between_0_and_1(rows):
    target, logits, weights, _ = rows
    new = apply_map(fit_map("isotonic", target, logits, weights), logits)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(logits, target).predict(logits)
    low, high = 0.5 / (np.sum(theirs == 0) + 1), 1 - 0.5 / (np.sum(theirs == 1) + 1)
    assert (theirs == 0).any()
    inside = (theirs > low) & (theirs < high)
    np.testing.assert_allclose(sigmoid(new[inside]), theirs[inside], rtol=1e-9)
    np.testing.assert_allclose(sigmoid(new[theirs == 0]), low, rtol=1e-9)


def test_isotonic_claims_no_certainty():
    """Two rows below without a positive, three above without a negative: ½/3 and 1 − ½/4."""
    target, logits = np.array([False, False, True, True, True]), np.arange(5.0)
    state = fit_map("isotonic", target, logits, np.ones(5))
    np.testing.assert_allclose(sigmoid(apply_map(state, np.array([-9.0, 0.0, 1.0]))), 1 / 6)
    np.testing.assert_allclose(sigmoid(apply_map(state, np.array([2.0, 4.0, 99.0]))), 7 / 8)


@pytest.mark.parametrize("kind", FITTED)
def test_every_map_is_finite_and_rising_on_separable_rows(kind):
    target, logits = np.arange(40) >= 30, np.linspace(-30.0, 30.0, 40)
    new = apply_map(fit_map(kind, target, logits, np.ones(40)), np.linspace(-100, 100, 50))
    assert np.isfinite(new).all()
    assert (np.diff(new) >= 0).all()


@pytest.mark.parametrize("kind", ["temperature", "isotonic"])
def test_a_calibrating_map_lowers_the_loss_on_new_rows(rows, kind):
    target, logits, weights, truth = rows
    half = np.arange(len(target)) % 2 == 0
    new = apply_map(fit_map(kind, target[half], logits[half], weights[half]), logits[~half])
    before, best = (log_loss(target[~half], x[~half], weights[~half]) for x in (logits, truth))
    assert log_loss(target[~half], new, weights[~half]) < best + 0.1 * (before - best)


@pytest.mark.parametrize("kind", FITTED)
def test_weights_count_by_their_ratios_and_weight_0_is_absence(rows, kind):
    target, logits = rows[0][:600], rows[1][:600]
    weights = np.random.default_rng(2).integers(0, 4, 600).astype(float)
    grid, used = np.linspace(logits.min(), logits.max(), 50), weights > 0
    expected = apply_map(fit_map(kind, target, logits, weights), grid)
    for found in (
        fit_map(kind, target[used], logits[used], weights[used]),
        fit_map(kind, target, logits, 1e-12 * weights),
        fit_map(kind, target, logits, 1e12 * weights),
    ):
        np.testing.assert_allclose(apply_map(found, grid), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", FITTED)
def test_one_class_is_refused(kind):
    with pytest.raises(InvalidInput, match="both classes"):
        fit_map(kind, np.ones(5, dtype=bool), np.arange(5.0), np.ones(5))
    with pytest.raises(InvalidInput, match="both classes"):
        fit_map(kind, np.arange(5) > 2, np.arange(5.0), (np.arange(5) > 2).astype(float))


def test_folds_cover_each_row_with_weight_once():
    target, weights = np.arange(100) < 11, (np.arange(100) % 7 > 0).astype(float)
    folds = probability_folds(target, weights, seed=0)
    held_out = np.concatenate([h for _, h in folds])
    assert np.array_equal(np.sort(held_out), np.flatnonzero(weights))
    for rows, own in folds:
        assert np.intersect1d(rows, own).size == 0
        assert np.array_equal(np.union1d(rows, own), np.flatnonzero(weights))
        assert target[rows].any()
        assert target[own].any()


@pytest.mark.parametrize("n_pos", [2, 3])
def test_few_positives_make_fewer_folds(n_pos):
    assert len(probability_folds(np.arange(50) < n_pos, np.ones(50), seed=0)) == n_pos
    with pytest.raises(InvalidInput, match="folds need 2 rows of each class"):
        probability_folds(np.arange(50) < 1, np.ones(50), seed=0)
