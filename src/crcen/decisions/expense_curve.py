"""Expense curves along a path of weights, and the price that meets a goal."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from crcen._support.lazy import pd
from crcen._support.text import json_value
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.search.classifier_cv import path_logits
from crcen.models.search.folds import split_rows
from crcen.theory import checks
from crcen.theory.checks import check_binary_rows, check_probabilities, check_row_weights, class_totals
from crcen.theory.cost_matrix import decision_table
from crcen.theory.expense import ExpenseStep, ExpenseTable, expense_steps, price_paths
from crcen.theory.goals import ThresholdGoal, goal_of
from crcen.theory.intervals import UNKNOWN, Interval, share_interval
from crcen.theory.key_equation import KeyEquation, key_equation, key_equation_of_logits
from crcen.theory.metrics import ConfusionCounts, count_decisions, percentile_interval
from crcen.theory.price import CostRatio, Labels, Price, WeightingLike, positive_number, resolved, sigmoid
from crcen.theory.rows import Array, Axes, Bools, DataFrame, Estimator, Index, Rows, ShownInOneLine, Splitter, as_numpy
from crcen.theory.thresholds import RowsByProbability, price_of_threshold

if TYPE_CHECKING:
    from crcen.report.displays import ExpenseCurveDisplay


KINDS = {"threshold": "one model, its threshold moved", "retrained": "a network trained for each weight"}
_OUT_OF_FOLD = "oof_decision_function_"  # predictions that a search and a committee keep of their training rows
_SWEEPS = 1000
_LARGEST = 60.0  # of log weights: beyond that the other classes are never decided


@dataclass(frozen=True, eq=False)
class CurveRows:
    """Class numbers, natural posteriors and sample weights of rows."""

    y: Index
    p: Array  # (n, K)
    weights: Array
    positive: int | None = None  # the positive one of two classes
    labels: tuple[Any, ...] = ()  # of the classes, if they are known
    clusters: NDArray[np.generic] | None = None  # which are resampled instead of rows

    @classmethod
    def binary(cls, y: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None = None) -> "CurveRows":
        """From 0/1 or bool labels and posteriors of the positive class, (n,)."""
        target, chances = check_binary_rows(y, p, "p")
        weights = check_row_weights(sample_weight, target.size)
        return cls(target.astype(np.int64), np.column_stack([1.0 - chances, chances]), weights, 1)

    def totals(self) -> Array:
        """Weight of the rows of each class; each must have some."""
        if self.positive is not None:
            pos, neg = class_totals(self.y == self.positive, self.weights)
            return np.array([neg, pos][:: 1 if self.positive == 1 else -1])
        return Labels(np.array(self.labels or range(self.p.shape[1]))).counts(self.y, self.weights)

    def label(self, number: int) -> Any:
        """The label of a class, or its number."""
        return self.labels[number] if self.labels else number


@dataclass(frozen=True, eq=False, repr=False)
class ExpenseCurve(ExpenseTable):
    """Counts along a path of weights, the expense of every step, its bracket, its interval and a verdict.

    Make one with `from_predictions` (one model's threshold moves: a step outside its bracket is about the
    probabilities), `from_estimator` (a network trained for each weight: it may also be a changed ranking) or `from_cv`.
    Intervals are percentile bootstraps over the rows judged, without the chance of training. Without a positive class,
    a path raises the weight of one class, and there may be a path for every class, one after the other.
    """

    kind: str  # "threshold" or "retrained"
    weightings: tuple[Price, ...]  # in increasing order of price
    counts: ConfusionCounts  # one entry for each weighting
    level: float
    rows: CurveRows  # without posteriors if networks were trained separately
    equations: tuple[KeyEquation, ...] = ()  # ``key_equations`` of networks that were trained separately
    source: str = ""  # which rows the counts are of

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        p: ArrayLike,
        weightings: Any = None,
        *,
        sample_weight: ArrayLike | None = None,
        level: float = 0.95,
        n_resamples: int = 1000,
        random_state: int = 0,
    ) -> "ExpenseCurve":
        """Move the threshold of one model: a curve of kind "threshold".

        Parameters
        ----------
        y : array of shape (n,)
            0/1 or bool, 1 is positive, or class numbers; rows the model did not see, at the natural class ratio.
        p : array of shape (n,) or (n, K)
            Natural posteriors of the positive class, or of every class, of any model.
        weightings : sequence, or a single weighting such as "balanced", optional
            Anything `crcen.resolve` takes, in increasing order of price; by default α = ¼, ½, 1, 2, 4 on these rows. A
            path of more than two classes raises the weight of one of them. A single weighting stands for ¼, ½, 1, 2, 4
            times its weight of the positive class, or of each class in turn, which is the default with "balanced".
        sample_weight : array of shape (n,), optional
            Finite and not negative.
        level, n_resamples, random_state
            Of the bootstrap.
        """
        if np.ndim(as_numpy(p)) == 2:
            columns = checks.check_class_probabilities(p, np.size(as_numpy(y)), name="p")
            numbers = checks.check_class_numbers(y, columns.shape[1])
            rows = CurveRows(numbers, columns, check_row_weights(sample_weight, numbers.size))
        else:
            rows = CurveRows.binary(y, p, sample_weight)
        return cls.from_rows(rows, weightings, level=level, n_resamples=n_resamples, random_state=random_state)

    @classmethod
    def from_rows(
        cls, rows: CurveRows, weightings: Any = None, price: Callable[[Any], Price] | None = None, **bootstrap: Any
    ) -> Self:
        """The same for `CurveRows`; ``price`` resolves weightings, by default on these rows."""

        def resolve(weighting: Any) -> Price:
            is_resolved = isinstance(weighting, Price) and weighting.positive == rows.positive
            return weighting if is_resolved else resolved(weighting, rows.totals(), rows.positive)

        paths = price_paths(weightings, price or resolve)
        decided = np.array([price.decide(rows.p) for path in paths for price in path])
        return cls._judged(rows, paths, decided, (), "the rows given", **bootstrap)

    @classmethod
    def _judged(
        cls,
        rows: CurveRows,
        paths: Sequence[Sequence[Price]],
        decided: Index,  # (weightings, n)
        equations: tuple[KeyEquation, ...],
        source: str,
        level: float = 0.95,
        n_resamples: int = 1000,
        random_state: int = 0,
    ) -> Self:
        n_resamples, p = checks.check_whole_number(n_resamples, "n_resamples", 1), rows.p if len(rows.p) else None
        how: dict[str, Any] = {"n_resamples": n_resamples, "level": level, "random_state": random_state}
        how["clusters"] = rows.clusters
        own, each = (rows.y, rows.weights), iter(decided)
        steps = tuple(step for path in paths for step in expense_steps(*own, path, each, p, **how))
        flat = tuple(price for path in paths for price in path)
        counts = count_decisions(rows.y, decided, rows.weights, flat[0].n_classes, positive=rows.positive)
        return cls(steps, "retrained" if p is None else "threshold", flat, counts, level, rows, equations, source)

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: Rows,
        y: ArrayLike,
        weightings: Sequence[WeightingLike] | None = None,
        *,
        cv: Splitter = 4,
        sample_weight: ArrayLike | None = None,
        level: float = 0.95,
        n_resamples: int = 1000,
        random_state: int = 0,
    ) -> "ExpenseCurve":
        """Train a copy of an estimator for each weight, all networks in one stack, and judge it on other rows.

        Parameters
        ----------
        estimator : CRCENClassifier, or any classifier with ``weighting`` or ``class_weight``
            Not changed. Others than networks of this package are fitted in a loop.
        X, y, sample_weight
            Rows at the natural class ratio; each is judged by copies that were trained without it.
        cv : int, splitter or list of (train, test), default=4
            The folds, stratified and shuffled by ``random_state`` if an int; one pair judges the test rows alone.
        weightings, level, n_resamples, random_state
            See `from_predictions`; α is resolved on y.
        """
        splits = stratified_splits(cv, X, y, random_state)
        path = path_logits(estimator, X, y, weightings, splits, sample_weight)
        equations = tuple(
            key_equation_of_logits(path.target, logits, weighting, path.weights)
            for logits, weighting in zip(path.logits, path.weightings, strict=True)
        )
        classes, price = tuple(path.labels.classes.tolist()), path.weightings[0]
        rows = CurveRows(path.y, np.empty((0, len(classes))), path.weights, price.positive, classes)
        source = f"out-of-fold rows, {len(splits)} folds" if len(splits) > 1 else "test rows"
        return cls._judged(rows, path.paths, path.chosen, equations, source, level, n_resamples, random_state)

    @classmethod
    def from_cv(
        cls,
        model: Estimator,
        y: ArrayLike,
        weightings: Sequence[WeightingLike] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        level: float = 0.95,
        n_resamples: int = 1000,
        random_state: int = 0,
    ) -> "ExpenseCurve":
        """Move the threshold of a cross-validated search on its out-of-fold rows.

        Parameters
        ----------
        model : CRCENClassifierCV or CommitteeClassifier
            Fitted.
        y : array of shape (n,)
            The labels it was fitted on.
        weightings, sample_weight, level, n_resamples, random_state
            See `from_predictions`.
        """
        rows = out_of_fold_rows(model, y, sample_weight)
        bootstrap: dict[str, Any] = {"level": level, "n_resamples": n_resamples, "random_state": random_state}
        curve = cls.from_rows(rows, weightings, model.weighting_.replace, **bootstrap)
        return replace(curve, source="out-of-fold rows of the search")

    @property
    def description(self) -> str:
        """The kind of the curve in words."""
        return KINDS[self.kind]

    @property
    def intervals(self) -> Array:
        """Bootstrap intervals of the expense, (steps, 2)."""
        return np.array([(step.low, step.high) for step in self.steps])

    @property
    def key_equations(self) -> tuple[KeyEquation, ...]:
        """The key equation at each weighting."""
        found = (key_equation(self.rows.y, w.weighted(self.rows.p), w, self.rows.weights) for w in self.weightings)
        return self.equations or tuple(found)

    @property
    def _points(self) -> list[tuple[int, int, ExpenseStep | None]]:
        """For each weighting: its position, the class whose weight rises, and the step that ends there, if any."""
        size = len(self.steps) // (len(self.weightings) - len(self.steps))  # of a path
        starts = range(0, len(self.steps), size)
        ends = [(self.steps[i].number, step) for i in starts for step in (None, *self.steps[i : i + size])]
        return [(i, *end) for i, end in enumerate(ends)]

    def _of_class(self, name: str) -> list[float]:
        """A count or share at each weighting, of the class whose weight rises."""
        values = np.asarray(getattr(self.counts, name))
        return [float(values[i] if values.ndim == 1 else values[i, number]) for i, number, _ in self._points]

    def frame(self) -> DataFrame:
        """A data frame with a row for each weighting, and in it the step that ends there; the first row has none."""
        steps = [step for *_, step in self._points]
        columns: dict[str, list[object]] = {}
        if self.weightings[0].positive is None:
            columns["class"] = [self.rows.label(number) for _, number, _ in self._points]
            columns["weight"] = [float(self.weightings[i].weights[number]) for i, number, _ in self._points]
        else:
            prices = ("lam", "alpha", "cost_ratio", "threshold")
            columns |= {name: [getattr(weighting, name) for weighting in self.weightings] for name in prices}
        columns |= {name: [*self._of_class(name)] for name in ("tp", "fp", "fn", "tn", "recall", "precision")}
        for name in ("expense", "bracket_low", "bracket_high", "interval_low", "interval_high"):
            columns[name] = [getattr(step, name.removeprefix("interval_"), math.nan) for step in steps]
        for name, absent in (("verdict", ""), ("is_beyond_noise", False), ("reason", "")):
            columns[name] = [getattr(step, name, absent) for step in steps]
        return pd.DataFrame({**columns, "curve": self.kind})

    def plot(self, ax: Axes = None) -> "ExpenseCurveDisplay":
        """Draw the steps on their brackets, on axes given or on a new figure."""
        from crcen.report.displays import ExpenseCurveDisplay

        return ExpenseCurveDisplay(self).plot(ax=ax)

    def __str__(self) -> str:
        is_binary = self.weightings[0].positive is not None
        head = f"{'cost ratio' if is_binary else 'weight':>18}  {'recall':>14}  {'precision':>14}  {'expense':>8}  "
        lines = [
            f"Expense: {self.description} ({self.source})",
            f"{head}{f'{100 * self.level:g} % interval':>17}  verdict",
        ]
        recall, precision = self._of_class("recall"), self._of_class("precision")
        for i, number, step in self._points:
            if step is None:
                lines += [] if is_binary else [f"class {self.rows.label(number)}"]
                continue
            prices = f"{step.bracket_low:.4g} -> {step.bracket_high:.4g}"
            found = f"{recall[i - 1]:.3f} -> {recall[i]:.3f}"
            right = f"{precision[i - 1]:.3f} -> {precision[i]:.3f}"
            interval = "" if math.isnan(step.low) else f"[{step.low:.4g}, {step.high:.4g}]"
            verdict = step.verdict + (f": {step.reason}" if step.reason else "")
            paid = "–" if math.isnan(step.expense) else f"{step.expense:.4g}"
            lines.append(f"{prices:>18}  {found:>14}  {right:>14}  {paid:>8}  {interval:>17}  {verdict}")
        return "\n".join(lines + self.average_line)


@dataclass(frozen=True, repr=False)
class ChosenWeighting(ShownInOneLine):
    """The price that meets a goal, and the expected results, of the positive class or of every class."""

    weighting: CostRatio | dict[Hashable, float]  # to train at, or to give to `crcen.decide` with natural posteriors
    target: str  # the goal
    counts: ConfusionCounts
    # Recall, precision and share of rows with the decision ("alarm_rate") of each class, with Wilson's intervals.
    figures: dict[Hashable, dict[str, Interval]]
    level: float
    threshold: float = math.nan  # for an alarm
    # Bootstrap interval: 0 for a resample that cannot meet the goal, inf for one that needs an alarm on probability 0;
    # NaN for a guarantee.
    cost_ratio: Interval = UNKNOWN
    rate: float | None = None  # rows a day
    confidence: float | None = None  # of a guarantee
    misses: str = ""  # how often new rows miss the goal

    def _of_positive(self, name: str) -> Interval:
        if len(self.figures) > 1:
            raise AttributeError(f"several classes have no single {name}: see figures.")
        return next(iter(self.figures.values()))[name]

    @property
    def recall(self) -> Interval:
        """Share of the positives that are found."""
        return self._of_positive("recall")

    @property
    def precision(self) -> Interval:
        """Share of the alarms that are right."""
        return self._of_positive("precision")

    @property
    def alarm_rate(self) -> Interval:
        """Share of rows with an alarm."""
        return self._of_positive("alarm_rate")

    @property
    def average_price(self) -> float:
        """False alarms per catch on the rows given; the price of the last catch is ``weighting``."""
        return float(self.counts.fp / self.counts.tp) if len(self.figures) == 1 and self.counts.tp else math.nan

    def to_dict(self) -> dict[str, object]:
        """Plain values; None where a number does not exist. Figures of several classes are by label."""
        found: dict[str, object] = {"goal": self.target, "confidence": self.confidence, "misses": self.misses or None}
        found["threshold"] = json_value(self.threshold)
        for name in ("recall", "precision", "alarm_rate"):
            values = {str(label): own[name].to_dict() for label, own in self.figures.items()}
            found[name] = values if len(values) > 1 else next(iter(values.values()))
        return found | {"cost_ratio": self.cost_ratio.to_dict()}

    def __str__(self) -> str:
        if isinstance(self.weighting, dict):
            weights = ", ".join(f"{label}: {weight:.6g}" for label, weight in self.weighting.items())
            table = decision_table(list(self.weighting), self.counts.table, has_recall=True)
            return f"{self.target}: weights {weights}\n{table}"

        def line(name: str, found: Interval) -> str:
            between = "" if math.isnan(found.low) else f"   [{found.low:.4g}, {found.high:.4g}]"
            return f"  {name:<22}{found.value:>9.4g}{between}"

        brackets = f"  in brackets: {100 * self.level:g} % intervals"
        notes = [f"{brackets}; that of the last catch is for the selected price", f"  {self.misses}".rstrip()]
        if self.confidence is not None:
            rows = "new rows like these (with clusters, one row of each)"
            notes = [brackets, f"  guaranteed for this fitted model and {rows}; not valid after a refit"]
        lines = [
            f"{self.target}: a price of {self.weighting.value:.4g}, an alarm if p > {self.threshold:.4g}",
            line("recall", self.recall),
            line("precision", self.precision),
            line("share of rows alarmed", self.alarm_rate),
            "" if self.rate is None else line("alarms a day", self.alarm_rate.scaled(self.rate)),
            line("price of last catch", self.cost_ratio),
            f"  {'price of average catch':<22}{self.average_price:>9.4g}",
        ]
        return "\n".join(filter(None, lines + notes))


def choose_weighting(
    source: ExpenseCurve | CurveRows | Estimator,
    goal: ThresholdGoal | Mapping[Hashable, float],
    X: Rows = None,
    y: ArrayLike | None = None,
    *,
    rate: float | None = None,
    sample_weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 500,
    random_state: int = 0,
) -> ChosenWeighting:
    """Find the price that meets a goal, by moving the threshold of a model on rows it did not see.

    Parameters
    ----------
    source : ExpenseCurve, CRCENClassifierCV, CommitteeClassifier, or any fitted classifier with ``predict_proba``
        A curve from predictions brings its rows. A search is judged on its out-of-fold rows and needs the ``y`` it was
        fitted on. Any other model needs ``X`` and ``y``: rows it did **not** see, at the natural class ratio.
    goal : RecallAtLeast, PrecisionAtLeast, Capacity, or a dict of label to recall
        The smallest price with at least that recall; the largest price with at least that precision, or with at most so
        many alarms. A dict, for any number of classes, finds the least class weights with at least these recalls.
    X, y, sample_weight : optional
        Rows as the source needs them.
    rate : float, optional
        Rows a day, which a capacity for a day or a week needs; with it the alarms a day are given for every goal.
    clusters : array of shape (n,), optional
        Rows of the same cluster may depend on each other: a guarantee counts one row of each, intervals are longer.
    level, n_resamples, random_state
        Of the bootstrap.

    Notes
    -----
    The threshold is chosen and judged on the same rows: new rows miss a recall in about half of cases and a precision
    more often. With a confidence, new rows meet either with that probability, by the fitted model that was judged.
    """
    if not isinstance(goal, Mapping) and goal_of(goal) is None:
        got = f"got a {type(goal).__name__}"
        raise InvalidParameter(f"a goal must be Capacity(200), RecallAtLeast(0.9) or PrecisionAtLeast(0.5), {got}")
    rows = _rows(source, X, y, sample_weight)
    weights, numbers, p = rows.weights / rows.weights.mean(), rows.y, rows.p  # the unit of weights has no meaning
    groups = checks.check_clusters(clusters, weights.size)
    if rate is not None:
        rate = positive_number(rate, "rate")
    own: dict[str, Any] = {"rate": rate, "level": level}
    positive = None if isinstance(goal, Mapping) else rows.positive
    if isinstance(goal, Mapping):
        if rate is not None:
            raise InvalidParameter("rate must be left out: recalls of classes have no alarms a day.")
        own["weighting"], chosen = _least_class_weights(rows, goal)
        own["target"] = "recall of " + ", ".join(f"{label} {recall:g}" for label, recall in goal.items())
    else:
        if positive is None:
            instead = "give recalls by class, such as {label: 0.9}"
            raise InvalidParameter(f"{goal} is for two classes, and these rows have {p.shape[1]}: {instead}.")
        if goal.confidence is not None and hasattr(source, _OUT_OF_FOLD) and X is None:
            message = "a guarantee is for one fitted model, and out-of-fold rows were scored by other models"
            raise InvalidParameter(f"{message}: give X and y, rows that this model did not see")
        known = source.recognise(X) if goal.confidence is not None and hasattr(source, "recognise") else None
        if known is not None and known.status == "seen":
            raise InvalidInput(f"a guarantee needs rows that the model did not see, and of X {known.measured}.")
        ordered = RowsByProbability(numbers == positive, p[:, positive], weights, groups)
        goal = goal.for_rows(float(weights.sum()), rate)
        threshold, prices = goal.threshold(ordered), (math.nan, math.nan)
        if goal.confidence is None:  # a guarantee includes the sampling of its rows
            prices = percentile_interval(ordered.resampled_prices(goal.cuts, n_resamples, random_state), level)
            own["misses"] = goal.misses
        price = CostRatio(price_of_threshold(threshold))
        own |= {"weighting": price, "target": str(goal), "threshold": threshold, "confidence": goal.confidence}
        own["cost_ratio"] = Interval(price.value, *prices)
        chosen = np.where(ordered.alarms(threshold), positive, 1 - positive)

    def share(hits: Bools, among: Bools) -> Interval:
        return share_interval(hits[among], weights[among], None if groups is None else groups[among], level=level)

    figures = {}
    for k in range(p.shape[1]) if positive is None else [positive]:
        true, called, every = numbers == k, chosen == k, np.ones(len(p), dtype=np.bool_)
        found = {"recall": (called, true), "precision": (true, called), "alarm_rate": (called, every)}
        figures[rows.label(k)] = {name: share(*pair) for name, pair in found.items()}
    counts = count_decisions(numbers, chosen, weights, p.shape[1], positive=positive)
    return ChosenWeighting(counts=counts, figures=figures, **own)


def _rows(source: Estimator, X: Rows, y: ArrayLike | None, sample_weight: ArrayLike | None) -> CurveRows:
    """Rows that the model did not see, each class with some."""
    if isinstance(source, CurveRows):
        return source
    if isinstance(source, ExpenseCurve):
        if source.kind == "retrained":
            message = "this curve is of networks trained separately, whose decisions do not follow from one threshold"
            raise InvalidParameter(f"{message}: make one with ExpenseCurve.from_predictions")
        return source.rows
    if hasattr(source, _OUT_OF_FOLD) and X is None:
        rows = out_of_fold_rows(source, y, sample_weight)
    else:
        if not hasattr(source, "predict_proba") or not hasattr(source, "classes_") or X is None or y is None:
            _check_fitted(source)
            allowed = "an ExpenseCurve, a CRCENClassifierCV with its training labels y, or a fitted classifier with"
            given = f"predict_proba and rows X and y that it did not see, got a {type(source).__name__}"
            raise InvalidParameter(f"choose_weighting takes {allowed} {given}")
        labels, classes = np.asarray(as_numpy(y)), np.asarray(source.classes_)
        p, shape = check_probabilities(source.predict_proba(X), "predict_proba"), (len(labels), len(classes))
        if p.shape != shape:
            raise InvalidInput(f"predict_proba must give {shape[1]} columns for each of {shape[0]} rows, got {p.shape}")
        own = Labels(classes) if len(classes) > 2 else Labels.of_model(source, labels)
        positive, weights = None if own.positive is None else own.column, check_row_weights(sample_weight, len(p))
        rows = CurveRows(own.encode(labels), p, weights, positive, tuple(classes.tolist()))
    rows.totals()  # an error if a class has no rows
    return rows


def _least_class_weights(rows: CurveRows, recalls: Mapping[Hashable, float]) -> tuple[dict[Hashable, float], Index]:
    """Smallest class weights with a recall for each of some classes, and the decisions at these weights."""
    known = [rows.label(k) for k in range(rows.p.shape[1])]
    for label, recall in recalls.items():
        if label not in known:
            raise InvalidParameter(f"recalls must be of the classes {known}: got {label!r}.")
        if not isinstance(recall, int | float) or not 0.0 < recall <= 1.0:
            raise InvalidParameter(f"a recall must lie above 0 and be at most 1: got {recall!r} for {label}.")
    floors = {known.index(label): float(recall) for label, recall in recalls.items()}
    with np.errstate(divide="ignore"):
        log_p, log_weights = np.log(rows.p), np.zeros(len(known))
    own = {k: np.flatnonzero((rows.y == k) & (rows.weights > 0.0)) for k in floors}
    for _ in range(_SWEEPS):
        before = log_weights.copy()
        for k, floor in floors.items():
            others, weights = log_p[own[k]] + log_weights, rows.weights[own[k]]
            others[:, k] = -np.inf
            needed = others.max(axis=1) - log_p[own[k], k]
            order = np.argsort(needed)
            reached = np.cumsum(weights[order]) >= floor * weights.sum() * (1.0 - 1e-12)
            least = float(needed[order][np.argmax(reached)])
            # Slightly more, so that it is no tie.
            log_weights[k] = max(log_weights[k], least + 1e-9 * max(1.0, abs(least)))
        if not log_weights.max() <= _LARGEST:
            break
        if np.abs(log_weights - before).max() <= 1e-8:
            return dict(zip(known, np.exp(log_weights).tolist(), strict=True)), (log_p + log_weights).argmax(axis=1)
    message = "these recalls cannot be reached together on these rows with any weights"
    raise InvalidParameter(f"{message}: lower the recall of a class.")


def stratified_splits(cv: Splitter, X: Rows, y: ArrayLike, random_state: int) -> list[tuple[Index, Index]]:
    """Split rows: an int is that many stratified folds, shuffled; anything else is as in scikit-learn."""
    labels, refused = np.asarray(as_numpy(y)), f"cross-validation by {cv!r} cannot split these rows"
    if labels.ndim != 1:
        raise InvalidInput(f"y must hold a label for each row of X: got an array of shape {labels.shape}")
    rarest = int(np.unique(labels, return_counts=True)[1].min(initial=len(labels)))
    if isinstance(cv, int | np.integer) and rarest < cv:
        raise InvalidInput(f"{refused}: the rarer class has {rarest} rows, fewer than the {cv} folds")
    splits = split_rows(cv, X, labels, seed=random_state)
    if not splits:
        raise InvalidInput(f"{refused}: it has no split")
    return splits


def _check_fitted(model: Estimator) -> None:
    if isinstance(model, BaseEstimator) and hasattr(model, "cv"):  # a search or a committee
        check_is_fitted(model)


def out_of_fold_rows(model: Estimator, y: ArrayLike | None, sample_weight: ArrayLike | None = None) -> CurveRows:
    """The rows that a fitted search held out."""
    if not hasattr(model, _OUT_OF_FOLD):
        _check_fitted(model)
        message = f"from_cv needs a fitted CRCENClassifierCV or CommitteeClassifier, got a {type(model).__name__}"
        raise InvalidParameter(f"{message}: give probabilities of rows that it did not see to from_predictions")
    logits, price, labels = model.oof_decision_function_, model.weighting_, np.asarray(as_numpy(y))
    if labels.shape != logits.shape[:1]:
        raise InvalidInput(f"y must be the {len(logits)} labels the model was fitted on, got shape {labels.shape}")
    own, p = Labels(np.asarray(model.classes_)), model.oof_proba_
    if price.positive is not None:
        natural = (logits if price.positive == 1 else -logits) - price.logit_shift
        p = price.by_column(sigmoid(natural), 1.0 - sigmoid(natural))
    seen = np.flatnonzero(np.isfinite(p).all(axis=1))
    weights = np.ones(len(seen)) if sample_weight is None else np.asarray(sample_weight)[seen]
    rows = (own.encode(labels)[seen], p[seen], check_row_weights(weights, len(seen)))
    return CurveRows(*rows, price.positive, tuple(own.classes.tolist()))
