"""evaluate_table: metrics with intervals, the key equation and the expense of a model on rows it has not seen."""

import math
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import ClassWeighting, ConfusionCounts, ExpenseCurve, InvalidInput, key_equation, weighted_probability
from crcen._support.progress import counted
from crcen.theory.judgements import (
    FEWEST_OF_A_CLASS,
    EquationTest,
    fitted_model_noise,
    judge_equation,
    judge_share,
)
from crcen.workflow.inputs import Source, labels_as, model_of, plain, price_of, source_of, target_of
from crcen.workflow.prices import plain_price, prices_around, step_lines, step_values
from crcen.workflow.quality import METRICS, Measured, ScoredRows, count_sentence, count_values, too_good
from crcen.workflow.row_watch import RowWatch, unlike_lines
from crcen.workflow.scored_chunks import CHUNK_ROWS, Oddities, scored_chunks

__all__ = ["TableEvaluation", "evaluate_table", "scored_rows"]

Array = NDArray[np.float64]


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
    counts : ConfusionCounts
        What was found, missed and alarmed for nothing at that price.
    quality : dict of str to Measured
        Metrics with intervals.
    equation : EquationTest
        The key equation at the weighting of training.
    expense : ExpenseCurve
        What catches cost between half the price, the price and twice the price.
    noise : float
        As `crcen.theory.judgements.fitted_model_noise` gives it: how much more new rows vary than under the truth.
    notes : tuple of str
        What was odd about the table.
    unlike : tuple of Difference
        In what the rows differ from training rows beyond chance.
    recognition : Recognition or None
        Whether they are training rows; None where the model cannot know.
    """

    data: str
    target: str
    n_rows: int
    n_pos: int
    positive: Any
    price: ClassWeighting
    counts: ConfusionCounts
    quality: dict[str, Measured]
    equation: EquationTest
    expense: ExpenseCurve
    noise: float = 1.0
    notes: tuple[str, ...] = ()
    unlike: tuple[Any, ...] = ()
    recognition: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "data": self.data,
            "target": self.target,
            "rows": self.n_rows,
            "positives": self.n_pos,
            "positive": plain(self.positive),
            "cost_ratio": plain_price(self.price.cost_ratio),
            "threshold": plain_price(self.price.threshold),
            "counts": count_values(self.counts),
            "metrics": {name: one.to_dict() for name, one in self.quality.items()},
            "key_equation": self.equation.to_dict(),
            "expense": step_values(self.expense, self.noise),
            "notes": list(self.notes),
            "unlike": [one.to_dict() for one in self.unlike],
            "training_rows": None if self.recognition is None else self.recognition.to_dict(),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.data}: {self.n_rows:,} rows, {self.n_pos:,} with {self.target} = {self.positive}",
            f"Price {self.price.cost_ratio:.6g} false alarms per catch: an alarm above probability "
            f"{self.price.threshold:.6g}",
            f"At that price: {count_sentence(self.counts)}",
            "",
            "Metrics (95 % bootstrap interval)" if self._has_intervals else "Metrics",
            *(f"  {METRICS[name]:<24} {one}" for name, one in self.quality.items()),
            "",
            f"Key equation {self.equation.verdict}: {self.equation}",
            "",
            "What one more catch costs, beside what right probabilities would make it cost",
            *step_lines(self.expense, self.noise),
            *(f"Note: {note}." for note in self.notes),
            *unlike_lines(self.unlike),
        ]
        return "\n".join(lines)

    @property
    def _has_intervals(self) -> bool:
        return any(not math.isnan(one.low) for one in self.quality.values())

    def __repr__(self) -> str:
        return (
            f"<TableEvaluation of {self.n_rows:,} rows: {count_sentence(self.counts)}, key equation "
            f"{self.equation.verdict}>"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def scored_rows(
    model: Any, source: Source, target: str, verbose: int = 0
) -> tuple[NDArray[np.bool_], Array, list[str], RowWatch]:
    """Labels and posteriors of the rows with a label, what was odd about the table, and how it is beside training."""
    odd, labels, scores, unlabelled = Oddities.none(model, recognises=True), [], [], 0
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
    return y, p, notes, odd.watch


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
    y, p, notes, watch = scored_rows(model, source, target, verbose)
    recognition = watch.recognition()
    rows = ScoredRows(y, p, price.threshold)
    with counted("resamples", n_resamples, visible=bool(verbose)) as done:
        quality = rows.measured(n_resamples, random_state, done)
    trained = model.weighting_
    noise = fitted_model_noise(len(y), trained)
    return TableEvaluation(
        data=source.name,
        target=target,
        n_rows=len(y),
        n_pos=int(y.sum()),
        positive=model.pos_label_,
        price=price,
        counts=rows.counts,
        quality=quality,
        equation=judge_equation(key_equation(y, weighted_probability(p, trained), trained), noise, _n_rarer(y)),
        expense=ExpenseCurve.from_predictions(y, p, prices_around(price), random_state=random_state),
        noise=noise,
        notes=tuple(
            [*(recognition.notes if recognition else ()), *notes, *_warnings(y, quality["roc_auc"].value, trained)]
        ),
        unlike=watch.unlike(int((p > price.threshold).sum()), len(p), price),
        recognition=recognition,
    )


def _n_rarer(y: NDArray[np.bool_]) -> int:
    return min(int(y.sum()), int((~y).sum()))


def _warnings(y: NDArray[np.bool_], roc_auc: float, trained: ClassWeighting) -> list[str]:
    """Notes for what the report warns of under CRC004 and CRC005."""
    said, n_pos = [], float(y.sum())
    share = judge_share(n_pos, len(y) - n_pos, trained)
    if share.has_moved:
        said.append(
            f"the share of positives is {share.share:.3g} here and was {share.before:.3g} in training, more than "
            "chance allows: tests and prices assume the same ratio (CRC004)"
        )
    if _n_rarer(y) < FEWEST_OF_A_CLASS:
        return said
    return [*said, *too_good(roc_auc, "a column that is filled in after the event, or rows that were in training")]
