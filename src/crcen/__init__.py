"""Rare-event classification with neural networks that do what they are told.

State what a miss is worth; get decisions at that price, probabilities that are right, and evidence, on rows the network
never saw, that it kept to it. Public names load on first use: ``import crcen`` itself imports neither torch nor
scikit-learn nor pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crcen._version import __version__

# ruff: noqa: F401  -- type checkers also see the names of _ELSEWHERE
if TYPE_CHECKING:
    from crcen.baselines.csmlp import CSMLPClassifier
    from crcen.baselines.methods import METHODS, Method, make_method
    from crcen.baselines.resampled import ResampledClassifier
    from crcen.baselines.threshold import MovedThresholdClassifier
    from crcen.committee.classifier import CommitteeClassifier
    from crcen.datasets.benchmark import DatasetListing, list_datasets, load_dataset
    from crcen.datasets.dataset import Dataset
    from crcen.datasets.rare_events import RareEvents, make_rare_events
    from crcen.datasets.simulated import make_sim1, make_sim2, sim1_posterior, sim2_posterior
    from crcen.decisions.choose import ChosenWeighting, choose_weighting
    from crcen.decisions.correction import correct_proba
    from crcen.decisions.decide import DecisionSummary, decide, decision_summary
    from crcen.decisions.equivalence import EquivalenceReport, equivalence_report
    from crcen.decisions.expense_curve import ExpenseCurve
    from crcen.decisions.monitor.monitor import KeyEquationMonitor
    from crcen.decisions.monitor.track import DriftAlarm, MonitorReading
    from crcen.decisions.posterior_correction import PosteriorCorrection
    from crcen.decisions.scorer import cost_scorer
    from crcen.decisions.training_error import training_error
    from crcen.exceptions import (
        CrcenError,
        DataUnavailable,
        DeviceMissing,
        InvalidInput,
        InvalidParameter,
        MissingExtra,
        TrainingFailed,
    )
    from crcen.files.saving import ModelInfo, load, model_info, save
    from crcen.models.classifier import CRCENClassifier
    from crcen.models.module_classifier import ModuleClassifier
    from crcen.models.search.classifier_cv import CRCENClassifierCV
    from crcen.models.search.options import Search
    from crcen.models.search.time_split import TimeSplit
    from crcen.models.stationarity import Stationarity, stationarity
    from crcen.report.displays.correction import CorrectionDisplay
    from crcen.report.displays.decision_curve import DecisionCurveDisplay
    from crcen.report.displays.expense_curve import ExpenseCurveDisplay
    from crcen.report.displays.key_equation import KeyEquationDisplay
    from crcen.report.displays.weight_path import WeightPathDisplay
    from crcen.report.html import write_report
    from crcen.scale.large_files import FilesFit, fit_files
    from crcen.scale.ray.fit import fit_ray
    from crcen.scale.stream import fit_stream
    from crcen.tables.classifier import TableClassifier
    from crcen.tables.reading import open_table
    from crcen.theory.class_means import (
        MeanBounds,
        class_means,
        copies_per_positive,
        mean_bounds,
        mean_neg_given,
        mean_pos_given,
        recall_bound,
        specificity_bound,
    )
    from crcen.theory.classes.cost_matrix import CostMatrix
    from crcen.theory.classes.key_equations import ClassKeyEquations
    from crcen.theory.costs import Costs, expected_cost, realised_cost
    from crcen.theory.decision import posterior, sigmoid, weighted_probability
    from crcen.theory.expense import ExpenseTable, expense_table
    from crcen.theory.judgements import EquationTest
    from crcen.theory.key_equation import KeyEquation, key_equation
    from crcen.theory.metrics import ConfusionCounts, confusion_counts, g_mean
    from crcen.theory.residual_test import TrainingError
    from crcen.theory.weighting import Alpha, Budget, ClassWeighting, CostRatio, Lam, resolve
    from crcen.theory.wishes import Capacity, PrecisionAtLeast, RecallAtLeast, Review
    from crcen.training.balance import balance_shift
    from crcen.training.engine import train
    from crcen.training.jobs import Status, TrainingJob, TrainingResult
    from crcen.training.network import Network
    from crcen.training.recipe import Inputs, Schedule
    from crcen.workflow.demo import Demo, demo
    from crcen.workflow.environment import EnvironmentInfo, environment_info
    from crcen.workflow.evaluation import TableEvaluation, evaluate_table
    from crcen.workflow.fitting import TableFit, fit_table
    from crcen.workflow.looking import look_at_table
    from crcen.workflow.onnx.export import OnnxExport, export_onnx
    from crcen.workflow.prediction import TablePredictions, predict_table
    from crcen.workflow.reporting import TableReport, report_table
    from crcen.workflow.splitting import TableSplit, split_table
    from crcen.workflow.watching import monitor_table

# Where each public name lives.
_HOMES = {
    "crcen.baselines.csmlp": ("CSMLPClassifier",),
    "crcen.baselines.methods": (
        "METHODS",
        "make_method",
    ),
    "crcen.committee.classifier": ("CommitteeClassifier",),
    "crcen.datasets.benchmark": (
        "list_datasets",
        "load_dataset",
    ),
    "crcen.datasets.rare_events": ("make_rare_events",),
    "crcen.datasets.simulated": (
        "make_sim1",
        "make_sim2",
    ),
    "crcen.decisions.choose": ("choose_weighting",),
    "crcen.decisions.correction": ("correct_proba",),
    "crcen.decisions.decide": (
        "decide",
        "decision_summary",
    ),
    "crcen.decisions.equivalence": ("equivalence_report",),
    "crcen.decisions.expense_curve": ("ExpenseCurve",),
    "crcen.decisions.monitor.monitor": ("KeyEquationMonitor",),
    "crcen.decisions.posterior_correction": ("PosteriorCorrection",),
    "crcen.decisions.scorer": ("cost_scorer",),
    "crcen.decisions.training_error": ("training_error",),
    "crcen.exceptions": (
        "CrcenError",
        "DataUnavailable",
        "DeviceMissing",
        "InvalidInput",
        "InvalidParameter",
        "MissingExtra",
        "TrainingFailed",
    ),
    "crcen.files.saving": (
        "load",
        "model_info",
        "save",
    ),
    "crcen.models.classifier": ("CRCENClassifier",),
    "crcen.models.module_classifier": ("ModuleClassifier",),
    "crcen.models.search.classifier_cv": ("CRCENClassifierCV",),
    "crcen.models.search.options": ("Search",),
    "crcen.models.search.time_split": ("TimeSplit",),
    "crcen.models.stationarity": ("stationarity",),
    "crcen.report.displays.correction": ("CorrectionDisplay",),
    "crcen.report.displays.decision_curve": ("DecisionCurveDisplay",),
    "crcen.report.displays.expense_curve": ("ExpenseCurveDisplay",),
    "crcen.report.displays.key_equation": ("KeyEquationDisplay",),
    "crcen.report.displays.weight_path": ("WeightPathDisplay",),
    "crcen.report.html": ("write_report",),
    "crcen.scale.large_files": ("fit_files",),
    "crcen.scale.ray.fit": ("fit_ray",),
    "crcen.scale.stream": ("fit_stream",),
    "crcen.tables.classifier": ("TableClassifier",),
    "crcen.theory.classes.cost_matrix": ("CostMatrix",),
    "crcen.theory.costs": (
        "Costs",
        "expected_cost",
        "realised_cost",
    ),
    "crcen.theory.decision": ("posterior",),
    "crcen.theory.expense": ("expense_table",),
    "crcen.theory.key_equation": ("key_equation",),
    "crcen.theory.metrics": (
        "confusion_counts",
        "g_mean",
    ),
    "crcen.theory.weighting": (
        "Alpha",
        "Budget",
        "CostRatio",
        "Lam",
        "resolve",
    ),
    "crcen.theory.wishes": (
        "Capacity",
        "PrecisionAtLeast",
        "RecallAtLeast",
        "Review",
    ),
    "crcen.training.balance": ("balance_shift",),
    "crcen.training.recipe": (
        "Inputs",
        "Schedule",
    ),
    "crcen.workflow.demo": ("demo",),
    "crcen.workflow.environment": ("environment_info",),
    "crcen.workflow.evaluation": ("evaluate_table",),
    "crcen.workflow.fitting": ("fit_table",),
    "crcen.workflow.looking": ("look_at_table",),
    "crcen.workflow.onnx.export": ("export_onnx",),
    "crcen.workflow.prediction": ("predict_table",),
    "crcen.workflow.reporting": ("report_table",),
    "crcen.workflow.splitting": ("split_table",),
    "crcen.workflow.watching": ("monitor_table",),
}
# What functions give back and what few people call: imported from their modules.
_ELSEWHERE = {
    "crcen.baselines.methods": ("Method",),
    "crcen.baselines.resampled": ("ResampledClassifier",),
    "crcen.baselines.threshold": ("MovedThresholdClassifier",),
    "crcen.datasets.benchmark": ("DatasetListing",),
    "crcen.datasets.dataset": ("Dataset",),
    "crcen.datasets.rare_events": ("RareEvents",),
    "crcen.datasets.simulated": (
        "sim1_posterior",
        "sim2_posterior",
    ),
    "crcen.decisions.choose": ("ChosenWeighting",),
    "crcen.decisions.decide": ("DecisionSummary",),
    "crcen.decisions.equivalence": ("EquivalenceReport",),
    "crcen.decisions.monitor.track": (
        "DriftAlarm",
        "MonitorReading",
    ),
    "crcen.files.saving": ("ModelInfo",),
    "crcen.models.stationarity": ("Stationarity",),
    "crcen.scale.large_files": ("FilesFit",),
    "crcen.tables.reading": ("open_table",),
    "crcen.theory.class_means": (
        "MeanBounds",
        "class_means",
        "copies_per_positive",
        "mean_bounds",
        "mean_neg_given",
        "mean_pos_given",
        "recall_bound",
        "specificity_bound",
    ),
    "crcen.theory.classes.key_equations": ("ClassKeyEquations",),
    "crcen.theory.decision": (
        "sigmoid",
        "weighted_probability",
    ),
    "crcen.theory.expense": ("ExpenseTable",),
    "crcen.theory.judgements": ("EquationTest",),
    "crcen.theory.key_equation": ("KeyEquation",),
    "crcen.theory.metrics": ("ConfusionCounts",),
    "crcen.theory.residual_test": ("TrainingError",),
    "crcen.theory.weighting": ("ClassWeighting",),
    "crcen.training.engine": ("train",),
    "crcen.training.jobs": (
        "Status",
        "TrainingJob",
        "TrainingResult",
    ),
    "crcen.training.network": ("Network",),
    "crcen.workflow.demo": ("Demo",),
    "crcen.workflow.environment": ("EnvironmentInfo",),
    "crcen.workflow.evaluation": ("TableEvaluation",),
    "crcen.workflow.fitting": ("TableFit",),
    "crcen.workflow.onnx.export": ("OnnxExport",),
    "crcen.workflow.prediction": ("TablePredictions",),
    "crcen.workflow.reporting": ("TableReport",),
    "crcen.workflow.splitting": ("TableSplit",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Alpha",
    "Budget",
    "CRCENClassifier",
    "CRCENClassifierCV",
    "CSMLPClassifier",
    "Capacity",
    "CommitteeClassifier",
    "CorrectionDisplay",
    "CostMatrix",
    "CostRatio",
    "Costs",
    "CrcenError",
    "DataUnavailable",
    "DecisionCurveDisplay",
    "DeviceMissing",
    "ExpenseCurve",
    "ExpenseCurveDisplay",
    "Inputs",
    "InvalidInput",
    "InvalidParameter",
    "KeyEquationDisplay",
    "KeyEquationMonitor",
    "Lam",
    "METHODS",
    "MissingExtra",
    "ModuleClassifier",
    "PosteriorCorrection",
    "PrecisionAtLeast",
    "RecallAtLeast",
    "Review",
    "Schedule",
    "Search",
    "TableClassifier",
    "TimeSplit",
    "TrainingFailed",
    "WeightPathDisplay",
    "__version__",
    "balance_shift",
    "choose_weighting",
    "confusion_counts",
    "correct_proba",
    "cost_scorer",
    "decide",
    "decision_summary",
    "demo",
    "environment_info",
    "equivalence_report",
    "evaluate_table",
    "expected_cost",
    "expense_table",
    "export_onnx",
    "fit_files",
    "fit_ray",
    "fit_stream",
    "fit_table",
    "g_mean",
    "key_equation",
    "list_datasets",
    "load",
    "load_dataset",
    "look_at_table",
    "make_method",
    "make_rare_events",
    "make_sim1",
    "make_sim2",
    "model_info",
    "monitor_table",
    "posterior",
    "predict_table",
    "realised_cost",
    "report_table",
    "resolve",
    "save",
    "split_table",
    "stationarity",
    "training_error",
    "write_report",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name) or next((home for home, names in _ELSEWHERE.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'crcen' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
