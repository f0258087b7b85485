"""ClassWeightedLoss and NaturalLogits against sums by hand; stationarity finds every cause and accuses no other."""

import copy
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from labelled_rows import rows
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import crcen
from crcen import CostRatio, balance_shift
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.price import Price
from crcen.torch import ClassWeightedLoss, NaturalLogits, balance_, stationarity
from crcen.torch.balance import logit_columns

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


from_torch, two = ClassWeightedLoss.from_torch, ClassWeightedLoss([1.0, 2.0])


def logit_rows(n=23, n_classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, n_classes, generator=generator, dtype=torch.float64) * 3
    y = torch.arange(n) % n_classes
    return logits, y


def by_hand(logits, y, weights):
    """Mean over rows of −w_y log softmax_y, row by row in plain Python."""
    total = 0.0
    for row, k in zip(logits.tolist(), y.tolist(), strict=True):
        total -= weights[k] * (row[k] - math.log(sum(math.exp(v) for v in row)))
    return total / len(y)


def test_of_k_classes_it_is_the_weighted_sum_over_rows_that_are_not_ignored():
    logits, y = logit_rows()
    some = torch.where(torch.arange(len(y)) % 4 == 1, -100, y)
    expected = [by_hand(logits[own], y[own], [0.5, 2.0, 7.0]) for own in (y >= 0, some >= 0)]
    for weights in ([0.5, 2.0, 7.0], {2: 7.0, 0: 0.5, 1: 2.0}):
        loss = ClassWeightedLoss(weights)
        assert [float(loss(logits, target)) for target in (y, some)] == pytest.approx(expected, rel=1e-12)
        assert float(loss(logits[:0], y[:0])) == 0.0


@pytest.mark.parametrize("form", [lambda t: t, lambda t: t[:, None]], ids=["flat", "column"])
@pytest.mark.parametrize("kind", [torch.int64, torch.float32, torch.bool, torch.uint8])
def test_one_logit_takes_targets_of_every_kind(form, kind):
    logits, y = logit_rows(n_classes=2)
    margin = logits[:, 1] - logits[:, 0]
    loss = ClassWeightedLoss([1.0, 5.0])
    expected = by_hand(logits, y, [1.0, 5.0])
    assert float(loss(form(margin), form(y.to(kind)))) == pytest.approx(expected, rel=1e-12)
    assert float(loss(logits, y)) == pytest.approx(expected, rel=1e-12)
    assert float(loss(logits, y.double())) == pytest.approx(expected, rel=1e-12)


def test_soft_labels_are_rows_in_parts():
    logits, _ = logit_rows(n=4)
    shares = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.2, 0.3, 0.5], [0, 0, 1.0]], dtype=torch.float64)
    weights = [1.0, 3.0, 8.0]
    parts = sum(float(shares[i, k]) * by_hand(logits[[i]], torch.tensor([k]), weights) for i, k in np.ndindex(4, 3))
    assert float(ClassWeightedLoss(weights)(logits, shares)) == pytest.approx(parts / 4, rel=1e-12)
    margin, soft = logits[:, 1] - logits[:, 0], torch.tensor([0.1, 1.0, 0.0, 0.6], dtype=torch.float64)
    expected = -(4 * soft * torch.sigmoid(margin).log() + (1 - soft) * torch.sigmoid(-margin).log()).mean()
    assert float(ClassWeightedLoss([1.0, 4.0])(margin, soft)) == pytest.approx(float(expected), rel=1e-12)


def test_its_gradient_is_that_of_the_key_equation():
    logits, y = logit_rows()
    weights = torch.tensor([0.5, 2.0, 7.0], dtype=torch.float64)
    logits.requires_grad_()
    ClassWeightedLoss(weights)(logits, y).backward()
    expected = weights[y][:, None] * (torch.softmax(logits.detach(), 1) - nn.functional.one_hot(y, 3)) / len(y)
    assert torch.allclose(logits.grad, expected, rtol=1e-12, atol=1e-15)
    margin = torch.tensor([2.0, -1.0, 800.0, -800.0], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 1, 1, 0])
    assert torch.autograd.gradcheck(lambda m: ClassWeightedLoss([1.0, 9.0])(m, target), margin)
    far = torch.tensor([1e4, -1e4], requires_grad=True)
    ClassWeightedLoss([1.0, 9.0])(far, torch.tensor([0, 1])).backward()
    assert far.grad.tolist() == [0.5, -4.5]


@pytest.mark.parametrize("size", [1, 2, 5, 22, 23])
def test_batches_of_any_size_add_up_to_all_rows(size):
    logits, y = logit_rows()
    loss = ClassWeightedLoss("balanced", counts=torch.bincount(y))
    whole = float(loss(logits, y))
    batches = list(zip(logits.split(size), y.split(size), strict=True))
    assert sum(float(loss(a, b)) * len(b) for a, b in batches) / len(y) == pytest.approx(whole, rel=1e-12)
    assert sum(float(loss(a, b, num_items_in_batch=len(y))) for a, b in batches) == pytest.approx(whole, rel=1e-12)
    if size in (2, 5):  # and torch's does not
        trap = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 30.0], dtype=torch.float64))
        mean = sum(float(trap(a, b)) * len(b) for a, b in batches) / len(y)
        assert abs(mean / float(trap(logits, y)) - 1) > 0.01


def test_weights_of_torchs_losses_travel_with_the_module():
    logits, y = logit_rows()
    weights = torch.tensor([0.5, 2.0, 7.0])
    loss = from_torch(nn.CrossEntropyLoss(weight=weights))
    summed = nn.CrossEntropyLoss(weight=weights.double(), reduction="sum")(logits, y)
    assert float(loss(logits, y)) == pytest.approx(float(summed) / len(y), rel=1e-12)
    margin, target = logits[:, 0], (y == 1).double()
    binary = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(6.0))
    found = float(from_torch(binary)(margin, target))
    assert found == pytest.approx(float(binary(margin, target)), rel=1e-12)
    assert from_torch(nn.BCEWithLogitsLoss()).class_weights.tolist() == [1.0, 1.0]
    other = ClassWeightedLoss(None, [1, 1, 1])
    other.load_state_dict(loss.state_dict())
    assert repr(other) == repr(copy.deepcopy(loss)) == "ClassWeightedLoss([0.5, 2.0, 7.0])"
    assert other(logits.half(), y).dtype == torch.float32


def test_a_price_whose_first_class_is_positive_has_the_same_weights_everywhere():
    (x, y), price = rows(), Price([0.8, 0.2], [10, 90], None, 0)
    assert ClassWeightedLoss(price).class_weights.tolist() == pytest.approx([3.08, 0.77], abs=0.01)
    nets = [nn.Linear(6, n) for n in (1, 1, 2, 2)]
    for one, same in (nets[:2], nets[2:]):
        same.load_state_dict(one.state_dict())
        lams = [balance_(m, [(x, y)], w).weighting.lam for m, w in ((one, price), (same, [4.0, 1.0]))]
        assert (torch.allclose(one.bias, same.bias), lams) == (True, pytest.approx([0.2, 0.2]))


@pytest.mark.parametrize(
    ("weighting", "counts", "expected"),
    [
        (crcen.Lam(0.9), None, [0.2, 1.8]),
        (crcen.CostRatio(9), [50, 50], [0.2, 1.8]),
        ("balanced", [90, 10], [100 / 180, 5.0]),
        (crcen.Alpha(1), [90, 10], [100 / 180, 5.0]),
        ("balanced", [60, 30, 10], [100 / 180, 100 / 90, 100 / 30]),
        (None, None, [1.0, 1.0]),
        (None, [3, 4, 5], [1.0, 1.0, 1.0]),
        (crcen.CostMatrix([[0, 1, 1], [4, 0, 4], [9, 9, 0]]), None, [1.0, 4.0, 9.0]),
    ],
)
def test_weights_of_every_weighting(weighting, counts, expected):
    found = ClassWeightedLoss(weighting, counts).class_weights.numpy()
    assert np.allclose(found / found[0], np.array(expected) / expected[0], rtol=1e-6)
    if counts is not None or isinstance(weighting, crcen.Lam):  # classes of equal size without counts
        sizes = counts or [1, 1]
        assert found @ sizes == pytest.approx(sum(sizes), rel=1e-6)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ClassWeightedLoss("balanced"), "needs the rows of each class"),
        (lambda: ClassWeightedLoss(crcen.Lam(0.9), [1, 2, 3]), "price for two classes"),
        (lambda: ClassWeightedLoss([1.0, -2.0]), "above 0"),
        (lambda: ClassWeightedLoss(nn.CrossEntropyLoss()), "from_torch"),
        (lambda: ClassWeightedLoss(crcen.CostMatrix([[0, 1, 2], [4, 0, 5], [9, 1, 0]])), "not class weights"),
        (lambda: two(torch.zeros(4, 3), torch.zeros(4).long()), "logits for 2 classes"),
        (lambda: two(torch.zeros(4), torch.zeros(3).long()), "each of 4 rows"),
        (lambda: two(torch.zeros(4), torch.tensor([1, 2, 1, 2])), "between 0 and 1: got 1 to 2"),
        (lambda: two(torch.zeros(4), torch.tensor([1.0, 2.0, 1.0, 2.0])), "between 0 and 1: got 1 to 2"),
        (lambda: two(torch.zeros(4, 2, 5), torch.zeros(4).long()), "logits for 2 classes"),
        (lambda: ClassWeightedLoss([1.0, 2.0, 3.0])(torch.zeros(4, 3), torch.zeros(4)), r"target\.long"),
        *(
            (lambda loss=loss: from_torch(loss), f"from_torch takes .* got {type(loss).__name__}")
            for loss in (
                nn.MSELoss(),
                nn.CrossEntropyLoss(),
                nn.CrossEntropyLoss(weight=torch.ones(3), reduction="sum"),
                nn.CrossEntropyLoss(weight=torch.ones(3), label_smoothing=0.1),
                nn.BCEWithLogitsLoss(pos_weight=torch.ones(4)),
                nn.BCEWithLogitsLoss(weight=torch.ones(4)),
            )
        ),
    ],
)
def test_weightings_losses_and_batches_that_cannot_be_used_are_rejected(call, sentence):
    with pytest.raises((InvalidInput, InvalidParameter), match=sentence):
        call()


def test_torch_is_loaded_with_crcen_torch_alone():
    code = (
        "import json, sys, crcen; before = 'torch' in sys.modules or 'crcen.torch' in sys.modules; "
        "import crcen.torch; import torch; ok = torch.tensor and crcen.torch.ClassWeightedLoss; "
        "print(json.dumps([before, 'sklearn' in sys.modules, bool(ok)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [False, False, True]


@pytest.mark.parametrize(("columns", "is_flat"), [(1, False), (1, True), (2, False), (3, False)])
def test_its_softmax_is_the_posterior(columns, is_flat):
    x, _ = rows(200, 4, dtype=torch.float64)
    net = nn.Linear(4, columns).double()
    net = nn.Sequential(net, nn.Flatten(0)) if is_flat else net
    weights = np.array([1.0, 4.0, 20.0])[: max(columns, 2)]
    natural = NaturalLogits(net, weights)
    assert natural(x).shape == net(x).shape
    q, p = (logit_columns(module(x)).softmax(1).detach().numpy() for module in (net, natural))
    assert np.allclose(p, (q / weights) / (q / weights).sum(1, keepdims=True), rtol=1e-12)
    with pytest.raises(InvalidInput, match=f"{columns} logits per row: got weights for 4"):
        NaturalLogits(net, [1.0, 2.0, 3.0, 4.0])(x)


def loaded(natural, x, folder):
    weights = len(natural.class_weights)
    other = NaturalLogits(copy.deepcopy(natural.module), None, counts=[1] * weights)
    other.load_state_dict(natural.state_dict())
    return other(x)


def scripted(natural, x, folder):
    program = torch.jit.script(natural)
    assert list(program.state_dict()) == list(natural.state_dict())
    torch.jit.save(program, str(folder / "net.pt"))
    return torch.jit.load(str(folder / "net.pt"))(x)


def by_onnx(natural, x, folder):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    torch.onnx.export(natural, (x,), str(folder / "net.onnx"), dynamo=True, verbose=False)
    session = runtime.InferenceSession(str(folder / "net.onnx"), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])


PROGRAMS = {
    "loaded": loaded,
    "exported": lambda natural, x, folder: torch.export.export(natural, (x,)).module()(x),
    "traced": lambda natural, x, folder: torch.jit.trace(natural, x)(x),
    "scripted": scripted,
    "compiled": lambda natural, x, folder: torch.compile(natural, backend="aot_eager", fullgraph=True)(x),
    "onnx": by_onnx,
}


@pytest.mark.filterwarnings("ignore")  # of torch, about its own programs
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_answer_as_the_module_does(program, columns, tmp_path):
    x, y = rows(200, 4, max(columns, 2))
    loss = ClassWeightedLoss([1.0, 9.0, 20.0][: max(columns, 2)])
    natural = NaturalLogits(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, columns, bias=False)), loss)
    balance_(natural, [(x, y)], loss)
    assert float(natural.shift.abs().max()) > 0.1
    torch.testing.assert_close(program(natural.eval(), x[:7], tmp_path), natural(x[:7]), rtol=0, atol=1e-5)
    whole = torch.compile(lambda a, b: loss(natural(a), b), backend="aot_eager", fullgraph=True)
    assert whole(x, y).item() == pytest.approx(loss(natural(x), y).item(), rel=1e-5)
