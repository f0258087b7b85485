"""What commands take: a data frame or a file, a model or its file, and columns of labels, amounts, times and groups."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from numbers import Real
from os.path import realpath
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import CrcenError, InvalidInput, InvalidParameter, ReadOptions, load
from crcen._support.files import check_writable
from crcen._support.text import closest, label_key, listed, plain_labels, plural, rest_of
from crcen.tables.cells import AMBIGUOUS, as_dates, as_text, date_format, is_ambiguous, read_numbers
from crcen.tables.leaks import Duplicates
from crcen.tables.profile import trained_with_weights
from crcen.tables.reading import Table, open_table
from crcen.theory.checks import in_units
from crcen.theory.price import Price
from crcen.theory.rows import Array, Bools, Index, LabelArray
from crcen.theory.rows import Rows as ModelRows

MOST_CLASSES = 50  # a target with more values is rather a number or a name than a class
_NEARLY_BALANCED = 0.35  # share of the rarer class
_LONGEST = 60  # characters of a label or a column's name that an error shows
GROUP_CHECK = "CRC010"  # the check of the report that compares groups
_MOST_GROUP_COLUMNS = 50
_MOST_VALUES, _PARTS = 20, 5  # numeric columns with more values than this are cut into this number of equal groups

Source = Table
Label: TypeAlias = bool | int | str
# A data frame, a file, or several; see `open_table`.
Data: TypeAlias = object


class FittedModel(Protocol):
    """What commands need of a fitted classifier; other attributes, such as ``profile_``, are optional."""

    classes_: LabelArray
    weighting_: Price

    def predict_proba(self, X: ModelRows) -> Array:
        """Natural probabilities, (n, K)."""

    def predict(self, X: ModelRows) -> LabelArray:
        """Decisions."""


def require(is_right: object, message: str, *parameters: str, error: type[CrcenError] = InvalidParameter) -> None:
    """Raise an error with this message, which names these parameters, unless a condition holds."""
    if not is_right:
        raise error(message, parameter=parameters)


require_input = partial(require, error=InvalidInput)
_listed = partial(listed, longest=_LONGEST)


def check(name: str, value: object, is_right: object, allowed: str, *others: str) -> None:
    """Raise "name must allowed: got value." unless the value is right; ``others`` are further parameters it names."""
    got = f"{value:g}" if isinstance(value, float) else repr(value)
    require(is_right, f"{name} must {allowed}: got {got}.", name, *others)


def check_outputs(
    outputs: Mapping[str, str | Path | None], *read: object, pages: tuple[str, ...] = ("page", "report")
) -> list[Path]:
    """Check by `check_writable` files to be written, by parameter; no two of them may be one file.

    An HTML page, one of ``pages``, may not be named like a JSON file.
    """
    found: dict[str, str] = {}
    places = [(name, path) for name, path in outputs.items() if path is not None]
    for name, path in places:
        check_writable(path, *read)
        instead = "; json_out= is the JSON file" if "json_out" in outputs else ""
        is_page = name not in pages or Path(path).suffix.lower() != ".json"
        require(is_page, f"{name} must be an HTML page: got {path}{instead}.", name, "json_out")
        first = found.setdefault(realpath(path), name)
        require(first == name, f"{first}= and {name}= must be two files: got {path} twice.", first, name)
    return [Path(path) for _, path in places]


def is_share(value: object, low: float = 0.0, high: float = 1.0) -> bool:
    """Whether a value is a number strictly between two others."""
    return isinstance(value, Real) and not isinstance(value, bool) and low < float(value) < high


def source_of(
    data: Data, read: ReadOptions | None = None, model: FittedModel | None = None, *, is_strict: bool = True
) -> Table:
    """The table that a command reads, by default as in training; a second one (not strict) need not fit the options."""
    if isinstance(data, Table):
        return data
    return open_table(data, (ReadOptions() if read is None else read).with_training(model), is_strict=is_strict)


def check_column(name: str, source: Source, what: str, error: type[CrcenError] = InvalidParameter) -> str:
    """A column's name, if it is there; else an error that guesses what was meant."""
    close, sheets = closest(name, source.columns), source.parts[0].sheets
    close = repr(close) if close == str(name) else close  # a number, whose column is named by text
    other = f"another sheet ({listed(sheets[1:])}) with sheet=" if len(sheets) > 1 else ""
    meant = f"did you mean {close}{other and f', or {other}'}?"
    meant = meant if close else f"it has {_listed(source.columns)}{other and f'; read {other}'}."
    where = f"the sheet {sheets[0]} of {source.name}" if other else source.name
    got = f"{what} must be a column of {where}: got {name!r}; {meant}"
    named = [one for one in (what, other and "sheet") if one.isidentifier()]
    require(name in source.columns, got, *named, error=error)
    return name


# Columns with a role of their own are no inputs.
ROLES = {
    "audit_probability": "states how rows were chosen for a label",
    "clusters": "keeps rows of a cluster together",
    "time": "orders rows in time",
    "weight": "states how much rows count",
}


def role_columns(source: Source, target: str | None, named: Mapping[str, str | None]) -> dict[str, str]:
    """Columns that parameters name, by parameter; each must be there and not be the target."""
    for what, name in named.items():
        other = f"{what} must be another column than the target: got {name!r} for both."
        require(name is None or name != target, other, what)
    return {what: check_column(name, source, what) for what, name in named.items() if name is not None}


def remember(model: object, source: Source, clusters: str | None, weight: str | None = None) -> None:
    """Keep on a fitted model how its table was read, and which columns had clusters and weights."""
    for name, value in (("weight_name_", weight), ("clusters_name_", clusters), ("read_", source.options.to_remember)):
        if value:
            setattr(model, name, value)


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows: every column but the target (see `Table.numbered`), labels, the positive one if stated, notes."""

    frame: pd.DataFrame
    y: pd.Series
    positive: Label | None
    notes: list[str]


def rows_of(
    source: Source, target: str, positive: Label | None, *required: str, frame: pd.DataFrame, is_audited: bool
) -> Rows:
    """Rows of a table, ``frame``, with a label, and with a value in each ``required`` column.

    With ``positive`` all other labels become one; without it there may be 2 to `MOST_CLASSES`.
    """
    notes, n_missing = source.notes, int(frame[target].isna().sum())
    for name in (target, *required):
        known = frame[name].notna()
        if not known.all():
            notes.append(missing_note(int((~known).sum()), name, is_unlabelled=is_audited and name == target))
            n_words = source.marks[(target, "None")] if name == target else 0
            word = f'"None" stands in {plural(n_words, "cell")} of {target} and is read as missing'
            notes += [f"{word}: write another word if it is a class"] if n_words else []
            frame = frame[known]
    labels, positive, found = class_labels(_distinct(frame[target], target), target, positive, source.name, n_missing)
    # Of more than two each row holds its own string: as an array of strings all would be as wide as the longest.
    is_many_texts = len({*labels.values()}) > 2 and any(isinstance(label, str) for label in labels.values())
    y = np.array([labels[cell] for cell in frame[target].tolist()], dtype=object if is_many_texts else None)
    check_class_sizes(Counter(y.tolist()), target)
    return Rows(frame.drop(columns=target), pd.Series(y, name=target), positive, [*notes, *found])


def check_class_sizes(counts: Mapping[Label, int], target: str) -> None:
    """Reject two classes if one has a single row; of more classes such a row is trained on in every fold."""
    each = f"the target {target} needs at least 2 rows of each value, one to learn from and one to check with"
    rarest = min(counts, key=lambda label: counts[label])
    require_input(counts[rarest] >= 2 or len(counts) > 2, f"{each}: got 1 of {_listed([rarest])}.")


def missing_note(n_rows: int, column: str, *, is_unlabelled: bool = False) -> str:
    """A note on rows without a value of a column."""
    verb = ("is" if n_rows == 1 else "are") if is_unlabelled else ("was" if n_rows == 1 else "were")
    done = "unlabelled: neither negative nor used" if is_unlabelled else "left out"
    return f"{plural(n_rows, 'row')} without a value of {column} {verb} {done}"


def class_labels(
    cells: Iterable[object], target: str, positive: Label | None, where: str, n_missing: int = 0
) -> tuple[dict[object, Label], Label | None, list[str]]:
    """The label of each different cell of a target, the positive one as it is spelt there, and notes."""
    labels, notes = plain_labels(cells), list[str]()
    spelt: dict[str, str] = {}
    for text in (str(cell).strip() for cell in labels):
        if text.isdecimal() and spelt.setdefault(label_key(text), text) != text:
            notes = [f"{target} has {spelt[label_key(text)]} and {text}, treated as one value: they are one number"]
    classes, by_key = sorted(set(labels.values())), dict[str, list[Label]]()
    for label in classes:
        by_key.setdefault(label_key(label), []).append(label)
    alike = _listed(next((same for same in by_key.values() if len(same) > 1), []))
    differ = "which differ only in capital letters: write them alike"
    require_input(not alike, f"the target {target} has {alike}, {differ}.")
    require_input(classes, f"{where} has no row with a value of {target}.")
    is_there = positive is None or label_key(positive) in by_key
    require(is_there, f"positive must be a value of {target}, {_listed(classes)}: got {positive!r}.", "positive")
    positive = None if positive is None else by_key[label_key(positive)][0]
    if positive is not None and len(classes) > 2:
        others, rest, positive = [one for one in classes if one != positive], rest_of(positive), str(positive)
        labels = {cell: positive if str(label) == positive else rest for cell, label in labels.items()}
        said = f"{positive} is the positive class, all others are the negative one ({_listed(others)})"
        notes.append(f"{target} has {len(classes)} values: {said}")
    elif len(classes) > MOST_CLASSES:
        got = f"got {len(classes):,} ({_listed(classes)}); name the one to find with positive=, or put them into fewer"
        most = f"the target {target} must have at most {MOST_CLASSES} different values"
        raise InvalidInput(f"{most}: {got} classes, numbers into bands.", parameter="positive")
    missing = f"in {plural(n_missing, 'other row')} it is missing; write a word there if that is a class."
    got = f"got one, {classes[0]}; {missing if n_missing else 'rows of the other one are needed.'}"
    require_input(len(classes) > 1, f"the target {target} must have two different values: {got}")
    return labels, positive, notes


def duplicate_lines(found: Duplicates) -> list[str]:
    """What to print about copies of rows: notes, or the number of equal rows if these need not be copies."""
    if found.n_copies and found.is_coarse and found.label is None:
        why = "by chance or because they belong together (then use --clusters)"
        return [f"Duplicates: {found.n_copies:,} of {found.n_rows:,} rows equal others, {why}"]
    return [f"Note: {note}." for note in found.notes]


def why_positive(label: Label, share: float) -> list[str]:
    """Why a class of nearly balanced ones is the positive class, if that was not stated."""
    reason = "both are equally common and it is the last in order" if share == 0.5 else "it is the rarer one"
    chosen = f"{label} ({100.0 * share:.3g} % of rows) is the positive class because {reason}"
    said = f"the classes are nearly balanced: {chosen}; use --positive to choose the other one"
    return [] if share < _NEARLY_BALANCED else [said]


def _distinct(cells: pd.Series, target: str) -> Iterable[object]:
    try:
        return list(cells.unique())
    except TypeError as error:  # not hashable
        raise InvalidInput(f"the target {target} must hold single values: it holds lists or records.") from error


def labels_as(cells: pd.Series, classes: LabelArray, target: str) -> Index:
    """Which class each cell is; unknown labels are rejected, unless one class is all that the other is not."""
    place = {label_key(label): i for i, label in enumerate(classes)}
    for (no, yes), (false, true) in permutations((("0", "1"), ("false", "true"))):
        place |= {false: place[no], true: place[yes]} if place.keys() == {no, yes} else {}
    rest = next((i for i, label in enumerate(classes) if label in [rest_of(one) for one in classes]), -1)
    found = {cell: place.get(label_key(cell), rest) for cell in _distinct(cells, target)}
    unknown = [str(cell) for cell, at in found.items() if at < 0]
    known = f"the target {target} must hold the labels of training, {_listed(classes.tolist())}"
    instead = "write them as in training, or leave such cells empty: rows without a label are left out"
    require_input(not unknown, f"{known}: got {_listed(unknown)}; {instead}.")
    return np.array([found[cell] for cell in cells], dtype=np.int64)


def model_of(model: FittedModel | str | Path) -> FittedModel:
    """A fitted model, also from its file."""
    found = load(model) if isinstance(model, str | Path) else model
    wanted = "model must be fitted and have a price, or be the path of such a one"
    got = f"got {type(found).__name__}; wrap another classifier in crcen.TableClassifier"
    require(hasattr(found, "weighting_"), f"{wanted}: {got}.")
    return found


def input_columns(model: FittedModel) -> list[str]:
    """The input columns of a model; empty if it does not store their names."""
    columns = getattr(model, "columns_", None)
    names = getattr(model, "feature_names_in_", ()) if columns is None else [column.name for column in columns]
    return [str(name) for name in names]


def target_of(target: str | None, model: FittedModel, source: Source) -> str:
    """The target column: the one named, or that of training."""
    known: str | None = getattr(model, "target_name_", None)
    name = known if target is None else target
    if name is None:
        raise InvalidParameter("this model does not know its target column; name it with target=.", parameter="target")
    check_column(name, source, "the target", InvalidInput if target is None else InvalidParameter)
    got = f"got {name}; that of training was {known}." if known else f"got {name}."
    require(name not in input_columns(model), f"the target must not be an input of the model: {got}")
    return name


def cluster_numbers(cells: pd.Series) -> Index:
    """Clusters of rows as numbers; a missing cell is an error."""
    absent = f"{cells.name} is missing in {int(cells.isna().sum())}."
    require_input(cells.notna().all(), f"clusters must be known for every labelled row: {absent}", "clusters")
    return np.asarray(pd.factorize(cells)[0], dtype=np.int64)


def numbers_of(cells: pd.Series) -> Array:
    """Numbers in a column, also as text with other decimal marks or a currency; NaN for other cells."""
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(numbers).any():
        reading = read_numbers(*pd.factorize(cells.astype("string").str.strip()))
        numbers = numbers if reading is None or reading.units else reading.values
    return numbers


def amounts_of(cells: pd.Series, what: str) -> Array:
    """Amounts in a column, also as text such as ``€ 3,000``; an error of the parameter ``what`` for other cells."""
    numbers = numbers_of(cells)
    wrong = ~np.isfinite(numbers) | (numbers < 0.0)
    if wrong.any():
        held = f"{cells.name} holds {_first(cells, wrong)} in {plural(int(wrong.sum()), 'row')}."
        raise InvalidInput(f"{what} must name a column of numbers from 0 on: {held}", parameter=what)
    return numbers


def _first(cells: pd.Series, wrong: Bools) -> str:
    cell = cells.iloc[int(np.argmax(wrong))]
    return "a missing cell" if pd.isna(cell) else repr(cell.item() if isinstance(cell, np.generic) else cell)


def weights_of(cells: pd.Series) -> Array:
    """The weights of rows, from a column of amounts: 1 on average, and not all 0."""
    weights = amounts_of(cells, "weight")
    zero = f"weight must name a column with numbers above 0: {cells.name} is 0 in every row."
    require_input(weights.any(), zero, "weight")
    weights = weights / weights.max()
    return in_units(weights, float(weights.mean()))


def audit_probabilities(frame: pd.DataFrame, column: str, is_labelled: Bools) -> Array:
    """The probability with which each row was chosen for a label; must lie in (0, 1] for rows with a label."""
    found = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = is_labelled & ~((found > 0.0) & (found <= 1.0))
    if wrong.any():
        held = f"{column} has {_first(frame[column], wrong)} in row {np.argmax(wrong) + 1:,}."
        allowed = "audit_probability must be above 0 and at most 1 in rows with a label"
        raise InvalidInput(f"{allowed}: {held}", parameter="audit_probability")
    return found


def weight_notes(model: FittedModel, weight: str | None) -> list[str]:
    """A note if only the training rows or only these rows have weights."""
    if weight is not None and not trained_with_weights(model):
        return [f"columns were not compared with training: these rows have weights ({weight}), training rows had none"]
    name = getattr(model, "weight_name_", None)
    equal = f"the model was trained with the row weights {name}, and these rows have equal weights"
    return [] if weight is not None or name is None else [f"{equal}: evaluate, report and monitor take --weight {name}"]


def times_of(cells: pd.Series, name: str) -> Array:
    """Numbers in the order of a column's times: numbers, or dates of one format; no cell is missing."""
    numbers = cells if pd.api.types.is_datetime64_any_dtype(cells.dtype) else pd.to_numeric(cells, errors="coerce")
    times = numbers if numbers.notna().all() or pd.api.types.is_numeric_dtype(cells.dtype) else _dates(cells, name)
    return times.rank(method="dense").to_numpy(dtype=np.float64)


def dates_of(cells: pd.Series, what: str = "time") -> NDArray[np.datetime64]:
    """The dates of a column of one format without missing cells; ``what`` is the parameter that names it."""
    is_date = pd.api.types.is_datetime64_any_dtype(cells.dtype)
    is_number = not is_date and pd.to_numeric(cells, errors="coerce").notna().all()
    held = "missing cells" if cells.isna().any() else "numbers"
    dates_only = f"{what} must name a column of dates to count by day or week: {cells.name} holds {held}."
    require_input(cells.notna().all() and not is_number, dates_only, what)
    dates = cells if is_date else _dates(cells, str(cells.name), what)
    if getattr(dates.dt, "tz", None) is not None:
        dates = dates.dt.tz_localize(None)
    return dates.to_numpy().astype("datetime64[s]")


def _dates(cells: pd.Series, name: str, what: str = "time") -> pd.Series:
    text = as_text(cells)
    form = None if text.isna().any() else date_format(text)
    if form is None:
        allowed = f"{what} must name a column of numbers or dates of one format"
        raise InvalidInput(f"{allowed}: {name} holds other values.", parameter=what)
    unclear = f"{what} must name a column with dates of one meaning: in {name} {AMBIGUOUS}."
    require_input(not is_ambiguous(text, form), unclear, what)
    return as_dates(text, form)


def group_columns(groups: str | Sequence[str] | None, source: Source, target: str | None) -> list[str]:
    """Names of columns whose values are groups, each once."""
    names = [groups] if isinstance(groups, str) else list(dict.fromkeys(map(str, groups or ())))
    for name in names:
        check_column(name, source, "groups")
        require(name != target, f"groups must not be the target: got {name}.", "groups")
    most = f"groups must be at most {_MOST_GROUP_COLUMNS} columns: got {len(names)}."
    require(len(names) <= _MOST_GROUP_COLUMNS, most, "groups")
    return names


def group_values(column: pd.Series) -> NDArray[np.object_]:
    """Cells of a column as text, None where they are missing; numbers of many values in parts of equal size."""
    numbers = pd.to_numeric(column, errors="coerce")
    if bool((numbers.notna() == column.notna()).all()) and numbers.nunique() > _MOST_VALUES:
        parts = pd.qcut(numbers, _PARTS, duplicates="drop")
        column = parts.map(lambda part: f"{_number(part.left)} to {_number(part.right)}").astype(object)
    return np.array([None if pd.isna(cell) else str(cell) for cell in column], dtype=object)


def _number(value: float) -> str:
    if abs(value) < 1000:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"  # years are written without a comma
