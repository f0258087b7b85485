"""The page of several classes in a real browser: decisions and costs move as Python decides them."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import crcen
from crcen import CostMatrix
from crcen.report.evidence import evidence_of
from crcen.report.quality import MOST_NUMBERS, explored_rows
from crcen.theory.metrics import measure_quality
from crcen.theory.price import Price

LABELS = ["brøken", "fine", "</script><b>worn"]
HOSTILE = LABELS[2]


class KnownClasses:
    """States the softmax of −1 + x, 1 and x₁; with class weights, as crcen's own estimators have them."""

    classes_ = np.array(LABELS, dtype=object)
    weighting_ = Price(np.array([12.0, 1.0, 3.0]), np.array([11_000.0, 60_000.0, 29_000.0]))

    def predict_proba(self, X):
        X = np.asarray(X, dtype=float)
        return softmax(np.column_stack([X[:, 0] - 1.5, np.ones(len(X)), X[:, 1]]), axis=1)


def draw(model, n, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    p = model.predict_proba(X)
    return X, model.classes_[(rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1)], p


@pytest.fixture(scope="module")
def rows():
    model = KnownClasses()
    return model, *draw(model, 1500, seed=3)


@pytest.fixture(scope="module")
def page(rows, tmp_path_factory):
    model, X, y, _ = rows
    path = tmp_path_factory.mktemp("page") / "report.html"
    return crcen.write_report(model, X, y, path, title=HOSTILE, data_name=HOSTILE, model_path="a b/model.crcen").path


def shown(browser):
    """Cost, habit, saving, changed rows and the table of counts, as the page has them."""
    return browser.run(
        "({...Object.fromEntries([...document.querySelectorAll('#figures [data-value]')]"
        ".map((e) => [e.id, Number(e.dataset.value)])),"
        " table: [...document.querySelectorAll('#count-table tbody tr')]"
        ".map((r) => [...r.querySelectorAll('td[data-value]')].map((c) => Number(c.dataset.value)))})"
    )


def type_cost(browser, where, value):
    browser.run(
        f"{{ const c = document.querySelector('#{where}'); c.value = '{value}';"
        " c.dispatchEvent(new Event('input', {bubbles: true})); }"
    )


def check(found, y, p, costs):
    numbers = np.array([LABELS.index(one) for one in y])
    wanted = measure_quality(numbers, p, costs)
    np.testing.assert_array_equal(found["table"], wanted.counts.table)
    figures = [found[f"out-{name}"] for name in ("cost", "habit", "saved")]
    assert figures == pytest.approx([wanted.cost.value, wanted.habit_cost, wanted.saved.value])


def test_the_costs_of_the_model_and_others_that_are_typed(opened, rows):
    model, _, y, p = rows
    start = model.weighting_.weights[:, None] * (1 - np.eye(3))
    check(shown(opened), y, p, CostMatrix(start, labels=LABELS))
    assert shown(opened)["out-changed"] == 0
    typed = start.copy()
    typed[0, 1], typed[1, 2] = 55.5, 0.25
    type_cost(opened, "cost-0-1", 55.5)
    type_cost(opened, "cost-1-2", 0.25)
    costs = CostMatrix(typed, labels=LABELS)
    check(shown(opened), y, p, costs)
    by_model = CostMatrix(start, labels=LABELS).choose(p)
    assert shown(opened)["out-changed"] == (costs.choose(p) != by_model).sum() > 0
    type_cost(opened, "look-cost", 0.4)
    check(shown(opened), y, p, costs.with_review(0.4, "review"))
    opened.run("document.querySelector('#reset').click()")
    check(shown(opened), y, p, CostMatrix(start, labels=LABELS))


def test_the_file_of_costs_is_one_that_the_command_reads(opened, tmp_path):
    from crcen.commands.prices import costs_from

    type_cost(opened, "cost-0-1", 17)
    type_cost(opened, "look-cost", 0.5)
    (tmp_path / "costs.csv").write_text(opened.run("document.querySelector('#costs-file').value"), encoding="utf-8")
    costs = costs_from(tmp_path / "costs.csv", LABELS)
    assert costs.costs[0].tolist() == [0, 17, 12, 0.5]
    assert costs.actions == ("review",)
    assert "--costs costs.csv" in opened.run("document.querySelector('#command').textContent")


def test_a_cell_that_is_no_cost_moves_nothing_and_is_said(opened):
    before = shown(opened)
    for value in ("-3", ""):
        type_cost(opened, "cost-0-1", value)
        assert "must be a number from 0" in opened.run("document.querySelector('#cost-help').textContent")
        assert shown(opened) == before


def test_a_class_turns_into_its_own_explorer(opened, rows):
    _, _, y, p = rows
    opened.run(
        "{ const c = document.querySelector('#class-choice'); c.value = '0'; c.dispatchEvent(new Event('change')); }"
    )
    inside = "document.querySelector('#one-class-frame').contentDocument"
    opened.wait_until(f"Boolean({inside}?.querySelector('#out-tp')?.dataset.value)")
    price = opened.run(f"{inside}.querySelector('#price-number').valueAsNumber")
    found = opened.run(f"Number({inside}.querySelector('#out-tp').dataset.value)")
    alarms = p[:, 0] > 1 / (1 + price)
    assert found == (alarms & (y == "brøken")).sum()
    assert opened.run(f"{inside}.querySelectorAll('#chart-pr path').length") >= 1
    assert opened.run(f"{inside}.querySelector('#warnings')") is None
    assert "--positive" in opened.run(f"{inside}.querySelector('#command').textContent")


def test_the_page_is_small_and_escaped(page):
    assert "<b>worn" not in page.read_text(encoding="utf-8")
    assert page.stat().st_size < 700_000


def test_many_rows_stay_small_and_the_sample_counts_for_all(tmp_path):
    model = KnownClasses()
    X, y, p = draw(model, 90_000)
    path = crcen.write_report(model, X, y, tmp_path / "r.html").path
    assert path.stat().st_size < 1_000_000
    numbers = np.array([LABELS.index(one) for one in y])
    chosen, weights = explored_rows(evidence_of(model, numbers, p))
    assert len(chosen) * 3 <= MOST_NUMBERS
    np.testing.assert_allclose(np.bincount(numbers[chosen], weights), np.bincount(numbers))
    costs = CostMatrix(model.weighting_.weights[:, None] * (1 - np.eye(3)), labels=LABELS)
    whole, part = measure_quality(numbers, p, costs), measure_quality(numbers[chosen], p[chosen], costs, weights)
    assert part.cost.value == pytest.approx(whole.cost.value, rel=0.05)
