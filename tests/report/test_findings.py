"""Every warning where it is due and nowhere else, on rows whose posterior is known."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from known_models import KnownPosterior, PricedPosterior, draw
from scipy.stats import binom, ks_2samp

import crcen
import papers_training
from crcen.report.checks import CHECKS, examine, group_chance, score_distance
from crcen.report.evidence import gather
from crcen.report.measurements import reliability_groups
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
    total = sum(len(warned(model, *draw(model, 2000, seed=seed))) for seed in range(25))
    assert total == 0


def test_too_few_positives_here_or_in_training_and_what_cannot_be_known():
    model = KnownPosterior()
    X, y = draw(model, 2000)
    for n_pos, status in ((49, "warning"), (50, "passed")):
        few = np.concatenate([np.flatnonzero(y == 1)[:n_pos], np.flatnonzero(y == 0)])
        found = findings(model, X[few], y[few])["CRC001"]
        assert (found.status, found.measured) == (status, f"{n_pos} rows of 1 here")
    assert "CRC001" in warned(PricedPosterior(n_train=300), X, y)
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
    ("scored", "out_of_fold", "of_training", "status"),
    [
        (lambda x: x, np.append(SCORES, np.nan), None, "passed"),
        (lambda x: x, SCORES + 0.5, None, "warning"),
        # Classes told apart without an error: by log-odds of ±9 or of ±14, no decision is another.
        (lambda x: 14.0 * np.sign(x), 9.0 * np.sign(SCORES), None, "passed"),
        (lambda x: 14.0 * np.sign(x), 9.0 * np.sign(SCORES + 0.5), None, "warning"),
        # Networks of folds train on fewer rows: they are less sure than the whole model was on its training rows.
        (lambda x: x, SCORES / 2, None, "warning"),
        (lambda x: x, SCORES / 2, 0.0, "passed"),
        (lambda x: x, SCORES / 2, 1.5, "warning"),
    ],
)
def test_scores_unlike_those_of_training_are_drift(scored, out_of_fold, of_training, status):
    model = PricedPosterior(n_train=2000)
    X, y = draw(model, 3000)
    model.decision_function = lambda rows: scored(np.asarray(rows)[:, 0])
    model.oof_decision_function_ = out_of_fold
    if of_training is not None:
        p = model.predict_proba(X)[:, 1]
        model.profile_ = SimpleNamespace(scores=[np.log(p) - np.log1p(-p) + of_training])
    assert findings(model, X, y)["CRC004"].status == status


def test_the_distance_of_scores_is_kolmogorovs_and_a_move_within_a_slack_is_none():
    rng = np.random.default_rng(0)
    one = rng.normal(size=400)
    for shift in (0.0, 0.1, 0.5):
        other = rng.normal(shift, 1.0, size=700)
        distance, by_chance = score_distance(one, other)
        wanted = ks_2samp(one, other)
        assert distance == pytest.approx(wanted.statistic)
        assert by_chance == pytest.approx(wanted.pvalue, rel=0.1, abs=1e-4)
    other = rng.normal(0.6, 0.1, size=300)
    for slack in (0.05, 0.3):
        for moved in (-0.9 * slack, 0.0, slack):
            assert score_distance(one, one + moved, slack * 1.0001) == (0.0, 1.0)
        left = ks_2samp(one, other - slack).statistic  # of the move
        assert score_distance(one, other, slack)[0] == pytest.approx(left)
        assert score_distance(other, one, slack)[0] == pytest.approx(left)


def test_scores_of_few_values_that_folds_place_a_little_elsewhere_are_no_drift():
    """As boosted trees give them: every step of the distribution is moved by less than the model's own error."""
    model = PricedPosterior(n_train=2000)
    X, y = draw(model, 3000)
    model.decision_function = lambda rows: np.round(np.asarray(rows)[:, 0])
    scores = np.round(np.random.default_rng(8).normal(size=3000))
    model.oof_decision_function_ = scores + 0.02
    assert ks_2samp(scores, model.oof_decision_function_).statistic > 0.3
    assert findings(model, X, y)["CRC004"].status == "passed"
    model.training_error_ = TrainingError.binary(0.005)
    assert findings(model, X, y)["CRC004"].status == "warning"
    model.training_error_ = TrainingError.binary(0.02)
    assert findings(model, X, y)["CRC004"].status == "passed"


def test_rows_the_network_was_balanced_on_are_recognised_and_those_solved_out_of_fold_are_not(rare_rows):
    X, y = rare_rows(400)
    model = papers_training.CRCENClassifier(crcen.Budget(5), hidden=(), random_state=0).fit(X, y)
    found = findings(model, X, y)
    assert found["CRC008"].status == "warning"
    assert found["CRC007"].status == "unknown"
    new = findings(model, *rare_rows(400, seed=1))
    assert new["CRC008"].status == "passed"
    model = crcen.CRCENClassifier(crcen.Budget(5), hidden=(), random_state=0).fit(X, y)
    for rows in ((X, y), rare_rows(400, seed=1)):
        found = findings(model, *rows)["CRC008"]
        assert found.status == "unknown"
        assert "keeps no hashes" in found.measured


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
