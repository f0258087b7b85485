"""Boosting and undersampling methods against their definitions written out by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

import crcen
from crcen.paper.classical import (
    AdaCClassifier,
    BalanceCascadeClassifier,
    CalibratedBoostingClassifier,
    EUSBoostClassifier,
    GranularSVMClassifier,
    RealRUSBoostClassifier,
    boosting_step,
    evolve,
    overlap,
    selection_fitness,
)

VARIANTS = ("adac1", "adac2", "adac3")
EUS = {"n_estimators": 3, "population": 6, "evaluations": 20}


def drawn(n_pos, n, gap, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) < n_pos).astype(int)
    X = rng.normal(size=(n, columns))
    X[:, 0] += gap * y
    return X, y


@pytest.fixture(scope="module")
def rows():
    return drawn(60, 300, 1.5, seed=3)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("depth", [1, 2])
def test_equal_costs_are_adaboost(rows, variant, depth):
    X, y = rows
    ours = AdaCClassifier(variant, crcen.CostRatio(1), n_estimators=12, max_depth=depth, random_state=0).fit(X, y)
    theirs = AdaBoostClassifier(DecisionTreeClassifier(max_depth=depth), n_estimators=12, random_state=0).fit(X, y)
    np.testing.assert_allclose(2 * ours.votes_, theirs.estimator_weights_, rtol=1e-9)
    score = theirs.decision_function(X) / 2 * ours.votes_.sum()  # theirs is scaled to −2 to 2
    np.testing.assert_allclose(ours.decision_function(X), score, atol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(3))
def test_vote_minimises_its_bound_on_the_next_weights(variant, seed):
    """Sun et al. minimise the sum of the next weights with e^(−αCu) replaced by its chord where C is inside."""
    rng = np.random.default_rng(seed)
    weights, costs = rng.dirichlet(np.ones(40)), np.where(rng.random(40) < 0.3, 1.0, 0.2)
    is_right = rng.random(40) < 0.7
    sign = np.where(is_right, 1.0, -1.0)
    outside = costs if variant != "adac1" else 1.0
    inside = costs if variant != "adac2" else 1.0

    def bound(vote):
        chord = (1 + inside * sign) / 2 * np.exp(-vote) + (1 - inside * sign) / 2 * np.exp(vote)
        return (outside * weights * chord).sum()

    vote, found = boosting_step(variant, weights, costs, is_right)
    best = minimize_scalar(bound, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
    assert vote == pytest.approx(best.x, abs=1e-6)
    following = outside * weights * np.exp(-vote * inside * sign)
    assert following.sum() <= bound(vote) + 1e-12
    np.testing.assert_allclose(found, following / following.sum(), rtol=1e-12)
    if variant == "adac2":  # as after AdaBoost, the last learner is no better than chance
        assert found[is_right].sum() == pytest.approx(0.5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_costs_give_more_alarms_and_restart_boosting_if_the_first_stump_never_alarms(rows, variant):
    X, y = rows
    given = {"n_estimators": 10, "max_depth": 2, "random_state": 0}
    cheap, dear = (AdaCClassifier(variant, crcen.CostRatio(c), **given).fit(X, y) for c in (0.2, 5.0))
    if variant != "adac1":  # which may stop before its costs have an effect
        assert cheap.predict(X).sum() < dear.predict(X).sum()
    y = (np.arange(400) < 20).astype(int)
    X = np.random.default_rng(1).normal(size=(400, 1)) + y[:, None]
    assert DecisionTreeClassifier(max_depth=1).fit(X, y).predict(X).sum() == 0
    model = AdaCClassifier(variant, max_depth=1, n_estimators=3, random_state=0).fit(X, y)
    assert len(model.votes_) >= 1
    assert (model.votes_ > 0).all()


def test_boosting_ends_with_a_perfect_tree_and_rejects_uninformative_rows():
    y = np.arange(40) < 10
    model = AdaCClassifier("adac2", random_state=0).fit(y[:, None].astype(float), y)
    assert len(model.estimators_) == 1
    assert (model.predict(y[:, None].astype(float)) == y).all()
    with pytest.raises(crcen.InvalidInput, match="its first tree is worth nothing at a cost ratio of 1"):
        AdaCClassifier("adac1", crcen.CostRatio(1)).fit(np.zeros((20, 1)), np.arange(20) % 2)
    with pytest.raises(crcen.InvalidInput, match="cannot boost a balanced draw of these rows"):
        BalanceCascadeClassifier().fit(np.zeros((20, 1)), np.arange(20) < 5)


def test_calibrated_control_decides_at_its_price_on_natural_probabilities(rows):
    X, y = rows
    given = {"n_estimators": 10, "max_depth": 1, "random_state": 0}
    plain, dear = (CalibratedBoostingClassifier(crcen.CostRatio(c), **given).fit(X, y) for c in (1.0, 4.0))
    p = dear.predict_proba(X)[:, 1]
    np.testing.assert_allclose(p, plain.predict_proba(X)[:, 1], rtol=1e-9)
    np.testing.assert_allclose(p, dear.calibrated_.predict_proba(X)[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(dear.predict(X) == 1, p > 1 / 5)
    np.testing.assert_array_equal(plain.predict(X) == 1, p > 1 / 2)
    assert p.mean() == pytest.approx(y.mean(), abs=0.03)
    swapped = CalibratedBoostingClassifier(crcen.CostRatio(4.0), **given).fit(X, 1 - y)
    np.testing.assert_allclose(swapped.predict_proba(X)[:, 0], p, rtol=1e-9)
    np.testing.assert_array_equal(swapped.predict(X), 1 - dear.predict(X))


def overlapping(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=n) > 2.0).astype(int)


def test_real_rusboost_is_the_definition():
    """Zhu et al. 2009, algorithm 4 with K = 2: h_k = log p_k − mean log p, w ← w·exp(−½·y·log p)."""
    (X, y), (new, _) = overlapping(), overlapping(200, 1)
    model = RealRUSBoostClassifier(12, random_state=3).fit(X, y)
    random = check_random_state(3)
    weights, votes = np.full(len(y), 1 / len(y)), np.zeros((len(new), 2))
    for _ in range(12):
        kept = random.choice(np.flatnonzero(y == 0), y.sum(), replace=False)
        own = np.concatenate([np.flatnonzero(y == 1), kept])
        stump = DecisionTreeClassifier(max_depth=1, random_state=random.randint(2**31 - 1))
        stump.fit(X[own], y[own], sample_weight=weights[own])
        log_p, log_new = (np.log(np.clip(stump.predict_proba(Z), np.finfo(float).eps, None)) for Z in (X, new))
        votes += log_new - log_new.mean(axis=1, keepdims=True)
        weights = weights * np.exp(-0.5 * (np.where(np.arange(2) == y[:, None], 1.0, -1.0) * log_p).sum(axis=1))
        weights /= weights.sum()
    np.testing.assert_allclose(model.decision_function(new), votes[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(model.predict(new), votes.argmax(axis=1))


def test_real_rusboost_uses_all_stumps():
    """Today's RUSBoost ends with the first stump that is worse than chance on all rows."""
    (X, y), (new, labels) = overlapping(2000), overlapping(4000, 1)
    model = RealRUSBoostClassifier(random_state=0).fit(X, np.where(y == 1, "a", "b"))
    alarms = model.predict(new) == "a"
    assert len(model.estimators_) == 50
    assert alarms[labels == 1].mean() > 0.55
    assert alarms[labels == 0].mean() < 0.4
    with pytest.raises(crcen.InvalidParameter, match="n_estimators"):
        RealRUSBoostClassifier(0).fit(X, y)


@pytest.fixture(scope="module")
def rare():
    return drawn(20, 660, 1.5, columns=2)


@pytest.mark.parametrize("expected", [[640, 320, 160, 80, 40, 20], [640, 20], [640, 113, 20], [30, 30, 30]])
def test_negatives_left_before_each_round(rare, expected):
    """20 positives and 640 negatives: (1/32)^(1/5) is one half, and 640/√32 is 113.1; or 30 of each class."""
    X, y = rare if expected[0] == 640 else drawn(30, 60, 0.0)
    model = BalanceCascadeClassifier(len(expected), n_estimators=2, max_depth=1, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.negatives_left_, expected)


def test_cascade_threshold_passes_its_share_and_the_vote_is_joint(rare):
    X, y = rare
    model = BalanceCascadeClassifier(3, n_estimators=30, random_state=0).fit(X, y)
    total = np.zeros(len(X))
    for number, (booster, threshold) in enumerate(zip(model.estimators_, model.thresholds_, strict=True)):
        votes = np.array([2.0 * tree.predict(X) - 1 for tree in booster.estimators_])
        score = booster.estimator_weights_[: len(votes)] / 2 @ votes
        if number == 0:
            negatives = score[y == 0]
            above, tied = (negatives > threshold + 1e-9).sum(), np.isclose(negatives, threshold).sum()
            assert above <= 113 <= above + tied
        total += score - threshold
    np.testing.assert_allclose(3 * model.decision_function(X), total, atol=1e-9)


# Two positives on the y axis. Each negative on the x axis is nearer to them than the next, and a machine that
# separates without error has the nearest one as its only negative support vector.
PLANE = np.array([[0, 1], [0, -1], [2, 0], [3, 0], [4, 0], [5, 0]], dtype=float)
IS_POS = np.array([True, True, False, False, False, False])


def test_granules_on_a_plane_are_the_negatives_from_near_to_far():
    model = GranularSVMClassifier(kernel="linear", C=1e6)
    assert [granule.tolist() for granule in model.granules(PLANE, IS_POS, 3)] == [[2], [3], [4]]
    assert [granule.tolist() for granule in model.granules(PLANE, IS_POS, 10)] == [[2], [3], [4], [5]]


@pytest.mark.parametrize(("aggregation", "middle"), [("combine", 1.0), ("discard", 2.0)])
def test_final_machine_sees_positives_and_the_granules_of_its_aggregation(rare, aggregation, middle):
    """Combined, the nearest negative at x = 2 counts; with older granules discarded, the third, at x = 4."""
    model = GranularSVMClassifier(aggregation, kernel="linear", C=1e6)
    machine = model._aggregated(PLANE, IS_POS, model.granules(PLANE, IS_POS, 3))
    above, on, below = machine.decision_function([[middle - 0.01, 0.0], [middle, 0.0], [middle + 0.01, 0.0]])
    assert above > 0 > below
    assert on == pytest.approx(0, abs=1e-3)
    X, y = rare
    model = GranularSVMClassifier(aggregation, random_state=0).fit(X, y)
    together = np.concatenate(model.granules_)
    assert len(set(together.tolist())) == len(together)
    assert not y[together].any()
    taken = model.granules_ if aggregation == "combine" else model.granules_[-1:]
    assert model.machine_.shape_fit_[0] == y.sum() + sum(map(len, taken))


@pytest.fixture(scope="module")
def twelve():
    rng = np.random.default_rng(5)
    is_pos = np.arange(12) % 4 == 0
    X = rng.normal(size=(12, 2)) + is_pos[:, None]
    distances = np.array([[math.dist(a, b) for b in X] for a in X])
    np.fill_diagonal(distances, np.inf)
    return X, is_pos, distances


def fitness_by_loops(X, is_pos, kept):
    """The definition, row by row."""
    negatives = [i for i in range(12) if not is_pos[i]]
    stays = {i for i in range(12) if is_pos[i]} | {i for i, k in zip(negatives, kept, strict=True) if k}
    right = {True: 0, False: 0}
    for i in range(12):
        nearest = min(stays - {i}, key=lambda j: math.dist(X[i], X[j]))
        right[bool(is_pos[i])] += is_pos[nearest] == is_pos[i]
    g_mean = math.sqrt(right[True] / 3 * right[False] / 9)
    return g_mean - 0.2 * (abs(1 - 3 / sum(kept)) if any(kept) else 1)


def test_fitness_and_its_maximum_agree_with_brute_force(twelve):
    X, is_pos, distances = twelve
    every = {kept: fitness_by_loops(X, is_pos, kept) for kept in itertools.product([False, True], repeat=9)}
    for kept, expected in every.items():
        assert selection_fitness(distances, is_pos, np.array(kept)) == pytest.approx(expected)
    random = np.random.RandomState(0)
    kept, found = evolve(lambda bits: every[tuple(bits.tolist())], 9, 3, population=20, evaluations=1000, rng=random)
    assert found == pytest.approx(max(every.values()))
    assert every[tuple(kept.tolist())] == found


@pytest.mark.parametrize("evaluations", [1, 7, 50, 400])
def test_evolution_keeps_its_budget_and_thins_out_choices(evaluations):
    """Bits that are set are dropped more often than they are set: García and Herrera's rule."""
    seen = []
    sizes = {"population": 20, "evaluations": evaluations}
    evolve(lambda bits: seen.append(bits.sum()) or float(len(seen)), 400, 200, **sizes, rng=np.random.RandomState(0))
    assert len(seen) <= evaluations
    if evaluations == 400:
        assert np.mean(seen[-20:]) < 150


def test_overlap_is_the_largest_q_statistic():
    a, b = np.array([1, 1, 0, 0, 1, 0], bool), np.array([1, 0, 0, 1, 1, 0], bool)
    assert overlap(a, []) == 0
    assert overlap(a, [a]) == 1
    assert overlap(a, [~a]) == -1
    # Both 2 (rows 0, 4), none 2 (2, 5), one alone 1 and 1: (4 − 1)/(4 + 1).
    assert overlap(a, [b]) == overlap(a, [~a, b]) == pytest.approx(0.6)
    assert overlap(np.zeros(6, bool), [a]) == 2  # worse than any: nothing is kept
    assert overlap(np.zeros(6, bool), []) == 0


def test_votes_follow_the_pseudo_loss_and_rows_above_the_limit_are_drawn_with_a_warning():
    """AdaBoost.M2 by hand, from the trees alone."""
    X, y = drawn(12, 60, 1.5, columns=2)
    model = EUSBoostClassifier(**EUS, max_depth=1, random_state=0).fit(X, y)
    weights, score = np.full(60, 1 / 60), np.zeros(60)
    for tree, vote in zip(model.estimators_, model.votes_, strict=True):
        p = tree.predict_proba(X)[:, 1]
        own = np.where(y == 1, p, 1 - p)
        loss = (weights * (1 - own)).sum()
        assert 2 * vote == pytest.approx(np.log((1 - loss) / loss))
        weights = weights * (loss / (1 - loss)) ** own
        weights /= weights.sum()
        score += np.log((1 - loss) / loss) * (p - (1 - p)) / 2
    np.testing.assert_allclose(model.decision_function(X), score, atol=1e-9)
    with pytest.warns(UserWarning, match=r"60 rows and max_rows=30.* a random draw of 30"):
        model = EUSBoostClassifier(**EUS, max_rows=30, random_state=0).fit(X, y)
    assert model.n_rows_seen_ == 30
    assert all(len(kept) == 30 - 12 for kept in model.choices_)
    # A first tree at chance stays alone.
    model = EUSBoostClassifier(**EUS, random_state=0).fit(np.zeros((20, 1)), np.arange(20) < 4)
    assert len(model.estimators_) == 1
    assert np.isfinite(model.predict_proba(np.zeros((1, 1)))).all()
