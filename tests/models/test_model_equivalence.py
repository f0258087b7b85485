"""The models against independent truth: logistic regression, copied rows, a seed; one writer of attributes."""

import dataclasses
import numbers
import pickle
import random
import warnings
from contextlib import contextmanager
from threading import Barrier

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import crcen
from crcen.models.classifier import parallel_fits
from crcen.models.fitted import FittedNetworks
from crcen.paper.estimators import MovedThresholdClassifier
from crcen.training.device import THREADS
from example_rows import interaction_rows
from grouped_settings import grouped
from papers_training import CRCENClassifier

EXACT = {"solver": "lbfgs", "tol": 1e-10, "max_epochs": 2000, "random_state": 0}
SETTINGS = {
    "adam": {"solver": "adam", "max_epochs": 4, "batch_size": 32},
    "lbfgs": {"solver": "lbfgs", "max_epochs": 8},
    "early stopping": {"solver": "adam", "max_epochs": 4, "batch_size": 32, "early_stopping": True},
    "full batch, early stopping": {"solver": "lbfgs", "max_epochs": 8, "early_stopping": True},
}
each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@pytest.mark.parametrize(
    "weighting", [None, "balanced", crcen.Lam(0.95), crcen.CostRatio(0.2), crcen.Alpha(3)], ids=repr
)
@pytest.mark.parametrize("l2", [1e-3, 0.1])
def test_no_hidden_layer_is_weighted_logistic_regression(rare_rows, weighting, l2):
    X, y = rare_rows(n=300)
    s = np.random.default_rng(5).uniform(0.2, 3.0, len(y))
    model = CRCENClassifier(weighting, hidden=(), l2=l2, standardize=False, **EXACT).fit(X, y, s)
    weights = model.weighting_.row_weights(y, s)  # the objective is Σ w ℓ / Σ w + ½ l2 ‖W‖²
    reference = LogisticRegression(C=1 / (l2 * weights.sum()), tol=1e-12, solver="newton-cholesky", max_iter=500)
    reference.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.coefs_[0][0, :, 0], reference.coef_[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.weighted_proba(X), reference.predict_proba(X), atol=1e-7)
    assert model.status_ == "converged"
    if weighting is None:
        np.testing.assert_array_equal(model.predict_proba(X), model.weighted_proba(X))


def copied(X, y, copies):
    return np.repeat(X, copies, axis=0), np.repeat(y, copies)


@pytest.mark.parametrize("price", [2, 5, 9])
@pytest.mark.parametrize("hidden", [(), (3,)], ids=repr)
def test_a_whole_cost_ratio_is_that_many_copies_of_the_rare_rows(rare_rows, price, hidden):
    X, y = rare_rows()
    settings = {**EXACT, "hidden": hidden, "activation": "tanh", "l2": 1e-2, "standardize": False, "pos_label": 1}
    if hidden:
        settings["max_epochs"] = 30  # the same path, before rounding parts two paths of a loss that is not convex
    weighted = CRCENClassifier(crcen.CostRatio(price), **settings).fit(X, y)
    repeated = CRCENClassifier(None, **settings).fit(*copied(X, y, np.where(y == 1, price, 1)))
    np.testing.assert_allclose(weighted.weighted_proba(X), repeated.weighted_proba(X), atol=1e-7)


@pytest.mark.parametrize("kind", [CRCENClassifier, crcen.CSMLPClassifier])
@pytest.mark.parametrize("hidden", [(), (3,)], ids=repr)
@pytest.mark.parametrize(
    ("weighting", "n_classes"), [("balanced", 2), (crcen.Lam(0.8), 2), ({0: 1, 1: 3, 2: 9}, 3)], ids=repr
)
def test_weight_k_is_k_copies(kind, hidden, weighting, n_classes):
    X, y = interaction_rows(150, n_classes=n_classes)
    k = np.random.default_rng(7).integers(0, 4, len(y))
    settings = {**EXACT, "hidden": hidden, "activation": "tanh", "l2": 1e-2, "max_epochs": 30, "n_members": 2}
    weighted = kind(weighting, **grouped(**settings)).fit(X, y, k)
    repeated = kind(weighting, **grouped(**settings)).fit(*copied(X, y, k))
    assert weighted.weighting_ == repeated.weighting_
    for name in ("mean", "scale"):
        np.testing.assert_allclose(weighted.input_encoding_[name], repeated.input_encoding_[name], rtol=1e-12)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-7)


def test_units_of_a_column_do_not_matter(rare_rows):
    X, y = rare_rows()
    scale, place = np.array([1e-6, 1.0, 1e5]), np.array([0.0, -7.0, 1e5])
    settings = {"hidden": (3,), "activation": "tanh", "l2": 1e-2, **EXACT, "max_epochs": 30}
    one, other = (CRCENClassifier(**settings).fit(rows, y).predict_proba(rows) for rows in (X, X * scale + place))
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(("hidden", "rows", "solver"), [((), 300, "lbfgs"), ((3,), 100, "adam"), ((3,), 300, "adam")])
def test_auto_is_lbfgs_without_hidden_layer_and_adam_with_one(rare_rows, hidden, rows, solver):
    X, y = rare_rows(rows)
    how = {"hidden": hidden, "batch_size": 64, "random_state": 0, "max_epochs": 3}
    auto, named = (CRCENClassifier(solver=name, **how).fit(X, y) for name in ("auto", solver))
    np.testing.assert_array_equal(auto.decision_function(X), named.decision_function(X))


X, _ = interaction_rows(400)
LABELS = {n_classes: interaction_rows(400, n_classes=n_classes)[1] for n_classes in (2, 3)}  # of the same rows
WEIGHT = np.random.default_rng(0).uniform(0.5, 2.0, len(X))


def committee(member):
    return lambda y, w: crcen.CommitteeClassifier(members=(member,), effort="quick", cv=2, random_state=0).fit(X, y, w)


def network(**how):
    return lambda y, w: crcen.CRCENClassifier(**{"hidden": (4,), "max_epochs": 5, "random_state": 0} | how).fit(X, y, w)


def stream(y, w):
    parts = [slice(i, i + 100) for i in range(0, len(X), 100)]
    return crcen.fit_stream([(X[i], y[i], w[i]) for i in parts], epochs=2, hidden=(4,), random_state=0)


def search(y, w):
    return crcen.CRCENClassifierCV(hidden=[(4,)], l2=[1e-3, 0.1], max_epochs=5, cv=2, random_state=0).fit(X, y, w)


def in_parts(y, w):
    return crcen.CRCENClassifier(hidden=(4,), random_state=0).partial_fit(X, y, np.unique(y), sample_weight=w)


LEARNERS = {
    "network": network(),
    "isotonic": network(calibration=crcen.Calibration(probability="isotonic")),
    "logistic": network(hidden=(), max_epochs=None),
    "search": search,
    "trees": committee("trees"),
    "catboost": committee("catboost"),
    "forest": committee("forest"),
    "stream": stream,
    "partial_fit": in_parts,
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("learner", LEARNERS)
def test_weights_count_by_their_ratios(learner, n_classes):
    if learner in ("trees", "catboost"):
        pytest.importorskip("lightgbm" if learner == "trees" else "catboost")
    if (learner, n_classes) == ("isotonic", 3):
        pytest.skip("for two classes")
    y, fit = LABELS[n_classes], LEARNERS[learner]
    expected = fit(y, WEIGHT).predict_proba(X)
    assert np.ptp(expected[:, 1]) > 0.1
    for scale in (1e-12, 1e12):
        np.testing.assert_allclose(fit(y, scale * WEIGHT).predict_proba(X), expected, rtol=0, atol=1e-6)
    if learner in ("trees", "forest"):
        equal, none = (fit(y, w).predict_proba(X) for w in (np.full(len(X), 1e12), None))
        np.testing.assert_allclose(equal, none, atol=1e-9)


@each_setting
def test_one_seed_one_result_and_nothing_elses_seed_is_touched(rare_rows, settings):
    X, y = rare_rows()

    def states():
        name, keys, *rest = np.random.get_state()  # noqa: NPY002
        return random.getstate(), name, keys.tolist(), rest, torch.get_rng_state().tolist()

    before = states()
    one, two, other, unit_weights = (
        crcen.CRCENClassifier(**grouped(hidden=(4,), n_members=2, random_state=seed, **settings)).fit(X, y, weights)
        for seed, weights in ((5, None), (5, None), (6, None), (5, np.ones(len(y))))
    )
    logits = one.decision_function(X)
    assert np.abs(logits - other.decision_function(X)).max() > 1e-6
    np.testing.assert_array_equal(unit_weights.decision_function(X), logits)
    np.testing.assert_array_equal(two.decision_function(X), logits)
    for a, b in zip(one.coefs_ + one.intercepts_, two.coefs_ + two.intercepts_, strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.shift_ == two.shift_
    np.testing.assert_array_equal(one.loss_curve_, two.loss_curve_)
    assert states() == before


def test_a_random_state_instance_moves_on(rare_rows):
    X, y = rare_rows()

    def two(shared):
        how = grouped(hidden=(4,), random_state=shared, **SETTINGS["adam"])
        return np.array([crcen.CRCENClassifier(**how).fit(X, y).decision_function(X) for _ in range(2)])

    first, again = two(np.random.RandomState(3)), two(np.random.RandomState(3))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first[0] - first[1]).max() > 1e-6


def test_members_differ_and_the_first_do_not_depend_on_how_many_follow(rare_rows):
    X, y = rare_rows()
    how = {"hidden": (4,), "encoding": "standard", "random_state": 0, **SETTINGS["lbfgs"]}
    few, many = (crcen.CRCENClassifier(**grouped(n_members=n, **how)).fit(X, y) for n in (2, 4))
    np.testing.assert_allclose(few.coefs_[0], many.coefs_[0][:2], rtol=1e-6, atol=1e-8)
    assert len({layer.tobytes() for layer in many.coefs_[0]}) == 4
    assert (many.coefs_[0].shape, many.intercepts_[1].shape) == ((4, 3, 4), (4, 1))


@contextmanager
def with_threads(monkeypatch, count):
    before = torch.get_num_threads()
    monkeypatch.setattr("crcen.training.device.cpu_count", lambda: count)
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def test_two_run_at_a_time_and_each_trains_on_one_thread(monkeypatch):
    both = Barrier(2)

    def fit(part):
        both.wait(timeout=30)  # breaks where one comes after the other
        warnings.warn("not converged", ConvergenceWarning, stacklevel=2)
        return part, THREADS.get()

    with with_threads(monkeypatch, 2):
        found = parallel_fits(crcen.CRCENClassifier(device="cpu"), fit, [3, 4])
        assert (found, THREADS.get()) == ([(3, 1), (4, 1)], 2)


@pytest.mark.parametrize("search", [False, True])
def test_the_models_own_error_has_the_same_bits(search, monkeypatch):
    y, how = LABELS[2], {"hidden": [(4,)] if search else (4,), "max_epochs": 3, "random_state": 0, "device": "cpu"}
    model = (crcen.CRCENClassifierCV if search else crcen.CRCENClassifier)(None, l2=1e-3, **how).fit(X, y)
    found = []
    for count in (1, 3):
        with with_threads(monkeypatch, count):
            found.append(crcen.training_error(model, X, y, n_fits=3).log_odds)
    assert found[0] == found[1] > 0
    assert np.isfinite(found).all()


Y = LABELS[2]
QUICK = {"hidden": (4,), "max_epochs": 3, "random_state": 0}
READABLE = {name for name, value in vars(FittedNetworks).items() if isinstance(value, property)}
PARTS = [(X[i::3], Y[i::3]) for i in range(3)]
WAYS = {
    "fit": lambda: crcen.CRCENClassifier(crcen.Budget(5), **QUICK).fit(X, Y),
    "map": lambda: crcen.CRCENClassifier(crcen.Budget(5), **grouped(probability="temperature", **QUICK)).fit(X, Y),
    "logistic": lambda: crcen.CRCENClassifier(crcen.Budget(5), **QUICK | {"hidden": ()}).fit(X, Y),
    "early stopping": lambda: crcen.CRCENClassifier(crcen.Budget(5), **grouped(early_stopping=True, **QUICK)).fit(X, Y),
    "csmlp": lambda: crcen.CSMLPClassifier(crcen.Budget(5), **QUICK).fit(X, Y),
    "threshold": lambda: MovedThresholdClassifier(crcen.Budget(5), **QUICK).fit(X, Y),
    "search": lambda: crcen.CRCENClassifierCV(crcen.Budget(5), l2=[1e-2, 1e-1], cv=2, **QUICK).fit(X, Y),
    "partial_fit": lambda: crcen.CRCENClassifier(crcen.Budget(5), **QUICK).partial_fit(X, Y),
    "partial_fit after fit": lambda: crcen.CRCENClassifier(crcen.Budget(5), **QUICK).fit(X, Y).partial_fit(X, Y),
    "fit_stream": lambda: crcen.fit_stream(PARTS, weighting=crcen.Budget(5), epochs=2, random_state=0),
}
# What a search keeps besides, and what partial_fit says it has not: it solves for no key equation.
OF_A_SEARCH = ("best_", "cv_", "oof_", "n_splits_", "scorer_", "search_time_", "search_notes_")


def odd_values(value, path):
    """Where a state holds anything but plain Python, NumPy and dataclasses of those."""
    if value is None or isinstance(value, str | bytes | numbers.Number | np.generic):
        return []
    if isinstance(value, np.ndarray):
        return [path] if value.dtype.kind == "O" and "feature_names" not in path and ".cv_results_" not in path else []
    if isinstance(value, dict):
        return [odd for key, part in value.items() for odd in odd_values(part, f"{path}.{key}")]
    if isinstance(value, list | tuple):
        return [odd for i, part in enumerate(value) for odd in odd_values(part, f"{path}[{i}]")]
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("crcen."):
        return odd_values(vars(value), path)
    return [f"{path}: {type(value)}"]


def written(model):
    """Names of the fitted attributes, those of a search aside."""
    return {name for name in vars(model) if name.endswith("_") and not name.startswith(("_", *OF_A_SEARCH))}


def test_every_way_leaves_the_same_attributes_plain_and_kept_in_files_and_pickles(tmp_path):
    models = {way: make() for way, make in WAYS.items()}
    for way, model in models.items():
        without = {"key_equation_"} if way.startswith("partial_fit") else set()
        assert written(model) | without == written(models["fit"]), way
        assert "key_equation_" in written(model) or without
        assert odd_values(vars(model), way) == []
        assert b"torch" not in pickle.dumps(model)
        for back in (crcen.load(crcen.save(model, tmp_path / "model.crcen")), pickle.loads(pickle.dumps(model))):
            for name in READABLE:
                assert repr(getattr(model, name)) == repr(getattr(back, name)), (way, name)
            for method in ("decision_function", "predict_proba", "weighted_proba", "predict"):
                np.testing.assert_array_equal(getattr(back, method)(X), getattr(model, method)(X))
            assert (vars(model.recipe_), back.get_params()) == (vars(back.recipe_), model.get_params())
        assert None not in (model.recipe_.max_epochs, model.recipe_.solver)
        assert "auto" not in model.recipe_.settings().values()
    assert not any(hasattr(crcen.CRCENClassifier(), name) for name in READABLE)
