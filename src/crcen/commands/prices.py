"""What mistakes are worth: a price, class weights or a file of costs as users state them; expense around a price."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from crcen import CostMatrix, CostRatio, ExpenseCurve, Lam
from crcen._support.extras import need
from crcen._support.text import closest, listed
from crcen._support.values import json_value, label_key
from crcen.commands.inputs import FittedModel
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.tables.notation import is_missing_mark, read_numbers
from crcen.theory.expense import ClassStep, judge_step
from crcen.theory.goals import ThresholdGoal
from crcen.theory.price import Price, WeightingLike, is_price_of_two
from crcen.theory.rows import Array

if TYPE_CHECKING:
    import pandas as pd


# How a user states prices and goals, and costs of decisions.
Weighting: TypeAlias = WeightingLike | ThresholdGoal
Costs: TypeAlias = "CostMatrix | pd.DataFrame | str | Path | None"


def plain_price(price: float) -> float:
    """A price without the last digits that a way through λ leaves: 10, not 9.999999999999996."""
    return float(f"{price:.12g}")


def average_price(p: Array, weights: Array) -> float:
    """False alarms that an average catch is expected to cost among alarms of these probabilities."""
    catches = float(p @ weights)
    return float((1.0 - p) @ weights) / catches if catches > 0.0 else math.nan


def prices_around(price: Price) -> list[CostRatio]:
    """Half the price, the price, twice the price."""
    return [CostRatio(plain_price(price.cost_ratio) * factor) for factor in (0.5, 1.0, 2.0)]


def step_values(steps: ExpenseCurve | Sequence[ClassStep], noise: float = 1.0, labels: Sequence[Any] = ()) -> list[Any]:
    """Steps of the price, or of the weight of each of several classes, as plain values; noise of the fitted model."""
    if not isinstance(steps, ExpenseCurve):
        return [
            {
                "label": json_value(labels[one.number]),
                "bracket": [one.low, one.high],
                "catches": one.gained,
                "expense": json_value(one.price),
                "standard_deviations": one.z,
            }
            for one in steps
        ]
    values = []
    for one in steps.steps:
        test = judge_step(one.step, noise)
        values.append(
            {
                "bracket": [plain_price(one.step.bracket_low), plain_price(one.step.bracket_high)],
                "catches": one.step.catches,
                "false_alarms": one.step.delta_fp,
                "expense": json_value(one.step.expense),
                "interval": [json_value(one.low), json_value(one.high)],
                "verdict": one.verdict,
                "standard_deviations": json_value(test.z),
                "is_beyond_noise": test.is_beyond_chance,
                "reason": test.sentence,
            }
        )
    return values


def step_lines(curve: ExpenseCurve, noise: float = 1.0) -> list[str]:
    """Each step as a line: the bracket, what was paid, and the verdict."""
    lines = []
    for one in curve.steps:
        bracket = f"  price {one.step.bracket_low:.4g} to {one.step.bracket_high:.4g}"
        paid = f"{one.step.catches:,.6g} more found for {one.step.delta_fp:,.6g} more false alarms"
        if one.step.catches > 0.0:
            paid += f", {one.step.expense:.4g} a catch"
        if math.isfinite(one.low) and math.isfinite(one.high):
            paid += f" ({one.low:.4g} to {one.high:.4g})"
        lines.append(f"{bracket:<26} {paid}: {judge_step(one.step, noise).sentence}")
    return lines


def own_costs(model: FittedModel) -> CostMatrix:
    """What a model of several classes decides by, as costs."""
    costs = getattr(model, "costs_", None)
    return (model.weighting_.cost_matrix if costs is None else costs).for_classes(model.classes_.tolist())


def stated_weighting(weighting: Weighting, costs: Costs, classes: Sequence[Any], target: str) -> Any:
    """A weighting or costs of `fit_table` for these values of the target; labels may be spelt otherwise."""
    if isinstance(weighting, str) and weighting == "none":
        weighting = None
    if costs is not None and not (weighting is None or (isinstance(weighting, str) and weighting == "balanced")):
        raise InvalidParameter(f"costs= and {weighting!r} both say what mistakes are worth: give one of them.")
    if costs is not None or isinstance(weighting, CostMatrix):
        found = costs_from(weighting if costs is None else costs, classes)
        if found.n_rows is None and (np.ptp(found.costs, axis=1) == 0.0).all():
            raise InvalidParameter("costs must differ between decisions: whatever is decided costs the same by these.")
        weights = found.class_weights()
        if len(classes) == 2 and weights is not None:  # a price of two classes, which all tools for two understand
            return dict(zip(classes, weights.tolist(), strict=True))
        return found
    if isinstance(weighting, Mapping):
        return _by_label(weighting, classes, target)
    if len(classes) > 2 and (isinstance(weighting, ThresholdGoal) or is_price_of_two(weighting)):
        raise InvalidParameter(
            f"{weighting!r} is for two classes, and {target} has {len(classes)}: state costs=, or weights of the "
            f"classes, or name one class to find with positive=."
        )
    return weighting


def decision_price(weighting: Weighting, costs: Costs, model: FittedModel) -> Price | ThresholdGoal:
    """The price of decisions of a fitted model, its own or a stated one; an operating goal stays as it is."""
    trained, classes = model.weighting_, model.classes_.tolist()
    if weighting is None and costs is None:
        return trained
    found = stated_weighting(weighting, costs, classes, getattr(model, "target_name_", None) or "the model")
    if isinstance(found, ThresholdGoal):
        return found
    if isinstance(found, Mapping):
        found = [found[label] for label in classes]
    if trained.positive is None:
        return trained.replace(found)
    if isinstance(found, CostMatrix):
        raise InvalidParameter(
            "these costs have actions of their own, and this model was fitted for a price of two classes: fit it with "
            "costs=, or use review=."
        )
    if isinstance(found, list):  # with a cost ratio of full precision
        found = CostRatio(found[trained.positive] / found[1 - trained.positive])
    return trained.replace(Lam(0.5) if found is None else found)


def price_values(price: Price | None, labels: Sequence[Any]) -> dict[str, Any] | None:
    """A price as plain values, ready for JSON; those that need a positive class are None without one."""
    if price is None:
        return None
    costs, is_binary = price.costs, price.positive is not None
    names = ("lam", "alpha", "cost_ratio", "budget", "threshold")
    return {
        "class_weights": None if costs is not None else price.weights.tolist(),
        "costs": None if costs is None else {"matrix": costs.costs.tolist(), "actions": list(costs.actions)},
        "positive": None if price.positive is None else json_value(labels[price.positive]),
        "negatives_per_positive": price.imbalance_ratio if is_binary else None,
        **{name: plain_price(getattr(price, name)) if is_binary else None for name in names},
    }


def _by_label(weighting: Mapping[Any, Any], classes: Sequence[Any], target: str) -> dict[Any, float]:
    by_key = {label_key(label): label for label in classes}
    found = {}
    for label, weight in weighting.items():
        if label_key(label) not in by_key:
            meant = closest(str(label), [str(one) for one in classes])
            hint = f"; did you mean {meant}?" if meant else "."
            raise InvalidParameter(f"weights must be for values of {target}, {listed(classes)}: got {label!r}{hint}")
        if isinstance(weight, bool) or not weight > 0.0 or not np.isfinite(weight):
            raise InvalidParameter(f"the weight of {label} must be a number above 0: got {weight!r}.")
        found[by_key[label_key(label)]] = float(weight)
    absent = [str(label) for label in classes if label not in found]
    if absent:
        raise InvalidParameter(
            f"every value of {target} needs a weight: {listed(absent)} {'has' if len(absent) == 1 else 'have'} none."
        )
    return found


_SEPARATORS = (";", "\t", "|", ",")
_EXCEL = (".xlsx", ".xlsm")
_MOST_BYTES = 2**20


@dataclass(frozen=True)
class CostTable:
    """The cells of a table of costs: names of decisions in the first row, of classes in the first column."""

    name: str  # of the file
    cells: tuple[tuple[str, ...], ...]  # row by row, all as long
    first_row: int = 1  # in the file

    def for_classes(self, classes: Sequence[Any]) -> CostMatrix:
        """The costs for these classes, in their order; columns that are no class are actions; errors name the cell."""
        heads = [self._named(cell, (0, j), "decision") for j, cell in enumerate(self.cells[0]) if j]
        sides = [self._named(row[0], (i, 0), "class") for i, row in enumerate(self.cells) if i]
        by_key = {label_key(label): label for label in classes}
        rows, columns = self._placed(sides, by_key, "row"), self._placed(heads, by_key, "column")
        for i, side in enumerate(sides, 1):
            if label_key(side) not in by_key:
                meant = closest(side, [str(label) for label in classes])
                hint = f"did you mean {meant}?" if meant else f"the classes are {listed(classes)}."
                raise InvalidInput(f"{self._at(i, 0)} must name a class: got {side!r}; {hint}")
        actions = [j for j, head in enumerate(heads, 1) if label_key(head) not in by_key]
        order = [*(columns[key] for key in by_key), *actions]
        values = np.array([[self._cost(rows[key], j, key) for j in order] for key in by_key])
        return CostMatrix(values, labels=list(classes), actions=[heads[j - 1] for j in actions])

    def _named(self, cell: str, place: tuple[int, int], what: str) -> str:
        if not cell:
            raise InvalidInput(f"{self._at(*place)} must name a {what}: it is empty.")
        return cell

    def _placed(self, names: list[str], by_key: dict[str, Any], what: str) -> dict[str, int]:
        """Where each class stands among the names of rows or columns."""
        found: dict[str, int] = {}
        for number, name in enumerate(names, 1):
            key = label_key(name)
            if key in found:
                place = (number, 0) if what == "row" else (0, number)
                raise InvalidInput(f"{self._at(*place)} names {name} a second time: each {what} must be its own.")
            found[key] = number
        absent = [label for key, label in by_key.items() if key not in found]
        if absent:
            strange = [name for name in names if label_key(name) not in by_key]
            meant = closest(str(absent[0]), strange)
            hint = f"; did you mean the {what} {meant}?" if meant else f"; it has {listed(names)}."
            raise InvalidInput(f"{self.name} must have a {what} for every class: none is called {absent[0]}{hint}")
        return found

    def _cost(self, i: int, j: int, key: str) -> float:
        cell = self.cells[i][j]
        if not cell or is_missing_mark(cell):
            if label_key(self.cells[0][j]) == key:
                return 0.0  # people leave the diagonal empty: a right decision costs nothing
            raise InvalidInput(f"{self._at(i, j)}, {self._meaning(i, j)}, has no cost: write a number, 0 for none.")
        value = self._numbers.get(cell, math.nan)
        if not math.isfinite(value):
            raise InvalidInput(f"{self._at(i, j)}, {self._meaning(i, j)}, must be a number: got {cell!r}.")
        if value < 0.0:
            raise InvalidInput(
                f"{self._at(i, j)}, {self._meaning(i, j)}, must be 0 or more: got {cell}; write a gain as a smaller "
                f"cost than those beside it."
            )
        return value

    @cached_property
    def _numbers(self) -> dict[str, float]:
        """Every cost by its text, all read as one column of numbers is: decimal commas, thousands, currencies."""
        import pandas as pd

        texts = [text for row in self.cells[1:] for text in row[1:] if text and not is_missing_mark(text)]
        reading = read_numbers(pd.Series(texts, dtype="str"))
        return {} if reading is None else dict(zip(texts, reading.values.tolist(), strict=True))

    def _at(self, i: int, j: int) -> str:
        return f"cell {_letters(j)}{i + self.first_row} of {self.name}"

    def _meaning(self, i: int, j: int) -> str:
        return f"{self.cells[0][j]} decided where {self.cells[i][0]} is true"


def costs_from(given: Any, classes: Sequence[Any]) -> CostMatrix:
    """Costs for some classes from a `CostMatrix`, a data frame with the classes as its index, or a file."""
    if isinstance(given, CostMatrix):
        if given.labels is None:
            return given.for_classes(classes)
        by_key = {label_key(label): label for label in classes}
        if all(label_key(label) in by_key for label in given.labels) and given.n_classes == len(classes):
            spelt = [by_key[label_key(label)] for label in given.labels]  # 1 and "1" are one label
            return CostMatrix(given.costs, labels=spelt, actions=given.actions).for_classes(classes)
        return given.for_classes(classes)
    return cost_table_of(given).for_classes(classes)


def cost_table_of(given: Any) -> CostTable:
    """The cells of a data frame or a file: CSV with commas, semicolons or tabulators, or Excel."""
    if isinstance(given, str | Path):
        path = Path(given)
        grid = _workbook(path) if path.suffix.lower() in _EXCEL else _text(path)
        return _table(path.name, grid)
    if hasattr(given, "to_pandas"):
        given = given.to_pandas()
    if not hasattr(given, "iloc"):
        raise InvalidParameter(
            f"costs must be a CostMatrix, a data frame or the path of a file: got {type(given).__name__}."
        )
    rows = [
        ["", *given.columns],
        *([label, *cells] for label, cells in zip(given.index, given.to_numpy(), strict=True)),
    ]
    return _table("the costs", rows)


def _table(name: str, grid: Sequence[Sequence[Any]]) -> CostTable:
    """Cells without spaces around them, empty rows and columns at the ends left out."""
    texts = [["" if cell is None or cell != cell else str(cell).strip() for cell in row] for row in grid]
    while texts and not any(texts[-1]):
        texts.pop()
    first = next((i for i, row in enumerate(texts) if any(row)), 0)
    texts = texts[first:]
    width = max((j + 1 for row in texts for j, cell in enumerate(row) if cell), default=0)
    if len(texts) < 3 or width < 3:
        raise InvalidInput(
            f"{name} must be a table of costs: a first line with what can be decided, then a line for each true class, "
            f"its name first; got {len(texts)} lines and {width} columns."
        )
    return CostTable(name, tuple(tuple((row + [""] * width)[:width]) for row in texts), first + 1)


def _text(path: Path) -> list[list[str]]:
    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    if len(raw) > _MOST_BYTES:
        raise InvalidInput(f"{path.name} must be a small table of costs: it is larger than 1 MiB.")
    text = _decoded(raw)
    if "\0" in text:
        raise InvalidInput(f"{path.name} is no text table of costs: save it as .csv or .xlsx.")
    best = max(_SEPARATORS, key=lambda mark: _fit(text, mark))
    return list(csv.reader(io.StringIO(text), delimiter=best))


def _decoded(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _fit(text: str, mark: str) -> tuple[bool, int]:
    """How well a separator cuts a text: lines of one width, more than one cell each; then cells of the first line."""
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=mark) if any(cell.strip() for cell in row)]
    widths = {len(row) for row in rows}
    return len(widths) == 1 and widths != {1}, len(rows[0]) if rows else 0


def _workbook(path: Path) -> list[list[Any]]:
    openpyxl = need("openpyxl", "excel")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # openpyxl raises whatever its parsers do
        said = " ".join(str(error).split())[:120]
        raise DataUnavailable(f"{path} cannot be read as an Excel workbook: {said}; save it again as .xlsx.") from error
    try:
        return [list(row) for row in book.worksheets[0].iter_rows(values_only=True, max_row=200, max_col=200)]
    finally:
        book.close()


def _letters(j: int) -> str:
    """The name of a column in a spreadsheet: A, B, … Z, AA."""
    return (_letters(j // 26 - 1) if j >= 26 else "") + chr(ord("A") + j % 26)
