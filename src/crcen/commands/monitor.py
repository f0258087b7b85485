"""monitor_table: whether new rows are still like those of training, and the model still right."""

import base64
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import InvalidInput, KeyEquationMonitor, ReadOptions
from crcen._support.files import write_atomic
from crcen._support.progress import logged
from crcen._support.text import Values, attributes, json_value, listed_counts
from crcen.commands import inputs
from crcen.commands.certify import Declaration, declaration_of_model
from crcen.commands.inputs import Data, FittedModel, Label, check, is_share, require, require_input
from crcen.commands.results import Sequences, model_digest, note_lines, read_state, state_lock, write_state
from crcen.commands.rules import CostsLike, RowRule, Weighting, rule_of
from crcen.commands.scoring import Hashes, Judging, ScoredTable
from crcen.decisions.drift import DriftAlarm, MonitorReading
from crcen.report.checks import selection_of
from crcen.report.page import asset, rendered
from crcen.tables.profile import Difference, trained_with_weights
from crcen.theory.criteria import Criterion
from crcen.theory.intervals import UNKNOWN, Interval, normal_interval
from crcen.theory.limits import FALSE_ALARM_RATE, WATCHED_COLUMNS_PART
from crcen.theory.metrics import expected_shares
from crcen.theory.price import sigmoid
from crcen.theory.rows import Array, Bools, Index, ShownInOneLine, four_digits
from crcen.theory.sequential import ConfidenceSequence

_STATE = ("crcen table monitor", 6)  # format and version
_MOST_CALLS, _MOST_HASHES = 400, 1_000_000  # calls whose results are kept, and labelled rows whose hashes are
_MOST_TWINS = 0.05  # rows with an earlier twin are replays if fewer twins than this share are expected by chance
_LOCK_SECONDS = 120.0  # that a call waits for another one that writes the same state
_SHOWN_CALLS = 60  # on the page
_ALL, _OTHERS, _MOST_GROUPS = "all rows", "all others", 20  # groups of declared criteria


class ExpectedRows(NamedTuple):
    """Rows without labels as metrics see them: probabilities (n, K), decisions, costs (K, A), and maybe one class."""

    p: Array
    actions: Index
    costs: Array
    column: int = -1

    def share(self, name: str) -> Interval:
        """Precision or recall of the class."""
        return expected_shares(self.p[:, self.column], self.actions == self.column)[name]

    def cost(self, n_rows: float) -> Interval:
        """Of all classes, for this number of rows."""
        paid = self.costs[:, self.actions].T
        mean = (self.p * paid).sum(axis=1)
        variance = np.maximum((self.p * paid**2).sum(axis=1) - mean**2, 0.0)
        value, low, high = normal_interval(float(mean.mean()), math.sqrt(float(variance.sum())) / len(self.p))
        return Interval(value, max(low, float(paid.min())), min(high, float(paid.max()))).scaled(n_rows)


class ExpectedMetric(NamedTuple):
    """One metric: its title, its value on rows, and whether it is a share of one class or an amount of all rows."""

    title: str
    value: Callable[[ExpectedRows], Interval]
    is_share: bool = True


# In the order they are printed. A metric is one entry.
EXPECTED_METRICS: dict[str, ExpectedMetric] = {
    "precision": ExpectedMetric("precision", lambda rows: rows.share("precision")),
    "recall": ExpectedMetric("recall", lambda rows: rows.share("recall")),
    "cost_per_1000": ExpectedMetric("cost per 1,000 rows", lambda rows: rows.cost(1000.0), is_share=False),
}


@dataclass(frozen=True, eq=False)
class ExpectedFigures:
    """What decisions are expected to result in, if the probabilities are right."""

    # By class, the positive one or all of them, and then by metric; those of all rows have the class None.
    figures: dict[Label | None, dict[str, Interval]]

    @classmethod
    def of(cls, rule: RowRule, p: Array, actions: Index) -> "ExpectedFigures":
        """Figures of rows with probabilities (n, K) and decisions."""
        found: dict[Label | None, dict[str, Interval]] = {}
        for label, k in [*((rule.labels[k], k) for k in rule.evaluated), (None, -1)]:
            rows, metrics = ExpectedRows(p, actions, rule.costs.costs, k), EXPECTED_METRICS.items()
            found[label] = {name: one.value(rows) for name, one in metrics if one.is_share == (label is not None)}
        return cls(found)

    def to_dict(self) -> Values:
        """Plain values, ready for JSON; shares are those of the positive class."""
        *classes, overall = ({name: one.to_dict() for name, one in own.items()} for own in self.figures.values())
        own = classes[0] if len(classes) == 1 else dict.fromkeys(classes[0])
        labelled = [{"label": json_value(label), **one} for label, one in zip(self.figures, classes, strict=False)]
        return {**own, **overall, "classes": labelled}

    def lines(self, before: "ExpectedFigures | None", unit: str) -> list[str]:
        """Metrics with 95 % intervals, each with the value of training."""
        lines = []
        for label, own in self.figures.items():
            show, of = (four_digits, unit) if label is None else ("{:.2f}".format, "")
            words = []
            for name, here in own.items():
                if math.isnan(here.value):
                    continue
                then = UNKNOWN if before is None else before.figures[label][name]
                beside = "" if math.isnan(then.value) else f", {show(then.value)} in training"
                low, high = here[1:3] if label is None else np.clip(here[1:3], 0.0, 1.0)
                between = f"({show(low)} to {show(high)}{beside})"
                words += [f"{EXPECTED_METRICS[name].title} {show(here.value)}{of} {between}"]
            start = "" if label is None or len(self.figures) == 2 else f"{label}: "
            lines += [start + ", ".join(words)] if words else []
        return lines


@dataclass(frozen=True, eq=False, repr=False)
class TableMonitoring(ShownInOneLine):
    """The result of one call of `monitor_table`; prints itself."""

    data: str
    call: int  # from 1
    n_rows: int
    n_labelled: int  # rows with a label that were counted
    n_alarms: int  # rows decided for another class than the default
    rule: RowRule
    decided: dict[Label, int]  # rows with each decision
    expected: ExpectedFigures
    before: ExpectedFigures | None  # on training rows
    unlike: tuple[Difference, ...]  # differences from training rows beyond chance
    alarms: tuple[DriftAlarm, ...]  # from labels so far: the first alarm stays
    reading: MonitorReading | None  # None before any label
    false_alarm_rate: float  # of any false alarm over all calls, if nothing changes
    notes: tuple[str, ...] = ()
    path: Path | None = None  # of the state
    page: Path | None = None
    n_held: int = 0  # labelled rows that wait until their cohort is complete
    declared: tuple[Values, ...] = ()  # declared criteria, and whether each of them still holds

    @property
    def is_alarm(self) -> bool:
        """Whether rows are unlike those of training, labels raised an alarm, or a declared criterion is broken."""
        return bool(self._causes)

    @property
    def _causes(self) -> list[str]:
        broken = any(one["alarms"] for one in self.declared)
        causes = {"differences from training": self.unlike, "drift by labels": self.alarms, "broken criterion": broken}
        return [cause for cause, found in causes.items() if found]

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        return {
            **attributes(self, "data call is_alarm rows=n_rows labelled=n_labelled held=n_held price=rule decided"),
            "alarm_share": self.n_alarms / self.n_rows,
            **attributes(self, "expected expected_in_training=before unlike"),
            "drift_alarms": [{**json_value(one), "sentence": str(one)} for one in self.alarms],
            **attributes(self, "labels=reading false_alarm_rate declared notes state=path page"),
        }

    def __str__(self) -> str:
        lines = [f"ALARM: {', '.join(self._causes)}" if self.is_alarm else "Quiet"]
        for title, texts in self.parts().items():
            lines += [f"{title if i == 0 else '':<10} {text}" for i, text in enumerate(texts)]
        places = {"State": self.path, "Page": self.page}
        lines += [*note_lines(self.notes), *(f"{what} in {path}" for what, path in places.items() if path is not None)]
        return "\n".join(lines)

    def parts(self) -> dict[str, list[str]]:
        """The result in words, by subject."""
        columns = ["no differences from training beyond chance"]
        if self.unlike:
            columns = ["differences from training beyond chance:", *(f"  {one.sentence}" for one in self.unlike)]
        decided = f"{self.n_alarms:,} alarms ({100 * self.n_alarms / self.n_rows:.3g} %)"
        if self.rule.price.positive is None:
            decided = listed_counts(self.decided.items(), most=12)
        held = [f"{self.n_held:,} labelled rows wait until their cohort is complete"] if self.n_held else []
        unit = "" if self.rule.price.positive is None else " false alarms"
        declared: list[str] = []
        for one in self.declared:
            estimate = "" if one["estimate"] is None else f" ({one['estimate']:.4g} on {one['rows']:,} rows that count)"
            declared += one["alarms"] or [f"{one['criterion']}: {one['verdict']}{estimate}"]
        return {
            "Rows": [f"{self.n_rows:,} of {self.data}, {self.n_labelled:,} with labels (call {self.call})"],
            "Decisions": [decided],
            "Columns": columns,
            "Expected": [
                *self.expected.lines(self.before, unit),
                "assuming that the probabilities are still right, which only labels can show",
            ],
            "Labels": [self.label_sentence, *held],
            **({"Declared": declared} if declared else {}),
            "Guarantee": [
                f"the probability of any false alarm over all calls is at most {self.false_alarm_rate:g}",
                *(["declared criteria add at most one minus the declared confidence"] if declared else []),
            ],
        }

    @property
    def label_sentence(self) -> str:
        """A sentence on the labels so far."""
        if self.reading is None:
            return "none counted yet" if self.n_held else "none yet"
        so_far, drifts = f"{self.reading.n_rows:,} so far", self.reading.drift_by_class
        known = [k for k, one in enumerate(drifts) if math.isfinite(one)]
        if self.rule.price.n_classes == 2:
            so_far += f", {self.reading.counts[1]:,} of them positive"
            drift, off = drifts[0], "drift"
        elif known:
            most = max(known, key=lambda k: abs(drifts[k]))
            drift, off = drifts[most], f"largest drift, of {self.rule.labels[most]},"
        else:
            return f"{so_far}: too few for an estimate"
        if self.alarms:
            return f"{so_far}: {'; '.join(map(str, self.alarms))}"
        off = f"{so_far}: {off} {drift:+.2f} in log-odds"
        if self.reading.log_evidence == 0.0:  # exactly: the test has not been opened
            few = "too few rows were held out of training to compare with, so later labels are compared with these"
            return f"{off}, not tested: {few}"
        return f"{off}, no alarm (evidence {math.exp(min(self.reading.log_evidence, 700.0)):.3g} : 1)"


@logged
def monitor_table(
    model: FittedModel | str | Path,
    data: Data,
    *,
    state: str | Path | None = None,
    target: str | None = None,
    weighting: Weighting = None,
    costs: CostsLike = None,
    when: str | None = None,
    weight: str | None = None,
    clusters: str | None = None,
    audit_probability: str | None = None,
    delay: int | None = None,
    cohort: str | None = None,
    now: date | int | str | None = None,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    declaration: str | Path | None = None,
    are_new: bool = False,
    page: str | Path | None = None,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TableMonitoring:
    """Compare new rows with those of training, with labels and without, as `crcen monitor` does.

    Parameters
    ----------
    model, weighting, costs, weight, clusters, read, verbose
        See `crcen.evaluate_table`. A price changes the expected metrics; rows of a cluster count as one arrival.
    data : data frame, str or Path
        Rows since the last call. Those with a value in the target column are counted as labelled.
    state : str or Path, optional
        JSON file with the state of the monitor between calls; concurrent calls wait for each other.
    target : str, optional
        Column with the labels, if there is one; by default that of training, which may be absent.
    when : str, optional
        Name of these rows in the record, such as "2024-05"; by default the name of the file.
    audit_probability : str, optional
        As in `crcen.evaluate_table`; rows count relative to the smallest probability of the first call.
    delay, cohort, now : int, str, and date, int or str, optional
        Number of cohorts after which the labels of a cohort are complete, if one class is labelled later; column with
        the day on which each row was scored, or the number of its week; the present cohort, default the latest.
    false_alarm_rate : float, default=0.05
        Probability of any false alarm over all calls if nothing changes, half of it for columns; for a new state.
    declaration : str or Path, optional
        File of `crcen.declare`: a declared criterion that no longer holds on labelled rows so far raises an alarm.
    are_new : bool, default=False
        Whether no labelled row was counted before; otherwise rows are compared with those of earlier calls.
    page : str or Path, optional
        HTML file to write, with the evidence so far.
    """
    check("false_alarm_rate", false_alarm_rate, is_share(false_alarm_rate), "lie between 0 and 1")
    inputs.check_outputs({"state": state, "page": page}, model, data, declaration, costs)
    check("when", when, when is None or cohort is None, "be left out with cohort=, which states the time", "cohort")
    stated = None if declaration is None else declaration_of_model(declaration, model, clusters)
    clusters = clusters if stated is None else stated.clusters
    roles = {"weight": weight, "clusters": clusters, "cohort": cohort, "audit_probability": audit_probability}
    others = {"delay": delay, **roles, "clusters": None}
    wrong = ", ".join(name for name, value in others.items() if value is not None)
    alone = f"declaration must be left out with {wrong}: declared criteria need equal rows that all have labels."
    require(stated is None or not wrong, alone, "declaration")
    judging = Judging.of(model, data, read, weighting, costs, target=target, roles=roles, needs_price=True)
    fitted, source, rule = judging.model, judging.source, judging.rule
    if stated is not None and judging.target is not None:
        judging.groups.extend(inputs.group_columns(stated.content["groups"], source, judging.target))
    of_labels = [name for name in judging.roles if name != "clusters"]  # by which columns are compared too
    no_labels = f"{' and '.join(of_labels)} must go with labels: {source.name} has no target column."
    require(judging.target is not None or not of_labels, no_labels, *of_labels)
    begin = partial(MonitorState.of, state, fitted, float(false_alarm_rate), delay, cohort, now)
    begin()  # before the rows are scored, so that a wrong state is reported at once
    scored = judging.score(verbose, recognises=not are_new, keeps_hashes=True)
    actions, _ = rule.decide(scored.p)
    n_alarms, cohorts = int(rule.alarms(actions).sum()), _cohorts_of(scored)
    own = {"sample_weight": scored.amounts("weight"), "clusters": scored.clusters, "cohort": cohorts}
    with state_lock(state, _LOCK_SECONDS):
        kept = begin()
        hashes = scored.comparison.hashes(scored.y, scored.p)
        known, recognition = scored.is_labelled, scored.comparison.recognition()
        rows, notes = np.flatnonzero(known), recognition.notes if recognition else []
        if len(rows) and not are_new:
            rows, counted = _new_rows(kept, rows, hashes, source.name)
            notes += counted
        is_partly_labelled = audit_probability is None and known.any() and not known.all()
        if is_partly_labelled and selection_of(fitted, known, scored.p).is_alarms_only:
            notes.append("only alarms have labels: they say nothing about the other rows (CRC011)")
        if len(rows):
            if isinstance(now, str) and now.strip().lstrip("-").isdigit():
                now = int(now)
            named: Values = {"now": now} if cohort is not None else {"when": when or source.name}
            notes += _count_labels(kept, scored, rows, fitted, own, named)
        k = kept.n_calls + 1  # the columns of call k have 1/(k(k + 1)) of their part, which sums to 1
        rate = WATCHED_COLUMNS_PART * kept.false_alarm_rate / (k * (k + 1))
        is_comparable = weight is None or trained_with_weights(fitted)
        unlike = scored.comparison.unlike(n_alarms, rule.price, rate) if is_comparable else ()
        declared: tuple[Values, ...] = ()
        if stated is not None:
            own_rule = rule_of(fitted, source, None, None)
            criteria = DeclaredMonitor.from_state(stated, np.asarray(own_rule.costs.costs), kept.declared)
            texts = {name: scored.frame[name].iloc[rows].map(str).to_numpy(dtype=object) for name in judging.groups}
            related = None if clusters is None else inputs.cluster_numbers(scored.frame[clusters].iloc[rows])
            criteria.add(scored.y[rows], own_rule.decide(scored.p)[0][rows], texts, related)
            declared = tuple(criteria.results(len(unlike), len(kept.monitor.alarms)))
            kept.declared = criteria.state()
        readings = kept.monitor.history[None]
        result = TableMonitoring(
            data=source.name,
            call=k,
            n_rows=len(actions),
            n_labelled=len(rows),
            n_alarms=n_alarms,
            rule=rule,
            decided=dict(zip(rule.names, np.bincount(actions, minlength=len(rule.names)).tolist(), strict=True)),
            expected=ExpectedFigures.of(rule, scored.p, actions),
            before=_before(fitted, rule),
            unlike=unlike,
            alarms=tuple(kept.monitor.alarms),
            reading=readings[-1] if readings else None,
            false_alarm_rate=kept.false_alarm_rate,
            notes=tuple([*scored.notes, *notes]),
            path=None if state is None else Path(state),
            page=None if page is None else Path(page),
            n_held=kept.monitor.n_held,
            declared=declared,
        )
        kept.add({"when": when or source.name, **result.to_dict()}, hashes[rows])
        if page is not None:
            write_atomic(page, _page(result, kept))
        write_state(state, _STATE, kept.to_dict())
    return result


def _count_labels(
    kept: "MonitorState", scored: ScoredTable, rows: Index, model: FittedModel, own: Values, named: Values
) -> list[str]:
    """Give labelled rows to the test, with audits also the rows without a label; its warnings as notes."""
    among, e = np.searchsorted(np.flatnonzero(scored.is_labelled), rows), scored.audit_probabilities
    options: Values = {name: values[among] for name, values in own.items() if values is not None}
    labels = model.classes_[scored.y[rows]]
    if e is not None:
        others = np.flatnonzero(~scored.is_labelled)
        options = {name: np.append(values, np.repeat(values[:1], len(others))) for name, values in options.items()}
        labels = np.append(labels.astype(object), np.full(len(others), None, dtype=object))
        rows = np.concatenate([rows, others])
        options["audit_probability"] = e[rows]
    q = model.weighting_.weighted(scored.p[rows])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept.monitor.update(q=q, y=labels, **options, **named)
    return [str(one.message).rstrip(".") for one in caught]


def _before(model: FittedModel, rule: RowRule) -> ExpectedFigures | None:
    """Expected figures of training rows by the quantiles of their scores, out of fold if the model has those."""
    profile = getattr(model, "profile_", None)
    if profile is None or not profile.scores or rule.price.positive is None:
        return None
    own = sigmoid(profile.scores[-1])
    p = rule.price.by_column(own, 1.0 - own)
    return ExpectedFigures.of(rule, p, rule.decide(p)[0])


def _new_rows(kept: "MonitorState", rows: Index, hashes: Hashes, name: str) -> tuple[Index, list[str]]:
    """The labelled rows that were not counted before, and notes; a replayed table is an error.

    If hardly any row of this table has a twin in it, a row that matches an earlier one is a replay; otherwise only a
    table whose rows all match those of one earlier call is.
    """
    own = hashes[rows]
    values, counts = np.unique(own, return_counts=True)
    twins = float((counts[counts > 1]).sum()) / len(own)
    left_out, calls = np.zeros(len(own), dtype=bool), []
    for call in kept.history:
        earlier = np.frombuffer(base64.b64decode(call["row_hashes"]), dtype="<u4").astype(np.uint32)
        if not len(earlier):
            continue
        # Each earlier row is the partner of one row here.
        partners = pd.Series(own).map(pd.Series(earlier).value_counts()).fillna(0)
        matches = np.asarray(pd.Series(own).groupby(own).cumcount() < partners)
        n_matches, smaller = int(matches.sum()), min(len(own), len(earlier))
        are_known = twins * max(len(earlier) / len(own), 1.0) < _MOST_TWINS
        is_same = n_matches == smaller and (len(own) == len(earlier) or len(values) > 0.5 * len(own))
        if (are_known and n_matches > 0.5 * len(own)) or (is_same and smaller > 1):
            where = f"in call {call.get('call')} ({call.get('when')}): they must not be counted twice."
            raise InvalidInput(f"{n_matches:,} of {len(own):,} labelled rows of {name} were counted before, {where}")
        if are_known and n_matches:
            left_out |= matches
            calls.append(str(call.get("call")))
    if not left_out.any():
        return rows, []
    note = f"{int(left_out.sum()):,} labelled rows were counted before, in call {', '.join(calls)}, and were left out"
    return rows[~left_out], [note]


def _cohorts_of(scored: ScoredTable) -> NDArray[np.generic] | None:
    """Days or whole numbers of labelled rows, from cells that may be text, if the column was named."""
    if "cohort" not in scored.roles:
        return None
    column = scored.labelled(scored.roles["cohort"])
    absent = f"cohort must be known for every labelled row: {column.name} is missing in some."
    require_input(column.notna().all(), absent, "cohort")
    numbers = pd.to_numeric(column, errors="coerce")
    are_numbers = numbers.notna().all() and column.dtype.kind != "M"
    return np.asarray(numbers) if are_numbers else inputs.dates_of(column, "cohort").astype("datetime64[D]")


@dataclass
class DeclaredMonitor:
    """Running tests of declared thresholds by criterion and group, and sentences on those that are ``broken``.

    α = (1 − confidence) / criteria with a threshold, over the whole stream; with groups, half of it for all rows and
    1/(2j(j + 1)) for the j-th group.
    """

    declared: Declaration
    costs: Array
    tests: dict[str, Sequences] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @classmethod
    def from_state(cls, declared: Declaration, costs: Array, state: Values | None) -> "DeclaredMonitor":
        """With the tests of earlier calls, if there are any."""
        if state is None:
            return cls(declared, costs)
        other = "this monitor was started with another declaration: start a new one."
        require_input(state["digest"] == declared.digest, other)
        tests = {text: Sequences.from_state(groups) for text, groups in state["tests"].items()}
        return cls(declared, costs, tests, state["broken"])

    def state(self) -> Values:
        """Plain values that `from_state` takes."""
        tests = {text: groups.state() for text, groups in self.tests.items()}
        return {"digest": self.declared.digest, "tests": tests, "broken": self.broken}

    def add(
        self, y: Index, actions: Index, groups: Mapping[str, NDArray[np.object_]], clusters: Index | None = None
    ) -> None:
        """Add labelled rows with their decisions and groups; rows of a cluster count as one."""

        def put(tests: Sequences, key: str, part: Bools) -> None:
            low, high = ends
            tests.put(key, values[part], low, high, None if clusters is None else clusters[part])

        for one in self.declared.criteria:
            if not one.has_threshold:
                continue
            ends, values, among = (0.0, 1.0), (y == actions).astype(np.float64), np.ones(len(y), dtype=np.bool_)
            if one.metric == "cost":
                ends, values = (float(self.costs.min()), float(self.costs.max())), self.costs[y, actions]
            else:
                among = (y if one.metric == "recall" else actions) == one.column
            tests = self.tests.setdefault(one.text, Sequences())
            put(tests, _ALL, among)
            for column, names in groups.items():
                for name in dict.fromkeys(names):
                    key = f"{column} = {name}"
                    if key not in tests and sum(other.startswith(f"{column} = ") for other in tests) >= _MOST_GROUPS:
                        key = f"{column} = {_OTHERS}"
                    put(tests, key, among & (names == name))
            self._judge(one, tests)

    def _judge(self, one: Criterion, tests: Mapping[str, ConfidenceSequence]) -> None:
        stated = self.declared.content
        alpha = (1.0 - stated["confidence"]) / sum(other.has_threshold for other in self.declared.criteria)
        alpha *= 0.5 if stated["groups"] else 1.0
        for number, (key, test) in enumerate(tests.items()):
            level = alpha / (number * (number + 1) or 1)
            mean = min(max(one.threshold, test.low), test.high)
            side = 1 if one.metric == "cost" else -1
            start = f"{one.text} no longer holds in {key}: "
            is_known = any(text.startswith(start) for text in self.broken)
            if not is_known and test.n_values and test.log_capital(mean, side) >= math.log(1.0 / level):
                self.broken.append(f"{start}{test.mean * one.per:.4g} on {test.n_values:,} rows that count")

    def results(self, n_differences: int, n_drifts: int) -> list[Values]:
        """Each declared criterion with its state; the key equation and unlike are those of the monitor itself."""
        found = []
        for one in self.declared.criteria:
            test = self.tests.get(one.text, Sequences()).get(_ALL)
            alarms = [text for text in self.broken if text.startswith(f"{one.text} no longer")]
            own = {"key equation": n_drifts, "unlike": n_differences}.get(one.metric, len(alarms))
            verdict = "not monitored" if one.metric == "groups" else "no longer holds" if own else "no alarm"
            estimate, rows = (None, 0) if test is None else (json_value(test.mean * one.per), test.n_values)
            values = {"criterion": one.text, "verdict": verdict, "estimate": estimate}
            found.append({**values, "rows": rows, "alarms": alarms})
        return found


@dataclass
class MonitorState:
    """What is kept between calls."""

    model: str  # digest of the monitored model
    false_alarm_rate: float  # from columns and labels, over all calls together
    monitor: KeyEquationMonitor  # the test of labels
    n_calls: int = 0
    history: list[Values] = field(default_factory=list)  # the latest calls, with hashes of labelled rows
    declared: Values | None = None  # running tests of declared criteria

    @classmethod
    def of(
        cls,
        state: str | Path | None,
        model: FittedModel,
        rate: float,
        delay: int | None,
        cohort: str | None,
        now: date | int | str | None,
    ) -> "MonitorState":
        """The state in a file, or one before any row: labels are compared with rows held out of training, if any."""
        if state is None or not Path(state).exists():
            monitor = KeyEquationMonitor(model, false_alarm_rate=(1.0 - WATCHED_COLUMNS_PART) * rate, delay=delay)
            if (sums := getattr(model, "held_out_sums_", None)) is not None:
                monitor.use_reference(sums)
            kept = cls(model_digest(model), rate, monitor)
        else:
            found = read_state(state, _STATE, "monitor")
            other = f"{state} is the monitor state of another model: after a refit, start a new one with another name."
            require_input(found["model"] == model_digest(model), other)
            monitor = KeyEquationMonitor.from_state(found.pop("labels"), model)
            kept = cls(**found, monitor=monitor)
        begun = {"false_alarm_rate": kept.false_alarm_rate, "delay": kept.monitor.delay}
        for name, given in {"false_alarm_rate": None if rate == FALSE_ALARM_RATE else rate, "delay": delay}.items():
            started = "none" if begun[name] is None else begun[name]
            same = f"{name} must not change in a monitor that was started with {started}: got {given}."
            require(given is None or given == begun[name], same, name)
        needed = "cohort must name the column of days or weeks, because this monitor holds labels back."
        require(begun["delay"] is None or cohort is not None, needed, "cohort")
        alone = "cohort= and now= need delay=, which states how long labels are held back."
        require(begun["delay"] is not None or cohort is now is None, alone, "cohort", "now", "delay")
        return kept

    def add(self, call: Values, hashes: Hashes) -> None:
        """Add the result of a call; the hashes of the oldest rows are dropped beyond a million."""
        self.n_calls += 1
        text = base64.b64encode(np.sort(hashes).astype("<u4").tobytes()).decode()
        self.history = [*self.history, {**call, "row_hashes": text}][-_MOST_CALLS:]
        total = 0
        for one in reversed(self.history):
            total += len(one["row_hashes"]) * 3 // 16
            if total > _MOST_HASHES:
                one["row_hashes"] = ""

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        values = {name: one for name, one in vars(self).items() if name != "monitor"}
        return {**values, "labels": self.monitor.state()}


def _page(result: TableMonitoring, kept: MonitorState) -> str:
    history, label_rate = kept.history[-_SHOWN_CALLS:], kept.monitor.false_alarm_rate
    evidence = [(float(one.batch), one.log_evidence / math.log(10.0)) for one in kept.monitor.history[None]]
    # Each call with its value and the ends of its interval.
    expected = {
        metric.title: [
            (call["call"], one["value"], one["low"], one["high"])
            for call in history
            if (one := call["expected"].get(name)) and one["value"] is not None
        ]
        for name, metric in EXPECTED_METRICS.items()
    }
    parts: Values = {"metrics": EXPECTED_METRICS, "result": result, "n_calls": kept.n_calls, "history": history}
    parts |= {"evidence": evidence, "expected": expected}
    parts |= {"word": "Alarm" if result.is_alarm else "Quiet", "label_rate": label_rate, "bar": -math.log10(label_rate)}
    return rendered("monitor.html.j2", parts, asset("report.css") + asset("monitor.css"))
