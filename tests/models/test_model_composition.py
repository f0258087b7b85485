"""The estimators among scikit-learn's own tools."""

import dataclasses
import numbers
import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from crcen import Budget, CSMLPClassifier
from grouped_settings import grouped
from papers_training import CRCENClassifier

QUICK = {"max_epochs": 8, "random_state": 0}
KINDS = [
    CRCENClassifier(Budget(4), hidden=(3,), n_members=2, **QUICK),
    CRCENClassifier(hidden=(), **QUICK),
    CRCENClassifier(hidden=(3,), solver="adam", early_stopping=True, **QUICK),
    CSMLPClassifier(**grouped(hidden=(3, 2), **QUICK)),
]


@pytest.mark.parametrize("model", KINDS, ids=["members", "logistic", "early stopping", "csmlp"])
def test_pickle_keeps_every_prediction_and_the_state_is_plain_numpy(model, rare_rows):
    X, y = rare_rows()
    fitted = clone(model).fit(X, y)
    assert odd_values(vars(fitted), "model") == []
    assert b"torch" not in pickle.dumps(fitted)
    again = pickle.loads(pickle.dumps(fitted))
    for method in ("decision_function", "predict_proba", "weighted_proba", "predict"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(fitted, method)(X))
    assert again.weighting_ == fitted.weighting_
    assert again.get_params() == fitted.get_params()


def odd_values(value, path):
    """Where a state holds anything but plain Python, NumPy and dataclasses of those."""
    if value is None or isinstance(value, str | bytes | numbers.Number | np.generic):
        return []
    if isinstance(value, np.ndarray):
        return [path] if value.dtype.kind == "O" and "feature_names" not in path else []
    if isinstance(value, dict):
        return [odd for key, part in value.items() for odd in odd_values(part, f"{path}.{key}")]
    if isinstance(value, list | tuple):
        return [odd for i, part in enumerate(value) for odd in odd_values(part, f"{path}[{i}]")]
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("crcen."):
        return odd_values(vars(value), path)
    return [f"{path}: {type(value)}"]


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("labels", [("ok", "rare"), ("zero", "rare")], ids=["positive last", "positive first"])
def test_calibration_wraps_either_orientation(method, labels, rare_rows):
    X, y = rare_rows(n=400)
    named = np.array(labels)[y]
    model = CalibratedClassifierCV(CRCENClassifier(hidden=(), **QUICK), method=method, cv=3).fit(X, named)
    rare = model.predict_proba(X)[:, model.classes_.tolist().index("rare")]
    assert roc_auc_score(y, rare) > 0.75
    assert log_loss(y, np.clip(rare, 1e-3, 1 - 1e-3)) < log_loss(y, np.full(len(y), y.mean()))


def test_routed_sample_weight_reaches_the_fit_in_a_pipeline(rare_rows):
    X, y = rare_rows()
    weight = np.random.default_rng(1).integers(1, 5, len(y)).astype(float)
    with config_context(enable_metadata_routing=True):
        model = CRCENClassifier(hidden=(), **QUICK).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        routed = make_pipeline(scaler, model).fit(X, y, sample_weight=weight)
    Z = StandardScaler().fit_transform(X)
    direct = CRCENClassifier(hidden=(), **QUICK).fit(Z, y, sample_weight=weight)
    np.testing.assert_array_equal(routed.predict_proba(X), direct.predict_proba(Z))
    assert routed[-1].weighting_.n_pos == weight[y == 1].sum()
