"""Weights of a committee: against an independent optimiser, limits, and the optimism of judging on fitted rows."""

import numpy as np
import pytest
from scipy.optimize import minimize

from crcen.models.committee.stacking import cross_fitted_logits, fit_stacking


def draw(n=400, seed=0, noise=(0.5, 1.0, 3.0)):
    """Rows with a known logit, and members that see it through more and more noise."""
    rng = np.random.default_rng(seed)
    true = rng.normal(-1.5, 1.5, n)
    target = rng.random(n) < 1 / (1 + np.exp(-true))
    return np.stack([true + rng.normal(0, s, n) for s in noise], axis=1), target, rng.random(n) + 0.5


def loss(combined, target, weights):
    return np.average(np.logaddexp(0, np.where(target, -combined, combined)), weights=weights)


@pytest.mark.parametrize("ridge", [0.1, 20.0, 500.0])
def test_the_optimum_is_that_of_a_search_without_gradients(ridge):
    logits, target, weights = draw(n=120)
    found = fit_stacking(logits, target, weights, ridge)
    scale = weights / weights.mean()

    def objective(p):
        w = p[:3] ** 2  # another way to keep them from being negative
        combined = logits @ w + p[3]
        return len(scale) * loss(combined, target, scale) + ridge * np.sum((w - 1 / 3) ** 2)

    reference = min(
        (
            minimize(objective, [*start, 0.0], method="Nelder-Mead", options={"maxiter": 20000, "fatol": 1e-12})
            for start in ([0.6, 0.6, 0.6], [0.9, 0.3, 0.1])
        ),
        key=lambda one: one.fun,
    )
    ours = objective(np.array([*np.sqrt(found.weights), found.intercept]))
    assert ours <= reference.fun + 1e-6
    assert (found.weights >= 0).all()


def test_a_strong_ridge_gives_equal_weights_and_better_members_more():
    logits, target, weights = draw(n=4000)
    assert fit_stacking(logits, target, weights, 1e9).weights == pytest.approx(np.full(3, 1 / 3), abs=1e-4)
    close, middle, far = fit_stacking(logits, target, weights).weights
    assert close > middle > far


def test_a_member_that_is_wrong_on_purpose_gets_nothing():
    logits, target, weights = draw(n=4000)
    logits[:, 2] = -logits[:, 0]
    assert fit_stacking(logits, target, weights, 1.0).weights[2] == 0.0


def test_row_weight_k_is_k_copies_up_to_the_ridge():
    logits, target, _ = draw(n=300)
    copies = np.random.default_rng(1).integers(1, 4, 300)
    one = fit_stacking(logits, target, copies.astype(float), 0.0)
    other = fit_stacking(np.repeat(logits, copies, axis=0), np.repeat(target, copies), np.ones(copies.sum()), 0.0)
    assert one.weights == pytest.approx(other.weights, abs=1e-4)


def test_weights_fitted_on_the_rows_that_judge_them_are_too_hopeful():
    """Many useless members: the loss on the fitted rows falls, that of cross-fitted weights says what new rows say."""
    own, crossed, new = [], [], []
    for seed in range(20):
        logits, target, weights = draw(n=120, seed=seed, noise=(2.0,) * 12)
        folds = np.array_split(np.random.default_rng(seed).permutation(120), 4)
        fitted = fit_stacking(logits, target, weights, 0.1)
        more, labels, their = draw(n=4000, seed=seed + 1000, noise=(2.0,) * 12)
        own.append(loss(fitted(logits), target, weights))
        crossed.append(loss(cross_fitted_logits(logits, target, weights, folds, 0.1), target, weights))
        new.append(loss(fitted(more), labels, their))
    optimism = np.mean(new) - np.mean(own)
    assert optimism > 0.03
    assert np.mean(crossed) > np.mean(own) + 0.5 * optimism


def test_rows_in_no_fold_have_no_combined_logit_and_one_fold_takes_the_mean():
    logits, target, weights = draw(n=60)
    combined = cross_fitted_logits(logits, target, weights, [np.arange(30), np.arange(30, 50)])
    assert np.isfinite(combined[:50]).all()
    assert np.isnan(combined[50:]).all()
    later = cross_fitted_logits(logits, target, weights, [np.arange(40, 60)])
    assert later[40:] == pytest.approx(logits[40:].mean(axis=1))
