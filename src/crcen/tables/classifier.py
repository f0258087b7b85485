"""TableClassifier: a network for tables of numbers, categories, dates, texts and gaps."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from inspect import signature
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from crcen._support.lazy import pd
from crcen._support.text import closest, listed, missing_columns, plural
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.fitted import FittedEnsemble, transactional_fit
from crcen.models.reasons import Reasons, explain_rows, spelled
from crcen.models.validation import check_classes
from crcen.tables.cells import TableCells
from crcen.tables.columns import Column, EncodedTable, NumberColumn, blocks_of, encode_rows, encode_table, learn_columns
from crcen.tables.fingerprint import Recognition, fingerprint_of, row_hashes
from crcen.tables.frames import as_cells, as_dicts
from crcen.tables.profile import held_out_sums, profile_of, training_scores, typical_table
from crcen.theory.checks import check_row_weights
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.goals import goal_of
from crcen.theory.key_equation import key_equation
from crcen.theory.price import Labels, Price, is_price_of_two
from crcen.theory.rows import Array, DataFrame, Estimator, TableLike, as_numpy, short

Decisions: TypeAlias = NDArray[Any]  # labels, or actions
PerRow: TypeAlias = ArrayLike | None

# Settings that multiply the odds a classifier learns; 1 and None do not.
_WEIGHTS = ("class_weight", "scale_pos_weight", "is_unbalance", "auto_class_weights", "class_weights")


@dataclass(eq=False, repr=False)
class TableClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for mixed tables: detects the kind of each column, encodes it, and fits networks.

    Numbers and truth values are used unchanged. Dates become days since 1970, month, day, weekday and hour. Columns
    of at most 255 strings become zeros and ones; other strings become components of their character n-grams. Values and
    n-grams of fewer than five rows have no column of their own. Numbers and dates are clipped half a training range
    beyond either end. A missing value is filled; if training rows had missing values in that column, an extra column
    states which are missing. ``dropped_`` has columns that are constant, empty, nested, identify rows or come from
    `crcen predict`. Cells of new rows that cannot be read are missing values, with a warning.

    Parameters
    ----------
    weighting : as in CRCENClassifier, default=None
        What a miss is worth; ``None`` uses the price of the estimator, or ``"balanced"`` if it has none.
    estimator : classifier, default=None
        Classifier of the encoded columns; ``None`` is ``CRCENClassifierCV(weighting, random_state=random_state)``.
        Networks or a committee of this package, or any classifier with ``predict_proba`` and without class weights,
        whose probabilities are then decided at the price.
    drop : sequence of str, or dict of str to str, default=()
        Columns to leave out; a dict gives the reasons to record.
    keep : sequence of str, default=()
        Columns to use although they look like identifiers.
    categorical : sequence of str, default=()
        Columns whose values are categories although they look like numbers or dates.
    fingerprint : bool, default=True
        Store a fingerprint of the training rows, by which they are recognised in a file.
    random_state : int, RandomState or None, default=None
        Seed of the texts' decomposition, and of the default estimator.

    Attributes
    ----------
    columns_ : list of Column
        How each used column is encoded: ``.name .kind .encoded_names``.
    dropped_ : list of DroppedColumn
        Columns left out: ``.name .reason``.
    estimator_ : classifier
        Fitted on the encoded columns.
    classes_, pos_label_, weighting_, costs_, key_equation_
        Of ``estimator_``; of more than two classes none is positive.
    profile_, background_, held_out_sums_
        Rounded summaries of the training rows: their distribution, background rows, and sums over held-out rows.
        `crcen.predict_table`, `reasons` and `crcen.monitor_table` compare new rows with them.
    fingerprint_ : Fingerprint
        Truncated hashes of the training rows, for `recognise`; only with ``fingerprint``.
    leaks_ : list of str
        Columns that `crcen.fit_table` warned about (CRC006), by name; only if there are some.
    target_name_ : str or None
        The name of y, where it is a column of a data frame.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Kinds, medians, categories, date formats and the decomposition of texts come from all rows given to ``fit``, without
    use of y; the folds of a search share them. What depends on y (networks, epochs, the chosen setting) and the
    standardisation of inputs comes from each fold's own training rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from crcen import CRCENClassifier, TableClassifier
    >>> table = pd.DataFrame({"amount": [5, 80, None, 7] * 10, "country": ["NL", "NO", "NL", "NL"] * 10})
    >>> model = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0)).fit(table, [0, 1, 0, 0] * 10)
    >>> [column.kind for column in model.columns_]
    ['number', 'category']
    """

    weighting: object = None
    _: KW_ONLY
    estimator: Estimator = None
    drop: Iterable[str] | Mapping[str, str] = ()
    keep: Iterable[str] = ()
    categorical: Iterable[str] = ()
    fingerprint: bool = True
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: TableLike, y: ArrayLike, sample_weight: PerRow = None, groups: PerRow = None) -> "TableClassifier":
        """Learn the columns, then fit the estimator; see `CRCENClassifier.fit`.

        X is a data frame or an array with any kinds of columns. ``sample_weight`` does not affect the encoding.
        """
        with transactional_fit(self):
            table = as_cells(X)
            self.learn_columns(table)
            if np.ndim(y) == 2 and np.shape(y)[1] == 1:
                y = y.iloc[:, 0] if isinstance(y, pd.DataFrame) else np.asarray(y)[:, 0]
            return self.fit_encoded(table, self.encode(table), y, sample_weight, groups)

    def fit_encoded(
        self, X: TableLike, encoded: EncodedTable, y: ArrayLike, sample_weight: PerRow = None, groups: PerRow = None
    ) -> "TableClassifier":
        """Fit the estimator on rows that `learn_columns` has seen and `encode` has encoded."""
        table, estimator, X = as_cells(X), self._unfitted(), encoded.X
        options = {} if sample_weight is None else {"sample_weight": sample_weight}
        options |= {} if groups is None else {"groups": groups}
        if groups is not None and "groups" not in signature(estimator.fit).parameters:
            cannot = f"{type(self.estimator).__name__} does not cross-validate: leave groups out."
            raise InvalidParameter(cannot, parameter="groups")
        with transactional_fit(self):
            self._take(estimator.fit(X, y, **options), getattr(y, "name", None))
            self.held_out_sums_ = held_out_sums(self.estimator_, y, sample_weight)
            self.background_ = typical_table(self.columns_, X)
            self.profile_ = profile_of(self.columns_, table, encoded, training_scores(self.estimator_, X))
            self.__dict__.pop("fingerprint_", None)
            if self.fingerprint:
                numbers = np.searchsorted(self.classes_, np.asarray(y))
                self.fingerprint_ = fingerprint_of(self.columns_, table, X, numbers, len(self.classes_))
        return self

    def learn_columns(self, X: TableLike) -> "TableClassifier":
        """Learn what each column holds (``columns_``, ``dropped_``) without a fit, so that `encode` works."""
        table = as_cells(X)
        frame = table.frame
        self.n_features_in_ = frame.shape[1]
        self.feature_names_in_ = np.array(list(frame.columns), dtype=object)
        if not len(frame):
            raise InvalidInput("Found array with 0 sample(s): a table needs rows.")
        dropped, kept, categorical = (self._names(name, frame) for name in ("drop", "keep", "categorical"))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        reasons = self.drop if isinstance(self.drop, Mapping) else dict.fromkeys(dropped, "asked for")
        for parameter, names in (("keep", kept), ("categorical", categorical)):
            for name in sorted(names & dropped):
                both = f"{parameter} must not name a column that is left out: got {name} ({reasons[name]})."
                raise InvalidParameter(both, parameter=parameter)
        found = learn_columns(table, reasons, kept, categorical, seed)
        self.columns_ = [one for one in found if isinstance(one, Column)]
        self.dropped_ = [one for one in found if not isinstance(one, Column)]
        if not self.columns_:
            first = "; ".join(f"{one.name}: {one.reason}" for one in self.dropped_[:5])
            message = f"no column is left to learn from ({first}); keep= uses a column that was left out."
            message = message if first else "the table has no column to learn from beside the target."
            raise InvalidInput(message, parameter="keep")
        return self

    def _unfitted(self) -> Estimator:
        if hasattr(self.weighting, "fit"):
            name = type(self.weighting).__name__
            message = f"weighting must be a price: got a {name}; write TableClassifier(estimator={name}(...))."
            raise InvalidParameter(message)
        price = "balanced" if self.weighting is None else self.weighting
        if self.estimator is None:
            from crcen.models.search.classifier_cv import CRCENClassifierCV  # only here: predicting needs no search

            return CRCENClassifierCV(price, random_state=self.random_state)
        if not isinstance(self.estimator, FittedEnsemble):
            _check_priceable(self.estimator)
            return PricedClassifier(self.estimator, price)
        estimator = clone(self.estimator)
        return estimator if self.weighting is None else estimator.set_params(weighting=self.weighting)

    def _take(self, estimator: Estimator, target: object) -> None:
        """Use this fitted estimator for the encoded columns."""
        self.estimator_, self.target_name_ = estimator, None if target is None else str(target)
        self.classes_, self.costs_ = estimator.classes_, getattr(estimator, "costs_", None)
        self.weighting_, self.key_equation_ = estimator.weighting_, estimator.key_equation_
        self.__dict__.pop("pos_label_", None)
        if hasattr(estimator, "pos_label_"):
            self.pos_label_ = estimator.pos_label_

    def _names(self, parameter: str, frame: DataFrame) -> set[str]:
        given = getattr(self, parameter)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidParameter(f"{parameter} must be a list of column names: got {given!r}.")
        names = {str(name) for name in given}
        if unknown := sorted(names - set(frame.columns)):
            close = closest(unknown[0], frame.columns)
            message = f"{parameter} names columns that do not exist: {', '.join(unknown)}"
            raise InvalidParameter(f"{message}{f'; did you mean {close}?' if close else '.'}", parameter=parameter)
        return names

    def encode(self, X: TableLike) -> EncodedTable:
        """The encoded table, with counts of cells that did not occur in training.

        X has at least the columns of ``columns_``, in any order; a dict is one row, by names of columns.
        """
        if not hasattr(self, "columns_"):  # scikit-learn's check takes long for a single row
            check_is_fitted(self, "columns_")
        rows = as_dicts(X)
        if rows is not None:
            extra = self._extra([str(name) for row in rows for name in row])
            return replace(encode_rows(self.columns_, rows), extra=extra)
        table = as_cells(X, self.feature_names_in_)
        extra = self._extra(table.frame.columns)
        if not len(table):
            raise InvalidInput("Found array with 0 sample(s): a table needs rows.")
        return replace(encode_table(self.columns_, table), extra=extra)

    def _extra(self, names: Iterable[str]) -> tuple[str, ...]:
        """Columns that training rows did not have; an error if columns of the model are missing."""
        names, known = dict.fromkeys(names), set(self.feature_names_in_)
        if absent := [column.name for column in self.columns_ if column.name not in names]:
            raise missing_columns(absent, len(self.columns_), [one for one in names if one not in known])
        return tuple(name for name in names if name not in known)

    def recognise(self, X: TableLike, y: PerRow = None, encoded: EncodedTable | None = None) -> Recognition | None:
        """How many rows are training rows, and whether chance explains it; None for a model without a fingerprint.

        ``y`` adds a test whether training rows among them depend on the label; ``encoded`` is what `encode` makes of X.
        """
        fingerprint = getattr(self, "fingerprint_", None)
        if fingerprint is None:
            return None
        table = as_cells(X, self.feature_names_in_)
        numbers = None if y is None else np.searchsorted(self.classes_, np.asarray(y))
        compared = fingerprint.compare(self.row_hashes(table, self.encode(table) if encoded is None else encoded))
        return fingerprint.judge(*compared, numbers, self.classes_.tolist())

    def row_hashes(self, frame: DataFrame | TableCells, encoded: EncodedTable) -> NDArray[np.uint64]:
        """One hash per row, to compare with ``fingerprint_``; ``encoded`` is what `encode` makes of the frame."""
        return row_hashes(self.columns_, as_cells(frame), encoded.X, self.fingerprint_.salt)

    @property
    def notes_(self) -> list[str]:
        """Notes for the user on how columns were read."""
        check_is_fitted(self, "columns_")
        dates = [f"{one.name} is left out: it {one.reason}" for one in self.dropped_ if "has dates" in one.reason]
        if results := [one.name for one in self.dropped_ if one.reason == "result of crcen predict"]:
            dates.append(f"left out as results of crcen predict: {listed(results, 4)}")
        return [column.note for column in self.columns_ if column.note] + dates

    @property
    def encoded_names_(self) -> list[str]:
        """Names of the encoded columns."""
        check_is_fitted(self, "columns_")
        return [name for column in self.columns_ for name in column.encoded_names]

    def _inputs(self, X: TableLike) -> Array:
        """Encoded rows, with a warning of cells that cannot be read, which `encode` counts without one."""
        encoded = self.encode(X)
        if encoded.unreadable:
            cells = listed(f"{name} ({plural(n, 'row')})" for name, n in encoded.unreadable.items())
            warnings.warn(f"cells that cannot be read are taken as missing: {cells}.", UserWarning, stacklevel=3)
        return encoded.X

    def predict(self, X: TableLike) -> Decisions:
        """Decide at the stated price."""
        encoded = self._inputs(X)
        return self.estimator_.predict(encoded)

    def predict_proba(self, X: TableLike) -> Array:
        """Natural posterior, (n, K) in the order of ``classes_``."""
        encoded = self._inputs(X)
        return self.estimator_.predict_proba(encoded)

    def weighted_proba(self, X: TableLike) -> Array:
        """Probabilities under the weighting, in the shape of `predict_proba`."""
        return self.estimator_.weighted_proba(self._inputs(X))

    def decision_function(self, X: TableLike) -> Array:
        """Weighted logit of ``classes_[1]``; a column for each class, or action, where there are more than two."""
        encoded = self._inputs(X)
        return self.estimator_.decision_function(encoded)

    def reasons(
        self, X: TableLike, *, background: TableLike = None, classes: PerRow = None, random_state: int = 0
    ) -> Reasons:
        """Contribution of each column to the natural log-odds of each row: see `CRCENClassifier.reasons`.

        By default rows are compared with ``background_``, artificial rows drawn column by column.
        """
        check_is_fitted(self)
        cells = as_cells(X, self.feature_names_in_)
        others = getattr(self, "background_", None) if background is None else self.encode(background).X
        blocks = [np.arange(block.start, block.stop) for block in blocks_of(self.columns_)]
        table = (blocks, [one.name for one in self.columns_], cell_texts(self.columns_, cells))
        return explain_rows(self.estimator_, self.encode(cells).X, others, *table, random_state, classes=classes)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Any:
        """Strings, categories and gaps are accepted; any number of classes, unless the price is one of two."""
        tags = super().__sklearn_tags__()
        weighting = getattr(self.estimator, "weighting", None) if self.weighting is None else self.weighting
        is_estimator = hasattr(self.estimator, "__sklearn_tags__") and not isinstance(self.estimator, type)
        own = get_tags(self.estimator).classifier_tags if is_estimator else None
        tags.classifier_tags.multi_class = (own is None or own.multi_class) and not is_price_of_two(weighting)
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def cell_texts(columns: list[Column], table: TableCells) -> NDArray[np.object_]:
    """The cells of each column as they are written, (n, columns); plain numbers with commas between thousands."""
    found = []
    for column in columns:
        cells = table[column.name]
        written = np.array([short(cell, 40) for cell in cells.text.fillna("missing")], dtype=object)
        if isinstance(column, NumberColumn) and not (column.affix and cells.is_text):
            numbers = spelled(column.read(cells))
            written = np.where(numbers == "missing", written, numbers)
        found.append(written)
    return np.column_stack(found)


class PricedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier without a price: its natural probabilities, and decisions at a price."""

    weighting_: Price

    def __init__(self, estimator: Estimator, weighting: object = "balanced") -> None:
        self.estimator = estimator
        self.weighting = weighting

    def fit(self, X: TableLike, y: ArrayLike, sample_weight: PerRow = None) -> "PricedClassifier":
        """Fit the classifier, and resolve the price with the class counts."""
        _check_priceable(self.estimator)
        labels = np.asarray(as_numpy(y))
        if labels.ndim != 1 or pd.isna(labels).any():
            got = f"got shape {labels.shape}" if labels.ndim != 1 else "some are missing"
            raise InvalidInput(f"y must have a label for every row: {got}.")
        self.classes_ = check_classes(labels)
        weights = check_row_weights(sample_weight, labels.size)
        options, name = {} if sample_weight is None else {"sample_weight": weights}, type(self.estimator).__name__
        if options and "sample_weight" not in signature(self.estimator.fit).parameters:
            raise InvalidParameter(f"{name} takes no sample weights.")
        self.__dict__.pop("pos_label_", None)
        if goal_of(self.weighting) is not None:
            advice = f"fit at a price, then choose_weighting(model, {self.weighting!r}, X, y) on held-out rows"
            raise InvalidParameter(f"{self.weighting!r} is met on out-of-fold rows, and {name} has none: {advice}.")
        known = Labels.from_rows(self.classes_, labels, weights, weighting=self.weighting)
        if known.positive is not None:
            self.pos_label_ = known.positive
        numbers = known.encode(labels)
        self.weighting_ = known.resolve(self.weighting, known.counts(numbers, weights))
        is_numbered = type(self.estimator).__module__.startswith("xgboost")  # which takes class numbers only
        self.estimator_ = clone(self.estimator).fit(X, numbers if is_numbered else labels, **options)
        self.key_equation_ = key_equation(numbers, self.weighted_proba(X), self.weighting_, weights)
        return self

    @property
    def costs_(self) -> CostMatrix | None:
        """The costs that are decided by, where the weighting is a `CostMatrix`."""
        return self.weighting_.costs

    def predict_proba(self, X: TableLike) -> Array:
        """The classifier's own probabilities, (n, K) in the order of ``classes_``."""
        return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def weighted_proba(self, X: TableLike) -> Array:
        """Probabilities under the weighting, in the shape of `predict_proba`."""
        return self.weighting_.weighted(self.predict_proba(X))

    def decision_function(self, X: TableLike) -> Array:
        """Weighted logit of ``classes_[1]``; of several classes centred logits, or minus expected costs."""
        if self.costs_ is not None:
            return -self.costs_.expected(self.predict_proba(X))
        logits = np.log(np.clip(self.predict_proba(X), 1e-300, 1.0)) + self.weighting_.log_weights
        if self.weighting_.positive is None:
            return np.asarray(logits - logits.mean(axis=1, keepdims=True))
        return np.asarray(logits[:, 1] - logits[:, 0])

    def predict(self, X: TableLike) -> Decisions:
        """Decide at the price."""
        p = self.predict_proba(X)
        return self.classes_[self.weighting_.decide(p)] if self.costs_ is None else self.costs_.decide(p)


def _check_priceable(estimator: Estimator) -> None:
    """Refuse what has no probabilities, or such as a weight has moved."""
    name = type(estimator).__name__
    if isinstance(estimator, type) or not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        raise InvalidParameter(f"estimator must be a classifier, such as CRCENClassifier(): got {estimator!r}.")
    if not hasattr(estimator, "predict_proba"):
        message = f"a price needs probabilities, and {name} has no predict_proba: wrap it in CalibratedClassifierCV."
        raise InvalidParameter(message)
    _check_unweighted(estimator, name)


def _check_unweighted(estimator: Estimator, name: str) -> None:
    """Refuse class weights, also of an inner estimator, unless the probabilities are corrected afterwards."""
    if isinstance(estimator, type) or type(estimator).__name__ in ("PosteriorCorrection", "CalibratedClassifierCV"):
        return
    params = estimator.get_params(deep=False)
    for setting in _WEIGHTS:
        value = params.get(setting)
        is_neutral = value is None or value is False or (isinstance(value, int | float) and value == 1)
        if value is True or not is_neutral:
            advice = f"wrap it in crcen.PosteriorCorrection, or leave {setting} out and state the price as weighting"
            raise InvalidParameter(f"{name} with {setting}={value!r} gives weighted probabilities: {advice}.")
    # The estimators that state the probabilities: the last step of a pipeline, the final one of a stack, all that vote.
    last = params["steps"][-1:] if "steps" in params else params.get("estimators") or [params.get("estimator")]
    for one in [params["final_estimator"]] if "final_estimator" in params else last:
        inner = one[1] if isinstance(one, tuple) else one
        if hasattr(inner, "get_params"):
            _check_unweighted(inner, name)
