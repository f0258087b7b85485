"""Every check of the report on a model and labelled rows, without the page."""

from typing import Any

from crcen.report.classes.class_importance import class_importance
from crcen.report.classes.findings import ClassRows, compared_groups, examine_classes
from crcen.report.classes.one_class import class_separations
from crcen.report.encoded_rows import encoded_rows
from crcen.report.evidence import gather
from crcen.report.finding import Finding
from crcen.report.findings import examine
from crcen.report.importance import permutation_importance
from crcen.report.measurements import key_equations
from crcen.report.operating_points import operating_points
from crcen.report.reliability_groups import reliability_groups
from crcen.report.single_columns import separations

__all__ = [
    "ClassRows",
    "check_model",
    "class_importance",
    "class_separations",
    "compared_groups",
    "encoded_rows",
    "examine_classes",
]


def check_model(model: Any, X: Any, y: Any, sample_weight: Any = None, random_state: int = 0) -> tuple[Finding, ...]:
    """The outcome of every check, as `crcen.write_report` shows them.

    Parameters
    ----------
    model, X, y, sample_weight, random_state
        As `crcen.write_report` takes them.
    """
    evidence = gather(model, X, y, sample_weight)
    points = operating_points(evidence.target, evidence.p, evidence.weights)
    groups = reliability_groups(evidence.target, evidence.p, evidence.q, evidence.weights)
    importances = permutation_importance(evidence, random_state)
    found = separations(evidence, random_state)
    return examine(evidence, points, groups, key_equations(evidence), found, importances)
