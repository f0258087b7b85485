"""Cost-sensitive classification of rare events with calibrated probabilities.

State what a miss is worth; get decisions at that price, calibrated probabilities, and evidence on unseen rows that the
decisions follow that price. Public names load on first use: ``import crcen`` imports neither torch nor scikit-learn nor
pandas. `__init__.pyi` lists them with their modules.
"""

import os
import sys
from importlib import import_module
from typing import Any

# Documented names that are imported from their module: results of functions, and functions that few users call.
_SUBMODULE_NAMES = {
    "crcen.commands.certify": "Certificate Declaration Verification generate_key read_declaration",
    "crcen.commands.compare": "ModelComparison",
    "crcen.commands.demo": "Demo demo",
    "crcen.commands.environment": "EnvironmentInfo environment_info",
    "crcen.commands.evaluate": "TableEvaluation",
    "crcen.commands.export": "OnnxExport",
    "crcen.commands.fit": "TableFit",
    "crcen.commands.fit_files": "FilesFit",
    "crcen.commands.look": "TableLook",
    "crcen.commands.monitor": "TableWatch",
    "crcen.commands.plan": "TablePlan",
    "crcen.commands.predict": "TablePredictions",
    "crcen.commands.report": "TableReport",
    "crcen.commands.split": "TableSplit",
    "crcen.datasets.benchmark": "Dataset DatasetListing",
    "crcen.datasets.simulated": "RareEvents sim1_posterior sim2_posterior",
    "crcen.decisions.decide": "DecisionSummary",
    "crcen.decisions.drift": "DriftAlarm MonitorReading",
    "crcen.decisions.expense_curve": "ChosenWeighting EquivalenceReport equivalence_report",
    "crcen.exceptions": "DataUnavailable DeviceMissing MissingExtra TrainingFailed",
    "crcen.files.model_file": "ModelInfo",
    "crcen.models.fitted": "Stationarity",
    "crcen.paper.methods": "Method NetworkTraining make_method",
    "crcen.paper.estimators": "MovedThresholdClassifier ResampledClassifier",
    "crcen.report.displays": "DecisionCurveDisplay ExpenseCurveDisplay KeyEquationDisplay",
    "crcen.tables.columns": "EncodedTable",
    "crcen.tables.reading": "Table open_table",
    "crcen.tables.writing": "TableWriter",
    "crcen.theory.expense": "ExpenseStep ExpenseTable",
    "crcen.theory.key_equation": "EquationTest KeyEquation MeanBounds class_means copies_per_positive mean_bounds "
    "mean_pos_given recall_bound specificity_bound",
    "crcen.theory.metrics": "ConfusionCounts Quality",
    "crcen.theory.price": "Price sigmoid weighted_probability",
    "crcen.theory.residual_test": "TrainingError",
    "crcen.training.engine": "train",
    "crcen.training.engines": "find_engine",
    "crcen.training.jobs": "Status TrainingJob TrainingResult TrainingState",
    "crcen.training.network": "Network",
}
with open(os.path.join(os.path.dirname(__file__), "__init__.pyi"), encoding="utf-8") as _stub:
    # Lines are "from MODULE import NAME as NAME".
    _MODULE_OF = {line.split()[-1]: line.split()[1] for line in _stub if line.startswith("from ")}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        module = next((module for module, names in _SUBMODULE_NAMES.items() if name in names.split()), None)
        hint = f": import it from {module}" if module else ""
        message = f"module 'crcen' has no attribute {name!r}{hint}"
        # ``from crcen import name`` replaces the message of an AttributeError, but not that of an ImportError.
        is_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise ImportError(message, name="crcen") if hint and is_import else AttributeError(message)
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
