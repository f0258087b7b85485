"""How long Adam trains by default: enough steps, whatever the number of rows."""

import numpy as np
import pytest

from crcen import Schedule
from crcen.training.recipe import Recipe
from papers_training import CRCENClassifier


@pytest.mark.parametrize(("n_rows", "epochs"), [(1_000, 30), (17_000, 30), (64_000, 8), (1_000_000, 5)])
def test_default_passes(n_rows, epochs):
    assert Recipe(hidden=(4,)).settled(n_rows).max_epochs == epochs
    assert Recipe(hidden=(4,), max_epochs=12).settled(n_rows).max_epochs == 12
    assert Recipe(hidden=()).settled(n_rows).max_epochs == 500


def test_a_fit_takes_them(rare_rows):
    X, y = rare_rows()
    X, y = np.tile(X, (2, 1)), np.tile(y, 2)
    model = CRCENClassifier(
        hidden=(2,), n_members=1, encoding="standard", schedule=Schedule(solver="adam", batch_size=1)
    ).fit(X, y)
    assert model.n_iter_ == max(5, min(30, 4000 // len(X)))
