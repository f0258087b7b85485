"""PosteriorCorrection: what it refuses, because it is not certain or not meant."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from crcen import CostRatio, InvalidInput, InvalidParameter, PosteriorCorrection, make_sim2

lightgbm = pytest.importorskip("lightgbm")
imblearn_ensemble = pytest.importorskip("imblearn.ensemble")
imblearn_pipeline = pytest.importorskip("imblearn.pipeline")
under = pytest.importorskip("imblearn.under_sampling")


@pytest.fixture(scope="module")
def few():
    data = make_sim2(60, 300, seed=5)
    return data.X, data.y


class Homemade(ClassifierMixin, BaseEstimator):
    """From a library that is not known."""

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (PosteriorCorrection(Homemade()), "a library that is not known here; give weighting="),
        (PosteriorCorrection(GaussianNB(priors=[0.5, 0.5])), "what priors does .* is not certain"),
        (PosteriorCorrection(BaggingClassifier(LogisticRegression(class_weight="balanced"), 2)), "estimator__class_w"),
        (
            PosteriorCorrection(lightgbm.LGBMClassifier(objective="cross_entropy", n_jobs=1)),
            "objective='cross_entropy'",
        ),
        (PosteriorCorrection(LinearSVC()), "must have predict_proba: got LinearSVC"),
        (PosteriorCorrection(sampling="auto-matic"), "sampling must be 'auto'"),
        (PosteriorCorrection(sampling=1.5), "strictly between 0 and 1: got 1.5"),
        (PosteriorCorrection(weighting={0: 1}), "one weight for each of 0, 1"),
        (PosteriorCorrection(weighting="blanced"), "did you mean"),
        (PosteriorCorrection(method="platt"), "method of PosteriorCorrection must be one of"),
        (PosteriorCorrection(price=7), "strictly between 0 and 1"),
        (PosteriorCorrection(pos_label=2), "pos_label must be one of the classes 0, 1"),
        (
            PosteriorCorrection(
                GridSearchCV(
                    imblearn_pipeline.make_pipeline(under.RandomUnderSampler(random_state=0), LogisticRegression()),
                    {"logisticregression__C": [1.0]},
                    cv=2,
                )
            ),
            "what RandomUnderSampler did inside GridSearchCV cannot be read off; give sampling=",
        ),
        (
            PosteriorCorrection(
                imblearn_ensemble.BalancedRandomForestClassifier(2, sampling_strategy=lambda y: {0: 60, 1: 60})
            ),
            "cannot be read off sampling_strategy",
        ),
        (
            PosteriorCorrection(imblearn_ensemble.BalancedRandomForestClassifier(2, sampling_strategy="not majority")),
            "cannot be read off sampling_strategy='not majority'",
        ),
    ],
)
def test_what_is_not_certain_or_not_meant_is_refused(few, model, error):
    with pytest.raises(InvalidParameter, match=error):
        model.fit(*few)
    assert not hasattr(model, "classes_")


def test_an_unknown_library_can_be_told(few):
    X, y = few
    model = PosteriorCorrection(Homemade(), weighting=CostRatio(4)).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 0.2)


def test_bad_rows(few):
    X, y = few
    sampled = PosteriorCorrection(imblearn_pipeline.make_pipeline(under.RandomUnderSampler(), LogisticRegression()))
    with pytest.raises(InvalidInput, match="cannot follow rows through a sampler"):
        sampled.fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(InvalidInput, match="one class only"):
        PosteriorCorrection().fit(X, np.zeros(len(y)))
    with pytest.raises(InvalidInput, match="sample_weight must not be negative"):
        PosteriorCorrection().fit(X, y, sample_weight=-np.ones(len(y)))
    with pytest.raises(InvalidInput, match="every row of class 1 has sample_weight 0"):
        PosteriorCorrection().fit(X, y, sample_weight=(y == 0).astype(float))
    with pytest.raises(InvalidInput, match="by 999 cannot split"):
        PosteriorCorrection(method="isotonic", cv=999, price=None).fit(X, y)
    with pytest.raises(InvalidParameter, match="takes no sample_weight"):
        PosteriorCorrection(NoWeights()).fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(ValueError, match="NaN"):
        PosteriorCorrection().fit(np.full_like(X, np.nan), y)


class NoWeights(LogisticRegression):
    """Takes no sample weights."""

    def fit(self, X, y):
        return super().fit(X, y)
