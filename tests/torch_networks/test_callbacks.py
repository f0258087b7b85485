"""Callbacks of trainers: what they leave is what balance_ leaves, and PosteriorCorrection reads weights off a net."""

import copy
import importlib
import pickle
import sys

import numpy as np
import pytest
import torch
from labelled_rows import rows
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import crcen
from crcen.exceptions import InvalidParameter, MissingExtra
from crcen.theory.key_equation import key_equation_of_logits
from crcen.torch import ClassWeightedLoss, balance_


def residual(module, x, y, cost):
    module.eval()
    with torch.no_grad():
        out = module(x)
    logits = (out[:, 1] - out[:, 0] if out.shape[1] == 2 else out[:, 0]).double().numpy()
    return key_equation_of_logits(y.numpy(), logits, crcen.CostRatio(cost)).residual


class Two(nn.Module):
    """Two logits."""

    def __init__(self, columns=2):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, columns))

    def forward(self, x):
        return self.layers(x)


def skorch_net(criterion=ClassWeightedLoss, **named):
    skorch = pytest.importorskip("skorch")
    return skorch.NeuralNetClassifier(
        Two, criterion=criterion, max_epochs=2, lr=0.1, train_split=None, verbose=0, **named
    )


def test_skorch_ends_balanced_with_natural_probabilities():
    pytest.importorskip("skorch")
    from crcen.torch.skorch import BalanceCallback, natural_probabilities

    x, y = rows(240, 4)
    net = skorch_net(
        criterion__weighting=[1.0, 5.0],
        callbacks=[("balance", BalanceCallback())],
        predict_nonlinearity=natural_probabilities([1.0, 5.0]),
    ).fit(x.numpy(), y.numpy())
    assert max(residual(net.module_, x, y, 5), dict(net.callbacks_)["balance"].key_equation_.residual) < 1e-7
    p = net.predict_proba(x.numpy())
    with torch.no_grad():
        q = torch.softmax(net.module_(x), 1).double().numpy()
    assert np.allclose(p[:, 1], crcen.posterior(q[:, 1], crcen.CostRatio(5)), atol=1e-6)
    assert np.array_equal(pickle.loads(pickle.dumps(net)).predict_proba(x.numpy()), p)
    # Another loss needs a stated weighting.
    with pytest.raises(InvalidParameter, match="must contain exactly one ClassWeightedLoss"):
        skorch_net(nn.CrossEntropyLoss, callbacks=[BalanceCallback()]).fit(x.numpy(), y.numpy())
    net = skorch_net(nn.CrossEntropyLoss, callbacks=[BalanceCallback([1.0, 5.0])]).fit(x.numpy(), y.numpy())
    assert residual(net.module_, x, y, 5) < 1e-7


WEIGHTED = {"criterion": ClassWeightedLoss, "criterion__weighting": [1.0, 5.0]}


@pytest.mark.parametrize(
    ("settings", "is_natural", "found"),
    [
        (WEIGHTED, False, 5.0),
        (WEIGHTED, True, 1.0),
        ({"criterion": nn.CrossEntropyLoss}, False, 1.0),
        ({"criterion": nn.CrossEntropyLoss, "criterion__weight": torch.tensor([1.0, 5.0])}, False, "by each batch"),
        ({"criterion": nn.MultiMarginLoss}, False, "not certain"),
        (WEIGHTED | {"iterator_train__sampler": WeightedRandomSampler([1.0] * 240, 240)}, False, "by a sampler"),
    ],
)
def test_posterior_correction_reads_the_weights_of_a_net_or_asks(settings, is_natural, found):
    pytest.importorskip("skorch")
    from crcen.torch.skorch import natural_probabilities

    x, y = rows(240, 4)
    nonlinearity = natural_probabilities([1.0, 5.0]) if is_natural else lambda out: torch.softmax(out, -1)
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
            self.net, self.loss = Two(1), ClassWeightedLoss([1.0, 5.0])

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
    assert max(residual(module, x, y, 5), callback.key_equation_.residual) < 1e-7
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
    loss = ClassWeightedLoss([1.0, 5.0])

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
    assert max(residual(model.head, x, y, 5), callback.key_equation_.residual) < 1e-7
    assert torch.equal(model.head.weight, plain.head.weight)
    expected = copy.deepcopy(plain.head)
    balance_(expected, [(x, y)], loss)
    assert torch.allclose(model.head.bias, expected.bias, atol=1e-6)
