"""Effects of columns: direction and shape against models whose log-odds are known."""

import re

import numpy as np
import pandas as pd
import pytest
from known_models import PricedPosterior, draw

import crcen
from crcen.report.columns import column_effects
from crcen.report.evidence import gather


class KnownLogOdds:
    """A classifier with log-odds 2a − b² + 1.5·[c is "x"] − 1, whatever the column d."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        log_odds = 2 * X.a - X.b**2 + 1.5 * (X.c == "x") - 1
        p = 1 / (1 + np.exp(-log_odds.to_numpy(dtype=float)))
        return np.column_stack([1 - p, p])


@pytest.fixture(scope="module")
def rows():
    rng, model = np.random.default_rng(0), KnownLogOdds()
    columns = {"a": rng.normal(size=900), "b": rng.normal(size=900), "c": rng.choice(["x", "y", "<z>"], 900)}
    X = pd.DataFrame({**columns, "d": rng.normal(size=900)})
    return model, X, (rng.random(900) < model.predict_proba(X)[:, 1]).astype(int)


@pytest.fixture(scope="module")
def effects(rows):
    return {one.name: one for one in column_effects(gather(*rows))}


def test_a_line_has_its_slope(effects):
    a = effects["a"]
    assert a.shape == "rises"
    places, values = (np.array([getattr(point, name) for point in a.points]) for name in ("place", "effect"))
    assert np.allclose(np.diff(values) / np.diff(places), 2.0, atol=1e-9)
    assert all(point.low < point.effect < point.high for point in a.points)


def test_a_parabola_rises_and_falls(effects):
    assert effects["b"].shape == "rises and falls"
    top = max(effects["b"].points, key=lambda point: point.effect)
    assert abs(top.place) < 0.6


def test_categories_stand_in_the_order_of_their_effect(effects):
    c = effects["c"]
    assert not c.is_ordered
    assert c.points[0].label == "x"
    assert c.points[0].effect - c.points[1].effect == pytest.approx(1.5, abs=1e-9)
    assert c.points[1].effect == pytest.approx(c.points[2].effect, abs=1e-9)


def test_a_column_without_an_effect_is_not_drawn(effects):
    assert "d" not in effects


def test_the_interval_is_that_of_a_mean_over_rows(effects):
    """Rows' own values of a have variance 1, so that the mean of 2(g − a) over 150 rows has an error of 2/√150."""
    point = effects["a"].points[4]
    assert (point.high - point.low) / 2 == pytest.approx(1.96 * 2 / np.sqrt(150), rel=0.15)


def test_all_drawings_share_one_scale(rows, effects, tmp_path):
    text = crcen.write_report(*rows, tmp_path / "report.html").path.read_text()
    drawn = dict(re.findall(r'<figure class="effect"><h3>([abc]) (.*?)</figure>', text, re.S))
    assert list(drawn) == list(effects)
    slopes = set()
    for name in "ab":
        heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', drawn[name])]
        points = [point.effect for point in effects[name].points]
        slopes.add(round(np.polyfit(points, heights, 1)[0]))
    assert len(slopes) == 1
    assert "&lt;z&gt;" in drawn["c"]


def test_the_page_has_effects_and_groups_escaped(tmp_path, chromium):
    model = PricedPosterior()
    X, y = draw(model, 900, seed=3)
    hostile = "</td><script>window.hacked=1</script>"
    number = np.arange(len(y))
    groups = {"<i>sex</i>": np.where(number % 2, hostile, "b"), "region": np.where(number % 3, 1, 2)}
    report = crcen.write_report(model, X, y, tmp_path / "report.html", groups=groups)
    assert {one.code for one in report.findings} >= {"CRC010"}
    assert report.n_bytes < 1_000_000
    chromium.open(report.path)
    assert chromium.troubles() == []
    assert chromium.requests() == [report.path.resolve().as_uri()]
    assert chromium.run("window.hacked") is None
    assert chromium.run("document.querySelectorAll('#groups table.groups').length") == 2
    shown = chromium.run("document.querySelector('#groups table.groups tbody').innerText")
    assert hostile in shown
    assert chromium.run("document.querySelectorAll('#effects figure').length") >= 1
    for width in (390, 1160):
        chromium.open(report.path, width=width)
        assert chromium.run("document.documentElement.scrollWidth") <= width


def test_figures_of_the_page_are_counts_of_the_groups(tmp_path, chromium):
    model = PricedPosterior()
    X, y = draw(model, 900, seed=4)
    group = np.where(np.random.default_rng(0).random(len(y)) < 0.3, "few", "many")
    report = crcen.write_report(model, X, y, tmp_path / "report.html", groups={"g": group})
    chromium.open(report.path)
    alarms = model.predict_proba(X)[:, 1] > model.weighting_.threshold
    for name in ("few", "many"):
        cells = chromium.run(
            f"[...[...document.querySelectorAll('#groups table.groups tbody tr')].find((r) => r.cells[0].innerText === "
            f"'{name}').cells].map((c) => c.innerText)"
        )
        mine = group == name
        assert int(cells[1].replace(",", "")) == mine.sum()
        assert int(cells[3].replace(",", "")) == alarms[mine].sum()
        assert cells[4].replace("\xa0", " ") == f"{100 * alarms[mine][y[mine] == 1].mean():.0f} %"


def test_no_groups_no_check(tmp_path):
    model = PricedPosterior()
    X, y = draw(model, 300, seed=5)
    report = crcen.write_report(model, X, y, tmp_path / "report.html")
    assert "CRC010" not in {one.code for one in report.findings}
    assert 'id="groups"' not in report.path.read_text()
    with pytest.raises(crcen.InvalidInput, match="one value for each"):
        crcen.write_report(model, X, y, tmp_path / "report.html", groups={"g": [1, 2]})
    with pytest.raises(crcen.InvalidParameter, match="dict of names"):
        crcen.write_report(model, X, y, tmp_path / "report.html", groups=["g"])
