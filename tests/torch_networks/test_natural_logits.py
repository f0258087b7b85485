"""NaturalLogits: the weight taken out, kept in state_dict, and carried into exported graphs."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import crcen
from crcen.exceptions import InvalidInput
from crcen.torch import ClassWeightedLoss, NaturalLogits, balance_


def rows(n=200, n_classes=3):
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(n) % n_classes
    return torch.randn(n, 4, generator=generator) + y[:, None], y


@pytest.mark.parametrize("columns", [2, 3])
def test_its_softmax_is_the_posterior(columns):
    x, _ = rows()
    net = nn.Linear(4, columns).double()
    weights = np.array([1.0, 4.0, 20.0])[:columns]
    natural = NaturalLogits(net, weights)
    q = torch.softmax(net(x.double()), 1).detach().numpy()
    p = torch.softmax(natural(x.double()), 1).detach().numpy()
    assert np.allclose(p, (q / weights) / (q / weights).sum(1, keepdims=True), rtol=1e-12)
    with pytest.raises(InvalidInput, match=f"{columns} logits per row: got weights for 4"):
        NaturalLogits(net, [1.0, 2.0, 3.0, 4.0])(x.double())


@pytest.mark.parametrize("is_flat", [False, True])
def test_one_logit_loses_the_log_of_the_cost_ratio(is_flat):
    x, _ = rows()
    net = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)) if is_flat else nn.Linear(4, 1)
    natural = NaturalLogits(net, crcen.CostRatio(9))
    assert natural(x).shape == net(x).shape
    assert torch.allclose(natural(x), net(x) - np.log(9), atol=1e-6)
    q = torch.sigmoid(net(x)).detach().double().numpy().ravel()
    p = torch.sigmoid(natural(x)).detach().double().numpy().ravel()
    assert np.allclose(p, crcen.posterior(q, crcen.CostRatio(9)), rtol=1e-5)


def balanced():
    x, y = rows()
    loss = ClassWeightedLoss([1.0, 2.0, 9.0])
    natural = NaturalLogits(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)), loss)
    balance_(natural, [(x, y)], loss)
    assert float(natural.shift.abs().max()) > 0.1
    return natural.eval(), x


def test_loaded_exported_and_traced_programs_answer_the_same():
    natural, x = balanced()
    body = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3, bias=False))
    other = NaturalLogits(body, None, counts=[1, 1, 1])
    other.load_state_dict(natural.state_dict())
    assert torch.equal(other(x), natural(x))
    program = torch.export.export(natural, (x[:7],))
    assert torch.allclose(program.module()(x[:7]), natural(x[:7]), atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing is deprecated, and warns of shapes that are fixed in it
        traced = torch.jit.trace(natural, x[:7])
    assert torch.allclose(traced(x), natural(x), atol=1e-6)


def test_onnx_graphs_answer_the_same(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    natural, x = balanced()
    file = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(natural, (x[:7],), str(file), dynamo=True, verbose=False)
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x[:7].numpy()})
    assert np.allclose(found, natural(x[:7]).detach().numpy(), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("columns", [1, 3])
def test_scripted_programs_answer_the_same(columns, tmp_path):
    x, y = rows(n_classes=max(columns, 2))
    weights = [1.0, 2.0, 9.0][: max(columns, 2)]
    natural = NaturalLogits(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, columns)), weights)
    balance_(natural, [(x, y)], natural)
    scripted = torch.jit.script(natural)
    assert torch.allclose(scripted(x), natural(x), atol=1e-6)
    assert list(scripted.state_dict()) == list(natural.state_dict())
    torch.jit.save(scripted, str(tmp_path / "net.pt"))
    assert torch.allclose(torch.jit.load(str(tmp_path / "net.pt"))(x), natural(x), atol=1e-6)


def test_compiled_programs_answer_the_same():
    natural, x = balanced()
    compiled = torch.compile(natural, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), natural(x), atol=1e-6)
    loss = ClassWeightedLoss([1.0, 2.0, 9.0])
    y = torch.arange(len(x)) % 3
    whole = torch.compile(lambda a, b: loss(natural(a), b), backend="aot_eager", fullgraph=True)
    assert whole(x, y).item() == pytest.approx(loss(natural(x), y).item(), rel=1e-5)
