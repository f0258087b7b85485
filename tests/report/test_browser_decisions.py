"""Goals and the curves of decisions in a real browser, against the library's own numbers."""

import numpy as np
import pytest
from known_models import PricedPosterior, draw

import crcen
from crcen import Capacity, ExpenseCurve, PrecisionAtLeast, RecallAtLeast
from crcen.theory.metrics import DecisionCurves

CHARTS = ("chart-benefit", "chart-gains", "chart-brier", "chart-costcurve")


@pytest.fixture(scope="module", params=[1500, 6000], ids=["all points", "thinned"])
def rows(request):
    model = PricedPosterior()
    X, y = draw(model, request.param, seed=13)
    return model, X, y, model.predict_proba(X)[:, 1]


@pytest.fixture(scope="module")
def page(rows, tmp_path_factory):
    model, X, y, _ = rows
    return crcen.write_report(model, X, y, tmp_path_factory.mktemp("page") / "report.html").path


def goal(browser, kind, value):
    browser.run(
        f"{{ const w = document.querySelector('#goal-{kind}'); w.value = '{value}';"
        " w.dispatchEvent(new Event('input')); }"
    )
    return browser.run("document.querySelector('#price-number').valueAsNumber")


@pytest.mark.parametrize(
    ("kind", "value", "asked"),
    [("capacity", 40, Capacity(40)), ("recall", 0.8, RecallAtLeast(0.8)), ("precision", 0.4, PrecisionAtLeast(0.4))],
)
def test_a_goal_moves_to_the_price_that_meets_it(opened, rows, kind, value, asked):
    _, _, y, p = rows
    price = goal(opened, kind, value)
    alarms = p > 1 / (1 + price)
    reached = {"capacity": -alarms.sum(), "recall": alarms[y == 1].mean(), "precision": y[alarms].mean()}[kind]
    assert reached >= (-value if kind == "capacity" else value)
    curve = ExpenseCurve.from_predictions(y, p, [crcen.Budget(1), crcen.Budget(2)], n_resamples=2)
    chosen = crcen.choose_weighting(curve, asked, n_resamples=2)
    exact = p > chosen.threshold
    assert abs(int(alarms.sum()) - int(exact.sum())) <= (0 if len(y) < 2000 else 8)  # the page may hold fewer points
    said = opened.run("document.querySelector('#goal-help').textContent")
    assert f"{alarms.sum():,} alarms" in said
    assert opened.run("document.querySelector('#out-tp').dataset.value") == str(int((alarms & (y == 1)).sum()))


def test_what_cannot_be_met_or_means_nothing_is_said_and_moves_nothing(opened):
    before = opened.run("document.querySelector('#price-number').valueAsNumber")
    assert goal(opened, "recall", 3) == before
    assert "must be a share above 0 and at most 1" in opened.run("document.querySelector('#goal-help').textContent")
    assert goal(opened, "capacity", 0) == before
    assert goal(opened, "precision", 0.5) != before
    assert opened.run("document.querySelector('#goal-recall').value") == ""  # one goal at a time


def test_curves_of_decisions_are_drawn_with_their_marks(opened, rows):
    for chart in CHARTS:
        assert opened.run(f"document.querySelectorAll('#{chart} svg path').length") >= 2
        assert opened.run(f"document.querySelector('#{chart} svg').getAttribute('aria-label') !== ''")
    _, _, y, p = rows
    embedded = opened.run("JSON.parse(document.getElementById('report-data').textContent).decisions")
    curves = DecisionCurves(y, p)
    shown = embedded["net_benefit"]
    np.testing.assert_allclose(shown["model"], curves.net_benefit(shown["price"]).model, atol=1e-6)
    brier = embedded["brier"]
    assert np.mean(brier["model"]) == pytest.approx(np.mean((y - p) ** 2), rel=0.05)  # its area is the Brier score
    gains = embedded["gains"]
    assert (gains["rows"][0], gains["found"][-1]) == (0, 1)
    place = np.searchsorted(np.sort(p)[::-1] * -1, -np.sort(p)[::-1][99], side="right") / len(p)
    assert np.interp(place, gains["rows"], gains["found"]) == pytest.approx(
        (p[y == 1] >= np.sort(p)[::-1][99]).mean(), abs=0.02
    )
    lift = float(opened.run("document.querySelector('#lift-text').dataset.value"))
    price = opened.run("document.querySelector('#price-number').valueAsNumber")
    alarms = p > 1 / (1 + price)
    assert lift == pytest.approx(y[alarms].mean() / y.mean())
