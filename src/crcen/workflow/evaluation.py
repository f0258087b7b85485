"""evaluate_table: metrics with intervals, the key equation and the expense of a model on rows it has not seen."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import (
    ClassWeighting,
    ExpenseCurve,
    InvalidInput,
    KeyEquation,
    key_equation,
    weighted_probability,
)
from crcen.workflow.inputs import Source, labels_as, model_of, plain, price_of, source_of, target_of
from crcen.workflow.prediction import CHUNK_ROWS, Oddities, scored_chunks
from crcen.workflow.prices import prices_around, step_lines, step_values
from crcen.workflow.progress import counted
from crcen.workflow.quality import METRICS, Measured, ScoredRows

__all__ = ["EquationTest", "TableEvaluation", "evaluate_table", "scored_rows"]

Array = NDArray[np.float64]

_LEVEL = 0.05


@dataclass(frozen=True)
class EquationTest:
    """The key equation on new rows, tested.

    Parameters
    ----------
    equation : KeyEquation
        Both sides and Z, as if probabilities were known without error.
    z, p_value : float
        The same for a model fitted on ``n_train`` rows: Z over √(1 + n/n_train). NaN where there is no test.
    """

    equation: KeyEquation
    z: float
    p_value: float

    @property
    def verdict(self) -> str:
        """What the test says: "holds", "does not hold" (p-value below 0.05) or "not tested"."""
        if math.isnan(self.p_value):
            return "not tested"
        return "does not hold" if self.p_value < _LEVEL else "holds"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        names = {"left": self.equation.lhs, "right": self.equation.rhs, "residual": self.equation.residual}
        values = {**names, "z": self.z, "p_value": self.p_value}
        return {**{name: plain(value) for name, value in values.items()}, "verdict": self.verdict}


@dataclass(frozen=True, eq=False)
class TableEvaluation:
    """A model on labelled rows; prints itself.

    Parameters
    ----------
    data, target : str
        The rows.
    n_rows, n_pos : int
        Rows with a label, and positive ones.
    positive : label
        The positive class.
    price : ClassWeighting
        The price of the decisions.
    quality : dict of str to Measured
        Metrics with intervals.
    equation : EquationTest
        The key equation at the weighting of training.
    expense : ExpenseCurve
        What catches cost between half the price, the price and twice the price.
    notes : tuple of str
        What was odd about the table.
    """

    data: str
    target: str
    n_rows: int
    n_pos: int
    positive: Any
    price: ClassWeighting
    quality: dict[str, Measured]
    equation: EquationTest
    expense: ExpenseCurve
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "data": self.data,
            "target": self.target,
            "rows": self.n_rows,
            "positives": self.n_pos,
            "positive": plain(self.positive),
            "cost_ratio": self.price.cost_ratio,
            "threshold": self.price.threshold,
            "metrics": {name: one.to_dict() for name, one in self.quality.items()},
            "key_equation": self.equation.to_dict(),
            "expense": step_values(self.expense),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.data}: {self.n_rows:,} rows, {self.n_pos:,} with {self.target} = {self.positive}",
            f"Price {self.price.cost_ratio:.6g} false alarms per catch: an alarm above probability "
            f"{self.price.threshold:.6g}",
            "",
            "Metrics (95 % bootstrap interval)",
            *(f"  {METRICS[name]:<24} {one}" for name, one in self.quality.items()),
            "",
            f"Key equation {self.equation.verdict}: left side {self.equation.equation.lhs:.4g}, right side "
            f"{self.equation.equation.rhs:.4g}" + self._test(),
            "",
            "What one more catch costs, beside what right probabilities would make it cost",
            *step_lines(self.expense),
            *(f"Note: {note}." for note in self.notes),
        ]
        return "\n".join(lines)

    def _test(self) -> str:
        if math.isnan(self.equation.z):
            return f" ({self.equation.equation.z_reason})"
        return f" (z {self.equation.z:.2f}, p-value {self.equation.p_value:.3g})"


def scored_rows(
    model: Any, source: Source, target: str, verbose: int = 0
) -> tuple[NDArray[np.bool_], Array, list[str]]:
    """Labels and posteriors of the rows with a label, and what was odd about the table."""
    odd, labels, scores, unlabelled = Oddities.none(), [], [], 0
    with counted("rows", source.n_rows, visible=bool(verbose)) as done:
        for chunk, p in scored_chunks(model, source, odd, {target}, CHUNK_ROWS):
            known = chunk[target].notna().to_numpy()
            unlabelled += int((~known).sum())
            labels.append(labels_as(chunk[target][known], model.classes_, target))
            scores.append(p[known])
            done(len(p))
    y, p = model.classes_[np.concatenate(labels)] == model.pos_label_, np.concatenate(scores)
    if not len(y):
        raise InvalidInput(f"{source.name} has no row with a value of {target}.")
    if not y.any() or y.all():
        raise InvalidInput(
            f"an evaluation needs rows of both classes: {source.name} has {int(y.sum())} of {model.pos_label_} among "
            f"{len(y)} labelled rows."
        )
    notes = [*source.notes, *odd.notes]
    if unlabelled:
        notes.insert(0, f"{unlabelled} rows without a value of {target} were left out")
    return y, p, notes


def evaluate_table(
    model: Any,
    data: Any,
    *,
    target: str | None = None,
    weighting: Any = None,
    n_resamples: int = 500,
    random_state: int = 0,
    verbose: int = 0,
) -> TableEvaluation:
    """Judge a model on labelled rows that it was not trained on: what `crcen evaluate` does.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    data : data frame, str or Path
        Rows at the natural class ratio.
    target : str, optional
        Column with the labels; by default that of training.
    weighting : Budget, CostRatio, Lam, Alpha, "balanced" or float, optional
        Another price of decisions than that of training.
    n_resamples : int, default=500
        Resamples of the bootstrap; 0 for no intervals of the metrics.
    random_state : int, default=0
        Seed of the bootstrap.
    verbose : int, default=0
        1 shows progress on a terminal.

    Returns
    -------
    TableEvaluation
        Metrics with intervals, the key equation tested, the expense around the price with verdicts.
    """
    model = model_of(model)
    price = price_of(weighting, model)
    source = source_of(data)
    target = target_of(target, model, source)
    y, p, notes = scored_rows(model, source, target, verbose)
    with counted("resamples", n_resamples, visible=bool(verbose)) as done:
        quality = ScoredRows(y, p, price.threshold).measured(n_resamples, random_state, done)
    return TableEvaluation(
        data=source.name,
        target=target,
        n_rows=len(y),
        n_pos=int(y.sum()),
        positive=model.pos_label_,
        price=price,
        quality=quality,
        equation=_tested(y, p, model.weighting_),
        expense=ExpenseCurve.from_predictions(y, p, prices_around(price), random_state=random_state),
        notes=tuple([*notes, *_moved_share(y, model.weighting_)]),
    )


def _tested(y: NDArray[np.bool_], p: Array, trained: ClassWeighting) -> EquationTest:
    equation = key_equation(y, weighted_probability(p, trained), trained)
    z = equation.z / math.sqrt(1.0 + len(y) / (trained.n_pos + trained.n_neg))
    return EquationTest(equation, z, math.erfc(abs(z) / math.sqrt(2.0)) if not math.isnan(z) else math.nan)


def _moved_share(y: NDArray[np.bool_], trained: ClassWeighting) -> list[str]:
    """A note where the share of positives is not that of training, beyond chance."""
    n_train, n = trained.n_pos + trained.n_neg, len(y)
    before, now = trained.n_pos / n_train, float(y.mean())
    pooled = (trained.n_pos + float(y.sum())) / (n_train + n)
    z = (now - before) / math.sqrt(pooled * (1.0 - pooled) * (1.0 / n_train + 1.0 / n))
    if abs(z) < 3.0:
        return []
    return [
        f"the share of positives is {now:.3g} here and was {before:.3g} in training, more than chance allows: "
        f"tests and prices assume the same ratio"
    ]
