"""Groups by the commands: a planted difference is found, named and can end a pipeline; nothing is equalised."""

import numpy as np
import pandas as pd
import pytest

from crcen import Budget, CRCENClassifier, InvalidInput, TableClassifier, evaluate_table


def table(n, seed, wrong=0.0):
    """Rows in which the log-odds of region "south", which the model does not see, are moved by ``wrong``."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.normal(size=n), "age": rng.integers(18, 90, n), "region": rng.choice(["n", "s"], n)})
    log_odds = -2 + 1.5 * frame.x + wrong * (frame.region == "s")
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


def test_a_group_that_is_served_differently_is_named_and_can_end_a_pipeline(model):
    rows = table(3000, 2, wrong=1.2)
    found = evaluate_table(model, rows, groups="region", n_resamples=0, fail_on="CRC010")
    assert "calibration" in found.groups[0].differing
    assert found.failures
    assert "Warning CRC010: groups of region differ" in str(found)
    assert found.to_dict()["groups"][0]["tests"][2]["differs"] is True


def test_bad_groups_end_in_a_sentence(model):
    rows = table(300, 3)
    with pytest.raises(InvalidInput, match="groups must be a column"):
        evaluate_table(model, rows, groups=["regio"], n_resamples=0)
