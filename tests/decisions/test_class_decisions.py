"""Decisions and corrections for K classes, of any classifier."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, recall_score

import crcen
from crcen import CostMatrix, PosteriorCorrection, correct_proba, decide, decision_summary, g_mean
from crcen.theory.metrics import decision_counts
from crcen.theory.price import Price

RNG = np.random.default_rng(0)
LABELS = np.array(["low", "middle", "high"])
WEIGHTS = np.array([1.0, 4.0, 15.0])
SHARES = np.array([0.75, 0.17, 0.08])


def rows(n, seed):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(3), rng.choice(3, n - 3, p=SHARES)])
    centres = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])
    return centres[y] + rng.normal(size=(n, 2)), y


X, Y = rows(3000, 1)
NEW, TRUTH = rows(20000, 2)


def p_of(n):
    p = RNG.dirichlet([1.0, 1.0, 1.0], n)
    return p / p.sum(axis=1, keepdims=True)


def test_counts_are_scikit_learns():
    y, decided, s = RNG.integers(0, 3, 300), RNG.integers(0, 3, 300), RNG.uniform(0.5, 2.0, 300)
    counts = decision_counts(y, decided, 3, s)
    assert counts.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, decided, sample_weight=s))
    assert counts.macro_f1 == pytest.approx(f1_score(y, decided, average="macro", sample_weight=s))
    recalls = recall_score(y, decided, average=None, sample_weight=s)
    assert counts.g_mean == pytest.approx(np.prod(recalls) ** (1 / 3))
    assert g_mean(y, decided, s) == pytest.approx(counts.g_mean)


def test_weights_decide_as_their_costs():
    p, weights = p_of(200), Price(WEIGHTS, np.ones(3))
    np.testing.assert_array_equal(decide(p, weights), (p * WEIGHTS).argmax(axis=1))


def test_a_summary_says_what_decisions_cost():
    p = p_of(400)
    y = np.array([RNG.choice(3, p=one) for one in p])
    costs = CostMatrix(np.column_stack([WEIGHTS[:, None] * (1 - np.eye(3)), np.full(3, 0.8)]), LABELS, ["review"])
    summary = decision_summary(p, costs, LABELS[y])
    expected = p @ costs.costs
    chosen = expected.argmin(axis=1)
    assert summary.expected_cost == pytest.approx(expected.min(axis=1).sum())
    assert summary.constant_costs.min() == pytest.approx(expected.sum(axis=0).min())
    assert summary.realised_cost == pytest.approx(costs.costs[y, chosen].sum())
    np.testing.assert_array_equal(summary.n_decided, np.bincount(chosen, minlength=4))
    np.testing.assert_allclose(summary.expected.sum(axis=1), p.sum(axis=0))
    assert summary.counts.table.shape == (3, 4)
    assert "review" in str(summary)


def test_weights_and_samples_are_divided_out():
    p, natural = p_of(50), SHARES
    weighted = p * WEIGHTS / (p * WEIGHTS).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(correct_proba(weighted, weighting=WEIGHTS), p, rtol=1e-12)
    equal = p / natural / (p / natural).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(correct_proba(equal, sampled_prior=np.ones(3) / 3, natural_prior=natural), p, rtol=1e-9)
    np.testing.assert_allclose(correct_proba(equal, weighting="balanced", natural_prior=natural), p, rtol=1e-9)
    with pytest.raises(crcen.InvalidParameter, match="natural_prior"):
        correct_proba(equal, weighting="balanced")


@pytest.mark.parametrize(
    ("kind", "class_weight"),
    [
        (LogisticRegression, "balanced"),
        (LogisticRegression, {"low": 1.0, "middle": 4.0, "high": 15.0}),
        (HistGradientBoostingClassifier, "balanced"),
    ],
)
def test_a_weighted_classifier_gets_natural_probabilities(kind, class_weight):
    settings = {"C": 1e6} if kind is LogisticRegression else {"max_iter": 30, "max_leaf_nodes": 4}
    plain = kind(**settings).fit(X, LABELS[Y]).predict_proba(NEW)
    model = PosteriorCorrection(kind(class_weight=class_weight, **settings)).fit(X, LABELS[Y])
    assert model.classes_.tolist() == ["high", "low", "middle"]
    p = model.predict_proba(NEW)
    np.testing.assert_allclose(p.mean(axis=0), plain.mean(axis=0), atol=0.01)
    # Decisions stay those of the weighted classifier, price="training".
    np.testing.assert_array_equal(model.predict(NEW), model.estimator_.predict(NEW))
    costs = CostMatrix(10.0 * (1 - np.eye(3)))
    at_costs = PosteriorCorrection(kind(class_weight=class_weight, **settings), price=costs).fit(X, LABELS[Y])
    np.testing.assert_array_equal(at_costs.predict(NEW), at_costs.classes_[p.argmax(axis=1)])


def test_a_sampler_is_undone():
    imblearn = pytest.importorskip("imblearn")
    under = imblearn.under_sampling.RandomUnderSampler(random_state=0)
    pipeline = imblearn.pipeline.make_pipeline(under, LogisticRegression(C=1e6))
    for model in (PosteriorCorrection(pipeline), PosteriorCorrection(LogisticRegression(C=1e6), sampling=under)):
        p = model.fit(X, Y).predict_proba(NEW)
        np.testing.assert_allclose(p.mean(axis=0), SHARES, atol=0.015)


def test_weights_of_lightgbm_and_catboost_are_read():
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=20, num_leaves=4, class_weight="balanced", verbose=-1)
    p = PosteriorCorrection(model).fit(X, Y).predict_proba(NEW)
    np.testing.assert_allclose(p.mean(axis=0), SHARES, atol=0.015)
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(
        iterations=30, depth=3, class_weights=(1.0, 4.0, 15.0), verbose=0, allow_writing_files=False
    )
    corrected = PosteriorCorrection(model).fit(X, Y)
    np.testing.assert_allclose(corrected.class_factors_ / corrected.class_factors_[0], WEIGHTS)
    np.testing.assert_allclose(corrected.predict_proba(NEW).mean(axis=0), SHARES, atol=0.02)


def test_a_temperature_is_fitted_out_of_fold():
    forest = RandomForestClassifier(20, min_samples_leaf=2, random_state=0)
    plain = forest.fit(X, Y).predict_proba(NEW)
    model = PosteriorCorrection(forest, method="temperature", price=None, cv=3).fit(X, Y)
    rows_of = np.arange(len(TRUTH))

    def loss(p):
        return -np.log(np.clip(p[rows_of, TRUTH], 1e-12, 1.0)).mean()

    assert loss(model.predict_proba(NEW)) < loss(plain)


def test_what_cannot_be_is_refused():
    with pytest.raises(crcen.InvalidParameter, match="pos_label"):
        PosteriorCorrection(LogisticRegression(), pos_label=1).fit(X, Y)
    with pytest.raises(crcen.InvalidParameter, match="price for two classes"):
        PosteriorCorrection(LogisticRegression(), price=crcen.Budget(5)).fit(X, Y)
    with pytest.raises(crcen.InvalidParameter, match="isotonic"):
        PosteriorCorrection(LogisticRegression(), method="isotonic", price=None).fit(X, Y)
    with pytest.raises(crcen.InvalidInput, match="column for each of 2"):
        correct_proba(p_of(5), weighting=Price(np.ones(2), np.ones(2)))


class TestRecallsOfClasses:
    model = LogisticRegression(C=1e6).fit(X, LABELS[Y])

    @pytest.mark.parametrize("asked", [{"high": 0.9}, {"high": 0.8, "middle": 0.7}, {"high": 0.3, "low": 0.5}])
    def test_the_least_weights_with_these_recalls(self, asked):
        found = crcen.choose_weighting(self.model, asked, NEW, LABELS[TRUTH])
        p, classes = self.model.predict_proba(NEW), self.model.classes_
        w = np.array([found.weighting[label] for label in classes])
        truth = np.searchsorted(classes, LABELS[TRUTH])
        recalls = decision_counts(truth, (p * w).argmax(axis=1), 3).recalls
        np.testing.assert_allclose(found.counts.recalls, recalls)
        for label, recall in asked.items():
            k = classes.tolist().index(label)
            assert recalls[k] >= recall
            if w[k] > 1.0:  # with any less it would not be reached
                less = w * np.where(np.arange(3) == k, 1.0 - 1e-6, 1.0)
                assert decision_counts(truth, (p * less).argmax(axis=1), 3).recalls[k] < recall
        assert all(found.weighting[label] == 1.0 for label in set(LABELS) - set(asked))
        assert "recall" in str(found)

    def test_what_cannot_be_met_is_refused(self):
        with pytest.raises(crcen.InvalidParameter, match="cannot be reached together"):
            crcen.choose_weighting(self.model, dict.fromkeys(LABELS, 0.97), NEW, LABELS[TRUTH])
        with pytest.raises(crcen.InvalidParameter, match="of the classes"):
            crcen.choose_weighting(self.model, {"tall": 0.9}, NEW, LABELS[TRUTH])
        with pytest.raises(crcen.InvalidParameter, match="at most 1"):
            crcen.choose_weighting(self.model, {"high": 90}, NEW, LABELS[TRUTH])


@pytest.mark.parametrize(
    "price", [dict(zip(LABELS, WEIGHTS, strict=True)), CostMatrix(WEIGHTS[:, None] * (1 - np.eye(3)), LABELS)]
)
def test_a_scorer_takes_prices_of_more_than_two_classes(price):
    model = LogisticRegression(C=1e6).fit(X, LABELS[Y])
    w = dict(zip(LABELS, WEIGHTS, strict=True))
    own = np.array([w[label] for label in model.classes_])
    decided = model.classes_[(model.predict_proba(NEW) * own).argmax(axis=1)]
    cost = np.where(decided == LABELS[TRUTH], 0.0, WEIGHTS[TRUTH]).mean()
    assert crcen.cost_scorer(price)(model, NEW, LABELS[TRUTH]) == pytest.approx(-cost)
