"""Independent truth for the engine's tests: plain NumPy and autograd, one network at a time, no engine code.

`little_memory` alone asks the planner, for what it takes to split stacks.
"""

from itertools import pairwise

import numpy as np
import torch

from crcen.training.engine import Trainer, plan, shared_bytes, stack_bytes
from crcen.training.jobs import TrainingJob

CPU = "cpu"
TORCH_ACTIVATIONS = {
    "relu": lambda z: torch.where(z > 0, z, torch.zeros_like(z)),
    "tanh": torch.tanh,
    "sigmoid": lambda z: 1.0 / (1.0 + torch.exp(-z)),
    "gelu": lambda z: 0.5 * z * (1.0 + torch.erf(z / 2.0**0.5)),
    "silu": lambda z: z / (1.0 + torch.exp(-z)),
}
ACTIVATION_NAMES = tuple(TORCH_ACTIVATIONS)


def networks_of(stack, flat):
    """(group, model, weights, biases) of every network in a flat vector of a stack."""
    weights, biases = stack.arrays(flat)
    for group in range(stack.n_groups):
        for model in range(stack.n_models):
            yield group, model, [w[group, model] for w in weights], [b[group, model] for b in biases]


def splitmix_uniform(seed, count):
    """Numbers in [−1, 1) of splitmix64's output function, in plain integers."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    key = mix((seed + golden) & mask)
    return np.array([(mix((key + i * golden) & mask) >> 11) * 2.0**-52 - 1.0 for i in range(1, count + 1)])


def initial_parameters(n_features, hidden, activation, seed):
    """Glorot-uniform weights and hidden biases; zeros without hidden layer and at the output bias."""
    sizes = (n_features, *hidden, 1)
    gain = 24.0 if activation == "sigmoid" else 6.0
    numbers = splitmix_uniform(seed, sum(a * b + b for a, b in pairwise(sizes)))
    weights, biases, start = [], [], 0
    for a, b in pairwise(sizes):
        own = numbers[start : start + a * b + b] * np.sqrt(gain / (a + b))
        weights.append(own[: a * b].reshape(a, b) * bool(hidden))
        biases.append(own[a * b :].copy())
        start += a * b + b
    biases[-1][:] = 0.0
    return weights, biases


def torch_row_loss(loss, logits, y):
    if loss == "cross_entropy":
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="none")
    return (torch.tanh(logits / 2.0) - (2.0 * y - 1.0)) ** 2


def torch_logits(x, weights, biases, activation):
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = TORCH_ACTIVATIONS[activation](x @ weight + bias)
    return (x @ weights[-1] + biases[-1])[:, 0]


def plain_logits(network, X):
    z = (np.asarray(X, dtype=float) - network.encoding.mean) / network.encoding.scale
    parameters = ([torch.from_numpy(part) for part in side] for side in (network.weights, network.biases))
    return torch_logits(torch.from_numpy(z), *parameters, network.activation).numpy()


def plain_loss(loss, y, logits, weights):
    y = np.asarray(y, dtype=float)
    rows = (
        np.logaddexp(0.0, logits) - y * logits if loss == "cross_entropy" else (np.tanh(logits / 2) - (2 * y - 1)) ** 2
    )
    return np.sum(weights * rows) / np.sum(weights)


def data_gradients(network, X, y, weights, loss="cross_entropy"):
    """Autograd gradient of Σ w ℓ / Σ w, without the penalty, at a fitted network: (weight grads, bias grads)."""
    z = torch.from_numpy((X - network.encoding.mean) / network.encoding.scale)
    parameters = [torch.from_numpy(p.copy()).requires_grad_() for p in (*network.weights, *network.biases)]
    depth = len(network.weights)
    logits = torch_logits(z, parameters[:depth], parameters[depth:], network.activation)
    w = torch.from_numpy(weights / weights.sum())
    (w * torch_row_loss(loss, logits, torch.from_numpy(np.asarray(y, dtype=float)))).sum().backward()
    grads = [p.grad.numpy() for p in parameters]
    return grads[:depth], grads[depth:]


def flat(network):
    return np.concatenate([part.ravel() for part in (*network.weights, *network.biases)])


def assert_same_result(one, other, *, rtol, atol):
    assert one.status is other.status
    assert one.n_iter == other.n_iter
    np.testing.assert_allclose(one.network.encoding.mean, other.network.encoding.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(one.network.encoding.scale, other.network.encoding.scale, rtol=1e-12)
    assert [w.shape for w in one.network.weights] == [w.shape for w in other.network.weights]
    np.testing.assert_allclose(flat(one.network), flat(other.network), rtol=rtol, atol=atol)
    np.testing.assert_allclose(one.loss_curve, other.loss_curve, rtol=rtol, atol=atol)
    np.testing.assert_allclose(one.val_loss_curve, other.val_loss_curve, rtol=rtol, atol=atol)


def little_memory(X, y, jobs, networks=1):
    """A bound under which so many of the largest networks, and no more, can be trained at a time."""
    data = Trainer(X, y, device=CPU).data
    sizes = data.n_rows, data.n_inputs
    largest = max(stack_bytes(groups, jobs, *sizes) for groups in plan(jobs, *sizes, 0))
    return shared_bytes(data.n_rows, data.X.shape[1]) + networks * largest


def binary_job(lam, **settings):
    """A job for two classes at the weight λ."""
    return TrainingJob((1 - lam, lam), **settings)


def adam_by_torch(n_features, hidden, activation, seed, output_bias, l2, peak, steps):
    """Adam of torch at a one-cycle rate; steps are (progress, rows, y, weights with their sum): parameters, losses."""
    weights, biases = initial_parameters(n_features, hidden, activation, seed)
    biases[-1][:] = output_bias
    weights, biases = ([torch.from_numpy(p).requires_grad_() for p in side] for side in (weights, biases))
    optimiser = torch.optim.Adam([*weights, *biases], eps=1e-8)
    losses = []
    for t, z, y, w in steps:
        # Up over the first fifth of the schedule, down along a cosine.
        optimiser.param_groups[0]["lr"] = peak * (t / 0.2 if t < 0.2 else 0.5 * (1 + np.cos(np.pi * (t - 0.2) / 0.8)))
        optimiser.zero_grad()
        data = (w * torch_row_loss("cross_entropy", torch_logits(z, weights, biases, activation), y)).sum()
        objective = data + 0.5 * l2 * sum((p**2).sum() for p in weights)
        objective.backward()
        optimiser.step()
        penalty = 0.5 * l2 * sum((p**2).sum() for p in weights)
        losses.append((data + penalty).item())
    return np.concatenate([p.detach().numpy().ravel() for p in (*weights, *biases)]), losses
