"""The error that a fitted model brings: against the theory of logistic regression, and in the test that uses it."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import Budget, CRCENClassifier, CRCENClassifierCV, InvalidInput, InvalidParameter
from crcen.theory.price import sigmoid
from crcen.theory.residual_test import TrainingError

COEF, BIAS = np.array([1.0, -0.8, 0.5]), -2.0


def draw(rng, n):
    X = rng.standard_normal((n, 3))
    p = sigmoid(BIAS + X @ COEF)
    return X, (rng.random(n) < p).astype(int), p


def test_logistic_regression_has_the_error_of_its_information():
    """With an intercept, the mean log-odds weighted by p(1−p) have the variance 1 / Σ p(1−p)."""
    rng = np.random.default_rng(0)
    estimates, theory = [], []
    for _ in range(40):
        X, y, p = draw(rng, 600)
        estimates.append(crcen.training_error(LogisticRegression(C=1e6).fit(X, y), X, y).log_odds ** 2)
        theory.append(1.0 / np.sum(p * (1 - p)))
    ratio = np.mean(estimates) / np.mean(theory)
    assert 0.85 < ratio < 1.35  # 40 estimates with 7 degrees of freedom: ± .09, and what halves know less


def test_the_test_of_a_fitted_model_keeps_its_level_on_many_new_rows():
    rng = np.random.default_rng(1)
    rejected = {"taken for the truth": 0, "with its error": 0}
    for _ in range(120):
        X, y, _ = draw(rng, 400)
        X_new, y_new, _ = draw(rng, 2000)
        model = LogisticRegression(C=1e6).fit(X, y)
        q = model.predict_proba(X_new)[:, 1]
        error = crcen.training_error(model, X, y, n_fits=6)
        rejected["taken for the truth"] += crcen.key_equation(y_new, q, None).p_value < 0.05
        rejected["with its error"] += crcen.key_equation(y_new, q, None, training_error=error).p_value < 0.05
    assert rejected["taken for the truth"] > 40  # √6 standard deviations: .42 of them
    assert rejected["with its error"] < 15  # nominal 6; 15 or more have a chance of .001


def test_the_variance_is_that_of_labels_and_model_and_under_twenty_positives_are_too_few():
    """By hand at λ = ½: residual Σ(y − p) / 2, slope and variance Σ p(1−p) / 2 and / 4."""
    _, y, p = draw(np.random.default_rng(2), 500)
    plain, total = crcen.key_equation(y, p, None), np.sum(p * (1 - p))
    for error in (0.1, 0.3):
        known = crcen.key_equation(y, p, None, training_error=TrainingError.binary(error))
        assert known.z == pytest.approx(np.sum(y - p) / math.sqrt(total + total**2 * error**2))
        assert known.p_value == pytest.approx(2 * stats.norm.sf(abs(known.z)), rel=0.03)
    same = crcen.key_equation(y, p, None, training_error=TrainingError.binary(0.0))
    assert (same.z, same.p_value, same.residual) == pytest.approx((plain.z, plain.p_value, plain.residual))
    p = np.full(400, 0.05)
    for n_pos, is_enough in ((19, False), (21, True)):
        y = np.arange(400) < n_pos
        seen = crcen.key_equation(y, p, None, training_error=TrainingError.binary(0.1))
        assert math.isfinite(seen.z) is is_enough
        assert seen.z_reason.startswith("" if is_enough else f"too few: {n_pos} positives")


def test_searches_are_refitted_at_what_they_chose_and_labels_are_theirs():
    X, y, p = draw(np.random.default_rng(3), 400)
    labels = np.where(y == 1, "bad", "good")  # the positive class is classes_[0]
    settings = {"hidden": [()], "l2": [1e-4, 1e-3], "encoding": ["standard"], "cv": 3, "n_members": 1}
    search = CRCENClassifierCV(Budget(5), **settings, random_state=0, device="cpu").fit(X, labels)
    found = crcen.training_error(search, X, labels, n_fits=4)
    assert 0.3 < found.log_odds * math.sqrt(np.sum(p * (1 - p))) < 3
    weights = np.full(400, 2.0)
    single = CRCENClassifier(Budget(5), hidden=(), encoding="standard", n_members=1, random_state=0, device="cpu")
    single.fit(X, labels, sample_weight=weights)
    same = crcen.training_error(single, X, labels, sample_weight=weights, n_fits=3)
    assert same == crcen.training_error(single, X, labels, sample_weight=weights, n_fits=3)
    assert same.degrees == 2.0


def test_what_it_cannot_use():
    X, y, _ = draw(np.random.default_rng(4), 100)
    model, three = LogisticRegression().fit(X, y), LogisticRegression().fit(X, np.arange(100) % 3)
    for rows, named, sentence in (
        ((model, X, y), {"n_fits": 2}, "at least 3, got 2"),
        ((model, X, y), {"clusters": y[:10]}, "clusters"),
        ((model, X, y + 1), {}, r"labels \[0, 1\]"),
        ((model, X[:10], y), {}, "the same training rows, got 10 and 100"),
        ((three, X, y + 2), {}, r"labels \[0, 1, 2\]"),
        ((model, X, np.arange(100) < 0), {}, "every class"),
    ):
        with pytest.raises((InvalidInput, InvalidParameter), match=sentence):
            crcen.training_error(*rows, **named)
    with pytest.raises(InvalidInput, match="is for 2 classes, and q has 3"):
        crcen.key_equation(np.arange(9) % 3, np.full((9, 3), 1 / 3), None, training_error=TrainingError.binary(0.1))


def test_clusters_stay_together_in_refits():
    """Patients with ten like rows each: halves of rows share patients and agree too well, halves of patients do not."""
    rng = np.random.default_rng(3)
    X, y, _ = draw(rng, 60)
    clusters = np.repeat(np.arange(60), 10)
    X, y = np.repeat(X, 10, axis=0) + 0.01 * rng.standard_normal((600, X.shape[1])), np.repeat(y, 10)
    model = LogisticRegression(C=1.0).fit(X, y)
    by_rows = crcen.training_error(model, X, y, n_fits=6)
    by_cluster = crcen.training_error(model, X, y, n_fits=6, clusters=clusters)
    assert by_cluster.log_odds > 1.5 * by_rows.log_odds


def test_part_of_many_rows_gives_about_the_error_of_all(monkeypatch):
    rows = crcen.make_sim2(400, 4000, seed=1)
    model = LogisticRegression().fit(rows.X, rows.y)
    whole = crcen.training_error(model, rows.X, rows.y)
    monkeypatch.setattr("crcen.decisions.model_uncertainty._MOST_COMPARED", 1500)
    part = crcen.training_error(model, rows.X, rows.y)
    assert part.log_odds != whole.log_odds
    assert part.log_odds == pytest.approx(whole.log_odds, rel=0.15)
    np.testing.assert_allclose(part.least, whole.least, rtol=0.15)  # the bound is that of all training rows
