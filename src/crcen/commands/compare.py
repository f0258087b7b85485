"""compare_models: is a new model cheaper than the old one at the price, by a confidence sequence of paired costs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, InvalidParameter
from crcen._support.files import check_writable, exclusive_lock, write_atomic
from crcen._support.progress import logged
from crcen._support.text import listed
from crcen._support.values import json_value, label_key, rest_of
from crcen.commands.declare import file_digest, input_columns
from crcen.commands.group_columns import group_columns
from crcen.commands.inputs import Source, check_column, labels_as, model_of, source_of, target_of
from crcen.commands.monitor import model_digest
from crcen.commands.prices import decision_price, own_costs, plain_price, stated_weighting
from crcen.commands.scoring import CHUNK_ROWS, RowWatch, scored_chunks
from crcen.tables.number_notation import read_numbers
from crcen.tables.options import ReadOptions
from crcen.tables.row_digest import RowDigest
from crcen.tables.writing import TableWriter
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.intervals import Interval
from crcen.theory.price import Price, cost_ratio_of
from crcen.theory.rows import plain
from crcen.theory.selective import label_selection
from crcen.theory.sequential import ConfidenceSequence

__all__ = ["ModelComparison", "compare_models"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]

_FORMAT, _VERSION = "crcen comparison", 1
_MOST_GROUPS, _SHOWN_ROWS, _FEWEST_REPEATED = 20, 20, 20
_MISSING_P = 0.001  # labels are missing depending on the score


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two models, or two columns, with the price at which both decide."""

    names: tuple[str, str]
    digests: tuple[str, str]
    labels: list[Any]
    price: Price
    models: tuple[Any, Any] | None = None
    columns: tuple[list[str], list[str]] | None = None

    @property
    def costs(self) -> Array:
        return np.asarray(self.price.cost_matrix.costs, dtype=np.float64)

    @property
    def actions(self) -> list[Any]:
        return [*self.labels, *self.price.cost_matrix.actions]

    @property
    def largest(self) -> float:
        """Largest difference in cost that two decisions on one row can have."""
        return float(np.ptp(self.costs, axis=1).max())


@dataclass
class _Evidence:
    """What is kept between calls: counts of distinct paired differences."""

    cost: ConfidenceSequence
    least_audit: float
    n_rows: float = 0.0
    totals: Array = field(default_factory=lambda: np.zeros((2, 0, 0)))
    classes: dict[str, ConfidenceSequence] = field(default_factory=dict)
    groups: dict[str, ConfidenceSequence] = field(default_factory=dict)
    changes: dict[str, list[float]] = field(default_factory=dict)
    batches: list[str] = field(default_factory=list)
    decided_after: float | None = None

    @classmethod
    def new(cls, pair: _Pair, least_audit: float) -> _Evidence:
        reach = pair.largest / least_audit
        return cls(ConfidenceSequence(-reach, reach), least_audit, totals=np.zeros((2, *pair.costs.shape)))

    def to_dict(self) -> dict[str, Any]:
        def plain_sequence(one: ConfidenceSequence) -> list[list[float]]:
            return [one.values.tolist(), one.counts.tolist()]

        return {
            "least_audit": self.least_audit,
            "rows": self.n_rows,
            "totals": self.totals.tolist(),
            "cost": plain_sequence(self.cost),
            "classes": {name: plain_sequence(one) for name, one in self.classes.items()},
            "groups": {name: plain_sequence(one) for name, one in self.groups.items()},
            "changes": self.changes,
            "batches": self.batches,
            "decided_after": self.decided_after,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], pair: _Pair) -> _Evidence:
        found = cls.new(pair, float(state["least_audit"]))

        def sequence(start: ConfidenceSequence, stored: Any) -> ConfidenceSequence:
            values, counts = (np.asarray(one, dtype=np.float64) for one in stored)
            if values.shape != counts.shape or values.ndim != 1 or not (counts > 0.0).all():
                raise ValueError("counts")
            return replace(start.add(values), counts=counts) if len(values) else start

        unit = ConfidenceSequence(-1.0, 1.0)
        found.totals = np.asarray(state["totals"], dtype=np.float64).reshape(found.totals.shape)
        found.cost, found.n_rows = sequence(found.cost, state["cost"]), float(state["rows"])
        found.classes = {name: sequence(unit, one) for name, one in state["classes"].items()}
        empty = _Evidence.new(pair, found.least_audit).cost
        found.groups = {name: sequence(empty, one) for name, one in state["groups"].items()}
        found.changes = {str(name): [float(n), float(d)] for name, (n, d) in state["changes"].items()}
        found.batches = [str(one) for one in state["batches"]]
        found.decided_after = None if state["decided_after"] is None else float(state["decided_after"])
        return found

    def add(self, pair: _Pair, y: Index, old: Index, new: Index, weights: Array, groups: Mapping[str, Any]) -> None:
        """Add rows: labels (−1 if not audited), both decisions, and 1/e of labelled rows, else 0."""
        known, costs = y >= 0, pair.costs
        number = np.maximum(y, 0)
        difference = np.where(known, (costs[number, old] - costs[number, new]) * weights, 0.0)
        self.n_rows += len(y)
        self.cost = self.cost.add(difference)
        for i, decided in enumerate((old, new)):
            np.add.at(self.totals[i], (number[known], decided[known]), weights[known])
        unit = ConfidenceSequence(-1.0, 1.0)
        for k, label in enumerate(pair.labels):
            is_new, is_old = (new == k).astype(np.float64), (old == k).astype(np.float64)
            for name, rows in (("recall", known & (y == k)), ("false", known & (y != k))):
                key = f"{name} {label}"
                self.classes[key] = self.classes.get(key, unit).add((is_new - is_old)[rows])
        empty = replace(self.cost, values=np.empty(0), counts=np.empty(0))
        for column, values in groups.items():
            for value in dict.fromkeys(values):
                key = json.dumps([column, value], ensure_ascii=False)
                if key not in self.groups and len(self.groups) >= _MOST_GROUPS * 10:
                    raise InvalidInput(f"groups must have few values: {column} has too many.", parameter="groups")
                self.groups[key] = self.groups.get(key, empty).add(difference[values == value])
        for i, j in sorted({(int(a), int(b)) for a, b in zip(old, new, strict=True) if a != b}):
            rows = (old == i) & (new == j)
            before = self.changes.get(f"{i} {j}", [0.0, 0.0])
            self.changes[f"{i} {j}"] = [before[0] + int(rows.sum()), before[1] + float(difference[rows].sum())]


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """Two models on the same rows; prints itself.

    Parameters
    ----------
    verdict : {"new", "old", "undecided"}
        The cheaper model at the price; wrong with a probability of at most 1 − confidence, however often it is asked.
    saving : Interval
        Cost of the old minus that of the new model, per 1,000 rows, with a confidence sequence.
    content : dict
        All figures as plain values.
    """

    verdict: str
    saving: Interval
    content: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return self.content

    def __repr__(self) -> str:
        return f"<ModelComparison: {self.verdict}, saving per 1,000 rows {self.saving}>"

    def __str__(self) -> str:
        one = self.content
        level = f"{100 * one['confidence']:g} %"
        said = {
            "new": f"The new model, {one['new']}, is cheaper at the price",
            "old": f"The old model, {one['old']}, is cheaper at the price",
            "undecided": "Undecided: neither model is shown to be cheaper at the price",
        }[self.verdict]
        saving, cost = self.saving, one["cost_per_1000"]
        lines = [
            f"{said}: the new one saves {saving.value:.4g} per 1,000 rows ({level} confidence sequence "
            f"{saving.low:.4g} to {saving.high:.4g}), {one['rows']:,} rows.",
            f"  cost per 1,000 rows   old {_text(cost['old'])}, new {_text(cost['new'])}",
        ]
        for row in one["classes"]:
            for name, title in (("recall", "recall"), ("false_alarm_share", "false alarms")):
                both = row[name]
                ends = (both["difference"]["low"], both["difference"]["high"])
                interval = "" if ends[0] is None else f" ({ends[0]:+.3f} to {ends[1]:+.3f})"
                lines.append(
                    f"  {title + ' of ' + str(row['label']):<21} old {_text(both['old'])}, new {_text(both['new'])}, "
                    f"difference {_text(both['difference']['value'])}{interval}"
                )
        lines.append(f"  rows that change decision: {one['changed']['rows']:,}")
        for change in one["changed"]["by_decision"]:
            saved = f"saving {change['saving']:.4g} in all"
            lines.append(f"    {change['old']} → {change['new']}: {change['rows']:,} rows, {saved}")
        for group in one["groups"]:
            lines.append(
                f"  {group['column']} = {group['group']}: {group['verdict']}, saving per 1,000 rows "
                f"{_text(group['saving_per_1000']['value'])} ({_text(group['saving_per_1000']['low'])} to "
                f"{_text(group['saving_per_1000']['high'])}), {group['rows']:,} rows"
            )
        return "\n".join([*lines, *(f"Note: {note}." for note in one["notes"])])


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


@logged
def compare_models(
    old: str | Path | None,
    new: str | Path | None,
    data: Any,
    *,
    target: str | None = None,
    weighting: Any = None,
    costs: Any = None,
    probability_old: str | Sequence[str] | None = None,
    probability_new: str | Sequence[str] | None = None,
    positive: Any = None,
    groups: Any = (),
    audit_probability: str | None = None,
    confidence: float = 0.95,
    state: str | Path | None = None,
    out: str | Path | None = None,
    read: ReadOptions | None = None,
) -> ModelComparison:
    """Compare the costs of two models on the same labelled rows: what `crcen compare` does.

    Parameters
    ----------
    old, new : str, Path, fitted classifier or None
        Models, or their files; None if the table holds the probabilities of both.
    data : data frame, str or Path
        Rows that neither model was trained on.
    target : str, optional
        Column with the labels; by default that of training.
    weighting, costs
        The price of decisions, as `crcen.evaluate_table` takes it; by default that of both models, if they agree.
    probability_old, probability_new : str or sequence of str, optional
        Columns with the probability of the positive class by each model, or ``CLASS=COLUMN`` for every class.
    positive : label, optional
        With these columns: the positive class; by default 1 of 0 and 1.
    groups : str or sequence of str, optional
        Columns whose values are groups.
    audit_probability : str, optional
        Column with the probability that a row was checked; rows without a label then count as unknown.
    confidence : float, default=0.95
        One minus the probability of ever naming the wrong model.
    state : str or Path, optional
        JSON file that carries the comparison from call to call; made if it does not exist. Once it is decided, further
        rows are not used.
    out : str or Path, optional
        Table of the rows that change decision, with both decisions.
    read : ReadOptions, optional
        How the table is read.

    Notes
    -----
    The paired difference in cost of a row lies in [−c, c]; its mean has a confidence sequence by betting, which is
    valid at any time. A labelled row with the audit probability e counts 1/e; rows with the same decision of both
    models have the difference 0 without any label.
    """
    if not (isinstance(confidence, float | int) and 0.5 <= confidence < 1.0):
        raise InvalidParameter(
            f"confidence must be at least 0.5 and below 1: got {confidence!r}.", parameter="confidence"
        )
    for path in (state, out):
        if path is not None:
            check_writable(path, old, new, data)
    if (probability_old is None) != (probability_new is None):
        raise InvalidParameter(
            "probability_old and probability_new must be named together.",
            parameter=("probability_old", "probability_new"),
        )
    if probability_old is None or probability_new is None:
        pair, source, target = _models(old, new, data, target, weighting, costs, read)
    else:
        if old is not None or new is not None:
            raise InvalidParameter("probabilities of both models are in the table: leave the models out.")
        both = (_names(probability_old), _names(probability_new))
        pair, source, target, positive = _columns(both, data, target, weighting, costs, positive, read)
    names = group_columns(groups, source, target)
    if audit_probability is not None:
        check_column(audit_probability, source.columns, "audit_probability", source.name)
    with ExitStack() as held:
        if state is not None:
            held.enter_context(exclusive_lock(state, instead="name another state"))
        evidence = None if state is None else _read_state(Path(state), pair, confidence)
        if evidence is not None and evidence.decided_after is not None:
            note = f"the comparison was decided after {evidence.decided_after:,.0f} rows: these rows were not used"
            return _result(evidence, pair, confidence, [note], [])
        evidence, notes, examples = _added(evidence, pair, source, target, names, audit_probability, positive, out)
        if evidence.cost.decides(1.0 - confidence):
            evidence.decided_after = evidence.n_rows
        if state is not None:
            write_atomic(state, _state_text(evidence, pair, confidence))
    return _result(evidence, pair, confidence, notes, examples)


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else [str(one) for one in given]


def _models(
    old: Any, new: Any, data: Any, target: str | None, weighting: Any, costs: Any, read: ReadOptions | None
) -> tuple[_Pair, Source, str]:
    if old is None or new is None:
        raise InvalidParameter("a comparison needs two models, or the columns probability_old= and probability_new=.")
    first, second = model_of(old), model_of(new)
    classes = first.classes_.tolist()
    if classes != second.classes_.tolist() or first.weighting_.positive != second.weighting_.positive:
        raise InvalidInput(
            f"both models must tell the same classes apart: the old one has {listed(classes)}, the new one "
            f"{listed(second.classes_.tolist())}."
        )
    source = source_of(data, read, first)
    name = target_of(target, first, source)
    target_of(name, second, source)
    shown = [Path(one).name if isinstance(one, str | Path) else word for one, word in ((old, "old"), (new, "new"))]
    digests = [file_digest(one) if isinstance(one, str | Path) else model_digest(one) for one in (old, new)]
    price = _price(first, second, weighting, costs)
    return _Pair((shown[0], shown[1]), (digests[0], digests[1]), classes, price, (first, second)), source, name


def _price(first: Any, second: Any, weighting: Any, costs: Any) -> Price:
    """The one price at which both decide."""
    is_binary = first.weighting_.positive is not None
    if weighting is None and costs is None:
        if is_binary:
            ratios = [one.weighting_.cost_ratio for one in (first, second)]
            is_same = math.isclose(*ratios, rel_tol=1e-6)
        else:
            ratios = [own_costs(one) for one in (first, second)]
            units = [one.costs / one.costs.max() for one in ratios]
            is_same = units[0].shape == units[1].shape and bool(np.allclose(*units))
        if not is_same:
            said = f"{ratios[0]:.4g} and {ratios[1]:.4g} false alarms for a miss" if is_binary else "other costs each"
            raise InvalidInput(
                f"the models were fitted at different prices ({said}): state one price for both.",
                parameter=("weighting", "costs"),
            )
    price = decision_price(weighting, costs, first)
    if not isinstance(price, Price):
        raise InvalidParameter(f"{price} is no price: state a price for both.", parameter="weighting")
    return price if is_binary else replace(price, costs=price.cost_matrix.for_classes(first.classes_.tolist()))


def _columns(
    both: tuple[list[str], list[str]],
    data: Any,
    target: str | None,
    weighting: Any,
    costs: Any,
    positive: Any,
    read: ReadOptions | None,
) -> tuple[_Pair, Source, str, Any]:
    """Two columns, or sets of columns, of probabilities."""
    source = source_of(data, read)
    if target is None:
        raise InvalidParameter("target must name the column with the labels.", parameter="target")
    check_column(target, source.columns, "target", source.name)
    if weighting is None and costs is None:
        raise InvalidParameter(
            "a comparison of probabilities needs a price: state what a miss is worth, or costs=.", parameter="costs"
        )
    if all(len(one) == 1 for one in both):
        columns: tuple[list[str], list[str]] = ([both[0][0]], [both[1][0]])
        found = _positive(source, target, positive)
        labels: list[Any] = [rest_of(found), found]
        worth = stated_weighting(weighting, costs, labels, target)
        ratio = worth[found] / worth[labels[0]] if isinstance(worth, Mapping) else cost_ratio_of(worth)
        price = Price.binary(ratio / (1.0 + ratio), 1.0, 1.0)
    else:
        named = [dict(_class_column(one) for one in side) for side in both]
        labels, found = list(named[0]), None
        if set(named[1]) != set(labels) or len(labels) < 2:
            raise InvalidParameter("the columns of probabilities must be CLASS=COLUMN with the same classes for both.")
        columns = ([named[0][label] for label in labels], [named[1][label] for label in labels])
        worth = stated_weighting(weighting, costs, labels, target)
        ones = np.ones(len(labels))
        if isinstance(worth, CostMatrix):
            price = Price(ones, ones, worth.for_classes(labels))
        elif isinstance(worth, Mapping):
            price = Price(np.array([worth[label] for label in labels]), ones)
        elif worth is None:
            price = Price(ones, ones)
        else:
            raise InvalidParameter("several classes need costs=, or a weight of each class.", parameter="costs")
    for name in (*columns[0], *columns[1]):
        check_column(name, source.columns, "probability", source.name)
    shown = (",".join(columns[0]), ",".join(columns[1]))
    return _Pair(shown, shown, labels, price, None, columns), source, target, found


def _class_column(text: str) -> tuple[str, str]:
    label, mark, column = text.partition("=")
    if not mark or not label.strip() or not column.strip():
        raise InvalidParameter(f"columns of several classes must be CLASS=COLUMN: got {text!r}.")
    return label.strip(), column.strip()


def _positive(source: Source, target: str, positive: Any) -> Any:
    """The positive class, as stated or 1 of 0 and 1."""
    found = {label_key(cell) for chunk in source.chunks(columns=[target]) for cell in chunk[target].dropna().unique()}
    if positive is not None and (label_key(positive) in found or len(found) < 2):
        return positive
    for labels, label in () if positive is not None else (({"0", "1"}, 1), ({"false", "true"}, True)):
        if found <= labels:
            return label
    raise InvalidParameter(
        f"positive must name the positive class of {target}, which has {listed(sorted(found))}: got {positive}.",
        parameter="positive",
    )


def _probabilities(chunk: Any, columns: list[str], name: str) -> Array:
    """Probabilities (n, K) from one column of the positive class, or from one of each class."""
    import pandas as pd

    found = []
    for column in columns:
        values = pd.to_numeric(chunk[column], errors="coerce").to_numpy(dtype=np.float64)
        if np.isnan(values).any():
            reading = read_numbers(chunk[column].astype("string").str.strip())
            values = values if reading is None or reading.units else reading.values
        wrong = ~((values >= 0.0) & (values <= 1.0))
        if wrong.any():
            cell = chunk[column].iloc[int(np.flatnonzero(wrong)[0])]
            raise InvalidInput(f"{column} of {name} must hold probabilities between 0 and 1: got {cell!r}.")
        found.append(values)
    if len(found) == 1:
        return np.stack([1.0 - found[0], found[0]], axis=1)
    p = np.stack(found, axis=1)
    if not np.allclose(p.sum(axis=1), 1.0, atol=1e-3):
        raise InvalidInput(f"the probabilities {listed(columns)} of {name} must sum to 1 in each row.")
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def _chunks(
    pair: _Pair, source: Source, ignored: set[str], watches: list[RowWatch]
) -> Iterator[tuple[Any, Array, Array]]:
    if pair.columns is not None:
        for chunk in source.chunks(CHUNK_ROWS):
            if len(chunk):
                old, new = (_probabilities(chunk, names, source.name) for names in pair.columns)
                yield chunk, old, new
        return
    assert pair.models is not None
    streams = [scored_chunks(model, source, one, ignored) for model, one in zip(pair.models, watches, strict=True)]
    for (chunk, old), (_, new) in zip(*streams, strict=True):
        yield chunk, old, new


def _added(
    evidence: _Evidence | None,
    pair: _Pair,
    source: Source,
    target: str,
    groups: list[str],
    audit: str | None,
    positive: Any,
    out: str | Path | None,
) -> tuple[_Evidence, list[str], list[dict[str, Any]]]:
    """The evidence with the rows of a table, notes, and some rows that change decision."""
    watches = [] if pair.models is None else [RowWatch(model, recognises=True) for model in pair.models]
    ignored = {target, *groups, *([audit] if audit else [])}
    if pair.models is None:
        assert pair.columns is not None
        inputs = [*pair.columns[0], *pair.columns[1]]
    else:
        inputs = [name for model in pair.models for name in input_columns(model, source, target)]
        inputs = [name for name in inputs if name not in ignored]
    digest = RowDigest(list(dict.fromkeys([*inputs, target])))
    parts: list[tuple[Index, Index, Index, Array]] = []
    kept: dict[str, list[Any]] = {name: [] for name in groups}
    examples: list[dict[str, Any]] = []
    scores, frames, start, least = [], [], 0, 1.0
    for chunk, p_old, p_new in _chunks(pair, source, ignored, watches):
        old, new = (np.asarray(pair.price.decide(p), dtype=np.int64) for p in (p_old, p_new))
        known = chunk[target].notna().to_numpy()
        y = np.full(len(chunk), -1, dtype=np.int64)
        y[known] = _numbers(chunk[target][known], pair, target, positive)
        weights, smallest = _weights(chunk, audit, known, start)
        least = min(least, smallest)
        digest.add(chunk)
        parts.append((y, old, new, weights))
        scores.append(p_old[:, pair.price.positive or 0])
        for name in groups:
            kept[name].append(
                np.array(["missing" if cell != cell else str(cell) for cell in chunk[name]], dtype=object)
            )
        changed = np.flatnonzero(old != new)
        for i in changed[: _SHOWN_ROWS - len(examples)]:
            label = None if y[i] < 0 else json_value(pair.labels[y[i]])
            decided = {"old": json_value(pair.actions[old[i]]), "new": json_value(pair.actions[new[i]])}
            examples.append({"row": start + int(i) + 1, **decided, "label": label})
        if out is not None:
            names = np.array([str(name) for name in pair.actions], dtype=object)
            frames.append(
                chunk.iloc[changed].assign(decision_old=names[old[changed]], decision_new=names[new[changed]])
            )
        start += len(chunk)
    if not parts:
        raise InvalidInput(f"{source.name} has no rows.")
    for one in watches:
        recognition = one.recognition()
        if recognition is not None and recognition.status == "seen":
            raise InvalidInput(f"a comparison needs rows that neither model was trained on: {recognition.measured}.")
    y, old, new = (np.concatenate([part[i] for part in parts]) for i in range(3))
    weights = np.concatenate([part[3] for part in parts])
    values = {name: np.concatenate(cells) for name, cells in kept.items()}
    notes = [note for one in watches[:1] for note in one.notes] + source.notes
    if not (y >= 0).any():
        raise InvalidInput(f"{source.name} has no row with a value of {target}.")
    if audit is None:
        use = y >= 0
        notes += _unlabelled(use, np.concatenate(scores), old != new, target)
        y, old, new, weights = y[use], old[use], new[use], weights[use]
        values = {name: cells[use] for name, cells in values.items()}
    evidence = _Evidence.new(pair, least) if evidence is None else evidence
    if least < evidence.least_audit * (1.0 - 1e-12):
        raise InvalidInput(
            f"{audit or 'audit_probability'} must not fall below that of the first rows, {evidence.least_audit:.4g}: "
            f"got {least:.4g}; begin another state."
        )
    if digest.rows in evidence.batches and len(y) >= _FEWEST_REPEATED:
        raise InvalidInput(f"the rows of {source.name} are already part of this comparison: name other rows.")
    evidence.batches.append(digest.rows)
    for name, cells in values.items():
        if len(set(cells)) > _MOST_GROUPS:
            raise InvalidInput(f"groups must have at most {_MOST_GROUPS} values: {name} has {len(set(cells))}.")
    evidence.add(pair, y, old, new, weights, values)
    if out is not None:
        import pandas as pd

        with TableWriter(out) as writer:
            writer.write(pd.concat(frames, ignore_index=True))
    return evidence, notes, examples


def _numbers(cells: Any, pair: _Pair, target: str, positive: Any) -> Index:
    if positive is not None and pair.models is None:
        return np.array([int(label_key(cell) == label_key(positive)) for cell in cells], dtype=np.int64)
    classes = np.array(pair.labels, dtype=object) if pair.models is None else pair.models[0].classes_
    return labels_as(cells, classes, target)


def _weights(chunk: Any, audit: str | None, known: Bools, start: int) -> tuple[Array, float]:
    """1/e of labelled rows, else 0 (1 without audits), and the smallest e of all rows."""
    import pandas as pd

    if audit is None:
        return np.ones(len(chunk)), 1.0
    e = pd.to_numeric(chunk[audit], errors="coerce").to_numpy(dtype=np.float64)
    wrong = known & ~((e > 0.0) & (e <= 1.0))
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise InvalidInput(
            f"{audit} must be above 0 and at most 1 for every labelled row: got {chunk[audit].iloc[i]!r} in row "
            f"{start + i + 1}.",
            parameter="audit_probability",
        )
    smallest = float(e[(e > 0.0) & (e <= 1.0)].min(initial=1.0))
    return np.where(known, 1.0 / np.where(known, e, 1.0), 0.0), smallest


def _unlabelled(labelled: Bools, scores: Array, changed: Bools, target: str) -> list[str]:
    n_missing = int((~labelled).sum())
    if not n_missing:
        return []
    if label_selection(labelled, scores, changed).p_value < _MISSING_P:
        raise InvalidInput(
            f"{n_missing:,} rows have no value of {target}, and which ones depends on the score: a comparison of the "
            "others would be biased; name audit_probability=, the probability that a row was checked.",
            parameter="audit_probability",
        )
    return [f"{n_missing:,} rows without a value of {target} were left out"]


def _state_text(evidence: _Evidence, pair: _Pair, confidence: float) -> str:
    head = {"format": _FORMAT, "version": _VERSION, **_identity(pair, confidence)}
    return json.dumps({**head, **evidence.to_dict()}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _identity(pair: _Pair, confidence: float) -> dict[str, Any]:
    return {
        "old": pair.digests[0],
        "new": pair.digests[1],
        "labels": [str(label) for label in pair.labels],
        "matrix": pair.costs.tolist(),
        "confidence": float(confidence),
    }


def _read_state(path: Path, pair: _Pair, confidence: float) -> _Evidence | None:
    if not path.exists():
        return None
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["format"] != _FORMAT or state["version"] != _VERSION:
            raise KeyError("format")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not the state of a comparison: name another file.") from error
    for name, value in _identity(pair, confidence).items():
        is_same = bool(np.allclose(state[name], value)) if name == "matrix" else state.get(name) == value
        if not is_same:
            what = {"old": "another old model", "new": "another new model", "labels": "other classes"}
            what |= {"matrix": "another price", "confidence": "another confidence"}
            raise InvalidInput(f"{path} is the state of a comparison with {what[name]}: begin another one.")
    try:
        return _Evidence.from_dict(state, pair)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is damaged: begin another comparison.") from error


def _result(
    evidence: _Evidence, pair: _Pair, confidence: float, notes: list[str], examples: list[dict[str, Any]]
) -> ModelComparison:
    alpha, cost = 1.0 - confidence, evidence.cost
    words = {1: "new", -1: "old", 0: "undecided"}
    verdict = words[cost.decides(alpha)]
    saving = Interval(cost.mean, *cost.interval(alpha)).scaled(1000.0)
    mean_cost = (evidence.totals * pair.costs).sum(axis=(1, 2)) / evidence.n_rows * 1000.0
    is_audited = evidence.least_audit < 1.0
    classes = [
        {
            "label": json_value(label),
            "rows": float(evidence.totals[0][k].sum()),
            **{
                key: _class_figures(evidence, name, k, str(label), alpha, is_audited)
                for key, name in (("recall", "recall"), ("false_alarm_share", "false"))
            },
        }
        for k, label in enumerate(pair.labels)
        if pair.price.positive is None or k == pair.price.positive
    ]
    changed = []
    for key, (n_rows, saved) in evidence.changes.items():
        i, j = map(int, key.split())
        both = {"old": json_value(pair.actions[i]), "new": json_value(pair.actions[j])}
        changed.append({**both, "rows": int(n_rows), "saving": saved})
    groups = []
    for number, (key, one) in enumerate(evidence.groups.items(), 1):
        column, group = json.loads(key)
        level = alpha / (number * (number + 1))  # sums to α over all groups
        values = Interval(one.mean, *one.interval(level)).scaled(1000.0).to_dict() if one.n_values else None
        nothing = dict.fromkeys(("value", "low", "high"))
        found = {"verdict": words[one.decides(level)], "rows": one.n_values, "saving_per_1000": values or nothing}
        groups.append({"column": column, "group": group, **found})
    binary = {}
    if pair.price.positive is not None:
        binary = {"cost_ratio": plain_price(pair.price.cost_ratio), "threshold": plain_price(pair.price.threshold)}
    content = {
        "verdict": verdict,
        "old": pair.names[0],
        "new": pair.names[1],
        "rows": int(evidence.n_rows),
        "confidence": confidence,
        "saving_per_1000": saving.to_dict(),
        "cost_per_1000": {"old": plain(float(mean_cost[0])), "new": plain(float(mean_cost[1]))},
        "price": {**binary, "costs": pair.costs.tolist()},
        "classes": classes,
        "changed": {
            "rows": sum(one["rows"] for one in changed),
            "by_decision": sorted(changed, key=lambda one: -one["rows"]),
            "examples": examples,
        },
        "groups": groups,
        "calls": len(evidence.batches),
        "decided_after": None if evidence.decided_after is None else int(evidence.decided_after),
        "is_audited": is_audited,
        "notes": notes,
    }
    return ModelComparison(verdict, saving, content)


def _class_figures(
    evidence: _Evidence, name: str, k: int, label: str, alpha: float, is_audited: bool
) -> dict[str, Any]:
    """Recall, or share of other rows decided for the class, of both models and their difference."""
    rows = np.arange(len(evidence.totals[0])) == k
    tables = evidence.totals[:, rows if name == "recall" else ~rows]
    with np.errstate(invalid="ignore"):
        shares = tables[:, :, k].sum(axis=1) / tables.sum(axis=(1, 2))
    sequence = evidence.classes.get(f"{name} {label}")
    ends: tuple[float | None, float | None] = (None, None)
    if not is_audited and sequence is not None and sequence.n_values:
        ends = sequence.interval(alpha)
    difference = {"value": plain(float(shares[1] - shares[0])), "low": ends[0], "high": ends[1]}
    return {"old": plain(float(shares[0])), "new": plain(float(shares[1])), "difference": difference}
