"""Checks read the columns of a table classifier as its network does."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from crcen import CRCENClassifier, TableClassifier
from crcen.report.columns import permutation_importance, single_columns
from crcen.report.evidence import gather


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 800
    y = (rng.random(n) < 0.2).astype(int)
    number = (rng.normal(size=n) + y).round(5)
    gaps = np.where(y == 1, np.nan, rng.normal(size=n).round(5))  # missing exactly where the event is
    frame = pd.DataFrame(
        {
            "number": number,
            "gaps": gaps,
            "kind": np.where(y == 1, rng.choice(["a", "b"], n), rng.choice(["c", "d"], n)),
            "flag": rng.choice(["yes", "no"], n),
            "day": (pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 60, n) + 100 * y, "D")).strftime(
                "%d.%m.%Y"
            ),
            "note": [f"client {i} wrote" + (" refund" if one else "") for i, one in enumerate(y)],
        }
    )
    return frame, y


@pytest.fixture(scope="module")
def model(rows):
    frame, y = rows
    return TableClassifier(estimator=CRCENClassifier(hidden=(), l2=1e-2, random_state=0), random_state=0).fit(frame, y)


def test_text_and_typed_columns_have_the_same_areas(model, rows):
    frame, y = rows
    typed = areas(model, frame, y)
    text = areas(model, frame.astype(object).where(frame.notna()).map(_as_text), y)
    assert text == typed
    assert typed["number"] == pytest.approx(roc_auc_score(y, frame["number"]))
    assert [typed[name] for name in ("gaps", "kind", "day")] == [1.0, 1.0, 1.0]
    assert typed["flag"] == pytest.approx(0.5, abs=0.06)
    assert typed["note"] > 0.9


def areas(model, X, y):
    return {one.name: one.area for one in single_columns(gather(model, X, y))}


def _as_text(cell):
    return cell if cell is None or isinstance(cell, str) or np.isnan(cell) else str(cell)


def test_columns_that_the_model_does_not_use_cannot_leak(model, rows):
    frame, y = rows
    assert "answer" not in areas(model, frame.assign(answer=y), y)


def test_numbers_as_text_are_numbers_for_other_models_too(rows):
    frame, y = rows

    class Constant:
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    cells = frame[["number"]].astype(str)
    for X in (cells, cells.to_numpy()):
        (found,) = single_columns(gather(Constant(), X, y))
        assert found.area == pytest.approx(roc_auc_score(y, frame["number"]))


def test_importance_of_arrays_finds_their_columns(rows):
    frame, y = rows
    X = frame[["number"]].to_numpy()
    X = np.column_stack([X, np.random.default_rng(1).normal(size=len(X))])
    model = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0), random_state=0).fit(X, y)
    found = permutation_importance(gather(model, X, y))
    assert [one.name for one in found.columns] == ["0", "1"]
    assert found.columns[0].low > 0.0
