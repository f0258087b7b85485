"""Reasons against brute force over all coalitions and known Shapley values, their error, and reasons for a class."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from crcen import Budget, CommitteeClassifier, CostMatrix, CRCENClassifier, InvalidParameter, TableClassifier
from crcen.models.reasons import STANDARD_ERROR, shapley_of_ensemble, shapley_of_function, tree_values, typical_rows
from grouped_settings import grouped
from shapley_by_hand import brute_force

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 5))
Y = RNG.random(600) < 1 / (1 + np.exp(1.5 - 2 * X[:, 0] * X[:, 1] - np.sin(2 * X[:, 3]) - X[:, 2]))
GAPS = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
QUICK = {"hidden": (8, 4), "max_epochs": 12, "random_state": 0}
BLOCKS = [np.array([0]), np.array([1, 2]), np.array([3]), np.array([4])]
SINGLE = [np.array([j]) for j in range(5)]


@pytest.fixture(scope="module")
def committee():
    return CommitteeClassifier(Budget(5), members=("trees",), cv=2, random_state=0, time_limit=0.5).fit(X, Y)


def log_odds(model, rows):
    """Natural log-odds of the positive class."""
    return model.ensemble_.labels.margin(model.ensemble_.logits(rows)[0])


def explained(model, rows, background, blocks, seed=0, threads=1):
    """Shapley values of the log-odds of the positive class."""
    column = model.ensemble_.labels.column
    pairs = np.full(len(rows), column), np.full(len(rows), 1 - column)
    return shapley_of_ensemble(model.ensemble_, rows, background, blocks, pairs, seed, threads)


def networks(**options):
    return CRCENClassifier(Budget(5), **grouped(**{**QUICK, **options})).fit(X, Y)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden": ()},
        {"hidden": (8,), "activation": "tanh"},
        *({"encoding": encoding} for encoding in ("quantile", "robust", "piecewise")),
        {"probability": "temperature"},
        {"probability": "isotonic", "hidden": (4,)},
    ],
    ids=str,
)
def test_four_columns_are_exact(options):
    model = networks(**options)
    background = typical_rows(X, BLOCKS, n_rows=6)
    found = explained(model, X[:7], background, BLOCKS)
    truth = brute_force(lambda rows: log_odds(model, rows), X[:7], background, BLOCKS)
    assert np.abs(found.values - truth).max() < 1e-5  # walks are in single precision
    assert found.errors.max() == 0.0


def test_trees_are_exact_whatever_the_number_of_columns_and_without_a_table_for_long_paths(committee, monkeypatch):
    (*_, trees) = committee.ensemble_.members
    truth = brute_force(lambda rows: trees.logits(rows)[:, 0], X[:20], X[100:109], SINGLE)
    values = tree_values(trees, X[:20], X[100:109], SINGLE)
    assert np.abs(values - truth).max() < 1e-12
    found = committee.reasons(X[:20], background=X[100:109])
    truth = brute_force(lambda rows: log_odds(committee, rows), X[:20], X[100:109], SINGLE)
    assert np.abs(found.values - truth).max() < 1e-12
    monkeypatch.setattr("crcen.models.reasons._TABLED", 0)
    assert np.array_equal(tree_values(trees, X[:20], X[100:109], SINGLE), values)


@pytest.mark.parametrize("kind", ["network", "trees"])
def test_missing_cells_have_reasons_too(kind):
    if kind == "network":
        model = CRCENClassifier(Budget(5), **grouped(missing="indicator", encoding="steps", **QUICK)).fit(GAPS, Y)
        found, blocks = explained(model, GAPS[:9], GAPS[50:56], BLOCKS), BLOCKS
    else:
        model = CommitteeClassifier(Budget(5), members=("trees",), cv=2, random_state=0, time_limit=0.5).fit(GAPS, Y)
        found, blocks = model.reasons(GAPS[:9], background=GAPS[50:56]), SINGLE
    truth = brute_force(lambda rows: log_odds(model, rows), GAPS[:9], GAPS[50:56], blocks)
    assert np.abs(found.values - truth).max() < (1e-5 if kind == "network" else 1e-12)


def test_the_error_is_what_it_says():
    """Over seeds, values differ from the truth as the standard errors say, where three columns act together."""

    def logits(rows):
        return 3 * rows[:, 0] * rows[:, 1] * rows[:, 2] + rows[:, 3] * np.abs(rows[:, 4]) * rows[:, 1]

    truth = brute_force(logits, X[:6], X[50:82], SINGLE)

    def columns(rows):
        return np.column_stack([np.zeros(len(rows)), logits(rows)])

    pairs = np.ones(6, dtype=np.int64), np.zeros(6, dtype=np.int64)
    found = [shapley_of_function(columns, X[:6], X[50:82], SINGLE, pairs, seed) for seed in range(12)]
    far = np.array([(one.values - truth) ** 2 for one in found]).mean()
    assert 0.8 < far / np.array([one.errors**2 for one in found]).mean() < 1.35
    assert max(one.errors.max() for one in found) <= STANDARD_ERROR
    assert far > 1e-5  # something was there to be wrong about


def test_reasons_add_up_to_the_log_odds_and_depend_on_the_seed_alone():
    model = networks()
    found = model.reasons(X, background=X)
    p = model.predict_proba(X)[:, 1]
    assert np.abs(found.values.sum(axis=1) + found.base - np.log(p / (1 - p))).max() < 1e-9
    assert np.array_equal(found.log_odds, log_odds(model, X))
    assert found.standard_error <= 0.05
    # The same on any number of threads; rows do not matter to each other.
    background = typical_rows(X, SINGLE)
    one, many, again = (explained(model, X, background, SINGLE, *own) for own in ((3,), (3, 3), (4,)))
    assert np.array_equal(one.values, many.values)
    assert not np.array_equal(one.values, again.values)
    alone = explained(model, X[7:8], background, SINGLE, 3)
    assert np.abs(alone.values - one.values[7]).max() < 0.25  # rounds may differ, values agree within their errors


def test_typical_rows_have_the_distributions_of_columns_and_none_of_the_rows():
    table = np.column_stack([X[:, :3], Y, 1 - Y])
    blocks = [np.array([0]), np.array([1]), np.array([2]), np.array([3, 4])]
    rows = typical_rows(table, blocks)
    for j in range(3):
        assert np.isin(rows[:, j], table[:, j]).all()
        assert np.abs(rows[:, j].mean() - table[:, j].mean()) < 0.05
        assert np.abs(rows[:, j].std() / table[:, j].std() - 1) < 0.1
    assert np.array_equal(rows[:, 3], 1 - rows[:, 4])  # what belongs together stays together
    assert abs(rows[:, 3].mean() - Y.mean()) <= 1 / 32
    assert not any((table == row).all(axis=1).any() for row in rows)
    assert np.abs(np.corrcoef(rows[:, :3].T) - np.eye(3)).max() < 0.3
    averaged = typical_rows(table, blocks, [True, False, False, False])
    assert not np.isin(averaged[:, 0], table[:, 0]).any()


def test_reasons_in_words():
    frame = pd.DataFrame({"balance": [2310.0, -0.25], "year": [2019.0, 2020.0], "c": 1e-7, "d": np.pi, "e": 1e20})
    model = CRCENClassifier(Budget(5), **grouped(**QUICK)).fit(pd.DataFrame(X, columns=frame.columns), Y)
    found = model.reasons(frame, background=pd.DataFrame(X, columns=frame.columns))
    assert found.cells[0].tolist() == ["2,310", "2019", "1e-07", "3.142", "1e+20"]
    assert found.cells[1, 0] == "-0.25"
    strongest = np.abs(found.values[0]).argmax()
    first = found.sentences(1)[0][0]
    assert first.startswith(f"{frame.columns[strongest]} {found.cells[0, strongest]}: ")
    assert float(first.split(": ")[1].removesuffix(" log-odds")) == pytest.approx(found.values[0, strongest], abs=0.051)
    assert ([len(one) for one in found.sentences(9)], found.sentences(2.0)) == ([5, 5], found.sentences(2))
    assert "\n" not in repr(found)
    assert (found.to_frame().shape, len(found.to_dict()["values"])) == ((2, 5), 2)
    assert pickle.loads(pickle.dumps(found)).base == found.base
    for refused, words in (
        (lambda: found.sentences(0), "at least 1"),
        (lambda: model.reasons(frame), "pass background="),
        (lambda: model.reasons(frame, background=frame, random_state=None), "random_state must be a whole number"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            refused()


Z = RNG.normal(size=(400, 4))
SCORES = np.column_stack([2 * Z[:, 0] * Z[:, 1], np.sin(2 * Z[:, 2]) + 0.3, Z[:, 3] - 0.5])
KINDS = np.array(["fine", "worn", "broken"])[np.argmax(SCORES + RNG.gumbel(size=SCORES.shape), axis=1)]
WEIGHTS = {"fine": 1, "worn": 2, "broken": 6}
COSTS = CostMatrix([[0, 6, 6], [1, 0, 1], [2, 2, 0]], labels=["broken", "fine", "worn"]).with_review(0.7)


def of_classes(weighting=WEIGHTS, **options):
    own = {"hidden": (8,), "max_epochs": 10, "random_state": 0, **options}
    return CRCENClassifier(weighting, **grouped(**own)).fit(Z, KINDS)


def by_hand(model, rows, background, found):
    """Brute force on the log-odds of predict_log_proba, row by row its own pair."""
    place = {label: k for k, label in enumerate(model.classes_)}
    truth = np.empty((len(rows), 4))
    for i, (one, other) in enumerate(zip(found.classes, found.rivals, strict=True)):

        def log_odds(some, k=place[one], r=place[other]):
            log_p = model.predict_log_proba(some)
            return log_p[:, k] - log_p[:, r]

        truth[i] = brute_force(log_odds, rows[i : i + 1], background, SINGLE[:4])
    return truth


@pytest.mark.parametrize(
    "make",
    [
        of_classes,
        lambda: of_classes(hidden=(), probability="temperature"),
        lambda: of_classes(loss="one_against_all"),
        lambda: CommitteeClassifier(WEIGHTS, members=("trees",), cv=2, random_state=0, time_limit=0.5).fit(Z, KINDS),
    ],
    ids=["network", "no hidden layer, temperature", "one against all", "trees"],
)
def test_values_are_those_of_the_definition(make):
    model = make()
    found = model.reasons(Z[:12], background=Z[100:106])
    assert found.classes.tolist() == model.predict(Z[:12]).tolist()
    p = model.predict_proba(Z[:12])
    for i, (one, other) in enumerate(zip(found.classes, found.rivals, strict=True)):
        rest = {label: value for label, value in zip(model.classes_, p[i], strict=True) if label != one}
        assert other == max(rest, key=rest.get)
    assert np.abs(found.values - by_hand(model, Z[:12], Z[100:106], found)).max() < 1e-5
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base, found.log_odds, atol=1e-9)


def test_two_classes_with_an_action_are_explained_by_the_logit_there_is():
    costs = CostMatrix([[0, 1], [3, 0]], labels=["no", "yes"]).with_review(0.4)
    how = grouped(hidden=(4,), max_epochs=8, random_state=0)
    model = CRCENClassifier(costs, **how).fit(Z, np.where(KINDS == "broken", "yes", "no"))
    found = model.reasons(Z[:9], background=Z[50:55], classes="yes")
    assert found.rivals.tolist() == ["no"] * 9
    assert np.abs(found.values - by_hand(model, Z[:9], Z[50:55], found)).max() < 1e-5


def test_the_class_can_be_named_and_an_action_is_explained_by_the_likeliest_class():
    model = of_classes(COSTS)
    decided = model.predict(Z[:80])
    assert {"review"} < {*decided}
    likeliest = model.classes_[model.predict_proba(Z[:80]).argmax(axis=1)]
    found = model.reasons(Z[:80], background=Z[100:103])
    assert found.classes.tolist() == np.where(decided == "review", likeliest, decided).tolist()
    one, other = (model.reasons(Z[:5], background=Z[100:103], classes=label) for label in ("worn", ["fine"] * 5))
    assert (one.classes.tolist(), other.classes.tolist()) == (["worn"] * 5, ["fine"] * 5)
    text = str(one)
    assert "worn rather than" in text
    assert "standard error" in text or "exact" in text
    assert len(one.to_dict()["base"]) == 5


def test_any_classifier_in_a_table_has_reasons_too():
    frame = pd.DataFrame(Z, columns=list("abcd"))
    model = TableClassifier(estimator=LogisticRegression(), weighting=WEIGHTS).fit(frame, KINDS)
    found = model.reasons(frame.head(6))
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base, found.log_odds, atol=1e-9)
    # Log-odds of a multinomial logistic regression are linear: slope × (cell − typical cell).
    slopes = model.estimator_.estimator_.coef_
    order = model.classes_.tolist()
    encoded, typical = model.encode(frame.head(6)).X, model.background_.mean(axis=0)
    for i in range(6):
        k, r = order.index(found.classes[i]), order.index(found.rivals[i])
        np.testing.assert_allclose(found.values[i], (slopes[k] - slopes[r]) * (encoded[i] - typical), atol=1e-4)


def test_classes_that_are_not_of_the_model_are_refused():
    model = of_classes()
    with pytest.raises(InvalidParameter, match="classes must be of this model, broken, fine, worn: got 'wron'"):
        model.reasons(Z[:3], background=Z, classes="wron")
    with pytest.raises(InvalidParameter, match="one label per row: got 2 for 3"):
        model.reasons(Z[:3], background=Z, classes=["fine", "worn"])
    two = CRCENClassifier(5.0 / 6, **grouped(hidden=(), max_epochs=2)).fit(Z, KINDS == "fine")
    with pytest.raises(InvalidParameter, match="classes must be left out"):
        two.reasons(Z[:3], background=Z, classes=True)
