"""``probability=`` of the estimators: one number decides under every map, which has seen out-of-fold logits alone."""

import pickle

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

import crcen
from crcen import Alpha, Budget, CSMLPClassifier, Lam, key_equation, make_sim2
from crcen.datasets.simulated import sim2_posterior
from crcen.models.probability import PROBABILITIES, apply_map, fit_map
from crcen.paper.networks import MovedThresholdClassifier
from crcen.theory.decision import sigmoid
from grouped_settings import grouped
from papers_training import PAPER, CRCENClassifier, CRCENClassifierCV

FITTED = PROBABILITIES[1:]
QUICK = {"hidden": (4,), "solver": "lbfgs", "max_epochs": 40, "random_state": 0}
MODELS = [
    CRCENClassifier(Budget(3), n_members=2, **QUICK),
    CSMLPClassifier("balanced", **grouped(**QUICK)),
    MovedThresholdClassifier(Budget(3), **grouped(**QUICK)),
    CRCENClassifierCV(Budget(3), l2=[1e-3, 1e-1], cv=3, balance=False, **QUICK),
]
NAMES = ["members", "csmlp", "threshold", "search"]


def natural(model, X):
    """Natural logit of the positive class, as decided."""
    weighted = model.decision_function(X) * (1 if model.classes_[1] == model.pos_label_ else -1)
    return weighted - model.weighting_.logit_shift


def without_map(model, X):
    """Natural logit of the positive class before the map, from the model's plain state."""
    plain = pickle.loads(pickle.dumps(model))
    plain.ensemble_ = plain.ensemble_.mapped(np.array([1.0, 0.0]))
    return natural(plain, X)


@pytest.mark.parametrize("kind", FITTED)
@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_every_answer_is_the_mapped_logit(rare_rows, model, kind):
    """The networks are those of the plain shift; p is the map of their natural logit, and q is p at the price."""
    X, y = rare_rows(120)
    plain = model.set_params(calibration__probability="shift").fit(X, y)
    before, p_before = natural(plain, X), plain.predict_proba(X)
    mapped = model.set_params(calibration__probability=kind).fit(X, y)
    np.testing.assert_allclose(without_map(mapped, X), before, rtol=1e-4, atol=1e-4)
    p, q, c = mapped.predict_proba(X), mapped.weighted_proba(X), mapped.weighting_.cost_ratio
    assert not np.allclose(p, p_before, rtol=1e-3)
    np.testing.assert_allclose(p[:, 1], sigmoid(apply_map(mapped.probability_map_, without_map(mapped, X))), rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(q[:, 1], c * p[:, 1] / (c * p[:, 1] + p[:, 0]), rtol=1e-9)
    np.testing.assert_allclose(mapped.decision_function(X), np.log(q[:, 1] / q[:, 0]), rtol=1e-9, atol=1e-9)
    if type(mapped) is not MovedThresholdClassifier:  # its key equation is that of the plain network
        here = key_equation(y, q[:, 1], mapped.weighting_)
        assert mapped.key_equation_.lhs == pytest.approx(here.lhs, rel=1e-9)


@pytest.mark.parametrize("members", [1, 2])
def test_the_map_is_fitted_out_of_fold(rare_rows, members):
    """Each fold by hand, from the public classifier on its rows alone."""
    X, y = rare_rows(200)
    settings = {"hidden": (3,), "solver": "lbfgs", "max_epochs": 15, "n_members": members, "random_state": 7}
    model = CRCENClassifier(Lam(0.8), probability="balance", **settings).fit(X, y)
    seed = np.random.RandomState(7).randint(2**31 - 1)
    oof = np.full(len(y), np.nan)
    for rows, held_out in StratifiedKFold(4, shuffle=True, random_state=seed).split(X, y):
        fold = CRCENClassifier(Lam(0.8), **settings).fit(X[rows], y[rows])
        oof[held_out] = natural(fold, X[held_out])
    root = brentq(lambda d: np.sum(y - sigmoid(oof + d)), -20, 20, xtol=1e-12)
    np.testing.assert_allclose(model.probability_map_, [1.0, root], atol=1e-6)


@pytest.mark.parametrize("kind", FITTED)
def test_the_search_uses_its_own_out_of_fold_logits(rare_rows, kind):
    X, y = rare_rows(150)
    model = CRCENClassifierCV(Budget(3), l2=[1e-3, 1e-1], cv=3, probability=kind, balance=False, **QUICK).fit(X, y)
    plain = CRCENClassifierCV(Budget(3), l2=[1e-3, 1e-1], cv=3, balance=False, **QUICK).fit(X, y)
    oof = plain.oof_decision_function_ - plain.weighting_.logit_shift
    np.testing.assert_allclose(model.probability_map_, fit_map(kind, y == 1, oof, np.ones(len(y))))
    mapped = apply_map(model.probability_map_, oof)
    np.testing.assert_allclose(model.oof_decision_function_, mapped + model.weighting_.logit_shift, atol=1e-9)


@pytest.mark.parametrize("kind", FITTED)
def test_out_of_fold_the_bias_is_solved_for_after_the_map(rare_rows, kind):
    """The slope or corners of the map stay; what it adds is the root of the key equation at the price, by hand."""
    X, y = rare_rows(150)
    settings = {"l2": [1e-3, 1e-1], "cv": 3, "probability": kind, **QUICK}
    apart = CRCENClassifierCV(Budget(3), balance=False, **settings).fit(X, y)
    solved = CRCENClassifierCV(Budget(3), balance="oof", **settings).fit(X, y)
    oof, weights = apart.oof_decision_function_, np.where(y == 1, 3.0, 1.0)
    root = brentq(lambda d: np.sum(weights * (y - sigmoid(oof + d))), -20, 20, xtol=1e-12)
    assert solved.oof_shift_ == pytest.approx(root, abs=1e-7)
    np.testing.assert_allclose(solved.oof_decision_function_, oof + root, atol=1e-7)
    moved = np.array(apart.probability_map_)
    moved[1] += root
    np.testing.assert_allclose(solved.probability_map_, moved, atol=1e-7)


@pytest.mark.parametrize("kind", ["temperature", "isotonic"])
def test_an_overfitted_network_gets_better_probabilities(kind):
    """Columns of noise to learn by heart."""
    train, new = make_sim2(60, 600, seed=3), make_sim2(300, 3000, seed=4)
    noise = np.random.default_rng(0)
    X, X_new = (np.column_stack([d.X, noise.normal(size=(len(d.y), 20))]) for d in (train, new))
    settings = {"hidden": (16,), "l2": 0.0, "max_epochs": 60, "random_state": 0}
    plain, mapped = (CRCENClassifier(probability=p, **settings).fit(X, train.y) for p in ("shift", kind))
    before, after = (log_loss(new.y, m.predict_proba(X_new)) for m in (plain, mapped))
    assert after < 0.9 * before


def test_the_price_of_a_moved_threshold_counts(rare_rows):
    """Trained at λ = ½, decided at the price on the mapped probability."""
    X, y = rare_rows(300)
    how = PAPER | {"probability": "balance"}
    plain = crcen.CRCENClassifier(None, **grouped(**how, **QUICK)).fit(X, y)
    moved = MovedThresholdClassifier(Budget(9), **grouped(probability="balance", **QUICK)).fit(X, y)
    np.testing.assert_allclose(moved.probability_map_, plain.probability_map_)
    np.testing.assert_allclose(moved.predict_proba(X), plain.predict_proba(X))
    assert np.array_equal(moved.predict(X) == 1, moved.predict_proba(X)[:, 1] > 1 / 10)
    assert (moved.predict(X) != plain.predict(X)).any()


@pytest.mark.parametrize("kind", FITTED)
def test_rows_of_weight_0_have_no_say(rare_rows, kind):
    X, y = rare_rows(150)
    extra = np.concatenate([X, X[:40] + 1.0]), np.concatenate([y, 1 - y[:40]])
    weights = np.concatenate([np.ones(150), np.zeros(40)])
    alone = CRCENClassifier(Lam(0.7), **grouped(probability=kind, **QUICK)).fit(X, y)
    beside = CRCENClassifier(Lam(0.7), **grouped(probability=kind, **QUICK)).fit(*extra, sample_weight=weights)
    np.testing.assert_allclose(beside.predict_proba(X), alone.predict_proba(X), rtol=1e-5, atol=1e-7)


# -- against a posterior that is known ---------------------------------------------------------------------------------

SETTINGS = {"hidden": (8,), "activation": "tanh", "max_epochs": 30, "l2": 1e-3, "random_state": 0,
            "encoding": "standard", "n_members": 1}  # fmt: skip


@pytest.fixture(scope="module")
def sim2():
    train, new = make_sim2(400, 4000, seed=1), make_sim2(400, 4000, seed=2)
    return train.X, train.y, new.X, new.y, sim2_posterior(new.X, 10.0)


@pytest.mark.parametrize("alpha", [0.5, 1, 2])
def test_weighted_training_gives_natural_probabilities(sim2, alpha):
    X, y, X_new, y_new, truth = sim2
    plain, model = (CRCENClassifier(price, **SETTINGS).fit(X, y) for price in (None, Alpha(alpha)))
    bayes, natural = log_loss(y_new, truth), log_loss(y_new, model.predict_proba(X_new))
    assert natural < 1.04 * bayes
    assert natural < 1.04 * log_loss(y_new, plain.predict_proba(X_new))
    assert log_loss(y_new, model.weighted_proba(X_new)) > 1.3 * bayes
    p = model.predict_proba(X_new)[:, 1]
    assert abs(p.mean() - y_new.mean()) < 0.01
    assert np.mean(np.abs(p - truth)) < 0.03
    assert np.mean(model.predict(X_new) == (truth > model.weighting_.threshold)) > 0.95


def test_csmlp_estimates_the_same_posterior(sim2):
    """Squared error is a proper score as well: its q is the weighted posterior at the optimum."""
    X, y, X_new, y_new, truth = sim2
    model = CSMLPClassifier(Alpha(1), **grouped(**SETTINGS)).fit(X, y)
    assert log_loss(y_new, model.predict_proba(X_new)) < 1.08 * log_loss(y_new, truth)
