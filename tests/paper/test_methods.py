"""Every compared method is a scikit-learn classifier and does what the registry says."""

import csv
import pickle
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import crcen
from crcen import METHODS, InvalidInput, PosteriorCorrection, Schedule
from crcen.exceptions import MissingExtra
from crcen.paper.classical import (
    AdaCClassifier,
    BalanceCascadeClassifier,
    CalibratedBoostingClassifier,
    EUSBoostClassifier,
    GranularSVMClassifier,
)
from crcen.paper.methods import make_method
from crcen.paper.networks import CSMLPClassifier, MovedThresholdClassifier, PairedClassifier, ResampledClassifier
from crcen.theory.decision import weighted_probability
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
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(200) < 30).astype(int)
    X = rng.normal(size=(200, 3))
    X[:, 0] += 2 * y
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
    assert len({method.label for method in METHODS.values()}) == len(METHODS)
    assert set(METHODS) - set(OURS) == set(LIGHT)
    for method in METHODS.values():
        assert method.summary
        assert method.source
        assert set(method.changes.split()) <= {"rows", "loss", "margin", "threshold", "vote"}
        assert method.probabilities in ("natural", "factor", "calibrate")
        assert method.training is None or method.tuning is None


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
    with (ROOT / "results/extended/table3/table3_ranks.csv").open(encoding="utf-8") as file:
        ranks = {row["method"]: row["ours"] for row in csv.DictReader(file)}
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
    assert predicted.shape == (len(X),)
    assert set(predicted) <= {0, 1}
    assert p.shape == (len(X), 2)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert ((p >= 0) & (p <= 1)).all()
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
        (X, X["rate"], "must hold labels of classes"),
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
    ResampledClassifier: dict.fromkeys(("check_n_features_in_after_fitting", "check_fit2d_1feature"), _FEW),
    MovedThresholdClassifier: dict.fromkeys(_FORMS, _BATCHES),
}


_CHECKED = [
    *(MovedThresholdClassifier(**_SCHEDULE), ResampledClassifier(**_SCHEDULE), AdaCClassifier(n_estimators=3)),
    *(CalibratedBoostingClassifier(n_estimators=3, max_depth=1), BalanceCascadeClassifier(2, n_estimators=3)),
    *(EUSBoostClassifier(3, population=6, evaluations=20), GranularSVMClassifier(max_granules=2)),
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
            assert model.fit(X, y).weighting_.lam == pytest.approx(price.lam)
            assert model.recipe().loss == training.loss
    direct = CRCENClassifier("balanced", random_state=0, **PAPER, **NETWORK).fit(X, y)
    np.testing.assert_array_equal(light("crcen").fit(X, y).weighted_proba(X), direct.weighted_proba(X))
    csmlp = CSMLPClassifier("balanced", **grouped(random_state=0, **NETWORK)).fit(X, y)
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


@pytest.mark.parametrize(
    "name", ["logit_adjustment", "class_balanced", "s2s", "mlp_threshold", "sosr", "focal", "ldam", "msfe"]
)
@quiet
def test_stated_price_is_that_of_the_methods_own_decisions(frame, name):
    X, y = frame
    model = PosteriorCorrection(light(name)).fit(X.to_numpy(), y)
    own = model.estimator_
    assert own.pos_label_ == "bad"
    assert model.price_.cost_ratio == pytest.approx(own.weighting_.cost_ratio)
    if name != "sosr":  # it has no probabilities to decide by
        same = (model.predict(X.to_numpy()) == own.predict(X.to_numpy())).mean()
        assert same > 0.8 if name == "s2s" else same == 1.0  # a vote and a mean may differ
    if name in ("logit_adjustment", "sosr"):
        assert own.weighting_.cost_ratio == pytest.approx(17 / 3)


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
    before = moved.decision_function(X)
    np.testing.assert_array_equal(moved.fit(X, y).decision_function(X), before)
    dear = clone(moved).set_params(weighting=crcen.Budget(20)).fit(X, y)
    np.testing.assert_allclose(dear.predict_proba(X), moved.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(dear.predict(X) == 1, p > 1 / 21)


@pytest.mark.parametrize("sampler", ["smote", "adasyn"])
def test_plain_network_is_trained_on_balanced_rows(rows, sampler):
    X, y = rows
    model = ResampledClassifier(sampler, **grouped(random_state=0, **NETWORK)).fit(X, y)
    resampled, labels = model.resample(X, y)
    np.testing.assert_allclose(resampled[: len(X)], X, rtol=1e-9, atol=1e-9)  # in the units of X
    np.testing.assert_array_equal(labels[: len(X)], y)
    assert labels.mean() == pytest.approx(0.5, abs=0 if sampler == "smote" else 0.05)
    plain = CRCENClassifier(None, pos_label=1, random_state=0, **PAPER, **NETWORK).fit(resampled, labels)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
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
        ResampledClassifier("rose").fit(*rows)
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


def test_budget_states_the_defaults_that_limit_a_method():
    bounded = {name: method for name, method in METHODS.items() if method.budget}
    assert set(bounded) == {"eusboost", "s2s", "lmle"}
    for name, method in bounded.items():
        stated = {int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", method.budget)}
        clusters = {10} if name == "lmle" else set()
        assert stated - clusters <= {value for value in method.make().get_params().values() if isinstance(value, int)}
