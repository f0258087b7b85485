"""Which columns only name or number their rows: a model that learns them learns the order of the file."""

import re

import numpy as np

from crcen.tables.cells import ColumnCells
from crcen.tables.typing import Array, Series

# What pandas calls the index of a frame in a file: without a name in Parquet, and in CSV.
_NAMELESS_INDEX = re.compile(r"__index_level_\d+__|Unnamed: 0(\.\d+)*")
_THINGS = (
    "account|case|claim|client|customer|device|employee|event|family|household|item|loan|member|message|order|patient|"
    "person|policy|product|record|respondent|row|sample|session|student|subject|ticket|transaction|user|visit"
)
_ID_NAME = re.compile(
    rf"((^|[^a-z])(id|ids|uid|uuid|guid|key|hash|index|rownum|rownames|serial)|({_THINGS})_?(id|no|nr|num))$"
)
# Such names alone are those of an identifier that repeats.
_BEARER_NAME = re.compile(
    "account|client|customer|employee|household|member|patient|person|respondent|student|subject|user"
)
# Time goes up along a file and never repeats, and says something about its rows.
_TIME_NAME = re.compile(
    r"(^|[^a-z])(ts|t|at|time\w*|date\w*|epoch|unix|year|yr|month|week|day|hour|minute|second|when)s?([^a-z]|$)"
)
# So many repetitions are expected by chance among honest values; none has then a probability of 0.001.
_EXPECTED_TIES = 7.0
# Row numbers with gaps leave the straight line by at most this share of their range, and a bit for chance.
_EVEN = 0.05
# Digits in three or more parts, such as 79:17:2.
_PARTS = r"\d+(?:[:/#_-]\d+){2,}"
# Times of day, dates, and measures of two numbers such as 120/80, may differ in every row and mean something.
_MEASURES = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:\D.*)?|\d{1,4}[/x×]\d{1,4}"
_NEARLY_ALL, _MANY_VALUES = 0.9, 255
# A repeating identifier has at least this number of values and of rows per value; no value is common.
_FEWEST_IDS, _REPEATS, _MOST_COMMON = 50, (1.1, 50.0), 0.01
# Values of a measurement meet by chance, or at round numbers; those of an identifier meet far more often.
_BEYOND_CHANCE, _BINS, _REPEATED_ROWS, _MOST_ROUND = 100.0, 50, 0.2, 0.2


def is_nameless_index(name: str) -> bool:
    """Whether this is what pandas calls an index without a name in Parquet and CSV files."""
    return _NAMELESS_INDEX.fullmatch(name) is not None


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _is_named_so(name: str, n_values: int, n_rows: int) -> bool:
    return _ID_NAME.search(_words(name)) is not None and (n_values > 0.5 * n_rows or n_values > _MANY_VALUES)


def why_numbering(name: str, values: Array) -> str:
    """Why whole numbers in file order only number the rows; empty where they may be informative.

    Numbers that differ in every row count them if chance would have repeated several, or if they grow evenly.
    """
    n = len(values)
    if not (values == np.round(values)).all():
        return ""
    n_values, spread = len(np.unique(values)), float(values.max() - values.min())
    if n_values == n:
        if spread < 1.5 * n:
            return f"numbers the rows: {n} different whole numbers in a row"
        if not _is_time(name, values):
            if n * n / (2.0 * spread) > _EXPECTED_TIES:
                return f"numbers the rows, with gaps: {n} different whole numbers"
            if _grows_evenly(values):
                return f"numbers the rows, with gaps: {n} whole numbers that grow along the file"
    if _is_named_so(name, n_values, n):
        return f"an identifier by its name: {n_values} different whole numbers on {n} rows"
    return ""


def _is_time(name: str, values: Array) -> bool:
    """By its name, or as seconds or milliseconds since 1970 that lie between 1990 and 2040."""
    if _TIME_NAME.search(_words(name)):
        return True
    first, last = values.min(), values.max()
    return any(6.3e8 * unit < first and last < 2.21e9 * unit for unit in (1.0, 1e3, 1e6, 1e9))


def _grows_evenly(values: Array) -> bool:
    """Whether numbers go up from row to row, about as far each time; sorted measurements have thin ends."""
    line = np.linspace(values[0], values[-1], len(values))
    most = (_EVEN + 1.0 / np.sqrt(len(values))) * (values[-1] - values[0])
    return bool((np.diff(values) > 0).all() and np.abs(values - line).max() < most)


def why_codes(name: str, present: Series, n_values: int, *, is_amount: bool) -> str:
    """Why strings, of ``n_values`` different ones, only name the rows; empty where they may be informative."""
    n = len(present)
    reason = f"an identifier: {n_values} values on {n} rows, none with a meaning"
    if _is_named_so(name, n_values, n):
        return reason
    if is_amount or n_values <= 0.2 * n or _share(present, _MEASURES) >= _NEARLY_ALL:
        return ""
    is_code = n_values == n or (n_values >= _NEARLY_ALL * n and _share(present, r".*\d.*") >= _NEARLY_ALL)
    if is_code and _share(present, r"[^\s,;]*") >= _NEARLY_ALL:
        return reason
    if (n_values > 0.5 * n or n_values > _MANY_VALUES) and _share(present, _PARTS) >= _NEARLY_ALL:
        return f"an identifier: {n_values} codes on {n} rows"
    return ""


def why_repeating(cells: ColumnCells, kind: str) -> str:
    """A warning if a column repeats like the identifier of a customer or patient; empty if it does not."""
    name, words = cells.name, _words(cells.name)
    if kind not in ("number", "category", "text") or _TIME_NAME.search(words):
        return ""
    is_named = _ID_NAME.search(words) or _BEARER_NAME.fullmatch(words)
    if not is_named and not (kind == "number" and _repeats_beyond_chance(cells)):
        return ""
    counts = cells.series.value_counts().to_numpy()
    n, n_values = int(counts.sum()), len(counts)
    few, many = _REPEATS
    if n_values < _FEWEST_IDS or not few <= n / n_values <= many or counts[0] > max(_MOST_COMMON * n, 20):
        return ""
    found = f"{name} repeats like a customer or patient ID ({n_values:,} values in {n:,} rows)"
    return f"{found}: drop it and use --clusters {name}"


def _repeats_beyond_chance(cells: ColumnCells) -> bool:
    """Whether numbers repeat far more often than those of a smooth distribution, and not at round numbers."""
    values = cells.numbers[cells.is_there]
    if not values.size or np.isnan(values).any() or max(-values.min(), values.max()) < 1e5:
        return False
    distinct, own = np.unique(values, return_counts=True)
    if len(distinct) < _FEWEST_IDS or own[own > 1].sum() < _REPEATED_ROWS * len(values):
        return False
    step = float(np.diff(distinct).min())
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)))
    in_bin = np.histogram(values, edges)[0]
    by_chance = float((in_bin * (in_bin - 1) / 2.0 / np.maximum(np.diff(edges) / step, 1.0)).sum())
    pairs = float((own * (own - 1) / 2.0).sum())
    is_round = np.rint(values / step) % 10 == 0
    return pairs > _BEYOND_CHANCE * max(by_chance, 1.0) and float(is_round.mean()) < _MOST_ROUND


def _share(present: Series, pattern: str) -> float:
    return float(present.str.fullmatch(pattern).mean())
