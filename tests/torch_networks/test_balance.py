"""balance_ on networks of many kinds, and in callbacks of trainers: the key equation holds, nothing else changed."""

import copy
import importlib
import json
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_rows import rows
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

import crcen
from crcen.exceptions import InvalidInput, InvalidParameter, MissingExtra
from crcen.theory.key_equation import key_equation_of_logits
from crcen.torch import ClassWeightedLoss, NaturalLogits, balance_


class Around(nn.Sequential):
    """A block with a way around it."""

    def forward(self, x):
        return x + super().forward(x)


def block():
    return Around(nn.Linear(36, 36), nn.BatchNorm1d(36), nn.ReLU(), nn.Dropout(0.2))


# The shape of a row, the body, the part of its answer that the head gets, and the head.
KINDS = {
    "convolutional": (
        (1, 6, 6),
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3)),
        lambda out: out,
        lambda columns: nn.Sequential(nn.Conv2d(4, columns, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    ),
    "recurrent": (
        (6, 6),
        lambda: nn.GRU(6, 5, batch_first=True),
        lambda out: out[0][:, -1],
        lambda columns: nn.Linear(5, columns),
    ),
    "attention": (
        (6, 6),
        lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.2, batch_first=True),
        lambda out: out.mean(1),
        lambda columns: nn.Linear(6, columns),
    ),
    "residual": (
        (36,),
        lambda: nn.Sequential(block(), block()),
        lambda out: out,
        lambda columns: nn.Linear(36, columns),
    ),
}


class Net(nn.Module):
    """A network whose head is made before its body, so that it is not the last that was registered."""

    def __init__(self, kind, columns):
        super().__init__()
        self.shape, body, self.part, head = KINDS[kind]
        self.head, self.body = head(columns), body()

    def forward(self, x):
        return self.head(self.part(self.body(x.reshape(-1, *self.shape))))


def trained(kind, columns, weighting, x, y, *, is_mixed=False):
    torch.manual_seed(1)
    net = Net(kind, columns).to(x.dtype)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    loss = ClassWeightedLoss(weighting, torch.bincount(y))
    for _ in range(4):
        for part in torch.randperm(len(y)).split(50):
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
                value = loss(net(x[part]), y[part])
            value.backward()
            optimiser.step()
    assert value.dtype == x.dtype
    return net


def residual_of(net, x, y, weights):
    """The largest |Σ w(e_y − q)| / Σ w over classes, from the module's own answers."""
    mode = net.training
    with torch.no_grad():
        logits = net.eval()(x).double()
    net.train(mode)
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    w = torch.as_tensor(weights, dtype=torch.float64)[y]
    gaps = (w[:, None] * (nn.functional.one_hot(y, logits.shape[1]) - torch.softmax(logits, 1))).sum(0)
    return float(gaps.abs().max() / w.sum())


@pytest.mark.parametrize(("columns", "is_mixed"), [(1, False), (2, False), (4, False), (1, True)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_key_equation_holds_for_networks_of_every_kind(kind, columns, is_mixed):
    """Also after training in mixed precision: parameters are in float32, and so are the answers."""
    x, y = rows(300, 36, max(columns, 2))
    counts = torch.bincount(y)
    weights = len(y) / (len(counts) * counts.double())
    net = trained(kind, columns, "balanced", x, y, is_mixed=is_mixed)
    before = copy.deepcopy(net.state_dict())
    was = residual_of(net, x, y, weights)
    net.train()
    net.head.eval()
    found = balance_(net, DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True), "balanced")
    assert (net.training, net.head.training) == (True, False)
    after = net.state_dict()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed == ["head.0.bias" if kind == "convolutional" else "head.bias"]
    assert was > 1e-4
    assert max(residual_of(net, x, y, weights), found.residual) < 1e-7
    if columns < 3:
        assert (found.lhs, found.weighting.n_pos) == (pytest.approx(1.0, rel=1e-6), int(y.sum()))
        assert np.isnan(found.z)
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_the_residual_is_that_of_the_rounding_of_a_type():
    for columns, weights in ((1, [1.0, 7.0]), (4, [1.0, 2.0, 3.0, 9.0])):
        x, y = rows(300, 36, len(weights), torch.float64)
        net = trained("residual", columns, weights, x, y)
        assert balance_(net, [(x, y)], weights).residual < 1e-14
        assert residual_of(net, x, y, weights) < 1e-14
    x, y = rows(300, 36)
    x[:, 0] = 1000.0
    net = nn.Linear(36, 1)
    with torch.no_grad():
        net.weight[0, 0] = 1.0
    found = balance_(net, [(x, y)], "balanced")
    assert float(net.bias.detach()) == pytest.approx(-1000, abs=10)
    assert 0 < found.residual <= 1.5e-8 * 1010
    assert residual_of(net, x, y, [1.0, (len(y) - int(y.sum())) / int(y.sum())]) <= 3e-8 * 1010
    net = Net("residual", 1).to(torch.bfloat16)
    found = balance_(net, [(rows(300, 36)[0].to(torch.bfloat16), y)], [1.0, 4.0])
    assert found.residual <= 1e-3 * max(1.0, float(net.head.bias.detach().abs()))


def test_targets_of_other_kinds_and_inputs_by_name():
    x, y = rows(300, 36)

    class Named(nn.Linear):
        def forward(self, first, second):
            return super().forward(first + second)[:, 0]

    nets = [Named(36, 1)]
    nets += [copy.deepcopy(nets[0]) for _ in range(4)]
    half = x / 2
    more, with_ignored = torch.cat([half, torch.randn(5, 36)]), torch.cat([y, torch.full((5,), -100)])
    batches = [((half, half), y), ({"first": half, "second": half}, y.float()), ((half, half), y.bool())]
    batches += [{"first": half, "second": half, "labels": y[:, None]}, ((more, more - 0), with_ignored)]
    for net, batch in zip(nets, batches, strict=True):
        balance_(net, [batch], "balanced", bias="bias" if net is nets[2] else None)
    assert len({round(float(net.bias.detach()), 5) for net in nets}) == 1


def test_soft_labels_balance_where_the_gradient_of_their_loss_is_zero():
    """With a loss as weighting and a generator of batches."""
    x, y = rows(300, 36, 3)
    x, soft = x.double(), 0.9 * nn.functional.one_hot(y, 3).double() + 0.1 / 3
    net, loss = nn.Linear(36, 3).double(), ClassWeightedLoss([1.0, 2.0, 5.0])
    found = balance_(net, ((x[i : i + 7], soft[i : i + 7]) for i in range(0, len(y), 7)), loss)
    assert found.weighting.weights.tolist() == [1.0, 2.0, 5.0]
    loss(net(x), soft).backward()
    assert float(net.bias.grad.abs().max()) < 1e-14


class NoBias(nn.Module):
    """A head without a bias, or with a norm, a product or a copy behind it."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.body, self.head = nn.Linear(36, 8), nn.Linear(8, 1, bias=how != "none")
        self.norm = nn.BatchNorm1d(1)
        self.free = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        hidden = self.body(x)
        if self.how == "functional":
            return hidden @ self.head.weight.T
        out = self.head(hidden)
        answers = {"none": out, "scaled": 2 * out, "norm": self.norm(out) + self.norm.bias, "free": out * 2 + self.free}
        return answers[self.how]


@pytest.mark.parametrize("how", ["none", "functional", "scaled", "norm"])
def test_without_an_output_bias_one_sentence_says_what_to_do(how):
    x, y = rows(300, 36)
    net = NoBias(how)
    net.norm.running_var.fill_(4.0)
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(InvalidParameter, match=r"is not added to the logits, so it is no output bias.*NaturalLogits"):
        balance_(net, [(x, y)], "balanced")
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert net.training


def test_a_bias_may_be_named_and_a_module_without_bias_gets_a_shift():
    x, y = rows(300, 36)
    net = NoBias("free")
    balance_(net, [(x, y)], [1.0, 4.0], bias="free")
    assert residual_of(net, x, y, [1.0, 4.0]) < 1e-7
    with pytest.raises(InvalidParameter, match=r"no parameter of that name; possible are free, head\.bias"):
        balance_(net, [(x, y)], [1.0, 4.0], bias="fre")
    with pytest.raises(InvalidParameter, match=r"added to head\.bias is not added to the logits"):
        balance_(net, [(x, y)], [1.0, 4.0], bias="head.bias")
    found = NoBias("free")
    balance_(found, [(x, y)], [1.0, 4.0])  # by the test alone
    assert residual_of(found, x, y, [1.0, 4.0]) < 1e-7
    natural = NaturalLogits(NoBias("none"), crcen.CostRatio(6))
    found = balance_(natural, [(x, y)], natural)
    assert found.residual < 1e-7
    weighted = natural(x).detach()[:, 0].double() + np.log(6)
    assert key_equation_of_logits(y.numpy(), weighted.numpy(), crcen.CostRatio(6)).residual < 1e-7
    again = natural.shift.clone()
    balance_(natural, [(x, y)], crcen.CostRatio(6))
    assert torch.allclose(natural.shift, again, atol=1e-6)
    with pytest.raises(InvalidParameter, match="1 : 6: got 1 : 7"):
        balance_(natural, [(x, y)], crcen.CostRatio(7))


@pytest.mark.parametrize(
    ("batches", "sentence"),
    [
        ([], "empty loader"),
        ([torch.zeros(3, 36)], "pair of inputs and target"),
        ([(torch.zeros(3, 36), torch.zeros(3))], "each of 2 classes"),
        ([(torch.zeros(3, 36), torch.tensor([1, 2, 1]))], "between 0 and 1: got 1 to 2"),
        ([(torch.zeros(3, 36), torch.tensor([1, 0]))], "each of 3 rows"),
        ([(torch.full((3, 36), torch.nan), torch.tensor([1, 0, 0]))], "finite"),
    ],
)
def test_batches_that_mean_nothing(batches, sentence):
    net = nn.Linear(36, 1)
    before = copy.deepcopy(net.state_dict())
    with pytest.raises((InvalidInput, InvalidParameter), match=sentence):
        balance_(net, batches, "balanced")
    assert torch.equal(net.bias, before["bias"])
    data = TensorDataset(torch.randn(8, 36), torch.arange(8) % 2)
    drawn = WeightedRandomSampler([1.0] * 8, 50)
    for loader in (DataLoader(data, sampler=drawn), DataLoader(data, batch_sampler=BatchSampler(drawn, 4, False))):
        with pytest.warns(UserWarning, match="a WeightedRandomSampler draws the rows"):
            balance_(net, loader, "balanced")


def problem(columns):
    """A network, rows and a weighting, the same in every process."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, columns))
    return net, *rows(90, 4, max(columns, 2)), [1.0, 3.0, 9.0] if columns == 3 else crcen.CostRatio(7)


# What each process runs: its number and the port come by arguments; it prints its answer to each case.
PROGRAM = """
import json, sys
import torch
from torch import distributed, nn
import crcen
from crcen.torch import balance_
from test_balance import problem

rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=rank, world_size=2)
answers = {}
for case in ("shares", "classes", "wrapped", "empty", "one"):
    net, x, y, weighting = problem(3 if case == "classes" else 1)
    own = slice(0, 50) if rank == 0 else slice(50, 90)
    batches = list(zip(x[own].split(16), y[own].split(16)))
    said = ""
    try:
        if case == "one":
            found = balance_(net, [(x, y)], weighting, distributed=False) if rank == 0 else None
        elif case == "wrapped":
            found = balance_(nn.parallel.DistributedDataParallel(net), batches, weighting, bias="module.3.bias")
        else:
            found = balance_(net, [] if case == "empty" and rank else batches, weighting)
    except crcen.exceptions.InvalidInput as error:
        said, found = str(error), None
    answers[case] = [net[3].bias.tolist(), said, None if found is None else found.residual]
distributed.barrier()
distributed.destroy_process_group()
print(json.dumps(answers))
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_all_processes_end_with_the_bias_of_all_rows_and_one_without_rows_stops_all():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": Path(__file__).parent}
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), port], **how) for rank in range(2)]
    try:
        said = [one.communicate(timeout=200) for one in started]
    finally:
        for one in started:
            one.kill()
    assert [one.returncode for one in started] == [0, 0], said
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in said)
    for case, columns in (("shares", 1), ("classes", 3), ("wrapped", 1), ("one", 1)):
        net, x, y, weighting = problem(columns)
        balance_(net, [(x, y)], weighting)
        bias, error, residual = first[case]
        assert (bias, error) == (pytest.approx(net[3].bias.tolist(), abs=1e-6), "")
        assert residual < 1e-7
        assert second[case] == first[case] or (case == "one" and second[case][2] is None)
    assert "process 1 has no rows to balance over" in first["empty"][1]
    assert "empty loader" in second["empty"][1]
    assert first["empty"][0] == second["empty"][0]


PRICE = [1.0, 5.0]


class Two(nn.Module):
    """Two logits."""

    def __init__(self, columns=2):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, columns))

    def forward(self, x):
        return self.layers(x)


def skorch_net(criterion=ClassWeightedLoss, **named):
    how = {"max_epochs": 2, "lr": 0.1, "train_split": None, "verbose": 0}
    return pytest.importorskip("skorch").NeuralNetClassifier(Two, criterion=criterion, **how, **named)


def test_skorch_ends_balanced_with_natural_probabilities():
    pytest.importorskip("skorch")
    from crcen.torch.skorch import BalanceCallback, natural_probabilities

    x, y = rows(240, 4)
    net = skorch_net(
        criterion__weighting=PRICE,
        callbacks=[("balance", BalanceCallback())],
        predict_nonlinearity=natural_probabilities(PRICE),
    ).fit(x.numpy(), y.numpy())
    assert max(residual_of(net.module_, x, y, PRICE), dict(net.callbacks_)["balance"].key_equation_.residual) < 1e-7
    p = net.predict_proba(x.numpy())
    with torch.no_grad():
        q = torch.softmax(net.module_(x), 1).double().numpy()
    assert np.allclose(p[:, 1], crcen.posterior(q[:, 1], crcen.CostRatio(5)), atol=1e-6)
    assert np.array_equal(pickle.loads(pickle.dumps(net)).predict_proba(x.numpy()), p)
    # Another loss needs a stated weighting.
    with pytest.raises(InvalidParameter, match="must contain exactly one ClassWeightedLoss"):
        skorch_net(nn.CrossEntropyLoss, callbacks=[BalanceCallback()]).fit(x.numpy(), y.numpy())
    net = skorch_net(nn.CrossEntropyLoss, callbacks=[BalanceCallback(PRICE)]).fit(x.numpy(), y.numpy())
    assert residual_of(net.module_, x, y, PRICE) < 1e-7


WEIGHTED = {"criterion": ClassWeightedLoss, "criterion__weighting": PRICE}


@pytest.mark.parametrize(
    ("settings", "is_natural", "found"),
    [
        (WEIGHTED, False, 5.0),
        (WEIGHTED, True, 1.0),
        ({"criterion": nn.CrossEntropyLoss}, False, 1.0),
        ({"criterion": nn.CrossEntropyLoss, "criterion__weight": torch.tensor(PRICE)}, False, "by each batch"),
        ({"criterion": nn.MultiMarginLoss}, False, "not certain"),
        (WEIGHTED | {"iterator_train__sampler": WeightedRandomSampler([1.0] * 240, 240)}, False, "by a sampler"),
    ],
)
def test_posterior_correction_reads_the_weights_of_a_net_or_asks(settings, is_natural, found):
    pytest.importorskip("skorch")
    from crcen.torch.skorch import natural_probabilities

    x, y = rows(240, 4)
    nonlinearity = natural_probabilities(PRICE) if is_natural else lambda out: torch.softmax(out, -1)
    model = crcen.PosteriorCorrection(skorch_net(predict_nonlinearity=nonlinearity, **settings), price=None)
    if isinstance(found, str):
        with pytest.raises(InvalidParameter, match=found):
            model.fit(x.numpy(), y.numpy())
        return
    model.fit(x.numpy(), y.numpy())
    assert model.odds_factor_ == pytest.approx(found)
    q = model.estimator_.predict_proba(x.numpy())[:, 1].astype(float)
    assert np.allclose(model.predict_proba(x.numpy())[:, 1], crcen.posterior(q, crcen.CostRatio(found)), atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # of Lightning, about itself
def test_lightning_ends_balanced_over_every_row_once():
    pl = pytest.importorskip("pytorch_lightning")
    from crcen.torch.lightning import BalanceCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.loss = Two(1), ClassWeightedLoss(PRICE)

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, number):
            return self.loss(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    x, y = rows(240, 4)
    drawn = WeightedRandomSampler(torch.where(y == 1, 5.0, 1.0), 100, generator=torch.Generator().manual_seed(0))
    callback, module = BalanceCallback(), Module()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", devices=1, callbacks=[callback], **quiet)
    trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=20, sampler=drawn))
    assert max(residual_of(module, x, y, PRICE), callback.key_equation_.residual) < 1e-7
    assert callback.key_equation_.weighting.n_pos == int(y.sum())


def test_without_lightning_the_extra_is_named(monkeypatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "crcen.torch.lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'crcen\[interop\]'"):
        importlib.import_module("crcen.torch.lightning")


def test_transformers_ends_balanced_and_accumulates_gradients_right(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from crcen.torch.transformers import BalanceCallback

    # A folder of tests is called datasets, and is taken for the package of that name.
    monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)
    answers = transformers.modeling_outputs.SequenceClassifierOutput

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.head = nn.Linear(4, 2)

        def forward(self, x, labels=None):
            return answers(logits=self.head(x))

    x, y = rows(240, 4)
    data = [{"x": a, "labels": b} for a, b in zip(x, y, strict=True)]
    loss = ClassWeightedLoss(PRICE)

    def train(size, steps, callbacks=()):
        model = Model()
        batches = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, "num_train_epochs": 1}
        sgd = {"learning_rate": 0.1, "max_grad_norm": 0.0, "optim": "sgd", "lr_scheduler_type": "constant"}
        quiet = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
        here = {"use_cpu": True, "dataloader_pin_memory": False, "seed": 0}
        settings = transformers.TrainingArguments(str(tmp_path), **batches, **sgd, **quiet, **here)
        given = {"train_dataset": data, "compute_loss_func": loss, "callbacks": list(callbacks)}
        transformers.Trainer(model, settings, **given).train()
        return model

    plain, accumulated = train(40, 1), train(10, 4)
    assert torch.allclose(plain.head.weight, accumulated.head.weight, atol=1e-5)
    callback = BalanceCallback(loss)
    model = train(40, 1, [callback])
    assert max(residual_of(model.head, x, y, PRICE), callback.key_equation_.residual) < 1e-7
    assert torch.equal(model.head.weight, plain.head.weight)
    expected = copy.deepcopy(plain.head)
    balance_(expected, [(x, y)], loss)
    assert torch.allclose(model.head.bias, expected.bias, atol=1e-6)


class Stream(IterableDataset):
    """Rows that can only be read in order."""

    def __init__(self, *tensors):
        self.tensors = tensors

    def __iter__(self):
        return zip(*self.tensors, strict=True)


def test_streams_and_ignored_rows_are_balanced_as_the_other_rows():
    torch.manual_seed(0)
    x, y = torch.randn(300, 4), (torch.rand(300) < 0.2).long()
    loss, net = ClassWeightedLoss(crcen.CostRatio(5), ignore_index=255), nn.Linear(4, 2)
    same, streamed = copy.deepcopy(net), copy.deepcopy(net)
    balance_(net, [(x[20:], y[20:])], loss)
    balance_(same, [(x, torch.where(torch.arange(300) < 20, 255, y))], loss)
    balance_(streamed, DataLoader(Stream(x[20:], y[20:]), batch_size=70), loss)
    for other in (same, streamed):
        torch.testing.assert_close(other.bias, net.bias)


def test_ignored_rows_may_have_any_logits_and_masked_classes_none():
    logits, y = torch.randn(6, 3, dtype=torch.float64), torch.tensor([-100, 1, 0, 0, 1, 2])
    logits[0], logits[1, 2] = float("nan"), -float("inf")
    logits.requires_grad_(True)
    weights = torch.tensor([1.0, 5.0, 2.0], dtype=torch.float64)
    loss = ClassWeightedLoss(weights.tolist())(logits, y)
    expected = nn.functional.cross_entropy(logits[1:], y[1:], weight=weights, reduction="none").mean()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[0].any()
