"""The committee: its answers from its parts, weights, the price on new rows, gaps, graphs, refits, files and tables."""

import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from typer.testing import CliRunner

import crcen
from crcen import Budget, CommitteeClassifier, CRCENClassifierCV, InvalidInput, InvalidParameter, export_onnx
from crcen.cli.app import app
from crcen.files.registry import InvalidState, check_state, state_of
from crcen.models import committee
from crcen.models.committee import RIDGES, cap_lone_rows, choose_ridge, cross_fitted_logits, fit_stacking
from crcen.models.members.lightgbm_trees import TreeSetting
from crcen.models.members.member import MemberTask
from crcen.models.members.registry import MEMBERS
from crcen.models.members.tree_arrays import TreeEnsemble
from crcen.theory.price import sigmoid
from example_rows import interaction_rows
from grouped_settings import grouped
from processes import run_python


@pytest.fixture(scope="module", autouse=True)
def small_searches():
    """Two tree settings and two networks, so that a test takes seconds."""
    members, search, few = "crcen.models.members", CRCENClassifierCV, {"hidden": (8,), "l2": (1e-3, 1e-2)}
    settings = TreeSetting(8, 20, 1.0, 1.0), TreeSetting(4, 10, 1.0, 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{members}.lightgbm_trees.LightGBMTrees.settings", settings)
        patch.setattr(f"{members}.catboost_trees._TREES", (40, 40))
        patch.setattr(f"{members}.networks.CRCENClassifierCV", lambda weighting, **how: search(weighting, **few, **how))
        yield


@pytest.fixture(scope="module")
def rows():
    return interaction_rows()


@pytest.fixture(scope="module")
def with_gaps(small_searches):
    """A committee fitted on rows with missing values."""
    X, y = interaction_rows()
    X[::3, 0] = np.nan
    return fitted((X, y), Budget(8), cv=3)


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


def test_it_is_as_good_as_its_best_part_on_new_rows(rows):
    new, labels = interaction_rows(20_000, seed=6)
    both, *parts = (
        log_loss(labels, fitted(rows, Budget(8), cv=3, members=members).predict_proba(new)[:, 1])
        for members in (("networks", "trees"), "networks", "trees")
    )
    assert both < min(max(parts), 1.03 * min(parts))
    with pytest.raises(NotFittedError):
        CommitteeClassifier().refit_on(*rows)


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


@pytest.mark.parametrize("n_classes", [2, 3])
def test_networks_are_searched_beside_the_others_with_the_same_result(n_classes, monkeypatch):
    rows = interaction_rows(600, n_classes=n_classes)
    members = ["networks", "trees", "forest"]
    one, two = (fitted(rows, members=members, n_jobs=jobs) for jobs in (1, 2))
    assert (one.decision_function(rows[0]) == two.decision_function(rows[0])).all()
    assert (one.oof_proba_ == two.oof_proba_).all()
    monkeypatch.setattr("crcen.models.members.lightgbm_trees._data", None)  # networks must not wait for failed trees
    with pytest.warns(UserWarning, match="trees failed and was left out"):
        assert fitted(rows, members=["networks", "trees"], n_jobs=2).leaderboard_[0].name == "networks"


def test_another_classifier_may_sit_in_it_but_not_in_files_and_graphs(rows, tmp_path):
    committee = fitted(rows, members=("trees", LogisticRegression()))
    assert [line.name for line in committee.leaderboard_] == ["trees", "LogisticRegression", "committee"]
    assert committee.predict(rows[0]).shape == (900,)
    with pytest.raises(InvalidParameter, match="a committee with a LogisticRegression cannot be saved"):
        crcen.save(committee, tmp_path / "m.crcen")
    with pytest.raises(InvalidInput, match="a committee with a LogisticRegression cannot be exported to ONNX"):
        export_onnx(committee, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"members": ()}, "one or more"),
        ({"members": ("woods",)}, "must be of networks, trees, random_trees, catboost, forest or"),
        ({"effort": "huge"}, "effort of CommitteeClassifier must be"),
        ({"members": ("trees", "trees")}, "with different names"),
        ({"members": (3,)}, "predict_proba"),
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": "a minute"}, "time_limit"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"members": ("trees", "networks"), "device": "abacus"}, "device must be 'auto', 'cpu' or 'cuda'"),
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
def refittable(small_searches, patients):
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


def test_refits_copy_a_random_state_that_threads_would_share(patients):
    X, y = patients
    model = CommitteeClassifier(Budget(5), members="forest", random_state=np.random.RandomState(0)).fit(X, y)
    first, other = (model.refit_on(X[:200], y[:200]).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, other)


def test_a_fit_of_a_table_measures_its_error_and_a_file_keeps_what_a_refit_needs(patients, tmp_path):
    X, y = patients
    pd.DataFrame(X, columns=list("abc")).assign(state=y).to_csv(tmp_path / "t.csv", index=False)
    how = {"target": "state", "positive": "ill", "learner": "trees", "n_refits": 3, "out": tmp_path / "m.crcen"}
    model = crcen.fit_table(tmp_path / "t.csv", **how).model
    assert (model.training_error_.degrees, type(model.estimator_)) == (2, CommitteeClassifier)
    both = crcen.load(tmp_path / "m.crcen"), model
    one, other = (table.estimator_.refit_on(X[:200], y[:200]).predict_proba(X) for table in both)
    np.testing.assert_array_equal(one, other)


def test_several_classes_are_refitted_alike():
    X, y = interaction_rows(300, n_classes=3)
    model = fitted((X, y), n_jobs=1, time_limit=5.0)
    again = model.refit_on(X[:150], y[:150])
    assert again.predict_proba(X).shape == (300, 3)
    assert 0.005 < np.abs(again.predict_proba(X) - model.predict_proba(X)).max() < 0.9
    np.testing.assert_array_equal(again.weighting_.weights, model.weighting_.weights)


# -- files: the same answers by NumPy alone, and no forged tree that loops or points away ------------------------------

NEW = interaction_rows(200, seed=3)[0]
NEW[::5, 0] = np.nan


def test_it_answers_after_loading_as_before(with_gaps, tmp_path):
    again = crcen.load(crcen.save(with_gaps, tmp_path / "m.crcen"))
    for name in ("predict_proba", "decision_function", "predict", "weighted_proba"):
        np.testing.assert_array_equal(getattr(again, name)(NEW), getattr(with_gaps, name)(NEW))
    np.testing.assert_array_equal(again.oof_decision_function_, with_gaps.oof_decision_function_)
    assert list(map(str, again.leaderboard_)) == list(map(str, with_gaps.leaderboard_))
    info = crcen.model_info(tmp_path / "m.crcen")
    assert [one["has_missing"] for one in info.columns] == [True, False, False, False, False]
    assert info.weighting["cost_ratio"] == pytest.approx(8.0)


def test_a_loaded_committee_needs_neither_torch_nor_boosting_nor_further_threads(with_gaps, tmp_path):
    """Also in a forked child, which has lost the threads of its parent."""
    crcen.save(with_gaps, tmp_path / "m.crcen")
    np.save(tmp_path / "new.npy", NEW)
    script = """
import json, os, sys
import numpy as np
from crcen import load
model, new = load("m.crcen"), np.load("new.npy")
threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
p = model.predict_proba(new)
more = (len(os.listdir("/proc/self/task")) if threads else 0) - threads
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, model.predict_proba(new)[:, 1].tobytes())
    os._exit(0)
os.close(write)
forked = b"".join(iter(lambda: os.read(read, 65536), b""))
os.waitpid(child, 0)
loaded = [*{"torch", "sklearn.ensemble", "lightgbm", "crcen.models.fitting"} & set(sys.modules)]
print(json.dumps({"p": p[:, 1].tolist(), "forked": np.frombuffer(forked).tolist(), "loaded": loaded, "more": more}))
"""
    said = json.loads(run_python("-W", "ignore::DeprecationWarning", "-c", script, cwd=tmp_path))
    np.testing.assert_array_equal(said["p"], with_gaps.predict_proba(NEW)[:, 1])
    assert (said["forked"], said["loaded"], said["more"]) == (said["p"], [], 0)


# Two trees: a root with two leaves, and a root whose right child has two leaves.
SOUND = TreeEnsemble(
    feature=np.array([1, 0, 0, 0, 0, 2, 0, 0], dtype=np.int32),
    threshold=np.array([0.5, np.inf, np.inf, 0.1, np.inf, -0.3, np.inf, np.inf]),
    missing_left=np.zeros(8, dtype=bool),
    left=np.array([1, 1, 2, 4, 4, 6, 6, 7], dtype=np.int32),
    right=np.array([2, 1, 2, 5, 4, 7, 6, 7], dtype=np.int32),
    value=np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.2, -0.2])[:, None],
    roots=np.array([0, 3], dtype=np.int32),
    output=np.array([0, 1], dtype=np.int32),
    depth=2,
    baseline=np.array([-1.0, 0.0]),
    n_features=3,
)


def changed(name, at, value):
    array = getattr(SOUND, name).copy()
    array[at] = value
    return {name: array}


def test_sound_trees_pass():
    check_state(TreeEnsemble, state_of(SOUND))
    check_state(TreeEnsemble, state_of(replace(SOUND, depth=7)))
    X = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, -1.0]])
    assert SOUND.logits(X).tolist() == [[-1 + 1.0, 0.5], [-1 - 1.0, 0.2]]


@pytest.mark.parametrize(
    "forged",
    [
        changed("left", 5, 3),  # a loop
        changed("right", 3, 3),  # half a leaf
        changed("left", 0, 2),  # a node with two parents or none
        changed("right", 5, 8),  # beyond the end
        changed("left", 0, -1),
        changed("right", 0, 4),  # into another tree
        *(changed("feature", 0, column) for column in (3, -1)),
        *(changed("roots", *root) for root in ((1, 9), (1, 0), (0, 3), (1, 4))),
        *(changed(name, 0, np.nan) for name in ("value", "threshold")),
        *({"depth": depth} for depth in (1, 10**9, -1)),  # with 1, rows would stop at a node that is no leaf
        *({"n_features": n} for n in (2, 10**12)),
        *({"baseline": np.array(logits)} for logits in ([np.inf, 0.0], [0.0])),  # and fewer outputs than the trees have
        *(changed("output", 1, column) for column in (2, -1)),
        {"output": SOUND.output[:1]},
        {"roots": np.array([], dtype=np.int32)},
        {"left": SOUND.left.astype(np.float64)},
        {"left": SOUND.left[:5]},
        {"value": SOUND.value[:, 0]},
        {"value": np.column_stack([SOUND.value, SOUND.value])},
        {"value": np.array(1.0)},
        {"missing_left": SOUND.value},
    ],
)
def test_forged_trees_are_refused(forged):
    with pytest.raises(InvalidState):
        check_state(TreeEnsemble, state_of(SOUND) | forged)


# -- from a file to decisions: `fit --learner`, evidence out of fold, and what page and JSON say of members ------------


def table(n=900, seed=0):
    X, y = interaction_rows(n, seed)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(side=np.where(X[:, 3] > 0, "left", "right"))
    frame.loc[::4, "b"] = np.nan
    return frame.assign(bad=np.where(y == 1, "yes", "no"))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "train.csv"
    table().to_csv(path, index=False)
    return path


def test_fit_says_what_each_member_brings_and_other_commands_take_the_model(file, tmp_path):
    place = tmp_path / "m.crcen"
    fit = crcen.fit_table(file, target="bad", weighting=Budget(8), learner="committee", n_splits=3, out=place)
    values, names = json.loads(json.dumps(fit.to_dict())), ("networks", "trees", "catboost", "forest")
    assert [one["name"] for one in values["leaderboard"]] == [*names, "committee"]
    assert values["learner"] == "committee"
    assert values["leaderboard"][-1]["weight"] is None
    # Out of fold: what the last line says is what the rows say.
    model, y = fit.model, table()["bad"] == "yes"
    natural = model.estimator_.oof_decision_function_ - np.log(8) - model.estimator_.oof_shift_
    p = 1 / (1 + np.exp(-natural))
    assert values["leaderboard"][-1]["roc_auc"] == pytest.approx(roc_auc_score(y, p))
    assert values["leaderboard"][-1]["log_loss"] == pytest.approx(log_loss(y, p))
    assert values["out_of_fold"]["roc_auc"] == pytest.approx(roc_auc_score(y, p))
    weights = model.estimator_.member_weights_
    shown = ", ".join(f"{name} {weight:.3g}" for name, weight in zip(names, weights, strict=True))
    assert shown in fit.details()
    new = tmp_path / "new.csv"
    table(400, seed=5).to_csv(new, index=False)
    np.testing.assert_array_equal(crcen.load(place).predict_proba(table(99)), model.predict_proba(table(99)))
    assert crcen.evaluate_table(place, new).to_dict()["rows"]
    crcen.report_table(place, new, out=tmp_path / "r.html")
    assert f"weight {weights[1]:.3g}, log loss" in (tmp_path / "r.html").read_text()
    assert export_onnx(place, tmp_path / "m.onnx").largest_difference <= 1e-9


def test_the_command_takes_a_learner_a_time_and_an_effort_and_quick_is_one_network(file, tmp_path):
    how = ["fit", str(file), "--target", "bad", "--out", str(tmp_path / "m.crcen"), "--json"]

    def said(*options):
        done = CliRunner().invoke(app, [*how, *options])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    trees = said("--learner", "trees", "--time-limit", "0.01")
    assert (trees["learner"], trees["network"]) == ("trees", None)
    assert trees["training_error"] is None  # refits would take longer than the limit
    quick, same = said("--quick"), said("--effort", "quick")
    assert (quick["learner"], quick["network"]) == ("networks", same["network"])
    assert quick["out_of_fold"] == same["out_of_fold"]
    trees, huge = ["--learner", "trees"], ["--effort", "huge"]
    for wrong in (["--effort", "quick", *trees], ["--engine", "stream", *trees], ["--quick", "--effort", "best"], huge):
        assert CliRunner().invoke(app, [*how, *wrong]).exit_code != 0
    assert CliRunner().invoke(app, [*how, "--effort", "best", "--learner", "networks"]).exit_code != 0


def test_what_means_nothing_and_onnx_of_other_members_are_refused_before_the_fit(file, tmp_path, monkeypatch):
    monkeypatch.setattr(CommitteeClassifier, "fit", lambda *rows, **how: pytest.fail("it was fitted"))
    mixed = CommitteeClassifier(members=("trees", LogisticRegression()))
    with pytest.raises(InvalidInput, match="a committee with a LogisticRegression cannot be exported to ONNX"):
        crcen.fit_table(file, target="bad", estimator=mixed, onnx=tmp_path / "m.onnx")
    for learner, words in (
        ({"learner": "woods"}, "learner must be one of committee, networks, trees, .*, forest: got 'woods'"),
        ({"learner": "networks", "time_limit": 5}, "time_limit must go with the learner trees or committee"),
        ({"learner": "trees", "time_limit": 0}, "time_limit must be a number of seconds above 0"),
        ({"learner": "trees", "estimator": mixed}, "learner must be left out"),
        ({"estimator": crcen.CRCENClassifier()}, "estimator must be a CRCENClassifierCV or a CommitteeClassifier"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            crcen.fit_table(file, target="bad", **learner)


def test_held_out_rows_of_a_committee_are_evidence(with_gaps):
    _, y = interaction_rows()
    curve = crcen.ExpenseCurve.from_cv(with_gaps, y, [Budget(4), Budget(8), Budget(16)])
    alarms = with_gaps.oof_decision_function_ > 0
    assert (curve.counts.tp[1], curve.counts.fp[1]) == ((alarms & (y == 1)).sum(), (alarms & (y == 0)).sum())
    assert crcen.choose_weighting(with_gaps, crcen.RecallAtLeast(0.5), y=y).weighting.value > 0
    with pytest.raises(InvalidParameter, match="or CommitteeClassifier, got a CRCENClassifier"):
        crcen.ExpenseCurve.from_cv(crcen.CRCENClassifier(), y)


@pytest.mark.parametrize(("how", "name"), [({"effort": "quick"}, "networks"), ({"cv": 3, "time_limit": 1e-6}, None)])
def test_quick_and_out_of_time_one_setting_of_one_member_is_fitted_and_answers(rows, how, name):
    committee = fitted(rows, Budget(8), **how)
    member, together = committee.leaderboard_
    assert (len(member.settings), together.name, name or member.name) == (1, "committee", member.name)
    assert np.isfinite(committee.decision_function(rows[0])).all()


def test_best_effort_averages_several_seeds(rows, monkeypatch):
    standard, best = (fitted(rows, Budget(8), members=("trees", "forest"), effort=e) for e in ("standard", "best"))
    assert len(best.ensemble_.members) >= 2 * len(standard.ensemble_.members)
    assert np.isfinite(best.oof_decision_function_).all()
    folds = list(StratifiedKFold(2).split(*rows))  # given folds are kept, with other seeds
    fitted(rows, members=("forest",), effort="best", cv=folds)
    found = iter([MEMBERS["trees"].search])  # a repeated search that fails leaves the first one
    monkeypatch.setattr(type(MEMBERS["trees"]), "search", lambda self, task: next(found, None)(task))
    with pytest.warns(UserWarning, match="a repeated search of trees failed: 'NoneType' object is not callable"):
        assert fitted(rows, members=("trees",), effort="best").leaderboard_[0].name == "trees"


# -- weights of members: against an independent optimiser, limits, nested choice, and optimism of fitted rows ----------


def draw(n=400, seed=0, noise=(0.5, 1.0, 3.0), n_classes=2):
    """Rows with known logits, and members that see them through more and more noise."""
    rng = np.random.default_rng(seed)
    true = rng.normal(0.0, 1.5, (n, n_classes)) - 1.5 * np.arange(n_classes)
    target = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    logits = np.stack([true + rng.normal(0, s, true.shape) for s in noise], axis=1)
    return logits, target, rng.random(n) + 0.5


def loss(combined, target, weights):
    return -np.average(log_softmax(combined, axis=1)[np.arange(len(target)), target], weights=weights)


def folds_of(n, k=4, seed=0):
    return np.array_split(np.random.default_rng(seed).permutation(n), k)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("ridge", [0.1, 20.0, 500.0])
def test_weights_are_the_optimum_of_a_search_without_gradients(ridge, n_classes):
    logits, target, weights = draw(n=120, n_classes=n_classes)
    found = fit_stacking(logits, target, weights, ridge)
    prior = np.exp([-len(target) * loss(logits[:, m], target, weights) / 30 for m in range(3)])

    def objective(w, intercepts):
        combined = np.einsum("nmk,m->nk", logits, w) + intercepts
        return len(target) * loss(combined, target, weights) + ridge * np.sum((w - prior / prior.sum()) ** 2)

    def free(p):  # squares are not negative; one intercept can be fixed
        return objective(p[:3] ** 2, np.append(0.0, p[3:]))

    how = {"method": "Nelder-Mead", "options": {"maxiter": 40000, "maxfev": 40000, "fatol": 1e-12, "xatol": 1e-8}}
    starts = ([0.6, 0.6, 0.6], [0.9, 0.3, 0.1])
    reference = min(minimize(free, [*start, *[0.0] * (n_classes - 1)], **how).fun for start in starts)
    assert objective(found.weights, found.intercepts) <= reference + 1e-6
    assert (found.weights >= 0).all()


def test_strong_shrinkage_gives_equal_weights_unless_rows_tell_members_apart_and_better_members_get_more():
    logits, target, weights = draw(n=4000)
    assert fit_stacking(logits[:9], target[:9], weights[:9], 1e9).weights == pytest.approx(np.full(3, 1 / 3), abs=0.15)
    assert fit_stacking(logits, target, weights, 1e9).weights == pytest.approx([1.0, 0.0, 0.0], abs=0.05)
    close, middle, far = fit_stacking(logits, target, weights, 5.0).weights
    assert close > middle > far
    logits[:, 2] = -logits[:, 1]
    assert fit_stacking(logits, target, weights, 1.0).weights[2] == 0.0


def test_members_with_a_tiny_weight_get_none_and_the_others_are_weighted_again():
    logits, target, weights = draw(n=4000, noise=(0.2, 0.4, 3.0))
    plain = fit_stacking(logits, target, weights, 5.0).weights
    assert 0.0 < plain[2] < 0.05
    found = fit_stacking(logits, target, weights, 5.0, least_weight=0.05).weights
    assert found[2] == 0.0
    assert found[:2].sum() > plain[:2].sum()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_only_ratios_of_weights_matter(scale):
    logits, target, weights = draw(n=300)
    one, other = (fit_stacking(logits, target, w, 5.0) for w in (weights, scale * weights))
    assert other.weights == pytest.approx(one.weights, abs=1e-9)
    copies = np.random.default_rng(1).integers(1, 4, 300)
    one = fit_stacking(logits, target, copies.astype(float), 0.0)
    other = fit_stacking(np.repeat(logits, copies, axis=0), np.repeat(target, copies), np.ones(copies.sum()), 0.0)
    assert one.weights == pytest.approx(other.weights, abs=1e-4)


def test_nested_folds_shrink_strongly_where_members_are_alike_and_a_good_member_keeps_its_loss_on_new_rows():
    strong, weak, together, best = [], [], [], []
    for seed in range(12):
        alike, target, weights = draw(n=150, seed=seed, noise=(1.5,) * 6)
        strong.append(choose_ridge(alike, target, weights, folds_of(150)))
        apart, target, weights = draw(n=1500, seed=seed, noise=(0.1, 4.0, 4.0))
        weak.append(choose_ridge(apart, target, weights, folds_of(1500)))
        new, labels, ones = draw(n=5000, seed=seed + 100, noise=(0.1, 4.0, 4.0))
        together.append(loss(fit_stacking(apart, target, weights, weak[-1])(new), labels, ones))
        best.append(loss(new[:, 0], labels, ones))
    assert np.median(strong) >= 50.0
    assert np.mean(together) < np.mean(best) * 1.01


def test_weights_fitted_on_the_rows_that_judge_them_look_too_good():
    """Many useless members: the loss on fitted rows falls, the loss of cross-fitted weights is that of new rows."""
    own, crossed, new = [], [], []
    for seed in range(20):
        logits, target, weights = draw(n=120, seed=seed, noise=(2.0,) * 12)
        fitted = fit_stacking(logits, target, weights, 0.1)
        more, labels, their = draw(n=4000, seed=seed + 1000, noise=(2.0,) * 12)
        own.append(loss(fitted(logits), target, weights))
        crossed.append(loss(cross_fitted_logits(logits, target, weights, folds_of(120, 4, seed), 0.1), target, weights))
        new.append(loss(fitted(more), labels, their))
    optimism = np.mean(new) - np.mean(own)
    assert optimism > 0.03
    assert np.mean(crossed) > np.mean(own) + 0.5 * optimism


def test_rows_in_no_fold_have_no_combined_logit_and_one_fold_takes_the_mean():
    logits, target, weights = draw(n=60)
    combined = cross_fitted_logits(logits, target, weights, [np.arange(30), np.arange(30, 50)], 5.0)
    assert np.isfinite(combined[:50]).all()
    assert np.isnan(combined[50:]).all()
    later = cross_fitted_logits(logits, target, weights, [np.arange(40, 60)], 5.0)
    assert later[40:] == pytest.approx(logits[40:].mean(axis=1))
    assert choose_ridge(logits, target, weights, [np.arange(40, 60)]) == RIDGES[-1]


def test_the_only_row_of_a_class_does_not_vouch_for_it():
    logits, target = np.random.default_rng(0).normal(size=(30, 2, 3)), np.arange(30) % 2
    target[4], logits[4, :, 2] = 2, 50.0
    folds = [(np.append(np.arange(15, 30), 4), np.arange(15)), (np.arange(15), np.arange(15, 30))]
    ones = np.ones(30)
    found = cap_lone_rows(logits, target, ones, folds)
    odds = logit(softmax(found, axis=2)[:, :, 2]).mean(axis=1)
    assert odds[4] == pytest.approx(np.delete(odds, 4).max())
    np.testing.assert_array_equal(np.delete(found, 4, axis=0), np.delete(logits, 4, axis=0))
    np.testing.assert_array_equal(cap_lone_rows(logits, target % 2, ones, folds), logits)
    more, unused = np.where(np.arange(30) == 9, 2, target), np.where(np.arange(30) == 9, 0.0, ones)  # no evidence
    assert (cap_lone_rows(logits, more, unused, folds)[4, :, 2] < logits[4, :, 2]).all()


def test_a_member_without_weight_on_the_first_fold_is_left_out():
    logits, target, weights = draw(n=600, n_classes=3, noise=(0.5, 0.6, 9.0))
    task = MemberTask(logits[:, 0], target, weights, 3)
    committee._check_weight(task, [logits[:, 0]], logits[:200, 1], np.arange(200))
    with pytest.raises(committee.NegligibleWeight, match="first fold was below"):
        committee._check_weight(task, [logits[:, 0]], logits[:200, 2], np.arange(200))
