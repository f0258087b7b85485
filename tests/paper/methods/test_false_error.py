"""The mean (squared) false error: MFE is weighted squared error at α = 1, MSFE follows the ratio of the errors."""

import numpy as np
import pytest
import torch

import crcen
from crcen.paper.methods.csmlp import CSMLPClassifier
from crcen.paper.methods.false_error import MeanFalseErrorClassifier


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 10 == 0
    return rng.normal(size=(300, 3)) + 1.2 * y[:, None], y.astype(int)


def test_mfe_is_csmlp_at_level_weights(rows):
    mfe = MeanFalseErrorClassifier(False, hidden=(4,), max_epochs=3, random_state=0).fit(*rows)
    csmlp = CSMLPClassifier("balanced", hidden=(4,), max_epochs=3, random_state=0).fit(*rows)
    np.testing.assert_array_equal(mfe.decision_function(rows[0]), csmlp.decision_function(rows[0]))


def test_the_gradient_of_msfe_is_that_of_weights_at_the_ratio_of_the_errors():
    """Against autograd on FPE² + FNE²: the same direction, and the derivative by finite differences."""
    rng = np.random.default_rng(1)
    o = torch.tensor(rng.normal(size=40), requires_grad=True)
    y = torch.tensor(np.arange(40) % 8 == 0)

    def errors(logits):
        squares = (y.double() - torch.sigmoid(logits)) ** 2
        return squares[y].mean(), squares[~y].mean()

    fne, fpe = errors(o)
    (fne**2 + fpe**2).backward()
    alpha = float((fne / fpe).detach())
    lam = crcen.resolve(crcen.Alpha(alpha), int(y.sum()), int((~y).sum())).lam
    weights = torch.where(y, lam, 1 - lam)
    q = torch.sigmoid(o.detach())
    weighted = weights * -2 * (y.double() - q) * q * (1 - q)
    ratio = o.grad / weighted
    assert torch.allclose(ratio, ratio[0].expand_as(ratio), rtol=1e-9)
    for i in range(3):
        step = torch.zeros(40, dtype=torch.float64)
        step[i] = 1e-6
        up, down = (sum(e**2 for e in errors(o.detach() + s * step)) for s in (1, -1))
        assert float(o.grad[i]) == pytest.approx(float((up - down) / 2e-6), rel=1e-5)


def test_alpha_follows_the_ratio_of_the_errors_along_the_path(rows):
    """What epoch e trains at is FNE/FPE of the network as epoch e left it: a shorter run ends there."""
    X, y = rows
    model = MeanFalseErrorClassifier(hidden=(4,), max_epochs=5, random_state=0).fit(X, y)
    assert model.alphas_.shape == (5, 1)
    assert model.alphas_[0] == 1.0
    assert len(set(model.alphas_[:, 0])) == 5
    assert model.weighting_.alpha == pytest.approx(model.alphas_[-1, 0])
    q = model.weighted_proba(X)[:, 1]
    fne, fpe = ((1 - q[y == 1]) ** 2).mean(), (q[y == 0] ** 2).mean()
    # The last epoch moves the network once more, by a small step at the end of the one-cycle rate.
    assert model.alphas_[-1, 0] == pytest.approx(fne / fpe, rel=0.1)


def test_epochs_one_by_one_are_the_epochs_of_one_run_where_the_weights_stay(rows, monkeypatch):
    monkeypatch.setattr("crcen.paper.methods.false_error._error_ratio", lambda logits, rows: 1.0)
    X, y = rows
    stepwise = MeanFalseErrorClassifier(hidden=(4,), max_epochs=3, random_state=0).fit(X, y)
    at_once = MeanFalseErrorClassifier(False, hidden=(4,), max_epochs=3, random_state=0).fit(X, y)
    np.testing.assert_allclose(stepwise.decision_function(X), at_once.decision_function(X), rtol=1e-6, atol=1e-7)


def test_what_cannot_follow_is_refused(rows):
    with pytest.raises(crcen.InvalidParameter, match="after every epoch"):
        MeanFalseErrorClassifier(hidden=()).fit(*rows)


def test_labels_of_any_kind_and_a_positive_class_of_ones_own(rows):
    X, y = rows
    words = np.where(y == 1, "bad", "fine")
    model = MeanFalseErrorClassifier(hidden=(4,), max_epochs=3, n_members=2, random_state=0).fit(X, words)
    assert set(model.predict(X)) <= {"bad", "fine"}
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    assert model.alphas_.shape == (3, 2)
