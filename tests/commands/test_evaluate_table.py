"""evaluate_table and report_table: metrics and intervals against references, the key equation, the same figures."""

import json
import math
import re
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, precision_score, roc_auc_score

import crcen
from crcen import (
    Budget,
    CostMatrix,
    CRCENClassifierCV,
    InvalidInput,
    InvalidParameter,
    evaluate_table,
    fit_table,
    key_equation,
    load,
    report_table,
)
from crcen.report.quality import METRICS, RowMetrics
from crcen.theory.price import Price, sigmoid, weighted_probability

BINARY = [name for name, one in METRICS.items() if one.is_binary is not False]


def scored(y, p, threshold):
    """Metrics of rows with probabilities of the positive class."""
    return RowMetrics(y.astype(int), np.column_stack([1 - p, p]), Price.binary(1 - threshold, 1, 1))


def test_metrics_are_those_of_scikit_learn_with_ties_and_copies():
    rng = np.random.default_rng(0)
    y, p = rng.random(300) < 0.2, rng.choice(np.linspace(0.05, 0.9, 12), 300)
    rows = scored(y, p, 0.3)
    copies = rng.integers(0, 4, 300).astype(float)
    for weights in (np.ones(300), copies):
        found = rows.values(weights)
        options = {"sample_weight": weights}
        scorers = {"average_precision": average_precision_score, "roc_auc": roc_auc_score, "log_loss": log_loss}
        expected = {name: score(y, p, **options) for name, score in scorers.items()}
        expected |= {"brier": brier_score_loss(y, p, **options), "precision": precision_score(y, p > 0.3, **options)}
        expected["alarms_per_1000"] = 1000 * np.average(p > 0.3, weights=weights)
        assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_edges_of_the_metrics():
    silent = scored(np.array([True, False]), np.array([0.2, 0.1]), 0.5).values()
    assert (silent["recall"], silent["f1"]) == (0.0, 0.0)
    assert math.isnan(silent["false_alarms_per_catch"])
    assert math.isnan(silent["precision"])  # of no alarm none is right and none is wrong
    certain = scored(np.array([True, False]), np.array([0.0, 1.0]), 0.5).values()
    assert math.isfinite(certain["log_loss"])


@pytest.fixture(scope="module")
def evaluation(fitted, mixed_table):
    return evaluate_table(fitted.model, mixed_table(800, seed=5), n_resamples=50)


def test_an_evaluation_is_of_the_models_answers(evaluation, fitted, mixed_table):
    new = mixed_table(800, seed=5)
    y, p = (new["bad"] == "yes").to_numpy(), fitted.model.predict_proba(new)[:, 1]
    assert evaluation.metrics["log_loss"].value == pytest.approx(log_loss(y, p))
    for name in BINARY:
        one = evaluation.metrics[name]
        assert one.low <= one.value <= one.high
    equation = key_equation(y, fitted.model.weighted_proba(new)[:, 1], fitted.model.weighting_)
    assert evaluation.equation.lhs == pytest.approx(equation.lhs)
    # The model uncertainty, as the fit measured it: by hand, in units of the residual.
    q, lam = weighted_probability(p, fitted.model.weighting_), fitted.model.weighting_.lam
    variance = np.sum(lam**2 * p * (1 - q) ** 2 + (1 - lam) ** 2 * (1 - p) * q**2)
    own = fitted.model.training_error_.log_odds * np.sum(lam * (1 - q) * p)
    assert evaluation.equation.z == pytest.approx(equation.z / math.sqrt(1 + own**2 / variance), rel=1e-6)
    assert [one.bracket_low for one in evaluation.expense.steps] == pytest.approx([2.5, 5])


def test_words_and_plain_values(evaluation):
    plain = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    assert (plain["rows"], plain["target"], plain["price"]["positive"]) == (800, "bad", "yes")
    assert set(plain["metrics"]) == set(BINARY)
    assert plain["key_equation"]["verdict"] in ("holds", "does not hold")
    assert all(step["verdict"] in ("inside", "below", "above", "undefined") for step in plain["expense"])
    for name in (f"Key equation {evaluation.equation.verdict}", *(METRICS[name].title for name in BINARY)):
        assert name in str(evaluation)


def test_another_price_and_no_intervals(fitted, mixed_table):
    new = mixed_table(300, seed=5)
    found = evaluate_table(fitted.model, new, weighting=Budget(20), n_resamples=0)
    p, y = fitted.model.predict_proba(new)[:, 1], (new["bad"] == "yes").to_numpy()
    assert found.metrics["recall"].value == pytest.approx((p[y] > 1 / 21).mean())
    assert found.metrics["recall"].low < found.metrics["recall"].value
    assert "Key equation at the price of training " in str(found)
    assert math.isnan(found.metrics["f1"].low)
    assert found.to_dict()["metrics"]["f1"]["low"] is None
    cost = found.to_dict()["metrics"]["cost_per_1000"]
    paid = np.where(y, 20 * (p <= 1 / 21), p > 1 / 21)
    assert cost["value"] == pytest.approx(1000 * paid.mean())
    assert cost["low"] < cost["value"] < cost["high"]
    never = evaluate_table(fitted.model, new, weighting=Budget(1e-6), n_resamples=40)  # 0 in every resample
    assert [math.isnan(never.metrics[name].low) for name in ("f1", "g_mean", "recall")] == [True, True, False]


def test_labels_are_matched_however_they_are_spelt(fitted, mixed_table, tmp_path):
    new = mixed_table(300, seed=5)
    found = evaluate_table(fitted.model, new, n_resamples=0)
    shouted = new.assign(bad=new["bad"].str.upper() + " ")
    assert evaluate_table(fitted.model, shouted, n_resamples=0).metrics == found.metrics
    new.rename(columns={"bad": "outcome"}).to_csv(tmp_path / "a.csv", index=False)
    assert evaluate_table(fitted.model, tmp_path / "a.csv", target="outcome", n_resamples=0).metrics == found.metrics


def test_unlabelled_rows_and_refusals(fitted, mixed_table):
    new = mixed_table(200, seed=5)
    gaps = new.copy()
    gaps.loc[:49, "bad"] = None
    found = evaluate_table(fitted.model, gaps, n_resamples=0)
    assert (found.n_rows, found.notes[0]) == (150, "50 rows without a value of bad were left out")
    gaps.loc[:49, ["country", "amount"]] = ["XX", 1e9]  # rows without a label are not compared either
    again = evaluate_table(fitted.model, gaps, n_resamples=0)
    assert (again.notes, again.unlike, again.metrics) == (found.notes, found.unlike, found.metrics)
    drawn = gaps.assign(audit_probability=np.where(gaps["bad"].isna(), 0.5, 1.0))
    for named in (None, "audit_probability"):
        notes = evaluate_table(fitted.model, drawn, audit_probability=named, n_resamples=0).notes
        assert any("audit_probability is not used: " in note for note in notes) is (named is None)
    with pytest.raises(InvalidParameter, match="does not know its target column"):
        evaluate_table(crcen.CRCENClassifier(hidden=()).fit(new[["is_new"]], new["bad"]), new)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_training_rows_are_known_again(model_file, mixed_table, tmp_path, ending):
    """The likeliest mistake: to judge a model on the rows it has learnt from."""
    path = tmp_path / f"train.{ending}"
    mixed_table().to_csv(path, index=False) if ending == "csv" else mixed_table().to_parquet(path)
    found = evaluate_table(model_file, path, n_resamples=0)
    expected = pytest.approx(found.recognition.n_expected)
    counts = {"rows_compared": 600, "rows_seen": 600, "rows_expected": expected}
    assert found.to_dict()["training_rows"] == {"status": "seen", **counts, "shares": {}}
    assert "600 of 600 rows compared are training rows" in str(found)
    new = mixed_table(400, seed=7)
    for rows, status in ((path, "warning"), (new, "passed")):
        findings = crcen.report_table(model_file, rows, out=tmp_path / "r.html").findings
        assert {one.code: one.status for one in findings}["CRC008"] == status
    found = evaluate_table(model_file, new, n_resamples=0)
    assert (found.recognition.status, found.unlike, "rows of training" in str(found)) == ("new", (), False)
    assert not any("equal one" in note for note in found.notes)
    twice = pd.concat([new.assign(who=range(400), more=new["bad"]), new.assign(who=range(400))], ignore_index=True)
    written = partial(crcen.report_table, out=tmp_path / "r.html")
    for command in (evaluate_table, written, partial(crcen.monitor_table, state=tmp_path / "s.json")):
        assert any("800 of 800 rows have an equal one" in note for note in command(model_file, twice).notes)
    for options in ({"clusters": "who"}, {"target": "more"}):  # dependent, or without a label
        assert not any("equal one" in note for note in evaluate_table(model_file, twice, **options).notes)


def test_rows_unlike_training_are_said_to_be_so(model_file, mixed_table):
    frame = mixed_table(400, seed=7)
    found = evaluate_table(model_file, frame.assign(amount=frame["amount"] + 50), n_resamples=0)
    assert [one["kind"] for one in found.to_dict()["unlike"] if one["column"] == "amount"] == ["range"]
    assert "Differences from training" in str(found)
    frame = frame[["amount", "bad"]].dropna()  # a network on plain numbers cannot know
    model = crcen.CRCENClassifier(hidden=(), max_epochs=3).fit(frame[["amount"]], frame["bad"])
    found = evaluate_table(model, frame, target="bad", n_resamples=0)
    assert (found.recognition, found.unlike) == (None, ())


def test_groups_that_are_alike_pass(model_file, mixed_table):
    """Planted differences are in tests/report/test_codes_by_command.py."""
    rng, rows = np.random.default_rng(1), mixed_table(3000, seed=1)
    rows = rows.assign(region=rng.choice(["n", "s"], 3000), age=rng.integers(18, 90, 3000))
    found = evaluate_table(model_file, rows, groups=["region", "age"], n_resamples=0)
    assert [one.column for one in found.groups] == ["region", "age"]
    assert not any(one.differing for one in found.groups)
    assert len(found.groups[1].groups) == 5  # ages in fifths
    assert sum(one.n_rows for one in found.groups[1].groups) == 3000
    assert "No difference between groups of region beyond chance." in str(found)


def test_a_report_is_one_html_file(model_file, mixed_table, tmp_path):
    rows = mixed_table(200, seed=4)
    rows.loc[:4, "bad"] = None
    rows.to_csv(tmp_path / "test.csv", index=False)
    done = crcen.report_table(model_file, tmp_path / "test.csv", out=tmp_path / "report.html", title="A test")
    for part in ("<html", "A test"):
        assert part in done.path.read_text()
    assert "5 rows without a value of bad" in str(done)
    assert json.loads(json.dumps(done.to_dict()))["rows"] == done.n_rows == 195
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "test.csv"]
    with pytest.raises(crcen.exceptions.DataUnavailable, match="create it first"):
        crcen.report_table(model_file, rows, out=tmp_path / "no" / "report.html")
    with pytest.raises(InvalidInput, match="the target must be a column"):
        crcen.report_table(model_file, rows.drop(columns="bad"), out=tmp_path / "other.html")


LABELS = ["brøken", "fine", "worn out"]


def three_rows(n, seed, shares=(0.7, 0.2, 0.1)):
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n, p=shares)
    rows = {"hours": (kind + rng.normal(size=n)).round(4), "load": rng.normal(size=n).round(4)}
    return pd.DataFrame({**rows, "state": np.array(["fine", "worn out", "brøken"])[kind]})


@pytest.fixture(scope="module")
def three():
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=8, encoding="standard", n_members=1)
    weights = {"fine": 1, "worn out": 4, "brøken": 10}
    return crcen.fit_table(three_rows(1500, 0), target="state", weighting=weights, estimator=search).model


def codes(judged):
    return {one.code for one in judged.findings if one.status == "warning"}


def test_new_rows_pass_and_figures_are_right(three):
    frame = three_rows(800, 1)
    judged = evaluate_table(three, frame)
    p = three.predict_proba(frame)
    y, chosen = np.searchsorted(LABELS, frame["state"]), (p * [10, 1, 4]).argmax(axis=1)
    assert judged.quality.cost.value == pytest.approx(np.where(y == chosen, 0, np.array([10, 1, 4])[y]).mean())
    habit = min((np.array([10, 1, 4])[y] * (y != k)).mean() for k in range(3))
    assert judged.quality.habit_cost == pytest.approx(habit)
    assert (judged.equation.verdict, codes(judged), "cheaper" in str(judged)) == ("holds", set(), True)
    assert judged.to_dict()["key_equation"]["joint"]["degrees"] == 2


def test_classes_whose_shares_moved_are_named(three):
    other_prior = evaluate_table(three, three_rows(800, 3, shares=(0.4, 0.2, 0.4)))
    assert {"CRC004", "CRC007"} <= codes(other_prior)
    first = other_prior.equation.deviant_pairs[0]
    assert "brøken" in (first.first, first.second)
    assert abs(first.drift) == pytest.approx(np.log(0.4 / 0.1) - np.log(0.4 / 0.7), abs=0.8)


def test_conditions_on_three_classes(three):
    frame = three_rows(800, 4)
    assert evaluate_table(three, frame, fail_on="any", min_recall=0.05).failures == ()
    broken = evaluate_table(three, frame, min_recall=0.999, min_precision=0.001).failures
    assert len(broken) >= 1
    assert all("recall of" in one and "below 0.999" in one for one in broken)


def test_other_costs_with_an_action(three):
    frame = three_rows(300, 5)
    costs = CostMatrix(10 * (1 - np.eye(3)), labels=LABELS).with_review(0.5)
    judged = evaluate_table(three, frame, costs=costs)
    assert judged.quality.costs.names[-1] == "review"
    assert judged.quality.cost.value <= 10 * (1 - three.predict_proba(frame).max(axis=1)).mean() + 1
    twice = evaluate_table(three, frame.assign(times=2), weight="times")
    assert twice.quality.counts.table.sum() == 300  # weights are 1 on average
    assert twice.quality.cost.value == pytest.approx(evaluate_table(three, frame).quality.cost.value)


def test_rows_without_a_class_and_what_is_refused(three):
    frame = three_rows(300, 7)
    judged = evaluate_table(three, frame[frame["state"] != "brøken"])
    assert any("brøken has no row here" in note for note in judged.notes)
    assert np.isnan(judged.quality.recalls[0].value)
    with pytest.raises(InvalidInput, match="needs rows of several classes: the data frame has only fine in state"):
        evaluate_table(three, frame[frame["state"] == "fine"])
    for options, sentence in (
        ({"weighting": crcen.Budget(3)}, "is for two classes, and state has 3"),
        ({"review": (2, 30)}, "state costs=, or fit with positive="),
        ({"fail_on": "CRC010"}, "compares groups: name their columns"),
        ({"clusters": "state"}, "clusters must be another column than the target"),
        ({"min_recall": 3}, "min_recall must be a share"),
    ):
        with pytest.raises(InvalidParameter, match=sentence):
            evaluate_table(three, frame, **options)


def test_shares_that_were_estimated_are_not_tested_on_the_same_rows(three):
    rows = three_rows(1500, 4).assign(site=np.arange(1500) % 2)
    rows.loc[rows.index[rows["state"] == "fine"][:150], "state"] = "brøken"
    for prevalence, is_tested in ((None, True), ("auto", False)):
        found = evaluate_table(three, rows, prevalence=prevalence, groups="site", n_resamples=0)
        assert ("prevalence shift" in str(found), "use --prevalence auto" in str(found)) == (is_tested, is_tested)
        assert "\n\n\n" not in str(found)
        equations = [found.equation, *(one.equation for one in found.groups[0].groups)]
        assert [math.isfinite(one.p_value) for one in equations] == [is_tested] * 3
        assert is_tested or all(math.isnan(one.z) for own in equations for one in own.classes)
    unknown = {one.code: one.measured for one in found.findings if one.status == "unknown"}
    assert {*unknown} >= {"CRC002", "CRC003", "CRC004", "CRC007"}
    assert {*unknown.values()} == {"the class shares were estimated from these rows"}
    assert "\n\n\n" not in str(evaluate_table(three, three_rows(1500, 5).assign(site=1), groups="site"))
    how = {"prevalence": "auto", "n_resamples": 0}  # rows without weight do not count for the shares
    own = rows["site"] == 1
    one = evaluate_table(three, rows[own], **how)
    other = evaluate_table(three, rows.assign(site=own * 2.0), weight="site", **how)
    alone, weighted = (list(found.to_dict()["prevalence"]["shares"].values()) for found in (one, other))
    assert [share == pytest.approx(same, abs=1e-9) for share, same in zip(alone, weighted, strict=True)] == [True] * 3


def test_rows_of_a_survey_are_compared_with_natural_training_rows_by_weight():
    def rows(n, seed, middle=0.0):
        x = np.random.default_rng(seed).normal(middle, 1.0, n)
        y = np.random.default_rng(seed + 1).random(n) < sigmoid(1.5 * x - 2.0)
        return pd.DataFrame({"x": x, "y": y.astype(int), "w": np.exp(middle**2 / 2.0 - middle * x)})

    linear, how = CRCENClassifierCV(Budget(5), hidden=(), max_epochs=20, random_state=0), {"n_resamples": 0}
    natural = fit_table(rows(3000, 0).drop(columns="w"), target="y", estimator=linear).model
    survey = fit_table(rows(3000, 0, 1.0), target="y", weight="w", estimator=linear).model
    cases = [(natural, rows(3000, 5, 1.0), False), (natural, rows(3000, 5, 1.0).assign(w=1.0), True)]
    for model, frame, is_off in [*cases, (survey, rows(3000, 5, 1.0), False)]:
        found = evaluate_table(model, frame, target="y", weight="w", **how)
        (drift,) = (one for one in found.findings if one.code == "CRC004")
        assert (drift.status == "warning", found.unlike) == (is_off, ())
        assert ("columns were not compared" in str(found)) == (model is natural)


def test_the_report_has_the_checks_of_the_evaluation(three, tmp_path):
    frame = three_rows(400, 8)
    report = crcen.report_table(three, frame, out=tmp_path / "r.html")
    judged = evaluate_table(three, frame, fail_on="any")
    assert [one.to_dict() for one in report.findings] == [one.to_dict() for one in judged.findings]
    odd = frame.assign(load=["high", *frame["load"][1:]])  # without a warning
    page = crcen.report_table(three, odd, out=tmp_path / "r.html", others=[three]).path.read_text(encoding="utf-8")
    assert page.count('<th scope="row">model 2</th>') == 1
    again = crcen.fit_table(frame, target="state", estimator=three.estimator).model
    for other, is_seen in ((three, False), (again, True)):
        notes = crcen.report_table(three, frame, out=tmp_path / "r.html", others=[other]).notes
        assert any("model 2: " in note and "training rows" in note for note in notes) is is_seen
    alone = crcen.fit_table(three_rows(1500, 0).drop(columns="load"), target="state", estimator=three.estimator).model
    odd = frame.assign(load=frame["load"].astype(str).where(frame.index > 7, "ca. 3?"))
    notes = crcen.report_table(alone, odd, out=tmp_path / "r.html", others=[three]).notes
    assert "model 2: cells written otherwise than in training were treated as missing: load 8 rows" in str(notes)
    assert "the checks are of the first model" in str(notes)
    with pytest.raises(InvalidInput, match="lacks 1 of the 2 columns that model 2 needs: load"):
        crcen.report_table(alone, frame.drop(columns="load"), out=tmp_path / "r.html", others=[three])
    two = crcen.fit_table(three_rows(300, 9), target="state", positive="brøken", estimator=three.estimator).model
    for own, sentence in (
        ({"costs": CostMatrix([[0, 1], [1, 0]])}, "must be left out: this model finds brøken"),
        ({"weighting": "none"}, "its page has a price slider"),
        ({"others": [three]}, "must have the same classes: model 2 has brøken, fine, worn out without a positive one"),
    ):
        with pytest.raises(crcen.CrcenError, match=sentence):
            crcen.report_table(two, frame, out=tmp_path / "r.html", **own)


SMALL = {"hidden": [()], "l2": 1e-3, "encoding": "standard", "n_members": 1}


def draw(k):
    """1,600 rows of K classes with a known softmax."""
    rng = np.random.default_rng(k)
    X = rng.standard_normal((1600, 3))
    logits = np.column_stack([np.full(1600, 2.2), X @ [1.0, -0.7, 0.4], X[:, 1] - 0.5])[:, :k]
    state = np.array(["no", "yes", "worst"])[(logits + rng.gumbel(size=logits.shape)).argmax(axis=1)]
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(bad=state)


def fitted(table, **how):
    weights = Budget(5) if table["bad"].nunique() == 2 else "balanced"
    return fit_table(table[:800], target="bad", weighting=weights, estimator=crcen.CRCENClassifierCV(**SMALL), **how)


@pytest.mark.parametrize("k", [2, 3])
def test_a_fit_measures_its_error_and_its_file_keeps_it(tmp_path, k):
    table = draw(k)
    fit, new = fitted(table, out=tmp_path / "m.crcen"), table[800:]
    again, error = load(tmp_path / "m.crcen"), fit.model.training_error_
    np.testing.assert_array_equal(again.training_error_.covariance, error.covariance)
    assert fit.to_dict()["training_error"] == (error.size if k == 2 else error.sizes.tolist())
    assert k == 3 or error.degrees == 5.0  # six refits
    # Logistic regression with about 100 positives: about one over the root of the information at this price.
    assert ((error.sizes > 0.02) & (error.sizes < 0.4)).all()
    assert "model uncertainty" in fit.details()
    # An evaluation by the file and the report's check have the test of key_equation with this error.
    numbers, q = np.searchsorted(again.classes_, new["bad"]), again.weighted_proba(new)
    rows = (numbers == 1, q[:, 1]) if k == 2 else (numbers, q)
    want = crcen.key_equation(*rows, again.weighting_, training_error=error)
    seen = evaluate_table(tmp_path / "m.crcen", new, n_resamples=0).equation
    page = crcen.write_report(again, new.drop(columns="bad"), new["bad"], tmp_path / "r.html")
    measured = next(one for one in page.findings if one.code == "CRC007").measured
    if k == 2:
        assert (seen.z, seen.p_value) == pytest.approx((want.z, want.p_value), rel=1e-6)
        assert f"z = {want.z:.2f}" in measured
        return
    want = want.equations
    assert (seen.equations.statistic, seen.equations.p_value) == pytest.approx((want.statistic, want.p_value), rel=1e-6)
    assert want.p_value > crcen.key_equation(*rows, again.weighting_).equations.p_value
    assert f"p-value {want.p_value:.3g}" in measured
    with pytest.raises(crcen.InvalidInput, match="is for 3 classes"):
        crcen.key_equation(numbers == 0, q[:, 0], None, training_error=error)


def test_without_refits_an_evaluation_allows_for_twice_the_labels():
    table = draw(2)
    fit = fitted(table, n_refits=0)
    assert not hasattr(fit.model, "training_error_")
    new = table[800:1200]
    plain = crcen.key_equation(new["bad"] == "yes", fit.model.weighted_proba(new)[:, 1], fit.model.weighting_)
    seen = evaluate_table(fit.model, new, n_resamples=0)
    assert seen.equation.z == pytest.approx(plain.z / math.sqrt(1 + 2 * 400 / 800), rel=1e-6)
    with pytest.raises(InvalidParameter, match="n_refits must be 0, or a whole number of at least 3: got 2"):
        fitted(table, n_refits=2)


def test_under_twenty_positives_are_too_few():
    table = draw(2)
    model = fitted(table).model
    few = table[800:].groupby("bad").head(19)
    seen = evaluate_table(model, few, n_resamples=0).equation
    assert seen.verdict == "not tested"
    assert "too few: 19 positives" in str(seen)
    del model.training_error_
    assert "fewer than 20 rows of a class are too few" in str(evaluate_table(model, few, n_resamples=0).equation)


def test_an_error_of_few_rows_is_that_of_all_scaled_and_never_below_the_labels():
    """Logistic regression: from 200 of 2,000 rows the same as from halves, within what 30 refits can tell."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    X = rng.standard_normal((2000, 2))
    p = sigmoid(-1.0 + X @ [1.0, 0.5])
    y = (rng.random(2000) < p).astype(int)
    model = LogisticRegression(C=1e6).fit(X, y)
    halves = crcen.training_error(model, X, y, n_fits=30)
    small = crcen.training_error(model, X, y, n_fits=30, max_rows=200)
    least = 1 / math.sqrt(np.sum(p * (1 - p)))
    assert small.size == pytest.approx(halves.size, rel=0.4)
    assert min(small.size, halves.size) > 0.97 * least
    with pytest.raises(InvalidParameter, match="max_rows must be a whole number of at least 10"):
        crcen.training_error(model, X, y, max_rows=3)


def shifted_rows(n, seed, shift=0.0, slope=1.2):
    rng = np.random.default_rng(seed)
    x, kind = rng.normal(size=n), rng.choice(["a", "b", "c"], n)
    bad = rng.random(n) < 1 / (1 + np.exp(2.2 - shift - slope * x - (kind == "c")))
    return pd.DataFrame({"x": x.round(4), "kind": kind, "bad": np.where(bad, "yes", "no")})


def test_audits_without_their_labels_give_no_bound(fitted, mixed_table):
    rows = mixed_table(800, seed=9)
    p = fitted.model.predict_proba(rows)[:, 1]
    threshold = np.quantile(p, 0.8)
    is_alarm, price = p > threshold, Budget((1 - threshold) / threshold)
    rows = rows.assign(e=np.where(is_alarm, 1.0, 0.2), weight=1.0)
    judge = partial(evaluate_table, fitted.model, weighting=price, audit_probability="e", n_resamples=0)
    with pytest.raises(InvalidInput, match="0 rows without an alarm have a label where"):
        judge(rows.assign(bad=rows["bad"].where(is_alarm)))
    audited = rows.assign(bad=rows["bad"].where(is_alarm | (np.random.default_rng(0).random(800) < 0.2)))
    assert judge(audited).audited.n_audited
    with pytest.raises(InvalidParameter, match="weight must be left out"):
        judge(audited, weight="weight")


def test_the_stated_prevalence_is_that_of_all_compared_models(model_file, mixed_table, tmp_path):
    shutil.copy(model_file, tmp_path / "same.crcen")
    done = {"out": tmp_path / "r.html", "prevalence": 0.02, "others": [tmp_path / "same.crcen"]}
    report_table(model_file, mixed_table(400, seed=9), **done)
    assert "+0 (+0 to +0)" in (tmp_path / "r.html").read_text()


@pytest.fixture(scope="module")
def model_at_ten(tmp_path_factory):
    """At a budget of 10, so that the steps 5 to 10 and 10 to 20 are on the report's ladder too."""
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=20, encoding="standard", n_members=1)
    fit = crcen.fit_table(shifted_rows(1500, 0), target="bad", weighting=crcen.Budget(10), estimator=search)
    return crcen.save(fit.model, tmp_path_factory.mktemp("one") / "model.crcen")


def embedded(path):
    return json.loads(re.search(r'id="report-data">(.*?)</script>', path.read_text(), re.S)[1])


# From rows like those of training to rows on which everything is off, some of them near a limit.
SHIFTS = np.linspace(-1.0, 1.0, 9)


def both_outcomes(crcen_command, model_at_ten, folder, seed, shift):
    shifted_rows(1000, 100 + seed, shift).to_csv(folder / "rows.csv", index=False)
    page = folder / "report.html"
    judged = crcen_command("evaluate", model_at_ten, folder / "rows.csv", "--resamples", 40, "--json")
    reported = crcen_command("report", model_at_ten, folder / "rows.csv", "--out", page, "--json")
    assert (judged[0], reported[0]) == (0, 0)
    return json.loads(judged[1]), json.loads(reported[1]), embedded(page), page.read_text()


def test_figures_and_verdicts_are_the_same(crcen_command, model_at_ten, tmp_path):
    seen = {"CRC004": set(), "CRC007": set(), "step": set()}
    for seed, shift in enumerate(SHIFTS):
        judged, reported, page, text = both_outcomes(crcen_command, model_at_ten, tmp_path, seed, shift)
        found = {one["code"]: one for one in reported["findings"]}
        equation, panel = judged["key_equation"], page["key_equations"]["these_rows"]
        assert equation["z"] == pytest.approx(panel["z"])
        assert (equation["left"], equation["right"]) == pytest.approx((panel["lhs"], panel["rhs"]))
        assert f"z = {equation['z']:.2f}," in found["CRC007"]["measured"]
        assert f"<td>{equation['z']:.2f}</td>" in text
        assert (equation["verdict"] == "does not hold") == (found["CRC007"]["status"] == "warning")
        moved = any("CRC004" in note for note in judged["notes"])
        # Scores out of fold are looked at in the report alone, so it may warn where the share did not move.
        assert not moved or found["CRC004"]["status"] == "warning"
        own = {one["code"]: one["status"] for one in judged["findings"]}
        assert own == {code: one["status"] for code, one in found.items() if code in own}
        steps = {tuple(step["bracket"]): step for step in judged["expense"]}
        assert set(steps) == {(5.0, 10.0), (10.0, 20.0)}
        if any(step["is_beyond_noise"] for step in steps.values()):
            assert found["CRC002"]["status"] == "warning"
        seen["CRC004"].add(moved)
        seen["CRC007"].add(equation["verdict"])
        seen["step"] |= {step["is_beyond_noise"] for step in steps.values()}
        counts = judged["counts"]
        assert counts["found"] == page["explorer"]["tp"][_cut(page, 10.0)]
        assert counts["false_alarms"] == page["explorer"]["fp"][_cut(page, 10.0)]
        assert (counts["positives"], judged["rows"]) == (page["rows"]["n_pos"], page["rows"]["n_rows"])
        assert judged["price"]["cost_ratio"] == 10
        area, cost, words = judged["metrics"]["roc_auc"], judged["cost_per_1000"], " ".join(text.split())
        assert f"{area['value']:.4g} (95 % interval {area['low']:.4g} to {area['high']:.4g})" in words
        assert f"per 1,000 rows (95 % interval {cost['low']:.3g} to {cost['high']:.3g})" in words
    assert seen == {"CRC004": {True, False}, "CRC007": {"holds", "does not hold"}, "step": {True, False}}


def _cut(page, price):
    """The last point of the explorer that is an alarm at a price."""
    return int(np.flatnonzero(np.array(page["explorer"]["score"]) > 1 / (1 + price))[-1])
