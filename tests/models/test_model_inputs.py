"""What estimators take and are called by: sparse rows, names of other libraries, logarithms of probabilities."""

import inspect

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from crcen import Budget, CRCENClassifier, CRCENClassifierCV, CSMLPClassifier, InvalidInput
from crcen.models import validation
from crcen.models.foreign_names import OURS

QUICK = {"hidden": (4,), "max_epochs": 3, "random_state": 0}
KINDS = (CRCENClassifier, CRCENClassifierCV, CSMLPClassifier)


def categories(n=300):
    rng = np.random.default_rng(0)
    X = rng.choice(["a", "b", "c", "d"], size=(n, 3))
    return X, ((X[:, 0] == "a") & (rng.random(n) < 0.6)).astype(int)


def test_a_default_one_hot_encoder():
    X, y = categories()
    pipeline = make_pipeline(OneHotEncoder(), CRCENClassifier(Budget(3), **QUICK)).fit(X, y)
    coded = OneHotEncoder().fit_transform(X)
    assert sparse.issparse(coded)
    plain = CRCENClassifier(Budget(3), **QUICK).fit(coded.toarray(), y)
    np.testing.assert_array_equal(pipeline.predict_proba(X), plain.predict_proba(coded.toarray()))
    for form in (coded.tocsc(), coded.tocoo(), sparse.csr_array(coded)):
        np.testing.assert_array_equal(plain.predict(form), pipeline.predict(X))


def test_sparse_rows_that_would_be_too_large_are_refused_by_size(monkeypatch):
    X, y = categories()
    coded = OneHotEncoder().fit_transform(X)
    monkeypatch.setattr(validation, "DENSE_BYTES", 8 * coded.shape[0] * coded.shape[1] - 1)
    with pytest.raises(InvalidInput, match=r"300 rows × 12 columns: dense it takes .* GiB, more than"):
        CRCENClassifier(**QUICK).fit(coded, y)
    model = CRCENClassifier(**QUICK).fit(coded.toarray(), y)
    with pytest.raises(InvalidInput, match="fewer rows at a time"):
        model.predict(coded)
    assert len(model.predict(coded[:100])) == 100


def test_holes_of_sparse_rows_are_found():
    X, y = categories()
    coded = OneHotEncoder().fit_transform(X)
    coded.data[5] = np.nan
    with pytest.raises(InvalidInput, match="Input X contains NaN in column"):
        CRCENClassifier(**QUICK).fit(coded, y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OURS)
def test_names_of_other_libraries_are_answered_by_ours(kind, name):
    with pytest.raises(TypeError, match=f"^{kind.__name__} has no parameter '{name}': use {OURS[name][:6]}.*\\.$"):
        kind(**{name: 1})


@pytest.mark.parametrize("kind", KINDS)
def test_names_said_are_parameters_and_signatures_stay(kind):
    parameters = inspect.signature(kind).parameters
    assert set(kind().get_params()) == set(parameters)
    assert not set(OURS) & set(parameters)
    for said in ("l2", "weighting", "hidden", "learning_rate", "max_epochs"):
        assert said in parameters
    with pytest.raises(TypeError, match="unexpected keyword argument 'hiden'"):
        kind(hiden=(3,))
    assert clone(kind(Budget(3), l2=0.5)).get_params()["l2"] == 0.5


def test_grid_search_over_parameters():
    X, y = categories()
    coded = OneHotEncoder().fit_transform(X)
    search = GridSearchCV(CRCENClassifier(Budget(3), **QUICK), {"l2": [1e-3, 1e-1], "batch_size": [32, 64]}, cv=2)
    assert np.isfinite(search.fit(coded, y).cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("labels", [("no", "yes"), ("ok", "fraud")])
def test_logarithms_of_probabilities(labels):
    X, y = categories()
    coded = OneHotEncoder(sparse_output=False).fit_transform(X)
    model = CRCENClassifier(Budget(3), **QUICK).fit(coded, np.where(y, labels[1], labels[0]))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(coded)), model.predict_proba(coded), rtol=1e-12)
    far = model.ensemble_.log_posterior(np.array([-2000.0, 800.0]), np.array([-2000.0, 800.0]))
    column = model.ensemble_.labels.column
    np.testing.assert_allclose(far[:, column], [-2000.0, 0.0], atol=1e-300)
    np.testing.assert_allclose(far[:, 1 - column], [0.0, -800.0], atol=1e-300)
