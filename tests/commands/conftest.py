"""A small mixed table whose posterior is known, and a small model of it."""

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import Budget, CRCENClassifierCV


@pytest.fixture(scope="session")
def mixed_table():
    """A function that draws rows: numbers with gaps, categories, truth values, dates, an id; target "bad"."""

    def draw(n=600, seed=0):
        rng = np.random.default_rng(seed)
        amount, country = rng.normal(size=n), rng.choice(["NL", "NO", "DE"], n)
        is_new = rng.random(n) < 0.4
        logit = -2.5 + 1.2 * amount + 1.0 * is_new + 0.8 * (country == "DE")
        amount = amount.round(4)
        amount[rng.random(n) < 0.1] = np.nan
        days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
        frame = pd.DataFrame({"id": np.arange(n) + 10_000, "amount": amount, "country": country, "is_new": is_new})
        bad = np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no")
        return frame.assign(when=days.strftime("%Y-%m-%d"), nothing=np.nan, bad=bad)

    return draw


@pytest.fixture(scope="session")
def small_search():
    """A search that is over in a moment."""
    return CRCENClassifierCV(hidden=(4,), l2=1e-2, max_epochs=4, encoding="standard", n_members=1)


@pytest.fixture(scope="session")
def fitted(mixed_table, small_search):
    """A `TableFit` of 600 rows at a budget of 5."""
    return crcen.fit_table(mixed_table(), target="bad", weighting=Budget(5), estimator=small_search)


@pytest.fixture(scope="session")
def model_file(fitted, tmp_path_factory):
    """The same model on disk."""
    return crcen.save(fitted.model, tmp_path_factory.mktemp("model") / "model.crcen")


@pytest.fixture(scope="session")
def new(mixed_table):
    """Rows that the model has not seen."""
    return mixed_table(250, seed=7)
