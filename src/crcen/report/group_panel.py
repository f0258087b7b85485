"""Groups on the page: the check whether one price serves them alike, and what is drawn of each."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.report.evidence import Evidence
from crcen.report.finding import Finding
from crcen.theory.groups import GROUP_ERROR_RATE, GroupComparison, compare_groups

__all__ = ["check_groups", "class_group_finding", "group_arrays", "group_finding", "group_tables"]

CODE = "CRC010"


def group_arrays(groups: Any, n_rows: int) -> dict[str, NDArray[np.object_]]:
    """The group of every row, by column; none where no groups were named."""
    if not groups:
        return {}
    if not isinstance(groups, Mapping):
        raise InvalidParameter(f"groups must be a dict of names and arrays: got {type(groups).__name__}.")
    columns = {str(name): np.asarray(values, dtype=object) for name, values in groups.items()}
    for name, values in columns.items():
        if values.shape != (n_rows,):
            raise InvalidInput(f"groups of {name} must have one value for each of the {n_rows} rows.")
    return columns


def check_groups(evidence: Evidence, groups: Mapping[str, ArrayLike] | None) -> tuple[GroupComparison, ...]:
    """Compare the groups that were named; none where none was."""
    columns, price = group_arrays(groups, evidence.n_rows), evidence.weighting
    weights = evidence.weights if evidence.is_weighted else None
    return compare_groups(columns, evidence.target, evidence.p, price, price, weights, noise=evidence.noise_factor)


def group_finding(comparisons: Sequence[GroupComparison]) -> Finding:
    """Whether groups differ in recall, precision or calibration beyond noise."""
    return _finding(
        "One price serves groups differently",
        comparisons,
        "Look at the panel of groups: where positives found over expected differ, the probabilities are wrong for a "
        "group, and columns or rows for it are lacking. Where they do not, the groups differ in how rare or how hard "
        "to find positives are, and one price finds them at the same cost each. Other prices for groups are a choice "
        "that people must make and may have to answer for; none is made here.",
    )


def class_group_finding(comparisons: Sequence[GroupComparison]) -> Finding:
    """The same for several classes."""
    return _finding(
        "The same costs serve groups differently",
        comparisons,
        "Look at the panel of groups: where rows found over expected differ, or the key equations fail for a group, "
        "the probabilities are wrong for it, and columns or rows for it are lacking. Where they do not, the groups "
        "differ in how common or how hard to tell the classes are. Other costs for groups are a choice that people "
        "must make and may have to answer for; none is made here.",
    )


def _finding(title: str, comparisons: Sequence[GroupComparison] | Sequence[GroupComparison], advice: str) -> Finding:
    limit = (
        f"a difference that chance gives in fewer than {GROUP_ERROR_RATE:g} of cases, over all groups, columns and "
        "figures together"
    )
    differing = [one for one in comparisons if one.differing]
    known = any(not math.isnan(test.p_value) for one in comparisons for test in one.tests)
    measured = "; ".join(one.sentence for one in differing or comparisons)
    if not known:
        measured = "too few rows of all groups but one to tell"
    status = "warning" if differing else ("passed" if known else "unknown")
    return Finding(CODE, title, status, measured, limit, advice if differing else "")


def group_tables(comparisons: Sequence[GroupComparison], price: float) -> list[dict[str, Any]]:
    """What the page shows of each column: figures with where their intervals begin and end, from 0 to 100."""
    return [
        {
            "column": one.column,
            "sentence": one.sentence,
            "differs": bool(one.differing),
            "overall_recall": one.overall_recall,
            "price": price,
            "groups": [
                {
                    **group.to_dict(),
                    "recall_bar": _bar(group.recall),
                    "precision_bar": _bar(group.precision),
                }
                for group in one.groups
            ],
        }
        for one in comparisons
    ]


def _bar(interval: Any) -> dict[str, float] | None:
    if math.isnan(interval.value):
        return None
    ends = (interval.low, interval.high)
    return {"at": round(100.0 * interval.value, 2), "from": round(100.0 * ends[0], 2), "to": round(100.0 * ends[1], 2)}
