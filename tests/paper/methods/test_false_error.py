"""MSFE: squared error whose class weights follow the class errors."""

import numpy as np
import pytest
import torch

from crcen.paper.loss_networks import MeanSquaredFalseErrorClassifier, _WeightedSquaredError


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_gradient_is_that_of_the_sum_of_squared_class_errors(n_classes):
    rng = np.random.default_rng(1)
    y = torch.tensor(rng.choice(n_classes, size=60, p=[0.7, 0.3] if n_classes == 2 else [0.6, 0.3, 0.1]))
    logits = torch.tensor(rng.normal(size=(60, n_classes)), requires_grad=True)
    q = logits.softmax(dim=1)
    squares = ((torch.nn.functional.one_hot(y) - q) ** 2).sum(dim=1)
    errors = torch.stack([squares[y == k].mean() for k in range(n_classes)])
    expected = torch.autograd.grad((errors**2).sum(), logits)[0]
    loss = _WeightedSquaredError(n_classes).double()
    loss.set_errors(errors.detach(), torch.bincount(y).double().numpy())
    found = torch.autograd.grad(loss(logits, y), logits)[0]
    ratio = found / expected
    assert torch.allclose(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_follow_the_class_errors_epoch_by_epoch(n_classes):
    rng = np.random.default_rng(0)
    y = np.minimum(np.arange(400) % 10, n_classes - 1)
    X = rng.normal(size=(400, 3)) + 1.2 * y[:, None]
    model = MeanSquaredFalseErrorClassifier(hidden=(8,), max_epochs=12, random_state=0).fit(X, y)
    weights, counts = model.class_weights_, np.bincount(y)
    assert weights.shape == (12, n_classes)
    assert weights[0] == pytest.approx(400 / (n_classes * counts))
    assert weights @ counts == pytest.approx(400)
    logits = model._outputs(X)
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    squares = ((np.eye(n_classes)[y] - q) ** 2).sum(axis=1)
    errors = np.array([squares[y == k].mean() for k in range(n_classes)])
    # The last epoch moves the network once more, by a small step at the end of the one-cycle rate.
    assert weights[-1] / weights[-1, 0] == pytest.approx(errors / counts / (errors[0] / counts[0]), rel=0.1)
    p = model.predict_proba(X)
    assert p * weights[-1] / (p * weights[-1]).sum(axis=1, keepdims=True) == pytest.approx(q)
    if n_classes == 2:
        assert model.weighting_.cost_ratio == pytest.approx(weights[-1, 0] / weights[-1, 1])  # class 0 is the rarer one
