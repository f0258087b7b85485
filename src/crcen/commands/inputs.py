"""What the workflow takes: a data frame or a file, a target column of two labels, a model or its file, a price."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, InvalidParameter, load
from crcen._support.text import closest, listed
from crcen._support.values import label_key, plain_labels, rest_of
from crcen.tables.leaks import Duplicates
from crcen.tables.notation import read_numbers
from crcen.tables.options import ReadOptions
from crcen.tables.reading import Table, open_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "MOST_CLASSES",
    "Rows",
    "Source",
    "amounts_of",
    "audit_probabilities",
    "check_column",
    "duplicate_lines",
    "cluster_numbers",
    "labels_as",
    "model_of",
    "quiet_decision",
    "rows_of",
    "source_of",
    "target_of",
    "weight_notes",
    "weights_of",
    "why_positive",
]


# A target with more values is rather a number or a name than a class.
MOST_CLASSES = 50
_NEARLY_BALANCED = 0.35  # share of the rarer class
# Characters of a label or a column's name that an error shows.
_LONGEST = 60


Source = Table


def source_of(data: Any, read: ReadOptions | None = None, model: Any = None, *, is_strict: bool = True) -> Table:
    """The table that a command reads; the options of a model's training hold for it too, unless stated otherwise.

    ``is_strict`` is False for a second table, whose kind the options need not fit.
    """
    options = (ReadOptions() if read is None else read).with_training(model)
    return open_table(data, options, is_strict=is_strict)


def check_column(name: str, columns: tuple[str, ...], what: str, where: str) -> str:
    """A column's name, if it is there; else an error that guesses what was meant."""
    if name in columns:
        return name
    close = closest(name, columns)
    meant = f"did you mean {close}?" if close else f"it has {_listed(columns)}."
    raise InvalidInput(f"{what} must be a column of {where}: got {name!r}; {meant}", parameter=what)


def _listed(names: Sequence[Any]) -> str:
    return listed(names, longest=_LONGEST)


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows.

    Parameters
    ----------
    frame : DataFrame
        Every column but the target; its index says where each row stood, see `Source.numbered`.
    y : Series
        Two labels or more, named as the target.
    positive : label
        The positive one; None where it was not stated.
    notes : list of str
        What was done to the table.
    """

    frame: "pd.DataFrame"
    y: "pd.Series"
    positive: Any
    notes: list[str]


def rows_of(
    source: Source,
    target: str,
    positive: Any = None,
    required: tuple[str, ...] = (),
    *,
    most_labels: int = 2,
    frame: "pd.DataFrame | None" = None,
    is_audited: bool = False,
) -> Rows:
    """Rows with a label, and with a value in each ``required`` column; ``frame`` is the table if it was read before.

    Raises
    ------
    InvalidInput
        If the target is not a column with two labels, or up to ``most_labels``, or ``positive`` is none of them. With
        ``positive`` it may have more: all others become one.
    """
    import pandas as pd

    check_column(target, source.columns, "the target", source.name)
    frame = source.numbered() if frame is None else frame
    notes = source.notes
    for name in (target, *required):
        known = frame[name].notna()
        if not known.all():
            what = "target" if name == target else name
            done = "are unlabelled: neither negative nor used" if is_audited and name == target else "were left out"
            notes.append(f"{int((~known).sum())} rows without a value of {what} {done}")
            if name == target:
                notes += _lost_class(source, target)
            frame = frame[known]
    if not len(frame):
        raise InvalidInput(f"{source.name} has no row with a value of {target}.")
    y = _labels(frame[target], target)
    notes += _merged_codes(frame[target], target)
    classes = np.unique(y)
    _check_spelling(classes.tolist(), target)
    if positive is not None:
        found = [label for label in classes if label_key(label) == label_key(positive)]
        if not found:
            raise InvalidInput(
                f"positive must be a value of {target}, {_listed(classes.tolist())}: got {positive!r}.",
                parameter="positive",
            )
        positive = found[0]
        if len(classes) > 2:
            y, positive = np.where(y == positive, str(positive), rest_of(positive)), str(positive)
            others = [label for label in classes.tolist() if str(label) != positive]
            notes.append(f"{target} has {len(classes)} values: {positive} is told from all others ({_listed(others)})")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) > most_labels > 2:
        raise InvalidInput(
            f"the target {target} must have at most {most_labels} different values: got {len(classes):,} "
            f"({_listed(classes.tolist())}); name the one to find with positive=, or put them into fewer "
            f"classes, numbers into bands.",
            parameter="positive",
        )
    if len(classes) < 2 or len(classes) > most_labels:
        got = f"one, {classes[0]}" if len(classes) == 1 else f"{len(classes)}, {_listed(classes.tolist())}"
        advice = "rows of the other one are needed." if len(classes) == 1 else "name the one to find with positive=."
        raise InvalidInput(f"the target {target} must have two different values: got {got}; {advice}")
    if counts.min() < 2 and len(classes) == 2:  # of more classes one with a single row is trained on in every fold
        rare = classes[np.argmin(counts)]
        raise InvalidInput(
            f"the target {target} needs at least 2 rows of each value, one to learn from and one to check with: got 1 "
            f"of {_listed([rare])}."
        )
    return Rows(frame.drop(columns=target), pd.Series(y, name=target), positive, notes)


def duplicate_lines(found: Duplicates) -> list[str]:
    """What to print about copies of rows: notes, or their number where columns have few different values."""
    if found.n_copies and found.is_coarse and found.label is None:
        return [f"Duplicates: {found.n_copies:,} of {found.n_rows:,} rows equal others, as columns have few values"]
    return [f"Note: {note}." for note in found.notes]


def why_positive(label: Any, share: float) -> list[str]:
    """Why a class of nearly balanced ones is the positive class, if that was not stated."""
    if share < _NEARLY_BALANCED:
        return []
    reason = "both are equally common, and it is the last in order" if share == 0.5 else "it is the rarer one"
    return [
        f"the classes are nearly balanced: {label} ({100.0 * share:.3g} % of rows) is the positive class because "
        f"{reason}; use --positive to choose the other one"
    ]


def _check_spelling(labels: list[Any], target: str) -> None:
    """Refuse labels that later tables could not tell apart."""
    seen: dict[str, Any] = {}
    for label in labels:
        other = seen.setdefault(label_key(label), label)
        if other != label:
            raise InvalidInput(
                f"the target {target} has {_listed([other])} and {_listed([label])}, which differ in capital letters "
                f"alone: write them alike."
            )


def _lost_class(source: Source, target: str) -> list[str]:
    """A note where the word None stands in the target of a text file: it may be a class, and is read as missing."""
    n = source.marks[(target, "None")]
    said = f'"None" stands in {n} cells of {target} and is read as missing: write another word if it is a class'
    return [said] if n else []


def _merged_codes(cells: "pd.Series", target: str) -> list[str]:
    """A note on values such as 01 and 1, which may be two codes and are one number."""
    spelt: dict[Any, str] = {}
    for cell in _distinct(cells, target):
        text = str(cell).strip()
        if text.isdecimal() and spelt.setdefault(label_key(text), text) != text:
            return [f"{target} has {spelt[label_key(text)]} and {text}, taken as one value since they are one number"]
    return []


def _distinct(cells: "pd.Series", target: str) -> Any:
    try:
        return cells.unique()
    except TypeError as error:  # not hashable
        raise InvalidInput(f"the target {target} must hold single values: it holds lists or records.") from error


def _labels(cells: "pd.Series", target: str) -> NDArray[Any]:
    """Labels as one array of bool, int or str."""
    found = plain_labels(_distinct(cells, target))
    # Of more than two each row holds its own string: as an array of strings all would be as wide as the longest.
    is_many_texts = len(set(found.values())) > 2 and any(isinstance(label, str) for label in found.values())
    return np.array([found[cell] for cell in cells], dtype=object if is_many_texts else None)


def labels_as(cells: "pd.Series", classes: NDArray[Any], target: str) -> NDArray[np.int64]:
    """Which of the classes each cell is.

    A label that the model does not know is refused, unless one class is all that the other is not.
    """
    place = {label_key(label): i for i, label in enumerate(classes)}
    rest = next((i for i, label in enumerate(classes) if label in [rest_of(one) for one in classes]), -1)
    found = {cell: place.get(label_key(cell), rest) for cell in _distinct(cells, target)}
    unknown = [str(cell) for cell, at in found.items() if at < 0]
    if unknown:
        raise InvalidInput(
            f"the target {target} must hold the labels of training, {_listed(classes.tolist())}: got "
            f"{_listed(unknown)}."
        )
    return np.array([found[cell] for cell in cells], dtype=np.int64)


def model_of(model: Any) -> Any:
    """A fitted model, also from its file."""
    if isinstance(model, str | Path):
        return load(model)
    if not hasattr(model, "weighting_"):
        raise InvalidParameter(f"model must be fitted, or the path of a saved one: got {type(model).__name__}.")
    return model


def target_of(target: str | None, model: Any, source: Source) -> str:
    """The target column: the one named, or that of training."""
    name = target if target is not None else getattr(model, "target_name_", None)
    if name is None:
        raise InvalidParameter("this model does not know its target column; name it with target=.", parameter="target")
    check_column(name, source.columns, "the target", source.name)
    columns = getattr(model, "columns_", None)
    inputs = getattr(model, "feature_names_in_", ()) if columns is None else [column.name for column in columns]
    if name in inputs:
        known = getattr(model, "target_name_", None)
        hint = f"; that of training was {known}" if known else ""
        raise InvalidInput(f"the target must not be a column that the model decides by: got {name}{hint}.")
    return name


def quiet_decision(model: Any, frame: "pd.DataFrame") -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which rows get an alarm, and the probability of anything else than the default decision.

    The default decision is the negative class; of several classes it is the most frequent one in training.
    """
    price = model.weighting_
    default = int(np.argmax(price.counts)) if price.positive is None else 1 - price.positive
    alarms = np.asarray(model.predict(frame) != model.classes_[default])
    return alarms, 1.0 - model.predict_proba(frame)[:, default]


def cluster_numbers(cells: "pd.Series") -> NDArray[np.int64]:
    """Clusters of rows as numbers; a missing cell is an error."""
    import pandas as pd

    if cells.isna().any():
        raise InvalidInput(
            f"clusters must be known for every labelled row: {cells.name} is missing in {int(cells.isna().sum())}.",
            parameter="clusters",
        )
    return np.asarray(pd.factorize(cells)[0], dtype=np.int64)


def amounts_of(cells: "pd.Series", what: str) -> NDArray[np.float64]:
    """Numbers of a column, however they are written.

    Parameters
    ----------
    cells : pandas Series
        Numbers, or text that holds them, such as ``€ 3,000``.
    what : str
        The parameter that names the column, for the error.

    Raises
    ------
    InvalidInput
        If a cell is missing, negative or no number.
    """
    import pandas as pd

    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(numbers).any():
        reading = read_numbers(cells.astype("string").str.strip())
        numbers = numbers if reading is None or reading.units else reading.values
    wrong = ~np.isfinite(numbers) | (numbers < 0.0)
    if wrong.any():
        first = cells.iloc[int(np.flatnonzero(wrong)[0])]
        shown = "a missing cell" if pd.isna(first) else repr(first)
        raise InvalidInput(
            f"{what} must name a column of numbers from 0 on: {cells.name} holds {shown} in {int(wrong.sum())} rows.",
            parameter=what,
        )
    return numbers


def weights_of(cells: "pd.Series", what: str) -> NDArray[np.float64]:
    """What rows count, by a column of amounts; not all of them nothing."""
    weights = amounts_of(cells, what)
    if not weights.any():
        raise InvalidInput(
            f"{what} must name a column with numbers above 0: {cells.name} is 0 in every row.", parameter=what
        )
    return weights


def audit_probabilities(frame: "pd.DataFrame", column: str, is_labelled: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The probability with which each row was chosen for a label; must lie in (0, 1] for rows with a label.

    Raises
    ------
    InvalidInput
        With the number of the first row that has another value.
    """
    import pandas as pd

    cells = frame[column]
    found = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.flatnonzero(is_labelled & ~((found > 0.0) & (found <= 1.0)))
    if wrong.size:
        cell = cells.iloc[wrong[0]]
        got = "a missing cell" if pd.isna(cell) else repr(cell)
        raise InvalidInput(
            f"audit_probability must be above 0 and at most 1 in rows with a label: {column} has {got} in row "
            f"{wrong[0] + 1:,}.",
            parameter="audit_probability",
        )
    return found


def weight_notes(model: Any, weight: str | None) -> list[str]:
    """What to say where a model learnt from rows of unequal weight and these count once each."""
    name = getattr(model, "weight_name_", None)
    if weight is not None or name is None:
        return []
    return [
        f"the model learnt from rows counted by {name}, and these count once each, so that its probabilities are of "
        f"other rows: name the column {name} as their weight"
    ]
