"""predict_table for models of more than two classes: the decision and the probability of every class."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crcen import CostMatrix
from crcen._support.progress import counted
from crcen._support.values import json_value
from crcen.commands.alarm_reasons import AlarmReasons
from crcen.commands.inputs import Source
from crcen.commands.prices import refuse_two_class_options, stated_costs
from crcen.commands.row_watch import unlike_lines
from crcen.commands.scored_chunks import Oddities, class_chunks
from crcen.tables.writing import TableWriter, written_to

__all__ = ["ClassPredictions", "class_columns", "predict_classes"]

# Characters of a label in the name of its column.
_LONGEST = 60


@dataclass(frozen=True, eq=False)
class ClassPredictions:
    """What was decided between several classes; prints itself.

    Parameters
    ----------
    n_rows : int
        Rows scored.
    decided : dict of label to int
        How many rows got each decision.
    expected : dict of label to float
        Sum of the probabilities of each class: how many of them to expect among these rows.
    expected_cost : float
        What these decisions are expected to cost.
    costs : CostMatrix
        What they were made by.
    notes : tuple of str
        What was odd about the table.
    unlike : tuple of Difference
        In what the rows differ from training rows beyond chance.
    frame : DataFrame or None
        The rows, where they were not written to a file.
    path : Path or None
        The file.
    reasons : AlarmReasons or None
        Of how many rows there are reasons, and how exact they are.
    """

    n_rows: int
    decided: dict[Any, int]
    expected: dict[Any, float]
    expected_cost: float
    costs: CostMatrix
    notes: tuple[str, ...] = ()
    unlike: tuple[Any, ...] = ()
    frame: Any = None
    path: Path | str | None = None
    reasons: AlarmReasons | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; without the rows."""
        return {
            "rows": self.n_rows,
            "decided": {str(json_value(label)): count for label, count in self.decided.items()},
            "expected": {str(json_value(label)): total for label, total in self.expected.items()},
            "expected_cost": self.expected_cost,
            "costs": {
                "decisions": [str(json_value(name)) for name in self.decided],
                "matrix": self.costs.costs.tolist(),
            },
            "notes": list(self.notes),
            "unlike": [one.to_dict() for one in self.unlike],
            "reasons": None if self.reasons is None else self.reasons.class_summary,
            "path": None if self.path is None else str(self.path),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.n_rows:,} rows, decided between {len(self.expected)} classes",
            f"  {'':24}   decided  expected",
        ]
        for label, count in self.decided.items():
            share = f"{self.expected[label]:>10,.1f}" if label in self.expected else f"{'–':>10}"
            lines.append(f"  {label!s:24.24s} {count:>9,}{share}")
        mean = self.expected_cost / max(self.n_rows, 1)
        lines.append(f"expected cost {self.expected_cost:,.6g}, {mean:.4g} a row")
        lines += [self.reasons.class_line] if self.reasons is not None and self.reasons.number else []
        lines += [*(f"Note: {note}." for note in self.notes), *unlike_lines(self.unlike)]
        return "\n".join([*lines, *([] if self.path is None else [f"Written to {self.path}"])])


def class_columns(labels: Sequence[Any]) -> list[str]:
    """Names of the columns with the probability of every class: without line breaks, each its own."""
    names: list[str] = []
    for label in labels:
        text = " ".join("".join(c if c.isprintable() else " " for c in str(label)).split())
        name = base = f"probability_{text[:_LONGEST]}"
        number = 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.append(name)
    return names


def predict_classes(
    model: Any,
    source: Source,
    ids: list[str],
    *,
    weighting: Any,
    costs: Any,
    out: str | Path | None,
    safe_csv: bool,
    append: bool,
    chunk_rows: int,
    verbose: int,
    why: AlarmReasons,
    others: dict[str, Any],
) -> ClassPredictions:
    """Score and decide every row, at the model's costs or at others; ``others`` are options of two classes."""
    refuse_two_class_options(model, others)
    rule = stated_costs(weighting, costs, model)
    odd, pieces, target = Oddities.none(model), [], str(getattr(model, "target_name_", ""))
    labels = model.classes_.tolist()
    n_rows, expected, cost = 0, np.zeros(len(labels)), 0.0
    names = np.empty(rule.costs.shape[1], dtype=object)
    names[:] = [*labels, *rule.actions]
    decided, columns = np.zeros(len(names), dtype=np.int64), class_columns(labels)
    with ExitStack() as opened:
        writer = None if out is None else opened.enter_context(TableWriter(out, safe_csv=safe_csv, append=append))
        done = opened.enter_context(counted("rows", source.n_rows, visible=bool(verbose)))
        for chunk, p in class_chunks(model, source, odd, {*ids, target}, chunk_rows):
            by_decision = rule.expected(p)
            chosen = by_decision.argmin(axis=1)
            first = {name: chunk[name].to_numpy() for name in ids}
            first = first or {"row": np.arange(n_rows + 1, n_rows + len(p) + 1)}
            answers = names[chosen] if rule.actions else model.classes_[chosen]
            explained = np.where(chosen < len(labels), chosen, p.argmax(axis=1))  # of an action the likeliest class
            reasons = why.of_classes(chunk, model.classes_[explained], {*ids, target})
            piece = _framed({**first, "decision": answers, **dict(zip(columns, p.T, strict=True)), **reasons})
            n_rows, expected = n_rows + len(p), expected + p.sum(axis=0)
            decided += np.bincount(chosen, minlength=len(names))
            cost += float(by_decision.min(axis=1).sum())
            if writer is None:
                pieces.append(piece)
            else:
                writer.write(piece)
            done(len(p))
    return ClassPredictions(
        n_rows,
        dict(zip(names.tolist(), decided.tolist(), strict=True)),
        dict(zip(labels, expected.tolist(), strict=True)),
        cost,
        rule,
        tuple([*source.notes, *odd.notes]),
        odd.watch.unlike(0, -1, None),
        source.like_input(_joined(pieces)) if pieces else None,
        written_to(out),
        why,
    )


def _framed(columns: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(columns)


def _joined(pieces: list[Any]) -> Any:
    import pandas as pd

    return pd.concat(pieces, ignore_index=True)
