"""A committee as an ONNX graph: double precision, rows at thresholds, gaps, infinities."""

import numpy as np
import onnxruntime
import pytest
from rows_of_a_committee import draw
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import Budget, CommitteeClassifier, CRCENClassifierCV, export_onnx
from crcen.commands.onnx.graph import Graph
from crcen.commands.onnx.trees import tree_logit
from crcen.models.trees.boosted_trees import BoostedTrees
from grouped_settings import grouped


def answers(path, X):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["probabilities", "decision"], {"X": X})


def at_thresholds(model, n=400):
    """Rows of which many cells are exactly a threshold of a tree, or its neighbour in double precision."""
    X, _ = draw(n, seed=3)
    rng = np.random.default_rng(4)
    for trees in model.ensemble_.members:
        if isinstance(trees, BoostedTrees):
            for column in range(X.shape[1]):
                known = trees.threshold[(trees.feature == column) & np.isfinite(trees.threshold)]
                if len(known):
                    cells = rng.choice(known, n)
                    moved = np.where(rng.random(n) < 0.5, cells, np.nextafter(cells, rng.choice([-np.inf, np.inf], n)))
                    X[:, column] = np.where(rng.random(n) < 0.7, moved, X[:, column])
    return X


def test_a_committee_with_gaps(with_gaps, tmp_path):
    done = export_onnx(with_gaps, tmp_path / "m.onnx")
    X = at_thresholds(with_gaps)
    X[np.random.default_rng(5).random(X.shape) < 0.1] = np.nan
    probabilities, decision = answers(done.path, X)
    np.testing.assert_allclose(probabilities, with_gaps.predict_proba(X), atol=1e-12)
    assert decision.tolist() == with_gaps.predict(X).tolist()


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


def test_infinite_cells_and_trees_that_never_split():
    import onnx

    X, y = draw(300)
    X[::4, 0] = np.nan
    deep = HistGradientBoostingClassifier(max_iter=15, max_leaf_nodes=12, random_state=0).fit(X, y)
    flat = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=200, random_state=0).fit(X, y)
    X[1::9, 1], X[2::9, 1], X[::31] = np.inf, -np.inf, np.nan
    for model in (deep, flat):
        graph = Graph()
        nodes = [trees[0].nodes for trees in model._predictors]
        trees = BoostedTrees.from_nodes(nodes, float(model._baseline_prediction[0, 0]), 5)
        logit = tree_logit(graph, trees, graph.input("X", is_text=False, width=5))
        graph.rename(logit, "logit")
        output = onnx.helper.make_tensor_value_info("logit", onnx.TensorProto.DOUBLE, ["rows"])
        proto = onnx.helper.make_graph(graph.nodes, "trees", graph.inputs, [output], graph.constants)
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
        whole = onnx.helper.make_model(proto, opset_imports=opsets, ir_version=8)
        session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(["logit"], {"X": X})[0], model.decision_function(X), atol=1e-12)


def test_other_members_are_refused_by_name(rows, tmp_path):
    model = CommitteeClassifier(members=("trees", LogisticRegression()), cv=2, random_state=0).fit(*rows)
    with pytest.raises(crcen.InvalidInput, match="a committee with a LogisticRegression has no ONNX form"):
        export_onnx(model, tmp_path / "m.onnx")
