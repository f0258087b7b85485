"""The page in a real browser: the numbers that move are those of decisions made row by row at that price."""

import math

import numpy as np
import pytest
from known_models import PricedPosterior, draw

import crcen
from crcen.report.measurements import WINDOWS, price_grid

FIGURES = (
    "Object.fromEntries([...document.querySelectorAll('[data-value]')].map((e) => [e.id, Number(e.dataset.value)]))"
)


@pytest.fixture(scope="module")
def rows():
    model = PricedPosterior()
    X, y = draw(model, 1800, seed=11)
    return model, X, y, model.predict_proba(X)[:, 1]


@pytest.fixture(scope="module")
def page(rows, tmp_path_factory):
    model, X, y, _ = rows
    path = tmp_path_factory.mktemp("page") / "report.html"
    return crcen.write_report(model, X, y, path, model_path="some where/model.crcen").path


def move_slider(browser, position):
    browser.run(
        f"{{ const s = document.querySelector('#price'); s.value = {position}; s.dispatchEvent(new Event('input')); }}"
    )
    return browser.run("document.querySelector('#price-number').valueAsNumber")


def check_figures(browser, y, p, price, miss, alarm, weights=None):
    """Compare every figure with a count over the rows."""
    weights = np.ones(y.size) if weights is None else weights
    alarms = p > 1 / (1 + price)
    tp, fp = weights[alarms & (y == 1)].sum(), weights[alarms & (y == 0)].sum()
    n_pos, total = weights[y == 1].sum(), weights.sum()
    shown = browser.run(FIGURES)
    wanted = {
        "out-tp": tp,
        "out-fn": n_pos - tp,
        "out-fp": fp,
        "out-recall": tp / n_pos,
        "out-precision": tp / (tp + fp) if tp + fp else math.nan,
        "out-alarms": 1000 * (tp + fp) / total,
        "out-cost-here": (n_pos - tp) * miss + fp * alarm,
        "out-cost": 1000 * ((n_pos - tp) * miss + fp * alarm) / total,
    }
    for name, value in wanted.items():
        got = shown[name]
        assert (got is None and math.isnan(value)) or got == pytest.approx(value, abs=1e-9), name
    check_expense(browser, y, p, weights)


def check_expense(browser, y, p, weights):
    """The expense is that of the rows that flip inside the bracket shown."""
    shown = browser.run("({...document.querySelector('#out-bracket').dataset})")
    low, high = float(shown["low"]), float(shown["high"])
    flips = (p > 1 / (1 + high)) & ~(p > 1 / (1 + low))
    catches, alarms = weights[flips & (y == 1)].sum(), weights[flips & (y == 0)].sum()
    assert float(shown["catches"]) == pytest.approx(catches, abs=1e-9)
    expense = browser.run("Number(document.querySelector('#out-expense').dataset.value)")
    if catches:
        assert expense == pytest.approx(alarms / catches)
    else:
        assert expense is None
    text = browser.run("document.querySelector('#out-bracket').textContent")
    if catches and low <= alarms / catches <= high:
        assert text.startswith("inside its bracket")
    elif catches:
        assert text.startswith("outside its bracket")


def test_the_slider_starts_at_the_models_price_and_every_figure_is_that_of_its_price(opened, rows):
    *_, y, p = rows
    assert opened.run("document.querySelector('#price-number').value") == "5"
    check_figures(opened, y, p, 5.0, miss=5.0, alarm=1.0)
    grid = price_grid(5.0, (y == 0).sum() / (y == 1).sum())
    assert opened.run("Number(document.querySelector('#price').max)") == len(grid) - 1
    for position in [0, 3, 77, 120, 163, 200, 222, len(grid) - 1]:
        price = move_slider(opened, position)
        assert price == grid[position]
        check_figures(opened, y, p, price, miss=5.0, alarm=1.0)
        middle = opened.run("document.querySelector('#out-bracket').dataset.low")
        assert float(middle) in {grid[max(position - width, 0)] for width in WINDOWS}


def test_a_typed_price_counts_exactly(opened, rows):
    *_, y, p = rows
    for price in (0.37, 12.3456, 6, 1e7, 1e-4):
        opened.type_over("#price-number", str(price))
        check_figures(opened, y, p, price, miss=5.0, alarm=1.0)
        command = opened.run("document.querySelector('#command').textContent").split()
        assert float(command[command.index("--budget") + 1]) == price
    before = opened.run(FIGURES)
    for nonsense in ("0", "-3", ""):
        opened.type_over("#price-number", nonsense)
        assert opened.run("document.querySelector('#price-number').checkValidity()") is False
        assert opened.run(FIGURES) == before


def test_arrow_keys_move_the_slider_and_it_says_its_value(opened, rows):
    *_, y, p = rows
    opened.run("document.querySelector('#price').focus()")
    place = opened.run("Number(document.querySelector('#price').value)")
    opened.press("ArrowRight")
    opened.press("ArrowRight")
    assert opened.run("Number(document.querySelector('#price').value)") == place + 2
    price = opened.run("document.querySelector('#price-number').valueAsNumber")
    assert price > 5
    check_figures(opened, y, p, price, miss=5.0, alarm=1.0)
    spoken = opened.run("document.querySelector('#price').getAttribute('aria-valuetext')")
    assert spoken == f"{price:g} false alarms per catch"
    opened.press("PageUp")
    assert opened.run("Number(document.querySelector('#price').value)") > place + 3


def test_typed_costs_set_the_price_and_the_slider_keeps_them(opened, rows):
    *_, y, p = rows
    opened.type_over("#cost-miss", "120")
    opened.type_over("#cost-alarm", "8")
    assert opened.run("document.querySelector('#price-number').value") == "15"
    check_figures(opened, y, p, 15.0, miss=120.0, alarm=8.0)
    price = move_slider(opened, 100)
    check_figures(opened, y, p, price, miss=120.0, alarm=8.0)
    assert "mean a price of 15" in opened.run("document.querySelector('#cost-help').textContent")
    opened.run("document.querySelector('#use-costs').click()")
    check_figures(opened, y, p, 15.0, miss=120.0, alarm=8.0)
    opened.type_over("#cost-alarm", "0")
    assert "numbers above 0" in opened.run("document.querySelector('#cost-help').textContent")
    opened.run("document.querySelector('#reset').click()")
    assert opened.run("document.querySelector('#price-number').value") == "5"


def test_the_command_is_copied(opened):
    opened.ask("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    move_slider(opened, 200)
    price = opened.run("document.querySelector('#price-number').value")
    opened.run("document.querySelector('#copy').click()")
    opened.run("new Promise((done) => setTimeout(done, 200))")
    assert opened.run("document.querySelector('#copy-status').textContent") == "Copied."
    command = f"crcen predict model.crcen new.csv --budget {price} --out scored.csv"
    assert opened.run("document.querySelector('#command').textContent") == command
    assert opened.run("navigator.clipboard.readText()") == command


def test_curves_are_drawn_and_their_marks_move(opened):
    drawn = (
        "[...document.querySelectorAll('.chart > svg')].map((svg) => svg.querySelectorAll('path, circle, rect').length)"
    )
    assert all(count > 0 for count in opened.run(drawn))
    assert len(opened.run(drawn)) == 11
    ring = "document.querySelector('#chart-roc .mark').getAttribute('cx')"
    before = float(opened.run(ring))
    move_slider(opened, 299)
    assert float(opened.run(ring)) > before


def test_every_control_has_a_name_and_can_be_reached(opened):
    tree = opened.ask("Accessibility.getFullAXTree")["nodes"]
    names = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node.get("ignored")}
    assert ("slider", "Price: false alarms per catch") in names
    assert ("spinbutton", "one miss") in names
    assert ("button", "Copy") in names
    named = ("slider", "spinbutton", "button", "link", "image")
    assert not {role for role, name in names if role in named and not name}
    reached = set()
    for _ in range(30):
        opened.press("Tab")
        reached.add(opened.run("document.activeElement.id"))
    assert {"price", "price-number", "cost-miss", "cost-alarm", "copy", "reset"} <= reached


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_wider_than_the_window(chromium, page, width, dark):
    chromium.open(page, width, 800, dark=dark)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    dark_ground = chromium.run("getComputedStyle(document.body).backgroundColor") != "rgb(246, 247, 249)"
    assert dark_ground == dark
    chromium.resize(width + 100, 800)
    chromium.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    room = chromium.run("document.querySelector('#chart-pr').clientWidth")
    assert chromium.run("document.querySelector('#chart-pr svg').viewBox.baseVal.width") == pytest.approx(room, abs=1)
    assert chromium.troubles() == []


def test_sample_weights_and_thousands_of_scores(chromium, tmp_path):
    model = PricedPosterior(price=30.0, a=-4.5)
    X, y = draw(model, 9000, seed=2)
    p, weights = model.predict_proba(X)[:, 1], np.random.default_rng(0).uniform(0.2, 2.0, y.size)
    chromium.open(crcen.write_report(model, X, y, tmp_path / "r.html", sample_weight=weights).path)
    for position in (40, 150, 210, 260):
        price = move_slider(chromium, position)
        check_figures(chromium, y, p, price, miss=30.0, alarm=1.0, weights=weights)
        assert chromium.run("document.querySelector('#exactness').textContent") == ""
    for price in (1, 8, 25, 0.7):
        chromium.type_over("#price-number", str(price))
        check_figures(chromium, y, p, price, miss=30.0, alarm=1.0, weights=weights)
        assert chromium.run("document.querySelector('#exactness').textContent") == ""
    inexact = []
    for price in np.geomspace(1.234567, 200.0, 40):
        chromium.type_over("#price-number", repr(float(price)))
        inexact.append(chromium.run("document.querySelector('#exactness').textContent") != "")
        shown = chromium.run("Number(document.querySelector('#out-fp').dataset.value)")
        truth = weights[(p > 1 / (1 + price)) & (y == 0)].sum()
        assert shown == pytest.approx(truth) or (inexact[-1] and shown <= truth)
    assert any(inexact)
    assert chromium.troubles() == []


def test_in_print_the_tables_are_open_and_the_ground_is_white(chromium, page):
    chromium.open(page, dark=True)
    chromium.ask("Emulation.setEmulatedMedia", media="print")
    chromium.run("window.dispatchEvent(new Event('beforeprint'))")
    assert chromium.run("[...document.querySelectorAll('details')].every((one) => one.open)")
    assert chromium.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert len(chromium.ask("Page.printToPDF")["data"]) > 10_000
    chromium.ask("Emulation.setEmulatedMedia", media="")
