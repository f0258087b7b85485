"""What there is to say of a fit on a table with several classes: decisions out of fold, and what they cost."""

import time as clock
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crcen import TableClassifier, export_onnx, save, write_report
from crcen._support.text import listed
from crcen._support.values import json_value
from crcen.commands.inputs import Rows, labels_as
from crcen.commands.learners import learner_lines, learner_values
from crcen.commands.prices import own_costs
from crcen.theory.limits import is_nearly_separated
from crcen.theory.metrics import Quality, measure_quality
from crcen.theory.rows import Shown, in_one_line

__all__ = ["ClassTableFit", "MOST_CLASSES", "judged_class_fit"]

# A target with more values is rather a number or a name than a class.
MOST_CLASSES = 50
_FEW = 10
# From where on balanced weights are pointed out.
_MOST_UNEVEN = 100.0


@dataclass(frozen=True, eq=False)
class ClassTableFit(Shown):
    """A fitted table of several classes, with its out-of-fold evidence; prints itself.

    Parameters
    ----------
    model : TableClassifier
        Ready to predict.
    data, target : str
        What it was fitted on.
    n_rows : int
        Rows with a label.
    validation : str
        How rows were held out.
    n_validated : int
        Rows that were held out once.
    quality : Quality
        Decisions of out-of-fold rows at the costs, and what they cost.
    seconds : float
        Time of reading, encoding and fitting.
    notes : tuple of str
        What a person should know.
    path, onnx, report : Path or None
        Where the model was saved, where its ONNX graph is, and where the report.
    """

    model: TableClassifier
    data: str
    target: str
    n_rows: int
    validation: str
    n_validated: int
    quality: Quality
    seconds: float
    notes: tuple[str, ...] = ()
    path: Path | None = None
    onnx: Path | None = None
    report: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        model, equation = self.model, self.model.estimator_.oof_key_equation_
        labels = [json_value(label) for label in model.classes_.tolist()]
        error = getattr(model, "training_error_", None)
        return {
            "data": self.data,
            "target": self.target,
            "classes": labels,
            "rows": {"all": self.n_rows, "by_class": model.weighting_.counts.tolist()},
            "columns_read": [*map(str, model.feature_names_in_), self.target],
            "columns_used": [column.name for column in model.columns_],
            "columns": [column.describe() for column in model.columns_],
            "dropped": [{"name": one.name, "reason": one.reason} for one in model.dropped_],
            "n_encoded": len(model.encoded_names_),
            "class_weights": None if model.costs_ is not None else model.weighting_.weights.tolist(),
            **learner_values(model.estimator_),
            "validation": {"how": self.validation, "rows": self.n_validated},
            "key_equations": {
                "out": equation.lhs.tolist(),
                "in": equation.rhs.tolist(),
                "residuals": equation.residuals.tolist(),
                "shifts": np.asarray(model.estimator_.oof_shift_).tolist(),
            },
            "out_of_fold": self.quality.to_dict(),
            "training_error": None if error is None else error.sizes.tolist(),
            "seconds": self.seconds,
            "notes": list(self.notes),
            "path": None if self.path is None else str(self.path),
            "onnx": None if self.onnx is None else str(self.onnx),
            "report": None if self.report is None else str(self.report),
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        model, error = self.model, getattr(self.model, "training_error_", None)
        kinds = [column.kind for column in model.columns_]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        lines = [
            f"{self.data}: {self.n_rows:,} rows, {understood(self.model, self.target)}",
            "",
            f"Columns   {len(model.columns_)} used ({counted}; {len(model.encoded_names_)} inputs), "
            f"{len(model.dropped_)} left out",
            *(f"  {one.name:<20} left out: {one.reason}" for one in model.dropped_),
            *learner_lines(model.estimator_, self.validation),
            "",
            *price_lines(model),
            "",
            f"On {self.n_validated:,} rows held out of training",
            *(f"  {line}" if line else "" for line in self.quality.lines()),
            *([] if error is None else [f"  own error: {error}"]),
            "",
            *(f"Note: {note}." for note in self.notes),
            f"{self.seconds:.1f} s"
            + ("" if self.path is None else f", saved to {self.path}")
            + ("" if self.onnx is None else f", as ONNX to {self.onnx}")
            + ("" if self.report is None else f", the report on rows held out to {self.report}"),
        ]
        return "\n".join(lines)


def understood(model: Any, target: str) -> str:
    """How many classes there are, which ones, and how many rows each had: the rarest last."""
    counts = model.weighting_.counts
    order = np.argsort(-counts, kind="stable")
    labels = model.classes_.tolist()
    shown = ", ".join(f"{labels[k]} {counts[k]:,.6g}" for k in order[:12])
    more = (
        f" and {len(order) - 12} more, down to {labels[order[-1]]} {counts[order[-1]]:,.6g}" if len(order) > 12 else ""
    )
    return f"{len(labels)} classes of {target}: {shown}{more}"


def price_lines(model: Any) -> list[str]:
    """What decisions are made by: the matrix, or the weights of the classes."""
    if getattr(model, "costs_", None) is not None:
        return ["Costs     of every decision for every truth", *(f"  {line}" for line in str(model.costs_).split("\n"))]
    pairs = zip(model.classes_.tolist(), model.weighting_.weights.tolist(), strict=True)
    listed = ", ".join(f"{label} {weight:.4g}" for label, weight in pairs)
    return [f"Weights   {listed}; each mistake on a class costs its weight, and so decisions are made"]


def judged_class_fit(
    model: TableClassifier,
    rows: Rows,
    weights: Any,
    *,
    data: str,
    validation: str,
    notes: list[str],
    start: float,
    out: Any,
    onnx: Any,
    report: Any,
) -> ClassTableFit:
    """Judge a fitted model of several classes by its answers to rows that were held out, and write its files."""
    target = str(rows.y.name)
    numbers = labels_as(rows.y, model.classes_, target)
    p = model.estimator_.oof_proba_
    seen = np.isfinite(p).all(axis=1)
    held_out = None if weights is None else weights[seen]
    quality = measure_quality(numbers[seen], p[seen], own_costs(model), held_out)
    counts = np.bincount(numbers, minlength=len(model.classes_))
    rare = [str(model.classes_[k]) for k in np.flatnonzero(counts < _FEW)]
    if rare:
        have = "has" if len(rare) == 1 else "have"
        notes.append(f"{listed(rare)} {have} fewer than {_FEW} rows, too few to trust any figure of it")
    notes += getattr(model.estimator_, "search_notes_", [])
    notes += _uneven(model)
    known = [one.value for one in quality.areas if np.isfinite(one.value)]
    if known and is_nearly_separated(min(known)):
        notes.append(
            f"every class is told from the rest almost without an error (ROC AUC at least {min(known):.5g}): look for "
            f"a column that is filled in after the event (CRC005)"
        )
    if quality.saved.value < 0.0:
        notes.append(
            f"deciding {quality.habit} for every row costs less than these decisions: the columns say too little"
        )
    return ClassTableFit(
        model=model,
        data=data,
        target=target,
        n_rows=len(rows.y),
        validation=validation,
        n_validated=int(seen.sum()),
        quality=quality,
        seconds=clock.perf_counter() - start,
        notes=tuple(notes),
        path=None if out is None else save(model, out),
        onnx=None if onnx is None else export_onnx(model, onnx).path,
        report=None if report is None else _reported(model, rows, seen, held_out, report, data),
    )


def _uneven(model: TableClassifier) -> list[str]:
    """A note where balanced weights make a row of a rare class worth very many of another."""
    weights = model.weighting_.weights
    dear, cheap = int(np.argmax(weights)), int(np.argmin(weights))
    is_stated = model.costs_ is not None or getattr(model.estimator_, "weighting", None) != "balanced"
    if is_stated or weights[dear] < _MOST_UNEVEN * weights[cheap]:
        return []
    ratio = f"{weights[dear] / weights[cheap]:,.0f} of {model.classes_[cheap]}"
    return [
        f"by balanced weights one row of {model.classes_[dear]} counts as much as {ratio}; where mistakes do not cost "
        f"that, state costs or weights of the classes"
    ]


def _reported(model: TableClassifier, rows: Rows, seen: Any, weights: Any, path: Any, data: str) -> Path:
    """The report on the rows that were held out, by the answers of the models that did not see them."""
    frame = rows.frame[[column.name for column in model.columns_]][seen].reset_index(drop=True)
    held_out = model.estimator_.oof_proba_[seen]
    options: dict[str, Any] = {"data_name": data, "out_of_fold": held_out, "sample_weight": weights}
    return write_report(model, frame, rows.y.to_numpy()[seen], path, **options).path
