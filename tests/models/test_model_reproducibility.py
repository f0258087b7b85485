"""A seed decides everything, and nothing else's seed is touched."""

import random

import numpy as np
import pytest
import torch

from crcen import CRCENClassifier
from grouped_settings import grouped

SETTINGS = {
    "adam": {"solver": "adam", "max_epochs": 4, "batch_size": 32},
    "lbfgs": {"solver": "lbfgs", "max_epochs": 8},
    "early stopping": {"solver": "adam", "max_epochs": 4, "batch_size": 32, "early_stopping": True},
}
each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@each_setting
def test_one_seed_one_result_and_another_another(rare_rows, settings):
    X, y = rare_rows()
    one, two, other = (
        CRCENClassifier(**grouped(hidden=(4,), n_members=2, random_state=seed, **settings)).fit(X, y)
        for seed in (5, 5, 6)
    )
    assert np.abs(one.decision_function(X) - other.decision_function(X)).max() > 1e-6
    for a, b in zip(one.coefs_ + one.intercepts_, two.coefs_ + two.intercepts_, strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.shift_ == two.shift_
    np.testing.assert_array_equal(one.loss_curve_, two.loss_curve_)
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


def test_a_random_state_instance_moves_on(rare_rows):
    X, y = rare_rows()
    settings = {"hidden": (4,), **SETTINGS["adam"]}
    shared = np.random.RandomState(3)
    first, second = (
        CRCENClassifier(**grouped(random_state=shared, **settings)).fit(X, y).decision_function(X) for _ in range(2)
    )
    again = np.random.RandomState(3)
    np.testing.assert_array_equal(
        CRCENClassifier(**grouped(random_state=again, **settings)).fit(X, y).decision_function(X), first
    )
    np.testing.assert_array_equal(
        CRCENClassifier(**grouped(random_state=again, **settings)).fit(X, y).decision_function(X), second
    )
    assert np.abs(first - second).max() > 1e-6


@each_setting
def test_global_generators_are_left_alone(rare_rows, settings):
    X, y = rare_rows()

    def states():
        name, keys, *rest = np.random.get_state()  # noqa: NPY002
        return random.getstate(), name, keys.tolist(), rest, torch.get_rng_state().tolist()

    before = states()
    CRCENClassifier(**grouped(hidden=(4,), n_members=2, random_state=0, **settings)).fit(X, y).predict(X)
    assert states() == before


def test_members_differ_from_each_other(rare_rows):
    X, y = rare_rows()
    model = CRCENClassifier(
        **grouped(hidden=(4,), n_members=4, encoding="standard", random_state=0, **SETTINGS["adam"])
    ).fit(X, y)
    assert len({layer.tobytes() for layer in model.coefs_[0]}) == 4
    assert model.coefs_[0].shape == (4, 3, 4)
    assert model.intercepts_[1].shape == (4, 1)


def test_the_first_members_do_not_depend_on_how_many_follow(rare_rows):
    X, y = rare_rows()
    few, many = (
        CRCENClassifier(**grouped(hidden=(4,), n_members=n, random_state=0, **SETTINGS["lbfgs"])).fit(X, y)
        for n in (2, 4)
    )
    np.testing.assert_allclose(few.coefs_[0], many.coefs_[0][:2], rtol=1e-6, atol=1e-8)


def test_a_prediction_does_not_depend_on_its_company(rare_rows):
    X, y = rare_rows()
    model = CRCENClassifier(**grouped(hidden=(4,), n_members=2, random_state=0, **SETTINGS["adam"])).fit(X, y)
    together = model.predict_proba(X)
    alone = np.vstack([model.predict_proba(row[None]) for row in X[:20]])
    np.testing.assert_allclose(alone, together[:20], rtol=1e-12)
