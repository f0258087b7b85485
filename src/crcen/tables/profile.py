"""A summary of the training rows, and whether new rows are like them.

Quantiles and ranges are rounded, so that none is the value of a single row. Each comparison has an exact or
conservative p-value; one error rate holds for all of them, and a difference must also be large enough to matter.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.text import plural
from crcen.models.reasons import typical_rows
from crcen.tables.cells import TableCells, stacked
from crcen.tables.columns import FEWEST_ROWS, RANGE_PARTS, Column, EncodedTable, blocks_of, nice_step, rounded
from crcen.tables.fingerprint import chance_of_more
from crcen.theory.checks import check_row_weights
from crcen.theory.limits import UNLIKE_DISTANCE, UNLIKE_P, UNLIKE_RATIO, UNLIKE_SCALE, UNLIKE_SHARE
from crcen.theory.price import Labels, Price
from crcen.theory.rows import AddsUp, Array, Bools, Estimator, Index, alarms_above, four_digits
from crcen.theory.sequential import StreamSums, stream_sums

_EDGES, _SCORES, _FEWEST_SCORES, _MOST_SCORED = 33, 2049, 257, 20_000
_EXTREME = 1000.0  # training ranges outside, a single value is reported: a unit, or a placeholder such as 999999999


@dataclass(frozen=True)
class Difference:
    """One way in which new rows are unlike training rows: shares of rows, or means if ``kind`` is "scale"."""

    column: str | None
    kind: str
    here: float
    training: float
    sentence: str


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """A column of the training rows.

    Numbers and dates have ``edges`` (rounded quantiles) and how many values are at most each (``below``); categories
    have ``counts``, and ``n_other`` rows whose value is rare.
    """

    name: str
    kind: str
    n_missing: int
    n_unreadable: int
    n_known: int
    mean: float
    edges: Array
    below: Index
    counts: Index
    n_other: int


@dataclass(frozen=True, eq=False)
class TrainingProfile:
    """Training rows, with quantiles of their natural log-odds: by the model, and out of fold if it has such."""

    n_rows: int
    columns: tuple[ColumnProfile, ...]
    scores: list[Array]


def profile_of(columns: list[Column], table: TableCells, encoded: EncodedTable, scores: list[Array]) -> TrainingProfile:
    """The profile of training rows, encoded as ``encoded``, with their natural log-odds ``scores``."""
    found, blocks = [], blocks_of(columns)
    values = {one.name: _values(one, encoded.X[:, block])[0] for one, block in zip(columns, blocks, strict=True)}
    all_edges = _edges(values, len(encoded.X))
    for column, block in zip(columns, blocks, strict=True):
        edges = all_edges.get(column.name, np.empty(0))
        own = _Tally.of(column, block, encoded, edges)
        sizes = table[column.name].counts.to_numpy() if column.kind == "category" else np.empty(0)
        n_other = int(sizes[sizes <= FEWEST_ROWS].sum())
        mean = own.total / own.n_values if own.n_values else math.nan
        cells = own.n_missing, own.n_unreadable, own.n_known
        found.append(ColumnProfile(column.name, column.kind, *cells, mean, edges, own.at_most, own.counts, n_other))
    kept = []
    for one in scores:
        size = max(_FEWEST_SCORES, _SCORES // (one.size // len(one)))
        kept.append(np.quantile(one, np.linspace(0, 1, size), axis=0) if len(one) > size else np.sort(one, axis=0))
    return TrainingProfile(len(encoded.X), tuple(found), kept)


def _edges(columns: Mapping[str, Array], n_rows: int) -> dict[str, Array]:
    """Rounded quantiles of columns that have values, with at least five rows between them."""
    complete = {name: values for name, values in columns.items() if len(values) == n_rows}
    others = (([name], values[None]) for name, values in columns.items() if 0 < len(values) < n_rows)
    found = {}
    for names, values in itertools.chain(stacked(complete), others):
        shares = np.linspace(0, 1, min(_EDGES, max(3, values.shape[1] // FEWEST_ROWS)))
        quantiles = np.quantile(values, shares, axis=1).T
        has_ties = ~(np.diff(quantiles) > 0.0).all(axis=1)
        for name, own, edges, tied in zip(names, quantiles, _rounded_edges(quantiles), has_ties, strict=True):
            found[name] = np.unique(_rounded_edges(np.unique(own)[None]) if tied else edges)
    return found


def _rounded_edges(edges: Array) -> Array:
    """Different edges of columns, (m, edges), rounded: the first and last ones outwards."""
    first, last = edges[:, :1], edges[:, -1:]
    step = nice_step(last - first, RANGE_PARTS)
    inner = rounded(edges[:, 1:-1], nice_step(edges[:, 2:] - edges[:, :-2], 8))
    return np.hstack([rounded(first, step, "down"), inner, rounded(last, step, "up")])


def trained_with_weights(model: Estimator) -> bool:
    """Whether the training rows had weights: by their name, or as the class counts are no numbers of rows."""
    counts = np.asarray(getattr(getattr(model, "weighting_", None), "counts", ()))
    n_rows = getattr(getattr(model, "profile_", None), "n_rows", len(getattr(model, "oof_proba_", ())))
    has_parts = bool((np.abs(counts - np.rint(counts)) > 1e-9 * counts).any())
    return hasattr(model, "weight_name_") or has_parts or 0 < n_rows < counts.sum() - 0.5


def rows_to_score(n_rows: int) -> Index:
    """Rows by whose scores a fitted model is described: of many rows a random part, in order."""
    return np.sort(np.random.default_rng(0).permutation(n_rows)[:_MOST_SCORED])


def training_scores(estimator: Estimator, X: Array) -> list[Array]:
    """Natural log-odds of training rows, and out of fold if known; without a positive class those of all, (n, K)."""
    p = np.clip(estimator.predict_proba(X[rows_to_score(len(X))]), 1e-300, 1.0 - 1e-16)
    natural = np.log(p) - np.log1p(-p)
    if not hasattr(estimator, "pos_label_"):
        return [natural]
    from crcen.models.options import Calibration  # only here: new rows need no options

    labels = Labels.of_model(estimator)
    scores, held_out = [natural[:, labels.column]], getattr(estimator, "oof_decision_function_", None)
    if held_out is not None and Calibration.of(getattr(estimator, "calibration", "paper")).probability == "shift":
        scores.append(labels.signed(held_out[np.isfinite(held_out)]) - estimator.weighting_.logit_shift)
    return scores


def held_out_sums(estimator: Estimator, y: ArrayLike, sample_weight: ArrayLike | None) -> StreamSums:
    """Residual sums of the out-of-fold rows of a fitted estimator, for a monitor; empty if it held none out."""
    price: Price = estimator.weighting_
    chances: Array = getattr(estimator, "oof_proba_", np.empty((0, price.n_classes)))
    known: Bools = np.asarray(np.isfinite(chances).all(axis=1))
    if not known.any():
        return StreamSums.none(price.n_classes)
    q, numbers = price.weighted(chances[known]), Labels(estimator.classes_).encode(y)[known]
    if price.positive == 0:  # the sums are of the second of two classes
        q, numbers = q[:, ::-1], 1 - numbers
    if price.positive is not None:
        price = Price.binary(price.lam, price.n_pos, price.n_neg)
    return stream_sums(numbers, q, price, check_row_weights(sample_weight, len(known))[known])


def typical_table(columns: list[Column], X: Array) -> Array:
    """Typical rows of encoded training rows: numbers rounded, and means of the components of texts."""
    blocks = blocks_of(columns)
    found = typical_rows(X, blocks, [column.kind == "text" for column in columns])
    at = [block.start for column, block in zip(columns, blocks, strict=True) if column.kind in ("number", "date")]
    lower, upper = np.quantile(X[:, at], [0.25, 0.75], axis=0)
    spread = np.where(upper > lower, upper - lower, np.ptp(X[:, at], axis=0))
    found[:, at] = rounded(found[:, at], nice_step(spread, 50))
    return found


@dataclass(frozen=True, eq=False)
class _Tally(AddsUp):
    """Counts of a column's cells; those of several chunks are added."""

    n: int
    n_missing: int
    n_unreadable: int
    n_unseen: int
    n_clipped: int
    excess: float
    n_values: int
    n_below: int
    n_above: int
    total: float
    at_most: Index
    counts: Index

    @classmethod
    def of(cls, column: Column, block: slice, encoded: EncodedTable, edges: Array) -> "_Tally":
        """Count the cells of an encoded column against the edges of the training rows."""
        part, name = encoded.X[:, block], column.name
        values, is_missing = _values(column, part)
        n_unreadable = encoded.unreadable.get(name, 0)
        n_missing = int(is_missing.sum()) - n_unreadable if column.has_missing else 0
        below, above = (values < edges[0], values > edges[-1]) if len(edges) else ((), ())
        return cls(
            len(part), n_missing + encoded.missing.get(name, 0), n_unreadable,
            encoded.unseen.get(name, 0), encoded.clipped.get(name, 0), encoded.excess.get(name, 0.0),
            len(values), int(np.sum(below)), int(np.sum(above)), float(values.sum()),
            np.searchsorted(np.sort(values), edges, side="right").astype(np.int64), _category_counts(column, part),
        )  # fmt: skip

    @property
    def n_known(self) -> int:
        """Cells that are neither missing nor unreadable."""
        return self.n - self.n_missing - self.n_unreadable


class NewRows:
    """New rows, counted chunk by chunk against a profile."""

    def __init__(self, profile: TrainingProfile, columns: Sequence[Column]) -> None:
        self.profile, self.columns = profile, columns
        self.n_rows = 0
        self._tallies: list[_Tally] = []

    def add(self, encoded: EncodedTable) -> None:
        """Count the rows of an `EncodedTable`."""
        self.n_rows += len(encoded.X)
        known = zip(self.columns, blocks_of(self.columns), self.profile.columns, strict=True)
        own = [_Tally.of(column, block, encoded, before.edges) for column, block, before in known]
        self._tallies = [a + b for a, b in zip(self._tallies, own, strict=True)] if self._tallies else own

    def differences(
        self, n_alarms: int | None = None, logit_threshold: float = 0.0, false_alarm_rate: float = UNLIKE_P
    ) -> list[Difference]:
        """How these rows differ from training rows beyond chance, at one false-alarm rate for all comparisons."""
        if not self.n_rows:
            return []
        n_comparisons = sum(5 if len(one.edges) else 3 + len(one.counts) for one in self.profile.columns)
        level = false_alarm_rate / (1 + n_comparisons)
        found, labels = [], {column.name: _labels(column) for column in self.columns}
        for before, tally in zip(self.profile.columns, self._tallies, strict=True):
            found += [one for one in _compared(before, tally, labels[before.name], level) if one is not None]
        if n_alarms is not None and self.profile.scores:
            found += self._alarms(n_alarms, logit_threshold, level)
        return found

    def _alarms(self, n_alarms: int, logit_threshold: float, level: float) -> list[Difference]:
        shares = [float(alarms_above(one, logit_threshold).mean()) for one in self.profile.scores]
        n, here = self.profile.n_rows, n_alarms / self.n_rows
        # The model on rows it has learnt from and networks on rows they have not: new rows may be like either.
        share = min(shares, key=lambda one: abs(one - here))
        is_near = max(here, share) < UNLIKE_RATIO * min(here, share) + UNLIKE_SHARE
        is_like = is_near or min(shares) <= here <= max(shares)
        if is_like or _chance_apart(n_alarms, self.n_rows, round(share * n), n) > level:
            return []
        return [Difference(None, "alarms", here, share, f"{_percent(here)} alarms here, {_percent(share)} in training")]


def _compared(before: ColumnProfile, tally: _Tally, labels: list[str], level: float) -> "list[Difference | None]":
    """A column's differences: of its cells, then of what is missing."""
    gaps = [
        _share(before, tally, "unreadable", level, "{here} of cells are no {kind} as written in training"),
        _share(before, tally, "missing", level, "{here} missing here, {training} in training"),
    ]
    cells = _numbers(before, tally, level) if len(before.edges) else _categories(before, tally, labels, level)
    if cells is not None and cells.kind == "distribution" and any(gaps):
        cells = None  # gaps in a column that had none are filled with one value, which moves the distribution
    clipped = _clipped(before, tally, level)
    if clipped is not None and cells is not None and cells.kind in ("scale", "range"):
        cells, clipped = replace(cells, sentence=f"{cells.sentence} ({tally.n_clipped:,} values were clipped)"), None
    return [cells, clipped, *gaps]


def _clipped(before: ColumnProfile, tally: _Tally, level: float) -> Difference | None:
    """Values far outside of the training range, where they are more than chance explains."""
    if not tally.n_clipped or not len(before.edges):
        return None
    is_extreme = abs(tally.excess) > _EXTREME * tally.n_clipped * float(before.edges[-1] - before.edges[0])
    if not is_extreme and chance_of_more(tally.n_clipped, tally.n_values, 0, int(before.below[-1])) > level:
        return None
    low, high = (_shown(edge, before.kind) for edge in (before.edges[0], before.edges[-1]))
    share = tally.n_clipped / tally.n_values
    cells = f"{plural(tally.n_clipped, 'value')} far outside of the training range {low} to {high}"
    return Difference(before.name, "clipped", share, 0.0, f"{before.name} has {cells} (clipped)")


def _numbers(before: ColumnProfile, tally: _Tally, level: float) -> Difference | None:
    n, n_before = tally.n_values, int(before.below[-1])
    if not n:
        return None
    outside, n_beyond = (tally.n_below + tally.n_above) / n, max(tally.n_below, tally.n_above)
    is_outside = outside >= UNLIKE_SHARE and chance_of_more(n_beyond, n, 0, n_before) < level
    distances = np.abs(tally.at_most / n - before.below / n_before)
    at = int(distances.argmax())
    is_far = distances[at] >= UNLIKE_DISTANCE and kolmogorov_smirnov(float(distances[at]), n, n_before) < level
    mean, name = (tally.total + tally.excess) / n, before.name
    ratio = mean / before.mean if before.mean else math.nan
    has_one_sign = before.edges[0] * before.edges[-1] >= 0.0  # otherwise a mean near 0 makes any shift a large ratio
    is_scaled = has_one_sign and (ratio >= UNLIKE_SCALE or 0.0 < ratio <= 1.0 / UNLIKE_SCALE)
    if (is_outside or is_far) and before.kind == "number" and is_scaled:
        times = f"{ratio:,.0f}" if ratio >= 1000.0 else f"{ratio:.3g}"
        means = f"mean {four_digits(mean)} here, {four_digits(before.mean)} in training"
        message = f"{name} is {times} times as large as in training ({means})"
        return Difference(name, "scale", mean, before.mean, f"{message}: is it in the same unit?")
    share, share_before = float(tally.at_most[at] / n), float(before.below[at] / n_before)
    edge = _shown(before.edges[at], before.kind)
    at_most = f"at most {edge} in {_percent(share)} of rows here, {_percent(share_before)} in training"
    if is_outside:
        low, high = (_shown(edge, before.kind) for edge in (before.edges[0], before.edges[-1]))
        message = f"{name} is outside the training range {low} to {high} in {_percent(outside)} of rows"
        moved = f"; it is {at_most}" if is_far and distances[at] > 2.0 * outside else ""
        return Difference(name, "range", outside, 0.0, message + moved)
    return Difference(name, "distribution", share, share_before, f"{name} is {at_most}") if is_far else None


def _categories(before: ColumnProfile, tally: _Tally, labels: list[str], level: float) -> Difference | None:
    name = before.name
    # A new row has a value without a column of its own about as often as a training row without itself.
    if tally.n_unseen / tally.n >= UNLIKE_SHARE and (
        chance_of_more(tally.n_unseen, tally.n, before.n_other + 1, before.n_known + 1) < level
    ):
        share = tally.n_unseen / tally.n
        message = f"{name} has values that are new or were rare in training in {_percent(share)} of rows"
        return Difference(name, "unseen", share, 0.0, message)
    n, n_before = tally.n_known, before.n_known
    if not n or not n_before or not len(before.counts):
        return None
    here, there = tally.counts / n, before.counts / n_before
    at = int(np.argmax(np.abs(here - there)))
    chance = _chance_apart(int(tally.counts[at]), n, int(before.counts[at]), n_before)
    if abs(here[at] - there[at]) < UNLIKE_DISTANCE or chance > level:
        return None
    message = f"{name} is {labels[at]} in {_percent(here[at])} of rows here, {_percent(there[at])} in training"
    return Difference(name, "categories", float(here[at]), float(there[at]), message)


def _share(before: ColumnProfile, tally: _Tally, kind: str, level: float, sentence: str) -> Difference | None:
    """Missing or unreadable cells, where they are more or fewer than chance allows."""
    count, count_before = getattr(tally, f"n_{kind}"), getattr(before, f"n_{kind}")
    n, n_before = tally.n, before.n_known + before.n_missing + before.n_unreadable
    here, there = count / n, count_before / n_before
    low, high = sorted((here, there))
    is_large = high - low >= UNLIKE_SHARE and high >= UNLIKE_RATIO * low
    if not is_large or _chance_apart(count, n, count_before, n_before) > level:
        return None
    message = sentence.format(here=_percent(here), training=_percent(there), kind=before.kind)
    return Difference(before.name, kind, here, there, f"{before.name}: {message}")


def _chance_apart(count: int, n: int, count_before: int, n_before: int) -> float:
    """Two-sided probability of a count as extreme."""
    more = chance_of_more(count, n, count_before, n_before)
    return min(1.0, 2.0 * min(more, chance_of_more(n - count, n, n_before - count_before, n_before)))


def _values(column: Column, part: Array) -> tuple[Array, Bools]:
    """Numbers of a column that are not missing (none where it holds no numbers), and which cells are missing."""
    is_missing = part[:, -1] > 0 if column.has_missing else np.zeros(len(part), dtype=bool)
    has_numbers = column.kind == "number" or (column.kind == "date" and column.encoded_names[0].endswith(": days"))
    return (part[~is_missing, 0] if has_numbers else np.empty(0)), is_missing


def _category_counts(column: Column, part: Array) -> Index:
    """Counts of each binary encoded column; none for other kinds."""
    if column.kind == "boolean" and column.has_missing:
        part = part[part[:, 1] == 0]
    width = {"category": part.shape[1] - column.has_missing, "boolean": 1}.get(column.kind, 0)
    return part[:, :width].sum(axis=0).astype(np.int64)


def _labels(column: Column) -> list[str]:
    if column.kind == "boolean":
        return ["true"]
    names = column.encoded_names
    return [name.removeprefix(f"{column.name} = ").removeprefix(f"{column.name} is ") for name in names]


def _percent(share: float) -> str:
    percent = 100.0 * share
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


def _shown(value: float, kind: str) -> str:
    return str(np.datetime64(int(value), "D")) if kind == "date" else f"{value:.6g}"


def kolmogorov_smirnov(distance: float, n: int, n_before: int) -> float:
    """Bound on the probability of a distance between two distribution functions: 2 exp(−2 d² n m / (n + m))."""
    return min(1.0, 2.0 * math.exp(-2.0 * distance**2 * n * n_before / (n + n_before)))
