"""Missing cells in the frozen input layer: statistics of what is there, 0 for what is not, indicators beside it."""

import numpy as np
import pytest
from training_reference import assert_same_result, binary_job

from crcen.training.encoding import ENCODINGS, column_layout, fit_encoding, incomplete_columns
from crcen.training.engine import train

N = 300


def gappy_rows(seed=0):
    """Normal, skewed, three-valued and binary columns, a quarter of the first three missing, a fifth column full."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.normal(5, 2, N), rng.exponential(1, N), rng.integers(0, 3, N), rng.integers(0, 2, N), rng.normal(size=N)]
    ).astype(float)
    y = (X[:, 1] > 1.5) & (rng.random(N) < 0.8)
    X[:, :4][rng.random((N, 4)) < 0.25] = np.nan
    return X, y


X, Y = gappy_rows()


def fitted(kind, X, y, weights=None, columns=None, **options):
    """The encoding of rows whose layout is that of all."""
    weights = np.ones(len(X)) if weights is None else weights
    columns = column_layout(X, kind, 4) if columns is None else columns
    return fit_encoding(kind, columns, X, y, weights, **{"indicators": incomplete_columns(X), **options})


def column_of(kind, encoding):
    """Which column each encoded one is made of, indicators left out."""
    return np.arange(5) if encoding.columns is None else encoding.columns[:-4]


@pytest.mark.parametrize("kind", ENCODINGS)
def test_cells_that_are_there_are_encoded_as_if_there_were_no_others(kind):
    columns, z = column_layout(X, kind, 4), fitted(kind, X, Y)(X)
    for column in range(5):
        there = ~np.isnan(X[:, column])
        rows = np.zeros((there.sum(), 5))
        rows[:, column] = X[there, column]
        alone = fit_encoding(kind, columns, rows, Y[there], np.ones(len(rows)))
        own = np.flatnonzero(column_of(kind, fitted(kind, X, Y)) == column)
        np.testing.assert_allclose(z[np.ix_(there, own)], alone(rows)[:, own], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ENCODINGS)
def test_a_missing_cell_is_zero_which_is_the_mean_or_the_middle_of_the_others(kind):
    encoding = fitted(kind, X, Y)
    z, columns = encoding(X), column_of(kind, encoding)
    for place, column in enumerate(columns):
        is_missing = np.isnan(X[:, column])
        assert (z[is_missing, place] == 0).all()
        present = z[~is_missing, place]
        if kind == "robust":
            assert max((present < 0).mean(), (present > 0).mean()) <= 0.5  # the median
        elif kind == "quantile":
            assert abs(present.mean()) < 0.1
        else:
            assert abs(present.mean()) < 1e-12


@pytest.mark.parametrize("kind", [kind for kind in ENCODINGS if kind != "robust"])
def test_indicators_are_standard_scores_of_being_missing(kind):
    weights = np.random.default_rng(1).random(N)
    is_missing = np.isnan(X[:, :4]).astype(float)
    mean = np.average(is_missing, axis=0, weights=weights)
    expected = (is_missing - mean) / np.sqrt(mean * (1 - mean))
    encoding = fitted(kind, X, Y, weights)
    np.testing.assert_allclose(encoding(X)[:, -4:], expected, rtol=1e-12)
    np.testing.assert_array_equal(encoding.indicators, range(4))


@pytest.mark.parametrize("kind", ENCODINGS)
def test_a_column_that_lacks_all_cells_here_or_those_of_one_class(kind):
    empty = X.copy()
    empty[:, 0] = np.nan
    empty[Y, 1] = np.nan
    encoding = fitted(kind, empty, Y, columns=column_layout(X, kind, 4))
    z, columns = encoding(X), column_of(kind, encoding)
    np.testing.assert_allclose(z[:, :-4][:, columns == 0], 0, atol=1e-15)
    assert (z[:, -4] == 0).all()  # it says nothing here
    assert np.isfinite(z).all()
    assert np.ptp(z[:, 1]) > 1


@pytest.mark.parametrize("kind", ENCODINGS)
def test_cells_that_only_new_rows_lack_are_zero_without_an_indicator(kind):
    full = np.where(np.isnan(X), 1.0, X)
    encoding = fitted(kind, full, Y)
    plain = fit_encoding(kind, column_layout(full, kind, 4), full, Y, np.ones(N))
    assert encoding.size == plain.size
    np.testing.assert_array_equal(encoding(full), plain(full))
    gone = full[:1].copy()
    gone[0, 1] = np.nan
    changed = encoding(gone) != encoding(full[:1])
    made_of_it = np.arange(5) == 1 if plain.columns is None else plain.columns == 1
    assert (encoding(gone)[0, made_of_it] == 0).all()
    assert not changed[0, ~made_of_it].any()


def test_inputs_as_they_are_have_zeros_and_plain_indicators():
    z = fitted("steps", X, Y, standardize=False)(X)
    np.testing.assert_array_equal(z, np.column_stack([np.nan_to_num(X), np.isnan(X[:, :4])]))


@pytest.mark.parametrize("kind", ENCODINGS)
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_stack_of_folds_encodes_each_by_its_own_rows_and_equals_them_alone(kind, solver):
    folds = [np.flatnonzero(np.arange(N) % 3 != fold) for fold in range(3)]
    how = {"encoding": kind, "bins": 4, "missing": "indicator", "solver": solver, "max_epochs": 3}
    jobs = [binary_job(0.8, hidden=(5,), seed=3, rows=rows, **how) for rows in folds]
    for job, result in zip(jobs, train(X, Y, jobs, device="cpu"), strict=True):
        assert_same_result(train(X, Y, [job], device="cpu")[0], result, rtol=1e-4, atol=1e-5)
        rows, columns, indicators = job.rows, column_layout(X, kind, 4), incomplete_columns(X)
        expected = fitted(kind, X[rows], Y[rows], None, columns, indicators=indicators)
        np.testing.assert_array_equal(result.network.encoding(X), expected(X))
        assert result.residual < 1e-14


@pytest.mark.parametrize("kind", ENCODINGS)
def test_values_and_labels_of_other_rows_do_not_reach_a_fold(kind):
    how = {"encoding": kind, "missing": "indicator", "max_epochs": 2}
    job = binary_job(0.5, hidden=(4,), rows=np.arange(200), **how)
    before = train(X, Y, [job], device="cpu")[0].network
    other, labels = X.copy(), Y.copy()
    other[200:, [1, 4]] *= -3.0  # as many different values, and no other column lacks cells
    other[200:, 0] = np.nan
    labels[200:] = ~labels[200:]
    after = train(other, labels, [job], device="cpu")[0].network
    np.testing.assert_array_equal(before.encoding(X), after.encoding(X))
    np.testing.assert_array_equal(before.logits(X), after.logits(X))


def test_jobs_that_take_missing_cells_and_jobs_that_do_not():
    how = {"hidden": (3,), "max_epochs": 2}
    jobs = [binary_job(0.5, missing=missing, **how) for missing in ("error", "indicator")]
    for result in train(np.nan_to_num(X), Y, jobs, device="cpu"):
        assert result.residual < 1e-14


def test_a_missing_cell_in_a_row_without_weight_changes_nothing():
    weights = np.ones(N)
    weights[7] = 0.0
    rows, gap = np.nan_to_num(X), np.nan_to_num(X)
    gap[7, 4] = np.nan
    job = binary_job(0.5, hidden=(3,), missing="indicator", max_epochs=2)
    one, other = (train(Z, Y, [job], sample_weight=weights, device="cpu")[0].network for Z in (rows, gap))
    np.testing.assert_array_equal(one.logits(rows), other.logits(rows))
