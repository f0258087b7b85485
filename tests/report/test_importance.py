"""Permutation importance: a column that is not used has none, others what an independent loop finds."""

import numpy as np
import pandas as pd
import pytest
from known_models import KnownPosterior, draw
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import crcen
from crcen.report.columns import MOST_PRECISE, MOST_REPEATS, MOST_ROWS, permutation_importance
from crcen.report.evidence import gather
from crcen.theory.metrics import log_losses


def by_name(importances):
    return {one.name: one for one in importances.columns}


def test_only_the_column_that_is_used_matters():
    model = KnownPosterior()
    X, y = draw(model, 1500)
    found = by_name(permutation_importance(gather(model, X, y)))
    for unused in ("column 2", "column 3"):
        assert (found[unused].increase, found[unused].low, found[unused].high) == (0.0, 0.0, 0.0)
    assert found["column 1"].low > 0


def test_the_increase_is_near_what_another_loop_finds():
    model = KnownPosterior()
    X, y = draw(model, 1500)
    weights = np.random.default_rng(5).uniform(0.5, 2.0, y.size)
    one = permutation_importance(gather(model, X, y, weights)).columns[0]
    rng, before = np.random.default_rng(99), log_loss(y, model.predict_proba(X), sample_weight=weights)
    increases = []
    for _ in range(60):
        shuffled = X.copy()
        rng.shuffle(shuffled[:, 0])
        increases.append(log_loss(y, model.predict_proba(shuffled), sample_weight=weights) - before)
    # Five repeats of the same rows: within a few standard errors of five permutations.
    assert one.increase == pytest.approx(np.mean(increases), abs=4 * np.std(increases) / np.sqrt(5))
    assert one.low < np.mean(increases) < one.high


def test_the_interval_covers_the_increase_in_the_long_run():
    model = KnownPosterior()
    X, y = draw(model, 40_000, seed=123)
    shuffled = X.copy()
    np.random.default_rng(7).shuffle(shuffled[:, 0])
    target = y == 1
    truth = np.mean(
        log_losses(target, model.predict_proba(shuffled)[:, 1]) - log_losses(target, model.predict_proba(X)[:, 1])
    )
    covered = 0
    for seed in range(60):
        one = permutation_importance(
            gather(model, *draw(model, 400, n_columns=1, seed=seed), random_state=seed)
        ).columns[0]
        covered += one.low < truth < one.high
    assert covered >= 50


def test_types_of_a_frame_survive_the_shuffle():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=200),
            "kind": pd.Categorical(rng.choice(list("ab"), 200)),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, 200), unit="D"),
        },
        index=rng.permutation(200) + 1000,
    )
    y = (frame["number"] + rng.normal(size=200) > 0.8).astype(int).to_numpy()
    dtypes = []

    def numbers(rows):
        dtypes.append(rows.dtypes.to_dict())
        return rows[["number"]].assign(a=rows["kind"] == "a", day=rows["day"].dt.day_of_year).astype(float)

    model = make_pipeline(FunctionTransformer(numbers), LogisticRegression()).fit(frame, y)
    before = frame.copy()
    found = permutation_importance(gather(model, frame, y))
    assert found.columns[0].name == "number"
    assert all(one == frame.dtypes.to_dict() for one in dtypes)
    pd.testing.assert_frame_equal(frame, before)


def test_a_table_that_is_encoded_once_gives_what_encoding_it_anew_gives(rare_rows):
    X, y = rare_rows(300)
    frame = pd.DataFrame({"id": np.arange(300), "kind": np.where(X[:, 1] > 0, "new", "old"), "amount": X[:, 0]})
    frame.loc[::7, "amount"] = np.nan
    inner = crcen.CRCENClassifier(crcen.Budget(4), hidden=(), random_state=0)
    model = crcen.TableClassifier(estimator=inner, drop=["id"], random_state=0).fit(frame, y)

    class Plain:
        classes_, pos_label_ = model.classes_, model.pos_label_
        predict_proba = staticmethod(model.predict_proba)

    quick, slow = (by_name(permutation_importance(gather(one, frame, y))) for one in (model, Plain()))
    assert quick["id"].increase == 0.0
    assert quick["amount"].increase > 0.0
    for name, one in quick.items():
        assert one.increase == pytest.approx(slow[name].increase, abs=1e-12)
        assert (one.low, one.high) == pytest.approx((slow[name].low, slow[name].high), abs=1e-12)


def test_many_rows_are_thinned_with_the_shares_kept():
    model = KnownPosterior(a=-4.0)
    X, y = draw(model, 30_000, n_columns=1)
    found = permutation_importance(gather(model, X, y))
    assert MOST_ROWS - 2 <= found.n_rows <= MOST_ROWS
    share = y.mean()
    assert found.base_log_loss == pytest.approx(-(share * np.log(share) + (1 - share) * np.log(1 - share)))
    assert found.log_loss == pytest.approx(log_loss(y, model.predict_proba(X)), rel=0.05)


def test_one_seed_one_result_and_wide_tables_get_fewer_repeats():
    model = KnownPosterior()
    once, again, other = (
        permutation_importance(gather(model, *draw(model, 100, n_columns=120), random_state=seed)) for seed in (3, 3, 4)
    )
    assert once == again
    assert once != other
    assert once.n_repeats == MOST_REPEATS
    assert once.n_precise == MOST_PRECISE
