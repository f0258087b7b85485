"""Evidence about columns: each one alone, permutation importance, and effects, against models that are known."""

import re

import numpy as np
import pandas as pd
import pytest
from known_models import KnownPosterior, PricedPosterior, draw
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import crcen
from crcen import CRCENClassifier, TableClassifier
from crcen.report import evidence as columns
from crcen.report.evidence import column_effects, gather, permutation_importance, single_columns
from crcen.theory.metrics import log_losses


@pytest.fixture(scope="module")
def found():
    model, rng = KnownPosterior(a=-2.0), np.random.default_rng(1)
    X, y = draw(model, 1200)
    n = y.size
    gaps = X[:, 0].copy()
    gaps[rng.random(n) < 0.2] = np.nan
    frame = pd.DataFrame(
        {
            "score": X[:, 0],
            "reversed": -X[:, 0],
            "huge": np.where(X[:, 0] > 1, np.inf, X[:, 0]),
            "gaps": gaps,
            "missing is the leak": np.where(y == 1, np.nan, rng.normal(size=n)),
            "nothing": np.full(n, np.nan),
            "constant": 7,
            "flag": y == 1,
            "nullable": pd.array(np.where(y == 1, 1, 0), dtype="Int64"),
            "date of the event": pd.Timestamp("2020-01-01", tz="UTC")
            + pd.to_timedelta(y * 40 + rng.random(n), unit="D"),
            "outcome in words": np.where(y == 1, "stolen", rng.choice(["fine", "well"], n)),
            "name": [f"person {i}" for i in range(n)],
            "kind": pd.Categorical(rng.choice(list("abc"), n)),
        }
    )
    return {one.name: one.area for one in single_columns(gather(model, frame, y))}, X, y


def test_columns_have_the_area_of_their_ranks_or_categories(found):
    areas, X, y = found
    assert areas["score"] == pytest.approx(roc_auc_score(y, X[:, 0]))
    assert areas["reversed"] == areas["score"]
    assert areas["huge"] == pytest.approx(areas["score"], abs=0.05)
    assert 0.6 < areas["gaps"] < areas["score"]
    for leak in ("missing is the leak", "flag", "nullable", "date of the event", "outcome in words"):
        assert areas[leak] > 0.999, leak
    for harmless in ("nothing", "constant", "name", "kind"):
        assert areas[harmless] == pytest.approx(0.5, abs=0.06), harmless
    model = KnownPosterior()
    X, y = draw(model, 300, n_columns=1)
    rows = np.empty((300, 2), dtype=object)
    rows[:, 0], rows[:, 1] = X[:, 0], np.where(y == 1, "yes", None)
    assert single_columns(gather(model, rows, y))[1].area == 1.0


# -- columns of a table classifier, read as its network reads them -----------------------------------------------------


@pytest.fixture(scope="module")
def table_rows():
    rng = np.random.default_rng(0)
    n = 800
    y = (rng.random(n) < 0.2).astype(int)
    number = (rng.normal(size=n) + y).round(5)
    gaps = np.where(y == 1, np.nan, rng.normal(size=n).round(5))  # missing exactly where the event is
    kind, flag = np.where(y == 1, rng.choice(["a", "b"], n), rng.choice(["c", "d"], n)), rng.choice(["yes", "no"], n)
    days = rng.integers(0, 60, n) + 100 * y
    frame = pd.DataFrame(
        {
            "number": number,
            "gaps": gaps,
            "kind": kind,
            "flag": flag,
            "day": (pd.Timestamp("2024-01-01") + pd.to_timedelta(days, "D")).strftime("%d.%m.%Y"),
            "note": [f"client {i} wrote" + (" refund" if one else "") for i, one in enumerate(y)],
        }
    )
    return frame, y


@pytest.fixture(scope="module")
def table_model(table_rows):
    frame, y = table_rows
    return TableClassifier(estimator=CRCENClassifier(hidden=(), l2=1e-2, random_state=0), random_state=0).fit(frame, y)


def test_text_and_typed_columns_have_the_same_areas(table_model, table_rows):
    frame, y = table_rows
    typed = areas(table_model, frame, y)
    text = areas(table_model, frame.astype(object).where(frame.notna()).map(_as_text), y)
    assert text == typed
    assert typed["number"] == pytest.approx(roc_auc_score(y, frame["number"]))
    assert [typed[name] for name in ("gaps", "kind", "day")] == [1.0, 1.0, 1.0]
    assert typed["flag"] == pytest.approx(0.5, abs=0.06)
    assert typed["note"] > 0.9
    assert areas(table_model, frame.assign(answer=y), y) == typed  # the model does not use the answer


def areas(model, X, y):
    return {one.name: one.area for one in single_columns(gather(model, X, y))}


def _as_text(cell):
    return cell if cell is None or isinstance(cell, str) or np.isnan(cell) else str(cell)


def test_numbers_as_text_are_numbers_for_other_models_too(table_rows):
    frame, y = table_rows

    class Constant:
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    cells = frame[["number"]].astype(str)
    for X in (cells, cells.to_numpy()):
        (found,) = single_columns(gather(Constant(), X, y))
        assert found.area == pytest.approx(roc_auc_score(y, frame["number"]))


def test_importance_of_arrays_finds_their_columns(table_rows):
    frame, y = table_rows
    X = frame[["number"]].to_numpy()
    X = np.column_stack([X, np.random.default_rng(1).normal(size=len(X))])
    model = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0), random_state=0).fit(X, y)
    found = permutation_importance(gather(model, X, y))
    assert [one.name for one in found.columns] == ["0", "1"]
    assert found.columns[0].low > 0.0


# -- permutation importance --------------------------------------------------------------------------------------------


def by_name(importances):
    return {one.name: one for one in importances.columns}


def test_only_the_column_that_is_used_matters_and_as_much_as_another_loop_finds():
    model = KnownPosterior()
    X, y = draw(model, 1500)
    weights = np.random.default_rng(5).uniform(0.5, 2.0, y.size)
    one, *unused = permutation_importance(gather(model, X, y, weights)).columns
    assert (one.name, {(two.increase, two.low, two.high) for two in unused}) == ("column 1", {(0.0, 0.0, 0.0)})
    rng, before = np.random.default_rng(99), log_loss(y, model.predict_proba(X), sample_weight=weights)
    increases = []
    for _ in range(60):
        shuffled = X.copy()
        rng.shuffle(shuffled[:, 0])
        increases.append(log_loss(y, model.predict_proba(shuffled), sample_weight=weights) - before)
    # Five repeats of the same rows: within a few standard errors of five permutations.
    assert one.increase == pytest.approx(np.mean(increases), abs=4 * np.std(increases) / np.sqrt(5))
    assert 0.0 < one.low < np.mean(increases) < one.high


def test_the_interval_covers_the_increase_in_the_long_run():
    model = KnownPosterior()
    X, y = draw(model, 40_000, seed=123)
    shuffled = X.copy()
    np.random.default_rng(7).shuffle(shuffled[:, 0])
    target = y == 1
    after, before = (log_losses(target, model.predict_proba(one)[:, 1]) for one in (shuffled, X))
    truth = np.mean(after - before)
    covered = 0
    for seed in range(60):
        rows = draw(model, 400, n_columns=1, seed=seed)
        one = permutation_importance(gather(model, *rows, random_state=seed)).columns[0]
        covered += one.low < truth < one.high
    assert covered >= 50


def test_types_of_a_frame_survive_the_shuffle():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=200),
            "kind": pd.Categorical(rng.choice(list("ab"), 200)),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, 200), unit="D"),
        },
        index=rng.permutation(200) + 1000,
    )
    y = (frame["number"] + rng.normal(size=200) > 0.8).astype(int).to_numpy()
    dtypes = []

    def numbers(rows):
        dtypes.append(rows.dtypes.to_dict())
        return rows[["number"]].assign(a=rows["kind"] == "a", day=rows["day"].dt.day_of_year).astype(float)

    model = make_pipeline(FunctionTransformer(numbers), LogisticRegression()).fit(frame, y)
    before = frame.copy()
    found = permutation_importance(gather(model, frame, y))
    assert found.columns[0].name == "number"
    assert all(one == frame.dtypes.to_dict() for one in dtypes)
    pd.testing.assert_frame_equal(frame, before)


def test_a_table_that_is_encoded_once_gives_what_encoding_it_anew_gives(rare_rows):
    X, y = rare_rows(300)
    frame = pd.DataFrame({"id": np.arange(300), "kind": np.where(X[:, 1] > 0, "new", "old"), "amount": X[:, 0]})
    frame.loc[::7, "amount"] = np.nan
    inner = crcen.CRCENClassifier(crcen.Budget(4), hidden=(), random_state=0)
    model = crcen.TableClassifier(estimator=inner, drop=["id"], random_state=0).fit(frame, y)

    class Plain:
        classes_, pos_label_ = model.classes_, model.pos_label_
        predict_proba = staticmethod(model.predict_proba)

    quick, slow = (by_name(permutation_importance(gather(one, frame, y))) for one in (model, Plain()))
    assert quick["id"].increase == 0.0
    assert quick["amount"].increase > 0.0
    for name, one in quick.items():
        assert one.increase == pytest.approx(slow[name].increase, abs=1e-12)
        assert (one.low, one.high) == pytest.approx((slow[name].low, slow[name].high), abs=1e-12)


def test_many_rows_are_thinned_and_one_seed_is_one_result():
    model = KnownPosterior(a=-4.0)
    X, y = draw(model, 30_000, n_columns=1)
    found = permutation_importance(gather(model, X, y))
    assert columns.MOST_ROWS - 2 <= found.n_rows <= columns.MOST_ROWS
    share = y.mean()
    assert found.base_log_loss == pytest.approx(-(share * np.log(share) + (1 - share) * np.log(1 - share)))
    assert found.log_loss == pytest.approx(log_loss(y, model.predict_proba(X)), rel=0.05)
    model = KnownPosterior()
    rows = draw(model, 100, n_columns=120)
    once, again, other = (permutation_importance(gather(model, *rows, random_state=seed)) for seed in (3, 3, 4))
    assert once == again
    assert once != other
    assert once.n_repeats == columns.MOST_REPEATS
    assert once.n_precise == columns.MOST_PRECISE


# -- effects of columns ------------------------------------------------------------------------------------------------


class KnownLogOdds:
    """A classifier with log-odds 2a − b² + 1.5·[c is "x"] − 1, whatever the column d."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        log_odds = 2 * X.a - X.b**2 + 1.5 * (X.c == "x") - 1
        p = 1 / (1 + np.exp(-log_odds.to_numpy(dtype=float)))
        return np.column_stack([1 - p, p])


@pytest.fixture(scope="module")
def known_rows():
    rng, model = np.random.default_rng(0), KnownLogOdds()
    columns = {"a": rng.normal(size=900), "b": rng.normal(size=900), "c": rng.choice(["x", "y", "<z>"], 900)}
    X = pd.DataFrame({**columns, "d": rng.normal(size=900)})
    return model, X, (rng.random(900) < model.predict_proba(X)[:, 1]).astype(int)


@pytest.fixture(scope="module")
def effects(known_rows):
    return {one.name: one for one in column_effects(gather(*known_rows))}


def test_a_line_has_its_slope_a_parabola_its_top_and_categories_their_order(effects):
    assert list(effects) == ["a", "b", "c"]  # d has no effect
    a, b, c = effects.values()
    assert (a.shape, b.shape, c.is_ordered, c.points[0].label) == ("rises", "rises and falls", False, "x")
    places, values = (np.array([getattr(point, name) for point in a.points]) for name in ("place", "effect"))
    assert np.allclose(np.diff(values) / np.diff(places), 2.0, atol=1e-9)
    assert all(point.low < point.effect < point.high for point in a.points)
    # Rows' own values of a have variance 1, so that the mean of 2(g − a) over 150 rows has an error of 2/√150.
    assert (a.points[4].high - a.points[4].low) / 2 == pytest.approx(1.96 * 2 / np.sqrt(150), rel=0.15)
    assert abs(max(b.points, key=lambda point: point.effect).place) < 0.6
    assert [point.effect - c.points[1].effect for point in c.points] == pytest.approx([1.5, 0.0, 0.0], abs=1e-9)


def test_all_drawings_share_one_scale(known_rows, effects, tmp_path):
    text = crcen.write_report(*known_rows, tmp_path / "report.html").path.read_text()
    drawn = dict(re.findall(r'<figure class="effect"><h3>([abc]) (.*?)</figure>', text, re.S))
    assert list(drawn) == list(effects)
    slopes = set()
    for name in "ab":
        heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', drawn[name])]
        points = [point.effect for point in effects[name].points]
        slopes.add(round(np.polyfit(points, heights, 1)[0]))
    assert len(slopes) == 1
    assert "&lt;z&gt;" in drawn["c"]


def test_the_page_has_effects_and_counts_of_groups_escaped(tmp_path, chromium):
    model = PricedPosterior()
    X, y = draw(model, 900, seed=3)
    hostile = "</td><script>window.hacked=1</script>"
    number = np.arange(len(y))
    groups = {"<i>sex</i>": np.where(number % 2, hostile, "b"), "region": np.where(number % 3, 1, 2)}
    report = crcen.write_report(model, X, y, tmp_path / "report.html", groups=groups)
    assert "CRC010" in {one.code for one in report.findings}
    assert report.n_bytes < 1_000_000
    chromium.open(report.path)
    assert chromium.troubles() == []
    assert chromium.requests() == [report.path.resolve().as_uri()]
    assert chromium.run("window.hacked") is None
    alarms = model.predict_proba(X)[:, 1] > model.weighting_.threshold
    tables = chromium.run(
        "[...document.querySelectorAll('#groups table.groups')].map((t) => Object.fromEntries("
        "[...t.querySelectorAll('tbody tr')].map((r) => [r.cells[0].innerText, [...r.cells].map((c) => c.innerText)])))"
    )
    for shown, group in zip(tables, groups.values(), strict=True):
        for name, cells in shown.items():
            mine = group.astype(str) == name
            recall = f"{100 * alarms[mine][y[mine] == 1].mean():.0f} %"
            wanted = [f"{mine.sum()}", f"{alarms[mine].sum()}", recall]
            assert [cells[1], cells[3], cells[4].replace("\xa0", " ")] == wanted
    assert hostile in tables[0]
    assert chromium.run("document.querySelectorAll('#effects figure').length") >= 1
    for width in (390, 1160):
        chromium.open(report.path, width=width)
        assert chromium.run("document.documentElement.scrollWidth") <= width


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
