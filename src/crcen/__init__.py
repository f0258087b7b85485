"""Cost-sensitive classification of rare events with calibrated probabilities.

State what a miss is worth; get decisions at that price, calibrated probabilities, and evidence on unseen rows that the
decisions follow that price. Public names load on first use: ``import crcen`` imports neither torch nor scikit-learn nor
pandas.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crcen._version import __version__ as __version__

if TYPE_CHECKING:
    from crcen.commands.certify import certify as certify
    from crcen.commands.certify import verify as verify
    from crcen.commands.compare import compare_models as compare_models
    from crcen.commands.declare import declare as declare
    from crcen.commands.evaluate import evaluate_table as evaluate_table
    from crcen.commands.export import export_onnx as export_onnx
    from crcen.commands.fit import fit_table as fit_table
    from crcen.commands.fit_files import fit_files as fit_files
    from crcen.commands.look import look_at_table as look_at_table
    from crcen.commands.monitor import monitor_table as monitor_table
    from crcen.commands.plan import plan_table as plan_table
    from crcen.commands.predict import predict_table as predict_table
    from crcen.commands.report import report_table as report_table
    from crcen.commands.split import split_table as split_table
    from crcen.datasets.benchmark import list_datasets as list_datasets
    from crcen.datasets.benchmark import load_dataset as load_dataset
    from crcen.datasets.simulated import make_rare_events as make_rare_events
    from crcen.datasets.simulated import make_sim1 as make_sim1
    from crcen.datasets.simulated import make_sim2 as make_sim2
    from crcen.decisions.choose import choose_weighting as choose_weighting
    from crcen.decisions.correction import correct_proba as correct_proba
    from crcen.decisions.decide import cost_scorer as cost_scorer
    from crcen.decisions.decide import decide as decide
    from crcen.decisions.decide import decision_summary as decision_summary
    from crcen.decisions.expense_curve import ExpenseCurve as ExpenseCurve
    from crcen.decisions.model_uncertainty import training_error as training_error
    from crcen.decisions.monitor.monitor import KeyEquationMonitor as KeyEquationMonitor
    from crcen.decisions.posterior_correction import PosteriorCorrection as PosteriorCorrection
    from crcen.exceptions import CrcenError as CrcenError
    from crcen.exceptions import InvalidInput as InvalidInput
    from crcen.exceptions import InvalidParameter as InvalidParameter
    from crcen.files.model_file import load as load
    from crcen.files.model_file import model_info as model_info
    from crcen.files.model_file import save as save
    from crcen.models.classifier import CRCENClassifier as CRCENClassifier
    from crcen.models.committee.classifier import CommitteeClassifier as CommitteeClassifier
    from crcen.models.module_classifier import ModuleClassifier as ModuleClassifier
    from crcen.models.options import Calibration as Calibration
    from crcen.models.options import Search as Search
    from crcen.models.search.classifier_cv import CRCENClassifierCV as CRCENClassifierCV
    from crcen.models.search.folds import TimeSplit as TimeSplit
    from crcen.models.stationarity import stationarity as stationarity
    from crcen.paper.methods import METHODS as METHODS
    from crcen.paper.networks import CSMLPClassifier as CSMLPClassifier
    from crcen.report.page import write_report as write_report
    from crcen.scale.ray.fit import fit_ray as fit_ray
    from crcen.scale.stream import fit_stream as fit_stream
    from crcen.tables.classifier import TableClassifier as TableClassifier
    from crcen.tables.options import ReadOptions as ReadOptions
    from crcen.theory.balance import balance_shift as balance_shift
    from crcen.theory.cost_matrix import CostMatrix as CostMatrix
    from crcen.theory.decision import posterior as posterior
    from crcen.theory.expense import expense_table as expense_table
    from crcen.theory.goals import Capacity as Capacity
    from crcen.theory.goals import PrecisionAtLeast as PrecisionAtLeast
    from crcen.theory.goals import RecallAtLeast as RecallAtLeast
    from crcen.theory.goals import Review as Review
    from crcen.theory.key_equation import key_equation as key_equation
    from crcen.theory.metrics import confusion_counts as confusion_counts
    from crcen.theory.metrics import g_mean as g_mean
    from crcen.theory.price import Alpha as Alpha
    from crcen.theory.price import Budget as Budget
    from crcen.theory.price import CostRatio as CostRatio
    from crcen.theory.price import Lam as Lam
    from crcen.theory.price import resolve as resolve
    from crcen.training.recipe import Inputs as Inputs
    from crcen.training.recipe import Schedule as Schedule

# Public names by module.
_PUBLIC_NAMES = {
    "crcen.commands.certify": "certify verify",
    "crcen.commands.compare": "compare_models",
    "crcen.commands.declare": "declare",
    "crcen.commands.evaluate": "evaluate_table",
    "crcen.commands.export": "export_onnx",
    "crcen.commands.fit": "fit_table",
    "crcen.commands.fit_files": "fit_files",
    "crcen.commands.look": "look_at_table",
    "crcen.commands.monitor": "monitor_table",
    "crcen.commands.plan": "plan_table",
    "crcen.commands.predict": "predict_table",
    "crcen.commands.report": "report_table",
    "crcen.commands.split": "split_table",
    "crcen.datasets.benchmark": "list_datasets load_dataset",
    "crcen.datasets.simulated": "make_rare_events make_sim1 make_sim2",
    "crcen.decisions.choose": "choose_weighting",
    "crcen.decisions.correction": "correct_proba",
    "crcen.decisions.decide": "cost_scorer decide decision_summary",
    "crcen.decisions.expense_curve": "ExpenseCurve",
    "crcen.decisions.model_uncertainty": "training_error",
    "crcen.decisions.monitor.monitor": "KeyEquationMonitor",
    "crcen.decisions.posterior_correction": "PosteriorCorrection",
    "crcen.exceptions": "CrcenError InvalidInput InvalidParameter",
    "crcen.files.model_file": "load model_info save",
    "crcen.models.classifier": "CRCENClassifier",
    "crcen.models.committee.classifier": "CommitteeClassifier",
    "crcen.models.module_classifier": "ModuleClassifier",
    "crcen.models.options": "Calibration Search",
    "crcen.models.search.classifier_cv": "CRCENClassifierCV",
    "crcen.models.search.folds": "TimeSplit",
    "crcen.models.stationarity": "stationarity",
    "crcen.paper.methods": "METHODS",
    "crcen.paper.networks": "CSMLPClassifier",
    "crcen.report.page": "write_report",
    "crcen.scale.ray.fit": "fit_ray",
    "crcen.scale.stream": "fit_stream",
    "crcen.tables.classifier": "TableClassifier",
    "crcen.tables.options": "ReadOptions",
    "crcen.theory.balance": "balance_shift",
    "crcen.theory.cost_matrix": "CostMatrix",
    "crcen.theory.decision": "posterior",
    "crcen.theory.expense": "expense_table",
    "crcen.theory.goals": "Capacity PrecisionAtLeast RecallAtLeast Review",
    "crcen.theory.key_equation": "key_equation",
    "crcen.theory.metrics": "confusion_counts g_mean",
    "crcen.theory.price": "Alpha Budget CostRatio Lam resolve",
    "crcen.training.recipe": "Inputs Schedule",
}
# Documented names that are imported from their module: results of functions, and functions that few users call.
_SUBMODULE_NAMES = {
    "crcen.commands.certify": "Certificate Verification generate_key",
    "crcen.commands.compare": "ModelComparison",
    "crcen.commands.declare": "Declaration read_declaration",
    "crcen.commands.demo": "Demo demo",
    "crcen.commands.environment": "EnvironmentInfo environment_info",
    "crcen.commands.evaluate": "TableEvaluation",
    "crcen.commands.export": "OnnxExport",
    "crcen.commands.fit": "TableFit",
    "crcen.commands.fit_files": "FilesFit",
    "crcen.commands.monitor": "TableWatch",
    "crcen.commands.plan": "TablePlan",
    "crcen.commands.predict": "TablePredictions",
    "crcen.commands.report": "TableReport",
    "crcen.commands.split": "TableSplit",
    "crcen.datasets.benchmark": "DatasetListing",
    "crcen.datasets.dataset": "Dataset",
    "crcen.datasets.simulated": "RareEvents sim1_posterior sim2_posterior",
    "crcen.decisions.choose": "ChosenWeighting",
    "crcen.decisions.decide": "DecisionSummary",
    "crcen.decisions.equivalence": "EquivalenceReport equivalence_report",
    "crcen.decisions.expense_curve": "CurveStep",
    "crcen.decisions.monitor.track": "DriftAlarm MonitorReading",
    "crcen.exceptions": "DataUnavailable DeviceMissing MissingExtra TrainingFailed",
    "crcen.files.model_file": "ModelInfo",
    "crcen.models.stationarity": "Stationarity",
    "crcen.paper.methods": "Method NetworkTraining make_method",
    "crcen.paper.networks": "MovedThresholdClassifier ResampledClassifier",
    "crcen.report.displays": "CorrectionDisplay DecisionCurveDisplay ExpenseCurveDisplay KeyEquationDisplay "
    "WeightPathDisplay",
    "crcen.tables.columns": "EncodedTable",
    "crcen.tables.reading": "Table open_table",
    "crcen.tables.writing": "TableWriter",
    "crcen.theory.decision": "sigmoid weighted_probability",
    "crcen.theory.expense": "ExpenseStep ExpenseTable",
    "crcen.theory.key_equation": "EquationTest KeyEquation MeanBounds class_means copies_per_positive mean_bounds "
    "mean_neg_given mean_pos_given recall_bound specificity_bound",
    "crcen.theory.metrics": "ConfusionCounts Quality",
    "crcen.theory.price": "Price",
    "crcen.theory.residual_test": "TrainingError",
    "crcen.training.engine": "train",
    "crcen.training.engines": "find_engine",
    "crcen.training.jobs": "Status TrainingJob TrainingResult TrainingState",
    "crcen.training.network": "Network",
}
# Removed names, with what to use instead.
_REMOVED = {
    "Costs": "use CostMatrix.binary(tp=0, fp=1, fn=1, tn=0)",
    "ClassWeighting": "use crcen.theory.price.Price, which resolve returns",
}
_MODULE_OF = {name: module for module, names in _PUBLIC_NAMES.items() for name in names.split()}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        module = next((module for module, names in _SUBMODULE_NAMES.items() if name in names.split()), None)
        hint = f": import it from {module}" if module else f": {_REMOVED[name]}" if name in _REMOVED else ""
        message = f"module 'crcen' has no attribute {name!r}{hint}"
        # ``from crcen import name`` replaces the message of an AttributeError, but not that of an ImportError.
        is_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise ImportError(message, name="crcen") if hint and is_import else AttributeError(message)
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
