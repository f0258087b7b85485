"""Adam in one pass over the parameters, and in several where torch has no such pass."""

import numpy as np
import pytest
import torch
from training_reference import flat, problem

from crcen.training import solvers
from crcen.training.engine import train
from crcen.training.jobs import TrainingJob

X, Y = problem(n=130, n_features=3)
JOBS = [TrainingJob(0.7, hidden=hidden, l2=0.01, max_epochs=5, batch_size=32) for hidden in ((4,), (3, 2), ())]


def networks():
    return [flat(result.network) for result in train(X, Y, JOBS, device="cpu")]


def absent(*arguments, **options):
    raise AttributeError("_fused_adam_")


def other(flat, grad, first, second, *rest, **options):
    flat[0].add_(1.0)  # another formula


@pytest.mark.parametrize("replacement", [absent, other])
def test_without_it_the_networks_are_the_same(monkeypatch, replacement):
    solvers.has_fused_adam.cache_clear()
    expected = networks()
    solvers.has_fused_adam.cache_clear()
    monkeypatch.setattr(torch, "_fused_adam_", replacement)
    try:
        assert not solvers.has_fused_adam()
        for one, alone in zip(networks(), expected, strict=True):
            np.testing.assert_allclose(one, alone, rtol=2e-4, atol=2e-5)
    finally:
        solvers.has_fused_adam.cache_clear()
