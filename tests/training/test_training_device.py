"""Encoded rows on a device (a GPU if available) against those of the host."""

import numpy as np
import pytest
import torch
from training_reference import binary_job

from crcen.training.device import _encoded, encoded_on
from crcen.training.encoding import ENCODINGS, column_layout, fit_encoding, incomplete_columns
from crcen.training.engine import train

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def table(n=3000, seed=0):
    """Columns of many values, few, two, one, ties, wide tails and large numbers."""
    rng = np.random.default_rng(seed)
    z, few, many = rng.normal(size=(n, 5)).T, rng.integers(0, 2, n), rng.integers(0, 400, n)
    return np.column_stack([z[0], np.round(3 * z[1]), few, np.full(n, 1e30), np.exp(4 * z[2]), many, 1e8 + z[3], z[4]])


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
        for name in ("mean", "scale", "low", "high"):
            parts = [getattr(one.network.encoding, name) for one in (here, there)]
            np.testing.assert_allclose(*parts, rtol=1e-12)
        np.testing.assert_equal(there.network.encoding.columns, here.network.encoding.columns)
        np.testing.assert_allclose(there.network.logits(X), here.network.logits(X), atol=1e-4)
