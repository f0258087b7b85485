"""One writer of fitted attributes: every way to fit leaves the same ones, plain, readable, pickled and saved."""

import dataclasses
import numbers
import pickle

import numpy as np

from crcen import Budget, CRCENClassifier, CRCENClassifierCV, CSMLPClassifier, fit_stream, load, make_sim2, save
from crcen.models.fitted import FittedNetworks
from crcen.paper.networks import MovedThresholdClassifier
from grouped_settings import grouped

DATA = make_sim2(60, 300, seed=0)
QUICK = {"hidden": (4,), "max_epochs": 3, "random_state": 0}
READABLE = {name for name, value in vars(FittedNetworks).items() if isinstance(value, property)}


WAYS = {
    "fit": lambda: CRCENClassifier(Budget(5), **QUICK).fit(DATA.X, DATA.y),
    "map": lambda: CRCENClassifier(Budget(5), **grouped(probability="temperature", **QUICK)).fit(DATA.X, DATA.y),
    "logistic": lambda: CRCENClassifier(Budget(5), **QUICK | {"hidden": ()}).fit(DATA.X, DATA.y),
    "early stopping": lambda: CRCENClassifier(Budget(5), **grouped(early_stopping=True, **QUICK)).fit(DATA.X, DATA.y),
    "csmlp": lambda: CSMLPClassifier(Budget(5), **QUICK).fit(DATA.X, DATA.y),
    "threshold": lambda: MovedThresholdClassifier(Budget(5), **QUICK).fit(DATA.X, DATA.y),
    "search": lambda: CRCENClassifierCV(Budget(5), l2=[1e-2, 1e-1], cv=2, **QUICK).fit(DATA.X, DATA.y),
    "partial_fit": lambda: CRCENClassifier(Budget(5), **QUICK).partial_fit(DATA.X, DATA.y),
    "partial_fit after fit": lambda: (
        CRCENClassifier(Budget(5), **QUICK).fit(DATA.X, DATA.y).partial_fit(DATA.X, DATA.y)
    ),
    "fit_stream": lambda: fit_stream(
        [(DATA.X[i::3], DATA.y[i::3]) for i in range(3)], weighting=Budget(5), epochs=2, random_state=0
    ),
}
# What a search keeps besides, and what partial_fit says it has not: it solves for no key equation.
OF_A_SEARCH = ("best_", "cv_", "oof_", "n_splits_", "scorer_", "search_time_", "search_notes_")


def odd_values(value, path):
    """Where a state holds anything but plain Python, NumPy and dataclasses of those."""
    if value is None or isinstance(value, str | bytes | numbers.Number | np.generic):
        return []
    if isinstance(value, np.ndarray):
        return [path] if value.dtype.kind == "O" and "feature_names" not in path and ".cv_results_" not in path else []
    if isinstance(value, dict):
        return [odd for key, part in value.items() for odd in odd_values(part, f"{path}.{key}")]
    if isinstance(value, list | tuple):
        return [odd for i, part in enumerate(value) for odd in odd_values(part, f"{path}[{i}]")]
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("crcen."):
        return odd_values(vars(value), path)
    return [f"{path}: {type(value)}"]


def written(model):
    """Names of the fitted attributes, those of a search aside."""
    return {name for name in vars(model) if name.endswith("_") and not name.startswith(("_", *OF_A_SEARCH))}


def test_every_way_leaves_the_same_attributes_plain_and_kept_in_files_and_pickles(tmp_path):
    models = {way: make() for way, make in WAYS.items()}
    for way, model in models.items():
        without = {"key_equation_"} if way.startswith("partial_fit") else set()
        assert written(model) | without == written(models["fit"]), way
        assert "key_equation_" in written(model) or without
        assert odd_values(vars(model), way) == []
        assert b"torch" not in pickle.dumps(model)
        for back in (load(save(model, tmp_path / "model.crcen")), pickle.loads(pickle.dumps(model))):
            for name in READABLE:
                assert repr(getattr(model, name)) == repr(getattr(back, name)), (way, name)
            for method in ("decision_function", "predict_proba", "weighted_proba", "predict"):
                np.testing.assert_array_equal(getattr(back, method)(DATA.X), getattr(model, method)(DATA.X))
            assert (vars(model.recipe_), back.get_params()) == (vars(back.recipe_), model.get_params())
        assert None not in (model.recipe_.max_epochs, model.recipe_.solver)
        assert "auto" not in model.recipe_.settings().values()
    assert not any(hasattr(CRCENClassifier(), name) for name in READABLE)
