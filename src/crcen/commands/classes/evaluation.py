"""evaluate_table for several classes: decisions and what they cost, key equations by class and pair, the checks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput
from crcen._support.text import listed
from crcen._support.values import json_value
from crcen.commands.conditions import least_shares, warned_codes
from crcen.commands.decided_rows import collected_amounts
from crcen.commands.group_columns import group_columns, group_lines, group_values, unequal_groups
from crcen.commands.inputs import Source, check_column
from crcen.commands.model_rows import model_rows
from crcen.commands.prices import refuse_two_class_options, stated_costs
from crcen.commands.row_watch import RowWatch, unlike_lines
from crcen.commands.scored_chunks import class_chunks, labelled_scores
from crcen.report.checks import CHECKS, examine
from crcen.report.evidence import compared_groups, evidence_of, gather
from crcen.report.measurements import quality_of
from crcen.theory.groups import GroupComparison
from crcen.theory.key_equation import EquationTest
from crcen.theory.metrics import Quality
from crcen.theory.rows import Shown

__all__ = ["ClassEvaluation", "evaluate_classes", "scored_classes"]


@dataclass(frozen=True, eq=False)
class ClassEvaluation(Shown):
    """A model of several classes on labelled rows; prints itself.

    Parameters
    ----------
    data, target : str
        The rows.
    n_rows : int
        Rows with a label.
    quality : Quality
        Decisions at the costs, what they cost, recall and precision of each class.
    equations : EquationTest
        The key equations at the weights of training, by class, together and in pairs.
    findings : tuple of Finding
        Every check with its outcome.
    notes : tuple of str
        What was odd about the table.
    unlike : tuple of Difference
        In what the rows differ from training rows beyond chance.
    recognition : Recognition or None
        Whether they are training rows; None where the model cannot know.
    groups : tuple of GroupComparison
        Costs and key equations of groups and whether they differ beyond noise, by column.
    failures : tuple of str
        Conditions that are not kept, a sentence each.
    """

    data: str
    target: str
    n_rows: int
    quality: Quality
    equations: EquationTest
    findings: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    unlike: tuple[Any, ...] = ()
    recognition: Any = None
    groups: tuple[GroupComparison, ...] = ()
    failures: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "data": self.data,
            "target": self.target,
            "rows": self.n_rows,
            "labels": [json_value(label) for label in self.quality.labels],
            **self.quality.to_dict(),
            "key_equations": self.equations.to_dict(),
            "findings": [one.to_dict() for one in self.findings],
            "notes": list(self.notes),
            "unlike": [one.to_dict() for one in self.unlike],
            "training_rows": None if self.recognition is None else self.recognition.to_dict(),
            "groups": [one.to_dict() for one in self.groups],
            "failures": list(self.failures),
        }

    def __str__(self) -> str:
        warned = [one for one in self.findings if one.status == "warning"]
        lines = [
            f"{self.data}: {self.n_rows:,} rows, {len(self.quality.labels)} classes of {self.target}",
            "",
            *self.quality.lines(),
            "",
            *self.equations.lines(),
            "",
            *(f"{one.code}  {one.title}: {one.measured}." for one in warned),
            *group_lines(self.groups),
            *(f"Note: {note}." for note in self.notes),
            *unlike_lines(self.unlike),
            *(f"Failed: {one}." for one in self.failures),
        ]
        return "\n".join(lines).rstrip()

    def __repr__(self) -> str:
        return (
            f"<ClassEvaluation of {self.n_rows:,} rows: cost a row {self.quality.cost.value:.4g}, key equations "
            f"{self.equations.verdict}>"
        )


def scored_classes(
    model: Any, source: Source, target: str, verbose: int = 0, kept: dict[str, list[Any]] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64], list[str], RowWatch]:
    """Class numbers and posteriors (n, K) of the rows with a label, what was odd, and how they are beside training."""
    y, p, odd, unlabelled = labelled_scores(class_chunks, model, source, target, verbose, kept)
    if not len(y):
        raise InvalidInput(f"{source.name} has no row with a value of {target}.")
    if len(np.unique(y)) < 2:
        raise InvalidInput(
            f"an evaluation needs rows of several classes: {source.name} has only {model.classes_[y[0]]} in {target}."
        )
    notes = [*source.notes, *odd.notes]
    if unlabelled:
        notes.insert(0, f"{unlabelled} rows without a value of {target} were left out")
    absent = [str(label) for k, label in enumerate(model.classes_.tolist()) if not (y == k).any()]
    if absent:
        notes.append(f"{listed(absent)} {'has' if len(absent) == 1 else 'have'} no row here")
    return y, p, notes, odd.watch


def evaluate_classes(
    model: Any,
    source: Source,
    target: str,
    *,
    weighting: Any,
    costs: Any,
    weight: str | None,
    groups: Any,
    codes: tuple[str, ...],
    fail_on: Any,
    min_recall: float | None,
    min_precision: float | None,
    verbose: int,
    others: dict[str, Any],
) -> ClassEvaluation:
    """Judge a model of several classes; ``others`` are options of two classes, refused where they are set."""
    refuse_two_class_options(model, others)
    rule = stated_costs(weighting, costs, model)
    names = group_columns(groups, source, target)
    kept: dict[str, list[Any]] = {name: [] for name in names}
    if weight is not None:
        kept[check_column(weight, source.columns, "weight", source.name)] = []
    y, p, notes, watch = scored_classes(model, source, target, verbose, kept)
    weights = None if weight is None else collected_amounts(kept[weight], "weight")
    recognition = watch.recognition()
    known = {"known_rows": recognition, "costs": rule}
    evidence = evidence_of(model, y, p, weights, **known)
    of_columns = {"CRC006", "CRC009"} & {*codes}
    if of_columns:
        frame = source.read()
        X = model_rows(model, frame[frame[target].notna()].reset_index(drop=True), {target})
        evidence = gather(model, X, model.classes_[y], weights, **known)
    findings = examine(evidence, {*CHECKS} - {"CRC006", "CRC009"} | of_columns)
    quality, equations = evidence.of(quality_of), evidence.equations
    compared = compared_groups(evidence, {name: group_values(kept[name]) for name in names})
    broken = _failures(findings, codes, quality, min_recall, min_precision)
    return ClassEvaluation(
        data=source.name,
        target=target,
        n_rows=len(y),
        quality=quality,
        equations=equations,
        findings=findings,
        notes=tuple([*(recognition.notes if recognition else ()), *notes]),
        unlike=watch.unlike(0, -1, None),
        recognition=recognition,
        groups=compared,
        failures=(*broken, *unequal_groups(compared, codes, fail_on)),
    )


def _failures(
    findings: tuple[Any, ...],
    codes: tuple[str, ...],
    quality: Quality,
    min_recall: float | None,
    min_precision: float | None,
) -> tuple[str, ...]:
    """A sentence for each condition that is not kept; recall and precision are those of every class."""
    broken = warned_codes(findings, codes)
    by_name = {"recall": quality.recalls, "precision": quality.precisions}
    for name, least in least_shares(min_recall, min_precision).items():
        for label, share in zip(quality.labels, by_name[name], strict=True):
            if share.value < least:  # a class without rows or decisions breaks nothing
                broken.append(f"{name} of {label} is {share.value:.4g}, below {least:g}")
    return tuple(broken)
