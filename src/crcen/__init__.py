"""Rare-event classification with neural networks that do what they are told.

State what a miss is worth; get decisions at that price, probabilities that are right, and evidence, on rows the network
never saw, that it kept to it. Public names load on first use: ``import crcen`` itself imports neither torch nor
scikit-learn nor pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crcen._version import __version__

if TYPE_CHECKING:
    from crcen.datasets.benchmark import DatasetListing, list_datasets, load_dataset
    from crcen.datasets.dataset import Dataset
    from crcen.datasets.simulated import make_sim1, make_sim2, sim1_posterior, sim2_posterior
    from crcen.exceptions import (
        CrcenError,
        DataUnavailable,
        DeviceMissing,
        InvalidInput,
        InvalidParameter,
        MissingExtra,
        TrainingFailed,
    )
    from crcen.models.classifier import CRCENClassifier
    from crcen.models.csmlp import CSMLPClassifier
    from crcen.models.methods import METHODS, Method, NetworkTraining, make_method
    from crcen.models.resampled import ResampledClassifier
    from crcen.models.search import CRCENClassifierCV
    from crcen.models.stationarity import Stationarity, stationarity
    from crcen.models.threshold import MovedThresholdClassifier
    from crcen.theory.class_means import (
        MeanBounds,
        class_means,
        duplicates,
        mean_bounds,
        mean_neg_given,
        mean_pos_given,
        recall_bound,
        specificity_bound,
    )
    from crcen.theory.decision import posterior, sigmoid, weighted_probability
    from crcen.theory.expense import ExpenseStep, ExpenseTable, expense_table
    from crcen.theory.key_equation import KeyEquation, key_equation
    from crcen.theory.metrics import ConfusionCounts, confusion_counts, g_mean
    from crcen.theory.weighting import Alpha, Budget, ClassWeighting, CostRatio, Lam, resolve
    from crcen.training.balance import balance_shift
    from crcen.training.engine import train
    from crcen.training.jobs import Status, TrainingJob, TrainingResult
    from crcen.training.network import Network

# Where each public name lives.
_HOMES = {
    "crcen.datasets.benchmark": ("DatasetListing", "list_datasets", "load_dataset"),
    "crcen.datasets.dataset": ("Dataset",),
    "crcen.datasets.simulated": ("make_sim1", "make_sim2", "sim1_posterior", "sim2_posterior"),
    "crcen.exceptions": (
        "CrcenError",
        "DataUnavailable",
        "DeviceMissing",
        "InvalidInput",
        "InvalidParameter",
        "MissingExtra",
        "TrainingFailed",
    ),
    "crcen.models.classifier": ("CRCENClassifier",),
    "crcen.models.csmlp": ("CSMLPClassifier",),
    "crcen.models.methods": ("METHODS", "Method", "NetworkTraining", "make_method"),
    "crcen.models.resampled": ("ResampledClassifier",),
    "crcen.models.search": ("CRCENClassifierCV",),
    "crcen.models.stationarity": ("Stationarity", "stationarity"),
    "crcen.models.threshold": ("MovedThresholdClassifier",),
    "crcen.theory.class_means": (
        "MeanBounds",
        "class_means",
        "duplicates",
        "mean_bounds",
        "mean_neg_given",
        "mean_pos_given",
        "recall_bound",
        "specificity_bound",
    ),
    "crcen.theory.decision": (
        "posterior",
        "sigmoid",
        "weighted_probability",
    ),
    "crcen.theory.expense": ("ExpenseStep", "ExpenseTable", "expense_table"),
    "crcen.theory.key_equation": ("KeyEquation", "key_equation"),
    "crcen.theory.metrics": ("ConfusionCounts", "confusion_counts", "g_mean"),
    "crcen.theory.weighting": (
        "Alpha",
        "Budget",
        "ClassWeighting",
        "CostRatio",
        "Lam",
        "resolve",
    ),
    "crcen.training.balance": ("balance_shift",),
    "crcen.training.engine": ("train",),
    "crcen.training.jobs": ("Status", "TrainingJob", "TrainingResult"),
    "crcen.training.network": ("Network",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Alpha",
    "Budget",
    "CRCENClassifier",
    "CRCENClassifierCV",
    "CSMLPClassifier",
    "ClassWeighting",
    "ConfusionCounts",
    "CostRatio",
    "CrcenError",
    "DataUnavailable",
    "Dataset",
    "DatasetListing",
    "DeviceMissing",
    "ExpenseStep",
    "ExpenseTable",
    "InvalidInput",
    "InvalidParameter",
    "KeyEquation",
    "Lam",
    "METHODS",
    "MeanBounds",
    "Method",
    "MissingExtra",
    "MovedThresholdClassifier",
    "Network",
    "NetworkTraining",
    "ResampledClassifier",
    "Stationarity",
    "Status",
    "TrainingFailed",
    "TrainingJob",
    "TrainingResult",
    "__version__",
    "balance_shift",
    "class_means",
    "confusion_counts",
    "duplicates",
    "expense_table",
    "g_mean",
    "key_equation",
    "list_datasets",
    "load_dataset",
    "make_method",
    "make_sim1",
    "make_sim2",
    "mean_bounds",
    "mean_neg_given",
    "mean_pos_given",
    "posterior",
    "recall_bound",
    "resolve",
    "sigmoid",
    "sim1_posterior",
    "sim2_posterior",
    "specificity_bound",
    "stationarity",
    "train",
    "weighted_probability",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'crcen' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
