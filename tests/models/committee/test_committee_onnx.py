"""A committee as an ONNX graph: double precision, rows at thresholds, gaps, infinities."""

import numpy as np
import onnxruntime
import pytest
from rows_of_a_committee import draw
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import Budget, CommitteeClassifier, CRCENClassifierCV, export_onnx
from crcen.models.members.tree_arrays import TreeEnsemble
from grouped_settings import grouped


def answers(path, X):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["probabilities", "decision"], {"X": X})


def at_thresholds(model, n=400):
    """Rows of which many cells are exactly a threshold of a tree, or its neighbour in double precision."""
    X, _ = draw(n, seed=3)
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
    X, y = draw(n_classes=n_classes)
    X[::3, 0] = np.nan
    model = CommitteeClassifier(members=members, cv=2, random_state=0).fit(X, y)
    new = at_thresholds(model)
    new[np.random.default_rng(5).random(new.shape) < 0.1] = np.nan
    probabilities, decision = answers(export_onnx(model, tmp_path / "m.onnx").path, new)
    np.testing.assert_allclose(probabilities, model.predict_proba(new), atol=1e-12)
    assert decision.tolist() == model.predict(new).tolist()


def test_trees_alone_and_what_single_precision_would_do(rows, tmp_path):
    model = CommitteeClassifier(Budget(5), members="trees", cv=2, random_state=0).fit(*rows)
    X = at_thresholds(model)
    probabilities, _ = answers(export_onnx(model, tmp_path / "m.onnx").path, X)
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-12)
    # The rows would tell: rounded to single precision, some fall on the other side.
    single = model.predict_proba(X.astype(np.float32).astype(np.float64))
    assert np.abs(single - model.predict_proba(X)).max() > 1e-3


def test_the_best_few_settings_of_networks(rows, tmp_path):
    how = {"hidden": [(4,), (3, 2)], "l2": 1e-2, "max_epochs": 3, "cv": 2, "n_members": 2, "random_state": 0}
    model = CRCENClassifierCV(Budget(5), **grouped(n_settings=3, **how)).fit(*rows)
    assert len(model.ensemble_.members) == 3
    X, _ = draw(200, seed=6)
    probabilities, decision = answers(export_onnx(model, tmp_path / "m.onnx").path, X)
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-12)
    assert decision.tolist() == model.predict(X).tolist()


def test_other_members_are_refused_by_name(rows, tmp_path):
    model = CommitteeClassifier(members=("trees", LogisticRegression()), cv=2, random_state=0).fit(*rows)
    with pytest.raises(crcen.InvalidInput, match="a committee with a LogisticRegression has no ONNX form"):
        export_onnx(model, tmp_path / "m.onnx")
