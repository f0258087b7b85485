"""Several models on one page: figures at one price, differences paired by row, refusals in a sentence."""

import numpy as np
import pytest
from known_models import PricedPosterior, draw
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

import crcen
from crcen import InvalidInput
from crcen.report.evidence import gather
from crcen.report.measurements import compare


@pytest.fixture(scope="module")
def rows():
    model = PricedPosterior()
    X, y = draw(model, 1500, seed=17)
    return model, X, y, model.predict_proba(X)[:, 1]


def test_figures_are_those_of_each_model_at_the_first_ones_price(rows):
    model, X, y, p = rows
    other = p**1.5
    first, second = compare(gather(model, X, y), {"other": other}, "first")
    assert (first["name"], second["name"]) == ("first", "other")
    assert second["roc_auc"] == pytest.approx(roc_auc_score(y, other))
    assert second["average_precision"] == pytest.approx(average_precision_score(y, other))
    assert second["log_loss"] == pytest.approx(log_loss(y, other))
    assert second["brier"] == pytest.approx(brier_score_loss(y, other))
    price = model.weighting_.cost_ratio
    alarms = {name: one > model.weighting_.threshold for name, one in (("first", p), ("other", other))}
    costs = {name: np.where(y == 1, price * ~raised, 1.0 * raised) for name, raised in alarms.items()}
    assert second["found"] == (alarms["other"] & (y == 1)).sum()
    assert second["cost_per_1000"] == pytest.approx(1000 * costs["other"].mean())
    difference = costs["other"] - costs["first"]
    assert second["more_per_1000"] == pytest.approx(1000 * difference.mean())
    half = 1.96 * difference.std() / np.sqrt(len(y))
    assert second["interval"] == pytest.approx([1000 * (difference.mean() - half), 1000 * (difference.mean() + half)])
    assert first["more_per_1000"] == 0.0


def test_the_page_draws_them_in_a_browser(rows, chromium, tmp_path):
    model, X, y, p = rows
    page = crcen.write_report(
        model, X, y, tmp_path / "r.html", others={"b <i>": p**1.5, "c": np.full(len(y), 0.1)}
    ).path
    chromium.open(page)
    assert chromium.run("document.querySelectorAll('#models tbody tr').length") == 3
    assert chromium.run("document.querySelectorAll('#chart-models svg path').length") >= 3
    assert "b <i>" in chromium.run("document.querySelector('#models').textContent")
    assert chromium.troubles() == []
    assert page.stat().st_size < 1_000_000
    alone = crcen.write_report(model, X, y, tmp_path / "alone.html").path.read_text()
    assert 'id="models"' not in alone


def test_probabilities_must_be_of_the_same_rows(rows):
    model, X, y, p = rows
    with pytest.raises(InvalidInput, match="the model b must have one probability for each of 1500 rows"):
        compare(gather(model, X, y), {"b": p[:5]}, "first")
