"""What mistakes are worth: a price, class weights or a file of costs as users state them; expense around a price."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import CostMatrix, CostRatio, ExpenseCurve, InvalidInput, Lam
from crcen._support.text import closest, listed
from crcen._support.values import Values, json_value, label_key
from crcen.commands.inputs import FittedModel, require, require_input
from crcen.tables.cells import is_missing_mark, read_numbers
from crcen.tables.reading import open_table
from crcen.theory.expense import ClassStep
from crcen.theory.goals import ThresholdGoal
from crcen.theory.limits import EXPENSE_Z
from crcen.theory.price import Price, WeightingLike, is_price_of_two
from crcen.theory.rows import DataFrame

# How a user states prices and goals, and costs of decisions.
Weighting: TypeAlias = WeightingLike | ThresholdGoal
Costs: TypeAlias = "CostMatrix | pd.DataFrame | str | Path | None"


def plain_price(price: float) -> float:
    """A price without the last digits that a way through λ leaves: 10, not 9.999999999999996."""
    return float(f"{price:.12g}")


def prices_around(price: Price) -> list[CostRatio]:
    """Half the price, the price, twice the price."""
    return [CostRatio(plain_price(price.cost_ratio) * factor) for factor in (0.5, 1.0, 2.0)]


def step_values(
    steps: ExpenseCurve | Sequence[ClassStep], noise: float = 1.0, labels: Sequence[object] = ()
) -> list[Values]:
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
        z = one.deviation(noise)
        values.append(
            {
                "bracket": [plain_price(one.bracket_low), plain_price(one.bracket_high)],
                "catches": one.catches,
                "false_alarms": one.delta_fp,
                "expense": json_value(one.expense),
                "interval": [json_value(one.low), json_value(one.high)],
                "verdict": one.verdict,
                "standard_deviations": json_value(z),
                "is_beyond_noise": abs(z) > EXPENSE_Z,
                "reason": one.sentence(z),
            }
        )
    return values


def step_lines(curve: ExpenseCurve, noise: float = 1.0) -> list[str]:
    """Each step as a line: the bracket, what was paid, and the verdict."""
    lines = []
    for one in curve.steps:
        bracket = f"  price {one.bracket_low:.4g} to {one.bracket_high:.4g}"
        paid = f"{one.catches:,.6g} more found for {one.delta_fp:,.6g} more false alarms"
        if one.catches > 0.0:
            paid += f", {one.expense:.4g} a catch"
        if math.isfinite(one.low) and math.isfinite(one.high):
            paid += f" ({one.low:.4g} to {one.high:.4g})"
        lines.append(f"{bracket:<26} {paid}: {one.sentence(one.deviation(noise))}")
    return lines


def own_costs(model: FittedModel) -> CostMatrix:
    """What a model of several classes decides by, as costs."""
    costs = getattr(model, "costs_", None)
    return (model.weighting_.cost_matrix if costs is None else costs).for_classes(model.classes_.tolist())


def stated_weighting(weighting: Weighting, costs: Costs, classes: Sequence[object], target: str) -> Weighting:
    """A weighting or costs of `fit_table` for these values of the target; labels may be spelt otherwise."""
    if isinstance(weighting, str) and weighting == "none":
        weighting = None
    is_one = costs is None or weighting is None or (isinstance(weighting, str) and weighting == "balanced")
    require(is_one, f"costs= and {weighting!r} both say what mistakes are worth: give one of them.", "costs")
    if costs is not None or isinstance(weighting, CostMatrix):
        found = costs_from(weighting if costs is None else costs, classes)
        differ = found.n_rows is not None or (np.ptp(found.costs, axis=1) > 0.0).any()
        require(differ, "costs must differ between decisions: whatever is decided costs the same by these.", "costs")
        weights = found.class_weights()
        if len(classes) == 2 and weights is not None:  # a price of two classes, which all tools for two understand
            return dict(zip(classes, weights.tolist(), strict=True))
        return found
    if isinstance(weighting, Mapping):
        return weights_by_label(weighting, classes, target)
    is_of_two = isinstance(weighting, ThresholdGoal) or is_price_of_two(weighting)
    instead = "state costs=, or weights of the classes, or fit a model that finds one class, with positive=."
    for_two = f"{weighting!r} is for two classes, and {target} has {len(classes)}: {instead}"
    require(len(classes) == 2 or not is_of_two, for_two, "costs", "positive")
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
    actions = "these costs have actions of their own, and this model was fitted for a price of two classes"
    is_price = not isinstance(found, CostMatrix)
    require(is_price, f"{actions}: fit it with costs=, or use review=.", "costs", "review")
    if isinstance(found, list):  # with a cost ratio of full precision
        found = CostRatio(found[trained.positive] / found[1 - trained.positive])
    return trained.replace(Lam(0.5) if found is None else found)


def price_values(price: Price | None, labels: Sequence[object]) -> Values | None:
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


def weights_by_label(weighting: Mapping[object, float], classes: Sequence[object], target: str) -> dict[object, float]:
    """The weight of each class; labels may be spelt otherwise."""
    by_key, found = {label_key(label): label for label in classes}, {}
    for label, weight in weighting.items():
        meant = closest(str(label), [str(one) for one in classes])
        hint = f"; did you mean {meant}?" if meant else "."
        known = f"weights must be for values of {target}, {listed(classes)}: got {label!r}{hint}"
        require(label_key(label) in by_key, known)
        is_number = not isinstance(weight, bool) and 0.0 < weight < math.inf
        require(is_number, f"the weight of {label} must be a number above 0: got {weight!r}.")
        found[by_key[label_key(label)]] = float(weight)
    absent = [str(label) for label in classes if label not in found]
    none = f"{listed(absent)} {'has' if len(absent) == 1 else 'have'} none."
    require(not absent, f"every value of {target} needs a weight: {none}")
    return found


def costs_from(given: DataFrame, classes: Sequence[object]) -> CostMatrix:
    """Costs for some classes from a `CostMatrix`, a data frame with the classes as its index, or a file."""
    by_key = {label_key(label): label for label in classes}
    if isinstance(given, CostMatrix):
        if given.labels is not None and {label_key(label) for label in given.labels} == {*by_key}:
            spelt = [by_key[label_key(label)] for label in given.labels]  # 1 and "1" are one label
            given = CostMatrix(given.costs, labels=spelt, actions=given.actions)
        return given.for_classes(classes)
    name, sides, heads, grid = _table_of_costs(given)
    places: list[dict[str, int]] = []
    for what, names in (("row", sides), ("column", heads)):
        found: dict[str, int] = {}
        for number, one in enumerate(names):
            require_input(one, f"{name} must name every row and column: {what} {number + 2} has no name.")
            twice = f"{name} names the {what} {one} a second time: each {what} must be its own."
            require_input(found.setdefault(label_key(one), number) == number, twice)
        for key, label in by_key.items():
            meant = closest(str(label), [one for one in names if label_key(one) not in by_key])
            hint = f"did you mean the {what} {meant}?" if meant else f"it has {listed(names)}."
            require_input(key in found, f"{name} must have a {what} for every class: none is called {label}; {hint}")
        places.append(found)
    rows, columns = places
    unknown = [sides[i] for key, i in rows.items() if key not in by_key]
    require_input(not unknown, f"{name} must have rows for the classes {listed(classes)} only: got {listed(unknown)}.")
    # All cells are read as one column of numbers is: decimal commas, thousands, currencies.
    texts = [text for text in grid.ravel() if text]
    reading = read_numbers(*pd.factorize(pd.Series(texts, dtype="str")))
    numbers = {} if reading is None else dict(zip(texts, reading.values.tolist(), strict=True))

    def cost(i: int, j: int) -> float:
        cell, where = grid[i, j], f"the cost in {name} of {heads[j]} decided where {sides[i]} is true"
        is_right = label_key(heads[j]) == label_key(sides[i])  # people leave the diagonal empty
        require_input(cell or is_right, f"{where} is missing: write a number, 0 for none.")
        value = float(numbers.get(cell, math.nan)) if cell else 0.0
        require_input(math.isfinite(value), f"{where} must be a number: got {cell!r}.")
        gain = f"{where} must be 0 or more: got {cell}; write a gain as a smaller cost than the others."
        require_input(value >= 0.0, gain)
        return value

    actions = [j for key, j in columns.items() if key not in by_key]
    order = [*(columns[key] for key in by_key), *actions]
    values = np.array([[cost(rows[key], j) for j in order] for key in by_key])
    return CostMatrix(values, labels=list(classes), actions=[heads[j] for j in actions])


def _table_of_costs(given: DataFrame) -> tuple[str, list[str], list[str], NDArray[np.object_]]:
    """The name of a data frame or file of costs, the names of its rows and columns, and its cells as text."""
    if isinstance(given, str | Path):
        name = Path(given).name
        try:
            frame = open_table(given).read()
        except InvalidInput as error:  # of duplicate columns, which this table may not have
            raise InvalidInput(f"{str(error).partition('; rename')[0].rstrip('.')}.") from error
        heads = ["" if one == f"column_{number}" else one for number, one in enumerate(frame.columns, 1)]
    else:
        name, frame = "the costs", given.to_pandas() if hasattr(given, "to_pandas") else given
        known = f"costs must be a CostMatrix, a data frame or the path of a file: got {type(given).__name__}."
        require(hasattr(frame, "iloc"), known, "costs")
        heads = ["", *map(str, frame.columns)]
        frame = pd.concat([frame.index.to_series(), frame], axis=1)
    cells = frame.set_axis(heads, axis=1).map(lambda cell: "" if pd.isna(cell) else str(cell).strip())
    cells = cells.loc[(cells != "").any(axis=1), (cells != "").any(axis=0) | (cells.columns != "")]
    form = "a first line with what can be decided, then a line for each true class, its name first"
    got = f"got {len(cells) + 1} lines and {cells.shape[1]} columns."
    is_table = len(cells) > 1 and cells.shape[1] > 2
    require_input(is_table, f"{name} must be a table of costs: {form}; {got}")
    costs = cells.iloc[:, 1:].map(lambda cell: "" if is_missing_mark(cell) else cell)
    return name, cells.iloc[:, 0].tolist(), list(cells.columns[1:]), costs.to_numpy(dtype=object)
