"""Models of K classes on disk: the same answers after loading, without torch, and what the header says."""

import subprocess
import sys

import numpy as np
import pytest

import crcen
from crcen import CostMatrix, CRCENClassifier, CRCENClassifierCV, CSMLPClassifier
from crcen.exceptions import DataUnavailable
from crcen.paper.methods.threshold import MovedThresholdClassifier

RNG = np.random.default_rng(0)
Y = np.concatenate([np.arange(3), RNG.choice(3, 197, p=[0.7, 0.2, 0.1])])
X = RNG.normal(size=(200, 3)) + Y[:, None]
LABELS = np.array(["low", "middle", "high"])[Y]
WEIGHTS = {"low": 1.0, "middle": 3.0, "high": 10.0}
COSTS = CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["review"])
LIGHT = {"hidden": (4,), "max_epochs": 3, "random_state": 0}
MODELS = [
    CRCENClassifier(WEIGHTS, **LIGHT),
    CRCENClassifier(np.array([1.0, 2.0, 3.0]), **LIGHT, balance="oof", probability="temperature"),
    CRCENClassifier(COSTS, **LIGHT),
    CRCENClassifierCV(WEIGHTS, l2=[1e-3, 1e-2], encoding="standard", cv=2, n_members=1, **LIGHT),
    CSMLPClassifier(**LIGHT),
    MovedThresholdClassifier(WEIGHTS, **LIGHT),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{type(model).__name__}-{type(model.weighting).__name__}")
def test_a_loaded_model_answers_as_the_saved_one(model, tmp_path):
    fitted = model.fit(X, LABELS)
    again = crcen.load(crcen.save(fitted, tmp_path / "model.crcen"))
    assert type(again) is type(fitted)
    for method in ("predict_proba", "weighted_proba", "decision_function", "predict"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(fitted, method)(X))
    assert again.key_equation_.residual == fitted.key_equation_.residual
    assert again.costs_ == fitted.costs_


def test_the_header_names_every_class(tmp_path):
    path = crcen.save(CRCENClassifier(WEIGHTS, **LIGHT).fit(X, LABELS), tmp_path / "model.crcen")
    info = crcen.model_info(path)
    assert info.classes == ["high", "low", "middle"]
    assert info.positive is None
    assert info.weighting["class_weights"] == [10.0, 1.0, 3.0]
    assert info.weighting["class_counts"] == [float((label == LABELS).sum()) for label in info.classes]
    assert "middle" in str(info)
    assert "weight 10" in str(info)


def test_prediction_needs_no_torch(tmp_path):
    path = crcen.save(CRCENClassifier(COSTS, **LIGHT).fit(X, LABELS), tmp_path / "model.crcen")
    code = (
        f"import sys, crcen, numpy as np; m = crcen.load({str(path)!r}); "
        "print(m.predict(np.zeros((2, 3))).tolist(), m.predict_proba(np.zeros((2, 3))).shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("(2, 3) False")


def test_an_altered_weight_is_refused(tmp_path):
    path = crcen.save(CRCENClassifier(WEIGHTS, **LIGHT).fit(X, LABELS), tmp_path / "model.crcen")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"[10.0, 1.0, 3.0]", b"[90.0, 1.0, 3.0]"))
    with pytest.raises(DataUnavailable, match="altered"):
        crcen.load(path)
