"""The benchmark of torch's weighted mean: what it computes against batches drawn by chance and torch's own gradient."""

import pytest
import torch
from torch import nn

from bench.validity import torch_weight_trap as trap


@pytest.mark.parametrize(("ratio", "size"), [(10, 8), (20, 16)])
def test_the_effective_ratio_is_that_of_torchs_gradients(ratio, size):
    """Gradients of torch's loss at logits 0, summed over drawn batches: pull of positives over that of negatives."""
    generator = torch.Generator().manual_seed(0)
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, float(ratio)]))
    pulls, counts = torch.zeros(2), torch.zeros(2)
    for _ in range(1500):
        y = (torch.rand(size, generator=generator) < 1 / (1 + ratio)).long()
        logits = torch.zeros(size, 2, requires_grad=True)
        loss(logits, y).backward()
        for k in (0, 1):
            pulls[k] += logits.grad[y == k, 1].abs().sum()
            counts[k] += (y == k).sum()
    found = float((pulls[1] / counts[1]) / (pulls[0] / counts[0])) / ratio
    assert found == pytest.approx(trap.effective_share(ratio, size), rel=0.1)


def test_large_batches_are_right_and_small_ones_are_not():
    assert trap.effective_share(50, 32) == pytest.approx(0.45, abs=0.01)
    assert trap.effective_share(50, 100_000) == pytest.approx(1.0, abs=1e-3)
    assert float(trap.binomial(30, 0.1).sum()) == pytest.approx(1.0, rel=1e-12)
