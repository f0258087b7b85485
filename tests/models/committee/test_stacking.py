"""Weights of a committee: against an independent optimiser, limits, nested choice, and optimism of fitted rows."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from crcen.models.committee import RIDGES, choose_ridge, cross_fitted_logits, fit_stacking


def draw(n=400, seed=0, noise=(0.5, 1.0, 3.0), n_classes=2):
    """Rows with known logits, and members that see them through more and more noise."""
    rng = np.random.default_rng(seed)
    true = rng.normal(0.0, 1.5, (n, n_classes)) - 1.5 * np.arange(n_classes)
    target = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    logits = np.stack([true + rng.normal(0, s, true.shape) for s in noise], axis=1)
    return logits, target, rng.random(n) + 0.5


def loss(combined, target, weights):
    return -np.average(log_softmax(combined, axis=1)[np.arange(len(target)), target], weights=weights)


def folds_of(n, k=4, seed=0):
    return np.array_split(np.random.default_rng(seed).permutation(n), k)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("ridge", [0.1, 20.0, 500.0])
def test_weights_are_the_optimum_of_a_search_without_gradients(ridge, n_classes):
    logits, target, weights = draw(n=120, n_classes=n_classes)
    found = fit_stacking(logits, target, weights, ridge)

    def objective(w, intercepts):
        combined = np.einsum("nmk,m->nk", logits, w) + intercepts
        return len(target) * loss(combined, target, weights) + ridge * np.sum((w - 1 / 3) ** 2)

    def free(p):  # squares are not negative; one intercept can be fixed
        return objective(p[:3] ** 2, np.append(0.0, p[3:]))

    how = {"method": "Nelder-Mead", "options": {"maxiter": 40000, "maxfev": 40000, "fatol": 1e-12, "xatol": 1e-8}}
    starts = ([0.6, 0.6, 0.6], [0.9, 0.3, 0.1])
    reference = min(minimize(free, [*start, *[0.0] * (n_classes - 1)], **how).fun for start in starts)
    assert objective(found.weights, found.intercepts) <= reference + 1e-6
    assert (found.weights >= 0).all()


def test_strong_shrinkage_gives_equal_weights_and_better_members_get_more():
    logits, target, weights = draw(n=4000)
    assert fit_stacking(logits, target, weights, 1e9).weights == pytest.approx(np.full(3, 1 / 3), abs=1e-4)
    close, middle, far = fit_stacking(logits, target, weights, 5.0).weights
    assert close > middle > far
    logits[:, 2] = -logits[:, 0]
    assert fit_stacking(logits, target, weights, 1.0).weights[2] == 0.0


def test_members_with_a_tiny_weight_get_none_and_the_others_are_weighted_again():
    logits, target, weights = draw(n=4000, noise=(0.2, 0.4, 3.0))
    plain = fit_stacking(logits, target, weights, 5.0).weights
    assert 0.0 < plain[2] < 0.05
    found = fit_stacking(logits, target, weights, 5.0, least_weight=0.05).weights
    assert found[2] == 0.0
    assert found[:2].sum() > plain[:2].sum()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_only_ratios_of_weights_matter(scale):
    logits, target, weights = draw(n=300)
    one, other = (fit_stacking(logits, target, w, 5.0) for w in (weights, scale * weights))
    assert other.weights == pytest.approx(one.weights, abs=1e-9)
    copies = np.random.default_rng(1).integers(1, 4, 300)
    one = fit_stacking(logits, target, copies.astype(float), 0.0)
    other = fit_stacking(np.repeat(logits, copies, axis=0), np.repeat(target, copies), np.ones(copies.sum()), 0.0)
    assert one.weights == pytest.approx(other.weights, abs=1e-4)


def test_nested_folds_shrink_strongly_where_members_are_alike_and_weakly_where_one_is_better():
    strong, weak = [], []
    for seed in range(12):
        alike, target, weights = draw(n=150, seed=seed, noise=(1.5,) * 6)
        strong.append(choose_ridge(alike, target, weights, folds_of(150)))
        apart, target, weights = draw(n=1500, seed=seed, noise=(0.1, 4.0, 4.0))
        weak.append(choose_ridge(apart, target, weights, folds_of(1500)))
    assert np.median(strong) >= 50.0
    assert np.median(weak) <= 5.0
    assert {*strong, *weak} <= set(RIDGES)


def test_a_committee_is_not_worse_than_its_best_member_on_new_rows():
    """One good member among bad ones: nested shrinkage gives the others little."""
    together, best = [], []
    for seed in range(8):
        noise = (0.3, 3.0, 3.0, 3.0)
        logits, target, weights = draw(n=600, seed=seed, noise=noise)
        found = fit_stacking(logits, target, weights, choose_ridge(logits, target, weights, folds_of(600)))
        new, labels, ones = draw(n=5000, seed=seed + 100, noise=noise)
        together.append(loss(found(new), labels, ones))
        best.append(loss(new[:, 0], labels, ones))
    assert np.mean(together) < np.mean(best) * 1.01


def test_weights_fitted_on_the_rows_that_judge_them_look_too_good():
    """Many useless members: the loss on fitted rows falls, the loss of cross-fitted weights is that of new rows."""
    own, crossed, new = [], [], []
    for seed in range(20):
        logits, target, weights = draw(n=120, seed=seed, noise=(2.0,) * 12)
        fitted = fit_stacking(logits, target, weights, 0.1)
        more, labels, their = draw(n=4000, seed=seed + 1000, noise=(2.0,) * 12)
        own.append(loss(fitted(logits), target, weights))
        crossed.append(
            loss(cross_fitted_logits(logits, target, weights, folds_of(120, seed=seed), 0.1), target, weights)
        )
        new.append(loss(fitted(more), labels, their))
    optimism = np.mean(new) - np.mean(own)
    assert optimism > 0.03
    assert np.mean(crossed) > np.mean(own) + 0.5 * optimism


def test_rows_in_no_fold_have_no_combined_logit_and_one_fold_takes_the_mean():
    logits, target, weights = draw(n=60)
    combined = cross_fitted_logits(logits, target, weights, [np.arange(30), np.arange(30, 50)], 5.0)
    assert np.isfinite(combined[:50]).all()
    assert np.isnan(combined[50:]).all()
    later = cross_fitted_logits(logits, target, weights, [np.arange(40, 60)], 5.0)
    assert later[40:] == pytest.approx(logits[40:].mean(axis=1))
    assert choose_ridge(logits, target, weights, [np.arange(40, 60)]) == RIDGES[-1]
