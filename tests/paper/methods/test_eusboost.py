"""EUSBoost: its fitness by brute force, what evolution finds, its rounds of boosting, its bound on rows."""

import itertools
import math

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from crcen.paper.undersampling import EUSBoostClassifier, evolve, overlap, selection_fitness

LIGHT = {"n_estimators": 3, "population": 6, "evaluations": 20, "max_rows": 60}


@pytest.fixture(scope="module")
def twelve():
    rng = np.random.default_rng(5)
    is_pos = np.arange(12) % 4 == 0
    X = rng.normal(size=(12, 2)) + is_pos[:, None]
    distances = np.array([[math.dist(a, b) for b in X] for a in X])
    np.fill_diagonal(distances, np.inf)
    return X, is_pos, distances


def fitness_by_loops(X, is_pos, kept):
    """As the definition says it, row by row."""
    negatives = [i for i in range(12) if not is_pos[i]]
    stays = {i for i in range(12) if is_pos[i]} | {i for i, k in zip(negatives, kept, strict=True) if k}
    right = {True: 0, False: 0}
    for i in range(12):
        nearest = min(stays - {i}, key=lambda j: math.dist(X[i], X[j]))
        right[bool(is_pos[i])] += is_pos[nearest] == is_pos[i]
    g_mean = math.sqrt(right[True] / 3 * right[False] / 9)
    return g_mean - 0.2 * (abs(1 - 3 / sum(kept)) if any(kept) else 1)


def test_fitness_of_every_choice_by_brute_force(twelve):
    X, is_pos, distances = twelve
    for kept in itertools.product([False, True], repeat=9):
        assert selection_fitness(distances, is_pos, np.array(kept)) == pytest.approx(fitness_by_loops(X, is_pos, kept))


def test_evolution_finds_the_best_of_all_choices(twelve):
    X, is_pos, distances = twelve
    calls = []

    def fitness(kept):
        calls.append(kept)
        return selection_fitness(distances, is_pos, kept)

    best = max(fitness_by_loops(X, is_pos, kept) for kept in itertools.product([False, True], repeat=9))
    random = np.random.RandomState(0)
    kept, found = evolve(fitness, 9, 3, population=20, evaluations=1000, random=random)
    assert found == pytest.approx(best)
    assert fitness_by_loops(X, is_pos, kept) == pytest.approx(best)
    assert len(calls) <= 1000


@pytest.mark.parametrize("evaluations", [1, 7, 50])
def test_evolution_keeps_its_budget(evaluations):
    calls = []
    evolve(
        lambda bits: calls.append(1) or float(bits.sum()),
        *(30, 10),
        population=10,
        evaluations=evaluations,
        random=np.random.RandomState(0),
    )
    assert len(calls) <= evaluations


def test_overlap_is_the_largest_q_statistic():
    a, b = np.array([1, 1, 0, 0, 1, 0], bool), np.array([1, 0, 0, 1, 1, 0], bool)
    assert overlap(a, []) == 0
    assert overlap(a, [a]) == 1
    assert overlap(a, [~a]) == -1
    # Both 2 (rows 0, 4), none 2 (2, 5), one alone 1 and 1: (4 − 1)/(4 + 1).
    assert overlap(a, [b]) == pytest.approx(0.6)
    assert overlap(a, [~a, b]) == pytest.approx(0.6)
    assert overlap(np.zeros(6, bool), [a]) == 2  # worse than any: nothing is kept
    assert overlap(np.zeros(6, bool), []) == 0


def test_evolution_thins_out_choices():
    """Where all choices are as fit, bits that are set go twice as often as they come: García and Herrera's rule."""
    random = np.random.RandomState(0)
    seen = []
    evolve(
        lambda bits: seen.append(bits.sum()) or float(len(seen)),
        400,
        200,
        population=20,
        evaluations=400,
        random=random,
    )
    assert np.mean(seen[-20:]) < 150


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = (np.arange(60) < 12).astype(int)
    return rng.normal(size=(60, 2)) + 1.5 * y[:, None], y


def test_votes_follow_the_pseudo_loss(rows):
    """AdaBoost.M2 by hand, from the trees alone."""
    X, y = rows
    model = EUSBoostClassifier(**LIGHT, max_depth=1, random_state=0).fit(X, y)
    weights, score = np.full(60, 1 / 60), np.zeros(60)
    for tree, vote in zip(model.estimators_, model.votes_, strict=True):
        p = tree.predict_proba(X)[:, 1]
        own = np.where(y == 1, p, 1 - p)
        loss = 0.5 * (weights * (1 - own + (1 - own))).sum()
        assert 2 * vote == pytest.approx(np.log((1 - loss) / loss))
        weights = weights * (loss / (1 - loss)) ** (0.5 * (1 + own - (1 - own)))
        weights /= weights.sum()
        score += np.log((1 - loss) / loss) * (p - (1 - p)) / 2
    np.testing.assert_allclose(model.decision_function(X), score, atol=1e-9)


def test_more_rows_than_it_compares_are_said(rows):
    X, y = rows
    with pytest.warns(UserWarning, match=r"60 rows and max_rows=30.* a random draw of 30"):
        model = EUSBoostClassifier(**{**LIGHT, "max_rows": 30}, random_state=0).fit(X, y)
    assert model.n_rows_seen_ == 30
    assert all(len(kept) == 30 - 12 for kept in model.choices_)


def test_a_first_tree_that_is_no_better_than_chance_stays_alone():
    y = np.arange(20) < 4
    model = EUSBoostClassifier(**LIGHT, random_state=0).fit(np.zeros((20, 1)), y)
    assert len(model.estimators_) == 1
    assert np.isfinite(model.predict_proba(np.zeros((1, 1)))).all()


@parametrize_with_checks([EUSBoostClassifier(**{**LIGHT, "max_rows": 1000})])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
