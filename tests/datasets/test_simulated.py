import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import expit, log_ndtr

from crcen.datasets import make_sim1, make_sim2, sim1_log_ratio, sim1_posterior, sim2_log_ratio, sim2_posterior
from crcen.exceptions import InvalidInput, InvalidParameter

MAKERS = [make_sim1, make_sim2]


@pytest.mark.parametrize("make", MAKERS)
def test_defaults_are_the_papers_training_data(make):
    data = make()
    assert (data.n_pos, data.n_neg, data.imbalance_ratio) == (1000, 10000, 10.0)
    assert data.n_features == {"sim1": 1, "sim2": 3}[data.name]


@pytest.mark.parametrize("make", MAKERS)
def test_seed_decides_the_rows_and_the_global_generator_is_left_alone(make):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    one, same, other = make(50, 70, seed=4), make(50, 70, seed=4), make(50, 70, seed=5)
    np.testing.assert_array_equal(one.X, same.X)
    np.testing.assert_array_equal(one.y, same.y)
    assert not np.array_equal(one.X, other.X)
    sequence = make(50, 70, seed=np.random.SeedSequence(4))
    np.testing.assert_array_equal(one.X, sequence.X)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize("make", MAKERS)
def test_rows_are_in_random_order(make):
    y = make(500, 500).y
    assert stats.binomtest(int(y[:500].sum()), 500).pvalue > 1e-4


def test_sim1_moments():
    data = make_sim1(200_000, 200_000, seed=1)
    pos, neg = data.X[data.y == 1, 0], data.X[data.y == 0, 0]
    variance = 1 + 0.25 / 12
    for rows, mean in ((pos, -1.25), (neg, 1.25)):
        assert rows.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / 200_000))
        assert rows.var() == pytest.approx(variance, rel=0.02)


def test_sim2_moments_read_sigma_as_a_standard_deviation():
    data = make_sim2(200_000, 200_000, seed=1)
    pos, neg = data.X[data.y == 1], data.X[data.y == 0]
    np.testing.assert_allclose(pos.mean(axis=0), 0, atol=0.015)
    np.testing.assert_allclose(neg.mean(axis=0), 1, atol=0.015)
    np.testing.assert_allclose(np.cov(pos.T), 1.44 * np.eye(3), atol=0.02)
    np.testing.assert_allclose(np.cov(neg.T), np.eye(3), atol=0.02)


def convolved(x, mean, low, high):
    """Density of N(mean, 1) + U(low, high) by numerical integration over the uniform part."""
    value, _ = integrate.quad(
        lambda u: stats.norm.pdf(x - u, mean, 1) / (high - low), low, high, epsabs=0, epsrel=1e-12
    )
    return value


def test_sim1_posterior_against_a_numerical_convolution():
    grid = np.linspace(-8, 8, 65)
    pos = np.array([convolved(x, -1.5, 0, 0.5) for x in grid])
    neg = np.array([convolved(x, 1.5, -0.5, 0) for x in grid])
    np.testing.assert_allclose(sim1_log_ratio(grid[:, None]), np.log(pos / neg), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(sim1_posterior(grid[:, None], 10), pos / (pos + 10 * neg), rtol=1e-9)


def test_sim1_log_ratio_in_the_tails():
    def log_mass(low, high):
        # log(Φ(high) − Φ(low)), with the interval reflected to the left of zero
        low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)
        return log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))

    x = np.concatenate([-np.geomspace(3, 200, 30), np.geomspace(3, 200, 30)])
    expected = log_mass(x + 1, x + 1.5) - log_mass(x - 1.5, x - 1)
    np.testing.assert_allclose(sim1_log_ratio(x[:, None]), expected, rtol=1e-10)
    far = np.array([1e3, 1e8, 1e200])
    np.testing.assert_allclose(sim1_log_ratio(far[:, None]), -2.5 * far, rtol=1e-3)
    np.testing.assert_array_equal(sim1_posterior([[1e200], [-1e200]], 10), [0, 1])


@given(st.floats(-1e6, 1e6))
def test_sim1_is_symmetric_and_falling(x):
    here, mirrored, right = sim1_log_ratio([[x], [-x], [x + 0.01 + abs(x) * 1e-6]])
    assert here == pytest.approx(-mirrored, rel=1e-12, abs=1e-13)
    assert right < here


def test_sim2_posterior_against_scipys_densities():
    X = make_sim2(200, 200, seed=2).X * 2
    pos = stats.multivariate_normal([0, 0, 0], 1.44 * np.eye(3)).logpdf(X)
    neg = stats.multivariate_normal([1, 1, 1], np.eye(3)).logpdf(X)
    np.testing.assert_allclose(sim2_log_ratio(X), pos - neg, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(sim2_posterior(X, 7.5), expit(pos - neg - np.log(7.5)), rtol=1e-10)
    assert sim2_posterior([[1e200, 1e200, 1e200]], 10) == [1.0]


@pytest.mark.parametrize(("make", "posterior"), [(make_sim1, sim1_posterior), (make_sim2, sim2_posterior)])
@pytest.mark.parametrize("ratio", [1, 10])
def test_posterior_is_calibrated_on_drawn_rows(make, posterior, ratio):
    data = make(100_000, 100_000 * ratio, seed=6)
    p = posterior(data.X, data.imbalance_ratio)
    edges = np.quantile(p, np.linspace(0, 1, 21))
    groups = np.clip(np.searchsorted(edges, p, side="right") - 1, 0, 19)
    z = []
    for group in range(20):
        rows = groups == group
        variance = np.sum(p[rows] * (1 - p[rows]))
        z.append((data.y[rows].sum() - p[rows].sum()) / np.sqrt(max(variance, 1.0)))
    assert np.max(np.abs(z)) < 4.5
    assert stats.chi2(20).sf(np.sum(np.square(z))) > 1e-3


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "arguments", [{"n_pos": 0}, {"n_neg": -1}, {"n_pos": 1.5}, {"n_pos": True}, {"seed": -1}, {"seed": None}]
)
def test_counts_and_seeds_without_meaning_are_refused(make, arguments):
    (name,) = arguments
    with pytest.raises(InvalidParameter, match=f"Got {name}="):
        make(**arguments)


@pytest.mark.parametrize("ratio", [0, -1, float("nan"), float("inf")])
def test_ratio_without_meaning_is_refused(ratio):
    with pytest.raises(InvalidParameter, match="imbalance_ratio"):
        sim1_posterior([[0.0]], ratio)


@pytest.mark.parametrize("X", [[0.0], [[0.0, 1.0]], [[np.nan]], 3.0])
def test_rows_of_another_form_are_refused(X):
    with pytest.raises(InvalidInput, match=r"Sim1 got X with .*\(n_samples, 1\)"):
        sim1_posterior(X, 10)
