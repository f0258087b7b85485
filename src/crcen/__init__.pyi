"""Public names of crcen: `__init__.py` reads this file, and type checkers do."""

from crcen._version import __version__ as __version__
from crcen.commands.certify import certify as certify
from crcen.commands.certify import declare as declare
from crcen.commands.certify import verify as verify
from crcen.commands.compare import compare_models as compare_models
from crcen.commands.evaluate import evaluate_table as evaluate_table
from crcen.commands.export import export_onnx as export_onnx
from crcen.commands.fit import fit_table as fit_table
from crcen.commands.fit_files import fit_files as fit_files
from crcen.commands.look import inspect_table as inspect_table
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
from crcen.decisions.decide import cost_scorer as cost_scorer
from crcen.decisions.decide import decide as decide
from crcen.decisions.decide import decision_summary as decision_summary
from crcen.decisions.expense_curve import ExpenseCurve as ExpenseCurve
from crcen.decisions.expense_curve import choose_weighting as choose_weighting
from crcen.decisions.model_uncertainty import training_error as training_error
from crcen.decisions.monitor import KeyEquationMonitor as KeyEquationMonitor
from crcen.decisions.posterior_correction import PosteriorCorrection as PosteriorCorrection
from crcen.decisions.posterior_correction import correct_proba as correct_proba
from crcen.exceptions import CrcenError as CrcenError
from crcen.exceptions import InvalidInput as InvalidInput
from crcen.exceptions import InvalidParameter as InvalidParameter
from crcen.files.model_file import load as load
from crcen.files.model_file import model_info as model_info
from crcen.files.model_file import save as save
from crcen.models.classifier import CRCENClassifier as CRCENClassifier
from crcen.models.classifier import ModuleClassifier as ModuleClassifier
from crcen.models.committee import CommitteeClassifier as CommitteeClassifier
from crcen.models.fitted import stationarity as stationarity
from crcen.models.options import Calibration as Calibration
from crcen.models.options import Search as Search
from crcen.models.search.classifier_cv import CRCENClassifierCV as CRCENClassifierCV
from crcen.models.search.folds import TimeSplit as TimeSplit
from crcen.paper.estimators import CSMLPClassifier as CSMLPClassifier
from crcen.paper.methods import METHODS as METHODS
from crcen.report.page import write_report as write_report
from crcen.scale.ray import fit_ray as fit_ray
from crcen.scale.stream import fit_stream as fit_stream
from crcen.tables.classifier import TableClassifier as TableClassifier
from crcen.tables.locations import ReadOptions as ReadOptions
from crcen.theory.balance import balance_shift as balance_shift
from crcen.theory.cost_matrix import CostMatrix as CostMatrix
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
from crcen.theory.price import posterior as posterior
from crcen.theory.price import resolve as resolve
from crcen.training.recipe import Inputs as Inputs
from crcen.training.recipe import Schedule as Schedule

# Documented names that are imported from their module: results of functions, and functions that few users call.
# from crcen.commands.certify import Certificate Declaration Verification generate_key read_declaration
# from crcen.commands.compare import ModelComparison
# from crcen.commands.demo import Demo demo
# from crcen.commands.environment import EnvironmentInfo environment_info
# from crcen.commands.evaluate import TableEvaluation
# from crcen.commands.export import OnnxExport
# from crcen.commands.fit import TableFit
# from crcen.commands.fit_files import FilesFit
# from crcen.commands.look import TableLook
# from crcen.commands.monitor import TableMonitoring
# from crcen.commands.plan import TablePlan
# from crcen.commands.predict import TablePredictions
# from crcen.commands.report import TableReport
# from crcen.commands.split import TableSplit
# from crcen.datasets.benchmark import Dataset DatasetListing
# from crcen.datasets.simulated import RareEvents sim1_posterior sim2_posterior
# from crcen.decisions.decide import DecisionSummary
# from crcen.decisions.drift import DriftAlarm MonitorReading
# from crcen.decisions.expense_curve import ChosenWeighting
# from crcen.exceptions import DataUnavailable DeviceMissing MissingExtra TrainingFailed
# from crcen.files.model_file import ModelInfo
# from crcen.models.fitted import Stationarity
# from crcen.paper.methods import Method NetworkTraining make_method
# from crcen.paper.estimators import MovedThresholdClassifier ResampledClassifier
# from crcen.report.displays import DecisionCurveDisplay ExpenseCurveDisplay
# from crcen.tables.columns import EncodedTable
# from crcen.tables.reading import Table open_table
# from crcen.tables.writing import TableWriter
# from crcen.theory.expense import ExpenseStep ExpenseTable
# from crcen.theory.key_equation import EquationTest KeyEquation MeanBounds class_means copies_per_positive
# from crcen.theory.key_equation import mean_bounds mean_pos_given recall_bound specificity_bound
# from crcen.theory.metrics import ConfusionCounts Quality
# from crcen.theory.price import Price sigmoid weighted_probability
# from crcen.theory.residual_test import TrainingError
# from crcen.training.engine import train
# from crcen.training.engines import find_engine
# from crcen.training.jobs import Status TrainingJob TrainingResult TrainingState
# from crcen.training.network import Network
