"""ModuleClassifier: modules of one's own behind the same price, loss, solve and answers."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from torch import nn

import crcen
from crcen import Budget, CostRatio, ModuleClassifier, Schedule
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.search.classifier_cv import path_logits
from grouped_settings import calibrated
from papers_training import PAPER


def linear(columns=1):
    return lambda: nn.Linear(4, columns)


def images(columns=1):
    """A small convolutional network with batch norm and dropout."""
    body = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*body, nn.Linear(4, columns))


def words():
    """Word numbers in, mean of embeddings out."""
    return nn.Sequential(nn.EmbeddingBag(20, 4, mode="mean"), nn.Linear(4, 2))


def rows(n=300):
    rng = np.random.default_rng(0)
    y = (rng.random(n) ** 2.5 * 2).astype(int)
    return rng.normal(size=(n, 4)) + 0.9 * y[:, None], y


def fast(module, weighting="balanced", **named):
    named.setdefault("max_epochs", 4)
    settings = calibrated(named, **PAPER)
    return ModuleClassifier(module, weighting, random_state=0, device="cpu", **settings)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("n_members", [1, 2])
def test_the_key_equation_is_exact_on_the_rows_of_fit(columns, n_members):
    X, y = rows()
    clf = fast(linear(columns), CostRatio(7), n_members=n_members).fit(X, y)
    p, q = clf.predict_proba(X)[:, 1], clf.weighted_proba(X)[:, 1]
    assert max(crcen.key_equation(y, q, clf.weighting_).residual, clf.key_equation_.residual) < 1e-12
    assert np.allclose(p, crcen.posterior(q, CostRatio(7)), atol=1e-12)
    assert np.array_equal(clf.predict(X) == 1, p > 1 / 8)
    assert np.array_equal(clf.decision_function(X) > 0, clf.predict(X) == clf.classes_[1])


@pytest.mark.parametrize("sample_weight", [None, np.arange(600) % 3.0], ids=["plain", "weighted"])
def test_a_linear_module_is_weighted_logistic_regression(sample_weight):
    X, y = rows(600)
    weights = np.where(y == 1, 5.0, 1.0) * (1.0 if sample_weight is None else sample_weight)
    clf = fast(linear(), CostRatio(5), max_epochs=150, l2=1e-3, schedule=Schedule(learning_rate=0.05))
    clf.fit(X, y, sample_weight=sample_weight)
    # Σ w ℓ / Σ w + ½ l2 ‖W‖² is scikit-learn's objective with C = 1 / (l2 · Σ w).
    exact = LogisticRegression(C=1 / (1e-3 * weights.sum()), tol=1e-10).fit(X, y, sample_weight=weights)
    assert np.allclose(clf.decision_function(X), exact.decision_function(X), atol=0.02)


def test_images_of_three_classes():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 30, 10])
    X = rng.normal(size=(100, 1, 6, 6)).astype(np.float32) + y[:, None, None, None]
    names = np.array(["bag", "coat", "shirt"])[y]
    clf = fast(lambda: images(3), "balanced", n_members=2, max_epochs=30).fit(X, names)
    p = clf.predict_proba(X)
    assert p.shape == (100, 3)
    assert np.allclose(p.sum(1), 1.0)
    assert clf.key_equation_.residual < 1e-12
    assert np.array_equal(clf.predict_proba(torch.from_numpy(X)), p)
    with pytest.raises(InvalidInput, match=r"the shape \(1, 6, 6\) of those of fit: got \(1, 5, 5\)"):
        clf.predict(X[:, :, :5, :5])
    assert (clf.predict(X) == names).mean() > 0.6


def test_whole_numbers_reach_embeddings():
    rng = np.random.default_rng(0)
    y = (np.arange(120) % 5 == 0).astype(int)
    X = rng.integers(0, 10, (120, 7)) + 10 * y[:, None] * (rng.random((120, 7)) < 0.7)
    clf = fast(words, Budget(4), max_epochs=40, schedule=Schedule(learning_rate=0.1))
    assert (clf.fit(torch.from_numpy(X), torch.from_numpy(y)).predict(X) == y).mean() > 0.8


def test_out_of_fold_balance_members_and_early_stopping():
    X, y = rows()
    clf = fast(linear(), Budget(6), balance="oof", probability="temperature", n_members=2).fit(X, y)
    assert clf.key_equation_.residual < 1e-12
    assert "out-of-fold" in clf.key_equation_.rows
    stopped = fast(linear(), Budget(6), max_epochs=200, schedule=Schedule(early_stopping=True, learning_rate=0.5))
    assert stopped.fit(X, y).n_iter_ < 200
    assert stopped.status_ == "early_stopped"
    with pytest.raises(AttributeError, match="has no layers"):
        assert clf.coefs_
    with pytest.raises(InvalidInput, match=r"use crcen\.torch\.stationarity for a module"):
        crcen.stationarity(clf, X, y)


def test_the_same_seed_gives_the_same_bits_and_leaves_torch_alone():
    X, y = rows()
    state, pixels = torch.get_rng_state(), X.reshape(-1, 1, 2, 2).repeat(2, 2).repeat(2, 3)
    one, other = (fast(images, max_epochs=2).fit(pixels, y) for _ in "ab")
    assert np.array_equal(one.predict_proba(pixels), other.predict_proba(pixels))
    assert torch.equal(state, torch.get_rng_state())


def test_an_instance_is_copied_as_it_is():
    X, y = rows()
    net = nn.Linear(4, 1)
    before = net.weight.detach().clone()
    clf = fast(net, max_epochs=2, optimizer=partial(torch.optim.SGD, lr=0.0)).fit(X, y)
    assert torch.equal(net.weight, before)
    assert np.array_equal(clf.ensemble_.members[0].state["weight"], before.numpy())
    lazy = fast(lambda: nn.Sequential(nn.LazyLinear(3), nn.Tanh(), nn.LazyLinear(1))).fit(X, y)
    assert lazy.ensemble_.members[0].state["0.weight"].shape == (3, 4)  # from the rows
    assert np.array_equal(clone(clf).fit(X, y).predict_proba(X), clf.predict_proba(X))
    assert np.array_equal(pickle.loads(pickle.dumps(clf)).predict_proba(X), clf.predict_proba(X))


def test_files_hold_arrays_and_loading_asks_for_the_module(tmp_path):
    X, y = rows()
    clf = fast(linear(), Budget(6), n_members=2).fit(X, y)
    net = crcen.save(clf, tmp_path / "net.crcen")
    plain = crcen.save(crcen.CRCENClassifier(hidden=(), random_state=0).fit(X, y), tmp_path / "plain.crcen")
    assert np.array_equal(crcen.load(net, module=linear()).predict_proba(X), clf.predict_proba(X))
    for path, module, sentence in (
        (net, None, "holds the arrays of a module, not its code"),
        (net, lambda: nn.Linear(5, 1), "does not fit the stored arrays"),
        (plain, linear(), "module is for a saved ModuleClassifier"),
    ):
        with pytest.raises(InvalidParameter, match=sentence):
            crcen.load(path, module=module)


@pytest.mark.parametrize(
    ("make", "own", "sentence"),
    [
        (lambda: ModuleClassifier(), None, "module must be an nn.Module or a factory: got None"),
        (lambda: fast("net"), None, "module must be an nn.Module or a factory of one: got str"),
        (lambda: fast(dict), None, "module must be an nn.Module or a factory of one: got dict"),
        (lambda: fast(linear(), optimizer="sgd"), None, "optimizer must be a class such as torch.optim.SGD.*got 'sgd'"),
        (lambda: fast(linear(), optimizer=torch.optim.SGD(nn.Linear(2, 1).parameters())), None, "must be a class"),
        (lambda: fast(linear(), schedule=Schedule(solver="lbfgs")), None, "trained in batches"),
        (lambda: fast(nn.Identity()), None, "no parameter that can be trained"),
        (lambda: fast(linear(), n_members=0), None, "n_members"),
        (lambda: fast(linear(3)), rows()[0], r"logits of shape \(rows,\), \(rows, 1\) or \(rows, 2\)"),
        (lambda: fast(images), np.full((300, 1, 6, 6), np.nan), "contains NaN or infinity"),
        (lambda: fast(linear()), np.full((300, 4), np.nan), "so impute or drop them first"),  # there is no encoding
    ],
)
def test_modules_parameters_and_rows_that_mean_nothing_are_refused(make, own, sentence):
    X, y = rows()
    with pytest.raises(InvalidParameter if own is None else InvalidInput, match=sentence):
        make().fit(X if own is None else own, y)
    assert not hasattr(fast(linear()), "partial_fit")


def test_a_module_that_ends_in_probabilities_gets_a_warning():
    for last in (nn.Softmax(1), nn.Sequential(nn.Sigmoid())):
        with pytest.warns(UserWarning, match="the module ends in S.*, but must return logits: leave it out"):
            fast(lambda last=last: nn.Sequential(nn.Linear(4, 2), last), max_epochs=1).fit(*rows())


def test_a_path_of_weights_trains_the_module():
    X, y = rows(150)
    model = ModuleClassifier(linear(), max_epochs=2, random_state=0, device="cpu")
    path = path_logits(model, X, y, [Budget(5)], [(np.arange(100), np.arange(100, 150))])
    alone = clone(model).set_params(weighting=Budget(5), pos_label=1).fit(X[:100], y[:100])
    np.testing.assert_allclose(path.logits[0], alone.decision_function(X[100:]), atol=1e-9)
