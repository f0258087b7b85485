"""Numbers of the page against rows counted by hand, warnings where they are due, and evidence about columns."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from known_models import KnownPosterior, PricedPosterior, draw
from scipy.special import softmax
from scipy.stats import binom, ks_2samp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import crcen
import papers_training
from crcen import CRCENClassifier, InvalidInput, TableClassifier
from crcen.report import evidence as columns
from crcen.report.checks import CHECKS, examine, group_chance, score_distance
from crcen.report.evidence import column_effects, evidence_of, gather, permutation_importance, single_columns
from crcen.report.quality import OperatingPoints, compare, price_grid, price_ladder, reliability_groups, rounded
from crcen.theory.expense import expense_steps
from crcen.theory.metrics import log_losses
from crcen.theory.price import weighted_probability
from crcen.theory.residual_test import TrainingError


def findings(model, X, y, sample_weight=None):
    return {one.code: one for one in examine(gather(model, X, y, sample_weight))}


def warned(*arguments):
    return {code for code, one in findings(*arguments).items() if one.status == "warning"}


def test_the_page_about_the_report_names_every_code():
    page = Path(__file__).resolve().parents[2] / "docs" / "report.md"
    assert re.findall(r"^\| (CRC\d+) \|", page.read_text(encoding="utf-8"), re.M) == sorted(CHECKS)


def test_right_probabilities_are_not_warned_about():
    model = PricedPosterior()
    assert [warned(model, *draw(model, 2000, seed=seed)) for seed in range(25)] == [set()] * 25


def test_too_few_positives_here_or_in_training_and_what_cannot_be_known():
    model = KnownPosterior()
    X, y = draw(model, 2000)
    for n_pos, status in ((49, "warning"), (50, "passed")):
        few = np.concatenate([np.flatnonzero(y == 1)[:n_pos], np.flatnonzero(y == 0)])
        found = findings(model, X[few], y[few])["CRC001"]
        assert (found.status, found.measured) == (status, f"{n_pos} rows of class 1 here")
    assert "CRC001" in warned(PricedPosterior(n_train=300), X, y)
    assert re.search(r"here, [\d,]{9,} in training", findings(PricedPosterior(n_train=10**8), X, y)["CRC001"].measured)
    X, y = draw(KnownPosterior(), 500)
    assert findings(KnownPosterior(a=-60.0, b=0.0), X, y)["CRC002"].status == "unknown"  # decisions never change
    assert findings(KnownPosterior(), X, y)["CRC004"].status == "unknown"  # no shares of training


@pytest.mark.parametrize(
    ("stated", "codes"),
    [
        ({"error": -1.2}, {"CRC002", "CRC003", "CRC007"}),
        ({"error": 1.2}, {"CRC002", "CRC003", "CRC007"}),
        ({"a": -5.0, "b": 4.0}, {"CRC002", "CRC003"}),  # too extreme
    ],
)
def test_wrong_probabilities_break_bracket_and_calibration(stated, codes):
    assert codes <= warned(PricedPosterior(**stated), *draw(KnownPosterior(), 4000))


def test_calibration_is_judged_by_the_figure_that_is_shown():
    """One lucky positive far down has a large z and proves nothing; thousands of rows prove a difference too small."""
    X, y = draw(KnownPosterior(a=-2.5, b=1.0), 1500)
    verdicts = set()
    for error in (0.0, 0.1, 0.3, 0.6, 1.2):
        found = findings(PricedPosterior(a=-2.5, b=1.0, error=error), X, y)["CRC003"]
        chance = re.search(r"by chance in (?:fewer than )?1 of ([\d,]+) cases", found.measured)
        assert "standard deviations" not in found.measured
        assert (found.status == "warning") == (chance is not None and float(chance[1].replace(",", "")) > 1e4)
        verdicts.add(found.status)
    assert verdicts == {"warning", "passed"}


def test_one_other_row_where_nearly_none_was_expected_is_chance():
    """Of 4 rows with a probability of 0.997 one is of the other class in 1 of 80 samples."""
    few = reliability_groups(np.arange(4) > 0, np.full(4, 0.997), None, np.ones(4))
    assert group_chance(few[0], 1, 1.0) > binom.sf(0, 4, 0.003)
    many = reliability_groups(np.arange(40) >= 8, np.full(40, 0.99), None, np.ones(40))
    assert binom.sf(7, 40, 0.01) < group_chance(many[0], 1, 1.0) < 1e-4


SCORES = np.random.default_rng(8).normal(size=3000)


@pytest.mark.parametrize(
    ("scored", "out_of_fold", "error", "status"),
    [
        (lambda x: x, np.append(SCORES, np.nan), None, "passed"),
        (lambda x: x, SCORES + 0.5, None, "warning"),
        (lambda x: x, SCORES / 2, None, "warning"),
        # Classes told apart without an error: by log-odds of ±9 or of ±14, no decision is another.
        (lambda x: 14.0 * np.sign(x), 9.0 * np.sign(SCORES), None, "passed"),
        (lambda x: 14.0 * np.sign(x), 9.0 * np.sign(SCORES + 0.5), None, "warning"),
        # As boosted trees give them: every step of the distribution is moved by less than the model uncertainty.
        (np.round, np.round(SCORES) + 0.02, None, "passed"),
        (np.round, np.round(SCORES) + 0.02, 0.005, "warning"),
        (np.round, np.round(SCORES) + 0.02, 0.02, "passed"),
    ],
)
def test_scores_unlike_those_of_training_are_drift(scored, out_of_fold, error, status):
    model = PricedPosterior(n_train=2000)
    X, y = draw(model, 3000)
    scores = (scored(X[:, 0]), out_of_fold)
    here, model.oof_proba_ = (softmax(np.outer(s - model.weighting_.logit_shift, [0, 1]), axis=1) for s in scores)
    model.training_error_ = None if error is None else TrainingError.binary(error)
    (found,) = examine(replace(gather(model, X, y), proba=here), ["CRC004"])
    assert found.status == status


def test_the_distance_of_scores_is_kolmogorovs_and_a_move_within_a_slack_is_none():
    rng = np.random.default_rng(0)
    one = rng.normal(size=400)
    for shift in (0.0, 0.1, 0.5):
        other = rng.normal(shift, 1.0, size=700)
        wanted = ks_2samp(one, other)
        near = pytest.approx(wanted.statistic), pytest.approx(wanted.pvalue, rel=0.1, abs=1e-4)
        assert score_distance(one, other) == near
    other = rng.normal(0.6, 0.1, size=300)
    for slack in (0.05, 0.3):
        for moved in (-0.9 * slack, 0.0, slack):
            assert score_distance(one, one + moved, slack * 1.0001) == (0.0, 1.0)
        left = ks_2samp(one, other - slack).statistic  # of the move
        for pair in ((one, other), (other, one)):
            assert score_distance(*pair, slack)[0] == pytest.approx(left)


@pytest.mark.parametrize("k", [2, 3])
def test_swapped_labels_are_found_and_honest_ones_never_accused(k):
    """Labels swapped in half of the rows; rows as stated, and log-odds that are too large, by a model without folds."""
    fired, own = [], SimpleNamespace(classes_=np.arange(k), oof_key_equation_="of rows held out")
    for seed in range(25):
        rng, other = np.random.default_rng(seed), SimpleNamespace(classes_=np.arange(k))
        z = rng.normal(0.0, 2.0, (1500, k)) + np.eye(k)[0]
        y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
        half = np.where((rng.random(1500) < 0.5) & (y < 2), 1 - y, y)
        both, every = np.where(y < 2, 1 - y, y), [(own, y, z), (own, y, 2.0 * z), (own, half, z)]
        for model, labels, stated in (*every, (other, y, 20.0 * z), (other, half, 20.0 * z), (other, both, z)):
            (found,) = examine(evidence_of(model, labels, softmax(stated, axis=1)), ["CRC004"])
            fired.append("are the labels swapped?" in found.measured)
    assert np.reshape(fired, (25, 6)).sum(axis=0).tolist() == [0, 0, 25, 0, 0, 25]


def test_rows_the_network_was_balanced_on_are_recognised_and_those_solved_out_of_fold_are_not(rare_rows):
    X, y = rare_rows(400)
    model = papers_training.CRCENClassifier(crcen.Budget(5), hidden=(), random_state=0).fit(X, y)
    found, new = findings(model, X, y), findings(model, *rare_rows(400, seed=1))
    states = found["CRC008"].status, found["CRC007"].status, new["CRC008"].status
    assert states == ("warning", "unknown", "passed")
    model = crcen.CRCENClassifier(crcen.Budget(5), hidden=(), random_state=0).fit(X, y)
    for rows in ((X, y), rare_rows(400, seed=1)):
        found = findings(model, *rows)["CRC008"]
        assert (found.status, "keeps no hashes" in found.measured) == ("unknown", True)


def test_the_models_own_error_is_counted_in():
    """Not measured: as many new rows as training rows make the variance of a residual three times as large."""
    evidence = gather(PricedPosterior(n_train=2000), *draw(PricedPosterior(), 2000))
    assert evidence.noise == pytest.approx(3.0)
    model = PricedPosterior(n_train=2000)
    model.training_error_ = TrainingError.binary(0.1)
    X, y = draw(PricedPosterior(), 2000)
    p = model.predict_proba(X)[:, 1]
    q = weighted_probability(p, model.weighting_)
    lam = model.weighting_.lam
    variance = np.sum(lam**2 * p * (1 - q) ** 2 + (1 - lam) ** 2 * (1 - p) * q**2)
    slope = np.sum(lam * (1 - q) * p)
    assert gather(model, X, y).noise == pytest.approx(1 + (0.1 * slope) ** 2 / variance)
    assert gather(KnownPosterior(), *draw(KnownPosterior(), 50)).noise == 1.0


@pytest.mark.parametrize("has_ties", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("price", [0.01, 0.5, 1.0, 4.0, 9.0, 37.3, 1e4])
def test_counts_are_those_of_decisions_at_the_price(is_weighted, has_ties, price):
    X, y = draw(KnownPosterior(), 700, seed=3)
    p = KnownPosterior().predict_proba(X)[:, 1].round(1 if has_ties else 15)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, y.size) if is_weighted else np.ones(y.size)
    counts = OperatingPoints(y == 1, p, weights).counts(price)
    wanted = crcen.confusion_counts(y == 1, crcen.decide(p, crcen.Budget(price)), weights)
    found, wanted = ([one.tp, one.fp, one.fn, one.tn] for one in (counts, wanted))
    assert found == pytest.approx(wanted, abs=1e-9)


def test_noise_of_right_probabilities_is_rarely_large_and_the_unit_of_weights_does_not_matter():
    model = KnownPosterior()
    beyond, looked = 0, 0

    def deviations(y, p, prices, size=1.0):
        path = [crcen.resolve(crcen.CostRatio(one), 1, 8) for one in prices]
        steps = expense_steps(y, np.full(y.size, size), path, [one.decide(p) for one in path], p)
        return [z for step in steps if not math.isnan(z := step.deviation())]

    for seed in range(40):
        X, y = draw(model, 600, seed=seed)
        noise = deviations(y, model.predict_proba(X), price_ladder(5.0, 8.0))
        beyond, looked = beyond + sum(abs(z) > 3 for z in noise), looked + len(noise)
    assert looked > 200
    assert beyond / looked < 0.01
    rng = np.random.default_rng(1)
    p = rng.uniform(0.1, 0.25, 300)
    rows = ((rng.random(300) < 0.5).astype(int), np.column_stack([1 - p, p]), (3.0, 9.0))
    assert deviations(*rows) == pytest.approx(deviations(*rows, size=7.0))
    assert deviations(*rows)[0] > 3


@pytest.mark.parametrize(("price", "ratio"), [(5.0, 10.0), (0.03, 4.0), (1.0, 1.0), (1e12, 5000.0), (1e-9, 2.0)])
def test_prices_of_the_slider_rise_and_have_three_digits(price, ratio):
    grid = price_grid(price, ratio)
    assert all(a < b for a, b in pairwise(grid))
    assert all(one == rounded(one) == float(f"{one:.2e}") for one in grid)
    assert len(grid) < 1600
    if 1e-6 < price < 1e9:
        assert grid[0] < price < grid[-1]
        assert grid[0] <= 1.0 <= ratio <= grid[-1]
    assert len(price_ladder(price, ratio)) >= 4


def test_groups_part_the_rows_with_about_equal_expected_positives():
    model = PricedPosterior()
    X, y = draw(model, 4000)
    p, q = model.predict_proba(X)[:, 1], model.weighted_proba(X)[:, 1]
    groups = reliability_groups(y == 1, p, q, np.ones(y.size))
    totals = [sum(getattr(group, name) for group in groups) for name in ("n_rows", "observed_positives")]
    assert (len(groups), totals) == (10, [y.size, (y == 1).sum()])
    expected = np.array([group.expected_positives for group in groups])
    assert expected.sum() == pytest.approx(p.sum())
    assert np.allclose(expected, p.sum() / 10, atol=1.0)
    edges = np.cumsum([0] + [group.n_rows for group in groups])
    order = np.argsort(p)
    for group, start, end in zip(groups, edges, edges[1:], strict=False):
        mine = order[start:end]
        z = ((y[mine] == 1).sum() - p[mine].sum()) / np.sqrt((p[mine] * (1 - p[mine])).sum())
        wanted = [p[mine].mean(), q[mine].mean(), (y[mine] == 1).mean(), z]
        assert [group.mean_p, group.mean_q, group.observed, group.z] == pytest.approx(wanted)


def test_equal_probabilities_stay_together():
    rng = np.random.default_rng(0)
    p = np.repeat([0.1, 0.3, 0.9], [450, 150, 50])  # 45 expected positives each
    groups = reliability_groups(rng.random(p.size) < p, p, None, np.ones(p.size))
    assert [group.n_rows for group in groups] == [450, 150, 50]
    assert [group.mean_p for group in groups] == pytest.approx([0.1, 0.3, 0.9])
    (only,) = reliability_groups(rng.random(500) < 0.2, np.full(500, 0.2), None, np.ones(500))
    assert (only.n_rows, only.mean_q) == (500, None)
    (only,) = reliability_groups(np.arange(20) < 2, np.zeros(20), None, np.ones(20))
    assert (only.observed_positives, only.expected_positives, only.z) == (2.0, 0.0, math.inf)


def test_a_whole_weight_is_so_many_copies():
    model = KnownPosterior()
    X, y = draw(model, 1200)  # enough positives for ten groups either way
    p = model.predict_proba(X)[:, 1]
    times = np.random.default_rng(4).integers(0, 4, y.size)
    weighted = reliability_groups(y == 1, p, None, times.astype(float))
    copied = reliability_groups(np.repeat(y, times) == 1, np.repeat(p, times), None, np.ones(times.sum()))
    both = zip(weighted, copied, strict=True)
    assert all(a.observed == pytest.approx(b.observed) and a.mean_p == pytest.approx(b.mean_p) for a, b in both)


def test_clusters_enter_the_standard_deviation():
    rng = np.random.default_rng(5)
    p = np.repeat(rng.uniform(0.05, 0.6, 80), 5)
    target = np.repeat(rng.random(80), 5) < p
    ones, copies = np.ones(400), np.repeat(np.arange(80), 5)
    alone, each, together = (reliability_groups(target, p, None, ones, own) for own in (None, np.arange(400), copies))
    for one, single, group in zip(alone, each, together, strict=True):
        assert max(abs(group.z), abs(single.z)) <= abs(one.z)
        assert group.high - group.low > one.high - one.low
        assert group.degrees < single.degrees
    (only,) = reliability_groups(target, np.full(400, 0.3), None, ones, copies)
    sums = 5.0 * (target[::5] - 0.3)
    assert only.z == pytest.approx(sums.sum() / np.sqrt(np.sum(sums**2)))


@pytest.fixture(scope="module")
def compared():
    model = PricedPosterior()
    X, y = draw(model, 1500, seed=17)
    return model, X, y, model.predict_proba(X)[:, 1]


def test_figures_are_those_of_each_model_at_the_first_ones_price(compared):
    model, X, y, p = compared
    other = p**1.5
    first, second = compare(gather(model, X, y), {"other": other}, "first")
    assert (first["name"], second["name"]) == ("first", "other")
    scores = {"roc_auc": roc_auc_score, "average_precision": average_precision_score}
    for name, score in (scores | {"log_loss": log_loss, "brier": brier_score_loss}).items():
        assert second[name] == pytest.approx(score(y, other))
    price = model.weighting_.cost_ratio
    alarms = {name: one > model.weighting_.threshold for name, one in (("first", p), ("other", other))}
    costs = {name: np.where(y == 1, price * ~raised, 1.0 * raised) for name, raised in alarms.items()}
    assert (first["more_per_1000"], second["found"]) == (0.0, (alarms["other"] & (y == 1)).sum())
    assert second["cost_per_1000"] == pytest.approx(1000 * costs["other"].mean())
    difference = 1000 * (costs["other"] - costs["first"])
    mean, half = difference.mean(), 1.96 * difference.std() / np.sqrt(len(y))
    assert [second["more_per_1000"], *second["interval"]] == pytest.approx([mean, mean - half, mean + half])
    copies = np.repeat(np.arange(len(y)), 4)  # copies of a row, as a cluster, tell no more than the row
    evidence = gather(model, X[copies], y[copies], clusters=copies)
    longer = compare(evidence, {"other": other[copies]}, "first")[1]
    assert longer["interval"] == pytest.approx(second["interval"], 0.01)
    with pytest.raises(InvalidInput, match="the model b must have one probability for each of 1500 rows"):
        compare(gather(model, X, y), {"b": p[:5]}, "first")


def test_the_page_draws_them_in_a_browser(compared, chromium, tmp_path):
    model, X, y, p = compared
    others = {"b <i>": p**1.5, "c": np.full(len(y), 0.1)}
    page = crcen.write_report(model, X, y, tmp_path / "r.html", others=others).path
    chromium.open(page)
    for selector in ("#models tbody tr", "#chart-models svg path"):
        assert chromium.run(f"document.querySelectorAll('{selector}').length") >= 3
    assert "b <i>" in chromium.run("document.querySelector('#models').textContent")
    assert chromium.troubles() == []
    assert page.stat().st_size < 1_000_000
    alone = crcen.write_report(model, X, y, tmp_path / "alone.html").path.read_text()
    assert 'id="models"' not in alone


def areas(model, X, y):
    return {one.name: one.area for one in single_columns(gather(model, X, y))}


def test_columns_have_the_area_of_their_ranks_or_categories():
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
    found = areas(model, frame, y)
    assert (found["score"], found["reversed"]) == (pytest.approx(roc_auc_score(y, X[:, 0])), found["score"])
    assert found["huge"] == pytest.approx(found["score"], abs=0.05)
    assert 0.6 < found["gaps"] < found["score"]
    for leak in ("missing is the leak", "flag", "nullable", "date of the event", "outcome in words"):
        assert found[leak] > 0.999, leak
    for harmless in ("nothing", "constant", "name", "kind"):
        assert found[harmless] == pytest.approx(0.5, abs=0.06), harmless
    model = KnownPosterior()
    X, y = draw(model, 300, n_columns=1)
    rows = np.empty((300, 2), dtype=object)
    rows[:, 0], rows[:, 1] = X[:, 0], np.where(y == 1, "yes", None)
    assert single_columns(gather(model, rows, y))[1].area == 1.0


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


def test_text_and_typed_columns_have_the_same_areas(table_rows):
    frame, y = table_rows
    network = CRCENClassifier(hidden=(), l2=1e-2, random_state=0)
    model = TableClassifier(estimator=network, random_state=0).fit(frame, y)
    typed = areas(model, frame, y)
    text = areas(model, frame.astype(str).where(frame.notna(), None), y)
    assert (text, typed["number"]) == (typed, pytest.approx(roc_auc_score(y, frame["number"])))
    assert [typed[name] for name in ("gaps", "kind", "day")] == [1.0, 1.0, 1.0]
    assert typed["flag"] == pytest.approx(0.5, abs=0.06)
    assert typed["note"] > 0.9
    assert areas(model, frame.assign(answer=y), y) == typed  # the model does not use the answer


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

    both = (permutation_importance(gather(one, frame, y)).columns for one in (model, Plain()))
    quick, slow = ({one.name: one for one in found} for found in both)
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
    assert (once.n_repeats, once.n_precise) == (columns.MOST_REPEATS, columns.MOST_PRECISE)


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
    assert (chromium.troubles(), chromium.requests()) == ([], [report.path.resolve().as_uri()])
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
