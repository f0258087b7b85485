"""Calibration: maps to natural probabilities, and the price kept: on training rows exactly, and on rows held out."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline

import crcen
import papers_training
from crcen import Alpha, Budget, CSMLPClassifier, InvalidInput, Lam, key_equation, stationarity
from crcen.datasets.simulated import sim2_posterior
from crcen.models import fitting
from crcen.models.ensemble import PROBABILITIES, apply_map, fit_map
from crcen.models.search.folds import early_stopping_split, probability_folds
from crcen.paper.estimators import MovedThresholdClassifier
from crcen.theory.price import sigmoid
from crcen.training.network import ENCODINGS
from example_rows import rare_rows
from grouped_settings import grouped
from papers_training import PAPER, CRCENClassifier

FITTED = PROBABILITIES[1:]

# -- the maps, each against an independent solution --------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    """True natural logits of a rare event, and overconfident, biased ones of a network."""
    rng = np.random.default_rng(0)
    truth = rng.normal(-3.0, 1.5, 20000)
    target = rng.random(20000) < sigmoid(truth)
    return target, 2.0 * truth + 1.0, np.ones(20000), truth


def test_shift_is_the_identity_and_balance_the_intercept_that_makes_the_mean_right(rows):
    target, logits, weights, _ = rows
    assert np.array_equal(apply_map(fit_map("shift", target, logits, weights), logits), logits)
    slope, intercept = fit_map("balance", target, logits, weights)
    assert slope == 1.0
    root = brentq(lambda d: np.sum(target - sigmoid(logits + d)), -20, 20, xtol=1e-12)
    assert intercept == pytest.approx(root, abs=1e-9)


def test_temperature_is_logistic_regression_on_the_logit_and_turns_no_ranking_round(rows):
    target, logits, weights, truth = rows
    state = fit_map("temperature", target, logits, weights)
    free = LogisticRegression(C=np.inf, tol=1e-10).fit(logits[:, None], target)
    assert state[0] == pytest.approx(free.coef_[0, 0], rel=1e-3)  # the prior weighs one row in 20,000
    assert state[1] == pytest.approx(free.intercept_[0], rel=1e-2)
    assert abs(np.sum(target - sigmoid(apply_map(state, logits)))) < 1e-8
    assert np.abs(apply_map(state, logits) - truth).mean() < 0.1
    against = np.random.default_rng(1).random(len(logits)) < sigmoid(-3.0 * logits)
    assert 0.0 < fit_map("temperature", against, logits, weights)[0] < 0.05


def test_isotonic_is_scikit_learns_without_certainty(rows):
    target, logits, weights, _ = rows
    new = apply_map(fit_map("isotonic", target, logits, weights), logits)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(logits, target).predict(logits)
    low, high = 0.5 / (np.sum(theirs == 0) + 1), 1 - 0.5 / (np.sum(theirs == 1) + 1)
    assert (theirs == 0).any()
    inside = (theirs > low) & (theirs < high)
    np.testing.assert_allclose(sigmoid(new[inside]), theirs[inside], rtol=1e-9)
    np.testing.assert_allclose(sigmoid(new[theirs == 0]), low, rtol=1e-9)
    # Two rows below without a positive, three above without a negative: ½/3 and 1 − ½/4.
    state = fit_map("isotonic", np.arange(5) > 1, np.arange(5.0), np.ones(5))
    np.testing.assert_allclose(sigmoid(apply_map(state, np.array([-9.0, 0.0, 1.0]))), 1 / 6)
    np.testing.assert_allclose(sigmoid(apply_map(state, np.array([2.0, 4.0, 99.0]))), 7 / 8)


@pytest.mark.parametrize("kind", FITTED)
def test_every_map(rows, kind):
    """Finite and rising on separable rows; weights by their ratios, weight 0 is absence; both classes are needed."""
    separable = fit_map(kind, np.arange(40) >= 30, np.linspace(-30.0, 30.0, 40), np.ones(40))
    new = apply_map(separable, np.linspace(-100, 100, 50))
    assert np.isfinite(new).all()
    assert (np.diff(new) >= 0).all()
    target, logits = rows[0][:600], rows[1][:600]
    weights = np.random.default_rng(2).integers(0, 4, 600).astype(float)
    grid, used = np.linspace(logits.min(), logits.max(), 50), weights > 0
    expected = apply_map(fit_map(kind, target, logits, weights), grid)
    for found in (
        fit_map(kind, target[used], logits[used], weights[used]),
        fit_map(kind, target, logits, 1e-12 * weights),
        fit_map(kind, target, logits, 1e12 * weights),
    ):
        np.testing.assert_allclose(apply_map(found, grid), expected, rtol=1e-9, atol=1e-9)
    for one_class, weights in ((np.ones(5, dtype=bool), np.ones(5)), (np.arange(5) > 2, (np.arange(5) > 2) * 1.0)):
        with pytest.raises(crcen.InvalidInput, match="both classes"):
            fit_map(kind, one_class, np.arange(5.0), weights)


def test_folds_hold_each_row_with_weight_out_once_and_are_fewer_for_few_positives():
    target, weights = np.arange(100) < 11, (np.arange(100) % 7 > 0).astype(float)
    folds = probability_folds(target, weights, seed=0)
    assert np.array_equal(np.sort(np.concatenate([h for _, h in folds])), np.flatnonzero(weights))
    for rows, own in folds:
        assert np.intersect1d(rows, own).size == 0
        assert np.array_equal(np.union1d(rows, own), np.flatnonzero(weights))
        assert target[rows].any()
        assert target[own].any()
    for n_pos in (2, 3):
        assert len(probability_folds(np.arange(50) < n_pos, np.ones(50), seed=0)) == n_pos
    with pytest.raises(crcen.InvalidInput, match="folds need 2 rows of each class"):
        probability_folds(np.arange(50) < 1, np.ones(50), seed=0)


# -- estimators: one number decides under every map, which has seen out-of-fold logits alone ---------------------------

QUICK = {"hidden": (4,), "solver": "lbfgs", "max_epochs": 40, "random_state": 0}
SEARCH = {"l2": [1e-3, 1e-1], "cv": 3, **QUICK}
MODELS = {
    "members": papers_training.CRCENClassifier(crcen.Budget(3), n_members=2, **QUICK),
    "csmlp": crcen.CSMLPClassifier("balanced", **grouped(**QUICK)),
    "threshold": MovedThresholdClassifier(crcen.Budget(3), **grouped(**QUICK)),
    "search": papers_training.CRCENClassifierCV(crcen.Budget(3), balance=False, **SEARCH),
}


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
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
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
        here = crcen.key_equation(y, q[:, 1], mapped.weighting_)
        assert mapped.key_equation_.lhs == pytest.approx(here.lhs, rel=1e-9)


@pytest.mark.parametrize("members", [1, 2])
def test_the_map_is_fitted_out_of_fold(rare_rows, members):
    """Each fold by hand, from the public classifier on its rows alone."""
    X, y = rare_rows(200)
    settings = {"hidden": (3,), "solver": "lbfgs", "max_epochs": 15, "n_members": members, "random_state": 7}
    model = papers_training.CRCENClassifier(crcen.Lam(0.8), probability="balance", **settings).fit(X, y)
    seed = np.random.RandomState(7).randint(2**31 - 1)
    oof = np.full(len(y), np.nan)
    for rows, held_out in StratifiedKFold(4, shuffle=True, random_state=seed).split(X, y):
        fold = papers_training.CRCENClassifier(crcen.Lam(0.8), **settings).fit(X[rows], y[rows])
        oof[held_out] = natural(fold, X[held_out])
    root = brentq(lambda d: np.sum(y - sigmoid(oof + d)), -20, 20, xtol=1e-12)
    np.testing.assert_allclose(model.probability_map_, [1.0, root], atol=1e-6)


@pytest.mark.parametrize("kind", FITTED)
def test_a_search_maps_its_own_out_of_fold_logits_and_then_solves_for_the_bias(rare_rows, kind):
    """The slope or corners of the map stay; what it adds is the root of the key equation at the price, by hand."""
    X, y = rare_rows(150)
    plain, mapped, solved = (
        papers_training.CRCENClassifierCV(crcen.Budget(3), **own, **SEARCH).fit(X, y)
        for own in ({"balance": False}, {"balance": False, "probability": kind}, {"probability": kind})
    )
    logits = plain.oof_decision_function_ - plain.weighting_.logit_shift
    np.testing.assert_allclose(mapped.probability_map_, fit_map(kind, y == 1, logits, np.ones(len(y))))
    oof = apply_map(mapped.probability_map_, logits) + mapped.weighting_.logit_shift
    np.testing.assert_allclose(mapped.oof_decision_function_, oof, atol=1e-9)
    weights = np.where(y == 1, 3.0, 1.0)
    root = brentq(lambda d: np.sum(weights * (y - sigmoid(oof + d))), -20, 20, xtol=1e-12)
    assert solved.oof_shift_ == pytest.approx(root, abs=1e-7)
    np.testing.assert_allclose(solved.oof_decision_function_, oof + root, atol=1e-7)
    assert crcen.key_equation(y, sigmoid(solved.oof_decision_function_), solved.weighting_).residual < 1e-10
    moved = np.array(mapped.probability_map_)
    moved[1] += root
    np.testing.assert_allclose(solved.probability_map_, moved, atol=1e-7)


SETTINGS = {"hidden": (8,), "activation": "tanh", "max_epochs": 30, "l2": 1e-3, "random_state": 0,
            "encoding": "standard", "n_members": 1}  # fmt: skip


@pytest.mark.parametrize("kind", ["temperature", "isotonic"])
def test_an_overfitted_network_gets_better_probabilities(kind):
    """Columns of noise to learn by heart."""
    train, new = crcen.make_sim2(60, 600, seed=3), crcen.make_sim2(300, 3000, seed=4)
    noise, settings = np.random.default_rng(0), {"hidden": (16,), "l2": 0.0, "max_epochs": 60, "random_state": 0}
    X, X_new = (np.column_stack([d.X, noise.normal(size=(len(d.y), 20))]) for d in (train, new))
    models = (papers_training.CRCENClassifier(probability=p, **settings).fit(X, train.y) for p in (kind, "shift"))
    mapped, plain = (log_loss(new.y, model.predict_proba(X_new)) for model in models)
    assert mapped < 0.9 * plain


def test_weighted_training_gives_natural_probabilities():
    train, new = crcen.make_sim2(400, 4000, seed=1), crcen.make_sim2(400, 4000, seed=2)
    truth = sim2_posterior(new.X, 10.0)
    plain = papers_training.CRCENClassifier(None, **SETTINGS).fit(train.X, train.y)
    best, unweighted = log_loss(new.y, truth), log_loss(new.y, plain.predict_proba(new.X))
    for alpha in (0.5, 1, 2):
        model = papers_training.CRCENClassifier(crcen.Alpha(alpha), **SETTINGS).fit(train.X, train.y)
        assert log_loss(new.y, model.predict_proba(new.X)) < 1.04 * min(best, unweighted)
        assert log_loss(new.y, model.weighted_proba(new.X)) > 1.3 * best
        p = model.predict_proba(new.X)[:, 1]
        assert abs(p.mean() - new.y.mean()) < 0.01
        assert np.mean(np.abs(p - truth)) < 0.03
        assert np.mean(model.predict(new.X) == (truth > model.weighting_.threshold)) > 0.95
    # Squared error is a proper score as well: its q is the weighted posterior at the optimum.
    csmlp = crcen.CSMLPClassifier(crcen.Alpha(1), **grouped(**SETTINGS)).fit(train.X, train.y)
    assert log_loss(new.y, csmlp.predict_proba(new.X)) < 1.08 * best


# -- the price on rows that were held out ------------------------------------------------------------------------------

KEPT = {"training_weighting": None, "balance": "auto", "probability": "auto"}
OUT_OF_FOLD = {"training_weighting": None, "balance": "oof", "probability": "temperature"}
SMALL = {"hidden": (8,), "encoding": "standard", "max_epochs": 10, "n_members": 2, "random_state": 0}


def draw(n=600, seed=0):
    """Rows with a known posterior, one in eight positive."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (rng.random(n) < sigmoid(X @ [1.2, -0.8, 0.5, 0.0] - 2.4)).astype(int)


def small(kind=crcen.CRCENClassifier, **how):
    extra = {"cv": 3, "l2": 1e-2} if kind is crcen.CRCENClassifierCV else {}
    return kind(crcen.Budget(10), **grouped(**SMALL, **extra, **how))


@pytest.mark.parametrize("kind", [crcen.CRCENClassifier, crcen.CRCENClassifierCV])
def test_the_default_is_exact_out_of_fold_and_the_papers_calibration_on_training_rows(kind):
    assert {name: kind().get_params()[f"calibration__{name}"] for name in KEPT} == KEPT
    stated = crcen.Calibration(**PAPER)
    assert [crcen.Calibration.of(name) for name in ("paper", None)] == [stated, replace(stated, balance=False)]
    X, y = draw()
    auto, told = (small(kind, **how).fit(X, y) for how in (KEPT, OUT_OF_FOLD))
    assert np.array_equal(auto.decision_function(X), told.decision_function(X))
    assert auto.probability_map_[0] != 1.0
    assert auto.key_equation_.rows == "out-of-fold rows"
    assert auto.key_equation_.residual < 1e-12
    assert "on out-of-fold rows" in str(auto.key_equation_)
    assert "on out-of-fold rows" in repr(auto.key_equation_)
    # It is at the price, and not exact where it was not solved.
    assert auto.key_equation_.weighting.cost_ratio == auto.weighting_.cost_ratio == pytest.approx(10.0)
    assert crcen.key_equation(y, auto.weighted_proba(X)[:, 1], auto.weighting_).residual > 1e-6
    paper = small(kind, **PAPER).fit(X, y)
    assert paper.key_equation_.rows == "the training rows"
    assert crcen.key_equation(y, paper.weighted_proba(X)[:, 1], paper.weighting_).residual < 1e-12
    # Where the bias is solved for on training rows, no map is fitted that would end this.
    same = small(kind, **PAPER | {"probability": "auto"}).fit(X, y)
    assert np.array_equal(same.decision_function(X), paper.decision_function(X))


@pytest.mark.parametrize("k", [2, 3])
def test_groups_stay_together_in_folds_of_every_estimator(k):
    rng = np.random.default_rng(0)
    X, g = np.repeat(rng.normal(size=(150, 3)), 4, axis=0), np.repeat(np.arange(150), 4)
    y = np.repeat(rng.integers(0, k, 150), 4)  # unrelated to X: copies alone let a model look right
    net = crcen.CRCENClassifier(hidden=(64,), l2=1e-6, max_epochs=60, random_state=0)
    corrected = crcen.PosteriorCorrection(RandomForestClassifier(20, random_state=0), method="temperature", price=None)
    order = rng.permutation(len(y))
    for model in (net, corrected):
        slopes = [model.fit(X[order], y[order], groups=one).probability_map_[0] for one in (None, g[order])]
        assert abs(slopes[0]) > 4 * abs(slopes[1])
    early = net.set_params(calibration="paper", schedule__early_stopping=True)
    rare = np.where(g % 50 == 7, 1, 0)  # in three groups: not every split has them in both parts
    for kept in [early_stopping_split(target, np.arange(len(y)), 0.1, 0, g) for target in (y, rare)]:
        assert not np.isin(g[kept[1]], g[kept[0]]).any()
    assert not np.array_equal(early.fit(X, y, groups=g).coefs_[0], early.fit(X, y).coefs_[0])
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-3, encoding="standard", random_state=0)
    splitter = StratifiedGroupKFold(4, shuffle=True, random_state=fitting.base_seed(0))
    held_out = [search.set_params(cv=cv).fit(X, y, groups=g).oof_decision_function_ for cv in (4, splitter)]
    np.testing.assert_array_equal(*held_out)
    inner = clone(net).set_params(schedule=None, calibration="out_of_fold", max_epochs=5)
    for method in ("shift", "temperature"):  # also of the folds of the estimator inside, which may be in a pipeline
        wrapped = [crcen.PosteriorCorrection(one, method=method) for one in (inner, make_pipeline(clone(inner)))]
        maps = [one.fit(X, y, groups=g).estimator_ for one in wrapped]
        alone = clone(inner).fit(X, y, groups=g).probability_map_
        assert all(np.array_equal(getattr(one, "steps", [(0, one)])[-1][1].probability_map_, alone) for one in maps)
    held = crcen.PosteriorCorrection(clone(inner).set_params(calibration="paper"), method="temperature")
    assert held.fit(X, y, groups=g).probability_map_ is not None  # the network has no folds of its own
    for model in (corrected.set_params(method="shift"), net.set_params(schedule=None)):
        with pytest.raises(crcen.InvalidParameter, match="groups must go with"):
            model.fit(X, y, groups=g)
    for model in (net, search, held):
        with pytest.raises(crcen.InvalidInput, match="groups must be known for every row"):
            model.fit(X, y, groups=[None, *g[1:]])


@pytest.mark.parametrize("n_pos", [1, 2])
def test_too_few_rows_of_a_class_for_folds_are_said(n_pos):
    X, y = draw()
    few = np.flatnonzero(y)[n_pos:]
    X, y = np.delete(X, few, axis=0), np.delete(y, few)
    model = small(**KEPT).fit(X, y)
    assert model.key_equation_.rows.startswith("the training rows, not out of fold: folds need 3 rows of each class")
    assert f"got {n_pos} of one class" in model.key_equation_.rows
    assert crcen.key_equation(y, model.weighted_proba(X)[:, 1], model.weighting_).residual < 1e-12
    assert model.probability_map_[0] == 1.0
    if n_pos == 1:
        with pytest.raises(crcen.InvalidInput, match="folds need 2 rows of each class with weight, got 1"):
            small(balance="oof").fit(X, y)


def test_early_stopping_and_weights_have_folds_as_well():
    X, y = draw()
    weights = np.where(y == 1, 2.0, 1.0)
    weights[::7] = 0.0
    model = small(**KEPT, early_stopping=True).fit(X, y, sample_weight=weights)
    assert model.key_equation_.rows == "out-of-fold rows"
    assert model.key_equation_.residual < 1e-12
    y[np.flatnonzero(y)[3:]] = 0
    said = small(**KEPT, early_stopping=True, validation_fraction=0.2).fit(X, y).key_equation_.rows
    assert "not out of fold: early_stopping needs" in said


def test_folds_over_time_have_no_map_unless_asked_for():
    X, y = draw()
    model, told = (
        small(crcen.CRCENClassifierCV, **how).set_params(cv=crcen.TimeSplit(3)).fit(X, y, groups=np.arange(len(y)))
        for how in (KEPT, KEPT | {"probability": "temperature"})
    )
    assert model.probability_map_[0] == 1.0
    assert model.key_equation_.rows == "out-of-fold rows, as far as folds agree"
    assert np.isnan(model.key_equation_.z)
    assert told.probability_map_[0] != 1.0


def test_partial_fit_and_streams_train_at_the_training_weight_and_decide_at_the_price():
    """Plain cross entropy with a small network: its probabilities do not depend on the price."""
    X, y = draw(2000)
    plain, priced = (
        crcen.CRCENClassifier(price, **grouped(**SMALL, training_weighting=None, probability="auto")).partial_fit(X, y)
        for price in (None, crcen.Budget(10))
    )
    assert np.allclose(plain.predict_proba(X), priced.predict_proba(X), atol=1e-6)
    assert priced.predict(X).sum() > plain.predict(X).sum()
    how = {"epochs": 4, "hidden": (8,), "random_state": 0, "batch_size": 64}
    kept = crcen.fit_stream([(X, y)], **grouped(weighting=crcen.Budget(10), **how, **KEPT))
    plain = crcen.fit_stream([(X, y)], **grouped(weighting=None, **how, **PAPER))
    assert kept.key_equation_.rows == "all rows of the stream"
    assert crcen.key_equation(y, kept.weighted_proba(X)[:, 1], crcen.Budget(10)).residual < 1e-10
    # The same networks but for the output bias.
    assert all(np.array_equal(a, b) for a, b in zip(kept.coefs_, plain.coefs_, strict=True))
    assert np.array_equal(kept.predict(X), kept.predict_proba(X)[:, 1] > 1 / 11)
    with pytest.raises(crcen.InvalidParameter, match=r"balance must be True here, got 'oof': a stream has no folds"):
        crcen.fit_stream([(X, y)], **grouped(balance="oof", **how))


@pytest.mark.parametrize("trained", [None, crcen.CostRatio(3.0), "balanced"])
def test_the_networks_are_those_of_the_training_weight(trained):
    """Same seed, same weight: the same network, whatever the price, up to its output bias."""
    X, y = draw()
    how = {"hidden": (16,), "max_epochs": 20, "random_state": 0, "n_members": 1}
    apart, same = (
        papers_training.CRCENClassifier(price, training_weighting=weight, **how).fit(X, y)
        for price, weight in ((crcen.Budget(10), trained), (trained, "price"))
    )
    assert all(np.array_equal(a, b) for a, b in zip(apart.coefs_, same.coefs_, strict=True))
    assert apart.weighting_.cost_ratio == pytest.approx(10.0)
    assert apart.key_equation_.residual < 1e-12  # solved on the training rows at the price
    assert crcen.key_equation(y, apart.weighted_proba(X)[:, 1], crcen.CostRatio(10.0)).residual < 1e-12


@pytest.mark.parametrize(
    ("kind", "how", "low", "high"),
    [
        (papers_training.CRCENClassifier, OUT_OF_FOLD, -0.2, 0.2),
        (papers_training.CRCENClassifier, PAPER, 0.6, np.inf),
        (papers_training.CRCENClassifierCV, OUT_OF_FOLD, -0.2, 0.2),
    ],
)
def test_new_rows_keep_the_price_where_training_at_it_does_not(kind, how, low, high):
    """The mean drift, in log-odds, of networks that memorise is near 0 out of fold and far from it on training rows."""
    drifts = []
    for seed in range(6):
        model = kind(crcen.Budget(10), hidden=(32,), l2=1e-4, max_epochs=30, random_state=seed, n_members=2, **how)
        model.fit(*draw(400, seed))
        X, y = draw(20_000, seed + 100)
        drifts.append(crcen.balance_shift(y, model.decision_function(X), model.weighting_))
    assert low < np.mean(drifts) < high


LAMS = [0.01, 0.5, 0.999]
SOLVERS = {
    "adam": {"solver": "adam", "max_epochs": 3, "batch_size": 32},
    "lbfgs": {"solver": "lbfgs", "max_epochs": 15},
}
EXACT = {
    "solver": "lbfgs", "activation": "tanh", "tol": 1e-9, "max_epochs": 4000, "l2": 1e-2, "random_state": 0,
    "encoding": "standard", "n_members": 1,
}  # fmt: skip
HIDDEN = [(), (4,), (4, 3), (4, 3, 3), (4, 3, 3, 2)]
X, y = rare_rows()


def residual_of(model, X, y, sample_weight=None):
    """|Σ w (y − q)| / Σ w in plain NumPy, from what the model says and λ alone; classes 0/1, 1 positive."""
    q = model.weighted_proba(X)[:, 1]
    assert q.dtype == np.float64
    s = np.ones(len(y)) if sample_weight is None else sample_weight
    w = s * np.where(y == 1, model.weighting_.lam, 1 - model.weighting_.lam)
    return abs(np.sum(w * (y - q))) / np.sum(w)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_members", [1, 4])
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("weighting", [*map(Lam, LAMS), Budget(6)], ids=repr)
def test_it_holds_for_every_weight(solver, n_members, early_stopping, weighting):
    X, y = rare_rows(n=160)
    weight = None
    if weighting == Budget(6):
        weight = np.random.default_rng(3).exponential(size=len(y)) * (np.arange(len(y)) % 7 > 0)
    how = {"hidden": (4,), "n_members": n_members, "early_stopping": early_stopping, "random_state": 0}
    model = CRCENClassifier(weighting, **how, **SOLVERS[solver]).fit(X, y, weight)
    assert residual_of(model, X, y, weight) <= 1e-12
    own, again = model.key_equation_, key_equation(y, model.weighted_proba(X)[:, 1], model.weighting_, weight)
    assert own.weighting == again.weighting == model.weighting_
    for field in ("lhs", "rhs", "mean_pos", "mean_neg", "var_pos", "var_neg", "discrimination"):
        assert getattr(own, field) == pytest.approx(getattr(again, field), rel=1e-10), field
    assert own.residual == pytest.approx(again.residual, abs=1e-14)
    assert own.lhs == pytest.approx(own.rhs, rel=1e-10)
    assert np.isnan(own.z)
    assert "balanced" in own.z_reason
    assert own.mean_pos == pytest.approx(own.predicted_mean_pos, rel=1e-10)
    # On other weights and on other rows it does not hold.
    if weight is not None:
        assert residual_of(model, X, y) > 1e-4
    X_new, y_new = rare_rows(seed=1)
    assert residual_of(model, X_new, y_new) > 1e-5
    assert np.isfinite(key_equation(y_new, model.weighted_proba(X_new)[:, 1], model.weighting_).z)


@pytest.mark.parametrize("hidden", [(), (3,), (4, 3), (3, 3, 3, 3)], ids=len)
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu", "silu"])
def test_it_holds_at_every_depth(hidden, activation):
    model = CRCENClassifier(Alpha(2), hidden=hidden, activation=activation, random_state=0, **SOLVERS["adam"]).fit(X, y)
    assert residual_of(model, X, y) <= 1e-12


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_members", [1, 4])
@pytest.mark.parametrize("lam", LAMS)
def test_it_holds_on_separable_rows(solver, n_members, lam):
    y = (np.arange(80) % 8 == 0).astype(int)
    X = np.random.default_rng(0).normal(size=(80, 2)) + 20.0 * y[:, None]
    settings = {**SOLVERS[solver], "max_epochs": 60, "learning_rate": 0.3, "l2": 0.0}
    model = CRCENClassifier(lam, hidden=(4,), n_members=n_members, random_state=0, **settings).fit(X, y)
    assert residual_of(model, X, y) <= 1e-12
    # Here every error is tiny, so a small residual says little: the two sums agree in relative terms too. 1 − q has
    # lost its digits where q is near 1, the logit has not.
    logits = model.decision_function(X)
    missed, alarmed = lam * expit(-logits[y == 1]).sum(), (1 - lam) * expit(logits[y == 0]).sum()
    assert missed == pytest.approx(alarmed, rel=1e-11)
    assert model.key_equation_.lhs == pytest.approx(model.key_equation_.rhs, rel=1e-9)
    assert model.key_equation_.imbalance <= 1e-9


@pytest.mark.parametrize("model", [CRCENClassifier(balance=False), CSMLPClassifier()], ids=["unbalanced", "csmlp"])
def test_the_solve_makes_a_short_run_hold_it_and_moves_the_output_bias_alone(model):
    X, y = rare_rows(n=300)
    free = model.set_params(hidden=(4,), random_state=0, weighting=Budget(20), **grouped(**SOLVERS["adam"])).fit(X, y)
    assert residual_of(free, X, y) > 1e-4
    assert free.key_equation_.residual == pytest.approx(residual_of(free, X, y), rel=1e-9)
    before, coefs, intercepts = free.decision_function(X), free.coefs_, free.intercepts_
    solved = model.set_params(calibration__balance=True).fit(X, y)
    assert residual_of(solved, X, y) <= 1e-12
    for one, other in zip([*coefs, intercepts[0]], [*solved.coefs_, solved.intercepts_[0]], strict=True):
        np.testing.assert_array_equal(one, other)
    moved = solved.decision_function(X) - before
    assert np.ptp(moved) < 1e-12
    assert abs(moved[0]) > 1e-6


@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
@pytest.mark.parametrize("weighting", ["balanced", Lam(0.95)], ids=repr)
def test_a_converged_network_is_stationary_in_every_parameter(hidden, weighting):
    model = CRCENClassifier(weighting, hidden=hidden, balance=False, **EXACT).fit(X, y)
    found = stationarity(model, X, y)
    assert found.output_bias <= found.largest_bias <= 1e-6
    assert found.largest_weight <= 1e-6
    assert model.key_equation_.residual <= 1e-6


def objective(model, X, y, s, parameters, loss):
    """Σ w ℓ / Σ w + ½ l2 ‖W‖² of one network, in plain NumPy."""
    depth = len(parameters) // 2
    weights, biases = parameters[:depth], parameters[depth:]
    h = (X - model.input_encoding_["mean"]) / model.input_encoding_["scale"]
    for W, b in zip(weights[:-1], biases[:-1], strict=True):
        h = np.tanh(h @ W + b)
    o = (h @ weights[-1] + biases[-1])[:, 0]
    w = s * np.where(y == 1, model.weighting_.lam, 1 - model.weighting_.lam)
    if loss == "cross entropy":
        rows = -np.where(y == 1, np.log(expit(o)), np.log(expit(-o)))
    else:
        rows = (np.tanh(o / 2) - np.where(y == 1, 1.0, -1.0)) ** 2
    return np.sum(w * rows) / np.sum(w) + 0.5 * model.l2 * sum(np.sum(W**2) for W in weights)


def finite_differences(model, X, y, s, member, loss, step=1e-6):
    parameters = [layer[member].copy() for layer in (*model.coefs_, *model.intercepts_)]
    gradients = [np.zeros_like(part) for part in parameters]
    for part, gradient in zip(parameters, gradients, strict=True):
        for at in np.ndindex(part.shape):
            kept = part[at]
            for sign in (1, -1):
                part[at] = kept + sign * step
                gradient[at] += sign * objective(model, X, y, s, parameters, loss) / (2 * step)
            part[at] = kept
    return gradients


@pytest.mark.parametrize(
    ("kind", "loss"), [(CRCENClassifier, "cross entropy"), (CSMLPClassifier, "squared error")], ids=["crcen", "csmlp"]
)
@pytest.mark.parametrize("hidden", [(), (3,), (3, 2)], ids=len)
def test_it_is_the_gradient_of_the_stated_objective(kind, loss, hidden):
    X, y = rare_rows(n=60)
    s = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    how = {"solver": "adam", "activation": "tanh", "max_epochs": 2, "l2": 0.05, "n_members": 2, "encoding": "standard"}
    model = kind(Budget(4), **grouped(hidden=hidden, random_state=0, **how))
    model.set_params(calibration__balance=False).fit(X, y, s)
    found = stationarity(model, X, y, s)
    for member in range(2):
        expected = finite_differences(model, X, y, s, member, loss)
        own = [layer[member] for layer in (*found.weights, *found.biases)]
        for mine, theirs in zip(own, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-8)
    assert found.largest_weight > 1e-3
    if kind is CRCENClassifier:  # the output bias alone is stationary after the solve, which is the key equation
        solved = stationarity(model.set_params(calibration__balance=True, n_members=1).fit(X, y, s), X, y, s)
        assert solved.output_bias <= 1e-12
        assert solved.output_bias == pytest.approx(model.key_equation_.residual, abs=1e-14)
        assert solved.largest_weight > 1e-4


def test_csmlp_has_a_condition_of_its_own():
    """Stationary means Σ w (y − q) q (1 − q) = 0 there, so the key equation does not hold."""
    model = CSMLPClassifier(Budget(5), **grouped(hidden=(4,), **EXACT)).fit(X, y)
    found = stationarity(model, X, y)
    assert max(found.largest_bias, found.largest_weight) <= 1e-6
    q, w = model.weighted_proba(X)[:, 1], model.weighting_.row_weights(y)
    assert abs(np.sum(w * (y - q) * q * (1 - q))) / np.sum(w) <= 1e-6
    assert model.key_equation_.residual > 1e-4


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_it_reads_inputs_through_the_networks_own_encoding_and_labels_of_any_kind(encoding):
    how = EXACT | {"encoding": encoding, "l2": 0.1, "hidden": (4,)}
    found, named = (
        stationarity(CRCENClassifier("balanced", **how).fit(X, labels), X, labels)
        for labels in (y, np.where(y == 1, "fraud", "ok"))
    )
    assert found.largest_weight < 1e-6
    for one, other in zip(found.weights + found.biases, named.weights + named.biases, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "bad", [[0, 1], np.full(150, 2), np.full(150, "ok"), np.zeros((150, 1))], ids=["short", 2, "ok", "2-D"]
)
def test_labels_the_model_does_not_know_are_refused(bad):
    with pytest.raises(NotFittedError):
        stationarity(CRCENClassifier(), X, y)
    model = CRCENClassifier(hidden=()).fit(X, y)
    with pytest.raises(InvalidInput, match="y must hold one label of 0, 1 for each of the 150 rows"):
        stationarity(model, X, bad)
    assert all(word in str(stationarity(model, X, y)) for word in ("output bias", "any bias", "any weight"))
