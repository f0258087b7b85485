"""Every method of the comparison at parameters that a test can afford."""

from crcen.paper.methods import make_method
from grouped_settings import grouped

LIGHT = {
    "rusboost": {"n_estimators": 5},
    "easyensemble": {"n_estimators": 3},
    "balanced_rf": {"n_estimators": 10},
    "adaboost": {"n_estimators": 5},
    "adaboost_threshold": {"n_estimators": 5},
    "balanced_bagging": {"n_estimators": 5},
    **{name: {"n_estimators": 5} for name in ("adac1", "adac2", "adac3")},
    "balance_cascade": {"n_rounds": 2, "n_estimators": 3},
    "gsvm_ru": {"max_granules": 2},
    "eusboost": {"n_estimators": 2, "population": 6, "evaluations": 12},
    **{
        name: {"hidden": (4,), "max_epochs": 20}
        for name in ("sosr", "cosen", "crl", "logit_adjustment", "ldam", "msfe", "focal", "class_balanced")
    },
    "lmle": {"hidden": (4,), "max_epochs": 3, "n_dimensions": 3},
    "s2s": {"hidden": (4,), "max_epochs": 2, "max_pairs": 200, "n_references": 3},
}
NETWORK = {"hidden": (4,), "max_epochs": 5, "batch_size": 32}


def light(name, **params):
    """An unfitted estimator of a method."""
    return make_method(name, **grouped(**{**LIGHT.get(name, NETWORK), "random_state": 0, **params}))
