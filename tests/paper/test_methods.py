"""Compared methods are scikit-learn classifiers, do what the registry says, and follow their definitions by hand."""

import itertools
import math
import pickle
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone, is_classifier
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state
from sklearn.utils.estimator_checks import parametrize_with_checks

import crcen
from crcen import METHODS, InvalidInput, PosteriorCorrection, Schedule
from crcen.exceptions import MissingExtra
from crcen.paper import estimators as own
from crcen.paper.estimators import AdaCClassifier, BalanceCascadeClassifier, EUSBoostClassifier, PairedClassifier
from crcen.paper.methods import make_method
from crcen.theory.price import weighted_probability
from grouped_settings import grouped
from method_parameters import LIGHT, NETWORK, light
from papers_training import CRCENClassifier

ROOT = Path(__file__).parents[2]
PAPER = {"encoding": "standard", "n_members": 1, "l2": 1e-4}  # single networks on standardised columns
OURS = [name for name, method in METHODS.items() if method.training is not None]
IMBALANCED_LEARN = ["adasyn", "smote", "rusboost", "easyensemble", "balanced_rf", "balanced_bagging"]
SYSTEMS = [name for name, method in METHODS.items() if not method.in_table3 and name != "adaboost_threshold"]
THEIRS = {"adaboost", "balanced_bagging"}  # checked by the libraries they come from
BINARY = {"adac1", "adac2", "adac3", "balance_cascade", "eusboost", "gsvm_ru", "s2s"}
# imbalanced-learn and scikit-learn warn about each other's changes.
quiet = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def rows():
    """30 of 200 rows are positive; one column separates the classes well, or RUSBoost raises."""
    X, y = drawn(30, 200, 2)
    return X * [0.5, 2.0, 30.0] + [-1.0, 5.0, 0.0], y


@pytest.fixture(scope="module")
def frame(rows):
    X, y = rows
    return pd.DataFrame(X, columns=["age", "size", "rate"]), pd.Series(np.where(y == 1, "bad", "ok"))


def test_registry_holds_the_papers_eight_methods_and_two_of_ours():
    papers = ["mlp", "csmlp", "crcen", "adasyn", "smote", "rusboost", "easyensemble", "balanced_rf"]
    assert [name for name, method in METHODS.items() if method.in_paper] == papers
    in_table3 = [name for name, method in METHODS.items() if method.in_table3]
    assert in_table3 == [*papers, "mlp_threshold", "crcen_ensemble"]
    assert (len({method.label for method in METHODS.values()}), set(METHODS) - set(OURS)) == (len(METHODS), set(LIGHT))
    for method in METHODS.values():
        assert "" not in (method.summary, method.source)
        assert set(method.changes.split()) <= {"rows", "loss", "margin", "threshold", "vote"}
        assert method.probabilities in ("natural", "factor", "calibrate")
        assert method.training is None or method.tuning is None
    bounded = {name: method for name, method in METHODS.items() if method.budget}
    assert set(bounded) == {"eusboost", "s2s", "lmle"}
    for method in bounded.values():  # the text states the defaults that limit a method, and LMLE's 10 clusters
        stated = {number.replace(",", "") for number in re.findall(r"[\d,]*\d", method.budget)}
        assert stated - {"10"} <= set(map(str, method.make().get_params().values()))


def test_parameters_reach_the_estimator_and_unknown_names_are_rejected():
    for name in ("nothing", "CRCEN", ""):
        with pytest.raises(crcen.InvalidParameter, match="choose one of mlp, csmlp, crcen"):
            make_method(name)
    model = make_method("crcen_ensemble", l2=0.5)
    assert (model.n_members, model.l2, model.weighting) == (8, 0.5, "balanced")
    assert make_method("crcen_ensemble", n_members=3).n_members == 3
    assert make_method("mlp").weighting is None
    assert make_method("adasyn").sampler == "adasyn"


def test_documentation_lists_all_methods_with_rank_and_changes():
    table = (ROOT / "results/extended/table3/table3_ranks.md").read_text(encoding="utf-8")
    ranks = dict(re.findall(r"^\| (.+?) \| ([\d.]+) \|", table, re.M))
    seen = []
    for line in (ROOT / "docs" / "methods.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 7 and cells[1].startswith("`"):
            names = re.findall(r"`(\w+)`", cells[1])
            assert cells[5].split(", ") == [ranks[METHODS[name].label] for name in names]
            for name in names:
                assert all(word in cells[3] for word in METHODS[name].changes.replace("loss vote", "loss").split())
                assert ("alibrate" in cells[4] or "factor" in cells[4]) or METHODS[name].probabilities == "natural"
            seen += names
    assert sorted(seen) == sorted(METHODS)


@quiet
@pytest.mark.parametrize("name", METHODS)
def test_method_fits_predicts_clones_pickles_and_takes_texts(rows, name):
    X, y = rows
    model = light(name)
    assert is_classifier(model)
    copy = clone(model)
    assert type(copy) is type(model)
    assert repr(copy.get_params()) == repr(model.get_params())
    assert model.fit(X, y) is model
    np.testing.assert_array_equal(model.classes_, [0, 1])
    assert model.n_features_in_ == X.shape[1]
    predicted, p = model.predict(X), model.predict_proba(X)
    assert (predicted.shape, set(predicted) <= {0, 1}) == ((len(X),), True)
    assert (p.shape, ((p >= 0) & (p <= 1)).all()) == ((len(X), 2), True)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert p[y == 1, 1].mean() > p[y == 0, 1].mean()
    np.testing.assert_array_equal(copy.fit(X, y).predict_proba(X), p)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), p)
    names = np.array(["ok", "fraud"])  # the positive class sorts first
    named = light(name).fit(X, names[y])
    np.testing.assert_array_equal(named.classes_, np.sort(names))
    assert set(named.predict(X)) <= set(names)
    if name in OURS:  # the same network: the rarer class is positive whatever its name
        np.testing.assert_array_equal(named.predict(X), names[predicted])
        np.testing.assert_allclose(named.predict_proba(X)[:, 0], p[:, 1], atol=1e-6)
        np.testing.assert_array_equal(named.decision_function(X) > 0, named.predict(X) == "ok")


@quiet
@pytest.mark.parametrize("name", SYSTEMS)
def test_frames_keep_column_names_and_three_classes_are_learned_or_rejected(frame, name):
    X, y = frame
    model = light(name).fit(X, y)
    assert list(model.feature_names_in_) == list(X.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"age": "weight"}))
    three = np.where(np.arange(len(y)) % 7 == 0, "odd", y)
    if name in BINARY:
        with pytest.raises(InvalidInput, match="Only binary classification is supported"):
            light(name).fit(X, three)
        return
    p = light(name).fit(X, three).predict_proba(X)
    assert p.shape == (len(X), 3)
    assert p.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["smote", *sorted(set(SYSTEMS) - THEIRS)])
def test_bad_rows_are_rejected_in_one_sentence(frame, name):
    X, y = frame
    hole = X.copy()
    hole.loc[3, "size"] = np.nan
    for rows, labels, message in (
        (hole, y, "contains NaN in column"),
        (X, np.full(len(y), "ok"), "got one class only, 'ok'"),
        (X, X["rate"], "must hold class labels of one kind"),
    ):
        with pytest.raises(InvalidInput, match=message) as error:
            light(name).fit(rows, labels)
        assert "\n" not in str(error.value)
        assert str(error.value).endswith(".")


_SCHEDULE = {"hidden": (4,), "max_epochs": 30, "schedule": Schedule(batch_size=32, learning_rate=0.05)}
_FEW = "it has five rows of the rarer class or fewer, and SMOTE looks for five neighbours of a row"
_BATCHES = "copies and weights fill other mini-batches of Adam"
_FORMS = [f"check_sample_weight_equivalence_on_{form}_data" for form in ("dense", "sparse")]
_EXPECTED = {
    own.ResampledClassifier: dict.fromkeys(("check_n_features_in_after_fitting", "check_fit2d_1feature"), _FEW),
    own.MovedThresholdClassifier: dict.fromkeys(_FORMS, _BATCHES),
}


_CHECKED = [
    *(own.MovedThresholdClassifier(**_SCHEDULE), own.ResampledClassifier(**_SCHEDULE), AdaCClassifier(n_estimators=3)),
    *(own.CalibratedBoostingClassifier(n_estimators=3, max_depth=1), BalanceCascadeClassifier(2, n_estimators=3)),
    *(EUSBoostClassifier(3, population=6, evaluations=20), own.GranularSVMClassifier(max_granules=2)),
]


@parametrize_with_checks(_CHECKED, expected_failed_checks=lambda estimator: _EXPECTED.get(type(estimator), {}))
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", METHODS)
def test_only_methods_of_imbalanced_learn_need_an_extra(rows, monkeypatch, name):
    for module in [module for module in sys.modules if module.split(".")[0] == "imblearn"]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "imblearn", None)
    if name not in IMBALANCED_LEARN:
        light(name).fit(*rows)
        return
    with pytest.raises(MissingExtra, match=r"imblearn is not installed.*'crcen\[baselines\]'"):
        light(name).fit(*rows)


def test_networks_are_trained_at_the_price_of_the_registry_and_mfe_is_csmlp(rows):
    X, y = rows
    for name in OURS:
        training, model = METHODS[name].training, light(name)
        assert model.get_params().get("sampler") == training.sampler
        if training.sampler is None:
            price = crcen.resolve(training.price, y.sum(), (y == 0).sum())
            assert (model.fit(X, y).weighting_.lam, model.recipe().loss) == (pytest.approx(price.lam), training.loss)
    direct = CRCENClassifier("balanced", random_state=0, **PAPER, **NETWORK).fit(X, y)
    np.testing.assert_array_equal(light("crcen").fit(X, y).weighted_proba(X), direct.weighted_proba(X))
    csmlp = own.CSMLPClassifier("balanced", **grouped(random_state=0, **NETWORK)).fit(X, y)
    np.testing.assert_array_equal(light("mfe").fit(X, y).decision_function(X), csmlp.decision_function(X))


@quiet
@pytest.mark.parametrize("name", METHODS)
def test_posterior_correction_does_what_the_registry_says(frame, name):
    """30 of 200 rows are positive: a factor of 17/3 where the classes were drawn evenly."""
    X, y = frame
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PosteriorCorrection(light(name), price=None).fit(X.to_numpy(), y)
    doubts = [str(one.message) for one in caught if "a prior shift cannot be exact here" in str(one.message)]
    kind = METHODS[name].probabilities
    assert len(doubts) == (kind == "calibrate")
    if kind != "calibrate":
        assert model.odds_factor_ == pytest.approx(17 / 3 if kind == "factor" else 1.0)


DECIDED = ["logit_adjustment", "class_balanced", "s2s", "mlp_threshold", "sosr", "focal", "ldam", "msfe"]


@pytest.mark.parametrize("name", DECIDED)
@quiet
def test_stated_price_is_that_of_the_methods_own_decisions(frame, name):
    X, y = frame
    model = PosteriorCorrection(light(name)).fit(X.to_numpy(), y)
    inner = model.estimator_
    assert (inner.pos_label_, model.price_.cost_ratio) == ("bad", pytest.approx(inner.weighting_.cost_ratio))
    if name != "sosr":  # it has no probabilities to decide by
        same = (model.predict(X.to_numpy()) == inner.predict(X.to_numpy())).mean()
        assert same > 0.8 if name == "s2s" else same == 1.0  # a vote and a mean may differ
    if name in ("logit_adjustment", "sosr"):
        assert inner.weighting_.cost_ratio == pytest.approx(17 / 3)


@pytest.mark.parametrize("n_members", [1, 3])
def test_moved_threshold_decides_at_its_price_on_the_plain_networks_probabilities(rows, n_members):
    X, y = rows
    moved, plain = (light(name, n_members=n_members).fit(X, y) for name in ("mlp_threshold", "mlp"))
    np.testing.assert_allclose(moved.predict_proba(X), plain.predict_proba(X), rtol=1e-12)
    lam = moved.weighting_.lam
    assert lam == pytest.approx((y == 0).mean())  # balanced
    p = moved.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(moved.predict(X) == 1, p > 1 - lam)
    assert moved.predict(X).sum() > plain.predict(X).sum()
    np.testing.assert_allclose(moved.weighted_proba(X)[:, 1], weighted_probability(p, moved.weighting_), rtol=1e-9)
    assert moved.key_equation_.residual <= 1e-12
    dear = clone(moved).set_params(weighting=crcen.Budget(20)).fit(X, y)
    np.testing.assert_allclose(dear.predict_proba(X), moved.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(dear.predict(X) == 1, p > 1 / 21)


@pytest.mark.parametrize("sampler", ["smote", "adasyn"])
def test_plain_network_is_trained_on_balanced_rows(rows, sampler):
    X, y = rows
    model = own.ResampledClassifier(sampler, **grouped(random_state=0, **NETWORK)).fit(X, y)
    resampled, labels = model.resample(X, y)
    np.testing.assert_allclose(resampled[: len(X)], X, rtol=1e-9, atol=1e-9)  # in the units of X
    np.testing.assert_array_equal(labels[: len(X)], y)
    assert labels.mean() == pytest.approx(0.5, abs=0 if sampler == "smote" else 0.05)
    plain = CRCENClassifier(None, pos_label=1, random_state=0, **PAPER, **NETWORK).fit(resampled, labels)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), rtol=1e-14)
    np.testing.assert_array_equal(model.predict(X) == 1, model.predict_proba(X)[:, 1] > 0.5)
    factor = np.array([1e-6, 1.0, 1e6])  # neighbours are searched among standardised rows
    np.testing.assert_allclose(model.resample(X * factor, y)[0], resampled * factor, rtol=1e-6)


def test_rows_that_cannot_be_rebalanced_are_rejected(rows):
    X, _ = rows
    y = (np.arange(200) < 40).astype(int)
    apart = np.random.default_rng(0).normal(size=(200, 2)) + 100 * y[:, None]
    with pytest.raises(ValueError, match=r"adasyn cannot rebalance these rows: .*ADASYN is not suited"):
        light("adasyn").fit(apart, y)
    with pytest.raises(ValueError, match="adasyn cannot rebalance these rows: No samples will be generated"):
        light("adasyn").fit(X, (np.arange(200) < 105).astype(int))
    with pytest.raises(crcen.InvalidParameter, match="sampler"):
        own.ResampledClassifier("rose").fit(*rows)
    balanced = np.arange(len(X)) % 2
    assert light("smote").fit(X, balanced).predict(X).shape == balanced.shape


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    y = np.arange(240) % 8 == 0
    X, labels = rng.normal(size=(240, 2)) + 2.0 * y[:, None], np.where(y, "rare", "common")
    given = {"hidden": (8,), "max_epochs": 3, "max_pairs": 2000, "n_references": 5, "random_state": 0}
    return PairedClassifier(**given).fit(X, labels), X, labels


def test_pairs_are_distinct_and_common_ones_limited_to_mixed_ones(pairs):
    """30 rare and 210 common rows: 44,100 common pairs, 6,300 mixed ones of each order, 900 rare ones."""
    model, _, y = pairs
    assert model.pair_counts_ == {"00": 2000, "01": 2000, "10": 2000, "11": 900}
    drawn, is_rare = PairedClassifier(max_pairs=10**6), y == "rare"
    first, second, kind = drawn._pairs(is_rare, np.random.RandomState(0))
    assert drawn.pair_counts_ == {"00": 6300, "01": 6300, "10": 6300, "11": 900}
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == len(first)
    by_hand = np.char.add(is_rare[first].astype(int).astype(str), is_rare[second].astype(int).astype(str))
    np.testing.assert_array_equal(kind, by_hand)


def test_pair_decision_is_the_vote_of_the_references_and_probability_has_the_share_divided_out(pairs):
    """Among first rows of pairs 2,900 of 6,900 are rare, in the table 30 of 240."""
    model, X, y = pairs
    for row, label in zip(X[:6], model.predict(X[:6]), strict=True):
        p = model.model_.predict_proba(np.hstack([np.tile(row, (10, 1)), model.references_]))
        alone = sum(p[:, i] for i, name in enumerate(model.model_.classes_) if name.startswith("1"))
        assert label == ("rare" if (alone >= 0.5).mean() >= 0.5 else "common")
    assert (model.predict(X) == y).mean() > 0.9
    factor = (2900 / 4000) / (30 / 210)
    assert model.factor_ == pytest.approx(factor)
    _, mean = model._votes(X)
    p = model.predict_proba(X)[:, list(model.classes_).index("rare")]
    assert p / (1 - p) == pytest.approx(mean / (1 - mean) / factor)


VARIANTS = ("adac1", "adac2", "adac3")
EUS = {"n_estimators": 3, "population": 6, "evaluations": 20}


def drawn(n_pos, n, gap, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) < n_pos).astype(int)
    X = rng.normal(size=(n, columns))
    X[:, 0] += gap * y
    return X, y


FEW_ROWS, RARE = drawn(60, 300, 1.5, seed=3), drawn(20, 660, 1.5, columns=2)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("depth", [1, 2])
def test_equal_costs_are_adaboost(variant, depth):
    X, y = FEW_ROWS
    ours = AdaCClassifier(variant, crcen.CostRatio(1), n_estimators=12, max_depth=depth, random_state=0).fit(X, y)
    theirs = AdaBoostClassifier(DecisionTreeClassifier(max_depth=depth), n_estimators=12, random_state=0).fit(X, y)
    np.testing.assert_allclose(2 * ours.votes_, theirs.estimator_weights_, rtol=1e-9)
    score = theirs.decision_function(X) / 2 * ours.votes_.sum()  # theirs is scaled to −2 to 2
    np.testing.assert_allclose(ours.decision_function(X), score, atol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(3))
def test_vote_minimises_its_bound_on_the_next_weights(variant, seed):
    """Sun et al. minimise the sum of the next weights with e^(−αCu) replaced by its chord where C is inside."""
    rng = np.random.default_rng(seed)
    weights, costs = rng.dirichlet(np.ones(40)), np.where(rng.random(40) < 0.3, 1.0, 0.2)
    is_right = rng.random(40) < 0.7
    sign = np.where(is_right, 1.0, -1.0)
    outside = costs if variant != "adac1" else 1.0
    inside = costs if variant != "adac2" else 1.0

    def bound(vote):
        chord = (1 + inside * sign) / 2 * np.exp(-vote) + (1 - inside * sign) / 2 * np.exp(vote)
        return (outside * weights * chord).sum()

    vote, found = own.boosting_step(variant, weights, costs, is_right)
    best = minimize_scalar(bound, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
    assert vote == pytest.approx(best.x, abs=1e-6)
    following = outside * weights * np.exp(-vote * inside * sign)
    assert following.sum() <= bound(vote) + 1e-12
    np.testing.assert_allclose(found, following / following.sum(), rtol=1e-12)
    if variant == "adac2":  # as after AdaBoost, the last learner is no better than chance
        assert found[is_right].sum() == pytest.approx(0.5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_costs_give_more_alarms_and_restart_boosting_if_the_first_stump_never_alarms(variant):
    X, y = FEW_ROWS
    given = {"n_estimators": 10, "max_depth": 2, "random_state": 0}
    cheap, dear = (AdaCClassifier(variant, crcen.CostRatio(c), **given).fit(X, y) for c in (0.2, 5.0))
    if variant != "adac1":  # which may stop before its costs have an effect
        assert cheap.predict(X).sum() < dear.predict(X).sum()
    y = (np.arange(400) < 20).astype(int)
    X = np.random.default_rng(1).normal(size=(400, 1)) + y[:, None]
    assert DecisionTreeClassifier(max_depth=1).fit(X, y).predict(X).sum() == 0
    model = AdaCClassifier(variant, max_depth=1, n_estimators=3, random_state=0).fit(X, y)
    assert min(model.votes_) > 0


def test_boosting_ends_with_a_perfect_tree_and_rejects_uninformative_rows():
    y = np.arange(40) < 10
    model = AdaCClassifier("adac2", random_state=0).fit(y[:, None].astype(float), y)
    assert len(model.estimators_) == 1
    assert (model.predict(y[:, None].astype(float)) == y).all()
    with pytest.raises(crcen.InvalidInput, match="its first tree is useless at a cost ratio of 1"):
        AdaCClassifier("adac1", crcen.CostRatio(1)).fit(np.zeros((20, 1)), np.arange(20) % 2)
    with pytest.raises(crcen.InvalidInput, match="cannot boost a balanced draw of these rows"):
        BalanceCascadeClassifier().fit(np.zeros((20, 1)), np.arange(20) < 5)


def test_calibrated_control_decides_at_its_price_on_natural_probabilities():
    X, y = FEW_ROWS
    given = {"n_estimators": 10, "max_depth": 1, "random_state": 0}
    plain, dear = (own.CalibratedBoostingClassifier(crcen.CostRatio(c), **given).fit(X, y) for c in (1.0, 4.0))
    p = dear.predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, plain.predict_proba(X)[:, 1], rtol=1e-9)
    np.testing.assert_allclose(p, dear.calibrated_.predict_proba(X)[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(dear.predict(X) == 1, p > 1 / 5)
    np.testing.assert_array_equal(plain.predict(X) == 1, p > 1 / 2)
    assert p.mean() == pytest.approx(y.mean(), abs=0.03)
    swapped = own.CalibratedBoostingClassifier(crcen.CostRatio(4.0), **given).fit(X, 1 - y)
    np.testing.assert_allclose(swapped.predict_proba(X)[:, 0], p, rtol=1e-9)
    np.testing.assert_array_equal(swapped.predict(X), 1 - dear.predict(X))


def overlapping(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=n) > 2.0).astype(int)


def test_real_rusboost_is_the_definition():
    """Zhu et al. 2009, algorithm 4 with K = 2: h_k = log p_k − mean log p, w ← w·exp(−½·y·log p)."""
    (X, y), (new, _) = overlapping(), overlapping(200, 1)
    model = own.RealRUSBoostClassifier(12, random_state=3).fit(X, y)
    random = check_random_state(3)
    weights, votes = np.full(len(y), 1 / len(y)), np.zeros((len(new), 2))
    for _ in range(12):
        kept = random.choice(np.flatnonzero(y == 0), y.sum(), replace=False)
        seen = np.concatenate([np.flatnonzero(y == 1), kept])
        stump = DecisionTreeClassifier(max_depth=1, random_state=random.randint(2**31 - 1))
        stump.fit(X[seen], y[seen], sample_weight=weights[seen])
        log_p, log_new = (np.log(np.clip(stump.predict_proba(Z), np.finfo(float).eps, None)) for Z in (X, new))
        votes += log_new - log_new.mean(axis=1, keepdims=True)
        weights = weights * np.exp(-0.5 * (np.where(np.arange(2) == y[:, None], 1.0, -1.0) * log_p).sum(axis=1))
        weights /= weights.sum()
    np.testing.assert_allclose(model.decision_function(new), votes[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(model.predict(new), votes.argmax(axis=1))
    # It uses all stumps; today's RUSBoost ends with the first one that is worse than chance on all rows.
    (X, y), (new, labels) = overlapping(2000), overlapping(4000, 1)
    model = own.RealRUSBoostClassifier(random_state=0).fit(X, np.where(y == 1, "a", "b"))
    alarms = model.predict(new) == "a"
    assert len(model.estimators_) == 50
    assert alarms[labels == 0].mean() < 0.4 < 0.55 < alarms[labels == 1].mean()
    with pytest.raises(crcen.InvalidParameter, match="n_estimators"):
        own.RealRUSBoostClassifier(0).fit(X, y)


@pytest.mark.parametrize("expected", [[640, 320, 160, 80, 40, 20], [640, 20], [640, 113, 20], [30, 30, 30]])
def test_negatives_left_before_each_round(expected):
    """20 positives and 640 negatives: (1/32)^(1/5) is one half, and 640/√32 is 113.1; or 30 of each class."""
    X, y = RARE if expected[0] == 640 else drawn(30, 60, 0.0)
    model = BalanceCascadeClassifier(len(expected), n_estimators=2, max_depth=1, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.negatives_left_, expected)


def test_cascade_threshold_passes_its_share_and_the_vote_is_joint():
    X, y = RARE
    model = BalanceCascadeClassifier(3, n_estimators=30, random_state=0).fit(X, y)
    total = np.zeros(len(X))
    for number, (booster, threshold) in enumerate(zip(model.estimators_, model.thresholds_, strict=True)):
        votes = np.array([2.0 * tree.predict(X) - 1 for tree in booster.estimators_])
        score = booster.estimator_weights_[: len(votes)] / 2 @ votes
        if number == 0:
            negatives = score[y == 0]
            above, tied = (negatives > threshold + 1e-9).sum(), np.isclose(negatives, threshold).sum()
            assert above <= 113 <= above + tied
        total += score - threshold
    np.testing.assert_allclose(3 * model.decision_function(X), total, atol=1e-9)


# Two positives on the y axis. Each negative on the x axis is nearer to them than the next, and a machine that
# separates without error has the nearest one as its only negative support vector.
PLANE = np.array([[0, 1], [0, -1], [2, 0], [3, 0], [4, 0], [5, 0]], dtype=float)
IS_POS = np.array([True, True, False, False, False, False])


@pytest.mark.parametrize(("aggregation", "middle"), [("combine", 1.0), ("discard", 2.0)])
def test_final_machine_sees_positives_and_the_granules_of_its_aggregation(aggregation, middle):
    """Combined, the nearest negative at x = 2 counts; with older granules discarded, the third, at x = 4."""
    model = own.GranularSVMClassifier(aggregation, kernel="linear", C=1e6)
    assert [granule.tolist() for granule in model.granules(PLANE, IS_POS, 10)] == [[2], [3], [4], [5]]  # near to far
    machine = model._aggregated(PLANE, IS_POS, model.granules(PLANE, IS_POS, 3))
    above, on, below = machine.decision_function([[middle - 0.01, 0.0], [middle, 0.0], [middle + 0.01, 0.0]])
    assert above > 0 > below
    assert on == pytest.approx(0, abs=1e-3)
    X, y = RARE
    model = own.GranularSVMClassifier(aggregation, random_state=0).fit(X, y)
    together = np.concatenate(model.granules_)
    assert (len(set(together.tolist())), y[together].any()) == (len(together), False)
    taken = model.granules_ if aggregation == "combine" else model.granules_[-1:]
    assert model.machine_.shape_fit_[0] == y.sum() + sum(map(len, taken))


def fitness_by_loops(X, is_pos, kept):
    """The definition, row by row."""
    negatives = [i for i in range(12) if not is_pos[i]]
    stays = {i for i in range(12) if is_pos[i]} | {i for i, k in zip(negatives, kept, strict=True) if k}
    right = {True: 0, False: 0}
    for i in range(12):
        nearest = min(stays - {i}, key=lambda j: math.dist(X[i], X[j]))
        right[bool(is_pos[i])] += is_pos[nearest] == is_pos[i]
    g_mean = math.sqrt(right[True] / 3 * right[False] / 9)
    return g_mean - 0.2 * (abs(1 - 3 / sum(kept)) if any(kept) else 1)


def test_fitness_and_its_maximum_agree_with_brute_force():
    is_pos = np.arange(12) % 4 == 0
    X = np.random.default_rng(5).normal(size=(12, 2)) + is_pos[:, None]
    distances = np.array([[math.dist(a, b) for b in X] for a in X])
    np.fill_diagonal(distances, np.inf)
    every = {kept: fitness_by_loops(X, is_pos, kept) for kept in itertools.product([False, True], repeat=9)}
    for kept, expected in every.items():
        assert own.selection_fitness(distances, is_pos, np.array(kept)) == pytest.approx(expected)
    random = np.random.RandomState(0)
    sizes = {"population": 20, "evaluations": 1000}
    kept, found = own.evolve(lambda bits: every[tuple(bits.tolist())], 9, 3, **sizes, rng=random)
    assert (found, every[tuple(kept.tolist())]) == (pytest.approx(max(every.values())), found)
    for evaluations in (1, 7, 50, 400):  # is the budget
        seen, sizes = [], {"population": 20, "evaluations": evaluations}
        random = np.random.RandomState(0)
        own.evolve(lambda bits, seen=seen: seen.append(bits.sum()) or float(len(seen)), 400, 200, **sizes, rng=random)
        assert len(seen) <= evaluations
    assert np.mean(seen[-20:]) < 150  # bits that are set are dropped more often than they are set


def test_overlap_is_the_largest_q_statistic():
    a, b = np.array([1, 1, 0, 0, 1, 0], bool), np.array([1, 0, 0, 1, 1, 0], bool)
    assert [own.overlap(a, before) for before in ([], [a], [~a])] == [0, 1, -1]
    # Both 2 (rows 0, 4), none 2 (2, 5), one alone 1 and 1: (4 − 1)/(4 + 1).
    assert own.overlap(a, [b]) == own.overlap(a, [~a, b]) == pytest.approx(0.6)
    # Worse than any: nothing is kept.
    assert [own.overlap(np.zeros(6, bool), before) for before in ([a], [])] == [2, 0]


def test_votes_follow_the_pseudo_loss_and_rows_above_the_limit_are_drawn_with_a_warning():
    """AdaBoost.M2 by hand, from the trees alone."""
    X, y = drawn(12, 60, 1.5, columns=2)
    model = EUSBoostClassifier(**EUS, max_depth=1, random_state=0).fit(X, y)
    weights, score = np.full(60, 1 / 60), np.zeros(60)
    for tree, vote in zip(model.estimators_, model.votes_, strict=True):
        p = tree.predict_proba(X)[:, 1]
        right = np.where(y == 1, p, 1 - p)
        loss = (weights * (1 - right)).sum()
        assert 2 * vote == pytest.approx(np.log((1 - loss) / loss))
        weights = weights * (loss / (1 - loss)) ** right
        weights /= weights.sum()
        score += np.log((1 - loss) / loss) * (p - (1 - p)) / 2
    np.testing.assert_allclose(model.decision_function(X), score, atol=1e-9)
    with pytest.warns(UserWarning, match=r"60 rows and max_rows=30.* a random draw of 30"):
        model = EUSBoostClassifier(**EUS, max_rows=30, random_state=0).fit(X, y)
    assert (model.n_rows_seen_, {len(kept) for kept in model.choices_}) == (30, {30 - 12})
    # A first tree at chance stays alone.
    model = EUSBoostClassifier(**EUS, random_state=0).fit(np.zeros((20, 1)), np.arange(20) < 4)
    assert len(model.estimators_) == 1
    assert np.isfinite(model.predict_proba(np.zeros((1, 1)))).all()
