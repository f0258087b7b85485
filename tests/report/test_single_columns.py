"""What each column says alone: scikit-learn's area for numbers, nothing for ids, everything for leaks."""

import numpy as np
import pandas as pd
import pytest
from known_models import KnownPosterior, draw
from sklearn.metrics import roc_auc_score

from crcen.report.columns import single_columns
from crcen.report.evidence import gather


@pytest.fixture(scope="module")
def found():
    model, rng = KnownPosterior(a=-2.0), np.random.default_rng(1)
    X, y = draw(model, 1200)
    n = y.size
    gaps = X[:, 0].copy()
    gaps[rng.random(n) < 0.2] = np.nan
    frame = pd.DataFrame(
        {
            "score": X[:, 0],
            "reversed": -X[:, 0],
            "huge": np.where(X[:, 0] > 1, np.inf, X[:, 0]),
            "gaps": gaps,
            "missing is the leak": np.where(y == 1, np.nan, rng.normal(size=n)),
            "nothing": np.full(n, np.nan),
            "constant": 7,
            "flag": y == 1,
            "nullable": pd.array(np.where(y == 1, 1, 0), dtype="Int64"),
            "date of the event": pd.Timestamp("2020-01-01", tz="UTC")
            + pd.to_timedelta(y * 40 + rng.random(n), unit="D"),
            "outcome in words": np.where(y == 1, "stolen", rng.choice(["fine", "well"], n)),
            "name": [f"person {i}" for i in range(n)],
            "kind": pd.Categorical(rng.choice(list("abc"), n)),
        }
    )
    return {one.name: one.area for one in single_columns(gather(model, frame, y))}, X, y


def test_numbers_have_the_area_of_their_ranks(found):
    areas, X, y = found
    assert areas["score"] == pytest.approx(roc_auc_score(y, X[:, 0]))
    assert areas["reversed"] == areas["score"]
    assert areas["huge"] == pytest.approx(areas["score"], abs=0.05)
    assert 0.6 < areas["gaps"] < areas["score"]


@pytest.mark.parametrize("leak", ["missing is the leak", "flag", "nullable", "date of the event", "outcome in words"])
def test_leaks_separate(found, leak):
    assert found[0][leak] > 0.999


@pytest.mark.parametrize("harmless", ["nothing", "constant", "name", "kind"])
def test_what_says_nothing_is_near_a_half(found, harmless):
    assert found[0][harmless] == pytest.approx(0.5, abs=0.06)


def test_arrays_of_objects_are_categories():
    model = KnownPosterior()
    X, y = draw(model, 300, n_columns=1)
    rows = np.empty((300, 2), dtype=object)
    rows[:, 0], rows[:, 1] = X[:, 0], np.where(y == 1, "yes", None)
    assert single_columns(gather(model, rows, y))[1].area == 1.0
