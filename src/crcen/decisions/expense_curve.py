"""Expense curves along a path of weights, the price that meets a goal, and training compared with a moved threshold."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from crcen._support.extras import renamed
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.search.weight_path import path_logits
from crcen.theory.checks import check_binary_rows, check_clusters, check_probabilities, check_row_weights, class_totals
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.expense import ExpenseStep, ExpenseTable, expense_table
from crcen.theory.goals import ThresholdGoal, goal_of
from crcen.theory.intervals import Interval, share_interval
from crcen.theory.key_equation import KeyEquation, key_equation, key_equation_of_logits
from crcen.theory.metrics import (
    ConfusionCounts,
    DecisionCounts,
    bootstrap_sums,
    confusion_counts,
    decision_counts,
    percentile_interval,
)
from crcen.theory.price import Alpha, CostRatio, Labels, Price, WeightingLike, positive_number, resolve, sigmoid
from crcen.theory.rows import Array, Axes, Bools, DataFrame, Estimator, Index, Rows, ShownInOneLine, Splitter, as_numpy
from crcen.theory.thresholds import RowsByProbability, price_of_threshold

if TYPE_CHECKING:
    from crcen.report.displays import ExpenseCurveDisplay


KINDS = {"threshold": "one model, its threshold moved", "retrained": "a network trained for each weight"}
_OUT_OF_FOLD = "oof_decision_function_"  # predictions that a search and a committee keep of their training rows
_SWEEPS = 1000
_LARGEST = 60.0  # of log weights: beyond that the other classes are never decided
_DEFAULT_PATH = (Alpha(0.25), Alpha(0.5), Alpha(1.0), Alpha(2.0), Alpha(4.0))


@dataclass(frozen=True, eq=False)
class CurveRows:
    """Labels (True is positive), natural posteriors and sample weights of the rows behind a curve."""

    target: Bools
    p: Array
    weights: Array


@dataclass(frozen=True)
class CurveStep(ExpenseStep):
    """One step of an expense curve with its interval."""

    low: float  # bootstrap interval of the expense; inf where resamples gained no catch, NaN where there is none
    high: float
    kind: str  # of the curve: "threshold" or "retrained"

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the whole interval lies outside the bracket."""
        return self.low > self.bracket_high or self.high < self.bracket_low

    @property
    def reason(self) -> str:
        """The verdict as a sentence: what it means on this curve, or why there is none."""
        if self.verdict == "undefined":
            same = self.kind == "threshold" and self.delta_fp == 0.0 and self.catches == 0.0
            return "no row lies between the two thresholds" if same else super().reason
        if self.verdict == "inside":
            return ""
        if math.isnan(self.low):
            return "no interval, so chance cannot be excluded"
        if not self.is_beyond_noise:
            return "its interval reaches the bracket: may be chance"
        wrong = f"probabilities between these prices are too {'high' if self.verdict == 'above' else 'low'}"
        return wrong if self.kind == "threshold" else f"{wrong}, or the ranking changed from one network to the next"


@dataclass(frozen=True, eq=False, repr=False)
class ExpenseCurve(ShownInOneLine):
    """Counts along a path of weights, the expense of every step, its bracket, its interval and a verdict.

    Make one with `from_predictions` (one model's threshold moves: a step outside its bracket is about the
    probabilities), `from_estimator` (a network trained for each weight: it may also be a changed ranking) or `from_cv`.
    Intervals are percentile bootstraps over the rows judged, without the chance of training.
    """

    kind: str  # "threshold" or "retrained"
    weightings: tuple[Price, ...]  # in increasing order of price
    counts: ConfusionCounts  # one entry for each weighting
    intervals: Array  # (steps, 2), bootstrap intervals of the expense
    level: float
    key_equations: tuple[KeyEquation, ...] = ()  # at each weighting
    rows: CurveRows | None = None  # where one model's threshold moved
    source: str = ""  # which rows the counts are of

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        p: ArrayLike,
        weightings: Sequence[WeightingLike] | None = None,
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
            0/1 or bool, 1 is positive; rows the model did not see, at the natural class ratio.
        p : array of shape (n,)
            Natural posteriors of the positive class, of any model.
        weightings : sequence, optional
            Anything `crcen.resolve` takes, in increasing order of price; by default α = ¼, ½, 1, 2, 4 on these rows.
        sample_weight : array of shape (n,), optional
            Finite and not negative.
        level, n_resamples, random_state
            Of the bootstrap.
        """
        target, chance = check_binary_rows(y, p, "p")
        rows = CurveRows(target, chance, check_row_weights(sample_weight, target.size))
        totals = class_totals(target, rows.weights)
        path = tuple(resolve(weighting, *totals) for weighting in _path(weightings))
        alarms = np.array([weighting.decide(chance) for weighting in path])
        found = _counts_and_intervals(path, alarms, rows, level, n_resamples, random_state)
        equations = tuple(key_equation(target, w.weighted(chance), w, rows.weights) for w in path)
        return cls("threshold", path, *found, level, equations, rows, "the rows given")

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
        path = path_logits(estimator, X, y, _path(weightings), splits, sample_weight)
        equations = tuple(
            key_equation_of_logits(path.target, logits, weighting, path.weights)
            for logits, weighting in zip(path.logits, path.weightings, strict=True)
        )
        rows = CurveRows(path.target, path.logits, path.weights)
        found = _counts_and_intervals(path.weightings, path.logits > 0, rows, level, n_resamples, random_state)
        source = f"out-of-fold rows, {len(splits)} folds" if len(splits) > 1 else "test rows"
        return cls("retrained", path.weightings, *found, level, equations, None, source)

    @classmethod
    def from_cv(
        cls,
        model: Estimator,
        y: ArrayLike,
        weightings: Sequence[WeightingLike] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        **bootstrap: Any,
    ) -> "ExpenseCurve":
        """Move the threshold of a cross-validated search on its out-of-fold rows.

        Parameters
        ----------
        model : CRCENClassifierCV or CommitteeClassifier
            Fitted.
        y : array of shape (n,)
            The labels it was fitted on.
        weightings, sample_weight, **bootstrap
            See `from_predictions`.
        """
        target, p, seen = out_of_fold_posterior(model, y)
        weights = None if sample_weight is None else np.asarray(sample_weight)[seen]
        path = [model.weighting_.replace(weighting) for weighting in _path(weightings)]
        curve = cls.from_predictions(target, p, path, sample_weight=weights, **bootstrap)
        return replace(curve, source="out-of-fold rows of the search")

    @property
    def description(self) -> str:
        """The kind of the curve in words."""
        return KINDS[self.kind]

    @property
    def table(self) -> ExpenseTable:
        """The steps without intervals."""
        return expense_table(self.weightings, self.counts.fn, self.counts.fp)

    @property
    def steps(self) -> tuple[CurveStep, ...]:
        """The steps with intervals and verdicts."""
        return tuple(
            CurveStep(**vars(step), low=float(low), high=float(high), kind=self.kind)
            for step, (low, high) in zip(self.table, self.intervals, strict=True)
        )

    def frame(self) -> DataFrame:
        """A data frame with a row for each weighting, and in it the step that ends there; the first row has none."""
        import pandas

        steps, names = [None, *self.steps], ("expense", "bracket_low", "bracket_high")
        prices = ("lam", "alpha", "cost_ratio", "threshold")
        columns = {name: [getattr(weighting, name) for weighting in self.weightings] for name in prices}
        columns |= {name: getattr(self.counts, name) for name in ("tp", "fp", "fn", "tn", "recall", "precision")}
        columns |= {name: [getattr(step, name, math.nan) for step in steps] for name in names}
        columns |= {f"interval_{end}": [getattr(step, end, math.nan) for step in steps] for end in ("low", "high")}
        for name, absent in (("verdict", ""), ("is_beyond_noise", False), ("reason", "")):
            columns[name] = [getattr(step, name, absent) for step in steps]
        return pandas.DataFrame({**columns, "curve": self.kind})

    def plot(self, ax: Axes = None) -> "ExpenseCurveDisplay":
        """Draw the steps on their brackets, on axes given or on a new figure."""
        from crcen.report.displays import ExpenseCurveDisplay

        return ExpenseCurveDisplay(self).plot(ax=ax)

    def __str__(self) -> str:
        head = f"{'cost ratio':>18}  {'recall':>14}  {'precision':>14}  {'expense':>8}  "
        lines = [
            f"Expense: {self.description} ({self.source})",
            f"{head}{f'{100 * self.level:g} % interval':>17}  verdict",
        ]
        recall, precision = np.asarray(self.counts.recall), np.asarray(self.counts.precision)
        for i, step in enumerate(self.steps):
            prices = f"{step.bracket_low:.4g} -> {step.bracket_high:.4g}"
            found = f"{recall[i]:.3f} -> {recall[i + 1]:.3f}"
            right = f"{precision[i]:.3f} -> {precision[i + 1]:.3f}"
            interval = "" if math.isnan(step.low) else f"[{step.low:.4g}, {step.high:.4g}]"
            verdict = step.verdict + (f": {step.reason}" if step.reason else "")
            paid = "–" if math.isnan(step.expense) else f"{step.expense:.4g}"
            lines.append(f"{prices:>18}  {found:>14}  {right:>14}  {paid:>8}  {interval:>17}  {verdict}")
        return "\n".join(lines + self.table.average_line)


def _path(weightings: Sequence[WeightingLike] | None) -> Sequence[WeightingLike]:
    return _DEFAULT_PATH if weightings is None else weightings


def _counts_and_intervals(
    path: Sequence[Price], alarms: Bools, rows: CurveRows, level: float, n_resamples: int, random_state: int
) -> tuple[ConfusionCounts, Array]:
    """Counts, and bootstrap intervals of the expense of each step (steps, 2), from decisions (weightings, n)."""
    counts = confusion_counts(rows.target, alarms, rows.weights)
    expense_table(path, counts.fn, counts.fp)  # refuses a path that does not rise
    each = np.vstack([np.where(alarms & among, rows.weights, 0.0) for among in (rows.target, ~rows.target)])
    sums = bootstrap_sums(each.T, n_resamples, np.random.default_rng(random_state))
    catches, added = (np.diff(own) for own in np.split(sums, 2, axis=1))
    # No catch for more alarms is an unbounded price; neither more catches nor more alarms is no evidence.
    prices = np.where(added > 0.0, np.inf, np.nan)
    np.divide(added, catches, out=prices, where=catches > 0.0)
    return counts, np.array([percentile_interval(own, level) for own in prices.T])


@dataclass(frozen=True, repr=False)
class EquivalenceReport(ShownInOneLine):
    """Two ways to decide at one price, on rows that neither was trained on; costs in false alarms for 1,000 rows."""

    weighting: Price
    n_rows: int
    n_pos: int
    share_differing: float  # share of rows that the two decide differently
    share_differing_by_seed: float  # the same for two seeds of the plain network; NaN without a seed
    cost_trained: float
    cost_cut: float
    difference: float  # trained minus cut: below 0 training with the weight was cheaper
    difference_interval: tuple[float, float]  # bootstrap over rows; it does not hold the chance of training
    level: float

    @property
    def verdict(self) -> str:
        """The result by the interval: "trained cheaper", "cut cheaper", or "no difference shown"."""
        low, high = self.difference_interval
        if high < 0.0:
            return "trained cheaper"
        return "cut cheaper" if low > 0.0 else "no difference shown"

    def __str__(self) -> str:
        (low, high), price, seed = self.difference_interval, self.weighting, self.share_differing_by_seed
        by_seed = "" if np.isnan(seed) else f" (two seeds of the plain network: {100 * seed:.2f} %)"
        return (
            f"Trained at λ = {price.lam:.4g} against a plain network cut at {price.threshold:.4g} (a miss is worth "
            f"{price.cost_ratio:.4g} false alarms)\n"
            f"  rows judged          {self.n_rows}, of them {self.n_pos} positive, none of them trained on\n"
            f"  decided differently  {100 * self.share_differing:.2f} % of rows{by_seed}\n"
            f"  cost for 1,000 rows  trained {self.cost_trained:.4g}, cut {self.cost_cut:.4g}\n"
            f"  difference           {self.difference:+.4g}, {100 * self.level:g} % interval "
            f"[{low:+.4g}, {high:+.4g}]: {self.verdict}"
        )


def equivalence_report(
    estimator: Estimator,
    X: Rows,
    y: ArrayLike,
    weighting: WeightingLike = "balanced",
    *,
    cv: Splitter = 4,
    sample_weight: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int = 0,
) -> EquivalenceReport:
    """Train at a weight and without one, decide both at that price, and compare.

    Networks are trained from copies of the estimator, both of every fold in one stack. A plain network of another seed
    shows how much the seed alone changes.

    Parameters
    ----------
    estimator, X, y, sample_weight, cv, level, n_resamples, random_state
        See `ExpenseCurve.from_estimator`.
    weighting : Lam, Alpha, CostRatio, Budget, float or "balanced", default="balanced"
        The price; λ = ½ is the plain network itself and is refused.
    """
    splits = stratified_splits(cv, X, y, random_state)
    path = path_logits(estimator, X, y, [None, weighting], splits, sample_weight)
    plain, price = path.weightings
    if np.isclose(price.lam, plain.lam, rtol=0.0, atol=1e-12):
        raise InvalidParameter("at λ = ½ training with the weight is plain training: give another weighting")
    trained = path.logits[1] > 0.0
    cut = path.logits[0] + price.logit_shift > 0.0
    costs, weights = CostMatrix.binary(fn=price.cost_ratio), path.weights
    own = [weights * costs.realised(path.target, alarms) for alarms in (trained, cut)]
    sums = bootstrap_sums(np.column_stack([own[0] - own[1], weights]), n_resamples, np.random.default_rng(random_state))
    low, high = percentile_interval(1000.0 * sums[:, 0] / sums[:, 1], level)
    total = float(weights.sum())
    cost_trained, cost_cut = (1000.0 * float(cost.sum()) / total for cost in own)
    by_seed = np.nan
    if "random_state" in estimator.get_params(deep=False):
        seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
        other = path_logits(clone(estimator).set_params(random_state=seed), X, y, [None], splits, sample_weight)
        by_seed = float(weights @ ((other.logits[0] + price.logit_shift > 0.0) != cut)) / total
    return EquivalenceReport(
        weighting=price,
        n_rows=len(trained),
        n_pos=int(path.target.sum()),
        share_differing=float(weights @ (trained != cut)) / total,
        share_differing_by_seed=by_seed,
        cost_trained=cost_trained,
        cost_cut=cost_cut,
        difference=cost_trained - cost_cut,
        difference_interval=(low, high),
        level=level,
    )


@dataclass(frozen=True, repr=False)
class ChosenWeighting(ShownInOneLine):
    """The price that meets a goal, and the expected results."""

    weighting: CostRatio  # to train at, or to give to `crcen.decide` with the natural posterior
    target: str  # the goal
    threshold: float
    counts: ConfusionCounts
    recall: Interval  # Wilson's intervals at this threshold
    precision: Interval
    alarm_rate: Interval  # share of rows with an alarm
    # Bootstrap interval: 0 for a resample that cannot meet the goal, inf for one that needs an alarm on probability 0;
    # NaN for a guarantee.
    cost_ratio: Interval
    level: float
    rate: float | None = None  # rows a day
    confidence: float | None = None  # of a guarantee
    misses: str = ""  # how often new rows miss the goal

    @property
    def average_price(self) -> float:
        """False alarms per catch on the rows given; the price of the last catch is ``weighting``."""
        return float(self.counts.fp / self.counts.tp) if self.counts.tp else math.nan

    def to_dict(self) -> dict[str, object]:
        """Plain values; None where a number does not exist."""
        figures = {name: getattr(self, name).to_dict() for name in ("recall", "precision", "alarm_rate", "cost_ratio")}
        stated = {"goal": self.target, "confidence": self.confidence, "misses": self.misses or None}
        return {**stated, "threshold": self.threshold, **figures}

    def __str__(self) -> str:
        def line(name: str, found: Interval) -> str:
            between = "" if math.isnan(found.low) else f"   [{found.low:.4g}, {found.high:.4g}]"
            return f"  {name:<22}{found.value:>9.4g}{between}"

        brackets = f"  in brackets: {100 * self.level:g} % intervals"
        notes = [f"{brackets}; those of the last catch are of the choice itself", f"  {self.misses}".rstrip()]
        if self.confidence is not None:
            notes = [brackets, "  guaranteed for this very model on new rows like these; a refit voids it"]
        lines = [
            f"{self.target}: a price of {self.weighting.value:.4g}, an alarm where p > {self.threshold:.4g}",
            line("recall", self.recall),
            line("precision", self.precision),
            line("share of rows alarmed", self.alarm_rate),
            "" if self.rate is None else line("alarms a day", self.alarm_rate.scaled(self.rate)),
            line("price of last catch", self.cost_ratio),
            f"  {'price of average catch':<22}{self.average_price:>9.4g}",
        ]
        return "\n".join(filter(None, lines + notes))


@dataclass(frozen=True, eq=False)
class ChosenClassWeights:
    """The smallest class weights that reach the recalls of a goal."""

    weighting: dict[Hashable, float]  # a class without a goal has weight 1
    recalls: dict[Hashable, float]
    counts: DecisionCounts  # decisions at these weights, in the order of the model's classes

    def __str__(self) -> str:
        weights = ", ".join(f"{label}: {weight:.6g}" for label, weight in self.weighting.items())
        asked = ", ".join(f"{label} {recall:g}" for label, recall in self.recalls.items())
        return "\n".join([f"recall of {asked}: weights {weights}", self.counts.table_of(list(self.weighting))])


@renamed(wish="goal")
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
) -> ChosenWeighting | ChosenClassWeights:
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
    The threshold is chosen and judged on the same rows: on new rows the goal is missed about as often as met. With a
    confidence, new rows meet a recall or precision with that probability, by the very model that was judged.
    """
    if isinstance(goal, Mapping):
        return _choose_class_weights(source, goal, X, y, sample_weight)
    if goal_of(goal) is None:
        raise InvalidParameter(
            f"a goal must be Capacity(200), RecallAtLeast(0.9) or PrecisionAtLeast(0.5), got a {type(goal).__name__}"
        )
    rows = _rows(source, X, y, sample_weight)
    if goal.confidence is not None and hasattr(source, _OUT_OF_FOLD) and X is None:
        raise InvalidParameter(
            "a guarantee is for one fitted model, and out-of-fold rows were held out from others: give X and y, rows "
            "that this model did not see"
        )
    target, p, weights = rows.target, rows.p, rows.weights / rows.weights.mean()  # the unit of weights has no meaning
    groups = check_clusters(clusters, target.size)
    if rate is not None:
        rate = positive_number(rate, "rate")
    ordered, goal = RowsByProbability(target, p, weights, groups), goal.for_rows(float(weights.sum()), rate)
    threshold = goal.threshold(ordered)
    alarms = ordered.alarms(threshold)
    price, prices = CostRatio(price_of_threshold(threshold)), (math.nan, math.nan)
    if goal.confidence is None:  # a guarantee includes the sampling of its rows
        prices = percentile_interval(ordered.resampled_prices(goal.cuts, n_resamples, random_state), level)

    def share(hits: Bools, among: Bools) -> Interval:
        own = None if groups is None else groups[among]
        return share_interval(hits[among], weights[among], own, level=level)

    return ChosenWeighting(
        weighting=price,
        target=str(goal),
        threshold=threshold,
        counts=confusion_counts(target, alarms, weights),
        recall=share(alarms, target),
        precision=share(target, alarms),
        alarm_rate=share(alarms, np.ones_like(alarms)),
        cost_ratio=Interval(price.value, *prices),
        level=level,
        rate=rate,
        confidence=goal.confidence,
        misses=goal.misses if goal.confidence is None else "",
    )


def _rows(source: Estimator, X: Rows, y: ArrayLike | None, sample_weight: ArrayLike | None) -> CurveRows:
    """Labels and natural posteriors of rows the model did not see."""
    if isinstance(source, CurveRows):
        return source
    if isinstance(source, ExpenseCurve):
        if source.rows is None:
            raise InvalidParameter(
                "this curve is of networks trained separately, whose decisions are not nested, so no threshold can be "
                "read off it: make one with ExpenseCurve.from_predictions"
            )
        return source.rows
    if hasattr(source, _OUT_OF_FOLD) and X is None:
        target, p, seen = out_of_fold_posterior(source, y)
        weights: ArrayLike | None = None if sample_weight is None else np.asarray(sample_weight)[seen]
    else:
        labels, proba = _predictions(source, X, y)
        own = Labels.of_model(source, labels)
        p = check_probabilities(proba[:, own.column], "predict_proba")
        target, weights = own.encode(labels) == own.column, sample_weight
    checked = check_row_weights(weights, target.size)
    class_totals(target, checked)
    return CurveRows(target, p, checked)


def _predictions(source: Estimator, X: Rows, y: ArrayLike | None) -> tuple[NDArray[np.generic], Array]:
    """The labels of the rows that a fitted classifier is judged on, and its probabilities of all classes."""
    if not hasattr(source, "predict_proba") or not hasattr(source, "classes_") or X is None or y is None:
        _check_fitted(source)
        raise InvalidParameter(
            f"choose_weighting takes an ExpenseCurve, a CRCENClassifierCV with its training labels y, or a fitted "
            f"classifier with predict_proba and rows X and y that it did not see, got a {type(source).__name__}"
        )
    labels, p = np.asarray(as_numpy(y)), np.asarray(source.predict_proba(X), dtype=np.float64)
    shape = (len(labels), len(source.classes_))
    if p.shape != shape:
        raise InvalidInput(f"predict_proba must give {shape[1]} columns for each of {shape[0]} rows, got {p.shape}")
    return labels, p


def _choose_class_weights(
    source: Estimator, recalls: Mapping[Hashable, float], X: Rows, y: ArrayLike | None, sample_weight: ArrayLike | None
) -> ChosenClassWeights:
    """Smallest class weights with a recall for each of some classes."""
    labels, p = _predictions(source, X, y)
    classes = Labels(np.asarray(source.classes_))
    known = classes.classes.tolist()
    for label, recall in recalls.items():
        if label not in known:
            raise InvalidParameter(f"recalls must be of the classes {known}: got {label!r}.")
        if not isinstance(recall, int | float) or not 0.0 < recall <= 1.0:
            raise InvalidParameter(f"a recall must lie above 0 and be at most 1: got {recall!r} for {label}.")
    target = classes.encode(labels)
    weights = check_row_weights(sample_weight, target.size)
    classes.counts(target, weights)
    floors = {known.index(label): float(recall) for label, recall in recalls.items()}
    log_weights = _least_weights(p, target, weights, floors)
    if log_weights is None:
        raise InvalidParameter(
            "these recalls cannot be reached together on these rows with any weights: lower the recall of a class."
        )
    with np.errstate(divide="ignore"):
        chosen = (np.log(p) + log_weights).argmax(axis=1)
    weighting = dict(zip(known, np.exp(log_weights).tolist(), strict=True))
    return ChosenClassWeights(weighting, dict(recalls), decision_counts(target, chosen, classes.n_classes, weights))


def _least_weights(p: Array, target: Index, weights: Array, floors: dict[int, float]) -> Array | None:
    """Logarithms of the smallest weights from 1 on with these recalls; None if there are none."""
    log_weights = np.zeros(p.shape[1])
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    own = {k: np.flatnonzero((target == k) & (weights > 0.0)) for k in floors}
    for _ in range(_SWEEPS):
        before = log_weights.copy()
        for k, floor in floors.items():
            others = (log_p[own[k]] + log_weights).copy()
            others[:, k] = -np.inf
            needed = others.max(axis=1) - log_p[own[k], k]
            order = np.argsort(needed)
            reached = np.cumsum(weights[own[k]][order]) >= floor * weights[own[k]].sum() * (1.0 - 1e-12)
            least = float(needed[order][np.argmax(reached)])
            # Slightly more, so that it is no tie.
            log_weights[k] = max(log_weights[k], least + 1e-9 * max(1.0, abs(least)))
            if not log_weights[k] <= _LARGEST:
                return None
        if np.abs(log_weights - before).max() <= 1e-8:
            return log_weights
    return None


def stratified_splits(cv: Splitter, X: Rows, y: ArrayLike, random_state: int) -> list[tuple[Index, Index]]:
    """Split rows: an int is that many stratified folds, shuffled; anything else is as in scikit-learn."""
    try:
        if isinstance(cv, int | np.integer):
            rarest = int(np.unique(np.asarray(as_numpy(y)), return_counts=True)[1].min())
            if rarest < cv:
                raise ValueError(f"the rarer class has {rarest} rows, fewer than the {cv} folds")
            splitter: Splitter = StratifiedKFold(int(cv), shuffle=True, random_state=random_state)
        else:
            splitter = check_cv(cv, y, classifier=True)
        splits = list(splitter.split(X, y))
        if not splits:
            raise ValueError("it has no split")
        return splits
    except ValueError as error:
        raise InvalidInput(f"cross-validation by {cv!r} cannot split these rows: {error}") from error


def _check_fitted(model: Estimator) -> None:
    if isinstance(model, BaseEstimator) and hasattr(model, "cv"):  # a search or a committee
        check_is_fitted(model)


def out_of_fold_posterior(model: Estimator, y: ArrayLike | None) -> tuple[Bools, Array, Index]:
    """Labels (True is positive), natural posteriors and numbers of the rows that a fitted search held out."""
    if not hasattr(model, _OUT_OF_FOLD):
        _check_fitted(model)
        raise InvalidParameter(
            f"from_cv needs a fitted CRCENClassifierCV or CommitteeClassifier, got a {type(model).__name__}: for "
            "another model give its probabilities on rows it did not see to from_predictions"
        )
    logits, own, labels = model.oof_decision_function_, Labels.of_model(model), np.asarray(as_numpy(y))
    if labels.shape != logits.shape:
        raise InvalidInput(f"y must be the {len(logits)} labels the model was fitted on, got shape {labels.shape}")
    seen = np.flatnonzero(np.isfinite(logits))
    natural = own.signed(logits[seen]) - model.weighting_.logit_shift
    return own.encode(labels)[seen] == own.column, sigmoid(natural), seen
