"""Rare events: the posterior is the one the labels were drawn from, the rows are the same everywhere."""

import pickle

import numpy as np
import pytest
from sklearn.metrics import log_loss

from crcen import make_rare_events
from crcen.exceptions import InvalidInput, InvalidParameter

FAMILIES = ["smooth", "tree"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_imbalance_ratio_is_met(family):
    events = make_rare_events(10, n_features=6, imbalance_ratio=50, seed=3, family=family)
    X, y = events.sample(300_000)
    share, p = 1 / 51, events.posterior(X)
    assert p.mean() == pytest.approx(share, rel=0.03)
    assert y.mean() == pytest.approx(p.mean(), abs=5 * np.sqrt(share / len(y)))


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_follow_the_posterior_in_every_bin(family):
    events = make_rare_events(10, n_features=6, imbalance_ratio=4, seed=3, family=family)
    X, y = events.sample(200_000)
    p = events.posterior(X)
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


def test_the_families_are_what_they_are_called():
    smooth, tree = (make_rare_events(10, n_features=3, family=family, seed=1) for family in FAMILIES)
    line = np.zeros((100_001, 3))
    line[:, 0] = np.linspace(-3, 3, 100_001)
    assert np.abs(np.diff(smooth.logit(line))).max() < 1e-3
    steps = np.abs(np.diff(tree.logit(line)))
    assert 0 < np.count_nonzero(steps) < 80  # flat but for the cuts


@pytest.mark.parametrize("n", [1, 65_536, 65_537, 150_000])
def test_chunks_hold_the_rows_asked_for_and_are_the_same_each_time(n):
    events = make_rare_events(n, n_features=2, seed=4)
    X, y = (np.concatenate(part) for part in zip(*events, strict=True))
    assert X.shape == (n, 2)
    assert set(np.unique(y)) <= {0, 1}
    again = np.concatenate([rows for rows, _ in pickle.loads(pickle.dumps(events))])
    np.testing.assert_array_equal(X, again)
    longer = next(iter(make_rare_events(70_000, n_features=2, seed=4)))[0]
    np.testing.assert_array_equal(X[:1], longer[:1])
    assert not np.array_equal(X[:1], next(iter(make_rare_events(n, n_features=2, seed=5)))[0][:1])


def test_samples_are_other_rows_than_the_sets():
    events = make_rare_events(1000, n_features=2)
    inside = next(iter(events))[0]
    first, second = events.sample(1000, seed=0)[0], events.sample(1000, seed=1)[0]
    for other in (first, second):
        assert not np.isin(other[:, 0], inside[:, 0]).any()
    assert not np.isin(first[:, 0], second[:, 0]).any()


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


@pytest.mark.parametrize(
    "changes",
    [{"n": 0}, {"n": 2.5}, {"n_features": 0}, {"imbalance_ratio": 0}, {"imbalance_ratio": np.inf}, {"seed": -1},
     {"family": "forest"}, {"rows_per_file": 0}],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_by_name(changes):
    with pytest.raises(InvalidParameter, match=next(iter(changes))):
        make_rare_events(**{"n": 10, **changes})


def test_rows_and_probabilities_of_the_wrong_shape_are_refused():
    events = make_rare_events(10, n_features=3)
    with pytest.raises(InvalidInput, match="shape"):
        events.posterior(np.zeros((2, 4)))
    with pytest.raises(InvalidInput, match="NaN"):
        events.posterior(np.full((2, 3), np.nan))
    for p in (np.zeros(3), np.array([0.5, 1.5]), np.array([0.5, np.nan])):
        with pytest.raises(InvalidInput, match="a probability for each of the 2 rows"):
            events.excess_log_loss(np.zeros((2, 3)), p)
