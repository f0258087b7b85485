"""Tensors go wherever arrays go: with a gradient, in half precision, on another device."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import Budget, CostMatrix, CostRatio


class OnDevice:
    """A tensor that NumPy cannot see until it is brought to the CPU."""

    def __init__(self, values):
        self.values = values
        self.dtype, self.shape, self.ndim = values.dtype, values.shape, values.ndim

    def __len__(self):
        return len(self.values)

    def __array__(self, *arguments, **named):
        raise TypeError("can't convert a tensor of another device")

    def detach(self):
        return self

    def cpu(self):
        return self.values.detach()


KINDS = {
    "gradient": lambda values: values.requires_grad_() if values.is_floating_point() else values,
    "bfloat16": lambda values: values.to(torch.bfloat16) if values.is_floating_point() else values,
    "device": OnDevice,
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    y = (torch.arange(400) % 8 == 0).long()
    X = (torch.randn(400, 3, generator=generator) + y[:, None]).to(torch.bfloat16).float()
    p = torch.sigmoid(X.sum(1) - 3.0).to(torch.bfloat16).float()  # every kind holds the same numbers
    return X, y, p


def corrected(X, y, p):
    model = crcen.PosteriorCorrection(LogisticRegression(class_weight="balanced")).fit(X, y)
    return model.predict_proba(X).tolist(), model.predict(X).tolist()


def monitored(X, y, p):
    monitor = crcen.KeyEquationMonitor(weighting=CostRatio(6), y_reference=y, q_reference=p)
    monitor.update(y=y, q=p)
    return monitor.state()


PRICES = [CostRatio(c) for c in (1.0, 3.0, 9.0)]
CALLS = {
    "key_equation": lambda X, y, p: crcen.key_equation(y, p, CostRatio(6), p).lhs,
    "decide": lambda X, y, p: crcen.decide(p, Budget(5)).tolist(),
    "choose": lambda X, y, p: CostMatrix([[0, 1], [7, 0]]).choose(p).tolist(),
    "posterior_correction": corrected,
    "expense_curve": lambda X, y, p: str(crcen.ExpenseCurve.from_predictions(y, p, PRICES)),
    "monitor": monitored,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_tensors_give_the_result_of_arrays(kind, rows, call):
    assert call(*(kind(one.clone()) for one in rows)) == call(*(one.numpy() for one in rows))


def test_key_equations_of_more_classes(kind):
    y = torch.arange(60) % 3
    q = torch.softmax(torch.randn(60, 3, generator=torch.Generator().manual_seed(1)), 1)
    expected = crcen.key_equation(y.numpy(), q.numpy(), [1.0, 2.0, 5.0])
    found = crcen.key_equation(kind(y), kind(q.clone()), [1.0, 2.0, 5.0])
    assert np.allclose(found.lhs, expected.lhs, rtol=0.02)


def test_report_and_estimators(kind, rows, tmp_path):
    pytest.importorskip("jinja2")
    X, y, _ = rows
    one = crcen.CRCENClassifier(CostRatio(6), hidden=(), random_state=0).fit(X.numpy(), y.numpy())
    other = crcen.CRCENClassifier(CostRatio(6), hidden=(), random_state=0).fit(kind(X.clone()), kind(y))
    assert np.array_equal(one.predict_proba(X.numpy()), other.predict_proba(kind(X.clone())))
    crcen.write_report(one, X.numpy(), y.numpy(), tmp_path / "one.html")
    crcen.write_report(one, kind(X.clone()), kind(y), tmp_path / "other.html")
    assert (tmp_path / "one.html").stat().st_size == (tmp_path / "other.html").stat().st_size
