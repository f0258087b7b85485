"""Nothing of a held-out row gets into a fold's network, neither through the inputs' scale nor through a sampler."""

import dataclasses

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

import crcen
from crcen.paper.reproduction.protocol import _search, _training_rows
from crcen.training import engine

SAMPLERS = ["smote", "adasyn"]
REAL_TRAIN = engine.train


@pytest.fixture
def data(toy):
    return toy()


@pytest.fixture
def folds(data, protocol):
    cut = StratifiedKFold(protocol["folds"], shuffle=True, random_state=protocol["seed"])
    return [train for train, _ in cut.split(data.X, data.y)]


def check_scaling(monkeypatch, name, data, folds, protocol, train):
    """Search with `train`, and hold every network's scale against the rows of its own fold."""
    seen = []

    def spy(X, y, jobs):
        results = train(X, y, jobs)
        seen.extend((X, job, result.network) for job, result in zip(jobs, results, strict=True))
        return results

    monkeypatch.setattr("crcen.paper.reproduction.protocol.find_engine", lambda _: spy)
    _search(name, data.X, data.y, protocol)
    assert len(seen) == 4 * len(folds)
    for position, (X, job, network) in enumerate(seen):
        own = data.X[folds[position % len(folds)]]
        if name == "crcen":
            np.testing.assert_allclose(network.encoding.mean, own.mean(axis=0), rtol=1e-9)
            np.testing.assert_allclose(network.encoding.scale, own.std(axis=0), rtol=1e-9)
        else:  # the fold's rows and those made from them
            np.testing.assert_allclose(X[job.rows.pool][: len(own)], own, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(network.encoding.mean, X[job.rows.pool].mean(axis=0), rtol=1e-9)


@pytest.mark.parametrize("name", ["crcen", "smote"])
def test_scaling_is_fitted_on_the_folds_rows(monkeypatch, data, folds, protocol, name):
    check_scaling(monkeypatch, name, data, folds, protocol, REAL_TRAIN)


def test_the_check_above_fails_where_scaling_is_fitted_on_all_rows(monkeypatch, data, folds, protocol):
    def leaky(X, y, jobs):
        mean, scale = X.mean(axis=0), X.std(axis=0)
        raw = [dataclasses.replace(job, standardize=False) for job in jobs]
        results = REAL_TRAIN((X - mean) / scale, y, raw)
        return [
            dataclasses.replace(
                result,
                network=dataclasses.replace(
                    result.network, encoding=dataclasses.replace(result.network.encoding, mean=mean, scale=scale)
                ),
            )
            for result in results
        ]

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_scaling(monkeypatch, "crcen", data, folds, protocol, leaky)


def test_a_wild_held_out_row_changes_no_other_folds_network(monkeypatch, data, folds, protocol):
    # The same from outside: with scaling on all rows a value of 1e6 would flatten its column everywhere.
    wild = data.X.copy()
    out = np.setdiff1d(np.arange(len(wild)), folds[0])[0]
    wild[out] = 1e6
    networks = []
    for X in (data.X, wild):

        def spy(X, y, jobs):
            results = REAL_TRAIN(X, y, jobs)
            networks.append([result.network for result in results[:: len(folds)]])  # those of the first fold
            return results

        monkeypatch.setattr("crcen.paper.reproduction.protocol.find_engine", lambda _: spy)
        _search("crcen", X, data.y, protocol)
    for clean, other in zip(*networks, strict=True):
        np.testing.assert_array_equal(clean.encoding.mean, other.encoding.mean)
        np.testing.assert_allclose(clean.logits(data.X), other.logits(data.X), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_held_out_row_does_not_change_the_resampled_rows(data, folds, protocol, name):
    training = crcen.METHODS[name].training
    wild = data.X.copy()
    held_out = np.setdiff1d(np.arange(len(wild)), folds[0])
    wild[held_out[data.y[held_out] == 1][0]] = 1e6
    wild[held_out[data.y[held_out] == 0][0]] = -1e6
    (clean, *_), rows, labels = _training_rows(training, name, data.X, data.y, folds, protocol)
    (other, second, *_), wild_rows, wild_labels = _training_rows(training, name, wild, data.y, folds, protocol)
    np.testing.assert_array_equal(rows[clean], wild_rows[other])
    np.testing.assert_array_equal(labels[clean], wild_labels[other])
    assert np.abs(wild_rows[second]).max() > 1e5  # the fold that owns the row does see it


@pytest.mark.parametrize("name", SAMPLERS)
def test_synthetic_rows_lie_between_the_folds_own_positives(data, folds, protocol, name):
    pools, rows, labels = _training_rows(crcen.METHODS[name].training, name, data.X, data.y, folds, protocol)
    np.testing.assert_array_equal(np.concatenate(pools), np.arange(len(rows)))  # each fold has its rows to itself
    for own, fold in zip(pools, folds, strict=True):
        made = rows[own][len(fold) :]
        assert len(made) > 0
        assert (labels[own][len(fold) :] == 1).all()
        positives = data.X[fold][data.y[fold] == 1]
        assert (made >= positives.min(axis=0) - 1e-9).all()
        assert (made <= positives.max(axis=0) + 1e-9).all()


def test_methods_that_do_not_resample_use_the_rows_themselves(data, folds, protocol):
    pools, rows, labels = _training_rows(crcen.METHODS["crcen"].training, "crcen", data.X, data.y, folds, protocol)
    assert rows is data.X
    assert labels is data.y
    for pool, fold in zip(pools, folds, strict=True):
        np.testing.assert_array_equal(pool, fold)
