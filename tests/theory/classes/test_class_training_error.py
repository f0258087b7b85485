"""The model's own error for K classes: F tails, two classes as `TrainingError` has them, sizes on simulated fits."""

import numpy as np
import pytest
from scipy.stats import f as snedecor
from sklearn.linear_model import LogisticRegression

import crcen
from crcen.exceptions import InvalidInput
from crcen.theory.classes.class_training_error import ClassTrainingError, f_tail
from crcen.theory.classes.judged_equations import judge_class_equations
from crcen.theory.price import Price
from crcen.theory.residual_test import TrainingError

BIAS, COEF = np.array([2.0, 0.5, 0.0]), np.array([[0.8, 0.0, -0.5], [0.0, 0.7, 0.3]])


def draw(rng, n):
    X = rng.standard_normal((n, 2))
    return X, (BIAS + X @ COEF + rng.gumbel(size=(n, 3))).argmax(axis=1)


@pytest.mark.parametrize("value", [0.3, 1.0, 4.0, 20.0])
@pytest.mark.parametrize(("degrees", "below"), [(1, 5.0), (3, 8.0), (2, 400.0), (7, 2e6)])
def test_tails_are_those_of_f(value, degrees, below):
    assert f_tail(value, degrees, below) == pytest.approx(snedecor.sf(value, degrees, below), rel=1e-3, abs=1e-12)


def test_two_classes_are_those_of_the_binary_test():
    """A residual R of slope a and variance v: log-odds off by d and −d/…: one number in two columns."""
    size, slope, variance, residual = 0.3, 12.0, 9.0, 11.0
    both = np.array([[0.5, -0.5], [-0.5, 0.5]])  # covariance of (−d/2, d/2) is d²/4 [[1, −1], [−1, 1]]
    error = ClassTrainingError(size**2 / 2.0 * both, 5.0, np.zeros((2, 2)))
    statistic, degrees, p_value = error.test(
        np.array([residual]), np.array([[variance]]), slope * np.array([[-1.0, 1.0]])
    )
    z, expected, _ = TrainingError(size, 5.0).test(residual, 0.0, variance, slope, 50)
    assert degrees == 1
    assert statistic == pytest.approx(z**2)
    assert p_value == pytest.approx(expected, rel=0.02)  # the binary one approximates Student's t


def test_what_is_known_at_least_is_allowed_for():
    sums, variance, slope = np.array([3.0, -2.0]), np.eye(2), np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    least = 0.5 * (np.eye(3) - 1 / 3)
    nothing = ClassTrainingError(np.zeros((3, 3)), 5.0, np.zeros((3, 3)))
    some = ClassTrainingError(np.zeros((3, 3)), 5.0, least)
    expected = sums @ np.linalg.solve(variance + slope @ least @ slope.T, sums)
    assert some.test(sums, variance, slope)[0] == pytest.approx(expected)
    assert some.test(sums, variance, slope)[2] > nothing.test(sums, variance, slope)[2]
    with pytest.raises(InvalidInput, match="covariances"):
        ClassTrainingError(np.full((3, 3), np.nan), 5.0, least)


def test_refits_of_a_regression_find_its_error_and_the_test_keeps_its_size():
    """A right model's error is known: as many new rows as training rows double the variance of the residuals."""
    rejected, plain, sizes, true = [], [], [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = draw(rng, 600)
        model = LogisticRegression(C=1e4).fit(X, y)
        error = crcen.training_error(model, X, y, n_fits=6, random_state=seed)
        trained = Price(np.ones(3), np.bincount(y).astype(float))
        sizes.append(error.sizes)
        judged_on, _ = draw(rng, 4000)
        p = model.predict_proba(judged_on)
        right = np.exp(BIAS + judged_on @ COEF)
        gap = (right / right.sum(axis=1, keepdims=True) - p).mean(axis=0)
        slope = np.diag(p.mean(axis=0)) - p.T @ p / len(p)
        true.append(np.linalg.pinv(slope, rcond=1e-9, hermitian=True) @ gap)
        for _ in range(8):
            new, labels = draw(rng, 1800)
            q = model.predict_proba(new)
            plain.append(judge_class_equations(labels, q, trained, "abc", noise=1.0).joint.p_value)
            rejected.append(judge_class_equations(labels, q, trained, "abc", error=error).joint.p_value)
    assert np.mean(np.array(plain) < 0.05) > 0.2  # three times as many new rows: variances are four times as large
    assert np.mean(np.array(rejected) < 0.05) < 0.09
    assert np.mean(np.array(rejected) < 0.5) > 0.25  # and the test still says something
    ratio = np.sqrt(np.mean(np.square(sizes), axis=0) / np.var(true, axis=0))
    assert ((ratio > 0.7) & (ratio < 1.6)).all()
