"""Groups by the commands; planted differences are in tests/report/test_codes_by_command.py."""

import numpy as np
import pandas as pd
import pytest

from crcen import Budget, CRCENClassifier, TableClassifier, evaluate_table


def table(n, seed):
    """Rows of two regions, which the model does not see."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.normal(size=n), "age": rng.integers(18, 90, n), "region": rng.choice(["n", "s"], n)})
    log_odds = -2 + 1.5 * frame.x
    return frame.assign(y=np.where(rng.random(n) < 1 / (1 + np.exp(-log_odds)), "yes", "no"))


@pytest.fixture(scope="module")
def model():
    rows = table(2500, 0)
    estimator = CRCENClassifier(Budget(4), hidden=(), random_state=0)
    return TableClassifier(estimator=estimator, drop=["region"], random_state=0).fit(rows.drop(columns="y"), rows.y)


def test_groups_that_are_alike_pass(model):
    found = evaluate_table(model, table(3000, 1), groups=["region", "age"], n_resamples=0)
    assert [one.column for one in found.groups] == ["region", "age"]
    assert not any(one.differing for one in found.groups)
    assert len(found.groups[1].groups) == 5  # ages in fifths
    assert sum(one.n_rows for one in found.groups[1].groups) == 3000
    assert "No difference between groups of region beyond chance." in str(found)
