"""stationarity: every cause is planted once, and once it is not there and is not accused."""

import copy

import numpy as np
import pytest
import torch
from labelled_rows import rows
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from crcen import CostRatio, balance_shift
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.torch import ClassWeightedLoss, balance_, stationarity

WEIGHTS = [1.0, 5.0]
DOUBLE = torch.float64


def fitted(net, loss, x, y, decay=0.0):
    """Full-batch training to the optimum; ``decay`` penalises the output bias of a linear module."""
    solver = torch.optim.LBFGS(net.parameters(), max_iter=300, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        value = loss(net(x), y)
        if isinstance(net, nn.Linear):
            value = value + 0.5 * decay * (net.bias**2).sum() + 1e-3 * (net.weight**2).sum()
        value.backward()
        return value

    solver.step(closure)
    return net


def linear(columns=2):
    torch.manual_seed(0)
    return nn.Linear(6, columns).double()


def is_explained(found, name, left=0.05):
    """Whether a cause alone explains the distance, of which at most a share is left."""
    return found.explained_by == (name,) and found[name].left < left * found.distance


def batches(x, y, size=50):
    return list(zip(x.split(size), y.split(size), strict=True))


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_network_at_its_optimum_is_stationary_and_nothing_is_accused(columns):
    x, y = rows(600, n_classes=max(columns, 2), dtype=DOUBLE)
    loss = ClassWeightedLoss([1.0, 5.0, 9.0][: max(columns, 2)])
    net = fitted(linear(columns), loss, x, y)
    before = copy.deepcopy(net.state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    found = stationarity(net, DataLoader(TensorDataset(x, y), 50, shuffle=True), loss, loss=loss, optimizer=optimizer)
    assert found.equation.residual < 1e-5
    assert {cause.verdict for cause in found.causes} == {"absent"}
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert (found.is_stationary, net.training, "stationary" in str(found)) == (True, True, True)


def test_the_shifts_are_what_balance_adds():
    x, y = rows(600, n_classes=3, dtype=DOUBLE)
    net = nn.Linear(6, 3).double()
    found = stationarity(net, batches(x, y), [1.0, 2.0, 3.0])
    before = net.bias.detach().clone()
    balance_(net, batches(x, y), [1.0, 2.0, 3.0])
    assert np.allclose(found.shifts, (net.bias.detach() - before).numpy(), atol=1e-10)
    assert not found.is_stationary
    assert "no examined cause explains it" in str(found)
    unseen = {cause.name for cause in found.causes if cause.verdict == "not examined"}
    assert unseen == {cause.name for cause in found.causes} - {"batch normalisation", "dropout"}
    assert all(np.isnan(found[name].left) for name in unseen)


@pytest.mark.parametrize("columns", [1, 2])
def test_weight_decay_on_biases(columns):
    x, y = rows(600, dtype=DOUBLE)
    x = x + 3.0  # the bias is large, so decay holds it back
    loss = ClassWeightedLoss(WEIGHTS)
    net = fitted(linear(columns), loss, x, y, decay=0.02)
    decayed = torch.optim.Adam(net.parameters(), lr=1e-5, weight_decay=0.02)
    found = stationarity(net, batches(x, y), loss, loss=loss, optimizer=decayed)
    assert is_explained(found, "weight decay on biases")
    groups = [{"params": [net.weight], "weight_decay": 0.02}, {"params": [net.bias], "weight_decay": 0.0}]
    free = torch.optim.Adam(groups, lr=1e-5)
    assert stationarity(net, batches(x, y), loss, optimizer=free)["weight decay on biases"].verdict == "absent"


def test_decay_beside_the_gradient():
    """AdamW: its decay weighs against the size of gradients, which only its state knows."""
    x, y = rows(600)
    x = x + 3.0
    loss = ClassWeightedLoss(WEIGHTS)
    torch.manual_seed(0)
    net = nn.Linear(6, 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.3)
    found = stationarity(net, batches(x, y), loss, optimizer=optimizer)
    assert found["weight decay on biases"].verdict == "not examined"
    generator = torch.Generator().manual_seed(0)
    for step in range(1500):
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * (1 - step / 1500)
        part = torch.randperm(len(y), generator=generator)[:60]
        optimizer.zero_grad()
        loss(net(x[part]), y[part]).backward()
        optimizer.step()
    found = stationarity(net, batches(x, y), loss, loss=loss, optimizer=optimizer)
    assert "weight decay on biases" in found.explained_by


@pytest.mark.parametrize("n_classes", [2, 3])
def test_label_smoothing(n_classes):
    x, y = rows(600, n_classes=n_classes, dtype=DOUBLE)
    weights = torch.tensor([1.0, 5.0, 9.0][:n_classes], dtype=torch.float64)
    smoothed = nn.CrossEntropyLoss(weight=weights, label_smoothing=0.2, reduction="sum")
    net = fitted(linear(n_classes), lambda a, b: smoothed(a, b) / len(b), x, y)
    found = stationarity(net, batches(x, y, len(y)), weights, loss=smoothed)
    assert is_explained(found, "label smoothing")
    sharp = nn.CrossEntropyLoss(weight=weights, reduction="sum")
    assert stationarity(net, batches(x, y), weights, loss=sharp)["label smoothing"].verdict == "absent"


def test_weights_divided_by_each_batch():
    x, y = rows(1200, dtype=DOUBLE)
    weights = torch.tensor([1.0, 12.0], dtype=torch.float64)
    torchs = nn.CrossEntropyLoss(weight=weights)
    order = torch.cat([torch.randperm(1200, generator=torch.Generator().manual_seed(k)) for k in range(8)])
    parts = order.split(8)

    def by_batch(outputs, target):
        return torch.stack([torchs(outputs[p], target[p]) for p in parts]).mean()

    net = fitted(linear(), by_batch, x, y)
    found = stationarity(net, DataLoader(TensorDataset(x, y), 8, shuffle=True), weights, loss=torchs)
    assert is_explained(found, "weights divided by batch", 0.4)
    right = stationarity(net, DataLoader(TensorDataset(x, y), 8), weights, loss=ClassWeightedLoss(weights))
    assert right["weights divided by batch"].verdict == "absent"


def test_other_weights_than_stated():
    x, y = rows(600, dtype=DOUBLE)
    net = fitted(linear(), ClassWeightedLoss(WEIGHTS), x, y)
    found = stationarity(net, batches(x, y), [1.0, 20.0], loss=ClassWeightedLoss(WEIGHTS))
    assert found.explained_by == ("other weights than stated",)
    assert stationarity(net, batches(x, y), WEIGHTS, loss=ClassWeightedLoss(WEIGHTS)).is_stationary


@pytest.mark.parametrize("is_seen_in_the_loader", [True, False])
def test_a_weighted_sampler_on_top_of_weights(is_seen_in_the_loader):
    x, y = rows(600, dtype=DOUBLE)
    drawn = torch.where(y == 1, 6.0, 1.0).double()
    loss = ClassWeightedLoss(WEIGHTS)

    def sampled(outputs, target):
        row = nn.functional.cross_entropy(outputs, target, reduction="none")
        return (drawn * torch.tensor(WEIGHTS)[target] * row).sum() / drawn.sum()

    net = fitted(linear(), sampled, x, y)
    sampler, data = WeightedRandomSampler(drawn, len(y)), TensorDataset(x, y)
    given = DataLoader(data, 50, sampler=sampler) if is_seen_in_the_loader else batches(x, y)
    found = stationarity(net, given, loss, loss=loss, sampler=None if is_seen_in_the_loader else sampler)
    assert is_explained(found, "weighted sampler")
    plain = stationarity(net, DataLoader(data, 50, shuffle=True), loss)
    assert plain["weighted sampler"].verdict == "absent"
    assert plain.distance == pytest.approx(found.distance)
    with pytest.raises(InvalidParameter, match="a weight for each of 50 rows"):
        stationarity(net, [(x[:50], y[:50])], loss, sampler=sampler)


class NormedHead(nn.Module):
    """A batch norm behind the last layer: statistics of a batch in training, running ones after it."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(6, 1), nn.BatchNorm1d(1)

    def forward(self, x):
        return self.norm(self.first(x))


def test_a_batch_normalised_head():
    x, y = rows(600)
    loss = ClassWeightedLoss(WEIGHTS)
    torch.manual_seed(0)
    net = fitted(NormedHead(), loss, x, y)
    with torch.no_grad():
        net.norm.running_mean.add_(1.0)  # statistics that lag behind
    kept = copy.deepcopy(net.state_dict())
    found = stationarity(net, [(x, y)], loss)
    assert is_explained(found, "batch normalisation")
    assert all(torch.equal(kept[name], value) for name, value in net.state_dict().items())
    assert (net.norm.training, found["dropout"].verdict) == (True, "absent")
    with torch.no_grad():
        hidden = net.first(x)
        net.norm.running_mean.copy_(hidden.mean(0))
        net.norm.running_var.copy_(hidden.var(0, unbiased=False))
    assert stationarity(net, [(x, y)], loss)["batch normalisation"].verdict == "absent"


def test_dropout():
    x, y = rows(4000)
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 1))
    with torch.no_grad():
        net[1].weight.fill_(2.0)
        net.train()
        torch.manual_seed(3)
        logits = net(x)[:, 0].double().numpy()
        net[1].bias += balance_shift(y.numpy(), logits, CostRatio(5))
    found = stationarity(net, [(x, y)], WEIGHTS)
    assert found.explained_by == ("dropout",)
    # A module that cannot be copied is examined, too, and keeps its running statistics.
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1))
    net.latest = net(x)  # an inner node of a graph, as torch.nn.utils.weight_norm keeps one: deepcopy refuses it
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert stationarity(net, batches(x, y), WEIGHTS)["dropout"].verdict != "not examined"
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(part.training for part in net.modules())


def test_early_stopping():
    x, y = rows(600)
    loss = ClassWeightedLoss(WEIGHTS, torch.bincount(y))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    with torch.no_grad():
        net[2].bias.fill_(2.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(x, y), 10, shuffle=True, generator=torch.Generator().manual_seed(0))
    for inputs, target in list(loader)[:5]:
        optimizer.zero_grad()
        loss(net(inputs), target).backward()
        optimizer.step()
    kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    state = torch.get_rng_state()
    found = stationarity(net, loader, loss, loss=loss, optimizer=optimizer)
    assert found.explained_by == ("early stopping",)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(kept[0][name], value) for name, value in net.state_dict().items())
    assert kept[1] == optimizer.state_dict()
    once = stationarity(net, iter(list(loader)), loss, loss=loss, optimizer=optimizer)
    assert once["early stopping"].verdict == "not examined"


def test_rows_and_biases_that_do_not_exist_are_rejected():
    x, y = rows(600)
    net = nn.Linear(6, 1)
    for given, bias, words in (
        ([], None, "empty loader"),
        ([(x[:3], torch.zeros(3))], None, "each of 2 classes"),
        ([(x, y)], "head", "no parameter of that name"),
    ):
        with pytest.raises((InvalidInput, InvalidParameter), match=words):
            stationarity(net, given, WEIGHTS, bias=bias)
    with pytest.raises(InvalidParameter, match="loss must be callable"):
        stationarity(net, [(x, y)], WEIGHTS, loss=5)
