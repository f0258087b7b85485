"""How long Adam trains by default: enough steps, whatever the number of rows."""

import numpy as np
import pytest

from crcen import CRCENClassifier
from crcen.models.automatic import epochs_of


@pytest.mark.parametrize(("n_rows", "epochs"), [(1_000, 30), (17_000, 30), (64_000, 8), (1_000_000, 5)])
def test_default_passes(n_rows, epochs):
    assert epochs_of(None, "adam", n_rows, 128) == epochs
    assert epochs_of(12, "adam", n_rows, 128) == 12
    assert epochs_of(None, "lbfgs", n_rows, 128) == 500


def test_a_fit_takes_them(rare_rows):
    X, y = rare_rows()
    X, y = np.tile(X, (2, 1)), np.tile(y, 2)
    model = CRCENClassifier(hidden=(2,), n_members=1, encoding="standard", solver="adam", batch_size=1).fit(X, y)
    assert model.n_iter_ == max(5, min(30, 4000 // len(X)))
