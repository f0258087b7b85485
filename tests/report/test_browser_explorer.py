"""Pages in a real browser: figures are those of decisions made row by row; goals, curves, costs, the monitor."""

import numpy as np
import pandas as pd
import pytest
from known_models import PricedPosterior, draw
from scipy.special import softmax

import crcen
from crcen.report.evidence import evidence_of
from crcen.report.quality import MOST_NUMBERS, WINDOWS, explored_rows, price_grid
from crcen.theory.metrics import DecisionCurves, measure_quality
from crcen.theory.price import Price

VALUES = "[...document.querySelectorAll('[data-value]')].map((e) => [e.id, Number(e.dataset.value)])"
FIGURES = f"Object.fromEntries({VALUES})"


def watched(browser, page):
    """The browser with a page that fetches nothing, runs no foreign script and reports no error."""
    browser.open(page)
    yield browser
    assert browser.troubles() == []
    assert [address for address in browser.requests() if not address.startswith(("file:", "about:"))] == []
    assert not browser.run("'hacked' in window")


@pytest.fixture
def opened(chromium, page):
    yield from watched(chromium, page)


@pytest.fixture
def opened_costs(chromium, class_page):
    yield from watched(chromium, class_page)


@pytest.fixture(scope="module")
def rows(request):
    model = PricedPosterior()
    X, y = draw(model, getattr(request, "param", 1800), seed=11)
    return model, X, y, model.predict_proba(X)[:, 1]


@pytest.fixture(scope="module")
def page(rows, tmp_path_factory):
    model, X, y, _ = rows
    path = tmp_path_factory.mktemp("page") / "report.html"
    return crcen.write_report(model, X, y, path, model_path="some where/model.crcen").path


both = pytest.mark.parametrize("rows", [1800, 6000], ids=["all points", "thinned"], indirect=True)


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
    missed, cost = n_pos - tp, (n_pos - tp) * miss + fp * alarm
    wanted = {"tp": tp, "fn": missed, "fp": fp, "recall": tp / n_pos, "alarms": 1000 * (tp + fp) / total}
    wanted |= {"precision": tp / (tp + fp) if tp + fp else None, "cost-here": cost, "cost": 1000 * cost / total}
    for name, value in wanted.items():
        assert shown[f"out-{name}"] == (None if value is None else pytest.approx(value, abs=1e-9)), name
    # The expense is that of the rows that flip inside the bracket shown.
    shown = browser.run("({...document.querySelector('#out-bracket').dataset})")
    low, high = float(shown["low"]), float(shown["high"])
    flips = (p > 1 / (1 + high)) & ~(p > 1 / (1 + low))
    catches, alarms = weights[flips & (y == 1)].sum(), weights[flips & (y == 0)].sum()
    assert float(shown["catches"]) == pytest.approx(catches, abs=1e-9)
    expense = browser.run("Number(document.querySelector('#out-expense').dataset.value)")
    assert expense == (pytest.approx(alarms / catches) if catches else None)
    if catches:
        side = "inside" if low <= alarms / catches <= high else "outside"
        assert browser.run("document.querySelector('#out-bracket').textContent").startswith(f"{side} its bracket")


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
    check_figures(opened, y, p, move_slider(opened, 100), miss=120.0, alarm=8.0)
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
    drawn = "[...document.querySelectorAll('.chart > svg')].map((s) => s.querySelectorAll('path, circle, rect').length)"
    assert [count > 0 for count in opened.run(drawn)] == [True] * 11
    ring = "document.querySelector('#chart-roc .mark').getAttribute('cx')"
    before = float(opened.run(ring))
    move_slider(opened, 299)
    assert float(opened.run(ring)) > before


def test_every_control_has_a_name_and_can_be_reached(opened):
    tree = opened.ask("Accessibility.getFullAXTree")["nodes"]
    names = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node.get("ignored")}
    assert {("slider", "Price: false alarms per catch"), ("spinbutton", "one miss"), ("button", "Copy")} <= names
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

    def check(price):
        check_figures(chromium, y, p, price, miss=30.0, alarm=1.0, weights=weights)
        assert chromium.run("document.querySelector('#exactness').textContent") == ""

    for position in (40, 150, 210, 260):
        check(move_slider(chromium, position))
    for price in (1, 8, 25, 0.7):
        chromium.type_over("#price-number", str(price))
        check(price)
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


CHARTS = ("chart-benefit", "chart-gains", "chart-brier", "chart-costcurve")


def goal(browser, kind, value):
    browser.run(
        f"{{ const w = document.querySelector('#goal-{kind}'); w.value = '{value}';"
        " w.dispatchEvent(new Event('input')); }"
    )
    return browser.run("document.querySelector('#price-number').valueAsNumber")


@both
@pytest.mark.parametrize(
    ("kind", "value", "asked"),
    [
        ("capacity", 40, crcen.Capacity(40)),
        ("recall", 0.8, crcen.RecallAtLeast(0.8)),
        ("precision", 0.4, crcen.PrecisionAtLeast(0.4)),
    ],
)
def test_a_goal_moves_to_the_price_that_meets_it(opened, rows, kind, value, asked):
    _, _, y, p = rows
    alarms = p > 1 / (1 + goal(opened, kind, value))
    reached = {"capacity": -alarms.sum(), "recall": alarms[y == 1].mean(), "precision": y[alarms].mean()}[kind]
    assert reached >= (-value if kind == "capacity" else value)
    curve = crcen.ExpenseCurve.from_predictions(y, p, [crcen.Budget(1), crcen.Budget(2)], n_resamples=2)
    exact = p > crcen.choose_weighting(curve, asked, n_resamples=2).threshold
    assert abs(int(alarms.sum()) - int(exact.sum())) <= (0 if len(y) < 2000 else 8)  # the page may hold fewer points
    assert f"{alarms.sum():,} alarms" in opened.run("document.querySelector('#goal-help').textContent")
    assert opened.run("document.querySelector('#out-tp').dataset.value") == str(int((alarms & (y == 1)).sum()))


@both
def test_what_cannot_be_met_or_means_nothing_is_said_and_moves_nothing(opened):
    before = opened.run("document.querySelector('#price-number').valueAsNumber")
    assert goal(opened, "recall", 3) == before
    assert "must be a share above 0 and at most 1" in opened.run("document.querySelector('#goal-help').textContent")
    assert goal(opened, "capacity", 0) == before
    assert goal(opened, "precision", 0.5) != before
    assert opened.run("document.querySelector('#goal-recall').value") == ""  # one goal at a time


@both
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
    place, found = ((one >= np.sort(p)[-100]).mean() for one in (p, p[y == 1]))
    assert np.interp(place, gains["rows"], gains["found"]) == pytest.approx(found, abs=0.02)
    lift = float(opened.run("document.querySelector('#lift-text').dataset.value"))
    price = opened.run("document.querySelector('#price-number').valueAsNumber")
    alarms = p > 1 / (1 + price)
    assert lift == pytest.approx(y[alarms].mean() / y.mean())


HOSTILE = '</p><script>window.hacked=1</script><img src=x onerror="window.hacked=2">'


def test_the_page_loads_nothing_fits_a_phone_and_says_what_the_calls_found(chromium, tmp_path):
    rng = np.random.default_rng(0)

    def rows(n):
        x = rng.normal(size=n)
        return pd.DataFrame({"<b>x</b>": x, "z": rng.normal(size=n), "y": (rng.random(n) < 1 / (1 + np.exp(2 - x)))})

    training = rows(900)
    estimator = crcen.CRCENClassifier(crcen.Budget(4), hidden=(), random_state=0)
    model = crcen.TableClassifier(estimator=estimator, random_state=0).fit(training.drop(columns="y"), training.y)
    options = {"state": tmp_path / "watch.json", "page": (page := tmp_path / "watch.html")}
    for _ in range(3):
        crcen.monitor_table(model, rows(200), when=HOSTILE, **options)
    moved = rows(200)
    moved["<b>x</b>"] += 50
    crcen.monitor_table(model, moved, when="moved", **options)
    for width in (390, 1160):
        chromium.open(page, width=width)
        assert (chromium.troubles(), chromium.requests()) == ([], [page.resolve().as_uri()])
        assert chromium.run("window.hacked") is None
        assert chromium.run("document.documentElement.scrollWidth") <= width
    chromium.open(page)
    assert chromium.run("document.querySelector('.badge').innerText") == "Alarm"
    assert "<b>x</b>" in chromium.run("document.querySelector('#columns').innerText")
    for selector, count in (("#calls tbody tr", 4), ("#labels svg circle", 4), ("#expected figure", 3)):
        assert chromium.run(f"document.querySelectorAll('{selector}').length") == count


LABELS = ["brøken", "fine", "</script><b>worn"]
WORN = LABELS[2]


class KnownClasses:
    """States the softmax of −1 + x, 1 and x₁; with class weights, as crcen's own estimators have them."""

    classes_ = np.array(LABELS, dtype=object)
    weighting_ = Price(np.array([12.0, 1.0, 3.0]), np.array([11_000.0, 60_000.0, 29_000.0]))

    def predict_proba(self, X):
        X = np.asarray(X, dtype=float)
        return softmax(np.column_stack([X[:, 0] - 1.5, np.ones(len(X)), X[:, 1]]), axis=1)


def draw_classes(model, n, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    p = model.predict_proba(X)
    return X, model.classes_[(rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1)], p


@pytest.fixture(scope="module")
def class_rows():
    model = KnownClasses()
    return model, *draw_classes(model, 1500, seed=3)


@pytest.fixture(scope="module")
def class_page(class_rows, tmp_path_factory):
    model, X, y, _ = class_rows
    path = tmp_path_factory.mktemp("page") / "report.html"
    return crcen.write_report(model, X, y, path, title=WORN, data_name=WORN, model_path="a b/model.crcen").path


def shown_costs(browser):
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


def check_costs(found, y, p, costs):
    wanted = measure_quality(np.array([LABELS.index(one) for one in y]), p, costs)
    np.testing.assert_array_equal(found["table"], wanted.counts.table)
    figures = [found[f"out-{name}"] for name in ("cost", "habit", "saved")]
    assert figures == pytest.approx([wanted.cost.value, wanted.habit_cost, wanted.saved.value])


def test_the_costs_of_the_model_and_others_that_are_typed(opened_costs, class_rows):
    model, _, y, p = class_rows
    start = model.weighting_.weights[:, None] * (1 - np.eye(3))
    check_costs(shown_costs(opened_costs), y, p, crcen.CostMatrix(start, labels=LABELS))
    assert shown_costs(opened_costs)["out-changed"] == 0
    typed = start.copy()
    typed[0, 1], typed[1, 2] = 55.5, 0.25
    type_cost(opened_costs, "cost-0-1", 55.5)
    type_cost(opened_costs, "cost-1-2", 0.25)
    costs = crcen.CostMatrix(typed, labels=LABELS)
    check_costs(shown_costs(opened_costs), y, p, costs)
    by_model = crcen.CostMatrix(start, labels=LABELS).choose(p)
    assert shown_costs(opened_costs)["out-changed"] == (costs.choose(p) != by_model).sum() > 0
    type_cost(opened_costs, "look-cost", 0.4)
    check_costs(shown_costs(opened_costs), y, p, costs.with_review(0.4, "review"))
    opened_costs.run("document.querySelector('#reset').click()")
    check_costs(shown_costs(opened_costs), y, p, crcen.CostMatrix(start, labels=LABELS))


def test_the_file_of_costs_is_one_that_the_command_reads(opened_costs, tmp_path):
    from crcen.commands.rules import costs_from

    type_cost(opened_costs, "cost-0-1", 17)
    type_cost(opened_costs, "look-cost", 0.5)
    (tmp_path / "costs.csv").write_text(
        opened_costs.run("document.querySelector('#costs-file').value"), encoding="utf-8"
    )
    costs = costs_from(tmp_path / "costs.csv", LABELS)
    assert costs.costs[0].tolist() == [0, 17, 12, 0.5]
    assert costs.actions == ("review",)
    assert "--costs costs.csv" in opened_costs.run("document.querySelector('#command').textContent")


def test_a_cell_that_is_no_cost_moves_nothing_and_is_said(opened_costs):
    before = shown_costs(opened_costs)
    for value in ("-3", ""):
        type_cost(opened_costs, "cost-0-1", value)
        assert "must be a number from 0" in opened_costs.run("document.querySelector('#cost-help').textContent")
        assert shown_costs(opened_costs) == before


def test_a_class_turns_into_its_own_explorer(opened_costs, class_rows):
    _, _, y, p = class_rows
    opened_costs.run(
        "{ const c = document.querySelector('#class-choice'); c.value = '0'; c.dispatchEvent(new Event('change')); }"
    )
    inside = "document.querySelector('#one-class-frame').contentDocument"
    opened_costs.wait_until(f"Boolean({inside}?.querySelector('#out-tp')?.dataset.value)")
    price = opened_costs.run(f"{inside}.querySelector('#price-number').valueAsNumber")
    found = opened_costs.run(f"Number({inside}.querySelector('#out-tp').dataset.value)")
    alarms = p[:, 0] > 1 / (1 + price)
    assert found == (alarms & (y == "brøken")).sum()
    assert opened_costs.run(f"{inside}.querySelectorAll('#chart-pr path').length") >= 1
    assert opened_costs.run(f"{inside}.querySelector('#warnings')") is None
    assert "--positive" in opened_costs.run(f"{inside}.querySelector('#command').textContent")


def test_the_page_is_small_and_escaped(class_page):
    assert "<b>worn" not in class_page.read_text(encoding="utf-8")
    assert class_page.stat().st_size < 700_000


def test_many_rows_stay_small_and_the_sample_counts_for_all(tmp_path):
    model = KnownClasses()
    X, y, p = draw_classes(model, 90_000)
    path = crcen.write_report(model, X, y, tmp_path / "r.html").path
    assert path.stat().st_size < 1_000_000
    numbers = np.array([LABELS.index(one) for one in y])
    chosen, weights = explored_rows(evidence_of(model, numbers, p))
    assert len(chosen) * 3 <= MOST_NUMBERS
    np.testing.assert_allclose(np.bincount(numbers[chosen], weights), np.bincount(numbers))
    costs = crcen.CostMatrix(model.weighting_.weights[:, None] * (1 - np.eye(3)), labels=LABELS)
    whole, part = measure_quality(numbers, p, costs), measure_quality(numbers[chosen], p[chosen], costs, weights)
    assert part.cost.value == pytest.approx(whole.cost.value, rel=0.05)
