"""Encoded rows and fitted encodings on a device (a GPU if available) against those of the host."""

import numpy as np
import pytest
import torch
from training_reference import binary_job

from crcen.training.device import _encoded, encoded_on, fit_on_device, n_values
from crcen.training.encoding import ENCODINGS, column_layout, fit_encoding, incomplete_columns
from crcen.training.engine import train

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PARTS = ("mean", "scale", "low", "high")


def table(n=3000, seed=0):
    """Columns of many values, few, two, one, ties, wide tails and large numbers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8))
    X[:, 1] = np.round(3 * X[:, 1])
    X[:, 2] = rng.integers(0, 2, n)
    X[:, 3] = 1e30
    X[:, 4] = np.exp(4 * X[:, 4])
    X[:, 5] = rng.integers(0, 400, n)
    X[:, 6] = 1e8 + X[:, 6]
    return X


def both(X, y, kind, *, n_classes=2, missing=False):
    """The encoding by the host, and by torch."""
    layout, indicators = column_layout(X, kind, 12), incomplete_columns(X) if missing else None
    here = fit_encoding(kind, layout, X, y, np.ones(len(X)), indicators=indicators)
    cells, labels = torch.from_numpy(X).to(DEVICE), torch.from_numpy(y.astype(np.int64)).to(DEVICE)
    return here, fit_on_device(kind, layout, cells, labels, n_classes, indicators)


def assert_same(here, there):
    for name in PARTS:
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-11, atol=1e-11)
    for name in ("columns", "indicators"):
        np.testing.assert_equal(getattr(there, name), getattr(here, name))


@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize("kind", ENCODINGS)
def test_encoded_rows_equal_those_of_the_host(kind, has_gaps):
    X = table(400)
    y = X[:, 0] > 1
    if has_gaps:
        X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    indicators = incomplete_columns(X) if has_gaps else None
    encoding = fit_encoding(kind, column_layout(X, kind, 4), X[:200], y[:200], np.ones(200), indicators=indicators)
    np.testing.assert_array_equal(encoded_on(torch.device("cpu"), encoding, X), encoding(X))
    if encoding.knots is None:  # only the host interpolates
        np.testing.assert_allclose(_encoded(DEVICE, encoding, X).cpu(), encoding(X), rtol=1e-14)


@pytest.mark.parametrize("kind", ["standard", "steps"])
@pytest.mark.parametrize("n", [40, 200, 3000])
def test_the_fitted_encoding_equals_that_of_the_host(kind, n):
    X = table(n)
    y = X[:, 0] + X[:, 1] > 1
    here, there = both(X, y, kind)
    assert_same(here, there)
    if kind == "steps":  # counts are whole numbers, so rounding does not move a step
        ramps = here.columns.size - X.shape[1]
        np.testing.assert_array_equal(there.scale[-ramps:], here.scale[-ramps:])
        np.testing.assert_array_equal(there.high[-ramps:], here.high[-ramps:])


def test_missing_cells_and_indicators_equal_those_of_the_host():
    X = table()
    y = X[:, 0] > 1
    X[np.random.default_rng(1).random(X.shape) < 0.3] = np.nan
    X[:, 7], X[y, 0] = np.nan, np.nan  # no cell at all, and none of one class
    for kind in ("standard", "steps"):
        assert_same(*both(X, y, kind, missing=True))


def test_a_class_without_cells_is_left_out():
    X = table()
    y = np.digitize(X[:, 0], [-1, 0, 1])
    X[y == 2, 1] = np.nan
    assert_same(*both(X, y, "steps", n_classes=5, missing=True))


def test_distinct_values_are_counted_without_missing_cells():
    X = table(500)
    X[::3, 1], X[:, 7] = np.nan, np.nan
    expected = [len(set(column[~np.isnan(column)])) for column in X.T]
    np.testing.assert_array_equal(n_values(torch.from_numpy(X).to(DEVICE)), expected)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs CUDA")
@pytest.mark.parametrize("weights", [None, "uneven"])
def test_networks_on_a_gpu_equal_those_on_a_cpu(weights):
    X = table(1000)[:, [0, 1, 4, 5]]
    y = X[:, 0] > 0
    rows = None if weights is None else np.random.default_rng(2).uniform(1, 2, len(X))
    jobs = [
        binary_job(0.5, hidden=(8, 4), encoding=kind, column_scales=True, max_epochs=3)
        for kind in ("standard", "steps")
    ]
    for here, there in zip(
        *(train(X, y, jobs, sample_weight=rows, device=device) for device in ("cpu", "cuda")), strict=True
    ):
        assert_same(here.network.encoding, there.network.encoding)
        np.testing.assert_allclose(there.network.logits(X), here.network.logits(X), atol=1e-4)
