"""What cannot be used is refused in one sentence by name; what is merely odd works."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from crcen import Calibration, CrcenError, CSMLPClassifier, Inputs, InvalidInput, InvalidParameter, Schedule
from crcen.exceptions import DeviceMissing, TrainingFailed
from crcen.training.recipe import Recipe
from example_rows import rare_rows
from grouped_settings import grouped
from papers_training import CRCENClassifier

QUICK = {"hidden": (3,), "max_epochs": 5, "random_state": 0}
X, y = rare_rows()


def refused(words, X, y, sample_weight=None, error=InvalidInput, **changed):
    with pytest.raises(error, match=words) as caught:
        CRCENClassifier(**{**QUICK, **changed}).fit(X, y, sample_weight)
    assert isinstance(caught.value, CrcenError)
    assert isinstance(caught.value, ValueError | RuntimeError)


INFINITE = "infinity in column 0, 2;.*so replace or drop them first"


@pytest.mark.parametrize(
    ("row", "words"), [([0, np.nan, 0], "NaN in column 1;.*SimpleImputer"), ([np.inf, 0, -np.inf], INFINITE)]
)
def test_values_that_are_not_finite_name_their_columns(row, words):
    model = CRCENClassifier(**QUICK).fit(X, y)
    refused(words, np.vstack([X[1:], row]), y)
    for method in (model.predict, model.predict_proba, model.weighted_proba, model.decision_function):
        with pytest.raises(InvalidInput, match=words):
            method([row])


def labels(make, words):
    return lambda X, y: (X, make(y)), words


def weights(make, words="sample_weight must hold one finite number per row"):
    return lambda X, y: (X, y, make(y)), words


def rows(given, words):
    return lambda X, y: (given, np.arange(len(given)) % 2), words


REFUSED = {
    "one class": labels(np.zeros_like, "two classes: got one class only, 0"),
    "short y": labels(lambda y: y[:-1], r"X and y must have the same number of rows.*\[150, 149\]"),
    "2-D y": labels(lambda y: np.column_stack([y, y]), "y should be a 1d array"),
    "continuous y": labels(lambda y: y + 0.5 * np.random.default_rng(0).random(len(y)), "continuous"),
    "NaN in y": labels(lambda y: np.where(y, np.nan, 0.0), "y contains NaN"),
    "None among text": labels(lambda y: np.where(y, None, "ok"), "class labels of one kind: got None[.]$"),
    "no y": labels(lambda y: None, "requires y"),
    "empty y": labels(lambda y: [], r"X and y must have the same number of rows|0 sample"),
    "negative weight": weights(lambda y: 1.0 - 2.0 * (np.arange(150) == 3), "must not be negative: got -1"),
    "huge weights": weights(lambda y: np.full(150, 1e308), "sample_weight must have a finite sum"),
    "no weight for 0": weights(lambda y: y.astype(float), "every row of class 0 has sample_weight 0"),
    "no weight for 1": weights(lambda y: 1.0 - y, "every row of class 1 has sample_weight 0"),
    "no weight": weights(lambda y: np.zeros(150)),
    "short weights": weights(lambda y: np.ones(149)),
    "2-D weights": weights(lambda y: np.ones((150, 2))),
    "weights of text": weights(lambda y: ["heavy"] * 150),
    "NaN weights": weights(lambda y: np.full(150, np.nan)),
    "infinite weights": weights(lambda y: np.full(150, np.inf)),
    "no rows": rows(np.empty((0, 3)), "0 sample"),
    "no columns": rows(np.empty((10, 0)), "0 feature"),
    "one row": rows(np.ones((1, 3)), "1 sample"),
    "1-D": rows(np.ones(10), "Expected 2D array"),
    "3-D": rows(np.ones((10, 2, 2)), "dim 3|expected <= 2"),
    "complex": rows(np.ones((10, 2)) + 1j, "Complex data not supported"),
    "text": rows([["a", "b"]] * 10, "column 0, 1 does not; encode it first"),
    "many bad columns": rows(np.full((20, 9), np.nan), "column 0, 1, 2, 3, 4 and 4 more;"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_rows_labels_and_weights_that_cannot_be_used(make, words):
    refused(words, *make(*rare_rows()))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "weighted_proba", "decision_function"])
def test_new_rows_of_another_width_or_none_and_a_model_without_fit(method):
    for kind in (CRCENClassifier, CSMLPClassifier):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(kind(), method)(X)
    model = CRCENClassifier(**QUICK).fit(X, y)
    with pytest.raises(InvalidInput, match="2 features, but CRCENClassifier is expecting 3"):
        getattr(model, method)(X[:, :2])
    with pytest.raises(InvalidInput, match="0 sample"):
        getattr(model, method)(X[:0])


def last_column(value):
    return np.column_stack([X, np.full(len(y), value)]), y


def first_cell(value):
    return np.vstack([[value, *X[0, 1:]], X[1:]]), y


ODD = {
    "zeros": last_column(0.0),
    "constant": last_column(-3e7),
    "tiny constant": last_column(1e-300),
    "1e30": first_cell(1e30),
    "1.7e308": first_cell(1.7e308),
    "tiny columns": (X / np.abs(X).max() * 1e-30, y),
    "huge columns": (X / np.abs(X).max() * 1e300, y),
    "two rows": (np.arange(4.0).reshape(2, 2), np.array([1, 0])),
    "constants alone": (np.ones((len(y), 2)), y),
}


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.parametrize(("X", "y"), ODD.values(), ids=ODD)
def test_odd_rows_are_fitted_exactly(X, y, solver):
    model = CRCENClassifier(solver=solver, n_members=2, pos_label=1, **QUICK).fit(X, y)
    for method in (model.predict_proba, model.weighted_proba, model.decision_function):
        assert np.isfinite(method(X)).all()
    q, w = model.weighted_proba(X)[:, 1], model.weighting_.row_weights(y)
    assert abs(np.sum(w * (y - q))) / np.sum(w) <= 1e-12
    if not np.ptp(X):  # nothing but constant columns
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], y.mean(), rtol=1e-9)


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.parametrize("size", [1e30, 1e300])
def test_extreme_size_without_standardisation_is_refused_or_finite(solver, size):
    X, y = rare_rows()
    X = X / np.abs(X).max() * size
    model = CRCENClassifier(solver=solver, n_members=3, standardize=False, **QUICK)
    try:
        model.fit(X, y)
    except TrainingFailed as error:
        assert "extreme values" in str(error)  # noqa: PT017
    else:
        assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("hidden", [(), (3,), (3, 3)], ids=len)
@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "silu"])
def test_extreme_new_rows_give_finite_numbers_or_are_refused(standardize, hidden, activation):
    model = CRCENClassifier(hidden=hidden, activation=activation, standardize=standardize, n_members=3)
    model.set_params(max_epochs=5, random_state=0).fit(X, y)
    wild = np.sign(X) * 1e300
    wild[::2] = np.sign(X[::2]) * 1.7e308
    try:
        probabilities = model.predict_proba(wild)
    except InvalidInput as error:
        assert "extreme values" in str(error)  # noqa: PT017
        assert not standardize
    else:
        assert np.isfinite(probabilities).all()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool, object])
def test_number_types(dtype):
    typed = np.abs(X * 10).astype(int).astype(dtype)
    as_float = typed.astype(float)
    one = CRCENClassifier(**QUICK).fit(typed, y).predict_proba(typed)
    np.testing.assert_array_equal(one, CRCENClassifier(**QUICK).fit(as_float, y).predict_proba(as_float))


BAD_PARAMETERS = {
    "hidden": [0, -1, (0,), (3, -1), (2.5,), "ab", None, True, (True,), {3: 1}, {3}, ((3,),), np.array([[3]])],
    "activation": ["elu", None, 1, ["relu"], np.array(["relu", "tanh"])],
    "l2": [-1e-9, np.nan, np.inf, "small", None, True, 10**400],
    "n_members": [0, -1, 1.0, None, True, "2"],
    "solver": ["sgd", None, 0, "LBFGS"],
    "max_epochs": [0, -5, 2.0, True, "many", np.nan],
    "batch_size": [0, -1, 16.0, True, "auto"],
    "learning_rate": [0, -0.1, np.nan, np.inf, None, True, "auto", 1e300],
    "tol": [-1e-9, np.nan, None, True],
    "early_stopping": ["yes", 1, None],
    "validation_fraction": [0, 1, 0.95, -0.1, np.nan, None, True],
    "encoding": ["ple", None, 1, ["tree"], {"bins": 3}, "indicator", Inputs, Schedule()],
    "bins": [1, 0, 12.0, None, True, "many"],
    "missing": ["indicators", None, True, ["error"]],
    "column_scales": ["yes", 1, ["auto"]],
    "standardize": ["yes", 1, None],
    "schedule": [{"tol": 0}, "adam", Schedule, Inputs(), Recipe()],
    "calibration": ["oof", True, {"balance": True}, Calibration, Schedule()],
    "balance": ["train", 1, None],
    "training_weighting": ["prize", 1.5, True],
    "device": ["gpu", "", None, 0],
    "random_state": ["seed", -1, 1.5],
    "verbose": ["loud", -1, None, 0.5],
    "loss": ["hinge", "squared_error", None, ["cross_entropy"]],
    "probability": ["platt", None, True, ["shift"]],
    "pos_label": ["yes", 2, [1], np.array([0, 1])],
    "weighting": [1.5, "balance", True],
}


def test_every_constructor_parameter_is_covered():
    single = {field.name for group in (Schedule, Inputs, Calibration) for field in fields(group)} - {"encoding"}
    for kind in (CRCENClassifier, CSMLPClassifier):
        assert set(BAD_PARAMETERS) - single == set(kind().get_params(deep=False))
    assert single < set(BAD_PARAMETERS)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD_PARAMETERS.items() for value in values],
    ids=lambda value: getattr(value, "__name__", repr(value)[:30]),
)
def test_a_bad_parameter_is_refused_by_name(name, value):
    words = "λ must|weighting given as text"
    called = {"weighting": words, "training_weighting": words}.get(name, name)
    single, whole = ({}, {name: value}) if name in ("schedule", "calibration") else ({name: value}, {})
    with pytest.raises(InvalidParameter, match=called):
        CRCENClassifier(**(grouped(**({**QUICK, "solver": "adam"} | single)) | whole)).fit(*rare_rows(n=40))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there():
    for device in ("cuda", "cuda:1"):
        refused("torch sees no CUDA device", *rare_rows(), error=DeviceMissing, device=device)


def test_an_absurd_learning_rate_is_a_failed_training():
    words, how = "no finite network is left.*lower learning_rate", {"learning_rate": 1e30, "batch_size": 16}
    for n_members in (1, 3):
        refused(words, *rare_rows(), error=TrainingFailed, solver="adam", n_members=n_members, **how)


def test_early_stopping_says_which_rows_it_lacks():
    for n_pos, count in ((1, "1 row"), (2, "2 rows")):
        refused(f"early_stopping needs.*got {count} of the rarest", X, np.arange(150) < n_pos, early_stopping=True)
    # One positive row has weight: no split gives both parts one, however many rows weigh nothing.
    weight = (y == 0) | (np.cumsum(y) == 1)
    refused("early_stopping needs.*got 1 row of the rarest", X, y, weight.astype(float), early_stopping=True)


@pytest.mark.filterwarnings("error")
def test_a_limit_of_iterations_is_one_warning_and_a_full_schedule_says_nothing(capfd):
    with pytest.warns(ConvergenceWarning, match="raise max_epochs or l2") as caught:
        model = CRCENClassifier(solver="lbfgs", n_members=4, **QUICK | {"max_epochs": 2}).fit(X, y)
    assert (len(caught), caught[0].filename) == (1, __file__)
    assert (model.status_, model.n_iter_, model.loss_curve_.shape) == ("max_epochs", 2, (2,))
    model = CRCENClassifier(solver="adam", **QUICK).fit(X, y)
    assert (model.status_, model.loss_curve_.shape) == ("completed", (5,))
    assert np.isfinite(model.loss_curve_).all()
    for verbose in (0, 1, True):
        CRCENClassifier(verbose=verbose, n_members=2, **QUICK).fit(X, y).predict(X)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"hidden": 3, "l2": 0, "max_epochs": np.int64(2), "batch_size": 10**9, "random_state": np.int64(4)},
        {"hidden": [3, 2], "l2": np.float32(0.1), "verbose": True, "balance": np.True_, "tol": 0, "device": "cpu"},
        {"hidden": np.array([3])},
    ],
    ids=repr,
)
def test_parameters_in_any_sensible_form(changed):
    X, y = rare_rows(n=40)
    assert np.isfinite(CRCENClassifier(**grouped(**{**QUICK, **changed})).fit(X, y).predict_proba(X)).all()
