"""Simulated rows: densities against SciPy, labels against the stated posterior, the same rows everywhere."""

import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import expit, logit
from sklearn.metrics import log_loss

from crcen.datasets.simulated import make_rare_events, make_sim1, make_sim2, sim1_posterior, sim2_posterior
from crcen.exceptions import InvalidInput, InvalidParameter

MAKERS = [make_sim1, make_sim2]


@pytest.mark.parametrize("make", MAKERS)
def test_seed_decides_the_rows_and_defaults_are_the_papers_training_data(make):
    data = make()
    assert (data.n_pos, data.n_neg, data.imbalance_ratio) == (1000, 10000, 10.0)
    assert data.n_features == {"sim1": 1, "sim2": 3}[data.name]
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    one, same, other = make(50, 70, seed=4), make(50, 70, seed=np.random.SeedSequence(4)), make(50, 70, seed=5)
    np.testing.assert_array_equal(one.X, same.X)
    np.testing.assert_array_equal(one.y, same.y)
    np.testing.assert_array_equal(one.X, make(50, 70, seed=4).X)
    assert not np.array_equal(one.X, other.X)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    y = make(500, 500).y  # in random order
    assert stats.binomtest(int(y[:500].sum()), 500).pvalue > 1e-4


def convolved(x, mean, low, high):
    """Density of N(mean, 1) + U(low, high) by numerical integration over the uniform part."""
    return integrate.quad(lambda u: stats.norm.pdf(x - u, mean, 1) / (high - low), low, high, epsabs=0, epsrel=1e-12)[0]


def test_sim1_posterior_against_a_numerical_convolution():
    grid = np.linspace(-8, 8, 65)
    pos = np.array([convolved(x, -1.5, 0, 0.5) for x in grid])
    neg = np.array([convolved(x, 1.5, -0.5, 0) for x in grid])
    np.testing.assert_allclose(sim1_posterior(grid[:, None], 10), pos / (pos + 10 * neg), rtol=1e-9)


@given(st.floats(-1e6, 1e6))
def test_sim1_is_symmetric_and_falling(x):
    here, mirrored, right = sim1_posterior([[x], [-x], [x + 0.01]], 1.0)
    assert here + mirrored == pytest.approx(1.0, abs=1e-14)
    assert right < here or here == right in (0, 1)
    np.testing.assert_array_equal(sim1_posterior([[1e200], [-1e200]], 10), [0, 1])


def test_sim2_posterior_against_scipys_densities():
    X = make_sim2(200, 200, seed=2).X * 2
    pos = stats.multivariate_normal([0, 0, 0], 1.44 * np.eye(3)).logpdf(X)
    neg = stats.multivariate_normal([1, 1, 1], np.eye(3)).logpdf(X)
    np.testing.assert_allclose(sim2_posterior(X, 7.5), expit(pos - neg - np.log(7.5)), rtol=1e-10)
    assert sim2_posterior([[1e200, 1e200, 1e200]], 10) == [1.0]


@pytest.mark.parametrize(("make", "posterior"), [(make_sim1, sim1_posterior), (make_sim2, sim2_posterior)])
@pytest.mark.parametrize("ratio", [1, 10])
def test_posterior_is_calibrated_on_drawn_rows(make, posterior, ratio):
    data = make(100_000, 100_000 * ratio, seed=6)
    p = posterior(data.X, data.imbalance_ratio)
    groups = np.clip(np.searchsorted(np.quantile(p, np.linspace(0, 1, 21)), p, side="right") - 1, 0, 19)
    z = []
    for rows in (groups == group for group in range(20)):
        z.append((data.y[rows].sum() - p[rows].sum()) / np.sqrt(max(np.sum(p[rows] * (1 - p[rows])), 1.0)))
    assert np.max(np.abs(z)) < 4.5
    assert stats.chi2(20).sf(np.sum(np.square(z))) > 1e-3


FAMILIES = ["smooth", "tree"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ratio", [4, 50])
def test_labels_follow_the_posterior_in_every_bin(family, ratio):
    events = make_rare_events(10, n_features=6, imbalance_ratio=ratio, seed=3, family=family)
    X, y = events.sample(200_000)
    p = events.posterior(X)
    assert p.mean() == pytest.approx(1 / (1 + ratio), rel=0.03)
    for rows in np.array_split(np.argsort(p), 10):
        spread = np.sqrt(np.mean(p[rows] * (1 - p[rows])) / len(rows))
        assert y[rows].mean() == pytest.approx(p[rows].mean(), abs=4.5 * spread)


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_those_of_the_definition(family):
    events = make_rare_events(10, n_features=4, imbalance_ratio=9, family=family)
    X, y = events.sample(200_000)
    p = events.posterior(X)
    spread = np.std(np.where(y == 1, np.log(p), np.log1p(-p))) / np.sqrt(len(y))
    assert events.bayes_log_loss(X) == pytest.approx(log_loss(y, p), abs=5 * spread)
    wrong = np.clip(0.7 * p + 0.05, 0.0, 1.0)
    divergence = np.mean(p * np.log(p / wrong) + (1 - p) * np.log((1 - p) / (1 - wrong)))
    assert events.excess_log_loss(X, wrong) == pytest.approx(divergence, rel=1e-9)
    assert events.excess_log_loss(X, p) == pytest.approx(0.0, abs=1e-12)
    assert events.excess_log_loss(X, np.where(np.arange(len(p)) == 5, 0.0, p)) == np.inf
    line = np.zeros((100_001, 4))
    line[:, 0] = np.linspace(-3, 3, 100_001)
    steps = np.abs(np.diff(logit(events.posterior(line))))
    assert steps.max() < 1e-3 if family == "smooth" else 0 < np.count_nonzero(steps) < 80  # flat but for the cuts


@pytest.mark.parametrize("n", [1, 65_536, 65_537, 150_000])
def test_chunks_hold_the_rows_asked_for_and_are_the_same_each_time(n):
    events = make_rare_events(n, n_features=2, seed=4)
    X, y = (np.concatenate(part) for part in zip(*events, strict=True))
    assert X.shape == (n, 2)
    assert set(np.unique(y)) <= {0, 1}
    np.testing.assert_array_equal(X, np.concatenate([rows for rows, _ in pickle.loads(pickle.dumps(events))]))
    longer = next(iter(make_rare_events(70_000, n_features=2, seed=4)))[0]
    np.testing.assert_array_equal(X[:1], longer[:1])
    assert not np.array_equal(X[:1], next(iter(make_rare_events(n, n_features=2, seed=5)))[0][:1])
    first, second = (events.sample(1000, seed=seed)[0][:, 0] for seed in (0, 1))  # other rows
    drawn = [*first, *second, *X[:1000, 0]]
    assert len(set(drawn)) == len(drawn)


def test_files_hold_the_same_rows(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    events = make_rare_events(150_000, n_features=3, seed=2, path=tmp_path / "data", rows_per_file=70_000)
    assert [file.name for file in events.files] == [f"part-0000{i}.parquet" for i in range(3)]
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == [file.name for file in events.files]
    tables = [pq.read_table(file) for file in events.files]
    assert [len(table) for table in tables] == [70_000, 70_000, 10_000]
    assert tables[0].column_names == ["x0", "x1", "x2", "y"] == [*events.feature_names, "y"]
    X = np.concatenate([np.column_stack([table[f"x{j}"] for j in range(3)]) for table in tables])
    y = np.concatenate([table["y"] for table in tables])
    in_memory = [np.concatenate(part) for part in zip(*events, strict=True)]
    np.testing.assert_array_equal(X, in_memory[0])
    np.testing.assert_array_equal(y, in_memory[1])
    assert pq.ParquetFile(events.files[0]).metadata.row_group(0).num_rows <= 65_536
    with pytest.raises(InvalidParameter, match="holds Parquet files already"):
        make_rare_events(10, path=tmp_path / "data")


EVENTS = make_rare_events(10, n_features=3)
COUNTS = {"n_pos": (0, 1.5, True), "n_neg": (-1,), "seed": (-1, None)}
OPTIONS = dict.fromkeys(("n", "n_features", "seed", "rows_per_file"), (-1, 2.5))
OPTIONS |= {"imbalance_ratio": (0, np.inf), "family": ("forest",)}
GIVEN = [(make, COUNTS) for make in MAKERS] + [(partial(make_rare_events, n=10), OPTIONS)]
INVALID = [
    *((partial(make, **{k: v}), k) for make, own in GIVEN for k, values in own.items() for v in values),
    *((partial(sim1_posterior, [[0.0]], ratio), "imbalance_ratio") for ratio in (0, -1, np.nan, np.inf)),
    *((partial(sim1_posterior, X, 10), r"Sim1 got X .*\(n_samples, 1\)") for X in ([0], [[0, 1]], [[np.nan]], 3.0)),
    (partial(EVENTS.posterior, np.zeros((2, 4))), "shape"),
    (partial(EVENTS.posterior, np.full((2, 3), np.nan)), "NaN"),
    *(
        (partial(EVENTS.excess_log_loss, np.zeros((2, 3)), np.array(p)), "for each of the 2 rows")
        for p in ([0.0] * 3, [0.5, 1.5], [0.5, np.nan])
    ),
]


@pytest.mark.parametrize(("call", "match"), INVALID)
def test_rows_and_numbers_without_meaning_are_rejected(call, match):
    with pytest.raises((InvalidInput, InvalidParameter), match=match):
        call()
