"""compare_models: is a new model cheaper than the old one at the price, by a confidence sequence of paired costs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crcen import Alpha, InvalidInput, InvalidParameter
from crcen._support.files import check_writable, write_atomic
from crcen._support.progress import logged
from crcen._support.text import listed
from crcen._support.values import Values, json_value, label_key, plain_label, rest_of
from crcen.commands import inputs
from crcen.commands.declare import check_confidence, input_columns, new_to_model, note_lines
from crcen.commands.inputs import Data, FittedModel, Source
from crcen.commands.prices import Costs, Weighting, decision_price, own_costs, plain_price
from crcen.commands.records import Sequences, json_text, model_digest, read_json, state_lock
from crcen.commands.rules import Label
from crcen.commands.scoring import CHUNK_ROWS, score_table
from crcen.tables.fingerprint import RowDigest
from crcen.tables.options import ReadOptions
from crcen.tables.writing import TableWriter
from crcen.theory.intervals import UNKNOWN, Interval
from crcen.theory.price import Price
from crcen.theory.rows import Array, Bools, Estimator, Index, ShownInOneLine, plain
from crcen.theory.selective import label_selection
from crcen.theory.sequential import ConfidenceSequence

if TYPE_CHECKING:
    import pandas as pd


_FORMAT, _VERSION = "crcen comparison", 4
_MOST_GROUPS, _SHOWN_ROWS, _FEWEST_REPEATED = 20, 20, 20
_MISSING_P = 0.001  # labels are missing depending on the score
_VERDICTS = {1: "new", -1: "old", 0: "undecided"}


@dataclass(frozen=True, eq=False)
class _ProbabilityColumns:
    """A model whose probabilities are columns of the table: one of the positive class, or one of each class."""

    feature_names_in_: list[str]
    classes_: NDArray[np.object_]
    weighting_: Price
    target_name_: str

    def predict_proba(self, X: pd.DataFrame) -> Array:
        p = X.to_numpy(dtype=np.float64)
        wrong = ~((p >= 0.0) & (p <= 1.0))
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise InvalidInput(f"{X.columns[j]} must hold probabilities between 0 and 1: got {p[i, j]:g}.")
        p = np.column_stack([1.0 - p, p]) if p.shape[1] == 1 else p
        if not np.allclose(p.sum(axis=1), 1.0, atol=1e-3):
            raise InvalidInput(f"the probabilities {listed(self.feature_names_in_)} must sum to 1 in each row.")
        return np.asarray(p / p.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two models, or two sets of columns, with the price at which both decide."""

    names: tuple[str, ...]
    digests: tuple[str, ...]
    models: tuple[Estimator, Estimator]
    price: Price

    @property
    def costs(self) -> Array:
        return np.asarray(self.price.cost_matrix.costs, dtype=np.float64)

    @property
    def actions(self) -> list[Label]:
        """Possible decisions, the classes first."""
        return list(json_value([*self.models[0].classes_, *self.price.cost_matrix.actions]))

    def identity(self, confidence: float) -> Values:
        """What a state must have been begun with."""
        return {
            "old model": self.digests[0],
            "new model": self.digests[1],
            "class list": [str(label) for label in self.models[0].classes_.tolist()],
            "price": self.costs.tolist(),
            "confidence": float(confidence),
        }


class _Rows(NamedTuple):
    """Rows of a table: labels (−1 if unknown), both decisions, 1/e of labelled rows, groups, digest and notes."""

    y: Index
    old: Index
    new: Index
    weights: Array
    used: Bools  # rows with a label; all rows of audited labels
    groups: dict[str, NDArray[np.object_]]
    least_audit: float
    digest: str
    notes: list[str]


@dataclass
class _Evidence:
    """What is kept between calls: totals by class and decision, changed decisions, and sequences of differences."""

    least_audit: float
    totals: Array  # weights of rows by model, class and decision, (2, K, A)
    changes: Array  # rows and their saving by old and new decision, (2, A, A)
    rows: int = 0
    tests: Sequences = field(default_factory=Sequences)
    batches: list[str] = field(default_factory=list)
    decided_after: int | None = None

    @classmethod
    def new(cls, pair: _Pair, least_audit: float) -> _Evidence:
        n_actions = pair.costs.shape[1]
        return cls(least_audit, np.zeros((2, *pair.costs.shape)), np.zeros((2, n_actions, n_actions)))

    def state(self) -> Values:
        arrays = {"totals": self.totals.tolist(), "changes": self.changes.tolist()}
        return {**vars(self), **arrays, "tests": self.tests.state()}

    @classmethod
    def from_state(cls, state: Values, pair: _Pair) -> _Evidence:
        found = cls.new(pair, float(state["least_audit"]))
        found.totals = np.asarray(state["totals"], dtype=np.float64).reshape(found.totals.shape)
        found.changes = np.asarray(state["changes"], dtype=np.float64).reshape(found.changes.shape)
        found.rows, found.decided_after, found.batches = state["rows"], state["decided_after"], list(state["batches"])
        found.tests = Sequences.from_state(state["tests"])
        return found

    def groups(self) -> list[tuple[str, ConfidenceSequence]]:
        """Tests of groups with their keys, in the order in which they were first seen."""
        return [(name, one) for name, one in self.tests.items() if name.startswith("[")]

    def add(self, pair: _Pair, rows: _Rows) -> None:
        """Add the used rows; those without a label have the difference 0."""
        use, reach = rows.used, float(np.ptp(pair.costs, axis=1).max()) / self.least_audit
        y, old, new, weights = rows.y[use], rows.old[use], rows.new[use], rows.weights[use]
        known = y >= 0
        difference = np.where(known, (pair.costs[y, old] - pair.costs[y, new]) * weights, 0.0)
        self.rows += len(y)
        self.tests.put("cost", difference, -reach, reach)
        for total, decided in zip(self.totals, (old, new), strict=True):
            np.add.at(total, (y[known], decided[known]), weights[known])
        np.add.at(self.changes[0], (old, new), 1.0)
        np.add.at(self.changes[1], (old, new), difference)
        for k in range(len(pair.costs)):
            own = (new == k).astype(np.float64) - (old == k)
            self.tests.put(f"recall {k}", own[known & (y == k)], -1.0, 1.0)
            self.tests.put(f"false {k}", own[known & (y != k)], -1.0, 1.0)
        for column, cells in rows.groups.items():
            values = cells[use]
            for value in dict.fromkeys(values):
                key = json.dumps([column, value], ensure_ascii=False)
                self.tests.put(key, difference[values == value], -reach, reach)


@dataclass(frozen=True, eq=False, repr=False)
class ModelComparison(ShownInOneLine):
    """Two models on the same rows; prints itself. Its verdict is ever wrong with probability 1 − confidence at most."""

    verdict: str  # the cheaper model at the price: new, old or undecided
    saving: Interval  # cost of the old minus that of the new model, per 1,000 rows, with a confidence sequence
    content: Values  # all figures as plain values

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        return self.content

    def __str__(self) -> str:
        one, saving, cost = self.content, self.saving, self.content["cost_per_1000"]
        answer = f"The {self.verdict} model, {one.get(self.verdict)}, is cheaper at the price"
        if self.verdict == "undecided":
            answer = "Undecided: neither model is shown to be cheaper at the price"
        lines = [
            f"{answer}: the new one saves {saving.value:.4g} per 1,000 rows ({100 * one['confidence']:g} % confidence "
            f"sequence {saving.low:.4g} to {saving.high:.4g}), {one['rows']:,} rows.",
            f"  cost per 1,000 rows   old {_text(cost['old'])}, new {_text(cost['new'])}",
        ]
        for row in one["classes"]:
            for name, what in (("recall", "recall"), ("false_alarm_share", "false alarms")):
                title = f"{what} of {row['label']}"
                both, (value, low, high) = row[name], row[name]["difference"].values()
                interval = "" if low is None else f" ({low:+.3f} to {high:+.3f})"
                lines.append(
                    f"  {title:<21} old {_text(both['old'])}, new {_text(both['new'])}, "
                    f"difference {_text(value)}{interval}"
                )
        lines.append(f"  rows that change decision: {one['changed']['rows']:,}")
        for change in one["changed"]["by_decision"]:
            saved = f"saving {change['saving']:.4g} in all"
            lines.append(f"    {change['old']} → {change['new']}: {change['rows']:,} rows, {saved}")
        for group in one["groups"]:
            value, low, high = map(_text, group["saving_per_1000"].values())
            lines.append(
                f"  {group['column']} = {group['group']}: {group['verdict']}, saving per 1,000 rows {value} "
                f"({low} to {high}), {group['rows']:,} rows"
            )
        return "\n".join([*lines, *note_lines(one["notes"])])


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


@logged
def compare_models(
    old: FittedModel | str | Path | None,
    new: FittedModel | str | Path | None,
    data: Data,
    *,
    target: str | None = None,
    weighting: Weighting = None,
    costs: Costs = None,
    probability_old: str | Sequence[str] | None = None,
    probability_new: str | Sequence[str] | None = None,
    positive: Label | None = None,
    groups: str | Sequence[str] = (),
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
    target, weighting, costs, read
        As in `crcen.evaluate_table`; the default price is that of both models, if they agree.
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

    Notes
    -----
    The paired difference in cost of a row lies in [−c, c]; its mean has a confidence sequence by betting, which is
    valid at any time. A labelled row with the audit probability e counts 1/e; rows with the same decision of both
    models have the difference 0 without any label.
    """
    check_confidence(confidence)
    for path in (state, out):
        if path is not None:
            check_writable(path, old, new, data)
    if (probability_old is None) != (probability_new is None):
        raise InvalidParameter(
            "probability_old and probability_new must be named together.",
            parameter=("probability_old", "probability_new"),
        )
    if probability_old is None or probability_new is None:
        if positive is not None:
            raise InvalidParameter(
                f"positive must go with columns of probabilities, since models know theirs: got {positive!r}.",
                parameter="positive",
            )
        if old is None or new is None:
            raise InvalidParameter(
                "a comparison needs two models, or the columns probability_old= and probability_new=.",
                parameter=("probability_old", "probability_new"),
            )
        models: tuple[Estimator, Estimator] = (inputs.model_of(old), inputs.model_of(new))
        source = inputs.source_of(data, read, models[0])
        sides = (("old", old), ("new", new))
        shown = tuple(Path(one).name if isinstance(one, str | Path) else side for side, one in sides)
        digests = tuple(map(model_digest, models))
    elif old is not None or new is not None:
        raise InvalidParameter("probabilities of both models are in the table: leave the models out.")
    else:
        source = inputs.source_of(data, read)
        _check_price(weighting, costs)
        models = _columns((probability_old, probability_new), source, target, positive)
        shown = digests = tuple(",".join(one.feature_names_in_) for one in models)
    target = inputs.target_of(inputs.target_of(target, models[0], source), models[1], source)
    pair = _Pair(shown, digests, models, _common_price(*models, weighting, costs))
    names = inputs.group_columns(groups, source, target)
    if audit_probability is not None:
        inputs.check_column(audit_probability, source.columns, "audit_probability", source.name)
    with state_lock(state):
        evidence = _read_state(state, pair, confidence)
        if evidence is not None and evidence.decided_after is not None:
            note = f"the comparison was decided after {evidence.decided_after:,} rows: these rows were not used"
            return _result(evidence, pair, confidence, [note], None)
        rows = _rows(pair, source, target, names, audit_probability)
        evidence = _Evidence.new(pair, rows.least_audit) if evidence is None else evidence
        _add(evidence, pair, rows, source.name, audit_probability)
        if out is not None:
            _write_changes(out, source, pair, rows)
        if evidence.tests["cost"].decides(1.0 - confidence):
            evidence.decided_after = evidence.rows
        if state is not None:
            content = {"format": _FORMAT, "version": _VERSION, **pair.identity(confidence), **evidence.state()}
            write_atomic(state, json_text(content))
    return _result(evidence, pair, confidence, rows.notes, rows)


def _common_price(first: FittedModel, second: FittedModel, weighting: Weighting, costs: Costs) -> Price:
    """The one price at which both decide."""
    classes, others = first.classes_.tolist(), second.classes_.tolist()
    if classes != others or first.weighting_.positive != second.weighting_.positive:
        raise InvalidInput(
            f"both models must have the same classes: the old one has {listed(classes)}, the new one {listed(others)}."
        )
    matrices = [own_costs(one).costs for one in (first, second)]
    units = [one / one.max() for one in matrices]
    is_same = units[0].shape == units[1].shape and np.allclose(units[0], units[1], rtol=1e-6)
    if weighting is None and costs is None and not is_same:
        ratios = [one.weighting_ for one in (first, second)]
        stated = "other costs each"
        if ratios[0].positive is not None:
            stated = f"{ratios[0].cost_ratio:.4g} and {ratios[1].cost_ratio:.4g} false alarms for a miss"
        raise InvalidInput(
            f"the models were fitted at different prices ({stated}): state one price for both.",
            parameter=("weighting", "costs"),
        )
    price = decision_price(weighting, costs, first)
    if not isinstance(price, Price):
        raise InvalidParameter(f"{price} is no price: state a price for both.", parameter="weighting")
    if price.positive is not None:
        return price
    return replace(price, costs=price.cost_matrix.for_classes(classes))


def _check_price(weighting: Weighting, costs: Costs) -> None:
    """Reject prices that need class counts, which a table of probabilities does not state."""
    if weighting is None and costs is None:
        raise InvalidParameter(
            "a comparison of probabilities needs a price: state what a miss is worth, or costs=.", parameter="costs"
        )
    if isinstance(weighting, Alpha) or (isinstance(weighting, str) and weighting == "balanced" and costs is None):
        raise InvalidParameter(
            f"{weighting} needs the class counts of training: state what a miss is worth, or costs=.", parameter="costs"
        )


def _columns(
    given: tuple[str | Sequence[str], str | Sequence[str]], source: Source, target: str | None, positive: Label | None
) -> tuple[_ProbabilityColumns, _ProbabilityColumns]:
    """Two columns, or sets of columns, of probabilities."""
    if target is None:
        raise InvalidParameter("target must name the column with the labels.", parameter="target")
    inputs.check_column(target, source.columns, "target", source.name)
    both = [[one] if isinstance(one, str) else [str(name) for name in one] for one in given]
    if all(len(one) == 1 for one in both):
        found = _positive(source, target, positive)
        labels: list[Label] = [rest_of(found), found]
        price = Price.binary(0.5, 1.0, 1.0)
    else:
        named = [dict(_class_column(one) for one in side) for side in both]
        labels, price = list(named[0]), Price(np.ones(len(named[0])), np.ones(len(named[0])))
        if set(named[1]) != set(labels) or len(labels) < 2:
            raise InvalidParameter("the columns of probabilities must be CLASS=COLUMN with the same classes for both.")
        both = [[side[str(label)] for label in labels] for side in named]
    for name in (*both[0], *both[1]):
        inputs.check_column(name, source.columns, "the probability", source.name)
    old, new = (_ProbabilityColumns(one, np.array(labels, dtype=object), price, target) for one in both)
    return old, new


def _class_column(text: str) -> tuple[str, str]:
    label, mark, column = (part.strip() for part in text.partition("="))
    if not mark or not label or not column:
        raise InvalidParameter(f"columns of several classes must be CLASS=COLUMN: got {text!r}.")
    return label, column


def _positive(source: Source, target: str, positive: Label | None) -> Label:
    """The positive class, as stated or 1 of 0 and 1."""
    cells = (cell for chunk in source.chunks(columns=[target]) for cell in chunk[target].dropna().unique())
    found = {label_key(cell): str(plain_label(cell)) for cell in cells}
    if positive is not None and (label_key(positive) in found or len(found) < 2):
        return positive
    for labels, label in () if positive is not None else (({"0", "1"}, 1), ({"false", "true"}, True)):
        if {*found} <= labels:
            return label
    raise InvalidParameter(
        f"positive must name the positive class of {target}, which has {listed(sorted(found.values()))}"
        f"{'' if positive is None else f': got {positive}'}.",
        parameter="positive",
    )


def _rows(pair: _Pair, source: Source, target: str, groups: list[str], audit: str | None) -> _Rows:
    """Score all rows of a table with both models."""
    kept = [*groups, *([audit] if audit else [])]
    columns = [name for model in pair.models for name in input_columns(model, source, target) if name not in kept]
    digest = RowDigest(list(dict.fromkeys([*columns, target])))
    found = score_table(pair.models[0], source, target, kept, recognises=True, digest=digest)
    other = score_table(pair.models[1], source, None, [target, *kept], recognises=True)
    for one in (found, other):
        new_to_model(one.watch, "a comparison needs rows that neither model was trained on")
    p_old, y, frame, known = found.p, found.y, found.frame, found.is_labelled
    notes = [*found.watch.notes, *source.notes, *found.dependent_rows]
    if not known.any():
        raise InvalidInput(f"{source.name} has no row with a value of {target}.")
    old, new = (np.asarray(pair.price.decide(p), dtype=np.int64) for p in (p_old, other.p))
    weights, used, least = np.ones(len(y)), known, 1.0
    if audit is None:
        notes = [*notes, *_unlabelled(known, p_old[:, pair.price.positive or 0], old != new, target)]
    else:
        e = inputs.audit_probabilities(frame, audit, known)
        weights, used = np.where(known, 1.0 / np.where(known, e, 1.0), 0.0), np.ones_like(known)
        least = float(e[(e > 0.0) & (e <= 1.0)].min(initial=1.0))
    texts = {name: frame[name].astype(object).map(str).where(frame[name].notna(), "missing") for name in groups}
    by_group = {name: cells.to_numpy(dtype=object) for name, cells in texts.items()}
    return _Rows(y, old, new, weights, used, by_group, least, digest.rows, notes)


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


def _add(evidence: _Evidence, pair: _Pair, rows: _Rows, name: str, audit: str | None) -> None:
    """Add the rows of a table to the evidence, unless they do not fit or are part of it."""
    if rows.least_audit < evidence.least_audit * (1.0 - 1e-12):
        raise InvalidInput(
            f"{audit or 'audit_probability'} must not fall below that of the first rows, {evidence.least_audit:.4g}: "
            f"got {rows.least_audit:.4g}; begin another state."
        )
    if rows.digest in evidence.batches and rows.used.sum() >= _FEWEST_REPEATED:
        raise InvalidInput(f"the rows of {name} are already part of this comparison: name other rows.")
    for column, cells in rows.groups.items():
        n_values = len(set(cells[rows.used]))
        if n_values > _MOST_GROUPS:
            held = f"{column} has {n_values}"
            raise InvalidInput(f"groups must have at most {_MOST_GROUPS} values: {held}.", parameter="groups")
    evidence.batches.append(rows.digest)
    evidence.add(pair, rows)
    if len(evidence.groups()) > 10 * _MOST_GROUPS:
        raise InvalidInput("groups must have few values: all calls together have too many.", parameter="groups")


def _write_changes(out: str | Path, source: Source, pair: _Pair, rows: _Rows) -> None:
    """Write the rows that change decision, with both decisions."""
    names, start = np.array([str(name) for name in pair.actions], dtype=object), 0
    with TableWriter(out) as writer:
        for chunk in source.chunks(CHUNK_ROWS):
            old, new = (one[start : start + len(chunk)] for one in (rows.old, rows.new))
            start += len(chunk)
            changed = old != new
            writer.write(chunk[changed].assign(decision_old=names[old[changed]], decision_new=names[new[changed]]))


def _read_state(state: str | Path | None, pair: _Pair, confidence: float) -> _Evidence | None:
    if state is None or not Path(state).exists():
        return None
    content = read_json(state, _FORMAT, _VERSION, "the state of a comparison")
    for name, value in pair.identity(confidence).items():
        if content.get(name) != value:
            raise InvalidInput(f"{state} is the state of a comparison with another {name}: begin another one.")
    try:
        return _Evidence.from_state(content, pair)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{state} is damaged: begin another comparison.") from error


def _result(
    evidence: _Evidence, pair: _Pair, confidence: float, notes: list[str], rows: _Rows | None
) -> ModelComparison:
    alpha, cost, price, actions = 1.0 - confidence, evidence.tests["cost"], pair.price, pair.actions
    verdict = _VERDICTS[cost.decides(alpha)]
    saving = Interval(cost.mean, *cost.interval(alpha)).scaled(1000.0)
    mean_cost = (evidence.totals * pair.costs).sum(axis=(1, 2)) / evidence.rows * 1000.0
    changed = [
        {"old": actions[i], "new": actions[j], "rows": int(evidence.changes[0, i, j]), "saving": saved}
        for (i, j), saved in np.ndenumerate(evidence.changes[1])
        if i != j and evidence.changes[0, i, j]
    ]
    changed.sort(key=lambda one: -one["rows"])
    examples = []
    if rows is not None:
        for i in np.flatnonzero(rows.old != rows.new)[:_SHOWN_ROWS].tolist():
            label = None if rows.y[i] < 0 else actions[rows.y[i]]
            examples.append({"row": i + 1, "old": actions[rows.old[i]], "new": actions[rows.new[i]], "label": label})
    groups = []
    for number, (key, one) in enumerate(evidence.groups(), 1):
        column, group = json.loads(key)
        level = alpha / (number * (number + 1))  # sums to α over all groups
        values = Interval(one.mean, *one.interval(level)).scaled(1000.0) if one.n_values else UNKNOWN
        found = {"verdict": _VERDICTS[one.decides(level)], "rows": one.n_values, "saving_per_1000": values.to_dict()}
        groups.append({"column": column, "group": group, **found})
    binary = {}
    if price.positive is not None:
        binary = {"cost_ratio": plain_price(price.cost_ratio), "threshold": plain_price(price.threshold)}
    content = {
        "verdict": verdict,
        "old": pair.names[0],
        "new": pair.names[1],
        "rows": evidence.rows,
        "confidence": confidence,
        "saving_per_1000": saving.to_dict(),
        "cost_per_1000": {"old": plain(mean_cost[0]), "new": plain(mean_cost[1])},
        "price": {**binary, "costs": pair.costs.tolist()},
        "classes": [
            {
                "label": actions[k],
                "rows": float(evidence.totals[0][k].sum()),
                "recall": _class_figures(evidence, "recall", k, alpha),
                "false_alarm_share": _class_figures(evidence, "false", k, alpha),
            }
            for k in (range(len(pair.costs)) if price.positive is None else [price.positive])
        ],
        "changed": {"rows": sum(one["rows"] for one in changed), "by_decision": changed, "examples": examples},
        "groups": groups,
        "calls": len(evidence.batches),
        "decided_after": evidence.decided_after,
        "is_audited": evidence.least_audit < 1.0,
        "notes": notes,
    }
    return ModelComparison(verdict, saving, content)


def _class_figures(evidence: _Evidence, name: str, k: int, alpha: float) -> Values:
    """Recall, or share of other rows decided for the class, of both models and their difference."""
    own = np.arange(evidence.totals.shape[1]) == k
    tables = evidence.totals[:, own if name == "recall" else ~own]
    with np.errstate(invalid="ignore"):
        old, new = tables[:, :, k].sum(axis=1) / tables.sum(axis=(1, 2))
    test, ends = evidence.tests[f"{name} {k}"], (math.nan, math.nan)
    if test.n_values and evidence.least_audit == 1.0:  # shares of unequally weighted rows have no such interval
        ends = test.interval(alpha)
    return {"old": plain(old), "new": plain(new), "difference": Interval(float(new - old), *ends).to_dict()}
