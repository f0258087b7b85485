"""Rare-event classification with neural networks that do what they are told.

State what a miss is worth; get decisions at that price, probabilities that are right, and evidence, on rows the network
never saw, that it kept to it. Public names load on first use: ``import crcen`` itself imports neither torch nor
scikit-learn nor pandas.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crcen._version import __version__

if TYPE_CHECKING:
    from crcen.baselines.csmlp import CSMLPClassifier
    from crcen.baselines.methods import METHODS
    from crcen.committee.classifier import CommitteeClassifier
    from crcen.datasets.benchmark import list_datasets, load_dataset
    from crcen.datasets.rare_events import make_rare_events
    from crcen.datasets.simulated import make_sim1, make_sim2
    from crcen.decisions.choose import choose_weighting
    from crcen.decisions.correction import correct_proba
    from crcen.decisions.decide import decide, decision_summary
    from crcen.decisions.expense_curve import ExpenseCurve
    from crcen.decisions.monitor.monitor import KeyEquationMonitor
    from crcen.decisions.posterior_correction import PosteriorCorrection
    from crcen.decisions.scorer import cost_scorer
    from crcen.decisions.training_error import training_error
    from crcen.exceptions import CrcenError, InvalidInput, InvalidParameter
    from crcen.files.saving import load, model_info, save
    from crcen.models.classifier import CRCENClassifier
    from crcen.models.module_classifier import ModuleClassifier
    from crcen.models.search.classifier_cv import CRCENClassifierCV
    from crcen.models.search.options import Search
    from crcen.models.search.time_split import TimeSplit
    from crcen.models.stationarity import stationarity
    from crcen.report.html import write_report
    from crcen.scale.large_files import fit_files
    from crcen.scale.ray.fit import fit_ray
    from crcen.scale.stream import fit_stream
    from crcen.tables.classifier import TableClassifier
    from crcen.theory.classes.cost_matrix import CostMatrix
    from crcen.theory.costs import Costs
    from crcen.theory.decision import posterior
    from crcen.theory.expense import expense_table
    from crcen.theory.key_equation import key_equation
    from crcen.theory.metrics import confusion_counts, g_mean
    from crcen.theory.weighting import Alpha, Budget, CostRatio, Lam, resolve
    from crcen.theory.wishes import Capacity, PrecisionAtLeast, RecallAtLeast, Review
    from crcen.training.balance import balance_shift
    from crcen.training.recipe import Inputs, Schedule
    from crcen.workflow.evaluation import evaluate_table
    from crcen.workflow.fitting import fit_table
    from crcen.workflow.looking import look_at_table
    from crcen.workflow.onnx.export import export_onnx
    from crcen.workflow.prediction import predict_table
    from crcen.workflow.reporting import report_table
    from crcen.workflow.splitting import split_table
    from crcen.workflow.watching import monitor_table

# Where each public name lives.
_HOMES = {
    "crcen.baselines.csmlp": ("CSMLPClassifier",),
    "crcen.baselines.methods": ("METHODS",),
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
    "crcen.decisions.expense_curve": ("ExpenseCurve",),
    "crcen.decisions.monitor.monitor": ("KeyEquationMonitor",),
    "crcen.decisions.posterior_correction": ("PosteriorCorrection",),
    "crcen.decisions.scorer": ("cost_scorer",),
    "crcen.decisions.training_error": ("training_error",),
    "crcen.exceptions": (
        "CrcenError",
        "InvalidInput",
        "InvalidParameter",
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
    "crcen.report.html": ("write_report",),
    "crcen.scale.large_files": ("fit_files",),
    "crcen.scale.ray.fit": ("fit_ray",),
    "crcen.scale.stream": ("fit_stream",),
    "crcen.tables.classifier": ("TableClassifier",),
    "crcen.theory.classes.cost_matrix": ("CostMatrix",),
    "crcen.theory.costs": ("Costs",),
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
    "crcen.baselines.methods": (
        "Method",
        "NetworkTraining",
        "make_method",
    ),
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
    "crcen.decisions.curve_step": ("CurveStep",),
    "crcen.decisions.decide": ("DecisionSummary",),
    "crcen.decisions.equivalence": (
        "EquivalenceReport",
        "equivalence_report",
    ),
    "crcen.decisions.monitor.track": (
        "DriftAlarm",
        "MonitorReading",
    ),
    "crcen.exceptions": (
        "DataUnavailable",
        "DeviceMissing",
        "MissingExtra",
        "TrainingFailed",
    ),
    "crcen.files.saving": ("ModelInfo",),
    "crcen.models.stationarity": ("Stationarity",),
    "crcen.report.displays.correction": ("CorrectionDisplay",),
    "crcen.report.displays.decision_curve": ("DecisionCurveDisplay",),
    "crcen.report.displays.expense_curve": ("ExpenseCurveDisplay",),
    "crcen.report.displays.key_equation": ("KeyEquationDisplay",),
    "crcen.report.displays.weight_path": ("WeightPathDisplay",),
    "crcen.scale.large_files": ("FilesFit",),
    "crcen.tables.classifier": ("EncodedTable",),
    "crcen.tables.reading": (
        "TableFile",
        "open_table",
    ),
    "crcen.tables.writing": ("TableWriter",),
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
    "crcen.theory.costs": (
        "expected_cost",
        "realised_cost",
    ),
    "crcen.theory.decision": (
        "sigmoid",
        "weighted_probability",
    ),
    "crcen.theory.expense": (
        "ExpenseStep",
        "ExpenseTable",
    ),
    "crcen.theory.judgements": ("EquationTest",),
    "crcen.theory.key_equation": ("KeyEquation",),
    "crcen.theory.metrics": ("ConfusionCounts",),
    "crcen.theory.residual_test": ("TrainingError",),
    "crcen.theory.weighting": ("ClassWeighting",),
    "crcen.training.engine": ("train",),
    "crcen.training.engines": ("find_engine",),
    "crcen.training.jobs": (
        "Status",
        "TrainingJob",
        "TrainingResult",
        "TrainingState",
    ),
    "crcen.training.network": ("Network",),
    "crcen.training.row_sets": ("RowSets",),
    "crcen.workflow.demo": (
        "Demo",
        "demo",
    ),
    "crcen.workflow.environment": (
        "EnvironmentInfo",
        "environment_info",
    ),
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
    "CostMatrix",
    "CostRatio",
    "Costs",
    "CrcenError",
    "ExpenseCurve",
    "Inputs",
    "InvalidInput",
    "InvalidParameter",
    "KeyEquationMonitor",
    "Lam",
    "METHODS",
    "ModuleClassifier",
    "PosteriorCorrection",
    "PrecisionAtLeast",
    "RecallAtLeast",
    "Review",
    "Schedule",
    "Search",
    "TableClassifier",
    "TimeSplit",
    "__version__",
    "balance_shift",
    "choose_weighting",
    "confusion_counts",
    "correct_proba",
    "cost_scorer",
    "decide",
    "decision_summary",
    "evaluate_table",
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
    "make_rare_events",
    "make_sim1",
    "make_sim2",
    "model_info",
    "monitor_table",
    "posterior",
    "predict_table",
    "report_table",
    "resolve",
    "save",
    "split_table",
    "stationarity",
    "training_error",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        home = next((f": import it from {home}" for home, names in _ELSEWHERE.items() if name in names), "")
        sentence = f"module 'crcen' has no attribute {name!r}{home}"
        # ``from crcen import name`` asks through importlib, which answers an AttributeError with words of its own.
        is_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise ImportError(sentence, name="crcen") if home and is_import else AttributeError(sentence)
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
