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


@each_setting
def test_global_generators_are_left_alone(rare_rows, settings):
    X, y = rare_rows()

    def states():
        name, keys, *rest = np.random.get_state()  # noqa: NPY002
        return random.getstate(), name, keys.tolist(), rest, torch.get_rng_state().tolist()

    before = states()
    CRCENClassifier(**grouped(hidden=(4,), n_members=2, random_state=0, **settings)).fit(X, y).predict(X)
    assert states() == before


def test_a_random_state_instance_moves_on(rare_rows):
    X, y = rare_rows()

    def two(shared):
        how = grouped(hidden=(4,), random_state=shared, **SETTINGS["adam"])
        return np.array([CRCENClassifier(**how).fit(X, y).decision_function(X) for _ in range(2)])

    first, again = two(np.random.RandomState(3)), two(np.random.RandomState(3))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first[0] - first[1]).max() > 1e-6


def test_members_differ_and_the_first_do_not_depend_on_how_many_follow(rare_rows):
    X, y = rare_rows()
    how = {"hidden": (4,), "encoding": "standard", "random_state": 0, **SETTINGS["lbfgs"]}
    few, many = (CRCENClassifier(**grouped(n_members=n, **how)).fit(X, y) for n in (2, 4))
    np.testing.assert_allclose(few.coefs_[0], many.coefs_[0][:2], rtol=1e-6, atol=1e-8)
    assert len({layer.tobytes() for layer in many.coefs_[0]}) == 4
    assert (many.coefs_[0].shape, many.intercepts_[1].shape) == ((4, 3, 4), (4, 1))
