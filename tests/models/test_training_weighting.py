"""A training weight apart from the price: what was trained, what is exact where, and that the price is kept."""

import numpy as np
import pytest

from crcen import Budget, CostRatio, InvalidParameter, balance_shift, key_equation
from grouped_settings import grouped
from papers_training import CRCENClassifier, CRCENClassifierCV

KEPT = {"training_weighting": None, "balance": "oof", "probability": "temperature"}


def draw(n=700, seed=0):
    """Rows with a known posterior, one in eight positive."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (rng.random(n) < 1 / (1 + np.exp(-(X @ [1.2, -0.8, 0.5, 0.0] - 2.4)))).astype(int)


def drift(model, X, y):
    """Log-odds that new rows ask to add at the price."""
    logits = model.decision_function(X) * (1 if model.classes_[1] == model.pos_label_ else -1)
    return balance_shift(y, logits, model.weighting_)


def light(kind, **how):
    return kind(Budget(10), **grouped(hidden=(16,), max_epochs=20, random_state=0, **how))


@pytest.mark.parametrize("trained", [None, CostRatio(3.0), "balanced"])
def test_the_networks_are_those_of_the_training_weight(trained):
    """Same seed, same weight: the same network, whatever the price, up to its output bias."""
    X, y = draw()
    apart = light(CRCENClassifier, training_weighting=trained, n_members=1).fit(X, y)
    same = CRCENClassifier(
        trained, hidden=(16,), max_epochs=20, random_state=0, n_members=1, training_weighting="price"
    ).fit(X, y)
    assert all(np.array_equal(a, b) for a, b in zip(apart.coefs_, same.coefs_, strict=True))
    assert apart.weighting_.cost_ratio == pytest.approx(10.0)
    assert apart.key_equation_.residual < 1e-12  # solved on the training rows at the price
    assert key_equation(y, apart.weighted_proba(X)[:, 1], CostRatio(10.0)).residual < 1e-12


@pytest.mark.parametrize("probability", ["shift", "temperature", "isotonic"])
def test_the_search_is_exact_out_of_fold(probability):
    X, y = draw()
    model = light(CRCENClassifierCV, training_weighting=None, probability=probability, l2=(1e-3, 1e-2)).fit(X, y)
    q = 1 / (1 + np.exp(-model.oof_decision_function_))
    assert key_equation(y, q, model.weighting_).residual < 1e-10


@pytest.mark.parametrize("kind", [CRCENClassifier, CRCENClassifierCV])
def test_new_rows_keep_the_price_where_training_at_it_does_not(kind):
    """Eight draws: the mean drift of networks that memorise is near 0 out of fold, and far from it on training rows."""
    drifts = {"kept": [], "paper": []}
    paper = {"training_weighting": "price", "balance": True, "probability": "shift"}
    for seed in range(8):
        X, y = draw(400, seed)
        new, labels = draw(20_000, seed + 100)
        for name, how in (("kept", KEPT), ("paper", paper)):
            model = kind(Budget(10), hidden=(32,), l2=1e-4, max_epochs=30, random_state=seed, n_members=2, **how)
            drifts[name].append(drift(model.fit(X, y), new, labels))
    assert abs(np.mean(drifts["kept"])) < 0.2
    if kind is CRCENClassifier:  # a search stops before it has learnt rows by heart
        assert np.mean(drifts["paper"]) > 0.6


def test_settings_are_compared_by_the_natural_loss():
    X, y = draw(300)
    model = light(CRCENClassifierCV, training_weighting=None, l2=(1e-3, 1.0)).fit(X, y)
    assert model.scorer_ == "neg_log_loss"
    assert light(CRCENClassifierCV, training_weighting="price", l2=1e-3).fit(X, y).scorer_ == "neg_weighted_log_loss"


def test_what_means_nothing_is_refused():
    X, y = draw(100)
    with pytest.raises(InvalidParameter, match="searched by training at each: calibration must be"):
        CRCENClassifierCV([Budget(2), Budget(5)], training_weighting=None).fit(X, y)
