"""The committee: its answers from its parts, the price on new rows, gaps, graphs, refits, and what it refuses."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import crcen
from crcen import Budget, CommitteeClassifier, CRCENClassifierCV, InvalidInput, InvalidParameter, export_onnx
from crcen.models.members.tree_arrays import TreeEnsemble
from crcen.theory.price import sigmoid
from example_rows import interaction_rows
from grouped_settings import grouped


def fitted(rows, weighting="balanced", cv=2, **how):
    return CommitteeClassifier(weighting, random_state=0, cv=cv, **how).fit(*rows)


def test_its_logit_is_the_weighted_sum_of_its_members(with_gaps):
    new, _ = interaction_rows(50, seed=9)
    ensemble, logits = with_gaps.ensemble_, with_gaps.shift_ + with_gaps.probability_map_[1]
    for member, weight in zip(ensemble.members, ensemble.member_weights, strict=True):
        logits = logits + weight * member.logits(new)[:, 0]
    assert with_gaps.decision_function(new) == pytest.approx(logits, abs=1e-12)
    p = with_gaps.predict_proba(new)
    assert np.log(p[:, 1] / p[:, 0]) == pytest.approx(logits - np.log(8), abs=1e-9)
    assert ((p[:, 1] > 1 / 9) == (with_gaps.predict(new) == 1)).all()
    assert [line.name for line in with_gaps.leaderboard_] == ["networks", "trees", "catboost", "forest", "committee"]
    assert with_gaps.member_weights_.shape == (4,)


def test_the_price_is_kept_on_rows_that_were_held_out(rows, with_gaps):
    """On out-of-fold rows by the solve, on new rows within the noise of their number."""
    oof = sigmoid(with_gaps.oof_decision_function_)
    assert crcen.key_equation(rows[1], oof, with_gaps.weighting_).residual < 1e-12
    new, labels = interaction_rows(20_000, seed=5)
    new[::3, 0] = np.nan
    equation = crcen.key_equation(labels, with_gaps.weighted_proba(new)[:, 1], with_gaps.weighting_)
    assert abs(np.log(equation.lhs / equation.rhs)) < 0.35
    assert (with_gaps.key_equation_.rows, with_gaps.oof_key_equation_.rows) == ("out-of-fold rows",) * 2
    assert with_gaps.key_equation_.residual < 1e-12 < with_gaps.oof_key_equation_.residual
    assert np.isnan(with_gaps.oof_key_equation_.z)  # errors of folds cancel, so there is no test


def test_it_is_at_least_as_good_as_its_parts_on_new_rows(rows):
    new, labels = interaction_rows(20_000, seed=6)
    both, networks, trees = (
        log_loss(labels, fitted(rows, Budget(8), cv=3, members=members).predict_proba(new)[:, 1])
        for members in (("networks", "trees"), "networks", "trees")
    )
    assert both < max(networks, trees)
    assert both < 1.03 * min(networks, trees)


def test_gaps_are_learned_from_and_labels_may_be_text():
    X, y = interaction_rows(600)
    X[::3, 0] = np.nan
    committee = fitted((X, np.where(y == 1, "bad", "ok")), Budget(8), members=("networks", "trees", "forest"))
    assert (committee.classes_.tolist(), committee.pos_label_) == (["bad", "ok"], "bad")
    decisions = committee.predict(X)
    assert set(decisions) == {"bad", "ok"}
    assert ((committee.decision_function(X) > 0) == (decisions == "ok")).all()
    with pytest.raises(InvalidInput, match="infinity"):
        committee.predict(np.full((1, 5), np.inf))


def test_the_seed_decides_and_threads_do_not(rows):
    one, same = (fitted(rows, members=("trees", "forest"), n_jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(one.oof_decision_function_, same.oof_decision_function_)
    assert np.array_equal(one.decision_function(rows[0]), same.decision_function(rows[0]))


def test_another_classifier_may_sit_in_it_but_not_in_files_and_graphs(rows, tmp_path):
    committee = fitted(rows, members=("trees", LogisticRegression()))
    assert [line.name for line in committee.leaderboard_] == ["trees", "LogisticRegression", "committee"]
    assert committee.predict(rows[0]).shape == (900,)
    with pytest.raises(InvalidParameter, match="LogisticRegression cannot be saved"):
        committee.ensemble_.members[-1].arrays()
    with pytest.raises(InvalidParameter, match="a committee with a LogisticRegression cannot be saved"):
        crcen.save(committee, tmp_path / "m.crcen")
    with pytest.raises(InvalidInput, match="a committee with a LogisticRegression has no ONNX form"):
        export_onnx(committee, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"members": ()}, "one or more"),
        ({"members": ("woods",)}, "must be of networks, trees, random_trees, catboost, forest or"),
        ({"effort": "huge"}, "effort of CommitteeClassifier must be"),
        ({"members": ("trees", "trees")}, "each of another name"),
        ({"members": (3,)}, "predict_proba"),
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": "a minute"}, "time_limit"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_what_means_nothing_is_refused(rows, how, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        fitted(rows, **how)


def test_three_classes_are_decided_at_their_weights_and_balanced_out_of_fold():
    X, y = interaction_rows(600, n_classes=3)
    labels = np.array(["low", "middle", "high"])[y]
    weights = {"low": 1.0, "middle": 3.0, "high": 10.0}
    committee = fitted((X, labels), weights, members=("trees", LogisticRegression(max_iter=2000)))
    p = committee.predict_proba(X)
    assert committee.classes_.tolist() == ["high", "low", "middle"]
    w = np.array([10.0, 1.0, 3.0])
    np.testing.assert_array_equal(committee.predict(X), committee.classes_[(w * p).argmax(axis=1)])
    assert committee.key_equation_.residual <= 1e-12
    assert "out-of-fold" in committee.key_equation_.rows
    assert committee.oof_decision_function_.shape == (600, 3)
    assert log_loss(labels, committee.oof_proba_) < 0.9


def test_costs_of_actions_are_decided_by_expected_cost(tmp_path):
    X, y = interaction_rows(400, n_classes=3)
    costs = crcen.CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["review"])
    model = fitted((X, y), costs, members=("trees", "forest"))
    assert set(map(str, model.predict(X))) <= {"0", "1", "2", "review"}
    again = crcen.load(crcen.save(model, tmp_path / "model.crcen"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_quick_fits_one_setting_of_one_network(rows):
    committee = fitted(rows, effort="quick")
    assert [line.name for line in committee.leaderboard_] == ["networks", "committee"]
    assert len(committee.leaderboard_[0].settings) == 1


def test_names_of_columns_are_kept_and_a_failed_fit_leaves_what_was_there(rows):
    X, y = rows
    frame = pd.DataFrame(X, columns=list("abcde"))
    committee = fitted((frame, y), members=("trees",))
    assert committee.feature_names_in_.tolist() == list("abcde")
    by_numbers = clone(committee).fit(X, y)
    np.testing.assert_array_equal(committee.predict_proba(frame), by_numbers.predict_proba(X))
    with pytest.raises(ValueError, match="feature names should match"):
        committee.predict(frame[list("edcba")])
    with pytest.raises(InvalidInput):
        by_numbers.fit(np.full((10, 5), np.inf), np.arange(10) % 2)
    np.testing.assert_array_equal(committee.predict_proba(frame), by_numbers.predict_proba(X))


# -- ONNX: double precision, rows at thresholds, gaps ------------------------------------------------------------------


def assert_graph_answers(model, X, folder):
    path = export_onnx(model, folder / "m.onnx").path
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    probabilities, decision = session.run(["probabilities", "decision"], {"X": X})
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-12)
    assert decision.tolist() == model.predict(X).tolist()


def at_thresholds(model, n=400):
    """Rows of which many cells are exactly a threshold of a tree, or its neighbour in double precision."""
    X, _ = interaction_rows(n, seed=3)
    rng = np.random.default_rng(4)
    for trees in model.ensemble_.members:
        if isinstance(trees, TreeEnsemble):
            for column in range(X.shape[1]):
                known = trees.threshold[(trees.feature == column) & np.isfinite(trees.threshold)]
                if len(known):
                    cells = rng.choice(known, n)
                    moved = np.where(rng.random(n) < 0.5, cells, np.nextafter(cells, rng.choice([-np.inf, np.inf], n)))
                    X[:, column] = np.where(rng.random(n) < 0.7, moved, X[:, column])
    return X


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("members", [("networks", "trees"), ("catboost", "forest")])
def test_graph_answers_equal_the_models_with_missing_values(members, n_classes, tmp_path):
    X, y = interaction_rows(n_classes=n_classes)
    X[::3, 0] = np.nan
    model = fitted((X, y), members=members)
    new = at_thresholds(model)
    new[np.random.default_rng(5).random(new.shape) < 0.1] = np.nan
    assert_graph_answers(model, new, tmp_path)


def test_graphs_of_trees_alone_and_of_the_best_few_settings_of_networks(rows, tmp_path):
    model = fitted(rows, Budget(5), members="trees")
    X = at_thresholds(model)
    assert_graph_answers(model, X, tmp_path)
    # The rows would tell: rounded to single precision, some fall on the other side.
    single = model.predict_proba(X.astype(np.float32).astype(np.float64))
    assert np.abs(single - model.predict_proba(X)).max() > 1e-3
    how = {"hidden": [(4,), (3, 2)], "l2": 1e-2, "max_epochs": 3, "cv": 2, "n_members": 2, "random_state": 0}
    model = CRCENClassifierCV(Budget(5), **grouped(n_settings=3, **how)).fit(*rows)
    assert len(model.ensemble_.members) == 3
    assert_graph_answers(model, X[:200], tmp_path)


# -- trained again on other rows without the search, and the error that is measured by it ------------------------------


@pytest.fixture(scope="module")
def patients():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 3))
    return X, np.where(rng.random(400) < sigmoid(-1.5 + 1.5 * X[:, 0]), "ill", "well")


@pytest.fixture(scope="module")
def refittable(patients):
    return fitted(patients, Budget(5), members=("networks", "trees", LogisticRegression()), n_jobs=1)


def test_a_refit_has_the_price_of_the_committee_and_the_answers_of_its_rows(refittable, patients):
    X, y = patients
    # As many networks of each setting as the fit trains: only the order of sums in their stacks may differ.
    again = refittable.refit_on(X, y)
    assert again is not refittable
    np.testing.assert_allclose(again.predict_proba(X), refittable.predict_proba(X), atol=2e-3)
    half = refittable.refit_on(X[:200], y[:200], np.ones(200))
    assert half.weighting_ == refittable.weighting_
    assert np.abs(half.predict_proba(X) - refittable.predict_proba(X)).max() > 0.01
    swapped = refittable.refit_on(X[:200], np.where(y[:200] == "ill", "well", "ill"))
    assert np.corrcoef(swapped.predict_proba(X)[:, 0], refittable.predict_proba(X)[:, 0])[0, 1] < 0


def test_its_error_is_near_that_of_a_logistic_regression(refittable, patients):
    X, y = patients
    own = crcen.training_error(refittable, X, y, n_fits=4).log_odds
    plain = crcen.training_error(LogisticRegression().fit(X, y), X, y, weighting=crcen.CostRatio(5), n_fits=4).log_odds
    assert 0.5 * plain < own < 3 * plain


def test_a_file_keeps_what_a_refit_needs(patients, tmp_path):
    X, y = patients
    model = fitted(patients, members="trees", n_jobs=1)
    loaded = crcen.load(crcen.save(model, tmp_path / "m.crcen"))
    one, other = (committee.refit_on(X[:200], y[:200]).predict_proba(X) for committee in (loaded, model))
    np.testing.assert_array_equal(one, other)


def test_a_fit_of_a_table_measures_its_error(patients, tmp_path):
    X, y = patients
    pd.DataFrame(X, columns=list("abc")).assign(state=y).to_csv(tmp_path / "t.csv", index=False)
    fit = crcen.fit_table(tmp_path / "t.csv", target="state", positive="ill", learner="trees", n_refits=3)
    assert fit.training_error is fit.model.training_error_
    assert fit.training_error.degrees == 2
    assert not isinstance(fit.model.estimator_, CRCENClassifierCV)


def test_several_classes_are_refitted_alike():
    X, y = interaction_rows(300, n_classes=3)
    model = fitted((X, y), n_jobs=1, time_limit=5.0)
    again = model.refit_on(X[:150], y[:150])
    assert again.predict_proba(X).shape == (300, 3)
    assert 0.005 < np.abs(again.predict_proba(X) - model.predict_proba(X)).max() < 0.9
    np.testing.assert_array_equal(again.weighting_.weights, model.weighting_.weights)
