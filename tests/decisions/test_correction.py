"""correct_proba against closed forms; PosteriorCorrection of classifiers that were weighted or resampled."""

import pickle
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import ensemble
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from three_classes import LABELS, NEW, SHARES, TRUTH, WEIGHTS, P, X, Y

import crcen
from crcen import Alpha, Budget, CostRatio, InvalidInput, InvalidParameter, PosteriorCorrection, correct_proba
from crcen.datasets.simulated import make_sim2, sim2_posterior
from crcen.paper.methods import make_method
from crcen.theory.price import Price, sigmoid
from papers_training import CRCENClassifier

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
imblearn_ensemble = pytest.importorskip("imblearn.ensemble")
imblearn_pipeline = pytest.importorskip("imblearn.pipeline")
over = pytest.importorskip("imblearn.over_sampling")
under = pytest.importorskip("imblearn.under_sampling")


@pytest.fixture(scope="module")
def sim2():
    train, new = make_sim2(1000, 20000, seed=1), make_sim2(1000, 20000, seed=2)
    return train.X, train.y, new.X, new.y, log_loss(new.y, sim2_posterior(new.X, 20.0))


@pytest.fixture(scope="module")
def few():
    data = make_sim2(60, 300, seed=5)
    return data.X, data.y


def with_sampler(sampler, classifier):
    return imblearn_pipeline.make_pipeline(sampler, classifier)


def lgbm(**params):
    return lightgbm.LGBMClassifier(n_estimators=60, num_leaves=7, verbose=-1, n_jobs=1, **params)


def catboost(iterations, **params):
    settings = {"depth": 3, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    return pytest.importorskip("catboost").CatBoostClassifier(iterations, **settings, **params)


def balanced_forest(**params):
    return imblearn_ensemble.BalancedRandomForestClassifier(3, **params)


@pytest.mark.parametrize(
    ("estimator", "factor"),
    [
        (lgbm(scale_pos_weight=20), 20.0),
        (with_sampler(under.RandomUnderSampler(random_state=0), lgbm()), 20.0),
        (with_sampler(under.RandomUnderSampler(sampling_strategy=0.3, random_state=0), lgbm(scale_pos_weight=4)), 24.0),
        (xgboost.XGBClassifier(n_estimators=60, max_depth=3, learning_rate=0.1, scale_pos_weight=20, n_jobs=1), 20.0),
    ],
    ids=["lightgbm", "under-sampling", "both", "xgboost"],
)
def test_the_corrected_loss_is_near_bayes_where_the_raw_one_is_far(sim2, estimator, factor):
    X, y, X_new, y_new, bayes = sim2
    model = PosteriorCorrection(estimator).fit(X, y)
    assert model.odds_factor_ == pytest.approx(factor, rel=1e-3)
    assert log_loss(y_new, model.predict_proba(X_new)) < 1.05 * bayes
    assert log_loss(y_new, model.estimator_.predict_proba(X_new)) > 1.3 * bayes


@pytest.mark.parametrize(
    ("estimator", "factor"),
    [
        (LogisticRegression(), 1.0),
        (LogisticRegression(class_weight="balanced"), 5.0),
        (LogisticRegression(class_weight={0: 2, 1: 6}), 3.0),
        (LogisticRegression(class_weight={1: 7}), 7.0),
        (make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")), 5.0),
        (GridSearchCV(LogisticRegression(class_weight="balanced"), {"C": [0.1, 1.0]}, cv=2), 5.0),
        (SGDClassifier(loss="log_loss", class_weight="balanced", random_state=0), 5.0),
        (ensemble.HistGradientBoostingClassifier(max_iter=1, class_weight={1: 4}), 4.0),
        (GaussianNB(), 1.0),
        (CalibratedClassifierCV(LogisticRegression(class_weight="balanced"), cv=2), 1.0),
        (CRCENClassifier(Budget(9), hidden=()), 1.0),
        (lgbm(is_unbalance=True), 5.0),
        (lgbm(class_weight="balanced"), 5.0),
        (lgbm(), 1.0),
        (xgboost.XGBClassifier(n_estimators=3, n_jobs=1), 1.0),
        (with_sampler(over.RandomOverSampler(sampling_strategy=0.5, random_state=0), LogisticRegression()), 2.5),
        (with_sampler(under.RandomUnderSampler(sampling_strategy={0: 120}), LogisticRegression()), 2.5),
        (
            with_sampler(under.RandomUnderSampler(sampling_strategy=0.5), LogisticRegression(class_weight="balanced")),
            5.0,
        ),
        (balanced_forest(), 5.0),
        (balanced_forest(sampling_strategy=0.5), 2.5),
        (balanced_forest(sampling_strategy={0: 90, 1: 60}), 5.0 * 60 / 90),
        (imblearn_ensemble.BalancedBaggingClassifier(LogisticRegression(class_weight={1: 3}), n_estimators=3), 15.0),
        (imblearn_ensemble.BalancedBaggingClassifier(n_estimators=3, sampler=over.RandomOverSampler()), 5.0),
        # Of CatBoost.
        ({"scale_pos_weight": 6.0}, 6.0),
        ({"class_weights": (2, 8)}, 4.0),
        ({"auto_class_weights": "Balanced"}, 5.0),
        ({"auto_class_weights": "SqrtBalanced"}, np.sqrt(5.0)),
        ({}, 1.0),
    ],
    ids=lambda v: "" if isinstance(v, float) else type(v).__name__,
)
def test_what_the_settings_say(few, estimator, factor):
    """60 positives and 300 negatives: "balanced" is 5."""
    if isinstance(estimator, dict):
        estimator = catboost(3, **estimator)
    assert PosteriorCorrection(estimator, price=None).fit(*few).odds_factor_ == pytest.approx(factor)


def test_logistic_regression_loses_the_logarithm_of_its_weight_from_the_intercept(few):
    """King and Zeng's prior correction."""
    X, y = few
    plain = LogisticRegression(class_weight={0: 1, 1: 8}).fit(X, y)
    expected = sigmoid(X @ plain.coef_[0] + plain.intercept_[0] - np.log(8))
    for weighting in ("auto", CostRatio(8), Budget(8), crcen.Lam(8 / 9), 8 / 9, {0: 1, 1: 8}, Alpha(8 / 5)):
        model = PosteriorCorrection(LogisticRegression(class_weight={0: 1, 1: 8}), weighting=weighting).fit(X, y)
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected, rtol=1e-10)
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)


def test_a_rare_class_that_sorts_first(few):
    X, y = few
    text = np.where(y == 1, "fraud", "ok")
    number = PosteriorCorrection(LogisticRegression(class_weight="balanced"), price=Budget(3)).fit(X, y)
    for weighting in ("auto", "balanced", CostRatio(5), {"fraud": 10, "ok": 2}):
        estimator = LogisticRegression(class_weight="balanced")
        model = PosteriorCorrection(estimator, weighting=weighting, price=Budget(3)).fit(X, text)
        assert model.pos_label_ == "fraud"
        assert model.odds_factor_ == pytest.approx(5.0)
        np.testing.assert_allclose(model.predict_proba(X), number.predict_proba(X)[:, ::-1], rtol=1e-6)
        assert np.array_equal(model.predict(X) == "fraud", number.predict(X) == 1)


def test_the_price_alone_decides_and_no_price_is_said(few):
    X, y = few
    estimator = LogisticRegression(class_weight="balanced")
    p = PosteriorCorrection(estimator).fit(X, y).predict_proba(X)[:, 1]
    for price, threshold in ((None, 0.5), (Budget(4), 0.2), (0.9, 0.1), ("balanced", 1 / 6)):
        model = PosteriorCorrection(estimator, price=price).fit(X, y)
        assert np.array_equal(model.predict(X) == 1, p > threshold)
    common = PosteriorCorrection(estimator, price=Budget(4), pos_label=0).fit(X, y)
    assert np.array_equal(common.predict(X) == 0, 1 - p > 0.2)
    np.testing.assert_allclose(common.predict_proba(X)[:, 1], p)
    with pytest.warns(UserWarning, match=r"no price was given .* predict decides at ½") as caught:
        model = PosteriorCorrection(LogisticRegression()).fit(X, y)
    assert caught[0].filename == __file__
    assert np.array_equal(model.predict(X), model.estimator_.predict(X))


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(class_weight="balanced"),
        lgbm(scale_pos_weight=7),
        with_sampler(under.RandomUnderSampler(sampling_strategy=0.5, random_state=0), LogisticRegression()),
        imblearn_ensemble.BalancedBaggingClassifier(LogisticRegression(), n_estimators=3, random_state=0),
        CRCENClassifier(Budget(9), hidden=(), random_state=0),
        make_pipeline(StandardScaler(), CRCENClassifier(Budget(9), hidden=(), random_state=0)),
    ],
    ids=["balanced", "lightgbm", "under-sampling", "bagging", "ours", "ours in a pipeline"],
)
def test_without_a_price_it_decides_as_the_classifier_that_was_trained(few, estimator):
    """The weight that is taken out of the probabilities is the price of the decision: not ½, which finds few."""
    X, y = few
    model = PosteriorCorrection(estimator).fit(X, y)
    own = model.estimator_.predict(X)
    assert np.array_equal(model.predict(X), own)
    assert (model.predict_proba(X)[:, 1] > 0.5).sum() < own.sum()
    first = PosteriorCorrection(estimator).fit(X, np.where(y == 1, "fraud", "ok"))  # the rare class sorts first
    assert np.array_equal(first.predict(X), first.estimator_.predict(X))


def test_a_sampler_given_here_is_one_in_a_pipeline_also_with_a_cache(few, tmp_path):
    X, y = few
    sampler = under.RandomUnderSampler(random_state=3)
    here = PosteriorCorrection(LogisticRegression(), sampling=sampler).fit(X, y)
    there = PosteriorCorrection(with_sampler(sampler, LogisticRegression())).fit(X, y)
    stated = PosteriorCorrection(with_sampler(sampler, LogisticRegression()), sampling=0.5).fit(X, y)
    ignored = PosteriorCorrection(with_sampler(sampler, LogisticRegression()), sampling=None, price=None).fit(X, y)
    assert ignored.odds_factor_ == 1.0
    for model in (here, there, stated):
        assert model.odds_factor_ == pytest.approx(5.0)
        np.testing.assert_allclose(model.predict_proba(X), here.predict_proba(X), rtol=1e-12)
    expected = correct_proba(there.estimator_.predict_proba(X), sampled_prior=0.5, natural_prior=60 / 360)
    np.testing.assert_allclose(there.predict_proba(X), expected, rtol=1e-12)
    cached = with_sampler(sampler, LogisticRegression()).set_params(memory=str(tmp_path))
    for pipeline in (there.estimator_, cached, cached):  # the second time from the cache
        model = PosteriorCorrection(pipeline).fit(X, y)
        assert model.odds_factor_ == pytest.approx(5.0)
        assert isinstance(model.estimator_.steps[0][1], under.RandomUnderSampler)


@pytest.mark.parametrize(
    ("estimator", "reason"),
    [
        (with_sampler(over.SMOTE(random_state=0), LogisticRegression()), "SMOTE creates or selects rows"),
        (with_sampler(over.ADASYN(random_state=0), LogisticRegression()), "ADASYN creates or selects rows"),
        (with_sampler(over.RandomOverSampler(shrinkage=1.0), LogisticRegression()), "with shrinkage"),
        (with_sampler(under.TomekLinks(), LogisticRegression()), "TomekLinks creates or selects rows"),
        (imblearn_ensemble.EasyEnsembleClassifier(2, ensemble.AdaBoostClassifier(n_estimators=3)), "boosted votes"),
        (imblearn_ensemble.RUSBoostClassifier(n_estimators=3, random_state=0), "boosted votes"),
        (imblearn_ensemble.BalancedBaggingClassifier(n_estimators=2, sampler=over.SMOTE()), "SMOTE creates or selects"),
        (make_method("adac1", n_estimators=3, random_state=0), "AdaCClassifier boosts with costs"),
        (make_method("balance_cascade", n_estimators=2, random_state=0), "selects rows by their score"),
        (make_method("gsvm_ru", max_granules=1, random_state=0), "selects rows by their position"),
        (make_method("eusboost", n_estimators=2, evaluations=5, random_state=0), "selects rows by their position"),
        (ensemble.RandomForestClassifier(3, class_weight="balanced"), "class weights move the odds in a leaf"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_one_warning_where_a_shift_cannot_be_exact(few, estimator, reason):
    X, y = few
    with pytest.warns(UserWarning, match=rf"{reason}.*method='isotonic'") as caught:
        PosteriorCorrection(estimator).fit(X, y)
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_boosted_votes_are_calibrated_out_of_fold(method):
    train, new = make_sim2(200, 2000, seed=1), make_sim2(200, 2000, seed=2)
    estimator = imblearn_ensemble.EasyEnsembleClassifier(1, random_state=0)
    with pytest.warns(UserWarning, match="boosted votes"):
        shifted = PosteriorCorrection(estimator).fit(train.X, train.y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapped = PosteriorCorrection(estimator, method=method, cv=3).fit(train.X, train.y)
    before, after = (log_loss(new.y, m.predict_proba(new.X)) for m in (shifted, mapped))
    assert after < 0.9 * before
    assert abs(mapped.predict_proba(new.X)[:, 1].mean() - new.y.mean()) < 0.02


def test_the_map_has_seen_no_row_of_its_own_fold_and_certain_votes_are_not_believed(few):
    """By hand with cross_val_predict: the intercept that makes the out-of-fold mean right."""
    X, y = few
    estimator = LogisticRegression(class_weight={0: 1, 1: 5})
    model = PosteriorCorrection(estimator, method="balance", cv=4).fit(X, y)
    q = cross_val_predict(estimator, X, y, cv=4, method="predict_proba")[:, 1]
    p = sigmoid(np.log(q / (1 - q)) - np.log(5) + model.probability_map_[1])
    assert abs(p.sum() - y.sum()) < 1e-8
    forest = ensemble.RandomForestClassifier(5, class_weight="balanced", random_state=0)
    for method in ("balance", "temperature", "isotonic"):
        p = PosteriorCorrection(forest, method=method, cv=3).fit(X, y).predict_proba(X)
        assert 0 < p.min() < p.max() < 1


def test_sample_weights_are_passed_on_and_counted_where_all_libraries_agree(few):
    X, y = few
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    direct = LogisticRegression(class_weight={1: 3}).fit(X, y, sample_weight=weights)
    model = PosteriorCorrection(LogisticRegression(class_weight={1: 3})).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.estimator_.coef_, direct.coef_)
    piped = PosteriorCorrection(make_pipeline(StandardScaler(), LogisticRegression(class_weight={1: 3})))
    plain, weighted = (clone(piped).fit(X, y, sample_weight=w) for w in (None, weights))
    assert not np.allclose(plain.predict_proba(X), weighted.predict_proba(X))
    PosteriorCorrection(method="temperature", cv=3, price=None).fit(X, y, sample_weight=weights)
    # Some libraries count rows, some sum weights: where that differs it is refused, not guessed.
    model = PosteriorCorrection(LogisticRegression(class_weight="balanced"))
    assert clone(model).fit(X, y, sample_weight=np.full(len(y), 3.0)).odds_factor_ == pytest.approx(5.0)
    with pytest.raises(InvalidParameter, match="some libraries count rows"):
        model.fit(X, y, sample_weight=1.0 + y)


def test_it_is_a_scikit_learn_estimator(few):
    X, y = few
    model = PosteriorCorrection(make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = clone(model).fit(frame, y)
    assert (fitted.n_features_in_, *fitted.feature_names_in_) == (3, "a", "b", "c")
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(frame), fitted.predict_proba(frame))
    search = GridSearchCV(
        model, {"estimator__logisticregression__C": [0.1, 1.0], "price": [None, Budget(5)]}, cv=2, scoring="recall"
    )
    assert search.fit(X, y).best_estimator_.price == Budget(5)


@pytest.mark.parametrize(
    ("kind", "class_weight"),
    [
        (LogisticRegression, "balanced"),
        (LogisticRegression, {"low": 1.0, "middle": 4.0, "high": 15.0}),
        (ensemble.HistGradientBoostingClassifier, "balanced"),
    ],
)
def test_a_weighted_classifier_of_three_classes_gets_natural_probabilities(kind, class_weight):
    settings = {"C": 1e6} if kind is LogisticRegression else {"max_iter": 30, "max_leaf_nodes": 4}
    plain = kind(**settings).fit(X, LABELS[Y]).predict_proba(NEW)
    model = PosteriorCorrection(kind(class_weight=class_weight, **settings)).fit(X, LABELS[Y])
    assert model.classes_.tolist() == ["high", "low", "middle"]
    p = model.predict_proba(NEW)
    np.testing.assert_allclose(p.mean(axis=0), plain.mean(axis=0), atol=0.01)
    # Decisions stay those of the weighted classifier, price="training".
    np.testing.assert_array_equal(model.predict(NEW), model.estimator_.predict(NEW))
    costs = crcen.CostMatrix(10.0 * (1 - np.eye(3)))
    at_costs = PosteriorCorrection(kind(class_weight=class_weight, **settings), price=costs).fit(X, LABELS[Y])
    np.testing.assert_array_equal(at_costs.predict(NEW), at_costs.classes_[p.argmax(axis=1)])


def test_samplers_and_class_weights_of_three_classes_are_undone():
    sampler, linear = under.RandomUnderSampler(random_state=0), LogisticRegression(C=1e6)
    boosted = lightgbm.LGBMClassifier(n_estimators=20, num_leaves=4, class_weight="balanced", verbose=-1)
    sampled = PosteriorCorrection(with_sampler(sampler, linear)), PosteriorCorrection(linear, sampling=sampler)
    for model in (*sampled, PosteriorCorrection(boosted)):
        np.testing.assert_allclose(model.fit(X, Y).predict_proba(NEW).mean(axis=0), SHARES, atol=0.015)
    corrected = PosteriorCorrection(catboost(30, class_weights=(1.0, 4.0, 15.0))).fit(X, Y)
    np.testing.assert_allclose(corrected.class_factors_ / corrected.class_factors_[0], WEIGHTS)
    np.testing.assert_allclose(corrected.predict_proba(NEW).mean(axis=0), SHARES, atol=0.02)


def test_a_temperature_of_three_classes_is_fitted_out_of_fold():
    forest = ensemble.RandomForestClassifier(20, min_samples_leaf=2, random_state=0)
    plain = forest.fit(X, Y).predict_proba(NEW)
    model = PosteriorCorrection(forest, method="temperature", price=None, cv=3).fit(X, Y)
    rows_of = np.arange(len(TRUTH))

    def loss(p):
        return -np.log(np.clip(p[rows_of, TRUTH], 1e-12, 1.0)).mean()

    assert loss(model.predict_proba(NEW)) < loss(plain)


UNDER_SAMPLED = with_sampler(under.RandomUnderSampler(random_state=0), LogisticRegression())


class Homemade(ClassifierMixin, BaseEstimator):
    """From a library that is not known; takes no sample weights."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (PosteriorCorrection(Homemade()), "an unknown library; pass weighting="),
        (PosteriorCorrection(GaussianNB(priors=[0.5, 0.5])), "what priors does .* is not certain"),
        (
            PosteriorCorrection(ensemble.BaggingClassifier(LogisticRegression(class_weight="balanced"), 2)),
            "estimator__class_w",
        ),
        (PosteriorCorrection(lgbm(objective="cross_entropy")), "objective='cross_entropy'"),
        (PosteriorCorrection(LinearSVC()), "must have predict_proba: got LinearSVC"),
        (PosteriorCorrection(sampling="auto-matic"), "sampling must be 'auto', None, a share"),
        (PosteriorCorrection(sampling=1.5), "strictly between 0 and 1: got 1.5"),
        (PosteriorCorrection(weighting={0: 1}), "one weight for each of 0, 1"),
        (PosteriorCorrection(weighting="blanced"), "did you mean"),
        (PosteriorCorrection(method="platt"), "method of PosteriorCorrection must be one of"),
        (PosteriorCorrection(price=7), "strictly between 0 and 1"),
        (PosteriorCorrection(pos_label=2), "pos_label must be one of the classes 0, 1"),
        (
            PosteriorCorrection(GridSearchCV(UNDER_SAMPLED, {"logisticregression__C": [1.0]}, cv=2)),
            "what RandomUnderSampler did inside GridSearchCV cannot be determined; pass sampling=",
        ),
        (
            PosteriorCorrection(balanced_forest(sampling_strategy=lambda y: {0: 60, 1: 60})),
            "cannot be determined from sampling_s",
        ),
        (PosteriorCorrection(balanced_forest(sampling_strategy="not majority")), "sampling_strategy='not majority'"),
    ],
)
def test_what_is_not_certain_or_not_meant_is_refused(few, model, error):
    with pytest.raises(InvalidParameter, match=error):
        model.fit(*few)
    assert not hasattr(model, "classes_")
    for params, sentence in (
        ({"pos_label": 1}, "pos_label"),
        ({"price": Budget(5)}, "two classes"),
        ({"method": "isotonic", "price": None}, "isotonic"),
    ):
        with pytest.raises(InvalidParameter, match=sentence):
            PosteriorCorrection(LogisticRegression(), **params).fit(X, Y)
    told = PosteriorCorrection(Homemade(), weighting=CostRatio(4)).fit(*few)
    np.testing.assert_allclose(told.predict_proba(few[0])[:, 1], 0.2)


def test_bad_rows(few):
    X, y = few
    ones = np.ones(len(y))
    split, plain = PosteriorCorrection(method="isotonic", cv=999, price=None), PosteriorCorrection()
    for model, rows, sentence in (
        (PosteriorCorrection(UNDER_SAMPLED), (X, y, ones), "cannot follow rows through a sampler"),
        (plain, (X, 0 * y), "one class only"),
        (plain, (X, y, -ones), "sample_weight must not be negative"),
        (plain, (X, y, (y == 0).astype(float)), "every row of class 1 has sample_weight 0"),
        (split, (X, y), "by 999 cannot split"),
        (PosteriorCorrection(Homemade()), (X, y, ones), "takes no sample_weight"),
        (plain, (X, None), "a label for each row of X"),
        (plain, (X, y[1:]), "a label for each row of X"),
    ):
        with pytest.raises(InvalidInput if len(rows) == 2 else ValueError, match=sentence):
            model.fit(*rows)
    with pytest.raises(ValueError, match="NaN"):
        plain.fit(np.full_like(X, np.nan), y)


LIGHT = [
    PosteriorCorrection(LogisticRegression(max_iter=50), price=None),
    PosteriorCorrection(LogisticRegression(max_iter=50), method="isotonic", cv=2, price=None),
]


def expected_failures(estimator):
    """The prior of an isotonic map counts rows, so that results do not depend on the unit of sample weights."""
    reason = "only ratios of sample weights matter, so weight 2 for all rows is not each row twice"
    names = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
    return dict.fromkeys(names, reason) if estimator.method == "isotonic" else {}


@parametrize_with_checks(LIGHT, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


BETWEEN = st.floats(1e-6, 1 - 1e-6)


@given(BETWEEN, BETWEEN, BETWEEN)
def test_a_resampled_prior_is_undone_by_bayes_rule(p, natural, sampled):
    """Forward by Bayes' rule with exact fractions, back by the function."""
    exact, pi, new = Fraction(p), Fraction(natural), Fraction(sampled)
    pos, neg = exact * new / pi, (1 - exact) * (1 - new) / (1 - pi)
    q = float(pos / (pos + neg))
    if 1e-12 < q < 1 - 1e-6:  # beyond, q itself no longer holds p
        assert correct_proba([q], sampled_prior=sampled, natural_prior=natural)[0] == pytest.approx(p, rel=1e-8)


@pytest.mark.parametrize("same", [CostRatio(5), Budget(5), crcen.Lam(5 / 6), 5 / 6, {0: 1, 1: 5}, [1, 5]])
def test_a_weight_is_undone_as_posterior_does_and_under_sampling_as_published(same):
    """Dal Pozzolo et al. 2015: p = β q / (β q − q + 1) where a share β of the negatives is kept."""
    q, beta, natural = np.linspace(0, 1, 101), 0.05, 0.02
    np.testing.assert_allclose(correct_proba(q, weighting=same), crcen.posterior(q, CostRatio(5)), rtol=1e-12)
    sampled = natural / (natural + beta * (1 - natural))
    expected = beta * q / (beta * q - q + 1)
    np.testing.assert_allclose(correct_proba(q, sampled_prior=sampled, natural_prior=natural), expected, rtol=1e-12)


def test_two_columns_are_both_corrected_and_keep_small_numbers():
    q = np.array([[1.0, 0.0], [0.0, 1.0], [1e-300, 1.0], [1.0, 1e-300], [0.25, 0.75]])
    p = correct_proba(q, weighting=CostRatio(3))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(p[:, 0], [1.0, 0.0, 3e-300, 1.0, 0.5], rtol=1e-12)
    np.testing.assert_allclose(p[:, 1], [0.0, 1.0, 1.0, 1e-300 / 3, 0.5], rtol=1e-12)
    assert correct_proba(q[:, 1], weighting=CostRatio(3)).shape == (5,)
    p = correct_proba(np.float32([[0.3, 0.7]]), weighting=CostRatio(7 / 3))
    assert p.dtype == np.float64
    np.testing.assert_allclose(p, [[0.5, 0.5]], atol=1e-7)


@pytest.mark.parametrize(("weighting", "alpha"), [(Alpha(2), 2.0), ("balanced", 1.0)])
def test_an_alpha_needs_the_share_of_positives_among_the_rows_trained_on(weighting, alpha):
    with pytest.raises(InvalidParameter, match="needs the class shares"):
        correct_proba([0.5], weighting=weighting)
    expected = crcen.posterior(0.5, CostRatio(alpha * 99))
    assert correct_proba([0.5], weighting=weighting, natural_prior=0.01)[0] == pytest.approx(expected)
    assert correct_proba([0.5], weighting=crcen.resolve(weighting, 1, 99))[0] == pytest.approx(expected)
    # Weights on resampled rows multiply; the weighting is resolved on the resampled rows.
    q = sigmoid(np.log([0.03 / 0.97 * 4 * alpha * (0.2 / 0.8) / (0.01 / 0.99)]))
    for same in (CostRatio(4 * alpha), weighting):
        assert correct_proba(q, weighting=same, sampled_prior=0.2, natural_prior=0.01)[0] == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("q", "arguments", "error"),
    [
        ([0.2, np.nan], {"weighting": CostRatio(2)}, "NaN"),
        ([0.2, 1.2], {"weighting": CostRatio(2)}, "lie in"),
        ([[0.5, 0.5], [0.2, 0.2]], {"weighting": CostRatio(2)}, "sum to 1, got 0.4 in row 1"),
        *(([[0.2, 0.3, 0.5]], {"sampled_prior": one, "natural_prior": 0.1}, "3 shares above 0") for one in (0.5, "a")),
        (0.5, {"weighting": CostRatio(2)}, "shape"),
        (["a"], {"weighting": CostRatio(2)}, "q"),
        ([[0.2, 0.3, 0.5]], {"weighting": CostRatio(2)}, "a price for two classes, and there are 3"),
        ([0.5], {}, "nothing to correct"),
        ([0.5], {"natural_prior": 0.1}, "nothing to correct"),
        ([0.5], {"sampled_prior": 0.5}, "needs natural_prior"),
        ([0.5], {"sampled_prior": 1.0, "natural_prior": 0.1}, "strictly between"),
        ([0.5], {"sampled_prior": 0.5, "natural_prior": 0}, "above 0"),
        ([0.5], {"sampled_prior": 0.5, "natural_prior": float("nan")}, "finite"),
        ([0.5], {"weighting": 5}, "strictly between 0 and 1"),
    ],
)
def test_what_cannot_be_corrected_is_refused(q, arguments, error):
    with pytest.raises((InvalidInput, InvalidParameter), match=error):
        correct_proba(q, **arguments)


def test_weights_and_samples_of_three_classes_are_divided_out():
    p, natural = P, SHARES
    weighted = p * WEIGHTS / (p * WEIGHTS).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(correct_proba(weighted, weighting=WEIGHTS), p, rtol=1e-12)
    equal = p / natural / (p / natural).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(correct_proba(equal, sampled_prior=np.ones(3) / 3, natural_prior=natural), p, rtol=1e-9)
    np.testing.assert_allclose(correct_proba(equal, weighting="balanced", natural_prior=natural), p, rtol=1e-9)
    with pytest.raises(InvalidParameter, match="natural_prior"):
        correct_proba(equal, weighting="balanced")
    with pytest.raises(InvalidInput, match="column for each of 2"):
        correct_proba(p, weighting=Price(np.ones(2), np.ones(2)))
