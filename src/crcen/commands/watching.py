"""monitor_table: whether new rows are still like those of training, and the model still right."""

import hashlib
import math
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, InvalidParameter, decide
from crcen._support.files import check_writable, write_atomic
from crcen._support.progress import counted, logged
from crcen.commands.classes.watching import ClassTableWatch, watch_classes
from crcen.commands.decided_rows import collected_amounts
from crcen.commands.inputs import check_column, labels_as, model_of, price_of, source_of, target_of, weight_notes
from crcen.commands.prices import has_class_price, price_of_two, refuse_two_class_options
from crcen.commands.scored_chunks import CHUNK_ROWS, Oddities, scored_chunks
from crcen.commands.watch_cohorts import check_cohorts, cohorts_of, present_cohort
from crcen.commands.watch_page import watch_page
from crcen.commands.watch_state import WatchState, new_state, read_state
from crcen.tables.options import ReadOptions
from crcen.theory.decision import sigmoid, weighted_probability
from crcen.theory.labels import Labels
from crcen.theory.limits import FALSE_ALARM_RATE
from crcen.theory.metrics import ExpectedCounts, expected_counts
from crcen.theory.price import Price
from crcen.theory.rows import Shown

__all__ = ["TableWatch", "monitor_table"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TableWatch(Shown):
    """What one call of a watch found; prints itself as a paragraph.

    Parameters
    ----------
    data : str
        The rows.
    call : int
        Which call of this watch it is, from 1.
    n_rows, n_labelled : int
        Rows, and those with a label.
    expected, before : ExpectedCounts
        What decisions are expected to come to by the probabilities, and what they were expected to on training rows.
    price : Price
        The price of decisions.
    unlike : tuple of Difference
        In what these rows differ from training rows beyond chance.
    alarms : tuple of DriftAlarm
        What labels said so far: the first alarm stays.
    reading : MonitorReading or None
        Where the test of labels stands; None before any label.
    error_rate : float
        Chance of any false alarm over all calls, where nothing changes.
    notes : tuple of str
        What was odd about the table.
    path, page : Path or None
        Where the state and the page were written.
    n_held : int
        Labelled rows that wait until their cohort is complete.
    """

    data: str
    call: int
    n_rows: int
    n_labelled: int
    expected: ExpectedCounts
    before: ExpectedCounts | None
    price: Price
    unlike: tuple[Any, ...]
    alarms: tuple[Any, ...]
    reading: Any
    error_rate: float
    notes: tuple[str, ...] = ()
    path: Path | None = None
    page: Path | None = None
    n_held: int = 0

    @property
    def is_alarm(self) -> bool:
        """Whether somebody should look: these rows are unlike those of training, or labels have raised an alarm."""
        return bool(self.unlike or self.alarms)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        ratio = self.price.cost_ratio
        before = None if self.before is None else _figures(self.before, ratio)
        return {
            "data": self.data,
            "call": self.call,
            "is_alarm": self.is_alarm,
            "rows": self.n_rows,
            "labelled": self.n_labelled,
            "held": self.n_held,
            "alarm_share": self.expected.alarm_share,
            "expected": _figures(self.expected, ratio),
            "expected_in_training": before,
            "unlike": [one.to_dict() for one in self.unlike],
            "drift_alarms": [_plain(asdict(one)) for one in self.alarms],
            "labels": None if self.reading is None else _plain(asdict(self.reading)),
            "error_rate": self.error_rate,
            "notes": list(self.notes),
            "state": None if self.path is None else str(self.path),
            "page": None if self.page is None else str(self.page),
        }

    def __repr__(self) -> str:
        word = "alarm" if self.is_alarm else "quiet"
        return f"<TableWatch {word}: call {self.call}, {self.n_rows:,} rows, {self.n_labelled:,} with labels>"

    def __str__(self) -> str:
        lines = ["ALARM" if self.is_alarm else "Quiet", self._sentences()]
        lines += [f"Note: {note}." for note in self.notes]
        lines += [f"State in {self.path}"] if self.path is not None else []
        lines += [f"Page in {self.page}"] if self.page is not None else []
        return "\n".join(lines)

    def _sentences(self) -> str:
        """The paragraph."""
        share = f"{self.expected.n_alarms:,} alarms ({100 * self.expected.alarm_share:.3g} %)"
        said = [f"{self.data}, call {self.call}: {self.n_rows:,} rows, {share}."]
        said.append(self._inputs())
        said.append(self._expected())
        said.append(self._labels())
        said.append(
            f"All calls of this watch together raise a false alarm with a chance of at most {self.error_rate:g}."
        )
        return " ".join(filter(None, said))

    def _inputs(self) -> str:
        if not self.unlike:
            return "The columns are like those of training as far as chance can tell."
        return f"Unlike training: {'; '.join(one.sentence for one in self.unlike)}."

    def _expected(self) -> str:
        words = []
        figures = {"precision": "precision", "recall": "recall"}
        for name, word in figures.items():
            here = getattr(self.expected, name)
            if math.isnan(here.value):
                continue
            there = getattr(self.before, name).value if self.before is not None else math.nan
            beside = "" if math.isnan(there) else f", {there:.2f} in training"
            words.append(f"{word} {here.value:.2f} ({max(here.low, 0):.2f} to {min(here.high, 1):.2f}{beside})")
        here, there = self.expected.cost(self.price.cost_ratio), None
        if self.before is not None:
            there = self.before.cost(self.price.cost_ratio).value
        beside = "" if there is None else f", {there:.3g} in training"
        ends = f"{max(here.low, 0):.3g} to {here.high:.3g}"
        words.append(f"a cost of {here.value:.3g} false alarms per 1,000 rows ({ends}{beside})")
        return (
            f"If the probabilities are still right, which no column can tell, expect {', '.join(words[:-1])}"
            f"{' and ' if len(words) > 1 else ''}{words[-1]}."
        )

    def _labels(self) -> str:
        waiting = f" {self.n_held:,} labelled rows wait until their cohort is complete." if self.n_held else ""
        return self._tested_labels() + waiting

    def _tested_labels(self) -> str:
        if self.reading is None:
            return "No label has been counted yet." if self.n_held else "No label has come yet."
        evidence = math.exp(min(self.reading.log_evidence, 700.0))
        so_far = f"{self.reading.n_rows:,} labels so far, {self.reading.n_pos:,} of them positive"
        if self.alarms:
            return f"Of the labels ({so_far}): {'; '.join(map(str, self.alarms))}."
        if self.reading.log_evidence == 0.0:  # exactly: the test has not been opened
            return (
                f"{so_far}: the model's log-odds are off by {self.reading.drift:+.2f}, which was not tested: the rows "
                "held out of training tell too little to compare with, so later labels are compared with these."
            )
        return (
            f"{so_far}: the model's log-odds are off by {self.reading.drift:+.2f}, which is no alarm (evidence "
            f"{evidence:.3g} : 1)."
        )


@logged
def monitor_table(
    model: Any,
    data: Any,
    *,
    state: str | Path | None = None,
    target: str | None = None,
    weighting: Any = None,
    costs: Any = None,
    when: str | None = None,
    weight: str | None = None,
    delay: int | None = None,
    cohort: str | None = None,
    now: Any = None,
    error_rate: float = FALSE_ALARM_RATE,
    page: str | Path | None = None,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TableWatch | ClassTableWatch:
    """Watch a model at work: compare new rows with those of training, with labels and without: `crcen monitor`.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    data : data frame, str or Path
        Rows since the last call. Those with a value in the target column are counted as labelled.
    state : str or Path, optional
        JSON file that carries the watch from call to call: read where it is there, and written whole. Without it this
        call stands alone.
    target : str, optional
        Column with the labels, where there is one; by default that of training, which need not be there.
    weighting : Budget, CostRatio, Lam, Alpha, "balanced" or float, optional
        Another price than that of training for the expected figures.
    costs : CostMatrix, data frame, str or Path, optional
        Other costs of decisions than those of training, as `crcen.fit_table` takes them.
    when : str, optional
        What to call these rows in the record, such as "2024-05"; by default the name of the file.
    weight : str, optional
        Column that says how much each labelled row counts, for models that were fitted by weights. Figures that are
        expected without labels are of rows.
    delay : int, optional
        Cohorts that must pass before the labels of one are counted, for a new watch: where positives are known later
        than negatives, or the other way round, labels that come early are not like the others. Needs ``cohort``; a
        state that is there brings its own.
    cohort : str, optional
        With ``delay``: column with the day in which each row was scored, as a date, or the number of its week.
    now : date, int or str, optional
        With ``delay``: the present cohort; by default the latest in the table.
    error_rate : float, default=0.05
        Chance of any false alarm over all calls of a watch, where nothing changes: half of it for the columns, half
        for the labels. A state that is there brings its own.
    page : str or Path, optional
        HTML file to write, with the running evidence.
    read : ReadOptions, optional
        How the table is read, where that is not to be detected.
    verbose : int, default=0
        1 shows progress on a terminal.

    Returns
    -------
    TableWatch, or ClassTableWatch for several classes
        ``is_alarm``, and why.
    """
    if isinstance(error_rate, bool) or not isinstance(error_rate, int | float) or not 0.0 < error_rate < 1.0:
        raise InvalidParameter(f"error_rate must lie between 0 and 1: got {error_rate!r}.", parameter="error_rate")
    for place in (state, page):
        if place is not None:
            check_writable(place, model, data)
    fitted = model_of(model)
    source = source_of(data, read, fitted)
    kept = read_state(Path(state), fitted) if state is not None and Path(state).exists() else None
    kept = new_state(fitted, float(error_rate), delay) if kept is None else kept
    check_cohorts(kept, delay, cohort, now)
    named = str(getattr(fitted, "target_name_", "") or "")
    label = target_of(target, fitted, source) if target is not None or named in source.columns else None
    if has_class_price(fitted):
        refuse_two_class_options(fitted, {"weight": weight, "delay": delay, "cohort": cohort})
        named_rows: dict[str, Any] = {"label": label, "when": when or source.name, "verbose": verbose}
        named_rows |= {"state": state, "page": page, "weighting": weighting, "costs": costs}
        return watch_classes(fitted, source, kept, **named_rows)
    price = price_of(price_of_two(weighting, costs, fitted), fitted)
    columns = {
        name: check_column(column, source.columns, name, source.name)
        for name, column in (("weight", weight), ("cohort", cohort))
        if column is not None
    }
    found = _looked_at(fitted, source, price, label, columns, kept.input_error_rate, verbose)
    if len(found.y):
        found.notes.extend(weight_notes(fitted, weight))
    _count_labels(kept, found, fitted, when or source.name, now)
    readings = kept.monitor.history[None]
    watch = TableWatch(
        data=source.name,
        call=kept.n_calls + 1,
        n_rows=found.expected.n_rows,
        n_labelled=len(found.y),
        expected=found.expected,
        before=_before(fitted, price),
        price=price,
        unlike=found.unlike,
        alarms=tuple(kept.monitor.alarms),
        reading=readings[-1] if readings else None,
        error_rate=kept.error_rate,
        notes=tuple([*source.notes, *found.notes]),
        path=None if state is None else Path(state),
        page=None if page is None else Path(page),
        n_held=kept.monitor.n_held,
    )
    kept.add({"when": when or source.name, "digest": found.digest, **watch.to_dict()})
    if page is not None:
        write_atomic(page, watch_page(watch, kept))
    if state is not None:
        write_atomic(state, kept.text())
    return watch


@dataclass(frozen=True, eq=False)
class _Looked:
    """Rows scored: expected figures, labels and probabilities of those that have one, differences, a digest."""

    expected: ExpectedCounts
    y: NDArray[np.bool_]
    p: Array
    unlike: tuple[Any, ...]
    notes: list[str]
    digest: str
    weights: Array | None
    cohorts: Any


def _looked_at(
    model: Any,
    source: Any,
    price: Price,
    label: str | None,
    columns: dict[str, str],
    error_rate: float,
    verbose: int,
) -> _Looked:
    odd, total = Oddities.none(model), ExpectedCounts()
    labels, scores, digest = [np.empty(0, dtype=bool)], [np.empty(0)], hashlib.blake2b(digest_size=16)
    ignored = {*columns.values()} if label is None else {label, *columns.values()}
    cells: dict[str, list[Any]] = {name: [] for name in columns}
    with counted("rows", source.n_rows, visible=bool(verbose)) as done:
        for chunk, p in scored_chunks(model, source, odd, ignored, CHUNK_ROWS):
            total = total + expected_counts(p, decide(p, price))
            if label is not None:
                known = chunk[label].notna().to_numpy()
                found = model.classes_[labels_as(chunk[label][known], model.classes_, label)]
                labels.append(Labels.of_model(model).is_positive(found))
                scores.append(p[known])
                for name, column in columns.items():
                    cells[name].append(chunk[column][known])
                digest.update(np.packbits(labels[-1]).tobytes() + scores[-1].tobytes())
            done(len(p))
    unlike = odd.watch.unlike(total.n_alarms, total.n_rows, price, error_rate)
    weights = collected_amounts(cells["weight"], "weight") if cells.get("weight") else None
    cohorts = cohorts_of(cells["cohort"]) if cells.get("cohort") else None
    y, p = np.concatenate(labels), np.concatenate(scores)
    return _Looked(total, y, p, unlike, odd.notes, digest.hexdigest(), weights, cohorts)


def _count_labels(kept: WatchState, found: _Looked, model: Any, when: str, now: Any) -> None:
    """Give labelled rows to the test; those that were given before are refused."""
    if not len(found.y):
        return
    for call in kept.history:
        if call.get("digest") == found.digest and call.get("labelled"):
            raise InvalidInput(
                f"these labelled rows were counted before, in call {call.get('call')} ({call.get('when')}): counted "
                "twice they would pass for new evidence."
            )
    q = weighted_probability(found.p, model.weighting_)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        own: dict[str, Any] = (
            {"when": when} if found.cohorts is None else {"cohort": found.cohorts, "now": present_cohort(now)}
        )
        kept.monitor.update(q=q, y=Labels.of_model(model).decode(found.y), sample_weight=found.weights, **own)
    found.notes.extend(str(one.message).rstrip(".") for one in said)


def _before(model: Any, price: Price) -> ExpectedCounts | None:
    """Expected figures of training rows, by the quantiles of their scores: out of fold where the model has those."""
    profile = getattr(model, "profile_", None)
    if profile is None or not profile.scores:
        return None
    p = sigmoid(profile.scores[-1])
    return expected_counts(p, p > price.threshold)


def _figures(counts: ExpectedCounts, cost_ratio: float) -> dict[str, Any]:
    return {
        "precision": counts.precision.to_dict(),
        "recall": counts.recall.to_dict(),
        "cost_per_1000": counts.cost(cost_ratio).to_dict(),
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in values.items()}
