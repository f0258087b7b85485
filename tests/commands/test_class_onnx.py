"""Models of K classes as ONNX graphs: the same probabilities and decisions by onnxruntime."""

import json

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import CostMatrix, CRCENClassifier, CRCENClassifierCV, TableClassifier

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
Y = np.concatenate([np.arange(3), RNG.choice(3, 197, p=[0.7, 0.2, 0.1])])
X = RNG.normal(size=(200, 3)) + Y[:, None]
TEXT = np.array(["low", "middle", "high"])[Y]
COSTS = CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["review"])
LIGHT = {"hidden": (4,), "max_epochs": 3, "n_members": 2, "random_state": 0}


@pytest.mark.parametrize("labels", [TEXT, Y], ids=["text", "numbers"])
@pytest.mark.parametrize(
    "model",
    [
        CRCENClassifier(np.array([1.0, 3.0, 10.0]), **LIGHT, balance="oof", probability="temperature"),
        CRCENClassifier(COSTS, **LIGHT),
        CRCENClassifierCV("balanced", l2=[1e-3, 1e-2], n_settings=2, encoding="steps", cv=2, **LIGHT),
    ],
    ids=["weights", "costs", "search"],
)
def test_the_graph_answers_as_the_model(model, labels, tmp_path):
    fitted = model.fit(X, labels)
    export = crcen.export_onnx(fitted, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(export.path), providers=["CPUExecutionProvider"])
    p, decision = session.run(["probabilities", "decision"], {"X": X})
    np.testing.assert_allclose(p, fitted.predict_proba(X), atol=1e-9)
    np.testing.assert_array_equal(decision.astype(str), fitted.predict(X).astype(str))
    properties = {one.key: one.value for one in onnx.load(str(export.path)).metadata_props}
    assert json.loads(properties["classes"]) == np.unique(labels).tolist()
    assert len(json.loads(properties["class_weights"])) == 3
    assert ("costs" in properties) == (fitted.costs_ is not None)


def test_a_mixed_table(tmp_path):
    table = pd.DataFrame({"size": X[:, 0], "site": np.where(X[:, 1] > 1, "north", "south")})
    model = TableClassifier("balanced", estimator=CRCENClassifier(**LIGHT)).fit(table, TEXT)
    export = crcen.export_onnx(model, tmp_path / "model.onnx")
    assert export.largest_difference <= 1e-9
    assert export.inputs == {"size": "number", "site": "text"}
