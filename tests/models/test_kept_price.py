"""Answers that keep the price on rows that were not memorised: by folds where there are folds, and said where not."""

import numpy as np
import pytest

import papers_training
from crcen import (
    Budget,
    CostRatio,
    CRCENClassifier,
    CRCENClassifierCV,
    InvalidInput,
    InvalidParameter,
    Schedule,
    TimeSplit,
    balance_shift,
    fit_stream,
    key_equation,
)
from grouped_settings import grouped

KEPT = {"training_weighting": None, "balance": "auto", "probability": "auto"}
PAPER = {"training_weighting": "price", "balance": True, "probability": "shift"}
SMALL = {"hidden": (8,), "encoding": "standard", "max_epochs": 10, "n_members": 2, "random_state": 0}


def draw(n=600, seed=0):
    """Rows with a known posterior, one in eight positive."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (rng.random(n) < 1 / (1 + np.exp(-(X @ [1.2, -0.8, 0.5, 0.0] - 2.4)))).astype(int)


def small(kind=CRCENClassifier, **how):
    extra = {"cv": 3, "l2": 1e-2} if kind is CRCENClassifierCV else {}
    return kind(Budget(10), **grouped(**SMALL, **extra, **how))


@pytest.mark.parametrize("kind", [CRCENClassifier, CRCENClassifierCV])
def test_left_to_the_data_is_out_of_fold_and_by_temperature(kind):
    assert {name: kind().get_params()[f"calibration__{name}"] for name in KEPT} == KEPT
    X, y = draw()
    auto = small(kind, **KEPT).fit(X, y)
    told = small(kind, training_weighting=None, balance="oof", probability="temperature").fit(X, y)
    assert np.array_equal(auto.decision_function(X), told.decision_function(X))
    assert auto.probability_map_[0] != 1.0
    assert auto.key_equation_.rows == "out-of-fold rows"
    assert auto.key_equation_.residual < 1e-12
    assert "on out-of-fold rows" in str(auto.key_equation_)
    assert "on out-of-fold rows" in repr(auto.key_equation_)
    # It is at the price, and not exact where it was not solved.
    assert auto.key_equation_.weighting.cost_ratio == auto.weighting_.cost_ratio == pytest.approx(10.0)
    assert key_equation(y, auto.weighted_proba(X)[:, 1], auto.weighting_).residual > 1e-6


@pytest.mark.parametrize("kind", [CRCENClassifier, CRCENClassifierCV])
def test_the_papers_training_is_exact_on_the_training_rows(kind):
    X, y = draw()
    model = small(kind, **PAPER).fit(X, y)
    assert model.key_equation_.rows == "the training rows"
    assert key_equation(y, model.weighted_proba(X)[:, 1], model.weighting_).residual < 1e-12
    # Where the bias is solved for on training rows, no map is fitted that would end this.
    same = small(kind, **PAPER | {"probability": "auto"}).fit(X, y)
    assert np.array_equal(same.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("n_pos", [1, 2])
def test_too_few_rows_of_a_class_for_folds_are_said(n_pos):
    X, y = draw()
    few = np.flatnonzero(y)[n_pos:]
    X, y = np.delete(X, few, axis=0), np.delete(y, few)
    model = small(**KEPT).fit(X, y)
    assert model.key_equation_.rows.startswith("the training rows, not out of fold: folds need 3 rows of each class")
    assert f"got {n_pos} of one class" in model.key_equation_.rows
    assert key_equation(y, model.weighted_proba(X)[:, 1], model.weighting_).residual < 1e-12
    assert model.probability_map_[0] == 1.0
    if n_pos == 1:
        with pytest.raises(InvalidInput, match="folds need 2 rows of each class with weight, got 1"):
            small(balance="oof").fit(X, y)


def test_early_stopping_and_weights_have_folds_as_well():
    X, y = draw()
    weights = np.where(y == 1, 2.0, 1.0)
    weights[::7] = 0.0
    model = small(**KEPT, early_stopping=True).fit(X, y, sample_weight=weights)
    assert model.key_equation_.rows == "out-of-fold rows"
    assert model.key_equation_.residual < 1e-12
    few = np.flatnonzero(y)[3:]
    few_y = y.copy()
    few_y[few] = 0
    said = small(**KEPT, early_stopping=True, validation_fraction=0.2).fit(X, few_y).key_equation_.rows
    assert "not out of fold: early_stopping needs" in said


def test_folds_over_time_have_no_map_unless_asked_for():
    X, y = draw()
    model = small(CRCENClassifierCV, **KEPT).set_params(cv=TimeSplit(3)).fit(X, y, groups=np.arange(len(y)))
    assert model.probability_map_[0] == 1.0
    assert model.key_equation_.rows == "out-of-fold rows, as far as folds agree"
    assert np.isnan(model.key_equation_.z)
    told = small(CRCENClassifierCV, **KEPT | {"probability": "temperature"}).set_params(cv=TimeSplit(3))
    assert told.fit(X, y, groups=np.arange(len(y))).probability_map_[0] != 1.0


def test_partial_fit_goes_on_from_the_mapped_networks():
    """Slope, intercept and price are in the output layer: without a step the answers stay."""
    X, y = draw()
    model = small(**KEPT).fit(X, y)
    before = model.predict_proba(X)
    model.set_params(schedule=Schedule(learning_rate=1e-12), l2=0.0)
    model.partial_fit(X, y)
    assert model.status_ == "incremental_unbalanced"
    assert not hasattr(model, "key_equation_")
    assert np.allclose(model.predict_proba(X), before, rtol=1e-4, atol=1e-7)
    assert model.weighting_.cost_ratio == pytest.approx(10.0)
    assert np.array_equal(model.predict(X), model.predict_proba(X)[:, 1] > 1 / 11)


def test_partial_fit_trains_at_the_training_weight_and_decides_at_the_price():
    """Plain cross entropy with a small network: its probabilities do not depend on the price."""
    X, y = draw(2000)
    made = [
        CRCENClassifier(price, **grouped(**SMALL, training_weighting=None, probability="auto")).partial_fit(X, y)
        for price in (None, Budget(10))
    ]
    assert np.allclose(made[0].predict_proba(X), made[1].predict_proba(X), atol=1e-6)
    assert made[1].predict(X).sum() > made[0].predict(X).sum()


def test_streams_train_at_the_training_weight_and_solve_on_all_rows_at_the_price():
    X, y = draw(2000)
    how = {"epochs": 4, "hidden": (8,), "random_state": 0, "batch_size": 64}
    kept = fit_stream([(X, y)], **grouped(weighting=Budget(10), **how, **KEPT))
    plain = fit_stream([(X, y)], **grouped(weighting=None, **how, **PAPER))
    assert kept.key_equation_.rows == "all rows of the stream"
    assert key_equation(y, kept.weighted_proba(X)[:, 1], Budget(10)).residual < 1e-10
    # The same networks but for the output bias.
    assert all(np.array_equal(a, b) for a, b in zip(kept.coefs_, plain.coefs_, strict=True))
    assert np.array_equal(kept.predict(X), kept.predict_proba(X)[:, 1] > 1 / 11)
    with pytest.raises(InvalidParameter, match=r"balance must be True here, got 'oof': a stream has no folds"):
        fit_stream([(X, y)], **grouped(balance="oof", **how))


# -- a training weight apart from the price ----------------------------------------------------------------------------

OUT_OF_FOLD = {"training_weighting": None, "balance": "oof", "probability": "temperature"}


def drift(model, X, y):
    """Log-odds that new rows ask to add at the price."""
    logits = model.decision_function(X) * (1 if model.classes_[1] == model.pos_label_ else -1)
    return balance_shift(y, logits, model.weighting_)


LIGHT = {"hidden": (16,), "max_epochs": 20, "random_state": 0}


@pytest.mark.parametrize("trained", [None, CostRatio(3.0), "balanced"])
def test_the_networks_are_those_of_the_training_weight(trained):
    """Same seed, same weight: the same network, whatever the price, up to its output bias."""
    X, y = draw()
    apart, same = (
        papers_training.CRCENClassifier(price, training_weighting=weight, n_members=1, **LIGHT).fit(X, y)
        for price, weight in ((Budget(10), trained), (trained, "price"))
    )
    assert all(np.array_equal(a, b) for a, b in zip(apart.coefs_, same.coefs_, strict=True))
    assert apart.weighting_.cost_ratio == pytest.approx(10.0)
    assert apart.key_equation_.residual < 1e-12  # solved on the training rows at the price
    assert key_equation(y, apart.weighted_proba(X)[:, 1], CostRatio(10.0)).residual < 1e-12


@pytest.mark.parametrize("probability", ["shift", "temperature", "isotonic"])
def test_the_search_is_exact_out_of_fold(probability):
    X, y = draw()
    how = {"training_weighting": None, "probability": probability, "l2": (1e-3, 1e-2)}
    model = papers_training.CRCENClassifierCV(Budget(10), **LIGHT, **how).fit(X, y)
    q = 1 / (1 + np.exp(-model.oof_decision_function_))
    assert key_equation(y, q, model.weighting_).residual < 1e-10


@pytest.mark.parametrize(
    ("kind", "how", "low", "high"),
    [
        (papers_training.CRCENClassifier, OUT_OF_FOLD, -0.2, 0.2),
        (papers_training.CRCENClassifier, PAPER, 0.6, np.inf),
        (papers_training.CRCENClassifierCV, OUT_OF_FOLD, -0.2, 0.2),
    ],
)
def test_new_rows_keep_the_price_where_training_at_it_does_not(kind, how, low, high):
    """Eight draws: the mean drift of networks that memorise is near 0 out of fold, and far from it on training rows."""
    drifts = []
    for seed in range(8):
        model = kind(Budget(10), hidden=(32,), l2=1e-4, max_epochs=30, random_state=seed, n_members=2, **how)
        drifts.append(drift(model.fit(*draw(400, seed)), *draw(20_000, seed + 100)))
    assert low < np.mean(drifts) < high
