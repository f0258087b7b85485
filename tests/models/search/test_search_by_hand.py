"""Every number of a search of two classes by fold networks trained one by one, and the search of K classes."""

from functools import partial

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax
from sklearn import metrics
from sklearn.model_selection import RepeatedStratifiedKFold, ShuffleSplit, StratifiedKFold

import crcen
from crcen import Budget, CostMatrix, InvalidInput, InvalidParameter, TimeSplit, confusion_counts, key_equation, resolve
from crcen.models.search.run import SCORES, log_losses
from crcen.theory.price import Labels
from crcen.training.engine import train
from crcen.training.jobs import TrainingJob
from example_rows import LABELS, WEIGHTS, gaussian_classes, rare_rows
from grouped_settings import grouped
from papers_training import CRCENClassifierCV

EPOCHS = 14
SEED = 3
BASE = int(np.random.RandomState(SEED).randint(2**31 - 1))
QUICK = {
    "solver": "adam", "max_epochs": EPOCHS, "batch_size": 32, "learning_rate": 0.1, "random_state": SEED,
    "encoding": "standard", "n_members": 1,
}  # fmt: skip
FIXED = {"hidden": (8,), "l2": 1e-3, "cv": 3}
TWICE = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)

X, Y = rare_rows(140, 4)


def search(weighting="balanced", **settings):
    return CRCENClassifierCV(weighting, **FIXED | QUICK | settings)


class ByHand:
    """Networks of one setting, trained fold by fold and epoch by epoch."""

    def __init__(self, weighting="balanced", hidden=(8,), l2=1e-3, weights=None, folds=None):
        self.target, self.hidden, self.l2 = Y == 1, hidden, l2
        self.weights = np.ones(len(X)) if weights is None else weights
        self.folds = folds or list(StratifiedKFold(3, shuffle=True, random_state=BASE).split(X, Y))
        self.weightings = [self.resolved(weighting, rows) for rows, _ in self.folds]

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
            found.append(train(X, self.target, [job], sample_weight=self.weights, device="cpu")[0].network)
        return found

    def logits(self, epochs, **kwargs):
        """Held-out logits, one array a fold."""
        networks = self.networks(epochs, balance=False, **kwargs)
        return [network.logits(X[test]) for network, (_, test) in zip(networks, self.folds, strict=True)]

    def losses(self, logits, *, natural):
        """Log loss of each fold."""
        found = []
        for own, weighting, (_, test) in zip(logits, self.weightings, self.folds, strict=True):
            target, weights = self.target[test], self.weights[test]
            class_weights = np.where(target, weighting.lam, 1 - weighting.lam)
            q = expit(own - np.log(weighting.lam / (1 - weighting.lam))) if natural else expit(own)
            found.append(metrics.log_loss(target, q, sample_weight=weights * (1.0 if natural else class_weights)))
        return np.array(found)


def fold_scores(clf, setting=0):
    return np.array([clf.cv_results_[f"split{i}_test_score"][setting] for i in range(clf.n_splits_)])


def brier(estimator, X, y):
    """A callable of one's own."""
    return -metrics.brier_score_loss(y, estimator.predict_proba(X)[:, 1])


def g_mean_of(target, called, weights):
    parts = [metrics.recall_score(target, called, sample_weight=weights, pos_label=label) for label in (1, 0)]
    return np.sqrt(np.prod(parts))


PRECISION, F2 = metrics.average_precision_score, partial(metrics.fbeta_score, beta=2)
# What is asked for, and the same from scikit-learn: of target, weighted logits o, natural posterior p and weights w.
SCORINGS = {
    "f1": ("f1", lambda t, o, p, w: metrics.f1_score(t, o > 0, sample_weight=w)),
    "g_mean": ("g_mean", lambda t, o, p, w: g_mean_of(t, o > 0, w)),
    "average_precision": ("average_precision", lambda t, o, p, w: PRECISION(t, o, sample_weight=w)),
    # scikit-learn's own scorers are not told of weights.
    "roc_auc": ("roc_auc", lambda t, o, p, w: metrics.roc_auc_score(t, o)),
    "balanced_accuracy": ("balanced_accuracy", lambda t, o, p, w: metrics.balanced_accuracy_score(t, o > 0)),
    "neg_brier_score": ("neg_brier_score", lambda t, o, p, w: -metrics.brier_score_loss(t, p)),
    "make_scorer": (metrics.make_scorer(F2), lambda t, o, p, w: F2(t, o > 0)),
    "callable": (brier, lambda t, o, p, w: -metrics.brier_score_loss(t, p)),
}


@pytest.mark.parametrize("weighting", ["balanced", Budget(3)], ids=str)
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("scoring", ["neg_weighted_log_loss", "neg_log_loss"])
def test_log_losses_and_the_epoch_they_choose(scoring, is_weighted, weighting):
    weights = np.random.default_rng(0).exponential(size=len(Y)) if is_weighted else None
    clf = search(weighting, scoring=scoring).fit(X, Y, sample_weight=weights)
    hand = ByHand(weighting, weights=weights)
    natural = scoring == "neg_log_loss"
    by_epoch = np.array([hand.losses(hand.logits(e), natural=natural) for e in range(1, EPOCHS + 1)])
    means, best = by_epoch.mean(axis=1), by_epoch[clf.best_epochs_ - 1]
    assert best.mean() == pytest.approx(means.min(), abs=1e-4)
    assert np.ptp(means) > 1e-2
    np.testing.assert_allclose(fold_scores(clf), -best, rtol=1e-3)
    assert clf.best_score_ == pytest.approx(-means.min(), rel=1e-3)
    assert clf.cv_results_["std_test_score"][0] == pytest.approx(best.std(), rel=1e-2)


@pytest.mark.parametrize("name", SCORINGS)
def test_other_scores(name):
    weights = np.random.default_rng(1).integers(1, 4, len(Y)).astype(float)
    scoring, metric = SCORINGS[name]
    clf = search(Budget(2), scoring=scoring).fit(X, Y, sample_weight=weights)
    hand = ByHand(Budget(2), weights=weights)
    expected = [
        metric(hand.target[test], own, expit(own - np.log(2.0)), hand.weights[test])
        for own, (_, test) in zip(hand.logits(clf.best_epochs_), hand.folds, strict=True)
    ]
    np.testing.assert_allclose(fold_scores(clf), expected, rtol=1e-3)
    # The epoch is still that of the least weighted log loss.
    assert clf.best_epochs_ == search(Budget(2)).fit(X, Y, sample_weight=weights).best_epochs_


def test_a_full_batch_search_has_no_epochs():
    clf = CRCENClassifierCV(hidden=(), l2=[1e-2, 1.0], encoding="standard", cv=3, random_state=SEED).fit(X, Y)
    assert clf.best_epochs_ is None
    for setting, l2 in enumerate((1e-2, 1.0)):
        hand = ByHand(hidden=(), l2=l2)
        losses = hand.losses(hand.logits(None, solver="lbfgs"), natural=False)
        np.testing.assert_allclose(fold_scores(clf, setting), -losses, rtol=1e-6)


@pytest.mark.parametrize("name", ["roc_auc", "balanced_accuracy", "neg_brier_score"])
def test_scorers_see_the_labels_that_were_given(name):
    plain = search(scoring=name).fit(X, Y)
    for labels in ((1, 0), ("the usual", "a rare one")):
        if name != "neg_brier_score" or labels == (1, 0):  # scikit-learn wants a pos_label there
            named = search(scoring=name).fit(X, np.array(labels)[Y])
            assert named.pos_label_ == labels[1]
            np.testing.assert_allclose(fold_scores(named), fold_scores(plain), rtol=1e-6)


@pytest.mark.parametrize("n_members", [1, 2])
@pytest.mark.parametrize("balance", [True, False])
@pytest.mark.parametrize("labels", [("no", "yes"), ("yes", "no")], ids=["rare last", "rare first"])
def test_logits_of_fold_networks(labels, balance, n_members):
    clf = search(balance=balance, n_members=n_members).fit(X, np.array(labels)[Y])
    assert clf.pos_label_ == labels[1]
    hand = ByHand()
    members = [hand.networks(clf.best_epochs_, balance=balance, member=m) for m in range(n_members)]
    expected = np.full(len(X), np.nan)
    for fold, (_, test) in enumerate(hand.folds):
        expected[test] = np.mean([networks[fold].logits(X[test]) for networks in members], axis=0)
    sign = 1.0 if labels[1] == "yes" else -1.0
    np.testing.assert_allclose(clf.oof_decision_function_, sign * expected, rtol=1e-3, atol=1e-3)
    # Oriented as decision_function is.
    assert np.corrcoef(clf.oof_decision_function_, clf.decision_function(X))[0, 1] > 0.5
    assert clf.oof_decision_function_.dtype == np.float64


def test_key_equation_of_out_of_fold_rows():
    weights = np.random.default_rng(2).exponential(size=len(Y))
    clf = search(Budget(3), balance=True).fit(X, Y, sample_weight=weights)
    expected = key_equation(Y, expit(clf.oof_decision_function_), clf.weighting_, weights)
    for name in ("lhs", "rhs", "residual", "imbalance", "mean_pos", "mean_neg"):
        assert getattr(clf.oof_key_equation_, name) == pytest.approx(getattr(expected, name), rel=1e-9)
    # Folds share their rows, so that Z has no law there.
    assert np.isnan([clf.oof_key_equation_.z, clf.oof_key_equation_.p_value]).all()
    assert "were not used in training" in clf.oof_key_equation_.z_reason
    assert clf.oof_key_equation_.residual > 1e-6


@pytest.mark.parametrize("n_members", [1, 2])
@pytest.mark.parametrize("cv", [ShuffleSplit(2, test_size=0.3, random_state=0), TWICE], ids=["in none", "in two"])
def test_rows_in_no_test_fold_are_nan_and_rows_in_two_have_all_members_of_the_last(cv, n_members):
    clf, folds = search(balance=False, cv=cv, n_members=n_members).fit(X, Y), list(cv.split(X, Y))
    members = [ByHand(folds=folds).networks(clf.best_epochs_, balance=False, member=m) for m in range(n_members)]
    expected = np.full(len(X), np.nan)
    for networks, (_, test) in zip(zip(*members, strict=True), folds, strict=True):
        expected[test] = np.mean([network.logits(X[test]) for network in networks], axis=0)
    np.testing.assert_allclose(clf.oof_decision_function_, expected, rtol=1e-3, atol=1e-3)
    seen = np.isfinite(expected)
    assert seen.all() == (cv is TWICE)
    equation = key_equation(Y[seen], expit(clf.oof_decision_function_[seen]), clf.weighting_)
    assert clf.oof_key_equation_.residual == pytest.approx(equation.residual, rel=1e-9)
    counts = clf.oof_counts_[0]
    assert counts.tp + counts.fp + counts.fn + counts.tn == seen.sum()


@pytest.mark.parametrize("n_members", [1, 2])
@pytest.mark.parametrize("is_flipped", [False, True])
def test_balance_on_out_of_fold_rows(is_flipped, n_members):
    y = 1 - Y if is_flipped else Y
    weights = np.random.default_rng(3).exponential(size=len(y))
    solved, plain = (
        search(Budget(3), balance=balance, n_members=n_members).fit(X, y, sample_weight=weights)
        for balance in ("oof", False)
    )
    positive, sign = y == solved.pos_label_, -1.0 if is_flipped else 1.0
    q = expit(sign * solved.oof_decision_function_)
    w = weights * np.where(positive, 0.75, 0.25)
    assert abs(np.sum(w * (positive - q))) / w.sum() <= 1e-12
    # The evidence is that before the solve, and the shift says how far off it was.
    assert solved.oof_key_equation_.residual == pytest.approx(plain.oof_key_equation_.residual, rel=1e-6)
    assert (solved.oof_shift_, plain.oof_shift_) == (pytest.approx(solved.probability_map_[1]), 0.0)
    shifts = solved.oof_decision_function_ - plain.oof_decision_function_
    assert abs(shifts[0]) > 1e-6
    for moved in (shifts, solved.decision_function(X) - plain.decision_function(X)):
        np.testing.assert_allclose(moved, shifts[0], rtol=0, atol=1e-10)
    assert solved.probability_map_[1] == pytest.approx(sign * shifts[0])
    # It is exact on these rows, not on the training rows.
    assert solved.key_equation_.residual < 1e-12
    own = key_equation(positive, expit(sign * solved.decision_function(X)), solved.weighting_, weights)
    assert own.residual > 1e-6


def test_counts_of_every_weighting_at_its_own_best_setting():
    weightings, penalties = [Budget(1), Budget(8), "balanced"], [1e-3, 3.0]
    weights = np.random.default_rng(4).integers(1, 4, len(Y)).astype(float)
    clf = search(weightings, l2=penalties).fit(X, Y, sample_weight=weights)
    table = clf.cv_results_
    for i, (weighting, counts) in enumerate(zip(weightings, clf.oof_counts_, strict=True)):
        own = [k for k, params in enumerate(table["params"]) if params["weighting"] == weighting]
        assert own == [2 * i, 2 * i + 1]
        best = max(own, key=lambda k: table["mean_test_score"][k])
        hand = ByHand(weighting, l2=table["params"][best]["l2"], weights=weights)
        logits = np.empty(len(X))
        for part, (_, test) in zip(hand.logits(int(table["epochs"][best])), hand.folds, strict=True):
            logits[test] = part
        assert counts == confusion_counts(Y, logits > 0, weights)


# -- K classes ---------------------------------------------------------------------------------------------------------

ROWS, NUMBERS, _ = gaussian_classes(300, 0, each=6)
ORDER = np.random.default_rng(0).permutation(300)
ROWS, NUMBERS = ROWS[ORDER], NUMBERS[ORDER]
NAMES = LABELS[NUMBERS]
HALVES = [(np.arange(150), np.arange(150, 300)), (np.arange(150, 300), np.arange(150))]


def of_classes(weighting=WEIGHTS, **settings):
    light = {"hidden": (), "l2": 1e-2, "encoding": "standard", "n_members": 2, "max_epochs": 6, "cv": 3}
    return crcen.CRCENClassifierCV(weighting, **grouped(random_state=0, **light | settings))


def residual(q):
    """Largest flow between classes, as a share of all weight."""
    return np.abs(WEIGHTS[NUMBERS] @ (np.eye(4)[NUMBERS] - q)).max() / WEIGHTS[NUMBERS].sum()


def test_classes_are_balanced_out_of_fold_and_the_refit_answers():
    how = {"training_weighting": "price", "balance": "oof", "probability": "shift"}
    fitted = of_classes(hidden=[(), (4,)], l2=[1e-3, 1e-1], **how).fit(ROWS, NAMES)
    assert fitted.key_equation_.residual <= 1e-12
    assert "out-of-fold" in fitted.key_equation_.rows
    assert fitted.oof_key_equation_.residual > 1e-6
    assert "errors cancel" in fitted.oof_key_equation_.equations.reason
    assert residual(softmax(fitted.oof_decision_function_, axis=1)) <= 1e-12
    assert fitted.oof_shift_.shape == (4,)
    p = fitted.predict_proba(ROWS)
    np.testing.assert_array_equal(fitted.predict(ROWS), LABELS[(WEIGHTS * p).argmax(axis=1)])
    assert metrics.log_loss(NAMES, p) < 0.6
    assert fitted.best_params_["hidden"] in [(), (4,)]
    assert len(fitted.cv_results_["params"]) == 4
    (counts,) = fitted.oof_counts_  # every row once
    np.testing.assert_array_equal(counts.sum(axis=1), np.bincount(NUMBERS))


def test_scores_of_classes_are_scikit_learns_and_losses_those_of_the_posterior():
    rng = np.random.default_rng(1)
    target, logits = rng.integers(0, 4, 200), rng.normal(size=(2, 200, 4))
    weights, chosen, labels = rng.uniform(0.5, 2.0, 200), logits[0].argmax(axis=1), Labels(np.arange(4))
    f1 = metrics.f1_score(target, chosen, average="macro", sample_weight=weights)
    recalls = metrics.recall_score(target, chosen, average=None, sample_weight=weights)
    assert SCORES["f1"](logits[0], target, weights, labels) == pytest.approx(f1)
    assert SCORES["g_mean"](logits[0], target, weights, labels) == pytest.approx(np.prod(recalls) ** 0.25)
    price = labels.resolve(WEIGHTS, np.bincount(target))
    for natural, by_class, own in ((True, WEIGHTS, weights), (False, np.ones(4), weights * WEIGHTS[target])):
        found = log_losses(logits, target, weights, price, natural=natural)
        log_p = log_softmax(logits - np.log(by_class), axis=2)[:, np.arange(200), target]
        np.testing.assert_allclose(found, -(log_p * own).sum(axis=1) / own.sum())


@pytest.mark.parametrize("scoring", ["g_mean", "f1", "average_precision", "balanced_accuracy", "neg_log_loss"])
def test_any_scoring_chooses(scoring):
    model = of_classes(scoring=scoring, l2=[1e-3, 10.0], n_members=1).fit(ROWS, NAMES)
    assert model.best_score_ == model.cv_results_["mean_test_score"].max()


def test_a_temperature_and_a_training_weight_of_its_own():
    how = {"training_weighting": None, "balance": "oof", "probability": "temperature"}
    model = of_classes(hidden=(4,), l2=[1e-3, 1e-1], **how).fit(ROWS, NAMES)
    assert model.scorer_ == "neg_log_loss"
    assert model.probability_map_[0] != 1.0
    assert model.key_equation_.residual <= 1e-12
    np.testing.assert_allclose(model.ensemble_.training_weighting.weights, 1.0)


def test_weightings_and_costs_with_actions_are_searched():
    model = of_classes(["balanced", None], training_weighting="price").fit(ROWS, NAMES)
    assert len(model.oof_counts_) == 2
    with pytest.raises(InvalidParameter, match="price for two classes"):
        of_classes([0.5, 0.9], training_weighting="price").fit(ROWS, NAMES)
    assert model.oof_counts_[0][3, 3] >= model.oof_counts_[1][3, 3]  # balanced weights find more of the rarest class
    costs = CostMatrix(np.column_stack([10.0 * (1 - np.eye(4)), np.ones(4)]), actions=["review"])
    model = of_classes(costs).fit(ROWS, NAMES)
    cheapest = (model.predict_proba(ROWS) @ costs.costs).argmin(axis=1)
    np.testing.assert_array_equal(model.predict(ROWS), np.append(LABELS.astype(object), "review")[cheapest])
    assert model.oof_counts_[0].shape == (4, 5)
    expected = -model.costs_.expected(model.oof_proba_)
    np.testing.assert_allclose(model.oof_decision_function_, expected, rtol=1e-9, atol=1e-12)


def test_folds_over_time_leave_the_first_rows_out():
    model = of_classes(cv=TimeSplit(2)).fit(ROWS, NAMES, groups=np.arange(300))
    unseen = np.isnan(model.oof_decision_function_).all(axis=1)
    assert 0 < unseen.sum() < 250
    assert not np.isnan(model.oof_decision_function_[~unseen]).any()
    assert "as far as folds agree" in model.key_equation_.rows


def test_a_class_with_one_row_is_trained_on_in_every_fold():
    rows, names = np.vstack([ROWS, [[5.0, 5.0, 5.0]]]), np.append(NAMES, "yew")
    with pytest.warns(UserWarning, match="too few rows for training and validation of 1 label:"):
        model = of_classes("balanced").fit(rows, names)
    assert model.classes_.tolist() == [*LABELS, "yew"]
    assert np.isfinite(model.oof_proba_).all()
    assert model.key_equation_.residual <= 1e-12
    # Folds of a person's own stay as they are.
    own = [(HALVES[0][0], np.arange(150, 301)), (np.arange(150, 301), HALVES[1][1])]
    with pytest.raises(InvalidInput, match="holds no row of a class"):
        of_classes("balanced", cv=own).fit(rows, names)


def test_classes_are_balanced_on_the_training_rows():
    model = of_classes(balance=True, probability="shift").fit(ROWS, NAMES)
    assert residual(model.weighted_proba(ROWS)) <= 1e-12
    assert metrics.log_loss(NAMES, model.predict_proba(ROWS)) < 0.6
