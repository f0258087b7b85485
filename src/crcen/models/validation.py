"""Validation of rows, labels, weights and parameters of estimators."""

import sys
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, _check_y, _num_samples, column_or_1d, validate_data

from crcen._support.text import listed
from crcen.exceptions import InvalidInput
from crcen.theory.rows import Array, Estimator, Rows, as_numpy
from crcen.training.recipe import choice, number

Seed: TypeAlias = int | np.random.RandomState | None

# Private functions of scikit-learn without a public equivalent; no other module imports them.
take_rows, check_y, count_rows = _safe_indexing, _check_y, _num_samples
# Size limit of a sparse matrix after conversion to a dense array.
DENSE_BYTES = 2**30


def check_number(owner: object, name: str, *, low: float, integer: bool = False, open_low: bool = False) -> None:
    """A finite number of at least ``low`` (above it where ``open_low``)."""
    number(f"{name} of {type(owner).__name__}", getattr(owner, name), low=low, integer=integer, open_low=open_low)


def check_choice(owner: object, name: str, allowed: tuple[Any, ...]) -> None:
    """One of the allowed values."""
    choice(f"{name} of {type(owner).__name__}", getattr(owner, name), allowed)


def _unreadable_columns(X: Rows) -> list[str]:
    if hasattr(X, "columns"):
        columns = [(str(name), np.asarray(X[name])) for name in X.columns]
    else:
        array = np.asarray(X)
        columns = [(str(i), array[:, i]) for i in range(array.shape[1])] if array.ndim == 2 else []
    return [name for name, values in columns if not _holds_numbers(values)]


def _holds_numbers(values: NDArray[np.generic]) -> bool:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return values.dtype.kind not in "mM"  # NumPy turns times into numbers, but not beside other columns


def _is_as_fitted(estimator: Estimator, X: Rows) -> bool:
    """Whether scikit-learn's checks would return X unchanged: for a single row they take longer than the network."""
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and len(X) > 0
        and X.shape[1] == getattr(estimator, "n_features_in_", None)
        and not hasattr(estimator, "feature_names_in_")
    )


@overload
def check_rows(estimator: Estimator, X: Rows, *, reset: bool) -> Array: ...
@overload
def check_rows(estimator: Estimator, X: Rows, y: ArrayLike, *, reset: bool) -> tuple[Array, NDArray[np.generic]]: ...
def check_rows(estimator: Estimator, X: Rows, y: ArrayLike = "no_validation", *, reset: bool) -> Any:
    """Rows as a float64 array (with y: also y), feature names kept or compared, every value finite.

    NaN passes where the estimator has ``encoding=Inputs(missing="indicator")``, or where its networks were fitted so.
    """
    X, y = as_numpy(X), as_numpy(y)
    takes_any = getattr(estimator, "takes_any_shape", False)
    if takes_any and not (_is_table(X) and (reset or len(getattr(estimator, "row_shape_", (0,))) == 1)):
        return _rows_of_any_shape(estimator, X, y, reset)
    how = {"dtype": np.float64, "accept_sparse": ("csr", "csc", "coo"), "ensure_all_finite": False}
    try:
        checked = X
        if not (isinstance(y, str) and not reset and _is_as_fitted(estimator, X)):
            checked = validate_data(estimator, X, y, reset=reset, ensure_min_samples=2 if reset else 1, **how)
    except (TypeError, ValueError) as error:
        # For arrays of objects scikit-learn expects the TypeError itself.
        is_about_values = hasattr(X, "columns") if isinstance(error, TypeError) else "convert" in str(error)
        bad = _unreadable_columns(X) if is_about_values else []
        if bad:
            encode = "encode it first, for example with sklearn.preprocessing.OneHotEncoder or skrub.TableVectorizer"
            raise InvalidInput(f"X must hold numbers: column {listed(bad, 5)} does not; {encode}.") from error
        if isinstance(error, TypeError):
            raise
        lengths = "X and y must have the same number of rows: " if "inconsistent" in str(error) else ""
        raise InvalidInput(f"{lengths}{error}") from error
    rows, *labels = checked if isinstance(checked, tuple) else (checked,)
    rows = _dense(rows) if issparse(rows) else rows
    if takes_any and reset:
        estimator.row_shape_, estimator.has_whole_rows_ = rows.shape[1:], False
    members = () if reset else getattr(getattr(estimator, "ensemble_", None), "members", ())
    encodings = [member.encoding for member in members if hasattr(member, "encoding")]
    takes_nan = bool(getattr(estimator, "takes_missing", False))
    if encodings and len(encodings) == len(members):
        takes_nan = all(encoding.indicators is not None for encoding in encodings)
    is_bad = np.isinf(rows) if takes_nan else ~np.isfinite(rows)
    if is_bad.any():
        names: Any = getattr(X, "columns", None)
        names = getattr(estimator, "feature_names_in_", range(rows.shape[1])) if names is None else names
        kinds = [k for k, test in (("NaN", np.isnan), ("infinity", np.isinf)) if test(rows[is_bad]).any()]
        bad = [str(names[i]) for i in np.flatnonzero(is_bad.any(axis=0))]
        cure = "replace or drop them first"
        if "NaN" in kinds:
            has_encoding = "encoding" in estimator.get_params(deep=False)
            told = "fit with encoding=Inputs(missing='indicator'), or " if has_encoding else ""
            cure = f"{told}impute or drop them first, for example with sklearn.impute.SimpleImputer"
        found = f"Input X contains {' and '.join(kinds)} in column {listed(bad, 5)}"
        raise InvalidInput(f"{found}; {type(estimator).__name__} needs finite numbers, so {cure}.")
    return (rows, *labels) if labels else rows


def _is_table(X: Rows) -> bool:
    """Whether rows are real numbers in columns, to be validated as a table."""
    if issparse(X) or hasattr(X, "columns"):
        return True
    array = np.asarray(X)
    return array.ndim < 3 and array.dtype.kind not in "iub"


def _rows_of_any_shape(estimator: Estimator, X: Rows, y: ArrayLike, reset: bool) -> Any:
    """Images, series or integers (n, ...), unchanged; all finite and of one shape."""
    rows = np.asarray(X)
    if rows.dtype.kind not in "biuf" or rows.ndim < 2 or not len(rows):
        raise InvalidInput(f"X must hold numbers, one row or more: got {rows.dtype} of shape {rows.shape}.")
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise InvalidInput(f"Input X contains NaN or infinity; {type(estimator).__name__} needs finite numbers.")
    if reset:
        estimator.row_shape_, estimator.has_whole_rows_ = rows.shape[1:], rows.dtype.kind in "iu"
        estimator.n_features_in_ = rows.shape[1]
        estimator.__dict__.pop("feature_names_in_", None)
    elif rows.shape[1:] != estimator.row_shape_:
        raise InvalidInput(f"rows must have the shape {estimator.row_shape_} of those of fit: got {rows.shape[1:]}.")
    if isinstance(y, str) and y == "no_validation":
        return rows
    labels = column_or_1d(y, warn=True)
    if len(labels) != len(rows):
        raise InvalidInput(f"X and y must have the same number of rows: got {len(rows)} and {len(labels)}.")
    return rows, labels


def _dense(X: Rows) -> NDArray[np.float64]:
    """A sparse matrix as an array, unless that is too large: networks read whole rows."""
    size = 8 * X.shape[0] * X.shape[1]
    if size > DENSE_BYTES:
        takes = f"dense it takes {size / 2**30:.1f} GiB, more than {DENSE_BYTES / 2**30:g} GiB"
        advice = "encode fewer columns (OneHotEncoder(max_categories=…), TruncatedSVD), pass fewer rows or X.toarray()"
        raise InvalidInput(f"X is sparse, {X.shape[0]:,} rows × {X.shape[1]:,} columns: {takes}; {advice}.")
    return np.asarray(X.toarray(), dtype=np.float64)


def check_classes(y: NDArray[np.generic]) -> NDArray[np.generic]:
    """The sorted classes of y, two or more."""
    try:
        check_classification_targets(y)
        classes = np.unique(y)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"y must hold class labels of one kind: {'got None.' if None in y else error}") from error
    if classes.size == 1:
        raise InvalidInput(f"y must hold two classes: got one class only, {classes.tolist()[0]!r}.")
    return np.asarray(classes)


def check_labels(y: NDArray[np.generic]) -> NDArray[np.generic]:
    """The two sorted classes of y."""
    classes = check_classes(y)
    if classes.size > 2:
        got = f"{type_of_target(y)}: got {classes.size} classes; pass y == the label of the rare class for now."
        raise InvalidInput(f"Only binary classification is supported. The type of the target is {got}")
    return classes


def check_weights(sample_weight: ArrayLike | None, X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Row weights as float64: finite and not negative."""
    try:
        weights = _check_sample_weight(as_numpy(sample_weight), X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"sample_weight must hold one finite number per row, not all 0: {error}") from error
    if (weights < 0).any():
        raise InvalidInput(f"sample_weight must not be negative: got {weights.min():g}.")
    if weights.max() > sys.float_info.max / len(weights):
        raise InvalidInput(f"sample_weight must have a finite sum: got weights up to {weights.max():g}.")
    return np.asarray(weights, dtype=np.float64)
