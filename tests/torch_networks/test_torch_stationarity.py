"""stationarity: every cause is planted once, and once it is not there and is not accused."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from crcen import CostRatio, balance_shift
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.torch import ClassWeightedLoss, balance_, stationarity

WEIGHTS = [1.0, 5.0]


def rows(n=600, n_classes=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=generator) ** 2.5 * n_classes).long()
    x = torch.randn(n, 6, generator=generator) + 0.8 * y[:, None]
    return x, y


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


def batches(x, y, size=50):
    return list(zip(x.split(size), y.split(size), strict=True))


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_network_at_its_optimum_is_stationary_and_nothing_is_accused(columns):
    x, y = rows(n_classes=max(columns, 2))
    x = x.double()
    loss = ClassWeightedLoss([1.0, 5.0, 9.0][: max(columns, 2)])
    net = fitted(linear(columns), loss, x, y)
    before = copy.deepcopy(net.state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    found = stationarity(net, DataLoader(TensorDataset(x, y), 50, shuffle=True), loss, loss=loss, optimizer=optimizer)
    assert found.is_stationary
    assert found.equation.residual < 1e-5
    assert set(found.explained_by) == set()
    assert {c.name: c.verdict for c in found.causes} == dict.fromkeys((c.name for c in found.causes), "absent")
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert net.training
    assert "stationary" in str(found)


def test_the_shifts_are_what_balance_adds():
    x, y = rows(n_classes=3)
    net = nn.Linear(6, 3).double()
    found = stationarity(net, batches(x.double(), y), [1.0, 2.0, 3.0])
    before = net.bias.detach().clone()
    balance_(net, batches(x.double(), y), [1.0, 2.0, 3.0])
    assert np.allclose(found.shifts, (net.bias.detach() - before).numpy(), atol=1e-10)
    assert not found.is_stationary
    assert "no examined cause explains it" in str(found)
    unseen = {cause.name for cause in found.causes if cause.verdict == "not examined"}
    assert unseen == {cause.name for cause in found.causes} - {"batch normalisation", "dropout"}
    assert all(np.isnan(found[name].left) for name in unseen)


@pytest.mark.parametrize("columns", [1, 2])
def test_weight_decay_on_biases(columns):
    x, y = rows()
    x = x.double() + 3.0  # the bias is large, so decay holds it back
    loss = ClassWeightedLoss(WEIGHTS)
    net = fitted(linear(columns), loss, x, y, decay=0.02)
    decayed = torch.optim.Adam(net.parameters(), lr=1e-5, weight_decay=0.02)
    found = stationarity(net, batches(x, y), loss, loss=loss, optimizer=decayed)
    assert set(found.explained_by) == {"weight decay on biases"}
    assert found["weight decay on biases"].left < 0.05 * found.distance
    groups = [{"params": [net.weight], "weight_decay": 0.02}, {"params": [net.bias], "weight_decay": 0.0}]
    free = torch.optim.Adam(groups, lr=1e-5)
    assert stationarity(net, batches(x, y), loss, optimizer=free)["weight decay on biases"].verdict == "absent"


def test_decay_beside_the_gradient():
    """AdamW: its decay weighs against the size of gradients, which only its state knows."""
    x, y = rows()
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
    assert "weight decay on biases" in set(found.explained_by)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_label_smoothing(n_classes):
    x, y = rows(n_classes=n_classes)
    x, weights = x.double(), torch.tensor([1.0, 5.0, 9.0][:n_classes], dtype=torch.float64)
    smoothed = nn.CrossEntropyLoss(weight=weights, label_smoothing=0.2, reduction="sum")
    net = fitted(linear(n_classes), lambda a, b: smoothed(a, b) / len(b), x, y)
    found = stationarity(net, batches(x, y, len(y)), weights, loss=smoothed)
    assert set(found.explained_by) == {"label smoothing"}
    assert found["label smoothing"].left < 0.05 * found.distance
    sharp = nn.CrossEntropyLoss(weight=weights, reduction="sum")
    assert stationarity(net, batches(x, y), weights, loss=sharp)["label smoothing"].verdict == "absent"


def test_weights_divided_by_each_batch():
    x, y = rows(n=1200)
    x, weights = x.double(), torch.tensor([1.0, 12.0], dtype=torch.float64)
    torchs = nn.CrossEntropyLoss(weight=weights)
    order = torch.cat([torch.randperm(1200, generator=torch.Generator().manual_seed(k)) for k in range(8)])
    parts = order.split(8)

    def by_batch(outputs, target):
        return torch.stack([torchs(outputs[p], target[p]) for p in parts]).mean()

    net = fitted(linear(), by_batch, x, y)
    found = stationarity(net, DataLoader(TensorDataset(x, y), 8, shuffle=True), weights, loss=torchs)
    assert set(found.explained_by) == {"weights divided by batch"}
    assert found["weights divided by batch"].left < 0.4 * found.distance
    right = stationarity(net, DataLoader(TensorDataset(x, y), 8), weights, loss=ClassWeightedLoss(weights))
    assert right["weights divided by batch"].verdict == "absent"


def test_other_weights_than_stated():
    x, y = rows()
    x = x.double()
    net = fitted(linear(), ClassWeightedLoss(WEIGHTS), x, y)
    found = stationarity(net, batches(x, y), [1.0, 20.0], loss=ClassWeightedLoss(WEIGHTS))
    assert set(found.explained_by) == {"other weights than stated"}
    assert stationarity(net, batches(x, y), WEIGHTS, loss=ClassWeightedLoss(WEIGHTS)).is_stationary


@pytest.mark.parametrize("is_seen_in_the_loader", [True, False])
def test_a_weighted_sampler_on_top_of_weights(is_seen_in_the_loader):
    x, y = rows()
    x = x.double()
    drawn = torch.where(y == 1, 6.0, 1.0).double()
    loss = ClassWeightedLoss(WEIGHTS)

    def sampled(outputs, target):
        row = nn.functional.cross_entropy(outputs, target, reduction="none")
        return (drawn * torch.tensor(WEIGHTS)[target] * row).sum() / drawn.sum()

    net = fitted(linear(), sampled, x, y)
    sampler = WeightedRandomSampler(drawn, len(y))
    data = TensorDataset(x, y)
    if is_seen_in_the_loader:
        found = stationarity(net, DataLoader(data, 50, sampler=sampler), loss, loss=loss)
    else:
        found = stationarity(net, batches(x, y), loss, loss=loss, sampler=sampler)
    assert set(found.explained_by) == {"weighted sampler"}
    assert found["weighted sampler"].left < 0.01
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
    x, y = rows()
    loss = ClassWeightedLoss(WEIGHTS)
    torch.manual_seed(0)
    net = fitted(NormedHead(), loss, x, y)
    with torch.no_grad():
        net.norm.running_mean.add_(1.0)  # statistics that lag behind
    kept = copy.deepcopy(net.state_dict())
    found = stationarity(net, [(x, y)], loss)
    assert set(found.explained_by) == {"batch normalisation"}
    assert found["batch normalisation"].left < 0.02
    assert all(torch.equal(kept[name], value) for name, value in net.state_dict().items())
    assert net.norm.training
    assert found["dropout"].verdict == "absent"
    with torch.no_grad():
        hidden = net.first(x)
        net.norm.running_mean.copy_(hidden.mean(0))
        net.norm.running_var.copy_(hidden.var(0, unbiased=False))
    assert stationarity(net, [(x, y)], loss)["batch normalisation"].verdict == "absent"


def test_dropout():
    x, y = rows(n=4000)
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 1))
    with torch.no_grad():
        net[1].weight.fill_(2.0)
        net.train()
        torch.manual_seed(3)
        logits = net(x)[:, 0].double().numpy()
        net[1].bias += balance_shift(y.numpy(), logits, CostRatio(5))
    found = stationarity(net, [(x, y)], WEIGHTS)
    assert set(found.explained_by) == {"dropout"}


def test_early_stopping():
    x, y = rows()
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
    assert set(found.explained_by) == {"early stopping"}
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(kept[0][name], value) for name, value in net.state_dict().items())
    assert kept[1] == optimizer.state_dict()
    once = stationarity(net, iter(list(loader)), loss, loss=loss, optimizer=optimizer)
    assert once["early stopping"].verdict == "not examined"


def test_rows_biases_and_causes_that_do_not_exist_are_rejected():
    x, y = rows()
    net = nn.Linear(6, 1)
    for given, words in (([], "empty loader"), ([(x[:3], torch.zeros(3))], "each of 2 classes")):
        with pytest.raises(InvalidInput, match=words):
            stationarity(net, given, WEIGHTS)
    with pytest.raises(InvalidParameter, match="no parameter of that name"):
        stationarity(net, [(x, y)], WEIGHTS, bias="head")
    with pytest.raises(KeyError, match="label smoothing"):
        stationarity(net, [(x, y)], WEIGHTS)["smoothing"]


def test_a_module_that_cannot_be_copied_is_examined_and_keeps_its_running_statistics():
    x, y = rows()
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1))
    net.latest = net(x)  # an inner node of a graph, as torch.nn.utils.weight_norm keeps one: deepcopy refuses it
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = stationarity(net, batches(x, y), WEIGHTS)
    assert found["dropout"].verdict != "not examined"
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(part.training for part in net.modules())
