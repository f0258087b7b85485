"""What a report looks at: a fitted model's answers on labelled rows, checked once."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.report.encoded_rows import EncodedRows, encoded_rows
from crcen.theory.decision import weighted_probability
from crcen.theory.key_equation import EquationTest, KeyEquation, judge_equation
from crcen.theory.labels import Labels
from crcen.theory.limits import fitted_model_noise
from crcen.theory.price import Budget, Price, resolve
from crcen.theory.residual_test import TrainingError, residual_sums
from crcen.theory.rows import as_numpy, check_probabilities, check_row_weights, class_totals

__all__ = ["Evidence", "answered_rows", "gather", "kept_by", "positive_column"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """A model and its answers on rows.

    Parameters
    ----------
    model : object
        A fitted binary classifier.
    X : DataFrame or array of shape (n, columns)
        The rows as the model takes them.
    columns : tuple of str
        One name for each column of X.
    pos_label, neg_label : object
        The two labels; the first is what is looked for.
    target : bool array of shape (n,)
        True for the positive rows.
    weights : float64 array of shape (n,)
        Sample weights, 1 where none were given.
    is_weighted : bool
        Whether sample weights were given.
    p : float64 array of shape (n,)
        The model's natural probability of the positive class.
    q : float64 array of shape (n,) or None
        Its probability under the weighting; None where the model has none.
    weighting : Price
        The price the model was trained or set for; cost ratio 1 where it names none, with the counts of these rows.
    has_price : bool
        Whether the model names a price itself.
    encoded : EncodedRows or None
        The rows as the network of a table classifier sees them; None for other models.
    is_out_of_fold : bool
        Whether p and q are those of models which did not see these rows, where the model itself did.
    """

    model: Any
    X: Any
    columns: tuple[str, ...]
    pos_label: Any
    neg_label: Any
    target: NDArray[np.bool_]
    weights: Array
    is_weighted: bool
    p: Array
    q: Array | None
    weighting: Price
    has_price: bool
    encoded: EncodedRows | None = None
    is_out_of_fold: bool = False

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.target.size)

    @property
    def totals(self) -> tuple[float, float]:
        """Weighted counts of the positive and the negative rows."""
        return class_totals(self.target, self.weights)

    @property
    def noise_factor(self) -> float:
        """By how much a residual on new rows varies more than under the true posterior.

        A fitted model brings the error of its own rows: as it was measured, or as models of its kind have it; 1 where
        the model does not say how many these were.
        """
        if not self.has_price:
            return 1.0
        if self.training_error is not None:
            q = weighted_probability(self.p, self.weighting)
            return self.training_error.noise(residual_sums(self.target, q, self.weighting, self.weights))
        return fitted_model_noise(self.weights, self.weighting, kept_by(self.model, "profile_"))

    @property
    def training_error(self) -> TrainingError | None:
        """The model's own error, where it was measured."""
        kept = kept_by(self.model, "training_error_")
        return kept if isinstance(kept, TrainingError) else None

    def tested(self, equation: KeyEquation) -> EquationTest:
        """A key equation of these rows, judged with the model's own error; a measured one is in it already."""
        n_pos = int(self.target.sum())
        noise = 1.0 if self.training_error is not None else self.noise_factor
        return judge_equation(equation, noise, min(n_pos, self.n_rows - n_pos))


def positive_column(model: Any, pos_label: Any) -> int:
    """Which column of ``predict_proba`` belongs to the positive class."""
    return Labels(np.asarray(model.classes_), pos_label).column


def kept_by(model: Any, name: str) -> Any:
    """What a model, or else the estimator that it has fitted inside, keeps under a name; None where neither does."""
    return getattr(model, name, getattr(getattr(model, "estimator_", None), name, None))


def gather(model: Any, X: Any, y: Any, sample_weight: Any = None, out_of_fold: Any = None) -> Evidence:
    """Ask the model about the rows and check the answers.

    Parameters
    ----------
    model : object
        A fitted binary classifier with ``predict_proba`` and ``classes_``; ``pos_label_``, ``weighting_`` and
        ``weighted_proba`` are used where it has them.
    X : DataFrame or array of shape (n, columns)
        Rows the model did not see in training.
    y : array of shape (n,)
        Their labels, of ``classes_``; both classes must be there.
    sample_weight : array of shape (n,), optional
        Finite and not negative.
    out_of_fold : array of shape (n,), optional
        Natural probabilities of the positive class by models that did not see these rows, where the model did.

    Returns
    -------
    Evidence
        Checked arrays in float64.

    Raises
    ------
    InvalidParameter
        If the model is not a fitted binary classifier with probabilities.
    InvalidInput
        If rows, labels, weights or probabilities cannot be used.
    """
    classes = _classes(model)
    X, columns = _rows(X, model)
    labels = _labels(y, len(X), classes)
    weights = check_row_weights(sample_weight, labels.size)
    own = Labels.of_model(model, labels, weights)
    pos_label, target = own.positive, own.is_positive(labels)
    n_pos, n_neg = class_totals(target, weights)
    column = positive_column(model, pos_label)
    encoded = encoded_rows(model, X)
    asked, rows = (model, X) if encoded is None else (encoded.estimator, encoded.X)
    has_price = isinstance(getattr(model, "weighting_", None), Price)
    evidence = Evidence(
        model=model,
        X=X,
        columns=columns,
        pos_label=pos_label,
        neg_label=classes[1 - column],
        target=target,
        weights=weights,
        is_weighted=sample_weight is not None,
        p=_probabilities(asked.predict_proba(rows), column, labels.size, "predict_proba"),
        q=_probabilities(asked.weighted_proba(rows), column, labels.size, "weighted_proba")
        if hasattr(asked, "weighted_proba")
        else None,
        weighting=model.weighting_ if has_price else resolve(Budget(1.0), n_pos, n_neg),
        has_price=has_price,
        encoded=encoded,
    )
    if out_of_fold is None:
        return evidence
    p = check_probabilities(out_of_fold, "out_of_fold")
    if p.shape != target.shape:
        raise InvalidInput(f"out_of_fold must have one probability for each of {target.size} rows, got {p.shape}")
    q = None if evidence.q is None else weighted_probability(p, evidence.weighting)
    return replace(evidence, p=p, q=q, is_out_of_fold=True)


def answered_rows(model: Any, X: Any, y: Any) -> tuple[Any, Any, NDArray[np.int64]]:
    """Rows for a model of several classes: as it takes them, as a data frame, and the numbers of their classes."""
    classes = _known_classes(model)
    X, columns = _rows(X, model)
    labels = _labels(y, len(X), classes)
    place = {label: k for k, label in enumerate(classes.tolist())}
    numbers = np.array([place[label] for label in labels.tolist()], dtype=np.int64)
    if len(np.unique(numbers)) < 2:
        raise InvalidInput(f"a report needs rows of several classes: y holds only {labels[0]!r}")
    if hasattr(X, "iloc"):
        return X, X, numbers
    import pandas as pd

    return X, pd.DataFrame(X, columns=list(columns)), numbers


def _classes(model: Any) -> NDArray[Any]:
    classes = _known_classes(model)
    if classes.shape != (2,):
        raise InvalidParameter(f"a report needs a binary classifier, got one with classes {classes.tolist()}")
    return classes


def _known_classes(model: Any) -> NDArray[Any]:
    if not hasattr(model, "predict_proba"):
        raise InvalidParameter(
            f"a report needs a classifier with predict_proba, got {type(model).__name__}: wrap it in "
            "sklearn.calibration.CalibratedClassifierCV"
        )
    if not hasattr(model, "classes_"):
        raise InvalidParameter(f"a report needs a fitted classifier, got {type(model).__name__} without classes_")
    return np.asarray(model.classes_)


def _rows(X: Any, model: Any) -> tuple[Any, tuple[str, ...]]:
    """X with rows that can be taken by position, and a name for each column; an array's may be the model's own."""
    if not hasattr(X, "iloc") and hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return X, tuple(str(name) for name in X.columns)
    X = np.asarray(as_numpy(X))
    if X.ndim != 2:
        raise InvalidInput(f"X must be a table of rows and columns, got an array of shape {X.shape}")
    names = getattr(model, "feature_names_in_", ())
    if len(names) == X.shape[1]:
        return X, tuple(str(name) for name in names)
    return X, tuple(f"column {number}" for number in range(1, X.shape[1] + 1))


def _labels(y: Any, n: int, classes: NDArray[Any]) -> NDArray[Any]:
    labels = np.asarray(as_numpy(y))
    if labels.shape != (n,):
        raise InvalidInput(f"y must have one label for each of the {n} rows, got shape {labels.shape}")
    strange = ~np.isin(labels, classes)
    if strange.any():
        raise InvalidInput(
            f"y must hold the labels the model knows, {classes.tolist()}, got {labels[strange].tolist()[0]!r} "
            f"in {int(strange.sum())} of {n} rows"
        )
    return labels


def _probabilities(given: Any, column: int, n: int, name: str) -> Array:
    table = np.asarray(given)
    if table.shape != (n, 2):
        raise InvalidInput(f"{name} must give two columns for each of the {n} rows, got shape {table.shape}")
    return check_probabilities(table[:, column], name)
