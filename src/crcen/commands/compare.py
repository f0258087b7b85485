"""compare_models: is a new model cheaper than the old one at the price, by a confidence sequence of paired costs."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import Alpha, InvalidInput, InvalidParameter, ReadOptions
from crcen._support.files import check_writable
from crcen._support.progress import logged
from crcen._support.text import Values, json_value, label_key, listed, plain_label, plural, rest_of
from crcen.commands import inputs
from crcen.commands.inputs import Data, FittedModel, Label, Source, check, require, require_input
from crcen.commands.results import Sequences, model_digest, note_lines, read_state, state_lock, write_state
from crcen.commands.rules import CostsLike, RowRule, Weighting, own_costs, plain_price
from crcen.commands.scoring import Judging
from crcen.tables.fingerprint import RowDigest
from crcen.theory.intervals import UNKNOWN, Interval
from crcen.theory.price import Price
from crcen.theory.rows import Array, Bools, Estimator, Index, ShownInOneLine
from crcen.theory.selective import label_selection
from crcen.theory.sequential import ConfidenceSequence

_STATE = ("crcen comparison", 6)  # format and version
_MOST_GROUPS, _SHOWN_ROWS, _FEWEST_REPEATED = 20, 20, 20
_MISSING_P = 0.001  # labels are missing depending on the score
_SIDES = ("old", "new")
_VERDICTS = {1: "new", -1: "old", 0: "undecided"}


@dataclass(frozen=True, eq=False)
class _ProbabilityColumns:
    """A model whose probabilities are columns of the table: one of the positive class, or one of each class."""

    feature_names_in_: list[str]
    classes_: NDArray[np.object_]
    weighting_: Price
    target_name_: str

    def predict_proba(self, X: pd.DataFrame) -> Array:
        given = X.to_numpy(dtype=np.float64)
        p = np.column_stack([1.0 - given, given]) if given.shape[1] == 1 else given
        if not ((p >= 0.0) & (p <= 1.0)).all() or not np.allclose(p.sum(axis=1), 1.0, atol=1e-3):
            must = f"{listed(self.feature_names_in_)} must hold probabilities between 0 and 1, of sum 1 over classes"
            got = "a missing value" if np.isnan(given).any() else f"values from {given.min():.4g} to {given.max():.4g}"
            raise InvalidInput(f"{must}: got {got}.")
        return np.asarray(p / p.sum(axis=1, keepdims=True))


class _Rows(NamedTuple):
    """Rows of a table: labels (−1 if unknown), both decisions, 1/e of labelled rows, groups, digest and notes."""

    y: Index
    old: Index
    new: Index
    weights: Array
    used: Bools  # rows with a label; all rows of audited labels
    groups: dict[str, NDArray[np.object_]]
    clusters: Index | None  # rows that count as one
    least_audit: float
    digest: str
    notes: list[str]


@dataclass(eq=False)
class _Evidence:
    """Two models, or two sets of columns, at one price, and sums that are kept between calls."""

    names: tuple[str, ...]
    digests: tuple[str, ...]
    models: tuple[Estimator, Estimator]
    rule: RowRule
    confidence: float
    clusters: str | None = None
    rows: int = 0
    least_audit: float | None = None  # of the first rows
    tests: Sequences = field(default_factory=Sequences)
    batches: list[str] = field(default_factory=list)
    decided_after: int | None = None

    def __post_init__(self) -> None:
        self.costs = np.asarray(self.rule.costs.costs, dtype=np.float64)
        self.actions: list[Label] = json_value(list(self.rule.names))
        n_actions = self.costs.shape[1]
        self.totals = np.zeros((2, *self.costs.shape))  # weights of rows by model, class and decision
        self.changes = np.zeros((2, n_actions, n_actions))  # rows and their saving by old and new decision

    @property
    def identity(self) -> Values:
        """What a state must have been begun with."""
        return {
            "old model": self.digests[0],
            "new model": self.digests[1],
            "class list": [str(label) for label in self.models[0].classes_.tolist()],
            "price": self.costs.tolist(),
            "confidence": float(self.confidence),
            "cluster column": self.clusters,
        }

    def state(self) -> Values:
        """Plain values that `take` reads."""
        kept = {name: getattr(self, name) for name in ("rows", "least_audit", "batches", "decided_after")}
        sums = {"totals": self.totals.tolist(), "changes": self.changes.tolist(), "tests": self.tests.state()}
        return {**self.identity, **kept, **sums}

    def take(self, state: str | Path) -> None:
        """Continue from a file."""
        content = read_state(state, _STATE, "comparison")
        for name, value in self.identity.items():
            other = f"{state} is the state of a comparison with another {name}: start a new one."
            require_input(content.pop(name) == value, other)
        content["tests"] = Sequences.from_state(content["tests"])
        # Programs that store JSON may write 1.0 as 1, and integers would not take fractions of weights.
        sums = {name: np.array(content[name], dtype=np.float64) for name in ("totals", "changes")}
        vars(self).update(content | sums)

    @property
    def groups(self) -> dict[str, ConfidenceSequence]:
        """Tests of groups by their key, in the order in which they were first seen."""
        return {name: one for name, one in self.tests.items() if name.startswith("[")}

    def add(self, rows: _Rows, name: str, audit: str | None) -> None:
        """Add the rows of a table, unless they do not fit or are part of it; without a label their difference is 0."""
        use, least = rows.used, rows.least_audit if self.least_audit is None else self.least_audit
        fell = f"{audit or 'audit_probability'} must not fall below that of the first rows, {least:.4g}"
        is_right = rows.least_audit >= least * (1.0 - 1e-12)
        require_input(is_right, f"{fell}: got {rows.least_audit:.4g}; start a new state.")
        is_new = rows.digest not in self.batches or use.sum() < _FEWEST_REPEATED
        require_input(is_new, f"the rows of {name} are already part of this comparison: name other rows.")
        for column, cells in rows.groups.items():
            n_values = len(set(cells[use]))
            many = f"groups must have at most {_MOST_GROUPS} values: {column} has {n_values}."
            require_input(n_values <= _MOST_GROUPS, many, "groups")
        self.least_audit, reach = least, float(np.ptp(self.costs, axis=1).max()) / least
        y, old, new, weights = rows.y[use], rows.old[use], rows.new[use], rows.weights[use]
        known, related = y >= 0, None if rows.clusters is None else rows.clusters[use]
        difference = np.where(known, (self.costs[y, old] - self.costs[y, new]) * weights, 0.0)
        most = float(np.abs(self.costs).max()) / least

        def put(test: str, values: Array | Bools, among: Bools, end: float = 1.0) -> None:
            own = None if related is None else related[among]
            self.tests.put(test, values[among].astype(np.float64), -end, end, own)

        self.batches.append(rows.digest)
        self.rows += len(y)
        put("cost", difference, np.ones_like(known), reach)
        for side, total, decided in zip(_SIDES, self.totals, (old, new), strict=True):
            np.add.at(total, (y[known], decided[known]), weights[known])
            put(f"cost {side}", np.where(known, self.costs[y, decided] * weights, 0.0), np.ones_like(known), most)
            for k in range(len(self.costs)):
                put(f"recall {k} {side}", decided == k, known & (y == k))
                put(f"false {k} {side}", decided == k, known & (y != k))
        np.add.at(self.changes[0], (old, new), 1.0)
        np.add.at(self.changes[1], (old, new), difference)
        for k in range(len(self.costs)):
            own = (new == k).astype(np.float64) - (old == k)
            put(f"recall {k}", own, known & (y == k))
            put(f"false {k}", own, known & (y != k))
        for column, cells in rows.groups.items():
            values = cells[use]
            for value in dict.fromkeys(values):
                put(json.dumps([column, value], ensure_ascii=False), difference, values == value, reach)
        many = "groups must have few values: all calls together have too many."
        require_input(len(self.groups) <= 10 * _MOST_GROUPS, many, "groups")


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
        least, most = (0.0 - saving.high, -saving.low) if saving.value < 0.0 else (saving.low, saving.high)
        answer = f"The {self.verdict} model, {one.get(self.verdict)}, is cheaper at the price"
        if self.verdict == "undecided":
            answer = "Undecided: neither model is shown to be cheaper at the price"
        unit = "rows" if one["clusters"] is None else "clusters"
        together = "" if unit == "rows" else f" in {one['clusters']:,} clusters, of which each counts by its mean"
        width = len("false positive rate of ") + max((len(str(row["label"])) for row in one["classes"]), default=1)
        lines = [
            f"{answer}: the new one {_saves(saving.value)} per 1,000 {unit} ({100 * one['confidence']:g} % confidence "
            f"sequence {least:.4g} to {most:.4g}), {one['rows']:,} rows{together}.",
            f"  {f'cost per 1,000 {unit}':<{width}} old {_text(cost['old'])}, new {_text(cost['new'])}",
        ]
        for row in one["classes"]:
            for name, what in (("recall", "recall"), ("false_alarm_share", "false positive rate")):
                title = f"{what} of {row['label']}"
                both, (value, low, high) = row[name], row[name]["difference"].values()
                interval = "" if low is None else f" ({low:+.3f} to {high:+.3f})"
                found = f"old {_text(both['old'])}, new {_text(both['new'])}, difference {_text(value)}{interval}"
                lines.append(f"  {title:<{width}} {found}")
        lines.append(f"  rows that change decision: {one['changed']['rows']:,}")
        for change in one["changed"]["by_decision"]:
            saved = f"which {_saves(change['saving'])} in all"
            lines.append(f"    {change['old']} → {change['new']}: {plural(change['rows'], 'row')}, {saved}")
        for group in one["groups"]:
            value, low, high = map(_text, group["saving_per_1000"].values())
            found = f"saving per 1,000 {unit} {value} ({low} to {high}), {group[unit]:,} {unit}"
            lines.append(f"  {group['column']} = {group['group']}: {group['verdict']}, {found}")
        return "\n".join([*lines, *note_lines(one["notes"])])


def _saves(value: float) -> str:
    return f"costs {-value:.4g} more" if value < 0.0 else f"saves {value:.4g}"


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
    costs: CostsLike = None,
    probability_old: str | Sequence[str] | None = None,
    probability_new: str | Sequence[str] | None = None,
    positive: Label | None = None,
    groups: str | Sequence[str] = (),
    clusters: str | None = None,
    audit_probability: str | None = None,
    confidence: float = 0.95,
    state: str | Path | None = None,
    read: ReadOptions | None = None,
) -> ModelComparison:
    """Compare the costs of two models on the same labelled rows, as `crcen compare` does.

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
    clusters : str, optional
        Column of rows that belong together, such as a patient: the mean of a cluster counts as one row, and all rows of
        a cluster must be in one call.
    audit_probability : str, optional
        Column with the probability that a row was checked; rows without a label then count as unknown.
    confidence : float, default=0.95
        One minus the probability of ever naming the wrong model.
    state : str or Path, optional
        JSON file with the state between calls, until the comparison is decided; created if it does not exist.
    """
    check("confidence", confidence, 0.5 <= confidence < 1.0, "be at least 0.5 and below 1")
    if state is not None:
        check_writable(state, old, new, data, costs)
    source: Data = data
    models: tuple[Estimator, Estimator]
    pairs = [sum(one is not None for one in pair) for pair in ((old, new), (probability_old, probability_new))]
    either = "a comparison needs two models, or the columns probability_old= and probability_new= without models."
    require(sorted(pairs) == [0, 2], either, "probability_old", "probability_new")
    alone = f"positive must go with columns of probabilities, because models have their own: got {positive!r}."
    require(positive is None or probability_old is not None, alone, "positive")
    if old is None or new is None:
        by_counts = weighting is None or isinstance(weighting, Alpha | str)
        got = "none" if weighting is None else f"{weighting}, which needs the class counts of training"
        needed = "a comparison of probabilities needs a price: state what a miss is worth, or costs="
        require(costs is not None or not by_counts, f"{needed}; got {got}.", "costs")
        source = inputs.source_of(data, read)
        models = _columns((probability_old or (), probability_new or ()), source, target, positive)
        shown = digests = tuple(",".join(one.feature_names_in_) for one in models)
    else:
        models = (inputs.model_of(old), inputs.model_of(new))
        named = {"old": old, "new": new}
        shown = tuple(Path(one).name if isinstance(one, str | Path) else side for side, one in named.items())
        digests = tuple(map(model_digest, models))
    is_stated = weighting is not None or costs is not None
    roles = {"audit_probability": audit_probability, "clusters": clusters}
    named_columns: Values = {"target": target, "needs_target": True, "groups": groups, "roles": roles}
    judging = Judging.of(models[0], source, read, weighting, costs, needs_price=True, **named_columns)
    inputs.target_of(judging.target, models[1], judging.source)
    _check_alike(*models, is_stated=is_stated)
    evidence = _Evidence(shown, digests, models, judging.rule, confidence, clusters)
    with state_lock(state):
        if state is not None and Path(state).exists():
            evidence.take(state)
        if evidence.decided_after is not None:
            note = f"the comparison was decided after {evidence.decided_after:,} rows: these rows were not used"
            return _result(evidence, [note], None)
        rows = _rows(judging, models[1])
        evidence.add(rows, judging.source.name, audit_probability)
        if evidence.tests["cost"].decides(1.0 - confidence):
            evidence.decided_after = evidence.rows
        write_state(state, _STATE, evidence.state())
    return _result(evidence, rows.notes, rows)


def _check_alike(first: FittedModel, second: FittedModel, *, is_stated: bool) -> None:
    """Reject models of different classes, and of different prices if no price was stated."""
    classes, others = first.classes_.tolist(), second.classes_.tolist()
    is_same = classes == others and first.weighting_.positive == second.weighting_.positive
    each = f"the old one has {listed(classes)}, the new one {listed(others)}."
    require_input(is_same, f"both models must have the same classes: {each}")
    units = [one / one.max() for one in (own_costs(model).costs for model in (first, second))]
    is_same = is_stated or (units[0].shape == units[1].shape and np.allclose(units[0], units[1], rtol=1e-6))
    ratios = [f"{one.weighting_.cost_ratio:.4g}" for one in (first, second) if one.weighting_.positive is not None]
    found = f"{' and '.join(ratios)} false alarms for a miss" if ratios else "other costs each"
    such = f"({found}): state one for both, such as --{'budget' if ratios else 'weighting'}"
    two = f"the models were fitted at different prices {such}."
    require_input(is_same, two, "weighting", "costs")


def _columns(
    given: tuple[str | Sequence[str], str | Sequence[str]], source: Source, target: str | None, positive: Label | None
) -> tuple[Estimator, Estimator]:
    if target is None:
        raise InvalidParameter("target must name the column with the labels.", parameter="target")
    inputs.check_column(target, source, "target")
    both = [[one] if isinstance(one, str) else [str(name) for name in one] for one in given]
    if all(len(one) == 1 for one in both):
        found = _positive(source, target, positive)
        labels: list[Label] = [rest_of(found), found]
        price = Price.binary(0.5, 1.0, 1.0)
    else:
        pairs = [[one.partition("=") for one in side] for side in both]
        named = [{label.strip(): column.strip() for label, _, column in side} for side in pairs]
        labels = list(named[0])
        is_right = set(named[1]) == set(labels) and all(label and one[label] for one in named for label in one)
        every = "the columns of probabilities must be CLASS=COLUMN, with the same classes for both"
        require(is_right and len(labels) > 1, f"{every}: got {' '.join(both[0])} and {' '.join(both[1])}.")
        price = Price(np.ones(len(labels)), np.ones(len(labels)))
        both = [[side[str(label)] for label in labels] for side in named]
    for name in (*both[0], *both[1]):
        inputs.check_column(name, source, "the probability")
    old, new = (_ProbabilityColumns(one, np.array(labels, dtype=object), price, target) for one in both)
    return old, new


def _positive(source: Source, target: str, positive: Label | None) -> Label:
    """The positive class, as stated or 1 of 0 and 1."""
    cells = (cell for chunk in source.chunks(columns=[target]) for cell in chunk[target].dropna().unique())
    found = {label_key(cell): str(plain_label(cell)) for cell in cells}
    if positive is None and ({*found} <= {"0", "1"} or {*found} <= {"false", "true"}):
        return 1 if {*found} <= {"0", "1"} else True
    if positive is not None and (label_key(positive) in found or len(found) < 2):
        return positive
    got = "" if positive is None else f": got {positive}"
    named = f"positive must name the positive class of {target}, which has {listed(sorted(found.values()))}{got}."
    raise InvalidParameter(named, parameter="positive")


def _rows(judging: Judging, new_model: Estimator) -> _Rows:
    source, target, price, groups = judging.source, str(judging.target), judging.rule.price, judging.groups
    columns = [name for one in (judging.model, new_model) for name in inputs.input_columns(one) or source.columns]
    digest = RowDigest([name for name in dict.fromkeys([*columns, target]) if name not in judging.roles.values()])
    # The new model first: the table may lack columns of it.
    other = replace(judging, model=new_model).score(reads_labels=False, recognises=True, name="the new model")
    found = judging.score(recognises=True, digest=digest, name="the old model")
    for one in (found, other):
        one.comparison.reject_training_rows("a comparison needs rows that neither model was trained on")
    y, frame, known, e = found.y, found.frame, found.is_labelled, found.audit_probabilities
    together = inputs.cluster_numbers(frame[judging.roles["clusters"]]) if "clusters" in judging.roles else None
    of_new = [*other.comparison.notes, *inputs.weight_notes(new_model, None)]
    notes = found.notes + [f"new model: {one}" for one in of_new if one not in found.notes]
    require_input(known.any(), f"{source.name} has no row with a value of {target}.")
    old, new = (np.asarray(price.decide(p), dtype=np.int64) for p in (found.p, other.p))
    weights, used, least = np.ones(len(y)), known, 1.0
    if e is not None:
        weights, used = np.where(known, 1.0 / np.where(known, e, 1.0), 0.0), np.ones_like(known)
        least = float(e[(e > 0.0) & (e <= 1.0)].min(initial=1.0))
    elif not known.all():
        n_missing = int((~known).sum())
        is_random = label_selection(known, found.p[:, price.positive or 0], old != new).p_value >= _MISSING_P
        biased = f"{n_missing:,} rows lack a value of {target}, which depends on the score and biases the comparison"
        named = "name audit_probability=, the probability that a row was checked."
        require_input(is_random, f"{biased}; {named}", "audit_probability")
        notes.append(f"{n_missing:,} rows without a value of {target} were left out")
    by_group = {name: np.where(frame[name].notna(), frame[name].astype(str), "missing") for name in groups}
    return _Rows(y, old, new, weights, used, by_group, together, least, digest.rows, notes)


def _result(evidence: _Evidence, notes: list[str], rows: _Rows | None) -> ModelComparison:
    price, actions, costs, cost = evidence.rule.price, evidence.actions, evidence.costs, evidence.tests["cost"]
    alpha = 1.0 - evidence.confidence
    verdict = _VERDICTS[cost.decides(alpha)]
    mean = cost.mean if abs(cost.mean) > 1e-12 * np.abs(costs).max() else 0.0  # by rounding alone
    saving = Interval(mean, *cost.interval(alpha)).scaled(1000.0)
    mean_cost = [evidence.tests[f"cost {side}"].mean * 1000.0 for side in _SIDES]
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
    groups, unit = [], "rows" if evidence.clusters is None else "clusters"
    for number, (key, one) in enumerate(evidence.groups.items(), 1):
        column, group = json.loads(key)
        level = alpha / (number * (number + 1))  # sums to α over all groups
        values = Interval(one.mean, *one.interval(level)).scaled(1000.0) if one.n_values else UNKNOWN
        found = {"verdict": _VERDICTS[one.decides(level)], unit: one.n_values, "saving_per_1000": values.to_dict()}
        groups.append({"column": column, "group": group, **found})
    binary = {}
    if price.positive is not None:
        binary = {"cost_ratio": plain_price(price.cost_ratio), "threshold": plain_price(price.threshold)}
    content = {
        "verdict": verdict,
        "old": evidence.names[0],
        "new": evidence.names[1],
        "rows": evidence.rows,
        "clusters": None if evidence.clusters is None else cost.n_values,
        "confidence": evidence.confidence,
        "saving_per_1000": saving.to_dict(),
        "cost_per_1000": {"old": json_value(mean_cost[0]), "new": json_value(mean_cost[1])},
        "price": {**binary, "costs": costs.tolist()},
        "classes": [
            {
                "label": actions[k],
                "rows": float(evidence.totals[0][k].sum()),
                "recall": _class_figures(evidence, "recall", k, alpha),
                "false_alarm_share": _class_figures(evidence, "false", k, alpha),
            }
            for k in evidence.rule.evaluated
        ],
        "changed": {"rows": sum(one["rows"] for one in changed), "by_decision": changed, "examples": examples},
        "groups": groups,
        "calls": len(evidence.batches),
        "decided_after": evidence.decided_after,
        "is_audited": evidence.least_audit != 1.0,
        "notes": notes,
    }
    return ModelComparison(verdict, saving, content)


def _class_figures(evidence: _Evidence, name: str, k: int, alpha: float) -> Values:
    """Recall, or share of other rows decided for the class, of both models and their difference."""
    test, ends = evidence.tests[f"{name} {k}"], (math.nan, math.nan)
    old, new = (evidence.tests[f"{name} {k} {side}"].mean for side in _SIDES)
    if evidence.least_audit != 1.0:  # shares of unequally weighted rows have no such interval
        own = np.arange(evidence.totals.shape[1]) == k
        tables = evidence.totals[:, own if name == "recall" else ~own]
        with np.errstate(invalid="ignore"):
            old, new = (tables[:, :, k].sum(axis=1) / tables.sum(axis=(1, 2))).tolist()
    elif test.n_values:
        ends = test.interval(alpha)
    return {"old": json_value(old), "new": json_value(new), "difference": Interval(float(new - old), *ends).to_dict()}
