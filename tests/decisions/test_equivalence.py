"""Trained at λ against cut at 1 − λ, compared with the same done by hand."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import Alpha, Budget, InvalidInput, InvalidParameter
from crcen.decisions.expense_curve import equivalence_report
from papers_training import CRCENClassifier

LINEAR = {"hidden": (), "tol": 1e-8, "random_state": 0}


@pytest.fixture(scope="module")
def halves():
    """Rows and a split of them into training and test rows."""
    rows, new = crcen.make_sim2(300, 3000, seed=1), crcen.make_sim2(300, 3000, seed=2)
    split = (np.arange(3300), np.arange(3300, 6600))
    return {"X": np.vstack([rows.X, new.X]), "y": np.concatenate([rows.y, new.y]), "cv": [split]}


def parts(halves):
    (train, test), X, y = halves["cv"][0], halves["X"], halves["y"]
    return X[train], y[train], X[test], y[test]


def test_report_is_what_two_fits_give(halves):
    X, y, X_test, y_test = parts(halves)
    report = equivalence_report(CRCENClassifier(**LINEAR), weighting=Budget(6), n_resamples=4000, **halves)
    trained = CRCENClassifier(Budget(6), **LINEAR).fit(X, y).predict(X_test) == 1
    cut = CRCENClassifier(None, **LINEAR).fit(X, y).predict_proba(X_test)[:, 1] > 1 / 7
    costs = [1000 * np.mean(np.where(y_test == 1, 6.0 * ~alarms, alarms)) for alarms in (trained, cut)]
    assert report.share_differing == pytest.approx(np.mean(trained != cut))
    assert (report.cost_trained, report.cost_cut) == pytest.approx(tuple(costs))
    assert report.difference == pytest.approx(costs[0] - costs[1])
    assert report.difference_interval[0] <= report.difference <= report.difference_interval[1]
    assert report.share_differing_by_seed == 0.0  # a convex problem has one answer, whatever the seed
    assert (report.n_rows, report.n_pos) == (3300, 300)
    # The interval is that of paired differences.
    differences = 1000 * np.where(y_test == 1, 6.0 * ~trained - 6.0 * ~cut, 1.0 * trained - 1.0 * cut)
    half = 1.96 * differences.std() / np.sqrt(len(y_test))
    low, high = report.difference_interval
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)


def test_folds_judge_every_row_once(halves):
    report = equivalence_report(CRCENClassifier(**LINEAR), halves["X"][:3300], halves["y"][:3300], cv=3)
    assert (report.n_rows, report.n_pos) == (3300, 300)
    assert report.weighting.alpha == pytest.approx(1.0)
    assert report.verdict == "no difference shown"


def test_a_network_too_strongly_penalised_cannot_be_cut():
    """l2 holds a plain network near the share of positives, so that hardly a row exceeds the threshold or all do."""
    rows = crcen.make_sim1(300, 6000, seed=3)
    report = equivalence_report(CRCENClassifier(l2=3.0, **LINEAR), rows.X, rows.y, Alpha(1))
    assert report.verdict == "trained cheaper"
    assert report.cost_trained < 0.7 * report.cost_cut


def test_any_estimator_with_class_weights(halves):
    X, y, X_test, _ = parts(halves)
    report = equivalence_report(LogisticRegression(C=0.01), weighting=Budget(6), **halves)
    trained = LogisticRegression(C=0.01, class_weight={0: 1, 1: 6}).fit(X, y).predict(X_test)
    cut = LogisticRegression(C=0.01).fit(X, y).predict_proba(X_test)[:, 1] > 1 / 7
    assert report.share_differing == pytest.approx(np.mean((trained == 1) != cut))


def test_two_seeds_of_a_network_differ_too(halves):
    model = CRCENClassifier(hidden=(8,), max_epochs=3, random_state=0)
    report = equivalence_report(model, weighting=Budget(6), **halves)
    assert 0 < report.share_differing_by_seed < 0.5
    assert f"two seeds of the plain network: {100 * report.share_differing_by_seed:.2f} %" in str(report)
    assert f"{report.difference:+.4g}" in str(report)
    assert report == equivalence_report(model, weighting=Budget(6), **halves)  # one seed, one report


def test_what_cannot_be_compared_is_refused(halves):
    X, y = halves["X"], halves["y"]
    with pytest.raises(InvalidParameter, match="at λ = ½ training with the weight is plain training"):
        equivalence_report(CRCENClassifier(**LINEAR), X, y, None)
    with pytest.raises(InvalidInput, match="two classes"):
        equivalence_report(CRCENClassifier(**LINEAR), X, np.zeros(len(X)), cv=halves["cv"])
    with pytest.raises(InvalidInput, match="the rarer class has 2 rows, fewer than the 4 folds"):
        equivalence_report(CRCENClassifier(**LINEAR), X[:50], np.arange(50) < 2)
