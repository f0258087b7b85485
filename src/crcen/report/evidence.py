"""Evidence: the predictions of a fitted model for labelled rows, and about their columns; checked and measured once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, logit

from crcen._support.lazy import pd
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.tables.cells import ColumnCells, as_text
from crcen.tables.columns import Column, EncodedTable, blocks_of
from crcen.tables.fingerprint import Recognition
from crcen.tables.leaks import Cells, Leak, Separation, cells_of, find_leaks, separations
from crcen.theory.checks import check_class_probabilities, check_probabilities, check_row_weights
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.groups import GroupComparison, compare_groups
from crcen.theory.key_equation import EquationTest, judge_equations
from crcen.theory.limits import fitted_model_noise
from crcen.theory.metrics import log_losses
from crcen.theory.price import Budget, Labels, Price, weighted_probability
from crcen.theory.residual_test import TrainingError, residual_effect
from crcen.theory.rows import Array, Bools, Estimator, Index, Rows, as_numpy, four_digits, short
from crcen.theory.selective import LabelSelection

Labelled = NDArray[np.generic]  # labels of any type

T = TypeVar("T")


@dataclass(frozen=True)
class EncodedRows:
    """Rows encoded once by a table classifier, which encodes each column separately."""

    X: Array  # (n, n_encoded), finite
    columns: Mapping[str, Column]  # those that the model uses, by name
    blocks: Mapping[str, slice]  # their encoded columns
    estimator: Estimator  # predicts from such rows
    table: EncodedTable  # what the model's ``encode`` returned

    @classmethod
    def of(cls, model: Estimator, X: Rows) -> "EncodedRows | None":
        """Encode rows by a table classifier; None for a model that takes rows as they are."""
        if not all(hasattr(model, name) for name in ("encode", "columns_", "estimator_")):
            return None
        columns = {column.name: column for column in model.columns_}
        table: EncodedTable = model.encode(X)
        blocks = dict(zip(columns, blocks_of(model.columns_), strict=True))
        return cls(np.asarray(table.X, dtype=np.float64), columns, blocks, model.estimator_, table)


@dataclass(frozen=True, eq=False)
class Evidence:
    """A model and its predictions for labelled rows: about the positive class of its labels, or about all K."""

    model: Estimator
    labels: Labels
    y: Index  # class numbers
    proba: Array  # natural probabilities, (n, K)
    weights: Array  # sample weights, 1 if none were given
    price: Price  # of training; equal weights with the counts of these rows if the model has none
    has_price: bool = True
    costs: CostMatrix | None = None  # of decisions without a positive class; by default those of training
    X: Rows = None  # as the model takes them; without them checks of columns are not made
    columns: tuple[str, ...] = ()
    encoded: EncodedRows | None = None
    is_weighted: bool = False
    is_out_of_fold: bool = False  # probabilities are by models that did not see these rows, but the model did
    known_rows: Recognition | None = None  # whether these are training rows, if it was determined already
    groups: tuple[GroupComparison, ...] = ()
    selection: LabelSelection | None = None  # how rows with a label differ from those without
    is_audited: bool = False  # labels were drawn with known probabilities, by which the rows are weighted
    recall_lows: Array | None = None  # of audited labels: lower ends of the intervals of recall, (K,)
    clusters: NDArray[np.generic] | None = None
    is_stratified: bool = False  # the class counts of these rows were fixed when they were drawn
    most_points: int = 2000  # of a curve of the explorer
    random_state: int = 0
    _made: dict[Callable[..., object], Any] = field(default_factory=dict, init=False, repr=False)

    def of(self, measure: "Callable[[Evidence], T]") -> T:
        """A measurement of this evidence, made at most once."""
        if measure not in self._made:
            self._made[measure] = measure(self)
        found: T = self._made[measure]
        return found

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def names(self) -> tuple[str, ...]:
        """Classes as text."""
        return tuple(str(label) for label in self.labels.classes.tolist())

    @property
    def has_positive(self) -> bool:
        """Whether the report is about one positive class."""
        return self.labels.positive is not None

    @property
    def evaluated(self) -> tuple[int, ...]:
        """Classes that the report is about: the positive one, or all."""
        return (self.labels.column,) if self.has_positive else tuple(range(self.labels.n_classes))

    @cached_property
    def counts(self) -> Index:
        """Rows of each class."""
        return np.bincount(self.y, minlength=self.labels.n_classes)

    @property
    def totals(self) -> Array:
        """Weight of the rows of each class."""
        return np.asarray(np.bincount(self.y, self.weights, self.labels.n_classes), dtype=np.float64)

    @property
    def trained_counts(self) -> Array:
        """Training rows of each class, in the class shares of the probabilities if these were moved."""
        return self.labels.by_class(self.price.n_pos, self.price.n_neg) if self.has_positive else self.price.counts

    @property
    def training_rows(self) -> Array:
        """Training rows of each class."""
        return np.asarray(getattr(self.model, "training_rows_", self.trained_counts))

    @property
    def target(self) -> Bools:
        """Whether rows are positive; with a positive class only."""
        return np.asarray(self.y == self.labels.column)

    @property
    def p(self) -> Array:
        """Natural probability of the positive class."""
        return np.asarray(self.proba[:, self.labels.column])

    @property
    def q(self) -> Array | None:
        """The same under the weighting; None for a model without one."""
        asked = self.model if self.encoded is None else self.encoded.estimator
        return weighted_probability(self.p, self.price) if hasattr(asked, "weighted_proba") else None

    @property
    def training_error(self) -> TrainingError | None:
        """The model uncertainty, if it was measured."""
        kept = kept_by(self.model, "training_error_")
        return kept if isinstance(kept, TrainingError) else None

    @cached_property
    def noise(self) -> float:
        """How much more residuals vary on new rows than under the true posterior, by the model uncertainty."""
        return self.equations.noise

    @cached_property
    def effect(self) -> float:
        """How much more they vary as rows of a cluster depend on each other."""
        return residual_effect(self.y, self.proba, self.weights, self.clusters)

    @cached_property
    def equations(self) -> EquationTest:
        """The key equations of the natural probabilities on these rows, tested with the model uncertainty."""
        error = None if self.is_out_of_fold and not self.has_positive else self.training_error
        noise = fitted_model_noise(self.weights, self.price, kept_by(self.model, "profile_")) if self.has_price else 1.0
        how: dict[str, Any] = {"noise": noise, "error": error, "is_stratified": self.is_stratified}
        rows = (self.y, self.proba, self.price, self.labels.classes.tolist(), self.weights)
        return judge_equations(*rows, clusters=self.clusters, **how).untested(self.no_test)

    @property
    def no_test(self) -> str:
        """Why the class shares of the probabilities cannot be tested; empty if they can."""
        is_estimated = getattr(self.model, "shares_are_", "") == "by the estimate"
        return "the class shares were estimated from these rows" if is_estimated else ""

    @cached_property
    def cost_matrix(self) -> CostMatrix:
        """Costs of decisions, in the order of the classes."""
        if self.costs is not None:
            return self.costs
        kept = getattr(self.model, "costs_", None)
        return (self.price.cost_matrix if kept is None else kept).for_classes(self.labels.classes.tolist())

    @cached_property
    def decision_price(self) -> Price:
        """The price of decisions: that of training, or without a positive class that of the costs."""
        return self.price if self.has_positive else self.price.replace(self.cost_matrix)

    @cached_property
    def recognition(self) -> Recognition | None:
        """Whether these are training rows; None if the model cannot determine it."""
        if self.known_rows is not None or self.is_out_of_fold or self.X is None:
            return self.known_rows
        if not hasattr(self.model, "recognise"):
            return None
        found: Recognition | None = self.model.recognise(
            self.X, self.labels.classes[self.y], None if self.encoded is None else self.encoded.table
        )
        return found

    def answers(self, rows: Index) -> Callable[[int, Index | int], Array]:
        """A function that predicts (n, K) for these rows with cells of a column, by number, taken from other rows."""
        encoded = self.encoded
        X: Rows = self.X if encoded is None else encoded.X
        asked = self.model if encoded is None else encoded.estimator
        some = X.iloc[rows] if hasattr(X, "iloc") else X[rows]

        def answer(number: int, source: Index | int) -> Array:
            moved = some.copy()
            if hasattr(moved, "isetitem"):
                moved.isetitem(number, X.iloc[np.broadcast_to(source, rows.shape), number].set_axis(some.index))
            else:
                block = number if encoded is None else encoded.blocks.get(self.columns[number], slice(0, 0))
                moved[:, block] = X[source, block]
            return np.asarray(asked.predict_proba(moved), dtype=np.float64)

        return answer


def log_odds(p: Array, edge: float) -> Array:
    """Log-odds of probabilities that are clipped to [edge, 1 − edge]."""
    return np.asarray(logit(np.clip(p, edge, 1.0 - edge)))


def share_log_loss(class_weights: ArrayLike) -> float:
    """Log loss of the class shares alone, given the weight of the rows of each class."""
    return float(entr(np.asarray(class_weights) / np.sum(class_weights)).sum())


def chosen_rows(evidence: Evidence, most: int, rng: np.random.Generator) -> tuple[Index, Array]:
    """Rows and their weights: all, or a sample of each class, weighted to all of its rows."""
    if evidence.n_rows <= most:
        return np.arange(evidence.n_rows), evidence.weights
    chosen, weights = [], []
    # Half by the size of a class, half equal for each class: rare ones are few, and often expensive.
    for k, size in enumerate(evidence.counts):
        own = np.flatnonzero(evidence.y == k)
        part = 0.5 * size / evidence.n_rows + 0.5 / len(evidence.counts)
        some = np.sort(rng.choice(own, min(int(size), max(1, int(most * part))), replace=False))
        if len(some):
            chosen.append(some)
            weights.append(evidence.weights[some] * (evidence.weights[own].sum() / evidence.weights[some].sum()))
    return np.concatenate(chosen), np.concatenate(weights)


def kept_by(model: Estimator, name: str) -> Any:
    """An attribute of a model, or else of the estimator that it has fitted inside; None if neither has it."""
    return getattr(model, name, getattr(getattr(model, "estimator_", None), name, None))


def has_several_classes(model: Estimator) -> bool:
    """Whether a model has no positive class: more than two classes, or costs of several actions."""
    classes = getattr(model, "classes_", ())
    return len(classes) > 2 or getattr(getattr(model, "weighting_", None), "positive", 1) is None


def labels_of(model: Estimator, y: Labelled, weights: Array | None = None) -> Labels:
    """The classes of a model, with the positive one if it has one."""
    return Labels(np.asarray(model.classes_)) if has_several_classes(model) else Labels.of_model(model, y, weights)


def class_probabilities(given: ArrayLike, labels: Labels, n_rows: int, name: str) -> Array:
    """Probabilities (n, K), given these, or (n,) those of the positive class."""
    if labels.positive is None or np.ndim(given) == 2:
        return check_class_probabilities(given, n_rows, labels.n_classes, name)
    p = check_probabilities(given, name)
    if p.shape != (n_rows,):
        raise InvalidInput(f"{name} must have one probability for each of {n_rows} rows, got shape {p.shape}")
    return labels.in_order(np.column_stack([1.0 - p, p]))


def evidence_of(model: Estimator, y: Index, proba: Array, weights: Array | None = None, **more: Any) -> Evidence:
    """Evidence from class numbers (n,) and natural probabilities (n, K) that are known already."""
    sizes, classes = np.ones(len(y)) if weights is None else weights, np.asarray(model.classes_)
    labels = labels_of(model, classes[y], sizes)
    price = getattr(model, "weighting_", None)
    has_price, counts = isinstance(price, Price), np.maximum(np.bincount(y, sizes, len(classes)), 1e-9)
    if not isinstance(price, Price):
        equal = Price(np.ones(len(classes)), counts)
        price = equal if labels.positive is None else labels.resolve(Budget(1.0), counts)
    return Evidence(model, labels, y, proba, sizes, price, has_price, is_weighted=weights is not None, **more)


def gather(
    model: Estimator,
    X: Rows,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    out_of_fold: ArrayLike | None = None,
    *,
    groups: object = None,
    costs: CostMatrix | None = None,
    **more: Any,
) -> Evidence:
    """Predict for labelled rows and check the predictions; parameters of `crcen.write_report` and `Evidence`."""
    kind, classes = type(model).__name__, np.asarray(getattr(model, "classes_", ()))
    if not hasattr(model, "predict_proba"):
        wrap = "wrap it in sklearn.calibration.CalibratedClassifierCV"
        raise InvalidParameter(f"a report needs a classifier with predict_proba, got {kind}: {wrap}.")
    if classes.ndim != 1 or len(classes) < 2:
        raise InvalidParameter(f"a report needs a fitted classifier of two or more classes, got {kind} with {classes}.")
    if costs is not None and not has_several_classes(model):
        raise InvalidParameter("costs must be left out: they are for several classes, and this model has a price.")
    X, columns = _rows(X, model)
    numbers = Labels(classes).encode(y)
    if numbers.shape != (len(X),):
        raise InvalidInput(f"y must have one label for each of the {len(X)} rows, got shape {numbers.shape}")
    if len(np.unique(numbers)) < 2:
        only = repr(classes.tolist()[numbers[0]]) if len(X) else "no label"
        raise InvalidInput(f"a report needs rows of several classes: y holds only {only}")
    weights = None if sample_weight is None else check_row_weights(sample_weight, len(numbers))
    encoded = EncodedRows.of(model, X)
    if out_of_fold is None:
        found = model.predict_proba(X) if encoded is None else encoded.estimator.predict_proba(encoded.X)
        proba = check_class_probabilities(found, len(numbers), len(classes), "predict_proba")
    else:
        labels = labels_of(model, classes[numbers], weights)
        proba = class_probabilities(out_of_fold, labels, len(numbers), "out_of_fold")
    if costs is not None:
        more["costs"] = costs.for_classes(classes.tolist())
    more |= {"X": X, "columns": columns, "encoded": encoded, "is_out_of_fold": out_of_fold is not None}
    evidence = evidence_of(model, numbers, proba, weights, **more)
    if not groups:
        return evidence
    if not isinstance(groups, Mapping):
        raise InvalidParameter(f"groups must be a dict of names and arrays: got {type(groups).__name__}.")
    return replace(evidence, groups=compared_groups(evidence, {str(name): values for name, values in groups.items()}))


def compared_groups(
    found: Evidence, columns: Mapping[str, ArrayLike], price: Price | None = None
) -> tuple[GroupComparison, ...]:
    """Compare groups at a price, by default that of training with the costs of decisions."""
    price = found.decision_price if price is None else price
    weights, labels = found.weights if found.is_weighted else None, found.labels.classes.tolist()
    rows = (columns, found.y, found.proba, price, found.price, weights)
    how: dict[str, Any] = {"noise": found.noise, "clusters": found.clusters, "no_test": found.no_test}
    return compare_groups(*rows, labels=labels, **how)


def _rows(X: Rows, model: Estimator) -> tuple[Rows, tuple[str, ...]]:
    """X with rows that can be taken by position, and a name for each column; an array's may be the model's own."""
    if not hasattr(X, "iloc") and hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return X, tuple(str(name) for name in X.columns)
    X = np.asarray(as_numpy(X))
    if X.ndim != 2:
        raise InvalidInput(f"X must be a table of rows and columns, got an array of shape {X.shape}")
    names, numbered = getattr(model, "feature_names_in_", ()), [f"column {i + 1}" for i in range(X.shape[1])]
    return X, tuple(map(str, names if len(names) == X.shape[1] else numbered))


_ALL = slice(None)


def cells_by_column(evidence: Evidence) -> dict[str, list[Cells]]:
    """The cells of each column as the model reads them; the encoded parts of texts and dates follow."""
    X, encoded = evidence.X, evidence.encoded
    if encoded is None:
        return {name: [_cells(_column(X, number))] for number, name in enumerate(evidence.columns)}
    found = {}
    for column in evidence.model.columns_:
        parts = [cells_of(column, ColumnCells(pd.Series(_column(X, evidence.columns.index(column.name)))))]
        if column.kind in ("text", "date"):
            parts += [Cells("number", part) for part in encoded.X[:, encoded.blocks[column.name]].T]
        found[column.name] = parts
    return found


def single_columns(evidence: Evidence) -> list[Separation]:
    """How well each single column separates the classes."""
    return separations(evidence.of(cells_by_column), evidence.y, evidence.weights, evidence.random_state)


def pure_cells(evidence: Evidence) -> list[Leak]:
    """Cells that occur for one class only."""
    cells = {name: parts[0] for name, parts in evidence.of(cells_by_column).items()}
    return find_leaks(cells, evidence.y, evidence.labels.classes.tolist())


def _column(X: Rows, number: int, rows: Index | slice = _ALL) -> Rows:
    """A pandas Series, or an array of any type."""
    return X.iloc[rows, number] if hasattr(X, "iloc") else X[rows, number]


def _cells(cells: Rows) -> Cells:
    """A column of any type as numbers or dates with NaN for what is missing, or as categories."""
    series = pd.Series(cells)
    if series.dtype.kind in "mM":
        ticks = np.asarray(series, dtype="datetime64[ns]" if series.dtype.kind == "M" else "timedelta64[ns]")
        return Cells("date", np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64).astype(np.float64)))
    text = series if series.dtype.kind in "biuf" else as_text(series)
    numbers = pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if (np.isnan(numbers) == text.isna().to_numpy()).all():
        return Cells("number", np.nan_to_num(numbers, nan=np.nan))
    codes, names = pd.factorize(text)
    return Cells("category", np.where(codes < 0, np.nan, codes), [str(name) for name in names])


# Rows that are shuffled, repeats of each column, and predictions of single rows for all columns of two classes.
MOST_ROWS, MOST_REPEATS, MOST_PREDICTIONS = 4000, 5, 40_000
MOST_PRECISE, _FEWEST_ROWS = 20, 150  # of more columns these are shuffled with more rows, after all with few


@dataclass(frozen=True)
class ColumnImportance:
    """Mean increase of the natural log loss when a column is shuffled, with its 95 % interval over the rows."""

    name: str
    increase: float
    low: float
    high: float


@dataclass(frozen=True)
class Importances:
    """All columns, the most important first."""

    columns: tuple[ColumnImportance, ...]
    n_rows: int  # that were shuffled
    n_repeats: int  # of each column
    log_loss: float  # of the model on these rows
    base_log_loss: float  # of the class shares
    n_precise: int = 0  # first columns for which these rows were shuffled; the others had fewer rows

    @property
    def shares(self) -> Array:
        """Share of each column in the increase over all columns, each shuffled separately; 0 if none increases."""
        rises = np.array([max(one.increase, 0.0) for one in self.columns])
        return rises / rises.sum() if rises.sum() > 0.0 else rises


def permutation_importance(evidence: Evidence) -> Importances:
    """Shuffle one column at a time and measure the increase of the log loss, with intervals over rows, not refits.

    Columns with the same information share their importance. Of many columns all are screened with fewer rows first.
    """
    names, budget = evidence.columns, 2 * MOST_PREDICTIONS // evidence.labels.n_classes
    every = range(len(names))
    if len(names) <= MOST_PRECISE:
        return _shuffled(evidence, every, budget)
    screened = _shuffled(evidence, every, budget // 2).columns
    found = _shuffled(evidence, [names.index(one.name) for one in screened[:MOST_PRECISE]], budget // 2)
    order = sorted((*found.columns, *screened[MOST_PRECISE:]), key=lambda one: -one.increase)
    return replace(found, columns=tuple(order))


def _shuffled(evidence: Evidence, columns: Sequence[int], budget: int) -> Importances:
    """Importance of these columns by about this number of predicted rows."""
    rng, n_columns = np.random.default_rng(evidence.random_state), max(len(columns), 1)
    rows, weights = chosen_rows(evidence, min(MOST_ROWS, max(budget // n_columns, _FEWEST_ROWS)), rng)
    answer, y = evidence.answers(rows), evidence.y[rows]
    # The model itself predicts shuffled rows, so it is compared with its own predictions.
    own = answer(0, rows) if evidence.is_out_of_fold and evidence.columns else evidence.proba[rows]
    before = log_losses(y, own)
    n_repeats = max(1, min(MOST_REPEATS, budget // (n_columns * len(rows))))
    orders = [rng.permutation(rows) for _ in range(n_repeats)]
    found, total = [], float(weights.sum())
    for number in columns:
        increase = np.mean([log_losses(y, answer(number, order)) - before for order in orders], axis=0)
        mean = float(weights @ increase) / total
        half = 1.96 * float(np.sqrt(np.sum(weights**2 * (increase - mean) ** 2))) / total
        found.append(ColumnImportance(evidence.columns[number], mean, mean - half, mean + half))
    found.sort(key=lambda one: -one.increase)
    loss, base = float(weights @ before) / total, share_log_loss(np.bincount(y, weights))
    return Importances(tuple(found), len(rows), n_repeats, loss, base, len(found))


# Columns drawn, the most important first; values of each; rows that they are tried on.
MOST_COLUMNS, MOST_VALUES, _EFFECT_ROWS = 12, 9, 150
_FEWEST_CELLS = 5  # rows with a category, so that the page does not name that of a single person
_EDGE, _LONGEST = 1e-9, 22  # of probabilities; characters of a value
# Values of a column: rows whose cells stand for them, their names, their places, and whether they have an order.
_Values = tuple[Index, list[str], Array, bool]


@dataclass(frozen=True)
class EffectPoint:
    """Mean change of the natural log-odds when rows take this value, with its 95 % interval over the rows."""

    label: str
    place: float  # on the axis: the number itself, days for dates, 0, 1, 2… for categories
    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class ColumnEffect:
    """The effect of one column."""

    name: str
    is_ordered: bool  # whether values have an order, to be joined by a line
    points: tuple[EffectPoint, ...]  # by value, or by effect if there is no order
    shape: str  # in words, such as "rises" or "falls and rises"


def column_effects(evidence: Evidence) -> tuple[ColumnEffect, ...]:
    """Partial dependence of the log-odds of the positive class on the most important columns, over rows."""
    rng = np.random.default_rng(evidence.random_state)
    rows, column = np.arange(evidence.n_rows), evidence.labels.column
    if evidence.n_rows > _EFFECT_ROWS:
        rows = np.sort(rng.choice(rows, _EFFECT_ROWS, replace=False, p=evidence.weights / evidence.weights.sum()))
    answer = evidence.answers(rows)
    own = log_odds(answer(0, rows)[:, column], _EDGE)
    found = []
    for one in evidence.of(permutation_importance).columns[:MOST_COLUMNS]:
        number = evidence.columns.index(one.name)
        values = _values(evidence, number, one.name) if one.increase > 0.0 else None
        if values is None or len(values[0]) < 2:
            continue
        *of_values, is_ordered = values
        points = []
        for row, label, place in zip(*of_values, strict=True):
            change = log_odds(answer(number, int(row))[:, column], _EDGE) - own
            mean, half = float(change.mean()), 1.96 * float(change.std(ddof=1)) / np.sqrt(len(rows))
            points.append(EffectPoint(label, float(place), mean, mean - half, mean + half))
        if not is_ordered:
            points.sort(key=lambda point: -point.effect)
            points = [replace(point, place=float(i)) for i, point in enumerate(points)]
        found.append(ColumnEffect(one.name, is_ordered, tuple(points), _shape(points, is_ordered)))
    return tuple(found)


def _values(evidence: Evidence, number: int, name: str) -> _Values | None:
    """Values of a column: quantiles if they are ordered, otherwise the most frequent ones; None for texts."""
    encoded = evidence.encoded
    if encoded is None:
        try:
            return _quantiles(evidence, np.asarray(_column(evidence.X, number)).astype(np.float64), number)
        except (TypeError, ValueError):
            return _commonest(evidence, number)
    if name not in encoded.columns:
        return None
    column = encoded.columns[name]
    part = encoded.X[:, encoded.blocks[name]]
    if column.kind == "number" or (column.kind == "date" and part.shape[1] > 1):
        is_missing = part[:, -1] > 0 if column.has_missing else np.zeros(len(part), dtype=bool)
        return _quantiles(evidence, np.where(is_missing, np.nan, part[:, 0]), number, is_date=column.kind == "date")
    return None if column.kind in ("text", "date") else _commonest(evidence, number)


def _quantiles(evidence: Evidence, values: Array, number: int, is_date: bool = False) -> _Values | None:
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return None
    order = known[np.argsort(values[known], kind="stable")]
    ranks = np.linspace(0.02, 0.98, MOST_VALUES) * (len(order) - 1)
    _, first = np.unique(values[order[ranks.round().astype(int)]], return_index=True)
    rows = order[ranks.round().astype(int)][first]
    if is_date:
        labels = [str(cell)[:10] for cell in np.asarray(_column(evidence.X, number), dtype=object)[rows]]
    else:
        labels = [*map(four_digits, values[rows])]
    return rows, labels, values[rows], True


def _commonest(evidence: Evidence, number: int) -> _Values | None:
    cells = np.asarray(_column(evidence.X, number), dtype=object)
    texts = np.array(["missing" if cell is None or cell != cell else str(cell) for cell in cells], dtype=object)
    names, first, counts = np.unique(texts.astype(str), return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    order = order[counts[order] >= _FEWEST_CELLS]
    return first[order], [short(name, _LONGEST) for name in names[order]], np.arange(float(len(order))), False


def _shape(points: list[EffectPoint], is_ordered: bool) -> str:
    """The course of the effect; turns that are no larger than the intervals are left out."""
    effects = np.array([point.effect for point in points])
    noise = max(float(np.median([point.high - point.low for point in points])), 0.05)
    if np.ptp(effects) <= noise:
        return "is flat"
    if not is_ordered:
        return "differs by value"
    turns: list[int] = []
    last = effects[0]
    for value in effects[1:]:
        if abs(value - last) > noise:
            direction = 1 if value > last else -1
            if not turns or turns[-1] != direction:
                turns.append(direction)
            last = value
        elif turns and (value - last) * turns[-1] > 0:
            last = value
    words = ["rises" if turn > 0 else "falls" for turn in turns or [effects[-1] - effects[0]]]
    return " and ".join(words) if len(words) <= 3 else "goes up and down"
