"""Every method of the comparison makes an estimator that scikit-learn knows how to use."""

import csv
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import crcen
from crcen import METHODS, Schedule
from crcen.exceptions import MissingExtra
from crcen.paper.methods import make_method
from crcen.paper.networks import MovedThresholdClassifier, ResampledClassifier
from crcen.theory.decision import weighted_probability
from grouped_settings import grouped
from method_parameters import LIGHT, NETWORK, light
from papers_training import CRCENClassifier

# The methods are those of the paper: single networks on standardised columns.
PAPER = {"encoding": "standard", "n_members": 1, "l2": 1e-4}
OURS = [name for name, method in METHODS.items() if method.training is not None]
# imbalanced-learn and scikit-learn warn about each other's changes; that is theirs to settle.
quiet = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def rows():
    """Classes that one column tells apart well: RUSBoost gives up where a stump is worse than random."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(200) < 30).astype(int)
    X = rng.normal(size=(200, 3))
    X[:, 0] += 2 * y
    return X * [0.5, 2.0, 30.0] + [-1.0, 5.0, 0.0], y


def test_the_registry_is_the_papers_eight_and_ours():
    assert [name for name, method in METHODS.items() if method.in_paper] == [
        "mlp",
        "csmlp",
        "crcen",
        "adasyn",
        "smote",
        "rusboost",
        "easyensemble",
        "balanced_rf",
    ]
    others = [name for name, method in METHODS.items() if method.in_table3 and not method.in_paper]
    assert others == ["mlp_threshold", "crcen_ensemble"]
    assert not any(method.in_paper for method in METHODS.values() if not method.in_table3)
    assert len({method.label for method in METHODS.values()}) == len(METHODS)
    assert all(method.summary and method.source for method in METHODS.values())
    assert set(METHODS) - set(OURS) == set(LIGHT)


@quiet
@pytest.mark.parametrize("name", METHODS)
def test_every_method_fits_and_predicts(rows, name):
    X, y = rows
    model = light(name)
    assert is_classifier(model)
    assert model.fit(X, y) is model
    np.testing.assert_array_equal(model.classes_, [0, 1])
    assert model.n_features_in_ == X.shape[1]
    predicted, p = model.predict(X), model.predict_proba(X)
    assert predicted.shape == (len(X),)
    assert set(predicted) <= {0, 1}
    assert p.shape == (len(X), 2)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert ((p >= 0) & (p <= 1)).all()
    # It has learnt something: the rarer class gets more than the other.
    assert p[y == 1, 1].mean() > p[y == 0, 1].mean()


@quiet
@pytest.mark.parametrize("name", METHODS)
def test_parameters_and_clones(rows, name):
    X, y = rows
    model = light(name)
    params = model.get_params()
    assert params["random_state"] == 0
    copy = clone(model)
    assert type(copy) is type(model)
    assert repr(copy.get_params()) == repr(params)
    copy.set_params(random_state=1)
    assert model.random_state == 0
    np.testing.assert_array_equal(clone(model).fit(X, y).predict_proba(X), model.fit(X, y).predict_proba(X))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@quiet
@pytest.mark.parametrize("names", [("ok", "fraud"), ("no", "yes")])
@pytest.mark.parametrize("name", METHODS)
def test_labels_may_be_text(rows, name, names):
    X, y = rows
    labels = np.array(names)[y]
    model, plain = light(name).fit(X, labels), light(name).fit(X, y)
    np.testing.assert_array_equal(model.classes_, np.sort(names))
    assert set(model.predict(X)) <= set(names)
    if name in OURS:  # the same network, with the rarer class positive whatever it is called
        np.testing.assert_array_equal(model.predict(X), np.array(names)[plain.predict(X)])
        column = list(model.classes_).index(names[1])
        np.testing.assert_allclose(model.predict_proba(X)[:, column], plain.predict_proba(X)[:, 1], atol=1e-6)
        np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X) == model.classes_[1])


@pytest.mark.parametrize("name", ["nothing", "CRCEN", ""])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(crcen.InvalidParameter, match="choose one of mlp, csmlp, crcen"):
        make_method(name)


def test_parameters_reach_the_estimator():
    model = make_method("crcen_ensemble", l2=0.5)
    assert (model.n_members, model.l2, model.weighting) == (8, 0.5, "balanced")
    assert make_method("crcen_ensemble", n_members=3).n_members == 3
    assert make_method("mlp").weighting is None
    assert make_method("adasyn").sampler == "adasyn"


def test_the_price_of_each_network(rows):
    """What the registry says for the search is what the estimators do."""
    X, y = rows
    for name in (name for name in OURS if METHODS[name].training is not None):
        training, model = METHODS[name].training, light(name)
        assert model.get_params().get("sampler") == training.sampler
        if training.sampler is None:
            weighting = model.fit(X, y).weighting_

            assert weighting.lam == pytest.approx(crcen.resolve(training.price, y.sum(), (y == 0).sum()).lam)
            assert model.recipe().loss == training.loss


def test_crcen_is_the_classifier_itself(rows):
    X, y = rows
    direct = CRCENClassifier("balanced", **grouped(random_state=0, **PAPER, **NETWORK)).fit(X, y)
    np.testing.assert_array_equal(light("crcen").fit(X, y).weighted_proba(X), direct.weighted_proba(X))


# -- the moved threshold ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_moved_threshold_decides_at_its_price_on_the_plain_networks_probabilities(rows, n_members, seed):
    X, y = rows
    given = {"n_members": n_members, "random_state": seed}
    moved, plain = (light(name, **given).fit(X, y) for name in ("mlp_threshold", "mlp"))
    np.testing.assert_allclose(moved.predict_proba(X), plain.predict_proba(X), rtol=1e-12)
    lam = moved.weighting_.lam
    assert lam == pytest.approx((y == 0).mean())  # balanced
    p = moved.predict_proba(X)[:, 1]
    assert np.abs(p - (1 - lam)).min() > 1e-9
    np.testing.assert_array_equal(moved.predict(X) == 1, p > 1 - lam)
    assert moved.predict(X).sum() > plain.predict(X).sum()
    # The weighted probability is what the posterior becomes at this price.
    q = weighted_probability(p, moved.weighting_)
    np.testing.assert_allclose(moved.weighted_proba(X)[:, 1], q, rtol=1e-9)
    assert moved.key_equation_.residual <= 1e-12


def test_a_moved_threshold_fits_again_from_scratch(rows):
    X, y = rows
    model = light("mlp_threshold").fit(X, y)
    before = model.decision_function(X)
    np.testing.assert_array_equal(model.fit(X, y).decision_function(X), before)


def test_a_moved_threshold_takes_any_price(rows):
    X, y = rows
    cheap, dear = (
        MovedThresholdClassifier(crcen.Budget(budget), **grouped(random_state=0, **NETWORK)).fit(X, y)
        for budget in (2, 20)
    )
    np.testing.assert_allclose(cheap.predict_proba(X), dear.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(dear.predict(X) == 1, dear.predict_proba(X)[:, 1] > 1 / 21)
    assert cheap.predict(X).sum() < dear.predict(X).sum()


@parametrize_with_checks(
    [MovedThresholdClassifier(hidden=(4,), max_epochs=30, schedule=Schedule(batch_size=32, learning_rate=0.05))],
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{form}_data": "copies and weights fill other mini-batches of Adam"
        for form in ("dense", "sparse")
    },
)
def test_scikit_learn_contract_of_the_moved_threshold(estimator, check):
    check(estimator)


# -- resampled rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["smote", "adasyn"])
def test_resampled_rows_are_one_to_one_and_begin_with_the_given(rows, sampler):
    X, y = rows
    resampled, labels = ResampledClassifier(sampler, random_state=0).resample(X, y)
    np.testing.assert_allclose(resampled[: len(X)], X, rtol=1e-9, atol=1e-9)  # in the units of X
    np.testing.assert_array_equal(labels[: len(X)], y)
    share = labels.mean()
    assert share == 0.5 if sampler == "smote" else share == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("sampler", ["smote", "adasyn"])
def test_the_network_is_the_plain_one_on_the_resampled_rows(rows, sampler):
    X, y = rows
    model = ResampledClassifier(sampler, **grouped(random_state=0, **NETWORK)).fit(X, y)
    resampled, labels = model.resample(X, y)
    plain = CRCENClassifier(None, **grouped(pos_label=1, random_state=0, **PAPER, **NETWORK)).fit(resampled, labels)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert model.network_.weighting_.n_pos == labels.sum()
    np.testing.assert_array_equal(model.predict(X) == 1, model.predict_proba(X)[:, 1] > 0.5)


def test_neighbours_are_looked_for_among_standardised_rows(rows):
    X, y = rows
    factor = np.array([1e-6, 1.0, 1e6])
    one, _ = ResampledClassifier(random_state=0).resample(X, y)
    other, _ = ResampledClassifier(random_state=0).resample(X * factor, y)
    np.testing.assert_allclose(other, one * factor, rtol=1e-6)


def test_adasyn_with_nothing_to_generate_says_so(rows):
    y = (np.arange(200) < 40).astype(int)
    X = np.random.default_rng(0).normal(size=(200, 2)) + 100 * y[:, None]
    with pytest.raises(ValueError, match=r"adasyn cannot rebalance these rows: .*ADASYN is not suited"):
        light("adasyn").fit(X, y)


def test_already_balanced_rows(rows):
    X, _ = rows
    y = np.arange(len(X)) % 2
    assert light("smote").fit(X, y).predict(X).shape == y.shape
    with pytest.raises(ValueError, match="adasyn cannot rebalance these rows: No samples will be generated"):
        light("adasyn").fit(X, (np.arange(len(X)) < 105).astype(int))


def test_an_unknown_sampler_is_refused(rows):
    with pytest.raises(crcen.InvalidParameter, match="sampler"):
        ResampledClassifier("rose").fit(*rows)


@pytest.mark.parametrize("bad", ["nan", "one class"])
def test_bad_rows_get_the_sentence_of_the_other_estimators(rows, bad):
    X, y = rows[0].copy(), rows[1].copy()
    if bad == "nan":
        X[3, 1] = np.nan
    else:
        y[:] = 0
    with pytest.raises(crcen.InvalidInput) as resampled:
        light("smote").fit(X, y)
    with pytest.raises(crcen.InvalidInput) as plain:
        light("mlp").fit(X, y)
    expected = (
        str(plain.value).replace("CRCENClassifier", "").replace("fit with inputs=Inputs(missing='indicator'), or ", "")
    )
    assert str(resampled.value).replace("ResampledClassifier", "") == expected


@parametrize_with_checks(
    [ResampledClassifier(hidden=(4,), max_epochs=30, schedule=Schedule(batch_size=32, learning_rate=0.05))],
    expected_failed_checks=lambda estimator: dict.fromkeys(
        ("check_n_features_in_after_fitting", "check_fit2d_1feature"),
        "it has five rows of the rarer class or fewer, and SMOTE looks for five neighbours of a row",
    ),
)
def test_scikit_learn_contract_of_resampled_rows(estimator, check):
    check(estimator)


# -- what is not installed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["adasyn", "smote", "rusboost", "easyensemble", "balanced_rf", "balanced_bagging"])
def test_a_missing_package_names_its_extra(rows, monkeypatch, name):
    for module in [module for module in sys.modules if module.split(".")[0] == "imblearn"]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "imblearn", None)
    with pytest.raises(MissingExtra, match=r"imblearn is not installed.*'crcen\[baselines\]'"):
        light(name).fit(*rows)


def test_our_own_methods_need_no_extra(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "imblearn", None)
    imbalanced_learns = {"adasyn", "smote", "rusboost", "easyensemble", "balanced_rf", "balanced_bagging"}
    for name in set(METHODS) - imbalanced_learns:
        light(name).fit(*rows)


def test_a_budget_states_the_defaults_that_bound_it():
    bounded = {name: method for name, method in METHODS.items() if method.budget}
    assert {"eusboost", "s2s", "lmle"} <= set(bounded)
    for name, method in bounded.items():
        stated = {int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", method.budget)}
        clusters = {10} if name == "lmle" else set()  # seen in the test of its clusters
        assert stated - clusters <= {value for value in method.make().get_params().values() if isinstance(value, int)}


def test_the_page_of_methods_names_them_all():
    page = (Path(__file__).parents[3] / "docs" / "methods.md").read_text(encoding="utf-8")
    first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    table = first_cells[: next(i for i, cell in enumerate(first_cells) if cell in first_cells[:i])]
    named = [name for cell in table for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(METHODS)


def test_the_page_of_methods_has_the_ranks_and_changes_of_its_source():
    root = Path(__file__).parents[3]
    with (root / "results/extended/table3/table3_ranks.csv").open(encoding="utf-8") as file:
        ranks = {row["method"]: row["ours"] for row in csv.DictReader(file)}
    page = (root / "docs" / "methods.md").read_text(encoding="utf-8")
    seen = 0
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 7 and cells[1].startswith("`"):
            names = re.findall(r"`(\w+)`", cells[1])
            assert cells[5].split(", ") == [ranks[METHODS[name].label] for name in names]
            for name in names:
                assert all(word in cells[3] for word in METHODS[name].changes.replace("loss vote", "loss").split())
                assert ("alibrate" in cells[4] or "factor" in cells[4]) or METHODS[name].probabilities == "natural"
            seen += len(names)
    assert seen == len(METHODS)
