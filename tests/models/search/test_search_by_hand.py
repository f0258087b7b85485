"""Every number of a search, recomputed from fold networks trained one by one with `train`."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    fbeta_score,
    log_loss,
    make_scorer,
    recall_score,
    roc_auc_score,
)
from sklearn.model_selection import ShuffleSplit, StratifiedKFold

from crcen import Budget, confusion_counts, key_equation, resolve
from crcen.training.engine import train
from crcen.training.jobs import TrainingJob
from papers_training import CRCENClassifierCV

EPOCHS = 14
SEED = 3
BASE = int(np.random.RandomState(SEED).randint(2**31 - 1))
QUICK = {
    "solver": "adam", "max_epochs": EPOCHS, "batch_size": 32, "learning_rate": 0.1, "random_state": SEED,
    "encoding": "standard", "n_members": 1,
}  # fmt: skip
FIXED = {"hidden": (8,), "l2": 1e-3, "cv": 3}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(140, 4))
    y = (X[:, 0] - 0.5 * X[:, 1] + 1.2 * rng.normal(size=140) > 1.2).astype(int)
    return X, y


class ByHand:
    """Networks of one setting, trained fold by fold and epoch by epoch."""

    def __init__(self, X, y, weighting, hidden, l2, weights=None, folds=None):
        self.X, self.target = X, np.asarray(y) == 1
        self.weights = np.ones(len(X)) if weights is None else weights
        self.hidden, self.l2 = hidden, l2
        if folds is None:
            folds = list(StratifiedKFold(3, shuffle=True, random_state=BASE).split(X, y))
        self.folds = folds
        self.weightings = [self.resolved(weighting, rows) for rows, _ in folds]

    def resolved(self, weighting, rows):
        target, weights = self.target[rows], self.weights[rows]
        return resolve(weighting, weights[target].sum(), weights[~target].sum())

    def networks(self, epochs, *, balance, member=0, solver="adam"):
        """One fold after the other."""
        seed = int(np.random.SeedSequence([BASE, member]).generate_state(1)[0])
        found = []
        for weighting, (rows, _) in zip(self.weightings, self.folds, strict=True):
            how = {"hidden": self.hidden, "l2": self.l2, "solver": solver, "batch_size": 32, "learning_rate": 0.1}
            how |= {"max_epochs": EPOCHS if solver == "adam" else 500, "tol": 1e-5, "stop_epoch": epochs}
            how |= {"rows": np.sort(rows), "balance": balance, "seed": seed, "shuffle_seed": BASE}
            job = TrainingJob((1 - weighting.lam, weighting.lam), **how)
            found.append(train(self.X, self.target, [job], sample_weight=self.weights, device="cpu")[0].network)
        return found

    def logits(self, epochs, **kwargs):
        """Held-out logits, one array a fold."""
        networks = self.networks(epochs, balance=False, **kwargs)
        return [network.logits(self.X[test]) for network, (_, test) in zip(networks, self.folds, strict=True)]

    def losses(self, logits, *, natural):
        """Log loss of each fold."""
        found = []
        for own, weighting, (_, test) in zip(logits, self.weightings, self.folds, strict=True):
            target, weights = self.target[test], self.weights[test]
            class_weights = np.where(target, weighting.lam, 1 - weighting.lam)
            odds = weighting.lam / (1 - weighting.lam)
            q = expit(own - np.log(odds)) if natural else expit(own)
            found.append(log_loss(target, q, sample_weight=weights * (1.0 if natural else class_weights)))
        return np.array(found)


def fold_scores(clf, setting=0):
    return np.array([clf.cv_results_[f"split{i}_test_score"][setting] for i in range(clf.n_splits_)])


def brier(estimator, X, y):
    """A callable of one's own."""
    return -brier_score_loss(y, estimator.predict_proba(X)[:, 1])


def g_mean_of(target, called, weights):
    parts = [recall_score(target, called, sample_weight=weights, pos_label=label) for label in (1, 0)]
    return np.sqrt(np.prod(parts))


# What is asked for, and the same from scikit-learn: of target, weighted logits o, natural posterior p and weights w.
SCORINGS = {
    "f1": ("f1", lambda t, o, p, w: f1_score(t, o > 0, sample_weight=w)),
    "g_mean": ("g_mean", lambda t, o, p, w: g_mean_of(t, o > 0, w)),
    "average_precision": ("average_precision", lambda t, o, p, w: average_precision_score(t, o, sample_weight=w)),
    # scikit-learn's own scorers are not told of weights.
    "roc_auc": ("roc_auc", lambda t, o, p, w: roc_auc_score(t, o)),
    "balanced_accuracy": ("balanced_accuracy", lambda t, o, p, w: balanced_accuracy_score(t, o > 0)),
    "neg_brier_score": ("neg_brier_score", lambda t, o, p, w: -brier_score_loss(t, p)),
    "make_scorer": (make_scorer(fbeta_score, beta=2), lambda t, o, p, w: fbeta_score(t, o > 0, beta=2)),
    "callable": (brier, lambda t, o, p, w: -brier_score_loss(t, p)),
}


class TestScores:
    @pytest.mark.parametrize("weighting", ["balanced", Budget(3)], ids=str)
    @pytest.mark.parametrize("is_weighted", [False, True])
    @pytest.mark.parametrize("scoring", ["neg_weighted_log_loss", "neg_log_loss"])
    def test_log_losses_and_the_epoch_they_choose(self, data, scoring, is_weighted, weighting):
        X, y = data
        weights = np.random.default_rng(0).exponential(size=len(y)) if is_weighted else None
        clf = CRCENClassifierCV(weighting, scoring=scoring, **FIXED, **QUICK).fit(X, y, sample_weight=weights)
        hand = ByHand(X, y, weighting, (8,), 1e-3, weights)
        natural = scoring == "neg_log_loss"
        by_epoch = np.array([hand.losses(hand.logits(e), natural=natural) for e in range(1, EPOCHS + 1)])
        means = by_epoch.mean(axis=1)
        assert means[clf.best_epochs_ - 1] == pytest.approx(means.min(), abs=1e-4)
        assert np.ptp(means) > 1e-2
        np.testing.assert_allclose(fold_scores(clf), -by_epoch[clf.best_epochs_ - 1], rtol=1e-3)
        assert clf.best_score_ == pytest.approx(-means.min(), rel=1e-3)
        assert clf.cv_results_["std_test_score"][0] == pytest.approx(by_epoch[clf.best_epochs_ - 1].std(), rel=1e-2)

    @pytest.mark.parametrize("name", SCORINGS)
    def test_other_scores(self, data, name):
        X, y = data
        weights = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
        scoring, metric = SCORINGS[name]
        clf = CRCENClassifierCV(Budget(2), scoring=scoring, **FIXED, **QUICK).fit(X, y, sample_weight=weights)
        hand = ByHand(X, y, Budget(2), (8,), 1e-3, weights)
        expected = [
            metric(hand.target[test], own, expit(own - np.log(2.0)), hand.weights[test])
            for own, (_, test) in zip(hand.logits(clf.best_epochs_), hand.folds, strict=True)
        ]
        np.testing.assert_allclose(fold_scores(clf), expected, rtol=1e-3)
        # The epoch is still that of the least weighted log loss.
        default = CRCENClassifierCV(Budget(2), **FIXED, **QUICK).fit(X, y, sample_weight=weights)
        assert clf.best_epochs_ == default.best_epochs_

    def test_a_full_batch_search_has_no_epochs(self, data):
        X, y = data
        clf = CRCENClassifierCV(hidden=(), l2=[1e-2, 1.0], encoding="standard", cv=3, random_state=SEED).fit(X, y)
        assert clf.best_epochs_ is None
        for setting, l2 in enumerate((1e-2, 1.0)):
            hand = ByHand(X, y, "balanced", (), l2)
            losses = hand.losses(hand.logits(None, solver="lbfgs"), natural=False)
            np.testing.assert_allclose(fold_scores(clf, setting), -losses, rtol=1e-6)

    @pytest.mark.parametrize("name", ["roc_auc", "balanced_accuracy", "neg_brier_score"])
    def test_scorers_see_the_labels_that_were_given(self, data, name):
        X, y = data
        scoring, _ = SCORINGS[name]
        plain = CRCENClassifierCV(scoring=scoring, **FIXED, **QUICK).fit(X, y)
        flipped = CRCENClassifierCV(scoring=scoring, **FIXED, **QUICK).fit(X, np.where(y == 1, 0, 1))
        assert flipped.pos_label_ == 0
        np.testing.assert_allclose(fold_scores(flipped), fold_scores(plain), rtol=1e-6)
        named = np.where(y == 1, "a rare one", "the usual")
        if name != "neg_brier_score":  # scikit-learn wants a pos_label there
            of_strings = CRCENClassifierCV(scoring=scoring, **FIXED, **QUICK).fit(X, named)
            np.testing.assert_allclose(fold_scores(of_strings), fold_scores(plain), rtol=1e-6)


class TestOutOfFold:
    @pytest.mark.parametrize("n_members", [1, 2])
    @pytest.mark.parametrize("balance", [True, False])
    @pytest.mark.parametrize("labels", [("no", "yes"), ("yes", "no")], ids=["rare last", "rare first"])
    def test_logits_of_fold_networks(self, data, labels, balance, n_members):
        X, y = data
        # Sorted: "no" < "yes"; the rare class is classes_[1] or classes_[0].
        named = np.where(y == 1, labels[1], labels[0])
        clf = CRCENClassifierCV(balance=balance, **FIXED, **(QUICK | {"n_members": n_members})).fit(X, named)
        assert clf.pos_label_ == labels[1]
        hand = ByHand(X, y, "balanced", (8,), 1e-3)
        members = [hand.networks(clf.best_epochs_, balance=balance, member=m) for m in range(n_members)]
        expected = np.full(len(X), np.nan)
        for fold, (_, test) in enumerate(hand.folds):
            expected[test] = np.mean([networks[fold].logits(X[test]) for networks in members], axis=0)
        sign = 1.0 if labels[1] == "yes" else -1.0
        np.testing.assert_allclose(clf.oof_decision_function_, sign * expected, rtol=1e-3, atol=1e-3)
        # Oriented as decision_function is.
        assert np.corrcoef(clf.oof_decision_function_, clf.decision_function(X))[0, 1] > 0.5
        assert clf.oof_decision_function_.dtype == np.float64

    def test_key_equation_of_out_of_fold_rows(self, data):
        X, y = data
        weights = np.random.default_rng(2).exponential(size=len(y))
        clf = CRCENClassifierCV(Budget(3), balance=True, **FIXED, **QUICK).fit(X, y, sample_weight=weights)
        expected = key_equation(y, expit(clf.oof_decision_function_), clf.weighting_, weights)
        for name in ("lhs", "rhs", "residual", "imbalance", "mean_pos", "mean_neg"):
            assert getattr(clf.oof_key_equation_, name) == pytest.approx(getattr(expected, name), rel=1e-9)
        # Folds share their rows, so that Z has no law there.
        assert np.isnan([clf.oof_key_equation_.z, clf.oof_key_equation_.p_value]).all()
        assert "no fold has seen" in clf.oof_key_equation_.z_reason
        assert clf.oof_key_equation_.residual > 1e-6

    def test_rows_in_no_test_fold_are_nan(self, data):
        X, y = data
        cv = ShuffleSplit(2, test_size=0.3, random_state=0)
        clf = CRCENClassifierCV(balance=True, **(FIXED | {"cv": cv}), **QUICK).fit(X, y)
        folds = list(cv.split(X, y))
        seen = np.zeros(len(X), dtype=bool)
        for _, test in folds:
            seen[test] = True
        assert 0 < seen.sum() < len(X)
        np.testing.assert_array_equal(np.isfinite(clf.oof_decision_function_), seen)
        expected = key_equation(y[seen], expit(clf.oof_decision_function_[seen]), clf.weighting_)
        assert clf.oof_key_equation_.residual == pytest.approx(expected.residual, rel=1e-9)
        counts = clf.oof_counts_[0]
        assert counts.tp + counts.fp + counts.fn + counts.tn == seen.sum()
        hand = ByHand(X, y, "balanced", (8,), 1e-3, folds=folds)
        last = hand.networks(clf.best_epochs_, balance=True)[-1]
        test = folds[-1][1]
        np.testing.assert_allclose(clf.oof_decision_function_[test], last.logits(X[test]), rtol=1e-3, atol=1e-3)

    @pytest.mark.parametrize("n_members", [1, 2])
    @pytest.mark.parametrize("is_flipped", [False, True])
    def test_balance_on_out_of_fold_rows(self, data, is_flipped, n_members):
        X, y = data
        y = 1 - y if is_flipped else y
        weights = np.random.default_rng(3).exponential(size=len(y))
        how = {**FIXED, **QUICK, "n_members": n_members}
        solved, plain = (
            CRCENClassifierCV(Budget(3), balance=balance, **how).fit(X, y, sample_weight=weights)
            for balance in ("oof", False)
        )
        positive, sign = y == solved.pos_label_, -1.0 if is_flipped else 1.0
        q = expit(sign * solved.oof_decision_function_)
        w = weights * np.where(positive, 0.75, 0.25)
        assert abs(np.sum(w * (positive - q))) / w.sum() <= 1e-12
        # The evidence is that before the solve, and the shift says how far off it was.
        assert solved.oof_key_equation_.residual == pytest.approx(plain.oof_key_equation_.residual, rel=1e-6)
        assert solved.oof_shift_ == pytest.approx(solved.probability_map_[1])
        assert plain.oof_shift_ == 0.0
        shifts = solved.oof_decision_function_ - plain.oof_decision_function_
        assert abs(shifts[0]) > 1e-6
        for moved in (shifts, solved.decision_function(X) - plain.decision_function(X)):
            np.testing.assert_allclose(moved, shifts[0], rtol=0, atol=1e-10)
        assert solved.probability_map_[1] == pytest.approx(sign * shifts[0])
        # It is exact on these rows, not on the training rows.
        assert solved.key_equation_.residual < 1e-12
        own = key_equation(positive, expit(sign * solved.decision_function(X)), solved.weighting_, weights)
        assert own.residual > 1e-6

    def test_counts_of_every_weighting_at_its_own_best_setting(self, data):
        X, y = data
        weightings, penalties = [Budget(1), Budget(8), "balanced"], [1e-3, 3.0]
        weights = np.random.default_rng(4).integers(1, 4, len(y)).astype(float)
        clf = CRCENClassifierCV(weightings, hidden=(8,), l2=penalties, cv=3, **QUICK).fit(X, y, sample_weight=weights)
        table = clf.cv_results_
        for i, (weighting, counts) in enumerate(zip(weightings, clf.oof_counts_, strict=True)):
            own = [k for k, params in enumerate(table["params"]) if params["weighting"] == weighting]
            assert own == [2 * i, 2 * i + 1]
            best = max(own, key=lambda k: table["mean_test_score"][k])
            hand = ByHand(X, y, weighting, (8,), table["params"][best]["l2"], weights)
            logits = np.empty(len(X))
            for part, (_, test) in zip(hand.logits(int(table["epochs"][best])), hand.folds, strict=True):
                logits[test] = part
            assert counts == confusion_counts(y, logits > 0, weights)
