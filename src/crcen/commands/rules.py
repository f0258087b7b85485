"""Costs of errors as users state them, decisions by them, class shares, audits, and bounds from audited labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import CostMatrix, CostRatio, ExpenseCurve, InvalidInput, Lam, Review
from crcen._support.text import Values, attributes, closest, count_text, json_value, label_key, listed, plural
from crcen.commands import inputs
from crcen.commands.inputs import FittedModel, Label, Source, check, is_share, require, require_input
from crcen.commands.results import Result
from crcen.decisions.expense_curve import ChosenWeighting, CurveRows, choose_weighting
from crcen.tables.cells import is_missing_mark, read_numbers
from crcen.tables.fingerprint import Recognition
from crcen.tables.reading import open_table
from crcen.theory.goals import ThresholdGoal, goal_of
from crcen.theory.intervals import LEVEL, Interval, estimate_shares, shifted_probabilities
from crcen.theory.limits import EXPENSE_Z, count_chance
from crcen.theory.price import Labels, Price, WeightingLike, is_price_of_two, positive_number
from crcen.theory.rows import Array, Bools, DataFrame, Index, effective_rows, four_digits
from crcen.theory.selective import audit_draws, audit_probabilities, audit_scores, audited_cost, recall_bounds

# How a user states prices and goals, costs of decisions, class shares, and two prices for a review.
Weighting: TypeAlias = WeightingLike | ThresholdGoal
CostsLike: TypeAlias = "CostMatrix | pd.DataFrame | str | Path | None"
Prevalence: TypeAlias = float | str | Mapping[Label, float] | None
ReviewPrices: TypeAlias = Review | Sequence[float] | None

AUDIT_COLUMNS = ("audit", "audit_probability")
AUDIT_RULES = ("neyman", "uniform")
# Fewer labels of quiet rows than expected with a smaller probability: audits have stopped.
_STOPPED_P = 1e-3


def plain_price(price: float) -> float:
    """A price without the last digits that a way through λ leaves: 10, not 9.999999999999996."""
    return float(f"{price:.12g}")


def prices_around(price: Price) -> list[CostRatio]:
    """Half the price, the price, twice the price."""
    return [CostRatio(plain_price(price.cost_ratio) * factor) for factor in (0.5, 1.0, 2.0)]


def step_resamples(price: Price) -> int:
    """Bootstrap resamples for the steps of each class, fewer if there are steps of several classes."""
    return 1000 if price.positive is not None else max(100, 1000 // price.n_classes)


def step_values(curve: ExpenseCurve, noise: float = 1.0, effect: float = 1.0) -> list[Values]:
    """Steps of the weight of a class as plain values; noise of the fitted model, effect of clusters."""
    values = []
    for one in curve:
        z = one.deviation(noise, effect)
        own: Values = {
            "label": json_value(curve.rows.label(one.number)),
            "bracket": [plain_price(one.bracket_low), plain_price(one.bracket_high)],
            **attributes(one, "catches false_alarms=delta_fp expense"),
            "interval": [json_value(one.low), json_value(one.high)],
            "verdict": one.verdict,
            "standard_deviations": json_value(z),
            "is_beyond_noise": abs(z) > EXPENSE_Z,
            "reason": one.sentence(z),
        }
        values.append(own)
    return values


def step_lines(curve: ExpenseCurve, noise: float = 1.0, effect: float = 1.0) -> list[str]:
    """Each step as a line: the bracket, what was paid, and the verdict."""
    lines = []
    for one in curve:
        bracket = f"  price {one.bracket_low:.4g} to {one.bracket_high:.4g}"
        paid = f"{count_text(one.catches)} more found for {count_text(one.delta_fp)} more false alarms"
        if one.catches > 0.0:
            paid += f", {one.expense:.4g} per catch"
        if math.isfinite(one.low) and math.isfinite(one.high):
            paid += f" ({one.low:.4g} to {one.high:.4g})"
        lines.append(f"{bracket:<26} {paid}: {one.sentence(one.deviation(noise, effect))}")
    return lines


def own_costs(model: FittedModel) -> CostMatrix:
    """What a model of several classes decides by, as costs."""
    costs = getattr(model, "costs_", None)
    return (model.weighting_.cost_matrix if costs is None else costs).for_classes(model.classes_.tolist())


def stated_weighting(
    weighting: Weighting, costs: CostsLike, classes: Sequence[object], target: str, *, has_positive: bool = True
) -> Weighting:
    """A weighting or costs of `fit_table` for these values of the target; labels may be spelt otherwise."""
    if isinstance(weighting, str) and weighting == "none":
        weighting = None
    is_one = costs is None or weighting is None or (isinstance(weighting, str) and weighting == "balanced")
    require(is_one, f"costs= and {weighting!r} both state the costs of errors: give one of them.", "costs")
    given = weighting if costs is None else costs
    if len(classes) == 2 and isinstance(given, CostMatrix) and given.is_price and has_positive:
        return CostRatio(float(given.added_by_mistake(1) / given.added_by_mistake(0)))
    if costs is not None or isinstance(weighting, CostMatrix):
        found = stated_costs(given, classes)
        weights = found.class_weights()
        # A price of two classes, which all tools for two understand.
        if len(classes) == 2 and weights is not None and not found.is_binary:
            return dict(zip(classes, weights.tolist(), strict=True))
        return found
    if isinstance(weighting, Mapping):
        return weights_by_label(weighting, classes, target)
    is_of_two = goal_of(weighting) is not None or is_price_of_two(weighting)
    instead = "state costs=, or weights of the classes, or fit a model that finds one class, with positive=."
    for_two = f"{weighting!r} is for two classes, and {target} has {len(classes)} ({listed(classes, 5)}): {instead}"
    require(len(classes) == 2 or not is_of_two, for_two, "costs", "positive")
    return weighting


def decision_price(weighting: Weighting, costs: CostsLike, model: FittedModel) -> Price | ThresholdGoal:
    """The price of decisions of a fitted model, its own or a stated one; an operating goal stays as it is."""
    trained, classes = model.weighting_, model.classes_.tolist()
    if weighting is None and costs is None:
        return trained
    name, has_positive = getattr(model, "target_name_", None) or "the model", trained.positive is not None
    found = stated_weighting(weighting, costs, classes, name, has_positive=has_positive)
    if (goal := goal_of(found)) is not None:
        return goal
    if isinstance(found, Mapping):
        found = [found[label] for label in classes]
    if trained.positive is None:
        return Labels(np.array(classes)).resolve(found, trained.counts)
    actions = "these costs have additional actions, and this model was fitted for a price of two classes"
    require(not isinstance(found, CostMatrix), f"{actions}: fit it with costs=, or use review=.", "costs", "review")
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
        known = f"weights must be for values of {target}, {listed(classes)}: got {label!r}."
        require(label_key(label) in by_key, known)
        is_number = not isinstance(weight, bool) and 0.0 < weight < math.inf
        require(is_number, f"the weight of {label} must be a number above 0: got {weight!r}.")
        found[by_key[label_key(label)]] = float(weight)
    absent = [str(label) for label in classes if label not in found]
    none = f"{listed(absent)} {'has' if len(absent) == 1 else 'have'} none."
    require(not absent, f"every value of {target} needs a weight: {none}")
    return found


def stated_costs(given: CostsLike, classes: Sequence[object]) -> CostMatrix:
    """Costs for these classes; those that are equal for all decisions, or are gains, are rejected."""
    found = costs_from(given, classes)
    by_row = "costs must be the same for all rows: name a column with the cost of a miss with cost_column="
    require(not found.is_per_row, f"{by_row}, or use crcen.decide.", "costs", "cost_column")
    differ = (np.ptp(found.costs, axis=1) > 0.0).any()
    require(differ, "costs must differ between decisions: these costs are the same for every decision.", "costs")
    found.check_right_is_cheapest()
    return found


def costs_from(given: DataFrame, classes: Sequence[object]) -> CostMatrix:
    """Costs for some classes from a `CostMatrix`, a data frame with the classes as its index, or a file."""
    by_key = {label_key(label): label for label in classes}
    if isinstance(given, CostMatrix):
        if given.labels is not None and {label_key(label) for label in given.labels} == {*by_key}:
            spelt = [by_key[label_key(label)] for label in given.labels]  # 1 and "1" are one label
            given = CostMatrix(given.costs, labels=spelt, actions=given.actions)
        return given if given.is_binary else given.for_classes(classes)  # which is positive is known later
    name, sides, heads, grid = _table_of_costs(given)
    places: list[dict[str, int]] = []
    for what, names in (("row", sides), ("column", heads)):
        found: dict[str, int] = {}
        for number, one in enumerate(names):
            is_own = one and found.setdefault(label_key(one), number) == number
            got = f"{what} {number + 2} is called {one!r}."
            require_input(is_own, f"{name} must name every row and column, each by its own name: {got}")
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
        if not grid[i, j] and label_key(heads[j]) == label_key(sides[i]):  # people leave the diagonal empty
            return 0.0
        value, got = float(numbers.get(grid[i, j], math.nan)), repr(grid[i, j]) if grid[i, j] else "an empty cell"
        where = f"the cost in {name} of {heads[j]} decided where {sides[i]} is true"
        require_input(0.0 <= value < math.inf, f"{where} must be a number, 0 or more: got {got}.")
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
    got = f"got {plural(len(cells) + 1, 'line')} and {plural(cells.shape[1], 'column')}."
    require_input(len(cells) > 1 and cells.shape[1] > 2, f"{name} must be a table of costs: {form}; {got}")
    costs = cells.iloc[:, 1:].map(lambda cell: "" if is_missing_mark(cell) else cell)
    return name, cells.iloc[:, 0].tolist(), list(cells.columns[1:]), costs.to_numpy(dtype=object)


def reject_without_positive(model: FittedModel, options: Mapping[str, object]) -> None:
    """Raise an error for options that need a positive class, if they are set and the model has none."""
    for name, value in options.items():
        why = f"it needs a positive class, and this model separates {len(model.classes_)} classes without one"
        is_right, use = model.weighting_.positive is not None or value is None, "state costs=, or fit with positive="
        require(is_right, f"{name} must be left out: {why}; {use}.", name, "positive", "costs")


@dataclass(frozen=True, eq=False)
class RowRule:
    """Turns probabilities of rows into decisions."""

    labels: tuple[Label, ...]
    price: Price  # with a review, that of the comparison
    goal: ThresholdGoal | None = None  # to be met on all rows at hand
    review: Review | None = None
    cost_column: str | None = None  # with the cost of a miss of each row
    alarm_cost: float = 1.0  # in the same unit
    time: str | None = None  # column of dates, for a capacity of a day or a week
    quiet: int | None = None  # number of the decision that was stated to be no alarm

    @property
    def costs(self) -> CostMatrix:
        """Cost of every decision, (K, A); a review at two prices is free here."""
        costs = self.price.cost_matrix.for_classes(self.labels)
        return costs if self.review is None else costs.with_review(0.0)

    @property
    def names(self) -> tuple[Label, ...]:
        """Possible decisions: the classes, then the other actions."""
        return (*self.labels, *self.costs.actions)

    @property
    def positive(self) -> Label | None:
        """The positive class, or None."""
        return None if self.price.positive is None else self.labels[self.price.positive]

    @property
    def evaluated(self) -> Sequence[int]:
        """The classes that results are about: the positive one, or all."""
        return range(len(self.labels)) if self.price.positive is None else [self.price.positive]

    @property
    def default(self) -> int:
        """The decision without an alarm: as stated, the negative class, or the most frequent class of training."""
        return self._usual if self.quiet is None else self.quiet

    @property
    def _usual(self) -> int:
        return int(np.argmax(self.price.counts)) if self.price.positive is None else 1 - self.price.positive

    def to_dict(self) -> Values | None:
        """The price as plain values, ready for JSON."""
        return price_values(self.price, self.labels)

    def alarms(self, chosen: Index) -> Bools:
        """Rows with another decision than the default; a review at two prices is no alarm."""
        return np.asarray(chosen != self.default if self.review is None else chosen == 1 - self.default)

    def catches(self, p: Array, chosen: Index) -> float:
        """Alarms that are expected to be right; a further action is right where the row is not of the default class."""
        rows = np.flatnonzero(self.alarms(chosen))
        right = np.column_stack([p, *[self.chance(p)] * len(self.costs.actions)])
        return float(right[rows, chosen[rows]].sum())

    def chance(self, p: Array) -> Array:
        """Probability of the positive class, (n,), or of another class than the most frequent one of training."""
        return p[:, self.price.positive] if self.price.positive is not None else np.asarray(1.0 - p[:, self._usual])

    def when(self, chunk: pd.DataFrame) -> NDArray[np.datetime64] | None:
        """Dates of a chunk's rows, if the goal depends on them."""
        return None if self.time is None else inputs.dates_of(chunk[self.time])

    def numbers(self, alarms: Bools) -> Index:
        """Alarms of two classes as class numbers."""
        return np.where(alarms, 1 - self.default, self.default)

    def decide(self, p: Array, chunk: pd.DataFrame | None = None) -> tuple[Index, Array]:
        """Decisions of a chunk by number, and their expected costs; a goal must have been met before."""
        rows = np.arange(len(p))
        if self.cost_column is not None and chunk is not None:
            own = CostMatrix.binary(fp=self.alarm_cost, fn=inputs.amounts_of(chunk[self.cost_column], "cost_column"))
            alarms = own.choose(self.chance(p))
            return self.numbers(alarms == 1), own.expected(self.chance(p))[rows, alarms]
        if self.review is not None:
            answers = self.review.meet(self.chance(p)).answers
            chosen = np.array([self.default, len(self.labels), 1 - self.default])[answers]
        else:
            chosen = np.asarray(self.price.decide(p), dtype=np.int64)
        return chosen, self.costs.expected(p)[rows, chosen]


def rule_of(
    model: FittedModel,
    source: Source,
    weighting: Weighting = None,
    costs: CostsLike = None,
    *,
    review: ReviewPrices = None,
    cost_column: str | None = None,
    alarm_cost: float | None = None,
    time: str | None = None,
    is_labelled: bool = False,
) -> RowRule:
    """The rule that parameters of `predict_table` state; contradictions, and what does not apply, are rejected.

    With labels (``is_labelled``) a guarantee is possible.
    """
    options = {"review": review, "cost_column": cost_column, "alarm_cost": alarm_cost, "time": time}
    reject_without_positive(model, options)
    stated = decision_price(weighting, costs, model)
    goal = goal_of(stated)
    needs_labels = "a guarantee needs labelled rows that the model did not see: name their file with held_out=."
    require(goal is None or goal.confidence is None or is_labelled, needs_labels, "held_out")
    is_by_time = goal is not None and goal.period is not None
    no_time = f"{goal} needs time=, the column with the time of each row."
    require(not is_by_time or time is not None or is_labelled, no_time, "time")
    no_time = "time must go with a capacity per day or week: it is not used otherwise."
    require(time is None or is_by_time, no_time, "time")
    alone = "alarm_cost must go with cost_column=, which has the same unit."
    require(alarm_cost is None or cost_column is not None, alone, "alarm_cost", "cost_column")
    if not is_labelled:
        given = [name for name in ("review", "cost_column") if options[name] is not None]
        ways = [*(f"{name}=" for name in given), *([] if goal is None else [str(goal)])]
        both = f"{' and '.join(ways)} both decide which rows are alarms: give one of them."
        require(not given or len(ways) == 1, both, *given)
        alone = "cost_column must go without another price: it states a price for each row."
        require(cost_column is None or (weighting is None and costs is None), alone, "cost_column")
    inputs.role_columns(source, None, {"cost_column": cost_column, "time": time})
    return RowRule(
        tuple(model.classes_.tolist()),
        stated if isinstance(stated, Price) else model.weighting_,
        goal,
        Review.of(review),
        cost_column,
        1.0 if alarm_cost is None else positive_number(alarm_cost, "alarm_cost"),
        time if is_by_time else None,
    )


def chosen_price(
    goal: ThresholdGoal,
    positive: Bools,
    p: Array,
    weights: Array | None,
    recognition: Recognition | None,
    name: str,
    clusters: Index | None = None,
) -> ChosenWeighting:
    """The price that meets a goal on labelled rows of the table ``name``; no guarantee is given on training rows."""
    require(goal.period is None, f"{goal} has no single price: state alarms in all, or a share such as 5/1000 rows.")
    if goal.confidence is not None and recognition is not None and recognition.status == "seen":
        raise InvalidInput(f"a guarantee needs rows that the model did not see, and of {name} {recognition.measured}.")
    return choose_weighting(CurveRows.binary(positive, p, weights), goal, clusters=clusters)


@dataclass(frozen=True, eq=False)
class ClassShares:
    """Class shares of the rows at hand, if they differ from those of training (K,)."""

    labels: tuple[Label, ...]
    shares: tuple[Interval, ...]  # without limits if they were stated
    trained: Array
    is_estimated: bool

    @classmethod
    def of(
        cls,
        prevalence: Prevalence,
        model: FittedModel,
        p: Array | None = None,
        clusters: pd.Series | None = None,
        weights: Array | None = None,
    ) -> "ClassShares | None":
        """From what was stated: None, a share of positives, a dict of label to share, or "auto" with p of all rows."""
        if prevalence is None:
            return None
        labels, price = tuple(model.classes_.tolist()), model.weighting_
        trained = price.counts / price.counts.sum()
        if isinstance(prevalence, str) and prevalence == "auto":
            if p is None:
                return cls(labels, (), trained, True)
            spread = getattr(getattr(model, "training_error_", None), "sizes", None)
            together = None if clusters is None else pd.factorize(clusters, use_na_sentinel=False)[0]
            found = estimate_shares(p, trained, weights, uncertainty=spread, clusters=together)
            return cls(labels, found, trained, True)
        if isinstance(prevalence, Mapping):
            by_key = {label_key(label): float(share) for label, share in prevalence.items()}
            is_right = {*by_key} == {*map(label_key, labels)} and all(0.0 < share < 1.0 for share in by_key.values())
            each = f"have a share between 0 and 1 for each of {', '.join(map(str, labels))}"
            check("prevalence", dict(prevalence), is_right, each)
            shares = np.array([by_key[label_key(label)] for label in labels])
            total = float(shares.sum())
            check("prevalence", total, abs(total - 1.0) <= 0.01, "have shares that sum to 1")
            shares = shares / total
        else:
            each = f"be auto or a share for each of the {len(labels)} classes, such as {labels[0]}=0.2"
            check("prevalence", prevalence, price.positive is not None, each)
            own = positive_number(prevalence, "prevalence")
            hint = f": did you mean {own / 100:g}?" if 2.0 <= own < 100.0 else "."
            require(own < 1.0, f"prevalence must be a share between 0 and 1: got {own:g}{hint}", "prevalence")
            shares = np.where(np.arange(2) == price.positive, own, 1.0 - own)
        return cls(labels, tuple(Interval(float(one), math.nan, math.nan) for one in shares), trained, False)

    @property
    def values(self) -> Array:
        """The shares, (K,), above 0."""
        return np.maximum([one.value for one in self.shares], 1e-12)

    def moved(self, p: Array) -> Array:
        """Probabilities at these shares."""
        return shifted_probabilities(p, self.trained, self.values)

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        shares = {str(json_value(label)): one.to_dict() for label, one in zip(self.labels, self.shares, strict=True)}
        return {"is_estimated": self.is_estimated, "shares": shares}

    def line(self, positive: Label | None) -> str:
        """The shares in words, of the positive class if there is one."""
        which = range(len(self.labels)) if positive is None else [self.labels.index(positive)]
        parts = []
        for k in which:
            one = self.shares[k]
            limits = "" if math.isnan(one.low) else f" ({100 * one.low:.3g} to {100 * one.high:.3g} %)"
            share = 100 * one.value if one.value > 1e-6 else 0.0
            here = f"{share:.3g} % of rows are {self.labels[k]}{limits}"
            parts.append(f"{here}, {100 * self.trained[k]:.3g} % in training")
        how = "estimated from the rows, without labels" if self.is_estimated else "stated"
        return f"Probabilities adjusted to the prevalence {how}: {'; '.join(parts)}"


class ShiftedModel:
    """A fitted classifier at other class shares; everything else is that of the classifier."""

    def __init__(self, model: FittedModel, shares: ClassShares) -> None:
        self._model, self._shares = model, shares
        self.training_rows_ = model.weighting_.counts
        self.shares_are_ = "by the estimate" if shares.is_estimated else "as stated"

    def __getattr__(self, name: str) -> object:
        if name in ("profile_", "oof_decision_function_", "oof_proba_"):  # scores at the shares of training
            raise AttributeError(name)
        value = getattr(self._model, name)
        if name == "weighting_":  # the same price with class counts in these shares
            return replace(value, counts=self._shares.values * value.counts.sum())
        return ShiftedModel(value, self._shares) if name == "estimator_" else value

    def predict_proba(self, X: object) -> Array:
        """Natural probabilities at the shares."""
        return self._shares.moved(self._model.predict_proba(X))


@dataclass(frozen=True, repr=False)
class RowCosts(Result):
    """Cost of decisions if each row has a cost of its own; prints itself."""

    keys = "alarms=n_alarms cost=by_row cost_at_one_price=by_price cost_of_silence=silence cost_of_alarms=alarms"
    n_alarms: int
    by_row: float
    by_price: float  # at the one price
    silence: float  # without any alarm
    alarms: float  # with an alarm on every row

    @classmethod
    def of(
        cls, positive: Bools, p: Array, misses: Array, alarm_cost: float, price: Price, weights: Array | None
    ) -> "RowCosts":
        """Add up what misses and false alarms cost."""
        costs, counted = CostMatrix.binary(fp=alarm_cost, fn=misses), np.ones(len(p)) if weights is None else weights
        by_row = costs.choose(p) == 1
        ways = (by_row, price.decide(p), np.zeros(len(p), dtype=bool), np.ones(len(p), dtype=bool))
        return cls(int(by_row.sum()), *(float(costs.realised(positive, way) @ counted) for way in ways))

    def __str__(self) -> str:
        silence, every = four_digits(self.silence), four_digits(self.alarms)
        constant = f"{silence} without an alarm, {every} with an alarm on every row"
        found = f"{plural(self.n_alarms, 'alarm')}, errors cost {four_digits(self.by_row)}"
        return f"With the cost of each row: {found}; {four_digits(self.by_price)} at the one price, {constant}"


@dataclass(frozen=True, eq=False, repr=False)
class Audits(Result):
    """Rows without an alarm that were drawn for an audit."""

    keys = "rule quiet_rows=n_quiet expected drawn=n_drawn to_check=n_checked smallest_probability"
    rule: str  # "neyman" or "uniform"
    n_quiet: int
    n_drawn: int  # of the quiet rows
    n_checked: int  # with the alarms
    expected: float  # of n_drawn
    smallest_probability: float
    probabilities: Array  # of being checked, 1 for alarms
    drawn: Bools  # rows to check

    def __str__(self) -> str:
        rows, expected = f"{self.n_drawn:,} of {self.n_quiet:,} rows without an alarm", four_digits(self.expected)
        return f"Audits: {rows} were drawn (expected {expected}), {self.n_checked:,} rows to check with the alarms"


def with_default(rule: RowRule, default_action: Label | None) -> RowRule:
    """The rule with the decision that is no alarm, if it was named."""
    if default_action is None:
        return rule
    keys = [label_key(name) for name in rule.names]
    has_positive = rule.price.positive is not None
    allowed = "left out for a model with a positive class" if has_positive else f"one of {listed(rule.names)}"
    check("default_action", default_action, not has_positive and label_key(default_action) in keys, f"be {allowed}")
    return replace(rule, quiet=keys.index(label_key(default_action)))


def draw_audits(
    audit: object, audit_rule: str, rule: RowRule, p: Array, actions: Index, hashes: NDArray[np.uint64], seed: int
) -> Audits:
    """Draw rows without an alarm, independently, with known probabilities; a seed and a row's hash fix its draw.

    ``audit`` is their expected number, or a share of the rows without an alarm such as "2%".
    """
    quiet, text = np.asarray(actions == rule.default), str(audit).strip()
    n_quiet, is_percent = int(quiet.sum()), text.endswith("%")
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    is_right = not isinstance(audit, bool) and 0.0 < value < math.inf and not (is_percent and value > 100.0)
    allowed = "be a number of rows, such as 100, or a share of the rows without an alarm, such as 2%"
    check("audit", audit, is_right, allowed)
    expected = value / 100.0 * n_quiet if is_percent else min(value, float(n_quiet))
    scores = audit_scores(p, rule.price.weights) if audit_rule == "neyman" else np.ones(len(p))
    e = audit_probabilities(scores, quiet, expected) if n_quiet else np.ones(len(p))
    rank = pd.Series(hashes).groupby(hashes).cumcount().to_numpy(dtype=np.uint64)  # rows that are alike differ in it
    drawn = audit_draws(hashes + rank * np.uint64(0x9E3779B97F4A7C15), e, seed) | ~quiet
    counts = n_quiet, int((drawn & quiet).sum()), int(drawn.sum())
    return Audits(audit_rule, *counts, float(e[quiet].sum()), float(e.min()), e, drawn)


@dataclass(frozen=True, eq=False, repr=False)
class AuditedRows(Result):
    """Bounds for all rows from the labels of alarms and audits."""

    keys = (
        "confidence quiet_rows=n_quiet audited_rows=n_audited effective_rows=effective "
        "unlabelled_alarms=n_unlabelled_alarms expected_audits"
    )
    rule: RowRule
    confidence: float
    n_quiet: int
    n_audited: int  # quiet rows with a label
    n_unlabelled_alarms: int
    effective: float  # Kish's number of labelled rows with weights 1/e
    recalls: Array  # lower bounds, (K,)
    missed: Array  # upper bounds on missed rows, (K,)
    recall_lows: Array  # lower ends of 95 % intervals of recall, (K,)
    cost_per_1000: Interval  # doubly robust
    expected_audits: float  # sum of the probabilities of quiet rows
    n_left_out: int  # unlabelled rows that no audit could have drawn

    @classmethod
    def of(cls, rule: RowRule, y: Index, p: Array, e: Array, confidence: float = LEVEL) -> "AuditedRows":
        """From all rows: class numbers (−1: no label), probabilities and audit probabilities."""
        check("confidence", confidence, is_share(confidence), "lie between 0 and 1")
        possible = (e > 0.0) & (e <= 1.0)
        y, p, e = y[possible], p[possible], e[possible]
        actions = np.asarray(rule.price.decide(p), dtype=np.int64)
        default, is_drawn = rule.default, e < 1.0
        if rule.price.positive is None and is_drawn.any():  # predict may have been given another default action
            default = int(np.bincount(actions[is_drawn]).argmax())
        quiet, labelled, costs = actions == default, y >= 0, rule.price.cost_matrix.for_classes(rule.labels)
        k, m = int((quiet & labelled).sum()), float(e[quiet].sum())
        found = f"{k:,} rows without an alarm have a label where {four_digits(m)} were expected"
        is_likely = count_chance(k, m) > (1e-9 if k > m else _STOPPED_P)
        require_input(is_likely, f"{found}: keep all rows, with the labels of all drawn ones and of no others.")
        bounds = (recall_bounds(y, actions, e, default, p.shape[1], one) for one in (confidence, 0.5 + 0.5 * LEVEL))
        (recalls, missed), (recall_lows, _) = bounds
        return cls(
            rule=rule,
            confidence=confidence,
            n_quiet=int(quiet.sum()),
            n_audited=k,
            n_unlabelled_alarms=int((~quiet & ~labelled).sum()),
            effective=effective_rows(1.0 / e[labelled]),
            recalls=recalls,
            missed=missed,
            recall_lows=recall_lows,
            cost_per_1000=audited_cost(y, actions, p, costs.costs, e, default).scaled(1000.0),
            expected_audits=m,
            n_left_out=int((~possible).sum()),
        )

    @property
    def notes(self) -> list[str]:
        """What limits these results."""
        notes = []
        if self.n_left_out:
            notes.append(f"{self.n_left_out:,} rows without a label had no chance of an audit: left out")
        if not self.n_audited:
            notes.append("no row without an alarm has a label: labels of alarms say nothing about the other rows")
        if self.n_unlabelled_alarms:
            notes.append(f"{self.n_unlabelled_alarms:,} alarms without a label were left out")
        return notes

    def __str__(self) -> str:
        lines = [
            f"Audited labels: {self.n_audited:,} of {self.n_quiet:,} rows without an alarm have a label, weighted by "
            f"1 / audit probability ({four_digits(self.effective)} effective rows)"
        ]
        for k in self.rule.evaluated:
            name = "" if self.rule.positive is not None else f" of {self.rule.labels[k]}"
            bound = "unknown" if math.isnan(self.recalls[k]) else f"at least {self.recalls[k]:.3g}"
            missed = f"at most {four_digits(self.missed[k])} missed (confidence {self.confidence:g})"
            lines.append(f"  recall{name} on these rows {bound}, {missed}")
        return "\n".join(lines)


def bound_values(audited: AuditedRows | None) -> Values:
    """Lower bound on recall and upper bound on missed rows: numbers for two classes, by class for more."""
    if audited is None:
        return {"recall_bound": None, "missed_bound": None}
    bounds, labels = {"recall_bound": audited.recalls, "missed_bound": audited.missed}, audited.rule.labels
    if audited.rule.price.positive is not None:
        return {name: json_value(values[audited.rule.price.positive]) for name, values in bounds.items()}
    return {name: dict(zip(map(str, labels), map(json_value, values), strict=True)) for name, values in bounds.items()}
